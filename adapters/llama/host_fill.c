/* The kept rows of a prompt, out of llama.cpp's cache into one of our own. */
#include "adapters/llama/internal.h"

#include <string.h>

/* What of a layer goes over: its lists, without the last token where that will be decoded again. */
typedef struct lists {
	ckv_keep keep;
	int32_t *positions, *offsets;
} lists;

static ckv_status no_memory(ckv_llama *ckv) { return ckv_llama_fail(ckv, CKV_ERR_NOMEM, "no memory for the kept rows"); }

static void lists_free(ckv_llama *ckv, lists *l) {
	ckv_llama_release(ckv, l->positions);
	ckv_llama_release(ckv, l->offsets);
}

static ckv_status lists_make(ckv_llama *ckv, const layer_keep *from, int32_t n_tokens, lists *l) {
	size_t n_lists = (size_t)from->n_lists;
	memset(l, 0, sizeof *l);
	l->positions = ckv_llama_alloc(ckv, (size_t)from->offsets[n_lists], sizeof *l->positions);
	l->offsets = ckv_llama_alloc(ckv, n_lists + 1, sizeof *l->offsets);
	if (!l->positions || !l->offsets) {
		return no_memory(ckv);
	}
	int32_t n = 0, longest = 0;
	l->offsets[0] = 0;
	for (size_t list = 0; list < n_lists; list++) {
		for (int32_t i = from->offsets[list]; i < from->offsets[list + 1]; i++) {
			if (from->positions[i] < n_tokens) {
				l->positions[n++] = from->positions[i];
			}
		}
		l->offsets[list + 1] = n;
		longest = n - l->offsets[list] > longest ? n - l->offsets[list] : longest;
	}
	ckv_keep_init(&l->keep, l->positions, (size_t)n, l->offsets);
	l->keep.n_lists = from->n_lists;
	l->keep.n_positions = (size_t)n;
	l->keep.n_keep = longest;
	return CKV_OK;
}

/* ------------------------------------------------------------------------------------------------------------ layers */

static ckv_status merge(ckv_llama *ckv, const ckv_layer *layer, const lists *l, float **values) {
	const ckv_merge *how = &ckv_ctx_params(ckv->core)->merge;
	size_t rows = l->keep.n_positions * (l->keep.n_lists == 1 ? (size_t)layer->v.n_heads : 1);
	*values = NULL;
	if (strcmp(how->preset, "none") == 0) {
		return CKV_OK;
	}
	*values = ckv_llama_alloc(ckv, rows, (size_t)layer->v.head_dim * sizeof **values);
	if (!*values) {
		return no_memory(ckv);
	}
	ckv_status status = ckv_merge_kept(ckv->core, layer, &l->keep, how, *values);
	return status ? ckv_llama_fail(ckv, status, "%s", ckv_ctx_message(ckv->core)) : CKV_OK;
}

static ckv_status load_layer(ckv_llama *ckv, const host_plan *plan, int32_t number, ckv_cache *cache) {
	layer_input in;
	lists l;
	float *merged = NULL;
	ckv_status status =
	    ckv_llama_layer(ckv, plan->keep[number].layer, ckv->seen.needs | CKV_NEED_VALUES, plan->queries, &in);
	if (status) {
		return status;
	}
	in.layer.k.n_tokens = in.layer.v.n_tokens = plan->n_tokens; /* a token that is decoded again is none of them */
	status = lists_make(ckv, &plan->keep[number], plan->n_tokens, &l);
	status = status ? status : merge(ckv, &in.layer, &l, &merged);
	if (status == CKV_OK) {
		status = ckv_cache_load(cache, number, &in.layer.k, &in.layer.v, &l.keep, merged);
		status = status ? ckv_llama_fail(ckv, status, "%s", ckv_cache_message(cache)) : CKV_OK;
	}
	ckv_llama_release(ckv, merged);
	lists_free(ckv, &l);
	ckv_llama_layer_free(ckv, &in);
	return status;
}

bool ckv_llama_hostable(const layer_view *layer) {
	return !layer->sinks && layer->k_root->type == GGML_TYPE_F16 && layer->v_root->type == GGML_TYPE_F16;
}

ckv_status ckv_llama_host_can(ckv_llama *ckv, const layer_view *layer) {
	if (ckv_llama_hostable(layer)) {
		return CKV_OK;
	}
	if (layer->sinks) {
		return ckv_llama_fail(ckv, CKV_ERR_UNSUPPORTED,
		                      "layer %d has attention sinks of its own, which a hosted cache does not know", layer->index);
	}
	return ckv_llama_fail(
	    ckv, CKV_ERR_UNSUPPORTED,
	    "a hosted cache takes rows from a cache of type f16, this one is %s: rows are packed by the policy "
	    "(+kivi4), not by llama.cpp",
	    ggml_type_name(layer->k_root->type));
}

