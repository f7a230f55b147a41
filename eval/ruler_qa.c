/* Questions whose documents are hidden among others: first those that are needed, then those of the same article or
 * question, then any. */
#include "ruler.h"
#include "ruler_questions.h"

#include <stdlib.h>
#include <string.h>

typedef struct shelf {
	const ruler_job *job;
	const asked *asked;
	int32_t *order; /* [n] documents, the most needed first; room for all */
	int32_t n, n_needed;
	uint8_t *taken; /* [n_documents] by their unique number */
	int32_t n_left; /* documents that are not taken, each once */
	rng more;       /* for the documents that are still to come */
	rng places;     /* copied for each context */
} shelf;

static void take(shelf *s, int32_t document) {
	int32_t unique = s->job->asked->unique[document];
	if (!s->taken[unique]) {
		s->taken[unique] = 1;
		s->order[s->n++] = unique;
		s->n_left--;
	}
}

/* Whether HotpotQA's supporting facts name the document: it begins with its title. */
static bool in_facts(const asked *a, const char *document) {
	size_t i, n = strcspn(document, "\n");
	json_t *fact;
	json_array_foreach(a->facts, i, fact) {
		const char *title = json_string_value(json_array_get(fact, 0));
		if (title && strlen(title) == n && memcmp(title, document, n) == 0) {
			return true;
		}
	}
	return false;
}

static bool take_near(shelf *s) {
	const asked *a = s->asked;
	for (int32_t i = a->own.first; i < a->own.first + a->own.n; i++) {
		if (!a->facts || in_facts(a, s->job->asked->documents[i])) {
			take(s, i);
		}
	}
	for (int32_t i = 0; s->n == 0 && i < a->own.n; i++) {
		take(s, a->own.first + i);
	}
	s->n_needed = s->n;
	int32_t *order = malloc(((size_t)a->near.n + 1) * sizeof *order);
	if (!order) {
		fail("no memory for the examples");
		return false;
	}
	rng_shuffle(&s->more, order, a->near.n);
	for (int32_t i = 0; i < a->near.n; i++) {
		take(s, a->near.first + order[i]);
	}
	free(order);
	return true;
}

static void reach(shelf *s, int32_t n) {
	while (s->n < n && s->n_left > 0) {
		take(s, (int32_t)rng_below(&s->more, (uint32_t)s->job->asked->n_documents));
	}
}

static bool write_documents(void *writer, int32_t n, draft *out) {
	shelf *s = writer;
	const char *text = s->job->templates->kinds[TEMPLATE_QA].document;
	int32_t *order = malloc((size_t)n * sizeof *order);
	rng r = s->places;
	if (!order) {
		fail("no memory for the examples");
		return false;
	}
	reach(s, n);
	rng_shuffle(&r, order, n);
	for (int32_t i = 0; i < n; i++) {
		char number[16];
		snprintf(number, sizeof number, "%d", (int)i + 1);
		const placeholder values[] = {
		    {"i", number}, {"document", s->job->asked->documents[s->order[order[i]]]}, {NULL, NULL}};
		draft_add(out, i > 0 ? "\n\n" : "");
		template_fill(out, text, strlen(text), values);
	}
	free(order);
	return true;
}

/* Accepted answers, each once. */
static bool push_answer(example *e, const char *text) {
	for (int32_t i = 0; i < e->n_answers; i++) {
		if (strcmp(e->answers[i], text) == 0) {
			return true;
		}
	}
	return example_push(&e->answers, &e->n_answers, text);
}

static bool push_answers(example *e, const json_t *answers) {
	size_t i;
	json_t *item;
	bool good = !json_is_string(answers) || push_answer(e, json_string_value(answers));
	json_array_foreach(answers, i, item) { good = good && push_answer(e, json_string_value(json_object_get(item, "text"))); }
	return good;
}

static int32_t count_unique(const questions *q) {
	int32_t n = 0;
	for (int32_t i = 0; i < q->n_documents; i++) {
		n += q->unique[i] == i;
	}
	return n;
}

static fit_result fill(ruler_job *job, shelf *s) {
	int32_t n_least;
	const placeholder values[] = {{"query", s->asked->question}, {NULL, NULL}};
	s->n_left = count_unique(job->asked);
	const int32_t most = s->n_left;
	if (!take_near(s)) {
		return FIT_FAILED;
	}
	s->places = rng_make((uint32_t)rng_next(&job->random), "places", 0);
	const ruler_context context = {
	    .values = values, .write = write_documents, .writer = s, .least = s->n_needed, .guess = s->n_needed, .most = most};
	return ruler_fill(job, &context, &n_least);
}

static fit_result try_question(ruler_job *job, const asked *a) {
	const size_t n = (size_t)job->asked->n_documents;
	shelf s = {.job = job, .asked = a, .more = job->random};
	s.order = malloc((n + 1) * sizeof *s.order);
	s.taken = calloc(n + 1, 1);
	fit_result result = FIT_FAILED;
	if (s.order && s.taken) {
		result = fill(job, &s);
	} else {
		fail("no memory for the examples");
	}
	free(s.order);
	free(s.taken);
	return result == FIT_GOOD && !push_answers(job->example, a->answers) ? FIT_FAILED : result;
}

bool ruler_make_qa(ruler_job *job) {
	const questions *q = job->asked;
	while (job->next < q->n) {
		fit_result result = try_question(job, &q->items[job->order[job->next++]]);
		if (result != FIT_TOO_LITTLE) {
			return result == FIT_GOOD;
		}
	}
	fail("ruler/%s: of the %d questions only %d fit into %d tokens with the documents that they need and %d tokens of "
	     "answer; "
	     "give a greater length or fewer examples",
	     job->part->name, (int)q->n, (int)job->number, (int)job->length, (int)job->example->n_predict);
	return false;
}
