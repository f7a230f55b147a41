/* Rows as f16, and the memory of a head. */
#include "stream/internal.h"

#include <string.h>

static ckv_status check_row(const uint16_t *row, size_t dim, const char *what, int32_t layer, int32_t head, int32_t token,
                            ckv_error *error) {
	uint32_t bad = 0;
	for (size_t c = 0; c < dim; c++) {
		bad |= (row[c] & 0x7c00u) == 0x7c00u;
	}
	return bad ? ckv_fail(
	                 error, CKV_ERR_NUMERIC,
	                 "layer %d, KV head %d, token %d of the call: NaN, infinity or beyond what f16 holds (65504) in a %s",
	                 layer, head, token, what)
	           : CKV_OK;
}

ckv_status ckv_store_convert(const ckv_stream *stream, const ckv_view *view, const char *what, int32_t layer, uint16_t *out,
                             ckv_error *error) {
	size_t dim = (size_t)view->head_dim;
	float *row = stream->work.data; /* of one row at least */
	for (int32_t h = 0; h < view->n_heads; h++) {
		for (int32_t t = 0; t < view->n_tokens; t++, out += dim) {
			if (view->dtype == CKV_F16) {
				const char *at = (const char *)view->data + (size_t)h * view->stride_head + (size_t)t * view->stride_token;
				memcpy(out, at, dim * sizeof *out);
			} else {
				ckv_view_decode(stream->kernels, view, h, t, 1, row);
				for (size_t c = 0; c < dim; c++) {
					out[c] = ckv_f16_from_f32(row[c]);
				}
			}
			ckv_status status = check_row(out, dim, what, layer, h, t, error);
			if (status) {
				return status;
			}
		}
	}
	return CKV_OK;
}

/* A larger copy of `old` rows. */
static uint16_t *grow_rows(const ckv_allocator *allocator, const uint16_t *rows, int32_t old, int32_t capacity, size_t dim) {
	size_t row = dim * sizeof *rows;
	uint16_t *bigger =
	    (size_t)capacity > (size_t)PTRDIFF_MAX / row ? NULL : allocator->alloc(allocator->user, (size_t)capacity * row);
	if (bigger && old) {
		memcpy(bigger, rows, (size_t)old * row);
	}
	return bigger;
}

static void release(const ckv_allocator *allocator, void *memory) {
	if (memory) {
		allocator->free(allocator->user, memory);
	}
}

static bool reserve_rows(const ckv_allocator *allocator, const stream_layer *layer, stream_head *head, int32_t capacity) {
	int32_t old = head->lane.capacity;
	if (capacity <= old) {
		return true;
	}
	uint16_t *keys = grow_rows(allocator, head->keys, old, capacity, (size_t)layer->shape.dim_k);
	uint16_t *values = keys ? grow_rows(allocator, head->values, old, capacity, (size_t)layer->shape.dim_v) : NULL;
	if (!values || !ckv_lane_reserve(allocator, &head->lane, capacity, true)) {
		release(allocator, keys);
		release(allocator, values);
		return false;
	}
	release(allocator, head->keys);
	release(allocator, head->values);
	head->keys = keys;
	head->values = values;
	return true;
}

static bool reserve_notes(const ckv_allocator *allocator, stream_head *head, int32_t room) {
	if (room <= head->room) {
		return true;
	}
	int32_t *evicted = (size_t)room > (size_t)PTRDIFF_MAX / sizeof(stream_event)
	                       ? NULL
	                       : allocator->alloc(allocator->user, (size_t)room * sizeof *evicted);
	stream_event *events = evicted ? allocator->alloc(allocator->user, (size_t)room * sizeof *events) : NULL;
	if (!events) {
		release(allocator, evicted);
		return false;
	}
	if (head->n_evicted) {
		memcpy(evicted, head->evicted, (size_t)head->n_evicted * sizeof *evicted);
	}
	if (head->n_events) {
		memcpy(events, head->events, (size_t)head->n_events * sizeof *events);
	}
	release(allocator, head->evicted);
	release(allocator, head->events);
	head->evicted = evicted;
	head->events = events;
	head->room = room;
	return true;
}

ckv_status ckv_store_reserve(ckv_stream *stream, stream_layer *layer, stream_head *head, int32_t rows, int32_t n) {
	const ckv_allocator *allocator = &stream->allocator;
	int32_t capacity = head->lane.capacity, most = layer->budget < CKV_MAX_TOKENS ? layer->budget + 1 : CKV_MAX_TOKENS;
	if (rows > capacity) { /* by doubling, but not past what the budget needs */
		int32_t twice = capacity < 32 ? 64 : capacity > CKV_MAX_TOKENS / 2 ? CKV_MAX_TOKENS : 2 * capacity;
		twice = twice < most ? twice : most;
		rows = rows > twice ? rows : twice;
	}
	if (!reserve_rows(allocator, layer, head, rows) || !reserve_notes(allocator, head, head->lane.n + n)) {
		return ckv_fail(&stream->error, CKV_ERR_NOMEM, "no memory for %d rows of a head", rows);
	}
	return CKV_OK;
}

void ckv_store_free(ckv_stream *stream, stream_head *head) {
	const ckv_allocator *allocator = &stream->allocator;
	void *owned[] = {head->keys, head->values, head->evicted, head->events};
	for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) {
		release(allocator, owned[i]);
	}
	ckv_lane_free(allocator, &head->lane);
}

uint16_t *ckv_store_key(const stream_layer *layer, const stream_head *head, int32_t row) {
	return head->keys + (size_t)head->lane.slots[row] * (size_t)layer->shape.dim_k;
}

uint16_t *ckv_store_value(const stream_layer *layer, const stream_head *head, int32_t row) {
	return head->values + (size_t)head->lane.slots[row] * (size_t)layer->shape.dim_v;
}

void ckv_store_evict(stream_head *head, lane_range rows, int32_t token) {
	size_t n = (size_t)(rows.end - rows.first);
	memcpy(head->evicted + head->n_evicted, head->lane.positions + rows.first, n * sizeof *head->evicted);
	head->n_evicted += (int32_t)n;
	head->events[head->n_events++] = (stream_event){token, rows};
	ckv_lane_remove(&head->lane, rows);
}
