/* Reading text, and what is UTF-8 (RFC 3629). */
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int utf8_character(const char *data, size_t left) {
	const unsigned char *s = (const unsigned char *)data;
	unsigned char first = s[0];
	int n = first < 0x80                    ? 1
	        : first >= 0xc2 && first < 0xe0 ? 2
	        : first >= 0xe0 && first < 0xf0 ? 3
	        : first >= 0xf0 && first < 0xf5 ? 4
	                                        : 0;
	for (int i = 1; i < n; i++) {
		if ((size_t)i >= left) {
			return -1;
		}
		/* No overlong forms, no surrogates, nothing above U+10FFFF: all seen in the second byte. */
		unsigned char low = 0x80, high = 0xbf;
		if (i == 1) {
			low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
			high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
		}
		if (s[i] < low || s[i] > high) {
			return 0;
		}
	}
	return n;
}

bool text_check(const char *what, const char *data, size_t size) {
	size_t good = 0;
	for (int n = 1; good < size && n > 0; good += n > 0 ? (size_t)n : 0) {
		n = utf8_character(data + good, size - good);
	}
	if (good < size) {
		fail("%s is not UTF-8 text: byte %zu (0x%02x) is wrong; convert it first, e.g. with iconv", what, good,
		     (unsigned)(unsigned char)data[good]);
		return false;
	}
	if (memchr(data, '\0', size)) {
		fail("%s contains a zero byte: is it a text file?", what);
		return false;
	}
	return true;
}

static bool read_all(FILE *file, buffer *out) {
	size_t capacity = 0;
	for (;;) {
		if (out->size + 1 >= capacity) {
			capacity = capacity ? 2 * capacity : 65536;
			char *bigger = realloc(out->data, capacity);
			if (!bigger) {
				errno = ENOMEM;
				return false;
			}
			out->data = bigger;
		}
		size_t got = fread(out->data + out->size, 1, capacity - out->size - 1, file);
		out->size += got;
		if (got == 0) {
			out->data[out->size] = '\0';
			return !ferror(file);
		}
	}
}

bool text_read(const char *path, buffer *out) {
	bool standard = strcmp(path, "-") == 0;
	FILE *file = standard ? stdin : fopen(path, "rb");
	out->data = NULL;
	out->size = 0;
	if (!file) {
		fail("cannot open '%s': %s", path, strerror(errno));
		return false;
	}
	bool good = read_all(file, out);
	if (!good) {
		fail("cannot read '%s': %s", path, strerror(errno));
	}
	if (!standard) {
		fclose(file);
	}
	good = good && text_check(standard ? "standard input" : path, out->data, out->size);
	if (!good) {
		text_free(out);
	}
	return good;
}

void text_free(buffer *t) {
	free(t->data);
	t->data = NULL;
	t->size = 0;
}

void text_sanitise(char *string) {
	while (*string) {
		int n = utf8_character(string, strlen(string));
		if (n <= 0) {
			*string = '?';
		}
		string += n > 0 ? n : 1;
	}
}

const char *text_file_name(const char *path) {
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}
