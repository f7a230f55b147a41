/* ckv_compact: the kept rows, all of them and nothing else, wherever they go. */
#include "support.h"

#include <stdlib.h>
#include <string.h>

static const ckv_dtype dtypes[] = {CKV_F32, CKV_F16, CKV_BF16, CKV_DECODED};

/* Ascending positions of a random subset, one list or one for each head; lists differ in length when ragged. */
typedef struct choice {
	ckv_keep keep;
	int32_t *positions, *offsets;
} choice;

static int32_t choose(rng *r, int32_t n_tokens, int32_t n, int32_t *out) {
	int32_t chosen = 0;
	for (int32_t t = 0; t < n_tokens; t++) {
		if (rng_range(r, 1, n_tokens - t) <= n - chosen) {
			out[chosen++] = t;
		}
	}
	return chosen;
}

static choice choice_make(rng *r, int32_t n_lists, int32_t n_tokens, bool ragged) {
	choice c;
	int32_t length = rng_range(r, 0, n_tokens), at = 0;
	c.positions = test_memory((size_t)n_lists * (size_t)n_tokens, sizeof *c.positions);
	c.offsets = test_memory((size_t)n_lists + 1, sizeof *c.offsets);
	ckv_keep_init(&c.keep, c.positions, (size_t)n_lists * (size_t)n_tokens, c.offsets);
	c.offsets[0] = 0;
	for (int32_t i = 0; i < n_lists; i++) {
		length = ragged ? rng_range(r, 0, n_tokens) : length;
		at += choose(r, n_tokens, length, c.positions + at);
		c.offsets[i + 1] = at;
		c.keep.n_keep = length > c.keep.n_keep ? length : c.keep.n_keep;
	}
	c.keep.n_lists = n_lists;
	c.keep.n_positions = (size_t)at;
	return c;
}

static void choice_free(choice *c) {
	free(c->positions);
	free(c->offsets);
}

static int32_t list_length(const choice *c, int32_t head) {
	int32_t list = c->keep.n_lists == 1 ? 0 : head;
	return c->offsets[list + 1] - c->offsets[list];
}

static int32_t list_entry(const choice *c, int32_t head, int32_t i) {
	return c->positions[(c->keep.n_lists == 1 ? 0 : c->offsets[head]) + i];
}

static size_t row_size(const ckv_view *v) { return (size_t)v->head_dim * (v->dtype == CKV_F32 ? 4 : 2); }

/* What dst must be: `before` with the kept rows of `source` written at the front of each head. */
static void expect(const ckv_view *v, const unsigned char *source, const choice *c, unsigned char *before,
                   size_t stride_head, size_t stride_token) {
	for (int32_t h = 0; h < v->n_heads; h++) {
		for (int32_t i = 0; i < list_length(c, h); i++) {
			const unsigned char *from = source + (size_t)h * v->stride_head + (size_t)list_entry(c, h, i) * v->stride_token;
			memcpy(before + (size_t)h * stride_head + (size_t)i * stride_token, from, row_size(v));
		}
	}
}

typedef struct test_case {
	tensor t;
	stored s;
	choice c;
} test_case;

static test_case random_case(rng *r, ckv_dtype dtype, layout order, bool ragged) {
	test_case x;
	int32_t n_heads = rng_range(r, 1, 4), n_tokens = rng_range(r, 1, 30);
	x.t = tensor_random(r, n_heads, n_tokens, rng_range(r, 1, 20));
	x.s = stored_make(&x.t, dtype, order, (size_t)rng_range(r, 0, 2) * 4);
	x.c = choice_make(r, rng_chance(r, 2) ? 1 : n_heads, n_tokens, ragged);
	return x;
}

static void case_free(test_case *x) {
	tensor_free(&x->t);
	stored_free(&x->s);
	choice_free(&x->c);
}

static void check_in_place(rng *r, ckv_dtype dtype, layout order, bool ragged) {
	test_case x = random_case(r, dtype, order, ragged);
	ckv_view *v = &x.s.view;
	unsigned char *source = test_memory(x.s.size, 1), *expected = test_memory(x.s.size, 1);
	memcpy(source, x.s.memory, x.s.size);
	memcpy(expected, x.s.memory, x.s.size);
	expect(v, source, &x.c, expected, v->stride_head, v->stride_token);
	assert_int_equal(ckv_compact(v, &x.c.keep, x.s.memory, v->stride_head, v->stride_token), CKV_OK);
	assert_memory_equal(x.s.memory, expected, x.s.size);
	free(source);
	free(expected);
	case_free(&x);
}

