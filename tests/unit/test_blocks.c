/* ckv_select_blocks against plain implementations: one of L2 norms from scratch, and one of any policy that gathers the rows
 * in hand by ckv_compact and asks ckv_select. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_HEADS = 3, MOST_TOKENS = 90, DIM = 6, LAYERS = 4 };

/* A policy of keys and values, a layer, and how it is asked. */
typedef struct request {
	ckv_params params;
	test_layer t;
	int32_t n_heads, n_tokens, n_keep, block;
	int32_t starts[MOST_TOKENS], n_chunks; /* of text; 0: chunks of a fixed length */
} request;

static const char *describe(const request *q) {
	static char text[256];
	const ckv_params *p = &q->params;
	snprintf(text, sizeof text, "%s, %s, %s, G %d, T %d, keep %d, block %d, sinks %d, window %d, chunk %d, text chunks %d",
	         p->scorer, p->selector, p->reference ? "reference" : "exact", q->n_heads, q->n_tokens, q->n_keep, q->block,
	         p->sinks, p->window, p->chunk, q->n_chunks);
	return text;
}

static void cut_text(request *q, rng *r) {
	for (int32_t t = 0; t < q->n_tokens; t += rng_range(r, 1, 8)) {
		q->starts[q->n_chunks++] = t;
	}
	q->params.chunker = "sentence";
}

static request random_request(rng *r, const char *scorer, const char *selector, bool reference) {
	request q = {.n_chunks = 0};
	ckv_params_default(&q.params);
	q.params.scorer = scorer;
	q.params.selector = selector;
	q.params.reference = reference;
	q.params.sinks = rng_chance(r, 3) ? 0 : rng_range(r, 0, 6);
	q.params.window = rng_chance(r, 3) ? 0 : rng_range(r, 0, 9);
	q.params.chunk = rng_range(r, 2, 7);
	q.params.entropy_keep = 1;
	q.params.lag = rng_range(r, 2, 6);
	q.params.seed = rng_range(r, 0, 5);
	q.params.safeguard = rng_range(r, 0, 2) * 0.25;
	q.n_heads = rng_range(r, 1, MOST_HEADS);
	q.n_tokens = rng_range(r, 1, MOST_TOKENS);
	q.n_keep = rng_range(r, 1, q.n_tokens);
	q.block = rng_chance(r, 4) ? rng_range(r, 1, q.n_tokens) : rng_range(r, 1, 20);
	q.t = test_layer_make(r, q.n_heads, q.n_heads, DIM, q.n_tokens, 1);
	test_layer_add_values(&q.t, r, DIM + 2);
	q.t.layer.n_layers = LAYERS;
	q.t.layer.index = rng_range(r, 0, LAYERS - 1);
	return q;
}

static ckv_ctx *context_of(const request *q, const ckv_params *params, int32_t n_threads) {
	ckv_ctx *ctx;
	ckv_error error;
	ckv_ctx_options options;
	ckv_ctx_options_default(&options);
	options.n_threads = n_threads;
	CHECK(ckv_ctx_create(&ctx, params, &options, &error) == CKV_OK, "%s: %s", describe(q), error.message);
	if (q->n_chunks) {
		assert_int_equal(ckv_set_chunks(ctx, q->starts, q->n_chunks, q->n_tokens), CKV_OK);
	}
	return ctx;
}

static selected in_blocks(const request *q, const ckv_layer *layer) {
	ckv_ctx *ctx = context_of(q, &q->params, 1);
	selected s = select_blocks(ctx, layer, ckv_keep_tokens(q->n_keep), q->block);
	ckv_ctx_free(ctx);
	return s;
}

static selected at_once(const request *q) {
	ckv_ctx *ctx = context_of(q, &q->params, 1);
	selected s = select_layer(ctx, &q->t.layer, ckv_keep_tokens(q->n_keep));
	ckv_ctx_free(ctx);
	return s;
}

/* Whether a scorer can be asked of some rows of a layer alone. */
static bool is_local(const char *scorer) {
	ckv_params params;
	ckv_needs needs;
	ckv_params_default(&params);
	params.scorer = scorer;
	params.selector = "topk";
	assert_int_equal(ckv_params_needs(&params, &needs), CKV_OK);
	return (needs.flags & ~(uint32_t)CKV_NEED_VALUES) == 0;
}

/* For each such scorer and each selector that scores, in both modes. */
static void for_each_policy(void (*body)(rng *r, const char *scorer, const char *selector, bool reference)) {
	rng r = {7};
	for (size_t i = 0; ckv_scorer_info(i); i++) {
		for (size_t j = 0; ckv_selector_info(j) && is_local(ckv_scorer_info(i)->name); j++) {
			for (int mode = 0; mode < 2 && strcmp(ckv_selector_info(j)->name, "all") != 0; mode++) {
				body(&r, ckv_scorer_info(i)->name, ckv_selector_info(j)->name, mode == 1);
			}
		}
	}
}

