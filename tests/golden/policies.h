/* Which policy of the library does what a press of kvpress does. */
#ifndef GOLDEN_POLICIES_H
#define GOLDEN_POLICIES_H

#include "note.h"

#include <chunkkv/chunkkv.h>
#include <jansson.h>

/* The library's scorer for a press ("snapkv_w64": snapkv); NULL when it has none yet. */
const char *policy_scorer(const char *press);

/* The library's selector for a kind of press; NULL when it has none yet. */
const char *policy_selector(const char *kind);

/* The policy of a press in reference mode. Without a scorer only the selector's parameters are taken, to run it over stored
 * scores; with one, a parameter that is not known here is an error: it would be ignored otherwise. */
bool policy_params(const char *scorer, const char *selector, json_t *press_params, ckv_params *params, note *why);

#endif
