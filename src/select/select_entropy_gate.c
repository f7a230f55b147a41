/* Entropy-gated ChunkKV (kvpress' EntropyGatedChunkKVPress): chunks in order of their mean score, as ChunkKV has it, but of
 * an important chunk in which few tokens hold the score only the best `entropy_keep` are kept. What that saves goes to
 * further chunks, and in the end to the best single tokens. The budget is kept exactly.
 *
 * Exact mode: protected tokens are kept first and count neither in a chunk's mean nor in its entropy. */
#include "core/internal.h"

#include <math.h>
#include <stdlib.h>

/* Terms of the published code that keep a division and a logarithm finite. */
static const double epsilon = 1e-8;

typedef struct chunk {
	int32_t first, end; /* open tokens */
	float score;
	double entropy; /* of the scores inside, 0 to 1 */
} chunk;

/* Normalised entropy of the scores x[n] of one chunk. */
static double entropy(const float *x, int32_t n) {
	double low = 0.0, sum = 0.0, h = 0.0;
	if (n == 1) {
		return 0.0;
	}
	for (int32_t i = 0; i < n; i++) {
		low = (double)x[i] < low ? (double)x[i] : low;
		sum += (double)x[i];
	}
	sum -= low * n;
	for (int32_t i = 0; i < n; i++) {
		double p = ((double)x[i] - low) / (sum + epsilon);
		h -= p * log(p + epsilon);
	}
	h /= log((double)n);
	return h < 0.0 ? 0.0 : h > 1.0 ? 1.0 : h;
}

