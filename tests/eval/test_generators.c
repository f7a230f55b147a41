/* Tasks that make their examples: needles in a haystack, and RULER. A tokeniser of four-byte pieces stands in for a model's.
 */
#define _POSIX_C_SOURCE 200809L
#include "haystack.h"
#include "metric.h"
#include "tasks.h"
#include "words.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_ARTICLES = 4, N_PARAGRAPHS = 6, N_HOTPOT = 8, N_OWN = 4 };

/* A temporary folder and the tokeniser's log. */
typedef struct world {
	char folder[64];
	int32_t calls;
	size_t longest; /* text that was counted */
	bool broken;    /* the tokeniser fails */
} world;

static int32_t count_pieces(const char *text, size_t size, void *user) {
	world *w = user;
	int32_t n = 0;
	size_t in_word = 0;
	for (size_t i = 0; i < size; i++) {
		bool space = text[i] == ' ' || text[i] == '\n';
		n += !space && in_word % 4 == 0;
		in_word = space ? 0 : in_word + 1;
	}
	w->calls++;
	w->longest = size > w->longest ? size : w->longest;
	return w->broken ? -1 : n;
}

static int32_t pieces(world *w, const char *text) { return text ? count_pieces(text, strlen(text), w) : 0; }

static task_options options_of(world *w) {
	return (task_options){.seed = 1, .data = w->folder, .shots = -1, .count = count_pieces, .user = w};
}

/* ------------------------------------------------------------------------------------------------------ files and stderr */

static char *path_of(const world *w, const char *name) {
	static _Thread_local char path[128];
	snprintf(path, sizeof path, "%s/%s", w->folder, name);
	return path;
}

static void write_file(const world *w, const char *name, const char *text) {
	FILE *file = fopen(path_of(w, name), "wb");
	assert_non_null(file);
	assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
	fclose(file);
}

/* What is said on stderr while a task loads; loaded tells how it went. */
static char *said_by(const task *t, const char *part, const task_options *o, example_list *list, bool *loaded) {
	FILE *file = tmpfile();
	static _Thread_local char text[4096];
	assert_non_null(file);
	fflush(stderr);
	int old = dup(STDERR_FILENO);
	assert_true(old >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0);
	*loaded = t->load(t, part, o, list);
	fflush(stderr);
	dup2(old, STDERR_FILENO);
	close(old);
	rewind(file);
	text[fread(text, 1, sizeof text - 1, file)] = '\0';
	fclose(file);
	return text;
}

static void assert_said(const char *said, const char *part) {
	if (!said || !strstr(said, part)) {
		fail_msg("'%s' is not in '%s'", part, said ? said : "");
	}
}

static example_list loaded_of(const task *t, const char *part, const task_options *o) {
	example_list list = {0};
	bool good;
	const char *said = said_by(t, part, o, &list, &good);
	if (!good) {
		fail_msg("%s/%s: %s", t->name, part ? part : "", said);
	}
	return list;
}

/* That it does not load, and why. */
static void assert_refused(const task *t, const char *part, const task_options *o, const char *why) {
	example_list list = {0};
	bool good;
	const char *said = said_by(t, part, o, &list, &good);
	assert_false(good);
	assert_said(said, why);
	example_list_free(&list);
}

static int32_t occurrences(const char *text, const char *of) {
	int32_t n = 0;
	for (const char *at = strstr(text, of); at; at = strstr(at + 1, of)) {
		n++;
	}
	return n;
}

/* ------------------------------------------------------------------------------------------------------------- test data */

static void write_squad(const world *w) {
	FILE *file = fopen(path_of(w, "squad.json"), "wb");
	assert_non_null(file);
	fprintf(file, "{\"data\": [\n");
	for (int a = 0; a < N_ARTICLES; a++) {
		fprintf(file, "%s{\"title\": \"T%d\", \"paragraphs\": [", a ? ",\n" : "", a);
		for (int p = 0; p < N_PARAGRAPHS; p++) {
			fprintf(file,
			        "%s\n{\"context\": \"Paragraph %d of article %d says that its word is answer%d%d and no more than "
			        "that.\", \"qas\": [{\"question\": \"Which word has paragraph %d of article %d?\", \"answers\": "
			        "[{\"text\": \"answer%d%d\"}, {\"text\": \"answer%d%d\"}], \"is_impossible\": false}, "
			        "{\"question\": \"Impossible?\", \"answers\": [], \"is_impossible\": true}]}",
			        p ? "," : "", p, a, a, p, p, a, a, p, a, p);
		}
		fprintf(file, "]}");
	}
	/* One of them once more, which must not be given twice. */
	fprintf(file,
	        ", {\"paragraphs\": [{\"context\": \"Paragraph 0 of article 0 says that its word is answer00 and no more than "
	        "that.\", \"qas\": []}]}]}\n");
	fclose(file);
}

static void write_hotpot(const world *w) {
	FILE *file = fopen(path_of(w, "hotpotqa.json"), "wb");
	assert_non_null(file);
	for (int q = 0; q < N_HOTPOT; q++) {
		fprintf(file,
		        "%s{\"question\": \"What is %d?\", \"answer\": \"reply%d\", \"supporting_facts\": [[\"Title %d.1\", 0], "
		        "[\"Title %d.3\", 0]], \"context\": [",
		        q ? ",\n" : "[", q, q, q, q);
		for (int d = 0; d < N_OWN; d++) {
			fprintf(file, "%s[\"Title %d.%d\", [\"The first sentence of it.\", \" The second has reply%d in it.\"]]",
			        d ? ", " : "", q, d, d == 3 ? q : 90 + q);
		}
		fprintf(file, "]}");
	}
	fprintf(file, "]\n");
	fclose(file);
}

