/* A prompt in a context, observed for all policies; and the context in which the caches that come of it are judged. */
#ifndef CKV_EVAL_READING_H
#define CKV_EVAL_READING_H

#include "example.h"
#include "plan.h"

/* Two contexts of one cache type. Only prompts are decoded in `large`, so that what was observed of them stays true; answers
 * are, from any cache, the whole one among them, in `judge`: equal caches then give equal answers, to the bit. */
typedef struct reading {
	struct llama_context *large, *judge;
	llama_token *held; /* what large has */
	int32_t n_held, capacity;
} reading;

/* A prompt's tokens: what is read and compressed, and what follows it on each cache before the answer. */
typedef struct prompt {
	engine engine; /* the prompt's tokens among it */
	run_options options;
	llama_token *follow; /* the question, where it is not read with the prompt; else the prompt's last token, once more */
	int32_t n_follow;
	llama_token *forced; /* the text to be predicted; NULL */
	int32_t n_forced;
	int32_t base; /* position of the first of follow */
} prompt;

/* The tokens of an example; model is borrowed. Prints why not. */
bool prompt_make(prompt *p, const run_options *options, struct llama_model *model, const example *e);
void prompt_free(prompt *p);

bool reading_open(reading *r, const prompt *any, plan *all, enum ggml_type type, int32_t n_prompt, int32_t n_judged);
void reading_close(reading *r);
/* Reads the prompt, or what it does not have in common with the one before. */
bool reading_read(reading *r, const prompt *p, plan *all);
/* Puts a policy's cache into the judging context. */
bool reading_compress(reading *r, const prompt *p, planned_policy *policy, ckv_budget budget, ckv_llama_report *report);
/* The same cache once more, without what was decoded since. */
bool reading_again(reading *r, planned_policy *policy);

/* Is shown the logits after token i of what was decoded. */
typedef void (*on_logits)(int32_t i, const float *logits, void *user);
/* Decodes first[n_first], then then[n_then], from a position on; logits of the last of first and of all of then, counted
 * from 0. */
bool reading_decode(reading *r, int32_t position, const llama_token *first, int32_t n_first, const llama_token *then,
                    int32_t n_then, on_logits callback, void *user);

#endif
