/* Streaming caches of libchunkkv: tokens come one by one or in calls of many, and a cache never grows beyond its budget.
 *
 * Two forms of one thing:
 *  - ckv_stream holds the rows itself (f16), a cache for each layer and in it each KV head its own tokens:
 *
 *        ckv_stream_params params;
 *        ckv_stream_parse("chunkkv:chunk=8,grace=32", &params, NULL);
 *        ckv_stream_create(&stream, &params, 512, shapes, n_layers, NULL, NULL);
 *        for each step, for each layer:  ckv_stream_push(stream, layer, &k, &v, &q);
 *                                        ckv_stream_read(stream, layer, head, NULL, keys, values);
 *        ckv_stream_free(stream);
 *
 *  - ckv_keeper is the bookkeeping alone, for an engine that holds the rows of a layer itself (one keeper for each layer):
 *    it is told of new tokens and shown keys and queries, and says which rows to drop.
 *
 * The token step of a head, in product mode. Chunks are runs of `chunk` positions counted from the sinks on.
 *  1. The rows stored so far are scored by the new token. Its query is the model's own (weights are the mean over the query
 *     heads of the KV head) or, when none is shown, its key. w: softmax of the query's logits over rows.
 *      - attn_mass: score = score * decay + w over those rows; the new row will start at 0, the very first at 1
 *      - tova: score = w over all rows, the new one too; only when one must go
 *      - snapkv: mean w of the last `window` queries, each over the rows older than itself; only when some must go
 *      - key_norm: the key's length, long ones are kept; knorm: short ones
 *      - streaming: the newest are kept
 *  2. The row is appended.
 *  3. While there are more rows than the budget, the chunk with the lowest mean score goes, whole (the older of equal ones;
 *     with knorm the newer). Chunks that hold a sink, one of the `grace` newest tokens (snapkv: of the window), or have not
 *     been seen to their end, stay. snapkv lets as many chunks go at once as make up a window.
 * So the budget holds after every token, survivors are whole chunks, all heads of a layer have equally many, and how tokens
 * are split into calls changes nothing. Reference mode (reference = 1) is the published code of VeloxQuant-MLX 0.94.15
 * instead, with its own chunk boundaries, its trimming of heads after each call, and its other ways; see docs/methods.md.
 *
 * Next position: always tokens_seen; a kept row keeps its position. Conventions as in chunkkv.h.
 */
#ifndef CHUNKKV_STREAM_H
#define CHUNKKV_STREAM_H

#include "chunkkv/chunkkv.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- policy */

/* Start from ckv_stream_params_default or ckv_stream_parse. Ranges: ckv_stream_param_info_at. */
typedef struct ckv_stream_params {
	size_t size;
	const char *preset; /* for reports; reference mode takes l2norm's and snapkv's own rules from it */
	const char *scorer; /* attn_mass, key_norm, knorm, tova, snapkv, streaming */
	const char *layers; /* uniform; pyramid, squeeze: see ckv_stream_budgets */
	const char *merge;  /* drop; mean, sim_weighted: the evicted value is merged into the most similar row (CaM) */
	int32_t chunk;      /* C: tokens that go together; merging needs 1 */
	int32_t sinks;      /* first tokens, never evicted */
	int32_t grace;      /* newest tokens, never evicted */
	int32_t window;     /* snapkv: queries observed, tokens protected */
	int32_t reuse;      /* layers that share the decisions of their first; 1: none */
	int32_t merge_keys; /* 1: keys are merged too */
	int32_t merge_gate; /* 1: merge with a probability that falls with the target's score */
	int32_t seed;       /* of the gate */
	int32_t reference;  /* 1: the published code's own rules */
	double decay;       /* of old scores, per token; above 0, 1: none */
	double beta;        /* pyramid: the first layer's share of the mean budget */
	double strength;    /* squeeze: 0 (uniform) to 1 */
} ckv_stream_params;

/* The preset "chunkkv". */
CKV_API void ckv_stream_params_default(ckv_stream_params *params);

/* Parses `preset[:key=value,...]`; what is wrong is told as by ckv_policy_parse. *params is written on success only. Errors:
 * CKV_ERR_ARG, CKV_ERR_POLICY. */
CKV_API ckv_status ckv_stream_parse(const char *text, ckv_stream_params *params, ckv_error *error);

/* Text that ckv_stream_parse reads back to the same; length as snprintf's. */
CKV_API size_t ckv_stream_format(const ckv_stream_params *params, char *buffer, size_t capacity);

