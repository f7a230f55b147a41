/* The adapter on a real model. The model comes from CKV_TEST_MODEL, so the same tests run on every architecture. */
#include "support.h"

#include "adapters/llama/internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------- keeping everything is exact */

/* Scored, every row copied out, put into a new context: the same tokens as if nothing had been done. */
static void keep_all_is_identical(const char *policy, int32_t start, int32_t n, enum ggml_type type) {
	fixture f;
	llama_token plain[MAX_NEW], moved[MAX_NEW];
	ckv_llama_report report = {.size = sizeof report};
	open_fixture(&f, policy, start, n, type);
	assert_ok(f.ckv, ckv_llama_extract(f.ckv, f.ctx, 0, ckv_keep_percent(100), &report));
	assert_int_equal(report.n_seen, f.prompt.n);
	assert_int_equal(report.n_cells, f.prompt.n);
	assert_true(report.bytes_after == report.bytes_before && report.bytes_before > 0);
	decode_greedy(f.ctx, 0, f.prompt.n, MAX_NEW, plain);
	llama_free(f.ctx);
	struct llama_context_params params = model_params(room(&f, f.prompt.n + MAX_NEW), type);
	params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
	f.ctx = llama_init_from_model(f.model, params);
	assert_ok(f.ckv, ckv_llama_restore(f.ckv, f.ctx, 0));
	/* The first token's logits are the prefill's: start from the token that they gave. */
	moved[0] = plain[0];
	for (int32_t i = 1; i < MAX_NEW; i++) {
		llama_token pair[2];
		assert_int_equal(llama_decode(f.ctx, llama_batch_get_one(&moved[i - 1], 1)), 0);
		decode_greedy(f.ctx, 0, f.prompt.n + i, 1, pair);
		moved[i] = pair[0];
	}
	assert_memory_equal(plain, moved, sizeof plain);
	close_fixture(&f);
}

static void keep_all_first_prompt(void **state) {
	(void)state;
	keep_all_is_identical("chunkkv", 0, 700, GGML_TYPE_F16);
}

static void keep_all_second_prompt(void **state) {
	(void)state;
	keep_all_is_identical("snapkv", 500, 600, GGML_TYPE_F16);
}

static void keep_all_third_prompt(void **state) {
	(void)state;
	keep_all_is_identical("full", 1200, 650, GGML_TYPE_F16);
}

static void keep_all_q8_0(void **state) {
	(void)state;
	keep_all_is_identical("snapkv", 100, 600, GGML_TYPE_Q8_0);
}

static void keep_all_q4_0(void **state) {
	(void)state;
	keep_all_is_identical("chunkkv", 100, 600, GGML_TYPE_Q4_0);
}

/* Our writing of the state format against llama.cpp's own, byte for byte. */
static void state_of_all_rows_is_llamas_own(void **state) {
	static const char *const policies[] = {"chunkkv", "snapkv", "full"};
	(void)state;
	for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
		fixture f;
		open_fixture(&f, policies[i], 0, 600, GGML_TYPE_F16);
		size_t size = llama_state_seq_get_size(f.ctx, 0);
		uint8_t *own = malloc(size);
		assert_int_equal(llama_state_seq_get_data(f.ctx, own, size, 0), size);
		assert_ok(f.ckv, ckv_llama_extract(f.ckv, f.ctx, 0, ckv_keep_percent(100), NULL));
		assert_int_equal(f.ckv->held.size, size);
		assert_memory_equal(f.ckv->held.data, own, size);
		free(own);
		close_fixture(&f);
	}
}

/* ------------------------------------------------------------------------------------------ the last token once more */

