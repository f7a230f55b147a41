/* From a layer to kept positions: what is too short, what is protected, scorer, selector, attention kept. */
#include "core/internal.h"

#include <math.h>
#include <string.h>

extern const ckv_selector ckv_selector_all;

void ckv_keep_init(ckv_keep *keep, int32_t *positions, size_t capacity, int32_t *offsets) {
	if (keep) {
		memset(keep, 0, sizeof *keep);
		keep->size = sizeof *keep;
		keep->positions = positions;
		keep->capacity = capacity;
		keep->offsets = offsets;
		keep->attention_kept = -1.0f;
	}
}

int32_t ckv_row_head(const ckv_ctx *ctx, int32_t head) { return ctx->hand ? ctx->hand->first_head + head : head; }

int32_t ckv_row_position(const ckv_ctx *ctx, int32_t head, int32_t row) {
	return ctx->hand ? ctx->hand->positions[(size_t)head * ctx->hand->stride + (size_t)row] : row;
}

/* A decision must not hang on NaN or infinity, wherever it came from. */
static ckv_status check_finite(ckv_ctx *ctx, const float *scores, int32_t n_heads, int32_t n_tokens, int32_t layer) {
	size_t n = (size_t)n_heads * (size_t)n_tokens;
	for (size_t i = 0; i < n; i++) {
		if (!isfinite(scores[i])) {
			int32_t head = (int32_t)(i / (size_t)n_tokens), row = (int32_t)(i % (size_t)n_tokens);
			return ckv_fail(&ctx->error, CKV_ERR_NUMERIC, "layer %d, KV head %d, token %d: the score is not a finite number",
			                layer, ckv_row_head(ctx, head), ckv_row_position(ctx, head, row));
		}
	}
	return CKV_OK;
}

ckv_status ckv_layer_check(const ckv_layer *layer, ckv_error *error) {
	ckv_status status = ckv_view_check(&layer->k, "keys", layer->index, error);
	if (status == CKV_OK &&
	    !(isfinite(layer->scale) && layer->scale >= 0.0f && isfinite(layer->logit_cap) && layer->logit_cap >= 0.0f)) {
		status = ckv_fail(error, CKV_ERR_ARG, "layer %d: scale %g or logit cap %g is not usable", layer->index,
		                  (double)layer->scale, (double)layer->logit_cap);
	}
	return status;
}

ckv_status ckv_scorer_run(ckv_ctx *ctx, const ckv_layer *layer, int32_t n_keep, float *scores) {
	ckv_needs needs = ckv_scorer_needs(ctx->scorer, &ctx->params);
	if (needs.flags & CKV_NEED_VALUES) {
		ckv_status status = ckv_view_check(&layer->v, "values", layer->index, &ctx->error);
		if (status) {
			return status;
		}
	}
	ckv_status status = ctx->scorer->score(ctx, layer, n_keep, scores);
	return status ? status : check_finite(ctx, scores, layer->k.n_heads, layer->k.n_tokens, layer->index);
}

void ckv_begin(ckv_ctx *ctx) {
	ctx->mass_window = 0;
	ctx->error.status = CKV_OK;
	ctx->error.message[0] = '\0';
}

ckv_status ckv_score(ckv_ctx *ctx, const ckv_layer *layer, ckv_budget budget, float *scores) {
	int32_t n_keep;
	if (!ctx) {
		return CKV_ERR_ARG;
	}
	ckv_begin(ctx);
	if (!layer || !scores || layer->size < sizeof *layer) {
		return ckv_fail(&ctx->error, CKV_ERR_ARG,
		                "ckv_score needs a layer (start from ckv_layer_init) and a place for scores");
	}
	ckv_status status = ckv_layer_check(layer, &ctx->error);
	if (status) {
		return status;
	}
	if (!ctx->scorer) {
		return ckv_fail(&ctx->error, CKV_ERR_UNSUPPORTED, "policy '%s' has no scorer", ctx->params.preset);
	}
	int32_t least = ckv_scorer_min_tokens(ctx->scorer, &ctx->params);
	if (layer->k.n_tokens < least) {
		return ckv_fail(&ctx->error, CKV_ERR_UNSUPPORTED, "layer %d has %d tokens; scorer '%s' needs at least %d",
		                layer->index, layer->k.n_tokens, ctx->params.scorer, least);
	}
	if (ckv_budget_resolve(budget, layer->k.n_tokens, &n_keep) != CKV_OK) {
		return ckv_budget_fail(budget, &ctx->error);
	}
	size_t n = (size_t)layer->k.n_heads, row = (size_t)layer->k.n_tokens * sizeof *scores;
	float *own = ckv_scratch(ctx, SLOT_SCORES, n, row);
	if (!own) {
		return CKV_ERR_NOMEM;
	}
	status = ckv_scorer_run(ctx, layer, n_keep, own);
	if (status == CKV_OK) {
		memcpy(scores, own, n * row);
	}
	return status;
}

