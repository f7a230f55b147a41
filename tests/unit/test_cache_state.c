/* Caches as bytes, and copies: what is restored or copied goes on as the first; nothing that bytes say is trusted. */
#include "cache_support.h"

#include "cache/internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 2, TOKENS = 180 };

static const ckv_stream_shape shapes[LAYERS] = {{3, 13, 10}, {2, 8, 17}};

/* A cache in the middle of its use, of rows that were loaded by lists, appended, dropped and taken back; the second layer
 * has less behind it. */
typedef struct life {
	const char *codec;
	tokens layers[LAYERS];
	ckv_cache *cache;
} life;

static life life_of(rng *r, const char *codec, const ckv_ctx_options *options) {
	life s = {.codec = codec, .cache = cache_make(codec, shapes, LAYERS, options)};
	for (int32_t i = 0; i < LAYERS; i++) {
		lists l = lists_random(r, shapes[i].n_kv_heads, 100, rng_chance(r, 2));
		s.layers[i] = rough_tokens(r, shapes[i], TOKENS, 2);
		if (!rng_chance(r, 5)) {
			assert_int_equal(load_status(s.cache, i, &s.layers[i], 100, i ? NULL : &l.keep), CKV_OK);
		}
		for (int32_t n = 0; n < 30; n += 10) {
			assert_int_equal(append_status(s.cache, i, &s.layers[i], 100 + n, 9), CKV_OK);
			assert_int_equal(append_status(s.cache, i, &s.layers[i], 109 + n, 1), CKV_OK);
		}
		int32_t gone[] = {0, 2, 3, ckv_cache_rows(s.cache, i, 1) - 1};
		assert_int_equal(ckv_cache_drop(s.cache, i, 1, gone, 4), CKV_OK);
		assert_int_equal(ckv_cache_take_back(s.cache, i, rng_range(r, 0, 3)), CKV_OK);
		lists_free(&l);
	}
	return s;
}

static void life_end(life *s) {
	ckv_cache_free(s->cache);
	tokens_free(&s->layers[0]);
	tokens_free(&s->layers[1]);
}

/* More tokens, after which it is asked. */
static void go_on(ckv_cache *cache, const life *s, int32_t n) {
	for (int32_t i = 0; i < LAYERS; i++) {
		for (int32_t at = 130; at < 130 + n; at += 5) {
			assert_int_equal(append_status(cache, i, &s->layers[i], at, at % 2 ? 5 : 4), CKV_OK);
		}
	}
}

/* Rows, bytes, what attention gives. */
static void check_same(ckv_cache *a, ckv_cache *b, const life *s, const char *what) {
	saved bytes = save_cache(a);
	CHECK(cache_saves_as(b, &bytes), "%s, %s: other bytes", s->codec, what);
	saved_free(&bytes);
	for (int32_t i = 0; i < LAYERS; i++) {
		ckv_cache_info x = cache_info(a, i), y = cache_info(b, i);
		query_case q = {&s->layers[i], 100, 3, 0.0f, 0.0f};
		size_t n;
		assert_int_equal(x.rows, y.rows);
		assert_int_equal(x.longest, y.longest);
		assert_int_equal(x.bytes, y.bytes);
		assert_int_equal(x.bytes_f16, y.bytes_f16);
		assert_int_equal(x.reference_bytes, y.reference_bytes);
		assert_true(x.rank_k == y.rank_k && x.rank_v == y.rank_v);
		for (int32_t h = 0; h < shapes[i].n_kv_heads; h++) {
			head_read left = read_head(a, i, h, shapes[i].dim_k, shapes[i].dim_v);
			head_read right = read_head(b, i, h, shapes[i].dim_k, shapes[i].dim_v);
			assert_int_equal(left.n, right.n);
			check_bits(left.k, right.k, (size_t)left.n * (size_t)shapes[i].dim_k, what);
			check_bits(left.v, right.v, (size_t)left.n * (size_t)shapes[i].dim_v, what);
			head_read_free(&left);
			head_read_free(&right);
		}
		float *left = attend_to(a, i, &q, &n), *right = attend_to(b, i, &q, &n);
		check_bits(left, right, n, what);
		free(left);
		free(right);
	}
}

/* ---------------------------------------------------------------------------------------------------- there and back */

