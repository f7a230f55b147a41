/* Memory: every request may fail, nothing leaks, the context works again afterwards, scratch is reused, no size wraps. */
#include "support.h"

#include "core/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { T = 90, W = 5, D = 12, H = 6, G = 2 };

static const char *const policies[] = {
    "chunkkv:window=5,chunk=40",
    "snapkv:window=5",
    "chunkkv:window=5,chunk=7,mode=reference",
    "chunkkv:window=5,chunk=1",
    "snapkv:window=5,mode=reference",
    "full",
};
enum { N_POLICIES = sizeof policies / sizeof *policies };

typedef struct outcome {
	float scores[G * T];
	int32_t positions[G * T], offsets[G + 1];
	ckv_keep keep;
} outcome;

static void outcome_init(outcome *o) {
	paint(o, sizeof *o);
	ckv_keep_init(&o->keep, o->positions, G * T, o->offsets);
}

/* Whether two calls said the same; a policy without scorer leaves the scores painted in both. */
static bool same_outcome(const outcome *a, const outcome *b) {
	return memcmp(a->scores, b->scores, sizeof a->scores) == 0 &&
	       memcmp(a->positions, b->positions, sizeof a->positions) == 0 && a->keep.n_positions == b->keep.n_positions &&
	       a->keep.n_lists == b->keep.n_lists && a->keep.attention_kept == b->keep.attention_kept;
}

static test_layer some_layer(void) {
	rng r = {1};
	return test_layer_make(&r, H, G, D, T, W);
}

static ckv_status create(const char *policy, const counting *c, ckv_ctx **ctx) {
	ckv_params params;
	ckv_ctx_options options;
	ckv_ctx_options_default(&options);
	options.allocator = &c->allocator;
	assert_int_equal(ckv_policy_parse(policy, &params, NULL), CKV_OK);
	return ckv_ctx_create(ctx, &params, &options, NULL);
}

/* ckv_score, where there is a scorer, then ckv_select without offsets, so that these come from scratch too. */
static ckv_status work(ckv_ctx *ctx, const ckv_layer *layer, outcome *o) {
	if (strcmp(ckv_ctx_params(ctx)->scorer, "none") != 0) {
		ckv_status status = ckv_score(ctx, layer, ckv_keep_percent(50), o->scores);
		if (status) {
			return status;
		}
	}
	o->keep.offsets = NULL;
	return ckv_select(ctx, layer, ckv_keep_tokens(37), &o->keep);
}

static void expected_outcome(const char *policy, const ckv_layer *layer, outcome *o) {
	ckv_ctx *ctx = make_ctx(policy);
	outcome_init(o);
	CHECK(work(ctx, layer, o) == CKV_OK, "%s: %s", policy, ckv_ctx_message(ctx));
	ckv_ctx_free(ctx);
}

/* Request number n fails, alone or with all after it. True when n was beyond the last request. */
static bool torture(const char *policy, const ckv_layer *layer, const outcome *expected, long n, bool stay) {
	counting c;
	ckv_ctx *ctx;
	outcome o;
	counting_init(&c);
	outcome_init(&o);
	c.refuse_in = n;
	c.stay = stay;
	ckv_status status = create(policy, &c, &ctx);
	if (status == CKV_OK) {
		status = work(ctx, layer, &o);
		CHECK(status == CKV_OK || ckv_ctx_message(ctx)[0], "%s: request %ld fails without a message", policy, n);
		if (status != CKV_OK) {
			c.refuse_in = 0; /* memory is back: the same context goes on */
			outcome_init(&o);
			CHECK(work(ctx, layer, &o) == CKV_OK, "%s: not after request %ld: %s", policy, n, ckv_ctx_message(ctx));
		}
		CHECK(same_outcome(&o, expected), "%s: request %ld changed the result", policy, n);
	} else {
		CHECK(ctx == NULL, "%s: request %ld left a context", policy, n);
	}
	CHECK(status == CKV_OK || status == CKV_ERR_NOMEM, "%s: request %ld: %s", policy, n, ckv_strerror(status));
	ckv_ctx_free(ctx);
	CHECK(c.live == 0, "%s: request %ld: %ld blocks are left", policy, n, c.live);
	return status == CKV_OK;
}

