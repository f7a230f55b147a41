/* Streaming caches: what is refused, with a reason and without effect; memory, every request of which may fail. */
#include "stream_support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ pushing */

static void refused(ckv_stream *s, int32_t layer, const ckv_view *k, const ckv_view *v, const ckv_view *q,
                    ckv_status expected, const char *what) {
	saved before = save_stream(s);
	ckv_status status = ckv_stream_push(s, layer, k, v, q);
	CHECK(status == expected, "%s: %s instead of %s", what, ckv_strerror(status), ckv_strerror(expected));
	CHECK(ckv_stream_message(s)[0], "%s: no message", what);
	CHECK(still_saves(s, &before), "%s: something changed", what);
	saved_free(&before);
}

static void refused_part(ckv_stream *s, int32_t layer, const tokens *t, int32_t first, int32_t n, ckv_status expected,
                         const char *what) {
	ckv_view k = view_part(&t->stored_k.view, first, n), v = view_part(&t->stored_v.view, first, n);
	ckv_view q = view_part(&t->stored_q.view, first, n);
	refused(s, layer, &k, &v, t->group ? &q : NULL, expected, what);
}

static const char *const policies[] = {
    "h2o", "snapkv:window=8", "tova", "cam", "l2norm", "streamingllm", "squeezeattention", "chunkkv-reuse:grace=8"};
enum { N_POLICIES = sizeof policies / sizeof *policies, BUDGET = 40, SEEN = 33, NEW = 6 };
static const ckv_stream_shape shapes[] = {{2, 6, 3}, {2, 6, 3}};

/* A stream that has seen some, and the tokens that come next. */
static ckv_stream *started(const char *policy, tokens layers[2], int32_t group) {
	rng r = {1};
	ckv_stream *s = stream_make(policy, BUDGET, shapes, 2, NULL);
	for (int32_t i = 0; i < 2; i++) {
		layers[i] = tokens_random(&r, shapes[i], SEEN + NEW, group);
	}
	push_layers(s, layers, 2, 0, SEEN);
	return s;
}

static void end(ckv_stream *s, tokens layers[2]) {
	ckv_stream_free(s);
	tokens_free(&layers[0]);
	tokens_free(&layers[1]);
}

/* Values that f16 can't hold, anywhere in the call. */
static void numbers_that_are_none_are_refused(void **state) {
	static const float bad[] = {NAN, INFINITY, -INFINITY, 70000.0f, -65520.0f, 1e30f};
	(void)state;
	for (size_t i = 0; i < N_POLICIES; i++) {
		tokens layers[2];
		ckv_stream *s = started(policies[i], layers, 2);
		for (size_t b = 0; b < 6; b++) {
			for (int32_t place = 0; place < 6; place++) {
				stored *in = place / 2 == 0   ? &layers[0].stored_k
				             : place / 2 == 1 ? &layers[0].stored_v
				                              : &layers[0].stored_q;
				int32_t dim = in->view.head_dim, last = in->view.n_heads * (SEEN + NEW) * dim - 1;
				float *at = (float *)(void *)in->memory + (place % 2 ? SEEN * dim : last), was = *at;
				*at = bad[b];
				if (place < 4 || b < 3) { /* queries are not stored */
					refused_part(s, 0, &layers[0], SEEN, NEW, CKV_ERR_NUMERIC, policies[i]);
				}
				*at = was;
			}
		}
		end(s, layers);
	}
}

static void what_f16_holds_is_taken(void **state) {
	const ckv_stream_shape shape = {1, 4, 4};
	const float row[4] = {65504.0f, -65519.99f, 1e-9f, 0x1p-24f};
	static const double held[4] = {65504.0, -65504.0, 0.0, 0x1p-24};
	uint16_t keys[4], values[4];
	(void)state;
	ckv_stream *s = stream_make("h2o", 40, &shape, 1, NULL);
	const ckv_view v = {.data = row, .n_heads = 1, .n_tokens = 1, .head_dim = 4, .stride_head = 16, .stride_token = 16};
	assert_int_equal(ckv_stream_push(s, 0, &v, &v, NULL), CKV_OK);
	assert_int_equal(ckv_stream_read(s, 0, 0, NULL, keys, values), CKV_OK);
	for (int i = 0; i < 4; i++) {
		CHECK(!(f16_value(keys[i]) < held[i]) && !(f16_value(keys[i]) > held[i]) && keys[i] == values[i], "%d: %g", i,
		      f16_value(keys[i]));
	}
	ckv_stream_free(s);
}

