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
    "egchunkkv:window=5",
    "egchunkkv:window=5,chunk=7,mode=reference",
    "chunkkv:window=5,chunker=line",
    "egchunkkv:window=5,chunker=line",
    "adakv:window=5",
    "adakv:window=5,mode=reference",
    "hybrid:window=5",
    "h2o",
    "tova",
    "streamingllm",
    "l2norm",
    "l2norm:scorer=key_norm",
    "expected-attention",
    "keydiff",
    "lagkv:lag=16",
    "random",
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

/* A layer that has whatever a policy may ask for. */
typedef struct whole_layer {
	test_layer t;
	ckv_moments *moments;
	float inv_freq[D / 2], mass[G * T];
	int32_t starts[T / 9];
} whole_layer;

static void whole_layer_make(whole_layer *l) {
	rng r = {1};
	l->t = test_layer_make(&r, H, G, D, T, W);
	test_layer_add_values(&l->t, &r, D + 3);
	assert_int_equal(ckv_moments_create(&l->moments, H, D, NULL), CKV_OK);
	assert_int_equal(ckv_moments_add(l->moments, &l->t.layer.q), CKV_OK);
	for (int32_t i = 0; i < D / 2; i++) {
		l->inv_freq[i] = 1.0f / (float)(i + 1);
	}
	for (int32_t i = 0; i < G * T; i++) {
		l->mass[i] = rng_float(&r);
	}
	for (int32_t i = 0; i < T / 9; i++) {
		l->starts[i] = 9 * i;
	}
	l->t.layer.moments = l->moments;
	l->t.layer.rope = (ckv_rope){.n_dims = D, .inv_freq = l->inv_freq};
	l->t.layer.mass = l->mass;
	l->t.layer.mass_stride = T;
	l->t.layer.n_layers = 4;
}

static void whole_layer_free(whole_layer *l) {
	test_layer_free(&l->t);
	ckv_moments_free(l->moments);
}

/* A new scorer or selector is to be tried here too. */
static void every_scorer_and_selector_is_tried(void **state) {
	(void)state;
	for (int kind = 0; kind < 2; kind++) {
		const ckv_method_info *(*list)(size_t) = kind ? ckv_selector_info : ckv_scorer_info;
		for (size_t i = 0; list(i); i++) {
			bool found = false;
			for (size_t p = 0; p < N_POLICIES; p++) {
				ckv_params params;
				assert_int_equal(ckv_policy_parse(policies[p], &params, NULL), CKV_OK);
				found = found || strcmp(kind ? params.selector : params.scorer, list(i)->name) == 0;
			}
			CHECK(found, "no policy here has %s", list(i)->name);
		}
	}
}

static ckv_status create(const char *policy, const counting *c, ckv_ctx **ctx) {
	ckv_params params;
	ckv_ctx_options options;
	ckv_ctx_options_default(&options);
	options.allocator = &c->allocator;
	assert_int_equal(ckv_policy_parse(policy, &params, NULL), CKV_OK);
	return ckv_ctx_create(ctx, &params, &options, NULL);
}

/* The chunks of the layer's tokens, where the policy goes by them. */
static ckv_status set_chunks(ckv_ctx *ctx, const whole_layer *l, int32_t n_tokens) {
	if (strcmp(ckv_ctx_params(ctx)->chunker, "fixed") == 0) {
		return CKV_OK;
	}
	return ckv_set_chunks(ctx, l->starts, (n_tokens + 8) / 9, n_tokens);
}

/* ckv_score, where there is a scorer, then ckv_select without offsets, so that these come from scratch too. */
static ckv_status work_on(ckv_ctx *ctx, const whole_layer *l, const ckv_layer *layer, outcome *o) {
	ckv_status chunked = set_chunks(ctx, l, layer->k.n_tokens);
	if (chunked) {
		return chunked;
	}
	if (strcmp(ckv_ctx_params(ctx)->scorer, "none") != 0) {
		ckv_status status = ckv_score(ctx, layer, ckv_keep_percent(50), o->scores);
		if (status) {
			return status;
		}
	}
	o->keep.offsets = NULL;
	return ckv_select(ctx, layer, ckv_keep_tokens(37), &o->keep);
}

static ckv_status work(ckv_ctx *ctx, const whole_layer *l, outcome *o) { return work_on(ctx, l, &l->t.layer, o); }

static void expected_outcome(const char *policy, const whole_layer *l, outcome *o) {
	ckv_ctx *ctx = make_ctx(policy);
	outcome_init(o);
	CHECK(work(ctx, l, o) == CKV_OK, "%s: %s", policy, ckv_ctx_message(ctx));
	ckv_ctx_free(ctx);
}

