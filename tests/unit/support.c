#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAINT = 0xa5 };

void check_failed(const char *file, int line, const char *condition, const char *format, ...) {
	char text[512];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	print_error("%s does not hold: %s\n", condition, text);
	_fail(file, line);
	abort();
}

/* ---------------------------------------------------------------- random */

/* SplitMix64: any state is a good one. */
uint32_t rng_bits(rng *r) {
	r->state += 0x9e3779b97f4a7c15u;
	uint64_t z = r->state;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return (uint32_t)(z >> 32);
}

int32_t rng_range(rng *r, int32_t low, int32_t high) {
	uint64_t span = (uint64_t)((int64_t)high - low) + 1;
	return (int32_t)(low + (int64_t)((uint64_t)rng_bits(r) * span >> 32));
}

float rng_float(rng *r) { return (float)((double)rng_bits(r) / 2147483648.0 - 1.0); }

bool rng_chance(rng *r, int32_t one_in) { return rng_range(r, 1, one_in) == 1; }

/* ---------------------------------------------------------------- memory */

void *test_memory(size_t count, size_t size) {
	size_t bytes = count * size;
	void *memory = malloc(bytes ? bytes : 1);
	assert_non_null(memory);
	return memory;
}

void paint(void *memory, size_t size) { memset(memory, PAINT, size); }

bool is_painted(const void *memory, size_t size) {
	const unsigned char *byte = memory;
	for (size_t i = 0; i < size; i++) {
		if (byte[i] != PAINT) {
			return false;
		}
	}
	return true;
}

static void *counting_alloc(void *user, size_t size) {
	counting *c = user;
	c->calls++;
	bool refused = c->refuse_in == 1;
	if (c->refuse_in > 1 || (refused && !c->stay)) {
		c->refuse_in--;
	}
	if (refused || size > c->largest) {
		return NULL;
	}
	void *memory = malloc(size);
	c->live += memory != NULL;
	return memory;
}

static void counting_free(void *user, void *memory) {
	counting *c = user;
	assert_non_null(memory);
	c->live--;
	free(memory);
}

void counting_init(counting *c) {
	memset(c, 0, sizeof *c);
	c->allocator.alloc = counting_alloc;
	c->allocator.free = counting_free;
	c->allocator.user = c;
	c->largest = (size_t)256 << 20;
}

/* ---------------------------------------------------------------- arrays */

float *tensor_row(const tensor *t, int32_t head, int32_t token) {
	return t->value + ((size_t)head * (size_t)t->n_tokens + (size_t)token) * (size_t)t->dim;
}

/* At most 2 in magnitude and a multiple of 2^-11. */
static float random_value(rng *r) {
	if (rng_chance(r, 40)) {
		return 0.0f;
	}
	float magnitude = ldexpf((float)rng_range(r, 128, 255), rng_range(r, -11, -7));
	return rng_bits(r) & 1 ? magnitude : -magnitude;
}

tensor tensor_random(rng *r, int32_t n_heads, int32_t n_tokens, int32_t dim) {
	size_t n = (size_t)n_heads * (size_t)n_tokens * (size_t)dim;
	tensor t = {n_heads, n_tokens, dim, test_memory(n, sizeof(float))};
	for (size_t i = 0; i < n; i++) {
		t.value[i] = random_value(r);
	}
	return t;
}

void tensor_free(tensor *t) { free(t->value); }

static uint16_t to_bf16(float value) {
	uint32_t bits;
	memcpy(&bits, &value, sizeof bits);
	return (uint16_t)(bits >> 16);
}

/* Exact for the values above; NaN and infinity too. */
static uint16_t to_f16(float value) {
	uint16_t sign = signbit(value) ? 0x8000u : 0;
	int exponent;
	if (isnan(value) || isinf(value)) {
		return (uint16_t)(sign | 0x7c00u | (isnan(value) ? 0x200u : 0));
	}
	if (value == 0.0f) {
		return sign;
	}
	float fraction = frexpf(fabsf(value), &exponent); /* 0.5 to 1 */
	return (uint16_t)(sign | ((unsigned)(exponent + 14) << 10) | (unsigned)((fraction * 2.0f - 1.0f) * 1024.0f));
}

