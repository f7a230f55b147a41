/* Kept rows as the cache of a policy that packs, projects or merges them gives them back. */
#ifndef CKV_EVAL_INSPECT_STORED_H
#define CKV_EVAL_INSPECT_STORED_H

#include <chunkkv/cache.h>

#include <stdbool.h>

/* Head after head, as ckv_measure_stored takes them. */
typedef struct stored_rows {
	float *keys, *values;
} stored_rows;

/* Of what `keep` lists of a layer, by the codec and the merging of `how`. ctx works for the merging, whatever its policy.
 * Prints why not; what there is goes with stored_free. */
bool stored_make(stored_rows *s, ckv_ctx *ctx, const ckv_layer *layer, const ckv_keep *keep, const ckv_params *how);
void stored_free(stored_rows *s);

/* What changes rows, as a policy's text has it behind its "+"; "" where nothing does. */
void stored_name(const ckv_params *how, char *out, size_t size);

#endif
