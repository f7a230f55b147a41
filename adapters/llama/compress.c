/* From an observed sequence to kept rows. */
#include "adapters/llama/internal.h"

#include <math.h>
#include <string.h>

static double now(void) { return 1e-6 * (double)ggml_time_us(); }

/* One compression in the making. */
typedef struct job {
	ckv_llama *ckv;
	struct llama_context *ctx;
	ckv_budget budget;
	int32_t n_seen, n_tokens; /* so far, and of those still there */
	int32_t n_layers;         /* that are compressed */
	bool sliding;             /* and others with a window, left alone */
	layer_keep *keep;         /* [n_layers] */
	ckv_budget *budgets;      /* [n_layers] */
	float *queries;
	int32_t n_cells; /* of the longest layer */
	bool but_last;   /* the last token's row is not held: it will be decoded again */
	int no_slope;
	bool hosted;
} job;

/* Why an observation can't be used. %s: the policy. */
static const struct {
	flaw flaw;
	ckv_status status;
	const char *why;
} flaws[] = {
    {FLAW_MEMORY, CKV_ERR_NOMEM, "there was no memory to observe the prompt"},
    {FLAW_LAYOUT, CKV_ERR_UNSUPPORTED,
     "an attention layer of this model has no plain K and V cache (latent attention, or a cache type of f32)"},
    {FLAW_BIAS, CKV_ERR_UNSUPPORTED, "this model biases attention by distance (ALiBi), which needs the true positions"},
    {FLAW_STALE, CKV_ERR_STATE,
     "tokens that were not observed have since been decoded over rows of the sequence, or, in a model with sliding windows, "
     "at "
     "all: extract before anything else is decoded"},
    {FLAW_STREAMS, CKV_ERR_STATE,
     "a batch held several sequences while one was observed: announce it with ckv_llama_expect"},
    {FLAW_ROPE, CKV_ERR_UNSUPPORTED,
     "the policy needs queries as they were before RoPE, and this model's rotation is not understood"},
    {FLAW_TORN, CKV_ERR_STATE, "a decode broke off in sums that can't be taken back: observe from the first token"},
};

ckv_status ckv_llama_check_flaws(ckv_llama *ckv) {
	if (ckv->seen.flaw == FLAW_CORE) {
		return ckv_llama_fail(ckv, ckv->seen.error.status, "%s", ckv->seen.error.message);
	}
	for (size_t i = 0; i < sizeof flaws / sizeof *flaws; i++) {
		if (flaws[i].flaw == ckv->seen.flaw) {
			return ckv_llama_fail(ckv, flaws[i].status, "%s", flaws[i].why);
		}
	}
	for (int32_t i = 0; i < ckv->seen.n_layers; i++) {
		if (ckv->seen.layers[i].v_root) {
			return CKV_OK;
		}
	}
	return ckv_llama_fail(ckv, CKV_ERR_UNSUPPORTED,
	                      "no attention node was seen: flash attention is off, or the context was made without "
	                      "ckv_llama_attach");
}

/* Every token of the sequence, and enough new ones after some were taken back. */
static ckv_status check_tokens(job *j, llama_seq_id seq) {
	ckv_llama *ckv = j->ckv;
	const observation *seen = &ckv->seen;
	j->n_seen = llama_memory_seq_pos_max(llama_get_memory(j->ctx), seq) + 1;
	if (ckv_llama_observed_most(ckv) > j->n_seen && ckv_llama_can_rewind(ckv)) {
		ckv_llama_observe_rewind(ckv, j->n_seen); /* a decode broke off, and llama.cpp took its tokens back */
	}
	if (j->n_seen < 1 || ckv_llama_observed_tokens(ckv) != j->n_seen || ckv_llama_observed_most(ckv) != j->n_seen) {
		return ckv_llama_fail(ckv, CKV_ERR_STATE, "sequence %d has %d tokens, of which %d were observed", seq, j->n_seen,
		                      ckv_llama_observed_tokens(ckv));
	}
	j->n_tokens = seen->layers[0].n_tokens;
	int32_t fresh = j->n_seen - seen->queries_from;
	if (seen->queries_from > 0 && fresh < seen->window) {
		return ckv_llama_fail(ckv, CKV_ERR_STATE,
		                      "after tokens were taken back %d new ones were observed; the window needs %d", fresh,
		                      seen->window);
	}
	return CKV_OK;
}

