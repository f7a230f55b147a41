/* As much context as a length leaves room for. */
#ifndef CKV_EVAL_RULER_FIT_H
#define CKV_EVAL_RULER_FIT_H

#include "ruler_draft.h"
#include "task.h"

#include <stdbool.h>
#include <stdint.h>

/* Writes a context of n units (sentences, words, documents), the same each time it is asked for n. Prints why not. */
typedef bool (*fit_write)(void *writer, int32_t n, draft *out);

typedef enum fit_result { FIT_GOOD, FIT_TOO_LITTLE, FIT_FAILED } fit_result;

typedef struct fit {
	const task_options *options; /* whose tokeniser counts */
	fit_write write;
	void *writer;
	int32_t least, most; /* units */
	int32_t guess;       /* of their number, to begin the search with */
	int32_t room;        /* tokens */
	int32_t n_least;     /* set: tokens of the least context, where that was counted; else 0 */
} fit;

/* The context in *out has so many units that one more would be too much for the room, or `most`. Counts O(log n) contexts,
 * none of much more than twice the room. FIT_FAILED is printed. */
fit_result fit_context(fit *f, draft *out);

#endif
