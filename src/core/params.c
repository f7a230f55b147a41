/* Parameters: the one table of keys, the policy text, range checks. */
#include "core/internal.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum key_kind { KEY_SCORER, KEY_SELECTOR, KEY_INT, KEY_MODE } key_kind;

typedef struct key_row {
	ckv_param_info info;
	key_kind kind;
	size_t offset;
} key_row;

#define NUMBER(key, low, high, text)                                                                                        \
	{ {#key, text, low, high}, KEY_INT, offsetof(ckv_params, key) }

static const key_row keys[] = {
    {{"scorer", "what a token is worth", 0, 0}, KEY_SCORER, offsetof(ckv_params, scorer)},
    {{"selector", "which tokens that makes us keep", 0, 0}, KEY_SELECTOR, offsetof(ckv_params, selector)},
    NUMBER(window, 0, 65536, "last queries that are observed; as many last tokens are protected"),
    NUMBER(kernel, 1, 255, "width of the average over neighbouring tokens; odd"),
    NUMBER(chunk, 1, 65536, "tokens in a chunk"),
    NUMBER(sinks, 0, 65536, "first tokens that are protected"),
    {{"mode", "exact: the budget to the token; reference: the published code's own counts", 0, 0},
     KEY_MODE,
     offsetof(ckv_params, reference)},
};

enum { N_KEYS = sizeof keys / sizeof *keys, MAX_TEXT = 1024 };

const ckv_param_info *ckv_param_info_at(size_t i) { return i < N_KEYS ? &keys[i].info : NULL; }

size_t ckv_distance(const char *a, const char *b) {
	size_t n = strlen(b), row[64];
	if (strlen(a) >= sizeof row / sizeof *row || n >= sizeof row / sizeof *row) {
		return SIZE_MAX;
	}
	for (size_t j = 0; j <= n; j++) {
		row[j] = j;
	}
	for (size_t i = 0; a[i]; i++) {
		size_t diagonal = row[0];
		row[0] = i + 1;
		for (size_t j = 0; j < n; j++) {
			size_t change = diagonal + (tolower((unsigned char)a[i]) != tolower((unsigned char)b[j]));
			size_t shorter = (row[j] < row[j + 1] ? row[j] : row[j + 1]) + 1;
			diagonal = row[j + 1];
			row[j + 1] = change < shorter ? change : shorter;
		}
	}
	return row[n];
}

/* Names of one kind, by index; NULL past the end. */
typedef const char *(*name_at)(size_t i);

static const char *preset_name(size_t i) { return ckv_preset_at(i) ? ckv_preset_at(i)->info.name : NULL; }
static const char *selector_name(size_t i) { return ckv_selector_at(i) ? ckv_selector_at(i)->info.name : NULL; }
static const char *key_name(size_t i) { return i < N_KEYS ? keys[i].info.key : NULL; }
static const char *mode_name(size_t i) { return i == 0 ? "exact" : i == 1 ? "reference" : NULL; }

static const char *scorer_name(size_t i) {
	return i == 0 ? "none" : ckv_scorer_at(i - 1) ? ckv_scorer_at(i - 1)->info.name : NULL;
}

static const char *find_name(name_at names, const char *text) {
	for (size_t i = 0; names(i); i++) {
		if (strcmp(names(i), text) == 0) {
			return names(i);
		}
	}
	return NULL;
}

static ckv_status unknown(ckv_error *error, const char *kind, const char *text, name_at names) {
	const char *best = names(0);
	for (size_t i = 1; names(i); i++) {
		if (ckv_distance(text, names(i)) < ckv_distance(text, best)) {
			best = names(i);
		}
	}
	return ckv_fail(error, CKV_ERR_POLICY, "there is no %s '%.40s'; the nearest is '%s'", kind, text, best);
}

static const void *field(const ckv_params *params, const key_row *key) { return (const char *)params + key->offset; }

static int32_t get_int(const ckv_params *params, const key_row *key) {
	int32_t value;
	memcpy(&value, field(params, key), sizeof value);
	return value;
}

static const char *get_name(const ckv_params *params, const key_row *key) {
	const char *value;
	memcpy(&value, field(params, key), sizeof value);
	return value;
}

static ckv_status check_range(const key_row *key, long value, ckv_error *error) {
	if (value < key->info.minimum || value > key->info.maximum) {
		return ckv_fail(error, CKV_ERR_POLICY, "%s=%ld is out of range: %d to %d", key->info.key, value, key->info.minimum,
		                key->info.maximum);
	}
	return CKV_OK;
}

/* Whether `list`, comma-separated, holds `key`. */
static bool lists(const char *list, const char *key) {
	size_t n = strlen(key);
	for (const char *at = list; (at = strstr(at, key)) != NULL; at += n) {
		bool starts = at == list || at[-1] == ',';
		if (starts && (at[n] == '\0' || at[n] == ',')) {
			return true;
		}
	}
	return false;
}

static bool uses(const ckv_params *params, const char *key) {
	const ckv_scorer *scorer = ckv_scorer_find(params->scorer);
	const ckv_selector *selector = ckv_selector_find(params->selector);
	if (strcmp(key, "scorer") == 0 || strcmp(key, "selector") == 0) {
		return true;
	}
	return (scorer && lists(scorer->info.uses, key)) || (selector && lists(selector->info.uses, key));
}

ckv_status ckv_params_check(const ckv_params *params, ckv_error *error) {
	if (!params->scorer || !params->selector || !params->preset) {
		return ckv_fail(error, CKV_ERR_ARG, "the parameters lack a name: start from ckv_params_default");
	}
	const ckv_scorer *scorer = ckv_scorer_find(params->scorer);
	const ckv_selector *selector = ckv_selector_find(params->selector);
	if (!scorer && strcmp(params->scorer, "none") != 0) {
		return unknown(error, "scorer", params->scorer, scorer_name);
	}
	if (!selector) {
		return unknown(error, "selector", params->selector, selector_name);
	}
	if (!scorer && strcmp(params->selector, "all") != 0) {
		return ckv_fail(error, CKV_ERR_POLICY, "selector '%s' needs a scorer", params->selector);
	}
	for (size_t i = 0; i < N_KEYS; i++) {
		if (keys[i].kind == KEY_INT) {
			ckv_status status = check_range(&keys[i], get_int(params, &keys[i]), error);
			if (status) {
				return status;
			}
		}
	}
	if (params->reference != 0 && params->reference != 1) {
		return ckv_fail(error, CKV_ERR_POLICY, "reference is %d: it is 0 or 1", params->reference);
	}
	if (params->kernel % 2 == 0) {
		return ckv_fail(error, CKV_ERR_POLICY, "kernel=%d must be odd, so that it has a middle", params->kernel);
	}
	if (scorer && lists(scorer->info.uses, "window") && params->window < 1) {
		return ckv_fail(error, CKV_ERR_POLICY, "scorer '%s' observes the last queries: window must be at least 1",
		                params->scorer);
	}
	return CKV_OK;
}

static ckv_status set_number(ckv_params *params, const key_row *key, const char *text, ckv_error *error) {
	char *end;
	long value = strtol(text, &end, 10);
	if (*text == '\0' || isspace((unsigned char)*text) || *end) {
		return ckv_fail(error, CKV_ERR_POLICY, "%s='%.40s' is not a whole number", key->info.key, text);
	}
	ckv_status status = check_range(key, value, error);
	if (status) {
		return status;
	}
	int32_t number = (int32_t)value;
	memcpy((char *)params + key->offset, &number, sizeof number);
	return CKV_OK;
}

static ckv_status set_value(ckv_params *params, const key_row *key, const char *text, ckv_error *error) {
	name_at names = key->kind == KEY_SCORER ? scorer_name : key->kind == KEY_SELECTOR ? selector_name : mode_name;
	if (key->kind == KEY_INT) {
		return set_number(params, key, text, error);
	}
	const char *name = find_name(names, text);
	if (!name) {
		return unknown(error, key->info.key, text, names);
	}
	if (key->kind == KEY_MODE) {
		params->reference = strcmp(name, "reference") == 0;
	} else {
		memcpy((char *)params + key->offset, &name, sizeof name);
	}
	return CKV_OK;
}

/* Cuts text at the first `separator`; returns what follows it, or NULL. */
static char *cut(char *text, char separator) {
	char *at = strchr(text, separator);
	if (at) {
		*at++ = '\0';
	}
	return at;
}

static ckv_status set_pair(ckv_params *params, char *pair, uint32_t *given, ckv_error *error) {
	char *value = cut(pair, '=');
	if (!value) {
		return ckv_fail(error, CKV_ERR_POLICY, "'%.40s' is not key=value", pair);
	}
	for (size_t i = 0; i < N_KEYS; i++) {
		if (strcmp(keys[i].info.key, pair) == 0) {
			if (*given & (1u << i)) {
				return ckv_fail(error, CKV_ERR_POLICY, "'%s' is given twice", pair);
			}
			*given |= 1u << i;
			return set_value(params, &keys[i], value, error);
		}
	}
	return unknown(error, "parameter", pair, key_name);
}

/* A key that the finished policy does not read would be a wish silently ignored. */
static ckv_status check_used(const ckv_params *params, uint32_t given, ckv_error *error) {
	for (size_t i = 0; i < N_KEYS; i++) {
		if ((given & (1u << i)) && !uses(params, keys[i].info.key)) {
			return ckv_fail(error, CKV_ERR_POLICY, "policy '%s' (scorer %s, selector %s) does not use '%s'", params->preset,
			                params->scorer, params->selector, keys[i].info.key);
		}
	}
	return CKV_OK;
}

ckv_status ckv_policy_parse(const char *text, ckv_params *params, ckv_error *error) {
	char copy[MAX_TEXT];
	if (!text || !params) {
		return ckv_fail(error, CKV_ERR_ARG, "ckv_policy_parse needs a text and a place for the parameters");
	}
	if (strlen(text) >= sizeof copy) {
		return ckv_fail(error, CKV_ERR_POLICY, "the policy text is longer than %d characters", MAX_TEXT - 1);
	}
	memcpy(copy, text, strlen(text) + 1);
	char *pairs = cut(copy, ':');
	const ckv_preset *preset = ckv_preset_find(copy);
	if (!preset) {
		return unknown(error, "policy", copy, preset_name);
	}
	ckv_params made = preset->params;
	uint32_t given = 0;
	while (pairs) {
		char *next = cut(pairs, ',');
		ckv_status status = set_pair(&made, pairs, &given, error);
		if (status) {
			return status;
		}
		pairs = next;
	}
	ckv_status status = ckv_params_check(&made, error);
	status = status ? status : check_used(&made, given, error);
	if (status == CKV_OK) {
		*params = made;
		ckv_fail(error, CKV_OK, "%s", "");
	}
	return status;
}

/* Appends to a buffer that may be too small or absent; *length counts on regardless. */
static void append(char *buffer, size_t capacity, size_t *length, const char *text) {
	for (; *text; text++) {
		if (*length + 1 < capacity) {
			buffer[*length] = *text;
			buffer[*length + 1] = '\0';
		}
		*length += 1;
	}
}

static bool differs(const ckv_params *a, const ckv_params *b, const key_row *key) {
	if (key->kind == KEY_INT || key->kind == KEY_MODE) {
		return get_int(a, key) != get_int(b, key);
	}
	return strcmp(get_name(a, key), get_name(b, key)) != 0;
}

size_t ckv_policy_format(const ckv_params *params, char *buffer, size_t capacity) {
	size_t length = 0;
	if (capacity) {
		buffer[0] = '\0';
	}
	if (!params || !params->preset || !params->scorer || !params->selector) {
		return 0;
	}
	/* Parameters of one's own making are told as what differs from the default preset. */
	const ckv_preset *preset = ckv_preset_find(params->preset);
	preset = preset ? preset : ckv_preset_find("chunkkv");
	append(buffer, capacity, &length, preset->info.name);
	bool first = true;
	for (size_t i = 0; i < N_KEYS; i++) {
		char number[16];
		if (!differs(params, &preset->params, &keys[i]) || !uses(params, keys[i].info.key)) {
			continue;
		}
		append(buffer, capacity, &length, first ? ":" : ",");
		first = false;
		snprintf(number, sizeof number, "%d", keys[i].kind == KEY_INT ? get_int(params, &keys[i]) : 0);
		const char *value = number;
		if (keys[i].kind == KEY_MODE) {
			value = mode_name(params->reference ? 1 : 0);
		} else if (keys[i].kind != KEY_INT) {
			value = get_name(params, &keys[i]);
		}
		append(buffer, capacity, &length, keys[i].info.key);
		append(buffer, capacity, &length, "=");
		append(buffer, capacity, &length, value);
	}
	return length;
}

ckv_status ckv_params_needs(const ckv_params *params, ckv_needs *needs) {
	if (!params || !needs || !params->scorer) {
		return CKV_ERR_ARG;
	}
	const ckv_scorer *scorer = ckv_scorer_find(params->scorer);
	if (!scorer && strcmp(params->scorer, "none") != 0) {
		return CKV_ERR_POLICY;
	}
	ckv_needs none = {0, 0};
	*needs = scorer ? scorer->needs(params) : none;
	return CKV_OK;
}
