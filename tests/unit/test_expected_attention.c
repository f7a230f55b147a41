/* ckv_score of Expected Attention against a plain computation in double: moments of the queries, the rotation averaged over
 * the positions to come, the mean of a log-normal, the values' lengths. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --------------------------------------------------------------- helpers */

enum { MOST_PAIRS = 32 };

/* A layer with values, moments of queries of its own, and a rotation. */
typedef struct expected_case {
	test_layer t;
	tensor queries; /* before RoPE */
	ckv_moments *moments;
	float inv_freq[MOST_PAIRS];
	int32_t sinks, future;
	char policy[64];
} expected_case;

static ckv_moments *moments_of(const tensor *queries) {
	ckv_moments *m;
	stored s = stored_make(queries, CKV_F32, HEADS_OUTSIDE, 0);
	assert_int_equal(ckv_moments_create(&m, queries->n_heads, queries->dim, NULL), CKV_OK);
	assert_int_equal(ckv_moments_add(m, &s.view), CKV_OK);
	stored_free(&s);
	return m;
}

/* n_dims channels of a head turn, of `dim`. The layer points into the case, so it is set up where it stays. */
static void case_make(expected_case *c, rng *r, int32_t dim, int32_t n_dims) {
	int32_t n_kv = rng_range(r, 1, 3), n_heads = n_kv * rng_range(r, 1, 3);
	c->sinks = rng_range(r, 0, 5);
	c->future = rng_chance(r, 3) ? 1 : rng_range(r, 2, 200);
	c->t = test_layer_make(r, n_heads, n_kv, dim, c->sinks + rng_range(r, 1, 60), 1);
	test_layer_add_values(&c->t, r, rng_chance(r, 2) ? dim : rng_range(r, 1, 40));
	c->queries = tensor_random(r, n_heads, rng_range(r, 1, 80), dim);
	c->moments = moments_of(&c->queries);
	for (int32_t i = 0; i < n_dims / 2; i++) {
		c->inv_freq[i] = (float)pow(10000.0, -2.0 * i / n_dims);
	}
	ckv_layer *l = &c->t.layer;
	memset(&l->q, 0, sizeof l->q); /* the moments are all that is needed of the queries */
	l->scale = rng_chance(r, 2) ? 0.0f : 0.02f + 0.3f * fabsf(rng_float(r));
	l->moments = c->moments;
	l->rope = (ckv_rope){.n_dims = n_dims,
	                     .interleaved = rng_range(r, 0, 1),
	                     .inv_freq = n_dims ? c->inv_freq : NULL,
	                     .gain = rng_chance(r, 2) ? 0.0f : 0.8f + 0.5f * fabsf(rng_float(r))};
	snprintf(c->policy, sizeof c->policy, "expected-attention:sinks=%d,future=%d", c->sinks, c->future);
}

static void random_case(expected_case *c, rng *r) {
	static const int32_t dims[] = {1, 2, 7, 16, 20, 64};
	int32_t dim = dims[rng_range(r, 0, 5)];
	int32_t n_dims = rng_chance(r, 2) ? dim / 2 * 2 : 2 * rng_range(r, 0, dim / 2);
	case_make(c, r, dim, n_dims);
}

static void case_free(expected_case *c) {
	test_layer_free(&c->t);
	tensor_free(&c->queries);
	ckv_moments_free(c->moments);
}

/* ------------------------------------------------------------------ naive */

/* mean[d] and covariance[d][d] of one head's queries, in two passes. */
static void naive_moments(const tensor *queries, int32_t head, double *mean, double *covariance) {
	int32_t d = queries->dim, n = queries->n_tokens;
	for (int32_t i = 0; i < d; i++) {
		mean[i] = 0.0;
		for (int32_t t = 0; t < n; t++) {
			mean[i] += (double)tensor_row(queries, head, t)[i] / n;
		}
	}
	for (int32_t i = 0; i < d * d; i++) {
		covariance[i] = 0.0;
		for (int32_t t = 0; t < n; t++) {
			const float *q = tensor_row(queries, head, t);
			covariance[i] += ((double)q[i / d] - mean[i / d]) * ((double)q[i % d] - mean[i % d]) / n;
		}
	}
}