/* Finite, and yet their products are not. */
static void queries_too_large_to_multiply_never_make_scores_of_nan(void **state) {
	(void)state;
	for (size_t i = 0; i < N_POLICIES; i++) {
		for (int exponent = 110; exponent < 128; exponent++) {
			tokens layers[2];
			ckv_stream *s = started(policies[i], layers, 1);
			for (int32_t c = 0; c < (int32_t)(layers[0].stored_q.size / 4); c++) {
				((float *)(void *)layers[0].stored_q.memory)[c] = ldexpf(c % 2 ? 1.0f : -1.5f, exponent);
				((float *)(void *)layers[0].stored_k.memory)[c] = c % 3 ? 60000.0f : -50000.0f;
			}
			saved before = save_stream(s);
			ckv_status status = push_status(s, 0, &layers[0], SEEN, NEW);
			CHECK(status == CKV_OK || (status == CKV_ERR_NUMERIC && still_saves(s, &before)), "%s: %s", policies[i],
			      ckv_strerror(status));
			ckv_stream_rows rows = head_rows(s, 0, 0);
			for (int32_t j = 0; j < rows.n && rows.scores; j++) {
				CHECK(isfinite(rows.scores[j]), "%s, 2^%d: position %d", policies[i], exponent, rows.positions[j]);
			}
			saved_free(&before);
			end(s, layers);
		}
	}
}

typedef enum wrong {
	NO_KEYS,
	NO_VALUES,
	KEY_HEADS,
	VALUE_HEADS,
	KEY_DIM,
	VALUE_DIM,
	VALUE_TOKENS,
	QUERY_HEADS,
	QUERY_DIM,
	QUERY_TOKENS,
	OTHER_QUERY_HEADS,
	MANY_QUERY_HEADS,
	NO_QUERIES,
	NO_DATA,
	NO_QUERY_DATA,
	NEGATIVE,
	TYPE,
	STRIDE,
	TOO_LONG,
	N_WRONGS
} wrong;

static void make_wrong(wrong w, ckv_view *k, ckv_view *v, ckv_view *q) {
	k->n_heads -= w == KEY_HEADS;
	v->n_heads -= w == VALUE_HEADS;
	k->head_dim -= w == KEY_DIM;
	v->head_dim -= w == VALUE_DIM;
	v->n_tokens -= w == VALUE_TOKENS;
	q->n_heads = w == QUERY_HEADS ? 3 : w == OTHER_QUERY_HEADS ? 2 : w == MANY_QUERY_HEADS ? 1 << 30 : q->n_heads;
	q->head_dim -= w == QUERY_DIM;
	q->n_tokens -= w == QUERY_TOKENS;
	k->data = w == NO_DATA ? NULL : k->data;
	q->data = w == NO_QUERY_DATA ? NULL : q->data;
	k->dtype = w == TYPE ? (ckv_dtype)77 : k->dtype;
	k->stride_token += w == STRIDE ? 1 : 0;
	if (w == NEGATIVE) {
		k->n_tokens = v->n_tokens = q->n_tokens = -1;
	}
	if (w == MANY_QUERY_HEADS) {
		q->stride_head = 0;
	}
	if (w == TOO_LONG) { /* rows all at one place */
		k->n_tokens = v->n_tokens = q->n_tokens = CKV_MAX_TOKENS;
		k->stride_token = v->stride_token = q->stride_token = 0;
	}
}

