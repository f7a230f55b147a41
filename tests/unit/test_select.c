/* The selectors: exactly the budget, protected tokens, whole chunks, ties, reasons, capacity; and both of them against a
 * plain second implementation of section 2 of the algorithms. */
#include "support.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -------------------------------------------------------------- requests */

enum { MAX_TOKENS = 130, MAX_HEADS = 4 };

typedef struct request {
	bool chunks, reference, observed; /* observed: by the scorer, which needs more tokens than its window */
	int32_t n_heads, n_tokens, window, sinks, chunk;
	ckv_budget budget;
} request;

typedef struct result {
	ckv_status status;
	ckv_keep keep;
	int32_t positions[MAX_HEADS * MAX_TOKENS], offsets[MAX_HEADS + 1];
} result;

static const char *describe(const request *q) {
	static char text[160];
	snprintf(text, sizeof text, "%s%s, G %d, T %d, window %d, sinks %d, C %d, budget %d:%.17g", q->chunks ? "chunk" : "topk",
	         q->reference ? " (reference)" : "", q->n_heads, q->n_tokens, q->window, q->sinks, q->chunk, (int)q->budget.kind,
	         q->budget.value);
	return text;
}

static ckv_ctx *request_ctx(const request *q) {
	ckv_params p;
	ckv_ctx *ctx;
	ckv_error error;
	ckv_params_default(&p);
	p.selector = q->chunks ? "chunk" : "topk";
	p.reference = q->reference;
	p.window = q->window;
	p.sinks = q->sinks;
	p.chunk = q->chunk;
	CHECK(ckv_ctx_create(&ctx, &p, NULL, &error) == CKV_OK, "%s: %s", describe(q), error.message);
	return ctx;
}

static ckv_budget random_budget(rng *r, int32_t n_tokens) {
	switch (rng_range(r, 0, 2)) {
	case 0: return ckv_keep_tokens(rng_range(r, 1, n_tokens + 2));
	case 1: return ckv_keep_percent(rng_range(r, 1, 200) * 0.5);
	default: return ckv_remove_fraction(rng_range(r, 0, 99) * 0.01);
	}
}

static request random_request(rng *r, bool chunks, bool reference) {
	request q = {.chunks = chunks, .reference = reference};
	q.n_heads = rng_range(r, 1, MAX_HEADS);
	q.n_tokens = rng_chance(r, 3) ? rng_range(r, 1, 12) : rng_range(r, 1, MAX_TOKENS);
	q.window = rng_range(r, 1, rng_chance(r, 2) ? 3 : 20);
	q.sinks = rng_chance(r, 2) ? 0 : rng_range(r, 0, 9);
	q.chunk = rng_chance(r, 2) ? rng_range(r, 1, 5) : rng_range(r, 1, 25);
	q.budget = random_budget(r, q.n_tokens);
	return q;
}

static void random_scores(rng *r, float *scores, int32_t n) {
	float factor = ldexpf(1.0f, rng_range(r, -20, 20));
	for (int32_t i = 0; i < n; i++) {
		scores[i] = factor * rng_float(r);
	}
}

static void run_in(ckv_ctx *ctx, const request *q, const float *scores, result *out) {
	paint(out->positions, sizeof out->positions);
	paint(out->offsets, sizeof out->offsets);
	ckv_keep_init(&out->keep, out->positions, (size_t)q->n_heads * (size_t)q->n_tokens, out->offsets);
	out->status = ckv_select_scores(ctx, scores, q->n_heads, q->n_tokens, q->budget, &out->keep);
	CHECK(out->status == CKV_OK, "%s: %s", describe(q), ckv_ctx_message(ctx));
}

static void run(const request *q, const float *scores, result *out) {
	ckv_ctx *ctx = request_ctx(q);
	run_in(ctx, q, scores, out);
	ckv_ctx_free(ctx);
}

static int32_t budget_tokens(const request *q) {
	int32_t n = 0;
	assert_int_equal(ckv_budget_resolve(q->budget, q->n_tokens, &n), CKV_OK);
	return n < q->n_tokens ? n : q->n_tokens;
}

/* Too short for the policy, whatever the budget. */
static bool too_short(const request *q) {
	return (q->observed && q->n_tokens <= q->window) || (q->chunks && !q->reference && q->n_tokens < q->chunk);
}

static int32_t smaller(int32_t a, int32_t b) { return a < b ? a : b; }

/* ------------------------------------------------------ well-formed result */

typedef unsigned char mask[MAX_HEADS][MAX_TOKENS];

/* Turns the lists into a mask by head; fails unless they are well-formed and fields agree with them. */
static void to_mask(const request *q, const result *x, mask kept) {
	const ckv_keep *k = &x->keep;
	int32_t longest = 0;
	memset(kept, 0, sizeof(mask));
	CHECK(k->n_lists == 1 || k->n_lists == q->n_heads, "%s: %d lists", describe(q), k->n_lists);
	CHECK(x->offsets[0] == 0 && (size_t)x->offsets[k->n_lists] == k->n_positions, "%s", describe(q));
	for (int32_t h = 0; h < q->n_heads; h++) {
		int32_t list = k->n_lists == 1 ? 0 : h, before = -1;
		for (int32_t i = x->offsets[list]; i < x->offsets[list + 1]; i++) {
			CHECK(x->positions[i] > before && x->positions[i] < q->n_tokens, "%s: head %d has %d after %d", describe(q), h,
			      x->positions[i], before);
			before = x->positions[i];
			kept[h][before] = 1;
		}
		longest = x->offsets[list + 1] - x->offsets[list] > longest ? x->offsets[list + 1] - x->offsets[list] : longest;
	}
	CHECK(k->n_keep == longest, "%s: n_keep is %d, the longest list %d", describe(q), k->n_keep, longest);
	CHECK(is_painted(x->positions + k->n_positions, sizeof x->positions - k->n_positions * sizeof(int32_t)), "%s",
	      describe(q));
	CHECK(is_painted(x->offsets + k->n_lists + 1, sizeof x->offsets - (size_t)(k->n_lists + 1) * sizeof(int32_t)), "%s",
	      describe(q));
}

