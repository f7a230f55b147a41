/* A line of text that says what was wrong. */
#ifndef GOLDEN_NOTE_H
#define GOLDEN_NOTE_H

#include <stdbool.h>

typedef struct note {
	char text[512];
} note;

/* Sets the text and returns false, so that a check can `return note_set(...)`. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
bool note_set(note *why, const char *format, ...);

#endif
