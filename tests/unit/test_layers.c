/* ckv_plan: budgets by layer, against the published formulas and plain versions of them; ckv_layer_source. */
#include "support.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 40 };

typedef struct planned {
	int32_t n_layers, tokens[MOST];
	int fell_back;
} planned;

static planned plan(const char *policy, ckv_budget budget, int32_t n_tokens, int32_t n_layers, const float *similarity) {
	planned p = {.n_layers = n_layers, .fell_back = 7};
	ckv_budget budgets[MOST];
	ckv_ctx *ctx = make_ctx(policy);
	paint(budgets, sizeof budgets);
	ckv_status status = ckv_plan(ctx, budget, n_tokens, n_layers, similarity, budgets, &p.fell_back);
	CHECK(status == CKV_OK, "%s: %s", policy, ckv_ctx_message(ctx));
	for (int32_t i = 0; i < n_layers; i++) {
		status = ckv_budget_resolve(budgets[i], n_tokens, &p.tokens[i]);
		CHECK(status == CKV_OK && p.tokens[i] >= 1, "%s: layer %d gets %g", policy, i, budgets[i].value);
	}
	CHECK(is_painted(budgets + n_layers, sizeof budgets - (size_t)n_layers * sizeof *budgets), "%s: too many", policy);
	CHECK(p.fell_back == 0 || p.fell_back == 1, "%s: fell_back is %d", policy, p.fell_back);
	ckv_ctx_free(ctx);
	return p;
}

/* The layers together keep what n_layers budgets are, none more than there is. */
static void check_total(const planned *p, int32_t keep, int32_t n_tokens, const char *policy) {
	int64_t sum = 0;
	for (int32_t i = 0; i < p->n_layers; i++) {
		CHECK(p->tokens[i] <= n_tokens, "%s, keep %d: layer %d of %d gets %d of %d", policy, keep, i, p->n_layers,
		      p->tokens[i], n_tokens);
		sum += p->tokens[i];
	}
	CHECK(sum == (int64_t)keep * p->n_layers, "%s, T %d, keep %d, %d layers: %lld in all", policy, n_tokens, keep,
	      p->n_layers, (long long)sum);
}

/* --------------------------------------------------------------- uniform */

static void uniform_passes_the_budget_on(void **state) {
	const ckv_budget budgets[] = {ckv_keep_tokens(37), ckv_keep_percent(12.5), ckv_remove_fraction(0.9)};
	static const char *const policies[] = {"chunkkv", "full", "chunkkv-reuse", "tova:mode=reference"};
	(void)state;
	for (size_t i = 0; i < 12; i++) {
		ckv_budget out[5];
		int fell_back = 7;
		ckv_ctx *ctx = make_ctx(policies[i / 3]);
		assert_int_equal(ckv_plan(ctx, budgets[i % 3], 1000, 5, NULL, out, &fell_back), CKV_OK);
		for (size_t l = 0; l < 5; l++) {
			assert_true(out[l].kind == budgets[i % 3].kind && out[l].value == budgets[i % 3].value);
		}
		assert_int_equal(fell_back, 0);
		assert_int_equal(ckv_plan(ctx, budgets[i % 3], 1000, 5, NULL, out, NULL), CKV_OK);
		ckv_ctx_free(ctx);
	}
}

/* There is nothing to share when everything is kept, and nothing must be known of the layers. */
static void a_budget_of_all_is_passed_on_by_every_rule(void **state) {
	static const char *const policies[] = {"pyramidkv", "squeezeattention", "squeezeattention:mode=reference"};
	(void)state;
	for (size_t i = 0; i < 9; i++) {
		ckv_budget budget = i < 3 ? ckv_keep_tokens(200) : i < 6 ? ckv_keep_tokens(500) : ckv_keep_percent(100);
		planned p = plan(policies[i % 3], budget, 200, 4, NULL);
		assert_int_equal(p.fell_back, 0);
		for (int32_t l = 0; l < 4; l++) {
			CHECK(p.tokens[l] >= 200, "%s: %d", policies[i % 3], p.tokens[l]);
		}
	}
}

/* --------------------------------------------------------------- pyramid */

