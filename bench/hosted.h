/* What the parts of the benchmark of hosted caches share. */
#ifndef CKV_BENCH_HOSTED_H
#define CKV_BENCH_HOSTED_H

#include "cli.h"
#include "spread.h"

enum { MAX_ROUNDS = 64, SMALL_UBATCH = 64 /* of engine_small_context */ };

typedef struct bench {
	run_options options;
	engine engine;
	bool quick; /* as little as shows that everything runs */
	int rounds;
	int32_t n_prompt;
	llama_token *prompt; /* the text's beginning, then the question */
} bench;

/* A policy and where its rows go. policy NULL: llama.cpp alone, which nothing of ours looks at. */
typedef struct lane_kind {
	const char *policy;
	ckv_llama_cache cache;
} lane_kind;

typedef struct lane {
	lane_kind kind;
	ckv_llama *ckv;
	struct llama_context *large, *small; /* the prompt is read in one; where rows were dropped, the other goes on */
	ckv_llama_report report;
} lane;

/* The model and the prompt. Prints why not. */
bool bench_open(bench *b);
void bench_close(bench *b);
/* "-" where a lane is llama.cpp's alone. */
const char *lane_policy(lane_kind kind);
const char *lane_cache(lane_kind kind);
/* Whether this build has what the policy's codec needs; says so where it has not. */
bool lane_possible(lane_kind kind);

/* The steps of chunkkv run, in its order. Each prints why not. */
bool lane_open(const bench *b, lane_kind kind, lane *l);
bool lane_make_large(const bench *b, lane *l, int32_t n_cells, int32_t n_ubatch);
bool lane_read(const bench *b, lane *l, int32_t n); /* the prompt's first n tokens */
bool lane_extract(lane *l, ckv_budget keep);
void lane_drop_large(lane *l);
bool lane_make_small(const bench *b, lane *l, int32_t n_new); /* for n_new tokens behind the kept rows, which it takes */
void lane_drop_small(lane *l);
struct llama_context *lane_context(const lane *l); /* that is decoded on */
bool lane_decode(lane *l, llama_token token);
/* Whether what was decoded can be relied on. */
bool lane_check(const lane *l);
void lane_close(lane *l);
/* Bytes of the cache tensors, and of the hosted cache; 0 with the reason printed. */
uint64_t lane_alloc(const bench *b, const lane *l);
/* The hosted cache's share of them; 0 where there is none. */
uint64_t lane_hosted(const lane *l);

/* The parts: each prints its table. */
bool hosted_decode(bench *b); /* hosted_decode.c */
bool hosted_paper(bench *b);  /* hosted_paper.c */
bool hosted_memory(bench *b); /* hosted_memory.c: in processes of their own, each of which opens the bench */

#endif
