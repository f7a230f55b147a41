/* Figures against what a hand works out, intervals against what an interval must do. */
#include "bootstrap.h"
#include "made.h"
#include "random.h"
#include "summary.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void add(record_list *list, record r) { assert_true(record_list_add(list, &r)); }

static void assert_near(double got, double expected) {
	if (!(fabs(got - expected) < 1e-6)) {
		fail_msg("%.9g is not %.9g", got, expected);
	}
}

static record_list empty(void) { return (record_list){NULL, 0, 0, NULL, 0}; }
static selection of(const char *policy) { return (selection){NULL, "f16", policy, "10%", 0, -1.0}; }

/* n examples of one policy, KL from `low` in steps. */
static void add_many(record_list *list, const char *policy, int n, double low, double step) {
	for (int i = 0; i < n; i++) {
		char example[16];
		snprintf(example, sizeof example, "e%d", i);
		add(list, made_record(example, "f16", policy, "10%", (float)(low + step * i), 4));
	}
}

static void means_are_of_examples_and_shares_of_positions(void **state) {
	record_list list = empty();
	selection which = of("h2o");
	(void)state;
	add(&list, made_record("a", "f16", "h2o", "10%", 0.5F, 1));
	record b = made_record("b", "f16", "h2o", "10%", 0.25F, 4);
	b.exact = true;
	b.score = 0.5;
	add(&list, b);
	add(&list, made_record("a", "f16", "tova", "10%", 9.0F, 1));
	summary s = summarise(&list, &which);
	assert_int_equal(s.n, 2);
	assert_near(s.kl.value, (0.5 + 0.25) / 2);
	assert_near(s.same.value, 2.0 / 5);
	assert_near(s.exact.value, 0.5);
	assert_near(s.score.value, 0.5); /* of the one that is judged */
	assert_true(isnan(s.score.low) && isnan(s.nll.value));
	assert_near(s.share, 0.1);
	assert_near(s.share_own, 0.05);
	assert_near(s.n_cells, 5.0);
	assert_near(s.seconds, 1.5);
	assert_true(s.attention_kept == -1.0);
	record_list_free(&list);
}

static void a_position_without_a_number_is_left_out(void **state) {
	record r = made_record("a", "f16", "h2o", "10%", 0.5F, 4), none = made_record("b", "f16", "h2o", "10%", 0.0F, 0);
	(void)state;
	r.kl[2] = NAN;
	assert_near(record_kl(&r), 0.5);
	assert_true(isnan(record_kl(&none)));
	record_free(&r);
	record_free(&none);
}

static void an_interval_holds_its_value_and_is_the_same_each_time(void **state) {
	record_list list = empty();
	selection which = of("h2o");
	(void)state;
	add_many(&list, "h2o", 20, 0.1, 0.05);
	summary s = summarise(&list, &which), again = summarise(&list, &which);
	assert_true(s.kl.low < s.kl.value && s.kl.value < s.kl.high);
	assert_true(s.kl.low > 0.1 && s.kl.high < 0.1 + 0.05 * 19);
	assert_memory_equal(&s.kl, &again.kl, sizeof s.kl);
	assert_memory_equal(&s.kl_p99, &again.kl_p99, sizeof s.kl_p99);
	/* The normal approximation of the same: 1.96 standard errors either way. */
	double half = 1.96 * 0.05 * sqrt((20.0 * 20.0 - 1.0) / 12.0 / 20.0);
	assert_true(fabs((s.kl.high - s.kl.low) / (2.0 * half) - 1.0) < 0.08);
	record_list_free(&list);
}

static void intervals_hold_the_truth_about_as_often_as_they_say(void **state) {
	int n_held = 0, n_tries = 300;
	rng r = rng_make(3, "truth", 0);
	(void)state;
	for (int i = 0; i < n_tries; i++) {
		double over[40], under[40];
		resamples s;
		assert_true(resamples_make(&s, 40));
		for (int k = 0; k < 40; k++) {
			over[k] = rng_uniform(&r);
			under[k] = 1.0;
		}
		interval x = bootstrap_ratio(&s, over, under, 40);
		n_held += x.low <= 0.5 && 0.5 <= x.high;
		resamples_free(&s);
	}
	assert_true(n_held > 0.90 * n_tries && n_held < 0.99 * n_tries);
}

