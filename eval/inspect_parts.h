/* The parts of the page of `chunkkv inspect`, in its order. */
#ifndef CKV_EVAL_INSPECT_PARTS_H
#define CKV_EVAL_INSPECT_PARTS_H

#include "inspect.h"

/* Policies beyond the page's colours have theirs in broken lines. */
const char *policy_dash(int32_t policy);

void inspect_head(const inspection *in, FILE *out);
void inspect_means(const inspection *in, FILE *out);
void inspect_texts(const inspection *in, FILE *out);
void inspect_charts(const inspection *in, FILE *out);
void inspect_heat(const inspection *in, FILE *out);

#endif
