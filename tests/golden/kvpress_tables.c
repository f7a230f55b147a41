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
		npy_free(&t->counts);
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
	subject from = {NULL, {scores, 1, n}};
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
	note ignored = {""};
	policy_params(NULL, "chunk", NULL, &params, &ignored);
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

static void replay_table(const casefile *file, tally *counts, const json_t *entry) {
	const char *kind;
	note why = {""};
	char label[TALLY_LABEL] = "tables";
	table t = {.ratio = -1.0};
	bool ok = field_text(entry, "kind", &kind, &why);
	if (ok) {
		bool chunks = strcmp(kind, "n_chunks_kept") == 0;
		snprintf(label, sizeof label, "table %s", kind);
		if (!chunks && strcmp(kind, "n_kept") != 0) {
			snprintf(label, sizeof label, "table %s: no such policy yet", kind);
			tally_add(counts, label, SKIPPED, 1);
			return;
		}
		ok = table_open(&t, file, entry, &why) && (chunks ? check_chunks(&t, &why) : check_tokens(&t, &why));
		npy_free(&t.counts);
	}
	if (ok) {
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