/* R[d][d]: the mean rotation over the positions to come, times the gain; ones for channels that don't turn. */
static void naive_rotation(const expected_case *c, double *rotation) {
	const ckv_rope *rope = &c->t.layer.rope;
	int32_t d = c->t.k.dim;
	for (int32_t i = 0; i < d * d; i++) {
		rotation[i] = i / d == i % d && i % d >= rope->n_dims ? 1.0 : 0.0;
	}
	for (int32_t p = 0; p < rope->n_dims / 2; p++) {
		int32_t a = rope->interleaved ? 2 * p : p, b = rope->interleaved ? 2 * p + 1 : p + rope->n_dims / 2;
		double gain = rope->gain > 0.0f ? (double)rope->gain : 1.0;
		for (int32_t t = 0; t < c->future; t++) {
			double angle = (double)((float)(c->t.k.n_tokens + t) * c->inv_freq[p]);
			rotation[a * d + a] += gain * cos(angle) / c->future;
			rotation[b * d + b] += gain * cos(angle) / c->future;
			rotation[b * d + a] += gain * sin(angle) / c->future;
			rotation[a * d + b] -= gain * sin(angle) / c->future;
		}
	}
}

/* The key turned by the transpose of R: k.(R mu) is (R'k).mu, and so for the covariance. */
static void naive_turned_key(const double *rotation, const float *key, int32_t d, double *out) {
	for (int32_t i = 0; i < d; i++) {
		out[i] = 0.0;
		for (int32_t j = 0; j < d; j++) {
			out[i] += rotation[j * d + i] * (double)key[j];
		}
	}
}

static double naive_logit(const double *mean, const double *covariance, const double *key, int32_t d, double scale) {
	double first = 0.0, second = 0.0;
	for (int32_t i = 0; i < d; i++) {
		first += mean[i] * key[i];
		for (int32_t j = 0; j < d; j++) {
			second += key[i] * covariance[i * d + j] * key[j];
		}
	}
	return first * scale + second * scale * scale / 2.0;
}

/* weight[T]: += softmax over the keys after the sinks of one head's logits, times `share`. */
static void naive_head(const expected_case *c, int32_t head, const double *rotation, double share, double *weight) {
	int32_t d = c->t.k.dim, n = c->t.k.n_tokens, group = c->queries.n_heads / c->t.k.n_heads;
	double scale = c->t.layer.scale > 0.0f ? (double)c->t.layer.scale : 1.0 / sqrt(d), sum = 0.0, most = -INFINITY;
	double *mean = test_memory((size_t)(d * (d + 2)), sizeof *mean), *covariance = mean + d, *key = covariance + d * d;
	double *logit = test_memory((size_t)n, sizeof *logit);
	naive_moments(&c->queries, head, mean, covariance);
	for (int32_t t = c->sinks; t < n; t++) {
		naive_turned_key(rotation, tensor_row(&c->t.k, head / group, t), d, key);
		logit[t] = naive_logit(mean, covariance, key, d, scale);
		most = fmax(most, logit[t]);
	}
	for (int32_t t = c->sinks; t < n; t++) {
		sum += exp(logit[t] - most);
	}
	for (int32_t t = c->sinks; t < n; t++) {
		weight[t] += share * exp(logit[t] - most) / sum;
	}
	free(mean);
	free(logit);
}

static double length(const tensor *x, int32_t head, int32_t token) {
	double sum = 0.0;
	for (int32_t i = 0; i < x->dim; i++) {
		sum += (double)tensor_row(x, head, token)[i] * (double)tensor_row(x, head, token)[i];
	}
	return sqrt(sum);
}

