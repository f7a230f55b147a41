/* Budgets: what parses, and how many tokens a budget keeps, against exact integer arithmetic. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static ckv_budget parsed(const char *text) {
	ckv_budget budget;
	ckv_error error;
	CHECK(ckv_budget_parse(text, &budget, &error) == CKV_OK, "%s: %s", text, error.message);
	CHECK(error.status == CKV_OK && error.message[0] == '\0', "%s", text);
	return budget;
}

static int32_t resolved(ckv_budget budget, int32_t n_tokens) {
	int32_t n_keep = -1;
	CHECK(ckv_budget_resolve(budget, n_tokens, &n_keep) == CKV_OK, "%g of %d", budget.value, n_tokens);
	return n_keep;
}

static int64_t at_least_one(int64_t n) { return n < 1 ? 1 : n; }

static void whole_percents_round_half_up(void **state) {
	(void)state;
	for (int32_t percent = 1; percent <= 100; percent++) {
		for (int32_t n = 1; n <= 5000; n++) {
			int64_t exact = at_least_one(((int64_t)n * percent * 2 + 100) / 200);
			CHECK(resolved(ckv_keep_percent(percent), n) == exact, "%d%% of %d", percent, n);
		}
	}
	assert_int_equal(resolved(ckv_keep_percent(50), 5), 3);
	assert_int_equal(resolved(ckv_keep_percent(10), 14), 1);
	assert_int_equal(resolved(ckv_keep_percent(10), 15), 2);
	assert_int_equal(resolved(ckv_keep_percent(100), INT32_MAX), INT32_MAX);
	assert_int_equal(resolved(ckv_keep_percent(50), INT32_MAX), 1073741824);
}

/* Eighths are exact in binary, so halves must round up here too. */
static void eighths_of_a_percent_round_half_up(void **state) {
	rng r = {1};
	(void)state;
	for (int i = 0; i < 300000; i++) {
		int32_t eighths = rng_range(&r, 1, 800), n = rng_range(&r, 1, rng_chance(&r, 2) ? 3000 : 100000000);
		int64_t exact = at_least_one(((int64_t)n * eighths * 2 + 800) / 1600);
		CHECK(resolved(ckv_keep_percent(eighths / 8.0), n) == exact, "%d/8%% of %d", eighths, n);
	}
}

/* Tenths are not exact: only a true half may go either way. */
static void tenths_of_a_percent_round_to_the_nearest(void **state) {
	rng r = {2};
	(void)state;
	for (int i = 0; i < 300000; i++) {
		char text[32];
		int32_t tenths = rng_range(&r, 1, 1000), n = rng_range(&r, 1, 200000);
		int64_t product = (int64_t)n * tenths, exact = at_least_one((product * 2 + 1000) / 2000);
		snprintf(text, sizeof text, "%d.%d%%", tenths / 10, tenths % 10);
		int32_t n_keep = resolved(parsed(text), n);
		CHECK(n_keep == exact || (product % 1000 == 500 && n_keep == exact - 1), "%s of %d: %d", text, n, n_keep);
	}
}

static void token_counts_are_kept_as_they_are(void **state) {
	rng r = {3};
	(void)state;
	for (int i = 0; i < 10000; i++) {
		int32_t n = rng_range(&r, 1, INT32_MAX), tokens = rng_range(&r, 1, INT32_MAX);
		CHECK(resolved(ckv_keep_tokens(n), tokens) == n, "%d of %d", n, tokens);
	}
	assert_int_equal(resolved(ckv_keep_tokens(512), 100), 512); /* may exceed the cache */
}

/* int(T * (1 - r)) as double arithmetic has it, which the published code counts by. */
static void removed_fractions_truncate_as_published(void **state) {
	(void)state;
	for (int32_t hundredths = 0; hundredths < 100; hundredths++) {
		for (int32_t n = 1; n <= 3000; n++) {
			volatile double kept = 1.0 - hundredths / 100.0;
			int64_t expected = at_least_one((int64_t)((double)n * kept));
			CHECK(resolved(ckv_remove_fraction(hundredths / 100.0), n) == expected, "%d%% off %d", hundredths, n);
		}
	}
	assert_int_equal(resolved(ckv_remove_fraction(0.9), 1000), 99);
	assert_int_equal(resolved(ckv_remove_fraction(0.5), 7), 3);
	assert_int_equal(resolved(ckv_remove_fraction(0.0), 7), 7);
}

static void at_least_one_token_is_kept(void **state) {
	(void)state;
	assert_int_equal(resolved(ckv_keep_percent(0.0001), 10), 1);
	assert_int_equal(resolved(ckv_keep_percent(1), 1), 1);
	assert_int_equal(resolved(ckv_keep_percent(1e-300), INT32_MAX), 1);
	assert_int_equal(resolved(ckv_remove_fraction(0.999), 10), 1);
	assert_int_equal(resolved(ckv_remove_fraction(0.9), 1), 1);
}

