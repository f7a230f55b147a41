/* GSM8K (Cobbe et al. 2021, arXiv 2110.14168): school problems, alone or behind many worked ones, as ChunkKV's many-shot
 * measurement has them (arXiv 2502.00299). */
#define _POSIX_C_SOURCE 200809L
#include "jsonl.h"
#include "metric.h"
#include "random.h"
#include "tasks.h"

#include <stdlib.h>
#include <string.h>

enum { N_PREDICT = 256, MANY_SHOTS = 50, LONGEST_PATH = 4096 };

#define INSTRUCTION "Solve the problem step by step. End with a line of #### and the result, a number.\n\n"

/* Both strings owned. */
typedef struct problem {
	char *question, *solution; /* the solution's last line is "#### 18" */
} problem;

typedef struct problem_list {
	problem *items;
	int32_t n;
	int32_t *order; /* that worked examples are taken in */
} problem_list;

static void free_problems(problem_list *p) {
	for (int32_t i = 0; i < p->n; i++) {
		free(p->items[i].question);
		free(p->items[i].solution);
	}
	free(p->items);
	free(p->order);
	*p = (problem_list){NULL, 0, NULL};
}

/* Where the result stands: behind the last ####; of a bare number, at its begin. */
static const char *result_of(const char *solution) {
	const char *result = solution;
	for (const char *mark = solution; (mark = strstr(mark, "####")) != NULL;) {
		mark += 4;
		result = mark;
	}
	return result + strspn(result, " \t");
}

/* Without the commas of thousands. */
static bool set_result(const char *solution, example *e) {
	char result[64];
	size_t n = 0;
	for (const char *from = result_of(solution); *from && !strchr(" \t\r\n", *from) && n + 1 < sizeof result; from++) {
		result[n] = *from;
		n += *from != ',';
	}
	result[n] = '\0';
	return example_push(&e->answers, &e->n_answers, result);
}

/* Cuts out the notes for a calculator, <<6*2=12>>, which no answer should have. */
static void drop_notes(char *text) {
	char *to = text;
	for (const char *from = text; *from;) {
		const char *end = strncmp(from, "<<", 2) == 0 ? strstr(from, ">>") : NULL;
		if (end) {
			from = end + 2;
		} else {
			*to++ = *from++;
		}
	}
	*to = '\0';
}

/* ------------------------------------------------------------------------------------------------------------------ file */

static bool add_problem(problem_list *p, const jsonl *f, const json_t *item) {
	const char *question = jsonl_string(f, item, "question"), *solution = jsonl_string(f, item, "answer");
	if (!question || !solution) {
		return false;
	}
	if (!strpbrk(result_of(solution), "0123456789")) {
		return jsonl_fail(f, "the \"answer\" has no number behind ####");
	}
	problem *bigger = realloc(p->items, ((size_t)p->n + 1) * sizeof *bigger);
	if (!bigger) {
		fail("no memory for the problems");
		return false;
	}
	p->items = bigger;
	p->items[p->n++] = (problem){NULL, NULL};
	problem *last = &p->items[p->n - 1];
	if (!example_set(&last->question, question) || !example_set(&last->solution, solution)) {
		return false;
	}
	drop_notes(last->solution);
	return true;
}

static bool read_problems(problem_list *p, const char *path) {
	jsonl f;
	if (!jsonl_open(&f, path)) {
		return false;
	}
	json_t *item = NULL;
	int more = 0;
	bool good = true;
	while (good && (more = jsonl_next(&f, &item)) > 0) {
		good = add_problem(p, &f, item);
		json_decref(item);
	}
	jsonl_close(&f);
	return good && more == 0;
}

static bool shuffle_problems(problem_list *p, uint32_t seed) {
	p->order = calloc((size_t)p->n + 1, sizeof *p->order);
	if (!p->order) {
		fail("no memory for the problems");
		return false;
	}
	rng random = rng_make(seed, "gsm8k shots", 0);
	rng_shuffle(&random, p->order, p->n);
	return true;
}

/* -------------------------------------------------------------------------------------------------------------- examples */