static void naive_scores(const expected_case *c, double *scores) {
	int32_t d = c->t.k.dim, n = c->t.k.n_tokens, group = c->queries.n_heads / c->t.k.n_heads;
	double *rotation = test_memory((size_t)(d * d), sizeof *rotation), best = 0.0;
	naive_rotation(c, rotation);
	for (int32_t g = 0; g < c->t.k.n_heads; g++) {
		double *row = scores + g * n;
		memset(row, 0, (size_t)n * sizeof *row);
		for (int32_t h = 0; h < group; h++) {
			naive_head(c, g * group + h, rotation, 1.0 / group, row);
		}
		for (int32_t t = c->sinks; t < n; t++) {
			row[t] *= length(&c->t.v, g, t);
			best = fmax(best, row[t]);
		}
	}
	for (int32_t i = 0; i < c->t.k.n_heads * n; i++) {
		scores[i] = i % n < c->sinks ? best + 1.0 : scores[i];
	}
	free(rotation);
}

static void check_case(const expected_case *c, const char *what) {
	size_t n = layer_scores(&c->t.layer);
	double *expected = test_memory(n, sizeof *expected);
	float *scores = test_memory(n, sizeof *scores);
	ckv_ctx *ctx = make_ctx(c->policy);
	naive_scores(c, expected);
	score(ctx, &c->t.layer, scores);
	check_scores(expected, scores, n, what);
	free(expected);
	free(scores);
	ckv_ctx_free(ctx);
}

/* ----------------------------------------------------------------- values */

static void scores_match_a_computation_in_double(void **state) {
	rng r = {1};
	(void)state;
	for (int i = 0; i < 60; i++) {
		expected_case c;
		char what[96];
		random_case(&c, &r);
		snprintf(what, sizeof what, "case %d: d %d, %d turn, %s", i, c.t.k.dim, c.t.layer.rope.n_dims, c.policy);
		check_case(&c, what);
		case_free(&c);
	}
}

static void storage_and_instruction_sets_do_not_show(void **state) {
	rng r = {2};
	(void)state;
	for (int i = 0; i < 6; i++) {
		expected_case c;
		random_case(&c, &r);
		test_layer t = c.t;
		t.q.value = NULL; /* no queries to store */
		check_scorer(c.policy, &t, &r);
		case_free(&c);
	}
}

/* Channels first .. n_dims-1 from halves to neighbours: what was at i and i + n_dims/2 comes to 2i and 2i + 1. */
static tensor interleave(const tensor *x, int32_t n_dims) {
	tensor y = {x->n_heads, x->n_tokens, x->dim, test_memory((size_t)(x->n_heads * x->n_tokens * x->dim), sizeof(float))};
	for (int32_t h = 0; h < x->n_heads; h++) {
		for (int32_t t = 0; t < x->n_tokens; t++) {
			for (int32_t i = 0; i < x->dim; i++) {
				int32_t from = i >= n_dims ? i : i / 2 + (i % 2) * (n_dims / 2);
				tensor_row(&y, h, t)[i] = tensor_row(x, h, t)[from];
			}
		}
	}
	return y;
}

/* The same model, its channels in the other order. */
static void pairs_may_be_neighbours_or_halves(void **state) {
	rng r = {3};
	(void)state;
	for (int i = 0; i < 20; i++) {
		expected_case c;
		random_case(&c, &r);
		c.t.layer.rope.interleaved = 0;
		size_t n = layer_scores(&c.t.layer);
		float *halves = test_memory(n, sizeof *halves), *neighbours = test_memory(n, sizeof *neighbours);
		tensor keys = interleave(&c.t.k, c.t.layer.rope.n_dims), queries = interleave(&c.queries, c.t.layer.rope.n_dims);
		stored k = stored_make(&keys, CKV_F32, TOKENS_OUTSIDE, 0);
		ckv_layer layer = c.t.layer;
		ckv_moments *m = moments_of(&queries);
		layer.k = k.view;
		layer.moments = m;
		layer.rope.interleaved = 1;
		ckv_ctx *ctx = make_ctx(c.policy);
		score(ctx, &c.t.layer, halves);
		score(ctx, &layer, neighbours);
		for (size_t j = 0; j < n; j++) {
			CHECK(scores_equal((double)halves[j], (double)neighbours[j]), "case %d, score %zu", i, j);
		}
		ckv_ctx_free(ctx);
		ckv_moments_free(m);
		stored_free(&k);
		tensor_free(&keys);
		tensor_free(&queries);
		free(halves);
		free(neighbours);
		case_free(&c);
	}
}

