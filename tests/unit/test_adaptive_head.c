/* The selector adaptive_head against a plain implementation of its rule, in reference and exact mode. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TOKENS = 60, MOST_HEADS = 4 };

typedef struct request {
	bool reference;
	int32_t n_heads, n_tokens, window, sinks;
	double safeguard;
	ckv_budget budget;
	float scores[MOST_HEADS * MOST_TOKENS];
} request;

static const char *describe(const request *q) {
	static char text[160];
	snprintf(text, sizeof text, "%s, G %d, T %d, window %d, sinks %d, safeguard %g, budget %d:%.17g",
	         q->reference ? "reference" : "exact", q->n_heads, q->n_tokens, q->window, q->sinks, q->safeguard,
	         (int)q->budget.kind, q->budget.value);
	return text;
}

static int32_t smaller(int32_t a, int32_t b) { return a < b ? a : b; }

static request random_request(rng *r, bool reference) {
	static const double safeguards[] = {0.0, 0.2, 0.5, 1.0};
	request q = {.reference = reference};
	q.n_heads = rng_range(r, 1, MOST_HEADS);
	q.n_tokens = rng_chance(r, 3) ? rng_range(r, 1, 12) : rng_range(r, 1, MOST_TOKENS);
	q.window = rng_range(r, 1, rng_chance(r, 2) ? 3 : 20);
	q.sinks = rng_chance(r, 2) ? 0 : rng_range(r, 0, 9);
	q.safeguard = rng_chance(r, 3) ? fabs((double)rng_float(r)) : safeguards[rng_range(r, 0, 3)];
	q.budget = rng_chance(r, 2) ? ckv_remove_fraction(rng_range(r, 0, 99) * 0.01)
	                            : ckv_keep_tokens(rng_range(r, 1, q.n_tokens + 1));
	exact_scores(r, q.scores, q.n_heads * q.n_tokens);
	return q;
}

static ckv_ctx *request_ctx(const request *q, const char *selector) {
	ckv_params p;
	ckv_ctx *ctx;
	ckv_error error;
	ckv_params_default(&p);
	p.selector = selector;
	p.reference = q->reference;
	p.window = q->window;
	p.sinks = q->sinks;
	p.safeguard = q->safeguard;
	CHECK(ckv_ctx_create(&ctx, &p, NULL, &error) == CKV_OK, "%s: %s", describe(q), error.message);
	return ctx;
}

static selected run(const request *q, const char *selector) {
	ckv_ctx *ctx = request_ctx(q, selector);
	selected s = select_scores(ctx, q->scores, q->n_heads, q->n_tokens, q->budget);
	ckv_ctx_free(ctx);
	return s;
}

static int32_t budget_tokens(const request *q) {
	int32_t n = 0;
	assert_int_equal(ckv_budget_resolve(q->budget, q->n_tokens, &n), CKV_OK);
	return smaller(n, q->n_tokens);
}

/* Tokens of a head's budget that are its own for certain. */
static int32_t n_safe(const request *q, int32_t n_open) {
	int32_t n = (int32_t)((double)n_open * q->safeguard);
	return smaller(q->safeguard > 0.0 && n < 1 ? 1 : n, n_open);
}

/* The protected tokens, each head's safe ones, then the best of all heads together, one by one. */
static void naive_select(const request *q, unsigned char *kept) {
	double scores[MOST_HEADS * MOST_TOKENS];
	int32_t n = q->n_tokens, all = q->n_heads * n, budget = budget_tokens(q), open = budget;
	memset(kept, 0, MOST_HEADS * MOST_TOKENS);
	for (int32_t i = 0; i < all; i++) {
		scores[i] = (double)q->scores[i];
	}
	for (int32_t h = 0; h < q->n_heads; h++) {
		open = q->reference ? budget : naive_protect(n, q->sinks, q->window, budget, kept + h * n);
		naive_best(scores, h * n, h * n + n, n_safe(q, open), kept);
	}
	naive_best(scores, 0, all, (open - n_safe(q, open)) * q->n_heads, kept);
}

