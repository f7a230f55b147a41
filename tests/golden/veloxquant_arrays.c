#include "veloxquant_arrays.h"

#include <math.h>
#include <string.h>

/* One array of a case beside the same of a record. */
typedef struct comparison {
	const vq_record *found;
	npy array;
	int32_t width;    /* of a list in the file */
	int32_t distance; /* that f16 numbers may be apart */
} comparison;

static bool open_array(comparison *m, const vq_case *c, const char *name, npy_type type, int rank, const int32_t *shape,
                       note *why) {
	if (!vq_case_array(c, name, type, rank, shape, &m->array, why)) {
		return false;
	}
	/* The open axis: the last, or of rows the last but one. */
	size_t width = m->array.shape[m->array.rank - (shape[rank - 1] == VQ_ANY ? 1 : 2)];
	if (width > (size_t)m->found->tokens) {
		npy_free(&m->array);
		return note_set(why, "%s: lists of %zu, of %d tokens", name, width, m->found->tokens);
	}
	m->width = (int32_t)width;
	return true;
}

/* ------------------------------------------------------------------------------------------ after each step */

static bool list_agrees(const comparison *m, int32_t layer, int32_t step, int32_t head, note *why) {
	const vq_record *f = m->found;
	size_t at = vq_at_head(f, layer, step, head);
	const int32_t *expected = (const int32_t *)m->array.data + at * (size_t)m->width;
	const int32_t *found = f->positions + at * (size_t)f->tokens;
	for (int32_t i = 0; i < m->width; i++) {
		if (expected[i] != found[i]) {
			return note_set(why, "layer %d, step %d, head %d, entry %d: position %d expected, %d found (%d kept)", layer,
			                step, head, i, expected[i], found[i], f->lengths[at]);
		}
	}
	return f->lengths[at] <= m->width || note_set(why, "layer %d, step %d, head %d: at most %d rows expected, %d found",
	                                              layer, step, head, m->width, f->lengths[at]);
}

bool vq_positions_agree(const vq_case *c, const vq_record *found, const char *name, note *why) {
	comparison m = {.found = found};
	if (!open_array(&m, c, name, NPY_I4, 3, (int32_t[]){found->n_steps, found->heads, VQ_ANY}, why)) {
		return false;
	}
	bool same = true;
	for (int32_t s = 0; s < found->n_steps && same; s++) {
		for (int32_t i = 0; i < found->layers && same; i++) {
			for (int32_t h = 0; h < found->heads && same; h++) {
				same = list_agrees(&m, i, s, h, why);
			}
		}
	}
	npy_free(&m.array);
	return same;
}

bool vq_lengths_agree(const vq_case *c, const vq_record *found, const char *name, note *why) {
	npy array;
	if (!vq_case_array(c, name, NPY_I4, 2, (int32_t[]){found->n_steps, found->heads}, &array, why)) {
		return false;
	}
	bool same = true;
	const int32_t *expected = array.data;
	for (size_t i = 0; i < array.count && same; i++) {
		size_t head = i % (size_t)found->heads, step = i / (size_t)found->heads;
		same = expected[i] == found->lengths[i] ||
		       note_set(why, "layer %zu, step %zu, head %zu: %d rows expected, %d found", step / (size_t)found->n_steps,
		                step % (size_t)found->n_steps, head, expected[i], found->lengths[i]);
	}
	npy_free(&array);
	return same;
}

bool vq_returned_agree(const vq_case *c, const vq_record *found, const char *name, note *why) {
	npy array;
	if (!vq_case_array(c, name, NPY_I4, 1, (int32_t[]){found->n_steps}, &array, why)) {
		return false;
	}
	bool same = true;
	const int32_t *expected = array.data;
	for (size_t i = 0; i < array.count && same; i++) {
		same = expected[i] == found->returned[i] ||
		       note_set(why, "layer %zu, step %zu: %d rows expected for attention, %d found", i / (size_t)found->n_steps,
		                i % (size_t)found->n_steps, expected[i], found->returned[i]);
	}
	npy_free(&array);
	return same;
}

/* ---------------------------------------------------------------------------------------------- at the end */

static int32_t rows_at_end(const vq_record *f, int32_t layer, int32_t head) {
	return f->lengths[vq_at_head(f, layer, f->n_steps - 1, head)];
}

static bool count_agrees(const comparison *m, int32_t layer, int32_t head, note *why) {
	int32_t n = rows_at_end(m->found, layer, head);
	return n <= m->width || note_set(why, "layer %d, head %d: at most %d rows expected, %d found", layer, head, m->width, n);
}