/* Exact mode: sinks and window are kept first, cut to the sinks and then the newest when the budget is smaller than both. */
void ckv_selection_protect(const ckv_params *params, ckv_selection *s) {
	s->lo = 0;
	s->hi = s->n_tokens;
	s->n_open = s->n_keep;
	if (params->reference) {
		return;
	}
	int32_t sinks = params->sinks < s->n_keep ? params->sinks : s->n_keep;
	int32_t rest = s->n_keep - sinks;
	int32_t window = params->window < rest ? params->window : rest;
	s->lo = sinks;
	s->hi = s->n_tokens - window;
	s->n_open = rest - window;
	if (s->n_open == 0 && s->reason == CKV_SELECTED) {
		s->reason = CKV_PROTECTED_ONLY;
	}
}

ckv_status ckv_selection_plan(ckv_ctx *ctx, ckv_budget budget, const ckv_scorer *scorer, ckv_selection *s,
                              const ckv_selector **selector) {
	const ckv_params *p = &ctx->params;
	int32_t n = s->n_tokens;
	*selector = ctx->selector;
	s->reason = CKV_SELECTED;
	if (ckv_budget_resolve(budget, n, &s->n_keep) != CKV_OK) {
		return ckv_budget_fail(budget, &ctx->error);
	}
	bool whole = s->n_keep >= n;
	s->n_keep = whole ? n : s->n_keep;
	s->keep_fraction = budget.kind == CKV_BUDGET_REMOVE    ? 1.0 - budget.value
	                   : budget.kind == CKV_BUDGET_PERCENT ? budget.value / 100.0
	                                                       : (double)s->n_keep / (double)n;
	if (ctx->selector == &ckv_selector_all) {
		s->reason = CKV_KEPT_ALL_POLICY;
	} else if (scorer && n < ckv_scorer_min_tokens(scorer, p)) {
		s->reason = scorer->short_reason;
	} else if (!p->reference && ctx->selector->min_tokens && n < ctx->selector->min_tokens(p)) {
		s->reason = ctx->selector->short_reason;
	}
	if (s->reason != CKV_SELECTED) {
		*selector = &ckv_selector_all;
		s->n_keep = n;
	} else if (whole) {
		/* Exact mode goes on: all scores best. The published counts could drop a chunk of a cache that the budget holds
		 * whole. */
		s->reason = CKV_KEPT_ALL_BUDGET;
		*selector = p->reference ? &ckv_selector_all : *selector;
	}
	ckv_selection_protect(p, s);
	return CKV_OK;
}

/* Before any work: the caller's array must hold whatever will be decided. */
static ckv_status check_capacity(ckv_ctx *ctx, const ckv_selector *selector, const ckv_selection *s, ckv_keep *keep) {
	size_t bound = selector->bound(&ctx->params, s);
	if (bound > INT32_MAX) {
		return ckv_fail(&ctx->error, CKV_ERR_NOMEM, "more than 2^31 positions would be kept in one layer");
	}
	if (!keep->positions || keep->capacity < bound) {
		keep->n_positions = bound;
		return ckv_fail(&ctx->error, CKV_ERR_CAPACITY, "room for %zu positions is needed, there is room for %zu", bound,
		                keep->capacity);
	}
	return CKV_OK;
}

void ckv_keep_set(ckv_keep *keep, int32_t n_lists, const int32_t *offsets, ckv_reason reason) {
	keep->n_lists = n_lists;
	keep->n_positions = (size_t)offsets[n_lists];
	keep->reason = reason;
	keep->attention_kept = -1.0f;
	keep->n_keep = 0;
	for (int32_t i = 0; i < n_lists; i++) {
		int32_t length = offsets[i + 1] - offsets[i];
		keep->n_keep = length > keep->n_keep ? length : keep->n_keep;
	}
}

static ckv_status run_selector(ckv_ctx *ctx, const ckv_selector *selector, const ckv_selection *s, ckv_keep *keep) {
	int32_t *offsets = keep->offsets;
	if (!ckv_scratch(ctx, SLOT_KEYS, (size_t)s->n_tokens, sizeof(uint64_t))) {
		return CKV_ERR_NOMEM;
	}
	if (!offsets) {
		offsets = ckv_scratch(ctx, SLOT_OFFSETS, (size_t)s->n_heads + 1, sizeof *offsets);
		if (!offsets) {
			return CKV_ERR_NOMEM;
		}
	}
	ckv_status status = selector->select(ctx, s, keep->positions, offsets);
	if (status) {
		return status;
	}
	ckv_keep_set(keep, selector->lists(&ctx->params, s), offsets, s->reason);
	return CKV_OK;
}

