#include "kept.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool kept_alloc(kept *k, size_t lists, size_t positions, note *why) {
	*k = (kept){0, NULL, NULL};
	if (lists >= INT32_MAX || positions >= INT32_MAX) {
		return note_set(why, "more than 2^31 positions");
	}
	k->n_lists = (int32_t)lists;
	k->offsets = malloc((lists + 1) * sizeof *k->offsets);
	k->positions = malloc((positions + 1) * sizeof *k->positions);
	if (!k->offsets || !k->positions) {
		kept_free(k);
		return note_set(why, "no memory for %zu positions", positions);
	}
	memset(k->offsets, 0xff, (lists + 1) * sizeof *k->offsets);
	memset(k->positions, 0xff, (positions + 1) * sizeof *k->positions);
	return true;
}

void kept_free(kept *k) {
	free(k->offsets);
	free(k->positions);
	*k = (kept){0, NULL, NULL};
}

bool kept_from_array(kept *k, const npy *array, int32_t n_lists, int32_t n, note *why) {
	int rank = n_lists ? 2 : 1;
	bool fits = array->type == NPY_I4 && array->rank == rank && array->shape[rank - 1] == (size_t)n;
	if (!fits || (n_lists && array->shape[0] != (size_t)n_lists)) {
		return note_set(why, "the stored positions are not int32 of the shape that case.json tells");
	}
	size_t lists = n_lists ? (size_t)n_lists : 1;
	if (!kept_alloc(k, lists, array->count, why)) {
		return false;
	}
	memcpy(k->positions, array->data, array->count * sizeof *k->positions);
	for (size_t i = 0; i <= lists; i++) {
		k->offsets[i] = (int32_t)i * n;
	}
	return true;
}

bool kept_from_ragged(kept *k, const npy *array, const npy *offsets, int32_t n_lists, note *why) {
	size_t lists = (size_t)n_lists;
	if (array->type != NPY_I4 || array->rank != 1 || offsets->type != NPY_I4 || offsets->rank != 1 ||
	    offsets->count != lists + 1) {
		return note_set(why, "the stored positions and offsets are not int32 lists, or not for %d heads", n_lists);
	}
	if (!kept_alloc(k, lists, array->count, why)) {
		return false;
	}
	memcpy(k->positions, array->data, array->count * sizeof *k->positions);
	memcpy(k->offsets, offsets->data, offsets->count * sizeof *k->offsets);
	if (!kept_offsets_valid(k, array->count, why)) {
		kept_free(k);
		return false;
	}
	return true;
}

bool kept_offsets_valid(const kept *k, size_t n_positions, note *why) {
	bool valid = k->offsets[0] == 0 && (size_t)k->offsets[k->n_lists] == n_positions;
	for (int32_t i = 0; i < k->n_lists && valid; i++) {
		valid = k->offsets[i] <= k->offsets[i + 1];
	}
	return valid || note_set(why, "the offsets of %d lists do not lead from 0 to %zu", k->n_lists, n_positions);
}

bool kept_valid(const kept *k, int32_t n_tokens, note *why) {
	for (int32_t i = 0; i < k->n_lists; i++) {
		int32_t least = 0;
		for (int32_t j = k->offsets[i]; j < k->offsets[i + 1]; j++) {
			int32_t position = k->positions[j];
			if (position < least || position >= n_tokens) {
				return note_set(why, "list %d, entry %d: position %d does not ascend or is outside 0 to %d", i,
				                j - k->offsets[i], position, n_tokens - 1);
			}
			least = position + 1;
		}
	}
	return true;
}

static bool same_lists(const kept *expected, const kept *found, note *why) {
	if (expected->n_lists != found->n_lists) {
		return note_set(why, "%d lists of positions expected, %d found", expected->n_lists, found->n_lists);
	}
	return true;
}

static int32_t list_length(const kept *k, int32_t list) { return k->offsets[list + 1] - k->offsets[list]; }

static bool same_count(int32_t list, int32_t expected, int32_t found, note *why) {
	return expected == found || note_set(why, "kept counts differ: list %d: %d expected, %d found", list, expected, found);
}

bool kept_same_counts(const kept *expected, const kept *found, note *why) {
	bool same = same_lists(expected, found, why);
	for (int32_t i = 0; i < expected->n_lists && same; i++) {
		same = same_count(i, list_length(expected, i), list_length(found, i), why);
	}
	return same;
}

bool kept_equal(const kept *expected, const kept *found, note *why) {
	if (!same_lists(expected, found, why)) {
		return false;
	}
	for (int32_t i = 0; i < expected->n_lists; i++) {
		int32_t n = list_length(expected, i), m = list_length(found, i);
		const int32_t *a = expected->positions + expected->offsets[i], *b = found->positions + found->offsets[i];
		for (int32_t j = 0; j < n && j < m; j++) {
			if (a[j] != b[j]) {
				return note_set(why, "kept positions differ: list %d, entry %d: %d expected, %d found (%d and %d kept)", i,
				                j, a[j], b[j], n, m);
			}
		}
		if (!same_count(i, n, m, why)) {
			return false;
		}
	}
	return true;
}

