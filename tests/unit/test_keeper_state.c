/* The state of a ckv_keeper: rows dropped, taken over and taken back, bytes; what is refused, and memory. */
#include "stream_support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIM = 4, HEADS = 2 };

/* Keys and queries of any rows: the values hang on nothing but their number. */
static test_layer any_layer(int32_t rows, int32_t m) {
	rng r = {77};
	return test_layer_make(&r, 2 * HEADS, HEADS, DIM, rows, m);
}

static ckv_status observe(ckv_keeper *keeper, int32_t m) {
	test_layer t = any_layer(keeper_rows_of(keeper).n, m);
	ckv_status status = ckv_keeper_observe(keeper, &t.layer);
	test_layer_free(&t);
	return status;
}

static saved save_keeper(const ckv_keeper *keeper) {
	saved s = {.size = ckv_keeper_save(keeper, NULL, 0)};
	s.data = test_memory(s.size, 1);
	assert_int_equal(ckv_keeper_save(keeper, s.data, s.size), s.size);
	return s;
}

static bool still(const ckv_keeper *keeper, const saved *before) {
	saved now = save_keeper(keeper);
	bool same = same_saved(before, &now);
	saved_free(&now);
	return same;
}

static const char *const policies[] = {"chunkkv:chunk=3,grace=4", "h2o:grace=2",    "tova",
                                       "snapkv:window=4",         "l2norm:grace=3", "streamingllm"};
enum { N_POLICIES = sizeof policies / sizeof *policies };

/* The steps of a keeper's life; each may fail and is then tried again. */
enum { N_STEPS = 9 };

static ckv_status life(ckv_keeper *keeper, int32_t step) {
	static const int32_t adopted[] = {0, 1, 2, 3, 8, 9, 40};
	int32_t indices[64];
	switch (step) {
	case 0: return ckv_keeper_append(keeper, 30);
	case 1: return observe(keeper, 5);
	case 2: return ckv_keeper_pin(keeper, 10, 12);
	case 3: return ckv_keeper_evict(keeper, 7, indices);
	case 4: return ckv_keeper_append(keeper, 20);
	case 5: return observe(keeper, 20);
	case 6: return ckv_keeper_adopt(keeper, adopted, 7, 41);
	case 7: return ckv_keeper_append(keeper, 90);
	default: return observe(keeper, 3);
	}
}

static ckv_keeper *lived(const char *policy, int32_t steps) {
	ckv_keeper *keeper = keeper_make(policy, NULL);
	for (int32_t i = 0; i < steps; i++) {
		CHECK(life(keeper, i) == CKV_OK, "%s, step %d: %s", policy, i, ckv_keeper_message(keeper));
	}
	return keeper;
}

/* ------------------------------------------------------------- other accounts */

static void dropped_rows_are_gone_and_the_others_as_they_were(void **state) {
	(void)state;
	for (size_t i = 0; i < N_POLICIES; i++) {
		static const int32_t indices[] = {0, 3, 4, 9, 22};
		ckv_keeper *a = lived(policies[i], 4), *b = lived(policies[i], 4);
		ckv_stream_rows was = keeper_rows_of(a);
		assert_int_equal(was.n, 23);
		assert_int_equal(ckv_keeper_drop(b, indices, 5), CKV_OK);
		ckv_stream_rows is = keeper_rows_of(b);
		assert_int_equal(is.n, 18);
		for (int32_t row = 0, next = 0, to = 0; row < was.n; row++) {
			if (next < 5 && indices[next] == row) {
				next++;
				continue;
			}
			assert_int_equal(is.positions[to], was.positions[row]);
			check_bits(&was.scores[row], &is.scores[to++], 1, policies[i]);
		}
		assert_int_equal(ckv_keeper_seen(b), 30);
		ckv_keeper_free(a);
		ckv_keeper_free(b);
	}
}

