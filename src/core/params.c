/* Parameters of what is kept: the table of keys, what a policy reads of them, checks. */
#include "core/internal.h"
#include "core/parts.h"

#include <string.h>

static const char *preset_name(size_t i) { return ckv_preset_at(i) ? ckv_preset_at(i)->info.name : NULL; }
static const char *selector_name(size_t i) { return ckv_selector_at(i) ? ckv_selector_at(i)->info.name : NULL; }
static const char *chunker_name(size_t i) { return ckv_chunker_info(i) ? ckv_chunker_info(i)->name : NULL; }
static const char *layers_name(size_t i) { return ckv_layer_rule_info(i) ? ckv_layer_rule_info(i)->name : NULL; }
static const char *key_name(size_t i) { return ckv_param_info_at(i) ? ckv_param_info_at(i)->key : NULL; }

static const char *scorer_name(size_t i) {
	return i == 0 ? "none" : ckv_scorer_at(i - 1) ? ckv_scorer_at(i - 1)->info.name : NULL;
}

#define NAME(key, names, text)       CKV_NAME_ROW(ckv_params, key, names, text)
#define NUMBER(key, low, high, text) CKV_INT_ROW(ckv_params, key, low, high, text)
#define REAL(key, low, high, text)   CKV_REAL_ROW(ckv_params, key, low, high, text)

static const ckv_key rows[] = {
    NAME(scorer, scorer_name, "what a token is worth"),
    NAME(selector, selector_name, "which tokens that makes us keep"),
    NUMBER(window, 0, 65536, "last queries that are observed; as many last tokens are protected"),
    NUMBER(kernel, 1, 255, "width of the average over neighbouring tokens; odd"),
    NUMBER(chunk, 1, 65536, "tokens in a chunk"),
    NUMBER(sinks, 0, 65536, "first tokens that are protected"),
    CKV_MODE_ROW(ckv_params, reference, "exact: the budget to the token; reference: the published code's own counts"),
    NAME(chunker, chunker_name, "where chunks end"),
    NUMBER(max_chunk, 1, 65536, "tokens in a chunk at most, where chunks end by the text"),
    NUMBER(entropy_keep, 1, 65535, "tokens kept of a chunk of low entropy; less than a chunk"),
    REAL(safeguard, 0, 1, "share of its budget that each head keeps for its own best tokens"),
    NAME(layers, layers_name, "how the budget is shared among the layers"),
    REAL(beta, 1, 1000, "steepness of the pyramid: the last layer gets 1/beta of the mean"),
    REAL(share, 0.01, 1, "of its budget that a layer keeps whose attention hardly changes its input"),
    NUMBER(reuse, 1, 1024, "neighbouring layers that share one selection; 1: none do"),
    NUMBER(future, 1, 65536, "coming positions that the expected query is averaged over"),
    NUMBER(lag, 1, 65536, "tokens in a partition"),
    NUMBER(seed, 0, INT32_MAX, "of the random numbers"),
};

enum { N_KEYS = sizeof rows / sizeof *rows };
_Static_assert(sizeof rows / sizeof *rows <= CKV_MOST_KEYS, "a bit for each");

const ckv_param_info *ckv_param_info_at(size_t i) { return i < N_KEYS ? &rows[i].info : NULL; }

/* The parts that a policy is composed of; NULL where a name is none. */
typedef struct parts {
	const ckv_scorer *scorer;
	const ckv_selector *selector;
	const ckv_method_info *chunker, *layers;
} parts;

static parts find_parts(const ckv_params *params) {
	parts p = {ckv_scorer_find(params->scorer), ckv_selector_find(params->selector), ckv_chunker_find(params->chunker),
	           ckv_layer_rule_find(params->layers)};
	return p;
}

static bool has_chunks(const parts *p) { return p->selector && ckv_list_has(p->selector->info.uses, "chunker"); }

static bool uses(const void *params, const char *key) {
	parts p = find_parts(params);
	if (strcmp(key, "scorer") == 0 || strcmp(key, "selector") == 0) {
		return true;
	}
	if (strcmp(key, "layers") == 0 || strcmp(key, "reuse") == 0) {
		return p.scorer != NULL;
	}
	return (p.scorer && ckv_list_has(p.scorer->info.uses, key)) ||
	       (p.selector && ckv_list_has(p.selector->info.uses, key)) ||
	       (p.chunker && has_chunks(&p) && ckv_list_has(p.chunker->uses, key)) ||
	       (p.layers && p.scorer && ckv_list_has(p.layers->uses, key));
}

static const void *preset_params(const char *name) {
	const ckv_preset *preset = ckv_preset_find(name);
	return preset ? &preset->params : NULL;
}

