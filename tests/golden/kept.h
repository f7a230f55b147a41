/* Lists of kept positions, and what it means that two of them agree. */
#ifndef GOLDEN_KEPT_H
#define GOLDEN_KEPT_H

#include "note.h"
#include "npy.h"

#include <stdint.h>

typedef struct kept {
	int32_t n_lists;    /* 1, or one for each head */
	int32_t *offsets;   /* [n_lists + 1] */
	int32_t *positions; /* list i: positions[offsets[i]] .. positions[offsets[i + 1] - 1] */
} kept;

/* Room for `lists` lists of `positions` positions altogether, filled with -1. */
bool kept_alloc(kept *k, size_t lists, size_t positions, note *why);
void kept_free(kept *k);

/* From a stored array [n_lists][n], or [n] when n_lists is 0, which means one list for all heads. */
bool kept_from_array(kept *k, const npy *array, int32_t n_lists, int32_t n, note *why);

/* From stored lists of different length, one after another, and offsets [n_lists + 1] that tell them apart. */
bool kept_from_ragged(kept *k, const npy *array, const npy *offsets, int32_t n_lists, note *why);

/* The offsets lead from 0 to n_positions and never fall: only then may the lists be read. */
bool kept_offsets_valid(const kept *k, size_t n_positions, note *why);

/* Each list ascends, from 0 or more to below n_tokens. */
bool kept_valid(const kept *k, int32_t n_tokens, note *why);

/* The same positions. */
bool kept_equal(const kept *expected, const kept *found, note *why);

/* As many positions in each list. */
bool kept_same_counts(const kept *expected, const kept *found, note *why);

/* |a - b| <= relative * |a| + absolute, a expected. */
typedef struct tolerance {
	double relative, absolute;
} tolerance;

bool tolerance_holds(tolerance allowed, double expected, double found);

/* The scores that positions were chosen by. */
typedef struct score_table {
	const float *scores; /* [n_heads][n_tokens] */
	int32_t n_heads, n_tokens;
} score_table;

/* What must agree when a tie decided: the number of positions and the sorted scores of what is kept, head by head. */
bool kept_same_scores(const kept *expected, const kept *found, const score_table *by, tolerance allowed, note *why);

/* The same with the lists of all heads taken together, whatever each one's length. */
bool kept_same_scores_together(const kept *expected, const kept *found, const score_table *by, tolerance allowed, note *why);

/* The same of one list for all heads that consists of whole chunks: their number and their sorted means. */
bool kept_same_chunks(const kept *expected, const kept *found, const score_table *by, int32_t chunk, tolerance allowed,
                      note *why);

#endif