static void rows_that_cannot_be_dropped_are_refused(void **state) {
	static const int32_t bad[][3] = {{-1, 2, 3}, {1, 1, 2}, {2, 1, 3}, {1, 2, 23}, {1, 2, INT32_MAX}, {INT32_MIN, 0, 1}};
	(void)state;
	ckv_keeper *keeper = lived("h2o:grace=2", 4);
	saved before = save_keeper(keeper);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		CHECK(ckv_keeper_drop(keeper, bad[i], 3) == CKV_ERR_ARG && ckv_keeper_message(keeper)[0], "case %zu", i);
	}
	assert_int_equal(ckv_keeper_drop(keeper, NULL, 1), CKV_ERR_ARG);
	assert_int_equal(ckv_keeper_drop(keeper, bad[1], -1), CKV_ERR_ARG);
	assert_int_equal(ckv_keeper_drop(NULL, bad[1], 1), CKV_ERR_ARG);
	assert_true(still(keeper, &before));
	assert_int_equal(ckv_keeper_drop(keeper, NULL, 0), CKV_OK);
	assert_true(still(keeper, &before));
	saved_free(&before);
	ckv_keeper_free(keeper);
}

/* Rows of another, without scores; norms are scored by the next observation, all of them. */
static void adopted_rows_start_without_scores(void **state) {
	static const int32_t positions[] = {0, 2, 5, 11, 12, 29};
	(void)state;
	for (size_t i = 0; i < N_POLICIES; i++) {
		ckv_keeper *keeper = lived(policies[i], 4), *fresh = keeper_make(policies[i], NULL);
		assert_int_equal(ckv_keeper_adopt(keeper, positions, 6, 31), CKV_OK);
		assert_int_equal(ckv_keeper_adopt(fresh, positions, 6, 31), CKV_OK);
		ckv_stream_rows rows = keeper_rows_of(keeper);
		assert_true(rows.n == 6 && ckv_keeper_seen(keeper) == 31);
		assert_memory_equal(rows.positions, positions, sizeof positions);
		for (int32_t j = 0; j < 6; j++) {
			assert_true(!(rows.scores[j] > 0.0f) && !(rows.scores[j] < 0.0f));
		}
		saved bytes = save_keeper(fresh);
		CHECK(still(keeper, &bytes), "%s: something is left of before, a pin perhaps", policies[i]);
		assert_int_equal(observe(keeper, 1), CKV_OK);
		CHECK(strcmp(policies[i], "l2norm:grace=3") != 0 || keeper_rows_of(keeper).scores[0] < 0.0f, "%s", policies[i]);
		assert_int_equal(ckv_keeper_append(keeper, 1), CKV_OK);
		assert_int_equal(keeper_rows_of(keeper).positions[6], 31);
		saved_free(&bytes);
		ckv_keeper_free(keeper);
		ckv_keeper_free(fresh);
	}
}

static void rows_that_cannot_be_adopted_are_refused(void **state) {
	static const int32_t bad[][3] = {{-1, 2, 3}, {1, 1, 2}, {2, 1, 3}, {1, 2, 10}};
	(void)state;
	ckv_keeper *keeper = lived("h2o:grace=2", 4);
	saved before = save_keeper(keeper);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		CHECK(ckv_keeper_adopt(keeper, bad[i], 3, 10) == CKV_ERR_ARG && ckv_keeper_message(keeper)[0], "case %zu", i);
	}
	assert_int_equal(ckv_keeper_adopt(keeper, NULL, 1, 10), CKV_ERR_ARG);
	assert_int_equal(ckv_keeper_adopt(keeper, bad[1], -1, 10), CKV_ERR_ARG);
	assert_int_equal(ckv_keeper_adopt(keeper, bad[1], 0, -1), CKV_ERR_ARG);
	assert_int_equal(ckv_keeper_adopt(keeper, bad[1], 0, INT32_MAX), CKV_ERR_ARG);
	assert_int_equal(ckv_keeper_adopt(NULL, bad[1], 0, 0), CKV_ERR_ARG);
	assert_true(still(keeper, &before));
	saved_free(&before);
	ckv_keeper_free(keeper);
}

