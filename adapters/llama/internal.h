/* What the files of the adapter share. */
#ifndef CKV_LLAMA_INTERNAL_H
#define CKV_LLAMA_INTERNAL_H

#include "chunkkv/llama.h"

#include <ggml-backend.h>
#include <ggml.h>
#include <stddef.h>

/* The orthogonal matrix by which llama.cpp multiplies rows before it quantises them. */
typedef struct rotation {
	int32_t n;   /* 0: none */
	float *data; /* [n][n]: stored row = data * row, block by block */
} rotation;

/* What was seen of one attention layer. Tensors are the cache's own, valid as long as their context. */
typedef struct layer_view {
	int32_t index;
	const struct ggml_tensor *k_root, *v_root; /* cache_k_l<index>, cache_v_l<index>: [row, cells, streams] */
	bool written; /* the ubatch in hand has put its keys into the cache, its attention was not read yet */
	int32_t n_heads, n_kv_heads, dim_k, dim_v;
	float scale, logit_cap;
	bool sinks;       /* attention sinks learnt by the model take part in its softmax */
	bool full;        /* the last query saw every token: not a sliding-window layer */
	int32_t n_tokens; /* observed so far, and still there */
	int32_t evicted;  /* gone since: the next token is of position n_tokens + evicted */
	int32_t n_cells;  /* ahead of n_tokens between the two nodes of a ubatch */
	int32_t *cells;   /* [n_cells] flat row index of each token, streams included */
	int32_t cells_capacity;
	float *queries;       /* [window][n_heads][dim_k], a ring: token t at t % window */
	ckv_moments *moments; /* of the queries before RoPE, from token `sinks` of the policy on */
	float *mass;          /* [n_kv_heads][mass_stride] attention of all queries */
	size_t mass_stride;
	float *similarity; /* [mass_stride] cosine of the residual stream before and after, token by token; NaN: not seen */
	bool rope_known;
	ckv_rope rope;
	float *inv_freq;                     /* of rope */
	const rotation *k_turned, *v_turned; /* what its rows were multiplied by before they were stored; NULL: nothing */
} layer_view;

/* A range of positions. */
typedef struct token_span {
	int32_t first, end;
} token_span;

/* Ways in which an observation can turn out useless; reported when it is to be used. */
typedef enum flaw {
	FLAW_NONE,
	FLAW_MEMORY,  /* out of memory while observing */
	FLAW_LAYOUT,  /* an attention node whose K or V is not a plain cache of its own (MLA, cross attention, cast f32) */
	FLAW_BIAS,    /* ALiBi */
	FLAW_STREAMS, /* several sequences in one ubatch */
	FLAW_STALE,   /* rows were overwritten by tokens that were not observed */
	FLAW_ROPE,    /* queries can't be turned back to what they were before RoPE */
	FLAW_TORN,    /* a prefill broke off in the middle of sums that can't be taken back */
	FLAW_CORE     /* the core refused, see observation.error */
} flaw;

/* The ubatch in hand. */
typedef struct ubatch_view {
	int32_t last_layer; /* whose keys were written last; a lower one begins a new ubatch */
	int32_t n_tokens;   /* of all sequences */
	int32_t *rows;      /* [n_rows] which of them are ours */
	int32_t n_rows, capacity;
	const struct ggml_tensor *token_ids;                     /* inp_tokens */
	const struct ggml_tensor *k_write, *v_write, *attention; /* the nodes seen last of these kinds; NULL: none yet */
	int32_t pending; /* layer whose attention has not yet joined the residual stream; -1: none */
} ubatch_view;

