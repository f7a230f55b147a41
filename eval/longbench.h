/* The datasets of LongBench, and how each is asked (longbench_prompts.c). */
#ifndef CKV_EVAL_LONGBENCH_H
#define CKV_EVAL_LONGBENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct longbench_set {
	const char *name;
	const char *metric;
	int32_t n_predict;
	bool plain; /* without a chat template: completions, and questions after worked examples */
	bool chinese;
	const char *prompt; /* with {context} and, where the item has a question, {input} */
} longbench_set;

/* NULL past the end. */
const longbench_set *longbench_at(size_t i);

#endif
