/* Tasks that are read from files: what is asked, what is cut away, and which line a fault is in. */
#define _POSIX_C_SOURCE 200809L
#include "csv.h"
#include "jsonl.h"
#include "metric.h"
#include "tasks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* --------------------------------------------------------------------------------------------------------------- support */

static char folder[] = "/tmp/chunkkv-loaders-XXXXXX";

static int make_folder(void **state) {
	(void)state;
	return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
	static const char *const names[] = {"a.jsonl",           "a.csv",        "a.txt",     "a.tsv",       "prompts.json",
	                                    "narrativeqa.jsonl", "trec_e.jsonl", "lcc.jsonl", "vcsum.jsonl", "gsm8k.jsonl"};
	char path[256];
	(void)state;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		snprintf(path, sizeof path, "%s/%s", folder, names[i]);
		unlink(path);
	}
	return rmdir(folder);
}

/* The path is the test's until it asks for another of that name. */
static const char *write_file(const char *name, const char *text) {
	static char paths[4][256];
	static size_t next = 0;
	char *path = paths[next++ % 4];
	snprintf(path, sizeof paths[0], "%s/%s", folder, name);
	FILE *file = fopen(path, "wb");
	assert_non_null(file);
	assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
	assert_int_equal(fclose(file), 0);
	return path;
}

/* What was printed while a function ran that was to fail. */
static char printed[4096];
static FILE *caught;
static int old_stderr;

static void catch_begin(void) {
	fflush(stderr);
	caught = tmpfile();
	assert_non_null(caught);
	old_stderr = dup(STDERR_FILENO);
	assert_true(old_stderr >= 0 && dup2(fileno(caught), STDERR_FILENO) >= 0);
}

static const char *catch_end(void) {
	fflush(stderr);
	dup2(old_stderr, STDERR_FILENO);
	close(old_stderr);
	rewind(caught);
	printed[fread(printed, 1, sizeof printed - 1, caught)] = '\0';
	fclose(caught);
	return printed;
}

/* A token is four bytes, the last one may be cut short. */
static int32_t quarters(const char *text, size_t size, void *user) {
	(void)text;
	(void)user;
	return (int32_t)((size + 3) / 4);
}

static task_options plain_options(void) { return (task_options){.shots = -1, .count = quarters, .seed = 7}; }

static void expect_fault(const char *name, const task_options *o, const char *words) {
	example_list list = {NULL, 0, 0};
	catch_begin();
	bool good = task_load(name, o, &list);
	const char *said = catch_end();
	assert_false(good);
	if (!strstr(said, words)) {
		fail_msg("\"%s\" is not in: %s", words, said);
	}
	example_list_free(&list);
}

static example_list load(const char *name, const task_options *o) {
	example_list list = {NULL, 0, 0};
	assert_true(task_load(name, o, &list));
	return list;
}

/* ----------------------------------------------------------------------------------------------------------------- names */

static void an_unknown_name_is_told_with_the_nearest(void **state) {
	task_options o = plain_options();
	(void)state;
	expect_fault("perplxity", &o, "did you mean 'perplexity'?");
	expect_fault("longbench/qaspr", &o, "did you mean 'longbench/qasper'?");
	expect_fault("doc/one", &o, "task 'doc' has no parts");
	expect_fault("do", &o, "no task 'do'");
	expect_fault("", &o, "no task ''");
}

static void every_task_is_found_by_its_name_and_says_what_it_is(void **state) {
	size_t n = 0;
	(void)state;
	for (; task_at(n); n++) {
		const task *t = task_at(n);
		assert_true(strlen(t->name) > 0 && strlen(t->summary) > 0);
		assert_non_null(t->needs);
		assert_non_null(t->load);
	}
	assert_int_equal(n, 8);
}

/* ----------------------------------------------------------------------------------------------------------------- jsonl */

