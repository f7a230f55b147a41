/* The page's text: what it says of records whose figures are known, and that nothing of theirs becomes markup. How it looks
 * is browser.py's. */
#include "html.h"
#include "made.h"
#include "report.h"
#include "svg.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char page[] = "test_report.html", scratch[] = "test_report.txt";

static void add(record_file *f, record r) { assert_true(record_list_add(&f->records, &r)); }

static record_file begin(void) {
	record_file f = {.header = made_header()};
	return f;
}

static char *write_page(record_file *f) {
	assert_true(report_write(f, page));
	char *text = made_read(page);
	run_header_free(&f->header);
	record_list_free(&f->records);
	return text;
}

static void assert_has(const char *text, const char *part) {
	if (!strstr(text, part)) {
		fail_msg("the page has no \"%s\"", part);
	}
}

static void add_example(record_file *f, int i) {
	char example[16];
	snprintf(example, sizeof example, "e%d", i);
	record full = made_record(example, "f16", "full", "100%", 0.0F, 0);
	full.score = i < 4 ? 1.0 : 0.0;
	full.answer[0] = 'Y';
	add(f, full);
	record good = made_record(example, "f16", "chunkkv", "10%", 0.2F + 0.01F * (float)i, 2);
	good.score = 0.5;
	add(f, good);
	add(f, made_record(example, "f16", "h2o", "10%", 0.8F + 0.01F * (float)i, 2));
}

static void the_least_loss_is_told_beside_the_whole_cache(void **state) {
	record_file f = begin();
	(void)state;
	for (int i = 0; i < 5; i++) {
		add_example(&f, i);
	}
	char *text = write_page(&f);
	char *answer = strstr(text, "id=\"answer\"");
	assert_non_null(answer);
	char *end = strstr(answer, "</section>");
	assert_non_null(end);
	*end = '\0';
	assert_has(answer, "At 10\xc2\xa0%");
	assert_has(answer, "<p class=\"who\">chunkkv</p>");
	assert_has(answer, "KL <b>0.22 [");
	assert_has(answer, "the full cache itself scores 0.80");
	assert_has(answer, "All others lose more");
	assert_null(strstr(answer, "h2o"));
	free(text);
}

static void the_worst_answer_stands_beside_the_whole_caches(void **state) {
	record_file f = begin();
	(void)state;
	for (int i = 0; i < 5; i++) {
		add_example(&f, i);
	}
	char *text = write_page(&f);
	char *worst = strstr(text, "10\xc2\xa0% kept, any policy");
	assert_non_null(worst);
	char *first = strstr(worst, "<b>e4</b>, h2o"), *second = strstr(worst, "<b>e3</b>, h2o");
	assert_true(first && second && first < second);
	assert_has(first, "<div class=\"said\">Yes</div>");
	assert_has(first, "<div class=\"said\">yes</div>");
	free(text);
}

/* Every tag's name is one that the page itself writes. */
static void assert_only_own_tags(const char *text) {
	static const char *const foreign[] = {
	    "<script", "<img", "<iframe", "<link", "<b onclick", "<style>x", "onerror=alert(1)>\n<"};
	for (size_t i = 0; i < sizeof foreign / sizeof(const char *); i++) {
		assert_null(strstr(text, foreign[i]));
	}
}

static void what_records_say_never_becomes_markup(void **state) {
	record_file f = begin();
	const char *evil = "\"><script>alert('x')</script><img src=x onerror=alert(1)>&amp;\x01";
	(void)state;
	char **fields[] = {&f.header.model, &f.header.tasks, &f.header.settings, &f.header.machine, &f.header.version};
	for (size_t i = 0; i < sizeof fields / sizeof(char **); i++) {
		free(*fields[i]);
		*fields[i] = made_text(evil);
	}
	for (int i = 0; i < 3; i++) {
		char example[128];
		snprintf(example, sizeof example, "%s%d", evil, i);
		record r = made_record(example, "f16", evil, evil, 0.5F, 2);
		free(r.answer);
		free(r.reason);
		free(r.task);
		r.answer = made_text(evil);
		r.reason = made_text(evil);
		r.task = made_text(evil);
		r.length = 1024 + i;
		r.depth = 50.0;
		add(&f, r);
	}
	char *text = write_page(&f);
	assert_only_own_tags(text);
	assert_has(text, "&#60;script&#62;alert(&#39;x&#39;)");
	assert_has(text, "&#38;amp;");
	assert_null(strchr(text, '\x01'));
	free(text);
}

