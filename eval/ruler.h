/* Parts of RULER (Hsieh et al. 2024, arXiv 2404.06654): needles, variables, frequent words, questions with documents. */
#ifndef CKV_EVAL_RULER_H
#define CKV_EVAL_RULER_H

#include "haystack.h"
#include "random.h"
#include "ruler_draft.h"
#include "ruler_fit.h"
#include "task.h"
#include "templates.h"

#include <stdbool.h>
#include <stdint.h>

struct questions;

typedef enum hay { HAY_NOISE, HAY_TEXT, HAY_NEEDLES } hay;
typedef enum needle_kind { NEEDLE_WORDS, NEEDLE_NUMBERS, NEEDLE_UUIDS } needle_kind;

/* What needles there are. */
typedef struct needles_of {
	hay hay;
	needle_kind keys, values;
	int32_t n_keys, n_values, n_queries;
} needles_of;

/* One example that is being made. */
typedef struct ruler_job {
	const task_options *options;
	const struct ruler_part *part;
	const templates *templates;
	const haystack *text;          /* of HAY_TEXT */
	const haystack *noise;         /* of HAY_NOISE and variables */
	const struct questions *asked; /* of QA */
	const int32_t *order;          /* of QA: the questions, shuffled */
	int32_t next;                  /* of QA: of order, those before were taken */
	int32_t length, number;
	rng random; /* of this example */
	example *example;
} ruler_job;

typedef struct ruler_part {
	const char *name, *file; /* data file that it can't do without; NULL */
	template_kind kind;
	int32_t n_predict;
	const char *metric;
	bool (*make)(ruler_job *job);
	needles_of needles;
} ruler_part;

/* How the context of an example is made. */
typedef struct ruler_context {
	const placeholder *values; /* of the template */
	bool one;                  /* there is one answer */
	const char *worked;        /* put before the template; NULL */
	fit_write write;
	void *writer;
	int32_t least, guess, most;
} ruler_context;

/* Makes context, question and beginning of the answer, as much context as there is room for. FIT_TOO_LITTLE is not printed:
 * *n_least is then what the prompt takes at least, in tokens. */
fit_result ruler_fill(ruler_job *job, const ruler_context *context, int32_t *n_least);
/* The same; a length that is too little is printed. */
bool ruler_fill_or_fail(ruler_job *job, const ruler_context *context);

/* A worked example of the task: the whole prompt, the beginning of the answer, the answer and an empty line. */
void ruler_worked(const ruler_job *job, const placeholder *values, const char *context, const char *reply, draft *out);

bool ruler_make_needles(ruler_job *job);
bool ruler_make_variables(ruler_job *job);
bool ruler_make_common_words(ruler_job *job);
bool ruler_make_frequent_words(ruler_job *job);
bool ruler_make_qa(ruler_job *job);

#endif