static void tokens_taken_back_are_gone_and_the_next_take_their_positions(void **state) {
	(void)state;
	for (size_t i = 0; i < N_POLICIES; i++) {
		for (int32_t n = 0; n <= 50; n++) {
			ckv_keeper *keeper = lived(policies[i], 6), *before = lived(policies[i], 6);
			assert_int_equal(ckv_keeper_trim(keeper, n), CKV_OK);
			ckv_stream_rows was = keeper_rows_of(before), is = keeper_rows_of(keeper);
			assert_true(ckv_keeper_seen(keeper) == 50 - n && is.n <= was.n);
			assert_true((is.n == was.n || was.positions[is.n] >= 50 - n) && (is.n == 0 || is.positions[is.n - 1] < 50 - n));
			assert_memory_equal(is.positions, was.positions, (size_t)is.n * sizeof *is.positions);
			check_bits(was.scores, is.scores, (size_t)is.n, policies[i]);
			assert_int_equal(ckv_keeper_append(keeper, 2), CKV_OK);
			assert_int_equal(keeper_rows_of(keeper).positions[keeper_rows_of(keeper).n - 1], 51 - n);
			assert_int_equal(observe(keeper, 2), CKV_OK);
			for (int32_t j = 0; j < keeper_rows_of(keeper).n && strcmp(policies[i], "l2norm:grace=3") == 0; j++) {
				CHECK(keeper_rows_of(keeper).scores[j] < 0.0f, "row %d after %d were taken back has no norm", j, n);
			}
			ckv_keeper_free(keeper);
			ckv_keeper_free(before);
		}
		ckv_keeper *keeper = lived(policies[i], 6);
		saved bytes = save_keeper(keeper);
		assert_int_equal(ckv_keeper_trim(keeper, 51), CKV_ERR_ARG);
		assert_int_equal(ckv_keeper_trim(keeper, -1), CKV_ERR_ARG);
		assert_int_equal(ckv_keeper_trim(NULL, 0), CKV_ERR_ARG);
		assert_true(ckv_keeper_message(keeper)[0] && still(keeper, &bytes));
		saved_free(&bytes);
		ckv_keeper_free(keeper);
	}
}

static void a_cleared_keeper_is_as_just_created(void **state) {
	(void)state;
	for (size_t i = 0; i < N_POLICIES; i++) {
		ckv_keeper *keeper = lived(policies[i], 6), *fresh = keeper_make(policies[i], NULL);
		saved bytes = save_keeper(fresh);
		ckv_keeper_clear(keeper);
		CHECK(still(keeper, &bytes) && ckv_keeper_seen(keeper) == 0 && ckv_keeper_evictable(keeper) == 0, "%s", policies[i]);
		for (int32_t step = 0; step < N_STEPS; step++) {
			assert_int_equal(life(keeper, step), CKV_OK);
			assert_int_equal(life(fresh, step), CKV_OK);
		}
		saved after = save_keeper(fresh);
		CHECK(still(keeper, &after), "%s", policies[i]);
		saved_free(&bytes);
		saved_free(&after);
		ckv_keeper_free(keeper);
		ckv_keeper_free(fresh);
	}
	ckv_keeper_clear(NULL);
}

/* ----------------------------------------------------------------------- bytes */

