/* ckv_score of SnapKV against a plain computation in double, in every element type, layout and instruction set. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --------------------------------------------------------------- helpers */

typedef struct shape {
	int32_t n_q_heads, n_kv_heads, dim, n_tokens, n_queries, window, kernel;
	float scale, logit_cap;
} shape;

static shape random_shape(rng *r) {
	static const int32_t dims[] = {1, 3, 8, 15, 16, 20, 33, 64}, kernels[] = {1, 3, 5, 7, 21, 255};
	shape s;
	s.n_kv_heads = rng_range(r, 1, 3);
	s.n_q_heads = s.n_kv_heads * rng_range(r, 1, 4);
	s.dim = dims[rng_range(r, 0, 7)];
	s.window = rng_range(r, 1, rng_chance(r, 2) ? 4 : 17);
	s.n_tokens = s.window + (rng_chance(r, 5) ? 1 : rng_range(r, 1, 90));
	s.n_queries = s.window + (rng_chance(r, 2) ? 0 : rng_range(r, 1, 5));
	s.kernel = kernels[rng_range(r, 0, 5)];
	s.scale = rng_chance(r, 2) ? 0.0f : 0.02f + fabsf(rng_float(r));
	s.logit_cap = rng_chance(r, 2) ? 0.0f : 0.5f + 4.0f * fabsf(rng_float(r));
	return s;
}

static size_t n_scores(const shape *s) { return (size_t)s->n_kv_heads * (size_t)s->n_tokens; }

static ckv_ctx *shape_ctx(const shape *s, uint32_t cpu_disable) {
	char policy[64];
	ckv_ctx_options options;
	ckv_ctx_options_default(&options);
	options.cpu_disable = cpu_disable;
	snprintf(policy, sizeof policy, "snapkv:window=%d,kernel=%d", s->window, s->kernel);
	return make_ctx_with(policy, &options);
}

static test_layer shape_layer(const shape *s, rng *r) {
	test_layer t = test_layer_make(r, s->n_q_heads, s->n_kv_heads, s->dim, s->n_tokens, s->n_queries);
	t.layer.scale = s->scale;
	t.layer.logit_cap = s->logit_cap;
	return t;
}

/* ----------------------------------------------------------------- values */

static void scores_match_a_computation_in_double(void **state) {
	rng r = {1};
	(void)state;
	for (int n = 0; n < 150; n++) {
		shape s = random_shape(&r);
		test_layer t = shape_layer(&s, &r);
		ckv_ctx *ctx = shape_ctx(&s, 0);
		double *expected = test_memory(n_scores(&s), sizeof *expected);
		float *scores = test_memory(n_scores(&s) + 1, sizeof *scores);
		paint(&scores[n_scores(&s)], sizeof *scores);
		naive_snapkv(&t.k, &t.q, s.window, s.kernel, (double)s.scale, (double)s.logit_cap, expected);
		score(ctx, &t.layer, scores);
		for (size_t i = 0; i < n_scores(&s); i++) {
			CHECK(scores_equal(expected[i], (double)scores[i]), "case %d: score %zu is %.9g instead of %.9g", n, i,
			      (double)scores[i], expected[i]);
		}
		assert_true(is_painted(&scores[n_scores(&s)], sizeof *scores));
		free(expected);
		free(scores);
		ckv_ctx_free(ctx);
		test_layer_free(&t);
	}
}

