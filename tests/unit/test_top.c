/* ckv_top_positions against a sort. */
#include "support.h"

#include "core/internal.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = -12345 };

typedef struct entry {
	float score;
	int32_t position;
} entry;

/* Higher score first, then lower position. */
static int by_rank(const void *a, const void *b) {
	const entry *x = a, *y = b;
	if (x->score != y->score) {
		return x->score > y->score ? -1 : 1;
	}
	return x->position < y->position ? -1 : 1;
}

static int by_value(const void *a, const void *b) {
	int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
	return (x > y) - (x < y);
}

static void naive_top(const float *score, int32_t lo, int32_t hi, int32_t n, int32_t *out) {
	size_t count = (size_t)(hi - lo);
	entry *all = test_memory(count, sizeof *all);
	for (size_t i = 0; i < count; i++) {
		all[i].score = score[(size_t)lo + i];
		all[i].position = lo + (int32_t)i;
	}
	qsort(all, count, sizeof *all, by_rank);
	for (int32_t i = 0; i < n; i++) {
		out[i] = all[i].position;
	}
	qsort(out, (size_t)n, sizeof *out, by_value);
	free(all);
}

/* n of lo .. hi-1, and nothing written behind them. */
static void check_top(ckv_ctx *ctx, const float *score, int32_t lo, int32_t hi, int32_t n) {
	int32_t *expected = test_memory((size_t)n, sizeof *expected), *out = test_memory((size_t)n + 1, sizeof *out);
	naive_top(score, lo, hi, n, expected);
	out[n] = GUARD;
	CHECK(ckv_top_positions(ctx, score, lo, hi, n, out) == CKV_OK, "%d of %d to %d", n, lo, hi);
	CHECK(out[n] == GUARD, "%d of %d to %d: more were written", n, lo, hi);
	for (int32_t i = 0; i < n; i++) {
		CHECK(out[i] == expected[i], "%d of %d to %d: entry %d is %d instead of %d", n, lo, hi, i, out[i], expected[i]);
	}
	free(expected);
	free(out);
}

/* Every n of short arrays, some n of long ones; the whole and random sub-ranges. */
static void check_all(const float *score, int32_t count, uint64_t seed) {
	rng r = {seed};
	ckv_ctx *ctx = make_ctx("full");
	for (int32_t n = 0; n <= count; n += count > 70 ? rng_range(&r, 1, count / 10) : 1) {
		check_top(ctx, score, 0, count, n);
	}
	check_top(ctx, score, 0, count, count);
	for (int i = 0; i < 20; i++) {
		int32_t lo = rng_range(&r, 0, count - 1), hi = rng_range(&r, lo + 1, count);
		check_top(ctx, score, lo, hi, rng_range(&r, 0, hi - lo));
	}
	ckv_ctx_free(ctx);
}

/* Runs check_all on arrays of many lengths filled by `fill`. */
static void check_filled(void (*fill)(rng *r, float *score, int32_t count)) {
	static const int32_t counts[] = {1, 2, 3, 5, 8, 16, 17, 63, 64, 65, 255, 256, 257, 1000};
	float score[1000];
	for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
		rng r = {i + 1};
		fill(&r, score, counts[i]);
		check_all(score, counts[i], i);
	}
}

static void fill_random(rng *r, float *score, int32_t count) {
	for (int32_t i = 0; i < count; i++) {
		score[i] = rng_float(r);
	}
}

static void fill_equal(rng *r, float *score, int32_t count) {
	float value = rng_float(r);
	for (int32_t i = 0; i < count; i++) {
		score[i] = value;
	}
}

static void fill_few_values(rng *r, float *score, int32_t count) {
	for (int32_t i = 0; i < count; i++) {
		score[i] = (float)rng_range(r, -2, 2) * 0.5f;
	}
}

static void fill_zeros(rng *r, float *score, int32_t count) {
	for (int32_t i = 0; i < count; i++) {
		score[i] = rng_chance(r, 2) ? -0.0f : 0.0f;
	}
}

static void fill_denormals(rng *r, float *score, int32_t count) {
	for (int32_t i = 0; i < count; i++) {
		uint32_t bits = (rng_bits(r) & 0x8000000fu) | (rng_chance(r, 4) ? 0x00800000u : 0);
		memcpy(&score[i], &bits, sizeof bits);
	}
}

