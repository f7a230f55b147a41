/* A text shown by how much of each token is kept. */
#ifndef CKV_EVAL_INSPECT_TEXT_H
#define CKV_EVAL_INSPECT_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { N_STEPS = 7 };

/* 0: nothing is kept, N_STEPS - 1: everything. Steps from 1 on are the page's classes h1 to h6. */
int text_step(double share);
/* What a step stands for: "10 to 25 %". */
const char *text_step_name(int step);

typedef struct shown_text {
	const char *bytes;
	const size_t *ends; /* [n_tokens] where each token ends; it may be inside a character */
	const float *share; /* [n_tokens] */
	int32_t n_tokens;
	int32_t sinks, window; /* tokens underlined at either end */
} shown_text;

/* Neighbours of one step are one <b class="h1"> to "h6"; what nobody keeps has no markup. Tokens that share a character are
 * shown together, by the mean of their shares. Markup in the text is escaped. */
void text_show(const shown_text *t, FILE *out);

#endif
