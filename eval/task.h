/* Where examples come from. A new task is one file, and one line in the table of task.c. */
#ifndef CKV_EVAL_TASK_H
#define CKV_EVAL_TASK_H

#include "example.h"

#include <stddef.h>

/* What the user chose, and the model's tokeniser. Lists and strings are borrowed. */
typedef struct task_options {
	const int32_t *lengths; /* [n_lengths] tokens of prompt and answer together; none: the task's own */
	int32_t n_lengths;
	const double *depths; /* [n_depths] percent; none: the task's own */
	int32_t n_depths;
	int32_t n_examples; /* for each length, depth and part; 0: the task's own, or all that a file has */
	uint32_t seed;
	const char *file;      /* -f: haystack, document, JSONL, CSV, as the task has it; NULL */
	const char *questions; /* --questions; NULL */
	const char *data;      /* --data: folder with the task's data files; NULL */
	const char *prompts;   /* --prompts: JSON file of prompt templates in place of ours; NULL */
	int32_t shots;         /* worked examples in the prompt; -1: the task's own */
	int32_t n_predict;     /* tokens of an answer at most; 0: the task's own */
	/* Tokens of a text by the model's tokeniser, nothing put before or after it; negative on failure, which is printed. */
	int32_t (*count)(const char *text, size_t size, void *user);
	void *user;
} task_options;

typedef struct task {
	const char *name, *summary;
	const char *needs;        /* files that it must be given, for the help text; "" */
	const char *const *parts; /* its subtasks, NULL at the end; NULL: it has none */
	/* Adds the examples of one part (NULL where there are none). Prints why not; a fault in a data file with its line. */
	bool (*load)(const struct task *task, const char *part, const task_options *options, example_list *list);
} task;

const task *task_at(size_t i); /* NULL past the end */
/* Adds the examples of "ruler", or of one part, "ruler/vt". Prints why not: of an unknown name, the nearest. */
bool task_load(const char *name, const task_options *options, example_list *list);

#endif
