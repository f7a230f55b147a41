/* H2O: ckv_mass_add, which sums up each key's attention over all queries as they come, and the scores made of it. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct summed {
	test_layer t; /* as many queries as tokens */
	size_t stride;
	float *sums; /* [G][stride] */
	double *expected;
} summed;

/* expected[g][j]: over all queries i >= j the softmax weight of key j, mean over the group. */
static void naive_sums(summed *s) {
	int32_t n = s->t.k.n_tokens, group = s->t.q.n_heads / s->t.k.n_heads;
	double *mass = test_memory((size_t)s->t.q.n_heads * (size_t)n, sizeof *mass);
	naive_mass(&s->t.k, &s->t.q, n, (double)s->t.layer.scale, (double)s->t.layer.logit_cap, mass);
	for (int32_t i = 0; i < s->t.k.n_heads * n; i++) {
		s->expected[i] = 0.0;
		for (int32_t h = 0; h < group; h++) {
			s->expected[i] += mass[(i / n * group + h) * n + i % n] * n / group;
		}
	}
	free(mass);
}

static summed summed_make(rng *r) {
	static const int32_t dims[] = {1, 5, 16, 20, 64};
	summed s;
	int32_t n_kv = rng_range(r, 1, 3), n = rng_range(r, 1, rng_chance(r, 2) ? 20 : 100);
	s.t = test_layer_make(r, n_kv * rng_range(r, 1, 3), n_kv, dims[rng_range(r, 0, 4)], n, n);
	s.t.layer.scale = rng_chance(r, 2) ? 0.0f : 0.02f + fabsf(rng_float(r));
	s.t.layer.logit_cap = rng_chance(r, 2) ? 0.0f : 0.5f + 4.0f * fabsf(rng_float(r));
	s.stride = (size_t)n + (size_t)rng_range(r, 0, 9);
	s.sums = test_memory((size_t)n_kv * s.stride, sizeof *s.sums);
	s.expected = test_memory((size_t)(n_kv * n), sizeof *s.expected);
	naive_sums(&s);
	return s;
}

static void summed_free(summed *s) {
	test_layer_free(&s->t);
	free(s->sums);
	free(s->expected);
}

/* The columns get `value`, what pads them is painted. */
static void start_sums(summed *s, float value) {
	paint(s->sums, (size_t)s->t.k.n_heads * s->stride * sizeof *s->sums);
	for (int32_t i = 0; i < s->t.k.n_heads * s->t.k.n_tokens; i++) {
		s->sums[(size_t)(i / s->t.k.n_tokens) * s->stride + (size_t)(i % s->t.k.n_tokens)] = value;
	}
}

static void check_sums(const summed *s, float start, const char *what) {
	size_t n = (size_t)s->t.k.n_tokens;
	for (size_t g = 0; g < (size_t)s->t.k.n_heads; g++) {
		for (size_t i = 0; i < n; i++) {
			double sum = (double)s->sums[g * s->stride + i], expected = s->expected[g * n + i] + (double)start;
			CHECK(scores_equal(expected, sum), "%s: head %zu, key %zu has %.9g instead of %.9g", what, g, i, sum, expected);
		}
		CHECK(is_painted(s->sums + g * s->stride + n, (s->stride - n) * sizeof *s->sums), "%s: head %zu", what, g);
	}
}

/* Queries first .. end-1 as the last ones of the keys so far. */
static ckv_layer piece(const test_layer *t, int32_t first, int32_t end) {
	ckv_layer layer = layer_prefix(&t->layer, end);
	layer.q.data = (const char *)layer.q.data + (size_t)first * layer.q.stride_token;
	layer.q.n_tokens = end - first;
	return layer;
}

static void add(ckv_ctx *ctx, summed *s, int32_t first, int32_t end) {
	ckv_layer layer = piece(&s->t, first, end);
	CHECK(ckv_mass_add(ctx, &layer, s->sums, s->stride) == CKV_OK, "%s", ckv_ctx_message(ctx));
}

static void sums_match_a_computation_in_double(void **state) {
	rng r = {1};
	(void)state;
	ckv_ctx *ctx = make_ctx("h2o");
	for (int i = 0; i < 60; i++) {
		summed s = summed_make(&r);
		char what[32];
		snprintf(what, sizeof what, "case %d", i);
		start_sums(&s, 0.0f);
		add(ctx, &s, 0, s.t.k.n_tokens);
		check_sums(&s, 0.0f, what);
		summed_free(&s);
	}
	ckv_ctx_free(ctx);
}

/* One query at a time, or whole prompts, or anything between. */
static void sums_may_come_in_uneven_pieces(void **state) {
	rng r = {2};
	(void)state;
	ckv_ctx *ctx = make_ctx("h2o");
	for (int i = 0; i < 60; i++) {
		summed s = summed_make(&r);
		char what[32];
		snprintf(what, sizeof what, "case %d", i);
		start_sums(&s, 0.0f);
		for (int32_t first = 0, end; first < s.t.k.n_tokens; first = end) {
			int32_t left = s.t.k.n_tokens - first;
			end = first + (rng_chance(&r, 2) ? 1 : rng_range(&r, 1, left));
			add(ctx, &s, first, end);
		}
		check_sums(&s, 0.0f, what);
		summed_free(&s);
	}
	ckv_ctx_free(ctx);
}