/* The fixed point of CKV_DECODED. The user pointer is the step between two values, so a lost pointer shows. */
static const float decoded_step = 1.0f / 2048.0f;

static void decode_fixed(const void *row, float *out, size_t n, void *user) {
	const float *step = user;
	for (size_t i = 0; i < n; i++) {
		int16_t fixed;
		memcpy(&fixed, (const char *)row + 2 * i, sizeof fixed);
		out[i] = *step * (float)fixed;
	}
}

static void store_value(unsigned char *at, ckv_dtype dtype, float value) {
	uint16_t half = dtype == CKV_F16 ? to_f16(value) : to_bf16(value);
	int16_t fixed = dtype == CKV_DECODED ? (int16_t)lrintf(value / decoded_step) : 0;
	switch (dtype) {
	case CKV_F32: memcpy(at, &value, 4); break;
	case CKV_F16:
	case CKV_BF16: memcpy(at, &half, 2); break;
	case CKV_DECODED: memcpy(at, &fixed, 2); break;
	}
}

static void store_row(unsigned char *at, ckv_dtype dtype, const float *row, int32_t dim) {
	size_t size = dtype == CKV_F32 ? 4 : 2;
	for (int32_t i = 0; i < dim; i++) {
		store_value(at + (size_t)i * size, dtype, row[i]);
	}
}

stored stored_make(const tensor *t, ckv_dtype dtype, layout order, size_t padding) {
	stored s;
	ckv_view *v = &s.view;
	size_t row = (size_t)t->dim * (dtype == CKV_F32 ? 4 : 2), heads = (size_t)t->n_heads, tokens = (size_t)t->n_tokens;
	memset(v, 0, sizeof *v);
	v->dtype = dtype;
	v->n_heads = t->n_heads;
	v->n_tokens = t->n_tokens;
	v->head_dim = t->dim;
	v->stride_token = order == HEADS_OUTSIDE ? row + padding : heads * (row + padding);
	v->stride_head = order == HEADS_OUTSIDE ? tokens * (row + padding) : row + padding;
	if (dtype == CKV_DECODED) {
		v->row_bytes = row;
		v->decode = decode_fixed;
		v->decode_user = (void *)(uintptr_t)&decoded_step;
	}
	s.size = heads * tokens * (row + padding);
	s.memory = test_memory(s.size, 1);
	paint(s.memory, s.size);
	v->data = s.memory;
	for (int32_t h = 0; h < t->n_heads; h++) {
		for (int32_t i = 0; i < t->n_tokens; i++) {
			store_row(s.memory + (size_t)h * v->stride_head + (size_t)i * v->stride_token, dtype, tensor_row(t, h, i),
			          t->dim);
		}
	}
	return s;
}

void stored_free(stored *s) { free(s->memory); }

test_layer test_layer_make(rng *r, int32_t n_q_heads, int32_t n_kv_heads, int32_t dim, int32_t n_tokens, int32_t n_queries) {
	test_layer t;
	memset(&t, 0, sizeof t);
	t.k = tensor_random(r, n_kv_heads, n_tokens, dim);
	t.q = tensor_random(r, n_q_heads, n_queries, dim);
	t.stored_k = stored_make(&t.k, CKV_F32, HEADS_OUTSIDE, 0);
	t.stored_q = stored_make(&t.q, CKV_F32, HEADS_OUTSIDE, 0);
	ckv_layer_init(&t.layer);
	t.layer.k = t.stored_k.view;
	t.layer.q = t.stored_q.view;
	return t;
}