/* Steps between two f16 numbers. */
static int32_t f16_distance(uint16_t a, uint16_t b) {
	int32_t x = a & 0x8000 ? -(int32_t)(a & 0x7fff) : a, y = b & 0x8000 ? -(int32_t)(b & 0x7fff) : b;
	return x < y ? y - x : x - y;
}

/* Merging by similarity rounds sums whose order is nobody's rule; everything else is bit for bit. */
static int32_t allowed_distance(const vq_case *c) {
	return strcmp(c->feed.policy->params.merge, "sim_weighted") == 0 ? 4 : 0;
}

static bool rows_agree(const comparison *m, const uint16_t *rows, size_t dim, int32_t layer, int32_t head, note *why) {
	size_t at = vq_at_end(m->found, layer, head);
	const uint16_t *expected = (const uint16_t *)m->array.data + at * (size_t)m->width * dim;
	const uint16_t *found = rows + at * (size_t)m->found->tokens * dim;
	for (size_t i = 0; i < (size_t)m->width * dim; i++) {
		int32_t distance = f16_distance(expected[i], found[i]);
		if (distance > m->distance || (m->distance == 0 && expected[i] != found[i])) {
			return note_set(why, "layer %d, head %d, row %zu, channel %zu: 0x%04x expected, 0x%04x found", layer, head,
			                i / dim, i % dim, (unsigned)expected[i], (unsigned)found[i]);
		}
	}
	return count_agrees(m, layer, head, why);
}

static bool all_rows_agree(const vq_case *c, const vq_record *found, const char *name, const uint16_t *rows, note *why) {
	comparison m = {.found = found, .distance = allowed_distance(c)};
	if (!open_array(&m, c, name, NPY_F2, 4, (int32_t[]){c->batch, c->heads, VQ_ANY, c->dim}, why)) {
		return false;
	}
	bool same = true;
	for (int32_t i = 0; i < found->layers && same; i++) {
		for (int32_t h = 0; h < found->heads && same; h++) {
			same = rows_agree(&m, rows, (size_t)c->dim, i, h, why);
		}
	}
	npy_free(&m.array);
	return same;
}

bool vq_keys_agree(const vq_case *c, const vq_record *found, const char *name, note *why) {
	return all_rows_agree(c, found, name, found->keys, why);
}

bool vq_values_agree(const vq_case *c, const vq_record *found, const char *name, note *why) {
	return all_rows_agree(c, found, name, found->values, why);
}

bool vq_score_agrees(double expected, double found) { return fabs(expected - found) <= 5e-5 * fmax(1.0, fabs(expected)); }

/* A norm where short keys are kept counts as minus itself here. */
static double sign_of(const vq_case *c) { return strcmp(c->feed.policy->params.scorer, "knorm") == 0 ? -1.0 : 1.0; }

/* Whether a layer has scores of its own. */
static bool decides(const vq_case *c, int32_t layer) { return layer % c->feed.policy->params.reuse == 0; }

static bool head_scores_agree(const comparison *m, double sign, bool own, int32_t layer, int32_t head, note *why) {
	size_t at = vq_at_end(m->found, layer, head);
	const float *expected = (const float *)m->array.data + at * (size_t)m->width;
	const float *found = m->found->scores + at * (size_t)m->found->tokens;
	int32_t n = rows_at_end(m->found, layer, head);
	for (int32_t i = 0; i < m->width; i++) {
		double want = (double)expected[i], have = own && i < n ? sign * (double)found[i] : 0.0;
		if (i < n && own ? !vq_score_agrees(want, have) : want < 0.0 || want > 0.0 || isnan(want)) {
			return note_set(why, "layer %d, head %d, row %d: score %.9g expected, %.9g found", layer, head, i, want, have);
		}
	}
	return count_agrees(m, layer, head, why);
}

bool vq_scores_agree(const vq_case *c, const vq_record *found, const char *name, note *why) {
	comparison m = {.found = found};
	if (!open_array(&m, c, name, NPY_F4, 2, (int32_t[]){found->heads, VQ_ANY}, why)) {
		return false;
	}
	bool same = true;
	for (int32_t i = 0; i < found->layers && same; i++) {
		bool own = decides(c, i);
		if (own && rows_at_end(found, i, 0) > 0 && !found->scored[i]) {
			same = note_set(why, "layer %d: the stream has no scores", i);
		}
		for (int32_t h = 0; h < found->heads && same; h++) {
			same = head_scores_agree(&m, sign_of(c), own, i, h, why);
		}
	}
	npy_free(&m.array);
	return same;
}
