/* Plain English words that tasks are made of; no word is part of another, so that finding one in a reply means that one. */
#ifndef CKV_EVAL_WORDS_H
#define CKV_EVAL_WORDS_H

#include <stdint.h>

enum { N_ADJECTIVES = 150, N_NOUNS = 250, N_VERBS = 120 };
enum { N_WORDS = N_ADJECTIVES + N_NOUNS + N_VERBS, N_PAIRS = N_ADJECTIVES * N_NOUNS };

/* i below the number that there are. */
const char *words_adjective(int32_t i);
const char *words_noun(int32_t i);
const char *words_verb(int32_t i);
const char *words_any(int32_t i); /* of all three */

#endif
