/* Rows of one head in order, and which chunk of them goes next. */
#include "stream/internal.h"

#include <string.h>

void *ckv_memory_reserve(const ckv_allocator *allocator, stream_memory *memory, size_t count, size_t size,
                         ckv_error *error) {
	if (size && count > (size_t)PTRDIFF_MAX / size) {
		ckv_fail(error, CKV_ERR_NOMEM, "%zu elements of %zu bytes do not fit the address space", count, size);
		return NULL;
	}
	size_t bytes = count * size;
	bytes = bytes > 0 ? bytes : 1;
	if (bytes > memory->size) {
		void *bigger = allocator->alloc(allocator->user, bytes);
		if (!bigger) {
			ckv_fail(error, CKV_ERR_NOMEM, "no memory for %zu bytes", bytes);
			return NULL;
		}
		ckv_memory_free(allocator, memory);
		memory->data = bigger;
		memory->size = bytes;
	}
	return memory->data;
}

void ckv_memory_free(const ckv_allocator *allocator, stream_memory *memory) {
	if (memory->data) {
		allocator->free(allocator->user, memory->data);
	}
	memory->data = NULL;
	memory->size = 0;
}

/* All four arrays are one piece, which positions begins. */
bool ckv_lane_reserve(const ckv_allocator *allocator, ckv_lane *lane, int32_t capacity, bool slots) {
	size_t n = (size_t)capacity, used = (size_t)lane->n, arrays = slots ? 4 : 2;
	if (capacity <= lane->capacity) {
		return true;
	}
	if (n > (size_t)PTRDIFF_MAX / (arrays * sizeof(int32_t))) {
		return false;
	}
	int32_t *piece = allocator->alloc(allocator->user, arrays * n * sizeof *piece);
	if (!piece) {
		return false;
	}
	float *scores = (float *)(void *)(piece + n);
	if (used) {
		memcpy(piece, lane->positions, used * sizeof *piece);
		memcpy(scores, lane->scores, used * sizeof *scores);
	}
	int32_t *own = slots ? piece + 2 * n : NULL;
	if (slots && lane->capacity) {
		memcpy(own, lane->slots, (size_t)lane->capacity * sizeof *own);
	}
	for (int32_t i = lane->capacity; i < capacity && slots; i++) {
		own[i] = i;
	}
	if (lane->positions) {
		allocator->free(allocator->user, lane->positions);
	}
	lane->positions = piece;
	lane->scores = scores;
	lane->slots = own;
	lane->columns = slots ? own + n : NULL;
	lane->capacity = capacity;
	return true;
}

void ckv_lane_free(const ckv_allocator *allocator, ckv_lane *lane) {
	if (lane->positions) {
		allocator->free(allocator->user, lane->positions);
	}
	memset(lane, 0, sizeof *lane);
}

void ckv_lane_append(ckv_lane *lane, int32_t position, float score, int32_t column) {
	lane->positions[lane->n] = position;
	lane->scores[lane->n] = score;
	if (lane->columns) {
		lane->columns[lane->n] = column;
	}
	lane->n++;
}

static void close_gap(int32_t *array, lane_range rows, int32_t n) {
	memmove(array + rows.first, array + rows.end, (size_t)(n - rows.end) * sizeof *array);
}

/* The slots of what goes join the free ones: each is swapped behind the rows that stay. */
static void free_slots(ckv_lane *lane, lane_range rows) {
	int32_t to = rows.first;
	for (int32_t from = rows.end; from < lane->n; from++, to++) {
		int32_t stays = lane->slots[from];
		lane->slots[from] = lane->slots[to];
		lane->slots[to] = stays;
	}
}

void ckv_lane_remove(ckv_lane *lane, lane_range rows) {
	close_gap(lane->positions, rows, lane->n);
	memmove(lane->scores + rows.first, lane->scores + rows.end, (size_t)(lane->n - rows.end) * sizeof *lane->scores);
	if (lane->slots) {
		close_gap(lane->columns, rows, lane->n);
		free_slots(lane, rows);
	}
	lane->n -= rows.end - rows.first;
}

int32_t ckv_lane_before(const ckv_lane *lane, int32_t position) {
	int32_t low = 0, high = lane->n;
	while (low < high) {
		int32_t middle = low + (high - low) / 2;
		if (lane->positions[middle] < position) {
			low = middle + 1;
		} else {
			high = middle;
		}
	}
	return low;
}

/* By rows: the newest chunk may be short. */
static bool next_by_index(const ckv_lane *lane, const lane_rule *rule, int32_t from, lane_range *chunk) {
	int32_t sinks = rule->sinks < lane->n ? rule->sinks : lane->n;
	chunk->first = from > sinks ? from : sinks;
	chunk->end = lane->n - chunk->first < rule->chunk ? lane->n : chunk->first + rule->chunk;
	return chunk->first < lane->n && chunk->end <= lane->n - rule->grace;
}

static bool pinned(const lane_rule *rule, int32_t first, int32_t end) {
	for (int32_t i = 0; i < rule->n_pins; i++) {
		if (first < rule->pins[i].end && rule->pins[i].first < end) {
			return true;
		}
	}
	return false;
}

/* By positions: chunk number i of positions sinks + i * chunk on, once it has been seen to its end and is out of grace. */
static bool next_by_position(const ckv_lane *lane, const lane_rule *rule, int32_t seen, int32_t from, lane_range *chunk) {
	int32_t first = from;
	while (first < lane->n && lane->positions[first] < rule->sinks) {
		first++;
	}
	while (first < lane->n) {
		int32_t number = (lane->positions[first] - rule->sinks) / rule->chunk;
		int32_t start = rule->sinks + number * rule->chunk, end = first;
		if (rule->chunk > seen - rule->grace - start) {
			return false;
		}
		while (end < lane->n && lane->positions[end] - start < rule->chunk) {
			end++;
		}
		if (!pinned(rule, start, start + rule->chunk)) {
			*chunk = (lane_range){first, end};
			return true;
		}
		first = end;
	}
	return false;
}

bool ckv_lane_next(const ckv_lane *lane, const lane_rule *rule, int32_t seen, int32_t from, lane_range *chunk) {
	return rule->stored_index ? next_by_index(lane, rule, from, chunk) : next_by_position(lane, rule, seen, from, chunk);
}

bool ckv_lane_lowest(const ckv_lane *lane, const lane_rule *rule, int32_t seen, lane_range *chunk) {
	lane_range next = {0, 0};
	float lowest = 0.0f;
	bool found = false;
	while (ckv_lane_next(lane, rule, seen, next.end, &next)) {
		float mean = ckv_chunk_mean(lane->scores, next.first, next.end);
		if (!found || mean < lowest || (rule->newer_loses && mean <= lowest)) {
			*chunk = next;
			lowest = mean;
			found = true;
		}
	}
	return found;
}
