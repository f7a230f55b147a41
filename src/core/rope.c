/* Rotary position embedding (RoFormer, arXiv 2104.09864), for what must be turned back or further. */
#include "chunkkv/stream.h"
#include "core/internal.h"

#include <math.h>

void ckv_rope_turn_rows(const ckv_rope *rope, int32_t position, float factor, float *rows, size_t n, size_t stride) {
	int32_t half = rope->n_dims / 2;
	for (int32_t i = 0; i < half; i++) {
		double angle = (double)((float)position * rope->inv_freq[i]);
		double c = (double)factor * cos(angle), s = (double)factor * sin(angle);
		float *a = rows + (rope->interleaved ? 2 * i : i), *b = rope->interleaved ? a + 1 : a + half;
		for (size_t k = 0; k < n; k++, a += stride, b += stride) {
			double x = (double)*a, y = (double)*b;
			*a = (float)(c * x - s * y);
			*b = (float)(s * x + c * y);
		}
	}
}

void ckv_rope_turn(const ckv_rope *rope, int32_t position, float factor, float *row) {
	ckv_rope_turn_rows(rope, position, factor, row, 1, 0);
}

/* Rotations add up, so a key goes from where it stands by the difference. A key that does not move keeps its bits. */
void ckv_rope_close_gaps(const ckv_rope *rope, const int32_t *positions, int32_t n, int32_t first, float *rows,
                         size_t stride) {
	for (int32_t i = 0; i < n; i++) {
		int32_t by = first + i - positions[i];
		if (by != 0) {
			ckv_rope_turn(rope, by, 1.0f, rows + (size_t)i * stride);
		}
	}
}
