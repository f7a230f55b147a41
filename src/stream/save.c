/* A stream as bytes. */
#include "stream/internal.h"

#include <string.h>

static const char magic[4] = {'C', 'K', 'V', 'S'};
enum { VERSION = 1 };

/* Floats of the ring of one layer. */
static size_t ring_count(const ckv_stream *stream, const stream_layer *layer, int32_t n_query_heads) {
	size_t heads = (size_t)(n_query_heads > 0 ? n_query_heads : layer->shape.n_kv_heads);
	return heads * (size_t)stream->params.window * (size_t)layer->shape.dim_k;
}

static void put_head(byte_writer *w, const stream_layer *layer, const stream_head *head) {
	const ckv_lane *lane = &head->lane;
	size_t n = (size_t)lane->n;
	int32_t draws;
	memcpy(&draws, &head->draws, sizeof draws);
	ckv_bytes_put_int(w, lane->n);
	ckv_bytes_put_int(w, draws);
	ckv_bytes_put(w, lane->positions, n * sizeof *lane->positions);
	ckv_bytes_put(w, lane->scores, n * sizeof *lane->scores);
	for (int32_t i = 0; i < lane->n; i++) {
		ckv_bytes_put(w, ckv_store_key(layer, head, i), (size_t)layer->shape.dim_k * sizeof(uint16_t));
	}
	for (int32_t i = 0; i < lane->n; i++) {
		ckv_bytes_put(w, ckv_store_value(layer, head, i), (size_t)layer->shape.dim_v * sizeof(uint16_t));
	}
}

static void put_layer(byte_writer *w, const ckv_stream *stream, const stream_layer *layer) {
	const int32_t numbers[] = {layer->shape.n_kv_heads, layer->shape.dim_k, layer->shape.dim_v,   layer->budget,
	                           layer->planned,          layer->seen,        layer->n_query_heads, layer->ring_from,
	                           layer->reported,         layer->ring != NULL};
	ckv_bytes_put(w, numbers, sizeof numbers);
	ckv_bytes_put(w, &layer->concentration, sizeof layer->concentration);
	if (layer->ring) {
		ckv_bytes_put(w, layer->ring, ring_count(stream, layer, layer->n_query_heads) * sizeof *layer->ring);
	}
	for (int32_t h = 0; h < layer->shape.n_kv_heads; h++) {
		put_head(w, layer, &layer->heads[h]);
	}
}

size_t ckv_stream_save(const ckv_stream *stream, void *data, size_t capacity) {
	byte_writer w;
	if (!stream) {
		return 0;
	}
	ckv_bytes_begin(&w, data, capacity);
	ckv_bytes_put_policy(&w, &stream->params);
	ckv_bytes_put_int(&w, stream->budget);
	ckv_bytes_put_int(&w, stream->n_layers);
	for (int32_t i = 0; i < stream->n_layers; i++) {
		put_layer(&w, stream, &stream->layers[i]);
	}
	return ckv_bytes_end(&w, magic, VERSION);
}

/* What a saved layer says of itself. */
typedef struct saved_layer {
	int32_t heads, dim_k, dim_v, budget, planned, seen, n_query_heads, ring_from, reported, has_ring;
	float concentration;
} saved_layer;

static bool take_layer(byte_reader *r, const ckv_stream *stream, const stream_layer *layer, saved_layer *s) {
	int32_t *fields[] = {&s->heads, &s->dim_k,         &s->dim_v,     &s->budget,   &s->planned,
	                     &s->seen,  &s->n_query_heads, &s->ring_from, &s->reported, &s->has_ring};
	for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
		*fields[i] = ckv_bytes_take_int(r);
	}
	const void *concentration = ckv_bytes_take(r, 1, sizeof s->concentration);
	if (!concentration || s->heads != layer->shape.n_kv_heads || s->dim_k != layer->shape.dim_k ||
	    s->dim_v != layer->shape.dim_v) {
		return false;
	}
	memcpy(&s->concentration, concentration, sizeof s->concentration);
	bool rings = stream->scorer == STREAM_SNAPKV && !stream->by_call;
	bool heads = s->n_query_heads >= -1 && s->n_query_heads <= 65536 * 64 &&
	             (s->n_query_heads < 0 || s->n_query_heads % s->heads == 0);
	return heads && s->seen >= 0 && s->seen <= CKV_MAX_TOKENS && s->budget >= 1 && s->budget < CKV_MAX_TOKENS &&
	       s->planned >= -1 && s->planned < CKV_MAX_TOKENS && s->ring_from >= 0 && s->ring_from <= s->seen &&
	       (s->has_ring == 0 || (s->has_ring == 1 && rings));
}

