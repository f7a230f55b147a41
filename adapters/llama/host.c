/* A cache of our own (ckv_cache) in the place of llama.cpp's: the kept rows live there, and the tokens that follow join
 * them.
 *
 * llama.cpp keeps one cell of the sequence, which tells it the next position, and cells for the tokens in hand, which may be
 * freed as soon as these are decoded. Behind the write of a layer's rows the new ones are copied into our cache; the layer's
 * attention is not computed (where its memory is the host's: elsewhere it is, in vain) and our result put in its place.
 *
 * Nothing is counted that llama.cpp counts itself: which tokens a graph is about is read from the sequence's last position,
 * so tokens that a program takes back go here too, with the next ones that are decoded. */
#include "adapters/llama/internal.h"

#include <string.h>

ckv_status ckv_llama_host_fail(ckv_llama *ckv, ckv_status status, const char *what) {
	ckv->host.failed = ckv_llama_fail(ckv, status, "the hosted cache: %s; answers are void", what);
	return status;
}

/* An attention node, also one that was taken out of a graph. */
bool ckv_llama_is_attention(const struct ggml_tensor *node) {
	bool taken_out = node->op == GGML_OP_NONE && node->src[0] && node->src[1] && node->src[2] && node->src[3];
	return node->op == GGML_OP_FLASH_ATTN_EXT || taken_out;
}

int32_t ckv_llama_host_number(const hosting *h, int32_t index) {
	for (int32_t i = 0; i < h->n_layers && index >= 0; i++) {
		if (h->layers[i].index == index) {
			return i;
		}
	}
	return -1;
}

int32_t ckv_llama_host_number_of(const hosting *h, const struct ggml_tensor *node) {
	return ckv_llama_host_number(h, ckv_llama_cache_layer(ckv_llama_root(node->src[1]), "cache_k_l"));
}

/* Position of the first of a graph's n tokens. */
static int32_t first_position(const hosting *h, int64_t n) {
	return llama_memory_seq_pos_max(h->memory, h->seq) + 1 - (int32_t)n;
}

/* Whether a graph of n tokens is of the context that our cache serves: known by its tensors, once the first one after the
 * rows was put back has shown them. */
static bool is_served(hosting *h, int32_t number, const struct ggml_tensor *k_root, int64_t n) {
	hosted_layer *layer = &h->layers[number];
	if (!layer->k_root && first_position(h, n) == h->base) {
		layer->k_root = k_root;
	}
	return layer->k_root == k_root;
}

static bool is_host(const struct ggml_tensor *tensor) {
	return ggml_backend_buffer_is_host(tensor->view_src ? tensor->view_src->buffer : tensor->buffer);
}

/* Whether a layer's rows lie as llama.cpp's would, see host_lend.c. */
static bool can_lend(const hosting *h, int32_t number, const struct ggml_tensor *root) {
	ckv_view k, v;
	return is_host(root) && ckv_cache_view(h->cache, number, &k, &v) == CKV_OK;
}

/* Number of the layer whose values a node writes, if its rows must be ours before its attention runs; -1. */
static int32_t number_of_write(ckv_llama *ckv, const struct ggml_tensor *node) {
	hosting *h = &ckv->host;
	const struct ggml_tensor *keys = ckv->seen.now.k_write;
	int32_t index = ckv_llama_cache_layer(ckv_llama_root(node), "cache_v_l"), number = ckv_llama_host_number(h, index);
	bool good = number >= 0 && keys && ckv_llama_cache_layer(ckv_llama_root(keys), "cache_k_l") == index &&
	            is_served(h, number, ckv_llama_root(keys), node->src[1]->ne[0]) && can_lend(h, number, ckv_llama_root(node));
	return good ? number : -1;
}

bool ckv_llama_host_wants(ckv_llama *ckv, const struct ggml_tensor *node) {
	hosting *h = &ckv->host;
	if (h->stream) {
		return h->streaming && ckv_llama_is_attention(node) && ckv_llama_host_number_of(h, node) >= 0;
	}
	if (!h->cache) {
		return false;
	}
	if (ckv_llama_is_attention(node)) {
		int32_t number = ckv_llama_host_number_of(h, node);
		return number >= 0 && is_served(h, number, ckv_llama_root(node->src[1]), node->src[0]->ne[1]);
	}
	return node->op == GGML_OP_SET_ROWS && number_of_write(ckv, node) >= 0;
}

