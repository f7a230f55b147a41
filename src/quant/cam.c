/* Cache merging in batches (CAMPress of kvpress 0.5.5, after CaM, openreview LCTmppB165): each of the best tokens that go
 * is, by a draw, shared out among the kept tokens right behind it.
 *
 * src/stream/merge.c has the CaM of VeloxQuant-MLX, of which nothing but the gate's rule is the same. There one token goes
 * with each overflow; it meets the one row whose key is most like its own, which becomes a mean of both, with its score, and
 * its key if so wished. Here keys are not compared, a window of rows takes an equal part each, and is not divided by
 * anything; the gate weighs the token's attention against the window's mean, not its score against one row's; the numbers
 * drawn are the caller's. */
#include "quant/quant.h"
#include "stream/internal.h"

#include <math.h>

ckv_status ckv_cam_choose(ckv_ctx *ctx, const float *scores, int32_t n_tokens, ckv_cam *cam) {
	size_t last = (size_t)n_tokens - 1;
	ckv_status status = ckv_top_positions(ctx, scores, 0, n_tokens, cam->n_kept, cam->kept);
	float *others = status ? NULL : ckv_scratch(ctx, SLOT_MERGE, (size_t)n_tokens, sizeof *others);
	if (!others) {
		return CKV_ERR_NOMEM;
	}
	for (size_t t = 0; t <= last; t++) { /* from the end, so that the later one of equals is taken */
		others[last - t] = scores[t];
	}
	for (int32_t i = 0; i < cam->n_kept; i++) {
		others[last - (size_t)cam->kept[i]] = -INFINITY;
	}
	status = ckv_top_positions(ctx, others, 0, n_tokens, cam->n_merged, cam->merged);
	for (int32_t i = 0, j = cam->n_merged - 1; i <= j && status == CKV_OK; i++, j--) {
		int32_t first = cam->merged[i];
		cam->merged[i] = n_tokens - 1 - cam->merged[j];
		cam->merged[j] = n_tokens - 1 - first;
	}
	return status;
}

static ckv_status load(const ckv_kernels *kernels, const ckv_view *v, int32_t head, int32_t token, float *row,
                       ckv_error *error) {
	ckv_view_decode(kernels, v, head, token, 1, row);
	if (!ckv_all_finite(row, (size_t)v->head_dim)) {
		return ckv_fail(error, CKV_ERR_NUMERIC, "KV head %d, token %d: NaN or infinity in a value", head, token);
	}
	return CKV_OK;
}

/* Probability that a token is merged into n kept ones. Behind the last kept token there are none, and nothing happens
 * whatever is drawn; the published code still tells 1 then, or 0 where the token has no attention. */
static float probability_of(const float *attention, int32_t token, const int32_t *window, int32_t n) {
	float sum = 0.0f;
	for (int32_t i = 0; i < n; i++) {
		sum += attention[window[i]];
	}
	return ckv_merge_gate(attention[token], n > 0 ? sum / (float)n : 0.0f);
}

ckv_status ckv_cam_merge(const ckv_kernels *kernels, const ckv_view *v, int32_t head, const ckv_cam *cam,
                         const float *attention, const float *draws, float *probability, float *row, float *out,
                         ckv_error *error) {
	size_t dim = (size_t)v->head_dim;
	ckv_status status = CKV_OK;
	if (!ckv_all_finite(attention, (size_t)v->n_tokens)) {
		return ckv_fail(error, CKV_ERR_NUMERIC, "KV head %d: NaN or infinity in a sum of attention", head);
	}
	for (int32_t i = 0; i < cam->n_kept && status == CKV_OK; i++) {
		status = load(kernels, v, head, cam->kept[i], out + (size_t)i * dim, error);
	}
	int32_t next = 0; /* kept token behind the merged one */
	for (int32_t m = 0; m < cam->n_merged && status == CKV_OK; m++) {
		while (next < cam->n_kept && cam->kept[next] < cam->merged[m]) {
			next++;
		}
		int32_t n = cam->n_kept - next < cam->window ? cam->n_kept - next : cam->window;
		probability[m] = probability_of(attention, cam->merged[m], cam->kept + next, n);
		status = load(kernels, v, head, cam->merged[m], row, error);
		for (int32_t i = 0; i < n && status == CKV_OK && draws[m] < probability[m]; i++) {
			kernels->axpy(out + (size_t)(next + i) * dim, row, 1.0f / (float)n, dim);
		}
	}
	return status;
}
