/* The vtables of scorers and selectors. A new one is one file that defines a const struct and one line in registry.def. */
#ifndef CKV_REGISTRY_H
#define CKV_REGISTRY_H

#include "chunkkv/chunkkv.h"

typedef struct ckv_scorer {
	ckv_method_info info;
	/* What it must be shown under these parameters; NULL: keys alone. Ask ckv_scorer_needs. */
	ckv_needs (*needs)(const ckv_params *params);
	/* Shortest cache it can score under these parameters; a shorter one is kept whole. NULL: any. Ask ckv_scorer_min_tokens.
	 */
	int32_t (*min_tokens)(const ckv_params *params);
	ckv_reason short_reason; /* why */
	/* scores[G][T]. The layer's views were checked, T >= min_tokens, and what needs() names is there. Most ignore n_keep.
	 * The rows may be some of a layer's, or of one head alone: ask ckv_row_position and ckv_row_head where that matters. */
	ckv_status (*score)(ckv_ctx *ctx, const ckv_layer *layer, int32_t n_keep, float *scores);
} ckv_scorer;

/* What a selector decides on. */
typedef struct ckv_selection {
	const float *scores; /* [n_heads][n_tokens], finite */
	int32_t n_heads, n_tokens;
	int32_t n_whole;         /* tokens of the layer, of which n_tokens are in hand (ckv_select_blocks) */
	int32_t n_keep;          /* 1 to n_tokens */
	double keep_fraction;    /* 1 - r, as the published code computes it */
	int32_t lo, hi;          /* only tokens lo .. hi-1 are open; those before and after are protected and already counted */
	int32_t n_open;          /* how many of the open ones to keep */
	int32_t layer, n_layers; /* n_layers 0: not known */
	int32_t n_chunks;        /* that the cache consists of */
	ckv_reason reason;       /* in: CKV_SELECTED */
} ckv_selection;

typedef struct ckv_selector {
	ckv_method_info info;
	/* Most positions that select() may write (0: n_keep). */
	size_t (*bound)(const ckv_params *params, const ckv_selection *selection);
	/* Lists written: 1 (shared by all heads) or n_heads. */
	int32_t (*lists)(const ckv_params *params, const ckv_selection *selection);
	/* Writes the ascending positions of each list, one list after another, and offsets[lists + 1]. */
	ckv_status (*select)(ckv_ctx *ctx, const ckv_selection *selection, int32_t *positions, int32_t *offsets);
	/* Shortest cache it makes sense on in exact mode; a shorter one is kept whole, for `short_reason`. NULL: any. */
	int32_t (*min_tokens)(const ckv_params *params);
	ckv_reason short_reason;
} ckv_selector;

typedef struct ckv_preset {
	ckv_method_info info;
	ckv_params params;
} ckv_preset;

ckv_needs ckv_scorer_needs(const ckv_scorer *scorer, const ckv_params *params);
int32_t ckv_scorer_min_tokens(const ckv_scorer *scorer, const ckv_params *params);

/* NULL when there is none of that name. */
const ckv_scorer *ckv_scorer_find(const char *name);
const ckv_selector *ckv_selector_find(const char *name);
const ckv_preset *ckv_preset_find(const char *name);
const ckv_method_info *ckv_chunker_find(const char *name);
const ckv_method_info *ckv_layer_rule_find(const char *name);

/* By index; NULL past the end. */
const ckv_scorer *ckv_scorer_at(size_t i);
const ckv_selector *ckv_selector_at(size_t i);
const ckv_preset *ckv_preset_at(size_t i);

#endif
