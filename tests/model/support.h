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

/* Loads the model named by the environment variable once; skips the test when it is not set, fails when it can't be loaded.
 */
struct llama_model *model_load(const char *variable);
void model_unload(void);

/* The first n tokens of the demo document from token `start`, then a question. */
void prompt_make(const struct llama_model *model, int32_t start, int32_t n, const char *question, prompt *out);

struct llama_context_params model_params(int32_t n_cells, enum ggml_type type);

/* Greedy: out[0] from the logits there are, then n - 1 more. */
void decode_greedy(struct llama_context *ctx, llama_seq_id seq, int32_t position, int32_t n, llama_token *out);

void assert_ok(const ckv_llama *ckv, ckv_status status);

#endif
