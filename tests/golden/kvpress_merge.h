/* Values into which those of evicted tokens were merged, beside what kvpress stored. */
#ifndef GOLDEN_KVPRESS_MERGE_H
#define GOLDEN_KVPRESS_MERGE_H

#include "press.h"
#include "replay.h"

/* The stored values: float32 [heads][n][dim] under the output's entry `key`, n rows for each of the lists' positions. */
bool merged_stored(const casefile *file, const inputs *in, const json_t *output, const char *key, size_t n, npy *stored,
                   note *why);

/* Values found beside those stored. Some rows of each head may differ, as many as one decision on a tie can change. */
bool merged_same(const npy *stored, const float *found, size_t rows_spared, note *why);

/* ckv_merge_kept at the positions that an output kept. */
bool merged_agree(const press *p, const casefile *file, const inputs *in, const json_t *output, bool tied, replay *r,
                  note *why);

/* Cache merging: what it keeps, what it merges, with which probability, and the values then. On a tie the stored choice is
 * taken for granted. */
bool cam_agrees(const press *p, const casefile *file, const inputs *in, const json_t *output, bool tied, replay *r,
                note *why);

#endif
