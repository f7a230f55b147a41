/* Kind "edge": settings at the limits. What the reference refuses, at whatever time, the library must refuse when the stream
 * is made; where it refuses more, there must be a reason. */
#include "veloxquant.h"
#include "veloxquant_case.h"
#include "veloxquant_job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct edge {
	const json_t *row;
	vq_policy policy;
	vq_feed feed;
	const char *error; /* of the reference; NULL: none */
} edge;

/* -------------------------------------------------------------------- what the library refuses, and they accept */

static bool no_rows(const edge *e) { return e->policy.budget < 1; }
static bool no_chunk(const edge *e) { return e->policy.params.chunk < 1; }
static bool negative_sinks(const edge *e) { return e->policy.params.sinks < 0; }
static bool nothing_fed(const edge *e) { return e->feed.tokens == 0; }

static bool unknown_name(const edge *e) {
	static const char *const merges[] = {"drop", "mean", "sim_weighted"};
	bool scorer = false, merge = false;
	const ckv_method_info *info;
	for (size_t i = 0; (info = ckv_stream_scorer_info(i)) != NULL; i++) {
		scorer = scorer || strcmp(info->name, e->policy.params.scorer) == 0;
	}
	for (size_t i = 0; i < sizeof merges / sizeof *merges; i++) {
		merge = merge || strcmp(merges[i], e->policy.params.merge) == 0;
	}
	return !scorer || !merge;
}

static const struct {
	bool (*holds)(const edge *e);
	const char *reason;
} refusals[] = {
    {nothing_fed, "refused: they judge with the first token"}, /* the same settings fail there as soon as one comes */
    {no_rows, "refused: a budget of no rows"},                 /* they act as if it were 1, or store the first token only */
    {no_chunk, "refused: a chunk of no tokens"},               /* they divide by zero, or run backwards */
    {negative_sinks, "refused: sinks below 0"},                /* their first chunk is short then */
    {unknown_name, "refused: an unknown name"},                /* they take another in its place */
};

static const char *reason_of(const edge *e) {
	for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
		if (refusals[i].holds(e)) {
			return refusals[i].reason;
		}
	}
	return NULL;
}

/* ------------------------------------------------------------------------------------------------------ one row */

static bool count_agrees(const char *what, const json_t *expected, int32_t step, int32_t found, note *why) {
	const json_t *value = json_array_get(expected, (size_t)step);
	return (json_is_integer(value) && json_integer_value(value) == found) ||
	       note_set(why, "step %d: %d %s expected, %d found", step, (int)json_integer_value(value), what, found);
}

static bool steps_agree(const edge *e, const vq_record *found, note *why) {
	json_t *stored, *returned;
	if (!field_array(e->row, "stored", &stored, why) || !field_array(e->row, "returned", &returned, why)) {
		return false;
	}
	size_t n = (size_t)found->n_steps;
	bool same = (json_array_size(stored) == n && json_array_size(returned) == n) ||
	            note_set(why, "there are not as many counts as steps");
	for (int32_t s = 0; s < found->n_steps && same; s++) {
		same = count_agrees("rows for attention", returned, s, found->returned[s], why);
		for (int32_t h = 0; h < found->heads && same; h++) {
			same = count_agrees("rows", stored, s, found->lengths[vq_at_head(found, 0, s, h)], why);
		}
	}
	return same;
}

/* Of the first head, at the end. */
static bool positions_agree(const edge *e, const vq_record *found, note *why) {
	const json_t *positions = json_object_get(e->row, "positions_head0");
	if (!json_is_array(positions) || found->n_steps == 0) { /* null: not recorded */
		return json_is_null(positions) || note_set(why, "positions_head0 is neither a list nor null");
	}
	size_t at = vq_at_head(found, 0, found->n_steps - 1, 0), n = (size_t)found->lengths[at];
	if (json_array_size(positions) != n) {
		return note_set(why, "%zu positions expected, %zu found", json_array_size(positions), n);
	}
	for (size_t i = 0; i < n; i++) {
		json_int_t expected = json_integer_value(json_array_get(positions, i));
		int32_t have = found->positions[at * (size_t)found->tokens + i];
		if (expected != have) {
			return note_set(why, "entry %zu: position %d expected, %d found", i, (int)expected, have);
		}
	}
	return true;
}

/* They crash when the first call brings no tokens; here that is no call. */
static bool crash(const edge *e) { return strcmp(e->error, "AttributeError") == 0 && e->feed.tokens == 0; }

