/* Caches of our own: rows come back as what went in, attention is that over these rows however it is computed, rows go where
 * they are told to, and memory is what is told of it. */
#include "cache_support.h"

#include "cache/internal.h"
#include "quant/quant.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ----------------------------------------------------------------------------------------------------------- rows */

static ckv_stream_shape random_shape(rng *r) {
	return (ckv_stream_shape){rng_range(r, 1, 4), rng_range(r, 1, 20), rng_range(r, 1, 20)};
}

enum { MOST_TOKENS = 150 };

/* A load of some sort, or none, then calls of one token and of several. */
static void fill_randomly(rng *r, ckv_cache *cache, int32_t layer, const tokens *t, held *h) {
	int32_t first = rng_range(r, 0, 2) ? rng_range(r, 1, 100) : 0;
	if (first > 0) {
		lists l = lists_random(r, h->n_heads, first, rng_chance(r, 2));
		cache_load(cache, layer, t, first, rng_chance(r, 3) ? NULL : &l.keep, h);
		lists_free(&l);
	}
	for (int32_t n; first < t->k.n_tokens; first += n) {
		n = rng_chance(r, 2) ? 1 : rng_range(r, 1, t->k.n_tokens - first < 40 ? t->k.n_tokens - first : 40);
		cache_append(cache, layer, t, first, n, h);
	}
}

static void check_counts(const ckv_cache *cache, int32_t layer, const held *h, const ckv_stream_shape *shape) {
	ckv_cache_info info = cache_info(cache, layer);
	int32_t longest = 0;
	int64_t rows = 0;
	for (int32_t head = 0; head < h->n_heads; head++) {
		assert_int_equal(ckv_cache_rows(cache, layer, head), h->n[head]);
		longest = h->n[head] > longest ? h->n[head] : longest;
		rows += h->n[head];
	}
	assert_int_equal(info.rows, rows);
	assert_int_equal(info.longest, longest);
	assert_int_equal(info.bytes_f16, 2 * rows * (shape->dim_k + shape->dim_v));
	assert_true(info.bytes <= info.bytes_allocated);
}

static void rows_come_back_as_f16_of_what_came(void **state) {
	rng r = {1};
	(void)state;
	for (int i = 0; i < 120; i++) {
		ckv_stream_shape shapes[] = {random_shape(&r), random_shape(&r), random_shape(&r)};
		ckv_cache *cache = cache_make("none", shapes, 3, NULL);
		for (int32_t layer = 0; layer < 3; layer += 2) { /* the one between stays empty */
			tokens t = rough_tokens(&r, shapes[layer], MOST_TOKENS, 0);
			held h = held_make(shapes[layer].n_kv_heads, MOST_TOKENS);
			fill_randomly(&r, cache, layer, &t, &h);
			check_f16_rows(cache, layer, &h, &t, "codec none");
			check_counts(cache, layer, &h, &shapes[layer]);
			assert_int_equal(cache_info(cache, layer).bytes, cache_info(cache, layer).bytes_f16);
			assert_int_equal(cache_info(cache, layer).reference_bytes, 0);
			held_free(&h);
			tokens_free(&t);
		}
		assert_int_equal(cache_info(cache, 1).rows, 0);
		assert_int_equal(cache_info(cache, 1).bytes, 0);
		assert_int_equal(cache_info(cache, -1).rows, cache_info(cache, 0).rows + cache_info(cache, 2).rows);
		assert_int_equal(cache_info(cache, -1).bytes, cache_info(cache, 0).bytes + cache_info(cache, 2).bytes);
		ckv_cache_free(cache);
	}
}