/* What an earlier graph left when it broke off. */
void ckv_llama_host_mend(ckv_llama *ckv, struct ggml_tensor *node) {
	if (node->op == GGML_OP_NONE && ckv_llama_is_attention(node)) {
		node->op = GGML_OP_FLASH_ATTN_EXT;
	}
	ckv_llama_take_home(ckv, node);
}

void ckv_llama_host_before(ckv_llama *ckv, struct ggml_tensor *node) {
	hosting *h = &ckv->host;
	if (!ckv_llama_is_attention(node) || h->failed || node->src[0]->ne[3] != 1) {
		return;
	}
	int32_t number = ckv_llama_host_number_of(h, node);
	bool lent = h->cache && !h->layers[number].written && can_lend(h, number, ckv_llama_root(node->src[1])) &&
	            ckv_llama_lend(ckv, number, node);
	if (!lent && is_host(node)) {
		node->op = GGML_OP_NONE;
	}
}

/* ------------------------------------------------------------------------------------------------------------- rows */

static bool reserve(ckv_llama *ckv, size_t n) {
	void *bytes = ckv->host.bytes;
	bool room = ckv_llama_reserve(ckv, &bytes, &ckv->host.bytes_size, n, 1);
	ckv->host.bytes = bytes;
	return room;
}

/* Rows of the graph's tokens, as they stand in the cells they were written to. */
static bool copy_cells(const struct ggml_tensor *write, const struct ggml_tensor *root, uint8_t *out) {
	int64_t n = write->src[1]->ne[0], most = root->ne[1] * root->ne[2];
	for (int64_t i = 0; i < n; i++) {
		int64_t cell;
		ggml_backend_tensor_get(write->src[1], &cell, (size_t)i * sizeof cell, sizeof cell);
		if (cell < 0 || cell >= most) {
			return false;
		}
		ggml_backend_tensor_get(root, out + (size_t)i * root->nb[1], (size_t)cell * root->nb[1], root->nb[1]);
	}
	return true;
}

static ckv_view view_of(const void *rows, const ckv_stream_shape *shape, bool keys, const struct ggml_tensor *root,
                        int32_t n) {
	int32_t dim = keys ? shape->dim_k : shape->dim_v;
	return (ckv_view){.data = rows,
	                  .dtype = CKV_F16,
	                  .n_heads = shape->n_kv_heads,
	                  .n_tokens = n,
	                  .head_dim = dim,
	                  .stride_head = (size_t)dim * sizeof(uint16_t),
	                  .stride_token = root->nb[1]};
}

/* The layer's newest rows go, back to those before position `start`. */
static ckv_status take_back(ckv_llama *ckv, int32_t number, int32_t start) {
	hosting *h = &ckv->host;
	hosted_layer *layer = &h->layers[number];
	int32_t n = layer->n_seen - start;
	if (start < h->base) {
		return ckv_llama_host_fail(ckv, CKV_ERR_STATE, "tokens were taken back that were compressed");
	}
	ckv_status status = ckv_cache_take_back(h->cache, number, n);
	layer->n_seen = status ? layer->n_seen : start;
	return status ? ckv_llama_host_fail(ckv, status, ckv_cache_message(h->cache)) : CKV_OK;
}

ckv_status ckv_llama_host_rows(ckv_llama *ckv, const hosted_layer *layer, int64_t n, ckv_view *own_k, ckv_view *own_v) {
	hosting *h = &ckv->host;
	const struct ggml_tensor *k = ckv->seen.now.k_write, *v = ckv->seen.now.v_write;
	bool known = k && v && ckv_llama_cache_layer(ckv_llama_root(k), "cache_k_l") == layer->index &&
	             ckv_llama_cache_layer(ckv_llama_root(v), "cache_v_l") == layer->index && k->src[1]->ne[0] == n &&
	             v->src[1]->ne[0] == n;
	const struct ggml_tensor *k_root = known ? ckv_llama_root(k) : NULL, *v_root = known ? ckv_llama_root(v) : NULL;
	if (!known || k_root->type != GGML_TYPE_F16 || v_root->type != GGML_TYPE_F16) {
		return ckv_llama_host_fail(ckv, CKV_ERR_UNSUPPORTED, "a layer's rows are not written as f16 rows of K and V");
	}
	size_t keys = (size_t)n * k_root->nb[1];
	if (!reserve(ckv, keys + (size_t)n * v_root->nb[1])) {
		return ckv_llama_host_fail(ckv, CKV_ERR_NOMEM, "no memory for the rows of new tokens");
	}
	if (!copy_cells(k, k_root, h->bytes) || !copy_cells(v, v_root, h->bytes + keys)) {
		return ckv_llama_host_fail(ckv, CKV_ERR_HOST, "llama.cpp names cells that it has not");
	}
	*own_k = view_of(h->bytes, &layer->shape, true, k_root, (int32_t)n);
	*own_v = view_of(h->bytes + keys, &layer->shape, false, v_root, (int32_t)n);
	return CKV_OK;
}

