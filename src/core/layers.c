/* How a budget is shared among the layers, and which layers share a selection. */
#include "core/internal.h"

#include <math.h>
#include <string.h>

static const ckv_method_info rules[] = {
    {"uniform", "the same for every layer", "", ""},
    {"pyramid", "falling from the first layer to the last", "PyramidKV, arXiv 2406.02069", "beta,window"},
    {"squeeze", "less for layers whose attention hardly changes the residual stream", "SqueezeAttention, arXiv 2404.04793",
     "share"},
};

const ckv_method_info *ckv_layer_rule_info(size_t i) { return i < sizeof rules / sizeof *rules ? &rules[i] : NULL; }

int32_t ckv_layer_source(const ckv_params *params, int32_t layer) {
	int32_t n = params && params->reuse > 1 ? params->reuse : 1;
	return layer - layer % n;
}

double ckv_round_even(double x) {
	double low = floor(x), rest = x - low;
	if (rest < 0.5 || (rest <= 0.5 && fmod(low, 2.0) == 0.0)) {
		return low;
	}
	return low + 1.0;
}

/* One plan in the making. */
typedef struct plan {
	const ckv_params *params;
	int32_t n_tokens, n_layers;
	double mean;  /* tokens of a layer, before rounding */
	double *keep; /* [n_layers] */
} plan;

/* Whole numbers from 1 to T that add up to the rounded sum of what they stand for: each is within one of its own. What a
 * bound takes from one goes to the next. */
static void round_together(plan *p) {
	double sum = 0.0, given = 0.0;
	for (int32_t i = 0; i < p->n_layers; i++) {
		sum += p->keep[i];
		double n = floor(sum + 0.5) - given; /* not half to even: a whole number must stay what it is */
		n = n < 1.0 ? 1.0 : n < p->n_tokens ? n : p->n_tokens;
		p->keep[i] = n;
		given += n;
	}
}

/* A straight line from max to min around the mean (the terms in the order of the published code, whose roundings show).
 * Returns whether beta and window leave a slope. */
static bool pyramid(plan *p) {
	double window = p->params->window, n = p->n_tokens, capacity = window + p->mean;
	double low = (capacity - window) / p->params->beta, high = (capacity - window) * 2.0 - low;
	if (high >= n - window) {
		high = n - window;
		low = (capacity - window) * 2.0 - high;
	}
	bool reference = p->params->reference, slopes = n >= high && high >= low && low >= window;
	slopes = slopes && (reference || low >= 1.0); /* a layer keeps a token at least, which would be missing elsewhere */
	double step = slopes && p->n_layers > 1 ? (high - low) / (p->n_layers - 1) : 0.0;
	for (int32_t i = 0; i < p->n_layers; i++) {
		p->keep[i] = slopes && (reference || p->n_layers > 1) ? high - i * step : p->mean;
		if (reference) {
			p->keep[i] = ckv_round_even(p->keep[i]);
		}
	}
	if (!reference) {
		round_together(p);
	}
	return slopes;
}

enum { MOST_ROUNDS = 100 }; /* of k-means, which comes to rest long before */

/* One-dimensional k-means in three groups that start at the lowest, the mean and the highest value; group[i] is 2 for the
 * highest. */
static void three_groups(const float *x, int32_t n, double *group) {
	double centre[3] = {(double)x[0], 0.0, (double)x[0]};
	for (int32_t i = 0; i < n; i++) {
		centre[0] = (double)x[i] < centre[0] ? (double)x[i] : centre[0];
		centre[2] = (double)x[i] > centre[2] ? (double)x[i] : centre[2];
		centre[1] += (double)x[i] / n;
		group[i] = -1.0;
	}
	bool moved = true;
	for (int round = 0; moved && round < MOST_ROUNDS; round++) {
		double sum[3] = {0}, count[3] = {0};
		moved = false;
		for (int32_t i = 0; i < n; i++) {
			int best = 0;
			for (int k = 1; k < 3; k++) {
				best = fabs((double)x[i] - centre[k]) < fabs((double)x[i] - centre[best]) ? k : best;
			}
			moved = moved || group[i] < best || group[i] > best;
			group[i] = best;
			sum[best] += (double)x[i];
			count[best] += 1.0;
		}
		for (int k = 0; k < 3; k++) {
			centre[k] = count[k] > 0.0 ? sum[k] / count[k] : centre[k];
		}
	}
}

