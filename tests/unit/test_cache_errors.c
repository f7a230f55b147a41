/* What a cache refuses, and what becomes of one that memory runs out for: nothing has changed, and it goes on. */
#include "cache_support.h"

#include "quant/quant.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const ckv_stream_shape shape = {2, 12, 9};

enum { LOADED = 60, APPENDED = 20, LATER = 20, ALL = LOADED + APPENDED + LATER };

/* A cache in the middle of its use. */
static ckv_cache *used_cache(const char *codec, const tokens *t, const ckv_ctx_options *options) {
	ckv_cache *cache = cache_make(codec, &shape, 1, options);
	assert_int_equal(load_status(cache, 0, t, LOADED, NULL), CKV_OK);
	assert_int_equal(append_status(cache, 0, t, LOADED, APPENDED), CKV_OK);
	return cache;
}

/* -------------------------------------------------------------------------------------------------------- refusals */

static void unchanged(const ckv_cache *cache, const saved *before, ckv_status status, ckv_status expected,
                      const char *what) {
	CHECK(status == expected, "%s: %s instead of %s", what, ckv_strerror(status), ckv_strerror(expected));
	CHECK(ckv_cache_message(cache)[0], "%s: no message", what);
	CHECK(cache_saves_as(cache, before), "%s: something changed", what);
}

/* In keys and in values, of the last row of the last head and of the first of the first. */
static void numbers_that_f16_does_not_hold_are_refused(void **state) {
	static const float bad[] = {NAN, INFINITY, -INFINITY, 1e6f, -65520.0f};
	rng r = {1};
	(void)state;
	tokens t = rough_tokens(&r, shape, ALL, 1);
	for (size_t c = 0; c < n_test_codecs(); c++) {
		ckv_cache *empty = cache_make(test_codecs[c], &shape, 1, NULL), *used = used_cache(test_codecs[c], &t, NULL);
		saved nothing = save_cache(empty), before = save_cache(used);
		for (size_t i = 0; i < 4 * sizeof bad / sizeof *bad; i++) {
			tensor *x = i % 2 ? &t.v : &t.k;
			stored *s = i % 2 ? &t.stored_v : &t.stored_k;
			float *place = i / 2 % 2 ? tensor_row(x, 1, LOADED - 1) + x->dim - 1 : tensor_row(x, 0, 0), was = *place;
			char what[64];
			snprintf(what, sizeof what, "%.30s: %g", test_codecs[c], (double)bad[i / 4]);
			*place = bad[i / 4];
			stored_free(s);
			*s = stored_make(x, CKV_F32, HEADS_OUTSIDE, 0);
			unchanged(empty, &nothing, load_status(empty, 0, &t, LOADED, NULL), CKV_ERR_NUMERIC, what);
			assert_int_equal(cache_info(empty, 0).bytes_allocated, 0);
			unchanged(empty, &nothing, append_status(empty, 0, &t, 0, LOADED), CKV_ERR_NUMERIC, what);
			unchanged(used, &before, append_status(used, 0, &t, 0, LOADED), CKV_ERR_NUMERIC, what);
			*place = was;
			stored_free(s);
			*s = stored_make(x, CKV_F32, HEADS_OUTSIDE, 0);
		}
		assert_int_equal(append_status(used, 0, &t, LOADED + APPENDED, LATER), CKV_OK);
		saved_free(&nothing);
		saved_free(&before);
		ckv_cache_free(empty);
		ckv_cache_free(used);
	}
	tokens_free(&t);
}

/* The greatest number of f16 is none of them. */
static void numbers_that_f16_just_holds_are_not_refused(void **state) {
	rng r = {2};
	(void)state;
	tokens t = rough_tokens(&r, shape, LOADED, 1);
	held h = held_make(2, LOADED);
	ckv_cache *cache = cache_make("none", &shape, 1, NULL);
	tensor_row(&t.k, 0, 0)[3] = 65504.0f;
	tensor_row(&t.v, 1, 9)[8] = -65519.0f;
	stored_free(&t.stored_k);
	stored_free(&t.stored_v);
	t.stored_k = stored_make(&t.k, CKV_F32, HEADS_OUTSIDE, 0);
	t.stored_v = stored_make(&t.v, CKV_F32, HEADS_OUTSIDE, 0);
	cache_load(cache, 0, &t, LOADED, NULL, &h);
	check_f16_rows(cache, 0, &h, &t, "large");
	ckv_cache_free(cache);
	held_free(&h);
	tokens_free(&t);
}

