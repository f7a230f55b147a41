/* Gathering kept rows, in place or elsewhere. */
#include "core/internal.h"

#include <string.h>

static ckv_status check_lists(const ckv_view *view, const ckv_keep *keep) {
	if (keep->n_lists != 1 && (keep->n_lists != view->n_heads || !keep->offsets)) {
		return CKV_ERR_ARG;
	}
	for (int32_t list = 0; list < keep->n_lists; list++) {
		int32_t first = keep->n_lists == 1 ? 0 : keep->offsets[list];
		int32_t end = keep->n_lists == 1 ? (int32_t)keep->n_positions : keep->offsets[list + 1];
		int32_t before = -1;
		if (first < 0 || end < first || (size_t)end > keep->n_positions) {
			return CKV_ERR_ARG;
		}
		for (int32_t i = first; i < end; i++) {
			if (keep->positions[i] <= before || keep->positions[i] >= view->n_tokens) {
				return CKV_ERR_ARG;
			}
			before = keep->positions[i];
		}
	}
	return CKV_OK;
}

ckv_status ckv_compact(const ckv_view *view, const ckv_keep *keep, void *dst, size_t stride_head, size_t stride_token) {
	if (!view || !keep || !keep->positions || !dst || ckv_view_check(view, "rows", 0, NULL) != CKV_OK) {
		return CKV_ERR_ARG;
	}
	ckv_status status = check_lists(view, keep);
	if (status) {
		return status;
	}
	size_t row = ckv_view_row_bytes(view);
	for (int32_t h = 0; h < view->n_heads; h++) {
		int32_t first = keep->n_lists == 1 ? 0 : keep->offsets[h];
		int32_t end = keep->n_lists == 1 ? (int32_t)keep->n_positions : keep->offsets[h + 1];
		const char *from = (const char *)view->data + (size_t)h * view->stride_head;
		char *to = (char *)dst + (size_t)h * stride_head;
		for (int32_t i = first; i < end; i++) {
			memmove(to + (size_t)(i - first) * stride_token, from + (size_t)keep->positions[i] * view->stride_token, row);
		}
	}
	return CKV_OK;
}
