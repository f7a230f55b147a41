#include "inspect_figures.h"

#include "inspect_stored.h"

#include <chunkkv/measure.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------------------------ names
 */

static const figure_info figures[N_FIGURES] = {
    [FIGURE_ATTENTION] = {"attention_kept", "Attention kept", "attention",
                          "Share of the last tokens' attention that falls on what is kept.", 1},
    [FIGURE_OUTPUT] = {"output_error", "Output error", "output",
                       "How far the attention's output moves, as a share of its length.", -1},
    [FIGURE_COSINE] = {"attention_cosine", "Attention cosine", "cosine",
                       "Cosine of the attention over everything and over what is kept.", 1},
    [FIGURE_KEYS] = {"key_l1", "Key loss", "keys",
                     "Mean of what keys lose, dropped ones taken as zeros, packed ones as they are read back (L1).", -1},
    [FIGURE_VALUES] = {"value_l1", "Value loss", "values", "The same of values, merged ones as they are then (L1).", -1},
    [FIGURE_JACCARD] = {"jaccard", "Like the layer before", "neighbours",
                        "Tokens that this layer and the one before both keep, of those that either keeps (Jaccard).", 0},
    [FIGURE_ENTROPY] = {"chunk_entropy", "Entropy in chunks", "entropy",
                        "How evenly the kept tokens of a chunk share its score: 1 all alike, 0 one has all.", 0},
    [FIGURE_ENTROPY_STD] = {"chunk_entropy_std", "Its spread", "spread", "How much that differs from chunk to chunk.", 0},
    [FIGURE_COVERAGE] = {"whole_chunks", "Whole chunks", "whole",
                         "Of the chunks of which something is kept, those that are kept as a whole.", 0},
    [FIGURE_RUN] = {"run_length", "Tokens in a run", "run", "Mean length of what is kept without a gap.", 0},
};

const figure_info *figure_at(figure f) { return &figures[f]; }

double inspect_mean(const inspection *in, const inspected *p, figure f) {
	double sum = 0.0;
	int32_t n = 0;
	for (int32_t i = 0; i < in->n_layers; i++) {
		double value = p->figures[i][f];
		sum += isfinite(value) ? value : 0.0;
		n += isfinite(value);
	}
	return n ? sum / n : (double)NAN;
}

/* -------------------------------------------------------------------------------------------------------------- yardstick
 */

bool yardstick_make(yardstick *y, const char *policy, int32_t n_threads) {
	ckv_params params;
	ckv_ctx_options options;
	ckv_error error;
	memset(y, 0, sizeof *y);
	ckv_ctx_options_default(&options);
	options.n_threads = n_threads;
	if (ckv_policy_parse(policy, &params, &error) || ckv_ctx_create(&y->ctx, &params, &options, &error)) {
		fail("%s", error.message);
		return false;
	}
	return true;
}

void yardstick_free(yardstick *y) {
	ckv_ctx_free(y->ctx);
	free(y->scores);
	memset(y, 0, sizeof *y);
}

static bool failed(const yardstick *y, const ckv_layer *layer, ckv_status status) {
	const char *message = ckv_ctx_message(y->ctx);
	fail("layer %d could not be measured: %s", layer->index, *message ? message : ckv_strerror(status));
	return false;
}

bool yardstick_layer(yardstick *y, const ckv_layer *layer) {
	size_t n_heads = (size_t)layer->k.n_heads, n = (size_t)layer->k.n_tokens;
	if (n_heads * n > y->capacity) {
		free(y->scores);
		y->capacity = n_heads * n;
		y->scores = calloc(y->capacity, sizeof *y->scores);
		if (!y->scores) {
			y->capacity = 0;
			fail("no memory for scores");
			return false;
		}
	}
	ckv_status status = ckv_score(y->ctx, layer, ckv_keep_percent(50), y->scores); /* which snapkv does not look at */
	if (status) {
		return failed(y, layer, status);
	}
	for (size_t i = n; i < n_heads * n; i++) {
		y->scores[i % n] += y->scores[i];
	}
	return true;
}

/* Means over the lists, those of one head each. */
static ckv_status measure_chunks(const yardstick *y, const ckv_keep *keep, int32_t n_tokens, double out[N_FIGURES]) {
	double entropies = 0.0, spreads = 0.0, wholes = 0.0, runs = 0.0;
	int32_t n_with = 0;
	ckv_status status = CKV_OK;
	for (int32_t i = 0; i < keep->n_lists && status == CKV_OK; i++) {
		const int32_t *positions = keep->positions + keep->offsets[i];
		size_t n = (size_t)(keep->offsets[i + 1] - keep->offsets[i]);
		double entropy = 0.0, spread = 0.0, whole = 0.0;
		int32_t n_chunks = 0, n_runs = 0;
		status = ckv_chunk_entropy(y->scores, n_tokens, positions, n, YARD_CHUNK, &entropy, &spread, &n_chunks);
		status = status ? status : ckv_chunk_coverage(positions, n, n_tokens, YARD_CHUNK, &whole, &n_runs);
		n_with += n_chunks > 0;
		entropies += entropy;
		spreads += spread;
		wholes += whole;
		runs += n_runs;
	}
	out[FIGURE_ENTROPY] = n_with ? entropies / n_with : (double)NAN;
	out[FIGURE_ENTROPY_STD] = n_with ? spreads / n_with : (double)NAN;
	out[FIGURE_COVERAGE] = wholes / keep->n_lists;
	out[FIGURE_RUN] = runs > 0.0 ? (double)keep->n_positions / runs : (double)NAN;
	return status;
}

bool yardstick_measure(yardstick *y, const ckv_layer *layer, const ckv_keep *keep, const ckv_params *how,
                       double out[N_FIGURES]) {
	stored_rows stored = {NULL, NULL};
	ckv_measures m;
	ckv_measures_init(&m);
	if (how && ckv_params_hosted(how) && !stored_make(&stored, y->ctx, layer, keep, how)) {
		stored_free(&stored);
		return false;
	}
	ckv_status status = ckv_measure_stored(y->ctx, layer, keep, stored.keys, stored.values, &m);
	stored_free(&stored);
	if (status) {
		return failed(y, layer, status);
	}
	out[FIGURE_ATTENTION] = m.attention_kept;
	out[FIGURE_OUTPUT] = m.output_error;
	out[FIGURE_COSINE] = m.attention_cosine;
	out[FIGURE_KEYS] = m.key_l1;
	out[FIGURE_VALUES] = m.value_l1;
	status = measure_chunks(y, keep, layer->k.n_tokens, out);
	return status == CKV_OK || failed(y, layer, status);
}
