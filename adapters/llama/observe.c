/* Observation through cb_eval: which nodes are looked at, and the cell of every token.
 *
 * With flash attention every architecture's attention is one node: src[0] queries after RoPE, src[1] and src[2] views of the
 * cache, src[3] the mask. The node that writes a layer's keys into the cache (SET_ROWS) tells which cell each token goes to.
 * Both are asked for while observing; what else a policy needs is taken at the same two (queries.c), at the node that adds
 * the attention to the residual stream (stream.c), or from the graph's inputs. Afterwards one write of keys in each ubatch
 * is still looked at, to notice when rows that were observed are overwritten; every other answer is "no", and the graph runs
 * as without us. */
#include "adapters/llama/internal.h"

#include <math.h>
#include <string.h>

static int32_t key_layer(const struct ggml_tensor *node) { return ckv_llama_cache_layer(ckv_llama_root(node), "cache_k_l"); }

/* The entry of a layer, or NULL. */
static layer_view *get_layer(ckv_llama *ckv, int32_t index) {
	for (int32_t i = 0; i < ckv->seen.n_layers; i++) {
		if (ckv->seen.layers[i].index == index) {
			return &ckv->seen.layers[i];
		}
	}
	return NULL;
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

static void release_layer(ckv_llama *ckv, layer_view *layer) {
	ckv_llama_release(ckv, layer->cells);
	ckv_llama_release(ckv, layer->queries);
	ckv_llama_release(ckv, layer->mass);
	ckv_llama_release(ckv, layer->similarity);
	ckv_llama_release(ckv, layer->inv_freq);
	ckv_moments_free(layer->moments);
}

void ckv_llama_observe_clear(ckv_llama *ckv) {
	observation *seen = &ckv->seen;
	for (int32_t i = 0; i < seen->n_layers; i++) {
		release_layer(ckv, &seen->layers[i]);
	}
	for (size_t i = 0; i < sizeof seen->turned / sizeof *seen->turned; i++) {
		ckv_llama_release(ckv, seen->turned[i].data);
	}
	void *owned[] = {seen->layers, seen->tokens, seen->mine, seen->now.rows, seen->block};
	for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) {
		ckv_llama_release(ckv, owned[i]);
	}
	memset(seen, 0, sizeof *seen);
	seen->now.last_layer = INT32_MAX;
	seen->now.pending = -1;
}

int32_t ckv_llama_observed_tokens(const ckv_llama *ckv) {
	const observation *seen = &ckv->seen;
	int32_t n = seen->n_layers ? seen->layers[0].n_tokens + seen->layers[0].evicted : 0;
	for (int32_t i = 1; i < seen->n_layers; i++) {
		int32_t own = seen->layers[i].n_tokens + seen->layers[i].evicted;
		n = own < n ? own : n;
	}
	return n;
}

int32_t ckv_llama_observed_most(const ckv_llama *ckv) {
	int32_t n = 0;
	for (int32_t i = 0; i < ckv->seen.n_layers; i++) {
		int32_t own = ckv->seen.layers[i].n_tokens + ckv->seen.layers[i].evicted;
		n = own > n ? own : n;
	}
	return n;
}

bool ckv_llama_can_rewind(const ckv_llama *ckv) { return !(ckv->seen.needs & (CKV_NEED_MASS | CKV_NEED_MOMENTS)); }

void ckv_llama_observe_rewind(ckv_llama *ckv, int32_t n) {
	observation *seen = &ckv->seen;
	for (int32_t i = 0; i < seen->n_layers; i++) {
		layer_view *layer = &seen->layers[i];
		int32_t rows = n > layer->evicted ? n - layer->evicted : 0;
		if (layer->n_tokens > rows) {
			/* The ring has lost older queries: as many new tokens as the window is long must follow before it is whole
			 * again. */
			seen->queries_from = n;
		}
		for (int32_t t = rows; t < layer->n_tokens && layer->similarity; t++) {
			layer->similarity[t] = NAN;
		}
		layer->n_tokens = layer->n_cells = layer->n_tokens < rows ? layer->n_tokens : rows;
		layer->written = false;
	}
}

