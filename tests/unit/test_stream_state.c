/* Streaming caches as bytes, and cleared: what is restored goes on as what was saved; nothing that the bytes say
 * is trusted. */
#include "stream_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ----------------------------------------------------------- there and back */

/* Saves `from` and restores it into `to`, which then saves as the same bytes. */
static void hand_over(const ckv_stream *from, ckv_stream *to, const char *what) {
	saved bytes = save_stream(from);
	CHECK(ckv_stream_restore(to, bytes.data, bytes.size) == CKV_OK, "%s: %s", what, ckv_stream_message(to));
	CHECK(still_saves(to, &bytes), "%s: not the same bytes", what);
	CHECK(still_saves(from, &bytes), "%s: saving changed the stream", what);
	saved_free(&bytes);
}

/* A stream that has seen something else: other tokens, of other query heads. */
static ckv_stream *used_stream(rng *r, const setting *s) {
	ckv_stream *stream = open_setting(s, NULL);
	int32_t group = rng_range(r, 0, 3), n = rng_range(r, 1, s->budget);
	for (int32_t i = 0; i < s->n_layers; i++) {
		tokens t = tokens_random(r, s->shapes[i], n, group);
		push(stream, i, &t, 0, n);
		tokens_free(&t);
	}
	return stream;
}

static void a_restored_stream_goes_on_as_the_saved_one(void **state) {
	rng r = {1};
	(void)state;
	for (int i = 0; i < 100; i++) {
		setting s = setting_make(&r);
		int32_t cut = rng_range(&r, 0, s.n);
		ckv_stream *first = open_setting(&s, NULL), *fresh = open_setting(&s, NULL), *used = used_stream(&r, &s);
		push_randomly(&r, first, s.layers, s.n_layers, 0, cut, s.stop);
		assert_int_equal(ckv_stream_trim(first, s.stop ? 0 : rng_range(&r, 0, cut < 9 ? cut : 9)), CKV_OK);
		hand_over(first, fresh, s.policy);
		hand_over(first, used, s.policy);
		check_same_rows(first, used, s.shapes, s.n_layers, s.policy);
		push_randomly(&r, first, s.layers, s.n_layers, cut, s.n, s.stop);
		push_randomly(&r, fresh, s.layers, s.n_layers, cut, s.n, s.stop);
		push_randomly(&r, used, s.layers, s.n_layers, cut, s.n, s.stop);
		saved bytes = save_stream(first);
		CHECK(still_saves(fresh, &bytes), "%s: restored into a new one after %d of %d", s.policy, cut, s.n);
		CHECK(still_saves(used, &bytes), "%s: restored into a used one after %d of %d", s.policy, cut, s.n);
		saved_free(&bytes);
		ckv_stream_free(first);
		ckv_stream_free(fresh);
		ckv_stream_free(used);
		setting_free(&s);
	}
}

/* Reference mode holds rows beyond its budget at times. */
static void reference_mode_is_restored_too(void **state) {
	static const char *const policies[] = {"chunkkv:mode=reference,chunk=3,grace=4",
	                                       "h2o:mode=reference",
	                                       "pyramidkv:mode=reference",
	                                       "squeezeattention:mode=reference",
	                                       "cam:mode=reference,grace=3",
	                                       "cam:mode=reference,merge_keys=1",
	                                       "l2norm:mode=reference",
	                                       "snapkv:mode=reference",
	                                       "tova:mode=reference",
	                                       "streamingllm:mode=reference",
	                                       "chunkkv-reuse:mode=reference"};
	const ckv_stream_shape shapes[] = {{2, 6, 3}, {2, 6, 3}};
	rng r = {2};
	(void)state;
	tokens layers[] = {tokens_random(&r, shapes[0], 160, 0), tokens_random(&r, shapes[1], 160, 0)};
	for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
		ckv_stream *s = stream_make(policies[i], 60, shapes, 2, NULL), *t = stream_make(policies[i], 60, shapes, 2, NULL);
		push_layers(s, layers, 2, 0, 110);
		hand_over(s, t, policies[i]);
		for (int32_t n = 110; n < 160; n += 5) {
			push_layers(s, layers, 2, n, 5);
			push_layers(t, layers, 2, n, 5);
		}
		saved bytes = save_stream(s);
		CHECK(still_saves(t, &bytes), "%s", policies[i]);
		saved_free(&bytes);
		ckv_stream_free(s);
		ckv_stream_free(t);
	}
	tokens_free(&layers[0]);
	tokens_free(&layers[1]);
}

