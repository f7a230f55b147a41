/* Streaming caches, product mode: the token step against one in plain double arithmetic, what holds after every call, and
 * that nothing but the tokens decides: not how they are split into calls, nor their type, nor threads, nor the processor. */
#include "stream_support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------- the token step */

static const char *const policies[] = {
    "chunkkv:chunk=4,grace=9",
    "chunkkv:chunk=5,grace=0,sinks=0,decay=0.9",
    "chunkkv",
    "chunkkv-reuse:chunk=3,grace=5",
    "h2o",
    "h2o:grace=0,sinks=1",
    "tova",
    "tova:chunk=3,grace=4",
    "streamingllm",
    "streamingllm:sinks=0",
    "snapkv:window=8",
    "snapkv:window=5,chunk=3,sinks=2",
    "snapkv:window=3,layers=pyramid",
    "chunkkv:scorer=snapkv,window=4",
    "pyramidkv:grace=4",
    "pyramidkv:grace=2,beta=1.3,sinks=1",
    "squeezeattention:grace=4",
    "squeezeattention:strength=0.5,grace=3",
    "chunkkv:scorer=snapkv,window=3,layers=squeeze",
    "cam:grace=4,merge_gate=0",
    "cam:merge=mean,grace=4,merge_gate=0",
    "cam:grace=4",
    "cam:merge_keys=1,grace=4,merge_gate=0",
    "cam:merge_keys=1,grace=4,seed=7,merge=mean",
    "l2norm:grace=3",
    "chunkkv:scorer=key_norm,chunk=4,grace=3",
    "chunkkv:scorer=knorm,chunk=3,grace=0",
    "h2o:scorer=streaming",
};
enum { N_POLICIES = sizeof policies / sizeof *policies };

/* A new preset or scorer is to be tried here too. */
static void every_preset_and_scorer_is_tried(void **state) {
	(void)state;
	for (int kind = 0; kind < 2; kind++) {
		const ckv_method_info *(*list)(size_t) = kind ? ckv_stream_scorer_info : ckv_stream_preset_info;
		for (size_t i = 0; list(i); i++) {
			bool found = false;
			for (size_t p = 0; p < N_POLICIES; p++) {
				ckv_stream_params params = stream_params(policies[p]);
				found = found || strcmp(kind ? params.scorer : params.preset, list(i)->name) == 0;
			}
			CHECK(found, "no policy here has %s", list(i)->name);
		}
	}
}

/* Rows; the naive ones then take over the last bit of f16, so that it does not add up. */
static void compare_rows(const ckv_stream *s, naive_head *h, bool keys, const char *what) {
	int32_t dim = keys ? h->t->k.dim : h->t->v.dim;
	size_t n = (size_t)h->n * (size_t)dim;
	double *expected = keys ? h->keys : h->values;
	uint16_t *rows = test_memory(n, sizeof *rows);
	assert_int_equal(ckv_stream_read(s, h->layer, h->index, NULL, keys ? rows : NULL, keys ? NULL : rows), CKV_OK);
	for (size_t i = 0; i < n; i++) {
		double x = f16_value(rows[i]);
		double most = strcmp(h->params.merge, "drop") == 0 ? 0.0 : fabs(expected[i]) / 900 + 1e-7;
		CHECK(fabs(x - expected[i]) <= most, "%s: %s of position %d: %.9g, not %.9g", what, keys ? "key" : "value",
		      h->positions[i / (size_t)dim], x, expected[i]);
		expected[i] = x;
	}
	free(rows);
}

/* A stream of several layers beside the naive heads. */
typedef struct pair {
	ckv_stream *s;
	ckv_stream_params params;
	ckv_stream_shape shape;
	int32_t n_layers, n_heads, budget, n;
	tokens *layers;
	naive_head *heads; /* [layer][head] */
	int32_t *budgets;
} pair;

