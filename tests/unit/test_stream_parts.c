/* What streaming caches are made of: rows in order and the chunks that may go, numbers as f16, shares of a budget, the
 * one-shot mask, and keys turned so that no gap is left. */
#include "stream_support.h"

#include "stream/internal.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------------- lane */

enum { MOST_ROWS = 200 };

/* The same rows in a plain list; slot: where the row was put. */
typedef struct naive_lane {
	int32_t n, position[MOST_ROWS], slot[MOST_ROWS];
	float score[MOST_ROWS];
} naive_lane;

static void check_lane(const ckv_lane *lane, const naive_lane *naive, bool slots) {
	unsigned char taken[MOST_ROWS] = {0};
	assert_int_equal(lane->n, naive->n);
	for (int32_t i = 0; i < lane->n; i++) {
		CHECK(lane->positions[i] == naive->position[i] && !(lane->scores[i] < naive->score[i]) &&
		          !(lane->scores[i] > naive->score[i]),
		      "row %d", i);
		CHECK(!slots || (lane->slots[i] == naive->slot[i] && lane->columns[i] == naive->position[i] % 7), "row %d", i);
	}
	for (int32_t i = 0; i < lane->capacity && slots; i++) {
		CHECK(lane->slots[i] >= 0 && lane->slots[i] < lane->capacity && !taken[lane->slots[i]], "slot %d", lane->slots[i]);
		taken[lane->slots[i]] = 1;
	}
}

static void naive_remove(naive_lane *naive, lane_range rows) {
	for (int32_t i = rows.end; i < naive->n; i++) {
		int32_t to = i - (rows.end - rows.first);
		naive->position[to] = naive->position[i];
		naive->slot[to] = naive->slot[i];
		naive->score[to] = naive->score[i];
	}
	naive->n -= rows.end - rows.first;
}

static void rows_keep_their_places_in_any_order_of_work(void **state) {
	rng r = {1};
	const ckv_allocator allocator = ckv_allocator_default();
	(void)state;
	for (int i = 0; i < 100; i++) {
		bool slots = i % 2;
		ckv_lane lane = {0};
		naive_lane naive = {0};
		for (int32_t step = 0, position = 0; step < 150; step++) {
			int32_t first = rng_range(&r, 0, lane.n);
			lane_range some = {first, rng_range(&r, first, lane.n)};
			if (lane.n > 0 && rng_chance(&r, 4)) {
				ckv_lane_remove(&lane, some);
				naive_remove(&naive, some);
			} else if (lane.n < MOST_ROWS) {
				if (lane.n == lane.capacity) {
					int32_t more = lane.capacity + rng_range(&r, 1, 9);
					assert_true(ckv_lane_reserve(&allocator, &lane, more < MOST_ROWS ? more : MOST_ROWS, slots));
					for (int32_t j = 0; j < lane.n && slots; j++) { /* logits are made after room is */
						lane.columns[j] = lane.positions[j] % 7;
					}
				}
				position += rng_range(&r, 1, 4);
				naive.position[naive.n] = position;
				naive.score[naive.n] = rng_float(&r);
				naive.slot[naive.n] = slots ? lane.slots[lane.n] : 0;
				ckv_lane_append(&lane, position, naive.score[naive.n], position % 7);
				naive.n++;
			}
			check_lane(&lane, &naive, slots);
			int32_t before = 0, limit = rng_range(&r, 0, position + 2);
			while (before < naive.n && naive.position[before] < limit) {
				before++;
			}
			assert_int_equal(ckv_lane_before(&lane, limit), before);
		}
		ckv_lane_free(&allocator, &lane);
		assert_null(lane.positions);
	}
}

/* Every position alone: may its chunk go? */
static bool may_go(const lane_rule *rule, int32_t position, int32_t seen) {
	if (position < rule->sinks) {
		return false;
	}
	int32_t start = position - (position - rule->sinks) % rule->chunk, end = start + rule->chunk;
	for (int32_t i = 0; i < rule->n_pins; i++) {
		for (int32_t p = rule->pins[i].first; p < rule->pins[i].end; p++) {
			if (p >= start && p < end) {
				return false;
			}
		}
	}
	return end <= seen - rule->grace;
}

