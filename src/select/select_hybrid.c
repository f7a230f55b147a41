/* By layer: chunks in the lower half, single tokens above (ChunkKV, arXiv 2502.00299, appendix I). */
#include "core/internal.h"

extern const ckv_selector ckv_selector_chunk, ckv_selector_topk;

static const ckv_selector *of(const ckv_selection *s) {
	return s->layer < s->n_layers / 2 ? &ckv_selector_chunk : &ckv_selector_topk;
}

static int32_t lists(const ckv_params *params, const ckv_selection *s) { return of(s)->lists(params, s); }

static size_t bound(const ckv_params *params, const ckv_selection *s) { return of(s)->bound(params, s); }

static ckv_status select(ckv_ctx *ctx, const ckv_selection *s, int32_t *positions, int32_t *offsets) {
	if (s->n_layers < 1 || s->layer < 0 || s->layer >= s->n_layers) {
		return ckv_fail(&ctx->error, CKV_ERR_ARG,
		                "selector 'hybrid' goes by layer: this is %d of %d (set index and n_layers, and use ckv_select)",
		                s->layer, s->n_layers);
	}
	return of(s)->select(ctx, s, positions, offsets);
}

static int32_t min_tokens(const ckv_params *params) { return ckv_selector_chunk.min_tokens(params); }

const ckv_selector ckv_selector_hybrid = {
    .info = {"hybrid", "chunks in the lower half of the layers, single tokens above", "ChunkKV, arXiv 2502.00299",
             "chunker,sinks,window,mode"},
    .bound = bound,
    .lists = lists,
    .select = select,
    .min_tokens = min_tokens,
    .short_reason = CKV_KEPT_ALL_CHUNK,
};
