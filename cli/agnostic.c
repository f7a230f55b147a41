/* The document is compressed before any question is seen; each question then goes on from the same compressed document. It
 * is decoded on the compressed cache, so that the answer's first token counts in what is compared. */
#include "run.h"

#include <stdlib.h>

/* The full cache after the document, to come back to for each question: in models with sliding-window layers an answer
 * pushes rows out of their windows, and only a copy has them. */
typedef struct checkpoint {
	uint8_t *state; /* NULL: taking back what followed is enough */
	size_t size;
} checkpoint;

static bool keep_checkpoint(const run *r, checkpoint *c) {
	if (!r->options->compare || llama_model_n_swa(r->engine.model) == 0) {
		return true;
	}
	c->size = llama_state_seq_get_size(r->large, 0);
	c->state = malloc(c->size ? c->size : 1);
	if (!c->state || llama_state_seq_get_data(r->large, c->state, c->size, 0) != c->size) {
		fail("the full cache could not be copied: %s", c->state ? engine_last_error() : "no memory");
		return false;
	}
	return true;
}

/* Before the first question too: a copy put back has other cells than the prefill left, so sums round otherwise, and no
 * question should be answered differently for being the first. */
static bool go_back(const run *r, const checkpoint *c) {
	bool good = c->state ? llama_state_seq_set_data(r->large, c->state, c->size, 0) == c->size
	                     : llama_memory_seq_rm(llama_get_memory(r->large), 0, r->engine.n_prompt, -1);
	if (!good) {
		fail("the full cache could not be taken back to the document's end: %s", engine_last_error());
	}
	return good;
}

/* The compressed document and the question, on the small context. */
static bool ask_compressed(run *r, const engine_question *q) {
	ckv_status status = ckv_llama_ask(r->ckv, r->small, 0, q->tokens, q->n_tokens);
	if (status == CKV_ERR_CANCELLED || interrupted()) {
		return false;
	}
	return status ? run_failed(r, "the question could not be asked") : true;
}

/* The question on the large context, in the small one's batches: equal caches then give equal answers. */
static bool ask_full(const run *r, const engine_question *q) {
	int32_t size = (int32_t)llama_n_ubatch(r->small), most = (int32_t)llama_n_ubatch(r->large);
	const cache large = {r->large, NULL, NULL};
	return generate_read(&large, q->tokens, q->n_tokens, size < most ? size : most, NULL);
}

static bool answer_full(run *r, const engine_question *q, exchange *x) {
	double start = seconds();
	if (!ask_full(r, q)) {
		return false;
	}
	llama_sampler_reset(r->sampler_full);
	llama_token first = llama_sampler_sample(r->sampler_full, r->large, -1);
	x->ttft_full_s = seconds() - start;
	if (!ask_compressed(r, q)) {
		return false;
	}
	const cache small = {r->small, NULL, r->ckv}, large = {r->large, NULL, NULL};
	witness w = {small, &x->lost};
	generate_compare(&r->engine, r->large, &w);
	run_heading(r, "full cache", NULL);
	return generate_add(&r->engine, &x->full, first) && generate(&r->engine, &large, r->sampler_full, first, &x->full, &w) &&
	       run_check(r);
}

static bool answer_compressed(run *r, const engine_question *q, exchange *x) {
	double start = seconds();
	if (!ask_compressed(r, q)) {
		return false;
	}
	llama_sampler_reset(r->sampler);
	llama_token first = llama_sampler_sample(r->sampler, r->small, -1);
	x->ttft_s = seconds() - start;
	if (r->options->compare) {
		run_heading(r, "compressed cache", NULL);
	}
	const cache small = {r->small, NULL, r->ckv};
	return generate_add(&r->engine, &x->compressed, first) &&
	       generate(&r->engine, &small, r->sampler, first, &x->compressed, NULL) && run_check(r);
}

static bool answer_one(run *r, int32_t i, const checkpoint *c) {
	const engine_question *q = &r->engine.questions[i];
	exchange *x = &r->result.exchanges[i];
	x->question = q->text.data;
	x->n_question = q->n_tokens;
	if (r->result.n_exchanges > 1) {
		char what[32];
		snprintf(what, sizeof what, "question %d", i + 1);
		run_heading(r, what, x->question);
	}
	if (!r->options->compare) {
		return answer_compressed(r, q, x);
	}
	if (!go_back(r, c) || !answer_full(r, q, x)) {
		return false;
	}
	if (i + 1 == r->result.n_exchanges) {
		run_drop_large(r);
	}
	return answer_compressed(r, q, x);
}

bool run_agnostic(run *r) {
	checkpoint c = {NULL, 0};
	bool good = run_extract(r) && keep_checkpoint(r, &c);
	if (good && !r->options->compare) {
		run_drop_large(r); /* before the small one is made: the two need not fit side by side */
	}
	good = good && run_make_small(r);
	for (int32_t i = 0; i < r->result.n_exchanges && good; i++) {
		good = answer_one(r, i, &c);
	}
	ckv_llama_drop(r->ckv);
	free(c.state);
	return good;
}
