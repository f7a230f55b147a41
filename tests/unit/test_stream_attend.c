/* Attention over a stream: that of a plain computation over the rows which it says it stores and the call's own, however the
 * rows came to lie in memory and however it is computed; and nothing of the stream changes. */
#include "stream_support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------------------- naive */

/* A head's rows in double: those of the stream, oldest first, then a call's. */
typedef struct seen {
	const tokens *t;
	int32_t head, stored, n; /* n: that a query sees */
	double *keys, *values;
} seen;

static void load_rows(const uint16_t *stored_rows, int32_t n_stored, const tensor *from, int32_t head, int32_t first,
                      int32_t n, double *rows) {
	int32_t held = n_stored * from->dim;
	for (int32_t i = 0; i < held; i++) {
		rows[i] = f16_value(stored_rows[i]);
	}
	for (int32_t i = 0; i < n * from->dim; i++) {
		rows[held + i] = f16_rounded((double)tensor_row(from, head, first)[i]);
	}
}

static seen seen_make(const ckv_stream *stream, int32_t layer, const tokens *t, int32_t head, int32_t first, int32_t n) {
	seen s = {.t = t, .head = head, .stored = head_rows(stream, layer, head).n};
	size_t dim_k = (size_t)t->k.dim, dim_v = (size_t)t->v.dim, rows = (size_t)s.stored + (size_t)n;
	uint16_t *keys = test_memory((size_t)s.stored * dim_k, 2), *values = test_memory((size_t)s.stored * dim_v, 2);
	assert_int_equal(ckv_stream_read(stream, layer, head, NULL, keys, values), CKV_OK);
	s.keys = test_memory(rows * dim_k, sizeof *s.keys);
	s.values = test_memory(rows * dim_v, sizeof *s.values);
	load_rows(keys, s.stored, &t->k, head, first, n, s.keys);
	load_rows(values, s.stored, &t->v, head, first, n, s.values);
	free(keys);
	free(values);
	return s;
}

/* weights[n]; their exponentials are of at most 1. */
static void naive_weights(const seen *s, const float *query, double scale, double cap, double *weights) {
	double most = -HUGE_VAL, sum = 0.0;
	for (int32_t j = 0; j < s->n; j++) {
		double x = 0.0;
		for (int32_t c = 0; c < s->t->k.dim; c++) {
			x += (double)query[c] * s->keys[j * s->t->k.dim + c];
		}
		x *= scale > 0.0 ? scale : 1.0 / sqrt(s->t->k.dim);
		weights[j] = cap > 0.0 ? cap * tanh(x / cap) : x;
		most = weights[j] > most ? weights[j] : most;
	}
	for (int32_t j = 0; j < s->n; j++) {
		weights[j] = exp(weights[j] - most);
		sum += weights[j];
	}
	for (int32_t j = 0; j < s->n; j++) {
		weights[j] /= sum;
	}
}

static void check_query(const seen *s, const double *weights, const float *out, const char *what) {
	for (int32_t c = 0; c < s->t->v.dim; c++) {
		double expected = 0.0;
		for (int32_t j = 0; j < s->n; j++) {
			expected += weights[j] * s->values[j * s->t->v.dim + c];
		}
		CHECK(fabs((double)out[c] - expected) <= 2e-6 + 1e-5 * fabs(expected),
		      "%s: row %d of head %d, channel %d: %g, not %g", what, s->n - s->stored - 1, s->head, c, (double)out[c],
		      expected);
	}
}

