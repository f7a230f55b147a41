/* Sequences longer than their cache: nothing differs while everything fits; afterwards every layer has the rows it is said
 * to have, and those alone are attended to. */
#include "bounded_support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The plain loop, in pieces of the same length. */
static void plain_greedy(const bounded_fixture *f, int32_t n_cells, enum ggml_type type, int32_t piece, int32_t n,
                         llama_token *out) {
	struct llama_context *ctx = llama_init_from_model(f->model, model_params(n_cells, type));
	prompt copy = f->prompt;
	assert_non_null(ctx);
	for (int32_t done = 0, size; done < copy.n; done += size) {
		size = copy.n - done < piece ? copy.n - done : piece;
		assert_int_equal(llama_decode(ctx, llama_batch_get_one(copy.tokens + done, size)), 0);
	}
	decode_greedy(ctx, 0, copy.n, n, out);
	llama_free(ctx);
}

static void fits(const char *policy, enum ggml_type type, int32_t rotate) {
	enum { TOKENS = 300, CELLS = 512, PIECE = 100 };
	bounded_fixture f;
	llama_token plain[MAX_NEW], own[MAX_NEW];
	ckv_llama_stream_options options;
	ckv_llama_stream_options_default(&options);
	options.rotate = rotate;
	int32_t cells = bounded_cells(model_load(), CELLS);
	bounded_open(&f, policy, TOKENS, cells, type, &options);
	bounded_feed(&f, f.prompt.tokens, f.prompt.n, PIECE);
	bounded_greedy(&f, MAX_NEW, own);
	plain_greedy(&f, cells, type, PIECE, MAX_NEW, plain);
	assert_memory_equal(own, plain, sizeof plain);
	assert_int_equal(bounded_report(&f).n_evicted, 0);
	assert_int_equal(bounded_report(&f).n_seen, f.prompt.n + MAX_NEW - 1);
	bounded_close(&f);
}

static void what_fits_is_the_plain_loop(void **state) {
	(void)state;
	fits("chunkkv", GGML_TYPE_F16, 0);
	fits("streamingllm", GGML_TYPE_F16, 1);
	fits("tova", GGML_TYPE_Q8_0, 0);
	fits("=snapkv", GGML_TYPE_F16, 0);
}

/* Prompt and answer together far exceed the cells; after each step the budget holds and every row is what was written. */
static void overflow(const char *policy, enum ggml_type type, int32_t n_tokens, int32_t budget) {
	enum { NEW = 80, PIECE = 64 };
	bounded_fixture f;
	llama_token own[NEW];
	ckv_llama_stream_options options;
	ckv_llama_stream_options_default(&options);
	options.budget = bounded_cells(model_load(), budget);
	bounded_open(&f, policy, n_tokens + options.budget - budget, options.budget, type, &options);
	f.logging = true;
	bounded_feed(&f, f.prompt.tokens, f.prompt.n, PIECE);
	bounded_check_rows(&f, true);
	bounded_greedy(&f, NEW, own);
	bounded_check_rows(&f, true);
	ckv_llama_stream_report report = bounded_report(&f);
	assert_int_equal(report.n_seen, f.prompt.n + NEW - 1);
	assert_true(report.n_rows <= options.budget);
	assert_int_equal(report.n_evicted, report.n_seen - report.n_rows);
	assert_true(report.n_evictions > 5);
	assert_int_equal(llama_memory_seq_pos_max(llama_get_memory(f.ctx), 0), report.n_seen - 1);
	assert_int_equal(llama_memory_seq_pos_min(llama_get_memory(f.ctx), 0) >= report.n_seen - report.n_rows, 1);
	bounded_close(&f);
}

static void rows_are_what_was_written(void **state) {
	(void)state;
	overflow("chunkkv", GGML_TYPE_F16, 700, 320);
	overflow("h2o:grace=40,sinks=7", GGML_TYPE_Q8_0, 500, 256);
	overflow("streamingllm", GGML_TYPE_F16, 500, 256);
	overflow("snapkv", GGML_TYPE_F16, 500, 256);
	overflow("tova", GGML_TYPE_F16, 500, 256);
	overflow("l2norm", GGML_TYPE_Q4_0, 500, 256);
	overflow("chunkkv-reuse:chunk=10", GGML_TYPE_F16, 500, 300);
}

