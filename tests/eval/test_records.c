/* The file of records: what is written comes back, what broke off goes on, what is not understood is told. */
#define _POSIX_C_SOURCE 200809L
#include "made.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const char path[] = "test_records.jsonl", said[] = "test_records.said";

static void write_file(const char *text, size_t size) {
	FILE *file = fopen(path, "wb");
	assert_non_null(file);
	assert_int_equal(fwrite(text, 1, size, file), size);
	assert_int_equal(fclose(file), 0);
}

/* Standard error goes to a file from listen to heard, which returns what was said. */
static int listen_to_errors(void) {
	int kept = dup(STDERR_FILENO);
	FILE *file = fopen(said, "w");
	assert_non_null(file);
	fflush(stderr);
	dup2(fileno(file), STDERR_FILENO);
	fclose(file);
	return kept;
}

static char *heard(int kept) {
	fflush(stderr);
	dup2(kept, STDERR_FILENO);
	close(kept);
	return made_read(said);
}

static void assert_said(int kept, const char *part) {
	char *text = heard(kept);
	if (!strstr(text, part)) {
		fail_msg("\"%s\" is not in: %s", part, text);
	}
	free(text);
}

static void open_good(record_file *f) {
	run_header h = made_header();
	assert_true(records_open(f, path, &h));
	assert_null(h.model);
}

static void add(record_file *f, const char *example, const char *policy, const char *keep, float kl) {
	record r = made_record(example, "f16", policy, keep, kl, 3);
	assert_true(records_add(f, &r));
	assert_null(r.example);
}

/* A new file of two records and a prefill. */
static void make_file(void) {
	record_file f;
	remove(path);
	open_good(&f);
	add(&f, "a", "chunkkv", "10%", 0.5F);
	add(&f, "b", "chunkkv", "10%", 0.25F);
	assert_true(records_add_prefill(&f, "a", "f16", 2.0, 1.0, 3));
	assert_true(records_close(&f));
}

static void what_is_written_comes_back(void **state) {
	record_file f;
	record r = made_record("x \"1\"\n", "q8_0", "snapkv:window=8", "5%", 0.0F, 3);
	(void)state;
	remove(path);
	open_good(&f);
	r.length = 1024;
	r.depth = 37.5;
	r.bytes = (uint64_t)1 << 40;
	r.score = 0.75;
	r.exact = true;
	r.nll = 2.3456789;
	r.kl[0] = 0.123456F;
	r.kl[1] = 1.5e-9F;
	r.kl[2] = NAN;
	assert_true(records_add(&f, &r));
	assert_true(records_close(&f));
	assert_true(records_read(&f, path));
	assert_string_equal(f.header.settings, "seed=1");
	assert_int_equal(f.records.n, 1);
	const record *x = records_find(&f.records, "x \"1\"\n", "q8_0", "snapkv:window=8", "5%");
	assert_non_null(x);
	assert_int_equal(x->length, 1024);
	assert_true(x->depth == 37.5 && x->bytes == (uint64_t)1 << 40 && x->score == 0.75 && x->exact && x->seconds == 1.5);
	assert_true(fabs(x->nll - 2.3456789) < 1e-7);
	assert_int_equal(x->n_positions, 3);
	assert_true(x->kl[0] == 0.1235F && x->kl[1] == 1.5e-9F && isnan(x->kl[2]));
	assert_true(x->same[0] == 1 && x->same[1] == 0 && x->same[2] == 0);
	assert_string_equal(x->answer, "yes");
	records_close(&f);
}

static void numbers_are_written_short_and_nan_as_null(void **state) {
	record_file f;
	record r = made_record("a", "f16", "h2o", "5%", 0.123456F, 2);
	(void)state;
	remove(path);
	open_good(&f);
	assert_true(records_add(&f, &r));
	assert_true(records_close(&f));
	char *text = made_read(path);
	assert_non_null(strstr(text, "\"kl\":[0.1235,0.1235],\"same\":\"10\""));
	assert_non_null(strstr(text, "\"score\":null"));
	assert_ptr_equal(strstr(text, "{\"chunkkv-eval\":1,"), text);
	free(text);
}

static void a_line_that_was_cut_off_is_dropped_wherever_it_was_cut(void **state) {
	(void)state;
	make_file();
	char *text = made_read(path);
	size_t size = strlen(text), whole = 0;
	for (size_t cut = 1; cut < size; cut += 7) {
		record_file f;
		write_file(text, cut);
		for (whole = cut; whole > 0 && text[whole - 1] != '\n'; whole--) {
		}
		int kept = listen_to_errors();
		open_good(&f);
		int32_t n = f.records.n;
		add(&f, "later", "chunkkv", "10%", 1.0F);
		assert_true(records_close(&f));
		assert_true(records_read(&f, path));
		free(heard(kept));
		assert_int_equal(f.records.n, n + 1);
		records_close(&f);
		char *now = made_read(path);
		assert_memory_equal(now, text, whole);
		free(now);
	}
	free(text);
}

