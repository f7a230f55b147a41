/* What the adapter keeps of a real prompt on the default model, against what the published Python code kept of the same
 * prompt with the same model's weights in float32: the whole way, from the graph's nodes to the positions. Roundings differ
 * (the weights stay quantised here), so a few positions may. */
#include "support.h"

#include "tests/golden/casefile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_RATIOS = 3, N_LAYERS = 3, HEADS = 3 };

static const double ratios[N_RATIOS] = {0.5, 0.7, 0.9};
static const int32_t layers[N_LAYERS] = {0, 8, 20};

/* A press of the vectors and the policy that is the same. */
static const struct {
	const char *press, *policy;
} presses[] = {
    {"snapkv_w16", "snapkv:mode=reference,window=16"},
    {"snapkv_w64", "snapkv:mode=reference,window=64"},
    {"tova", "tova:mode=reference"},
    {"knorm", "l2norm:mode=reference"},
    {"ea", "expected-attention:mode=reference"},
    {"keydiff", "keydiff:mode=reference"},
    {"streaming", "streamingllm:mode=reference"},
    {"lagkv", "lagkv:mode=reference"},
    {"lagkv_l32", "lagkv:mode=reference,lag=32"},
    {"chunkkv_snapkv_w16_c10", "chunkkv:mode=reference"},
    {"chunkkv_ea_c20", "chunkkv:mode=reference,chunk=20,scorer=expected_attention,window=0"},
    {"eg_snapkv_w16_c10_l4", "egchunkkv:mode=reference"},
    {"eg_keydiff_c20_l4", "egchunkkv:mode=reference,chunk=20,scorer=keydiff"},
    {"adakv_snapkv_w32", "adakv:mode=reference,window=32"},
};

enum { N_PRESSES = sizeof presses / sizeof *presses };

static void read_array(int32_t layer, const char *name, npy *out) {
	char path[1024];
	note why = {""};
	snprintf(path, sizeof path, "%s/smollm2_135m_layer%02d/%s.npy", CKV_VECTORS, layer, name);
	if (!npy_read(path, out, &why)) {
		fail_msg("%s: %s", path, why.text);
	}
	assert_int_equal(out->type, NPY_I4);
}

/* Whether no tie decided what the press kept: only then are there positions to compare. */
static bool decided(int32_t layer, int press, double ratio) {
	char folder[1024];
	casefile file;
	json_t *all, *entry, *outputs;
	note why = {""};
	bool found = false, ok = false;
	snprintf(folder, sizeof folder, "%s/smollm2_135m_layer%02d", CKV_VECTORS, layer);
	if (!casefile_open(&file, folder, &why) || !field_object(file.root, "presses", &all, &why) ||
	    !field_object(all, presses[press].press, &entry, &why) || !field_array(entry, "outputs", &outputs, &why)) {
		fail_msg("%s: %s", folder, why.text);
	}
	for (size_t i = 0; i < json_array_size(outputs); i++) {
		const json_t *output = json_array_get(outputs, i);
		double its = json_number_value(json_object_get(output, "ratio"));
		if (its >= ratio && its <= ratio) {
			found = true;
			ok = strcmp(json_string_value(json_object_get(output, "status")), "ok") == 0;
		}
	}
	casefile_close(&file);
	assert_true(found);
	return ok;
}

/* The positions that the press kept in one head. */
static void expected(int32_t layer, int press, double ratio, int32_t head, npy *kept, const int32_t **positions,
                     int32_t *n) {
	char name[160];
	npy offsets;
	snprintf(name, sizeof name, "kept_%s_%g", presses[press].press, ratio);
	read_array(layer, name, kept);
	*positions = kept->data;
	*n = (int32_t)kept->shape[kept->rank - 1];
	if (strncmp(presses[press].press, "adakv", 5) == 0) {
		snprintf(name, sizeof name, "offsets_%s_%g", presses[press].press, ratio);
		read_array(layer, name, &offsets);
		const int32_t *at = offsets.data;
		*positions += at[head];
		*n = at[head + 1] - at[head];
		npy_free(&offsets);
	} else if (kept->rank == 2) {
		*positions += head * *n;
	}
}

static int32_t common(const int32_t *a, int32_t n, const int32_t *b, int32_t m) {
	int32_t count = 0;
	for (int32_t i = 0, j = 0; i < n && j < m;) {
		bool step = a[i] <= b[j], other = b[j] <= a[i];
		count += step && other;
		i += step;
		j += other;
	}
	return count;
}

/* Share of a press' positions that are kept here too; 1 when ties decided all of them. */
static double agreement(const ckv_llama *ckv, int press, double ratio) {
	int64_t same = 0, all = 0;
	for (int k = 0; k < N_LAYERS; k++) {
		for (int32_t head = 0; head < HEADS && decided(layers[k], press, ratio); head++) {
			npy kept;
			const int32_t *theirs, *ours;
			int32_t n, m = 0, lists = ckv_llama_positions(ckv, layers[k], 0, &ours, &m);
			expected(layers[k], press, ratio, head, &kept, &theirs, &n);
			assert_int_equal(lists, kept.rank == 2 || strncmp(presses[press].press, "adakv", 5) == 0 ? HEADS : 1);
			ckv_llama_positions(ckv, layers[k], lists == 1 ? 0 : head, &ours, &m);
			same += common(theirs, n, ours, m);
			all += n;
			npy_free(&kept);
		}
	}
	return all ? (double)same / (double)all : 1.0;
}

static void kept_positions_are_the_references(void **state) {
	struct llama_model *model = model_load();
	ckv_llama *ckv[N_PRESSES];
	npy ids;
	(void)state;
	if (llama_model_n_embd(model) != 576) {
		skip();
	}
	read_array(0, "token_ids", &ids);
	struct llama_context_params params = model_params((int32_t)ids.count, GGML_TYPE_F16);
	for (int i = 0; i < N_PRESSES; i++) {
		ckv_error error;
		if (ckv_llama_create(&ckv[i], presses[i].policy, &error)) {
			fail_msg("%s: %s", presses[i].policy, error.message);
		}
		assert_ok(ckv[i], ckv_llama_attach(ckv[i], &params));
	}
	struct llama_context *ctx = llama_init_from_model(model, params);
	assert_non_null(ctx);
	for (int i = 1; i < N_PRESSES; i++) {
		assert_ok(ckv[i], ckv_llama_observe_begin(ckv[i], ctx, 0));
	}
	assert_ok(ckv[0], ckv_llama_prefill(ckv[0], ctx, 0, ids.data, (int32_t)ids.count));
	for (int i = 1; i < N_PRESSES; i++) {
		assert_ok(ckv[i], ckv_llama_observe_end(ckv[i]));
	}
	for (int i = 0; i < N_PRESSES; i++) {
		for (int k = 0; k < N_RATIOS; k++) {
			assert_ok(ckv[i], ckv_llama_extract(ckv[i], ctx, 0, ckv_remove_fraction(ratios[k]), NULL));
			double share = agreement(ckv[i], i, ratios[k]);
			print_message("%-24s removed %.1f: %.1f %% the same\n", presses[i].press, ratios[k], 100.0 * share);
			assert_true(share >= 0.85); /* a chunk that changes sides is up to twenty positions */
		}
	}
	llama_free(ctx);
	for (int i = N_PRESSES; i-- > 0;) {
		ckv_llama_free(ckv[i]);
	}
	npy_free(&ids);
}

int main(void) {
	const struct CMUnitTest tests[] = {cmocka_unit_test(kept_positions_are_the_references)};
	return cmocka_run_group_tests_name("the whole way against the references", tests, NULL, model_unload);
}