/* One token gets all attention of every query: its pooled neighbourhood has 1 / kernel, the window 1 / kernel + 1. */
static void one_bright_token_lights_its_neighbours(void **state) {
	enum { T = 30, W = 4, D = 8, BRIGHT = 12 };
	(void)state;
	rng r = {2};
	test_layer t = test_layer_make(&r, 1, 1, D, T, W);
	float *k = (float *)(void *)t.stored_k.memory, *q = (float *)(void *)t.stored_q.memory, scores[T];
	memset(k, 0, sizeof(float) * T * D);
	memset(q, 0, sizeof(float) * W * D);
	k[BRIGHT * D] = 1000.0f;
	for (size_t i = 0; i < W; i++) {
		q[i * D] = 1.0f;
	}
	ckv_ctx *ctx = make_ctx("snapkv:window=4,kernel=5");
	score(ctx, &t.layer, scores);
	for (int i = 0; i < T; i++) {
		float expected = i >= T - W ? 1.2f : abs(i - BRIGHT) <= 2 ? 0.2f : 0.0f;
		CHECK(fabsf(scores[i] - expected) < 1e-6f, "token %d has %g", i, (double)scores[i]);
	}
	ckv_ctx_free(ctx);
	test_layer_free(&t);
}

static void window_tokens_score_the_maximum_plus_one(void **state) {
	rng r = {3};
	(void)state;
	for (int n = 0; n < 40; n++) {
		shape s = random_shape(&r);
		test_layer t = shape_layer(&s, &r);
		ckv_ctx *ctx = shape_ctx(&s, 0);
		float *scores = test_memory(n_scores(&s), sizeof *scores), best = -INFINITY;
		score(ctx, &t.layer, scores);
		for (int32_t i = 0; i < (int32_t)n_scores(&s); i++) {
			best = i % s.n_tokens < s.n_tokens - s.window ? fmaxf(best, scores[i]) : best;
		}
		for (int32_t i = 0; i < (int32_t)n_scores(&s); i++) {
			bool in_window = i % s.n_tokens >= s.n_tokens - s.window;
			CHECK(!in_window || scores[i] == best + 1.0f, "case %d, score %d", n, i);
		}
		free(scores);
		ckv_ctx_free(ctx);
		test_layer_free(&t);
	}
}

/* A group of g heads scores as the mean of its heads, each scored as a group of its own. */
static void groups_score_the_mean_of_their_heads(void **state) {
	enum { G = 2, GROUP = 3, T = 50, W = 5, D = 16 };
	rng r = {4};
	(void)state;
	test_layer t = test_layer_make(&r, G * GROUP, G, D, T, W);
	ckv_ctx *ctx = make_ctx("snapkv:window=5");
	float together[G * T], alone[GROUP][T];
	score(ctx, &t.layer, together);
	for (int32_t g = 0; g < G; g++) {
		for (int32_t h = 0; h < GROUP; h++) {
			ckv_layer one = t.layer;
			one.k.n_heads = one.q.n_heads = 1;
			one.k.data = t.stored_k.memory + (size_t)g * t.layer.k.stride_head;
			one.q.data = t.stored_q.memory + (size_t)(g * GROUP + h) * t.layer.q.stride_head;
			score(ctx, &one, alone[h]);
		}
		for (int32_t i = 0; i < T - W; i++) {
			double mean = ((double)alone[0][i] + (double)alone[1][i] + (double)alone[2][i]) / GROUP;
			CHECK(scores_equal(mean, (double)together[g * T + i]), "head %d, token %d", g, i);
		}
	}
	ckv_ctx_free(ctx);
	test_layer_free(&t);
}

static void the_default_scale_is_one_over_root_d(void **state) {
	enum { T = 40, W = 4, D = 25 };
	rng r = {5};
	(void)state;
	test_layer t = test_layer_make(&r, 2, 1, D, T, W);
	ckv_ctx *ctx = make_ctx("snapkv:window=4");
	float by_default[T], given[T], other[T];
	score(ctx, &t.layer, by_default);
	t.layer.scale = 1.0f / sqrtf(D);
	score(ctx, &t.layer, given);
	check_bits(by_default, given, T, "given scale");
	t.layer.scale = 0.5f;
	score(ctx, &t.layer, other);
	assert_memory_not_equal(by_default, other, sizeof other);
	ckv_ctx_free(ctx);
	test_layer_free(&t);
}

/* --------------------------------------------------------------- storage */

