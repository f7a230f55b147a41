/* Our own attention, where heads of a layer have rows that others have not: computed over each head's rows, and written over
 * what llama.cpp computed (see hide.c). A few queries at a time, so that its logits stay small. */
#include "adapters/llama/internal.h"

#include <string.h>

enum { MOST_QUERIES = 32 };

/* Part of one stream's queries. */
typedef struct part {
	size_t stream, first, n;
} part;

/* visible[n][n_kv] and absent[n_kv_heads][n_kv] in the scratch bytes. */
static bool fill_bytes(ckv_llama *ckv, const struct ggml_tensor *node, part p) {
	hiding *h = &ckv->hide;
	const struct ggml_tensor *m = node->src[3];
	size_t n_kv = (size_t)m->ne[0], heads = (size_t)h->n_heads;
	void *bytes = h->bytes;
	bool room = ckv_llama_reserve(ckv, &bytes, &h->bytes_capacity, p.n + heads, n_kv);
	h->bytes = bytes;
	for (size_t i = 0; i < p.n && room; i++) {
		const uint16_t *mask = h->saved + (p.stream * m->nb[3] + (p.first + i) * m->nb[1]) / sizeof *mask;
		for (size_t j = 0; j < n_kv; j++) {
			h->bytes[i * n_kv + j] = ckv_llama_visible(mask[j]);
		}
	}
	for (size_t head = 0; head < heads && room; head++) {
		for (size_t j = 0; j < n_kv; j++) {
			h->bytes[(p.n + head) * n_kv + j] = h->holes[(p.stream * n_kv + j) * heads + head];
		}
	}
	return room;
}

/* [n][heads][dim] */
static void get_queries(const struct ggml_tensor *q, part p, float *out) {
	size_t heads = (size_t)q->ne[2], dim = (size_t)q->ne[0];
	for (size_t i = 0; i < p.n; i++) {
		for (size_t head = 0; head < heads; head++) {
			size_t from = p.stream * q->nb[3] + (p.first + i) * q->nb[1] + head * q->nb[2];
			ggml_backend_tensor_get(q, out + (i * heads + head) * dim, from, dim * sizeof *out);
		}
	}
}

static void fill_layer(const struct ggml_tensor *node, const float *queries, size_t n, ckv_layer *layer) {
	const struct ggml_tensor *q = node->src[0];
	size_t dim = (size_t)q->ne[0], heads = (size_t)q->ne[2];
	ckv_layer_init(layer);
	layer->index = ckv_llama_cache_layer(ckv_llama_root(node->src[1]), "cache_k_l");
	ckv_llama_logit_params(node, &layer->scale, &layer->logit_cap);
	layer->q = (ckv_view){.data = queries,
	                      .dtype = CKV_F32,
	                      .n_heads = (int32_t)heads,
	                      .n_tokens = (int32_t)n,
	                      .head_dim = (int32_t)dim,
	                      .stride_head = dim * sizeof(float),
	                      .stride_token = heads * dim * sizeof(float)};
}

/* One stream's keys and values, as they stand in the cache. */
typedef struct cache_part {
	host_rows keys, values;
	row_reader key_reader, value_reader;
} cache_part;

static ckv_status open_cache(ckv_llama *ckv, const struct ggml_tensor *node, size_t stream, cache_part *c,
                             ckv_layer *layer) {
	const struct ggml_tensor *k = node->src[1], *v = node->src[2];
	const struct ggml_tensor *k_root = ckv_llama_root(k), *v_root = ckv_llama_root(v);
	int64_t first = ckv_llama_first_cell(node, (int64_t)stream), n_kv = node->src[3]->ne[0];
	memset(c, 0, sizeof *c);
	ckv_status status = ckv_llama_cells(ckv, k_root, first, n_kv, &c->keys);
	status = status ? status : ckv_llama_cells(ckv, v_root, first, n_kv, &c->values);
	status = status ? status
	                : ckv_llama_view(ckv, k_root->type, &c->keys, (int32_t)k->ne[2], (int32_t)n_kv, (int32_t)k->ne[0],
	                                 &c->key_reader, &layer->k);
	return status ? status
	              : ckv_llama_view(ckv, v_root->type, &c->values, (int32_t)v->ne[2], (int32_t)n_kv, (int32_t)v->ne[0],
	                               &c->value_reader, &layer->v);
}

static ckv_status attend_part(ckv_llama *ckv, struct ggml_tensor *node, part p, ckv_layer *layer) {
	hiding *h = &ckv->hide;
	const struct ggml_tensor *q = node->src[0];
	size_t rows = p.n * (size_t)q->ne[2], n_result = rows * (size_t)node->ne[0], n_queries = rows * (size_t)q->ne[0];
	void *result = h->result;
	bool room = ckv_llama_reserve(ckv, &result, &h->result_capacity, n_result + n_queries, sizeof *h->result);
	h->result = result;
	if (!room || !fill_bytes(ckv, node, p)) {
		return ckv_llama_fail(ckv, CKV_ERR_NOMEM, "no memory to compute a layer's attention: answers are void");
	}
	ckv_view k = layer->k, v = layer->v;
	get_queries(q, p, h->result + n_result);
	fill_layer(node, h->result + n_result, p.n, layer);
	layer->k = k;
	layer->v = v;
	const uint8_t *absent = h->bytes + p.n * (size_t)node->src[3]->ne[0];
	ckv_status status = ckv_attend(ckv->core, layer, h->bytes, absent, h->result);
	if (status) {
		return ckv_llama_fail(ckv, status, "%s", ckv_ctx_message(ckv->core));
	}
	ggml_backend_tensor_set(node, h->result, p.stream * node->nb[3] + p.first * node->nb[2], n_result * sizeof *h->result);
	return CKV_OK;
}

ckv_status ckv_llama_attend(ckv_llama *ckv, struct ggml_tensor *node) {
	size_t n = (size_t)node->src[0]->ne[1], streams = (size_t)node->src[0]->ne[3];
	ckv_status status = CKV_OK;
	for (size_t s = 0; s < streams && status == CKV_OK; s++) {
		cache_part cache;
		ckv_layer layer;
		ckv_layer_init(&layer);
		status = open_cache(ckv, node, s, &cache, &layer);
		for (size_t i = 0; i < n && status == CKV_OK; i += MOST_QUERIES) {
			part p = {s, i, n - i < MOST_QUERIES ? n - i : MOST_QUERIES};
			status = attend_part(ckv, node, p, &layer);
		}
		ckv_llama_rows_free(ckv, &cache.keys);
		ckv_llama_rows_free(ckv, &cache.values);
	}
	return status;
}