/* The last token decoded again on the cache without its row, whole or compressed: as if it had been read alone. */
static void last_token_again_is_exact(void **state) {
	fixture f;
	(void)state;
	open_fixture(&f, "snapkv", 0, 700, GGML_TYPE_F16);
	int32_t n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(f.model));
	float *plain = malloc((size_t)n_vocab * sizeof *plain), largest = 0.0f;
	assert_non_null(plain);
	assert_ok(f.ckv, ckv_llama_extract_but_last(f.ckv, f.ctx, 0, ckv_keep_percent(100), NULL));
	assert_true(llama_memory_seq_rm(llama_get_memory(f.ctx), 0, f.prompt.n - 1, -1));
	decode_part(&f, f.prompt.n - 1, 1);
	memcpy(plain, llama_get_logits_ith(f.ctx, -1), (size_t)n_vocab * sizeof *plain);
	llama_free(f.ctx);
	struct llama_context_params params = model_params(room(&f, f.prompt.n + 1), GGML_TYPE_F16);
	params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
	f.ctx = llama_init_from_model(f.model, params);
	assert_ok(f.ckv, ckv_llama_restore(f.ckv, f.ctx, 0));
	assert_int_equal(llama_memory_seq_pos_max(llama_get_memory(f.ctx), 0), f.prompt.n - 2);
	decode_part(&f, f.prompt.n - 1, 1);
	const float *again = llama_get_logits_ith(f.ctx, -1);
	for (int32_t i = 0; i < n_vocab; i++) {
		largest = fmaxf(largest, fabsf(plain[i] - again[i]));
	}
	/* Rows of a sliding window lie in other cells, so sums round otherwise. */
	assert_true(largest <= (llama_model_n_swa(f.model) > 0 ? 0.3f : 0.0f));
	free(plain);
	close_fixture(&f);
}

/* A compressed cache then has the budget's rows, the last token's among them, and its own logits for the first token. */
static void last_token_again_keeps_the_budget(void **state) {
	fixture f;
	ckv_llama_report report = {.size = sizeof report};
	(void)state;
	open_fixture(&f, "chunkkv", 0, 700, GGML_TYPE_F16);
	assert_ok(f.ckv, ckv_llama_extract(f.ckv, f.ctx, 0, ckv_keep_percent(10), &report));
	size_t size = f.ckv->held.size;
	int32_t n_cells = report.n_cells;
	assert_ok(f.ckv, ckv_llama_extract_but_last(f.ckv, f.ctx, 0, ckv_keep_percent(10), &report));
	assert_int_equal(report.n_cells, n_cells);
	assert_int_equal(report.n_seen, f.prompt.n);
	assert_ok(f.ckv, ckv_llama_restore(f.ckv, f.ctx, 0));
	decode_part(&f, f.prompt.n - 1, 1);
	assert_int_equal(llama_memory_seq_pos_max(llama_get_memory(f.ctx), 0), f.prompt.n - 1);
	assert_int_equal(llama_state_seq_get_size(f.ctx, 0), size);
	close_fixture(&f);
	open_fixture(&f, "chunkkv:sinks=0", 0, 700, GGML_TYPE_F16);
	assert_int_equal(ckv_llama_extract_but_last(f.ckv, f.ctx, 0, ckv_keep_tokens(1), NULL), CKV_ERR_UNSUPPORTED);
	assert_non_null(strstr(ckv_llama_message(f.ckv), "last token"));
	close_fixture(&f);
}

/* ------------------------------------------------------------------------------------------------- visiting the layers */

typedef struct visit {
	int32_t n, n_tokens, n_queries, stop_at;
} visit;

static bool on_layer(int32_t number, const ckv_layer *layer, void *user) {
	visit *v = user;
	assert_int_equal(number, v->n++);
	assert_int_equal(layer->k.n_tokens, v->n_tokens);
	assert_int_equal(layer->v.n_tokens, v->n_tokens);
	assert_non_null(layer->v.data);
	assert_int_equal(layer->q.n_tokens, v->n_queries);
	return v->n != v->stop_at;
}

