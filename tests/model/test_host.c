/* A cache of our own in the place of llama.cpp's, on a real model. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 420, STEPS = 24 };

static int32_t vocabulary(const fixture *f) { return llama_vocab_n_tokens(llama_model_get_vocab(f->model)); }

static void decode(fixture *f, llama_token token) {
	assert_int_equal(llama_decode(f->ctx, llama_batch_get_one(&token, 1)), 0);
}

static int32_t length_for(const struct llama_model *model) {
	int32_t window = llama_model_n_swa(model);
	return window ? window + 200 : TOKENS;
}

/* A prompt longer than any window, read, and what answered it: STEPS tokens of the full cache. */
static void open_read(fixture *f, const char *policy, const ckv_ctx_options *options) {
	ckv_params params;
	ckv_error error;
	f->model = model_load();
	prompt_make(f->model, 300, length_for(f->model), "What is the name of the cat?", &f->prompt);
	assert_int_equal(ckv_policy_parse(policy, &params, &error), CKV_OK);
	assert_int_equal(ckv_llama_create_params(&f->ckv, &params, options, &error), CKV_OK);
	struct llama_context_params made = model_params(f->prompt.n + MAX_NEW, GGML_TYPE_F16);
	assert_ok(f->ckv, ckv_llama_attach(f->ckv, &made));
	f->ctx = llama_init_from_model(f->model, made);
	assert_non_null(f->ctx);
	assert_ok(f->ckv, ckv_llama_prefill(f->ckv, f->ctx, 0, f->prompt.tokens, f->prompt.n));
}

/* Into a context with few cells. */
static void move_to_small(fixture *f, bool (*abort)(void *), void *user) {
	llama_free(f->ctx);
	struct llama_context_params params = model_params(room(f, 64), GGML_TYPE_F16);
	params.abort_callback = abort;
	params.abort_callback_data = user;
	assert_ok(f->ckv, ckv_llama_attach(f->ckv, &params));
	f->ctx = llama_init_from_model(f->model, params);
	assert_non_null(f->ctx);
	assert_ok(f->ckv, ckv_llama_restore(f->ckv, f->ctx, 0));
}

/* Distributions [STEPS][n_vocab] after each of the tokens of the prompt's own text, decoded one by one. */
static float *walk(fixture *f) {
	size_t n = (size_t)vocabulary(f);
	float *logits = calloc(STEPS * n, sizeof *logits);
	assert_non_null(logits);
	for (int i = 0; i < STEPS; i++) {
		decode(f, f->prompt.tokens[40 + i]);
		memcpy(logits + (size_t)i * n, llama_get_logits_ith(f->ctx, -1), n * sizeof *logits);
	}
	return logits;
}

static double mean_divergence(const fixture *f, const float *p, const float *q) {
	double sum = 0;
	int32_t n = vocabulary(f);
	for (int i = 0; i < STEPS; i++) {
		sum += divergence(p + (size_t)i * (size_t)n, q + (size_t)i * (size_t)n, n);
	}
	return sum / STEPS;
}

/* The whole of a use: read, extract, put into a small context, walk. report may be NULL. */
static float *walk_compressed(fixture *f, const char *policy, ckv_llama_cache kind, double keep, ckv_llama_report *report) {
	open_read(f, policy, NULL);
	assert_ok(f->ckv, ckv_llama_set_cache(f->ckv, kind));
	assert_ok(f->ckv, ckv_llama_extract(f->ckv, f->ctx, 0, ckv_keep_percent(keep), report));
	if (kind == CKV_LLAMA_CACHE_OWN) {
		llama_free(f->ctx);
		struct llama_context_params params = model_params(f->prompt.n + MAX_NEW, GGML_TYPE_F16);
		assert_ok(f->ckv, ckv_llama_attach(f->ckv, &params));
		f->ctx = llama_init_from_model(f->model, params);
		assert_non_null(f->ctx);
		assert_ok(f->ckv, ckv_llama_restore(f->ckv, f->ctx, 0));
	} else {
		move_to_small(f, NULL, NULL);
	}
	float *logits = walk(f);
	assert_ok(f->ckv, ckv_llama_check(f->ckv));
	return logits;
}

