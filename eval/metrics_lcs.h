/* Longest common subsequences of x [n] and y [m], in far less memory than their table has. False without memory. */
#ifndef CKV_EVAL_METRICS_LCS_H
#define CKV_EVAL_METRICS_LCS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Memory: two rows of the shorter. */
bool lcs_length(const uint32_t *x, size_t n, const uint32_t *y, size_t m, size_t *length);
/* Sets marks[v] for each value v of one of them: of several, the one that is met from the end by going back in x where that
 * loses less, and in y otherwise. Memory: 2 sqrt(n) rows of y. */
bool lcs_mark(const uint32_t *x, size_t n, const uint32_t *y, size_t m, uint8_t *marks);

#endif
