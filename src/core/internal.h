/* What the files of the core share: the context, scratch memory, messages. */
#ifndef CKV_INTERNAL_H
#define CKV_INTERNAL_H

#include "chunkkv/chunkkv.h"
#include "core/registry.h"
#include "kernels/kernels.h"

#include <stdarg.h>
#include <stdbool.h>

#if defined(__GNUC__)
#define CKV_PRINTF(f, a) __attribute__((format(printf, f, a)))
#else
#define CKV_PRINTF(f, a)
#endif

/* Scratch arrays of a context: each grows to the largest size asked of it and stays. Those marked "each" exist once for each
 * worker. */
typedef enum ckv_slot {
	SLOT_ROWS,    /* each: 16 decoded rows */
	SLOT_PANEL,   /* each: the same, packed */
	SLOT_QUERIES, /* each: one KV head's queries */
	SLOT_LOGITS,  /* each: [queries][T, padded] */
	SLOT_PARTIAL, /* each: [T] */
	SLOT_VISIBLE, /* each: [T] rows that a query sees */
	SLOT_MASS,    /* [H][T] mean attention of the window */
	SLOT_SCORES,  /* [G][T] */
	SLOT_POOLED,  /* [T] */
	SLOT_SUMS,    /* [T] scores summed over heads */
	SLOT_CHUNKS,  /* [n_chunks] of a selector */
	SLOT_KEYS,    /* sort keys */
	SLOT_OFFSETS, /* [G + 1] */
	SLOT_MEAN,    /* [H][d] expected queries */
	SLOT_MOMENTS, /* [H][d][d] their covariance */
	SLOT_LIFTED,  /* [G][T] scores with the safe ones on top */
	SLOT_STARTS,  /* [n_chunks] the caller's chunks, see ckv_set_chunks */
	SLOT_PLAN,    /* [n_layers] */
	SLOT_HAND,    /* [G][rows in hand] their positions, see ckv_select_blocks */
	SLOT_KEPT,    /* [G + 1] offsets, then the positions kept of the rows in hand */
	SLOT_CUTS,    /* [chunks of the rows in hand] their first rows */
	SLOT_MERGE,   /* each: what merging one head needs, see ckv_merge_space */
	SLOT_COUNT
} ckv_slot;

/* The rows in hand, where these are some of a layer's (ckv_select_blocks): which they are. */
typedef struct ckv_hand {
	const int32_t *positions; /* [heads][stride] of the heads that the scorer is shown */
	size_t stride;
	int32_t first_head;
	const int32_t *starts; /* [n_chunks] first row of each chunk; NULL: nothing goes by chunks */
	int32_t n_chunks;
} ckv_hand;

struct ckv_ctx {
	ckv_allocator allocator;
	ckv_params params;
	const ckv_scorer *scorer; /* NULL: none */
	const ckv_selector *selector;
	const ckv_kernels *kernels;
	ckv_error error;
	void *slot[SLOT_COUNT];
	size_t slot_size[SLOT_COUNT];
	int32_t n_threads;
	int32_t mass_window;              /* window that SLOT_MASS holds of the layer in hand; 0: none */
	int32_t n_chunks, chunked_tokens; /* of SLOT_STARTS */
	const ckv_hand *hand;             /* NULL: the rows are the layer itself */
};

/* Sets the message and returns the status, so that callers can `return ckv_fail(...)`. error may be NULL. */
ckv_status ckv_fail(ckv_error *error, ckv_status status, const char *format, ...) CKV_PRINTF(3, 4);

/* Forgets the last message; at the head of every call that can leave one. */
void ckv_begin(ckv_ctx *ctx);

/* Where a row that a scorer is shown stands in the whole layer: for what depends on it, and for messages. */
int32_t ckv_row_head(const ckv_ctx *ctx, int32_t head);
int32_t ckv_row_position(const ckv_ctx *ctx, int32_t head, int32_t row);

/* What is decided before any work: n_keep, the fraction kept, what is protected, the reason, and the selector ("all" where
 * the cache is left whole). scorer is NULL when the scores are the caller's. */
ckv_status ckv_selection_plan(ckv_ctx *ctx, ckv_budget budget, const ckv_scorer *scorer, ckv_selection *s,
                              const ckv_selector **selector);

/* Of n_keep tokens those that the mode protects, and so what is open. */
void ckv_selection_protect(const ckv_params *params, ckv_selection *s);

