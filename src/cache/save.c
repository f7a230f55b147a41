/* A cache as bytes: the codec and shapes, which must be those of the cache that takes it, then its rows as they are stored.
 */
#include "cache/internal.h"
#include "stream/internal.h"

#include <stdio.h>
#include <string.h>

static const char magic[4] = {'C', 'K', 'V', 'c'};
enum { VERSION = 1, CODEC_TEXT = 256 };

/* All that bytes depend on, as text: the kind, and what it reads. */
static int32_t codec_text(const ckv_cache *cache, char text[CODEC_TEXT]) {
	const ckv_codec *codec = &cache->codec;
	size_t n = (size_t)snprintf(text, CODEC_TEXT, "%s", codec->kind);
	for (size_t i = 0; ckv_codec_param_info_at(i); i++) {
		const char *key = ckv_codec_param_info_at(i)->key;
		if (ckv_codec_use(codec, key) && n < CODEC_TEXT - 1) {
			text[n++] = ' ';
			n += ckv_codec_value(codec, key, text + n, CODEC_TEXT - n);
		}
	}
	return n < CODEC_TEXT ? (int32_t)n : CODEC_TEXT - 1;
}

/* ------------------------------------------------------------------------------------------------------------ saving */

static void save_fit(byte_writer *w, const cache_side *side) {
	const ckv_low_rank *fit = &side->fit;
	size_t groups = (size_t)fit->n_groups, dim = (size_t)fit->dim, rank = (size_t)fit->rank;
	ckv_bytes_put_int(w, fit->rank);
	if (rank) {
		ckv_bytes_put_int(w, fit->n_groups);
		ckv_bytes_put(w, fit->mean, groups * dim * sizeof *fit->mean);
		ckv_bytes_put(w, fit->basis, groups * dim * rank * sizeof *fit->basis);
		ckv_bytes_put(w, fit->singular, groups * rank * sizeof *fit->singular);
	}
}

static void save_side(byte_writer *w, const cache_side *side, int32_t n_heads) {
	save_fit(w, side);
	for (int32_t h = 0; h < n_heads; h++) {
		const cache_rows *rows = &side->heads[h];
		size_t packed = ckv_packed_save_bytes(&rows->packed);
		const uint64_t size = packed;
		ckv_bytes_put_int(w, rows->n);
		ckv_bytes_put(w, &size, sizeof size);
		if (w->size <= w->capacity && packed <= w->capacity - w->size) {
			ckv_packed_save(&rows->packed, w->data + w->size);
		}
		w->size += packed;
		ckv_bytes_put(w, rows->n ? ckv_rows_tail(side, rows) : NULL, (size_t)rows->n * (size_t)side->width * 2);
	}
}

static size_t put_all(const ckv_cache *cache, void *data, size_t capacity) {
	byte_writer w;
	char text[CODEC_TEXT] = "";
	ckv_bytes_begin(&w, data, capacity);
	int32_t n = codec_text(cache, text);
	ckv_bytes_put_int(&w, n);
	ckv_bytes_put(&w, text, (size_t)n);
	ckv_bytes_put_int(&w, cache->n_layers);
	for (int32_t i = 0; i < cache->n_layers; i++) {
		const cache_layer *layer = &cache->layers[i];
		ckv_bytes_put(&w, &layer->shape, sizeof layer->shape);
		ckv_bytes_put_int(&w, layer->residual);
		save_side(&w, &layer->k, layer->shape.n_kv_heads);
		save_side(&w, &layer->v, layer->shape.n_kv_heads);
	}
	return ckv_bytes_end(&w, magic, VERSION);
}

size_t ckv_cache_save(const ckv_cache *cache, void *data, size_t capacity) {
	size_t size = cache ? put_all(cache, NULL, 0) : 0;
	return size && data && size <= capacity ? put_all(cache, data, capacity) : size;
}

/* --------------------------------------------------------------------------------------------------------- restoring */