static ckv_status append(ckv_llama *ckv, int32_t number, int64_t n) {
	hosting *h = &ckv->host;
	hosted_layer *layer = &h->layers[number];
	ckv_view k, v;
	ckv_status status = ckv_llama_host_rows(ckv, layer, n, &k, &v);
	if (status) {
		return status;
	}
	status = ckv_cache_append(h->cache, number, &k, &v);
	if (status) {
		return ckv_llama_host_fail(ckv, status, ckv_cache_message(h->cache));
	}
	layer->n_seen += (int32_t)n;
	return CKV_OK;
}

/* ---------------------------------------------------------------------------------------------------------- attention */

/* Queries as the node has them, in place where they are the host's. */
bool ckv_llama_host_queries(ckv_llama *ckv, const struct ggml_tensor *q, ckv_view *view) {
	*view = (ckv_view){.data = q->data,
	                   .dtype = CKV_F32,
	                   .n_heads = (int32_t)q->ne[2],
	                   .n_tokens = (int32_t)q->ne[1],
	                   .head_dim = (int32_t)q->ne[0],
	                   .stride_head = q->nb[2],
	                   .stride_token = q->nb[1]};
	if (is_host(q)) {
		return true;
	}
	size_t row = (size_t)q->ne[0] * sizeof(float), heads = (size_t)q->ne[2];
	void *queries = ckv->host.queries;
	bool room = ckv_llama_reserve(ckv, &queries, &ckv->host.queries_size, (size_t)q->ne[1] * heads, row);
	ckv->host.queries = queries;
	if (!room) {
		return false;
	}
	view->data = queries;
	view->stride_head = row;
	view->stride_token = heads * row;
	for (size_t i = 0; i < (size_t)q->ne[1]; i++) {
		for (size_t head = 0; head < heads; head++) {
			ggml_backend_tensor_get(q, (char *)queries + (i * heads + head) * row, i * q->nb[1] + head * q->nb[2], row);
		}
	}
	return true;
}

/* Where the result goes: straight into the node where it lies as ours does. */
float *ckv_llama_host_result(ckv_llama *ckv, struct ggml_tensor *node) {
	bool plain = node->nb[1] == (size_t)node->ne[0] * sizeof(float) && node->nb[2] == node->nb[1] * (size_t)node->ne[1];
	if (plain && is_host(node)) {
		return node->data;
	}
	void *result = ckv->host.result;
	bool room =
	    plain && ckv_llama_reserve(ckv, &result, &ckv->host.result_size, (size_t)ggml_nelements(node), sizeof(float));
	ckv->host.result = result;
	return room ? ckv->host.result : NULL;
}

void ckv_llama_host_put(struct ggml_tensor *node, const float *result) {
	if (result != node->data) {
		ggml_backend_tensor_set(node, result, 0, ggml_nbytes(node));
	}
}

static ckv_status attend(ckv_llama *ckv, int32_t number, struct ggml_tensor *node) {
	ckv_view q;
	float scale, cap, *out = ckv_llama_host_result(ckv, node);
	if (!out || !ckv_llama_host_queries(ckv, node->src[0], &q)) {
		return ckv_llama_host_fail(ckv, CKV_ERR_NOMEM, "no memory to compute a layer's attention");
	}
	ckv_llama_logit_params(node, &scale, &cap);
	ckv_status status = ckv_cache_attend(ckv->host.cache, number, &q, scale, cap, out);
	if (status) {
		return ckv_llama_host_fail(ckv, status, ckv_cache_message(ckv->host.cache));
	}
	ckv_llama_host_put(node, out);
	return CKV_OK;
}

