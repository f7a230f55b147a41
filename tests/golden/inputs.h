/* The input arrays of a layer, as the library is to see them. */
#ifndef GOLDEN_INPUTS_H
#define GOLDEN_INPUTS_H

#include "casefile.h"

#include <chunkkv/chunkkv.h>

typedef struct inputs {
	npy keys, values, queries;
	ckv_layer layer; /* views of the three */
	int32_t n_heads, n_tokens;
} inputs;

bool inputs_open(inputs *in, const casefile *file, note *why);
void inputs_close(inputs *in);

#endif
