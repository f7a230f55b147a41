#include "press.h"

#include "policies.h"

#include <stdio.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------- reading */

static bool read_lists(press *p, note *why) {
	static const char *const names[] = {[PER_HEAD] = "per_head", [SHARED] = "shared", [RAGGED] = "ragged"};
	const char *indices;
	if (!field_text(p->entry, "indices", &indices, why)) {
		return false;
	}
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		if (strcmp(indices, names[i]) == 0) {
			p->lists = (press_lists)i;
			return true;
		}
	}
	return note_set(why, "indices '%.40s' are not known", indices);
}

static press_ties ties_of(const press *p) {
	static const press_ties by_lists[] = {[PER_HEAD] = TIED_SCORES, [SHARED] = TIED_CHUNKS, [RAGGED] = TIED_TOGETHER};
	bool moving = p->block && strcmp(p->policy.scorer, "knorm") != 0; /* scores hang on what else is in hand */
	return moving || strcmp(p->kind, "entropy_gated") == 0 ? TIED_COUNT : by_lists[p->lists];
}

/* How it goes about it, beside the policy; the name for that, or NULL when there is nothing. */
static bool read_way(press *p, json_t *params, const char **name, note *why) {
	*name = p->kind;
	if (strcmp(p->kind, "block") == 0) {
		return field_int(params, "block_size", 1, &p->block, why);
	}
	if (strcmp(p->kind, "decoding") == 0) {
		return field_int(params, "target_size", 1, &p->target, why);
	}
	if (strcmp(p->kind, "merging") == 0) {
		p->merge = (ckv_merge){.size = sizeof p->merge, .preset = "merge"};
		return field_number(params, "merge_fraction", &p->merge.fraction, why) &&
		       field_number(params, "similarity_threshold", &p->merge.threshold, why);
	}
	if (strcmp(p->kind, "cam") == 0) {
		return field_int(params, "target_size", 1, &p->target, why) && field_int(params, "n_new", 1, &p->n_new, why) &&
		       field_int(params, "merge_budget", 1, &p->merge_budget, why);
	}
	p->rerotates = strcmp(p->kind, "rerotation") == 0;
	*name = p->rerotates ? p->kind : NULL;
	return true;
}

/* What read_way takes from the parameters. */
static void take_away(const press *p, json_t *params) {
	static const struct {
		const char *kind, *key;
	} taken[] = {{"block", "block_size"},       {"decoding", "target_size"},
	             {"merging", "merge_fraction"}, {"merging", "similarity_threshold"},
	             {"cam", "target_size"},        {"cam", "n_new"},
	             {"cam", "merge_budget"}};
	for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
		if (strcmp(p->kind, taken[i].kind) == 0) {
			json_object_del(params, taken[i].key);
		}
	}
}

/* The policy is told of everything else. */
static bool read_policy(press *p, const char *scorer, const char *selector, json_t *params, note *why) {
	json_t *rest = json_copy(params);
	if (!rest) {
		return note_set(why, "no memory");
	}
	take_away(p, rest);
	bool ok = policy_params(scorer, selector, rest, &p->policy, why);
	json_decref(rest);
	return ok;
}

bool press_read(press *p, const char *name, json_t *entry, note *why) {
	json_t *params;
	*p = (press){.name = name, .entry = entry, .scored_by = name};
	snprintf(p->label, sizeof p->label, "press %s", name);
	if (!field_text(entry, "kind", &p->kind, why) || !field_object(entry, "params", &params, why) ||
	    !field_array(entry, "outputs", &p->outputs, why)) {
		return false;
	}
	const char *selector = policy_selector(p->kind);
	if (!selector) {
		snprintf(p->label, sizeof p->label, "presses of kind %s: no such selector yet", p->kind);
		return true;
	}
	p->scores_itself = strcmp(p->kind, "scorer") == 0;
	if (!p->scores_itself && !field_text(params, "scorer", &p->scored_by, why)) {
		return false;
	}
	const char *scorer = policy_scorer(p->scored_by, &p->allowed);
	if (!scorer) {
		snprintf(p->label, sizeof p->label, "press %s: no such scorer yet", p->scored_by);
		return true;
	}
	p->covered = true;
	const char *way;
	bool ok = read_way(p, params, &way, why);
	snprintf(p->label, sizeof p->label, "%s of %s", way ? way : selector, p->scored_by);
	if (!ok || !read_lists(p, why) || !read_policy(p, scorer, selector, params, why)) {
		return false;
	}
	p->ties = ties_of(p);
	return true;
}