/* -------------------------------------------------------------------------------------------------- which rows are ours */

/* Whether row r of a ubatch is this sequence's: its cell's stream tells where sequences have streams of their own, else the
 * batch that was announced, which llama.cpp cuts in order. */
static bool is_mine(const observation *seen, const struct ggml_tensor *root, int32_t r, int64_t slot) {
	if (!seen->mine) {
		return true;
	}
	if (root->ne[2] > 1) {
		return slot / root->ne[1] == seen->seq;
	}
	int32_t at = seen->expected_at + r;
	return at < seen->n_expected && (seen->mine[at] & MINE);
}

int32_t ckv_llama_our_outputs(const observation *seen) {
	int32_t own = 0, n = 0;
	for (int32_t i = 0; i < seen->n_expected && seen->mine; i++) {
		bool in_hand = own >= seen->own_at && own < seen->own_at + seen->now.n_rows;
		n += in_hand && (seen->mine[i] & MINE) && (seen->mine[i] & OUTPUT);
		own += (seen->mine[i] & MINE) != 0;
	}
	return n;
}

static bool reserve_rows(ckv_llama *ckv, int32_t n) {
	ubatch_view *now = &ckv->seen.now;
	if (n > now->capacity) {
		int32_t *bigger = ckv_llama_grow(ckv, now->rows, 0, n, sizeof *bigger);
		if (!bigger) {
			return false;
		}
		now->rows = bigger;
		now->capacity = n;
	}
	return true;
}

/* A lower layer than the last begins a new ubatch. Layers that differ then are left from a decode that broke off. */
static flaw begin_ubatch(ckv_llama *ckv, int32_t layer, int32_t n) {
	observation *seen = &ckv->seen;
	ubatch_view *now = &seen->now;
	flaw found = FLAW_NONE;
	if (layer <= now->last_layer) {
		int32_t least = ckv_llama_observed_tokens(ckv);
		bool first = now->last_layer == INT32_MAX;
		seen->expected_at += first ? 0 : now->n_tokens;
		seen->own_at += first ? 0 : now->n_rows;
		if (seen->mine && seen->expected_at >= seen->n_expected) {
			ckv_llama_forget_batch(ckv);
		}
		if (ckv_llama_observed_most(ckv) != least) {
			found = ckv_llama_can_rewind(ckv) ? FLAW_NONE : FLAW_TORN;
			ckv_llama_observe_rewind(ckv, least);
		}
		now->n_tokens = n;
		now->n_rows = 0;
		now->pending = -1;
		now->attention = NULL;
	}
	now->last_layer = layer;
	return found;
}

/* ------------------------------------------------------------------------------------------------------------ cells */

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

/* Called for each cell that a SET_ROWS node has just written, row after row; the first flaw ends it. */
typedef flaw (*slot_visitor)(ckv_llama *ckv, layer_view *layer, int32_t row, int64_t slot);

static flaw visit_slots(ckv_llama *ckv, layer_view *layer, const struct ggml_tensor *node, slot_visitor visit) {
	enum { PIECE = 256 };
	int64_t slots[PIECE];
	const struct ggml_tensor *index = node->src[1], *root = ckv_llama_root(node);
	int64_t n = index->ne[0], most = root->ne[1] * root->ne[2];
	if (index->type != GGML_TYPE_I64 || n != node->src[0]->ne[1]) {
		return FLAW_LAYOUT;
	}
	for (int64_t i = 0; i < n; i += PIECE) {
		int64_t count = n - i < PIECE ? n - i : PIECE;
		ggml_backend_tensor_get(index, slots, (size_t)i * sizeof *slots, (size_t)count * sizeof *slots);
		for (int64_t k = 0; k < count; k++) {
			bool inside = slots[k] >= 0 && slots[k] < most && slots[k] <= INT32_MAX;
			flaw found = inside ? visit(ckv, layer, (int32_t)(i + k), slots[k]) : FLAW_LAYOUT;
			if (found) {
				return found;
			}
		}
	}
	return FLAW_NONE;
}