/* ------------------------------------------------------------------------------------------------- L2 norms */

/* One head's block after block, by minus the norms of its keys in double. */
static void naive_norms(const request *q, int32_t head, unsigned char *kept) {
	const ckv_params *p = &q->params;
	memset(kept, 0, (size_t)q->n_tokens);
	memset(kept, 1, (size_t)q->n_keep);
	for (int32_t first = q->n_keep; first < q->n_tokens; first += q->block) {
		int32_t end = q->n_tokens - first > q->block ? first + q->block : q->n_tokens, n = 0;
		int32_t at[MOST_TOKENS];
		double worth[MOST_TOKENS];
		unsigned char chosen[MOST_TOKENS] = {0};
		for (int32_t t = 0; t < end; t++) {
			if (kept[t] || t >= first) {
				double sum = 0.0;
				for (int32_t c = 0; c < DIM; c++) {
					double x = (double)tensor_row(&q->t.k, head, t)[c];
					sum += x * x;
				}
				worth[n] = -(double)(float)sqrt(sum);
				at[n++] = t;
			}
		}
		int32_t left = p->reference ? q->n_keep : naive_protect(n, p->sinks, p->window, q->n_keep, chosen);
		naive_best(worth, 0, n, left, chosen);
		memset(kept, 0, (size_t)q->n_tokens);
		for (int32_t i = 0; i < n; i++) {
			kept[at[i]] = chosen[i];
		}
	}
}

static void norms_match_a_plain_implementation(void **state) {
	rng r = {1};
	(void)state;
	for (int n = 0; n < 400; n++) {
		request q = random_request(&r, "knorm", "topk", n % 2);
		selected s = in_blocks(&q, &q.t.layer);
		for (int32_t h = 0; h < q.n_heads; h++) {
			unsigned char kept[MOST_TOKENS];
			naive_norms(&q, h, kept);
			const unsigned char *mask = s.mask + (size_t)h * (size_t)q.n_tokens;
			CHECK(memcmp(mask, kept, (size_t)q.n_tokens) == 0, "%s: head %d", describe(&q), h);
		}
		selected_free(&s);
		test_layer_free(&q.t);
	}
}

/* ----------------------------------------------------------------------------------------------- any policy */

/* Rows in hand, for each head as many. */
typedef struct rows {
	int32_t n, at[MOST_HEADS][MOST_TOKENS];
} rows;

static void add_rows(rows *x, int32_t first, int32_t end) {
	for (int32_t t = first; t < end; t++, x->n++) {
		for (int32_t h = 0; h < MOST_HEADS; h++) {
			x->at[h][x->n] = t;
		}
	}
}

/* The rows of a view that are in hand, in memory of their own. */
static ckv_view gather(const ckv_view *view, const rows *x, unsigned char *memory) {
	int32_t positions[MOST_HEADS * MOST_TOKENS], offsets[MOST_HEADS + 1] = {0};
	size_t row = (size_t)view->head_dim * sizeof(float);
	ckv_keep keep;
	ckv_keep_init(&keep, positions, MOST_HEADS * MOST_TOKENS, offsets);
	keep.n_lists = view->n_heads;
	for (int32_t h = 0; h < view->n_heads; h++) {
		memcpy(positions + h * x->n, x->at[h], (size_t)x->n * sizeof *positions);
		offsets[h + 1] = offsets[h] + x->n;
	}
	keep.n_positions = (size_t)offsets[view->n_heads];
	ckv_view gathered = *view;
	gathered.data = memory;
	gathered.n_tokens = x->n;
	gathered.stride_token = row;
	gathered.stride_head = (size_t)x->n * row;
	assert_int_equal(ckv_compact(view, &keep, memory, gathered.stride_head, row), CKV_OK);
	return gathered;
}

static int32_t chunk_of(const request *q, int32_t t) {
	int32_t i = 0;
	while (i + 1 < q->n_chunks && q->starts[i + 1] <= t) {
		i++;
	}
	return q->n_chunks ? i : t / q->params.chunk;
}

/* The chunks of the layer that are in hand, told as chunks of a text. */
static void set_chunks(ckv_ctx *ctx, const request *q, const rows *x) {
	int32_t starts[MOST_TOKENS], n = 0;
	for (int32_t i = 0; i < x->n; i++) {
		if (i == 0 || chunk_of(q, x->at[0][i]) != chunk_of(q, x->at[0][i - 1])) {
			starts[n++] = i;
		}
	}
	assert_int_equal(ckv_set_chunks(ctx, starts, n, x->n), CKV_OK);
}

