/* Texts by characters, as the published metrics see them, and cut into words. */
#ifndef CKV_EVAL_METRICS_TEXT_H
#define CKV_EVAL_METRICS_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct word {
	const uint32_t *at; /* borrowed from the passage's characters */
	size_t n;
	uint32_t id; /* set by passages_number: the same for equal words */
} word;

/* Zero it first; passage_free in any case. */
typedef struct passage {
	uint32_t *chars; /* [n] code points; U+FFFD for a byte that is not UTF-8 */
	size_t n;
	word *words; /* [n_words] */
	size_t n_words, capacity;
	uint32_t *ids; /* [n_words] of the words, after passages_number */
} passage;

/* These return false without memory. */
bool passage_read(passage *p, const char *text);
bool passage_read_n(passage *p, const char *text, size_t size);
bool passage_add_word(passage *p, size_t first, size_t n);
/* Adds the words of n characters, which white space parts. */
bool passage_split(passage *p, size_t first, size_t n);
/* Gives the words of both ids below *n_ids. Needs one word at least. */
bool passages_number(passage *a, passage *b, size_t *n_ids);

void passage_lower(passage *p);
void passage_free(passage *p);
bool word_equal(const word *a, const word *b);

/* Reads and splits as SQuAD does, LongBench after it: lower case, no ASCII punctuation, no articles. */
bool passage_read_normal(passage *p, const char *text);

#endif