/* Different layers keep different tokens, unless they share decisions. */
static int32_t count_differing(const bounded_fixture *f, int32_t a, int32_t b) {
	ckv_stream_rows x, y;
	int32_t n = 0;
	assert_int_equal(ckv_llama_stream_rows(f->ckv, a, &x), CKV_OK);
	int32_t *first = malloc((size_t)x.n * sizeof *first);
	memcpy(first, x.positions, (size_t)x.n * sizeof *first);
	assert_int_equal(ckv_llama_stream_rows(f->ckv, b, &y), CKV_OK);
	assert_int_equal(x.n, y.n);
	for (int32_t i = 0; i < y.n; i++) {
		n += first[i] != y.positions[i];
	}
	free(first);
	return n;
}

static void layers_choose_for_themselves(void **state) {
	bounded_fixture f;
	int32_t cells = bounded_cells(model_load(), 256);
	(void)state;
	bounded_open(&f, "chunkkv-reuse", cells + 300, cells, GGML_TYPE_F16, NULL);
	bounded_feed(&f, f.prompt.tokens, f.prompt.n, 64);
	if (bounded_report(&f).n_layers > 3) {
		assert_int_equal(count_differing(&f, 0, 1), 0);
		assert_int_equal(count_differing(&f, 2, 3), 0);
		assert_true(count_differing(&f, 0, 2) > 20);
	}
	bounded_close(&f);
}

/* ----------------------------------------------------------------------------------------------------- what attention sees
 */

/* Of one layer: how many cells the last query of a decode may see, and whether those are the rows that are kept. */
typedef struct sight {
	const bounded_fixture *f;
	int32_t n_visible, n_foreign;
} sight;

static bool look(struct ggml_tensor *t, bool ask, void *user) {
	sight *s = user;
	const layer_view *layer = s->f && s->f->ckv ? bounded_layer(s->f, 0) : NULL;
	bool ours = layer && t->op == GGML_OP_FLASH_ATTN_EXT && ckv_llama_root(t->src[1]) == layer->k_root;
	if (ask || !ours) {
		return ask ? ours : true;
	}
	const struct ggml_tensor *mask = t->src[3];
	uint16_t *row = malloc((size_t)mask->ne[0] * sizeof *row);
	uint8_t *kept = calloc((size_t)layer->k_root->ne[1], 1);
	for (int32_t i = 0; i < layer->n_tokens; i++) { /* the newest, which is just being decoded, among them or not */
		kept[layer->cells[i]] = 1;
	}
	ggml_backend_tensor_get(mask, row, (size_t)(t->src[0]->ne[1] - 1) * mask->nb[1], (size_t)mask->ne[0] * sizeof *row);
	s->n_visible = s->n_foreign = 0;
	for (int64_t i = 0; i < mask->ne[0]; i++) {
		s->n_visible += ckv_llama_visible(row[i]);
		s->n_foreign += ckv_llama_visible(row[i]) && !kept[i];
	}
	free(kept);
	free(row);
	return true;
}

