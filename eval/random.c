#include "random.h"

uint64_t rng_next(rng *r) {
	uint64_t z = (r->state += 0x9e3779b97f4a7c15u);
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

rng rng_make(uint32_t seed, const char *name, uint32_t number) {
	rng r = {((uint64_t)seed << 32) | number};
	for (; *name; name++) {
		r.state = rng_next(&r) ^ (unsigned char)*name;
	}
	rng_next(&r);
	return r;
}

uint32_t rng_below(rng *r, uint32_t n) {
	/* Numbers from the ragged end of the range are drawn again. */
	uint64_t limit = UINT64_MAX - UINT64_MAX % n, x = rng_next(r);
	while (x >= limit) {
		x = rng_next(r);
	}
	return (uint32_t)(x % n);
}

double rng_uniform(rng *r) { return (double)(rng_next(r) >> 11) * 0x1.0p-53; }

void rng_shuffle(rng *r, int32_t *order, int32_t n) {
	for (int32_t i = 0; i < n; i++) {
		int32_t j = (int32_t)rng_below(r, (uint32_t)i + 1);
		order[i] = order[j];
		order[j] = i;
	}
}
