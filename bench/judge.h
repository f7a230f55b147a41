/* What benchmarks that ask questions share. */
#ifndef CKV_BENCH_JUDGE_H
#define CKV_BENCH_JUDGE_H

#include <stdbool.h>

/* Whether one of the accepted strings, separated by '|', occurs in the reply (NULL: an empty one), in capitals or not. */
bool judge_right(const char *reply, const char *accepted);
/* The reply as the last column of a table, in one line. */
void judge_print(const char *reply);
/* Cuts a list at its commas into at most `most` parts; returns how many. */
int judge_split(char *list, const char **out, int most);

#endif
