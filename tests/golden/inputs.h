/* The input arrays of a layer, as the library is to see them. */
#ifndef GOLDEN_INPUTS_H
#define GOLDEN_INPUTS_H

#include "casefile.h"

#include <chunkkv/chunkkv.h>

typedef struct inputs {
	npy keys, values, queries;
	npy prerope, inv_freq; /* empty when the case has none */
	ckv_layer layer;       /* keys, values, the last queries, rotation */
	ckv_view all_queries;  /* before RoPE; no data when the case has none */
	int32_t n_heads, n_tokens;
} inputs;

bool inputs_open(inputs *in, const casefile *file, note *why);
void inputs_close(inputs *in);

/* Whether the case has an input of that name. */
bool inputs_have(const casefile *file, const char *name);

/* Reads an input, which must be what case.json says of it. */
bool inputs_array(const casefile *file, const char *name, npy *array, note *why);

#endif
