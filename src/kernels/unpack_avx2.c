/* Numbers from packed codes, AVX2. */
#include "kernels/avx2.h"

#if defined(__x86_64__) || defined(__i386__)

#include "kernels/scalar.h"
#include <immintrin.h>

/* Without FMA, so that no compiler may fuse what has to be rounded twice. */
#define PLAIN static inline __attribute__((always_inline, target("avx2")))

/* Sixteen codes as bytes; bits is a constant: 2, 4 or 8. */
PLAIN __m128i sixteen_codes(const uint8_t *packed, int bits) {
	if (bits == 8) {
		return _mm_loadu_si128((const __m128i *)(const void *)packed);
	}
	if (bits == 4) {
		__m128i x = _mm_loadl_epi64((const __m128i *)(const void *)packed);
		return _mm_and_si128(_mm_unpacklo_epi8(x, _mm_srli_epi16(x, 4)), _mm_set1_epi8(15));
	}
	int word;
	memcpy(&word, packed, sizeof word);
	__m128i x = _mm_cvtsi32_si128(word), y = _mm_srli_epi16(x, 4);
	__m128i first = _mm_unpacklo_epi8(x, _mm_srli_epi16(x, 2)), last = _mm_unpacklo_epi8(y, _mm_srli_epi16(y, 2));
	return _mm_and_si128(_mm_unpacklo_epi16(first, last), _mm_set1_epi8(3));
}

/* Eight codes of 1 to 7 bits, a constant: they fill as many bytes. Each half of the register has the word that four lanes
 * shift their codes down from. */
PLAIN __m256i eight_codes(const uint8_t *packed, int bits) {
	uint64_t word = 0;
	for (int i = 0; i < bits; i++) {
		word |= (uint64_t)packed[i] << (8 * i);
	}
	__m128i low = _mm_set1_epi32((int)(uint32_t)word), high = _mm_set1_epi32((int)(uint32_t)(word >> (4 * bits)));
	__m256i shift = _mm256_setr_epi32(0, bits, 2 * bits, 3 * bits, 0, bits, 2 * bits, 3 * bits);
	__m256i codes = _mm256_srlv_epi32(_mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1), shift);
	return _mm256_and_si256(codes, _mm256_set1_epi32((1 << bits) - 1));
}

PLAIN void store_eight(__m256i codes, const float *scale, const float *zero, float *out) {
	__m256 product = _mm256_mul_ps(_mm256_cvtepi32_ps(codes), _mm256_loadu_ps(scale));
	_mm256_storeu_ps(out, _mm256_add_ps(product, _mm256_loadu_ps(zero)));
}

/* bits is a constant. */
PLAIN void unpack_bits(const uint8_t *packed, int bits, const float *scale, const float *zero, size_t n, float *out) {
	size_t i = 0;
	if (bits == 2 || bits == 4 || bits == 8) {
		for (; i + 16 <= n; i += 16) {
			__m128i codes = sixteen_codes(packed + i / 8 * (size_t)bits, bits);
			store_eight(_mm256_cvtepu8_epi32(codes), scale + i, zero + i, out + i);
			store_eight(_mm256_cvtepu8_epi32(_mm_unpackhi_epi64(codes, codes)), scale + i + 8, zero + i + 8, out + i + 8);
		}
	} else {
		for (; i + 8 <= n; i += 8) {
			store_eight(eight_codes(packed + i / 8 * (size_t)bits, bits), scale + i, zero + i, out + i);
		}
	}
	for (; i < n; i++) {
		out[i] = ckv_code_scalar(packed, bits, i) * scale[i] + zero[i];
	}
}

__attribute__((target("avx2"))) void ckv_avx2_unpack(const uint8_t *packed, int bits, const float *scale, const float *zero,
                                                     size_t n, float *out) {
	switch (bits) {
	case 1: unpack_bits(packed, 1, scale, zero, n, out); break;
	case 2: unpack_bits(packed, 2, scale, zero, n, out); break;
	case 3: unpack_bits(packed, 3, scale, zero, n, out); break;
	case 4: unpack_bits(packed, 4, scale, zero, n, out); break;
	case 5: unpack_bits(packed, 5, scale, zero, n, out); break;
	case 6: unpack_bits(packed, 6, scale, zero, n, out); break;
	case 7: unpack_bits(packed, 7, scale, zero, n, out); break;
	default: unpack_bits(packed, 8, scale, zero, n, out); break;
	}
}

#endif