static void views_that_do_not_go_together_are_refused(void **state) {
	(void)state;
	for (size_t i = 0; i < N_POLICIES; i++) {
		tokens layers[2];
		ckv_stream *s = started(policies[i], layers, 2);
		for (int w = 0; w < N_WRONGS; w++) {
			char what[64];
			ckv_view k = view_part(&layers[0].stored_k.view, SEEN, NEW), v = view_part(&layers[0].stored_v.view, SEEN, NEW);
			ckv_view q = view_part(&layers[0].stored_q.view, SEEN, NEW);
			make_wrong((wrong)w, &k, &v, &q);
			snprintf(what, sizeof what, "%s, number %d", policies[i], w);
			refused(s, 0, w == NO_KEYS ? NULL : &k, w == NO_VALUES ? NULL : &v, w == NO_QUERIES ? NULL : &q, CKV_ERR_ARG,
			        what);
		}
		refused_part(s, -1, &layers[0], SEEN, NEW, CKV_ERR_ARG, "layer -1");
		refused_part(s, 2, &layers[0], SEEN, NEW, CKV_ERR_ARG, "layer 2");
		push(s, 0, &layers[0], SEEN, NEW); /* all is well again */
		end(s, layers);
	}
	tokens none[2];
	ckv_stream *s = started("h2o", none, 0);
	refused(s, 0, &none[0].stored_k.view, &none[0].stored_v.view, &none[0].stored_q.view, CKV_ERR_ARG, "queries at last");
	end(s, none);
}

/* The count of query heads is that of the first call that succeeds. */
static void a_first_call_that_fails_leaves_everything_open(void **state) {
	(void)state;
	for (size_t i = 0; i < N_POLICIES; i++) {
		rng r = {2};
		for (int32_t group = 0; group < 4; group++) {
			tokens t = tokens_random(&r, shapes[0], BUDGET, group), few = tokens_random(&r, shapes[0], 2, (group + 3) % 4);
			ckv_stream *s = stream_make(policies[i], BUDGET, shapes, 2, NULL),
			           *fresh = stream_make(policies[i], BUDGET, shapes, 2, NULL);
			((float *)(void *)few.stored_v.memory)[5] = NAN;
			refused_part(s, 0, &few, 0, 2, CKV_ERR_NUMERIC, policies[i]);
			push(s, 0, &t, 0, BUDGET);
			push(fresh, 0, &t, 0, BUDGET);
			saved bytes = save_stream(fresh);
			CHECK(still_saves(s, &bytes), "%s, group %d", policies[i], group);
			saved_free(&bytes);
			ckv_stream_free(s);
			ckv_stream_free(fresh);
			tokens_free(&t);
			tokens_free(&few);
		}
	}
}

static void a_call_without_tokens_is_none(void **state) {
	(void)state;
	for (size_t i = 0; i < N_POLICIES; i++) {
		tokens layers[2];
		ckv_stream *s = started(policies[i], layers, 2);
		ckv_view none;
		memset(&none, 0, sizeof none);
		const int32_t *before, *after;
		int32_t n, m;
		if (strcmp(policies[i], "squeezeattention") != 0) {
			push_layers(s, layers, 2, SEEN, NEW);
		}
		saved bytes = save_stream(s);
		assert_int_equal(ckv_stream_evicted(s, 1, 1, &before, &n), CKV_OK);
		assert_int_equal(ckv_stream_push(s, 1, &none, &none, NULL), CKV_OK);
		assert_int_equal(ckv_stream_push(s, 1, &none, &none, &none), CKV_OK);
		assert_int_equal(push_status(s, 0, &layers[0], 3, 0), CKV_OK);
		assert_int_equal(ckv_stream_push(s, 2, &none, &none, NULL), CKV_ERR_ARG);
		assert_int_equal(ckv_stream_evicted(s, 1, 1, &after, &m), CKV_OK);
		CHECK(still_saves(s, &bytes) && n == m && before == after, "%s", policies[i]);
		saved_free(&bytes);
		end(s, layers);
	}
}

/* --------------------------------------------------------------- turns of layers */

