/* ckv_merge_kept, and what it is made of, against a plain computation in double; and its edges. */
#include "support.h"

#include "quant/quant.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------------ cases */

/* Keys and values of a layer, how they are stored, and what is kept. */
typedef struct merge_case {
	tensor k, v;
	stored stored_k, stored_v;
	ckv_layer layer;
	int32_t *positions, *offsets;
	ckv_keep keep;
	ckv_merge merge;
	size_t n_values;
} merge_case;

static ckv_merge merging(double fraction, double threshold) {
	return (ckv_merge){.size = sizeof(ckv_merge), .preset = "merge", .fraction = fraction, .threshold = threshold};
}

/* Stores the tensors and looks at them. */
static void store(merge_case *c, ckv_dtype dtype, layout order, size_t padding) {
	c->stored_k = stored_make(&c->k, dtype, order, padding);
	c->stored_v = stored_make(&c->v, dtype, order, padding);
	ckv_layer_init(&c->layer);
	c->layer.k = c->stored_k.view;
	c->layer.v = c->stored_v.view;
}

static void store_again(merge_case *c, ckv_dtype dtype, layout order, size_t padding) {
	stored_free(&c->stored_k);
	stored_free(&c->stored_v);
	store(c, dtype, order, padding);
}

/* Which tokens a list keeps: every one, none, or some. */
static int32_t choose(rng *r, int32_t n_tokens, int32_t *out) {
	int32_t kind = rng_range(r, 0, 9), n = 0, one_in = rng_range(r, 2, 12);
	for (int32_t t = 0; t < n_tokens; t++) {
		if (kind == 0 || (kind > 1 && rng_chance(r, one_in))) {
			out[n++] = t;
		}
	}
	return n;
}

static void keep_some(merge_case *c, rng *r, int32_t n_lists) {
	int32_t n_tokens = c->k.n_tokens, at = 0;
	c->positions = test_memory((size_t)(n_lists * n_tokens), sizeof *c->positions);
	c->offsets = test_memory((size_t)n_lists + 1, sizeof *c->offsets);
	ckv_keep_init(&c->keep, c->positions, (size_t)(n_lists * n_tokens), c->offsets);
	c->offsets[0] = 0;
	for (int32_t i = 0; i < n_lists; i++) {
		at += choose(r, n_tokens, c->positions + at);
		c->offsets[i + 1] = at;
	}
	c->keep.n_lists = n_lists;
	c->keep.n_positions = (size_t)at;
	c->n_values = (size_t)(n_lists == 1 ? at * c->k.n_heads : at) * (size_t)c->v.dim;
}

/* Some rows are zero, some the same as another one or its opposite: cosines that are equal to the bit, or negative. */
static void blemish(rng *r, tensor *t) {
	for (int32_t i = 0; i < t->n_heads * t->n_tokens; i++) {
		float *row = tensor_row(t, i / t->n_tokens, i % t->n_tokens);
		const float *other = tensor_row(t, i / t->n_tokens, rng_range(r, 0, t->n_tokens - 1));
		float factor = rng_chance(r, 3) ? -1.0f : 1.0f;
		bool zero = rng_chance(r, 20), same = rng_chance(r, 10);
		for (int32_t j = 0; j < t->dim && (zero || same); j++) {
			row[j] = zero ? 0.0f : other[j] * factor + 0.0f; /* no -0: not every type has one */
		}
	}
}

static merge_case random_case(rng *r) {
	static const int32_t dims[] = {1, 5, 16, 24, 64};
	static const double fractions[] = {1.0, 0.75, 0.5, 0.0}, thresholds[] = {0.0, 0.0, 0.3, 0.7};
	merge_case c;
	int32_t n_heads = rng_range(r, 1, 3), n_tokens = rng_range(r, 1, rng_chance(r, 4) ? 700 : 60);
	c.k = tensor_random(r, n_heads, n_tokens, dims[rng_range(r, 0, 4)]);
	c.v = tensor_random(r, n_heads, n_tokens, rng_chance(r, 2) ? c.k.dim : rng_range(r, 1, 40));
	blemish(r, &c.k);
	blemish(r, &c.v);
	store(&c, (ckv_dtype)rng_range(r, 0, 3), rng_chance(r, 2) ? HEADS_OUTSIDE : TOKENS_OUTSIDE,
	      (size_t)rng_range(r, 0, 2) * 4);
	keep_some(&c, r, rng_chance(r, 2) ? 1 : n_heads);
	c.merge = merging(fractions[rng_range(r, 0, 3)], thresholds[rng_range(r, 0, 3)]);
	return c;
}

static void case_free(merge_case *c) {
	tensor_free(&c->k);
	tensor_free(&c->v);
	stored_free(&c->stored_k);
	stored_free(&c->stored_v);
	free(c->positions);
	free(c->offsets);
}

