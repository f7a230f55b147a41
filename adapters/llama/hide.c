/* Layers and heads of unequal length in a cache that has one length for all.
 *
 * Where a layer, or a head, keeps fewer tokens than the longest, its remaining rows are zeros, and attention must not see
 * them: a zero key has the logit 0, not no weight. Keys that a model computes are never all zero, so such rows tell
 * themselves apart, wherever llama.cpp puts them, whichever sequence they are copied to, and whoever wrote them.
 *
 * Where whole rows are zero the mask hides them: changed before the layer's attention, put back after it, as all layers
 * share it. Where some heads have a row and others have not, the layer's attention is computed here instead, and written
 * over llama.cpp's. */
#include "adapters/llama/internal.h"

#include <string.h>

static const uint16_t minus_infinity = 0xfc00; /* f16 */

static bool is_visible(uint16_t mask) { return (mask & 0x7fff) == 0; }

void ckv_llama_hide_arm(ckv_llama *ckv, bool by_head) {
	ckv->hide.armed = true;
	ckv->hide.failed = false;
	ckv->hide.by_head = ckv->hide.by_head || by_head;
}

void ckv_llama_hide_free(ckv_llama *ckv) {
	hiding *h = &ckv->hide;
	void *owned[] = {h->saved, h->holes, h->bytes, h->result};
	for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) {
		ckv_llama_release(ckv, owned[i]);
	}
	memset(h, 0, sizeof *h);
}

/* The graph stops behind the write of a layer's rows, so that those of new tokens are there when zeros are looked for, and,
 * where memory is not the host's, the mask is. */
bool ckv_llama_hide_wants(const ckv_llama *ckv, const struct ggml_tensor *node) {
	if (!ckv->hide.armed) {
		return false;
	}
	if (node->op == GGML_OP_FLASH_ATTN_EXT) {
		return ckv_llama_cache_layer(ckv_llama_root(node->src[1]), "cache_k_l") >= 0;
	}
	const struct ggml_tensor *root = node->op == GGML_OP_SET_ROWS ? ckv_llama_root(node) : NULL;
	return root && (ckv_llama_cache_layer(root, "cache_k_l") >= 0 ||
	                (ckv_llama_cache_layer(root, "cache_v_l") >= 0 && !ggml_backend_buffer_is_host(root->buffer)));
}

static ckv_status no_memory(ckv_llama *ckv) {
	return ckv_llama_fail(ckv, CKV_ERR_NOMEM, "no memory to hide rows that a layer does not have: its answers are void");
}

/* ------------------------------------------------------------------------------------------------------------- holes */

static bool all_zero(const uint8_t *bytes, size_t n) {
	size_t i = 0;
	for (uint64_t word; i + sizeof word <= n; i += sizeof word) {
		memcpy(&word, bytes + i, sizeof word);
		if (word) {
			return false;
		}
	}
	while (i < n && bytes[i] == 0) {
		i++;
	}
	return i == n;
}

/* First cell of the stream that index `s` of the node's streams is. */
static int64_t first_cell(const struct ggml_tensor *node, int64_t s) {
	const struct ggml_tensor *k = node->src[1], *root = ckv_llama_root(k);
	int64_t offset = ((const char *)k->data - (const char *)root->data) / (ptrdiff_t)root->nb[2];
	return root->ne[2] > 1 ? (offset + s) * root->ne[1] : 0;
}

/* Cells first .. first + n - 1 of a cache tensor on the host. */
static ckv_status get_cells(ckv_llama *ckv, const struct ggml_tensor *root, int64_t first, int64_t n, host_rows *rows) {
	size_t from = (size_t)first * root->nb[1], bytes = (size_t)n * root->nb[1];
	rows->copy = NULL;
	rows->stride = root->nb[1];
	rows->data = (const uint8_t *)root->data + from;
	if (ggml_backend_buffer_is_host(root->buffer)) {
		return CKV_OK;
	}
	rows->copy = ckv_llama_alloc(ckv, bytes, 1);
	rows->data = rows->copy;
	if (!rows->copy) {
		return no_memory(ckv);
	}
	ggml_backend_tensor_get(root, rows->copy, from, bytes);
	return CKV_OK;
}

/* holes[stream][n_kv][heads]: 1 where the key is zero. */
static ckv_status find_holes(ckv_llama *ckv, const struct ggml_tensor *node) {
	hiding *h = &ckv->hide;
	const struct ggml_tensor *root = ckv_llama_root(node->src[1]), *mask = node->src[3];
	size_t n_kv = (size_t)mask->ne[0], streams = (size_t)mask->ne[3];
	h->n_heads = h->by_head ? (int32_t)node->src[1]->ne[2] : 1;
	size_t heads = (size_t)h->n_heads, slice = ggml_row_size(root->type, root->ne[0]) / heads;
	void *holes = h->holes;
	bool room = ckv_llama_reserve(ckv, &holes, &h->holes_capacity, streams * n_kv, heads);
	h->holes = holes;
	for (size_t s = 0; s < streams; s++) {
		host_rows rows;
		if (!room || get_cells(ckv, root, first_cell(node, (int64_t)s), (int64_t)n_kv, &rows)) {
			return no_memory(ckv);
		}
		for (size_t j = 0; j < n_kv; j++) {
			for (size_t head = 0; head < heads; head++) {
				h->holes[(s * n_kv + j) * heads + head] = all_zero(rows.data + j * rows.stride + head * slice, slice);
			}
		}
		ckv_llama_rows_free(ckv, &rows);
	}
	return CKV_OK;
}

