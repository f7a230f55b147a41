/* Expected Attention (arXiv 2510.00636, section 3): queries still to come are taken to be normal, with the mean and
 * covariance of those seen, turned to the positions ahead. A key's expected weight is then exp(mu.k s + k'Sk s^2 / 2), s the
 * logit scale (the mean of a log-normal); normalised over the keys, mean over the group, times the value's length.
 *
 * The rotation is averaged over the next `future` positions and applied to mean and covariance. Sinks are not scored: they
 * get one score above all others. A logit cap has no part in it. */
#include "core/internal.h"

#include <math.h>

typedef struct job {
	const ckv_kernels *kernels;
	const ckv_layer *layer;
	int32_t sinks, group;
	size_t dim, widest, padded;              /* widest: the larger of d and d_v */
	float scale, *mean, *covariance;         /* [H][d], [H][d][d] of the queries to come */
	float *rows, *panel, *products, *logits; /* each worker's: [16][widest], [d][16], [d][16], [g][T padded] */
	float *scores;
} job;

/* Averaged cosine and sine of pair i over the positions ahead. */
static void mean_rotation(const ckv_rope *rope, int32_t i, int32_t first, int32_t n, double *c, double *s) {
	*c = *s = 0.0;
	for (int32_t t = 0; t < n; t++) {
		double angle = (double)((float)(first + t) * rope->inv_freq[i]);
		*c += cos(angle);
		*s += sin(angle);
	}
	double gain = rope->gain != 0.0f ? (double)rope->gain : 1.0;
	*c *= gain / n;
	*s *= gain / n;
}

static void turn_pair(float *a, float *b, double c, double s) {
	double x = (double)*a, y = (double)*b;
	*a = (float)(c * x - s * y);
	*b = (float)(s * x + c * y);
}

/* mean <- R mean, covariance <- R covariance R'. */
static void turn(const job *j, int32_t first, int32_t n_future) {
	const ckv_rope *rope = &j->layer->rope;
	size_t d = j->dim, heads = (size_t)j->layer->k.n_heads * (size_t)j->group;
	for (int32_t i = 0; i < rope->n_dims / 2; i++) {
		double c, s;
		size_t a = (size_t)(rope->interleaved ? 2 * i : i), b = rope->interleaved ? a + 1 : a + (size_t)rope->n_dims / 2;
		mean_rotation(rope, i, first, n_future, &c, &s);
		for (size_t h = 0; h < heads; h++) {
			float *m = j->mean + h * d, *v = j->covariance + h * d * d;
			turn_pair(&m[a], &m[b], c, s);
			for (size_t k = 0; k < d; k++) {
				turn_pair(&v[a * d + k], &v[b * d + k], c, s);
			}
			for (size_t k = 0; k < d; k++) {
				turn_pair(&v[k * d + a], &v[k * d + b], c, s);
			}
		}
	}
}

/* Logits of 16 keys for one query head; key t of the panel goes to out[t]. */
static void add_logits(const job *j, int32_t worker, size_t head, float *out) {
	size_t d = j->dim, w = (size_t)worker;
	const float *panel = j->panel + w * CKV_LANES * d;
	float *products = j->products + w * CKV_LANES * d;
	float half = 0.5f * j->scale * j->scale, squares[CKV_LANES] = {0};
	j->kernels->qk(j->mean + head * d, 1, d, panel, j->scale, out, CKV_LANES);
	j->kernels->qk(j->covariance + head * d * d, d, d, panel, 1.0f, products, CKV_LANES);
	for (size_t i = 0; i < d; i++) {
		for (size_t t = 0; t < CKV_LANES; t++) {
			squares[t] = fmaf(panel[i * CKV_LANES + t], products[i * CKV_LANES + t], squares[t]);
		}
	}
	for (size_t t = 0; t < CKV_LANES; t++) {
		out[t] += half * squares[t];
	}
}

static ckv_status head_logits(const job *j, int32_t worker, int32_t kv_head, float *logits, ckv_error *error) {
	size_t w = (size_t)worker, d = j->dim;
	ckv_panel panel = {j->rows + w * CKV_LANES * j->widest, j->panel + w * CKV_LANES * d};
	for (int32_t t = j->sinks; t < j->layer->k.n_tokens; t += CKV_LANES) {
		int32_t left = j->layer->k.n_tokens - t;
		ckv_status status =
		    ckv_panel_load(j->kernels, j->layer, kv_head, t, left < CKV_LANES ? left : CKV_LANES, &panel, error);
		if (status) {
			return status;
		}
		for (int32_t h = 0; h < j->group; h++) {
			size_t head = (size_t)kv_head * (size_t)j->group + (size_t)h;
			add_logits(j, worker, head, logits + (size_t)h * j->padded + (t - j->sinks));
		}
	}
	return CKV_OK;
}

static ckv_status one_head(void *user, int32_t worker, int32_t kv_head, ckv_error *error) {
	const job *j = user;
	const ckv_view *v = &j->layer->v;
	size_t n = (size_t)(j->layer->k.n_tokens - j->sinks), d_v = (size_t)v->head_dim;
	float *logits = j->logits + (size_t)worker * (size_t)j->group * j->padded;
	float *out = j->scores + (size_t)kv_head * (size_t)j->layer->k.n_tokens + j->sinks;
	float *row = j->rows + (size_t)worker * CKV_LANES * j->widest; /* no longer needed for keys */
	ckv_status status = head_logits(j, worker, kv_head, logits, error);
	if (status) {
		return status;
	}
	for (size_t t = 0; t < n; t++) {
		out[t] = 0.0f;
	}
	for (int32_t h = 0; h < j->group; h++) {
		float *weight = logits + (size_t)h * j->padded;
		float sum = j->kernels->exp_sum(weight, n);
		j->kernels->axpy(out, weight, 1.0f / (sum * (float)j->group), n);
	}
	for (size_t t = 0; t < n; t++) {
		ckv_view_decode(j->kernels, v, kv_head, j->sinks + (int32_t)t, 1, row);
		out[t] *= (float)ckv_norm(row, d_v);
	}
	return CKV_OK;
}

