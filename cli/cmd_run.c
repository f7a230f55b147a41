/* chunkkv run: prefill, compress, answer; with --compare beside the full cache. */
#include "cli.h"

#include <ggml-backend.h>

#include <stdlib.h>
#include <string.h>

/* Everything a run holds; freed in one place. */
typedef struct run {
	const run_options *options;
	engine engine;
	ckv_llama *ckv;
	struct llama_context *large, *small;
	struct llama_sampler *sampler, *sampler_full; /* the second goes its own way from the first token on */
	llama_token first;                            /* sampled from the prefill's logits: the same for both caches */
	double start;
	bool restored;
	run_result result;
	ckv_error error;
} run;

static bool failed(run *r, const char *what) {
	fail("%s: %s", what, ckv_llama_message(r->ckv));
	return false;
}

/* ------------------------------------------------------------------------------------------------------ preparing */

/* Cells of the context in which the prompt is read. */
static int32_t large_cells(const run *r) {
	int32_t need = r->engine.n_prompt + (r->options->compare ? r->options->n_predict : 0);
	return r->options->n_ctx ? r->options->n_ctx : need;
}

static bool check_length(const run *r) {
	const run_options *o = r->options;
	int32_t n = r->engine.n_prompt, need = n + (o->compare ? o->n_predict : 0);
	if (o->n_ctx && o->n_ctx < need) {
		fail("the prompt has %d tokens%s and does not fit --ctx %d: give at least --ctx %d", n,
		     o->compare ? " (and the full cache's answer follows)" : "", o->n_ctx, need);
		return false;
	}
	int32_t trained = llama_model_n_ctx_train(r->engine.model);
	if (trained > 0 && n + o->n_predict > trained && !o->quiet) {
		fprintf(stderr, "note: prompt and answer reach %d tokens; the model was trained for %d\n", n + o->n_predict,
		        trained);
	}
	return true;
}

static bool prepare(run *r) {
	const run_options *o = r->options;
	r->engine.options = o;
	if (!engine_read(&r->engine) || !engine_load(&r->engine, false)) {
		return false;
	}
	if (ckv_llama_check_model(r->engine.model, &r->error)) {
		fail("%s", r->error.message);
		return false;
	}
	if (!engine_prompt(&r->engine) || !check_length(r)) {
		return false;
	}
	if (ckv_llama_create_params(&r->ckv, &o->params, NULL, &r->error)) {
		fail("%s", r->error.message);
		return false;
	}
	struct llama_context_params params = engine_context_params(&r->engine, large_cells(r), o->n_ubatch);
	if (ckv_llama_attach(r->ckv, &params)) {
		return failed(r, "llama.cpp can't be observed");
	}
	r->large = llama_init_from_model(r->engine.model, params);
	r->sampler = engine_sampler(o);
	if (!r->large) {
		fail("llama.cpp could not make a context of %d cells: %s", large_cells(r), engine_last_error());
		return false;
	}
	return true;
}

/* ------------------------------------------------------------------------------------------------------- decoding */

/* Decodes one token at the end of the context; its time is added to the answer's. */
static bool decode(struct llama_context *ctx, llama_token token, answer *a) {
	double start = seconds();
	int32_t code = llama_decode(ctx, llama_batch_get_one(&token, 1));
	llama_synchronize(ctx);
	if (a && code == 0) {
		a->decode_s += seconds() - start;
		a->n_decoded++;
	}
	if (code && !interrupted()) {
		fail("llama_decode failed (%d): %s", code, code == 1 ? "the cache is full" : engine_last_error());
	}
	return code == 0;
}

static FILE *stream_of(const run *r) { return r->options->json ? NULL : stdout; }

static bool goes_on(const run *r, const answer *a) {
	return !a->stopped && a->n_generated < r->options->n_predict && !interrupted();
}

