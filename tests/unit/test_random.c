/* The scorer "random": the baseline must be uniform, and the same wherever it is computed. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ckv_layer flat_layer(int32_t index, int32_t n_heads, int32_t n_tokens) {
	static const float row[4] = {1.0f, 2.0f, -1.0f, 0.5f};
	ckv_layer layer;
	ckv_layer_init(&layer);
	layer.index = index;
	layer.k = (ckv_view){.data = row, .n_heads = n_heads, .n_tokens = n_tokens, .head_dim = 4};
	return layer;
}

/* scores[n_heads][n_tokens] of one layer under one seed. */
static void random_scores(int32_t seed, int32_t layer, int32_t n_heads, int32_t n_tokens, float *scores) {
	char policy[64];
	ckv_layer l = flat_layer(layer, n_heads, n_tokens);
	snprintf(policy, sizeof policy, "random:seed=%d", seed);
	ckv_ctx *ctx = make_ctx(policy);
	score(ctx, &l, scores);
	ckv_ctx_free(ctx);
}

static void scores_are_the_same_every_time(void **state) {
	enum { G = 3, T = 50 };
	float first[G * T], again[G * T];
	(void)state;
	random_scores(7, 2, G, T, first);
	random_scores(7, 2, G, T, again);
	check_bits(first, again, G * T, "again");
	rng r = {1};
	test_layer t = test_layer_make(&r, G, G, 8, T, 1);
	check_scorer("random", &t, &r);
	test_layer_free(&t);
}

/* Of a longer cache, or of more heads, the common part is the same. */
static void a_score_depends_on_its_own_place_only(void **state) {
	enum { G = 3, T = 50 };
	float all[G * T], part[2 * (T - 7)];
	(void)state;
	random_scores(7, 2, G, T, all);
	random_scores(7, 2, 2, T - 7, part);
	for (size_t g = 0; g < 2; g++) {
		check_bits(all + g * T, part + g * (T - 7), T - 7, "a part");
	}
}

/* Correlation of two series of uniform numbers: 0 within a few times 1/sqrt(n). */
static double correlation(const float *a, const float *b, int32_t n) {
	double sum = 0.0;
	for (int32_t i = 0; i < n; i++) {
		sum += ((double)a[i] - 0.5) * ((double)b[i] - 0.5) * 12.0 / n;
	}
	return sum;
}

static void seed_layer_and_head_each_give_other_numbers(void **state) {
	enum { N = 5000 };
	static const struct {
		int32_t seed, layer, head;
	} places[] = {{0, 0, 0}, {0, 0, 1}, {0, 1, 0}, {1, 0, 0}, {1, 1, 1}, {INT32_MAX, 0, 0}, {0, 300, 0}, {0, 0, 7}};
	enum { PLACES = sizeof places / sizeof *places };
	float *series[PLACES], *scores = test_memory(8 * N, sizeof *scores);
	(void)state;
	for (size_t i = 0; i < PLACES; i++) {
		series[i] = test_memory(N, sizeof *series[i]);
		random_scores(places[i].seed, places[i].layer, 8, N, scores);
		memcpy(series[i], scores + places[i].head * N, N * sizeof *scores);
		for (size_t j = 0; j < i; j++) {
			double c = correlation(series[i], series[j], N);
			CHECK(fabs(c) < 0.08, "places %zu and %zu: %g", i, j, c);
		}
		double shifted = correlation(series[i], series[i] + 1, N - 1);
		CHECK(fabs(shifted) < 0.08, "place %zu and its own next: %g", i, shifted);
	}
	for (size_t i = 0; i < PLACES; i++) {
		free(series[i]);
	}
	free(scores);
}

/* 64 buckets: chi square has a mean of 63 and a deviation of 11. */
static void scores_are_uniform_from_zero_to_one(void **state) {
	enum { N = 64000, BUCKETS = 64 };
	float *scores = test_memory(N, sizeof *scores);
	int32_t bucket[BUCKETS] = {0};
	double chi = 0.0;
	(void)state;
	random_scores(3, 1, 1, N, scores);
	for (int32_t i = 0; i < N; i++) {
		CHECK(scores[i] >= 0.0f && scores[i] < 1.0f, "token %d: %g", i, (double)scores[i]);
		bucket[(int32_t)(scores[i] * BUCKETS)]++;
	}
	for (int32_t i = 0; i < BUCKETS; i++) {
		double off = bucket[i] - (double)N / BUCKETS;
		chi += off * off / ((double)N / BUCKETS);
	}
	CHECK(chi > 25.0 && chi < 120.0, "chi square %g", chi);
	free(scores);
}

static void exactly_the_budget_is_kept_of_any_tokens(void **state) {
	enum { G = 4, T = 200 };
	(void)state;
	ckv_layer layer = flat_layer(0, G, T);
	ckv_ctx *ctx = make_ctx("random:window=0,sinks=0");
	selected s = select_layer(ctx, &layer, ckv_keep_tokens(50));
	for (int32_t h = 0; h < G; h++) {
		int32_t in_first_half = 0;
		for (int32_t t = 0; t < T / 2; t++) {
			in_first_half += s.mask[h * T + t];
		}
		CHECK(n_kept(&s, h) == 50 && in_first_half > 10 && in_first_half < 40, "head %d: %d", h, in_first_half);
		CHECK(h == 0 || memcmp(s.mask, s.mask + h * T, T) != 0, "head %d keeps the same as the first", h);
	}
	selected_free(&s);
	ckv_ctx_free(ctx);
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(scores_are_the_same_every_time),
	    cmocka_unit_test(a_score_depends_on_its_own_place_only),
	    cmocka_unit_test(seed_layer_and_head_each_give_other_numbers),
	    cmocka_unit_test(scores_are_uniform_from_zero_to_one),
	    cmocka_unit_test(exactly_the_budget_is_kept_of_any_tokens),
	};
	return cmocka_run_group_tests_name("random", tests, NULL, NULL);
}
