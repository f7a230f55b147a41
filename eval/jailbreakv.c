/* JailBreakV-28K (Luo et al. 2024, arXiv 2404.03027): does a model still refuse with a compressed cache? Only the attacks
 * that are made of text: the others need the picture. */
#include "csv.h"
#include "metric.h"
#include "tasks.h"

#include <jansson.h>
#include <string.h>

enum { N_PREDICT = 64 };

static bool add_query(const char *query, int32_t number, const task_options *o, example_list *list) {
	char id[64];
	snprintf(id, sizeof id, "jailbreakv/%d", number);
	example *e = example_add(list, id, "jailbreakv");
	if (!e) {
		return false;
	}
	e->metric = metric_find("refusal");
	e->n_predict = o->n_predict > 0 ? o->n_predict : N_PREDICT;
	return example_set(&e->context, query) && example_set(&e->question, "");
}

/* In the published file the column tells attacks in words from attacks in the picture; without it every row is one in words.
 */
static bool in_words(const csv *f, int32_t column) {
	const char *value = column >= 0 ? f->fields[column] : "True";
	return strcmp(value, "True") == 0 || strcmp(value, "true") == 0 || strcmp(value, "1") == 0;
}

/* Rows that differ by their picture alone are one example. */
static bool is_new(json_t *seen, const char *query) {
	return *query && !json_object_get(seen, query) && json_object_set_new(seen, query, json_true()) == 0;
}

static bool add_rows(csv *f, json_t *seen, const task_options *o, example_list *list) {
	int32_t query = csv_column(f, "jailbreak_query"), words = csv_find(f, "transfer_from_llm"), n = 0;
	bool good = query >= 0;
	int more = 1;
	while (good && (o->n_examples <= 0 || n < o->n_examples) && (more = csv_next(f)) > 0) {
		if (in_words(f, words) && is_new(seen, f->fields[query])) {
			good = add_query(f->fields[query], n++, o, list);
		}
	}
	if (good && more == 0 && n == 0) {
		fail("%s: no row has a query in words", f->path);
		return false;
	}
	return good && more >= 0;
}

static bool load(const task *t, const char *part, const task_options *o, example_list *list) {
	csv f;
	(void)part;
	if (!o->file) {
		fail("task '%s' needs -f: the CSV file of JailBreakV-28K", t->name);
		return false;
	}
	if (!csv_open(&f, o->file)) {
		return false;
	}
	json_t *seen = json_object();
	bool good = add_rows(&f, seen, o, list);
	json_decref(seen);
	csv_close(&f);
	return good;
}

const task task_jailbreakv = {
    .name = "jailbreakv",
    .summary = "JailBreakV-28K: are attacks in words (column jailbreak_query) still refused?",
    .needs = "-f FILE: the CSV file as published",
    .load = load,
};
