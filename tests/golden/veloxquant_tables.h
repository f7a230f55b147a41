/* Checks of single entries of the tables of kind "functions". */
#ifndef GOLDEN_VELOXQUANT_TABLES_H
#define GOLDEN_VELOXQUANT_TABLES_H

#include "casefile.h"

enum { VQ_MAX_LIST = 65536 };

/* Arrays that entries point into by `row`. */
typedef struct vq_tables {
	npy scores; /* [rows][n] */
	npy keys;   /* [rows][n][dim] */
} vq_tables;

/* Whether a list of counts in an entry is that one. */
bool vq_list_agrees(const json_t *entry, const char *key, const int32_t *found, size_t n_found, note *why);

bool vq_check_pyramid(const vq_tables *in, const json_t *entry, note *why);
bool vq_check_squeeze(const vq_tables *in, const json_t *entry, note *why);
bool vq_check_concentration(const vq_tables *in, const json_t *entry, note *why);

bool vq_check_partition(const vq_tables *in, const json_t *entry, note *why);
bool vq_check_scores(const vq_tables *in, const json_t *entry, note *why);
bool vq_check_mask(const vq_tables *in, const json_t *entry, note *why);

bool vq_check_draw(const vq_tables *in, const json_t *entry, note *why);
bool vq_check_gate(const vq_tables *in, const json_t *entry, note *why);

bool vq_check_groups(const vq_tables *in, const json_t *entry, note *why);

#endif