/* What ckv_select keeps of the rows in hand. */
static void choose(ckv_ctx *ctx, const request *q, rows *x) {
	static unsigned char keys[MOST_HEADS * MOST_TOKENS * DIM * 4], values[MOST_HEADS * MOST_TOKENS * (DIM + 2) * 4];
	ckv_layer layer = q->t.layer;
	layer.k = gather(&layer.k, x, keys);
	layer.v = gather(&layer.v, x, values);
	set_chunks(ctx, q, x);
	selected s = select_layer(ctx, &layer, ckv_keep_tokens(q->n_keep));
	int32_t n = 0;
	for (int32_t h = 0; h < q->n_heads; h++) {
		n = 0;
		for (int32_t i = 0; i < x->n; i++) {
			if (s.mask[(size_t)h * (size_t)x->n + (size_t)i]) {
				x->at[h][n++] = x->at[h][i];
			}
		}
	}
	x->n = n;
	selected_free(&s);
}

static void naive_blocks(const request *q, rows *x) {
	ckv_params params = q->params;
	params.chunker = "sentence";
	if (params.reference && !q->n_chunks && q->n_tokens < params.chunk && strcmp(params.selector, "entropy_gate") != 0) {
		params.selector = "topk"; /* as published where there is not one whole chunk */
	}
	request plain = *q;
	plain.n_chunks = 0;
	ckv_ctx *ctx = context_of(&plain, &params, 1);
	x->n = 0;
	add_rows(x, 0, q->n_keep);
	for (int32_t first = q->n_keep; first < q->n_tokens; first += q->block) {
		add_rows(x, first, q->n_tokens - first > q->block ? first + q->block : q->n_tokens);
		if (x->n > q->n_keep) {
			choose(ctx, q, x);
		}
	}
	ckv_ctx_free(ctx);
}

static void check_gathered(rng *r, const char *scorer, const char *selector, bool reference) {
	/* Heads that keep different numbers, and a score that goes by the position, are looked at below. */
	for (int n = 0; n < 150 && strcmp(selector, "adaptive_head") != 0 && strcmp(scorer, "random") != 0; n++) {
		request q = random_request(r, scorer, selector, reference);
		if (n % 3 == 0) {
			cut_text(&q, r);
		}
		selected s = in_blocks(&q, &q.t.layer);
		if (q.n_tokens - q.n_keep > q.block && s.keep.reason != CKV_KEPT_ALL_CHUNK) {
			rows x;
			naive_blocks(&q, &x);
			for (int32_t h = 0; h < q.n_heads; h++) {
				CHECK(n_kept(&s, h) == x.n, "%s: %d kept instead of %d", describe(&q), n_kept(&s, h), x.n);
				for (int32_t i = 0; i < x.n; i++) {
					CHECK(s.mask[(size_t)h * (size_t)q.n_tokens + (size_t)x.at[h][i]], "%s: head %d lacks %d", describe(&q),
					      h, x.at[h][i]);
				}
			}
		}
		selected_free(&s);
		test_layer_free(&q.t);
	}
}

static void blocks_are_selections_of_gathered_rows(void **state) {
	(void)state;
	for_each_policy(check_gathered);
}

/* A worth that no other row has a part in: what is best of all is best of each block. */
static void fixed_scores_keep_what_one_selection_keeps(void **state) {
	static const char *const scorers[] = {"knorm", "key_norm", "random", "streaming"};
	rng r = {2};
	(void)state;
	for (int n = 0; n < 800; n++) {
		request q = random_request(&r, scorers[n % 4], n / 4 % 2 ? "topk" : "adaptive_head", n / 8 % 2);
		selected s = in_blocks(&q, &q.t.layer), whole = at_once(&q);
		CHECK(same_selected(&s, &whole), "%s", describe(&q));
		selected_free(&s);
		selected_free(&whole);
		test_layer_free(&q.t);
	}
}

static void check_single(rng *r, const char *scorer, const char *selector, bool reference) {
	for (int n = 0; n < 30; n++) {
		request q = random_request(r, scorer, selector, reference);
		q.block = q.n_tokens - q.n_keep + (n % 3 ? rng_range(r, 0, 9) : 0);
		q.block = q.block < 1 ? 1 : n % 5 ? q.block : INT32_MAX;
		selected s = in_blocks(&q, &q.t.layer), whole = at_once(&q);
		CHECK(same_selected(&s, &whole), "%s", describe(&q));
		selected_free(&s);
		selected_free(&whole);
		test_layer_free(&q.t);
	}
}

