/* The numbers of a run, for people and for programs. */
#include "cli.h"

#include <jansson.h>
#include <stdlib.h>

static double mb(uint64_t bytes) { return (double)bytes / 1e6; }

static void row(FILE *out, const char *name, const char *unit, int precision, double compressed, double full, bool both) {
	fprintf(out, "  %-26s %12.*f", name, precision, compressed);
	if (both) {
		fprintf(out, " %12.*f", precision, full);
	}
	fprintf(out, "  %s\n", unit);
}

static void cache_rows(const run_result *r, FILE *out, bool both) {
	const ckv_llama_report *report = &r->report;
	row(out, "tokens in the cache", "", 0, report->n_cells, r->n_prompt, both);
	row(out, "cache, rows held", "MB", 2, mb(r->cache_bytes), mb(r->cache_bytes_full), both);
	if (r->cache_alloc) {
		row(out, "cache, allocated", "MB", 2, mb(r->cache_alloc), mb(r->cache_alloc_full), both);
	}
	if (report->attention_kept >= 0.0f) {
		row(out, "window's attention kept", "%", 1, 100.0 * (double)report->attention_kept, 100.0, both);
	}
}

void report_table(const run_result *r, FILE *out) {
	bool both = r->options->compare;
	fprintf(out, "\n%s, %s, keep %s: %d of %d prompt tokens", r->model_name, r->policy, r->options->keep, r->report.n_cells,
	        r->n_prompt);
	if (r->report.n_window_layers) {
		fprintf(out, " in %d layers; %d sliding-window layers as they are", r->report.n_layers, r->report.n_window_layers);
	}
	fprintf(out, "\n  %-26s %12s %12s\n", "", both ? "compressed" : "", both ? "full" : "");
	cache_rows(r, out, both);
	row(out, "prefill", "s", 2, r->prefill_s, r->prefill_s, both);
	row(out, "compression: scoring", "ms", 1, 1e3 * r->report.score_s, 0, false);
	row(out, "compression: moving rows", "ms", 1, 1e3 * r->compact_s, 0, false);
	row(out, "first token after", "s", 2, r->ttft_s, r->ttft_s, both);
	row(out, "decoding", "tokens/s", 1, answer_rate(&r->compressed), answer_rate(&r->full), both);
	fprintf(out, "  this process held at most %.0f MB of memory, %.0f MB at the end (the model's file among it)%s\n",
	        mb(r->peak_rss), mb(r->final_rss), both ? "; both caches side by side" : "");
	if (both && r->lost.n) {
		fprintf(
		    out,
		    "  what was lost, along the full cache's answer (%d tokens): KL mean %.4f, max %.4f; same top token %.1f %%\n",
		    r->lost.n, r->lost.sum / r->lost.n, r->lost.max, 100.0 * r->lost.n_same / r->lost.n);
	}
}

static json_t *kept_array(const run_result *r) {
	json_t *array = json_array();
	for (int32_t i = 0; i < r->report.n_layers; i++) {
		json_array_append_new(array, json_integer(r->n_kept[i]));
	}
	return array;
}

static json_t *share(float value) { return value < 0.0f ? json_null() : json_real((double)value); }

static void set_speed(json_t *object, const answer *a) {
	json_object_set_new(object, "tok_per_s", json_real(answer_rate(a)));
	json_object_set_new(object, "n_generated", json_integer(a->n_generated));
	json_object_set_new(object, "answer", json_string(a->text ? a->text : ""));
}

static void set_comparison(json_t *object, const run_result *r) {
	json_t *full = json_object();
	set_speed(full, &r->full);
	json_object_set_new(full, "cache_alloc_bytes", json_integer((json_int_t)r->cache_alloc_full));
	json_object_set_new(object, "full", full);
	bool measured = r->lost.n > 0;
	json_object_set_new(object, "kl_mean", measured ? json_real(r->lost.sum / r->lost.n) : json_null());
	json_object_set_new(object, "kl_max", measured ? json_real(r->lost.max) : json_null());
	json_object_set_new(object, "top1_agreement", measured ? json_real((double)r->lost.n_same / r->lost.n) : json_null());
	json_object_set_new(object, "n_compared", json_integer(r->lost.n));
}

bool report_json(const run_result *r, FILE *out) {
	json_t *o = json_object();
	json_object_set_new(o, "model", json_string(r->model_name));
	json_object_set_new(o, "policy", json_string(r->policy));
	json_object_set_new(o, "keep", json_string(r->options->keep));
	json_object_set_new(o, "question_in_window", json_true());
	json_object_set_new(o, "n_prompt", json_integer(r->n_prompt));
	json_object_set_new(o, "n_kept", kept_array(r));
	json_object_set_new(o, "n_window_layers", json_integer(r->report.n_window_layers));
	json_object_set_new(o, "reason", json_string(ckv_reason_text(r->report.reason)));
	json_object_set_new(o, "cache_bytes", json_integer((json_int_t)r->cache_bytes));
	json_object_set_new(o, "cache_bytes_full", json_integer((json_int_t)r->cache_bytes_full));
	json_object_set_new(o, "cache_alloc_bytes", r->cache_alloc ? json_integer((json_int_t)r->cache_alloc) : json_null());
	json_object_set_new(o, "attention_kept", share(r->report.attention_kept));
	json_object_set_new(o, "prefill_s", json_real(r->prefill_s));
	json_object_set_new(o, "score_s", json_real(r->report.score_s));
	json_object_set_new(o, "compact_s", json_real(r->compact_s));
	json_object_set_new(o, "ttft_s", json_real(r->ttft_s));
	set_speed(o, &r->compressed);
	json_object_set_new(o, "peak_rss_bytes", json_integer((json_int_t)r->peak_rss));
	json_object_set_new(o, "final_rss_bytes", json_integer((json_int_t)r->final_rss));
	if (r->options->compare) {
		set_comparison(o, r);
	}
	bool good =
	    json_dumpf(o, out, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) == 0 && fputc('\n', out) != EOF && fflush(out) == 0;
	json_decref(o);
	return good || !fail("the JSON could not be written to standard output");
}
