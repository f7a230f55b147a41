/* From an observed sequence to kept rows, and back into a context. */
#include "adapters/llama/internal.h"

#include <string.h>

static double now(void) { return 1e-6 * (double)ggml_time_us(); }

/* One compression in the making. */
typedef struct job {
	ckv_llama *ckv;
	struct llama_context *ctx;
	ckv_budget budget;
	int32_t n_tokens, n_layers; /* layers that are compressed */
	bool sliding;               /* and others with a window, left alone */
	layer_keep *keep;           /* [n_layers] */
	float *queries;
	ckv_reason reason;
	double attention;
	int32_t n_attention;
} job;

static ckv_status check_observed(job *j, llama_seq_id seq) {
	ckv_llama *ckv = j->ckv;
	const observation *seen = &ckv->seen;
	if (seen->ctx != j->ctx || seen->memory != (const void *)llama_get_memory(j->ctx) || seen->seq != seq || seen->active) {
		return ckv_llama_fail(
		    ckv, CKV_ERR_STATE,
		    "sequence %d of this context was not observed: use ckv_llama_prefill, once for each compression", seq);
	}
	switch (seen->flaw) {
	case FLAW_NONE: break;
	case FLAW_MEMORY: return ckv_llama_fail(ckv, CKV_ERR_NOMEM, "there was no memory to observe the prompt");
	case FLAW_LAYOUT:
		return ckv_llama_fail(ckv, CKV_ERR_UNSUPPORTED,
		                      "an attention layer of this model has no plain K and V cache "
		                      "(latent attention, or a cache type of f32)");
	case FLAW_BIAS:
		return ckv_llama_fail(ckv, CKV_ERR_UNSUPPORTED,
		                      "this model biases attention by distance (ALiBi), which needs the true positions");
	case FLAW_STALE:
		return ckv_llama_fail(ckv, CKV_ERR_STATE,
		                      "tokens that were not observed have since been decoded over rows of sequence %d", seq);
	case FLAW_STREAMS: return ckv_llama_fail(ckv, CKV_ERR_STATE, "a batch held several sequences while one was observed");
	}
	bool attention = false;
	for (int32_t i = 0; i < seen->n_layers; i++) {
		attention = attention || seen->layers[i].k_root;
	}
	if (!attention) {
		return ckv_llama_fail(ckv, CKV_ERR_UNSUPPORTED,
		                      "no attention node was seen: flash attention is off, or the context was made "
		                      "without ckv_llama_attach");
	}
	j->n_tokens = llama_memory_seq_pos_max(llama_get_memory(j->ctx), seq) + 1;
	if (j->n_tokens < 1 || ckv_llama_observed_tokens(ckv) != j->n_tokens) {
		return ckv_llama_fail(ckv, CKV_ERR_STATE, "sequence %d has %d tokens, of which %d were observed", seq, j->n_tokens,
		                      ckv_llama_observed_tokens(ckv));
	}
	int32_t fresh = j->n_tokens - seen->queries_from;
	if (seen->queries_from > 0 && fresh < seen->window) {
		return ckv_llama_fail(ckv, CKV_ERR_STATE,
		                      "after tokens were taken back %d new ones were observed; the window needs %d", fresh,
		                      seen->window);
	}
	return CKV_OK;
}

/* Which layers are compressed: those that see every token. */
static ckv_status find_layers(job *j) {
	ckv_llama *ckv = j->ckv;
	const observation *seen = &ckv->seen;
	size_t heads = 0;
	j->keep = ckv_llama_alloc(ckv, (size_t)seen->n_layers, sizeof *j->keep);
	if (!j->keep) {
		return ckv_llama_fail(ckv, CKV_ERR_NOMEM, "no memory for a list of layers");
	}
	memset(j->keep, 0, (size_t)seen->n_layers * sizeof *j->keep);
	for (int32_t i = 0; i < seen->n_layers; i++) {
		const layer_view *layer = &seen->layers[i];
		size_t size = (size_t)layer->n_heads * (size_t)layer->dim_k;
		heads = size > heads ? size : heads;
		if (layer->full) {
			j->keep[j->n_layers++].layer = layer;
		}
	}
	/* Some models name a window that llama.cpp does not use: their layers all see everything. */
	j->sliding = llama_model_n_swa(llama_get_model(j->ctx)) > 0 && j->n_layers < seen->n_layers;
	if (j->n_layers == 0) {
		return ckv_llama_fail(ckv, CKV_ERR_UNSUPPORTED,
		                      "no layer of this model sees the whole sequence: all have a sliding window");
	}
	if (!j->sliding && j->n_layers != seen->n_layers) {
		return ckv_llama_fail(ckv, CKV_ERR_UNSUPPORTED,
		                      "%d of %d layers do not see the whole sequence, and the model names no "
		                      "sliding window",
		                      seen->n_layers - j->n_layers, seen->n_layers);
	}
	j->queries = ckv_llama_alloc(ckv, (size_t)seen->window * heads, sizeof *j->queries);
	return j->queries ? CKV_OK : ckv_llama_fail(ckv, CKV_ERR_NOMEM, "no memory for the window's queries");
}