static void followers_take_their_turn(void **state) {
	const ckv_stream_shape three[] = {{2, 6, 3}, {2, 6, 3}, {2, 6, 3}};
	rng r = {3};
	(void)state;
	tokens t = tokens_random(&r, shapes[0], 80, 1);
	ckv_stream *s = stream_make("chunkkv-reuse:grace=8", 30, three, 3, NULL);
	refused_part(s, 1, &t, 0, 10, CKV_ERR_STATE, "before the first");
	push(s, 0, &t, 0, 40);
	refused_part(s, 1, &t, 0, 39, CKV_ERR_STATE, "fewer tokens");
	refused_part(s, 1, &t, 0, 41, CKV_ERR_STATE, "more tokens");
	push(s, 2, &t, 0, 7); /* the next first one goes on as it likes */
	push(s, 1, &t, 0, 40);
	refused_part(s, 1, &t, 40, 3, CKV_ERR_STATE, "twice");
	push(s, 2, &t, 7, 70);
	push(s, 0, &t, 40, 10);
	push(s, 1, &t, 40, 10);
	for (int32_t h = 0; h < 2; h++) {
		ckv_stream_rows a = head_rows(s, 0, h), b = head_rows(s, 1, h);
		const int32_t *x, *y;
		int32_t n, m;
		assert_int_equal(ckv_stream_evicted(s, 0, h, &x, &n), CKV_OK);
		assert_int_equal(ckv_stream_evicted(s, 1, h, &y, &m), CKV_OK);
		assert_true(a.n == b.n && n == m && n > 0);
		assert_memory_equal(a.positions, b.positions, (size_t)a.n * sizeof *a.positions);
		assert_memory_equal(x, y, (size_t)n * sizeof *x);
	}
	ckv_stream_free(s);
	tokens_free(&t);
}

static void squeeze_measures_before_it_settles(void **state) {
	const ckv_stream_shape three[] = {{2, 6, 3}, {2, 6, 3}, {2, 6, 3}};
	rng r = {4};
	(void)state;
	tokens t[] = {tokens_random(&r, three[0], 120, 1), tokens_random(&r, three[1], 120, 1),
	              tokens_random(&r, three[2], 120, 1)};
	for (int32_t i = 0; i < 2 * 120 * 6; i++) { /* the first layer's keys are much alike */
		((float *)(void *)t[0].stored_k.memory)[i] += 1.0f;
	}
	ckv_stream *s = stream_make("squeezeattention:grace=4", 50, three, 3, NULL);
	refused_part(s, 0, &t[0], 0, 51, CKV_ERR_STATE, "one more than is measured");
	assert_non_null(strstr(ckv_stream_message(s), "50"));
	push(s, 0, &t[0], 0, 30);
	refused_part(s, 0, &t[0], 30, 21, CKV_ERR_STATE, "one more in two calls");
	assert_non_null(strstr(ckv_stream_message(s), "20"));
	push(s, 0, &t[0], 30, 20);
	push(s, 1, &t[1], 0, 50);
	push(s, 2, &t[2], 0, 49);
	refused_part(s, 0, &t[0], 50, 1, CKV_ERR_STATE, "the last layer lacks one");
	push(s, 2, &t[2], 49, 1);
	assert_int_equal(layer_info(s, 0).layer_budget, 50); /* in force from the next push on */
	push_layers(s, t, 3, 50, 70);
	int32_t sum = 0;
	for (int32_t i = 0; i < 3; i++) {
		ckv_stream_info info = layer_info(s, i);
		sum += info.layer_budget;
		CHECK(info.tokens_kept == info.layer_budget && info.tokens_most == info.layer_budget, "layer %d: %d of %d", i,
		      info.tokens_kept, info.layer_budget);
	}
	CHECK(sum >= 148 && sum <= 152, "%d rows", sum);
	CHECK(layer_info(s, 0).layer_budget < 40, "%d rows for keys that are alike", layer_info(s, 0).layer_budget);
	ckv_stream_free(s);
	for (int i = 0; i < 3; i++) {
		tokens_free(&t[i]);
	}
}

/* ------------------------------------------------------------------- creating */

