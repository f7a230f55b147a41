/* The one-shot form of ChunkKV-adapted. */
#include "stream/internal.h"

#include <string.h>

/* The best chunk that is neither marked as kept nor was passed over: by mean, then the later one. Chunks visited so far are
 * those above (mean, start) in that order. */
static bool next_chunk(const float *scores, int32_t n, int32_t chunk, int32_t sinks, float *mean, int32_t *start) {
	bool found = false;
	float best = 0.0f;
	int32_t at = -1;
	for (int32_t first = sinks; first < n; first += chunk) {
		int32_t end = n - first < chunk ? n : first + chunk;
		float own = ckv_chunk_mean(scores, first, end);
		bool after = *start < 0 || own < *mean || (own <= *mean && first < *start);
		if (after && (!found || own >= best)) {
			best = own;
			at = first;
			found = true;
		}
		if (n - first < chunk) {
			break; /* first + chunk might not fit an int */
		}
	}
	*mean = best;
	*start = at;
	return found;
}

ckv_status ckv_keep_mask(const float *scores, int32_t n, int32_t chunk, int32_t sinks, int32_t budget, uint8_t *keep) {
	if (!scores || !keep || n < 1 || n > CKV_MAX_TOKENS || chunk < 1 || sinks < 0 || budget < 0) {
		return CKV_ERR_ARG;
	}
	if (!ckv_all_finite(scores, (size_t)n)) {
		return CKV_ERR_NUMERIC;
	}
	int32_t kept_sinks = sinks < n ? sinks : n, left = budget - kept_sinks, start = -1;
	float mean = 0.0f;
	memset(keep, 0, (size_t)n);
	memset(keep, 1, (size_t)kept_sinks);
	while (left > 0 && next_chunk(scores, n, chunk, kept_sinks, &mean, &start)) {
		int32_t width = n - start < chunk ? n - start : chunk;
		if (width <= left) {
			memset(keep + start, 1, (size_t)width);
			left -= width;
		}
	}
	return CKV_OK;
}
