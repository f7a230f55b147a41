/* KeyDiff (arXiv 2504.15364): a token is worth how little its key resembles the others: minus the cosine to the mean of all
 * normalised keys. Cosines cancel, so all of it is summed in double. */
#include "core/internal.h"

#include <math.h>
#include <string.h>

typedef struct job {
	size_t dim;
	double *anchor; /* [d] mean direction */
	double anchor_norm;
	float *out;
} job;

static double dot(const float *a, const double *b, size_t n) {
	double sum = 0.0;
	for (size_t i = 0; i < n; i++) {
		sum += (double)a[i] * b[i];
	}
	return sum;
}

static ckv_status add_direction(void *user, int32_t token, const float *row) {
	const job *j = user;
	(void)token;
	double length = ckv_norm(row, j->dim);
	for (size_t i = 0; i < j->dim && length > 0.0; i++) {
		j->anchor[i] += (double)row[i] / length;
	}
	return CKV_OK;
}

static ckv_status compare(void *user, int32_t token, const float *row) {
	const job *j = user;
	double lengths = ckv_norm(row, j->dim) * j->anchor_norm;
	j->out[token] = lengths > 0.0 ? (float)(-dot(row, j->anchor, j->dim) / lengths) : 0.0f;
	return CKV_OK;
}

static ckv_status score(ckv_ctx *ctx, const ckv_layer *layer, int32_t n_keep, float *scores) {
	(void)n_keep;
	job j = {.dim = (size_t)layer->k.head_dim};
	j.anchor = ckv_scratch(ctx, SLOT_MEAN, j.dim, sizeof *j.anchor);
	ckv_status status = j.anchor ? CKV_OK : CKV_ERR_NOMEM;
	for (int32_t g = 0; g < layer->k.n_heads && status == CKV_OK; g++) {
		memset(j.anchor, 0, j.dim * sizeof *j.anchor);
		status = ckv_each_row(ctx, &layer->k, g, "a key", layer->index, add_direction, &j);
		double sum = 0.0;
		for (size_t i = 0; i < j.dim; i++) {
			j.anchor[i] /= layer->k.n_tokens;
			sum += j.anchor[i] * j.anchor[i];
		}
		j.anchor_norm = sqrt(sum);
		j.out = scores + (size_t)g * (size_t)layer->k.n_tokens;
		status = status ? status : ckv_each_row(ctx, &layer->k, g, "a key", layer->index, compare, &j);
	}
	return status;
}

const ckv_scorer ckv_scorer_keydiff = {
    .info = {"keydiff", "how little the key resembles the mean key", "KeyDiff, arXiv 2504.15364", ""},
    .score = score,
};