static void not_created(const ckv_stream_params *params, int32_t budget, const ckv_stream_shape *s, int32_t n,
                        const ckv_ctx_options *options, ckv_status expected, const char *what) {
	ckv_stream *stream;
	ckv_error error;
	paint(&stream, sizeof stream);
	ckv_status status = ckv_stream_create(&stream, params, budget, s, n, options, &error);
	CHECK(status == expected && error.status == status && error.message[0], "%s: %s", what, ckv_strerror(status));
	CHECK(stream == NULL, "%s: a stream is left", what);
}

static void streams_without_sense_are_not_created(void **state) {
	const ckv_stream_shape good[] = {{1, 4, 4}, {2, 4, 4}},
	                       bad[] = {{0, 4, 4}, {65537, 4, 4}, {1, 0, 4}, {1, 65537, 4}, {1, 4, 0}, {1, 4, -1}};
	ckv_stream_params p = stream_params("h2o"), reuse = stream_params("chunkkv-reuse"), small = p, name = p;
	ckv_ctx_options o = stream_options(0, -1), sized = stream_options(0, 0), lame = stream_options(0, 0);
	ckv_allocator half = ckv_allocator_default();
	(void)state;
	half.free = NULL;
	lame.allocator = &half;
	sized.size = small.size = 4;
	name.scorer = "no such";
	not_created(NULL, 40, good, 2, NULL, CKV_ERR_ARG, "no parameters");
	not_created(&p, 40, NULL, 2, NULL, CKV_ERR_ARG, "no shapes");
	not_created(&p, 40, good, 0, NULL, CKV_ERR_ARG, "no layers");
	not_created(&p, 40, good, -1, NULL, CKV_ERR_ARG, "less than no layers");
	not_created(&small, 40, good, 2, NULL, CKV_ERR_ARG, "small parameters");
	not_created(&name, 40, good, 2, NULL, CKV_ERR_POLICY, "an unknown scorer");
	not_created(&p, 40, good, 2, &o, CKV_ERR_ARG, "threads");
	not_created(&p, 40, good, 2, &sized, CKV_ERR_ARG, "small options");
	not_created(&p, 40, good, 2, &lame, CKV_ERR_ARG, "no free");
	not_created(&reuse, 80, good, 2, NULL, CKV_ERR_ARG, "other heads than the first");
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		not_created(&p, 40, &bad[i], 1, NULL, CKV_ERR_ARG, "a shape");
	}
	assert_int_equal(ckv_stream_create(NULL, &p, 40, good, 2, NULL, NULL), CKV_ERR_ARG);
}

/* sinks, what is protected, and a chunk that may go must fit. */
static void budgets_too_small_are_refused(void **state) {
	static const struct {
		const char *policy;
		int32_t least;
	} cases[] = {{"chunkkv", 4 + 32 + 8},
	             {"h2o", 4 + 16 + 1},
	             {"tova", 4 + 1},
	             {"tova:chunk=5,grace=3,sinks=0", 3 + 5},
	             {"streamingllm", 4 + 1},
	             {"snapkv:window=7,chunk=3", 4 + 14 + 3},
	             {"chunkkv:scorer=streaming", 4 + 1},
	             {"pyramidkv", 4 + 16 + 1}};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		ckv_stream_params p = stream_params(cases[i].policy);
		not_created(&p, cases[i].least - 1, shapes, 2, NULL, CKV_ERR_POLICY, cases[i].policy);
		not_created(&p, 0, shapes, 2, NULL, CKV_ERR_POLICY, cases[i].policy);
		not_created(&p, INT32_MIN, shapes, 2, NULL, CKV_ERR_POLICY, cases[i].policy);
		not_created(&p, INT32_MAX, shapes, 2, NULL, CKV_ERR_POLICY, cases[i].policy);
		ckv_stream_free(stream_make(cases[i].policy, cases[i].least, shapes, 2, NULL));
		ckv_stream_free(stream_make(cases[i].policy, CKV_MAX_TOKENS - 1, shapes, 2, NULL)); /* memory is made as it fills */
	}
}

