/* Principal subspaces of rows. The singular values and right singular vectors of a group's centred rows are the square roots
 * of the eigenvalues, and the eigenvectors, of their Gram matrix: d by d however many rows there are, and summed in double,
 * so that squaring costs no digit that a float would hold. */
#include "quant/quant.h"

#ifdef CKV_LAPACKE

#include <lapacke.h>
#include <math.h>
#include <string.h>

enum {
	MAX_DIM = 16384, /* the workspace of dsyevd, 2 d^2 and more, is counted in int32 */
	TILE = 8         /* rows whose products join the sums at once */
};

typedef struct fit_job {
	const float *const *rows;
	const int32_t *n_rows;
	ckv_low_rank fit;             /* shape; mean is in place, basis and singular come last */
	double *mean, *tile;          /* of the group in hand: [d], [TILE][d] */
	double *gram, *values, *work; /* [d][d], then eigenvectors; [d] rising; [work_size] */
	lapack_int *int_work;         /* [int_work_size] */
	lapack_int work_size, int_work_size;
	float *vectors, *singular; /* [n_groups][d][d], [n_groups][d]: all of each group, falling */
} fit_job;

/* --------------------------------------------------------------- memory */

/* count * each * size bytes, each and size not 0. */
static void *get(const ckv_allocator *a, size_t count, size_t each, size_t size) {
	return count <= (size_t)PTRDIFF_MAX / size / each ? a->alloc(a->user, count * each * size) : NULL;
}

static void job_free(const ckv_allocator *a, fit_job *j) {
	void *parts[] = {j->mean, j->tile, j->gram, j->values, j->work, j->int_work, j->vectors, j->singular};
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
		if (parts[i]) {
			a->free(a->user, parts[i]);
		}
	}
	ckv_low_rank_free(a, &j->fit);
}

/* Work sizes: the least that dsyevd is documented to take. */
static bool job_alloc(const ckv_allocator *a, fit_job *j) {
	size_t d = (size_t)j->fit.dim, groups = (size_t)j->fit.n_groups;
	j->work_size = (lapack_int)(1 + 6 * d + 2 * d * d);
	j->int_work_size = (lapack_int)(3 + 5 * d);
	j->mean = get(a, d, 1, sizeof *j->mean);
	j->tile = get(a, d, TILE, sizeof *j->tile);
	j->gram = get(a, d, d, sizeof *j->gram);
	j->values = get(a, d, 1, sizeof *j->values);
	j->work = get(a, (size_t)j->work_size, 1, sizeof *j->work);
	j->int_work = get(a, (size_t)j->int_work_size, 1, sizeof *j->int_work);
	j->vectors = get(a, groups, d * d, sizeof *j->vectors);
	j->singular = get(a, groups, d, sizeof *j->singular);
	j->fit.mean = get(a, groups, d, sizeof *j->fit.mean);
	return j->mean && j->tile && j->gram && j->values && j->work && j->int_work && j->vectors && j->singular && j->fit.mean;
}

/* ----------------------------------------------------------------- sums */

static int32_t first_head(const ckv_low_rank *fit, int32_t group) {
	int32_t larger = fit->n_heads % fit->n_groups;
	return group * (fit->n_heads / fit->n_groups) + (group < larger ? group : larger);
}

/* The mean of the heads' rows; returns how many there are. */
static size_t group_mean(fit_job *j, int32_t first, int32_t end) {
	size_t d = (size_t)j->fit.dim, count = 0;
	memset(j->mean, 0, d * sizeof *j->mean);
	for (int32_t h = first; h < end; h++) {
		size_t n = (size_t)j->n_rows[h];
		count += n;
		for (size_t i = 0; i < n; i++) {
			for (size_t c = 0; c < d; c++) {
				j->mean[c] += (double)j->rows[h][i * d + c];
			}
		}
	}
	for (size_t c = 0; c < d && count > 0; c++) {
		j->mean[c] /= (double)count;
	}
	return count;
}