static void layers_can_be_visited(void **state) {
	fixture f;
	ckv_llama_report report = {.size = sizeof report};
	(void)state;
	open_fixture(&f, "snapkv:window=8", 0, 600, GGML_TYPE_F16);
	assert_ok(f.ckv, ckv_llama_extract(f.ckv, f.ctx, 0, ckv_keep_percent(50), &report));
	visit v = {.n_tokens = f.prompt.n, .n_queries = 8};
	assert_ok(f.ckv, ckv_llama_visit_layers(f.ckv, f.ctx, 0, on_layer, &v));
	assert_int_equal(v.n, report.n_layers);
	v = (visit){.n_tokens = f.prompt.n, .n_queries = 8, .stop_at = 2};
	assert_int_equal(ckv_llama_visit_layers(f.ckv, f.ctx, 0, on_layer, &v), CKV_ERR_CANCELLED);
	assert_int_equal(v.n, 2);
	assert_int_equal(ckv_llama_visit_layers(f.ckv, f.ctx, 0, NULL, &v), CKV_ERR_ARG);
	close_fixture(&f);
}

/* ---------------------------------------------------------------------------------------------------- compressing */

static void compress_keeps_the_budget(const char *policy, enum ggml_type type) {
	fixture f;
	llama_token tokens[8];
	ckv_llama_report report = {.size = sizeof report};
	open_fixture(&f, policy, 0, 800, type);
	assert_ok(f.ckv, ckv_llama_compress(f.ckv, f.ctx, 0, ckv_keep_percent(10), &report));
	int32_t expected = (int32_t)((double)f.prompt.n * 0.1 + 0.5);
	assert_int_equal(report.n_cells, expected);
	assert_int_equal(report.reason, CKV_SELECTED);
	assert_true(report.attention_kept > 0.3f && report.attention_kept < 1.0f);
	assert_true(report.n_layers > 0);
	for (int32_t i = 0; i < report.n_layers; i++) {
		assert_int_equal(report.n_kept[i], expected);
		assert_true(i == 0 || report.layers[i] > report.layers[i - 1]);
	}
	if (llama_model_n_swa(f.model) == 0) {
		assert_true(report.bytes_after * 100 <= report.bytes_before * 11);
		assert_int_equal(report.n_window_layers, 0);
	} else {
		assert_true(report.n_window_layers > 0 && report.bytes_after < report.bytes_before);
	}
	/* The next position goes on from the tokens seen, and the cache answers. */
	assert_int_equal(llama_memory_seq_pos_max(llama_get_memory(f.ctx), 0), f.prompt.n - 1);
	struct llama_batch batch = llama_batch_get_one(&f.prompt.tokens[f.prompt.n - 1], 1);
	assert_int_equal(llama_decode(f.ctx, batch), 0);
	decode_greedy(f.ctx, 0, f.prompt.n + 1, 8, tokens);
	assert_int_equal(llama_memory_seq_pos_max(llama_get_memory(f.ctx), 0), f.prompt.n + 7);
	close_fixture(&f);
}

static void compress_chunkkv(void **state) {
	(void)state;
	compress_keeps_the_budget("chunkkv", GGML_TYPE_F16);
}

static void compress_snapkv_by_head(void **state) {
	(void)state;
	compress_keeps_the_budget("snapkv", GGML_TYPE_F16);
}

static void compress_q8_0(void **state) {
	(void)state;
	compress_keeps_the_budget("snapkv", GGML_TYPE_Q8_0);
}

static void compress_q4_0(void **state) {
	(void)state;
	compress_keeps_the_budget("chunkkv", GGML_TYPE_Q4_0);
}

