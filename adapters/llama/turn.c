/* Re-rotation: where rows went, the older keys are turned towards the newer ones, so that the distances between what is left
 * are those of neighbours. Nothing else changes: labels and the next position go on. */
#include "adapters/llama/internal.h"

#include <string.h>

/* What cells hold, as floats and back. */
typedef struct cell_codec {
	const struct ggml_tensor *root;
	size_t width; /* elements of a row */
	const struct ggml_type_traits *traits;
	uint8_t *bytes; /* of one row */
} cell_codec;

static void read_cell(const cell_codec *c, int32_t cell, float *out) {
	ggml_backend_tensor_get(c->root, c->bytes, (size_t)cell * c->root->nb[1],
	                        ggml_row_size(c->root->type, (int64_t)c->width));
	c->traits->to_float(c->bytes, out, (int64_t)c->width);
}

static void write_cell(const cell_codec *c, int32_t cell, const float *in) {
	c->traits->from_float_ref(in, c->bytes, (int64_t)c->width);
	ggml_backend_tensor_set(ckv_llama_writable(c->root), c->bytes, (size_t)cell * c->root->nb[1],
	                        ggml_row_size(c->root->type, (int64_t)c->width));
}

static ckv_status codec_open(ckv_llama *ckv, const layer_view *layer, int32_t rows, cell_codec *c) {
	bounded *b = &ckv->bound;
	*c = (cell_codec){.root = layer->k_root, .width = (size_t)layer->n_kv_heads * (size_t)layer->dim_k};
	c->traits = ggml_get_type_traits(layer->k_root->type);
	void *bytes = b->bytes, *floats = b->floats;
	bool room = ckv_llama_reserve(ckv, &bytes, &b->bytes_size, layer->k_root->nb[1], 1);
	b->bytes = bytes;
	room = room && ckv_llama_reserve(ckv, &floats, &b->floats_size, (size_t)rows * c->width, sizeof(float));
	b->floats = floats;
	c->bytes = bytes;
	if (!room) {
		return ckv_llama_fail(ckv, CKV_ERR_NOMEM, "no memory to turn %d keys", rows);
	}
	if (!c->traits || !c->traits->to_float || !c->traits->from_float_ref) {
		return ckv_llama_fail(ckv, CKV_ERR_UNSUPPORTED, "keys of type %s can't be turned",
		                      ggml_type_name(layer->k_root->type));
	}
	return CKV_OK;
}

/* Rows first .. end - 1 by the same number of positions. */
static void turn_run(const ckv_llama *ckv, const layer_view *layer, const cell_codec *c, int32_t first, int32_t end,
                     int32_t positions) {
	float *rows = ckv->bound.floats;
	size_t heads = (size_t)(end - first) * (size_t)layer->n_kv_heads, dim = (size_t)layer->dim_k;
	for (int32_t i = first; i < end; i++) {
		read_cell(c, layer->cells[i], rows + (size_t)(i - first) * c->width);
	}
	ckv_rope_turn_rows(&layer->rope, positions, 1.0f, rows, heads, dim);
	for (int32_t i = first; i < end; i++) {
		write_cell(c, layer->cells[i], rows + (size_t)(i - first) * c->width);
	}
}

ckv_status ckv_llama_close_gaps(ckv_llama *ckv, layer_view *layer, const int32_t *victims, int32_t n) {
	cell_codec c;
	int32_t first = 0;
	if (layer->rope.n_dims == 0) {
		return CKV_OK; /* no rotation in this layer */
	}
	ckv_status status = codec_open(ckv, layer, layer->n_tokens, &c);
	for (int32_t i = 0; i < n && status == CKV_OK; i++) {
		if (victims[i] > first) { /* all older than victims i .. n - 1 */
			turn_run(ckv, layer, &c, first, victims[i], n - i);
		}
		first = victims[i] + 1;
	}
	return status;
}