static float *walk_full(void) {
	fixture f;
	open_read(&f, "full", NULL);
	float *logits = walk(&f);
	close_fixture(&f);
	return logits;
}

/* -------------------------------------------------------------------------------------------------- nothing is changed */

/* Nothing dropped, nothing packed: the same tokens, and numbers, as llama.cpp's own cache. */
static void nothing_dropped_changes_nothing(void **state) {
	fixture f;
	llama_token plain[MAX_NEW], hosted[MAX_NEW];
	ckv_llama_report report = {.size = sizeof report};
	(void)state;
	open_read(&f, "full", NULL);
	assert_ok(f.ckv, ckv_llama_set_cache(f.ckv, CKV_LLAMA_CACHE_HOSTED));
	assert_ok(f.ckv, ckv_llama_extract(f.ckv, f.ctx, 0, ckv_keep_percent(100), &report));
	assert_int_equal(report.hosted, 1);
	assert_int_equal(report.n_cells, f.prompt.n);
	decode_greedy(f.ctx, 0, f.prompt.n, MAX_NEW, plain);
	move_to_small(&f, NULL, NULL);
	assert_true(llama_n_ctx(f.ctx) < (uint32_t)f.prompt.n || llama_model_n_swa(f.model) > 0);
	hosted[0] = plain[0];
	for (int i = 1; i < MAX_NEW; i++) {
		decode(&f, hosted[i - 1]);
		decode_greedy(f.ctx, 0, 0, 1, &hosted[i]);
		if (llama_model_n_swa(f.model) == 0) { /* else window rows go to other cells, and sums round otherwise */
			assert_ok(f.ckv, ckv_llama_settle(f.ckv));
		}
	}
	assert_ok(f.ckv, ckv_llama_check(f.ckv));
	assert_memory_equal(plain, hosted, sizeof plain);
	close_fixture(&f);
}

/* Rows of equal length are llama.cpp's to attend to: the place makes no difference. */
static void the_place_makes_no_difference(void **state) {
	fixture f;
	(void)state;
	float *own = walk_compressed(&f, "chunkkv", CKV_LLAMA_CACHE_OWN, 30, NULL);
	close_fixture(&f);
	ckv_llama_report report = {.size = sizeof report};
	float *hosted = walk_compressed(&f, "chunkkv", CKV_LLAMA_CACHE_HOSTED, 30, &report);
	assert_int_equal(report.hosted, 1);
	double kl = mean_divergence(&f, own, hosted);
	print_message("KL %.2e\n", kl);
	assert_true(kl < 1e-3);
	free(own);
	free(hosted);
	close_fixture(&f);
}

/* Layers and heads of their own length: as llama.cpp's cache with the missing rows hidden, and smaller. */
static void unequal_lengths_lose_nothing_more(void **state) {
	static const char *const policies[] = {"adakv", "pyramidkv", "squeezeattention", "adakv:layers=pyramid"};
	(void)state;
	for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
		fixture f;
		ckv_llama_report own_report = {.size = sizeof own_report}, report = {.size = sizeof report};
		float *own = walk_compressed(&f, policies[i], CKV_LLAMA_CACHE_OWN, 40, &own_report);
		close_fixture(&f);
		assert_int_equal(own_report.hosted, 0);
		float *hosted = walk_compressed(&f, policies[i], CKV_LLAMA_CACHE_AUTO, 40, &report);
		double kl = mean_divergence(&f, own, hosted);
		print_message("%s: KL %.2e, %.2f of %.2f MB\n", policies[i], kl, 1e-6 * (double)report.bytes_after,
		              1e-6 * (double)own_report.bytes_after);
		if (own_report.bytes_ragged < own_report.bytes_after) { /* few layers, or one KV head, may happen to agree */
			assert_int_equal(report.hosted, 1);
			assert_int_equal(report.bytes_after, own_report.bytes_ragged);
		}
		assert_true(kl < 0.02); /* llama.cpp accumulates in f16 where it attends itself */
		free(own);
		free(hosted);
		close_fixture(&f);
	}
}