void test_layer_add_values(test_layer *t, rng *r, int32_t dim) {
	t->v = tensor_random(r, t->k.n_heads, t->k.n_tokens, dim);
	t->stored_v = stored_make(&t->v, CKV_F32, HEADS_OUTSIDE, 0);
	t->layer.v = t->stored_v.view;
}

void test_layer_free(test_layer *t) {
	tensor_free(&t->k);
	tensor_free(&t->q);
	tensor_free(&t->v);
	stored_free(&t->stored_k);
	stored_free(&t->stored_q);
	stored_free(&t->stored_v);
}

size_t layer_scores(const ckv_layer *layer) { return (size_t)layer->k.n_heads * (size_t)layer->k.n_tokens; }

ckv_layer layer_prefix(const ckv_layer *layer, int32_t n_tokens) {
	ckv_layer prefix = *layer;
	prefix.k.n_tokens = n_tokens;
	prefix.v.n_tokens = layer->v.data ? n_tokens : 0;
	return prefix;
}

/* --------------------------------------------------------------- context */

ckv_ctx *make_ctx_with(const char *policy, const ckv_ctx_options *options) {
	ckv_params params;
	ckv_error error;
	ckv_ctx *ctx;
	CHECK(ckv_policy_parse(policy, &params, &error) == CKV_OK, "%s: %s", policy, error.message);
	CHECK(ckv_ctx_create(&ctx, &params, options, &error) == CKV_OK, "%s: %s", policy, error.message);
	return ctx;
}

ckv_ctx *make_ctx(const char *policy) { return make_ctx_with(policy, NULL); }

/* --------------------------------------------------------------- scoring */

void score(ckv_ctx *ctx, const ckv_layer *layer, float *scores) {
	CHECK(ckv_score(ctx, layer, ckv_keep_percent(50), scores) == CKV_OK, "%s", ckv_ctx_message(ctx));
}

bool score_fails(ckv_ctx *ctx, const ckv_layer *layer, size_t n, ckv_status expected, const char *what) {
	float *scores = test_memory(n, sizeof *scores);
	paint(scores, n * sizeof *scores);
	ckv_status status = ckv_score(ctx, layer, ckv_keep_percent(50), scores);
	CHECK(status == expected, "%s: %s instead of %s", what, ckv_strerror(status), ckv_strerror(expected));
	CHECK(ckv_ctx_message(ctx)[0], "%s: no message", what);
	bool untouched = is_painted(scores, n * sizeof *scores);
	free(scores);
	return untouched;
}

void score_refused(ckv_ctx *ctx, const ckv_layer *layer, size_t n, ckv_status expected, const char *what) {
	CHECK(score_fails(ctx, layer, n, expected, what), "%s: the scores were written", what);
}

void check_bits(const float *a, const float *b, size_t n, const char *what) {
	for (size_t i = 0; i < n; i++) {
		CHECK(memcmp(&a[i], &b[i], sizeof *a) == 0, "%s: value %zu is %a instead of %a", what, i, (double)b[i],
		      (double)a[i]);
	}
}

void check_scores(const double *expected, const float *scores, size_t n, const char *what) {
	for (size_t i = 0; i < n; i++) {
		CHECK(scores_equal(expected[i], (double)scores[i]), "%s: score %zu is %.9g instead of %.9g", what, i,
		      (double)scores[i], expected[i]);
	}
}

/* Keys, queries and values in one type and layout, with random padding. */
static void check_stored_as(ckv_ctx *ctx, const test_layer *t, rng *r, ckv_dtype dtype, layout order,
                            const float *expected) {
	size_t n = layer_scores(&t->layer);
	float *scores = test_memory(n, sizeof *scores);
	char what[64];
	ckv_layer layer = t->layer;
	const tensor *tensors[] = {&t->k, &t->q, &t->v};
	ckv_view *views[] = {&layer.k, &layer.q, &layer.v};
	stored s[3] = {{.memory = NULL}};
	for (size_t i = 0; i < 3; i++) {
		if (tensors[i]->value) {
			s[i] = stored_make(tensors[i], dtype, order, (size_t)rng_range(r, 0, 3) * 4);
			*views[i] = s[i].view;
		}
	}
	snprintf(what, sizeof what, "%s, type %d, layout %d", ckv_ctx_params(ctx)->scorer, (int)dtype, (int)order);
	score(ctx, &layer, scores);
	check_bits(expected, scores, n, what);
	for (size_t i = 0; i < 3; i++) {
		stored_free(&s[i]);
	}
	free(scores);
}

