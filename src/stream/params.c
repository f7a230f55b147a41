/* Streaming policies: presets, the table of keys, what a policy reads of them, checks. */
#include "core/keys.h"
#include "stream/internal.h"

#include <string.h>

/* ---------------------------------------------------------------- methods */

static const ckv_method_info scorers[N_STREAM_SCORERS] = {
    [STREAM_ATTN_MASS] = {"attn_mass", "attention of all later queries, the older the less", "H2O, arXiv 2306.14048",
                          "chunk,grace,decay"},
    [STREAM_KEY_NORM] = {"key_norm", "the key's length", "", "chunk,grace"},
    [STREAM_KNORM] = {"knorm", "minus the key's length; also called l2norm", "L2 norm, arXiv 2406.11430", "chunk,grace"},
    [STREAM_TOVA] = {"tova", "attention of the newest query", "TOVA, arXiv 2401.06104", "chunk,grace"},
    [STREAM_SNAPKV] = {"snapkv", "attention of the last queries, which are protected", "SnapKV, arXiv 2404.14469",
                       "chunk,window"},
    [STREAM_STREAMING] = {"streaming", "the position: the oldest goes", "StreamingLLM, arXiv 2309.17453", ""},
};

static const ckv_method_info layer_rules[N_STREAM_LAYERS] = {
    [STREAM_UNIFORM] = {"uniform", "the same for every layer", "", ""},
    [STREAM_PYRAMID] = {"pyramid", "falling from the first layer to the last", "PyramidKV, arXiv 2406.02069", "beta"},
    [STREAM_SQUEEZE] = {"squeeze", "less for layers whose attention is concentrated", "SqueezeAttention, arXiv 2404.04793",
                        "strength"},
};

#define CAM "CaM: Cache Merging for Memory-efficient LLMs Inference, ICML 2024"

static const ckv_method_info merges[N_STREAM_MERGES] = {
    [STREAM_DROP] = {"drop", "it is lost", "", ""},
    [STREAM_MEAN] = {"mean", "merged into the most similar one, half and half", CAM, "merge_keys,merge_gate"},
    [STREAM_SIM_WEIGHTED] = {"sim_weighted", "merged into the most similar one, by their similarity", CAM,
                             "merge_keys,merge_gate"},
};

/* ---------------------------------------------------------------- presets */

typedef struct stream_preset {
	ckv_method_info info;
	ckv_stream_params params;
} stream_preset;

/* Chunk length, how long new tokens are safe, how slowly old attention is forgotten: measured, see docs/methods.md. */
#define CHUNKS   .chunk = 8, .grace = 32, .decay = 0.98
#define TOKENS   .chunk = 1, .grace = 16, .decay = 0.98
#define NO_GRACE .chunk = 1, .grace = 0, .decay = 0.98
#define UNIFORM  .layers = "uniform", .merge = "drop", .reuse = 1

/* What a preset does not name. */
#define PARAMS(preset_, scorer_, ...)                                                                                       \
	{                                                                                                                       \
		.size = sizeof(ckv_stream_params), .preset = preset_, .scorer = scorer_, .sinks = 4, .window = 32, .merge_keys = 0, \
		.merge_gate = 1, .seed = 42, .beta = 2, .strength = 1, __VA_ARGS__                                                  \
	}

