/* A needle in a haystack: one fact at a depth of a text, over a grid of depths and lengths. After Kamradt's test (2023). */
#include "haystack.h"
#include "metric.h"
#include "random.h"
#include "ruler_fit.h"
#include "tasks.h"
#include "words.h"

#include <string.h>

enum { N_PREDICT = 32, TEXT_SIZE = 256, VALUE_SIZE = 32, MOST_TRIES = 10000 };

/* What a fact's value is. */
typedef enum value_kind { VALUE_NUMBER, VALUE_NAME } value_kind;

/* A fact and its question about "%s", a thing; the value comes between head and tail. */
typedef struct fact {
	value_kind kind;
	const char *head, *tail, *question;
} fact;

static const fact facts[] = {
    {VALUE_NUMBER, "The %s weighs ", " grams.", "How many grams does the %s weigh?"},
    {VALUE_NUMBER, "The code that opens the %s is ", ".", "Which code opens the %s?"},
    {VALUE_NUMBER, "The %s was sold at the spring auction for ", " crowns.",
     "For how many crowns was the %s sold at the spring auction?"},
    {VALUE_NUMBER, "In the inventory, the %s has the number ", ".", "Which number does the %s have in the inventory?"},
    {VALUE_NAME, "The %s belongs to a woman called ", ".", "What is the woman called who owns the %s?"},
    {VALUE_NAME, "The %s was made in the village of ", ".", "In which village was the %s made?"},
    {VALUE_NAME, "The thief who took the %s was named ", ".", "What was the name of the thief who took the %s?"},
    {VALUE_NAME, "Every autumn the %s is carried to the island of ", ".", "To which island is the %s carried every autumn?"},
};
enum { N_FACTS = sizeof facts / sizeof *facts };

typedef struct needle {
	const haystack *text;
	double depth;
	char thing[VALUE_SIZE * 2], value[VALUE_SIZE], spelt[VALUE_SIZE]; /* spelt: the value in another way; "" */
	char sentence[2 * TEXT_SIZE];
	const fact *fact;
} needle;

/* Three or four syllables that no text is likely to have. */
static void draw_name(rng *r, char *out) {
	static const char *const heads[] = {"b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z"};
	static const char vowels[] = "aeiou";
	size_t at = 0;
	for (uint32_t i = 0, n = 3 + rng_below(r, 2); i < n; i++) {
		out[at++] = heads[rng_below(r, sizeof heads / sizeof *heads)][0];
		out[at++] = vowels[rng_below(r, sizeof vowels - 1)];
	}
	out[at] = '\0';
	out[0] = (char)(out[0] - 'a' + 'A');
}

/* Five digits, which models write with a separator, too. */
static void draw_number(rng *r, needle *n) {
	unsigned number = 10000 + rng_below(r, 90000);
	snprintf(n->value, sizeof n->value, "%u", number);
	snprintf(n->spelt, sizeof n->spelt, "%u,%03u", number / 1000, number % 1000);
}

static bool is_new(const needle *n) {
	return !haystack_has(n->text, n->thing) && !haystack_has(n->text, n->value) &&
	       (!n->spelt[0] || !haystack_has(n->text, n->spelt));
}

static void put(char *out, size_t size, const char *pattern, const needle *n) {
	const char *mark = strstr(pattern, "%s");
	snprintf(out, size, "%.*s%s%s", (int)(mark - pattern), pattern, n->thing, mark + 2);
}

/* A fact that the text says nothing of, nor anything like its answer. */
static bool draw_needle(rng *r, needle *n) {
	for (int32_t i = 0; i < MOST_TRIES; i++) {
		n->fact = &facts[rng_below(r, N_FACTS)];
		n->spelt[0] = '\0';
		snprintf(n->thing, sizeof n->thing, "%s %s", words_adjective((int32_t)rng_below(r, N_ADJECTIVES)),
		         words_noun((int32_t)rng_below(r, N_NOUNS)));
		if (n->fact->kind == VALUE_NUMBER) {
			draw_number(r, n);
		} else {
			draw_name(r, n->value);
		}
		if (is_new(n)) {
			char head[TEXT_SIZE];
			put(head, sizeof head, n->fact->head, n);
			snprintf(n->sentence, sizeof n->sentence, "%s%s%s", head, n->value, n->fact->tail);
			return true;
		}
	}
	fail("niah: the haystack has every needle already: give another text");
	return false;
}