static void attention_sees_the_kept_rows_alone(void **state) {
	bounded_fixture f;
	sight s = {NULL, 0, 0};
	ckv_stream_params params;
	int32_t cells = bounded_cells(model_load(), 256);
	(void)state;
	memset(&f, 0, sizeof f);
	f.model = model_load();
	prompt_make(f.model, 0, cells + 200, "Who?", &f.prompt);
	assert_int_equal(ckv_stream_parse("chunkkv", &params, NULL), CKV_OK);
	assert_int_equal(ckv_llama_create_stream(&f.ckv, &params, NULL, NULL), CKV_OK);
	struct llama_context_params context = model_params(cells, GGML_TYPE_F16);
	context.cb_eval = look;
	context.cb_eval_user_data = &s;
	assert_ok(f.ckv, ckv_llama_attach(f.ckv, &context));
	f.ctx = llama_init_from_model(f.model, context);
	assert_non_null(f.ctx);
	assert_ok(f.ckv, ckv_llama_stream_begin(f.ckv, f.ctx, 0, NULL));
	bounded_feed(&f, f.prompt.tokens, f.prompt.n, 64);
	s.f = &f;
	for (int32_t i = 0; i < 40; i++) {
		bounded_feed(&f, f.prompt.tokens + i, 1, 1);
		ckv_llama_stream_report report = bounded_report(&f);
		assert_int_equal(s.n_visible, report.n_rows);
		assert_true(s.n_foreign <= 1); /* the new token's own cell, when our list does not have it yet */
	}
	bounded_close(&f);
}

/* ------------------------------------------------------------------------------------------------------------- rotation */

static float f16_value(const uint8_t *at) {
	uint16_t half;
	memcpy(&half, at, sizeof half);
	return ggml_fp16_to_fp32(half);
}

/* A kept key is the written one, turned by as many positions as have gone between it and the newest. */
static void check_turned(const bounded_fixture *f, const layer_view *layer, double *worst) {
	ckv_stream_rows rows;
	size_t row = ckv_llama_row_bytes(layer->k_root), dim = (size_t)layer->dim_k, heads = (size_t)layer->n_kv_heads;
	float expected[1024];
	uint8_t *found = malloc(row);
	int32_t seen = layer->n_tokens + layer->evicted;
	assert_int_equal(ckv_llama_stream_rows(f->ckv, 0, &rows), CKV_OK);
	for (int32_t t = 0; t < rows.n; t++) {
		const uint8_t *written = f->log.keys[layer->index] + (size_t)rows.positions[t] * row;
		int32_t turn = seen - rows.n + t - rows.positions[t];
		double size = 0.0, off = 0.0;
		for (size_t i = 0; i < heads * dim; i++) {
			expected[i] = f16_value(written + 2 * i);
		}
		for (size_t h = 0; h < heads; h++) {
			ckv_rope_turn(&layer->rope, turn, 1.0f, expected + h * dim);
		}
		ggml_backend_tensor_get(layer->k_root, found, (size_t)layer->cells[t] * layer->k_root->nb[1], row);
		for (size_t i = 0; i < heads * dim; i++) {
			double difference = (double)(f16_value(found + 2 * i) - expected[i]);
			size += (double)expected[i] * (double)expected[i];
			off += difference * difference;
		}
		double relative = sqrt(off / (size > 0 ? size : 1));
		*worst = relative > *worst ? relative : *worst;
	}
	free(found);
}

static void rotation_closes_the_gaps(void **state) {
	bounded_fixture f;
	double worst = 0.0;
	llama_token own[48];
	ckv_llama_stream_options options;
	(void)state;
	ckv_llama_stream_options_default(&options);
	options.rotate = 1;
	int32_t cells = bounded_cells(model_load(), 256);
	bounded_open(&f, "chunkkv", cells + 500, cells, GGML_TYPE_F16, &options);
	f.logging = true;
	bounded_feed(&f, f.prompt.tokens, f.prompt.n, 32);
	bounded_greedy(&f, 48, own);
	bounded_check_rows(&f, false);
	check_turned(&f, bounded_layer(&f, 0), &worst);
	print_message("largest relative departure of a turned key, after %d evictions: %.5f\n",
	              (int)bounded_report(&f).n_evictions, worst);
	assert_true(bounded_report(&f).n_evictions > 10);
	assert_true(worst > 0.0 && worst < 0.01);
	bounded_close(&f);
}

/* ----------------------------------------------------------------------------------------------------------------- state */

static double apart(const bounded_fixture *f, const bounded_fixture *g) {
	int32_t n = llama_vocab_n_tokens(llama_model_get_vocab(f->model));
	return divergence(llama_get_logits_ith(f->ctx, -1), llama_get_logits_ith(g->ctx, -1), n);
}

