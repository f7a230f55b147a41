/* Mean and covariance of a stream of queries against two passes in double. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t squares(const tensor *x) { return (size_t)x->n_heads * (size_t)x->dim * (size_t)x->dim; }

/* mean[H][d], covariance[H][d][d] divided by the count, over the first n rows of each head. */
static void naive_moments(const tensor *x, int32_t n, double *mean, double *covariance) {
	int32_t d = x->dim;
	for (int32_t h = 0; h < x->n_heads; h++) {
		double *m = mean + h * d, *c = covariance + h * d * d;
		for (int32_t i = 0; i < d; i++) {
			m[i] = 0.0;
			for (int32_t t = 0; t < n; t++) {
				m[i] += (double)tensor_row(x, h, t)[i] / n;
			}
		}
		for (int32_t i = 0; i < d * d; i++) {
			c[i] = 0.0;
			for (int32_t t = 0; t < n; t++) {
				const float *row = tensor_row(x, h, t);
				c[i] += ((double)row[i / d] - m[i / d]) * ((double)row[i % d] - m[i % d]) / n;
			}
		}
	}
}

/* What was read, and what two passes give. */
typedef struct moments_case {
	float *mean, *covariance;
	double *expected_mean, *expected_covariance;
	double largest; /* variance: covariances near 0 are judged by it */
} moments_case;

static moments_case read_and_expect(const ckv_moments *m, const tensor *x, int32_t n) {
	size_t n_mean = (size_t)x->n_heads * (size_t)x->dim;
	moments_case c = {test_memory(n_mean, sizeof(float)), test_memory(squares(x), sizeof(float)),
	                  test_memory(n_mean, sizeof(double)), test_memory(squares(x), sizeof(double)), 0.0};
	assert_int_equal(ckv_moments_read(m, c.mean, c.covariance), n);
	naive_moments(x, n, c.expected_mean, c.expected_covariance);
	for (size_t i = 0; i < squares(x); i++) {
		c.largest = fmax(c.largest, c.expected_covariance[i]);
	}
	return c;
}

static void case_free(moments_case *c) {
	free(c->mean);
	free(c->covariance);
	free(c->expected_mean);
	free(c->expected_covariance);
}

static void check_moments(const ckv_moments *m, const tensor *x, int32_t n, const char *what) {
	moments_case c = read_and_expect(m, x, n);
	for (size_t i = 0; i < (size_t)x->n_heads * (size_t)x->dim; i++) {
		double off = fabs((double)c.mean[i] - c.expected_mean[i]);
		CHECK(off <= 1e-6 * (fabs(c.expected_mean[i]) + sqrt(c.largest)), "%s: mean %zu is %g instead of %g", what, i,
		      (double)c.mean[i], c.expected_mean[i]);
	}
	for (size_t i = 0; i < squares(x); i++) {
		double off = fabs((double)c.covariance[i] - c.expected_covariance[i]);
		CHECK(off <= 5e-6 * c.largest, "%s: covariance %zu is %g instead of %g, the largest is %g", what, i,
		      (double)c.covariance[i], c.expected_covariance[i], c.largest);
	}
	case_free(&c);
}

static ckv_moments *make(const tensor *x) {
	ckv_moments *m;
	assert_int_equal(ckv_moments_create(&m, x->n_heads, x->dim, NULL), CKV_OK);
	return m;
}

static tensor random_queries(rng *r) {
	static const int32_t dims[] = {1, 2, 7, 16, 33, 64};
	return tensor_random(r, rng_range(r, 1, 3), rng_range(r, 1, rng_chance(r, 2) ? 10 : 300), dims[rng_range(r, 0, 5)]);
}

/* Adds rows first .. end-1. */
static void add(ckv_moments *m, const stored *s, int32_t first, int32_t end) {
	ckv_view view = s->view;
	view.data = (const char *)view.data + (size_t)first * view.stride_token;
	view.n_tokens = end - first;
	assert_int_equal(ckv_moments_add(m, &view), CKV_OK);
}

