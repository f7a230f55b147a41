/* Lines of a record file. */
#ifndef CKV_EVAL_RECORDS_LINE_H
#define CKV_EVAL_RECORDS_LINE_H

#include "records.h"

#include <stddef.h>

/* Texts without the newline, to be freed; NULL without memory or where a string is not UTF-8. */
char *line_of_header(const run_header *h);
char *line_of_record(const record *r);
char *line_of_prefill(const char *example, const char *cache, double prefill_s, double other_s, int32_t n_starts);

enum { LINE_REASON_SIZE = 256 };

/* Reads a line, the first as the header, into f. False with the reason in words. */
bool line_read(record_file *f, const char *line, size_t size, bool first, char reason[LINE_REASON_SIZE]);
/* Sums of prefills. */
void prefill_count(record_file *f, double prefill_s, double other_s, int32_t n_starts);

/* The fields of a header that make a run what it is, then those that don't. */
typedef struct header_field {
	const char *name;
	size_t offset;
	bool compared;
} header_field;
const header_field *header_field_at(size_t i); /* NULL past the end */
char **header_value(run_header *h, const header_field *field);

#endif