/* The rows lie in other cells, so llama.cpp's sums round otherwise: distributions are compared, and the rows. */
static void a_restored_sequence_goes_on_alike(void **state) {
	bounded_fixture f, g;
	int32_t cells = bounded_cells(model_load(), 256);
	(void)state;
	bounded_open(&f, "chunkkv", cells + 100, cells, GGML_TYPE_F16, NULL);
	f.logging = true;
	bounded_feed(&f, f.prompt.tokens, f.prompt.n, 64);
	size_t size = ckv_llama_stream_save(f.ckv, NULL, 0);
	assert_true(size > 1000);
	uint8_t *bytes = malloc(size);
	assert_int_equal(ckv_llama_stream_save(f.ckv, bytes, size), size);
	ckv_llama_stream_report before = bounded_report(&f);
	/* Another process would find a fresh context. */
	bounded_open(&g, "chunkkv", cells + 100, cells, GGML_TYPE_F16, NULL);
	for (size_t at = 0; at < size; at += size / 37) { /* a damaged one is refused, and nothing has happened */
		bytes[at] ^= 0x10;
		assert_int_not_equal(ckv_llama_stream_restore(g.ckv, g.ctx, 0, NULL, bytes, size), CKV_OK);
		bytes[at] ^= 0x10;
		assert_int_equal(llama_memory_seq_pos_max(llama_get_memory(g.ctx), 0), -1);
	}
	assert_int_equal(ckv_llama_stream_restore(g.ckv, g.ctx, 0, NULL, bytes, size - 1), CKV_ERR_ARG);
	assert_ok(g.ckv, ckv_llama_stream_restore(g.ckv, g.ctx, 0, NULL, bytes, size));
	assert_int_equal(bounded_report(&g).n_seen, before.n_seen);
	assert_int_equal(bounded_report(&g).n_rows, before.n_rows);
	assert_int_equal(bounded_report(&g).n_evicted, before.n_evicted);
	g.log = f.log;
	bounded_check_rows(&g, true);
	memset(&g.log, 0, sizeof g.log);
	double worst = 0.0;
	for (int32_t i = 0; i < 120; i++) { /* evictions among them */
		bounded_feed(&f, f.prompt.tokens + i, 1, 1);
		bounded_feed(&g, f.prompt.tokens + i, 1, 1);
		double kl = apart(&f, &g);
		worst = kl > worst ? kl : worst;
	}
	print_message("largest KL divergence from the sequence that was not saved: %.5f\n", worst);
	assert_true(worst < 0.05);
	assert_int_equal(bounded_report(&g).n_evictions, bounded_report(&f).n_evictions);
	assert_true(bounded_report(&g).n_evictions > before.n_evictions);
	free(bytes);
	bounded_close(&f);
	bounded_close(&g);
}

/* ---------------------------------------------------------------------------------------------------------- pins, policies
 */

static int32_t count_pinned(const bounded_fixture *f, int32_t layer) {
	ckv_stream_rows rows;
	int32_t n = 0;
	assert_int_equal(ckv_llama_stream_rows(f->ckv, layer, &rows), CKV_OK);
	for (int32_t t = 0; t < rows.n; t++) {
		int32_t at = rows.positions[t];
		n += (at >= 50 && at < 90) || (at >= 150 && at < 170);
	}
	return n;
}

/* They outlive being saved, and a change of policy after that. */
static void save_and_change(bounded_fixture *f) {
	size_t size = ckv_llama_stream_save(f->ckv, NULL, 0);
	uint8_t *bytes = malloc(size);
	ckv_stream_params other;
	assert_int_equal(ckv_llama_stream_save(f->ckv, bytes, size), size);
	assert_true(llama_memory_seq_rm(llama_get_memory(f->ctx), 0, -1, -1));
	assert_ok(f->ckv, ckv_llama_stream_restore(f->ckv, f->ctx, 0, NULL, bytes, size));
	assert_int_equal(ckv_stream_parse("streamingllm", &other, NULL), CKV_OK);
	assert_ok(f->ckv, ckv_llama_stream_set_policy(f->ckv, &other));
	free(bytes);
}

