/* llama.cpp's sequence state, written by us for the kept rows alone.
 *
 * Reading the whole state, cutting it and writing it back would need a second copy of the full cache just when memory is
 * short. The rows are therefore read from the cache tensors; beside one layer's worth where the memory is not the host's,
 * only what is kept is copied. The layout is internal to llama.cpp; what we rely on (LLAMA_STATE_SEQ_VERSION 3):
 *
 *   u32 magic, i32 seq; u32 n_streams; for each stream: u32 n_cells and, unless that is 0,
 *     n_cells x {i32 position, u32 1, i32 seq}; u32 v_transposed; u32 n_layers;
 *     for each layer {i32 type, u64 row bytes, n_cells rows} of K, then the same of V.
 *   Sliding-window models: the global layers' cache so, then the window layers' cache so.
 *
 * It is checked where it is used: the size that this predicts must be the size that llama.cpp says the sequence has, or
 * nothing is touched. Tests compare a state of all rows with llama.cpp's own, byte for byte. */
#include "adapters/llama/internal.h"

#include <string.h>

enum { HEAD_BYTES = 8, CELL_BYTES = 12, LAYER_BYTES = 12 };

static const uint32_t state_magic = 0xaf143cd8u;

static size_t n_streams(const layer_view *layer) { return (size_t)layer->k_root->ne[2]; }

/* Bytes of one cache's part with n cells in one stream. */
static size_t part_size(const layer_keep *keep, int32_t n_layers, size_t n) {
	size_t size = 4 + 4 * n_streams(keep[0].layer) + n * CELL_BYTES + 8;
	for (int32_t i = 0; i < n_layers; i++) {
		const layer_view *layer = keep[i].layer;
		size += (size_t)2 * LAYER_BYTES + n * (ckv_llama_row_bytes(layer->k_root) + ckv_llama_row_bytes(layer->v_root));
	}
	return size;
}

static size_t window_part_size(struct llama_context *ctx, llama_seq_id seq) {
	size_t size = llama_state_seq_get_size_ext(ctx, seq, LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY);
	return size > HEAD_BYTES ? size - HEAD_BYTES : 0;
}

ckv_status ckv_llama_state_check(ckv_llama *ckv, struct llama_context *ctx, const layer_keep *keep, int32_t n_layers,
                                 bool sliding, int32_t n_tokens) {
	llama_seq_id seq = ckv->seen.seq;
	size_t size = llama_state_seq_get_size(ctx, seq);
	size_t expected = HEAD_BYTES + part_size(keep, n_layers, (size_t)n_tokens);
	expected += sliding ? window_part_size(ctx, seq) : 0;
	if (size != expected) {
		return ckv_llama_fail(
		    ckv, CKV_ERR_UNSUPPORTED,
		    "llama.cpp says the state of sequence %d has %zu bytes where %zu were expected: a state format "
		    "that is not known here",
		    seq, size, expected);
	}
	return CKV_OK;
}

static uint8_t *put(uint8_t *at, const void *data, size_t size) {
	memcpy(at, data, size);
	return at + size;
}

static uint8_t *put_u32(uint8_t *at, uint32_t value) { return put(at, &value, sizeof value); }

static uint8_t *put_layer_head(uint8_t *at, const struct ggml_tensor *root) {
	uint64_t row = ckv_llama_row_bytes(root);
	at = put_u32(at, (uint32_t)root->type);
	return put(at, &row, sizeof row);
}

/* Rows of a list that are written: the last token's own may be left out. */
static int32_t list_length(const state_plan *plan, const layer_keep *keep, int32_t list) {
	int32_t n = keep->offsets[list + 1] - keep->offsets[list];
	bool has_last = n > 0 && keep->positions[keep->offsets[list + 1] - 1] == plan->n_tokens - 1;
	return n - (plan->but_last && has_last);
}

static int32_t longest_list(const state_plan *plan) {
	int32_t longest = 0;
	for (int32_t i = 0; i < plan->n_layers; i++) {
		for (int32_t list = 0; list < plan->keep[i].n_lists; list++) {
			int32_t n = list_length(plan, &plan->keep[i], list);
			longest = n > longest ? n : longest;
		}
	}
	return longest;
}

/* The kept rows of one tensor; each head's slice of a row may come from another token. Zeros where a list is shorter than
 * the longest of all: see hide.c. */
