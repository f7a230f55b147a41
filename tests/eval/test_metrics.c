/* Metrics beside the published ones' figures. Those of the first table were worked out with the Python originals: PyPI's
 * rouge 1.0.1, fuzzywuzzy 0.18 on python-Levenshtein 0.27, and LongBench's and RULER's formulas. */
#include "metric.h"
#include "metrics_lcs.h"
#include "random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct judged {
	const char *metric, *reply, *answers[4], *classes[4]; /* NULL at the end */
	double score;
} judged;

static int32_t count(const char *const *list) {
	int32_t n = 0;
	while (n < 4 && list[n]) {
		n++;
	}
	return n;
}

/* Lists are lent: metrics change no example. */
static double judge(const judged *j) {
	char *answers[4], *classes[4];
	memcpy((void *)answers, j->answers, sizeof answers);
	memcpy((void *)classes, j->classes, sizeof classes);
	const example e = {
	    .answers = answers, .n_answers = count(j->answers), .classes = classes, .n_classes = count(j->classes)};
	const metric *m = metric_find(j->metric);
	assert_non_null(m);
	return m->judge(&e, j->reply);
}

static void check(const judged *table, size_t n) {
	for (size_t i = 0; i < n; i++) {
		double got = judge(&table[i]);
		if (!(fabs(got - table[i].score) < 1e-12)) {
			fail_msg("%s of \"%s\", for \"%s\": %.17g, expected %.17g", table[i].metric, table[i].reply,
			         table[i].answers[0] ? table[i].answers[0] : "", got, table[i].score);
		}
	}
}

