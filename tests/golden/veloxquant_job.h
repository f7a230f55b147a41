/* A case in hand, and how what became of its parts is counted. */
#ifndef GOLDEN_VELOXQUANT_JOB_H
#define GOLDEN_VELOXQUANT_JOB_H

#include "casefile.h"
#include "tally.h"

typedef struct vq_job {
	const casefile *file;
	tally *counts;
	char label[TALLY_LABEL]; /* of what is compared: kind and method */
} vq_job;

void vq_job_init(vq_job *job, const casefile *file, tally *counts, const char *method);

/* Counts one output of the case; `item` names it when it failed. */
void vq_count(const vq_job *job, const char *item, bool ok, const note *why);

/* Counts one output that there is nothing to compare with. */
void vq_skip(const vq_job *job, const char *reason);

#endif