/* The layers of the most similar group keep `share` of theirs; the others get what that frees, none more than there is. */
static void squeeze(plan *p, const float *similarity) {
	int32_t n_low = 0;
	three_groups(similarity, p->n_layers, p->keep);
	for (int32_t i = 0; i < p->n_layers; i++) {
		n_low += p->keep[i] > 1.5;
	}
	int32_t n_high = p->n_layers - n_low; /* at least 1: when all are alike they are in the lowest group */
	double low = ckv_round_even(p->params->share * p->mean);
	low = low < 1.0 ? 1.0 : low;
	double high = (p->mean * p->n_layers - low * n_low) / n_high;
	if (high > p->n_tokens) { /* what does not fit goes back */
		high = p->n_tokens;
		low = n_low ? (p->mean * p->n_layers - high * n_high) / n_low : low;
	}
	for (int32_t i = 0; i < p->n_layers; i++) {
		p->keep[i] = p->keep[i] > 1.5 ? low : high;
	}
	round_together(p);
}

/* Layers that share a selection have one budget: the mean of theirs. */
static void share_groups(plan *p) {
	int32_t size = p->params->reuse;
	for (int32_t first = 0; first < p->n_layers && size > 1; first += size) {
		int32_t end = p->n_layers - first < size ? p->n_layers : first + size;
		double sum = 0.0;
		for (int32_t i = first; i < end; i++) {
			sum += p->keep[i];
		}
		for (int32_t i = first; i < end; i++) {
			p->keep[i] = ckv_round_even(sum / (end - first));
		}
	}
}

static ckv_status check_similarity(ckv_ctx *ctx, const float *similarity, int32_t n_layers) {
	if (!similarity) {
		return ckv_fail(&ctx->error, CKV_ERR_ARG, "layers=squeeze needs the similarity of each layer's input and output");
	}
	for (int32_t i = 0; i < n_layers; i++) {
		if (!isfinite(similarity[i])) {
			return ckv_fail(&ctx->error, CKV_ERR_NUMERIC, "the similarity of layer %d is not a finite number", i);
		}
	}
	return CKV_OK;
}

ckv_status ckv_plan(ckv_ctx *ctx, ckv_budget budget, int32_t n_tokens, int32_t n_layers, const float *similarity,
                    ckv_budget *budgets, int *fell_back) {
	int32_t n_keep;
	if (!ctx) {
		return CKV_ERR_ARG;
	}
	ckv_begin(ctx);
	if (!budgets || n_layers < 1 || n_tokens < 1) {
		return ckv_fail(&ctx->error, CKV_ERR_ARG, "ckv_plan needs a place for budgets; there are %d layers of %d tokens",
		                n_layers, n_tokens);
	}
	if (ckv_budget_resolve(budget, n_tokens, &n_keep) != CKV_OK) {
		return ckv_budget_fail(budget, &ctx->error);
	}
	plan p = {.params = &ctx->params, .n_tokens = n_tokens, .n_layers = n_layers};
	const char *rule = ctx->params.layers;
	bool whole = n_keep >= n_tokens || !ctx->scorer, slopes = true;
	p.mean = ctx->params.reference && budget.kind == CKV_BUDGET_REMOVE ? (double)n_tokens * (1.0 - budget.value) : n_keep;
	p.keep = ckv_scratch(ctx, SLOT_PLAN, (size_t)n_layers, sizeof *p.keep);
	ckv_status status = p.keep ? CKV_OK : CKV_ERR_NOMEM;
	if (status == CKV_OK && !whole && strcmp(rule, "squeeze") == 0) {
		status = check_similarity(ctx, similarity, n_layers);
	}
	if (status) {
		return status;
	}
	if (fell_back) {
		*fell_back = 0;
	}
	if (whole || strcmp(rule, "uniform") == 0) {
		for (int32_t i = 0; i < n_layers; i++) {
			budgets[i] = budget;
		}
		return CKV_OK;
	}
	if (strcmp(rule, "pyramid") == 0) {
		slopes = pyramid(&p);
	} else {
		squeeze(&p, similarity);
	}
	share_groups(&p);
	for (int32_t i = 0; i < n_layers; i++) {
		double n = p.keep[i] < 1.0 ? 1.0 : p.keep[i];
		budgets[i] = ckv_keep_tokens(n < n_tokens ? (int32_t)n : n_tokens);
	}
	if (fell_back) {
		*fell_back = !slopes;
	}
	return CKV_OK;
}