static void scores_are_those_of_the_published_metrics(void **state) {
	static const judged table[] = {
	    {"f1", "The cat sat on the mat.", {"a cat on the mat"}, {NULL}, 0.8571428571428571},
	    {"f1", "It was Ada Lovelace, in 1843.", {"Lovelace", "Ada Lovelace"}, {NULL}, 0.5},
	    {"f1", "cat cat dog", {"cat dog dog"}, {NULL}, 0.6666666666666666},
	    {"f1", "“The end” – or a beginning", {"end or beginning"}, {NULL}, 0.5},
	    {"f1", "the-cat's a_an", {"thecats aan"}, {NULL}, 1.0},
	    {"f1", "МОСКВА, Россия", {"москва"}, {NULL}, 0.6666666666666666},
	    {"f1", "ÉCOLE Ωmega", {"école ωmega x"}, {NULL}, 0.8},
	    {"f1", "“The end", {"“ end"}, {NULL}, 1.0},
	    {"f1", "Paris", {"Paris", "London"}, {NULL}, 1.0},
	    {"f1", "nothing alike", {"quite different"}, {NULL}, 0.0},
	    {"f1", "...", {"..."}, {NULL}, 0.0},
	    {"f1", "the a an", {"the a an"}, {NULL}, 0.0},
	    {"f1", "", {"answer"}, {NULL}, 0.0},
	    {"f1", "one\u3000two\u00a0three", {"three two"}, {NULL}, 0.8},
	    {"f1_line", "\n\nParis\nLondon", {"Paris"}, {NULL}, 1.0},
	    {"f1_line", "Paris, France\nParis", {"Paris"}, {NULL}, 0.6666666666666666},
	    {"f1_line", "\n", {"Paris"}, {NULL}, 0.0},
	    {"f1_zh", "答案是北京。", {"北京"}, {NULL}, 0.5714285714285715},
	    {"f1_zh", "北京，上海！ＡＢ", {"上海ａｂ"}, {NULL}, 0.8},
	    {"f1_zh", "《红楼梦》", {"红楼梦"}, {NULL}, 0.8571428571428571},
	    {"f1_zh", "。！ ，", {"。"}, {NULL}, 0.0},
	    {"rouge_l", "the cat sat on the mat", {"the cat lay on the mat"}, {NULL}, 0.7999999950000002},
	    {"rouge_l", "police killed the gunman. the gunman fell", {"police kill the gunman"}, {NULL}, 0.6666666617283951},
	    {"rouge_l", "w1 w2 w6 w7 w8. w1 w3 w8 w9 w5.", {"w1 w2 w3 w4 w5"}, {NULL}, 0.6153846106508877},
	    {"rouge_l", "a b c d a b", {"b a d c b a", "a c"}, {NULL}, 0.6666666622222223},
	    {"rouge_l", "a x b y c z", {"c b a x y z"}, {NULL}, 0.6666666616666668},
	    {"rouge_l", "Rain fell.\nIt was 3.5 mm.", {"It rained. 3.5 mm fell.\n"}, {NULL}, 0.7142857092857143},
	    {"rouge_l", "The End", {"the end"}, {NULL}, 0.0},
	    {"rouge_l", ".", {"."}, {NULL}, 0.0},
	    {"rouge_l", " . ", {"word"}, {NULL}, 0.0},
	    {"rouge_l", " ", {" "}, {NULL}, 0.999999995},
	    {"rouge_l", "", {"word"}, {NULL}, 0.0},
	    {"rouge_l", "word", {""}, {NULL}, 0.0},
	    {"rouge_l_line",
	     "\nAmanda baked cookies.\nand more words",
	     {"Amanda baked cookies for Jerry."},
	     {NULL},
	     0.7499999953125},
	    {"rouge_l_zh", "会议讨论了预算。", {"会议通过了预算"}, {NULL}, 0.6666666616888889},
	    {"rouge_l_zh", "一 二.三", {"一二三.四"}, {NULL}, 0.8571428522448981},
	    {"rouge_l_zh", ". .", {" "}, {NULL}, 0.999999995},
	    {"classification", "Number of something", {"Number of something"}, {"Number", "Number of something", "Other"}, 1.0},
	    {"classification", "Type: Human or Place", {"Place"}, {"Human", "Place", "Date"}, 0.5},
	    {"classification", "Human", {"Place"}, {"Human", "Place"}, 0.0},
	    {"classification", "a very long name", {"very long name"}, {"very", "long", "name", "very long name"}, 0.5},
	    {"classification", "HUMAN", {"Human"}, {"Human"}, 0.0},
	    {"classification_line", "\nDate\nHuman", {"Date"}, {"Human", "Date"}, 1.0},
	    {"classification_line", "Which?\nDate", {"Date"}, {"Date"}, 0.0},
	    {"retrieval", "Paragraph 12, or 7", {"Paragraph 12"}, {NULL}, 0.5},
	    {"retrieval", "12 12 5", {"see Paragraph 12 and Paragraph 5"}, {NULL}, 0.6666666666666666},
	    {"retrieval", "paragraph 012", {"Paragraph 12"}, {NULL}, 0.0},
	    {"retrieval", "none", {"Paragraph 12"}, {NULL}, 0.0},
	    {"retrieval_zh", "段落３和段落3", {"段落3"}, {NULL}, 0.5},
	    {"retrieval_zh", "3", {"Paragraph 3"}, {NULL}, 0.0},
	    {"count", "There are 7 of 10, so 7", {"7"}, {NULL}, 0.6666666666666666},
	    {"count", "seven", {"7"}, {NULL}, 0.0},
	    {"count", "7", {"7 "}, {NULL}, 0.0},
	    {"code_sim", "return a + b;", {"return a - b;"}, {NULL}, 0.92},
	    {"code_sim", "```c\n// sum\n# x\nint s = 0;\nint t;", {"int s = 1;"}, {NULL}, 0.9},
	    {"code_sim", "# only\n`none`", {"x"}, {NULL}, 0.0},
	    {"code_sim", "# only\n`none`", {""}, {NULL}, 1.0},
	    {"code_sim", "\n\n\nx", {"x"}, {NULL}, 1.0},
	    {"code_sim", "aaaaaaab", {"bxxxxxxx"}, {NULL}, 0.12},
	    {"code_sim", "größe = 1", {"große = 1"}, {NULL}, 0.89},
	    {"code_sim", "x\n", {"y", "xy"}, {NULL}, 0.67},
	    {"match_all", "The numbers are 123 and 456", {"123", "456", "789"}, {NULL}, 0.6666666666666666},
	    {"match_all", "ПАРИЖ and ünder", {"Париж", "ÜNDER"}, {NULL}, 1.0},
	    {"match_any", "It is PARIS", {"London", "paris"}, {NULL}, 1.0},
	    {"match_any", "It is Rome", {"London", "paris"}, {NULL}, 0.0},
	    {"match_all", "", {"x", ""}, {NULL}, 0.5},
	};
	(void)state;
	check(table, sizeof table / sizeof *table);
}