static void a_number_of_a_row_that_is_not_kept_does_not_matter(void **state) {
	int32_t positions[] = {1, 3}, offsets[] = {0, 2};
	rng r = {3};
	(void)state;
	tokens t = rough_tokens(&r, shape, 4, 1);
	ckv_keep keep;
	ckv_keep_init(&keep, positions, 2, offsets);
	keep.n_lists = 1;
	tensor_row(&t.k, 0, 2)[0] = NAN;
	stored_free(&t.stored_k);
	t.stored_k = stored_make(&t.k, CKV_F32, HEADS_OUTSIDE, 0);
	ckv_cache *cache = cache_make("none", &shape, 1, NULL);
	assert_int_equal(load_status(cache, 0, &t, 4, &keep), CKV_OK);
	assert_int_equal(ckv_cache_rows(cache, 0, 1), 2);
	ckv_cache_free(cache);
	tokens_free(&t);
}

static void merged_values_are_checked_too(void **state) {
	float merged[2 * 4 * 9] = {0};
	rng r = {4};
	(void)state;
	tokens t = rough_tokens(&r, shape, 4, 1);
	ckv_cache *cache = cache_make("none", &shape, 1, NULL);
	saved before = save_cache(cache);
	merged[2 * 4 * 9 - 1] = 1e5f;
	unchanged(cache, &before, ckv_cache_load(cache, 0, &t.stored_k.view, &t.stored_v.view, NULL, merged), CKV_ERR_NUMERIC,
	          "merged");
	merged[2 * 4 * 9 - 1] = 1.0f;
	assert_int_equal(ckv_cache_load(cache, 0, &t.stored_k.view, &t.stored_v.view, NULL, merged), CKV_OK);
	saved_free(&before);
	ckv_cache_free(cache);
	tokens_free(&t);
}

/* A view of other sizes, over memory that is large enough for all of them. */
static ckv_view other_view(const float *memory, int32_t n_heads, int32_t n_tokens, int32_t dim) {
	return (ckv_view){.data = memory,
	                  .dtype = CKV_F32,
	                  .n_heads = n_heads,
	                  .n_tokens = n_tokens,
	                  .head_dim = dim,
	                  .stride_head = (size_t)n_tokens * (size_t)dim * sizeof *memory,
	                  .stride_token = (size_t)dim * sizeof *memory};
}

static void shapes_that_do_not_go_together_are_refused(void **state) {
	static const int32_t wrong[][6] = {{3, 5, 12, 2, 5, 9},  {2, 5, 12, 1, 5, 9}, {2, 5, 11, 2, 5, 9},
	                                   {2, 5, 12, 2, 5, 12}, {2, 5, 12, 2, 4, 9}, {0, 5, 12, 2, 5, 9},
	                                   {2, 0, 12, 2, 5, 9},  {2, 5, 12, 2, 0, 9}, {2, -1, 12, 2, -1, 9}};
	rng r = {5};
	(void)state;
	float *memory = test_memory(1000, sizeof *memory);
	memset(memory, 0, 1000 * sizeof *memory);
	tokens t = rough_tokens(&r, shape, ALL, 1);
	ckv_cache *empty = cache_make("none", &shape, 1, NULL), *used = used_cache("kivi4:group=8,residual=16", &t, NULL);
	saved nothing = save_cache(empty), before = save_cache(used);
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		char what[32];
		snprintf(what, sizeof what, "shape %zu", i);
		ckv_view k = other_view(memory, wrong[i][0], wrong[i][1], wrong[i][2]);
		ckv_view v = other_view(memory, wrong[i][3], wrong[i][4], wrong[i][5]);
		unchanged(empty, &nothing, ckv_cache_load(empty, 0, &k, &v, NULL, NULL), CKV_ERR_ARG, what);
		unchanged(used, &before, ckv_cache_append(used, 0, &k, &v), CKV_ERR_ARG, what);
	}
	saved_free(&nothing);
	saved_free(&before);
	ckv_cache_free(empty);
	ckv_cache_free(used);
	tokens_free(&t);
	free(memory);
}