static void check_instruction_sets(const char *policy, const ckv_layer *layer, const float *expected) {
	size_t n = layer_scores(layer);
	float *scores = test_memory(n, sizeof *scores);
	for (uint32_t bit = 0; bit < 2; bit++) {
		ckv_ctx_options options;
		ckv_ctx_options_default(&options);
		options.cpu_disable = bit ? ~0u : CKV_CPU_AVX2;
		ckv_ctx *ctx = make_ctx_with(policy, &options);
		score(ctx, layer, scores);
		check_bits(expected, scores, n, ckv_ctx_isa(ctx));
		ckv_ctx_free(ctx);
	}
	free(scores);
}

void check_scorer(const char *policy, const test_layer *t, rng *r) {
	static const ckv_dtype dtypes[] = {CKV_F32, CKV_F16, CKV_BF16, CKV_DECODED};
	size_t n = layer_scores(&t->layer);
	float *expected = test_memory(n + 1, sizeof *expected);
	ckv_ctx *ctx = make_ctx(policy);
	paint(expected + n, sizeof *expected);
	score(ctx, &t->layer, expected);
	CHECK(is_painted(expected + n, sizeof *expected), "%s: written beyond the scores", policy);
	for (size_t i = 0; i < 8; i++) {
		check_stored_as(ctx, t, r, dtypes[i % 4], i < 4 ? HEADS_OUTSIDE : TOKENS_OUTSIDE, expected);
	}
	check_instruction_sets(policy, &t->layer, expected);
	free(expected);
	ckv_ctx_free(ctx);
}

/* ------------------------------------------------------------- selecting */

static selected selected_make(int32_t n_heads, int32_t n_tokens) {
	selected s = {.n_heads = n_heads, .n_tokens = n_tokens};
	size_t n = (size_t)n_heads * (size_t)n_tokens;
	s.positions = test_memory(n, sizeof *s.positions);
	s.offsets = test_memory((size_t)n_heads + 1, sizeof *s.offsets);
	s.mask = test_memory(n, 1);
	paint(s.positions, n * sizeof *s.positions);
	paint(s.offsets, ((size_t)n_heads + 1) * sizeof *s.offsets);
	memset(s.mask, 0, n);
	ckv_keep_init(&s.keep, s.positions, n, s.offsets);
	return s;
}

/* Turns the lists into a mask; fails unless they are well-formed and fields agree with them. */
static void selected_finish(selected *s) {
	const ckv_keep *k = &s->keep;
	size_t n = (size_t)s->n_heads * (size_t)s->n_tokens, n_lists = (size_t)k->n_lists;
	int32_t longest = 0;
	CHECK(k->n_lists == 1 || k->n_lists == s->n_heads, "%d lists", k->n_lists);
	CHECK(s->offsets[0] == 0 && (size_t)s->offsets[n_lists] == k->n_positions, "%zu positions", k->n_positions);
	for (int32_t h = 0; h < s->n_heads; h++) {
		int32_t list = k->n_lists == 1 ? 0 : h, before = -1;
		for (int32_t i = s->offsets[list]; i < s->offsets[list + 1]; i++) {
			int32_t at = s->positions[i];
			CHECK(at > before && at < s->n_tokens, "head %d has %d after %d", h, at, before);
			s->mask[(size_t)h * (size_t)s->n_tokens + (size_t)at] = 1;
			before = at;
		}
		int32_t length = s->offsets[list + 1] - s->offsets[list];
		longest = length > longest ? length : longest;
	}
	CHECK(k->n_keep == longest, "n_keep is %d, the longest list %d", k->n_keep, longest);
	CHECK(is_painted(s->positions + k->n_positions, (n - k->n_positions) * sizeof *s->positions), "too many positions");
	CHECK(is_painted(s->offsets + n_lists + 1, ((size_t)s->n_heads - n_lists) * sizeof *s->offsets), "too many offsets");
}

