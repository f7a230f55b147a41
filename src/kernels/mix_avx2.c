/* Rows as they lie, summed up with the weights of few queries, AVX2. A block of channels stays in registers while all rows
 * of a piece go by. */
#include "kernels/avx2.h"

#if defined(__x86_64__) || defined(__i386__)

enum { PIECE_BYTES = 1 << 13 }; /* of rows; this piece and the next, which is fetched meanwhile, fit the nearest cache */

typedef struct mix_job {
	const float *w;
	size_t stride;
	const void *rows;
	size_t n, d;
	size_t ahead; /* numbers from a row to the one that is fetched meanwhile */
	float *out;
} mix_job;

INLINE void load_weights(const mix_job *job, size_t j, size_t m, __m256 *weight) {
	for (size_t i = 0; i < m; i++) {
		weight[i] = _mm256_broadcast_ss(job->w + i * job->stride + j);
	}
}

/* Channels c .. c + 8 b - 1 of m queries; m and b are constants, m * b <= MAX_SUMS. */
INLINE void mix_tile(const mix_job *job, size_t c, size_t m, size_t b, bool half) {
	__m256 sum[MAX_SUMS], weight[MAX_QUERIES];
	for (size_t i = 0; i < m * b; i++) {
		sum[i] = _mm256_loadu_ps(job->out + i % m * job->d + c + i / m * 8);
	}
	for (size_t j = 0; j < job->n; j++) {
		size_t at = j * job->d + c;
		load_weights(job, j, m, weight);
		for (size_t k = 0; k < 8 * b; k += 64 / element_size(half)) {
			_mm_prefetch((const char *)element(job->rows, at + k + job->ahead, half), _MM_HINT_T0);
		}
		for (size_t k = 0; k < b; k++) {
			add_products(sum + k * m, weight, m, load8(job->rows, at + 8 * k, half));
		}
	}
	for (size_t i = 0; i < m * b; i++) {
		_mm256_storeu_ps(job->out + i % m * job->d + c + i / m * 8, sum[i]);
	}
}

/* The last d % 8 channels. */
INLINE void mix_tail(const mix_job *job, size_t m, bool half) {
	size_t c = job->d - job->d % 8;
	__m256i mask = first_lanes(job->d % 8);
	__m256 sum[MAX_QUERIES], weight[MAX_QUERIES];
	for (size_t i = 0; i < m; i++) {
		sum[i] = _mm256_maskload_ps(job->out + i * job->d + c, mask);
	}
	for (size_t j = 0; j < job->n; j++) {
		load_weights(job, j, m, weight);
		add_products(sum, weight, m, load_tail(job->rows, j, job->d, half));
	}
	for (size_t i = 0; i < m; i++) {
		_mm256_maskstore_ps(job->out + i * job->d + c, mask, sum[i]);
	}
}

INLINE void mix_channels(const mix_job *job, size_t m, size_t b, bool half) {
	size_t c = 0;
	for (; c + 8 * b <= job->d; c += 8 * b) {
		mix_tile(job, c, m, b, half);
	}
	for (; c + 8 <= job->d; c += 8) {
		mix_tile(job, c, m, 1, half);
	}
	if (c < job->d) {
		mix_tail(job, m, half);
	}
}

INLINE void mix(const float *w, size_t m, size_t stride, const void *rows, size_t n, size_t d, bool half, float *out) {
	size_t row_bytes = d * element_size(half);
	size_t piece = row_bytes < PIECE_BYTES / 16 ? PIECE_BYTES / (row_bytes + 1) : 16;
	for (size_t j = 0; j < n; j += piece) {
		mix_job job = {NULL, stride, element(rows, j * d, half), piece, d, piece * d, NULL};
		if (n - j < 2 * piece) { /* nothing to fetch ahead */
			job.n = n - j < piece ? n - j : piece;
			job.ahead = 0;
		}
		for (size_t i = 0, step; i < m; i += step) {
			job.w = w + i * stride + j;
			job.out = out + i * d;
			step = tile_queries(m - i);
			switch (step) {
			case 1: mix_channels(&job, 1, 8, half); break;
			case 2: mix_channels(&job, 2, 4, half); break;
			case 3: mix_channels(&job, 3, 4, half); break;
			default: mix_channels(&job, 4, 2, half); break;
			}
		}
	}
}

TARGET void ckv_avx2_mix_f16(const float *w, size_t m, size_t stride, const uint16_t *rows, size_t n, size_t d, float *out) {
	mix(w, m, stride, rows, n, d, true, out);
}

TARGET void ckv_avx2_mix_f32(const float *w, size_t m, size_t stride, const float *rows, size_t n, size_t d, float *out) {
	mix(w, m, stride, rows, n, d, false, out);
}

#endif
