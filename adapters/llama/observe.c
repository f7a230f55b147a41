/* Observation through cb_eval: the window's queries, and the cell of every token, of each attention layer.
 *
 * With flash attention every architecture's attention is one node: src[0] queries after RoPE, src[1] and src[2] views of the
 * cache, src[3] the mask. The node that writes a layer's keys into the cache (SET_ROWS) tells which cell each token goes to.
 * Both are asked for while observing. Afterwards one write of keys in each ubatch is still looked at, to notice when rows
 * that were observed are overwritten; every other answer is "no", and the graph runs as without us. */
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
		layer_view *bigger = ckv_llama_grow(ckv, seen->layers, seen->n_layers, capacity, sizeof *bigger);
		if (!bigger) {
			return NULL;
		}
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
	seen->memory = NULL;
	seen->queries_from = 0;
}

int32_t ckv_llama_observed_tokens(const ckv_llama *ckv) {
	const observation *seen = &ckv->seen;
	int32_t n = seen->n_layers ? seen->layers[0].n_tokens : 0;
	for (int32_t i = 1; i < seen->n_layers; i++) {
		n = seen->layers[i].n_tokens < n ? seen->layers[i].n_tokens : n;
	}
	return n;
}

void ckv_llama_observe_rewind(ckv_llama *ckv, int32_t n) {
	observation *seen = &ckv->seen;
	for (int32_t i = 0; i < seen->n_layers; i++) {
		layer_view *layer = &seen->layers[i];
		layer->n_tokens = layer->n_cells = layer->n_tokens < n ? layer->n_tokens : n;
		layer->written = false;
	}
	/* The ring has lost older queries: as many new tokens as the window is long must follow before it is whole again. */
	seen->queries_from = n;
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
	int32_t *bigger = ckv_llama_grow(ckv, layer->cells, layer->n_tokens, capacity, sizeof *bigger);
	if (!bigger) {
		return false;
	}
	layer->cells = bigger;
	layer->cells_capacity = capacity;
	return true;
}

/* Called for each cell that a SET_ROWS node has just written; the first flaw ends it. */
typedef flaw (*slot_visitor)(layer_view *layer, int32_t cell);

static flaw visit_slots(layer_view *layer, const struct ggml_tensor *node, slot_visitor visit) {
	enum { PIECE = 256 };
	int64_t slots[PIECE];
	const struct ggml_tensor *index = node->src[1], *root = root_of(node);
	int64_t n = index->ne[0], most = root->ne[1] * root->ne[2];
	if (index->type != GGML_TYPE_I64 || n != node->src[0]->ne[1]) {
		return FLAW_LAYOUT;
	}
	for (int64_t i = 0; i < n; i += PIECE) {
		int64_t count = n - i < PIECE ? n - i : PIECE;
		ggml_backend_tensor_get(index, slots, (size_t)i * sizeof *slots, (size_t)count * sizeof *slots);
		for (int64_t k = 0; k < count; k++) {
			bool inside = slots[k] >= 0 && slots[k] < most && slots[k] <= INT32_MAX;
			flaw found = inside ? visit(layer, (int32_t)slots[k]) : FLAW_LAYOUT;
			if (found) {
				return found;
			}
		}
	}
	return FLAW_NONE;
}

static flaw add_cell(layer_view *layer, int32_t cell) {
	layer->cells[layer->n_cells++] = cell;
	return FLAW_NONE;
}

static flaw check_cell(layer_view *layer, int32_t cell) {
	for (int32_t t = 0; t < layer->n_tokens; t++) {
		if (layer->cells[t] == cell) {
			return FLAW_STALE;
		}
	}
	return FLAW_NONE;
}

/* Where the tokens of this ubatch went. */
static flaw read_write(ckv_llama *ckv, const struct ggml_tensor *node) {
	int64_t n = node->src[1]->ne[0];
	layer_view *layer = find_layer(ckv, cache_layer(root_of(node), "cache_k_l"));
	if (!layer || n > INT32_MAX / 4 || !grow_cells(ckv, layer, (int32_t)n)) {
		return FLAW_MEMORY;
	}
	layer->n_cells = layer->n_tokens;
	layer->written = true;
	return visit_slots(layer, node, add_cell);
}

/* A write that is not observed: does it overwrite what was? */
static flaw read_foreign_write(ckv_llama *ckv, const struct ggml_tensor *node) {
	layer_view *layer = find_layer(ckv, cache_layer(root_of(node), "cache_k_l"));
	return layer ? visit_slots(layer, node, check_cell) : FLAW_MEMORY;
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
	if (!layer->written) {
		/* A later layer that shares this one's cache adds nothing; a cache that nothing was written to is none of ours. */
		return layer->n_tokens > 0 ? FLAW_NONE : FLAW_LAYOUT;
	}
	if (layer->n_cells != layer->n_tokens + n) {
		return FLAW_LAYOUT;
	}
	fill_shape(layer, node);
	flaw found = read_queries(ckv, layer, q, n);
	found = found ? found : read_mask(ckv, layer, node->src[3], n);
	layer->n_tokens += found ? 0 : n;
	layer->written = false;
	return found;
}