static void one_example_has_no_bounds_and_none_has_nothing(void **state) {
	record_list list = empty();
	selection which = of("h2o"), other = of("tova");
	(void)state;
	add_many(&list, "h2o", 1, 0.5, 0.0);
	summary s = summarise(&list, &which), none = summarise(&list, &other);
	assert_near(s.kl.value, 0.5);
	assert_true(isnan(s.kl.low) && isnan(s.kl.high) && isnan(s.kl_p99.low) && isnan(s.exact.low));
	assert_int_equal(none.n, 0);
	assert_true(isnan(none.kl.value) && isnan(none.share) && none.attention_kept == -1.0);
	record_list_free(&list);
}

static void cheap_means_are_the_same_values(void **state) {
	record_list list = empty();
	selection which = of("h2o");
	(void)state;
	add_many(&list, "h2o", 7, 0.1, 0.2);
	summary s = summarise(&list, &which), means = summarise_means(&list, &which);
	assert_true(s.kl.value == means.kl.value && s.kl_p99.value == means.kl_p99.value && s.share == means.share);
	assert_true(isnan(means.kl.low) && !isnan(s.kl.low));
	record_list_free(&list);
}

static void a_selection_takes_what_it_names(void **state) {
	record_list list = empty();
	(void)state;
	for (int i = 0; i < 6; i++) {
		char example[16];
		snprintf(example, sizeof example, "e%d", i);
		record r = made_record(example, i % 2 ? "f16" : "q8_0", "h2o", i < 3 ? "5%" : "10%", 0.1F, 1);
		r.length = i < 4 ? 1024 : 2048;
		r.depth = 25.0 * (i % 3);
		add(&list, r);
	}
	selection any = {NULL, NULL, NULL, NULL, 0, -1.0}, keep = any, cache = any, length = any, depth = any, task = any;
	keep.keep = "5%";
	cache.cache = "q8_0";
	length.length = 2048;
	depth.depth = 0.0;
	task.task = "other";
	assert_int_equal(summarise(&list, &any).n, 6);
	assert_int_equal(summarise(&list, &keep).n, 3);
	assert_int_equal(summarise(&list, &cache).n, 3);
	assert_int_equal(summarise(&list, &length).n, 2);
	assert_int_equal(summarise(&list, &depth).n, 2);
	assert_int_equal(summarise(&list, &task).n, 0);
	record_list_free(&list);
}

/* ------------------------------------------------------------------------------------------------------------ 99 % */

/* The resample written out, sorted, looked up. */
static double plain_quantile(const owned_value *values, int n, const int32_t *draws, double above) {
	owned_value *all = malloc((size_t)n * 64 * sizeof *all);
	int size = 0;
	assert_non_null(all);
	for (int i = 0; i < n; i++) {
		for (int32_t k = 0; k < draws[values[i].owner]; k++) {
			assert_true(size < n * 64);
			all[size++] = values[i];
		}
	}
	bootstrap_sort(all, (size_t)size);
	double result = (double)all[(int)(above * size)].value;
	free(all);
	return result;
}

