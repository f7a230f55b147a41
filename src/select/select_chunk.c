/* ChunkKV (arXiv 2502.00299, algorithm 1): scores are summed over the heads, averaged over chunks of C tokens, and whole
 * chunks are kept, the same for all heads of a layer: what belongs together in the text stays together.
 *
 * Reference mode keeps max(1, floor(n_chunks (1 - r))) chunks and knows no protected tokens; a cache shorter than a chunk
 * falls back to topk. Exact mode keeps exactly n_keep tokens: protected ones count neither in a chunk's mean nor in its
 * length; the first chunk that does not fit whole gives its best tokens. */
#include "core/internal.h"

#include <math.h>
#include <string.h>

extern const ckv_selector ckv_selector_topk;

static bool falls_back(const ckv_params *params, const ckv_selection *s) {
	return params->reference && strcmp(params->chunker, "fixed") == 0 && s->n_whole < params->chunk;
}

static int32_t lists(const ckv_params *params, const ckv_selection *s) { return falls_back(params, s) ? s->n_heads : 1; }

/* Chunks that the published code keeps of n. */
static int32_t reference_count(const ckv_selection *s, int32_t n) {
	double kept = floor((double)n * s->keep_fraction);
	return kept < 1.0 ? 1 : (int32_t)kept;
}

static size_t bound(const ckv_params *params, const ckv_selection *s) {
	if (falls_back(params, s)) {
		return (size_t)s->n_keep * (size_t)s->n_heads;
	}
	if (!params->reference) {
		return (size_t)s->n_keep;
	}
	size_t kept = (size_t)reference_count(s, s->n_chunks) * (size_t)ckv_chunk_most(params);
	return kept < (size_t)s->n_tokens ? kept : (size_t)s->n_tokens;
}

/* The chunks with open tokens, and which of them are kept. Chunk numbers are relative to `first`. */
typedef struct chunks {
	int32_t first, count;
	float *score;                        /* [count] */
	int32_t *kept;                       /* [count] kept whole, ascending */
	int32_t *kept_1;                     /* [count] the same for one chunk more */
	int32_t n_whole, partial, n_partial; /* chunk `partial` gives its best n_partial tokens; -1: none does */
} chunks;

static ckv_status score_chunks(ckv_ctx *ctx, const ckv_selection *s, const float *sums, chunks *c) {
	c->first = ckv_chunk_of(ctx, s->lo);
	c->count = ckv_chunk_of(ctx, s->hi - 1) + 1 - c->first;
	c->score = ckv_scratch(ctx, SLOT_CHUNKS, (size_t)c->count, sizeof(float) + 2 * sizeof(int32_t));
	if (!c->score) {
		return CKV_ERR_NOMEM;
	}
	c->kept = (int32_t *)(void *)(c->score + c->count);
	c->kept_1 = c->kept + c->count;
	for (int32_t i = 0; i < c->count; i++) {
		int32_t first, end;
		ckv_chunk_open(ctx, s, c->first + i, &first, &end);
		c->score[i] = ckv_chunk_mean(sums, first, end);
		if (!isfinite(c->score[i])) {
			return ckv_fail(&ctx->error, CKV_ERR_NUMERIC, "the scores of the chunk at token %d overflow when summed",
			                ckv_row_position(ctx, 0, first));
		}
	}
	return CKV_OK;
}

/* Puts the n best chunks into list and their tokens into *total. */
static ckv_status best_chunks(ckv_ctx *ctx, const ckv_selection *s, const chunks *c, int32_t n, int32_t *list,
                              int64_t *total) {
	ckv_status status = ckv_top_positions(ctx, c->score, 0, c->count, n, list);
	*total = 0;
	for (int32_t i = 0; i < n && status == CKV_OK; i++) {
		int32_t first, end;
		ckv_chunk_open(ctx, s, c->first + list[i], &first, &end);
		*total += end - first;
	}
	return status;
}