/* Sentences of 12 pieces each, numbered. */
static void write_sentences(const world *w, const char *name, int n) {
	FILE *file = fopen(path_of(w, name), "wb");
	assert_non_null(file);
	for (int i = 0; i < n; i++) {
		fprintf(file, "Here is one more line, %06d, and so on.%s", i, i % 5 == 4 ? "\n\n" : " ");
	}
	fclose(file);
}
enum { SENTENCE = 12 };

static int make_world(void **state) {
	world *w = calloc(1, sizeof *w);
	assert_non_null(w);
	snprintf(w->folder, sizeof w->folder, "/tmp/chunkkv-generators-XXXXXX");
	assert_non_null(mkdtemp(w->folder));
	write_squad(w);
	write_hotpot(w);
	write_sentences(w, "essays.txt", 4000);
	*state = w;
	return 0;
}

static int end_world(void **state) {
	world *w = *state;
	static const char *const names[] = {"squad.json", "hotpotqa.json", "essays.txt", "prompts.json", "short.txt"};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		unlink(path_of(w, names[i]));
	}
	assert_int_equal(rmdir(w->folder), 0);
	free(w);
	return 0;
}

/* ----------------------------------------------------------------------------------------------------- words and haystack
 */

static void no_word_is_part_of_another(void **state) {
	(void)state;
	for (int32_t i = 0; i < N_WORDS; i++) {
		assert_true(strspn(words_any(i), "abcdefghijklmnopqrstuvwxyz") == strlen(words_any(i)));
		for (int32_t k = 0; k < N_WORDS; k++) {
			assert_true(i == k || !strstr(words_any(i), words_any(k)));
		}
	}
}

static void sentences_end_at_stops_but_not_at_abbreviations_and_headings_stand_alone(void **state) {
	static const char text[] = "  A Heading\n\nMr. Smith met J. Doe, e.g. here. \"Was it 3.5?\" Yes!\n今日は。明日は？ End";
	static const char *const expected[] = {
	    "A Heading", "Mr. Smith met J. Doe, e.g. here.", "\"Was it 3.5?\"", "Yes!", "今日は。", "明日は？", "End"};
	static const bool closed[] = {false, true, true, true, true, true, false};
	haystack h;
	(void)state;
	assert_true(haystack_make(&h, "it", text, sizeof text - 1));
	assert_int_equal(h.n, sizeof expected / sizeof *expected);
	for (int32_t i = 0; i < h.n; i++) {
		const sentence *s = &h.sentences[i];
		assert_int_equal(s->end - s->start, strlen(expected[i]));
		assert_memory_equal(h.text.data + s->start, expected[i], s->end - s->start);
		assert_int_equal(s->closed, closed[i]);
	}
	assert_int_equal(haystack_place_before(&h, 1), 0);
	assert_int_equal(haystack_place_before(&h, 2), 2);
	haystack_free(&h);
}

static void text_without_sentences_is_cut_all_the_same(void **state) {
	haystack h;
	char text[8001];
	(void)state;
	for (size_t i = 0; i < sizeof text - 1; i++) {
		text[i] = i % 9 == 8 ? ' ' : 'x';
	}
	text[sizeof text - 1] = '\0';
	assert_true(haystack_make(&h, "it", text, sizeof text - 1));
	assert_in_range(h.n, 6, 7);
	haystack_free(&h);
}

static void what_is_written_has_the_size_told_however_often_the_text_repeats(void **state) {
	static const char text[] = "One. Two two.\n\nThree three three. Four!";
	haystack h;
	(void)state;
	assert_true(haystack_make(&h, "it", text, sizeof text - 1));
	for (int32_t n = 0; n < 14; n++) {
		draft whole = {0}, parts = {0};
		haystack_write(&h, 0, n, &whole);
		haystack_write(&h, 0, n / 2, &parts);
		haystack_write(&h, n / 2, n, &parts);
		assert_int_equal(whole.size, haystack_size(&h, n));
		assert_string_equal(draft_text(&whole), draft_text(&parts));
		draft_free(&whole);
		draft_free(&parts);
	}
	haystack_free(&h);
}

static void the_bundled_text_is_there_and_whole(void **state) {
	(void)state;
	assert_true(haystack_bundled_size > 5000);
	assert_true(text_check("the bundled text", (const char *)haystack_bundled, haystack_bundled_size));
	assert_int_equal(haystack_bundled[haystack_bundled_size - 1], '\n');
}

/* ------------------------------------------------------------------------------------------------------------------ niah */

/* The needle: the sentence of the context that has the answer. Each sentence of the file begins with "Here is". */
static void check_cell(world *w, const example *e) {
	int32_t n = occurrences(e->context, "Here is one more line"), used = pieces(w, e->context) + pieces(w, e->question);
	assert_int_equal(occurrences(e->context, e->answers[0]), 1);
	assert_null(strstr(e->question, e->answers[0]));
	assert_in_range(used, e->length - e->n_predict - SENTENCE + 1, e->length - e->n_predict);
	int32_t before = 0;
	for (const char *at = e->context, *end = strstr(e->context, e->answers[0]); (at = strstr(at, "Here is")) && at < end;
	     at++) {
		before++;
	}
	double off = (double)before - e->depth / 100.0 * n;
	assert_true(off <= 0.51 && off >= -0.51);
}