static void what_is_there_already_is_added_to(void **state) {
	rng r = {3};
	(void)state;
	ckv_ctx *ctx = make_ctx("h2o");
	summed s = summed_make(&r);
	start_sums(&s, 2.5f);
	add(ctx, &s, 0, s.t.k.n_tokens);
	check_sums(&s, 2.5f, "from 2.5");
	summed_free(&s);
	ckv_ctx_free(ctx);
}

/* The policy has no part in it, nor has the type of what it reads, nor the instruction set. */
static void sums_do_not_depend_on_storage_or_instruction_set(void **state) {
	enum { G = 2, T = 71 };
	static const ckv_dtype dtypes[] = {CKV_F32, CKV_F16, CKV_BF16, CKV_DECODED};
	rng r = {4};
	float expected[G * T] = {0};
	(void)state;
	test_layer t = test_layer_make(&r, 6, G, 24, T, T);
	ckv_ctx *ctx = make_ctx("h2o");
	assert_int_equal(ckv_mass_add(ctx, &t.layer, expected, T), CKV_OK);
	ckv_ctx_free(ctx);
	for (size_t i = 0; i < 8; i++) {
		float sums[G * T] = {0};
		ckv_ctx_options options;
		ckv_layer layer = t.layer;
		stored k = stored_make(&t.k, dtypes[i % 4], i < 4 ? HEADS_OUTSIDE : TOKENS_OUTSIDE, 4);
		stored q = stored_make(&t.q, dtypes[(i + 1) % 4], i < 4 ? TOKENS_OUTSIDE : HEADS_OUTSIDE, 8);
		layer.k = k.view;
		layer.q = q.view;
		ckv_ctx_options_default(&options);
		options.cpu_disable = i % 2 ? ~0u : 0;
		ctx = make_ctx_with(i % 3 ? "full" : "h2o", &options);
		assert_int_equal(ckv_mass_add(ctx, &layer, sums, T), CKV_OK);
		check_bits(expected, sums, G * T, ckv_ctx_isa(ctx));
		ckv_ctx_free(ctx);
		stored_free(&k);
		stored_free(&q);
	}
	test_layer_free(&t);
}

static void sums_with_bad_arguments_are_refused(void **state) {
	enum { T = 20, G = 2 };
	rng r = {5};
	float sums[G * T];
	(void)state;
	test_layer t = test_layer_make(&r, 4, G, 8, T, T + 1);
	ckv_ctx *ctx = make_ctx("h2o");
	paint(sums, sizeof sums);
	ckv_layer layer = t.layer; /* more queries than keys */
	assert_int_equal(ckv_mass_add(ctx, &layer, sums, T), CKV_ERR_ARG);
	assert_true(ckv_ctx_message(ctx)[0]);
	layer.q.n_tokens = T;
	assert_int_equal(ckv_mass_add(NULL, &layer, sums, T), CKV_ERR_ARG);
	assert_int_equal(ckv_mass_add(ctx, NULL, sums, T), CKV_ERR_ARG);
	assert_int_equal(ckv_mass_add(ctx, &layer, NULL, T), CKV_ERR_ARG);
	assert_int_equal(ckv_mass_add(ctx, &layer, sums, T - 1), CKV_ERR_ARG);
	layer.q.n_heads = 3; /* not a multiple of 2 */
	assert_int_equal(ckv_mass_add(ctx, &layer, sums, T), CKV_ERR_ARG);
	layer.q.data = NULL;
	assert_int_equal(ckv_mass_add(ctx, &layer, sums, T), CKV_ERR_ARG);
	layer = t.layer;
	layer.scale = NAN;
	assert_int_equal(ckv_mass_add(ctx, &layer, sums, T), CKV_ERR_ARG);
	layer = t.layer;
	layer.size = 0;
	assert_int_equal(ckv_mass_add(ctx, &layer, sums, T), CKV_ERR_ARG);
	assert_true(is_painted(sums, sizeof sums));
	ckv_ctx_free(ctx);
	test_layer_free(&t);
}

/* Adds with one value of keys or queries set; the call must not pretend that the sums mean anything. */
static void check_not_finite(bool in_keys, float value, float logit_cap) {
	enum { T = 20, G = 2, D = 8 };
	rng r = {6};
	float sums[G * T] = {0};
	test_layer t = test_layer_make(&r, 4, G, D, T, T);
	ckv_ctx *ctx = make_ctx("h2o");
	t.layer.logit_cap = logit_cap;
	for (size_t i = 0; i < G * T; i++) {
		((float *)(void *)t.stored_k.memory)[i * D] = 0.5f; /* no product of 0 and infinity */
	}
	((float *)(void *)(in_keys ? t.stored_k.memory : t.stored_q.memory))[7 * D] = value;
	ckv_status status = ckv_mass_add(ctx, &t.layer, sums, T);
	CHECK(status == CKV_ERR_NUMERIC && ckv_ctx_message(ctx)[0], "%g in %s, cap %g: %s", (double)value,
	      in_keys ? "a key" : "a query", (double)logit_cap, ckv_strerror(status));
	ckv_ctx_free(ctx);
	test_layer_free(&t);
}

