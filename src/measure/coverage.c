/* How contiguous a selection is: chunks kept whole, and runs of neighbouring positions. */
#include "measure/internal.h"

/* Tokens of the chunk that holds a position. */
static int32_t chunk_length(int32_t position, int32_t n_tokens, int32_t chunk) {
	int32_t rest = n_tokens - position / chunk * chunk;
	return rest < chunk ? rest : chunk;
}

ckv_status ckv_chunk_coverage(const int32_t *positions, size_t n, int32_t n_tokens, int32_t chunk, double *whole,
                              int32_t *n_runs) {
	if (n_tokens < 1 || n_tokens > CKV_MAX_TOKENS || chunk < 1 || !ckv_list_fits(positions, n, n_tokens)) {
		return CKV_ERR_ARG;
	}
	int32_t touched = 0, filled = 0, runs = 0, in_chunk = 0;
	for (size_t i = 0; i < n; i++) {
		bool new_chunk = i == 0 || positions[i] / chunk != positions[i - 1] / chunk;
		runs += i == 0 || positions[i] != positions[i - 1] + 1;
		touched += new_chunk;
		in_chunk = new_chunk ? 1 : in_chunk + 1;
		filled += in_chunk == chunk_length(positions[i], n_tokens, chunk);
	}
	if (whole) {
		*whole = touched > 0 ? (double)filled / touched : 0.0;
	}
	if (n_runs) {
		*n_runs = runs;
	}
	return CKV_OK;
}