typedef struct observation {
	bool active;
	const struct llama_context *ctx;
	const void *memory; /* its llama_memory_t, a second mark of the context */
	bool sliding;       /* the model has window layers: what is decoded unobserved pushes rows out of them */
	llama_seq_id seq;
	flaw flaw;
	uint32_t needs; /* CKV_NEED_* */
	bool ropes;     /* the rotation of every layer is wanted */
	int32_t window, sinks;
	int32_t n_embd;
	int32_t queries_from; /* the ring holds queries of tokens from here on */
	layer_view *layers;   /* ascending index */
	int32_t n_layers, capacity;
	rotation turned[4];  /* by size: full and window layers may differ */
	llama_token *tokens; /* [token_capacity], where chunks go by the text; -1: not seen */
	int32_t token_capacity;
	uint8_t *mine; /* [n_expected] MINE and OUTPUT of the announced batch's tokens; NULL: all are of this sequence */
	int32_t n_expected, expected_at, own_at; /* tokens of past ubatches: of the batch, of ours */
	ckv_error error;                         /* of FLAW_CORE */
	ubatch_view now;
	float *block; /* scratch: the ubatch's own queries, [n_rows][n_heads][dim_k] */
	size_t block_size;
} observation;

/* Rows of zeros in a cache, which stand for rows that a layer or a head does not have. */
typedef struct hiding {
	bool armed;        /* such rows have been put into a context since */
	bool by_head;      /* some are so in one head and not in another */
	ckv_status failed; /* a layer was computed with rows that it does not have: answers since are void */
	bool changed;      /* the mask of the attention node in hand was changed */
	bool replace;      /* its result must be ours */
	int32_t n_heads;   /* heads that are told apart in holes: 1, or the KV heads */
	uint8_t *holes;    /* [stream][n_kv][n_heads] */
	size_t holes_capacity;
	uint16_t *saved; /* the mask as it was, then as it is changed */
	size_t saved_capacity;
	uint8_t *bytes; /* scratch for our own attention */
	size_t bytes_capacity;
	float *result;
	size_t result_capacity;
} hiding;

/* Kept rows in a cache of our own. */
typedef struct held_cache {
	ckv_cache *rows; /* NULL: none */
	int32_t *layers; /* [n_layers] their indices in the model */
	ckv_stream_shape *shapes;
	int32_t n_layers;
	int32_t n_seen; /* the next token's position */
} held_cache;

/* Rows taken out of a context, in llama.cpp's own sequence-state form. With a cache of our own it has one cell, to tell the
 * position, and sliding-window layers. */
typedef struct held_state {
	held_cache cache;
	uint8_t *data;
	size_t size;
	const struct llama_model *model;
	bool holes, by_head; /* some layers, or heads, have rows of zeros */
	int32_t redo;        /* position of a last token that is to be decoded again; -1: none */
} held_state;

/* A layer whose rows we have. */
typedef struct hosted_layer {
	int32_t index, n_seen;
	ckv_stream_shape shape;
	const struct ggml_tensor *k_root; /* of the context that is served; NULL: it has not decoded yet */
	bool written;                     /* the graph in hand writes rows of its own */
} hosted_layer;

/* A cache of our own in use, see host.c and host_stream.c. */
typedef struct hosting {
	ckv_cache *cache;   /* NULL: none */
	ckv_stream *stream; /* NULL: none; never both */
	bool streaming;     /* the stream's own tokens are being decoded */
	double push_s;      /* seconds of taking them in */
	hosted_layer *layers;
	int32_t n_layers;
	int32_t base; /* tokens seen when it was put to use: what can't be taken back */
	llama_memory_t memory;
	llama_seq_id seq;
	int32_t window; /* of the model's sliding-window layers; 0: none */
	ckv_status failed;
	uint8_t *bytes; /* scratch: rows */
	size_t bytes_size;
	float *queries, *scaled;
	size_t queries_size, scaled_size;
	float *result;
	size_t result_size;
	uint16_t *mask; /* of lent layers, see host_lend.c; for which numbers it was filled */
	size_t mask_size;
	int64_t mask_rows, mask_columns, mask_queries;
} hosting;