static ckv_status put_rows(ckv_llama *ckv, const state_plan *plan, const layer_keep *keep, const struct ggml_tensor *root,
                           int32_t dim, uint8_t *at) {
	host_rows rows;
	ckv_status status = ckv_llama_rows(ckv, keep->layer, root, &rows);
	if (status) {
		return status;
	}
	size_t row = ckv_llama_row_bytes(root), slice = keep->n_lists == 1 ? row : ggml_row_size(root->type, dim);
	for (int32_t list = 0; list < keep->n_lists; list++) {
		const int32_t *positions = keep->positions + keep->offsets[list];
		int32_t n = list_length(plan, keep, list);
		for (int32_t i = 0; i < plan->n_cells; i++) {
			uint8_t *to = at + (size_t)i * row + (size_t)list * slice;
			if (i < n) {
				memcpy(to, rows.data + (size_t)positions[i] * rows.stride + (size_t)list * slice, slice);
			} else {
				memset(to, 0, slice);
			}
		}
	}
	ckv_llama_rows_free(ckv, &rows);
	return CKV_OK;
}

/* Labels are the last n positions: they only have to increase, end with the last one, and be what llama.cpp expects next. */
static uint8_t *put_cells(uint8_t *at, llama_seq_id seq, int32_t n_seen, int32_t n) {
	at = put_u32(at, (uint32_t)n);
	for (int32_t i = 0; i < n; i++) {
		at = put_u32(at, (uint32_t)(n_seen - n + i));
		at = put_u32(at, 1);
		at = put_u32(at, (uint32_t)seq);
	}
	return at;
}

static ckv_status put_tensors(ckv_llama *ckv, const state_plan *plan, uint8_t **at) {
	for (int values = 0; values < 2; values++) {
		for (int32_t i = 0; i < plan->n_layers; i++) {
			const layer_view *layer = plan->keep[i].layer;
			const struct ggml_tensor *root = values ? layer->v_root : layer->k_root;
			*at = put_layer_head(*at, root);
			ckv_status status = put_rows(ckv, plan, &plan->keep[i], root, values ? layer->dim_v : layer->dim_k, *at);
			if (status) {
				return status;
			}
			*at += (size_t)plan->n_cells * ckv_llama_row_bytes(root);
		}
	}
	return CKV_OK;
}

static ckv_status put_part(ckv_llama *ckv, const state_plan *plan, uint8_t **at) {
	const layer_view *first = plan->keep[0].layer;
	size_t streams = n_streams(first), own = (size_t)first->cells[0] / (size_t)first->k_root->ne[1];
	ckv_status status = CKV_OK;
	*at = put_u32(*at, (uint32_t)streams);
	for (size_t s = 0; s < streams && status == CKV_OK; s++) {
		if (s != own) {
			*at = put_u32(*at, 0);
			continue;
		}
		*at = put_cells(*at, ckv->seen.seq, plan->n_seen - plan->but_last, plan->n_cells);
		*at = put_u32(*at, 0); /* V is not transposed */
		*at = put_u32(*at, (uint32_t)plan->n_layers);
		status = put_tensors(ckv, plan, at);
	}
	return status;
}

/* llama.cpp's own bytes of the sliding-window part. */
static ckv_status put_window_part(ckv_llama *ckv, struct llama_context *ctx, size_t size, uint8_t **at) {
	llama_seq_id seq = ckv->seen.seq;
	size_t whole = size + HEAD_BYTES;
	uint8_t *copy = ckv_llama_alloc(ckv, whole, 1);
	if (!copy) {
		return ckv_llama_fail(ckv, CKV_ERR_NOMEM, "no memory for the sliding-window layers (%zu bytes)", whole);
	}
	size_t got = llama_state_seq_get_data_ext(ctx, copy, whole, seq, LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY);
	if (got == whole) {
		*at = put(*at, copy + HEAD_BYTES, size);
	}
	ckv_llama_release(ckv, copy);
	return got == whole ? CKV_OK
	                    : ckv_llama_fail(ckv, CKV_ERR_HOST, "llama.cpp did not give the sliding-window layers' state");
}

/* Takes the place of what was held before, now that it is complete. */
static void hold(ckv_llama *ckv, const held_state *state) {
	ckv_llama_drop(ckv);
	ckv->held = *state;
}

/* Whether some list is shorter than the cells; and whether heads of one layer differ. */
static void find_shorter(const state_plan *plan, held_state *state) {
	for (int32_t i = 0; i < plan->n_layers; i++) {
		const layer_keep *keep = &plan->keep[i];
		for (int32_t list = 0; list < keep->n_lists; list++) {
			int32_t n = list_length(plan, keep, list);
			state->holes = state->holes || n < plan->n_cells;
			state->by_head = state->by_head || n != list_length(plan, keep, 0);
		}
	}
}

