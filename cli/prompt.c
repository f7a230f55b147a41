/* Document and questions, and the tokens that they become.
 *
 * A question may be part of the prompt, and is then in view when the cache is compressed; or it comes after a document that
 * was compressed without it. The prompt then ends before the question's first character and is turned into tokens apart
 * from it, so that it is the same for every question. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

/* --------------------------------------------------------------------------------------------------------- reading */

static bool blank(const buffer *t) { return t->size == 0 || strspn(t->data, " \t\r\n") == t->size; }

/* document without its end of white space, gap, question */
static bool join(const buffer *document, const char *gap, const buffer *asked, buffer *out) {
	size_t n = document->size;
	while (n > 0 && strchr(" \t\r\n", document->data[n - 1])) {
		n--;
	}
	out->size = n + strlen(gap) + asked->size;
	out->data = malloc(out->size + 1);
	if (!out->data) {
		fail("no memory for the prompt");
		return false;
	}
	if (n) {
		memcpy(out->data, document->data, n);
	}
	snprintf(out->data + n, out->size - n + 1, "%s%s", gap, asked->size ? asked->data : "");
	return true;
}

static bool copy_question(const char *text, buffer *out) {
	out->size = strlen(text);
	out->data = malloc(out->size + 1);
	if (!out->data) {
		fail("no memory for the question");
		return false;
	}
	memcpy(out->data, text, out->size + 1);
	return text_check("the question", out->data, out->size);
}

/* Document and question in one. */
static bool read_together(engine *e, buffer *document, buffer *asked) {
	const run_options *o = e->options;
	if (o->document && !text_read(o->document, document)) {
		return false;
	}
	bool from_input = !o->question && !(o->document && strcmp(o->document, "-") == 0);
	if (!(o->question ? copy_question(o->question, asked) : !from_input || text_read("-", asked))) {
		return false;
	}
	if (blank(document) && blank(asked)) {
		fail("the prompt is empty: give a document with -f, a question with -p");
		return false;
	}
	return join(document, document->size && asked->size ? "\n\n" : "", asked, &e->content);
}

/* The document alone, and each question for itself. */
static bool read_apart(engine *e, buffer *document) {
	const run_options *o = e->options;
	const buffer none = {NULL, 0};
	if (!text_read(o->document, document)) {
		return false;
	}
	if (blank(document)) {
		fail("the document is empty: there is nothing to compress before the question");
		return false;
	}
	int32_t n = o->n_questions ? o->n_questions : 1;
	e->questions = calloc((size_t)n, sizeof *e->questions);
	if (!e->questions) {
		fail("no memory for the questions");
		return false;
	}
	e->n_questions = n;
	for (int32_t i = 0; i < n; i++) {
		buffer *text = &e->questions[i].text;
		if (!(o->n_questions ? copy_question(o->questions[i], text) : text_read("-", text))) {
			return false;
		}
		if (blank(text)) {
			fail("question %d is empty", i + 1);
			return false;
		}
	}
	return join(document, "\n\n", &none, &e->content);
}

void engine_drop_text(engine *e) {
	for (int32_t i = 0; i < e->n_questions; i++) {
		text_free(&e->questions[i].text);
		free(e->questions[i].tokens);
	}
	free(e->questions);
	free(e->prompt);
	text_free(&e->content);
	e->questions = NULL;
	e->prompt = NULL;
	e->n_questions = e->n_prompt = 0;
}

bool engine_read(engine *e) {
	buffer document = {NULL, 0}, asked = {NULL, 0};
	engine_drop_text(e);
	bool good = e->options->agnostic ? read_apart(e, &document) : read_together(e, &document, &asked);
	text_free(&document);
	text_free(&asked);
	return good;
}

/* -------------------------------------------------------------------------------------------------------- template */

static const char marker[] = "@@chunkkv:content@@";

