/* ckv_keeper, the account of one layer's rows: scores as a stream's and as plain double arithmetic says, exactly as many
 * rows go as are asked for, pins hold, state comes back, and what is wrong changes nothing. */
#include "stream_support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ an engine */

/* The layer as it stands: keys of the rows that the keeper counts, queries of the newest m tokens. */
typedef struct shown {
	tensor k, q;
	stored stored_k, stored_q;
	ckv_layer layer;
} shown;

static shown show_as(const ckv_keeper *keeper, const tokens *t, int32_t m, ckv_dtype dtype, layout order) {
	ckv_stream_rows rows = keeper_rows_of(keeper);
	int32_t seen = ckv_keeper_seen(keeper);
	shown s = {.k = {t->k.n_heads, rows.n, t->k.dim, NULL}, .q = {t->q.n_heads, m, t->q.dim, NULL}};
	size_t dim = (size_t)t->k.dim * sizeof(float);
	s.k.value = test_memory((size_t)(s.k.n_heads * rows.n), dim);
	s.q.value = test_memory((size_t)(s.q.n_heads * m), dim);
	for (int32_t h = 0; h < s.k.n_heads; h++) {
		for (int32_t i = 0; i < rows.n; i++) {
			memcpy(tensor_row(&s.k, h, i), tensor_row(&t->k, h, rows.positions[i]), dim);
		}
	}
	for (int32_t h = 0; h < s.q.n_heads; h++) {
		for (int32_t i = 0; i < m; i++) {
			memcpy(tensor_row(&s.q, h, i), tensor_row(&t->q, h, seen - m + i), dim);
		}
	}
	s.stored_k = stored_make(&s.k, dtype, order, 4);
	s.stored_q = stored_make(&s.q, dtype, order, 8);
	ckv_layer_init(&s.layer);
	s.layer.k = s.stored_k.view;
	s.layer.q = s.stored_q.view;
	return s;
}

static void shown_free(shown *s) {
	tensor_free(&s->k);
	tensor_free(&s->q);
	stored_free(&s->stored_k);
	stored_free(&s->stored_q);
}

static void observe(ckv_keeper *keeper, const tokens *t, int32_t m) {
	shown s = show_as(keeper, t, m, CKV_F32, HEADS_OUTSIDE);
	CHECK(ckv_keeper_observe(keeper, &s.layer) == CKV_OK, "%s", ckv_keeper_message(keeper));
	shown_free(&s);
}

static void append(ckv_keeper *keeper, int32_t n) {
	CHECK(ckv_keeper_append(keeper, n) == CKV_OK, "%s", ckv_keeper_message(keeper));
}

static void check_indices(const ckv_keeper *keeper, const int32_t *before, int32_t n_before, const int32_t *indices,
                          int32_t n) {
	ckv_stream_rows rows = keeper_rows_of(keeper);
	int32_t gone = 0, kept = 0;
	for (int32_t i = 0; i < n_before; i++) {
		if (gone < n && indices[gone] == i) {
			gone++;
		} else {
			CHECK(kept < rows.n && rows.positions[kept++] == before[i], "row %d was of %d", i, before[i]);
		}
	}
	CHECK(gone == n && kept == rows.n, "%d rows went, %d are left of %d", gone, rows.n, n_before);
}

/* n rows go; the indices are checked against what is left. */
static void evict(ckv_keeper *keeper, int32_t n) {
	ckv_stream_rows rows = keeper_rows_of(keeper);
	int32_t n_before = rows.n, *before = test_memory((size_t)n_before, sizeof *before);
	int32_t *indices = test_memory((size_t)n + 1, sizeof *indices);
	paint(indices + n, sizeof *indices);
	memcpy(before, rows.positions, (size_t)n_before * sizeof *before);
	CHECK(ckv_keeper_evict(keeper, n, indices) == CKV_OK, "%s", ckv_keeper_message(keeper));
	assert_true(is_painted(indices + n, sizeof *indices));
	check_indices(keeper, before, n_before, indices, n);
	free(before);
	free(indices);
}

