/* The judges of metric.c's table, and what they share. All print why they can't judge, and then return NaN. */
#ifndef CKV_EVAL_METRICS_H
#define CKV_EVAL_METRICS_H

#include "example.h"

double judge_match_all(const example *e, const char *reply);
double judge_match_any(const example *e, const char *reply);
double judge_exact(const example *e, const char *reply);
double judge_refusal(const example *e, const char *reply);
double judge_number(const example *e, const char *reply);
double judge_f1(const example *e, const char *reply);
double judge_f1_zh(const example *e, const char *reply);
double judge_f1_line(const example *e, const char *reply);
double judge_rouge_l(const example *e, const char *reply);
double judge_rouge_l_zh(const example *e, const char *reply);
double judge_rouge_l_line(const example *e, const char *reply);
double judge_classification(const example *e, const char *reply);
double judge_classification_line(const example *e, const char *reply);
double judge_retrieval(const example *e, const char *reply);
double judge_retrieval_zh(const example *e, const char *reply);
double judge_count(const example *e, const char *reply);
double judge_code_sim(const example *e, const char *reply);

/* The best over all answers, 0 where there are none. */
double judge_best(const example *e, const char *reply, double (*one)(const char *reply, const char *answer));
/* Of the reply its first line alone, newlines before it left out, as LongBench has it for trec, triviaqa, samsum, lsht. */
double judge_first_line(const example *e, const char *reply, double (*judge)(const example *e, const char *reply));
/* Prints that memory lacks; NaN. */
double judge_no_memory(void);

#endif