/* A head's list, and where its rows begin. */
static const int32_t *list_of(const merge_case *c, int32_t head, int32_t *n, size_t *first) {
	int32_t list = c->keep.n_lists == 1 ? 0 : head;
	*n = c->offsets[list + 1] - c->offsets[list];
	*first = c->keep.n_lists == 1 ? (size_t)head * (size_t)*n : (size_t)c->offsets[list];
	return c->positions + c->offsets[list];
}

static void merge(ckv_ctx *ctx, const merge_case *c, float *values) {
	paint(values, (c->n_values + 1) * sizeof *values);
	ckv_status status = ckv_merge_kept(ctx, &c->layer, &c->keep, &c->merge, values);
	CHECK(status == CKV_OK, "%s", ckv_ctx_message(ctx));
	CHECK(is_painted(values + c->n_values, sizeof *values), "written beyond the result");
}

/* ------------------------------------------------------------------------------------------------------ naive */

static double length_of(const float *x, int32_t n) {
	double sum = 0.0;
	for (int32_t i = 0; i < n; i++) {
		sum += (double)x[i] * (double)x[i];
	}
	return sqrt(sum);
}

static double cosine_of(const tensor *k, int32_t head, int32_t a, int32_t b) {
	const float *x = tensor_row(k, head, a), *y = tensor_row(k, head, b);
	double sum = 0.0, lx = fmax(length_of(x, k->dim), 1e-6), ly = fmax(length_of(y, k->dim), 1e-6);
	for (int32_t i = 0; i < k->dim; i++) {
		sum += (double)x[i] / lx * ((double)y[i] / ly);
	}
	return sum;
}

