/* A cache with the same rows, in memory of its own and without spare room. */
#include "cache/internal.h"

#include <string.h>

static ckv_status copy_heads(ckv_cache *to, const cache_side *from, cache_side *side, int32_t n_heads) {
	ckv_status status = from->fit.rank ? ckv_low_rank_copy(&to->allocator, &from->fit, &side->fit) : CKV_OK;
	size_t width = (size_t)from->width;
	side->width = from->width;
	for (int32_t h = 0; h < n_heads && status == CKV_OK; h++) {
		status = ckv_packed_copy(&to->allocator, &from->heads[h].packed, &side->heads[h].packed);
		side->tail_rows += (size_t)from->heads[h].n;
	}
	side->tail = status ? NULL : ckv_cache_alloc(to, side->tail_rows, width * sizeof *side->tail);
	if (!side->tail) {
		side->tail_rows = 0;
		return CKV_ERR_NOMEM;
	}
	size_t at = 0;
	for (int32_t h = 0; h < n_heads; h++) {
		const cache_rows *rows = &from->heads[h];
		cache_rows *own = &side->heads[h];
		own->first = at;
		own->n = own->capacity = rows->n;
		if (rows->n) {
			memcpy(side->tail + at * width, ckv_rows_tail(from, rows), (size_t)rows->n * width * sizeof *side->tail);
		}
		at += (size_t)rows->n;
	}
	return CKV_OK;
}

static ckv_status copy_layers(const ckv_cache *from, ckv_cache *to) {
	ckv_status status = CKV_OK;
	for (int32_t i = 0; i < from->n_layers && status == CKV_OK; i++) {
		const cache_layer *layer = &from->layers[i];
		to->layers[i].residual = layer->residual;
		status = copy_heads(to, &layer->k, &to->layers[i].k, layer->shape.n_kv_heads);
		status = status ? status : copy_heads(to, &layer->v, &to->layers[i].v, layer->shape.n_kv_heads);
	}
	return status;
}

/* Without rows. */
static ckv_status make_alike(const ckv_cache *from, ckv_cache **to) {
	ckv_stream_shape *shapes = ckv_cache_alloc(from, (size_t)from->n_layers, sizeof *shapes);
	if (!shapes) {
		return CKV_ERR_NOMEM;
	}
	for (int32_t i = 0; i < from->n_layers; i++) {
		shapes[i] = from->layers[i].shape;
	}
	ckv_ctx_options options;
	ckv_ctx_options_default(&options);
	options.allocator = &from->allocator;
	options.n_threads = from->n_threads;
	ckv_status status = ckv_cache_create(to, &from->codec, shapes, from->n_layers, &options, NULL);
	if (status == CKV_OK) {
		(*to)->kernels = from->kernels;
	}
	ckv_cache_release(from, shapes);
	return status;
}

ckv_status ckv_cache_copy(const ckv_cache *cache, ckv_cache **copy) {
	if (copy) {
		*copy = NULL;
	}
	if (!cache || !copy) {
		return CKV_ERR_ARG;
	}
	ckv_status status = make_alike(cache, copy);
	status = status ? status : copy_layers(cache, *copy);
	if (status) {
		ckv_cache_free(*copy);
		*copy = NULL;
	}
	return status;
}
