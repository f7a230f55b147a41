/* Kinds "evict" and "layers": all arrays of a case, one by one. */
#include "veloxquant.h"
#include "veloxquant_arrays.h"
#include "veloxquant_attributes.h"
#include "veloxquant_job.h"

#include <stdio.h>
#include <string.h>

/* Each counts as one output. */
static const struct {
	const char *name;
	bool (*agree)(const vq_case *c, const vq_record *found, const char *file, note *why);
	bool by_head; /* of the scalar path: each head alone, in two calls */
	bool optional;
} arrays[] = {
    {"kept_positions", vq_positions_agree, false, false}, {"kept_lengths", vq_lengths_agree, false, false},
    {"returned_len", vq_returned_agree, false, false},    {"kept_keys", vq_keys_agree, false, false},
    {"kept_values", vq_values_agree, false, false},       {"scores", vq_scores_agree, false, true},
    {"prefill_scores", vq_window_agrees, false, true},    {"head_kept_positions", vq_positions_agree, true, true},
    {"head_kept_lengths", vq_lengths_agree, true, true},  {"head_scores", vq_scores_agree, true, true},
};

enum { N_ARRAYS = sizeof arrays / sizeof *arrays };

static bool has(const json_t *shapes, const char *name) { return json_object_get(shapes, name) != NULL; }

static void replay_arrays(const vq_job *job, const vq_case *c, const json_t *shapes, bool by_head, const vq_record *found) {
	for (size_t i = 0; i < N_ARRAYS; i++) {
		char file[64];
		note why = {""};
		if (arrays[i].by_head == by_head && (!arrays[i].optional || has(shapes, arrays[i].name))) {
			snprintf(file, sizeof file, "%s.npy", arrays[i].name);
			vq_count(job, arrays[i].name, arrays[i].agree(c, found, file, &why), &why);
		}
	}
}

/* Arrays that nothing here compares show as skipped. */
static void replay_others(const vq_job *job, json_t *shapes) {
	const char *name;
	json_t *shape;
	json_object_foreach(shapes, name, shape) {
		bool known = strcmp(name, "keys") == 0 || strcmp(name, "values") == 0;
		for (size_t i = 0; i < N_ARRAYS; i++) {
			known = known || strcmp(name, arrays[i].name) == 0;
		}
		if (!known) {
			char reason[64];
			snprintf(reason, sizeof reason, "no equivalent of %.30s", name);
			vq_skip(job, reason);
		}
	}
}

/* The scalar path takes the first step, then all the rest. */
static void replay_heads(const vq_job *job, const vq_case *c, const json_t *shapes) {
	int32_t steps[2] = {c->steps[0], c->feed.tokens - c->steps[0]};
	vq_case by_head = *c;
	vq_record found;
	note why = {""};
	by_head.feed.steps = steps;
	by_head.feed.n_steps = 2;
	if (!vq_run_all(&by_head.feed, false, &found, &why)) {
		vq_count(job, "each head alone", false, &why);
		return;
	}
	replay_arrays(job, &by_head, shapes, true, &found);
	vq_record_close(&found);
}

static void replay_case(const vq_job *job, const vq_case *c) {
	json_t *shapes;
	vq_record found;
	note why = {""};
	if (!field_object(c->file->root, "shapes", &shapes, &why) || !vq_run_all(&c->feed, true, &found, &why)) {
		vq_count(job, "run", false, &why);
		return;
	}
	replay_arrays(job, c, shapes, false, &found);
	vq_replay_attributes(job, c, &found);
	replay_others(job, shapes);
	vq_record_close(&found);
	if (has(shapes, "head_kept_positions")) {
		replay_heads(job, c, shapes);
	}
}

void veloxquant_replay_stream(const casefile *file, tally *counts) {
	const char *method = "unknown", *foreign = NULL;
	json_t *config;
	vq_policy policy;
	vq_case c;
	vq_job job;
	note why = {""};
	bool ok = field_text(file->root, "method", &method, &why);
	vq_job_init(&job, file, counts, method);
	ok = ok && field_object(file->root, "config", &config, &why) && vq_policy_read(&policy, method, config, &foreign, &why);
	if (ok && foreign) {
		char reason[TALLY_LABEL];
		snprintf(reason, sizeof reason, "no such choice: %.30s", foreign);
		vq_skip(&job, reason);
	} else if (!ok || !vq_case_open(&c, file, &policy, &why)) {
		vq_count(&job, "case", false, &why);
	} else {
		replay_case(&job, &c);
		vq_case_close(&c);
	}
}