/* Adds the products of the tile's rows to the triangle that is read. */
static void add_tile(fit_job *j) {
	size_t d = (size_t)j->fit.dim;
	for (size_t a = 0; a < d; a++) {
		double *restrict sums = j->gram + a * d;
		const double *restrict tile = j->tile;
		for (size_t b = a; b < d; b++) {
			double sum = 0.0;
			for (size_t r = 0; r < TILE; r++) {
				sum += tile[r * d + a] * tile[r * d + b];
			}
			sums[b] += sum;
		}
	}
}

/* Products of the rows' distances from the mean. A short tile ends in zeros. */
static void add_head(fit_job *j, int32_t head) {
	size_t d = (size_t)j->fit.dim, n = (size_t)j->n_rows[head];
	for (size_t i = 0; i < n; i += TILE) {
		memset(j->tile, 0, TILE * d * sizeof *j->tile);
		for (size_t r = 0; r < TILE && i + r < n; r++) {
			for (size_t c = 0; c < d; c++) {
				j->tile[r * d + c] = (double)j->rows[head][(i + r) * d + c] - j->mean[c];
			}
		}
		add_tile(j);
	}
}

/* -------------------------------------------------------- decomposition */

/* Eigenvector number k from the top, as floats. Of its two signs the one that makes its largest entry positive, so that
 * libraries which differ in that give the same codes. */
static void take_vector(const fit_job *j, size_t k, float *out) {
	size_t d = (size_t)j->fit.dim, largest = 0;
	const double *vector = j->gram + (d - 1 - k) * d;
	for (size_t c = 1; c < d; c++) {
		largest = fabs(vector[c]) > fabs(vector[largest]) ? c : largest;
	}
	double sign = vector[largest] < 0.0 ? -1.0 : 1.0;
	for (size_t c = 0; c < d; c++) {
		out[c] = (float)(sign * vector[c]);
	}
}

/* The least rank whose singular values hold their share of the sum of the first n. */
static int32_t rank_of(const float *singular, int32_t n, double energy) {
	double total = 0.0, sum = 0.0;
	for (int32_t k = 0; k < n; k++) {
		total += (double)singular[k];
	}
	for (int32_t k = 0; k < n; k++) {
		sum += (double)singular[k];
		if (total < 1e-12 || sum / total >= energy) {
			return k + 1;
		}
	}
	return n;
}

/* All singular values and vectors of a group, and its mean; the fit's rank falls to what the group allows. A group without
 * rows has any basis, and no say in the rank. */
static ckv_status fit_group(fit_job *j, int32_t group, const ckv_low_rank_options *options, ckv_error *error) {
	int32_t first = first_head(&j->fit, group), end = first_head(&j->fit, group + 1), dim = j->fit.dim;
	size_t d = (size_t)dim, g = (size_t)group, count = group_mean(j, first, end);
	memset(j->gram, 0, d * d * sizeof *j->gram);
	for (int32_t h = first; h < end; h++) {
		add_head(j, h);
	}
	/* By columns: what is the upper triangle to us is the lower one to LAPACK. */
	lapack_int info = LAPACKE_dsyevd_work(LAPACK_COL_MAJOR, 'V', 'L', dim, j->gram, dim, j->values, j->work, j->work_size,
	                                      j->int_work, j->int_work_size);
	if (info != 0) {
		return ckv_fail(error, CKV_ERR_NUMERIC, "heads %d to %d: the decomposition failed (dsyevd: %d)", first, end - 1,
		                (int)info);
	}
	for (size_t k = 0; k < d; k++) {
		take_vector(j, k, j->vectors + (g * d + k) * d);
		j->fit.mean[g * d + k] = (float)j->mean[k];
		j->singular[g * d + k] = (float)sqrt(fmax(j->values[d - 1 - k], 0.0));
	}
	int32_t most = count < d ? (int32_t)count : dim;
	int32_t rank = options->rank > 0 ? options->rank : rank_of(j->singular + g * d, most, options->energy);
	rank = rank < most ? rank : most;
	j->fit.rank = count > 0 && rank < j->fit.rank ? rank : j->fit.rank;
	return CKV_OK;
}

