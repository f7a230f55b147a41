#include "cut.h"

/* Bytes looked at for white space. Texts without any, such as Chinese, are cut between characters. */
enum { NEAR = 64 };

static bool inside(char c) { return ((unsigned char)c & 0xc0) == 0x80; }
static bool white(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

size_t cut_back(const char *text, size_t at) {
	while (at > 0 && inside(text[at])) {
		at--;
	}
	return at;
}

size_t cut_forward(const char *text, size_t size, size_t at) {
	while (at < size && inside(text[at])) {
		at++;
	}
	return at;
}

size_t cut_back_word(const char *text, size_t at) {
	size_t to = at;
	while (to > 0 && at - to < NEAR && !white(text[to])) {
		to--;
	}
	return to > 0 && white(text[to]) ? to : cut_back(text, at);
}

size_t cut_forward_word(const char *text, size_t size, size_t at) {
	size_t to = at;
	while (to < size && to - at < NEAR && !white(text[to])) {
		to++;
	}
	return to < size && white(text[to]) ? to : cut_forward(text, size, at);
}

bool cut_fit(cut_count count, void *user, size_t most, int32_t n_tokens, size_t *kept, int32_t *counted) {
	/* `low` fits, `high` does not. It is first doubled, so that no long text is counted whole. */
	size_t low = 0, high = (size_t)(n_tokens > 0 ? n_tokens : 1) * 4;
	*counted = count(0, user);
	bool bounded = false;
	while (*counted >= 0 && *counted <= n_tokens && (low < most && (!bounded || high - low > 1))) {
		size_t middle = bounded ? low + (high - low) / 2 : high < most ? high : most;
		int32_t n = count(middle, user);
		if (n > n_tokens) {
			high = middle;
			bounded = true;
		} else {
			low = middle;
			high = bounded ? high : 2 * middle;
			*counted = n;
		}
	}
	*kept = low;
	return *counted >= 0;
}
