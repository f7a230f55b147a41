/* Positions pinned in a stream: they stay whatever comes, the budget holds all the same, and what does not fit is refused
 * before anything has changed. */
#include "stream_support.h"

#include <stdio.h>
#include <string.h>

typedef struct range {
	int32_t first, end;
} range;

/* Whether a head holds position p. */
static bool holds(const ckv_stream *s, int32_t layer, int32_t head, int32_t p) {
	ckv_stream_rows rows = head_rows(s, layer, head);
	for (int32_t i = 0; i < rows.n; i++) {
		if (rows.positions[i] == p) {
			return true;
		}
	}
	return false;
}

static void pin(ckv_stream *s, int32_t first, int32_t end) {
	CHECK(ckv_stream_pin(s, first, end) == CKV_OK, "%d to %d: %s", first, end, ckv_stream_message(s));
	assert_string_equal(ckv_stream_message(s), "");
}

static void refused(ckv_stream *s, const tokens *t, int32_t first, int32_t n, const char *what) {
	saved before = save_stream(s);
	ckv_status status = push_status(s, 0, t, first, n);
	CHECK(status == CKV_ERR_CAPACITY && strstr(ckv_stream_message(s), "pinned"), "%s: %s, %s", what, ckv_strerror(status),
	      ckv_stream_message(s));
	CHECK(still_saves(s, &before), "%s: something changed", what);
	saved_free(&before);
}

/* Keys that are ever longer: with scorer=key_norm the oldest go, and which chunks stayed is plain to see. */
static tokens tokens_growing(rng *r, ckv_stream_shape shape, int32_t n) {
	tokens t = tokens_random(r, shape, n, 0);
	for (int32_t h = 0; h < shape.n_kv_heads; h++) {
		for (int32_t p = 0; p < n; p++) {
			tensor_row(&t.k, h, p)[0] = 8.0f + (float)p;
		}
	}
	memcpy(t.stored_k.memory, t.k.value, t.stored_k.size);
	return t;
}

/* ------------------------------------------------------------------------------------------------------------ staying */

static const char *const policies[] = {"chunkkv:grace=8,chunk=4",
                                       "h2o:grace=6",
                                       "tova",
                                       "snapkv:window=6",
                                       "snapkv:window=5,chunk=3",
                                       "streamingllm",
                                       "l2norm:grace=4",
                                       "chunkkv:scorer=key_norm,grace=5,chunk=7",
                                       "chunkkv:scorer=knorm,grace=5,chunk=3,sinks=0",
                                       "chunkkv:chunk=1,grace=4,merge=mean",
                                       "pyramidkv:grace=4,beta=1.2",
                                       "chunkkv-reuse:grace=8,chunk=4"};
enum { N_POLICIES = sizeof policies / sizeof *policies };

/* Of all layers and heads, of all tokens so far; and the budget. */
static void check_held(const ckv_stream *s, int32_t n_layers, int32_t heads, const range *pins, int32_t n_pins,
                       const char *what) {
	for (int32_t l = 0; l < n_layers; l++) {
		ckv_stream_info info = layer_info(s, l);
		CHECK(info.tokens_most <= info.layer_budget, "%s, layer %d: %d rows of %d", what, l, info.tokens_most,
		      info.layer_budget);
		for (int32_t h = 0; h < heads; h++) {
			for (int32_t i = 0; i < n_pins; i++) {
				for (int32_t p = pins[i].first; p < pins[i].end && p < info.tokens_seen; p++) {
					CHECK(holds(s, l, h, p), "%s, layer %d, head %d: position %d of %d", what, l, h, p, info.tokens_seen);
				}
			}
		}
	}
}

