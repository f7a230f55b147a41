/* What an engine gathers of a prompt's queries as they come: their moments, and the attention they pay to each key. */
#ifndef GOLDEN_OBSERVED_H
#define GOLDEN_OBSERVED_H

#include "inputs.h"
#include "kept.h"
#include "replay.h"

typedef struct observed {
	ckv_layer layer;      /* the inputs' layer with what the policy needs besides */
	ckv_moments *moments; /* NULL unless needed */
	float *mass;          /* [heads][tokens], NULL unless needed */
} observed;

/* Whether a policy needs queries that the case lacks. */
bool observed_lacking(const inputs *in, const ckv_params *policy);

/* Gathers in pieces of uneven length, in every run of r. Nothing is left to free after a failure. */
bool observed_open(observed *o, const inputs *in, const ckv_params *policy, replay *r, note *why);
void observed_close(observed *o);

/* The moments, turned to the positions ahead as expected attention does, beside those that kvpress derived. */
bool observed_moments_agree(const observed *o, const inputs *in, const casefile *file, int32_t n_future, note *why);

/* The sums beside the columns of the attention that the model computed. */
bool observed_mass_agrees(const observed *o, const inputs *in, const casefile *file, tolerance allowed, note *why);

#endif
