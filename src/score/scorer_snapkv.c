/* SnapKV (arXiv 2404.14469, section 4): a prompt token is worth the attention that the last W queries pay it, averaged over
 * the queries, smoothed along the tokens, averaged over the query heads of a group. */
#include "core/internal.h"

#include <string.h>

/* out[t] = mean of in[t - kernel/2 .. t + kernel/2], zeros outside, always divided by kernel. */
static void pool(const float *in, int32_t n, int32_t kernel, float *out) {
	for (int32_t t = 0; t < n; t++) {
		int32_t first = t - kernel / 2 > 0 ? t - kernel / 2 : 0;
		int32_t last = t + kernel / 2 < n - 1 ? t + kernel / 2 : n - 1;
		float sum = 0.0f;
		for (int32_t i = first; i <= last; i++) {
			sum += in[i];
		}
		out[t] = sum / (float)kernel;
	}
}

/* The window's own tokens get one score above all others, as in the published code. */
static void crown_window(float *scores, int32_t n_heads, int32_t n_tokens, int32_t n_scored) {
	float best = scores[0];
	for (int32_t g = 0; g < n_heads; g++) {
		for (int32_t t = 0; t < n_scored; t++) {
			float s = scores[(size_t)g * (size_t)n_tokens + (size_t)t];
			best = s > best ? s : best;
		}
	}
	for (int32_t g = 0; g < n_heads; g++) {
		for (int32_t t = n_scored; t < n_tokens; t++) {
			scores[(size_t)g * (size_t)n_tokens + (size_t)t] = best + 1.0f;
		}
	}
}

static ckv_status score(ckv_ctx *ctx, const ckv_layer *layer, int32_t n_keep, float *scores) {
	(void)n_keep;
	const ckv_params *p = &ctx->params;
	int32_t n_tokens = layer->k.n_tokens, n_scored = n_tokens - p->window;
	int32_t n_kv = layer->k.n_heads, group = layer->q.n_heads / n_kv;
	size_t n = (size_t)n_tokens;
	const float *mass;
	ckv_status status = ckv_window_mass(ctx, layer, p->window, &mass);
	if (status) {
		return status;
	}
	float *pooled = ckv_scratch(ctx, SLOT_POOLED, n, sizeof *pooled);
	if (!pooled) {
		return CKV_ERR_NOMEM;
	}
	for (int32_t g = 0; g < n_kv; g++) {
		float *out = scores + (size_t)g * n;
		memset(out, 0, n * sizeof *out);
		for (int32_t h = 0; h < group; h++) {
			pool(mass + (size_t)(g * group + h) * n, n_scored, p->kernel, pooled);
			for (int32_t t = 0; t < n_scored; t++) {
				out[t] += pooled[t];
			}
		}
		for (int32_t t = 0; t < n_scored; t++) {
			out[t] /= (float)group;
		}
	}
	crown_window(scores, n_kv, n_tokens, n_scored);
	return CKV_OK;
}

static ckv_needs needs(const ckv_params *params) {
	ckv_needs n = {CKV_NEED_QUERIES, params->window};
	return n;
}

static int32_t min_tokens(const ckv_params *params) { return params->window + 1; }

const ckv_scorer ckv_scorer_snapkv = {
    .info = {"snapkv", "attention of the last W queries, smoothed along the tokens", "SnapKV, arXiv 2404.14469",
             "window,kernel"},
    .needs = needs,
    .min_tokens = min_tokens,
    .short_reason = CKV_KEPT_ALL_WINDOW,
    .score = score,
};