/* Two from the start and one that is seen in part when it comes, in a stream that forgets most of its tokens. */
static void what_is_pinned_never_goes(void **state) {
	const ckv_stream_shape shapes[] = {{2, 8, 3}, {2, 8, 3}};
	rng r = {1};
	(void)state;
	for (int32_t i = 0; i < 3 * N_POLICIES; i++) {
		const char *policy = policies[i / 3];
		ckv_stream_params params = stream_params(policy);
		tokens layers[] = {tokens_random(&r, shapes[0], 400, 2), tokens_random(&r, shapes[1], 400, 2)};
		int32_t a = rng_range(&r, 0, 40), b = rng_range(&r, 60, 200),
		        newest = strcmp(params.scorer, "snapkv") ? params.grace : params.window;
		range pins[] = {{a, a + rng_range(&r, 1, 15)}, {b, b + rng_range(&r, 1, 15)}, {0, 0}};
		int32_t room = 45 + 6 * params.chunk;
		ckv_stream *s = stream_make(policy, 2 * (least_budget(policy) + room), shapes, 2, NULL);
		pin(s, pins[0].first, pins[0].end);
		pin(s, pins[1].first, pins[1].end);
		push_randomly(&r, s, layers, 2, 0, 250, 0);
		check_held(s, 2, 2, pins, 2, policy);
		pins[2].first = 250 - (newest > 2 ? 2 : newest); /* none of the newest has gone */
		pins[2].end = 250 + rng_range(&r, 1, 12);
		pin(s, pins[2].first, pins[2].end);
		push_randomly(&r, s, layers, 2, 250, 400, 0);
		check_held(s, 2, 2, pins, 3, policy);
		CHECK(layer_info(s, 1).tokens_kept > layer_info(s, 1).layer_budget - params.chunk - params.window - 1, "%s: %d rows",
		      policy, layer_info(s, 1).tokens_kept);
		ckv_stream_free(s);
		tokens_free(&layers[0]);
		tokens_free(&layers[1]);
	}
}

/* As much as is taken, and calls of any length. */
static void the_budget_holds_to_the_last_row(void **state) {
	const ckv_stream_shape shape = {2, 6, 2};
	rng r = {2};
	(void)state;
	for (int32_t i = 0; i < 200; i++) {
		const char *policy = policies[i % 10];
		tokens t = tokens_random(&r, shape, 200, 1);
		range pins[] = {{rng_range(&r, 0, 30), 0}, {rng_range(&r, 40, 120), 0}};
		ckv_stream *s = stream_make(policy, least_budget(policy) + rng_range(&r, 0, 25), &shape, 1, NULL);
		for (int32_t j = 0; j < 2; j++) {
			pins[j].end = pins[j].first + rng_range(&r, 0, 12);
			pin(s, pins[j].first, pins[j].end);
		}
		for (int32_t first = 0, n; first < 200; first += n) {
			n = rng_range(&r, 1, 200 - first);
			saved before = save_stream(s);
			ckv_status status = push_status(s, 0, &t, first, n);
			CHECK(status == CKV_OK || (status == CKV_ERR_CAPACITY && still_saves(s, &before)), "%s: %s", policy,
			      ckv_stream_message(s));
			saved_free(&before);
			check_held(s, 1, 2, pins, 2, policy);
			if (status) {
				break;
			}
		}
		ckv_stream_free(s);
		tokens_free(&t);
	}
}

static void how_tokens_are_split_into_calls_does_not_show(void **state) {
	const ckv_stream_shape shape = {2, 6, 2};
	rng r = {3};
	(void)state;
	for (int32_t i = 0; i < N_POLICIES; i++) {
		tokens t = tokens_random(&r, shape, 200, 1);
		int32_t budget = least_budget(policies[i]) + 50;
		ckv_stream *a = stream_make(policies[i], budget, &shape, 1, NULL),
		           *b = stream_make(policies[i], budget, &shape, 1, NULL);
		pin(a, 20, 40);
		pin(b, 30, 40);
		pin(b, 20, 31);
		push(a, 0, &t, 0, 200);
		push_randomly(&r, b, &t, 1, 0, 200, 0);
		check_same_rows(a, b, &shape, 1, policies[i]);
		ckv_stream_free(a);
		ckv_stream_free(b);
		tokens_free(&t);
	}
}

