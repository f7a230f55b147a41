#include "veloxquant_equal.h"

#include "replay.h"
#include "stream/internal.h"
#include "veloxquant_feed.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOPICS = 8, MAX_CALLS = 4096, LAYERS = 3 };

static const struct {
	const char *method, *other; /* the first of a group is what the others are compared with */
	int32_t grace, layers;
} twins[] = {
    {"chunkkv", "h2o", 0, 1},
    {"chunkkv", "cam", 0, 1},
    {"pyramidkv", "h2o", 1, LAYERS},
    {"pyramidkv", "squeeze", 1, LAYERS},
};

typedef struct setting {
	int32_t heads, tokens, dim, budget, sinks, calls;
	int32_t steps[MAX_CALLS];
	uint16_t *rows; /* [layers][heads][tokens][dim]: keys, and values too */
} setting;

/* ------------------------------------------------------------------------------------------------------- data */

static double uniform(uint64_t *state) {
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (double)(*state >> 40) / (double)(1 << 24);
}

/* About normal. */
static double noise(uint64_t *state) {
	double sum = 0.0;
	for (int i = 0; i < 12; i++) {
		sum += uniform(state);
	}
	return sum - 6.0;
}

/* Tokens that stay with a topic for a while, alike within it; or hot ones along the axes, whose attention to most others is
 * exactly 0: without a grace only then a row may go that is not the newest. */
static void make_head(uint64_t *state, bool hot, const setting *s, uint16_t *rows) {
	float *topics = malloc((size_t)TOPICS * (size_t)s->dim * sizeof *topics);
	size_t n = (size_t)s->dim, topic = 0;
	double axis = sqrt(150.0 * sqrt((double)s->dim)); /* logits differ by 150 */
	for (size_t i = 0; topics && i < TOPICS * n; i++) {
		topics[i] = (float)(hot ? (i / n == i % n ? axis : 0.0) : 1.9 * noise(state));
	}
	for (int32_t t = 0; topics && t < s->tokens; t++) {
		if (uniform(state) < (hot ? 0.75 : 0.02)) {
			topic = (size_t)(uniform(state) * TOPICS);
		}
		double length = 0.97 + 0.06 * uniform(state);
		for (size_t i = 0; i < n; i++) {
			double x = length * (double)topics[topic * n + i] + (hot ? 0.5 : 0.6) * noise(state);
			rows[(size_t)t * n + i] = ckv_f16_from_f32((float)x);
		}
	}
	free(topics);
}

/* Heads of both sorts. */
static bool make_rows(setting *s, note *why) {
	size_t head = (size_t)s->tokens * (size_t)s->dim, n = (size_t)s->heads * LAYERS;
	uint64_t state = 1;
	s->rows = calloc(n * head, sizeof *s->rows);
	for (size_t i = 0; s->rows && i < n; i++) {
		make_head(&state, i % 2 == 0, s, s->rows + i * head);
	}
	return s->rows || note_set(why, "no memory for the rows");
}

/* ---------------------------------------------------------------------------------------------------- comparing */

static bool make_policy(vq_policy *policy, const char *method, const setting *s, int32_t grace, note *why) {
	if (!vq_policy_of(policy, method, why)) {
		return false;
	}
	policy->budget = s->budget;
	policy->params.sinks = s->sinks;
	policy->params.grace = grace;
	if (strcmp(method, "cam") == 0) { /* its gate never lets a row of score 0 through */
		policy->params.merge = "sim_weighted";
		policy->params.merge_gate = 1;
		policy->params.seed = 42;
	}
	/* What attention sees is another matter. */
	policy->deferred = true;
	policy->repeats = false;
	return true;
}

static bool feed_setting(const setting *s, const vq_policy *policy, int32_t layers, int run, vq_record *found, note *why) {
	size_t row = (size_t)s->dim * sizeof *s->rows, head = row * (size_t)s->tokens, layer = head * (size_t)s->heads;
	ckv_view view = {.data = s->rows,
	                 .dtype = CKV_F16,
	                 .n_heads = s->heads,
	                 .n_tokens = s->tokens,
	                 .head_dim = s->dim,
	                 .stride_head = head,
	                 .stride_token = row};
	vq_feed feed = {policy, layers, s->heads, s->tokens, s->calls, s->steps, view, view, layer, layer};
	bool ok = vq_record_open(found, &feed, why) && vq_run(&feed, run, (vq_heads){0, s->heads}, found, why);
	if (!ok) {
		vq_record_close(found);
	}
	return ok;
}

static bool twins_agree(const setting *s, size_t i, note *why) {
	vq_policy a, b;
	vq_record first, second;
	if (!make_policy(&a, twins[i].method, s, twins[i].grace, why) ||
	    !make_policy(&b, twins[i].other, s, twins[i].grace, why)) {
		return false;
	}
	if (!feed_setting(s, &a, twins[i].layers, 0, &first, why)) {
		return false;
	}
	/* By several threads, which does not matter either; the small cases are not worth starting them. */
	bool ok = feed_setting(s, &b, twins[i].layers, N_RUNS - 1, &second, why);
	if (ok) {
		ok = vq_same(&first, &second, why);
		vq_record_close(&second);
	}
	vq_record_close(&first);
	return ok;
}

/* All calls but the first bring one token. */
static bool read_setting(setting *s, const json_t *row, note *why) {
	if (!field_int(row, "heads", 1, &s->heads, why) || !field_int(row, "tokens", 1, &s->tokens, why) ||
	    !field_int(row, "head_dim", TOPICS, &s->dim, why) || !field_int(row, "budget", 1, &s->budget, why) ||
	    !field_int(row, "n_sink", 0, &s->sinks, why) || !field_int(row, "calls", 1, &s->calls, why)) {
		return false;
	}
	if (s->calls > s->tokens || s->calls > MAX_CALLS) {
		return note_set(why, "%d tokens cannot come in %d calls", s->tokens, s->calls);
	}
	for (int32_t i = 0; i < s->calls; i++) {
		s->steps[i] = i > 0 ? 1 : s->tokens - s->calls + 1;
	}
	return true;
}

/* What they found of their own cache: else there is nothing to prove. */
static bool told_equal(const json_t *row) {
	return json_is_true(json_object_get(row, "cache_positions_equal")) &&
	       json_is_true(json_object_get(row, "cache_rows_bit_equal")) &&
	       json_is_true(json_object_get(row, "cache_scores_bit_equal"));
}

void vq_replay_equal(const vq_job *job, const json_t *row, size_t number) {
	setting s;
	note why = {""};
	char item[64];
	s.rows = NULL;
	if (!told_equal(row)) {
		vq_skip(job, "not equal there");
		return;
	}
	snprintf(item, sizeof item, "row %zu", number);
	if (!read_setting(&s, row, &why) || !make_rows(&s, &why)) {
		vq_count(job, item, false, &why);
	}
	for (size_t i = 0; s.rows && i < sizeof twins / sizeof *twins; i++) {
		snprintf(item, sizeof item, "row %zu, %s and %s", number, twins[i].method, twins[i].other);
		vq_count(job, item, twins_agree(&s, i, &why), &why);
	}
	free(s.rows);
}
