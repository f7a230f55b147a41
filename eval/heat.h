/* Steps of loss as colours: classes h0 (nothing lost) to h6 of the page. */
#ifndef CKV_EVAL_HEAT_H
#define CKV_EVAL_HEAT_H

#include <stdio.h>

/* The same step for the same figure on every page; "none" for NaN. */
const char *heat_of_kl(double kl);
const char *heat_of_score(double score);
/* What the steps are. */
void heat_key_of_kl(FILE *out);
void heat_key_of_score(FILE *out);

#endif