/* The fact that is asked for must survive a strong compression of a document that states it. */
static void compressed_cache_still_answers(void **state) {
	static const char prefix[] = "The password of the red door is 7391. ";
	fixture f;
	char text[64] = {0};
	(void)state;
	f.model = model_load();
	if (llama_model_n_swa(f.model)) {
		skip(); /* a base model: it answers no questions */
	}
	prompt_make(f.model, 0, 700, "What is the password of the red door?", &f.prompt);
	const struct llama_vocab *vocab = llama_model_get_vocab(f.model);
	llama_token fact[64];
	int32_t n = llama_tokenize(vocab, prefix, (int32_t)strlen(prefix), fact, 64, false, false);
	assert_true(n > 0);
	memmove(f.prompt.tokens + 300 + n, f.prompt.tokens + 300, (size_t)(f.prompt.n - 300) * sizeof *fact);
	memcpy(f.prompt.tokens + 300, fact, (size_t)n * sizeof *fact);
	f.prompt.n += n;
	open_with(&f, "chunkkv", model_params(f.prompt.n + MAX_NEW, GGML_TYPE_F16));
	assert_ok(f.ckv, ckv_llama_prefill(f.ckv, f.ctx, 0, f.prompt.tokens, f.prompt.n));
	llama_token tokens[16];
	decode_greedy(f.ctx, 0, f.prompt.n, 1, tokens);
	assert_ok(f.ckv, ckv_llama_compress(f.ckv, f.ctx, 0, ckv_keep_percent(20), NULL));
	for (int32_t i = 1; i < 16; i++) {
		assert_int_equal(llama_decode(f.ctx, llama_batch_get_one(&tokens[i - 1], 1)), 0);
		decode_greedy(f.ctx, 0, f.prompt.n + i, 1, &tokens[i]);
	}
	llama_detokenize(vocab, tokens, 16, text, sizeof text - 1, false, false);
	print_message("answer: %s\n", text);
	assert_non_null(strstr(text, "7391"));
	close_fixture(&f);
}

/* Several compressions from one prefill leave the source as it was. */
static void extract_changes_nothing(void **state) {
	fixture f;
	llama_token before[8], after[8];
	ckv_llama_report a = {.size = sizeof a}, b = {.size = sizeof b};
	(void)state;
	open_fixture(&f, "chunkkv", 0, 600, GGML_TYPE_F16);
	size_t size = llama_state_seq_get_size(f.ctx, 0);
	uint8_t *first = malloc(size), *second = malloc(size);
	assert_int_equal(llama_state_seq_get_data(f.ctx, first, size, 0), size);
	assert_ok(f.ckv, ckv_llama_extract(f.ckv, f.ctx, 0, ckv_keep_percent(10), &a));
	assert_ok(f.ckv, ckv_llama_extract(f.ckv, f.ctx, 0, ckv_keep_tokens(200), &b));
	assert_int_equal(b.n_cells, 200);
	assert_int_equal(llama_state_seq_get_data(f.ctx, second, size, 0), size);
	assert_memory_equal(first, second, size);
	decode_greedy(f.ctx, 0, f.prompt.n, 8, before);
	free(first);
	free(second);
	close_fixture(&f);
	open_fixture(&f, "full", 0, 600, GGML_TYPE_F16);
	decode_greedy(f.ctx, 0, f.prompt.n, 8, after);
	assert_memory_equal(before, after, sizeof before);
	close_fixture(&f);
}

static void shrink_gives_memory_back(void **state) {
	fixture f;
	llama_token tokens[8];
	ckv_llama_report report = {.size = sizeof report};
	(void)state;
	open_fixture(&f, "chunkkv", 0, 1400, GGML_TYPE_F16);
	assert_true(report.size && ckv_llama_cache_alloc(f.ckv) > 0);
	uint64_t before = ckv_llama_cache_alloc(f.ckv);
	assert_ok(f.ckv, ckv_llama_compress(f.ckv, f.ctx, 0, ckv_keep_percent(10), &report));
	assert_true(report.alloc_before == before);
	assert_ok(f.ckv, ckv_llama_shrink(f.ckv, &f.ctx, 0, report.n_cells + 8));
	assert_int_equal(llama_memory_seq_pos_max(llama_get_memory(f.ctx), 0), f.prompt.n - 1);
	assert_int_equal(llama_decode(f.ctx, llama_batch_get_one(&f.prompt.tokens[f.prompt.n - 1], 1)), 0);
	decode_greedy(f.ctx, 0, f.prompt.n + 1, 4, tokens);
	uint64_t after = ckv_llama_cache_alloc(f.ckv);
	assert_true(after < before);
	if (llama_model_n_swa(f.model) == 0) {
		/* 10 % of the cells, rounded up to llama.cpp's multiple of 256. */
		assert_int_equal(llama_n_ctx(f.ctx), 256);
		assert_true(after * 1792 == before * 256 || after * 1536 == before * 256);
	}
	close_fixture(&f);
}