static const ckv_dtype dtypes[] = {CKV_F32, CKV_F16, CKV_BF16, CKV_DECODED};
static const layout layouts[] = {HEADS_OUTSIDE, TOKENS_OUTSIDE};

/* The values are exact in every type, so type, layout and padding of keys and queries must not show. */
static void check_storage(rng *r) {
	shape s = random_shape(r);
	test_layer t = shape_layer(&s, r);
	ckv_ctx *ctx = shape_ctx(&s, 0);
	float *expected = test_memory(n_scores(&s), sizeof *expected), *scores = test_memory(n_scores(&s), sizeof *scores);
	score(ctx, &t.layer, expected);
	for (size_t i = 0; i < 8; i++) {
		char what[64];
		ckv_layer layer = t.layer;
		stored k = stored_make(&t.k, dtypes[i % 4], layouts[i / 4], (size_t)rng_range(r, 0, 3) * 4);
		stored q =
		    stored_make(&t.q, dtypes[rng_range(r, 0, 3)], layouts[rng_range(r, 0, 1)], (size_t)rng_range(r, 0, 3) * 4);
		layer.k = k.view;
		layer.q = q.view;
		score(ctx, &layer, scores);
		snprintf(what, sizeof what, "keys of type %d in layout %zu, queries of type %d", k.view.dtype, i / 4, q.view.dtype);
		check_bits(expected, scores, n_scores(&s), what);
		stored_free(&k);
		stored_free(&q);
	}
	free(expected);
	free(scores);
	ckv_ctx_free(ctx);
	test_layer_free(&t);
}

static void type_and_layout_of_the_cache_do_not_show(void **state) {
	rng r = {6};
	(void)state;
	for (int n = 0; n < 40; n++) {
		check_storage(&r);
	}
}

static void scores_are_bit_for_bit_the_same_on_every_instruction_set(void **state) {
	rng r = {7};
	(void)state;
	for (int n = 0; n < 60; n++) {
		shape s = random_shape(&r);
		test_layer t = shape_layer(&s, &r);
		float *plain = test_memory(n_scores(&s), sizeof *plain), *fast = test_memory(n_scores(&s), sizeof *fast);
		ckv_ctx *c = shape_ctx(&s, ~0u);
		assert_string_equal(ckv_ctx_isa(c), "c");
		score(c, &t.layer, plain);
		for (uint32_t bit = 0; bit < 3; bit++) {
			ckv_ctx *other = shape_ctx(&s, bit == 2 ? 0 : 1u << bit);
			score(other, &t.layer, fast);
			check_bits(plain, fast, n_scores(&s), ckv_ctx_isa(other));
			ckv_ctx_free(other);
		}
		ckv_ctx_free(c);
		free(plain);
		free(fast);
		test_layer_free(&t);
	}
}

/* Only the last `window` of the queries shown are read: what stands before them may be anything. */
static void queries_before_the_window_are_not_read(void **state) {
	enum { T = 33, W = 3, EXTRA = 6, D = 12, H = 4, G = 2 };
	rng r = {8};
	(void)state;
	test_layer t = test_layer_make(&r, H, G, D, T, W + EXTRA);
	ckv_ctx *ctx = make_ctx("snapkv:window=3");
	float before[G * T], after[G * T];
	score(ctx, &t.layer, before);
	for (size_t h = 0; h < H; h++) {
		float *row = (float *)(void *)(t.stored_q.memory + h * t.layer.q.stride_head);
		for (size_t i = 0; i < EXTRA * D; i++) {
			row[i] = NAN;
		}
	}
	score(ctx, &t.layer, after);
	check_bits(before, after, G * T, "queries before the window");
	ckv_ctx_free(ctx);
	test_layer_free(&t);
}

