/* Observation through cb_eval: the window's queries, and the cell of every token, of each attention layer.
 *
 * With flash attention every architecture's attention is one node: src[0] queries after RoPE, src[1] and src[2] views of the
 * cache, src[3] the mask. The node that writes the keys into the cache tells which cell each token goes to. Nodes are asked
 * for one by one while observing; else every answer is "no" and the graph runs as without us. */
#include "adapters/llama/internal.h"

#include <stdlib.h>
#include <string.h>

static const struct ggml_tensor *root_of(const struct ggml_tensor *tensor) {
	while (tensor->view_src) {
		tensor = tensor->view_src;
	}
	return tensor;
}

/* Layer of a cache tensor named PREFIX<n>, or -1. */
static int32_t cache_layer(const struct ggml_tensor *root, const char *prefix) {
	size_t n = strlen(prefix);
	const char *number = root->name + n;
	char *end;
	if (strncmp(root->name, prefix, n) != 0 || *number < '0' || *number > '9') {
		return -1;
	}
	long layer = strtol(number, &end, 10);
	return *end == '\0' && layer <= INT32_MAX ? (int32_t)layer : -1;
}

/* The entry of a layer, made when it is new; NULL without memory. */
static layer_view *find_layer(ckv_llama *ckv, int32_t index) {
	observation *seen = &ckv->seen;
	int32_t at = 0;
	while (at < seen->n_layers && seen->layers[at].index < index) {
		at++;
	}
	if (at < seen->n_layers && seen->layers[at].index == index) {
		return &seen->layers[at];
	}
	if (seen->n_layers == seen->capacity) {
		int32_t capacity = seen->capacity ? 2 * seen->capacity : 64;
		layer_view *bigger = ckv_llama_alloc(ckv, (size_t)capacity, sizeof *bigger);
		if (!bigger) {
			return NULL;
		}
		if (seen->n_layers) {
			memcpy(bigger, seen->layers, (size_t)seen->n_layers * sizeof *bigger);
		}
		ckv_llama_release(ckv, seen->layers);
		seen->layers = bigger;
		seen->capacity = capacity;
	}
	memmove(seen->layers + at + 1, seen->layers + at, (size_t)(seen->n_layers - at) * sizeof *seen->layers);
	seen->n_layers++;
	memset(&seen->layers[at], 0, sizeof seen->layers[at]);
	seen->layers[at].index = index;
	return &seen->layers[at];
}

void ckv_llama_observe_clear(ckv_llama *ckv) {
	observation *seen = &ckv->seen;
	for (int32_t i = 0; i < seen->n_layers; i++) {
		ckv_llama_release(ckv, seen->layers[i].cells);
		ckv_llama_release(ckv, seen->layers[i].queries);
	}
	seen->n_layers = 0;
	seen->flaw = FLAW_NONE;
	seen->active = false;
	seen->ctx = NULL;
	seen->queries_from = 0;
}

int32_t ckv_llama_observed_tokens(const ckv_llama *ckv) {
	const observation *seen = &ckv->seen;
	int32_t n = seen->n_layers ? seen->layers[0].n_tokens : 0;
	for (int32_t i = 1; i < seen->n_layers; i++) {
		if (seen->layers[i].n_tokens != n) {
			return -1;
		}
	}
	return n;
}

static void fill_shape(layer_view *layer, const struct ggml_tensor *node) {
	const struct ggml_tensor *q = node->src[0], *k = node->src[1], *v = node->src[2];
	float params[3];
	memcpy(params, node->op_params, sizeof params);
	layer->k_root = root_of(k);
	layer->v_root = root_of(v);
	layer->n_heads = (int32_t)q->ne[2];
	layer->n_kv_heads = (int32_t)k->ne[2];
	layer->dim_k = (int32_t)k->ne[0];
	layer->dim_v = (int32_t)v->ne[0];
	layer->scale = params[0];
	layer->logit_cap = params[2];
}

static bool grow_cells(ckv_llama *ckv, layer_view *layer, int32_t n_more) {
	int32_t need = layer->n_tokens + n_more;
	if (need <= layer->cells_capacity) {
		return true;
	}
	int32_t capacity = need > 2 * layer->cells_capacity ? need : 2 * layer->cells_capacity;
	int32_t *bigger = ckv_llama_alloc(ckv, (size_t)capacity, sizeof *bigger);
	if (!bigger) {
		return false;
	}
	if (layer->n_tokens) {
		memcpy(bigger, layer->cells, (size_t)layer->n_tokens * sizeof *bigger);
	}
	ckv_llama_release(ckv, layer->cells);
	layer->cells = bigger;
	layer->cells_capacity = capacity;
	return true;
}