static const stream_preset presets[] = {
    {{"chunkkv", "whole chunks, by the attention of all later tokens", "ChunkKV, arXiv 2502.00299", ""},
     PARAMS("chunkkv", "attn_mass", CHUNKS, UNIFORM)},
    {{"chunkkv-reuse", "chunkkv that decides in every second layer; the next does the same", "ChunkKV, arXiv 2502.00299",
      ""},
     PARAMS("chunkkv-reuse", "attn_mass", CHUNKS, .layers = "uniform", .merge = "drop", .reuse = 2)},
    {{"h2o", "tokens that later tokens attended to most, and the newest", "H2O, arXiv 2306.14048", ""},
     PARAMS("h2o", "attn_mass", TOKENS, UNIFORM)},
    {{"tova", "tokens that the newest one attends to", "TOVA, arXiv 2401.06104", ""},
     PARAMS("tova", "tova", NO_GRACE, UNIFORM)},
    {{"streamingllm", "the first tokens and the newest, whatever they say", "StreamingLLM, arXiv 2309.17453", ""},
     PARAMS("streamingllm", "streaming", NO_GRACE, UNIFORM)},
    {{"snapkv", "tokens that the last queries attend to, a window at a time", "SnapKV, arXiv 2404.14469", ""},
     PARAMS("snapkv", "snapkv", NO_GRACE, UNIFORM)},
    {{"pyramidkv", "h2o with more tokens in the lower layers", "PyramidKV, arXiv 2406.02069", ""},
     PARAMS("pyramidkv", "attn_mass", TOKENS, .layers = "pyramid", .merge = "drop", .reuse = 1)},
    {{"squeezeattention", "h2o with more tokens in layers whose attention spreads", "SqueezeAttention, arXiv 2404.04793",
      ""},
     PARAMS("squeezeattention", "attn_mass", TOKENS, .layers = "squeeze", .merge = "drop", .reuse = 1)},
    {{"cam", "h2o that merges a dropped value into the one most like it", CAM, ""},
     PARAMS("cam", "attn_mass", TOKENS, .layers = "uniform", .merge = "sim_weighted", .reuse = 1)},
    {{"l2norm", "tokens with short keys, which tend to be attended to", "L2 norm, arXiv 2406.11430", ""},
     PARAMS("l2norm", "knorm", TOKENS, UNIFORM)},
};

enum { N_PRESETS = sizeof presets / sizeof *presets };

static const void *preset_params(const char *name) {
	for (size_t i = 0; i < N_PRESETS; i++) {
		if (strcmp(presets[i].info.name, name) == 0) {
			return &presets[i].params;
		}
	}
	return NULL;
}

void ckv_stream_params_default(ckv_stream_params *params) {
	if (params) {
		*params = presets[0].params;
	}
}

/* ------------------------------------------------------------------- keys */

static const char *preset_name(size_t i) { return i < N_PRESETS ? presets[i].info.name : NULL; }
static const char *scorer_name(size_t i) { return i < N_STREAM_SCORERS ? scorers[i].name : NULL; }
static const char *layers_name(size_t i) { return i < N_STREAM_LAYERS ? layer_rules[i].name : NULL; }
static const char *merge_name(size_t i) { return i < N_STREAM_MERGES ? merges[i].name : NULL; }
static const char *key_name(size_t i) { return ckv_stream_param_info_at(i) ? ckv_stream_param_info_at(i)->key : NULL; }

#define NAME(key, names, text)       CKV_NAME_ROW(ckv_stream_params, key, names, text)
#define NUMBER(key, low, high, text) CKV_INT_ROW(ckv_stream_params, key, low, high, text)
#define REAL(key, low, high, text)   CKV_REAL_ROW(ckv_stream_params, key, low, high, text)

static const ckv_key rows[] = {
    NAME(scorer, scorer_name, "what a token is worth"),
    NUMBER(chunk, 1, 65536, "tokens in a chunk, which go together"),
    NUMBER(sinks, 0, 65536, "first tokens that are protected"),
    NUMBER(grace, 0, 65536, "newest tokens that are protected"),
    NUMBER(window, 1, 4096, "last queries that are observed; as many newest tokens are protected"),
    REAL(decay, 0.0001, 1, "what a score is multiplied by at each token; 1: nothing is forgotten"),
    CKV_MODE_ROW(ckv_stream_params, reference,
                 "exact: the budget after every token; reference: the published code's own rules"),
    NAME(layers, layers_name, "how the budget is shared among the layers: uniform, pyramid, squeeze"),
    REAL(beta, 1, 1000, "of layers=pyramid: the first layer gets about beta times the mean"),
    REAL(strength, 0, 1, "of layers=squeeze; 0: all layers alike"),
    NUMBER(reuse, 1, 1024, "neighbouring layers that share the decisions of their first; 1: none do"),
    NAME(merge, merge_name, "what becomes of an evicted value: drop; mean, sim_weighted: merged into the most similar"),
    NUMBER(merge_keys, 0, 1, "where values are merged, 1: keys are too"),
    NUMBER(merge_gate, 0, 1,
           "where values are merged, 1: with a probability that falls with the score of what they go into"),
    NUMBER(seed, 0, INT32_MAX, "of the gate's random numbers"),
};

