/* What goes is folded into what stays: values only, so that no key's rotation becomes wrong (MergingPress of kvpress 0.5.5,
 * after D2O, arXiv 2406.13035).
 *
 * Which kept key is most like an evicted one asks for a product of two matrices, of which a row's greatest number alone is
 * wanted: it is made in tiles, in memory of O(T + n_kept d). */
#include "quant/quant.h"

#include <math.h>
#include <string.h>

enum {
	PANELS = 16, /* of evicted keys that are met by... */
	TILE = 48    /* ...so many kept keys at once: both stay in the nearest caches */
};

/* Lengths below it count as it; and what keeps the weight of two zeros at zero. As published. */
static const double tiny = 1e-6;

/* A head in hand, and its part of the working space. */
typedef struct work {
	const ckv_kernels *kernels;
	const ckv_view *k, *v;
	const int32_t *kept;
	int32_t head, n_kept, n_evicted;
	size_t dim_k, dim_v;
	int32_t *evicted; /* [n_evicted] positions, ascending */
	int32_t *target;  /* [n_evicted, padded] index of the kept key most like it, the first of equal ones */
	float *cosine;    /* [n_evicted, padded] of the two */
	float *units;     /* [n_kept][dim_k] kept keys, made 1 long */
	double *lengths;  /* [n_kept] of kept values */
	float *weights;   /* [n_kept] that went into each */
	float *rows;      /* [16][the wider row] */
	float *panels;    /* [PANELS][dim_k][16] evicted keys, made 1 long */
	float *tile;      /* [TILE][16] */
} work;

/* ----------------------------------------------------------------------------------------------- working space */

/* The next count * size bytes; *end becomes SIZE_MAX, and stays so, when they cannot be told. */
static void *part(char *space, size_t *end, size_t count, size_t size) {
	enum { ALIGN = 64 };
	size_t start = *end, limit = (size_t)PTRDIFF_MAX - ALIGN;
	if (start > limit || count > (limit - start) / size) {
		*end = SIZE_MAX;
		return NULL;
	}
	*end = (start + count * size + ALIGN - 1) / ALIGN * ALIGN;
	return space ? space + start : NULL;
}

/* Bytes of the space; with one, sets the arrays to their parts of it. There is room for any list up to n_kept. */
static size_t lay_out(work *w, char *space, size_t n_tokens, size_t n_kept) {
	size_t end = 0, padded = (n_tokens + CKV_LANES - 1) / CKV_LANES * CKV_LANES;
	size_t widest = w->dim_k > w->dim_v ? w->dim_k : w->dim_v;
	w->evicted = part(space, &end, n_tokens, sizeof *w->evicted);
	w->target = part(space, &end, padded, sizeof *w->target);
	w->cosine = part(space, &end, padded, sizeof *w->cosine);
	w->units = part(space, &end, n_kept, w->dim_k * sizeof *w->units);
	w->lengths = part(space, &end, n_kept, sizeof *w->lengths);
	w->weights = part(space, &end, n_kept, sizeof *w->weights);
	w->rows = part(space, &end, CKV_LANES, widest * sizeof *w->rows);
	w->panels = part(space, &end, (size_t)PANELS * CKV_LANES, w->dim_k * sizeof *w->panels);
	w->tile = part(space, &end, (size_t)TILE * CKV_LANES, sizeof *w->tile);
	return end;
}

size_t ckv_merge_space(const ckv_view *k, const ckv_view *v, int32_t n_kept) {
	work w = {.dim_k = (size_t)k->head_dim, .dim_v = (size_t)v->head_dim};
	return lay_out(&w, NULL, (size_t)k->n_tokens, (size_t)n_kept);
}

/* ------------------------------------------------------------------------------------------------------ reading */

static ckv_status load(const work *w, const ckv_view *view, int32_t token, float *row, ckv_error *error) {
	ckv_view_decode(w->kernels, view, w->head, token, 1, row);
	if (!ckv_all_finite(row, (size_t)view->head_dim)) {
		return ckv_fail(error, CKV_ERR_NUMERIC, "KV head %d, token %d: NaN or infinity in a %s", w->head, token,
		                view == w->k ? "key" : "value");
	}
	return CKV_OK;
}

/* A key, made 1 long: products are cosines then. */
static ckv_status load_unit(const work *w, int32_t token, float *row, ckv_error *error) {
	ckv_status status = load(w, w->k, token, row, error);
	double length = status ? 1.0 : ckv_norm(row, w->dim_k);
	for (size_t c = 0; c < w->dim_k && status == CKV_OK; c++) {
		row[c] = (float)((double)row[c] / (length > tiny ? length : tiny));
	}
	return status;
}

