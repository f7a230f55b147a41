/* The user's own document and questions. */
#include "metric.h"
#include "tasks.h"

#include "cli.h"

#include <stdlib.h>
#include <string.h>

enum { N_PREDICT = 48 };

/* Adds the accepted answers of a list that is separated by '|'; empty ones are none. The list is cut up. */
static bool add_answers(char *from, example *e) {
	for (char *next = NULL; from; from = next) {
		next = strchr(from, '|');
		if (next) {
			*next++ = '\0';
		}
		if (*from && !example_push(&e->answers, &e->n_answers, from)) {
			return false;
		}
	}
	return true;
}

static bool set_question(const char *text, example *e) {
	size_t size = strlen(text) + 3;
	char *question = malloc(size);
	if (!question) {
		fail("no memory for the examples");
		return false;
	}
	snprintf(question, size, "\n\n%s", text);
	e->question = question;
	return true;
}

/* One line of the questions' file, which is cut up. */
static bool add_question(const buffer *document, char *line, int32_t number, const task_options *o, example_list *list) {
	char id[64], *answers = strchr(line, '\t');
	if (answers) {
		*answers++ = '\0';
	}
	snprintf(id, sizeof id, "doc/%d", number);
	example *e = example_add(list, id, "doc");
	if (!e) {
		return false;
	}
	e->n_predict = o->n_predict > 0 ? o->n_predict : N_PREDICT;
	if (!set_question(line, e) || !add_answers(answers, e)) {
		return false;
	}
	e->metric = e->n_answers > 0 ? metric_find("match_any") : NULL;
	return example_set_n(&e->context, document->data, document->size);
}

static void trim_end(char *line) {
	size_t n = strlen(line);
	while (n > 0 && strchr(" \t\r", line[n - 1])) {
		line[--n] = '\0';
	}
}

static bool add_questions(const buffer *document, buffer *questions, const task_options *o, example_list *list) {
	int32_t n = 0, number = 1;
	char *next = NULL;
	for (char *line = questions->data; line && (o->n_examples <= 0 || n < o->n_examples); line = next, number++) {
		next = strchr(line, '\n');
		if (next) {
			*next++ = '\0';
		}
		trim_end(line);
		if (*line == '\t') {
			fail("%s, line %d: answers without a question", o->questions, number);
			return false;
		}
		if (*line && *line != '#' && !add_question(document, line, n++, o, list)) {
			return false;
		}
	}
	if (n == 0) {
		fail("'%s' has no questions: one a line, then a tab and the accepted answers, separated by '|'", o->questions);
	}
	return n > 0;
}

static bool load(const task *t, const char *part, const task_options *o, example_list *list) {
	buffer document = {NULL, 0}, questions = {NULL, 0};
	(void)part;
	if (!o->file || !o->questions) {
		fail("task '%s' needs %s", t->name, o->file ? "--questions: a file with one a line" : "-f: the document");
		return false;
	}
	bool good = text_read(o->file, &document) && text_read(o->questions, &questions);
	if (good && strspn(document.data, " \t\r\n") == document.size) {
		fail("'%s' is empty", o->file);
		good = false;
	}
	good = good && add_questions(&document, &questions, o, list);
	text_free(&document);
	text_free(&questions);
	return good;
}

const task task_doc = {
    .name = "doc",
    .summary = "your own document and questions",
    .needs = "-f FILE: the document; --questions FILE: one a line, then a tab and the answers, separated by '|'",
    .load = load,
};
