/* The selector entropy_gate against a plain implementation of its rule, in reference and exact mode, over fixed chunks and
 * given ones. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TOKENS = 130, MOST_HEADS = 4, LONGEST = 30 };

typedef struct request {
	bool reference, given; /* given: chunks of the caller */
	int32_t n_heads, n_tokens, window, sinks, chunk, entropy_keep;
	int32_t starts[MOST_TOKENS + 1], n_chunks; /* the last entry is n_tokens */
	ckv_budget budget;
	float scores[MOST_HEADS * MOST_TOKENS];
} request;

static const char *describe(const request *q) {
	static char text[160];
	snprintf(text, sizeof text, "%s%s, G %d, T %d, window %d, sinks %d, C %d, q %d, budget %d:%.17g",
	         q->reference ? "reference" : "exact", q->given ? ", given" : "", q->n_heads, q->n_tokens, q->window, q->sinks,
	         q->chunk, q->entropy_keep, (int)q->budget.kind, q->budget.value);
	return text;
}

static int32_t smaller(int32_t a, int32_t b) { return a < b ? a : b; }

static void cut(request *q, rng *r) {
	q->n_chunks = 0;
	for (int32_t at = 0; at < q->n_tokens; at += q->given ? rng_range(r, 1, LONGEST) : q->chunk) {
		q->starts[q->n_chunks++] = at;
	}
	q->starts[q->n_chunks] = q->n_tokens;
}

static request random_request(rng *r, bool reference) {
	request q = {.reference = reference, .given = rng_chance(r, 3)};
	q.n_heads = rng_range(r, 1, MOST_HEADS);
	q.n_tokens = rng_chance(r, 3) ? rng_range(r, 1, 12) : rng_range(r, 1, MOST_TOKENS);
	q.window = rng_range(r, 1, rng_chance(r, 2) ? 3 : 20);
	q.sinks = rng_chance(r, 2) ? 0 : rng_range(r, 0, 9);
	q.chunk = rng_range(r, 2, rng_chance(r, 2) ? 6 : 25);
	q.entropy_keep = rng_range(r, 1, q.chunk - 1);
	q.budget = reference && rng_chance(r, 2) ? ckv_remove_fraction(rng_range(r, 0, 99) * 0.01)
	                                         : ckv_keep_tokens(rng_range(r, 1, q.n_tokens + 1));
	exact_scores(r, q.scores, q.n_heads * q.n_tokens);
	cut(&q, r);
	return q;
}

static ckv_ctx *request_ctx(const request *q) {
	ckv_params p;
	ckv_ctx *ctx;
	ckv_error error;
	ckv_params_default(&p);
	p.selector = "entropy_gate";
	p.chunker = q->given ? "line" : "fixed";
	p.reference = q->reference;
	p.window = q->window;
	p.sinks = q->sinks;
	p.chunk = q->chunk;
	p.entropy_keep = q->entropy_keep;
	CHECK(ckv_ctx_create(&ctx, &p, NULL, &error) == CKV_OK, "%s: %s", describe(q), error.message);
	if (q->given) {
		CHECK(ckv_set_chunks(ctx, q->starts, q->n_chunks, q->n_tokens) == CKV_OK, "%s", ckv_ctx_message(ctx));
	}
	return ctx;
}

static selected run(const request *q) {
	ckv_ctx *ctx = request_ctx(q);
	selected s = select_scores(ctx, q->scores, q->n_heads, q->n_tokens, q->budget);
	ckv_ctx_free(ctx);
	return s;
}

static int32_t budget_tokens(const request *q) {
	int32_t n = 0;
	assert_int_equal(ckv_budget_resolve(q->budget, q->n_tokens, &n), CKV_OK);
	return smaller(n, q->n_tokens);
}

/* ------------------------------------------------------------------ naive */

typedef struct naive_chunk {
	int32_t from, to; /* open tokens */
	float score;
	double entropy;
	bool visited;
} naive_chunk;