/* The attention node that was changed last. It outlives the hosting: a graph that breaks off leaves the node as it is, and
 * llama.cpp may use it again. Only compared with nodes that are shown, never followed. */
typedef struct takeover {
	const struct ggml_tensor *node;
	struct ggml_tensor *own[3]; /* its K, V and mask */
	struct ggml_tensor lent[3]; /* in their place */
} takeover;

/* One layer's kept positions. */
typedef struct layer_keep {
	const layer_view *layer;
	int32_t *positions; /* list after list */
	int32_t *offsets;   /* [n_lists + 1] */
	int32_t n_lists;
	int32_t n_keep; /* of the longest list */
	bool borrowed;  /* positions and offsets are another layer's */
	ckv_reason reason;
	float attention_kept;
} layer_keep;

/* A sequence in a cache of fixed size. */
typedef struct bounded {
	bool active, broken; /* broken: something failed halfway, only beginning anew helps */
	bool by_token;       /* keepers choose; else the one-shot policy, in blocks */
	ckv_stream_params params;
	struct llama_context *ctx;
	llama_seq_id seq;
	int32_t budget, interval, rotate;
	int32_t n_rows, n_seen;
	struct llama_batch batch; /* token NULL: none */
	int32_t piece;            /* tokens decoded at once */
	ckv_keeper **keepers;     /* [n_keepers], as the layers of the observation; NULL: of a window layer */
	int32_t n_keepers;
	int32_t *order; /* [n_rows] cells of all layers by label */
	int32_t order_capacity;
	int32_t unshown; /* newest tokens whose queries the keepers have not been shown */
	token_span *pins;
	int32_t n_pins, pin_capacity;
	/* Scratch of evictions. */
	int32_t *victims, *leading; /* [n_rows] row indices: a layer's, its leader's */
	uint8_t *marks;             /* [cells] */
	size_t victims_size, leading_size, marks_size;
	float *floats;
	size_t floats_size;
	uint8_t *bytes;
	size_t bytes_size;
	ckv_llama_stream_report report; /* the counters of it */
} bounded;

struct ckv_llama {
	ckv_ctx *core;
	ckv_allocator allocator;
	ckv_error error;
	struct llama_context_params params; /* as attached */
	bool attached;
	ggml_backend_sched_eval_callback next; /* the caller's own cb_eval */
	void *next_user;
	bool next_asked, host_asked; /* what the node that is computed next was asked for by */
	ckv_llama_progress progress;
	void *progress_user;
	observation seen;
	bounded bound;
	int32_t n_threads; /* of the scoring */
	uint32_t cpu_disable;
	held_state held;
	hiding hide;
	hosting host;
	takeover taken;
	ckv_llama_cache cache_kind;
	uint64_t cache_alloc; /* of the last graph that came to its last layer */
	uint64_t alloc_sum;   /* added up anew in each ubatch, layer after layer */
	int32_t alloc_layer, alloc_top;
	int32_t *report_layers, *report_kept;
	layer_keep *kept; /* [n_kept] of the last extract; their layers are not valid any more */
	int32_t n_kept;
};

ckv_status ckv_llama_fail(ckv_llama *ckv, ckv_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));

void *ckv_llama_alloc(ckv_llama *ckv, size_t count, size_t size);
void ckv_llama_release(ckv_llama *ckv, void *memory);
/* A larger array in place of `old`, of which n_used elements are kept; NULL without memory, `old` then stands. */
void *ckv_llama_grow(ckv_llama *ckv, void *old, int32_t n_used, int32_t capacity, size_t size);

/* Forgets the last message; at the head of every call that can leave one. */
void ckv_llama_begin(ckv_llama *ckv);

/* Makes *memory at least count * size bytes large, contents lost; false without memory (*memory then stands). */
bool ckv_llama_reserve(ckv_llama *ckv, void **memory, size_t *capacity, size_t count, size_t size);

