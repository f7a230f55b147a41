#include "tally.h"

#include <stdio.h>
#include <string.h>

static tally_row *find_row(tally *counts, const char *label) {
	size_t i = 0;
	while (i < counts->n_rows && strcmp(counts->rows[i].label, label) != 0) {
		i++;
	}
	if (i >= TALLY_ROWS - 1) {
		i = TALLY_ROWS - 1;
		label = "(other labels)";
	}
	if (i >= counts->n_rows) {
		snprintf(counts->rows[i].label, sizeof counts->rows[i].label, "%s", label);
		counts->n_rows = i + 1;
	}
	return &counts->rows[i];
}

void tally_add(tally *counts, const char *label, verdict what, size_t n) {
	if (n > 0) {
		find_row(counts, label)->count[what] += n;
		counts->total[what] += n;
	}
}

void tally_fail(tally *counts, const char *label, place where, const char *why) {
	tally_add(counts, label, FAILED, 1);
	printf("FAILED %s", where.folder);
	if (where.press) {
		printf(" %s", where.press);
	}
	if (where.ratio >= 0) {
		printf(" ratio %g", where.ratio);
	}
	printf(" (%s): %s\n", label, why);
}

void tally_print(const tally *counts) {
	if (counts->n_rows > 0) {
		printf("passed failed skipped\n");
	}
	for (size_t i = 0; i < counts->n_rows; i++) {
		const tally_row *row = &counts->rows[i];
		printf("%6zu %6zu %7zu  %s\n", row->count[PASSED], row->count[FAILED], row->count[SKIPPED], row->label);
	}
	printf("%zu passed, %zu failed, %zu skipped\n", counts->total[PASSED], counts->total[FAILED], counts->total[SKIPPED]);
}

bool tally_good(const tally *counts) { return counts->total[FAILED] == 0 && counts->total[PASSED] > 0; }
