/* Walking over one head's rows, for scorers that look at keys and values alone. */
#include "core/internal.h"

#include <math.h>

double ckv_norm(const float *x, size_t n) {
	double sum = 0.0;
	for (size_t i = 0; i < n; i++) {
		sum += (double)x[i] * (double)x[i];
	}
	return sqrt(sum);
}

ckv_status ckv_each_row(ckv_ctx *ctx, const ckv_view *view, int32_t head, const char *what, int32_t layer,
                        ckv_row_visitor visit, void *user) {
	size_t d = (size_t)view->head_dim;
	float *rows = ckv_scratch(ctx, SLOT_ROWS, CKV_LANES, d * sizeof *rows);
	if (!rows) {
		return CKV_ERR_NOMEM;
	}
	for (int32_t t = 0; t < view->n_tokens; t += CKV_LANES) {
		int32_t n = view->n_tokens - t < CKV_LANES ? view->n_tokens - t : CKV_LANES;
		ckv_view_decode(ctx->kernels, view, head, t, n, rows);
		for (int32_t i = 0; i < n; i++) {
			const float *row = rows + (size_t)i * d;
			for (size_t c = 0; c < d; c++) {
				if (!isfinite(row[c])) {
					return ckv_fail(&ctx->error, CKV_ERR_NUMERIC, "layer %d, KV head %d, token %d: NaN or infinity in %s",
					                layer, ckv_row_head(ctx, head), ckv_row_position(ctx, head, t + i), what);
				}
			}
			ckv_status status = visit(user, t + i, row);
			if (status) {
				return status;
			}
		}
	}
	return CKV_OK;
}