static bool finish_answer(const run *r, answer *a) {
	FILE *out = stream_of(r);
	bool good = answer_end(a, out);
	if (out) {
		fputc('\n', out);
		fflush(out);
	}
	if (out && ferror(out)) {
		fail("the answer could not be written to standard output");
		good = false;
	}
	return good && !interrupted();
}

static bool add(const run *r, answer *a, llama_token token) {
	if (!answer_add(a, r->engine.vocab, token, stream_of(r))) {
		fail("no memory for the answer");
		return false;
	}
	return true;
}

/* The compressed cache's answer, from the first token on. */
static bool answer_small(run *r, bool first_shown) {
	answer *a = &r->result.compressed;
	llama_token token = r->first;
	if (!first_shown && !add(r, a, token)) {
		return false;
	}
	while (goes_on(r, a)) {
		if (!decode(r->small, token, a)) {
			return false;
		}
		token = llama_sampler_sample(r->sampler, r->small, -1);
		if (!add(r, a, token)) {
			return false;
		}
	}
	return finish_answer(r, a);
}

/* The full cache's answer. Each of its tokens is shown to the compressed cache too, and the next-token distributions are
 * compared; the first is left out, since it comes from the prefill and says nothing about the cache. */
static bool answer_large(run *r) {
	answer *a = &r->result.full;
	int32_t n_vocab = llama_vocab_n_tokens(r->engine.vocab);
	llama_token token = r->first;
	if (!add(r, a, token)) {
		return false;
	}
	while (goes_on(r, a)) {
		if (!decode(r->large, token, a) || !decode(r->small, token, NULL)) {
			return false;
		}
		divergence_add(&r->result.lost, llama_get_logits_ith(r->large, -1), llama_get_logits_ith(r->small, -1), n_vocab);
		token = llama_sampler_sample(r->sampler_full, r->large, -1);
		if (!add(r, a, token)) {
			return false;
		}
	}
	return finish_answer(r, a);
}

/* ---------------------------------------------------------------------------------------------------------- steps */

static bool prefill(run *r) {
	progress p;
	progress_begin(&p, !r->options->quiet);
	ckv_llama_on_progress(r->ckv, progress_step, &p);
	r->start = seconds();
	ckv_status status = ckv_llama_prefill(r->ckv, r->large, 0, r->engine.prompt, r->engine.n_prompt);
	r->result.prefill_s = seconds() - r->start;
	progress_end(&p);
	ckv_llama_on_progress(r->ckv, NULL, NULL);
	if (status == CKV_ERR_CANCELLED || interrupted()) {
		return false;
	}
	if (status) {
		return failed(r, "the prompt could not be read");
	}
	r->first = llama_sampler_sample(r->sampler, r->large, -1);
	r->sampler_full = llama_sampler_clone(r->sampler);
	r->result.ttft_s = seconds() - r->start;
	r->result.cache_alloc_full = ckv_llama_cache_alloc(r->ckv);
	return true;
}

static bool copy_kept(run *r) {
	run_result *result = &r->result;
	size_t n = (size_t)result->report.n_layers;
	result->n_kept = malloc((n ? n : 1) * sizeof *result->n_kept);
	if (!result->n_kept) {
		fail("no memory for the report");
		return false;
	}
	memcpy(result->n_kept, result->report.n_kept, n * sizeof *result->n_kept);
	return true;
}

static bool extract(run *r) {
	run_result *result = &r->result;
	result->report.size = sizeof result->report;
	if (ckv_llama_extract(r->ckv, r->large, 0, r->options->budget, &result->report)) {
		return failed(r, "the cache could not be compressed");
	}
	result->compact_s = result->report.move_s;
	result->cache_bytes_full = result->report.bytes_before;
	result->cache_bytes = result->report.bytes_after;
	bool whole = result->report.reason != CKV_SELECTED && result->report.reason != CKV_KEPT_ALL_POLICY;
	if (whole && !r->options->quiet) {
		fprintf(stderr, "note: %s\n", ckv_reason_text(result->report.reason));
	}
	return copy_kept(r);
}