static void a_cut_off_line_is_told(void **state) {
	record_file f;
	(void)state;
	make_file();
	char *text = made_read(path);
	write_file(text, strlen(text) - 1);
	int kept = listen_to_errors();
	open_good(&f);
	assert_said(kept, "the last line is incomplete and dropped");
	assert_int_equal(f.n_prefills, 0);
	records_close(&f);
	free(text);
}

static void refuse_line(const char *line, const char *reason) {
	char text[1024];
	record_file f;
	run_header h = made_header();
	make_file();
	char *before = made_read(path);
	snprintf(text, sizeof text, "%.*s\n%s\n", (int)strcspn(before, "\n"), before, line);
	write_file(text, strlen(text));
	int kept = listen_to_errors();
	assert_false(records_open(&f, path, &h));
	assert_said(kept, reason);
	assert_null(f.file);
	assert_null(h.model);
	char *after = made_read(path);
	assert_string_equal(after, text);
	free(after);
	free(before);
}

static void a_line_that_is_not_understood_is_told_with_its_number(void **state) {
	(void)state;
	refuse_line("nonsense", "test_records.jsonl:2:");
	refuse_line("[1]", "it is no JSON object");
	refuse_line("{\"example\":1}", "\"example\" is no text");
	refuse_line("{\"prefill\":\"a\",\"cache\":\"f16\",\"prefill_s\":1,\"other_s\":1,\"n_starts\":-1}",
	            "\"n_starts\" is no whole number");
}

static void a_text_of_wrong_length_beside_the_numbers_is_refused(void **state) {
	(void)state;
	refuse_line("{\"example\":\"a\",\"task\":\"t\",\"cache\":\"f16\",\"policy\":\"h2o\",\"keep\":\"5%\",\"reason\":\"\","
	            "\"answer\":\"\",\"length\":0,\"depth\":-1,\"n_prompt\":1,\"n_cells\":1,\"bytes\":1,\"bytes_own\":1,"
	            "\"bytes_full\":1,\"score\":null,\"attention_kept\":-1,\"nll\":null,\"seconds\":1,\"exact\":true,"
	            "\"kl\":[0.1,0.2],\"same\":\"1\"}",
	            "\"same\" is no text of 2 digits");
}

static void leave_alone(const char *content) {
	record_file f;
	run_header h = made_header();
	write_file(content, strlen(content));
	int kept = listen_to_errors();
	assert_false(records_open(&f, path, &h));
	assert_said(kept, "no record file of chunkkv eval");
	char *text = made_read(path);
	assert_string_equal(text, content);
	free(text);
}

static void a_file_that_is_no_record_file_is_left_alone(void **state) {
	(void)state;
	leave_alone("{\"mine\":1}\n");
	leave_alone("one piece without an end");
}

static void refuse_header(size_t field, const char *value, const char *name) {
	record_file f;
	run_header h = made_header();
	char **to = (char **)(void *)((char *)&h + field);
	make_file();
	free(*to);
	*to = made_text(value);
	int kept = listen_to_errors();
	assert_false(records_open(&f, path, &h));
	char *text = heard(kept);
	assert_non_null(strstr(text, name));
	assert_non_null(strstr(text, value));
	assert_non_null(strstr(text, "choose another --out"));
	free(text);
}

static void another_run_does_not_go_on_with_the_file(void **state) {
	(void)state;
	refuse_header(offsetof(run_header, version), "0.9", "its version is \"1.0\"");
	refuse_header(offsetof(run_header, model), "other.gguf", "its model is \"m.gguf\"");
	refuse_header(offsetof(run_header, model_hash), "def", "its model_hash is \"abc\"");
	refuse_header(offsetof(run_header, settings), "seed=2", "its settings is \"seed=1\"");
	refuse_header(offsetof(run_header, setting), "before", "its setting is \"window\"");
	refuse_header(offsetof(run_header, reference), "q8_0", "its reference is \"f16\"");
}

static void tasks_machine_and_day_may_differ_and_the_first_stay(void **state) {
	record_file f;
	run_header h = made_header();
	(void)state;
	make_file();
	h.machine[0] = 'T';
	h.tasks[0] = 'm';
	h.date[0] = '3';
	assert_true(records_open(&f, path, &h));
	assert_string_equal(f.header.machine, "here");
	assert_string_equal(f.header.tasks, "niah");
	assert_string_equal(f.header.date, "2026-01-01");
	assert_int_equal(f.records.n, 2);
	records_close(&f);
}

