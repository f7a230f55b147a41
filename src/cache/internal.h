/* What the files of the cache share. */
#ifndef CKV_CACHE_INTERNAL_H
#define CKV_CACHE_INTERNAL_H

#include "chunkkv/cache.h"
#include "core/internal.h"
#include "quant/quant.h"

/* How rows are stored behind the tail. */
typedef enum cache_codec { CACHE_F16, CACHE_KIVI, CACHE_PALU } cache_codec;

/* A head's rows, keys or values, oldest first: packed ones, then the tail. */
typedef struct cache_rows {
	ckv_packed packed;
	size_t first;        /* of the side's tail */
	int32_t n, capacity; /* rows in the tail */
} cache_rows;

/* Keys or values of a layer. The heads' tails lie in one block, one behind the other. */
typedef struct cache_side {
	int32_t dim, width; /* of a row as it comes; as it is stored */
	uint16_t *tail;     /* [tail_rows][width] f16 */
	size_t tail_rows;
	cache_rows *heads;
	ckv_low_rank fit; /* rank 0: rows are stored in full */
	bool packs;       /* palu: rows of calls of many tokens are quantised */
} cache_side;

typedef struct cache_layer {
	ckv_stream_shape shape;
	cache_side k, v;
	int32_t residual; /* kivi: newest rows that are not packed */
} cache_layer;

struct ckv_cache {
	ckv_allocator allocator;
	const ckv_kernels *kernels;
	int32_t n_threads;
	ckv_codec codec;
	cache_codec kind;
	int32_t n_layers;
	cache_layer *layers;
	ckv_error error;
	float *work; /* floats */
	size_t work_size;
};

enum { CACHE_TILE = 64 }; /* rows that are decoded together */

void *ckv_cache_alloc(const ckv_cache *cache, size_t count, size_t size);
void ckv_cache_release(const ckv_cache *cache, void *memory);
/* At least n floats, contents lost; NULL, with a message, when there is no memory. */
float *ckv_cache_work(ckv_cache *cache, size_t n);
cache_layer *ckv_cache_layer(const ckv_cache *cache, int32_t layer);

static inline int32_t ckv_rows_count(const cache_rows *rows) { return rows->packed.n + rows->n; }
static inline uint16_t *ckv_rows_tail(const cache_side *side, const cache_rows *rows) {
	return side->tail + rows->first * (size_t)side->width;
}

/* side.c: f16 rows. */
/* Room for more[heads] rows, without spare when exact. */
ckv_status ckv_side_reserve(ckv_cache *cache, cache_side *side, int32_t n_heads, const int32_t *more, bool exact);
/* One row to the head's tail, where there is room. CKV_ERR_NUMERIC: f16 does not hold it. */
ckv_status ckv_side_put(cache_side *side, int32_t head, const float *row, size_t n);
/* Takes the oldest n rows out of the tail. */
void ckv_side_shift(cache_side *side, int32_t head, int32_t n);
/* Gives spare room back, if there is memory for the smaller copy. */
void ckv_side_trim(ckv_cache *cache, cache_side *side, int32_t n_heads);
void ckv_side_free(const ckv_cache *cache, cache_side *side, int32_t n_heads);
uint64_t ckv_side_used(const cache_side *side, int32_t n_heads);
uint64_t ckv_side_allocated(const cache_side *side, int32_t n_heads);

/* codec.c */
/* Sets the shape of the heads' packed rows, for rows of side->width. */
void ckv_codec_shape(const ckv_cache *cache, cache_side *side, int32_t n_heads, bool keys);
/* kivi: how many of the newest rows stay f16, by the rows that were loaded. */
void ckv_codec_limit_residual(const ckv_cache *cache, cache_layer *layer);
/* kivi: rows of a head's tail that make whole groups and have left the residual window. */
int32_t ckv_codec_due(const ckv_cache *cache, const cache_layer *layer, int32_t head);
/* kivi: packs whole groups that have left the residual window. Rows that there is no memory to pack stay as they are. */
void ckv_codec_seal(ckv_cache *cache, cache_layer *layer);
/* palu: from here on the side's rows are of the subspace that fits those it has, and these are packed. */
ckv_status ckv_codec_fit(ckv_cache *cache, cache_layer *layer, int32_t number);
uint64_t ckv_codec_reference_bytes(const ckv_cache *cache, const cache_layer *layer);

/* rows.c: n rows of a head from row `first` on, as stored, to floats. */
void ckv_rows_decode(const ckv_cache *cache, const cache_side *side, const cache_rows *rows, int32_t first, int32_t n,
                     float *out);

#endif
