#include "ruler_draft.h"

#include "cli.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static bool draft_reserve(draft *d, size_t more) {
	if (d->failed || more >= SIZE_MAX / 4 - d->size) {
		d->failed = true;
		return false;
	}
	if (d->size + more + 1 <= d->capacity) {
		return true;
	}
	size_t capacity = 2 * (d->size + more + 1);
	char *bigger = realloc(d->data, capacity);
	if (!bigger) {
		d->failed = true;
		return false;
	}
	d->data = bigger;
	d->capacity = capacity;
	return true;
}

void draft_add_n(draft *d, const char *text, size_t n) {
	if (draft_reserve(d, n)) {
		memcpy(d->data + d->size, text, n);
		d->size += n;
		d->data[d->size] = '\0';
	}
}

void draft_add(draft *d, const char *text) { draft_add_n(d, text, strlen(text)); }

void draft_addf(draft *d, const char *format, ...) {
	va_list list, again;
	va_start(list, format);
	va_copy(again, list);
	int n = vsnprintf(NULL, 0, format, list);
	va_end(list);
	if (n < 0) {
		d->failed = true;
	} else if (draft_reserve(d, (size_t)n)) {
		vsnprintf(d->data + d->size, (size_t)n + 1, format, again);
		d->size += (size_t)n;
	}
	va_end(again);
}

void draft_clear(draft *d) {
	d->size = 0;
	if (d->data) {
		d->data[0] = '\0';
	}
}

const char *draft_text(const draft *d) { return d->data ? d->data : ""; }

bool draft_good(const draft *d) {
	if (d->failed) {
		fail("no memory for the examples");
	}
	return !d->failed;
}

void draft_free(draft *d) {
	free(d->data);
	*d = (draft){NULL, 0, 0, false};
}
