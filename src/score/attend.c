/* Attention over a cache whose heads may hold different rows. Only the rows that a query sees are weighed. */
#include "core/internal.h"

#include <string.h>

typedef struct job {
	const ckv_kernels *kernels;
	const ckv_layer *layer;
	const uint8_t *visible, *absent;
	float *out;
	int32_t n_heads, group;
	size_t dim_k, dim_v, n_tokens, n_queries, padded;
	float scale;
	float *rows, *panel, *queries, *logits, *weights; /* each worker's */
	int32_t *seen;                                    /* each worker's */
} job;

static ckv_status job_init(job *j, ckv_ctx *ctx, const ckv_layer *layer) {
	size_t workers = (size_t)ckv_workers(ctx, layer->k.n_heads);
	j->kernels = ctx->kernels;
	j->layer = layer;
	j->n_heads = layer->q.n_heads;
	j->group = layer->q.n_heads / layer->k.n_heads;
	j->dim_k = (size_t)layer->k.head_dim;
	j->dim_v = (size_t)layer->v.head_dim;
	j->n_tokens = (size_t)layer->k.n_tokens;
	j->n_queries = (size_t)layer->q.n_tokens;
	j->padded = (j->n_tokens + CKV_LANES - 1) / CKV_LANES * CKV_LANES;
	j->scale = ckv_logit_scale(layer);
	size_t widest = j->dim_k > j->dim_v ? j->dim_k : j->dim_v, of_group = (size_t)j->group * j->n_queries;
	j->rows = ckv_scratch(ctx, SLOT_ROWS, workers * CKV_LANES, widest * sizeof(float));
	j->panel = ckv_scratch(ctx, SLOT_PANEL, workers * CKV_LANES, j->dim_k * sizeof(float));
	j->queries = ckv_scratch(ctx, SLOT_QUERIES, workers * of_group, j->dim_k * sizeof(float));
	j->logits = ckv_scratch(ctx, SLOT_LOGITS, workers * of_group, j->padded * sizeof(float));
	j->weights = ckv_scratch(ctx, SLOT_PARTIAL, workers * j->padded, sizeof(float));
	j->seen = ckv_scratch(ctx, SLOT_VISIBLE, workers * j->padded, sizeof(int32_t));
	return j->rows && j->panel && j->queries && j->logits && j->weights && j->seen ? CKV_OK : CKV_ERR_NOMEM;
}

static float *rows_of(const job *j, int32_t worker) {
	size_t widest = j->dim_k > j->dim_v ? j->dim_k : j->dim_v;
	return j->rows + (size_t)worker * CKV_LANES * widest;
}

/* logits[(head in group) * n_queries + query][T] */
static float *logits_of(const job *j, int32_t worker) {
	return j->logits + (size_t)worker * (size_t)j->group * j->n_queries * j->padded;
}

/* Rows that nobody sees are computed with the others of their panel, but not looked at: they may hold anything. */
static void compute_logits(const job *j, int32_t worker, int32_t kv_head) {
	size_t w = (size_t)worker, of_group = (size_t)j->group * j->n_queries;
	float *queries = j->queries + w * of_group * j->dim_k;
	float *rows = rows_of(j, worker), *panel = j->panel + w * CKV_LANES * j->dim_k;
	for (int32_t h = 0; h < j->group; h++) {
		ckv_view_decode(j->kernels, &j->layer->q, kv_head * j->group + h, 0, (int32_t)j->n_queries,
		                queries + (size_t)h * j->n_queries * j->dim_k);
	}
	for (size_t t = 0; t < j->n_tokens; t += CKV_LANES) {
		size_t n = j->n_tokens - t < CKV_LANES ? j->n_tokens - t : CKV_LANES;
		ckv_view_decode(j->kernels, &j->layer->k, kv_head, (int32_t)t, (int32_t)n, rows);
		memset(rows + n * j->dim_k, 0, (CKV_LANES - n) * j->dim_k * sizeof *rows);
		j->kernels->pack(rows, j->dim_k, panel);
		j->kernels->qk(queries, of_group, j->dim_k, panel, j->scale, logits_of(j, worker) + t, j->padded);
	}
}

static ckv_status not_finite(const job *j, int32_t kv_head, const char *what, ckv_error *error) {
	return ckv_fail(error, CKV_ERR_NUMERIC, "layer %d, KV head %d: NaN or infinity in %s", j->layer->index, kv_head, what);
}