static void lists_that_are_none_are_refused(void **state) {
	static const struct {
		const char *what;
		int32_t n_lists, positions[4], offsets[4];
	} wrong[] = {{"three lists", 3, {0, 1, 2, 3}, {0, 1, 2, 4}},  {"no list", 0, {0, 1, 2, 3}, {0, 4, 4, 4}},
	             {"falling", 1, {0, 2, 1, 3}, {0, 4, 4, 4}},      {"twice", 2, {0, 1, 3, 3}, {0, 2, 4, 4}},
	             {"negative", 1, {-1, 1, 2, 3}, {0, 4, 4, 4}},    {"beyond", 2, {0, 1, 2, 4}, {0, 2, 4, 4}},
	             {"offsets fall", 2, {0, 1, 2, 3}, {0, 3, 2, 4}}, {"late", 1, {0, 1, 2, 3}, {1, 4, 4, 4}}};
	rng r = {6};
	(void)state;
	tokens t = rough_tokens(&r, shape, 4, 1);
	ckv_cache *cache = cache_make("none", &shape, 1, NULL);
	saved before = save_cache(cache);
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		int32_t positions[4], offsets[4];
		ckv_keep keep;
		memcpy(positions, wrong[i].positions, sizeof positions);
		memcpy(offsets, wrong[i].offsets, sizeof offsets);
		ckv_keep_init(&keep, positions, 4, offsets);
		keep.n_lists = wrong[i].n_lists;
		unchanged(cache, &before, load_status(cache, 0, &t, 4, &keep), CKV_ERR_ARG, wrong[i].what);
		keep.n_lists = 1;
		keep.offsets = NULL;
		unchanged(cache, &before, load_status(cache, 0, &t, 4, &keep), CKV_ERR_ARG, "no offsets");
	}
	saved_free(&before);
	ckv_cache_free(cache);
	tokens_free(&t);
}

static void calls_at_the_wrong_time_or_place_are_refused(void **state) {
	rng r = {7};
	(void)state;
	tokens t = rough_tokens(&r, shape, ALL, 2), other = rough_tokens(&r, (ckv_stream_shape){2, 11, 9}, ALL, 1),
	       odd = rough_tokens(&r, (ckv_stream_shape){3, 12, 9}, ALL, 1);
	float out[ALL * 4 * 9];
	for (size_t c = 0; c < n_test_codecs(); c++) {
		ckv_cache *cache = used_cache(test_codecs[c], &t, NULL), *empty = cache_make(test_codecs[c], &shape, 1, NULL);
		saved before = save_cache(cache), nothing = save_cache(empty);
		int32_t twice[] = {3, 3}, beyond[] = {LOADED + APPENDED}, negative[] = {-1};
		ckv_view q = view_part(&t.stored_q.view, 0, LOADED + APPENDED + 1), one = view_part(&t.stored_q.view, 0, 1);
		ckv_view narrow = view_part(&other.stored_q.view, 0, 1), three = view_part(&odd.stored_q.view, 0, 1), none = {0};
		paint(out, sizeof out);
		unchanged(cache, &before, load_status(cache, 0, &t, LOADED, NULL), CKV_ERR_STATE, "loaded twice");
		unchanged(cache, &before, ckv_cache_attend(cache, 0, &q, 0.0f, 0.0f, out), CKV_ERR_ARG, "queries of no rows");
		unchanged(empty, &nothing, ckv_cache_attend(empty, 0, &one, 0.0f, 0.0f, out), CKV_ERR_ARG, "no rows");
		unchanged(cache, &before, ckv_cache_attend(cache, 0, &narrow, 0.0f, 0.0f, out), CKV_ERR_ARG, "narrow queries");
		unchanged(cache, &before, ckv_cache_attend(cache, 0, &three, 0.0f, 0.0f, out), CKV_ERR_ARG, "3 query heads of 2");
		unchanged(cache, &before, ckv_cache_attend(cache, 0, &none, 0.0f, 0.0f, out), CKV_ERR_ARG, "an empty view");
		unchanged(cache, &before, ckv_cache_attend(cache, 0, &one, NAN, 0.0f, out), CKV_ERR_ARG, "scale NaN");
		unchanged(cache, &before, ckv_cache_attend(cache, 0, &one, 0.0f, -1.0f, out), CKV_ERR_ARG, "a negative cap");
		unchanged(cache, &before, ckv_cache_drop(cache, 0, 0, twice, 2), CKV_ERR_ARG, "dropped twice");
		unchanged(cache, &before, ckv_cache_drop(cache, 0, 0, beyond, 1), CKV_ERR_ARG, "dropped beyond the end");
		unchanged(cache, &before, ckv_cache_drop(cache, 0, 0, negative, 1), CKV_ERR_ARG, "dropped before the start");
		unchanged(cache, &before, ckv_cache_take_back(cache, 0, LOADED + APPENDED + 1), CKV_ERR_ARG, "more taken back");
		assert_true(is_painted(out, sizeof out));
		saved_free(&before);
		saved_free(&nothing);
		ckv_cache_free(cache);
		ckv_cache_free(empty);
	}
	tokens_free(&t);
	tokens_free(&other);
	tokens_free(&odd);
}

