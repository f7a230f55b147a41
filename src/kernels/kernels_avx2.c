/* AVX2 + FMA + F16C: the table, and the kernels of scoring. */
#include "kernels/kernels.h"

#if defined(__x86_64__) || defined(__i386__)

#include "kernels/avx2.h"
#include "kernels/scalar.h"
#include <immintrin.h>

TARGET static void f16_to_f32(const uint16_t *in, float *out, size_t n) {
	size_t i = 0;
	for (; i + 8 <= n; i += 8) {
		_mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(in + i))));
	}
	for (; i < n; i++) {
		out[i] = ckv_f16_scalar(in[i]);
	}
}

TARGET static void bf16_to_f32(const uint16_t *in, float *out, size_t n) {
	size_t i = 0;
	for (; i + 8 <= n; i += 8) {
		__m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(in + i)));
		_mm256_storeu_ps(out + i, _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16)));
	}
	for (; i < n; i++) {
		out[i] = ckv_bf16_scalar(in[i]);
	}
}

/* Transposes the 8x8 block at rows (row stride d) to panel (row stride 16). */
INLINE void transpose8(const float *rows, size_t d, float *panel) {
	__m256 r[8], t[8], u[8];
	for (size_t i = 0; i < 8; i++) {
		r[i] = _mm256_loadu_ps(rows + i * d);
	}
	for (size_t i = 0; i < 4; i++) {
		t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
		t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
	}
	for (size_t i = 0; i < 2; i++) {
		u[4 * i] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0x44);
		u[4 * i + 1] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0xee);
		u[4 * i + 2] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0x44);
		u[4 * i + 3] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0xee);
	}
	for (size_t i = 0; i < 4; i++) {
		_mm256_storeu_ps(panel + i * CKV_LANES, _mm256_permute2f128_ps(u[i], u[i + 4], 0x20));
		_mm256_storeu_ps(panel + (i + 4) * CKV_LANES, _mm256_permute2f128_ps(u[i], u[i + 4], 0x31));
	}
}

TARGET static void pack(const float *rows, size_t d, float *panel) {
	size_t c = 0;
	for (; c + 8 <= d; c += 8) {
		transpose8(rows + c, d, panel + c * CKV_LANES);
		transpose8(rows + 8 * d + c, d, panel + c * CKV_LANES + 8);
	}
	for (; c < d; c++) {
		for (size_t j = 0; j < CKV_LANES; j++) {
			panel[c * CKV_LANES + j] = rows[j * d + c];
		}
	}
}

/* `rows` queries against 16 keys. With rows a constant the accumulators stay in registers: 2 * 6 of 16. */
INLINE void qk_rows(const float *q, size_t rows, size_t d, const float *panel, __m256 scale, float *out, size_t stride) {
	__m256 lo[6], hi[6];
	for (size_t i = 0; i < rows; i++) {
		lo[i] = hi[i] = _mm256_setzero_ps();
	}
	for (size_t c = 0; c < d; c++) {
		__m256 k_lo = _mm256_loadu_ps(panel + c * CKV_LANES);
		__m256 k_hi = _mm256_loadu_ps(panel + c * CKV_LANES + 8);
		for (size_t i = 0; i < rows; i++) {
			__m256 query = _mm256_broadcast_ss(q + i * d + c);
			lo[i] = _mm256_fmadd_ps(query, k_lo, lo[i]);
			hi[i] = _mm256_fmadd_ps(query, k_hi, hi[i]);
		}
	}
	for (size_t i = 0; i < rows; i++) {
		_mm256_storeu_ps(out + i * stride, _mm256_mul_ps(lo[i], scale));
		_mm256_storeu_ps(out + i * stride + 8, _mm256_mul_ps(hi[i], scale));
	}
}

TARGET static void qk(const float *q, size_t m, size_t d, const float *panel, float scale, float *out, size_t stride) {
	__m256 s = _mm256_set1_ps(scale);
	size_t i = 0;
	for (; i + 6 <= m; i += 6) {
		qk_rows(q + i * d, 6, d, panel, s, out + i * stride, stride);
	}
	switch (m - i) {
	case 5: qk_rows(q + i * d, 5, d, panel, s, out + i * stride, stride); break;
	case 4: qk_rows(q + i * d, 4, d, panel, s, out + i * stride, stride); break;
	case 3: qk_rows(q + i * d, 3, d, panel, s, out + i * stride, stride); break;
	case 2: qk_rows(q + i * d, 2, d, panel, s, out + i * stride, stride); break;
	case 1: qk_rows(q + i * d, 1, d, panel, s, out + i * stride, stride); break;
	default: break;
	}
}