static int32_t count(const unsigned char *kept, int32_t from, int32_t to) {
	int32_t n = 0;
	for (int32_t t = from; t < to; t++) {
		n += kept[t];
	}
	return n;
}

/* Does what the reason says hold? */
static bool reason_holds(const request *q, const result *x, const mask kept) {
	int32_t n = q->n_tokens;
	bool whole = true;
	for (int32_t h = 0; h < q->n_heads; h++) {
		whole = whole && count(kept[h], 0, n) == n;
	}
	switch (x->keep.reason) {
	case CKV_SELECTED: return !too_short(q) && budget_tokens(q) < n;
	case CKV_KEPT_ALL_BUDGET: return whole && budget_tokens(q) == n;
	case CKV_KEPT_ALL_WINDOW: return whole && q->observed && n <= q->window;
	case CKV_KEPT_ALL_CHUNK: return whole && q->chunks && n < q->chunk;
	case CKV_PROTECTED_ONLY: return !q->reference && q->sinks + q->window >= budget_tokens(q) && budget_tokens(q) < n;
	default: return false;
	}
}

/* ------------------------------------------------- naive second implementation */

typedef struct naive_chunk {
	int32_t from, to, n; /* its tokens, and how many of them are open */
	double sum;
	bool used;
} naive_chunk;

static int32_t naive_chunks(const request *q, const double *sums, const unsigned char *closed, naive_chunk *out) {
	int32_t n_chunks = 0;
	for (int32_t from = 0; from < q->n_tokens; from += q->chunk, n_chunks++) {
		naive_chunk c = {from, smaller(from + q->chunk, q->n_tokens), 0, 0.0, false};
		for (int32_t t = c.from; t < c.to; t++) {
			c.n += !closed[t];
			c.sum += closed[t] ? 0.0 : sums[t];
		}
		c.used = c.n == 0;
		out[n_chunks] = c;
	}
	return n_chunks;
}

/* The best chunk not used yet, by mean, the earlier one of equals; means are compared without dividing. */
static naive_chunk *naive_next(naive_chunk *chunks, int32_t n_chunks) {
	naive_chunk *best = NULL;
	for (int32_t i = 0; i < n_chunks; i++) {
		if (!chunks[i].used && (!best || chunks[i].sum * best->n > best->sum * chunks[i].n)) {
			best = &chunks[i];
		}
	}
	if (best) {
		best->used = true;
	}
	return best;
}

static void naive_exact_chunks(const request *q, const double *sums, int32_t budget, unsigned char *kept) {
	naive_chunk chunks[MAX_TOKENS], *c;
	int32_t n_chunks = naive_chunks(q, sums, kept, chunks);
	while (budget > 0 && (c = naive_next(chunks, n_chunks)) != NULL) {
		int32_t n = smaller(c->n, budget);
		naive_best(sums, c->from, c->to, n, kept);
		budget -= n;
	}
}

static void naive_reference_chunks(const request *q, const double *sums, unsigned char *kept) {
	naive_chunk chunks[MAX_TOKENS];
	int32_t n_chunks = naive_chunks(q, sums, kept, chunks);
	double keep = q->budget.kind == CKV_BUDGET_REMOVE ? 1.0 - q->budget.value : q->budget.value / 100.0;
	int32_t n = (int32_t)((double)n_chunks * keep);
	for (n = n < 1 ? 1 : n; n > 0; n--) {
		naive_chunk *c = naive_next(chunks, n_chunks);
		memset(kept + c->from, 1, (size_t)(c->to - c->from));
	}
}

static void naive_topk(const request *q, const double scores[MAX_HEADS][MAX_TOKENS], mask kept) {
	for (int32_t h = 0; h < q->n_heads; h++) {
		int32_t left =
		    q->reference ? budget_tokens(q) : naive_protect(q->n_tokens, q->sinks, q->window, budget_tokens(q), kept[h]);
		naive_best(scores[h], 0, q->n_tokens, left, kept[h]);
	}
}

static void naive_chunk_policy(const request *q, const double scores[MAX_HEADS][MAX_TOKENS], mask kept) {
	double sums[MAX_TOKENS] = {0};
	for (int32_t t = 0; t < q->n_tokens; t++) {
		for (int32_t h = 0; h < q->n_heads; h++) {
			sums[t] += scores[h][t];
		}
	}
	if (q->reference) {
		naive_reference_chunks(q, sums, kept[0]);
	} else {
		int32_t left = naive_protect(q->n_tokens, q->sinks, q->window, budget_tokens(q), kept[0]);
		naive_exact_chunks(q, sums, left, kept[0]);
	}
	for (int32_t h = 1; h < q->n_heads; h++) {
		memcpy(kept[h], kept[0], sizeof kept[0]);
	}
}

static void naive_select(const request *q, const float *scores, mask kept) {
	double wide[MAX_HEADS][MAX_TOKENS];
	memset(kept, 0, sizeof(mask));
	for (int32_t i = 0; i < q->n_heads * q->n_tokens; i++) {
		wide[i / q->n_tokens][i % q->n_tokens] = (double)scores[i];
	}
	bool whole = too_short(q) || budget_tokens(q) == q->n_tokens;
	for (int32_t h = 0; h < q->n_heads && whole; h++) {
		memset(kept[h], 1, (size_t)q->n_tokens);
	}
	if (!whole && q->chunks && !(q->reference && q->n_tokens < q->chunk)) {
		naive_chunk_policy(q, (const double(*)[MAX_TOKENS])wide, kept);
	} else if (!whole) {
		naive_topk(q, (const double(*)[MAX_TOKENS])wide, kept);
	}
}

/* ------------------------------------------------- against the naive one */

