/* Numbers on levels, and codes without gaps. */
#include "kernels/scalar.h"
#include "quant/quant.h"

#define LEAST_SCALE    1e-8f
#define GREATEST_HALF  65504.0f
#define ROUND_TO_WHOLE 12582912.0f /* 1.5 * 2^23: what is added to it loses its fraction, half to even */

/* The least f16 number that is not below x. */
static float half_above(float x) {
	uint16_t half = ckv_f16_from_f32(x);
	if (ckv_f16_scalar(half) < x) {
		half = (uint16_t)(half & 0x8000u ? half - 1 : half + 1);
	}
	float above = ckv_f16_scalar(half);
	return above < GREATEST_HALF ? above : GREATEST_HALF;
}

/* The zero first, downwards, and the scale by what it became: so the levels reach over all of the numbers. */
static ckv_levels half_levels(float least, float greatest, float steps) {
	ckv_levels levels = {.zero = -half_above(-least)};
	float scale = (greatest - levels.zero) / steps;
	levels.scale = half_above(scale > LEAST_SCALE ? scale : LEAST_SCALE);
	return levels;
}

static ckv_levels float_levels(float least, float greatest, float steps) {
	float scale = (greatest - least) / steps;
	return (ckv_levels){.scale = scale > LEAST_SCALE ? scale : LEAST_SCALE, .zero = least};
}

ckv_levels ckv_levels_make(const float *x, size_t n, size_t stride, int32_t bits, bool half, uint8_t *codes,
                           size_t code_stride) {
	float least = x[0], greatest = x[0], steps = (float)((1 << bits) - 1);
	for (size_t i = 1; i < n; i++) {
		float value = x[i * stride];
		least = value < least ? value : least;
		greatest = value > greatest ? value : greatest;
	}
	ckv_levels levels = half ? half_levels(least, greatest, steps) : float_levels(least, greatest, steps);
	for (size_t i = 0; i < n; i++) {
		float code = (x[i * stride] - levels.zero) / levels.scale;
		code = code > 0.0f ? code : 0.0f; /* NaN too */
		code = code < steps ? code : steps;
		codes[i * code_stride] = (uint8_t)((code + ROUND_TO_WHOLE) - ROUND_TO_WHOLE);
	}
	return levels;
}

size_t ckv_codes_bytes(size_t n, int32_t bits) {
	return n / 8 * (size_t)bits + (n % 8 * (size_t)bits + 7) / 8; /* 8 codes are `bits` bytes */
}

void ckv_codes_pack(const uint8_t *codes, size_t n, int32_t bits, uint8_t *packed) {
	uint32_t pending = 0;
	int32_t n_pending = 0;
	for (size_t i = 0; i < n; i++) {
		pending |= (uint32_t)codes[i] << n_pending;
		for (n_pending += bits; n_pending >= 8; n_pending -= 8) {
			*packed++ = (uint8_t)pending;
			pending >>= 8;
		}
	}
	if (n_pending > 0) {
		*packed = (uint8_t)pending;
	}
}

void ckv_codes_unpack(const uint8_t *packed, size_t n, int32_t bits, uint8_t *codes) {
	uint32_t pending = 0, mask = (1u << bits) - 1;
	int32_t n_pending = 0;
	for (size_t i = 0; i < n; i++) {
		if (n_pending < bits) {
			pending |= (uint32_t)*packed++ << n_pending;
			n_pending += 8;
		}
		codes[i] = (uint8_t)(pending & mask);
		pending >>= bits;
		n_pending -= bits;
	}
}
