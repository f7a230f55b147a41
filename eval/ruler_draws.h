/* Keys and values of needles: words, numbers of 7 digits, UUIDs; none is drawn twice. */
#ifndef CKV_EVAL_RULER_DRAWS_H
#define CKV_EVAL_RULER_DRAWS_H

#include "ruler.h"

enum { DRAW_SIZE = 48 };

/* A needle's key or value. */
typedef struct drawn {
	char text[DRAW_SIZE];
} drawn;

typedef struct draws {
	rng random;
	uint64_t *seen; /* a hash set; 0: free */
	size_t n, capacity;
	const haystack *text; /* nothing that is in it is drawn; NULL */
} draws;

/* A new one. Prints why not. */
bool draws_next(draws *d, needle_kind kind, drawn *out);
void draws_free(draws *d);

#endif