static void nothing_is_fetched_from_elsewhere(void **state) {
	record_file f = begin();
	(void)state;
	add_example(&f, 1);
	char *text = write_page(&f);
	assert_null(strstr(text, "://"));
	assert_null(strstr(text, "url("));
	assert_null(strstr(text, "@import"));
	assert_has(text, "default-src 'none'");
	free(text);
}

static void a_forced_text_is_told_as_perplexity(void **state) {
	record_file f = begin();
	(void)state;
	for (int i = 0; i < 3; i++) {
		char example[16];
		snprintf(example, sizeof example, "e%d", i);
		record full = made_record(example, "f16", "full", "100%", 0.0F, 0),
		       r = made_record(example, "f16", "h2o", "10%", 0.1F, 2);
		full.nll = log(8.0);
		r.nll = log(9.5);
		add(&f, full);
		add(&f, r);
	}
	char *text = write_page(&f);
	assert_has(text, "perplexity <b>9.50");
	assert_has(text, "(whole cache: 8.00)");
	assert_null(strstr(text, ">score<"));
	free(text);
}

static void reading_once_is_set_against_reading_for_each(void **state) {
	record_file f = begin();
	(void)state;
	add_example(&f, 1);
	f.prefill_s = 10.0;
	f.other_s = 20.0;
	f.apart_s = 100.0;
	f.n_prefills = 2;
	f.n_starts = 20;
	char *text = write_page(&f);
	assert_has(text, "read once for 10 caches: <b>30 s</b>");
	assert_has(text, "would have taken 2.0 min: <b>4.0 times</b>");
	free(text);
}

static void settings_that_differ_in_one_number_make_a_chart(void **state) {
	static const char *const policies[] = {"chunkkv:chunk=5,window=8", "chunkkv:chunk=20,window=8",
	                                       "chunkkv:chunk=5,window=9x", "h2o"};
	(void)state;
	for (int n = 1; n <= 4; n++) {
		record_file f = begin();
		for (int i = 0; i < n; i++) {
			add(&f, made_record("e", "f16", policies[i], "10%", 0.1F * (float)(i + 1), 2));
		}
		char *text = write_page(&f);
		char *charts = strstr(text, "id=\"keys\"");
		assert_int_equal(charts != NULL, n >= 2);
		if (charts) {
			char *figure = strstr(charts, "KL over <b>chunk</b>");
			assert_non_null(figure);
			assert_null(strstr(figure + 1, "KL over <b>"));
		}
		free(text);
	}
}

/* Of any part of a policy: in front of a +, and behind it. */
static void settings_of_each_part_make_a_chart(void **state) {
	static const char *const policies[] = {"chunkkv:chunk=5+kivi4:group=32", "chunkkv:chunk=20+kivi4:group=32",
	                                       "chunkkv:chunk=5+kivi4:group=64", "snapkv+kivi:bits=2", "snapkv+kivi:bits=3"};
	record_file f = begin();
	(void)state;
	for (int i = 0; i < 5; i++) {
		add(&f, made_record("e", "f16", policies[i], "10%", 0.1F * (float)(i + 1), 2));
	}
	char *text = write_page(&f);
	assert_has(text, "KL over <b>chunk</b>");
	assert_has(text, "KL over <b>group</b>");
	assert_has(text, "KL over <b>bits</b>");
	free(text);
}

static void a_page_without_records_still_is_one(void **state) {
	record_file f = begin();
	(void)state;
	char *text = write_page(&f);
	assert_has(text, "No compressed cache has been measured yet");
	assert_has(text, "</html>");
	free(text);
}

static void many_variants_with_gaps_all_have_their_line(void **state) {
	record_file f = begin();
	(void)state;
	for (int i = 0; i < 60; i++) {
		char policy[32];
		snprintf(policy, sizeof policy, "policy%02d", i);
		if (i % 3) {
			add(&f, made_record("e", "f16", policy, "10%", 0.1F + (float)i, 2));
		}
		if (i % 2 || !(i % 3)) {
			add(&f, made_record("e", "f16", policy, "about half", 0.1F + (float)i, 2));
		}
	}
	char *text = write_page(&f), part[64];
	for (int i = 0; i < 60; i++) {
		snprintf(part, sizeof part, "<th scope=\"row\">policy%02d</th>", i);
		assert_has(text, part);
	}
	assert_has(text, "aria-label=\"not measured\"");
	free(text);
}

static void a_page_that_can_not_be_written_is_told_and_leaves_nothing(void **state) {
	record_file f = begin();
	(void)state;
	add_example(&f, 1);
	assert_false(report_write(&f, "no/such/folder/page.html"));
	run_header_free(&f.header);
	record_list_free(&f.records);
}

/* --------------------------------------------------------------------------------------------------------- its parts */

