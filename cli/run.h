/* What the files of `chunkkv run` share. */
#ifndef CKV_CLI_RUN_H
#define CKV_CLI_RUN_H

#include "cli.h"

/* Everything a run holds; freed in one place. */
typedef struct run {
	const run_options *options;
	engine engine;
	ckv_llama *ckv;
	struct llama_context *large, *small; /* the prompt is read in one, answered from the compressed cache in the other */
	ckv_llama *meter; /* with a cache of fixed size: tells what llama.cpp allocates for the full one beside it */
	struct llama_sampler *sampler, *sampler_full; /* of the compressed cache's answers, of the full cache's */
	double start;                                 /* of the prefill */
	bool rotate;                                  /* in a cache of fixed size: positions without gaps */
	run_result result;
	ckv_error error;
} run;

/* --------------------------------------------------------------- cmd_run.c */
/* Steps of both settings of one-shot compression; each prints why not. */
bool run_extract(run *r);    /* the kept rows out of it, held by r->ckv */
bool run_make_small(run *r); /* for them, the longest question and an answer */
void run_drop_large(run *r);
/* Prints what and the adapter's message; false. */
bool run_failed(run *r, const char *what);
/* Whether what was decoded from the compressed cache since it was put back can be relied on; else prints why not. */
bool run_check(const run *r);
/* A line between the answers, for people. text may be NULL. */
void run_heading(const run *r, const char *what, const char *text);

/* -------------------------------------------------------------- generate.c */
/* A cache that tokens are decoded on: of a context alone, or one of fixed size, through what makes room in it. */
typedef struct cache {
	struct llama_context *ctx;
	ckv_llama *bounded;    /* NULL: llama_decode will do */
	ckv_llama *compressed; /* whose kept rows it holds, which may be in a cache of our own; NULL: none's */
} cache;

/* Another cache that is shown each token of an answer, to compare the next-token distributions. */
typedef struct witness {
	cache cache;
	divergence *lost;
} witness;

/* Decodes tokens at the end of the cache. `timed`, if given, gets the time. */
bool generate_decode(const cache *c, llama_token *tokens, int32_t n, answer *timed);
/* The same in batches of `size`; p, if given, is shown how far it is. */
bool generate_read(const cache *c, llama_token *tokens, int32_t n, int32_t size, progress *p);
/* Adds a token to an answer, and to standard output unless that is JSON's. */
bool generate_add(const engine *e, answer *a, llama_token token);
/* From `first`, which was added, to the end of the answer. w may be NULL. False also once interrupted. */
bool generate(const engine *e, const cache *c, struct llama_sampler *sampler, llama_token first, answer *a,
              const witness *w);
/* Compares the distributions of the two caches' last tokens. */
void generate_compare(const engine *e, struct llama_context *full, const witness *w);

/* The two settings of one-shot compression: what follows the prefill. */
bool run_in_window(run *r); /* in_window.c: the question is part of what was prefilled */
bool run_agnostic(run *r);  /* agnostic.c: it is not */

bool run_bounded(run *r); /* bounded.c: a cache of fixed size, from before the prefill to the answer's end */

#endif