static void chunks_that_may_go_are_told_in_order_and_the_lowest_found(void **state) {
	rng r = {2};
	const ckv_allocator allocator = ckv_allocator_default();
	(void)state;
	for (int i = 0; i < 500; i++) {
		lane_pin pins[3];
		lane_rule rule = {
		    .chunk = rng_range(&r, 1, 6), .sinks = rng_range(&r, 0, 5), .grace = rng_range(&r, 0, 10), .pins = pins};
		rule.n_pins = rng_range(&r, 0, 3);
		rule.newer_loses = rng_chance(&r, 2);
		for (int32_t j = 0; j < 3; j++) {
			pins[j].first = rng_range(&r, 0, 60);
			pins[j].end = pins[j].first + rng_range(&r, 1, 8);
		}
		ckv_lane lane = {0};
		int32_t seen = rng_range(&r, 0, 60);
		assert_true(ckv_lane_reserve(&allocator, &lane, 60, false));
		for (int32_t p = 0; p < seen; p++) {
			if (!rng_chance(&r, 3)) {
				ckv_lane_append(&lane, p, (float)rng_range(&r, 0, 3), 0);
			}
		}
		lane_range next = {0, 0}, lowest = {0, 0}, told;
		double best = 0.0;
		bool found = false;
		for (int32_t row = 0; row < lane.n;) {
			int32_t from = row;
			double sum = lane.scores[row++];
			int32_t number = lane.positions[from] < rule.sinks ? -1 : (lane.positions[from] - rule.sinks) / rule.chunk;
			while (row < lane.n && number >= 0 && (lane.positions[row] - rule.sinks) / rule.chunk == number) {
				sum += lane.scores[row++];
			}
			if (!may_go(&rule, lane.positions[from], seen)) {
				continue;
			}
			CHECK(ckv_lane_next(&lane, &rule, seen, next.end, &next) && next.first == from && next.end == row, "row %d",
			      from);
			double mean = sum / (row - from);
			if (!found || mean < best - 1e-9 || (rule.newer_loses && mean < best + 1e-9)) {
				best = mean;
				lowest = next;
				found = true;
			}
		}
		assert_false(ckv_lane_next(&lane, &rule, seen, next.end, &next));
		assert_int_equal(ckv_lane_lowest(&lane, &rule, seen, &told), found);
		CHECK(!found || (told.first == lowest.first && told.end == lowest.end), "rows %d to %d, not %d to %d", told.first,
		      told.end, lowest.first, lowest.end);
		ckv_lane_free(&allocator, &lane);
	}
}

/* ----------------------------------------------------------------------- f16 */

static void every_f16_value_converts_to_itself(void **state) {
	(void)state;
	for (uint32_t bits = 0; bits < 65536; bits++) {
		float x = (float)f16_value((uint16_t)bits);
		uint16_t back = ckv_f16_from_f32(x);
		bool nan = (bits & 0x7c00) == 0x7c00 && (bits & 1023);
		CHECK(nan ? (back & 0x7c00) == 0x7c00 && (back & 1023) : back == bits, "%#x became %#x", bits, back);
	}
}

/* Between two neighbours: the nearer one, in the middle the even one. */
static void numbers_between_round_to_the_nearest_and_halves_to_even(void **state) {
	(void)state;
	for (uint32_t bits = 0; bits < 0x7c00; bits++) {
		double low = f16_value((uint16_t)bits), high = bits == 0x7bff ? 65536.0 : f16_value((uint16_t)(bits + 1));
		float middle = (float)((low + high) / 2);
		uint32_t even = bits % 2 ? bits + 1 : bits;
		for (uint32_t sign = 0; sign < 2; sign++) {
			float s = sign ? -1.0f : 1.0f;
			CHECK(ckv_f16_from_f32(s * middle) == (even | sign << 15), "half after %#x", bits);
			CHECK(ckv_f16_from_f32(s * nextafterf(middle, 0.0f)) == (bits | sign << 15), "below half after %#x", bits);
			CHECK(ckv_f16_from_f32(s * nextafterf(middle, 1e9f)) == ((bits + 1) | sign << 15), "above half after %#x", bits);
		}
	}
	assert_int_equal(ckv_f16_from_f32(FLT_MAX), 0x7c00);
	assert_int_equal(ckv_f16_from_f32(-FLT_MIN), 0x8000);
	assert_int_equal(ckv_f16_from_f32(0x1p-149f), 0);
	assert_int_equal(ckv_f16_from_f32(-INFINITY), 0xfc00);
}

