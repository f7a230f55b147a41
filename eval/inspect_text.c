#include "inspect_text.h"

#include "cli.h"
#include "html.h"

#include <string.h>

static const struct {
	double from;
	const char *name;
} steps[N_STEPS] = {{0.0, "none"},       {1e-9, "under 10 %"}, {0.1, "10 to 25 %"}, {0.25, "25 to 50 %"},
                    {0.5, "50 to 75 %"}, {0.75, "over 75 %"},  {0.9999, "all"}};

int text_step(double share) {
	int step = N_STEPS - 1;
	while (step > 0 && !(share >= steps[step].from)) {
		step--;
	}
	return step;
}

const char *text_step_name(int step) { return steps[step].name; }

/* ------------------------------------------------------------------------------------------------------------ characters */

/* Whether the bytes end inside a character that the next token may complete. */
static bool cut_off(const char *bytes, size_t size) {
	for (size_t at = 0; at < size;) {
		int n = utf8_character(bytes + at, size - at);
		if (n < 0) {
			return true;
		}
		at += n > 0 ? (size_t)n : 1;
	}
	return false;
}

static void put_text(FILE *out, const char *bytes, size_t size) {
	for (size_t at = 0; at < size;) {
		char one[8] = {0};
		int n = utf8_character(bytes + at, size - at);
		size_t length = n > 0 ? (size_t)n : 1;
		memcpy(one, bytes + at, length);
		if (one[0] != '\r') { /* of a line's end */
			html_text(out, one[0] ? one : "\x01");
		}
		at += length;
	}
}

/* ----------------------------------------------------------------------------------------------------------------- spans */

/* What is open in the page. */
typedef struct look {
	int step;
	bool guarded; /* by the policy, as a sink or part of the window */
} look;

static void change(look *now, look next, FILE *out) {
	if (now->step == next.step && now->guarded == next.guarded) {
		return;
	}
	fputs(now->step ? "</b>" : "", out);
	if (now->guarded != next.guarded) {
		fputs(next.guarded ? "<u>" : "</u>", out);
	}
	if (next.step) {
		fprintf(out, "<b class=\"h%d\">", next.step);
	}
	*now = next;
}

/* Tokens from `first` on that make up whole characters; at least one. */
static int32_t whole_characters(const shown_text *t, int32_t first, size_t start) {
	int32_t n = 1;
	while (first + n < t->n_tokens && cut_off(t->bytes + start, t->ends[first + n - 1] - start)) {
		n++;
	}
	return n;
}

void text_show(const shown_text *t, FILE *out) {
	look now = {0, false};
	size_t start = 0;
	for (int32_t i = 0, n; i < t->n_tokens; i += n) {
		double sum = 0.0;
		n = whole_characters(t, i, start);
		for (int32_t j = i; j < i + n; j++) {
			sum += (double)t->share[j];
		}
		size_t end = t->ends[i + n - 1];
		if (end > start) {
			bool guarded = i < t->sinks || i + n > t->n_tokens - t->window;
			change(&now, (look){text_step(sum / n), guarded}, out);
			put_text(out, t->bytes + start, end - start);
		}
		start = end;
	}
	change(&now, (look){0, false}, out);
}
