/* What the adapter observes of a prefill, against the same computed plainly from what the graph shows: moments of the
 * queries before RoPE, attention of all queries, change of the residual stream, keys before the cache's own rotation. */
#include "support.h"

#include "adapters/llama/internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYER = 3, TOKENS = 300, MAX_TOKENS = 400, HEADS = 9, KV_HEADS = 3, DIM = 64, EMBD = 576 };

/* One layer's tensors as the graph computes them, token after token. Filled by a callback behind the adapter's own. */
typedef struct witness {
	float projected[MAX_TOKENS][HEADS][DIM]; /* queries before RoPE */
	float turned[MAX_TOKENS][HEADS][DIM];    /* after it, as attention gets them */
	float keys[MAX_TOKENS][KV_HEADS][DIM];   /* after RoPE, before the cache */
	float before[MAX_TOKENS][EMBD], after[MAX_TOKENS][EMBD];
	int32_t n_projected, n_turned, n_keys, n_before, n_after;
} witness;

static bool named(const struct ggml_tensor *t, const char *name, int layer) {
	char full[64];
	snprintf(full, sizeof full, "%s-%d", name, layer);
	return strcmp(t->name, full) == 0;
}

static void catch_rows(const struct ggml_tensor *t, float *out, int32_t *n, size_t row) {
	size_t count = (size_t)ggml_nelements(t) / row;
	assert_true((size_t)*n + count <= MAX_TOKENS);
	ggml_backend_tensor_get(t, out + (size_t)*n * row, 0, count * row * sizeof *out);
	*n += (int32_t)count;
}

static void catch_queries(witness *w, const struct ggml_tensor *q) {
	for (int64_t i = 0; i < q->ne[1]; i++) {
		for (int64_t h = 0; h < q->ne[2]; h++) {
			ggml_backend_tensor_get(q, w->turned[w->n_turned][h], (size_t)i * q->nb[1] + (size_t)h * q->nb[2],
			                        DIM * sizeof(float));
		}
		w->n_turned++;
	}
}

static bool watch(struct ggml_tensor *t, bool ask, void *user) {
	witness *w = user;
	bool attention =
	    t->op == GGML_OP_FLASH_ATTN_EXT && ckv_llama_cache_layer(ckv_llama_root(t->src[1]), "cache_k_l") == LAYER;
	bool projected = t->op == GGML_OP_MUL_MAT && named(t, "Qcur", LAYER);
	bool keys = t->op == GGML_OP_ROPE && named(t, "Kcur", LAYER);
	bool before = named(t, "l_out", LAYER - 1), after = named(t, "ffn_inp", LAYER);
	if (ask) {
		return attention || projected || keys || before || after;
	}
	if (attention) {
		catch_queries(w, t->src[0]);
	} else if (projected) {
		catch_rows(t, w->projected[0][0], &w->n_projected, (size_t)HEADS * DIM);
	} else if (keys) {
		catch_rows(t, w->keys[0][0], &w->n_keys, (size_t)KV_HEADS * DIM);
	} else if (before) {
		catch_rows(t, w->before[0], &w->n_before, EMBD);
	} else if (after) {
		catch_rows(t, w->after[0], &w->n_after, EMBD);
	}
	return true;
}

static const layer_view *layer_of(const fixture *f) {
	for (int32_t i = 0; i < f->ckv->seen.n_layers; i++) {
		if (f->ckv->seen.layers[i].index == LAYER) {
			return &f->ckv->seen.layers[i];
		}
	}
	fail_msg("layer %d was not observed", LAYER);
	return NULL;
}

/* A prefill in uneven ubatches, the witness behind the adapter. Skips models of another shape. */
static witness *observe(fixture *f, const char *policy, enum ggml_type type) {
	witness *w = calloc(1, sizeof *w);
	assert_non_null(w);
	f->model = model_load();
	if (llama_model_n_embd(f->model) != EMBD) {
		free(w);
		skip();
	}
	prompt_make(f->model, 0, TOKENS, "What is the name of the cat?", &f->prompt);
	struct llama_context_params params = model_params(MAX_TOKENS, type);
	params.n_batch = params.n_ubatch = 96;
	params.cb_eval = watch;
	params.cb_eval_user_data = w;
	open_with(f, policy, params);
	assert_ok(f->ckv, ckv_llama_prefill(f->ckv, f->ctx, 0, f->prompt.tokens, f->prompt.n));
	return w;
}

static void check_moments(const witness *w, const layer_view *layer) {
	enum { SINKS = 4 };
	static float mean[HEADS][DIM], covariance[HEADS][DIM][DIM];
	int32_t n = w->n_projected - SINKS;
	assert_int_equal(ckv_moments_read(layer->moments, mean[0], covariance[0][0]), n);
	for (int h = 0; h < HEADS; h++) {
		double m[DIM] = {0}, size = 0;
		for (int32_t t = SINKS; t < w->n_projected; t++) {
			for (int c = 0; c < DIM; c++) {
				m[c] += (double)w->projected[t][h][c] / n;
				size += (double)w->projected[t][h][c] * (double)w->projected[t][h][c] / n / DIM;
			}
		}
		for (int a = 0; a < DIM; a++) {
			assert_true(fabs((double)mean[h][a] - m[a]) < 1e-3 * sqrt(size));
			for (int b = 0; b < DIM; b++) {
				double c = 0;
				for (int32_t t = SINKS; t < w->n_projected; t++) {
					c += ((double)w->projected[t][h][a] - m[a]) * ((double)w->projected[t][h][b] - m[b]) / n;
				}
				assert_true(fabs((double)covariance[h][a][b] - c) < 1e-3 * size);
			}
		}
	}
}

