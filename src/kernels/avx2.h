/* What the files of the AVX2 kernels share. Function attributes instead of file flags, so that a bare `cc` builds them. */
#ifndef CKV_AVX2_H
#define CKV_AVX2_H

#include <stddef.h>
#include <stdint.h>

/* Entries of the table that have files of their own; kernels.h describes them. */
void ckv_avx2_dot_f16(const float *q, size_t m, size_t d, const uint16_t *rows, size_t n, float scale, float *out,
                      size_t stride);
void ckv_avx2_dot_f32(const float *q, size_t m, size_t d, const float *rows, size_t n, float scale, float *out,
                      size_t stride);
void ckv_avx2_mix_f16(const float *w, size_t m, size_t stride, const uint16_t *rows, size_t n, size_t d, float *out);
void ckv_avx2_mix_f32(const float *w, size_t m, size_t stride, const float *rows, size_t n, size_t d, float *out);
void ckv_avx2_unpack(const uint8_t *packed, int bits, const float *scale, const float *zero, size_t n, float *out);

#if defined(__x86_64__) || defined(__i386__)

#include <immintrin.h>
#include <stdbool.h>

#define TARGET __attribute__((target("avx2,fma,f16c")))
#define INLINE static inline __attribute__((always_inline, target("avx2,fma,f16c")))

/* Rows of f16 (half) or f32. They are worked on in tiles of a few queries, rows or channels, whose sums stay in registers:
 * up to 12 of the 16. For more than four queries a row is converted again, from the nearest cache. */
enum { MAX_QUERIES = 4, MAX_SUMS = 12 };

/* Queries of the next tile when `left` are left: 3 and 2 rather than 4 and 1. */
INLINE size_t tile_queries(size_t left) { return left == 5 ? 3 : left < MAX_QUERIES ? left : MAX_QUERIES; }

INLINE size_t element_size(bool half) { return half ? sizeof(uint16_t) : sizeof(float); }

INLINE const void *element(const void *rows, size_t i, bool half) { return (const char *)rows + i * element_size(half); }

INLINE __m256 load8(const void *rows, size_t i, bool half) {
	const void *at = element(rows, i, half);
	return half ? _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)at)) : _mm256_loadu_ps((const float *)at);
}

/* The first n < 8 lanes. */
INLINE __m256i first_lanes(size_t n) {
	static const int32_t mask[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
	return _mm256_loadu_si256((const __m256i *)(const void *)(mask + 8 - n));
}

/* The last d % 8 halves of a row, then zeros. They have no masked load: the last eight are read, and moved down. */
INLINE __m128i half_tail(const uint16_t *row, size_t d) {
	static const uint8_t order[32] = {0,    1,    2,    3,    4,    5,    6,    7,    8,    9,    10,
	                                  11,   12,   13,   14,   15,   0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
	                                  0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80};
	if (d < 8) {
		uint16_t whole[8] = {0};
		for (size_t i = 0; i < d; i++) {
			whole[i] = row[i];
		}
		return _mm_loadu_si128((const __m128i *)(const void *)whole);
	}
	__m128i last = _mm_loadu_si128((const __m128i *)(const void *)(row + d - 8));
	return _mm_shuffle_epi8(last, _mm_loadu_si128((const __m128i *)(const void *)(order + 2 * (8 - d % 8))));
}

/* The last d % 8 channels of row j, then zeros. */
INLINE __m256 load_tail(const void *rows, size_t j, size_t d, bool half) {
	const void *row = element(rows, j * d, half);
	return half ? _mm256_cvtph_ps(half_tail((const uint16_t *)row, d))
	            : _mm256_maskload_ps((const float *)row + d - d % 8, first_lanes(d % 8));
}

/* sum[i] = fma(a[i], b, sum[i]). */
INLINE void add_products(__m256 *sum, const __m256 *a, size_t n, __m256 b) {
	for (size_t i = 0; i < n; i++) {
		sum[i] = _mm256_fmadd_ps(a[i], b, sum[i]);
	}
}

#endif

#endif
