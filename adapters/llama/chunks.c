/* Where chunks end, from the tokens' own text. */
#include "adapters/llama/internal.h"

#include <string.h>

typedef struct text {
	char *data;
	size_t size, capacity;
	size_t *ends; /* [n_tokens] */
	int32_t *starts;
} text;

static bool add_piece(ckv_llama *ckv, text *t, const struct llama_vocab *vocab, llama_token token) {
	char piece[256];
	int32_t n = llama_token_to_piece(vocab, token, piece, sizeof piece, 0, false);
	if (n < 0) { /* longer than any piece of text: its ends tell nothing */
		n = 0;
	}
	if (t->size + (size_t)n > t->capacity) {
		size_t capacity = 2 * t->capacity + sizeof piece;
		char *bigger = ckv_llama_alloc(ckv, capacity, 1);
		if (!bigger) {
			return false;
		}
		if (t->size) {
			memcpy(bigger, t->data, t->size);
		}
		ckv_llama_release(ckv, t->data);
		t->data = bigger;
		t->capacity = capacity;
	}
	if (n) {
		memcpy(t->data + t->size, piece, (size_t)n);
	}
	t->size += (size_t)n;
	return true;
}

static ckv_status read_text(ckv_llama *ckv, text *t, const struct llama_model *model, int32_t n_tokens) {
	const struct llama_vocab *vocab = llama_model_get_vocab(model);
	for (int32_t i = 0; i < n_tokens; i++) {
		llama_token token = i < ckv->seen.token_capacity ? ckv->seen.tokens[i] : -1;
		if (token < 0 || token >= llama_vocab_n_tokens(vocab)) {
			return ckv_llama_fail(ckv, CKV_ERR_UNSUPPORTED,
			                      "chunker '%s' goes by the text, and token %d was given as an embedding",
			                      ckv_ctx_params(ckv->core)->chunker, i);
		}
		if (!add_piece(ckv, t, vocab, token)) {
			return ckv_llama_fail(ckv, CKV_ERR_NOMEM, "no memory for the text of the tokens");
		}
		t->ends[i] = t->size;
	}
	return CKV_OK;
}

static ckv_status set_chunks(ckv_llama *ckv, text *t, const struct llama_model *model, int32_t n_tokens) {
	int32_t n_chunks = 0;
	if (!t->ends || !t->starts) {
		return ckv_llama_fail(ckv, CKV_ERR_NOMEM, "no memory for the chunks");
	}
	ckv_status status = read_text(ckv, t, model, n_tokens);
	if (status) {
		return status;
	}
	status = ckv_chunk_text(ckv_ctx_params(ckv->core), t->data ? t->data : "", t->ends, n_tokens, t->starts, &n_chunks);
	status = status ? status : ckv_set_chunks(ckv->core, t->starts, n_chunks, n_tokens);
	return status ? ckv_llama_fail(ckv, status, "%s", ckv_ctx_message(ckv->core)) : CKV_OK;
}

ckv_status ckv_llama_set_chunks(ckv_llama *ckv, const struct llama_model *model, int32_t n_tokens) {
	text t = {NULL, 0, 0, NULL, NULL};
	if (!(ckv->seen.needs & CKV_NEED_CHUNKS)) {
		return CKV_OK;
	}
	t.ends = ckv_llama_alloc(ckv, (size_t)n_tokens, sizeof *t.ends);
	t.starts = ckv_llama_alloc(ckv, (size_t)n_tokens, sizeof *t.starts);
	ckv_status status = set_chunks(ckv, &t, model, n_tokens);
	ckv_llama_release(ckv, t.data);
	ckv_llama_release(ckv, t.ends);
	ckv_llama_release(ckv, t.starts);
	return status;
}
