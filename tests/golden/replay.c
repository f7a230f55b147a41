#include "replay.h"

#include <stdlib.h>
#include <string.h>

static const uint32_t disabled[N_RUNS] = {0, CKV_CPU_AVX2};

bool replay_open(replay *r, const ckv_params *params, note *why) {
	*r = (replay){{NULL}};
	for (int i = 0; i < N_RUNS; i++) {
		ckv_ctx_options options;
		ckv_error error;
		ckv_ctx_options_default(&options);
		options.cpu_disable = disabled[i];
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

static bool refused(const char *call, ckv_status status, const ckv_ctx *ctx, note *why) {
	return note_set(why, "%s (%s): %s: %s", call, ckv_ctx_isa(ctx), ckv_strerror(status), ckv_ctx_message(ctx));
}

/* --------------------------------------------------------------------------------------------- scores */

static bool same_bits(const replay *r, const float *a, const float *b, size_t n, note *why) {
	for (size_t i = 0; i < n; i++) {
		if (memcmp(&a[i], &b[i], sizeof *a) != 0) {
			return note_set(why, "instruction sets disagree: score %zu is %.9g with %s, %.9g with %s", i, (double)a[i],
			                ckv_ctx_isa(r->ctx[0]), (double)b[i], ckv_ctx_isa(r->ctx[1]));
		}
	}
	return true;
}

bool replay_score(replay *r, const ckv_layer *layer, float *scores, size_t n, note *why) {
	float *second = malloc(n * sizeof *second);
	if (!second) {
		return note_set(why, "no memory for %zu scores", n);
	}
	float *out[N_RUNS] = {scores, second};
	bool ok = true;
	for (int i = 0; i < N_RUNS && ok; i++) {
		memset(out[i], 0xff, n * sizeof *out[i]); /* NaN: what is not written shows */
		ckv_status status = ckv_score(r->ctx[i], layer, ckv_keep_percent(50), out[i]);
		ok = status == CKV_OK || refused("ckv_score", status, r->ctx[i], why);
	}
	ok = ok && same_bits(r, scores, second, n, why);
	free(second);
	return ok;
}

/* ------------------------------------------------------------------------------------- kept positions */

/* From 0 to the number of positions, never falling: only then may the lists be read. */
static bool offsets_valid(const kept *k, size_t n_positions, note *why) {
	bool valid = k->offsets[0] == 0 && (size_t)k->offsets[k->n_lists] == n_positions;
	for (int32_t i = 0; i < k->n_lists && valid; i++) {
		valid = k->offsets[i] <= k->offsets[i + 1];
	}
	return valid || note_set(why, "the offsets of %d lists do not lead from 0 to %zu", k->n_lists, n_positions);
}

static bool select_once(ckv_ctx *ctx, const subject *from, double ratio, kept *found, ckv_reason *reason, note *why) {
	size_t heads = (size_t)from->by.n_heads, tokens = (size_t)from->by.n_tokens;
	if (!kept_alloc(found, heads, heads * tokens, why)) {
		return false;
	}
	ckv_keep keep;
	ckv_keep_init(&keep, found->positions, heads * tokens, found->offsets);
	ckv_budget budget = ckv_remove_fraction(ratio);
	const score_table *by = &from->by;
	ckv_status status = by->scores ? ckv_select_scores(ctx, by->scores, by->n_heads, by->n_tokens, budget, &keep)
	                               : ckv_select(ctx, from->layer, budget, &keep);
	if (status != CKV_OK) {
		return refused(by->scores ? "ckv_select_scores" : "ckv_select", status, ctx, why);
	}
	if (keep.n_lists < 1 || keep.n_lists > by->n_heads || keep.n_positions > heads * tokens) {
		return note_set(why, "%d lists of %zu positions cannot be", keep.n_lists, keep.n_positions);
	}
	found->n_lists = keep.n_lists;
	*reason = keep.reason;
	return offsets_valid(found, keep.n_positions, why);
}

bool replay_select(replay *r, const subject *from, double ratio, kept *found, ckv_reason *reason, note *why) {
	kept second = {0, NULL, NULL};
	ckv_reason reasons[N_RUNS] = {CKV_SELECTED, CKV_SELECTED};
	note difference = {""};
	*found = second;
	bool ok = select_once(r->ctx[0], from, ratio, found, &reasons[0], why) &&
	          select_once(r->ctx[1], from, ratio, &second, &reasons[1], why) && kept_valid(found, from->by.n_tokens, why);
	if (ok && (reasons[0] != reasons[1] || !kept_equal(found, &second, &difference))) {
		ok = note_set(why, "instruction sets %s and %s disagree: %s", ckv_ctx_isa(r->ctx[0]), ckv_ctx_isa(r->ctx[1]),
		              reasons[0] != reasons[1] ? "on the reason" : difference.text);
	}
	if (reason) {
		*reason = reasons[0];
	}
	kept_free(&second);
	if (!ok) {
		kept_free(found);
	}
	return ok;
}