/* ----------------------------------------------------------------- keep mask */

typedef struct ranked {
	double mean;
	int32_t first, n;
} ranked;

static int best_first(const void *a, const void *b) {
	const ranked *x = a, *y = b;
	return x->mean > y->mean ? -1 : x->mean < y->mean ? 1 : y->first - x->first;
}

static void the_mask_keeps_the_best_chunks_that_fit(void **state) {
	enum { MOST = 120 };
	rng r = {3};
	(void)state;
	for (int i = 0; i < 2000; i++) {
		float scores[MOST];
		uint8_t keep[MOST + 1], expected[MOST] = {0};
		ranked chunks[MOST];
		int32_t n = rng_range(&r, 1, MOST), chunk = rng_range(&r, 1, 12), sinks = rng_range(&r, 0, 6), n_chunks = 0;
		int32_t budget = rng_range(&r, 0, n + 5);
		exact_scores(&r, scores, n);
		for (int32_t first = sinks; first < n; first += chunk) {
			ranked *c = &chunks[n_chunks++];
			*c = (ranked){0.0, first, n - first < chunk ? n - first : chunk};
			for (int32_t t = first; t < first + c->n; t++) {
				c->mean += (double)scores[t];
			}
			c->mean /= c->n;
		}
		qsort(chunks, (size_t)n_chunks, sizeof *chunks, best_first);
		int32_t left = budget - (sinks < n ? sinks : n);
		memset(expected, 1, (size_t)(sinks < n ? sinks : n));
		for (int32_t c = 0; c < n_chunks; c++) {
			if (chunks[c].n <= left) {
				memset(expected + chunks[c].first, 1, (size_t)chunks[c].n);
				left -= chunks[c].n;
			}
		}
		paint(keep, sizeof keep);
		assert_int_equal(ckv_keep_mask(scores, n, chunk, sinks, budget, keep), CKV_OK);
		CHECK(memcmp(keep, expected, (size_t)n) == 0, "case %d: %d scores, chunks of %d, sinks %d, budget %d", i, n, chunk,
		      sinks, budget);
		assert_true(is_painted(keep + n, sizeof keep - (size_t)n));
	}
}

static void masks_without_sense_are_refused(void **state) {
	float scores[] = {1.0f, 2.0f, NAN};
	uint8_t keep[3];
	(void)state;
	paint(keep, sizeof keep);
	assert_int_equal(ckv_keep_mask(NULL, 3, 1, 0, 1, keep), CKV_ERR_ARG);
	assert_int_equal(ckv_keep_mask(scores, 2, 1, 0, 1, NULL), CKV_ERR_ARG);
	assert_int_equal(ckv_keep_mask(scores, 0, 1, 0, 1, keep), CKV_ERR_ARG);
	assert_int_equal(ckv_keep_mask(scores, INT32_MAX, 1, 0, 1, keep), CKV_ERR_ARG);
	assert_int_equal(ckv_keep_mask(scores, 2, 0, 0, 1, keep), CKV_ERR_ARG);
	assert_int_equal(ckv_keep_mask(scores, 2, 1, -1, 1, keep), CKV_ERR_ARG);
	assert_int_equal(ckv_keep_mask(scores, 2, 1, 0, -1, keep), CKV_ERR_ARG);
	assert_int_equal(ckv_keep_mask(scores, 3, 1, 0, 1, keep), CKV_ERR_NUMERIC);
	assert_true(is_painted(keep, sizeof keep));
	assert_int_equal(ckv_keep_mask(scores, 2, INT32_MAX, INT32_MAX, INT32_MAX, keep), CKV_OK);
	assert_true(keep[0] == 1 && keep[1] == 1);
	assert_int_equal(ckv_keep_mask(scores, 2, INT32_MAX, 1, INT32_MAX, keep), CKV_OK);
	assert_true(keep[0] == 1 && keep[1] == 1);
}