static void bytes_are_written_only_where_they_fit(void **state) {
	rng r = {3};
	(void)state;
	setting s = setting_make(&r);
	ckv_stream *stream = open_setting(&s, NULL);
	push_whole(&s, stream, 0, s.n);
	saved bytes = save_stream(stream);
	assert_true(bytes.size > 500);
	for (size_t capacity = 0; capacity < bytes.size; capacity += capacity < 200 ? 1 : 37) {
		paint(bytes.data, bytes.size);
		assert_int_equal(ckv_stream_save(stream, bytes.data, capacity), bytes.size);
		CHECK(is_painted(bytes.data, bytes.size), "%zu of %zu bytes", capacity, bytes.size);
	}
	assert_int_equal(ckv_stream_save(NULL, bytes.data, bytes.size), 0);
	saved_free(&bytes);
	ckv_stream_free(stream);
	setting_free(&s);
}

/* Two that saw the same save the same, memory that was never written included. */
static void bytes_say_nothing_but_the_state(void **state) {
	const ckv_stream_shape shape = {2, 5, 3};
	rng r = {4};
	(void)state;
	tokens t = tokens_random(&r, shape, 40, 2);
	ckv_stream *used = stream_make("snapkv:window=8", 30, &shape, 1, NULL);
	push(used, 0, &t, 0, 40);
	ckv_stream_clear(used);
	for (int32_t n = 0; n < 20; n++) {
		ckv_stream *fresh = stream_make("snapkv:window=8", 30, &shape, 1, NULL);
		if (n) {
			push(fresh, 0, &t, 0, n);
			push(used, 0, &t, n - 1, 1);
		}
		saved bytes = save_stream(fresh);
		CHECK(still_saves(used, &bytes), "after %d tokens", n);
		saved_free(&bytes);
		ckv_stream_free(fresh);
	}
	ckv_stream_free(used);
	tokens_free(&t);
}

/* -------------------------------------------------------------- what is refused */

static void refused(ckv_stream *s, const void *data, size_t size, ckv_status expected, const char *what) {
	saved before = save_stream(s);
	ckv_status status = ckv_stream_restore(s, data, size);
	CHECK(status == expected, "%s: %s instead of %s", what, ckv_strerror(status), ckv_strerror(expected));
	CHECK(ckv_stream_message(s)[0], "%s: no message", what);
	CHECK(still_saves(s, &before), "%s: something changed", what);
	saved_free(&before);
}

/* Bytes of a stream of each kind, and another stream of the same that stands elsewhere. */
typedef struct specimen {
	ckv_stream *stream;
	tokens layers[2];
	saved bytes;
} specimen;

static const char *const kinds[] = {
    "chunkkv-reuse:chunk=2,grace=1,sinks=1",
    "snapkv:window=2,sinks=0",
    "squeezeattention:sinks=1,grace=1",
    "cam:sinks=1,grace=2",
    "pyramidkv:grace=2,sinks=1",
    "l2norm:grace=1",
    "snapkv:window=2,layers=squeeze",
};
enum { N_KINDS = sizeof kinds / sizeof *kinds, BUDGET = 12, SEEN = 20 };
static const ckv_stream_shape small[] = {{2, 2, 1}, {2, 2, 1}};

static void seen_so_many(ckv_stream *s, const tokens *layers, int32_t n) {
	push_layers(s, layers, 2, 0, n < BUDGET ? n : BUDGET);
	if (n > BUDGET) {
		push_layers(s, layers, 2, BUDGET, n - BUDGET);
	}
}

static specimen specimen_make(const char *policy, const ckv_ctx_options *options, int32_t seen) {
	rng r = {5};
	specimen sp = {.stream = stream_make(policy, BUDGET, small, 2, options)};
	ckv_stream *s = stream_make(policy, BUDGET, small, 2, NULL);
	for (int32_t i = 0; i < 2; i++) {
		sp.layers[i] = tokens_random(&r, small[i], 60, stream_params(policy).reference ? 0 : 1);
	}
	seen_so_many(s, sp.layers, seen);
	sp.bytes = save_stream(s);
	ckv_stream_free(s);
	return sp;
}

static void specimen_free(specimen *sp) {
	ckv_stream_free(sp->stream);
	tokens_free(&sp->layers[0]);
	tokens_free(&sp->layers[1]);
	saved_free(&sp->bytes);
}

