/* ckv_score of LagKV against a plain computation in double: partitions, the range of the next one, ranks. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct shape {
	int32_t n_heads, dim, dim_v, n_tokens, sinks, lag;
} shape;

static shape random_shape(rng *r) {
	shape s = {.n_heads = rng_range(r, 1, 3), .dim = rng_range(r, 1, 24), .sinks = rng_range(r, 0, 5)};
	s.dim_v = rng_chance(r, 2) ? s.dim : rng_range(r, 1, 24);
	s.lag = rng_range(r, 1, 16);
	s.n_tokens = rng_range(r, 1, rng_chance(r, 3) ? s.sinks + 2 * s.lag : 100);
	return s;
}

static test_layer shape_layer(rng *r, const shape *s) {
	test_layer t = test_layer_make(r, s->n_heads, s->n_heads, s->dim, s->n_tokens, 1);
	test_layer_add_values(&t, r, s->dim_v);
	return t;
}

static void shape_policy(const shape *s, char policy[64]) {
	snprintf(policy, 64, "lagkv:sinks=%d,lag=%d", s->sinks, s->lag);
}

/* One channel of a row, scaled by its range in the partition `next` .. next+lag-1; 0 where it does not vary there. */
static double naive_scaled(const tensor *x, int32_t head, int32_t token, int32_t channel, int32_t next, int32_t lag) {
	double low = INFINITY, high = -INFINITY;
	for (int32_t t = next; t < next + lag; t++) {
		low = fmin(low, (double)tensor_row(x, head, t)[channel]);
		high = fmax(high, (double)tensor_row(x, head, t)[channel]);
	}
	return high > low ? ((double)tensor_row(x, head, token)[channel] - low) / (high - low) : 0.0;
}

static double naive_deviation(const tensor *x, int32_t head, int32_t token, int32_t next, int32_t lag) {
	double mean = 0.0, squares = 0.0;
	for (int32_t c = 0; c < x->dim; c++) {
		mean += naive_scaled(x, head, token, c, next, lag) / x->dim;
	}
	for (int32_t c = 0; c < x->dim; c++) {
		double off = naive_scaled(x, head, token, c, next, lag) - mean;
		squares += off * off;
	}
	return x->dim > 1 ? sqrt(squares / (x->dim - 1)) : 0.0;
}

/* out[lag] += half the softmax of the partition's deviations. */
static void naive_add(const tensor *x, int32_t head, int32_t first, int32_t lag, double *out) {
	double weight[16], most = 0.0, sum = 0.0;
	for (int32_t i = 0; i < lag; i++) {
		weight[i] = naive_deviation(x, head, first + i, first + lag, lag);
		most = fmax(most, weight[i]);
	}
	for (int32_t i = 0; i < lag; i++) {
		weight[i] = exp(weight[i] - most); /* a channel that hardly varies there makes hundreds */
		sum += weight[i];
	}
	for (int32_t i = 0; i < lag; i++) {
		out[i] += weight[i] / sum / 2.0;
	}
}

/* Ranks of one partition: how many are lower, or equal and before. Returns whether a near tie leaves them to rounding. */
static bool naive_ranks(const double *value, int32_t lag, double *ranks) {
	bool tied = false;
	for (int32_t i = 0; i < lag; i++) {
		int32_t rank = 0;
		for (int32_t j = 0; j < lag; j++) {
			rank += value[j] < value[i] || (value[j] <= value[i] && j < i);
			tied = tied || (i != j && fabs(value[i] - value[j]) < 1e-12); /* what is equal here may be an ulp apart there */
		}
		ranks[i] = (double)rank / lag;
	}
	return tied;
}

static bool naive_head(const test_layer *t, int32_t head, int32_t sinks, int32_t lag, double *scores) {
	int32_t n = t->k.n_tokens, n_parts = (n - sinks) / lag;
	bool tied = false;
	for (int32_t i = 0; i < n; i++) {
		scores[i] = n >= sinks + 2 * lag || i < sinks ? 1.0 : (double)(i - sinks) / (n - sinks);
	}
	for (int32_t p = 0; p + 1 < n_parts && n >= sinks + 2 * lag; p++) {
		double value[16] = {0};
		naive_add(&t->k, head, sinks + p * lag, lag, value);
		naive_add(&t->v, head, sinks + p * lag, lag, value);
		tied = naive_ranks(value, lag, scores + sinks + p * lag) || tied;
	}
	return tied;
}

