/* What the files of the adapter share. */
#ifndef CKV_LLAMA_INTERNAL_H
#define CKV_LLAMA_INTERNAL_H

#include "chunkkv/llama.h"

#include <ggml-backend.h>
#include <ggml.h>
#include <stddef.h>

/* What was seen of one attention layer. Tensors are the cache's own, valid as long as their context. */
typedef struct layer_view {
	int32_t index;
	const struct ggml_tensor *k_root, *v_root; /* cache_k_l<index>, cache_v_l<index>: [row, cells, streams] */
	bool written; /* the ubatch in hand has put its keys into the cache, its attention was not read yet */
	int32_t n_heads, n_kv_heads, dim_k, dim_v;
	float scale, logit_cap;
	bool full;        /* the last query saw every token: not a sliding-window layer */
	int32_t n_tokens; /* observed so far */
	int32_t n_cells;  /* ahead of n_tokens between the two nodes of a ubatch */
	int32_t *cells;   /* [n_cells] flat row index of each token, streams included */
	int32_t cells_capacity;
	float *queries; /* [window][n_heads][dim_k], a ring: token t at t % window */
} layer_view;

/* Ways in which an observation can turn out useless; reported when it is to be used. */
typedef enum flaw {
	FLAW_NONE,
	FLAW_MEMORY,  /* out of memory while observing */
	FLAW_LAYOUT,  /* an attention node whose K or V is not a plain cache of its own (MLA, cross attention, cast f32) */
	FLAW_BIAS,    /* ALiBi */
	FLAW_STREAMS, /* several sequences in one ubatch */
	FLAW_STALE    /* rows were overwritten by tokens that were not observed */
} flaw;

typedef struct observation {
	bool active;
	const struct llama_context *ctx;
	const void *memory; /* its llama_memory_t, a second mark of the context */
	bool sliding;       /* the model has window layers: what is decoded unobserved pushes rows out of them */
	llama_seq_id seq;
	flaw flaw;
	int32_t window;
	int32_t queries_from; /* the ring holds queries of tokens from here on */
	layer_view *layers;   /* ascending index */
	int32_t n_layers, capacity;
} observation;

/* Rows taken out of a context, in llama.cpp's own sequence-state form. */
typedef struct held_state {
	uint8_t *data;
	size_t size;
	const struct llama_model *model;
} held_state;

struct ckv_llama {
	ckv_ctx *core;
	ckv_allocator allocator;
	ckv_error error;
	struct llama_context_params params; /* as attached */
	bool attached;
	ggml_backend_sched_eval_callback next; /* the caller's own cb_eval */
	void *next_user;
	bool next_asked;
	ckv_llama_progress progress;
	void *progress_user;
	observation seen;
	held_state held;
	uint64_t cache_alloc; /* added up anew in each ubatch, layer after layer */
	int32_t alloc_layer;
	int32_t *report_layers, *report_kept;
};

ckv_status ckv_llama_fail(ckv_llama *ckv, ckv_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));

void *ckv_llama_alloc(ckv_llama *ckv, size_t count, size_t size);
void ckv_llama_release(ckv_llama *ckv, void *memory);
/* A larger array in place of `old`, of which n_used elements are kept; NULL without memory, `old` then stands. */
void *ckv_llama_grow(ckv_llama *ckv, void *old, int32_t n_used, int32_t capacity, size_t size);

/* Forgets the last message; at the head of every call that can leave one. */
void ckv_llama_begin(ckv_llama *ckv);

/* observe.c */
bool ckv_llama_eval(struct ggml_tensor *tensor, bool ask, void *user);
void ckv_llama_observe_clear(ckv_llama *ckv);
/* Takes tokens from position n on out of the observation. */
void ckv_llama_observe_rewind(ckv_llama *ckv, int32_t n);
/* Tokens of the observed sequence: as many as every layer has seen. */
int32_t ckv_llama_observed_tokens(const ckv_llama *ckv);

/* rows.c: the cache's rows as the core's views. */
typedef struct host_rows {
	const uint8_t *data; /* the row of token t is at data + t * stride */
	size_t stride;
	void *copy; /* owned when not NULL */
} host_rows;
ckv_status ckv_llama_rows(ckv_llama *ckv, const layer_view *layer, const struct ggml_tensor *root, host_rows *rows);
void ckv_llama_rows_free(ckv_llama *ckv, host_rows *rows);
ckv_status ckv_llama_layer(ckv_llama *ckv, const layer_view *layer, const host_rows *keys, float *queries, ckv_layer *out);

/* state.c: one layer's kept positions, ready to be gathered. */
typedef struct layer_keep {
	const layer_view *layer;
	int32_t *positions; /* n_lists lists of n_keep each */
	int32_t n_lists, n_keep;
} layer_keep;

/* Whether llama.cpp's state of this sequence has the size that our idea of its layout predicts. */
ckv_status ckv_llama_state_check(ckv_llama *ckv, struct llama_context *ctx, const layer_keep *keep, int32_t n_layers,
                                 bool sliding, int32_t n_tokens);
/* Writes the kept rows as a state into ckv->held. Nothing else changes. */
ckv_status ckv_llama_state_write(ckv_llama *ckv, struct llama_context *ctx, const layer_keep *keep, int32_t n_layers,
                                 bool sliding, int32_t n_tokens);
/* The whole sequence by llama.cpp's own hand, into ckv->held. */
ckv_status ckv_llama_state_copy(ckv_llama *ckv, struct llama_context *ctx, llama_seq_id seq);
/* Cells of what is held (of the global layers' cache). */
uint32_t ckv_llama_held_cells(const ckv_llama *ckv);

#endif