static void a_restored_cache_goes_on_as_the_saved_one(void **state) {
	rng r = {1};
	(void)state;
	for (int i = 0; i < 8 * (int)n_test_codecs(); i++) {
		life s = life_of(&r, test_codecs[(size_t)i % n_test_codecs()], NULL);
		ckv_cache *fresh = cache_make(s.codec, shapes, LAYERS, NULL);
		saved bytes = save_cache(s.cache);
		CHECK(ckv_cache_restore(fresh, bytes.data, bytes.size) == CKV_OK, "%s: %s", s.codec, ckv_cache_message(fresh));
		assert_string_equal(ckv_cache_message(fresh), "");
		assert_int_equal(cache_info(fresh, -1).bytes_allocated, cache_info(fresh, -1).bytes);
		check_same(s.cache, fresh, &s, "restored");
		go_on(s.cache, &s, 50);
		go_on(fresh, &s, 50);
		check_same(s.cache, fresh, &s, "went on");
		saved_free(&bytes);
		ckv_cache_free(fresh);
		life_end(&s);
	}
}

static void an_empty_cache_is_restored_too(void **state) {
	(void)state;
	for (size_t c = 0; c < n_test_codecs(); c++) {
		ckv_cache *cache = cache_make(test_codecs[c], shapes, LAYERS, NULL);
		ckv_cache *fresh = cache_make(test_codecs[c], shapes, LAYERS, NULL);
		saved bytes = save_cache(cache);
		assert_int_equal(ckv_cache_restore(fresh, bytes.data, bytes.size), CKV_OK);
		assert_true(cache_saves_as(fresh, &bytes));
		saved_free(&bytes);
		ckv_cache_free(cache);
		ckv_cache_free(fresh);
	}
}

/* How a cache was made to compute is not of its state. */
static void threads_and_instruction_sets_are_not_saved(void **state) {
	rng r = {2};
	(void)state;
	for (size_t c = 0; c < n_test_codecs(); c++) {
		ckv_ctx_options options = stream_options(CKV_CPU_AVX2, 3);
		life s = life_of(&r, test_codecs[c], NULL);
		ckv_cache *other = cache_make(s.codec, shapes, LAYERS, &options), *copy;
		saved bytes = save_cache(s.cache);
		assert_int_equal(ckv_cache_restore(other, bytes.data, bytes.size), CKV_OK);
		check_same(s.cache, other, &s, "restored elsewhere");
		assert_int_equal(ckv_cache_copy(other, &copy), CKV_OK);
		check_same(s.cache, copy, &s, "copied elsewhere");
		saved_free(&bytes);
		ckv_cache_free(copy);
		ckv_cache_free(other);
		life_end(&s);
	}
}

static void bytes_are_written_only_where_they_fit(void **state) {
	rng r = {3};
	(void)state;
	life s = life_of(&r, "kivi4:group=8,residual=16", NULL);
	saved bytes = save_cache(s.cache);
	assert_true(bytes.size > 2000);
	for (size_t capacity = 0; capacity < bytes.size; capacity += capacity < 200 ? 1 : 37) {
		paint(bytes.data, bytes.size);
		assert_int_equal(ckv_cache_save(s.cache, bytes.data, capacity), bytes.size);
		CHECK(is_painted(bytes.data, bytes.size), "%zu of %zu bytes", capacity, bytes.size);
	}
	saved_free(&bytes);
	life_end(&s);
}

/* -------------------------------------------------------------------------------------------------------------- copy */

static void a_copy_is_the_same_and_has_nothing_in_common(void **state) {
	rng r = {4};
	(void)state;
	for (int i = 0; i < 6 * (int)n_test_codecs(); i++) {
		life s = life_of(&r, test_codecs[(size_t)i % n_test_codecs()], NULL);
		ckv_cache *copy, *again;
		assert_int_equal(ckv_cache_copy(s.cache, &copy), CKV_OK);
		check_same(s.cache, copy, &s, "copied");
		assert_int_equal(cache_info(copy, -1).bytes_allocated, cache_info(copy, -1).bytes);
		saved before = save_cache(s.cache);
		go_on(copy, &s, 30);
		int32_t first = 0;
		assert_int_equal(ckv_cache_drop(copy, 0, 0, &first, 1), CKV_OK);
		assert_true(cache_saves_as(s.cache, &before));
		assert_int_equal(ckv_cache_copy(copy, &again), CKV_OK);
		ckv_cache_free(copy); /* of which `again` needs nothing */
		go_on(s.cache, &s, 30);
		assert_int_equal(ckv_cache_drop(s.cache, 0, 0, &first, 1), CKV_OK);
		check_same(s.cache, again, &s, "copied twice");
		saved_free(&before);
		ckv_cache_free(again);
		life_end(&s);
	}
}

