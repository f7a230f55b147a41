/* The numbers of a run with a cache of fixed size, for people. */
#include "cli.h"

static double mb(uint64_t bytes) { return (double)bytes / 1e6; }

static double rate(int32_t n, double took) { return took > 0.0 ? n / took : 0.0; }

static void print_title(const run_result *r, FILE *out) {
	const ckv_llama_stream_report *s = &r->stream;
	bool both = r->options->compare;
	fprintf(out, "\ncache of fixed size%s: %s, %s%s, %d rows at most (%d %scells)%s", s->hosted ? ", our own" : "",
	        r->model_name, r->policy, r->options->blocks ? " in blocks" : "", s->budget, r->n_cells,
	        s->hosted ? "llama.cpp " : "", s->rotated ? ", rotated" : "");
	if (s->n_window_layers) {
		fprintf(out, " in %d layers; %d sliding-window layers as they are", s->n_layers, s->n_window_layers);
	}
	fprintf(out, "\n  %-31s %12s %12s\n", "", both ? "bounded" : "", both ? "full" : "");
}

static void cache_rows(const run_result *r, FILE *out, bool both) {
	const ckv_llama_stream_report *s = &r->stream;
	int32_t full = r->n_prompt + r->exchanges[0].full.n_decoded;
	report_row(out, "tokens seen", "", 0, s->n_seen, full, both);
	report_row(out, s->hosted ? "tokens in the fullest layer" : "tokens in the cache", "", 0, s->n_rows, full, both);
	report_row(out, "tokens evicted", "", 0, (double)s->n_evicted, 0, both);
	report_row(out, "evictions", "", 0, (double)s->n_evictions, 0, both);
	report_row(out, "cache, allocated", "MB", 2, mb(r->cache_alloc), mb(r->cache_alloc_full), both);
	report_row(out, "bookkeeping beside it", "MB", 2, mb(s->own_bytes), 0, both);
}

static void time_rows(const run_result *r, FILE *out, bool both) {
	const ckv_llama_stream_report *s = &r->stream;
	const exchange *x = &r->exchanges[0];
	double all = s->decode_s + s->score_s + s->move_s + s->turn_s, percent = all > 0.0 ? 100.0 / all : 0.0;
	report_row(out, "prefill", "s", 2, r->prefill_s, r->prefill_full_s, both);
	report_row(out, "prefill", "tokens/s", 1, rate(r->n_prompt, r->prefill_s), rate(r->n_prompt, r->prefill_full_s), both);
	report_row(out, "decoding", "tokens/s", 1, answer_rate(&x->compressed), answer_rate(&x->full), both);
	report_row(out, s->hosted ? "of it scoring, storing, choosing" : "of all that time, scoring", "%", 2,
	           percent * s->score_s, 0, false);
	if (!s->hosted) {
		report_row(out, "choosing and moving rows", "%", 2, percent * s->move_s, 0, false);
	}
	if (s->rotated) {
		report_row(out, "turning keys", "%", 2, percent * s->turn_s, 0, false);
	}
}

void report_bounded(const run_result *r, FILE *out) {
	bool both = r->options->compare;
	print_title(r, out);
	cache_rows(r, out, both);
	time_rows(r, out, both);
	report_end(r, out);
}
