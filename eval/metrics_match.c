/* Answers within replies: RULER's (arXiv 2404.06654) string_match_all and string_match_part, and whole replies. */
#include "metrics.h"
#include "metrics_text.h"

#include <math.h>
#include <string.h>

static bool contains(const passage *text, const passage *part) {
	for (size_t i = 0; i + part->n <= text->n; i++) {
		if (memcmp(text->chars + i, part->chars, part->n * sizeof *part->chars) == 0) {
			return true;
		}
	}
	return false;
}

/* 1 or 0; NaN without memory. */
static double occurs(const passage *reply, const char *answer) {
	passage a = {0};
	bool read = passage_read(&a, answer);
	passage_lower(&a);
	double result = read ? contains(reply, &a) : judge_no_memory();
	passage_free(&a);
	return result;
}

/* How many of the answers occur. */
static double count_occurring(const example *e, const char *reply) {
	passage r = {0};
	bool read = passage_read(&r, reply);
	double sum = read ? 0.0 : judge_no_memory();
	passage_lower(&r);
	for (int32_t i = 0; i < e->n_answers && !isnan(sum); i++) {
		sum += occurs(&r, e->answers[i]);
	}
	passage_free(&r);
	return sum;
}

double judge_match_all(const example *e, const char *reply) {
	return e->n_answers > 0 ? count_occurring(e, reply) / e->n_answers : 0.0;
}

double judge_match_any(const example *e, const char *reply) {
	double count = count_occurring(e, reply);
	return isnan(count) ? count : count > 0.0;
}

static bool same_words(const passage *a, const passage *b) {
	bool same = a->n_words == b->n_words;
	for (size_t i = 0; same && i < a->n_words; i++) {
		same = word_equal(&a->words[i], &b->words[i]);
	}
	return same;
}

/* As it is, but for case and white space. */
static bool read_plain(passage *p, const char *text) {
	if (!passage_read(p, text)) {
		return false;
	}
	passage_lower(p);
	return passage_split(p, 0, p->n);
}

static double same(const char *reply, const char *answer, bool (*read)(passage *p, const char *text), bool *empty) {
	passage a = {0}, b = {0};
	bool good = read(&a, reply) && read(&b, answer);
	double result = good ? same_words(&a, &b) : judge_no_memory();
	*empty = good && b.n_words == 0;
	passage_free(&a);
	passage_free(&b);
	return result;
}

/* An answer of which normalisation leaves nothing, such as the choice "A", is compared without it. */
static double exact(const char *reply, const char *answer) {
	bool empty = false;
	double result = same(reply, answer, passage_read_normal, &empty);
	return empty ? same(reply, answer, read_plain, &empty) : result;
}

double judge_exact(const example *e, const char *reply) { return judge_best(e, reply, exact); }
