/* Replays the cases that kvpress computed: layers, and tables of counts. */
#ifndef GOLDEN_KVPRESS_H
#define GOLDEN_KVPRESS_H

#include "casefile.h"
#include "tally.h"

/* kind "layer": keys, values and queries of one layer, and what each press scored and kept of them. */
void kvpress_replay_layer(const casefile *file, tally *counts);

/* kind "tables": how many tokens, or chunks, are kept of how many. */
void kvpress_replay_tables(const casefile *file, tally *counts);

#endif
