/* A cache of fixed size: the prompt is read through it, however long it is, and the answer goes on in it. With --compare the
 * full cache answers first, shown to the bounded one token by token; then the prompt is read anew, so that the bounded
 * cache's own answer is the one it gives alone. */
#include "run.h"

#include <ggml.h>

/* ------------------------------------------------------------------------------------------------------ preparing */

/* Tokens of prompt and answer, if it becomes as long as it may. */
static int32_t reach(const run *r) { return r->engine.n_prompt + r->options->n_predict; }

/* Why positions will leave what the model was trained for, and what would help. */
static const char *why_far(const run *r) {
	const run_options *o = r->options;
	return r->rotate                    ? "the budget is larger than that"
	       : policy_streams_hosted(o)   ? "a hosted cache can't be rotated; --cache own can"
	       : o->no_rotate               ? "--no-rotate leaves gaps between the positions of what is kept"
	       : ggml_is_quantized(o->type) ? "a quantised cache can't be rotated; use --cache-type f16"
	                                    : "a policy in blocks can't rotate; those that go token by token can";
}

/* Kept keys are turned when positions would else leave what the model was trained for, as far as that can be done. */
static void decide_rotation(run *r) {
	const run_options *o = r->options;
	int32_t trained = llama_model_n_ctx_train(r->engine.model);
	bool far = trained > 0 && reach(r) > trained,
	     can = !o->blocks && !ggml_is_quantized(o->type) && !policy_streams_hosted(o);
	r->rotate = o->rotate || (far && can && !o->no_rotate);
	if (far && (!r->rotate || o->ctx_budget > trained) && !o->quiet) {
		fprintf(stderr,
		        "note: prompt and answer may reach %d tokens; the model was trained for %d, and what comes after is "
		        "answered worse: %s\n",
		        reach(r), trained, why_far(r));
	} else if (far && o->compare && !o->quiet) {
		fprintf(stderr,
		        "note: prompt and answer may reach %d tokens; the model was trained for %d, and the full cache "
		        "answers worse beyond\n",
		        reach(r), trained);
	}
}

/* The full cache that is compared with. What fits the budget is read in the same batches, so that equal caches answer
 * equally. */
static bool make_full(run *r) {
	const run_options *o = r->options;
	int32_t cells = o->n_ctx ? o->n_ctx : reach(r);
	if (cells < reach(r)) {
		fail("prompt and answer have up to %d tokens, which the full cache of --ctx %d can't hold: give at least --ctx %d",
		     reach(r), cells, reach(r));
		return false;
	}
	if (ckv_llama_create(&r->meter, "full", &r->error)) {
		fail("%s", r->error.message);
		return false;
	}
	bool fits = reach(r) <= o->ctx_budget;
	r->large = engine_context(&r->engine, r->meter, cells, fits ? engine_piece(o->ctx_budget, o->n_ubatch) : o->n_ubatch);
	return r->large != NULL;
}

static bool prepare(run *r) {
	const run_options *o = r->options;
	decide_rotation(r);
	r->small = engine_bounded_context(&r->engine, r->ckv, o->ctx_budget, o->n_ubatch);
	r->result.n_cells = r->small ? (int32_t)llama_n_ctx(r->small) : 0;
	return r->small && (!o->compare || make_full(r));
}

/* ---------------------------------------------------------------------------------------------------------- reading */

static bool begin(run *r) {
	const run_options *o = r->options;
	ckv_llama_stream_options options;
	ckv_llama_stream_options_default(&options);
	options.budget = o->ctx_budget;
	options.interval = o->interval;
	options.rotate = r->rotate;
	llama_memory_clear(llama_get_memory(r->small), false);
	return ckv_llama_stream_begin(r->ckv, r->small, 0, &options) ? run_failed(r, "--ctx-budget") : true;
}

/* The prompt through the bounded cache, from its beginning; seconds that it took. */
static bool read_bounded(run *r, double *took) {
	const cache small = {r->small, r->ckv, NULL};
	progress p;
	if (!begin(r)) {
		return false;
	}
	progress_begin(&p, !r->options->quiet);
	ckv_llama_on_progress(r->ckv, progress_step, &p);
	double start = seconds();
	bool good = generate_decode(&small, r->engine.prompt, r->engine.n_prompt, NULL);
	*took = seconds() - start;
	progress_end(&p);
	ckv_llama_on_progress(r->ckv, NULL, NULL);
	return good && !interrupted();
}

static bool read_full(run *r) {
	const cache large = {r->large, NULL, NULL};
	progress p;
	progress_begin(&p, !r->options->quiet);
	double start = seconds();
	bool good = generate_read(&large, r->engine.prompt, r->engine.n_prompt, (int32_t)llama_n_ubatch(r->large), &p);
	r->result.prefill_full_s = seconds() - start;
	progress_end(&p);
	return good && !interrupted();
}

/* ---------------------------------------------------------------------------------------------------------- answering */

/* The bounded cache has read the prompt already, so the first token counts in what is compared. */
static bool answer_full(run *r, exchange *x) {
	const cache large = {r->large, NULL, NULL};
	const witness w = {{r->small, r->ckv, NULL}, &x->lost};
	if (!read_full(r)) {
		return false;
	}
	double start = seconds();
	llama_token first = llama_sampler_sample(r->sampler_full, r->large, -1);
	x->ttft_full_s = r->result.prefill_full_s + seconds() - start;
	generate_compare(&r->engine, r->large, &w);
	run_heading(r, "full cache", NULL);
	if (!generate_add(&r->engine, &x->full, first) || !generate(&r->engine, &large, r->sampler_full, first, &x->full, &w)) {
		return false;
	}
	r->result.cache_alloc_full = ckv_llama_cache_alloc(r->meter);
	run_drop_large(r);
	return true;
}

static bool answer_bounded(run *r, exchange *x) {
	const cache small = {r->small, r->ckv, NULL};
	double start = seconds();
	llama_token first = llama_sampler_sample(r->sampler, r->small, -1);
	x->ttft_s = r->result.prefill_s + seconds() - start;
	if (r->options->compare) {
		run_heading(r, "cache of fixed size", NULL);
	}
	return generate_add(&r->engine, &x->compressed, first) &&
	       generate(&r->engine, &small, r->sampler, first, &x->compressed, NULL);
}

static bool report(run *r) {
	r->result.stream.size = sizeof r->result.stream;
	if (ckv_llama_stream_get_report(r->ckv, &r->result.stream)) {
		return run_failed(r, "the cache of fixed size can't be reported on");
	}
	r->result.cache_alloc = r->result.stream.cache_alloc;
	return true;
}

bool run_bounded(run *r) {
	exchange *x = &r->result.exchanges[0];
	double again;
	bool good = prepare(r) && read_bounded(r, &r->result.prefill_s);
	if (good && r->options->compare) {
		good = answer_full(r, x) && read_bounded(r, &again);
	}
	return good && answer_bounded(r, x) && report(r);
}