/* ---------------------------------------------------------------------------------------------- what is refused */

static void refused(ckv_cache *cache, const void *data, size_t size, ckv_status expected, const char *what) {
	saved before = save_cache(cache);
	ckv_status status = ckv_cache_restore(cache, data, size);
	CHECK(status == expected, "%s: %s instead of %s", what, ckv_strerror(status), ckv_strerror(expected));
	CHECK(ckv_cache_message(cache)[0], "%s: no message", what);
	CHECK(cache_saves_as(cache, &before), "%s: something changed", what);
	saved_free(&before);
}

/* Small, so that every byte can be tried. */
static const ckv_stream_shape small[] = {{2, 5, 3}};

static saved small_bytes(const char *codec, tokens *t) {
	rng r = {5};
	*t = rough_tokens(&r, small[0], 40, 1);
	ckv_cache *cache = cache_make(codec, small, 1, NULL);
	assert_int_equal(load_status(cache, 0, t, 30, NULL), CKV_OK);
	assert_int_equal(append_status(cache, 0, t, 30, 1), CKV_OK);
	saved bytes = save_cache(cache);
	ckv_cache_free(cache);
	return bytes;
}

static void damaged_bytes_are_refused(void **state) {
	(void)state;
	for (size_t c = 0; c < n_test_codecs(); c++) {
		tokens t;
		saved bytes = small_bytes(test_codecs[c], &t);
		ckv_cache *cache = cache_make(test_codecs[c], small, 1, NULL);
		for (size_t n = 0; n < bytes.size; n++) {
			uint8_t *exact = test_memory(n, 1); /* so that a sanitizer sees what is read beyond */
			memcpy(exact, bytes.data, n);
			refused(cache, exact, n, CKV_ERR_ARG, "cut off");
			free(exact);
		}
		for (size_t n = 0; n < bytes.size; n++) {
			char what[64];
			snprintf(what, sizeof what, "byte %zu of %zu", n, bytes.size);
			bytes.data[n] ^= (uint8_t)(1u << (n % 8));
			refused(cache, bytes.data, bytes.size, CKV_ERR_ARG, what);
			bytes.data[n] ^= (uint8_t)(1u << (n % 8));
		}
		refused(cache, NULL, 0, CKV_ERR_ARG, "nothing");
		refused(cache, NULL, bytes.size, CKV_ERR_ARG, "no data");
		assert_int_equal(ckv_cache_restore(NULL, bytes.data, bytes.size), CKV_ERR_ARG);
		assert_int_equal(ckv_cache_restore(cache, bytes.data, bytes.size), CKV_OK);
		ckv_cache_free(cache);
		saved_free(&bytes);
		tokens_free(&t);
	}
}

/* The checksum is for damage, not for malice: whatever it vouches for is refused, or is a cache that can be used. */
static bool try_signed(const char *codec, saved *bytes, const tokens *t) {
	ckv_cache *cache = cache_make(codec, small, 1, NULL);
	saved_sign(bytes);
	uint8_t *exact = test_memory(bytes->size, 1);
	memcpy(exact, bytes->data, bytes->size);
	ckv_status status = ckv_cache_restore(cache, exact, bytes->size);
	free(exact);
	if (status == CKV_OK) {
		bool same = cache_saves_as(cache, bytes);
		CHECK(same, "%s: it restored to something else", codec);
		/* Numbers may have become large ones: what is stored then does not matter, but no memory does. */
		(void)append_status(cache, 0, t, 31, 9);
		for (int32_t h = 0; h < 2; h++) {
			head_read rows = read_head(cache, 0, h, 5, 3);
			head_read_free(&rows);
		}
		if (ckv_cache_rows(cache, 0, 0) > 0 && ckv_cache_rows(cache, 0, 1) > 0) {
			query_case q = {t, 39, 1, 0.0f, 0.0f};
			size_t n;
			free(attend_to(cache, 0, &q, &n));
		}
	} else {
		CHECK(status == CKV_ERR_ARG || status == CKV_ERR_NOMEM, "%s: %s", codec, ckv_strerror(status));
		assert_int_equal(cache_info(cache, -1).rows, 0);
		assert_int_equal(load_status(cache, 0, t, 30, NULL), CKV_OK);
	}
	ckv_cache_free(cache);
	return status == CKV_OK;
}