ckv_status ckv_llama_held_make(ckv_llama *ckv, int32_t n_layers, held_cache *held) {
	*held = (held_cache){.n_layers = n_layers};
	held->layers = ckv_llama_alloc(ckv, (size_t)n_layers, sizeof *held->layers);
	held->shapes = ckv_llama_alloc(ckv, (size_t)n_layers, sizeof *held->shapes);
	if (held->layers && held->shapes) {
		return CKV_OK;
	}
	ckv_llama_held_free(ckv, held);
	no_memory(ckv);
	return CKV_ERR_NOMEM;
}

void ckv_llama_held_free(ckv_llama *ckv, held_cache *held) {
	ckv_cache_free(held->rows);
	ckv_llama_release(ckv, held->layers);
	ckv_llama_release(ckv, held->shapes);
	*held = (held_cache){.rows = NULL};
}

static ckv_status make_cache(ckv_llama *ckv, const host_plan *plan, held_cache *held) {
	for (int32_t i = 0; i < plan->n_layers; i++) {
		const layer_view *layer = plan->keep[i].layer;
		held->layers[i] = layer->index;
		held->shapes[i] = (ckv_stream_shape){layer->n_kv_heads, layer->dim_k, layer->dim_v};
		ckv_status status = ckv_llama_host_can(ckv, layer);
		if (status) {
			return status;
		}
	}
	ckv_ctx_options options;
	ckv_ctx_options_default(&options);
	options.allocator = &ckv->allocator;
	options.cpu_disable = ckv->cpu_disable;
	options.n_threads = ckv->n_threads;
	const ckv_codec *codec = &ckv_ctx_params(ckv->core)->codec;
	return ckv_cache_create(&held->rows, codec, held->shapes, plan->n_layers, &options, &ckv->error);
}

/* ------------------------------------------------------------------------------------------------------------- state */

/* llama.cpp's part: one cell, which says where the sequence ends, and the sliding-window layers. */
static ckv_status write_state(ckv_llama *ckv, struct llama_context *ctx, const host_plan *plan) {
	int32_t last = plan->n_tokens - 1, offsets[2] = {0, 1};
	layer_keep *one = ckv_llama_alloc(ckv, (size_t)plan->n_layers, sizeof *one);
	if (!one) {
		return no_memory(ckv);
	}
	for (int32_t i = 0; i < plan->n_layers; i++) {
		one[i] =
		    (layer_keep){.layer = plan->keep[i].layer, .positions = &last, .offsets = offsets, .n_lists = 1, .n_keep = 1};
	}
	const state_plan state = {.keep = one,
	                          .n_layers = plan->n_layers,
	                          .sliding = plan->sliding,
	                          .n_tokens = plan->n_tokens,
	                          .n_seen = plan->n_seen,
	                          .n_cells = 1};
	ckv_status status = ckv_llama_state_write(ckv, ctx, &state);
	ckv_llama_release(ckv, one);
	return status;
}

static ckv_status nothing_left(ckv_llama *ckv) {
	return ckv_llama_fail(ckv, CKV_ERR_UNSUPPORTED,
	                      "the budget holds the last token alone, and nothing is left without it: keep two tokens or more");
}

ckv_status ckv_llama_host_fill(ckv_llama *ckv, struct llama_context *ctx, const host_plan *plan, bool but_last) {
	held_cache held;
	if (plan->n_tokens < 1) {
		return nothing_left(ckv);
	}
	ckv_status status = ckv_llama_held_make(ckv, plan->n_layers, &held);
	if (status) {
		return status;
	}
	status = make_cache(ckv, plan, &held);
	for (int32_t i = 0; i < plan->n_layers && status == CKV_OK; i++) {
		status = load_layer(ckv, plan, i, held.rows);
	}
	ckv_cache_info info = {.size = sizeof info};
	if (status == CKV_OK && ckv_cache_get_info(held.rows, -1, &info) == CKV_OK && info.rows == 0) {
		status = nothing_left(ckv);
	}
	status = status ? status : write_state(ckv, ctx, plan);
	if (status) {
		ckv_llama_held_free(ckv, &held);
		return status;
	}
	held.n_seen = plan->n_seen;
	ckv->held.cache = held;
	ckv->held.redo = but_last ? plan->n_seen : -1;
	return CKV_OK;
}
