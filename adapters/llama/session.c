/* Beginning and ending an observation, and announcing a batch to it. */
#include "adapters/llama/internal.h"

void ckv_llama_forget_batch(ckv_llama *ckv) {
	ckv_llama_release(ckv, ckv->seen.mine);
	ckv->seen.mine = NULL;
	ckv->seen.n_expected = ckv->seen.expected_at = ckv->seen.own_at = 0;
}

/* What was observed of this sequence still stands, and reaches to position n at least. */
static bool goes_on(const ckv_llama *ckv, struct llama_context *ctx, llama_seq_id seq, int32_t n) {
	const observation *seen = &ckv->seen;
	bool same = seen->ctx == ctx && seen->memory == (const void *)llama_get_memory(ctx) && seen->seq == seq && !seen->flaw;
	bool reaches = ckv_llama_observed_tokens(ckv) >= n, exactly = reaches && ckv_llama_observed_most(ckv) == n;
	return same && (exactly || (reaches && !seen->sliding && ckv_llama_can_rewind(ckv)));
}

static ckv_status refuse_begin(ckv_llama *ckv, llama_seq_id seq, int32_t n) {
	if (!ckv_llama_can_rewind(ckv) && ckv_llama_observed_most(ckv) > n) {
		return ckv_llama_fail(
		    ckv, CKV_ERR_STATE,
		    "policy '%s' sums over all queries, and tokens of sequence %d were taken back: observe it from its "
		    "first token",
		    ckv_ctx_params(ckv->core)->preset, seq);
	}
	return ckv_llama_fail(ckv, CKV_ERR_STATE,
	                      "sequence %d already has %d tokens that were not observed: observe it from its first token", seq,
	                      n);
}

ckv_status ckv_llama_observe_begin(ckv_llama *ckv, struct llama_context *ctx, llama_seq_id seq) {
	if (!ckv || !ctx || seq < 0 || (uint32_t)seq >= llama_n_seq_max(ctx)) {
		return CKV_ERR_ARG;
	}
	ckv_llama_begin(ckv);
	if (!ckv->attached) {
		return ckv_llama_fail(ckv, CKV_ERR_STATE, "call ckv_llama_attach before the context is made");
	}
	ckv_needs needs;
	ckv_status status = ckv_params_needs(ckv_ctx_params(ckv->core), &needs);
	if (status) {
		return ckv_llama_fail(ckv, status, "the policy's parameters are not usable");
	}
	observation *seen = &ckv->seen;
	int32_t n = llama_memory_seq_pos_max(llama_get_memory(ctx), seq) + 1;
	if (ckv->host.cache && ckv->host.memory == llama_get_memory(ctx)) {
		if (n > 0) {
			return ckv_llama_fail(ckv, CKV_ERR_STATE,
			                      "sequence %d attends to a hosted cache, whose rows are not there to be observed", seq);
		}
		ckv_llama_host_leave(ckv); /* another prompt in its place */
	}
	if (n > 0 && !goes_on(ckv, ctx, seq, n)) {
		return refuse_begin(ckv, seq, n);
	}
	if (n == 0) {
		ckv_llama_observe_clear(ckv);
	} else if (ckv_llama_observed_most(ckv) > n) {
		ckv_llama_observe_rewind(ckv, n);
	}
	const struct llama_model *model = llama_get_model(ctx);
	ckv_llama_forget_batch(ckv);
	seen->needs = needs.flags;
	seen->window = needs.n_queries;
	seen->sinks = ckv_ctx_params(ckv->core)->sinks;
	seen->n_embd = llama_model_n_embd(model);
	seen->ctx = ctx;
	seen->memory = llama_get_memory(ctx);
	seen->sliding = llama_model_n_swa(model) > 0;
	seen->seq = seq;
	seen->active = true;
	return CKV_OK;
}

ckv_status ckv_llama_observe_end(ckv_llama *ckv) {
	if (!ckv) {
		return CKV_ERR_ARG;
	}
	ckv->seen.active = false;
	return CKV_OK;
}

ckv_status ckv_llama_expect(ckv_llama *ckv, const struct llama_batch *batch) {
	if (!ckv || !batch || batch->n_tokens < 1) {
		return CKV_ERR_ARG;
	}
	ckv_llama_begin(ckv);
	observation *seen = &ckv->seen;
	if (!seen->active) {
		return ckv_llama_fail(ckv, CKV_ERR_STATE, "nothing is observed: call ckv_llama_observe_begin first");
	}
	uint8_t *mine = ckv_llama_grow(ckv, NULL, 0, batch->n_tokens, sizeof *mine);
	if (!mine) {
		return ckv_llama_fail(ckv, CKV_ERR_NOMEM, "no memory for the ids of a batch of %d tokens", batch->n_tokens);
	}
	for (int32_t i = 0; i < batch->n_tokens; i++) {
		bool own = batch->n_seq_id && batch->seq_id ? batch->seq_id[i][0] == seen->seq : seen->seq == 0;
		bool output = batch->logits ? batch->logits[i] != 0 : i == batch->n_tokens - 1;
		mine[i] = (uint8_t)((own ? MINE : 0) | (output ? OUTPUT : 0));
		if (batch->n_seq_id && batch->n_seq_id[i] != 1) {
			ckv_llama_release(ckv, mine);
			return ckv_llama_fail(ckv, CKV_ERR_UNSUPPORTED, "token %d of the batch belongs to %d sequences", i,
			                      batch->n_seq_id[i]);
		}
	}
	ckv_llama_forget_batch(ckv);
	seen->mine = mine;
	seen->n_expected = batch->n_tokens;
	seen->now.last_layer = INT32_MAX;
	seen->now.n_tokens = 0;
	return CKV_OK;
}