static void job_free(job *j) {
	for (int32_t i = 0; i < j->n_layers && j->keep; i++) {
		ckv_llama_release(j->ckv, j->keep[i].positions);
	}
	ckv_llama_release(j->ckv, j->keep);
	ckv_llama_release(j->ckv, j->queries);
}

/* The core refuses a short array before it works, and says what suffices. */
static ckv_status select_grown(job *j, const ckv_layer *layer, layer_keep *out, ckv_keep *keep) {
	ckv_keep_init(keep, NULL, 0, NULL);
	ckv_status status = ckv_select(j->ckv->core, layer, j->budget, keep);
	if (status == CKV_ERR_CAPACITY) {
		out->positions = ckv_llama_alloc(j->ckv, keep->n_positions, sizeof *out->positions);
		if (!out->positions) {
			return ckv_llama_fail(j->ckv, CKV_ERR_NOMEM, "no memory for %zu positions", keep->n_positions);
		}
		ckv_keep_init(keep, out->positions, keep->n_positions, NULL);
		status = ckv_select(j->ckv->core, layer, j->budget, keep);
	}
	return status ? ckv_llama_fail(j->ckv, status, "%s", ckv_ctx_message(j->ckv->core)) : CKV_OK;
}

static ckv_status select_layer(job *j, layer_keep *out) {
	host_rows keys;
	ckv_layer layer;
	ckv_keep keep;
	ckv_status status = ckv_llama_rows(j->ckv, out->layer, out->layer->k_root, &keys);
	if (status) {
		return status;
	}
	status = ckv_llama_layer(j->ckv, out->layer, &keys, j->queries, &layer);
	status = status ? status : select_grown(j, &layer, out, &keep);
	ckv_llama_rows_free(j->ckv, &keys);
	if (status) {
		return status;
	}
	out->n_lists = keep.n_lists;
	out->n_keep = keep.n_keep;
	j->reason = keep.reason;
	if (keep.attention_kept >= 0.0f) {
		j->attention += (double)keep.attention_kept;
		j->n_attention++;
	}
	return CKV_OK;
}

static ckv_status select_all(job *j) {
	for (int32_t i = 0; i < j->n_layers; i++) {
		ckv_status status = select_layer(j, &j->keep[i]);
		if (status) {
			return status;
		}
		if (j->keep[i].n_keep != j->keep[0].n_keep) {
			return ckv_llama_fail(j->ckv, CKV_ERR_UNSUPPORTED,
			                      "layers %d and %d would keep %d and %d tokens; llama.cpp's cache has one length "
			                      "for all: use mode=exact",
			                      j->keep[0].layer->index, j->keep[i].layer->index, j->keep[0].n_keep, j->keep[i].n_keep);
		}
	}
	return CKV_OK;
}

/* Rows of all layers with n cells in the compressed layers. */
static uint64_t bytes_held(const job *j, int32_t n) {
	const observation *seen = &j->ckv->seen;
	int32_t window = llama_model_n_swa(llama_get_model(j->ctx));
	uint64_t bytes = 0;
	for (int32_t i = 0; i < seen->n_layers; i++) {
		const layer_view *layer = &seen->layers[i];
		int32_t rows = layer->full ? n : window < j->n_tokens ? window : j->n_tokens;
		bytes += (uint64_t)rows * (ggml_row_size(layer->k_root->type, layer->k_root->ne[0]) +
		                           ggml_row_size(layer->v_root->type, layer->v_root->ne[0]));
	}
	return bytes;
}

/* The report's arrays, before anything is done that could not be reported. */
static ckv_status make_arrays(ckv_llama *ckv, size_t n) {
	ckv_llama_release(ckv, ckv->report_layers);
	ckv_llama_release(ckv, ckv->report_kept);
	ckv->report_layers = ckv_llama_alloc(ckv, n, sizeof *ckv->report_layers);
	ckv->report_kept = ckv_llama_alloc(ckv, n, sizeof *ckv->report_kept);
	return ckv->report_layers && ckv->report_kept ? CKV_OK : ckv_llama_fail(ckv, CKV_ERR_NOMEM, "no memory for the report");
}