static flaw add_cell(ckv_llama *ckv, layer_view *layer, int32_t row, int64_t slot) {
	ubatch_view *now = &ckv->seen.now;
	if (is_mine(&ckv->seen, layer->k_root, row, slot)) {
		now->rows[now->n_rows++] = row;
		layer->cells[layer->n_cells++] = (int32_t)slot;
	}
	return FLAW_NONE;
}

/* In a model with window layers any token of the sequence moves its windows on; where sequences have streams, none else's
 * does. */
static flaw check_stream(ckv_llama *ckv, layer_view *layer, int32_t row, int64_t slot) {
	(void)row;
	bool other = layer->k_root->ne[2] > 1 && slot / layer->k_root->ne[1] != ckv->seen.seq;
	return other ? FLAW_NONE : FLAW_STALE;
}

static flaw check_cell(ckv_llama *ckv, layer_view *layer, int32_t row, int64_t slot) {
	(void)ckv;
	(void)row;
	for (int32_t t = 0; t < layer->n_tokens; t++) {
		if (layer->cells[t] == slot) {
			return FLAW_STALE;
		}
	}
	return FLAW_NONE;
}

/* ----------------------------------------------------------------------------------------------------- tokens, rotation */

/* The ids of our rows, where the policy's chunks go by the text. */
static flaw read_tokens(ckv_llama *ckv, int32_t position) {
	observation *seen = &ckv->seen;
	const struct ggml_tensor *ids = seen->now.token_ids;
	int32_t need = position + seen->now.n_rows;
	if (!(seen->needs & CKV_NEED_CHUNKS) || seen->now.n_rows == 0) {
		return FLAW_NONE;
	}
	if (need > seen->token_capacity) {
		int32_t capacity = need > 2 * seen->token_capacity ? need : 2 * seen->token_capacity;
		llama_token *bigger = ckv_llama_grow(ckv, seen->tokens, position, capacity, sizeof *bigger);
		if (!bigger) {
			return FLAW_MEMORY;
		}
		seen->tokens = bigger;
		seen->token_capacity = capacity;
	}
	for (int32_t i = 0; i < seen->now.n_rows; i++) {
		size_t row = (size_t)seen->now.rows[i];
		seen->tokens[position + i] = -1; /* a batch of embeddings has none */
		if (ids && ids->type == GGML_TYPE_I32 && row < (size_t)ids->ne[0]) {
			ggml_backend_tensor_get(ids, &seen->tokens[position + i], row * sizeof(int32_t), sizeof(int32_t));
		}
	}
	return FLAW_NONE;
}

/* The copy of a matrix, made when its size is new. */
static flaw copy_rotation(ckv_llama *ckv, const struct ggml_tensor *matrix, const rotation **out) {
	size_t n = matrix ? (size_t)matrix->ne[0] : 0, i = 0, most = sizeof ckv->seen.turned / sizeof *ckv->seen.turned;
	rotation *turned = ckv->seen.turned;
	*out = NULL;
	if (!matrix) {
		return FLAW_NONE;
	}
	while (i < most && turned[i].n && turned[i].n != (int32_t)n) {
		i++;
	}
	if (i == most) {
		return FLAW_LAYOUT;
	}
	if (!turned[i].n) {
		turned[i].data = ckv_llama_alloc(ckv, n * n, sizeof *turned[i].data);
		if (!turned[i].data) {
			return FLAW_MEMORY;
		}
		ggml_backend_tensor_get(matrix, turned[i].data, 0, n * n * sizeof *turned[i].data);
		turned[i].n = (int32_t)n;
	}
	*out = &turned[i];
	return FLAW_NONE;
}

