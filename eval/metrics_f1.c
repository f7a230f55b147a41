/* F1 of shared words, each counted as often as both sides have it: LongBench's (arXiv 2308.14508) qa_f1_score and, by
 * characters in place of jieba's words, qa_f1_zh_score. */
#include "metrics.h"
#include "metrics_char.h"
#include "metrics_text.h"

#include <stdlib.h>

/* Returns false without memory. */
static bool count_shared(passage *a, passage *b, size_t *shared) {
	size_t n_ids = 0;
	*shared = 0;
	if (a->n_words == 0 || b->n_words == 0) {
		return true;
	}
	if (!passages_number(a, b, &n_ids)) {
		return false;
	}
	size_t *left = calloc(n_ids, sizeof *left);
	if (!left) {
		return false;
	}
	for (size_t i = 0; i < b->n_words; i++) {
		left[b->ids[i]]++;
	}
	for (size_t i = 0; i < a->n_words; i++) {
		if (left[a->ids[i]] > 0) {
			left[a->ids[i]]--;
			(*shared)++;
		}
	}
	free(left);
	return true;
}

static double f1_of(const char *reply, const char *answer, bool (*read)(passage *p, const char *text)) {
	passage a = {0}, b = {0};
	size_t shared = 0;
	double score = 0.0;
	if (!read(&a, reply) || !read(&b, answer) || !count_shared(&a, &b, &shared)) {
		score = judge_no_memory();
	} else if (shared > 0) {
		double precision = (double)shared / (double)a.n_words, recall = (double)shared / (double)b.n_words;
		score = 2.0 * precision * recall / (precision + recall);
	}
	passage_free(&a);
	passage_free(&b);
	return score;
}

static double f1(const char *reply, const char *answer) { return f1_of(reply, answer, passage_read_normal); }

/* Each character that is neither space nor punctuation is a word. */
static bool read_characters(passage *p, const char *text) {
	if (!passage_read(p, text)) {
		return false;
	}
	passage_lower(p);
	for (size_t i = 0; i < p->n; i++) {
		uint32_t c = p->chars[i];
		bool counts = !char_is_space(c) && !char_is_punctuation(c) && !char_is_punctuation_zh(c);
		if (counts && !passage_add_word(p, i, 1)) {
			return false;
		}
	}
	return true;
}

static double f1_zh(const char *reply, const char *answer) { return f1_of(reply, answer, read_characters); }

double judge_f1(const example *e, const char *reply) { return judge_best(e, reply, f1); }

double judge_f1_line(const example *e, const char *reply) { return judge_first_line(e, reply, judge_f1); }

double judge_f1_zh(const example *e, const char *reply) { return judge_best(e, reply, f1_zh); }
