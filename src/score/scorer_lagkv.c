/* LagKV (arXiv 2504.04704): the tokens after the sinks are cut into partitions; a token is worth how much its key and value
 * vary over the channels when these are scaled by the range they have in the partition that follows. What counts is its rank
 * within the partition, so each partition gives the same share. The last partition and what is left over score 1, as do the
 * sinks. A cache too short for two partitions scores by position: the newest most, the sinks 1. */
#include "core/internal.h"

#include <math.h>

typedef struct job {
	size_t dim, lag;
	float *rows;           /* [2][lag][d] of two neighbouring partitions */
	double *value, *other; /* [lag] */
	int32_t *order;        /* [lag] */
} job;

static void score_short(const ckv_params *p, int32_t n, float *out) {
	for (int32_t t = 0; t < n; t++) {
		out[t] = t < p->sinks ? 1.0f : (float)(t - p->sinks) / (float)(n - p->sinks);
	}
}

/* Unbiased standard deviation over the channels, each scaled by its range in the next partition. A channel that does not
 * vary there counts as 0. */
static double deviation(const job *j, const float *row, const float *low, const float *high) {
	double sum = 0.0, squares = 0.0, n = (double)j->dim;
	for (size_t c = 0; c < j->dim; c++) {
		double range = (double)high[c] - (double)low[c];
		double x = range > 0.0 ? ((double)row[c] - (double)low[c]) / range : 0.0;
		sum += x;
	}
	double mean = sum / n;
	for (size_t c = 0; c < j->dim; c++) {
		double range = (double)high[c] - (double)low[c];
		double x = range > 0.0 ? ((double)row[c] - (double)low[c]) / range : 0.0;
		squares += (x - mean) * (x - mean);
	}
	return j->dim > 1 ? sqrt(squares / (n - 1.0)) : 0.0;
}

static void softmax(double *x, size_t n) {
	double most = x[0], sum = 0.0;
	for (size_t i = 1; i < n; i++) {
		most = x[i] > most ? x[i] : most;
	}
	for (size_t i = 0; i < n; i++) {
		x[i] = exp(x[i] - most);
		sum += x[i];
	}
	for (size_t i = 0; i < n; i++) {
		x[i] /= sum;
	}
}

/* Softmax over the partition's tokens of their deviations. rows: the partition's, then the next one's. */
static void spread(const job *j, double *out, float *low, float *high) {
	const float *next = j->rows + j->lag * j->dim;
	for (size_t c = 0; c < j->dim; c++) {
		low[c] = high[c] = next[c];
		for (size_t i = 1; i < j->lag; i++) {
			float x = next[i * j->dim + c];
			low[c] = x < low[c] ? x : low[c];
			high[c] = x > high[c] ? x : high[c];
		}
	}
	for (size_t i = 0; i < j->lag; i++) {
		out[i] = deviation(j, j->rows + i * j->dim, low, high);
	}
	softmax(out, j->lag);
}

/* A heap of positions by value, then position: sorted ascending without a comparison that needs a context. */
static bool before(const double *value, int32_t a, int32_t b) {
	return value[a] < value[b] || (value[a] <= value[b] && a < b);
}

static void sift(const double *value, int32_t *order, size_t root, size_t n) {
	for (size_t child; (child = 2 * root + 1) < n; root = child) {
		if (child + 1 < n && before(value, order[child], order[child + 1])) {
			child++;
		}
		if (!before(value, order[root], order[child])) {
			return;
		}
		int32_t swap = order[root];
		order[root] = order[child];
		order[child] = swap;
	}
}

static void sort_by_value(const double *value, int32_t *order, size_t n) {
	for (size_t i = 0; i < n; i++) {
		order[i] = (int32_t)i;
	}
	for (size_t i = n / 2; i-- > 0;) {
		sift(value, order, i, n);
	}
	for (size_t end = n; end-- > 1;) {
		int32_t swap = order[0];
		order[0] = order[end];
		order[end] = swap;
		sift(value, order, 0, end);
	}
}

