#define _POSIX_C_SOURCE 200809L
#include "ruler.h"

#include "metric.h"
#include "ruler_questions.h"
#include "tasks.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NEEDLES .kind = TEMPLATE_NIAH, .n_predict = 128, .metric = "match_all", .make = ruler_make_needles, .needles

static const ruler_part parts[] = {
    {.name = "niah_single_1", NEEDLES = {HAY_NOISE, NEEDLE_WORDS, NEEDLE_NUMBERS, 1, 1, 1}},
    {.name = "niah_single_2", NEEDLES = {HAY_TEXT, NEEDLE_WORDS, NEEDLE_NUMBERS, 1, 1, 1}},
    {.name = "niah_single_3", NEEDLES = {HAY_TEXT, NEEDLE_WORDS, NEEDLE_UUIDS, 1, 1, 1}},
    {.name = "niah_multikey_1", NEEDLES = {HAY_TEXT, NEEDLE_WORDS, NEEDLE_NUMBERS, 4, 1, 1}},
    {.name = "niah_multikey_2", NEEDLES = {HAY_NEEDLES, NEEDLE_WORDS, NEEDLE_NUMBERS, 1, 1, 1}},
    {.name = "niah_multikey_3", NEEDLES = {HAY_NEEDLES, NEEDLE_UUIDS, NEEDLE_UUIDS, 1, 1, 1}},
    {.name = "niah_multivalue", NEEDLES = {HAY_TEXT, NEEDLE_WORDS, NEEDLE_NUMBERS, 1, 4, 1}},
    {.name = "niah_multiquery", NEEDLES = {HAY_TEXT, NEEDLE_WORDS, NEEDLE_NUMBERS, 4, 1, 4}},
    {.name = "vt", .kind = TEMPLATE_VARIABLES, .n_predict = 30, .metric = "match_all", .make = ruler_make_variables},
    {.name = "cwe", .kind = TEMPLATE_COMMON_WORDS, .n_predict = 120, .metric = "match_all", .make = ruler_make_common_words},
    {.name = "fwe",
     .kind = TEMPLATE_FREQUENT_WORDS,
     .n_predict = 50,
     .metric = "match_all",
     .make = ruler_make_frequent_words},
    {.name = "qa_1",
     .kind = TEMPLATE_QA,
     .n_predict = 32,
     .metric = "match_any",
     .make = ruler_make_qa,
     .file = "squad.json"},
    {.name = "qa_2",
     .kind = TEMPLATE_QA,
     .n_predict = 32,
     .metric = "match_any",
     .make = ruler_make_qa,
     .file = "hotpotqa.json"},
};
enum { N_PARTS = sizeof parts / sizeof *parts, N_EXAMPLES = 10, NAME_SIZE = 64 };

static const char *const names[] = {"niah_single_1",
                                    "niah_single_2",
                                    "niah_single_3",
                                    "niah_multikey_1",
                                    "niah_multikey_2",
                                    "niah_multikey_3",
                                    "niah_multivalue",
                                    "niah_multiquery",
                                    "vt",
                                    "cwe",
                                    "fwe",
                                    "qa_1",
                                    "qa_2",
                                    NULL};
_Static_assert(sizeof names / sizeof *names == N_PARTS + 1, "a name for each part");

static bool needs_text(const ruler_part *p) { return p->make == ruler_make_needles && p->needles.hay == HAY_TEXT; }

/* The part of an example's task, "ruler/vt"; NULL. */
static const ruler_part *find_part(const char *name) {
	for (size_t i = 0; i < N_PARTS; i++) {
		if (strncmp(name, "ruler/", 6) == 0 && strcmp(name + 6, parts[i].name) == 0) {
			return &parts[i];
		}
	}
	return NULL;
}

/* That a text takes the essays' place is said once, with the first part that needs them. */
static bool told_before(const example_list *list) {
	for (int32_t i = 0; i < list->n; i++) {
		const ruler_part *p = find_part(list->items[i].task);
		if (p && needs_text(p)) {
			return true;
		}
	}
	return false;
}