selected select_layer(ckv_ctx *ctx, const ckv_layer *layer, ckv_budget budget) {
	selected s = selected_make(layer->k.n_heads, layer->k.n_tokens);
	CHECK(ckv_select(ctx, layer, budget, &s.keep) == CKV_OK, "%s", ckv_ctx_message(ctx));
	selected_finish(&s);
	return s;
}

selected select_blocks(ckv_ctx *ctx, const ckv_layer *layer, ckv_budget budget, int32_t block) {
	selected s = selected_make(layer->k.n_heads, layer->k.n_tokens);
	CHECK(ckv_select_blocks(ctx, layer, budget, block, &s.keep) == CKV_OK, "%s", ckv_ctx_message(ctx));
	selected_finish(&s);
	return s;
}

selected select_scores(ckv_ctx *ctx, const float *scores, int32_t n_heads, int32_t n_tokens, ckv_budget budget) {
	selected s = selected_make(n_heads, n_tokens);
	CHECK(ckv_select_scores(ctx, scores, n_heads, n_tokens, budget, &s.keep) == CKV_OK, "%s", ckv_ctx_message(ctx));
	selected_finish(&s);
	return s;
}

void selected_free(selected *s) {
	free(s->positions);
	free(s->offsets);
	free(s->mask);
}

bool same_selected(const selected *a, const selected *b) {
	return a->n_heads == b->n_heads && a->n_tokens == b->n_tokens &&
	       memcmp(a->mask, b->mask, (size_t)a->n_heads * (size_t)a->n_tokens) == 0 && a->keep.n_lists == b->keep.n_lists &&
	       a->keep.reason == b->keep.reason && a->keep.attention_kept == b->keep.attention_kept;
}

int32_t n_kept(const selected *s, int32_t head) {
	int32_t n = 0;
	for (int32_t t = 0; t < s->n_tokens; t++) {
		n += s->mask[(size_t)head * (size_t)s->n_tokens + (size_t)t];
	}
	return n;
}

void exact_scores(rng *r, float *scores, int32_t n) {
	int32_t range = rng_chance(r, 2) ? 3 : 2000;
	for (int32_t i = 0; i < n; i++) {
		scores[i] = (float)rng_range(r, -range, range) / 64.0f;
	}
}

/* ----------------------------------------------------------------- naive */

void naive_best(const double *scores, int32_t from, int32_t to, int32_t n, unsigned char *kept) {
	for (; n > 0; n--) {
		int32_t best = -1;
		for (int32_t t = from; t < to; t++) {
			if (!kept[t] && (best < 0 || scores[t] > scores[best])) {
				best = t;
			}
		}
		kept[best] = 1;
	}
}

int32_t naive_protect(int32_t n_tokens, int32_t sinks, int32_t window, int32_t budget, unsigned char *kept) {
	for (int32_t t = 0; t < sinks && budget > 0; t++) {
		kept[t] = 1;
		budget--;
	}
	for (int32_t t = n_tokens - 1; t >= n_tokens - window && t >= 0 && budget > 0; t--) {
		budget -= !kept[t];
		kept[t] = 1;
	}
	return budget;
}

