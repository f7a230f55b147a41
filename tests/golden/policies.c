#include "policies.h"

#include "casefile.h"

#include <string.h>

/* A press is replayed as soon as it has a row here. Press names may go on with "_...". */
static const struct {
	const char *press, *scorer;
	tolerance allowed;
} scorers[] = {
    {"snapkv", "snapkv", {2e-5, 5e-7}},
    {"tova", "tova", {2e-5, 5e-7}},
    {"knorm", "knorm", {2e-5, 5e-7}},
    {"keydiff", "keydiff", {2e-5, 5e-7}},
    {"streaming", "streaming", {2e-5, 5e-7}},
    {"observed", "h2o", {2e-5, 5e-7}},
    {"lagkv", "lagkv", {2e-5, 5e-7}},
    /* Its logits are quadratic forms of the keys: they cancel, and what is left is exponentiated. */
    {"ea", "expected_attention", {1e-4, 5e-7}},
};

/* The same for kinds of presses: how kvpress selects, over any scorer. */
static const struct {
	const char *kind, *selector;
} selectors[] = {
    {"scorer", "topk"},         {"chunkkv", "chunk"}, {"entropy_gated", "entropy_gate"},
    {"adakv", "adaptive_head"}, {"block", "topk"},    {"decoding", "topk"},
    {"rerotation", "topk"},     {"merging", "topk"},  {"cam", "topk"},
};

/* Parameters of presses and where they go. */
static const struct {
	const char *name;
	size_t offset; /* of an int32_t in ckv_params */
} numbers[] = {
    {"window_size", offsetof(ckv_params, window)}, {"kernel_size", offsetof(ckv_params, kernel)},
    {"chunk_length", offsetof(ckv_params, chunk)}, {"low_entropy_chunk_length", offsetof(ckv_params, entropy_keep)},
    {"n_sink", offsetof(ckv_params, sinks)},       {"n_future_positions", offsetof(ckv_params, future)},
    {"lag_size", offsetof(ckv_params, lag)},
};

static const struct {
	const char *name;
	size_t offset; /* of a double */
} reals[] = {
    {"alpha_safeguard", offsetof(ckv_params, safeguard)},
    {"beta", offsetof(ckv_params, beta)},
};

/* Parameters that the library has no choice of; true counts as 1. */
static const struct {
	const char *name;
	double value;
} settled[] = {
    {"use_covariance", 1.0},
    {"use_vnorm", 1.0},
    {"epsilon", 0.0},
    {"cross_scoring", 0.0},
};

#define LENGTH(array) (sizeof(array) / sizeof *(array))

const char *policy_scorer(const char *press, tolerance *allowed) {
	for (size_t i = 0; i < LENGTH(scorers); i++) {
		size_t n = strlen(scorers[i].press);
		if (strncmp(press, scorers[i].press, n) == 0 && (press[n] == '\0' || press[n] == '_')) {
			*allowed = scorers[i].allowed;
			return scorers[i].scorer;
		}
	}
	return NULL;
}

const char *policy_selector(const char *kind) {
	for (size_t i = 0; i < LENGTH(selectors); i++) {
		if (strcmp(kind, selectors[i].kind) == 0) {
			return selectors[i].selector;
		}
	}
	return NULL;
}

static bool check_settled(const json_t *value, size_t i, note *why) {
	double found = json_is_boolean(value) ? (double)json_boolean_value(value) : json_number_value(value);
	bool same = (json_is_boolean(value) || json_is_number(value)) && found <= settled[i].value && found >= settled[i].value;
	return same ||
	       note_set(why, "the press has '%s' other than %g, which no policy does", settled[i].name, settled[i].value);
}

/* Sets one parameter. `name` is of press_params. */
static bool set(ckv_params *params, const json_t *press_params, const char *name, note *why) {
	int32_t number;
	double real;
	for (size_t i = 0; i < LENGTH(numbers); i++) {
		if (strcmp(name, numbers[i].name) == 0) {
			bool ok = field_int(press_params, name, 0, &number, why);
			memcpy((char *)params + numbers[i].offset, &number, ok ? sizeof number : 0);
			return ok;
		}
	}
	for (size_t i = 0; i < LENGTH(reals); i++) {
		if (strcmp(name, reals[i].name) == 0) {
			bool ok = field_number(press_params, name, &real, why);
			memcpy((char *)params + reals[i].offset, &real, ok ? sizeof real : 0);
			return ok;
		}
	}
	for (size_t i = 0; i < LENGTH(settled); i++) {
		if (strcmp(name, settled[i].name) == 0) {
			return check_settled(json_object_get(press_params, name), i, why);
		}
	}
	return note_set(why, "the press has a parameter '%s' that the replay does not know", name);
}

void policy_reference(const char *scorer, const char *selector, ckv_params *params) {
	ckv_params_default(params);
	params->reference = 1;
	params->sinks = 0; /* what a press does not tell must not come from a default of ours */
	params->window = 1;
	params->scorer = scorer;
	params->selector = selector;
}

bool policy_params(const char *scorer, const char *selector, json_t *press_params, ckv_params *params, note *why) {
	policy_reference(scorer, selector, params);
	const char *name;
	json_t *value;
	json_object_foreach(press_params, name, value) {
		if (strcmp(name, "scorer") != 0 && !set(params, press_params, name, why)) {
			return false;
		}
	}
	return true;
}
