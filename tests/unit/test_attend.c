/* ckv_attend against a plain computation in double: heads with different rows, queries that see different ones. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct attend_case {
	test_layer t;
	uint8_t *visible, *absent; /* [n][T], [G][T] */
	size_t n_out;
} attend_case;

static attend_case random_case(rng *r) {
	static const int32_t dims[] = {1, 5, 16, 24, 64};
	int32_t n_kv = rng_range(r, 1, 3), n = rng_range(r, 1, rng_chance(r, 2) ? 2 : 9), n_tokens = rng_range(r, 1, 70);
	attend_case c;
	c.t = test_layer_make(r, n_kv * rng_range(r, 1, 3), n_kv, dims[rng_range(r, 0, 4)], n_tokens, n);
	test_layer_add_values(&c.t, r, rng_chance(r, 2) ? c.t.k.dim : rng_range(r, 1, 80));
	c.t.layer.scale = rng_chance(r, 2) ? 0.0f : 0.02f + fabsf(rng_float(r));
	c.t.layer.logit_cap = rng_chance(r, 2) ? 0.0f : 0.5f + 4.0f * fabsf(rng_float(r));
	c.visible = test_memory((size_t)(n * n_tokens), 1);
	c.absent = test_memory((size_t)(n_kv * n_tokens), 1);
	c.n_out = (size_t)n * (size_t)c.t.q.n_heads * (size_t)c.t.v.dim;
	for (int32_t i = 0; i < n; i++) { /* causal with holes, everything, or nothing at all */
		int32_t kind = rng_range(r, 0, 5);
		for (int32_t t = 0; t < n_tokens; t++) {
			bool seen = kind > 1 ? t <= n_tokens - n + i && !rng_chance(r, 4) : kind == 1;
			c.visible[i * n_tokens + t] = seen ? (uint8_t)rng_range(r, 1, 255) : 0;
		}
	}
	for (int32_t i = 0; i < n_kv * n_tokens; i++) {
		c.absent[i] = rng_chance(r, 3) ? (uint8_t)rng_range(r, 1, 255) : 0;
	}
	return c;
}

static void case_free(attend_case *c) {
	test_layer_free(&c->t);
	free(c->visible);
	free(c->absent);
}

/* out[d_v] of one query and head. */
static void naive_one(const attend_case *c, bool holes, int32_t query, int32_t head, double *out) {
	const test_layer *t = &c->t;
	int32_t n_tokens = t->k.n_tokens, kv = head / (t->q.n_heads / t->k.n_heads);
	double scale = t->layer.scale > 0.0f ? (double)t->layer.scale : 1.0 / sqrt(t->k.dim), cap = (double)t->layer.logit_cap;
	double sum = 0.0;
	memset(out, 0, (size_t)t->v.dim * sizeof *out);
	for (int32_t i = 0; i < n_tokens; i++) {
		double logit = 0.0;
		if (!c->visible[query * n_tokens + i] || (holes && c->absent[kv * n_tokens + i])) {
			continue;
		}
		for (int32_t j = 0; j < t->k.dim; j++) {
			logit += scale * (double)tensor_row(&t->q, head, query)[j] * (double)tensor_row(&t->k, kv, i)[j];
		}
		double weight = exp(cap > 0.0 ? cap * tanh(logit / cap) : logit); /* logits are small here */
		sum += weight;
		for (int32_t j = 0; j < t->v.dim; j++) {
			out[j] += weight * (double)tensor_row(&t->v, kv, i)[j];
		}
	}
	for (int32_t j = 0; j < t->v.dim && sum > 0.0; j++) {
		out[j] /= sum;
	}
}

static void attend(ckv_ctx *ctx, const attend_case *c, bool holes, float *out) {
	paint(out, (c->n_out + 1) * sizeof *out);
	ckv_status status = ckv_attend(ctx, &c->t.layer, c->visible, holes ? c->absent : NULL, out);
	CHECK(status == CKV_OK, "%s", ckv_ctx_message(ctx));
	CHECK(is_painted(out + c->n_out, sizeof *out), "written beyond the result");
}