static void damaged_bytes_are_refused(void **state) {
	(void)state;
	for (size_t i = 0; i < N_KINDS; i += 3) {
		specimen sp = specimen_make(kinds[i], NULL, SEEN);
		seen_so_many(sp.stream, sp.layers, 5);
		for (size_t n = 0; n < sp.bytes.size; n++) {
			uint8_t *exact = test_memory(n, 1); /* so that a sanitizer sees what is read beyond */
			memcpy(exact, sp.bytes.data, n);
			refused(sp.stream, exact, n, CKV_ERR_ARG, "cut off");
			free(exact);
		}
		for (size_t n = 0; n < sp.bytes.size; n++) {
			char what[64];
			uint8_t was = sp.bytes.data[n];
			snprintf(what, sizeof what, "byte %zu of %zu", n, sp.bytes.size);
			sp.bytes.data[n] ^= (uint8_t)(1u << (n % 8));
			refused(sp.stream, sp.bytes.data, sp.bytes.size, CKV_ERR_ARG, what);
			sp.bytes.data[n] = was;
		}
		refused(sp.stream, NULL, 0, CKV_ERR_ARG, "nothing");
		refused(sp.stream, NULL, sp.bytes.size, CKV_ERR_ARG, "no data");
		assert_int_equal(ckv_stream_restore(sp.stream, sp.bytes.data, sp.bytes.size), CKV_OK);
		assert_int_equal(ckv_stream_restore(NULL, sp.bytes.data, sp.bytes.size), CKV_ERR_ARG);
		specimen_free(&sp);
	}
}

static void another_version_is_refused(void **state) {
	(void)state;
	specimen sp = specimen_make("h2o:grace=1", NULL, SEEN);
	sp.bytes.data[8]++;
	refused(sp.stream, sp.bytes.data, sp.bytes.size, CKV_ERR_ARG, "version");
	assert_non_null(strstr(ckv_stream_message(sp.stream), "version"));
	specimen_free(&sp);
}

static void more_bytes_than_there_were_are_refused(void **state) {
	(void)state;
	specimen sp = specimen_make("h2o:grace=1", NULL, SEEN);
	saved longer = {test_memory(sp.bytes.size + 4, 1), sp.bytes.size + 4};
	memset(longer.data, 0, longer.size);
	memcpy(longer.data, sp.bytes.data, sp.bytes.size);
	saved_sign(&longer);
	refused(sp.stream, longer.data, longer.size, CKV_ERR_ARG, "longer");
	saved_free(&longer);
	specimen_free(&sp);
}

/* Of another policy, budget or number of layers: CKV_ERR_STATE. Of another shape: CKV_ERR_ARG. */
static void bytes_of_another_stream_are_refused(void **state) {
	const ckv_stream_shape shapes[] = {{2, 2, 1}, {2, 2, 1}, {2, 2, 1}}, wide[] = {{2, 2, 1}, {2, 4, 1}};
	const ckv_stream_shape values[] = {{2, 2, 2}, {2, 2, 1}}, heads[] = {{1, 2, 1}, {2, 2, 1}};
	(void)state;
	specimen sp = specimen_make("h2o:grace=1", NULL, SEEN);
	struct {
		const char *policy;
		int32_t budget;
		const ckv_stream_shape *shapes;
		int32_t n_layers;
		ckv_status status;
	} others[] = {
	    {"h2o:grace=2", BUDGET, shapes, 2, CKV_ERR_STATE},
	    {"tova", BUDGET, shapes, 2, CKV_ERR_STATE},
	    {"h2o:grace=1", BUDGET + 1, shapes, 2, CKV_ERR_STATE},
	    {"h2o:grace=1", BUDGET, shapes, 3, CKV_ERR_STATE},
	    {"h2o:grace=1", BUDGET, shapes, 1, CKV_ERR_STATE},
	    {"h2o:grace=1", BUDGET, wide, 2, CKV_ERR_ARG},
	    {"h2o:grace=1", BUDGET, values, 2, CKV_ERR_ARG},
	    {"h2o:grace=1", BUDGET, heads, 2, CKV_ERR_ARG},
	    {"h2o:grace=1,mode=reference", BUDGET, shapes, 2, CKV_ERR_STATE},
	};
	for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
		ckv_stream *s = stream_make(others[i].policy, others[i].budget, others[i].shapes, others[i].n_layers, NULL);
		refused(s, sp.bytes.data, sp.bytes.size, others[i].status, others[i].policy);
		ckv_stream_free(s);
	}
	specimen_free(&sp);
}

/* Where the bytes of a layer of `small` begin that has no ring; row counts of the layers before it are known. */
static size_t layer_at(const saved *s, int32_t rows) {
	int32_t text;
	memcpy(&text, s->data + 32, sizeof text);
	size_t row = 8 + 2 * (2 + 1), head = 8 + (size_t)rows * row, layer = 44 + 2 * head;
	return 36 + (size_t)text + 8 + (rows >= 0 ? layer : 0);
}

