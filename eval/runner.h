/* Runs an evaluation: each prompt is read once for a cache type, and every policy and budget answers from that. */
#ifndef CKV_EVAL_RUNNER_H
#define CKV_EVAL_RUNNER_H

#include "example.h"
#include "plan.h"
#include "records.h"

/* What is missing in the file is made, in the order of the examples. False on an error, which is printed, and when it was
 * interrupted; what was found out until then is in the file. */
bool runner_run(const run_options *options, struct llama_model *model, plan *p, const example_list *examples,
                record_file *file);

#endif