static void moments_match_two_passes_in_double(void **state) {
	rng r = {1};
	(void)state;
	for (int i = 0; i < 60; i++) {
		tensor x = random_queries(&r);
		stored s = stored_make(&x, CKV_F32, i % 2 ? TOKENS_OUTSIDE : HEADS_OUTSIDE, 4);
		ckv_moments *m = make(&x);
		char what[32];
		snprintf(what, sizeof what, "case %d", i);
		add(m, &s, 0, x.n_tokens);
		check_moments(m, &x, x.n_tokens, what);
		ckv_moments_free(m);
		stored_free(&s);
		tensor_free(&x);
	}
}

/* They may be read in between. */
static void queries_may_come_in_any_pieces(void **state) {
	rng r = {2};
	(void)state;
	for (int i = 0; i < 40; i++) {
		tensor x = random_queries(&r);
		stored s = stored_make(&x, CKV_F32, HEADS_OUTSIDE, 0);
		ckv_moments *m = make(&x);
		for (int32_t first = 0, end; first < x.n_tokens; first = end) {
			end = first + (rng_chance(&r, 3) ? 1 : rng_range(&r, 1, x.n_tokens - first));
			add(m, &s, first, end);
			if (rng_chance(&r, 3) || end == x.n_tokens) {
				char what[32];
				snprintf(what, sizeof what, "case %d, %d rows", i, end);
				check_moments(m, &x, end, what);
			}
		}
		ckv_moments_free(m);
		stored_free(&s);
		tensor_free(&x);
	}
}

/* A mean a thousand times the deviation, as some channels of real queries have it. */
static void a_large_mean_costs_no_digits(void **state) {
	rng r = {3};
	(void)state;
	for (int i = 0; i < 20; i++) {
		tensor x = random_queries(&r);
		for (int32_t j = 0; j < x.n_heads * x.n_tokens * x.dim; j++) {
			x.value[j] += j % x.dim % 2 ? 1000.0f : -500.0f;
		}
		stored s = stored_make(&x, CKV_F32, HEADS_OUTSIDE, 0);
		ckv_moments *m = make(&x);
		add(m, &s, 0, x.n_tokens / 2 ? x.n_tokens / 2 : 1);
		if (x.n_tokens > 1) {
			add(m, &s, x.n_tokens / 2, x.n_tokens);
		}
		check_moments(m, &x, x.n_tokens, "large mean");
		ckv_moments_free(m);
		stored_free(&s);
		tensor_free(&x);
	}
}

/* The first query of a text is often not like the others. */
static void an_unusual_first_query_costs_no_digits(void **state) {
	rng r = {4};
	(void)state;
	tensor x = tensor_random(&r, 2, 2000, 24);
	for (int32_t h = 0; h < x.n_heads; h++) {
		for (int32_t c = 0; c < x.dim; c++) {
			tensor_row(&x, h, 0)[c] = 30.0f;
		}
	}
	stored s = stored_make(&x, CKV_F32, HEADS_OUTSIDE, 0);
	ckv_moments *m = make(&x);
	add(m, &s, 0, x.n_tokens);
	check_moments(m, &x, x.n_tokens, "unusual first query");
	ckv_moments_free(m);
	stored_free(&s);
	tensor_free(&x);
}

static void the_covariance_is_symmetric_and_one_query_has_none(void **state) {
	rng r = {5};
	(void)state;
	tensor x = tensor_random(&r, 2, 50, 20);
	stored s = stored_make(&x, CKV_F32, HEADS_OUTSIDE, 0);
	ckv_moments *m = make(&x);
	float *c = test_memory(squares(&x), sizeof *c), mean[40];
	add(m, &s, 0, 1);
	assert_int_equal(ckv_moments_read(m, mean, c), 1);
	check_bits(tensor_row(&x, 1, 0), mean + 20, 20, "the mean of one");
	for (size_t i = 0; i < squares(&x); i++) {
		CHECK(c[i] == 0.0f, "covariance %zu of one query", i);
	}
	add(m, &s, 1, 50);
	ckv_moments_read(m, NULL, c);
	for (size_t i = 0; i < squares(&x); i++) {
		size_t head = i / 400, row = i / 20 % 20, column = i % 20;
		CHECK(c[i] == c[head * 400 + column * 20 + row], "head %zu, %zu and %zu", head, row, column);
	}
	free(c);
	ckv_moments_free(m);
	stored_free(&s);
	tensor_free(&x);
}

