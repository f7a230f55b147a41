/* A page's file. */
#include "html.h"

#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The file's name until it is complete; freed by the caller. */
static char *name_beside(const char *path) {
	size_t size = strlen(path) + sizeof ".part";
	char *beside = malloc(size);
	if (beside) {
		snprintf(beside, size, "%s.part", path);
	} else {
		fail("no memory for the page");
	}
	return beside;
}

bool html_can_write(const char *path) {
	char *beside = name_beside(path);
	FILE *file = beside ? fopen(beside, "w") : NULL;
	if (file) {
		fclose(file);
		remove(beside);
	} else if (beside) {
		fail("the page can't be written to %s: %s", path, strerror(errno));
	}
	free(beside);
	return file;
}

static bool write_to(const char *beside, bool (*put)(FILE *out, const void *user), const void *user) {
	FILE *out = fopen(beside, "w");
	if (!out) {
		fail("%s: %s", beside, strerror(errno));
		return false;
	}
	bool good = put(out, user), written = !ferror(out);
	if (fclose(out) != 0 || !written) {
		fail("%s: %s", beside, strerror(errno));
		good = false;
	}
	return good;
}

bool html_write(const char *path, bool (*put)(FILE *out, const void *user), const void *user) {
	char *beside = name_beside(path);
	bool good = beside && write_to(beside, put, user);
	if (good && rename(beside, path) != 0) {
		fail("%s: %s", path, strerror(errno));
		good = false;
	}
	if (beside && !good) {
		remove(beside);
	}
	free(beside);
	return good;
}