/* The essays, if the data folder has them; else the user's text, else the bundled one. */
static bool read_text(const task_options *o, const example_list *list, haystack *out) {
	draft path = {0};
	if (o->data) {
		draft_addf(&path, "%s/essays.txt", o->data);
	}
	bool good = draft_good(&path), essays = good && path.size > 0 && access(path.data, F_OK) == 0;
	if (good && !essays && !told_before(list)) {
		fprintf(stderr, "chunkkv: ruler: no essays.txt from scripts/fetch-ruler.sh, so needles are hidden in %s\n",
		        o->file ? o->file : "the bundled text");
	}
	good = good && haystack_read(out, essays ? path.data : o->file);
	draft_free(&path);
	return good;
}

static bool make_example(ruler_job *job, example_list *list) {
	const ruler_part *p = job->part;
	const task_options *o = job->options;
	char name[NAME_SIZE], id[2 * NAME_SIZE];
	snprintf(name, sizeof name, "ruler/%s", p->name);
	snprintf(id, sizeof id, "%s/%d/%d", name, (int)job->length, (int)job->number);
	example *e = example_add(list, id, name);
	if (!e) {
		return false;
	}
	snprintf(id, sizeof id, "%s/%d", name, (int)job->length);
	job->random = rng_make(o->seed, id, (uint32_t)job->number);
	job->example = e;
	e->metric = metric_find(p->metric);
	e->n_predict = o->n_predict > 0 ? o->n_predict : p->n_predict;
	e->length = job->length;
	return p->make(job);
}

static bool make_all(ruler_job *job, example_list *list) {
	static const int32_t usual[] = {512, 1024};
	const task_options *o = job->options;
	const int32_t *lengths = o->n_lengths > 0 ? o->lengths : usual;
	int32_t n_lengths = o->n_lengths > 0 ? o->n_lengths : (int32_t)(sizeof usual / sizeof *usual);
	int32_t n = o->n_examples > 0 ? o->n_examples : N_EXAMPLES;
	for (int32_t i = 0; i < n_lengths; i++) {
		job->length = lengths[i];
		job->next = 0;
		for (job->number = 0; job->number < n; job->number++) {
			if (!make_example(job, list)) {
				return false;
			}
		}
	}
	return true;
}

static bool make_with_questions(ruler_job *job, example_list *list) {
	questions q;
	if (!questions_load(&q, job->options->data, job->part->file)) {
		return false;
	}
	int32_t *order = malloc((size_t)q.n * sizeof *order);
	bool good = order != NULL;
	if (good) {
		rng r = rng_make(job->options->seed, job->part->name, 0);
		rng_shuffle(&r, order, q.n);
		job->asked = &q;
		job->order = order;
		good = make_all(job, list);
	} else {
		fail("no memory for the questions");
	}
	free(order);
	questions_free(&q);
	return good;
}

static bool load_part(ruler_job *job, example_list *list) {
	const char *noise_text = job->templates->kinds[job->part->kind].noise;
	haystack text = {0}, noise = {0};
	if (job->part->file) {
		return make_with_questions(job, list);
	}
	bool good = !needs_text(job->part) || read_text(job->options, list, &text);
	good = good && (!noise_text || haystack_make(&noise, "the noise of the templates", noise_text, strlen(noise_text)));
	if (good) {
		noise.between = "\n";
		job->text = &text;
		job->noise = &noise;
		good = make_all(job, list);
	}
	haystack_free(&text);
	haystack_free(&noise);
	return good;
}

static bool load(const struct task *self, const char *part, const task_options *options, example_list *list) {
	templates t;
	ruler_job job = {.options = options, .templates = &t};
	(void)self;
	for (size_t i = 0; i < N_PARTS && part; i++) {
		job.part = strcmp(parts[i].name, part) == 0 ? &parts[i] : job.part;
	}
	if (!job.part) {
		fail("ruler has no part '%s'", part ? part : "");
		return false;
	}
	if (!templates_load(&t, options->prompts)) {
		return false;
	}
	bool good = load_part(&job, list);
	templates_free(&t);
	return good;
}

const task task_ruler = {.name = "ruler",
                         .summary = "RULER's 13 tasks, made to any length: needles, variables, frequent words, questions",
                         .needs = "qa_1, qa_2: --data with squad.json, hotpotqa.json; the needles take its essays.txt "
                                  "(scripts/fetch-ruler.sh), else -f, else the bundled text; --prompts: other wording",
                         .parts = names,
                         .load = load};