static void *take_floats(ckv_cache *cache, byte_reader *r, size_t n) {
	const void *at = ckv_bytes_take(r, n, sizeof(float));
	void *copy = at ? ckv_cache_alloc(cache, n, sizeof(float)) : NULL;
	if (copy) {
		memcpy(copy, at, n * sizeof(float));
		r->good = ckv_all_finite(copy, n);
	}
	return copy;
}

static ckv_status restore_fit(ckv_cache *cache, byte_reader *r, cache_side *side, int32_t n_heads) {
	ckv_low_rank *fit = &side->fit;
	int32_t rank = ckv_bytes_take_int(r);
	if (rank == 0) {
		return r->good ? CKV_OK : CKV_ERR_ARG;
	}
	int32_t groups = ckv_bytes_take_int(r);
	if (!r->good || rank < 0 || rank > side->dim || groups < 1 || groups > n_heads || cache->kind != CACHE_PALU) {
		return CKV_ERR_ARG;
	}
	size_t g = (size_t)groups, dim = (size_t)side->dim, k = (size_t)rank;
	fit->dim = side->dim;
	fit->n_heads = n_heads;
	fit->n_groups = groups;
	fit->mean = take_floats(cache, r, g * dim);
	fit->basis = take_floats(cache, r, g * dim * k);
	fit->singular = take_floats(cache, r, g * k);
	fit->rank = rank;
	side->width = rank;
	return !r->good ? CKV_ERR_ARG : fit->mean && fit->basis && fit->singular ? CKV_OK : CKV_ERR_NOMEM;
}

/* One head's packed rows; where its tail is in the bytes. */
static ckv_status restore_head(ckv_cache *cache, byte_reader *r, cache_side *side, int32_t head, const uint8_t **tail) {
	cache_rows *rows = &side->heads[head];
	int32_t n = ckv_bytes_take_int(r);
	const void *size = ckv_bytes_take(r, 1, sizeof(uint64_t));
	uint64_t packed = UINT64_MAX;
	if (size) {
		memcpy(&packed, size, sizeof packed);
	}
	const void *codes = packed <= r->left ? ckv_bytes_take(r, (size_t)packed, 1) : NULL;
	*tail = codes && n >= 0 ? ckv_bytes_take(r, (size_t)n, (size_t)side->width * 2) : NULL;
	if (!*tail) {
		return CKV_ERR_ARG;
	}
	rows->n = n;
	ckv_status status = ckv_packed_restore(&cache->allocator, &rows->packed, codes, (size_t)packed);
	return status || rows->packed.n <= CKV_MAX_TOKENS - n ? status : CKV_ERR_ARG;
}

static ckv_status restore_side(ckv_cache *cache, byte_reader *r, cache_side *side, int32_t n_heads, bool keys) {
	const uint8_t **tails = ckv_cache_alloc(cache, (size_t)n_heads, sizeof *tails);
	ckv_status status = tails ? restore_fit(cache, r, side, n_heads) : CKV_ERR_NOMEM;
	ckv_codec_shape(cache, side, n_heads, keys);
	for (int32_t h = 0; h < n_heads && status == CKV_OK; h++) {
		status = restore_head(cache, r, side, h, &tails[h]);
		side->tail_rows += status ? 0 : (size_t)side->heads[h].n;
	}
	size_t at = 0, row = (size_t)side->width * 2;
	ckv_cache_release(cache, side->tail); /* of no rows */
	side->tail = status ? NULL : ckv_cache_alloc(cache, side->tail_rows, row);
	status = status || side->tail ? status : CKV_ERR_NOMEM;
	for (int32_t h = 0; h < n_heads && status == CKV_OK; h++) {
		cache_rows *rows = &side->heads[h];
		rows->first = at;
		rows->capacity = rows->n;
		memcpy((uint8_t *)side->tail + at * row, tails[h], (size_t)rows->n * row);
		at += (size_t)rows->n;
	}
	ckv_cache_release(cache, tails);
	return status;
}

