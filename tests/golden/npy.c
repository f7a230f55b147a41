#include "npy.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the vectors are little-endian and are used as they lie in the file"
#endif

enum { PREFIX = 8, MAX_HEADER = 65536, MAX_FILE = 1 << 30 };

static const struct {
	const char *name;
	size_t size;
} types[] = {[NPY_F4] = {"<f4", 4}, [NPY_F2] = {"<f2", 2}, [NPY_I4] = {"<i4", 4}};

enum { N_TYPES = sizeof types / sizeof *types };

const char *npy_type_name(npy_type type) { return types[type].name; }

size_t npy_item_size(npy_type type) { return types[type].size; }

void npy_free(npy *array) {
	free(array->data);
	memset(array, 0, sizeof *array);
}

/* ------------------------------------------------------------- the header, a Python dict of three entries */

static void skip_spaces(const char **at) { *at += strspn(*at, " "); }

/* Whether `text` comes next; if so, moves behind it. */
static bool accept(const char **at, const char *text) {
	skip_spaces(at);
	size_t n = strlen(text);
	if (strncmp(*at, text, n) != 0) {
		return false;
	}
	*at += n;
	return true;
}

static bool read_type(const char **at, npy *array) {
	for (int i = 0; i < N_TYPES; i++) {
		char quoted[8];
		snprintf(quoted, sizeof quoted, "'%s'", types[i].name);
		if (accept(at, quoted)) {
			array->type = (npy_type)i;
			return true;
		}
	}
	return false;
}

static bool read_size(const char **at, size_t *size) {
	skip_spaces(at);
	if (**at < '0' || **at > '9') {
		return false;
	}
	*size = 0;
	for (; **at >= '0' && **at <= '9'; ++*at) {
		size_t digit = (size_t)(**at - '0');
		if (*size > (SIZE_MAX - digit) / 10) {
			return false;
		}
		*size = *size * 10 + digit;
	}
	return true;
}

/* (), (3,), (3, 4): a comma after each but perhaps the last, which needs one when it is the only one. */
static bool read_shape(const char **at, npy *array) {
	array->rank = 0;
	if (!accept(at, "(")) {
		return false;
	}
	bool comma = true;
	while (!accept(at, ")")) {
		if (!comma || array->rank == NPY_MAX_RANK || !read_size(at, &array->shape[array->rank])) {
			return false;
		}
		array->rank++;
		comma = accept(at, ",");
	}
	return array->rank != 1 || comma;
}

static bool read_entry(const char **at, npy *array, unsigned *seen, note *why) {
	unsigned entry = 0;
	if (accept(at, "'descr':")) {
		entry = 1;
		if (!read_type(at, array)) {
			return note_set(why, "the type is none of '<f4', '<f2', '<i4': %.16s", *at);
		}
	} else if (accept(at, "'fortran_order':")) {
		entry = 2;
		if (!accept(at, "False")) {
			return note_set(why, "the array is not in C order");
		}
	} else if (accept(at, "'shape':")) {
		entry = 4;
		if (!read_shape(at, array)) {
			return note_set(why, "the shape is damaged, or has more than %d dimensions", NPY_MAX_RANK);
		}
	}
	if (entry == 0 || (*seen & entry)) {
		return note_set(why, "the header has an unknown or repeated entry: %.24s", *at);
	}
	*seen |= entry;
	return true;
}

static bool read_dict(const char *at, npy *array, note *why) {
	unsigned seen = 0;
	if (!accept(&at, "{")) {
		return note_set(why, "the header is not a dictionary");
	}
	while (!accept(&at, "}")) {
		if (!read_entry(&at, array, &seen, why)) {
			return false;
		}
		if (!accept(&at, ",") && *at != '}') {
			return note_set(why, "the header is damaged: %.24s", at);
		}
	}
	skip_spaces(&at);
	if (seen != 7 || strcmp(at, "\n") != 0) {
		return note_set(why, "the header lacks an entry, or does not end in a new line");
	}
	return true;
}