/* -------------------------------------------------------------------------------------------------------------- codecs */

static bool no_lapacke(const ckv_llama *ckv, ckv_status status) {
	return status == CKV_ERR_UNSUPPORTED && strstr(ckv_llama_message(ckv), "LAPACKE");
}

typedef struct loss {
	uint64_t bytes;
	double kl;
} loss;

static bool lose(const float *full, const char *policy, loss *out) {
	fixture f;
	ckv_llama_report report = {.size = sizeof report};
	ckv_cache_info info = {.size = sizeof info};
	open_read(&f, policy, NULL);
	ckv_status status = ckv_llama_extract(f.ckv, f.ctx, 0, ckv_keep_percent(60), &report);
	if (no_lapacke(f.ckv, status)) {
		close_fixture(&f);
		return false;
	}
	assert_ok(f.ckv, status);
	move_to_small(&f, NULL, NULL);
	float *own = walk(&f);
	assert_ok(f.ckv, ckv_llama_check(f.ckv));
	assert_int_equal(report.hosted, 1);
	assert_ok(f.ckv, ckv_llama_hosted_info(f.ckv, &info));
	assert_true(info.bytes <= info.bytes_allocated && info.bytes_allocated < info.bytes_f16 + (1 << 20));
	assert_true(strstr(policy, "palu") || report.bytes_after <= report.bytes_before); /* bases outweigh short prompts */
	*out = (loss){report.bytes_after, mean_divergence(&f, full, own)};
	print_message("%-24s %7.3f MB of %7.3f, KL %.4f\n", policy, 1e-6 * (double)report.bytes_after,
	              1e-6 * (double)report.bytes_before, out->kl);
	free(own);
	close_fixture(&f);
	return true;
}

/* Fewer bits are less memory and more loss; many bits next to none. */
static void fewer_bits_are_smaller_and_lose_more(void **state) {
	loss two, four, eight;
	(void)state;
	float *full = walk_full();
	assert_true(lose(full, "full+kivi8:residual=0", &eight));
	assert_true(lose(full, "full+kivi4:residual=0", &four));
	assert_true(lose(full, "full+kivi2:residual=0", &two));
	assert_true(two.bytes < four.bytes && four.bytes < eight.bytes);
	assert_true(eight.kl < 0.02 && eight.kl < four.kl && four.kl < two.kl);
	free(full);
}

static void policies_combine(void **state) {
	loss plain, packed, merged, low;
	(void)state;
	float *full = walk_full();
	assert_true(lose(full, "snapkv+merge", &merged));
	assert_true(lose(full, "chunkkv+kivi8:residual=16", &packed));
	assert_true(lose(full, "adakv+merge:fraction=0.5+kivi4:group=16", &plain));
	assert_true(packed.bytes < merged.bytes && plain.bytes < packed.bytes);
	assert_true(isfinite(merged.kl) && isfinite(packed.kl) && isfinite(plain.kl));
	if (lose(full, "full+palu:energy=1,high_bits=8,low_bits=8", &low)) { /* every dimension, and well rounded */
		assert_true(low.kl < 0.05);
	}
	free(full);
}

/* ------------------------------------------------------------------------------------------------------ in long use */