static void looking_past_the_end_is_refused(void **state) {
	tokens layers[2];
	ckv_stream_info info;
	ckv_stream_rows rows;
	const int32_t *evicted;
	int32_t n;
	(void)state;
	ckv_stream *s = started("h2o", layers, 0);
	static const int32_t places[][2] = {{-1, 0}, {2, 0}, {0, -1}, {0, 2}};
	for (size_t i = 0; i < 4; i++) {
		int32_t layer = places[i][0], head = places[i][1];
		assert_int_equal(ckv_stream_head(s, layer, head, &rows), CKV_ERR_ARG);
		assert_int_equal(ckv_stream_read(s, layer, head, NULL, NULL, NULL), CKV_ERR_ARG);
		assert_int_equal(ckv_stream_evicted(s, layer, head, &evicted, &n), CKV_ERR_ARG);
		assert_int_equal(ckv_stream_layer_info(s, layer, &info), i < 2 ? CKV_ERR_ARG : CKV_OK);
	}
	assert_int_equal(ckv_stream_head(s, 0, 0, NULL), CKV_ERR_ARG);
	assert_int_equal(ckv_stream_evicted(s, 0, 0, NULL, &n), CKV_ERR_ARG);
	assert_int_equal(ckv_stream_evicted(s, 0, 0, &evicted, NULL), CKV_ERR_ARG);
	assert_int_equal(ckv_stream_layer_info(s, 0, NULL), CKV_ERR_ARG);
	assert_int_equal(ckv_stream_layer_info(NULL, 0, &info), CKV_ERR_ARG);
	assert_int_equal(ckv_stream_push(NULL, 0, NULL, NULL, NULL), CKV_ERR_ARG);
	assert_string_equal(ckv_stream_message(NULL), "");
	assert_int_equal(ckv_stream_read(s, 0, 0, NULL, NULL, NULL), CKV_OK);
	ckv_stream_free(NULL);
	end(s, layers);
}

/* --------------------------------------------------------------------- memory */

/* The steps of a stream's life; each may fail for want of memory and is then tried again. */
enum { N_STEPS = 9 };

static ckv_status life(ckv_stream *s, const tokens *layers, const saved *bytes, int32_t step) {
	static const int32_t first[] = {0, 0, 10, 10, 20, 20}, count[] = {10, 10, 10, 10, 25, 25};
	if (step < 6) {
		return push_status(s, step % 2, &layers[step % 2], first[step], count[step]);
	}
	return step == 6   ? ckv_stream_trim(s, 5)
	       : step == 7 ? ckv_stream_restore(s, bytes->data, bytes->size)
	                   : push_status(s, 0, &layers[0], 0, 1);
}

static ckv_stream *lived(const char *policy, const tokens *layers, const saved *bytes) {
	ckv_stream *s = stream_make(policy, 45, shapes, 2, NULL);
	for (int32_t i = 0; i < N_STEPS; i++) {
		CHECK(life(s, layers, bytes, i) == CKV_OK, "%s, step %d: %s", policy, i, ckv_stream_message(s));
	}
	return s;
}

/* Request n fails, alone or with all after it; true when n was beyond the last. */
static bool torture(const char *policy, const tokens *layers, const saved *bytes, const ckv_stream *expected, long n,
                    bool stay) {
	counting c;
	ckv_stream *s;
	ckv_stream_params params = stream_params(policy);
	ckv_ctx_options options = stream_options(0, 2);
	counting_init(&c);
	c.refuse_in = n;
	c.stay = stay;
	options.allocator = &c.allocator;
	ckv_status status = ckv_stream_create(&s, &params, 45, shapes, 2, &options, NULL);
	bool whole = status == CKV_OK;
	CHECK(whole || (status == CKV_ERR_NOMEM && !s), "%s, request %ld: %s", policy, n, ckv_strerror(status));
	for (int32_t i = 0; i < N_STEPS && s; i++) {
		saved before = save_stream(s);
		status = life(s, layers, bytes, i);
		if (status) {
			CHECK(status == CKV_ERR_NOMEM && ckv_stream_message(s)[0], "%s, request %ld: %s", policy, n,
			      ckv_strerror(status));
			CHECK(still_saves(s, &before), "%s, request %ld, step %d: something changed", policy, n, i);
			whole = false;
			c.refuse_in = 0;
			CHECK(life(s, layers, bytes, i) == CKV_OK, "%s, request %ld: not afterwards", policy, n);
		}
		saved_free(&before);
	}
	if (s) {
		check_same_rows(s, expected, shapes, 2, policy);
	}
	ckv_stream_free(s);
	CHECK(c.live == 0, "%s, request %ld: %ld blocks are left", policy, n, c.live);
	return whole;
}