static void fill_any_finite(rng *r, float *score, int32_t count) {
	for (int32_t i = 0; i < count; i++) {
		uint32_t bits = rng_bits(r);
		bits = (bits & 0x7f800000u) == 0x7f800000u ? bits ^ 0x00800000u : bits;
		memcpy(&score[i], &bits, sizeof bits);
	}
}

static void fill_huge(rng *r, float *score, int32_t count) {
	for (int32_t i = 0; i < count; i++) {
		score[i] = (rng_chance(r, 2) ? FLT_MAX : -FLT_MAX) * (rng_chance(r, 2) ? 1.0f : 0.75f);
	}
}

static void fill_ascending(rng *r, float *score, int32_t count) {
	(void)r;
	for (int32_t i = 0; i < count; i++) {
		score[i] = (float)(i - count / 2) / 7.0f;
	}
}

static void fill_descending(rng *r, float *score, int32_t count) {
	(void)r;
	for (int32_t i = 0; i < count; i++) {
		score[i] = (float)(count / 2 - i) / 7.0f;
	}
}

/* Neighbours differ in the last bit only: every byte of a key counts. */
static void fill_last_bits(rng *r, float *score, int32_t count) {
	for (int32_t i = 0; i < count; i++) {
		uint32_t bits = 0x3f800000u + (rng_bits(r) & 0x3ffu);
		memcpy(&score[i], &bits, sizeof bits);
	}
}

static void random_scores_match_a_sort(void **state) {
	(void)state;
	check_filled(fill_random);
	check_filled(fill_any_finite);
	check_filled(fill_last_bits);
}

static void ties_go_to_the_lower_position(void **state) {
	(void)state;
	check_filled(fill_equal);
	check_filled(fill_few_values);
	const float score[] = {1, 3, 2, 3, 3, 2};
	const int32_t two[] = {1, 3}, four[] = {1, 2, 3, 4};
	int32_t out[4];
	ckv_ctx *ctx = make_ctx("full");
	assert_int_equal(ckv_top_positions(ctx, score, 0, 6, 2, out), CKV_OK);
	assert_memory_equal(out, two, sizeof two);
	assert_int_equal(ckv_top_positions(ctx, score, 0, 6, 4, out), CKV_OK);
	assert_memory_equal(out, four, sizeof four);
	ckv_ctx_free(ctx);
}

static void zeros_of_both_signs_are_equal(void **state) {
	(void)state;
	check_filled(fill_zeros);
	const float score[] = {-0.0f, 0.0f, -0.0f, 0.0f};
	int32_t out[1];
	ckv_ctx *ctx = make_ctx("full");
	assert_int_equal(ckv_top_positions(ctx, score, 0, 4, 1, out), CKV_OK);
	assert_int_equal(out[0], 0);
	ckv_ctx_free(ctx);
}

static void denormal_and_huge_scores_are_ordered(void **state) {
	(void)state;
	check_filled(fill_denormals);
	check_filled(fill_huge);
}

static void sorted_input_is_no_special_case(void **state) {
	(void)state;
	check_filled(fill_ascending);
	check_filled(fill_descending);
}

static void none_of_nothing_is_nothing(void **state) {
	(void)state;
	int32_t out[1] = {GUARD};
	ckv_ctx *ctx = make_ctx("full");
	assert_int_equal(ckv_top_positions(ctx, NULL, 0, 0, 0, out), CKV_OK);
	assert_int_equal(ckv_top_positions(ctx, NULL, 5, 5, 0, out), CKV_OK);
	assert_int_equal(out[0], GUARD);
	ckv_ctx_free(ctx);
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(random_scores_match_a_sort),      cmocka_unit_test(ties_go_to_the_lower_position),
	    cmocka_unit_test(zeros_of_both_signs_are_equal),   cmocka_unit_test(denormal_and_huge_scores_are_ordered),
	    cmocka_unit_test(sorted_input_is_no_special_case), cmocka_unit_test(none_of_nothing_is_nothing),
	};
	return cmocka_run_group_tests_name("top", tests, NULL, NULL);
}
