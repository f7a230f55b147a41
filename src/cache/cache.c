/* Making and freeing a cache, and what it holds. */
#include "cache/internal.h"

#include <string.h>

void *ckv_cache_alloc(const ckv_cache *cache, size_t count, size_t size) {
	if (size && count > (size_t)PTRDIFF_MAX / size) {
		return NULL;
	}
	size_t bytes = count * size;
	return cache->allocator.alloc(cache->allocator.user, bytes ? bytes : 1);
}

void ckv_cache_release(const ckv_cache *cache, void *memory) {
	if (memory) {
		cache->allocator.free(cache->allocator.user, memory);
	}
}

float *ckv_cache_work(ckv_cache *cache, size_t n) {
	if (!cache->work || n > cache->work_size) {
		float *bigger = ckv_cache_alloc(cache, n, sizeof *bigger);
		if (!bigger) {
			ckv_fail(&cache->error, CKV_ERR_NOMEM, "no memory for %zu numbers of working memory", n);
			return NULL;
		}
		ckv_cache_release(cache, cache->work);
		cache->work = bigger;
		cache->work_size = n;
	}
	return cache->work;
}

cache_layer *ckv_cache_layer(const ckv_cache *cache, int32_t layer) {
	return cache && layer >= 0 && layer < cache->n_layers ? &cache->layers[layer] : NULL;
}

/* ------------------------------------------------------------------------------------------------------------ making */

static bool make_side(ckv_cache *cache, cache_side *side, int32_t n_heads, int32_t dim, bool keys) {
	side->dim = side->width = dim;
	side->heads = ckv_cache_alloc(cache, (size_t)n_heads, sizeof *side->heads);
	if (side->heads) {
		memset(side->heads, 0, (size_t)n_heads * sizeof *side->heads);
		ckv_codec_shape(cache, side, n_heads, keys);
	}
	return side->heads;
}

static ckv_status check_shape(const ckv_stream_shape *shape, int32_t layer, ckv_error *error) {
	bool good = shape->n_kv_heads >= 1 && shape->n_kv_heads <= 65536 && shape->dim_k >= 1 && shape->dim_k <= 65536 &&
	            shape->dim_v >= 1 && shape->dim_v <= 65536;
	return good ? CKV_OK
	            : ckv_fail(error, CKV_ERR_ARG, "layer %d has %d KV heads of %d and %d channels: out of range", layer,
	                       shape->n_kv_heads, shape->dim_k, shape->dim_v);
}

static ckv_status make_layers(ckv_cache *cache, const ckv_stream_shape *shapes, int32_t n_layers) {
	cache->layers = ckv_cache_alloc(cache, (size_t)n_layers, sizeof *cache->layers);
	if (!cache->layers) {
		return CKV_ERR_NOMEM;
	}
	memset(cache->layers, 0, (size_t)n_layers * sizeof *cache->layers);
	cache->n_layers = n_layers;
	for (int32_t i = 0; i < n_layers; i++) {
		cache_layer *layer = &cache->layers[i];
		layer->shape = shapes[i];
		layer->residual = cache->codec.residual;
		if (!make_side(cache, &layer->k, shapes[i].n_kv_heads, shapes[i].dim_k, true) ||
		    !make_side(cache, &layer->v, shapes[i].n_kv_heads, shapes[i].dim_v, false)) {
			return CKV_ERR_NOMEM;
		}
	}
	return CKV_OK;
}

static cache_codec kind_of(const ckv_codec *codec) {
	return strcmp(codec->kind, "kivi") == 0 ? CACHE_KIVI : strcmp(codec->kind, "palu") == 0 ? CACHE_PALU : CACHE_F16;
}

static ckv_status check_options(const ckv_ctx_options *options, ckv_error *error) {
	if (options->size < sizeof *options) {
		return ckv_fail(error, CKV_ERR_ARG, "a struct's size field is too small: start from its _default() call");
	}
	if (options->n_threads < 0 || (options->allocator && (!options->allocator->alloc || !options->allocator->free))) {
		return ckv_fail(error, CKV_ERR_ARG, "%d threads, or an allocator that lacks alloc or free", options->n_threads);
	}
	return CKV_OK;
}

static ckv_status check_made(const ckv_codec *codec, const ckv_stream_shape *shapes, int32_t n_layers, ckv_error *error) {
	if (!shapes || n_layers < 1) {
		return ckv_fail(error, CKV_ERR_ARG, "a cache needs the shapes of one layer at least");
	}
	ckv_status status = codec ? ckv_codec_check(codec, error) : CKV_OK;
	for (int32_t i = 0; i < n_layers && status == CKV_OK; i++) {
		status = check_shape(&shapes[i], i, error);
	}
	return status;
}

