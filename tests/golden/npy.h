/* A strict reader of NumPy's .npy files, for what the vectors are made of: format 1.0 or 2.0, little-endian float32, float16
 * or int32, C order. Everything else is an error, as is a file that is one byte too short or too long. */
#ifndef GOLDEN_NPY_H
#define GOLDEN_NPY_H

#include "note.h"

#include <stddef.h>

typedef enum npy_type { NPY_F4, NPY_F2, NPY_I4 } npy_type;

enum { NPY_MAX_RANK = 5 };

typedef struct npy {
	npy_type type;
	int rank;
	size_t shape[NPY_MAX_RANK];
	size_t count; /* elements */
	void *data;   /* from malloc, never NULL after success */
} npy;

/* Reads a whole file. *array is written on success only; why then stays as it was. */
bool npy_read(const char *path, npy *array, note *why);

/* An array that was zeroed or freed is allowed. */
void npy_free(npy *array);

/* As NumPy writes it: "<f4". */
const char *npy_type_name(npy_type type);

size_t npy_item_size(npy_type type);

#endif