static void torture_all(bool stay) {
	test_layer t = some_layer();
	for (size_t i = 0; i < N_POLICIES; i++) {
		long n = 1;
		outcome expected;
		expected_outcome(policies[i], &t.layer, &expected);
		while (!torture(policies[i], &t.layer, &expected, n, stay)) {
			n++;
		}
		CHECK(n > 2, "%s: nothing was requested", policies[i]);
	}
	test_layer_free(&t);
}

static void every_request_may_fail_once(void **state) {
	(void)state;
	torture_all(false);
}

static void every_request_and_all_after_it_may_fail(void **state) {
	(void)state;
	torture_all(true);
}

/* Request n of one ckv_select fails; true when there were fewer. */
static bool select_untouched(const char *policy, const ckv_layer *layer, long n) {
	counting c;
	ckv_ctx *ctx;
	outcome o;
	counting_init(&c);
	outcome_init(&o);
	assert_int_equal(create(policy, &c, &ctx), CKV_OK);
	c.refuse_in = n;
	ckv_keep before = o.keep;
	ckv_status status = ckv_select(ctx, layer, ckv_keep_tokens(37), &o.keep);
	if (status != CKV_OK) {
		CHECK(status == CKV_ERR_NOMEM, "%s: request %ld: %s", policy, n, ckv_strerror(status));
		CHECK(is_painted(o.positions, sizeof o.positions), "%s: request %ld: positions were written", policy, n);
		CHECK(is_painted(o.offsets, sizeof o.offsets), "%s: request %ld: offsets were written", policy, n);
		CHECK(memcmp(&before, &o.keep, sizeof before) == 0, "%s: request %ld: keep was written", policy, n);
	}
	ckv_ctx_free(ctx);
	return status == CKV_OK;
}

static void a_selection_without_memory_leaves_its_outputs_alone(void **state) {
	(void)state;
	test_layer t = some_layer();
	for (size_t i = 0; i < N_POLICIES; i++) {
		for (long n = 1; !select_untouched(policies[i], &t.layer, n); n++) {
		}
	}
	test_layer_free(&t);
}

static bool score_untouched(const char *policy, const ckv_layer *layer, long n) {
	counting c;
	ckv_ctx *ctx;
	outcome o;
	counting_init(&c);
	outcome_init(&o);
	assert_int_equal(create(policy, &c, &ctx), CKV_OK);
	c.refuse_in = n;
	ckv_status status = ckv_score(ctx, layer, ckv_keep_percent(50), o.scores);
	if (status != CKV_OK) {
		CHECK(status == CKV_ERR_NOMEM, "%s: request %ld: %s", policy, n, ckv_strerror(status));
		CHECK(is_painted(o.scores, sizeof o.scores), "%s: request %ld: scores were written", policy, n);
	}
	ckv_ctx_free(ctx);
	return status == CKV_OK;
}

static void scoring_without_memory_leaves_the_scores_alone(void **state) {
	(void)state;
	test_layer t = some_layer();
	for (size_t i = 0; i < N_POLICIES; i++) {
		for (long n = 1; strcmp(policies[i], "full") != 0 && !score_untouched(policies[i], &t.layer, n); n++) {
		}
	}
	test_layer_free(&t);
}

static void the_second_identical_selection_requests_nothing(void **state) {
	(void)state;
	test_layer t = some_layer();
	for (size_t i = 0; i < N_POLICIES; i++) {
		counting c;
		ckv_ctx *ctx;
		outcome o;
		counting_init(&c);
		outcome_init(&o);
		assert_int_equal(create(policies[i], &c, &ctx), CKV_OK);
		assert_int_equal(work(ctx, &t.layer, &o), CKV_OK);
		long calls = c.calls, live = c.live;
		assert_int_equal(work(ctx, &t.layer, &o), CKV_OK);
		CHECK(c.calls == calls && c.live == live, "%s: %ld more requests", policies[i], c.calls - calls);
		ckv_layer shorter = t.layer;
		shorter.k.n_tokens = T / 2;
		assert_int_equal(work(ctx, &shorter, &o), CKV_OK);
		CHECK(c.calls == calls, "%s: a shorter layer requests more", policies[i]);
		ckv_ctx_free(ctx);
		assert_int_equal(c.live, 0);
	}
	test_layer_free(&t);
}