static void objects_are_the_same_one_a_line_and_in_an_array(void **state) {
	static const char *const texts[] = {"\xef\xbb\xbf{\"a\": \"x\"}\r\n\n{\"a\": \"y\"}", "{\"a\":\"x\"}\n\n{\"a\":\"y\"}\n",
	                                    " [{\"a\":\n\"x\"},\n {\"a\": \"y\"}]\n"};
	(void)state;
	for (size_t i = 0; i < 3; i++) {
		jsonl f;
		json_t *item;
		assert_true(jsonl_open(&f, write_file("a.jsonl", texts[i])));
		assert_int_equal(jsonl_next(&f, &item), 1);
		assert_string_equal(jsonl_string(&f, item, "a"), "x");
		json_decref(item);
		assert_int_equal(jsonl_next(&f, &item), 1);
		assert_int_equal(f.line, 3);
		assert_string_equal(jsonl_string(&f, item, "a"), "y");
		json_decref(item);
		assert_int_equal(jsonl_next(&f, &item), 0);
		assert_int_equal(jsonl_next(&f, &item), 0);
		jsonl_close(&f);
	}
}

static void expect_json_fault(const char *text, const char *words) {
	task_options o = plain_options();
	o.file = write_file("a.jsonl", text);
	expect_fault("gsm8k", &o, words);
}

#define GOOD_LINE "{\"question\": \"q\", \"answer\": \"#### 1\"}\n"

static void a_wrong_line_is_named(void **state) {
	(void)state;
	expect_json_fault(GOOD_LINE GOOD_LINE "{\"question\": \n", "a.jsonl, line 3: not JSON");
	expect_json_fault(GOOD_LINE "\n[1]\n", "a.jsonl, line 3: not a JSON object");
	expect_json_fault(GOOD_LINE "{\"question\": \"q\"}", "a.jsonl, line 2: there is no \"answer\"");
	expect_json_fault(GOOD_LINE "{\"question\": 5, \"answer\": \"1\"}", "line 2: \"question\" is not a string");
	expect_json_fault(GOOD_LINE "{\"question\": \"q\", \"answer\": \"1 #### none\"}",
	                  "line 2: the \"answer\" has no number");
	expect_json_fault("[" GOOD_LINE "," GOOD_LINE "{}]", "line 3: ',' or ']'");
	expect_json_fault("[" GOOD_LINE ",\n{\"question\":\n}]", "line 4: not JSON");
	expect_json_fault("[" GOOD_LINE "", "line 2: ',' or ']'");
	expect_json_fault("[" GOOD_LINE "] more", "line 2: something follows");
	expect_json_fault(" \n", "a.jsonl' is empty");
}

static void an_empty_array_has_no_objects(void **state) {
	jsonl f;
	json_t *item;
	(void)state;
	assert_true(jsonl_open(&f, write_file("a.jsonl", "[ \n ]\n")));
	assert_int_equal(jsonl_next(&f, &item), 0);
	jsonl_close(&f);
}

/* ------------------------------------------------------------------------------------------------------------------- csv */

static void fields_in_quotes_hold_commas_quotes_and_newlines(void **state) {
	csv f;
	(void)state;
	assert_true(
	    csv_open(&f, write_file("a.csv", "\xef\xbb\xbfid,\"a \"\"b\"\"\",c\r\n1,\"x, \"\"y\"\"\nz\",\r\n\r\n,\"\",last")));
	assert_int_equal(csv_find(&f, "a \"b\""), 1);
	assert_int_equal(csv_find(&f, "b"), -1);
	assert_int_equal(csv_next(&f), 1);
	assert_int_equal(f.line, 2);
	assert_string_equal(f.fields[0], "1");
	assert_string_equal(f.fields[1], "x, \"y\"\nz");
	assert_string_equal(f.fields[2], "");
	assert_int_equal(csv_next(&f), 1);
	assert_int_equal(f.line, 5);
	assert_string_equal(f.fields[0], "");
	assert_string_equal(f.fields[1], "");
	assert_string_equal(f.fields[2], "last");
	assert_int_equal(csv_next(&f), 0);
	csv_close(&f);
}

