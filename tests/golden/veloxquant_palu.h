/* A case of palu: what the library makes of its keys or its values. */
#ifndef GOLDEN_VELOXQUANT_PALU_H
#define GOLDEN_VELOXQUANT_PALU_H

#include "quant/quant.h"
#include "veloxquant_case.h"
#include "veloxquant_job.h"

typedef struct vq_palu_config {
	int32_t rank; /* 0: by energy */
	int32_t groups, group, high_bits, low_bits;
	double energy, high_share;
	bool quantize_values;
} vq_palu_config;

bool vq_palu_config_read(const json_t *root, vq_palu_config *config, note *why);

typedef struct vq_palu {
	const vq_case *c;
	const vq_palu_config *config;
	bool values, coded;
	int32_t held; /* tokens that the bases are of: up to the first call of more than one; 0: there was none */
	ckv_low_rank fit;
	float *rows;    /* [heads][tokens][dim] */
	float *plain;   /* [heads][tokens][rank]: latents */
	float *latents; /* the same as they are stored: coded, then rounded to f16 */
} vq_palu;

/* Channels that are coded with more bits than the rest, of so many. */
int32_t vq_palu_n_high(const vq_palu_config *config, int32_t rank);

/* Bases of keys or values, none where nothing is fitted. */
bool vq_palu_open(vq_palu *p, const vq_case *c, const vq_palu_config *config, bool values, note *why);
/* Latents, call by call as the case has them. */
bool vq_palu_code(vq_palu *p, note *why);
void vq_palu_close(vq_palu *p);

/* Whether the rows decide every vector: of which they know nothing may be any that are left. */
bool vq_palu_spanned(const ckv_low_rank *fit);

/* A number of an array of f16, and whether another is that: the same, perhaps rounded to f16 the other way. */
double vq_half_at(const npy *array, size_t i);
bool vq_halves_agree(double expected, double found);

/* A cache of ours: its rows bit for bit those of the parts here, and the reference's; and its counts. */
void vq_palu_replay_cache(const vq_job *job, const vq_case *c, const vq_palu_config *config);

/* Compares attrs_after_prefill and attrs_final: each entry counts as an output. */
void vq_palu_replay_attributes(const vq_job *job, const vq_palu *keys, const vq_palu *values);

#endif
