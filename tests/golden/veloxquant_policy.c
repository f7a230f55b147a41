#include "veloxquant_policy.h"

#include <string.h>

#define LENGTH(array) (sizeof(array) / sizeof *(array))
#define PARAM(field)  (offsetof(vq_policy, params) + offsetof(ckv_stream_params, field))

static const struct {
	const char *name, *preset, *scorer, *layers;
	int32_t grace;
	bool deferred, repeats, counts_rows;
} methods[] = {
    {"chunkkv", "chunkkv", "attn_mass", "uniform", 0, true, true, false},
    {"h2o", "h2o", "attn_mass", "uniform", 0, true, false, false},
    {"tova", "tova", "tova", "uniform", 0, true, true, false},
    {"streaming_llm", "streaming_llm", "streaming", "uniform", 0, true, true, false},
    {"snapkv", "snapkv", "snapkv", "uniform", 0, true, false, true},
    {"pyramidkv", "pyramidkv", "attn_mass", "pyramid", 1, false, false, false},
    {"squeeze", "squeeze", "attn_mass", "squeeze", 1, false, false, false},
    {"cam", "cam", "attn_mass", "uniform", 0, true, true, false},
    {"knorm", "l2norm", "knorm", "uniform", 0, true, false, false},
};

/* Settings and where they go. Those of one place are added up: the budget of streaming_llm is its sinks and its window. */
static const struct {
	const char *name;
	size_t offset; /* of an int32_t in vq_policy */
} numbers[] = {
    {"chunkkv_budget", offsetof(vq_policy, budget)},
    {"chunkkv_chunk_size", PARAM(chunk)},
    {"chunkkv_n_sink", PARAM(sinks)},
    {"chunkkv_reuse_layers", PARAM(reuse)},
    {"h2o_budget", offsetof(vq_policy, budget)},
    {"h2o_n_sink", PARAM(sinks)},
    {"h2o_grace", PARAM(grace)},
    {"tova_budget", offsetof(vq_policy, budget)},
    {"tova_n_sink", PARAM(sinks)},
    {"stream_n_sink", PARAM(sinks)},
    {"stream_n_sink", offsetof(vq_policy, budget)},
    {"stream_window_size", offsetof(vq_policy, budget)},
    {"snap_budget", offsetof(vq_policy, budget)},
    {"snap_obs_window", PARAM(window)},
    {"snap_n_sink", PARAM(sinks)},
    {"pyramid_budget", offsetof(vq_policy, budget)},
    {"pyramid_n_sink", PARAM(sinks)},
    {"squeeze_budget", offsetof(vq_policy, budget)},
    {"squeeze_n_sink", PARAM(sinks)},
    {"cam_budget", offsetof(vq_policy, budget)},
    {"cam_n_sink", PARAM(sinks)},
    {"seed", PARAM(seed)},
    {"knorm_budget", offsetof(vq_policy, budget)},
    {"knorm_n_sink", PARAM(sinks)},
    {"knorm_recent", PARAM(grace)},
};

static const struct {
	const char *name;
	size_t offset; /* of an int32_t */
} flags[] = {
    {"cam_merge_keys", PARAM(merge_keys)},
    {"cam_merge_gate", PARAM(merge_gate)},
};

static const struct {
	const char *name;
	size_t offset; /* of a double */
} reals[] = {
    {"h2o_decay", PARAM(decay)},
    {"pyramid_beta", PARAM(beta)},
    {"squeeze_strength", PARAM(strength)},
};

static const struct {
	const char *name;
	size_t offset;         /* of a const char * */
	const char *theirs[2]; /* names of theirs that are not ours */
	const char *ours[2];
} names[] = {
    {"chunkkv_score", PARAM(scorer), {NULL}, {NULL}},
    {"cam_merge", PARAM(merge), {NULL}, {NULL}},
    {"knorm_keep", PARAM(scorer), {"low", "high"}, {"knorm", "key_norm"}},
};

/* Where the library has no choice; NULL: the reference does not read it either. */
static const struct {
	const char *name, *followed;
} settled[] = {
    {"h2o_rope_base", NULL}, {"tova_backend", "auto"},         {"snap_backend", "auto"},
    {"snap_dtype", "auto"},  {"pyramid_backend", "reference"},
};

