/* The tasks that there are; task.c lists them. */
#ifndef CKV_EVAL_TASKS_H
#define CKV_EVAL_TASKS_H

#include "task.h"

extern const task task_niah, task_ruler, task_longbench, task_gsm8k, task_gsm8k_many, task_jailbreakv, task_perplexity,
    task_doc;

#endif