/* Adds one query's attention over the first n keys, times weight. */
static void add_attention(const tensor *k, int32_t kv_head, const float *query, int32_t n, double scale, double cap,
                          double weight, double *mass) {
	double *logit = test_memory((size_t)n, sizeof *logit);
	double max = -INFINITY, sum = 0.0;
	for (int32_t t = 0; t < n; t++) {
		const float *key = tensor_row(k, kv_head, t);
		double dot = 0.0;
		for (int32_t c = 0; c < k->dim; c++) {
			dot += (double)query[c] * (double)key[c];
		}
		logit[t] = cap > 0.0 ? cap * tanh(dot * scale / cap) : dot * scale;
		max = fmax(max, logit[t]);
	}
	for (int32_t t = 0; t < n; t++) {
		sum += exp(logit[t] - max);
	}
	for (int32_t t = 0; t < n; t++) {
		mass[t] += weight * exp(logit[t] - max) / sum;
	}
	free(logit);
}

void naive_mass(const tensor *k, const tensor *q, int32_t window, double scale, double cap, double *mass) {
	int32_t group = q->n_heads / k->n_heads, n = k->n_tokens;
	double factor = scale > 0.0 ? scale : 1.0 / sqrt(k->dim);
	for (int32_t h = 0; h < q->n_heads; h++) {
		double *row = mass + (size_t)h * (size_t)n;
		memset(row, 0, (size_t)n * sizeof *row);
		for (int32_t i = 0; i < window; i++) {
			const float *query = tensor_row(q, h, q->n_tokens - window + i);
			add_attention(k, h / group, query, n - window + i + 1, factor, cap, 1.0 / window, row);
		}
	}
}

static double pooled(const double *mass, int32_t n, int32_t kernel, int32_t t) {
	double sum = 0.0;
	for (int32_t i = t - kernel / 2; i <= t + kernel / 2; i++) {
		sum += i >= 0 && i < n ? mass[i] : 0.0;
	}
	return sum / kernel;
}

void naive_snapkv(const tensor *k, const tensor *q, int32_t window, int32_t kernel, double scale, double cap,
                  double *scores) {
	int32_t group = q->n_heads / k->n_heads, n = k->n_tokens, n_scored = n - window;
	double *mass = test_memory((size_t)q->n_heads * (size_t)n, sizeof *mass), best = 0.0;
	naive_mass(k, q, window, scale, cap, mass);
	for (int32_t g = 0; g < k->n_heads; g++) {
		for (int32_t t = 0; t < n_scored; t++) {
			double sum = 0.0;
			for (int32_t h = g * group; h < (g + 1) * group; h++) {
				sum += pooled(mass + (size_t)h * (size_t)n, n_scored, kernel, t);
			}
			scores[(size_t)g * (size_t)n + (size_t)t] = sum / group;
			best = fmax(best, sum / group);
		}
	}
	for (int32_t g = 0; g < k->n_heads; g++) {
		for (int32_t t = n_scored; t < n; t++) {
			scores[(size_t)g * (size_t)n + (size_t)t] = best + 1.0;
		}
	}
	free(mass);
}

bool scores_equal(double a, double b) { return fabs(a - b) <= 2e-5 * fabs(a) + 5e-7; }

void check_bad_keys(const char *policy) {
	static const float bad[] = {NAN, INFINITY, -INFINITY};
	enum { T = 40, G = 2, D = 8 };
	rng r = {4};
	ckv_ctx *ctx = make_ctx(policy);
	for (size_t i = 0; i < 3; i++) {
		test_layer t = test_layer_make(&r, G, G, D, T, 1);
		((float *)(void *)t.stored_k.memory)[(T + 17) * D + i] = bad[i];
		score_refused(ctx, &t.layer, G * T, CKV_ERR_NUMERIC, "a key");
		CHECK(strstr(ckv_ctx_message(ctx), "head 1") && strstr(ckv_ctx_message(ctx), "token 17"), "%s",
		      ckv_ctx_message(ctx));
		test_layer_free(&t);
	}
	ckv_ctx_free(ctx);
}