static void types_and_layouts_of_what_comes_do_not_show(void **state) {
	static const ckv_dtype types[] = {CKV_F16, CKV_BF16, CKV_DECODED};
	const ckv_stream_shape shape = {3, 11, 6};
	rng r = {2};
	(void)state;
	tokens plain = tokens_random(&r, shape, 60, 0);
	for (size_t c = 0; c < n_test_codecs(); c++) {
		ckv_cache *first = cache_make(test_codecs[c], &shape, 1, NULL);
		assert_int_equal(load_status(first, 0, &plain, 50, NULL), CKV_OK);
		assert_int_equal(append_status(first, 0, &plain, 50, 10), CKV_OK);
		saved bytes = save_cache(first);
		for (size_t i = 0; i < 6; i++) {
			tokens t = tokens_stored_as(&plain, types[i / 2], i % 2 ? TOKENS_OUTSIDE : HEADS_OUTSIDE, 6);
			ckv_cache *cache = cache_make(test_codecs[c], &shape, 1, NULL);
			assert_int_equal(load_status(cache, 0, &t, 50, NULL), CKV_OK);
			assert_int_equal(append_status(cache, 0, &t, 50, 10), CKV_OK);
			CHECK(cache_saves_as(cache, &bytes), "%s: type %d", test_codecs[c], (int)types[i / 2]);
			ckv_cache_free(cache);
			tokens_free(&t);
		}
		saved_free(&bytes);
		ckv_cache_free(first);
	}
	tokens_free(&plain);
}

/* merged: values of the kept rows, one head after another. */
static void merged_values_take_the_place_of_the_rows_own(void **state) {
	const ckv_stream_shape shape = {3, 5, 4};
	rng r = {3};
	(void)state;
	for (int i = 0; i < 20; i++) {
		tokens t = rough_tokens(&r, shape, 40, 0);
		lists l = lists_random(&r, 3, 40, i % 2);
		held h = held_make(3, 40);
		ckv_cache *cache = cache_make("none", &shape, 1, NULL), *other = cache_make("none", &shape, 1, NULL);
		float *merged = test_memory(3 * 40 * 4, sizeof *merged), *next = merged;
		cache_load(other, 0, &t, 40, &l.keep, &h);
		for (int32_t head = 0; head < 3; head++) {
			for (int32_t j = 0; j < 4 * h.n[head]; j++) {
				float value = tensor_row(&t.v, head, h.token[head * h.most + j / 4])[j % 4] + 1.0f;
				tensor_row(&t.v, head, h.token[head * h.most + j / 4])[j % 4] = value;
				*next++ = value;
			}
		}
		ckv_view k = t.stored_k.view, v = t.stored_v.view; /* still the values as they were */
		assert_int_equal(ckv_cache_load(cache, 0, &k, &v, &l.keep, merged), CKV_OK);
		check_f16_rows(cache, 0, &h, &t, "merged");
		free(merged);
		ckv_cache_free(cache);
		ckv_cache_free(other);
		held_free(&h);
		lists_free(&l);
		tokens_free(&t);
	}
}

static void keys_or_values_can_be_read_alone(void **state) {
	const ckv_stream_shape shape = {2, 7, 5};
	rng r = {4};
	(void)state;
	tokens t = rough_tokens(&r, shape, 40, 0);
	for (size_t c = 0; c < n_test_codecs(); c++) {
		ckv_cache *cache = cache_make(test_codecs[c], &shape, 1, NULL);
		float k[40 * 7], v[40 * 5];
		assert_int_equal(load_status(cache, 0, &t, 40, NULL), CKV_OK);
		head_read both = read_head(cache, 0, 1, 7, 5);
		assert_int_equal(ckv_cache_read(cache, 0, 1, k, NULL), CKV_OK);
		assert_int_equal(ckv_cache_read(cache, 0, 1, NULL, v), CKV_OK);
		assert_int_equal(ckv_cache_read(cache, 0, 1, NULL, NULL), CKV_OK);
		check_bits(both.k, k, 40 * 7, "keys");
		check_bits(both.v, v, 40 * 5, "values");
		head_read_free(&both);
		ckv_cache_free(cache);
	}
	tokens_free(&t);
}

