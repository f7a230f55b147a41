/* Cache merging: inner functions of the library, which no policy has. */
#include "core/internal.h"
#include "kvpress_merge.h"
#include "quant/quant.h"

#include <stdlib.h>
#include <string.h>

/* What case.json tells of the output. */
typedef struct golden {
	kept kept;
	npy attention, draws; /* given: [heads][T], [heads][n_new] */
	npy merged;           /* [n_new] positions */
	npy probability;      /* [heads][n_new] */
	npy values;           /* [heads][n_kept][dim] */
} golden;

static void golden_close(golden *g) {
	kept_free(&g->kept);
	npy_free(&g->attention);
	npy_free(&g->draws);
	npy_free(&g->merged);
	npy_free(&g->probability);
	npy_free(&g->values);
}

static bool read_array(const casefile *file, const json_t *output, const char *key, npy_type type, size_t count, npy *array,
                       note *why) {
	const char *array_file;
	return field_text(output, key, &array_file, why) && casefile_array(file, array_file, array, why) &&
	       ((array->type == type && array->count == count) ||
	        note_set(why, "%.200s is not %s with %zu elements", array_file, npy_type_name(type), count));
}

static bool golden_open(golden *g, const press *p, const casefile *file, const inputs *in, const json_t *output, note *why) {
	size_t heads = (size_t)in->n_heads, tokens = (size_t)in->n_tokens, n_new = (size_t)p->n_new;
	memset(g, 0, sizeof *g);
	if (p->lists != SHARED || p->target < 1 || tokens < (size_t)p->target + n_new) {
		return note_set(why, "%d kept and %d merged of %zu tokens, or lists that are not shared", p->target, p->n_new,
		                tokens);
	}
	bool ok = press_kept(p, file, in, output, &g->kept, why) &&
	          (g->kept.offsets[1] == p->target || note_set(why, "%d are kept of %d", g->kept.offsets[1], p->target)) &&
	          read_array(file, output, "cum_attn", NPY_F4, heads * tokens, &g->attention, why) &&
	          read_array(file, output, "uniform", NPY_F4, heads * n_new, &g->draws, why) &&
	          read_array(file, output, "merge_idx", NPY_I4, n_new, &g->merged, why) &&
	          read_array(file, output, "merge_prob", NPY_F4, heads * n_new, &g->probability, why) &&
	          merged_stored(file, in, output, "values_out", (size_t)p->target, &g->values, why);
	if (!ok) {
		golden_close(g);
	}
	return ok;
}

/* The library's scores, mean over the heads. */
static bool mean_scores(const inputs *in, replay *r, float *mean, note *why) {
	size_t heads = (size_t)in->n_heads, tokens = (size_t)in->n_tokens;
	float *scores = malloc(heads * tokens * sizeof *scores);
	bool ok = (scores || note_set(why, "no memory for scores")) &&
	          replay_score(r, &in->layer, 0.5, scores, heads * tokens, why); /* no scorer that is used goes by the ratio */
	for (size_t t = 0; t < tokens && ok; t++) {
		double sum = 0.0;
		for (size_t h = 0; h < heads; h++) {
			sum += (double)scores[h * tokens + t];
		}
		mean[t] = (float)(sum / (double)heads);
	}
	free(scores);
	return ok;
}

static bool same_positions(const char *what, const int32_t *expected, const int32_t *found, int32_t n, note *why) {
	for (int32_t i = 0; i < n; i++) {
		if (expected[i] != found[i]) {
			return note_set(why, "%s positions differ: entry %d: %d expected, %d found", what, i, expected[i], found[i]);
		}
	}
	return true;
}