static void fill_report(job *j, ckv_llama_report *report, int32_t n_cells, double score_s, double move_s) {
	ckv_llama *ckv = j->ckv;
	for (size_t i = 0; i < (size_t)j->n_layers; i++) {
		ckv->report_layers[i] = j->keep[i].layer->index;
		ckv->report_kept[i] = n_cells;
	}
	ckv_llama_report full = {.size = sizeof full,
	                         .n_seen = j->n_tokens,
	                         .n_cells = n_cells,
	                         .n_layers = j->n_layers,
	                         .layers = ckv->report_layers,
	                         .n_kept = ckv->report_kept,
	                         .n_window_layers = ckv->seen.n_layers - j->n_layers,
	                         .reason = j->reason,
	                         .attention_kept = j->n_attention ? (float)(j->attention / j->n_attention) : -1.0f,
	                         .bytes_before = bytes_held(j, j->n_tokens),
	                         .bytes_after = bytes_held(j, n_cells),
	                         .alloc_before = ckv->cache_alloc,
	                         .score_s = score_s,
	                         .move_s = move_s};
	if (report) {
		size_t size = report->size && report->size < sizeof full ? report->size : sizeof full;
		full.size = size;
		memcpy(report, &full, size);
	}
}

/* A prompt inside the window of a sliding-window model: its layers can't be told apart yet, and little is to be gained. */
static bool inside_window(const job *j) {
	int32_t window = llama_model_n_swa(llama_get_model(j->ctx));
	return window > 0 && j->n_tokens <= window;
}

static ckv_status run(job *j, ckv_llama_report *report) {
	double t0 = now(), t1 = t0;
	int32_t n_cells = j->n_tokens;
	ckv_status status = make_arrays(j->ckv, (size_t)j->n_layers);
	if (status == CKV_OK && inside_window(j)) {
		j->reason = CKV_KEPT_ALL_SLIDING;
		status = ckv_llama_state_copy(j->ckv, j->ctx, j->ckv->seen.seq);
	} else if (status == CKV_OK) {
		status = ckv_llama_state_check(j->ckv, j->ctx, j->keep, j->n_layers, j->sliding, j->n_tokens);
		status = status ? status : select_all(j);
		t1 = now();
		if (status == CKV_OK) {
			n_cells = j->keep[0].n_keep;
			status = ckv_llama_state_write(j->ckv, j->ctx, j->keep, j->n_layers, j->sliding, j->n_tokens);
		}
	}
	if (status == CKV_OK) {
		fill_report(j, report, n_cells, t1 - t0, now() - t1);
	}
	return status;
}

ckv_status ckv_llama_extract(ckv_llama *ckv, struct llama_context *ctx, llama_seq_id seq, ckv_budget budget,
                             ckv_llama_report *report) {
	if (!ckv || !ctx) {
		return CKV_ERR_ARG;
	}
	ckv_llama_begin(ckv);
	ckv_status status = ckv_llama_check_model(llama_get_model(ctx), &ckv->error);
	job j = {.ckv = ckv, .ctx = ctx, .budget = budget};
	status = status ? status : check_observed(&j, seq);
	llama_synchronize(ctx);
	status = status ? status : find_layers(&j);
	status = status ? status : run(&j, report);
	job_free(&j);
	return status;
}

ckv_status ckv_llama_restore(ckv_llama *ckv, struct llama_context *ctx, llama_seq_id seq) {
	if (!ckv || !ctx || seq < 0 || (uint32_t)seq >= llama_n_seq_max(ctx)) {
		return CKV_ERR_ARG;
	}
	ckv_llama_begin(ckv);
	if (!ckv->held.data) {
		return ckv_llama_fail(ckv, CKV_ERR_STATE, "no rows are held: call ckv_llama_extract first");
	}
	if (llama_get_model(ctx) != ckv->held.model) {
		return ckv_llama_fail(ckv, CKV_ERR_ARG, "the held rows belong to another model");
	}
	if (ckv->seen.ctx == ctx && ckv->seen.seq == seq) {
		ckv_llama_observe_clear(ckv);
	}
	if (llama_state_seq_set_data(ctx, ckv->held.data, ckv->held.size, seq) != ckv->held.size) {
		/* A window model may have taken one half of it. */
		llama_memory_seq_rm(llama_get_memory(ctx), seq, -1, -1);
		return ckv_llama_fail(
		    ckv, CKV_ERR_HOST,
		    "llama.cpp did not take the kept rows into a context of %u cells: too few are free, or its cache "
		    "types, n_seq_max or kv_unified differ; the rows are still held",
		    llama_n_ctx(ctx));
	}
	return CKV_OK;
}

