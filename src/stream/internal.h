/* What the files of the streaming caches share. */
#ifndef CKV_STREAM_INTERNAL_H
#define CKV_STREAM_INTERNAL_H

#include "chunkkv/stream.h"
#include "core/internal.h"

/* In the order in which they are listed. */
typedef enum stream_scorer {
	STREAM_ATTN_MASS,
	STREAM_KEY_NORM,
	STREAM_KNORM,
	STREAM_TOVA,
	STREAM_SNAPKV,
	STREAM_STREAMING,
	N_STREAM_SCORERS
} stream_scorer;

typedef enum stream_layers { STREAM_UNIFORM, STREAM_PYRAMID, STREAM_SQUEEZE, N_STREAM_LAYERS } stream_layers;
typedef enum stream_merge { STREAM_DROP, STREAM_MEAN, STREAM_SIM_WEIGHTED, N_STREAM_MERGES } stream_merge;

/* params.c */
/* Names, ranges and what must go together; nothing about a budget. */
ckv_status ckv_stream_params_check(const ckv_stream_params *params, ckv_error *error);
/* The same, and what a stream or a keeper is made with besides. options may be NULL. */
ckv_status ckv_stream_check_made(const ckv_stream_params *params, const ckv_ctx_options *options, ckv_error *error);
/* The index of a name that was checked. */
stream_scorer ckv_stream_scorer_of(const ckv_stream_params *params);
stream_layers ckv_stream_layers_of(const ckv_stream_params *params);
stream_merge ckv_stream_merge_of(const ckv_stream_params *params);
/* The name fields as static strings, "custom" for an unknown preset; fields that the policy does not read without effect. */
void ckv_stream_params_own(ckv_stream_params *params);

/* Memory that grows and stays. */
typedef struct stream_memory {
	void *data;
	size_t size;
} stream_memory;
/* At least count * size bytes, contents lost; NULL, with a message, when there is no memory. */
void *ckv_memory_reserve(const ckv_allocator *allocator, stream_memory *memory, size_t count, size_t size, ckv_error *error);
void ckv_memory_free(const ckv_allocator *allocator, stream_memory *memory);

/* ------------------------------------------------------------------------------------------------------------ lane.c */

/* Positions that never go: whole chunks. */
typedef struct lane_pin {
	int32_t first, end;
} lane_pin;

typedef struct lane_pins {
	lane_pin *at;
	int32_t n, room;
} lane_pins;

/* How a lane chooses what goes. */
typedef struct lane_rule {
	int32_t chunk, sinks, grace;
	bool stored_index; /* chunks are counted in rows, and the newest may be short (reference mode); else in positions */
	bool newer_loses;  /* of equal ones */
	const lane_pin *pins;
	int32_t n_pins;
} lane_rule;

/* The rows of one head, oldest first. */
typedef struct ckv_lane {
	int32_t n, capacity;
	int32_t *positions;
	float *scores;
	int32_t *slots;   /* a permutation of 0 .. capacity-1: where the rows are, then what is free; NULL: rows are elsewhere */
	int32_t *columns; /* of the logits in hand; with slots only */
} ckv_lane;

typedef struct lane_range {
	int32_t first, end; /* rows */
} lane_range;

bool ckv_lane_reserve(const ckv_allocator *allocator, ckv_lane *lane, int32_t capacity, bool slots);
void ckv_lane_free(const ckv_allocator *allocator, ckv_lane *lane);
/* There must be room. */
void ckv_lane_append(ckv_lane *lane, int32_t position, float score, int32_t column);
void ckv_lane_remove(ckv_lane *lane, lane_range rows);
/* The next chunk from row `from` on that may go, when `seen` tokens were seen. Start with from = 0. */
bool ckv_lane_next(const ckv_lane *lane, const lane_rule *rule, int32_t seen, int32_t from, lane_range *chunk);
/* The one of lowest mean. */
bool ckv_lane_lowest(const ckv_lane *lane, const lane_rule *rule, int32_t seen, lane_range *chunk);
/* Rows in front of the first of position `position` or above. */
int32_t ckv_lane_before(const ckv_lane *lane, int32_t position);

/* ---------------------------------------------------------------------------------------------------------- stream.c */

/* Rows [first, end) went after token `token` of the push; -1: before its first. */
typedef struct stream_event {
	int32_t token;
	lane_range rows;
} stream_event;

typedef struct stream_head {
	ckv_lane lane;
	uint16_t *keys, *values;           /* [lane.capacity] slots */
	int32_t *evicted;                  /* positions, in the order they went, of the last push */
	stream_event *events;              /* of the last push */
	int32_t n_evicted, n_events, room; /* room: entries of both */
	uint32_t draws;                    /* of the merge gate */
} stream_head;