static void a_restored_keeper_goes_on_as_the_saved_one(void **state) {
	(void)state;
	for (size_t i = 0; i < N_POLICIES; i++) {
		for (int32_t cut = 0; cut <= N_STEPS; cut++) {
			ckv_keeper *first = lived(policies[i], cut), *fresh = keeper_make(policies[i], NULL),
			           *used = lived(policies[i], 8);
			saved bytes = save_keeper(first);
			assert_int_equal(ckv_keeper_restore(fresh, bytes.data, bytes.size), CKV_OK);
			assert_int_equal(ckv_keeper_restore(used, bytes.data, bytes.size), CKV_OK);
			CHECK(still(fresh, &bytes) && still(used, &bytes) && still(first, &bytes), "%s, step %d", policies[i], cut);
			for (int32_t step = cut; step < N_STEPS; step++) {
				assert_int_equal(life(first, step), CKV_OK);
				assert_int_equal(life(fresh, step), CKV_OK);
				assert_int_equal(life(used, step), CKV_OK);
			}
			saved after = save_keeper(first);
			CHECK(still(fresh, &after) && still(used, &after), "%s, from step %d on", policies[i], cut);
			saved_free(&bytes);
			saved_free(&after);
			ckv_keeper_free(first);
			ckv_keeper_free(fresh);
			ckv_keeper_free(used);
		}
	}
}

static void refused(ckv_keeper *keeper, const void *data, size_t size, ckv_status expected, const char *what) {
	saved before = save_keeper(keeper);
	ckv_status status = ckv_keeper_restore(keeper, data, size);
	CHECK(status == expected, "%s: %s", what, ckv_strerror(status));
	CHECK(ckv_keeper_message(keeper)[0] && still(keeper, &before), "%s", what);
	saved_free(&before);
}

static void damaged_bytes_are_refused(void **state) {
	(void)state;
	ckv_keeper *keeper = lived("h2o:grace=2", 6), *other = lived("h2o:grace=2", 2), *chunked = lived("chunkkv:grace=2", 2);
	saved bytes = save_keeper(keeper);
	for (size_t n = 0; n < bytes.size; n++) {
		char what[32];
		uint8_t was = bytes.data[n], *exact = test_memory(n, 1);
		snprintf(what, sizeof what, "byte %zu of %zu", n, bytes.size);
		memcpy(exact, bytes.data, n);
		refused(other, exact, n, CKV_ERR_ARG, what);
		bytes.data[n] ^= (uint8_t)(1u << n % 8);
		refused(other, bytes.data, bytes.size, CKV_ERR_ARG, what);
		bytes.data[n] = was;
		free(exact);
	}
	refused(chunked, bytes.data, bytes.size, CKV_ERR_STATE, "another policy");
	assert_int_equal(ckv_keeper_restore(NULL, bytes.data, bytes.size), CKV_ERR_ARG);
	paint(bytes.data, bytes.size);
	for (size_t capacity = 0; capacity < bytes.size; capacity++) {
		assert_int_equal(ckv_keeper_save(keeper, bytes.data, capacity), bytes.size);
		CHECK(is_painted(bytes.data, bytes.size), "written with room for %zu bytes", capacity);
	}
	assert_int_equal(ckv_keeper_save(NULL, bytes.data, bytes.size), 0);
	const ckv_stream_shape shape = {1, 2, 2};
	ckv_stream *s = stream_make("h2o:grace=2", 20, &shape, 1, NULL);
	saved strange = save_stream(s);
	refused(other, strange.data, strange.size, CKV_ERR_ARG, "a stream's bytes");
	saved_free(&strange);
	saved_free(&bytes);
	ckv_stream_free(s);
	ckv_keeper_free(keeper);
	ckv_keeper_free(other);
	ckv_keeper_free(chunked);
}

