/* What the codecs do with rows: kivi packs what has grown old, palu fits a subspace to what there is. */
#include "cache/internal.h"

#include <string.h>

/* Latents that lead: those of the largest singular values. */
static int32_t leading(const ckv_codec *codec, int32_t rank) {
	int32_t n = (int32_t)(rank * codec->high_share);
	return n < 1 ? 1 : n < rank ? n : rank;
}

static ckv_packed_shape shape_of(const ckv_cache *cache, const cache_side *side, bool keys) {
	const ckv_codec *codec = &cache->codec;
	bool kivi = cache->kind == CACHE_KIVI;
	return (ckv_packed_shape){.width = side->width,
	                          .group = codec->group,
	                          .n_high = kivi ? side->width : leading(codec, side->width),
	                          .high_bits = kivi ? codec->bits : codec->high_bits,
	                          .low_bits = kivi ? codec->bits : codec->low_bits,
	                          .by_row = kivi && !keys,
	                          .half = !codec->reference};
}

void ckv_codec_shape(const ckv_cache *cache, cache_side *side, int32_t n_heads, bool keys) {
	side->packs = cache->kind == CACHE_PALU && (keys || cache->codec.quantize_values);
	for (int32_t h = 0; h < n_heads; h++) {
		side->heads[h].packed.shape = shape_of(cache, side, keys);
	}
}

/* -------------------------------------------------------------------------------------------------------------- kivi */

static ckv_status pack_oldest(ckv_cache *cache, cache_side *side, int32_t head, int32_t n) {
	cache_rows *rows = &side->heads[head];
	size_t count = (size_t)n * (size_t)side->width;
	float *floats = ckv_cache_work(cache, count);
	if (!floats) {
		return CKV_ERR_NOMEM;
	}
	cache->kernels->f16_to_f32(ckv_rows_tail(side, rows), floats, count);
	return ckv_packed_append(&cache->allocator, &rows->packed, floats, n);
}

/* Takes the newest n packed rows back; the working memory has room for as many numbers. */
static void unpack_newest(ckv_cache *cache, cache_rows *rows, int32_t n) {
	void *work = cache->work;
	int32_t *indices = work;
	for (int32_t i = 0; i < n; i++) {
		indices[i] = rows->packed.n - n + i;
	}
	ckv_packed_remove(&rows->packed, indices, n);
}

/* At once, so that at the first time there is no spare room, and the tail moves once. */
static bool seal_head(ckv_cache *cache, cache_layer *layer, int32_t head, int32_t n) {
	if (pack_oldest(cache, &layer->k, head, n)) {
		return false;
	}
	if (pack_oldest(cache, &layer->v, head, n)) {
		unpack_newest(cache, &layer->k.heads[head], n);
		return false;
	}
	ckv_side_shift(&layer->k, head, n);
	ckv_side_shift(&layer->v, head, n);
	return true;
}

/* A window as long as the rows themselves would leave nothing to pack. */
void ckv_codec_limit_residual(const ckv_cache *cache, cache_layer *layer) {
	int64_t rows = 0;
	for (int32_t h = 0; h < layer->shape.n_kv_heads; h++) {
		rows += ckv_rows_count(&layer->k.heads[h]);
	}
	int64_t quarter = rows / layer->shape.n_kv_heads / 4;
	bool limited = !cache->codec.reference && rows > 0 && quarter < cache->codec.residual;
	layer->residual = limited ? (int32_t)quarter : cache->codec.residual;
}

int32_t ckv_codec_due(const ckv_cache *cache, const cache_layer *layer, int32_t head) {
	int32_t group = cache->codec.group, old = layer->k.heads[head].n - layer->residual;
	return cache->kind == CACHE_KIVI && old > 0 ? old / group * group : 0;
}

void ckv_codec_seal(ckv_cache *cache, cache_layer *layer) {
	bool good = true;
	for (int32_t h = 0; h < layer->shape.n_kv_heads && good; h++) {
		int32_t due = ckv_codec_due(cache, layer, h);
		good = due == 0 || seal_head(cache, layer, h, due);
	}
}