/* Scorers that look at single channels want them as the model made them. The layer's writes were seen just before. */
static flaw read_rotations(ckv_llama *ckv, layer_view *layer) {
	const ubatch_view *now = &ckv->seen.now;
	if (!(ckv->seen.needs & (CKV_NEED_VALUES | CKV_NEED_MOMENTS)) || !now->k_write || !now->v_write) {
		return FLAW_NONE;
	}
	flaw found = copy_rotation(ckv, ckv_llama_find_rotation(now->k_write->src[0]), &layer->k_turned);
	return found ? found : copy_rotation(ckv, ckv_llama_find_rotation(now->v_write->src[0]), &layer->v_turned);
}

/* ------------------------------------------------------------------------------------------------------------ nodes */

/* Where the tokens of this ubatch went. */
static flaw read_write(ckv_llama *ckv, const struct ggml_tensor *node) {
	observation *seen = &ckv->seen;
	int64_t n = node->src[1]->ne[0];
	int32_t index = key_layer(node);
	layer_view *layer = find_layer(ckv, index);
	if (!layer || n > INT32_MAX / 4 || !grow_cells(ckv, layer, (int32_t)n) || !reserve_rows(ckv, (int32_t)n)) {
		return FLAW_MEMORY;
	}
	bool first = index <= seen->now.last_layer;
	flaw found = begin_ubatch(ckv, index, (int32_t)n);
	if (found) {
		return found;
	}
	layer->k_root = ckv_llama_root(node);
	layer->n_cells = layer->n_tokens;
	seen->now.n_rows = 0;
	found = visit_slots(ckv, layer, node, add_cell);
	layer->written = seen->now.n_rows > 0;
	return found || !first ? found : read_tokens(ckv, layer->n_tokens);
}

/* A write that is not observed: does it overwrite what was? */
static flaw read_foreign_write(ckv_llama *ckv, const struct ggml_tensor *node) {
	layer_view *layer = get_layer(ckv, key_layer(node));
	return layer ? visit_slots(ckv, layer, node, ckv->seen.sliding ? check_stream : check_cell) : FLAW_NONE;
}

static void fill_shape(layer_view *layer, const struct ggml_tensor *node) {
	const struct ggml_tensor *q = node->src[0], *k = node->src[1], *v = node->src[2];
	layer->k_root = ckv_llama_root(k);
	layer->v_root = ckv_llama_root(v);
	layer->n_heads = (int32_t)q->ne[2];
	layer->n_kv_heads = (int32_t)k->ne[2];
	layer->dim_k = (int32_t)k->ne[0];
	layer->dim_v = (int32_t)v->ne[0];
	ckv_llama_logit_params(node, &layer->scale, &layer->logit_cap);
	layer->sinks = node->src[4] != NULL;
}

/* Cells that our last query of the ubatch may see: mask 0. */
static flaw read_mask(ckv_llama *ckv, layer_view *layer, const struct ggml_tensor *mask, size_t in_stream) {
	const ubatch_view *now = &ckv->seen.now;
	if (!mask || mask->type != GGML_TYPE_F16) {
		return FLAW_LAYOUT;
	}
	size_t n_kv = (size_t)mask->ne[0], last = (size_t)now->rows[now->n_rows - 1];
	uint16_t *row = ckv_llama_alloc(ckv, n_kv, sizeof *row);
	if (!row) {
		return FLAW_MEMORY;
	}
	size_t from = last / in_stream * mask->nb[3] + last % in_stream * mask->nb[1];
	ggml_backend_tensor_get(mask, row, from, n_kv * sizeof *row);
	int32_t visible = 0;
	for (size_t i = 0; i < n_kv; i++) {
		visible += ckv_llama_visible(row[i]);
	}
	ckv_llama_release(ckv, row);
	layer->full = visible == layer->n_tokens + now->n_rows;
	return FLAW_NONE;
}

