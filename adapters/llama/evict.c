/* Keepers: what they are shown, and what is done when they let rows go.
 *
 * All layers have the same cells, so all must lose equally many at once. The m cells of the lowest labels are given back to
 * llama.cpp; in each layer the rows in them that stay move into the cells of its own victims. The labels that are left are
 * the newest ones, without gaps, as the causal mask and the next position want it. */
#include "adapters/llama/internal.h"

#include <string.h>

static double now(void) { return 1e-6 * (double)ggml_time_us(); }

static ckv_status failed(ckv_llama *ckv, ckv_status status, const ckv_keeper *keeper) {
	return ckv_llama_fail(ckv, status, "%s", ckv_keeper_message(keeper));
}

void ckv_llama_keepers_free(ckv_llama *ckv) {
	bounded *b = &ckv->bound;
	for (int32_t i = 0; i < b->n_keepers; i++) {
		ckv_keeper_free(b->keepers[i]);
	}
	ckv_llama_release(ckv, b->keepers);
	b->keepers = NULL;
	b->n_keepers = 0;
}

ckv_status ckv_llama_keepers_pin(ckv_llama *ckv, ckv_keeper *keeper) {
	ckv_status status = CKV_OK;
	for (int32_t i = 0; i < ckv->bound.n_pins && status == CKV_OK; i++) {
		status = ckv_keeper_pin(keeper, ckv->bound.pins[i].first, ckv->bound.pins[i].end);
	}
	return status;
}

ckv_status ckv_llama_make_keeper(ckv_llama *ckv, ckv_keeper **keeper) {
	ckv_ctx_options options;
	ckv_ctx_options_default(&options);
	options.allocator = &ckv->allocator;
	options.n_threads = ckv->n_threads;
	options.cpu_disable = ckv->cpu_disable;
	return ckv_keeper_create(keeper, &ckv->bound.params, &options, &ckv->error);
}

/* One for each layer, once the first piece has shown how many there are. */
static ckv_status make_keepers(ckv_llama *ckv) {
	bounded *b = &ckv->bound;
	int32_t n = ckv->seen.n_layers;
	if (b->keepers) {
		return b->n_keepers == n ? CKV_OK
		                         : ckv_llama_fail(ckv, CKV_ERR_STATE, "layers have come that were not there before");
	}
	b->keepers = ckv_llama_alloc(ckv, (size_t)n, sizeof(void *));
	ckv_status status = b->keepers ? CKV_OK : CKV_ERR_NOMEM;
	for (int32_t i = 0; i < n && status == CKV_OK; i++) {
		status = ckv_llama_make_keeper(ckv, &b->keepers[i]);
		b->n_keepers += status == CKV_OK;
		status = status ? status : ckv_llama_keepers_pin(ckv, b->keepers[i]);
	}
	return status ? ckv_llama_fail(ckv, status, "no memory to keep account of %d layers", n) : CKV_OK;
}

ckv_status ckv_llama_keepers_adopt(ckv_llama *ckv, ckv_keeper *const *from, int32_t n) {
	ckv_stream_rows rows;
	ckv_status status = make_keepers(ckv);
	for (int32_t i = 0; i < n && status == CKV_OK; i++) {
		if (!ckv_llama_is_sliding(ckv, &ckv->seen.layers[i])) {
			ckv_keeper *keeper = ckv->bound.keepers[i];
			ckv_keeper_rows(from[i], &rows);
			status = ckv_keeper_adopt(keeper, rows.positions, rows.n, ckv_keeper_seen(from[i]));
			status = status ? status : ckv_llama_keepers_pin(ckv, keeper);
			status = status ? failed(ckv, status, keeper) : CKV_OK;
		}
	}
	return status;
}

/* Queries of the newest m tokens, from the ring. */
static ckv_view ring_view(const ckv_llama *ckv, const layer_view *layer, int32_t m) {
	const bounded *b = &ckv->bound;
	int32_t window = ckv->seen.window, seen = layer->n_tokens + layer->evicted;
	size_t dim = (size_t)layer->dim_k, row = (size_t)layer->n_heads * dim;
	for (int32_t i = 0; i < m; i++) {
		memcpy(b->floats + (size_t)i * row, layer->queries + (size_t)((seen - m + i) % window) * row, row * sizeof(float));
	}
	return (ckv_view){.data = b->floats,
	                  .dtype = CKV_F32,
	                  .n_heads = layer->n_heads,
	                  .n_tokens = m,
	                  .head_dim = layer->dim_k,
	                  .stride_head = dim * sizeof(float),
	                  .stride_token = row * sizeof(float)};
}

static bool reserve_floats(ckv_llama *ckv, size_t count) {
	void *memory = ckv->bound.floats;
	bool room = ckv_llama_reserve(ckv, &memory, &ckv->bound.floats_size, count, sizeof(float));
	ckv->bound.floats = memory;
	return room;
}

