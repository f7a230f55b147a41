/* A layer's case: for each press its scores, and what it kept at each ratio. */
#include "inputs.h"
#include "kvpress.h"
#include "policies.h"
#include "replay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Scores that were computed in another order of float32 operations. */
static const tolerance rounding = {2e-5, 5e-7};
/* Scores that were handed over, not computed. */
static const tolerance none = {0.0, 0.0};

typedef struct job {
	const casefile *file;
	tally *counts;
	json_t *presses;
	inputs in;
} job;

typedef struct press {
	const char *name, *kind;
	json_t *entry, *outputs;
	const char *scored_by; /* the press whose scores it selects from: its own name for scorers */
	const char *scorer;    /* the library's; NULL: none yet, its selector runs over the stored scores */
	const char *selector;  /* the library's; NULL: none yet */
	bool per_head;         /* one list of positions for each head */
	ckv_params policy;     /* once there is a selector */
	char label[TALLY_LABEL];
} press;

/* ------------------------------------------------------------------------------------------ stored arrays */

/* The stored scores [heads][tokens] of a press; some depend on the ratio and lie with its outputs. */
static bool find_scores(const job *j, const char *name, double ratio, const char **array_file, note *why) {
	json_t *entry, *outputs;
	if (!field_object(j->presses, name, &entry, why)) {
		return false;
	}
	if (json_object_get(entry, "scores")) {
		return field_text(entry, "scores", array_file, why);
	}
	if (!field_array(entry, "outputs", &outputs, why)) {
		return false;
	}
	for (size_t i = 0; i < json_array_size(outputs); i++) {
		double its_ratio;
		const json_t *output = json_array_get(outputs, i);
		if (!field_number(output, "ratio", &its_ratio, why)) {
			return false;
		}
		if (its_ratio <= ratio && its_ratio >= ratio) {
			return field_text(output, "scores", array_file, why);
		}
	}
	return note_set(why, "no scores of press '%.100s' are stored", name);
}

static bool load_scores(const job *j, const char *name, double ratio, npy *scores, note *why) {
	const char *array_file;
	if (!find_scores(j, name, ratio, &array_file, why) || !casefile_array(j->file, array_file, scores, why)) {
		return false;
	}
	if (scores->type != NPY_F4 || scores->rank != 2 || scores->shape[0] != (size_t)j->in.n_heads ||
	    scores->shape[1] != (size_t)j->in.n_tokens) {
		npy_free(scores);
		return note_set(why, "%.200s is not float32 [%d][%d]", array_file, j->in.n_heads, j->in.n_tokens);
	}
	return true;
}

/* What the press kept, checked by itself. */
static bool load_kept(const job *j, const press *p, const json_t *output, kept *expected, note *why) {
	const char *array_file;
	int32_t n;
	npy array;
	note found = {""};
	if (!field_text(output, "file", &array_file, why) || !field_int(output, "n_kept", 1, &n, why) ||
	    !casefile_array(j->file, array_file, &array, why)) {
		return false;
	}
	bool ok = kept_from_array(expected, &array, p->per_head ? j->in.n_heads : 0, n, &found);
	npy_free(&array);
	if (ok && !kept_valid(expected, j->in.n_tokens, &found)) {
		kept_free(expected);
		ok = false;
	}
	return ok || note_set(why, "%.200s: %.200s", array_file, found.text);
}

/* ------------------------------------------------------------------------------------------- one decision */

/* Whether a tie decided, so that positions may differ. */
static bool read_status(const json_t *output, bool *tied, note *why) {
	static const char *const ties[] = {"exact_tie", "near_tie", "tie"};
	const char *status;
	if (!field_text(output, "status", &status, why)) {
		return false;
	}
	*tied = false;
	for (size_t i = 0; i < sizeof ties / sizeof *ties; i++) {
		*tied = *tied || strcmp(status, ties[i]) == 0;
	}
	return *tied || strcmp(status, "ok") == 0 || note_set(why, "the status '%.40s' is not known", status);
}

static bool agree(const press *p, bool tied, const kept *expected, const kept *found, const score_table *by, note *why) {
	if (!tied) {
		return kept_equal(expected, found, why);
	}
	if (p->per_head) {
		return kept_same_scores(expected, found, by, p->scorer ? rounding : none, why);
	}
	return kept_same_chunks(expected, found, by, p->policy.chunk, rounding, why);
}

/* Lets the library decide, and compares. `stored` are the scores the press selected from. */
static bool decide(const job *j, const press *p, replay *r, const json_t *output, double ratio, const npy *stored,
                   note *why) {
	bool tied;
	kept expected, found;
	ckv_reason reason;
	if (!read_status(output, &tied, why) || !load_kept(j, p, output, &expected, why)) {
		return false;
	}
	const score_table by = {stored->data, j->in.n_heads, j->in.n_tokens};
	subject from = {&j->in.layer, by};
	if (p->scorer) {
		from.by.scores = NULL;
	}
	bool ok = replay_select(r, &from, ratio, &found, &reason, why);
	if (ok) {
		ok = reason == CKV_SELECTED || note_set(why, "nothing was selected: %s", ckv_reason_text(reason));
		ok = ok && agree(p, tied, &expected, &found, &by, why);
		kept_free(&found);
	}
	kept_free(&expected);
	return ok;
}

