/* A case of a stream, as its folder tells it. */
#ifndef GOLDEN_VELOXQUANT_CASE_H
#define GOLDEN_VELOXQUANT_CASE_H

#include "veloxquant_feed.h"

typedef struct vq_case {
	const casefile *file;
	bool layered;         /* arrays have a leading axis of layers */
	int32_t batch, heads; /* heads of one sequence */
	int32_t dim;
	npy keys, values;
	int32_t *steps;
	vq_feed feed; /* of all of it */
} vq_case;

/* The policy is borrowed. */
bool vq_case_open(vq_case *c, const casefile *file, const vq_policy *policy, note *why);
void vq_case_close(vq_case *c);

/* Inputs of a case without steps of its own; `shape` is case.json's. */
bool vq_case_inputs(vq_case *c, const json_t *shape, note *why);

/* Reads whole numbers of 0 or more; *list is from malloc. */
bool vq_case_steps(const json_t *steps, int32_t **list, int32_t *n, int64_t *sum, note *why);

/* Reads an array of that type and shape, behind the axis of layers if there is one. VQ_ANY stands for any length, which the
 * array's last shape tells then. */
enum { VQ_ANY = -1 };
bool vq_case_array(const vq_case *c, const char *name, npy_type type, int rank, const int32_t *shape, npy *array, note *why);

#endif