static void expect_csv_fault(const char *text, const char *words) {
	task_options o = plain_options();
	o.file = write_file("a.csv", text);
	expect_fault("jailbreakv", &o, words);
}

static void a_wrong_record_is_named(void **state) {
	(void)state;
	expect_csv_fault("id,jailbreak_query\n1,\"two\nlines\"\n2\n", "a.csv, line 4: 1 fields where the header has 2");
	expect_csv_fault("id,jailbreak_query\n1,a,b\n", "line 2: 3 fields");
	expect_csv_fault("id,jailbreak_query\n1,a\n2,\"b\nc\n", "line 3: a quote is opened here");
	expect_csv_fault("id,jailbreak_query\n1,a\"b\n", "line 2: a quote inside");
	expect_csv_fault("id,jailbreak_query\n1,\"a\nb\"c\n", "line 3: text behind a closing quote");
	expect_csv_fault("id,query\n1,a\n", "no column 'jailbreak_query'");
	expect_csv_fault("id,jailbreak_query\n", "no row has a query");
	expect_csv_fault("\n", "a.csv' is empty");
}

static void attacks_in_pictures_and_repeated_ones_are_left_out(void **state) {
	task_options o = plain_options();
	(void)state;
	o.file = write_file("a.csv",
	                    "transfer_from_llm,id,jailbreak_query\nTrue,1,first\nFalse,2,picture\nTrue,3,first\nTrue,4,next\n"
	                    "True,5,last\n");
	example_list list = load("jailbreakv", &o);
	assert_int_equal(list.n, 3);
	assert_string_equal(list.items[1].context, "next");
	assert_string_equal(list.items[1].question, "");
	assert_string_equal(list.items[1].metric->name, "refusal");
	assert_int_equal(list.items[1].n_predict, 64);
	example_list_free(&list);
	o.n_examples = 2;
	o.n_predict = 9;
	list = load("jailbreakv", &o);
	assert_int_equal(list.n, 2);
	assert_string_equal(list.items[1].context, "next");
	assert_int_equal(list.items[0].n_predict, 9);
	example_list_free(&list);
}

/* ------------------------------------------------------------------------------------------------------------- longbench */

#define REST "\"answers\": [\"one\", \"two\"], \"all_classes\": null, \"length\": 3, \"_id\": \"x\"}\n"

static task_options longbench_options(const char *prompts) {
	task_options o = plain_options();
	o.data = folder;
	o.prompts = prompts ? write_file("prompts.json", prompts) : NULL;
	return o;
}

static void a_prompt_in_its_published_wording_is_used_as_it_is(void **state) {
	task_options o =
	    longbench_options("{\"narrativeqa\": \"S: {context}\\nQ: {input}\\nA:\", \"lcc\": \"C\\n{context}Next:\\n\"}");
	(void)state;
	write_file("narrativeqa.jsonl", "{\"context\": \"a {input} b\", \"input\": \"who {context}?\", " REST);
	write_file("lcc.jsonl", "{\"context\": \"int a;\\n\", \"input\": \"unused\", " REST);
	example_list list = load("longbench/narrativeqa", &o);
	assert_int_equal(list.n, 1);
	assert_string_equal(list.items[0].id, "longbench/narrativeqa/0");
	assert_string_equal(list.items[0].context, "S: a {input} b\nQ: ");
	assert_string_equal(list.items[0].question, "who {context}?\nA:");
	assert_int_equal(list.items[0].n_answers, 2);
	assert_string_equal(list.items[0].answers[1], "two");
	assert_int_equal(list.items[0].n_classes, 0);
	assert_int_equal(list.items[0].n_predict, 128);
	assert_false(list.items[0].plain);
	example_list_free(&list);
	list = load("longbench/lcc", &o);
	assert_string_equal(list.items[0].context, "C\nint a;\n");
	assert_string_equal(list.items[0].question, "Next:\n");
	assert_true(list.items[0].plain);
	example_list_free(&list);
	expect_fault("longbench/trec", &o, "trec.jsonl");
	o.prompts = write_file("prompts.json", "{\"lcc\": \"{input} {context}\"}");
	expect_fault("longbench/lcc", &o, "'lcc' must have {context}");
	expect_fault("longbench/narrativeqa", &o, "no prompt of 'narrativeqa'");
	o.prompts = write_file("prompts.json", "{\n,}");
	expect_fault("longbench/lcc", &o, "prompts.json, line 2");
}

