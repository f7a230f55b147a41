/* What the terminal is told: the recommendation above all, since people act on it. */
#include "made.h"
#include "table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* n examples of one cache, their KL spread evenly around a mean; `share` percent of the memory. */
static void add(record_file *f, const char *cache, const char *policy, const char *keep, int n, double kl, double spread,
                uint64_t share) {
	for (int i = 0; i < n; i++) {
		char id[16];
		snprintf(id, sizeof id, "t/%d", i);
		float own = (float)(kl + spread * (n > 1 ? 2.0 * i / (n - 1) - 1.0 : 0.0));
		record r = made_record(id, cache, policy, keep, own, 4);
		r.bytes = r.bytes_own = 10 * share;
		assert_true(record_list_add(&f->records, &r));
	}
}

static char *told(void (*print)(const record_file *, FILE *), const record_file *f, double limit) {
	FILE *out = tmpfile();
	assert_non_null(out);
	if (print) {
		print(f, out);
	} else {
		table_recommend(f, limit, out);
	}
	long size = ftell(out);
	char *text = calloc((size_t)size + 1, 1);
	assert_non_null(text);
	rewind(out);
	assert_int_equal(fread(text, 1, (size_t)size, out), size);
	fclose(out);
	return text;
}

static void expect(const record_file *f, double limit, const char *part) {
	char *text = told(NULL, f, limit);
	if (!strstr(text, part)) {
		fail_msg("'%s' is not in: %s", part, text);
	}
	free(text);
}

static void begin(record_file *f) {
	memset(f, 0, sizeof *f);
	f->header = made_header();
}

static void end(record_file *f) {
	record_list_free(&f->records);
	run_header_free(&f->header);
}

static void the_smallest_that_stays_below(void **state) {
	record_file f;
	(void)state;
	begin(&f);
	add(&f, "f16", "full", "100%", 8, 0.0, 0.0, 100);
	add(&f, "f16", "chunkkv", "30%", 8, 0.02, 0.01, 30);
	add(&f, "f16", "chunkkv", "10%", 8, 0.07, 0.01, 10);
	add(&f, "f16", "chunkkv", "5%", 8, 0.30, 0.01, 5);
	add(&f, "f16", "snapkv", "30%", 8, 0.01, 0.01, 30);
	expect(&f, 0.1, "--policy chunkkv --keep 10%");
	expect(&f, 0.05, "--policy snapkv --keep 30%"); /* the same memory, less loss */
	expect(&f, 0.5, "--policy chunkkv --keep 5%");
	expect(&f, 0.001, "No budget tried");
	end(&f);
}

/* The mean alone is not enough: the interval's upper end must stay below too. */
static void the_interval_counts(void **state) {
	record_file f;
	(void)state;
	begin(&f);
	add(&f, "f16", "chunkkv", "30%", 8, 0.05, 0.01, 30);
	add(&f, "f16", "chunkkv", "10%", 8, 0.09, 0.09, 10);
	expect(&f, 0.1, "--keep 30%");
	end(&f);
}

/* Other types are measured against the same reference, but are another choice; whole caches are none. */
static void only_what_makes_the_cache_smaller(void **state) {
	record_file f;
	(void)state;
	begin(&f);
	add(&f, "f16", "chunkkv", "200", 8, 0.0, 0.0, 100);
	add(&f, "q8_0", "chunkkv", "10%", 8, 0.01, 0.001, 5);
	expect(&f, 0.1, "No budget tried");
	add(&f, "f16", "chunkkv", "50%", 8, 0.01, 0.001, 50);
	expect(&f, 0.1, "--keep 50%");
	end(&f);
}

static void the_table_has_every_cache_and_what_was_saved(void **state) {
	record_file f;
	(void)state;
	begin(&f);
	add(&f, "f16", "full", "100%", 3, 0.0, 0.0, 100);
	add(&f, "f16", "chunkkv", "10%", 3, 0.25, 0.05, 10);
	char *text = told(table_print, &f, 0.0);
	assert_non_null(strstr(text, "t (3 examples"));
	assert_non_null(strstr(text, "chunkkv"));
	assert_non_null(strstr(text, "0.250 [0."));
	assert_non_null(strstr(text, "0.100"));
	assert_null(strstr(text, "nan"));
	free(text);
	text = told(table_saving, &f, 0.0);
	assert_string_equal(text, ""); /* nothing was read */
	free(text);
	f.prefill_s = 10.0;
	f.other_s = 5.0;
	f.n_prefills = 2;
	f.n_starts = 8;
	f.apart_s = 40.0;
	text = told(table_saving, &f, 0.0);
	assert_non_null(strstr(text, "2 prompts read once served 8 caches: 15 s; read for each anew: 45 s, 3.0 times"));
	free(text);
	end(&f);
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_smallest_that_stays_below),
	    cmocka_unit_test(the_interval_counts),
	    cmocka_unit_test(only_what_makes_the_cache_smaller),
	    cmocka_unit_test(the_table_has_every_cache_and_what_was_saved),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
