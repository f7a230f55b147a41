/* What a cache of theirs reports of itself, beside ckv_stream_info. */
#ifndef GOLDEN_VELOXQUANT_ATTRIBUTES_H
#define GOLDEN_VELOXQUANT_ATTRIBUTES_H

#include "veloxquant_case.h"
#include "veloxquant_job.h"

/* Compares attrs_after_prefill, attrs_final and layer_budgets: each entry counts as an output. */
void vq_replay_attributes(const vq_job *job, const vq_case *c, const vq_record *found);

#endif