/* To a buffer with strides of its own; the cache itself stays as it was. */
static void check_elsewhere(rng *r, ckv_dtype dtype, layout order, bool ragged) {
	test_case x = random_case(r, dtype, order, ragged);
	ckv_view *v = &x.s.view;
	size_t stride_token = row_size(v) + (size_t)rng_range(r, 0, 9);
	size_t stride_head = (size_t)v->n_tokens * stride_token + (size_t)rng_range(r, 0, 50);
	size_t size = (size_t)v->n_heads * stride_head;
	unsigned char *source = test_memory(x.s.size, 1), *dst = test_memory(size, 1), *expected = test_memory(size, 1);
	memcpy(source, x.s.memory, x.s.size);
	paint(dst, size);
	paint(expected, size);
	expect(v, source, &x.c, expected, stride_head, stride_token);
	assert_int_equal(ckv_compact(v, &x.c.keep, dst, stride_head, stride_token), CKV_OK);
	assert_memory_equal(dst, expected, size);
	assert_memory_equal(x.s.memory, source, x.s.size);
	free(source);
	free(dst);
	free(expected);
	case_free(&x);
}

static void for_all(void (*check)(rng *, ckv_dtype, layout, bool), bool ragged) {
	rng r = {1};
	for (int n = 0; n < 100; n++) {
		for (size_t i = 0; i < 4; i++) {
			check(&r, dtypes[i], HEADS_OUTSIDE, ragged);
			check(&r, dtypes[i], TOKENS_OUTSIDE, ragged);
		}
	}
}

static void kept_rows_move_to_the_front_in_place(void **state) {
	(void)state;
	for_all(check_in_place, false);
}

static void kept_rows_are_gathered_elsewhere(void **state) {
	(void)state;
	for_all(check_elsewhere, false);
}

static void ragged_lists_leave_the_rest_of_shorter_heads(void **state) {
	(void)state;
	for_all(check_in_place, true);
	for_all(check_elsewhere, true);
}

static void a_shared_list_needs_no_offsets(void **state) {
	(void)state;
	float cache[2][4] = {{0, 1, 2, 3}, {10, 11, 12, 13}}, expected[2][4] = {{1, 3, 2, 3}, {11, 13, 12, 13}};
	int32_t positions[] = {1, 3};
	ckv_view v = {.data = cache, .n_heads = 2, .n_tokens = 4, .head_dim = 1, .stride_head = 16, .stride_token = 4};
	ckv_keep keep;
	ckv_keep_init(&keep, positions, 2, NULL);
	keep.n_lists = 1;
	keep.n_positions = 2;
	assert_int_equal(ckv_compact(&v, &keep, cache, 16, 4), CKV_OK);
	assert_memory_equal(cache, expected, sizeof cache);
}

/* What ckv_select leaves fits ckv_compact as it is. */
static void selections_can_be_compacted(void **state) {
	static const char *const policies[] = {"chunkkv:window=3", "snapkv:window=3", "full"};
	(void)state;
	for (size_t i = 0; i < 3; i++) {
		rng r = {i + 5};
		test_layer t = test_layer_make(&r, 4, 2, 8, 60, 3);
		int32_t positions[120], offsets[3];
		choice c = {.positions = positions, .offsets = offsets};
		ckv_ctx *ctx = make_ctx(policies[i]);
		ckv_keep_init(&c.keep, positions, 120, offsets);
		assert_int_equal(ckv_select(ctx, &t.layer, ckv_keep_percent(40), &c.keep), CKV_OK);
		unsigned char *expected = test_memory(t.stored_k.size, 1);
		ckv_view *v = &t.stored_k.view;
		memcpy(expected, t.stored_k.memory, t.stored_k.size);
		expect(v, t.stored_k.memory, &c, expected, v->stride_head, v->stride_token);
		assert_int_equal(ckv_compact(v, &c.keep, t.stored_k.memory, v->stride_head, v->stride_token), CKV_OK);
		assert_memory_equal(t.stored_k.memory, expected, t.stored_k.size);
		free(expected);
		ckv_ctx_free(ctx);
		test_layer_free(&t);
	}
}

enum { HEADS = 2, TOKENS = 6 };

/* Refused, with the cache as it was. */
static void check_refused(const ckv_keep *keep, const char *what) {
	float cache[HEADS][TOKENS], before[HEADS][TOKENS];
	ckv_view v = {
	    .data = cache, .n_heads = HEADS, .n_tokens = TOKENS, .head_dim = 1, .stride_head = TOKENS * 4, .stride_token = 4};
	for (int i = 0; i < HEADS * TOKENS; i++) {
		cache[i / TOKENS][i % TOKENS] = (float)i;
	}
	memcpy(before, cache, sizeof cache);
	ckv_status status = ckv_compact(&v, keep, cache, TOKENS * 4, 4);
	CHECK(status == CKV_ERR_ARG, "%s: %s", what, ckv_strerror(status));
	CHECK(memcmp(before, cache, sizeof cache) == 0, "%s: rows were moved", what);
}