static void a_pin_is_widened_to_whole_chunks(void **state) {
	const ckv_stream_shape shape = {1, 4, 2};
	rng r = {4};
	(void)state;
	tokens t = tokens_growing(&r, shape, 200);
	ckv_stream *s = stream_make("chunkkv:scorer=key_norm,sinks=3,chunk=8,grace=1", 60, &shape, 1, NULL);
	pin(s, 18, 20); /* 11 .. 26: both chunks that it has a part of */
	pin(s, 43, 44); /* 43 .. 50 */
	pin(s, 70, 70); /* nothing */
	pin(s, 0, 3);   /* sinks stay anyhow */
	push(s, 0, &t, 0, 200);
	for (int32_t p = 0; p < 140; p++) {
		bool stays = p < 3 || (p >= 11 && p < 27) || (p >= 43 && p < 51);
		CHECK(holds(s, 0, 0, p) == stays, "position %d", p);
	}
	ckv_stream_free(s);
	tokens_free(&t);
}

/* ------------------------------------------------------------------------------------------------------------ refusing */

/* sinks 4, grace 8, chunk 4: 16 rows; of a budget of 40 that leaves 24. */
static const char *const plain = "chunkkv:grace=8,chunk=4";
enum { BUDGET = 40 };

static void what_does_not_fit_is_refused(void **state) {
	const ckv_stream_shape shape = {2, 6, 2};
	rng r = {5};
	(void)state;
	tokens t = tokens_random(&r, shape, 300, 1);
	ckv_stream *s = stream_make(plain, BUDGET, &shape, 1, NULL);
	pin(s, 0, 28); /* sinks, and 24 rows */
	push(s, 0, &t, 0, 28);
	push(s, 0, &t, 28, 40);
	pin(s, 100, 101);
	push(s, 0, &t, 68, 32); /* not there yet */
	refused(s, &t, 100, 1, "one token");
	refused(s, &t, 100, 90, "many tokens");
	refused(s, &t, 100, 1, "once more");
	ckv_stream_clear(s);
	push(s, 0, &t, 0, 200); /* all is open again */
	ckv_stream_free(s);
	s = stream_make(plain, BUDGET, &shape, 1, NULL);
	pin(s, 4, 32);
	refused(s, &t, 0, 29, "25 rows");
	push(s, 0, &t, 0, 28);
	refused(s, &t, 28, 1, "one more");
	assert_int_equal(layer_info(s, 0).tokens_kept, 28);
	ckv_stream_free(s);
	tokens_free(&t);
}

/* snapkv protects a window in place of grace. */
static void a_window_counts_as_grace(void **state) {
	const ckv_stream_shape shape = {1, 4, 2};
	rng r = {6};
	(void)state;
	tokens t = tokens_random(&r, shape, 100, 1);
	for (int32_t more = 0; more < 2; more++) {
		ckv_stream *s = stream_make("snapkv:window=6,sinks=2", 30, &shape, 1, NULL);
		pin(s, 0, 2 + (30 - 2 - 6 - 1) + more);
		if (more) {
			refused(s, &t, 0, 50, "a row too many");
		} else {
			push(s, 0, &t, 0, 100);
			assert_true(layer_info(s, 0).tokens_kept <= 30 && holds(s, 0, 0, 22));
		}
		ckv_stream_free(s);
	}
	tokens_free(&t);
}

/* Rows that have gone take no room. */
static void only_what_is_left_counts(void **state) {
	const ckv_stream_shape shape = {1, 4, 2};
	rng r = {7};
	(void)state;
	tokens t = tokens_growing(&r, shape, 300);
	ckv_stream *s = stream_make("chunkkv:scorer=key_norm,grace=8,chunk=4", BUDGET, &shape, 1, NULL);
	push(s, 0, &t, 0, 200);
	pin(s, 10, 170); /* of it 164 .. 171 are left */
	push(s, 0, &t, 200, 100);
	for (int32_t p = 4; p < 200; p++) {
		CHECK(holds(s, 0, 0, p) == (p >= 164 && p < 172), "position %d", p);
	}
	ckv_stream_free(s);
	tokens_free(&t);
}

