/* Attention of the newest tokens over a cache's rows, as they are stored: packed rows are decoded a tile at a time, and rows
 * of a subspace are never expanded. With q' = B^T q the logit of a row mu + B z is q.mu + q'.z, and the weighted sum of such
 * rows is mu + B (sum of w z): two small products for a head instead of one for each row. */
#include "cache/internal.h"

#include <math.h>
#include <string.h>

typedef struct job {
	ckv_attention a;
	const cache_layer *layer;
	const ckv_view *q;
	size_t padded; /* logits of a row */
	float *work;
	size_t work_size; /* of a worker */
} job;

/* A worker's arrays. */
typedef struct desk {
	float *queries; /* [m][dim_k] */
	float *latent;  /* [m][width_k] */
	float *offset;  /* [m] */
	float *logits;  /* [m][padded] */
	float *sums;    /* [m][width_v] */
	float *tile;    /* [CACHE_TILE][wider] */
} desk;

static size_t desk_size(const job *j) {
	const cache_layer *l = j->layer;
	size_t wider = (size_t)(l->k.width > l->v.width ? l->k.width : l->v.width);
	return j->a.m * ((size_t)l->k.dim + (size_t)l->k.width + 1 + j->padded + (size_t)l->v.width) + CACHE_TILE * wider;
}

static desk open_desk(const job *j, int32_t worker) {
	const cache_layer *l = j->layer;
	desk d;
	d.queries = j->work + (size_t)worker * j->work_size;
	d.latent = d.queries + j->a.m * (size_t)l->k.dim;
	d.offset = d.latent + j->a.m * (size_t)l->k.width;
	d.logits = d.offset + j->a.m;
	d.sums = d.logits + j->a.m * j->padded;
	d.tile = d.sums + j->a.m * (size_t)l->v.width;
	return d;
}

/* ------------------------------------------------------------------------------------------------------------ logits */

static float dot(const float *a, const float *b, size_t n) {
	float sum = 0.0f;
	for (size_t i = 0; i < n; i++) {
		sum += a[i] * b[i];
	}
	return sum;
}

/* Queries as their side's rows are stored, and what the mean adds to their logits. */
static const float *load_queries(const job *j, int32_t head, desk *d) {
	const cache_side *k = &j->layer->k;
	size_t dim = (size_t)k->dim, rank = (size_t)k->width;
	for (int32_t h = 0; h < j->a.group; h++) {
		ckv_view_decode(j->a.kernels, j->q, head * j->a.group + h, j->a.first, j->a.n,
		                d->queries + (size_t)h * (size_t)j->a.n * dim);
	}
	if (k->fit.rank == 0) {
		return d->queries;
	}
	size_t group = (size_t)ckv_low_rank_group(&k->fit, head);
	const float *basis = k->fit.basis + group * dim * rank, *mean = k->fit.mean + group * dim;
	memset(d->latent, 0, j->a.m * rank * sizeof *d->latent);
	for (size_t i = 0; i < j->a.m; i++) {
		const float *query = d->queries + i * dim;
		for (size_t c = 0; c < dim; c++) {
			j->a.kernels->axpy(d->latent + i * rank, basis + c * rank, query[c], rank);
		}
		d->offset[i] = j->a.scale * dot(query, mean, dim);
	}
	return d->latent;
}

static void compute_logits(const job *j, int32_t head, desk *d) {
	const cache_side *k = &j->layer->k;
	const cache_rows *rows = &k->heads[head];
	const ckv_kernels *kernels = j->a.kernels;
	size_t width = (size_t)k->width;
	const float *queries = load_queries(j, head, d);
	for (int32_t t = 0; t < rows->packed.n; t += CACHE_TILE) {
		int32_t n = rows->packed.n - t < CACHE_TILE ? rows->packed.n - t : CACHE_TILE;
		ckv_packed_decode(kernels, &rows->packed, t, n, d->tile);
		kernels->dot_f32(queries, j->a.m, width, d->tile, (size_t)n, j->a.scale, d->logits + t, j->padded);
	}
	if (rows->n) {
		kernels->dot_f16(queries, j->a.m, width, ckv_rows_tail(k, rows), (size_t)rows->n, j->a.scale,
		                 d->logits + rows->packed.n, j->padded);
	}
}

/* Weights of one query over the rows that it sees; nothing for the others. */
static void weigh(const job *j, size_t i, size_t n_rows, size_t n_seen, desk *d) {
	float *x = d->logits + i * j->padded;
	for (size_t t = 0; t < n_seen && j->layer->k.fit.rank; t++) {
		x[t] += d->offset[i];
	}
	ckv_attend_weigh(&j->a, x, n_seen, n_rows);
}

/* ------------------------------------------------------------------------------------------------------------ values */