static void check_case(ckv_ctx *ctx, const attend_case *c, bool holes, const char *what) {
	float *out = test_memory(c->n_out + 1, sizeof *out);
	double *expected = test_memory((size_t)c->t.v.dim, sizeof *expected);
	attend(ctx, c, holes, out);
	for (int32_t i = 0; i < c->t.q.n_tokens; i++) {
		for (int32_t h = 0; h < c->t.q.n_heads; h++) {
			const float *row = out + (i * c->t.q.n_heads + h) * c->t.v.dim;
			naive_one(c, holes, i, h, expected);
			for (int32_t j = 0; j < c->t.v.dim; j++) {
				CHECK(fabs((double)row[j] - expected[j]) < 1e-5, "%s: query %d, head %d, channel %d: %g instead of %g", what,
				      i, h, j, (double)row[j], expected[j]);
			}
		}
	}
	free(out);
	free(expected);
}

static void attention_matches_a_computation_in_double(void **state) {
	rng r = {1};
	(void)state;
	ckv_ctx *ctx = make_ctx("full"); /* the policy has no part in it */
	for (int i = 0; i < 150; i++) {
		attend_case c = random_case(&r);
		char what[32];
		snprintf(what, sizeof what, "case %d", i);
		check_case(ctx, &c, true, what);
		check_case(ctx, &c, false, what);
		case_free(&c);
	}
	ckv_ctx_free(ctx);
}

static void what_sees_nothing_gets_zeros(void **state) {
	rng r = {2};
	(void)state;
	ckv_ctx *ctx = make_ctx("full");
	for (int i = 0; i < 20; i++) {
		attend_case c = random_case(&r);
		float *out = test_memory(c.n_out + 1, sizeof *out);
		size_t row = (size_t)c.t.q.n_heads * (size_t)c.t.v.dim, tokens = (size_t)c.t.k.n_tokens;
		memset(c.visible, 0, tokens); /* the first query */
		attend(ctx, &c, true, out);
		for (size_t j = 0; j < row; j++) {
			CHECK(out[j] == 0.0f, "case %d: query 0 gets %g", i, (double)out[j]);
		}
		memset(c.visible, 1, tokens * (size_t)c.t.q.n_tokens);
		memset(c.absent, 1, tokens); /* the first KV head has no row */
		attend(ctx, &c, true, out);
		for (size_t j = 0; j < c.n_out; j++) {
			bool first = j % row / (size_t)c.t.v.dim < (size_t)(c.t.q.n_heads / c.t.k.n_heads);
			CHECK(!first || out[j] == 0.0f, "case %d: a head without rows gets %g", i, (double)out[j]);
		}
		free(out);
		case_free(&c);
	}
	ckv_ctx_free(ctx);
}

/* A single row has the whole weight, whatever its logit. */
static void a_single_row_is_the_answer(void **state) {
	rng r = {3};
	(void)state;
	ckv_ctx *ctx = make_ctx("full");
	attend_case c = random_case(&r);
	float *out = test_memory(c.n_out + 1, sizeof *out);
	memset(c.visible, 0, (size_t)(c.t.q.n_tokens * c.t.k.n_tokens));
	for (int32_t i = 0; i < c.t.q.n_tokens; i++) {
		c.visible[i * c.t.k.n_tokens + i % c.t.k.n_tokens] = 1;
	}
	attend(ctx, &c, false, out);
	for (int32_t i = 0; i < c.t.q.n_tokens * c.t.q.n_heads; i++) {
		int32_t query = i / c.t.q.n_heads, kv = i % c.t.q.n_heads / (c.t.q.n_heads / c.t.k.n_heads);
		check_bits(tensor_row(&c.t.v, kv, query % c.t.k.n_tokens), out + i * c.t.v.dim, (size_t)c.t.v.dim, "the row");
	}
	free(out);
	case_free(&c);
	ckv_ctx_free(ctx);
}

