/* The measure that all policies are held to: one window of queries, one size of chunks. */
#ifndef CKV_EVAL_INSPECT_FIGURES_H
#define CKV_EVAL_INSPECT_FIGURES_H

#include "inspect.h"

typedef struct yardstick {
	ckv_ctx *ctx;
	float *scores; /* [n_tokens] of the layer in hand, summed over its KV heads */
	size_t capacity;
} yardstick;

/* These print why not. */
bool yardstick_make(yardstick *y, const char *policy, int32_t n_threads);
void yardstick_free(yardstick *y);
/* Before the measurements of a layer. */
bool yardstick_layer(yardstick *y, const ckv_layer *layer);
/* All figures that hang on one layer alone. how: whose codec and merging change the kept rows; NULL: nobody's. */
bool yardstick_measure(yardstick *y, const ckv_layer *layer, const ckv_keep *keep, const ckv_params *how,
                       double figures[N_FIGURES]);

#endif
