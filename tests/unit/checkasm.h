/* checkasm: every kernel of every instruction set that this machine has, against the C reference, bit for bit.
 *
 * Outputs are guarded on both sides; inputs have their exact size, so that AddressSanitizer sees a read beyond. */
#ifndef CKV_TEST_CHECKASM_H
#define CKV_TEST_CHECKASM_H

#include "support.h"

#include "kernels/kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD_FLOATS = 32, MAX_TABLES = 8 };

/* The tables of this machine other than the C one. */
static inline size_t other_tables(const ckv_kernels *tables[MAX_TABLES]) {
	uint32_t features = ckv_cpu_features();
	size_t n = 0;
	for (uint32_t subset = features; subset; subset = (subset - 1) & features) {
		const ckv_kernels *table = ckv_kernels_get(subset);
		bool known = table == ckv_kernels_c();
		for (size_t i = 0; i < n; i++) {
			known = known || tables[i] == table;
		}
		if (!known && n < MAX_TABLES) {
			tables[n++] = table;
		}
	}
	return n;
}

/* Runs check for every other table; a machine that has none skips. */
static inline void for_each_table(void (*check)(const ckv_kernels *table)) {
	const ckv_kernels *tables[MAX_TABLES];
	size_t n = other_tables(tables);
	if (n == 0) {
		skip();
	}
	for (size_t i = 0; i < n; i++) {
		check(tables[i]);
	}
}

typedef struct guarded {
	float *memory, *data;
	size_t n;
} guarded;

static inline guarded guarded_make(size_t n) {
	guarded g;
	g.n = n;
	g.memory = test_memory(n + 2 * GUARD_FLOATS, sizeof(float));
	g.data = g.memory + GUARD_FLOATS;
	paint(g.memory, (n + 2 * GUARD_FLOATS) * sizeof(float));
	return g;
}

static inline bool guards_hold(const guarded *g) {
	return is_painted(g->memory, GUARD_FLOATS * sizeof(float)) && is_painted(g->data + g->n, GUARD_FLOATS * sizeof(float));
}

static inline uint32_t bits_of(float value) {
	uint32_t bits;
	memcpy(&bits, &value, sizeof bits);
	return bits;
}

/* The same bits; any NaN equals any other. */
static inline bool same(float a, float b) { return bits_of(a) == bits_of(b) || (isnan(a) && isnan(b)); }

static inline void check_same(const guarded *a, const guarded *b, const char *isa, const char *what, size_t n) {
	for (size_t i = 0; i < a->n; i++) {
		CHECK(same(a->data[i], b->data[i]), "%s %s, size %zu: element %zu is %a instead of %a", isa, what, n, i,
		      (double)b->data[i], (double)a->data[i]);
	}
	CHECK(guards_hold(a) && guards_hold(b), "%s %s, size %zu: written outside of the output", isa, what, n);
}

static inline float *exact_floats(rng *r, size_t n, float factor) {
	float *x = test_memory(n, sizeof *x);
	for (size_t i = 0; i < n; i++) {
		x[i] = factor * rng_float(r);
	}
	return x;
}

/* Some rows get values at the edges of float: sums that overflow, cancel, vanish or are NaN. */
static inline void add_extremes(rng *r, float *x, size_t n) {
	static const float extreme[] = {0.0f, -0.0f, 1e-45f, -1e-38f, 3e38f, -3e38f, INFINITY, -INFINITY, NAN, 1e20f};
	for (size_t i = 0; i < n; i++) {
		if (rng_chance(r, 50)) {
			x[i] = extreme[rng_range(r, 0, 9)];
		}
	}
}

#endif