static pair pair_make(rng *r, const char *policy, int32_t n, int32_t group) {
	pair p = {.params = stream_params(policy), .n = n, .n_layers = rng_range(r, 2, 4), .n_heads = rng_range(r, 1, 3)};
	ckv_stream_shape shapes[4];
	p.shape = (ckv_stream_shape){p.n_heads, rng_range(r, 3, 24), rng_range(r, 1, 9)};
	p.budget = least_budget(policy) + rng_range(r, 0, 25);
	p.layers = test_memory((size_t)p.n_layers, sizeof *p.layers);
	p.heads = test_memory((size_t)(p.n_layers * p.n_heads), sizeof *p.heads);
	p.budgets = test_memory((size_t)p.n_layers, sizeof *p.budgets);
	for (int32_t i = 0; i < p.n_layers; i++) {
		shapes[i] = p.shape;
		p.layers[i] = tokens_random(r, p.shape, n, group);
		p.budgets[i] = p.budget;
	}
	if (strcmp(p.params.layers, "pyramid") == 0) {
		assert_int_equal(ckv_stream_budgets(&p.params, p.budget, p.n_layers, NULL, p.budgets, NULL), CKV_OK);
	}
	for (int32_t i = 0; i < p.n_layers * p.n_heads; i++) {
		p.heads[i] = naive_make(&p.params, &p.layers[i / p.n_heads], i / p.n_heads, i % p.n_heads, p.budgets[i / p.n_heads]);
	}
	p.s = stream_make(policy, p.budget, shapes, p.n_layers, NULL);
	return p;
}

static void pair_free(pair *p) {
	ckv_stream_free(p->s);
	for (int32_t i = 0; i < p->n_layers; i++) {
		tokens_free(&p->layers[i]);
	}
	for (int32_t i = 0; i < p->n_layers * p->n_heads; i++) {
		naive_free(&p->heads[i]);
	}
	free(p->layers);
	free(p->heads);
	free(p->budgets);
}

/* squeeze: from the token after the measured ones on. */
static void settle(pair *p) {
	float concentration[4];
	for (int32_t i = 0; i < p->n_layers; i++) {
		concentration[i] = (float)naive_concentration(&p->layers[i], p->budget);
	}
	assert_int_equal(ckv_stream_budgets(&p->params, p->budget, p->n_layers, concentration, p->budgets, NULL), CKV_OK);
	for (int32_t i = 0; i < p->n_layers * p->n_heads; i++) {
		p->heads[i].budget = p->budgets[i / p->n_heads];
	}
}

static void compare(const pair *p, naive_head *h, const char *what) {
	naive_head *leader = h - h->layer % p->params.reuse * p->n_heads;
	if (leader != h) { /* the same positions, its own rows */
		ckv_stream_rows own = head_rows(p->s, h->layer, h->index), led = head_rows(p->s, leader->layer, leader->index);
		CHECK(own.n == led.n && memcmp(own.positions, led.positions, (size_t)own.n * sizeof *own.positions) == 0,
		      "%s: layer %d is not as layer %d", what, h->layer, leader->layer);
		return;
	}
	const int32_t *evicted;
	int32_t n;
	assert_int_equal(ckv_stream_evicted(p->s, h->layer, h->index, &evicted, &n), CKV_OK);
	naive_step(h, evicted, n, what);
	naive_compare(h, p->s, what);
	compare_rows(p->s, h, true, what);
	compare_rows(p->s, h, false, what);
	CHECK(layer_info(p->s, h->layer).layer_budget == h->budget, "%s: layer %d has a budget of %d, not %d", what, h->layer,
	      layer_info(p->s, h->layer).layer_budget, h->budget);
}

static void follow_tokens(rng *r, const char *policy, int32_t group, int32_t *decisions, int32_t *near_ties) {
	char what[160];
	pair p = pair_make(r, policy, 150, group);
	snprintf(what, sizeof what, "%s, budget %d, %d query heads of %d KV heads, dim %d", policy, p.budget, group, p.n_heads,
	         p.shape.dim_k);
	for (int32_t t = 0; t < p.n; t++) {
		if (t == p.budget && strcmp(p.params.layers, "squeeze") == 0) {
			settle(&p);
		}
		push_layers(p.s, p.layers, p.n_layers, t, 1);
		for (int32_t i = 0; i < p.n_layers * p.n_heads; i++) {
			compare(&p, &p.heads[i], what);
		}
	}
	for (int32_t i = 0; i < p.n_layers * p.n_heads; i++) {
		*decisions += p.heads[i].decisions;
		*near_ties += p.heads[i].near_ties;
	}
	pair_free(&p);
}