/* The conversation with a marker where the user's text belongs, by a template's name or text; NULL when it is unknown. */
static char *apply_template(const char *name, const char *system) {
	struct llama_chat_message messages[2] = {{"system", system}, {"user", marker}};
	const struct llama_chat_message *first = system ? messages : messages + 1;
	size_t n = system ? 2 : 1;
	int32_t size = llama_chat_apply_template(name, first, n, true, NULL, 0);
	char *out = size < 0 ? NULL : malloc((size_t)size + 1);
	if (out) {
		llama_chat_apply_template(name, first, n, true, out, size);
		out[size] = '\0';
	}
	return out;
}

void prompt_explain_templates(const char *name) {
	const char *names[256];
	int32_t n = llama_chat_builtin_templates(names, sizeof names / sizeof *names);
	if (name) {
		fail("llama.cpp has no built-in chat template '%s'; it has:", name);
	} else {
		fail("llama.cpp does not know this model's chat template; name one with --chat-template, or use --no-chat-template; "
		     "there are:");
	}
	for (int32_t i = 0; i < n && i < (int32_t)(sizeof names / sizeof *names); i++) {
		fprintf(stderr, "%s%s", i ? " " : "  ", names[i]);
	}
	fputc('\n', stderr);
}

/* What stands before and after the user's text; both empty without a template. The two are one allocation. */
typedef struct frame {
	char *head, *tail;
} frame;

static bool make_frame(const engine *e, frame *f) {
	const run_options *o = e->options;
	const char *name = o->chat_template ? o->chat_template : llama_model_chat_template(e->model, NULL);
	bool none = o->no_chat_template || !name;
	if (none && !o->no_chat_template && !o->quiet) {
		fputs("note: the model brings no chat template; the text goes in as it is\n", stderr);
	}
	f->head = none ? calloc(1, 1) : apply_template(name, o->system);
	char *at = f->head && !none ? strstr(f->head, marker) : f->head;
	if (!at) {
		if (none) {
			fail("no memory for the prompt");
		} else {
			prompt_explain_templates(o->chat_template);
		}
		return false;
	}
	f->tail = none ? at : at + strlen(marker);
	*at = '\0';
	return true;
}

/* ---------------------------------------------------------------------------------------------------------- tokens */

static bool add_content(const engine *e, token_list *list, const frame *f) {
	bool framed = *f->head != '\0';
	return (!framed || tokens_add(list, e->vocab, f->head, strlen(f->head), true, true)) &&
	       tokens_add(list, e->vocab, e->content.data, e->content.size, !framed, false);
}

static bool add_tail(const engine *e, token_list *list, const frame *f) {
	return (*f->tail == '\0' || tokens_add(list, e->vocab, f->tail, strlen(f->tail), false, true)) &&
	       (!e->begun || tokens_add(list, e->vocab, e->begun, strlen(e->begun), false, false));
}

static bool add_question(const engine *e, engine_question *q, const frame *f) {
	token_list list = {NULL, 0};
	bool good = tokens_add(&list, e->vocab, q->text.data, q->text.size, false, false) && add_tail(e, &list, f);
	q->tokens = list.data;
	q->n_tokens = list.size;
	if (good && q->n_tokens == 0) {
		fail("question %d has no tokens", (int)(q - e->questions) + 1);
		good = false;
	}
	return good;
}

bool engine_prompt(engine *e) {
	frame f = {NULL, NULL};
	token_list list = {NULL, 0};
	bool good = make_frame(e, &f) && add_content(e, &list, &f) && (e->n_questions || add_tail(e, &list, &f));
	e->prompt = list.data;
	e->n_prompt = list.size;
	if (good && e->n_prompt == 0) {
		fail("the prompt is empty: it has no tokens");
		good = false;
	}
	for (int32_t i = 0; i < e->n_questions && good; i++) {
		good = add_question(e, &e->questions[i], &f);
	}
	free(f.head);
	return good;
}

int32_t engine_longest_question(const engine *e) {
	int32_t longest = 0;
	for (int32_t i = 0; i < e->n_questions; i++) {
		longest = e->questions[i].n_tokens > longest ? e->questions[i].n_tokens : longest;
	}
	return longest;
}