/* The rows of a view, as f16, beside those that are read. */
static void check_view(ckv_cache *cache, const ckv_stream_shape *shape, const char *what) {
	ckv_view sides[2];
	float *row = test_memory((size_t)(shape->dim_k + shape->dim_v), sizeof *row);
	CHECK(ckv_cache_view(cache, 0, &sides[0], &sides[1]) == CKV_OK, "%s: no view", what);
	for (int32_t head = 0; head < shape->n_kv_heads; head++) {
		head_read rows = read_head(cache, 0, head, shape->dim_k, shape->dim_v);
		for (int side = 0; side < 2; side++) {
			int32_t dim = side ? shape->dim_v : shape->dim_k;
			assert_int_equal(sides[side].dtype, CKV_F16);
			assert_int_equal(sides[side].n_heads, shape->n_kv_heads);
			assert_int_equal(sides[side].head_dim, dim);
			assert_int_equal(sides[side].n_tokens, rows.n);
			for (int32_t i = 0; i < rows.n; i++) {
				ckv_view_decode(ckv_kernels_c(), &sides[side], head, i, 1, row);
				check_bits((side ? rows.v : rows.k) + i * dim, row, (size_t)dim, what);
			}
		}
		head_read_free(&rows);
	}
	free(row);
}

/* Room is of heads one behind the other, so that a view has one stride. */
static void rows_are_lent_where_they_are_f16_and_even(void **state) {
	const ckv_stream_shape shape = {3, 10, 7};
	const int32_t gone[] = {0, 5};
	rng r = {13};
	ckv_view k, v;
	(void)state;
	tokens t = rough_tokens(&r, shape, 120, 1);
	ckv_cache *cache = cache_make("none", &shape, 1, NULL), *ragged = cache_make("none", &shape, 1, NULL);
	lists shared = lists_random(&r, 3, 60, true);
	assert_int_equal(ckv_cache_view(cache, 0, &k, &v), CKV_ERR_UNSUPPORTED); /* of no rows */
	assert_int_equal(load_status(cache, 0, &t, 60, &shared.keep), CKV_OK);
	check_view(cache, &shape, "loaded");
	assert_int_equal(ckv_cache_rows(cache, 0, 0), shared.offsets[1]);
	for (int32_t i = 60; i < 100; i++) {
		assert_int_equal(append_status(cache, 0, &t, i, 1), CKV_OK);
		check_view(cache, &shape, "appended to");
	}
	for (int32_t head = 0; head < 3; head++) {
		assert_int_equal(ckv_cache_drop(cache, 0, head, gone, 2), CKV_OK);
		CHECK((ckv_cache_view(cache, 0, &k, &v) == CKV_OK) == (head == 2), "dropped of %d heads", head + 1);
	}
	check_view(cache, &shape, "dropped of");
	assert_int_equal(load_status(ragged, 0, &t, 60, NULL), CKV_OK);
	assert_int_equal(ckv_cache_drop(ragged, 0, 1, gone, 1), CKV_OK);
	assert_int_equal(ckv_cache_view(ragged, 0, &k, &v), CKV_ERR_UNSUPPORTED);
	assert_int_equal(ckv_cache_view(ragged, 1, &k, &v), CKV_ERR_ARG);
	assert_int_equal(ckv_cache_view(NULL, 0, &k, &v), CKV_ERR_ARG);
	assert_int_equal(ckv_cache_view(cache, 0, NULL, &v), CKV_ERR_ARG);
	assert_int_equal(ckv_cache_view(cache, 0, &k, NULL), CKV_ERR_ARG);
	lists_free(&shared);
	ckv_cache_free(cache);
	ckv_cache_free(ragged);
	for (size_t c = 1; c < n_test_codecs(); c++) { /* until something is coded */
		ckv_cache *coded = cache_make(test_codecs[c], &shape, 1, NULL);
		assert_int_equal(append_status(coded, 0, &t, 0, 1), CKV_OK);
		check_view(coded, &shape, test_codecs[c]);
		assert_int_equal(append_status(coded, 0, &t, 1, 119), CKV_OK);
		assert_int_equal(ckv_cache_view(coded, 0, &k, &v), CKV_ERR_UNSUPPORTED);
		ckv_cache_free(coded);
	}
	tokens_free(&t);
}