typedef struct stream_layer {
	ckv_stream_shape shape;
	stream_head *heads;
	int32_t budget;  /* in force */
	int32_t planned; /* from the next push on */
	int32_t seen;
	int32_t n_query_heads; /* of the pushes so far; 0: keys are queries; -1: none yet */
	float *ring;           /* snapkv: [KV heads][window][group][dim_k], queries of position p at p % window */
	int32_t ring_from;     /* queries of this position and above are in it */
	size_t ring_size;
	int32_t pushed_from, pushed; /* the last push: tokens seen before it, tokens in it */
	float concentration;
	bool reported;
} stream_layer;

enum {
	STREAM_BLOCK = 64,                /* tokens whose logits are computed together */
	STREAM_MOST_QUERY_HEADS = 1 << 18 /* times a window fits an int */
};

struct ckv_stream {
	ckv_allocator allocator;
	const ckv_kernels *kernels;
	int32_t n_threads;
	ckv_stream_params params;
	stream_scorer scorer;
	stream_layers rule;
	stream_merge merge;
	bool by_call; /* reference mode of l2norm and snapkv: what goes is decided at the end of a push */
	int32_t budget;
	int32_t n_layers;
	stream_layer *layers;
	ckv_error error;
	stream_memory new_keys, new_values; /* f16 rows of the push in hand, [heads][n] */
	stream_memory new_queries;          /* [query heads][n][dim_k] */
	stream_memory work;                 /* of the workers */
	lane_pins pins;                     /* whole chunks behind the sinks, none twice */
};

/* From the next push on. */
static inline int32_t ckv_planned_budget(const stream_layer *layer) {
	return layer->planned >= 0 ? layer->planned : layer->budget;
}

/* How heads choose: of the stream's parameters. */
lane_rule ckv_stream_rule(const ckv_stream *stream);
stream_layer *ckv_stream_leader(const ckv_stream *stream, int32_t layer);
/* store.c: a view's rows as f16, [heads][n][dim]; CKV_ERR_NUMERIC for what f16 can't hold. */
ckv_status ckv_store_convert(const ckv_stream *stream, const ckv_view *view, const char *what, int32_t layer, uint16_t *out,
                             ckv_error *error);
/* Room for `rows` rows, and for what may be evicted in a push that begins with lane.n rows and brings n. */
ckv_status ckv_store_reserve(ckv_stream *stream, stream_layer *layer, stream_head *head, int32_t rows, int32_t n);
void ckv_store_free(ckv_stream *stream, stream_head *head);
uint16_t *ckv_store_key(const stream_layer *layer, const stream_head *head, int32_t row);
uint16_t *ckv_store_value(const stream_layer *layer, const stream_head *head, int32_t row);
/* The decision: rows go, and it is noted. */
void ckv_store_evict(stream_head *head, lane_range rows, int32_t token);

/* push.c: rows of a head after a push; where a layer's share is too small (reference mode), what is protected is held on top
 * of it. */
int32_t ckv_stream_most(const ckv_stream *stream, int32_t budget);

/* views.c: whether a call's views are of the layer, and together; q may be NULL. */
ckv_status ckv_stream_check_views(ckv_stream *stream, int32_t index, const ckv_view *k, const ckv_view *v,
                                  const ckv_view *q);
/* Their rows into new_keys, new_values and new_queries. The caller's memory is not looked at any more afterwards. */
ckv_status ckv_stream_convert(ckv_stream *stream, int32_t index, const ckv_view *k, const ckv_view *v, const ckv_view *q);

/* pins.c */
ckv_status ckv_pins_check(int32_t first, int32_t end, ckv_error *error);
/* A range more, which may be empty; nothing has changed on CKV_ERR_NOMEM. */
ckv_status ckv_pins_add(const ckv_allocator *allocator, lane_pins *pins, lane_pin pin, ckv_error *error);
void ckv_pins_free(const ckv_allocator *allocator, lane_pins *pins);
/* Whether the layer's budget will hold after n more tokens, whatever is pinned. */
ckv_status ckv_stream_check_pins(ckv_stream *stream, int32_t index, int32_t n);

/* ---------------------------------------------------------------------------------------------------------- absorb.c */

/* A push in hand; the same for all workers but `space`. */
typedef struct push_job {
	ckv_stream *stream;
	stream_layer *layer;
	const stream_layer *leader;   /* whose decisions are taken; NULL: own */
	int32_t index;                /* of the layer */
	int32_t n;                    /* tokens */
	int32_t group;                /* query heads of a KV head; 0: keys are queries */
	int32_t n_queries, n_columns; /* room for logits: [n_queries][n_columns] */
	size_t space;                 /* floats of a worker, at stream->work */
} push_job;

