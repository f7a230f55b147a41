/* What the tests of streaming caches share: tokens of layers, streams that must work, the rows of streams side by side, and
 * the token step in plain double arithmetic, written from the head comment of chunkkv/stream.h. */
#ifndef CKV_TEST_STREAM_SUPPORT_H
#define CKV_TEST_STREAM_SUPPORT_H

#include "chunkkv/stream.h"
#include "support.h"

/* ---------------------------------------------------------------- tokens */

/* Tokens of one layer; without query heads the keys are the queries. */
typedef struct tokens {
	tensor k, v, q;
	stored stored_k, stored_v, stored_q;
	int32_t group; /* query heads of a KV head; 0: none */
} tokens;

tokens tokens_random(rng *r, ckv_stream_shape shape, int32_t n, int32_t group);
/* The same values in another type and layout. */
tokens tokens_stored_as(const tokens *t, ckv_dtype dtype, layout order, size_t padding);
void tokens_free(tokens *t);

/* Tokens first .. first+n-1 of a view. */
ckv_view view_part(const ckv_view *view, int32_t first, int32_t n);

ckv_status push_status(ckv_stream *s, int32_t layer, const tokens *t, int32_t first, int32_t n);
/* That must succeed. */
void push(ckv_stream *s, int32_t layer, const tokens *t, int32_t first, int32_t n);
/* All layers, one after the other. */
void push_layers(ckv_stream *s, const tokens *layers, int32_t n_layers, int32_t first, int32_t n);
/* Tokens first .. end-1 in calls of random lengths, all layers in each; none crosses token `stop`. */
void push_randomly(rng *r, ckv_stream *s, const tokens *layers, int32_t n_layers, int32_t first, int32_t end, int32_t stop);

/* --------------------------------------------------------------- streams */

ckv_stream_params stream_params(const char *policy);
ckv_stream *stream_make(const char *policy, int32_t budget, const ckv_stream_shape *shapes, int32_t n_layers,
                        const ckv_ctx_options *options);
ckv_ctx_options stream_options(uint32_t cpu_disable, int32_t n_threads);
/* The smallest budget that a policy accepts, found by trying. */
int32_t least_budget(const char *policy);
/* A random policy that parses, and its text. */
ckv_stream_params random_policy(rng *r, char text[256]);

ckv_stream_rows head_rows(const ckv_stream *s, int32_t layer, int32_t head);
ckv_stream_info layer_info(const ckv_stream *s, int32_t layer);

/* Positions, scores and f16 rows of all layers, bit for bit. */
void check_same_rows(const ckv_stream *a, const ckv_stream *b, const ckv_stream_shape *shapes, int32_t n_layers,
                     const char *what);

typedef struct saved {
	uint8_t *data;
	size_t size;
} saved;
saved save_stream(const ckv_stream *s);
bool same_saved(const saved *a, const saved *b);
void saved_free(saved *s);
/* Whether the stream still saves as that. */
bool still_saves(const ckv_stream *s, const saved *before);
/* Puts the checksum that belongs to the bytes in their head (FNV-1a of what follows 32 bytes). */
void saved_sign(saved *s);

double f16_value(uint16_t bits);
double f16_rounded(double x);

/* -------------------------------------------------------------- settings */

enum { MOST_LAYERS = 4 };

/* A random policy, shapes, and tokens for them. */
typedef struct setting {
	char policy[256];
	ckv_stream_params params;
	ckv_stream_shape shapes[MOST_LAYERS];
	tokens layers[MOST_LAYERS];
	int32_t n_layers, budget, n, stop; /* stop: tokens that squeeze measures; 0: none */
} setting;

setting setting_make(rng *r);
void setting_free(setting *s);
ckv_stream *open_setting(const setting *s, const ckv_ctx_options *options);
/* Tokens first .. end-1 in as few calls as may be. */
void push_whole(const setting *s, ckv_stream *stream, int32_t first, int32_t end);

/* ----------------------------------------------------------------- naive */

/* One head of the token step. */
typedef struct naive_head {
	ckv_stream_params params;
	const tokens *t;
	int32_t layer, index, budget, seen, n;
	int32_t *positions;
	double *scores, *keys, *values; /* rows after another */
	int64_t draws;
	int32_t decisions, near_ties;
	int32_t known_from; /* queries of older tokens are lost */
} naive_head;

naive_head naive_make(const ckv_stream_params *params, const tokens *t, int32_t layer, int32_t index, int32_t budget);
void naive_free(naive_head *h);
/* The next token. What the library evicted decides only between chunks whose means are all but equal. */
void naive_step(naive_head *h, const int32_t *evicted, int32_t n_evicted, const char *what);
/* Positions and scores of the head against what a stream holds of it. */
void naive_compare(const naive_head *h, const ckv_stream *s, const char *what);
/* The newest n tokens are taken back. Queries that gave way to theirs are lost. */
void naive_trim(naive_head *h, int32_t n);
/* Mean cosine of all pairs of the first n keys, over all heads. */
double naive_concentration(const tokens *t, int32_t n);

/* Fails the test when it can't be made. */
ckv_keeper *keeper_make(const char *policy, const ckv_ctx_options *options);
ckv_stream_rows keeper_rows_of(const ckv_keeper *keeper);

#endif