static void each_layer_has_its_own_budget(void **state) {
	const ckv_stream_shape shapes[] = {{1, 4, 2}, {1, 4, 2}};
	rng r = {8};
	(void)state;
	tokens t = tokens_random(&r, shapes[0], 100, 1);
	ckv_stream *s = stream_make("pyramidkv:grace=4,sinks=0,beta=1.2", 60, shapes, 2, NULL);
	int32_t large = layer_info(s, 0).layer_budget, small = layer_info(s, 1).layer_budget;
	assert_true(large > small + 2);
	pin(s, 0, small);
	push(s, 0, &t, 0, 100);
	assert_int_equal(push_status(s, 1, &t, 0, small), CKV_ERR_CAPACITY);
	assert_non_null(strstr(ckv_stream_message(s), "layer 1"));
	push(s, 1, &t, 0, small - 5); /* a chunk is one row here */
	ckv_stream_free(s);
	tokens_free(&t);
}

/* As the layers' own pushes, and before the first of them. */
static void room_is_told_of_before_any_layer_is_pushed(void **state) {
	const ckv_stream_shape shapes[] = {{1, 4, 2}, {1, 4, 2}};
	rng r = {15};
	(void)state;
	tokens layers[] = {tokens_random(&r, shapes[0], 100, 1), tokens_random(&r, shapes[1], 100, 1)};
	ckv_stream *s = stream_make("pyramidkv:grace=4,sinks=0,beta=1.2", 60, shapes, 2, NULL);
	int32_t small = layer_info(s, 1).layer_budget;
	assert_int_equal(ckv_stream_check_room(s, 100), CKV_OK);
	pin(s, 0, 100);
	for (int32_t n = 0; n <= 100; n++) {
		ckv_status status = ckv_stream_check_room(s, n);
		CHECK(status == (n <= small - 5 ? CKV_OK : CKV_ERR_CAPACITY), "%d tokens: %s", n, ckv_strerror(status));
		CHECK(!status == !ckv_stream_message(s)[0], "%d tokens", n);
	}
	push_layers(s, layers, 2, 0, small - 5);
	assert_int_equal(ckv_stream_check_room(s, 0), CKV_OK);
	assert_int_equal(ckv_stream_check_room(s, 1), CKV_ERR_CAPACITY);
	assert_int_equal(ckv_stream_check_room(s, -1), CKV_ERR_ARG);
	assert_int_equal(ckv_stream_check_room(s, CKV_MAX_TOKENS), CKV_ERR_ARG);
	assert_int_equal(ckv_stream_check_room(NULL, 1), CKV_ERR_ARG);
	ckv_stream_free(s);
	tokens_free(&layers[0]);
	tokens_free(&layers[1]);
}

/* Whatever is pinned between the pushes of a leader and of those that take its decisions. */
static void followers_are_not_refused(void **state) {
	const ckv_stream_shape shapes[] = {{2, 6, 3}, {2, 6, 3}};
	rng r = {9};
	(void)state;
	tokens t = tokens_random(&r, shapes[0], 100, 1);
	ckv_stream *s = stream_make("chunkkv-reuse:grace=8,chunk=4", BUDGET, shapes, 2, NULL);
	push(s, 0, &t, 0, 80);
	pin(s, 0, 80);
	push(s, 1, &t, 0, 80);
	for (int32_t h = 0; h < 2; h++) {
		ckv_stream_rows a = head_rows(s, 0, h), b = head_rows(s, 1, h);
		assert_true(a.n == b.n && memcmp(a.positions, b.positions, (size_t)a.n * sizeof *a.positions) == 0);
	}
	refused(s, &t, 80, 1, "the leader's next");
	ckv_stream_free(s);
	tokens_free(&t);
}

/* ---------------------------------------------------------------------------------------------------------- forgetting */