/* The first layer of one state, the second of another, which says that it has seen `seen`. */
static saved spliced(const saved *first, int32_t first_rows, const saved *second, int32_t second_rows, int32_t seen) {
	size_t head = layer_at(first, first_rows), from = layer_at(second, second_rows), rest = second->size - from;
	saved s = {test_memory(head + rest, 1), head + rest};
	memcpy(s.data, first->data, head);
	memcpy(s.data + head, second->data + from, rest);
	memcpy(s.data + head + 20, &seen, sizeof seen);
	saved_sign(&s);
	return s;
}

/* What goes is told by row, so they must be the same; a follower may lag, but not be ahead. */
static void followers_without_their_leaders_rows_are_refused(void **state) {
	(void)state;
	specimen some = specimen_make(kinds[0], NULL, SEEN), few = specimen_make(kinds[0], NULL, 7);
	const struct {
		const saved *first, *second;
		int32_t first_rows, second_rows, seen;
		ckv_status status;
	} cases[] = {{&some.bytes, &some.bytes, 12, 12, SEEN, CKV_OK},
	             {&some.bytes, &few.bytes, 12, 7, SEEN, CKV_ERR_ARG},
	             {&few.bytes, &few.bytes, 7, 7, 8, CKV_ERR_ARG},
	             {&few.bytes, &some.bytes, 7, 12, SEEN, CKV_ERR_ARG},
	             {&some.bytes, &few.bytes, 12, 7, SEEN + 1, CKV_ERR_ARG}};
	assert_int_equal(layer_at(&some.bytes, 12) - layer_at(&some.bytes, -1), some.bytes.size - layer_at(&some.bytes, 12));
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		saved s = spliced(cases[i].first, cases[i].first_rows, cases[i].second, cases[i].second_rows, cases[i].seen);
		if (cases[i].status) {
			char what[32];
			snprintf(what, sizeof what, "case %zu", i);
			refused(some.stream, s.data, s.size, cases[i].status, what);
		} else {
			assert_int_equal(ckv_stream_restore(some.stream, s.data, s.size), CKV_OK);
		}
		saved_free(&s);
	}
	specimen_free(&some);
	specimen_free(&few);
}

static void more_rows_than_the_budget_are_refused(void **state) {
	const int32_t budget = BUDGET;
	rng r = {12};
	(void)state;
	ckv_stream *roomy = stream_make("h2o:grace=1", BUDGET + 3, small, 1, NULL),
	           *s = stream_make("h2o:grace=1", BUDGET, small, 1, NULL);
	tokens t = tokens_random(&r, small[0], 30, 1);
	push(roomy, 0, &t, 0, 30);
	saved bytes = save_stream(roomy);
	size_t layer = layer_at(&bytes, -1);
	memcpy(bytes.data + layer - 8, &budget, sizeof budget);
	memcpy(bytes.data + layer + 12, &budget, sizeof budget);
	saved_sign(&bytes);
	refused(s, bytes.data, bytes.size, CKV_ERR_ARG, "15 rows");
	saved_free(&bytes);
	tokens_free(&t);
	ckv_stream_free(s);
	ckv_stream_free(roomy);
}

/* Everything that may be done with a stream; what it decides is of no matter here. */
static void exercise(ckv_stream *s, const tokens *layers) {
	uint16_t rows[8 * SEEN];
	for (int32_t step = 0; step < 6; step++) {
		int32_t n = 1 + 3 * step;
		for (int32_t i = 0; i < 2; i++) {
			(void)push_status(s, i, &layers[i], step, n);
		}
		for (int32_t h = 0; h < 4; h++) {
			ckv_stream_rows r = head_rows(s, h / 2, h % 2);
			if (r.n <= SEEN) {
				assert_int_equal(ckv_stream_read(s, h / 2, h % 2, NULL, rows, rows + 4 * SEEN), CKV_OK);
			}
		}
		(void)layer_info(s, 0);
		(void)layer_info(s, 1);
	}
	(void)ckv_stream_trim(s, 3);
	saved bytes = save_stream(s);
	assert_int_equal(ckv_stream_restore(s, bytes.data, bytes.size), CKV_OK);
	saved_free(&bytes);
}

