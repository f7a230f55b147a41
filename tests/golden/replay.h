/* Runs the library: everything twice, with all instruction sets and without AVX2, which must agree bit for bit. */
#ifndef GOLDEN_REPLAY_H
#define GOLDEN_REPLAY_H

#include "kept.h"

#include <chunkkv/chunkkv.h>

enum { N_RUNS = 2 };

typedef struct replay {
	ckv_ctx *ctx[N_RUNS];
} replay;

bool replay_open(replay *r, const ckv_params *params, note *why);
void replay_close(replay *r);

/* ckv_score; scores[n] is memory of the caller, n = heads x tokens. */
bool replay_score(replay *r, const ckv_layer *layer, float *scores, size_t n, note *why);

/* What is selected from: a layer, scored by the policy's scorer, or scores that were stored. */
typedef struct subject {
	const ckv_layer *layer; /* used when `by.scores` is NULL */
	score_table by;
} subject;

/* ckv_select or ckv_select_scores with the fraction `ratio` removed. `reason` may be NULL. */
bool replay_select(replay *r, const subject *from, double ratio, kept *found, ckv_reason *reason, note *why);

#endif
