/* LongBench's (arXiv 2308.14508) code_sim_score: the first line without '`', '#' and "//", by fuzzywuzzy's fuzz.ratio in
 * whole percent. That is python-Levenshtein's ratio where it is installed, as here: insertions and deletions beside all
 * characters, 1 - (n + m - 2 LCS) / (n + m); without it fuzzywuzzy takes difflib's, which differs. */
#include "metrics.h"
#include "metrics_lcs.h"
#include "metrics_text.h"

#include <math.h>
#include <string.h>

static bool is_code(const char *line, size_t n) {
	for (size_t i = 0; i < n; i++) {
		if (line[i] == '`' || line[i] == '#' || (line[i] == '/' && i + 1 < n && line[i + 1] == '/')) {
			return false;
		}
	}
	return true;
}

/* Its size in *n; none at all: "". */
static const char *first_code(const char *reply, size_t *n) {
	for (const char *line = reply + strspn(reply, "\n");; line += *n + 1) {
		*n = strcspn(line, "\n");
		if (is_code(line, *n)) {
			return line;
		}
		if (!line[*n]) {
			*n = 0;
			return "";
		}
	}
}

/* Rounded half to even, as Python does. */
static double percent(size_t common, size_t all) {
	double distance = (double)(all - 2 * common) / (double)all;
	return rint(100.0 * (1.0 - distance)) / 100.0;
}

static double likeness(const passage *a, const passage *b) {
	size_t common = 0;
	if (a->n == 0 || b->n == 0) {
		return a->n == b->n; /* equal texts are equal before empty ones are unlike */
	}
	return lcs_length(a->chars, a->n, b->chars, b->n, &common) ? percent(common, a->n + b->n) : judge_no_memory();
}

static double code_sim(const char *reply, const char *answer) {
	size_t n = 0;
	const char *line = first_code(reply, &n);
	passage a = {0}, b = {0};
	bool read = passage_read_n(&a, line, n) && passage_read(&b, answer);
	double score = read ? likeness(&a, &b) : judge_no_memory();
	passage_free(&a);
	passage_free(&b);
	return score;
}

double judge_code_sim(const example *e, const char *reply) { return judge_best(e, reply, code_sim); }
