/* ckv_rope_turn: rows turned by their position, and back; ckv_rope_close_gaps. */
#include "support.h"

#include "chunkkv/stream.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 80 };

typedef struct turn_case {
	int32_t dim;
	float inv_freq[MOST / 2], row[MOST];
	ckv_rope rope; /* points into the case */
} turn_case;

static void random_turn(turn_case *c, rng *r) {
	c->dim = rng_range(r, 1, MOST);
	int32_t n_dims = rng_chance(r, 2) ? c->dim / 2 * 2 : 2 * rng_range(r, 0, c->dim / 2);
	for (int32_t i = 0; i < n_dims / 2; i++) {
		c->inv_freq[i] = (float)pow(rng_chance(r, 2) ? 10000.0 : 500.0, -2.0 * i / n_dims);
	}
	for (int32_t i = 0; i < MOST; i++) {
		c->row[i] = 4.0f * rng_float(r);
	}
	c->rope = (ckv_rope){.n_dims = n_dims, .interleaved = rng_range(r, 0, 1), .inv_freq = c->inv_freq};
}

static void naive_turn(const ckv_rope *rope, int32_t position, double factor, const float *row, double *out) {
	for (int32_t i = 0; i < MOST; i++) {
		out[i] = (double)row[i];
	}
	for (int32_t p = 0; p < rope->n_dims / 2; p++) {
		int32_t a = rope->interleaved ? 2 * p : p, b = rope->interleaved ? 2 * p + 1 : p + rope->n_dims / 2;
		double angle = (double)((float)position * rope->inv_freq[p]);
		out[a] = factor * ((double)row[a] * cos(angle) - (double)row[b] * sin(angle));
		out[b] = factor * ((double)row[a] * sin(angle) + (double)row[b] * cos(angle));
	}
}

/* Channels that don't turn stay to the bit. */
static void turning_matches_a_computation_in_double(void **state) {
	rng r = {1};
	(void)state;
	for (int n = 0; n < 300; n++) {
		turn_case c;
		float row[MOST];
		double expected[MOST];
		random_turn(&c, &r);
		int32_t position = rng_range(&r, -100000, 100000);
		float factor = n % 3 ? 1.0f : 0.5f + fabsf(rng_float(&r));
		memcpy(row, c.row, sizeof row);
		naive_turn(&c.rope, position, (double)factor, c.row, expected);
		ckv_rope_turn(&c.rope, position, factor, row);
		for (int32_t i = 0; i < MOST; i++) {
			CHECK(fabs((double)row[i] - expected[i]) <= 1e-6, "case %d, channel %d: %g instead of %g", n, i, (double)row[i],
			      expected[i]);
		}
		check_bits(c.row + c.rope.n_dims, row + c.rope.n_dims, (size_t)(MOST - c.rope.n_dims), "beyond n_dims");
	}
}

static void turning_forward_and_back_changes_nothing(void **state) {
	rng r = {2};
	(void)state;
	for (int n = 0; n < 300; n++) {
		turn_case c;
		float row[MOST];
		random_turn(&c, &r);
		int32_t position = rng_range(&r, 0, 1000000);
		memcpy(row, c.row, sizeof row);
		ckv_rope_turn(&c.rope, position, 2.0f, row);
		ckv_rope_turn(&c.rope, -position, 0.5f, row);
		for (int32_t i = 0; i < MOST; i++) {
			CHECK(fabsf(row[i] - c.row[i]) <= 2e-6f, "case %d, channel %d: %g instead of %g", n, i, (double)row[i],
			      (double)c.row[i]);
		}
	}
}