static void bytes_that_were_signed_anew_are_refused_or_consistent(void **state) {
	enum { HEAD = 32 };
	rng r = {6};
	(void)state;
	for (size_t c = 0; c < n_test_codecs(); c++) {
		tokens t;
		saved bytes = small_bytes(test_codecs[c], &t);
		int taken = 0, tries = 0;
		for (size_t n = HEAD; n < bytes.size; n++) {
			uint8_t was = bytes.data[n];
			bytes.data[n] = (uint8_t)(rng_chance(&r, 3)   ? was ^ 1u << rng_range(&r, 0, 7)
			                          : rng_chance(&r, 2) ? 0xffu
			                                              : rng_bits(&r));
			taken += try_signed(test_codecs[c], &bytes, &t);
			tries++;
			bytes.data[n] = was;
		}
		CHECK(taken > 0 && taken < tries, "%s: %d of %d were taken", test_codecs[c], taken, tries);
		for (size_t n = HEAD; n < bytes.size; n++) { /* a shorter end */
			saved part = {test_memory(n, 1), n};
			memcpy(part.data, bytes.data, n);
			CHECK(!try_signed(test_codecs[c], &part, &t), "%s: %zu of %zu bytes were taken", test_codecs[c], n, bytes.size);
			saved_free(&part);
		}
		for (size_t more = 1; more < 9; more++) { /* a longer one */
			saved longer = {test_memory(bytes.size + more, 1), bytes.size + more};
			memset(longer.data, 0, longer.size);
			memcpy(longer.data, bytes.data, bytes.size);
			CHECK(!try_signed(test_codecs[c], &longer, &t), "%s: %zu more bytes were taken", test_codecs[c], more);
			saved_free(&longer);
		}
		saved_free(&bytes);
		tokens_free(&t);
	}
}

static void the_state_of_another_cache_is_refused(void **state) {
	static const char *const others[] = {"kivi2:group=9,residual=16", "kivi2:group=8,residual=15",
	                                     "kivi:bits=3,group=8,residual=16", "kivi2:group=8,residual=16,mode=reference",
	                                     "none"};
	const ckv_stream_shape heads = {3, 5, 3}, keys = {2, 6, 3}, values = {2, 5, 2}, two[] = {{2, 5, 3}, {2, 5, 3}};
	const ckv_stream_shape *shaped[] = {&heads, &keys, &values, two};
	(void)state;
	tokens t;
	saved bytes = small_bytes("kivi2:group=8,residual=16", &t);
	for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
		ckv_cache *cache = cache_make(others[i], small, 1, NULL);
		refused(cache, bytes.data, bytes.size, CKV_ERR_ARG, others[i]);
		ckv_cache_free(cache);
	}
	for (size_t i = 0; i < 4; i++) {
		ckv_cache *cache = cache_make("kivi2:group=8,residual=16", shaped[i], i == 3 ? 2 : 1, NULL);
		refused(cache, bytes.data, bytes.size, CKV_ERR_ARG, "another shape");
		ckv_cache_free(cache);
	}
	/* What it is called does not matter. */
	ckv_cache *cache = cache_make("kivi:bits=2,group=8,residual=16", small, 1, NULL);
	assert_int_equal(ckv_cache_restore(cache, bytes.data, bytes.size), CKV_OK);
	refused(cache, bytes.data, bytes.size, CKV_ERR_STATE, "not empty");
	ckv_cache_free(cache);
	saved_free(&bytes);
	tokens_free(&t);
}