static void scores_do_not_depend_on_earlier_layers(void **state) {
	rng r = {9};
	(void)state;
	for (int n = 0; n < 30; n++) {
		shape s = random_shape(&r), big = s;
		big.n_tokens += 40;
		big.n_q_heads *= 2;
		test_layer t = shape_layer(&s, &r), other = shape_layer(&big, &r);
		ckv_ctx *fresh = shape_ctx(&s, 0), *used = shape_ctx(&s, 0);
		float *a = test_memory(n_scores(&s), sizeof *a), *b = test_memory(n_scores(&big), sizeof *b);
		score(fresh, &t.layer, a);
		score(used, &other.layer, b);
		score(used, &t.layer, b);
		check_bits(a, b, n_scores(&s), "after another layer");
		free(a);
		free(b);
		ckv_ctx_free(fresh);
		ckv_ctx_free(used);
		test_layer_free(&t);
		test_layer_free(&other);
	}
}

/* ---------------------------------------------------------------- errors */

enum { T = 40, W = 6, D = 16, H = 4, G = 2 };

static test_layer usual_layer(void) {
	rng r = {10};
	return test_layer_make(&r, H, G, D, T, W);
}

static ckv_ctx *usual_ctx(void) { return make_ctx("snapkv:window=6"); }

static void a_cache_not_longer_than_the_window_has_no_scores(void **state) {
	(void)state;
	test_layer t = usual_layer();
	ckv_ctx *ctx = usual_ctx();
	for (int32_t n = W - 2; n <= W; n++) {
		t.layer.k.n_tokens = n;
		score_refused(ctx, &t.layer, G * T, CKV_ERR_UNSUPPORTED, "a short cache");
	}
	float scores[G * (W + 1)];
	t.layer.k.n_tokens = W + 1;
	score(ctx, &t.layer, scores);
	ckv_ctx_free(ctx);
	test_layer_free(&t);
}

static void a_cache_not_longer_than_the_window_is_kept_whole(void **state) {
	(void)state;
	test_layer t = usual_layer();
	ckv_ctx *ctx = usual_ctx();
	int32_t positions[G * T], offsets[G + 1];
	for (int32_t n = 1; n <= W; n++) {
		ckv_keep keep;
		ckv_keep_init(&keep, positions, G * T, offsets);
		t.layer.k.n_tokens = n;
		assert_int_equal(ckv_select(ctx, &t.layer, ckv_keep_tokens(1), &keep), CKV_OK);
		assert_int_equal(keep.reason, CKV_KEPT_ALL_WINDOW);
		assert_int_equal(keep.n_keep, n);
		assert_true(keep.attention_kept == -1.0f);
	}
	ckv_ctx_free(ctx);
	test_layer_free(&t);
}

static void a_policy_without_scorer_has_no_scores(void **state) {
	(void)state;
	test_layer t = usual_layer();
	ckv_ctx *ctx = make_ctx("full");
	score_refused(ctx, &t.layer, G * T, CKV_ERR_UNSUPPORTED, "full");
	ckv_ctx_free(ctx);
	test_layer_free(&t);
}

/* One value that is not finite, at a random place of the keys or of the window's queries, in a context that has scored
 * before. Returns whether the scores were left alone. */
static bool fails_not_finite(rng *r, bool in_keys, float value, const char *what) {
	test_layer t = usual_layer();
	ckv_ctx *ctx = usual_ctx();
	float *memory = (float *)(void *)(in_keys ? t.stored_k.memory : t.stored_q.memory), other[G * T];
	int32_t count = in_keys ? G * T * D : H * W * D;
	score(ctx, &t.layer, other);
	memory[rng_range(r, 0, count - 1)] = value;
	bool untouched = score_fails(ctx, &t.layer, G * T, CKV_ERR_NUMERIC, what);
	ckv_ctx_free(ctx);
	test_layer_free(&t);
	return untouched;
}

static void nan_and_infinity_are_errors(void **state) {
	rng r = {11};
	(void)state;
	for (int n = 0; n < 20; n++) {
		fails_not_finite(&r, true, NAN, "NaN in a key");
		fails_not_finite(&r, false, NAN, "NaN in a query");
		fails_not_finite(&r, true, INFINITY, "infinity in a key");
		fails_not_finite(&r, false, -INFINITY, "infinity in a query");
	}
}