static void every_policy_takes_the_documented_token_step(void **state) {
	static const int32_t groups[] = {0, 1, 3};
	rng r = {1};
	(void)state;
	for (size_t i = 0; i < N_POLICIES; i++) {
		int32_t decisions = 0, near_ties = 0;
		for (size_t g = 0; g < 3; g++) {
			follow_tokens(&r, policies[i], groups[g], &decisions, &near_ties);
		}
		CHECK(decisions > 50, "%s: only %d chunks went", policies[i], decisions);
		CHECK(near_ties * 50 <= decisions, "%s: %d of %d decisions are too close to tell", policies[i], near_ties,
		      decisions);
	}
}

/* Equal scores: the older goes; with knorm the newer, so that the oldest of equal keys stay. */
static void of_equal_tokens_the_older_goes_with_knorm_the_newer(void **state) {
	const ckv_stream_shape shape = {1, 4, 2};
	rng r = {2};
	(void)state;
	for (int newer = 0; newer < 2; newer++) {
		ckv_stream *s = stream_make(newer ? "l2norm:grace=2" : "l2norm:scorer=key_norm,grace=2", 12, &shape, 1, NULL);
		tokens t = tokens_random(&r, shape, 20, 0);
		for (int32_t i = 0; i < 20 * 4; i++) {
			((float *)(void *)t.stored_k.memory)[i] = i % 8 < 4 ? 0.5f : -0.5f;
		}
		push(s, 0, &t, 0, 20);
		ckv_stream_rows rows = head_rows(s, 0, 0);
		assert_int_equal(rows.n, 12);
		assert_int_equal(rows.positions[4], newer ? 4 : 12);
		assert_int_equal(rows.positions[9], newer ? 9 : 17);
		assert_int_equal(rows.positions[11], 19);
		tokens_free(&t);
		ckv_stream_free(s);
	}
}

/* ------------------------------------------------------------ random settings */

static int32_t chunk_of(const ckv_stream_params *p) { return ckv_stream_params_use(p, "chunk") ? p->chunk : 1; }

static int32_t grace_of(const ckv_stream_params *p) {
	return strcmp(p->scorer, "snapkv") == 0 ? p->window : ckv_stream_params_use(p, "grace") ? p->grace : 0;
}

/* kept[position] of a head. */
static void check_protected(const setting *s, const unsigned char *kept, int32_t seen) {
	const ckv_stream_params *p = &s->params;
	for (int32_t i = 0; i < seen; i++) {
		CHECK(kept[i] || (i >= p->sinks && i < seen - grace_of(p)), "%s: %d of %d is gone", s->policy, i, seen);
	}
	for (int32_t i = p->sinks; i < seen; i++) {
		int32_t start = i - (i - p->sinks) % chunk_of(p), whole = seen - start >= chunk_of(p);
		CHECK(kept[i] == kept[start] && (kept[i] || whole), "%s: %d of the chunk at %d, of %d", s->policy, i, start, seen);
	}
}

/* A head after a call that brought tokens from..seen-1; kept[] is of before. */
static void check_head(const setting *s, const ckv_stream *stream, int32_t layer, int32_t head, int32_t from, int32_t seen,
                       unsigned char *kept) {
	ckv_stream_rows rows = head_rows(stream, layer, head);
	const int32_t *evicted;
	int32_t n, left = 0;
	CHECK(rows.n <= layer_info(stream, layer).layer_budget && rows.n == head_rows(stream, layer, 0).n,
	      "%s: layer %d, head %d has %d rows of %d", s->policy, layer, head, rows.n, layer_info(stream, layer).layer_budget);
	assert_int_equal(ckv_stream_evicted(stream, layer, head, &evicted, &n), CKV_OK);
	memset(kept + from, 1, (size_t)(seen - from));
	for (int32_t i = 0; i < n; i++) {
		CHECK(evicted[i] >= 0 && evicted[i] < seen && kept[evicted[i]], "%s: %d went twice", s->policy, evicted[i]);
		kept[evicted[i]] = 0;
	}
	for (int32_t i = 0; i < seen; i++) {
		left += kept[i];
	}
	CHECK(left == rows.n, "%s: %d rows, where %d are left", s->policy, rows.n, left);
	for (int32_t i = 0; i < rows.n; i++) {
		CHECK((i == 0 || rows.positions[i] > rows.positions[i - 1]) && rows.positions[i] >= 0 && rows.positions[i] < seen &&
		          kept[rows.positions[i]],
		      "%s: row %d is of %d", s->policy, i, rows.positions[i]);
	}
	check_protected(s, kept, seen);
}

