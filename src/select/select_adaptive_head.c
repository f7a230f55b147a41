/* AdaKV (arXiv 2407.11550): the heads of a layer share one budget of G * n_keep tokens, which goes to the best of all heads
 * together; each head is sure of a share for its own best ones. Lists differ in length.
 *
 * Exact mode: every head keeps the protected tokens; what is shared are the open ones. */
#include "core/internal.h"

#include <math.h>

static int32_t lists(const ckv_params *params, const ckv_selection *selection) {
	(void)params;
	return selection->n_heads;
}

static size_t bound(const ckv_params *params, const ckv_selection *selection) {
	(void)params;
	return (size_t)selection->n_keep * (size_t)selection->n_heads;
}

/* Tokens that each head keeps for certain, as the published code counts them. */
static int32_t n_safe(const ckv_params *params, int32_t n_open) {
	int32_t n = (int32_t)((double)n_open * params->safeguard);
	n = params->safeguard > 0.0 && n < 1 ? 1 : n;
	return n < n_open ? n : n_open;
}

/* lifted[G][open]: the scores, those of the safe tokens infinite. */
static ckv_status lift(ckv_ctx *ctx, const ckv_selection *s, float *lifted, int32_t *scratch) {
	int32_t open = s->hi - s->lo, safe = n_safe(&ctx->params, s->n_open);
	for (int32_t h = 0; h < s->n_heads; h++) {
		float *out = lifted + (size_t)h * (size_t)open;
		const float *in = s->scores + (size_t)h * (size_t)s->n_tokens + s->lo;
		for (int32_t t = 0; t < open; t++) {
			out[t] = in[t];
		}
		ckv_status status = ckv_top_positions(ctx, in, 0, open, safe, scratch);
		if (status) {
			return status;
		}
		for (int32_t i = 0; i < safe; i++) {
			out[scratch[i]] = INFINITY;
		}
	}
	return CKV_OK;
}

static void write(const ckv_selection *s, const int32_t *best, int32_t n_best, int32_t *positions, int32_t *offsets) {
	int32_t open = s->hi - s->lo, next = 0;
	int32_t *out = positions;
	offsets[0] = 0;
	for (int32_t h = 0; h < s->n_heads; h++) {
		for (int32_t t = 0; t < s->lo; t++) {
			*out++ = t;
		}
		for (; next < n_best && best[next] / open == h; next++) {
			*out++ = s->lo + best[next] % open;
		}
		for (int32_t t = s->hi; t < s->n_tokens; t++) {
			*out++ = t;
		}
		offsets[h + 1] = (int32_t)(out - positions);
	}
}

static ckv_status select(ckv_ctx *ctx, const ckv_selection *s, int32_t *positions, int32_t *offsets) {
	int32_t open = s->hi - s->lo;
	int64_t all = (int64_t)open * s->n_heads, wanted = (int64_t)s->n_open * s->n_heads;
	if (all > INT32_MAX) {
		return ckv_fail(&ctx->error, CKV_ERR_NOMEM, "%d heads of %d tokens are more than can be compared at once",
		                s->n_heads, open);
	}
	float *lifted = ckv_scratch(ctx, SLOT_LIFTED, (size_t)all, sizeof *lifted);
	/* Room for a head's safe ones and for the result. */
	int32_t *best = ckv_scratch(ctx, SLOT_CHUNKS, (size_t)wanted + 1, sizeof *best);
	if (!lifted || !best) {
		return CKV_ERR_NOMEM;
	}
	ckv_status status = s->n_open ? lift(ctx, s, lifted, best) : CKV_OK;
	status = status ? status : ckv_top_positions(ctx, lifted, 0, (int32_t)all, (int32_t)wanted, best);
	if (status == CKV_OK) {
		write(s, best, (int32_t)wanted, positions, offsets);
	}
	return status;
}

const ckv_selector ckv_selector_adaptive_head = {
    .info = {"adaptive_head", "the best tokens of all heads together; heads keep different numbers",
             "AdaKV, arXiv 2407.11550", "safeguard,sinks,window,mode"},
    .bound = bound,
    .lists = lists,
    .select = select,
};