static void places_that_are_none_are_refused(void **state) {
	rng r = {8};
	int32_t index = 0;
	float x[16];
	(void)state;
	tokens t = rough_tokens(&r, shape, ALL, 1);
	ckv_view k = t.stored_k.view, v = t.stored_v.view, q = view_part(&t.stored_q.view, 0, 1);
	ckv_cache *cache = used_cache("none", &t, NULL), *copy = cache;
	ckv_cache_info info = {.size = sizeof info};
	for (int32_t layer = -1; layer < 2; layer += 2) {
		assert_int_equal(ckv_cache_load(cache, layer, &k, &v, NULL, NULL), CKV_ERR_ARG);
		assert_int_equal(ckv_cache_append(cache, layer, &k, &v), CKV_ERR_ARG);
		assert_int_equal(ckv_cache_attend(cache, layer, &q, 0.0f, 0.0f, x), CKV_ERR_ARG);
		assert_int_equal(ckv_cache_read(cache, layer, 0, x, NULL), CKV_ERR_ARG);
		assert_int_equal(ckv_cache_drop(cache, layer, 0, &index, 1), CKV_ERR_ARG);
		assert_int_equal(ckv_cache_take_back(cache, layer, 1), CKV_ERR_ARG);
		assert_int_equal(ckv_cache_rows(cache, layer, 0), 0);
		assert_int_equal(ckv_cache_read(cache, 0, layer < 0 ? -1 : 2, x, NULL), CKV_ERR_ARG);
		assert_int_equal(ckv_cache_drop(cache, 0, layer < 0 ? -1 : 2, &index, 1), CKV_ERR_ARG);
		assert_int_equal(ckv_cache_rows(cache, 0, layer < 0 ? -1 : 2), 0);
	}
	assert_int_equal(ckv_cache_get_info(cache, 1, &info), CKV_ERR_ARG);
	assert_int_equal(ckv_cache_get_info(cache, -2, &info), CKV_ERR_ARG);
	assert_int_equal(ckv_cache_get_info(cache, 0, NULL), CKV_ERR_ARG);
	assert_int_equal(ckv_cache_get_info(NULL, 0, &info), CKV_ERR_ARG);
	assert_int_equal(ckv_cache_load(cache, 0, NULL, &v, NULL, NULL), CKV_ERR_ARG);
	assert_int_equal(ckv_cache_append(cache, 0, &k, NULL), CKV_ERR_ARG);
	assert_int_equal(ckv_cache_attend(cache, 0, NULL, 0.0f, 0.0f, x), CKV_ERR_ARG);
	assert_int_equal(ckv_cache_attend(cache, 0, &q, 0.0f, 0.0f, NULL), CKV_ERR_ARG);
	assert_int_equal(ckv_cache_drop(cache, 0, 0, NULL, 1), CKV_ERR_ARG);
	assert_int_equal(ckv_cache_drop(cache, 0, 0, &index, -1), CKV_ERR_ARG);
	assert_int_equal(ckv_cache_take_back(cache, 0, -1), CKV_ERR_ARG);
	assert_int_equal(ckv_cache_copy(cache, NULL), CKV_ERR_ARG);
	assert_int_equal(ckv_cache_copy(NULL, &copy), CKV_ERR_ARG);
	assert_null(copy);
	assert_int_equal(ckv_cache_save(NULL, NULL, 0), 0);
	assert_string_equal(ckv_cache_message(NULL), "");
	assert_int_equal(ckv_cache_rows(cache, 0, 0), LOADED + APPENDED);
	ckv_cache_free(cache);
	ckv_cache_free(NULL);
	tokens_free(&t);
}

