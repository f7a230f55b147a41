/* Lists of kept positions: checks, and which is whose. */
#include "measure/internal.h"

bool ckv_list_fits(const int32_t *positions, size_t n, int32_t n_tokens) {
	int32_t before = -1;
	if (n > (size_t)n_tokens || (n > 0 && !positions)) { /* before anything is read */
		return false;
	}
	for (size_t i = 0; i < n; i++) {
		if (positions[i] <= before || positions[i] >= n_tokens) {
			return false;
		}
		before = positions[i];
	}
	return true;
}

bool ckv_keep_fits(const ckv_keep *keep, int32_t n_tokens) {
	if (keep->size < sizeof *keep || keep->n_lists < 1 || (keep->n_positions > 0 && !keep->positions)) {
		return false;
	}
	if (keep->n_lists == 1) {
		return ckv_list_fits(keep->positions, keep->n_positions, n_tokens);
	}
	if (!keep->offsets) {
		return false;
	}
	for (int32_t i = 0; i < keep->n_lists; i++) {
		int32_t first = keep->offsets[i], end = keep->offsets[i + 1];
		if (first < 0 || end < first || (size_t)end > keep->n_positions) {
			return false;
		}
		ckv_list list = ckv_keep_list(keep, i);
		if (!ckv_list_fits(list.positions, (size_t)list.n, n_tokens)) {
			return false;
		}
	}
	return true;
}

ckv_list ckv_keep_list(const ckv_keep *keep, int32_t head) {
	ckv_list list = {keep->positions, (int32_t)keep->n_positions};
	if (keep->n_lists > 1) {
		int32_t first = keep->offsets[head];
		list.n = keep->offsets[head + 1] - first;
		list.positions = list.n > 0 ? keep->positions + first : NULL;
	}
	return list;
}
