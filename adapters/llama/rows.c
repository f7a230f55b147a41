/* The rows of a cache tensor as the core sees them: in place when the memory is the host's and the cells are in order, else
 * a copy of one layer. */
#include "adapters/llama/internal.h"

#include <string.h>

/* Length of the run of consecutive cells that starts at token t. */
static int32_t run_length(const layer_view *layer, int32_t t) {
	int32_t n = 1;
	while (t + n < layer->n_tokens && layer->cells[t + n] == layer->cells[t] + n) {
		n++;
	}
	return n;
}

ckv_status ckv_llama_rows(ckv_llama *ckv, const layer_view *layer, const struct ggml_tensor *root, host_rows *rows) {
	size_t row = root->nb[1], n = (size_t)layer->n_tokens;
	rows->copy = NULL;
	rows->stride = row;
	if (ggml_backend_buffer_is_host(root->buffer) && run_length(layer, 0) == layer->n_tokens) {
		rows->data = (const uint8_t *)root->data + (size_t)layer->cells[0] * row;
		return CKV_OK;
	}
	uint8_t *copy = ckv_llama_alloc(ckv, n, row);
	if (!copy) {
		return ckv_llama_fail(ckv, CKV_ERR_NOMEM, "no memory for a copy of one layer's rows (%zu bytes)", n * row);
	}
	for (int32_t t = 0, run; t < layer->n_tokens; t += run) {
		run = run_length(layer, t);
		ggml_backend_tensor_get(root, copy + (size_t)t * row, (size_t)layer->cells[t] * row, (size_t)run * row);
	}
	rows->data = rows->copy = copy;
	return CKV_OK;
}

void ckv_llama_rows_free(ckv_llama *ckv, host_rows *rows) {
	ckv_llama_release(ckv, rows->copy);
	rows->copy = NULL;
}

static void decode(const void *row, float *out, size_t n, void *user) {
	const struct ggml_type_traits *traits = user;
	traits->to_float(row, out, (int64_t)n);
}

static ckv_status key_view(ckv_llama *ckv, const layer_view *layer, const host_rows *keys, ckv_view *view) {
	enum ggml_type type = layer->k_root->type;
	const struct ggml_type_traits *traits = ggml_get_type_traits(type);
	if (layer->dim_k % ggml_blck_size(type) != 0 || !traits) {
		return ckv_llama_fail(ckv, CKV_ERR_UNSUPPORTED, "cache type %s cuts heads of %d in the middle of a block",
		                      ggml_type_name(type), layer->dim_k);
	}
	view->data = keys->data;
	view->dtype = type == GGML_TYPE_F32    ? CKV_F32
	              : type == GGML_TYPE_F16  ? CKV_F16
	              : type == GGML_TYPE_BF16 ? CKV_BF16
	                                       : CKV_DECODED;
	view->n_heads = layer->n_kv_heads;
	view->n_tokens = layer->n_tokens;
	view->head_dim = layer->dim_k;
	view->stride_head = ggml_row_size(type, layer->dim_k);
	view->stride_token = keys->stride;
	if (view->dtype == CKV_DECODED) {
		if (!traits->to_float) {
			return ckv_llama_fail(ckv, CKV_ERR_UNSUPPORTED, "cache type %s can't be decoded", ggml_type_name(type));
		}
		view->row_bytes = view->stride_head;
		view->decode = decode;
		union {
			const struct ggml_type_traits *constant;
			void *plain;
		} user = {traits};
		view->decode_user = user.plain; /* only read */
	}
	return CKV_OK;
}

ckv_status ckv_llama_layer(ckv_llama *ckv, const layer_view *layer, const host_rows *keys, float *queries, ckv_layer *out) {
	int32_t window = ckv->seen.window, n = layer->n_tokens < window ? layer->n_tokens : window;
	size_t heads = (size_t)layer->n_heads, row = (size_t)layer->dim_k;
	ckv_layer_init(out);
	out->index = layer->index;
	out->scale = layer->scale;
	out->logit_cap = layer->logit_cap;
	ckv_status status = key_view(ckv, layer, keys, &out->k);
	if (status || n == 0) {
		return status;
	}
	for (int32_t i = 0; i < n; i++) {
		size_t from = (size_t)((layer->n_tokens - n + i) % window);
		memcpy(queries + (size_t)i * heads * row, layer->queries + from * heads * row, heads * row * sizeof *queries);
	}
	out->q = (ckv_view){.data = queries,
	                    .dtype = CKV_F32,
	                    .n_heads = layer->n_heads,
	                    .n_tokens = n,
	                    .head_dim = layer->dim_k,
	                    .stride_head = row * sizeof *queries,
	                    .stride_token = heads * row * sizeof *queries};
	return CKV_OK;
}
