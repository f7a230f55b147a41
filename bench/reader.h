/* What the benchmarks of bounded memory share: a model, the tokens of a text, contexts with and without a bounded sequence.
 */
#ifndef CKV_BENCH_READER_H
#define CKV_BENCH_READER_H

#include "cli.h"

typedef struct reader {
	struct llama_model *model;
	const struct llama_vocab *vocab;
	int32_t n_vocab, n_threads;
	llama_token *tokens; /* of the text */
	int32_t n_tokens;
} reader;

/* Prints what failed. */
bool reader_open(reader *r, const char *model, const char *text);
void reader_close(reader *r);

/* A context and what bounds it: by a policy text, "=" in front of a one-shot one (in blocks), "+rotate" behind it. */
typedef struct bounded_context {
	struct llama_context *ctx;
	ckv_llama *ckv; /* NULL: a plain one */
	bool rotate;
} bounded_context;

/* policy NULL: a plain context, unobserved. */
bool bounded_context_open(const reader *r, const char *policy, int32_t n_cells, int32_t n_ubatch, bounded_context *out);
/* Begins the sequence anew. */
bool bounded_context_begin(bounded_context *b);
bool bounded_context_decode(const bounded_context *b, llama_token *tokens, int32_t n);
void bounded_context_close(bounded_context *b);

#endif
