/* Mean and covariance of a stream of queries.
 *
 * Rows are taken relative to the first one ever seen, so that a large mean costs no digits; products of up to 64 rows are summed
 * in float with the vector kernels, and these tiles in double. */
#include "core/internal.h"

#include <string.h>

enum { TILE_ROWS = 64 };

struct ckv_moments {
	ckv_allocator allocator;
	const ckv_kernels *kernels;
	int32_t n_heads, dim;
	int64_t count;
	double *sum;      /* [H][d] of row - origin */
	double *products; /* [H][d][d], upper triangle */
	float *origin;    /* [H][d] */
	float *tile;      /* [d][d] */
	float *row;       /* [d] */
};

static size_t row_size(const ckv_moments *m) { return (size_t)m->dim; }

static void *get(const ckv_allocator *a, size_t count, size_t size) {
	return count <= (size_t)PTRDIFF_MAX / size ? a->alloc(a->user, count * size) : NULL;
}

void ckv_moments_free(ckv_moments *moments) {
	if (!moments) {
		return;
	}
	ckv_allocator a = moments->allocator;
	void *parts[] = {moments->sum, moments->products, moments->origin, moments->tile, moments->row, moments};
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
		if (parts[i]) {
			a.free(a.user, parts[i]);
		}
	}
}

void ckv_moments_reset(ckv_moments *moments) {
	if (moments) {
		size_t n = (size_t)moments->n_heads * row_size(moments);
		moments->count = 0;
		memset(moments->sum, 0, n * sizeof *moments->sum);
		memset(moments->products, 0, n * row_size(moments) * sizeof *moments->products);
	}
}

ckv_status ckv_moments_create(ckv_moments **moments, int32_t n_heads, int32_t head_dim, const ckv_ctx_options *options) {
	if (moments) {
		*moments = NULL;
	}
	if (!moments || n_heads < 1 || head_dim < 1 || head_dim > 65536 || (options && options->size < sizeof *options)) {
		return CKV_ERR_ARG;
	}
	ckv_allocator a = options && options->allocator ? *options->allocator : ckv_allocator_default();
	ckv_moments *m = get(&a, 1, sizeof *m);
	if (!m) {
		return CKV_ERR_NOMEM;
	}
	memset(m, 0, sizeof *m);
	size_t d = (size_t)head_dim, n = (size_t)n_heads * d;
	m->allocator = a;
	m->kernels = ckv_kernels_get(ckv_cpu_features() & ~(options ? options->cpu_disable : 0u));
	m->n_heads = n_heads;
	m->dim = head_dim;
	m->sum = get(&a, n, sizeof *m->sum);
	m->products = get(&a, n, d * sizeof *m->products);
	m->origin = get(&a, n, sizeof *m->origin);
	m->tile = get(&a, d, d * sizeof *m->tile);
	m->row = get(&a, d, sizeof *m->row);
	if (!m->sum || !m->products || !m->origin || !m->tile || !m->row) {
		ckv_moments_free(m);
		return CKV_ERR_NOMEM;
	}
	ckv_moments_reset(m);
	*moments = m;
	return CKV_OK;
}

static void add_row(ckv_moments *m, const ckv_view *queries, int32_t head, int32_t token) {
	size_t d = row_size(m), h = (size_t)head;
	double *sum = m->sum + h * d;
	ckv_view_decode(m->kernels, queries, head, token, 1, m->row);
	if (m->count == 0 && token == 0) {
		memcpy(m->origin + h * d, m->row, d * sizeof *m->row);
	}
	for (size_t i = 0; i < d; i++) {
		m->row[i] -= m->origin[h * d + i];
		sum[i] += (double)m->row[i];
	}
	for (size_t i = 0; i < d; i++) {
		m->kernels->axpy(m->tile + i * d + i, m->row + i, m->row[i], d - i);
	}
}

static void add_head(ckv_moments *m, const ckv_view *queries, int32_t head) {
	size_t d = row_size(m);
	double *products = m->products + (size_t)head * d * d;
	for (int32_t t = 0; t < queries->n_tokens; t += TILE_ROWS) {
		int32_t end = queries->n_tokens - t < TILE_ROWS ? queries->n_tokens : t + TILE_ROWS;
		memset(m->tile, 0, d * d * sizeof *m->tile);
		for (int32_t i = t; i < end; i++) {
			add_row(m, queries, head, i);
		}
		for (size_t i = 0; i < d; i++) {
			for (size_t j = i; j < d; j++) {
				products[i * d + j] += (double)m->tile[i * d + j];
			}
		}
	}
}

ckv_status ckv_moments_add(ckv_moments *moments, const ckv_view *queries) {
	if (!moments || !queries || ckv_view_check(queries, "queries", 0, NULL) != CKV_OK ||
	    queries->n_heads != moments->n_heads || queries->head_dim != moments->dim) {
		return CKV_ERR_ARG;
	}
	for (int32_t h = 0; h < moments->n_heads; h++) {
		add_head(moments, queries, h);
	}
	moments->count += queries->n_tokens;
	return CKV_OK;
}

void ckv_moments_shape(const ckv_moments *moments, int32_t *n_heads, int32_t *dim) {
	*n_heads = moments ? moments->n_heads : 0;
	*dim = moments ? moments->dim : 0;
}

int64_t ckv_moments_read(const ckv_moments *m, float *mean, float *covariance) {
	if (!m) {
		return 0;
	}
	size_t d = row_size(m);
	double n = m->count ? (double)m->count : 1.0;
	for (size_t h = 0; h < (size_t)m->n_heads; h++) {
		const double *sum = m->sum + h * d, *products = m->products + h * d * d;
		for (size_t i = 0; i < d; i++) {
			if (mean) {
				mean[h * d + i] = m->count ? (float)((double)m->origin[h * d + i] + sum[i] / n) : 0.0f;
			}
			for (size_t j = i; j < d && covariance; j++) {
				float c = (float)((products[i * d + j] - sum[i] * sum[j] / n) / n);
				covariance[(h * d + i) * d + j] = covariance[(h * d + j) * d + i] = c;
			}
		}
	}
	return m->count;
}