/* -------------------------------------------------------------------------------------------- kept positions */

/* Lists of different length; `n` is their mean. */
static bool ragged_kept(const casefile *file, const inputs *in, const json_t *output, const npy *array, int32_t n, kept *k,
                        note *why) {
	const char *offsets_file;
	npy offsets;
	if (!field_text(output, "offsets", &offsets_file, why) || !casefile_array(file, offsets_file, &offsets, why)) {
		return false;
	}
	bool ok = kept_from_ragged(k, array, &offsets, in->n_heads, why);
	npy_free(&offsets);
	if (ok && array->count != (size_t)n * (size_t)in->n_heads) {
		kept_free(k);
		return note_set(why, "%zu stored positions are not %d for each of %d heads", array->count, n, in->n_heads);
	}
	return ok;
}

bool press_kept(const press *p, const casefile *file, const inputs *in, const json_t *output, kept *expected, note *why) {
	const char *array_file;
	int32_t n;
	npy array;
	note found = {""};
	if (!field_text(output, "file", &array_file, why) || !field_int(output, "n_kept", 1, &n, why) ||
	    !casefile_array(file, array_file, &array, why)) {
		return false;
	}
	bool ok = p->lists == RAGGED ? ragged_kept(file, in, output, &array, n, expected, &found)
	                             : kept_from_array(expected, &array, p->lists == PER_HEAD ? in->n_heads : 0, n, &found);
	npy_free(&array);
	if (ok && !kept_valid(expected, in->n_tokens, &found)) {
		kept_free(expected);
		ok = false;
	}
	return ok || note_set(why, "%.200s: %.200s", array_file, found.text);
}

/* ---------------------------------------------------------------------------------------------------- scores */

bool press_scores_vary(const press *p) { return !json_object_get(p->entry, "scores"); }

static bool find_scores(const press *p, const casefile *file, double ratio, const char **array_file, note *why) {
	json_t *presses, *entry, *outputs;
	if (!field_object(file->root, "presses", &presses, why) || !field_object(presses, p->scored_by, &entry, why)) {
		return false;
	}
	if (json_object_get(entry, "scores")) {
		return field_text(entry, "scores", array_file, why);
	}
	if (!field_array(entry, "outputs", &outputs, why)) {
		return false;
	}
	for (size_t i = 0; i < json_array_size(outputs); i++) {
		double its_ratio;
		const json_t *output = json_array_get(outputs, i);
		if (!field_number(output, "ratio", &its_ratio, why)) {
			return false;
		}
		if (its_ratio <= ratio && its_ratio >= ratio) {
			return field_text(output, "scores", array_file, why);
		}
	}
	return note_set(why, "no scores of press '%.100s' are stored", p->scored_by);
}

bool press_scores(const press *p, const casefile *file, const inputs *in, double ratio, npy *scores, note *why) {
	const char *array_file;
	if (!find_scores(p, file, ratio, &array_file, why) || !casefile_array(file, array_file, scores, why)) {
		return false;
	}
	if (scores->type != NPY_F4 || scores->rank != 2 || scores->shape[0] != (size_t)in->n_heads ||
	    scores->shape[1] != (size_t)in->n_tokens) {
		npy_free(scores);
		return note_set(why, "%.200s is not float32 [%d][%d]", array_file, in->n_heads, in->n_tokens);
	}
	return true;
}