ckv_status ckv_cache_create(ckv_cache **cache, const ckv_codec *codec, const ckv_stream_shape *shapes, int32_t n_layers,
                            const ckv_ctx_options *options, ckv_error *error) {
	if (!cache) {
		return CKV_ERR_ARG;
	}
	*cache = NULL;
	ckv_status status = options ? check_options(options, error) : CKV_OK;
	status = status ? status : check_made(codec, shapes, n_layers, error);
	if (status) {
		return status;
	}
	ckv_allocator allocator = options && options->allocator ? *options->allocator : ckv_allocator_default();
	ckv_cache *made = allocator.alloc(allocator.user, sizeof *made);
	if (!made) {
		return ckv_fail(error, CKV_ERR_NOMEM, "no memory for a cache");
	}
	memset(made, 0, sizeof *made);
	made->allocator = allocator;
	made->kernels = ckv_kernels_get(ckv_cpu_features() & ~(options ? options->cpu_disable : 0u));
	made->n_threads = options ? options->n_threads : 0;
	ckv_codec_own(codec, &made->codec);
	made->kind = kind_of(&made->codec);
	made->codec.residual = made->kind == CACHE_KIVI ? made->codec.residual : 0;
	if (make_layers(made, shapes, n_layers)) {
		ckv_cache_free(made);
		return ckv_fail(error, CKV_ERR_NOMEM, "no memory for %d layers", n_layers);
	}
	*cache = made;
	ckv_fail(error, CKV_OK, "%s", "");
	return CKV_OK;
}

void ckv_cache_free(ckv_cache *cache) {
	if (!cache) {
		return;
	}
	for (int32_t i = 0; i < cache->n_layers; i++) {
		ckv_side_free(cache, &cache->layers[i].k, cache->layers[i].shape.n_kv_heads);
		ckv_side_free(cache, &cache->layers[i].v, cache->layers[i].shape.n_kv_heads);
	}
	ckv_cache_release(cache, cache->layers);
	ckv_cache_release(cache, cache->work);
	cache->allocator.free(cache->allocator.user, cache);
}

const char *ckv_cache_message(const ckv_cache *cache) { return cache ? cache->error.message : ""; }

/* ----------------------------------------------------------------------------------------------------------- looking */

int32_t ckv_cache_rows(const ckv_cache *cache, int32_t layer, int32_t head) {
	const cache_layer *l = ckv_cache_layer(cache, layer);
	return l && head >= 0 && head < l->shape.n_kv_heads ? ckv_rows_count(&l->k.heads[head]) : 0;
}

static void add_layer(const ckv_cache *cache, const cache_layer *layer, ckv_cache_info *info) {
	int32_t heads = layer->shape.n_kv_heads;
	uint64_t row = 2 * ((uint64_t)layer->shape.dim_k + (uint64_t)layer->shape.dim_v), rows = 0;
	for (int32_t h = 0; h < heads; h++) {
		int32_t n = ckv_rows_count(&layer->k.heads[h]);
		rows += (uint64_t)n;
		info->longest = n > info->longest ? n : info->longest;
	}
	info->rows += (int64_t)rows;
	info->bytes_f16 += rows * row;
	info->bytes += ckv_side_used(&layer->k, heads) + ckv_side_used(&layer->v, heads);
	info->bytes_allocated += ckv_side_allocated(&layer->k, heads) + ckv_side_allocated(&layer->v, heads);
	info->reference_bytes += ckv_codec_reference_bytes(cache, layer);
	info->rank_k = info->rank_k ? info->rank_k : layer->k.fit.rank;
	info->rank_v = info->rank_v ? info->rank_v : layer->v.fit.rank;
}

ckv_status ckv_cache_get_info(const ckv_cache *cache, int32_t layer, ckv_cache_info *info) {
	if (!cache || !info || layer < -1 || layer >= cache->n_layers) {
		return CKV_ERR_ARG;
	}
	ckv_cache_info full = {.size = sizeof full};
	for (int32_t i = 0; i < cache->n_layers; i++) {
		if (layer < 0 || layer == i) {
			add_layer(cache, &cache->layers[i], &full);
		}
	}
	size_t size = info->size && info->size < sizeof full ? info->size : sizeof full;
	full.size = size;
	memcpy(info, &full, size);
	return CKV_OK;
}
