#define _POSIX_C_SOURCE 200809L
#include "ruler_questions.h"

#include "ruler_draft.h"

#include "cli.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Where in the file something is wrong, as a path. */
typedef struct reader {
	questions *out;
	const char *path;
	size_t article, paragraph, question;
} reader;

static bool no_memory(void) {
	fail("no memory for the questions");
	return false;
}

static bool add_document(questions *q, char *text) {
	if (!text) {
		return no_memory();
	}
	if (q->n_documents == q->document_capacity) {
		int32_t capacity = q->document_capacity ? 2 * q->document_capacity : 1024;
		char **bigger = capacity < INT32_MAX / 2 ? realloc(q->documents, (size_t)capacity * sizeof *bigger) : NULL;
		if (!bigger) {
			free(text);
			return no_memory();
		}
		q->documents = bigger;
		q->document_capacity = capacity;
	}
	q->documents[q->n_documents++] = text;
	return true;
}

static bool add_asked(questions *q, asked item) {
	if (q->n == q->capacity) {
		int32_t capacity = q->capacity ? 2 * q->capacity : 1024;
		asked *bigger = capacity < INT32_MAX / 2 ? realloc(q->items, (size_t)capacity * sizeof *bigger) : NULL;
		if (!bigger) {
			return no_memory();
		}
		q->items = bigger;
		q->capacity = capacity;
	}
	q->items[q->n++] = item;
	return true;
}

/* ----------------------------------------------------------------------------------------------------------------- SQuAD */

static bool wrong_squad(const reader *r, const char *what) {
	fail("%s: in data[%zu].paragraphs[%zu].qas[%zu] %s; is it SQuAD 2.0?", r->path, r->article, r->paragraph, r->question,
	     what);
	return false;
}

static bool answers_good(const json_t *answers) {
	size_t i;
	json_t *item;
	json_array_foreach(answers, i, item) {
		if (!json_string_value(json_object_get(item, "text"))) {
			return false;
		}
	}
	return json_array_size(answers) > 0;
}

static bool read_squad_questions(reader *r, const json_t *list, range own, range near) {
	json_t *item;
	if (!json_is_array(list)) {
		return wrong_squad(r, "there is no array of questions");
	}
	json_array_foreach(list, r->question, item) {
		asked a = {json_string_value(json_object_get(item, "question")), json_object_get(item, "answers"), NULL, own, near};
		if (json_is_true(json_object_get(item, "is_impossible"))) {
			continue;
		}
		if (!a.question) {
			return wrong_squad(r, "there is no \"question\"");
		}
		if (!answers_good(a.answers)) {
			return wrong_squad(r, "there is no answer with a \"text\"");
		}
		if (!add_asked(r->out, a)) {
			return false;
		}
	}
	r->question = 0;
	return true;
}

static bool read_squad_article(reader *r, const json_t *paragraphs) {
	questions *q = r->out;
	range near = {q->n_documents, (int32_t)json_array_size(paragraphs)};
	json_t *paragraph;
	if (!json_is_array(paragraphs)) {
		return wrong_squad(r, "there are no paragraphs");
	}
	json_array_foreach(paragraphs, r->paragraph, paragraph) {
		const char *text = json_string_value(json_object_get(paragraph, "context"));
		range own = {q->n_documents, 1};
		if (!text) {
			return wrong_squad(r, "there is no \"context\"");
		}
		if (!add_document(q, strdup(text)) || !read_squad_questions(r, json_object_get(paragraph, "qas"), own, near)) {
			return false;
		}
	}
	r->paragraph = 0;
	return true;
}

static bool read_squad(reader *r) {
	const json_t *data = json_object_get(r->out->file, "data");
	json_t *article;
	if (!json_is_array(data)) {
		fail("%s: there is no array \"data\"; is it SQuAD 2.0?", r->path);
		return false;
	}
	json_array_foreach(data, r->article, article) {
		if (!read_squad_article(r, json_object_get(article, "paragraphs"))) {
			return false;
		}
	}
	return true;
}

/* -------------------------------------------------------------------------------------------------------------- HotpotQA */

static bool wrong_hotpot(const reader *r, const char *what) {
	fail("%s: in question [%zu], %s; is it HotpotQA (distractor)?", r->path, r->question, what);
	return false;
}