static void values_out_of_range_are_arguments_refused(void **state) {
	const ckv_budget bad[] = {
	    {CKV_BUDGET_TOKENS, 0},      {CKV_BUDGET_TOKENS, -1},     {CKV_BUDGET_TOKENS, 2147483648.0},
	    {CKV_BUDGET_TOKENS, NAN},    {CKV_BUDGET_TOKENS, 0.5},    {CKV_BUDGET_PERCENT, 0},
	    {CKV_BUDGET_PERCENT, -10},   {CKV_BUDGET_PERCENT, 100.5}, {CKV_BUDGET_PERCENT, NAN},
	    {CKV_BUDGET_PERCENT, 1e300}, {CKV_BUDGET_REMOVE, 1},      {CKV_BUDGET_REMOVE, -0.1},
	    {CKV_BUDGET_REMOVE, NAN},    {CKV_BUDGET_REMOVE, 2},      {CKV_BUDGET_TOKENS, INFINITY},
	    {(ckv_budget_kind)3, 1},
	};
	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		int32_t n_keep = -7;
		CHECK(ckv_budget_resolve(bad[i], 100, &n_keep) == CKV_ERR_ARG, "%d, %g", (int)bad[i].kind, bad[i].value);
		CHECK(n_keep == -7, "%d, %g", (int)bad[i].kind, bad[i].value);
	}
	int32_t n_keep = -7;
	assert_int_equal(ckv_budget_resolve(ckv_keep_percent(10), 0, &n_keep), CKV_ERR_ARG);
	assert_int_equal(ckv_budget_resolve(ckv_keep_percent(10), -5, &n_keep), CKV_ERR_ARG);
	assert_int_equal(ckv_budget_resolve(ckv_keep_percent(10), 5, NULL), CKV_ERR_ARG);
	assert_int_equal(n_keep, -7);
}

static void shares_and_counts_parse(void **state) {
	static const struct {
		const char *text;
		ckv_budget budget;
	} good[] = {
	    {"10%", {CKV_BUDGET_PERCENT, 10}},     {"12.5%", {CKV_BUDGET_PERCENT, 12.5}},
	    {"100%", {CKV_BUDGET_PERCENT, 100}},   {"0.5%", {CKV_BUDGET_PERCENT, 0.5}},
	    {"100.0%", {CKV_BUDGET_PERCENT, 100}}, {"1", {CKV_BUDGET_TOKENS, 1}},
	    {"512", {CKV_BUDGET_TOKENS, 512}},     {"2147483647", {CKV_BUDGET_TOKENS, 2147483647}},
	    {"1%", {CKV_BUDGET_PERCENT, 1}},       {"0.01%", {CKV_BUDGET_PERCENT, .01}},
	};
	(void)state;
	for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
		ckv_budget budget = parsed(good[i].text);
		CHECK(budget.kind == good[i].budget.kind, "%s", good[i].text);
		CHECK(budget.value == good[i].budget.value, "%s: %.17g", good[i].text, budget.value);
	}
}

static void everything_else_is_refused_and_says_what_is_meant(void **state) {
	static const char *const bad[] = {
	    "0.1",    "0",     "110%", "",     "-5",         "10%%", "1e3",    " 10%",
	    "nan%",   "0%",    "12.5", "%",    "5 %",        "5% ",  "+5",     "1,5%",
	    "0x10",   "0x10%", "inf",  "nan",  "2147483648", "1.0",  ".5%",    "-1%",
	    "1..5%",  "10%5",  "ten",  "1e1%", "0.0",        "0.0%", "100.1%", "99999999999999999999",
	    "10 000", "1.",    "10\n", "1%2%", "10%\n",
	};
	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		ckv_budget budget;
		ckv_error error;
		paint(&budget, sizeof budget);
		CHECK(ckv_budget_parse(bad[i], &budget, &error) == CKV_ERR_POLICY, "'%s'", bad[i]);
		CHECK(is_painted(&budget, sizeof budget), "'%s'", bad[i]);
		CHECK(error.status == CKV_ERR_POLICY && strchr(error.message, '%'), "'%s': %s", bad[i], error.message);
	}
}

static void a_number_of_any_length_is_read_without_harm(void **state) {
	char text[1001];
	ckv_budget budget;
	(void)state;
	memset(text, '9', sizeof text - 1);
	text[sizeof text - 1] = '\0';
	assert_int_equal(ckv_budget_parse(text, &budget, NULL), CKV_ERR_POLICY);
	text[sizeof text - 2] = '%';
	assert_int_equal(ckv_budget_parse(text, &budget, NULL), CKV_ERR_POLICY);
}

static void missing_arguments_are_told_apart(void **state) {
	(void)state;
	ckv_budget budget;
	ckv_error error;
	assert_int_equal(ckv_budget_parse(NULL, &budget, &error), CKV_ERR_ARG);
	assert_int_equal(error.status, CKV_ERR_ARG);
	assert_int_equal(ckv_budget_parse("10%", NULL, &error), CKV_ERR_ARG);
	assert_int_equal(ckv_budget_parse("10%", &budget, NULL), CKV_OK);
	assert_int_equal(ckv_budget_parse("x", &budget, NULL), CKV_ERR_POLICY);
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(whole_percents_round_half_up),
	    cmocka_unit_test(eighths_of_a_percent_round_half_up),
	    cmocka_unit_test(tenths_of_a_percent_round_to_the_nearest),
	    cmocka_unit_test(token_counts_are_kept_as_they_are),
	    cmocka_unit_test(removed_fractions_truncate_as_published),
	    cmocka_unit_test(at_least_one_token_is_kept),
	    cmocka_unit_test(values_out_of_range_are_arguments_refused),
	    cmocka_unit_test(shares_and_counts_parse),
	    cmocka_unit_test(everything_else_is_refused_and_says_what_is_meant),
	    cmocka_unit_test(a_number_of_any_length_is_read_without_harm),
	    cmocka_unit_test(missing_arguments_are_told_apart),
	};
	return cmocka_run_group_tests_name("budget", tests, NULL, NULL);
}