static void another_version_or_kind_is_refused(void **state) {
	(void)state;
	tokens t;
	saved bytes = small_bytes("none", &t);
	ckv_cache *cache = cache_make("none", small, 1, NULL);
	bytes.data[8]++;
	refused(cache, bytes.data, bytes.size, CKV_ERR_ARG, "version");
	assert_non_null(strstr(ckv_cache_message(cache), "version"));
	bytes.data[8]--;
	bytes.data[3] = 's';
	refused(cache, bytes.data, bytes.size, CKV_ERR_ARG, "kind");
	ckv_cache_free(cache);
	saved_free(&bytes);
	tokens_free(&t);
}

/* Keys of which more are packed than of the values, whose rows are as many: such a head could not be packed further. */
static void sides_that_were_packed_apart_are_refused(void **state) {
	rng r = {7};
	(void)state;
	tokens t = rough_tokens(&r, small[0], 40, 1);
	ckv_cache *cache = cache_make("kivi2:group=8,residual=4", small, 1, NULL);
	ckv_cache *other = cache_make("kivi2:group=8,residual=4", small, 1, NULL);
	assert_int_equal(load_status(cache, 0, &t, 40, NULL), CKV_OK);
	cache_side *side = &cache->layers[0].v;
	cache_rows *rows = &side->heads[0];
	int32_t newest[] = {rows->packed.n - 2, rows->packed.n - 1};
	static const int32_t two[2] = {2, 2};
	assert_int_equal(ckv_side_reserve(cache, side, 2, two, true), CKV_OK);
	ckv_packed_remove(&rows->packed, newest, 2);
	memset(ckv_rows_tail(side, rows) + rows->n * side->width, 0, 2 * (size_t)side->width * 2);
	rows->n += 2;
	saved bytes = save_cache(cache);
	refused(other, bytes.data, bytes.size, CKV_ERR_ARG, "packed apart");
	saved_free(&bytes);
	ckv_cache_free(cache);
	ckv_cache_free(other);
	tokens_free(&t);
}

/* What no cache would save, though each part is well-formed. */
static void rows_that_no_cache_holds_are_refused(void **state) {
	rng r = {8};
	(void)state;
	tokens t = rough_tokens(&r, small[0], 40, 1);
	for (size_t c = 0; c < n_test_codecs(); c++) {
		for (int what = 0; what < 5; what++) {
			ckv_cache *cache = cache_make(test_codecs[c], small, 1, NULL);
			ckv_cache *other = cache_make(test_codecs[c], small, 1, NULL);
			assert_int_equal(load_status(cache, 0, &t, 30, NULL), CKV_OK);
			assert_int_equal(append_status(cache, 0, &t, 30, 1), CKV_OK);
			cache_layer *layer = &cache->layers[0];
			bool fitted = layer->k.fit.rank > 0;
			switch (what) {
			case 0: ckv_rows_tail(&layer->k, &layer->k.heads[1])[0] = 0x7c00; break;
			case 1: ckv_rows_tail(&layer->v, &layer->v.heads[0])[0] = 0xfe00; break;
			case 2: layer->v.heads[0].n--; break;
			case 3: *(fitted ? &layer->v.fit.mean[2] : &(float){0}) = (float)NAN; break;
			default: *(fitted ? &layer->k.fit.basis[5] : &(float){0}) = (float)INFINITY; break;
			}
			saved bytes = save_cache(cache);
			if (fitted || what < 3) {
				refused(other, bytes.data, bytes.size, CKV_ERR_ARG, test_codecs[c]);
			}
			saved_free(&bytes);
			ckv_cache_free(cache);
			ckv_cache_free(other);
		}
	}
	tokens_free(&t);
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_restored_cache_goes_on_as_the_saved_one),
	    cmocka_unit_test(an_empty_cache_is_restored_too),
	    cmocka_unit_test(threads_and_instruction_sets_are_not_saved),
	    cmocka_unit_test(bytes_are_written_only_where_they_fit),
	    cmocka_unit_test(a_copy_is_the_same_and_has_nothing_in_common),
	    cmocka_unit_test(damaged_bytes_are_refused),
	    cmocka_unit_test(bytes_that_were_signed_anew_are_refused_or_consistent),
	    cmocka_unit_test(sides_that_were_packed_apart_are_refused),
	    cmocka_unit_test(rows_that_no_cache_holds_are_refused),
	    cmocka_unit_test(the_state_of_another_cache_is_refused),
	    cmocka_unit_test(another_version_or_kind_is_refused),
	};
	return cmocka_run_group_tests_name("cache_state", tests, NULL, NULL);
}