static void info_is_written_as_far_as_the_caller_knows_it(void **state) {
	rng r = {9};
	(void)state;
	tokens t = rough_tokens(&r, shape, ALL, 1);
	ckv_cache *cache = used_cache("none", &t, NULL);
	ckv_cache_info info;
	paint(&info, sizeof info);
	info.size = offsetof(ckv_cache_info, bytes_allocated);
	assert_int_equal(ckv_cache_get_info(cache, -1, &info), CKV_OK);
	assert_int_equal(info.size, offsetof(ckv_cache_info, bytes_allocated));
	assert_int_equal(info.rows, 2 * (LOADED + APPENDED));
	assert_true(is_painted(&info.bytes_allocated, sizeof info - offsetof(ckv_cache_info, bytes_allocated)));
	info.size = 0;
	assert_int_equal(ckv_cache_get_info(cache, -1, &info), CKV_OK);
	assert_int_equal(info.size, sizeof info);
	ckv_cache_free(cache);
	tokens_free(&t);
}

/* ---------------------------------------------------------------------------------------------------------- making */

static void refused(const ckv_codec *codec, const ckv_stream_shape *shapes, int32_t n_layers, const ckv_ctx_options *options,
                    ckv_status expected, const char *what) {
	ckv_cache *cache = (void *)1;
	ckv_error error = {CKV_OK, ""};
	ckv_status status = ckv_cache_create(&cache, codec, shapes, n_layers, options, &error);
	CHECK(status == expected && error.status == expected, "%s: %s", what, ckv_strerror(status));
	CHECK(cache == NULL && error.message[0], "%s: no message", what);
}

static void bad_codecs_are_refused(void **state) {
	ckv_codec kivi = codec_of("kivi4"), palu = codec_of("palu");
	(void)state;
	struct {
		const char *what;
		ckv_codec codec;
		ckv_status expected;
	} wrong[] = {{"bits 0", kivi, CKV_ERR_POLICY},   {"bits 9", kivi, CKV_ERR_POLICY},   {"group 0", kivi, CKV_ERR_POLICY},
	             {"residual", kivi, CKV_ERR_POLICY}, {"rank", palu, CKV_ERR_POLICY},     {"energy", palu, CKV_ERR_POLICY},
	             {"share", palu, CKV_ERR_POLICY},    {"low bits", palu, CKV_ERR_POLICY}, {"groups", palu, CKV_ERR_POLICY},
	             {"kind", kivi, CKV_ERR_POLICY},     {"no kind", kivi, CKV_ERR_ARG},     {"size", kivi, CKV_ERR_ARG}};
	wrong[0].codec.bits = 0;
	wrong[1].codec.bits = 9;
	wrong[2].codec.group = 0;
	wrong[3].codec.residual = -1;
	wrong[4].codec.rank = -1;
	wrong[5].codec.energy = (double)NAN;
	wrong[5].codec.rank = 0;
	wrong[6].codec.high_share = 1.5;
	wrong[7].codec.low_bits = 12;
	wrong[8].codec.head_groups = 0;
	wrong[9].codec.kind = "kivy";
	wrong[10].codec.kind = NULL;
	wrong[11].codec.size = 8;
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		refused(&wrong[i].codec, &shape, 1, NULL, wrong[i].expected, wrong[i].what);
	}
}

/* What a kind does not read may be anything. */
static void what_a_codec_does_not_read_is_not_looked_at(void **state) {
	rng r = {10};
	(void)state;
	tokens t = rough_tokens(&r, shape, ALL, 1);
	for (size_t c = 0; c < n_test_codecs(); c++) {
		ckv_codec codec = codec_of(test_codecs[c]);
		ckv_cache *other, *cache = used_cache(test_codecs[c], &t, NULL);
		if (codec.kind && strcmp(codec.kind, "kivi") == 0) {
			codec.rank = codec.high_bits = codec.head_groups = -7;
			codec.energy = codec.high_share = (double)NAN;
		} else {
			codec.bits = codec.residual = -7;
		}
		assert_int_equal(ckv_cache_create(&other, &codec, &shape, 1, NULL, NULL), CKV_OK);
		saved bytes = save_cache(cache);
		CHECK(ckv_cache_restore(other, bytes.data, bytes.size) == CKV_OK, "%s: %s", test_codecs[c],
		      ckv_cache_message(other));
		assert_int_equal(append_status(cache, 0, &t, 80, 20), CKV_OK);
		assert_int_equal(append_status(other, 0, &t, 80, 20), CKV_OK);
		saved_free(&bytes);
		bytes = save_cache(cache);
		CHECK(cache_saves_as(other, &bytes), "%s", test_codecs[c]);
		saved_free(&bytes);
		ckv_cache_free(cache);
		ckv_cache_free(other);
	}
	tokens_free(&t);
}