static void mix_values(const job *j, int32_t head, desk *d) {
	const cache_side *v = &j->layer->v;
	const cache_rows *rows = &v->heads[head];
	const ckv_kernels *kernels = j->a.kernels;
	size_t width = (size_t)v->width;
	memset(d->sums, 0, j->a.m * width * sizeof *d->sums);
	for (int32_t t = 0; t < rows->packed.n; t += CACHE_TILE) {
		int32_t n = rows->packed.n - t < CACHE_TILE ? rows->packed.n - t : CACHE_TILE;
		ckv_packed_decode(kernels, &rows->packed, t, n, d->tile);
		kernels->mix_f32(d->logits + t, j->a.m, j->padded, d->tile, (size_t)n, width, d->sums);
	}
	if (rows->n) {
		kernels->mix_f16(d->logits + rows->packed.n, j->a.m, j->padded, ckv_rows_tail(v, rows), (size_t)rows->n, width,
		                 d->sums);
	}
}

/* Weights sum to 1, so the mean of the subspace comes in once. */
static void write_out(const job *j, int32_t head, const desk *d) {
	const cache_side *v = &j->layer->v;
	size_t dim = (size_t)v->dim;
	for (size_t i = 0; i < j->a.m; i++) {
		float *out = ckv_attend_out(&j->a, head, i, dim);
		const float *sums = d->sums + i * (size_t)v->width;
		if (v->fit.rank) {
			ckv_low_rank_expand(&v->fit, head, sums, 1, out);
		} else {
			memcpy(out, sums, dim * sizeof *out);
		}
	}
}

static ckv_status one_head(void *user, int32_t worker, int32_t head, ckv_error *error) {
	const job *j = user;
	(void)error;
	desk d = open_desk(j, worker);
	size_t n_rows = (size_t)ckv_rows_count(&j->layer->k.heads[head]);
	size_t later =
	    (size_t)(j->q->n_tokens - j->a.first); /* the first query in hand does not see the rows of those after it */
	compute_logits(j, head, &d);
	for (size_t i = 0; i < j->a.m; i++) {
		weigh(j, i, n_rows, n_rows - later + i % (size_t)j->a.n + 1, &d);
	}
	mix_values(j, head, &d);
	write_out(j, head, &d);
	return CKV_OK;
}

/* ------------------------------------------------------------------------------------------------------------- calls */

static ckv_status check_queries(ckv_cache *cache, const cache_layer *layer, int32_t number, const ckv_view *q, float scale,
                                float cap) {
	ckv_status status = ckv_view_check(q, "queries", number, &cache->error);
	status = status ? status : ckv_attend_check(scale, cap, number, &cache->error);
	if (status) {
		return status;
	}
	int32_t heads = layer->shape.n_kv_heads, least = INT32_MAX;
	for (int32_t h = 0; h < heads; h++) {
		int32_t n = ckv_rows_count(&layer->k.heads[h]);
		least = n < least ? n : least;
	}
	if (q->head_dim != layer->shape.dim_k || q->n_heads % heads != 0 || q->n_tokens > least) {
		return ckv_fail(
		    &cache->error, CKV_ERR_ARG,
		    "layer %d: queries [%d][%d][%d] do not go with %d KV heads of %d channels that have %d rows at least", number,
		    q->n_heads, q->n_tokens, q->head_dim, heads, layer->shape.dim_k, least);
	}
	return CKV_OK;
}

static size_t longest(const cache_layer *layer) {
	int32_t n = 0;
	for (int32_t h = 0; h < layer->shape.n_kv_heads; h++) {
		int32_t own = ckv_rows_count(&layer->k.heads[h]);
		n = own > n ? own : n;
	}
	return (size_t)n;
}

static ckv_status attend_part(ckv_cache *cache, job *j, size_t n_rows) {
	int32_t heads = j->a.n_kv_heads, threads;
	threads = ckv_attend_threads(&j->a, n_rows, j->layer->k.width + j->layer->v.width, cache->n_threads);
	j->work_size = desk_size(j);
	j->work = ckv_cache_work(cache, (size_t)ckv_workers_of(threads, heads) * j->work_size);
	return j->work ? ckv_parallel_of(threads, heads, one_head, j, &cache->error) : CKV_ERR_NOMEM;
}

ckv_status ckv_cache_attend(ckv_cache *cache, int32_t layer, const ckv_view *q, float scale, float cap, float *out) {
	const cache_layer *l = ckv_cache_layer(cache, layer);
	if (!l || !q || !out) {
		return CKV_ERR_ARG;
	}
	cache->error = (ckv_error){CKV_OK, ""};
	ckv_status status = check_queries(cache, l, layer, q, scale, cap);
	if (status) {
		return status;
	}
	const ckv_layer like = {.k = {.head_dim = l->shape.dim_k}, .scale = scale};
	size_t n_rows = longest(l);
	job j = {.layer = l, .q = q, .padded = ckv_attend_padded(n_rows)};
	j.a = (ckv_attention){.kernels = cache->kernels,
	                      .scale = ckv_logit_scale(&like),
	                      .cap = cap,
	                      .out = out,
	                      .n_tokens = q->n_tokens,
	                      .n_kv_heads = l->shape.n_kv_heads,
	                      .group = q->n_heads / l->shape.n_kv_heads};
	while (status == CKV_OK && ckv_attend_next(&j.a)) {
		status = attend_part(cache, &j, n_rows);
	}
	return status;
}