static void the_later_of_two_records_counts(void **state) {
	record_file f;
	(void)state;
	make_file();
	open_good(&f);
	add(&f, "a", "chunkkv", "10%", 0.75F);
	assert_int_equal(f.records.n, 2);
	assert_true(records_find(&f.records, "a", "f16", "chunkkv", "10%")->kl[0] == 0.75F);
	assert_true(records_close(&f));
	assert_true(records_read(&f, path));
	assert_int_equal(f.records.n, 2);
	assert_true(f.records.items[0].kl[0] == 0.75F);
	records_close(&f);
}

static void prefills_add_up_over_runs(void **state) {
	record_file f;
	(void)state;
	make_file();
	open_good(&f);
	assert_true(records_add_prefill(&f, "b", "f16", 4.0, 0.5, 5));
	assert_true(records_close(&f));
	assert_true(records_read(&f, path));
	assert_int_equal(f.n_prefills, 2);
	assert_int_equal(f.n_starts, 8);
	assert_true(f.prefill_s == 6.0 && f.other_s == 1.5 && f.apart_s == 2.0 * 3 + 4.0 * 5);
	records_close(&f);
}

static void every_record_is_found_among_many_and_no_other(void **state) {
	record_list list = {NULL, 0, 0, NULL, 0};
	char example[16], keep[16];
	(void)state;
	assert_null(records_find(&list, "0", "f16", "h2o", "0"));
	for (int i = 0; i < 20000; i++) {
		snprintf(example, sizeof example, "%d", i / 50);
		snprintf(keep, sizeof keep, "%d", i % 50);
		record r = made_record(example, "f16", "h2o", keep, 0.0F, 0);
		r.n_cells = i;
		assert_true(record_list_add(&list, &r));
	}
	assert_int_equal(list.n, 20000);
	for (int i = 0; i < 20000; i++) {
		snprintf(example, sizeof example, "%d", i / 50);
		snprintf(keep, sizeof keep, "%d", i % 50);
		assert_int_equal(records_find(&list, example, "f16", "h2o", keep)->n_cells, i);
		assert_null(records_find(&list, example, "q8_0", "h2o", keep));
	}
	assert_null(records_find(&list, "", "0f16", "h2o", "0"));
	record_list_free(&list);
}

static void a_text_that_is_not_utf8_is_not_written(void **state) {
	record_file f;
	record r = made_record("a", "f16", "h2o", "5%", 0.1F, 1);
	(void)state;
	make_file();
	char *before = made_read(path);
	open_good(&f);
	r.answer[0] = (char)0xff;
	int kept = listen_to_errors();
	assert_false(records_add(&f, &r));
	assert_said(kept, "not UTF-8");
	assert_null(r.example);
	records_close(&f);
	char *after = made_read(path);
	assert_string_equal(after, before);
	free(after);
	free(before);
}

static void reading_what_is_not_there_or_empty_is_told(void **state) {
	record_file f;
	(void)state;
	remove(path);
	int kept = listen_to_errors();
	assert_false(records_read(&f, path));
	assert_said(kept, "No such file");
	write_file("", 0);
	kept = listen_to_errors();
	assert_false(records_read(&f, path));
	assert_said(kept, "it has no records");
}

static int clean_up(void **state) {
	(void)state;
	remove(path);
	remove(said);
	return 0;
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_is_written_comes_back),
	    cmocka_unit_test(numbers_are_written_short_and_nan_as_null),
	    cmocka_unit_test(a_line_that_was_cut_off_is_dropped_wherever_it_was_cut),
	    cmocka_unit_test(a_cut_off_line_is_told),
	    cmocka_unit_test(a_line_that_is_not_understood_is_told_with_its_number),
	    cmocka_unit_test(a_text_of_wrong_length_beside_the_numbers_is_refused),
	    cmocka_unit_test(a_file_that_is_no_record_file_is_left_alone),
	    cmocka_unit_test(another_run_does_not_go_on_with_the_file),
	    cmocka_unit_test(tasks_machine_and_day_may_differ_and_the_first_stay),
	    cmocka_unit_test(the_later_of_two_records_counts),
	    cmocka_unit_test(prefills_add_up_over_runs),
	    cmocka_unit_test(every_record_is_found_among_many_and_no_other),
	    cmocka_unit_test(a_text_that_is_not_utf8_is_not_written),
	    cmocka_unit_test(reading_what_is_not_there_or_empty_is_told),
	};
	return cmocka_run_group_tests(tests, NULL, clean_up);
}