/* The most chunks, best first, that fit into n_open; the next one fills the rest with its best tokens. */
static ckv_status fill_budget(ckv_ctx *ctx, const ckv_selection *s, chunks *c) {
	int32_t fits = 0, fails = c->count + 1;
	int64_t total = 0;
	while (fails - fits > 1) {
		int32_t middle = fits + (fails - fits) / 2;
		ckv_status status = best_chunks(ctx, s, c, middle, c->kept, &total);
		if (status) {
			return status;
		}
		if (total <= s->n_open) {
			fits = middle;
		} else {
			fails = middle;
		}
	}
	ckv_status status = best_chunks(ctx, s, c, fits, c->kept, &total);
	c->n_whole = fits;
	c->partial = -1;
	c->n_partial = (int32_t)(s->n_open - total);
	if (status || c->n_partial == 0) {
		return status;
	}
	status = best_chunks(ctx, s, c, fits + 1, c->kept_1, &total);
	for (int32_t i = 0; i <= fits && c->partial < 0; i++) {
		if (i == fits || c->kept[i] != c->kept_1[i]) {
			c->partial = c->kept_1[i];
		}
	}
	return status;
}

/* As many chunks as the published code keeps. */
static ckv_status fill_reference(ckv_ctx *ctx, const ckv_selection *s, chunks *c) {
	int64_t total;
	c->n_whole = reference_count(s, c->count);
	return best_chunks(ctx, s, c, c->n_whole, c->kept, &total);
}

static ckv_status write_positions(ckv_ctx *ctx, const ckv_selection *s, const float *sums, const chunks *c, int32_t *out,
                                  int32_t *n_out) {
	int32_t n = 0, next = 0;
	for (int32_t t = 0; t < s->lo; t++) {
		out[n++] = t;
	}
	for (int32_t i = 0; i < c->count; i++) {
		int32_t first, end;
		ckv_chunk_open(ctx, s, c->first + i, &first, &end);
		if (i == c->partial) {
			ckv_status status = ckv_top_positions(ctx, sums, first, end, c->n_partial, out + n);
			if (status) {
				return status;
			}
			n += c->n_partial;
		} else if (next < c->n_whole && c->kept[next] == i) {
			next++;
			for (int32_t t = first; t < end; t++) {
				out[n++] = t;
			}
		}
	}
	for (int32_t t = s->hi; t < s->n_tokens; t++) {
		out[n++] = t;
	}
	*n_out = n;
	return CKV_OK;
}

static ckv_status select(ckv_ctx *ctx, const ckv_selection *s, int32_t *positions, int32_t *offsets) {
	if (falls_back(&ctx->params, s)) {
		return ckv_selector_topk.select(ctx, s, positions, offsets);
	}
	chunks c = {0, 0, NULL, NULL, NULL, 0, -1, 0};
	const float *sums = ckv_sum_heads(ctx, s);
	if (!sums) {
		return CKV_ERR_NOMEM;
	}
	if (s->lo < s->hi) {
		ckv_status status = score_chunks(ctx, s, sums, &c);
		status = status ? status : ctx->params.reference ? fill_reference(ctx, s, &c) : fill_budget(ctx, s, &c);
		if (status) {
			return status;
		}
	}
	offsets[0] = 0;
	return write_positions(ctx, s, sums, &c, positions, &offsets[1]);
}

static int32_t min_tokens(const ckv_params *params) { return strcmp(params->chunker, "fixed") == 0 ? params->chunk : 1; }

const ckv_selector ckv_selector_chunk = {
    .info = {"chunk", "the best whole chunks of C tokens, the same for all heads of a layer", "ChunkKV, arXiv 2502.00299",
             "chunker,sinks,window,mode"},
    .bound = bound,
    .lists = lists,
    .select = select,
    .min_tokens = min_tokens,
    .short_reason = CKV_KEPT_ALL_CHUNK,
};
