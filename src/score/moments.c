/* Mean and covariance of a stream of queries.
 *
 * Up to 64 rows at a time are taken relative to their own mean, so that neither a large mean nor an outlier costs the others
 * digits; their products are summed in float with the vector kernels, and these tiles put together in double (Chan, Golub,
 * LeVeque 1979). */
#include "core/internal.h"

#include <string.h>

enum { TILE_ROWS = 64 };

struct ckv_moments {
	ckv_allocator allocator;
	const ckv_kernels *kernels;
	int32_t n_heads, dim;
	int64_t count;
	double *mean;     /* [H][d] */
	double *products; /* [H][d][d] of row - mean, upper triangle */
	double *centre;   /* [d] of a tile */
	float *tile;      /* [d][d] */
	float *rows;      /* [64][d] */
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
	void *parts[] = {moments->mean, moments->products, moments->centre, moments->tile, moments->rows, moments};
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
		memset(moments->mean, 0, n * sizeof *moments->mean);
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
	m->mean = get(&a, n, sizeof *m->mean);
	m->products = get(&a, n, d * sizeof *m->products);
	m->centre = get(&a, d, sizeof *m->centre);
	m->tile = get(&a, d, d * sizeof *m->tile);
	m->rows = get(&a, d, TILE_ROWS * sizeof *m->rows);
	if (!m->mean || !m->products || !m->centre || !m->tile || !m->rows) {
		ckv_moments_free(m);
		return CKV_ERR_NOMEM;
	}
	ckv_moments_reset(m);
	*moments = m;
	return CKV_OK;
}

/* The tile's mean, and the products of its n rows relative to it. */
static void fill_tile(ckv_moments *m, int32_t n) {
	size_t d = row_size(m);
	memset(m->centre, 0, d * sizeof *m->centre);
	memset(m->tile, 0, d * d * sizeof *m->tile);
	for (size_t t = 0; t < (size_t)n; t++) {
		for (size_t i = 0; i < d; i++) {
			m->centre[i] += (double)m->rows[t * d + i] / n;
		}
	}
	for (size_t t = 0; t < (size_t)n; t++) {
		float *row = m->rows + t * d;
		for (size_t i = 0; i < d; i++) {
			row[i] = (float)((double)row[i] - m->centre[i]);
		}
		for (size_t i = 0; i < d; i++) {
			m->kernels->axpy(m->tile + i * d + i, row + i, row[i], d - i);
		}
	}
}

/* Puts the tile of n rows together with the `before` rows of this head. */
static void merge_tile(ckv_moments *m, int32_t head, int64_t before, int32_t n) {
	size_t d = row_size(m);
	double *mean = m->mean + (size_t)head * d, *products = m->products + (size_t)head * d * d;
	double share = (double)n / (double)(before + n), weight = (double)before * share;
	for (size_t i = 0; i < d; i++) {
		m->centre[i] -= mean[i];
		mean[i] += m->centre[i] * share;
	}
	for (size_t i = 0; i < d; i++) {
		for (size_t j = i; j < d; j++) {
			products[i * d + j] += (double)m->tile[i * d + j] + m->centre[i] * m->centre[j] * weight;
		}
	}
}

static void add_head(ckv_moments *m, const ckv_view *queries, int32_t head) {
	for (int32_t t = 0; t < queries->n_tokens; t += TILE_ROWS) {
		int32_t n = queries->n_tokens - t < TILE_ROWS ? queries->n_tokens - t : TILE_ROWS;
		ckv_view_decode(m->kernels, queries, head, t, n, m->rows);
		fill_tile(m, n);
		merge_tile(m, head, m->count + t, n);
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
		const double *products = m->products + h * d * d;
		for (size_t i = 0; i < d; i++) {
			if (mean) {
				mean[h * d + i] = (float)m->mean[h * d + i];
			}
			for (size_t j = i; j < d && covariance; j++) {
				covariance[(h * d + i) * d + j] = covariance[(h * d + j) * d + i] = (float)(products[i * d + j] / n);
			}
		}
	}
	return m->count;
}
