/* Kind "quant", method palu: rows in fewer channels, and these in few bits. */
#include "veloxquant_palu.h"
#include "veloxquant.h"
#include "veloxquant_job.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sums of floats in another order. */
static bool floats_agree(double expected, double found, double scale) { return fabs(expected - found) <= 1e-6 * scale; }

bool vq_halves_agree(double expected, double found) { return fabs(expected - found) <= 0x1p-10 * fabs(expected) + 1e-5; }

double vq_half_at(const npy *array, size_t i) {
	float x;
	ckv_kernels_c()->f16_to_f32((const uint16_t *)array->data + i, &x, 1);
	return (double)x;
}

/* ----------------------------------------------------------------------------------------------------------- bases */

static bool mean_agrees(vq_palu *p, const npy *array, note *why) {
	const float *expected = array->data;
	size_t dim = (size_t)p->fit.dim;
	for (size_t i = 0; i < array->count; i++) {
		double want = (double)expected[i], have = (double)p->fit.mean[i];
		if (!floats_agree(want, have, fmax(1.0, fabs(want)))) {
			return note_set(why, "group %zu, channel %zu: %.9g expected, %.9g found", i / dim, i % dim, want, have);
		}
	}
	return true;
}

static bool singular_agrees(vq_palu *p, const npy *array, note *why) {
	const float *expected = array->data;
	size_t rank = (size_t)p->fit.rank;
	for (size_t i = 0; i < array->count; i++) {
		double want = (double)expected[i], have = (double)p->fit.singular[i];
		if (!floats_agree(want, have, (double)expected[i / rank * rank])) {
			return note_set(why, "group %zu, value %zu: %.9g expected, %.9g found", i / rank, i % rank, want, have);
		}
	}
	return true;
}

/* Whether a vector and the next one are of one space, in which any basis is as good: their eigenvalues, the squares, differ
 * by hardly more than rounding does (1e-16 of the largest). */
static bool joined(const float *singular, size_t k) {
	double a = (double)singular[k], b = (double)singular[k + 1], most = (double)singular[0];
	return a * a - b * b <= 1e-8 * most * most;
}

bool vq_palu_spanned(const ckv_low_rank *fit) {
	for (size_t g = 0; g < (size_t)fit->n_groups; g++) {
		const float *singular = fit->singular + g * (size_t)fit->rank;
		if ((double)singular[fit->rank - 1] <= 1e-6 * (double)singular[0]) {
			return false;
		}
	}
	return true;
}

/* Column k of `theirs` as a sum of ours from a to below b; how far it is from being one. */
static double express(const vq_palu *p, size_t group, size_t a, size_t b, size_t k, const float *theirs, double *sum) {
	size_t dim = (size_t)p->fit.dim, rank = (size_t)p->fit.rank;
	const float *mine = p->fit.basis + group * dim * rank, *want = theirs + group * dim * rank;
	double most = 0.0;
	memset(sum, 0, dim * sizeof *sum);
	for (size_t j = a; j < b; j++) {
		double product = 0.0;
		for (size_t c = 0; c < dim; c++) {
			product += (double)mine[c * rank + j] * (double)want[c * rank + k];
		}
		for (size_t c = 0; c < dim; c++) {
			sum[c] += product * (double)mine[c * rank + j];
		}
	}
	for (size_t c = 0; c < dim; c++) {
		most = fmax(most, fabs(sum[c] - (double)want[c * rank + k]));
	}
	return most;
}

/* Each vector of theirs must lie in the space of ours of that singular value. Our basis becomes what makes up theirs: the
 * same vector with their sign, or a turn of equal ones, so that latents can be compared. */
static bool group_basis_agrees(vq_palu *p, size_t group, const float *theirs, float *turned, double *sum, note *why) {
	size_t dim = (size_t)p->fit.dim, rank = (size_t)p->fit.rank, end = 0;
	const float *singular = p->fit.singular + group * rank;
	for (size_t k = 0, first = 0; k < rank; k++) {
		if (k == end) {
			first = k;
			for (end = k + 1; end < rank && joined(singular, end - 1); end++) {
			}
		}
		double off = express(p, group, first, end, k, theirs, sum);
		if (!(off <= 1e-5)) {
			return note_set(why, "group %zu: vector %zu is %.3g off", group, k, off);
		}
		for (size_t c = 0; c < dim; c++) {
			turned[(group * dim + c) * rank + k] = (float)sum[c];
		}
	}
	return true;
}