/* -------------------------------------------------------------------------------------------------------------- palu */

typedef struct fit_job {
	ckv_cache *cache;
	cache_side *side;
	int32_t n_heads;
	float **rows; /* [n_heads] */
	int32_t *n;
	cache_side fitted;
} fit_job;

static void fit_free(fit_job *j) {
	for (int32_t h = 0; h < j->n_heads && j->rows; h++) {
		ckv_cache_release(j->cache, j->rows[h]);
	}
	ckv_cache_release(j->cache, j->rows);
	ckv_cache_release(j->cache, j->n);
	ckv_side_free(j->cache, &j->fitted, j->n_heads);
}

static ckv_status no_memory(ckv_cache *cache) {
	return ckv_fail(&cache->error, CKV_ERR_NOMEM, "no memory to fit a layer's rows");
}

static ckv_status fit_begin(fit_job *j, ckv_cache *cache, cache_side *side, int32_t n_heads) {
	*j = (fit_job){.cache = cache, .side = side, .n_heads = n_heads};
	j->rows = ckv_cache_alloc(cache, (size_t)n_heads, sizeof *j->rows);
	if (!j->rows) {
		return no_memory(cache);
	}
	memset(j->rows, 0, (size_t)n_heads * sizeof *j->rows);
	j->n = ckv_cache_alloc(cache, (size_t)n_heads, sizeof *j->n);
	j->fitted.heads = ckv_cache_alloc(cache, (size_t)n_heads, sizeof *j->fitted.heads);
	bool good = j->n && j->fitted.heads;
	if (j->fitted.heads) {
		memset(j->fitted.heads, 0, (size_t)n_heads * sizeof *j->fitted.heads);
	}
	for (int32_t h = 0; h < n_heads && good; h++) {
		j->n[h] = ckv_rows_count(&side->heads[h]);
		j->rows[h] = ckv_cache_alloc(cache, (size_t)j->n[h] * (size_t)side->dim, sizeof **j->rows);
		good = j->rows[h];
		if (good) {
			ckv_rows_decode(cache, side, &side->heads[h], 0, j->n[h], j->rows[h]);
		}
	}
	return good ? CKV_OK : no_memory(cache);
}

static ckv_status store_head(fit_job *j, int32_t head, float *latents) {
	ckv_low_rank_project(&j->fitted.fit, head, j->rows[head], (size_t)j->n[head], latents);
	if (j->fitted.packs) {
		ckv_status status = ckv_packed_append(&j->cache->allocator, &j->fitted.heads[head].packed, latents, j->n[head]);
		return status ? no_memory(j->cache) : CKV_OK;
	}
	ckv_status status = ckv_side_put(&j->fitted, head, latents, (size_t)j->n[head]);
	return status ? ckv_fail(&j->cache->error, status, "a projected row is beyond what f16 holds") : CKV_OK;
}

static ckv_status fit_side(fit_job *j, bool keys) {
	ckv_cache *cache = j->cache;
	const ckv_codec *codec = &cache->codec;
	const ckv_low_rank_options options = {.rank = codec->rank, .n_groups = codec->head_groups, .energy = codec->energy};
	ckv_status status = ckv_low_rank_fit(&cache->allocator, (const float *const *)j->rows, j->n, j->n_heads, j->side->dim,
	                                     &options, &j->fitted.fit, &cache->error);
	if (status) {
		return status;
	}
	int32_t most = 0;
	j->fitted.dim = j->side->dim;
	j->fitted.width = j->fitted.fit.rank;
	ckv_codec_shape(cache, &j->fitted, j->n_heads, keys);
	status = j->fitted.packs ? CKV_OK : ckv_side_reserve(cache, &j->fitted, j->n_heads, j->n, true);
	for (int32_t h = 0; h < j->n_heads; h++) {
		most = j->n[h] > most ? j->n[h] : most;
	}
	float *latents = status ? NULL : ckv_cache_work(cache, (size_t)most * (size_t)j->fitted.width);
	status = status || latents ? status : CKV_ERR_NOMEM;
	for (int32_t h = 0; h < j->n_heads && status == CKV_OK; h++) {
		status = store_head(j, h, latents);
	}
	return status;
}