static int ascending(const void *a, const void *b) {
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* Float may see it otherwise. */
static bool nearly(double a, double b) { return fabs(a - b) < 1e-6 && (a < b || a > b); }

/* best[e] and target[e] of each evicted token; false: double and float may choose differently. */
static bool naive_targets(const merge_case *c, int32_t head, const int32_t *evicted, int32_t n_evicted, double *best,
                          int32_t *target) {
	int32_t n;
	size_t first;
	const int32_t *kept = list_of(c, head, &n, &first);
	bool clear = true;
	for (int32_t e = 0; e < n_evicted; e++) {
		double second = -2.0;
		best[e] = -2.0;
		for (int32_t i = 0; i < n; i++) {
			double cosine = cosine_of(&c->k, head, evicted[e], kept[i]);
			if (cosine > best[e]) {
				second = best[e];
				best[e] = cosine;
				target[e] = i;
			} else if (cosine < best[e] && cosine > second) {
				second = cosine;
			}
		}
		clear = clear && !nearly(best[e], second);
	}
	return clear;
}

/* The least cosine that is merged. */
static double naive_gate(const merge_case *c, const double *best, int32_t n, bool *clear) {
	double *sorted = test_memory((size_t)n, sizeof *sorted), place = (1.0 - c->merge.fraction) * (n - 1);
	memcpy(sorted, best, (size_t)n * sizeof *sorted);
	qsort(sorted, (size_t)n, sizeof *sorted, ascending);
	int32_t low = (int32_t)place, high = low + 1 < n ? low + 1 : low;
	double quantile = sorted[low] + (sorted[high] - sorted[low]) * (place - low);
	double gate = c->merge.fraction < 1.0 ? fmax(c->merge.threshold, quantile) : c->merge.threshold;
	int32_t on = 0; /* those that float may see on the other side: one may be the quantile itself, or all are 1 or -1 */
	for (int32_t e = 0; e < n; e++) {
		on += best[e] > 1e-6 && fabs(best[e] - gate) < 1e-6;
	}
	bool itself = place - low <= 0.0 && gate > c->merge.threshold;
	*clear = *clear && (c->k.dim == 1 || on <= itself);
	free(sorted);
	return gate;
}

/* expected[n][d_v] of one head; false: not clear. */
static bool naive_head(const merge_case *c, int32_t head, double *expected) {
	int32_t n, n_evicted = 0, n_tokens = c->k.n_tokens, dim = c->v.dim;
	size_t first;
	const int32_t *kept = list_of(c, head, &n, &first);
	int32_t *evicted = test_memory((size_t)n_tokens, sizeof *evicted),
	        *target = test_memory((size_t)n_tokens, sizeof *target);
	double *best = test_memory((size_t)n_tokens, sizeof *best), *weight = test_memory((size_t)n + 1, sizeof *weight);
	for (int32_t t = 0, i = 0; t < n_tokens; t++) {
		if (i < n && kept[i] == t) {
			i++;
		} else {
			evicted[n_evicted++] = t;
		}
	}
	for (int32_t i = 0; i < n * dim; i++) {
		expected[i] = (double)tensor_row(&c->v, head, kept[i / dim])[i % dim];
	}
	bool merges = n > 0 && n_evicted > 0, clear = !merges || naive_targets(c, head, evicted, n_evicted, best, target);
	double gate = merges ? naive_gate(c, best, n_evicted, &clear) : 0.0;
	memset(weight, 0, (size_t)n * sizeof *weight);
	for (int32_t e = 0; e < n_evicted && merges; e++) {
		const float *from = tensor_row(&c->v, head, evicted[e]), *to = tensor_row(&c->v, head, kept[target[e]]);
		double a = length_of(from, dim), w = fmax(best[e], 0.0) * a / (a + length_of(to, dim) + 1e-6);
		for (int32_t j = 0; j < dim && best[e] >= gate; j++) {
			expected[target[e] * dim + j] += w * (double)from[j];
		}
		weight[target[e]] += best[e] >= gate ? w : 0.0;
	}
	for (int32_t i = 0; i < n * dim; i++) {
		expected[i] /= 1.0 + weight[i / dim];
	}
	free(evicted);
	free(target);
	free(best);
	free(weight);
	return clear;
}

/* How many heads could be compared. */
static int32_t check_case(ckv_ctx *ctx, const merge_case *c, int number) {
	float *values = test_memory(c->n_values + 1, sizeof *values);
	int32_t compared = 0;
	merge(ctx, c, values);
	for (int32_t h = 0; h < c->k.n_heads; h++) {
		int32_t n;
		size_t first, dim = (size_t)c->v.dim;
		list_of(c, h, &n, &first);
		double *expected = test_memory((size_t)n * dim + 1, sizeof *expected);
		bool clear = naive_head(c, h, expected);
		for (size_t i = 0; i < (size_t)n * dim && clear; i++) {
			CHECK(fabs(expected[i] - (double)values[first * dim + i]) <= 2e-5,
			      "case %d (%d of %d tokens, dim %d, fraction %g, threshold %g), head %d, row %zu, channel %zu: %.9g, not "
			      "%.9g",
			      number, n, c->k.n_tokens, c->k.dim, c->merge.fraction, c->merge.threshold, h, i / dim, i % dim,
			      (double)values[first * dim + i], expected[i]);
		}
		compared += clear;
		free(expected);
	}
	free(values);
	return compared;
}

static void merged_values_match_a_computation_in_double(void **state) {
	enum { CASES = 200 };
	rng r = {1};
	int32_t heads = 0, compared = 0;
	(void)state;
	ckv_ctx *ctx = make_ctx("full");
	for (int i = 0; i < CASES; i++) {
		merge_case c = random_case(&r);
		heads += c.k.n_heads;
		compared += check_case(ctx, &c, i);
		case_free(&c);
	}
	CHECK(compared > heads * 9 / 10, "only %d of %d heads were clear enough", compared, heads);
	ckv_ctx_free(ctx);
}

static void storage_instruction_set_and_threads_do_not_show(void **state) {
	static const struct {
		ckv_dtype dtype;
		layout order;
		size_t padding;
		uint32_t cpu_disable;
		int32_t n_threads;
	} ways[] = {{CKV_F32, HEADS_OUTSIDE, 0, 0, 1},
	            {CKV_F16, TOKENS_OUTSIDE, 8, 0, 2},
	            {CKV_BF16, HEADS_OUTSIDE, 4, 0, 3},
	            {CKV_DECODED, TOKENS_OUTSIDE, 0, 0, 64},
	            {CKV_F32, TOKENS_OUTSIDE, 4, CKV_CPU_AVX2, 1},
	            {CKV_F16, HEADS_OUTSIDE, 0, CKV_CPU_AVX2, 4}};
	rng r = {2};
	(void)state;
	for (int i = 0; i < 20; i++) {
		merge_case c = random_case(&r);
		float *expected = test_memory(c.n_values + 1, sizeof *expected),
		      *values = test_memory(c.n_values + 1, sizeof *values);
		for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
			ckv_ctx_options options;
			ckv_ctx_options_default(&options);
			options.cpu_disable = ways[w].cpu_disable;
			options.n_threads = ways[w].n_threads;
			ckv_ctx *ctx = make_ctx_with("full", &options);
			store_again(&c, ways[w].dtype, ways[w].order, ways[w].padding);
			merge(ctx, &c, w ? values : expected);
			check_bits(expected, w ? values : expected, c.n_values, "merged values");
			ckv_ctx_free(ctx);
		}
		free(expected);
		free(values);
		case_free(&c);
	}
}