/* out[n][H][dim_v] against what is stored now. Of long calls some queries only. */
static void check_attention(const ckv_stream *stream, int32_t layer, const tokens *t, int32_t first, int32_t n, double scale,
                            double cap, const float *out, const char *what) {
	int32_t group = t->q.n_heads / t->k.n_heads, step = n > 40 ? 37 : 1;
	for (int32_t h = 0; h < t->k.n_heads; h++) {
		seen s = seen_make(stream, layer, t, h, first, n);
		double *weights = test_memory((size_t)s.stored + (size_t)n, sizeof *weights);
		for (int32_t i = (n - 1) % step; i < n; i += step) {
			s.n = s.stored + i + 1;
			for (int32_t g = 0; g < group; g++) {
				naive_weights(&s, tensor_row(&t->q, h * group + g, first + i), scale, cap, weights);
				check_query(&s, weights, out + (size_t)(i * t->q.n_heads + h * group + g) * (size_t)t->v.dim, what);
			}
		}
		free(s.keys);
		free(s.values);
		free(weights);
	}
}

/* -------------------------------------------------------------------------------------------------------------- calls */

static size_t out_size(const tokens *t, int32_t n) { return (size_t)n * (size_t)t->q.n_heads * (size_t)t->v.dim; }

static ckv_status attend_status(ckv_stream *s, int32_t layer, const tokens *t, int32_t first, int32_t n, float scale,
                                float cap, float *out) {
	ckv_view k = view_part(&t->stored_k.view, first, n), v = view_part(&t->stored_v.view, first, n),
	         q = view_part(&t->stored_q.view, first, n);
	return ckv_stream_attend(s, layer, &k, &v, &q, scale, cap, out);
}

/* That must succeed, change nothing, and write no more than it should; the result is the caller's. */
static float *attend(ckv_stream *s, int32_t layer, const tokens *t, int32_t first, int32_t n, float scale, float cap,
                     const char *what) {
	enum { MARGIN = 64 };
	size_t size = out_size(t, n);
	float *out = test_memory(size + MARGIN, sizeof *out);
	saved before = save_stream(s);
	paint(out, (size + MARGIN) * sizeof *out);
	CHECK(attend_status(s, layer, t, first, n, scale, cap, out) == CKV_OK, "%s: %s", what, ckv_stream_message(s));
	CHECK(is_painted(out + size, MARGIN * sizeof *out), "%s: written beyond the end", what);
	CHECK(still_saves(s, &before), "%s: the stream has changed", what);
	saved_free(&before);
	return out;
}

/* Memory that was never written holds NaN, in f16 and in f32. */
static void *hostile_alloc(void *user, size_t size) {
	void *memory = malloc(size);
	(void)user;
	return memory ? memset(memory, 0xff, size) : NULL;
}

static void hostile_free(void *user, void *memory) {
	(void)user;
	free(memory);
}

static const ckv_allocator hostile = {hostile_alloc, hostile_free, NULL};

/* Values that f16 rounds. */
static void roughen(tensor *t, stored *to) {
	for (size_t i = 0; i < (size_t)t->n_heads * (size_t)t->n_tokens * (size_t)t->dim; i++) {
		t->value[i] *= 1.0017f;
	}
	memcpy(to->memory, t->value, to->size);
}

/* As f32 with all their bits, or in any type and layout that holds them exactly. */
static tokens tokens_any(rng *r, ckv_stream_shape shape, int32_t n, int32_t group) {
	tokens t = tokens_random(r, shape, n, group);
	if (rng_chance(r, 2)) {
		roughen(&t.k, &t.stored_k);
		roughen(&t.v, &t.stored_v);
		roughen(&t.q, &t.stored_q);
		return t;
	}
	tokens other =
	    tokens_stored_as(&t, (ckv_dtype)rng_range(r, 0, 3), (layout)rng_range(r, 0, 1), 4 * (size_t)rng_range(r, 0, 2));
	tokens_free(&t);
	return other;
}

/* ------------------------------------------------------------------------------------------------------------ the sum */

static const char *const policies[] = {"chunkkv:grace=8",
                                       "h2o",
                                       "tova",
                                       "snapkv:window=8",
                                       "streamingllm",
                                       "l2norm:grace=4",
                                       "chunkkv:scorer=knorm,grace=5,chunk=7",
                                       "cam",
                                       "chunkkv:chunk=1,merge=mean,merge_keys=1",
                                       "h2o:mode=reference",
                                       "l2norm:mode=reference",
                                       "snapkv:mode=reference"};