static flaw read_node(ckv_llama *ckv, const struct ggml_tensor *node) {
	observation *seen = &ckv->seen;
	const struct ggml_tensor *q = node->src[0];
	int32_t index = ckv_llama_cache_layer(ckv_llama_root(node->src[1]), "cache_k_l"), n = (int32_t)(q->ne[1] * q->ne[3]);
	float max_bias;
	memcpy(&max_bias, (const char *)node->op_params + sizeof(float), sizeof max_bias);
	if (index < 0 || ckv_llama_cache_layer(ckv_llama_root(node->src[2]), "cache_v_l") != index) {
		return FLAW_LAYOUT;
	}
	if (max_bias != 0.0f) {
		return FLAW_BIAS;
	}
	if (q->ne[3] != 1 && !seen->mine) {
		return FLAW_STREAMS;
	}
	layer_view *layer = get_layer(ckv, index);
	if (!layer || !layer->written) {
		/* A later layer that shares this one's cache adds nothing, nor does a ubatch of other sequences; a cache that
		 * nothing was written to is none of ours. */
		return layer ? FLAW_NONE : FLAW_LAYOUT;
	}
	if (n != seen->now.n_tokens || layer->n_cells != layer->n_tokens + seen->now.n_rows) {
		return FLAW_LAYOUT;
	}
	fill_shape(layer, node);
	flaw found = read_mask(ckv, layer, node->src[3], (size_t)q->ne[1]);
	found = found ? found : read_rotations(ckv, layer);
	found = found ? found : ckv_llama_read_queries(ckv, layer, node);
	layer->n_tokens += found ? 0 : seen->now.n_rows;
	layer->written = false;
	seen->now.attention = node;
	seen->now.pending = index;
	return found;
}