static void those_datasets_are_loaded_that_are_there(void **state) {
	task_options o = longbench_options(NULL);
	(void)state;
	write_file("narrativeqa.jsonl",
	           "{\"context\": \"a\", \"input\": \"b\", " REST "{\"context\": \"c\", \"input\": \"d\", " REST);
	write_file("lcc.jsonl", "{\"context\": \"a\", \"input\": \"\", " REST);
	write_file("trec_e.jsonl",
	           "{\"context\": \"a\", \"input\": \"b\", \"answers\": [\"x\"], \"all_classes\": [\"x\", \"y\"]}");
	example_list list = load("longbench", &o);
	assert_int_equal(list.n, 4);
	assert_string_equal(list.items[1].task, "longbench/narrativeqa");
	assert_non_null(strstr(list.items[1].question, "d"));
	assert_string_equal(list.items[2].task, "longbench/trec");
	assert_int_equal(list.items[2].n_classes, 2);
	assert_string_equal(list.items[2].metric->name, "classification_line");
	assert_string_equal(list.items[3].task, "longbench/lcc");
	example_list_free(&list);
	o.n_examples = 1;
	list = load("longbench", &o);
	assert_int_equal(list.n, 3);
	example_list_free(&list);
	expect_fault("longbench/zh5", &o, "multifieldqa_zh.jsonl");
	write_file("lcc.jsonl", "{\"context\": \"a\", \"input\": \"\", \"answers\": [1]}");
	expect_fault("longbench", &o, "lcc.jsonl, line 1: \"answers\" is not a list");
	write_file("lcc.jsonl", "{\"context\": \"a\", \"input\": \"\"}");
	expect_fault("longbench/lcc", &o, "line 1: there are no \"answers\"");
	o.data = "/nonexistent";
	expect_fault("longbench", &o, "no data files");
	o.data = NULL;
	expect_fault("longbench", &o, "needs --data");
}

static void every_dataset_has_a_metric_and_a_prompt_with_its_places(void **state) {
	static const char *const all[] = {"narrativeqa",
	                                  "qasper",
	                                  "multifieldqa_en",
	                                  "multifieldqa_zh",
	                                  "hotpotqa",
	                                  "2wikimqa",
	                                  "musique",
	                                  "dureader",
	                                  "gov_report",
	                                  "qmsum",
	                                  "multi_news",
	                                  "vcsum",
	                                  "trec",
	                                  "triviaqa",
	                                  "samsum",
	                                  "lsht",
	                                  "passage_count",
	                                  "passage_retrieval_en",
	                                  "passage_retrieval_zh",
	                                  "lcc",
	                                  "repobench-p"};
	static const char *const without_input[] = {"gov_report", "multi_news", "vcsum", "passage_count", "lcc"};
	char name[64], file[64], path[256];
	task_options o = longbench_options(NULL);
	(void)state;
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		snprintf(name, sizeof name, "longbench/%s", all[i]);
		snprintf(file, sizeof file, "%s.jsonl", all[i]);
		snprintf(path, sizeof path, "%s", write_file(file, "{\"context\": \"<C>\", \"input\": \"<I>\", " REST));
		example_list list = load(name, &o);
		bool has_input = true;
		for (size_t j = 0; j < sizeof without_input / sizeof *without_input; j++) {
			has_input = has_input && strcmp(without_input[j], all[i]) != 0;
		}
		assert_non_null(strstr(list.items[0].context, "<C>"));
		assert_int_equal(strncmp(list.items[0].question, "<I>", 3) == 0, has_input);
		assert_non_null(list.items[0].metric);
		example_list_free(&list);
		assert_int_equal(unlink(path), 0);
	}
}