/* ------------------------------------------------------------------------------------------------------ attention */

static void attention_is_that_over_the_rows(void **state) {
	static const int32_t dims[] = {16, 64, 80, 128}, groups[] = {1, 3, 8}, queries[] = {1, 2, 40};
	static const float scales[] = {0.0f, 0.3f, 0.05f}, caps[] = {0.0f, 2.0f, 30.0f};
	rng r = {5};
	(void)state;
	for (int i = 0; i < 36; i++) {
		int32_t dim = dims[i % 4], n = queries[i / 12];
		ckv_stream_shape shape = {2, dim, i % 5 == 0 ? 24 : dim};
		tokens t = rough_tokens(&r, shape, 190, groups[i / 4 % 3]);
		ckv_cache *cache = cache_make("none", &shape, 1, NULL);
		held h = held_make(2, 190);
		lists l = lists_random(&r, 2, 150, false);
		char what[64];
		snprintf(what, sizeof what, "%d channels, group %d", dim, t.group);
		cache_load(cache, 0, &t, 150, &l.keep, &h);
		cache_append(cache, 0, &t, 150, 40 - n, &h);
		cache_append(cache, 0, &t, 190 - n, n, &h);
		check_attend(cache, 0, &(query_case){&t, 190 - n, n, scales[i % 3], caps[i / 3 % 3]}, 1.0, what);
		lists_free(&l);
		held_free(&h);
		ckv_cache_free(cache);
		tokens_free(&t);
	}
}

/* Of the codecs, by what is read back, which is what their rows are. */
static void attention_over_coded_rows_is_that_over_what_is_read(void **state) {
	rng r = {6};
	(void)state;
	for (size_t c = 1; c < n_test_codecs(); c++) {
		/* The published code rounds latents to f16 before it expands them, which the sums in the subspace leave out. */
		double slack = strstr(test_codecs[c], "palu") && strstr(test_codecs[c], "reference") ? 300.0 : 2.0;
		for (int i = 0; i < 8; i++) {
			ckv_stream_shape shape = {2, rng_range(&r, 5, 90), rng_range(&r, 5, 90)};
			int32_t n = i % 2 ? rng_range(&r, 2, 40) : 1;
			tokens t = rough_tokens(&r, shape, 170, rng_range(&r, 1, 4));
			ckv_cache *cache = cache_make(test_codecs[c], &shape, 1, NULL);
			held h = held_make(2, 170);
			lists l = lists_random(&r, 2, 120, i % 3 == 0);
			cache_load(cache, 0, &t, 120, &l.keep, &h);
			cache_append(cache, 0, &t, 120, 50 - n, &h);
			cache_append(cache, 0, &t, 170 - n, n, &h);
			check_attend(cache, 0, &(query_case){&t, 170 - n, n, i % 3 ? 0.0f : 0.2f, i % 4 ? 0.0f : 5.0f}, slack,
			             test_codecs[c]);
			lists_free(&l);
			held_free(&h);
			ckv_cache_free(cache);
			tokens_free(&t);
		}
	}
}

static pthread_t owner;
static int elsewhere[2]; /* by KV head: whether a thread decoded it, one writer each */

static void decode_and_note(const void *row, float *out, size_t n, void *user) {
	(void)user;
	memcpy(out, row, n * sizeof *out);
	int head = out[0] >= 0.0f; /* the first channel tells */
	if (!pthread_equal(pthread_self(), owner)) {
		elsewhere[head] = 1;
	}
}