/* As the published code and its order of operations has it: the line's ends, or false where there is none. */
static bool naive_line(double keep, int32_t n_tokens, int32_t window, double beta, double *high, double *low) {
	double capacity = window + keep;
	*low = (capacity - window) / beta;
	*high = (capacity - window) * 2.0 - *low;
	if (*high >= n_tokens - window) {
		*high = n_tokens - window;
		*low = (capacity - window) * 2.0 - *high;
	}
	return n_tokens >= *high && *high >= *low && *low >= window;
}

static void pyramid_policy(char policy[96], int32_t window, double beta, bool reference, int32_t reuse) {
	snprintf(policy, 96, "pyramidkv:window=%d,beta=%g%s,reuse=%d", window, beta, reference ? ",mode=reference" : "", reuse);
}

/* nearbyint rounds half to even, as Python does. */
static void reference_mode_is_the_published_pyramid(void **state) {
	rng r = {1};
	int slopes = 0;
	(void)state;
	for (int n = 0; n < 3000; n++) {
		char policy[96];
		int32_t window = rng_range(&r, 1, 32), n_tokens = rng_range(&r, 2, 3000), n_layers = rng_range(&r, 1, MOST);
		double beta = rng_range(&r, 2, 200) / 2.0, ratio = rng_range(&r, 1, 99) * 0.01, high, low;
		pyramid_policy(policy, window, beta, true, 1);
		planned p = plan(policy, ckv_remove_fraction(ratio), n_tokens, n_layers, NULL);
		double keep = n_tokens * (1.0 - ratio);
		bool sloped = naive_line(keep, n_tokens, window, beta, &high, &low);
		double step = n_layers > 1 ? (high - low) / (n_layers - 1) : 0.0;
		for (int32_t i = 0; i < n_layers; i++) {
			double expected = sloped ? nearbyint(high - i * step) : fmax(1.0, nearbyint(keep));
			CHECK(p.tokens[i] == (int32_t)expected, "%s, T %d, r %g: layer %d of %d gets %d instead of %g", policy, n_tokens,
			      ratio, i, n_layers, p.tokens[i], expected);
		}
		CHECK(p.fell_back == !sloped, "%s, T %d, r %g", policy, n_tokens, ratio);
		slopes += sloped;
	}
	assert_true(slopes > 300 && slopes < 2700);
}

/* In exact mode each layer is within one token of the line, and the sum is what the budget says. */
static void exact_mode_keeps_the_total_of_a_pyramid(void **state) {
	rng r = {2};
	int slopes = 0;
	(void)state;
	for (int n = 0; n < 3000; n++) {
		char policy[96];
		int32_t window = rng_range(&r, 1, 32), n_tokens = rng_range(&r, 2, 3000), n_layers = rng_range(&r, 2, MOST);
		int32_t keep = rng_range(&r, 1, n_tokens - 1);
		double beta = rng_range(&r, 2, 200) / 2.0, high, low;
		pyramid_policy(policy, window, beta, false, 1);
		planned p = plan(policy, ckv_keep_tokens(keep), n_tokens, n_layers, NULL);
		bool sloped = naive_line(keep, n_tokens, window, beta, &high, &low);
		for (int32_t i = 0; i < n_layers; i++) {
			double line = sloped ? high - i * (high - low) / (n_layers - 1) : keep;
			CHECK(fabs(p.tokens[i] - line) <= 1.0, "%s, T %d, keep %d: layer %d gets %d instead of %g", policy, n_tokens,
			      keep, i, p.tokens[i], line);
		}
		check_total(&p, keep, n_tokens, policy);
		CHECK(p.fell_back == !sloped, "%s, T %d, keep %d", policy, n_tokens, keep);
		slopes += sloped;
	}
	assert_true(slopes > 300 && slopes < 2700);
}

/* One layer has no slope to stand on: its mean is the budget. */
static void one_layer_alone_gets_the_budget(void **state) {
	(void)state;
	for (int32_t keep = 1; keep < 1000; keep += 37) {
		planned p = plan("pyramidkv", ckv_keep_tokens(keep), 1000, 1, NULL);
		CHECK(p.tokens[0] == keep, "%d instead of %d", p.tokens[0], keep);
	}
}

