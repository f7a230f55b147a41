/* The scorers knorm and key_norm: the key's length, minus or plus. */
#include "support.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static test_layer random_layer(rng *r) {
	int32_t n_kv = rng_range(r, 1, 3);
	return test_layer_make(r, n_kv, n_kv, rng_range(r, 1, 70), rng_range(r, 1, 70), 1);
}

static void scores_match_a_computation_in_double(void **state) {
	rng r = {1};
	(void)state;
	ckv_ctx *low = make_ctx("l2norm"), *high = make_ctx("l2norm:scorer=key_norm");
	for (int i = 0; i < 100; i++) {
		test_layer t = random_layer(&r);
		size_t n = layer_scores(&t.layer);
		double *expected = test_memory(n, sizeof *expected);
		float *scores = test_memory(n, sizeof *scores), *opposite = test_memory(n, sizeof *opposite);
		for (size_t j = 0; j < n; j++) {
			double sum = 0.0;
			for (size_t c = 0; c < (size_t)t.k.dim; c++) {
				double x = (double)t.k.value[j * (size_t)t.k.dim + c];
				sum += x * x;
			}
			expected[j] = -sqrt(sum);
		}
		score(low, &t.layer, scores);
		check_scores(expected, scores, n, "knorm");
		score(high, &t.layer, opposite);
		for (size_t j = 0; j < n; j++) {
			CHECK(opposite[j] == -scores[j], "case %d: score %zu", i, j);
		}
		free(expected);
		free(scores);
		free(opposite);
		test_layer_free(&t);
	}
	ckv_ctx_free(low);
	ckv_ctx_free(high);
}

static void storage_and_instruction_sets_do_not_show(void **state) {
	rng r = {2};
	(void)state;
	for (int i = 0; i < 10; i++) {
		test_layer t = random_layer(&r);
		check_scorer("l2norm", &t, &r);
		check_scorer("l2norm:scorer=key_norm", &t, &r);
		test_layer_free(&t);
	}
}

/* The alias is a way to say it, not another scorer. */
static void l2norm_is_another_name_of_knorm(void **state) {
	char text[64];
	ckv_params p, q;
	(void)state;
	assert_int_equal(ckv_policy_parse("snapkv:scorer=l2norm", &p, NULL), CKV_OK);
	assert_int_equal(ckv_policy_parse("snapkv:scorer=knorm", &q, NULL), CKV_OK);
	assert_string_equal(p.scorer, "knorm");
	assert_string_equal(q.scorer, "knorm");
	ckv_policy_format(&p, text, sizeof text);
	assert_string_equal(text, "snapkv:scorer=knorm");
	assert_int_equal(ckv_policy_parse("l2norm", &p, NULL), CKV_OK);
	assert_string_equal(p.scorer, "knorm");
	assert_string_equal(p.preset, "l2norm");
}

/* Neither queries nor values are looked at. */
static void keys_are_all_that_is_needed(void **state) {
	enum { T = 40, G = 2 };
	rng r = {3};
	ckv_needs needs;
	float scores[G * T];
	(void)state;
	test_layer t = test_layer_make(&r, G, G, 8, T, 1);
	ckv_ctx *ctx = make_ctx("l2norm");
	assert_int_equal(ckv_params_needs(ckv_ctx_params(ctx), &needs), CKV_OK);
	assert_true(needs.flags == 0 && needs.n_queries == 0);
	memset(&t.layer.q, 0, sizeof t.layer.q);
	score(ctx, &t.layer, scores);
	selected s = select_layer(ctx, &t.layer, ckv_keep_tokens(25));
	assert_int_equal(s.keep.n_keep, 25);
	assert_true(s.keep.attention_kept == -1.0f);
	selected_free(&s);
	ckv_ctx_free(ctx);
	test_layer_free(&t);
}

/* Squares of large and small values neither overflow nor vanish before the root is taken. */
static void lengths_reach_from_the_smallest_to_the_largest_float(void **state) {
	enum { D = 4 };
	(void)state;
	float rows[5][D] = {{0}, {FLT_MIN, 0, 0, 0}, {1e-30f, 1e-30f, 1e-30f, 1e-30f}, {1e38f, 1e38f, 1e38f, 1e38f}, {-3e38f}};
	float expected[5] = {0.0f, FLT_MIN, 2e-30f, 2e38f, 3e38f}, scores[5];
	ckv_layer layer;
	ckv_layer_init(&layer);
	layer.k = (ckv_view){.data = rows, .n_heads = 1, .n_tokens = 5, .head_dim = D, .stride_token = sizeof *rows};
	ckv_ctx *ctx = make_ctx("l2norm:scorer=key_norm");
	score(ctx, &layer, scores);
	for (int i = 0; i < 5; i++) {
		CHECK(fabsf(scores[i] - expected[i]) <= expected[i] * 1e-6f, "row %d has %g", i, (double)scores[i]);
	}
	for (int i = 0; i < D; i++) {
		rows[3][i] = FLT_MAX; /* finite, but its length is not */
	}
	score_refused(ctx, &layer, 5, CKV_ERR_NUMERIC, "a length beyond float");
	ckv_ctx_free(ctx);
}

static void keys_that_are_not_finite_are_errors(void **state) {
	(void)state;
	check_bad_keys("l2norm");
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(scores_match_a_computation_in_double),
	    cmocka_unit_test(storage_and_instruction_sets_do_not_show),
	    cmocka_unit_test(l2norm_is_another_name_of_knorm),
	    cmocka_unit_test(keys_are_all_that_is_needed),
	    cmocka_unit_test(lengths_reach_from_the_smallest_to_the_largest_float),
	    cmocka_unit_test(keys_that_are_not_finite_are_errors),
	};
	return cmocka_run_group_tests_name("knorm", tests, NULL, NULL);
}
