/* Attention of a block of queries: softmax(Q K^T * scale) over the keys that each may see, added up along the queries.
 *
 * Several scorers, and the measure "attention kept", start from it. Memory is one KV head's logits for each worker,
 * [queries][T]: O(T), never T x T. */
#include "core/internal.h"

#include <math.h>
#include <string.h>

ckv_status ckv_queries_check(const ckv_layer *layer, int32_t n, ckv_error *error) {
	const ckv_view *k = &layer->k, *q = &layer->q;
	ckv_status status = ckv_view_check(q, "queries", layer->index, error);
	if (status) {
		return status;
	}
	if (q->n_heads % k->n_heads != 0 || q->head_dim != k->head_dim) {
		return ckv_fail(error, CKV_ERR_ARG, "layer %d: %d query heads of %d do not go with %d key heads of %d", layer->index,
		                q->n_heads, q->head_dim, k->n_heads, k->head_dim);
	}
	if (q->n_tokens < n || k->n_tokens < n) {
		return ckv_fail(error, CKV_ERR_ARG, "layer %d: a window of %d needs as many queries and keys; there are %d and %d",
		                layer->index, n, q->n_tokens, k->n_tokens);
	}
	return CKV_OK;
}

float ckv_logit_scale(const ckv_layer *layer) {
	return layer->scale != 0.0f ? layer->scale : 1.0f / sqrtf((float)layer->k.head_dim);
}

void ckv_cap_logits(float *x, size_t n, float cap) {
	for (size_t i = 0; i < n; i++) {
		x[i] = cap * tanhf(x[i] / cap);
	}
}

bool ckv_all_finite(const float *x, size_t n) {
	uint32_t bad = 0;
	for (size_t i = 0; i < n; i++) {
		uint32_t bits;
		memcpy(&bits, &x[i], sizeof bits);
		bad |= (bits & 0x7f800000u) == 0x7f800000u;
	}
	return bad == 0;
}

ckv_status ckv_panel_load(const ckv_kernels *kernels, const ckv_layer *layer, int32_t kv_head, int32_t t, int32_t n,
                          const ckv_panel *to, ckv_error *error) {
	size_t d = (size_t)layer->k.head_dim;
	ckv_view_decode(kernels, &layer->k, kv_head, t, n, to->rows);
	if (!ckv_all_finite(to->rows, (size_t)n * d)) {
		return ckv_fail(error, CKV_ERR_NUMERIC,
		                "layer %d, KV head %d, token %d or one of the 15 after it: NaN or infinity in a key", layer->index,
		                kv_head, t);
	}
	memset(to->rows + (size_t)n * d, 0, (CKV_LANES - (size_t)n) * d * sizeof *to->rows);
	kernels->pack(to->rows, d, to->panel);
	return CKV_OK;
}

/* What all workers share; each has its own part of the scratch arrays. */
typedef struct job {
	const ckv_kernels *kernels;
	const ckv_layer *layer;
	const ckv_query_block *block;
	int32_t group;
	size_t dim, n_queries; /* of one KV head: group * block->n */
	size_t padded;         /* keys rounded up to whole panels */
	float scale;
	float *rows, *panel, *queries, *logits, *partial;
} job;

static ckv_status job_init(job *j, ckv_ctx *ctx, const ckv_layer *layer, const ckv_query_block *block) {
	size_t workers = (size_t)ckv_workers(ctx, layer->k.n_heads);
	j->kernels = ctx->kernels;
	j->layer = layer;
	j->block = block;
	j->dim = (size_t)layer->k.head_dim;
	j->group = layer->q.n_heads / layer->k.n_heads;
	j->n_queries = (size_t)j->group * (size_t)block->n;
	j->padded = ((size_t)block->n_keys + CKV_LANES - 1) / CKV_LANES * CKV_LANES;
	j->scale = ckv_logit_scale(layer);
	j->rows = ckv_scratch(ctx, SLOT_ROWS, workers * CKV_LANES * j->dim, sizeof(float));
	j->panel = ckv_scratch(ctx, SLOT_PANEL, workers * CKV_LANES * j->dim, sizeof(float));
	j->queries = ckv_scratch(ctx, SLOT_QUERIES, workers * j->n_queries, j->dim * sizeof(float));
	j->logits = ckv_scratch(ctx, SLOT_LOGITS, workers * j->n_queries, j->padded * sizeof(float));
	j->partial = ckv_scratch(ctx, SLOT_PARTIAL, workers * j->padded, sizeof(float));
	return j->rows && j->panel && j->queries && j->logits && j->partial ? CKV_OK : CKV_ERR_NOMEM;
}

static float *logits_of(const job *j, int32_t worker) { return j->logits + (size_t)worker * j->n_queries * j->padded; }