static void many_against_naive(bool reference) {
	rng r = {1};
	for (int n = 0; n < 5000; n++) {
		request q = random_request(&r, reference);
		unsigned char expected[MOST_HEADS * MOST_TOKENS];
		selected s = run(&q, "adaptive_head");
		naive_select(&q, expected);
		for (int32_t i = 0; i < q.n_heads * q.n_tokens; i++) {
			CHECK(s.mask[i] == expected[i], "%s: head %d, token %d is %s", describe(&q), i / q.n_tokens, i % q.n_tokens,
			      s.mask[i] ? "kept" : "dropped");
		}
		selected_free(&s);
	}
}

static void exact_mode_matches_a_plain_implementation(void **state) {
	(void)state;
	many_against_naive(false);
}

static void reference_mode_matches_a_plain_implementation(void **state) {
	(void)state;
	many_against_naive(true);
}

static void the_heads_together_keep_exactly_their_budget(void **state) {
	rng r = {2};
	int ragged = 0;
	(void)state;
	for (int n = 0; n < 2000; n++) {
		request q = random_request(&r, n % 2);
		selected s = run(&q, "adaptive_head");
		int32_t budget = budget_tokens(&q), total = 0;
		for (int32_t h = 0; h < q.n_heads; h++) {
			int32_t closed = q.reference ? 0 : smaller(q.sinks + q.window, budget);
			total += n_kept(&s, h);
			ragged += s.keep.reason == CKV_SELECTED && n_kept(&s, h) != budget;
			CHECK(n_kept(&s, h) >= closed + n_safe(&q, budget - closed), "%s: head %d has %d", describe(&q), h,
			      n_kept(&s, h));
		}
		CHECK(total == budget * q.n_heads, "%s: %d", describe(&q), total);
		selected_free(&s);
	}
	assert_true(ragged > 100);
}

static void protected_tokens_stay_in_every_head(void **state) {
	rng r = {3};
	(void)state;
	for (int n = 0; n < 2000; n++) {
		request q = random_request(&r, false);
		selected s = run(&q, "adaptive_head");
		int32_t budget = budget_tokens(&q), sinks = smaller(q.sinks, budget), window = smaller(q.window, budget - sinks);
		for (int32_t i = 0; i < q.n_heads * q.n_tokens; i++) {
			int32_t t = i % q.n_tokens;
			CHECK(s.mask[i] || (t >= sinks && t < q.n_tokens - window), "%s: head %d lost token %d", describe(&q),
			      i / q.n_tokens, t);
		}
		selected_free(&s);
	}
}

/* With all of its budget safe a head keeps its own best, as topk does. */
static void a_safeguard_of_one_is_topk(void **state) {
	rng r = {4};
	(void)state;
	for (int n = 0; n < 1000; n++) {
		request q = random_request(&r, n % 2);
		q.safeguard = 1.0;
		selected a = run(&q, "adaptive_head"), b = run(&q, "topk");
		CHECK(memcmp(a.mask, b.mask, (size_t)(q.n_heads * q.n_tokens)) == 0, "%s", describe(&q));
		selected_free(&a);
		selected_free(&b);
	}
}

static void one_head_alone_is_topk(void **state) {
	rng r = {5};
	(void)state;
	for (int n = 0; n < 1000; n++) {
		request q = random_request(&r, n % 2);
		q.n_heads = 1;
		selected a = run(&q, "adaptive_head"), b = run(&q, "topk");
		CHECK(memcmp(a.mask, b.mask, (size_t)q.n_tokens) == 0, "%s", describe(&q));
		selected_free(&a);
		selected_free(&b);
	}
}