/* 1: only a cache with rows of its own can do this, each layer as long as its share or values merged: ckv_stream, not a
 * ckv_keeper. 0 also for parameters that lack names. */
CKV_API int ckv_stream_params_hosted(const ckv_stream_params *params);

/* What there is, for listings: NULL past the end. */
CKV_API const ckv_method_info *ckv_stream_preset_info(size_t i);
CKV_API const ckv_method_info *ckv_stream_scorer_info(size_t i);
CKV_API const ckv_param_info *ckv_stream_param_info_at(size_t i);
CKV_API int ckv_stream_params_use(const ckv_stream_params *params, const char *key);
CKV_API size_t ckv_stream_params_value(const ckv_stream_params *params, const char *key, char *buffer, size_t capacity);

/* Shares a mean budget of rows among layers. pyramid: a straight line that falls from about beta times the mean, none below
 * what a layer must hold: sinks, grace and a chunk, in reference mode sinks + 1 (PyramidKV-adapted). squeeze: by 1 -
 * concentration[n_layers], mixed with the mean by `strength` (SqueezeAttention-adapted), raised to the same floor;
 * concentration may be NULL otherwise. Errors: CKV_ERR_ARG, CKV_ERR_POLICY, CKV_ERR_NUMERIC. Thread-safe. */
CKV_API ckv_status ckv_stream_budgets(const ckv_stream_params *params, int32_t budget, int32_t n_layers,
                                      const float *concentration, int32_t *budgets, ckv_error *error);

/* The one-shot form of the published ChunkKV-adapted: marks in keep[n] which of n scored rows stay: sinks, then chunks by
 * mean (equal ones: the later first), each only if it fits whole. Errors: CKV_ERR_ARG, CKV_ERR_NUMERIC. Thread-safe. */
CKV_API ckv_status ckv_keep_mask(const float *scores, int32_t n, int32_t chunk, int32_t sinks, int32_t budget,
                                 uint8_t *keep);

/* ---------------------------------------------------------------- stream */

typedef struct ckv_stream ckv_stream;

typedef struct ckv_stream_shape {
	int32_t n_kv_heads, dim_k, dim_v;
} ckv_stream_shape;

/* Empty caches for all layers of a model, shapes[n_layers], each of at most `budget` rows a head (their mean with
 * layers=pyramid and squeeze). Memory of a head: budget * (2 * (dim_k + dim_v) + 16) bytes, made as it fills, and 16 bytes
 * for each row and token of the largest call. *stream is NULL after an error. Errors: CKV_ERR_ARG, CKV_ERR_NOMEM,
 * CKV_ERR_POLICY (a budget that sinks, grace and one chunk do not fit in). */
CKV_API ckv_status ckv_stream_create(ckv_stream **stream, const ckv_stream_params *params, int32_t budget,
                                     const ckv_stream_shape *shapes, int32_t n_layers, const ckv_ctx_options *options,
                                     ckv_error *error);
CKV_API void ckv_stream_free(ckv_stream *stream);
CKV_API const char *ckv_stream_message(const ckv_stream *stream);

/* The next tokens of a layer: k [G][n][dim_k], v [G][n][dim_v], of any element type, stored as f16; q [H][n][dim_k] after
 * RoPE, or NULL: keys are queries. n = 0, or views without data, is no call at all. One call of n tokens costs much less
 * than n calls. Layers that share decisions (reuse) come after their first, with as many tokens. squeeze in product mode
 * measures the first `budget` tokens: until all layers have had them no layer may get more (CKV_ERR_STATE says how many).
 * Batched sequences that advance in step can be given as more heads. On an error nothing has changed. Errors: CKV_ERR_ARG,
 * CKV_ERR_NOMEM, CKV_ERR_STATE, CKV_ERR_CAPACITY (pins), CKV_ERR_NUMERIC (NaN, infinity, or beyond what f16 holds). */
CKV_API ckv_status ckv_stream_push(ckv_stream *stream, int32_t layer, const ckv_view *k, const ckv_view *v,
                                   const ckv_view *q);