static void pinned_tokens_stay(void **state) {
	bounded_fixture f;
	int32_t cells = bounded_cells(model_load(), 256);
	(void)state;
	bounded_open(&f, "h2o", cells + 400, cells, GGML_TYPE_F16, NULL);
	assert_ok(f.ckv, ckv_llama_stream_pin(f.ckv, 50, 90)); /* before anything is there */
	bounded_feed(&f, f.prompt.tokens, 200, 64);
	assert_ok(f.ckv, ckv_llama_stream_pin(f.ckv, 150, 170));
	bounded_feed(&f, f.prompt.tokens + 200, f.prompt.n - 200, 64);
	for (int32_t i = 0; i < bounded_report(&f).n_layers; i++) {
		assert_int_equal(count_pinned(&f, i), 60);
	}
	save_and_change(&f);
	bounded_feed(&f, f.prompt.tokens, 300, 64);
	assert_int_equal(count_pinned(&f, 0), 60);
	/* More than there is room for: said so, and the sequence is as it was. */
	ckv_llama_stream_report before = bounded_report(&f);
	assert_ok(f.ckv, ckv_llama_stream_pin(f.ckv, 0, before.n_seen));
	ckv_status status = CKV_OK;
	for (int32_t i = 0; i < 400 && status == CKV_OK; i++) {
		status = ckv_llama_stream_decode(f.ckv, f.prompt.tokens, 1);
	}
	assert_int_equal(status, CKV_ERR_CAPACITY);
	assert_non_null(strstr(ckv_llama_message(f.ckv), "pinned"));
	bounded_close(&f);
}

static void another_policy_takes_over(void **state) {
	bounded_fixture f;
	ckv_stream_params params;
	int32_t cells = bounded_cells(model_load(), 256);
	(void)state;
	bounded_open(&f, "chunkkv", cells + 100, cells, GGML_TYPE_F16, NULL);
	f.logging = true;
	bounded_feed(&f, f.prompt.tokens, f.prompt.n, 64);
	const char *policies[] = {"snapkv", "l2norm", "tova", "streamingllm", "h2o"};
	for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
		assert_int_equal(ckv_stream_parse(policies[i], &params, NULL), CKV_OK);
		assert_ok(f.ckv, ckv_llama_stream_set_policy(f.ckv, &params));
		bounded_feed(&f, f.prompt.tokens, 100, 50);
		bounded_check_rows(&f, true);
	}
	assert_int_equal(ckv_stream_parse("cam", &params, NULL), CKV_OK);
	assert_int_equal(ckv_llama_stream_set_policy(f.ckv, &params), CKV_ERR_UNSUPPORTED);
	assert_int_equal(ckv_stream_parse("h2o:grace=60000", &params, NULL), CKV_OK);
	assert_int_equal(ckv_llama_stream_set_policy(f.ckv, &params), CKV_ERR_POLICY);
	bounded_feed(&f, f.prompt.tokens, 100, 50); /* the old one still stands */
	bounded_check_rows(&f, true);
	bounded_close(&f);
}

static void one_shot_policies_work_in_blocks(void **state) {
	static const char *const policies[] = {"=snapkv",  "=h2o",         "=keydiff", "=expected-attention",
	                                       "=chunkkv", "=lagkv:lag=32"};
	int32_t cells = bounded_cells(model_load(), 256);
	llama_token own[40];
	(void)state;
	for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
		bounded_fixture f;
		bounded_open(&f, policies[i], cells + 200, cells, GGML_TYPE_F16, NULL);
		bounded_feed(&f, f.prompt.tokens, f.prompt.n, 64);
		bounded_greedy(&f, 40, own);
		ckv_llama_stream_report report = bounded_report(&f);
		assert_int_equal(report.n_seen, f.prompt.n + 39);
		assert_true(report.n_rows <= cells && report.n_evictions > 2);
		assert_int_equal(report.n_evicted, report.n_seen - report.n_rows);
		bounded_close(&f);
	}
}