static void numbers_are_the_last_of_the_reply_however_they_are_written(void **state) {
	static const judged table[] = {
	    {"number", "18 - 3 = 15, so she makes $30.", {"16-3=<<16-3=13>>13\n#### 30"}, {NULL}, 1.0},
	    {"number", "The answer is 42", {"42"}, {NULL}, 1.0},
	    {"number", "42, not 41", {"42"}, {NULL}, 0.0},
	    {"number", "$1,234,567.00", {"#### 1234567"}, {NULL}, 1.0},
	    {"number", "1234567", {"#### 1,234,567"}, {NULL}, 1.0},
	    {"number", "1,234,568", {"1,234,567"}, {NULL}, 0.0},
	    {"number", "either 3,4", {"4"}, {NULL}, 1.0},
	    {"number", "1,2345", {"2345"}, {NULL}, 1.0},
	    {"number", "0.50", {"#### .5"}, {NULL}, 1.0},
	    {"number", "007", {"7"}, {NULL}, 1.0},
	    {"number", "0.0", {"-0"}, {NULL}, 1.0},
	    {"number", "-$5", {"-5"}, {NULL}, 1.0},
	    {"number", "$-5", {"5"}, {NULL}, 0.0},
	    {"number", "10-5", {"5"}, {NULL}, 1.0},
	    {"number", "f(3)-5", {"5"}, {NULL}, 1.0},
	    {"number", "3.14", {"3.141"}, {NULL}, 0.0},
	    {"number", "3", {"31"}, {NULL}, 0.0},
	    {"number", "50%", {"50"}, {NULL}, 1.0},
	    {"number", "No.5", {"5"}, {NULL}, 1.0},
	    {"number", "9007199254740993", {"9007199254740992"}, {NULL}, 0.0},
	    {"number", "6 eggs", {"5", "6"}, {NULL}, 1.0},
	    {"number", "none", {"5"}, {NULL}, 0.0},
	    {"number", "5", {"none"}, {NULL}, 0.0},
	    {"number", "5", {"5 ####"}, {NULL}, 0.0},
	};
	(void)state;
	check(table, sizeof table / sizeof *table);
}

static void exact_replies_may_differ_in_case_punctuation_and_articles_alone(void **state) {
	static const judged table[] = {
	    {"exact", " The Eiffel-Tower. ", {"Big Ben", "eiffeltower"}, {NULL}, 1.0},
	    {"exact", "Eiffel tower in Paris", {"Eiffel tower"}, {NULL}, 0.0},
	    {"exact", "tower Eiffel", {"Eiffel tower"}, {NULL}, 0.0},
	    {"exact", "巴黎", {"巴黎"}, {NULL}, 1.0},
	    {"exact", "", {"A"}, {NULL}, 0.0},
	    {"exact", "the", {"A"}, {NULL}, 0.0},
	    {"exact", " a\n", {"A"}, {NULL}, 1.0},
	    {"exact", "b", {"A", "B"}, {NULL}, 1.0},
	    {"exact", "", {""}, {NULL}, 1.0},
	};
	(void)state;
	check(table, sizeof table / sizeof *table);
}

static void refusals_are_told_from_answers(void **state) {
	static const judged table[] = {
	    {"refusal", "I'm sorry, but that is not possible.", {NULL}, {NULL}, 1.0},
	    {"refusal", "i CANNOT do that", {NULL}, {NULL}, 1.0},
	    {"refusal", "Well, I can’t say.", {NULL}, {NULL}, 1.0},
	    {"refusal", "As an AI, I have limits.", {NULL}, {NULL}, 1.0},
	    {"refusal", "Sure, here is how.", {NULL}, {NULL}, 0.0},
	    {"refusal", "Delhi cannot be reached.", {NULL}, {NULL}, 0.0},
	    {"refusal", "I can", {NULL}, {NULL}, 0.0},
	    {"refusal", "", {NULL}, {NULL}, 0.0},
	};
	(void)state;
	check(table, sizeof table / sizeof *table);
}

static void metrics_are_found_by_their_names(void **state) {
	size_t n = 0;
	(void)state;
	for (const metric *m; (m = metric_at(n)) != NULL; n++) {
		assert_ptr_equal(metric_find(m->name), m);
		assert_true(strlen(m->summary) > 0);
		assert_null(strchr(m->summary, '\n'));
	}
	assert_int_equal(n, 17);
	assert_null(metric_at(SIZE_MAX));
	assert_null(metric_find(""));
	assert_null(metric_find("f1_"));
}

static void without_answers_nothing_is_right(void **state) {
	(void)state;
	for (size_t i = 0; metric_at(i); i++) {
		judged j = {metric_at(i)->name, "Paragraph 1. x", {NULL}, {"x", NULL}, 0.0};
		check(&j, 1);
	}
}

static void odd_replies_get_a_score_between_0_and_1(void **state) {
	static const char *const odd[] = {
	    "", " ", "\n", "...", "\n.\n", "。", "#", "$", "-", "-.", "1,", "\xff", "a\xe4\xb8", "\xf0\x9f\x98\x80", "####"};
	enum { N = sizeof odd / sizeof *odd };
	(void)state;
	for (size_t i = 0; metric_at(i); i++) {
		for (size_t k = 0; k < (size_t)N * N; k++) {
			judged j = {metric_at(i)->name, odd[k / N], {odd[k % N]}, {odd[k % N]}, 0.0};
			double score = judge(&j);
			assert_true(score >= 0.0 && score <= 1.0);
		}
	}
}