/* ------------------------------------------------------------------------------------- sequences, batches, callbacks */

/* Another sequence in the same context is neither read nor changed. */
static void sequences_do_not_mix(void **state) {
	fixture f;
	prompt other;
	ckv_llama_report alone = {.size = sizeof alone}, beside = {.size = sizeof beside};
	(void)state;
	open_fixture(&f, "chunkkv", 0, 600, GGML_TYPE_F16);
	assert_ok(f.ckv, ckv_llama_compress(f.ckv, f.ctx, 0, ckv_keep_percent(20), &alone));
	close_fixture(&f);

	struct llama_context_params params = model_params(4096, GGML_TYPE_F16);
	params.n_seq_max = 2;
	params.kv_unified = true;
	prompt_make(f.model, 900, 300, "Who is the cook?", &other);
	open_with(&f, "chunkkv", params);
	assert_ok(f.ckv, ckv_llama_prefill(f.ckv, f.ctx, 1, other.tokens, other.n));
	size_t size = llama_state_seq_get_size(f.ctx, 1);
	uint8_t *before = malloc(size), *after = malloc(size);
	assert_int_equal(llama_state_seq_get_data(f.ctx, before, size, 1), size);
	assert_ok(f.ckv, ckv_llama_prefill(f.ckv, f.ctx, 0, f.prompt.tokens, f.prompt.n));
	assert_int_equal(ckv_llama_compress(f.ckv, f.ctx, 1, ckv_keep_percent(20), NULL), CKV_ERR_STATE);
	assert_ok(f.ckv, ckv_llama_compress(f.ckv, f.ctx, 0, ckv_keep_percent(20), &beside));
	assert_int_equal(alone.n_cells, beside.n_cells);
	assert_float_equal(alone.attention_kept, beside.attention_kept, 2e-2f);
	assert_int_equal(llama_state_seq_get_data(f.ctx, after, size, 1), size);
	assert_memory_equal(before, after, size);
	assert_int_equal(ckv_llama_shrink(f.ckv, &f.ctx, 0, 1024), CKV_ERR_STATE);
	assert_non_null(f.ctx);
	free(before);
	free(after);
	close_fixture(&f);
}

/* Streams of their own (kv_unified = false): the sequence's rows are found in its own part of the cache. */
static void separate_streams_work(void **state) {
	fixture f;
	ckv_llama_report report = {.size = sizeof report};
	(void)state;
	f.model = model_load();
	prompt_make(f.model, 0, 600, "What is the name of the cat?", &f.prompt);
	struct llama_context_params params = model_params(2 * 1024, GGML_TYPE_F16);
	params.n_seq_max = 2;
	params.kv_unified = false;
	open_with(&f, "chunkkv", params);
	assert_ok(f.ckv, ckv_llama_prefill(f.ckv, f.ctx, 1, f.prompt.tokens, f.prompt.n));
	size_t size = llama_state_seq_get_size(f.ctx, 1);
	uint8_t *own = malloc(size);
	assert_int_equal(llama_state_seq_get_data(f.ctx, own, size, 1), size);
	assert_ok(f.ckv, ckv_llama_extract(f.ckv, f.ctx, 1, ckv_keep_percent(100), NULL));
	assert_int_equal(f.ckv->held.size, size);
	assert_memory_equal(f.ckv->held.data, own, size);
	assert_ok(f.ckv, ckv_llama_compress(f.ckv, f.ctx, 1, ckv_keep_percent(20), &report));
	assert_int_equal(llama_memory_seq_pos_max(llama_get_memory(f.ctx), 1), f.prompt.n - 1);
	assert_ok(f.ckv, ckv_llama_shrink(f.ckv, &f.ctx, 1, room(&f, report.n_cells + 8)));
	assert_int_equal(llama_memory_seq_pos_max(llama_get_memory(f.ctx), 1), f.prompt.n - 1);
	free(own);
	close_fixture(&f);
}

