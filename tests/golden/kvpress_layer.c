/* A layer's case: for each press its scores, and what it kept at each ratio. */
#include "inputs.h"
#include "kvpress.h"
#include "kvpress_merge.h"
#include "observed.h"
#include "press.h"
#include "replay.h"
#include "rotated.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct job {
	const casefile *file;
	tally *counts;
	inputs in;
} job;

/* A press in hand. */
typedef struct task {
	const job *job;
	const press *press;
	replay *runs;
	const observed *seen;
} task;

static void count(const task *t, const char *label, double ratio, bool ok, const note *why) {
	if (ok) {
		tally_add(t->job->counts, label, PASSED, 1);
	} else {
		tally_fail(t->job->counts, label, (place){t->job->file->folder, t->press->name, ratio}, why->text);
	}
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

/* By the scores that the press selected from. */
static bool agree_by_scores(const task *t, double ratio, const kept *expected, const kept *found, note *why) {
	const press *p = t->press;
	const inputs *in = &t->job->in;
	npy stored;
	if (!press_scores(p, t->job->file, in, ratio, &stored, why)) {
		return false;
	}
	const score_table by = {stored.data, in->n_heads, in->n_tokens};
	bool ok = false;
	switch (p->ties) {
	case TIED_SCORES: ok = kept_same_scores(expected, found, &by, p->allowed, why); break;
	case TIED_TOGETHER: ok = kept_same_scores_together(expected, found, &by, p->allowed, why); break;
	case TIED_CHUNKS: ok = kept_same_chunks(expected, found, &by, p->policy.chunk, p->allowed, why); break;
	case TIED_COUNT: ok = kept_same_counts(expected, found, why); break;
	}
	npy_free(&stored);
	return ok;
}

/* Lets the library decide, and compares. */
static bool decide(const task *t, const json_t *output, double ratio, note *why) {
	const inputs *in = &t->job->in;
	bool tied;
	kept expected, found;
	ckv_reason reason;
	if (!read_status(output, &tied, why) || !press_kept(t->press, t->job->file, in, output, &expected, why)) {
		return false;
	}
	subject from = {&t->seen->layer, {NULL, in->n_heads, in->n_tokens}, t->press->block, t->press->target};
	bool ok = replay_select(t->runs, &from, ratio, &found, &reason, why);
	if (ok) {
		ok = reason == CKV_SELECTED || note_set(why, "nothing was selected: %s", ckv_reason_text(reason));
		ok = ok && (tied ? agree_by_scores(t, ratio, &expected, &found, why) : kept_equal(&expected, &found, why));
		kept_free(&found);
	}
	kept_free(&expected);
	return ok;
}

/* The kept keys where they are turned, which is an output of its own. */
static void replay_rotated(const task *t, const json_t *output, double ratio) {
	const inputs *in = &t->job->in;
	char label[TALLY_LABEL];
	note why = {""};
	snprintf(label, sizeof label, "keys of %s%s", t->press->name, in->layer.rope.n_dims ? "" : ": no queries_prerope");
	if (in->layer.rope.n_dims == 0) {
		tally_add(t->job->counts, label, SKIPPED, 1);
		return;
	}
	bool ok = rotated_agree(t->press, t->job->file, in, output, &why);
	count(t, label, ratio, ok, &why);
}

/* The kept values where others are merged in. */
static void replay_merged(const task *t, const json_t *output, double ratio) {
	char label[TALLY_LABEL];
	note why = {""};
	bool tied;
	snprintf(label, sizeof label, "values of %s", t->press->name);
	bool ok =
	    read_status(output, &tied, &why) && merged_agree(t->press, t->job->file, &t->job->in, output, tied, t->runs, &why);
	count(t, label, ratio, ok, &why);
}

/* Cache merging chooses by all heads together and from what goes too, so no selector stands for it. */
static void replay_cam(const task *t, const json_t *output) {
	note why = {""};
	bool tied;
	bool ok =
	    read_status(output, &tied, &why) && cam_agrees(t->press, t->job->file, &t->job->in, output, tied, t->runs, &why);
	count(t, t->press->label, -1.0, ok, &why);
}

static void replay_output(const task *t, const json_t *output) {
	note why = {""};
	double ratio = -1.0;
	bool ok = (t->press->target || field_number(output, "ratio", &ratio, &why)) && decide(t, output, ratio, &why);
	count(t, t->press->label, ratio, ok, &why);
	if (t->press->rerotates) {
		replay_rotated(t, output, ratio);
	}
	if (t->press->merge.size) {
		replay_merged(t, output, ratio);
	}
}

/* -------------------------------------------------------------------------------------------------- scores */

static bool compare_scores(const npy *expected, const float *found, tolerance allowed, note *why) {
	const float *a = expected->data;
	for (size_t i = 0; i < expected->count; i++) {
		if (!tolerance_holds(allowed, (double)a[i], (double)found[i])) {
			size_t tokens = expected->shape[1];
			return note_set(why, "scores differ: head %zu, token %zu: %.9g expected, %.9g found", i / tokens, i % tokens,
			                (double)a[i], (double)found[i]);
		}
	}
	return true;
}

static bool check_scores(const task *t, double ratio, note *why) {
	npy expected;
	if (!press_scores(t->press, t->job->file, &t->job->in, ratio, &expected, why)) {
		return false;
	}
	float *found = malloc(expected.count * sizeof *found);
	bool ok = found || note_set(why, "no memory for the scores");
	ok = ok && replay_score(t->runs, &t->seen->layer, ratio, found, expected.count, why) &&
	     compare_scores(&expected, found, t->press->allowed, why);
	free(found);
	npy_free(&expected);
	return ok;
}

/* Scores count as one output of the press, or one for each ratio when they depend on it. */
static void replay_scores(const task *t) {
	char label[TALLY_LABEL];
	bool vary = press_scores_vary(t->press);
	snprintf(label, sizeof label, "scores of %s", t->press->name);
	for (size_t i = 0; i < (vary ? json_array_size(t->press->outputs) : 1); i++) {
		note why = {""};
		double ratio = -1.0;
		bool ok = field_number(json_array_get(t->press->outputs, i), "ratio", &ratio, &why) && check_scores(t, ratio, &why);
		count(t, label, vary ? ratio : -1.0, ok, &why);
	}
}

/* What was gathered of the queries counts as an output too, where the case says what it should be. */
static void replay_observed(const task *t) {
	const job *j = t->job;
	note why = {""};
	if (t->seen->moments && inputs_have(j->file, "ea_mean")) {
		bool ok = observed_moments_agree(t->seen, &j->in, j->file, t->press->policy.future, &why);
		count(t, "moments of queries", -1.0, ok, &why);
	}
	if (t->seen->mass && inputs_have(j->file, "attentions")) {
		bool ok = observed_mass_agrees(t->seen, &j->in, j->file, t->press->allowed, &why);
		count(t, "sums of attention", -1.0, ok, &why);
	}
}

/* --------------------------------------------------------------------------------------------------- press */

static void replay_covered(const job *j, const press *p, replay *r) {
	observed seen;
	note why = {""};
	task t = {j, p, r, &seen};
	if (!observed_open(&seen, &j->in, &p->policy, r, &why)) {
		count(&t, p->label, -1.0, false, &why);
		return;
	}
	if (p->scores_itself) {
		replay_observed(&t);
		replay_scores(&t);
	}
	for (size_t i = 0; i < json_array_size(p->outputs); i++) {
		(p->merge_budget ? replay_cam : replay_output)(&t, json_array_get(p->outputs, i));
	}
	observed_close(&seen);
}

static void replay_press(const job *j, const char *name, json_t *entry) {
	press p;
	replay r;
	note why = {""};
	bool ok = press_read(&p, name, entry, &why);
	if (ok && (!p.covered || observed_lacking(&j->in, &p.policy))) {
		char label[TALLY_LABEL];
		snprintf(label, sizeof label, "%.50s%s", p.label, p.covered ? ": no queries_prerope" : "");
		tally_add(j->counts, label, SKIPPED, json_array_size(p.outputs));
		return;
	}
	if (!ok || !replay_open(&r, &p.policy, &why)) {
		tally_fail(j->counts, p.label, (place){j->file->folder, name, -1.0}, why.text);
		return;
	}
	replay_covered(j, &p, &r);
	replay_close(&r);
}

void kvpress_replay_layer(const casefile *file, tally *counts) {
	job j = {.file = file, .counts = counts};
	note why = {""};
	json_t *presses, *entry;
	const char *name;
	if (!field_object(file->root, "presses", &presses, &why) || !inputs_open(&j.in, file, &why)) {
		tally_fail(counts, "inputs of a layer", (place){file->folder, NULL, -1.0}, why.text);
		return;
	}
	json_object_foreach(presses, name, entry) { replay_press(&j, name, entry); }
	inputs_close(&j.in);
}