static void check_close(ckv_stream_rows a, ckv_stream_rows b, bool scored, const char *what) {
	CHECK(a.n == b.n, "%s: %d and %d rows", what, a.n, b.n);
	for (int32_t i = 0; i < a.n; i++) {
		CHECK(a.positions[i] == b.positions[i], "%s: row %d is of %d and of %d", what, i, a.positions[i], b.positions[i]);
		double x = scored ? (double)a.scores[i] : 0.0, y = scored ? (double)b.scores[i] : 0.0;
		CHECK(fabs(x - y) <= 1e-5 * fabs(x) + 1e-7, "%s: position %d: %.9g and %.9g", what, a.positions[i], x, y);
	}
}

/* ------------------------------------------------------------- as a stream does */

static const char *const policies[] = {"chunkkv:chunk=4,grace=9", "h2o",
                                       "h2o:grace=0,decay=1",     "tova",
                                       "tova:chunk=3,grace=4",    "streamingllm",
                                       "l2norm:grace=3",          "chunkkv:scorer=key_norm,chunk=5,grace=2",
                                       "snapkv:window=8",         "snapkv:window=4,chunk=3"};
enum { N_POLICIES = sizeof policies / sizeof *policies };

static void shown_every_token_it_decides_as_a_stream(void **state) {
	rng r = {1};
	(void)state;
	for (size_t i = 0; i < 3 * (size_t)N_POLICIES; i++) {
		const char *policy = policies[i % N_POLICIES];
		const ckv_stream_shape shape = {1, rng_range(&r, 4, 20), 2};
		int32_t budget = least_budget(policy) + rng_range(&r, 0, 20), want;
		ckv_stream_params params = stream_params(policy);
		ckv_keeper *keeper = keeper_make(policy, NULL);
		ckv_stream *s = stream_make(policy, budget, &shape, 1, NULL);
		tokens t = tokens_random(&r, shape, 180, rng_range(&r, 1, 3));
		want = ckv_keeper_needs(&params).n_queries;
		for (int32_t n = 0; n < 180; n++) {
			const int32_t *evicted;
			int32_t gone, m = strcmp(params.scorer, "attn_mass") == 0 ? 1 : want;
			push(s, 0, &t, n, 1);
			assert_int_equal(ckv_stream_evicted(s, 0, 0, &evicted, &gone), CKV_OK);
			append(keeper, 1);
			observe(keeper, &t, m < 1 ? 1 : m < n + 1 ? m : n + 1);
			evict(keeper, gone);
			check_close(head_rows(s, 0, 0), keeper_rows_of(keeper), head_rows(s, 0, 0).scores != NULL, policy);
		}
		ckv_keeper_free(keeper);
		ckv_stream_free(s);
		tokens_free(&t);
	}
}

/* Queries of up to 32 tokens at once, before anything goes. */
static void shown_several_tokens_at_once_it_is_the_same(void **state) {
	static const char *const some[] = {"h2o", "h2o:decay=1", "chunkkv:chunk=4,grace=5", "chunkkv:decay=0.9,grace=0"};
	const ckv_stream_shape shape = {2, 12, 2};
	rng r = {2};
	(void)state;
	for (size_t i = 0; i < 20; i++) {
		ckv_keeper *one = keeper_make(some[i % 4], NULL), *lazy = keeper_make(some[i % 4], NULL);
		tokens t = tokens_random(&r, shape, 400, 2);
		for (int32_t n = 0, m; n < 400; n += m) {
			m = rng_range(&r, 1, 400 - n < 32 ? 400 - n : 32);
			for (int32_t j = 0; j < m; j++) {
				append(one, 1);
				observe(one, &t, 1);
			}
			int32_t first = rng_range(&r, 1, m);
			append(lazy, first);
			append(lazy, m - first);
			observe(lazy, &t, m);
			check_close(keeper_rows_of(one), keeper_rows_of(lazy), true, some[i % 4]);
			int32_t can = ckv_keeper_evictable(one), go = rng_range(&r, 0, can);
			assert_int_equal(ckv_keeper_evictable(lazy), can);
			evict(one, go);
			evict(lazy, go);
			check_close(keeper_rows_of(one), keeper_rows_of(lazy), true, some[i % 4]);
		}
		ckv_keeper_free(one);
		ckv_keeper_free(lazy);
		tokens_free(&t);
	}
}