/* Request number n fails, alone or with all after it. True when n was beyond the last request. */
static bool torture(const char *policy, const whole_layer *l, const outcome *expected, long n, bool stay) {
	counting c;
	ckv_ctx *ctx;
	outcome o;
	counting_init(&c);
	outcome_init(&o);
	c.refuse_in = n;
	c.stay = stay;
	ckv_status status = create(policy, &c, &ctx);
	if (status == CKV_OK) {
		status = work(ctx, l, &o);
		CHECK(status == CKV_OK || ckv_ctx_message(ctx)[0], "%s: request %ld fails without a message", policy, n);
		if (status != CKV_OK) {
			c.refuse_in = 0; /* memory is back: the same context goes on */
			outcome_init(&o);
			CHECK(work(ctx, l, &o) == CKV_OK, "%s: not after request %ld: %s", policy, n, ckv_ctx_message(ctx));
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
	whole_layer l;
	whole_layer_make(&l);
	for (size_t i = 0; i < N_POLICIES; i++) {
		long n = 1;
		outcome expected;
		expected_outcome(policies[i], &l, &expected);
		while (!torture(policies[i], &l, &expected, n, stay)) {
			n++;
		}
		CHECK(n > 2, "%s: nothing was requested", policies[i]);
	}
	whole_layer_free(&l);
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
static bool select_untouched(const char *policy, const whole_layer *l, long n) {
	counting c;
	ckv_ctx *ctx;
	outcome o;
	counting_init(&c);
	outcome_init(&o);
	assert_int_equal(create(policy, &c, &ctx), CKV_OK);
	assert_int_equal(set_chunks(ctx, l, T), CKV_OK);
	c.refuse_in = n;
	ckv_keep before = o.keep;
	ckv_status status = ckv_select(ctx, &l->t.layer, ckv_keep_tokens(37), &o.keep);
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
	whole_layer l;
	whole_layer_make(&l);
	for (size_t i = 0; i < N_POLICIES; i++) {
		for (long n = 1; !select_untouched(policies[i], &l, n); n++) {
		}
	}
	whole_layer_free(&l);
}

static bool score_untouched(const char *policy, const whole_layer *l, long n) {
	counting c;
	ckv_ctx *ctx;
	outcome o;
	counting_init(&c);
	outcome_init(&o);
	assert_int_equal(create(policy, &c, &ctx), CKV_OK);
	c.refuse_in = n;
	ckv_status status = ckv_score(ctx, &l->t.layer, ckv_keep_percent(50), o.scores);
	if (status != CKV_OK) {
		CHECK(status == CKV_ERR_NOMEM, "%s: request %ld: %s", policy, n, ckv_strerror(status));
		CHECK(is_painted(o.scores, sizeof o.scores), "%s: request %ld: scores were written", policy, n);
	}
	ckv_ctx_free(ctx);
	return status == CKV_OK;
}

static void scoring_without_memory_leaves_the_scores_alone(void **state) {
	(void)state;
	whole_layer l;
	whole_layer_make(&l);
	for (size_t i = 0; i < N_POLICIES; i++) {
		for (long n = 1; strcmp(policies[i], "full") != 0 && !score_untouched(policies[i], &l, n); n++) {
		}
	}
	whole_layer_free(&l);
}

static void the_second_identical_selection_requests_nothing(void **state) {
	(void)state;
	whole_layer l;
	whole_layer_make(&l);
	for (size_t i = 0; i < N_POLICIES; i++) {
		counting c;
		ckv_ctx *ctx;
		outcome o;
		counting_init(&c);
		outcome_init(&o);
		assert_int_equal(create(policies[i], &c, &ctx), CKV_OK);
		assert_int_equal(work(ctx, &l, &o), CKV_OK);
		long calls = c.calls, live = c.live;
		assert_int_equal(work(ctx, &l, &o), CKV_OK);
		CHECK(c.calls == calls && c.live == live, "%s: %ld more requests", policies[i], c.calls - calls);
		ckv_layer shorter = layer_prefix(&l.t.layer, T / 2);
		assert_int_equal(work_on(ctx, &l, &shorter, &o), CKV_OK);
		CHECK(c.calls == calls, "%s: a shorter layer requests more", policies[i]);
		ckv_ctx_free(ctx);
		assert_int_equal(c.live, 0);
	}
	whole_layer_free(&l);
}

/* Request n of ckv_plan or ckv_mass_add fails, after which the same context does it; true when there were fewer. */
static bool others_survive(bool plan, const whole_layer *l, long n) {
	static const float similarity[3] = {0.1f, 0.9f, 0.5f};
	counting c;
	ckv_ctx *ctx;
	ckv_budget budgets[3];
	float sums[G * T] = {0};
	ckv_status status = CKV_OK;
	counting_init(&c);
	assert_int_equal(create("squeezeattention", &c, &ctx), CKV_OK);
	c.refuse_in = n;
	paint(budgets, sizeof budgets);
	for (int time = 0; time < 2; time++) {
		ckv_status now = plan ? ckv_plan(ctx, ckv_keep_tokens(9), 99, 3, similarity, budgets, NULL)
		                      : ckv_mass_add(ctx, &l->t.layer, sums, T);
		status = time ? status : now;
		CHECK(now == CKV_OK || (time == 0 && now == CKV_ERR_NOMEM && ckv_ctx_message(ctx)[0]), "request %ld: %s", n,
		      ckv_strerror(now));
		CHECK(now == CKV_OK || is_painted(budgets, sizeof budgets), "request %ld: budgets were written", n);
	}
	ckv_ctx_free(ctx);
	CHECK(c.live == 0, "request %ld: %ld blocks are left", n, c.live);
	return status == CKV_OK;
}

static void plans_and_sums_survive_a_refusal(void **state) {
	whole_layer l;
	(void)state;
	whole_layer_make(&l);
	for (int plan = 0; plan < 2; plan++) {
		long n = 1;
		while (!others_survive(plan, &l, n)) {
			n++;
		}
		assert_true(n > 1);
	}
	whole_layer_free(&l);
}

/* The chunks set before hold when there is no memory for more. */
static void chunks_hold_when_there_is_no_memory_for_others(void **state) {
	static const int32_t few[] = {0, 50};
	int32_t many[T];
	float scores[T] = {0};
	int32_t positions[T];
	ckv_keep keep;
	counting c;
	ckv_ctx *ctx;
	(void)state;
	for (int32_t i = 0; i < T; i++) {
		many[i] = i;
	}
	counting_init(&c);
	assert_int_equal(create("chunkkv:chunker=line", &c, &ctx), CKV_OK);
	assert_int_equal(ckv_set_chunks(ctx, few, 2, T), CKV_OK);
	c.refuse_in = 1;
	assert_int_equal(ckv_set_chunks(ctx, many, T, T), CKV_ERR_NOMEM);
	ckv_keep_init(&keep, positions, T, NULL);
	assert_int_equal(ckv_select_scores(ctx, scores, 1, T, ckv_keep_tokens(66), &keep), CKV_OK);
	for (int32_t i = 0; i < 50; i++) {
		assert_int_equal(positions[i], i); /* all is equal: the first of the two chunks, whole */
	}
	ckv_ctx_free(ctx);
	assert_int_equal(c.live, 0);
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
		check_huge("egchunkkv:window=4", &shapes[i], ckv_keep_tokens(50));
		check_huge("adakv:window=4", &shapes[i], ckv_keep_tokens(50));
		check_huge("tova", &shapes[i], ckv_keep_tokens(50));
		if (shapes[i].n_tokens > 100 || shapes[i].n_kv_heads > 1) { /* the others need no memory for queries */
			check_huge("l2norm", &shapes[i], ckv_keep_tokens(50));
			check_huge("random", &shapes[i], ckv_keep_tokens(50));
		}
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
	    cmocka_unit_test(every_scorer_and_selector_is_tried),
	    cmocka_unit_test(every_request_may_fail_once),
	    cmocka_unit_test(every_request_and_all_after_it_may_fail),
	    cmocka_unit_test(a_selection_without_memory_leaves_its_outputs_alone),
	    cmocka_unit_test(scoring_without_memory_leaves_the_scores_alone),
	    cmocka_unit_test(the_second_identical_selection_requests_nothing),
	    cmocka_unit_test(plans_and_sums_survive_a_refusal),
	    cmocka_unit_test(chunks_hold_when_there_is_no_memory_for_others),
	    cmocka_unit_test(scratch_grows_and_stays),
	    cmocka_unit_test(a_million_tokens_are_scored_and_selected),
	    cmocka_unit_test(sizes_beyond_memory_are_errors),
	    cmocka_unit_test(too_many_positions_are_an_error),
	    cmocka_unit_test(scores_beyond_memory_are_errors),
	};
	return cmocka_run_group_tests_name("alloc", tests, NULL, NULL);
}