/* A long list before a short one, in a context that has done nothing before: space for the longest is there. */
static void a_head_is_merged_as_it_would_be_alone(void **state) {
	rng r = {4};
	merge_case c = {.k = tensor_random(&r, 2, 100, 64), .v = tensor_random(&r, 2, 100, 24)};
	ckv_allocator allocator = ckv_allocator_default();
	(void)state;
	store(&c, CKV_F16, HEADS_OUTSIDE, 0);
	keep_some(&c, &r, 2);
	for (int32_t i = 0; i < 81; i++) { /* 80 tokens of the first head, one of the second */
		c.positions[i] = i < 80 ? i + i / 10 : 50;
	}
	c.offsets[1] = 80;
	c.offsets[2] = 81;
	c.keep.n_positions = 81;
	c.n_values = (size_t)81 * 24;
	c.merge = merging(0.6, 0.0);
	float *values = test_memory(c.n_values + 1, sizeof *values), *alone = test_memory(c.n_values, sizeof *alone);
	ckv_ctx *ctx = make_ctx("full");
	merge(ctx, &c, values);
	for (int32_t h = 0; h < 2; h++) {
		int32_t n;
		size_t first;
		const int32_t *kept = list_of(&c, h, &n, &first);
		assert_int_equal(ckv_merge_values(ckv_kernels_c(), &allocator, &c.layer.k, &c.layer.v, h, kept, n, &c.merge,
		                                  alone + first * 24, NULL),
		                 CKV_OK);
	}
	check_bits(alone, values, c.n_values, "a head alone");
	free(values);
	free(alone);
	ckv_ctx_free(ctx);
	case_free(&c);
}

/* ------------------------------------------------------------------------------------------------------ edges */

enum { T = 8, D = 4 };

/* One head with a few tokens, as arrays. */
typedef struct small {
	float k[T][D], v[T][D], out[T][D];
	int32_t kept[T], n_kept;
	ckv_layer layer;
	ckv_keep keep;
	ckv_ctx *ctx;
} small;

/* All keys are alike; token t's value is t + 1 in channel t % D. Tokens 2 and 5 are kept. */
static void small_fill(small *s) {
	memset(s->k, 0, sizeof s->k);
	memset(s->v, 0, sizeof s->v);
	for (int t = 0; t < T; t++) {
		s->k[t][0] = 1.0f;
		s->v[t][t % D] = (float)t + 1.0f;
	}
}

static void small_make(small *s) {
	memset(s, 0, sizeof *s);
	small_fill(s);
	s->kept[0] = 2;
	s->kept[1] = 5;
	s->n_kept = 2;
	ckv_layer_init(&s->layer);
	s->layer.index = 7;
	s->layer.k = (ckv_view){.data = s->k,
	                        .n_heads = 1,
	                        .n_tokens = T,
	                        .head_dim = D,
	                        .stride_head = sizeof s->k,
	                        .stride_token = sizeof s->k[0]};
	s->layer.v = s->layer.k;
	s->layer.v.data = s->v;
	s->ctx = make_ctx("full");
}

static void small_keep(small *s, int32_t n, const int32_t *kept) {
	memcpy(s->kept, kept, (size_t)n * sizeof *kept);
	s->n_kept = n;
}

static ckv_status small_merge(small *s, double fraction, double threshold) {
	ckv_merge options = merging(fraction, threshold);
	ckv_keep_init(&s->keep, s->kept, T, NULL);
	s->keep.n_lists = 1;
	s->keep.n_positions = (size_t)s->n_kept;
	paint(s->out, sizeof s->out);
	return ckv_merge_kept(s->ctx, &s->layer, &s->keep, &options, &s->out[0][0]);
}

static void small_merges(small *s, double fraction, double threshold) {
	ckv_status status = small_merge(s, fraction, threshold);
	CHECK(status == CKV_OK, "%s", ckv_ctx_message(s->ctx));
	CHECK(is_painted(s->out[s->n_kept], (size_t)(T - s->n_kept) * sizeof s->out[0]), "written beyond the result");
}

/* Row i of the result is the kept value, to the bit. */
static void unchanged(const small *s, int32_t i, const char *what) { check_bits(s->v[s->kept[i]], s->out[i], D, what); }

static void where_nothing_goes_the_values_stay_as_they_are(void **state) {
	static const int32_t all[] = {0, 1, 2, 3, 4, 5, 6, 7};
	small s;
	(void)state;
	small_make(&s);
	small_keep(&s, T, all);
	s.k[3][1] = NAN; /* nothing hangs on keys then */
	s.v[4][2] = -0.0f;
	small_merges(&s, 1.0, 0.0);
	for (int32_t i = 0; i < T; i++) {
		unchanged(&s, i, "all kept");
	}
	small_keep(&s, 0, all);
	small_merges(&s, 1.0, 0.0); /* an empty list */
	ckv_ctx_free(s.ctx);
}

