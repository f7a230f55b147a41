/* The bootstrap (Efron 1979): how far a figure of examples might have been from what it is, had others been drawn. Examples
 * are drawn with replacement, percentiles of the figures are the bounds. */
#ifndef CKV_EVAL_BOOTSTRAP_H
#define CKV_EVAL_BOOTSTRAP_H

#include "summary.h"

enum { N_RESAMPLES = 2000 };

/* How often each example is drawn in each resample; the same for the same number of examples. */
typedef struct resamples {
	int32_t n;      /* examples */
	int32_t *draws; /* [N_RESAMPLES][n]; NULL: there are none, and all bounds are NaN */
} resamples;

/* n examples; fewer than two have no resamples. False without memory. */
bool resamples_make(resamples *s, int32_t n);
void resamples_free(resamples *s);

/* Sum of `over` by sum of `under` [n]: a mean where `under` is 1 or, to leave an example out, 0. Where fewer than two
 * examples count the bounds are NaN. */
interval bootstrap_ratio(const resamples *s, const double *over, const double *under, int32_t n);

/* A value and the example it is of. */
typedef struct owned_value {
	float value;
	int32_t owner;
} owned_value;
void bootstrap_sort(owned_value *values, size_t n); /* descending */
/* The value that a share `above` of all values, sorted, lies above (nearest rank). */
interval bootstrap_quantile(const resamples *s, const owned_value *values, size_t n, double above);

#endif
