/* Each KV head keeps its own n_keep best tokens: what SnapKV, H2O and most others do. */
#include "core/internal.h"

static int32_t lists(const ckv_params *params, const ckv_selection *selection) {
	(void)params;
	return selection->n_heads;
}

static size_t bound(const ckv_params *params, const ckv_selection *selection) {
	(void)params;
	return (size_t)selection->n_keep * (size_t)selection->n_heads;
}

static ckv_status select(ckv_ctx *ctx, const ckv_selection *s, int32_t *positions, int32_t *offsets) {
	int32_t *out = positions;
	offsets[0] = 0;
	for (int32_t h = 0; h < s->n_heads; h++) {
		const float *score = s->scores + (size_t)h * (size_t)s->n_tokens;
		for (int32_t t = 0; t < s->lo; t++) {
			*out++ = t;
		}
		ckv_status status = ckv_top_positions(ctx, score, s->lo, s->hi, s->n_open, out);
		if (status) {
			return status;
		}
		out += s->n_open;
		for (int32_t t = s->hi; t < s->n_tokens; t++) {
			*out++ = t;
		}
		offsets[h + 1] = (int32_t)(out - positions);
	}
	return CKV_OK;
}

const ckv_selector ckv_selector_topk = {
    .info = {"topk", "the best single tokens, each KV head its own", "", "sinks,window,mode"},
    .bound = bound,
    .lists = lists,
    .select = select,
};
