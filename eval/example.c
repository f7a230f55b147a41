#include "example.h"

#include "cli.h"

#include <stdlib.h>
#include <string.h>

bool example_set_n(char **to, const char *text, size_t n) {
	char *copy = text ? malloc(n + 1) : NULL;
	if (text && !copy) {
		fail("no memory for the examples");
		return false;
	}
	if (text) {
		memcpy(copy, text, n);
		copy[n] = '\0';
	}
	free(*to);
	*to = copy;
	return true;
}

bool example_set(char **to, const char *text) { return example_set_n(to, text, text ? strlen(text) : 0); }

bool example_push(char ***list, int32_t *n, const char *text) {
	char **bigger = realloc(*list, ((size_t)*n + 1) * sizeof *bigger);
	if (!bigger) {
		fail("no memory for the examples");
		return false;
	}
	*list = bigger;
	bigger[*n] = NULL;
	if (!example_set(&bigger[*n], text)) {
		return false;
	}
	(*n)++;
	return true;
}

example *example_add(example_list *list, const char *id, const char *task) {
	if (list->n == list->capacity) {
		int32_t capacity = list->capacity ? 2 * list->capacity : 64;
		example *bigger = realloc(list->items, (size_t)capacity * sizeof *bigger);
		if (!bigger) {
			fail("no memory for the examples");
			return NULL;
		}
		list->items = bigger;
		list->capacity = capacity;
	}
	example *e = &list->items[list->n];
	memset(e, 0, sizeof *e);
	e->depth = -1.0;
	if (!example_set(&e->id, id) || !example_set(&e->task, task)) {
		example_free(e);
		return NULL;
	}
	list->n++;
	return e;
}

static void free_strings(char **list, int32_t n) {
	for (int32_t i = 0; i < n; i++) {
		free(list[i]);
	}
	free(list);
}

void example_free(example *e) {
	char *own[] = {e->id, e->task, e->context, e->question, e->begun, e->forced};
	for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
		free(own[i]);
	}
	free_strings(e->answers, e->n_answers);
	free_strings(e->classes, e->n_classes);
	memset(e, 0, sizeof *e);
}

void example_list_free(example_list *list) {
	for (int32_t i = 0; i < list->n; i++) {
		example_free(&list->items[i]);
	}
	free(list->items);
	*list = (example_list){NULL, 0, 0};
}