/* The context's scorer on a checked layer; its scores are finite. */
ckv_status ckv_scorer_run(ckv_ctx *ctx, const ckv_layer *layer, int32_t n_keep, float *scores);

/* What a selector left, as the caller is told: lists, n_keep and n_positions by offsets[n_lists + 1]. */
void ckv_keep_set(ckv_keep *keep, int32_t n_lists, const int32_t *offsets, ckv_reason reason);

/* The keys' view, scale and cap of a layer. */
ckv_status ckv_layer_check(const ckv_layer *layer, ckv_error *error);

/* count * size bytes of the slot, contents undefined; NULL, with the context's message set, when there is no memory. Only
 * asking for more of the same slot moves it. */
void *ckv_scratch(ckv_ctx *ctx, ckv_slot slot, size_t count, size_t size);

/* out[T rows of head h starting at t0]: n rows of view decoded to float, row stride d. */
void ckv_view_decode(const ckv_kernels *kernels, const ckv_view *view, int32_t head, int32_t t0, int32_t n, float *out);

/* Bytes of one head's row. */
size_t ckv_view_row_bytes(const ckv_view *view);

/* Checks a view by itself; `what` names it in the message. */
ckv_status ckv_view_check(const ckv_view *view, const char *what, int32_t layer, ckv_error *error);

/* Work that is shared by KV head. A task writes only what belongs to its item and its worker, so results don't depend on how
 * many workers there are. The status and message of the lowest item that failed are the context's. */
typedef ckv_status (*ckv_task)(void *job, int32_t worker, int32_t item, ckv_error *error);
ckv_status ckv_parallel(ckv_ctx *ctx, int32_t n_items, ckv_task task, void *job);
int32_t ckv_workers(const ckv_ctx *ctx, int32_t n_items);
/* The same without a context; *error is written on failure only. */
ckv_status ckv_parallel_of(int32_t n_threads, int32_t n_items, ckv_task task, void *job, ckv_error *error);
int32_t ckv_workers_of(int32_t n_threads, int32_t n_items);

/* Keys of one KV head, 16 at a time: decoded, checked to be finite, packed for kernels->qk. */
typedef struct ckv_panel {
	float *rows;  /* [16][d] */
	float *panel; /* [d][16] */
} ckv_panel;
ckv_status ckv_panel_load(const ckv_kernels *kernels, const ckv_layer *layer, int32_t kv_head, int32_t t, int32_t n,
                          const ckv_panel *to, ckv_error *error);

/* Shape that moments were made with; 0 for NULL. */
void ckv_moments_shape(const ckv_moments *moments, int32_t *n_heads, int32_t *dim);

/* Whether queries and keys go together, and there are `n` queries at least. */
ckv_status ckv_queries_check(const ckv_layer *layer, int32_t n, ckv_error *error);

/* The scale of the layer's logits. */
float ckv_logit_scale(const ckv_layer *layer);
void ckv_cap_logits(float *x, size_t n, float cap);
bool ckv_all_finite(const float *x, size_t n);

/* A block of queries and what becomes of their attention. Query i of n sees keys 0 .. n_keys - n + i. */
typedef struct ckv_query_block {
	int32_t first, n; /* of layer->q */
	int32_t n_keys;   /* that the last one sees */
	bool by_head; /* out[h * stride + t] = mean over the queries; else out[g * stride + t] += sum of them, mean over heads */
	float *out;
	size_t stride;
} ckv_query_block;
ckv_status ckv_attention_block(ckv_ctx *ctx, const ckv_layer *layer, const ckv_query_block *block);

/* mass[H][T] in SLOT_MASS: attention of the last `window` queries, softmax over all keys they see, mean over the queries.
 * Rows sum to 1. Computed once for a layer. Errors: CKV_ERR_ARG, CKV_ERR_NOMEM. */
ckv_status ckv_window_mass(ckv_ctx *ctx, const ckv_layer *layer, int32_t window, const float **mass);