/* The values are exact in every type. */
static void storage_and_instruction_sets_do_not_show(void **state) {
	enum { H = 2, D = 24 };
	static const ckv_dtype dtypes[] = {CKV_F32, CKV_F16, CKV_BF16, CKV_DECODED};
	rng r = {6};
	float expected[H * D * D], mean[H * D], c[H * D * D], other[H * D];
	(void)state;
	tensor x = tensor_random(&r, H, 150, D);
	for (size_t i = 0; i < 8; i++) {
		stored s = stored_make(&x, dtypes[i % 4], i % 3 ? TOKENS_OUTSIDE : HEADS_OUTSIDE, 4 * (i % 2));
		ckv_ctx_options options;
		ckv_moments *m;
		ckv_ctx_options_default(&options);
		options.cpu_disable = i < 4 ? 0 : ~0u;
		assert_int_equal(ckv_moments_create(&m, H, D, &options), CKV_OK);
		add(m, &s, 0, 150);
		ckv_moments_read(m, i ? other : mean, i ? c : expected);
		check_bits(mean, i ? other : mean, H * D, "mean");
		check_bits(expected, i ? c : expected, H * D * D, "covariance");
		ckv_moments_free(m);
		stored_free(&s);
	}
	tensor_free(&x);
}

static void a_reset_forgets_everything(void **state) {
	rng r = {7};
	(void)state;
	tensor x = tensor_random(&r, 2, 40, 9), y = tensor_random(&r, 2, 40, 9);
	stored a = stored_make(&x, CKV_F32, HEADS_OUTSIDE, 0), b = stored_make(&y, CKV_F32, HEADS_OUTSIDE, 0);
	float fresh[2 * 81], used[2 * 81], mean_fresh[18], mean_used[18];
	ckv_moments *m = make(&x), *other = make(&x);
	add(m, &a, 0, 40);
	ckv_moments_reset(m);
	assert_int_equal(ckv_moments_read(m, mean_used, used), 0);
	for (size_t i = 0; i < 18; i++) {
		assert_true(mean_used[i] == 0.0f && used[i] == 0.0f);
	}
	add(m, &b, 0, 40);
	add(other, &b, 0, 40);
	assert_int_equal(ckv_moments_read(m, mean_used, used), 40);
	ckv_moments_read(other, mean_fresh, fresh);
	check_bits(mean_fresh, mean_used, 18, "mean");
	check_bits(fresh, used, 2 * 81, "covariance");
	ckv_moments_free(m);
	ckv_moments_free(other);
	stored_free(&a);
	stored_free(&b);
	tensor_free(&x);
	tensor_free(&y);
}