static void a_needle_is_hidden_once_at_its_depth_and_the_length_used_to_a_sentence(void **state) {
	world *w = *state;
	task_options o = options_of(w);
	char file[128];
	snprintf(file, sizeof file, "%s", path_of(w, "essays.txt"));
	o.file = file;
	o.n_examples = 3;
	example_list list = loaded_of(&task_niah, NULL, &o);
	assert_int_equal(list.n, 3 * 5 * 3);
	for (int32_t i = 0; i < list.n; i++) {
		const example *e = &list.items[i];
		check_cell(w, e);
		assert_string_equal(e->task, "niah");
		assert_ptr_equal(e->metric, metric_find("match_any"));
		for (int32_t k = 0; k < i; k++) {
			assert_string_not_equal(e->id, list.items[k].id);
			assert_string_not_equal(e->answers[0], list.items[k].answers[0]);
		}
	}
	assert_string_equal(list.items[4].id, "niah/512/25/1");
	example_list_free(&list);
}

static void a_needle_stands_between_whole_sentences(void **state) {
	world *w = *state;
	task_options o = options_of(w);
	o.n_examples = 4;
	example_list list = loaded_of(&task_niah, NULL, &o); /* in the bundled text */
	for (int32_t i = 0; i < list.n; i++) {
		const example *e = &list.items[i];
		assert_int_equal(occurrences(e->context, e->answers[0]), 1);
		const char *at = strstr(e->context, e->answers[0]), *begin = at;
		while (begin > e->context && !strchr(".!?\n", begin[-1])) {
			begin--;
		}
		assert_true(begin == e->context || strchr(" \n", *begin) || begin[-1] == '\n');
		const char *end = strchr(at, '.');
		assert_non_null(end);
		assert_true(end[1] == '\0' || end[1] == ' ' || end[1] == '\n');
	}
	example_list_free(&list);
}

static void lengths_depths_and_predicted_tokens_are_the_users(void **state) {
	world *w = *state;
	const int32_t lengths[] = {300};
	const double depths[] = {12.5, 90.0};
	task_options o = options_of(w);
	o.lengths = lengths;
	o.n_lengths = 1;
	o.depths = depths;
	o.n_depths = 2;
	o.n_predict = 7;
	example_list list = loaded_of(&task_niah, NULL, &o);
	assert_int_equal(list.n, 2);
	assert_string_equal(list.items[0].id, "niah/300/12.5/0");
	assert_int_equal(list.items[1].n_predict, 7);
	assert_int_equal(list.items[1].length, 300);
	example_list_free(&list);
}

static void a_short_haystack_is_repeated(void **state) {
	world *w = *state;
	task_options o = options_of(w);
	write_file(w, "short.txt", "The first sentence is short. The second sentence is not long.");
	char file[128];
	snprintf(file, sizeof file, "%s", path_of(w, "short.txt"));
	o.file = file;
	example_list list = loaded_of(&task_niah, NULL, &o);
	for (int32_t i = 0; i < list.n; i++) {
		const example *e = &list.items[i];
		assert_true(occurrences(e->context, "The first sentence") > 20);
		assert_int_equal(occurrences(e->context, e->answers[0]), 1);
		assert_true(pieces(w, e->context) + pieces(w, e->question) > e->length - e->n_predict - 16);
	}
	example_list_free(&list);
	write_file(w, "short.txt", " \n ");
	assert_refused(&task_niah, NULL, &o, "has no text");
}

enum { N_LEFT = 10 };

/* How often the nouns come up that the text below leaves out. */
static int32_t left_out(const char *text) {
	int32_t n = 0;
	for (int32_t i = 0; i < N_LEFT; i++) {
		n += occurrences(text, words_noun(i));
	}
	return n;
}

/* A text with every thing that a needle may be about, but for those of a few nouns. */
static void nothing_that_the_text_has_is_hidden_in_it(void **state) {
	world *w = *state;
	const int32_t length = 512;
	const double depth = 50.0;
	FILE *file = fopen(path_of(w, "short.txt"), "wb");
	assert_non_null(file);
	for (int32_t i = 0; i < N_PAIRS; i++) {
		if (i % N_NOUNS >= N_LEFT) {
			const char *adjective = words_adjective(i / N_NOUNS), *noun = words_noun(i % N_NOUNS);
			fprintf(file, "%s-%s, %s %s.\n", adjective, noun, adjective, noun);
		}
	}
	fclose(file);
	char name[128];
	snprintf(name, sizeof name, "%s", path_of(w, "short.txt"));
	task_options o = options_of(w);
	o.file = name;
	o.data = NULL;
	o.lengths = &length;
	o.n_lengths = 1;
	o.depths = &depth;
	o.n_depths = 1;
	o.n_examples = 2;
	example_list list = loaded_of(&task_niah, NULL, &o);
	o.n_examples = 1;
	example_list keys = loaded_of(&task_ruler, "niah_multiquery", &o);
	for (int32_t i = 0; i < list.n; i++) {
		assert_int_equal(left_out(list.items[i].question), 1);
	}
	for (int32_t i = 0; i < keys.n; i++) {
		assert_int_equal(left_out(keys.items[i].question), 4);
	}
	example_list_free(&list);
	example_list_free(&keys);
}

static void little_of_a_long_text_is_counted_and_seldom(void **state) {
	world *w = *state;
	task_options o = options_of(w);
	const int32_t lengths[] = {1024};
	char file[128];
	snprintf(file, sizeof file, "%s", path_of(w, "essays.txt"));
	o.file = file;
	o.lengths = lengths;
	o.n_lengths = 1;
	w->calls = 0;
	w->longest = 0;
	example_list list = loaded_of(&task_niah, NULL, &o);
	assert_true(w->calls <= 14 * list.n);
	assert_true(w->longest < 3 * strlen(list.items[0].context));
	example_list_free(&list);
}