static bool stays_empty(const vq_record *found, note *why) {
	bool empty = true;
	for (int32_t s = 0; s < found->n_steps && empty; s++) {
		empty = found->lengths[vq_at_head(found, 0, s, 0)] == 0 || note_set(why, "there are rows without tokens");
	}
	return empty;
}

static bool run_row(const edge *e, note *why) {
	vq_record found;
	if (e->error && !crash(e)) {
		return note_set(why, "%.40s expected when the stream is made, none found", e->error);
	}
	if (!vq_run_all(&e->feed, true, &found, why)) {
		return false;
	}
	bool ok = e->error ? stays_empty(&found, why) : steps_agree(e, &found, why) && positions_agree(e, &found, why);
	vq_record_close(&found);
	return ok;
}

static void replay_edge(const vq_job *job, const edge *e, const char *item) {
	ckv_stream *stream;
	ckv_error error = {CKV_OK, ""};
	note why = {""};
	ckv_status status = vq_create(&stream, &e->feed, 0, e->feed.heads, &error);
	ckv_stream_free(stream);
	if (status == CKV_OK) {
		vq_count(job, item, run_row(e, &why), &why);
	} else if (status != CKV_ERR_POLICY && status != CKV_ERR_ARG) {
		note_set(&why, "%s: %s", ckv_strerror(status), error.message);
		vq_count(job, item, false, &why);
	} else if (e->error) {
		vq_count(job, item, error.message[0] != '\0', &(note){"refused without a message"});
	} else if (reason_of(e)) {
		vq_skip(job, reason_of(e));
	} else {
		note_set(&why, "refused without a reason that is known here: %s", error.message);
		vq_count(job, item, false, &why);
	}
}

/* ----------------------------------------------------------------------------------------------------- all rows */

static bool read_row(edge *e, const vq_case *inputs, const char *method, int32_t **steps, const char **foreign, note *why) {
	json_t *config, *feed;
	int64_t sum = 0;
	*e = (edge){.row = e->row, .feed = inputs->feed};
	e->error = json_string_value(json_object_get(e->row, "error"));
	if (!field_object(e->row, "config", &config, why) || !field_array(e->row, "feed", &feed, why) ||
	    !vq_policy_read(&e->policy, method, config, foreign, why) ||
	    !vq_case_steps(feed, steps, &e->feed.n_steps, &sum, why)) {
		return false;
	}
	if (sum > inputs->feed.tokens || (!e->error && !json_is_null(json_object_get(e->row, "error")))) {
		return note_set(why, "the steps are more tokens than there are, or 'error' is neither a text nor null");
	}
	e->feed.policy = &e->policy;
	e->feed.steps = *steps;
	e->feed.tokens = (int32_t)sum;
	return true;
}

static void replay_row(const vq_case *inputs, tally *counts, const json_t *row, size_t number) {
	const char *method = "unknown", *foreign = NULL;
	char item[32], reason[TALLY_LABEL];
	int32_t *steps = NULL;
	edge e = {.row = row};
	vq_job job;
	note why = {""};
	bool ok = field_text(row, "method", &method, &why);
	vq_job_init(&job, inputs->file, counts, method);
	snprintf(item, sizeof item, "row %zu", number);
	if (strcmp(method, "kivi") == 0 || strcmp(method, "palu") == 0) {
		vq_skip(&job, "no replay yet");
		return;
	}
	if (!ok || !read_row(&e, inputs, method, &steps, &foreign, &why)) {
		vq_count(&job, item, false, &why);
	} else if (foreign) {
		snprintf(reason, sizeof reason, "no such choice: %.30s", foreign);
		vq_skip(&job, reason);
	} else {
		replay_edge(&job, &e, item);
	}
	free(steps);
}

void veloxquant_replay_edges(const casefile *file, tally *counts) {
	json_t *shape, *rows;
	vq_case inputs = {.file = file};
	note why = {""};
	if (!field_object(file->root, "shape", &shape, &why) || !field_array(file->root, "cases", &rows, &why) ||
	    !vq_case_inputs(&inputs, shape, &why)) {
		vq_job job;
		vq_job_init(&job, file, counts, "inputs");
		vq_count(&job, "case", false, &why);
	} else {
		for (size_t i = 0; i < json_array_size(rows); i++) {
			replay_row(&inputs, counts, json_array_get(rows, i), i);
		}
	}
	vq_case_close(&inputs);
}