static ckv_status write_parts(ckv_llama *ckv, struct llama_context *ctx, const state_plan *plan, size_t window,
                              uint8_t *at) {
	at = put_u32(at, state_magic);
	at = put_u32(at, (uint32_t)ckv->seen.seq);
	ckv_status status = put_part(ckv, plan, &at);
	return status == CKV_OK && plan->sliding ? put_window_part(ckv, ctx, window, &at) : status;
}

ckv_status ckv_llama_state_write(ckv_llama *ckv, struct llama_context *ctx, const state_plan *whole) {
	state_plan plan = *whole;
	plan.n_cells = plan.but_last ? longest_list(&plan) : plan.n_cells;
	if (plan.n_cells < 1) {
		return ckv_llama_fail(
		    ckv, CKV_ERR_UNSUPPORTED,
		    "the budget holds the last token alone, and nothing is left without it: keep two tokens or more");
	}
	size_t window = plan.sliding ? window_part_size(ctx, ckv->seen.seq) : 0;
	held_state state = {.size = HEAD_BYTES + part_size(plan.keep, plan.n_layers, (size_t)plan.n_cells) + window,
	                    .model = llama_get_model(ctx),
	                    .redo = plan.but_last ? plan.n_seen - 1 : -1};
	state.data = ckv_llama_alloc(ckv, state.size, 1);
	if (!state.data) {
		return ckv_llama_fail(ckv, CKV_ERR_NOMEM, "no memory for the kept rows (%zu bytes)", state.size);
	}
	ckv_status status = write_parts(ckv, ctx, &plan, window, state.data);
	if (status) {
		ckv_llama_release(ckv, state.data);
		return status;
	}
	find_shorter(&plan, &state);
	hold(ckv, &state);
	return CKV_OK;
}

ckv_status ckv_llama_state_copy(ckv_llama *ckv, struct llama_context *ctx, llama_seq_id seq, int32_t redo) {
	held_state state = {.size = llama_state_seq_get_size(ctx, seq),
	                    .model = llama_get_model(ctx),
	                    .holes = ckv->hide.armed,
	                    .by_head = ckv->hide.by_head,
	                    .redo = redo};
	state.data = state.size ? ckv_llama_alloc(ckv, state.size, 1) : NULL;
	if (!state.data) {
		return ckv_llama_fail(ckv, state.size ? CKV_ERR_NOMEM : CKV_ERR_HOST,
		                      "the state of sequence %d (%zu bytes) could not be had", seq, state.size);
	}
	if (llama_state_seq_get_data(ctx, state.data, state.size, seq) != state.size) {
		ckv_llama_release(ckv, state.data);
		return ckv_llama_fail(ckv, CKV_ERR_HOST, "llama.cpp did not give the state of sequence %d", seq);
	}
	hold(ckv, &state);
	return CKV_OK;
}

ckv_status ckv_llama_held_key_sum(ckv_llama *ckv, uint64_t *sum) {
	const uint8_t *at = ckv->held.data + HEAD_BYTES, *end = ckv->held.data + ckv->held.size;
	uint32_t streams, cells = ckv_llama_held_cells(ckv), first = 0;
	uint64_t row;
	memcpy(&streams, at, sizeof streams);
	at += sizeof streams;
	for (uint32_t s = 0; s < streams && first == 0; s++) {
		memcpy(&first, at, sizeof first);
		at += sizeof first;
	}
	at += (size_t)cells * CELL_BYTES + 8 + LAYER_BYTES;
	memcpy(&row, at - sizeof row, sizeof row);
	if (at > end || row > (uint64_t)(end - at) / (cells ? cells : 1)) {
		return ckv_llama_fail(ckv, CKV_ERR_STATE, "what is held is no state of this layout");
	}
	*sum = ckv_llama_sum_bytes(at, (size_t)row * cells);
	return CKV_OK;
}

uint32_t ckv_llama_held_cells(const ckv_llama *ckv) {
	const uint8_t *at = ckv->held.data + HEAD_BYTES;
	uint32_t streams, cells = 0;
	memcpy(&streams, at, sizeof streams);
	/* Empty streams are a bare 0; the first other number is ours. */
	for (uint32_t s = 0; s < streams && cells == 0; s++) {
		at += sizeof cells;
		memcpy(&cells, at, sizeof cells);
	}
	return cells;
}

void ckv_llama_drop(ckv_llama *ckv) {
	if (ckv) {
		ckv_llama_release(ckv, ckv->held.data);
		ckv_llama_held_free(ckv, &ckv->held.cache);
		memset(&ckv->held, 0, sizeof ckv->held);
	}
}
