/* Tables of how many tokens, or chunks, the published code keeps of how many, ratio by ratio. */
#include "kvpress.h"
#include "policies.h"
#include "replay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct table {
	double ratio;
	int32_t first, last; /* counts[i] belongs to first + i */
	json_t *lengths;     /* of a pyramid: counts[i][layer] belongs to lengths[i] */
	int32_t n_layers;
	npy counts;
} table;

static bool table_open(table *t, const casefile *file, const json_t *entry, note *why) {
	const char *array_file;
	memset(t, 0, sizeof *t);
	if (!field_number(entry, "ratio", &t->ratio, why) || !field_int(entry, "first", 1, &t->first, why) ||
	    !field_int(entry, "last", t->first, &t->last, why) || !field_text(entry, "file", &array_file, why) ||
	    !casefile_array(file, array_file, &t->counts, why)) {
		return false;
	}
	if (t->counts.type != NPY_I4 || t->counts.rank != 1 || t->counts.count != (size_t)(t->last - t->first) + 1) {
		return note_set(why, "%.200s is not int32 [%d]", array_file, t->last - t->first + 1);
	}
	return true;
}

static bool count_agrees(const table *t, int32_t n, int32_t found, note *why) {
	int32_t expected = ((const int32_t *)t->counts.data)[n - t->first];
	return expected == found || note_set(why, "of %d, %d are expected to be kept, %d found", n, expected, found);
}

static bool check_tokens(const table *t, note *why) {
	for (int32_t n = t->first; n <= t->last; n++) {
		int32_t found = -1;
		ckv_status status = ckv_budget_resolve(ckv_remove_fraction(t->ratio), n, &found);
		if (status != CKV_OK) {
			return note_set(why, "ckv_budget_resolve of %d: %s", n, ckv_strerror(status));
		}
		if (!count_agrees(t, n, found, why)) {
			return false;
		}
	}
	return true;
}

/* n chunks of one token each, in one head: the number of positions is the number of chunks. */
static bool check_chunks_of(const table *t, replay *r, const float *scores, int32_t n, note *why) {
	kept found;
	subject from = {.by = {scores, 1, n}};
	if (!replay_select(r, &from, t->ratio, &found, NULL, why)) {
		return false;
	}
	bool ok = count_agrees(t, n, found.offsets[1], why);
	kept_free(&found);
	return ok;
}

static bool check_chunks(const table *t, note *why) {
	ckv_params params;
	replay r;
	policy_reference("knorm", "chunk", &params);
	params.chunk = 1;
	float *scores = malloc(((size_t)t->last + 1) * sizeof *scores);
	if (!scores || !replay_open(&r, &params, why)) {
		free(scores);
		return false;
	}
	for (int32_t i = 0; i <= t->last; i++) {
		scores[i] = (float)i;
	}
	bool ok = true;
	for (int32_t n = t->first; n <= t->last && ok; n++) {
		ok = check_chunks_of(t, &r, scores, n, why);
	}
	replay_close(&r);
	free(scores);
	return ok;
}

/* A row of budgets for each of some lengths. */
static bool pyramid_open(table *t, const casefile *file, const json_t *entry, note *why) {
	const char *array_file;
	memset(t, 0, sizeof *t);
	if (!field_number(entry, "ratio", &t->ratio, why) || !field_array(entry, "lengths", &t->lengths, why) ||
	    !field_int(entry, "n_layers", 1, &t->n_layers, why) || !field_text(entry, "file", &array_file, why) ||
	    !casefile_array(file, array_file, &t->counts, why)) {
		return false;
	}
	const npy *counts = &t->counts;
	if (counts->type != NPY_I4 || counts->rank != 2 || counts->shape[0] != json_array_size(t->lengths) ||
	    counts->shape[1] != (size_t)t->n_layers) {
		return note_set(why, "%.200s is not int32 [%zu][%d]", array_file, json_array_size(t->lengths), t->n_layers);
	}
	return true;
}

