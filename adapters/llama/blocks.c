/* One-shot policies in blocks: everything that is there is compressed again and again, in place, and observed on. */
#include "adapters/llama/internal.h"

#include <string.h>

ckv_status ckv_llama_block_check(ckv_llama *ckv) {
	const ckv_params *p = ckv_ctx_params(ckv->core);
	ckv_needs needs;
	if (ckv_params_needs(p, &needs)) {
		return ckv_llama_fail(ckv, CKV_ERR_POLICY, "the policy's parameters are not usable");
	}
	bool hosted = ckv_params_hosted(p) || ckv->cache_kind == CKV_LLAMA_CACHE_HOSTED;
	const char *why = hosted                                      ? "a hosted cache is filled once"
	                  : strcmp(p->scorer, "none") == 0            ? "it never drops anything"
	                  : strcmp(p->layers, "uniform") != 0         ? "its layers would differ in length"
	                  : strcmp(p->selector, "adaptive_head") == 0 ? "its heads would differ in length"
	                  : p->reference                              ? "mode=reference does not keep to a budget"
	                  : (needs.flags & CKV_NEED_CHUNKS)           ? "its chunks would be those of a text with gaps"
	                  : ckv->bound.rotate                         ? "its keys can't be turned head by head (rotate)"
	                  : llama_n_seq_max(ckv->bound.ctx) > 1       ? "the context has room for other sequences"
	                                                              : NULL;
	return why ? ckv_llama_fail(ckv, CKV_ERR_UNSUPPORTED, "policy '%s' can't be used in blocks: %s", p->preset, why)
	           : CKV_OK;
}

/* Sums of attention go where their rows go: to the places of the kept ones, head by head. */
static void compact_mass(layer_view *layer, const layer_keep *keep) {
	for (int32_t g = 0; g < layer->n_kv_heads && layer->mass; g++) {
		int32_t list = keep->n_lists == 1 ? 0 : g;
		float *mass = layer->mass + (size_t)g * layer->mass_stride;
		for (int32_t i = 0; i < keep->n_keep; i++) {
			mass[i] = mass[keep->positions[keep->offsets[list] + i]];
		}
		memset(mass + keep->n_keep, 0, (layer->mass_stride - (size_t)keep->n_keep) * sizeof *mass);
	}
}

/* llama.cpp fills an empty cache from its first cell on. */
static void renumber(layer_view *layer, int32_t n) {
	int32_t gone = layer->n_tokens - n;
	for (int32_t i = 0; i < n; i++) {
		layer->cells[i] = i;
	}
	layer->evicted += gone;
	layer->n_tokens = layer->n_cells = n;
}

/* Window layers go on with the newest rows, wherever llama.cpp has put them: nothing of theirs is read any more. */
static void follow_rows(ckv_llama *ckv, int32_t n) {
	for (int32_t i = 0; i < ckv->seen.n_layers; i++) {
		layer_view *layer = &ckv->seen.layers[i];
		for (int32_t k = 0; k < ckv->n_kept; k++) {
			if (ckv->kept[k].layer == layer) {
				compact_mass(layer, &ckv->kept[k]);
			}
		}
		renumber(layer, n);
	}
	for (int32_t i = 0; i < n; i++) {
		ckv->bound.order[i] = i;
	}
}

ckv_status ckv_llama_block_evict(ckv_llama *ckv, int32_t n_keep) {
	bounded *b = &ckv->bound;
	int32_t window = llama_model_n_swa(llama_get_model(b->ctx)), before = b->n_rows;
	ckv_llama_report report = {.size = sizeof report};
	double start = 1e-6 * (double)ggml_time_us();
	uint64_t sum, expected;
	if (n_keep < 1 || n_keep < window) {
		return ckv_llama_fail(ckv, CKV_ERR_CAPACITY, "%d rows would be kept, fewer than the model's sliding window of %d",
		                      n_keep, window);
	}
	ckv_status status = ckv_llama_extract(ckv, b->ctx, b->seq, ckv_keep_tokens(n_keep), &report);
	if (status) {
		return status;
	}
	if (report.n_cells != n_keep) {
		ckv_llama_drop(ckv);
		return ckv_llama_fail(ckv, CKV_ERR_UNSUPPORTED, "policy '%s' kept %d rows of %d where %d were asked for (%s)",
		                      ckv_ctx_params(ckv->core)->preset, report.n_cells, before, n_keep,
		                      ckv_reason_text(report.reason));
	}
	size_t size = ckv->held.size;
	if (llama_state_seq_set_data(b->ctx, ckv->held.data, size, b->seq) != size) {
		return ckv_llama_fail(ckv, CKV_ERR_HOST, "llama.cpp did not take the kept rows back");
	}
	follow_rows(ckv, n_keep);
	status = ckv_llama_held_key_sum(ckv, &expected);
	status = status ? status : ckv_llama_sum_keys(ckv, &sum);
	ckv_llama_drop(ckv);
	if (status == CKV_OK && sum != expected) {
		status = ckv_llama_fail(ckv, CKV_ERR_HOST, "llama.cpp put the kept rows elsewhere than was expected");
	}
	b->n_rows = n_keep;
	b->report.n_evicted += before - n_keep;
	b->report.n_evictions++;
	b->report.score_s += report.score_s;
	b->report.move_s += 1e-6 * (double)ggml_time_us() - start - report.score_s;
	return status;
}