static void nan_and_infinity_leave_the_scores_alone(void **state) {
	rng r = {12};
	(void)state;
	assert_true(fails_not_finite(&r, true, NAN, "NaN in a key"));
	assert_true(fails_not_finite(&r, false, INFINITY, "infinity in a query"));
}

static void nan_and_infinity_leave_the_selection_alone(void **state) {
	static const float bad[] = {NAN, INFINITY, -INFINITY};
	(void)state;
	for (size_t i = 0; i < 3; i++) {
		test_layer t = usual_layer();
		ckv_ctx *ctx = usual_ctx();
		int32_t positions[G * T], offsets[G + 1];
		ckv_keep keep, before;
		((float *)(void *)t.stored_k.memory)[5 * D] = bad[i];
		paint(positions, sizeof positions);
		paint(offsets, sizeof offsets);
		ckv_keep_init(&keep, positions, G * T, offsets);
		before = keep;
		assert_int_equal(ckv_select(ctx, &t.layer, ckv_keep_tokens(10), &keep), CKV_ERR_NUMERIC);
		assert_true(is_painted(positions, sizeof positions) && is_painted(offsets, sizeof offsets));
		assert_memory_equal(&keep, &before, sizeof keep);
		ckv_ctx_free(ctx);
		test_layer_free(&t);
	}
}

/* An infinite key whose products with all queries are -inf would quietly get no attention at all. */
static void an_infinite_key_is_an_error_whatever_its_sign(void **state) {
	(void)state;
	test_layer t = usual_layer();
	ckv_ctx *ctx = usual_ctx();
	float *q = (float *)(void *)t.stored_q.memory;
	for (size_t i = 0; i < H * W; i++) {
		q[i * D] = -1.0f;
	}
	((float *)(void *)t.stored_k.memory)[7 * D] = INFINITY;
	score_fails(ctx, &t.layer, G * T, CKV_ERR_NUMERIC, "an infinite key that all queries turn away from");
	ckv_ctx_free(ctx);
	test_layer_free(&t);
}

/* Finite values whose products are not. */
static void logits_that_overflow_are_errors(void **state) {
	(void)state;
	test_layer t = usual_layer();
	ckv_ctx *ctx = usual_ctx();
	for (size_t i = 0; i < G * T * D; i++) {
		((float *)(void *)t.stored_k.memory)[i] *= 1e38f;
	}
	for (size_t i = 0; i < H * W * D; i++) {
		((float *)(void *)t.stored_q.memory)[i] *= 1e38f;
	}
	score_fails(ctx, &t.layer, G * T, CKV_ERR_NUMERIC, "huge keys and queries");
	ckv_ctx_free(ctx);
	test_layer_free(&t);
}

static void no_decoder(const void *row, float *out, size_t n, void *user) {
	(void)row;
	(void)user;
	memset(out, 0, n * sizeof *out);
}

/* Each spoils one thing of a good layer. */
static void spoil(ckv_layer *l, int what) {
	ckv_view *view = what % 2 ? &l->k : &l->q;
	switch (what / 2) {
	case 0: view->data = NULL; break;
	case 1: view->n_heads = 0; break;
	case 2: view->n_heads = -1; break;
	case 3: view->n_tokens = 0; break;
	case 4: view->n_tokens = INT32_MIN; break;
	case 5: view->head_dim = 0; break;
	case 6: view->head_dim = -8; break;
	case 7: view->head_dim = 65537; break;
	case 8: view->dtype = (ckv_dtype)4; break;
	case 9: view->dtype = (ckv_dtype)-1; break;
	case 10: view->dtype = CKV_DECODED; break; /* without decoder and row size */
	case 11:
		view->dtype = CKV_DECODED;
		view->decode = no_decoder;
		break;
	case 12:
		view->dtype = CKV_DECODED;
		view->row_bytes = 64;
		break;
	case 13: view->stride_token = SIZE_MAX / 2; break;
	case 14: view->stride_head = SIZE_MAX; break;
	case 15: view->stride_head = (size_t)PTRDIFF_MAX - 64; break;
	case 16: view->head_dim = D / 2; break; /* the other view disagrees */
	case 17:
		view->n_tokens = 41;
		view->stride_token = SIZE_MAX / 8 + 1; /* 40 strides are 0, if the product wraps */
		break;
	default: break;
	}
}

