/* Common words: a numbered list, and which 10 of its words come up most often. */
#include "ruler.h"
#include "words.h"

#include <stdlib.h>
#include <string.h>

enum { N_COMMON = 10, MOST_WORDS = N_WORDS + N_PAIRS };

/* How often words are repeated: the common ones and the others. */
typedef struct scale {
	int32_t n_words, common, other; /* n_words: of the worked example; 0: there is none */
} scale;

/* The first n words of an order, some of them common. */
typedef struct word_list {
	const int32_t *order; /* plain words, then pairs of an adjective and a noun */
	scale scale;
	rng random;   /* copied for each context */
	int32_t last; /* n of the context that was written last */
} word_list;

static void write_word(int32_t i, draft *out) {
	if (i < N_WORDS) {
		draft_add(out, words_any(i));
	} else {
		draft_addf(out, "%s-%s", words_adjective((i - N_WORDS) / N_NOUNS), words_noun((i - N_WORDS) % N_NOUNS));
	}
}

/* places[0 .. N_COMMON - 1] are those of the common words, [0 .. n - 1] all. Returns the rest of the random numbers. */
static rng choose_common(const word_list *l, int32_t n, int32_t *places) {
	rng r = l->random;
	rng_shuffle(&r, places, n);
	return r;
}

static int32_t *numbers(int32_t n) {
	int32_t *out = malloc((size_t)n * sizeof *out);
	if (!out) {
		fail("no memory for the examples");
	}
	return out;
}

static bool write_list(void *writer, int32_t n, draft *out) {
	word_list *l = writer;
	int32_t size = N_COMMON * l->scale.common + (n - N_COMMON) * l->scale.other, at = 0;
	int32_t *places = numbers(n), *entries = numbers(size), *shuffled = numbers(size);
	bool good = places && entries && shuffled;
	if (good) {
		rng r = choose_common(l, n, places);
		for (int32_t i = 0; i < n; i++) {
			for (int32_t k = 0; k < (i < N_COMMON ? l->scale.common : l->scale.other); k++) {
				entries[at++] = l->order[places[i]];
			}
		}
		rng_shuffle(&r, shuffled, size);
		for (int32_t i = 0; i < size; i++) {
			draft_addf(out, "%s%d. ", i > 0 ? " " : "", (int)i + 1);
			write_word(entries[shuffled[i]], out);
		}
		l->last = n;
	}
	free(places);
	free(entries);
	free(shuffled);
	return good;
}

/* The common words of the context that was written last, one draft each. */
static bool common_words(const word_list *l, draft words[N_COMMON]) {
	int32_t *places = numbers(l->last);
	if (!places) {
		return false;
	}
	choose_common(l, l->last, places);
	bool good = true;
	for (int32_t i = 0; i < N_COMMON; i++) {
		write_word(l->order[places[i]], &words[i]);
		good = good && draft_good(&words[i]);
	}
	free(places);
	return good;
}

static void free_words(draft words[N_COMMON]) {
	for (int32_t i = 0; i < N_COMMON; i++) {
		draft_free(&words[i]);
	}
}

static bool make_worked(const ruler_job *job, word_list *l, draft *out) {
	static const placeholder values[] = {{"query", ""}, {NULL, NULL}};
	draft context = {0}, reply = {0}, words[N_COMMON] = {{0}};
	bool good = write_list(l, l->scale.n_words, &context) && common_words(l, words);
	for (int32_t i = 0; good && i < N_COMMON; i++) {
		draft_addf(&reply, "%s%d. %s", i > 0 ? " " : "", (int)i + 1, draft_text(&words[i]));
	}
	good = good && draft_good(&context) && draft_good(&reply);
	if (good) {
		ruler_worked(job, values, draft_text(&context), draft_text(&reply), out);
	}
	free_words(words);
	draft_free(&context);
	draft_free(&reply);
	return good && draft_good(out);
}

/* As published from 4,096 tokens on and from 1,024 on. Below, where the worked example would leave no room, without it. */
static void scales(int32_t length, scale *worked, scale *asked) {
	*worked = length >= 4096 ? (scale){40, 10, 3} : length >= 1024 ? (scale){20, 3, 1} : (scale){0, 0, 0};
	*asked = length >= 4096 ? (scale){0, 30, 3} : length >= 1024 ? (scale){0, 6, 1} : (scale){0, 3, 1};
}

static bool make(ruler_job *job, word_list *l, const char *worked, int32_t most) {
	static const placeholder values[] = {{"query", ""}, {NULL, NULL}};
	draft words[N_COMMON] = {{0}};
	const ruler_context context = {.values = values,
	                               .worked = worked,
	                               .write = write_list,
	                               .writer = l,
	                               .least = N_COMMON + 1,
	                               .guess = job->length / 16,
	                               .most = most};
	bool good = ruler_fill_or_fail(job, &context) && common_words(l, words);
	for (int32_t i = 0; good && i < N_COMMON; i++) {
		good = example_push(&job->example->answers, &job->example->n_answers, draft_text(&words[i]));
	}
	free_words(words);
	return good;
}

bool ruler_make_common_words(ruler_job *job) {
	int32_t *order = numbers(MOST_WORDS);
	if (!order) {
		return false;
	}
	rng r = job->random;
	rng_shuffle(&r, order, N_WORDS);
	rng_shuffle(&r, order + N_WORDS, N_PAIRS);
	for (int32_t i = N_WORDS; i < MOST_WORDS; i++) {
		order[i] += N_WORDS;
	}
	scale of_worked, of_asked;
	scales(job->length, &of_worked, &of_asked);
	rng another = rng_make((uint32_t)rng_next(&r), "worked", 0);
	word_list worked = {.order = order, .scale = of_worked, .random = another};
	word_list asked = {.order = order + of_worked.n_words, .scale = of_asked, .random = r};
	draft shown = {0};
	bool good = of_worked.n_words == 0 || make_worked(job, &worked, &shown);
	good = good && make(job, &asked, draft_text(&shown), MOST_WORDS - of_worked.n_words);
	draft_free(&shown);
	free(order);
	return good;
}