/* A number in the bytes is another, the checksum agrees: it is refused, or a stream of it can be worked with. */
static void check_forged(specimen *sp, size_t at, int32_t value, int32_t *accepted) {
	int32_t was;
	memcpy(&was, sp->bytes.data + at, sizeof was);
	memcpy(sp->bytes.data + at, &value, sizeof value);
	saved_sign(&sp->bytes);
	saved before = save_stream(sp->stream);
	if (ckv_stream_restore(sp->stream, sp->bytes.data, sp->bytes.size) == CKV_OK) {
		*accepted += 1;
		exercise(sp->stream, sp->layers);
		ckv_stream_clear(sp->stream);
	} else {
		CHECK(ckv_stream_message(sp->stream)[0] && still_saves(sp->stream, &before), "byte %zu as %d", at, value);
	}
	saved_free(&before);
	memcpy(sp->bytes.data + at, &was, sizeof was);
}

static void no_number_in_the_bytes_is_trusted(void **state) {
	static const int32_t values[] = {0, 1, -1, 3, 14, 1 << 30, INT32_MAX, INT32_MIN};
	enum { N_VALUES = sizeof values / sizeof *values };
	rng r = {11};
	(void)state;
	for (size_t i = 0; i < 3 * (size_t)N_KINDS; i++) {
		char policy[96];
		counting c;
		counting_init(&c);
		c.largest = (size_t)64 << 20;
		ckv_ctx_options options = stream_options(0, 0);
		options.allocator = &c.allocator;
		/* The last third: reference mode, where it is to be had. */
		bool reference = i >= 2 * (size_t)N_KINDS;
		snprintf(policy, sizeof policy, "%s%s", kinds[i % N_KINDS], reference ? ",mode=reference" : "");
		ckv_stream_params params;
		if (ckv_stream_parse(policy, &params, NULL) != CKV_OK || (reference && strcmp(params.scorer, "snapkv") == 0)) {
			continue;
		}
		specimen sp = specimen_make(policy, &options, i < N_KINDS ? SEEN : 7);
		int32_t accepted = 0;
		/* Every place among the policy's and the first layer's numbers; rows and what follows, at random distances. */
		for (size_t at = 32; at + 4 <= sp.bytes.size; at += at < 200 ? 1 : (size_t)rng_range(&r, 1, 5)) {
			for (size_t v = 0; v < N_VALUES; v++) {
				check_forged(&sp, at, values[v], &accepted);
			}
		}
		CHECK(accepted > 0, "%s: every change was refused, of scores and rows too", policy);
		specimen_free(&sp);
		assert_int_equal(c.live, 0);
	}
}

/* ------------------------------------------------------------------ clearing */

static void a_cleared_stream_is_as_just_created(void **state) {
	rng r = {10};
	(void)state;
	for (int i = 0; i < 60; i++) {
		setting s = setting_make(&r);
		counting c;
		counting_init(&c);
		ckv_ctx_options options = stream_options(0, 0);
		options.allocator = &c.allocator;
		ckv_stream *stream = open_setting(&s, &options), *fresh = open_setting(&s, NULL);
		saved bytes = save_stream(stream);
		push_whole(&s, stream, 0, s.n);
		ckv_stream_clear(stream);
		CHECK(still_saves(stream, &bytes), "%s", s.policy);
		long calls = c.calls;
		push_whole(&s, stream, 0, s.n);
		push_whole(&s, fresh, 0, s.n);
		CHECK(c.calls == calls || strcmp(s.params.scorer, "snapkv") == 0, "%s: memory was not kept", s.policy);
		check_same_rows(stream, fresh, s.shapes, s.n_layers, s.policy);
		saved_free(&bytes);
		ckv_stream_free(stream);
		ckv_stream_free(fresh);
		assert_int_equal(c.live, 0);
		setting_free(&s);
	}
	ckv_stream_clear(NULL);
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_restored_stream_goes_on_as_the_saved_one),
	    cmocka_unit_test(reference_mode_is_restored_too),
	    cmocka_unit_test(bytes_are_written_only_where_they_fit),
	    cmocka_unit_test(bytes_say_nothing_but_the_state),
	    cmocka_unit_test(damaged_bytes_are_refused),
	    cmocka_unit_test(another_version_is_refused),
	    cmocka_unit_test(more_bytes_than_there_were_are_refused),
	    cmocka_unit_test(bytes_of_another_stream_are_refused),
	    cmocka_unit_test(followers_without_their_leaders_rows_are_refused),
	    cmocka_unit_test(more_rows_than_the_budget_are_refused),
	    cmocka_unit_test(no_number_in_the_bytes_is_trusted),
	    cmocka_unit_test(a_cleared_stream_is_as_just_created),
	};
	return cmocka_run_group_tests_name("stream_state", tests, NULL, NULL);
}
