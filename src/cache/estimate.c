/* What a cache will hold, told before there are rows: an empty one gets the counts that loading would leave, without the
 * memory behind them, and is asked like any other. So every size comes from the one place that knows it. */
#include "cache/internal.h"

enum { MOST_BYTES = 16 }; /* of a number, levels and all: more than any codec takes */

/* The oldest n rows of the tail, packed. */
static void pretend_packed(cache_side *side, int32_t head, int32_t n) {
	ckv_packed *packed = &side->heads[head].packed;
	int32_t group = packed->shape.group;
	side->heads[head].n -= n;
	packed->n = packed->capacity = n;
	packed->n_groups = packed->group_capacity = packed->shape.by_row ? 0 : n / group + (n % group != 0);
}

static void pretend_kivi(const ckv_cache *cache, cache_layer *layer) {
	ckv_codec_limit_residual(cache, layer);
	for (int32_t h = 0; h < layer->shape.n_kv_heads; h++) {
		int32_t due = ckv_codec_due(cache, layer, h);
		pretend_packed(&layer->k, h, due);
		pretend_packed(&layer->v, h, due);
	}
}

/* No subspace has more dimensions than its group of heads has rows, or these have channels. */
static int32_t greatest_rank(const ckv_codec *codec, const cache_side *side) {
	const ckv_low_rank *fit = &side->fit;
	int64_t rank = codec->rank > 0 && codec->rank < side->dim ? codec->rank : side->dim, rows = 0;
	for (int32_t h = 0; h < fit->n_heads; h++) {
		rows += side->heads[h].n;
		if (h + 1 == fit->n_heads || ckv_low_rank_group(fit, h + 1) != ckv_low_rank_group(fit, h)) {
			rank = rows > 0 && rows < rank ? rows : rank; /* a group without rows has no say */
			rows = 0;
		}
	}
	return (int32_t)rank;
}

static void pretend_palu(const ckv_cache *cache, cache_side *side, int32_t n_heads, bool keys) {
	const ckv_codec *codec = &cache->codec;
	side->fit = (ckv_low_rank){
	    .dim = side->dim, .n_heads = n_heads, .n_groups = codec->head_groups < n_heads ? codec->head_groups : n_heads};
	side->fit.rank = side->width = greatest_rank(codec, side);
	ckv_codec_shape(cache, side, n_heads, keys);
	for (int32_t h = 0; h < n_heads && side->packs; h++) {
		pretend_packed(side, h, side->heads[h].n);
	}
}

static void count_tail(cache_side *side, int32_t n_heads) {
	for (int32_t h = 0; h < n_heads; h++) {
		side->heads[h].capacity = side->heads[h].n;
		side->tail_rows += (size_t)side->heads[h].n;
	}
}

static void pretend_loaded(const ckv_cache *cache, cache_layer *layer, const int32_t *rows) {
	int32_t n_heads = layer->shape.n_kv_heads;
	bool any = false;
	for (int32_t h = 0; h < n_heads; h++) {
		layer->k.heads[h].n = layer->v.heads[h].n = rows[h];
		any = any || rows[h] > 0;
	}
	switch (cache->kind) {
	case CACHE_KIVI: pretend_kivi(cache, layer); break;
	case CACHE_PALU:
		if (any) {
			pretend_palu(cache, &layer->k, n_heads, true);
			pretend_palu(cache, &layer->v, n_heads, false);
		}
		break;
	case CACHE_F16: break;
	}
	count_tail(&layer->k, n_heads);
	count_tail(&layer->v, n_heads);
}

/* Each head's rows are a length that a cache may have, and no sum overflows. */
static ckv_status check_rows(const ckv_cache *cache, const int32_t *rows, ckv_error *error) {
	double bytes = 0.0;
	for (int32_t i = 0; i < cache->n_layers; i++) {
		double dim_k = cache->layers[i].shape.dim_k, dim_v = cache->layers[i].shape.dim_v;
		double groups = cache->kind == CACHE_PALU ? cache->codec.head_groups : 0;
		bytes += MOST_BYTES * groups * (dim_k * (dim_k + 1.0) + dim_v * (dim_v + 1.0)); /* bases */
		for (int32_t h = 0; h < cache->layers[i].shape.n_kv_heads; h++, rows++) {
			if (*rows < 0 || *rows > CKV_MAX_TOKENS) {
				return ckv_fail(error, CKV_ERR_ARG, "layer %d, KV head %d: %d rows are not from 0 to %d", i, h, *rows,
				                CKV_MAX_TOKENS);
			}
			bytes += MOST_BYTES * (double)*rows * (dim_k + dim_v);
		}
	}
	return bytes < 0x1p62 ? CKV_OK : ckv_fail(error, CKV_ERR_NOMEM, "no memory holds %g bytes", bytes);
}

ckv_status ckv_cache_estimate(const ckv_codec *codec, const ckv_stream_shape *shapes, int32_t n_layers, const int32_t *rows,
                              const ckv_ctx_options *options, ckv_cache_info *info, ckv_error *error) {
	if (!rows || !info) {
		return ckv_fail(error, CKV_ERR_ARG, "an estimate needs each head's rows, and a place for what it finds");
	}
	ckv_cache *cache;
	ckv_status status = ckv_cache_create(&cache, codec, shapes, n_layers, options, error);
	status = status ? status : check_rows(cache, rows, error);
	for (int32_t i = 0; i < n_layers && status == CKV_OK; i++) {
		pretend_loaded(cache, &cache->layers[i], rows);
		rows += cache->layers[i].shape.n_kv_heads;
	}
	status = status ? status : ckv_cache_get_info(cache, -1, info);
	ckv_cache_free(cache);
	return status;
}
