#include "jsonl.h"

#include <stdarg.h>
#include <string.h>

bool jsonl_fail(const jsonl *f, const char *format, ...) {
	char what[256];
	va_list args;
	va_start(args, format);
	vsnprintf(what, sizeof what, format, args);
	va_end(args);
	text_sanitise(what); /* a cut may have gone through a character */
	fail("%s, line %d: %s", f->path, f->line, what);
	return false;
}

static void skip_space(jsonl *f) {
	while (f->at < f->text.size && strchr(" \t\r\n", f->text.data[f->at])) {
		f->next += f->text.data[f->at] == '\n';
		f->at++;
	}
	f->line = f->next;
}

bool jsonl_open(jsonl *f, const char *path) {
	*f = (jsonl){.path = path, .line = 1, .next = 1};
	if (!text_read(path, &f->text)) {
		return false;
	}
	if (f->text.size >= 3 && memcmp(f->text.data, "\xef\xbb\xbf", 3) == 0) {
		f->at = 3; /* a byte order mark */
	}
	skip_space(f);
	if (f->at == f->text.size) {
		fail("'%s' is empty", path);
		jsonl_close(f);
		return false;
	}
	f->array = f->text.data[f->at] == '[';
	return true;
}

void jsonl_close(jsonl *f) { text_free(&f->text); }

/* What comes between the objects of an array. 1: an object follows. */
static int step_in_array(jsonl *f) {
	char c = f->at < f->text.size ? f->text.data[f->at] : '\0';
	char expected = f->begun ? ',' : '[';
	bool first = !f->begun;
	if (c == ']' && f->begun) {
		f->at++;
		f->ended = true;
		skip_space(f);
		return f->at == f->text.size ? 0 : (jsonl_fail(f, "something follows the array's end"), -1);
	}
	if (c != expected) {
		jsonl_fail(f, "',' or ']' was expected between the objects of an array");
		return -1;
	}
	f->at++;
	f->begun = true;
	skip_space(f);
	if (first && f->at < f->text.size && f->text.data[f->at] == ']') {
		return step_in_array(f);
	}
	return 1;
}

/* Parses what `at` points to: to the end of the line, or, in an array, to the end of the value. */
static json_t *parse(jsonl *f) {
	const char *from = f->text.data + f->at, *end = f->array ? NULL : strchr(from, '\n');
	size_t left = f->text.size - f->at, size = end ? (size_t)(end - from) : left;
	json_error_t error;
	json_t *item = json_loadb(from, size, f->array ? JSON_DISABLE_EOF_CHECK : 0, &error);
	if (!item) {
		f->line += error.line > 1 ? error.line - 1 : 0;
		jsonl_fail(f, "not JSON: %s", error.text);
		return NULL;
	}
	if (f->array) {
		size = error.position > 0 ? (size_t)error.position : 0;
	}
	for (size_t i = 0; i < size; i++) {
		f->next += from[i] == '\n';
	}
	f->at += size;
	return item;
}

int jsonl_next(jsonl *f, json_t **item) {
	*item = NULL;
	if (f->ended) {
		return 0;
	}
	skip_space(f);
	if (f->array) {
		int step = step_in_array(f);
		if (step <= 0) {
			return step;
		}
	} else if (f->at == f->text.size) {
		return 0;
	}
	*item = parse(f);
	if (*item && !json_is_object(*item)) {
		jsonl_fail(f, "not a JSON object");
		json_decref(*item);
		*item = NULL;
	}
	return *item ? 1 : -1;
}

const char *jsonl_string(const jsonl *f, const json_t *item, const char *key) {
	const json_t *value = json_object_get(item, key);
	if (!json_is_string(value)) {
		jsonl_fail(f, value ? "\"%s\" is not a string" : "there is no \"%s\"", key);
		return NULL;
	}
	return json_string_value(value);
}