/* The kept values as they are; where something is to be merged into them, the keys and what else is known of them too. */
static ckv_status load_kept(const work *w, bool merging, float *out, ckv_error *error) {
	ckv_status status = CKV_OK;
	for (size_t i = 0; i < (size_t)w->n_kept && status == CKV_OK; i++) {
		float *row = out + i * w->dim_v;
		status = load(w, w->v, w->kept[i], row, error);
		if (status == CKV_OK && merging) {
			w->lengths[i] = ckv_norm(row, w->dim_v);
			w->weights[i] = 0.0f;
			status = load_unit(w, w->kept[i], w->units + i * w->dim_k, error);
		}
	}
	return status;
}

static void list_evicted(const work *w) {
	int32_t next = 0, n = 0;
	for (int32_t t = 0; t < w->k->n_tokens; t++) {
		if (next < w->n_kept && w->kept[next] == t) {
			next++;
		} else {
			w->evicted[n++] = t;
		}
	}
}

/* Up to 16 evicted keys from number `first` on. */
static ckv_status load_panel(const work *w, int32_t first, float *panel, ckv_error *error) {
	int32_t n = w->n_evicted - first < CKV_LANES ? w->n_evicted - first : CKV_LANES;
	ckv_status status = CKV_OK;
	for (int32_t i = 0; i < n && status == CKV_OK; i++) {
		status = load_unit(w, w->evicted[first + i], w->rows + (size_t)i * w->dim_k, error);
	}
	memset(w->rows + (size_t)n * w->dim_k, 0, (size_t)(CKV_LANES - n) * w->dim_k * sizeof *w->rows);
	w->kernels->pack(w->rows, w->dim_k, panel);
	return status;
}

/* ------------------------------------------------------------------------------------------------------ pairing */

/* Which of n kept keys from number `first` on is more like each of 16 evicted ones than those before. */
static void keep_best(const float *tile, int32_t n, int32_t first, float *cosine, int32_t *target) {
	for (int32_t i = 0; i < n; i++) {
		for (int32_t j = 0; j < CKV_LANES; j++) {
			float c = tile[i * CKV_LANES + j];
			target[j] = c > cosine[j] ? first + i : target[j];
			cosine[j] = c > cosine[j] ? c : cosine[j];
		}
	}
}

/* Panels of evicted keys, the first one's keys from number `first` on, against all kept ones. */
static void meet(const work *w, int32_t first, int32_t n_panels) {
	for (int32_t i = 0; i < w->n_kept; i += TILE) {
		int32_t n = w->n_kept - i < TILE ? w->n_kept - i : TILE;
		for (int32_t p = 0; p < n_panels; p++) {
			size_t at = (size_t)first + (size_t)p * CKV_LANES;
			w->kernels->qk(w->units + (size_t)i * w->dim_k, (size_t)n, w->dim_k,
			               w->panels + (size_t)p * CKV_LANES * w->dim_k, 1.0f, w->tile, CKV_LANES);
			keep_best(w->tile, n, i, w->cosine + at, w->target + at);
		}
	}
}

static ckv_status pair(const work *w, ckv_error *error) {
	int32_t first = 0;
	while (first < w->n_evicted) {
		int32_t n_panels = 0, next = first;
		for (; n_panels < PANELS && next < w->n_evicted; n_panels++) {
			ckv_status status = load_panel(w, next, w->panels + (size_t)n_panels * CKV_LANES * w->dim_k, error);
			if (status) {
				return status;
			}
			for (size_t j = 0; j < CKV_LANES; j++) {
				w->cosine[(size_t)next + j] = -INFINITY;
				w->target[(size_t)next + j] = 0;
			}
			next += w->n_evicted - next < CKV_LANES ? w->n_evicted - next : CKV_LANES;
		}
		meet(w, first, n_panels);
		first = next;
	}
	return CKV_OK;
}

/* ------------------------------------------------------------------------------------------------------ the gate */

/* The number that has `rank` lower ones, by radix selection: one byte a pass, from the top. */
static float nth_lowest(const float *x, size_t n, size_t rank) {
	uint32_t prefix = 0, mask = 0;
	for (int shift = 24; shift >= 0; shift -= 8) {
		size_t histogram[256] = {0};
		for (size_t i = 0; i < n; i++) {
			uint32_t bits;
			memcpy(&bits, &x[i], sizeof bits);
			bits = bits & 0x80000000u ? ~bits : bits | 0x80000000u; /* ascends with the number */
			if ((bits & mask) == prefix) {
				histogram[(bits >> shift) & 0xff]++;
			}
		}
		uint32_t digit = 0;
		while (histogram[digit] <= rank) {
			rank -= histogram[digit++];
		}
		prefix |= digit << shift;
		mask |= 0xffu << shift;
	}
	prefix = prefix & 0x80000000u ? prefix & 0x7fffffffu : ~prefix;
	float found;
	memcpy(&found, &prefix, sizeof found);
	return found;
}

