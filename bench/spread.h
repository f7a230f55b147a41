/* A series of measurements and how far they lie apart. */
#ifndef CKV_BENCH_SPREAD_H
#define CKV_BENCH_SPREAD_H

typedef struct spread {
	double low, median, high;
} spread;

/* Median and quartiles (of three or fewer: the lowest and the highest). x[n], n > 0, is sorted. */
spread spread_of(double *x, int n);

#endif
