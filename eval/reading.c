#include "reading.h"

#include <stdlib.h>
#include <string.h>

enum { UBATCH_JUDGE = 128, REREAD = 128 };

/* ---------------------------------------------------------------------------------------------------------- prompts */

/* One text behind the other; NULL is none. */
static bool join_texts(const char *first, const char *second, buffer *out) {
	size_t n = first ? strlen(first) : 0, more = second ? strlen(second) : 0;
	out->data = malloc(n + more + 1);
	if (!out->data) {
		fail("no memory for the prompt");
		return false;
	}
	memcpy(out->data, first ? first : "", n);
	memcpy(out->data + n, second ? second : "", more);
	out->size = n + more;
	out->data[out->size] = '\0';
	return true;
}

/* The question apart, to be decoded on the compressed cache. */
static bool set_apart(prompt *p, const example *e) {
	p->engine.questions = calloc(1, sizeof *p->engine.questions);
	if (!p->engine.questions) {
		fail("no memory for the question");
		return false;
	}
	p->engine.n_questions = 1;
	return join_texts(e->context, NULL, &p->engine.content) && join_texts(e->question, NULL, &p->engine.questions[0].text);
}

static bool make_forced(prompt *p, const example *e) {
	token_list list = {NULL, 0};
	if (!e->forced) {
		return true;
	}
	bool good = tokens_add(&list, p->engine.vocab, e->forced, strlen(e->forced), false, false);
	p->forced = list.data;
	p->n_forced = list.size < e->n_predict ? list.size : e->n_predict;
	if (good && p->n_forced == 0) {
		fail("%s: the text to be predicted has no tokens", e->id);
		good = false;
	}
	return good;
}

bool prompt_make(prompt *p, const run_options *options, struct llama_model *model, const example *e) {
	memset(p, 0, sizeof *p);
	p->options = *options;
	p->options.no_chat_template = options->no_chat_template || e->plain;
	p->options.quiet = true;
	p->engine.options = &p->options;
	p->engine.model = model;
	p->engine.vocab = llama_model_get_vocab(model);
	p->engine.begun = e->begun;
	bool apart = options->agnostic && e->question && *e->question;
	if (!(apart ? set_apart(p, e) : join_texts(e->context, e->question, &p->engine.content)) || !engine_prompt(&p->engine) ||
	    !make_forced(p, e)) {
		return false;
	}
	int32_t n = p->engine.n_prompt;
	if (n < 2) {
		fail("%s: the prompt has %d tokens, too few to compress", e->id, n);
		return false;
	}
	p->follow = apart ? p->engine.questions[0].tokens : p->engine.prompt + n - 1;
	p->n_follow = apart ? p->engine.questions[0].n_tokens : 1;
	p->base = apart ? n : n - 1;
	return true;
}

void prompt_free(prompt *p) {
	free(p->forced);
	p->engine.model = NULL; /* not ours */
	engine_drop_text(&p->engine);
	memset(p, 0, sizeof *p);
}

/* --------------------------------------------------------------------------------------------------------- contexts */

static struct llama_context *open_context(const prompt *any, plan *all, enum ggml_type type, int32_t n_cells,
                                          int32_t n_ubatch) {
	struct llama_context_params params = engine_context_params(&any->engine, n_cells, n_ubatch);
	params.type_k = params.type_v = type;
	if (!plan_attach(all, &params)) {
		return NULL;
	}
	struct llama_context *ctx = llama_init_from_model(any->engine.model, params);
	if (!ctx) {
		fail("llama.cpp could not make a context of %d cells: %s", n_cells, engine_last_error());
	}
	return ctx;
}

bool reading_open(reading *r, const prompt *any, plan *all, enum ggml_type type, int32_t n_prompt, int32_t n_judged) {
	int32_t window = llama_model_n_swa(any->engine.model);
	int32_t cells = n_judged > window + UBATCH_JUDGE ? n_judged : window + UBATCH_JUDGE;
	memset(r, 0, sizeof *r);
	r->capacity = n_prompt;
	r->held = malloc((size_t)n_prompt * sizeof *r->held);
	if (!r->held) {
		fail("no memory to read prompts");
		return false;
	}
	r->large = open_context(any, all, type, n_prompt, any->options.n_ubatch);
	r->judge = r->large ? open_context(any, all, type, cells, UBATCH_JUDGE) : NULL;
	return r->judge;
}

void reading_close(reading *r) {
	llama_free(r->judge);
	llama_free(r->large);
	free(r->held);
	memset(r, 0, sizeof *r);
}

/* ---------------------------------------------------------------------------------------------------------- reading */