/* ---------------------------------------------------------------------------------------------- the file */

/* Elements and bytes that the shape asks for; false when they do not fit. */
static bool measure(npy *array, size_t *bytes) {
	array->count = 1;
	for (int i = 0; i < array->rank; i++) {
		if (array->shape[i] && array->count > SIZE_MAX / array->shape[i]) {
			return false;
		}
		array->count *= array->shape[i];
	}
	if (array->count > SIZE_MAX / npy_item_size(array->type)) {
		return false;
	}
	*bytes = array->count * npy_item_size(array->type);
	return true;
}

/* Where the header's text starts and how long it is. */
static bool find_header(const unsigned char *file, size_t size, size_t *start, size_t *length, note *why) {
	if (size < PREFIX + 4 || memcmp(file, "\x93NUMPY", 6) != 0) {
		return note_set(why, "this is not a .npy file");
	}
	if ((file[6] != 1 && file[6] != 2) || file[7] != 0) {
		return note_set(why, "format %d.%d is not known (1.0 and 2.0 are)", file[6], file[7]);
	}
	*length = (size_t)file[8] | (size_t)file[9] << 8;
	*start = PREFIX + 2;
	if (file[6] == 2) {
		*length |= (size_t)file[10] << 16 | (size_t)file[11] << 24;
		*start = PREFIX + 4;
	}
	if (*length > MAX_HEADER || *length > size - *start) {
		return note_set(why, "the header is longer than the file, or than %d bytes", MAX_HEADER);
	}
	return true;
}

static bool decode_header(const unsigned char *text, size_t length, npy *array, note *why) {
	char *copy = malloc(length + 1);
	if (!copy) {
		return note_set(why, "no memory for the header");
	}
	memcpy(copy, text, length);
	copy[length] = '\0';
	bool ok = strlen(copy) == length ? read_dict(copy, array, why) : note_set(why, "the header holds a zero byte");
	free(copy);
	return ok;
}

static bool decode(const unsigned char *file, size_t size, npy *array, note *why) {
	size_t start = 0, length = 0, bytes = 0;
	if (!find_header(file, size, &start, &length, why) || !decode_header(file + start, length, array, why)) {
		return false;
	}
	if (!measure(array, &bytes)) {
		return note_set(why, "the shape does not fit the address space");
	}
	size_t have = size - start - length;
	if (have != bytes) {
		return note_set(why, "the shape asks for %zu bytes of data, the file has %zu", bytes, have);
	}
	array->data = malloc(bytes ? bytes : 1);
	if (!array->data) {
		return note_set(why, "no memory for %zu bytes", bytes);
	}
	memcpy(array->data, file + start + length, bytes);
	return true;
}

static unsigned char *read_whole(FILE *stream, size_t *size, note *why) {
	long end = fseek(stream, 0, SEEK_END) == 0 ? ftell(stream) : -1;
	if (end < 0 || end > MAX_FILE || fseek(stream, 0, SEEK_SET) != 0) {
		note_set(why, "the file's size is unknown or above %d bytes", MAX_FILE);
		return NULL;
	}
	*size = (size_t)end;
	unsigned char *file = malloc(*size ? *size : 1);
	if (!file) {
		note_set(why, "no memory for %zu bytes", *size);
	} else if (fread(file, 1, *size, stream) != *size) {
		note_set(why, "the file could not be read to its end");
		free(file);
		file = NULL;
	}
	return file;
}

bool npy_read(const char *path, npy *array, note *why) {
	note found = {""};
	npy made = {.data = NULL};
	size_t size = 0;
	FILE *stream = fopen(path, "rb");
	if (!stream) {
		return note_set(why, "%s: %s", path, strerror(errno));
	}
	unsigned char *file = read_whole(stream, &size, &found);
	fclose(stream);
	bool ok = file && decode(file, size, &made, &found);
	free(file);
	if (!ok) {
		return note_set(why, "%.300s: %.200s", path, found.text);
	}
	*array = made;
	return true;
}