/* Channel 2i of neighbours is channel i of halves. */
static void pairs_of_neighbours_turn_as_pairs_of_halves(void **state) {
	rng r = {3};
	(void)state;
	for (int n = 0; n < 100; n++) {
		turn_case c;
		float halves[MOST], neighbours[MOST];
		random_turn(&c, &r);
		int32_t half = c.rope.n_dims / 2;
		memcpy(halves, c.row, sizeof halves);
		for (int32_t i = 0; i < half; i++) {
			neighbours[2 * i] = halves[i];
			neighbours[2 * i + 1] = halves[i + half];
		}
		c.rope.interleaved = 0;
		ckv_rope_turn(&c.rope, 37, 1.25f, halves);
		c.rope.interleaved = 1;
		ckv_rope_turn(&c.rope, 37, 1.25f, neighbours);
		for (int32_t i = 0; i < half; i++) {
			CHECK(halves[i] == neighbours[2 * i] && halves[i + half] == neighbours[2 * i + 1], "case %d, pair %d", n, i);
		}
	}
}

/* What attention rests on: the product of a query and a key depends on how far apart they are. */
static void products_depend_on_the_distance_only(void **state) {
	rng r = {4};
	(void)state;
	for (int n = 0; n < 100; n++) {
		turn_case c;
		float q[2][MOST], k[2][MOST];
		double product[2] = {0.0, 0.0};
		random_turn(&c, &r);
		int32_t distance = rng_range(&r, -50, 50), at[2] = {rng_range(&r, 0, 100), rng_range(&r, 0, 100)};
		for (int i = 0; i < 2; i++) {
			memcpy(q[i], c.row, sizeof q[i]);
			for (int32_t j = 0; j < MOST; j++) {
				k[i][j] = c.row[MOST - 1 - j];
			}
			ckv_rope_turn(&c.rope, at[i] + distance, 1.0f, q[i]);
			ckv_rope_turn(&c.rope, at[i], 1.0f, k[i]);
			for (int32_t j = 0; j < MOST; j++) {
				product[i] += (double)q[i][j] * (double)k[i][j];
			}
		}
		CHECK(fabs(product[0] - product[1]) < 1e-3, "case %d: %g and %g", n, product[0], product[1]);
	}
}

static void nothing_turns_at_position_zero_or_without_dimensions(void **state) {
	rng r = {5};
	turn_case c;
	float row[MOST];
	(void)state;
	random_turn(&c, &r);
	memcpy(row, c.row, sizeof row);
	ckv_rope_turn(&c.rope, 0, 1.0f, row);
	check_bits(c.row, row, MOST, "position 0");
	c.rope.n_dims = 0;
	c.rope.inv_freq = NULL;
	ckv_rope_turn(&c.rope, 1000, 3.0f, row);
	check_bits(c.row, row, MOST, "no dimensions");
}

/* Rows of several heads at one position, with something else between them. */
static void rows_turn_together_as_they_do_alone(void **state) {
	enum { ROWS = 5, GAP = 7 };
	rng r = {6};
	(void)state;
	for (int n = 0; n < 50; n++) {
		turn_case c;
		float together[ROWS][MOST + GAP], alone[ROWS][MOST + GAP];
		random_turn(&c, &r);
		for (int i = 0; i < ROWS * (MOST + GAP); i++) {
			together[i / (MOST + GAP)][i % (MOST + GAP)] = rng_float(&r);
		}
		memcpy(alone, together, sizeof alone);
		for (int i = 0; i < ROWS; i++) {
			ckv_rope_turn(&c.rope, 77 - n, 1.5f, alone[i]);
		}
		ckv_rope_turn_rows(&c.rope, 77 - n, 1.5f, together[0], ROWS, MOST + GAP);
		check_bits(alone[0], together[0], ROWS * (MOST + GAP), "rows");
		ckv_rope_turn_rows(&c.rope, 77 - n, 1.5f, together[0], 0, MOST + GAP); /* no rows */
		check_bits(alone[0], together[0], ROWS * (MOST + GAP), "no rows");
	}
}