/* Mean over query heads of the window's attention on the kept tokens. */
static float attention_kept(const ckv_ctx *ctx, const ckv_layer *layer, const ckv_keep *keep) {
	const float *mass = ctx->slot[SLOT_MASS];
	const int32_t *offsets = keep->offsets ? keep->offsets : ctx->slot[SLOT_OFFSETS];
	int32_t n_heads = layer->q.n_heads, group = n_heads / layer->k.n_heads;
	double total = 0.0;
	for (int32_t h = 0; h < n_heads; h++) {
		int32_t list = keep->n_lists == 1 ? 0 : h / group;
		for (int32_t i = offsets[list]; i < offsets[list + 1]; i++) {
			total += (double)mass[(size_t)h * (size_t)layer->k.n_tokens + (size_t)keep->positions[i]];
		}
	}
	double share = total / n_heads;
	return share < 1.0 ? (float)share : 1.0f;
}

ckv_status ckv_select(ckv_ctx *ctx, const ckv_layer *layer, ckv_budget budget, ckv_keep *keep) {
	if (!ctx) {
		return CKV_ERR_ARG;
	}
	ckv_begin(ctx);
	if (!layer || !keep || layer->size < sizeof *layer || keep->size < sizeof *keep) {
		return ckv_fail(&ctx->error, CKV_ERR_ARG,
		                "ckv_select needs a layer and a result: start from ckv_layer_init and ckv_keep_init");
	}
	ckv_status status = ckv_layer_check(layer, &ctx->error);
	if (status) {
		return status;
	}
	ckv_selection s = {.n_heads = layer->k.n_heads,
	                   .n_tokens = layer->k.n_tokens,
	                   .n_whole = layer->k.n_tokens,
	                   .layer = layer->index,
	                   .n_layers = layer->n_layers,
	                   .n_chunks = ckv_chunk_count(ctx, layer->k.n_tokens)};
	const ckv_selector *selector;
	status = ckv_chunks_check(ctx, s.n_tokens);
	status = status ? status : ckv_selection_plan(ctx, budget, ctx->scorer, &s, &selector);
	status = status ? status : check_capacity(ctx, selector, &s, keep);
	if (status) {
		return status;
	}
	bool scored = ctx->scorer && s.n_tokens >= ckv_scorer_min_tokens(ctx->scorer, &ctx->params);
	if (scored) {
		float *scores = ckv_scratch(ctx, SLOT_SCORES, (size_t)s.n_heads, (size_t)s.n_tokens * sizeof *scores);
		if (!scores) {
			return CKV_ERR_NOMEM;
		}
		status = ckv_scorer_run(ctx, layer, s.n_keep, scores);
		if (status) {
			return status;
		}
		s.scores = scores;
	}
	status = run_selector(ctx, selector, &s, keep);
	if (status == CKV_OK && ctx->mass_window > 0) {
		keep->attention_kept = attention_kept(ctx, layer, keep);
	}
	return status;
}

ckv_status ckv_select_scores(ckv_ctx *ctx, const float *scores, int32_t n_heads, int32_t n_tokens, ckv_budget budget,
                             ckv_keep *keep) {
	if (!ctx) {
		return CKV_ERR_ARG;
	}
	ckv_begin(ctx);
	if (!scores || !keep || keep->size < sizeof *keep || n_heads < 1 || n_tokens < 1 || n_tokens > CKV_MAX_TOKENS) {
		return ckv_fail(&ctx->error, CKV_ERR_ARG, "ckv_select_scores needs scores of %d heads and %d tokens, and a result",
		                n_heads, n_tokens);
	}
	ckv_selection s = {.scores = scores,
	                   .n_heads = n_heads,
	                   .n_tokens = n_tokens,
	                   .n_whole = n_tokens,
	                   .n_chunks = ckv_chunk_count(ctx, n_tokens)};
	const ckv_selector *selector;
	ckv_status status = ckv_chunks_check(ctx, n_tokens);
	status = status ? status : ckv_selection_plan(ctx, budget, NULL, &s, &selector);
	status = status ? status : check_capacity(ctx, selector, &s, keep);
	status = status ? status : check_finite(ctx, scores, n_heads, n_tokens, 0);
	return status ? status : run_selector(ctx, selector, &s, keep);
}
