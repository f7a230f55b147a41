/* Comma-separated values (RFC 4180) with a header line: fields in quotes may hold commas, quotes and newlines. */
#ifndef CKV_EVAL_CSV_H
#define CKV_EVAL_CSV_H

#include "cli.h"

typedef struct csv {
	buffer text;      /* fields are taken out of their quotes where they are */
	const char *path; /* borrowed */
	size_t at;        /* first byte not read yet */
	int32_t line;     /* that the record read last begins at, from 1 */
	int32_t next;     /* that `at` is in */
	char **names;     /* [n_columns] of the header */
	char **fields;    /* [n_columns] of the record read last */
	size_t n_columns;
} csv;

/* Reads the header. Prints why not. */
bool csv_open(csv *f, const char *path);
/* The number of a column; -1: there is none, and nothing is printed. */
int32_t csv_find(const csv *f, const char *name);
/* The same, and prints which there are. */
int32_t csv_column(const csv *f, const char *name);
/* 1: the fields are of the next record, until the next call; 0: that was all; -1: a fault, which is printed. */
int csv_next(csv *f);
void csv_close(csv *f);

#endif
