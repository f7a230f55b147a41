/* Kind "functions": tables of what the pure functions give, entry by entry. */
#include "veloxquant.h"
#include "veloxquant_equal.h"
#include "veloxquant_job.h"
#include "veloxquant_tables.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A list of whole numbers in range, or an error; from malloc. */
static int32_t *read_list(const json_t *list, size_t *n, note *why) {
	*n = json_array_size(list);
	int32_t *numbers = malloc(*n * sizeof *numbers + 1);
	bool ok = (numbers && json_is_array(list) && *n <= VQ_MAX_LIST) || note_set(why, "a list is missing or too long");
	for (size_t i = 0; ok && i < *n; i++) {
		const json_t *value = json_array_get(list, i);
		json_int_t number = json_integer_value(value);
		ok = (json_is_integer(value) && number >= 0 && number <= INT32_MAX) || note_set(why, "not a list of counts");
		numbers[i] = ok ? (int32_t)number : 0;
	}
	if (!ok) {
		free(numbers);
		numbers = NULL;
	}
	return numbers;
}

/* Whether a list in an entry is that one. */
bool vq_list_agrees(const json_t *entry, const char *key, const int32_t *found, size_t n_found, note *why) {
	size_t n;
	int32_t *expected = read_list(json_object_get(entry, key), &n, why);
	if (!expected) {
		return false;
	}
	bool same = n == n_found || note_set(why, "%zu entries expected, %zu found", n, n_found);
	for (size_t i = 0; i < n && same; i++) {
		same = expected[i] == found[i] || note_set(why, "entry %zu: %d expected, %d found", i, expected[i], found[i]);
	}
	free(expected);
	return same;
}

static const struct {
	const char *name;
	bool (*check)(const vq_tables *in, const json_t *entry, note *why);
} tables[] = {
    {"pyramid_budgets", vq_check_pyramid}, {"squeeze_budgets", vq_check_squeeze},
    {"keep_mask", vq_check_mask},          {"chunk_partition", vq_check_partition},
    {"chunk_scores", vq_check_scores},     {"concentration", vq_check_concentration},
    {"uniform_draws", vq_check_draw},      {"merge_gate", vq_check_gate},
    {"palu_head_groups", vq_check_groups},
};

static void replay_table(const casefile *file, tally *counts, const vq_tables *in, const char *name, const json_t *entries) {
	vq_job job;
	size_t t = 0;
	bool equal = strcmp(name, "c1_equals_h2o") == 0;
	vq_job_init(&job, file, counts, name);
	while (t < sizeof tables / sizeof *tables && strcmp(name, tables[t].name) != 0) {
		t++;
	}
	bool covered = equal || t < sizeof tables / sizeof *tables;
	for (size_t i = 0; i < json_array_size(entries); i++) {
		const json_t *entry = json_array_get(entries, i);
		char item[32];
		note why = {""};
		snprintf(item, sizeof item, "entry %zu", i);
		if (!covered) {
			vq_skip(&job, "no replay yet");
		} else if (equal) {
			vq_replay_equal(&job, entry, i);
		} else {
			vq_count(&job, item, tables[t].check(in, entry, &why), &why);
		}
	}
}

static bool read_inputs(const casefile *file, vq_tables *in, note *why) {
	if (!casefile_array(file, "mask_scores.npy", &in->scores, why) ||
	    !casefile_array(file, "concentration_keys.npy", &in->keys, why)) {
		return false;
	}
	return (in->scores.type == NPY_F4 && in->scores.rank == 2 && in->keys.type == NPY_F2 && in->keys.rank == 3) ||
	       note_set(why, "mask_scores is not float32 [rows][n], or concentration_keys not float16 [rows][n][dim]");
}

void veloxquant_replay_functions(const casefile *file, tally *counts) {
	vq_tables in = {{.data = NULL}, {.data = NULL}};
	note why = {""};
	const char *name;
	json_t *value;
	if (!read_inputs(file, &in, &why)) {
		vq_job job;
		vq_job_init(&job, file, counts, "inputs");
		vq_count(&job, "case", false, &why);
	} else {
		json_object_foreach(file->root, name, value) {
			if (json_is_array(value)) {
				replay_table(file, counts, &in, name, value);
			}
		}
	}
	npy_free(&in.scores);
	npy_free(&in.keys);
}