static void check_against_naive(const request *q, rng *r) {
	float scores[MAX_HEADS * MAX_TOKENS];
	result x;
	mask kept, expected;
	exact_scores(r, scores, q->n_heads * q->n_tokens);
	run(q, scores, &x);
	to_mask(q, &x, kept);
	naive_select(q, scores, expected);
	CHECK(reason_holds(q, &x, (const unsigned char(*)[MAX_TOKENS])kept), "%s: '%s'", describe(q),
	      ckv_reason_text(x.keep.reason));
	CHECK(x.keep.attention_kept == -1.0f, "%s", describe(q));
	for (int32_t h = 0; h < q->n_heads; h++) {
		for (int32_t t = 0; t < q->n_tokens; t++) {
			CHECK(kept[h][t] == expected[h][t], "%s: head %d, token %d is %s", describe(q), h, t,
			      kept[h][t] ? "kept" : "dropped");
		}
	}
}

static void many_against_naive(bool chunks, bool reference, int cases) {
	rng r = {1};
	for (int n = 0; n < cases; n++) {
		request q = random_request(&r, chunks, reference);
		check_against_naive(&q, &r);
	}
}

static void topk_matches_a_plain_implementation(void **state) {
	(void)state;
	many_against_naive(false, false, 6000);
}

static void chunk_matches_a_plain_implementation(void **state) {
	(void)state;
	many_against_naive(true, false, 12000);
}

/* The published code is asked for the fraction to remove; a percentage kept is the same question. */
static void reference_mode_matches_a_plain_implementation(void **state) {
	rng r = {2};
	(void)state;
	for (int n = 0; n < 6000; n++) {
		request q = random_request(&r, n % 3 != 0, true);
		q.budget = n % 4 ? ckv_remove_fraction(rng_range(&r, 0, 99) * 0.01) : ckv_keep_percent(rng_range(&r, 1, 50));
		check_against_naive(&q, &r);
	}
}

/* Every shape, budget, chunk, sinks and window that is small. */
static void all_tiny_cases_match_a_plain_implementation(void **state) {
	rng r = {3};
	(void)state;
	for (int32_t n = 0; n < 7 * 8 * 4 * 3 * 3 * 2; n++) {
		request q = {.chunks = n % 2, .n_heads = 2};
		q.n_tokens = 1 + n / 2 % 7;
		q.budget = ckv_keep_tokens(1 + n / 14 % 8);
		q.chunk = 1 + n / 112 % 4;
		q.window = 1 + n / 448 % 3;
		q.sinks = n / 1344 % 3;
		check_against_naive(&q, &r);
	}
}

/* ------------------------------------------------------------- properties */

/* Calls check for many random cases of one selector in exact mode that are neither too short nor kept whole. */
typedef void (*property)(const request *q, const float *scores, const result *x, const unsigned char (*kept)[MAX_TOKENS]);

static void for_many(bool chunks, property check) {
	rng r = {4};
	for (int n = 0; n < 3000;) {
		float scores[MAX_HEADS * MAX_TOKENS];
		request q = random_request(&r, chunks, false);
		result x;
		mask kept;
		if (too_short(&q) || budget_tokens(&q) == q.n_tokens) {
			continue;
		}
		random_scores(&r, scores, q.n_heads * q.n_tokens);
		run(&q, scores, &x);
		to_mask(&q, &x, kept);
		check(&q, scores, &x, (const unsigned char(*)[MAX_TOKENS])kept);
		n++;
	}
}

static void check_count(const request *q, const float *scores, const result *x, const unsigned char (*kept)[MAX_TOKENS]) {
	(void)scores;
	CHECK(x->keep.n_keep == budget_tokens(q), "%s: %d kept", describe(q), x->keep.n_keep);
	for (int32_t h = 0; h < q->n_heads; h++) {
		CHECK(count(kept[h], 0, q->n_tokens) == budget_tokens(q), "%s: head %d", describe(q), h);
	}
}

static void exactly_the_budget_is_kept(void **state) {
	(void)state;
	for_many(false, check_count);
	for_many(true, check_count);
}

static void check_protected(const request *q, const float *scores, const result *x,
                            const unsigned char (*kept)[MAX_TOKENS]) {
	int32_t budget = budget_tokens(q), sinks = smaller(q->sinks, budget), window = smaller(q->window, budget - sinks);
	(void)scores;
	CHECK((x->keep.reason == CKV_PROTECTED_ONLY) == (q->sinks + q->window >= budget), "%s: '%s'", describe(q),
	      ckv_reason_text(x->keep.reason));
	for (int32_t h = 0; h < q->n_heads; h++) {
		CHECK(count(kept[h], 0, sinks) == sinks, "%s: head %d lost sinks", describe(q), h);
		CHECK(count(kept[h], q->n_tokens - window, q->n_tokens) == window, "%s: head %d lost the newest", describe(q), h);
	}
}

static void sinks_and_then_the_newest_are_kept_first(void **state) {
	(void)state;
	for_many(false, check_protected);
	for_many(true, check_protected);
}

/* Per head: no dropped token scores more than a kept one that is not protected. */
static void check_best(const request *q, const float *scores, const result *x, const unsigned char (*kept)[MAX_TOKENS]) {
	(void)x;
	for (int32_t h = 0; h < q->n_heads; h++) {
		const float *score = scores + h * q->n_tokens;
		float worst_kept = INFINITY, best_dropped = -INFINITY;
		for (int32_t t = smaller(q->sinks, q->n_tokens); t < q->n_tokens - q->window; t++) {
			worst_kept = kept[h][t] ? fminf(worst_kept, score[t]) : worst_kept;
			best_dropped = kept[h][t] ? best_dropped : fmaxf(best_dropped, score[t]);
		}
		CHECK(worst_kept >= best_dropped, "%s: head %d", describe(q), h);
	}
}

static void topk_keeps_the_best_tokens_of_each_head(void **state) {
	(void)state;
	for_many(false, check_best);
}

/* The open tokens of a chunk, how many of them are kept, and their mean over the heads' sums. */
typedef struct chunk_fact {
	int32_t from, to, kept;
	double mean;
} chunk_fact;

static double sum_at(const request *q, const float *scores, int32_t t) {
	double sum = 0.0;
	for (int32_t h = 0; h < q->n_heads; h++) {
		sum += (double)scores[h * q->n_tokens + t];
	}
	return sum;
}

