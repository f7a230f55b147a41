/* Within-chunk entropy of what is kept: whether a selection spends its tokens where the scores are spread evenly, or keeps
 * tokens that merely lie beside a peak. The entropy is the one by which entropy_gate decides. */
#include "measure/internal.h"

#include <math.h>

/* Terms of the published code that keep a division and a logarithm finite. */
static const double epsilon = 1e-8;

static double entropy(const float *scores, const int32_t *positions, int32_t n) {
	double sum = 0.0, h = 0.0;
	for (int32_t i = 0; i < n; i++) {
		sum += (double)scores[positions[i]];
	}
	for (int32_t i = 0; i < n; i++) {
		double p = (double)scores[positions[i]] / (sum + epsilon);
		h -= p * log(p + epsilon);
	}
	h /= log((double)n);
	return h < 0.0 ? 0.0 : h > 1.0 ? 1.0 : h;
}

static ckv_status check_scores(const float *scores, const int32_t *positions, size_t n) {
	for (size_t i = 0; i < n; i++) {
		if (!isfinite(scores[positions[i]])) {
			return CKV_ERR_NUMERIC;
		}
		if (scores[positions[i]] < 0.0f) {
			return CKV_ERR_ARG;
		}
	}
	return CKV_OK;
}

/* Mean and sum of squared differences from it, kept up as values come (Welford). */
typedef struct spread {
	double mean, squares;
	int32_t n;
} spread;

static void spread_add(spread *s, double x) {
	double from_old = x - s->mean;
	s->n++;
	s->mean += from_old / s->n;
	s->squares += from_old * (x - s->mean);
}

ckv_status ckv_chunk_entropy(const float *scores, int32_t n_tokens, const int32_t *positions, size_t n, int32_t chunk,
                             double *mean, double *deviation, int32_t *n_chunks) {
	if (!scores || n_tokens < 1 || n_tokens > CKV_MAX_TOKENS || chunk < 1 || !ckv_list_fits(positions, n, n_tokens)) {
		return CKV_ERR_ARG;
	}
	ckv_status status = check_scores(scores, positions, n);
	if (status) {
		return status;
	}
	spread s = {0.0, 0.0, 0};
	for (size_t i = 0, end; i < n; i = end) {
		for (end = i + 1; end < n && positions[end] / chunk == positions[i] / chunk; end++) {
		}
		if (end - i > 1) {
			spread_add(&s, entropy(scores, positions + i, (int32_t)(end - i)));
		}
	}
	if (mean) {
		*mean = s.mean;
	}
	if (deviation) {
		*deviation = s.n > 0 ? sqrt(s.squares / s.n) : 0.0;
	}
	if (n_chunks) {
		*n_chunks = s.n;
	}
	return CKV_OK;
}