/* The letters of the text's begin and end must be as many as fit, the question whole. */
static void a_long_prompt_loses_its_middle_and_no_more_than_it_must(void **state) {
	task_options o = longbench_options("{\"narrativeqa\": \"{context}|{input}|\"}");
	const int32_t length = 30;
	char text[4096];
	(void)state;
	snprintf(text, sizeof text, "{\"context\": \"%0*d%0*d\", \"input\": \"question\", " REST, 500, 1, 500, 2);
	write_file("narrativeqa.jsonl", text);
	o.lengths = &length;
	o.n_lengths = 1;
	o.n_predict = 5;
	example_list list = load("longbench/narrativeqa", &o);
	const example *e = &list.items[0];
	/* 25 tokens are 100 bytes, of which the question takes 9 and the bar 1. */
	assert_int_equal(strlen(e->context) + strlen(e->question), 100);
	assert_string_equal(e->question, "question|");
	assert_memory_equal(e->context, "00000", 5);
	assert_string_equal(e->context + 85, "00002|");
	assert_null(strchr(e->context, '1'));
	example_list_free(&list);
	o.n_predict = 28;
	expect_fault("longbench/narrativeqa", &o, "longbench/narrativeqa/0: the question alone takes 3 tokens where 2 are left");
}

static void a_prompt_that_fits_is_whole(void **state) {
	task_options o = longbench_options("{\"narrativeqa\": \"{context}|{input}\"}");
	const int32_t length = 30;
	(void)state;
	write_file("narrativeqa.jsonl", "{\"context\": \"0123456789abcdefghijklmnopqrstuvwxy\", \"input\": \"zzzz\", " REST);
	o.lengths = &length;
	o.n_lengths = 1;
	o.n_predict = 20;
	example_list list = load("longbench/narrativeqa", &o);
	assert_string_equal(list.items[0].context, "0123456789abcdefghijklmnopqrstuvwxy|");
	example_list_free(&list);
	o.n_predict = 21;
	list = load("longbench/narrativeqa", &o);
	assert_string_equal(list.items[0].context, "0123456789abcdefklmnopqrstuvwxy|");
	example_list_free(&list);
}

static int32_t no_tokens(const char *text, size_t size, void *user) {
	(void)text;
	(void)size;
	(void)user;
	return -1;
}

static void a_tokeniser_that_fails_ends_the_loading(void **state) {
	task_options o = longbench_options(NULL);
	example_list list = {NULL, 0, 0};
	char path[256];
	(void)state;
	write_file("narrativeqa.jsonl", "{\"context\": \"a\", \"input\": \"b\", " REST);
	write_file("a.txt", "text");
	snprintf(path, sizeof path, "%s/a.txt", folder);
	o.file = path;
	o.count = no_tokens;
	assert_false(task_load("longbench/narrativeqa", &o, &list));
	assert_false(task_load("perplexity", &o, &list));
	example_list_free(&list);
}

static void no_character_is_cut_through(void **state) {
	task_options o = longbench_options("{\"vcsum\": \"{context}\"}");
	char text[2048] = "{\"context\": \"";
	(void)state;
	for (int32_t i = 0; i < 100; i++) {
		strncat(text, i < 50 ? "前" : "後", sizeof text - strlen(text) - 1);
	}
	strncat(text, "\", \"input\": \"\", " REST, sizeof text - strlen(text) - 1);
	write_file("vcsum.jsonl", text);
	o.n_lengths = 1;
	o.n_predict = 5;
	for (int32_t length = 10; length < 40; length++) {
		o.lengths = &length;
		example_list list = load("longbench/vcsum", &o);
		const char *context = list.items[0].context;
		size_t room = 4 * (size_t)(length - 5), size = strlen(context);
		assert_true(text_check("context", context, size));
		assert_true(size <= room && size + 6 > room);
		assert_non_null(strstr(context, "前後"));
		example_list_free(&list);
	}
}

