/* Room for what a stream said, and what it means that two said the same. */
#include "veloxquant_feed.h"

#include <stdlib.h>
#include <string.h>

size_t vq_at_step(const vq_record *record, int32_t layer, int32_t step) {
	return (size_t)layer * (size_t)record->n_steps + (size_t)step;
}

size_t vq_at_head(const vq_record *record, int32_t layer, int32_t step, int32_t head) {
	return vq_at_step(record, layer, step) * (size_t)record->heads + (size_t)head;
}

size_t vq_at_end(const vq_record *record, int32_t layer, int32_t head) {
	return (size_t)layer * (size_t)record->heads + (size_t)head;
}

/* n elements, every byte of them `byte`. */
static void *filled(size_t n, size_t size, int byte) {
	void *memory = malloc(n * size + 1);
	if (memory) {
		memset(memory, byte, n * size);
	}
	return memory;
}

bool vq_record_open(vq_record *record, const vq_feed *feed, note *why) {
	*record = (vq_record){.layers = feed->layers,
	                      .heads = feed->heads,
	                      .tokens = feed->tokens,
	                      .n_steps = feed->n_steps,
	                      .dim_k = feed->keys.head_dim,
	                      .dim_v = feed->values.head_dim};
	size_t layers = (size_t)feed->layers, steps = layers * (size_t)feed->n_steps, tokens = (size_t)feed->tokens;
	size_t rows = layers * (size_t)feed->heads * tokens;
	record->positions = filled(steps * (size_t)feed->heads * tokens, sizeof *record->positions, 0xff);
	record->lengths = filled(steps * (size_t)feed->heads, sizeof *record->lengths, 0xff);
	record->returned = filled(steps, sizeof *record->returned, 0xff);
	record->keys = filled(rows * (size_t)record->dim_k, sizeof *record->keys, 0);
	record->values = filled(rows * (size_t)record->dim_v, sizeof *record->values, 0);
	record->scores = filled(rows, sizeof *record->scores, 0);
	record->scored = filled(layers, sizeof *record->scored, 0);
	record->first = filled(layers, sizeof *record->first, 0);
	record->last = filled(layers, sizeof *record->last, 0);
	if (!record->positions || !record->lengths || !record->returned || !record->keys || !record->values || !record->scores ||
	    !record->scored || !record->first || !record->last) {
		vq_record_close(record);
		return note_set(why, "no memory for the record of a stream");
	}
	return true;
}

void vq_record_close(vq_record *record) {
	free(record->positions);
	free(record->lengths);
	free(record->returned);
	free(record->keys);
	free(record->values);
	free(record->scores);
	free(record->scored);
	free(record->first);
	free(record->last);
	*record = (vq_record){.layers = 0};
}

static bool same_info(const ckv_stream_info *a, const ckv_stream_info *b) {
	return a->layer_budget == b->layer_budget && a->chunk_size == b->chunk_size && a->tokens_seen == b->tokens_seen &&
	       a->tokens_kept == b->tokens_kept && a->tokens_most == b->tokens_most && a->bytes == b->bytes &&
	       a->bytes_full == b->bytes_full && memcmp(&a->compression_ratio, &b->compression_ratio, sizeof(double)) == 0;
}

bool vq_same(const vq_record *a, const vq_record *b, note *why) {
	size_t layers = (size_t)a->layers, steps = layers * (size_t)a->n_steps, tokens = (size_t)a->tokens;
	size_t rows = layers * (size_t)a->heads * tokens, lists = steps * (size_t)a->heads;
	if (memcmp(a->lengths, b->lengths, lists * sizeof *a->lengths) != 0 ||
	    memcmp(a->positions, b->positions, lists * tokens * sizeof *a->positions) != 0) {
		return note_set(why, "they kept other positions");
	}
	if (memcmp(a->returned, b->returned, steps * sizeof *a->returned) != 0) {
		return note_set(why, "they returned other numbers of rows");
	}
	if (memcmp(a->keys, b->keys, rows * (size_t)a->dim_k * sizeof *a->keys) != 0 ||
	    memcmp(a->values, b->values, rows * (size_t)a->dim_v * sizeof *a->values) != 0) {
		return note_set(why, "their rows differ");
	}
	if (memcmp(a->scores, b->scores, rows * sizeof *a->scores) != 0 ||
	    memcmp(a->scored, b->scored, layers * sizeof *a->scored) != 0) {
		return note_set(why, "their scores differ");
	}
	for (size_t i = 0; i < layers; i++) {
		if (!same_info(&a->first[i], &b->first[i]) || !same_info(&a->last[i], &b->last[i])) {
			return note_set(why, "their counters differ");
		}
	}
	return true;
}
