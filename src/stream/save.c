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

/* Whether a layer with queries of so many heads (-1: nothing was pushed yet) has a ring. */
static bool has_ring(const ckv_stream *stream, int32_t n_query_heads) {
	return stream->scorer == STREAM_SNAPKV && !stream->by_call && n_query_heads >= 0;
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
	const int32_t numbers[] = {layer->shape.n_kv_heads, layer->shape.dim_k,
	                           layer->shape.dim_v,      layer->budget,
	                           layer->planned,          layer->seen,
	                           layer->n_query_heads,    layer->ring_from,
	                           layer->reported,         has_ring(stream, layer->n_query_heads)};
	ckv_bytes_put(w, numbers, sizeof numbers);
	ckv_bytes_put(w, &layer->concentration, sizeof layer->concentration);
	if (has_ring(stream, layer->n_query_heads)) {
		ckv_bytes_put(w, layer->ring, ring_count(stream, layer, layer->n_query_heads) * sizeof *layer->ring);
	}
	for (int32_t h = 0; h < layer->shape.n_kv_heads; h++) {
		put_head(w, layer, &layer->heads[h]);
	}
}

static size_t put_all(const ckv_stream *stream, void *data, size_t capacity) {
	byte_writer w;
	ckv_bytes_begin(&w, data, capacity);
	ckv_bytes_put_policy(&w, &stream->params);
	ckv_bytes_put_int(&w, stream->budget);
	ckv_bytes_put_int(&w, stream->n_layers);
	for (int32_t i = 0; i < stream->n_layers; i++) {
		put_layer(&w, stream, &stream->layers[i]);
	}
	return ckv_bytes_end(&w, magic, VERSION);
}

size_t ckv_stream_save(const ckv_stream *stream, void *data, size_t capacity) {
	size_t size = stream ? put_all(stream, NULL, 0) : 0;
	return size && data && size <= capacity ? put_all(stream, data, capacity) : size;
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
	bool heads = s->n_query_heads >= -1 && s->n_query_heads <= STREAM_MOST_QUERY_HEADS &&
	             (s->n_query_heads < 0 || s->n_query_heads % s->heads == 0);
	/* Only squeeze changes budgets. */
	bool changes = stream->rule == STREAM_SQUEEZE && stream->n_layers > 1;
	int32_t lowest = ckv_stream_least(&stream->params);
	bool budgets = changes ? s->budget >= lowest && (s->planned == -1 || s->planned >= lowest)
	                       : s->budget == layer->budget && s->planned == -1;
	return heads && budgets && (s->seen == 0 || s->n_query_heads >= 0) && s->seen >= 0 && s->seen <= CKV_MAX_TOKENS &&
	       s->budget < CKV_MAX_TOKENS && s->planned < CKV_MAX_TOKENS && s->ring_from >= 0 && s->ring_from <= s->seen &&
	       s->has_ring == (int32_t)has_ring(stream, s->n_query_heads);
}

/* A head as it was saved; the bytes are the caller's. */
typedef struct saved_head {
	int32_t n, draws;
	const void *positions, *scores, *keys, *values;
} saved_head;

static bool take_head(byte_reader *r, const ckv_stream *stream, const stream_layer *layer, const saved_layer *s,
                      saved_head *h) {
	size_t dim_k = (size_t)layer->shape.dim_k * sizeof(uint16_t), dim_v = (size_t)layer->shape.dim_v * sizeof(uint16_t);
	h->n = ckv_bytes_take_int(r);
	h->draws = ckv_bytes_take_int(r);
	int32_t most = ckv_stream_most(stream, s->budget > s->planned ? s->budget : s->planned);
	if (!r->good || h->n < 0 || h->n > s->seen || (!stream->by_call && h->n > most)) {
		return false;
	}
	h->positions = ckv_bytes_take(r, (size_t)h->n, sizeof(int32_t));
	h->scores = ckv_bytes_take(r, (size_t)h->n, sizeof(float));
	h->keys = ckv_bytes_take(r, (size_t)h->n, dim_k);
	h->values = ckv_bytes_take(r, (size_t)h->n, dim_v);
	/* Merging in reference mode labels rows out of order. */
	bool ordered = stream->merge == STREAM_DROP || !stream->params.reference;
	return r->good && ckv_bytes_positions_good(h->positions, h->n, s->seen, ordered);
}

static void write_head(stream_head *to, const stream_layer *layer, const saved_head *h) {
	size_t n = (size_t)h->n;
	for (int32_t i = 0; i < to->lane.capacity; i++) {
		to->lane.slots[i] = i;
	}
	to->lane.n = h->n;
	to->n_events = to->n_evicted = 0;
	memcpy(&to->draws, &h->draws, sizeof h->draws);
	if (n) {
		memcpy(to->lane.positions, h->positions, n * sizeof(int32_t));
		memcpy(to->lane.scores, h->scores, n * sizeof(float));
		memcpy(to->keys, h->keys, n * (size_t)layer->shape.dim_k * sizeof(uint16_t));
		memcpy(to->values, h->values, n * (size_t)layer->shape.dim_v * sizeof(uint16_t));
	}
}