static void sums_of_keys_that_are_not_finite_are_errors(void **state) {
	(void)state;
	check_not_finite(true, NAN, 0.0f);
	check_not_finite(true, INFINITY, 0.0f);
	check_not_finite(true, -INFINITY, 10.0f);
}

static void sums_of_queries_that_are_not_finite_are_errors(void **state) {
	(void)state;
	check_not_finite(false, NAN, 0.0f);
	check_not_finite(false, INFINITY, 0.0f);
	check_not_finite(false, -INFINITY, 0.0f);
	check_not_finite(false, INFINITY, 10.0f);
}

/* ---------------------------------------------------------------- scores */

static void scores_are_sums_by_the_queries_that_see_the_key(void **state) {
	rng r = {7};
	(void)state;
	ckv_ctx *ctx = make_ctx("h2o");
	for (int i = 0; i < 40; i++) {
		summed s = summed_make(&r);
		size_t n = layer_scores(&s.t.layer), tokens = (size_t)s.t.k.n_tokens;
		float *scores = test_memory(n, sizeof *scores);
		start_sums(&s, 0.0f);
		add(ctx, &s, 0, s.t.k.n_tokens);
		for (size_t j = 0; j < n; j++) {
			s.expected[j] /= (double)(tokens - j % tokens);
		}
		s.t.layer.mass = s.sums;
		s.t.layer.mass_stride = s.stride;
		memset(&s.t.layer.q, 0, sizeof s.t.layer.q); /* queries are not asked for again */
		score(ctx, &s.t.layer, scores);
		check_scores(s.expected, scores, n, "h2o");
		free(scores);
		summed_free(&s);
	}
	ckv_ctx_free(ctx);
}

static void sums_are_needed_and_must_be_finite(void **state) {
	enum { T = 20, G = 2 };
	rng r = {8};
	ckv_needs needs;
	float sums[G * T] = {0};
	(void)state;
	test_layer t = test_layer_make(&r, 4, G, 8, T, 1);
	ckv_ctx *ctx = make_ctx("h2o");
	score_refused(ctx, &t.layer, G * T, CKV_ERR_ARG, "no sums");
	t.layer.mass = sums;
	t.layer.mass_stride = T - 1;
	score_refused(ctx, &t.layer, G * T, CKV_ERR_ARG, "too short a stride");
	t.layer.mass_stride = T;
	sums[T + 3] = NAN;
	score_refused(ctx, &t.layer, G * T, CKV_ERR_NUMERIC, "NaN in the sums");
	assert_int_equal(ckv_params_needs(ckv_ctx_params(ctx), &needs), CKV_OK);
	assert_int_equal(needs.flags, CKV_NEED_MASS);
	assert_int_equal(needs.n_queries, 0);
	ckv_ctx_free(ctx);
	test_layer_free(&t);
}

/* The preset protects the newest as H2O does. */
static void the_newest_tokens_stay(void **state) {
	enum { T = 60, G = 2, W = 16, SINKS = 4 };
	rng r = {9};
	float sums[G * T];
	(void)state;
	test_layer t = test_layer_make(&r, 4, G, 8, T, 1);
	ckv_ctx *ctx = make_ctx("h2o");
	for (int i = 0; i < G * T; i++) {
		sums[i] = i % T >= T - W || i % T < SINKS ? 0.0f : 1.0f + rng_float(&r);
	}
	t.layer.mass = sums;
	t.layer.mass_stride = T;
	selected s = select_layer(ctx, &t.layer, ckv_keep_tokens(30));
	for (int i = 0; i < G * T; i++) {
		CHECK(s.mask[i] || (i % T < T - W && i % T >= SINKS), "token %d is dropped", i % T);
	}
	assert_int_equal(s.keep.n_keep, 30);
	assert_true(s.keep.attention_kept == -1.0f);
	selected_free(&s);
	ckv_ctx_free(ctx);
	test_layer_free(&t);
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(sums_match_a_computation_in_double),
	    cmocka_unit_test(sums_may_come_in_uneven_pieces),
	    cmocka_unit_test(what_is_there_already_is_added_to),
	    cmocka_unit_test(sums_do_not_depend_on_storage_or_instruction_set),
	    cmocka_unit_test(sums_with_bad_arguments_are_refused),
	    cmocka_unit_test(sums_of_keys_that_are_not_finite_are_errors),
	    cmocka_unit_test(sums_of_queries_that_are_not_finite_are_errors),
	    cmocka_unit_test(scores_are_sums_by_the_queries_that_see_the_key),
	    cmocka_unit_test(sums_are_needed_and_must_be_finite),
	    cmocka_unit_test(the_newest_tokens_stay),
	};
	return cmocka_run_group_tests_name("h2o", tests, NULL, NULL);
}