/* With percentages too, which reference mode counts chunks by. */
static void a_block_that_reaches_the_end_is_one_selection(void **state) {
	rng r = {3};
	(void)state;
	for_each_policy(check_single);
	for (int n = 0; n < 100; n++) {
		request q = random_request(&r, "keydiff", "chunk", n % 2);
		ckv_ctx *ctx = context_of(&q, &q.params, 1);
		ckv_budget budget = ckv_remove_fraction(rng_range(&r, 0, 99) * 0.01);
		int32_t n_keep;
		assert_int_equal(ckv_budget_resolve(budget, q.n_tokens, &n_keep), CKV_OK);
		int32_t block = n_keep < q.n_tokens ? q.n_tokens - n_keep : 1;
		selected s = select_blocks(ctx, &q.t.layer, budget, block), whole = select_layer(ctx, &q.t.layer, budget);
		CHECK(same_selected(&s, &whole), "%s", describe(&q));
		selected_free(&s);
		selected_free(&whole);
		ckv_ctx_free(ctx);
		test_layer_free(&q.t);
	}
}

/* ------------------------------------------------------------------------- heads that keep different numbers */

typedef struct lists {
	int32_t n[MOST_HEADS], at[MOST_HEADS][MOST_TOKENS];
} lists;

/* Scores of one head's rows in hand. */
static void score_rows(ckv_ctx *ctx, const request *q, int32_t head, const lists *x, float *scores) {
	float *keys = test_memory((size_t)x->n[head] * DIM, sizeof *keys);
	for (int32_t i = 0; i < x->n[head]; i++) {
		memcpy(keys + (size_t)i * DIM, tensor_row(&q->t.k, head, x->at[head][i]), DIM * sizeof *keys);
	}
	ckv_layer layer = q->t.layer;
	layer.k.data = keys;
	layer.k.n_heads = 1;
	layer.k.n_tokens = x->n[head];
	score(ctx, &layer, scores);
	free(keys);
}

/* Shorter lists get rows behind the sinks that no cosine is as low as. */
static void choose_together(ckv_ctx *ctx, const request *q, lists *x) {
	int32_t width = 0, sinks = q->params.reference ? 0 : q->params.sinks < q->n_keep ? q->params.sinks : q->n_keep;
	float scores[MOST_HEADS * MOST_TOKENS];
	for (int32_t h = 0; h < q->n_heads; h++) {
		width = x->n[h] > width ? x->n[h] : width;
	}
	for (int32_t h = 0; h < q->n_heads; h++) {
		float *row = scores + h * width, own[MOST_TOKENS];
		int32_t pad = width - x->n[h];
		score_rows(ctx, q, h, x, own);
		for (int32_t i = 0; i < width; i++) {
			row[i] = i < sinks ? own[i] : i < sinks + pad ? -9.0f : own[i - pad];
		}
	}
	selected s = select_scores(ctx, scores, q->n_heads, width, ckv_keep_tokens(q->n_keep));
	for (int32_t h = 0; h < q->n_heads; h++) {
		int32_t pad = width - x->n[h], n = 0;
		for (int32_t i = 0; i < width; i++) {
			if (s.mask[h * width + i]) {
				x->at[h][n++] = x->at[h][i < sinks ? i : i - pad];
			}
		}
		x->n[h] = n;
	}
	selected_free(&s);
}

static void heads_of_different_length_are_scored_alone(void **state) {
	rng r = {4};
	int ragged = 0;
	(void)state;
	for (int n = 0; n < 300; n++) {
		request q = random_request(&r, "keydiff", "adaptive_head", n % 2);
		lists x;
		ckv_ctx *ctx = context_of(&q, &q.params, 1);
		for (int32_t h = 0; h < q.n_heads; h++) {
			x.n[h] = 0;
			for (int32_t t = 0; t < q.n_keep; t++) {
				x.at[h][x.n[h]++] = t;
			}
		}
		for (int32_t t = q.n_keep; t < q.n_tokens;) {
			int32_t end = q.n_tokens - t > q.block ? t + q.block : q.n_tokens;
			for (; t < end; t++) {
				for (int32_t h = 0; h < q.n_heads; h++) {
					x.at[h][x.n[h]++] = t;
				}
			}
			choose_together(ctx, &q, &x);
		}
		selected s = in_blocks(&q, &q.t.layer);
		for (int32_t h = 0; h < q.n_heads; h++) {
			CHECK(n_kept(&s, h) == x.n[h], "%s: head %d", describe(&q), h);
			ragged += x.n[h] != q.n_keep;
			for (int32_t i = 0; i < x.n[h]; i++) {
				CHECK(s.mask[h * q.n_tokens + x.at[h][i]], "%s: head %d lacks %d", describe(&q), h, x.at[h][i]);
			}
		}
		selected_free(&s);
		ckv_ctx_free(ctx);
		test_layer_free(&q.t);
	}
	assert_true(ragged > 100);
}

