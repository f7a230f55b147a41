/* LongBench's (arXiv 2308.14508) classification_score: 1 / number of classes named, if the right one is among them. Names
 * that are within the right one's don't count against it. As published, the list is gone through while names are taken out
 * of it, so that the one behind each of those is passed over. */
#include "metrics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Takes the first that equals list[i] out, as Python's list.remove does. Returns how many are left. */
static size_t take_out(const char **list, size_t n, size_t i) {
	size_t first = 0;
	while (strcmp(list[first], list[i]) != 0) {
		first++;
	}
	for (size_t k = first + 1; k < n; k++) {
		list[k - 1] = list[k];
	}
	return n - 1;
}

/* named: room for all classes. */
static double classify(const example *e, const char *reply, const char *answer, const char **named) {
	size_t n = 0;
	for (int32_t i = 0; i < e->n_classes; i++) {
		if (strstr(reply, e->classes[i])) {
			named[n++] = e->classes[i];
		}
	}
	for (size_t i = 0; i < n; i++) {
		if (strstr(answer, named[i]) && strcmp(answer, named[i]) != 0) {
			n = take_out(named, n, i);
		}
	}
	for (size_t i = 0; i < n; i++) {
		if (strcmp(answer, named[i]) == 0) {
			return 1.0 / (double)n;
		}
	}
	return 0.0;
}

double judge_classification(const example *e, const char *reply) {
	double best = 0.0;
	const char **named = calloc((size_t)e->n_classes + 1, sizeof(const char *));
	if (!named) {
		return judge_no_memory();
	}
	for (int32_t i = 0; i < e->n_answers; i++) {
		best = fmax(best, classify(e, reply, e->answers[i], named));
	}
	free((void *)named);
	return best;
}

double judge_classification_line(const example *e, const char *reply) {
	return judge_first_line(e, reply, judge_classification);
}
