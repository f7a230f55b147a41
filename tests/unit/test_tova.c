/* ckv_score of TOVA against a plain computation in double, and what selecting by it means. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static test_layer random_layer(rng *r) {
	static const int32_t dims[] = {1, 3, 8, 16, 33, 64};
	int32_t n_kv = rng_range(r, 1, 3);
	test_layer t = test_layer_make(r, n_kv * rng_range(r, 1, 4), n_kv, dims[rng_range(r, 0, 5)], rng_range(r, 2, 90),
	                               rng_range(r, 1, 2));
	t.layer.scale = rng_chance(r, 2) ? 0.0f : 0.02f + fabsf(rng_float(r));
	t.layer.logit_cap = rng_chance(r, 2) ? 0.0f : 0.5f + 4.0f * fabsf(rng_float(r));
	return t;
}

/* Mean over all heads of the layer, the same for every KV head. */
static void naive_tova(const test_layer *t, double *scores) {
	size_t n = (size_t)t->k.n_tokens, heads = (size_t)t->q.n_heads;
	double *mass = test_memory(heads * n, sizeof *mass), best = 0.0;
	naive_mass(&t->k, &t->q, 1, (double)t->layer.scale, (double)t->layer.logit_cap, mass);
	for (size_t i = 0; i + 1 < n; i++) {
		scores[i] = 0.0;
		for (size_t h = 0; h < heads; h++) {
			scores[i] += mass[h * n + i] / (double)heads;
		}
		best = fmax(best, scores[i]);
	}
	scores[n - 1] = best + 1.0;
	for (size_t g = 1; g < (size_t)t->k.n_heads; g++) {
		memcpy(scores + g * n, scores, n * sizeof *scores);
	}
	free(mass);
}

static void scores_match_a_computation_in_double(void **state) {
	rng r = {1};
	(void)state;
	ckv_ctx *ctx = make_ctx("tova");
	for (int i = 0; i < 150; i++) {
		test_layer t = random_layer(&r);
		size_t n = layer_scores(&t.layer);
		double *expected = test_memory(n, sizeof *expected);
		float *scores = test_memory(n, sizeof *scores);
		char what[32];
		snprintf(what, sizeof what, "case %d", i);
		naive_tova(&t, expected);
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
		check_scorer("tova", &t, &r);
		test_layer_free(&t);
	}
}

/* What stands before the last query may be anything; it asks for one query only. */
static void only_the_last_query_is_read(void **state) {
	enum { T = 33, N = 5, D = 12, H = 4, G = 2 };
	rng r = {3};
	ckv_needs needs;
	float before[G * T], after[G * T];
	(void)state;
	test_layer t = test_layer_make(&r, H, G, D, T, N);
	ckv_ctx *ctx = make_ctx("tova");
	score(ctx, &t.layer, before);
	for (size_t h = 0; h < H; h++) {
		float *row = (float *)(void *)(t.stored_q.memory + h * t.layer.q.stride_head);
		for (size_t i = 0; i < (N - 1) * D; i++) {
			row[i] = NAN;
		}
	}
	score(ctx, &t.layer, after);
	check_bits(before, after, G * T, "earlier queries");
	assert_int_equal(ckv_params_needs(ckv_ctx_params(ctx), &needs), CKV_OK);
	assert_int_equal(needs.flags, CKV_NEED_QUERIES);
	assert_int_equal(needs.n_queries, 1);
	ckv_ctx_free(ctx);
	test_layer_free(&t);
}

static void a_single_token_has_no_score_and_is_kept(void **state) {
	rng r = {4};
	(void)state;
	test_layer t = test_layer_make(&r, 2, 1, 8, 1, 1);
	ckv_ctx *ctx = make_ctx("tova");
	score_refused(ctx, &t.layer, 1, CKV_ERR_UNSUPPORTED, "one token");
	selected s = select_layer(ctx, &t.layer, ckv_keep_tokens(1));
	assert_int_equal(s.keep.reason, CKV_KEPT_ALL_WINDOW);
	selected_free(&s);
	ckv_ctx_free(ctx);
	test_layer_free(&t);
}