static flaw read_cells(ckv_llama *ckv, layer_view *layer, int32_t n) {
	enum { PIECE = 256 };
	int64_t slots[PIECE];
	if (!layer->slots || layer->slots->type != GGML_TYPE_I64 || layer->slots->ne[0] != n) {
		return FLAW_LAYOUT;
	}
	if (!grow_cells(ckv, layer, n)) {
		return FLAW_MEMORY;
	}
	for (int32_t i = 0; i < n; i += PIECE) {
		int32_t count = n - i < PIECE ? n - i : PIECE;
		ggml_backend_tensor_get(layer->slots, slots, (size_t)i * sizeof *slots, (size_t)count * sizeof *slots);
		for (int32_t j = 0; j < count; j++) {
			layer->cells[layer->n_tokens + i + j] = (int32_t)slots[j];
		}
	}
	layer->slots = NULL;
	return FLAW_NONE;
}

/* The last `window` queries of the ubatch into the ring. */
static flaw read_queries(ckv_llama *ckv, layer_view *layer, const struct ggml_tensor *q, int32_t n) {
	int32_t window = ckv->seen.window;
	size_t heads = (size_t)layer->n_heads, row = (size_t)layer->dim_k * sizeof(float);
	if (window == 0) {
		return FLAW_NONE;
	}
	if (q->type != GGML_TYPE_F32 || q->nb[0] != sizeof(float)) {
		return FLAW_LAYOUT;
	}
	if (!layer->queries) {
		layer->queries = ckv_llama_alloc(ckv, (size_t)window * heads, row);
		if (!layer->queries) {
			return FLAW_MEMORY;
		}
	}
	for (int32_t i = n > window ? n - window : 0; i < n; i++) {
		char *out = (char *)layer->queries + (size_t)((layer->n_tokens + i) % window) * heads * row;
		size_t from = (size_t)i * q->nb[1];
		if (q->nb[2] == row) {
			ggml_backend_tensor_get(q, out, from, heads * row);
			continue;
		}
		for (size_t h = 0; h < heads; h++) {
			ggml_backend_tensor_get(q, out + h * row, from + h * q->nb[2], row);
		}
	}
	return FLAW_NONE;
}

/* Cells that the ubatch's last query may see: mask 0. */
static flaw read_mask(ckv_llama *ckv, layer_view *layer, const struct ggml_tensor *mask, int32_t n) {
	if (!mask || mask->type != GGML_TYPE_F16) {
		return FLAW_LAYOUT;
	}
	size_t n_kv = (size_t)mask->ne[0];
	uint16_t *row = ckv_llama_alloc(ckv, n_kv, sizeof *row);
	if (!row) {
		return FLAW_MEMORY;
	}
	ggml_backend_tensor_get(mask, row, (size_t)(n - 1) * mask->nb[1], n_kv * sizeof *row);
	int32_t visible = 0;
	for (size_t i = 0; i < n_kv; i++) {
		visible += (row[i] & 0x7fff) == 0;
	}
	ckv_llama_release(ckv, row);
	layer->full = visible == layer->n_tokens + n;
	return FLAW_NONE;
}

static flaw read_node(ckv_llama *ckv, const struct ggml_tensor *node) {
	const struct ggml_tensor *q = node->src[0];
	int32_t index = cache_layer(root_of(node->src[1]), "cache_k_l"), n = (int32_t)q->ne[1];
	float max_bias;
	memcpy(&max_bias, (const char *)node->op_params + sizeof(float), sizeof max_bias);
	if (index < 0 || cache_layer(root_of(node->src[2]), "cache_v_l") != index) {
		return FLAW_LAYOUT;
	}
	if (max_bias != 0.0f) {
		return FLAW_BIAS;
	}
	if (q->ne[3] != 1) {
		return FLAW_STREAMS;
	}
	layer_view *layer = find_layer(ckv, index);
	if (!layer) {
		return FLAW_MEMORY;
	}
	fill_shape(layer, node);
	flaw found = read_cells(ckv, layer, n);
	found = found ? found : read_queries(ckv, layer, q, n);
	found = found ? found : read_mask(ckv, layer, node->src[3], n);
	layer->n_tokens += found ? 0 : n;
	return found;
}

