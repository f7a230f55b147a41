#include "veloxquant_attributes.h"

#include "kept.h"
#include "stream/internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A layer at one time. */
typedef struct state {
	const vq_case *c;
	const vq_record *found;
	const ckv_stream_info *info;
	int32_t layer, step;
} state;

static double heads(const state *s) { return (double)s->found->heads; }

/* Rows of all heads. */
static double rows(const state *s) {
	double n = 0.0;
	for (int32_t h = 0; h < s->found->heads; h++) {
		n += (double)s->found->lengths[vq_at_head(s->found, s->layer, s->step, h)];
	}
	return n;
}

static double layer_budget(const state *s) { return (double)s->info->layer_budget; }
static double chunk_size(const state *s) { return (double)s->info->chunk_size; }
static double ratio(const state *s) { return s->info->compression_ratio; }
static double seen(const state *s) { return (double)s->info->tokens_seen; }
static double seen_by_all(const state *s) { return seen(s) * heads(s); }
static double bytes(const state *s) { return (double)s->info->bytes; }
static double bytes_full(const state *s) { return (double)s->info->bytes_full; }
static double keep_rate(const state *s) { return rows(s) / seen_by_all(s); }
static double tokens_kept(const state *s) { return s->c->feed.policy->counts_rows ? rows(s) : (double)s->info->tokens_kept; }
static double merge_gate(const state *s) { return (double)s->c->feed.policy->params.merge_gate; }

/* Keys and values are of one size here. */
static double half_bytes(const state *s) { return bytes(s) / 2.0; }
static double half_bytes_full(const state *s) { return bytes_full(s) / 2.0; }

/* Of the keys of the first head in the first step. */
static double concentration(const state *s) {
	const vq_feed *feed = &s->c->feed;
	float *scratch = malloc(2 * (size_t)s->c->dim * sizeof *scratch);
	if (!scratch) {
		return NAN;
	}
	const char *data = (const char *)feed->keys.data + (size_t)s->layer * feed->key_layer;
	double found = (double)ckv_stream_concentration(ckv_kernels_get(0), (const uint16_t *)(const void *)data, feed->steps[0],
	                                                s->c->dim, scratch);
	free(scratch);
	return found;
}

/* A layer that takes another's decisions cannot come first. */
static double leads(const state *s) {
	const vq_feed *feed = &s->c->feed;
	ckv_stream *stream;
	ckv_error error;
	ckv_status status = vq_create(&stream, feed, 0, feed->heads, &error);
	if (status == CKV_OK) {
		status = vq_push(stream, feed, (vq_heads){0, feed->heads}, s->layer, 0, 1);
		ckv_stream_free(stream);
	}
	return status == CKV_OK ? 1.0 : status == CKV_ERR_STATE ? 0.0 : NAN;
}

static const struct {
	const char *name;
	double (*found)(const state *s);
	tolerance allowed;
} attributes[] = {
    {"layer_budget", layer_budget, {0.0, 0.0}},        {"chunk_size", chunk_size, {0.0, 0.0}},
    {"compression_ratio", ratio, {1e-14, 0.0}},        {"streaming_ratio", ratio, {1e-14, 0.0}},
    {"eviction_ratio", ratio, {1e-14, 0.0}},           {"keep_rate", keep_rate, {1e-14, 0.0}},
    {"tokens_seen", seen_by_all, {0.0, 0.0}},          {"tokens_total", seen_by_all, {0.0, 0.0}},
    {"tokens_kept", tokens_kept, {0.0, 0.0}},          {"offset", seen, {0.0, 0.0}},
    {"full_seq_bytes", bytes_full, {0.0, 0.0}},        {"kept_bytes", bytes, {0.0, 0.0}},
    {"evicted_key_bytes", half_bytes, {0.0, 0.0}}, /* their name for what is kept */
    {"evicted_value_bytes", half_bytes, {0.0, 0.0}},   {"full_key_bytes", half_bytes_full, {0.0, 0.0}},
    {"full_value_bytes", half_bytes_full, {0.0, 0.0}}, {"merge_gate", merge_gate, {0.0, 0.0}},
    {"is_index_reuse_leader", leads, {0.0, 0.0}},      {"concentration", concentration, {0.0, 2e-6}},
};