/* The last token is best by far, so it stays although the preset protects no window; the share told is the last query's. */
static void the_last_token_stays_and_its_attention_is_told(void **state) {
	rng r = {5};
	(void)state;
	ckv_ctx *ctx = make_ctx("tova:sinks=0");
	for (int n = 0; n < 50; n++) {
		test_layer t = random_layer(&r);
		int32_t n_tokens = t.k.n_tokens, group = t.q.n_heads / t.k.n_heads;
		double *mass = test_memory((size_t)t.q.n_heads * (size_t)n_tokens, sizeof *mass), kept = 0.0;
		selected s = select_layer(ctx, &t.layer, ckv_keep_tokens(rng_range(&r, 1, n_tokens)));
		naive_mass(&t.k, &t.q, 1, (double)t.layer.scale, (double)t.layer.logit_cap, mass);
		for (int32_t i = 0; i < t.q.n_heads * n_tokens; i++) {
			kept += s.mask[i / n_tokens / group * n_tokens + i % n_tokens] ? mass[i] / t.q.n_heads : 0.0;
		}
		CHECK(scores_equal(kept, (double)s.keep.attention_kept), "case %d: %g", n, (double)s.keep.attention_kept);
		for (int32_t g = 0; g < t.k.n_heads; g++) {
			CHECK(s.mask[(g + 1) * n_tokens - 1], "case %d: head %d lost the last token", n, g);
		}
		free(mass);
		selected_free(&s);
		test_layer_free(&t);
	}
	ckv_ctx_free(ctx);
}

static void queries_are_needed_and_must_be_finite(void **state) {
	enum { T = 20, D = 8, G = 2 };
	rng r = {6};
	(void)state;
	test_layer t = test_layer_make(&r, 4, G, D, T, 1);
	ckv_ctx *ctx = make_ctx("tova");
	ckv_layer layer = t.layer;
	memset(&layer.q, 0, sizeof layer.q);
	score_refused(ctx, &layer, G * T, CKV_ERR_ARG, "no queries");
	((float *)(void *)t.stored_q.memory)[D + 1] = NAN;
	score_refused(ctx, &t.layer, G * T, CKV_ERR_NUMERIC, "NaN in a query");
	((float *)(void *)t.stored_q.memory)[D + 1] = 0.0f;
	((float *)(void *)t.stored_k.memory)[T * D - 1] = INFINITY;
	score_refused(ctx, &t.layer, G * T, CKV_ERR_NUMERIC, "infinity in the last key");
	ckv_ctx_free(ctx);
	test_layer_free(&t);
}

/* A cap would turn an infinite logit into an ordinary one. */
static void an_infinite_query_is_an_error_under_a_logit_cap_too(void **state) {
	enum { T = 20, D = 8, G = 2 };
	rng r = {7};
	(void)state;
	test_layer t = test_layer_make(&r, 4, G, D, T, 1);
	ckv_ctx *ctx = make_ctx("tova");
	t.layer.logit_cap = 30.0f;
	for (size_t i = 0; i < G * T; i++) {
		((float *)(void *)t.stored_k.memory)[i * D] = i % 2 ? 0.5f : -0.5f; /* no product of 0 and infinity */
	}
	((float *)(void *)t.stored_q.memory)[0] = INFINITY;
	score_refused(ctx, &t.layer, G * T, CKV_ERR_NUMERIC, "an infinite query");
	ckv_ctx_free(ctx);
	test_layer_free(&t);
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(scores_match_a_computation_in_double),
	    cmocka_unit_test(storage_and_instruction_sets_do_not_show),
	    cmocka_unit_test(only_the_last_query_is_read),
	    cmocka_unit_test(a_single_token_has_no_score_and_is_kept),
	    cmocka_unit_test(the_last_token_stays_and_its_attention_is_told),
	    cmocka_unit_test(queries_are_needed_and_must_be_finite),
	    cmocka_unit_test(an_infinite_query_is_an_error_under_a_logit_cap_too),
	};
	return cmocka_run_group_tests_name("tova", tests, NULL, NULL);
}
