/* Positions that never go, and whether there is room for them. */
#include "stream/internal.h"

#include <string.h>

static bool reserve(const ckv_allocator *allocator, lane_pins *pins) {
	if (pins->n < pins->room) {
		return true;
	}
	int32_t room = pins->room > INT32_MAX / 2 ? INT32_MAX : pins->room ? 2 * pins->room : 8;
	lane_pin *bigger = pins->n < room ? allocator->alloc(allocator->user, (size_t)room * sizeof *bigger) : NULL;
	if (!bigger) {
		return false;
	}
	if (pins->at) {
		memcpy(bigger, pins->at, (size_t)pins->n * sizeof *bigger);
		allocator->free(allocator->user, pins->at);
	}
	pins->at = bigger;
	pins->room = room;
	return true;
}

ckv_status ckv_pins_check(int32_t first, int32_t end, ckv_error *error) {
	return first >= 0 && end >= first && end <= CKV_MAX_TOKENS
	           ? CKV_OK
	           : ckv_fail(error, CKV_ERR_ARG, "positions %d to %d are no range", first, end);
}

/* Takes out what the pin touches and adds it to the pin, so that no position counts twice and pinning again costs nothing.
 */
static lane_pin take_in(lane_pins *pins, lane_pin pin) {
	for (int32_t i = pins->n - 1; i >= 0; i--) {
		lane_pin other = pins->at[i];
		if (other.first <= pin.end && pin.first <= other.end) {
			pin.first = other.first < pin.first ? other.first : pin.first;
			pin.end = other.end > pin.end ? other.end : pin.end;
			pins->at[i] = pins->at[--pins->n];
		}
	}
	return pin;
}

ckv_status ckv_pins_add(const ckv_allocator *allocator, lane_pins *pins, lane_pin pin, ckv_error *error) {
	if (pin.first >= pin.end) {
		return CKV_OK;
	}
	pin = take_in(pins, pin);
	if (!reserve(allocator, pins)) { /* then it has taken nothing in */
		return ckv_fail(error, CKV_ERR_NOMEM, "no memory for a pin");
	}
	pins->at[pins->n++] = pin;
	return CKV_OK;
}

void ckv_pins_free(const ckv_allocator *allocator, lane_pins *pins) {
	if (pins->at) {
		allocator->free(allocator->user, pins->at);
	}
	*pins = (lane_pins){NULL, 0, 0};
}

/* ---------------------------------------------------------------------------------------------------------- of a stream */

ckv_status ckv_stream_pin(ckv_stream *stream, int32_t first, int32_t end) {
	if (!stream) {
		return CKV_ERR_ARG;
	}
	ckv_fail(&stream->error, CKV_OK, "%s", "");
	if (stream->params.reference) {
		return ckv_fail(&stream->error, CKV_ERR_UNSUPPORTED, "reference mode pins nothing, as the published code");
	}
	ckv_status status = ckv_pins_check(first, end, &stream->error);
	if (status) {
		return status;
	}
	/* Whole chunks; sinks never go as it is. */
	int32_t sinks = stream->params.sinks, chunk = stream->params.chunk;
	int64_t from = first > sinks ? first - sinks : 0, to = end > sinks ? end - sinks : 0;
	from = sinks + from / chunk * chunk;
	to = sinks + (to + chunk - 1) / chunk * chunk;
	to = to < CKV_MAX_TOKENS ? to : CKV_MAX_TOKENS;
	lane_pin pin = {(int32_t)from, first < end ? (int32_t)to : (int32_t)from};
	return ckv_pins_add(&stream->allocator, &stream->pins, pin, &stream->error);
}

/* Rows of a head that are pinned, and those of n tokens to come. */
static int64_t pinned_rows(const lane_pins *pins, const ckv_lane *lane, int32_t seen, int32_t n) {
	int64_t rows = 0;
	for (int32_t i = 0; i < pins->n; i++) {
		lane_pin pin = pins->at[i];
		int32_t from = pin.first > seen ? pin.first : seen, to = pin.end < seen + n ? pin.end : seen + n;
		rows += ckv_lane_before(lane, pin.end) - ckv_lane_before(lane, pin.first);
		rows += to > from ? to - from : 0;
	}
	return rows;
}

ckv_status ckv_stream_check_pins(ckv_stream *stream, int32_t index, int32_t n) {
	const stream_layer *layer = &stream->layers[index];
	lane_rule rule = ckv_stream_rule(stream);
	int64_t most = 0, budget = ckv_planned_budget(layer), others = (int64_t)rule.sinks + rule.grace + rule.chunk;
	if (stream->pins.n == 0 || ckv_stream_leader(stream, index)) { /* a follower loses what its leader does */
		return CKV_OK;
	}
	for (int32_t h = 0; h < layer->shape.n_kv_heads; h++) {
		int64_t rows = pinned_rows(&stream->pins, &layer->heads[h].lane, layer->seen, n);
		most = rows > most ? rows : most;
	}
	if (most == 0 || most + others <= budget) {
		return CKV_OK;
	}
	return ckv_fail(
	    &stream->error, CKV_ERR_CAPACITY,
	    "layer %d: %lld pinned rows, and %lld for sinks, the newest tokens and a chunk, exceed its budget of %lld", index,
	    (long long)most, (long long)others, (long long)budget);
}

ckv_status ckv_stream_check_room(ckv_stream *stream, int32_t n) {
	if (!stream) {
		return CKV_ERR_ARG;
	}
	ckv_fail(&stream->error, CKV_OK, "%s", "");
	ckv_status status = n >= 0 ? CKV_OK : ckv_fail(&stream->error, CKV_ERR_ARG, "%d tokens can't come", n);
	for (int32_t i = 0; i < stream->n_layers && status == CKV_OK; i++) {
		bool fits = n <= CKV_MAX_TOKENS - stream->layers[i].seen;
		status = fits ? ckv_stream_check_pins(stream, i, n)
		              : ckv_fail(&stream->error, CKV_ERR_ARG, "layer %d: more than %d tokens", i, CKV_MAX_TOKENS);
	}
	return status;
}
