/* GSM8K (arXiv 2110.14168): the last number of a reply beside the answer's, which stands behind "####" where there is that.
 * Numbers are compared digit by digit, so that no rounding makes two equal. */
#include "metrics.h"

#include <string.h>

/* Parts of a text. */
typedef struct number {
	bool negative;
	const char *whole, *fraction;
	size_t n_whole, n_fraction; /* of whole with commas, without zeros before it; of fraction without those behind it */
} number;

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool is_letter_or_digit(char c) {
	return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (unsigned char)c >= 0x80;
}

static size_t count_digits(const char *s) { return strspn(s, "0123456789"); }

/* A minus before the number or its dollar sign, that is none between two numbers or words. */
static bool has_minus(const char *text, const char *s) {
	if (s > text && s[-1] == '$') {
		s--;
	}
	return s > text && s[-1] == '-' && (s - 1 == text || (!is_letter_or_digit(s[-2]) && s[-2] != ')'));
}

static bool begins_number(const char *text, const char *s) {
	bool point = *s == '.' && is_digit(s[1]) && (s == text || !is_letter_or_digit(s[-1]));
	return is_digit(*s) || point;
}

/* Of digits, in groups of three behind commas. */
static size_t whole_size(const char *s) {
	size_t n = count_digits(s);
	if (n >= 1 && n <= 3) {
		while (s[n] == ',' && count_digits(s + n + 1) == 3) {
			n += 4;
		}
	}
	return n;
}

/* The number that begins at s. Returns its end. */
static const char *scan(const char *text, const char *s, number *out) {
	size_t n = whole_size(s);
	const char *end = s + n;
	*out = (number){has_minus(text, s), s, end, n, 0};
	if (*end == '.' && is_digit(end[1])) {
		out->fraction = end + 1;
		out->n_fraction = count_digits(end + 1);
		end = out->fraction + out->n_fraction;
	}
	while (out->n_whole > 0 && (*out->whole == '0' || *out->whole == ',')) {
		out->whole++;
		out->n_whole--;
	}
	while (out->n_fraction > 0 && out->fraction[out->n_fraction - 1] == '0') {
		out->n_fraction--;
	}
	out->negative = out->negative && out->n_whole + out->n_fraction > 0;
	return end;
}

static bool last_number(const char *text, number *out) {
	bool found = false;
	for (const char *s = text; *s;) {
		bool here = begins_number(text, s);
		s = here ? scan(text, s, out) : s + 1;
		found = found || here;
	}
	return found;
}

/* Of two runs of digits that may have commas. */
static bool same_whole(const number *a, const number *b) {
	size_t i = 0, k = 0;
	for (; i < a->n_whole && k < b->n_whole; i++, k++) {
		i += a->whole[i] == ',';
		k += b->whole[k] == ',';
		if (a->whole[i] != b->whole[k]) {
			return false;
		}
	}
	return i == a->n_whole && k == b->n_whole;
}

static bool same_number(const number *a, const number *b) {
	return a->negative == b->negative && same_whole(a, b) && a->n_fraction == b->n_fraction &&
	       memcmp(a->fraction, b->fraction, a->n_fraction) == 0;
}

static double equal_numbers(const char *reply, const char *answer) {
	const char *expected = answer;
	for (const char *mark = answer; (mark = strstr(mark, "####")) != NULL;) {
		mark += 4;
		expected = mark;
	}
	number a, b;
	return last_number(reply, &a) && last_number(expected, &b) && same_number(&a, &b);
}

double judge_number(const example *e, const char *reply) { return judge_best(e, reply, equal_numbers); }