/* graph.c: reading llama.cpp's graph. */
const struct ggml_tensor *ckv_llama_root(const struct ggml_tensor *tensor);
/* Layer of a cache tensor named PREFIX<n>, or -1. */
int32_t ckv_llama_cache_layer(const struct ggml_tensor *root, const char *prefix);
/* The Hadamard matrix that rows were multiplied by on their way to `tensor`, or NULL. */
const struct ggml_tensor *ckv_llama_find_rotation(const struct ggml_tensor *tensor);
/* Fills layer->rope from the node that turned these queries, once. */
flaw ckv_llama_read_rope(ckv_llama *ckv, layer_view *layer, const struct ggml_tensor *queries);
/* Scale and cap of an attention node's logits. */
void ckv_llama_logit_params(const struct ggml_tensor *node, float *scale, float *cap);
/* Which source of this node is the residual stream, when it adds that attention's result to it; else -1. */
int ckv_llama_residual(const struct ggml_tensor *node, const struct ggml_tensor *attention, int64_t n_embd);

/* observe.c */
bool ckv_llama_eval(struct ggml_tensor *tensor, bool ask, void *user);
void ckv_llama_observe_clear(ckv_llama *ckv);
/* Takes tokens from position n on out of the observation. */
void ckv_llama_observe_rewind(ckv_llama *ckv, int32_t n);
/* Tokens of the observed sequence, those that went since among them: as many as every layer has seen. */
int32_t ckv_llama_observed_tokens(const ckv_llama *ckv);
/* As many as some layer has seen: more than that when a decode broke off. */
int32_t ckv_llama_observed_most(const ckv_llama *ckv);
/* Bits of observation.mine. */
enum { MINE = 1, OUTPUT = 2 };
/* Takes every token of what is decoded for ours from here on. session.c */
void ckv_llama_forget_batch(ckv_llama *ckv);
/* Tokens of ours in the ubatch in hand whose logits were asked for, where the batch was announced. */
int32_t ckv_llama_our_outputs(const observation *seen);
/* Whether what the policy sums up can lose its last tokens again. */
bool ckv_llama_can_rewind(const ckv_llama *ckv);

/* queries.c: what is taken from a ubatch's queries, before its tokens count as observed. */
flaw ckv_llama_read_queries(ckv_llama *ckv, layer_view *layer, const struct ggml_tensor *node);
/* stream.c */
flaw ckv_llama_read_similarity(ckv_llama *ckv, const struct ggml_tensor *node);
/* Mean of a layer's; NaN when none was seen. */
float ckv_llama_mean_similarity(const layer_view *layer);

/* hide.c */
/* Rows of zeros may be in any context from now on; by_head: in some heads only. */
void ckv_llama_hide_arm(ckv_llama *ckv, bool by_head);
void ckv_llama_hide_free(ckv_llama *ckv);
/* Whether a value of an f16 mask lets through. */
bool ckv_llama_visible(uint16_t mask);
/* First cell, in the cache's numbering, of stream number s of an attention node. */
int64_t ckv_llama_first_cell(const struct ggml_tensor *node, int64_t s);
/* attend.c: computes a node's attention over the rows that each head has, in place of llama.cpp's. */
ckv_status ckv_llama_attend(ckv_llama *ckv, struct ggml_tensor *node);
bool ckv_llama_hide_wants(const ckv_llama *ckv, const struct ggml_tensor *node);
void ckv_llama_hide_before(ckv_llama *ckv, const struct ggml_tensor *node);
void ckv_llama_hide_after(ckv_llama *ckv, struct ggml_tensor *node);

