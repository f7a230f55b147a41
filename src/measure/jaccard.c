/* What two selections have in common: the Jaccard index of their positions. */
#include "measure/internal.h"

/* Both ascend, so one walk along both finds what is in each. */
static double jaccard_of(ckv_list a, ckv_list b) {
	int32_t i = 0, j = 0, both = 0;
	while (i < a.n && j < b.n) {
		int32_t x = a.positions[i], y = b.positions[j];
		both += x == y;
		i += x <= y;
		j += y <= x;
	}
	int64_t either = (int64_t)a.n + b.n - both;
	return either > 0 ? both / (double)either : 1.0;
}

ckv_status ckv_jaccard(const int32_t *a, size_t n_a, const int32_t *b, size_t n_b, double *jaccard) {
	if (!jaccard || !ckv_list_fits(a, n_a, CKV_MAX_TOKENS) || !ckv_list_fits(b, n_b, CKV_MAX_TOKENS)) {
		return CKV_ERR_ARG;
	}
	ckv_list one = {a, (int32_t)n_a}, other = {b, (int32_t)n_b};
	*jaccard = jaccard_of(one, other);
	return CKV_OK;
}

ckv_status ckv_keep_jaccard(const ckv_keep *a, const ckv_keep *b, double *jaccard) {
	if (!a || !b || !jaccard || !ckv_keep_fits(a, CKV_MAX_TOKENS) || !ckv_keep_fits(b, CKV_MAX_TOKENS)) {
		return CKV_ERR_ARG;
	}
	int32_t n = a->n_lists > b->n_lists ? a->n_lists : b->n_lists;
	if ((a->n_lists != n && a->n_lists != 1) || (b->n_lists != n && b->n_lists != 1)) {
		return CKV_ERR_ARG;
	}
	double sum = 0.0;
	for (int32_t h = 0; h < n; h++) {
		sum += jaccard_of(ckv_keep_list(a, h), ckv_keep_list(b, h));
	}
	*jaccard = sum / n;
	return CKV_OK;
}
