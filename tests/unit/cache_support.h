/* What the tests of ckv_cache share: caches that must work, which tokens their heads hold, and attention over what they hold
 * in plain double arithmetic. */
#ifndef CKV_TEST_CACHE_SUPPORT_H
#define CKV_TEST_CACHE_SUPPORT_H

#include "chunkkv/cache.h"
#include "stream_support.h"

/* Codecs of all kinds as policies' texts; those that need LAPACKE come last. */
extern const char *const test_codecs[];
/* How many of them this build can do. */
size_t n_test_codecs(void);

/* That parses; kept rows as f16 for "none". */
ckv_codec codec_of(const char *text);
ckv_cache *cache_make(const char *codec, const ckv_stream_shape *shapes, int32_t n_layers, const ckv_ctx_options *options);

/* Tokens whose values f16 has to round. */
tokens rough_tokens(rng *r, ckv_stream_shape shape, int32_t n, int32_t group);

/* ---------------------------------------------------------------- rows */

/* Lists of kept tokens: for each head its own, some of them empty but not all, or one for all. */
typedef struct lists {
	int32_t *positions, *offsets;
	ckv_keep keep;
} lists;
lists lists_random(rng *r, int32_t n_heads, int32_t n_tokens, bool shared);
void lists_free(lists *l);

/* Which tokens the heads of a layer hold, oldest first. */
typedef struct held {
	int32_t n_heads, most;
	int32_t *n;
	int32_t *token; /* [n_heads][most] */
} held;
held held_make(int32_t n_heads, int32_t most);
void held_free(held *h);
void held_drop(held *h, int32_t head, const int32_t *indices, int32_t n);
void held_take_back(held *h, int32_t n);

/* The first n tokens, those of `keep` or all, to a cache and to what it holds; then tokens first .. first + n - 1. Both must
 * succeed. */
void cache_load(ckv_cache *cache, int32_t layer, const tokens *t, int32_t n, const ckv_keep *keep, held *h);
void cache_append(ckv_cache *cache, int32_t layer, const tokens *t, int32_t first, int32_t n, held *h);
ckv_status append_status(ckv_cache *cache, int32_t layer, const tokens *t, int32_t first, int32_t n);
ckv_status load_status(ckv_cache *cache, int32_t layer, const tokens *t, int32_t n, const ckv_keep *keep);

/* A head's rows. */
typedef struct head_read {
	int32_t n;
	float *k, *v;
} head_read;
head_read read_head(ckv_cache *cache, int32_t layer, int32_t head, int32_t dim_k, int32_t dim_v);
void head_read_free(head_read *rows);

/* Every head has so many rows as it should, and each is the token's in f16, bit for bit. */
void check_f16_rows(ckv_cache *cache, int32_t layer, const held *h, const tokens *t, const char *what);

/* ----------------------------------------------------------- attention */

typedef struct query_case {
	const tokens *t;
	int32_t first, n; /* of the tokens' queries */
	float scale, cap;
} query_case;

/* Of the queries over the rows as they are read. Each output must be within `slack` * 2e-6 * (1 + L) * V of it: V is the
 * largest value in the head, L the largest sum of |scale * q_c * k_c|, by which the rounding of a logit grows. */
void check_attend(ckv_cache *cache, int32_t layer, const query_case *c, double slack, const char *what);
/* The output alone; from malloc. */
float *attend_to(ckv_cache *cache, int32_t layer, const query_case *c, size_t *n);

/* --------------------------------------------------------------- state */

ckv_cache_info cache_info(const ckv_cache *cache, int32_t layer);
saved save_cache(const ckv_cache *cache);
bool cache_saves_as(const ckv_cache *cache, const saved *before);

#endif
