/* What an evaluation tells on the terminal. */
#ifndef CKV_EVAL_TABLE_H
#define CKV_EVAL_TABLE_H

#include "records.h"

/* Every cache of every task, beside the whole one. */
void table_print(const record_file *f, FILE *out);
/* The smallest budget of each policy whose mean KL divergence, and the upper bound of its interval, stay below the limit. */
void table_recommend(const record_file *f, double limit, FILE *out);
/* What reading each prompt once saved. */
void table_saving(const record_file *f, FILE *out);

#endif
