/* Replays the cases that VeloxQuant-MLX computed: caches that tokens stream through. */
#ifndef GOLDEN_VELOXQUANT_H
#define GOLDEN_VELOXQUANT_H

#include "casefile.h"
#include "tally.h"

/* kinds "evict" and "layers": one layer, or several that share a budget or decisions, step after step. */
void veloxquant_replay_stream(const casefile *file, tally *counts);

/* kind "edge": settings at the limits, and which of them are refused. */
void veloxquant_replay_edges(const casefile *file, tally *counts);

/* kind "quant": caches that code their rows, by method. */
void veloxquant_replay_quant(const casefile *file, tally *counts);
void ckv_vectors_palu(const casefile *file, tally *counts);

/* kind "functions": tables of the pure functions. */
void veloxquant_replay_functions(const casefile *file, tally *counts);

#endif
