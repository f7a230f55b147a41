/* Texts cut to a number of tokens, never through a character. */
#ifndef CKV_EVAL_CUT_H
#define CKV_EVAL_CUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The place of the character that `at` is in, or of the next one. at <= size. */
size_t cut_back(const char *text, size_t at);
size_t cut_forward(const char *text, size_t size, size_t at);
/* The same with the place before white space, so that no word is cut, if one is near. */
size_t cut_back_word(const char *text, size_t at);
size_t cut_forward_word(const char *text, size_t size, size_t at);

/* Tokens of a text of which n bytes are kept; negative on failure. */
typedef int32_t (*cut_count)(size_t n, void *user);
/* *kept: the most bytes, `most` at most, that make n_tokens or fewer; by bisection, as if more bytes never made fewer
 * tokens. *counted: how many; more than n_tokens when nothing kept is too much already. False on failure. */
bool cut_fit(cut_count count, void *user, size_t most, int32_t n_tokens, size_t *kept, int32_t *counted);

#endif
