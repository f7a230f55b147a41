/* Files of JSON objects: one a line (JSON lines), or one array of them. */
#ifndef CKV_EVAL_JSONL_H
#define CKV_EVAL_JSONL_H

#include "cli.h"

#include <jansson.h>

typedef struct jsonl {
	buffer text;
	const char *path; /* borrowed */
	size_t at;        /* first byte not read yet */
	int32_t line;     /* of the object read last, from 1 */
	int32_t next;     /* that `at` is in */
	bool array, begun, ended;
} jsonl;

/* Prints why not. */
bool jsonl_open(jsonl *f, const char *path);
/* 1: *item is the next object, to be given back with json_decref; 0: that was all; -1: a fault, which is printed. */
int jsonl_next(jsonl *f, json_t **item);
/* Prints a fault of the object read last: "file.jsonl, line 12: ...". Returns false. */
bool jsonl_fail(const jsonl *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A string of the object read last; NULL when it is none, which is printed. Borrowed from item. */
const char *jsonl_string(const jsonl *f, const json_t *item, const char *key);
void jsonl_close(jsonl *f);

#endif