const ckv_keys ckv_params_keys = {.what = "policy",
                                  .size = sizeof(ckv_params),
                                  .preset = offsetof(ckv_params, preset),
                                  .n = N_KEYS,
                                  .rows = rows,
                                  .key_name = key_name,
                                  .preset_name = preset_name,
                                  .preset_params = preset_params,
                                  .preset_default = "chunkkv",
                                  .uses = uses};

int ckv_params_use(const ckv_params *params, const char *key) {
	return ckv_keys_use(&ckv_params_keys, params, key) && !ckv_codec_is(params->preset);
}

static ckv_status check_names(const ckv_params *params, const parts *p, ckv_error *error) {
	if (!p->scorer && strcmp(params->scorer, "none") != 0) {
		return ckv_name_unknown(error, "scorer", params->scorer, scorer_name);
	}
	if (!p->selector) {
		return ckv_name_unknown(error, "selector", params->selector, selector_name);
	}
	if (!p->chunker) {
		return ckv_name_unknown(error, "chunker", params->chunker, chunker_name);
	}
	if (!p->layers) {
		return ckv_name_unknown(error, "layer rule", params->layers, layers_name);
	}
	if (!p->scorer && strcmp(params->selector, "all") != 0) {
		return ckv_fail(error, CKV_ERR_POLICY, "selector '%s' needs a scorer", params->selector);
	}
	return CKV_OK;
}

/* What only matters to those who read it. */
static ckv_status check_together(const ckv_params *params, const parts *p, ckv_error *error) {
	if (params->kernel % 2 == 0) {
		return ckv_fail(error, CKV_ERR_POLICY, "kernel=%d must be odd, so that it has a middle", params->kernel);
	}
	if (p->scorer && ckv_list_has(p->scorer->info.uses, "window") && params->window < 1) {
		return ckv_fail(error, CKV_ERR_POLICY,
		                "window=%d is out of range: 1 to 65536 for scorer '%s', which observes the last queries",
		                params->window, params->scorer);
	}
	bool fixed = strcmp(params->chunker, "fixed") == 0;
	int32_t longest = fixed ? params->chunk : params->max_chunk;
	if (uses(params, "entropy_keep") && params->entropy_keep >= longest) {
		return ckv_fail(error, CKV_ERR_POLICY, "entropy_keep=%d must be less than %s=%d: 1 to %d", params->entropy_keep,
		                fixed ? "chunk" : "max_chunk", longest, longest - 1);
	}
	return CKV_OK;
}

/* Merging of nothing would be a wish silently ignored. */
static ckv_status check_merge(const ckv_params *params, ckv_error *error) {
	ckv_merge merge;
	ckv_merge_own(&params->merge, &merge);
	if (strcmp(merge.preset, "none") != 0 && strcmp(params->selector, "all") == 0) {
		return ckv_fail(error, CKV_ERR_POLICY, "policy '%s' (selector all) keeps everything: there is nothing to merge",
		                params->preset);
	}
	return ckv_merge_check(&params->merge, error);
}

ckv_status ckv_params_check(const ckv_params *params, ckv_error *error) {
	if (!ckv_keys_named(&ckv_params_keys, params)) {
		return ckv_fail(error, CKV_ERR_ARG, "the parameters lack a name: start from ckv_params_default");
	}
	parts p = find_parts(params);
	ckv_status status = check_names(params, &p, error);
	status = status ? status : ckv_keys_check(&ckv_params_keys, params, error);
	status = status ? status : check_together(params, &p, error);
	status = status ? status : check_merge(params, error);
	return status ? status : ckv_codec_check(&params->codec, error);
}

ckv_status ckv_params_check_given(const ckv_params *params, uint32_t given, ckv_error *error) {
	const char *key = ckv_keys_unused(&ckv_params_keys, params, given);
	if (key) {
		return ckv_fail(error, CKV_ERR_POLICY, "policy '%s' (scorer %s, selector %s) does not use '%s'", params->preset,
		                params->scorer, params->selector, key);
	}
	return CKV_OK;
}

size_t ckv_params_value(const ckv_params *params, const char *key, char *buffer, size_t capacity) {
	return ckv_keys_value(&ckv_params_keys, params, key, buffer, capacity);
}

ckv_status ckv_params_needs(const ckv_params *params, ckv_needs *needs) {
	if (!needs || !ckv_keys_named(&ckv_params_keys, params)) {
		return CKV_ERR_ARG;
	}
	parts p = find_parts(params);
	if (!p.scorer && strcmp(params->scorer, "none") != 0) {
		return CKV_ERR_POLICY;
	}
	ckv_needs found = {0, 0};
	if (p.scorer) {
		found = ckv_scorer_needs(p.scorer, params);
		found.flags |= strcmp(params->layers, "squeeze") == 0 ? CKV_NEED_SIMILARITY : 0;
		found.flags |= has_chunks(&p) && strcmp(params->chunker, "fixed") != 0 ? CKV_NEED_CHUNKS : 0;
	}
	*needs = found;
	return CKV_OK;
}