static bool write_haystack(void *writer, int32_t n, draft *out) {
	const needle *s = writer;
	const haystack *h = s->text;
	int32_t place = haystack_place(h, n, s->depth);
	haystack_write(h, 0, place, out);
	/* Behind a heading it begins a paragraph. */
	draft_add(out, place == 0 ? "" : h->sentences[(place - 1) % h->n].closed ? " " : "\n\n");
	draft_add(out, s->sentence);
	draft_add(out, place > 0 || n == 0 ? "" : h->sentences[0].closed ? " " : "\n\n");
	haystack_write(h, place, n, out);
	return true;
}

static bool set_texts(example *e, const needle *n, const char *question, const draft *context) {
	return example_set(&e->context, draft_text(context)) && example_set(&e->question, question) &&
	       example_push(&e->answers, &e->n_answers, n->value) &&
	       (!n->spelt[0] || example_push(&e->answers, &e->n_answers, n->spelt));
}

static bool fill(const task_options *o, needle *n, example *e) {
	char question[TEXT_SIZE], all[2 * TEXT_SIZE];
	draft context = {0};
	put(question, sizeof question, n->fact->question, n);
	snprintf(all, sizeof all, "\n\nAnswer from the text above, with the answer alone. %s", question);
	int32_t n_question = o->count(all, strlen(all), o->user);
	if (n_question < 0) {
		return false;
	}
	fit f = {.options = o,
	         .write = write_haystack,
	         .writer = n,
	         .guess = e->length / 24,
	         .most = e->length,
	         .room = e->n_predict < e->length ? e->length - e->n_predict - n_question : -1};
	fit_result result = fit_context(&f, &context);
	if (result == FIT_TOO_LITTLE) {
		fail("niah does not fit into %d tokens: the needle and its question take %d and the answer %d; give a greater "
		     "length, or "
		     "fewer tokens to predict",
		     (int)e->length, (int)(f.n_least + n_question), (int)e->n_predict);
	}
	bool good = result == FIT_GOOD && set_texts(e, n, all, &context);
	draft_free(&context);
	return good;
}

static bool add(const task_options *o, const haystack *text, int32_t length, double depth, int32_t number,
                example_list *list) {
	char cell[64], id[80];
	needle n = {.text = text, .depth = depth};
	snprintf(cell, sizeof cell, "niah/%d/%g", (int)length, depth);
	snprintf(id, sizeof id, "%s/%d", cell, (int)number);
	example *e = example_add(list, id, "niah");
	if (!e) {
		return false;
	}
	rng r = rng_make(o->seed, cell, (uint32_t)number);
	e->metric = metric_find("match_any");
	e->n_predict = o->n_predict > 0 ? o->n_predict : N_PREDICT;
	e->length = length;
	e->depth = depth;
	return draw_needle(&r, &n) && fill(o, &n, e);
}

static bool add_all(const task_options *o, const haystack *text, example_list *list) {
	static const int32_t usual_lengths[] = {512, 1024, 2048};
	static const double usual_depths[] = {0.0, 25.0, 50.0, 75.0, 100.0};
	bool given = o->n_lengths > 0, depths_given = o->n_depths > 0;
	const int32_t *lengths = given ? o->lengths : usual_lengths;
	const double *depths = depths_given ? o->depths : usual_depths;
	int32_t n_lengths = given ? o->n_lengths : 3, n_depths = depths_given ? o->n_depths : 5;
	int32_t n = o->n_examples > 0 ? o->n_examples : 1;
	for (int32_t cell = 0; cell < n_lengths * n_depths; cell++) {
		for (int32_t i = 0; i < n; i++) {
			if (!add(o, text, lengths[cell / n_depths], depths[cell % n_depths], i, list)) {
				return false;
			}
		}
	}
	return true;
}

static bool load(const struct task *self, const char *part, const task_options *options, example_list *list) {
	haystack text;
	(void)self;
	(void)part;
	if (!haystack_read(&text, options->file)) {
		return false;
	}
	bool good = add_all(options, &text, list);
	haystack_free(&text);
	return good;
}

const task task_niah = {.name = "niah",
                        .summary = "a fact hidden in a text, found again: depths by lengths",
                        .needs = "the haystack is -f, any text, else the bundled one",
                        .parts = NULL,
                        .load = load};