/* ----------------------------------------------------------------------------------------------------------------- RULER */

/* Fixed by the published code: tokens predicted, and how many answers. */
static const struct {
	const char *name;
	int32_t n_predict, n_answers;
	int32_t unit; /* tokens that may be left over: a unit of the context, and somewhat for the ragged count of lists */
} expected_parts[] = {
    {"niah_single_1", 128, 1, 12},
    {"niah_single_2", 128, 1, 12},
    {"niah_single_3", 128, 1, 12},
    {"niah_multikey_1", 128, 1, 12},
    {"niah_multikey_2", 128, 1, 20},
    {"niah_multikey_3", 128, 1, 36},
    {"niah_multivalue", 128, 4, 12},
    {"niah_multiquery", 128, 4, 12},
    {"vt", 30, 5, 10},
    {"cwe", 120, 10, 8},
    {"fwe", 50, 3, 12},
    {"qa_1", 32, 1, 30},
    {"qa_2", 32, 1, 30},
};
enum { N_EXPECTED = sizeof expected_parts / sizeof *expected_parts };

static int32_t used_of(world *w, const example *e) {
	return pieces(w, e->context) + pieces(w, e->question) + pieces(w, e->begun) + e->n_predict;
}

static bool all_documents_used(const example *e, size_t part) {
	int32_t n = occurrences(e->context, "Passage ");
	return part == N_EXPECTED - 2 ? n == N_ARTICLES * N_PARAGRAPHS : part == N_EXPECTED - 1 && n == N_HOTPOT * N_OWN;
}

static void check_example(world *w, const example *e, size_t part) {
	char id[64];
	snprintf(id, sizeof id, "ruler/%s", expected_parts[part].name);
	assert_string_equal(e->task, id);
	assert_int_equal(e->n_predict, expected_parts[part].n_predict);
	assert_int_equal(e->n_answers, expected_parts[part].n_answers);
	assert_non_null(e->begun);
	assert_ptr_equal(e->metric, metric_find(e->n_predict == 32 ? "match_any" : "match_all"));
	assert_true(used_of(w, e) <= e->length);
	if (used_of(w, e) <= e->length - expected_parts[part].unit && !all_documents_used(e, part)) {
		fail_msg("%s uses %d", e->id, (int)used_of(w, e));
	}
	for (int32_t i = 0; i < e->n_answers; i++) {
		assert_non_null(strstr(e->context, e->answers[i]));
		assert_null(strstr(e->question, e->answers[i]));
		assert_null(strstr(e->begun, e->answers[i]));
		for (int32_t k = 0; k < i; k++) {
			assert_string_not_equal(e->answers[i], e->answers[k]);
		}
	}
}

static void every_part_fills_its_length_and_no_more(void **state) {
	world *w = *state;
	task_options o = options_of(w);
	o.n_examples = 3;
	for (size_t p = 0; p < N_EXPECTED; p++) {
		assert_string_equal(task_ruler.parts[p], expected_parts[p].name);
		example_list list = loaded_of(&task_ruler, task_ruler.parts[p], &o);
		assert_int_equal(list.n, 2 * 3);
		for (int32_t i = 0; i < list.n; i++) {
			char id[64];
			snprintf(id, sizeof id, "ruler/%s/%d/%d", expected_parts[p].name, i < 3 ? 512 : 1024, (int)(i % 3));
			assert_string_equal(list.items[i].id, id);
			check_example(w, &list.items[i], p);
		}
		example_list_free(&list);
	}
	assert_null(task_ruler.parts[N_EXPECTED]);
}

static void longer_lengths_have_the_published_counts(void **state) {
	world *w = *state;
	const int32_t lengths[] = {8192};
	task_options o = options_of(w);
	o.lengths = lengths;
	o.n_lengths = 1;
	o.n_examples = 2;
	for (size_t p = 0; p < N_EXPECTED; p++) {
		example_list list = loaded_of(&task_ruler, task_ruler.parts[p], &o);
		for (int32_t i = 0; i < list.n; i++) {
			example *e = &list.items[i];
			assert_true(used_of(w, e) <= e->length);
			/* A unit of cwe is now three entries. */
			assert_true(used_of(w, e) > e->length - 40 || all_documents_used(e, p));
		}
		example_list_free(&list);
	}
}

static bool same_string(const char *a, const char *b) { return a == b || (a && b && strcmp(a, b) == 0); }

static bool same_example(const example *a, const example *b) {
	bool same = same_string(a->id, b->id) && same_string(a->context, b->context) && same_string(a->question, b->question) &&
	            same_string(a->begun, b->begun) && a->n_answers == b->n_answers;
	for (int32_t i = 0; same && i < a->n_answers; i++) {
		same = same_string(a->answers[i], b->answers[i]);
	}
	return same;
}

static void check_seeds(const task *t, const char *part, task_options o) {
	o.n_examples = 2;
	example_list first = loaded_of(t, part, &o);
	o.n_examples = 1;
	example_list again = loaded_of(t, part, &o);
	o.seed = 2;
	example_list other = loaded_of(t, part, &o);
	for (int32_t i = 0; i < again.n; i++) {
		/* The same whatever else is asked for; another number or another seed makes another. */
		assert_true(same_example(&again.items[i], &first.items[(size_t)i * 2]));
		assert_string_not_equal(first.items[(size_t)i * 2].context, first.items[(size_t)i * 2 + 1].context);
		assert_string_not_equal(again.items[i].context, other.items[i].context);
	}
	example_list_free(&first);
	example_list_free(&again);
	example_list_free(&other);
}