/* Attention of the n tokens that the layer is about to be given: ckv_stream_push with the same views comes next. q [H][n][d]
 * goes over all rows of its KV head that are stored, then, causally, over k [G][n][dim_k] and v [G][n][dim_v], taken as f16.
 * scale: of the logits, 0: 1/sqrt(dim_k); cap: soft cap of the logits, 0: none; out [n][H][dim_v]. Only scratch memory of
 * the stream changes. Sums run over rows as they lie in memory, so a restored stream's may differ in the last bits. Errors,
 * with `out` undefined: CKV_ERR_ARG, CKV_ERR_NOMEM, CKV_ERR_NUMERIC. */
CKV_API ckv_status ckv_stream_attend(ckv_stream *stream, int32_t layer, const ckv_view *k, const ckv_view *v,
                                     const ckv_view *q, float scale, float cap, float *out);

/* Positions from `first` to `end` - 1, which may be still to come, never go, in any layer or head; widened to whole chunks.
 * ckv_stream_push then needs room in the layer's budget for sinks, grace (snapkv: window), one chunk, and all that is pinned
 * of what was kept and of its own tokens; it fails with CKV_ERR_CAPACITY where there is not as much. ckv_stream_clear and
 * ckv_stream_restore forget pins, and ckv_stream_save does not hold them: pin again afterwards. Errors: CKV_ERR_ARG,
 * CKV_ERR_NOMEM, CKV_ERR_UNSUPPORTED (reference mode). */
CKV_API ckv_status ckv_stream_pin(ckv_stream *stream, int32_t first, int32_t end);

/* Whether every layer has room for n more tokens beside what is pinned, before any of them is pushed. Errors: CKV_ERR_ARG,
 * CKV_ERR_CAPACITY. */
CKV_API ckv_status ckv_stream_check_room(ckv_stream *stream, int32_t n);

typedef struct ckv_stream_info {
	int32_t layer_budget;
	int32_t chunk_size;
	int32_t tokens_seen;
	int32_t tokens_kept;      /* of head 0 */
	int32_t tokens_most;      /* of the longest head */
	uint64_t bytes;           /* of the rows that are kept, keys and values */
	uint64_t bytes_full;      /* of all tokens seen, had they been kept */
	uint64_t bytes_allocated; /* by this layer: rows, positions, scores */
	double compression_ratio; /* bytes_full / bytes; 1 when nothing is kept */
} ckv_stream_info;
CKV_API ckv_status ckv_stream_layer_info(const ckv_stream *stream, int32_t layer, ckv_stream_info *info);

/* A head's rows, oldest first. Borrowed until the next push (a failed one too), trim, clear or restore. */
typedef struct ckv_stream_rows {
	int32_t n;
	const int32_t *positions;
	const float *scores; /* NULL where the scorer keeps none (tova, streaming, snapkv) */
} ckv_stream_rows;
CKV_API ckv_status ckv_stream_head(const ckv_stream *stream, int32_t layer, int32_t head, ckv_stream_rows *rows);

/* Copies a head's rows as f16: keys[n][dim_k], values[n][dim_v]; either may be NULL. With rope the keys are turned from
 * their positions to consecutive ones that end at tokens_seen - 1, so that no gap is left where rows went. Errors:
 * CKV_ERR_ARG (rope: also for dim_k above 1024). */
CKV_API ckv_status ckv_stream_read(const ckv_stream *stream, int32_t layer, int32_t head, const ckv_rope *rope,
                                   uint16_t *keys, uint16_t *values);

/* Positions that a head lost in the layer's last push, in the order they went: for an engine that mirrors the cache.
 * Borrowed until the next call that changes the stream. */
CKV_API ckv_status ckv_stream_evicted(const ckv_stream *stream, int32_t layer, int32_t head, const int32_t **positions,
                                      int32_t *n);

/* Takes the newest n tokens back, in all layers, which must have seen equally many. What was evicted on their account does
 * not come back, nor are scores that they gave taken back. Errors: CKV_ERR_ARG, CKV_ERR_STATE, CKV_ERR_UNSUPPORTED
 * (reference mode). */
CKV_API ckv_status ckv_stream_trim(ckv_stream *stream, int32_t n);

/* As just created, without pins; the rows' memory is kept. */
CKV_API void ckv_stream_clear(ckv_stream *stream);

/* State as bytes, versioned and with a checksum: returns the size; writes when capacity suffices. Save between steps, when
 * all layers have seen equally many tokens. Restoring needs a stream of the same policy, budget and shapes, and changes
 * nothing when the bytes are damaged or another's; pins are not among them and are forgotten. Errors: CKV_ERR_ARG,
 * CKV_ERR_NOMEM, CKV_ERR_STATE. */
