/* What a run is, for the head of its file. */
#ifndef CKV_EVAL_SETTINGS_H
#define CKV_EVAL_SETTINGS_H

#include "cli.h"
#include "plan.h"
#include "records.h"

/* Everything that a record depends on, files by their content; what only tells which records there are (policies, budgets,
 * lengths, numbers of examples) is left out, so that a file can be widened. Prints why not. */
bool settings_make(run_header *header, const run_options *options, const plan *all);

#endif
