#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct llama_model *loaded;

static void quiet(enum ggml_log_level level, const char *text, void *user) {
	(void)user;
	if (level == GGML_LOG_LEVEL_ERROR) {
		fprintf(stderr, "llama.cpp: %s", text);
	}
}

struct llama_model *model_load(void) {
	const char *path = getenv("CKV_TEST_MODEL");
	if (!path || !*path) {
		print_message("CKV_TEST_MODEL is not set\n");
		skip();
	}
	if (!loaded) {
		llama_log_set(quiet, NULL);
		llama_backend_init();
		loaded = llama_model_load_from_file(path, llama_model_default_params());
	}
	assert_non_null(loaded);
	return loaded;
}

int model_unload(void **state) {
	(void)state;
	if (loaded) {
		llama_model_free(loaded);
		llama_backend_free();
		loaded = NULL;
	}
	return 0;
}

static char *read_document(void) {
	FILE *file = fopen(CKV_DOCUMENT, "rb");
	assert_non_null(file);
	char *text = calloc(1, 1 << 16);
	assert_non_null(text);
	assert_true(fread(text, 1, (1 << 16) - 1, file) > 1000);
	fclose(file);
	return text;
}

void prompt_make(const struct llama_model *model, int32_t start, int32_t n, const char *question, prompt *out) {
	enum { ROOM = 1 << 15 };
	const struct llama_vocab *vocab = llama_model_get_vocab(model);
	char *text = read_document();
	llama_token *all = calloc(ROOM, sizeof *all);
	int32_t count = llama_tokenize(vocab, text, (int32_t)strlen(text), all, ROOM, false, false);
	assert_true(count >= start + n);
	int32_t head = llama_tokenize(vocab, "<|im_start|>user\n", 17, out->tokens, 32, true, true);
	assert_true(head > 0 && head + n + 64 < MAX_PROMPT);
	memcpy(out->tokens + head, all + start, (size_t)n * sizeof *all);
	char tail[512];
	int length = snprintf(tail, sizeof tail, "\n\n%s<|im_end|>\n<|im_start|>assistant\n", question);
	int32_t rest = llama_tokenize(vocab, tail, length, out->tokens + head + n, MAX_PROMPT - head - n, false, true);
	assert_true(rest > 0);
	out->n = head + n + rest;
	free(all);
	free(text);
}

struct llama_context_params model_params(int32_t n_cells, enum ggml_type type) {
	struct llama_context_params params = llama_context_default_params();
	params.n_ctx = (uint32_t)n_cells;
	params.n_batch = params.n_ubatch = 256;
	params.n_threads = params.n_threads_batch = 2;
	params.type_k = params.type_v = type;
	params.swa_full = false;
	return params;
}

static llama_token best(struct llama_context *ctx) {
	const float *logits = llama_get_logits_ith(ctx, -1);
	int32_t n = llama_vocab_n_tokens(llama_model_get_vocab(llama_get_model(ctx))), at = 0;
	for (int32_t i = 1; i < n; i++) {
		at = logits[i] > logits[at] ? i : at;
	}
	return at;
}

void decode_greedy(struct llama_context *ctx, llama_seq_id seq, int32_t position, int32_t n, llama_token *out) {
	struct llama_batch batch = llama_batch_init(1, 0, 1);
	out[0] = best(ctx);
	for (int32_t i = 1; i < n; i++) {
		batch.n_tokens = 1;
		batch.token[0] = out[i - 1];
		batch.pos[0] = position + i - 1;
		batch.n_seq_id[0] = 1;
		batch.seq_id[0][0] = seq;
		batch.logits[0] = true;
		assert_int_equal(llama_decode(ctx, batch), 0);
		out[i] = best(ctx);
	}
	llama_batch_free(batch);
}

void assert_ok(const ckv_llama *ckv, ckv_status status) {
	if (status != CKV_OK) {
		fail_msg("status %d (%s): %s", (int)status, ckv_strerror(status), ckv_llama_message(ckv));
	}
}

void open_with(fixture *f, const char *policy, struct llama_context_params params) {
	ckv_error error;
	f->ckv = NULL;
	assert_int_equal(ckv_llama_create(&f->ckv, policy, &error), CKV_OK);
	assert_ok(f->ckv, ckv_llama_attach(f->ckv, &params));
	f->ctx = llama_init_from_model(f->model, params);
	assert_non_null(f->ctx);
}

void open_fixture(fixture *f, const char *policy, int32_t start, int32_t n, enum ggml_type type) {
	f->model = model_load();
	prompt_make(f->model, start, n, "What is the name of the cat?", &f->prompt);
	open_with(f, policy, model_params(f->prompt.n + MAX_NEW, type));
	assert_ok(f->ckv, ckv_llama_prefill(f->ckv, f->ctx, 0, f->prompt.tokens, f->prompt.n));
}

void close_fixture(fixture *f) {
	llama_free(f->ctx);
	ckv_llama_free(f->ckv);
}

int32_t room(const fixture *f, int32_t n) {
	int32_t window = llama_model_n_swa(f->model);
	return window && n < window + 256 ? window + 256 : n;
}

void decode_part(fixture *f, int32_t from, int32_t n) {
	struct llama_batch batch = llama_batch_get_one(f->prompt.tokens + from, n);
	assert_int_equal(llama_decode(f->ctx, batch), 0);
}

double divergence(const float *full, const float *other, int32_t n) {
	double most[2] = {-1e30, -1e30}, sum[2] = {0, 0}, kl = 0;
	const float *x[2] = {full, other};
	for (int k = 0; k < 2; k++) {
		for (int32_t i = 0; i < n; i++) {
			most[k] = (double)x[k][i] > most[k] ? (double)x[k][i] : most[k];
		}
		for (int32_t i = 0; i < n; i++) {
			sum[k] += exp((double)x[k][i] - most[k]);
		}
	}
	for (int32_t i = 0; i < n; i++) {
		double p = exp((double)full[i] - most[0]) / sum[0];
		kl += p * ((double)full[i] - most[0] - log(sum[0]) - (double)other[i] + most[1] + log(sum[1]));
	}
	return kl;
}
