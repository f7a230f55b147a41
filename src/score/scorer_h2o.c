/* H2O (arXiv 2306.14048), observed over a whole prompt: a token is worth the attention that all queries paid it, divided by
 * their number: a key is seen by the queries from its own on, T - j of them. */
#include "core/internal.h"

static ckv_status score(ckv_ctx *ctx, const ckv_layer *layer, int32_t n_keep, float *scores) {
	(void)n_keep;
	size_t n = (size_t)layer->k.n_tokens;
	if (!layer->mass || layer->mass_stride < n) {
		return ckv_fail(
		    &ctx->error, CKV_ERR_ARG,
		    "layer %d: scorer 'h2o' needs the attention of all queries (ckv_mass_add), %zu sums for each KV head",
		    layer->index, n);
	}
	for (size_t g = 0; g < (size_t)layer->k.n_heads; g++) {
		for (size_t t = 0; t < n; t++) {
			scores[g * n + t] = layer->mass[g * layer->mass_stride + t] / (float)(n - t);
		}
	}
	return CKV_OK;
}

static ckv_needs needs(const ckv_params *params) {
	(void)params;
	return (ckv_needs){CKV_NEED_MASS, 0};
}

const ckv_scorer ckv_scorer_h2o = {
    .info = {"h2o", "attention of all queries, by how many could see the token", "H2O, arXiv 2306.14048", ""},
    .needs = needs,
    .score = score,
};