/* The graph's rows of a layer join ours, where it writes any: else it shares those of an earlier layer, which are there. */
static ckv_status take_rows(ckv_llama *ckv, int32_t number, int64_t n) {
	hosting *h = &ckv->host;
	hosted_layer *layer = &h->layers[number];
	int32_t start = first_position(h, n);
	if (!layer->written) {
		return CKV_OK;
	}
	layer->written = false;
	ckv_status status = layer->n_seen > start ? take_back(ckv, number, start) : CKV_OK;
	if (status == CKV_OK && layer->n_seen != start) {
		status = ckv_llama_host_fail(ckv, CKV_ERR_STATE, "positions were left out");
	}
	return status ? status : append(ckv, number, n);
}

void ckv_llama_host_after(ckv_llama *ckv, struct ggml_tensor *node) {
	hosting *h = &ckv->host;
	if (!ckv_llama_is_attention(node)) {
		int32_t number = h->failed ? -1 : number_of_write(ckv, node);
		if (number >= 0) {
			take_rows(ckv, number, node->src[1]->ne[0]);
		}
		return;
	}
	bool lent = ckv_llama_take_home(ckv, node);
	node->op = GGML_OP_FLASH_ATTN_EXT;
	if (h->failed || lent) {
		return;
	}
	if (node->src[0]->ne[3] != 1) {
		ckv_llama_host_fail(ckv, CKV_ERR_UNSUPPORTED, "a batch held several sequences");
		return;
	}
	if (h->stream) {
		ckv_llama_host_stream_after(ckv, node);
		return;
	}
	int32_t number = ckv_llama_host_number_of(h, node);
	if (take_rows(ckv, number, node->src[0]->ne[1]) == CKV_OK) {
		attend(ckv, number, node);
	}
}

/* -------------------------------------------------------------------------------------------------------- in and out */

void ckv_llama_host_note(ckv_llama *ckv, const struct ggml_tensor *node) {
	hosting *h = &ckv->host;
	int32_t index = ckv_llama_cache_layer(ckv_llama_root(node), "cache_k_l");
	for (int32_t i = 0; i < h->n_layers; i++) {
		h->layers[i].written = h->layers[i].written || h->layers[i].index == index;
	}
}

void ckv_llama_host_leave(ckv_llama *ckv) {
	hosting *h = &ckv->host;
	ckv->bound.active = ckv->bound.active && !h->stream;
	ckv_cache_free(h->cache);
	ckv_stream_free(h->stream);
	ckv_llama_release(ckv, h->layers);
	ckv_llama_release(ckv, h->bytes);
	ckv_llama_release(ckv, h->queries);
	ckv_llama_release(ckv, h->scaled);
	ckv_llama_release(ckv, h->result);
	ckv_llama_release(ckv, h->mask);
	memset(h, 0, sizeof *h);
}

static ckv_status make_layers(ckv_llama *ckv, const held_cache *held, hosted_layer **out) {
	*out = ckv_llama_alloc(ckv, (size_t)held->n_layers, sizeof **out);
	if (!*out) {
		return ckv_llama_fail(ckv, CKV_ERR_NOMEM, "no memory to put the kept rows to use");
	}
	memset(*out, 0, (size_t)held->n_layers * sizeof **out);
	for (int32_t i = 0; i < held->n_layers; i++) {
		(*out)[i].index = held->layers[i];
		(*out)[i].n_seen = held->n_seen;
		(*out)[i].shape = held->shapes[i];
	}
	return CKV_OK;
}

/* What is held goes into use: itself, or a copy of it, so that it can be put to use again. */
ckv_status ckv_llama_host_enter(ckv_llama *ckv, struct llama_context *ctx, llama_seq_id seq, bool move) {
	held_cache *held = &ckv->held.cache;
	hosted_layer *layers;
	ckv_cache *cache = held->rows;
	ckv_status status = make_layers(ckv, held, &layers);
	if (status == CKV_OK && !move && ckv_cache_copy(held->rows, &cache)) {
		status = ckv_llama_fail(ckv, CKV_ERR_NOMEM, "no memory for a copy of the kept rows");
	}
	if (status) {
		ckv_llama_release(ckv, layers);
		return status;
	}
	ckv_llama_host_leave(ckv);
	ckv->host = (hosting){.cache = cache,
	                      .layers = layers,
	                      .n_layers = held->n_layers,
	                      .base = held->n_seen,
	                      .memory = llama_get_memory(ctx),
	                      .seq = seq,
	                      .window = llama_model_n_swa(llama_get_model(ctx))};
	if (move) {
		held->rows = NULL;
	}
	return CKV_OK;
}

