/* What an evaluation found out, one record for each example and cache; kept as JSON lines, so that a run that broke off goes
 * on.
 *
 * A file's first line is the header: what all its records have in common. Each further line is a record. Lines are written
 * whole and flushed; one that a kill cut off at the end is dropped when the file is opened again. */
#ifndef CKV_EVAL_RECORDS_H
#define CKV_EVAL_RECORDS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* One cache's showing on one example. Strings are owned. */
typedef struct record {
	char *example, *task;
	char *cache;           /* type of the rows: "f16", "q8_0" */
	char *policy, *keep;   /* "full" and "100%" for the whole cache */
	int32_t length;        /* of a grid; 0 */
	double depth;          /* of a grid; -1 */
	int32_t n_prompt;      /* tokens before the answer */
	int32_t n_cells;       /* held of them, of the longest layer */
	uint64_t bytes;        /* rows held x row size, all layers, as llama.cpp holds them */
	uint64_t bytes_own;    /* where each layer and head has a length of its own */
	uint64_t bytes_full;   /* of the whole cache in the type of the reference */
	double score;          /* 0 to 1; NaN: not judged */
	bool exact;            /* the answer is the reference's, token by token */
	double attention_kept; /* of the window, 0 to 1; -1 */
	double nll;            /* of a forced text, mean over tokens, in nats; NaN */
	int32_t n_positions;   /* of the reference's answer that were compared; 0 for the reference itself */
	float *kl;             /* [n_positions] KL(reference || this), in nats, along the reference's answer */
	uint8_t *same;         /* [n_positions] 1: the same most likely token */
	char *reason;          /* why it is what it is, in words; "" for a plain selection */
	char *answer;
	double seconds; /* for this cache, without the prefill */
} record;

typedef struct record_list {
	record *items;
	int32_t n, capacity;
	int32_t *index; /* [n_index] where a record is by its key: its number + 1, 0 for none */
	int32_t n_index;
} record_list;

/* What a run is: a file of another one is not gone on with. Strings are owned. */
typedef struct run_header {
	char *version;    /* of chunkkv */
	char *tasks;      /* as given when the file was begun; not compared */
	char *model;      /* file name */
	char *model_hash; /* of its content, so that another file of the same name is noticed */
	char *settings;   /* everything else that a record depends on, as text */
	char *setting;    /* "question in the window" or "compressed before the question" */
	char *reference;  /* cache type that the others are compared to */
	char *machine;    /* of the run that began the file; not compared */
	char *date;       /* likewise */
} run_header;

typedef struct record_file {
	FILE *file;
	const char *path;
	run_header header;
	record_list records; /* all that the file has */
	/* Sums over all runs that wrote to it: seconds of prefills, how many, and how many caches started from them. */
	double prefill_s, other_s;
	double apart_s; /* what the prefills would have taken had each cache done its own */
	int32_t n_prefills, n_starts;
} record_file;

/* Opens for going on, or makes. header: what this run is; taken over, also on failure. Prints why not: what differs, or the
 * line that can't be understood. path must outlive f. */
bool records_open(record_file *f, const char *path, run_header *header);
/* Reads alone: for a report of what is there. Closed like the other. */
bool records_read(record_file *f, const char *path);
/* Appends, to the file and to f->records, which takes it over, also on failure. One of the same example and cache as an
 * earlier record takes its place. */
bool records_add(record_file *f, record *r);
/* A prefill of an example was done, that took so long, and served n_starts caches that took other_s. */
bool records_add_prefill(record_file *f, const char *example, const char *cache, double prefill_s, double other_s,
                         int32_t n_starts);
/* NULL: there is none. Lasts until a record is added. */
const record *records_find(const record_list *list, const char *example, const char *cache, const char *policy,
                           const char *keep);
/* False when data could not be written. Frees everything, also of a file that could not be opened. */
bool records_close(record_file *f);
/* The list without a file. Takes r over, also on failure; prints that. */
bool record_list_add(record_list *list, record *r);
void record_list_free(record_list *list);
void record_free(record *r);
void run_header_free(run_header *h);

#endif
