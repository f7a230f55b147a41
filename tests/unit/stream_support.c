#include "stream_support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- tokens */

tokens tokens_random(rng *r, ckv_stream_shape shape, int32_t n, int32_t group) {
	tokens t = {.group = group};
	t.k = tensor_random(r, shape.n_kv_heads, n, shape.dim_k);
	t.v = tensor_random(r, shape.n_kv_heads, n, shape.dim_v);
	t.q = tensor_random(r, shape.n_kv_heads * (group ? group : 1), n, shape.dim_k);
	t.stored_k = stored_make(&t.k, CKV_F32, HEADS_OUTSIDE, 0);
	t.stored_v = stored_make(&t.v, CKV_F32, HEADS_OUTSIDE, 0);
	t.stored_q = stored_make(&t.q, CKV_F32, HEADS_OUTSIDE, 0);
	return t;
}

static tensor tensor_copy(const tensor *t) {
	size_t n = (size_t)t->n_heads * (size_t)t->n_tokens * (size_t)t->dim;
	tensor copy = {t->n_heads, t->n_tokens, t->dim, test_memory(n, sizeof(float))};
	memcpy(copy.value, t->value, n * sizeof(float));
	return copy;
}

tokens tokens_stored_as(const tokens *t, ckv_dtype dtype, layout order, size_t padding) {
	tokens copy = {.group = t->group, .k = tensor_copy(&t->k), .v = tensor_copy(&t->v), .q = tensor_copy(&t->q)};
	copy.stored_k = stored_make(&copy.k, dtype, order, padding);
	copy.stored_v = stored_make(&copy.v, dtype, order, padding);
	copy.stored_q = stored_make(&copy.q, dtype, order, padding);
	return copy;
}

void tokens_free(tokens *t) {
	tensor_free(&t->k);
	tensor_free(&t->v);
	tensor_free(&t->q);
	stored_free(&t->stored_k);
	stored_free(&t->stored_v);
	stored_free(&t->stored_q);
}

ckv_view view_part(const ckv_view *view, int32_t first, int32_t n) {
	ckv_view part = *view;
	part.data = (const char *)view->data + (size_t)first * view->stride_token;
	part.n_tokens = n;
	return part;
}

ckv_status push_status(ckv_stream *s, int32_t layer, const tokens *t, int32_t first, int32_t n) {
	ckv_view k = view_part(&t->stored_k.view, first, n), v = view_part(&t->stored_v.view, first, n);
	ckv_view q = view_part(&t->stored_q.view, first, n);
	return ckv_stream_push(s, layer, &k, &v, t->group ? &q : NULL);
}

void push(ckv_stream *s, int32_t layer, const tokens *t, int32_t first, int32_t n) {
	ckv_status status = push_status(s, layer, t, first, n);
	CHECK(status == CKV_OK, "tokens %d to %d of layer %d: %s", first, first + n - 1, layer, ckv_stream_message(s));
	CHECK(ckv_stream_message(s)[0] == '\0', "'%s' after success", ckv_stream_message(s));
}

void push_layers(ckv_stream *s, const tokens *layers, int32_t n_layers, int32_t first, int32_t n) {
	for (int32_t i = 0; i < n_layers; i++) {
		push(s, i, &layers[i], first, n);
	}
}

void push_randomly(rng *r, ckv_stream *s, const tokens *layers, int32_t n_layers, int32_t first, int32_t end, int32_t stop) {
	while (first < end) {
		int32_t most = first < stop && stop < end ? stop - first : end - first;
		int32_t n = rng_chance(r, 2) ? 1 : rng_range(r, 1, rng_chance(r, 3) ? most : (most < 20 ? most : 20));
		push_layers(s, layers, n_layers, first, n);
		first += n;
	}
}

/* --------------------------------------------------------------- streams */

ckv_stream_params stream_params(const char *policy) {
	ckv_stream_params params;
	ckv_error error;
	CHECK(ckv_stream_parse(policy, &params, &error) == CKV_OK, "%s: %s", policy, error.message);
	return params;
}

ckv_stream *stream_make(const char *policy, int32_t budget, const ckv_stream_shape *shapes, int32_t n_layers,
                        const ckv_ctx_options *options) {
	ckv_stream_params params = stream_params(policy);
	ckv_stream *s;
	ckv_error error;
	CHECK(ckv_stream_create(&s, &params, budget, shapes, n_layers, options, &error) == CKV_OK, "%s: %s", policy,
	      error.message);
	return s;
}

