/* What a stream is fed, and what it said. */
#ifndef GOLDEN_VELOXQUANT_FEED_H
#define GOLDEN_VELOXQUANT_FEED_H

#include "veloxquant_policy.h"

/* Keys and values of all layers [layers][heads][..][dim] in f16, taken in steps of so many tokens. */
typedef struct vq_feed {
	const vq_policy *policy;
	int32_t layers, heads; /* all of a batch, one sequence after another */
	int32_t tokens;        /* the sum of the steps */
	int32_t n_steps;
	const int32_t *steps;
	ckv_view keys, values;         /* of the first layer */
	size_t key_layer, value_layer; /* bytes from a layer to the next */
} vq_feed;

/* Some of the heads. */
typedef struct vq_heads {
	int32_t first, n;
} vq_heads;

/* Everything that can be seen of a stream, of all steps where it may change. What is not there is -1, 0 in rows. */
typedef struct vq_record {
	int32_t layers, heads, tokens, n_steps;
	int32_t dim_k, dim_v;
	int32_t *positions;      /* [layers][n_steps][heads][tokens] */
	int32_t *lengths;        /* [layers][n_steps][heads] */
	int32_t *returned;       /* [layers][n_steps]: rows that attention sees */
	uint16_t *keys, *values; /* [layers][heads][tokens][dim], at the end */
	float *scores;           /* [layers][heads][tokens], at the end */
	bool *scored;            /* [layers]: there are any */
	ckv_stream_info *first;  /* [layers]: after the first step */
	ckv_stream_info *last;   /* [layers]: at the end */
} vq_record;

bool vq_record_open(vq_record *record, const vq_feed *feed, note *why);
void vq_record_close(vq_record *record);

/* Where in its array that is. */
size_t vq_at_step(const vq_record *record, int32_t layer, int32_t step);
size_t vq_at_head(const vq_record *record, int32_t layer, int32_t step, int32_t head);
size_t vq_at_end(const vq_record *record, int32_t layer, int32_t head);

/* A stream for some of the heads, made as run number `run` is (replay.h). */
ckv_status vq_create(ckv_stream **stream, const vq_feed *feed, int run, int32_t heads, ckv_error *error);

/* Feeds some of the heads to a stream of their own, and writes their part of the record. */
bool vq_run(const vq_feed *feed, int run, vq_heads heads, vq_record *record, note *why);

/* The same for every run, all heads in one stream or each in its own; all runs must agree bit for bit. */
bool vq_run_all(const vq_feed *feed, bool together, vq_record *record, note *why);

/* n tokens from token `from` on of some heads of a layer, to that layer of their stream. */
ckv_status vq_push(ckv_stream *stream, const vq_feed *feed, vq_heads heads, int32_t layer, int32_t from, int32_t n);

/* Whether two streams that were fed alike did the same, bit for bit. */
bool vq_same(const vq_record *a, const vq_record *b, note *why);

#endif