/* Turning the rotation back gives the queries that the model projected. */
static void moments_are_those_before_rope(void **state) {
	fixture f;
	(void)state;
	witness *w = observe(&f, "expected-attention", GGML_TYPE_F16);
	assert_int_equal(w->n_projected, f.prompt.n);
	check_moments(w, layer_of(&f));
	free(w);
	close_fixture(&f);
}

/* So it does through the product with a Hadamard matrix that a quantised cache brings. */
static void moments_see_through_a_quantised_cache(void **state) {
	fixture f;
	(void)state;
	witness *w = observe(&f, "expected-attention", GGML_TYPE_Q8_0);
	assert_true(layer_of(&f)->k_turned->n == DIM && layer_of(&f)->v_turned->n == DIM);
	check_moments(w, layer_of(&f));
	free(w);
	close_fixture(&f);
}

static void keys_are_turned_back(void **state) {
	fixture f;
	layer_input in;
	(void)state;
	witness *w = observe(&f, "lagkv", GGML_TYPE_Q8_0);
	assert_ok(f.ckv, ckv_llama_layer(f.ckv, layer_of(&f), f.ckv->seen.needs, NULL, &in));
	const ckv_view *k = &in.layer.k;
	assert_true(k->dtype == CKV_DECODED && k->n_tokens == f.prompt.n && in.layer.v.n_tokens == f.prompt.n);
	for (int32_t t = 0; t < k->n_tokens; t++) {
		for (int g = 0; g < KV_HEADS; g++) {
			float row[DIM];
			double error = 0, size = 0;
			k->decode((const char *)k->data + (size_t)g * k->stride_head + (size_t)t * k->stride_token, row, DIM,
			          k->decode_user);
			for (int c = 0; c < DIM; c++) {
				double d = (double)row[c] - (double)w->keys[t][g][c];
				error += d * d;
				size += (double)w->keys[t][g][c] * (double)w->keys[t][g][c];
			}
			assert_true(error < 1e-3 * size); /* 8-bit steps */
		}
	}
	ckv_llama_layer_free(f.ckv, &in);
	free(w);
	close_fixture(&f);
}

/* Column sums over the whole prompt, in double from all queries. */
static void mass_is_the_attention_of_all_queries(void **state) {
	fixture f;
	(void)state;
	witness *w = observe(&f, "h2o", GGML_TYPE_F16);
	const layer_view *layer = layer_of(&f);
	int32_t n = f.prompt.n;
	assert_int_equal(w->n_turned, n);
	assert_true(layer->mass_stride < 2 * MAX_TOKENS); /* memory that grows with the cells alone */
	double *sums = calloc((size_t)(KV_HEADS * n), sizeof *sums), *weight = calloc((size_t)n, sizeof *weight);
	assert_true(sums && weight);
	for (int h = 0; h < HEADS; h++) {
		for (int32_t i = 0; i < n; i++) {
			double most = -1e30, total = 0;
			for (int32_t t = 0; t <= i; t++) {
				weight[t] = 0;
				for (int c = 0; c < DIM; c++) {
					float key = ggml_fp16_to_fp32(ggml_fp32_to_fp16(w->keys[t][h / 3][c]));
					weight[t] += (double)layer->scale * (double)w->turned[i][h][c] * (double)key;
				}
				most = weight[t] > most ? weight[t] : most;
			}
			for (int32_t t = 0; t <= i; t++) {
				weight[t] = exp(weight[t] - most);
				total += weight[t];
			}
			for (int32_t t = 0; t <= i; t++) {
				sums[h / 3 * n + t] += weight[t] / total / 3;
			}
		}
	}
	for (int g = 0; g < KV_HEADS; g++) {
		for (int32_t t = 0; t < n; t++) {
			double found = (double)layer->mass[(size_t)g * layer->mass_stride + (size_t)t];
			assert_true(fabs(found - sums[g * n + t]) < 1e-4 * sums[g * n + t] + 1e-6);
		}
	}
	free(sums);
	free(weight);
	free(w);
	close_fixture(&f);
}

static void similarity_is_that_of_the_residual_stream(void **state) {
	fixture f;
	(void)state;
	witness *w = observe(&f, "squeezeattention", GGML_TYPE_F16);
	const layer_view *layer = layer_of(&f);
	assert_int_equal(w->n_before, f.prompt.n);
	assert_int_equal(w->n_after, f.prompt.n);
	for (int32_t t = 0; t < f.prompt.n; t++) {
		double ab = 0, aa = 0, bb = 0;
		for (int c = 0; c < EMBD; c++) {
			double a = (double)w->before[t][c], b = (double)w->after[t][c];
			ab += a * b;
			aa += a * a;
			bb += b * b;
		}
		assert_true(fabs((double)layer->similarity[t] - ab / sqrt(aa * bb)) < 1e-4);
	}
	/* The last layer shows the last token's alone; every layer has shown something. */
	for (int32_t i = 0; i < f.ckv->seen.n_layers; i++) {
		float mean = ckv_llama_mean_similarity(&f.ckv->seen.layers[i]);
		assert_true(mean > -1.0f && mean < 1.0f); /* not NaN */
	}
	free(w);
	close_fixture(&f);
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(moments_are_those_before_rope),
	    cmocka_unit_test(moments_see_through_a_quantised_cache),
	    cmocka_unit_test(keys_are_turned_back),
	    cmocka_unit_test(mass_is_the_attention_of_all_queries),
	    cmocka_unit_test(similarity_is_that_of_the_residual_stream),
	};
	return cmocka_run_group_tests_name("what is observed", tests, NULL, model_unload);
}