/* -------------------------------------------------------------------------------------------------------- other sequences
 */

/* Another sequence of the same context answers as if it were alone. */
static void other_sequences_are_left_alone(void **state) {
	enum { NEW = 24, OTHER = 200 };
	bounded_fixture f;
	ckv_stream_params params;
	llama_token alone[NEW], beside[NEW];
	ckv_llama_stream_options options;
	(void)state;
	ckv_llama_stream_options_default(&options);
	memset(&f, 0, sizeof f);
	f.model = model_load();
	options.budget = bounded_cells(f.model, 256);
	prompt_make(f.model, 0, options.budget + 200, "Who?", &f.prompt);
	for (int unified = 0; unified < 2; unified++) {
		struct llama_context_params context = model_params(2 * options.budget + 512, GGML_TYPE_F16);
		context.n_seq_max = 2;
		context.kv_unified = unified != 0;
		assert_int_equal(ckv_stream_parse("chunkkv", &params, NULL), CKV_OK);
		assert_int_equal(ckv_llama_create_stream(&f.ckv, &params, NULL, NULL), CKV_OK);
		assert_ok(f.ckv, ckv_llama_attach(f.ckv, &context));
		for (int both = 0; both < 2; both++) {
			f.ctx = llama_init_from_model(f.model, context);
			assert_non_null(f.ctx);
			struct llama_batch batch = llama_batch_get_one(f.prompt.tokens + 100, OTHER);
			assert_int_equal(llama_decode(f.ctx, batch), 0); /* sequence 0 */
			decode_greedy(f.ctx, 0, OTHER, 2, both ? beside : alone);
			if (both) {
				assert_ok(f.ckv, ckv_llama_stream_begin(f.ckv, f.ctx, 1, &options));
				f.logging = true;
				bounded_feed(&f, f.prompt.tokens, f.prompt.n, 64);
				bounded_check_rows(&f, true);
				assert_true(bounded_report(&f).n_evictions > 2);
			}
			/* On from the second token, which both have. */
			llama_token *out = both ? beside : alone;
			struct llama_batch one = llama_batch_get_one(&out[1], 1);
			assert_int_equal(llama_decode(f.ctx, one), 0);
			decode_greedy(f.ctx, 0, OTHER + 2, NEW - 2, out + 2);
			llama_free(f.ctx);
		}
		assert_memory_equal(alone, beside, sizeof alone);
		ckv_llama_free(f.ckv);
	}
	f.ckv = NULL;
	f.ctx = NULL;
	bounded_close(&f);
}

/* -------------------------------------------------------------------------------------------------------------- refusals */

