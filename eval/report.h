/* The page that an evaluation leaves: one HTML file that needs nothing from elsewhere. */
#ifndef CKV_EVAL_REPORT_H
#define CKV_EVAL_REPORT_H

#include "records.h"

/* Written to a file beside path, then renamed: never half a page. Prints why not. */
bool report_write(const record_file *f, const char *path);

#endif