/* Long enough to be shared among threads, which the decoder of the queries sees. */
static void threads_and_instruction_sets_give_the_same_bits(void **state) {
	static const struct {
		uint32_t disable;
		int32_t threads;
	} runs[] = {{0, 1}, {0, 4}, {CKV_CPU_AVX2, 1}, {CKV_CPU_AVX2, 4}, {0, 0}};
	static const char *const codecs[] = {"none", "kivi4", "palu:rank=40"};
	const ckv_stream_shape shape = {2, 80, 64};
	rng r = {7};
	(void)state;
	owner = pthread_self();
	tokens t = rough_tokens(&r, shape, 400, 4);
	for (int32_t i = 0; i < 8 * 400; i++) { /* the first channel of a query: which KV head */
		t.q.value[(size_t)i * 80] = i / 400 / 4 ? 0.5f : -0.5f;
	}
	stored_free(&t.stored_q);
	t.stored_q = stored_make(&t.q, CKV_F32, HEADS_OUTSIDE, 0);
	t.stored_q.view.dtype = CKV_DECODED;
	t.stored_q.view.row_bytes = 80 * sizeof(float);
	t.stored_q.view.decode = decode_and_note;
	for (size_t c = 0; c < (ckv_low_rank_available() ? 3u : 2u); c++) {
		float *first = NULL;
		size_t n = 0;
		for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
			ckv_ctx_options options = stream_options(runs[i].disable, runs[i].threads);
			ckv_cache *cache = cache_make(codecs[c], &shape, 1, &options);
			assert_int_equal(load_status(cache, 0, &t, 350, NULL), CKV_OK);
			assert_int_equal(append_status(cache, 0, &t, 350, 50), CKV_OK);
			elsewhere[0] = elsewhere[1] = 0;
			float *out = attend_to(cache, 0, &(query_case){&t, 350, 50, 0.0f, 0.0f}, &n);
			CHECK(elsewhere[1] == (runs[i].threads > 1) && elsewhere[0] == 0, "%s, %d threads", codecs[c], runs[i].threads);
			if (first) {
				check_bits(first, out, n, codecs[c]);
				free(out);
			} else {
				first = out;
			}
			ckv_cache_free(cache);
		}
		free(first);
	}
	tokens_free(&t);
}

/* --------------------------------------------------------------------------------------------------- rows that go */

/* What a layer's heads read as, all rows of all heads. */
typedef struct layer_read {
	int32_t n_heads;
	head_read heads[4];
} layer_read;

static layer_read read_layer(ckv_cache *cache, const ckv_stream_shape *shape) {
	layer_read l = {.n_heads = shape->n_kv_heads};
	for (int32_t h = 0; h < l.n_heads; h++) {
		l.heads[h] = read_head(cache, 0, h, shape->dim_k, shape->dim_v);
	}
	return l;
}

static void layer_read_free(layer_read *l) {
	for (int32_t h = 0; h < l->n_heads; h++) {
		head_read_free(&l->heads[h]);
	}
}

/* Rows of the head as before, but those that were dropped. */
static void check_kept(ckv_cache *cache, const ckv_stream_shape *shape, const head_read *before, int32_t head,
                       const int32_t *gone, int32_t n, const char *what) {
	head_read now = read_head(cache, 0, head, shape->dim_k, shape->dim_v);
	CHECK(now.n == before->n - n, "%s: %d rows of %d, without %d", what, now.n, before->n, n);
	for (int32_t i = 0, j = 0, g = 0; i < before->n; i++) {
		if (g < n && gone[g] == i) {
			g++;
			continue;
		}
		check_bits(before->k + i * shape->dim_k, now.k + j * shape->dim_k, (size_t)shape->dim_k, what);
		check_bits(before->v + i * shape->dim_v, now.v + j * shape->dim_v, (size_t)shape->dim_v, what);
		j++;
	}
	head_read_free(&now);
}