static bool basis_agrees(vq_palu *p, const npy *array, note *why) {
	float *turned = malloc(array->count * sizeof *turned + 1);
	double *sum = malloc((size_t)p->fit.dim * sizeof *sum + 1);
	bool ok = turned && sum;
	if (!ok) {
		note_set(why, "no memory for a basis");
	}
	for (size_t g = 0; ok && g < (size_t)p->fit.n_groups; g++) {
		ok = group_basis_agrees(p, g, array->data, turned, sum, why);
	}
	if (ok) {
		memcpy(p->fit.basis, turned, array->count * sizeof *turned);
	}
	free(turned);
	free(sum);
	return ok;
}

/* --------------------------------------------------------------------------------------------------------- latents */

/* The same number; or, where it lies between two levels, one that is as near. */
static bool latents_agree(vq_palu *p, const npy *array, note *why) {
	size_t rank = (size_t)p->fit.rank, tokens = (size_t)p->c->feed.tokens, edges = 0;
	if (!vq_palu_code(p, why)) {
		return false;
	}
	for (size_t i = 0; i < array->count; i++) {
		double want = vq_half_at(array, i), have = (double)p->latents[i], plain = (double)p->plain[i];
		bool near = fabs(fabs(want - plain) - fabs(have - plain)) <= 0x1p-10 * fabs(want) + 1e-5;
		if (!near) {
			return note_set(why, "head %zu, row %zu, channel %zu: %.6g expected, %.6g found, for %.9g", i / rank / tokens,
			                i / rank % tokens, i % rank, want, have, plain);
		}
		edges += !vq_halves_agree(want, have);
	}
	return edges <= 2 + array->count / 1000 || note_set(why, "%zu of %zu codes are others", edges, array->count);
}

/* ------------------------------------------------------------------------------------------------------------ rows */

/* Rows from latents that were found to be ours: a code at an edge, or a rounding, has been counted there. */
static bool expanded_agree(const vq_palu *p, const npy *array, const npy *latents, note *why) {
	size_t dim = (size_t)p->fit.dim, rank = (size_t)p->fit.rank, tokens = (size_t)p->c->feed.tokens;
	float *latent = malloc(rank * sizeof *latent), *row = malloc(dim * sizeof *row);
	bool ok = latent && row;
	if (!ok) {
		note_set(why, "no memory for a row");
	}
	for (size_t i = 0; ok && i < array->count; i++) {
		size_t c = i % dim, at = i / dim;
		if (c == 0) {
			ckv_kernels_c()->f16_to_f32((const uint16_t *)latents->data + at * rank, latent, rank);
			ckv_low_rank_expand(&p->fit, (int32_t)(at / tokens), latent, 1, row);
		}
		double want = vq_half_at(array, i), have = (double)row[c];
		ok = vq_halves_agree(want, have) || note_set(why, "head %zu, row %zu, channel %zu: %.6g expected, %.6g found",
		                                             at / tokens, at % tokens, c, want, have);
	}
	free(latent);
	free(row);
	return ok;
}

/* Nothing was fitted: they stay as they came. */
static bool plain_agree(const vq_palu *p, const npy *array, note *why) {
	const npy *rows = p->values ? &p->c->values : &p->c->keys;
	return memcmp(rows->data, array->data, rows->count * npy_item_size(rows->type)) == 0 ||
	       note_set(why, "rows that wait are not as they came");
}

static bool rows_agree(const vq_palu *p, const char *name, const char *latents_name, note *why) {
	const vq_case *c = p->c;
	npy array, latents = {.data = NULL};
	if (!vq_case_array(c, name, NPY_F2, 4, (int32_t[]){c->batch, c->heads, c->feed.tokens, c->dim}, &array, why)) {
		return false;
	}
	bool ok;
	if (p->held == 0) {
		ok = plain_agree(p, &array, why);
	} else {
		ok = vq_case_array(c, latents_name, NPY_F2, 3, (int32_t[]){c->feed.heads, c->feed.tokens, p->fit.rank}, &latents,
		                   why) &&
		     expanded_agree(p, &array, &latents, why);
	}
	npy_free(&latents);
	npy_free(&array);
	return ok;
}