/* The cosine that a token needs for being merged. The quantile is interpolated in float as torch does it, so that a token
 * on it is in or out alike.
 *
 * At the edges: a fraction of 0, which kvpress refuses, leaves those that reach the greatest cosine; a threshold below 0,
 * which it refuses too, is like 0, since such cosines weigh nothing. kvpress takes cosines below the threshold as -infinity:
 * as long as the quantile is above the threshold that changes nothing; else all that pass the threshold are merged here,
 * whereas there the NaN of interpolating (-infinity beside a number) mostly keeps every token out. */
static float least_cosine(const work *w, const ckv_merge *options) {
	size_t n = (size_t)w->n_evicted;
	float threshold = (float)options->threshold;
	if (options->fraction >= 1.0) {
		return threshold;
	}
	float place = (float)(1.0 - options->fraction) * (float)(n - 1);
	size_t rank = (size_t)place;
	rank = rank < n - 1 ? rank : n - 1;
	float low = nth_lowest(w->cosine, n, rank), high = rank + 1 < n ? nth_lowest(w->cosine, n, rank + 1) : low;
	float share = place - floorf(place);
	float quantile = share < 0.5f ? low + share * (high - low) : high - (high - low) * (1.0f - share);
	return quantile > threshold ? quantile : threshold;
}

/* ------------------------------------------------------------------------------------------------------- merging */

/* out += weight * value, for every evicted token that passes. */
static ckv_status add_up(const work *w, float least, float *out, ckv_error *error) {
	for (size_t i = 0; i < (size_t)w->n_evicted; i++) {
		size_t t = (size_t)w->target[i];
		ckv_status status = load(w, w->v, w->evicted[i], w->rows, error); /* whether it passes or not */
		if (status) {
			return status;
		}
		if (!(w->cosine[i] >= least && w->cosine[i] > 0.0f)) {
			continue;
		}
		double length = ckv_norm(w->rows, w->dim_v);
		float weight = (float)((double)w->cosine[i] * length / (length + w->lengths[t] + tiny));
		w->kernels->axpy(out + t * w->dim_v, w->rows, weight, w->dim_v);
		w->weights[t] += weight;
	}
	return CKV_OK;
}

static ckv_status divide(const work *w, float *out, ckv_error *error) {
	for (size_t t = 0; t < (size_t)w->n_kept; t++) {
		float *row = out + t * w->dim_v;
		for (size_t c = 0; c < w->dim_v && w->weights[t] > 0.0f; c++) {
			row[c] /= 1.0f + w->weights[t];
		}
		if (!ckv_all_finite(row, w->dim_v)) {
			return ckv_fail(error, CKV_ERR_NUMERIC, "KV head %d, token %d: values too large to be added up", w->head,
			                w->kept[t]);
		}
	}
	return CKV_OK;
}

ckv_status ckv_merge_values_in(const ckv_kernels *kernels, const ckv_view *k, const ckv_view *v, int32_t head,
                               const int32_t *kept, int32_t n_kept, const ckv_merge *options, void *space, float *out,
                               ckv_error *error) {
	work w = {.kernels = kernels,
	          .k = k,
	          .v = v,
	          .kept = kept,
	          .head = head,
	          .n_kept = n_kept,
	          .n_evicted = k->n_tokens - n_kept,
	          .dim_k = (size_t)k->head_dim,
	          .dim_v = (size_t)v->head_dim};
	lay_out(&w, space, (size_t)k->n_tokens, (size_t)n_kept);
	bool merging = options && n_kept > 0 && w.n_evicted > 0;
	ckv_status status = load_kept(&w, merging, out, error);
	if (status || !merging) {
		return status;
	}
	list_evicted(&w);
	status = pair(&w, error);
	status = status ? status : add_up(&w, least_cosine(&w, options), out, error);
	return status ? status : divide(&w, out, error);
}

ckv_status ckv_merge_values(const ckv_kernels *kernels, const ckv_allocator *allocator, const ckv_view *k, const ckv_view *v,
                            int32_t head, const int32_t *kept, int32_t n_kept, const ckv_merge *options, float *out,
                            ckv_error *error) {
	size_t size = ckv_merge_space(k, v, n_kept);
	void *space = size > (size_t)PTRDIFF_MAX ? NULL : allocator->alloc(allocator->user, size);
	if (!space) {
		return ckv_fail(error, CKV_ERR_NOMEM, "no memory for %zu bytes of working space", size);
	}
	ckv_status status = ckv_merge_values_in(kernels, k, v, head, kept, n_kept, options, space, out, error);
	allocator->free(allocator->user, space);
	return status;
}