static bool make_small(run *r) {
	r->small = engine_small_context(&r->engine, r->ckv, r->result.report.n_cells + r->options->n_predict);
	return r->small != NULL;
}

static bool restore(run *r) {
	double start = seconds();
	if (ckv_llama_restore(r->ckv, r->small, 0)) {
		return failed(r, "the kept rows could not be put back");
	}
	if (!r->restored) { /* a second time is no part of a plain run */
		r->result.compact_s += seconds() - start;
		r->restored = true;
	}
	return true;
}

static void heading(const run *r, const char *text) {
	if (!r->options->json && !r->options->quiet && r->options->compare) {
		printf("%s\n", text);
	}
}

static void drop_large(run *r) {
	llama_free(r->large);
	r->large = NULL;
}

static bool run_alone(run *r) {
	answer *a = &r->result.compressed;
	if (!add(r, a, r->first) || !extract(r)) {
		return false;
	}
	drop_large(r); /* before the small one is made: the two need not fit side by side */
	if (!make_small(r) || !restore(r)) {
		return false;
	}
	ckv_llama_drop(r->ckv);
	return answer_small(r, true);
}

static bool run_compared(run *r) {
	if (!extract(r) || !make_small(r) || !restore(r)) {
		return false;
	}
	heading(r, "--- full cache");
	if (!answer_large(r) || interrupted()) {
		return false;
	}
	drop_large(r);
	if (!restore(r)) { /* again from the compressed prompt alone */
		return false;
	}
	ckv_llama_drop(r->ckv);
	heading(r, "--- compressed cache");
	return answer_small(r, false);
}

/* A name for the reports: the file's own. */
static void name_model(run *r) {
	snprintf(r->result.model_name, sizeof r->result.model_name, "%s", text_file_name(r->options->model));
	text_sanitise(r->result.model_name);
	ckv_policy_format(&r->options->params, r->result.policy, sizeof r->result.policy);
	r->result.options = r->options;
	r->result.n_prompt = r->engine.n_prompt;
}

static bool run_all(run *r) {
	if (!prepare(r)) {
		return false;
	}
	name_model(r);
	if (!prefill(r) || !(r->options->compare ? run_compared(r) : run_alone(r))) {
		return false;
	}
	/* What was allocated is seen when a context decodes; an answer of one token never asks the small one. */
	bool seen = r->result.compressed.n_decoded > 0 || r->result.full.n_decoded > 0;
	r->result.cache_alloc = seen ? ckv_llama_cache_alloc(r->ckv) : 0;
	r->result.final_rss = memory_now();
	r->result.peak_rss = memory_peak();
	if (r->options->json) {
		return report_json(&r->result, stdout);
	}
	if (!r->options->quiet) {
		report_table(&r->result, stderr);
	}
	return true;
}

static void run_free(run *r) {
	llama_sampler_free(r->sampler);
	llama_sampler_free(r->sampler_full);
	llama_free(r->large);
	llama_free(r->small);
	engine_free(&r->engine);
	ckv_llama_free(r->ckv);
	answer_free(&r->result.full);
	answer_free(&r->result.compressed);
	free(r->result.n_kept);
}

int cmd_run(int argc, char **argv) {
	run_options options;
	run r;
	int stop = options_parse(argc, argv, &options);
	if (stop) {
		return stop - 1;
	}
	interrupt_install();
	engine_log(options.verbose);
	ggml_backend_load_all(); /* for a llama.cpp whose backends are plug-ins */
	llama_backend_init();
	int status;
	if (options.dry_run) {
		status = dry_run(&options);
	} else {
		memset(&r, 0, sizeof r);
		r.options = &options;
		status = run_all(&r) ? 0 : EXIT_FAILED;
		run_free(&r);
	}
	llama_backend_free();
	if (interrupted()) {
		fputs("\nchunkkv: interrupted\n", stderr);
		status = EXIT_INTERRUPTED;
	}
	return status;
}