enum { N_SPOILS = 2 * 18 };

static void bad_views_are_refused(void **state) {
	(void)state;
	test_layer t = usual_layer();
	ckv_ctx *ctx = usual_ctx();
	for (int what = 0; what < N_SPOILS; what++) {
		char name[32];
		ckv_layer layer = t.layer;
		spoil(&layer, what);
		snprintf(name, sizeof name, "spoil %d of %s", what / 2, what % 2 ? "k" : "q");
		score_refused(ctx, &layer, G * T, CKV_ERR_ARG, name);
	}
	ckv_ctx_free(ctx);
	test_layer_free(&t);
}

static void heads_have_at_most_65536_dimensions(void **state) {
	enum { MOST = 65536 };
	(void)state;
	float *row = test_memory(MOST + 1, sizeof *row), scores[2];
	memset(row, 0, (MOST + 1) * sizeof *row);
	ckv_layer layer;
	ckv_ctx *ctx = make_ctx("snapkv:window=1,kernel=1");
	ckv_layer_init(&layer);
	layer.k.data = layer.q.data = row;
	layer.k.n_heads = layer.q.n_heads = layer.q.n_tokens = 1;
	layer.k.n_tokens = 2;
	layer.k.head_dim = layer.q.head_dim = MOST + 1;
	score_refused(ctx, &layer, 2, CKV_ERR_ARG, "too wide a head");
	layer.k.head_dim = layer.q.head_dim = MOST;
	score(ctx, &layer, scores);
	assert_true(scores[0] == 0.5f && scores[1] == 1.5f);
	ckv_ctx_free(ctx);
	free(row);
}

static void shapes_that_disagree_are_refused(void **state) {
	(void)state;
	test_layer t = usual_layer();
	ckv_ctx *ctx = usual_ctx();
	ckv_layer layer = t.layer;
	layer.q.n_heads = 3; /* not a multiple of 2 */
	score_refused(ctx, &layer, G * T, CKV_ERR_ARG, "3 query heads on 2");
	layer.q.n_heads = 1; /* fewer than the KV heads */
	score_refused(ctx, &layer, G * T, CKV_ERR_ARG, "1 query head on 2");
	layer = t.layer;
	layer.q.n_tokens = W - 1;
	score_refused(ctx, &layer, G * T, CKV_ERR_ARG, "fewer queries than the window");
	ckv_ctx_free(ctx);
	test_layer_free(&t);
}

static void bad_scales_are_refused(void **state) {
	static const float bad[] = {-1.0f, NAN, INFINITY, -INFINITY};
	(void)state;
	test_layer t = usual_layer();
	ckv_ctx *ctx = usual_ctx();
	for (size_t i = 0; i < 4; i++) {
		ckv_layer layer = t.layer;
		layer.scale = bad[i];
		score_refused(ctx, &layer, G * T, CKV_ERR_ARG, "scale");
	}
	for (size_t i = 1; i < 4; i++) {
		ckv_layer layer = t.layer;
		layer.logit_cap = bad[i];
		score_refused(ctx, &layer, G * T, CKV_ERR_ARG, "logit cap");
	}
	ckv_ctx_free(ctx);
	test_layer_free(&t);
}