/* ---------------------------------------------------------------------------------------------------------- arrays */

static bool array_agrees(vq_palu *p, const char *name, npy_type type, int rank, const int32_t *shape,
                         bool (*agree)(vq_palu *p, const npy *array, note *why), note *why) {
	npy array;
	if (!vq_case_array(p->c, name, type, rank, shape, &array, why)) {
		return false;
	}
	bool ok = agree(p, &array, why);
	npy_free(&array);
	return ok;
}

static void replay_arrays(const vq_job *job, vq_palu *p) {
	const ckv_low_rank *fit = &p->fit;
	const int32_t mean[] = {fit->n_groups, fit->dim}, singular[] = {fit->n_groups, fit->rank},
	              basis[] = {fit->n_groups, fit->dim, fit->rank},
	              latents[] = {p->c->feed.heads, p->c->feed.tokens, fit->rank};
	const struct {
		const char *name;
		npy_type type;
		int rank;
		const int32_t *shape;
		bool (*agree)(vq_palu *p, const npy *array, note *why);
		bool determined; /* only where every vector is */
	} arrays[] = {{"mean", NPY_F4, 2, mean, mean_agrees, false},
	              {"singular", NPY_F4, 2, singular, singular_agrees, false},
	              {"basis", NPY_F4, 3, basis, basis_agrees, true},
	              {"latents", NPY_F2, 3, latents, latents_agree, true}};
	for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
		char file[40];
		note why = {""};
		snprintf(file, sizeof file, "%s_%s.npy", p->values ? "value" : "key", arrays[i].name);
		if (arrays[i].determined && !vq_palu_spanned(fit)) {
			vq_skip(job, "vectors that no row decides");
		} else {
			bool ok = array_agrees(p, file, arrays[i].type, arrays[i].rank, arrays[i].shape, arrays[i].agree, &why);
			vq_count(job, file, ok, &why);
		}
	}
}

static void replay_side(const vq_job *job, vq_palu *p) {
	const char *name = p->values ? "out_values" : "out_keys";
	char file[40];
	note why = {""};
	if (p->held > 0) {
		replay_arrays(job, p);
		if (!vq_palu_spanned(&p->fit)) {
			vq_skip(job, "vectors that no row decides");
			return;
		}
	}
	snprintf(file, sizeof file, "%s.npy", name);
	bool ok = rows_agree(p, file, p->values ? "value_latents.npy" : "key_latents.npy", &why);
	vq_count(job, name, ok, &why);
}

static void replay_case(const vq_job *job, const vq_case *c, const vq_palu_config *config) {
	vq_palu keys, values;
	note why = {""};
	if (!vq_palu_open(&keys, c, config, false, &why)) {
		vq_count(job, "keys", false, &why);
		return;
	}
	if (vq_palu_open(&values, c, config, true, &why)) {
		replay_side(job, &keys);
		replay_side(job, &values);
		vq_palu_replay_attributes(job, &keys, &values);
		vq_palu_close(&values);
	} else {
		vq_count(job, "values", false, &why);
	}
	vq_palu_close(&keys);
}

void ckv_vectors_palu(const casefile *file, tally *counts) {
	vq_palu_config config;
	vq_case c;
	vq_job job;
	note why = {""};
	vq_job_init(&job, file, counts, "palu");
	if (!ckv_low_rank_available()) {
		vq_skip(&job, "this build has no LAPACKE");
		return;
	}
	if (!vq_palu_config_read(file->root, &config, &why) || !vq_case_open(&c, file, NULL, &why)) {
		vq_count(&job, "case", false, &why);
		return;
	}
	if (c.batch == 1) {
		replay_case(&job, &c, &config);
		vq_palu_replay_cache(&job, &c, &config);
	} else { /* they refuse it too */
		vq_count(&job, "case", false, &(note){"palu takes one sequence"});
	}
	vq_case_close(&c);
}
