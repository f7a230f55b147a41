/* Figures of groups of records, with their confidence intervals. */
#ifndef CKV_EVAL_SUMMARY_H
#define CKV_EVAL_SUMMARY_H

#include "records.h"

/* A figure and the bounds of its 95 % interval (bootstrap over examples, percentiles, 2,000 resamples, the seed fixed). With
 * fewer than two examples the bounds are NaN; all three where there is nothing. */
typedef struct interval {
	double value, low, high;
} interval;

/* Which records. NULL, 0 and negative depth: any. */
typedef struct selection {
	const char *task, *cache, *policy, *keep;
	int32_t length;
	double depth;
} selection;

typedef struct summary {
	int32_t n;                /* examples */
	interval kl;              /* mean over examples of the mean over positions */
	interval kl_p99;          /* of all positions together */
	interval same;            /* share of positions with the same most likely token */
	interval exact;           /* share of answers that are the reference's */
	interval score;           /* mean task score; of judged examples */
	interval nll;             /* mean over examples */
	double share;             /* mean of bytes / bytes_full */
	double share_own;         /* likewise of bytes_own */
	double n_cells, n_prompt; /* means */
	double attention_kept;    /* mean of those observed; -1 */
	double seconds;           /* mean */
} summary;

/* Without memory as if there were no records. */
summary summarise(const record_list *list, const selection *which);
/* The values alone, all bounds NaN: cheap. */
summary summarise_means(const record_list *list, const selection *which);
/* Mean KL of one record; NaN where nothing was compared. */
double record_kl(const record *r);
/* Of a variant's name, "full" is the whole cache. */
bool record_is_whole(const char *policy);

/* a minus b, paired by example: of those that both have. Each names one cache: cache, policy and keep. Differences of the
 * mean KL, of the score, and of nll. */
typedef struct paired {
	int32_t n;
	interval kl, score, nll;
} paired;
paired summarise_paired(const record_list *list, const selection *a, const selection *b);

/* A cache that records are of, in order of first appearance. */
typedef struct variant {
	const char *cache, *policy, *keep; /* borrowed from the records */
} variant;
/* Returns how many; *out is allocated, free it. -1 without memory. */
int32_t summary_variants(const record_list *list, variant **out);
/* The same of the tasks' names. */
int32_t summary_tasks(const record_list *list, const char ***out);

/* Variants that no other one beats in both memory (share) and mean KL: marks[i] = 1. */
void summary_pareto(const double *share, const double *kl, int32_t n, uint8_t *marks);

#endif
