#include "policies.h"

#include "casefile.h"

#include <string.h>

/* A press is replayed as soon as it has a row here and the library has the scorer. Press names may go on with "_...".
 * Scorers that need more than a layer's keys, values and last queries, or parameters that ckv_params lacks, have no row. */
static const struct {
	const char *press, *scorer;
} scorers[] = {
    {"snapkv", "snapkv"},
    {"tova", "tova"},
    {"knorm", "knorm"},
    {"keydiff", "keydiff"},
};

/* The same for kinds of presses: how kvpress selects, over any scorer. */
static const struct {
	const char *kind, *selector;
} selectors[] = {
    {"scorer", "topk"},
    {"chunkkv", "chunk"},
};

/* Parameters of presses and where they go. */
static const struct {
	const char *name;
	size_t offset; /* of an int32_t in ckv_params */
} numbers[] = {
    {"window_size", offsetof(ckv_params, window)},
    {"kernel_size", offsetof(ckv_params, kernel)},
    {"chunk_length", offsetof(ckv_params, chunk)},
};

#define LENGTH(array) (sizeof(array) / sizeof *(array))

typedef const ckv_method_info *(*info_at)(size_t i);

static bool registered(info_at infos, const char *name) {
	for (size_t i = 0; infos(i); i++) {
		if (strcmp(infos(i)->name, name) == 0) {
			return true;
		}
	}
	return false;
}

const char *policy_scorer(const char *press) {
	for (size_t i = 0; i < LENGTH(scorers); i++) {
		size_t n = strlen(scorers[i].press);
		if (strncmp(press, scorers[i].press, n) == 0 && (press[n] == '\0' || press[n] == '_')) {
			return registered(ckv_scorer_info, scorers[i].scorer) ? scorers[i].scorer : NULL;
		}
	}
	return NULL;
}

const char *policy_selector(const char *kind) {
	for (size_t i = 0; i < LENGTH(selectors); i++) {
		if (strcmp(kind, selectors[i].kind) == 0) {
			return registered(ckv_selector_info, selectors[i].selector) ? selectors[i].selector : NULL;
		}
	}
	return NULL;
}

/* Where the parameter goes, or NULL. */
static void *number_place(ckv_params *params, const char *name) {
	for (size_t i = 0; i < LENGTH(numbers); i++) {
		if (strcmp(name, numbers[i].name) == 0) {
			return (char *)params + numbers[i].offset;
		}
	}
	return NULL;
}

static bool set_number(ckv_params *params, const json_t *press_params, const char *name, note *why) {
	void *place = number_place(params, name);
	int32_t value;
	if (!place) {
		return note_set(why, "the press has a parameter '%s' that the replay does not know", name);
	}
	if (!field_int(press_params, name, 0, &value, why)) {
		return false;
	}
	memcpy(place, &value, sizeof value);
	return true;
}

bool policy_params(const char *scorer, const char *selector, json_t *press_params, ckv_params *params, note *why) {
	ckv_params_default(params);
	params->reference = 1;
	params->sinks = 0;
	params->window = 1; /* a selector alone needs a scorer's name all the same, and then room for its window */
	params->scorer = scorer ? scorer : "snapkv";
	params->selector = selector;
	const char *name;
	json_t *value;
	json_object_foreach(press_params, name, value) {
		bool wanted = scorer ? strcmp(name, "scorer") != 0 : strcmp(name, "chunk_length") == 0;
		if (wanted && !set_number(params, press_params, name, why)) {
			return false;
		}
	}
	return true;
}
