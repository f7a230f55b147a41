/* What a cache will hold, told before there are rows, is what it then holds. */
#include "cache_support.h"

#include "quant/quant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_LAYERS = 3, TOKENS = 160 };

static const ckv_stream_shape shapes[N_LAYERS] = {{3, 24, 20}, {1, 9, 33}, {4, 5, 16}};
enum { N_HEADS = 8 }; /* of all layers */

static ckv_cache_info estimate(const char *codec, const int32_t *rows) {
	ckv_codec own = codec_of(codec);
	ckv_cache_info info;
	ckv_error error = {CKV_ERR_ARG, "x"};
	paint(&info, sizeof info);
	info.size = sizeof info;
	CHECK(ckv_cache_estimate(&own, shapes, N_LAYERS, rows, NULL, &info, &error) == CKV_OK, "%s: %s", codec, error.message);
	CHECK(error.status == CKV_OK && error.message[0] == '\0', "%s: '%s' after success", codec, error.message);
	return info;
}

/* Loads every layer with what `how` makes of its tokens, and counts its rows. */
enum { ALL_ROWS, SHARED_LISTS, OWN_LISTS, ONE_LAYER_EMPTY, N_WAYS };

static void load_layer(rng *r, ckv_cache *cache, int32_t layer, int how, int32_t n, int32_t *rows) {
	const ckv_stream_shape *shape = &shapes[layer];
	tokens t = rough_tokens(r, *shape, n, 1);
	held h = held_make(shape->n_kv_heads, n);
	lists l = lists_random(r, shape->n_kv_heads, n, how == SHARED_LISTS);
	if (how != ONE_LAYER_EMPTY || layer != 1) {
		cache_load(cache, layer, &t, n, how == ALL_ROWS ? NULL : &l.keep, &h);
	}
	for (int32_t head = 0; head < shape->n_kv_heads; head++) {
		rows[head] = ckv_cache_rows(cache, layer, head);
	}
	lists_free(&l);
	held_free(&h);
	tokens_free(&t);
}

static ckv_cache_info loaded(rng *r, const char *codec, int how, int32_t *rows) {
	ckv_cache *cache = cache_make(codec, shapes, N_LAYERS, NULL);
	int32_t n = rng_chance(r, 3) ? rng_range(r, 1, 9) : rng_range(r, 10, TOKENS);
	for (int32_t layer = 0; layer < N_LAYERS; layer++) {
		load_layer(r, cache, layer, how, n, rows);
		rows += shapes[layer].n_kv_heads;
	}
	ckv_cache_info info = cache_info(cache, -1);
	ckv_cache_free(cache);
	return info;
}

static void check_same(const ckv_cache_info *x, const ckv_cache_info *y, const char *codec, int number) {
	CHECK(x->rows == y->rows && x->longest == y->longest && x->bytes_f16 == y->bytes_f16, "%s, case %d: %lld rows, %lld",
	      codec, number, (long long)x->rows, (long long)y->rows);
	CHECK(x->bytes == y->bytes && x->bytes_allocated == y->bytes_allocated,
	      "%s, case %d: %llu bytes, %llu allocated, where %llu and %llu are", codec, number, (unsigned long long)x->bytes,
	      (unsigned long long)x->bytes_allocated, (unsigned long long)y->bytes, (unsigned long long)y->bytes_allocated);
	CHECK(x->reference_bytes == y->reference_bytes, "%s, case %d: %llu reference bytes, %llu", codec, number,
	      (unsigned long long)x->reference_bytes, (unsigned long long)y->reference_bytes);
	CHECK(x->rank_k == y->rank_k && x->rank_v == y->rank_v && x->size == y->size, "%s, case %d: ranks %d %d, %d %d", codec,
	      number, x->rank_k, x->rank_v, y->rank_k, y->rank_v);
}

static void check_codec(rng *r, const char *codec) {
	for (int i = 0; i < 3 * N_WAYS; i++) {
		int32_t rows[N_HEADS];
		ckv_cache_info real = loaded(r, codec, i % N_WAYS, rows), told = estimate(codec, rows);
		check_same(&told, &real, codec, i);
	}
}

static void f16_and_kivi_take_what_was_told(void **state) {
	static const char *const more[] = {"kivi4:group=4096,residual=0", "kivi2:residual=65536,group=3",
	                                   "kivi2:residual=40,group=16,mode=reference", "kivi8:group=1,residual=0"};
	rng r = {1};
	(void)state;
	check_codec(&r, "none");
	for (int bits = 1; bits <= 8; bits++) {
		char codec[64];
		snprintf(codec, sizeof codec, "kivi:bits=%d,group=%d", bits, 3 * bits);
		check_codec(&r, codec);
	}
	for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
		check_codec(&r, more[i]);
	}
}