static void shapes_and_options_that_are_none_are_refused(void **state) {
	static const ckv_stream_shape wrong[] = {{0, 8, 8}, {2, 0, 8}, {2, 8, 0}, {-1, 8, 8}, {65537, 8, 8}, {2, 65537, 8}};
	ckv_ctx_options options = stream_options(0, -1);
	const ckv_allocator half = {NULL, ckv_allocator_default().free, NULL};
	(void)state;
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		ckv_stream_shape shapes[] = {shape, wrong[i]};
		refused(NULL, shapes, 2, NULL, CKV_ERR_ARG, "shape");
	}
	refused(NULL, NULL, 1, NULL, CKV_ERR_ARG, "no shapes");
	refused(NULL, &shape, 0, NULL, CKV_ERR_ARG, "no layer");
	refused(NULL, &shape, 1, &options, CKV_ERR_ARG, "threads");
	options = stream_options(0, 1);
	options.size = 4;
	refused(NULL, &shape, 1, &options, CKV_ERR_ARG, "size");
	options = stream_options(0, 1);
	options.allocator = &half;
	refused(NULL, &shape, 1, &options, CKV_ERR_ARG, "allocator");
	assert_int_equal(ckv_cache_create(NULL, NULL, &shape, 1, NULL, NULL), CKV_ERR_ARG);
}

/* ---------------------------------------------------------------------------------------------------------- memory */

/* What a codec's caches come to without a refusal. */
typedef struct run {
	const char *codec;
	const tokens *t;
	saved loaded, appended, later;
	float *out;
	size_t n_out;
} run;

static query_case queries_of(const tokens *t) { return (query_case){t, LOADED + APPENDED - 3, 3, 0.0f, 0.0f}; }

static run run_make(const char *codec, const tokens *t) {
	run x = {.codec = codec, .t = t};
	ckv_cache *cache = cache_make(codec, &shape, 1, NULL);
	query_case q = queries_of(t);
	assert_int_equal(load_status(cache, 0, t, LOADED, NULL), CKV_OK);
	x.loaded = save_cache(cache);
	assert_int_equal(append_status(cache, 0, t, LOADED, APPENDED), CKV_OK);
	x.appended = save_cache(cache);
	x.out = attend_to(cache, 0, &q, &x.n_out);
	assert_int_equal(append_status(cache, 0, t, LOADED + APPENDED, LATER), CKV_OK);
	x.later = save_cache(cache);
	ckv_cache_free(cache);
	return x;
}

static void run_free(run *x) {
	saved_free(&x->loaded);
	saved_free(&x->appended);
	saved_free(&x->later);
	free(x->out);
}

/* One call, of which the request number n fails, alone or with all after it: it works, or nothing has changed and it works
 * when memory is back. */
typedef ckv_status (*call)(ckv_cache *cache, const run *x, const saved *before, const char *what);

static ckv_status do_load(ckv_cache *cache, const run *x, const saved *before, const char *what) {
	(void)before;
	(void)what;
	return load_status(cache, 0, x->t, LOADED, NULL);
}

/* Without a load before it. */
static ckv_status do_first(ckv_cache *cache, const run *x, const saved *before, const char *what) {
	(void)before;
	(void)what;
	return append_status(cache, 0, x->t, 0, LOADED);
}

static ckv_status do_append(ckv_cache *cache, const run *x, const saved *before, const char *what) {
	(void)before;
	(void)what;
	return append_status(cache, 0, x->t, LOADED, APPENDED);
}

static ckv_status do_attend(ckv_cache *cache, const run *x, const saved *before, const char *what) {
	query_case q = queries_of(x->t);
	ckv_view view = view_part(&x->t->stored_q.view, q.first, q.n);
	float *out = test_memory(x->n_out, sizeof *out);
	ckv_status status = ckv_cache_attend(cache, 0, &view, 0.0f, 0.0f, out);
	(void)before;
	if (status == CKV_OK) {
		check_bits(x->out, out, x->n_out, what);
	}
	free(out);
	return status;
}

static ckv_status do_read(ckv_cache *cache, const run *x, const saved *before, const char *what) {
	float rows[ALL * 12];
	(void)x;
	(void)before;
	(void)what;
	return ckv_cache_read(cache, 0, 0, rows, NULL);
}

