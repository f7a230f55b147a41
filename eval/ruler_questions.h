/* Questions about documents: SQuAD 2.0 (Rajpurkar et al. 2018) and HotpotQA (Yang et al. 2018), as their files have them. */
#ifndef CKV_EVAL_RULER_QUESTIONS_H
#define CKV_EVAL_RULER_QUESTIONS_H

#include <jansson.h>

#include <stdbool.h>
#include <stdint.h>

/* Documents from first on, n of them, as the file lists them. */
typedef struct range {
	int32_t first, n;
} range;

typedef struct asked {
	const char *question;
	const json_t *answers; /* one string, or an array of objects with a "text" */
	const json_t *facts;   /* HotpotQA: which documents are needed; NULL */
	range own;             /* documents of the question */
	range near;            /* documents of the same article: own and others */
} asked;

typedef struct questions {
	json_t *file; /* owns the strings of items */
	asked *items;
	int32_t n, capacity;
	char **documents; /* as the file lists them */
	int32_t n_documents, document_capacity;
	int32_t *unique; /* [n_documents] the least document with the same text */
} questions;

/* Reads squad.json or hotpotqa.json of a folder. Prints why not: what is missing and how to get it, or what is wrong with
 * the file and where. */
bool questions_load(questions *q, const char *folder, const char *name);
void questions_free(questions *q);

#endif