ckv_ctx_options stream_options(uint32_t cpu_disable, int32_t n_threads) {
	ckv_ctx_options options;
	ckv_ctx_options_default(&options);
	options.cpu_disable = cpu_disable;
	options.n_threads = n_threads;
	return options;
}

int32_t least_budget(const char *policy) {
	const ckv_stream_shape shape = {1, 2, 2};
	ckv_stream_params params = stream_params(policy);
	for (int32_t budget = 1; budget < 1000; budget++) {
		ckv_stream *s;
		ckv_status status = ckv_stream_create(&s, &params, budget, &shape, 1, NULL, NULL);
		ckv_stream_free(s);
		if (status == CKV_OK) {
			return budget;
		}
	}
	fail_msg("%s takes no budget", policy);
	return 0;
}

static int add(char *text, const char *key, int32_t value) {
	size_t n = strlen(text);
	return snprintf(text + n, 256 - n, ",%s=%d", key, value);
}

ckv_stream_params random_policy(rng *r, char text[256]) {
	static const char *const scorers[] = {"attn_mass", "attn_mass", "key_norm", "knorm", "tova", "snapkv", "streaming"};
	static const char *const layers[] = {"uniform", "uniform", "pyramid", "squeeze"};
	static const char *const merges[] = {"mean", "sim_weighted"};
	int32_t scorer = rng_range(r, 0, 6), rule = rng_range(r, 0, 3);
	bool merging = scorer < 2 && rng_chance(r, 3), chunked = scorer != 6 && !merging;
	snprintf(text, 256, "chunkkv:scorer=%s,layers=%s,sinks=%d", scorers[scorer], layers[rule], rng_range(r, 0, 5));
	if (scorer != 6) {
		add(text, "chunk", chunked ? rng_range(r, 1, 7) : 1);
	}
	if (scorer < 5) {
		add(text, "grace", rng_range(r, 0, 9));
	}
	if (scorer == 5) {
		add(text, "window", rng_range(r, 1, 9));
	}
	if (scorer < 2 && rng_chance(r, 2)) {
		snprintf(text + strlen(text), 256 - strlen(text), ",decay=0.9");
	}
	if (merging) {
		snprintf(text + strlen(text), 256 - strlen(text), ",merge=%s,merge_keys=%d,merge_gate=%d",
		         merges[rng_range(r, 0, 1)], rng_range(r, 0, 1), rng_range(r, 0, 1));
	}
	if (rule < 2 && !merging) {
		add(text, "reuse", rng_range(r, 1, 3));
	}
	return stream_params(text);
}

ckv_stream_rows head_rows(const ckv_stream *s, int32_t layer, int32_t head) {
	ckv_stream_rows rows;
	assert_int_equal(ckv_stream_head(s, layer, head, &rows), CKV_OK);
	return rows;
}

ckv_stream_info layer_info(const ckv_stream *s, int32_t layer) {
	ckv_stream_info info;
	assert_int_equal(ckv_stream_layer_info(s, layer, &info), CKV_OK);
	return info;
}

static uint16_t *read_head(const ckv_stream *s, int32_t layer, int32_t head, size_t dim, size_t n, bool keys) {
	uint16_t *out = test_memory(n * dim + 1, sizeof *out);
	assert_int_equal(ckv_stream_read(s, layer, head, NULL, keys ? out : NULL, keys ? NULL : out), CKV_OK);
	return out;
}

static void check_same_head(const ckv_stream *a, const ckv_stream *b, ckv_stream_shape shape, int32_t layer, int32_t head,
                            const char *what) {
	ckv_stream_rows x = head_rows(a, layer, head), y = head_rows(b, layer, head);
	size_t n = (size_t)x.n;
	CHECK(x.n == y.n, "%s: layer %d, head %d has %d rows and %d", what, layer, head, x.n, y.n);
	for (size_t i = 0; i < n; i++) {
		CHECK(x.positions[i] == y.positions[i], "%s: layer %d, head %d, row %zu is of %d and of %d", what, layer, head, i,
		      x.positions[i], y.positions[i]);
	}
	CHECK(n == 0 || !x.scores == !y.scores, "%s: scores", what);
	if (x.scores && n) {
		check_bits(x.scores, y.scores, n, what);
	}
	for (int keys = 0; keys < 2; keys++) {
		size_t dim = (size_t)(keys ? shape.dim_k : shape.dim_v);
		uint16_t *u = read_head(a, layer, head, dim, n, keys), *w = read_head(b, layer, head, dim, n, keys);
		CHECK(memcmp(u, w, n * dim * sizeof *u) == 0, "%s: layer %d, head %d: %s", what, layer, head,
		      keys ? "keys" : "values");
		free(u);
		free(w);
	}
}

