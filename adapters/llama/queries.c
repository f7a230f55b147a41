/* What is taken from a ubatch's queries: the last ones for the window, the moments of all before RoPE, the attention of all.
 *
 * None of it grows with T x T: a ring, sums of d x d for each head, sums of T for each KV head. */
#include "adapters/llama/internal.h"

#include <string.h>

/* Bytes from the tensor's start to a row's first head. */
static size_t row_at(const struct ggml_tensor *q, int32_t row) {
	size_t in_stream = (size_t)q->ne[1], r = (size_t)row;
	return r / in_stream * q->nb[3] + r % in_stream * q->nb[1];
}

/* All heads of one row to out[n_heads][dim]. */
static void get_row(const struct ggml_tensor *q, const layer_view *layer, int32_t row, float *out) {
	size_t heads = (size_t)layer->n_heads, size = (size_t)layer->dim_k * sizeof *out, from = row_at(q, row);
	if (q->nb[2] == size) {
		ggml_backend_tensor_get(q, out, from, heads * size);
		return;
	}
	for (size_t h = 0; h < heads; h++) {
		ggml_backend_tensor_get(q, (char *)out + h * size, from + h * q->nb[2], size);
	}
}

/* The last `window` of our rows into the ring. */
static flaw fill_ring(ckv_llama *ckv, layer_view *layer, const struct ggml_tensor *q) {
	const ubatch_view *now = &ckv->seen.now;
	int32_t window = ckv->seen.window, n = now->n_rows;
	size_t row = (size_t)layer->n_heads * (size_t)layer->dim_k;
	if (window == 0) {
		return FLAW_NONE;
	}
	if (!layer->queries) {
		layer->queries = ckv_llama_alloc(ckv, (size_t)window * row, sizeof *layer->queries);
		if (!layer->queries) {
			return FLAW_MEMORY;
		}
	}
	for (int32_t i = n > window ? n - window : 0; i < n; i++) {
		get_row(q, layer, now->rows[i], layer->queries + (size_t)((layer->n_tokens + layer->evicted + i) % window) * row);
	}
	return FLAW_NONE;
}

/* All of our rows, token after token, into the scratch block. */
static flaw copy_block(ckv_llama *ckv, const layer_view *layer, const struct ggml_tensor *q) {
	observation *seen = &ckv->seen;
	size_t row = (size_t)layer->n_heads * (size_t)layer->dim_k;
	void *block = seen->block;
	bool room = ckv_llama_reserve(ckv, &block, &seen->block_size, (size_t)seen->now.n_rows * row, sizeof *seen->block);
	seen->block = block;
	for (int32_t i = 0; i < seen->now.n_rows && room; i++) {
		get_row(q, layer, seen->now.rows[i], seen->block + (size_t)i * row);
	}
	return room ? FLAW_NONE : FLAW_MEMORY;
}

/* View of rows first .. of the block as [heads][n][dim]. */
static ckv_view block_view(const ckv_llama *ckv, const layer_view *layer, int32_t first) {
	size_t dim = (size_t)layer->dim_k, row = (size_t)layer->n_heads * dim;
	return (ckv_view){.data = ckv->seen.block + (size_t)first * row,
	                  .dtype = CKV_F32,
	                  .n_heads = layer->n_heads,
	                  .n_tokens = ckv->seen.now.n_rows - first,
	                  .head_dim = layer->dim_k,
	                  .stride_head = dim * sizeof(float),
	                  .stride_token = row * sizeof(float)};
}

/* Arrays of one float for each cell, made once: a sequence can't have more tokens than cells. */
static flaw reserve_tokens(ckv_llama *ckv, layer_view *layer, float **array, size_t heads) {
	size_t cells = (size_t)layer->k_root->ne[1];
	if (*array) {
		return (size_t)layer->n_tokens + (size_t)ckv->seen.now.n_rows <= layer->mass_stride ? FLAW_NONE : FLAW_LAYOUT;
	}
	layer->mass_stride = cells;
	*array = ckv_llama_alloc(ckv, heads * cells, sizeof **array);
	if (*array) {
		memset(*array, 0, heads * cells * sizeof **array);
	}
	return *array ? FLAW_NONE : FLAW_MEMORY;
}