static void bad_arguments_are_refused(void **state) {
	enum { H = 2, D = 9 };
	rng r = {8};
	ckv_moments *m = NULL;
	float before[H * D * D], after[H * D * D];
	(void)state;
	const int32_t bad[][2] = {{0, D}, {-1, D}, {H, 0}, {H, -4}, {H, 65537}};
	for (size_t i = 0; i < 5; i++) {
		m = (ckv_moments *)(void *)before;
		assert_int_equal(ckv_moments_create(&m, bad[i][0], bad[i][1], NULL), CKV_ERR_ARG);
		assert_null(m);
	}
	assert_int_equal(ckv_moments_create(NULL, H, D, NULL), CKV_ERR_ARG);
	ckv_ctx_options options = {.size = 8};
	assert_int_equal(ckv_moments_create(&m, H, D, &options), CKV_ERR_ARG);
	tensor x = tensor_random(&r, H, 40, D);
	stored s = stored_make(&x, CKV_F32, HEADS_OUTSIDE, 0);
	m = make(&x);
	add(m, &s, 0, 20);
	ckv_moments_read(m, NULL, before);
	ckv_view views[4] = {s.view, s.view, s.view, s.view};
	views[0].n_heads = 1;
	views[1].head_dim = D - 1;
	views[2].data = NULL;
	views[3].n_tokens = 0;
	for (size_t i = 0; i < 4; i++) {
		assert_int_equal(ckv_moments_add(m, &views[i]), CKV_ERR_ARG);
	}
	assert_int_equal(ckv_moments_add(m, NULL), CKV_ERR_ARG);
	assert_int_equal(ckv_moments_add(NULL, &s.view), CKV_ERR_ARG);
	assert_int_equal(ckv_moments_read(m, NULL, after), 20); /* nothing has changed */
	check_bits(before, after, H * D * D, "after refusals");
	ckv_moments_reset(NULL);
	ckv_moments_free(NULL);
	assert_int_equal(ckv_moments_read(NULL, before, after), 0);
	ckv_moments_free(m);
	stored_free(&s);
	tensor_free(&x);
}

static void every_request_for_memory_may_fail(void **state) {
	(void)state;
	for (long n = 1;; n++) {
		counting c;
		ckv_ctx_options options;
		ckv_moments *m = NULL;
		counting_init(&c);
		ckv_ctx_options_default(&options);
		options.allocator = &c.allocator;
		c.refuse_in = n;
		ckv_status status = ckv_moments_create(&m, 3, 16, &options);
		CHECK(status == CKV_OK || (status == CKV_ERR_NOMEM && !m && c.live == 0), "request %ld: %s, %ld blocks are left", n,
		      ckv_strerror(status), c.live);
		ckv_moments_free(m);
		assert_int_equal(c.live, 0);
		if (status == CKV_OK) {
			assert_true(n > 2);
			break;
		}
	}
}

/* However many queries come, and a shape too large for memory is an error. */
static void adding_requests_no_memory(void **state) {
	rng r = {9};
	counting c;
	ckv_ctx_options options;
	ckv_moments *m;
	(void)state;
	counting_init(&c);
	ckv_ctx_options_default(&options);
	options.allocator = &c.allocator;
	assert_int_equal(ckv_moments_create(&m, INT32_MAX, 65536, &options), CKV_ERR_NOMEM);
	assert_true(m == NULL && c.live == 0);
	tensor x = tensor_random(&r, 2, 500, 8);
	stored s = stored_make(&x, CKV_F16, HEADS_OUTSIDE, 0);
	assert_int_equal(ckv_moments_create(&m, 2, 8, &options), CKV_OK);
	long calls = c.calls;
	add(m, &s, 0, 500);
	ckv_moments_read(m, NULL, NULL);
	ckv_moments_reset(m);
	assert_int_equal(c.calls, calls);
	ckv_moments_free(m);
	assert_int_equal(c.live, 0);
	stored_free(&s);
	tensor_free(&x);
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(moments_match_two_passes_in_double),
	    cmocka_unit_test(queries_may_come_in_any_pieces),
	    cmocka_unit_test(a_large_mean_costs_no_digits),
	    cmocka_unit_test(an_unusual_first_query_costs_no_digits),
	    cmocka_unit_test(the_covariance_is_symmetric_and_one_query_has_none),
	    cmocka_unit_test(storage_and_instruction_sets_do_not_show),
	    cmocka_unit_test(a_reset_forgets_everything),
	    cmocka_unit_test(bad_arguments_are_refused),
	    cmocka_unit_test(every_request_for_memory_may_fail),
	    cmocka_unit_test(adding_requests_no_memory),
	};
	return cmocka_run_group_tests_name("moments", tests, NULL, NULL);
}