static void storage_instruction_set_and_threads_do_not_show(void **state) {
	static const ckv_dtype dtypes[] = {CKV_F32, CKV_F16, CKV_BF16, CKV_DECODED};
	rng r = {4};
	(void)state;
	for (int n = 0; n < 6; n++) {
		attend_case c = random_case(&r);
		float *expected = test_memory(c.n_out + 1, sizeof *expected), *out = test_memory(c.n_out + 1, sizeof *out);
		ckv_ctx *ctx = make_ctx("full");
		attend(ctx, &c, true, expected);
		ckv_ctx_free(ctx);
		for (size_t i = 0; i < 8; i++) {
			ckv_layer good = c.t.layer;
			stored k = stored_make(&c.t.k, dtypes[i % 4], i < 4 ? HEADS_OUTSIDE : TOKENS_OUTSIDE, 4);
			stored q = stored_make(&c.t.q, dtypes[(i + 1) % 4], i < 4 ? TOKENS_OUTSIDE : HEADS_OUTSIDE, 8);
			stored v = stored_make(&c.t.v, dtypes[(i + 2) % 4], i % 2 ? TOKENS_OUTSIDE : HEADS_OUTSIDE, 0);
			ckv_ctx_options options;
			ckv_ctx_options_default(&options);
			options.cpu_disable = i % 2 ? ~0u : 0;
			options.n_threads = (int32_t)i / 2;
			c.t.layer.k = k.view;
			c.t.layer.q = q.view;
			c.t.layer.v = v.view;
			ctx = make_ctx_with("chunkkv", &options);
			attend(ctx, &c, true, out);
			check_bits(expected, out, c.n_out, ckv_ctx_isa(ctx));
			c.t.layer = good;
			ckv_ctx_free(ctx);
			stored_free(&k);
			stored_free(&q);
			stored_free(&v);
		}
		free(expected);
		free(out);
		case_free(&c);
	}
}

/* ---------------------------------------------------------------- errors */

enum { H = 4, G = 2, D = 8, T = 20, N = 3 };

typedef struct fixed_case {
	test_layer t;
	ckv_ctx *ctx;
	uint8_t visible[N * T], absent[G * T];
	float out[N * H * D];
} fixed_case;

static void fixed_make(fixed_case *c, float logit_cap) {
	rng r = {5};
	memset(c, 0, sizeof *c);
	c->t = test_layer_make(&r, H, G, D, T, N);
	test_layer_add_values(&c->t, &r, D);
	c->t.layer.logit_cap = logit_cap;
	c->ctx = make_ctx("full");
	memset(c->visible, 1, sizeof c->visible);
	for (size_t i = 0; i < G * T; i++) {
		((float *)(void *)c->t.stored_k.memory)[i * D] = i % 2 ? 0.5f : -0.5f; /* no product of 0 and infinity */
	}
}

static void fixed_free(fixed_case *c) {
	test_layer_free(&c->t);
	ckv_ctx_free(c->ctx);
}

static void values_that_are_not_finite_are_errors(void **state) {
	static const float bad[] = {NAN, INFINITY, -INFINITY};
	static const char *const names[] = {"a key", "a query", "a value"};
	(void)state;
	for (size_t i = 0; i < 18; i++) {
		fixed_case c;
		fixed_make(&c, i < 9 ? 0.0f : 20.0f);
		stored *where[] = {&c.t.stored_k, &c.t.stored_q, &c.t.stored_v};
		((float *)(void *)where[i % 3]->memory)[2 * D] = bad[i / 3 % 3];
		ckv_status status = ckv_attend(c.ctx, &c.t.layer, c.visible, NULL, c.out);
		CHECK(status == CKV_ERR_NUMERIC && ckv_ctx_message(c.ctx)[0], "%g in %s, cap %g: %s", (double)bad[i / 3 % 3],
		      names[i % 3], (double)c.t.layer.logit_cap, ckv_strerror(status));
		fixed_free(&c);
	}
}

/* A row that a head does not have, or that no query sees, may hold anything: what was there before. */
static void rows_that_nobody_sees_may_hold_anything(void **state) {
	(void)state;
	for (size_t n = 0; n < 2; n++) {
		fixed_case c;
		float expected[N * H * D];
		fixed_make(&c, 0.0f);
		for (size_t i = 0; i < N && n; i++) {
			c.visible[i * T + 7] = 0;
		}
		c.absent[7] = c.absent[T + 7] = !n;
		assert_int_equal(ckv_attend(c.ctx, &c.t.layer, c.visible, c.absent, expected), CKV_OK);
		for (size_t g = 0; g < G; g++) {
			((float *)(void *)c.t.stored_k.memory)[(g * T + 7) * D + 1] = NAN;
			((float *)(void *)c.t.stored_v.memory)[(g * T + 7) * D + 1] = NAN;
		}
		ckv_status status = ckv_attend(c.ctx, &c.t.layer, c.visible, c.absent, c.out);
		CHECK(status == CKV_OK, "%s row: %s", n ? "an unseen" : "an absent", ckv_ctx_message(c.ctx));
		check_bits(expected, c.out, N * H * D, "beside NaN");
		fixed_free(&c);
	}
}