static ckv_status compute_logits(const job *j, int32_t worker, int32_t kv_head, ckv_error *error) {
	size_t w = (size_t)worker, d = j->dim;
	float *queries = j->queries + w * j->n_queries * d, *logits = logits_of(j, worker);
	ckv_panel panel = {j->rows + w * CKV_LANES * d, j->panel + w * CKV_LANES * d};
	for (int32_t h = 0; h < j->group; h++) {
		ckv_view_decode(j->kernels, &j->layer->q, kv_head * j->group + h, j->block->first, j->block->n,
		                queries + (size_t)h * (size_t)j->block->n * d);
	}
	if (!ckv_all_finite(queries, j->n_queries * d)) { /* a logit cap would make something of it */
		return ckv_fail(error, CKV_ERR_NUMERIC, "layer %d, KV head %d: NaN or infinity in a query", j->layer->index,
		                kv_head);
	}
	for (int32_t t = 0; t < j->block->n_keys; t += CKV_LANES) {
		int32_t n = j->block->n_keys - t < CKV_LANES ? j->block->n_keys - t : CKV_LANES;
		ckv_status status = ckv_panel_load(j->kernels, j->layer, kv_head, t, n, &panel, error);
		if (status) {
			return status;
		}
		j->kernels->qk(queries, j->n_queries, d, panel.panel, j->scale, logits + t, j->padded);
	}
	return CKV_OK;
}

/* out[t] = sum over the block's queries of weight * softmax. */
static void add_up(const job *j, int32_t worker, int32_t head_in_group, float weight, float *out) {
	const ckv_query_block *b = j->block;
	memset(out, 0, (size_t)b->n_keys * sizeof *out);
	for (int32_t i = 0; i < b->n; i++) {
		float *row = logits_of(j, worker) + ((size_t)head_in_group * (size_t)b->n + (size_t)i) * j->padded;
		size_t visible = (size_t)(b->n_keys - (b->n - i - 1));
		if (j->layer->logit_cap > 0.0f) {
			ckv_cap_logits(row, visible, j->layer->logit_cap);
		}
		float sum = j->kernels->exp_sum(row, visible);
		j->kernels->axpy(out, row, 1.0f / (sum * weight), visible);
	}
}

static ckv_status one_head(void *user, int32_t worker, int32_t kv_head, ckv_error *error) {
	const job *j = user;
	const ckv_query_block *b = j->block;
	ckv_status status = compute_logits(j, worker, kv_head, error);
	for (int32_t h = 0; h < j->group && status == CKV_OK; h++) {
		if (b->by_head) {
			add_up(j, worker, h, (float)b->n, b->out + (size_t)(kv_head * j->group + h) * b->stride);
			continue;
		}
		float *partial = j->partial + (size_t)worker * j->padded;
		add_up(j, worker, h, 1.0f, partial);
		j->kernels->axpy(b->out + (size_t)kv_head * b->stride, partial, 1.0f / (float)j->group, (size_t)b->n_keys);
	}
	return status;
}

ckv_status ckv_attention_block(ckv_ctx *ctx, const ckv_layer *layer, const ckv_query_block *block) {
	job j;
	ckv_status status = job_init(&j, ctx, layer, block);
	return status ? status : ckv_parallel(ctx, layer->k.n_heads, one_head, &j);
}

ckv_status ckv_window_mass(ckv_ctx *ctx, const ckv_layer *layer, int32_t window, const float **mass) {
	size_t n = (size_t)layer->k.n_tokens;
	if (ctx->mass_window == window) {
		*mass = ctx->slot[SLOT_MASS];
		return CKV_OK;
	}
	ckv_status status = ckv_queries_check(layer, window, &ctx->error);
	if (status) {
		return status;
	}
	float *out = ckv_scratch(ctx, SLOT_MASS, (size_t)layer->q.n_heads, n * sizeof(float));
	if (!out) {
		return CKV_ERR_NOMEM;
	}
	ckv_query_block block = {.first = layer->q.n_tokens - window,
	                         .n = window,
	                         .n_keys = layer->k.n_tokens,
	                         .by_head = true,
	                         .out = out,
	                         .stride = n};
	status = ckv_attention_block(ctx, layer, &block);
	if (status == CKV_OK) {
		ctx->mass_window = window;
		*mass = out;
	}
	return status;
}

ckv_status ckv_mass_add(ckv_ctx *ctx, const ckv_layer *layer, float *sums, size_t stride) {
	enum { BLOCK = 32 }; /* queries whose logits are held at once */
	if (!ctx) {
		return CKV_ERR_ARG;
	}
	ckv_begin(ctx);
	if (!layer || !sums || layer->size < sizeof *layer) {
		return ckv_fail(&ctx->error, CKV_ERR_ARG, "ckv_mass_add needs a layer (start from ckv_layer_init) and the sums");
	}
	ckv_status status = ckv_layer_check(layer, &ctx->error);
	status = status ? status : ckv_queries_check(layer, 1, &ctx->error);
	int32_t n = layer->q.n_tokens, n_keys = layer->k.n_tokens;
	if (status == CKV_OK && (n > n_keys || stride < (size_t)n_keys)) {
		status = ckv_fail(&ctx->error, CKV_ERR_ARG, "layer %d: %d queries and rows of %zu sums do not go with %d keys",
		                  layer->index, n, stride, n_keys);
	}
	for (int32_t i = 0; i < n && status == CKV_OK; i += BLOCK) {
		int32_t size = n - i < BLOCK ? n - i : BLOCK;
		ckv_query_block block = {.first = i, .n = size, .n_keys = n_keys - n + i + size, .out = sums, .stride = stride};
		status = ckv_attention_block(ctx, layer, &block);
	}
	return status;
}
