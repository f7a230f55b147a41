/* The arrays of a case beside a record. Each reads its own file. */
#ifndef GOLDEN_VELOXQUANT_ARRAYS_H
#define GOLDEN_VELOXQUANT_ARRAYS_H

#include "veloxquant_case.h"

/* Positions kept after each step, and -1 behind them. */
bool vq_positions_agree(const vq_case *c, const vq_record *found, const char *name, note *why);

/* How many they are. */
bool vq_lengths_agree(const vq_case *c, const vq_record *found, const char *name, note *why);

/* How many rows attention saw in each step. */
bool vq_returned_agree(const vq_case *c, const vq_record *found, const char *name, note *why);

/* The rows kept at the end, bit for bit (merged ones nearly so), and 0 behind them. */
bool vq_keys_agree(const vq_case *c, const vq_record *found, const char *name, note *why);
bool vq_values_agree(const vq_case *c, const vq_record *found, const char *name, note *why);

/* Their scores. Layers that follow another's decisions have none: 0 in the file. */
bool vq_scores_agree(const vq_case *c, const vq_record *found, const char *name, note *why);

/* What snapkv chooses by in the first step. */
bool vq_window_agrees(const vq_case *c, const vq_record *found, const char *name, note *why);

/* |a - b| <= 5e-5 * max(1, |a|), a expected. */
bool vq_score_agrees(double expected, double found);

#endif
