/* Which policy of the library does what a press of kvpress does. */
#ifndef GOLDEN_POLICIES_H
#define GOLDEN_POLICIES_H

#include "kept.h"
#include "note.h"

#include <chunkkv/chunkkv.h>
#include <jansson.h>

/* The library's scorer for a press ("snapkv_w64": snapkv), and how far scores may be apart; NULL when there is none yet. */
const char *policy_scorer(const char *press, tolerance *allowed);

/* The library's selector for a kind of press; NULL when there is none yet. */
const char *policy_selector(const char *kind);

/* A policy in reference mode. */
void policy_reference(const char *scorer, const char *selector, ckv_params *params);

/* The same with the parameters of a press. One that is not known here, or has a value that the library cannot have, is an
 * error: it would be ignored otherwise. */
bool policy_params(const char *scorer, const char *selector, json_t *press_params, ckv_params *params, note *why);

#endif
