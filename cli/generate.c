/* Answers, token by token. */
#include "run.h"

static bool decode_alone(struct llama_context *ctx, llama_token *tokens, int32_t n) {
	int32_t code = llama_decode(ctx, llama_batch_get_one(tokens, n));
	llama_synchronize(ctx);
	if (code && !interrupted()) {
		fail("llama_decode failed (%d): %s", code, code == 1 ? "the cache is full" : engine_last_error());
	}
	return code == 0;
}

static bool decode_bounded(ckv_llama *ckv, const llama_token *tokens, int32_t n) {
	ckv_status status = ckv_llama_stream_decode(ckv, tokens, n);
	if (status && !interrupted()) {
		fail("the cache of fixed size could not take what comes next: %s", ckv_llama_message(ckv));
	}
	return status == CKV_OK;
}

bool generate_decode(const cache *c, llama_token *tokens, int32_t n, answer *timed) {
	double start = seconds();
	bool good = c->bounded ? decode_bounded(c->bounded, tokens, n) : decode_alone(c->ctx, tokens, n);
	if (c->compressed) {
		ckv_llama_settle(c->compressed);
	}
	if (timed && good) {
		timed->decode_s += seconds() - start;
		timed->n_decoded++;
	}
	return good;
}

bool generate_read(const cache *c, llama_token *tokens, int32_t n, int32_t size, progress *p) {
	for (int32_t done = 0, now; done < n; done += now) {
		now = n - done < size ? n - done : size;
		if (!generate_decode(c, tokens + done, now, NULL) || (p && !progress_step(done + now, n, p))) {
			return false;
		}
	}
	return true;
}

static FILE *stream_of(const engine *e) { return e->options->json ? NULL : stdout; }

bool generate_add(const engine *e, answer *a, llama_token token) {
	if (!answer_add(a, e->vocab, token, stream_of(e))) {
		fail("no memory for the answer");
		return false;
	}
	return true;
}

static bool goes_on(const engine *e, const answer *a) {
	return !a->stopped && a->n_generated < e->options->n_predict && !interrupted();
}

static bool finish(const engine *e, answer *a) {
	FILE *out = stream_of(e);
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

void generate_compare(const engine *e, struct llama_context *full, const witness *w) {
	divergence_add(w->lost, llama_get_logits_ith(full, -1), llama_get_logits_ith(w->cache.ctx, -1),
	               llama_vocab_n_tokens(e->vocab));
}

bool generate(const engine *e, const cache *c, struct llama_sampler *sampler, llama_token first, answer *a,
              const witness *w) {
	llama_token token = first;
	while (goes_on(e, a)) {
		if (!generate_decode(c, &token, 1, a) || (w && !generate_decode(&w->cache, &token, 1, NULL))) {
			return false;
		}
		if (w) {
			generate_compare(e, c->ctx, w);
		}
		token = llama_sampler_sample(sampler, c->ctx, -1);
		if (!generate_add(e, a, token)) {
			return false;
		}
	}
	return finish(e, a);
}