static ckv_status load(ckv_ctx *ctx, job *j, const ckv_view *view, int32_t head, int32_t first, int32_t layer) {
	j->dim = (size_t)view->head_dim;
	ckv_view_decode(ctx->kernels, view, head, first, (int32_t)(2 * j->lag), j->rows);
	for (size_t i = 0; i < 2 * j->lag * j->dim; i++) {
		if (!isfinite(j->rows[i])) {
			return ckv_fail(&ctx->error, CKV_ERR_NUMERIC, "layer %d, KV head %d, token %d: NaN or infinity", layer,
			                ckv_row_head(ctx, head), ckv_row_position(ctx, head, first + (int32_t)(i / j->dim)));
		}
	}
	return CKV_OK;
}

static ckv_status score_partition(ckv_ctx *ctx, job *j, const ckv_layer *layer, int32_t head, int32_t first, float *out) {
	size_t d = (size_t)(layer->k.head_dim > layer->v.head_dim ? layer->k.head_dim : layer->v.head_dim);
	float *low = j->rows + 2 * j->lag * d, *high = low + d;
	ckv_status status = load(ctx, j, &layer->k, head, first, layer->index);
	if (status) {
		return status;
	}
	spread(j, j->value, low, high);
	status = load(ctx, j, &layer->v, head, first, layer->index);
	if (status) {
		return status;
	}
	spread(j, j->other, low, high);
	for (size_t i = 0; i < j->lag; i++) {
		j->value[i] = (j->value[i] + j->other[i]) / 2.0;
	}
	sort_by_value(j->value, j->order, j->lag);
	for (size_t rank = 0; rank < j->lag; rank++) {
		out[j->order[rank]] = (float)rank / (float)j->lag;
	}
	return CKV_OK;
}

static ckv_status job_init(job *j, ckv_ctx *ctx, const ckv_layer *layer) {
	size_t d = (size_t)(layer->k.head_dim > layer->v.head_dim ? layer->k.head_dim : layer->v.head_dim);
	j->lag = (size_t)ctx->params.lag;
	j->rows = ckv_scratch(ctx, SLOT_ROWS, 2 * j->lag + 2, d * sizeof *j->rows);
	j->value = ckv_scratch(ctx, SLOT_MEAN, j->lag, 2 * sizeof *j->value);
	j->other = j->value ? j->value + j->lag : NULL;
	j->order = ckv_scratch(ctx, SLOT_VISIBLE, j->lag, sizeof *j->order);
	return j->rows && j->value && j->order ? CKV_OK : CKV_ERR_NOMEM;
}

static ckv_status score(ckv_ctx *ctx, const ckv_layer *layer, int32_t n_keep, float *scores) {
	(void)n_keep;
	const ckv_params *p = &ctx->params;
	int32_t n = layer->k.n_tokens, lag = p->lag;
	int64_t shortest = (int64_t)p->sinks + 2 * (int64_t)lag;
	job j;
	if (layer->v.n_heads != layer->k.n_heads || layer->v.n_tokens != n) {
		return ckv_fail(&ctx->error, CKV_ERR_ARG, "layer %d: values and keys differ in shape", layer->index);
	}
	ckv_status status = n < shortest ? CKV_OK : job_init(&j, ctx, layer);
	for (int32_t g = 0; g < layer->k.n_heads && status == CKV_OK; g++) {
		float *out = scores + (size_t)g * (size_t)n;
		if (n < shortest) {
			score_short(p, n, out);
			continue;
		}
		for (int32_t t = 0; t < n; t++) {
			out[t] = 1.0f;
		}
		int32_t n_parts = (n - p->sinks) / lag;
		for (int32_t i = 0; i + 1 < n_parts && status == CKV_OK; i++) {
			int32_t first = p->sinks + i * lag;
			status = score_partition(ctx, &j, layer, g, first, out + first);
		}
	}
	return status;
}

static ckv_needs needs(const ckv_params *params) {
	(void)params;
	return (ckv_needs){CKV_NEED_VALUES, 0};
}

const ckv_scorer ckv_scorer_lagkv = {
    .info = {"lagkv", "how key and value stand out against the next partition, as a rank", "LagKV, arXiv 2504.04704",
             "lag,sinks"},
    .needs = needs,
    .score = score,
};