static void assert_put(void (*put)(FILE *, double), double value, const char *expected) {
	FILE *out = fopen(scratch, "wb");
	assert_non_null(out);
	put(out, value);
	fclose(out);
	char *text = made_read(scratch);
	assert_string_equal(text, expected);
	free(text);
}

static void numbers_have_the_digits_that_mean_something(void **state) {
	(void)state;
	assert_put(html_number, 0.01234, "0.012");
	assert_put(html_number, 0.2249, "0.22");
	assert_put(html_number, 9.996, "10.0");
	assert_put(html_number, 1234.5, "1234");
	assert_put(html_number, 0.0, "0");
	assert_put(html_number, 0.00002, "2e-05");
	assert_put(html_number, (double)NAN, "–");
	assert_put(html_difference, -0.25, "−0.25");
	assert_put(html_difference, 0.25, "+0.25");
	assert_put(html_percent, 0.1, "10\xc2\xa0%");
	assert_put(html_percent, 0.0531, "5.3\xc2\xa0%");
	assert_put(html_percent, 0.998, "99.8\xc2\xa0%");
	assert_put(html_seconds, 7200.0, "2.0 h");
}

static void put_bad_text(FILE *out, double unused) {
	(void)unused;
	html_text(out, "a\xff<\xc3\xa9\x07");
}

static void put_cut_text(FILE *out, double unused) {
	(void)unused;
	html_short(out, "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9", 3);
}

static void text_that_is_wrong_or_long_is_shown_as_far_as_can_be(void **state) {
	(void)state;
	assert_put(put_bad_text, 0.0, "a\xef\xbf\xbd&#60;\xc3\xa9\xef\xbf\xbd");
	assert_put(put_cut_text, 0.0, "\xc3\xa9\xc3\xa9…");
}

static void labels_are_moved_apart_in_order_and_within_bounds(void **state) {
	double places[] = {10.0, 10.0, 11.0, 50.0, 99.0, 99.5};
	(void)state;
	svg_spread(places, 6, 12.0, 5.0, 100.0);
	assert_true(places[0] >= 5.0 - 1e-9 && places[5] <= 100.0 + 1e-6);
	for (int i = 1; i < 6; i++) {
		assert_true(places[i] - places[i - 1] >= 12.0 - 1e-6);
	}
	assert_true(fabs(places[3] - 50.0) < 1.0); /* what has room stays */
}

static void ticks_are_round_and_inside(void **state) {
	scale log_scale = {0.04, 1.1, 0.0, 100.0, true}, plain = {0.0, 0.37, 100.0, 0.0, false};
	double ticks[MOST_TICKS];
	(void)state;
	assert_int_equal(scale_ticks(&log_scale, ticks), 5);
	assert_true(fabs(ticks[0] - 0.05) < 1e-12 && fabs(ticks[4] - 1.0) < 1e-12);
	int n = scale_ticks(&plain, ticks);
	assert_true(n >= 4 && ticks[0] == 0.0 && !signbit(ticks[0]) && ticks[n - 1] <= 0.37);
	assert_true(scale_at(&plain, 0.0) == 100.0 && scale_at(&plain, 1.0) == 0.0);
	assert_true(scale_at(&log_scale, 0.0) == 0.0);
}

static int clean_up(void **state) {
	(void)state;
	remove(page);
	remove(scratch);
	return 0;
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_least_loss_is_told_beside_the_whole_cache),
	    cmocka_unit_test(the_worst_answer_stands_beside_the_whole_caches),
	    cmocka_unit_test(what_records_say_never_becomes_markup),
	    cmocka_unit_test(nothing_is_fetched_from_elsewhere),
	    cmocka_unit_test(a_forced_text_is_told_as_perplexity),
	    cmocka_unit_test(reading_once_is_set_against_reading_for_each),
	    cmocka_unit_test(settings_that_differ_in_one_number_make_a_chart),
	    cmocka_unit_test(settings_of_each_part_make_a_chart),
	    cmocka_unit_test(a_page_without_records_still_is_one),
	    cmocka_unit_test(many_variants_with_gaps_all_have_their_line),
	    cmocka_unit_test(a_page_that_can_not_be_written_is_told_and_leaves_nothing),
	    cmocka_unit_test(numbers_have_the_digits_that_mean_something),
	    cmocka_unit_test(text_that_is_wrong_or_long_is_shown_as_far_as_can_be),
	    cmocka_unit_test(labels_are_moved_apart_in_order_and_within_bounds),
	    cmocka_unit_test(ticks_are_round_and_inside),
	};
	return cmocka_run_group_tests(tests, NULL, clean_up);
}
