/* Kept keys that are turned to consecutive positions, so that no gap is left where others went. */
#ifndef GOLDEN_ROTATED_H
#define GOLDEN_ROTATED_H

#include "press.h"

/* The keys that an output kept, turned by ckv_rope_close_gaps, beside those that kvpress stored with it. They are those at
 * the stored positions, so a tie between positions does not matter. */
bool rotated_agree(const press *p, const casefile *file, const inputs *in, const json_t *output, note *why);

#endif
