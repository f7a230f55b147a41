/* What an evaluation asks: examples, made or read by tasks (task.h), judged by metrics (metric.h). */
#ifndef CKV_EVAL_EXAMPLE_H
#define CKV_EVAL_EXAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct metric;

/* One prompt and what is expected of it. All strings are UTF-8 and owned; optional ones may be NULL. */
typedef struct example {
	char *id;       /* unique in a run, the same each time the run is repeated: "ruler/vt/1024/3" */
	char *task;     /* what figures are gathered by: "niah", "ruler/vt", "longbench/qasper" */
	char *context;  /* up to the question; what is compressed where the question is not known yet */
	char *question; /* after it, with what separates the two; may be "", context and question make the prompt */
	char *begun;    /* what the answer begins with, put behind the chat template; or NULL */
	char *forced;   /* a text to be predicted in place of an answer of the model's own; or NULL */
	char **answers; /* [n_answers] accepted, or expected, as the metric has it */
	int32_t n_answers;
	char **classes; /* [n_classes] of a classification */
	int32_t n_classes;
	const struct metric *metric; /* NULL: nothing is judged but the divergence */
	int32_t n_predict;           /* tokens of the answer at most */
	int32_t length;              /* tokens asked for, of a grid; 0: none */
	double depth;                /* percent, of a grid; -1: none */
	bool plain;                  /* no chat template, whatever the model brings */
} example;

typedef struct example_list {
	example *items;
	int32_t n, capacity;
} example_list;

/* A new example at the end of the list, zeroed but for depth = -1 and the two names (copied); NULL without memory, which is
 * printed. It may move when another is added. */
example *example_add(example_list *list, const char *id, const char *task);
/* Copies a string (NULL: none) of n bytes at most to *to, freeing what was there. Prints why not. */
bool example_set(char **to, const char *text);
bool example_set_n(char **to, const char *text, size_t n);
/* Adds a copy to a list of strings. */
bool example_push(char ***list, int32_t *n, const char *text);
void example_free(example *e);
void example_list_free(example_list *list);

#endif
