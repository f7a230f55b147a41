/* Keeps everything: the policy "full", and every cache that is too short to compress. */
#include "core/internal.h"

static int32_t lists(const ckv_params *params, const ckv_selection *selection) {
	(void)params;
	(void)selection;
	return 1;
}

static size_t bound(const ckv_params *params, const ckv_selection *selection) {
	(void)params;
	return (size_t)selection->n_tokens;
}

static ckv_status select(ckv_ctx *ctx, const ckv_selection *selection, int32_t *positions, int32_t *offsets) {
	(void)ctx;
	for (int32_t t = 0; t < selection->n_tokens; t++) {
		positions[t] = t;
	}
	offsets[0] = 0;
	offsets[1] = selection->n_tokens;
	return CKV_OK;
}

const ckv_selector ckv_selector_all = {
    .info = {"all", "every token", "", ""},
    .bound = bound,
    .lists = lists,
    .select = select,
};