static int ascending(const void *a, const void *b) {
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static void resampled_quantiles_are_those_of_resamples_written_out(void **state) {
	enum { N = 90, OWNERS = 9 };
	owned_value values[N];
	double plain[N_RESAMPLES];
	resamples s;
	rng r = rng_make(1, "quantile", 0);
	(void)state;
	assert_true(resamples_make(&s, OWNERS));
	for (int i = 0; i < N; i++) {
		values[i] = (owned_value){(float)rng_uniform(&r), (int32_t)rng_below(&r, OWNERS)};
	}
	bootstrap_sort(values, N);
	interval x = bootstrap_quantile(&s, values, N, 0.13);
	for (int b = 0; b < N_RESAMPLES; b++) {
		plain[b] = plain_quantile(values, N, s.draws + (size_t)b * OWNERS, 0.13);
	}
	qsort(plain, N_RESAMPLES, sizeof *plain, ascending);
	assert_true(x.low >= plain[49] && x.low <= plain[50]);
	assert_true(x.high >= plain[1949] && x.high <= plain[1950]);
	assert_true(x.value == (double)values[11].value); /* 0.13 x 90 = 11.7 lie above */
	resamples_free(&s);
}

static void each_resample_draws_as_many_as_there_are(void **state) {
	resamples s;
	(void)state;
	assert_true(resamples_make(&s, 17));
	int64_t first = 0;
	for (int b = 0; b < N_RESAMPLES; b++) {
		int32_t sum = 0;
		for (int i = 0; i < 17; i++) {
			sum += s.draws[(size_t)b * 17 + (size_t)i];
		}
		first += s.draws[(size_t)b * 17];
		assert_int_equal(sum, 17);
	}
	assert_true(first > N_RESAMPLES * 9 / 10 && first < N_RESAMPLES * 11 / 10);
	resamples_free(&s);
}

/* ----------------------------------------------------------------------------------------------------------- pairs */

static void pairs_tell_what_single_intervals_do_not(void **state) {
	record_list list = empty();
	selection a = of("tova"), b = of("h2o");
	(void)state;
	/* Prompts differ by far more than policies, which differ in the same way on each. */
	add_many(&list, "h2o", 12, 0.1, 0.3);
	add_many(&list, "tova", 12, 0.15, 0.3);
	summary one = summarise(&list, &a), other = summarise(&list, &b);
	paired p = summarise_paired(&list, &a, &b);
	assert_true(one.kl.low < other.kl.high);
	assert_int_equal(p.n, 12);
	assert_near(p.kl.value, 0.05);
	assert_true(p.kl.low > 0.049 && p.kl.high < 0.051);
	assert_true(isnan(p.score.value) && isnan(p.nll.value));
	record_list_free(&list);
}

static void pairs_are_of_examples_that_both_have(void **state) {
	record_list list = empty();
	selection a = of("tova"), b = of("h2o");
	(void)state;
	add_many(&list, "h2o", 3, 0.1, 0.1);
	add_many(&list, "tova", 5, 0.3, 0.1);
	add(&list, made_record("e4", "q8_0", "h2o", "10%", 7.0F, 2));
	paired p = summarise_paired(&list, &a, &b), reverse = summarise_paired(&list, &b, &a);
	assert_int_equal(p.n, 3);
	assert_near(p.kl.value, 0.2);
	assert_near(reverse.kl.value, -0.2);
	record_list_free(&list);
}

/* ---------------------------------------------------------------------------------------------------- what there is */

static void variants_and_tasks_come_once_in_order(void **state) {
	record_list list = empty();
	variant *variants = NULL;
	const char **tasks = NULL;
	(void)state;
	assert_int_equal(summary_variants(&list, &variants), 0);
	for (int i = 0; i < 3; i++) {
		char example[16];
		snprintf(example, sizeof example, "e%d", i);
		add(&list, made_record(example, "f16", "full", "100%", 0.0F, 0));
		add(&list, made_record(example, "f16", "h2o", "10%", 0.0F, 1));
		add(&list, made_record(example, "q8_0", "h2o", "10%", 0.0F, 1));
		add(&list, made_record(example, "f16", "h2o", "5%", 0.0F, 1));
	}
	assert_int_equal(summary_variants(&list, &variants), 4);
	assert_string_equal(variants[0].policy, "full");
	assert_string_equal(variants[2].cache, "q8_0");
	assert_string_equal(variants[3].keep, "5%");
	assert_int_equal(summary_tasks(&list, &tasks), 1);
	assert_string_equal(tasks[0], "t");
	free(variants);
	free(tasks);
	record_list_free(&list);
}

static void the_front_is_what_nothing_beats_in_both(void **state) {
	const double share[] = {0.1, 0.1, 0.2, 0.2, 0.5, 0.5, 0.9, 0.3},
	             kl[] = {0.5, 0.6, 0.4, 0.4, 0.1, (double)NAN, 0.1, 0.45};
	const uint8_t expected[] = {1, 0, 1, 1, 1, 0, 0, 0};
	uint8_t marks[8];
	(void)state;
	summary_pareto(share, kl, 8, marks);
	assert_memory_equal(marks, expected, sizeof marks);
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(means_are_of_examples_and_shares_of_positions),
	    cmocka_unit_test(a_position_without_a_number_is_left_out),
	    cmocka_unit_test(an_interval_holds_its_value_and_is_the_same_each_time),
	    cmocka_unit_test(intervals_hold_the_truth_about_as_often_as_they_say),
	    cmocka_unit_test(one_example_has_no_bounds_and_none_has_nothing),
	    cmocka_unit_test(cheap_means_are_the_same_values),
	    cmocka_unit_test(a_selection_takes_what_it_names),
	    cmocka_unit_test(resampled_quantiles_are_those_of_resamples_written_out),
	    cmocka_unit_test(each_resample_draws_as_many_as_there_are),
	    cmocka_unit_test(pairs_tell_what_single_intervals_do_not),
	    cmocka_unit_test(pairs_are_of_examples_that_both_have),
	    cmocka_unit_test(variants_and_tasks_come_once_in_order),
	    cmocka_unit_test(the_front_is_what_nothing_beats_in_both),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
