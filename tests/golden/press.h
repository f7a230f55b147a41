/* A press of kvpress, as case.json tells it, and the policy that does the same. */
#ifndef GOLDEN_PRESS_H
#define GOLDEN_PRESS_H

#include "inputs.h"
#include "kept.h"
#include "tally.h"

/* How the stored positions lie, by case.json's word for it. */
typedef enum press_lists { PER_HEAD, SHARED, RAGGED } press_lists;

/* What must agree where a tie decided. */
typedef enum press_ties {
	TIED_SCORES,   /* the kept scores of each head */
	TIED_TOGETHER, /* the kept scores of all heads */
	TIED_CHUNKS,   /* the kept chunks' means */
	TIED_COUNT     /* the count: another choice early on leaves another budget for what follows */
} press_ties;

typedef struct press {
	const char *name, *kind;
	json_t *entry, *outputs;
	const char *scored_by; /* the press whose scores it selects from: its own name for scorers */
	bool scores_itself;
	bool covered; /* there is a policy: what follows is set */
	press_lists lists;
	press_ties ties;
	ckv_params policy;
	int32_t block;               /* tokens in a block; 0: all at once */
	int32_t target;              /* tokens to keep; 0: by the ratio of an output */
	bool rerotates;              /* the kept keys are turned, and stored with the positions */
	ckv_merge merge;             /* size 0: nothing is merged, and no values are stored */
	int32_t n_new, merge_budget; /* of cache merging; 0: none */
	tolerance allowed;           /* of scores */
	char label[TALLY_LABEL];
} press;

/* A press that no policy covers yet is read as well. */
bool press_read(press *p, const char *name, json_t *entry, note *why);

/* What it kept, checked by itself. */
bool press_kept(const press *p, const casefile *file, const inputs *in, const json_t *output, kept *expected, note *why);

/* The scores [heads][tokens] that it selected from at a ratio. Some depend on the ratio and
 * lie with the outputs of their press. */
bool press_scores(const press *p, const casefile *file, const inputs *in, double ratio, npy *scores, note *why);

/* Whether its own scores depend on the ratio. */
bool press_scores_vary(const press *p);

#endif