/* attention.c: attention of newest tokens over rows, their queries a block at a time. Zeros before the first block. */
typedef struct ckv_attention {
	const ckv_kernels *kernels;
	float scale, cap;
	float *out; /* [n_tokens][query heads][dim] */
	int32_t n_tokens, n_kv_heads;
	int32_t group;    /* query heads of a KV head */
	int32_t first, n; /* tokens in hand */
	size_t m;         /* queries in hand of a KV head, [group][n] */
} ckv_attention;
ckv_status ckv_attend_check(float scale, float cap, int32_t layer, ckv_error *error);
/* The next block, where there is one. */
bool ckv_attend_next(ckv_attention *a);
/* Threads that a block is worth. width: channels of a key and a value. */
int32_t ckv_attend_threads(const ckv_attention *a, size_t n_rows, int32_t width, int32_t n_threads);
/* Room for the logits of a query. */
size_t ckv_attend_padded(size_t n_rows);
/* Logits to weights: of the n_seen rows that the query sees; nothing for the others. False where logits were not finite. */
bool ckv_attend_weigh(const ckv_attention *a, float *x, size_t n_seen, size_t n_rows);
/* Where the result of query i in hand belongs. */
float *ckv_attend_out(const ckv_attention *a, int32_t kv_head, size_t i, size_t dim);

/* Length of a row, summed in double. */
double ckv_norm(const float *x, size_t n);

/* Decodes a head row by row and hands them to `visit`. */
typedef ckv_status (*ckv_row_visitor)(void *user, int32_t token, const float *row);
ckv_status ckv_each_row(ckv_ctx *ctx, const ckv_view *view, int32_t head, const char *what, int32_t layer,
                        ckv_row_visitor visit, void *user);

/* Chunks of the cache in hand: number i has tokens start .. end-1. */
int32_t ckv_chunk_count(const ckv_ctx *ctx, int32_t n_tokens);
void ckv_chunk_range(const ckv_ctx *ctx, int32_t n_tokens, int32_t i, int32_t *start, int32_t *end);
/* The open part of a chunk, where it has one. */
void ckv_chunk_open(const ckv_ctx *ctx, const ckv_selection *s, int32_t i, int32_t *first, int32_t *end);
/* Mean of x[first .. end-1]. */
float ckv_chunk_mean(const float *x, int32_t first, int32_t end);
/* The chunk of a token. */
int32_t ckv_chunk_of(const ckv_ctx *ctx, int32_t token);
/* Tokens of the longest chunk. */
int32_t ckv_chunk_most(const ckv_params *params);
/* Whether the chunks that the policy needs were given, and for so many tokens. */
ckv_status ckv_chunks_check(ckv_ctx *ctx, int32_t n_tokens);

/* sums[t] in SLOT_SUMS: scores of one token over all heads; NULL without memory. */
const float *ckv_sum_heads(ckv_ctx *ctx, const ckv_selection *s);

/* Digits with at most one point among them, whatever the locale; returns what follows, or NULL when there is no such number.
 */
const char *ckv_parse_decimal(const char *text, double *value, bool *whole);
void ckv_format_decimal(double value, char *buffer, size_t capacity);

/* The message for a budget that ckv_budget_resolve refuses. */
ckv_status ckv_budget_fail(ckv_budget budget, ckv_error *error);

/* Nearest f16, ties to even; what is too large becomes infinity, NaN stays. */
uint16_t ckv_f16_from_f32(float x);

/* Python's round(): half to even. */
double ckv_round_even(double x);

/* Marks the n highest of score[lo .. hi-1] (ties: lower position) and writes their positions, ascending, to out. */
ckv_status ckv_top_positions(ckv_ctx *ctx, const float *score, int32_t lo, int32_t hi, int32_t n, int32_t *out);

/* order[n]: indices by score, highest first, ties to the lower index. */
ckv_status ckv_order_by_score(ckv_ctx *ctx, const float *score, int32_t n, int32_t *order);

/* Checks names, ranges and their combination. */
ckv_status ckv_params_check(const ckv_params *params, ckv_error *error);
ckv_status ckv_codec_check(const ckv_codec *codec, ckv_error *error);
ckv_status ckv_merge_check(const ckv_merge *merge, ckv_error *error);

/* ckv_params when there was neither codec nor merging: the least that is taken of a caller. */
enum { CKV_PARAMS_FIRST_SIZE = offsetof(ckv_params, merge) };
/* A copy of the caller's parameters, of whatever version; what those lack is zero, which counts as none. */
void ckv_params_take(const ckv_params *params, ckv_params *own);

/* Copies with names of ours; of nothing (NULL, or zeros) "none". May be one and the same. */
void ckv_codec_own(const ckv_codec *codec, ckv_codec *own);
void ckv_merge_own(const ckv_merge *merge, ckv_merge *own);

#endif
