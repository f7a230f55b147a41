/* A KV cache of our own, for what an engine's cannot be: layers and heads of unequal length, rows in a few bits (KIVI) or of
 * low rank (Palu), and memory that is just what they need.
 *
 *     ckv_cache_create(&cache, &params.codec, shapes, n_layers, NULL, &error);
 *     for each layer:             ckv_cache_load(cache, layer, &k, &v, &keep, NULL);     the kept rows of the prompt
 *     for each token, each layer: ckv_cache_append(cache, layer, &k, &v);
 *                                 ckv_cache_attend(cache, layer, &q, 0, 0, out);         in place of the engine's attention
 *     ckv_cache_free(cache);
 *
 * Rows are stored as f16 and, by the codec, packed: kivi's as soon as a whole group of tokens is older than the residual
 * window (where there is no memory for that they stay f16 until a later call has it, which is no error), palu's when they
 * are loaded (later ones stay f16 in the subspace; a cache that was not loaded finds it at the first call of several
 * tokens). Conventions as in chunkkv.h: one thread at a time, views are borrowed, on an error nothing has changed.
 */
#ifndef CHUNKKV_CACHE_H
#define CHUNKKV_CACHE_H

#include "chunkkv/chunkkv.h"
#include "chunkkv/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ckv_cache ckv_cache;

/* Empty caches of n_layers layers, shapes[n_layers]. codec NULL: rows stay f16. options->n_threads share the KV heads of
 * calls that are long enough. *cache is NULL after an error. Errors: CKV_ERR_ARG, CKV_ERR_NOMEM, CKV_ERR_POLICY. */
CKV_API ckv_status ckv_cache_create(ckv_cache **cache, const ckv_codec *codec, const ckv_stream_shape *shapes,
                                    int32_t n_layers, const ckv_ctx_options *options, ckv_error *error);
CKV_API void ckv_cache_free(ckv_cache *cache);
CKV_API const char *ckv_cache_message(const ckv_cache *cache);

/* Fills an empty layer with rows of k [G][T][dim_k] and v [G][T][dim_v]: those that `keep` lists (by KV head or for all), or
 * all where it is NULL. merged: values to store in place of v's, as ckv_merge_kept writes them, or NULL. Errors:
 * CKV_ERR_ARG, CKV_ERR_NOMEM, CKV_ERR_STATE (rows are there), CKV_ERR_NUMERIC (NaN, infinity or beyond what f16 holds),
 * CKV_ERR_UNSUPPORTED (palu without LAPACKE). */
CKV_API ckv_status ckv_cache_load(ckv_cache *cache, int32_t layer, const ckv_view *k, const ckv_view *v,
                                  const ckv_keep *keep, const float *merged);

/* The next n tokens of a layer, a row to every head: k [G][n][dim_k], v [G][n][dim_v]. n = 0 is no call. Errors: as load. */
CKV_API ckv_status ckv_cache_append(ckv_cache *cache, int32_t layer, const ckv_view *k, const ckv_view *v);

/* Attention of q [H][n][dim_k], the queries of the n newest rows, each of which sees the rows up to its own:
 * out[n][H][dim_v] = softmax(scale * q k^T) v. scale 0: 1 / sqrt(dim_k); cap: as ckv_layer.logit_cap. Errors: CKV_ERR_ARG
 * (a head with fewer rows than queries among others), CKV_ERR_NOMEM. */
CKV_API ckv_status ckv_cache_attend(ckv_cache *cache, int32_t layer, const ckv_view *q, float scale, float cap, float *out);

/* Rows of a head; 0 where there is none. */
CKV_API int32_t ckv_cache_rows(const ckv_cache *cache, int32_t layer, int32_t head);

/* A head's rows as they are attended to, oldest first: keys[n][dim_k] and values[n][dim_v]; either may be NULL. Errors:
 * CKV_ERR_ARG, CKV_ERR_NOMEM. */
CKV_API ckv_status ckv_cache_read(ckv_cache *cache, int32_t layer, int32_t head, float *keys, float *values);

/* The rows where they lie, for an engine that attends to them itself: only where all are f16 and all heads have equally
 * many. Borrowed until the next call that changes the cache. Errors: CKV_ERR_ARG, CKV_ERR_UNSUPPORTED. */
CKV_API ckv_status ckv_cache_view(const ckv_cache *cache, int32_t layer, ckv_view *k, ckv_view *v);

/* Drops rows of a head by ascending indices; what stays is not coded anew. Errors: CKV_ERR_ARG. */
CKV_API ckv_status ckv_cache_drop(ckv_cache *cache, int32_t layer, int32_t head, const int32_t *indices, int32_t n);

/* Drops the newest n rows of every head. Errors: CKV_ERR_ARG. */
CKV_API ckv_status ckv_cache_take_back(ckv_cache *cache, int32_t layer, int32_t n);

typedef struct ckv_cache_info {
	size_t size;              /* set by the caller: sizeof(ckv_cache_info), or 0 for "this version's" */
	int64_t rows;             /* of all heads */
	int32_t longest;          /* rows of the longest head */
	uint64_t bytes;           /* that the rows need as they are stored: codes, levels, bases and f16 rows */
	uint64_t bytes_allocated; /* the memory they lie in, room to grow among it */
	uint64_t bytes_f16;       /* that as many rows of f16 would need */
	uint64_t reference_bytes; /* what the published code of the codec would report, which packs nothing; 0: no codec */
	int32_t rank_k, rank_v;   /* palu: of the layer, or of the first; 0: not fitted */
} ckv_cache_info;
/* Of one layer, or of all with layer -1. Errors: CKV_ERR_ARG. */
CKV_API ckv_status ckv_cache_get_info(const ckv_cache *cache, int32_t layer, ckv_cache_info *info);

/* What ckv_cache_get_info would tell of all layers once each is loaded with so many rows: rows[] of the first layer's KV
 * heads, then of the next one's. Nothing is loaded; options are as for ckv_cache_create. Of palu with rank 0 the rank is
 * known only from the rows themselves: the figures are then of the greatest that there could be, so "at most". Errors, after
 * which *info is as it was: CKV_ERR_ARG, CKV_ERR_NOMEM (sums beyond what can be counted, too), CKV_ERR_POLICY. */
CKV_API ckv_status ckv_cache_estimate(const ckv_codec *codec, const ckv_stream_shape *shapes, int32_t n_layers,
                                      const int32_t *rows, const ckv_ctx_options *options, ckv_cache_info *info,
                                      ckv_error *error);

/* A copy with nothing in common, without room to grow. Errors: CKV_ERR_ARG, CKV_ERR_NOMEM. */
CKV_API ckv_status ckv_cache_copy(const ckv_cache *cache, ckv_cache **copy);

/* State as bytes, versioned and with a checksum: returns the size; writes when capacity suffices. Restoring needs an empty
 * cache of the same codec and shapes, and changes nothing when the bytes are damaged or another's. Errors: CKV_ERR_ARG,
 * CKV_ERR_NOMEM, CKV_ERR_STATE. */
CKV_API size_t ckv_cache_save(const ckv_cache *cache, void *data, size_t capacity);
CKV_API ckv_status ckv_cache_restore(ckv_cache *cache, const void *data, size_t size);

#ifdef __cplusplus
}
#endif
#endif