/* Ranks beyond the rows and channels there are, groups beyond the heads. */
static void palu_of_a_given_rank_takes_what_was_told(void **state) {
	static const char *const codecs[] = {
	    "palu:rank=5,head_groups=2,group=8", "palu:rank=12,head_groups=1,quantize_values=0,high_bits=8,low_bits=3",
	    "palu:rank=4096,head_groups=1024,group=7,high_share=0", "palu:rank=3,head_groups=3,group=5,mode=reference"};
	rng r = {2};
	(void)state;
	if (!ckv_low_rank_available()) {
		skip();
	}
	for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++) {
		check_codec(&r, codecs[i]);
	}
}

/* The greatest rank of the first layer is that of its channels, or of its group with the fewest rows. */
static void palu_by_energy_takes_no_more_than_was_told(void **state) {
	static const char *const codecs[] = {"palu:energy=0.3,head_groups=2", "palu:energy=0.9,quantize_values=0", "palu"};
	rng r = {3};
	(void)state;
	if (!ckv_low_rank_available()) {
		skip();
	}
	for (int i = 0; i < 30; i++) {
		const char *codec = codecs[i % 3];
		int32_t rows[N_HEADS];
		ckv_cache_info real = loaded(&r, codec, i % 2 ? ALL_ROWS : SHARED_LISTS, rows), told = estimate(codec, rows);
		CHECK(real.rank_k <= told.rank_k && real.bytes_allocated <= told.bytes_allocated && real.bytes <= told.bytes &&
		          real.reference_bytes <= told.reference_bytes && real.bytes_f16 == told.bytes_f16,
		      "%s, case %d: rank %d, %llu bytes; told were %d, %llu", codec, i, real.rank_k,
		      (unsigned long long)real.bytes_allocated, told.rank_k, (unsigned long long)told.bytes_allocated);
		CHECK(rows[0] >= 24 ? told.rank_k == 24 && told.rank_v == 20 : told.rank_k >= rows[0] && told.rank_k <= 24,
		      "%s, case %d: ranks %d %d of %d rows", codec, i, told.rank_k, told.rank_v, rows[0]);
	}
}

/* Sizes that no test can load. */
static void large_sizes_are_exact(void **state) {
	enum { ROWS = 2000000000 };
	static const ckv_stream_shape shape[] = {{2, 128, 64}, {2, 128, 64}};
	static const int32_t rows[] = {ROWS, ROWS, ROWS, 1};
	ckv_cache_info info = {.size = sizeof info};
	(void)state;
	assert_int_equal(ckv_cache_estimate(NULL, shape, 2, rows, NULL, &info, NULL), CKV_OK);
	assert_true(info.rows == 3 * (int64_t)ROWS + 1 && info.longest == ROWS);
	assert_true(info.bytes == (3 * (uint64_t)ROWS + 1) * 2 * 192 && info.bytes_allocated == info.bytes);
	ckv_codec codec = codec_of("kivi4:group=64,residual=0");
	assert_int_equal(ckv_cache_estimate(&codec, shape, 2, rows, NULL, &info, NULL), CKV_OK);
	/* Keys: 64 bytes, and two levels of two bytes by channel and a count for each 64 rows; values: 32 bytes, two levels. */
	uint64_t groups = ROWS / 64, head = ROWS * (uint64_t)(64 + 32 + 4) + groups * (128 * 4 + 4);
	assert_true(ROWS % 64 == 0);
	assert_true(info.bytes_allocated == 3 * head + 2 * 192);
}

/* ---------------------------------------------------------------- errors */

static void refused(const ckv_codec *codec, const ckv_stream_shape *shape, int32_t n_layers, const int32_t *rows,
                    ckv_status expected, const char *what) {
	ckv_cache_info info;
	ckv_error error = {CKV_OK, ""};
	paint(&info, sizeof info);
	ckv_status status = ckv_cache_estimate(codec, shape, n_layers, rows, NULL, &info, &error);
	CHECK(status == expected && error.status == expected && error.message[0], "%s: %s, '%s'", what, ckv_strerror(status),
	      error.message);
	CHECK(is_painted(&info, sizeof info), "%s: written to", what);
}

