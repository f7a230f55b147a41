/* How the questions of RULER's tasks are worded: our own way, or that of a file.
 *
 * The file is a JSON object of task kinds: niah, variable_tracking, common_words_extraction, freq_words_extraction, qa. Each
 * is an object with "template" (has {context} once) and "answer_prefix" (what the answer begins with; may be left out).
 * niah may have "template_one" and "answer_prefix_one", for questions with one answer, and "needle"; niah and
 * variable_tracking "noise", the text that repeats; qa "document". Kinds and texts that the file lacks are ours. */
#ifndef CKV_EVAL_TEMPLATES_H
#define CKV_EVAL_TEMPLATES_H

#include "ruler_draft.h"

#include <jansson.h>

#include <stdbool.h>
#include <stddef.h>

typedef enum template_kind {
	TEMPLATE_NIAH,
	TEMPLATE_VARIABLES,
	TEMPLATE_COMMON_WORDS,
	TEMPLATE_FREQUENT_WORDS,
	TEMPLATE_QA,
	N_TEMPLATES
} template_kind;

/* Placeholders are those of the published files; "{{" and "}}" stand for the braces themselves. */
typedef struct wording {
	const char *prompt, *begun;         /* {context} {query} {type_needle_v} {num_v}, as the kind has them */
	const char *prompt_one, *begun_one; /* the same for one answer; NULL: no difference */
	const char *needle;                 /* niah: {type_needle_v} {key} {value} */
	const char *noise;                  /* niah, variable_tracking */
	const char *document;               /* qa: {i} {document} */
} wording;

typedef struct templates {
	wording kinds[N_TEMPLATES];
	json_t *file; /* owns the strings that are not ours */
} templates;

/* path NULL: ours. Prints why not: a JSON fault with its line, else the text that can't be used. */
bool templates_load(templates *t, const char *path);
void templates_free(templates *t);

/* What a placeholder stands for; a NULL name ends a list of them. */
typedef struct placeholder {
	const char *name, *value;
} placeholder;

/* Appends n bytes of a template with its placeholders replaced. */
void template_fill(draft *out, const char *text, size_t n, const placeholder *values);
/* The part of a prompt before {context}, and where the part behind it begins. */
size_t template_before(const char *prompt);
const char *template_behind(const char *prompt);

#endif