/* Adds up the cache tensors as a graph writes to them, layer after layer; the first layer starts anew. */
static void note_allocation(ckv_llama *ckv, const struct ggml_tensor *root) {
	int32_t layer = ckv_llama_cache_layer(root, "cache_k_l");
	if (layer >= 0) {
		ckv->alloc_sum = layer <= ckv->alloc_layer ? 0 : ckv->alloc_sum;
		ckv->alloc_layer = layer;
		ckv->alloc_sum += ggml_nbytes(root);
	} else if (ckv_llama_cache_layer(root, "cache_v_l") == ckv->alloc_layer) {
		ckv->alloc_sum += ggml_nbytes(root);
		if (ckv->alloc_layer >= ckv->alloc_top) { /* a graph that broke off tells nothing */
			ckv->alloc_top = ckv->alloc_layer;
			ckv->cache_alloc = ckv->alloc_sum;
		}
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

static bool joins_stream(const observation *seen, const struct ggml_tensor *node) {
	return (seen->needs & CKV_NEED_SIMILARITY) && seen->now.pending >= 0 && node->op == GGML_OP_ADD && node->ne[1] > 0 &&
	       ckv_llama_residual(node, seen->now.attention, seen->n_embd) >= 0;
}

/* Whether a cache tensor is of the context that is observed: another one of the same program may decode meanwhile. */
static bool is_ours(const observation *seen, const struct ggml_tensor *root) {
	int32_t index = ckv_llama_cache_layer(root, "cache_k_l");
	bool any = false;
	for (int32_t i = 0; i < seen->n_layers; i++) {
		const layer_view *layer = &seen->layers[i];
		any = any || layer->n_tokens > 0;
		if (layer->index == index && (layer->n_tokens > 0 || layer->written)) {
			return layer->k_root == root;
		}
	}
	return !any || seen->now.last_layer < index; /* the first ubatch is not through yet */
}

static bool wanted(const ckv_llama *ckv, const struct ggml_tensor *node) {
	const observation *seen = &ckv->seen;
	bool write = node->op == GGML_OP_SET_ROWS;
	if (seen->flaw) {
		return false;
	}
	if (seen->active && node->op == GGML_OP_FLASH_ATTN_EXT) {
		return is_ours(seen, ckv_llama_root(node->src[1]));
	}
	if (seen->active) {
		return (write && key_layer(node) >= 0 && is_ours(seen, ckv_llama_root(node))) || joins_stream(seen, node);
	}
	const layer_view *layer = write ? watched(seen) : NULL;
	return layer && layer->k_root == ckv_llama_root(node);
}

static flaw read_wanted(ckv_llama *ckv, const struct ggml_tensor *node) {
	observation *seen = &ckv->seen;
	if (!seen->active) {
		return read_foreign_write(ckv, node);
	}
	switch (node->op) {
	case GGML_OP_SET_ROWS: return read_write(ckv, node);
	case GGML_OP_FLASH_ATTN_EXT: return read_node(ckv, node);
	default: return ckv_llama_read_similarity(ckv, node);
	}
}

/* Nodes that are only remembered: they need not be computed one by one. */
static void remember(ckv_llama *ckv, const struct ggml_tensor *node) {
	ubatch_view *now = &ckv->seen.now;
	if (node->op == GGML_OP_GET_ROWS && node->src[1] && strstr(node->src[1]->name, "inp_tokens")) {
		/* It stands in the graph of a batch of embeddings too, but is not computed there. */
		now->token_ids = node->flags & GGML_TENSOR_FLAG_COMPUTE ? node->src[1] : NULL;
	} else if (node->op == GGML_OP_SET_ROWS) {
		note_allocation(ckv, ckv_llama_root(node));
		bool keys = key_layer(node) >= 0, values = ckv_llama_cache_layer(ckv_llama_root(node), "cache_v_l") >= 0;
		now->k_write = keys ? node : now->k_write;
		if (keys) {
			ckv_llama_host_note(ckv, node);
		}
		now->v_write = values ? node : now->v_write;
	}
}

/* Whoever hosts in this chain gives the node back first: nobody may see it with others' rows in it. */
static void take_hosts_off(ckv_llama *ckv, struct ggml_tensor *node) {
	for (ckv_llama *c = ckv; c; c = c->next == ckv_llama_eval ? c->next_user : NULL) {
		if (c->host_asked) {
			c->host_asked = false;
			ckv_llama_host_after(c, node);
		}
	}
}

static bool before(ckv_llama *ckv, struct ggml_tensor *node) {
	remember(ckv, node);
	ckv_llama_host_mend(ckv, node);
	bool hide = ckv_llama_hide_wants(ckv, node), want = wanted(ckv, node), host = ckv_llama_host_wants(ckv, node);
	if (hide) {
		ckv_llama_hide_before(ckv, node);
	}
	ckv->next_asked = ckv->next && ckv->next(node, true, ckv->next_user);
	ckv->host_asked = host;
	if (host) {
		ckv_llama_host_before(ckv, node);
	}
	return want || hide || host || ckv->next_asked;
}

bool ckv_llama_eval(struct ggml_tensor *tensor, bool ask, void *user) {
	ckv_llama *ckv = user;
	if (ask) {
		return before(ckv, tensor);
	}
	take_hosts_off(ckv, tensor);
	if (ckv->seen.active && tensor->op == GGML_OP_NONE && ckv_llama_is_attention(tensor)) {
		ckv->seen.flaw = FLAW_LAYOUT; /* a host that we don't reach, behind somebody else's callback */
	}
	if (wanted(ckv, tensor)) { /* with the mask as it was computed with */
		ckv->seen.flaw = read_wanted(ckv, tensor);
	}
	if (ckv_llama_hide_wants(ckv, tensor)) {
		ckv_llama_hide_after(ckv, tensor);
	}
	return ckv->next_asked ? ckv->next(tensor, false, ckv->next_user) : true;
}
