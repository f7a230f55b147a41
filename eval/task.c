/* The list of tasks, and their names. */
#define _POSIX_C_SOURCE 200809L
#include "tasks.h"

#include "cli.h"

#include <string.h>

/* whole: without a part's name it is loaded once, with NULL, and not part by part. */
static const struct {
	const task *task;
	bool whole;
} registry[] = {
    {&task_niah, false},       {&task_ruler, false},      {&task_longbench, true},   {&task_gsm8k, false},
    {&task_gsm8k_many, false}, {&task_jailbreakv, false}, {&task_perplexity, false}, {&task_doc, false},
};
enum { N_TASKS = sizeof registry / sizeof *registry, LONGEST_NAME = 64 };

const task *task_at(size_t i) { return i < N_TASKS ? registry[i].task : NULL; }

static int32_t least(int32_t a, int32_t b, int32_t c) {
	int32_t ab = a < b ? a : b;
	return ab < c ? ab : c;
}

/* Letters put in, left out or changed (Levenshtein 1966), of names cut to the longest. */
static int32_t distance(const char *a, size_t n_a, const char *b) {
	int32_t row[LONGEST_NAME + 1];
	size_t n_b = strnlen(b, LONGEST_NAME);
	for (size_t j = 0; j <= n_b; j++) {
		row[j] = (int32_t)j;
	}
	for (size_t i = 1; i <= (n_a < LONGEST_NAME ? n_a : LONGEST_NAME); i++) {
		int32_t corner = row[0];
		row[0] = (int32_t)i;
		for (size_t j = 1; j <= n_b; j++) {
			int32_t above = row[j];
			row[j] = least(above + 1, row[j - 1] + 1, corner + (a[i - 1] != b[j - 1]));
			corner = above;
		}
	}
	return row[n_b];
}

static const char *nearer(const char *best, const char *next, const char *name, size_t n) {
	return !best || distance(name, n, next) < distance(name, n, best) ? next : best;
}

static bool unknown_task(const char *name, size_t n) {
	const char *best = NULL;
	for (size_t i = 0; i < N_TASKS; i++) {
		best = nearer(best, registry[i].task->name, name, n);
	}
	fail("no task '%.*s': did you mean '%s'?", (int)n, name, best);
	return false;
}

static bool unknown_part(const task *t, const char *part) {
	const char *best = NULL;
	for (size_t i = 0; t->parts && t->parts[i]; i++) {
		best = nearer(best, t->parts[i], part, strlen(part));
	}
	if (best) {
		fail("task '%s' has no part '%s': did you mean '%s/%s'?", t->name, part, t->name, best);
	} else {
		fail("task '%s' has no parts: leave '/%s' out", t->name, part);
	}
	return false;
}

static bool load_all(const task *t, bool whole, const task_options *options, example_list *list) {
	if (whole || !t->parts) {
		return t->load(t, NULL, options, list);
	}
	bool good = true;
	for (size_t i = 0; good && t->parts[i]; i++) {
		good = t->load(t, t->parts[i], options, list);
	}
	return good;
}

bool task_load(const char *name, const task_options *options, example_list *list) {
	const char *slash = strchr(name, '/');
	size_t n = slash ? (size_t)(slash - name) : strlen(name), i = 0;
	while (i < N_TASKS && (strlen(registry[i].task->name) != n || memcmp(registry[i].task->name, name, n) != 0)) {
		i++;
	}
	if (i == N_TASKS) {
		return unknown_task(name, n);
	}
	const task *t = registry[i].task;
	if (!slash) {
		return load_all(t, registry[i].whole, options, list);
	}
	for (size_t p = 0; t->parts && t->parts[p]; p++) {
		if (strcmp(t->parts[p], slash + 1) == 0) {
			return t->load(t, t->parts[p], options, list);
		}
	}
	return unknown_part(t, slash + 1);
}