/* With a checksum that agrees: refused without effect, or a keeper that can be worked with. */
static void no_number_in_the_bytes_is_trusted(void **state) {
	static const int32_t values[] = {0, 1, -1, 5, 20, 65536, 1 << 30, INT32_MAX, INT32_MIN, CKV_MAX_TOKENS};
	(void)state;
	for (size_t i = 0; i < N_POLICIES; i++) {
		counting c;
		counting_init(&c);
		ckv_ctx_options options = stream_options(0, 0);
		options.allocator = &c.allocator;
		ckv_keeper *keeper = lived(policies[i], 6), *victim = keeper_make(policies[i], &options);
		saved bytes = save_keeper(keeper);
		for (size_t at = 32; at + 4 <= bytes.size; at++) {
			for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
				int32_t was;
				memcpy(&was, bytes.data + at, sizeof was);
				memcpy(bytes.data + at, &values[v], sizeof was);
				saved_sign(&bytes);
				saved before = save_keeper(victim);
				if (ckv_keeper_restore(victim, bytes.data, bytes.size) == CKV_OK) {
					for (int32_t step = 0; step < 6; step++) {
						(void)life(victim, step);
					}
					ckv_keeper_clear(victim);
				} else {
					CHECK(still(victim, &before), "%s: byte %zu as %d", policies[i], at, values[v]);
				}
				saved_free(&before);
				memcpy(bytes.data + at, &was, sizeof was);
			}
		}
		saved_free(&bytes);
		ckv_keeper_free(keeper);
		ckv_keeper_free(victim);
		assert_int_equal(c.live, 0);
	}
}

/* ---------------------------------------------------------------------- errors */

static void policies_that_need_the_rows_are_refused(void **state) {
	static const struct {
		const char *policy;
		ckv_status status;
	} cases[] = {{"cam", CKV_ERR_UNSUPPORTED},
	             {"pyramidkv", CKV_ERR_UNSUPPORTED},
	             {"squeezeattention", CKV_ERR_UNSUPPORTED},
	             {"h2o:mode=reference", CKV_ERR_UNSUPPORTED}};
	ckv_keeper *keeper;
	ckv_error error;
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		ckv_stream_params params = stream_params(cases[i].policy);
		paint(&keeper, sizeof keeper);
		CHECK(ckv_keeper_create(&keeper, &params, NULL, &error) == cases[i].status && error.message[0] && !keeper, "%s",
		      cases[i].policy);
	}
	ckv_stream_params params = stream_params("h2o"), small = params, name = params;
	ckv_ctx_options threads = stream_options(0, -1);
	small.size = 8;
	name.scorer = "no such";
	assert_int_equal(ckv_keeper_create(&keeper, NULL, NULL, &error), CKV_ERR_ARG);
	assert_int_equal(ckv_keeper_create(&keeper, &small, NULL, &error), CKV_ERR_ARG);
	assert_int_equal(ckv_keeper_create(&keeper, &name, NULL, &error), CKV_ERR_POLICY);
	assert_int_equal(ckv_keeper_create(&keeper, &params, &threads, &error), CKV_ERR_ARG);
	assert_int_equal(ckv_keeper_create(NULL, &params, NULL, &error), CKV_ERR_ARG);
	assert_null(keeper);
	ckv_keeper_free(NULL);
	assert_string_equal(ckv_keeper_message(NULL), "");
	assert_int_equal(ckv_keeper_seen(NULL), 0);
	assert_int_equal(ckv_keeper_evictable(NULL), 0);
}

static void not_observed(ckv_keeper *keeper, const ckv_layer *layer, ckv_status expected, const char *what) {
	saved before = save_keeper(keeper);
	ckv_status status = ckv_keeper_observe(keeper, layer);
	CHECK(status == expected, "%s: %s", what, ckv_strerror(status));
	CHECK(ckv_keeper_message(keeper)[0] && still(keeper, &before), "%s", what);
	saved_free(&before);
}