static bool number_agrees(size_t i, const json_t *expected, const state *s, note *why) {
	double want = json_is_boolean(expected) ? (double)json_is_true(expected) : json_number_value(expected);
	double have = attributes[i].found(s);
	if (!json_is_boolean(expected) && !json_is_number(expected)) {
		return note_set(why, "'%s' is not a number", attributes[i].name);
	}
	return tolerance_holds(attributes[i].allowed, want, have) || note_set(why, "%.17g expected, %.17g found", want, have);
}

static bool text_agrees(const json_t *expected, const char *have, note *why) {
	const char *want = json_string_value(expected);
	return (want && strcmp(want, have) == 0) || note_set(why, "'%.40s' expected, '%s' found", want ? want : "", have);
}

static void replay_attribute(const vq_job *job, const char *when, const char *name, const json_t *expected, const state *s) {
	char text[96];
	note why = {""};
	snprintf(text, sizeof text, "%s of layer %d: %.40s", when, s->layer, name);
	if (strcmp(name, "merge_mode") == 0) {
		vq_count(job, text, text_agrees(expected, s->c->feed.policy->params.merge, &why), &why);
		return;
	}
	for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++) {
		if (strcmp(name, attributes[i].name) == 0) {
			vq_count(job, text, number_agrees(i, expected, s, &why), &why);
			return;
		}
	}
	snprintf(text, sizeof text, "no equivalent of %.30s", name);
	vq_skip(job, text);
}

static void replay_layer(const vq_job *job, const char *when, json_t *entry, const state *s) {
	const char *name;
	json_t *expected;
	if (!json_is_object(entry) || json_object_size(entry) == 0) {
		vq_count(job, when, false, &(note){"there are no attributes of a layer"});
		return;
	}
	json_object_foreach(entry, name, expected) { replay_attribute(job, when, name, expected, s); }
}

/* An object for the only layer, or a list of them. */
static void replay_time(const vq_job *job, const vq_case *c, const vq_record *found, const char *when, bool last) {
	json_t *all = json_object_get(c->file->root, when);
	if (c->layered && json_array_size(all) != (size_t)found->layers) {
		vq_count(job, when, false, &(note){"there are not as many entries as layers"});
		return;
	}
	for (int32_t i = 0; i < found->layers; i++) {
		state s = {c, found, last ? &found->last[i] : &found->first[i], i, last ? found->n_steps - 1 : 0};
		replay_layer(job, when, c->layered ? json_array_get(all, (size_t)i) : all, &s);
	}
}

static void replay_layer_budgets(const vq_job *job, const vq_case *c, const vq_record *found) {
	const json_t *budgets = json_object_get(c->file->root, "layer_budgets");
	note why = {""};
	bool ok = json_array_size(budgets) == (size_t)found->layers || note_set(&why, "there are not as many as layers");
	if (ok && json_is_null(json_array_get(budgets, 0))) {
		vq_skip(job, "layer_budgets not told");
		return;
	}
	for (int32_t i = 0; i < found->layers && ok; i++) {
		const json_t *budget = json_array_get(budgets, (size_t)i);
		ok = (json_is_integer(budget) && json_integer_value(budget) == found->last[i].layer_budget) ||
		     note_set(&why, "layer %d: %d expected, %d found", i, (int)json_integer_value(budget),
		              found->last[i].layer_budget);
	}
	vq_count(job, "layer_budgets", ok, &why);
}

void vq_replay_attributes(const vq_job *job, const vq_case *c, const vq_record *found) {
	replay_time(job, c, found, "attrs_after_prefill", false);
	replay_time(job, c, found, "attrs_final", true);
	if (c->layered) {
		replay_layer_budgets(job, c, found);
	}
}