/* Row i goes from positions[i] to first + i; what lies between the rows stays. */
static void gaps_close_as_rows_turn_one_by_one(void **state) {
	enum { ROWS = 9, GAP = 3 };
	rng r = {7};
	(void)state;
	for (int n = 0; n < 200; n++) {
		turn_case c;
		float closed[ROWS][MOST + GAP], alone[ROWS][MOST + GAP];
		int32_t positions[ROWS], first = rng_chance(&r, 2) ? 0 : rng_range(&r, 0, 5000);
		random_turn(&c, &r);
		c.rope.interleaved = n % 2;
		for (int i = 0; i < ROWS * (MOST + GAP); i++) {
			closed[i / (MOST + GAP)][i % (MOST + GAP)] = rng_float(&r);
		}
		for (int i = 0; i < ROWS; i++) {
			positions[i] = (i ? positions[i - 1] + 1 : first) + rng_range(&r, 0, 2) * rng_range(&r, 0, 400);
		}
		memcpy(alone, closed, sizeof alone);
		for (int i = 0; i < ROWS; i++) {
			ckv_rope_turn(&c.rope, first + i - positions[i], 1.0f, alone[i]);
		}
		ckv_rope_close_gaps(&c.rope, positions, ROWS, first, closed[0], MOST + GAP);
		check_bits(alone[0], closed[0], ROWS * (MOST + GAP), "rows");
		ckv_rope_close_gaps(&c.rope, positions, 0, first, closed[0], MOST + GAP);
		check_bits(alone[0], closed[0], ROWS * (MOST + GAP), "no rows");
	}
}

/* Keys turned by where they stood, then moved together, are keys turned by where they stand now. */
static void closed_gaps_are_keys_of_the_new_positions(void **state) {
	enum { ROWS = 7 };
	rng r = {8};
	(void)state;
	for (int n = 0; n < 200; n++) {
		turn_case c;
		float moved[ROWS][MOST], fresh[ROWS][MOST];
		int32_t positions[ROWS], first = rng_range(&r, 0, 40);
		random_turn(&c, &r);
		for (int i = 0; i < ROWS; i++) {
			positions[i] = (i ? positions[i - 1] + 1 : first) + rng_range(&r, 0, 30);
			for (int j = 0; j < MOST; j++) {
				moved[i][j] = fresh[i][j] = rng_float(&r);
			}
			ckv_rope_turn(&c.rope, positions[i], 1.0f, moved[i]);
			ckv_rope_turn(&c.rope, first + i, 1.0f, fresh[i]);
		}
		ckv_rope_close_gaps(&c.rope, positions, ROWS, first, moved[0], MOST);
		for (int i = 0; i < ROWS * MOST; i++) {
			double a = (double)fresh[i / MOST][i % MOST], b = (double)moved[i / MOST][i % MOST];
			CHECK(fabs(a - b) <= 1e-4, "case %d, row %d, channel %d: %g instead of %g", n, i / MOST, i % MOST, b, a);
		}
	}
}

/* Not even a NaN changes, which a turn would spread. */
static void a_key_that_does_not_move_keeps_its_bits(void **state) {
	rng r = {9};
	turn_case c;
	float row[MOST];
	const int32_t position = 17;
	(void)state;
	random_turn(&c, &r);
	c.row[0] = NAN;
	memcpy(row, c.row, sizeof row);
	ckv_rope_close_gaps(&c.rope, &position, 1, 17, row, MOST);
	check_bits(c.row, row, MOST, "the same position");
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(turning_matches_a_computation_in_double),
	    cmocka_unit_test(turning_forward_and_back_changes_nothing),
	    cmocka_unit_test(pairs_of_neighbours_turn_as_pairs_of_halves),
	    cmocka_unit_test(products_depend_on_the_distance_only),
	    cmocka_unit_test(nothing_turns_at_position_zero_or_without_dimensions),
	    cmocka_unit_test(rows_turn_together_as_they_do_alone),
	    cmocka_unit_test(gaps_close_as_rows_turn_one_by_one),
	    cmocka_unit_test(closed_gaps_are_keys_of_the_new_positions),
	    cmocka_unit_test(a_key_that_does_not_move_keeps_its_bits),
	};
	return cmocka_run_group_tests_name("rope", tests, NULL, NULL);
}