static void clear_and_restore_forget_pins(void **state) {
	const ckv_stream_shape shape = {2, 6, 2};
	rng r = {10};
	(void)state;
	tokens t = tokens_random(&r, shape, 200, 1);
	for (int32_t way = 0; way < 3; way++) {
		ckv_stream *s = stream_make("streamingllm", BUDGET, &shape, 1, NULL),
		           *other = stream_make("streamingllm", BUDGET, &shape, 1, NULL);
		pin(s, 10, 20);
		push(s, 0, &t, 0, 30);
		saved bytes = save_stream(s);
		bytes.data[40] ^= way == 2; /* damaged */
		push(other, 0, &t, 0, 30);
		if (way == 0) {
			ckv_stream_clear(s);
			push(s, 0, &t, 0, 30);
		} else {
			assert_int_equal(ckv_stream_restore(s, bytes.data, bytes.size), way == 1 ? CKV_OK : CKV_ERR_ARG);
		}
		push(s, 0, &t, 30, 170);
		push(other, 0, &t, 30, 170);
		if (way < 2) {
			check_same_rows(s, other, &shape, 1, "without pins");
		}
		assert_int_equal(holds(s, 0, 1, 10), way == 2); /* what failed has forgotten nothing */
		saved_free(&bytes);
		ckv_stream_free(s);
		ckv_stream_free(other);
	}
	tokens_free(&t);
}

static void pins_are_not_saved(void **state) {
	const ckv_stream_shape shape = {1, 4, 2};
	rng r = {11};
	(void)state;
	tokens t = tokens_random(&r, shape, 30, 1);
	ckv_stream *s = stream_make(plain, BUDGET, &shape, 1, NULL);
	push(s, 0, &t, 0, 30);
	saved before = save_stream(s);
	pin(s, 10, 20);
	assert_true(still_saves(s, &before));
	saved_free(&before);
	ckv_stream_free(s);
	tokens_free(&t);
}

static void taking_back_forgets_no_pin(void **state) {
	const ckv_stream_shape shape = {2, 6, 2};
	rng r = {12};
	(void)state;
	for (int32_t i = 0; i < 10; i++) { /* those of a single budget */
		const range pins[] = {{10, 22}, {70, 80}};
		tokens t = tokens_random(&r, shape, 300, 1);
		ckv_stream *s = stream_make(policies[i], least_budget(policies[i]) + 50, &shape, 1, NULL);
		pin(s, 10, 22);
		pin(s, 70, 80);
		int32_t seen = 0;
		for (int32_t turn = 0; turn < 8; turn++) {
			int32_t n = rng_range(&r, 1, 60), back = rng_range(&r, 0, n < 12 ? n : 12);
			push(s, 0, &t, seen, n < 300 - seen ? n : 300 - seen);
			seen = layer_info(s, 0).tokens_seen;
			check_held(s, 1, 2, pins, 2, policies[i]);
			assert_int_equal(ckv_stream_trim(s, back), CKV_OK);
			seen -= back;
			check_held(s, 1, 2, pins, 2, policies[i]);
		}
		ckv_stream_free(s);
		tokens_free(&t);
	}
}

/* ------------------------------------------------------------------------------------------------------ errors, memory */

static void what_makes_no_sense_is_refused(void **state) {
	const ckv_stream_shape shape = {1, 4, 2};
	static const range bad[] = {{-1, 5}, {6, 5}, {0, INT32_MAX}, {0, CKV_MAX_TOKENS + 1}, {INT32_MIN, INT32_MIN}};
	rng r = {13};
	(void)state;
	tokens t = tokens_random(&r, shape, 100, 0);
	ckv_stream *s = stream_make(plain, BUDGET, &shape, 1, NULL),
	           *published = stream_make("h2o:mode=reference", BUDGET, &shape, 1, NULL);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		CHECK(ckv_stream_pin(s, bad[i].first, bad[i].end) == CKV_ERR_ARG && ckv_stream_message(s)[0], "%d", bad[i].first);
	}
	push(s, 0, &t, 0, 100); /* nothing is pinned */
	pin(s, CKV_MAX_TOKENS - 1, CKV_MAX_TOKENS);
	pin(s, CKV_MAX_TOKENS, CKV_MAX_TOKENS);
	push(s, 0, &t, 0, 100);
	assert_int_equal(ckv_stream_pin(published, 3, 5), CKV_ERR_UNSUPPORTED);
	assert_true(ckv_stream_message(published)[0] != 0);
	assert_int_equal(ckv_stream_pin(NULL, 3, 5), CKV_ERR_ARG);
	ckv_stream_free(published);
	ckv_stream_free(s);
	tokens_free(&t);
}