/* The leading `rank` vectors of each group, by channel. */
static ckv_status cut(const ckv_allocator *a, fit_job *j, ckv_error *error) {
	ckv_low_rank *fit = &j->fit;
	size_t groups = (size_t)fit->n_groups, d = (size_t)fit->dim, rank = (size_t)fit->rank;
	fit->basis = get(a, groups * d, rank, sizeof *fit->basis);
	fit->singular = get(a, groups, rank, sizeof *fit->singular);
	if (!fit->basis || !fit->singular) {
		return ckv_fail(error, CKV_ERR_NOMEM, "no memory for bases of %d x %d", fit->dim, fit->rank);
	}
	for (size_t g = 0; g < groups; g++) {
		memcpy(fit->singular + g * rank, j->singular + g * d, rank * sizeof *fit->singular);
		for (size_t k = 0; k < rank; k++) {
			for (size_t c = 0; c < d; c++) {
				fit->basis[(g * d + c) * rank + k] = j->vectors[(g * d + k) * d + c];
			}
		}
	}
	return CKV_OK;
}

/* ---------------------------------------------------------------- input */

static ckv_status check_head(const float *rows, int32_t n_rows, int32_t dim, int32_t head, ckv_error *error) {
	if (n_rows < 0 || (n_rows > 0 && !rows)) {
		return ckv_fail(error, CKV_ERR_ARG, "head %d: %d rows are not a number of rows, or there are none", head, n_rows);
	}
	for (int32_t i = 0; i < n_rows; i++) {
		if (!ckv_all_finite(rows + (size_t)i * (size_t)dim, (size_t)dim)) {
			return ckv_fail(error, CKV_ERR_NUMERIC, "KV head %d, row %d: NaN or infinity, of which there is no subspace",
			                head, i);
		}
	}
	return CKV_OK;
}

static ckv_status check(const fit_job *j, const ckv_low_rank_options *options, ckv_error *error) {
	int32_t dim = j->fit.dim;
	bool any = false;
	if (dim < 1 || dim > MAX_DIM || j->fit.n_heads < 1 || options->rank < 0 || !isfinite(options->energy)) {
		return ckv_fail(error, CKV_ERR_ARG, "%d heads of %d channels, rank %d, energy %g: there is no such subspace",
		                j->fit.n_heads, dim, options->rank, options->energy);
	}
	for (int32_t h = 0; h < j->fit.n_heads; h++) {
		ckv_status status = check_head(j->rows[h], j->n_rows[h], dim, h, error);
		if (status) {
			return status;
		}
		any = any || j->n_rows[h] > 0;
	}
	return any ? CKV_OK : ckv_fail(error, CKV_ERR_ARG, "there are no rows to find a subspace of");
}

bool ckv_low_rank_available(void) { return true; }

ckv_status ckv_low_rank_fit(const ckv_allocator *allocator, const float *const *rows, const int32_t *n_rows, int32_t n_heads,
                            int32_t dim, const ckv_low_rank_options *options, ckv_low_rank *out, ckv_error *error) {
	int32_t least = options->n_groups > 1 ? options->n_groups : 1, n_groups = least < n_heads ? least : n_heads;
	fit_job job = {
	    .rows = rows, .n_rows = n_rows, .fit = {.dim = dim, .rank = dim, .n_heads = n_heads, .n_groups = n_groups}};
	ckv_status status = check(&job, options, error);
	if (!status && !job_alloc(allocator, &job)) {
		status = ckv_fail(error, CKV_ERR_NOMEM, "no memory to decompose rows of %d channels", dim);
	}
	for (int32_t g = 0; !status && g < n_groups; g++) {
		status = fit_group(&job, g, options, error);
	}
	if (!status) {
		status = cut(allocator, &job, error);
	}
	if (!status) {
		*out = job.fit;
		job.fit = (ckv_low_rank){0};
	}
	job_free(allocator, &job);
	return status;
}

#else

bool ckv_low_rank_available(void) { return false; }

ckv_status ckv_low_rank_fit(const ckv_allocator *allocator, const float *const *rows, const int32_t *n_rows, int32_t n_heads,
                            int32_t dim, const ckv_low_rank_options *options, ckv_low_rank *out, ckv_error *error) {
	(void)allocator, (void)rows, (void)n_rows, (void)n_heads, (void)dim, (void)options, (void)out;
	return ckv_fail(error, CKV_ERR_UNSUPPORTED,
	                "this build has no LAPACKE, which finds low-rank bases (palu): install liblapacke-dev and build again");
}

#endif
