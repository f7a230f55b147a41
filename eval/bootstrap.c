#include "bootstrap.h"

#include "random.h"

#include <math.h>
#include <stdlib.h>

enum { SEED = 20240229 };

static const double nan_value = (double)NAN;

bool resamples_make(resamples *s, int32_t n) {
	*s = (resamples){n, NULL};
	if (n < 2) {
		return true;
	}
	s->draws = calloc((size_t)n * N_RESAMPLES, sizeof *s->draws);
	if (!s->draws) {
		return false;
	}
	rng r = rng_make(SEED, "bootstrap", (uint32_t)n);
	for (int32_t i = 0; i < N_RESAMPLES; i++) {
		int32_t *draws = s->draws + (size_t)i * (size_t)n;
		for (int32_t k = 0; k < n; k++) {
			/* Millions of them: by a product, whose bias, below n / 2^32, is far from what could be seen. */
			draws[((rng_next(&r) >> 32) * (uint64_t)n) >> 32]++;
		}
	}
	return true;
}

void resamples_free(resamples *s) {
	free(s->draws);
	s->draws = NULL;
}

static int ascending(const void *a, const void *b) {
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* Between the two values nearest to a share of the way through. */
static double percentile(const double *sorted, int32_t n, double share) {
	double at = share * (n - 1);
	int32_t below = (int32_t)at, above = below + 1 < n ? below + 1 : below;
	return sorted[below] + (at - below) * (sorted[above] - sorted[below]);
}

static interval bounds(double value, double *figures, int32_t n) {
	if (n == 0) {
		return (interval){value, nan_value, nan_value};
	}
	qsort(figures, (size_t)n, sizeof *figures, ascending);
	return (interval){value, percentile(figures, n, 0.025), percentile(figures, n, 0.975)};
}

interval bootstrap_ratio(const resamples *s, const double *over, const double *under, int32_t n) {
	double figures[N_RESAMPLES], all_over = 0.0, all_under = 0.0;
	int32_t n_figures = 0, n_counting = 0;
	for (int32_t i = 0; i < n; i++) {
		all_over += over[i];
		all_under += under[i];
		n_counting += under[i] > 0.0;
	}
	for (int32_t b = 0; s->draws && n_counting > 1 && b < N_RESAMPLES; b++) {
		const int32_t *draws = s->draws + (size_t)b * (size_t)n;
		double a = 0.0, u = 0.0;
		for (int32_t i = 0; i < n; i++) {
			a += draws[i] * over[i];
			u += draws[i] * under[i];
		}
		/* A resample of nothing but examples that don't count has no figure. */
		if (u > 0.0) {
			figures[n_figures++] = a / u;
		}
	}
	return bounds(all_under > 0.0 ? all_over / all_under : nan_value, figures, n_figures);
}

static int descending(const void *a, const void *b) {
	float x = ((const owned_value *)a)->value, y = ((const owned_value *)b)->value;
	return (x < y) - (x > y);
}

void bootstrap_sort(owned_value *values, size_t n) { qsort(values, n, sizeof *values, descending); }

/* From the largest down until more than the share's count are past. One sort serves all resamples. */
static double quantile(const owned_value *values, size_t n, const int32_t *draws, double above, double total) {
	double past = 0.0;
	for (size_t i = 0; i < n; i++) {
		past += draws ? draws[values[i].owner] : 1;
		if (past > above * total) {
			return (double)values[i].value;
		}
	}
	return nan_value;
}

/* How many values each example has; NULL without memory. */
static double *count_values(const owned_value *values, size_t n, int32_t n_owners) {
	double *sizes = calloc((size_t)n_owners + 1, sizeof *sizes);
	for (size_t i = 0; sizes && i < n; i++) {
		sizes[values[i].owner] += 1.0;
	}
	return sizes;
}

interval bootstrap_quantile(const resamples *s, const owned_value *values, size_t n, double above) {
	double figures[N_RESAMPLES], value = quantile(values, n, NULL, above, (double)n);
	double *sizes = s->draws ? count_values(values, n, s->n) : NULL;
	int32_t n_figures = 0, n_counting = 0;
	for (int32_t i = 0; sizes && i < s->n; i++) {
		n_counting += sizes[i] > 0.0;
	}
	for (int32_t b = 0; sizes && n_counting > 1 && b < N_RESAMPLES; b++) {
		const int32_t *draws = s->draws + (size_t)b * (size_t)s->n;
		double total = 0.0;
		for (int32_t i = 0; i < s->n; i++) {
			total += draws[i] * sizes[i];
		}
		if (total > 0.0) {
			figures[n_figures++] = quantile(values, n, draws, above, total);
		}
	}
	free(sizes);
	return bounds(value, figures, n_figures);
}