/* ---------------------------------------------------------------------------------------------------------- the mask */

/* Two copies of the node's mask: as it is, and to be changed (returned). */
static uint16_t *copy_mask(ckv_llama *ckv, const struct ggml_tensor *mask) {
	void *saved = ckv->hide.saved;
	size_t n = ggml_nbytes(mask) / sizeof(uint16_t);
	bool room = ckv_llama_reserve(ckv, &saved, &ckv->hide.saved_capacity, n, 2 * sizeof(uint16_t));
	ckv->hide.saved = saved;
	if (!room) {
		return NULL;
	}
	ggml_backend_tensor_get(mask, ckv->hide.saved, 0, n * sizeof(uint16_t));
	memcpy(ckv->hide.saved + n, ckv->hide.saved, n * sizeof(uint16_t));
	return ckv->hide.saved + n;
}

/* Closes the mask where a query would see a cell that holds nothing for any head; by_head: it sees one that some heads have.
 */
static bool close_row(const hiding *h, const uint8_t *holes, size_t n_kv, uint16_t *of_query, bool *by_head) {
	size_t heads = (size_t)h->n_heads;
	bool closed = false;
	for (size_t j = 0; j < n_kv; j++) {
		const uint8_t *of_cell = holes + j * heads;
		if (!is_visible(of_query[j]) || !memchr(of_cell, 1, heads)) {
			continue;
		}
		if (memchr(of_cell, 0, heads)) {
			*by_head = true;
		} else {
			of_query[j] = minus_infinity;
			closed = true;
		}
	}
	return closed;
}

static bool close_mask(hiding *h, const struct ggml_tensor *node, uint16_t *mask) {
	const struct ggml_tensor *m = node->src[3];
	size_t row = m->nb[1] / sizeof *mask, stream = m->nb[3] / sizeof *mask, n_kv = (size_t)m->ne[0];
	bool closed = false;
	for (size_t s = 0; s < (size_t)m->ne[3]; s++) {
		const uint8_t *holes = h->holes + s * n_kv * (size_t)h->n_heads;
		for (size_t i = 0; i < (size_t)node->src[0]->ne[1]; i++) {
			bool changed = close_row(h, holes, n_kv, mask + s * stream + i * row, &h->replace);
			closed = closed || changed;
		}
	}
	return closed;
}

void ckv_llama_hide_before(ckv_llama *ckv, const struct ggml_tensor *node) {
	hiding *h = &ckv->hide;
	struct ggml_tensor *mask = node->src[3];
	if (node->op != GGML_OP_FLASH_ATTN_EXT) {
		return;
	}
	h->replace = h->changed = false;
	uint16_t *copy = mask && mask->type == GGML_TYPE_F16 ? copy_mask(ckv, mask) : NULL;
	if (!copy || find_holes(ckv, node)) {
		no_memory(ckv);
		h->failed = true;
		return;
	}
	h->changed = close_mask(h, node, copy);
	if (h->changed) {
		ggml_backend_tensor_set(mask, copy, 0, ggml_nbytes(mask));
	}
}

/* ------------------------------------------------------------------------------------------------- our own attention */

/* visible[n][n_kv] and absent[n_kv_heads][n_kv] of one stream, in the scratch bytes. */
static bool fill_bytes(ckv_llama *ckv, const struct ggml_tensor *node, size_t s) {
	hiding *h = &ckv->hide;
	const struct ggml_tensor *m = node->src[3];
	size_t n = (size_t)node->src[0]->ne[1], n_kv = (size_t)m->ne[0], heads = (size_t)h->n_heads;
	void *bytes = h->bytes;
	bool room = ckv_llama_reserve(ckv, &bytes, &h->bytes_capacity, n + heads, n_kv);
	h->bytes = bytes;
	if (!room) {
		return false;
	}
	const uint16_t *mask = h->saved + s * m->nb[3] / sizeof *mask;
	for (size_t i = 0; i < n; i++) {
		for (size_t j = 0; j < n_kv; j++) {
			h->bytes[i * n_kv + j] = is_visible(mask[i * m->nb[1] / sizeof *mask + j]);
		}
	}
	for (size_t head = 0; head < heads; head++) {
		for (size_t j = 0; j < n_kv; j++) {
			h->bytes[(n + head) * n_kv + j] = h->holes[(s * n_kv + j) * heads + head];
		}
	}
	return true;
}

