/* Rows: which are held of a part of the conversation, and how many of a budget are left when pinned ones never go. */
#include "chat.h"

#include <stdlib.h>

/* ------------------------------------------------------------------------------------------------------------- held */

/* Rows before a position. */
static int32_t rows_before(const ckv_stream_rows *rows, int32_t position) {
	int32_t low = 0, high = rows->n;
	while (low < high) {
		int32_t middle = low + (high - low) / 2;
		if (rows->positions[middle] < position) {
			low = middle + 1;
		} else {
			high = middle;
		}
	}
	return low;
}

/* Of a layer; -1: there is no such layer. */
static int32_t held_in(const ckv_llama *ckv, int32_t layer, span s) {
	ckv_stream_rows rows;
	return ckv_llama_stream_rows(ckv, layer, &rows) ? -1 : rows_before(&rows, s.end) - rows_before(&rows, s.first);
}

double chat_rows_held(const ckv_llama *ckv, span s) {
	double sum = 0.0;
	int32_t layer = 0;
	for (int32_t held; (held = held_in(ckv, layer, s)) >= 0; layer++) {
		sum += held;
	}
	return layer ? sum / layer : 0.0;
}

/* In the layer that holds most of it. */
static int32_t most_held(const ckv_llama *ckv, span s) {
	int32_t most = 0;
	for (int32_t layer = 0, held; (held = held_in(ckv, layer, s)) >= 0; layer++) {
		most = held > most ? held : most;
	}
	return most;
}

/* ------------------------------------------------------------------------------------------------------------- room */

static int by_first(const void *a, const void *b) {
	int32_t x = ((const span *)a)->first, y = ((const span *)b)->first;
	return (x > y) - (x < y);
}

/* Whole chunks stay, and are counted from the first tokens on, which stay anyway. */
static span widen(span s, int32_t sinks, int32_t chunk) {
	if (s.end <= sinks) {
		return (span){s.first, s.end};
	}
	int32_t first = s.first < sinks ? s.first : sinks + (s.first - sinks) / chunk * chunk;
	return (span){first, sinks + (s.end - sinks + chunk - 1) / chunk * chunk};
}

/* What was seen counts as far as it is held: the rest has gone. */
static int32_t rows_of(const ckv_llama *ckv, int32_t seen, span s) {
	int32_t middle = s.end < seen ? s.end : s.first > seen ? s.first : seen;
	return most_held(ckv, (span){s.first, middle}) + s.end - middle;
}

static int32_t seen_by(const ckv_llama *ckv) {
	ckv_llama_stream_report report = {.size = sizeof report};
	return ckv_llama_stream_get_report(ckv, &report) ? 0 : report.n_seen;
}

/* The sum over spans that may overlap. list has room for one more than n. */
static int32_t pinned_rows(const ckv_llama *ckv, span *list, int32_t n, int32_t sinks, int32_t chunk) {
	int32_t seen = seen_by(ckv), sum = 0, done = 0;
	for (int32_t i = 0; i < n; i++) {
		list[i] = widen(list[i], sinks, chunk);
	}
	list[n++] = (span){0, sinks};
	qsort(list, (size_t)n, sizeof *list, by_first);
	for (int32_t i = 0; i < n; i++) {
		span rest = {list[i].first > done ? list[i].first : done, list[i].end};
		if (rest.end > rest.first) {
			sum += rows_of(ckv, seen, rest);
			done = rest.end;
		}
	}
	return sum;
}

static int32_t piece_of(int32_t budget, int32_t ubatch) { return budget / 4 < ubatch ? budget / 4 : ubatch; }

chat_room chat_room_for(const ckv_llama *ckv, const ckv_stream_params *policy, int32_t budget, int32_t ubatch,
                        const span *pins, int32_t n_pins) {
	span list[MAX_CHAT_PINS + 1];
	int32_t chunk = ckv_stream_params_use(policy, "chunk") ? policy->chunk : 1;
	int32_t newest = ckv_stream_params_use(policy, "window")  ? policy->window
	                 : ckv_stream_params_use(policy, "grace") ? policy->grace
	                                                          : 0;
	for (int32_t i = 0; i < n_pins; i++) {
		list[i] = pins[i];
	}
	chat_room room = {.budget = budget, .newest = newest + chunk, .piece = piece_of(budget, ubatch), .enough = budget};
	room.pinned = pinned_rows(ckv, list, n_pins, policy->sinks, chunk);
	int32_t stays = room.pinned + room.newest;
	room.lacking = stays + room.piece > budget ? stays + room.piece - budget : 0;
	while (stays + piece_of(room.enough, ubatch) > room.enough) {
		room.enough += 64;
	}
	return room;
}
