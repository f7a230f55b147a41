/* The prompt through llama_decode in batches, observed; and a question after a compressed document, unobserved. */
#include "adapters/llama/internal.h"

ckv_status ckv_llama_decode_batch(ckv_llama *ckv, struct llama_context *ctx, struct llama_batch *batch, llama_seq_id seq,
                                  const llama_token *tokens, int32_t position, bool last) {
	for (int32_t i = 0; i < batch->n_tokens; i++) {
		batch->token[i] = tokens[i];
		batch->pos[i] = position + i;
		batch->n_seq_id[i] = 1;
		batch->seq_id[i][0] = seq;
		batch->logits[i] = last && i == batch->n_tokens - 1;
	}
	int32_t result = llama_decode(ctx, *batch);
	if (result == 1) {
		return ckv_llama_fail(ckv, CKV_ERR_HOST, "the context (%u cells) has no room for token %d of the prompt",
		                      llama_n_ctx(ctx), position + batch->n_tokens);
	}
	if (result == 2) {
		return ckv_llama_fail(ckv, CKV_ERR_CANCELLED, "stopped at token %d of the prompt", position);
	}
	return result ? ckv_llama_fail(ckv, CKV_ERR_HOST, "llama_decode failed (%d) at token %d of the prompt", result, position)
	              : CKV_OK;
}

/* Beside a hosted cache there may be fewer cells than a batch could have tokens. */
static int32_t batch_size(const ckv_llama *ckv, struct llama_context *ctx) {
	int32_t size = (int32_t)llama_n_ubatch(ctx), room = (int32_t)llama_n_ctx(ctx) - ckv->host.window - 1;
	bool hosted = ckv->host.cache && ckv->host.memory == llama_get_memory(ctx);
	return hosted && room > 0 && room < size ? room : size;
}

static ckv_status decode_all(ckv_llama *ckv, struct llama_context *ctx, llama_seq_id seq, const llama_token *tokens,
                             int32_t n_tokens) {
	int32_t size = batch_size(ckv, ctx), start = llama_memory_seq_pos_max(llama_get_memory(ctx), seq) + 1;
	struct llama_batch batch = llama_batch_init(size, 0, 1);
	ckv_status status = CKV_OK;
	if (!batch.token) {
		return ckv_llama_fail(ckv, CKV_ERR_NOMEM, "no memory for a batch of %d tokens", size);
	}
	for (int32_t done = 0; done < n_tokens && status == CKV_OK; done += batch.n_tokens) {
		batch.n_tokens = n_tokens - done < size ? n_tokens - done : size;
		bool last = done + batch.n_tokens == n_tokens;
		status = ckv_llama_decode_batch(ckv, ctx, &batch, seq, tokens + done, start + done, last);
		ckv_llama_settle(ckv);
		if (status == CKV_OK && ckv->progress && !ckv->progress(done + batch.n_tokens, n_tokens, ckv->progress_user)) {
			status = ckv_llama_fail(ckv, CKV_ERR_CANCELLED, "stopped after %d of %d prompt tokens", done + batch.n_tokens,
			                        n_tokens);
		}
	}
	llama_batch_free(batch);
	return status;
}

ckv_status ckv_llama_prefill(ckv_llama *ckv, struct llama_context *ctx, llama_seq_id seq, const llama_token *tokens,
                             int32_t n_tokens) {
	if (!ckv || !ctx || !tokens || n_tokens < 1) {
		return CKV_ERR_ARG;
	}
	ckv_status status = ckv_llama_observe_begin(ckv, ctx, seq);
	if (status) {
		return status;
	}
	status = decode_all(ckv, ctx, seq, tokens, n_tokens);
	llama_synchronize(ctx);
	ckv_llama_observe_end(ckv);
	if (status) {
		/* llama.cpp takes a failed batch back; so does the observation, and the prefill can go on from there. */
		int32_t n = llama_memory_seq_pos_max(llama_get_memory(ctx), seq) + 1;
		bool torn = !ckv_llama_can_rewind(ckv) && ckv_llama_observed_most(ckv) != n;
		ckv->seen.flaw = torn && !ckv->seen.flaw ? FLAW_TORN : ckv->seen.flaw;
		ckv_llama_observe_rewind(ckv, n);
	}
	return status;
}

ckv_status ckv_llama_ask(ckv_llama *ckv, struct llama_context *ctx, llama_seq_id seq, const llama_token *tokens,
                         int32_t n_tokens) {
	if (!ckv || !ctx || !tokens || n_tokens < 1) {
		return CKV_ERR_ARG;
	}
	if (ckv->seen.active) {
		ckv_llama_begin(ckv);
		return ckv_llama_fail(ckv, CKV_ERR_STATE, "a sequence is being observed: call ckv_llama_observe_end first");
	}
	ckv_status status = ckv_llama_restore(ckv, ctx, seq);
	status = status ? status : decode_all(ckv, ctx, seq, tokens, n_tokens);
	llama_synchronize(ctx);
	return status;
}