/* None, some, a run that takes packed rows and others, all. */
static int32_t choose_gone(rng *r, int32_t rows, int32_t *gone) {
	int32_t sort = rng_range(r, 0, 4), first = rng_range(r, 0, rows), end = rng_range(r, first, rows), n = 0;
	for (int32_t i = 0; i < rows; i++) {
		bool goes = sort == 0 ? rng_chance(r, 4) : sort == 1 ? i >= first && i < end : sort == 2 ? i != first : sort == 3;
		if (goes && (sort != 3 || rng_chance(r, 8) || rows < 30)) {
			gone[n++] = i;
		}
	}
	return n;
}

/* The rest stays as it was, bit for bit, and attention and further tokens go on from there. */
static void dropped_rows_are_gone_and_the_others_stay(void **state) {
	const ckv_stream_shape shape = {3, 12, 9};
	rng r = {8};
	(void)state;
	for (int i = 0; i < 25 * (int)n_test_codecs(); i++) {
		const char *codec = test_codecs[(size_t)i % n_test_codecs()];
		double slack = strstr(codec, "palu") && strstr(codec, "reference") ? 300.0 : 2.0;
		tokens t = rough_tokens(&r, shape, 130, 2);
		ckv_cache *cache = cache_make(codec, &shape, 1, NULL);
		held h = held_make(3, 130);
		int32_t gone[130];
		cache_load(cache, 0, &t, rng_range(&r, 1, 90), NULL, &h);
		for (int32_t first = 90; first < 130; first += 10) {
			layer_read before = read_layer(cache, &shape);
			for (int32_t head = 0; head < 3; head++) {
				int32_t n = choose_gone(&r, before.heads[head].n, gone);
				assert_int_equal(ckv_cache_drop(cache, 0, head, gone, n), CKV_OK);
				check_kept(cache, &shape, &before.heads[head], head, gone, n, codec);
				held_drop(&h, head, gone, n);
			}
			layer_read_free(&before);
			cache_append(cache, 0, &t, first, 9, &h);
			cache_append(cache, 0, &t, first + 9, 1, &h);
			check_counts(cache, 0, &h, &shape);
			check_attend(cache, 0, &(query_case){&t, first + 8, 2, 0.0f, 0.0f}, slack, codec);
		}
		if (i % (int)n_test_codecs() == 0) {
			check_f16_rows(cache, 0, &h, &t, codec);
		}
		held_free(&h);
		ckv_cache_free(cache);
		tokens_free(&t);
	}
}

static void the_newest_rows_can_be_taken_back(void **state) {
	const ckv_stream_shape shape = {2, 12, 9};
	rng r = {9};
	(void)state;
	for (int i = 0; i < 25 * (int)n_test_codecs(); i++) {
		const char *codec = test_codecs[(size_t)i % n_test_codecs()];
		tokens t = rough_tokens(&r, shape, 120, 1);
		lists l = lists_random(&r, 2, 70, false);
		ckv_cache *cache = cache_make(codec, &shape, 1, NULL);
		held h = held_make(2, 120);
		cache_load(cache, 0, &t, 70, &l.keep, &h);
		cache_append(cache, 0, &t, 70, 40, &h);
		layer_read before = read_layer(cache, &shape);
		int32_t least = h.n[0] < h.n[1] ? h.n[0] : h.n[1], n = rng_range(&r, 0, least), gone[120];
		assert_int_equal(ckv_cache_take_back(cache, 0, n), CKV_OK);
		held_take_back(&h, n);
		for (int32_t head = 0; head < 2; head++) {
			for (int32_t j = 0; j < n; j++) {
				gone[j] = before.heads[head].n - n + j;
			}
			check_kept(cache, &shape, &before.heads[head], head, gone, n, codec);
		}
		cache_append(cache, 0, &t, 110, 10, &h);
		check_counts(cache, 0, &h, &shape);
		layer_read_free(&before);
		held_free(&h);
		ckv_cache_free(cache);
		lists_free(&l);
		tokens_free(&t);
	}
}