/* A logit cap bends single logits, of which an expectation knows nothing. */
static void a_logit_cap_has_no_part_in_it(void **state) {
	rng r = {4};
	expected_case c;
	(void)state;
	random_case(&c, &r);
	size_t n = layer_scores(&c.t.layer);
	float *without = test_memory(n, sizeof *without), *with = test_memory(n, sizeof *with);
	ckv_ctx *ctx = make_ctx(c.policy);
	score(ctx, &c.t.layer, without);
	c.t.layer.logit_cap = 0.1f;
	score(ctx, &c.t.layer, with);
	check_bits(without, with, n, "with a cap");
	free(without);
	free(with);
	ckv_ctx_free(ctx);
	case_free(&c);
}

/* Without rotation the positions ahead are all alike. */
static void without_rotation_the_future_does_not_matter(void **state) {
	rng r = {5};
	expected_case c;
	(void)state;
	case_make(&c, &r, 16, 0);
	size_t n = layer_scores(&c.t.layer);
	float *near = test_memory(n, sizeof *near), *far = test_memory(n, sizeof *far);
	ckv_ctx *one = make_ctx("expected-attention:future=1,sinks=0"),
	        *many = make_ctx("expected-attention:future=999,sinks=0");
	score(one, &c.t.layer, near);
	score(many, &c.t.layer, far);
	check_bits(near, far, n, "far");
	free(near);
	free(far);
	ckv_ctx_free(one);
	ckv_ctx_free(many);
	case_free(&c);
}

/* ----------------------------------------------------------------- errors */

static void a_cache_of_sinks_has_no_scores_and_is_kept(void **state) {
	enum { T = 6, G = 2 };
	rng r = {6};
	(void)state;
	test_layer t = test_layer_make(&r, 4, G, 8, T, 1);
	ckv_ctx *ctx = make_ctx("expected-attention:sinks=6");
	score_refused(ctx, &t.layer, G * T, CKV_ERR_UNSUPPORTED, "only sinks");
	selected s = select_layer(ctx, &t.layer, ckv_keep_tokens(2)); /* nothing is asked for, neither values nor moments */
	assert_int_equal(s.keep.reason, CKV_KEPT_ALL_SINKS);
	assert_int_equal(s.keep.n_keep, T);
	selected_free(&s);
	ckv_ctx_free(ctx);
	test_layer_free(&t);
}

static void needs_are_values_and_moments(void **state) {
	ckv_needs needs;
	ckv_params p;
	(void)state;
	assert_int_equal(ckv_policy_parse("expected-attention", &p, NULL), CKV_OK);
	assert_int_equal(ckv_params_needs(&p, &needs), CKV_OK);
	assert_int_equal(needs.flags, CKV_NEED_VALUES | CKV_NEED_MOMENTS);
	assert_int_equal(needs.n_queries, 0);
}

/* Refused with the layer as it is now, which then is put right again. */
static void refused_now(ckv_ctx *ctx, expected_case *c, const ckv_layer *good, ckv_status status, const char *what) {
	score_refused(ctx, &c->t.layer, layer_scores(good), status, what);
	c->t.layer = *good;
}

