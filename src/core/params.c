/* Parameters: the one table of keys, the policy text, range checks. */
#include "core/internal.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum key_kind { KEY_SCORER, KEY_SELECTOR, KEY_CHUNKER, KEY_LAYERS, KEY_INT, KEY_REAL, KEY_MODE } key_kind;

typedef struct key_row {
	ckv_param_info info;
	key_kind kind;
	size_t offset;
} key_row;

#define NUMBER(key, low, high, text)                                                                                        \
	{ {#key, text, low, high}, KEY_INT, offsetof(ckv_params, key) }
#define REAL(key, low, high, text)                                                                                          \
	{ {#key, text, low, high}, KEY_REAL, offsetof(ckv_params, key) }

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
    {{"chunker", "where chunks end", 0, 0}, KEY_CHUNKER, offsetof(ckv_params, chunker)},
    NUMBER(max_chunk, 1, 65536, "tokens in a chunk at most, where chunks end by the text"),
    NUMBER(entropy_keep, 1, 65535, "tokens kept of a chunk of low entropy; less than a chunk"),
    REAL(safeguard, 0, 1, "share of its budget that each head keeps for its own best tokens"),
    {{"layers", "how the budget is shared among the layers", 0, 0}, KEY_LAYERS, offsetof(ckv_params, layers)},
    REAL(beta, 1, 1000, "steepness of the pyramid: the last layer gets 1/beta of the mean"),
    REAL(share, 0.01, 1, "of its budget that a layer keeps whose attention hardly changes its input"),
    NUMBER(reuse, 1, 1024, "neighbouring layers that share one selection; 1: none do"),
    NUMBER(future, 1, 65536, "coming positions that the expected query is averaged over"),
    NUMBER(lag, 1, 65536, "tokens in a partition"),
    NUMBER(seed, 0, INT32_MAX, "of the random numbers"),
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
static const char *chunker_name(size_t i) { return ckv_chunker_info(i) ? ckv_chunker_info(i)->name : NULL; }
static const char *layers_name(size_t i) { return ckv_layer_rule_info(i) ? ckv_layer_rule_info(i)->name : NULL; }
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

static double get_real(const ckv_params *params, const key_row *key) {
	double value;
	memcpy(&value, field(params, key), sizeof value);
	return value;
}

static ckv_status check_range(const key_row *key, double value, ckv_error *error) {
	if (!(value >= key->info.minimum && value <= key->info.maximum)) {
		return ckv_fail(error, CKV_ERR_POLICY, "%s=%.10g is out of range: %.10g to %.10g", key->info.key, value,
		                key->info.minimum, key->info.maximum);
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

static bool has_chunks(const parts *p) { return p->selector && lists(p->selector->info.uses, "chunker"); }

static bool uses(const ckv_params *params, const char *key) {
	parts p = find_parts(params);
	if (strcmp(key, "scorer") == 0 || strcmp(key, "selector") == 0) {
		return true;
	}
	if (strcmp(key, "layers") == 0 || strcmp(key, "reuse") == 0) {
		return p.scorer != NULL;
	}
	return (p.scorer && lists(p.scorer->info.uses, key)) || (p.selector && lists(p.selector->info.uses, key)) ||
	       (p.chunker && has_chunks(&p) && lists(p.chunker->uses, key)) ||
	       (p.layers && p.scorer && lists(p.layers->uses, key));
}

static bool has_names(const ckv_params *p) { return p && p->preset && p->scorer && p->selector && p->chunker && p->layers; }

int ckv_params_use(const ckv_params *params, const char *key) {
	return has_names(params) && key && find_name(key_name, key) && uses(params, key);
}

static ckv_status check_names(const ckv_params *params, const parts *p, ckv_error *error) {
	if (!p->scorer && strcmp(params->scorer, "none") != 0) {
		return unknown(error, "scorer", params->scorer, scorer_name);
	}
	if (!p->selector) {
		return unknown(error, "selector", params->selector, selector_name);
	}
	if (!p->chunker) {
		return unknown(error, "chunker", params->chunker, chunker_name);
	}
	if (!p->layers) {
		return unknown(error, "layer rule", params->layers, layers_name);
	}
	if (!p->scorer && strcmp(params->selector, "all") != 0) {
		return ckv_fail(error, CKV_ERR_POLICY, "selector '%s' needs a scorer", params->selector);
	}
	return CKV_OK;
}

static ckv_status check_numbers(const ckv_params *params, ckv_error *error) {
	for (size_t i = 0; i < N_KEYS; i++) {
		if (keys[i].kind == KEY_INT || keys[i].kind == KEY_REAL) {
			double value = keys[i].kind == KEY_INT ? get_int(params, &keys[i]) : get_real(params, &keys[i]);
			ckv_status status = check_range(&keys[i], value, error);
			if (status) {
				return status;
			}
		}
	}
	return CKV_OK;
}

/* What only matters to those who read it. */
static ckv_status check_together(const ckv_params *params, const parts *p, ckv_error *error) {
	if (params->kernel % 2 == 0) {
		return ckv_fail(error, CKV_ERR_POLICY, "kernel=%d must be odd, so that it has a middle", params->kernel);
	}
	if (p->scorer && lists(p->scorer->info.uses, "window") && params->window < 1) {
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

ckv_status ckv_params_check(const ckv_params *params, ckv_error *error) {
	if (!params->scorer || !params->selector || !params->preset || !params->chunker || !params->layers) {
		return ckv_fail(error, CKV_ERR_ARG, "the parameters lack a name: start from ckv_params_default");
	}
	parts p = find_parts(params);
	ckv_status status = check_names(params, &p, error);
	status = status ? status : check_numbers(params, error);
	if (status) {
		return status;
	}
	if (params->reference != 0 && params->reference != 1) {
		return ckv_fail(error, CKV_ERR_POLICY, "reference is %d: it is 0 or 1", params->reference);
	}
	return check_together(params, &p, error);
}

static ckv_status set_number(ckv_params *params, const key_row *key, const char *text, ckv_error *error) {
	char *end;
	long value = strtol(text, &end, 10);
	if (*text == '\0' || isspace((unsigned char)*text) || *end) {
		return ckv_fail(error, CKV_ERR_POLICY, "%s='%.40s' is not a whole number", key->info.key, text);
	}
	ckv_status status = check_range(key, (double)value, error);
	if (status) {
		return status;
	}
	int32_t number = (int32_t)value;
	memcpy((char *)params + key->offset, &number, sizeof number);
	return CKV_OK;
}

static ckv_status set_real(ckv_params *params, const key_row *key, const char *text, ckv_error *error) {
	double value;
	bool whole;
	const char *end = ckv_parse_decimal(text, &value, &whole);
	if (!end || *end) {
		return ckv_fail(error, CKV_ERR_POLICY, "%s='%.40s' is not a number like 0.2", key->info.key, text);
	}
	ckv_status status = check_range(key, value, error);
	if (status == CKV_OK) {
		memcpy((char *)params + key->offset, &value, sizeof value);
	}
	return status;
}

static name_at names_of(key_kind kind) {
	switch (kind) {
	case KEY_SCORER: return scorer_name;
	case KEY_SELECTOR: return selector_name;
	case KEY_CHUNKER: return chunker_name;
	case KEY_LAYERS: return layers_name;
	case KEY_INT:
	case KEY_REAL:
	case KEY_MODE: break;
	}
	return mode_name;
}

static ckv_status set_value(ckv_params *params, const key_row *key, const char *text, ckv_error *error) {
	if (key->kind == KEY_INT) {
		return set_number(params, key, text, error);
	}
	if (key->kind == KEY_REAL) {
		return set_real(params, key, text, error);
	}
	name_at names = names_of(key->kind);
	const char *name = find_name(names, strcmp(text, "l2norm") == 0 ? "knorm" : text); /* known by both names */
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
	switch (key->kind) {
	case KEY_INT:
	case KEY_MODE: return get_int(a, key) != get_int(b, key);
	case KEY_REAL: return memcmp(field(a, key), field(b, key), sizeof(double)) != 0;
	case KEY_SCORER:
	case KEY_SELECTOR:
	case KEY_CHUNKER:
	case KEY_LAYERS: break;
	}
	return strcmp(get_name(a, key), get_name(b, key)) != 0;
}

static void append_value(const ckv_params *params, const key_row *key, char *buffer, size_t capacity, size_t *length) {
	char number[32] = "";
	const char *value = number;
	switch (key->kind) {
	case KEY_INT: snprintf(number, sizeof number, "%d", get_int(params, key)); break;
	case KEY_REAL: ckv_format_decimal(get_real(params, key), number, sizeof number); break;
	case KEY_MODE: value = mode_name(params->reference ? 1 : 0); break;
	case KEY_SCORER:
	case KEY_SELECTOR:
	case KEY_CHUNKER:
	case KEY_LAYERS: value = get_name(params, key); break;
	}
	append(buffer, capacity, length, value);
}

size_t ckv_params_value(const ckv_params *params, const char *key, char *buffer, size_t capacity) {
	size_t length = 0;
	if (capacity) {
		buffer[0] = '\0';
	}
	for (size_t i = 0; i < N_KEYS && has_names(params) && key; i++) {
		if (strcmp(keys[i].info.key, key) == 0) {
			append_value(params, &keys[i], buffer, capacity, &length);
		}
	}
	return length;
}

size_t ckv_policy_format(const ckv_params *params, char *buffer, size_t capacity) {
	size_t length = 0;
	if (capacity) {
		buffer[0] = '\0';
	}
	if (!has_names(params)) {
		return 0;
	}
	/* Parameters of one's own making are told as what differs from the default preset. */
	const ckv_preset *preset = ckv_preset_find(params->preset);
	preset = preset ? preset : ckv_preset_find("chunkkv");
	append(buffer, capacity, &length, preset->info.name);
	bool first = true;
	for (size_t i = 0; i < N_KEYS; i++) {
		if (!differs(params, &preset->params, &keys[i]) || !uses(params, keys[i].info.key)) {
			continue;
		}
		append(buffer, capacity, &length, first ? ":" : ",");
		first = false;
		append(buffer, capacity, &length, keys[i].info.key);
		append(buffer, capacity, &length, "=");
		append_value(params, &keys[i], buffer, capacity, &length);
	}
	return length;
}

ckv_status ckv_params_needs(const ckv_params *params, ckv_needs *needs) {
	if (!needs || !has_names(params)) {
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