/* As ckv_exp_scalar, eight at a time. */
INLINE __m256 exp8(__m256 x) {
	__m256 round = _mm256_set1_ps(CKV_EXP_ROUND);
	__m256 shifted = _mm256_fmadd_ps(x, _mm256_set1_ps(CKV_EXP_LOG2E), round);
	__m256 k = _mm256_sub_ps(shifted, round);
	__m256 r = _mm256_fmadd_ps(k, _mm256_set1_ps(-CKV_EXP_LN2_HI), x);
	r = _mm256_fmadd_ps(k, _mm256_set1_ps(-CKV_EXP_LN2_LO), r);
	__m256 p = _mm256_set1_ps(CKV_EXP_C7);
	p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(CKV_EXP_C6));
	p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(CKV_EXP_C5));
	p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(CKV_EXP_C4));
	p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(CKV_EXP_C3));
	p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(CKV_EXP_C2));
	p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
	p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
	__m256i bits = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
	bits = _mm256_add_epi32(bits, _mm256_set1_epi32(0x3f800000));
	__m256 result = _mm256_mul_ps(p, _mm256_castsi256_ps(bits));
	return _mm256_andnot_ps(_mm256_cmp_ps(x, _mm256_set1_ps(CKV_EXP_MIN), _CMP_LT_OQ), result);
}

TARGET static float maximum(const float *x, size_t n) {
	float max = x[0];
	size_t i = 0;
	if (n >= 8) {
		/* max_ps(a, b) is b when either is NaN, as `a > b ? a : b`: the scalar loop's choice. */
		__m256 m = _mm256_set1_ps(max);
		for (; i + 8 <= n; i += 8) {
			m = _mm256_max_ps(_mm256_loadu_ps(x + i), m);
		}
		float lane[8];
		_mm256_storeu_ps(lane, m);
		for (int j = 0; j < 8; j++) {
			max = lane[j] > max ? lane[j] : max;
		}
	}
	for (; i < n; i++) {
		max = x[i] > max ? x[i] : max;
	}
	return max;
}

TARGET static float exp_sum(float *x, size_t n) {
	float max = maximum(x, n);
	__m256 m = _mm256_set1_ps(max), lo = _mm256_setzero_ps(), hi = _mm256_setzero_ps();
	size_t i = 0;
	for (; i + CKV_LANES <= n; i += CKV_LANES) {
		__m256 a = exp8(_mm256_sub_ps(_mm256_loadu_ps(x + i), m));
		__m256 b = exp8(_mm256_sub_ps(_mm256_loadu_ps(x + i + 8), m));
		_mm256_storeu_ps(x + i, a);
		_mm256_storeu_ps(x + i + 8, b);
		lo = _mm256_add_ps(lo, a);
		hi = _mm256_add_ps(hi, b);
	}
	float lane[CKV_LANES];
	_mm256_storeu_ps(lane, lo);
	_mm256_storeu_ps(lane + 8, hi);
	for (; i < n; i++) {
		x[i] = ckv_exp_scalar(x[i] - max);
		lane[i % CKV_LANES] += x[i];
	}
	return ckv_sum_lanes(lane);
}

TARGET static void axpy(float *y, const float *x, float a, size_t n) {
	__m256 factor = _mm256_set1_ps(a);
	size_t i = 0;
	for (; i + 8 <= n; i += 8) {
		_mm256_storeu_ps(y + i, _mm256_fmadd_ps(factor, _mm256_loadu_ps(x + i), _mm256_loadu_ps(y + i)));
	}
	for (; i < n; i++) {
		y[i] = fmaf(a, x[i], y[i]);
	}
}

const ckv_kernels *ckv_kernels_avx2(void) {
	static const ckv_kernels table = {
	    "avx2",           f16_to_f32,       bf16_to_f32,      pack,           qk, exp_sum, axpy, ckv_avx2_dot_f16,
	    ckv_avx2_dot_f32, ckv_avx2_mix_f16, ckv_avx2_mix_f32, ckv_avx2_unpack};
	return &table;
}

#else

const ckv_kernels *ckv_kernels_avx2(void) { return NULL; }

#endif
