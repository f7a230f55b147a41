/* What the files of `chunkkv run --dry-run` share. */
#ifndef CKV_CLI_DRY_RUN_H
#define CKV_CLI_DRY_RUN_H

#include "cli.h"

/* Of a model's cache, from its metadata; window: of its sliding-window layers, 0 where there are none. */
typedef struct cache_shape {
	int64_t n_layers, n_heads, n_kv_heads, n_embd, dim_k, dim_v, window;
} cache_shape;

/* How well a size is known before the prompt is read. */
typedef enum certainty { KNOWN_EXACTLY, KNOWN_ABOUT, KNOWN_AT_MOST } certainty;

/* What a cache of our own takes. */
typedef struct hosted_size {
	bool hosted; /* false: the kept rows go to llama.cpp's cache */
	bool uneven; /* layers or heads differ in length */
	certainty known;
	ckv_cache_info info;
} hosted_size;

/* Of `keep` of n_tokens tokens, where the policy does not share them otherwise among the layers. Prints why not. */
bool dry_run_hosted(const run_options *o, const cache_shape *s, int32_t n_tokens, int32_t keep, hosted_size *out);

#endif