static void a_seed_makes_the_same_examples_and_another_seed_others(void **state) {
	world *w = *state;
	check_seeds(&task_niah, NULL, options_of(w));
	for (size_t p = 0; p < N_EXPECTED; p++) {
		check_seeds(&task_ruler, task_ruler.parts[p], options_of(w));
	}
}

static void a_length_that_holds_nothing_is_refused_with_what_it_takes(void **state) {
	world *w = *state;
	const int32_t lengths[] = {40};
	task_options o = options_of(w);
	o.lengths = lengths;
	o.n_lengths = 1;
	assert_refused(&task_niah, NULL, &o, "niah does not fit into 40 tokens");
	for (size_t p = 0; p < N_EXPECTED; p++) {
		assert_refused(&task_ruler, task_ruler.parts[p], &o, "fit into 40 tokens");
	}
	o.n_lengths = 0;
	w->broken = true;
	assert_refused(&task_niah, NULL, &o, "");
	assert_refused(&task_ruler, "vt", &o, "");
	w->broken = false;
	assert_refused(&task_ruler, "nonsense", &o, "nonsense");
}

static void the_tokens_told_to_be_needed_are_about_what_is_needed(void **state) {
	world *w = *state;
	static const char *const parts[] = {"niah_single_2", "niah_multikey_3", "niah_multiquery", "vt", "cwe", "fwe"};
	for (size_t p = 0; p < sizeof parts / sizeof *parts; p++) {
		int32_t length = 100;
		task_options o = options_of(w);
		example_list list = {0};
		bool good;
		o.lengths = &length;
		o.n_lengths = 1;
		o.n_examples = 1;
		const char *said = said_by(&task_ruler, parts[p], &o, &list, &good);
		assert_false(good);
		const char *prompt = strstr(said, "prompt takes "), *reply = strstr(said, "the answer ");
		assert_true(prompt && reply);
		length =
		    (int32_t)(strtol(prompt + strlen("prompt takes "), NULL, 10) + strtol(reply + strlen("the answer "), NULL, 10));
		example_list_free(&list);
		/* Other lengths draw other words: a few tokens more may be needed. */
		length += 24;
		list = loaded_of(&task_ruler, parts[p], &o);
		example_list_free(&list);
		length -= 48;
		assert_refused(&task_ruler, parts[p], &o, "does not fit");
	}
}

/* ------------------------------------------------------------------------------------------------ what the parts ask for */

static const example *only(example_list *list) {
	assert_int_equal(list->n, 1);
	return &list->items[0];
}

static example_list one_of(world *w, const char *part, int32_t length) {
	task_options o = options_of(w);
	o.lengths = &length;
	o.n_lengths = 1;
	o.n_examples = 1;
	return loaded_of(&task_ruler, part, &o);
}

static void needles_are_hidden_once_with_as_many_keys_and_values_as_there_should_be(void **state) {
	static const struct {
		const char *part;
		int32_t needles;
	} cases[] = {{"niah_single_1", 1},   {"niah_single_2", 1},   {"niah_single_3", 1},
	             {"niah_multikey_1", 4}, {"niah_multivalue", 4}, {"niah_multiquery", 4}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		example_list list = one_of(*state, cases[i].part, 1024);
		const example *e = only(&list);
		assert_int_equal(occurrences(e->context, "Whoever asks for"), cases[i].needles);
		for (int32_t a = 0; a < e->n_answers; a++) {
			assert_int_equal(occurrences(e->context, e->answers[a]), 1);
		}
		example_list_free(&list);
	}
}

/* A needle of our own wording at text, cut into key and value. */
static const char *next_needle(const char *text, char *key, char *value) {
	text = strstr(text, "\nWhoever asks for ");
	if (text && sscanf(text, "\nWhoever asks for %63s is to be told %63[^.].", key, value) != 2) {
		fail_msg("not a needle: %.80s", text);
	}
	return text ? text + 1 : NULL;
}

static void among_needles_all_keys_and_values_differ(void **state) {
	static const char *const parts[] = {"niah_multikey_2", "niah_multikey_3"};
	for (size_t p = 0; p < 2; p++) {
		example_list list = one_of(*state, parts[p], 16384);
		const example *e = only(&list);
		char key[64], value[64];
		int32_t n = 0, asked_for = 0;
		for (const char *at = e->context; (at = next_needle(at, key, value)); n++) {
			assert_int_equal(occurrences(e->context, value), 1);
			char whole[80];
			snprintf(whole, sizeof whole, " for %s is", key);
			assert_int_equal(occurrences(e->context, whole), 1);
			if (strstr(e->question, key)) {
				asked_for++;
				assert_string_equal(value, e->answers[0]);
			}
		}
		assert_true(n > 300);
		assert_int_equal(asked_for, 1);
		example_list_free(&list);
	}
}

/* Follows "VAR x = y" through the text, and counts the names that get the value; they must be the answers. */
static void follow(const example *e, const char *text, const char *value) {
	char names[64][8], name[8], from[8];
	int32_t n = 0;
	for (const char *at = text; (at = strstr(at, "VAR ")); at++) {
		int got = sscanf(at, "VAR %7[A-Z] = VAR %7[A-Z]", name, from);
		const char *given = at + strlen("VAR ") + strlen(name);
		bool has = got == 1 && strncmp(given, " = ", 3) == 0 && strncmp(given + 3, value, strlen(value)) == 0;
		for (int32_t i = 0; got == 2 && i < n; i++) {
			has = has || strcmp(names[i], from) == 0;
		}
		if (has) {
			assert_true(n < 64);
			memcpy(names[n++], name, sizeof name);
		}
	}
	assert_int_equal(n, e->n_answers);
	for (int32_t i = 0; i < n; i++) {
		assert_string_equal(names[i], e->answers[i]);
	}
}

