/* What a selection does to a cache, measured on plain arrays: how far keys, values, attention and its output move, what two
 * selections have in common, and how a selection lies in chunks. For evaluation; nothing here changes a cache.
 *
 *     ckv_select(ctx, &layer, ckv_keep_percent(10), &keep);
 *     ckv_measures measures;
 *     ckv_measures_init(&measures);
 *     ckv_measure(ctx, &layer, &keep, &measures);          -> measures.attention_cosine, measures.output_error, ...
 *     ckv_measure_stored(ctx, &layer, &keep, keys, values, &measures);    the same of rows that a codec has changed
 *
 * Conventions and shapes as in chunkkv.h. All measures are without unit but the two L1 losses, which are in units of the
 * cache's elements. Positions are those of a list: ascending, no two alike, from 0.
 */
#ifndef CHUNKKV_MEASURE_H
#define CHUNKKV_MEASURE_H

#include "chunkkv/chunkkv.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ----------------------------------------------------------- cache quality */

/* What one layer loses. The last three are means over the queries of the layer and all H query heads. */
typedef struct ckv_measures {
	size_t size;
	double key_l1;           /* mean |K - K^| over heads, tokens and channels; K^ has zeros for dropped rows. 0 or more */
	double value_l1;         /* the same of V */
	double attention_cosine; /* between a query's attention before and after, see below. 0 to 1, 1: unchanged */
	double output_error;     /* ||o - o^|| / ||o||, o: the attention's output before, o^: after. 0: unchanged; may pass 1 */
	double attention_kept;   /* share of the attention before that falls on kept rows. 0 to 1 */
} ckv_measures;

/* Sets the size, and the rest to 0. */
CKV_API void ckv_measures_init(ckv_measures *measures);

/* Measures what `keep` does to a layer: k [G][T][d] and v [G][T][d_v], of any element type, and q [H][n][d], the last n
 * queries (n at most T), of which query i sees tokens 0 to T - n + i. Attention before: the softmax over all that a query
 * sees; after: the softmax over what is kept of that, with zeros at dropped tokens. scale and logit_cap as everywhere. A
 * query of which nothing is kept counts as cosine 0, error 1, nothing kept; where o is zero the error is 0 if o^ is too, and
 * 1 otherwise. keep: one list for all heads or one for each of the G, as ckv_select left it; empty lists are allowed. The
 * policy of ctx has no part in it. Logits and outputs are computed in float, means in double; results are the same whatever
 * the instruction set and number of threads. Memory: of the context; for each thread and 16 queries of a KV head's group
 * 2 (T + d_v) + d floats each, whatever n.
 * Source: ChunkKV, arXiv 2502.00299, quality of the KV cache (L1 loss, attention cosine).
 * Errors, after which *measures is as it was: CKV_ERR_ARG (shapes that disagree, more queries than tokens, lists that are
 * not ascending, beyond T, or neither one nor G), CKV_ERR_NOMEM, CKV_ERR_NUMERIC (NaN or infinity in a row or query, or on
 * the way to the output). One thread at a time for a context. */
CKV_API ckv_status ckv_measure(ckv_ctx *ctx, const ckv_layer *layer, const ckv_keep *keep, ckv_measures *measures);

/* The same where kept rows are not as they came: keys[][d] and values[][d_v] are what a cache gives back for them
 * (ckv_cache_read), packed, projected or merged, and K^, V^ and the attention after are of these. Kept rows one head after
 * another, as ckv_merge_kept has them: entry i of head g is row g * keep->n_positions + i when all heads share a list, else
 * row keep->offsets[g] + i. NULL: as they came; both NULL is ckv_measure. attention_kept does not hang on them. Errors:
 * those of ckv_measure, of these rows too. */
CKV_API ckv_status ckv_measure_stored(ckv_ctx *ctx, const ckv_layer *layer, const ckv_keep *keep, const float *keys,
                                      const float *values, ckv_measures *measures);

/* ---------------------------------------------------------------- overlap */

/* Positions in both lists divided by positions in either: 0 to 1; 1 where both are empty. A list may be NULL when it is
 * empty. Source: ChunkKV, arXiv 2502.00299, similarity of neighbouring layers' indices.
 * Errors: CKV_ERR_ARG (not ascending, negative, beyond CKV_MAX_TOKENS). Thread-safe. */
CKV_API ckv_status ckv_jaccard(const int32_t *a, size_t n_a, const int32_t *b, size_t n_b, double *jaccard);

/* The same for two selections, as ckv_select left them: the mean over KV heads. One list stands for every head's; where both
 * have one it is ckv_jaccard. Errors: CKV_ERR_ARG (as above, or lists for different numbers of heads). Thread-safe. */
CKV_API ckv_status ckv_keep_jaccard(const ckv_keep *a, const ckv_keep *b, double *jaccard);

/* ----------------------------------------------------------------- chunks */

/* Both: chunks are of `chunk` tokens from position 0 on, the last one may be shorter. */

/* How evenly the scores lie on what is kept of a chunk. scores[T], 0 or more, are read at the n kept positions alone (sums
 * over KV heads, as entropy_gate sees them, or a single head's). For each chunk with m >= 2 kept tokens of scores u:
 * p = u / (sum u + 1e-8), entropy = -sum p log(p + 1e-8) / log m, cut to 0 .. 1. 1: all alike; near 0: one has it all, or
 * there is nothing to share. mean and deviation (of the population: divided by the number) over those chunks, n_chunks: how
 * many there are; 0 0 0 where there is none. Each of the three may be NULL.
 * Source: EntropyGatedChunkKVPress of kvpress (within-chunk entropy).
 * Errors: CKV_ERR_ARG (a negative score, chunk below 1, positions not ascending or beyond T), CKV_ERR_NUMERIC (a kept
 * token's score is NaN or infinite). Thread-safe. */
CKV_API ckv_status ckv_chunk_entropy(const float *scores, int32_t n_tokens, const int32_t *positions, size_t n,
                                     int32_t chunk, double *mean, double *deviation, int32_t *n_chunks);

/* How contiguous the n kept of T positions are. whole: chunks that are kept whole divided by chunks of which anything is
 * kept, 0 to 1 (0 where nothing is). n_runs: stretches of neighbouring positions, 1 where all are neighbours. Either may be
 * NULL. Errors: CKV_ERR_ARG (chunk below 1, positions not ascending or beyond T). Thread-safe. */
CKV_API ckv_status ckv_chunk_coverage(const int32_t *positions, size_t n, int32_t n_tokens, int32_t chunk, double *whole,
                                      int32_t *n_runs);

#ifdef __cplusplus
}
#endif
#endif