static void moments_that_are_missing_or_do_not_fit_are_refused(void **state) {
	rng r = {7};
	expected_case c;
	ckv_moments *other;
	(void)state;
	case_make(&c, &r, 16, 16);
	ckv_layer good = c.t.layer;
	ckv_ctx *ctx = make_ctx(c.policy);
	c.t.layer.moments = NULL;
	refused_now(ctx, &c, &good, CKV_ERR_ARG, "no moments");
	const int32_t shapes[][2] = {{c.queries.n_heads, 8}, {c.t.k.n_heads * 4 + 1, 16}, {c.queries.n_heads, 16}};
	for (size_t i = 0; i < 3; i++) {
		if (i == 1 && c.t.k.n_heads == 1) {
			continue; /* every number of heads goes with one */
		}
		assert_int_equal(ckv_moments_create(&other, shapes[i][0], shapes[i][1], NULL), CKV_OK);
		c.t.layer.moments = other;
		refused_now(ctx, &c, &good, CKV_ERR_ARG, i == 2 ? "no query added" : "another shape");
		ckv_moments_free(other);
	}
	ckv_ctx_free(ctx);
	case_free(&c);
}

static void rotations_that_do_not_fit_are_refused(void **state) {
	static const int32_t bad[] = {-2, 3, 18};
	rng r = {8};
	expected_case c;
	(void)state;
	case_make(&c, &r, 16, 16);
	ckv_layer good = c.t.layer;
	ckv_ctx *ctx = make_ctx(c.policy);
	for (size_t i = 0; i < 3; i++) {
		c.t.layer.rope.n_dims = bad[i];
		refused_now(ctx, &c, &good, CKV_ERR_ARG, "n_dims");
	}
	c.t.layer.rope.inv_freq = NULL;
	refused_now(ctx, &c, &good, CKV_ERR_ARG, "no frequencies");
	ckv_ctx_free(ctx);
	case_free(&c);
}

static void values_that_are_missing_or_do_not_fit_are_refused(void **state) {
	rng r = {9};
	expected_case c;
	(void)state;
	case_make(&c, &r, 16, 16);
	ckv_layer good = c.t.layer;
	ckv_ctx *ctx = make_ctx(c.policy);
	c.t.layer.v.data = NULL;
	refused_now(ctx, &c, &good, CKV_ERR_ARG, "no values");
	c.t.layer.v.n_tokens++;
	refused_now(ctx, &c, &good, CKV_ERR_ARG, "more values than keys");
	c.t.layer.v.n_heads++;
	refused_now(ctx, &c, &good, CKV_ERR_ARG, "more heads of values");
	ckv_ctx_free(ctx);
	case_free(&c);
}

static void values_that_are_not_finite_are_errors(void **state) {
	static const float bad[] = {NAN, INFINITY, -INFINITY};
	rng r = {10};
	(void)state;
	for (size_t i = 0; i < 9; i++) {
		expected_case c;
		case_make(&c, &r, 16, 16);
		ckv_ctx *ctx = make_ctx(c.policy);
		if (i / 3 == 2) { /* a query */
			c.queries.value[3] = bad[i % 3];
			ckv_moments_free(c.moments);
			c.t.layer.moments = c.moments = moments_of(&c.queries);
		} else {
			stored *s = i / 3 ? &c.t.stored_v : &c.t.stored_k;
			((float *)(void *)s->memory)[s->size / sizeof(float) - 1] = bad[i % 3];
		}
		score_refused(ctx, &c.t.layer, layer_scores(&c.t.layer), CKV_ERR_NUMERIC, "not finite");
		ckv_ctx_free(ctx);
		case_free(&c);
	}
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(scores_match_a_computation_in_double),
	    cmocka_unit_test(storage_and_instruction_sets_do_not_show),
	    cmocka_unit_test(pairs_may_be_neighbours_or_halves),
	    cmocka_unit_test(a_logit_cap_has_no_part_in_it),
	    cmocka_unit_test(without_rotation_the_future_does_not_matter),
	    cmocka_unit_test(a_cache_of_sinks_has_no_scores_and_is_kept),
	    cmocka_unit_test(needs_are_values_and_moments),
	    cmocka_unit_test(moments_that_are_missing_or_do_not_fit_are_refused),
	    cmocka_unit_test(rotations_that_do_not_fit_are_refused),
	    cmocka_unit_test(values_that_are_missing_or_do_not_fit_are_refused),
	    cmocka_unit_test(values_that_are_not_finite_are_errors),
	};
	return cmocka_run_group_tests_name("expected_attention", tests, NULL, NULL);
}
