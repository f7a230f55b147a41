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

/* Scratch arrays of a context: each grows to the largest size asked of it and stays. */
typedef enum ckv_slot {
	SLOT_ROWS,    /* 16 decoded rows */
	SLOT_PANEL,   /* the same, packed */
	SLOT_QUERIES, /* one KV head's window queries */
	SLOT_LOGITS,  /* [queries][T, padded] */
	SLOT_MASS,    /* [H][T] mean attention of the window */
	SLOT_SCORES,  /* [G][T] */
	SLOT_POOLED,  /* [T] */
	SLOT_SUMS,    /* [T] scores summed over heads */
	SLOT_CHUNKS,  /* [n_chunks] */
	SLOT_KEYS,    /* [T] sort keys */
	SLOT_OFFSETS, /* [G + 1] */
	SLOT_COUNT
} ckv_slot;

struct ckv_ctx {
	ckv_allocator allocator;
	ckv_params params;
	const ckv_scorer *scorer; /* NULL: none */
	const ckv_selector *selector;
	const ckv_kernels *kernels;
	ckv_error error;
	void *slot[SLOT_COUNT];
	size_t slot_size[SLOT_COUNT];
	int32_t mass_window; /* window that SLOT_MASS holds of the layer in hand; 0: none */
};

/* Sets the message and returns the status, so that callers can `return ckv_fail(...)`. error may be NULL. */
ckv_status ckv_fail(ckv_error *error, ckv_status status, const char *format, ...) CKV_PRINTF(3, 4);

/* count * size bytes of the slot, contents undefined; NULL, with the context's message set, when there is no memory. Only
 * asking for more of the same slot moves it. */
void *ckv_scratch(ckv_ctx *ctx, ckv_slot slot, size_t count, size_t size);

/* out[T rows of head h starting at t0]: n rows of view decoded to float, row stride d. */
void ckv_view_decode(const ckv_kernels *kernels, const ckv_view *view, int32_t head, int32_t t0, int32_t n, float *out);

/* Bytes of one head's row. */
size_t ckv_view_row_bytes(const ckv_view *view);

/* Checks a view by itself; `what` names it in the message. */
ckv_status ckv_view_check(const ckv_view *view, const char *what, int32_t layer, ckv_error *error);

/* mass[H][T] in SLOT_MASS: attention of the last `window` queries, softmax over all keys they see, mean over the queries.
 * Rows sum to 1. Computed once for a layer. Errors: CKV_ERR_ARG, CKV_ERR_NOMEM. */
ckv_status ckv_window_mass(ckv_ctx *ctx, const ckv_layer *layer, int32_t window, const float **mass);

/* Marks the n highest of score[lo .. hi-1] (ties: lower position) and writes their positions, ascending, to out. */
ckv_status ckv_top_positions(ckv_ctx *ctx, const float *score, int32_t lo, int32_t hi, int32_t n, int32_t *out);

/* Checks names, ranges and their combination. */
ckv_status ckv_params_check(const ckv_params *params, ckv_error *error);

/* Levenshtein distance, case-insensitive; for "did you mean". */
size_t ckv_distance(const char *a, const char *b);

#endif