/* A layer of which all rows went is loaded as a new one, except where a subspace is left. */
static void a_layer_that_was_emptied_is_as_new(void **state) {
	const ckv_stream_shape shape = {2, 8, 8};
	rng r = {10};
	(void)state;
	tokens t = rough_tokens(&r, shape, 200, 1), few = rough_tokens(&r, shape, 20, 1);
	for (size_t c = 0; c < n_test_codecs(); c++) {
		ckv_cache *fresh = cache_make(test_codecs[c], &shape, 1, NULL), *used = cache_make(test_codecs[c], &shape, 1, NULL);
		bool palu = strstr(test_codecs[c], "palu");
		assert_int_equal(load_status(used, 0, &few, 20, NULL), CKV_OK);
		assert_int_equal(ckv_cache_take_back(used, 0, 20), CKV_OK);
		assert_int_equal(load_status(fresh, 0, &t, 200, NULL), CKV_OK);
		assert_int_equal(load_status(used, 0, &t, 200, NULL), palu ? CKV_ERR_STATE : CKV_OK);
		saved bytes = save_cache(fresh);
		CHECK(palu || cache_saves_as(used, &bytes), "%s", test_codecs[c]);
		saved_free(&bytes);
		ckv_cache_free(fresh);
		ckv_cache_free(used);
	}
	tokens_free(&t);
	tokens_free(&few);
}

/* Lists of nothing leave a layer empty, and say nothing of how long its window is to be. */
static void a_load_of_no_rows_is_no_load(void **state) {
	const ckv_stream_shape shape = {2, 8, 8};
	const int32_t none[] = {0, 0, 0};
	int32_t nothing = 0;
	rng r = {11};
	(void)state;
	tokens t = rough_tokens(&r, shape, 100, 1);
	for (size_t c = 0; c < n_test_codecs(); c++) {
		ckv_cache *fresh = cache_make(test_codecs[c], &shape, 1, NULL), *used = cache_make(test_codecs[c], &shape, 1, NULL);
		ckv_keep keep;
		ckv_keep_init(&keep, &nothing, 1, (int32_t *)(uintptr_t)none);
		keep.n_lists = 2;
		assert_int_equal(load_status(used, 0, &t, 100, &keep), CKV_OK);
		assert_int_equal(ckv_cache_rows(used, 0, 0), 0);
		for (int32_t i = 0; i < 100; i += 20) {
			assert_int_equal(append_status(fresh, 0, &t, i, 20), CKV_OK);
			assert_int_equal(append_status(used, 0, &t, i, 20), CKV_OK);
		}
		saved bytes = save_cache(fresh);
		CHECK(cache_saves_as(used, &bytes), "%s", test_codecs[c]);
		saved_free(&bytes);
		ckv_cache_free(fresh);
		ckv_cache_free(used);
	}
	tokens_free(&t);
}

/* --------------------------------------------------------------------------------------------------------- memory */

/* An allocator that knows how many bytes are out. */
typedef struct weighing {
	ckv_allocator allocator;
	size_t live;
} weighing;

enum { HEADROOM = 16 }; /* the block's size; keeps the alignment */

static void *weigh_alloc(void *user, size_t size) {
	weighing *w = user;
	unsigned char *memory = malloc(HEADROOM + size);
	assert_non_null(memory);
	memcpy(memory, &size, sizeof size);
	w->live += size;
	return memory + HEADROOM;
}

static void weigh_free(void *user, void *memory) {
	weighing *w = user;
	size_t size;
	memcpy(&size, (unsigned char *)memory - HEADROOM, sizeof size);
	w->live -= size;
	free((unsigned char *)memory - HEADROOM);
}

/* Beyond what an empty cache has and the working memory, which all layers share and which is not of rows. An empty tail is a
 * block of one byte. */