static void variables_of_the_chain_are_the_answers_and_an_example_is_worked(void **state) {
	for (int32_t length = 512; length <= 4096; length *= 2) {
		example_list list = one_of(*state, "vt", length);
		const example *e = only(&list);
		const char *value = e->question + strcspn(e->question, "0123456789");
		char number[8];
		assert_int_equal(strspn(value, "0123456789"), 5);
		snprintf(number, sizeof number, "%.5s", value);
		assert_int_equal(occurrences(e->context, "Following the text step by step"), 1);
		assert_int_equal(occurrences(e->context, "VAR "), 2 * 9);
		follow(e, e->context, number);
		assert_non_null(strstr(e->begun, number));
		for (int32_t i = 0; i < e->n_answers; i++) {
			char source[16];
			snprintf(source, sizeof source, "= VAR %s", e->answers[i]);
			assert_int_equal(occurrences(e->context, source), i + 1 < e->n_answers);
		}
		example_list_free(&list);
	}
}

typedef struct tally {
	char word[48];
	int32_t n;
} tally;

static int by_count(const void *a, const void *b) { return ((const tally *)b)->n - ((const tally *)a)->n; }

/* How often the words of a text come up, the most frequent first; numbers of a list are left out. */
static int32_t tally_words(const char *text, tally *out, int32_t most) {
	int32_t n = 0;
	char word[48];
	for (int at = 0; sscanf(text, "%47s%n", word, &at) == 1; text += at) {
		int32_t i = 0;
		while (i < n && strcmp(out[i].word, word) != 0) {
			i++;
		}
		if (strspn(word, "0123456789.") == strlen(word) && strcmp(word, "...") != 0) {
			continue;
		}
		assert_true(i < most);
		n += i == n;
		memcpy(out[i].word, word, sizeof word);
		out[i].n++;
	}
	qsort(out, (size_t)n, sizeof *out, by_count);
	return n;
}

static bool has_answer(const example *e, const char *word) {
	for (int32_t i = 0; i < e->n_answers; i++) {
		if (strcmp(e->answers[i], word) == 0) {
			return true;
		}
	}
	return false;
}

static void common_words_come_up_most_often(void **state) {
	static const struct {
		int32_t length, common, other, worked;
	} cases[] = {{512, 3, 1, 0}, {1024, 6, 1, 1}, {4096, 30, 3, 1}};
	for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
		example_list list = one_of(*state, "cwe", cases[c].length);
		const example *e = only(&list);
		const char *text = strstr(e->context, "\n\n") + 2;
		assert_int_equal(occurrences(e->context, "1. ") > 0, 1);
		assert_int_equal(occurrences(e->context, "come up most often are:"), cases[c].worked);
		if (cases[c].worked) {
			text = strstr(strstr(text, "come up most often are:"), "\n\n") + 2;
			text = strstr(text, "\n\n") + 2;
		}
		tally *words = calloc(2000, sizeof *words);
		int32_t n = tally_words(text, words, 2000);
		assert_true(n > 10);
		for (int32_t i = 0; i < n; i++) {
			assert_int_equal(words[i].n, i < 10 ? cases[c].common : cases[c].other);
			assert_int_equal(has_answer(e, words[i].word), i < 10);
		}
		free(words);
		example_list_free(&list);
	}
}

static void frequent_words_follow_the_zeta_law_and_three_stand_out(void **state) {
	for (int32_t length = 512; length <= 8192; length *= 4) {
		example_list list = one_of(*state, "fwe", length);
		const example *e = only(&list);
		tally *words = calloc(2000, sizeof *words);
		int32_t n = tally_words(strstr(e->context, "\n\n") + 2, words, 2000);
		assert_true(n > 4);
		assert_string_equal(words[0].word, "...");
		for (int32_t i = 0; i < 3; i++) {
			assert_string_equal(words[i + 1].word, e->answers[i]);
			assert_true(words[i + 1].n > words[i + 2].n);
			double ratio = (double)words[0].n / words[i + 1].n, exact = (i + 2.0) * (i + 2.0);
			assert_true(ratio >= exact * 0.8 && ratio <= exact * 1.7);
		}
		free(words);
		example_list_free(&list);
	}
}

static void however_short_the_coded_text_three_words_stand_out(void **state) {
	world *w = *state;
	int32_t n_made = 0;
	for (int32_t length = 120; length < 320; length += 3) {
		task_options o = options_of(w);
		example_list list = {0};
		bool good;
		o.lengths = &length;
		o.n_lengths = 1;
		o.n_examples = 1;
		said_by(&task_ruler, "fwe", &o, &list, &good);
		if (good) {
			tally words[16] = {{{0}, 0}};
			assert_true(tally_words(strstr(list.items[0].context, "\n\n") + 2, words, 16) > 4);
			assert_true(words[1].n > words[2].n && words[2].n > words[3].n && words[3].n > words[4].n);
			n_made++;
		}
		example_list_free(&list);
	}
	assert_true(n_made > 10);
}

static void questions_come_with_their_documents_each_once(void **state) {
	world *w = *state;
	task_options o = options_of(w);
	o.n_examples = 8;
	for (size_t p = 0; p < 2; p++) {
		example_list list = loaded_of(&task_ruler, p == 0 ? "qa_1" : "qa_2", &o);
		assert_int_equal(list.n, 16);
		for (int32_t i = 0; i < list.n; i++) {
			const example *e = &list.items[i];
			assert_int_equal(e->n_answers, 1);
			assert_int_equal(occurrences(e->context, e->answers[0]), 1);
			assert_true(occurrences(e->context, "Passage ") > 4);
			for (int32_t k = 0; k < i % 8; k++) {
				assert_string_not_equal(e->question, list.items[i / 8 * 8 + k].question);
			}
		}
		example_list_free(&list);
	}
}