/* Many more tokens than llama.cpp has cells. */
static void cells_are_given_back(void **state) {
	fixture f;
	(void)state;
	open_read(&f, "chunkkv+kivi4:residual=32", NULL);
	assert_ok(f.ckv, ckv_llama_extract(f.ckv, f.ctx, 0, ckv_keep_percent(30), NULL));
	move_to_small(&f, NULL, NULL);
	int32_t n = (int32_t)llama_n_ctx(f.ctx) + 60;
	ckv_cache_info before = {.size = sizeof before}, after = {.size = sizeof after};
	assert_ok(f.ckv, ckv_llama_hosted_info(f.ckv, &before));
	for (int32_t i = 0; i < n; i++) {
		decode(&f, f.prompt.tokens[i % f.prompt.n]);
		assert_ok(f.ckv, ckv_llama_settle(f.ckv));
	}
	assert_ok(f.ckv, ckv_llama_check(f.ckv));
	assert_int_equal(llama_memory_seq_pos_max(llama_get_memory(f.ctx), 0), f.prompt.n + n - 1);
	assert_ok(f.ckv, ckv_llama_hosted_info(f.ckv, &after));
	assert_int_equal(after.longest, before.longest + n);
	close_fixture(&f);
}

/* Taken back and decoded anew: as if nothing else had been decoded there. */
static void tokens_can_be_taken_back(void **state) {
	static const char *const policies[] = {"chunkkv", "adakv", "chunkkv+kivi4:residual=0"};
	(void)state;
	for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
		fixture f;
		llama_token first, again;
		open_read(&f, policies[i], NULL);
		assert_ok(f.ckv, ckv_llama_set_cache(f.ckv, CKV_LLAMA_CACHE_HOSTED));
		assert_ok(f.ckv, ckv_llama_extract(f.ckv, f.ctx, 0, ckv_keep_percent(40), NULL));
		move_to_small(&f, NULL, NULL);
		if (llama_model_n_swa(f.model) > 0) { /* what windows have lost is gone */
			close_fixture(&f);
			skip();
		}
		for (int k = 0; k < 5; k++) {
			decode(&f, f.prompt.tokens[k]);
		}
		decode_greedy(f.ctx, 0, 0, 1, &first);
		for (int k = 0; k < 9; k++) {
			decode(&f, f.prompt.tokens[100 + k]);
		}
		assert_true(llama_memory_seq_rm(llama_get_memory(f.ctx), 0, f.prompt.n + 2, -1));
		decode_part(&f, 2, 3); /* the same tokens as before, at once */
		assert_ok(f.ckv, ckv_llama_check(f.ckv));
		decode_greedy(f.ctx, 0, 0, 1, &again);
		assert_int_equal(first, again);
		/* Not what was compressed. */
		assert_true(llama_memory_seq_rm(llama_get_memory(f.ctx), 0, -1, -1));
		decode(&f, f.prompt.tokens[0]);
		assert_int_equal(ckv_llama_check(f.ckv), CKV_ERR_STATE);
		assert_ok(f.ckv, ckv_llama_restore(f.ckv, f.ctx, 0));
		assert_ok(f.ckv, ckv_llama_check(f.ckv));
		close_fixture(&f);
	}
}

/* In place, then into a smaller context, with what was decoded in between. */
static void compressed_in_place_and_shrunk(void **state) {
	fixture f;
	ckv_llama_report report = {.size = sizeof report};
	(void)state;
	float *expected = walk_compressed(&f, "adakv", CKV_LLAMA_CACHE_HOSTED, 40, NULL);
	close_fixture(&f);
	open_read(&f, "adakv", NULL);
	assert_ok(f.ckv, ckv_llama_set_cache(f.ckv, CKV_LLAMA_CACHE_HOSTED));
	assert_ok(f.ckv, ckv_llama_compress(f.ckv, f.ctx, 0, ckv_keep_percent(40), &report));
	size_t n = (size_t)vocabulary(&f);
	for (int i = 0; i < STEPS; i++) {
		decode(&f, f.prompt.tokens[40 + i]);
		double kl = divergence(expected + (size_t)i * n, llama_get_logits_ith(f.ctx, -1), (int32_t)n);
		assert_true(kl < 0.02);
		if (i == STEPS / 2) {
			if (llama_model_n_swa(f.model) == 0) { /* taken back, and nothing decoded since */
				decode(&f, f.prompt.tokens[200]);
				decode(&f, f.prompt.tokens[201]);
				assert_true(llama_memory_seq_rm(llama_get_memory(f.ctx), 0, f.prompt.n + i + 1, -1));
			}
			assert_ok(f.ckv, ckv_llama_shrink(f.ckv, &f.ctx, 0, 64));
		}
	}
	assert_ok(f.ckv, ckv_llama_check(f.ckv));
	free(expected);
	close_fixture(&f);
}