static int32_t chunk_facts(const request *q, const float *scores, const unsigned char *kept, chunk_fact *facts) {
	int32_t n = 0, lo = q->sinks, hi = q->n_tokens - q->window;
	for (int32_t from = 0; from < q->n_tokens; from += q->chunk) {
		chunk_fact f = {from > lo ? from : lo, smaller(from + q->chunk, hi), 0, 0.0};
		if (f.from >= f.to) {
			continue;
		}
		for (int32_t t = f.from; t < f.to; t++) {
			f.mean += sum_at(q, scores, t) / (f.to - f.from);
		}
		f.kept = count(kept, f.from, f.to);
		facts[n++] = f;
	}
	return n;
}

/* Rounding of means in float: a few units in the last place of the largest score. */
static double slack(const request *q, const float *scores) {
	double largest = 0.0;
	for (int32_t i = 0; i < q->n_heads * q->n_tokens; i++) {
		largest = fmax(largest, fabs((double)scores[i]));
	}
	return largest * q->n_heads * 4e-6;
}

static void check_partial(const request *q, const float *scores, const unsigned char *kept, const chunk_fact *f) {
	double worst_kept = INFINITY, best_dropped = -INFINITY;
	for (int32_t t = f->from; t < f->to; t++) {
		double sum = sum_at(q, scores, t);
		worst_kept = kept[t] ? fmin(worst_kept, sum) : worst_kept;
		best_dropped = kept[t] ? best_dropped : fmax(best_dropped, sum);
	}
	CHECK(worst_kept >= best_dropped - slack(q, scores), "%s: chunk at %d", describe(q), f->from);
}

/* At most one chunk is cut, it has its best tokens; whole ones score at least as much as it, it as dropped ones. */
static void check_chunks(const request *q, const float *scores, const result *x, const unsigned char (*kept)[MAX_TOKENS]) {
	chunk_fact facts[MAX_TOKENS];
	int32_t n = chunk_facts(q, scores, kept[0], facts), partial = 0;
	double worst_whole = INFINITY, best_dropped = -INFINITY, cut = NAN;
	if (x->keep.reason == CKV_PROTECTED_ONLY) {
		return;
	}
	CHECK(x->keep.n_lists == 1, "%s", describe(q));
	for (int32_t i = 0; i < n; i++) {
		if (facts[i].kept == facts[i].to - facts[i].from) {
			worst_whole = fmin(worst_whole, facts[i].mean);
		} else if (facts[i].kept == 0) {
			best_dropped = fmax(best_dropped, facts[i].mean);
		} else {
			cut = facts[i].mean;
			partial++;
			check_partial(q, scores, kept[0], &facts[i]);
		}
	}
	CHECK(partial <= 1, "%s: %d chunks are cut", describe(q), partial);
	CHECK(worst_whole >= best_dropped - slack(q, scores), "%s", describe(q));
	CHECK(!partial || (worst_whole >= cut - slack(q, scores) && cut >= best_dropped - slack(q, scores)), "%s", describe(q));
}

static void chunks_are_kept_whole_but_for_the_last_choice(void **state) {
	(void)state;
	for_many(true, check_chunks);
}

static void the_same_question_gets_the_same_answer(void **state) {
	rng r = {5};
	(void)state;
	for (int n = 0; n < 500; n++) {
		float scores[MAX_HEADS * MAX_TOKENS], other[MAX_HEADS * MAX_TOKENS];
		request q = random_request(&r, n % 2, n % 5 == 0), o = q;
		result x, y;
		ckv_ctx *ctx = request_ctx(&q);
		random_scores(&r, scores, q.n_heads * q.n_tokens);
		random_scores(&r, other, MAX_HEADS * MAX_TOKENS);
		o.n_heads = rng_range(&r, 1, MAX_HEADS);
		o.n_tokens = rng_range(&r, 1, MAX_TOKENS);
		o.budget = random_budget(&r, o.n_tokens);
		run(&q, scores, &x);
		run_in(ctx, &o, other, &y); /* the context has done something else before */
		run_in(ctx, &q, scores, &y);
		CHECK(memcmp(x.positions, y.positions, sizeof x.positions) == 0, "%s", describe(&q));
		CHECK(memcmp(x.offsets, y.offsets, sizeof x.offsets) == 0, "%s", describe(&q));
		CHECK(x.keep.n_lists == y.keep.n_lists && x.keep.n_keep == y.keep.n_keep && x.keep.reason == y.keep.reason &&
		          x.keep.n_positions == y.keep.n_positions,
		      "%s", describe(&q));
		ckv_ctx_free(ctx);
	}
}

/* ---------------------------------------------------------- kept whole */

static void check_whole(ckv_ctx *ctx, const request *q, ckv_reason reason) {
	float scores[MAX_HEADS * MAX_TOKENS];
	rng r = {6};
	result x;
	mask kept;
	random_scores(&r, scores, q->n_heads * q->n_tokens);
	run_in(ctx, q, scores, &x);
	to_mask(q, &x, kept);
	CHECK(x.keep.reason == reason, "%s: '%s'", describe(q), ckv_reason_text(x.keep.reason));
	for (int32_t h = 0; h < q->n_heads; h++) {
		CHECK(count(kept[h], 0, q->n_tokens) == q->n_tokens, "%s: head %d", describe(q), h);
	}
}

static void check_whole_alone(const request *q, ckv_reason reason) {
	ckv_ctx *ctx = request_ctx(q);
	check_whole(ctx, q, reason);
	ckv_ctx_free(ctx);
}

static void a_budget_of_all_keeps_all(void **state) {
	(void)state;
	for (int i = 0; i < 4; i++) {
		request q = {
		    .chunks = i % 2, .reference = i / 2, .n_heads = 3, .n_tokens = 47, .window = 5, .sinks = 2, .chunk = 10};
		q.budget = ckv_keep_percent(100);
		check_whole_alone(&q, CKV_KEPT_ALL_BUDGET);
		q.budget = ckv_remove_fraction(0);
		check_whole_alone(&q, CKV_KEPT_ALL_BUDGET);
		q.budget = ckv_keep_tokens(47);
		check_whole_alone(&q, CKV_KEPT_ALL_BUDGET);
		q.budget = ckv_keep_tokens(INT32_MAX);
		check_whole_alone(&q, CKV_KEPT_ALL_BUDGET);
	}
}