/* Query heads that are averaged; a key is a single one. */
static inline int32_t ckv_push_group(const push_job *push) { return push->group ? push->group : 1; }

/* A worker's part of the memory, for one head. */
typedef struct head_job {
	const push_job *push;
	stream_head *head;
	int32_t index;
	const uint16_t *keys, *values; /* the new rows, [n][dim] */
	float *rows, *panel, *queries, *logits, *x, *pair;
	int32_t first; /* token of the push that the logits begin with */
} head_job;

size_t ckv_absorb_space(const push_job *job);
/* All tokens of the push into one head. */
ckv_status ckv_absorb(void *push_job, int32_t worker, int32_t head, ckv_error *error);

/* ---------------------------------------------------------------------------------------------------------- logits.c */

/* logits[i][column], i counting queries of `n` tokens from `first` on, token after token, each token's query heads together;
 * columns are the lane's rows as they are, then those tokens' own keys. */
void ckv_logits_block(head_job *job, int32_t first, int32_t n);
/* The same of the queries in job->queries[m] over the lane's rows. */
void ckv_logits_rows(head_job *job, int32_t m);
/* x[0 .. n-1] = softmax over the lane's first n rows of query i; returns what x must be divided by. */
float ckv_logits_softmax(head_job *job, int32_t i, int32_t n);

/* Position p's query into the ring, from the push in hand. */
void ckv_ring_put(head_job *job, int32_t token);
/* Queries of the window's tokens, up to the newest, that the ring has, oldest first, into job->queries; returns for how many
 * tokens and the position of the first. */
int32_t ckv_ring_get(head_job *job, int32_t seen, int32_t *position);

/* budgets.c: rows without which a layer can't do: what is protected, and something that may go. */
int32_t ckv_stream_least(const ckv_stream_params *params);
/* Mean cosine of all pairs of n rows, `stride` f16 values apart. */
float ckv_stream_concentration(const ckv_kernels *kernels, const uint16_t *rows, int32_t n, int32_t dim, float *scratch);
/* squeeze: what a layer's share goes by, and the share, `sum` being of all layers. */
double ckv_squeeze_raw(float concentration);
int32_t ckv_squeeze_budget(const ckv_stream_params *params, int32_t budget, int32_t n_layers, float concentration,
                           double sum);
/* Plans the budgets of squeeze once every layer has reported. */
void ckv_stream_settle(ckv_stream *stream);

/* ------------------------------------------------------------------------------------------------------------ bytes.c */

/* State as bytes: magic, version, size and checksum in front. Native byte order, which the magic tells. */
typedef struct byte_writer {
	uint8_t *data; /* NULL, or too small: only counts */
	size_t capacity, size;
} byte_writer;
void ckv_bytes_begin(byte_writer *w, void *data, size_t capacity);
void ckv_bytes_put(byte_writer *w, const void *from, size_t n);
void ckv_bytes_put_int(byte_writer *w, int32_t value);
/* Writes the head; returns the whole size. */
size_t ckv_bytes_end(byte_writer *w, const char magic[4], uint32_t version);

typedef struct byte_reader {
	const uint8_t *data;
	size_t left;
	bool good; /* false once it was asked for more than there is */
} byte_reader;
/* Checks the head and the sum. */
ckv_status ckv_bytes_open(byte_reader *r, const void *data, size_t size, const char magic[4], uint32_t version,
                          ckv_error *error);
/* The next n bytes; NULL when there are not as many. */
const void *ckv_bytes_take(byte_reader *r, size_t count, size_t size);
int32_t ckv_bytes_take_int(byte_reader *r);
/* The policy, as text; whether it is the one expected. */
void ckv_bytes_put_policy(byte_writer *w, const ckv_stream_params *params);
bool ckv_bytes_take_policy(byte_reader *r, const ckv_stream_params *params);
/* n positions from 0 to below `seen`, ascending if they must. */
bool ckv_bytes_positions_good(const void *positions, int32_t n, int32_t seen, bool ascending);

/* merge.c: folds the row that is about to go into the one most like it; rows[2][dim] are scratch. */
void ckv_merge_evicted(const ckv_stream *stream, int32_t layer_index, int32_t head_index, int32_t loser, float *scratch);
/* The number in [0, 1) that decides overflow number `draw` of a head (threefry-2x32, 20 rounds). */
float ckv_merge_draw(int64_t seed, int64_t draw);
/* Probability of merging. */
float ckv_merge_gate(float loser, float target);

#endif