static void a_single_kept_token_takes_all(void **state) {
	static const int32_t only[] = {6};
	small s;
	double weight = 0.0, expected[D] = {0};
	(void)state;
	small_make(&s);
	small_keep(&s, 1, only);
	small_merges(&s, 1.0, 0.0);
	for (int t = 0; t < T; t++) {
		double w = t == 6 ? 0.0 : (t + 1.0) / (t + 1.0 + 7.0 + 1e-6);
		expected[t % D] += (t == 6 ? 1.0 : w) * (t + 1.0);
		weight += w;
	}
	for (int j = 0; j < D; j++) {
		assert_true(fabs(expected[j] / (1.0 + weight) - (double)s.out[0][j]) < 1e-5);
	}
	ckv_ctx_free(s.ctx);
}

/* To the first of equal ones; a quantile of equal numbers keeps none of them out. */
static void of_equal_cosines_the_first_kept_token_takes_all(void **state) {
	static const double fractions[] = {1.0, 0.75, 0.3, 0.0};
	small s;
	float first[D] = {0};
	(void)state;
	small_make(&s);
	for (size_t i = 0; i < 4; i++) {
		small_merges(&s, fractions[i], i == 2 ? 1.0 : 0.0);
		unchanged(&s, 1, "the second of equal ones");
		if (i == 0) {
			memcpy(first, s.out[0], sizeof first);
		}
		check_bits(first, s.out[0], D, "the first of equal ones");
		assert_true(s.out[0][0] > 0.0f && s.out[0][3] > 0.0f);
	}
	ckv_ctx_free(s.ctx);
}

static void zeros_neither_give_nor_take(void **state) {
	small s;
	(void)state;
	small_make(&s);
	s.v[2][1] = -0.0f; /* the bits too */
	for (int t = 0; t < T; t++) {
		s.k[t][0] = t == 2 || t == 5 ? 1.0f : 0.0f; /* evicted keys are zero: like none */
	}
	small_merges(&s, 1.0, 0.0);
	unchanged(&s, 0, "beside zero keys");
	unchanged(&s, 1, "beside zero keys");
	small_fill(&s);
	s.k[2][0] = s.k[5][0] = 0.0f;
	small_merges(&s, 0.5, 0.0);
	unchanged(&s, 0, "zero kept keys");
	unchanged(&s, 1, "zero kept keys");
	small_fill(&s);
	memset(s.v, 0, sizeof s.v);
	s.v[2][1] = 3.0f; /* evicted values are zero: no weight; and so in the other row, where 0 meets 0 */
	s.k[5][0] = s.k[6][0] = 0.0f;
	s.k[5][1] = s.k[6][1] = 1.0f;
	small_merges(&s, 1.0, 0.0);
	unchanged(&s, 0, "beside zero values");
	unchanged(&s, 1, "zero beside zero");
	ckv_ctx_free(s.ctx);
}

/* As published: a key is divided by its length, but by no less than 1e-6. */
static void very_short_keys_count_less(void **state) {
	small s;
	(void)state;
	small_make(&s);
	for (int t = 0; t < T; t++) {
		s.k[t][0] = t == 3 ? 1e-7f : 0.0f;
	}
	s.k[2][0] = 1.0f;
	small_merges(&s, 1.0, 0.0);
	double w = 0.1 * 4.0 / (4.0 + 3.0 + 1e-6); /* token 3's value is 4 in channel 3 */
	assert_true(fabs((double)s.out[0][3] - w * 4.0 / (1.0 + w)) < 1e-5);
	unchanged(&s, 1, "beside a very short key");
	ckv_ctx_free(s.ctx);
}

/* Of keys on the axes, powers of two long, cosines are 1 or 0 to the bit. */
static void a_threshold_of_one_takes_the_same_direction_only(void **state) {
	small s;
	(void)state;
	small_make(&s);
	memset(s.k, 0, sizeof s.k);
	s.k[2][3] = 1.0f;
	s.k[3][3] = -1.0f;
	s.k[4][3] = 1.0f;
	s.k[4][2] = 0.01f; /* not quite */
	s.k[7][3] = 8.0f;  /* the only one */
	s.k[5][0] = 4.0f;
	s.k[6][1] = 1.0f;
	small_merges(&s, 1.0, 1.0);
	double w = 8.0 / (8.0 + 3.0 + 1e-6);
	assert_true(fabs((double)s.out[0][3] - w * 8.0 / (1.0 + w)) < 1e-5); /* token 7's value is 8 in channel 3 */
	assert_true(fabs((double)s.out[0][2] - 3.0 / (1.0 + w)) < 1e-5);
	assert_true(fabsf(s.out[0][0]) + fabsf(s.out[0][1]) < 1e-30f);
	unchanged(&s, 1, "alone");
	ckv_ctx_free(s.ctx);
}

