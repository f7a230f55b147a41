/* Which caches are compared, from the options. */
#include "plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static plan *make(run_options *o) {
	plan *p = calloc(1, sizeof *p);
	assert_non_null(p);
	o->cache_type = o->cache_type ? o->cache_type : "f16";
	if (!plan_make(p, o, "30%,10%")) {
		free(p);
		return NULL;
	}
	return p;
}

static void by_default_two_policies(void **state) {
	(void)state;
	run_options o = {0};
	plan *p = make(&o);
	assert_non_null(p);
	assert_int_equal(p->n_policies, 3);
	assert_string_equal(p->policies[0].text, "full");
	assert_string_equal(p->policies[1].text, "chunkkv");
	assert_string_equal(p->policies[2].text, "snapkv");
	assert_int_equal(p->n_keeps, 2);
	assert_string_equal(p->keeps[1].text, "10%");
	assert_int_equal(p->n_types, 1);
	free(p);
}

/* One policy has one name, however it is written, and is there once. */
static void policies_have_one_name(void **state) {
	(void)state;
	run_options o = {.n_policies = 4,
	                 .policies = {"chunkkv:window=32,chunk=5", "chunkkv:chunk=5,window=32", "chunkkv:chunk=10", "chunkkv"}};
	plan *p = make(&o);
	assert_non_null(p);
	assert_int_equal(p->n_policies, 3);
	assert_string_equal(p->policies[2].text, "chunkkv");
	free(p);
}

/* A new preset is in every evaluation of all by being registered. */
static void all_is_every_preset(void **state) {
	(void)state;
	run_options o = {.n_policies = 1, .policies = {"all"}};
	plan *p = make(&o);
	int n = 0;
	assert_non_null(p);
	while (ckv_preset_info((size_t)n)) {
		assert_string_equal(p->policies[n].text, ckv_preset_info((size_t)n)->name);
		n++;
	}
	assert_int_equal(p->n_policies, n);
	free(p);
}

/* The paper's series; the default value is the plain policy. */
static void ablations_are_series(void **state) {
	static const struct {
		const char *name;
		int n;
		const char *first, *has;
	} expected[] = {
	    {"chunk", 7, "chunkkv:chunk=3", "chunkkv"},  {"window", 5, "chunkkv:window=4", "chunkkv:window=64"},
	    {"reuse", 5, "chunkkv", "chunkkv:reuse=10"}, {"chunker", 4, "chunkkv", "chunkkv:chunker=sentence"},
	    {"hybrid", 3, "chunkkv", "hybrid"},
	};
	(void)state;
	for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
		run_options o = {.ablate = expected[i].name};
		plan *p = make(&o);
		bool found = false;
		assert_non_null(p);
		assert_int_equal(p->n_policies, expected[i].n + 1);
		assert_string_equal(p->policies[1].text, expected[i].first);
		for (int j = 1; j < p->n_policies; j++) {
			found = found || strcmp(p->policies[j].text, expected[i].has) == 0;
		}
		assert_true(found);
		assert_string_equal(plan_ablation(i), expected[i].name);
		free(p);
	}
	assert_null(plan_ablation(sizeof expected / sizeof *expected));
}

static void types_in_order(void **state) {
	(void)state;
	run_options o = {.cache_type = "q8_0,f16,q4_0"};
	plan *p = make(&o);
	assert_non_null(p);
	assert_int_equal(p->n_types, 3);
	assert_int_equal(p->types[0], GGML_TYPE_Q8_0);
	assert_int_equal(p->types[2], GGML_TYPE_Q4_0);
	free(p);
}

static void wrong_options_are_refused(void **state) {
	(void)state;
	run_options wrong[] = {
	    {.keep = "0.1"},
	    {.keep = "10%,110%"},
	    {.keep = ""},
	    {.cache_type = "f17"},
	    {.cache_type = "f16,f16"},
	    {.ablate = "chunks"},
	    {.n_policies = 1, .policies = {"chunkvk"}},
	};
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		assert_null(make(&wrong[i]));
	}
	/* One more budget than there is room for. */
	char keeps[8 * (MAX_KEEPS + 1)] = "";
	for (int i = 0; i <= MAX_KEEPS; i++) {
		snprintf(keeps + strlen(keeps), sizeof keeps - strlen(keeps), "%s%d", i ? "," : "", 100 + i);
	}
	run_options many = {.keep = keeps};
	assert_null(make(&many));
}

static void numbers_are_lists(void **state) {
	double out[3];
	int32_t n;
	(void)state;
	assert_true(plan_numbers("--length", "512,1024", 1, 4096, out, 3, &n));
	assert_int_equal(n, 2);
	assert_true(out[1] == 1024.0);
	assert_true(plan_numbers("--length", NULL, 1, 4096, out, 3, &n));
	assert_int_equal(n, 0);
	assert_false(plan_numbers("--length", "1,2,3,4", 1, 4096, out, 3, &n));
	assert_false(plan_numbers("--length", "1,x", 1, 4096, out, 3, &n));
	assert_false(plan_numbers("--length", "8192", 1, 4096, out, 3, &n));
	assert_false(plan_numbers("--length", "nan", 1, 4096, out, 3, &n));
}

/* Sums over all queries can't lose their last tokens again. */
static void rewinding_depends_on_what_is_summed(void **state) {
	(void)state;
	run_options plain = {0}, sums = {.n_policies = 1, .policies = {"h2o"}};
	plan *p = make(&plain), *q = make(&sums);
	assert_true(p && q && plan_can_rewind(p));
	assert_false(plan_can_rewind(q));
	free(p);
	free(q);
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(by_default_two_policies), cmocka_unit_test(policies_have_one_name),
	    cmocka_unit_test(all_is_every_preset),     cmocka_unit_test(ablations_are_series),
	    cmocka_unit_test(types_in_order),          cmocka_unit_test(wrong_options_are_refused),
	    cmocka_unit_test(numbers_are_lists),       cmocka_unit_test(rewinding_depends_on_what_is_summed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
