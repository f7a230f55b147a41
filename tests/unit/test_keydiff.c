/* ckv_score of KeyDiff against a plain computation in double. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static test_layer random_layer(rng *r) {
	int32_t n_kv = rng_range(r, 1, 3);
	return test_layer_make(r, n_kv, n_kv, rng_range(r, 1, 70), rng_range(r, 1, 70), 1);
}

static double dot(const double *a, const double *b, int32_t n) {
	double sum = 0.0;
	for (int32_t i = 0; i < n; i++) {
		sum += a[i] * b[i];
	}
	return sum;
}

/* Minus the cosine to the mean of the keys' directions; 0 where a direction is missing. */
static void naive_keydiff(const tensor *k, int32_t head, double *scores) {
	int32_t d = k->dim, n = k->n_tokens;
	double *direction = test_memory((size_t)(n * d + d), sizeof *direction), *anchor = direction + n * d;
	for (int32_t i = 0; i < n * d; i++) {
		direction[i] = (double)tensor_row(k, head, 0)[i];
	}
	memset(anchor, 0, (size_t)d * sizeof *anchor);
	for (int32_t i = 0; i < n; i++) {
		double *row = direction + i * d, length = sqrt(dot(row, row, d));
		for (int32_t c = 0; c < d; c++) {
			row[c] /= length > 0.0 ? length : 1.0;
			anchor[c] += row[c] / n;
		}
	}
	double length = sqrt(dot(anchor, anchor, d));
	for (int32_t i = 0; i < n; i++) {
		scores[i] = length > 0.0 ? -dot(direction + i * d, anchor, d) / length : 0.0;
	}
	free(direction);
}

static void scores_match_a_computation_in_double(void **state) {
	rng r = {1};
	(void)state;
	ckv_ctx *ctx = make_ctx("keydiff");
	for (int i = 0; i < 100; i++) {
		test_layer t = random_layer(&r);
		size_t n = layer_scores(&t.layer);
		double *expected = test_memory(n, sizeof *expected);
		float *scores = test_memory(n, sizeof *scores);
		char what[32];
		snprintf(what, sizeof what, "case %d", i);
		for (int32_t h = 0; h < t.k.n_heads; h++) {
			naive_keydiff(&t.k, h, expected + h * t.k.n_tokens);
		}
		score(ctx, &t.layer, scores);
		check_scores(expected, scores, n, what);
		free(expected);
		free(scores);
		test_layer_free(&t);
	}
	ckv_ctx_free(ctx);
}

static void storage_and_instruction_sets_do_not_show(void **state) {
	rng r = {2};
	(void)state;
	for (int i = 0; i < 10; i++) {
		test_layer t = random_layer(&r);
		check_scorer("keydiff", &t, &r);
		test_layer_free(&t);
	}
}

/* A key's length says nothing; a power of two leaves every bit of a direction as it is. */
static void only_the_direction_of_a_key_counts(void **state) {
	rng r = {3};
	(void)state;
	ckv_ctx *ctx = make_ctx("keydiff");
	for (int i = 0; i < 20; i++) {
		test_layer t = random_layer(&r);
		size_t n = layer_scores(&t.layer);
		float *before = test_memory(n, sizeof *before), *after = test_memory(n, sizeof *after);
		float *keys = (float *)(void *)t.stored_k.memory;
		score(ctx, &t.layer, before);
		for (size_t j = 0; j < n; j++) {
			float factor = ldexpf(1.0f, rng_range(&r, -30, 30));
			for (size_t c = 0; c < (size_t)t.k.dim; c++) {
				keys[j * (size_t)t.k.dim + c] *= factor;
			}
		}
		score(ctx, &t.layer, after);
		check_bits(before, after, n, "longer or shorter");
		free(before);
		free(after);
		test_layer_free(&t);
	}
	ckv_ctx_free(ctx);
}

/* Rows of two channels: their scores are plain to see. */
static void check_rows(const float (*rows)[2], int32_t n, const float *expected) {
	float scores[8];
	ckv_layer layer;
	ckv_layer_init(&layer);
	layer.k = (ckv_view){.data = rows, .n_heads = 1, .n_tokens = n, .head_dim = 2, .stride_token = sizeof *rows};
	ckv_ctx *ctx = make_ctx("keydiff");
	score(ctx, &layer, scores);
	for (int32_t i = 0; i < n; i++) {
		CHECK(fabsf(scores[i] - expected[i]) < 1e-6f, "key %d of %d: %g", i, n, (double)scores[i]);
	}
	ckv_ctx_free(ctx);
}

static void plain_keys_have_plain_scores(void **state) {
	(void)state;
	check_rows((const float[][2]){{3, 4}}, 1, (const float[]){-1});
	check_rows((const float[][2]){{1, 0}, {2, 0}, {0.5f, 0}}, 3, (const float[]){-1, -1, -1});
	/* three one way, one back: the mean still points that way */
	check_rows((const float[][2]){{1, 0}, {1, 0}, {1, 0}, {-7, 0}}, 4, (const float[]){-1, -1, -1, 1});
	check_rows((const float[][2]){{1, 0}, {0, 1}}, 2, (const float[]){-0.70710678f, -0.70710678f});
}

/* Without a direction there is nothing to resemble. */
static void keys_without_direction_score_zero(void **state) {
	(void)state;
	check_rows((const float[][2]){{1, 0}, {0, 0}, {1, 0}}, 3, (const float[]){-1, 0, -1});
	check_rows((const float[][2]){{0, 0}, {0, 0}}, 2, (const float[]){0, 0});
	check_rows((const float[][2]){{1, 0}, {-1, 0}}, 2, (const float[]){0, 0}); /* the mean vanishes */
}

static void keys_that_are_not_finite_are_errors(void **state) {
	(void)state;
	check_bad_keys("keydiff");
}

static void keys_are_all_that_is_needed(void **state) {
	ckv_needs needs;
	ckv_params p;
	(void)state;
	assert_int_equal(ckv_policy_parse("keydiff", &p, NULL), CKV_OK);
	assert_int_equal(ckv_params_needs(&p, &needs), CKV_OK);
	assert_true(needs.flags == 0 && needs.n_queries == 0);
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(scores_match_a_computation_in_double), cmocka_unit_test(storage_and_instruction_sets_do_not_show),
	    cmocka_unit_test(only_the_direction_of_a_key_counts),   cmocka_unit_test(plain_keys_have_plain_scores),
	    cmocka_unit_test(keys_without_direction_score_zero),    cmocka_unit_test(keys_that_are_not_finite_are_errors),
	    cmocka_unit_test(keys_are_all_that_is_needed),
	};
	return cmocka_run_group_tests_name("keydiff", tests, NULL, NULL);
}
