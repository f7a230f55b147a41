/* Which caches an evaluation compares: types x (the whole cache, and policies x budgets). */
#ifndef CKV_EVAL_PLAN_H
#define CKV_EVAL_PLAN_H

#include "cli.h"

enum { MAX_KEEPS = 16, MAX_TYPES = 7, MAX_PLANNED = MAX_NAMED_POLICIES + 1 };

typedef struct planned_policy {
	char text[POLICY_TEXT]; /* as ckv_policy_format writes it, so that one policy has one name */
	ckv_params params;
	ckv_llama *ckv; /* attached to every context */
} planned_policy;

typedef struct planned_keep {
	char text[32];
	ckv_budget budget;
} planned_keep;

typedef struct plan {
	planned_policy policies[MAX_PLANNED]; /* the first is "full" */
	int n_policies;
	planned_keep keeps[MAX_KEEPS];
	int n_keeps;
	enum ggml_type types[MAX_TYPES]; /* the first one's whole cache is the reference */
	int n_types;
	const struct llama_context *observed; /* whose prompt the policies have in view: they observe one at a time */
} plan;

/* From --policy, --ablate, --keep and --cache-type. default_keeps: where --keep is not given. Prints why not. */
bool plan_make(plan *p, const run_options *options, const char *default_keeps);
/* Makes the policies' ckv_llama. */
bool plan_open(plan *p, const run_options *options);
void plan_close(plan *p);
/* Whether a policy goes with a cache type: one that packs rows itself takes f16 alone. */
bool plan_has(const plan *p, int policy, int type);
/* Puts all of them into a context's chain of observers, always in the same order, so that each may hide rows in any context.
 */
bool plan_attach(const plan *p, struct llama_context_params *params);
/* From here to plan_observe_end all but the whole cache's observe what ctx reads; they observe one context at a time. */
bool plan_observe(plan *p, struct llama_context *ctx);
void plan_observe_end(const plan *p);
/* Whether all policies can go back to an earlier token of an observed prompt. */
bool plan_can_rewind(const plan *p);
/* Names of the ablations; NULL past the end. */
const char *plan_ablation(size_t i);
/* Numbers separated by commas. Prints why not: `what` names the option. */
bool plan_numbers(const char *what, const char *list, double low, double high, double *out, int32_t most, int32_t *n);

#endif
