/* A real model, prompts and greedy decoding, for the tests of the adapter. */
#ifndef MODEL_SUPPORT_H
#define MODEL_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <chunkkv/llama.h>

enum { MAX_PROMPT = 4096, MAX_NEW = 64 };

typedef struct prompt {
	llama_token tokens[MAX_PROMPT];
	int32_t n;
} prompt;

/* Loads the model named by CKV_TEST_MODEL once; skips the test when it is not set, fails when it can't be loaded.
 */
struct llama_model *model_load(void);
int model_unload(void **state);

/* The first n tokens of the demo document from token `start`, then a question. */
void prompt_make(const struct llama_model *model, int32_t start, int32_t n, const char *question, prompt *out);

struct llama_context_params model_params(int32_t n_cells, enum ggml_type type);

/* Greedy: out[0] from the logits there are, then n - 1 more. */
void decode_greedy(struct llama_context *ctx, llama_seq_id seq, int32_t position, int32_t n, llama_token *out);

/* A prompt read into a fresh context. The model is the one that CKV_TEST_MODEL names. */
typedef struct fixture {
	struct llama_model *model;
	struct llama_context *ctx;
	ckv_llama *ckv;
	prompt prompt;
} fixture;

void open_with(fixture *f, const char *policy, struct llama_context_params params);
/* The first n tokens of the document from `start` and a question, prefilled. */
void open_fixture(fixture *f, const char *policy, int32_t start, int32_t n, enum ggml_type type);
void close_fixture(fixture *f);
/* Cells for a context that takes n: a sliding-window model needs room for its window and a batch. */
int32_t room(const fixture *f, int32_t n);
/* n tokens of the prompt from `from` on, at the end of sequence 0. */
void decode_part(fixture *f, int32_t from, int32_t n);

/* KL(full || other) of the next token, by logits [n]. */
double divergence(const float *full, const float *other, int32_t n);

void assert_ok(const ckv_llama *ckv, ckv_status status);

#endif
