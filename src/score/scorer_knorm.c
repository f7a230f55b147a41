/* L2 norm of the key, both ways round. Keys with a small norm tend to attract attention ("A Simple and Effective L2
 * Norm-Based Strategy for KV Cache Compression", arXiv 2406.11430), hence knorm = -|k|; key_norm = +|k| is what an
 * adaptation of ChunkKV without attention uses. */
#include "core/internal.h"

typedef struct job {
	size_t dim;
	float sign, *out;
} job;

static ckv_status visit(void *user, int32_t token, const float *row) {
	const job *j = user;
	j->out[token] = j->sign * (float)ckv_norm(row, j->dim);
	return CKV_OK;
}

static ckv_status score_signed(ckv_ctx *ctx, const ckv_layer *layer, float sign, float *scores) {
	ckv_status status = CKV_OK;
	for (int32_t g = 0; g < layer->k.n_heads && status == CKV_OK; g++) {
		job j = {(size_t)layer->k.head_dim, sign, scores + (size_t)g * (size_t)layer->k.n_tokens};
		status = ckv_each_row(ctx, &layer->k, g, "a key", layer->index, visit, &j);
	}
	return status;
}

static ckv_status score_low(ckv_ctx *ctx, const ckv_layer *layer, int32_t n_keep, float *scores) {
	(void)n_keep;
	return score_signed(ctx, layer, -1.0f, scores);
}

static ckv_status score_high(ckv_ctx *ctx, const ckv_layer *layer, int32_t n_keep, float *scores) {
	(void)n_keep;
	return score_signed(ctx, layer, 1.0f, scores);
}

const ckv_scorer ckv_scorer_knorm = {
    .info = {"knorm", "minus the key's length; also called l2norm", "L2 norm, arXiv 2406.11430", ""},
    .score = score_low,
};

const ckv_scorer ckv_scorer_key_norm = {
    .info = {"key_norm", "the key's length", "", ""},
    .score = score_high,
};