static void refusals_say_why(void **state) {
	bounded_fixture f;
	ckv_stream_params params;
	ckv_llama *ckv;
	ckv_error error;
	ckv_llama_stream_options options;
	(void)state;
	ckv_llama_stream_options_default(&options);
	assert_int_equal(ckv_stream_parse("chunkkv:mode=reference", &params, &error), CKV_OK);
	assert_int_equal(ckv_llama_create_stream(&ckv, &params, NULL, &error), CKV_ERR_UNSUPPORTED);
	assert_int_equal(ckv_stream_parse("cam", &params, &error), CKV_OK); /* merges: not in llama.cpp's own cache */
	assert_int_equal(ckv_llama_create_stream(&ckv, &params, NULL, &error), CKV_OK);
	assert_int_equal(ckv_llama_set_cache(ckv, CKV_LLAMA_CACHE_OWN), CKV_ERR_UNSUPPORTED);
	ckv_llama_free(ckv);

	int32_t cells = bounded_cells(model_load(), 256);
	bounded_open(&f, "chunkkv", 100, cells, GGML_TYPE_F16, NULL);
	options.budget = cells + 4096;
	assert_int_equal(ckv_llama_stream_begin(f.ckv, f.ctx, 0, &options), CKV_ERR_POLICY);
	options.budget = cells - 240;
	assert_int_equal(ckv_llama_stream_begin(f.ckv, f.ctx, 0, &options), CKV_ERR_POLICY);
	assert_non_null(strstr(ckv_llama_message(f.ckv), llama_model_n_swa(f.model) ? "window" : "too small"));
	assert_int_equal(ckv_llama_stream_decode(f.ckv, f.prompt.tokens, 3), CKV_ERR_STATE);
	options.budget = 0;
	assert_ok(f.ckv, ckv_llama_stream_begin(f.ckv, f.ctx, 0, &options));
	bounded_feed(&f, f.prompt.tokens, 10, 10);
	assert_int_equal(ckv_llama_stream_begin(f.ckv, f.ctx, 0, &options), CKV_ERR_STATE);
	bounded_feed(&f, f.prompt.tokens + 10, 10, 10); /* the sequence that was begun goes on */
	assert_int_equal(bounded_report(&f).n_seen, 20);
	assert_int_equal(ckv_llama_stream_pin(f.ckv, 5, 3), CKV_ERR_ARG);
	bounded_close(&f);

	options.rotate = 1;
	bounded_open(&f, "chunkkv", 100, cells, GGML_TYPE_Q8_0, NULL);
	assert_int_equal(ckv_llama_stream_begin(f.ckv, f.ctx, 0, &options), CKV_ERR_UNSUPPORTED);
	assert_non_null(strstr(ckv_llama_message(f.ckv), "q8_0"));
	bounded_close(&f);
}

static bool stop_at_once(int32_t n_done, int32_t n_total, void *user) {
	(void)user;
	return n_done >= n_total;
}

/* A prompt that was stopped can be gone on with. */
static void stopping_loses_nothing(void **state) {
	bounded_fixture f, g;
	llama_token first[16], second[16];
	int32_t cells = bounded_cells(model_load(), 256);
	(void)state;
	bounded_open(&f, "chunkkv", cells + 100, cells, GGML_TYPE_F16, NULL);
	assert_ok(f.ckv, ckv_llama_stream_decode(f.ckv, f.prompt.tokens, f.prompt.n));
	bounded_greedy(&f, 16, first);
	bounded_open(&g, "chunkkv", cells + 100, cells, GGML_TYPE_F16, NULL);
	ckv_llama_on_progress(g.ckv, stop_at_once, NULL);
	int32_t done = 0;
	for (int32_t i = 0; i < 100 && done < g.prompt.n; i++) {
		ckv_status status = ckv_llama_stream_decode(g.ckv, g.prompt.tokens + done, g.prompt.n - done);
		assert_true(status == CKV_OK || status == CKV_ERR_CANCELLED);
		done = bounded_report(&g).n_seen;
	}
	bounded_greedy(&g, 16, second);
	assert_memory_equal(first, second, sizeof first);
	bounded_close(&f);
	bounded_close(&g);
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_fits_is_the_plain_loop),
	    cmocka_unit_test(rows_are_what_was_written),
	    cmocka_unit_test(layers_choose_for_themselves),
	    cmocka_unit_test(attention_sees_the_kept_rows_alone),
	    cmocka_unit_test(rotation_closes_the_gaps),
	    cmocka_unit_test(a_restored_sequence_goes_on_alike),
	    cmocka_unit_test(pinned_tokens_stay),
	    cmocka_unit_test(another_policy_takes_over),
	    cmocka_unit_test(one_shot_policies_work_in_blocks),
	    cmocka_unit_test(other_sequences_are_left_alone),
	    cmocka_unit_test(refusals_say_why),
	    cmocka_unit_test(stopping_loses_nothing),
	};
	const char *only = getenv("CKV_TEST_ONLY"); /* a pattern, while looking for something */
	if (only) {
		cmocka_set_test_filter(only);
	}
	return cmocka_run_group_tests(tests, NULL, model_unload);
}