/* One head: with `to` its rows are written there, for which there must be room; without, they are only checked. */
static bool take_head(byte_reader *r, const ckv_stream *stream, const stream_layer *layer, const saved_layer *s,
                      stream_head *to, int32_t *n) {
	size_t dim_k = (size_t)layer->shape.dim_k * sizeof(uint16_t), dim_v = (size_t)layer->shape.dim_v * sizeof(uint16_t);
	int32_t rows = ckv_bytes_take_int(r), draws = ckv_bytes_take_int(r);
	int32_t most = s->budget > s->planned ? s->budget : s->planned;
	if (!r->good || rows < 0 || rows > s->seen || (!stream->by_call && rows > most)) {
		return false;
	}
	const void *positions = ckv_bytes_take(r, (size_t)rows, sizeof(int32_t));
	const void *scores = ckv_bytes_take(r, (size_t)rows, sizeof(float));
	const void *keys = ckv_bytes_take(r, (size_t)rows, dim_k), *values = ckv_bytes_take(r, (size_t)rows, dim_v);
	/* Merging in reference mode labels rows out of order. */
	bool ordered = stream->merge != STREAM_DROP && stream->params.reference;
	if (!r->good || (!ordered && !ckv_bytes_positions_good(positions, rows, s->seen))) {
		return false;
	}
	*n = rows;
	if (to) {
		for (int32_t i = 0; i < to->lane.capacity; i++) {
			to->lane.slots[i] = i;
		}
		to->lane.n = rows;
		to->n_events = to->n_evicted = 0;
		memcpy(&to->draws, &draws, sizeof draws);
		memcpy(to->lane.positions, positions, (size_t)rows * sizeof(int32_t));
		memcpy(to->lane.scores, scores, (size_t)rows * sizeof(float));
		memcpy(to->keys, keys, (size_t)rows * dim_k);
		memcpy(to->values, values, (size_t)rows * dim_v);
	}
	return true;
}

/* What is common to looking and to taking. */
typedef enum read_pass { LOOK, RESERVE, TAKE } read_pass;

static ckv_status read_layer(byte_reader *r, ckv_stream *stream, stream_layer *layer, read_pass pass) {
	saved_layer s;
	if (!take_layer(r, stream, layer, &s)) {
		return CKV_ERR_ARG;
	}
	size_t ring = ring_count(stream, layer, s.n_query_heads);
	const void *from = s.has_ring ? ckv_bytes_take(r, ring, sizeof(float)) : NULL;
	if (s.has_ring && !from) {
		return CKV_ERR_ARG;
	}
	if (pass == RESERVE && s.has_ring && (!layer->ring || layer->ring_size < ring * sizeof(float))) {
		float *bigger = stream->allocator.alloc(stream->allocator.user, ring * sizeof *bigger);
		if (!bigger) {
			return ckv_fail(&stream->error, CKV_ERR_NOMEM, "no memory for a window of queries");
		}
		if (layer->ring) {
			memcpy(bigger, layer->ring, layer->ring_size);
			stream->allocator.free(stream->allocator.user, layer->ring);
		}
		layer->ring = bigger;
		layer->ring_size = ring * sizeof *bigger;
	}
	if (pass == TAKE) {
		layer->budget = s.budget;
		layer->planned = s.planned;
		layer->seen = layer->pushed_from = s.seen;
		layer->pushed = 0;
		layer->n_query_heads = s.n_query_heads;
		layer->ring_from = s.ring_from;
		layer->reported = s.reported != 0;
		layer->concentration = s.concentration;
		if (from) {
			memcpy(layer->ring, from, ring * sizeof *layer->ring);
		}
	}
	for (int32_t h = 0; h < layer->shape.n_kv_heads; h++) {
		int32_t rows;
		if (!take_head(r, stream, layer, &s, pass == TAKE ? &layer->heads[h] : NULL, &rows)) {
			return CKV_ERR_ARG;
		}
		ckv_status status = pass == RESERVE ? ckv_store_reserve(stream, layer, &layer->heads[h], rows, 0) : CKV_OK;
		if (status) {
			return status;
		}
	}
	return CKV_OK;
}

static ckv_status read_all(ckv_stream *stream, byte_reader r, read_pass pass) {
	if (!ckv_bytes_take_policy(&r, &stream->params) || ckv_bytes_take_int(&r) != stream->budget ||
	    ckv_bytes_take_int(&r) != stream->n_layers) {
		return ckv_fail(&stream->error, CKV_ERR_STATE, "the state is of another policy, budget or number of layers");
	}
	for (int32_t i = 0; i < stream->n_layers; i++) {
		ckv_status status = read_layer(&r, stream, &stream->layers[i], pass);
		if (status == CKV_ERR_ARG) {
			return ckv_fail(&stream->error, status, "the saved state of layer %d is of another shape, or damaged", i);
		}
		if (status) {
			return status;
		}
	}
	return r.left == 0 ? CKV_OK : ckv_fail(&stream->error, CKV_ERR_ARG, "%zu bytes too many in the saved state", r.left);
}

ckv_status ckv_stream_restore(ckv_stream *stream, const void *data, size_t size) {
	byte_reader r;
	if (!stream) {
		return CKV_ERR_ARG;
	}
	ckv_fail(&stream->error, CKV_OK, "%s", "");
	ckv_status status = ckv_bytes_open(&r, data, size, magic, VERSION, &stream->error);
	for (read_pass pass = LOOK; pass <= TAKE && status == CKV_OK; pass++) {
		status = read_all(stream, r, pass);
	}
	return status;
}
