/* The n highest of T scores in linear time, whatever their distribution, ties to the lower position. */
#include "core/internal.h"

#include <stdlib.h>
#include <string.h>

/* Order-preserving: higher score first, then lower position; all keys differ. */
static uint64_t sort_key(float score, int32_t position) {
	float s = score + 0.0f; /* -0 and +0 are the same score */
	uint32_t bits;
	memcpy(&bits, &s, sizeof bits);
	bits = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
	return (uint64_t)bits << 32 | (0xffffffffu - (uint32_t)position);
}

/* The n-th largest key, n >= 1, by radix selection: one byte a pass, from the top. */
static uint64_t nth_largest(const uint64_t *key, size_t count, size_t n) {
	uint64_t prefix = 0, mask = 0;
	for (int shift = 56; shift >= 0; shift -= 8) {
		size_t histogram[256] = {0};
		for (size_t i = 0; i < count; i++) {
			if ((key[i] & mask) == prefix) {
				histogram[(key[i] >> shift) & 0xff]++;
			}
		}
		unsigned digit = 255;
		while (histogram[digit] < n) {
			n -= histogram[digit--];
		}
		prefix |= (uint64_t)digit << shift;
		mask |= (uint64_t)0xff << shift;
	}
	return prefix;
}

ckv_status ckv_top_positions(ckv_ctx *ctx, const float *score, int32_t lo, int32_t hi, int32_t n, int32_t *out) {
	if (n <= 0) {
		return CKV_OK;
	}
	size_t count = (size_t)(hi - lo);
	uint64_t *key = ckv_scratch(ctx, SLOT_KEYS, count, sizeof *key);
	if (!key) {
		return CKV_ERR_NOMEM;
	}
	for (size_t i = 0; i < count; i++) {
		key[i] = sort_key(score[(size_t)lo + i], lo + (int32_t)i);
	}
	uint64_t least = nth_largest(key, count, (size_t)n);
	for (size_t i = 0; i < count; i++) {
		if (key[i] >= least) {
			*out++ = lo + (int32_t)i;
		}
	}
	return CKV_OK;
}

static int compare_keys(const void *a, const void *b) {
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x < y) - (x > y);
}

ckv_status ckv_order_by_score(ckv_ctx *ctx, const float *score, int32_t n, int32_t *order) {
	uint64_t *key = ckv_scratch(ctx, SLOT_KEYS, (size_t)n, sizeof *key);
	if (!key) {
		return CKV_ERR_NOMEM;
	}
	for (int32_t i = 0; i < n; i++) {
		key[i] = sort_key(score[i], i);
	}
	qsort(key, (size_t)n, sizeof *key, compare_keys);
	for (int32_t i = 0; i < n; i++) {
		order[i] = (int32_t)(0xffffffffu - (uint32_t)key[i]);
	}
	return CKV_OK;
}