/* Numbers that are none, or that become none when multiplied. */
static void what_is_not_finite_is_refused(void **state) {
	static const float bad[] = {NAN, INFINITY, -INFINITY, 3e38f};
	(void)state;
	for (size_t i = 0; i < 5; i++) { /* not streaming, which looks at nothing */
		for (size_t b = 0; b < 4; b++) {
			ckv_keeper *keeper = lived(policies[i], 4);
			assert_int_equal(ckv_keeper_append(keeper, 2), CKV_OK);
			test_layer t = any_layer(keeper_rows_of(keeper).n, 2);
			int32_t row = i == 4 ? 24 : 3; /* norms are looked at once */
			float *k = (float *)(void *)t.stored_k.memory + row * DIM, *q = (float *)(void *)t.stored_q.memory + DIM,
			      was = k[0];
			for (int32_t c = 0; c < DIM; c++) { /* both: their product too is none */
				k[c] = bad[b];
				q[c] = b == 3 ? bad[b] : q[c];
			}
			not_observed(keeper, &t.layer, CKV_ERR_NUMERIC, policies[i]);
			if (i < 4 && b < 3) {
				for (int32_t c = 0; c < DIM; c++) {
					k[c] = was;
				}
				q[DIM - 1] = bad[b];
				not_observed(keeper, &t.layer, CKV_ERR_NUMERIC, policies[i]);
			}
			test_layer_free(&t);
			ckv_keeper_free(keeper);
		}
	}
}

static void layers_that_are_not_these_rows_are_refused(void **state) {
	(void)state;
	for (size_t i = 0; i < 5; i++) {
		ckv_keeper *keeper = lived(policies[i], 4);
		test_layer t = any_layer(23, 2);
		ckv_layer layer = layer_prefix(&t.layer, 22);
		not_observed(keeper, &layer, CKV_ERR_ARG, "a row less");
		layer = t.layer;
		layer.size = 0;
		not_observed(keeper, &layer, CKV_ERR_ARG, "size");
		layer = t.layer;
		layer.scale = NAN;
		not_observed(keeper, &layer, CKV_ERR_ARG, "scale");
		layer = t.layer;
		layer.k.data = NULL;
		not_observed(keeper, &layer, CKV_ERR_ARG, "no keys");
		for (int w = 0; w < 4 && i < 4; w++) {
			layer = t.layer;
			layer.q.n_heads = w == 0 ? 3 : layer.q.n_heads;
			layer.q.head_dim -= w == 1;
			layer.q.n_tokens = w == 2 ? 0 : layer.q.n_tokens;
			layer.q.data = w == 3 ? NULL : layer.q.data;
			not_observed(keeper, &layer, CKV_ERR_ARG, policies[i]);
		}
		assert_int_equal(ckv_keeper_observe(keeper, NULL), CKV_ERR_ARG);
		assert_int_equal(ckv_keeper_observe(NULL, &t.layer), CKV_ERR_ARG);
		assert_int_equal(ckv_keeper_append(keeper, -1), CKV_ERR_ARG);
		assert_int_equal(ckv_keeper_append(keeper, CKV_MAX_TOKENS), CKV_ERR_ARG);
		assert_int_equal(ckv_keeper_append(NULL, 1), CKV_ERR_ARG);
		assert_int_equal(ckv_keeper_evict(keeper, -1, NULL), CKV_ERR_ARG);
		assert_int_equal(ckv_keeper_evict(keeper, 1, NULL), CKV_ERR_ARG);
		assert_int_equal(ckv_keeper_evict(NULL, 0, NULL), CKV_ERR_ARG);
		assert_int_equal(ckv_keeper_pin(NULL, 0, 1), CKV_ERR_ARG);
		test_layer_free(&t);
		ckv_keeper_free(keeper);
	}
}

/* ---------------------------------------------------------------------- memory */