/* ----------------------------------------------------------------------------------------------------------------- gsm8k */

static void write_problems(int32_t n) {
	char text[8192] = "";
	for (int32_t i = 0; i < n; i++) {
		size_t at = strlen(text);
		snprintf(text + at, sizeof text - at,
		         "{\"question\": \"problem <%d>\", \"answer\": \"So <<1+%d=9>>it is.\\n#### 1,00%d\"}\n", i, i, i);
	}
	write_file("gsm8k.jsonl", text);
}

static int32_t occurrences(const char *text, const char *what) {
	int32_t n = 0;
	for (; (text = strstr(text, what)) != NULL; text++) {
		n++;
	}
	return n;
}

static void the_asked_problem_is_never_among_the_worked_ones(void **state) {
	task_options o = plain_options();
	char own[32];
	(void)state;
	write_problems(8);
	o.data = folder;
	for (o.shots = 1; o.shots <= 7; o.shots++) {
		example_list list = load("gsm8k-many", &o);
		assert_int_equal(list.n, 8);
		for (int32_t i = 0; i < list.n; i++) {
			snprintf(own, sizeof own, "problem <%d>", i);
			assert_int_equal(occurrences(list.items[i].context, "Question: "), o.shots);
			assert_int_equal(occurrences(list.items[i].context, "\n#### 1,00"), o.shots);
			assert_null(strstr(list.items[i].context, own));
			assert_non_null(strstr(list.items[i].question, own));
		}
		example_list_free(&list);
	}
	expect_fault("gsm8k-many", &o, "8 worked examples were asked for, and the file has only 7");
	o.shots = -1;
	expect_fault("gsm8k-many", &o, "50 worked examples");
}

static void a_problem_that_stands_twice_is_not_shown_solved(void **state) {
	task_options o = plain_options();
	(void)state;
	o.file = write_file("a.jsonl", GOOD_LINE GOOD_LINE "{\"question\": \"other\", \"answer\": \"5\"}");
	o.shots = 1;
	o.n_examples = 2;
	for (o.seed = 0; o.seed < 8; o.seed++) {
		example_list list = load("gsm8k", &o);
		assert_int_equal(list.n, 2);
		assert_non_null(strstr(list.items[0].context, "Question: other\nAnswer: #### 5\n"));
		assert_null(strstr(list.items[1].context, "Question: q\n"));
		example_list_free(&list);
	}
}

static void problems_are_asked_alone_and_answers_are_bare_numbers(void **state) {
	task_options o = plain_options();
	(void)state;
	write_problems(3);
	o.data = folder;
	example_list list = load("gsm8k", &o);
	assert_int_equal(list.n, 3);
	assert_string_equal(list.items[2].id, "gsm8k/2");
	assert_int_equal(list.items[2].n_answers, 1);
	assert_string_equal(list.items[2].answers[0], "1002");
	assert_string_equal(list.items[2].question, "Question: problem <2>\nAnswer:");
	assert_null(strstr(list.items[2].context, "Question"));
	assert_string_equal(list.items[2].metric->name, "number");
	assert_int_equal(list.items[2].n_predict, 256);
	example_list_free(&list);
}