static void scratch_grows_and_stays(void **state) {
	(void)state;
	counting c;
	ckv_ctx *ctx;
	counting_init(&c);
	assert_int_equal(create("full", &c, &ctx), CKV_OK);
	long calls = c.calls, live = c.live;
	void *first = ckv_scratch(ctx, SLOT_KEYS, 0, 8);
	assert_non_null(first);
	assert_ptr_equal(ckv_scratch(ctx, SLOT_KEYS, 0, 8), first);
	assert_int_equal(c.calls, calls + 1);
	unsigned char *bigger = ckv_scratch(ctx, SLOT_KEYS, 100, 8);
	assert_non_null(bigger);
	paint(bigger, 800); /* all of it is there */
	assert_ptr_equal(ckv_scratch(ctx, SLOT_KEYS, 200, 4), bigger);
	assert_int_equal(c.calls, calls + 2);
	assert_int_equal(c.live, live + 1); /* the smaller one is gone */
	c.refuse_in = 1;
	assert_null(ckv_scratch(ctx, SLOT_KEYS, 101, 8));
	assert_ptr_equal(ckv_scratch(ctx, SLOT_KEYS, 100, 8), bigger); /* a refusal loses nothing */
	assert_null(ckv_scratch(ctx, SLOT_KEYS, SIZE_MAX / 2, 8));
	assert_null(ckv_scratch(ctx, SLOT_KEYS, SIZE_MAX, 1));
	assert_null(ckv_scratch(ctx, SLOT_KEYS, SIZE_MAX / 8 + 2, 8)); /* 8 bytes, if the product wraps */
	ckv_ctx_free(ctx);
	assert_int_equal(c.live, 0);
}

/* ----------------------------------------------------------------- sizes */

/* A view of any shape over one row: strides of 0 make every row the same one. */
static ckv_view flat_view(const float *row, int32_t n_heads, int32_t n_tokens, int32_t dim) {
	ckv_view v = {.data = row, .dtype = CKV_F32, .n_heads = n_heads, .n_tokens = n_tokens, .head_dim = dim};
	return v;
}

static ckv_layer flat_layer(const float *row, int32_t n_q_heads, int32_t n_kv_heads, int32_t n_tokens, int32_t dim) {
	ckv_layer layer;
	ckv_layer_init(&layer);
	layer.k = flat_view(row, n_kv_heads, n_tokens, dim);
	layer.q = flat_view(row, n_q_heads, 4, dim);
	return layer;
}

static const float row[64] = {1.0f, -0.5f, 0.25f};

/* All keys are equal, so attention is uniform, but for the window's own mask. */
static void a_million_tokens_are_scored_and_selected(void **state) {
	enum { MILLION = 1000000, KEEP = 100000 };
	(void)state;
	ckv_layer layer = flat_layer(row, 1, 1, MILLION, 3);
	ckv_ctx *ctx = make_ctx("chunkkv:window=1,kernel=1,sinks=4,chunk=10");
	float *scores = test_memory(MILLION, sizeof *scores);
	int32_t *positions = test_memory(KEEP, sizeof *positions);
	assert_int_equal(ckv_score(ctx, &layer, ckv_keep_percent(50), scores), CKV_OK);
	for (size_t i = 0; i < MILLION - 1; i++) {
		CHECK(scores_equal(1e-6, (double)scores[i]), "token %zu has %g", i, (double)scores[i]);
	}
	ckv_keep keep;
	ckv_keep_init(&keep, positions, KEEP, NULL);
	assert_int_equal(ckv_select(ctx, &layer, ckv_keep_percent(10), &keep), CKV_OK);
	assert_int_equal(keep.n_keep, KEEP);
	assert_true(positions[3] == 3 && positions[KEEP - 1] == MILLION - 1);
	assert_true(keep.attention_kept > 0.0999f && keep.attention_kept < 0.1001f);
	free(scores);
	free(positions);
	ckv_ctx_free(ctx);
}

typedef struct huge {
	int32_t n_q_heads, n_kv_heads, n_tokens, dim;
} huge;

static const huge shapes[] = {
    {INT32_MAX, INT32_MAX, CKV_MAX_TOKENS, 64},
    {INT32_MAX, 1, 100, 64},
    {INT32_MAX, INT32_MAX, 100, 64},
    {1, 1, CKV_MAX_TOKENS, 64},
    {1 << 30, 1 << 30, 1 << 30, 64},
    {1 << 20, 1 << 20, 1 << 24, 1},
    {65536, 1, 1 << 30, 1},
    {1 << 30, 1 << 15, 1 << 16, 64},
};