/* w[row] of one query head, in double. */
static void naive_weights(const shown *s, int32_t head, int32_t i, int32_t n, double *w) {
	int32_t group = s->q.n_heads / s->k.n_heads, dim = s->k.dim;
	double scale = s->layer.scale != 0.0f ? (double)s->layer.scale : 1.0 / sqrt(dim), cap = (double)s->layer.logit_cap,
	       sum = 0.0;
	for (int32_t j = 0; j < n; j++) {
		double logit = 0.0;
		for (int32_t c = 0; c < dim; c++) {
			logit += (double)tensor_row(&s->q, head, i)[c] * (double)tensor_row(&s->k, head / group, j)[c];
		}
		logit = cap > 0.0 ? cap * tanh(logit * scale / cap) : logit * scale;
		w[j] = exp(logit);
		sum += w[j];
	}
	for (int32_t j = 0; j < n; j++) {
		w[j] /= sum;
	}
}

/* Mean over all query heads of what each token gives the rows older than itself; tova: the newest, to its own too. */
static void naive_scores(const ckv_keeper *keeper, const shown *s, const char *scorer, double *scores) {
	ckv_stream_rows rows = keeper_rows_of(keeper);
	int32_t m = s->q.n_tokens, heads = s->q.n_heads, seen = ckv_keeper_seen(keeper);
	bool tova = strcmp(scorer, "tova") == 0, norm = strcmp(scorer, "knorm") == 0;
	double *w = test_memory((size_t)rows.n, sizeof *w);
	for (int32_t j = 0; j < rows.n; j++) {
		scores[j] = 0.0;
		for (int32_t h = 0; h < s->k.n_heads && norm; h++) {
			double sum = 0.0;
			for (int32_t c = 0; c < s->k.dim; c++) {
				sum += pow((double)tensor_row(&s->k, h, j)[c], 2);
			}
			scores[j] -= sqrt(sum) / s->k.n_heads;
		}
	}
	for (int32_t i = tova ? m - 1 : 0; i < m && !norm; i++) {
		int32_t n = 0;
		while (n < rows.n && rows.positions[n] < seen - m + i + tova) {
			n++;
		}
		for (int32_t h = 0; h < heads && n; h++) {
			naive_weights(s, h, i, n, w);
			for (int32_t j = 0; j < n; j++) {
				scores[j] += w[j] / heads / (tova ? 1 : m);
			}
		}
	}
	free(w);
}

/* Scale, cap, groups of query heads, types, threads and instruction sets. */
static void scores_are_means_over_all_query_heads_however_stored(void **state) {
	static const char *const some[] = {"tova", "snapkv:window=6", "l2norm:grace=0"};
	static const ckv_dtype dtypes[] = {CKV_F32, CKV_F16, CKV_BF16, CKV_DECODED};
	rng r = {3};
	(void)state;
	for (size_t i = 0; i < 60; i++) {
		const ckv_stream_shape shape = {rng_range(&r, 1, 4), rng_range(&r, 1, 70), 1};
		ckv_stream_params params = stream_params(some[i % 3]);
		tokens t = tokens_random(&r, shape, 90, rng_range(&r, 1, 4));
		ckv_keeper *first = NULL;
		float scale = rng_chance(&r, 2) ? 0.0f : 0.1f + fabsf(rng_float(&r)),
		      cap = rng_chance(&r, 2) ? 0.0f : 1.0f + fabsf(rng_float(&r));
		for (size_t d = 0; d < 8; d++) {
			ckv_ctx_options options = stream_options(d % 2 ? ~0u : 0, (int32_t)d / 2 + 1);
			ckv_keeper *keeper = keeper_make(some[i % 3], &options);
			append(keeper, 70);
			int32_t go[3] = {5, 20, 33};
			assert_int_equal(ckv_keeper_drop(keeper, go, 3), CKV_OK);
			append(keeper, 3);
			shown s = show_as(keeper, &t, i % 3 == 1 ? 6 : 1, dtypes[d % 4], d < 4 ? HEADS_OUTSIDE : TOKENS_OUTSIDE);
			double expected[90];
			s.layer.scale = scale;
			s.layer.logit_cap = cap;
			CHECK(ckv_keeper_observe(keeper, &s.layer) == CKV_OK, "%s", ckv_keeper_message(keeper));
			naive_scores(keeper, &s, params.scorer, expected);
			check_scores(expected, keeper_rows_of(keeper).scores, (size_t)keeper_rows_of(keeper).n, some[i % 3]);
			if (first) {
				check_bits(keeper_rows_of(first).scores, keeper_rows_of(keeper).scores, (size_t)keeper_rows_of(keeper).n,
				           some[i % 3]);
				ckv_keeper_free(keeper);
			} else {
				first = keeper;
			}
			shown_free(&s);
		}
		ckv_keeper_free(first);
		tokens_free(&t);
	}
}