/* Both sides or none. */
ckv_status ckv_codec_fit(ckv_cache *cache, cache_layer *layer, int32_t number) {
	fit_job k, v = {.cache = cache};
	int32_t heads = layer->shape.n_kv_heads;
	ckv_status status = fit_begin(&k, cache, &layer->k, heads);
	status = status ? status : fit_side(&k, true);
	status = status ? status : fit_begin(&v, cache, &layer->v, heads);
	status = status ? status : fit_side(&v, false);
	if (status == CKV_OK) {
		cache_side old = layer->k;
		layer->k = k.fitted;
		k.fitted = old;
		old = layer->v;
		layer->v = v.fitted;
		v.fitted = old;
	} else if (status == CKV_ERR_UNSUPPORTED || status == CKV_ERR_NUMERIC) {
		ckv_error found = cache->error;
		ckv_fail(&cache->error, status, "layer %d: %.200s", number, found.message);
	}
	fit_free(&k);
	fit_free(&v);
	return status;
}

/* ---------------------------------------------------------------------------------------------- the reference's bytes */

static uint64_t bits_to_bytes(uint64_t bits) { return (bits + 7) / 8; }

/* VeloxQuant's counts: packed codes, and scale and zero as f16. */
static uint64_t kivi_bytes(const ckv_codec *codec, const cache_side *side, int32_t n_heads, bool keys) {
	uint64_t bytes = 0, width = (uint64_t)side->width, group = (uint64_t)codec->group;
	for (int32_t h = 0; h < n_heads; h++) {
		uint64_t n = (uint64_t)side->heads[h].packed.n;
		uint64_t levels = keys ? (n + group - 1) / group * width : n * ((width + group - 1) / group);
		bytes += bits_to_bytes(n * width * (uint64_t)codec->bits) + levels * 4 + (uint64_t)side->heads[h].n * width * 2;
	}
	return bytes;
}

static uint64_t palu_bytes(const ckv_codec *codec, const cache_side *side, int32_t n_heads) {
	uint64_t rank = (uint64_t)side->width, high = (uint64_t)leading(codec, side->width), bytes = 0;
	uint64_t group = (uint64_t)codec->group;
	for (int32_t h = 0; h < n_heads; h++) {
		uint64_t n = (uint64_t)ckv_rows_count(&side->heads[h]);
		bytes += side->packs
		             ? bits_to_bytes(n * high * (uint64_t)codec->high_bits) +
		                   bits_to_bytes(n * (rank - high) * (uint64_t)codec->low_bits) + (n + group - 1) / group * rank * 4
		             : n * rank * 2;
	}
	return bytes + (uint64_t)side->fit.n_groups * ((uint64_t)side->dim * rank + (uint64_t)side->dim) * 4;
}

static uint64_t plain_bytes(const cache_side *side, int32_t n_heads) {
	uint64_t rows = 0;
	for (int32_t h = 0; h < n_heads; h++) {
		rows += (uint64_t)ckv_rows_count(&side->heads[h]);
	}
	return rows * (uint64_t)side->width * 2;
}

uint64_t ckv_codec_reference_bytes(const ckv_cache *cache, const cache_layer *layer) {
	int32_t heads = layer->shape.n_kv_heads;
	const ckv_codec *codec = &cache->codec;
	switch (cache->kind) {
	case CACHE_KIVI: return kivi_bytes(codec, &layer->k, heads, true) + kivi_bytes(codec, &layer->v, heads, false);
	case CACHE_PALU:
		return layer->k.fit.rank ? palu_bytes(codec, &layer->k, heads) + palu_bytes(codec, &layer->v, heads)
		                         : plain_bytes(&layer->k, heads) + plain_bytes(&layer->v, heads);
	case CACHE_F16: break;
	}
	return 0;
}