/* Questions longer than the cells there are, and decodes that llama.cpp cuts into several graphs. */
static void long_questions_fit(void **state) {
	fixture f;
	ckv_cache_info info = {.size = sizeof info}, before = {.size = sizeof before};
	(void)state;
	open_read(&f, "adakv", NULL);
	assert_ok(f.ckv, ckv_llama_set_cache(f.ckv, CKV_LLAMA_CACHE_HOSTED));
	assert_ok(f.ckv, ckv_llama_extract(f.ckv, f.ctx, 0, ckv_keep_percent(40), NULL));
	assert_ok(f.ckv, ckv_llama_hosted_info(f.ckv, &before));
	move_to_small(&f, NULL, NULL);
	int32_t n = llama_model_n_swa(f.model) ? 300 : (int32_t)llama_n_ctx(f.ctx) + 44;
	assert_ok(f.ckv, ckv_llama_ask(f.ckv, f.ctx, 0, f.prompt.tokens, n));
	assert_ok(f.ckv, ckv_llama_check(f.ckv));
	assert_ok(f.ckv, ckv_llama_hosted_info(f.ckv, &info));
	assert_int_equal(info.longest, before.longest + n);
	size_t vocab = (size_t)vocabulary(&f);
	float *asked = malloc(vocab * sizeof *asked);
	assert_non_null(asked);
	memcpy(asked, llama_get_logits_ith(f.ctx, -1), vocab * sizeof *asked);
	llama_free(f.ctx);
	struct llama_context_params params = model_params(room(&f, n + 64), GGML_TYPE_F16);
	params.n_batch = 512;
	params.n_ubatch = 48;
	assert_ok(f.ckv, ckv_llama_attach(f.ckv, &params));
	f.ctx = llama_init_from_model(f.model, params);
	assert_non_null(f.ctx);
	assert_ok(f.ckv, ckv_llama_restore(f.ckv, f.ctx, 0));
	decode_part(&f, 0, n);
	assert_ok(f.ckv, ckv_llama_check(f.ckv));
	assert_true(divergence(asked, llama_get_logits_ith(f.ctx, -1), (int32_t)vocab) <
	            0.05); /* other batches round otherwise */
	free(asked);
	close_fixture(&f);
}

/* Two in one chain, in either order: one has rows of llama.cpp's cache hidden, the other hosts. */
static void chained(const float *expected, bool hiding_first) {
	fixture f;
	ckv_llama *hiding;
	f.model = model_load();
	prompt_make(f.model, 300, length_for(f.model), "What is the name of the cat?", &f.prompt);
	assert_int_equal(ckv_llama_create(&hiding, "adakv", NULL), CKV_OK);
	assert_int_equal(ckv_llama_create(&f.ckv, "chunkkv", NULL), CKV_OK);
	assert_ok(hiding, ckv_llama_set_cache(hiding, CKV_LLAMA_CACHE_OWN));
	assert_ok(f.ckv, ckv_llama_set_cache(f.ckv, CKV_LLAMA_CACHE_HOSTED));
	struct llama_context_params params = model_params(f.prompt.n + MAX_NEW, GGML_TYPE_F16);
	ckv_llama *chain[2] = {hiding_first ? hiding : f.ckv, hiding_first ? f.ckv : hiding};
	assert_ok(chain[0], ckv_llama_attach(chain[0], &params));
	assert_ok(chain[1], ckv_llama_attach(chain[1], &params));
	f.ctx = llama_init_from_model(f.model, params);
	assert_non_null(f.ctx);
	assert_ok(hiding, ckv_llama_prefill(hiding, f.ctx, 0, f.prompt.tokens, f.prompt.n));
	assert_ok(hiding, ckv_llama_compress(hiding, f.ctx, 0, ckv_keep_percent(40), NULL)); /* from now on it looks for holes */
	llama_memory_seq_rm(llama_get_memory(f.ctx), 0, -1, -1);
	assert_ok(f.ckv, ckv_llama_prefill(f.ckv, f.ctx, 0, f.prompt.tokens, f.prompt.n));
	assert_ok(f.ckv, ckv_llama_compress(f.ckv, f.ctx, 0, ckv_keep_percent(40), NULL));
	float *own = walk(&f);
	double kl = mean_divergence(&f, expected, own);
	print_message("KL %.2e\n", kl);
	assert_true(kl < 0.02);
	assert_ok(f.ckv, ckv_llama_check(f.ckv));
	free(own);
	close_fixture(&f);
	ckv_llama_free(hiding);
}