/* --------------------------------------------------------------------------------------------------- promises */

static void check_promises(rng *r, const char *scorer, const char *selector, bool reference) {
	for (int n = 0; n < 40 && !reference; n++) {
		request q = random_request(r, scorer, selector, reference);
		selected s = in_blocks(&q, &q.t.layer);
		int32_t total = 0;
		for (int32_t h = 0; h < q.n_heads; h++) {
			unsigned char kept[MOST_TOKENS] = {0};
			naive_protect(q.n_tokens, q.params.sinks, q.params.window, q.n_keep, kept);
			for (int32_t t = 0; t < q.n_tokens; t++) {
				CHECK(!kept[t] || s.mask[h * q.n_tokens + t], "%s: head %d lacks %d", describe(&q), h, t);
			}
			total += n_kept(&s, h);
		}
		bool whole = s.keep.reason == CKV_KEPT_ALL_CHUNK;
		CHECK(total == q.n_heads * (whole ? q.n_tokens : q.n_keep), "%s: %d kept", describe(&q), total);
		CHECK(s.keep.attention_kept == -1.0f, "%s", describe(&q));
		selected_free(&s);
		test_layer_free(&q.t);
	}
}

static void exact_mode_keeps_the_budget_sinks_and_window(void **state) {
	(void)state;
	for_each_policy(check_promises);
}

/* Type, layout, padding, threads and instruction sets do not show, nor does what a context did before. */
static void check_storage(rng *r, const char *scorer, const char *selector, bool reference) {
	static const ckv_dtype dtypes[] = {CKV_F32, CKV_F16, CKV_BF16, CKV_DECODED};
	for (int n = 0; n < 8; n++) {
		request q = random_request(r, scorer, selector, reference), other = random_request(r, scorer, selector, reference);
		selected expected = in_blocks(&q, &q.t.layer);
		stored k =
		    stored_make(&q.t.k, dtypes[n % 4], n < 4 ? TOKENS_OUTSIDE : HEADS_OUTSIDE, (size_t)rng_range(r, 0, 3) * 4);
		stored v = stored_make(&q.t.v, dtypes[(n + 1) % 4], n % 2 ? TOKENS_OUTSIDE : HEADS_OUTSIDE, 8);
		ckv_layer layer = q.t.layer;
		layer.k = k.view;
		layer.v = v.view;
		ckv_ctx_options options;
		ckv_ctx_options_default(&options);
		options.n_threads = n % 3 + 1;
		options.cpu_disable = n % 2 ? ~0u : 0;
		ckv_ctx *ctx;
		assert_int_equal(ckv_ctx_create(&ctx, &q.params, &options, NULL), CKV_OK);
		selected before = select_blocks(ctx, &other.t.layer, ckv_keep_tokens(other.n_keep), other.block);
		for (int time = 0; time < 2; time++) {
			selected s = select_blocks(ctx, &layer, ckv_keep_tokens(q.n_keep), q.block);
			CHECK(same_selected(&s, &expected), "%s: type %d", describe(&q), (int)dtypes[n % 4]);
			selected_free(&s);
		}
		selected_free(&before);
		selected_free(&expected);
		ckv_ctx_free(ctx);
		stored_free(&k);
		stored_free(&v);
		test_layer_free(&q.t);
		test_layer_free(&other.t);
	}
}

static void how_rows_are_stored_does_not_show(void **state) {
	(void)state;
	for_each_policy(check_storage);
}

/* ----------------------------------------------------------------------------------------------------- memory */

typedef struct outcome {
	int32_t positions[MOST_HEADS * MOST_TOKENS], offsets[MOST_HEADS + 1];
	ckv_keep keep;
} outcome;

static ckv_status ask(ckv_ctx *ctx, const request *q, outcome *o, bool with_offsets) {
	paint(o, sizeof *o);
	ckv_keep_init(&o->keep, o->positions, MOST_HEADS * MOST_TOKENS, with_offsets ? o->offsets : NULL);
	return ckv_select_blocks(ctx, &q->t.layer, ckv_keep_tokens(q->n_keep), q->block, &o->keep);
}

