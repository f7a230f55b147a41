/* Lists of tokens, from text. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

bool tokens_add(token_list *list, const struct llama_vocab *vocab, const char *text, size_t size, bool start, bool control) {
	int32_t room = (int32_t)(size + 16);
	if (size > INT32_MAX / 2 || list->size > INT32_MAX - room) {
		fail("the prompt is too long");
		return false;
	}
	llama_token *bigger = realloc(list->data, ((size_t)list->size + (size_t)room) * sizeof *bigger);
	if (!bigger) {
		fail("no memory for the prompt's tokens");
		return false;
	}
	list->data = bigger;
	int32_t n = llama_tokenize(vocab, text, (int32_t)size, list->data + list->size, room, start, control);
	if (n < 0) {
		fail("the prompt could not be turned into tokens");
		return false;
	}
	list->size += n;
	return true;
}

bool tokens_append(token_list *list, const llama_token *tokens, int32_t n) {
	llama_token *bigger = n ? realloc(list->data, ((size_t)list->size + (size_t)n) * sizeof *bigger) : list->data;
	if (n && !bigger) {
		fail("no memory for %d tokens", n);
		return false;
	}
	list->data = bigger;
	if (n) {
		memcpy(list->data + list->size, tokens, (size_t)n * sizeof *tokens);
	}
	list->size += n;
	return true;
}

void tokens_free(token_list *list) {
	free(list->data);
	*list = (token_list){NULL, 0};
}