static void one_hides_while_another_hosts(void **state) {
	fixture f;
	(void)state;
	float *expected = walk_compressed(&f, "chunkkv", CKV_LLAMA_CACHE_HOSTED, 40, NULL);
	close_fixture(&f);
	chained(expected, false);
	chained(expected, true);
	free(expected);
}

typedef struct fuse {
	long left; /* calls until it blows; below 0: never */
} fuse;

static bool blow(void *user) {
	fuse *f = user;
	return f->left >= 0 && f->left-- == 0;
}

/* A graph that breaks off anywhere leaves nothing behind: the same token decoded again gives the same. */
static void broken_graphs_leave_nothing_behind(void **state) {
	static const char *const policies[] = {"chunkkv", "adakv"};
	(void)state;
	for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
		fixture f;
		fuse breaker = {-1};
		open_read(&f, policies[p], NULL);
		assert_ok(f.ckv, ckv_llama_set_cache(f.ckv, CKV_LLAMA_CACHE_HOSTED));
		assert_ok(f.ckv, ckv_llama_extract(f.ckv, f.ctx, 0, ckv_keep_percent(40), NULL));
		move_to_small(&f, blow, &breaker);
		size_t n = (size_t)vocabulary(&f), n_broken = 0;
		float *expected = walk(&f);
		assert_ok(f.ckv, ckv_llama_restore(f.ckv, f.ctx, 0));
		for (int i = 0; i < STEPS; i++) {
			llama_token token = f.prompt.tokens[40 + i];
			breaker.left = 37 * i + 1;
			n_broken += llama_decode(f.ctx, llama_batch_get_one(&token, 1)) != 0;
			if (breaker.left >= 0) { /* it came through */
				breaker.left = -1;
			} else {
				breaker.left = -1;
				decode(&f, token);
			}
			double kl = divergence(expected + (size_t)i * n, llama_get_logits_ith(f.ctx, -1), (int32_t)n);
			assert_true(kl < 1e-6);
		}
		assert_true(n_broken > 3);
		assert_ok(f.ckv, ckv_llama_check(f.ckv));
		free(expected);
		close_fixture(&f);
	}
}

/* ------------------------------------------------------------------------------------------------------------ refusals */

static void what_cannot_be_hosted_is_refused(void **state) {
	fixture f;
	(void)state;
	open_fixture(&f, "chunkkv", 0, 200, GGML_TYPE_Q8_0);
	if (llama_model_n_swa(f.model) > 0) {
		close_fixture(&f);
		skip();
	}
	assert_ok(f.ckv, ckv_llama_set_cache(f.ckv, CKV_LLAMA_CACHE_HOSTED));
	assert_int_equal(ckv_llama_extract(f.ckv, f.ctx, 0, ckv_keep_percent(30), NULL), CKV_ERR_UNSUPPORTED);
	assert_non_null(strstr(ckv_llama_message(f.ckv), "q8_0"));
	assert_ok(f.ckv, ckv_llama_set_cache(f.ckv, CKV_LLAMA_CACHE_AUTO));
	assert_ok(f.ckv, ckv_llama_extract(f.ckv, f.ctx, 0, ckv_keep_percent(30), NULL));
	close_fixture(&f);

	ckv_llama *packed;
	assert_int_equal(ckv_llama_create(&packed, "chunkkv+kivi4", NULL), CKV_OK);
	assert_int_equal(ckv_llama_set_cache(packed, CKV_LLAMA_CACHE_OWN), CKV_ERR_UNSUPPORTED);
	assert_int_equal(ckv_llama_set_cache(packed, (ckv_llama_cache)7), CKV_ERR_ARG);
	ckv_llama_free(packed);
}

