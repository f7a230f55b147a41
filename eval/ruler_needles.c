/* Needles in a haystack: one or several keys with one or several values each, in text, in noise, or among other needles. */
#include "ruler.h"
#include "ruler_draws.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_NEEDLES = 16, N_DEPTHS = 40 };

/* A needle that nobody asks for. */
typedef struct decoy {
	drawn key, value;
} decoy;

typedef struct needles {
	const ruler_job *job;
	draws draws;
	drawn keys[MOST_NEEDLES], values[MOST_NEEDLES]; /* values: n_values for each key */
	draft sentences[MOST_NEEDLES];                  /* in the order in which they are hidden */
	double depths[MOST_NEEDLES];                    /* percent, increasing */
	int32_t n, n_keys;
	decoy *decoys;
	int32_t n_decoys, capacity;
} needles;

static const char *type_name(needle_kind kind, bool one) {
	static const char *const names[][2] = {{"words", "word"}, {"numbers", "number"}, {"uuids", "uuid"}};
	return names[kind][one];
}

static void write_needle(const needles *s, const drawn *key, const drawn *value, draft *out) {
	const ruler_job *job = s->job;
	const char *text = job->templates->kinds[TEMPLATE_NIAH].needle;
	const placeholder values[] = {{"type_needle_v", type_name(job->part->needles.values, false)},
	                              {"key", key->text},
	                              {"value", value->text},
	                              {NULL, NULL}};
	template_fill(out, text, strlen(text), values);
}

static bool draw_needles(needles *s) {
	const needles_of *of = &s->job->part->needles;
	for (int32_t k = 0; k < s->n_keys; k++) {
		if (!draws_next(&s->draws, of->keys, &s->keys[k])) {
			return false;
		}
		for (int32_t v = 0; v < of->n_values; v++) {
			if (!draws_next(&s->draws, of->values, &s->values[k * of->n_values + v])) {
				return false;
			}
		}
	}
	return true;
}

static int by_size(const void *a, const void *b) {
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* Shuffles the needles and draws where they go: of 40 depths from 0 to 100 % in equal steps, no two the same. */
static bool lay_out(needles *s) {
	int32_t order[MOST_NEEDLES], depths[N_DEPTHS];
	bool good = true;
	rng_shuffle(&s->draws.random, order, s->n);
	rng_shuffle(&s->draws.random, depths, N_DEPTHS);
	for (int32_t i = 0; i < s->n; i++) {
		int32_t of = order[i];
		write_needle(s, &s->keys[of / s->job->part->needles.n_values], &s->values[of], &s->sentences[i]);
		s->depths[i] = (double)depths[i] * 100.0 / (N_DEPTHS - 1);
		good = good && draft_good(&s->sentences[i]);
	}
	qsort(s->depths, (size_t)s->n, sizeof *s->depths, by_size);
	return good;
}

/* Among the sentences of a text. */
static bool write_in_text(void *writer, int32_t n, draft *out) {
	const needles *s = writer;
	const haystack *h = s->job->part->needles.hay == HAY_TEXT ? s->job->text : s->job->noise;
	int32_t done = 0;
	for (int32_t i = 0; i < s->n; i++) {
		int32_t place = haystack_place_before(h, (int32_t)((double)n * s->depths[i] / 100.0));
		haystack_write(h, done, place, out);
		done = place;
		bool spaced = out->size == 0 || out->data[out->size - 1] == '\n' || out->data[out->size - 1] == ' ';
		draft_add(out, spaced ? "" : " ");
		draft_add(out, draft_text(&s->sentences[i]));
		/* The text's own white space follows it, but at the text's beginning. */
		draft_add(out, place == 0 ? "\n" : "");
	}
	haystack_write(h, done, n, out);
	return true;
}

static bool reach_decoys(needles *s, int32_t n) {
	if (n > s->capacity) {
		decoy *bigger = realloc(s->decoys, (size_t)n * 2 * sizeof *bigger);
		if (!bigger) {
			fail("no memory for the examples");
			return false;
		}
		s->decoys = bigger;
		s->capacity = 2 * n;
	}
	for (; s->n_decoys < n; s->n_decoys++) {
		decoy *d = &s->decoys[s->n_decoys];
		if (!draws_next(&s->draws, s->job->part->needles.keys, &d->key) ||
		    !draws_next(&s->draws, s->job->part->needles.values, &d->value)) {
			return false;
		}
	}
	return true;
}

/* Among n other needles, one to a line. */
static bool write_in_needles(void *writer, int32_t n, draft *out) {
	needles *s = writer;
	const size_t start = out->size;
	if (!reach_decoys(s, n)) {
		return false;
	}
	for (int32_t i = 0, done = 0; i <= n; i++) {
		for (; done < s->n && (int32_t)((double)n * s->depths[done] / 100.0) == i; done++) {
			draft_addf(out, "%s%s", out->size > start ? "\n" : "", draft_text(&s->sentences[done]));
		}
		if (i < n) {
			draft_add(out, out->size > start ? "\n" : "");
			write_needle(s, &s->decoys[i].key, &s->decoys[i].value, out);
		}
	}
	return true;
}

/* Which keys are asked for, "a, b, and c", and the answers. */
static bool ask(needles *s, draft *query) {
	const needles_of *of = &s->job->part->needles;
	example *e = s->job->example;
	int32_t order[MOST_NEEDLES];
	rng_shuffle(&s->draws.random, order, s->n_keys);
	for (int32_t i = 0; i < of->n_queries; i++) {
		draft_add(query, i == 0 ? "" : i + 1 < of->n_queries ? ", " : ", and ");
		draft_add(query, s->keys[order[i]].text);
		for (int32_t v = 0; v < of->n_values; v++) {
			if (!example_push(&e->answers, &e->n_answers, s->values[order[i] * of->n_values + v].text)) {
				return false;
			}
		}
	}
	return draft_good(query);
}

static bool make(ruler_job *job, needles *s, draft *query) {
	const needles_of *of = &job->part->needles;
	if (!draw_needles(s) || !lay_out(s) || !ask(s, query)) {
		return false;
	}
	bool one = of->n_queries * of->n_values == 1, among = of->hay == HAY_NEEDLES;
	const placeholder values[] = {{"type_needle_v", type_name(of->values, one)}, {"query", draft_text(query)}, {NULL, NULL}};
	const ruler_context context = {.values = values,
	                               .one = one,
	                               .write = among ? write_in_needles : write_in_text,
	                               .writer = s,
	                               .least = among ? 1 : 0,
	                               .guess = job->length / 16,
	                               .most = job->length};
	return ruler_fill_or_fail(job, &context);
}

bool ruler_make_needles(ruler_job *job) {
	const needles_of *of = &job->part->needles;
	needles s = {.job = job, .draws = {.random = job->random, .text = of->hay == HAY_TEXT ? job->text : NULL}};
	draft query = {0};
	s.n_keys = of->n_keys > of->n_queries ? of->n_keys : of->n_queries;
	s.n = s.n_keys * of->n_values;
	bool good = make(job, &s, &query);
	for (int32_t i = 0; i < s.n; i++) {
		draft_free(&s.sentences[i]);
	}
	draws_free(&s.draws);
	free(s.decoys);
	draft_free(&query);
	return good;
}
