/* Policy texts, `preset:key=value,...`, over a table of keys that says where in a struct of parameters each has its value.
 */
#ifndef CKV_KEYS_H
#define CKV_KEYS_H

#include "chunkkv/chunkkv.h"

#include <stdbool.h>

/* Names of one kind, by index; NULL past the end. */
typedef const char *(*ckv_name_at)(size_t i);

/* How a key's value is kept. */
typedef enum ckv_key_kind {
	CKV_KEY_NAME, /* const char *, one of `names` */
	CKV_KEY_INT,  /* int32_t */
	CKV_KEY_REAL, /* double */
	CKV_KEY_MODE  /* int32_t: 0 exact, 1 reference */
} ckv_key_kind;

typedef struct ckv_key {
	ckv_param_info info;
	ckv_key_kind kind;
	size_t offset;
	ckv_name_at names; /* CKV_KEY_NAME only */
} ckv_key;

/* A table's rows, for a struct of that type. */
#define CKV_NAME_ROW(type, field, names, text)                                                                              \
	{ {#field, text, 0, 0}, CKV_KEY_NAME, offsetof(type, field), names }
#define CKV_INT_ROW(type, field, low, high, text)                                                                           \
	{ {#field, text, low, high}, CKV_KEY_INT, offsetof(type, field), NULL }
#define CKV_REAL_ROW(type, field, low, high, text)                                                                          \
	{ {#field, text, low, high}, CKV_KEY_REAL, offsetof(type, field), NULL }
#define CKV_MODE_ROW(type, field, text)                                                                                     \
	{ {"mode", text, 0, 0}, CKV_KEY_MODE, offsetof(type, field), NULL }

enum { CKV_MOST_KEYS = 32 };   /* of a table: a bit for each */
enum { CKV_MOST_TEXT = 1024 }; /* of a policy, with its end */

/* A kind of policy: its struct, keys and presets. */
typedef struct ckv_keys {
	const char *what; /* "policy", as messages call it */
	size_t size;      /* of the struct */
	size_t preset;    /* where in it the preset's name is */
	size_t n;
	const ckv_key *rows;
	ckv_name_at key_name, preset_name;
	const void *(*preset_params)(const char *name);    /* NULL when there is none */
	const char *preset_default;                        /* parameters of no known preset are told from this one */
	bool (*uses)(const void *params, const char *key); /* of params that have all names */
} ckv_keys;

/* The name itself, as a static string; NULL when there is none. */
const char *ckv_name_find(ckv_name_at names, const char *text);

/* "there is no KIND 'TEXT'; the nearest is ...": CKV_ERR_POLICY. */
ckv_status ckv_name_unknown(ckv_error *error, const char *kind, const char *text, ckv_name_at names);

/* Cuts text at the first `separator`; returns what follows it, or NULL. */
char *ckv_cut(char *text, char separator);

/* Whether `list`, comma-separated, holds `key`. */
bool ckv_list_has(const char *list, const char *key);

/* Whether params are there, with a name in every place for one. */
bool ckv_keys_named(const ckv_keys *keys, const void *params);

/* The ranges of all numbers, and the mode; or of those that are used. */
ckv_status ckv_keys_check(const ckv_keys *keys, const void *params, ckv_error *error);
ckv_status ckv_keys_check_used(const ckv_keys *keys, const void *params, ckv_error *error);

/* Reads a text into `params`, which is written in part after an error; not checked together yet. given: a bit for each row
 * that the text names. */
ckv_status ckv_keys_parse(const ckv_keys *keys, const char *text, void *params, uint32_t *given, ckv_error *error);

/* A key that was given and that the finished policy does not read, which would be a wish silently ignored; NULL: none. */
const char *ckv_keys_unused(const ckv_keys *keys, const void *params, uint32_t given);

/* The preset and what differs from it, in keys that are used; "" for params without names. Length as snprintf's. */
size_t ckv_keys_format(const ckv_keys *keys, const void *params, char *buffer, size_t capacity);

/* One key's value. */
size_t ckv_keys_value(const ckv_keys *keys, const void *params, const char *key, char *buffer, size_t capacity);

/* Whether there is such a key and the policy reads it. */
bool ckv_keys_use(const ckv_keys *keys, const void *params, const char *key);

#endif
