/* The table of metrics. */
#include "metric.h"

#include "cli.h"
#include "metrics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const metric metrics[] = {
    {"match_all", "share of the answers that occur in the reply, whatever their case (RULER)", judge_match_all},
    {"match_any", "1 if an answer occurs in the reply, whatever its case (RULER's partial match)", judge_match_any},
    {"exact", "1 if the reply is an answer, but for case, punctuation, articles and spaces", judge_exact},
    {"number", "1 if the reply's last number is the answer's (GSM8K)", judge_number},
    {"refusal", "refusal rate: 1 if the reply holds a stock phrase of refusing (our own list, for JailbreakV)",
     judge_refusal},
    {"f1", "F1 of the words shared with an answer (LongBench)", judge_f1},
    {"f1_line", "f1 of the reply's first line (LongBench: triviaqa)", judge_f1_line},
    {"f1_zh", "F1 of Chinese by characters (LongBench's goes by jieba's words: not comparable with its figures)",
     judge_f1_zh},
    {"rouge_l", "ROUGE-L's F of words, as PyPI's rouge 1.0.1 has it (LongBench)", judge_rouge_l},
    {"rouge_l_line", "rouge_l of the reply's first line (LongBench: samsum)", judge_rouge_l_line},
    {"rouge_l_zh", "ROUGE-L's F by characters (LongBench's goes by jieba's words: not comparable with its figures)",
     judge_rouge_l_zh},
    {"classification", "1 / number of classes that the reply names, if the right one is among them (LongBench)",
     judge_classification},
    {"classification_line", "classification of the reply's first line (LongBench: trec, lsht)", judge_classification_line},
    {"retrieval", "share of the reply's numbers that are the paragraph's (LongBench)", judge_retrieval},
    {"retrieval_zh", "the same, of answers in Chinese (LongBench)", judge_retrieval_zh},
    {"count", "share of the reply's numbers that are the answer (LongBench)", judge_count},
    {"code_sim", "likeness of the reply's first line of code (LongBench; fuzz.ratio with python-Levenshtein, not difflib)",
     judge_code_sim},
};
enum { N_METRICS = sizeof metrics / sizeof *metrics };

const metric *metric_at(size_t i) { return i < N_METRICS ? &metrics[i] : NULL; }

const metric *metric_find(const char *name) {
	for (size_t i = 0; i < N_METRICS; i++) {
		if (strcmp(metrics[i].name, name) == 0) {
			return &metrics[i];
		}
	}
	return NULL;
}

double judge_no_memory(void) {
	fail("no memory to judge a reply: it counts as not judged");
	return NAN;
}

double judge_best(const example *e, const char *reply, double (*one)(const char *reply, const char *answer)) {
	double best = 0.0;
	for (int32_t i = 0; i < e->n_answers; i++) {
		double score = one(reply, e->answers[i]);
		if (isnan(score)) {
			return score;
		}
		best = fmax(best, score);
	}
	return best;
}

double judge_first_line(const example *e, const char *reply, double (*judge)(const example *e, const char *reply)) {
	const char *line = reply + strspn(reply, "\n");
	size_t n = strcspn(line, "\n");
	char *copy = malloc(n + 1);
	if (!copy) {
		return judge_no_memory();
	}
	memcpy(copy, line, n);
	copy[n] = '\0';
	double score = judge(e, copy);
	free(copy);
	return score;
}