static void a_cache_shorter_than_a_chunk_is_kept_whole(void **state) {
	(void)state;
	request q = {.chunks = true, .n_heads = 2, .window = 3, .chunk = 20, .budget = {CKV_BUDGET_TOKENS, 1}};
	for (q.n_tokens = 2; q.n_tokens < 20; q.n_tokens++) {
		check_whole_alone(&q, CKV_KEPT_ALL_CHUNK);
	}
}

static void the_full_policy_keeps_all(void **state) {
	(void)state;
	ckv_ctx *ctx = make_ctx("full");
	request q = {.n_heads = 2, .budget = {CKV_BUDGET_TOKENS, 1}};
	for (q.n_tokens = 1; q.n_tokens < 40; q.n_tokens++) {
		check_whole(ctx, &q, CKV_KEPT_ALL_POLICY);
	}
	ckv_ctx_free(ctx);
}

/* Kept whole is kept whole, also where a percentage rounds up to all tokens and the chunks' own count would be lower. */
static void reference_mode_tells_the_truth_about_percentages(void **state) {
	rng r = {7};
	(void)state;
	for (int n = 0; n < 2000; n++) {
		float scores[MAX_HEADS * MAX_TOKENS];
		request q = random_request(&r, true, true);
		result x;
		mask kept;
		q.budget = ckv_keep_percent(rng_range(&r, 180, 200) * 0.5);
		random_scores(&r, scores, q.n_heads * q.n_tokens);
		run(&q, scores, &x);
		to_mask(&q, &x, kept);
		CHECK(reason_holds(&q, &x, (const unsigned char(*)[MAX_TOKENS])kept), "%s: '%s'", describe(&q),
		      ckv_reason_text(x.keep.reason));
	}
}

/* ------------------------------------------------------------- reference */

static int32_t reference_kept(int32_t n_tokens, int32_t chunk, double removed, int32_t *n_lists) {
	request q = {.chunks = true, .reference = true, .n_heads = 2, .n_tokens = n_tokens, .window = 1, .chunk = chunk};
	float scores[MAX_HEADS * MAX_TOKENS];
	result x;
	for (int32_t i = 0; i < 2 * n_tokens; i++) {
		scores[i] = (float)(-i % n_tokens); /* earlier is better */
	}
	q.budget = ckv_remove_fraction(removed);
	run(&q, scores, &x);
	*n_lists = x.keep.n_lists;
	return x.keep.n_keep;
}

static void reference_mode_counts_chunks_as_published(void **state) {
	int32_t lists;
	(void)state;
	assert_int_equal(reference_kept(100, 10, 0.5, &lists), 50);
	assert_int_equal(lists, 1);
	assert_int_equal(reference_kept(100, 10, 0.9, &lists), 10); /* floor(10 * 0.0999...) = 0, so 1 */
	assert_int_equal(reference_kept(101, 10, 0.5, &lists), 50); /* floor(11 * 0.5) chunks */
	assert_int_equal(reference_kept(109, 10, 0.1, &lists), 90); /* floor(11 * 0.9) */
	assert_int_equal(reference_kept(25, 10, 0.01, &lists), 20); /* floor(3 * 0.99) */
	assert_int_equal(reference_kept(10, 10, 0.99, &lists), 10);
	assert_int_equal(reference_kept(30, 1, 0.5, &lists), 15);
}

static void reference_mode_falls_back_to_topk_below_one_chunk(void **state) {
	int32_t lists;
	(void)state;
	assert_int_equal(reference_kept(9, 10, 0.5, &lists), 4);
	assert_int_equal(lists, 2);
	assert_int_equal(reference_kept(2, 10, 0.9, &lists), 1);
	assert_int_equal(lists, 2);
}

/* The last, shorter chunk is a chunk of its own, with the mean of its own tokens. */
static void reference_mode_keeps_a_ragged_tail_when_it_is_best(void **state) {
	(void)state;
	request q = {.chunks = true, .reference = true, .n_heads = 1, .n_tokens = 23, .window = 1, .chunk = 10};
	float scores[23] = {0};
	result x;
	scores[20] = scores[21] = scores[22] = 2.0f;
	for (int i = 0; i < 10; i++) {
		scores[i] = 1.0f; /* a larger sum, but a smaller mean */
	}
	q.budget = ckv_remove_fraction(0.6);
	run(&q, scores, &x);
	assert_int_equal(x.keep.n_keep, 3);
	assert_int_equal(x.positions[0], 20);
}

/* -------------------------------------------------------------- capacity */

/* Everything as it was but n_positions, which is then enough. */
static void check_too_small(ckv_ctx *ctx, const request *q, const float *scores, size_t capacity, size_t *enough) {
	result x;
	paint(x.positions, sizeof x.positions);
	paint(x.offsets, sizeof x.offsets);
	ckv_keep_init(&x.keep, capacity ? x.positions : NULL, capacity, x.offsets);
	ckv_keep before = x.keep;
	x.status = ckv_select_scores(ctx, scores, q->n_heads, q->n_tokens, q->budget, &x.keep);
	CHECK(x.status == CKV_ERR_CAPACITY, "%s: %s with room for %zu", describe(q), ckv_strerror(x.status), capacity);
	CHECK(is_painted(x.positions, sizeof x.positions) && is_painted(x.offsets, sizeof x.offsets), "%s", describe(q));
	CHECK(x.keep.n_positions > capacity && x.keep.n_positions <= (size_t)q->n_heads * (size_t)q->n_tokens, "%s: %zu",
	      describe(q), x.keep.n_positions);
	*enough = x.keep.n_positions;
	before.n_positions = x.keep.n_positions;
	CHECK(memcmp(&before, &x.keep, sizeof before) == 0, "%s: more than n_positions changed", describe(q));
}