/* Compares; returns false for a case that hangs on rounding. */
static bool check_layer(const test_layer *t, const shape *s) {
	char policy[64];
	size_t n = layer_scores(&t->layer);
	double *expected = test_memory(n, sizeof *expected);
	float *scores = test_memory(n, sizeof *scores);
	bool tied = false;
	shape_policy(s, policy);
	ckv_ctx *ctx = make_ctx(policy);
	score(ctx, &t->layer, scores);
	for (int32_t h = 0; h < s->n_heads; h++) {
		tied = naive_head(t, h, s->sinks, s->lag, expected + h * s->n_tokens) || tied;
	}
	if (!tied) {
		char what[96];
		snprintf(what, sizeof what, "T %d, d %d and %d, %s", s->n_tokens, s->dim, s->dim_v, policy);
		check_scores(expected, scores, n, what);
	}
	free(expected);
	free(scores);
	ckv_ctx_free(ctx);
	return !tied;
}

static void scores_match_a_computation_in_double(void **state) {
	rng r = {1};
	int compared = 0;
	(void)state;
	for (int i = 0; i < 300; i++) {
		shape s = random_shape(&r);
		test_layer t = shape_layer(&r, &s);
		compared += check_layer(&t, &s);
		test_layer_free(&t);
	}
	assert_true(compared > 200);
}

static void storage_and_instruction_sets_do_not_show(void **state) {
	rng r = {2};
	(void)state;
	for (int i = 0; i < 10; i++) {
		char policy[64];
		shape s = random_shape(&r);
		test_layer t = shape_layer(&r, &s);
		shape_policy(&s, policy);
		check_scorer(policy, &t, &r);
		test_layer_free(&t);
	}
}

/* Sinks 1, then rising: the newest is worth most. One token more makes two partitions, and the rule is another. */
static void a_cache_of_less_than_two_partitions_scores_by_position(void **state) {
	enum { SINKS = 3, LAG = 8, MOST = SINKS + 2 * LAG };
	rng r = {3};
	float scores[MOST];
	(void)state;
	shape s = {.n_heads = 1, .dim = 6, .dim_v = 6, .n_tokens = MOST, .sinks = SINKS, .lag = LAG};
	test_layer t = shape_layer(&r, &s);
	ckv_ctx *ctx = make_ctx("lagkv:sinks=3,lag=8");
	for (int32_t n = 1; n < MOST; n++) {
		ckv_layer layer = layer_prefix(&t.layer, n);
		score(ctx, &layer, scores);
		for (int32_t i = 0; i < n; i++) {
			float expected = i < SINKS ? 1.0f : (float)(i - SINKS) / (float)(n - SINKS);
			CHECK(fabsf(scores[i] - expected) < 1e-6f, "T %d: token %d has %g", n, i, (double)scores[i]);
		}
	}
	score(ctx, &t.layer, scores);
	int32_t ones = 0;
	for (int32_t i = 0; i < MOST; i++) {
		ones += scores[i] == 1.0f;
	}
	assert_int_equal(ones, SINKS + LAG);
	ckv_ctx_free(ctx);
	test_layer_free(&t);
}

/* Each full partition but the last gives the ranks 0 .. lag-1, once each; the last, the rest and the sinks score 1. */
static void every_partition_gives_the_same_share(void **state) {
	rng r = {4};
	(void)state;
	for (int n = 0; n < 100; n++) {
		shape s = random_shape(&r);
		char policy[64];
		s.n_tokens = s.sinks + 2 * s.lag + rng_range(&r, 0, 40);
		test_layer t = shape_layer(&r, &s);
		float *scores = test_memory(layer_scores(&t.layer), sizeof *scores);
		shape_policy(&s, policy);
		ckv_ctx *ctx = make_ctx(policy);
		score(ctx, &t.layer, scores);
		for (int32_t h = 0; h < s.n_heads; h++) {
			const float *row = scores + h * s.n_tokens + s.sinks;
			int32_t ranked = ((s.n_tokens - s.sinks) / s.lag - 1) * s.lag;
			for (int32_t first = 0; first < ranked; first += s.lag) {
				int32_t seen = 0;
				for (int32_t i = 0; i < s.lag; i++) {
					seen |= 1 << (int32_t)lrintf(row[first + i] * (float)s.lag);
				}
				CHECK(seen == (1 << s.lag) - 1, "%s, T %d: partition at %d has ranks %x", policy, s.n_tokens, first, seen);
			}
			for (int32_t i = -s.sinks; i < s.n_tokens - s.sinks; i++) {
				CHECK(row[i] == 1.0f || (i >= 0 && i < ranked), "%s, T %d: token %d", policy, s.n_tokens, i + s.sinks);
			}
		}
		free(scores);
		ckv_ctx_free(ctx);
		test_layer_free(&t);
	}
}