static void worked_examples_follow_the_seed(void **state) {
	task_options o = plain_options();
	(void)state;
	write_problems(8);
	o.data = folder;
	o.shots = 7;
	example_list once = load("gsm8k", &o), again = load("gsm8k", &o);
	assert_string_equal(once.items[0].context, again.items[0].context);
	assert_null(strstr(once.items[0].context, "<<"));
	example_list_free(&again);
	o.seed = 8;
	again = load("gsm8k", &o);
	assert_string_not_equal(once.items[0].context, again.items[0].context);
	example_list_free(&once);
	example_list_free(&again);
}

/* ------------------------------------------------------------------------------------------------------------ perplexity */

/* Words of four letters and the space before them: with quarters, 5 bytes. */
static void write_words(const char *word, int32_t n) {
	char text[8192] = "";
	for (int32_t i = 0; i < n; i++) {
		strncat(text, word, sizeof text - strlen(text) - 1);
	}
	write_file("a.txt", text);
}

static void pieces_are_neighbours_and_their_ends_are_to_be_predicted(void **state) {
	task_options o = plain_options();
	const int32_t length = 100;
	char path[256], all[8192] = "";
	(void)state;
	write_words(" word", 240); /* 1,200 bytes, 300 tokens */
	snprintf(path, sizeof path, "%s/a.txt", folder);
	o.file = path;
	o.lengths = &length;
	o.n_lengths = 1;
	o.n_predict = 20;
	example_list list = load("perplexity", &o);
	assert_int_equal(list.n, 3);
	for (int32_t i = 0; i < list.n; i++) {
		const example *e = &list.items[i];
		assert_int_equal(strlen(e->forced), 80);
		assert_int_equal(strlen(e->context), 320);
		assert_string_equal(e->question, "");
		assert_true(e->plain && !e->metric && e->length == 100 && e->n_predict == 20);
		strncat(all, e->context, sizeof all - strlen(all) - 1);
		strncat(all, e->forced, sizeof all - strlen(all) - 1);
	}
	buffer text;
	assert_true(text_read(path, &text));
	assert_string_equal(all, text.data);
	text_free(&text);
	example_list_free(&list);
	o.n_examples = 2;
	list = load("perplexity", &o);
	assert_int_equal(list.n, 2);
	example_list_free(&list);
}

static void pieces_are_cut_between_words_and_characters(void **state) {
	static const char *const words[] = {" another", "字符"};
	task_options o = plain_options();
	const int32_t length = 101;
	char path[256];
	(void)state;
	snprintf(path, sizeof path, "%s/a.txt", folder);
	o.file = path;
	o.lengths = &length;
	o.n_lengths = 1;
	o.n_predict = 19;
	for (size_t i = 0; i < 2; i++) {
		write_words(words[i], 300);
		example_list list = load("perplexity", &o);
		assert_true(list.n >= 3);
		for (int32_t j = 0; j < list.n; j++) {
			const example *e = &list.items[j];
			size_t size = strlen(e->context) + strlen(e->forced);
			assert_memory_equal(e->context, words[i], i == 0 ? 8 : 2);
			assert_true(size <= 404 && size + 8 > 404 && strlen(e->forced) <= 76 && strlen(e->forced) + 8 > 76);
			assert_true(text_check("context", e->context, strlen(e->context)));
			assert_true(text_check("forced", e->forced, strlen(e->forced)));
			assert_true(i == 1 || e->forced[0] == ' ');
		}
		example_list_free(&list);
	}
}

static void a_text_that_is_too_short_is_refused(void **state) {
	task_options o = plain_options();
	const int32_t lengths[] = {301, 20};
	char path[256];
	(void)state;
	write_words(" word", 240);
	snprintf(path, sizeof path, "%s/a.txt", folder);
	expect_fault("perplexity", &o, "needs -f");
	o.file = path;
	o.lengths = lengths;
	o.n_lengths = 1;
	expect_fault("perplexity", &o, "fewer than 301 tokens");
	o.lengths = lengths + 1;
	expect_fault("perplexity", &o, "pieces of 20 tokens leave nothing before the 128");
}

/* ------------------------------------------------------------------------------------------------------------------- doc */