/* As many values are packed as keys where both are at the same time, and none where nothing is. */
static bool packed_good(cache_codec kind, const cache_layer *layer, int32_t head) {
	int32_t k = layer->k.heads[head].packed.n, v = layer->v.heads[head].packed.n;
	return kind == CACHE_KIVI ? k == v : layer->k.fit.rank > 0 || (k == 0 && v == 0);
}

/* Heads have as many values as keys, and no row that f16 does not hold. */
static bool rows_good(cache_codec kind, const cache_layer *layer) {
	bool good = layer->residual >= 0 && (layer->k.fit.rank > 0) == (layer->v.fit.rank > 0);
	const cache_side *sides[2] = {&layer->k, &layer->v};
	for (int32_t h = 0; h < layer->shape.n_kv_heads; h++) {
		good = good && ckv_rows_count(&layer->k.heads[h]) == ckv_rows_count(&layer->v.heads[h]);
		good = good && packed_good(kind, layer, h);
	}
	for (int i = 0; i < 2; i++) {
		for (size_t c = 0; c < sides[i]->tail_rows * (size_t)sides[i]->width; c++) {
			good = good && (sides[i]->tail[c] & 0x7c00u) != 0x7c00u;
		}
	}
	return good;
}

static ckv_status restore_layers(ckv_cache *cache, byte_reader *r) {
	ckv_status status = CKV_OK;
	for (int32_t i = 0; i < cache->n_layers && status == CKV_OK; i++) {
		cache_layer *layer = &cache->layers[i];
		const void *shape = ckv_bytes_take(r, 1, sizeof layer->shape);
		if (!shape || memcmp(shape, &layer->shape, sizeof layer->shape) != 0) {
			return CKV_ERR_ARG;
		}
		layer->residual = ckv_bytes_take_int(r);
		status = restore_side(cache, r, &layer->k, layer->shape.n_kv_heads, true);
		status = status ? status : restore_side(cache, r, &layer->v, layer->shape.n_kv_heads, false);
		status = status || rows_good(cache->kind, layer) ? status : CKV_ERR_ARG;
	}
	return status;
}

static bool same_codec(const ckv_cache *cache, byte_reader *r) {
	char text[CODEC_TEXT] = "";
	int32_t n = codec_text(cache, text), theirs = ckv_bytes_take_int(r);
	const void *at = theirs == n ? ckv_bytes_take(r, (size_t)n, 1) : NULL;
	return at && memcmp(at, text, (size_t)n) == 0 && ckv_bytes_take_int(r) == cache->n_layers;
}

static bool is_empty(const ckv_cache *cache) {
	ckv_cache_info info = {.size = sizeof info};
	return ckv_cache_get_info(cache, -1, &info) == CKV_OK && info.rows == 0 && info.rank_k == 0;
}

/* Into a new cache first, which then takes the old one's place. */
ckv_status ckv_cache_restore(ckv_cache *cache, const void *data, size_t size) {
	byte_reader r;
	ckv_cache *fresh;
	if (!cache) {
		return CKV_ERR_ARG;
	}
	cache->error = (ckv_error){CKV_OK, ""};
	if (!is_empty(cache)) {
		return ckv_fail(&cache->error, CKV_ERR_STATE, "restoring needs an empty cache");
	}
	ckv_status status = ckv_bytes_open(&r, data, size, magic, VERSION, &cache->error);
	if (status) {
		return status;
	}
	if (!same_codec(cache, &r)) {
		return ckv_fail(&cache->error, CKV_ERR_ARG, "the state was saved by a cache of another codec or number of layers");
	}
	status = ckv_cache_copy(cache, &fresh);
	status = status ? status : restore_layers(fresh, &r);
	if (status == CKV_OK && r.left > 0) {
		status = CKV_ERR_ARG;
	}
	if (status == CKV_OK) {
		cache_layer *old = cache->layers;
		cache->layers = fresh->layers;
		fresh->layers = old;
	} else {
		ckv_fail(&cache->error, status,
		         status == CKV_ERR_NOMEM ? "no memory for the rows of a saved cache"
		                                 : "the state is of other shapes, or its parts do not go together");
	}
	ckv_cache_free(fresh);
	return status;
}