static void too_small_an_array_is_told_what_suffices(void **state) {
	rng r = {8};
	(void)state;
	for (int n = 0; n < 2000; n++) {
		float scores[MAX_HEADS * MAX_TOKENS];
		request q = random_request(&r, n % 2, n % 3 == 0);
		size_t enough, same;
		result whole, x;
		ckv_ctx *ctx = request_ctx(&q);
		random_scores(&r, scores, q.n_heads * q.n_tokens);
		check_too_small(ctx, &q, scores, 0, &enough);
		if (enough > 1) {
			check_too_small(ctx, &q, scores, enough - 1, &same);
			assert_int_equal(same, enough);
		}
		run(&q, scores, &whole);
		paint(x.positions, sizeof x.positions);
		ckv_keep_init(&x.keep, x.positions, enough, x.offsets);
		CHECK(ckv_select_scores(ctx, scores, q.n_heads, q.n_tokens, q.budget, &x.keep) == CKV_OK, "%s", describe(&q));
		CHECK(memcmp(x.positions, whole.positions, sizeof x.positions) == 0, "%s", describe(&q));
		CHECK(q.reference || x.keep.n_positions == enough, "%s: %zu told, %zu used", describe(&q), enough,
		      x.keep.n_positions);
		ckv_ctx_free(ctx);
	}
}

static void a_capacity_without_an_array_is_too_small(void **state) {
	(void)state;
	float scores[20] = {0};
	ckv_keep keep;
	ckv_ctx *ctx = make_ctx("chunkkv:window=1");
	ckv_keep_init(&keep, NULL, 100, NULL);
	assert_int_equal(ckv_select_scores(ctx, scores, 1, 20, ckv_keep_tokens(5), &keep), CKV_ERR_CAPACITY);
	assert_int_equal(keep.n_positions, 5);
	ckv_ctx_free(ctx);
}

static void offsets_may_be_left_out(void **state) {
	rng r = {9};
	(void)state;
	for (int n = 0; n < 500; n++) {
		float scores[MAX_HEADS * MAX_TOKENS];
		request q = random_request(&r, n % 2, n % 3 == 0);
		result x, y;
		ckv_ctx *ctx = request_ctx(&q);
		random_scores(&r, scores, q.n_heads * q.n_tokens);
		run(&q, scores, &x);
		paint(y.positions, sizeof y.positions);
		ckv_keep_init(&y.keep, y.positions, MAX_HEADS * MAX_TOKENS, NULL);
		CHECK(ckv_select_scores(ctx, scores, q.n_heads, q.n_tokens, q.budget, &y.keep) == CKV_OK, "%s", describe(&q));
		CHECK(memcmp(x.positions, y.positions, sizeof x.positions) == 0, "%s", describe(&q));
		CHECK(y.keep.offsets == NULL && x.keep.n_positions == y.keep.n_positions && x.keep.n_lists == y.keep.n_lists, "%s",
		      describe(&q));
		ckv_ctx_free(ctx);
	}
}

/* --------------------------------------------------------------- errors */

static void check_error(ckv_ctx *ctx, const float *scores, int32_t n_heads, int32_t n_tokens, ckv_budget budget,
                        ckv_status expected) {
	int32_t positions[100], offsets[3];
	ckv_keep keep;
	paint(positions, sizeof positions);
	paint(offsets, sizeof offsets);
	ckv_keep_init(&keep, positions, 100, offsets);
	ckv_keep before = keep;
	ckv_status status = ckv_select_scores(ctx, scores, n_heads, n_tokens, budget, &keep);
	CHECK(status == expected, "%s instead of %s", ckv_strerror(status), ckv_strerror(expected));
	assert_memory_equal(&before, &keep, sizeof keep);
	assert_true(is_painted(positions, sizeof positions) && is_painted(offsets, sizeof offsets));
}

static void scores_that_are_not_finite_are_errors(void **state) {
	static const float bad[] = {NAN, INFINITY, -INFINITY};
	static const char *const policies[] = {"chunkkv:window=2", "snapkv:window=2"};
	(void)state;
	for (size_t i = 0; i < 2 * 3; i++) {
		ckv_ctx *ctx = make_ctx(policies[i / 3]);
		for (size_t at = 0; at < 60; at += 7) {
			float scores[60] = {0};
			scores[at] = bad[i % 3];
			check_error(ctx, scores, 2, 30, ckv_keep_tokens(12), CKV_ERR_NUMERIC);
		}
		ckv_ctx_free(ctx);
	}
}

/* Finite scores whose sum over the heads is not: the order of the sums is lost, and it must not be decided by accident. */
static void scores_whose_sums_overflow_are_ordered_or_refused(void **state) {
	(void)state;
	float scores[2][40] = {{0}};
	int32_t positions[40], offsets[3];
	ckv_keep keep;
	ckv_ctx *ctx = make_ctx("chunkkv:window=1,sinks=0,chunk=10");
	for (int i = 0; i < 10; i++) {
		scores[0][i] = scores[1][i] = 0.8f * FLT_MAX;
		scores[0][20 + i] = scores[1][20 + i] = 0.9f * FLT_MAX; /* the best chunk */
	}
	ckv_keep_init(&keep, positions, 40, offsets);
	ckv_status status = ckv_select_scores(ctx, &scores[0][0], 2, 40, ckv_keep_tokens(11), &keep);
	assert_true(status == CKV_ERR_NUMERIC || (status == CKV_OK && positions[0] == 20));
	ckv_ctx_free(ctx);
}

