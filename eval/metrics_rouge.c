/* ROUGE-L of summaries as PyPI's package rouge 1.0.1 has it, by which LongBench judges: sentences end at '.', and what is
 * counted are the different words in any longest common subsequence of a sentence of the answer and one of the reply.
 * Where the package gives up, 0 in LongBench's hands, for want of recursion depth (sentences of about a thousand words),
 * this one goes on. */
#include "metrics.h"
#include "metrics_char.h"
#include "metrics_lcs.h"
#include "metrics_text.h"

#include <stdlib.h>
#include <string.h>

typedef struct summary {
	passage text;
	size_t *ends; /* [n] in words */
	size_t n;
} summary;

/* White space alone is a sentence too, of one empty word. */
static bool add_sentence(summary *s, size_t first, size_t n) {
	size_t before = s->text.n_words;
	if (!passage_split(&s->text, first, n) || (s->text.n_words == before && !passage_add_word(&s->text, first, 0))) {
		return false;
	}
	s->ends[s->n++] = s->text.n_words;
	return true;
}

static bool cut_sentences(summary *s) {
	const passage *p = &s->text;
	s->ends = calloc(p->n + 1, sizeof *s->ends);
	bool good = s->ends != NULL;
	for (size_t i = 0, first = 0; good && i <= p->n; i++) {
		if (i == p->n || p->chars[i] == '.') {
			good = i == first || add_sentence(s, first, i - first);
			first = i + 1;
		}
	}
	return good;
}

/* The characters with a space between each two. */
static bool space_out(passage *p) {
	uint32_t *wide = calloc(2 * p->n + 1, sizeof *wide);
	if (!wide) {
		return false;
	}
	for (size_t i = 0; i < p->n; i++) {
		wide[2 * i] = p->chars[i];
		wide[2 * i + 1] = ' ';
	}
	free(p->chars);
	p->chars = wide;
	p->n = p->n ? 2 * p->n - 1 : 0;
	return true;
}

static bool summary_read(summary *s, const char *text, bool by_characters) {
	return passage_read(&s->text, text) && (!by_characters || space_out(&s->text)) && cut_sentences(s);
}

static void summary_free(summary *s) {
	passage_free(&s->text);
	free(s->ends);
}

static size_t count_marked(const uint8_t *marks, size_t n) {
	size_t count = 0;
	for (size_t i = 0; i < n; i++) {
		count += marks[i];
	}
	return count;
}

static size_t count_different(const passage *p, uint8_t *marks, size_t n_ids) {
	memset(marks, 0, n_ids);
	for (size_t i = 0; i < p->n_words; i++) {
		marks[p->ids[i]] = 1;
	}
	return count_marked(marks, n_ids);
}

static bool mark_union(const summary *reply, const summary *answer, uint8_t *marks) {
	bool good = true;
	for (size_t a = 0, from = 0; good && a < answer->n; from = answer->ends[a++]) {
		for (size_t r = 0, begin = 0; good && r < reply->n; begin = reply->ends[r++]) {
			good = lcs_mark(answer->text.ids + from, answer->ends[a] - from, reply->text.ids + begin, reply->ends[r] - begin,
			                marks);
		}
	}
	return good;
}

/* Both have a sentence. */
static double score(summary *reply, summary *answer) {
	size_t n_ids = 0;
	if (!passages_number(&reply->text, &answer->text, &n_ids)) {
		return judge_no_memory();
	}
	uint8_t *marks = calloc(n_ids, 1);
	if (!marks || !mark_union(reply, answer, marks)) {
		free(marks);
		return judge_no_memory();
	}
	double shared = (double)count_marked(marks, n_ids);
	double recall = shared / (double)count_different(&answer->text, marks, n_ids);
	double precision = shared / (double)count_different(&reply->text, marks, n_ids);
	free(marks);
	return 2.0 * (precision * recall / (precision + recall + 1e-8)); /* the package's guard against 0 / 0 */
}

static double rouge_of(const char *reply, const char *answer, bool by_characters) {
	summary r = {0}, a = {0};
	double result = 0.0;
	if (!summary_read(&r, reply, by_characters) || !summary_read(&a, answer, by_characters)) {
		result = judge_no_memory();
	} else if (r.n > 0 && a.n > 0) {
		result = score(&r, &a);
	}
	summary_free(&r);
	summary_free(&a);
	return result;
}

static double rouge_l(const char *reply, const char *answer) { return rouge_of(reply, answer, false); }

static double rouge_l_zh(const char *reply, const char *answer) { return rouge_of(reply, answer, true); }

double judge_rouge_l(const example *e, const char *reply) { return judge_best(e, reply, rouge_l); }

double judge_rouge_l_line(const example *e, const char *reply) { return judge_first_line(e, reply, judge_rouge_l); }

double judge_rouge_l_zh(const example *e, const char *reply) { return judge_best(e, reply, rouge_l_zh); }
