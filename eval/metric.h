/* How replies are judged. */
#ifndef CKV_EVAL_METRIC_H
#define CKV_EVAL_METRIC_H

#include "example.h"

#include <stddef.h>

typedef struct metric {
	const char *name;
	const char *summary; /* one line */
	/* 0 to 1, higher is better. reply is UTF-8, never NULL. Source: the metric's own comment. */
	double (*judge)(const example *e, const char *reply);
} metric;

/* NULL: there is none of that name; or past the end. */
const metric *metric_find(const char *name);
const metric *metric_at(size_t i);

#endif
