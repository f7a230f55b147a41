/* A case's tokens in a cache of ours that codes them, call by call. */
#ifndef GOLDEN_VELOXQUANT_CACHE_H
#define GOLDEN_VELOXQUANT_CACHE_H

#include "veloxquant_case.h"
#include "veloxquant_job.h"

#include <chunkkv/cache.h>

/* A cache at one time. */
typedef struct vq_cache_state {
	ckv_cache_info info;
	int32_t packed; /* rows of a head that are packed, as keys */
} vq_cache_state;

/* What it said. */
typedef struct vq_cached {
	int32_t *returned;           /* [n_steps] rows of each head after each call */
	size_t n;                    /* heads * tokens * dim */
	float *keys, *values;        /* [heads][tokens][dim] at the end */
	vq_cache_state first, final; /* after the first call, at the end */
} vq_cached;

/* The same for every run (replay.h); all runs must agree bit for bit. The sequences of a batch are more heads. */
bool vq_cached_open(vq_cached *cached, const vq_case *c, const ckv_codec *codec, note *why);
void vq_cached_close(vq_cached *cached);

/* A codec of that kind with what all kinds have in common set, in reference mode. */
ckv_codec vq_codec(const char *kind);
/* Whether a cache takes such a codec; if not, that is counted as skipped. */
bool vq_codec_taken(const vq_job *job, const ckv_codec *codec);

/* Counts returned_len as one output. */
void vq_cached_replay_returned(const vq_job *job, const vq_case *c, const vq_cached *cached);

/* A sum of entries of an object of numbers, which must all be there, beside what was found. */
bool vq_sum_agrees(const json_t *object, const char *const *names, size_t n, double found, note *why);

#endif
