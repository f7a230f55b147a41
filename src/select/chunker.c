/* Where chunks end in a text. ChunkKV (arXiv 2502.00299) cuts every C tokens and leaves boundaries that follow the text to
 * later work; these do. */
#include "core/internal.h"

#include <string.h>

static const ckv_method_info chunkers[] = {
    {"fixed", "every C tokens", "ChunkKV, arXiv 2502.00299", "chunk"},
    {"line", "after each line", "", "max_chunk"},
    {"sentence", "after each sentence", "", "max_chunk"},
    {"paragraph", "after each blank line", "", "max_chunk"},
};

const ckv_method_info *ckv_chunker_info(size_t i) { return i < sizeof chunkers / sizeof *chunkers ? &chunkers[i] : NULL; }

typedef struct text {
	const char *data;
	size_t size;
} text;

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/* Whether a chunk begins at byte `at`, 0 < at < size. */
typedef bool (*boundary)(const text *t, size_t at);

static bool after_line(const text *t, size_t at) { return t->data[at - 1] == '\n'; }

/* The end of a blank line, and of all that follow it: this line has text, indented or not. */
static bool after_paragraph(const text *t, size_t at) {
	if (t->data[at - 1] != '\n') {
		return false;
	}
	size_t end = at;
	while (end < t->size && is_space(t->data[end]) && t->data[end] != '\n') {
		end++;
	}
	if (end == t->size || t->data[end] == '\n') {
		return false;
	}
	for (size_t i = at - 1; i-- > 0 && is_space(t->data[i]);) {
		if (t->data[i] == '\n') {
			return true;
		}
	}
	return false;
}

static bool ends_with(const text *t, size_t end, const char *what) {
	size_t n = strlen(what);
	return end >= n && memcmp(t->data + end - n, what, n) == 0;
}

/* Quotation marks and brackets that may stand between a full stop and the space. */
static size_t skip_closers(const text *t, size_t end) {
	static const char *const closers[] = {"\"", "'", ")", "]", "\xe2\x80\x9d", "\xe2\x80\x99", "\xc2\xbb"};
	for (size_t i = 0; i < sizeof closers / sizeof *closers; i++) {
		if (ends_with(t, end, closers[i])) {
			end -= strlen(closers[i]);
			i = SIZE_MAX; /* from the start again */
		}
	}
	return end;
}

static bool ends_sentence(const text *t, size_t end) {
	static const char *const stops[] = {".", "!", "?", "\xe2\x80\xa6"};
	end = skip_closers(t, end);
	for (size_t i = 0; i < sizeof stops / sizeof *stops; i++) {
		if (ends_with(t, end, stops[i])) {
			return true;
		}
	}
	return false;
}

/* Stops that need no space after them. */
static bool ends_wide_sentence(const text *t, size_t end) {
	static const char *const stops[] = {"\xe3\x80\x82", "\xef\xbc\x81", "\xef\xbc\x9f"};
	for (size_t i = 0; i < sizeof stops / sizeof *stops; i++) {
		if (ends_with(t, end, stops[i])) {
			return true;
		}
	}
	return false;
}

/* The space belongs to what follows, as most tokens begin with theirs; a small letter after it means an abbreviation. A
 * blank line ends a sentence too, headings have no full stop; it stays with what it follows. */
static bool after_sentence(const text *t, size_t at) {
	if (after_paragraph(t, at) || ends_wide_sentence(t, at)) {
		return true;
	}
	if (!is_space(t->data[at]) || is_space(t->data[at - 1]) || !ends_sentence(t, at)) {
		return false;
	}
	int newlines = 0;
	for (; at < t->size && is_space(t->data[at]); at++) {
		newlines += t->data[at] == '\n';
	}
	return newlines < 2 && at < t->size && !(t->data[at] >= 'a' && t->data[at] <= 'z');
}

static boundary rule_of(const char *chunker) {
	return strcmp(chunker, "line") == 0        ? after_line
	       : strcmp(chunker, "sentence") == 0  ? after_sentence
	       : strcmp(chunker, "paragraph") == 0 ? after_paragraph
	                                           : NULL;
}

/* Whether a chunk begins between the first bytes of two tokens: at (from, to]. */
static bool begins_in(const text *t, boundary rule, size_t from, size_t to) {
	for (size_t at = from + 1; at <= to && at < t->size; at++) {
		if (rule(t, at)) {
			return true;
		}
	}
	return false;
}

static bool never_fall(const size_t *ends, int32_t n) {
	for (int32_t i = 1; i < n; i++) {
		if (ends[i] < ends[i - 1]) {
			return false;
		}
	}
	return true;
}

/* Appends tokens first .. end-1 as one chunk, or as parts of nearly equal length. */
static int32_t add_parts(int32_t first, int32_t end, int32_t most, int32_t *starts, int32_t n) {
	int32_t length = end - first, parts = length / most + (length % most != 0);
	for (int32_t i = 0; i < parts; i++) {
		starts[n++] = first + (int32_t)((int64_t)length * i / parts);
	}
	return n;
}

ckv_status ckv_chunk_text(const ckv_params *params, const char *data, const size_t *ends, int32_t n_tokens, int32_t *starts,
                          int32_t *n_chunks) {
	if (!params || !params->chunker || !starts || !n_chunks || n_tokens < 1 || params->max_chunk < 1 || params->chunk < 1) {
		return CKV_ERR_ARG;
	}
	if (!ckv_chunker_find(params->chunker)) {
		return CKV_ERR_POLICY;
	}
	boundary rule = rule_of(params->chunker);
	if (rule && (!data || !ends || !never_fall(ends, n_tokens))) {
		return CKV_ERR_ARG;
	}
	int32_t first = 0, n = 0, most = rule ? params->max_chunk : params->chunk;
	text t = {data, rule ? ends[n_tokens - 1] : 0};
	for (int32_t i = 1; i < n_tokens; i++) {
		size_t before = i > 1 && rule ? ends[i - 2] : 0; /* first byte of token i-1 */
		if (rule ? begins_in(&t, rule, before, ends[i - 1]) : i - first == most) {
			n = add_parts(first, i, most, starts, n);
			first = i;
		}
	}
	*n_chunks = add_parts(first, n_tokens, most, starts, n);
	return CKV_OK;
}
