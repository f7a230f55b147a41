#include "metrics_lcs.h"

#include <stdlib.h>
#include <string.h>

/* A row of the table, [m + 1], from the one before. */
static void next_row(const uint32_t *before, uint32_t *row, uint32_t x, const uint32_t *y, size_t m) {
	row[0] = 0;
	for (size_t j = 1; j <= m; j++) {
		uint32_t longer = before[j] > row[j - 1] ? before[j] : row[j - 1];
		row[j] = x == y[j - 1] ? before[j - 1] + 1 : longer;
	}
}

bool lcs_length(const uint32_t *x, size_t n, const uint32_t *y, size_t m, size_t *length) {
	if (m > n) {
		return lcs_length(y, m, x, n, length);
	}
	uint32_t *rows = calloc(2, (m + 1) * sizeof *rows), *even = rows, *odd = rows ? rows + m + 1 : NULL;
	if (!rows) {
		return false;
	}
	for (size_t i = 0; i < n; i++) {
		next_row(i % 2 ? odd : even, i % 2 ? even : odd, x[i], y, m);
	}
	*length = n % 2 ? odd[m] : even[m];
	free(rows);
	return true;
}

/* Rows of x[0, n) below the block's first, which is there. */
static void fill_block(uint32_t *block, const uint32_t *x, size_t n, const uint32_t *y, size_t m) {
	for (size_t i = 0; i < n; i++) {
		next_row(block + i * (m + 1), block + (i + 1) * (m + 1), x[i], y, m);
	}
}

/* Back through a block from column j of its last row; returns the column where it leaves by its first. */
static size_t mark_block(const uint32_t *block, const uint32_t *x, size_t n, const uint32_t *y, size_t m, size_t j,
                         uint8_t *marks) {
	for (size_t i = n; i > 0 && j > 0;) {
		const uint32_t *before = block + (i - 1) * (m + 1), *row = before + m + 1;
		if (x[i - 1] == y[j - 1]) {
			marks[x[i - 1]] = 1;
			i--;
			j--;
		} else if (before[j] > row[j - 1]) {
			i--;
		} else {
			j--;
		}
	}
	return j;
}

bool lcs_mark(const uint32_t *x, size_t n, const uint32_t *y, size_t m, uint8_t *marks) {
	size_t step = 1;
	while (step * step < n) {
		step++;
	}
	/* The first row of each block of `step` rows is kept; the rest is made again on the way back. */
	size_t n_blocks = n / step + 1, row = (m + 1) * sizeof(uint32_t);
	uint32_t *kept = calloc(n_blocks, row), *block = calloc(step + 1, row);
	bool good = kept && block;
	for (size_t k = 0; good && k + 1 < n_blocks; k++) {
		fill_block(block, x + k * step, step, y, m);
		memcpy(kept + (k + 1) * (m + 1), block + step * (m + 1), row);
		memcpy(block, block + step * (m + 1), row);
	}
	size_t j = m;
	for (size_t k = n_blocks; good && k-- > 0;) {
		size_t first = k * step, size = n - first < step ? n - first : step;
		memcpy(block, kept + k * (m + 1), row);
		fill_block(block, x + first, size, y, m);
		j = mark_block(block, x + first, size, y, m, j, marks);
	}
	free(kept);
	free(block);
	return good;
}
