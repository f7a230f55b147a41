/* Kinds of characters, by code point, as Python's str and re have them, which the published metrics are written in. Nearly
 * all of Unicode that texts use; what is left out is told with each. */
#ifndef CKV_EVAL_METRICS_CHAR_H
#define CKV_EVAL_METRICS_CHAR_H

#include <stdbool.h>
#include <stdint.h>

bool char_is_space(uint32_t c); /* str.split() */
bool char_is_digit(uint32_t c); /* \d; not beyond U+FFFF */
/* \w: all that are not known to be none; exact in Latin, Greek, Cyrillic, Chinese, Japanese, symbols and emoji. */
bool char_is_word(uint32_t c);
bool char_is_punctuation(uint32_t c);    /* of ASCII: string.punctuation */
bool char_is_punctuation_zh(uint32_t c); /* what LongBench takes out of Chinese beside them; not all there is */
/* str.lower(), of modern Latin, Greek, Cyrillic, Armenian and full-width letters; not of those that become two (İ), and
 * whatever stands around them (sigma at an end). */
uint32_t char_lower(uint32_t c);

#endif