/* Token 0 is kept; the others' cosines with it fall from token to token. Which of them were merged shows in the channels. */
static int32_t merged_of(int32_t n_evicted, double lowest, double fraction, double threshold) {
	enum { MOST = 12 };
	float k[MOST][2] = {{1.0f, 0.0f}}, v[MOST][MOST] = {{1.0f}}, out[MOST];
	const int32_t kept[] = {0};
	ckv_merge options = merging(fraction, threshold);
	ckv_allocator allocator = ckv_allocator_default();
	ckv_view kv = {.data = k, .n_heads = 1, .n_tokens = n_evicted + 1, .head_dim = 2, .stride_token = sizeof k[0]};
	ckv_view vv = {.data = v, .n_heads = 1, .n_tokens = n_evicted + 1, .head_dim = MOST, .stride_token = sizeof v[0]};
	for (int32_t e = 1; e <= n_evicted; e++) {
		double cosine = 0.95 - (0.95 - lowest) * (e - 1) / (n_evicted - 1);
		k[e][0] = (float)cosine;
		k[e][1] = (float)sqrt(1.0 - cosine * cosine);
		v[e][e] = 1.0f;
	}
	assert_int_equal(ckv_merge_values(ckv_kernels_c(), &allocator, &kv, &vv, 0, kept, 1, &options, out, NULL), CKV_OK);
	int32_t n = 0;
	while (n < n_evicted && out[n + 1] > 0.0f) {
		n++;
	}
	for (int32_t e = n; e < n_evicted; e++) {
		CHECK(!(out[e + 1] > 0.0f), "%d is merged, %d, more like it, is not", e, n);
	}
	return n;
}

static void the_fraction_is_a_quantile_of_the_evicted(void **state) {
	(void)state;
	assert_int_equal(merged_of(9, 0.1, 1.0, 0.0), 9);
	assert_int_equal(merged_of(9, 0.1, 0.75, 0.0), 7);  /* rank 2: a token's own cosine, which passes */
	assert_int_equal(merged_of(10, 0.1, 0.75, 0.0), 7); /* rank 2.25: between two */
	assert_int_equal(merged_of(9, 0.1, 0.5, 0.0), 5);
	assert_int_equal(merged_of(11, 0.1, 0.7, 0.0), 8); /* rank 3, where 1 - 0.7 is not 0.3 */
	assert_int_equal(merged_of(9, 0.1, 0.1, 0.0), 1);  /* rank 7.2: between the greatest two */
	assert_int_equal(merged_of(9, 0.1, 0.0, 0.0), 1);  /* the greatest alone */
	assert_int_equal(merged_of(9, 0.15, 1.0, 0.8), 2);
	assert_int_equal(merged_of(9, 0.15, 0.5, 0.8), 2);  /* the quantile is below the threshold */
	assert_int_equal(merged_of(9, 0.15, 0.75, 0.4), 6); /* 7 by one, 6 by the other */
	assert_int_equal(merged_of(9, -0.65, 1.0, -1.0), 5);
	assert_int_equal(merged_of(9, -0.65, 0.9, 0.0), 5); /* cosines of 0.95, 0.75 .. 0.15, then negative */
}

static void a_preset_of_none_merges_nothing(void **state) {
	small s;
	(void)state;
	small_make(&s);
	ckv_merge none = merging(1.0, 0.0);
	none.preset = "none";
	ckv_keep_init(&s.keep, s.kept, T, NULL);
	s.keep.n_lists = 1;
	s.keep.n_positions = 2;
	assert_int_equal(ckv_merge_kept(s.ctx, &s.layer, &s.keep, &none, &s.out[0][0]), CKV_OK);
	unchanged(&s, 0, "none");
	unchanged(&s, 1, "none");
	ckv_ctx_free(s.ctx);
}

/* ----------------------------------------------------------------------------------------------------- errors */

static void values_that_are_not_finite_are_errors(void **state) {
	static const float bad[] = {NAN, INFINITY, -INFINITY};
	(void)state;
	for (int i = 0; i < 12; i++) { /* a key and a value, of a kept token and of another one */
		small s;
		char where[64];
		int t = i % 2 ? 5 : 6;
		bool key = i / 2 % 2;
		small_make(&s);
		(key ? s.k : s.v)[t][3] = bad[i / 4];
		ckv_status status = small_merge(&s, 1.0, 0.0);
		snprintf(where, sizeof where, "layer 7, KV head 0, token %d: NaN or infinity in a %s", t, key ? "key" : "value");
		CHECK(status == CKV_ERR_NUMERIC && strcmp(ckv_ctx_message(s.ctx), where) == 0, "'%s', but %g in %s: %s",
		      ckv_ctx_message(s.ctx), (double)bad[i / 4], where, ckv_strerror(status));
		ckv_ctx_free(s.ctx);
	}
}

