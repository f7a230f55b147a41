/* f16 rows of all heads of a layer in one block, each head's one behind the other: as much as they need, in steps. */
#include "cache/internal.h"

#include <string.h>

enum { STEP = 32 }; /* rows that a head's tail grows by */

static int32_t wanted(const cache_rows *rows, int32_t more, bool exact) {
	int32_t n = rows->n + more;
	if (n <= rows->capacity) {
		return rows->capacity;
	}
	return exact ? n : (n + STEP - 1) / STEP * STEP;
}

ckv_status ckv_side_reserve(ckv_cache *cache, cache_side *side, int32_t n_heads, const int32_t *more, bool exact) {
	size_t total = 0, row = (size_t)side->width * sizeof *side->tail;
	bool enough = true;
	for (int32_t h = 0; h < n_heads; h++) {
		if (more[h] > CKV_MAX_TOKENS - ckv_rows_count(&side->heads[h])) {
			return ckv_fail(&cache->error, CKV_ERR_ARG, "more than %d rows", CKV_MAX_TOKENS);
		}
		int32_t capacity = wanted(&side->heads[h], more[h], exact);
		enough = enough && capacity == side->heads[h].capacity;
		total += (size_t)capacity;
	}
	if (enough) {
		return CKV_OK;
	}
	uint16_t *bigger = ckv_cache_alloc(cache, total, row);
	if (!bigger) {
		return ckv_fail(&cache->error, CKV_ERR_NOMEM, "no memory for %zu rows of a layer", total);
	}
	size_t at = 0;
	for (int32_t h = 0; h < n_heads; h++) {
		cache_rows *rows = &side->heads[h];
		int32_t capacity = wanted(rows, more[h], exact);
		if (rows->n) {
			memcpy(bigger + at * (size_t)side->width, ckv_rows_tail(side, rows), (size_t)rows->n * row);
		}
		rows->first = at;
		rows->capacity = capacity;
		at += (size_t)capacity;
	}
	ckv_cache_release(cache, side->tail);
	side->tail = bigger;
	side->tail_rows = total;
	return CKV_OK;
}

ckv_status ckv_side_put(cache_side *side, int32_t head, const float *row, size_t n) {
	cache_rows *rows = &side->heads[head];
	size_t count = n * (size_t)side->width;
	uint16_t *to = ckv_rows_tail(side, rows) + (size_t)rows->n * (size_t)side->width;
	uint32_t bad = 0;
	for (size_t c = 0; c < count; c++) {
		to[c] = ckv_f16_from_f32(row[c]);
		bad |= (to[c] & 0x7c00u) == 0x7c00u;
	}
	rows->n += bad ? 0 : (int32_t)n;
	return bad ? CKV_ERR_NUMERIC : CKV_OK;
}

void ckv_side_shift(cache_side *side, int32_t head, int32_t n) {
	cache_rows *rows = &side->heads[head];
	uint16_t *tail = ckv_rows_tail(side, rows);
	rows->n -= n;
	memmove(tail, tail + (size_t)n * (size_t)side->width, (size_t)rows->n * (size_t)side->width * sizeof *tail);
}

void ckv_side_trim(ckv_cache *cache, cache_side *side, int32_t n_heads) {
	size_t total = 0;
	for (int32_t h = 0; h < n_heads; h++) {
		total += (size_t)side->heads[h].n;
	}
	uint16_t *smaller =
	    total < side->tail_rows ? ckv_cache_alloc(cache, total, (size_t)side->width * sizeof *smaller) : NULL;
	if (!smaller) {
		return;
	}
	size_t at = 0;
	for (int32_t h = 0; h < n_heads; h++) {
		cache_rows *rows = &side->heads[h];
		memcpy(smaller + at * (size_t)side->width, ckv_rows_tail(side, rows),
		       (size_t)rows->n * (size_t)side->width * sizeof *smaller);
		rows->first = at;
		rows->capacity = rows->n;
		at += (size_t)rows->n;
	}
	ckv_cache_release(cache, side->tail);
	side->tail = smaller;
	side->tail_rows = total;
}

void ckv_side_free(const ckv_cache *cache, cache_side *side, int32_t n_heads) {
	for (int32_t h = 0; h < n_heads && side->heads; h++) {
		ckv_packed_free(&cache->allocator, &side->heads[h].packed);
	}
	ckv_low_rank_free(&cache->allocator, &side->fit);
	ckv_cache_release(cache, side->heads);
	ckv_cache_release(cache, side->tail);
	memset(side, 0, sizeof *side);
}

static uint64_t fit_bytes(const cache_side *side) {
	const ckv_low_rank *fit = &side->fit;
	return (uint64_t)fit->n_groups * (uint64_t)fit->dim * (uint64_t)(fit->rank + 1) * sizeof(float) +
	       (uint64_t)fit->n_groups * (uint64_t)fit->rank * sizeof(float);
}

uint64_t ckv_side_used(const cache_side *side, int32_t n_heads) {
	uint64_t bytes = side->fit.rank ? fit_bytes(side) : 0;
	for (int32_t h = 0; h < n_heads; h++) {
		bytes += ckv_packed_used(&side->heads[h].packed) + (uint64_t)side->heads[h].n * (uint64_t)side->width * 2;
	}
	return bytes;
}

uint64_t ckv_side_allocated(const cache_side *side, int32_t n_heads) {
	uint64_t bytes = (side->fit.rank ? fit_bytes(side) : 0) + side->tail_rows * (uint64_t)side->width * 2;
	for (int32_t h = 0; h < n_heads; h++) {
		bytes += ckv_packed_allocated(&side->heads[h].packed);
	}
	return bytes;
}