static void bad_arguments_are_refused(void **state) {
	(void)state;
	float scores[40] = {0};
	ckv_ctx *ctx = make_ctx("chunkkv:window=2");
	check_error(NULL, scores, 2, 20, ckv_keep_tokens(5), CKV_ERR_ARG);
	check_error(ctx, NULL, 2, 20, ckv_keep_tokens(5), CKV_ERR_ARG);
	check_error(ctx, scores, 0, 20, ckv_keep_tokens(5), CKV_ERR_ARG);
	check_error(ctx, scores, -1, 20, ckv_keep_tokens(5), CKV_ERR_ARG);
	check_error(ctx, scores, 2, 0, ckv_keep_tokens(5), CKV_ERR_ARG);
	check_error(ctx, scores, 2, -3, ckv_keep_tokens(5), CKV_ERR_ARG);
	check_error(ctx, scores, 2, 20, ckv_keep_tokens(0), CKV_ERR_ARG);
	check_error(ctx, scores, 2, 20, ckv_keep_percent(0), CKV_ERR_ARG);
	check_error(ctx, scores, 2, 20, ckv_keep_percent(100.1), CKV_ERR_ARG);
	check_error(ctx, scores, 2, 20, ckv_keep_percent(NAN), CKV_ERR_ARG);
	check_error(ctx, scores, 2, 20, ckv_remove_fraction(1), CKV_ERR_ARG);
	assert_int_equal(ckv_select_scores(ctx, scores, 2, 20, ckv_keep_tokens(5), NULL), CKV_ERR_ARG);
	ckv_keep keep = {0}; /* not from ckv_keep_init */
	assert_int_equal(ckv_select_scores(ctx, scores, 2, 20, ckv_keep_tokens(5), &keep), CKV_ERR_ARG);
	ckv_layer layer;
	ckv_layer_init(&layer);
	assert_int_equal(ckv_select(ctx, &layer, ckv_keep_tokens(5), &keep), CKV_ERR_ARG);
	ckv_keep_init(&keep, NULL, 0, NULL);
	assert_int_equal(ckv_select(ctx, &layer, ckv_keep_tokens(5), &keep), CKV_ERR_ARG);
	assert_int_equal(ckv_select(NULL, &layer, ckv_keep_tokens(5), &keep), CKV_ERR_ARG);
	assert_int_equal(ckv_select(ctx, NULL, ckv_keep_tokens(5), &keep), CKV_ERR_ARG);
	ckv_ctx_free(ctx);
}

/* ----------------------------------------------------------- whole layers */

typedef struct layer_case {
	request q;
	test_layer t;
	ckv_ctx *ctx;
} layer_case;

static layer_case layer_case_make(rng *r, int n) {
	layer_case c;
	c.q = random_request(r, n % 2, n % 5 == 0);
	c.q.observed = true;
	c.q.n_tokens = smaller(c.q.n_tokens + (rng_chance(r, 8) ? 0 : c.q.window), MAX_TOKENS);
	c.t = test_layer_make(r, c.q.n_heads * rng_range(r, 1, 3), c.q.n_heads, 8, c.q.n_tokens, c.q.window);
	c.ctx = request_ctx(&c.q);
	return c;
}

static void layer_case_free(layer_case *c) {
	test_layer_free(&c->t);
	ckv_ctx_free(c->ctx);
}

static void select_case(layer_case *c, result *x) {
	paint(x->positions, sizeof x->positions);
	paint(x->offsets, sizeof x->offsets);
	ckv_keep_init(&x->keep, x->positions, (size_t)c->q.n_heads * (size_t)c->q.n_tokens, x->offsets);
	x->status = ckv_select(c->ctx, &c->t.layer, c->q.budget, &x->keep);
	CHECK(x->status == CKV_OK, "%s: %s", describe(&c->q), ckv_ctx_message(c->ctx));
}

static void a_cache_not_longer_than_the_window_is_kept_whole(void **state) {
	rng r = {16};
	int32_t short_ones = 0;
	(void)state;
	for (int n = 0; n < 400; n++) {
		layer_case c = layer_case_make(&r, n);
		result x;
		mask kept;
		select_case(&c, &x);
		to_mask(&c.q, &x, kept);
		CHECK(reason_holds(&c.q, &x, (const unsigned char(*)[MAX_TOKENS])kept), "%s: '%s'", describe(&c.q),
		      ckv_reason_text(x.keep.reason));
		CHECK(c.q.n_tokens > c.q.window || count(kept[0], 0, c.q.n_tokens) == c.q.n_tokens, "%s", describe(&c.q));
		short_ones += c.q.n_tokens <= c.q.window;
		layer_case_free(&c);
	}
	assert_true(short_ones > 10);
}

/* ckv_select is ckv_score and then ckv_select_scores. */
static void selecting_is_scoring_and_selecting_scores(void **state) {
	rng r = {10};
	(void)state;
	for (int n = 0; n < 300; n++) {
		layer_case c = layer_case_make(&r, n);
		float scores[MAX_HEADS * MAX_TOKENS];
		result x, y;
		if (c.q.n_tokens > c.q.window) {
			assert_int_equal(ckv_score(c.ctx, &c.t.layer, ckv_keep_percent(50), scores), CKV_OK);
			select_case(&c, &x);
			run(&c.q, scores, &y);
			CHECK(memcmp(x.positions, y.positions, sizeof x.positions) == 0, "%s", describe(&c.q));
			CHECK(x.keep.reason == y.keep.reason && x.keep.n_lists == y.keep.n_lists, "%s", describe(&c.q));
		}
		layer_case_free(&c);
	}
}

static double naive_attention(const layer_case *c, const mask kept) {
	int32_t n_heads = c->t.q.n_heads, group = n_heads / c->q.n_heads, n = c->q.n_tokens;
	double *mass = test_memory((size_t)n_heads * (size_t)n, sizeof *mass), sum = 0.0;
	naive_mass(&c->t.k, &c->t.q, c->q.window, 0.0, 0.0, mass);
	for (int32_t h = 0; h < n_heads; h++) {
		for (int32_t t = 0; t < n; t++) {
			sum += kept[h / group][t] ? mass[(size_t)h * (size_t)n + (size_t)t] : 0.0;
		}
	}
	free(mass);
	return sum / n_heads;
}

static void attention_kept_is_the_observed_share(void **state) {
	rng r = {11};
	(void)state;
	for (int n = 0; n < 300; n++) {
		layer_case c = layer_case_make(&r, n);
		result x;
		mask kept;
		select_case(&c, &x);
		to_mask(&c.q, &x, kept);
		if (c.q.n_tokens > c.q.window) {
			double expected = naive_attention(&c, (const unsigned char(*)[MAX_TOKENS])kept);
			double told = (double)x.keep.attention_kept;
			CHECK(told >= 0.0 && told <= 1.0 && scores_equal(expected, told), "%s: %.9g instead of %.9g", describe(&c.q),
			      told, expected);
		} else {
			CHECK(x.keep.attention_kept == -1.0f, "%s", describe(&c.q));
		}
		layer_case_free(&c);
	}
}