static void sums_beyond_float_are_errors(void **state) {
	small s;
	(void)state;
	small_make(&s);
	s.v[0][0] = s.v[1][0] = s.v[2][0] = FLT_MAX;
	assert_int_equal(small_merge(&s, 1.0, 0.0), CKV_ERR_NUMERIC);
	assert_non_null(strstr(ckv_ctx_message(s.ctx), "token 2: values too large"));
	small_fill(&s);
	s.k[0][0] = s.k[2][0] = FLT_MAX; /* cosines have no such bounds */
	s.k[0][1] = s.k[2][1] = FLT_MAX;
	small_merges(&s, 1.0, 1.0 - 1e-6);
	assert_true(s.out[0][0] > 0.0f);
	ckv_ctx_free(s.ctx);
}

static void refused(small *s, const ckv_layer *layer, const ckv_keep *keep, const ckv_merge *options, const char *what) {
	paint(s->out, sizeof s->out);
	ckv_status status = ckv_merge_kept(s->ctx, layer, keep, options, &s->out[0][0]);
	CHECK(status == CKV_ERR_ARG && ckv_ctx_message(s->ctx)[0], "%s: %s", what, ckv_strerror(status));
	CHECK(is_painted(s->out, sizeof s->out), "%s: values were written", what);
}

static void bad_layers_are_refused(void **state) {
	small s;
	ckv_merge options = merging(1.0, 0.0);
	(void)state;
	small_make(&s);
	small_merges(&s, 1.0, 0.0);
	ckv_layer layer = s.layer;
	assert_int_equal(ckv_merge_kept(NULL, &layer, &s.keep, &options, &s.out[0][0]), CKV_ERR_ARG);
	assert_int_equal(ckv_merge_kept(s.ctx, &layer, &s.keep, &options, NULL), CKV_ERR_ARG);
	refused(&s, NULL, &s.keep, &options, "no layer");
	layer.size = 0;
	refused(&s, &layer, &s.keep, &options, "not from ckv_layer_init");
	layer = s.layer;
	layer.k.data = NULL;
	refused(&s, &layer, &s.keep, &options, "no keys");
	layer = s.layer;
	layer.v.data = NULL;
	refused(&s, &layer, &s.keep, &options, "no values");
	layer = s.layer;
	layer.v.n_tokens--;
	refused(&s, &layer, &s.keep, &options, "fewer values than keys");
	layer = s.layer;
	layer.k.n_heads = 2;
	refused(&s, &layer, &s.keep, &options, "more heads of keys");
	ckv_ctx_free(s.ctx);
}

static void bad_lists_and_options_are_refused(void **state) {
	static const double bad[][2] = {{-0.1, 0.0}, {1.1, 0.0}, {1.0, -1.1}, {1.0, 1.1}, {NAN, 0.0}, {1.0, NAN}};
	small s;
	ckv_merge options = merging(1.0, 0.0);
	(void)state;
	small_make(&s);
	small_merges(&s, 1.0, 0.0);
	refused(&s, &s.layer, NULL, &options, "no selection");
	refused(&s, &s.layer, &s.keep, NULL, "no options");
	options.size--;
	refused(&s, &s.layer, &s.keep, &options, "options without their size");
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		options = merging(bad[i][0], bad[i][1]);
		refused(&s, &s.layer, &s.keep, &options, "out of range");
	}
	options = merging(1.0, 0.0);
	s.kept[1] = 2;
	refused(&s, &s.layer, &s.keep, &options, "twice the same");
	s.kept[1] = T;
	refused(&s, &s.layer, &s.keep, &options, "outside");
	s.kept[1] = 5;
	s.keep.n_lists = 2;
	int32_t offsets[] = {0, 1, 2};
	s.keep.offsets = offsets;
	refused(&s, &s.layer, &s.keep, &options, "two lists for one head");
	ckv_ctx_free(s.ctx);
}

/* ----------------------------------------------------------------------------------------------------- memory */

