#include "metrics_text.h"

#include "cli.h"
#include "metrics_char.h"

#include <stdlib.h>
#include <string.h>

/* The character that size bytes of good UTF-8 encode. */
static uint32_t decode(const unsigned char *s, int size) {
	uint32_t c = size == 1 ? s[0] : s[0] & (0xffu >> (size + 1));
	for (int i = 1; i < size; i++) {
		c = (c << 6) | (s[i] & 0x3fu);
	}
	return c;
}

bool passage_read_n(passage *p, const char *text, size_t size) {
	p->chars = calloc(size + 1, sizeof *p->chars);
	if (!p->chars) {
		return false;
	}
	for (size_t i = 0; i < size;) {
		int used = utf8_character(text + i, size - i);
		p->chars[p->n++] = used > 0 ? decode((const unsigned char *)text + i, used) : 0xfffd;
		i += used > 0 ? (size_t)used : 1;
	}
	return true;
}

bool passage_read(passage *p, const char *text) { return passage_read_n(p, text, strlen(text)); }

bool passage_add_word(passage *p, size_t first, size_t n) {
	if (p->n_words == p->capacity) {
		size_t capacity = p->capacity ? 2 * p->capacity : 64;
		word *bigger = realloc(p->words, capacity * sizeof *bigger);
		if (!bigger) {
			return false;
		}
		p->words = bigger;
		p->capacity = capacity;
	}
	p->words[p->n_words++] = (word){p->chars + first, n, 0};
	return true;
}

bool passage_split(passage *p, size_t first, size_t n) {
	size_t end = first + n;
	for (size_t i = first; i < end;) {
		size_t begin = i;
		while (i < end && !char_is_space(p->chars[i])) {
			i++;
		}
		if (i == begin) {
			i++;
		} else if (!passage_add_word(p, begin, i - begin)) {
			return false;
		}
	}
	return true;
}

/* Any order will do that puts equal words side by side. */
static int word_order(const void *left, const void *right) {
	const word *a = *(word *const *)left, *b = *(word *const *)right;
	if (a->n != b->n) {
		return a->n < b->n ? -1 : 1;
	}
	return a->n ? memcmp(a->at, b->at, a->n * sizeof *a->at) : 0;
}

bool word_equal(const word *a, const word *b) { return word_order(&a, &b) == 0; }

static bool copy_ids(passage *p) {
	p->ids = calloc(p->n_words + 1, sizeof *p->ids);
	for (size_t i = 0; p->ids && i < p->n_words; i++) {
		p->ids[i] = p->words[i].id;
	}
	return p->ids != NULL;
}

bool passages_number(passage *a, passage *b, size_t *n_ids) {
	size_t n = a->n_words + b->n_words;
	word **order = calloc(n, sizeof(word *));
	if (!order) {
		return false;
	}
	for (size_t i = 0; i < n; i++) {
		order[i] = i < a->n_words ? &a->words[i] : &b->words[i - a->n_words];
	}
	qsort(order, n, sizeof(word *), word_order);
	uint32_t id = 0;
	for (size_t i = 0; i < n; i++) {
		id += i > 0 && !word_equal(order[i - 1], order[i]);
		order[i]->id = id;
	}
	free(order);
	*n_ids = (size_t)id + 1;
	return copy_ids(a) && copy_ids(b);
}

void passage_lower(passage *p) {
	for (size_t i = 0; i < p->n; i++) {
		p->chars[i] = char_lower(p->chars[i]);
	}
}

void passage_free(passage *p) {
	free(p->chars);
	free(p->words);
	free(p->ids);
}