/* Without a window the last layer's share may be less than a token. */
static void no_layer_of_a_pyramid_costs_more_than_the_total(void **state) {
	(void)state;
	for (int32_t keep = 1; keep < 100; keep++) {
		for (int32_t n_layers = 2; n_layers <= 30; n_layers += 7) {
			planned p = plan("tova:layers=pyramid", ckv_keep_tokens(keep), 100, n_layers, NULL);
			check_total(&p, keep, 100, "tova:layers=pyramid");
		}
	}
}

static void a_percentage_is_shared_as_its_tokens(void **state) {
	(void)state;
	planned a = plan("pyramidkv", ckv_keep_percent(40), 1234, 12, NULL);
	planned b = plan("pyramidkv", ckv_keep_tokens(494), 1234, 12, NULL);
	assert_memory_equal(a.tokens, b.tokens, sizeof a.tokens);
	assert_true(a.fell_back == 0 && a.tokens[0] > 800 && a.tokens[11] < 100);
}

/* --------------------------------------------------------------- squeeze */

/* group[n]: one-dimensional k-means from the lowest, the mean and the highest value; distances to the lower centre win. */
static void naive_groups(const float *x, int32_t n, int32_t *group) {
	double centre[3] = {INFINITY, 0.0, -INFINITY}, before[3] = {0};
	for (int32_t i = 0; i < n; i++) {
		centre[0] = fmin(centre[0], (double)x[i]);
		centre[1] += (double)x[i] / n;
		centre[2] = fmax(centre[2], (double)x[i]);
	}
	while (memcmp(before, centre, sizeof centre) != 0) {
		memcpy(before, centre, sizeof centre);
		for (int k = 0; k < 3; k++) {
			double sum = 0.0;
			int32_t members = 0;
			for (int32_t i = 0; i < n; i++) {
				double own = fabs((double)x[i] - before[k]);
				bool nearest = true;
				for (int other = 0; other < 3; other++) {
					double off = fabs((double)x[i] - before[other]);
					nearest = nearest && (other < k ? own < off : own <= off);
				}
				group[i] = nearest ? k : group[i];
				sum += nearest ? (double)x[i] : 0.0;
				members += nearest;
			}
			centre[k] = members ? sum / members : before[k];
		}
	}
}

/* What the layers of the most similar group keep and what the others do, before rounding; returns how many the former are.
 */
static int32_t naive_squeeze(const int32_t *group, int32_t n, int32_t n_tokens, int32_t keep, double share, double *low,
                             double *high) {
	int32_t n_low = 0;
	for (int32_t i = 0; i < n; i++) {
		n_low += group[i] == 2;
	}
	*low = fmax(1.0, nearbyint(share * keep));
	*high = ((double)keep * n - *low * n_low) / (n - n_low);
	if (*high > n_tokens) {
		*high = n_tokens;
		*low = ((double)keep * n - *high * (n - n_low)) / n_low;
	}
	return n_low;
}

static void random_similarity(rng *r, float *x, int32_t n) {
	for (int32_t i = 0; i < n; i++) {
		x[i] = rng_chance(r, 3) ? 0.9f + 0.1f * rng_float(r) : rng_chance(r, 2) ? 0.5f : rng_float(r);
	}
}

static void check_squeeze(rng *r, int32_t n_tokens, int32_t keep, int32_t n_layers) {
	char policy[64];
	float similarity[MOST];
	int32_t group[MOST];
	double low, high, share = rng_range(r, 1, 100) * 0.01;
	random_similarity(r, similarity, n_layers);
	snprintf(policy, sizeof policy, "squeezeattention:share=%.2f", share);
	planned p = plan(policy, ckv_keep_tokens(keep), n_tokens, n_layers, similarity);
	naive_groups(similarity, n_layers, group);
	naive_squeeze(group, n_layers, n_tokens, keep, share, &low, &high);
	for (int32_t i = 0; i < n_layers; i++) {
		double expected = group[i] == 2 ? low : high;
		CHECK(fabs(p.tokens[i] - expected) <= 1.0, "%s, T %d, keep %d: layer %d of %d gets %d instead of %g", policy,
		      n_tokens, keep, i, n_layers, p.tokens[i], expected);
	}
	check_total(&p, keep, n_tokens, policy);
	assert_int_equal(p.fell_back, 0);
}