enum { N_POLICIES = sizeof policies / sizeof *policies };

static bool shows_keys(const char *policy) { return strstr(policy, "l2norm:mode") || strstr(policy, "snapkv:mode"); }

/* Attention and push of the same tokens; reference mode of some is pushed without queries. */
static void step(ckv_stream *s, const char *policy, const tokens *t, int32_t first, int32_t n, float scale, float cap) {
	float *out = attend(s, 0, t, first, n, scale, cap, policy);
	check_attention(s, 0, t, first, n, (double)scale, (double)cap, out, policy);
	free(out);
	ckv_view k = view_part(&t->stored_k.view, first, n), v = view_part(&t->stored_v.view, first, n),
	         q = view_part(&t->stored_q.view, first, n);
	CHECK(ckv_stream_push(s, 0, &k, &v, shows_keys(policy) ? NULL : &q) == CKV_OK, "%s: %s", policy, ckv_stream_message(s));
}

static void run_shape(rng *r, ckv_stream_shape shape, int32_t group, const char *policy) {
	static const int32_t calls[] = {33, 1, 300, 1, 2, 1, 33, 2, 1};
	ckv_ctx_options options = stream_options(0, rng_range(r, 0, 3));
	options.allocator = &hostile;
	tokens t = tokens_any(r, shape, 374, group);
	ckv_stream *s = stream_make(policy, least_budget(policy) + rng_range(r, 0, 130), &shape, 1, &options);
	for (int32_t i = 0, first = 0; i < 9; first += calls[i++]) {
		float scale = rng_chance(r, 2) ? 0.0f : 0.3f * (float)rng_range(r, 1, 3), cap = rng_chance(r, 2) ? 0.0f : 1.5f;
		step(s, policy, &t, first, calls[i], scale, cap);
	}
	ckv_stream_free(s);
	tokens_free(&t);
}

static void attention_is_that_over_the_stored_rows_and_the_call(void **state) {
	static const ckv_stream_shape shapes[] = {{2, 64, 64}, {1, 80, 80}, {2, 128, 128}, {3, 64, 80}, {2, 33, 7}, {1, 1, 1}};
	static const int32_t groups[] = {1, 3, 4};
	rng r = {1};
	(void)state;
	for (int32_t i = 0; i < 6 * 3 * 2; i++) {
		run_shape(&r, shapes[i % 6], groups[i / 6 % 3], policies[i % N_POLICIES]);
	}
	for (int32_t i = 0; i < 60; i++) { /* other pairs of small ones */
		ckv_stream_shape shape = {rng_range(&r, 1, 3), rng_range(&r, 1, 20), rng_range(&r, 1, 20)};
		run_shape(&r, shape, rng_range(&r, 1, 4), policies[rng_range(&r, 0, N_POLICIES - 1)]);
	}
}

/* Slots that rows left behind lie anywhere between those in use. */
static void what_was_taken_back_is_not_seen(void **state) {
	const ckv_stream_shape shape = {2, 16, 9};
	rng r = {2};
	(void)state;
	for (int32_t i = 0; i < 40; i++) {
		const char *policy = policies[i % 9];
		ckv_ctx_options options = stream_options(0, 0);
		options.allocator = &hostile;
		tokens t = tokens_any(&r, shape, 300, 2);
		ckv_stream *s = stream_make(policy, 90, &shape, 1, &options);
		push(s, 0, &t, 0, rng_range(&r, 91, 200));
		assert_int_equal(ckv_stream_trim(s, rng_range(&r, 1, 80)), CKV_OK);
		step(s, policy, &t, 200, 20, 0.0f, 0.0f);
		if (rng_chance(&r, 2)) {
			ckv_stream_clear(s);
		}
		step(s, policy, &t, 220, 30, 0.0f, 0.0f);
		step(s, policy, &t, 250, 30, 0.0f, 0.0f);
		ckv_stream_free(s);
		tokens_free(&t);
	}
}

