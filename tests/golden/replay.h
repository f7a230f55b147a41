/* Runs the library: everything several times, with all instruction sets and without AVX2, by one thread and by several,
 * which must agree bit for bit. */
#ifndef GOLDEN_REPLAY_H
#define GOLDEN_REPLAY_H

#include "kept.h"

#include <chunkkv/chunkkv.h>

enum { N_RUNS = 4 };

typedef struct replay {
	ckv_ctx *ctx[N_RUNS];
} replay;

bool replay_open(replay *r, const ckv_params *params, note *why);
void replay_close(replay *r);

/* What distinguishes a run, for what is made without a context. */
void replay_options(int run, ckv_ctx_options *options);

/* Whether run number `run` found what the first one found. `what` names the numbers. */
bool replay_same(int run, const float *first, const float *found, size_t n, const char *what, note *why);

/* Says what a call of that run returned; false. */
bool replay_refused(const replay *r, int run, const char *call, ckv_status status, note *why);

/* ckv_score for the fraction `ratio` removed; scores[n] is memory of the caller, n = heads x tokens. */
bool replay_score(replay *r, const ckv_layer *layer, double ratio, float *scores, size_t n, note *why);

/* What is selected from: a layer, scored by the policy's scorer, or scores. */
typedef struct subject {
	const ckv_layer *layer; /* used when `by.scores` is NULL */
	score_table by;
	int32_t block;  /* above 0: of the layer, in blocks of so many tokens */
	int32_t target; /* above 0: so many tokens are to be kept, whatever the ratio */
} subject;

/* ckv_select, ckv_select_blocks or ckv_select_scores with the fraction `ratio` removed. `reason` may be NULL. */
bool replay_select(replay *r, const subject *from, double ratio, kept *found, ckv_reason *reason, note *why);

#endif