/* ------------------------------------------------------------------------------------------------- ties */

bool tolerance_holds(tolerance allowed, double expected, double found) {
	return fabs(expected - found) <= allowed.relative * fabs(expected) + allowed.absolute;
}

static int compare_doubles(const void *a, const void *b) {
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* Sorts both and compares them pair by pair. `what` and list are for the message. */
static bool same_sorted(double *a, double *b, int32_t n, tolerance allowed, const char *what, int32_t list, note *why) {
	qsort(a, (size_t)n, sizeof *a, compare_doubles);
	qsort(b, (size_t)n, sizeof *b, compare_doubles);
	for (int32_t i = 0; i < n; i++) {
		if (!tolerance_holds(allowed, a[i], b[i])) {
			return note_set(why, "tied: kept %s differ: list %d, %d-th lowest: %.9g expected, %.9g found", what, list, i,
			                a[i], b[i]);
		}
	}
	return true;
}

static double *gather(const kept *k, int32_t list, const score_table *by, double *out) {
	const float *scores = by->scores + (size_t)list * (size_t)by->n_tokens;
	for (int32_t j = k->offsets[list]; j < k->offsets[list + 1]; j++) {
		*out++ = (double)scores[k->positions[j]];
	}
	return out;
}

/* Room for the scores of every token of every head, twice. */
static double *alloc_scores(const score_table *by, double **second, note *why) {
	size_t n = (size_t)by->n_heads * (size_t)by->n_tokens;
	double *first = malloc(2 * n * sizeof *first);
	if (!first) {
		note_set(why, "no memory for %zu scores", 2 * n);
		return NULL;
	}
	*second = first + n;
	return first;
}

bool kept_same_scores(const kept *expected, const kept *found, const score_table *by, tolerance allowed, note *why) {
	double *b, *a = kept_same_counts(expected, found, why) ? alloc_scores(by, &b, why) : NULL;
	bool same = a != NULL;
	for (int32_t i = 0; i < expected->n_lists && same; i++) {
		gather(expected, i, by, a);
		gather(found, i, by, b);
		same = same_sorted(a, b, list_length(expected, i), allowed, "scores", i, why);
	}
	free(a);
	return same;
}

bool kept_same_scores_together(const kept *expected, const kept *found, const score_table *by, tolerance allowed,
                               note *why) {
	int32_t n = expected->offsets[expected->n_lists], m = found->offsets[found->n_lists];
	if (!same_lists(expected, found, why)) {
		return false;
	}
	if (n != m) {
		return note_set(why, "kept counts differ: %d expected, %d found in all lists", n, m);
	}
	double *b, *a = alloc_scores(by, &b, why), *a_end = a, *b_end = b;
	if (!a) {
		return false;
	}
	for (int32_t i = 0; i < expected->n_lists; i++) {
		a_end = gather(expected, i, by, a_end);
		b_end = gather(found, i, by, b_end);
	}
	bool same = same_sorted(a, b, n, allowed, "scores", 0, why);
	free(a);
	return same;
}

/* Mean, over the tokens of the chunk that starts at `first`, of the scores summed over the heads. */
static double chunk_mean(const score_table *by, int32_t first, int32_t end) {
	double sum = 0.0;
	for (int32_t h = 0; h < by->n_heads; h++) {
		for (int32_t t = first; t < end; t++) {
			sum += (double)by->scores[(size_t)h * (size_t)by->n_tokens + (size_t)t];
		}
	}
	return sum / (double)(end - first);
}

/* Means of the chunks that the only list consists of; false when a chunk is not there as a whole. */
static bool chunk_means(const kept *k, const score_table *by, int32_t chunk, double *means, int32_t *n_means, note *why) {
	*n_means = 0;
	for (int32_t j = 0; j < k->offsets[1];) {
		int32_t first = k->positions[j] / chunk * chunk;
		int32_t end = by->n_tokens - first > chunk ? first + chunk : by->n_tokens;
		for (int32_t t = first; t < end; t++, j++) {
			if (j >= k->offsets[1] || k->positions[j] != t) {
				return note_set(why, "the chunk of tokens %d to %d is not kept as a whole", first, end - 1);
			}
		}
		means[(*n_means)++] = chunk_mean(by, first, end);
	}
	return true;
}

bool kept_same_chunks(const kept *expected, const kept *found, const score_table *by, int32_t chunk, tolerance allowed,
                      note *why) {
	if (!same_lists(expected, found, why)) {
		return false;
	}
	double *a = malloc(2 * (size_t)by->n_tokens * sizeof *a);
	if (!a) {
		return note_set(why, "no memory");
	}
	int32_t n, m;
	double *b = a + by->n_tokens;
	bool same = chunk_means(expected, by, chunk, a, &n, why) && chunk_means(found, by, chunk, b, &m, why);
	if (same && n != m) {
		same = note_set(why, "kept counts differ: %d chunks expected, %d found", n, m);
	}
	same = same && same_sorted(a, b, n, allowed, "chunk means", 0, why);
	free(a);
	return same;
}