/* A channel without range in the next partition would be divided by zero. */
static void a_constant_channel_counts_as_nothing(void **state) {
	rng r = {5};
	int compared = 0;
	(void)state;
	for (int i = 0; i < 50; i++) {
		shape s = random_shape(&r);
		s.n_tokens = s.sinks + 3 * s.lag + 2;
		test_layer t = shape_layer(&r, &s);
		for (int32_t j = 0; j < s.n_heads * s.n_tokens; j++) {
			t.k.value[j * s.dim] = 0.75f;
			t.v.value[j * s.dim_v] = 0.0f;
		}
		stored k = stored_make(&t.k, CKV_F32, HEADS_OUTSIDE, 0), v = stored_make(&t.v, CKV_F32, HEADS_OUTSIDE, 0);
		t.layer.k = k.view;
		t.layer.v = v.view;
		compared += check_layer(&t, &s);
		stored_free(&k);
		stored_free(&v);
		test_layer_free(&t);
	}
	assert_true(compared > 40);
}

/* Nothing varies at all: ranks go by position, and nothing is NaN. */
static void equal_rows_rank_by_position(void **state) {
	enum { T = 31, LAG = 5 };
	static const float row[3] = {1.0f, -2.0f, 0.5f};
	float scores[T];
	(void)state;
	ckv_layer layer;
	ckv_layer_init(&layer);
	layer.k = (ckv_view){.data = row, .n_heads = 1, .n_tokens = T, .head_dim = 3};
	layer.v = layer.k;
	ckv_ctx *ctx = make_ctx("lagkv:sinks=1,lag=5");
	score(ctx, &layer, scores);
	for (int32_t i = 0; i < T; i++) {
		float expected = i == 0 || i > T - 1 - LAG ? 1.0f : (float)((i - 1) % LAG) / LAG;
		CHECK(scores[i] == expected, "token %d has %g", i, (double)scores[i]);
	}
	ckv_ctx_free(ctx);
}

static void values_are_needed_and_must_fit(void **state) {
	rng r = {6};
	ckv_needs needs;
	(void)state;
	shape s = {.n_heads = 2, .dim = 6, .dim_v = 6, .n_tokens = 40, .sinks = 2, .lag = 8};
	test_layer t = shape_layer(&r, &s);
	ckv_ctx *ctx = make_ctx("lagkv:sinks=2,lag=8");
	ckv_layer layer = t.layer;
	layer.v.data = NULL;
	score_refused(ctx, &layer, 80, CKV_ERR_ARG, "no values");
	layer = t.layer;
	layer.v.n_tokens--;
	score_refused(ctx, &layer, 80, CKV_ERR_ARG, "fewer values than keys");
	layer = t.layer;
	layer.v.n_heads--;
	score_refused(ctx, &layer, 80, CKV_ERR_ARG, "fewer heads of values");
	assert_int_equal(ckv_params_needs(ckv_ctx_params(ctx), &needs), CKV_OK);
	assert_true(needs.flags == CKV_NEED_VALUES && needs.n_queries == 0);
	ckv_ctx_free(ctx);
	test_layer_free(&t);
}

/* In the partition scored and in the one that it is scaled by. */
static void values_that_are_not_finite_are_errors(void **state) {
	static const float bad[] = {NAN, INFINITY, -INFINITY};
	rng r = {7};
	(void)state;
	shape s = {.n_heads = 2, .dim = 6, .dim_v = 6, .n_tokens = 18, .sinks = 2, .lag = 8};
	ckv_ctx *ctx = make_ctx("lagkv:sinks=2,lag=8");
	for (size_t i = 0; i < 12; i++) {
		test_layer t = shape_layer(&r, &s);
		float *memory = (float *)(void *)(i % 2 ? t.stored_k.memory : t.stored_v.memory);
		memory[(18 + (i / 2 % 2 ? 4 : 17)) * 6] = bad[i / 4];
		score_refused(ctx, &t.layer, 36, CKV_ERR_NUMERIC, "not finite");
		test_layer_free(&t);
	}
	ckv_ctx_free(ctx);
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(scores_match_a_computation_in_double),
	    cmocka_unit_test(storage_and_instruction_sets_do_not_show),
	    cmocka_unit_test(a_cache_of_less_than_two_partitions_scores_by_position),
	    cmocka_unit_test(every_partition_gives_the_same_share),
	    cmocka_unit_test(a_constant_channel_counts_as_nothing),
	    cmocka_unit_test(equal_rows_rank_by_position),
	    cmocka_unit_test(values_are_needed_and_must_fit),
	    cmocka_unit_test(values_that_are_not_finite_are_errors),
	};
	return cmocka_run_group_tests_name("lagkv", tests, NULL, NULL);
}