static void squeeze_takes_from_the_most_similar_layers(void **state) {
	rng r = {3};
	(void)state;
	for (int n = 0; n < 3000; n++) {
		int32_t n_tokens = rng_range(&r, 2, 2000);
		check_squeeze(&r, n_tokens, rng_range(&r, 1, n_tokens - 1), rng_range(&r, 1, MOST));
	}
}

static void the_smallest_budgets_are_squeezed_exactly(void **state) {
	rng r = {4};
	(void)state;
	for (int n = 0; n < 2000; n++) {
		int32_t n_tokens = rng_range(&r, 2, 12);
		check_squeeze(&r, n_tokens, rng_range(&r, 1, n_tokens - 1), rng_range(&r, 1, 12));
	}
}

/* Two alike, two not: the numbers of the paper's formula. */
static void a_plain_case_gives_plain_numbers(void **state) {
	static const float similarity[] = {0.1f, 0.95f, 0.5f, 0.96f};
	static const int32_t expected[] = {165, 35, 165, 35};
	(void)state;
	planned p = plan("squeezeattention", ckv_keep_tokens(100), 1000, 4, similarity);
	assert_memory_equal(p.tokens, expected, sizeof expected);
	p = plan("squeezeattention", ckv_keep_tokens(100), 150, 4, similarity); /* no layer has more than there is */
	assert_int_equal(p.tokens[0], 150);
	assert_int_equal(p.tokens[1], 50);
	static const float same[] = {0.3f, 0.3f, 0.3f, 0.3f}; /* no layer stands out */
	p = plan("squeezeattention", ckv_keep_tokens(100), 1000, 4, same);
	for (int32_t i = 0; i < 4; i++) {
		assert_int_equal(p.tokens[i], 100);
	}
}

static void squeeze_needs_similarities(void **state) {
	static const float bad[] = {NAN, INFINITY, -INFINITY};
	float similarity[3] = {0.1f, 0.5f, 0.9f};
	ckv_budget budgets[3];
	ckv_needs needs;
	int fell_back = 7;
	(void)state;
	ckv_ctx *ctx = make_ctx("squeezeattention");
	paint(budgets, sizeof budgets);
	assert_int_equal(ckv_params_needs(ckv_ctx_params(ctx), &needs), CKV_OK);
	assert_int_equal(needs.flags, CKV_NEED_QUERIES | CKV_NEED_SIMILARITY);
	assert_int_equal(ckv_plan(ctx, ckv_keep_tokens(9), 50, 3, NULL, budgets, &fell_back), CKV_ERR_ARG);
	for (size_t i = 0; i < 3; i++) {
		similarity[i] = bad[i];
		assert_int_equal(ckv_plan(ctx, ckv_keep_tokens(9), 50, 3, similarity, budgets, &fell_back), CKV_ERR_NUMERIC);
		assert_true(ckv_ctx_message(ctx)[0]);
		similarity[i] = 0.5f;
	}
	assert_true(is_painted(budgets, sizeof budgets));
	assert_int_equal(fell_back, 7);
	ckv_ctx_free(ctx);
}

/* ----------------------------------------------------------------- reuse */

/* The mean of what the rule gives each of a group, rounded. */
static void layers_that_share_a_selection_get_the_mean_of_theirs(void **state) {
	rng r = {5};
	(void)state;
	for (int n = 0; n < 500; n++) {
		char policy[96];
		int32_t n_layers = rng_range(&r, 1, MOST), reuse = rng_range(&r, 1, 5), keep = rng_range(&r, 100, 700);
		pyramid_policy(policy, 4, 20, n % 2, 1);
		planned alone = plan(policy, ckv_keep_tokens(keep), 1500, n_layers, NULL);
		pyramid_policy(policy, 4, 20, n % 2, reuse);
		planned shared = plan(policy, ckv_keep_tokens(keep), 1500, n_layers, NULL);
		for (int32_t i = 0; i < n_layers; i++) {
			int32_t first = i - i % reuse, end = first + reuse < n_layers ? first + reuse : n_layers;
			double mean = 0.0;
			for (int32_t l = first; l < end; l++) {
				mean += (double)alone.tokens[l] / (end - first);
			}
			CHECK(shared.tokens[i] == shared.tokens[first] && fabs(shared.tokens[i] - mean) <= 0.5 + 1e-9,
			      "%s, keep %d: layer %d of %d gets %d, the mean is %g", policy, keep, i, n_layers, shared.tokens[i], mean);
		}
	}
}

