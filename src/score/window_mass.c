/* Attention of the observation window: softmax(Q K^T * scale) of the last W queries over the keys they may see.
 *
 * Several scorers, and the measure "attention kept", start from its column means, so they are computed once for a layer.
 * Memory is one KV head's logits, [g W][T]: O(T), never T x T. */
#include "core/internal.h"

#include <math.h>
#include <string.h>

typedef struct job {
	ckv_ctx *ctx;
	const ckv_layer *layer;
	int32_t window, n_tokens, dim, group;
	size_t n_queries; /* of one KV head: group * window */
	size_t padded;    /* T rounded up to whole panels */
	float scale;
	float *rows, *panel, *queries, *logits;
} job;

static ckv_status check_shapes(const ckv_layer *layer, int32_t window, ckv_error *error) {
	const ckv_view *k = &layer->k, *q = &layer->q;
	ckv_status status = ckv_view_check(q, "queries", layer->index, error);
	if (status) {
		return status;
	}
	if (q->n_heads % k->n_heads != 0 || q->head_dim != k->head_dim) {
		return ckv_fail(error, CKV_ERR_ARG, "layer %d: %d query heads of %d do not go with %d key heads of %d", layer->index,
		                q->n_heads, q->head_dim, k->n_heads, k->head_dim);
	}
	if (q->n_tokens < window || k->n_tokens < window) {
		return ckv_fail(error, CKV_ERR_ARG, "layer %d: a window of %d needs as many queries and keys; there are %d and %d",
		                layer->index, window, q->n_tokens, k->n_tokens);
	}
	return CKV_OK;
}

static ckv_status job_init(job *j, ckv_ctx *ctx, const ckv_layer *layer, int32_t window) {
	j->ctx = ctx;
	j->layer = layer;
	j->window = window;
	j->n_tokens = layer->k.n_tokens;
	j->dim = layer->k.head_dim;
	j->group = layer->q.n_heads / layer->k.n_heads;
	j->n_queries = (size_t)j->group * (size_t)window;
	j->padded = ((size_t)j->n_tokens + CKV_LANES - 1) / CKV_LANES * CKV_LANES;
	j->scale = layer->scale != 0.0f ? layer->scale : 1.0f / sqrtf((float)j->dim);
	size_t d = (size_t)j->dim;
	j->rows = ckv_scratch(ctx, SLOT_ROWS, CKV_LANES * d, sizeof(float));
	j->panel = ckv_scratch(ctx, SLOT_PANEL, CKV_LANES * d, sizeof(float));
	j->queries = ckv_scratch(ctx, SLOT_QUERIES, j->n_queries, d * sizeof(float));
	j->logits = ckv_scratch(ctx, SLOT_LOGITS, j->n_queries, j->padded * sizeof(float));
	return j->rows && j->panel && j->queries && j->logits ? CKV_OK : CKV_ERR_NOMEM;
}

/* queries[(head in group) * W + i]: the window's queries of one KV head's group. */
static void load_queries(job *j, int32_t kv_head) {
	const ckv_view *q = &j->layer->q;
	for (int32_t h = 0; h < j->group; h++) {
		float *out = j->queries + (size_t)h * (size_t)j->window * (size_t)j->dim;
		ckv_view_decode(j->ctx->kernels, q, kv_head * j->group + h, q->n_tokens - j->window, j->window, out);
	}
}

static bool all_finite(const float *x, size_t n) {
	uint32_t bad = 0;
	for (size_t i = 0; i < n; i++) {
		uint32_t bits;
		memcpy(&bits, &x[i], sizeof bits);
		bad |= (bits & 0x7f800000u) == 0x7f800000u;
	}
	return bad == 0;
}

static ckv_status compute_logits(job *j, int32_t kv_head) {
	const ckv_kernels *kernels = j->ctx->kernels;
	size_t d = (size_t)j->dim;
	for (int32_t t = 0; t < j->n_tokens; t += CKV_LANES) {
		int32_t n = j->n_tokens - t < CKV_LANES ? j->n_tokens - t : CKV_LANES;
		ckv_view_decode(kernels, &j->layer->k, kv_head, t, n, j->rows);
		if (!all_finite(j->rows, (size_t)n * d)) {
			return ckv_fail(&j->ctx->error, CKV_ERR_NUMERIC,
			                "layer %d, KV head %d, token %d or one of the 15 after it: NaN or infinity in a key",
			                j->layer->index, kv_head, t);
		}
		memset(j->rows + (size_t)n * d, 0, (CKV_LANES - (size_t)n) * d * sizeof *j->rows);
		kernels->pack(j->rows, d, j->panel);
		kernels->qk(j->queries, j->n_queries, d, j->panel, j->scale, j->logits + t, j->padded);
	}
	return CKV_OK;
}

static void cap_logits(float *x, size_t n, float cap) {
	for (size_t i = 0; i < n; i++) {
		x[i] = cap * tanhf(x[i] / cap);
	}
}

/* Query i of the window sees keys 0 .. T - W + i. */
static void add_head(job *j, int32_t head_in_group, float *mass) {
	const ckv_kernels *kernels = j->ctx->kernels;
	memset(mass, 0, (size_t)j->n_tokens * sizeof *mass);
	for (int32_t i = 0; i < j->window; i++) {
		float *row = j->logits + ((size_t)head_in_group * (size_t)j->window + (size_t)i) * j->padded;
		size_t visible = (size_t)j->n_tokens - (size_t)(j->window - i - 1);
		if (j->layer->logit_cap > 0.0f) {
			cap_logits(row, visible, j->layer->logit_cap);
		}
		float sum = kernels->exp_sum(row, visible);
		kernels->axpy(mass, row, 1.0f / (sum * (float)j->window), visible);
	}
}

ckv_status ckv_window_mass(ckv_ctx *ctx, const ckv_layer *layer, int32_t window, const float **mass) {
	if (ctx->mass_window == window) {
		*mass = ctx->slot[SLOT_MASS];
		return CKV_OK;
	}
	ckv_status status = check_shapes(layer, window, &ctx->error);
	if (status) {
		return status;
	}
	job j;
	status = job_init(&j, ctx, layer, window);
	if (status) {
		return status;
	}
	size_t n = (size_t)j.n_tokens;
	float *out = ckv_scratch(ctx, SLOT_MASS, (size_t)layer->q.n_heads, n * sizeof(float));
	if (!out) {
		return CKV_ERR_NOMEM;
	}
	for (int32_t g = 0; g < layer->k.n_heads; g++) {
		load_queries(&j, g);
		status = compute_logits(&j, g);
		if (status) {
			return status;
		}
		for (int32_t h = 0; h < j.group; h++) {
			add_head(&j, h, out + (size_t)(g * j.group + h) * n);
		}
	}
	ctx->mass_window = window;
	*mass = out;
	return CKV_OK;
}