/* Nothing is safe: a head whose scores are all low keeps no more than what is protected. */
static void a_safeguard_of_zero_lets_a_head_go_empty(void **state) {
	enum { T = 20 };
	float scores[2 * T];
	(void)state;
	for (int i = 0; i < 2 * T; i++) {
		scores[i] = i < T ? -1.0f : 1.0f;
	}
	ckv_ctx *ctx = make_ctx("adakv:mode=reference,safeguard=0");
	selected s = select_scores(ctx, scores, 2, T, ckv_keep_tokens(10));
	assert_int_equal(n_kept(&s, 0), 0);
	assert_int_equal(n_kept(&s, 1), 20);
	assert_int_equal(s.keep.n_keep, 20);
	selected_free(&s);
	ckv_ctx_free(ctx);
	ctx = make_ctx("adakv:mode=reference,safeguard=0.01"); /* but one is sure where anything is */
	s = select_scores(ctx, scores, 2, T, ckv_keep_tokens(10));
	assert_int_equal(n_kept(&s, 0), 1);
	selected_free(&s);
	ckv_ctx_free(ctx);
	ctx = make_ctx("adakv:safeguard=0,sinks=2,window=3");
	s = select_scores(ctx, scores, 2, T, ckv_keep_tokens(10));
	assert_int_equal(n_kept(&s, 0), 5);
	assert_int_equal(n_kept(&s, 1), 15);
	selected_free(&s);
	ckv_ctx_free(ctx);
}

static void room_for_the_budget_of_all_heads_suffices(void **state) {
	enum { T = 30, G = 3, KEEP = 11 };
	rng r = {6};
	float scores[G * T];
	int32_t positions[G * KEEP], offsets[G + 1];
	ckv_keep keep;
	(void)state;
	exact_scores(&r, scores, G * T);
	ckv_ctx *ctx = make_ctx("adakv:window=2");
	ckv_keep_init(&keep, positions, G * KEEP - 1, offsets);
	assert_int_equal(ckv_select_scores(ctx, scores, G, T, ckv_keep_tokens(KEEP), &keep), CKV_ERR_CAPACITY);
	assert_int_equal(keep.n_positions, G * KEEP);
	ckv_keep_init(&keep, positions, G * KEEP, NULL);
	assert_int_equal(ckv_select_scores(ctx, scores, G, T, ckv_keep_tokens(KEEP), &keep), CKV_OK);
	assert_int_equal(keep.n_positions, G * KEEP);
	assert_int_equal(keep.n_lists, G);
	ckv_ctx_free(ctx);
}

/* Over lists of different length, the share of attention that falls on what is kept. */
static void attention_kept_is_the_observed_share(void **state) {
	enum { T = 60, G = 3, H = 6, W = 4 };
	rng r = {7};
	double mass[H * T], expected = 0.0;
	(void)state;
	test_layer t = test_layer_make(&r, H, G, 8, T, W);
	ckv_ctx *ctx = make_ctx("adakv:window=4,safeguard=0");
	selected s = select_layer(ctx, &t.layer, ckv_keep_tokens(20));
	naive_mass(&t.k, &t.q, W, 0.0, 0.0, mass);
	for (int i = 0; i < H * T; i++) {
		expected += s.mask[i / T / (H / G) * T + i % T] ? mass[i] / H : 0.0;
	}
	assert_true(scores_equal(expected, (double)s.keep.attention_kept));
	selected_free(&s);
	ckv_ctx_free(ctx);
	test_layer_free(&t);
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(exact_mode_matches_a_plain_implementation),
	    cmocka_unit_test(reference_mode_matches_a_plain_implementation),
	    cmocka_unit_test(the_heads_together_keep_exactly_their_budget),
	    cmocka_unit_test(protected_tokens_stay_in_every_head),
	    cmocka_unit_test(a_safeguard_of_one_is_topk),
	    cmocka_unit_test(one_head_alone_is_topk),
	    cmocka_unit_test(a_safeguard_of_zero_lets_a_head_go_empty),
	    cmocka_unit_test(room_for_the_budget_of_all_heads_suffices),
	    cmocka_unit_test(attention_kept_is_the_observed_share),
	};
	return cmocka_run_group_tests_name("adaptive_head", tests, NULL, NULL);
}
