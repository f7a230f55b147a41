/* Products of few queries with rows as they lie, AVX2. */
#include "kernels/avx2.h"

#if defined(__x86_64__) || defined(__i386__)

#include "kernels/kernels.h"

enum {
	BLOCK = 8, /* rows whose sums are added up together, and that all queries see before the next rows */
	MAX_ROWS = 4
};

/* Lanes l and l + 8, added, of the products of a tile's queries with a block's rows; three more, as four are read at once.
 */
typedef float dot_lanes[MAX_QUERIES][BLOCK + 3][8];

typedef struct dot_job {
	const float *q;
	size_t d;
	const void *rows;
	size_t n;     /* rows, at most BLOCK */
	size_t ahead; /* numbers from a row to the one that is fetched meanwhile */
	float *out;
	size_t stride;
	float scale;
} dot_job;

/* For a value that is used more than once: gcc would read the memory of a plain load as often. */
INLINE __m256 load_once(const float *x) { return _mm256_castsi256_ps(_mm256_lddqu_si256((const __m256i *)(const void *)x)); }

/* The last d % 8 channels of a query, then -0: times the zeros of load_tail that is -0, which leaves any sum as it is. */
INLINE __m256 load_query_tail(const float *q, size_t d) {
	__m256i mask = first_lanes(d % 8);
	__m256 x = _mm256_maskload_ps(q + d - d % 8, mask);
	return _mm256_or_ps(x, _mm256_andnot_ps(_mm256_castsi256_ps(mask), _mm256_set1_ps(-0.0f)));
}

/* Adds eight channels from c on. */
INLINE void dot_step(__m256 *sum, const float *q, size_t m, size_t d, const void *rows, size_t r, bool half, size_t c) {
	__m256 row[MAX_ROWS];
	for (size_t j = 0; j < r; j++) {
		row[j] = load8(rows, j * d + c, half);
	}
	for (size_t i = 0; i < m; i++) {
		add_products(sum + i * r, row, r, load_once(q + i * d + c));
	}
}

/* Adds the last d % 8 channels. */
INLINE void dot_tail(__m256 *sum, const float *q, size_t m, size_t d, const void *rows, size_t r, bool half) {
	__m256 row[MAX_ROWS];
	for (size_t j = 0; j < r; j++) {
		row[j] = load_tail(rows, j, d, half);
	}
	for (size_t i = 0; i < m; i++) {
		add_products(sum + i * r, row, r, load_query_tail(q + i * d, d));
	}
}

/* m queries with r rows from `first` on; m and r are constants, 2 * m * r <= MAX_SUMS. */
INLINE void dot_tile(const dot_job *job, size_t m, size_t first, size_t r, bool half, dot_lanes lanes) {
	__m256 low[MAX_SUMS / 2], high[MAX_SUMS / 2]; /* lanes 0 to 7 and 8 to 15 */
	const float *q = job->q;
	const void *rows = element(job->rows, first * job->d, half);
	size_t d = job->d, c = 0;
	for (size_t i = 0; i < m * r; i++) {
		low[i] = high[i] = _mm256_setzero_ps();
	}
	for (; c + CKV_LANES <= d; c += CKV_LANES) {
		dot_step(low, q, m, d, rows, r, half, c);
		dot_step(high, q, m, d, rows, r, half, c + 8);
	}
	if (d - c >= 8) {
		dot_step(low, q, m, d, rows, r, half, c);
		if (d % 8 != 0) {
			dot_tail(high, q, m, d, rows, r, half);
		}
	} else if (d % 8 != 0) {
		dot_tail(low, q, m, d, rows, r, half);
	}
	for (size_t i = 0; i < m * r; i++) {
		_mm256_storeu_ps(lanes[i / r][first + i % r], _mm256_add_ps(low[i], high[i]));
	}
}

/* Neighbours of a and of b added: a01 a23 b01 b23 | a45 a67 b45 b67. */
INLINE __m256 add_pairs(__m256 a, __m256 b) {
	return _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xdd));
}

/* Four products: their lanes added up as ckv_sum_lanes does, and scaled. */
INLINE __m128 four_products(float (*lanes)[8], float scale) {
	__m256 first = add_pairs(_mm256_loadu_ps(lanes[0]), _mm256_loadu_ps(lanes[1]));
	__m256 second = add_pairs(_mm256_loadu_ps(lanes[2]), _mm256_loadu_ps(lanes[3]));
	__m256 both = add_pairs(first, second);
	__m128 sum = _mm_add_ps(_mm256_castps256_ps128(both), _mm256_extractf128_ps(both, 1));
	return _mm_mul_ps(_mm_set1_ps(scale), sum);
}

/* A whole block, r rows at a time; m and r are constants. */
INLINE void dot_block(const dot_job *job, size_t m, size_t r, bool half) {
	dot_lanes lanes;
	for (size_t j = 0; j < BLOCK; j += r) {
		const char *next = (const char *)element(job->rows, j * job->d + job->ahead, half);
		for (size_t i = 0; i < r * job->d * element_size(half); i += 64) {
			_mm_prefetch(next + i, _MM_HINT_T0);
		}
		dot_tile(job, m, j, r, half, lanes);
	}
	for (size_t i = 0; i < m; i++) {
		for (size_t j = 0; j < BLOCK; j += 4) {
			_mm_storeu_ps(job->out + i * job->stride + j, four_products(lanes[i] + j, job->scale));
		}
	}
}

/* The last rows, less than a block. */
INLINE void dot_rest(const dot_job *job, size_t m, bool half) {
	dot_lanes lanes = {0};
	for (size_t j = 0; j < job->n; j++) {
		dot_tile(job, m, j, 1, half, lanes);
	}
	for (size_t i = 0; i < m; i++) {
		for (size_t j = 0; j < job->n; j++) {
			job->out[i * job->stride + j] = _mm_cvtss_f32(four_products(lanes[i] + j, job->scale));
		}
	}
}

INLINE void dot_rows(const dot_job *job, size_t m, size_t r, bool half) {
	if (job->n == BLOCK) {
		dot_block(job, m, r, half);
	} else {
		dot_rest(job, m, half);
	}
}

INLINE void dot(const float *q, size_t m, size_t d, const void *rows, size_t n, bool half, float scale, float *out,
                size_t stride) {
	for (size_t j = 0; j < n; j += BLOCK) {
		dot_job job = {NULL, d, element(rows, j * d, half), BLOCK, d * BLOCK * 2, NULL, stride, scale};
		if ((n - j) / BLOCK < 3) { /* nothing to fetch ahead */
			job.n = n - j < BLOCK ? n - j : BLOCK;
			job.ahead = 0;
		}
		for (size_t i = 0, step; i < m; i += step) {
			job.q = q + i * d;
			job.out = out + i * stride + j;
			step = tile_queries(m - i);
			switch (step) {
			case 1: dot_rows(&job, 1, 4, half); break;
			case 2: dot_rows(&job, 2, 2, half); break;
			case 3: dot_rows(&job, 3, 2, half); break;
			default: dot_rows(&job, 4, 1, half); break;
			}
		}
	}
}

TARGET void ckv_avx2_dot_f16(const float *q, size_t m, size_t d, const uint16_t *rows, size_t n, float scale, float *out,
                             size_t stride) {
	dot(q, m, d, rows, n, true, scale, out, stride);
}

TARGET void ckv_avx2_dot_f32(const float *q, size_t m, size_t d, const float *rows, size_t n, float scale, float *out,
                             size_t stride) {
	dot(q, m, d, rows, n, false, scale, out, stride);
}

#endif
