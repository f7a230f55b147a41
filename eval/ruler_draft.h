/* A text that grows. */
#ifndef CKV_EVAL_RULER_DRAFT_H
#define CKV_EVAL_RULER_DRAFT_H

#include <stdbool.h>
#include <stddef.h>

/* Zeroed: empty. Once memory was short it stays failed, so that it is enough to look at the end. */
typedef struct draft {
	char *data; /* ended by a zero byte; NULL while empty */
	size_t size, capacity;
	bool failed;
} draft;

void draft_add_n(draft *d, const char *text, size_t n);
void draft_add(draft *d, const char *text);
void draft_addf(draft *d, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* For the next text in the same memory. */
void draft_clear(draft *d);
/* Never NULL. */
const char *draft_text(const draft *d);
/* Prints that memory was short, if it was. */
bool draft_good(const draft *d);
void draft_free(draft *d);

#endif
