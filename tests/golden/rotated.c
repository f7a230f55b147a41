#include "rotated.h"

#include <chunkkv/stream.h>
#include <stdlib.h>
#include <string.h>

static const tolerance allowed = {0.0, 1e-6};

static bool same_rows(const float *expected, const float *found, size_t dim, int32_t n, int32_t head, note *why) {
	for (size_t i = 0; i < (size_t)n * dim; i++) {
		if (!tolerance_holds(allowed, (double)expected[i], (double)found[i])) {
			return note_set(why, "turned keys differ: head %d, row %zu, channel %zu: %.9g expected, %.9g found", head,
			                i / dim, i % dim, (double)expected[i], (double)found[i]);
		}
	}
	return true;
}

/* One head's kept keys: expected[n][dim]. */
static bool agree(const inputs *in, const int32_t *positions, int32_t n, int32_t head, const float *expected, note *why) {
	size_t dim = (size_t)in->layer.k.head_dim;
	const float *keys = (const float *)in->keys.data + (size_t)head * (size_t)in->n_tokens * dim;
	float *rows = malloc((size_t)n * dim * sizeof *rows);
	if (!rows) {
		return note_set(why, "no memory for %d keys", n);
	}
	for (int32_t i = 0; i < n; i++) {
		memcpy(rows + (size_t)i * dim, keys + (size_t)positions[i] * dim, dim * sizeof *rows);
	}
	ckv_rope_close_gaps(&in->layer.rope, positions, n, 0, rows, dim);
	bool same = same_rows(expected, rows, dim, n, head, why);
	free(rows);
	return same;
}

static bool agree_all(const inputs *in, const kept *positions, const npy *stored, note *why) {
	size_t dim = (size_t)in->layer.k.head_dim, n = (size_t)positions->offsets[1];
	if (in->keys.type != NPY_F4 || stored->type != NPY_F4 || stored->rank != 3 || stored->shape[0] != (size_t)in->n_heads ||
	    stored->shape[1] != n || stored->shape[2] != dim) {
		return note_set(why, "the turned keys are not float32 [%d][%zu][%zu], or the keys not float32", in->n_heads, n, dim);
	}
	bool same = true;
	for (int32_t h = 0; h < in->n_heads && same; h++) {
		const float *expected = (const float *)stored->data + (size_t)h * n * dim;
		same = agree(in, positions->positions + positions->offsets[h], (int32_t)n, h, expected, why);
	}
	return same;
}

bool rotated_agree(const press *p, const casefile *file, const inputs *in, const json_t *output, note *why) {
	const char *array_file;
	kept positions;
	npy stored;
	if (p->lists != PER_HEAD) {
		return note_set(why, "turned keys of lists that are not each head's own");
	}
	if (!field_text(output, "keys_out", &array_file, why) || !press_kept(p, file, in, output, &positions, why)) {
		return false;
	}
	bool ok = casefile_array(file, array_file, &stored, why);
	if (ok) {
		ok = agree_all(in, &positions, &stored, why);
		npy_free(&stored);
	}
	kept_free(&positions);
	return ok;
}
