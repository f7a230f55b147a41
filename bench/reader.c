#include "reader.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool reader_open(reader *r, const char *model, const char *text) {
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	buffer content;
	memset(r, 0, sizeof *r);
	engine_log(false);
	llama_backend_init();
	r->n_threads = processors > 0 ? (int32_t)processors : 1;
	r->model = llama_model_load_from_file(model, llama_model_default_params());
	if (!r->model || !text_read(text, &content)) {
		return !fail("'%s' could not be loaded", model);
	}
	r->vocab = llama_model_get_vocab(r->model);
	r->n_vocab = llama_vocab_n_tokens(r->vocab);
	int32_t room = (int32_t)content.size + 16;
	r->tokens = malloc((size_t)room * sizeof *r->tokens);
	r->n_tokens =
	    r->tokens ? llama_tokenize(r->vocab, content.data, (int32_t)content.size, r->tokens, room, true, false) : -1;
	text_free(&content);
	return r->n_tokens > 0 || !fail("'%s' could not be turned into tokens", text);
}

void reader_close(reader *r) {
	free(r->tokens);
	llama_model_free(r->model);
	llama_backend_free();
}

static bool make_observer(const reader *r, const char *policy, bounded_context *out) {
	char text[256];
	ckv_error error;
	ckv_params once;
	ckv_stream_params stream;
	ckv_ctx_options options;
	ckv_ctx_options_default(&options);
	options.n_threads = r->n_threads;
	snprintf(text, sizeof text, "%s", policy);
	char *suffix = strstr(text, "+rotate");
	out->rotate = suffix != NULL;
	if (suffix) {
		*suffix = '\0';
	}
	bool blocks = text[0] == '=';
	ckv_status status = blocks ? ckv_policy_parse(text + 1, &once, &error) : ckv_stream_parse(text, &stream, &error);
	if (status == CKV_OK) {
		status = blocks ? ckv_llama_create_params(&out->ckv, &once, &options, &error)
		                : ckv_llama_create_stream(&out->ckv, &stream, &options, &error);
	}
	return status == CKV_OK || !fail("%s", error.message);
}

bool bounded_context_open(const reader *r, const char *policy, int32_t n_cells, int32_t n_ubatch, bounded_context *out) {
	struct llama_context_params params = llama_context_default_params();
	memset(out, 0, sizeof *out);
	params.n_ctx = (uint32_t)n_cells;
	params.n_batch = params.n_ubatch = (uint32_t)n_ubatch;
	params.n_threads = params.n_threads_batch = r->n_threads;
	params.swa_full = false;
	params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
	if (policy && (!make_observer(r, policy, out) || ckv_llama_attach(out->ckv, &params))) {
		return false;
	}
	out->ctx = llama_init_from_model(r->model, params);
	return out->ctx ? !policy || bounded_context_begin(out) : !fail("no context of %d cells", n_cells);
}

bool bounded_context_begin(bounded_context *b) {
	ckv_llama_stream_options options;
	ckv_llama_stream_options_default(&options);
	options.rotate = b->rotate;
	llama_memory_clear(llama_get_memory(b->ctx), false);
	return ckv_llama_stream_begin(b->ckv, b->ctx, 0, &options) == CKV_OK || !fail("%s", ckv_llama_message(b->ckv));
}

bool bounded_context_decode(const bounded_context *b, llama_token *tokens, int32_t n) {
	if (b->ckv) {
		return ckv_llama_stream_decode(b->ckv, tokens, n) == CKV_OK || !fail("%s", ckv_llama_message(b->ckv));
	}
	bool good = llama_decode(b->ctx, llama_batch_get_one(tokens, n)) == 0;
	llama_synchronize(b->ctx);
	return good || !fail("llama_decode failed: %s", engine_last_error());
}

void bounded_context_close(bounded_context *b) {
	llama_free(b->ctx);
	ckv_llama_free(b->ckv);
	memset(b, 0, sizeof *b);
}
