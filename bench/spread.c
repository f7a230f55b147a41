#include "spread.h"

#include <stdlib.h>

static int by_value(const void *a, const void *b) {
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

spread spread_of(double *x, int n) {
	qsort(x, (size_t)n, sizeof *x, by_value);
	return (spread){x[n / 4], x[n / 2], x[n - 1 - n / 4]};
}