/* All layers of a policy that shares decisions or budgets, at any time between their pushes. */
static void every_layer_attends_to_its_own_rows(void **state) {
	rng r = {3};
	(void)state;
	for (int i = 0; i < 40; i++) {
		setting s = setting_make(&r);
		ckv_stream *stream = open_setting(&s, NULL);
		int32_t most = s.n - s.budget < 12 ? s.n - s.budget : 12;
		push_whole(&s, stream, 0, s.n - most);
		for (int32_t l = 0; l < s.n_layers; l++) {
			float *out = attend(stream, l, &s.layers[l], s.n - most, most, 0.0f, 0.0f, s.policy);
			check_attention(stream, l, &s.layers[l], s.n - most, most, 0.0, 0.0, out, s.policy);
			push(stream, l, &s.layers[l], s.n - most, most);
			free(out);
		}
		ckv_stream_free(stream);
		setting_free(&s);
	}
}

static void a_single_row_is_the_result(void **state) {
	const ckv_stream_shape shape = {2, 6, 5};
	rng r = {4};
	(void)state;
	tokens t = tokens_random(&r, shape, 3, 2);
	ckv_stream *s = stream_make("h2o", 40, &shape, 1, NULL);
	float *out = attend(s, 0, &t, 0, 3, 0.0f, 0.0f, "the first call");
	for (size_t h = 0; h < 4; h++) { /* its values are exact in f16 */
		assert_memory_equal(out + h * 5, tensor_row(&t.v, (int32_t)h / 2, 0), 5 * sizeof *out);
	}
	free(out);
	ckv_stream_free(s);
	tokens_free(&t);
}

/* --------------------------------------------------------------------------------------------------------- bit for bit */

static void type_and_layout_do_not_show(void **state) {
	const ckv_stream_shape shape = {3, 20, 11};
	rng r = {5};
	(void)state;
	tokens t = tokens_random(&r, shape, 120, 2);
	ckv_stream *s = stream_make("chunkkv:grace=8", 60, &shape, 1, NULL);
	push(s, 0, &t, 0, 87);
	float *expected = attend(s, 0, &t, 87, 33, 0.0f, 0.0f, "f32");
	for (int32_t i = 0; i < 8; i++) {
		tokens other = tokens_stored_as(&t, (ckv_dtype)(i / 2), (layout)(i % 2), (size_t)(i % 3) * 4);
		float *out = attend(s, 0, &other, 87, 33, 0.0f, 0.0f, "another type");
		check_bits(expected, out, out_size(&t, 33), "another type");
		free(out);
		tokens_free(&other);
	}
	free(expected);
	ckv_stream_free(s);
	tokens_free(&t);
}

/* Enough products for threads; what they are told of must be all they share. */
static void threads_and_instruction_sets_do_not_show(void **state) {
	static const int32_t lengths[] = {1, 40, 90};
	const ckv_stream_shape shape = {5, 40, 24};
	rng r = {6};
	(void)state;
	tokens t = tokens_any(&r, shape, 380, 3);
	for (int32_t i = 0; i < 3; i++) {
		float *expected = NULL;
		for (int32_t threads = 0; threads <= 4; threads++) {
			for (uint32_t off = 0; off < 2; off++) {
				ckv_ctx_options options = stream_options(off ? ~0u : 0u, threads);
				ckv_stream *s = stream_make("l2norm", 220, &shape, 1, &options);
				push(s, 0, &t, 0, 290);
				float *out = attend(s, 0, &t, 290, lengths[i], 0.0f, 9.0f, "threads");
				if (expected) {
					check_bits(expected, out, out_size(&t, lengths[i]), "other threads or kernels");
					free(out);
				} else {
					expected = out;
				}
				ckv_stream_free(s);
			}
		}
		free(expected);
	}
	tokens_free(&t);
}