static void every_request_may_fail(void **state) {
	rng r = {5};
	(void)state;
	for (size_t i = 0; i < N_POLICIES; i++) {
		tokens layers[] = {tokens_random(&r, shapes[0], 80, 2), tokens_random(&r, shapes[1], 80, 2)};
		ckv_stream *other = stream_make(policies[i], 45, shapes, 2, NULL);
		push_layers(other, layers, 2, 3, 45);
		push_layers(other, layers, 2, 48, 9);
		saved bytes = save_stream(other);
		ckv_stream *expected = lived(policies[i], layers, &bytes);
		for (int stay = 0; stay < 2; stay++) {
			long n = 1;
			while (!torture(policies[i], layers, &bytes, expected, n, stay)) {
				n++;
			}
			CHECK(n > 15, "%s: %ld requests", policies[i], n);
		}
		saved_free(&bytes);
		ckv_stream_free(expected);
		ckv_stream_free(other);
		tokens_free(&layers[0]);
		tokens_free(&layers[1]);
	}
}

/* Calls of 64 of the same tokens again and again: the decisions differ, the memory does not. */
static void memory_grows_with_the_budget_and_not_with_the_tokens(void **state) {
	static const char *const steady[] = {"chunkkv", "h2o", "tova", "snapkv:window=8", "cam", "l2norm", "streamingllm"};
	const ckv_stream_shape shape = {1, 4, 4};
	rng r = {6};
	(void)state;
	for (size_t i = 0; i < sizeof steady / sizeof *steady; i++) {
		counting c;
		ckv_ctx_options options = stream_options(0, 0);
		counting_init(&c);
		options.allocator = &c.allocator;
		tokens t = tokens_random(&r, shape, 64 * 7, 1);
		ckv_stream *s = stream_make(steady[i], 64, &shape, 1, &options);
		long calls = 0, live = 0;
		uint64_t allocated = 0;
		for (int32_t n = 0; n < 50000; n += 64) {
			push(s, 0, &t, n % (64 * 7), 64);
			if (n == 64 * 4) {
				calls = c.calls;
				live = c.live;
				allocated = layer_info(s, 0).bytes_allocated;
			}
		}
		CHECK(c.calls == calls && c.live == live, "%s: %ld requests more", steady[i], c.calls - calls);
		CHECK(layer_info(s, 0).bytes_allocated == allocated && allocated < 65 * (16 + 16) + 16 * 128 + 8 * 4 * 4 + 1,
		      "%s: %llu bytes", steady[i], (unsigned long long)allocated);
		ckv_stream_free(s);
		assert_int_equal(c.live, 0);
		tokens_free(&t);
	}
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(numbers_that_are_none_are_refused),
	    cmocka_unit_test(what_f16_holds_is_taken),
	    cmocka_unit_test(queries_too_large_to_multiply_never_make_scores_of_nan),
	    cmocka_unit_test(views_that_do_not_go_together_are_refused),
	    cmocka_unit_test(a_first_call_that_fails_leaves_everything_open),
	    cmocka_unit_test(a_call_without_tokens_is_none),
	    cmocka_unit_test(followers_take_their_turn),
	    cmocka_unit_test(squeeze_measures_before_it_settles),
	    cmocka_unit_test(streams_without_sense_are_not_created),
	    cmocka_unit_test(budgets_too_small_are_refused),
	    cmocka_unit_test(looking_past_the_end_is_refused),
	    cmocka_unit_test(every_request_may_fail),
	    cmocka_unit_test(memory_grows_with_the_budget_and_not_with_the_tokens),
	};
	return cmocka_run_group_tests_name("stream_errors", tests, NULL, NULL);
}
