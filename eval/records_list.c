/* Records in order of appearance, found by what they are of: a hash table of numbers beside the array. */
#include "records.h"

#include "cli.h"

#include <stdlib.h>
#include <string.h>

void record_free(record *r) {
	char *own[] = {r->example, r->task, r->cache, r->policy, r->keep, r->reason, r->answer};
	for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
		free(own[i]);
	}
	free(r->kl);
	free(r->same);
	memset(r, 0, sizeof *r);
}

void record_list_free(record_list *list) {
	for (int32_t i = 0; i < list->n; i++) {
		record_free(&list->items[i]);
	}
	free(list->items);
	free(list->index);
	*list = (record_list){NULL, 0, 0, NULL, 0};
}

/* FNV-1a; the zero byte at the end counts, so that strings don't run together. */
static uint64_t add_to_hash(uint64_t hash, const char *text) {
	do {
		hash = (hash ^ (unsigned char)*text) * 1099511628211u;
	} while (*text++);
	return hash;
}

/* The place in the index where the record of this key is, or would be. */
static int32_t place(const record_list *list, const char *const key[4]) {
	uint64_t hash = 14695981039346656037u;
	for (int i = 0; i < 4; i++) {
		hash = add_to_hash(hash, key[i]);
	}
	int32_t at = (int32_t)((hash ^ (hash >> 32)) % (uint64_t)list->n_index);
	for (; list->index[at]; at = (at + 1) % list->n_index) {
		const record *r = &list->items[list->index[at] - 1];
		if (strcmp(r->example, key[0]) == 0 && strcmp(r->policy, key[2]) == 0 && strcmp(r->keep, key[3]) == 0 &&
		    strcmp(r->cache, key[1]) == 0) {
			break;
		}
	}
	return at;
}

static int32_t place_of(const record_list *list, const record *r) {
	const char *const key[] = {r->example, r->cache, r->policy, r->keep};
	return place(list, key);
}

/* Room for one more; the index is at most half full. */
static bool grow(record_list *list) {
	if (list->n < list->capacity) {
		return true;
	}
	if (list->capacity > INT32_MAX / 8) {
		return false;
	}
	int32_t capacity = list->capacity ? 2 * list->capacity : 64, n_index = 2 * capacity + 1;
	record *items = realloc(list->items, (size_t)capacity * sizeof *items);
	if (items) {
		list->items = items;
	}
	int32_t *index = items ? calloc((size_t)n_index, sizeof *index) : NULL;
	if (!index) {
		return false;
	}
	free(list->index);
	list->index = index;
	list->n_index = n_index;
	list->capacity = capacity;
	for (int32_t i = 0; i < list->n; i++) {
		index[place_of(list, &items[i])] = i + 1;
	}
	return true;
}

bool record_list_add(record_list *list, record *r) {
	if (!grow(list)) {
		record_free(r);
		fail("no memory for the records");
		return false;
	}
	int32_t at = place_of(list, r);
	if (list->index[at]) {
		record_free(&list->items[list->index[at] - 1]);
	} else {
		list->index[at] = ++list->n;
	}
	list->items[list->index[at] - 1] = *r;
	memset(r, 0, sizeof *r);
	return true;
}

const record *records_find(const record_list *list, const char *example, const char *cache, const char *policy,
                           const char *keep) {
	const char *const key[] = {example, cache, policy, keep};
	int32_t at = list->n ? place(list, key) : 0;
	return list->n && list->index[at] ? &list->items[list->index[at] - 1] : NULL;
}