/* Queries go in blocks; each result is of its own query alone. */
static void blocks_do_not_show(void **state) {
	const ckv_stream_shape shape = {2, 24, 16};
	rng r = {7};
	(void)state;
	tokens t = tokens_random(&r, shape, 170, 3);
	ckv_stream *s = stream_make("tova", 50, &shape, 1, NULL);
	push(s, 0, &t, 0, 70);
	float *whole = attend(s, 0, &t, 70, 100, 0.0f, 0.0f, "whole");
	for (int32_t n = 1; n < 100; n++) {
		float *part = attend(s, 0, &t, 70, n, 0.0f, 0.0f, "part");
		check_bits(whole, part, out_size(&t, n), "the first of them");
		free(part);
	}
	free(whole);
	ckv_stream_free(s);
	tokens_free(&t);
}

/* ------------------------------------------------------------------------------------------------------------- errors */

enum { SEEN = 50, NEW = 4 };

static void refused(ckv_stream *s, int32_t layer, const ckv_view *k, const ckv_view *v, const ckv_view *q, float scale,
                    float cap, ckv_status expected, const char *what) {
	float out[NEW * 4 * 3];
	saved before = save_stream(s);
	ckv_status status = ckv_stream_attend(s, layer, k, v, q, scale, cap, out);
	CHECK(status == expected && ckv_stream_message(s)[0], "%s: %s", what, ckv_strerror(status));
	CHECK(still_saves(s, &before), "%s: the stream has changed", what);
	saved_free(&before);
}

static void make_wrong(int w, ckv_view *k, ckv_view *v, ckv_view *q) {
	k->n_heads -= w == 0;
	v->n_heads -= w == 1;
	k->head_dim -= w == 2;
	v->head_dim -= w == 3;
	v->n_tokens -= w == 4;
	q->n_heads = w == 5 ? 3 : w == 6 ? 1 << 30 : q->n_heads;
	q->head_dim -= w == 7;
	q->n_tokens -= w == 8;
	k->data = w == 9 ? NULL : k->data;
	v->data = w == 10 ? NULL : v->data;
	q->data = w == 11 ? NULL : q->data;
	k->dtype = w == 12 ? (ckv_dtype)77 : k->dtype;
	q->stride_token += w == 13 ? 1 : 0;
	if (w == 14) {
		k->n_tokens = v->n_tokens = q->n_tokens = -1;
	}
	q->n_tokens = w == 15 ? 0 : q->n_tokens;
	if (w == 16) { /* rows all at one place */
		k->n_tokens = v->n_tokens = q->n_tokens = CKV_MAX_TOKENS;
		k->stride_token = v->stride_token = q->stride_token = 0;
	}
	q->stride_head = w == 6 ? 0 : q->stride_head;
}