static void attention_kept_is_one_when_all_is_kept(void **state) {
	rng r = {12};
	(void)state;
	for (int n = 0; n < 100; n++) {
		layer_case c = layer_case_make(&r, n);
		result x;
		c.q.budget = ckv_keep_percent(100);
		select_case(&c, &x);
		double told = (double)x.keep.attention_kept;
		CHECK(c.q.n_tokens <= c.q.window || (told <= 1.0 && told > 1.0 - 1e-6), "%s: %.9g", describe(&c.q), told);
		layer_case_free(&c);
	}
}

static void an_unobserved_cache_has_no_attention_kept(void **state) {
	rng r = {13};
	int32_t positions[40];
	ckv_keep keep;
	(void)state;
	test_layer t = test_layer_make(&r, 2, 1, 8, 40, 4);
	ckv_ctx *ctx = make_ctx("full");
	memset(&t.layer.q, 0, sizeof t.layer.q); /* nor does it ask for queries */
	ckv_keep_init(&keep, positions, 40, NULL);
	assert_int_equal(ckv_select(ctx, &t.layer, ckv_keep_tokens(3), &keep), CKV_OK);
	assert_int_equal(keep.reason, CKV_KEPT_ALL_POLICY);
	assert_int_equal(keep.n_keep, 40);
	assert_true(keep.attention_kept == -1.0f);
	ckv_ctx_free(ctx);
	test_layer_free(&t);
}

/* A context that has observed one layer must not answer for the next one with it. */
static void layers_do_not_leak_into_each_other(void **state) {
	rng r = {14};
	(void)state;
	for (int n = 0; n < 200; n++) {
		layer_case a = layer_case_make(&r, n), b = layer_case_make(&r, n), used = b;
		result fresh, x;
		select_case(&b, &fresh);
		used.ctx = request_ctx(&b.q);
		ckv_ctx_free(a.ctx);
		a.ctx = used.ctx; /* a is asked of b's policy, and has the queries for it or is refused */
		ckv_keep_init(&x.keep, x.positions, MAX_HEADS * MAX_TOKENS, x.offsets);
		ckv_select(a.ctx, &a.t.layer, a.q.budget, &x.keep);
		select_case(&used, &x);
		CHECK(memcmp(fresh.positions, x.positions, sizeof fresh.positions) == 0, "%s", describe(&b.q));
		CHECK(fresh.keep.attention_kept == x.keep.attention_kept, "%s", describe(&b.q));
		layer_case_free(&a);
		layer_case_free(&b);
	}
}

static void instruction_sets_select_alike(void **state) {
	rng r = {15};
	(void)state;
	for (int n = 0; n < 100; n++) {
		layer_case c = layer_case_make(&r, n);
		result fast, plain;
		ckv_ctx_options options;
		ckv_ctx_options_default(&options);
		options.cpu_disable = ~0u;
		select_case(&c, &fast);
		ckv_params params = *ckv_ctx_params(c.ctx);
		ckv_ctx_free(c.ctx);
		assert_int_equal(ckv_ctx_create(&c.ctx, &params, &options, NULL), CKV_OK);
		select_case(&c, &plain);
		CHECK(memcmp(fast.positions, plain.positions, sizeof fast.positions) == 0, "%s", describe(&c.q));
		CHECK(fast.keep.attention_kept == plain.keep.attention_kept, "%s", describe(&c.q));
		layer_case_free(&c);
	}
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(topk_matches_a_plain_implementation),
	    cmocka_unit_test(chunk_matches_a_plain_implementation),
	    cmocka_unit_test(reference_mode_matches_a_plain_implementation),
	    cmocka_unit_test(all_tiny_cases_match_a_plain_implementation),
	    cmocka_unit_test(exactly_the_budget_is_kept),
	    cmocka_unit_test(sinks_and_then_the_newest_are_kept_first),
	    cmocka_unit_test(topk_keeps_the_best_tokens_of_each_head),
	    cmocka_unit_test(chunks_are_kept_whole_but_for_the_last_choice),
	    cmocka_unit_test(the_same_question_gets_the_same_answer),
	    cmocka_unit_test(a_budget_of_all_keeps_all),
	    cmocka_unit_test(a_cache_shorter_than_a_chunk_is_kept_whole),
	    cmocka_unit_test(the_full_policy_keeps_all),
	    cmocka_unit_test(reference_mode_tells_the_truth_about_percentages),
	    cmocka_unit_test(reference_mode_counts_chunks_as_published),
	    cmocka_unit_test(reference_mode_falls_back_to_topk_below_one_chunk),
	    cmocka_unit_test(reference_mode_keeps_a_ragged_tail_when_it_is_best),
	    cmocka_unit_test(too_small_an_array_is_told_what_suffices),
	    cmocka_unit_test(a_capacity_without_an_array_is_too_small),
	    cmocka_unit_test(offsets_may_be_left_out),
	    cmocka_unit_test(scores_that_are_not_finite_are_errors),
	    cmocka_unit_test(scores_whose_sums_overflow_are_ordered_or_refused),
	    cmocka_unit_test(bad_arguments_are_refused),
	    cmocka_unit_test(a_cache_not_longer_than_the_window_is_kept_whole),
	    cmocka_unit_test(selecting_is_scoring_and_selecting_scores),
	    cmocka_unit_test(attention_kept_is_the_observed_share),
	    cmocka_unit_test(attention_kept_is_one_when_all_is_kept),
	    cmocka_unit_test(an_unobserved_cache_has_no_attention_kept),
	    cmocka_unit_test(layers_do_not_leak_into_each_other),
	    cmocka_unit_test(instruction_sets_select_alike),
	};
	return cmocka_run_group_tests_name("select", tests, NULL, NULL);
}