/* A loop of one's own, cut so that the window lies across several batches, decides as the helper does. */
static void any_batch_split_is_observed(void **state) {
	fixture f;
	ckv_llama_report helper = {.size = sizeof helper}, own = {.size = sizeof own};
	(void)state;
	open_fixture(&f, "chunkkv:window=16", 0, 600, GGML_TYPE_F16);
	assert_ok(f.ckv, ckv_llama_extract(f.ckv, f.ctx, 0, ckv_keep_percent(20), &helper));
	close_fixture(&f);
	open_with(&f, "chunkkv:window=16", model_params(f.prompt.n + MAX_NEW, GGML_TYPE_F16));
	assert_ok(f.ckv, ckv_llama_observe_begin(f.ckv, f.ctx, 0));
	int32_t at = 0, tail[] = {7, 1, 3};
	while (f.prompt.n - at > 11 + 256) {
		decode_part(&f, at, 256);
		at += 256;
	}
	decode_part(&f, at, f.prompt.n - 11 - at);
	at = f.prompt.n - 11;
	for (size_t i = 0; i < 3; i++) {
		decode_part(&f, at, tail[i]);
		at += tail[i];
	}
	assert_ok(f.ckv, ckv_llama_observe_end(f.ckv));
	assert_ok(f.ckv, ckv_llama_extract(f.ckv, f.ctx, 0, ckv_keep_percent(20), &own));
	assert_int_equal(own.n_cells, helper.n_cells);
	assert_float_equal(own.attention_kept, helper.attention_kept, 2e-2f);
	close_fixture(&f);
}

typedef struct counter {
	int asked, given;
} counter;

static bool count_nodes(struct ggml_tensor *tensor, bool ask, void *user) {
	counter *c = user;
	if (ask) {
		c->asked++;
		return tensor->op == GGML_OP_RMS_NORM;
	}
	c->given++;
	assert_int_equal(tensor->op, GGML_OP_RMS_NORM);
	return true;
}

/* The attention output that llama.cpp computed for the last token of one layer, caught beside the adapter. */
typedef struct witness {
	int32_t layer;
	float out[16384];
	size_t n;
} witness;

static bool catch_output(struct ggml_tensor *tensor, bool ask, void *user) {
	witness *w = user;
	char name[32];
	snprintf(name, sizeof name, "cache_k_l%d", w->layer);
	const struct ggml_tensor *root = tensor->op == GGML_OP_FLASH_ATTN_EXT ? tensor->src[1] : NULL;
	while (root && root->view_src) {
		root = root->view_src;
	}
	if (!root || strcmp(root->name, name) != 0) {
		return false;
	}
	if (!ask) {
		/* [d_v, heads, tokens] */
		w->n = (size_t)(tensor->ne[0] * tensor->ne[1]);
		assert_true(w->n <= sizeof w->out / sizeof *w->out);
		ggml_backend_tensor_get(tensor, w->out, (size_t)(tensor->ne[2] - 1) * tensor->nb[2], w->n * sizeof *w->out);
	}
	return true;
}

static float half(const uint8_t *row, size_t i) {
	uint16_t h;
	memcpy(&h, row + 2 * i, sizeof h);
	return ggml_fp16_to_fp32(h);
}

