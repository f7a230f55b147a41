/* What the measures share: kept positions as lists that have been checked. */
#ifndef CKV_MEASURE_INTERNAL_H
#define CKV_MEASURE_INTERNAL_H

#include "chunkkv/measure.h"

#include <stdbool.h>

typedef struct ckv_list {
	const int32_t *positions;
	int32_t n;
} ckv_list;

/* Whether n positions ascend and are from 0 to n_tokens - 1; NULL is an empty list. */
bool ckv_list_fits(const int32_t *positions, size_t n, int32_t n_tokens);

/* Whether all lists of a selection do, and where they are is known. */
bool ckv_keep_fits(const ckv_keep *keep, int32_t n_tokens);

/* A KV head's list of a selection that fits. */
ckv_list ckv_keep_list(const ckv_keep *keep, int32_t head);

#endif
