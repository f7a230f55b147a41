/* Records made up for tests. */
#ifndef CKV_TESTS_EVAL_MADE_H
#define CKV_TESTS_EVAL_MADE_H

#include "records.h"

char *made_text(const char *text);
/* Of task "t", all values the same KL, the most likely token the same at the first of them; neither judged nor forced; 100
 * of 1,000 bytes. */
record made_record(const char *example, const char *cache, const char *policy, const char *keep, float kl,
                   int32_t n_positions);
run_header made_header(void);
/* What a file has; fails the test where it can't be read. */
char *made_read(const char *path);

#endif