static void bad_positions_are_refused_before_anything_moves(void **state) {
	static const int32_t bad[][4] = {
	    {0, 2, 2, 5}, {0, 3, 2, 5},         {-1, 0, 1, 2},        {0, 1, 2, 6},
	    {5, 4, 3, 2}, {0, 1, 2, INT32_MAX}, {INT32_MIN, 1, 2, 3}, {1, 2, 3, -1},
	};
	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		int32_t positions[8] = {1, 2, 3, 4}, offsets[] = {0, 4, 8};
		ckv_keep keep;
		memcpy(positions + 4, bad[i], sizeof bad[i]);
		ckv_keep_init(&keep, positions, 8, offsets);
		keep.n_lists = 2; /* the second head's list is the bad one */
		keep.n_positions = 8;
		check_refused(&keep, "second of two lists");
		ckv_keep_init(&keep, positions + 4, 4, NULL);
		keep.n_lists = 1;
		keep.n_positions = 4;
		check_refused(&keep, "shared list");
	}
}

static void lists_and_heads_that_disagree_are_refused(void **state) {
	static const int32_t bad[][3] = {{0, 4, 9}, {-1, 2, 4}, {0, 4, 2}, {4, 2, 8}, {0, 9, 8}, {0, -1, 4}};
	/* What stands before and behind the lists would pass for more of them. */
	int32_t memory[14] = {0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 2, 3, 4, 5}, *positions = memory + 1, offsets[] = {0, 4, 8, 12};
	ckv_keep keep;
	(void)state;
	ckv_keep_init(&keep, positions, 12, offsets);
	keep.n_lists = 3;
	keep.n_positions = 12;
	check_refused(&keep, "three lists for two heads");
	keep.n_lists = 0;
	check_refused(&keep, "no list");
	keep.n_lists = -1;
	check_refused(&keep, "a negative number of lists");
	keep.n_lists = 2;
	keep.n_positions = 8;
	keep.offsets = NULL;
	check_refused(&keep, "two lists without offsets");
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		memcpy(offsets, bad[i], sizeof bad[i]);
		keep.offsets = offsets;
		check_refused(&keep, "offsets that do not fit");
	}
}

static void missing_arguments_are_refused(void **state) {
	(void)state;
	float cache[4] = {0};
	int32_t positions[] = {0};
	ckv_view v = {.data = cache, .n_heads = 1, .n_tokens = 4, .head_dim = 1, .stride_head = 16, .stride_token = 4};
	ckv_keep keep;
	ckv_keep_init(&keep, positions, 1, NULL);
	keep.n_lists = 1;
	keep.n_positions = 1;
	assert_int_equal(ckv_compact(NULL, &keep, cache, 16, 4), CKV_ERR_ARG);
	assert_int_equal(ckv_compact(&v, NULL, cache, 16, 4), CKV_ERR_ARG);
	assert_int_equal(ckv_compact(&v, &keep, NULL, 16, 4), CKV_ERR_ARG);
	keep.positions = NULL;
	assert_int_equal(ckv_compact(&v, &keep, cache, 16, 4), CKV_ERR_ARG);
	keep.positions = positions;
	v.head_dim = 0;
	assert_int_equal(ckv_compact(&v, &keep, cache, 16, 4), CKV_ERR_ARG);
	v.head_dim = 1;
	v.stride_token = SIZE_MAX;
	assert_int_equal(ckv_compact(&v, &keep, cache, 16, 4), CKV_ERR_ARG);
	v.stride_token = 4;
	assert_int_equal(ckv_compact(&v, &keep, cache, 16, 4), CKV_OK);
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(kept_rows_move_to_the_front_in_place),
	    cmocka_unit_test(kept_rows_are_gathered_elsewhere),
	    cmocka_unit_test(ragged_lists_leave_the_rest_of_shorter_heads),
	    cmocka_unit_test(a_shared_list_needs_no_offsets),
	    cmocka_unit_test(selections_can_be_compacted),
	    cmocka_unit_test(bad_positions_are_refused_before_anything_moves),
	    cmocka_unit_test(lists_and_heads_that_disagree_are_refused),
	    cmocka_unit_test(missing_arguments_are_refused),
	};
	return cmocka_run_group_tests_name("compact", tests, NULL, NULL);
}