/* One score above all others for the sinks, as in the published code. */
static void crown_sinks(const job *j) {
	size_t n = (size_t)j->layer->k.n_tokens, heads = (size_t)j->layer->k.n_heads, first = (size_t)j->sinks;
	float best = j->scores[first];
	for (size_t g = 0; g < heads; g++) {
		for (size_t t = first; t < n; t++) {
			best = j->scores[g * n + t] > best ? j->scores[g * n + t] : best;
		}
	}
	for (size_t g = 0; g < heads; g++) {
		for (size_t t = 0; t < first; t++) {
			j->scores[g * n + t] = best + 1.0f;
		}
	}
}

static ckv_status check(ckv_ctx *ctx, const ckv_layer *layer, int32_t n_heads, int32_t dim) {
	const ckv_rope *rope = &layer->rope;
	if (n_heads < 1 || n_heads % layer->k.n_heads != 0 || dim != layer->k.head_dim) {
		return ckv_fail(&ctx->error, CKV_ERR_ARG,
		                "layer %d: scorer 'expected_attention' needs the moments of its queries: %d heads of %d do not go "
		                "with %d key heads of %d",
		                layer->index, n_heads, dim, layer->k.n_heads, layer->k.head_dim);
	}
	if (layer->v.n_heads != layer->k.n_heads || layer->v.n_tokens != layer->k.n_tokens) {
		return ckv_fail(&ctx->error, CKV_ERR_ARG, "layer %d: values and keys differ in shape", layer->index);
	}
	if (rope->n_dims < 0 || rope->n_dims % 2 || rope->n_dims > dim || (rope->n_dims && !rope->inv_freq)) {
		return ckv_fail(&ctx->error, CKV_ERR_ARG, "layer %d: a rotation of %d channels of %d, or without frequencies",
		                layer->index, rope->n_dims, dim);
	}
	return CKV_OK;
}

static ckv_status job_init(job *j, ckv_ctx *ctx, const ckv_layer *layer, int32_t n_heads, float *scores) {
	size_t d = (size_t)layer->k.head_dim, widest = (size_t)layer->v.head_dim > d ? (size_t)layer->v.head_dim : d;
	size_t workers = (size_t)ckv_workers(ctx, layer->k.n_heads), heads = (size_t)n_heads;
	*j = (job){.kernels = ctx->kernels,
	           .layer = layer,
	           .sinks = ctx->params.sinks,
	           .group = n_heads / layer->k.n_heads,
	           .dim = d,
	           .widest = widest,
	           .scale = ckv_logit_scale(layer),
	           .scores = scores};
	j->padded = ((size_t)layer->k.n_tokens / CKV_LANES + 2) * CKV_LANES;
	j->mean = ckv_scratch(ctx, SLOT_MEAN, heads, d * sizeof(float));
	j->covariance = ckv_scratch(ctx, SLOT_MOMENTS, heads * d, d * sizeof(float));
	j->rows = ckv_scratch(ctx, SLOT_ROWS, workers * CKV_LANES, widest * sizeof(float));
	j->panel = ckv_scratch(ctx, SLOT_PANEL, workers * CKV_LANES, d * sizeof(float));
	j->products = ckv_scratch(ctx, SLOT_QUERIES, workers * CKV_LANES, d * sizeof(float));
	j->logits = ckv_scratch(ctx, SLOT_LOGITS, workers * (size_t)j->group, j->padded * sizeof(float));
	return j->mean && j->covariance && j->rows && j->panel && j->products && j->logits ? CKV_OK : CKV_ERR_NOMEM;
}

static ckv_status score(ckv_ctx *ctx, const ckv_layer *layer, int32_t n_keep, float *scores) {
	(void)n_keep;
	int32_t n_heads, dim;
	job j;
	ckv_moments_shape(layer->moments, &n_heads, &dim);
	ckv_status status = check(ctx, layer, n_heads, dim);
	status = status ? status : job_init(&j, ctx, layer, n_heads, scores);
	if (status) {
		return status;
	}
	if (ckv_moments_read(layer->moments, j.mean, j.covariance) == 0) {
		return ckv_fail(&ctx->error, CKV_ERR_ARG, "layer %d: no query was added to the moments", layer->index);
	}
	turn(&j, layer->next_position ? layer->next_position : layer->k.n_tokens, ctx->params.future);
	status = ckv_parallel(ctx, layer->k.n_heads, one_head, &j);
	if (status == CKV_OK) {
		crown_sinks(&j);
	}
	return status;
}

static ckv_needs needs(const ckv_params *params) {
	(void)params;
	return (ckv_needs){CKV_NEED_VALUES | CKV_NEED_MOMENTS, 0};
}

static int32_t min_tokens(const ckv_params *params) { return params->sinks + 1; }

const ckv_scorer ckv_scorer_expected_attention = {
    .info = {"expected_attention", "attention expected of queries to come, times the value's length",
             "Expected Attention, arXiv 2510.00636", "future,sinks"},
    .needs = needs,
    .min_tokens = min_tokens,
    .short_reason = CKV_KEPT_ALL_SINKS,
    .score = score,
};
