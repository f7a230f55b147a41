/* LongBench's (arXiv 2308.14508) retrieval_score, retrieval_zh_score and count_score: share of the runs of digits in the
 * reply that are the one expected, digit by digit. */
#include "metrics.h"
#include "metrics_char.h"
#include "metrics_text.h"

/* The next run of digits from *at on, which is put behind it. False at the end. */
static bool next_digits(const passage *p, size_t *at, word *out) {
	while (*at < p->n && !char_is_digit(p->chars[*at])) {
		(*at)++;
	}
	size_t first = *at;
	while (*at < p->n && char_is_digit(p->chars[*at])) {
		(*at)++;
	}
	*out = (word){p->chars + first, *at - first, 0};
	return out->n > 0;
}

static double share_equal(const passage *reply, const word *expected) {
	size_t n = 0, n_equal = 0;
	word digits;
	for (size_t at = 0; next_digits(reply, &at, &digits); n++) {
		n_equal += word_equal(&digits, expected);
	}
	return n > 0 ? (double)n_equal / (double)n : 0.0;
}

/* The digits behind the first prefix that has any. */
static bool find_behind(const passage *p, const word *prefix, word *out) {
	for (size_t i = 0; i + prefix->n < p->n; i++) {
		word here = {p->chars + i, prefix->n, 0};
		size_t at = i + prefix->n;
		if (word_equal(&here, prefix) && char_is_digit(p->chars[at])) {
			return next_digits(p, &at, out);
		}
	}
	return false;
}

/* prefix: what comes before the number in the answer; NULL: the answer is the number. */
static double share(const char *reply, const char *answer, const char *prefix) {
	passage r = {0}, a = {0}, before = {0};
	double result = 0.0;
	if (!passage_read(&r, reply) || !passage_read(&a, answer) || !passage_read(&before, prefix ? prefix : "")) {
		result = judge_no_memory();
	} else {
		const word mark = {before.chars, before.n, 0};
		word expected = {a.chars, a.n, 0};
		if (!prefix || find_behind(&a, &mark, &expected)) {
			result = share_equal(&r, &expected);
		}
	}
	passage_free(&r);
	passage_free(&a);
	passage_free(&before);
	return result;
}

static double retrieval(const char *reply, const char *answer) { return share(reply, answer, "Paragraph "); }

static double retrieval_zh(const char *reply, const char *answer) { return share(reply, answer, "段落"); }

static double count(const char *reply, const char *answer) { return share(reply, answer, NULL); }

double judge_retrieval(const example *e, const char *reply) { return judge_best(e, reply, retrieval); }

double judge_retrieval_zh(const example *e, const char *reply) { return judge_best(e, reply, retrieval_zh); }

double judge_count(const example *e, const char *reply) { return judge_best(e, reply, count); }