/* Tokens that need not be read again: all, or so many that enough new ones follow for any window. */
static int32_t in_common(const reading *r, const prompt *p, const plan *all) {
	const engine *e = &p->engine;
	int32_t n = 0, most = e->n_prompt - REREAD;
	while (n < r->n_held && n < e->n_prompt && r->held[n] == e->prompt[n]) {
		n++;
	}
	if (n == e->n_prompt && n == r->n_held) {
		return n;
	}
	for (int i = 0; i < all->n_policies; i++) {
		int32_t window = all->policies[i].params.window;
		most = e->n_prompt - window < most ? e->n_prompt - window : most;
	}
	bool can = plan_can_rewind(all) && llama_model_n_swa(e->model) == 0;
	n = n < most ? n : most;
	return can && n > 0 ? n : 0;
}

static bool read_from(reading *r, const prompt *p, plan *all, int32_t start) {
	planned_policy *first = &all->policies[0];
	if (!llama_memory_seq_rm(llama_get_memory(r->large), 0, start, -1)) {
		fail("the prompt before could not be taken back");
		return false;
	}
	if (!plan_observe(all, r->large)) {
		return false;
	}
	ckv_status status = ckv_llama_prefill(first->ckv, r->large, 0, p->engine.prompt + start, p->engine.n_prompt - start);
	plan_observe_end(all);
	if (status && !interrupted()) {
		fail("the prompt could not be read: %s", ckv_llama_message(first->ckv));
	}
	return status == CKV_OK;
}

bool reading_read(reading *r, const prompt *p, plan *all) {
	/* What the policies have in view may be of another cache type, read since. */
	int32_t n = p->engine.n_prompt, start = all->observed == r->large ? in_common(r, p, all) : 0;
	if (start == n) {
		return true;
	}
	r->n_held = 0;
	if (!read_from(r, p, all, start)) {
		return false;
	}
	memcpy(r->held, p->engine.prompt, (size_t)n * sizeof *r->held);
	r->n_held = n;
	return true;
}

bool reading_again(reading *r, planned_policy *policy) {
	if (ckv_llama_restore(policy->ckv, r->judge, 0)) {
		fail("%s: %s", policy->text, ckv_llama_message(policy->ckv));
		return false;
	}
	return true;
}

bool reading_compress(reading *r, const prompt *p, planned_policy *policy, ckv_budget budget, ckv_llama_report *report) {
	report->size = sizeof *report;
	bool redo = p->base < p->engine.n_prompt;
	ckv_status status = redo ? ckv_llama_extract_but_last(policy->ckv, r->large, 0, budget, report)
	                         : ckv_llama_extract(policy->ckv, r->large, 0, budget, report);
	if (status) {
		fail("%s: %s", policy->text, ckv_llama_message(policy->ckv));
	}
	return status == CKV_OK && reading_again(r, policy);
}

/* --------------------------------------------------------------------------------------------------------- decoding */

/* One batch of tokens[n], the next ones at `position`; logits from number `from` on. */
static bool decode_batch(reading *r, struct llama_batch *batch, int32_t position, int32_t from) {
	for (int32_t i = 0; i < batch->n_tokens; i++) {
		batch->pos[i] = position + i;
		batch->n_seq_id[i] = 1;
		batch->seq_id[i][0] = 0;
		batch->logits[i] = i >= from;
	}
	int32_t code = llama_decode(r->judge, *batch);
	llama_synchronize(r->judge);
	if (code && !interrupted()) {
		fail("llama_decode failed (%d): %s", code, code == 1 ? "the cache is full" : engine_last_error());
	}
	return code == 0;
}

bool reading_decode(reading *r, int32_t position, const llama_token *first, int32_t n_first, const llama_token *then,
                    int32_t n_then, on_logits callback, void *user) {
	int32_t n = n_first + n_then;
	struct llama_batch batch = llama_batch_init(UBATCH_JUDGE, 0, 1);
	bool good = batch.token;
	if (!good) {
		fail("no memory for a batch of %d tokens", UBATCH_JUDGE);
		return false;
	}
	for (int32_t done = 0; done < n && good; done += batch.n_tokens) {
		batch.n_tokens = n - done < UBATCH_JUDGE ? n - done : UBATCH_JUDGE;
		for (int32_t i = 0; i < batch.n_tokens; i++) {
			int32_t at = done + i;
			batch.token[i] = at < n_first ? first[at] : then[at - n_first];
		}
		int32_t from = n_first - 1 - done > 0 ? n_first - 1 - done : 0;
		good = decode_batch(r, &batch, position + done, from);
		for (int32_t i = from; i < batch.n_tokens && good; i++) {
			callback(done + i - (n_first - 1), llama_get_logits_ith(r->judge, i), user);
		}
	}
	llama_batch_free(batch);
	return good;
}