static int compare_values(const void *a, const void *b) {
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* Sorts x; of an even number of values the lower of the two in the middle. */
static double lower_median(double *x, int32_t n) {
	qsort(x, (size_t)n, sizeof *x, compare_values);
	return x[(n - 1) / 2];
}

typedef struct gate {
	chunk *chunks;
	double *values;  /* [n] for the medians */
	float *scores;   /* [n] */
	int32_t *order;  /* [n] */
	uint8_t *chosen; /* [T] */
	float *rest;     /* [T] */
	int32_t n;
	double middle_score, middle_entropy;
} gate;

static ckv_status gate_init(gate *g, ckv_ctx *ctx, const ckv_selection *s) {
	int32_t first = ckv_chunk_of(ctx, s->lo);
	g->n = ckv_chunk_of(ctx, s->hi - 1) + 1 - first;
	size_t n = (size_t)g->n, tokens = (size_t)s->n_tokens;
	g->chunks =
	    ckv_scratch(ctx, SLOT_CHUNKS, n, sizeof *g->chunks + sizeof *g->values + sizeof *g->scores + sizeof *g->order);
	g->rest = ckv_scratch(ctx, SLOT_LIFTED, tokens, sizeof *g->rest + 1);
	if (!g->chunks || !g->rest) {
		return CKV_ERR_NOMEM;
	}
	g->values = (double *)(void *)(g->chunks + n);
	g->scores = (float *)(void *)(g->values + n);
	g->order = (int32_t *)(void *)(g->scores + n);
	g->chosen = (uint8_t *)(g->rest + tokens);
	for (int32_t i = 0; i < g->n; i++) {
		chunk *c = &g->chunks[i];
		ckv_chunk_open(ctx, s, first + i, &c->first, &c->end);
	}
	return CKV_OK;
}

static ckv_status measure(gate *g, ckv_ctx *ctx, const float *sums) {
	for (int32_t i = 0; i < g->n; i++) {
		chunk *c = &g->chunks[i];
		c->score = g->scores[i] = ckv_chunk_mean(sums, c->first, c->end);
		c->entropy = entropy(sums + c->first, c->end - c->first);
		if (!isfinite(c->score) || !isfinite(c->entropy)) {
			return ckv_fail(&ctx->error, CKV_ERR_NUMERIC, "the scores of tokens %d to %d overflow when summed",
			                ckv_row_position(ctx, 0, c->first), ckv_row_position(ctx, 0, c->end - 1));
		}
		g->values[i] = (double)c->score;
	}
	g->middle_score = lower_median(g->values, g->n);
	for (int32_t i = 0; i < g->n; i++) {
		g->values[i] = g->chunks[i].entropy;
	}
	g->middle_entropy = lower_median(g->values, g->n);
	return CKV_OK;
}

static ckv_status choose(gate *g, ckv_ctx *ctx, const float *sums, const chunk *c, int32_t n, int32_t *scratch) {
	ckv_status status = ckv_top_positions(ctx, sums, c->first, c->end, n, scratch);
	for (int32_t i = 0; i < n && status == CKV_OK; i++) {
		g->chosen[scratch[i]] = 1;
	}
	return status;
}

/* Chunks by score until the budget is used up; returns what is left of it through *budget. */
static ckv_status visit_chunks(gate *g, ckv_ctx *ctx, const float *sums, int32_t *budget, int32_t *scratch) {
	ckv_status status = ckv_order_by_score(ctx, g->scores, g->n, g->order);
	for (int32_t i = 0; i<g->n && * budget> 0 && status == CKV_OK; i++) {
		const chunk *c = &g->chunks[g->order[i]];
		int32_t length = c->end - c->first, n = length < *budget ? length : *budget;
		bool gated = (double)c->score >= g->middle_score && c->entropy < g->middle_entropy;
		n = gated && n > ctx->params.entropy_keep ? ctx->params.entropy_keep : n;
		status = choose(g, ctx, sums, c, n, scratch);
		*budget -= n;
	}
	return status;
}

/* The best tokens that no chunk gave. */
static ckv_status fill(gate *g, ckv_ctx *ctx, const ckv_selection *s, const float *sums, int32_t budget, int32_t *scratch) {
	int32_t n = 0;
	for (int32_t t = s->lo; t < s->hi; t++) {
		if (!g->chosen[t]) {
			g->rest[n++] = sums[t];
		}
	}
	ckv_status status = ckv_top_positions(ctx, g->rest, 0, n, budget, scratch);
	for (int32_t t = s->lo, i = 0, next = 0; t < s->hi && next < budget && status == CKV_OK; t++) {
		if (!g->chosen[t] && i++ == scratch[next]) {
			g->chosen[t] = 1;
			next++;
		}
	}
	return status;
}

/* Marks the open tokens that are kept. `scratch` holds n_open positions. */
static ckv_status choose_open(gate *g, ckv_ctx *ctx, const ckv_selection *s, const float *sums, int32_t *scratch) {
	int32_t budget = s->n_open;
	for (int32_t t = s->lo; t < s->hi; t++) {
		g->chosen[t] = 0;
	}
	ckv_status status = visit_chunks(g, ctx, sums, &budget, scratch);
	return status || budget == 0 ? status : fill(g, ctx, s, sums, budget, scratch);
}

static ckv_status select(ckv_ctx *ctx, const ckv_selection *s, int32_t *positions, int32_t *offsets) {
	gate g = {0};
	const float *sums = ckv_sum_heads(ctx, s);
	int32_t *out = positions;
	ckv_status status = sums ? CKV_OK : CKV_ERR_NOMEM;
	if (status == CKV_OK && s->lo < s->hi) {
		status = gate_init(&g, ctx, s);
		status = status ? status : measure(&g, ctx, sums);
		/* Nothing fails from here on; the places of the result serve as scratch until it is known. */
		status = status ? status : choose_open(&g, ctx, s, sums, positions);
	}
	if (status) {
		return status;
	}
	for (int32_t t = 0; t < s->n_tokens; t++) {
		bool open = t >= s->lo && t < s->hi;
		if (!open || (g.chosen && g.chosen[t])) {
			*out++ = t;
		}
	}
	offsets[0] = 0;
	offsets[1] = (int32_t)(out - positions);
	return CKV_OK;
}

static int32_t lists(const ckv_params *params, const ckv_selection *selection) {
	(void)params;
	(void)selection;
	return 1;
}

static size_t bound(const ckv_params *params, const ckv_selection *selection) {
	(void)params;
	return (size_t)selection->n_keep;
}

extern const ckv_selector ckv_selector_chunk;

static int32_t min_tokens(const ckv_params *params) { return ckv_selector_chunk.min_tokens(params); }

const ckv_selector ckv_selector_entropy_gate = {
    .info = {"entropy_gate", "whole chunks, but only the peaks of those with few of them; the same for all heads",
             "entropy-gated ChunkKV of kvpress", "chunker,entropy_keep,sinks,window,mode"},
    .bound = bound,
    .lists = lists,
    .select = select,
    .min_tokens = min_tokens,
    .short_reason = CKV_KEPT_ALL_CHUNK,
};