static void missing_arguments_are_refused(void **state) {
	(void)state;
	test_layer t = usual_layer();
	ckv_ctx *ctx = usual_ctx();
	float scores[G * T];
	paint(scores, sizeof scores);
	assert_int_equal(ckv_score(NULL, &t.layer, ckv_keep_percent(50), scores), CKV_ERR_ARG);
	assert_int_equal(ckv_score(ctx, NULL, ckv_keep_percent(50), scores), CKV_ERR_ARG);
	assert_int_equal(ckv_score(ctx, &t.layer, ckv_keep_percent(50), NULL), CKV_ERR_ARG);
	t.layer.size = 0; /* not from ckv_layer_init */
	assert_int_equal(ckv_score(ctx, &t.layer, ckv_keep_percent(50), scores), CKV_ERR_ARG);
	assert_true(is_painted(scores, sizeof scores));
	ckv_ctx_free(ctx);
	test_layer_free(&t);
}

/* Strides are in bytes: rows at odd addresses are as good as others, unless the call refuses them. */
static void check_odd_addresses(ckv_dtype dtype, uint32_t cpu_disable) {
	shape s = {H, G, D, T, W, W, 5, 0.0f, 0.0f};
	test_layer t = usual_layer();
	ckv_ctx *ctx = shape_ctx(&s, cpu_disable);
	float expected[G * T], scores[G * T];
	stored k = stored_make(&t.k, dtype, HEADS_OUTSIDE, 1);
	score(ctx, &t.layer, expected);
	t.layer.k = k.view;
	ckv_status status = ckv_score(ctx, &t.layer, ckv_keep_percent(50), scores);
	CHECK(status == CKV_OK || status == CKV_ERR_ARG, "%s", ckv_ctx_message(ctx));
	if (status == CKV_OK) {
		check_bits(expected, scores, G * T, "odd addresses");
	}
	stored_free(&k);
	ckv_ctx_free(ctx);
	test_layer_free(&t);
}

static void odd_addresses_are_read_or_refused(void **state) {
	(void)state;
	for (size_t i = 0; i < 4; i++) {
		check_odd_addresses(dtypes[i], 0);
		check_odd_addresses(dtypes[i], ~0u);
	}
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(scores_match_a_computation_in_double),
	    cmocka_unit_test(one_bright_token_lights_its_neighbours),
	    cmocka_unit_test(window_tokens_score_the_maximum_plus_one),
	    cmocka_unit_test(groups_score_the_mean_of_their_heads),
	    cmocka_unit_test(the_default_scale_is_one_over_root_d),
	    cmocka_unit_test(type_and_layout_of_the_cache_do_not_show),
	    cmocka_unit_test(scores_are_bit_for_bit_the_same_on_every_instruction_set),
	    cmocka_unit_test(queries_before_the_window_are_not_read),
	    cmocka_unit_test(scores_do_not_depend_on_earlier_layers),
	    cmocka_unit_test(a_cache_not_longer_than_the_window_has_no_scores),
	    cmocka_unit_test(a_cache_not_longer_than_the_window_is_kept_whole),
	    cmocka_unit_test(a_policy_without_scorer_has_no_scores),
	    cmocka_unit_test(nan_and_infinity_are_errors),
	    cmocka_unit_test(nan_and_infinity_leave_the_scores_alone),
	    cmocka_unit_test(nan_and_infinity_leave_the_selection_alone),
	    cmocka_unit_test(an_infinite_key_is_an_error_whatever_its_sign),
	    cmocka_unit_test(logits_that_overflow_are_errors),
	    cmocka_unit_test(bad_views_are_refused),
	    cmocka_unit_test(heads_have_at_most_65536_dimensions),
	    cmocka_unit_test(shapes_that_disagree_are_refused),
	    cmocka_unit_test(bad_scales_are_refused),
	    cmocka_unit_test(missing_arguments_are_refused),
	    cmocka_unit_test(odd_addresses_are_read_or_refused),
	};
	return cmocka_run_group_tests_name("snapkv", tests, NULL, NULL);
}
