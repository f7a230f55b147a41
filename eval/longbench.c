/* LongBench from its own data files, one for each dataset, cut in the middle where they are too long, as published. */
#define _POSIX_C_SOURCE 200809L
#include "longbench.h"

#include "cut.h"
#include "jsonl.h"
#include "metric.h"
#include "tasks.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEFAULT_LENGTH = 4096, LONGEST_PATH = 4096 };

/* ------------------------------------------------------------------------------------------------------------- templates */

/* A template in four pieces: before the context, between it and the question's begin, and the rest about {input}. */
typedef struct prompt_pieces {
	const char *before, *between, *after;
	size_t n_before, n_between;
	bool has_input;
} prompt_pieces;

static bool cut_template(const char *text, const char *name, prompt_pieces *out) {
	const char *context = strstr(text, "{context}");
	const char *from = context ? context + strlen("{context}") : NULL, *input = from ? strstr(from, "{input}") : NULL;
	if (!context || (!input && strstr(text, "{input}"))) {
		fail("the prompt of '%s' must have {context}, and {input} behind it", name);
		return false;
	}
	*out =
	    (prompt_pieces){.before = text, .n_before = (size_t)(context - text), .between = from, .has_input = input != NULL};
	/* Without a question of its own the prompt is asked by what follows the context. */
	out->n_between = input ? (size_t)(input - from) : 0;
	out->after = input ? input + strlen("{input}") : from;
	return true;
}

/* ------------------------------------------------------------------------------------------------------------ truncation */

typedef struct prompt {
	const task_options *options;
	prompt_pieces pieces;
	const char *context, *question;
	size_t n_context;
	char *text; /* scratch for all of it */
} prompt;

static size_t put(char *to, size_t at, const char *from, size_t n) {
	memcpy(to + at, from, n);
	return at + n;
}

/* Up to the question, with n bytes of the context: its two ends, whole characters. */
static size_t write_context(const prompt *p, size_t n) {
	size_t head = n >= p->n_context ? n : cut_back(p->context, n / 2 + n % 2);
	size_t tail = n >= p->n_context ? n : cut_forward(p->context, p->n_context, p->n_context - n / 2);
	size_t at = put(p->text, 0, p->pieces.before, p->pieces.n_before);
	at = put(p->text, at, p->context, head);
	at = put(p->text, at, p->context + tail, p->n_context - tail);
	return put(p->text, at, p->pieces.between, p->pieces.n_between);
}

static int32_t count_prompt(size_t n, void *user) {
	const prompt *p = user;
	size_t at = write_context(p, n);
	at = put(p->text, at, p->question, strlen(p->question));
	return p->options->count(p->text, at, p->options->user);
}

/* Sets the context, as much of it as n_tokens allow. */
static bool fill_context(prompt *p, int32_t n_tokens, const char *id, example *e) {
	size_t kept = 0;
	int32_t counted = 0;
	if (!cut_fit(count_prompt, p, p->n_context, n_tokens, &kept, &counted)) {
		return false;
	}
	if (counted > n_tokens) {
		fail("%s: the question alone takes %d tokens where %d are left beside the answer: choose a larger --length", id,
		     counted, n_tokens);
		return false;
	}
	return example_set_n(&e->context, p->text, write_context(p, kept));
}

/* -------------------------------------------------------------------------------------------------------------- examples */

static bool set_question(const prompt_pieces *pieces, const char *input, char **to) {
	const char *asked = pieces->has_input ? input : "";
	size_t size = strlen(asked) + strlen(pieces->after) + 1;
	char *text = malloc(size);
	if (!text) {
		fail("no memory for the examples");
		return false;
	}
	snprintf(text, size, "%s%s", asked, pieces->after);
	free(*to);
	*to = text;
	return true;
}

static bool push_strings(const jsonl *f, const json_t *item, const char *key, char ***list, int32_t *n) {
	const json_t *values = json_object_get(item, key);
	for (size_t i = 0; i < json_array_size(values); i++) {
		const char *value = json_string_value(json_array_get(values, i));
		if (!value) {
			return jsonl_fail(f, "\"%s\" is not a list of strings", key);
		}
		if (!example_push(list, n, value)) {
			return false;
		}
	}
	return true;
}

static bool set_lists(const jsonl *f, const json_t *item, example *e) {
	if (!push_strings(f, item, "answers", &e->answers, &e->n_answers) ||
	    !push_strings(f, item, "all_classes", &e->classes, &e->n_classes)) {
		return false;
	}
	return e->n_answers > 0 || jsonl_fail(f, "there are no \"answers\"");
}

static bool set_prompt(const prompt_pieces *pieces, const jsonl *f, const json_t *item, const task_options *o, example *e) {
	const char *context = jsonl_string(f, item, "context"), *input = jsonl_string(f, item, "input");
	if (!context || !input || !set_question(pieces, input, &e->question)) {
		return false;
	}
	prompt p = {o, *pieces, context, e->question, strlen(context), NULL};
	p.text = malloc(pieces->n_before + p.n_context + pieces->n_between + strlen(e->question) + 1);
	if (!p.text) {
		fail("no memory for the examples");
		return false;
	}
	int32_t length = o->n_lengths > 0 ? o->lengths[0] : DEFAULT_LENGTH;
	bool good = fill_context(&p, length - e->n_predict, e->id, e);
	free(p.text);
	return good;
}