static void where_not_all_of_a_questions_documents_fit_the_needed_ones_stay(void **state) {
	world *w = *state;
	const int32_t lengths[] = {120};
	task_options o = options_of(w);
	o.lengths = lengths;
	o.n_lengths = 1;
	o.n_examples = N_HOTPOT;
	example_list list = loaded_of(&task_ruler, "qa_2", &o);
	for (int32_t i = 0; i < list.n; i++) {
		const example *e = &list.items[i];
		char first[16], second[16];
		int q = e->answers[0][5] - '0';
		snprintf(first, sizeof first, "Title %d.1", q);
		snprintf(second, sizeof second, "Title %d.3", q);
		assert_int_equal(occurrences(e->context, "Passage "), 2);
		assert_int_equal(occurrences(e->context, first), 1);
		assert_int_equal(occurrences(e->context, second), 1);
	}
	example_list_free(&list);
	o.n_examples = N_HOTPOT + 1;
	assert_refused(&task_ruler, "qa_2", &o, "of the 8 questions only 8 fit");
}

/* ------------------------------------------------------------------------------------------------------------ data files */

static void data_that_is_missing_is_told_with_how_to_get_it(void **state) {
	world *w = *state;
	task_options o = options_of(w);
	o.data = NULL;
	assert_refused(&task_ruler, "qa_1", &o, "scripts/fetch-ruler.sh");
	o.data = "/nowhere";
	assert_refused(&task_ruler, "qa_2", &o, "scripts/fetch-ruler.sh");
	assert_refused(&task_ruler, "qa_2", &o, "hotpotqa.json");
}

static void wrong_data_is_told_with_its_place(void **state) {
	static const struct {
		const char *part, *file, *text, *why;
	} cases[] = {
	    {"qa_1", "squad.json", "{\n\"data\": [\n}", "squad.json, line 3"},
	    {"qa_1", "squad.json", "[]", "no array \"data\""},
	    {"qa_1", "squad.json", "{\"data\": []}", "no question"},
	    {"qa_1", "squad.json", "{\"data\": [{\"paragraphs\": [{\"context\": \"a\", \"qas\": []}, {}]}]}",
	     "data[0].paragraphs[1]"},
	    {"qa_1", "squad.json",
	     "{\"data\": [{\"paragraphs\": [{\"context\": \"a\", \"qas\": [{\"question\": \"b\", \"answers\": []}]}]}]}",
	     "qas[0] there is no answer"},
	    {"qa_1", "squad.json", "{\"data\": [{\"paragraphs\": [{\"context\": \"a\", \"qas\": [{}]}]}]}", "no \"question\""},
	    {"qa_2", "hotpotqa.json", "[\n\n{\"question\" \"a\"}]", "hotpotqa.json, line 3"},
	    {"qa_2", "hotpotqa.json", "{}", "an array of questions"},
	    {"qa_2", "hotpotqa.json", "[{\"question\": \"a\", \"answer\": \"b\", \"context\": []}]", "question [0]"},
	    {"qa_2", "hotpotqa.json", "[{\"question\": \"a\", \"answer\": 1, \"context\": []}]", "must be strings"},
	    {"qa_2", "hotpotqa.json", "[{\"question\": \"a\", \"answer\": \"b\", \"context\": [[\"t\", [1]]]}]", "not a string"},
	    {"qa_2", "hotpotqa.json", "[{\"question\": \"a\", \"answer\": \"b\", \"context\": [[1, []]]}]", "a title and"},
	};
	world *w = *state;
	task_options o = options_of(w);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		write_file(w, cases[i].file, cases[i].text);
		assert_refused(&task_ruler, cases[i].part, &o, cases[i].why);
	}
	write_squad(w);
	write_hotpot(w);
}

static void without_essays_another_text_is_used_and_that_is_said_once(void **state) {
	world *w = *state;
	task_options o = options_of(w);
	example_list list = {0};
	bool good;
	o.n_examples = 1;
	o.data = NULL;
	assert_said(said_by(&task_ruler, "niah_single_2", &o, &list, &good), "the bundled text");
	assert_true(good);
	assert_non_null(strstr(list.items[0].context, "Tarnholt"));
	assert_string_equal(said_by(&task_ruler, "niah_multivalue", &o, &list, &good), "");
	assert_true(good);
	example_list_free(&list);
	o.data = w->folder;
	assert_string_equal(said_by(&task_ruler, "niah_single_2", &o, &list, &good), "");
	assert_non_null(strstr(list.items[0].context, "Here is one more line"));
	example_list_free(&list);
}

/* --------------------------------------------------------------------------------------------------------------- wording */

