/* The selector hybrid: chunk's result in the lower half of the layers, topk's above. */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { T = 75, G = 2, W = 4 };

static ckv_ctx *ctx_of(const char *selector, bool reference) {
	char policy[96];
	snprintf(policy, sizeof policy, "snapkv:selector=%s,window=%d%s", selector, W, reference ? ",mode=reference" : "");
	return make_ctx(policy);
}

static void check_layer(test_layer *t, int32_t index, int32_t n_layers, bool reference, ckv_budget budget) {
	bool lower = index < n_layers / 2;
	ckv_ctx *hybrid = ctx_of("hybrid", reference), *other = ctx_of(lower ? "chunk" : "topk", reference);
	t->layer.index = index;
	t->layer.n_layers = n_layers;
	selected a = select_layer(hybrid, &t->layer, budget), b = select_layer(other, &t->layer, budget);
	CHECK(same_selected(&a, &b), "layer %d of %d is not %s's", index, n_layers, lower ? "chunk" : "topk");
	CHECK(a.keep.n_lists == (lower ? 1 : G), "layer %d of %d: %d lists", index, n_layers, a.keep.n_lists);
	selected_free(&a);
	selected_free(&b);
	ckv_ctx_free(hybrid);
	ckv_ctx_free(other);
}

/* Of an odd number the middle one belongs to the upper half. */
static void the_lower_half_keeps_chunks_the_upper_single_tokens(void **state) {
	rng r = {1};
	(void)state;
	for (int32_t n_layers = 1; n_layers <= 7; n_layers++) {
		for (int32_t i = 0; i < n_layers; i++) {
			test_layer t = test_layer_make(&r, 4, G, 8, T, W);
			check_layer(&t, i, n_layers, false, ckv_keep_tokens(rng_range(&r, 1, T - 1)));
			check_layer(&t, i, n_layers, true, ckv_remove_fraction(0.6));
			test_layer_free(&t);
		}
	}
}

static void a_cache_shorter_than_a_chunk_is_kept_whole_in_every_layer(void **state) {
	rng r = {2};
	(void)state;
	test_layer t = test_layer_make(&r, 4, G, 8, 9, W);
	ckv_ctx *ctx = ctx_of("hybrid", false);
	t.layer.n_layers = 4;
	for (int32_t i = 0; i < 4; i++) {
		t.layer.index = i;
		selected s = select_layer(ctx, &t.layer, ckv_keep_tokens(3));
		assert_int_equal(s.keep.reason, CKV_KEPT_ALL_CHUNK);
		selected_free(&s);
	}
	ckv_ctx_free(ctx);
	test_layer_free(&t);
}

/* Refused, and nothing written. */
static void check_refused_here(ckv_ctx *ctx, const ckv_layer *layer) {
	int32_t positions[G * T], offsets[G + 1];
	ckv_keep keep, before;
	paint(positions, sizeof positions);
	paint(offsets, sizeof offsets);
	ckv_keep_init(&keep, positions, G * T, offsets);
	before = keep;
	ckv_status status = ckv_select(ctx, layer, ckv_keep_tokens(30), &keep);
	CHECK(status == CKV_ERR_ARG && strstr(ckv_ctx_message(ctx), "hybrid"), "layer %d of %d: %s, '%s'", layer->index,
	      layer->n_layers, ckv_strerror(status), ckv_ctx_message(ctx));
	assert_memory_equal(&before, &keep, sizeof keep);
	assert_true(is_painted(positions, sizeof positions) && is_painted(offsets, sizeof offsets));
}

static void a_layer_that_does_not_know_its_place_is_refused(void **state) {
	static const int32_t bad[][2] = {{0, 0}, {3, 0}, {4, 4}, {-1, 4}, {0, -2}, {INT32_MAX, 2}};
	rng r = {3};
	(void)state;
	test_layer t = test_layer_make(&r, 4, G, 8, T, W);
	ckv_ctx *ctx = ctx_of("hybrid", false);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		t.layer.index = bad[i][0];
		t.layer.n_layers = bad[i][1];
		check_refused_here(ctx, &t.layer);
	}
	ckv_ctx_free(ctx);
	test_layer_free(&t);
}

/* Scores alone have no layer. */
static void scores_without_a_layer_are_refused(void **state) {
	float scores[G * T] = {0};
	int32_t positions[G * T];
	ckv_keep keep;
	(void)state;
	ckv_ctx *ctx = ctx_of("hybrid", false);
	paint(positions, sizeof positions);
	ckv_keep_init(&keep, positions, G * T, NULL);
	assert_int_equal(ckv_select_scores(ctx, scores, G, T, ckv_keep_tokens(30), &keep), CKV_ERR_ARG);
	assert_non_null(strstr(ckv_ctx_message(ctx), "ckv_select"));
	assert_true(is_painted(positions, sizeof positions));
	ckv_ctx_free(ctx);
}

/* Each half needs as much as its selector writes. */
static void room_is_asked_for_by_layer(void **state) {
	rng r = {4};
	ckv_keep keep;
	(void)state;
	test_layer t = test_layer_make(&r, 4, G, 8, T, W);
	ckv_ctx *ctx = ctx_of("hybrid", false);
	t.layer.n_layers = 2;
	for (int32_t i = 0; i < 2; i++) {
		t.layer.index = i;
		ckv_keep_init(&keep, NULL, 0, NULL);
		assert_int_equal(ckv_select(ctx, &t.layer, ckv_keep_tokens(30), &keep), CKV_ERR_CAPACITY);
		assert_int_equal(keep.n_positions, i ? G * 30 : 30);
	}
	ckv_ctx_free(ctx);
	test_layer_free(&t);
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_lower_half_keeps_chunks_the_upper_single_tokens),
	    cmocka_unit_test(a_cache_shorter_than_a_chunk_is_kept_whole_in_every_layer),
	    cmocka_unit_test(a_layer_that_does_not_know_its_place_is_refused),
	    cmocka_unit_test(scores_without_a_layer_are_refused),
	    cmocka_unit_test(room_is_asked_for_by_layer),
	};
	return cmocka_run_group_tests_name("hybrid", tests, NULL, NULL);
}