static void the_source_is_the_first_of_the_group(void **state) {
	ckv_params p;
	(void)state;
	ckv_params_default(&p);
	assert_int_equal(p.reuse, 1);
	for (int32_t i = 0; i < 40; i++) {
		p.reuse = 1;
		assert_int_equal(ckv_layer_source(&p, i), i);
		assert_int_equal(ckv_layer_source(NULL, i), i);
		p.reuse = 2;
		assert_int_equal(ckv_layer_source(&p, i), i / 2 * 2);
		p.reuse = 7;
		assert_int_equal(ckv_layer_source(&p, i), i / 7 * 7);
		p.reuse = 1024;
		assert_int_equal(ckv_layer_source(&p, i), 0);
	}
	assert_int_equal(ckv_policy_parse("chunkkv-reuse", &p, NULL), CKV_OK);
	assert_int_equal(p.reuse, 2);
}

/* ---------------------------------------------------------------- errors */

static void bad_arguments_are_refused(void **state) {
	ckv_budget budgets[3];
	int fell_back = 7;
	(void)state;
	ckv_ctx *ctx = make_ctx("pyramidkv");
	paint(budgets, sizeof budgets);
	const ckv_budget good = ckv_keep_tokens(9);
	assert_int_equal(ckv_plan(NULL, good, 50, 3, NULL, budgets, &fell_back), CKV_ERR_ARG);
	assert_int_equal(ckv_plan(ctx, good, 50, 3, NULL, NULL, &fell_back), CKV_ERR_ARG);
	assert_int_equal(ckv_plan(ctx, good, 50, 0, NULL, budgets, &fell_back), CKV_ERR_ARG);
	assert_int_equal(ckv_plan(ctx, good, 50, -3, NULL, budgets, &fell_back), CKV_ERR_ARG);
	assert_int_equal(ckv_plan(ctx, good, 0, 3, NULL, budgets, &fell_back), CKV_ERR_ARG);
	assert_int_equal(ckv_plan(ctx, good, -1, 3, NULL, budgets, &fell_back), CKV_ERR_ARG);
	assert_int_equal(ckv_plan(ctx, ckv_keep_tokens(0), 50, 3, NULL, budgets, &fell_back), CKV_ERR_ARG);
	assert_int_equal(ckv_plan(ctx, ckv_keep_percent(101), 50, 3, NULL, budgets, &fell_back), CKV_ERR_ARG);
	assert_int_equal(ckv_plan(ctx, ckv_remove_fraction(NAN), 50, 3, NULL, budgets, &fell_back), CKV_ERR_ARG);
	assert_true(ckv_ctx_message(ctx)[0]);
	assert_true(is_painted(budgets, sizeof budgets));
	assert_int_equal(fell_back, 7);
	ckv_ctx_free(ctx);
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(uniform_passes_the_budget_on),
	    cmocka_unit_test(a_budget_of_all_is_passed_on_by_every_rule),
	    cmocka_unit_test(reference_mode_is_the_published_pyramid),
	    cmocka_unit_test(exact_mode_keeps_the_total_of_a_pyramid),
	    cmocka_unit_test(one_layer_alone_gets_the_budget),
	    cmocka_unit_test(no_layer_of_a_pyramid_costs_more_than_the_total),
	    cmocka_unit_test(a_percentage_is_shared_as_its_tokens),
	    cmocka_unit_test(squeeze_takes_from_the_most_similar_layers),
	    cmocka_unit_test(the_smallest_budgets_are_squeezed_exactly),
	    cmocka_unit_test(a_plain_case_gives_plain_numbers),
	    cmocka_unit_test(squeeze_needs_similarities),
	    cmocka_unit_test(layers_that_share_a_selection_get_the_mean_of_theirs),
	    cmocka_unit_test(the_source_is_the_first_of_the_group),
	    cmocka_unit_test(bad_arguments_are_refused),
	};
	return cmocka_run_group_tests_name("layers", tests, NULL, NULL);
}