static bool take_ring(byte_reader *r, const ckv_stream *stream, const stream_layer *layer, const saved_layer *s,
                      const void **from) {
	*from = s->has_ring ? ckv_bytes_take(r, ring_count(stream, layer, s->n_query_heads), sizeof(float)) : NULL;
	return !s->has_ring || *from;
}

/* Whether a layer has the rows of the one whose decisions it takes, `led` being at the bytes of that: what goes is told by
 * row. One that lags behind takes nothing any more. */
static bool follows(byte_reader own, byte_reader led, const ckv_stream *stream, int32_t index) {
	const stream_layer *layer = &stream->layers[index], *leader = ckv_stream_leader(stream, index);
	saved_layer s, t;
	saved_head a, b;
	const void *ring;
	if (!take_layer(&own, stream, layer, &s) || !take_layer(&led, stream, leader, &t) ||
	    !take_ring(&own, stream, layer, &s, &ring) || !take_ring(&led, stream, leader, &t, &ring)) {
		return false;
	}
	bool good = s.seen <= t.seen;
	for (int32_t h = 0; h < layer->shape.n_kv_heads && good && s.seen == t.seen; h++) {
		good = take_head(&own, stream, layer, &s, &a) && take_head(&led, stream, leader, &t, &b) && a.n == b.n &&
		       memcmp(a.positions, b.positions, (size_t)a.n * sizeof(int32_t)) == 0;
	}
	return good;
}

/* What is common to looking and to taking. */
typedef enum read_pass { LOOK, RESERVE, TAKE } read_pass;

static ckv_status make_ring(ckv_stream *stream, stream_layer *layer, size_t size) {
	if (layer->ring && layer->ring_size >= size) {
		return CKV_OK;
	}
	float *bigger = stream->allocator.alloc(stream->allocator.user, size);
	if (!bigger) {
		return ckv_fail(&stream->error, CKV_ERR_NOMEM, "no memory for a window of queries");
	}
	if (layer->ring) {
		memcpy(bigger, layer->ring, layer->ring_size);
		stream->allocator.free(stream->allocator.user, layer->ring);
	}
	layer->ring = bigger;
	layer->ring_size = size;
	return CKV_OK;
}

static void write_layer(stream_layer *layer, const saved_layer *s, const void *ring, size_t ring_size) {
	layer->budget = s->budget;
	layer->planned = s->planned;
	layer->seen = layer->pushed_from = s->seen;
	layer->pushed = 0;
	layer->n_query_heads = s->n_query_heads;
	layer->ring_from = s->ring_from;
	layer->reported = s->reported != 0;
	layer->concentration = s->concentration;
	if (ring) {
		memcpy(layer->ring, ring, ring_size);
	} else if (layer->ring) {
		memset(layer->ring, 0, layer->ring_size);
	}
}

static ckv_status read_layer(byte_reader *r, ckv_stream *stream, stream_layer *layer, read_pass pass) {
	saved_layer s;
	saved_head h;
	const void *ring;
	if (!take_layer(r, stream, layer, &s) || !take_ring(r, stream, layer, &s, &ring)) {
		return CKV_ERR_ARG;
	}
	size_t ring_size = ring_count(stream, layer, s.n_query_heads) * sizeof *layer->ring;
	ckv_status status = pass == RESERVE && ring ? make_ring(stream, layer, ring_size) : CKV_OK;
	if (pass == TAKE) {
		write_layer(layer, &s, ring, ring_size);
	}
	for (int32_t i = 0; i < layer->shape.n_kv_heads && status == CKV_OK; i++) {
		if (!take_head(r, stream, layer, &s, &h)) {
			return CKV_ERR_ARG;
		}
		if (pass == RESERVE) {
			status = ckv_store_reserve(stream, layer, &layer->heads[i], h.n, 0);
		} else if (pass == TAKE) {
			write_head(&layer->heads[i], layer, &h);
		}
	}
	return status;
}

static ckv_status read_all(ckv_stream *stream, byte_reader r, read_pass pass) {
	byte_reader led = r;
	if (!ckv_bytes_take_policy(&r, &stream->params) || ckv_bytes_take_int(&r) != stream->budget ||
	    ckv_bytes_take_int(&r) != stream->n_layers) {
		return ckv_fail(&stream->error, CKV_ERR_STATE, "the state is of another policy, budget or number of layers");
	}
	for (int32_t i = 0; i < stream->n_layers; i++) {
		bool leads = i % stream->params.reuse == 0;
		led = leads ? r : led;
		ckv_status status = pass == LOOK && !leads && !follows(r, led, stream, i)
		                        ? CKV_ERR_ARG
		                        : read_layer(&r, stream, &stream->layers[i], pass);
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
	stream->pins.n = status ? stream->pins.n : 0;
	return status;
}