/* Remembers where the tokens of this ubatch go; the tensor itself is filled by the time the attention node runs. */
static void note_slots(ckv_llama *ckv, const struct ggml_tensor *node) {
	int32_t index = cache_layer(root_of(node), "cache_k_l");
	layer_view *layer = index < 0 ? NULL : find_layer(ckv, index);
	if (layer) {
		layer->slots = node->src[1];
	}
}

/* Adds up the cache tensors of a graph: the first layer starts anew. */
static void note_allocation(ckv_llama *ckv, const struct ggml_tensor *node) {
	const struct ggml_tensor *k = root_of(node->src[1]), *v = root_of(node->src[2]);
	if (cache_layer(k, "cache_k_l") <= 0) {
		ckv->alloc_sum = 0;
	}
	ckv->alloc_sum += ggml_nbytes(k) + (v != k ? ggml_nbytes(v) : 0);
	ckv->cache_alloc = ckv->alloc_sum;
}

static bool wanted(ckv_llama *ckv, struct ggml_tensor *node) {
	if (node->op == GGML_OP_FLASH_ATTN_EXT) {
		note_allocation(ckv, node);
	}
	if (!ckv->seen.active || ckv->seen.flaw) {
		return false;
	}
	if (node->op == GGML_OP_SET_ROWS) {
		note_slots(ckv, node);
	}
	return node->op == GGML_OP_FLASH_ATTN_EXT;
}

bool ckv_llama_eval(struct ggml_tensor *tensor, bool ask, void *user) {
	ckv_llama *ckv = user;
	if (ask) {
		ckv->next_asked = ckv->next && ckv->next(tensor, true, ckv->next_user);
		return wanted(ckv, tensor) || ckv->next_asked;
	}
	if (ckv->seen.active && !ckv->seen.flaw && tensor->op == GGML_OP_FLASH_ATTN_EXT) {
		ckv->seen.flaw = read_node(ckv, tensor);
	}
	return ckv->next_asked ? ckv->next(tensor, false, ckv->next_user) : true;
}

/* Tokens were taken back (llama_memory_seq_rm): so are their cells. The ring has lost older queries, so as many new tokens as the
 * window is long must follow before it is whole again. */
static void rewind_to(observation *seen, int32_t n) {
	for (int32_t i = 0; i < seen->n_layers; i++) {
		seen->layers[i].n_tokens = n;
	}
	seen->queries_from = n;
}

ckv_status ckv_llama_observe_begin(ckv_llama *ckv, struct llama_context *ctx, llama_seq_id seq) {
	if (!ckv || !ctx || seq < 0 || (uint32_t)seq >= llama_n_seq_max(ctx)) {
		return CKV_ERR_ARG;
	}
	if (!ckv->attached) {
		return ckv_llama_fail(ckv, CKV_ERR_STATE, "call ckv_llama_attach before the context is made");
	}
	observation *seen = &ckv->seen;
	int32_t n = llama_memory_seq_pos_max(llama_get_memory(ctx), seq) + 1;
	int32_t observed = ckv_llama_observed_tokens(ckv);
	bool goes_on = n > 0 && seen->ctx == ctx && seen->seq == seq && observed >= n && !seen->flaw;
	if (!goes_on) {
		ckv_llama_observe_clear(ckv);
	} else if (observed > n) {
		rewind_to(seen, n);
	}
	if (n > 0 && !goes_on) {
		return ckv_llama_fail(ckv, CKV_ERR_STATE,
		                      "sequence %d already has %d tokens that were not observed: observe it from its first token",
		                      seq, n);
	}
	ckv_needs needs;
	ckv_status status = ckv_params_needs(ckv_ctx_params(ckv->core), &needs);
	if (status) {
		return status;
	}
	seen->window = needs.n_queries;
	seen->ctx = ctx;
	seen->seq = seq;
	seen->active = true;
	return CKV_OK;
}

ckv_status ckv_llama_observe_end(ckv_llama *ckv) {
	if (!ckv) {
		return CKV_ERR_ARG;
	}
	ckv->seen.active = false;
	return CKV_OK;
}
