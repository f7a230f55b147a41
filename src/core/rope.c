/* Rotary position embedding (RoFormer, arXiv 2104.09864), for what must be turned back or further. */
#include "core/internal.h"

#include <math.h>

void ckv_rope_turn(const ckv_rope *rope, int32_t position, float factor, float *row) {
	int32_t half = rope->n_dims / 2;
	for (int32_t i = 0; i < half; i++) {
		float *a = row + (rope->interleaved ? 2 * i : i), *b = rope->interleaved ? a + 1 : a + half;
		double angle = (double)((float)position * rope->inv_freq[i]);
		double c = cos(angle), s = sin(angle), x = (double)*a, y = (double)*b;
		*a = (float)((double)factor * (c * x - s * y));
		*b = (float)((double)factor * (s * x + c * y));
	}
}