static void check_info(const setting *s, const ckv_stream *stream, int32_t layer, int32_t seen, int32_t n) {
	ckv_stream_info info = layer_info(stream, layer);
	ckv_stream_shape shape = s->shapes[layer];
	uint64_t heads = (uint64_t)shape.n_kv_heads, row = 2u * (uint64_t)(shape.dim_k + shape.dim_v);
	assert_int_equal(info.tokens_seen, seen);
	assert_int_equal(info.chunk_size, chunk_of(&s->params));
	assert_int_equal(info.tokens_kept, head_rows(stream, layer, 0).n);
	assert_int_equal(info.tokens_most, info.tokens_kept);
	assert_int_equal(info.bytes, heads * (uint64_t)info.tokens_kept * row);
	assert_int_equal(info.bytes_full, heads * (uint64_t)seen * row);
	double ratio = (double)info.bytes_full / (double)info.bytes;
	assert_true(fabs(info.compression_ratio - ratio) <= 1e-12 * ratio);
	/* Rows, what is known of them, notes of what went in the last calls, and the window's queries. */
	uint64_t most = (uint64_t)s->budget * MOST_LAYERS + 2, notes = 16 * (most + (uint64_t)n);
	uint64_t ring = 4u * (uint64_t)(s->params.window * shape.dim_k) * 2;
	assert_true(info.bytes_allocated >= info.bytes + heads * (uint64_t)info.tokens_kept * 8);
	assert_true(info.bytes_allocated <= heads * (most * (row + 16) + notes + ring));
}

static void every_call_leaves_a_well_formed_cache(void **state) {
	rng r = {3};
	(void)state;
	for (int i = 0; i < 150; i++) {
		setting s = setting_make(&r);
		ckv_stream *stream = open_setting(&s, NULL);
		unsigned char *kept = test_memory((size_t)(MOST_LAYERS * 3 * s.n), 1);
		memset(kept, 0, (size_t)(MOST_LAYERS * 3 * s.n));
		for (int32_t from = 0, n, most; from < s.n; from += n) {
			most = from < s.stop && s.stop < s.n ? s.stop - from : s.n - from;
			n = rng_range(&r, 1, rng_chance(&r, 4) ? most : (most < 12 ? most : 12));
			push_layers(stream, s.layers, s.n_layers, from, n);
			for (int32_t l = 0; l < s.n_layers; l++) {
				for (int32_t h = 0; h < s.shapes[l].n_kv_heads; h++) {
					check_head(&s, stream, l, h, from, from + n, kept + (l * 3 + h) * s.n);
				}
				check_info(&s, stream, l, from + n, s.n);
			}
		}
		free(kept);
		ckv_stream_free(stream);
		setting_free(&s);
	}
}

static void calls_may_be_split_anyhow(void **state) {
	rng r = {4};
	(void)state;
	for (int i = 0; i < 100; i++) {
		setting s = setting_make(&r);
		ckv_stream *whole = open_setting(&s, NULL), *split = open_setting(&s, NULL), *single = open_setting(&s, NULL);
		push_whole(&s, whole, 0, s.n);
		push_randomly(&r, split, s.layers, s.n_layers, 0, s.n, s.stop);
		for (int32_t t = 0; t < s.n; t++) {
			push_layers(single, s.layers, s.n_layers, t, 1);
		}
		saved expected = save_stream(whole);
		CHECK(still_saves(split, &expected), "%s, budget %d: random calls", s.policy, s.budget);
		CHECK(still_saves(single, &expected), "%s, budget %d: single tokens", s.policy, s.budget);
		check_same_rows(whole, split, s.shapes, s.n_layers, s.policy);
		check_same_rows(whole, single, s.shapes, s.n_layers, s.policy);
		saved_free(&expected);
		ckv_stream_free(whole);
		ckv_stream_free(split);
		ckv_stream_free(single);
		setting_free(&s);
	}
}