/* Request n fails, alone or with all after it; true when there were fewer. */
static bool torture(const request *q, const outcome *expected, long n, bool stay) {
	counting c;
	ckv_ctx *ctx;
	ckv_ctx_options options;
	outcome o;
	counting_init(&c);
	ckv_ctx_options_default(&options);
	options.allocator = &c.allocator;
	assert_int_equal(ckv_ctx_create(&ctx, &q->params, &options, NULL), CKV_OK);
	c.refuse_in = n;
	c.stay = stay;
	ckv_status status = ask(ctx, q, &o, true);
	if (status != CKV_OK) {
		CHECK(status == CKV_ERR_NOMEM && ckv_ctx_message(ctx)[0], "%s: request %ld: %s", describe(q), n,
		      ckv_strerror(status));
		CHECK(is_painted(o.positions, sizeof o.positions) && is_painted(o.offsets, sizeof o.offsets),
		      "%s: request %ld: written", describe(q), n);
		c.refuse_in = 0;
		assert_int_equal(ask(ctx, q, &o, true), CKV_OK);
	}
	CHECK(memcmp(&o.positions, &expected->positions, sizeof o.positions) == 0, "%s: request %ld", describe(q), n);
	long calls = c.calls;
	assert_int_equal(ask(ctx, q, &o, true), CKV_OK);
	CHECK(c.calls == calls, "%s: %ld requests the second time", describe(q), c.calls - calls);
	ckv_ctx_free(ctx);
	CHECK(c.live == 0, "%s: request %ld: %ld blocks are left", describe(q), n, c.live);
	return status == CKV_OK;
}

static void check_memory(rng *r, const char *scorer, const char *selector, bool reference) {
	request q = random_request(r, scorer, selector, reference);
	while (q.n_tokens - q.n_keep <= q.block) {
		test_layer_free(&q.t);
		q = random_request(r, scorer, selector, reference);
	}
	ckv_ctx *ctx = context_of(&q, &q.params, 1);
	outcome expected;
	assert_int_equal(ask(ctx, &q, &expected, true), CKV_OK);
	ckv_ctx_free(ctx);
	for (int stay = 0; stay < 2; stay++) {
		long n = 1;
		while (!torture(&q, &expected, n, stay)) {
			n++;
		}
		CHECK(n > 3, "%s: nothing was requested", describe(&q));
	}
	test_layer_free(&q.t);
}

static void every_request_may_fail(void **state) {
	(void)state;
	for_each_policy(check_memory);
}

/* 60000 tokens by blocks of 64: no request is as large as one byte for each token. */
static void memory_does_not_grow_with_the_cache(void **state) {
	enum { T = 60000, KEEP = 100, BLOCK = 64 };
	static const char *const policies[] = {
	    "l2norm", "keydiff", "lagkv:lag=16", "chunkkv:scorer=knorm", "egchunkkv:scorer=knorm", "adakv:scorer=keydiff"};
	rng r = {5};
	(void)state;
	test_layer t = test_layer_make(&r, 2, 2, 4, T, 1);
	test_layer_add_values(&t, &r, 4);
	int32_t positions[2 * KEEP];
	for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
		counting c;
		counting_init(&c);
		c.largest = 12000;
		ckv_ctx_options options;
		ckv_ctx_options_default(&options);
		options.allocator = &c.allocator;
		ckv_ctx *ctx = make_ctx_with(policies[i], &options);
		ckv_keep keep;
		ckv_keep_init(&keep, positions, 2 * KEEP, NULL);
		ckv_status status = ckv_select_blocks(ctx, &t.layer, ckv_keep_tokens(KEEP), BLOCK, &keep);
		CHECK(status == CKV_OK, "%s: %s", policies[i], ckv_ctx_message(ctx));
		ckv_ctx_free(ctx);
	}
	test_layer_free(&t);
}

/* ----------------------------------------------------------------------------------------------------- errors */

/* Calls that must fail leave everything but n_positions alone. */
static void refused(ckv_ctx *ctx, const ckv_layer *layer, ckv_budget budget, int32_t block, ckv_status expected,
                    const char *word) {
	outcome o;
	paint(&o, sizeof o);
	ckv_keep_init(&o.keep, o.positions, MOST_HEADS * MOST_TOKENS, o.offsets);
	ckv_keep before = o.keep;
	ckv_status status = ckv_select_blocks(ctx, layer, budget, block, &o.keep);
	CHECK(status == expected, "%s: %s", ckv_strerror(status), ckv_ctx_message(ctx));
	CHECK(strstr(ckv_ctx_message(ctx), word), "'%s' does not say '%s'", ckv_ctx_message(ctx), word);
	CHECK(memcmp(&before, &o.keep, sizeof before) == 0 && is_painted(o.positions, sizeof o.positions) &&
	          is_painted(o.offsets, sizeof o.offsets),
	      "%s: written", ckv_ctx_message(ctx));
}

