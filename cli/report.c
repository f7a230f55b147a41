/* The numbers of a run, for people. */
#include "cli.h"

#include <string.h>

static double mb(uint64_t bytes) { return (double)bytes / 1e6; }

void report_row(FILE *out, const char *name, const char *unit, int precision, double compressed, double full, bool both) {
	fprintf(out, "  %-31s %12.*f", name, precision, compressed);
	if (both) {
		fprintf(out, " %12.*f", precision, full);
	}
	fprintf(out, "  %s\n", unit);
}

void report_notes(const run_result *r, FILE *out) {
	ckv_reason reason = r->report.reason;
	if (reason != CKV_SELECTED && reason != CKV_KEPT_ALL_POLICY) {
		fprintf(out, "note: %s\n", ckv_reason_text(reason));
	}
	if (r->report.no_slope) {
		fprintf(out, "note: layers=pyramid gave every layer the same: the budget is too small for beta=%g and window=%d\n",
		        r->options->params.beta, r->options->params.window);
	}
}

divergence report_lost(const run_result *r) {
	divergence all = {0.0, 0.0, 0, 0};
	for (int32_t i = 0; i < r->n_exchanges; i++) {
		divergence_join(&all, &r->exchanges[i].lost);
	}
	return all;
}

/* Whether some layers or heads hold fewer rows than the longest. */
static bool is_ragged(const run_result *r) {
	const ckv_llama_report *report = &r->report;
	if (!report->hosted) {
		return report->bytes_ragged != report->bytes_after;
	}
	double row = (double)report->bytes_before / r->n_prompt;
	return (double)report->bytes_after < 0.99 * row * report->n_cells && strcmp(r->options->params.codec.kind, "none") == 0;
}

/* The two settings give figures that must not be compared with each other: the first words say which it is. */
static void print_title(const run_result *r, FILE *out) {
	const run_options *o = r->options;
	fprintf(out, "\n%s: %s, %s, keep %s: %s%d of %d %s tokens",
	        o->agnostic ? "compressed before the question" : "question in the window", r->model_name, r->policy, o->keep,
	        is_ragged(r) ? "at most " : "", r->report.n_cells, r->n_prompt, o->agnostic ? "document" : "prompt");
	if (r->report.n_window_layers) {
		fprintf(out, " in %d layers; %d sliding-window layers as they are", r->report.n_layers, r->report.n_window_layers);
	}
	fprintf(out, "\n  %-31s %12s %12s\n", "", o->compare ? "compressed" : "", o->compare ? "full" : "");
}

static void cache_rows(const run_result *r, FILE *out, bool both) {
	const ckv_llama_report *report = &r->report;
	report_row(out, "tokens in the cache", "", 0, report->n_cells, r->n_prompt, both);
	report_row(out, report->hosted ? "cache of our own, allocated" : "cache, rows held", "MB", 2, mb(r->cache_bytes),
	           mb(r->cache_bytes_full), both);
	if (!report->hosted && is_ragged(r)) {
		report_row(out, "cache, with rows of own length", "MB", 2, mb(report->bytes_ragged), mb(r->cache_bytes_full), both);
	}
	if (r->cache_alloc) {
		report_row(out, report->hosted ? "the same and llama.cpp's cells" : "cache, allocated", "MB", 2, mb(r->cache_alloc),
		           mb(r->cache_alloc_full), both);
	}
	if (report->attention_kept >= 0.0f) {
		report_row(out, "window's attention kept", "%", 1, 100.0 * (double)report->attention_kept, 100.0, both);
	}
}

static void time_rows(const run_result *r, FILE *out, bool both) {
	double ttft = 0.0, ttft_full = 0.0;
	answer compressed = {0}, full = {0}; /* sums: only what the rate is made of */
	for (int32_t i = 0; i < r->n_exchanges; i++) {
		const exchange *x = &r->exchanges[i];
		ttft += x->ttft_s / r->n_exchanges;
		ttft_full += x->ttft_full_s / r->n_exchanges;
		compressed.decode_s += x->compressed.decode_s;
		compressed.n_decoded += x->compressed.n_decoded;
		full.decode_s += x->full.decode_s;
		full.n_decoded += x->full.n_decoded;
	}
	report_row(out, "prefill", "s", 2, r->prefill_s, r->prefill_s, both);
	report_row(out, "compression: scoring", "ms", 1, 1e3 * r->report.score_s, 0, false);
	report_row(out, "compression: moving rows", "ms", 1, 1e3 * r->compact_s, 0, false);
	report_row(out, r->options->agnostic ? "question to first token" : "first token after", "s", 2, ttft, ttft_full, both);
	report_row(out, "decoding", "tokens/s", 1, answer_rate(&compressed), answer_rate(&full), both);
}

static void print_lost(const divergence *lost, FILE *out) {
	fprintf(out, "KL mean %.4f, max %.4f; same top token %.1f %%\n", divergence_mean(lost), lost->max,
	        100.0 * divergence_agreement(lost));
}

static void question_lines(const run_result *r, FILE *out, bool both) {
	for (int32_t i = 0; i < r->n_exchanges; i++) {
		const exchange *x = &r->exchanges[i];
		fprintf(out, "  question %d, %d tokens: first token after %.2f s, %.1f tokens/s%s", i + 1, x->n_question, x->ttft_s,
		        answer_rate(&x->compressed), both ? "; " : "\n");
		if (both) {
			print_lost(&x->lost, out);
		}
	}
}

void report_end(const run_result *r, FILE *out) {
	bool both = r->options->compare;
	fprintf(out, "  this process held at most %.0f MB of memory, %.0f MB at the end (the model's file among it)%s\n",
	        mb(r->peak_rss), mb(r->final_rss), both ? "; both caches side by side" : "");
	divergence lost = report_lost(r);
	if (both && lost.n) {
		fprintf(out, "  what was lost, along the full cache's answer%s (%d tokens): ", r->n_exchanges > 1 ? "s" : "",
		        lost.n);
		print_lost(&lost, out);
	}
}

void report_table(const run_result *r, FILE *out) {
	bool both = r->options->compare;
	print_title(r, out);
	cache_rows(r, out, both);
	time_rows(r, out, both);
	if (r->n_exchanges > 1) {
		question_lines(r, out, both);
	}
	report_end(r, out);
}
