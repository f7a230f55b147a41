/* What attention over a cache's rows and over a stream's have in common. */
#include "core/internal.h"

#include <math.h>
#include <string.h>

ckv_status ckv_attend_check(float scale, float cap, int32_t layer, ckv_error *error) {
	return isfinite(scale) && scale >= 0.0f && isfinite(cap) && cap >= 0.0f
	           ? CKV_OK
	           : ckv_fail(error, CKV_ERR_ARG, "layer %d: scale %g or logit cap %g is not usable", layer, (double)scale,
	                      (double)cap);
}

bool ckv_attend_next(ckv_attention *a) {
	enum { MOST = 32 }; /* of a head at once, so that logits stay small */
	int32_t left;
	a->first += a->n;
	left = a->n_tokens - a->first;
	a->n = left < MOST ? left : MOST;
	a->m = (size_t)a->group * (size_t)a->n;
	return left > 0;
}

int32_t ckv_attend_threads(const ckv_attention *a, size_t n_rows, int32_t width, int32_t n_threads) {
	const double least_threaded = 4000000.0; /* products of a call below which a thread costs more than it saves */
	double products = (double)a->m * (double)a->n_kv_heads * (double)n_rows * (double)width;
	return products < least_threaded ? 1 : n_threads;
}

size_t ckv_attend_padded(size_t n_rows) { return (n_rows + CKV_LANES - 1) / CKV_LANES * CKV_LANES; }

bool ckv_attend_weigh(const ckv_attention *a, float *x, size_t n_seen, size_t n_rows) {
	if (a->cap > 0.0f) {
		ckv_cap_logits(x, n_seen, a->cap);
	}
	float sum = a->kernels->exp_sum(x, n_seen);
	for (size_t t = 0; t < n_seen; t++) {
		x[t] /= sum;
	}
	memset(x + n_seen, 0, (n_rows - n_seen) * sizeof *x);
	return isfinite(sum);
}

float *ckv_attend_out(const ckv_attention *a, int32_t kv_head, size_t i, size_t dim) {
	size_t n = (size_t)a->n, group = (size_t)a->group;
	size_t token = (size_t)a->first + i % n, head = (size_t)kv_head * group + i / n;
	return a->out + (token * group * (size_t)a->n_kv_heads + head) * dim;
}