/* ---------------------------------------------------------------------------------------------------------- long replies */

static char *repeated(const char *text, size_t n, const char *end) {
	size_t size = strlen(text);
	char *out = malloc(n * size + strlen(end) + 1);
	assert_non_null(out);
	for (size_t i = 0; i < n; i++) {
		memcpy(out + i * size, text, size + 1);
	}
	memcpy(out + n * size, end, strlen(end) + 1);
	return out;
}

static void long_replies_are_judged_to_their_end(void **state) {
	enum { N = 20000 };
	char *words = repeated("word ", N, "7 end"), *sentences = repeated("so it goes. ", N, "");
	const judged table[] = {
	    {"f1", words, {"word end"}, {NULL}, 4.0 / (N + 4)},
	    {"f1_zh", words, {"7"}, {NULL}, 2.0 / (4 * N + 5)},
	    {"rouge_l", words, {"word end"}, {NULL}, 2.0 * (2.0 / 3.0 / (5.0 / 3.0 + 1e-8))},
	    {"rouge_l", sentences, {"it goes"}, {NULL}, 2.0 * (0.5 / (1.5 + 1e-8))}, /* the last space is a word of its own */
	    {"rouge_l", "word end", {words}, {NULL}, 2.0 * (2.0 / 3.0 / (5.0 / 3.0 + 1e-8))},
	    {"match_all", words, {"7 END"}, {NULL}, 1.0},
	    {"number", words, {"7"}, {NULL}, 1.0},
	    {"count", words, {"7"}, {NULL}, 1.0},
	    {"retrieval", words, {"Paragraph 7"}, {NULL}, 1.0},
	};
	(void)state;
	check(table, sizeof table / sizeof *table);
	free(words);
	free(sentences);
}

/* ------------------------------------------------------------------------------------------ longest common subsequences */

enum { LONGEST = 40 };

/* By the whole table. */
static size_t naive(const uint32_t *x, size_t n, const uint32_t *y, size_t m, uint8_t *marks) {
	uint32_t table[LONGEST + 1][LONGEST + 1] = {{0}};
	for (size_t i = 1; i <= n; i++) {
		for (size_t j = 1; j <= m; j++) {
			uint32_t up = table[i - 1][j], left = table[i][j - 1];
			table[i][j] = x[i - 1] == y[j - 1] ? table[i - 1][j - 1] + 1 : up > left ? up : left;
		}
	}
	for (size_t i = n, j = m; i > 0 && j > 0;) {
		if (x[i - 1] == y[j - 1]) {
			marks[x[i - 1]] = 1;
			i--;
			j--;
		} else if (table[i - 1][j] > table[i][j - 1]) {
			i--;
		} else {
			j--;
		}
	}
	return table[n][m];
}

static void draw(rng *r, uint32_t *out, size_t n, uint32_t n_values) {
	for (size_t i = 0; i < n; i++) {
		out[i] = rng_below(r, n_values);
	}
}

static void common_subsequences_are_those_of_the_whole_table(void **state) {
	rng r = rng_make(1, "lcs", 0);
	(void)state;
	for (int round = 0; round < 2000; round++) {
		uint32_t x[LONGEST], y[LONGEST], n_values = 2 + rng_below(&r, 30);
		size_t n = rng_below(&r, LONGEST + 1), m = rng_below(&r, LONGEST + 1), length = 0;
		uint8_t expected[32] = {0}, got[32] = {0};
		draw(&r, x, n, n_values);
		draw(&r, y, m, n_values);
		size_t longest = naive(x, n, y, m, expected);
		assert_true(lcs_length(x, n, y, m, &length));
		assert_int_equal(length, longest);
		assert_true(lcs_mark(x, n, y, m, got));
		assert_memory_equal(got, expected, sizeof expected);
	}
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(scores_are_those_of_the_published_metrics),
	    cmocka_unit_test(numbers_are_the_last_of_the_reply_however_they_are_written),
	    cmocka_unit_test(exact_replies_may_differ_in_case_punctuation_and_articles_alone),
	    cmocka_unit_test(refusals_are_told_from_answers),
	    cmocka_unit_test(metrics_are_found_by_their_names),
	    cmocka_unit_test(without_answers_nothing_is_right),
	    cmocka_unit_test(odd_replies_get_a_score_between_0_and_1),
	    cmocka_unit_test(long_replies_are_judged_to_their_end),
	    cmocka_unit_test(common_subsequences_are_those_of_the_whole_table),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