/* host.c */
ckv_status ckv_llama_host_fail(ckv_llama *ckv, ckv_status status, const char *what);
/* Number of a hosted layer by its index in the model, or by an attention node; -1: none. */
int32_t ckv_llama_host_number(const hosting *h, int32_t index);
int32_t ckv_llama_host_number_of(const hosting *h, const struct ggml_tensor *attention);
/* The rows of a layer that the graph in hand has written for its n tokens; borrowed until the next such call. */
ckv_status ckv_llama_host_rows(ckv_llama *ckv, const hosted_layer *layer, int64_t n, ckv_view *k, ckv_view *v);
/* The queries of an attention node, and where its result goes; ckv_llama_host_put brings that there. */
bool ckv_llama_host_queries(ckv_llama *ckv, const struct ggml_tensor *q, ckv_view *view);
float *ckv_llama_host_result(ckv_llama *ckv, struct ggml_tensor *node);
void ckv_llama_host_put(struct ggml_tensor *node, const float *result);
/* Cells of decoded tokens go back to llama.cpp but for the last one's and those of its windows. */
void ckv_llama_host_settle(const hosting *h);
bool ckv_llama_is_attention(const struct ggml_tensor *node);
/* Whether a node is to be looked at: an attention that is over our rows, or a write whose rows that needs. */
bool ckv_llama_host_wants(ckv_llama *ckv, const struct ggml_tensor *node);
/* Before a node is looked at at all: mends what an earlier graph left. */
void ckv_llama_host_mend(ckv_llama *ckv, struct ggml_tensor *node);
void ckv_llama_host_before(ckv_llama *ckv, struct ggml_tensor *node);
void ckv_llama_host_after(ckv_llama *ckv, struct ggml_tensor *node);
/* host_lend.c: the node reads our rows; false: it can't. And back; whether it did. */
bool ckv_llama_lend(ckv_llama *ckv, int32_t number, struct ggml_tensor *node);
bool ckv_llama_take_home(ckv_llama *ckv, struct ggml_tensor *node);
/* Takes note of a write of keys. */
void ckv_llama_host_note(ckv_llama *ckv, const struct ggml_tensor *node);
/* ckv->held.cache into use with sequence seq of ctx; move: it is then not held any more. On an error nothing has changed. */
ckv_status ckv_llama_host_enter(ckv_llama *ckv, struct llama_context *ctx, llama_seq_id seq, bool move);
/* The other way round: what is in use is held in ckv->held, of which the rest is there. */
ckv_status ckv_llama_host_hold(ckv_llama *ckv);
/* Whether what was decoded since can be relied on. */
ckv_status ckv_llama_host_check(const ckv_llama *ckv);
/* Ends it. */
void ckv_llama_host_leave(ckv_llama *ckv);

/* host_stream.c: a sequence of any length in rows of our own. bounded.c says what is called when. */
bool ckv_llama_streams_hosted(const ckv_llama *ckv);
ckv_status ckv_llama_host_stream_begin(ckv_llama *ckv);
ckv_status ckv_llama_host_stream_decode(ckv_llama *ckv, const llama_token *tokens, int32_t n, bool last);
void ckv_llama_host_stream_after(ckv_llama *ckv, struct ggml_tensor *node);
ckv_status ckv_llama_host_stream_pin(ckv_llama *ckv, int32_t first, int32_t end);
void ckv_llama_host_stream_report(const ckv_llama *ckv, ckv_llama_stream_report *report);
/* Tokens that may be decoded at once besides the budget: what the context has cells for. */
int32_t ckv_llama_host_stream_piece(const struct llama_context *ctx);
uint64_t ckv_llama_host_stream_bytes(const ckv_llama *ckv);
/* Counts what the stream has after a restore. */
ckv_status ckv_llama_host_stream_restored(ckv_llama *ckv);