static void what_is_wrong_is_refused(void **state) {
	const ckv_stream_shape shapes[] = {{2, 6, 3}, {2, 6, 3}};
	static const float bad[] = {NAN, INFINITY, -INFINITY, -1.0f};
	rng r = {8};
	(void)state;
	tokens t = tokens_random(&r, shapes[0], SEEN + NEW, 2);
	ckv_stream *s = stream_make("h2o", 40, shapes, 2, NULL);
	push(s, 0, &t, 0, SEEN);
	const ckv_view k = view_part(&t.stored_k.view, SEEN, NEW), v = view_part(&t.stored_v.view, SEEN, NEW),
	               q = view_part(&t.stored_q.view, SEEN, NEW);
	for (int w = 0; w < 17; w++) {
		ckv_view a = k, b = v, c = q;
		char what[32];
		make_wrong(w, &a, &b, &c);
		snprintf(what, sizeof what, "number %d", w);
		refused(s, 0, &a, &b, &c, 0.0f, 0.0f, CKV_ERR_ARG, what);
	}
	refused(s, -1, &k, &v, &q, 0.0f, 0.0f, CKV_ERR_ARG, "layer -1");
	refused(s, 2, &k, &v, &q, 0.0f, 0.0f, CKV_ERR_ARG, "layer 2");
	refused(s, 0, NULL, &v, &q, 0.0f, 0.0f, CKV_ERR_ARG, "no keys");
	refused(s, 0, &k, NULL, &q, 0.0f, 0.0f, CKV_ERR_ARG, "no values");
	refused(s, 0, &k, &v, NULL, 0.0f, 0.0f, CKV_ERR_ARG, "no queries");
	for (int i = 0; i < 4; i++) {
		refused(s, 0, &k, &v, &q, bad[i], 0.0f, CKV_ERR_ARG, "a scale");
		refused(s, 0, &k, &v, &q, 0.0f, bad[i], CKV_ERR_ARG, "a cap");
	}
	float out[NEW * 4 * 3];
	assert_int_equal(ckv_stream_attend(s, 0, &k, &v, &q, 0.0f, 0.0f, NULL), CKV_ERR_ARG);
	assert_int_equal(ckv_stream_attend(NULL, 0, &k, &v, &q, 0.0f, 0.0f, out), CKV_ERR_ARG);
	assert_int_equal(ckv_stream_attend(s, 1, &k, &v, &q, 0.0f, 0.0f, out), CKV_OK);
	assert_string_equal(ckv_stream_message(s), "");
	ckv_stream_free(s);
	tokens_free(&t);
}

/* In any place of the call. */
static void numbers_that_are_none_are_refused(void **state) {
	static const float bad[] = {NAN, INFINITY, -INFINITY, 70000.0f, -65520.0f, 1e37f};
	const ckv_stream_shape shape = {2, 6, 3};
	rng r = {9};
	(void)state;
	tokens t = tokens_random(&r, shape, SEEN + NEW, 2);
	ckv_stream *s = stream_make("h2o", 40, &shape, 1, NULL);
	push(s, 0, &t, 0, SEEN);
	const ckv_view k = view_part(&t.stored_k.view, SEEN, NEW), v = view_part(&t.stored_v.view, SEEN, NEW),
	               q = view_part(&t.stored_q.view, SEEN, NEW);
	for (int32_t i = 0; i < 6 * 6; i++) {
		stored *in = i % 3 == 0 ? &t.stored_k : i % 3 == 1 ? &t.stored_v : &t.stored_q;
		int32_t dim = in->view.head_dim, last = in->view.n_heads * (SEEN + NEW) * dim - 1;
		float *at = (float *)(void *)in->memory + (i / 3 % 2 ? SEEN * dim : last), was = *at;
		*at = bad[i / 6];
		if (i % 3 != 2 || i / 6 < 3 || i / 6 == 5) { /* queries are not stored */
			refused(s, 0, &k, &v, &q, 0.0f, 0.0f, CKV_ERR_NUMERIC, "a number");
		}
		*at = was;
	}
	refused(s, 0, &k, &v, &q, 3e38f, 0.0f, CKV_ERR_NUMERIC, "logits beyond a float");
	float *out = attend(s, 0, &t, SEEN, NEW, 0.0f, 0.0f, "all is well again");
	check_attention(s, 0, &t, SEEN, NEW, 0.0, 0.0, out, "all is well again");
	free(out);
	ckv_stream_free(s);
	tokens_free(&t);
}

static void a_call_without_tokens_is_none(void **state) {
	const ckv_stream_shape shape = {1, 4, 4};
	rng r = {10};
	float out[4];
	(void)state;
	tokens t = tokens_random(&r, shape, 10, 1);
	ckv_stream *s = stream_make("h2o", 40, &shape, 1, NULL);
	ckv_view none;
	memset(&none, 0, sizeof none);
	paint(out, sizeof out);
	push(s, 0, &t, 0, 9);
	assert_int_equal(ckv_stream_attend(s, 0, &none, &none, &none, 0.0f, 0.0f, out), CKV_OK);
	assert_int_equal(attend_status(s, 0, &t, 9, 0, 0.0f, 0.0f, out), CKV_OK);
	assert_true(is_painted(out, sizeof out));
	ckv_stream_free(s);
	tokens_free(&t);
}

