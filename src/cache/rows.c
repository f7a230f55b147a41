/* Stored rows, packed or f16, as floats. */
#include "cache/internal.h"

void ckv_rows_decode(const ckv_cache *cache, const cache_side *side, const cache_rows *rows, int32_t first, int32_t n,
                     float *out) {
	size_t width = (size_t)side->width;
	int32_t packed = rows->packed.n - first;
	packed = packed < 0 ? 0 : packed < n ? packed : n;
	if (packed > 0) {
		ckv_packed_decode(cache->kernels, &rows->packed, first, packed, out);
	}
	if (packed < n) {
		size_t at = (size_t)(first + packed - rows->packed.n);
		cache->kernels->f16_to_f32(ckv_rows_tail(side, rows) + at * width, out + (size_t)packed * width,
		                           (size_t)(n - packed) * width);
	}
}

/* What f16 makes of it, as the published code stores latents. */
static void round_half(const ckv_cache *cache, float *x, size_t n) {
	for (size_t i = 0; i < n; i++) {
		uint16_t half = ckv_f16_from_f32(x[i]);
		cache->kernels->f16_to_f32(&half, &x[i], 1);
	}
}

static ckv_status read_side(ckv_cache *cache, const cache_side *side, int32_t head, float *out) {
	const cache_rows *rows = &side->heads[head];
	int32_t n = ckv_rows_count(rows);
	if (side->fit.rank == 0) {
		ckv_rows_decode(cache, side, rows, 0, n, out);
		return CKV_OK;
	}
	float *tile = ckv_cache_work(cache, (size_t)CACHE_TILE * (size_t)side->width);
	for (int32_t t = 0; t < n && tile; t += CACHE_TILE) {
		int32_t count = n - t < CACHE_TILE ? n - t : CACHE_TILE;
		ckv_rows_decode(cache, side, rows, t, count, tile);
		if (cache->codec.reference) {
			round_half(cache, tile, (size_t)count * (size_t)side->width);
		}
		ckv_low_rank_expand(&side->fit, head, tile, (size_t)count, out + (size_t)t * (size_t)side->dim);
	}
	return tile ? CKV_OK : CKV_ERR_NOMEM;
}

ckv_status ckv_cache_read(ckv_cache *cache, int32_t layer, int32_t head, float *keys, float *values) {
	cache_layer *l = ckv_cache_layer(cache, layer);
	if (!l || head < 0 || head >= l->shape.n_kv_heads) {
		return CKV_ERR_ARG;
	}
	cache->error = (ckv_error){CKV_OK, ""};
	ckv_status status = keys ? read_side(cache, &l->k, head, keys) : CKV_OK;
	return status || !values ? status : read_side(cache, &l->v, head, values);
}

static bool is_even(const cache_side *side, int32_t n_heads) {
	const cache_rows *rows = side->heads;
	bool even = side->fit.rank == 0 && rows[0].n > 0;
	for (int32_t h = 0; h < n_heads; h++) {
		even = even && rows[h].packed.n == 0 && rows[h].n == rows[0].n && rows[h].capacity == rows[0].capacity;
	}
	return even;
}

static ckv_view view_of(const cache_side *side, int32_t n_heads) {
	size_t row = (size_t)side->width * sizeof *side->tail;
	return (ckv_view){.data = side->tail,
	                  .dtype = CKV_F16,
	                  .n_heads = n_heads,
	                  .n_tokens = side->heads[0].n,
	                  .head_dim = side->width,
	                  .stride_head = (size_t)side->heads[0].capacity * row,
	                  .stride_token = row};
}

ckv_status ckv_cache_view(const ckv_cache *cache, int32_t layer, ckv_view *k, ckv_view *v) {
	const cache_layer *l = ckv_cache_layer(cache, layer);
	if (!l || !k || !v) {
		return CKV_ERR_ARG;
	}
	if (!is_even(&l->k, l->shape.n_kv_heads) || !is_even(&l->v, l->shape.n_kv_heads)) {
		return CKV_ERR_UNSUPPORTED;
	}
	*k = view_of(&l->k, l->shape.n_kv_heads);
	*v = view_of(&l->v, l->shape.n_kv_heads);
	return CKV_OK;
}

static void drop_tail(cache_side *side, int32_t head, const int32_t *indices, int32_t n) {
	cache_rows *rows = &side->heads[head];
	if (n == 0) { /* there may be no tail */
		return;
	}
	uint16_t *tail = ckv_rows_tail(side, rows);
	size_t width = (size_t)side->width;
	int32_t to = 0, next = 0;
	for (int32_t i = 0; i < rows->n; i++) {
		if (next < n && indices[next] - rows->packed.n == i) {
			next++;
			continue;
		}
		for (size_t c = 0; c < width && to != i; c++) {
			tail[(size_t)to * width + c] = tail[(size_t)i * width + c];
		}
		to++;
	}
	rows->n = to;
}

static void drop_rows(cache_side *side, int32_t head, const int32_t *indices, int32_t n) {
	int32_t packed = 0;
	while (packed < n && indices[packed] < side->heads[head].packed.n) {
		packed++;
	}
	/* The tail first: its rows are counted from the end of the packed ones. */
	drop_tail(side, head, indices + packed, n - packed);
	if (packed) {
		ckv_packed_remove(&side->heads[head].packed, indices, packed);
	}
}

ckv_status ckv_cache_drop(ckv_cache *cache, int32_t layer, int32_t head, const int32_t *indices, int32_t n) {
	cache_layer *l = ckv_cache_layer(cache, layer);
	if (!l || head < 0 || head >= l->shape.n_kv_heads || n < 0 || (n > 0 && !indices)) {
		return CKV_ERR_ARG;
	}
	int32_t rows = ckv_rows_count(&l->k.heads[head]);
	for (int32_t i = 0; i < n; i++) {
		if (indices[i] <= (i ? indices[i - 1] : -1) || indices[i] >= rows) {
			return ckv_fail(&cache->error, CKV_ERR_ARG,
			                "layer %d, KV head %d: index %d of the rows to drop is out of order or "
			                "beyond the %d rows",
			                layer, head, indices[i], rows);
		}
	}
	drop_rows(&l->k, head, indices, n);
	drop_rows(&l->v, head, indices, n);
	return CKV_OK;
}

static void take_newest(cache_side *side, int32_t head, int32_t n) {
	cache_rows *rows = &side->heads[head];
	int32_t tail = n < rows->n ? n : rows->n;
	rows->n -= tail;
	for (int32_t left = n - tail; left > 0; left--) {
		int32_t last = rows->packed.n - 1;
		ckv_packed_remove(&rows->packed, &last, 1);
	}
}

ckv_status ckv_cache_take_back(ckv_cache *cache, int32_t layer, int32_t n) {
	cache_layer *l = ckv_cache_layer(cache, layer);
	if (!l || n < 0) {
		return CKV_ERR_ARG;
	}
	for (int32_t h = 0; h < l->shape.n_kv_heads; h++) {
		if (ckv_rows_count(&l->k.heads[h]) < n) {
			return ckv_fail(&cache->error, CKV_ERR_ARG, "layer %d, KV head %d has %d rows, of which %d can't be taken back",
			                layer, h, ckv_rows_count(&l->k.heads[h]), n);
		}
	}
	for (int32_t h = 0; h < l->shape.n_kv_heads; h++) {
		take_newest(&l->k, h, n);
		take_newest(&l->v, h, n);
	}
	return CKV_OK;
}