/* One stream's queries, [n][heads][dim]. */
static void get_queries(const struct ggml_tensor *q, size_t s, float *out) {
	size_t n = (size_t)q->ne[1], heads = (size_t)q->ne[2], dim = (size_t)q->ne[0];
	for (size_t i = 0; i < n; i++) {
		for (size_t head = 0; head < heads; head++) {
			ggml_backend_tensor_get(q, out + (i * heads + head) * dim, s * q->nb[3] + i * q->nb[1] + head * q->nb[2],
			                        dim * sizeof *out);
		}
	}
}

static void fill_layer(const struct ggml_tensor *node, const float *queries, ckv_layer *layer) {
	const struct ggml_tensor *q = node->src[0];
	size_t dim = (size_t)q->ne[0], heads = (size_t)q->ne[2];
	float params[3];
	memcpy(params, node->op_params, sizeof params);
	ckv_layer_init(layer);
	layer->scale = params[0];
	layer->logit_cap = params[2];
	layer->q = (ckv_view){.data = queries,
	                      .dtype = CKV_F32,
	                      .n_heads = (int32_t)heads,
	                      .n_tokens = (int32_t)q->ne[1],
	                      .head_dim = (int32_t)dim,
	                      .stride_head = dim * sizeof(float),
	                      .stride_token = heads * dim * sizeof(float)};
}

/* One stream's attention into h->result. */
static ckv_status attend(ckv_llama *ckv, const struct ggml_tensor *node, size_t s, const float *queries) {
	hiding *h = &ckv->hide;
	const struct ggml_tensor *k = node->src[1], *v = node->src[2];
	const struct ggml_tensor *k_root = ckv_llama_root(k), *v_root = ckv_llama_root(v);
	host_rows keys = {NULL, 0, NULL}, values = {NULL, 0, NULL};
	row_reader key_reader = {.turned = NULL}, value_reader = {.turned = NULL};
	ckv_layer layer;
	int64_t first = first_cell(node, (int64_t)s), n_kv = node->src[3]->ne[0];
	fill_layer(node, queries, &layer);
	ckv_status status = get_cells(ckv, k_root, first, n_kv, &keys);
	status = status ? status : get_cells(ckv, v_root, first, n_kv, &values);
	status = status ? status
	                : ckv_llama_view(ckv, k_root->type, &keys, (int32_t)k->ne[2], (int32_t)n_kv, (int32_t)k->ne[0],
	                                 &key_reader, &layer.k);
	status = status ? status
	                : ckv_llama_view(ckv, v_root->type, &values, (int32_t)v->ne[2], (int32_t)n_kv, (int32_t)v->ne[0],
	                                 &value_reader, &layer.v);
	if (status == CKV_OK) {
		size_t n_visible = (size_t)node->src[0]->ne[1] * (size_t)n_kv;
		status = ckv_attend(ckv->core, &layer, h->bytes, h->bytes + n_visible, h->result);
		if (status) {
			ckv_llama_fail(ckv, status, "%s", ckv_ctx_message(ckv->core));
		}
	}
	ckv_llama_rows_free(ckv, &keys);
	ckv_llama_rows_free(ckv, &values);
	return status;
}

/* Computes the layer's attention and puts it where llama.cpp's own was. */
static ckv_status replace(ckv_llama *ckv, struct ggml_tensor *node) {
	hiding *h = &ckv->hide;
	const struct ggml_tensor *q = node->src[0];
	size_t rows = (size_t)(q->ne[1] * q->ne[2]), n_result = rows * (size_t)node->ne[0], n_queries = rows * (size_t)q->ne[0];
	void *result = h->result;
	bool room = ckv_llama_reserve(ckv, &result, &h->result_capacity, n_result + n_queries, sizeof *h->result);
	h->result = result;
	for (size_t s = 0; s < (size_t)q->ne[3]; s++) {
		if (!room || !fill_bytes(ckv, node, s)) {
			return no_memory(ckv);
		}
		get_queries(q, s, h->result + n_result);
		ckv_status status = attend(ckv, node, s, h->result + n_result);
		if (status) {
			return status;
		}
		ggml_backend_tensor_set(node, h->result, s * node->nb[3], n_result * sizeof *h->result);
	}
	return CKV_OK;
}

void ckv_llama_hide_after(ckv_llama *ckv, struct ggml_tensor *node) {
	hiding *h = &ckv->hide;
	if (node->op != GGML_OP_FLASH_ATTN_EXT) {
		return;
	}
	if (h->replace && replace(ckv, node)) {
		h->failed = true;
	}
	if (h->changed) {
		ggml_backend_tensor_set(node->src[3], h->saved, 0, ggml_nbytes(node->src[3]));
	}
	h->replace = h->changed = false;
}

ckv_status ckv_llama_check(const ckv_llama *ckv) { return !ckv ? CKV_ERR_ARG : ckv->hide.failed ? CKV_ERR_NOMEM : CKV_OK; }
