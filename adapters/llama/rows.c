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

/* Memory for a copy of n rows, which `rows` then owns. */
static ckv_status make_copy(ckv_llama *ckv, const struct ggml_tensor *root, size_t n, host_rows *rows) {
	rows->data = rows->copy = ckv_llama_alloc(ckv, n, root->nb[1]);
	return rows->copy
	           ? CKV_OK
	           : ckv_llama_fail(ckv, CKV_ERR_NOMEM, "no memory for a copy of one layer's rows (%zu bytes)", n * root->nb[1]);
}

ckv_status ckv_llama_cells(ckv_llama *ckv, const struct ggml_tensor *root, int64_t first, int64_t n, host_rows *rows) {
	size_t row = root->nb[1], from = (size_t)first * row;
	*rows = (host_rows){(const uint8_t *)root->data + from, row, NULL};
	if (ggml_backend_buffer_is_host(root->buffer)) {
		return CKV_OK;
	}
	ckv_status status = make_copy(ckv, root, (size_t)n, rows);
	if (status == CKV_OK) {
		ggml_backend_tensor_get(root, rows->copy, from, (size_t)n * row);
	}
	return status;
}

ckv_status ckv_llama_rows(ckv_llama *ckv, const layer_view *layer, const struct ggml_tensor *root, host_rows *rows) {
	size_t row = root->nb[1];
	if (run_length(layer, 0) == layer->n_tokens) {
		return ckv_llama_cells(ckv, root, layer->cells[0], layer->n_tokens, rows);
	}
	*rows = (host_rows){NULL, row, NULL};
	ckv_status status = make_copy(ckv, root, (size_t)layer->n_tokens, rows);
	for (int32_t t = 0, run; t < layer->n_tokens && status == CKV_OK; t += run) {
		run = run_length(layer, t);
		ggml_backend_tensor_get(root, (char *)rows->copy + (size_t)t * row, (size_t)layer->cells[t] * row,
		                        (size_t)run * row);
	}
	return status;
}

struct ggml_tensor *ckv_llama_writable(const struct ggml_tensor *root) {
	union {
		const struct ggml_tensor *constant;
		struct ggml_tensor *plain;
	} tensor = {root};
	return tensor.plain;
}

size_t ckv_llama_row_bytes(const struct ggml_tensor *root) { return ggml_row_size(root->type, root->ne[0]); }

void ckv_llama_rows_free(ckv_llama *ckv, host_rows *rows) {
	ckv_llama_release(ckv, rows->copy);
	rows->copy = NULL;
}

void ckv_llama_turn_back(const rotation *turned, float *row, size_t n) {
	enum { MOST = 1024 };
	size_t block = turned ? (size_t)turned->n : 0;
	float out[MOST];
	for (size_t at = 0; block && block <= MOST && at + block <= n; at += block) {
		/* Orthogonal: the transpose undoes it. */
		memset(out, 0, block * sizeof *out);
		for (size_t i = 0; i < block; i++) {
			const float *of_row = turned->data + i * block;
			for (size_t j = 0; j < block; j++) {
				out[j] += of_row[j] * row[at + i];
			}
		}
		memcpy(row + at, out, block * sizeof *out);
	}
}

static void decode(const void *row, float *out, size_t n, void *user) {
	const row_reader *reader = user;
	reader->traits->to_float(row, out, (int64_t)n);
	ckv_llama_turn_back(reader->turned, out, n);
}

ckv_status ckv_llama_view(ckv_llama *ckv, enum ggml_type type, const host_rows *rows, int32_t heads, int32_t n_tokens,
                          int32_t dim, row_reader *reader, ckv_view *view) {
	reader->traits = ggml_get_type_traits(type);
	if (dim % ggml_blck_size(type) != 0 || !reader->traits) {
		return ckv_llama_fail(ckv, CKV_ERR_UNSUPPORTED, "cache type %s cuts heads of %d in the middle of a block",
		                      ggml_type_name(type), dim);
	}
	*view = (ckv_view){.data = rows->data,
	                   .n_heads = heads,
	                   .n_tokens = n_tokens,
	                   .head_dim = dim,
	                   .stride_head = ggml_row_size(type, dim),
	                   .stride_token = rows->stride};
	view->dtype = type == GGML_TYPE_F32    ? CKV_F32
	              : type == GGML_TYPE_F16  ? CKV_F16
	              : type == GGML_TYPE_BF16 ? CKV_BF16
	                                       : CKV_DECODED;
	if (view->dtype == CKV_DECODED) {
		if (!reader->traits->to_float) {
			return ckv_llama_fail(ckv, CKV_ERR_UNSUPPORTED, "cache type %s can't be decoded", ggml_type_name(type));
		}
		view->row_bytes = view->stride_head;
		view->decode = decode;
		view->decode_user = reader;
	}
	return CKV_OK;
}

/* The window's queries in order, from the ring. */
static void fill_queries(const ckv_llama *ckv, const layer_view *layer, float *queries, ckv_view *view) {
	int32_t window = ckv->seen.window, n = layer->n_tokens < window ? layer->n_tokens : window;
	size_t heads = (size_t)layer->n_heads, dim = (size_t)layer->dim_k, row = heads * dim;
	for (int32_t i = 0; i < n; i++) {
		size_t from = (size_t)((layer->n_tokens + layer->evicted - n + i) % window);
		float *to = queries + (size_t)i * row;
		memcpy(to, layer->queries + from * row, row * sizeof *queries);
		ckv_llama_turn_back(layer->k_turned, to, row); /* known only where keys are turned back too */
	}
	if (n > 0) {
		*view = (ckv_view){.data = queries,
		                   .dtype = CKV_F32,
		                   .n_heads = layer->n_heads,
		                   .n_tokens = n,
		                   .head_dim = layer->dim_k,
		                   .stride_head = dim * sizeof *queries,
		                   .stride_token = row * sizeof *queries};
	}
}

ckv_status ckv_llama_layer(ckv_llama *ckv, const layer_view *layer, uint32_t needs, float *queries, layer_input *in) {
	memset(in, 0, sizeof *in);
	ckv_layer_init(&in->layer);
	in->layer.index = layer->index;
	in->layer.scale = layer->scale;
	in->layer.logit_cap = layer->logit_cap;
	in->layer.moments = layer->moments;
	in->layer.rope = layer->rope;
	in->layer.mass = layer->mass;
	in->layer.mass_stride = layer->mass_stride;
	in->layer.next_position = layer->n_tokens + layer->evicted;
	in->key_reader.turned = layer->k_turned;
	in->value_reader.turned = layer->v_turned;
	fill_queries(ckv, layer, queries, &in->layer.q);
	ckv_status status = ckv_llama_rows(ckv, layer, layer->k_root, &in->keys);
	status = status ? status
	                : ckv_llama_view(ckv, layer->k_root->type, &in->keys, layer->n_kv_heads, layer->n_tokens, layer->dim_k,
	                                 &in->key_reader, &in->layer.k);
	if (status == CKV_OK && (needs & CKV_NEED_VALUES)) {
		status = ckv_llama_rows(ckv, layer, layer->v_root, &in->values);
		status = status ? status
		                : ckv_llama_view(ckv, layer->v_root->type, &in->values, layer->n_kv_heads, layer->n_tokens,
		                                 layer->dim_v, &in->value_reader, &in->layer.v);
	}
	if (status) {
		ckv_llama_layer_free(ckv, in);
	}
	return status;
}

void ckv_llama_layer_free(ckv_llama *ckv, layer_input *in) {
	ckv_llama_rows_free(ckv, &in->keys);
	ckv_llama_rows_free(ckv, &in->values);
}