/* One layer's keys, and the queries of the newest m tokens, to its keeper. */
static ckv_status show(ckv_llama *ckv, const layer_view *layer, ckv_keeper *keeper, int32_t m) {
	host_rows keys;
	row_reader reader = {.turned = NULL}; /* queries are turned as keys are: logits and lengths are the same */
	ckv_layer view;
	ckv_layer_init(&view);
	view.index = layer->index;
	view.scale = layer->scale;
	view.logit_cap = layer->logit_cap;
	if (m > 0) {
		if (!reserve_floats(ckv, (size_t)m * (size_t)layer->n_heads * (size_t)layer->dim_k)) {
			return ckv_llama_fail(ckv, CKV_ERR_NOMEM, "no memory for %d queries", m);
		}
		view.q = ring_view(ckv, layer, m);
	}
	ckv_status status = ckv_llama_rows(ckv, layer, layer->k_root, &keys);
	if (status) {
		return status;
	}
	status =
	    ckv_llama_view(ckv, layer->k_root->type, &keys, layer->n_kv_heads, layer->n_tokens, layer->dim_k, &reader, &view.k);
	if (status == CKV_OK) {
		status = ckv_keeper_observe(keeper, &view);
		status = status ? failed(ckv, status, keeper) : CKV_OK;
	}
	ckv_llama_rows_free(ckv, &keys);
	return status;
}

/* Layers that take another's decisions are not scored. */
static bool leads(const ckv_llama *ckv, int32_t number) { return number % ckv->bound.params.reuse == 0; }

ckv_status ckv_llama_keepers_observe(ckv_llama *ckv) {
	bounded *b = &ckv->bound;
	ckv_needs needs = ckv_keeper_needs(&b->params);
	bool keys_alone = needs.n_queries == 0;
	/* The window of queries as far as it was seen; of those that add up, each once. */
	int32_t m = strcmp(b->params.scorer, "attn_mass") == 0 ? b->unshown : needs.n_queries;
	int32_t have = b->n_seen - ckv->seen.queries_from;
	double start = now();
	ckv_status status = CKV_OK;
	m = m < needs.n_queries ? m : needs.n_queries;
	m = m < have ? m : have;
	if (strcmp(b->params.scorer, "streaming") != 0 && (m > 0 || keys_alone)) {
		for (int32_t i = 0, number = 0; i < b->n_keepers && status == CKV_OK; i++) {
			const layer_view *layer = &ckv->seen.layers[i];
			if (!ckv_llama_is_sliding(ckv, layer) && leads(ckv, number++)) {
				status = show(ckv, layer, b->keepers[i], m);
			}
		}
	}
	b->unshown = 0;
	b->report.score_s += now() - start;
	return status;
}

ckv_status ckv_llama_keepers_append(ckv_llama *ckv, int32_t n) {
	bounded *b = &ckv->bound;
	ckv_status status = make_keepers(ckv);
	for (int32_t i = 0; i < b->n_keepers && status == CKV_OK; i++) {
		if (!ckv_llama_is_sliding(ckv, &ckv->seen.layers[i])) {
			status = ckv_keeper_append(b->keepers[i], n);
			status = status ? failed(ckv, status, b->keepers[i]) : CKV_OK;
		}
	}
	b->unshown += n;
	/* Sums lack what is lost from the ring, so what is in it is shown before it is overwritten. */
	bool adds = strcmp(b->params.scorer, "attn_mass") == 0;
	return status == CKV_OK && adds && b->unshown >= ckv->seen.window ? ckv_llama_keepers_observe(ckv) : status;
}

/* ----------------------------------------------------------------------------------------------------------- eviction */

static bool reserve_ints(ckv_llama *ckv, int32_t **array, size_t *size, int32_t n) {
	void *memory = *array;
	bool room = ckv_llama_reserve(ckv, &memory, size, (size_t)n, sizeof **array);
	*array = memory;
	return room;
}

/* Marks the cells that will be given back. */
static ckv_status mark_cells(ckv_llama *ckv, const struct ggml_tensor *root, int32_t n) {
	bounded *b = &ckv->bound;
	size_t cells = (size_t)root->ne[1] * (size_t)root->ne[2];
	void *marks = b->marks;
	bool room = ckv_llama_reserve(ckv, &marks, &b->marks_size, cells, 1);
	b->marks = marks;
	if (!room || !reserve_ints(ckv, &b->victims, &b->victims_size, b->n_rows) ||
	    !reserve_ints(ckv, &b->leading, &b->leading_size, b->n_rows)) {
		return ckv_llama_fail(ckv, CKV_ERR_NOMEM, "no memory for a list of rows");
	}
	memset(b->marks, 0, cells);
	for (int32_t i = 0; i < n; i++) {
		b->marks[b->order[i]] = 1;
	}
	return CKV_OK;
}

