/* StreamingLLM (arXiv 2309.17453): the first tokens and the newest are kept, whatever they say. Of T tokens the T - n_keep
 * after the sinks score 0, all others 1. */
#include "core/internal.h"

static ckv_status score(ckv_ctx *ctx, const ckv_layer *layer, int32_t n_keep, float *scores) {
	int32_t n = layer->k.n_tokens, first = ctx->params.sinks;
	int32_t n_pruned = n - n_keep;
	for (int32_t g = 0; g < layer->k.n_heads; g++) {
		for (int32_t t = 0; t < n; t++) {
			bool pruned = t >= first && t - first < n_pruned;
			scores[(size_t)g * (size_t)n + (size_t)t] = pruned ? 0.0f : 1.0f;
		}
	}
	return CKV_OK;
}

const ckv_scorer ckv_scorer_streaming = {
    .info = {"streaming", "1 for the first and the newest tokens, else 0", "StreamingLLM, arXiv 2309.17453", "sinks"},
    .score = score,
};