static double naive_entropy(const double *u, int32_t n) {
	double low = 0.0, sum = 0.0, h = 0.0;
	for (int32_t i = 0; i < n; i++) {
		low = fmin(low, u[i]);
	}
	for (int32_t i = 0; i < n; i++) {
		sum += u[i] - low;
	}
	for (int32_t i = 0; i < n && n > 1; i++) {
		double p = (u[i] - low) / (sum + 1e-8);
		h -= p * log(p + 1e-8) / log(n);
	}
	return fmin(fmax(h, 0.0), 1.0);
}

static int compare(const void *a, const void *b) {
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double naive_lower_median(const double *x, int32_t n) {
	double sorted[MOST_TOKENS];
	memcpy(sorted, x, (size_t)n * sizeof *x);
	qsort(sorted, (size_t)n, sizeof *sorted, compare);
	return sorted[(n - 1) / 2];
}

/* The chunks' open parts, which lie together; sums are exact, so means are those of the library to the bit. */
static int32_t naive_chunks(const request *q, const double *u, const unsigned char *closed, naive_chunk *out) {
	int32_t n = 0;
	for (int32_t i = 0; i < q->n_chunks; i++) {
		naive_chunk c = {q->starts[i], q->starts[i + 1], 0.0f, 0.0, false};
		double sum = 0.0;
		while (c.from < c.to && closed[c.from]) {
			c.from++;
		}
		while (c.to > c.from && closed[c.to - 1]) {
			c.to--;
		}
		for (int32_t t = c.from; t < c.to; t++) {
			sum += u[t];
		}
		c.score = (float)sum / (float)(c.to - c.from);
		c.entropy = naive_entropy(u + c.from, c.to - c.from);
		if (c.from < c.to) {
			out[n++] = c;
		}
	}
	return n;
}

static naive_chunk *naive_next(naive_chunk *chunks, int32_t n) {
	naive_chunk *best = NULL;
	for (int32_t i = 0; i < n; i++) {
		if (!chunks[i].visited && (!best || chunks[i].score > best->score)) {
			best = &chunks[i];
		}
	}
	return best;
}

/* Whether a rounding decides what is below the median entropy: the same scores in another order have the same entropy only
 * nearly. */
static bool is_close(const double *u, const naive_chunk *chunks, int32_t n, double middle) {
	const naive_chunk *at = chunks;
	while (at->entropy != middle) {
		at++;
	}
	for (int32_t i = 0; i < n; i++) {
		const naive_chunk *c = &chunks[i];
		bool same = c->to - c->from == at->to - at->from &&
		            memcmp(u + c->from, u + at->from, (size_t)(c->to - c->from) * sizeof *u) == 0;
		if (fabs(c->entropy - middle) < 1e-9 && !same) {
			return true;
		}
	}
	return false;
}

/* Keeps `budget` of the tokens not kept yet. Returns whether a rounding decides which. */
static bool naive_gate(const request *q, const double *u, int32_t budget, unsigned char *kept) {
	naive_chunk chunks[MOST_TOKENS], *c;
	double scores[MOST_TOKENS], entropies[MOST_TOKENS];
	int32_t n = naive_chunks(q, u, kept, chunks);
	for (int32_t i = 0; i < n; i++) {
		scores[i] = (double)chunks[i].score;
		entropies[i] = chunks[i].entropy;
	}
	double middle_score = n ? naive_lower_median(scores, n) : 0.0, middle = n ? naive_lower_median(entropies, n) : 0.0;
	bool close = n && is_close(u, chunks, n, middle);
	while (budget > 0 && (c = naive_next(chunks, n)) != NULL) {
		int32_t m = smaller(c->to - c->from, budget);
		m = (double)c->score >= middle_score && c->entropy < middle ? smaller(m, q->entropy_keep) : m;
		naive_best(u, c->from, c->to, m, kept);
		c->visited = true;
		budget -= m;
	}
	naive_best(u, 0, q->n_tokens, budget, kept);
	return close;
}

static bool naive_select(const request *q, unsigned char *kept) {
	double u[MOST_TOKENS] = {0};
	int32_t budget = budget_tokens(q);
	memset(kept, 0, MOST_TOKENS);
	if (budget == q->n_tokens || (!q->reference && !q->given && q->n_tokens < q->chunk)) {
		memset(kept, 1, (size_t)q->n_tokens);
		return false;
	}
	for (int32_t i = 0; i < q->n_heads * q->n_tokens; i++) {
		u[i % q->n_tokens] += (double)q->scores[i];
	}
	budget = q->reference ? budget : naive_protect(q->n_tokens, q->sinks, q->window, budget, kept);
	return naive_gate(q, u, budget, kept);
}

static void many_against_naive(bool reference) {
	rng r = {1};
	int compared = 0, cases = 6000;
	for (int n = 0; n < cases; n++) {
		request q = random_request(&r, reference);
		unsigned char expected[MOST_TOKENS];
		selected s = run(&q);
		bool close = naive_select(&q, expected);
		CHECK(s.keep.n_lists == 1, "%s", describe(&q));
		for (int32_t t = 0; t < q.n_tokens && !close; t++) {
			CHECK(s.mask[t] == expected[t], "%s: token %d is %s", describe(&q), t, s.mask[t] ? "kept" : "dropped");
		}
		compared += !close;
		selected_free(&s);
	}
	CHECK(compared > cases / 2, "only %d of %d cases are clear", compared, cases);
}

static void exact_mode_matches_a_plain_implementation(void **state) {
	(void)state;
	many_against_naive(false);
}

static void reference_mode_matches_a_plain_implementation(void **state) {
	(void)state;
	many_against_naive(true);
}

/* ------------------------------------------------------------- properties */

static void exactly_the_budget_is_kept(void **state) {
	rng r = {2};
	(void)state;
	for (int n = 0; n < 3000; n++) {
		request q = random_request(&r, n % 2);
		selected s = run(&q);
		bool whole = !q.reference && !q.given && q.n_tokens < q.chunk;
		CHECK(s.keep.n_keep == (whole ? q.n_tokens : budget_tokens(&q)), "%s: %d", describe(&q), s.keep.n_keep);
		CHECK((s.keep.reason == CKV_KEPT_ALL_CHUNK) == whole, "%s: '%s'", describe(&q), ckv_reason_text(s.keep.reason));
		selected_free(&s);
	}
}

/* Two important chunks: one even, one with a single peak. Of the one with the peak only the peaks are kept; what that saves
 * goes to the next chunk. */
static void peaks_are_all_that_is_kept_of_a_chunk_with_few(void **state) {
	enum { T = 40, C = 10 };
	float scores[T] = {0};
	(void)state;
	for (int i = 0; i < C; i++) {
		scores[i] = 1.0f + 0.01f * (float)i; /* even */
		scores[20 + i] = 0.5f;               /* less, and even */
		scores[30 + i] = 0.25f;              /* least */
	}
	scores[13] = 8.0f; /* a peak in a chunk of zeros: it has the second best mean */
	scores[17] = 1.0f;
	ckv_ctx *ctx = make_ctx("egchunkkv:mode=reference,chunk=10,entropy_keep=2");
	selected s = select_scores(ctx, scores, 1, T, ckv_keep_tokens(22));
	for (int i = 0; i < T; i++) {
		bool expected = i < C || i == 13 || i == 17 || (i >= 20 && i < 30);
		CHECK(s.mask[i] == expected, "token %d", i);
	}
	selected_free(&s);
	ckv_ctx_free(ctx);
}

/* Works over any scorer: whole layers go the same way as their scores. */
static void a_layer_is_selected_by_its_scores(void **state) {
	enum { G = 2, T = 70, W = 4 };
	rng r = {3};
	float scores[G * T];
	(void)state;
	test_layer t = test_layer_make(&r, 4, G, 8, T, W);
	ckv_ctx *ctx = make_ctx("egchunkkv:window=4");
	score(ctx, &t.layer, scores);
	selected a = select_layer(ctx, &t.layer, ckv_keep_percent(40)),
	         b = select_scores(ctx, scores, G, T, ckv_keep_percent(40));
	assert_int_equal(a.keep.n_keep, 28);
	assert_true(a.keep.attention_kept > 0.0f && a.keep.attention_kept <= 1.0f);
	assert_memory_equal(a.mask, b.mask, G * T);
	selected_free(&a);
	selected_free(&b);
	ckv_ctx_free(ctx);
	test_layer_free(&t);
}

/* ----------------------------------------------------------------- errors */

static void check_message(const char *policy, const char *first, const char *second, const char *range) {
	ckv_params p;
	ckv_error error;
	CHECK(ckv_policy_parse(policy, &p, &error) == CKV_ERR_POLICY, "%s", policy);
	CHECK(strstr(error.message, first) && strstr(error.message, second) && strstr(error.message, range), "%s: %s", policy,
	      error.message);
}

static void as_many_kept_of_a_chunk_as_it_has_is_refused(void **state) {
	(void)state;
	check_message("egchunkkv:entropy_keep=10", "entropy_keep=10", "chunk=10", "1 to 9");
	check_message("egchunkkv:chunk=4", "entropy_keep=4", "chunk=4", "1 to 3");
	check_message("egchunkkv:chunk=30,entropy_keep=31", "entropy_keep=31", "chunk=30", "1 to 29");
	check_message("egchunkkv:chunker=line,entropy_keep=64", "entropy_keep=64", "max_chunk=64", "1 to 63");
	check_message("egchunkkv:entropy_keep=0", "entropy_keep=0", "out of range", "1 to 65535");
	ckv_params p;
	assert_int_equal(ckv_policy_parse("egchunkkv:entropy_keep=9", &p, NULL), CKV_OK);
	assert_int_equal(ckv_policy_parse("egchunkkv:chunker=line,entropy_keep=63", &p, NULL), CKV_OK);
	p.entropy_keep = 64;
	ckv_ctx *ctx;
	assert_int_equal(ckv_ctx_create(&ctx, &p, NULL, NULL), CKV_ERR_POLICY);
}

/* Finite scores whose sums are not: an error that leaves everything as it was. */
static void sums_that_overflow_are_errors(void **state) {
	enum { T = 40 };
	float scores[2 * T] = {0};
	int32_t positions[2 * T], offsets[3];
	ckv_keep keep;
	(void)state;
	scores[25] = scores[T + 25] = 3e38f;
	paint(positions, sizeof positions);
	paint(offsets, sizeof offsets);
	ckv_ctx *ctx = make_ctx("egchunkkv:window=2,sinks=3");
	ckv_keep_init(&keep, positions, 2 * T, offsets);
	assert_int_equal(ckv_select_scores(ctx, scores, 2, T, ckv_keep_tokens(12), &keep), CKV_ERR_NUMERIC);
	assert_true(is_painted(offsets, sizeof offsets));
	assert_true(is_painted(positions, sizeof positions));
	ckv_ctx_free(ctx);
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(exact_mode_matches_a_plain_implementation),
	    cmocka_unit_test(reference_mode_matches_a_plain_implementation),
	    cmocka_unit_test(exactly_the_budget_is_kept),
	    cmocka_unit_test(peaks_are_all_that_is_kept_of_a_chunk_with_few),
	    cmocka_unit_test(a_layer_is_selected_by_its_scores),
	    cmocka_unit_test(as_many_kept_of_a_chunk_as_it_has_is_refused),
	    cmocka_unit_test(sums_that_overflow_are_errors),
	};
	return cmocka_run_group_tests_name("entropy_gate", tests, NULL, NULL);
}