static void every_request_for_memory_may_fail(void **state) {
	rng r = {3};
	long n = 1;
	(void)state;
	merge_case c = random_case(&r);
	while (c.n_values == 0 || c.k.n_tokens < 20) {
		case_free(&c);
		c = random_case(&r);
	}
	float *values = test_memory(c.n_values + 1, sizeof *values);
	for (ckv_status status = CKV_ERR_NOMEM; status != CKV_OK; n++) {
		counting counter;
		ckv_ctx_options options;
		counting_init(&counter);
		ckv_ctx_options_default(&options);
		options.allocator = &counter.allocator;
		options.n_threads = 2;
		ckv_ctx *ctx = make_ctx_with("full", &options);
		counter.refuse_in = n;
		paint(values, c.n_values * sizeof *values);
		status = ckv_merge_kept(ctx, &c.layer, &c.keep, &c.merge, values);
		CHECK(status == CKV_OK || (status == CKV_ERR_NOMEM && ckv_ctx_message(ctx)[0]), "request %ld: %s", n,
		      ckv_strerror(status));
		CHECK(status == CKV_OK || is_painted(values, c.n_values * sizeof *values), "request %ld: values were written", n);
		long calls = counter.calls;
		merge(ctx, &c, values); /* works, and when it is not the first time, in the memory that there is */
		CHECK(status != CKV_OK || counter.calls == calls, "%ld more requests", counter.calls - calls);
		ckv_ctx_free(ctx);
		assert_int_equal(counter.live, 0);
	}
	assert_true(n > 2);
	free(values);
	case_free(&c);
}

static void one_head_alone_may_find_no_memory(void **state) {
	small s;
	counting counter;
	ckv_error error;
	ckv_merge options = merging(1.0, 0.0);
	(void)state;
	small_make(&s);
	small_merges(&s, 1.0, 0.0);
	for (int time = 0; time < 2; time++) {
		float out[2 * D];
		counting_init(&counter);
		counter.refuse_in = time == 0;
		paint(out, sizeof out);
		ckv_status status = ckv_merge_values(ckv_kernels_c(), &counter.allocator, &s.layer.k, &s.layer.v, 0, s.kept, 2,
		                                     &options, out, &error);
		if (time == 0) {
			assert_true(status == CKV_ERR_NOMEM && error.message[0] && is_painted(out, sizeof out));
		} else {
			assert_int_equal(status, CKV_OK);
			check_bits(&s.out[0][0], out, 2 * D, "one head alone");
		}
		assert_int_equal(counter.live, 0);
	}
	ckv_ctx_free(s.ctx);
}

/* Sizes that do not fit, and those that fit but are not there. */
static void sizes_beyond_memory_are_errors(void **state) {
	static const float row[64] = {1.0f};
	const int32_t kept[] = {3};
	ckv_merge options = merging(1.0, 0.0);
	ckv_view wide = {.data = row, .n_heads = 1, .n_tokens = INT32_MAX, .head_dim = INT32_MAX};
	ckv_view many = {.data = row, .n_heads = 1, .n_tokens = CKV_MAX_TOKENS, .head_dim = 64};
	counting counter;
	float out[64];
	(void)state;
	assert_true(ckv_merge_space(&wide, &wide, INT32_MAX) == SIZE_MAX);
	counting_init(&counter);
	paint(out, sizeof out);
	const ckv_view *views[] = {&wide, &many};
	for (int i = 0; i < 2; i++) {
		ckv_status status = ckv_merge_values(ckv_kernels_c(), &counter.allocator, views[i], views[i], 0, kept,
		                                     i ? 1 : INT32_MAX, &options, out, NULL);
		CHECK(status == CKV_ERR_NOMEM && is_painted(out, sizeof out), "view %d: %s", i, ckv_strerror(status));
	}
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(merged_values_match_a_computation_in_double),
	    cmocka_unit_test(storage_instruction_set_and_threads_do_not_show),
	    cmocka_unit_test(a_head_is_merged_as_it_would_be_alone),
	    cmocka_unit_test(where_nothing_goes_the_values_stay_as_they_are),
	    cmocka_unit_test(a_single_kept_token_takes_all),
	    cmocka_unit_test(of_equal_cosines_the_first_kept_token_takes_all),
	    cmocka_unit_test(zeros_neither_give_nor_take),
	    cmocka_unit_test(very_short_keys_count_less),
	    cmocka_unit_test(a_threshold_of_one_takes_the_same_direction_only),
	    cmocka_unit_test(the_fraction_is_a_quantile_of_the_evicted),
	    cmocka_unit_test(a_preset_of_none_merges_nothing),
	    cmocka_unit_test(values_that_are_not_finite_are_errors),
	    cmocka_unit_test(sums_beyond_float_are_errors),
	    cmocka_unit_test(bad_layers_are_refused),
	    cmocka_unit_test(bad_lists_and_options_are_refused),
	    cmocka_unit_test(every_request_for_memory_may_fail),
	    cmocka_unit_test(one_head_alone_may_find_no_memory),
	    cmocka_unit_test(sizes_beyond_memory_are_errors),
	};
	return cmocka_run_group_tests_name("merge", tests, NULL, NULL);
}