/* The copy is whole or not there. */
static ckv_status do_copy(ckv_cache *cache, const run *x, const saved *before, const char *what) {
	ckv_cache *copy = cache;
	ckv_status status = ckv_cache_copy(cache, &copy);
	(void)x;
	CHECK(status == CKV_OK ? cache_saves_as(copy, before) : copy == NULL, "%s: another copy", what);
	ckv_cache_free(copy);
	return status;
}

static ckv_status do_restore(ckv_cache *cache, const run *x, const saved *before, const char *what) {
	ckv_status status = ckv_cache_restore(cache, x->appended.data, x->appended.size);
	(void)before;
	CHECK(status || cache_saves_as(cache, &x->appended), "%s: something else", what);
	return status;
}

static const struct {
	const char *name;
	call go;
	int stage; /* of the cache before: empty, loaded, appended to */
	bool silent;
} calls[] = {{"load", do_load, 0, false},      {"append", do_append, 1, false}, {"first append", do_first, 0, false},
             {"attend", do_attend, 2, false},  {"read", do_read, 2, false},     {"copy", do_copy, 2, true},
             {"restore", do_restore, 0, false}};

static ckv_cache *at_stage(const run *x, int stage, const ckv_ctx_options *options) {
	ckv_cache *cache = cache_make(x->codec, &shape, 1, options);
	const saved *from = stage == 0 ? NULL : stage == 1 ? &x->loaded : &x->appended;
	assert_int_equal(from ? ckv_cache_restore(cache, from->data, from->size) : CKV_OK, CKV_OK);
	return cache;
}

/* kivi packs what it had no memory for when it comes by again, in the same groups. */
static void goes_on(ckv_cache *cache, const run *x, int stage, bool first, const char *what) {
	if (ckv_cache_rows(cache, 0, 0) == 0) {
		assert_int_equal(load_status(cache, 0, x->t, LOADED, NULL), CKV_OK);
	}
	if (ckv_cache_rows(cache, 0, 0) == LOADED) {
		assert_int_equal(append_status(cache, 0, x->t, LOADED, APPENDED), CKV_OK);
	}
	CHECK(ckv_cache_rows(cache, 0, 1) == LOADED + APPENDED, "%s: %d rows at stage %d", what, ckv_cache_rows(cache, 0, 1),
	      stage);
	assert_int_equal(append_status(cache, 0, x->t, LOADED + APPENDED, LATER), CKV_OK);
	/* A window is limited by a load only. */
	CHECK(first || cache_saves_as(cache, &x->later), "%s: it went on otherwise", what);
}

/* True when n was beyond the last request. */
static bool torture(const run *x, size_t i, long n, bool stay) {
	counting c;
	counting_init(&c);
	ckv_ctx_options options = stream_options(0, 1);
	char what[96];
	snprintf(what, sizeof what, "%s, %.40s: request %ld", calls[i].name, x->codec, n);
	options.allocator = &c.allocator;
	ckv_cache *cache = at_stage(x, calls[i].stage, &options);
	saved before = save_cache(cache);
	c.refuse_in = n;
	c.stay = stay;
	ckv_status status = calls[i].go(cache, x, &before, what);
	bool beyond = c.refuse_in > 0 && !(stay && c.refuse_in == 1);
	c.refuse_in = 0;
	CHECK(status == CKV_OK || status == CKV_ERR_NOMEM, "%s: %s", what, ckv_strerror(status));
	if (status) {
		CHECK(calls[i].silent || ckv_cache_message(cache)[0], "%s: no message", what);
		CHECK(cache_saves_as(cache, &before), "%s: something changed", what);
		CHECK(calls[i].go(cache, x, &before, what) == CKV_OK, "%s: not again: %s", what, ckv_cache_message(cache));
	}
	goes_on(cache, x, calls[i].stage, calls[i].go == do_first, what);
	saved_free(&before);
	ckv_cache_free(cache);
	CHECK(c.live == 0, "%s: %ld blocks are left", what, c.live);
	return beyond;
}

static void torture_all(bool stay) {
	rng r = {11};
	tokens t = rough_tokens(&r, shape, ALL, 2);
	for (size_t k = 0; k < n_test_codecs(); k++) {
		run x = run_make(test_codecs[k], &t);
		for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
			long n = 1;
			while (!torture(&x, i, n, stay)) {
				n++;
			}
			CHECK(n > 1 || calls[i].go == do_read, "%s, %s: nothing was requested", calls[i].name, x.codec);
		}
		run_free(&x);
	}
	tokens_free(&t);
}