static void check_weight(const ckv_cache *cache, const weighing *w, size_t empty, const char *what) {
	size_t rows = w->live - empty - cache->work_size * sizeof *cache->work;
	uint64_t told = cache_info(cache, -1).bytes_allocated;
	CHECK(rows >= told && rows - told <= 2 * (size_t)cache->n_layers, "%s: %zu bytes are out, %llu told", what, rows,
	      (unsigned long long)told);
}

/* Room to grow: 32 rows of a tail, where kivi packs a group and the window ago; an eighth or 8 rows of packed ones. */
static uint64_t most_spare(const ckv_cache *cache, const ckv_stream_shape *shape, uint64_t used) {
	uint64_t row = 2 * (uint64_t)(shape->dim_k + shape->dim_v), group = (uint64_t)cache->codec.group;
	return (uint64_t)shape->n_kv_heads * (32 + 2 * group + 8) * row + used / 8;
}

static void bytes_told_are_those_that_were_allocated(void **state) {
	const ckv_stream_shape shapes[] = {{3, 24, 20}, {2, 9, 16}};
	rng r = {12};
	(void)state;
	for (int i = 0; i < 12 * (int)n_test_codecs(); i++) {
		const char *codec = test_codecs[(size_t)i % n_test_codecs()];
		weighing w = {{weigh_alloc, weigh_free, &w}, 0};
		ckv_ctx_options options = stream_options(0, 1);
		options.allocator = &w.allocator;
		ckv_cache *cache = cache_make(codec, shapes, 2, &options);
		size_t empty = w.live;
		for (int32_t layer = 0; layer < 2; layer++) {
			tokens t = rough_tokens(&r, shapes[layer], 700, 1);
			held h = held_make(shapes[layer].n_kv_heads, 700);
			lists l = lists_random(&r, h.n_heads, 300, false);
			cache_load(cache, layer, &t, 300, i % 3 ? &l.keep : NULL, &h);
			check_weight(cache, &w, empty, codec);
			CHECK(cache_info(cache, layer).bytes_allocated == cache_info(cache, layer).bytes, "%s: spare after a load",
			      codec);
			for (int32_t first = 300, n; first < 700; first += n) {
				n = rng_chance(&r, 20) ? 200 : rng_chance(&r, 4) ? 30 : 1;
				n = n < 700 - first ? n : 700 - first;
				cache_append(cache, layer, &t, first, n, &h);
				ckv_cache_info info = cache_info(cache, layer);
				check_weight(cache, &w, empty, codec);
				CHECK(info.bytes <= info.bytes_allocated &&
				          info.bytes_allocated - info.bytes <= most_spare(cache, &shapes[layer], info.bytes),
				      "%s: %llu bytes for %llu", codec, (unsigned long long)info.bytes_allocated,
				      (unsigned long long)info.bytes);
			}
			lists_free(&l);
			held_free(&h);
			tokens_free(&t);
		}
		ckv_cache_free(cache);
		assert_int_equal(w.live, 0);
	}
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(rows_come_back_as_f16_of_what_came),
	    cmocka_unit_test(types_and_layouts_of_what_comes_do_not_show),
	    cmocka_unit_test(merged_values_take_the_place_of_the_rows_own),
	    cmocka_unit_test(keys_or_values_can_be_read_alone),
	    cmocka_unit_test(rows_are_lent_where_they_are_f16_and_even),
	    cmocka_unit_test(attention_is_that_over_the_rows),
	    cmocka_unit_test(attention_over_coded_rows_is_that_over_what_is_read),
	    cmocka_unit_test(threads_and_instruction_sets_give_the_same_bits),
	    cmocka_unit_test(dropped_rows_are_gone_and_the_others_stay),
	    cmocka_unit_test(the_newest_rows_can_be_taken_back),
	    cmocka_unit_test(a_layer_that_was_emptied_is_as_new),
	    cmocka_unit_test(a_load_of_no_rows_is_no_load),
	    cmocka_unit_test(bytes_told_are_those_that_were_allocated),
	};
	return cmocka_run_group_tests_name("cache", tests, NULL, NULL);
}
