/* The kernel table: the few inner loops that are written once for each instruction set.
 *
 * Every implementation gives the same bits as the C one: sums have a fixed shape (16 lanes, or one chain along d), products
 * are fused (fmaf), exp is one polynomial. So a decision never depends on the machine it was made on. */
#ifndef CKV_KERNELS_H
#define CKV_KERNELS_H

#include <stddef.h>
#include <stdint.h>

enum { CKV_LANES = 16 };

typedef struct ckv_kernels {
	const char *isa;
	void (*f16_to_f32)(const uint16_t *in, float *out, size_t n);
	void (*bf16_to_f32)(const uint16_t *in, float *out, size_t n);
	/* rows[16][d] -> panel[d][16]: the layout in which qk reads 16 keys at once. */
	void (*pack)(const float *rows, size_t d, float *panel);
	/* out[i * stride + j] = scale * sum over c, in order, of q[i * d + c] * panel[c * 16 + j]; i < m, j < 16. */
	void (*qk)(const float *q, size_t m, size_t d, const float *panel, float scale, float *out, size_t stride);
	/* x[j] = exp(x[j] - max x), n >= 1; returns the sum of the new x in 16 lanes. */
	float (*exp_sum)(float *x, size_t n);
	/* y[j] = fma(a, x[j], y[j]). */
	void (*axpy)(float *y, const float *x, float a, size_t n);
	/* Attention of few queries over rows as they lie. out[i * stride + j] = scale * (q[i] . rows[j]), i < m, j < n; a
	 * product is summed in 16 lanes, channel c in lane c % 16, then as a tree. */
	void (*dot_f16)(const float *q, size_t m, size_t d, const uint16_t *rows, size_t n, float scale, float *out,
	                size_t stride);
	void (*dot_f32)(const float *q, size_t m, size_t d, const float *rows, size_t n, float scale, float *out, size_t stride);
	/* out[i * d + c] = fma(w[i * stride + j], rows[j * d + c], out[i * d + c]), j = 0 .. n-1 in order, i < m. */
	void (*mix_f16)(const float *w, size_t m, size_t stride, const uint16_t *rows, size_t n, size_t d, float *out);
	void (*mix_f32)(const float *w, size_t m, size_t stride, const float *rows, size_t n, size_t d, float *out);
	/* n numbers from packed codes of `bits` bits (1 to 8; the first in the lowest bits): out[c] = code * scale[c] + zero[c],
	 * the product rounded before the sum. */
	void (*unpack)(const uint8_t *packed, int bits, const float *scale, const float *zero, size_t n, float *out);
} ckv_kernels;

/* CPU features usable here (bits of CKV_CPU_*): the processor has them and the system saves their registers. */
uint32_t ckv_cpu_features(void);

/* The best table that needs only these features; never NULL. */
const ckv_kernels *ckv_kernels_get(uint32_t features);

const ckv_kernels *ckv_kernels_c(void);
const ckv_kernels *ckv_kernels_avx2(void); /* NULL where it was not built */

#endif
