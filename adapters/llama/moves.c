/* Rows of one layer from cells that are to be freed into those of the rows that go. */
#include "adapters/llama/internal.h"

#include <string.h>

/* n cells from `from` on to `to` on, in one cache tensor. */
static ckv_status copy_cells(ckv_llama *ckv, const struct ggml_tensor *root, int32_t from, int32_t to, int32_t n) {
	size_t row = root->nb[1], size = (size_t)n * row;
	if (ggml_backend_buffer_is_host(root->buffer)) {
		memmove((char *)root->data + (size_t)to * row, (const char *)root->data + (size_t)from * row, size);
		return CKV_OK;
	}
	void *memory = ckv->bound.bytes;
	bool room = ckv_llama_reserve(ckv, &memory, &ckv->bound.bytes_size, size, 1);
	ckv->bound.bytes = memory;
	if (!room) {
		return ckv_llama_fail(ckv, CKV_ERR_NOMEM, "no memory to move %d rows", n);
	}
	ggml_backend_tensor_get(root, memory, (size_t)from * row, size);
	ggml_backend_tensor_set(ckv_llama_writable(root), memory, (size_t)to * row, size);
	return CKV_OK;
}

static ckv_status move_run(ckv_llama *ckv, const layer_view *layer, int32_t from, int32_t to, int32_t n) {
	ckv_status status = copy_cells(ckv, layer->k_root, from, to, n);
	return status ? status : copy_cells(ckv, layer->v_root, from, to, n);
}

/* The next victim whose cell stays, from number `i` on; n when there is none. */
static int32_t next_target(const ckv_llama *ckv, const layer_view *layer, const int32_t *victims, int32_t n, int32_t i) {
	while (i < n && ckv->bound.marks[layer->cells[victims[i]]]) {
		i++;
	}
	return i;
}

/* Rows and victims are both walked from the oldest, whose cells tend to lie side by side: runs are moved together. */
ckv_status ckv_llama_move_rows(ckv_llama *ckv, layer_view *layer, const int32_t *victims, int32_t n) {
	int32_t target = next_target(ckv, layer, victims, n, 0), from = 0, to = 0, run = 0;
	ckv_status status = CKV_OK;
	for (int32_t row = 0, victim = 0; row < layer->n_tokens && status == CKV_OK; row++) {
		bool goes = victim < n && victims[victim] == row;
		victim += goes;
		if (goes || !ckv->bound.marks[layer->cells[row]]) {
			continue;
		}
		int32_t cell = layer->cells[victims[target]];
		if (run > 0 && layer->cells[row] == from + run && cell == to + run) {
			run++;
		} else {
			status = run > 0 ? move_run(ckv, layer, from, to, run) : CKV_OK;
			from = layer->cells[row];
			to = cell;
			run = 1;
		}
		layer->cells[row] = cell;
		target = next_target(ckv, layer, victims, n, target + 1);
	}
	return status == CKV_OK && run > 0 ? move_run(ckv, layer, from, to, run) : status;
}
