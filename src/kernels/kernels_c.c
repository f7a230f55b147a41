/* The reference kernels: what the others are compared with, bit for bit. */
#include "kernels/kernels.h"
#include "kernels/scalar.h"

static void f16_to_f32(const uint16_t *in, float *out, size_t n) {
	for (size_t i = 0; i < n; i++) {
		out[i] = ckv_f16_scalar(in[i]);
	}
}

static void bf16_to_f32(const uint16_t *in, float *out, size_t n) {
	for (size_t i = 0; i < n; i++) {
		out[i] = ckv_bf16_scalar(in[i]);
	}
}

static void pack(const float *rows, size_t d, float *panel) {
	for (size_t c = 0; c < d; c++) {
		for (size_t j = 0; j < CKV_LANES; j++) {
			panel[c * CKV_LANES + j] = rows[j * d + c];
		}
	}
}

static void qk(const float *q, size_t m, size_t d, const float *panel, float scale, float *out, size_t stride) {
	for (size_t i = 0; i < m; i++) {
		float acc[CKV_LANES] = {0};
		for (size_t c = 0; c < d; c++) {
			for (size_t j = 0; j < CKV_LANES; j++) {
				acc[j] = fmaf(q[i * d + c], panel[c * CKV_LANES + j], acc[j]);
			}
		}
		for (size_t j = 0; j < CKV_LANES; j++) {
			out[i * stride + j] = acc[j] * scale;
		}
	}
}

static float exp_sum(float *x, size_t n) {
	float max = x[0];
	for (size_t i = 1; i < n; i++) {
		max = x[i] > max ? x[i] : max;
	}
	float lane[CKV_LANES] = {0};
	for (size_t i = 0; i < n; i++) {
		x[i] = ckv_exp_scalar(x[i] - max);
		lane[i % CKV_LANES] += x[i];
	}
	return ckv_sum_lanes(lane);
}

static void axpy(float *y, const float *x, float a, size_t n) {
	for (size_t i = 0; i < n; i++) {
		y[i] = fmaf(a, x[i], y[i]);
	}
}

static void dot_f16(const float *q, size_t m, size_t d, const uint16_t *rows, size_t n, float scale, float *out,
                    size_t stride) {
	for (size_t j = 0; j < n; j++) {
		for (size_t i = 0; i < m; i++) {
			float lane[CKV_LANES] = {0};
			for (size_t c = 0; c < d; c++) {
				lane[c % CKV_LANES] = fmaf(q[i * d + c], ckv_f16_scalar(rows[j * d + c]), lane[c % CKV_LANES]);
			}
			out[i * stride + j] = scale * ckv_sum_lanes(lane);
		}
	}
}

static void dot_f32(const float *q, size_t m, size_t d, const float *rows, size_t n, float scale, float *out,
                    size_t stride) {
	for (size_t j = 0; j < n; j++) {
		for (size_t i = 0; i < m; i++) {
			float lane[CKV_LANES] = {0};
			for (size_t c = 0; c < d; c++) {
				lane[c % CKV_LANES] = fmaf(q[i * d + c], rows[j * d + c], lane[c % CKV_LANES]);
			}
			out[i * stride + j] = scale * ckv_sum_lanes(lane);
		}
	}
}

static void mix_f16(const float *w, size_t m, size_t stride, const uint16_t *rows, size_t n, size_t d, float *out) {
	for (size_t j = 0; j < n; j++) {
		for (size_t c = 0; c < d; c++) {
			float x = ckv_f16_scalar(rows[j * d + c]);
			for (size_t i = 0; i < m; i++) {
				out[i * d + c] = fmaf(w[i * stride + j], x, out[i * d + c]);
			}
		}
	}
}

static void mix_f32(const float *w, size_t m, size_t stride, const float *rows, size_t n, size_t d, float *out) {
	for (size_t j = 0; j < n; j++) {
		for (size_t i = 0; i < m; i++) {
			axpy(out + i * d, rows + j * d, w[i * stride + j], d);
		}
	}
}

static void unpack(const uint8_t *packed, int bits, const float *scale, const float *zero, size_t n, float *out) {
	for (size_t i = 0; i < n; i++) {
		out[i] = ckv_code_scalar(packed, bits, i) * scale[i] + zero[i];
	}
}

const ckv_kernels *ckv_kernels_c(void) {
	static const ckv_kernels table = {"c",  f16_to_f32, bf16_to_f32, pack,    qk,      exp_sum,
	                                  axpy, dot_f16,    dot_f32,     mix_f16, mix_f32, unpack};
	return &table;
}