/* ------------------------------------------------------------------------------------------------------------- memory */

/* Request n of a call after `pushed` tokens fails; true when n was beyond the last. */
static bool torture(const tokens *t, int32_t pushed, long n) {
	const ckv_stream_shape shape = {2, 8, 5};
	counting c;
	ckv_ctx_options options = stream_options(0, 2);
	counting_init(&c);
	options.allocator = &c.allocator;
	ckv_stream *s = stream_make("h2o", 30, &shape, 1, &options);
	float *out = test_memory(out_size(t, 40), sizeof *out);
	push(s, 0, t, 0, pushed);
	saved before = save_stream(s);
	c.refuse_in = n;
	ckv_status status = attend_status(s, 0, t, 60, 40, 0.0f, 0.0f, out);
	CHECK(status == CKV_OK || (status == CKV_ERR_NOMEM && ckv_stream_message(s)[0]), "%ld: %s", n, ckv_strerror(status));
	CHECK(still_saves(s, &before), "request %ld: the stream has changed", n);
	c.refuse_in = 0;
	free(out);
	out = attend(s, 0, t, 60, 40, 0.0f, 0.0f, "afterwards");
	check_attention(s, 0, t, 60, 40, 0.0, 0.0, out, "afterwards");
	free(out);
	saved_free(&before);
	ckv_stream_free(s);
	CHECK(c.live == 0, "request %ld: %ld blocks are left", n, c.live);
	return status == CKV_OK;
}

static void every_request_may_fail(void **state) {
	const ckv_stream_shape shape = {2, 8, 5};
	rng r = {11};
	(void)state;
	tokens t = tokens_random(&r, shape, 100, 2);
	for (int32_t pushed = 0; pushed < 50; pushed += 35) {
		long n = 1;
		while (!torture(&t, pushed, n)) {
			n++;
		}
		CHECK(n > (pushed ? 3 : 5), "%ld requests", n); /* keys, a row, values, queries, the worker's arrays */
	}
	tokens_free(&t);
}

static void memory_stays(void **state) {
	const ckv_stream_shape shape = {2, 8, 5};
	rng r = {12};
	(void)state;
	counting c;
	ckv_ctx_options options = stream_options(0, 0);
	counting_init(&c);
	options.allocator = &c.allocator;
	tokens t = tokens_random(&r, shape, 400, 2);
	ckv_stream *s = stream_make("chunkkv:grace=4", 30, &shape, 1, &options);
	long calls = 0;
	for (int32_t first = 0; first < 380; first += 20) {
		free(attend(s, 0, &t, first, 20, 0.0f, 0.0f, "again"));
		push(s, 0, &t, first, 20);
		calls = first == 100 ? c.calls : calls;
	}
	CHECK(c.calls == calls, "%ld requests more", c.calls - calls);
	ckv_stream_free(s);
	tokens_free(&t);
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(attention_is_that_over_the_stored_rows_and_the_call),
	    cmocka_unit_test(what_was_taken_back_is_not_seen),
	    cmocka_unit_test(every_layer_attends_to_its_own_rows),
	    cmocka_unit_test(a_single_row_is_the_result),
	    cmocka_unit_test(type_and_layout_do_not_show),
	    cmocka_unit_test(threads_and_instruction_sets_do_not_show),
	    cmocka_unit_test(blocks_do_not_show),
	    cmocka_unit_test(what_is_wrong_is_refused),
	    cmocka_unit_test(numbers_that_are_none_are_refused),
	    cmocka_unit_test(a_call_without_tokens_is_none),
	    cmocka_unit_test(every_request_may_fail),
	    cmocka_unit_test(memory_stays),
	};
	return cmocka_run_group_tests_name("stream_attend", tests, NULL, NULL);
}
