/* What became of each output: counts by label, and a line for each failure. */
#ifndef GOLDEN_TALLY_H
#define GOLDEN_TALLY_H

#include <stdbool.h>
#include <stddef.h>

typedef enum verdict { PASSED, FAILED, SKIPPED, N_VERDICTS } verdict;

enum { TALLY_LABEL = 80, TALLY_ROWS = 192 };

typedef struct tally_row {
	char label[TALLY_LABEL];
	size_t count[N_VERDICTS];
} tally_row;

typedef struct tally {
	tally_row rows[TALLY_ROWS]; /* in order of appearance; the last one takes what finds no room */
	size_t n_rows;
	size_t total[N_VERDICTS];
} tally;

/* Adds n outputs of one label. */
void tally_add(tally *counts, const char *label, verdict what, size_t n);

/* Where an output stands. press and ratio may be absent: NULL, negative. */
typedef struct place {
	const char *folder;
	const char *press;
	double ratio;
} place;

/* Counts one failure and prints its line. */
void tally_fail(tally *counts, const char *label, place where, const char *why);

/* The table of labels, then the line of totals. */
void tally_print(const tally *counts);

/* Nothing failed and something passed. */
bool tally_good(const tally *counts);

#endif
