/* Cache merging in batches: what the vectors of kvpress do not show. */
#include "support.h"

#include "quant/quant.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { T = 10, D = 3 };

/* ------------------------------------------------------------------------------------------------------ choice */

static void chosen(const float *scores, int32_t n_kept, int32_t n_merged, const int32_t *kept, const int32_t *merged) {
	int32_t found_kept[T], found_merged[T];
	ckv_cam cam = {n_kept, n_merged, 1, found_kept, found_merged};
	ckv_ctx *ctx = make_ctx("full");
	assert_int_equal(ckv_cam_choose(ctx, scores, T, &cam), CKV_OK);
	assert_memory_equal(found_kept, kept, (size_t)n_kept * sizeof *kept);
	assert_memory_equal(found_merged, merged, (size_t)n_merged * sizeof *merged);
	ckv_ctx_free(ctx);
}

static void the_best_are_kept_and_the_next_are_merged(void **state) {
	static const float scores[T] = {5, -9, 8, 1, 7, 3, -8, 9, 2, 4};
	(void)state;
	chosen(scores, 3, 2, (int32_t[]){2, 4, 7}, (int32_t[]){0, 9});
	chosen(scores, 3, 3, (int32_t[]){2, 4, 7}, (int32_t[]){0, 5, 9});
	chosen(scores, 1, 9, (int32_t[]){7}, (int32_t[]){0, 1, 2, 3, 4, 5, 6, 8, 9});
	chosen(scores, 10, 0, (int32_t[]){0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, NULL);
}

static void of_equals_the_first_are_kept_and_the_last_are_merged(void **state) {
	static const float scores[T] = {0};
	(void)state;
	chosen(scores, 3, 2, (int32_t[]){0, 1, 2}, (int32_t[]){8, 9});
	chosen(scores, 4, 3, (int32_t[]){0, 1, 2, 3}, (int32_t[]){7, 8, 9});
}

static void every_request_for_memory_may_fail(void **state) {
	static const float scores[T] = {0};
	int32_t kept[T], merged[T];
	ckv_cam cam = {3, 2, 1, kept, merged};
	long n = 1;
	(void)state;
	for (ckv_status status = CKV_ERR_NOMEM; status != CKV_OK; n++) {
		counting counter;
		ckv_ctx_options options;
		counting_init(&counter);
		ckv_ctx_options_default(&options);
		options.allocator = &counter.allocator;
		ckv_ctx *ctx = make_ctx_with("full", &options);
		counter.refuse_in = n;
		status = ckv_cam_choose(ctx, scores, T, &cam);
		assert_true(status == CKV_OK || status == CKV_ERR_NOMEM);
		ckv_ctx_free(ctx);
		assert_int_equal(counter.live, 0);
	}
	assert_true(n > 3);
}

/* ----------------------------------------------------------------------------------------------------- merging */

/* Tokens 1, 4, 5 and 8 of 10 are kept, 3, 7 and 9 merged. Token t's value is 2^t in channel 0. */
typedef struct cam_case {
	float v[T][D], attention[T], draws[3], probability[3], row[D], out[4][D];
	int32_t kept[4], merged[3];
	ckv_view view;
	ckv_cam cam;
} cam_case;

static void cam_make(cam_case *c, int32_t window) {
	static const int32_t kept[] = {1, 4, 5, 8}, merged[] = {3, 7, 9};
	memset(c, 0, sizeof *c);
	for (int t = 0; t < T; t++) {
		c->v[t][0] = (float)(1 << t);
		c->attention[t] = 1.0f;
	}
	memcpy(c->kept, kept, sizeof kept);
	memcpy(c->merged, merged, sizeof merged);
	c->view = (ckv_view){.data = c->v, .n_heads = 1, .n_tokens = T, .head_dim = D, .stride_token = sizeof c->v[0]};
	c->cam = (ckv_cam){4, 3, window, c->kept, c->merged};
}

static ckv_status cam_merge(cam_case *c) {
	ckv_error error;
	paint(c->out, sizeof c->out);
	ckv_status status = ckv_cam_merge(ckv_kernels_c(), &c->view, 0, &c->cam, c->attention, c->draws, c->probability, c->row,
	                                  &c->out[0][0], &error);
	assert_true(status == CKV_OK || error.message[0]);
	return status;
}

static void expect(const cam_case *c, const float *values, const float *probability) {
	for (int i = 0; i < 4; i++) {
		CHECK(fabsf(c->out[i][0] - values[i]) < 1e-4f, "kept token %d: %g expected, %g found", i, (double)values[i],
		      (double)c->out[i][0]);
		assert_true(fabsf(c->out[i][1]) + fabsf(c->out[i][2]) < 1e-30f);
	}
	for (int i = 0; i < 3; i++) {
		CHECK(fabsf(c->probability[i] - probability[i]) < 1e-6f, "merged token %d: %g expected, %g found", i,
		      (double)probability[i], (double)c->probability[i]);
	}
}

/* At the end the window is shorter, and the parts larger; behind the last kept token there is none. */
static void the_kept_tokens_behind_share_the_value(void **state) {
	cam_case c;
	(void)state;
	cam_make(&c, 2);
	assert_int_equal(cam_merge(&c), CKV_OK);
	expect(&c, (float[]){2, 16 + 4, 32 + 4, 256 + 128}, (float[]){1, 1, 1});
	cam_make(&c, 1000000000);
	assert_int_equal(cam_merge(&c), CKV_OK);
	float third = 8.0f / 3.0f;
	expect(&c, (float[]){2, 16 + third, 32 + third, 256 + third + 128}, (float[]){1, 1, 1});
}

/* Attention of the token over the window's mean, at most 1; where there is none to divide by: 1, or 0 of 0. */
static void the_probability_is_a_share_of_the_windows_mean(void **state) {
	cam_case c;
	(void)state;
	cam_make(&c, 2);
	c.attention[3] = 0.75f;
	c.attention[4] = 2.5f;
	c.attention[5] = 0.5f;
	c.attention[8] = c.attention[9] = 0.0f;
	c.draws[0] = 0.5f; /* not below it */
	c.draws[1] = 0.999f;
	assert_int_equal(cam_merge(&c), CKV_OK);
	expect(&c, (float[]){2, 16, 32, 256 + 128}, (float[]){0.5f, 1, 0});
	c.draws[0] = 0.4999f;
	c.attention[7] = 0.0f;
	c.draws[1] = 0.0f;
	assert_int_equal(cam_merge(&c), CKV_OK);
	expect(&c, (float[]){2, 16 + 4, 32 + 4, 256}, (float[]){0.5f, 0, 0});
}

static void values_that_are_not_finite_are_errors(void **state) {
	static const int32_t tokens[] = {4, 7};
	cam_case c;
	(void)state;
	for (int i = 0; i < 4; i++) {
		cam_make(&c, 2);
		*(i < 2 ? &c.v[tokens[i]][2] : &c.attention[tokens[i - 2]]) = i % 2 ? NAN : INFINITY;
		assert_int_equal(cam_merge(&c), CKV_ERR_NUMERIC);
	}
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_best_are_kept_and_the_next_are_merged),
	    cmocka_unit_test(of_equals_the_first_are_kept_and_the_last_are_merged),
	    cmocka_unit_test(every_request_for_memory_may_fail),
	    cmocka_unit_test(the_kept_tokens_behind_share_the_value),
	    cmocka_unit_test(the_probability_is_a_share_of_the_windows_mean),
	    cmocka_unit_test(values_that_are_not_finite_are_errors),
	};
	return cmocka_run_group_tests_name("cam", tests, NULL, NULL);
}
