/* Methods that are one another under some settings, bit for bit. */
#ifndef GOLDEN_VELOXQUANT_EQUAL_H
#define GOLDEN_VELOXQUANT_EQUAL_H

#include "veloxquant_job.h"

/* A row of the table c1_equals_h2o, on data of our own of that size: positions, rows and scores of chunkkv with chunks of
 * one token, of h2o without grace and decay, and of cam that merges nothing; of a flat pyramid, an unsqueezed squeeze, and
 * h2o with a grace of one. Each pair counts as an output. */
void vq_replay_equal(const vq_job *job, const json_t *row, size_t number);

#endif