static void write_shot(FILE *to, const problem *p) {
	bool worked = strstr(p->solution, "####") != NULL;
	fprintf(to, "Question: %s\nAnswer: %s%s\n\n", p->question, worked ? "" : "#### ", p->solution);
}

/* In the same order for all, so that prompts differ little; the asked problem is left out, even where it stands twice. */
static int32_t write_shots(FILE *to, const problem_list *p, int32_t asked, int32_t shots) {
	int32_t written = 0;
	for (int32_t i = 0; i < p->n && written < shots; i++) {
		const problem *shot = &p->items[p->order[i]];
		if (strcmp(shot->question, p->items[asked].question) != 0) {
			write_shot(to, shot);
			written++;
		}
	}
	return written;
}

static bool set_context(const problem_list *p, int32_t asked, int32_t shots, example *e) {
	size_t size = 0;
	FILE *to = open_memstream(&e->context, &size);
	if (!to) {
		fail("no memory for the examples");
		return false;
	}
	fputs(INSTRUCTION, to);
	int32_t written = write_shots(to, p, asked, shots);
	if (fclose(to) != 0) {
		fail("no memory for the examples");
		return false;
	}
	if (written < shots) {
		fail("%d worked examples were asked for, and the file has only %d beside the asked problem: choose fewer --shots",
		     shots, written);
	}
	return written == shots;
}

static bool set_question(const problem *p, example *e) {
	size_t size = 0;
	FILE *to = open_memstream(&e->question, &size);
	if (!to || fprintf(to, "Question: %s\nAnswer:", p->question) < 0 || fclose(to) != 0) {
		fail("no memory for the examples");
		return false;
	}
	return true;
}

static bool add_examples(const char *name, const problem_list *p, int32_t shots, const task_options *o, example_list *list) {
	int32_t n = o->n_examples > 0 && o->n_examples < p->n ? o->n_examples : p->n;
	for (int32_t i = 0; i < n; i++) {
		char id[64];
		snprintf(id, sizeof id, "%s/%d", name, i);
		example *e = example_add(list, id, name);
		if (!e) {
			return false;
		}
		e->metric = metric_find("number");
		e->n_predict = o->n_predict > 0 ? o->n_predict : N_PREDICT;
		if (!set_result(p->items[i].solution, e) || !set_context(p, i, shots, e) || !set_question(&p->items[i], e)) {
			return false;
		}
	}
	return true;
}

static bool find_file(const task *t, const task_options *o, char path[LONGEST_PATH]) {
	if (!o->file && !o->data) {
		fail("task '%s' needs -f FILE, or --data with gsm8k.jsonl in it (scripts/fetch-gsm8k.sh fetches one)", t->name);
		return false;
	}
	int n = o->file ? snprintf(path, LONGEST_PATH, "%s", o->file) : snprintf(path, LONGEST_PATH, "%s/gsm8k.jsonl", o->data);
	if (n < 0 || n >= LONGEST_PATH) {
		fail("the path of the problems is too long");
		return false;
	}
	return true;
}

static bool load_with(const task *t, int32_t shots, const task_options *o, example_list *list) {
	char path[LONGEST_PATH];
	problem_list problems = {NULL, 0, NULL};
	bool good = find_file(t, o, path) && read_problems(&problems, path) && shuffle_problems(&problems, o->seed) &&
	            add_examples(t->name, &problems, o->shots >= 0 ? o->shots : shots, o, list);
	free_problems(&problems);
	return good;
}

static bool load(const task *t, const char *part, const task_options *o, example_list *list) {
	(void)part;
	return load_with(t, 0, o, list);
}

static bool load_many(const task *t, const char *part, const task_options *o, example_list *list) {
	(void)part;
	return load_with(t, MANY_SHOTS, o, list);
}

const task task_gsm8k = {
    .name = "gsm8k",
    .summary = "GSM8K: school problems solved step by step",
    .needs = "-f FILE, or --data FOLDER with gsm8k.jsonl: lines with question and answer",
    .load = load,
};

const task task_gsm8k_many = {
    .name = "gsm8k-many",
    .summary = "GSM8K behind 50 worked examples (--shots) out of the same file",
    .needs = "-f FILE, or --data FOLDER with gsm8k.jsonl: lines with question and answer",
    .load = load_many,
};
