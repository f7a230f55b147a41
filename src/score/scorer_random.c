/* Uniform random scores: the baseline that every other scorer must beat. A score depends on seed, layer, head and token
 * only, so it is the same wherever and in whatever order it is computed. */
#include "core/internal.h"

/* splitmix64's finalizer (Steele, Lea, Flood 2014): neighbouring inputs give unrelated outputs. */
static uint64_t mix(uint64_t x) {
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

static ckv_status score(ckv_ctx *ctx, const ckv_layer *layer, int32_t n_keep, float *scores) {
	(void)n_keep;
	size_t n = (size_t)layer->k.n_tokens;
	for (int32_t g = 0; g < layer->k.n_heads; g++) {
		uint32_t head = (uint32_t)ckv_row_head(ctx, g);
		uint64_t stream = mix(mix((uint64_t)ctx->params.seed) ^ ((uint64_t)(uint32_t)layer->index << 32 | head));
		for (size_t t = 0; t < n; t++) {
			uint32_t token = (uint32_t)ckv_row_position(ctx, g, (int32_t)t);
			scores[(size_t)g * n + t] = (float)(mix(stream + token) >> 40) * 0x1p-24f;
		}
	}
	return CKV_OK;
}

const ckv_scorer ckv_scorer_random = {
    .info = {"random", "uniform random numbers", "", "seed"},
    .score = score,
};