/* host_fill.c: whether a layer's rows can go into a cache of our own; and with a message why not. */
bool ckv_llama_hostable(const layer_view *layer);
ckv_status ckv_llama_host_can(ckv_llama *ckv, const layer_view *layer);
/* Arrays for the layers of a held cache. */
ckv_status ckv_llama_held_make(ckv_llama *ckv, int32_t n_layers, held_cache *held);
void ckv_llama_held_free(ckv_llama *ckv, held_cache *held);
/* What goes into a cache of our own. */
typedef struct host_plan {
	const layer_keep *keep; /* [n_layers] */
	int32_t n_layers;
	bool sliding;
	int32_t n_tokens; /* rows of positions below this go over */
	int32_t n_seen;   /* the next token's position */
	float *queries;   /* scratch: see ckv_llama_layer */
} host_plan;
/* Into ckv->held, in place of what was there. but_last: the last token of the prompt is not among them. */
ckv_status ckv_llama_host_fill(ckv_llama *ckv, struct llama_context *ctx, const host_plan *plan, bool but_last);

/* move.c: what is held into the context, and not held any more. */
ckv_status ckv_llama_put_back(ckv_llama *ckv, struct llama_context *ctx, llama_seq_id seq);

/* compress.c */
void ckv_llama_kept_free(ckv_llama *ckv);

/* chunks.c: tells the core where chunks end, from the tokens that were seen. */
ckv_status ckv_llama_set_chunks(ckv_llama *ckv, const struct llama_model *model, int32_t n_tokens);

/* Why what was observed can't be used, if so. */
ckv_status ckv_llama_check_flaws(ckv_llama *ckv);

/* prefill.c: decodes batch->n_tokens of tokens from a position on; batch comes from llama_batch_init with room for them. */
ckv_status ckv_llama_decode_batch(ckv_llama *ckv, struct llama_context *ctx, struct llama_batch *batch, llama_seq_id seq,
                                  const llama_token *tokens, int32_t position, bool last);

/* evict.c: keepers. */
/* Takes note of n tokens that were decoded; shows their queries to the keepers where they would be lost. */
ckv_status ckv_llama_keepers_append(ckv_llama *ckv, int32_t n);
/* Shows what was not shown yet. */
ckv_status ckv_llama_keepers_observe(ckv_llama *ckv);
/* Lets `least` rows go, or more, as many as `most`. */
ckv_status ckv_llama_keepers_evict(ckv_llama *ckv, int32_t least, int32_t most);
ckv_status ckv_llama_keepers_pin(ckv_llama *ckv, ckv_keeper *keeper);
/* Of the policy in hand. */
ckv_status ckv_llama_make_keeper(ckv_llama *ckv, ckv_keeper **keeper);
/* New ones, of the policy in hand, for the rows of those before. */
ckv_status ckv_llama_keepers_adopt(ckv_llama *ckv, ckv_keeper *const *from, int32_t n);
void ckv_llama_keepers_free(ckv_llama *ckv);
/* moves.c: rows `victims` (ascending indices) of a layer are overwritten by those in the n cells that are to be freed, which
 * bound.marks marks; the layer's list of cells afterwards has what is left. */
ckv_status ckv_llama_move_rows(ckv_llama *ckv, layer_view *layer, const int32_t *victims, int32_t n);
/* turn.c: the keys that are older than victims are turned towards the newest by as many positions. Before the list of cells
 * is changed. */
ckv_status ckv_llama_close_gaps(ckv_llama *ckv, layer_view *layer, const int32_t *victims, int32_t n);
/* blocks.c: compresses everything to n_keep rows by the one-shot policy, and goes on observing. */
ckv_status ckv_llama_block_evict(ckv_llama *ckv, int32_t n_keep);
ckv_status ckv_llama_block_check(ckv_llama *ckv);
/* bounded.c */
void ckv_llama_bounded_free(ckv_llama *ckv);
bool ckv_llama_is_sliding(const ckv_llama *ckv, const layer_view *layer);
/* Number `number` of the layers that let rows go; NULL past the last. */
const layer_view *ckv_llama_evicting_layer(const ckv_llama *ckv, int32_t number);
/* One token through the graph, and back: which layers there are, and where their tensors lie. */
ckv_status ckv_llama_learn_layers(ckv_llama *ckv);
/* bounded_state.c: a checksum of the keys of the first layer that lets rows go, of any bytes. */
ckv_status ckv_llama_sum_keys(ckv_llama *ckv, uint64_t *sum);
uint64_t ckv_llama_sum_bytes(const void *data, size_t n);