static void replay_output(const job *j, const press *p, replay *r, const json_t *output) {
	note why = {""};
	npy stored;
	double ratio = -1.0;
	bool ok = field_number(output, "ratio", &ratio, &why) && load_scores(j, p->scored_by, ratio, &stored, &why);
	if (ok) {
		ok = decide(j, p, r, output, ratio, &stored, &why);
		npy_free(&stored);
	}
	if (ok) {
		tally_add(j->counts, p->label, PASSED, 1);
	} else {
		tally_fail(j->counts, p->label, (place){j->file->folder, p->name, ratio}, why.text);
	}
}

/* -------------------------------------------------------------------------------------------------- scores */

static bool compare_scores(const npy *expected, const float *found, note *why) {
	const float *a = expected->data;
	for (size_t i = 0; i < expected->count; i++) {
		if (!tolerance_holds(rounding, (double)a[i], (double)found[i])) {
			size_t tokens = expected->shape[1];
			return note_set(why, "scores differ: head %zu, token %zu: %.9g expected, %.9g found", i / tokens, i % tokens,
			                (double)a[i], (double)found[i]);
		}
	}
	return true;
}

static bool check_scores(const job *j, const press *p, replay *r, note *why) {
	npy expected;
	if (!load_scores(j, p->name, -1.0, &expected, why)) {
		return false;
	}
	float *found = malloc(expected.count * sizeof *found);
	bool ok = found || note_set(why, "no memory for the scores");
	ok = ok && replay_score(r, &j->in.layer, found, expected.count, why) && compare_scores(&expected, found, why);
	free(found);
	npy_free(&expected);
	return ok;
}

/* Scores count as one output of the press, or one for each ratio when they depend on it. */
static void replay_scores(const job *j, const press *p, replay *r) {
	char label[TALLY_LABEL];
	note why = {""};
	if (!p->scorer) {
		size_t n = json_object_get(p->entry, "scores") ? 1 : json_array_size(p->outputs);
		snprintf(label, sizeof label, "scores of %s: no such scorer yet", p->name);
		tally_add(j->counts, label, SKIPPED, n);
		return;
	}
	snprintf(label, sizeof label, "scores of %s", p->name);
	if (check_scores(j, p, r, &why)) {
		tally_add(j->counts, label, PASSED, 1);
	} else {
		tally_fail(j->counts, label, (place){j->file->folder, p->name, -1.0}, why.text);
	}
}

/* --------------------------------------------------------------------------------------------------- press */

static bool read_press(press *p, const char *name, json_t *entry, note *why) {
	const char *indices;
	json_t *params;
	*p = (press){.name = name, .entry = entry, .scored_by = name};
	snprintf(p->label, sizeof p->label, "press %s", name);
	if (!field_text(entry, "kind", &p->kind, why) || !field_text(entry, "indices", &indices, why) ||
	    !field_object(entry, "params", &params, why) || !field_array(entry, "outputs", &p->outputs, why)) {
		return false;
	}
	p->per_head = strcmp(indices, "per_head") == 0;
	p->selector = policy_selector(p->kind);
	if (!p->selector) {
		snprintf(p->label, sizeof p->label, "presses of kind %s: no such selector yet", p->kind);
		return true;
	}
	if (strcmp(p->kind, "scorer") != 0 && !field_text(params, "scorer", &p->scored_by, why)) {
		return false;
	}
	if (!p->per_head && strcmp(indices, "shared") != 0) {
		return note_set(why, "indices '%.40s' are not known", indices);
	}
	p->scorer = policy_scorer(p->scored_by);
	snprintf(p->label, sizeof p->label, p->scorer ? "%s of %s" : "%s of the stored scores of %s", p->selector, p->scored_by);
	return policy_params(p->scorer, p->selector, params, &p->policy, why);
}

static void replay_press(const job *j, const char *name, json_t *entry) {
	press p;
	replay r;
	note why = {""};
	bool ok = read_press(&p, name, entry, &why);
	if (ok && !p.selector) {
		tally_add(j->counts, p.label, SKIPPED, json_array_size(p.outputs));
		return;
	}
	if (!ok || !replay_open(&r, &p.policy, &why)) {
		tally_fail(j->counts, p.label, (place){j->file->folder, name, -1.0}, why.text);
		return;
	}
	if (strcmp(p.kind, "scorer") == 0) {
		replay_scores(j, &p, &r);
	}
	for (size_t i = 0; i < json_array_size(p.outputs); i++) {
		replay_output(j, &p, &r, json_array_get(p.outputs, i));
	}
	replay_close(&r);
}

void kvpress_replay_layer(const casefile *file, tally *counts) {
	job j = {.file = file, .counts = counts};
	note why = {""};
	if (!field_object(file->root, "presses", &j.presses, &why) || !inputs_open(&j.in, file, &why)) {
		tally_fail(counts, "inputs of a layer", (place){file->folder, NULL, -1.0}, why.text);
		return;
	}
	const char *name;
	json_t *entry;
	json_object_foreach(j.presses, name, entry) { replay_press(&j, name, entry); }
	inputs_close(&j.in);
}
