/* Text and numbers put into a page. */
#ifndef CKV_EVAL_HTML_H
#define CKV_EVAL_HTML_H

#include "summary.h"

#include <stdbool.h>
#include <stdio.h>

/* Whatever a text holds, it stays text: markup is escaped, what is not UTF-8 or a control character is shown as U+FFFD. In
 * attributes too. NULL: "". */
void html_text(FILE *out, const char *text);
/* The same of "preset:key=value,key=value", which a line may break between; not for attributes and pictures. */
void html_setting(FILE *out, const char *text);
/* At most so many characters, then an ellipsis. */
void html_short(FILE *out, const char *text, int most);
/* Characters of a text, as html_text shows them. */
int html_length(const char *text);

/* So many digits as a difference in it might mean something: 0.0123, 1.23, 12.3; NaN as a dash. */
void html_number(FILE *out, double value);
/* With a sign, as differences are. */
void html_difference(FILE *out, double value);
void html_percent(FILE *out, double share);
void html_bytes(FILE *out, double bytes);
void html_seconds(FILE *out, double seconds);

/* "0.22 [0.15, 0.31]", running text. */
void html_interval(FILE *out, interval x);
/* The value with its bounds beneath, a cell's content. put: how each is written. */
void html_bounded(FILE *out, interval x, void (*put)(FILE *, double));

/* Whether a page can be written there, before much work is done for it; prints why not. */
bool html_can_write(const char *path);
/* Writes a page to a file beside path, then renames it: never half a page. put: false when it has printed why not. Prints
 * what else went wrong. */
bool html_write(const char *path, bool (*put)(FILE *out, const void *user), const void *user);

#endif