/* One head's attention of the last query over the rows that the adapter would read, in double. */
static void attend(const layer_view *layer, const host_rows *k, const host_rows *v, const float *query, int32_t head,
                   double *out) {
	size_t d = (size_t)layer->dim_k, dv = (size_t)layer->dim_v, kv = (size_t)(head / (layer->n_heads / layer->n_kv_heads));
	double *weight = calloc((size_t)layer->n_tokens, sizeof *weight), max = -1e30, sum = 0;
	for (int32_t t = 0; t < layer->n_tokens; t++) {
		for (size_t c = 0; c < d; c++) {
			weight[t] += (double)query[c] * (double)half(k->data + (size_t)t * k->stride, kv * d + c);
		}
		weight[t] *= (double)layer->scale;
		max = weight[t] > max ? weight[t] : max;
	}
	memset(out, 0, dv * sizeof *out);
	for (int32_t t = 0; t < layer->n_tokens; t++) {
		double e = exp(weight[t] - max);
		sum += e;
		for (size_t c = 0; c < dv; c++) {
			out[c] += e * (double)half(v->data + (size_t)t * v->stride, kv * dv + c);
		}
	}
	for (size_t c = 0; c < dv; c++) {
		out[c] /= sum;
	}
	free(weight);
}

/* Queries, keys, values, scale, head groups and token order as observed give llama.cpp's own attention. */
static void observation_reproduces_attention(void **state) {
	static witness w;
	fixture f;
	(void)state;
	f.model = model_load();
	prompt_make(f.model, 0, 600, "What is the name of the cat?", &f.prompt);
	w.layer = 11; /* a global layer in both test models */
	struct llama_context_params params = model_params(1024, GGML_TYPE_F16);
	params.cb_eval = catch_output;
	params.cb_eval_user_data = &w;
	open_with(&f, "chunkkv", params);
	assert_ok(f.ckv, ckv_llama_prefill(f.ckv, f.ctx, 0, f.prompt.tokens, f.prompt.n));
	const layer_view *layer = NULL;
	for (int32_t i = 0; i < f.ckv->seen.n_layers; i++) {
		layer = f.ckv->seen.layers[i].index == w.layer ? &f.ckv->seen.layers[i] : layer;
	}
	assert_non_null(layer);
	assert_true(layer->full && layer->n_tokens == f.prompt.n);
	assert_int_equal(w.n, layer->n_heads * layer->dim_v);
	host_rows k, v;
	assert_ok(f.ckv, ckv_llama_rows(f.ckv, layer, layer->k_root, &k));
	assert_ok(f.ckv, ckv_llama_rows(f.ckv, layer, layer->v_root, &v));
	double out[1024];
	for (int32_t h = 0; h < layer->n_heads; h++) {
		size_t slot = (size_t)((layer->n_tokens - 1) % f.ckv->seen.window) * (size_t)layer->n_heads + (size_t)h;
		attend(layer, &k, &v, layer->queries + slot * (size_t)layer->dim_k, h, out);
		for (int32_t c = 0; c < layer->dim_v; c++) {
			/* llama.cpp accumulates in f16 here. */
			assert_float_equal(w.out[h * layer->dim_v + c], (float)out[c], 0.05f);
		}
	}
	ckv_llama_rows_free(f.ckv, &k);
	ckv_llama_rows_free(f.ckv, &v);
	close_fixture(&f);
}

