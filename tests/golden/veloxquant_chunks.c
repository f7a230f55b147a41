/* Entries of chunk_partition, chunk_scores, keep_mask. */
#include "stream/internal.h"
#include "veloxquant_tables.h"

#include <math.h>
#include <stdlib.h>

/* What the tables of chunks have in common. */
typedef struct chunking {
	int32_t n, chunk, sinks;
	const float *scores; /* [n] */
} chunking;

static bool read_chunking(const vq_tables *in, const json_t *entry, bool scored, chunking *c, note *why) {
	int32_t row = 0;
	*c = (chunking){0, 0, 0, NULL};
	if (!field_int(entry, "seq_len", 0, &c->n, why) || !field_int(entry, "chunk_size", 1, &c->chunk, why) ||
	    !field_int(entry, "n_sink", 0, &c->sinks, why) || (scored && !field_int(entry, "row", 0, &row, why))) {
		return false;
	}
	if (c->n > VQ_MAX_LIST || (scored && ((size_t)row >= in->scores.shape[0] || (size_t)c->n > in->scores.shape[1]))) {
		return note_set(why, "row %d of mask_scores does not have %d scores", row, c->n);
	}
	c->scores = scored ? (const float *)in->scores.data + (size_t)row * in->scores.shape[1] : NULL;
	return true;
}

static bool next_chunk(const chunking *c, lane_range *chunk) {
	ckv_lane lane = {.n = c->n};
	lane_rule rule = {.chunk = c->chunk, .sinks = c->sinks, .stored_index = true};
	return ckv_lane_next(&lane, &rule, c->n, chunk->end, chunk);
}

bool vq_check_partition(const vq_tables *in, const json_t *entry, note *why) {
	chunking c;
	json_t *chunks;
	lane_range chunk = {0, 0};
	size_t n = 0;
	if (!read_chunking(in, entry, false, &c, why) || !field_array(entry, "chunks", &chunks, why)) {
		return false;
	}
	int32_t sinks = (int32_t)json_array_size(json_object_get(entry, "sinks")), sure = c.sinks < c.n ? c.sinks : c.n;
	bool ok = sinks == sure || note_set(why, "%d sinks expected, %d found", sinks, sure);
	for (; ok && next_chunk(&c, &chunk); n++) {
		const json_t *expected = json_array_get(chunks, n);
		json_int_t first = json_integer_value(json_array_get(expected, 0)),
		           end = json_integer_value(json_array_get(expected, 1));
		ok = (first == chunk.first && end == chunk.end) ||
		     note_set(why, "chunk %zu: %d to %d expected, %d to %d found", n, (int)first, (int)end, chunk.first, chunk.end);
	}
	return ok &&
	       (n == json_array_size(chunks) || note_set(why, "%zu chunks expected, %zu found", json_array_size(chunks), n));
}

bool vq_check_scores(const vq_tables *in, const json_t *entry, note *why) {
	chunking c;
	json_t *out;
	lane_range chunk = {0, 0};
	size_t n = 0;
	if (!read_chunking(in, entry, true, &c, why) || !field_array(entry, "out", &out, why)) {
		return false;
	}
	bool ok = true;
	for (; ok && next_chunk(&c, &chunk); n++) {
		double expected = json_number_value(json_array_get(out, n));
		double found = (double)ckv_chunk_mean(c.scores, chunk.first, chunk.end);
		ok = fabs(expected - found) <= 1e-6 * fabs(expected) ||
		     note_set(why, "chunk %zu: mean %.9g expected, %.9g found", n, expected, found);
	}
	return ok && (n == json_array_size(out) || note_set(why, "%zu chunks expected, %zu found", json_array_size(out), n));
}

bool vq_check_mask(const vq_tables *in, const json_t *entry, note *why) {
	chunking c;
	int32_t budget;
	if (!read_chunking(in, entry, true, &c, why) || !field_int(entry, "budget", 0, &budget, why)) {
		return false;
	}
	uint8_t *keep = malloc((size_t)c.n + 1);
	int32_t *found = malloc(((size_t)c.n + 1) * sizeof *found);
	size_t n = 0;
	bool ok = (keep && found) || note_set(why, "no memory for a mask");
	ckv_status status = ok ? ckv_keep_mask(c.scores, c.n, c.chunk, c.sinks, budget, keep) : CKV_OK;
	ok = ok && (status == CKV_OK || note_set(why, "ckv_keep_mask: %s", ckv_strerror(status)));
	for (int32_t i = 0; i < c.n && ok; i++) {
		if (keep[i]) {
			found[n++] = i;
		}
	}
	ok = ok && vq_list_agrees(entry, "kept", found, n, why);
	free(keep);
	free(found);
	return ok;
}