static void what_no_cache_can_have_is_refused(void **state) {
	static const int32_t good[N_HEADS] = {1, 2, 3, 4, 5, 6, 7, 8};
	static const ckv_stream_shape wide = {1, 70000, 1};
	int32_t rows[N_HEADS];
	ckv_codec codec = codec_of("kivi4");
	(void)state;
	for (int i = 0; i < N_HEADS; i++) {
		memcpy(rows, good, sizeof rows);
		rows[i] = -1;
		refused(&codec, shapes, N_LAYERS, rows, CKV_ERR_ARG, "negative");
		rows[i] = CKV_MAX_TOKENS + 1;
		refused(&codec, shapes, N_LAYERS, rows, CKV_ERR_ARG, "too long");
	}
	refused(&codec, NULL, N_LAYERS, good, CKV_ERR_ARG, "no shapes");
	refused(&codec, shapes, 0, good, CKV_ERR_ARG, "no layers");
	refused(&codec, shapes, -1, good, CKV_ERR_ARG, "negative layers");
	refused(&codec, shapes, N_LAYERS, NULL, CKV_ERR_ARG, "no rows");
	refused(&codec, &wide, 1, good, CKV_ERR_ARG, "wide");
	codec.bits = 9;
	refused(&codec, shapes, N_LAYERS, good, CKV_ERR_POLICY, "9 bits");
	assert_int_equal(ckv_cache_estimate(NULL, shapes, N_LAYERS, good, NULL, NULL, NULL), CKV_ERR_ARG);
}

static void sums_that_can_t_be_counted_are_errors(void **state) {
	enum { HEADS = 65536 };
	static const ckv_stream_shape shape = {HEADS, 65536, 65536};
	ckv_codec codec = codec_of("kivi8");
	int32_t *rows = test_memory(HEADS, sizeof *rows);
	(void)state;
	for (int32_t i = 0; i < HEADS; i++) {
		rows[i] = CKV_MAX_TOKENS;
	}
	refused(&codec, &shape, 1, rows, CKV_ERR_NOMEM, "kivi8");
	refused(NULL, &shape, 1, rows, CKV_ERR_NOMEM, "f16");
	free(rows);
}

static void an_older_caller_gets_what_it_has_room_for(void **state) {
	static const int32_t rows[N_HEADS] = {1, 2, 3, 4, 5, 6, 7, 8};
	ckv_cache_info info;
	(void)state;
	paint(&info, sizeof info);
	info.size = offsetof(ckv_cache_info, bytes_allocated);
	assert_int_equal(ckv_cache_estimate(NULL, shapes, N_LAYERS, rows, NULL, &info, NULL), CKV_OK);
	assert_int_equal(info.rows, 36);
	assert_true(is_painted(&info.bytes_allocated, sizeof info - offsetof(ckv_cache_info, bytes_allocated)));
}

static void every_request_for_memory_may_fail(void **state) {
	static const int32_t rows[N_HEADS] = {40, 41, 42, 43, 44, 45, 46, 47};
	(void)state;
	for (size_t i = 0; i < n_test_codecs(); i++) {
		ckv_codec codec = codec_of(test_codecs[i]);
		for (long n = 1, done = 0; !done; n++) {
			counting counter;
			ckv_ctx_options options;
			ckv_cache_info info;
			counting_init(&counter);
			counter.refuse_in = n;
			ckv_ctx_options_default(&options);
			options.allocator = &counter.allocator;
			paint(&info, sizeof info);
			ckv_status status = ckv_cache_estimate(&codec, shapes, N_LAYERS, rows, &options, &info, NULL);
			done = status == CKV_OK;
			CHECK(done || (status == CKV_ERR_NOMEM && is_painted(&info, sizeof info)), "%s, request %ld: %s", test_codecs[i],
			      n, ckv_strerror(status));
			assert_int_equal(counter.live, 0);
			assert_true(!done || n > N_LAYERS);
		}
	}
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(f16_and_kivi_take_what_was_told),
	    cmocka_unit_test(palu_of_a_given_rank_takes_what_was_told),
	    cmocka_unit_test(palu_by_energy_takes_no_more_than_was_told),
	    cmocka_unit_test(large_sizes_are_exact),
	    cmocka_unit_test(what_no_cache_can_have_is_refused),
	    cmocka_unit_test(sums_that_can_t_be_counted_are_errors),
	    cmocka_unit_test(an_older_caller_gets_what_it_has_room_for),
	    cmocka_unit_test(every_request_for_memory_may_fail),
	};
	return cmocka_run_group_tests_name("cache_estimate", tests, NULL, NULL);
}