/* A refused request changes nothing; what was pinned before stays pinned. */
static void every_request_may_fail(void **state) {
	const ckv_stream_shape shape = {1, 4, 2};
	rng r = {14};
	counting c;
	ckv_ctx_options options = stream_options(0, 0);
	(void)state;
	counting_init(&c);
	options.allocator = &c.allocator;
	tokens t = tokens_random(&r, shape, 300, 0);
	ckv_stream *s = stream_make("streamingllm", BUDGET, &shape, 1, &options);
	int32_t pinned = 0, failed = 0;
	while (pinned < 20) {
		c.refuse_in = 1;
		ckv_status status = ckv_stream_pin(s, 10 + 2 * pinned, 11 + 2 * pinned);
		CHECK(status == CKV_OK || (status == CKV_ERR_NOMEM && ckv_stream_message(s)[0]), "%s", ckv_strerror(status));
		failed += status != CKV_OK;
		c.refuse_in = 0;
		pin(s, 10 + 2 * pinned, 11 + 2 * pinned);
		pinned++;
	}
	assert_true(failed > 1);
	push(s, 0, &t, 0, 300);
	for (int32_t p = 10; p < 50; p++) {
		CHECK(holds(s, 0, 0, p) == (p % 2 == 0), "position %d", p);
	}
	ckv_stream_free(s);
	assert_int_equal(c.live, 0);
	tokens_free(&t);
}

static void pinning_again_takes_no_memory(void **state) {
	const ckv_stream_shape shape = {1, 4, 2};
	counting c;
	ckv_ctx_options options = stream_options(0, 0);
	(void)state;
	counting_init(&c);
	options.allocator = &c.allocator;
	ckv_stream *s = stream_make(plain, BUDGET, &shape, 1, &options);
	pin(s, 50, 60);
	long calls = c.calls;
	for (int32_t i = 0; i < 1000; i++) {
		pin(s, i % 7 * 10, i % 7 * 10 + 10);
		pin(s, 60 + i, 61 + i);
	}
	assert_int_equal(c.calls, calls);
	ckv_stream_free(s);
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_is_pinned_never_goes),
	    cmocka_unit_test(the_budget_holds_to_the_last_row),
	    cmocka_unit_test(how_tokens_are_split_into_calls_does_not_show),
	    cmocka_unit_test(a_pin_is_widened_to_whole_chunks),
	    cmocka_unit_test(what_does_not_fit_is_refused),
	    cmocka_unit_test(a_window_counts_as_grace),
	    cmocka_unit_test(only_what_is_left_counts),
	    cmocka_unit_test(each_layer_has_its_own_budget),
	    cmocka_unit_test(room_is_told_of_before_any_layer_is_pushed),
	    cmocka_unit_test(followers_are_not_refused),
	    cmocka_unit_test(clear_and_restore_forget_pins),
	    cmocka_unit_test(pins_are_not_saved),
	    cmocka_unit_test(taking_back_forgets_no_pin),
	    cmocka_unit_test(what_makes_no_sense_is_refused),
	    cmocka_unit_test(every_request_may_fail),
	    cmocka_unit_test(pinning_again_takes_no_memory),
	};
	return cmocka_run_group_tests_name("stream_pins", tests, NULL, NULL);
}