/* -------------------------------------------------------------------- budgets */

static int64_t sum_of(const int32_t *budgets, int32_t n) {
	int64_t sum = 0;
	for (int32_t i = 0; i < n; i++) {
		sum += budgets[i];
	}
	return sum;
}

static void pyramids_fall_to_a_floor_around_their_mean(void **state) {
	enum { MOST = 64 };
	static const char *const policies[] = {"pyramidkv",
	                                       "pyramidkv:beta=1.2",
	                                       "pyramidkv:beta=20,grace=3",
	                                       "chunkkv:layers=pyramid",
	                                       "snapkv:layers=pyramid,window=9,chunk=2",
	                                       "chunkkv:scorer=streaming,layers=pyramid",
	                                       "chunkkv:scorer=snapkv,layers=pyramid"};
	rng r = {4};
	(void)state;
	for (int i = 0; i < 700; i++) {
		const char *policy = policies[i % 7];
		ckv_stream_params p = stream_params(policy);
		int32_t budgets[MOST], n = rng_range(&r, 2, MOST), least = least_budget(policy),
		                       mean = least + rng_range(&r, 0, 300);
		assert_int_equal(ckv_stream_budgets(&p, mean, n, NULL, budgets, NULL), CKV_OK);
		int64_t sum = sum_of(budgets, n);
		CHECK(llabs(sum - (int64_t)mean * n) <= n / 2 + 1, "%s: %d layers of %d get %lld rows", policy, n, mean,
		      (long long)sum);
		for (int32_t l = 0; l < n; l++) {
			CHECK(budgets[l] >= least && (l == 0 || budgets[l] <= budgets[l - 1]), "%s: layer %d gets %d", policy, l,
			      budgets[l]);
		}
		CHECK(mean == least || budgets[0] > mean || (p.beta - 1) * (mean - least) < 1, "%s: %d first", policy, budgets[0]);
		ckv_stream_shape shapes[MOST];
		for (int32_t l = 0; l < n; l++) {
			shapes[l] = (ckv_stream_shape){1, 2, 2};
		}
		ckv_stream *s = stream_make(policy, mean, shapes, n, NULL);
		for (int32_t l = 0; l < n; l++) {
			CHECK(layer_info(s, l).layer_budget == budgets[l], "%s: layer %d of a stream has %d, not %d", policy, l,
			      layer_info(s, l).layer_budget, budgets[l]);
		}
		ckv_stream_free(s);
	}
}

static void squeeze_shares_by_how_little_keys_are_alike(void **state) {
	enum { MOST = 30 };
	rng r = {5};
	(void)state;
	for (int i = 0; i < 300; i++) {
		ckv_stream_params p = stream_params("squeezeattention:grace=3");
		float alike[MOST];
		double sum = 0.0;
		int32_t budgets[MOST], n = rng_range(&r, 2, MOST), mean = rng_range(&r, 8, 500);
		p.strength = rng_range(&r, 0, 4) / 4.0;
		for (int32_t l = 0; l < n; l++) {
			alike[l] = 1.2f * rng_float(&r);
			sum += alike[l] < 0.0f ? 1.0 : alike[l] > 1.0f ? 0.0 : 1.0 - (double)alike[l];
		}
		assert_int_equal(ckv_stream_budgets(&p, mean, n, alike, budgets, NULL), CKV_OK);
		for (int32_t l = 0; l < n; l++) {
			double raw = alike[l] < 0.0f ? 1.0 : alike[l] > 1.0f ? 0.0 : 1.0 - (double)alike[l];
			double share = mean * (1.0 - p.strength + p.strength * (sum > 0.0 ? raw * n / sum : 1.0));
			share = share < 8.0 ? 8.0 : share;
			CHECK(fabs(budgets[l] - share) <= 0.5 + 1e-6, "layer %d of %d: %d, not %g", l, n, budgets[l], share);
		}
	}
}