static void refused(fixed_case *c, const ckv_layer *layer, const char *what) {
	paint(c->out, sizeof c->out);
	ckv_status status = ckv_attend(c->ctx, layer, c->visible, c->absent, c->out);
	CHECK(status == CKV_ERR_ARG && ckv_ctx_message(c->ctx)[0], "%s: %s", what, ckv_strerror(status));
	CHECK(is_painted(c->out, sizeof c->out), "%s: the result was written", what);
}

static void bad_arguments_are_refused(void **state) {
	fixed_case c;
	(void)state;
	fixed_make(&c, 0.0f);
	ckv_layer layer = c.t.layer;
	assert_int_equal(ckv_attend(NULL, &layer, c.visible, NULL, c.out), CKV_ERR_ARG);
	assert_int_equal(ckv_attend(c.ctx, NULL, c.visible, NULL, c.out), CKV_ERR_ARG);
	assert_int_equal(ckv_attend(c.ctx, &layer, NULL, NULL, c.out), CKV_ERR_ARG);
	assert_int_equal(ckv_attend(c.ctx, &layer, c.visible, NULL, NULL), CKV_ERR_ARG);
	layer.size = 0;
	refused(&c, &layer, "not from ckv_layer_init");
	layer = c.t.layer;
	layer.k.data = NULL;
	refused(&c, &layer, "no keys");
	layer = c.t.layer;
	layer.v.data = NULL;
	refused(&c, &layer, "no values");
	layer = c.t.layer;
	layer.q.data = NULL;
	refused(&c, &layer, "no queries");
	layer = c.t.layer;
	layer.v.n_tokens--;
	refused(&c, &layer, "fewer values than keys");
	layer = c.t.layer;
	layer.v.n_heads--;
	refused(&c, &layer, "fewer heads of values");
	layer = c.t.layer;
	layer.q.n_heads = 3;
	refused(&c, &layer, "3 query heads on 2");
	layer = c.t.layer;
	layer.q.head_dim--;
	refused(&c, &layer, "queries of another width");
	layer = c.t.layer;
	layer.scale = NAN;
	refused(&c, &layer, "scale");
	layer = c.t.layer;
	layer.logit_cap = -1.0f;
	refused(&c, &layer, "logit cap");
	fixed_free(&c);
}

static void every_request_for_memory_may_fail(void **state) {
	fixed_case c;
	(void)state;
	fixed_make(&c, 0.0f);
	for (long n = 1;; n++) {
		counting counter;
		ckv_ctx_options options;
		counting_init(&counter);
		ckv_ctx_options_default(&options);
		options.allocator = &counter.allocator;
		ckv_ctx *ctx = make_ctx_with("full", &options);
		counter.refuse_in = n;
		paint(c.out, sizeof c.out);
		ckv_status status = ckv_attend(ctx, &c.t.layer, c.visible, c.absent, c.out);
		CHECK(status == CKV_OK || (status == CKV_ERR_NOMEM && is_painted(c.out, sizeof c.out)), "request %ld: %s", n,
		      ckv_strerror(status));
		ckv_ctx_free(ctx);
		assert_int_equal(counter.live, 0);
		if (status == CKV_OK) {
			assert_true(n > 2);
			break;
		}
	}
	fixed_free(&c);
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(attention_matches_a_computation_in_double),
	    cmocka_unit_test(what_sees_nothing_gets_zeros),
	    cmocka_unit_test(a_single_row_is_the_answer),
	    cmocka_unit_test(storage_instruction_set_and_threads_do_not_show),
	    cmocka_unit_test(values_that_are_not_finite_are_errors),
	    cmocka_unit_test(rows_that_nobody_sees_may_hold_anything),
	    cmocka_unit_test(bad_arguments_are_refused),
	    cmocka_unit_test(every_request_for_memory_may_fail),
	};
	return cmocka_run_group_tests_name("attend", tests, NULL, NULL);
}