void check_same_rows(const ckv_stream *a, const ckv_stream *b, const ckv_stream_shape *shapes, int32_t n_layers,
                     const char *what) {
	for (int32_t i = 0; i < n_layers; i++) {
		for (int32_t h = 0; h < shapes[i].n_kv_heads; h++) {
			check_same_head(a, b, shapes[i], i, h, what);
		}
	}
}

saved save_stream(const ckv_stream *s) {
	saved out = {.size = ckv_stream_save(s, NULL, 0)};
	out.data = test_memory(out.size, 1);
	assert_int_equal(ckv_stream_save(s, out.data, out.size), out.size);
	return out;
}

bool same_saved(const saved *a, const saved *b) { return a->size == b->size && memcmp(a->data, b->data, a->size) == 0; }

void saved_free(saved *s) { free(s->data); }

bool still_saves(const ckv_stream *s, const saved *before) {
	saved now = save_stream(s);
	bool same = same_saved(before, &now);
	saved_free(&now);
	return same;
}

void saved_sign(saved *s) {
	enum { HEAD = 32, SUM = 24 };
	uint64_t sum = 14695981039346656037u, size = s->size;
	for (size_t i = HEAD; i < s->size; i++) {
		sum = (sum ^ s->data[i]) * 1099511628211u;
	}
	memcpy(s->data + SUM - sizeof size, &size, sizeof size);
	memcpy(s->data + SUM, &sum, sizeof sum);
}

double f16_value(uint16_t bits) {
	int exponent = bits >> 10 & 31, fraction = bits & 1023;
	double x = exponent == 31  ? (fraction ? (double)NAN : (double)INFINITY)
	           : exponent == 0 ? ldexp(fraction, -24)
	                           : ldexp(1024 + fraction, exponent - 25);
	return bits & 0x8000 ? -x : x;
}

double f16_rounded(double x) {
	int exponent;
	frexp(x, &exponent);
	double unit = ldexp(1.0, exponent > -14 ? exponent - 11 : -24);
	return nearbyint(x / unit) * unit;
}

/* -------------------------------------------------------------- settings */

setting setting_make(rng *r) {
	setting s;
	s.params = random_policy(r, s.policy);
	s.n_layers = rng_range(r, 1, MOST_LAYERS);
	s.budget = least_budget(s.policy) + rng_range(r, 0, 30);
	s.n = s.budget + rng_range(r, 1, 120);
	s.stop = strcmp(s.params.layers, "squeeze") == 0 && s.n_layers > 1 ? s.budget : 0;
	int32_t heads = rng_range(r, 1, 3), group = rng_range(r, 0, 2);
	for (int32_t i = 0; i < s.n_layers; i++) {
		s.shapes[i] = (ckv_stream_shape){heads, rng_range(r, 2, 20), rng_range(r, 1, 20)};
		s.layers[i] = tokens_random(r, s.shapes[i], s.n, group);
	}
	return s;
}

void setting_free(setting *s) {
	for (int32_t i = 0; i < s->n_layers; i++) {
		tokens_free(&s->layers[i]);
	}
}

ckv_stream *open_setting(const setting *s, const ckv_ctx_options *options) {
	return stream_make(s->policy, s->budget, s->shapes, s->n_layers, options);
}

void push_whole(const setting *s, ckv_stream *stream, int32_t first, int32_t end) {
	if (first < s->stop && s->stop < end) {
		push_layers(stream, s->layers, s->n_layers, first, s->stop - first);
		first = s->stop;
	}
	push_layers(stream, s->layers, s->n_layers, first, end - first);
}

ckv_keeper *keeper_make(const char *policy, const ckv_ctx_options *options) {
	ckv_stream_params params = stream_params(policy);
	ckv_keeper *keeper;
	ckv_error error;
	CHECK(ckv_keeper_create(&keeper, &params, options, &error) == CKV_OK, "%s: %s", policy, error.message);
	return keeper;
}

ckv_stream_rows keeper_rows_of(const ckv_keeper *keeper) {
	ckv_stream_rows rows;
	ckv_keeper_rows(keeper, &rows);
	return rows;
}