static void scorers_of_more_than_keys_and_values_are_refused(void **state) {
	rng r = {6};
	int n_refused = 0;
	(void)state;
	test_layer t = test_layer_make(&r, 2, 2, DIM, 50, 20);
	for (size_t i = 0; ckv_scorer_info(i); i++) {
		const char *scorer = ckv_scorer_info(i)->name;
		ckv_params params;
		ckv_needs needs;
		ckv_ctx *ctx;
		ckv_params_default(&params);
		params.scorer = scorer;
		assert_int_equal(ckv_params_needs(&params, &needs), CKV_OK);
		if (!is_local(scorer)) {
			assert_int_equal(ckv_ctx_create(&ctx, &params, NULL, NULL), CKV_OK);
			const char *word = needs.flags & CKV_NEED_QUERIES ? "queries of a window, which exist for the last tokens only"
			                   : needs.flags & CKV_NEED_MASS  ? "sums of attention"
			                                                  : "moments of the queries";
			refused(ctx, &t.layer, ckv_keep_tokens(5), 7, CKV_ERR_UNSUPPORTED, word);
			refused(ctx, &t.layer, ckv_keep_tokens(50), 7, CKV_ERR_UNSUPPORTED, scorer); /* even if all fits */
			ckv_ctx_free(ctx);
			n_refused++;
		}
	}
	assert_int_equal(n_refused, 4);
	test_layer_free(&t);
}

static void bad_arguments_are_refused(void **state) {
	rng r = {7};
	ckv_keep keep;
	int32_t positions[100];
	(void)state;
	test_layer t = test_layer_make(&r, 2, 2, DIM, 50, 1);
	ckv_ctx *ctx = make_ctx("l2norm"), *lag = make_ctx("lagkv:lag=4");
	ckv_layer layer = t.layer;
	ckv_budget five = ckv_keep_tokens(5);
	ckv_keep_init(&keep, positions, 100, NULL);
	assert_int_equal(ckv_select_blocks(NULL, &layer, five, 7, &keep), CKV_ERR_ARG);
	assert_int_equal(ckv_select_blocks(ctx, &layer, five, 7, NULL), CKV_ERR_ARG);
	refused(ctx, NULL, five, 7, CKV_ERR_ARG, "needs a layer");
	refused(ctx, &layer, five, 0, CKV_ERR_ARG, "block of 1 token");
	refused(ctx, &layer, five, -5, CKV_ERR_ARG, "block of 1 token");
	refused(ctx, &layer, five, INT32_MIN, CKV_ERR_ARG, "block of 1 token");
	refused(ctx, &layer, ckv_keep_tokens(0), 7, CKV_ERR_ARG, "");
	refused(ctx, &layer, ckv_remove_fraction(1.5), 7, CKV_ERR_ARG, "");
	keep.size--;
	assert_int_equal(ckv_select_blocks(ctx, &layer, five, 7, &keep), CKV_ERR_ARG);
	layer.size--;
	refused(ctx, &layer, five, 7, CKV_ERR_ARG, "needs a layer");
	layer = t.layer;
	layer.k.data = NULL;
	refused(ctx, &layer, five, 7, CKV_ERR_ARG, "keys");
	refused(lag, &t.layer, five, 7, CKV_ERR_ARG, "values");
	test_layer_add_values(&t, &r, DIM);
	layer = layer_prefix(&t.layer, 50);
	layer.v.n_tokens = 49;
	refused(lag, &layer, five, 7, CKV_ERR_ARG, "differ in shape");
	layer.v.n_tokens = 50;
	layer.v.n_heads = 1;
	refused(lag, &layer, five, 7, CKV_ERR_ARG, "differ in shape");
	ckv_ctx_free(ctx);
	ckv_ctx_free(lag);
	test_layer_free(&t);
}

/* As in one selection: the layer's number where a selector goes by it, chunks where they are the text's. */
static void what_a_selector_lacks_is_told(void **state) {
	rng r = {8};
	(void)state;
	test_layer t = test_layer_make(&r, 2, 2, DIM, 50, 1);
	ckv_ctx *ctx = make_ctx("hybrid:scorer=knorm");
	refused(ctx, &t.layer, ckv_keep_tokens(5), 7, CKV_ERR_ARG, "n_layers");
	ckv_ctx_free(ctx);
	ctx = make_ctx("chunkkv:scorer=knorm,chunker=line");
	refused(ctx, &t.layer, ckv_keep_tokens(5), 7, CKV_ERR_STATE, "ckv_set_chunks");
	ckv_ctx_free(ctx);
	test_layer_free(&t);
}