static void what_a_keeper_wants_to_see_is_told(void **state) {
	static const struct {
		const char *policy;
		uint32_t flags;
		int32_t n;
	} cases[] = {{"h2o", CKV_NEED_QUERIES, 32},
	             {"tova", CKV_NEED_QUERIES, 1},
	             {"snapkv:window=9", CKV_NEED_QUERIES, 9},
	             {"l2norm", 0, 0},
	             {"streamingllm", 0, 0},
	             {"chunkkv:scorer=key_norm", 0, 0}};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		ckv_stream_params params = stream_params(cases[i].policy);
		ckv_needs needs = ckv_keeper_needs(&params);
		CHECK(needs.flags == cases[i].flags && needs.n_queries == cases[i].n, "%s: %x, %d", cases[i].policy, needs.flags,
		      needs.n_queries);
	}
	assert_int_equal(ckv_keeper_needs(NULL).flags, 0);
}

/* ---------------------------------------------------------------- evicting, pins */

/* A keeper with random scores, in the state of which anything may be. */
static ckv_keeper *busy_keeper(rng *r, const char *policy, const tokens *t, int32_t pins[2][2]) {
	ckv_keeper *keeper = keeper_make(policy, NULL);
	for (int i = 0; i < 2; i++) {
		pins[i][0] = rng_range(r, 0, 110);
		pins[i][1] = pins[i][0] + (rng_chance(r, 3) ? 0 : rng_range(r, 1, 12));
		assert_int_equal(ckv_keeper_pin(keeper, pins[i][0], pins[i][1]), CKV_OK);
	}
	for (int i = 0; i < 3; i++) {
		int32_t n = rng_range(r, 1, 30);
		append(keeper, n);
		observe(keeper, t, n);
		evict(keeper, rng_range(r, 0, ckv_keeper_evictable(keeper) / 2));
	}
	return keeper;
}

typedef struct plain {
	int32_t n, positions[100];
	float scores[100];
} plain;

/* The lowest chunk that may go. */
static bool lowest_chunk(const plain *rows, const ckv_stream_params *p, int32_t seen, int32_t pins[2][2], int32_t *first,
                         int32_t *end, int32_t *all) {
	double best = 0.0;
	bool found = false;
	for (int32_t i = 0; i < rows->n;) {
		int32_t from = i, start = rows->positions[i] - (rows->positions[i] - p->sinks) % p->chunk,
		        last = start + p->chunk - 1;
		double sum = 0.0;
		if (rows->positions[i] < p->sinks) {
			i++;
			continue;
		}
		for (; i < rows->n && rows->positions[i] <= last; i++) {
			sum += (double)rows->scores[i];
		}
		bool stays = last >= seen - p->grace;
		for (int32_t at = start; at <= last; at++) {
			stays = stays || (at >= pins[0][0] && at < pins[0][1]) || (at >= pins[1][0] && at < pins[1][1]);
		}
		*all += stays ? 0 : i - from;
		if (!stays && (!found || sum / (i - from) < best)) {
			best = sum / (i - from);
			*first = from;
			*end = i;
			found = true;
		}
	}
	return found;
}

