/* The question is known when the cache is compressed: it is part of the prompt, and in the observed window. The answer's
 * first token comes from the prefill and says nothing about the compressed cache, so it is left out of what is compared. */
#include "run.h"

/* The kept rows into the small context. `timed`: the first time is part of what compression costs. */
static bool restore(run *r, bool timed) {
	double start = seconds();
	if (ckv_llama_restore(r->ckv, r->small, 0)) {
		return run_failed(r, "the kept rows could not be put back");
	}
	r->result.compact_s += timed ? seconds() - start : 0.0;
	return true;
}

static bool answer_alone(run *r, exchange *x, llama_token first) {
	if (!generate_add(&r->engine, &x->compressed, first) || !run_extract(r)) {
		return false;
	}
	run_drop_large(r); /* before the small one is made: the two need not fit side by side */
	if (!run_make_small(r) || !restore(r, true)) {
		return false;
	}
	ckv_llama_drop(r->ckv);
	const cache small = {r->small, NULL, r->ckv};
	return generate(&r->engine, &small, r->sampler, first, &x->compressed, NULL) && run_check(r);
}

static bool answer_both(run *r, exchange *x, llama_token first) {
	if (!run_extract(r) || !run_make_small(r) || !restore(r, true)) {
		return false;
	}
	const cache small = {r->small, NULL, r->ckv}, large = {r->large, NULL, NULL};
	witness w = {small, &x->lost};
	run_heading(r, "full cache", NULL);
	if (!generate_add(&r->engine, &x->full, first) || !generate(&r->engine, &large, r->sampler_full, first, &x->full, &w) ||
	    !run_check(r)) {
		return false;
	}
	run_drop_large(r);
	if (!restore(r, false)) { /* again from the compressed prompt alone */
		return false;
	}
	ckv_llama_drop(r->ckv);
	run_heading(r, "compressed cache", NULL);
	return generate_add(&r->engine, &x->compressed, first) &&
	       generate(&r->engine, &small, r->sampler, first, &x->compressed, NULL) && run_check(r);
}

bool run_in_window(run *r) {
	exchange *x = &r->result.exchanges[0];
	/* Each sampler draws, with the same seed, so that both go on alike from here. */
	llama_token first = llama_sampler_sample(r->sampler, r->large, -1);
	llama_sampler_sample(r->sampler_full, r->large, -1);
	x->ttft_s = x->ttft_full_s = seconds() - r->start;
	return r->options->compare ? answer_both(r, x, first) : answer_alone(r, x, first);
}
