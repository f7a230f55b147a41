/* chunkkv run: prefill, compress, answer; with --compare beside the full cache. A cache of fixed size is bounded.c's. */
#include "run.h"

#include <stdlib.h>
#include <string.h>

bool run_failed(run *r, const char *what) {
	fail("%s: %s", what, ckv_llama_message(r->ckv));
	return false;
}

bool run_check(const run *r) {
	ckv_status status = ckv_llama_check(r->ckv);
	if (status) {
		const char *why = ckv_llama_message(r->ckv);
		fail("the answer can't be relied on: %s", *why ? why : ckv_strerror(status));
	}
	return status == CKV_OK;
}

/* ------------------------------------------------------------------------------------------------------ preparing */

/* Cells that reading the prompt needs; with --compare the full cache's answers follow, one at a time. */
static int32_t cells_needed(const run *r) {
	int32_t after = engine_longest_question(&r->engine) + r->options->n_predict;
	return r->engine.n_prompt + (r->options->compare ? after : 0);
}

static bool check_length(const run *r) {
	const run_options *o = r->options;
	int32_t need = cells_needed(r), all = r->engine.n_prompt + engine_longest_question(&r->engine) + o->n_predict;
	if (o->n_ctx && o->n_ctx < need) {
		fail("the prompt has %d tokens%s and does not fit --ctx %d: give at least --ctx %d", r->engine.n_prompt,
		     o->compare ? " (and the full cache's answer follows)" : "", o->n_ctx, need);
		return false;
	}
	int32_t trained = llama_model_n_ctx_train(r->engine.model);
	if (trained > 0 && all > trained && !o->quiet) {
		fprintf(stderr, "note: prompt and answer reach %d tokens; the model was trained for %d\n", all, trained);
	}
	return true;
}

static bool make_observer(run *r) {
	ckv_ctx_options core;
	ckv_ctx_options_default(&core);
	core.n_threads = r->options->n_threads;
	bool by_token = r->options->ctx_budget && !r->options->blocks;
	ckv_status status = by_token ? ckv_llama_create_stream(&r->ckv, &r->options->stream, &core, &r->error)
	                             : ckv_llama_create_params(&r->ckv, &r->options->params, &core, &r->error);
	if (status) {
		fail("%s", r->error.message);
		return false;
	}
	return ckv_llama_set_cache(r->ckv, r->options->cache_kind) == CKV_OK || run_failed(r, "--cache");
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
	r->sampler = engine_sampler(o);
	r->sampler_full = engine_sampler(o);
	return engine_prompt(&r->engine) && make_observer(r);
}

/* ---------------------------------------------------------------------------------------------------------- steps */

static bool make_large(run *r) {
	const run_options *o = r->options;
	if (check_length(r)) {
		r->large = engine_context(&r->engine, r->ckv, o->n_ctx ? o->n_ctx : cells_needed(r), o->n_ubatch);
	}
	return r->large != NULL;
}

/* The prompt into the large context, observed. */
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
		return run_failed(r, "the prompt could not be read");
	}
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

bool run_extract(run *r) {
	run_result *result = &r->result;
	result->report.size = sizeof result->report;
	if (ckv_llama_extract(r->ckv, r->large, 0, r->options->budget, &result->report)) {
		return run_failed(r, "the cache could not be compressed");
	}
	result->compact_s = result->report.move_s;
	result->cache_bytes_full = result->report.bytes_before;
	result->cache_bytes = result->report.bytes_after;
	if (!r->options->quiet) {
		report_notes(result, stderr);
	}
	return copy_kept(r);
}

bool run_make_small(run *r) {
	int32_t cells = r->result.report.n_cells + engine_longest_question(&r->engine) + r->options->n_predict;
	cells = r->result.report.hosted ? 1 : cells; /* as many as the tokens in hand need, which llama.cpp rounds up */
	r->small = engine_small_context(&r->engine, r->ckv, cells);
	return r->small != NULL;
}

void run_drop_large(run *r) {
	llama_free(r->large);
	r->large = NULL;
	memory_give_back();
}

void run_heading(const run *r, const char *what, const char *text) {
	if (r->options->json || r->options->quiet) {
		return;
	}
	printf("--- %s%s", what, text ? ": " : "");
	for (const char *c = text ? text : ""; *c; c++) {
		putchar((unsigned char)*c < ' ' ? ' ' : *c); /* one line */
	}
	putchar('\n');
}

/* A name for the reports: the file's own. */
static void name_model(run *r) {
	snprintf(r->result.model_name, sizeof r->result.model_name, "%s", text_file_name(r->options->model));
	text_sanitise(r->result.model_name);
	if (r->options->ctx_budget && !r->options->blocks) {
		ckv_stream_format(&r->options->stream, r->result.policy, sizeof r->result.policy);
	} else {
		ckv_policy_format(&r->options->params, r->result.policy, sizeof r->result.policy);
	}
}

static bool begin_result(run *r) {
	run_result *result = &r->result;
	name_model(r);
	result->options = r->options;
	result->n_prompt = r->engine.n_prompt;
	result->n_exchanges = r->options->agnostic ? r->engine.n_questions : 1;
	result->exchanges = calloc((size_t)result->n_exchanges, sizeof *result->exchanges);
	if (!result->exchanges) {
		fail("no memory for the answers");
	}
	return result->exchanges != NULL;
}

/* Whether the small context has decoded: only then was seen what llama.cpp allocated for it. An answer of one token that
 * comes from the prefill never asks it. */
static bool small_decoded(const run *r) {
	const exchange *x = &r->result.exchanges[0];
	return r->options->agnostic || x->compressed.n_decoded > 0 || x->full.n_decoded > 0;
}

static bool run_once(run *r) {
	if (!make_large(r) || !prefill(r) || !(r->options->agnostic ? run_agnostic(r) : run_in_window(r))) {
		return false;
	}
	r->result.cache_alloc = small_decoded(r) ? ckv_llama_cache_alloc(r->ckv) : 0;
	return true;
}

static bool run_all(run *r) {
	bool bounded = r->options->ctx_budget > 0;
	if (!prepare(r) || !begin_result(r) || !(bounded ? run_bounded(r) : run_once(r))) {
		return false;
	}
	r->result.final_rss = memory_now();
	r->result.peak_rss = memory_peak();
	if (r->options->json) {
		return report_json(&r->result, stdout);
	}
	if (!r->options->quiet) {
		(bounded ? report_bounded : report_table)(&r->result, stderr);
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
	ckv_llama_free(r->meter);
	for (int32_t i = 0; i < r->result.n_exchanges && r->result.exchanges; i++) {
		answer_free(&r->result.exchanges[i].full);
		answer_free(&r->result.exchanges[i].compressed);
	}
	free(r->result.exchanges);
	free(r->result.n_kept);
}

int cmd_run(int argc, char **argv) {
	run_options options;
	run r;
	int stop = options_parse(argc, argv, &options, COMMAND_RUN);
	if (stop) {
		return stop - 1;
	}
	engine_start(options.verbose);
	int status;
	if (options.dry_run) {
		status = dry_run(&options);
	} else {
		memset(&r, 0, sizeof r);
		r.options = &options;
		status = run_all(&r) ? 0 : EXIT_FAILED;
		run_free(&r);
	}
	return engine_stop(status);
}
