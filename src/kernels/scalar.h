/* Scalar pieces that every instruction set shares: the tails of vector loops must round as their bodies do. */
#ifndef CKV_SCALAR_H
#define CKV_SCALAR_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* exp(x) = 2^k exp(r), |r| <= ln2 / 2: r by Cody-Waite reduction, exp(r) by its Taylor series to r^7 (error below one unit
 * in the last place there). Adding 1.5 * 2^23 rounds to the nearest integer without a library call. */
#define CKV_EXP_LOG2E  1.44269504088896341f
#define CKV_EXP_LN2_HI 0.693145751953125f
#define CKV_EXP_LN2_LO 1.42860682030941723e-6f
#define CKV_EXP_ROUND  12582912.0f
#define CKV_EXP_MIN    (-87.336f) /* 2^-126; below: 0, so that no denormal slows a sum down */
#define CKV_EXP_C2     0.5f
#define CKV_EXP_C3     1.66666671633720398e-1f
#define CKV_EXP_C4     4.16666679084300995e-2f
#define CKV_EXP_C5     8.33333376795053482e-3f
#define CKV_EXP_C6     1.38888892251998186e-3f
#define CKV_EXP_C7     1.98412701138295233e-4f

/* For x <= 0 or NaN. */
static inline float ckv_exp_scalar(float x) {
	if (x < CKV_EXP_MIN) {
		return 0.0f;
	}
	float shifted = fmaf(x, CKV_EXP_LOG2E, CKV_EXP_ROUND);
	float k = shifted - CKV_EXP_ROUND;
	float r = fmaf(k, -CKV_EXP_LN2_HI, x);
	r = fmaf(k, -CKV_EXP_LN2_LO, r);
	float p = CKV_EXP_C7;
	p = fmaf(p, r, CKV_EXP_C6);
	p = fmaf(p, r, CKV_EXP_C5);
	p = fmaf(p, r, CKV_EXP_C4);
	p = fmaf(p, r, CKV_EXP_C3);
	p = fmaf(p, r, CKV_EXP_C2);
	p = fmaf(p, r, 1.0f);
	p = fmaf(p, r, 1.0f);
	/* The low bits of `shifted` are k; moved into the exponent they are 2^k. */
	uint32_t bits;
	memcpy(&bits, &shifted, sizeof bits);
	bits = (bits << 23) + 0x3f800000u;
	float power;
	memcpy(&power, &bits, sizeof power);
	return p * power;
}

/* Sum of 16 lanes as a tree: l with l + 8, then neighbours. */
static inline float ckv_sum_lanes(const float lane[16]) {
	float s[8];
	for (int i = 0; i < 8; i++) {
		s[i] = lane[i] + lane[i + 8];
	}
	return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

static inline float ckv_f16_scalar(uint16_t h) {
	uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
	uint32_t exponent = (h >> 10) & 0x1fu;
	uint32_t mantissa = h & 0x3ffu;
	uint32_t bits;
	if (exponent == 0x1fu) {
		/* Infinity, or NaN made quiet, as the hardware does. */
		bits = sign | 0x7f800000u | (mantissa << 13) | (mantissa ? 0x400000u : 0u);
	} else if (exponent != 0) {
		bits = sign | ((exponent + 112u) << 23) | (mantissa << 13);
	} else {
		float tiny = (float)mantissa * 5.9604644775390625e-8f; /* 2^-24, exact */
		memcpy(&bits, &tiny, sizeof bits);
		bits |= sign;
	}
	float f;
	memcpy(&f, &bits, sizeof f);
	return f;
}

/* Code i of those packed without gaps; reads only the bytes it lies in. */
static inline float ckv_code_scalar(const uint8_t *packed, int bits, size_t i) {
	size_t bit = i * (size_t)bits;
	unsigned offset = (unsigned)(bit % 8), word = packed[bit / 8];
	if (offset + (unsigned)bits > 8) {
		word |= (unsigned)packed[bit / 8 + 1] << 8;
	}
	return (float)((word >> offset) & ((1u << bits) - 1u));
}

static inline float ckv_bf16_scalar(uint16_t h) {
	uint32_t bits = (uint32_t)h << 16;
	float f;
	memcpy(&f, &bits, sizeof f);
	return f;
}

#endif