/* Contexts of several sequences can't tell whose tokens a graph is about. */
static void several_sequences_are_refused(void **state) {
	fixture f;
	(void)state;
	open_read(&f, "chunkkv+kivi4", NULL);
	assert_ok(f.ckv, ckv_llama_extract(f.ckv, f.ctx, 0, ckv_keep_percent(30), NULL));
	struct llama_context_params params = model_params(room(&f, 512), GGML_TYPE_F16);
	params.n_seq_max = 2;
	params.kv_unified = true;
	struct llama_context *two = llama_init_from_model(f.model, params);
	assert_non_null(two);
	assert_int_equal(ckv_llama_restore(f.ckv, two, 0), CKV_ERR_UNSUPPORTED);
	assert_non_null(strstr(ckv_llama_message(f.ckv), "one sequence"));
	llama_free(two);
	assert_ok(f.ckv, ckv_llama_restore(f.ckv, f.ctx, 0)); /* still held */
	close_fixture(&f);
}

typedef struct purse {
	long left;
} purse;

static void *spend(void *user, size_t size) {
	purse *p = user;
	return p->left < 0 || p->left-- > 0 ? malloc(size) : NULL;
}

static void drop(void *user, void *memory) {
	(void)user;
	free(memory);
}

/* llama_decode can't be made to fail, so the check tells; and the rows can be put to use again. */
static void want_of_memory_is_told(void **state) {
	fixture f;
	purse p = {-1};
	ckv_allocator allocator = {spend, drop, &p};
	ckv_ctx_options options;
	(void)state;
	ckv_ctx_options_default(&options);
	options.allocator = &allocator;
	open_read(&f, "adakv", &options);
	assert_ok(f.ckv, ckv_llama_set_cache(f.ckv, CKV_LLAMA_CACHE_HOSTED));
	assert_ok(f.ckv, ckv_llama_extract(f.ckv, f.ctx, 0, ckv_keep_percent(40), NULL));
	move_to_small(&f, NULL, NULL);
	for (long n = 0; n < 3; n++) {
		p.left = n;
		decode(&f, f.prompt.tokens[0]);
		p.left = -1;
		assert_int_equal(ckv_llama_check(f.ckv), CKV_ERR_NOMEM);
		assert_ok(f.ckv, ckv_llama_restore(f.ckv, f.ctx, 0));
		assert_ok(f.ckv, ckv_llama_check(f.ckv));
	}
	free(walk(&f));
	assert_ok(f.ckv, ckv_llama_check(f.ckv));
	close_fixture(&f);
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(nothing_dropped_changes_nothing),
	    cmocka_unit_test(the_place_makes_no_difference),
	    cmocka_unit_test(unequal_lengths_lose_nothing_more),
	    cmocka_unit_test(fewer_bits_are_smaller_and_lose_more),
	    cmocka_unit_test(policies_combine),
	    cmocka_unit_test(cells_are_given_back),
	    cmocka_unit_test(tokens_can_be_taken_back),
	    cmocka_unit_test(compressed_in_place_and_shrunk),
	    cmocka_unit_test(long_questions_fit),
	    cmocka_unit_test(one_hides_while_another_hosts),
	    cmocka_unit_test(broken_graphs_leave_nothing_behind),
	    cmocka_unit_test(what_cannot_be_hosted_is_refused),
	    cmocka_unit_test(several_sequences_are_refused),
	    cmocka_unit_test(want_of_memory_is_told),
	};
	return cmocka_run_group_tests(tests, NULL, model_unload);
}