static ckv_status check_observed(job *j, llama_seq_id seq) {
	ckv_llama *ckv = j->ckv;
	const observation *seen = &ckv->seen;
	bool same = seen->ctx == j->ctx && seen->memory == (const void *)llama_get_memory(j->ctx) && seen->seq == seq;
	if (same && seen->active) {
		return ckv_llama_fail(ckv, CKV_ERR_STATE, "sequence %d is still being observed: call ckv_llama_observe_end", seq);
	}
	if (!same) {
		return ckv_llama_fail(
		    ckv, CKV_ERR_STATE,
		    "sequence %d of this context was not observed: use ckv_llama_prefill, once for each compression", seq);
	}
	ckv_status status = ckv_llama_check_flaws(ckv);
	return status ? status : check_tokens(j, seq);
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

static void free_keeps(ckv_llama *ckv, layer_keep *keep, int32_t n) {
	for (int32_t i = 0; i < n && keep; i++) {
		if (!keep[i].borrowed) {
			ckv_llama_release(ckv, keep[i].positions);
			ckv_llama_release(ckv, keep[i].offsets);
		}
	}
	ckv_llama_release(ckv, keep);
}

void ckv_llama_kept_free(ckv_llama *ckv) {
	free_keeps(ckv, ckv->kept, ckv->n_kept);
	ckv->kept = NULL;
	ckv->n_kept = 0;
}

static void job_free(job *j) {
	free_keeps(j->ckv, j->keep, j->n_layers);
	ckv_llama_release(j->ckv, j->budgets);
	ckv_llama_release(j->ckv, j->queries);
}

/* The selection outlives the compression, for ckv_llama_positions. */
static void hand_over(job *j) {
	ckv_llama_kept_free(j->ckv);
	j->ckv->kept = j->keep;
	j->ckv->n_kept = j->n_layers;
	j->keep = NULL;
}

int32_t ckv_llama_positions(const ckv_llama *ckv, int32_t layer, int32_t list, const int32_t **positions, int32_t *n) {
	const layer_keep *keep = ckv && layer >= 0 && layer < ckv->n_kept ? &ckv->kept[layer] : NULL;
	if (!keep || !keep->positions) {
		return 0;
	}
	if (positions && n && list >= 0 && list < keep->n_lists) {
		*positions = keep->positions + keep->offsets[list];
		*n = keep->offsets[list + 1] - keep->offsets[list];
	}
	return keep->n_lists;
}

/* How alike the residual stream is before and after each layer's attention. A budget that holds everything needs none. */
static ckv_status read_similarity(job *j, float *similarity) {
	int32_t n_keep;
	bool whole = ckv_budget_resolve(j->budget, j->n_tokens, &n_keep) == CKV_OK && n_keep >= j->n_tokens;
	for (int32_t i = 0; i < j->n_layers; i++) {
		similarity[i] = ckv_llama_mean_similarity(j->keep[i].layer);
		if (isnan(similarity[i]) && !whole) {
			return ckv_llama_fail(
			    j->ckv, CKV_ERR_UNSUPPORTED,
			    "layers=squeeze: where layer %d's attention joins the residual stream was not seen in this "
			    "model's graph (the last layer shows it for tokens whose logits are asked for)",
			    j->keep[i].layer->index);
		}
	}
	return CKV_OK;
}

/* Each layer's budget, by the policy's rule. */
static ckv_status plan(job *j) {
	ckv_llama *ckv = j->ckv;
	float *similarity = NULL;
	ckv_status status = CKV_OK;
	j->budgets = ckv_llama_alloc(ckv, (size_t)j->n_layers, sizeof *j->budgets);
	if (ckv->seen.needs & CKV_NEED_SIMILARITY) {
		similarity = ckv_llama_alloc(ckv, (size_t)j->n_layers, sizeof *similarity);
		status = similarity ? read_similarity(j, similarity) : ckv_llama_fail(ckv, CKV_ERR_NOMEM, "no memory for the plan");
	}
	if (status == CKV_OK && !j->budgets) {
		status = ckv_llama_fail(ckv, CKV_ERR_NOMEM, "no memory for the layers' budgets");
	}
	if (status == CKV_OK) {
		status = ckv_plan(ckv->core, j->budget, j->n_tokens, j->n_layers, similarity, j->budgets, &j->no_slope);
		if (status) {
			ckv_llama_fail(ckv, status, "%s", ckv_ctx_message(ckv->core));
		}
	}
	ckv_llama_release(ckv, similarity);
	return status;
}

/* The core refuses a short array before it works, and says what suffices. */
static ckv_status select_grown(job *j, const ckv_layer *layer, ckv_budget budget, layer_keep *out, ckv_keep *keep) {
	out->offsets = ckv_llama_alloc(j->ckv, (size_t)layer->k.n_heads + 1, sizeof *out->offsets);
	if (!out->offsets) {
		return ckv_llama_fail(j->ckv, CKV_ERR_NOMEM, "no memory for positions");
	}
	ckv_keep_init(keep, NULL, 0, out->offsets);
	ckv_status status = ckv_select(j->ckv->core, layer, budget, keep);
	if (status == CKV_ERR_CAPACITY) {
		out->positions = ckv_llama_alloc(j->ckv, keep->n_positions, sizeof *out->positions);
		if (!out->positions) {
			return ckv_llama_fail(j->ckv, CKV_ERR_NOMEM, "no memory for %zu positions", keep->n_positions);
		}
		ckv_keep_init(keep, out->positions, keep->n_positions, out->offsets);
		status = ckv_select(j->ckv->core, layer, budget, keep);
	}
	return status ? ckv_llama_fail(j->ckv, status, "%s", ckv_ctx_message(j->ckv->core)) : CKV_OK;
}

static ckv_status select_layer(job *j, layer_keep *out, ckv_budget budget) {
	layer_input in;
	ckv_keep keep;
	ckv_status status = ckv_llama_layer(j->ckv, out->layer, j->ckv->seen.needs, j->queries, &in);
	if (status) {
		return status;
	}
	in.layer.n_layers = llama_model_n_layer(llama_get_model(j->ctx));
	status = select_grown(j, &in.layer, budget, out, &keep);
	ckv_llama_layer_free(j->ckv, &in);
	if (status) {
		return status;
	}
	out->n_lists = keep.n_lists;
	out->n_keep = keep.n_keep;
	out->reason = keep.reason;
	out->attention_kept = keep.attention_kept;
	return CKV_OK;
}

/* Takes another layer's selection. */
static ckv_status reuse_layer(job *j, layer_keep *out, const layer_keep *source) {
	const layer_view *from = source->layer, *to = out->layer;
	if (source->n_lists != 1 && from->n_kv_heads != to->n_kv_heads) {
		return ckv_llama_fail(j->ckv, CKV_ERR_UNSUPPORTED, "layers %d and %d have %d and %d KV heads: reuse is not possible",
		                      from->index, to->index, from->n_kv_heads, to->n_kv_heads);
	}
	*out = *source;
	out->layer = to;
	out->borrowed = true;
	out->attention_kept = -1.0f; /* not looked at here */
	return CKV_OK;
}

/* Heads of unequal length mean that we compute the layer's attention, in which the model's own sinks have no part. */
static ckv_status check_ragged(job *j) {
	for (int32_t i = 0; i < j->n_layers; i++) {
		const layer_keep *keep = &j->keep[i];
		for (int32_t list = 0; list < keep->n_lists && keep->layer->sinks; list++) {
			if (keep->offsets[list + 1] - keep->offsets[list] != keep->n_keep) {
				return ckv_llama_fail(
				    j->ckv, CKV_ERR_UNSUPPORTED,
				    "layer %d: heads would keep different numbers of tokens, and this model has attention sinks of "
				    "its own",
				    keep->layer->index);
			}
		}
	}
	return CKV_OK;
}

static ckv_status select_all(job *j) {
	const ckv_params *params = ckv_ctx_params(j->ckv->core);
	ckv_status status = ckv_llama_set_chunks(j->ckv, llama_get_model(j->ctx), j->n_tokens);
	status = status ? status : plan(j);
	for (int32_t i = 0; i < j->n_layers && status == CKV_OK; i++) {
		int32_t source = ckv_layer_source(params, i);
		status = source == i ? select_layer(j, &j->keep[i], j->budgets[i]) : reuse_layer(j, &j->keep[i], &j->keep[source]);
		j->n_cells = j->keep[i].n_keep > j->n_cells ? j->keep[i].n_keep : j->n_cells;
	}
	return status;
}

static uint64_t row_bytes(const layer_view *layer) {
	return ckv_llama_row_bytes(layer->k_root) + ckv_llama_row_bytes(layer->v_root);
}

/* Rows of all layers with n cells in the compressed layers. */
static uint64_t bytes_held(const job *j, int32_t n) {
	const observation *seen = &j->ckv->seen;
	int32_t window = llama_model_n_swa(llama_get_model(j->ctx));
	uint64_t bytes = 0;
	for (int32_t i = 0; i < seen->n_layers; i++) {
		const layer_view *layer = &seen->layers[i];
		int32_t rows = layer->full ? n : window < j->n_tokens ? window : j->n_tokens;
		bytes += (uint64_t)rows * row_bytes(layer);
	}
	return bytes;
}

/* The same in a cache whose layers and heads have the lengths they need. */
static uint64_t bytes_ragged(const job *j) {
	uint64_t bytes = bytes_held(j, 0);
	for (int32_t i = 0; i < j->n_layers; i++) {
		const layer_keep *keep = &j->keep[i];
		uint64_t rows = keep->offsets ? (uint64_t)keep->offsets[keep->n_lists] : (uint64_t)j->n_tokens;
		uint64_t lists = keep->offsets ? (uint64_t)keep->n_lists : 1;
		bytes += rows * row_bytes(keep->layer) / lists;
	}
	return bytes;
}

/* Mean over the layers that were looked at; -1 when none was. */
static float attention_kept(const job *j) {
	double sum = 0.0;
	int32_t n = 0;
	for (int32_t i = 0; i < j->n_layers; i++) {
		if (j->keep[i].attention_kept >= 0.0f) {
			sum += (double)j->keep[i].attention_kept;
			n++;
		}
	}
	return n ? (float)(sum / n) : -1.0f;
}

/* The report's arrays, before anything is done that could not be reported. */
static ckv_status make_arrays(ckv_llama *ckv, size_t n) {
	ckv_llama_release(ckv, ckv->report_layers);
	ckv_llama_release(ckv, ckv->report_kept);
	ckv->report_layers = ckv_llama_alloc(ckv, n, sizeof *ckv->report_layers);
	ckv->report_kept = ckv_llama_alloc(ckv, n, sizeof *ckv->report_kept);
	return ckv->report_layers && ckv->report_kept ? CKV_OK : ckv_llama_fail(ckv, CKV_ERR_NOMEM, "no memory for the report");
}

/* Layers with budgets of their own may differ: only what holds for all of them is told as the reason for all. */
static ckv_reason reason(const job *j) {
	for (int32_t i = 1; i < j->n_layers; i++) {
		if (j->keep[i].reason != j->keep[0].reason) {
			return CKV_SELECTED;
		}
	}
	return j->keep[0].reason;
}

static void fill_report(job *j, ckv_llama_report *report, double score_s, double move_s) {
	ckv_llama *ckv = j->ckv;
	for (size_t i = 0; i < (size_t)j->n_layers; i++) {
		ckv->report_layers[i] = j->keep[i].layer->index;
		ckv->report_kept[i] = j->keep[i].n_keep;
	}
	ckv_llama_report full = {.size = sizeof full,
	                         .n_seen = j->n_seen,
	                         .n_cells = j->n_cells,
	                         .n_layers = j->n_layers,
	                         .layers = ckv->report_layers,
	                         .n_kept = ckv->report_kept,
	                         .n_window_layers = ckv->seen.n_layers - j->n_layers,
	                         .reason = reason(j),
	                         .attention_kept = attention_kept(j),
	                         .bytes_before = bytes_held(j, j->n_tokens),
	                         .bytes_after = bytes_held(j, j->n_cells),
	                         .alloc_before = ckv->cache_alloc,
	                         .score_s = score_s,
	                         .move_s = move_s,
	                         .bytes_ragged = bytes_ragged(j),
	                         .no_slope = j->no_slope};
	ckv_cache_info hosted = {.size = sizeof hosted};
	if (j->hosted && ckv_cache_get_info(ckv->held.cache.rows, -1, &hosted) == CKV_OK) {
		full.hosted = 1;
		full.bytes_after = bytes_held(j, 0) + hosted.bytes_allocated;
		full.bytes_ragged = bytes_held(j, 0) + hosted.bytes;
	}
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

static void keep_all(job *j, ckv_reason reason) {
	j->n_cells = j->n_tokens;
	for (int32_t i = 0; i < j->n_layers; i++) {
		j->keep[i].n_keep = j->n_tokens;
		j->keep[i].reason = reason;
		j->keep[i].attention_kept = -1.0f;
	}
}

/* Whether layers, or heads of one, keep different numbers of tokens. */
static bool is_uneven(const job *j) {
	bool uneven = false;
	for (int32_t i = 0; i < j->n_layers; i++) {
		for (int32_t list = 0; list < j->keep[i].n_lists; list++) {
			uneven = uneven || j->keep[i].offsets[list + 1] - j->keep[i].offsets[list] != j->n_cells;
		}
	}
	return uneven;
}

/* What can be had in llama.cpp's cache too stays there where a hosted one can't be had. */
static bool may_host(const job *j) {
	bool good = llama_n_seq_max(j->ctx) == 1;
	for (int32_t i = 0; i < j->n_layers; i++) {
		good = good && ckv_llama_hostable(j->keep[i].layer);
	}
	return good;
}

static bool wants_host(const job *j) {
	if (j->ckv->cache_kind != CKV_LLAMA_CACHE_AUTO) {
		return j->ckv->cache_kind == CKV_LLAMA_CACHE_HOSTED;
	}
	return ckv_params_hosted(ckv_ctx_params(j->ckv->core)) || (is_uneven(j) && may_host(j));
}

static ckv_status hold_rows(job *j) {
	const state_plan plan = {j->keep, j->n_layers, j->sliding, j->n_tokens, j->n_seen, j->n_cells, j->but_last};
	const host_plan host = {j->keep,   j->n_layers, j->sliding, j->n_tokens - j->but_last, j->n_seen - j->but_last,
	                        j->queries};
	j->hosted = wants_host(j);
	ckv_status status = j->hosted ? CKV_OK : check_ragged(j);
	if (status) {
		return status;
	}
	return j->hosted ? ckv_llama_host_fill(j->ckv, j->ctx, &host, j->but_last)
	                 : ckv_llama_state_write(j->ckv, j->ctx, &plan);
}

static ckv_status run(job *j, ckv_llama_report *report) {
	double t0 = now(), t1 = t0;
	ckv_status status = make_arrays(j->ckv, (size_t)j->n_layers);
	int32_t n_keep;
	if (status == CKV_OK && ckv_budget_resolve(j->budget, j->n_tokens, &n_keep)) {
		status = ckv_llama_fail(j->ckv, CKV_ERR_ARG, "a budget of %g is out of range", j->budget.value);
	}
	if (status == CKV_OK && inside_window(j)) {
		keep_all(j, CKV_KEPT_ALL_SLIDING);
		status = ckv_llama_state_copy(j->ckv, j->ctx, j->ckv->seen.seq, j->but_last ? j->n_seen - 1 : -1);
	} else if (status == CKV_OK) {
		status = ckv_llama_state_check(j->ckv, j->ctx, j->keep, j->n_layers, j->sliding, j->n_tokens);
		status = status ? status : select_all(j);
		t1 = now();
		status = status ? status : hold_rows(j);
	}
	if (status == CKV_OK) {
		fill_report(j, report, t1 - t0, now() - t1);
		hand_over(j);
	}
	return status;
}

/* What a sequence of which everything was observed is made of. */
static ckv_status begin_job(job *j, llama_seq_id seq) {
	ckv_llama_begin(j->ckv);
	ckv_status status = ckv_llama_check_model(llama_get_model(j->ctx), &j->ckv->error);
	status = status ? status : check_observed(j, seq);
	llama_synchronize(j->ctx);
	return status ? status : find_layers(j);
}

static ckv_status extract(ckv_llama *ckv, struct llama_context *ctx, llama_seq_id seq, ckv_budget budget, bool but_last,
                          ckv_llama_report *report) {
	if (!ckv || !ctx) {
		return CKV_ERR_ARG;
	}
	job j = {.ckv = ckv, .ctx = ctx, .budget = budget, .but_last = but_last};
	ckv_status status = begin_job(&j, seq);
	status = status ? status : run(&j, report);
	job_free(&j);
	return status;
}

ckv_status ckv_llama_extract(ckv_llama *ckv, struct llama_context *ctx, llama_seq_id seq, ckv_budget budget,
                             ckv_llama_report *report) {
	return extract(ckv, ctx, seq, budget, false, report);
}

ckv_status ckv_llama_extract_but_last(ckv_llama *ckv, struct llama_context *ctx, llama_seq_id seq, ckv_budget budget,
                                      ckv_llama_report *report) {
	return extract(ckv, ctx, seq, budget, true, report);
}

ckv_status ckv_llama_visit_layers(ckv_llama *ckv, struct llama_context *ctx, llama_seq_id seq, ckv_llama_on_layer callback,
                                  void *user) {
	if (!ckv || !ctx || !callback) {
		return CKV_ERR_ARG;
	}
	job j = {.ckv = ckv, .ctx = ctx};
	ckv_status status = begin_job(&j, seq);
	for (int32_t i = 0; i < j.n_layers && status == CKV_OK; i++) {
		layer_input in;
		status = ckv_llama_layer(ckv, j.keep[i].layer, ckv->seen.needs | CKV_NEED_VALUES, j.queries, &in);
		if (status == CKV_OK) {
			in.layer.n_layers = llama_model_n_layer(llama_get_model(ctx));
			status = callback(i, &in.layer, user)
			             ? CKV_OK
			             : ckv_llama_fail(ckv, CKV_ERR_CANCELLED, "the visit ended at layer number %d", i);
			ckv_llama_layer_free(ckv, &in);
		}
	}
	job_free(&j);
	return status;
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
	status = ckv_llama_put_back(ckv, ctx, seq);
	if (status == CKV_OK) {
		if (out->size == sizeof *out) {
			out->move_s += now() - start;
			out->alloc_after = ckv_llama_cache_alloc(ckv);
		}
	}
	return status;
}