/* How many go: whole chunks, at least `least`, about `most`, no more than every layer can do without. */
static ckv_status choose_number(ckv_llama *ckv, int32_t least, int32_t most, int32_t *n) {
	bounded *b = &ckv->bound;
	int32_t can = b->n_rows, chunk = strcmp(b->params.scorer, "streaming") == 0 ? 1 : b->params.chunk;
	const ckv_keeper *tightest = NULL;
	int32_t window = llama_model_n_swa(llama_get_model(b->ctx));
	for (int32_t i = 0; i < b->n_keepers; i++) {
		if (!ckv_llama_is_sliding(ckv, &ckv->seen.layers[i])) {
			int32_t own = ckv_keeper_evictable(b->keepers[i]);
			tightest = own < can ? b->keepers[i] : tightest;
			can = own < can ? own : can;
		}
	}
	/* What llama.cpp forgets of its window layers follows the labels. */
	can = window > 0 && can > b->n_rows - window ? b->n_rows - window : can;
	*n = (most + chunk - 1) / chunk * chunk;
	*n = *n < can ? *n : can;
	if (*n < least) {
		return ckv_llama_fail(
		    ckv, CKV_ERR_CAPACITY,
		    "%d rows must go for the next tokens, but only %d of %d may: the others are first tokens, pinned, "
		    "the newest%s; take a larger budget",
		    least, *n, b->n_rows, window > 0 ? ", or in the model's sliding window" : "");
	}
	return CKV_OK;
}

/* A layer's list of cells without its victims. Window layers lose their oldest: llama.cpp has overwritten them, or takes
 * them back now. */
static void forget_rows(layer_view *layer, const int32_t *victims, int32_t n) {
	int32_t to = 0;
	n = n < layer->n_tokens ? n : layer->n_tokens;
	for (int32_t i = 0, next = 0; i < layer->n_tokens; i++) {
		bool gone = victims ? next < n && victims[next] == i : i < n;
		next += gone;
		if (!gone) {
			layer->cells[to++] = layer->cells[i];
		}
	}
	layer->evicted += layer->n_tokens - to;
	layer->n_tokens = layer->n_cells = to;
}

static ckv_status evict_layer(ckv_llama *ckv, int32_t i, int32_t number, int32_t n) {
	bounded *b = &ckv->bound;
	layer_view *layer = &ckv->seen.layers[i];
	ckv_keeper *keeper = b->keepers[i];
	ckv_status status;
	if (leads(ckv, number)) {
		status = ckv_keeper_evict(keeper, n, b->leading);
	} else {
		status = ckv_keeper_drop(keeper, b->leading, n);
	}
	if (status) {
		return failed(ckv, status, keeper);
	}
	memcpy(b->victims, b->leading, (size_t)n * sizeof *b->victims);
	if (b->rotate) {
		double start = now();
		status = ckv_llama_close_gaps(ckv, layer, b->victims, n);
		b->report.turn_s += now() - start;
		b->report.move_s -= now() - start;
	}
	status = status ? status : ckv_llama_move_rows(ckv, layer, b->victims, n);
	if (status == CKV_OK) {
		forget_rows(layer, b->victims, n);
	}
	return status;
}

/* Gives the cells of the n lowest labels back. */
static ckv_status free_cells(ckv_llama *ckv, int32_t n) {
	bounded *b = &ckv->bound;
	if (!llama_memory_seq_rm(llama_get_memory(b->ctx), b->seq, -1, b->n_seen - b->n_rows + n)) {
		return ckv_llama_fail(ckv, CKV_ERR_HOST, "llama.cpp did not give back %d cells of sequence %d", n, b->seq);
	}
	memmove(b->order, b->order + n, (size_t)(b->n_rows - n) * sizeof *b->order);
	b->n_rows -= n;
	b->report.n_evicted += n;
	b->report.n_evictions++;
	return CKV_OK;
}

ckv_status ckv_llama_keepers_evict(ckv_llama *ckv, int32_t least, int32_t most) {
	bounded *b = &ckv->bound;
	const layer_view *full = ckv_llama_evicting_layer(ckv, 0);
	int32_t n;
	if (!full || !full->v_root) {
		return ckv_llama_fail(ckv, CKV_ERR_UNSUPPORTED, "no layer of this model sees the whole sequence");
	}
	ckv_status status = choose_number(ckv, least, most, &n);
	status = status ? status : ckv_llama_keepers_observe(ckv);
	double start = now();
	status = status ? status : mark_cells(ckv, full->k_root, n);
	if (status) {
		return status;
	}
	for (int32_t i = 0, number = 0; i < b->n_keepers && status == CKV_OK; i++) {
		if (ckv_llama_is_sliding(ckv, &ckv->seen.layers[i])) {
			forget_rows(&ckv->seen.layers[i], NULL, n);
		} else {
			status = evict_layer(ckv, i, number++, n);
		}
	}
	status = status ? status : free_cells(ckv, n);
	b->broken = b->broken || status != CKV_OK;
	b->report.move_s += now() - start;
	return status;
}
