/* The text of an answer as it grows. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

static bool append(answer *a, const char *piece, size_t n) {
	if (a->size + n + 1 > a->capacity) {
		size_t capacity = 2 * a->capacity + n + 256;
		char *bigger = realloc(a->text, capacity);
		if (!bigger) {
			return false;
		}
		a->text = bigger;
		a->capacity = capacity;
	}
	memcpy(a->text + a->size, piece, n);
	a->size += n;
	a->text[a->size] = '\0';
	return true;
}

static bool emit(answer *a, const char *piece, size_t n, FILE *out) {
	if (out) {
		fwrite(piece, 1, n, out);
		fflush(out);
	}
	return append(a, piece, n);
}

/* Takes whole characters off the front of pending; bytes that are none become U+FFFD. At the end nothing may wait. */
static bool drain(answer *a, bool end, FILE *out) {
	while (a->n_pending > 0) {
		int n = utf8_character(a->pending, a->n_pending);
		if (n < 0 && !end) {
			return true;
		}
		size_t used = n > 0 ? (size_t)n : 1;
		if (!(n > 0 ? emit(a, a->pending, used, out) : emit(a, "\xef\xbf\xbd", 3, out))) {
			return false;
		}
		a->n_pending -= used;
		memmove(a->pending, a->pending + used, a->n_pending);
	}
	return true;
}

bool answer_add(answer *a, const struct llama_vocab *vocab, llama_token token, FILE *out) {
	char piece[4096];
	if (llama_vocab_is_eog(vocab, token)) {
		a->stopped = true;
		return true;
	}
	a->n_generated++;
	int32_t n = llama_token_to_piece(vocab, token, piece, sizeof piece, 0, false);
	for (int32_t i = 0; i < n; i++) {
		a->pending[a->n_pending++] = piece[i];
		if (!drain(a, false, out)) {
			return false;
		}
	}
	return n >= 0;
}

bool answer_end(answer *a, FILE *out) { return drain(a, true, out); }

double answer_rate(const answer *a) { return a->decode_s > 0 ? a->n_decoded / a->decode_s : 0.0; }

void answer_free(answer *a) {
	free(a->text);
	memset(a, 0, sizeof *a);
}