static bool torture(const char *policy, long n, bool stay) {
	counting c;
	ckv_keeper *keeper;
	ckv_stream_params params = stream_params(policy);
	ckv_ctx_options options = stream_options(0, 2);
	counting_init(&c);
	c.refuse_in = n;
	c.stay = stay;
	options.allocator = &c.allocator;
	ckv_status status = ckv_keeper_create(&keeper, &params, &options, NULL);
	bool whole = status == CKV_OK;
	CHECK(whole || (status == CKV_ERR_NOMEM && !keeper), "%s: %s", policy, ckv_strerror(status));
	for (int32_t step = 0; step < N_STEPS + 1 && keeper; step++) {
		ckv_keeper *other = lived(policy, 8);
		saved before = save_keeper(keeper), bytes = save_keeper(other);
		for (int again = 0; again < 2; again++) {
			status = step < N_STEPS ? life(keeper, step) : ckv_keeper_restore(keeper, bytes.data, bytes.size);
			if (status == CKV_OK) {
				break;
			}
			CHECK(status == CKV_ERR_NOMEM && ckv_keeper_message(keeper)[0] && still(keeper, &before) && again == 0,
			      "%s, request %ld, step %d: %s", policy, n, step, ckv_strerror(status));
			whole = false;
			c.refuse_in = 0;
		}
		if (step == N_STEPS - 1) {
			ckv_keeper *expected = lived(policy, N_STEPS);
			saved now = save_keeper(expected);
			CHECK(still(keeper, &now), "%s: request %ld changed the result", policy, n);
			saved_free(&now);
			ckv_keeper_free(expected);
		}
		saved_free(&before);
		saved_free(&bytes);
		ckv_keeper_free(other);
	}
	ckv_keeper_free(keeper);
	CHECK(c.live == 0, "%s, request %ld: %ld blocks are left", policy, n, c.live);
	return whole;
}

static void every_request_may_fail(void **state) {
	(void)state;
	for (size_t i = 0; i < 2 * (size_t)N_POLICIES; i++) {
		long n = 1;
		while (!torture(policies[i / 2], n, i % 2)) {
			n++;
		}
		CHECK(n > 4, "%s: %ld requests", policies[i / 2], n);
	}
}

static void memory_grows_with_the_rows_and_not_with_the_tokens(void **state) {
	(void)state;
	for (size_t i = 0; i < N_POLICIES; i++) {
		counting c;
		counting_init(&c);
		ckv_ctx_options options = stream_options(0, 0);
		options.allocator = &c.allocator;
		ckv_keeper *keeper = keeper_make(policies[i], &options);
		long calls = 0;
		for (int32_t n = 0; n < 20000; n += 32) {
			int32_t indices[32];
			assert_int_equal(ckv_keeper_append(keeper, 32), CKV_OK);
			assert_int_equal(observe(keeper, 32), CKV_OK);
			if (n >= 64) {
				assert_int_equal(ckv_keeper_evict(keeper, 32, indices), CKV_OK);
			}
			calls = n == 320 ? c.calls : calls;
		}
		CHECK(c.calls == calls && keeper_rows_of(keeper).n == 64, "%s: %ld requests more", policies[i], c.calls - calls);
		ckv_keeper_free(keeper);
		assert_int_equal(c.live, 0);
	}
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(dropped_rows_are_gone_and_the_others_as_they_were),
	    cmocka_unit_test(rows_that_cannot_be_dropped_are_refused),
	    cmocka_unit_test(adopted_rows_start_without_scores),
	    cmocka_unit_test(rows_that_cannot_be_adopted_are_refused),
	    cmocka_unit_test(tokens_taken_back_are_gone_and_the_next_take_their_positions),
	    cmocka_unit_test(a_cleared_keeper_is_as_just_created),
	    cmocka_unit_test(a_restored_keeper_goes_on_as_the_saved_one),
	    cmocka_unit_test(damaged_bytes_are_refused),
	    cmocka_unit_test(no_number_in_the_bytes_is_trusted),
	    cmocka_unit_test(policies_that_need_the_rows_are_refused),
	    cmocka_unit_test(what_is_not_finite_is_refused),
	    cmocka_unit_test(layers_that_are_not_these_rows_are_refused),
	    cmocka_unit_test(every_request_may_fail),
	    cmocka_unit_test(memory_grows_with_the_rows_and_not_with_the_tokens),
	};
	return cmocka_run_group_tests_name("keeper_state", tests, NULL, NULL);
}