static flaw add_mass(ckv_llama *ckv, layer_view *layer) {
	host_rows keys;
	row_reader reader = {.turned = NULL}; /* queries are turned as keys are: the logits are the same */
	ckv_layer view;
	flaw found = reserve_tokens(ckv, layer, &layer->mass, (size_t)layer->n_kv_heads);
	if (found) {
		return found;
	}
	ckv_layer_init(&view);
	view.index = layer->index;
	view.scale = layer->scale;
	view.logit_cap = layer->logit_cap;
	view.q = block_view(ckv, layer, 0);
	layer->n_tokens += ckv->seen.now.n_rows; /* the keys of this ubatch are in the cache already */
	ckv_status status = ckv_llama_rows(ckv, layer, layer->k_root, &keys);
	if (status == CKV_OK) {
		status = ckv_llama_view(ckv, layer->k_root->type, &keys, layer->n_kv_heads, layer->n_tokens, layer->dim_k, &reader,
		                        &view.k);
		if (status == CKV_OK) {
			status = ckv_mass_add(ckv->core, &view, layer->mass, layer->mass_stride);
			if (status) {
				ckv_llama_fail(ckv, status, "%s", ckv_ctx_message(ckv->core));
			}
		}
		ckv_llama_rows_free(ckv, &keys);
	}
	layer->n_tokens -= ckv->seen.now.n_rows;
	ckv->seen.error = ckv->error;
	return status ? FLAW_CORE : FLAW_NONE;
}

/* Undoes the cache's rotation and RoPE in the block: what is left is the query as the model projected it. */
static void turn_back(ckv_llama *ckv, const layer_view *layer, int32_t first) {
	size_t dim = (size_t)layer->dim_k, heads = (size_t)layer->n_heads;
	float gain = layer->rope.gain != 0.0f ? 1.0f / layer->rope.gain : 1.0f;
	for (int32_t i = first; i < ckv->seen.now.n_rows; i++) {
		float *row = ckv->seen.block + (size_t)i * heads * dim;
		ckv_llama_turn_back(layer->k_turned, row, heads * dim);
		ckv_rope_turn_rows(&layer->rope, -(layer->n_tokens + layer->evicted + i), gain, row, heads, dim);
	}
}

static flaw add_moments(ckv_llama *ckv, layer_view *layer, const struct ggml_tensor *q) {
	int32_t first = ckv->seen.sinks - layer->n_tokens - layer->evicted; /* the policy's first tokens are not counted */
	flaw found = ckv_llama_read_rope(ckv, layer, q);
	first = first > 0 ? first : 0;
	if (found || first >= ckv->seen.now.n_rows) {
		return found;
	}
	if (!layer->moments) {
		ckv_ctx_options options;
		ckv_ctx_options_default(&options);
		options.allocator = &ckv->allocator;
		if (ckv_moments_create(&layer->moments, layer->n_heads, layer->dim_k, &options)) {
			return FLAW_MEMORY;
		}
	}
	turn_back(ckv, layer, first);
	ckv_view view = block_view(ckv, layer, first);
	return ckv_moments_add(layer->moments, &view) ? FLAW_LAYOUT : FLAW_NONE;
}

flaw ckv_llama_read_queries(ckv_llama *ckv, layer_view *layer, const struct ggml_tensor *node) {
	const struct ggml_tensor *q = node->src[0];
	uint32_t needs = ckv->seen.needs;
	if (ckv->seen.ropes) {
		flaw found = ckv_llama_read_rope(ckv, layer, q);
		if (found) {
			return found;
		}
	}
	if (!(needs & (CKV_NEED_QUERIES | CKV_NEED_MASS | CKV_NEED_MOMENTS))) {
		return FLAW_NONE;
	}
	if (q->type != GGML_TYPE_F32 || q->nb[0] != sizeof(float)) {
		return FLAW_LAYOUT;
	}
	flaw found = fill_ring(ckv, layer, q);
	/* Layers with a window are not compressed: their sums would be for nothing. */
	if (found || !layer->full || !(needs & (CKV_NEED_MASS | CKV_NEED_MOMENTS))) {
		return found;
	}
	found = copy_block(ckv, layer, q);
	if (found == FLAW_NONE && (needs & CKV_NEED_MASS)) {
		found = add_mass(ckv, layer);
	}
	/* Last: it changes the block. */
	return found || !(needs & CKV_NEED_MOMENTS) ? found : add_moments(ckv, layer, q);
}