static void every_request_may_fail_once(void **state) {
	(void)state;
	torture_all(false);
}

static void every_request_and_all_after_it_may_fail(void **state) {
	(void)state;
	torture_all(true);
}

/* Without memory to pack them rows stay as they are, which is no error. */
static void kivi_packs_when_there_is_memory(void **state) {
	rng r = {12};
	int postponed = 0;
	(void)state;
	tokens t = rough_tokens(&r, shape, ALL, 1);
	run x = run_make("kivi4:group=8,residual=16", &t);
	for (long n = 1; n < 20; n++) {
		counting c;
		counting_init(&c);
		ckv_ctx_options options = stream_options(0, 1);
		options.allocator = &c.allocator;
		ckv_cache *cache = at_stage(&x, 1, &options);
		uint64_t expected = 0;
		c.refuse_in = n;
		c.stay = true;
		if (append_status(cache, 0, &t, LOADED, APPENDED) == CKV_OK && !cache_saves_as(cache, &x.appended)) {
			held h = held_make(2, ALL);
			postponed++;
			for (int32_t head = 0; head < 2; head++) { /* the newest are exactly f16 */
				for (int32_t i = 0; i < LOADED + APPENDED; i++) {
					h.token[head * ALL + i] = i;
				}
				head_read rows = read_head(cache, 0, head, 12, 9);
				for (int32_t j = 0; j < 12; j++) {
					assert_true((double)rows.k[(LOADED + 4) * 12 + j] ==
					            f16_rounded((double)tensor_row(&t.k, head, LOADED + 4)[j]));
				}
				head_read_free(&rows);
			}
			ckv_cache *whole = at_stage(&x, 2, NULL);
			expected = cache_info(whole, 0).bytes;
			assert_true(cache_info(cache, 0).bytes > expected);
			ckv_cache_free(whole);
			held_free(&h);
		}
		c.refuse_in = 0;
		ckv_cache_free(cache);
	}
	assert_true(postponed > 0);
	run_free(&x);
	tokens_free(&t);
}

static void creating_may_fail_at_every_request(void **state) {
	const ckv_stream_shape shapes[] = {{2, 8, 8}, {3, 8, 4}};
	(void)state;
	for (long n = 1;; n++) {
		counting c;
		counting_init(&c);
		ckv_ctx_options options = stream_options(0, 1);
		ckv_codec codec = codec_of("kivi2");
		ckv_cache *cache;
		ckv_error error;
		options.allocator = &c.allocator;
		c.refuse_in = n;
		ckv_status status = ckv_cache_create(&cache, &codec, shapes, 2, &options, &error);
		ckv_cache_free(cache);
		assert_int_equal(c.live, 0);
		if (status == CKV_OK) {
			assert_true(n > 4);
			break;
		}
		assert_int_equal(status, CKV_ERR_NOMEM);
		assert_null(cache);
		assert_true(error.message[0] != '\0');
	}
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(numbers_that_f16_does_not_hold_are_refused),
	    cmocka_unit_test(numbers_that_f16_just_holds_are_not_refused),
	    cmocka_unit_test(a_number_of_a_row_that_is_not_kept_does_not_matter),
	    cmocka_unit_test(merged_values_are_checked_too),
	    cmocka_unit_test(shapes_that_do_not_go_together_are_refused),
	    cmocka_unit_test(lists_that_are_none_are_refused),
	    cmocka_unit_test(calls_at_the_wrong_time_or_place_are_refused),
	    cmocka_unit_test(places_that_are_none_are_refused),
	    cmocka_unit_test(info_is_written_as_far_as_the_caller_knows_it),
	    cmocka_unit_test(bad_codecs_are_refused),
	    cmocka_unit_test(what_a_codec_does_not_read_is_not_looked_at),
	    cmocka_unit_test(shapes_and_options_that_are_none_are_refused),
	    cmocka_unit_test(every_request_may_fail_once),
	    cmocka_unit_test(every_request_and_all_after_it_may_fail),
	    cmocka_unit_test(kivi_packs_when_there_is_memory),
	    cmocka_unit_test(creating_may_fail_at_every_request),
	};
	return cmocka_run_group_tests_name("cache_errors", tests, NULL, NULL);
}
