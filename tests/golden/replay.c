#include "replay.h"

#include <stdlib.h>
#include <string.h>

static const struct {
	uint32_t cpu_disable;
	int32_t n_threads;
	const char *name;
} runs[N_RUNS] = {{0, 1, "1 thread"}, {CKV_CPU_AVX2, 1, "1 thread without AVX2"}, {0, 2, "2 threads"}, {0, 4, "4 threads"}};

void replay_options(int run, ckv_ctx_options *options) {
	ckv_ctx_options_default(options);
	options->cpu_disable = runs[run].cpu_disable;
	options->n_threads = runs[run].n_threads;
}

bool replay_open(replay *r, const ckv_params *params, note *why) {
	*r = (replay){{NULL}};
	for (int i = 0; i < N_RUNS; i++) {
		ckv_ctx_options options;
		ckv_error error;
		replay_options(i, &options);
		if (ckv_ctx_create(&r->ctx[i], params, &options, &error) != CKV_OK) {
			replay_close(r);
			return note_set(why, "no context: %s", error.message);
		}
	}
	return true;
}

void replay_close(replay *r) {
	for (int i = 0; i < N_RUNS; i++) {
		ckv_ctx_free(r->ctx[i]);
		r->ctx[i] = NULL;
	}
}

bool replay_refused(const replay *r, int run, const char *call, ckv_status status, note *why) {
	return note_set(why, "%s (%s): %s: %s", call, runs[run].name, ckv_strerror(status), ckv_ctx_message(r->ctx[run]));
}

/* --------------------------------------------------------------------------------------------- scores */

bool replay_same(int run, const float *first, const float *found, size_t n, const char *what, note *why) {
	for (size_t i = 0; i < n; i++) {
		if (memcmp(&first[i], &found[i], sizeof *first) != 0) {
			return note_set(why, "runs disagree: %s, number %zu: %.9g with %s, %.9g with %s", what, i, (double)first[i],
			                runs[0].name, (double)found[i], runs[run].name);
		}
	}
	return true;
}

bool replay_score(replay *r, const ckv_layer *layer, double ratio, float *scores, size_t n, note *why) {
	float *again = malloc(n * sizeof *again);
	bool ok = again || note_set(why, "no memory for %zu scores", n);
	for (int i = 0; i < N_RUNS && ok; i++) {
		float *out = i ? again : scores;
		memset(out, 0xff, n * sizeof *out); /* NaN: what is not written shows */
		ckv_status status = ckv_score(r->ctx[i], layer, ckv_remove_fraction(ratio), out);
		ok = status == CKV_OK || replay_refused(r, i, "ckv_score", status, why);
		ok = ok && replay_same(i, scores, out, n, "scores", why);
	}
	free(again);
	return ok;
}

/* ------------------------------------------------------------------------------------- kept positions */

static const char *call_of(const subject *from) {
	return from->by.scores ? "ckv_select_scores" : from->block ? "ckv_select_blocks" : "ckv_select";
}

static ckv_status call(ckv_ctx *ctx, const subject *from, double ratio, ckv_keep *keep) {
	ckv_budget budget = from->target ? ckv_keep_tokens(from->target) : ckv_remove_fraction(ratio);
	const score_table *by = &from->by;
	if (by->scores) {
		return ckv_select_scores(ctx, by->scores, by->n_heads, by->n_tokens, budget, keep);
	}
	return from->block ? ckv_select_blocks(ctx, from->layer, budget, from->block, keep)
	                   : ckv_select(ctx, from->layer, budget, keep);
}

/* One run; `found` is to be freed in any case. */
static bool select_once(replay *r, int run, const subject *from, double ratio, kept *found, ckv_reason *reason, note *why) {
	size_t heads = (size_t)from->by.n_heads, tokens = (size_t)from->by.n_tokens;
	if (!kept_alloc(found, heads, heads * tokens, why)) {
		return false;
	}
	ckv_keep keep;
	ckv_keep_init(&keep, found->positions, heads * tokens, found->offsets);
	ckv_status status = call(r->ctx[run], from, ratio, &keep);
	if (status != CKV_OK) {
		return replay_refused(r, run, call_of(from), status, why);
	}
	if (keep.n_lists < 1 || (size_t)keep.n_lists > heads || keep.n_positions > heads * tokens) {
		return note_set(why, "%d lists of %zu positions cannot be", keep.n_lists, keep.n_positions);
	}
	found->n_lists = keep.n_lists;
	*reason = keep.reason;
	return kept_offsets_valid(found, keep.n_positions, why) && kept_valid(found, from->by.n_tokens, why);
}

/* A further run, which must find the same. */
static bool select_again(replay *r, int run, const subject *from, double ratio, const kept *first, ckv_reason reason,
                         note *why) {
	kept found;
	ckv_reason its_reason = CKV_SELECTED;
	note difference = {"on the reason"};
	bool ok = select_once(r, run, from, ratio, &found, &its_reason, why);
	if (ok && (!kept_equal(first, &found, &difference) || reason != its_reason)) {
		ok = note_set(why, "runs disagree: %s and %s: %s", runs[0].name, runs[run].name, difference.text);
	}
	kept_free(&found);
	return ok;
}

bool replay_select(replay *r, const subject *from, double ratio, kept *found, ckv_reason *reason, note *why) {
	ckv_reason first = CKV_SELECTED;
	bool ok = select_once(r, 0, from, ratio, found, &first, why);
	for (int i = 1; i < N_RUNS && ok; i++) {
		ok = select_again(r, i, from, ratio, found, first, why);
	}
	if (reason) {
		*reason = first;
	}
	if (!ok) {
		kept_free(found);
	}
	return ok;
}