enum { N_KEYS = sizeof rows / sizeof *rows };
_Static_assert(sizeof rows / sizeof *rows <= CKV_MOST_KEYS, "a bit for each");

const ckv_method_info *ckv_stream_preset_info(size_t i) { return i < N_PRESETS ? &presets[i].info : NULL; }

const ckv_method_info *ckv_stream_scorer_info(size_t i) { return i < N_STREAM_SCORERS ? &scorers[i] : NULL; }

const ckv_param_info *ckv_stream_param_info_at(size_t i) { return i < N_KEYS ? &rows[i].info : NULL; }

/* The index of a name; 0 when there is none. */
static size_t index_of(ckv_name_at names, const char *text) {
	for (size_t i = 0; names(i); i++) {
		if (strcmp(names(i), text) == 0) {
			return i;
		}
	}
	return 0;
}

stream_scorer ckv_stream_scorer_of(const ckv_stream_params *params) {
	return (stream_scorer)index_of(scorer_name, params->scorer);
}

stream_layers ckv_stream_layers_of(const ckv_stream_params *params) {
	return (stream_layers)index_of(layers_name, params->layers);
}

stream_merge ckv_stream_merge_of(const ckv_stream_params *params) {
	return (stream_merge)index_of(merge_name, params->merge);
}

/* What every policy reads. */
#define ALWAYS "scorer,sinks,mode,layers,reuse,merge"

static bool uses(const void *policy, const char *key) {
	const ckv_stream_params *params = policy;
	const ckv_method_info *merge = &merges[ckv_stream_merge_of(params)];
	if (strcmp(key, "seed") == 0) {
		return params->merge_gate && ckv_list_has(merge->uses, "merge_gate");
	}
	return ckv_list_has(ALWAYS, key) || ckv_list_has(scorers[ckv_stream_scorer_of(params)].uses, key) ||
	       ckv_list_has(layer_rules[ckv_stream_layers_of(params)].uses, key) || ckv_list_has(merge->uses, key);
}

static const ckv_keys keys = {.what = "streaming policy",
                              .size = sizeof(ckv_stream_params),
                              .preset = offsetof(ckv_stream_params, preset),
                              .n = N_KEYS,
                              .rows = rows,
                              .key_name = key_name,
                              .preset_name = preset_name,
                              .preset_params = preset_params,
                              .preset_default = "chunkkv",
                              .uses = uses};

int ckv_stream_params_use(const ckv_stream_params *params, const char *key) { return ckv_keys_use(&keys, params, key); }

size_t ckv_stream_params_value(const ckv_stream_params *params, const char *key, char *buffer, size_t capacity) {
	return ckv_keys_value(&keys, params, key, buffer, capacity);
}

size_t ckv_stream_format(const ckv_stream_params *params, char *buffer, size_t capacity) {
	return ckv_keys_format(&keys, params, buffer, capacity);
}

/* ----------------------------------------------------------------- checks */

static ckv_status check_names(const ckv_stream_params *params, ckv_error *error) {
	if (!ckv_name_find(scorer_name, params->scorer)) {
		return ckv_name_unknown(error, "streaming scorer", params->scorer, scorer_name);
	}
	if (!ckv_name_find(layers_name, params->layers)) {
		return ckv_name_unknown(error, "streaming layer rule", params->layers, layers_name);
	}
	if (!ckv_name_find(merge_name, params->merge)) {
		return ckv_name_unknown(error, "merge rule", params->merge, merge_name);
	}
	return CKV_OK;
}

