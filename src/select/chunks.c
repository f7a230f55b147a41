/* The chunks of a cache: every C tokens, or where the caller said (ckv_set_chunks). */
#include "core/internal.h"

#include <string.h>

static bool is_fixed(const ckv_params *params) { return strcmp(params->chunker, "fixed") == 0; }

/* The first tokens of the chunks; NULL: they come every C tokens. Of rows in hand those that are left of one chunk of the
 * layer make up a chunk. */
static const int32_t *starts_of(const ckv_ctx *ctx, int32_t *n_chunks) {
	if (ctx->hand && ctx->hand->starts) {
		*n_chunks = ctx->hand->n_chunks;
		return ctx->hand->starts;
	}
	*n_chunks = ctx->n_chunks;
	return is_fixed(&ctx->params) ? NULL : ctx->slot[SLOT_STARTS];
}

int32_t ckv_chunk_most(const ckv_params *params) { return is_fixed(params) ? params->chunk : params->max_chunk; }

int32_t ckv_chunk_count(const ckv_ctx *ctx, int32_t n_tokens) {
	int32_t chunk = ctx->params.chunk, n_chunks;
	return starts_of(ctx, &n_chunks) ? n_chunks : n_tokens / chunk + (n_tokens % chunk != 0);
}

void ckv_chunk_range(const ckv_ctx *ctx, int32_t n_tokens, int32_t i, int32_t *start, int32_t *end) {
	int32_t chunk = ctx->params.chunk, n_chunks;
	const int32_t *starts = starts_of(ctx, &n_chunks);
	if (!starts) {
		*start = i * chunk;
		*end = n_tokens - *start > chunk ? *start + chunk : n_tokens;
		return;
	}
	*start = starts[i];
	*end = i + 1 < n_chunks ? starts[i + 1] : n_tokens;
}

void ckv_chunk_open(const ckv_ctx *ctx, const ckv_selection *s, int32_t i, int32_t *first, int32_t *end) {
	ckv_chunk_range(ctx, s->n_tokens, i, first, end);
	*first = *first > s->lo ? *first : s->lo;
	*end = *end < s->hi ? *end : s->hi;
}

float ckv_chunk_mean(const float *x, int32_t first, int32_t end) {
	float sum = 0.0f;
	for (int32_t t = first; t < end; t++) {
		sum += x[t];
	}
	return sum / (float)(end - first);
}

int32_t ckv_chunk_of(const ckv_ctx *ctx, int32_t token) {
	int32_t low = 0, high;
	const int32_t *starts = starts_of(ctx, &high);
	if (!starts) {
		return token / ctx->params.chunk;
	}
	while (high - low > 1) {
		int32_t middle = low + (high - low) / 2;
		if (starts[middle] <= token) {
			low = middle;
		} else {
			high = middle;
		}
	}
	return low;
}

ckv_status ckv_chunks_check(ckv_ctx *ctx, int32_t n_tokens) {
	ckv_needs needs;
	if (ckv_params_needs(&ctx->params, &needs) != CKV_OK || !(needs.flags & CKV_NEED_CHUNKS)) {
		return CKV_OK;
	}
	if (ctx->n_chunks == 0 || ctx->chunked_tokens != n_tokens) {
		return ckv_fail(&ctx->error, CKV_ERR_STATE,
		                "chunker '%s' needs the chunks of these %d tokens: call ckv_set_chunks (they were set for %d)",
		                ctx->params.chunker, n_tokens, ctx->chunked_tokens);
	}
	return CKV_OK;
}

static ckv_status check_starts(ckv_ctx *ctx, const int32_t *starts, int32_t n_chunks, int32_t n_tokens) {
	int32_t most = ctx->params.max_chunk;
	if (n_chunks < 1 || n_tokens < 1 || n_chunks > n_tokens || starts[0] != 0) {
		return ckv_fail(&ctx->error, CKV_ERR_ARG, "%d chunks of %d tokens, the first not at 0: not usable", n_chunks,
		                n_tokens);
	}
	for (int32_t i = 0; i < n_chunks; i++) {
		int32_t end = i + 1 < n_chunks ? starts[i + 1] : n_tokens;
		if (end <= starts[i] || end > n_tokens || end - starts[i] > most) {
			return ckv_fail(&ctx->error, CKV_ERR_ARG, "chunk %d reaches from token %d to %d: it must have 1 to %d tokens", i,
			                starts[i], end, most);
		}
	}
	return CKV_OK;
}

ckv_status ckv_set_chunks(ckv_ctx *ctx, const int32_t *starts, int32_t n_chunks, int32_t n_tokens) {
	if (!ctx) {
		return CKV_ERR_ARG;
	}
	ckv_begin(ctx);
	if (!starts && n_chunks == 0) {
		ctx->n_chunks = ctx->chunked_tokens = 0;
		return CKV_OK;
	}
	if (!starts) {
		return ckv_fail(&ctx->error, CKV_ERR_ARG, "%d chunks without their first tokens", n_chunks);
	}
	ckv_status status = check_starts(ctx, starts, n_chunks, n_tokens);
	if (status) {
		return status;
	}
	int32_t *own = ckv_scratch(ctx, SLOT_STARTS, (size_t)n_chunks, sizeof *own);
	if (!own) {
		return CKV_ERR_NOMEM;
	}
	memcpy(own, starts, (size_t)n_chunks * sizeof *own);
	ctx->n_chunks = n_chunks;
	ctx->chunked_tokens = n_tokens;
	return CKV_OK;
}

const float *ckv_sum_heads(ckv_ctx *ctx, const ckv_selection *s) {
	float *sums = ckv_scratch(ctx, SLOT_SUMS, (size_t)s->n_tokens, sizeof *sums);
	for (int32_t t = 0; t < s->n_tokens && sums; t++) {
		float sum = 0.0f;
		for (int32_t h = 0; h < s->n_heads; h++) {
			sum += s->scores[(size_t)h * (size_t)s->n_tokens + (size_t)t];
		}
		sums[t] = sum;
	}
	return sums;
}
