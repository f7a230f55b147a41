#include "haystack.h"

#include <stdlib.h>
#include <string.h>

/* Texts that have no sentences are cut all the same: at a line's end, then between words. */
enum { LONG = 400, TOO_LONG = 1200 };

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
static bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
static bool is_lower(char c) { return c >= 'a' && c <= 'z'; }

static size_t skip_space(const buffer *t, size_t at) {
	while (at < t->size && is_space(t->data[at])) {
		at++;
	}
	return at;
}

/* Bytes of the first of the strings that is at `at`; 0. */
static size_t one_of(const buffer *t, size_t at, const char *const *strings, size_t n) {
	for (size_t i = 0; i < n; i++) {
		size_t size = strlen(strings[i]);
		if (size <= t->size - at && memcmp(t->data + at, strings[i], size) == 0) {
			return size;
		}
	}
	return 0;
}

static size_t closer_at(const buffer *t, size_t at) {
	static const char *const closers[] = {"\"", "'", ")", "]", "”", "’", "»", "」", "』"};
	return one_of(t, at, closers, sizeof closers / sizeof *closers);
}

/* Marks that end a sentence even if no space follows. */
static size_t wide_stop_at(const buffer *t, size_t at) {
	static const char *const stops[] = {"。", "！", "？"};
	return one_of(t, at, stops, sizeof stops / sizeof *stops);
}

/* "Mr. Smith", "J. Smith" and "e.g. this" go on. */
static bool abbreviates(const buffer *t, size_t start, size_t dot) {
	static const char *const titles[] = {"Mr", "Mrs", "Ms", "Dr", "St", "Prof", "vs", "cf", "No"};
	size_t from = dot;
	while (from > start && (is_upper(t->data[from - 1]) || is_lower(t->data[from - 1]))) {
		from--;
	}
	size_t n = dot - from;
	for (size_t i = 0; i < sizeof titles / sizeof *titles; i++) {
		if (n == strlen(titles[i]) && memcmp(t->data + from, titles[i], n) == 0) {
			return true;
		}
	}
	return n == 1 && is_upper(t->data[from]);
}

/* The end of a sentence that is closed at `at`, of which start is the first byte; 0: none is. */
static size_t closed_end(const buffer *t, size_t start, size_t at) {
	size_t wide = wide_stop_at(t, at), end = at + (wide ? wide : 1);
	if (!wide && !strchr(".!?", t->data[at])) {
		return 0;
	}
	for (size_t n = 1; n > 0 && end < t->size;) {
		n = closer_at(t, end);
		end += n;
	}
	if (wide || end == t->size) {
		return end;
	}
	if (!is_space(t->data[end]) || (t->data[at] == '.' && abbreviates(t, start, at))) {
		return 0;
	}
	size_t next = skip_space(t, end);
	return next < t->size && is_lower(t->data[next]) ? 0 : end;
}

/* Whether a sentence that nothing closes ends before the white space at `at`. */
static bool breaks_at(const buffer *t, size_t start, size_t at) {
	size_t next = skip_space(t, at), lines = 0;
	for (size_t i = at; i < next; i++) {
		lines += t->data[i] == '\n';
	}
	size_t length = at - start;
	return next == t->size || lines > 1 || (lines == 1 && length > LONG) || length > TOO_LONG;
}

static bool add_sentence(haystack *h, size_t start, size_t end, bool closed) {
	if (h->n == h->capacity) {
		int32_t capacity = h->capacity ? 2 * h->capacity : 256;
		sentence *bigger = h->n < INT32_MAX / 2 ? realloc(h->sentences, (size_t)capacity * sizeof *bigger) : NULL;
		if (!bigger) {
			fail("no memory for the haystack");
			return false;
		}
		h->sentences = bigger;
		h->capacity = capacity;
	}
	h->sentences[h->n++] = (sentence){start, end, closed};
	return true;
}

