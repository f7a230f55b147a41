#include "kvpress_merge.h"

#include <stdlib.h>
#include <string.h>

static const tolerance allowed = {0.0, 1e-6};

bool merged_stored(const casefile *file, const inputs *in, const json_t *output, const char *key, size_t n, npy *stored,
                   note *why) {
	const char *array_file;
	if (!field_text(output, key, &array_file, why) || !casefile_array(file, array_file, stored, why)) {
		return false;
	}
	size_t dim = (size_t)in->layer.v.head_dim;
	if (stored->type != NPY_F4 || stored->rank != 3 || stored->shape[0] != (size_t)in->n_heads || stored->shape[1] != n ||
	    stored->shape[2] != dim) {
		npy_free(stored);
		return note_set(why, "%.200s is not float32 [%d][%zu][%zu]", array_file, in->n_heads, n, dim);
	}
	return true;
}

bool merged_same(const npy *stored, const float *found, size_t rows_spared, note *why) {
	const float *expected = stored->data;
	size_t rows = stored->shape[1], dim = stored->shape[2], differ = 0;
	for (size_t i = 0; i < stored->shape[0] * rows; i++) {
		differ = i % rows ? differ : 0;
		for (size_t c = 0; c < dim; c++) {
			double a = (double)expected[i * dim + c], b = (double)found[i * dim + c];
			if (tolerance_holds(allowed, a, b)) {
				continue;
			}
			if (++differ > rows_spared) {
				return note_set(why, "merged values differ: head %zu, row %zu, channel %zu: %.9g expected, %.9g found",
				                i / rows, i % rows, c, a, b);
			}
			break;
		}
	}
	return true;
}

/* One run of the library. */
static bool merge(const press *p, const inputs *in, kept *positions, replay *r, int run, float *values, size_t n,
                  note *why) {
	ckv_keep keep;
	ckv_keep_init(&keep, positions->positions, (size_t)positions->offsets[positions->n_lists], positions->offsets);
	keep.n_lists = positions->n_lists;
	keep.n_positions = keep.capacity;
	memset(values, 0xff, n * sizeof *values); /* NaN: what is not written shows */
	ckv_status status = ckv_merge_kept(r->ctx[run], &in->layer, &keep, &p->merge, values);
	return status == CKV_OK || replay_refused(r, run, "ckv_merge_kept", status, why);
}

static bool agree(const press *p, const inputs *in, kept *positions, const npy *stored, bool tied, replay *r, note *why) {
	float *values = malloc(2 * stored->count * sizeof *values);
	bool ok = values || note_set(why, "no memory for %zu values", 2 * stored->count);
	for (int run = 0; run < N_RUNS && ok; run++) {
		float *found = run ? values + stored->count : values;
		ok = merge(p, in, positions, r, run, found, stored->count, why) &&
		     replay_same(run, values, found, stored->count, "merged values", why);
	}
	ok = ok && merged_same(stored, values, tied ? 2 : 0, why); /* a tie may take one token from one row to another */
	free(values);
	return ok;
}

bool merged_agree(const press *p, const casefile *file, const inputs *in, const json_t *output, bool tied, replay *r,
                  note *why) {
	kept positions;
	npy stored;
	if (p->lists != PER_HEAD) {
		return note_set(why, "merged values of lists that are not each head's own");
	}
	if (!press_kept(p, file, in, output, &positions, why)) {
		return false;
	}
	bool ok = merged_stored(file, in, output, "values_out", (size_t)positions.offsets[1], &stored, why);
	if (ok) {
		ok = agree(p, in, &positions, &stored, tied, r, why);
		npy_free(&stored);
	}
	kept_free(&positions);
	return ok;
}