ckv_status ckv_llama_compress(ckv_llama *ckv, struct llama_context *ctx, llama_seq_id seq, ckv_budget budget,
                              ckv_llama_report *report) {
	ckv_llama_report local;
	ckv_llama_report *out = report ? report : &local;
	if (!report) {
		local.size = 0;
	}
	ckv_status status = ckv_llama_extract(ckv, ctx, seq, budget, out);
	if (status) {
		return status;
	}
	double start = now();
	status = ckv_llama_restore(ckv, ctx, seq);
	if (status == CKV_OK) {
		ckv_llama_drop(ckv);
		if (out->size == sizeof *out) {
			out->move_s += now() - start;
			out->alloc_after = out->alloc_before;
		}
	}
	return status;
}

static ckv_status check_alone(ckv_llama *ckv, struct llama_context *ctx, llama_seq_id seq) {
	for (llama_seq_id s = 0; (uint32_t)s < llama_n_seq_max(ctx); s++) {
		if (s != seq && llama_memory_seq_pos_max(llama_get_memory(ctx), s) >= 0) {
			return ckv_llama_fail(ckv, CKV_ERR_STATE, "sequence %d also has tokens in this context and would be lost", s);
		}
	}
	return CKV_OK;
}

/* Cells to ask llama.cpp for: a window cache takes what its window holds and the largest batch beside it; separate streams
 * share the number among them. */
static uint32_t cells_to_ask(const ckv_llama *ckv, int32_t n_cells) {
	uint32_t window = (uint32_t)llama_model_n_swa(ckv->held.model);
	uint32_t least = window ? window + ckv->params.n_ubatch : 0, cells = (uint32_t)n_cells;
	uint32_t streams = ckv->params.kv_unified || ckv->params.n_seq_max == 0 ? 1 : ckv->params.n_seq_max;
	return (cells > least ? cells : least) * streams;
}

/* Everything that could make it fail for good is found before the large context goes. */
static ckv_status take_over(ckv_llama *ckv, struct llama_context **ctx, llama_seq_id seq, int32_t n_cells) {
	if ((uint32_t)seq >= llama_n_seq_max(*ctx) || !ckv->attached) {
		return ckv_llama_fail(ckv, CKV_ERR_STATE,
		                      "sequence %d is none of this context's, or ckv_llama_attach was not called", seq);
	}
	ckv_status status = check_alone(ckv, *ctx, seq);
	status = status ? status : ckv_llama_state_copy(ckv, *ctx, seq);
	if (status == CKV_OK && (uint32_t)n_cells < ckv_llama_held_cells(ckv)) {
		status = ckv_llama_fail(ckv, CKV_ERR_ARG, "%d cells are too few: the sequence has %u", n_cells,
		                        ckv_llama_held_cells(ckv));
		ckv_llama_drop(ckv);
	}
	if (status == CKV_OK) {
		if (ckv->seen.ctx == *ctx) {
			ckv_llama_observe_clear(ckv);
		}
		llama_free(*ctx);
		*ctx = NULL;
	}
	return status;
}

ckv_status ckv_llama_shrink(ckv_llama *ckv, struct llama_context **ctx, llama_seq_id seq, int32_t n_cells) {
	if (!ckv || !ctx || seq < 0 || n_cells < 1 || n_cells > 1 << 30) {
		return CKV_ERR_ARG;
	}
	ckv_llama_begin(ckv);
	if (*ctx) {
		ckv_status status = take_over(ckv, ctx, seq, n_cells);
		if (status) {
			return status;
		}
	}
	if (!ckv->held.data) {
		return ckv_llama_fail(ckv, CKV_ERR_STATE, "there is neither a context nor held rows to make one from");
	}
	struct llama_context_params params = ckv->params;
	params.n_ctx = cells_to_ask(ckv, n_cells);
	/* llama.cpp takes a pointer to a model that it does not change. */
	union {
		const struct llama_model *constant;
		struct llama_model *plain;
	} model = {ckv->held.model};
	struct llama_context *small = llama_init_from_model(model.plain, params);
	if (!small) {
		return ckv_llama_fail(ckv, CKV_ERR_HOST, "llama.cpp could not make a context of %u cells; the rows are still held",
		                      params.n_ctx);
	}
	ckv_status status = ckv_llama_restore(ckv, small, seq);
	if (status) {
		llama_free(small);
		return status;
	}
	ckv_llama_drop(ckv);
	*ctx = small;
	return CKV_OK;
}