static void too_small_an_array_is_told_what_suffices(void **state) {
	rng r = {9};
	(void)state;
	for (int n = 0; n < 60; n++) {
		request q = random_request(&r, "keydiff", n % 3 ? "chunk" : "topk", n % 2);
		ckv_ctx *ctx = context_of(&q, &q.params, 1);
		selected s = in_blocks(&q, &q.t.layer);
		int32_t positions[MOST_HEADS * MOST_TOKENS];
		ckv_keep keep;
		ckv_keep_init(&keep, positions, s.keep.n_positions - 1, NULL);
		ckv_budget budget = ckv_keep_tokens(q.n_keep);
		paint(positions, sizeof positions);
		assert_int_equal(ckv_select_blocks(ctx, &q.t.layer, budget, q.block, &keep), CKV_ERR_CAPACITY);
		assert_true(is_painted(positions, sizeof positions));
		keep.capacity = keep.n_positions;
		assert_int_equal(ckv_select_blocks(ctx, &q.t.layer, budget, q.block, &keep), CKV_OK);
		assert_int_equal(keep.n_positions, s.keep.n_positions);
		assert_memory_equal(positions, s.positions, keep.n_positions * sizeof *positions);
		ckv_ctx_free(ctx);
		selected_free(&s);
		test_layer_free(&q.t);
	}
}

static void the_full_policy_keeps_all(void **state) {
	rng r = {10};
	(void)state;
	test_layer t = test_layer_make(&r, 2, 2, DIM, 50, 1);
	ckv_ctx *ctx = make_ctx("full");
	selected s = select_blocks(ctx, &t.layer, ckv_keep_tokens(5), 3);
	assert_int_equal(s.keep.reason, CKV_KEPT_ALL_POLICY);
	assert_int_equal(s.keep.n_keep, 50);
	selected_free(&s);
	ckv_ctx_free(ctx);
	test_layer_free(&t);
}

/* By the head and the position of the whole layer, whatever it was in hand; and the context goes on. */
static void a_bad_key_is_told_where_it_stands(void **state) {
	static const char *const policies[] = {"l2norm", "keydiff", "lagkv:lag=2", "adakv:scorer=keydiff,window=1"};
	enum { T = 60, HEAD = 1, AT = 41 };
	(void)state;
	for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
		rng r = {11};
		test_layer t = test_layer_make(&r, 2, 2, DIM, T, 1);
		test_layer_add_values(&t, &r, DIM);
		float *bad = (float *)(void *)t.stored_k.memory + (HEAD * T + AT) * DIM + 1, good = *bad;
		ckv_ctx *ctx = make_ctx(policies[i]);
		selected expected = select_blocks(ctx, &t.layer, ckv_keep_tokens(20), 4);
		*bad = NAN;
		refused(ctx, &t.layer, ckv_keep_tokens(20), 4, CKV_ERR_NUMERIC, "head 1, token 41");
		refused(ctx, &t.layer, ckv_keep_tokens(20), 40, CKV_ERR_NUMERIC, "head 1, token 41");
		*bad = good;
		selected s = select_blocks(ctx, &t.layer, ckv_keep_tokens(20), 4);
		CHECK(same_selected(&s, &expected), "%s", policies[i]);
		selected whole = select_layer(ctx, &t.layer, ckv_keep_tokens(20));
		ckv_ctx *fresh = make_ctx(policies[i]);
		selected again = select_layer(fresh, &t.layer, ckv_keep_tokens(20));
		CHECK(same_selected(&whole, &again), "%s: blocks show in a selection after them", policies[i]);
		selected_free(&expected);
		selected_free(&s);
		selected_free(&whole);
		selected_free(&again);
		ckv_ctx_free(fresh);
		ckv_ctx_free(ctx);
		test_layer_free(&t);
	}
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(norms_match_a_plain_implementation),
	    cmocka_unit_test(blocks_are_selections_of_gathered_rows),
	    cmocka_unit_test(fixed_scores_keep_what_one_selection_keeps),
	    cmocka_unit_test(a_block_that_reaches_the_end_is_one_selection),
	    cmocka_unit_test(heads_of_different_length_are_scored_alone),
	    cmocka_unit_test(exact_mode_keeps_the_budget_sinks_and_window),
	    cmocka_unit_test(how_rows_are_stored_does_not_show),
	    cmocka_unit_test(every_request_may_fail),
	    cmocka_unit_test(memory_does_not_grow_with_the_cache),
	    cmocka_unit_test(scorers_of_more_than_keys_and_values_are_refused),
	    cmocka_unit_test(bad_arguments_are_refused),
	    cmocka_unit_test(what_a_selector_lacks_is_told),
	    cmocka_unit_test(too_small_an_array_is_told_what_suffices),
	    cmocka_unit_test(the_full_policy_keeps_all),
	    cmocka_unit_test(a_bad_key_is_told_where_it_stands),
	};
	return cmocka_run_group_tests_name("blocks", tests, NULL, NULL);
}