/* Every layer to the n tokens that llama.cpp knows of, or nothing changed. */
static ckv_status agree(ckv_llama *ckv, int32_t n) {
	hosting *h = &ckv->host;
	bool good = !h->failed && n >= h->base;
	for (int32_t i = 0; i < h->n_layers; i++) {
		good = good && h->layers[i].n_seen >= n;
	}
	if (!good) {
		return ckv_llama_fail(ckv, CKV_ERR_STATE,
		                      "the hosted cache and llama.cpp's sequence (%d tokens) don't go together: %s", n,
		                      h->failed ? "an earlier decode failed" : "tokens were taken back, or decoded past it");
	}
	ckv_status status = CKV_OK;
	for (int32_t i = 0; i < h->n_layers && status == CKV_OK; i++) {
		status = h->layers[i].n_seen > n ? take_back(ckv, i, n) : CKV_OK;
	}
	return status;
}

/* What is in use becomes what is held, beside the llama.cpp state of the sequence that is held already. */
ckv_status ckv_llama_host_hold(ckv_llama *ckv) {
	hosting *h = &ckv->host;
	held_cache held;
	ckv_status status = agree(ckv, llama_memory_seq_pos_max(h->memory, h->seq) + 1);
	if (status) {
		return status;
	}
	if (ckv_llama_held_make(ckv, h->n_layers, &held)) {
		return CKV_ERR_NOMEM;
	}
	for (int32_t i = 0; i < h->n_layers; i++) {
		held.layers[i] = h->layers[i].index;
		held.shapes[i] = h->layers[i].shape;
	}
	held.n_seen = llama_memory_seq_pos_max(h->memory, h->seq) + 1;
	held.rows = h->cache;
	ckv->held.cache = held;
	h->cache = NULL;
	ckv_llama_host_leave(ckv);
	return CKV_OK;
}

void ckv_llama_leave(ckv_llama *ckv) {
	if (ckv) {
		ckv_llama_host_leave(ckv);
	}
}

/* The newest cell tells the next position; a sliding window of the next token reaches back to its own. */
void ckv_llama_host_settle(const hosting *h) {
	int32_t last = llama_memory_seq_pos_max(h->memory, h->seq), first = h->window > 1 ? last + 2 - h->window : last;
	if (first > 0) {
		llama_memory_seq_rm(h->memory, h->seq, -1, first);
	}
}

ckv_status ckv_llama_settle(ckv_llama *ckv) {
	if (!ckv) {
		return CKV_ERR_ARG;
	}
	if (ckv->host.cache) {
		ckv_llama_host_settle(&ckv->host);
	}
	return CKV_OK;
}

ckv_status ckv_llama_host_check(const ckv_llama *ckv) {
	const hosting *h = &ckv->host;
	int32_t n = h->cache ? llama_memory_seq_pos_max(h->memory, h->seq) + 1 : 0;
	for (int32_t i = 0; i < h->n_layers && !h->failed; i++) {
		if (h->layers[i].n_seen < n) {
			return CKV_ERR_STATE; /* a graph went by unseen */
		}
	}
	return h->failed;
}

ckv_status ckv_llama_hosted_info(const ckv_llama *ckv, ckv_cache_info *info) {
	if (!ckv || !info) {
		return CKV_ERR_ARG;
	}
	const ckv_cache *cache = ckv->host.cache ? ckv->host.cache : ckv->held.cache.rows;
	return cache ? ckv_cache_get_info(cache, -1, info) : CKV_ERR_STATE;
}

ckv_status ckv_llama_set_cache(ckv_llama *ckv, ckv_llama_cache kind) {
	if (!ckv || (unsigned)kind > CKV_LLAMA_CACHE_HOSTED) {
		return CKV_ERR_ARG;
	}
	ckv_llama_begin(ckv);
	bool streams = ckv->bound.by_token;
	const char *preset = streams ? ckv->bound.params.preset : ckv_ctx_params(ckv->core)->preset;
	bool needs = streams ? ckv_stream_params_hosted(&ckv->bound.params) : ckv_params_hosted(ckv_ctx_params(ckv->core));
	if (kind == CKV_LLAMA_CACHE_OWN && needs) {
		return ckv_llama_fail(ckv, CKV_ERR_UNSUPPORTED,
		                      "policy '%s' stores rows in a way that llama.cpp's cache can't: it needs the hosted cache",
		                      preset);
	}
	ckv->cache_kind = kind;
	return CKV_OK;
}