/* rows.c: the cache's rows as the core's views. */
typedef struct host_rows {
	const uint8_t *data; /* the row of token t is at data + t * stride */
	size_t stride;
	void *copy; /* owned when not NULL */
} host_rows;

/* What decodes rows of a quantised type, and undoes the rotation they were stored with. */
typedef struct row_reader {
	const struct ggml_type_traits *traits;
	const rotation *turned; /* NULL: leave it */
} row_reader;

/* Cache tensors are ours to write between decodes; the graph's pointers are to constants. */
struct ggml_tensor *ckv_llama_writable(const struct ggml_tensor *root);
/* Bytes of one token's row in a cache tensor. */
size_t ckv_llama_row_bytes(const struct ggml_tensor *root);
/* Cells first .. first + n - 1 of a cache tensor. */
ckv_status ckv_llama_cells(ckv_llama *ckv, const struct ggml_tensor *root, int64_t first, int64_t n, host_rows *rows);
ckv_status ckv_llama_rows(ckv_llama *ckv, const layer_view *layer, const struct ggml_tensor *root, host_rows *rows);
void ckv_llama_rows_free(ckv_llama *ckv, host_rows *rows);
/* View of `heads` heads of `dim` in rows of `type`; reader must live as long as the view. */
ckv_status ckv_llama_view(ckv_llama *ckv, enum ggml_type type, const host_rows *rows, int32_t heads, int32_t n_tokens,
                          int32_t dim, row_reader *reader, ckv_view *view);
/* row <- the row before its rotation */
void ckv_llama_turn_back(const rotation *turned, float *row, size_t n);

/* What is known of one layer, its values where `needs` says so; `queries` has room for the window. */
typedef struct layer_input {
	host_rows keys, values;
	row_reader key_reader, value_reader;
	ckv_layer layer;
} layer_input;
ckv_status ckv_llama_layer(ckv_llama *ckv, const layer_view *layer, uint32_t needs, float *queries, layer_input *in);
void ckv_llama_layer_free(ckv_llama *ckv, layer_input *in);

/* state.c */
/* Whether llama.cpp's state of this sequence has the size that our idea of its layout predicts. */
ckv_status ckv_llama_state_check(ckv_llama *ckv, struct llama_context *ctx, const layer_keep *keep, int32_t n_layers,
                                 bool sliding, int32_t n_tokens);
/* Which rows make a state. */
typedef struct state_plan {
	const layer_keep *keep; /* [n_layers] */
	int32_t n_layers;
	bool sliding;     /* others have a window, and are left as they are */
	int32_t n_tokens; /* that the lists are of */
	int32_t n_seen;   /* the next token's position */
	int32_t n_cells;  /* of the longest list */
	bool but_last;    /* without the last token's row: n_cells is then one too many where every layer kept it */
} state_plan;
/* Writes the kept rows as a state into ckv->held; zeros beyond a list's end. Nothing else changes. */
ckv_status ckv_llama_state_write(ckv_llama *ckv, struct llama_context *ctx, const state_plan *plan);
/* The whole sequence by llama.cpp's own hand, into ckv->held; redo: see held_state. */
ckv_status ckv_llama_state_copy(ckv_llama *ckv, struct llama_context *ctx, llama_seq_id seq, int32_t redo);
/* Checksum of the first layer's keys of what is held, n_rows of them. */
ckv_status ckv_llama_held_key_sum(ckv_llama *ckv, uint64_t *sum);
/* Cells of what is held (of the global layers' cache). */
uint32_t ckv_llama_held_cells(const ckv_llama *ckv);

#endif