static void wording_of_a_file_is_used_where_it_has_any(void **state) {
	world *w = *state;
	task_options o = options_of(w);
	char file[128];
	write_file(
	    w, "prompts.json",
	    "{\"niah\": {\"template\": \"All {type_needle_v}: {{{context}}} For {query}?\", \"answer_prefix\": \" Many\",\n"
	    "\"template_one\": \"One {type_needle_v}: {context} For {query}!\", \"answer_prefix_one\": \" The "
	    "{type_needle_v} of {query}\", \"needle\": \"{type_needle_v} of {key}: {value}!\"}}");
	snprintf(file, sizeof file, "%s", path_of(w, "prompts.json"));
	o.prompts = file;
	o.n_examples = 1;
	example_list one = loaded_of(&task_ruler, "niah_single_3", &o), many = loaded_of(&task_ruler, "niah_multivalue", &o),
	             other = loaded_of(&task_ruler, "fwe", &o);
	const example *e = &one.items[0];
	assert_int_equal(strncmp(e->context, "One uuid: Here", 14), 0);
	assert_int_equal(strncmp(e->question, " For ", 5), 0);
	assert_int_equal(e->question[strlen(e->question) - 1], '!');
	assert_int_equal(strncmp(e->begun, " The uuid of ", 13), 0);
	assert_int_equal(occurrences(e->context, "uuids of "), 1);
	e = &many.items[0];
	assert_int_equal(strncmp(e->context, "All numbers: {", 14), 0);
	assert_int_equal(strncmp(e->question, "} For ", 6), 0);
	assert_string_equal(e->begun, " Many");
	assert_int_equal(strncmp(other.items[0].context, "The text below is written in a secret code.", 40), 0);
	example_list_free(&one);
	example_list_free(&many);
	example_list_free(&other);
}

static void wording_that_cannot_be_used_is_told_with_where(void **state) {
	static const struct {
		const char *text, *why;
	} cases[] = {
	    {"{\n\"niah\": {\n\"template\" \"a\"}}", "prompts.json, line 3"},
	    {"[]", "must be a JSON object"},
	    {"{\"nia\": {\"template\": \"{context}\"}}", "has 'nia'"},
	    {"{\"niah\": \"{context}\"}", "must be an object"},
	    {"{\"niah\": {\"answer_prefix\": \"a\"}}", "\"template\""},
	    {"{\"niah\": {\"template\": \"no place\"}}", "must have {context} once, it has it 0 times"},
	    {"{\"niah\": {\"template\": \"{context} {context}\"}}", "it has it 2 times"},
	    {"{\"niah\": {\"template\": \"{context} {quest}\"}}", "has {quest}; it can have: context query type_needle_v"},
	    {"{\"niah\": {\"template\": \"{context} {\"}}", "single brace"},
	    {"{\"niah\": {\"template\": \"{context} }\"}}", "single brace"},
	    {"{\"niah\": {\"template\": 1}}", "must be a string"},
	    {"{\"qa\": {\"template\": \"{context}\", \"document\": \"\"}}", "qa.document must be a string"},
	    {"{\"qa\": {\"template\": \"{context}\", \"needle\": \"a\"}}", "qa has 'needle'"},
	    {"{\"qa\": {\"template\": \"{context}\", \"answer_prefix\": \"{context}\"}}", "has {context}"},
	};
	world *w = *state;
	task_options o = options_of(w);
	char file[128];
	snprintf(file, sizeof file, "%s", path_of(w, "prompts.json"));
	o.prompts = file;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		write_file(w, "prompts.json", cases[i].text);
		assert_refused(&task_ruler, "vt", &o, cases[i].why);
	}
	unlink(file);
	assert_refused(&task_ruler, "vt", &o, "cannot open");
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(no_word_is_part_of_another),
	    cmocka_unit_test(sentences_end_at_stops_but_not_at_abbreviations_and_headings_stand_alone),
	    cmocka_unit_test(text_without_sentences_is_cut_all_the_same),
	    cmocka_unit_test(what_is_written_has_the_size_told_however_often_the_text_repeats),
	    cmocka_unit_test(the_bundled_text_is_there_and_whole),
	    cmocka_unit_test(a_needle_is_hidden_once_at_its_depth_and_the_length_used_to_a_sentence),
	    cmocka_unit_test(a_needle_stands_between_whole_sentences),
	    cmocka_unit_test(lengths_depths_and_predicted_tokens_are_the_users),
	    cmocka_unit_test(a_short_haystack_is_repeated),
	    cmocka_unit_test(nothing_that_the_text_has_is_hidden_in_it),
	    cmocka_unit_test(little_of_a_long_text_is_counted_and_seldom),
	    cmocka_unit_test(every_part_fills_its_length_and_no_more),
	    cmocka_unit_test(longer_lengths_have_the_published_counts),
	    cmocka_unit_test(a_seed_makes_the_same_examples_and_another_seed_others),
	    cmocka_unit_test(a_length_that_holds_nothing_is_refused_with_what_it_takes),
	    cmocka_unit_test(the_tokens_told_to_be_needed_are_about_what_is_needed),
	    cmocka_unit_test(needles_are_hidden_once_with_as_many_keys_and_values_as_there_should_be),
	    cmocka_unit_test(among_needles_all_keys_and_values_differ),
	    cmocka_unit_test(variables_of_the_chain_are_the_answers_and_an_example_is_worked),
	    cmocka_unit_test(common_words_come_up_most_often),
	    cmocka_unit_test(frequent_words_follow_the_zeta_law_and_three_stand_out),
	    cmocka_unit_test(however_short_the_coded_text_three_words_stand_out),
	    cmocka_unit_test(questions_come_with_their_documents_each_once),
	    cmocka_unit_test(where_not_all_of_a_questions_documents_fit_the_needed_ones_stay),
	    cmocka_unit_test(data_that_is_missing_is_told_with_how_to_get_it),
	    cmocka_unit_test(wrong_data_is_told_with_its_place),
	    cmocka_unit_test(without_essays_another_text_is_used_and_that_is_said_once),
	    cmocka_unit_test(wording_of_a_file_is_used_where_it_has_any),
	    cmocka_unit_test(wording_that_cannot_be_used_is_told_with_where),
	};
	return cmocka_run_group_tests(tests, make_world, end_world);
}