/* Adds up the cache tensors as a graph writes to them, layer after layer; the first layer starts anew. */
static void note_allocation(ckv_llama *ckv, const struct ggml_tensor *root) {
	int32_t layer = cache_layer(root, "cache_k_l");
	if (layer >= 0) {
		ckv->cache_alloc = layer <= ckv->alloc_layer ? 0 : ckv->cache_alloc;
		ckv->alloc_layer = layer;
		ckv->cache_alloc += ggml_nbytes(root);
	} else if (cache_layer(root, "cache_v_l") == ckv->alloc_layer) {
		ckv->cache_alloc += ggml_nbytes(root);
	}
}

/* The layer whose writes are watched when nothing is observed: the first that sees every token. */
static const layer_view *watched(const observation *seen) {
	for (int32_t i = 0; i < seen->n_layers; i++) {
		if (seen->layers[i].full && seen->layers[i].n_tokens > 0) {
			return &seen->layers[i];
		}
	}
	return NULL;
}

static bool wanted(const ckv_llama *ckv, const struct ggml_tensor *node) {
	const observation *seen = &ckv->seen;
	bool write = node->op == GGML_OP_SET_ROWS;
	if (seen->flaw) {
		return false;
	}
	if (seen->active) {
		return node->op == GGML_OP_FLASH_ATTN_EXT || (write && cache_layer(root_of(node), "cache_k_l") >= 0);
	}
	const layer_view *layer = write ? watched(seen) : NULL;
	return layer && layer->k_root == root_of(node);
}

static void read_wanted(ckv_llama *ckv, const struct ggml_tensor *node) {
	observation *seen = &ckv->seen;
	if (!seen->active) {
		seen->flaw = seen->sliding ? FLAW_STALE : read_foreign_write(ckv, node);
	} else {
		seen->flaw = node->op == GGML_OP_SET_ROWS ? read_write(ckv, node) : read_node(ckv, node);
	}
}

bool ckv_llama_eval(struct ggml_tensor *tensor, bool ask, void *user) {
	ckv_llama *ckv = user;
	if (ask) {
		if (tensor->op == GGML_OP_SET_ROWS) {
			note_allocation(ckv, root_of(tensor));
		}
		ckv->next_asked = ckv->next && ckv->next(tensor, true, ckv->next_user);
		return wanted(ckv, tensor) || ckv->next_asked;
	}
	if (wanted(ckv, tensor)) {
		read_wanted(ckv, tensor);
	}
	return ckv->next_asked ? ckv->next(tensor, false, ckv->next_user) : true;
}

/* What was observed of this sequence still stands, and reaches to position n at least. */
static bool goes_on(const ckv_llama *ckv, struct llama_context *ctx, llama_seq_id seq, int32_t n) {
	const observation *seen = &ckv->seen;
	bool same = seen->ctx == ctx && seen->memory == (const void *)llama_get_memory(ctx) && seen->seq == seq && !seen->flaw;
	int32_t observed = ckv_llama_observed_tokens(ckv);
	return same && (observed == n || (observed > n && !seen->sliding));
}

ckv_status ckv_llama_observe_begin(ckv_llama *ckv, struct llama_context *ctx, llama_seq_id seq) {
	if (!ckv || !ctx || seq < 0 || (uint32_t)seq >= llama_n_seq_max(ctx)) {
		return CKV_ERR_ARG;
	}
	ckv_llama_begin(ckv);
	if (!ckv->attached) {
		return ckv_llama_fail(ckv, CKV_ERR_STATE, "call ckv_llama_attach before the context is made");
	}
	ckv_needs needs;
	ckv_status status = ckv_params_needs(ckv_ctx_params(ckv->core), &needs);
	if (status) {
		return ckv_llama_fail(ckv, status, "the policy's parameters are not usable");
	}
	observation *seen = &ckv->seen;
	int32_t n = llama_memory_seq_pos_max(llama_get_memory(ctx), seq) + 1;
	if (n > 0 && !goes_on(ckv, ctx, seq, n)) {
		return ckv_llama_fail(ckv, CKV_ERR_STATE,
		                      "sequence %d already has %d tokens that were not observed: observe it from its first token",
		                      seq, n);
	}
	if (n == 0) {
		ckv_llama_observe_clear(ckv);
	} else if (ckv_llama_observed_tokens(ckv) > n) {
		ckv_llama_observe_rewind(ckv, n);
	}
	seen->window = needs.n_queries;
	seen->ctx = ctx;
	seen->memory = llama_get_memory(ctx);
	seen->sliding = llama_model_n_swa(llama_get_model(ctx)) > 0;
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