static bool add_item(const longbench_set *set, const prompt_pieces *pieces, const jsonl *f, const json_t *item,
                     int32_t number, const task_options *o, example_list *list) {
	char id[96], name[64];
	snprintf(name, sizeof name, "longbench/%s", set->name);
	snprintf(id, sizeof id, "%s/%d", name, number);
	example *e = example_add(list, id, name);
	if (!e) {
		return false;
	}
	e->metric = metric_find(set->metric);
	e->n_predict = o->n_predict > 0 ? o->n_predict : set->n_predict;
	e->plain = set->plain;
	return set_lists(f, item, e) && set_prompt(pieces, f, item, o, e);
}

/* ----------------------------------------------------------------------------------------------------------------- files */

/* The file of a dataset, or of its variant of even lengths. */
static bool find_file(const longbench_set *set, const task_options *o, char path[LONGEST_PATH]) {
	static const char *const endings[] = {".jsonl", "_e.jsonl"};
	for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
		int n = snprintf(path, LONGEST_PATH, "%s/%s%s", o->data, set->name, endings[i]);
		if (n > 0 && n < LONGEST_PATH && access(path, F_OK) == 0) {
			return true;
		}
	}
	return false;
}

static bool load_file(const longbench_set *set, const char *path, const prompt_pieces *pieces, const task_options *o,
                      example_list *list) {
	jsonl f;
	if (!jsonl_open(&f, path)) {
		return false;
	}
	json_t *item = NULL;
	int more = 1;
	bool good = true;
	for (int32_t i = 0; good && (o->n_examples <= 0 || i < o->n_examples) && (more = jsonl_next(&f, &item)) > 0; i++) {
		good = add_item(set, pieces, &f, item, i, o, list);
		json_decref(item);
	}
	jsonl_close(&f);
	return good && more >= 0;
}

static bool load_set(const longbench_set *set, const char *path, const json_t *prompts, const task_options *o,
                     example_list *list) {
	const char *text = prompts ? json_string_value(json_object_get(prompts, set->name)) : set->prompt;
	prompt_pieces pieces;
	if (!text) {
		fail("%s: there is no prompt of '%s'", o->prompts, set->name);
		return false;
	}
	return cut_template(text, set->name, &pieces) && load_file(set, path, &pieces, o, list);
}

/* NULL: all of them. */
static bool in_part(const longbench_set *set, const char *part) {
	return !part || strcmp(part, set->name) == 0 || (strcmp(part, "en16") == 0 && !set->chinese) ||
	       (strcmp(part, "zh5") == 0 && set->chinese);
}

/* Of a group, files that are not there are left out when it is all of them; a group's name and a dataset's ask for each. */
static bool load_sets(const char *part, const json_t *prompts, const task_options *o, example_list *list) {
	char path[LONGEST_PATH];
	int32_t n_found = 0;
	for (size_t i = 0; longbench_at(i); i++) {
		const longbench_set *set = longbench_at(i);
		bool found = in_part(set, part) && find_file(set, o, path);
		n_found += found;
		if (in_part(set, part) && !found && part) {
			fail("'%s' has no file %s.jsonl: longbench/%s needs the data files of LongBench there", o->data, set->name,
			     part);
			return false;
		}
		if (found && !load_set(set, path, prompts, o, list)) {
			return false;
		}
	}
	if (n_found == 0) {
		fail("'%s' has no data files of LongBench, such as narrativeqa.jsonl", o->data);
	}
	return n_found > 0;
}

static bool read_prompts(const char *path, json_t **out) {
	buffer text;
	json_error_t error;
	if (!text_read(path, &text)) {
		return false;
	}
	*out = json_loadb(text.data, text.size, 0, &error);
	text_free(&text);
	if (!*out) {
		fail("%s, line %d: not JSON: %s", path, error.line, error.text);
	}
	return *out != NULL;
}

static bool load(const task *t, const char *part, const task_options *o, example_list *list) {
	json_t *prompts = NULL;
	if (!o->data) {
		fail("task '%s' needs --data: the folder with LongBench's data files, NAME.jsonl", t->name);
		return false;
	}
	if (o->prompts && !read_prompts(o->prompts, &prompts)) {
		return false;
	}
	bool good = load_sets(part, prompts, o, list);
	json_decref(prompts);
	return good;
}

static const char *const parts[] = {"narrativeqa",
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
                                    "repobench-p",
                                    "en16",
                                    "zh5",
                                    NULL};

const task task_longbench = {
    .name = "longbench",
    .summary = "LongBench: 21 datasets of long documents; en16 and zh5 are its English and Chinese ones",
    .needs = "--data FOLDER with NAME.jsonl of each dataset; --prompts dataset2prompt.json for the published wording",
    .parts = parts,
    .load = load,
};