/* Merging pairs single rows by the scores of one layer. */
static ckv_status check_merge(const ckv_stream_params *params, ckv_error *error) {
	if (params->chunk != 1) {
		return ckv_fail(error, CKV_ERR_POLICY, "merge=%s needs chunk=1, not %d: single tokens are merged", params->merge,
		                params->chunk);
	}
	if (ckv_stream_scorer_of(params) != STREAM_ATTN_MASS) {
		return ckv_fail(error, CKV_ERR_POLICY, "merge=%s needs scorer=attn_mass, not '%s'", params->merge, params->scorer);
	}
	return CKV_OK;
}

static ckv_status check_together(const ckv_stream_params *params, ckv_error *error) {
	bool merging = ckv_stream_merge_of(params) != STREAM_DROP;
	ckv_status status = merging ? check_merge(params, error) : CKV_OK;
	if (status || params->reuse == 1) {
		return status;
	}
	if (ckv_stream_layers_of(params) != STREAM_UNIFORM) {
		return ckv_fail(error, CKV_ERR_POLICY,
		                "reuse=%d needs layers=uniform, not '%s': layers that share decisions have one budget",
		                params->reuse, params->layers);
	}
	if (merging) {
		return ckv_fail(error, CKV_ERR_POLICY,
		                "reuse=%d needs merge=drop, not '%s': only what goes is shared, not where it is merged",
		                params->reuse, params->merge);
	}
	return CKV_OK;
}

ckv_status ckv_stream_params_check(const ckv_stream_params *params, ckv_error *error) {
	if (!ckv_keys_named(&keys, params)) {
		return ckv_fail(error, CKV_ERR_ARG, "the parameters lack a name: start from ckv_stream_params_default");
	}
	ckv_status status = check_names(params, error);
	status = status ? status : ckv_keys_check(&keys, params, error);
	return status ? status : check_together(params, error);
}

static ckv_status check_used(const ckv_stream_params *params, uint32_t given, ckv_error *error) {
	const char *key = ckv_keys_unused(&keys, params, given);
	if (key) {
		bool ungated = strcmp(key, "seed") == 0 && ckv_stream_merge_of(params) != STREAM_DROP;
		return ckv_fail(error, CKV_ERR_POLICY, "streaming policy '%s' (scorer %s, layers %s, merge %s%s) does not use '%s'",
		                params->preset, params->scorer, params->layers, params->merge, ungated ? " with merge_gate=0" : "",
		                key);
	}
	return CKV_OK;
}

ckv_status ckv_stream_parse(const char *text, ckv_stream_params *params, ckv_error *error) {
	ckv_stream_params made;
	uint32_t given;
	if (!text || !params) {
		return ckv_fail(error, CKV_ERR_ARG, "ckv_stream_parse needs a text and a place for the parameters");
	}
	const char *part = strchr(text, '+');
	if (part) {
		return ckv_fail(error, CKV_ERR_POLICY, "'%.40s': codecs and merge go with one-shot policies (--keep)", part);
	}
	ckv_status status = ckv_keys_parse(&keys, text, &made, &given, error);
	status = status ? status : ckv_stream_params_check(&made, error);
	status = status ? status : check_used(&made, given, error);
	if (status == CKV_OK) {
		*params = made;
		ckv_fail(error, CKV_OK, "%s", "");
	}
	return status;
}

int ckv_stream_params_hosted(const ckv_stream_params *params) {
	return params && params->size >= sizeof *params && ckv_stream_params_check(params, NULL) == CKV_OK &&
	       !params->reference &&
	       (ckv_stream_merge_of(params) != STREAM_DROP || ckv_stream_layers_of(params) != STREAM_UNIFORM);
}

void ckv_stream_params_own(ckv_stream_params *params) {
	const char *preset = ckv_name_find(preset_name, params->preset);
	params->preset = preset ? preset : "custom";
	params->scorer = scorer_name(ckv_stream_scorer_of(params));
	params->layers = layers_name(ckv_stream_layers_of(params));
	params->merge = merge_name(ckv_stream_merge_of(params));
	/* What the policy does not read has no effect, whatever the preset it came from left there. */
	params->chunk = ckv_stream_params_use(params, "chunk") ? params->chunk : 1;
	params->grace = ckv_stream_params_use(params, "grace") ? params->grace : 0;
	params->decay = ckv_stream_params_use(params, "decay") ? params->decay : 1.0;
}