/* Lets the library choose. Where a tie may have decided, the stored choice replaces its own. */
static bool choose(const golden *g, const inputs *in, const float *scores, bool tied, replay *r, int run, ckv_cam *cam,
                   note *why) {
	ckv_status status = ckv_cam_choose(r->ctx[run], scores, in->n_tokens, cam);
	if (status != CKV_OK) {
		return replay_refused(r, run, "ckv_cam_choose", status, why);
	}
	if (tied) {
		memcpy(cam->kept, g->kept.positions, (size_t)cam->n_kept * sizeof *cam->kept);
		memcpy(cam->merged, g->merged.data, (size_t)cam->n_merged * sizeof *cam->merged);
	}
	return same_positions("kept", g->kept.positions, cam->kept, cam->n_kept, why) &&
	       same_positions("merged", g->merged.data, cam->merged, cam->n_merged, why);
}

static bool same_probabilities(const golden *g, const float *found, note *why) {
	static const tolerance allowed = {1e-6, 1e-7};
	const float *expected = g->probability.data;
	for (size_t i = 0; i < g->probability.count; i++) {
		if (!tolerance_holds(allowed, (double)expected[i], (double)found[i])) {
			return note_set(why, "probabilities differ: number %zu: %.9g expected, %.9g found", i, (double)expected[i],
			                (double)found[i]);
		}
	}
	return true;
}

/* What one run finds. */
typedef struct finding {
	float *scores, *probability, *row, *values;
	int32_t *kept, *merged;
} finding;

static bool merge(const golden *g, const inputs *in, const ckv_cam *cam, replay *r, int run, const finding *f, note *why) {
	const ckv_kernels *kernels = r->ctx[run]->kernels;
	size_t dim = (size_t)in->layer.v.head_dim;
	memset(f->values, 0xff, g->values.count * sizeof *f->values); /* NaN: what is not written shows */
	for (int32_t h = 0; h < in->n_heads; h++) {
		size_t new = (size_t)h *(size_t)cam->n_merged;
		ckv_error error = {.message = ""};
		ckv_status status =
		    ckv_cam_merge(kernels, &in->layer.v, h, cam, (const float *)g->attention.data + (size_t)h * (size_t)in->n_tokens,
		                  (const float *)g->draws.data + new, f->probability + new, f->row,
		                  f->values + (size_t)h * (size_t)cam->n_kept * dim, &error);
		if (status != CKV_OK) {
			return note_set(why, "ckv_cam_merge: %s", error.message);
		}
	}
	return true;
}

static bool run_all(const golden *g, const press *p, const inputs *in, bool tied, replay *r, const finding *f, note *why) {
	ckv_cam cam = {p->target, p->n_new, p->merge_budget, f->kept, f->merged};
	bool ok = mean_scores(in, r, f->scores, why);
	for (int run = 0; run < N_RUNS && ok; run++) { /* on a tie a draw may decide otherwise, for one window */
		ok = choose(g, in, f->scores, tied, r, run, &cam, why) && merge(g, in, &cam, r, run, f, why) &&
		     same_probabilities(g, f->probability, why) &&
		     merged_same(&g->values, f->values, tied ? (size_t)p->merge_budget : 0, why);
	}
	return ok;
}

bool cam_agrees(const press *p, const casefile *file, const inputs *in, const json_t *output, bool tied, replay *r,
                note *why) {
	golden g;
	if (!golden_open(&g, p, file, in, output, why)) {
		return false;
	}
	finding f = {.scores = malloc((size_t)in->n_tokens * sizeof(float)),
	             .probability = malloc(g.probability.count * sizeof(float)),
	             .row = malloc((size_t)in->layer.v.head_dim * sizeof(float)),
	             .values = malloc(g.values.count * sizeof(float)),
	             .kept = malloc((size_t)p->target * sizeof(int32_t)),
	             .merged = malloc((size_t)p->n_new * sizeof(int32_t))};
	bool ok = (f.scores && f.probability && f.row && f.values && f.kept && f.merged) || note_set(why, "no memory");
	ok = ok && run_all(&g, p, in, tied, r, &f, why);
	free(f.scores);
	free(f.probability);
	free(f.row);
	free(f.values);
	free(f.kept);
	free(f.merged);
	golden_close(&g);
	return ok;
}