static void keys_are_alike_by_the_mean_cosine_of_all_pairs(void **state) {
	rng r = {8};
	(void)state;
	for (int i = 0; i < 100; i++) {
		const ckv_stream_shape shape = {1, rng_range(&r, 1, 40), 1};
		int32_t n = rng_range(&r, 2, 60);
		tokens t = tokens_random(&r, shape, n, 0);
		uint16_t *rows = test_memory((size_t)(n * shape.dim_k), sizeof *rows);
		float *scratch = test_memory((size_t)shape.dim_k * 2, sizeof *scratch);
		for (int32_t c = 0; c < n * shape.dim_k; c++) {
			rows[c] = ckv_f16_from_f32(t.k.value[c]);
		}
		double expected = naive_concentration(&t, n);
		double own = (double)ckv_stream_concentration(ckv_kernels_get(0), rows, n, shape.dim_k, scratch);
		CHECK(fabs(own - expected) < 1e-5, "%d rows of %d: %.9g, not %.9g", n, shape.dim_k, own, expected);
		assert_true(!(ckv_stream_concentration(ckv_kernels_get(0), rows, 1, shape.dim_k, scratch) > 0.0f));
		free(rows);
		free(scratch);
		tokens_free(&t);
	}
}

static void one_layer_and_uniform_ones_get_the_mean(void **state) {
	static const char *const policies[] = {"h2o", "pyramidkv", "squeezeattention", "pyramidkv:beta=1",
	                                       "squeezeattention:strength=0"};
	const float alike[4] = {0.9f, -0.5f, 0.0f, 0.3f};
	(void)state;
	for (size_t i = 0; i < 5; i++) {
		ckv_stream_params p = stream_params(policies[i]);
		for (int32_t n = 1; n <= (i == 1 || i == 2 ? 1 : 4); n++) {
			int32_t budgets[4];
			assert_int_equal(ckv_stream_budgets(&p, 50, n, alike, budgets, NULL), CKV_OK);
			for (int32_t l = 0; l < n; l++) {
				CHECK(budgets[l] == 50, "%s: %d", policies[i], budgets[l]);
			}
		}
	}
}

static void shares_without_sense_are_refused(void **state) {
	float alike[2] = {0.5f, NAN};
	int32_t budgets[2];
	ckv_error error;
	ckv_stream_params p = stream_params("squeezeattention"), bad = p;
	bad.layers = "no such";
	(void)state;
	paint(budgets, sizeof budgets);
	const struct {
		const ckv_stream_params *params;
		int32_t budget, n;
		const float *alike;
		int32_t *budgets;
		ckv_status status;
	} cases[] = {{NULL, 50, 1, alike, budgets, CKV_ERR_ARG},      {&p, 50, 1, alike, NULL, CKV_ERR_ARG},
	             {&p, 50, 0, alike, budgets, CKV_ERR_ARG},        {&p, 50, -1, alike, budgets, CKV_ERR_ARG},
	             {&p, 50, 1 << 20, alike, budgets, CKV_ERR_ARG},  {&p, 0, 1, alike, budgets, CKV_ERR_ARG},
	             {&p, INT32_MAX, 1, alike, budgets, CKV_ERR_ARG}, {&p, 50, 2, NULL, budgets, CKV_ERR_ARG},
	             {&p, 50, 2, alike, budgets, CKV_ERR_NUMERIC},    {&bad, 50, 1, alike, budgets, CKV_ERR_POLICY}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		ckv_status status =
		    ckv_stream_budgets(cases[i].params, cases[i].budget, cases[i].n, cases[i].alike, cases[i].budgets, &error);
		CHECK(status == cases[i].status && error.message[0], "case %zu: %s", i, ckv_strerror(status));
	}
	assert_true(is_painted(budgets, sizeof budgets));
}

/* ------------------------------------------------------------------- rotation */

