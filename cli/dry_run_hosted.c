/* chunkkv run --dry-run: what a cache of our own will take, as far as the policy says it before the prompt is read. */
#include "dry_run.h"

#include <stdlib.h>
#include <string.h>

typedef struct sizing {
	const run_options *options;
	const cache_shape *shape;
	int32_t n_tokens, keep;
	int32_t *by_layer, *rows; /* [n_layers], [n_layers][n_kv_heads] */
	ckv_stream_shape *shapes; /* [n_layers] */
	ckv_budget *budgets;      /* [n_layers] */
} sizing;

static bool sizing_make(sizing *z) {
	size_t layers = (size_t)z->shape->n_layers, heads = (size_t)z->shape->n_kv_heads;
	z->by_layer = calloc(layers, sizeof *z->by_layer);
	z->rows = calloc(layers * heads, sizeof *z->rows);
	z->shapes = calloc(layers, sizeof *z->shapes);
	z->budgets = calloc(layers, sizeof *z->budgets);
	if (!z->by_layer || !z->rows || !z->shapes || !z->budgets) {
		fail("no memory for the sizes of %zu layers", layers);
	}
	return z->by_layer && z->rows && z->shapes && z->budgets;
}

static void sizing_free(sizing *z) {
	free(z->by_layer);
	free(z->rows);
	free(z->shapes);
	free(z->budgets);
}

/* Rows by layer. Squeeze looks at the model's layers first: of it only the mean is known. */
static bool plan_layers(sizing *z) {
	const ckv_params *params = &z->options->params;
	int32_t n = (int32_t)z->shape->n_layers;
	bool squeeze = strcmp(params->layers, "squeeze") == 0;
	ckv_ctx *ctx;
	ckv_error error;
	if (ckv_ctx_create(&ctx, params, NULL, &error)) {
		fail("%s", error.message);
		return false;
	}
	ckv_status status = squeeze ? CKV_OK : ckv_plan(ctx, ckv_keep_tokens(z->keep), z->n_tokens, n, NULL, z->budgets, NULL);
	for (int32_t i = 0; i < n && status == CKV_OK; i++) {
		z->by_layer[i] = z->keep;
		status = squeeze ? CKV_OK : ckv_budget_resolve(z->budgets[i], z->n_tokens, &z->by_layer[i]);
		z->by_layer[i] = z->by_layer[i] < z->n_tokens ? z->by_layer[i] : z->n_tokens;
	}
	if (status) {
		fail("%s", ckv_ctx_message(ctx));
	}
	ckv_ctx_free(ctx);
	return status == CKV_OK;
}

/* Whether some layers or heads will have more rows than others. */
static bool is_uneven(const sizing *z) {
	const ckv_params *params = &z->options->params;
	bool shared = strcmp(params->layers, "squeeze") == 0 || strcmp(params->selector, "adaptive_head") == 0;
	bool uneven = shared && z->keep < z->n_tokens;
	for (int64_t i = 1; i < z->shape->n_layers; i++) {
		uneven = uneven || z->by_layer[i] != z->by_layer[0];
	}
	return uneven;
}

/* As the adapter decides it: where a policy needs no cache of ours it gets one for unequal lengths, if rows are f16. */
static bool is_hosted(const sizing *z, bool uneven) {
	const run_options *o = z->options;
	bool inside = z->shape->window > 0 && z->n_tokens <= z->shape->window; /* such a prompt stays as it is */
	bool needed = ckv_params_hosted(&o->params) || (uneven && o->type == GGML_TYPE_F16);
	return !inside && (o->cache_kind == CKV_LLAMA_CACHE_HOSTED || (o->cache_kind == CKV_LLAMA_CACHE_AUTO && needed));
}

static certainty how_well(const sizing *z) {
	const ckv_params *params = &z->options->params;
	bool packs = strcmp(params->codec.kind, "none") != 0, squeeze = strcmp(params->layers, "squeeze") == 0;
	bool heads = strcmp(params->selector, "adaptive_head") == 0;
	if (z->shape->window > 0 || (strcmp(params->codec.kind, "palu") == 0 && params->codec.rank == 0)) {
		return KNOWN_AT_MOST;
	}
	/* However f16 rows are shared, their sum is the budget's, unless layers that select together round it; of packed ones
	 * each head has whole groups. */
	bool about = params->reference || ((heads || squeeze) && packs) || (squeeze && params->reuse > 1);
	return about && z->keep < z->n_tokens ? KNOWN_ABOUT : KNOWN_EXACTLY;
}

static bool measure(sizing *z, ckv_cache_info *info) {
	const cache_shape *s = z->shape;
	ckv_error error;
	for (int64_t i = 0; i < s->n_layers; i++) {
		z->shapes[i] = (ckv_stream_shape){(int32_t)s->n_kv_heads, (int32_t)s->dim_k, (int32_t)s->dim_v};
		for (int64_t h = 0; h < s->n_kv_heads; h++) {
			z->rows[i * s->n_kv_heads + h] = z->by_layer[i];
		}
	}
	*info = (ckv_cache_info){.size = sizeof *info};
	if (ckv_cache_estimate(&z->options->params.codec, z->shapes, (int32_t)s->n_layers, z->rows, NULL, info, &error)) {
		fail("%s", error.message);
		return false;
	}
	return true;
}

bool dry_run_hosted(const run_options *o, const cache_shape *s, int32_t n_tokens, int32_t keep, hosted_size *out) {
	sizing z = {.options = o, .shape = s, .n_tokens = n_tokens, .keep = keep};
	*out = (hosted_size){.hosted = false};
	bool good = sizing_make(&z) && plan_layers(&z);
	if (good) {
		out->uneven = is_uneven(&z);
		out->hosted = is_hosted(&z, out->uneven);
		out->known = how_well(&z);
		good = !out->hosted || measure(&z, &out->info);
	}
	sizing_free(&z);
	return good;
}