/* [title, [sentence, ...]] */
static bool read_hotpot_document(reader *r, const json_t *document) {
	const char *title = json_string_value(json_array_get(document, 0));
	const json_t *sentences = json_array_get(document, 1);
	draft text = {0};
	size_t i;
	json_t *piece;
	if (!title || !json_is_array(sentences)) {
		return wrong_hotpot(r, "a document is not a title and an array of sentences");
	}
	draft_addf(&text, "%s\n", title);
	json_array_foreach(sentences, i, piece) {
		if (!json_is_string(piece)) {
			draft_free(&text);
			return wrong_hotpot(r, "a sentence is not a string");
		}
		draft_add(&text, json_string_value(piece));
	}
	if (!draft_good(&text)) {
		draft_free(&text);
		return false;
	}
	return add_document(r->out, text.data);
}

static bool read_hotpot_question(reader *r, const json_t *item) {
	questions *q = r->out;
	const json_t *context = json_object_get(item, "context"), *reply = json_object_get(item, "answer");
	range own = {q->n_documents, (int32_t)json_array_size(context)};
	asked a = {json_string_value(json_object_get(item, "question")), reply, json_object_get(item, "supporting_facts"), own,
	           own};
	size_t i;
	json_t *document;
	if (!a.question || !json_is_string(reply)) {
		return wrong_hotpot(r, "\"question\" and \"answer\" must be strings");
	}
	if (own.n == 0) {
		return wrong_hotpot(r, "there is no document in \"context\"");
	}
	json_array_foreach(context, i, document) {
		if (!read_hotpot_document(r, document)) {
			return false;
		}
	}
	return add_asked(q, a);
}

static bool read_hotpot(reader *r) {
	json_t *item;
	if (!json_is_array(r->out->file)) {
		fail("%s: it must be an array of questions; is it HotpotQA (distractor)?", r->path);
		return false;
	}
	json_array_foreach(r->out->file, r->question, item) {
		if (!read_hotpot_question(r, item)) {
			return false;
		}
	}
	return true;
}

/* ------------------------------------------------------------------------------------------------------------------ both */

typedef struct entry {
	const char *text;
	int32_t number;
} entry;

static int by_text(const void *a, const void *b) {
	const entry *x = a, *y = b;
	int order = strcmp(x->text, y->text);
	return order ? order : (x->number > y->number) - (x->number < y->number);
}

/* A text that is listed more than once must not be given twice. */
static bool find_unique(questions *q) {
	size_t n = (size_t)q->n_documents;
	entry *sorted = malloc((n + 1) * sizeof *sorted);
	q->unique = malloc((n + 1) * sizeof *q->unique);
	if (!sorted || !q->unique) {
		free(sorted);
		return no_memory();
	}
	for (size_t i = 0; i < n; i++) {
		sorted[i] = (entry){q->documents[i], (int32_t)i};
	}
	qsort(sorted, n, sizeof *sorted, by_text);
	for (size_t i = 0, first = 0; i < n; i++) {
		first = strcmp(sorted[first].text, sorted[i].text) == 0 ? first : i;
		q->unique[sorted[i].number] = sorted[first].number;
	}
	free(sorted);
	return true;
}

static bool open_json(questions *q, const char *folder, const char *name, const char *path) {
	json_error_t error;
	if (access(path, R_OK) != 0) {
		fail("there is no %s to be read in '%s': scripts/fetch-ruler.sh gets it and prints its folder, which --data takes",
		     name, folder);
		return false;
	}
	q->file = json_load_file(path, 0, &error);
	if (!q->file) {
		fail("%s, line %d: %s", path, error.line, error.text);
	}
	return q->file != NULL;
}

static bool read_all(questions *q, const char *folder, const char *name, const char *path) {
	reader r = {.out = q, .path = path};
	if (!open_json(q, folder, name, path)) {
		return false;
	}
	if (!(strcmp(name, "squad.json") == 0 ? read_squad(&r) : read_hotpot(&r))) {
		return false;
	}
	if (q->n == 0) {
		fail("%s has no question with an answer", path);
		return false;
	}
	return find_unique(q);
}

bool questions_load(questions *q, const char *folder, const char *name) {
	*q = (questions){0};
	draft path = {0};
	if (!folder) {
		fail("%s is needed: scripts/fetch-ruler.sh gets it and prints its folder, which --data takes", name);
		return false;
	}
	draft_addf(&path, "%s/%s", folder, name);
	bool good = draft_good(&path) && read_all(q, folder, name, path.data);
	draft_free(&path);
	if (!good) {
		questions_free(q);
	}
	return good;
}

void questions_free(questions *q) {
	for (int32_t i = 0; i < q->n_documents; i++) {
		free(q->documents[i]);
	}
	free(q->documents);
	free(q->items);
	free(q->unique);
	json_decref(q->file);
	*q = (questions){0};
}