static void questions_have_answers_where_they_are_given(void **state) {
	task_options o = plain_options();
	(void)state;
	o.file = write_file("a.txt", "The document.\n");
	o.questions = write_file("a.tsv", "# comment\tno\nWho?\tAnn|Bob\r\n\nWhy?\nWhen?\t\nWhere?\t|here|");
	example_list list = load("doc", &o);
	assert_int_equal(list.n, 4);
	assert_string_equal(list.items[0].context, "The document.\n");
	assert_string_equal(list.items[0].question, "\n\nWho?");
	assert_int_equal(list.items[0].n_answers, 2);
	assert_string_equal(list.items[0].answers[1], "Bob");
	assert_string_equal(list.items[0].metric->name, "match_any");
	assert_string_equal(list.items[1].question, "\n\nWhy?");
	assert_null(list.items[1].metric);
	assert_null(list.items[2].metric);
	assert_int_equal(list.items[3].n_answers, 1);
	assert_string_equal(list.items[3].answers[0], "here");
	assert_int_equal(list.items[3].n_predict, 48);
	assert_string_equal(list.items[3].id, "doc/3");
	example_list_free(&list);
}

static void a_document_without_text_or_questions_is_refused(void **state) {
	task_options o = plain_options();
	(void)state;
	expect_fault("doc", &o, "needs -f");
	o.file = write_file("a.txt", "text");
	expect_fault("doc", &o, "needs --questions");
	o.questions = write_file("a.tsv", "# nothing\n\n");
	expect_fault("doc", &o, "a.tsv' has no questions");
	o.questions = write_file("a.tsv", "Who?\n\tAnn\n");
	expect_fault("doc", &o, "a.tsv, line 2: answers without a question");
	o.file = write_file("a.txt", " \n");
	expect_fault("doc", &o, "a.txt' is empty");
	o.file = write_file("a.txt", "\xff");
	expect_fault("doc", &o, "is not UTF-8");
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(an_unknown_name_is_told_with_the_nearest),
	    cmocka_unit_test(every_task_is_found_by_its_name_and_says_what_it_is),
	    cmocka_unit_test(objects_are_the_same_one_a_line_and_in_an_array),
	    cmocka_unit_test(a_wrong_line_is_named),
	    cmocka_unit_test(an_empty_array_has_no_objects),
	    cmocka_unit_test(fields_in_quotes_hold_commas_quotes_and_newlines),
	    cmocka_unit_test(a_wrong_record_is_named),
	    cmocka_unit_test(attacks_in_pictures_and_repeated_ones_are_left_out),
	    cmocka_unit_test(a_prompt_in_its_published_wording_is_used_as_it_is),
	    cmocka_unit_test(those_datasets_are_loaded_that_are_there),
	    cmocka_unit_test(every_dataset_has_a_metric_and_a_prompt_with_its_places),
	    cmocka_unit_test(a_long_prompt_loses_its_middle_and_no_more_than_it_must),
	    cmocka_unit_test(a_prompt_that_fits_is_whole),
	    cmocka_unit_test(a_tokeniser_that_fails_ends_the_loading),
	    cmocka_unit_test(no_character_is_cut_through),
	    cmocka_unit_test(the_asked_problem_is_never_among_the_worked_ones),
	    cmocka_unit_test(a_problem_that_stands_twice_is_not_shown_solved),
	    cmocka_unit_test(problems_are_asked_alone_and_answers_are_bare_numbers),
	    cmocka_unit_test(worked_examples_follow_the_seed),
	    cmocka_unit_test(pieces_are_neighbours_and_their_ends_are_to_be_predicted),
	    cmocka_unit_test(pieces_are_cut_between_words_and_characters),
	    cmocka_unit_test(a_text_that_is_too_short_is_refused),
	    cmocka_unit_test(questions_have_answers_where_they_are_given),
	    cmocka_unit_test(a_document_without_text_or_questions_is_refused),
	};
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
