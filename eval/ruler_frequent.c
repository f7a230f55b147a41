/* Frequent words: a coded text whose words come up by a Zeta law, and which three come up most often. */
#include "ruler.h"

#include <stdlib.h>
#include <string.h>

enum { CODE_SIZE = 7, LEAST_VOCABULARY = 5, N_ASKED = 3 };

/* Of exponent 2, whose sum over all ranks is pi^2 / 6. */
#define ZETA_2 1.6449340668482264

typedef struct coded {
	char (*words)[CODE_SIZE]; /* [n_words] by rank; the first is noise */
	int32_t n_words;
	rng random; /* copied for each context */
} coded;

/* How often the word of a rank, from 1 on, comes up in a text of n words. */
static int32_t times(int32_t n, int32_t rank) { return (int32_t)((double)n / ((double)rank * rank) / ZETA_2); }

static bool stands_out(int32_t n, int32_t rank) { return times(n, rank) > times(n, rank + 1); }

/* The fewest words from which on the three asked for always stand out from each other and from the next: with 73 the share
 * of one word lies between those of ranks 4 and 5, and with less sometimes. */
static int32_t least_words(void) {
	int32_t n = 73;
	while (stands_out(n - 1, 2) && stands_out(n - 1, 3) && stands_out(n - 1, 4)) {
		n--;
	}
	return n;
}

static bool known(const coded *c, int32_t n) {
	for (int32_t i = 0; i < n; i++) {
		if (strcmp(c->words[i], c->words[n]) == 0) {
			return true;
		}
	}
	return false;
}

static bool draw_words(coded *c, int32_t n, rng *r) {
	c->words = calloc((size_t)n, sizeof *c->words);
	c->n_words = n;
	if (!c->words) {
		fail("no memory for the examples");
		return false;
	}
	memcpy(c->words[0], "...", sizeof "...");
	for (int32_t i = 1; i < n; i++) {
		do {
			for (int32_t k = 0; k < CODE_SIZE - 1; k++) {
				c->words[i][k] = (char)('a' + (int)rng_below(r, 26));
			}
		} while (known(c, i));
	}
	c->random = *r;
	return true;
}

static bool write_coded(void *writer, int32_t n, draft *out) {
	const coded *c = writer;
	int32_t size = 0, at = 0;
	for (int32_t i = 0; i < c->n_words; i++) {
		size += times(n, i + 1);
	}
	int32_t *ranks = malloc(((size_t)size * 2 + 1) * sizeof *ranks);
	if (!ranks) {
		fail("no memory for the examples");
		return false;
	}
	for (int32_t i = 0; i < c->n_words; i++) {
		for (int32_t k = 0; k < times(n, i + 1); k++) {
			ranks[at++] = i;
		}
	}
	int32_t *order = ranks + size;
	rng r = c->random;
	rng_shuffle(&r, order, size);
	for (int32_t i = 0; i < size; i++) {
		draft_addf(out, "%s%s", i > 0 ? " " : "", c->words[ranks[order[i]]]);
	}
	free(ranks);
	return true;
}

bool ruler_make_frequent_words(ruler_job *job) {
	static const placeholder values[] = {{"query", ""}, {NULL, NULL}};
	coded c;
	rng r = job->random;
	int32_t n_words = job->length / 50 < LEAST_VOCABULARY ? LEAST_VOCABULARY : job->length / 50;
	bool good = draw_words(&c, n_words, &r);
	for (int32_t i = 1; good && i <= N_ASKED; i++) {
		good = example_push(&job->example->answers, &job->example->n_answers, c.words[i]);
	}
	const ruler_context context = {.values = values,
	                               .write = write_coded,
	                               .writer = &c,
	                               .least = least_words(),
	                               .guess = job->length / 4,
	                               .most = job->length};
	good = good && ruler_fill_or_fail(job, &context);
	free(c.words);
	return good;
}
