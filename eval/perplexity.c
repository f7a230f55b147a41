/* How well the end of a piece of text is predicted from a compressed cache of what comes before it. */
#include "cut.h"
#include "tasks.h"

#include "cli.h"

enum { DEFAULT_LENGTH = 1024, N_PREDICT = 128, MOST_PIECES = 10 };

/* Text from a place on, or the end of a piece, to be cut. */
typedef struct span {
	const task_options *options;
	const char *text;
	size_t size;
} span;

static int32_t count_head(size_t n, void *user) {
	const span *s = user;
	return s->options->count(s->text, cut_back(s->text, n), s->options->user);
}

static int32_t count_tail(size_t n, void *user) {
	const span *s = user;
	size_t from = cut_forward(s->text, s->size, s->size - n);
	return s->options->count(s->text + from, s->size - from, s->options->user);
}

/* *size: of the piece of `length` tokens that the text begins with, whole words; 0 when it has fewer. False on failure. */
static bool cut_piece(const span *rest, int32_t length, size_t *size) {
	span s = *rest;
	int32_t counted = 0;
	if (!cut_fit(count_head, &s, s.size, length, size, &counted)) {
		return false;
	}
	if (*size == s.size) {
		*size = counted == length ? s.size : 0;
	} else {
		*size = cut_back_word(s.text, *size);
	}
	return true;
}

static bool add_piece(const span *piece, int32_t length, int32_t number, int32_t n_predict, example_list *list) {
	span s = *piece;
	size_t n = 0;
	int32_t counted = 0;
	char id[64];
	if (!cut_fit(count_tail, &s, s.size, n_predict, &n, &counted)) {
		return false;
	}
	size_t from = cut_forward_word(s.text, s.size, s.size - n);
	snprintf(id, sizeof id, "perplexity/%d/%d", length, number);
	example *e = example_add(list, id, "perplexity");
	if (!e) {
		return false;
	}
	e->n_predict = n_predict;
	e->length = length;
	e->plain = true;
	return example_set_n(&e->context, s.text, from) && example_set(&e->question, "") &&
	       example_set_n(&e->forced, s.text + from, s.size - from);
}

static bool add_pieces(const buffer *text, int32_t length, const task_options *o, example_list *list) {
	int32_t n_predict = o->n_predict > 0 ? o->n_predict : N_PREDICT, n = 0;
	int32_t most = o->n_examples > 0 ? o->n_examples : MOST_PIECES;
	span rest = {o, text->data, text->size};
	size_t size = 1;
	if (length <= n_predict) {
		fail("pieces of %d tokens leave nothing before the %d that are predicted: choose a larger --length", length,
		     n_predict);
		return false;
	}
	while (n < most && size > 0 && rest.size > 0) {
		if (!cut_piece(&rest, length, &size)) {
			return false;
		}
		span piece = {o, rest.text, size};
		if (size > 0 && !add_piece(&piece, length, n++, n_predict, list)) {
			return false;
		}
		rest = (span){o, rest.text + size, rest.size - size};
	}
	if (n == 0) {
		fail("'%s' has fewer than %d tokens: give a longer text, or smaller --length", o->file, length);
	}
	return n > 0;
}

static bool load(const task *t, const char *part, const task_options *o, example_list *list) {
	static const int32_t own = DEFAULT_LENGTH;
	const int32_t *lengths = o->n_lengths > 0 ? o->lengths : &own;
	buffer text;
	(void)part;
	if (!o->file) {
		fail("task '%s' needs -f: a text, as long as a few times --length", t->name);
		return false;
	}
	if (!text_read(o->file, &text)) {
		return false;
	}
	bool good = true;
	for (int32_t i = 0; good && i < (o->n_lengths > 0 ? o->n_lengths : 1); i++) {
		good = add_pieces(&text, lengths[i], o, list);
	}
	text_free(&text);
	return good;
}

const task task_perplexity = {
    .name = "perplexity",
    .summary = "perplexity of the last 128 tokens of pieces of a text, given what comes before them",
    .needs = "-f FILE: a text",
    .load = load,
};