/* Turns one query's logits into weights, zero for rows that it does not see. */
static ckv_status weigh(const job *j, int32_t worker, int32_t kv_head, size_t query, float *logits, ckv_error *error) {
	float *weights = j->weights + (size_t)worker * j->padded;
	int32_t *seen = j->seen + (size_t)worker * j->padded;
	const uint8_t *absent = j->absent ? j->absent + (size_t)kv_head * j->n_tokens : NULL;
	size_t n = 0;
	for (size_t t = 0; t < j->n_tokens; t++) {
		if (j->visible[query * j->n_tokens + t] && !(absent && absent[t])) {
			weights[n] = logits[t];
			seen[n++] = (int32_t)t;
		}
		logits[t] = 0.0f;
	}
	if (n == 0) {
		return CKV_OK;
	}
	if (!ckv_all_finite(weights, n)) { /* before a cap makes something of it */
		return not_finite(j, kv_head, "a key, a query or their product", error);
	}
	if (j->layer->logit_cap > 0.0f) {
		ckv_cap_logits(weights, n, j->layer->logit_cap);
	}
	float sum = j->kernels->exp_sum(weights, n);
	for (size_t i = 0; i < n; i++) {
		logits[seen[i]] = weights[i] / sum;
	}
	return CKV_OK;
}

static float *out_of(const job *j, int32_t kv_head, int32_t head_in_group, size_t query) {
	size_t head = (size_t)kv_head * (size_t)j->group + (size_t)head_in_group;
	return j->out + (query * (size_t)j->n_heads + head) * j->dim_v;
}

/* out += weight * value for all queries of the group; the value is decoded once. */
static ckv_status add_value(const job *j, int32_t worker, int32_t kv_head, size_t t, ckv_error *error) {
	const float *weights = logits_of(j, worker);
	float *row = rows_of(j, worker);
	bool used = false;
	ckv_view_decode(j->kernels, &j->layer->v, kv_head, (int32_t)t, 1, row);
	for (int32_t h = 0; h < j->group; h++) {
		for (size_t i = 0; i < j->n_queries; i++) {
			float weight = weights[((size_t)h * j->n_queries + i) * j->padded + t];
			if (weight > 0.0f) {
				j->kernels->axpy(out_of(j, kv_head, h, i), row, weight, j->dim_v);
				used = true;
			}
		}
	}
	return used && !ckv_all_finite(row, j->dim_v) ? not_finite(j, kv_head, "a value", error) : CKV_OK;
}

static ckv_status one_head(void *user, int32_t worker, int32_t kv_head, ckv_error *error) {
	const job *j = user;
	ckv_status status = CKV_OK;
	compute_logits(j, worker, kv_head);
	for (int32_t h = 0; h < j->group; h++) {
		for (size_t i = 0; i < j->n_queries && status == CKV_OK; i++) {
			float *logits = logits_of(j, worker) + ((size_t)h * j->n_queries + i) * j->padded;
			memset(out_of(j, kv_head, h, i), 0, j->dim_v * sizeof *j->out);
			status = weigh(j, worker, kv_head, i, logits, error);
		}
	}
	for (size_t t = 0; t < j->n_tokens && status == CKV_OK; t++) {
		status = add_value(j, worker, kv_head, t, error);
	}
	return status;
}

ckv_status ckv_attend(ckv_ctx *ctx, const ckv_layer *layer, const uint8_t *visible, const uint8_t *absent, float *out) {
	job j;
	if (!ctx) {
		return CKV_ERR_ARG;
	}
	ckv_begin(ctx);
	if (!layer || !visible || !out || layer->size < sizeof *layer) {
		return ckv_fail(&ctx->error, CKV_ERR_ARG,
		                "ckv_attend needs a layer, what its queries see, and a place for the result");
	}
	ckv_status status = ckv_layer_check(layer, &ctx->error);
	status = status ? status : ckv_view_check(&layer->v, "values", layer->index, &ctx->error);
	if (status == CKV_OK && (layer->v.n_heads != layer->k.n_heads || layer->v.n_tokens != layer->k.n_tokens)) {
		status = ckv_fail(&ctx->error, CKV_ERR_ARG, "layer %d: values and keys differ in shape", layer->index);
	}
	status = status ? status : ckv_queries_check(layer, 0, &ctx->error);
	status = status ? status : job_init(&j, ctx, layer);
	j.visible = visible;
	j.absent = absent;
	j.out = out;
	return status ? status : ckv_parallel(ctx, layer->k.n_heads, one_head, &j);
}