/* What a case does not tell must not come from a default of ours. */
static void set_method(vq_policy *policy, size_t i) {
	*policy = (vq_policy){.method = methods[i].name,
	                      .deferred = methods[i].deferred,
	                      .repeats = methods[i].repeats,
	                      .counts_rows = methods[i].counts_rows};
	ckv_stream_params *params = &policy->params;
	ckv_stream_params_default(params);
	params->preset = methods[i].preset;
	params->scorer = methods[i].scorer;
	params->layers = methods[i].layers;
	params->merge = "drop";
	params->chunk = 1;
	params->sinks = 0;
	params->grace = methods[i].grace;
	params->window = 1;
	params->reuse = 1;
	params->merge_keys = 0;
	params->merge_gate = 0;
	params->seed = 0;
	params->reference = 1;
	params->decay = 1.0;
	params->beta = 1.0;
	params->strength = 0.0;
}

bool vq_policy_of(vq_policy *policy, const char *method, note *why) {
	for (size_t i = 0; i < LENGTH(methods); i++) {
		if (strcmp(method, methods[i].name) == 0) {
			set_method(policy, i);
			return true;
		}
	}
	return note_set(why, "the method '%.60s' is not known", method);
}

/* Each of these sets *done when the setting is of its sort. */
static bool set_number(vq_policy *policy, const json_t *config, const char *name, bool *done, note *why) {
	bool ok = true;
	for (size_t i = 0; i < LENGTH(numbers) && ok; i++) {
		int32_t number = 0, before;
		if (strcmp(name, numbers[i].name) != 0) {
			continue;
		}
		*done = true;
		char *at = (char *)policy + numbers[i].offset;
		memcpy(&before, at, sizeof before);
		/* Only the budget is a sum. */
		before = numbers[i].offset == offsetof(vq_policy, budget) ? before : 0;
		ok = field_int(config, name, INT32_MIN / 2, &number, why);
		ok = ok && (number <= INT32_MAX / 2 || note_set(why, "'%s' is out of range", name));
		number += before;
		memcpy(at, &number, sizeof number);
	}
	return ok;
}

static bool set_flag(vq_policy *policy, const json_t *config, const char *name, bool *done, note *why) {
	for (size_t i = 0; i < LENGTH(flags); i++) {
		if (strcmp(name, flags[i].name) == 0) {
			const json_t *value = json_object_get(config, name);
			int32_t number = json_is_true(value);
			memcpy((char *)policy + flags[i].offset, &number, sizeof number);
			*done = true;
			return json_is_boolean(value) || note_set(why, "'%s' is neither true nor false", name);
		}
	}
	return true;
}

static bool set_real(vq_policy *policy, const json_t *config, const char *name, bool *done, note *why) {
	for (size_t i = 0; i < LENGTH(reals); i++) {
		if (strcmp(name, reals[i].name) == 0) {
			double real = 0.0;
			bool ok = field_number(config, name, &real, why);
			memcpy((char *)policy + reals[i].offset, &real, sizeof real);
			*done = true;
			return ok;
		}
	}
	return true;
}

/* A name that is not known goes on to the library, which is to refuse it. */
static bool set_name(vq_policy *policy, const json_t *config, const char *name, bool *done, note *why) {
	for (size_t i = 0; i < LENGTH(names); i++) {
		const char *text;
		if (strcmp(name, names[i].name) != 0) {
			continue;
		}
		*done = true;
		if (!field_text(config, name, &text, why)) {
			return false;
		}
		for (size_t k = 0; k < LENGTH(names[i].theirs); k++) {
			const char *theirs = names[i].theirs[k];
			text = theirs && strcmp(text, theirs) == 0 ? names[i].ours[k] : text;
		}
		memcpy((char *)policy + names[i].offset, &text, sizeof text);
	}
	return true;
}

static bool check_settled(const json_t *config, const char *name, bool *done, const char **foreign) {
	for (size_t i = 0; i < LENGTH(settled); i++) {
		if (strcmp(name, settled[i].name) == 0) {
			const char *text = json_string_value(json_object_get(config, name));
			bool same = !settled[i].followed || (text && strcmp(text, settled[i].followed) == 0);
			*foreign = same ? *foreign : settled[i].name;
			*done = true;
		}
	}
	return true;
}

static bool set(vq_policy *policy, const json_t *config, const char *name, const char **foreign, note *why) {
	bool done = false;
	bool ok = set_number(policy, config, name, &done, why) && set_flag(policy, config, name, &done, why) &&
	          set_real(policy, config, name, &done, why) && set_name(policy, config, name, &done, why) &&
	          check_settled(config, name, &done, foreign);
	return ok && (done || note_set(why, "config has a setting '%.60s' that the replay does not know", name));
}

bool vq_policy_read(vq_policy *policy, const char *method, json_t *config, const char **foreign, note *why) {
	*foreign = NULL;
	if (!vq_policy_of(policy, method, why)) {
		return false;
	}
	const char *name;
	json_t *value;
	json_object_foreach(config, name, value) {
		if (!set(policy, config, name, foreign, why)) {
			return false;
		}
	}
	return true;
}