static bool split(haystack *h) {
	const buffer *t = &h->text;
	size_t start = skip_space(t, 0);
	for (size_t at = start; at < t->size;) {
		size_t end = closed_end(t, start, at);
		bool closed = end > 0;
		if (!closed && is_space(t->data[at]) && breaks_at(t, start, at)) {
			end = at;
		} else if (!closed && at + 1 == t->size) {
			end = t->size;
		}
		if (end == 0) {
			at++;
			continue;
		}
		if (!add_sentence(h, start, end, closed)) {
			return false;
		}
		start = at = skip_space(t, end);
	}
	return true;
}

/* Takes h->text, and leaves nothing on failure. */
static bool finish(haystack *h, const char *what) {
	h->between = "\n\n";
	bool good = split(h);
	if (good && h->n == 0) {
		fail("%s has no text to hide anything in", what);
		good = false;
	}
	if (!good) {
		haystack_free(h);
	}
	return good;
}

bool haystack_make(haystack *h, const char *what, const char *text, size_t size) {
	*h = (haystack){0};
	h->text.data = malloc(size + 1);
	if (!h->text.data) {
		fail("no memory for the haystack");
		return false;
	}
	memcpy(h->text.data, text, size);
	h->text.data[size] = '\0';
	h->text.size = size;
	return finish(h, what);
}

bool haystack_read(haystack *h, const char *path) {
	if (!path) {
		return haystack_make(h, "the bundled text", (const char *)haystack_bundled, haystack_bundled_size);
	}
	*h = (haystack){0};
	return text_read(path, &h->text) && finish(h, path);
}

void haystack_free(haystack *h) {
	text_free(&h->text);
	free(h->sentences);
	*h = (haystack){0};
}

void haystack_write(const haystack *h, int32_t first, int32_t last, draft *out) {
	while (first < last) {
		int32_t from = first % h->n, left = last - first, n = left < h->n - from ? left : h->n - from;
		/* In the text the white space is there already. */
		size_t start = from > 0 ? h->sentences[from - 1].end : h->sentences[0].start;
		if (from == 0 && first > 0) {
			draft_add(out, h->between);
		}
		draft_add_n(out, h->text.data + start, h->sentences[from + n - 1].end - start);
		first += n;
	}
}

size_t haystack_size(const haystack *h, int32_t n) {
	size_t start = h->sentences[0].start, whole = h->sentences[h->n - 1].end - start, rounds = (size_t)(n / h->n);
	size_t rest = n % h->n > 0 ? h->sentences[n % h->n - 1].end - start : 0;
	size_t breaks = rounds > 0 ? rounds - (rest == 0) : 0;
	return rounds * whole + rest + breaks * strlen(h->between);
}

/* Behind a heading there is none. */
static bool is_place(const haystack *h, int32_t at) { return at == 0 || h->sentences[(at - 1) % h->n].closed; }

int32_t haystack_place_before(const haystack *h, int32_t at) {
	while (!is_place(h, at)) {
		at--;
	}
	return at;
}

int32_t haystack_place(const haystack *h, int32_t n, double depth) {
	double wanted = depth / 100.0 * (double)haystack_size(h, n), least = 0.0;
	int32_t best = -1;
	for (int32_t at = 0; at <= n; at++) {
		double off = (double)haystack_size(h, at) - wanted;
		off = off < 0.0 ? -off : off;
		/* At depth 100 it comes last, whatever the text ends with. */
		if ((is_place(h, at) || at == n) && (best < 0 || off < least)) {
			best = at;
			least = off;
		}
	}
	return best;
}

static char lower(char c) { return is_upper(c) ? (char)(c - 'A' + 'a') : c; }

bool haystack_has(const haystack *h, const char *text) {
	size_t n = strlen(text);
	for (size_t at = 0; at + n <= h->text.size; at++) {
		size_t same = 0;
		while (same < n && lower(h->text.data[at + same]) == lower(text[same])) {
			same++;
		}
		if (same == n) {
			return true;
		}
	}
	return false;
}
