/* Text that needles are hidden in, sentence by sentence. Where it ends it begins again. */
#ifndef CKV_EVAL_HAYSTACK_H
#define CKV_EVAL_HAYSTACK_H

#include "ruler_draft.h"

#include "cli.h"

#include <stddef.h>
#include <stdint.h>

/* The project's own document, which CMake puts into the program. */
extern const unsigned char haystack_bundled[];
extern const size_t haystack_bundled_size;

/* Bytes of a sentence, without the white space around it. A heading counts as one. */
typedef struct sentence {
	size_t start, end;
	bool closed; /* by a full stop or the like, so that another sentence may follow it */
} sentence;

typedef struct haystack {
	buffer text;
	sentence *sentences;
	int32_t n, capacity;
	const char *between; /* put where the text begins again; "\n\n" */
} haystack;

/* path NULL: the bundled text. Prints why not: unreadable, or nothing in it. */
bool haystack_read(haystack *h, const char *path);
/* Of a text, which is copied; `what` names it in messages. */
bool haystack_make(haystack *h, const char *what, const char *text, size_t size);
void haystack_free(haystack *h);

/* Appends the sentences first .. last - 1 of the endless text, with the white space before each but the text's first. */
void haystack_write(const haystack *h, int32_t first, int32_t last, draft *out);
/* Bytes of the first n sentences as haystack_write writes them. */
size_t haystack_size(const haystack *h, int32_t n);
/* The place nearest to depth percent of the bytes of n sentences where a sentence may be put in: so many are before it. */
int32_t haystack_place(const haystack *h, int32_t n, double depth);
/* The last such place that is not after `at`. */
int32_t haystack_place_before(const haystack *h, int32_t at);
/* Whether the text has it, in whatever case (of ASCII letters). */
bool haystack_has(const haystack *h, const char *text);

#endif