/* Exactly n rows, chunk after chunk; of one that is too long its oldest. */
static void the_lowest_chunks_go_and_pins_stay(void **state) {
	rng r = {4};
	(void)state;
	for (int i = 0; i < 300; i++) {
		char policy[96];
		const ckv_stream_shape shape = {1, 6, 1};
		int32_t pins[2][2], first = 0, end = 0, all = 0;
		snprintf(policy, sizeof policy, "chunkkv:chunk=%d,grace=%d,sinks=%d", rng_range(&r, 1, 7), rng_range(&r, 0, 12),
		         rng_range(&r, 0, 5));
		ckv_stream_params params = stream_params(policy);
		tokens t = tokens_random(&r, shape, 100, 1);
		ckv_keeper *keeper = busy_keeper(&r, policy, &t, pins);
		ckv_stream_rows rows = keeper_rows_of(keeper);
		plain p = {.n = rows.n};
		memcpy(p.positions, rows.positions, (size_t)rows.n * sizeof *rows.positions);
		memcpy(p.scores, rows.scores, (size_t)rows.n * sizeof *rows.scores);
		lowest_chunk(&p, &params, ckv_keeper_seen(keeper), pins, &first, &end, &all);
		CHECK(ckv_keeper_evictable(keeper) == all, "%s: %d, not %d", policy, ckv_keeper_evictable(keeper), all);
		int32_t n = rng_range(&r, 0, all), ignored = 0, none;
		assert_int_equal(ckv_keeper_evict(keeper, all + 1, &none), CKV_ERR_CAPACITY);
		assert_true(ckv_keeper_message(keeper)[0] && keeper_rows_of(keeper).n == p.n);
		evict(keeper, n);
		while (n > 0) {
			assert_true(lowest_chunk(&p, &params, ckv_keeper_seen(keeper), pins, &first, &end, &ignored));
			end = end - first > n ? first + n : end;
			n -= end - first;
			memmove(p.positions + first, p.positions + end, (size_t)(p.n - end) * sizeof *p.positions);
			memmove(p.scores + first, p.scores + end, (size_t)(p.n - end) * sizeof *p.scores);
			p.n -= end - first;
		}
		check_close((ckv_stream_rows){p.n, p.positions, p.scores}, keeper_rows_of(keeper), true, policy);
		ckv_keeper_free(keeper);
		tokens_free(&t);
	}
}

static void a_pin_is_widened_to_whole_chunks(void **state) {
	(void)state;
	ckv_keeper *keeper = keeper_make("chunkkv:chunk=8,grace=0,sinks=4", NULL);
	append(keeper, 4 + 8 * 10);
	assert_int_equal(ckv_keeper_evictable(keeper), 80);
	assert_int_equal(ckv_keeper_pin(keeper, 0, 4), CKV_OK); /* sinks stay anyhow */
	assert_int_equal(ckv_keeper_pin(keeper, 30, 30), CKV_OK);
	assert_int_equal(ckv_keeper_evictable(keeper), 80);
	assert_int_equal(ckv_keeper_pin(keeper, 11, 13), CKV_OK);
	assert_int_equal(ckv_keeper_evictable(keeper), 64);
	assert_int_equal(ckv_keeper_pin(keeper, 3, 5), CKV_OK);
	assert_int_equal(ckv_keeper_evictable(keeper), 64);
	assert_int_equal(ckv_keeper_pin(keeper, 90, CKV_MAX_TOKENS), CKV_OK); /* to come */
	append(keeper, 16);
	assert_int_equal(ckv_keeper_evictable(keeper), 64);
	assert_int_equal(ckv_keeper_pin(keeper, -1, 5), CKV_ERR_ARG);
	assert_int_equal(ckv_keeper_pin(keeper, 6, 5), CKV_ERR_ARG);
	assert_int_equal(ckv_keeper_pin(keeper, 0, INT32_MAX), CKV_ERR_ARG);
	assert_int_equal(ckv_keeper_evictable(keeper), 64);
	evict(keeper, 64);
	assert_int_equal(ckv_keeper_evictable(keeper), 0);
	ckv_keeper_free(keeper);
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(shown_every_token_it_decides_as_a_stream),
	    cmocka_unit_test(shown_several_tokens_at_once_it_is_the_same),
	    cmocka_unit_test(scores_are_means_over_all_query_heads_however_stored),
	    cmocka_unit_test(what_a_keeper_wants_to_see_is_told),
	    cmocka_unit_test(the_lowest_chunks_go_and_pins_stay),
	    cmocka_unit_test(a_pin_is_widened_to_whole_chunks),
	};
	return cmocka_run_group_tests_name("keeper", tests, NULL, NULL);
}
