/* Policy texts over a table of keys: reading, checking of ranges, writing. */
#include "core/keys.h"
#include "core/internal.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ names */

/* Levenshtein distance, case-insensitive; for "the nearest is". */
static size_t distance(const char *a, const char *b) {
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

static const char *mode_name(size_t i) { return i == 0 ? "exact" : i == 1 ? "reference" : NULL; }

const char *ckv_name_find(ckv_name_at names, const char *text) {
	for (size_t i = 0; names(i); i++) {
		if (strcmp(names(i), text) == 0) {
			return names(i);
		}
	}
	return NULL;
}

ckv_status ckv_name_unknown(ckv_error *error, const char *kind, const char *text, ckv_name_at names) {
	const char *best = names(0);
	for (size_t i = 1; names(i); i++) {
		if (distance(text, names(i)) < distance(text, best)) {
			best = names(i);
		}
	}
	return ckv_fail(error, CKV_ERR_POLICY, "there is no %s '%.40s'; the nearest is '%s'", kind, text, best);
}

bool ckv_list_has(const char *list, const char *key) {
	size_t n = strlen(key);
	for (const char *at = list; (at = strstr(at, key)) != NULL; at += n) {
		bool starts = at == list || at[-1] == ',';
		if (starts && (at[n] == '\0' || at[n] == ',')) {
			return true;
		}
	}
	return false;
}

/* ----------------------------------------------------------------- values */

static int32_t get_int(const void *params, size_t offset) {
	int32_t value;
	memcpy(&value, (const char *)params + offset, sizeof value);
	return value;
}

static const char *get_name(const void *params, size_t offset) {
	const char *value;
	memcpy(&value, (const char *)params + offset, sizeof value);
	return value;
}

static double get_real(const void *params, size_t offset) {
	double value;
	memcpy(&value, (const char *)params + offset, sizeof value);
	return value;
}

bool ckv_keys_named(const ckv_keys *keys, const void *params) {
	bool named = params && get_name(params, keys->preset);
	for (size_t i = 0; named && i < keys->n; i++) {
		named = keys->rows[i].kind != CKV_KEY_NAME || get_name(params, keys->rows[i].offset);
	}
	return named;
}

static ckv_status check_range(const ckv_key *key, double value, ckv_error *error) {
	if (!(value >= key->info.minimum && value <= key->info.maximum)) {
		return ckv_fail(error, CKV_ERR_POLICY, "%s=%.10g is out of range: %.10g to %.10g", key->info.key, value,
		                key->info.minimum, key->info.maximum);
	}
	return CKV_OK;
}

static ckv_status check_mode(const ckv_key *key, const void *params, ckv_error *error) {
	int32_t value = get_int(params, key->offset);
	if (value != 0 && value != 1) {
		return ckv_fail(error, CKV_ERR_POLICY, "reference is %d: it is 0 or 1", value);
	}
	return CKV_OK;
}

static ckv_status check_value(const ckv_key *key, const void *params, ckv_error *error) {
	switch (key->kind) {
	case CKV_KEY_INT: return check_range(key, get_int(params, key->offset), error);
	case CKV_KEY_REAL: return check_range(key, get_real(params, key->offset), error);
	case CKV_KEY_MODE: return check_mode(key, params, error);
	case CKV_KEY_NAME: break;
	}
	return CKV_OK;
}

ckv_status ckv_keys_check(const ckv_keys *keys, const void *params, ckv_error *error) {
	ckv_status status = CKV_OK;
	for (size_t i = 0; !status && i < keys->n; i++) {
		status = check_value(&keys->rows[i], params, error);
	}
	return status;
}

ckv_status ckv_keys_check_used(const ckv_keys *keys, const void *params, ckv_error *error) {
	ckv_status status = CKV_OK;
	for (size_t i = 0; !status && i < keys->n; i++) {
		bool used = keys->uses(params, keys->rows[i].info.key);
		status = used ? check_value(&keys->rows[i], params, error) : CKV_OK;
	}
	return status;
}

/* ---------------------------------------------------------------- reading */

static ckv_status set_int(void *params, const ckv_key *key, const char *text, ckv_error *error) {
	char *end;
	long value = strtol(text, &end, 10);
	if (*text == '\0' || isspace((unsigned char)*text) || *end) {
		return ckv_fail(error, CKV_ERR_POLICY, "%s='%.40s' is not a whole number", key->info.key, text);
	}
	ckv_status status = check_range(key, (double)value, error);
	if (status == CKV_OK) {
		int32_t number = (int32_t)value;
		memcpy((char *)params + key->offset, &number, sizeof number);
	}
	return status;
}

static ckv_status set_real(void *params, const ckv_key *key, const char *text, ckv_error *error) {
	double value;
	bool whole, below = *text == '-' && key->info.minimum < 0.0;
	const char *end = ckv_parse_decimal(text + below, &value, &whole);
	if (!end || *end) {
		return ckv_fail(error, CKV_ERR_POLICY, "%s='%.40s' is not a number like 0.2", key->info.key, text);
	}
	value = below ? 0.0 - value : value; /* and no -0 */
	ckv_status status = check_range(key, value, error);
	if (status == CKV_OK) {
		memcpy((char *)params + key->offset, &value, sizeof value);
	}
	return status;
}

static ckv_status set_name(void *params, const ckv_key *key, const char *text, ckv_error *error) {
	ckv_name_at names = key->kind == CKV_KEY_MODE ? mode_name : key->names;
	const char *name = ckv_name_find(names, strcmp(text, "l2norm") == 0 ? "knorm" : text); /* known by both names */
	if (!name) {
		return ckv_name_unknown(error, key->info.key, text, names);
	}
	if (key->kind == CKV_KEY_MODE) {
		int32_t reference = strcmp(name, "reference") == 0;
		memcpy((char *)params + key->offset, &reference, sizeof reference);
	} else {
		memcpy((char *)params + key->offset, &name, sizeof name);
	}
	return CKV_OK;
}

static ckv_status set_value(void *params, const ckv_key *key, const char *text, ckv_error *error) {
	switch (key->kind) {
	case CKV_KEY_INT: return set_int(params, key, text, error);
	case CKV_KEY_REAL: return set_real(params, key, text, error);
	case CKV_KEY_NAME:
	case CKV_KEY_MODE: break;
	}
	return set_name(params, key, text, error);
}

char *ckv_cut(char *text, char separator) {
	char *at = strchr(text, separator);
	if (at) {
		*at++ = '\0';
	}
	return at;
}

static ckv_status set_pair(const ckv_keys *keys, void *params, char *pair, uint32_t *given, ckv_error *error) {
	char *value = ckv_cut(pair, '=');
	if (!value) {
		return ckv_fail(error, CKV_ERR_POLICY, "'%.40s' is not key=value", pair);
	}
	for (size_t i = 0; i < keys->n; i++) {
		if (strcmp(keys->rows[i].info.key, pair) == 0) {
			if (*given & (1u << i)) {
				return ckv_fail(error, CKV_ERR_POLICY, "'%s' is given twice", pair);
			}
			*given |= 1u << i;
			return set_value(params, &keys->rows[i], value, error);
		}
	}
	return ckv_name_unknown(error, "parameter", pair, keys->key_name);
}

ckv_status ckv_keys_parse(const ckv_keys *keys, const char *text, void *params, uint32_t *given, ckv_error *error) {
	char copy[CKV_MOST_TEXT];
	*given = 0;
	if (strlen(text) >= sizeof copy) {
		return ckv_fail(error, CKV_ERR_POLICY, "the policy text is longer than %d characters", CKV_MOST_TEXT - 1);
	}
	memcpy(copy, text, strlen(text) + 1);
	char *pairs = ckv_cut(copy, ':');
	const void *preset = keys->preset_params(copy);
	if (!preset) {
		return ckv_name_unknown(error, keys->what, copy, keys->preset_name);
	}
	memcpy(params, preset, keys->size);
	ckv_status status = CKV_OK;
	while (pairs && !status) {
		char *next = ckv_cut(pairs, ',');
		status = set_pair(keys, params, pairs, given, error);
		pairs = next;
	}
	return status;
}

const char *ckv_keys_unused(const ckv_keys *keys, const void *params, uint32_t given) {
	for (size_t i = 0; i < keys->n; i++) {
		if ((given & (1u << i)) && !keys->uses(params, keys->rows[i].info.key)) {
			return keys->rows[i].info.key;
		}
	}
	return NULL;
}

/* ---------------------------------------------------------------- writing */

/* Text that goes to a buffer which may be too small or absent; the length counts on regardless. */
typedef struct writer {
	char *buffer;
	size_t capacity, length;
} writer;

static writer begin(char *buffer, size_t capacity) {
	if (capacity) {
		buffer[0] = '\0';
	}
	return (writer){buffer, capacity, 0};
}

static void append(writer *w, const char *text) {
	for (; *text; text++) {
		if (w->length + 1 < w->capacity) {
			w->buffer[w->length] = *text;
			w->buffer[w->length + 1] = '\0';
		}
		w->length += 1;
	}
}

static void append_real(writer *w, double value) {
	char number[32];
	append(w, value < 0.0 ? "-" : "");
	ckv_format_decimal(fabs(value), number, sizeof number);
	append(w, number);
}

static void append_value(writer *w, const void *params, const ckv_key *key) {
	char number[32] = "";
	const char *value = number;
	switch (key->kind) {
	case CKV_KEY_INT: snprintf(number, sizeof number, "%d", get_int(params, key->offset)); break;
	case CKV_KEY_REAL: append_real(w, get_real(params, key->offset)); break;
	case CKV_KEY_MODE: value = mode_name(get_int(params, key->offset) ? 1 : 0); break;
	case CKV_KEY_NAME: value = get_name(params, key->offset); break;
	}
	append(w, value);
}

static bool differs(const void *a, const void *b, const ckv_key *key) {
	size_t at = key->offset;
	switch (key->kind) {
	case CKV_KEY_INT:
	case CKV_KEY_MODE: return get_int(a, at) != get_int(b, at);
	case CKV_KEY_REAL: return memcmp((const char *)a + at, (const char *)b + at, sizeof(double)) != 0;
	case CKV_KEY_NAME: break;
	}
	return strcmp(get_name(a, at), get_name(b, at)) != 0;
}

size_t ckv_keys_value(const ckv_keys *keys, const void *params, const char *key, char *buffer, size_t capacity) {
	writer w = begin(buffer, capacity);
	for (size_t i = 0; i < keys->n && key && ckv_keys_named(keys, params); i++) {
		if (strcmp(keys->rows[i].info.key, key) == 0) {
			append_value(&w, params, &keys->rows[i]);
		}
	}
	return w.length;
}

size_t ckv_keys_format(const ckv_keys *keys, const void *params, char *buffer, size_t capacity) {
	writer w = begin(buffer, capacity);
	if (!ckv_keys_named(keys, params)) {
		return 0;
	}
	const char *name = ckv_name_find(keys->preset_name, get_name(params, keys->preset));
	name = name ? name : keys->preset_default;
	const void *preset = keys->preset_params(name);
	append(&w, name);
	const char *separator = ":";
	for (size_t i = 0; i < keys->n; i++) {
		const ckv_key *key = &keys->rows[i];
		if (differs(params, preset, key) && keys->uses(params, key->info.key)) {
			append(&w, separator);
			append(&w, key->info.key);
			append(&w, "=");
			append_value(&w, params, key);
			separator = ",";
		}
	}
	return w.length;
}

bool ckv_keys_use(const ckv_keys *keys, const void *params, const char *key) {
	return ckv_keys_named(keys, params) && key && ckv_name_find(keys->key_name, key) && keys->uses(params, key);
}
