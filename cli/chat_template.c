/* Chat templates, cut where texts belong.
 *
 * llama.cpp applies a template to a whole conversation. What a new turn adds must cost the same however long that is, so it
 * is taken from a short one: the text with the turn, less the text without it. */
#include "chat.h"

#include <stdlib.h>
#include <string.h>

static const char system_mark[] = "@@chunkkv:system@@", first_mark[] = "@@chunkkv:first@@",
                  reply_mark[] = "@@chunkkv:reply@@", next_mark[] = "@@chunkkv:next@@";

/* NULL when the template is unknown, or there is no memory. */
static char *apply(const char *name, const struct llama_chat_message *messages, size_t n, bool opens_reply) {
	int32_t size = llama_chat_apply_template(name, messages, n, opens_reply, NULL, 0);
	char *out = size < 0 ? NULL : malloc((size_t)size + 1);
	if (out) {
		llama_chat_apply_template(name, messages, n, opens_reply, out, size);
		out[size] = '\0';
	}
	return out;
}

/* Ends text before a mark and returns what is behind it; NULL when text is, or it has no such mark. */
static char *cut(char *text, const char *mark) {
	char *at = text ? strstr(text, mark) : NULL;
	if (at) {
		*at = '\0';
		at += strlen(mark);
	}
	return at;
}

/* The first turn, in f->owned[0]. */
static frame_status cut_first(chat_frame *f, bool system) {
	char *at = f->owned[0];
	f->start = "";
	if (system) {
		f->start = at;
		at = cut(at, system_mark);
		if (!at) {
			return FRAME_NO_SYSTEM;
		}
	}
	f->first = at;
	f->first_end = cut(at, first_mark);
	return f->first_end ? FRAME_GOOD : system ? FRAME_NO_SYSTEM : FRAME_UNEVEN;
}

/* The turns after it, in f->owned[1], whose front must be what stood there before. */
static frame_status cut_next(chat_frame *f, const char *before) {
	if (strncmp(f->owned[1], before, strlen(before)) != 0) {
		return FRAME_UNEVEN;
	}
	char *at = cut(f->owned[1], reply_mark);
	f->next = at;
	f->next_end = cut(at, next_mark);
	return f->next_end ? FRAME_GOOD : FRAME_UNEVEN;
}

void chat_frame_free(chat_frame *f) {
	free(f->owned[0]);
	free(f->owned[1]);
	*f = (chat_frame){"", "", "", "", "", {NULL, NULL}};
}

frame_status chat_frame_make(chat_frame *f, const char *name, bool system) {
	const struct llama_chat_message all[] = {
	    {"system", system_mark}, {"user", first_mark}, {"assistant", reply_mark}, {"user", next_mark}};
	const struct llama_chat_message *from = system ? all : all + 1;
	size_t n = system ? 2 : 1;
	*f = (chat_frame){"", "", "", "", "", {NULL, NULL}};
	if (!name) {
		return FRAME_GOOD;
	}
	char *before = apply(name, from, n + 1, false);
	f->owned[0] = apply(name, from, n, true);
	f->owned[1] = apply(name, from, n + 2, true);
	frame_status status = before && f->owned[0] && f->owned[1] ? cut_first(f, system) : FRAME_UNKNOWN;
	status = status ? status : cut_next(f, before);
	free(before);
	if (status) {
		chat_frame_free(f);
	}
	return status;
}