/* An allocator that has a quarter of a gigabyte for each request; the array claims to be as large as is asked for. */
static void check_huge(const char *policy, const huge *s, ckv_budget budget) {
	counting c;
	ckv_ctx *ctx;
	ckv_keep keep;
	int32_t position;
	ckv_layer layer = flat_layer(row, s->n_q_heads, s->n_kv_heads, s->n_tokens, s->dim);
	counting_init(&c);
	assert_int_equal(create(policy, &c, &ctx), CKV_OK);
	paint(&position, sizeof position);
	ckv_keep_init(&keep, &position, SIZE_MAX, NULL);
	ckv_status status = ckv_select(ctx, &layer, budget, &keep);
	CHECK(status == CKV_ERR_NOMEM && ckv_ctx_message(ctx)[0], "%s, [%d][%d]: %s", policy, s->n_kv_heads, s->n_tokens,
	      ckv_strerror(status));
	CHECK(is_painted(&position, sizeof position), "%s, [%d][%d]: something was written", policy, s->n_kv_heads, s->n_tokens);
	ckv_ctx_free(ctx);
	assert_int_equal(c.live, 0);
}

static void sizes_beyond_memory_are_errors(void **state) {
	(void)state;
	for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
		check_huge("chunkkv:window=4", &shapes[i], ckv_keep_tokens(50));
		check_huge("snapkv:window=4", &shapes[i], ckv_keep_tokens(50));
		check_huge("chunkkv:window=4,mode=reference", &shapes[i], ckv_keep_tokens(50));
	}
}

/* More than 2^31 positions in one layer cannot be told with 32-bit offsets. */
static void too_many_positions_are_an_error(void **state) {
	(void)state;
	const huge s = {1 << 20, 1 << 20, 1 << 20, 1};
	check_huge("snapkv:window=4", &s, ckv_keep_tokens(4096));
	check_huge("snapkv:window=4", &s, ckv_keep_percent(100));
	ckv_layer layer = flat_layer(row, s.n_q_heads, s.n_kv_heads, s.n_tokens, s.dim);
	ckv_keep keep;
	ckv_ctx *ctx = make_ctx("snapkv:window=4");
	ckv_keep_init(&keep, NULL, 0, NULL); /* no capacity would be enough, so it is not asked for */
	assert_int_equal(ckv_select(ctx, &layer, ckv_keep_tokens(2048), &keep), CKV_ERR_NOMEM);
	assert_int_equal(ckv_select(ctx, &layer, ckv_keep_tokens(2047), &keep), CKV_ERR_CAPACITY);
	assert_int_equal(keep.n_positions, 2047u << 20);
	ckv_ctx_free(ctx);
}

static void scores_beyond_memory_are_errors(void **state) {
	(void)state;
	for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
		counting c;
		ckv_ctx *ctx;
		float score;
		ckv_layer layer = flat_layer(row, shapes[i].n_q_heads, shapes[i].n_kv_heads, shapes[i].n_tokens, shapes[i].dim);
		counting_init(&c);
		assert_int_equal(create("snapkv:window=4", &c, &ctx), CKV_OK);
		paint(&score, sizeof score);
		CHECK(ckv_score(ctx, &layer, ckv_keep_percent(50), &score) == CKV_ERR_NOMEM, "shape %zu", i);
		assert_true(is_painted(&score, sizeof score));
		ckv_ctx_free(ctx);
		assert_int_equal(c.live, 0);
	}
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_request_may_fail_once),
	    cmocka_unit_test(every_request_and_all_after_it_may_fail),
	    cmocka_unit_test(a_selection_without_memory_leaves_its_outputs_alone),
	    cmocka_unit_test(scoring_without_memory_leaves_the_scores_alone),
	    cmocka_unit_test(the_second_identical_selection_requests_nothing),
	    cmocka_unit_test(scratch_grows_and_stays),
	    cmocka_unit_test(a_million_tokens_are_scored_and_selected),
	    cmocka_unit_test(sizes_beyond_memory_are_errors),
	    cmocka_unit_test(too_many_positions_are_an_error),
	    cmocka_unit_test(scores_beyond_memory_are_errors),
	};
	return cmocka_run_group_tests_name("alloc", tests, NULL, NULL);
}