static void check_read_turned(rng *r, bool interleaved) {
	enum { DIM = 16, VALUES = 5, BUDGET = 25, N = 90 };
	const ckv_stream_shape shape = {2, DIM, VALUES};
	float inv_freq[DIM / 2], rows[BUDGET * DIM];
	uint16_t plain[BUDGET * DIM], turned[BUDGET * DIM], values[2][BUDGET * VALUES];
	ckv_rope rope = {.n_dims = rng_chance(r, 2) ? DIM : 10, .interleaved = interleaved, .inv_freq = inv_freq, .gain = 1.5f};
	tokens t = tokens_random(r, shape, N, 1);
	ckv_stream *s = stream_make("chunkkv:chunk=3,grace=4", BUDGET, &shape, 1, NULL);
	for (int32_t i = 0; i < DIM / 2; i++) {
		inv_freq[i] = powf(10000.0f, -2.0f * (float)i / DIM);
	}
	push(s, 0, &t, 0, rng_range(r, 10, N));
	for (int32_t h = 0; h < 2; h++) {
		ckv_stream_rows held = head_rows(s, 0, h);
		assert_int_equal(ckv_stream_read(s, 0, h, NULL, plain, values[0]), CKV_OK);
		assert_int_equal(ckv_stream_read(s, 0, h, &rope, turned, values[1]), CKV_OK);
		for (int32_t i = 0; i < held.n * DIM; i++) {
			rows[i] = (float)f16_value(plain[i]);
		}
		ckv_rope_close_gaps(&rope, held.positions, held.n, layer_info(s, 0).tokens_seen - held.n, rows, DIM);
		for (int32_t i = 0; i < held.n * DIM; i++) {
			double expected = f16_rounded((double)rows[i]);
			CHECK(!(f16_value(turned[i]) < expected) && !(f16_value(turned[i]) > expected), "row %d: %g, not %g", i / DIM,
			      f16_value(turned[i]), expected);
		}
		assert_memory_equal(values[0], values[1], (size_t)(held.n * VALUES) * sizeof values[0][0]);
	}
	ckv_stream_free(s);
	tokens_free(&t);
}

static void keys_are_read_as_if_no_gap_were_there(void **state) {
	rng r = {6};
	(void)state;
	for (int i = 0; i < 60; i++) {
		check_read_turned(&r, i % 2);
	}
}

static void rotations_of_other_widths_are_refused(void **state) {
	const ckv_stream_shape shape = {1, 4, 2};
	const float inv_freq[4] = {1.0f, 0.1f, 0.01f, 0.001f};
	const ckv_rope ropes[] = {{.n_dims = 6, .inv_freq = inv_freq}, {.n_dims = -2, .inv_freq = inv_freq}, {.n_dims = 4}};
	uint16_t keys[40];
	rng r = {7};
	(void)state;
	tokens t = tokens_random(&r, shape, 10, 0);
	ckv_stream *s = stream_make("h2o", 30, &shape, 1, NULL);
	push(s, 0, &t, 0, 10);
	paint(keys, sizeof keys);
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(ckv_stream_read(s, 0, 0, &ropes[i], keys, NULL), CKV_ERR_ARG);
		assert_true(is_painted(keys, sizeof keys));
	}
	ckv_stream_free(s);
	tokens_free(&t);
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(rows_keep_their_places_in_any_order_of_work),
	    cmocka_unit_test(chunks_that_may_go_are_told_in_order_and_the_lowest_found),
	    cmocka_unit_test(every_f16_value_converts_to_itself),
	    cmocka_unit_test(numbers_between_round_to_the_nearest_and_halves_to_even),
	    cmocka_unit_test(the_mask_keeps_the_best_chunks_that_fit),
	    cmocka_unit_test(masks_without_sense_are_refused),
	    cmocka_unit_test(pyramids_fall_to_a_floor_around_their_mean),
	    cmocka_unit_test(squeeze_shares_by_how_little_keys_are_alike),
	    cmocka_unit_test(keys_are_alike_by_the_mean_cosine_of_all_pairs),
	    cmocka_unit_test(one_layer_and_uniform_ones_get_the_mean),
	    cmocka_unit_test(shares_without_sense_are_refused),
	    cmocka_unit_test(keys_are_read_as_if_no_gap_were_there),
	    cmocka_unit_test(rotations_of_other_widths_are_refused),
	};
	return cmocka_run_group_tests_name("stream_parts", tests, NULL, NULL);
}
