/* TOVA (arXiv 2401.06104): a token is worth the attention of the very last query, mean over all heads of the layer. */
#include "core/internal.h"

#include <string.h>

/* The last token itself gets one score above all others, as in the published code. */
static ckv_status score(ckv_ctx *ctx, const ckv_layer *layer, int32_t n_keep, float *scores) {
	(void)n_keep;
	const float *mass;
	ckv_status status = ckv_window_mass(ctx, layer, 1, &mass);
	if (status) {
		return status;
	}
	size_t n = (size_t)layer->k.n_tokens, heads = (size_t)layer->q.n_heads;
	float best = 0.0f;
	for (size_t t = 0; t + 1 < n; t++) {
		float sum = 0.0f;
		for (size_t h = 0; h < heads; h++) {
			sum += mass[h * n + t];
		}
		scores[t] = sum / (float)heads;
		best = scores[t] > best ? scores[t] : best;
	}
	scores[n - 1] = best + 1.0f;
	for (size_t g = 1; g < (size_t)layer->k.n_heads; g++) {
		memcpy(scores + g * n, scores, n * sizeof *scores);
	}
	return CKV_OK;
}

static ckv_needs needs(const ckv_params *params) {
	(void)params;
	return (ckv_needs){CKV_NEED_QUERIES, 1};
}

static int32_t min_tokens(const ckv_params *params) {
	(void)params;
	return 2;
}

const ckv_scorer ckv_scorer_tova = {
    .info = {"tova", "attention of the last query, mean over all heads", "TOVA, arXiv 2401.06104", ""},
    .needs = needs,
    .min_tokens = min_tokens,
    .short_reason = CKV_KEPT_ALL_WINDOW,
    .score = score,
};
