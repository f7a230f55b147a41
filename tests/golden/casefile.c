#include "casefile.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *path_join(const char *folder, const char *name) {
	size_t n = strlen(folder), room = n + strlen(name) + 2;
	char *path = malloc(room);
	if (path) {
		snprintf(path, room, "%s%s%s", folder, n > 0 && folder[n - 1] == '/' ? "" : "/", name);
	}
	return path;
}

bool casefile_open(casefile *file, const char *folder, note *why) {
	*file = (casefile){.folder = folder};
	char *path = path_join(folder, "case.json");
	if (!path) {
		return note_set(why, "no memory");
	}
	json_error_t error;
	file->root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
	free(path);
	if (!file->root) {
		return note_set(why, "case.json, line %d: %s", error.line, error.text);
	}
	if (!json_is_object(file->root)) {
		casefile_close(file);
		return note_set(why, "case.json is not an object");
	}
	if (!field_text(file->root, "kind", &file->kind, why)) {
		casefile_close(file);
		return false;
	}
	return true;
}

void casefile_close(casefile *file) {
	json_decref(file->root);
	file->root = NULL;
}

bool casefile_array(const casefile *file, const char *name, npy *array, note *why) {
	if (*name == '\0' || *name == '.' || strchr(name, '/')) {
		return note_set(why, "'%.100s' is not a plain file name", name);
	}
	char *path = path_join(file->folder, name);
	bool ok = path ? npy_read(path, array, why) : note_set(why, "no memory");
	free(path);
	return ok;
}

static bool field_missing(const char *key, const char *what, note *why) {
	return note_set(why, "case.json: '%s' is missing or not %s", key, what);
}

bool field_text(const json_t *object, const char *key, const char **text, note *why) {
	*text = json_string_value(json_object_get(object, key));
	return *text || field_missing(key, "a text", why);
}

bool field_int(const json_t *object, const char *key, int32_t minimum, int32_t *number, note *why) {
	const json_t *value = json_object_get(object, key);
	json_int_t n = json_integer_value(value);
	if (!json_is_integer(value) || n < minimum || n > INT32_MAX) {
		return field_missing(key, "a whole number in range", why);
	}
	*number = (int32_t)n;
	return true;
}

bool field_number(const json_t *object, const char *key, double *number, note *why) {
	const json_t *value = json_object_get(object, key);
	*number = json_number_value(value);
	return (json_is_number(value) && isfinite(*number)) || field_missing(key, "a number", why);
}

bool field_object(const json_t *object, const char *key, json_t **value, note *why) {
	*value = json_object_get(object, key);
	return json_is_object(*value) || field_missing(key, "an object", why);
}

bool field_array(const json_t *object, const char *key, json_t **value, note *why) {
	*value = json_object_get(object, key);
	return json_is_array(*value) || field_missing(key, "an array", why);
}