/* Type, layout, instruction set, what the stream did before, and other streams at work. */
static void only_the_tokens_decide(void **state) {
	static const ckv_dtype dtypes[] = {CKV_F32, CKV_F16, CKV_BF16, CKV_DECODED};
	rng r = {5};
	(void)state;
	for (int i = 0; i < 60; i++) {
		setting s = setting_make(&r), other = setting_make(&r);
		ckv_ctx_options options = stream_options(i % 2 ? ~0u : CKV_CPU_AVX2, 0);
		ckv_stream *expected = open_setting(&s, NULL), *stream = open_setting(&s, &options),
		           *else_ = open_setting(&other, NULL);
		tokens layers[MOST_LAYERS];
		push_whole(&s, expected, 0, s.n);
		push_whole(&s, stream, 0, s.stop ? s.stop : 5);
		ckv_stream_clear(stream);
		for (int32_t l = 0; l < s.n_layers; l++) {
			layers[l] = tokens_stored_as(&s.layers[l], dtypes[(l + i) % 4], i % 3 ? HEADS_OUTSIDE : TOKENS_OUTSIDE, 4);
		}
		for (int32_t t = 0; t < s.n; t++) {
			push_layers(stream, layers, s.n_layers, t, 1);
			if (t < other.n) {
				push_layers(else_, other.layers, other.n_layers, t, 1);
			}
		}
		saved bytes = save_stream(expected);
		CHECK(still_saves(stream, &bytes), "%s, budget %d", s.policy, s.budget);
		saved_free(&bytes);
		for (int32_t l = 0; l < s.n_layers; l++) {
			tokens_free(&layers[l]);
		}
		ckv_stream_free(expected);
		ckv_stream_free(stream);
		ckv_stream_free(else_);
		setting_free(&s);
		setting_free(&other);
	}
}

/* Calls large enough that threads are started. */
static void threads_do_not_show(void **state) {
	static const char *const threaded[] = {"chunkkv:grace=16", "h2o", "tova",
	                                       "snapkv:window=16", "cam", "chunkkv-reuse:grace=16"};
	const ckv_stream_shape shapes[] = {{5, 64, 32}, {5, 64, 32}};
	rng r = {6};
	(void)state;
	tokens layers[] = {tokens_random(&r, shapes[0], 300, 2), tokens_random(&r, shapes[1], 300, 2)};
	for (size_t i = 0; i < sizeof threaded / sizeof *threaded; i++) {
		saved expected = {NULL, 0};
		for (int32_t n_threads = 1; n_threads <= 4; n_threads++) {
			ckv_ctx_options options = stream_options(0, n_threads);
			ckv_stream *s = stream_make(threaded[i], 150, shapes, 2, &options);
			push_layers(s, layers, 2, 0, 300);
			if (n_threads == 1) {
				expected = save_stream(s);
			}
			CHECK(still_saves(s, &expected), "%s, %d threads", threaded[i], n_threads);
			ckv_stream_free(s);
		}
		saved_free(&expected);
	}
	tokens_free(&layers[0]);
	tokens_free(&layers[1]);
}

/* ------------------------------------------------------------ the same by another name */

static void check_equivalent(const char *a, const char *b, int32_t budget, int32_t n_layers) {
	const ckv_stream_shape shapes[] = {{2, 12, 5}, {2, 12, 5}, {2, 12, 5}};
	rng r = {7};
	for (int32_t group = 0; group < 3; group++) {
		ckv_stream *x = stream_make(a, budget, shapes, n_layers, NULL), *y = stream_make(b, budget, shapes, n_layers, NULL);
		tokens layers[3];
		for (int32_t i = 0; i < n_layers; i++) {
			layers[i] = tokens_random(&r, shapes[i], 120, group);
		}
		for (int32_t t = 0; t < 120; t += t < budget && t + 8 > budget ? budget - t : 8) {
			int32_t n = t < budget && t + 8 > budget ? budget - t : 120 - t < 8 ? 120 - t : 8;
			push_layers(x, layers, n_layers, t, n);
			push_layers(y, layers, n_layers, t, n);
			check_same_rows(x, y, shapes, n_layers, a);
		}
		for (int32_t i = 0; i < n_layers; i++) {
			tokens_free(&layers[i]);
		}
		ckv_stream_free(x);
		ckv_stream_free(y);
	}
}