static bool check_row(const table *t, replay *r, int run, int32_t n, const int32_t *expected, ckv_budget *budgets,
                      note *why) {
	ckv_status status = ckv_plan(r->ctx[run], ckv_remove_fraction(t->ratio), n, t->n_layers, NULL, budgets, NULL);
	if (status != CKV_OK) {
		return replay_refused(r, run, "ckv_plan", status, why);
	}
	for (int32_t i = 0; i < t->n_layers; i++) {
		int32_t found = -1;
		status = ckv_budget_resolve(budgets[i], n, &found);
		if (status != CKV_OK || found != expected[i]) {
			return note_set(why, "of %d, %d are expected to be kept in layer %d, %d found", n, expected[i], i, found);
		}
	}
	return true;
}

static bool check_pyramid(const table *t, const json_t *entry, note *why) {
	ckv_params params;
	replay r;
	policy_reference("snapkv", "topk", &params);
	params.layers = "pyramid";
	if (!field_int(entry, "window_size", 1, &params.window, why) || !field_number(entry, "beta", &params.beta, why) ||
	    !replay_open(&r, &params, why)) {
		return false;
	}
	ckv_budget *budgets = malloc((size_t)t->n_layers * sizeof *budgets);
	bool ok = budgets || note_set(why, "no memory for %d budgets", t->n_layers);
	for (size_t i = 0; i < N_RUNS * t->counts.shape[0] && ok; i++) {
		size_t row = i / N_RUNS;
		json_int_t n = json_integer_value(json_array_get(t->lengths, row));
		const int32_t *expected = (const int32_t *)t->counts.data + row * (size_t)t->n_layers;
		ok = n > 0 && n <= CKV_MAX_TOKENS ? check_row(t, &r, (int)(i % N_RUNS), (int32_t)n, expected, budgets, why)
		                                  : note_set(why, "length number %zu is out of range", row);
	}
	free(budgets);
	replay_close(&r);
	return ok;
}

/* Whether the table agrees. An unknown kind is not *known. */
static bool check_table(const casefile *file, const json_t *entry, const char *kind, table *t, bool *known, note *why) {
	*known = true;
	if (strcmp(kind, "n_kept") == 0) {
		return table_open(t, file, entry, why) && check_tokens(t, why);
	}
	if (strcmp(kind, "n_chunks_kept") == 0) {
		return table_open(t, file, entry, why) && check_chunks(t, why);
	}
	if (strcmp(kind, "pyramid") == 0) {
		return pyramid_open(t, file, entry, why) && check_pyramid(t, entry, why);
	}
	*known = false;
	return false;
}

static void replay_table(const casefile *file, tally *counts, const json_t *entry) {
	const char *kind;
	note why = {""};
	char label[TALLY_LABEL] = "tables";
	table t = {.ratio = -1.0};
	bool known = true, ok = field_text(entry, "kind", &kind, &why);
	if (ok) {
		ok = check_table(file, entry, kind, &t, &known, &why);
		snprintf(label, sizeof label, known ? "table %.50s" : "table %.50s: no such policy yet", kind);
		npy_free(&t.counts);
	}
	if (!known) {
		tally_add(counts, label, SKIPPED, 1);
	} else if (ok) {
		tally_add(counts, label, PASSED, 1);
	} else {
		tally_fail(counts, label, (place){file->folder, NULL, t.ratio}, why.text);
	}
}

void kvpress_replay_tables(const casefile *file, tally *counts) {
	json_t *tables;
	note why = {""};
	if (!field_array(file->root, "tables", &tables, &why)) {
		tally_fail(counts, "tables", (place){file->folder, NULL, -1.0}, why.text);
		return;
	}
	for (size_t i = 0; i < json_array_size(tables); i++) {
		replay_table(file, counts, json_array_get(tables, i));
	}
}