CKV_API size_t ckv_stream_save(const ckv_stream *stream, void *data, size_t capacity);
CKV_API ckv_status ckv_stream_restore(ckv_stream *stream, const void *data, size_t size);

/* ---------------------------------------------------------------- keeper */

typedef struct ckv_keeper ckv_keeper;

/* Keeps account of one layer's rows; all heads share them. Weights are the mean over all query heads. Refused
 * (CKV_ERR_UNSUPPORTED): merging, layer rules, reference mode, which need the rows. */
CKV_API ckv_status ckv_keeper_create(ckv_keeper **keeper, const ckv_stream_params *params, const ckv_ctx_options *options,
                                     ckv_error *error);
CKV_API void ckv_keeper_free(ckv_keeper *keeper);
CKV_API const char *ckv_keeper_message(const ckv_keeper *keeper);

/* Queries that ckv_keeper_observe wants to see at most, and whether it wants keys at all. attn_mass: any number, so an
 * engine may wait and show several tokens' queries at once (lazily). */
CKV_API ckv_needs ckv_keeper_needs(const ckv_stream_params *params);

/* The next n tokens were appended. Errors: CKV_ERR_ARG, CKV_ERR_NOMEM. */
CKV_API ckv_status ckv_keeper_append(ckv_keeper *keeper, int32_t n);

/* Scores the rows. layer->k [G][rows][d]: the rows as the keeper counts them, oldest first; layer->q [H][m][d]: the queries
 * of the m newest tokens that were not shown yet (with tova and snapkv: of the newest). Each of them sees the rows older
 * than itself that are there. What every token has shown before it is evicted equals the token step above. On an error
 * nothing has changed. Errors: CKV_ERR_ARG, CKV_ERR_NOMEM, CKV_ERR_NUMERIC. */
CKV_API ckv_status ckv_keeper_observe(ckv_keeper *keeper, const ckv_layer *layer);

/* Positions from `first` to `end` - 1 never go; widened to whole chunks. */
CKV_API ckv_status ckv_keeper_pin(ckv_keeper *keeper, int32_t first, int32_t end);

/* Rows that could go now. */
CKV_API int32_t ckv_keeper_evictable(const ckv_keeper *keeper);

/* Drops exactly n rows, the lowest chunks; should the last not fit whole, its oldest rows. indices[n]: which they were of
 * the rows before, ascending. Errors: CKV_ERR_ARG, CKV_ERR_NOMEM, CKV_ERR_CAPACITY (n is more than can go; nothing has
 * changed). */
CKV_API ckv_status ckv_keeper_evict(ckv_keeper *keeper, int32_t n, int32_t *indices);

/* Takes over n rows of another account, whatever was kept here before: their ascending positions, of `seen` tokens. They
 * start without scores (norms: they are scored by the next ckv_keeper_observe). Pins are forgotten. Errors: CKV_ERR_ARG,
 * CKV_ERR_NOMEM. */
CKV_API ckv_status ckv_keeper_adopt(ckv_keeper *keeper, const int32_t *positions, int32_t n, int32_t seen);

/* Drops the rows given by ascending indices: another layer's decision (reuse). */
CKV_API ckv_status ckv_keeper_drop(ckv_keeper *keeper, const int32_t *indices, int32_t n);

CKV_API int32_t ckv_keeper_seen(const ckv_keeper *keeper);
CKV_API void ckv_keeper_rows(const ckv_keeper *keeper, ckv_stream_rows *rows);

/* As for ckv_stream: the newest n tokens taken back, all forgotten, state as bytes. */
CKV_API ckv_status ckv_keeper_trim(ckv_keeper *keeper, int32_t n);
CKV_API void ckv_keeper_clear(ckv_keeper *keeper);
CKV_API size_t ckv_keeper_save(const ckv_keeper *keeper, void *data, size_t capacity);
CKV_API ckv_status ckv_keeper_restore(ckv_keeper *keeper, const void *data, size_t size);

/* ---------------------------------------------------------------- rotation */

/* Turns row i of n, `stride` floats apart, from positions[i] to position `first` + i: no gaps are left between kept keys
 * (re-rotation of kvpress). Thread-safe. */
CKV_API void ckv_rope_close_gaps(const ckv_rope *rope, const int32_t *positions, int32_t n, int32_t first, float *rows,
                                 size_t stride);

#ifdef __cplusplus
}
#endif
#endif