static void chunks_of_one_are_h2o(void **state) {
	(void)state;
	check_equivalent("chunkkv:chunk=1,grace=0,decay=1", "h2o:grace=0,decay=1", 20, 1);
	check_equivalent("chunkkv:chunk=1,grace=7,decay=0.95", "h2o:grace=7,decay=0.95", 20, 1);
}

static void squeeze_without_strength_is_h2o(void **state) {
	(void)state;
	check_equivalent("squeezeattention:strength=0", "h2o", 30, 3);
}

static void a_flat_pyramid_is_h2o(void **state) {
	(void)state;
	check_equivalent("pyramidkv:beta=1", "h2o", 30, 3);
}

static void one_layer_gets_the_mean_budget(void **state) {
	(void)state;
	check_equivalent("pyramidkv", "h2o", 25, 1);
	check_equivalent("squeezeattention", "h2o", 25, 1);
}

static void a_token_without_score_is_never_merged(void **state) {
	(void)state;
	/* With grace=0 the newest row, whose score is 0, goes at once. */
	check_equivalent("cam:grace=0,sinks=0,merge_keys=0", "h2o:grace=0,sinks=0", 10, 1);
}

/* Sequences that advance in step are more heads. */
static void heads_are_independent(void **state) {
	const ckv_stream_shape both = {4, 10, 6}, one = {2, 10, 6};
	rng r = {8};
	(void)state;
	for (size_t i = 0; i < 4; i++) {
		static const char *const some[] = {"chunkkv:chunk=3,grace=4", "snapkv:window=4", "tova", "l2norm:grace=2"};
		ckv_stream *all = stream_make(some[i], 20, &both, 1, NULL), *half = stream_make(some[i], 20, &one, 1, NULL);
		tokens t = tokens_random(&r, both, 90, 2);
		for (int32_t n = 0; n < 90; n += 9) {
			ckv_view k = view_part(&t.stored_k.view, n, 9), v = view_part(&t.stored_v.view, n, 9);
			ckv_view q = view_part(&t.stored_q.view, n, 9);
			push(all, 0, &t, n, 9);
			k.n_heads = v.n_heads = 2;
			q.n_heads = 4;
			k.data = (const char *)k.data + 2 * k.stride_head;
			v.data = (const char *)v.data + 2 * v.stride_head;
			q.data = (const char *)q.data + 4 * q.stride_head;
			assert_int_equal(ckv_stream_push(half, 0, &k, &v, &q), CKV_OK);
		}
		for (int32_t h = 0; h < 2; h++) {
			ckv_stream_rows x = head_rows(all, 0, h + 2), y = head_rows(half, 0, h);
			assert_int_equal(x.n, y.n);
			assert_memory_equal(x.positions, y.positions, (size_t)x.n * sizeof *x.positions);
			if (x.scores) {
				check_bits(x.scores, y.scores, (size_t)x.n, some[i]);
			}
		}
		tokens_free(&t);
		ckv_stream_free(all);
		ckv_stream_free(half);
	}
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_preset_and_scorer_is_tried),
	    cmocka_unit_test(every_policy_takes_the_documented_token_step),
	    cmocka_unit_test(of_equal_tokens_the_older_goes_with_knorm_the_newer),
	    cmocka_unit_test(every_call_leaves_a_well_formed_cache),
	    cmocka_unit_test(calls_may_be_split_anyhow),
	    cmocka_unit_test(only_the_tokens_decide),
	    cmocka_unit_test(threads_do_not_show),
	    cmocka_unit_test(chunks_of_one_are_h2o),
	    cmocka_unit_test(squeeze_without_strength_is_h2o),
	    cmocka_unit_test(a_flat_pyramid_is_h2o),
	    cmocka_unit_test(one_layer_gets_the_mean_budget),
	    cmocka_unit_test(a_token_without_score_is_never_merged),
	    cmocka_unit_test(heads_are_independent),
	};
	return cmocka_run_group_tests_name("stream", tests, NULL, NULL);
}
