/* The numbers of a run, for programs. */
#include "cli.h"

#include <jansson.h>

static void set_real(json_t *object, const char *key, double value) { json_object_set_new(object, key, json_real(value)); }

static void set_count(json_t *object, const char *key, uint64_t value) {
	json_object_set_new(object, key, json_integer((json_int_t)value));
}

static json_t *kept_array(const run_result *r) {
	json_t *array = json_array();
	for (int32_t i = 0; i < r->report.n_layers; i++) {
		json_array_append_new(array, json_integer(r->n_kept[i]));
	}
	return array;
}

static void set_answer(json_t *object, const answer *a) {
	set_real(object, "tok_per_s", answer_rate(a));
	set_count(object, "n_generated", (uint64_t)a->n_generated);
	json_object_set_new(object, "answer", json_string(a->text ? a->text : ""));
}

static void set_lost(json_t *object, const divergence *lost) {
	bool measured = lost->n > 0;
	json_object_set_new(object, "kl_mean", measured ? json_real(divergence_mean(lost)) : json_null());
	json_object_set_new(object, "kl_max", measured ? json_real(lost->max) : json_null());
	json_object_set_new(object, "top1_agreement", measured ? json_real(divergence_agreement(lost)) : json_null());
	set_count(object, "n_compared", (uint64_t)lost->n);
}

static double rate(int32_t n, double took) { return took > 0.0 ? n / took : 0.0; }

static void set_exchange(json_t *object, const run_result *r, const exchange *x) {
	set_real(object, "ttft_s", x->ttft_s);
	set_answer(object, &x->compressed);
	if (!r->options->compare) {
		return;
	}
	json_t *full = json_object();
	set_answer(full, &x->full);
	set_real(full, "ttft_s", x->ttft_full_s);
	if (r->options->ctx_budget) { /* the full cache has read the prompt for itself */
		set_real(full, "prefill_s", r->prefill_full_s);
		set_real(full, "prefill_tok_per_s", rate(r->n_prompt, r->prefill_full_s));
	}
	set_count(full, "cache_alloc_bytes", r->cache_alloc_full);
	json_object_set_new(object, "full", full);
	set_lost(object, &x->lost);
}

/* The questions and what became of them; over all of them what was lost. */
static void set_answers(json_t *object, const run_result *r) {
	json_t *answers = json_array();
	for (int32_t i = 0; i < r->n_exchanges; i++) {
		const exchange *x = &r->exchanges[i];
		json_t *one = json_object();
		json_object_set_new(one, "question", json_string(x->question));
		set_count(one, "n_question", (uint64_t)x->n_question);
		set_exchange(one, r, x);
		json_array_append_new(answers, one);
	}
	json_object_set_new(object, "answers", answers);
	if (r->options->compare) {
		divergence lost = report_lost(r);
		set_lost(object, &lost);
	}
}

static void set_cache(json_t *object, const run_result *r) {
	const ckv_llama_report *report = &r->report;
	json_object_set_new(object, "n_kept", kept_array(r));
	set_count(object, "n_window_layers", (uint64_t)report->n_window_layers);
	json_object_set_new(object, "reason", json_string(ckv_reason_text(report->reason)));
	json_object_set_new(object, "no_slope", json_boolean(report->no_slope != 0));
	json_object_set_new(object, "hosted", json_boolean(report->hosted != 0));
	set_count(object, "cache_bytes", r->cache_bytes);
	set_count(object, "cache_bytes_full", r->cache_bytes_full);
	set_count(object, "cache_bytes_ragged", report->bytes_ragged);
	json_object_set_new(object, "cache_alloc_bytes",
	                    r->cache_alloc ? json_integer((json_int_t)r->cache_alloc) : json_null());
	json_object_set_new(object, "attention_kept",
	                    report->attention_kept < 0.0f ? json_null() : json_real((double)report->attention_kept));
}

/* Of a cache of fixed size. */
static void set_bounded(json_t *o, const run_result *r) {
	const ckv_llama_stream_report *s = &r->stream;
	json_object_set_new(o, "in_blocks", json_boolean(r->options->blocks));
	json_object_set_new(o, "rotated", json_boolean(s->rotated != 0));
	json_object_set_new(o, "hosted", json_boolean(s->hosted != 0));
	set_count(o, "ctx_budget", (uint64_t)s->budget);
	set_count(o, "n_cells", (uint64_t)r->n_cells);
	set_count(o, "n_prompt", (uint64_t)r->n_prompt);
	set_count(o, "n_seen", (uint64_t)s->n_seen);
	set_count(o, "n_rows", (uint64_t)s->n_rows);
	set_count(o, "n_evicted", (uint64_t)s->n_evicted);
	set_count(o, "n_evictions", (uint64_t)s->n_evictions);
	set_count(o, "n_layers", (uint64_t)s->n_layers);
	set_count(o, "n_window_layers", (uint64_t)s->n_window_layers);
	set_count(o, "cache_alloc_bytes", r->cache_alloc);
	set_count(o, "own_bytes", s->own_bytes);
	set_real(o, "prefill_s", r->prefill_s);
	set_real(o, "prefill_tok_per_s", rate(r->n_prompt, r->prefill_s));
	set_real(o, "decode_s", s->decode_s);
	set_real(o, "score_s", s->score_s);
	set_real(o, "move_s", s->move_s);
	set_real(o, "turn_s", s->turn_s);
	set_exchange(o, r, &r->exchanges[0]);
}

/* Of one-shot compression. */
static void set_once(json_t *o, const run_result *r) {
	bool agnostic = r->options->agnostic;
	json_object_set_new(o, "keep", json_string(r->options->keep));
	json_object_set_new(o, "question_in_window", json_boolean(!agnostic));
	set_count(o, agnostic ? "n_document" : "n_prompt", (uint64_t)r->n_prompt);
	set_cache(o, r);
	set_real(o, "prefill_s", r->prefill_s);
	set_real(o, "score_s", r->report.score_s);
	set_real(o, "compact_s", r->compact_s);
	if (agnostic) {
		set_answers(o, r);
	} else {
		set_exchange(o, r, &r->exchanges[0]);
	}
}

bool report_json(const run_result *r, FILE *out) {
	json_t *o = json_object();
	json_object_set_new(o, "model", json_string(r->model_name));
	json_object_set_new(o, "policy", json_string(r->policy));
	(r->options->ctx_budget ? set_bounded : set_once)(o, r);
	set_count(o, "peak_rss_bytes", r->peak_rss);
	set_count(o, "final_rss_bytes", r->final_rss);
	bool good =
	    json_dumpf(o, out, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) == 0 && fputc('\n', out) != EOF && fflush(out) == 0;
	json_decref(o);
	return good || !fail("the JSON could not be written to standard output");
}
