/* Reproducible random numbers: the same seed and name give the same numbers everywhere. SplitMix64 (Steele, Lea, Flood
 * 2014).
 */
#ifndef CKV_EVAL_RANDOM_H
#define CKV_EVAL_RANDOM_H

#include <stdint.h>

typedef struct rng {
	uint64_t state;
} rng;

/* name: what is drawn, so that streams of one seed are independent of each other. */
rng rng_make(uint32_t seed, const char *name, uint32_t number);
uint64_t rng_next(rng *r);
/* Uniform below n, n >= 1, without bias. */
uint32_t rng_below(rng *r, uint32_t n);
/* Uniform in [0, 1). */
double rng_uniform(rng *r);
/* A random order of 0 .. n - 1. */
void rng_shuffle(rng *r, int32_t *order, int32_t n);

#endif