/* Many questions after one document: taking tokens back and observing the next question decides as a fresh prefill does. */
static void document_can_be_asked_again(void **state) {
	fixture f;
	ckv_llama_report fresh = {.size = sizeof fresh}, again = {.size = sizeof again};
	(void)state;
	open_fixture(&f, "chunkkv", 0, 600, GGML_TYPE_F16);
	assert_ok(f.ckv, ckv_llama_extract(f.ckv, f.ctx, 0, ckv_keep_percent(20), &fresh));
	if (llama_model_n_swa(f.model) == 0) {
		int32_t back = f.prompt.n - 40;
		assert_true(llama_memory_seq_rm(llama_get_memory(f.ctx), 0, f.prompt.n - 10, -1));
		assert_ok(f.ckv, ckv_llama_prefill(f.ckv, f.ctx, 0, f.prompt.tokens + f.prompt.n - 10, 10));
		assert_int_equal(ckv_llama_extract(f.ckv, f.ctx, 0, ckv_keep_percent(20), NULL), CKV_ERR_STATE);
		assert_true(llama_memory_seq_rm(llama_get_memory(f.ctx), 0, back, -1));
		assert_ok(f.ckv, ckv_llama_prefill(f.ckv, f.ctx, 0, f.prompt.tokens + back, 40));
		assert_ok(f.ckv, ckv_llama_extract(f.ckv, f.ctx, 0, ckv_keep_percent(20), &again));
		assert_int_equal(fresh.n_cells, again.n_cells);
		assert_float_equal(fresh.attention_kept, again.attention_kept, 2e-2f);
	}
	close_fixture(&f);
}

static void existing_callback_is_chained(void **state) {
	fixture f;
	counter c = {0, 0};
	(void)state;
	f.model = model_load();
	prompt_make(f.model, 0, 100, "Why?", &f.prompt);
	struct llama_context_params params = model_params(1024, GGML_TYPE_F16);
	params.cb_eval = count_nodes;
	params.cb_eval_user_data = &c;
	open_with(&f, "chunkkv", params);
	assert_ok(f.ckv, ckv_llama_prefill(f.ckv, f.ctx, 0, f.prompt.tokens, f.prompt.n));
	assert_true(c.asked > c.given && c.given > 0);
	close_fixture(&f);
}

/* A sliding-window model with a prompt inside its window is left whole, and says so. */
static void prompt_inside_the_window_is_kept(void **state) {
	fixture f;
	ckv_llama_report report = {.size = sizeof report};
	(void)state;
	open_fixture(&f, "chunkkv", 0, 300, GGML_TYPE_F16);
	assert_ok(f.ckv, ckv_llama_compress(f.ckv, f.ctx, 0, ckv_keep_percent(10), &report));
	if (llama_model_n_swa(f.model)) {
		assert_int_equal(report.reason, CKV_KEPT_ALL_SLIDING);
		assert_int_equal(report.n_cells, f.prompt.n);
	} else {
		assert_int_equal(report.reason, CKV_SELECTED);
	}
	close_fixture(&f);
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(last_token_again_keeps_the_budget),
	    cmocka_unit_test(keep_all_first_prompt),
	    cmocka_unit_test(keep_all_second_prompt),
	    cmocka_unit_test(keep_all_third_prompt),
	    cmocka_unit_test(keep_all_q8_0),
	    cmocka_unit_test(keep_all_q4_0),
	    cmocka_unit_test(state_of_all_rows_is_llamas_own),
	    cmocka_unit_test(last_token_again_is_exact),
	    cmocka_unit_test(last_token_again_keeps_the_budget),
	    cmocka_unit_test(layers_can_be_visited),
	    cmocka_unit_test(compress_chunkkv),
	    cmocka_unit_test(compress_snapkv_by_head),
	    cmocka_unit_test(compress_q8_0),
	    cmocka_unit_test(compress_q4_0),
	    cmocka_unit_test(compressed_cache_still_answers),
	    cmocka_unit_test(extract_changes_nothing),
	    cmocka_unit_test(shrink_gives_memory_back),
	    cmocka_unit_test(sequences_do_not_mix),
	    cmocka_unit_test(separate_streams_work),
	    cmocka_unit_test(any_batch_split_is_observed),
	    cmocka_unit_test(observation_reproduces_attention),
	    cmocka_unit_test(document_can_be_asked_again),
	    cmocka_unit_test(existing_callback_is_chained),
	    cmocka_unit_test(prompt_inside_the_window_is_kept),
	};
	return cmocka_run_group_tests_name("adapter", tests, NULL, model_unload);
}
