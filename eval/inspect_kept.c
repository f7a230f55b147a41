/* What is kept, by layer, as lists of positions; and what can be told of these alone. */
#include "inspect.h"

#include <chunkkv/measure.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------------------------ room */

bool inspected_make(inspected *p, int32_t n_layers, int32_t n_tokens) {
	size_t n = (size_t)n_layers;
	p->kept = calloc(n, sizeof *p->kept);
	p->figures = calloc(n, sizeof *p->figures);
	p->jaccard = calloc(n * n, sizeof *p->jaccard);
	p->share = calloc((size_t)n_tokens, sizeof *p->share);
	bool good = p->kept && p->figures && p->jaccard && p->share;
	for (size_t i = 0; good && i < n; i++) {
		for (int f = 0; f < N_FIGURES; f++) {
			p->figures[i][f] = (double)NAN;
		}
	}
	if (!good) {
		fail("no memory for what %s keeps", p->policy);
	}
	return good;
}

void inspected_free(inspected *p, int32_t n_layers) {
	for (int32_t i = 0; i < n_layers && p->kept; i++) {
		free(p->kept[i].positions);
		free(p->kept[i].offsets);
	}
	free(p->kept);
	free(p->figures);
	free(p->jaccard);
	free(p->share);
}

/* ---------------------------------------------------------------------------------------------------------------- copies */

static int32_t longest(const ckv_keep *keep) {
	int32_t most = 0;
	for (int32_t i = 0; i < keep->n_lists; i++) {
		int32_t n = keep->offsets[i + 1] - keep->offsets[i];
		most = n > most ? n : most;
	}
	return most;
}

static bool keep_room(ckv_keep *to, int32_t n_lists, size_t n_positions) {
	int32_t *positions = malloc((n_positions + 1) * sizeof *positions);
	int32_t *offsets = calloc((size_t)n_lists + 1, sizeof *offsets);
	ckv_keep_init(to, positions, n_positions, offsets);
	to->n_lists = n_lists;
	to->n_positions = n_positions;
	if (!positions || !offsets) {
		fail("no memory for kept positions");
	}
	return positions && offsets; /* what there is goes with the layer */
}

static bool copy_lists(ckv_keep *to, const kept_list *lists, int32_t n_lists) {
	size_t n = 0;
	for (int32_t i = 0; i < n_lists; i++) {
		n += (size_t)lists[i].n;
	}
	if (n > INT32_MAX || !keep_room(to, n_lists, n)) {
		return false;
	}
	for (int32_t i = 0; i < n_lists; i++) {
		int32_t start = to->offsets[i];
		to->offsets[i + 1] = start + lists[i].n;
		if (lists[i].n) {
			memcpy(to->positions + start, lists[i].positions, (size_t)lists[i].n * sizeof *to->positions);
		}
	}
	to->n_keep = longest(to);
	return true;
}

bool kept_copy(ckv_keep *to, const kept_list *lists, int32_t n_lists, int32_t n_tokens) {
	if (n_lists > 0) {
		return copy_lists(to, lists, n_lists);
	}
	if (!keep_room(to, 1, (size_t)n_tokens)) {
		return false;
	}
	for (int32_t i = 0; i < n_tokens; i++) {
		to->positions[i] = i;
	}
	to->offsets[1] = to->n_keep = n_tokens;
	return true;
}

/* --------------------------------------------------------------------------------------------------------------- figures */

void kept_share(inspected *p, int32_t n_layers) {
	/* Layers weigh the same, whether they have one list or one for each head. */
	for (int32_t i = 0; i < n_layers; i++) {
		const ckv_keep *keep = &p->kept[i];
		float weight = 1.0f / ((float)n_layers * (float)keep->n_lists);
		for (size_t j = 0; j < keep->n_positions; j++) {
			p->share[keep->positions[j]] += weight;
		}
	}
}

bool kept_jaccard(inspected *p, int32_t n_layers) {
	size_t n = (size_t)n_layers;
	for (size_t i = 0; i < n; i++) {
		for (size_t j = 0; j <= i; j++) {
			double same = 0.0;
			ckv_status status = ckv_keep_jaccard(&p->kept[i], &p->kept[j], &same);
			if (status) {
				fail("%s: what layers keep can't be compared: %s", p->policy, ckv_strerror(status));
				return false;
			}
			p->jaccard[i * n + j] = p->jaccard[j * n + i] = same;
		}
	}
	for (size_t i = 1; i < n; i++) {
		p->figures[i][FIGURE_JACCARD] = p->jaccard[i * n + i - 1];
	}
	return true;
}

double inspect_share(const inspection *in, const inspected *p) {
	double sum = 0.0;
	for (int32_t t = 0; t < in->n_tokens; t++) {
		sum += (double)p->share[t];
	}
	return sum / in->n_tokens;
}

const char *inspect_note(const inspected *p) {
	return p->reason != CKV_SELECTED ? ckv_reason_text(p->reason)
	       : p->no_slope             ? "all layers keep the same: the budget is too small for a pyramid"
	                                 : "";
}
