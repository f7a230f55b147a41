/* Sequences of any length in rows of our own: nothing is lost while everything fits; afterwards each layer attends to the
 * stream's rows and those of its own tokens, and to nothing else. */
#include "bounded_support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int32_t vocabulary(const bounded_fixture *f) { return llama_vocab_n_tokens(llama_model_get_vocab(f->model)); }

static double apart(const bounded_fixture *f, const bounded_fixture *g) {
	return divergence(llama_get_logits_ith(f->ctx, -1), llama_get_logits_ith(g->ctx, -1), vocabulary(f));
}

/* The plain cache beside, all of it: what a bounded one is compared with. */
static void open_full(bounded_fixture *f, int32_t n_tokens) {
	bounded_open(f, "streamingllm", n_tokens, bounded_cells(model_load(), n_tokens + 300), GGML_TYPE_F16, NULL);
}

/* ------------------------------------------------------------------------------------------------------ while all fits */

static void plain_feed(struct llama_context *ctx, const llama_token *tokens, int32_t n, int32_t piece) {
	llama_token copy[256];
	for (int32_t done = 0, size; done < n; done += size) {
		size = n - done < piece ? n - done : piece;
		memcpy(copy, tokens + done, (size_t)size * sizeof *copy);
		assert_int_equal(llama_decode(ctx, llama_batch_get_one(copy, size)), 0);
	}
}

/* llama.cpp's matrices are multiplied with activations that it quantises, so any other rounding of a sum shows: as much as
 * between its own attention over f16 rows and over f32 rows. We are as near to the latter as it is itself. */
static void what_fits_is_the_plain_cache(void **state) {
	bounded_fixture f, g;
	double of_plain = 0.0, of_hosted = 0.0, between = 0.0;
	(void)state;
	open_full(&f, 300);
	bounded_open_hosted(&g, "chunkkv", 300, 512, NULL);
	struct llama_context_params params = model_params(bounded_cells(f.model, 600), GGML_TYPE_F32);
	params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED; /* which would have f16 rows made of them */
	struct llama_context *exact = llama_init_from_model(f.model, params);
	assert_non_null(exact);
	bounded_feed(&f, f.prompt.tokens, f.prompt.n, 100);
	bounded_feed(&g, g.prompt.tokens, g.prompt.n, 100);
	plain_feed(exact, f.prompt.tokens, f.prompt.n, 100);
	for (int i = 0; i < MAX_NEW; i++) {
		llama_token next[1];
		const float *of_exact = llama_get_logits_ith(exact, -1);
		of_plain += divergence(of_exact, llama_get_logits_ith(f.ctx, -1), vocabulary(&f)) / MAX_NEW;
		of_hosted += divergence(of_exact, llama_get_logits_ith(g.ctx, -1), vocabulary(&f)) / MAX_NEW;
		between += apart(&f, &g) / MAX_NEW;
		bounded_greedy(&f, 1, next);
		bounded_feed(&f, next, 1, 1);
		bounded_feed(&g, next, 1, 1);
		plain_feed(exact, next, 1, 1);
	}
	print_message("mean KL divergence from f32 rows: llama.cpp's f16 cells %.7f, ours %.7f; between these %.7f\n", of_plain,
	              of_hosted, between);
	assert_true(of_hosted < 1.5 * of_plain + 5e-4 && of_hosted < 0.02);
	ckv_llama_stream_report report = bounded_report(&g);
	assert_int_equal(report.hosted, 1);
	assert_int_equal(report.n_evicted, 0);
	assert_int_equal(report.n_rows, report.n_seen);
	llama_free(exact);
	bounded_close(&f);
	bounded_close(&g);
}

/* --------------------------------------------------------------------------------------------------- what is attended to */

enum { MOST_ROWS = 1024, MOST_DIM = 256 };

/* The rows of one head of a layer as they were before the graph, and how far results are from those over these. */
typedef struct referee {
	const bounded_fixture *f;
	int32_t layer; /* number of the judged one */
	int32_t n;
	uint16_t keys[MOST_ROWS][MOST_DIM], values[MOST_ROWS][MOST_DIM];
	double worst;
	int32_t n_judged;
} referee;

static double half(uint16_t bits) { return (double)ggml_fp16_to_fp32(bits); }

static const hosted_layer *judged(const referee *r) {
	return r->f && r->f->ckv->host.stream ? &r->f->ckv->host.layers[r->layer] : NULL;
}

static void remember_rows(referee *r) {
	const ckv_stream *stream = r->f->ckv->host.stream;
	const hosted_layer *layer = judged(r);
	ckv_stream_rows rows;
	uint16_t *k = malloc((size_t)MOST_ROWS * MOST_DIM * sizeof *k), *v = malloc((size_t)MOST_ROWS * MOST_DIM * sizeof *v);
	assert_int_equal(ckv_stream_head(stream, r->layer, 0, &rows), CKV_OK);
	assert_true(rows.n < MOST_ROWS && layer->shape.dim_k <= MOST_DIM && layer->shape.dim_v <= MOST_DIM);
	assert_int_equal(ckv_stream_read(stream, r->layer, 0, NULL, k, v), CKV_OK);
	r->n = rows.n;
	for (int32_t t = 0; t < rows.n; t++) {
		memcpy(r->keys[t], k + t * layer->shape.dim_k, (size_t)layer->shape.dim_k * sizeof *k);
		memcpy(r->values[t], v + t * layer->shape.dim_v, (size_t)layer->shape.dim_v * sizeof *v);
	}
	free(k);
	free(v);
}

/* The graph's own new row of head 0. */
static void add_new_row(referee *r) {
	const hosted_layer *layer = judged(r);
	ckv_view k, v;
	assert_int_equal(ckv_llama_host_rows(r->f->ckv, layer, 1, &k, &v), CKV_OK);
	memcpy(r->keys[r->n], k.data, (size_t)layer->shape.dim_k * sizeof(uint16_t));
	memcpy(r->values[r->n], v.data, (size_t)layer->shape.dim_v * sizeof(uint16_t));
	r->n++;
}

static void judge_head(referee *r, const struct ggml_tensor *node) {
	const hosted_layer *layer = judged(r);
	const float *q = node->src[0]->data, *found = node->data;
	float scale, cap;
	double weight[MOST_ROWS], most = -INFINITY, sum = 0.0;
	ckv_llama_logit_params(node, &scale, &cap);
	for (int32_t t = 0; t < r->n; t++) {
		double logit = 0.0;
		for (int32_t c = 0; c < layer->shape.dim_k; c++) {
			logit += (double)q[c] * half(r->keys[t][c]);
		}
		weight[t] = logit * (double)scale;
		weight[t] = cap > 0.0f ? (double)cap * tanh(weight[t] / (double)cap) : weight[t];
		most = weight[t] > most ? weight[t] : most;
	}
	for (int32_t t = 0; t < r->n; t++) {
		weight[t] = exp(weight[t] - most);
		sum += weight[t];
	}
	for (int32_t c = 0; c < layer->shape.dim_v; c++) {
		double expected = 0.0;
		for (int32_t t = 0; t < r->n; t++) {
			expected += weight[t] / sum * half(r->values[t][c]);
		}
		double error = fabs(expected - (double)found[c]) / (1.0 + fabs(expected));
		r->worst = error > r->worst ? error : r->worst;
	}
	r->n_judged++;
}

static bool judge(struct ggml_tensor *node, bool ask, void *user) {
	referee *r = user;
	const hosted_layer *layer = judged(r);
	bool ours = layer && node->op == GGML_OP_FLASH_ATTN_EXT && ckv_llama_root(node->src[1]) == layer->k_root;
	if (ours && ask) {
		remember_rows(r);
	} else if (ours) {
		add_new_row(r);
		judge_head(r, node);
	}
	return ask ? ours : true;
}

static void attends_to(const char *policy, int32_t layer) {
	bounded_fixture f;
	referee *r = calloc(1, sizeof *r);
	bounded_hook hook = {judge, r, NULL, NULL};
	assert_non_null(r);
	bounded_open_hosted(&f, policy, 500, 300, &hook);
	bounded_feed(&f, f.prompt.tokens, f.prompt.n, 64);
	r->layer = layer < bounded_report(&f).n_layers ? layer : 0;
	r->f = &f;
	for (int32_t i = 0; i < 40; i++) {
		bounded_feed(&f, f.prompt.tokens + i, 1, 1);
	}
	print_message("%-28s layer %d, %d rows: largest error %.6f\n", policy, r->layer, r->n, r->worst);
	assert_int_equal(r->n_judged, 40);
	assert_true(r->worst < 1e-3);
	r->f = NULL;
	bounded_close(&f);
	free(r);
}

static void attention_is_over_the_rows_that_are_there(void **state) {
	(void)state;
	attends_to("chunkkv", 0);
	attends_to("h2o:chunk=1", 7);
	attends_to("pyramidkv", 29);
	attends_to("cam", 3);
}

/* ---------------------------------------------------------------------------------------------------------- policies */

/* The budget of every layer and head after every call; what is not merged is as it was written. */
static void check_budgets(const bounded_fixture *f, int32_t *least, int32_t *most, double *mean) {
	ckv_stream_info info;
	ckv_stream_rows rows;
	int32_t n = bounded_report(f).n_layers;
	*least = INT32_MAX;
	*most = 0;
	*mean = 0.0;
	for (int32_t i = 0; i < n; i++) {
		assert_int_equal(ckv_stream_layer_info(f->ckv->host.stream, i, &info), CKV_OK);
		assert_int_equal(info.tokens_seen, bounded_report(f).n_seen);
		assert_true(info.tokens_most <= info.layer_budget);
		assert_int_equal(ckv_llama_stream_rows(f->ckv, i, &rows), CKV_OK);
		assert_int_equal(rows.n, info.tokens_kept);
		*least = info.tokens_kept < *least ? info.tokens_kept : *least;
		*most = info.tokens_kept > *most ? info.tokens_kept : *most;
		*mean += (double)info.layer_budget / n;
	}
}

static void overflow(const char *policy, bool uneven) {
	enum { BUDGET = 256 };
	bounded_fixture f;
	llama_token own[40];
	int32_t least, most;
	double mean;
	bounded_open_hosted(&f, policy, 600, BUDGET, NULL);
	for (int32_t at = 0; at < f.prompt.n; at += 90) { /* more than fits the cells beside, too */
		bounded_feed(&f, f.prompt.tokens + at, f.prompt.n - at < 90 ? f.prompt.n - at : 90, 90);
		check_budgets(&f, &least, &most, &mean);
		assert_true(llama_memory_seq_pos_max(llama_get_memory(f.ctx), 0) == bounded_report(&f).n_seen - 1);
	}
	bounded_greedy(&f, 40, own);
	check_budgets(&f, &least, &most, &mean);
	print_message("%-20s %d to %d rows\n", policy, least, most);
	assert_true(fabs(mean - BUDGET) < 1.0);
	if (bounded_report(&f).n_layers > 3) { /* few layers may have equal shares */
		assert_int_equal(most > least + 8, uneven);
	}
	assert_true(bounded_report(&f).n_evicted > 300);
	bounded_close(&f);
}

static void every_policy_keeps_its_budget(void **state) {
	ckv_stream_params params;
	(void)state;
	for (size_t i = 0; ckv_stream_preset_info(i); i++) {
		const char *name = ckv_stream_preset_info(i)->name;
		assert_int_equal(ckv_stream_parse(name, &params, NULL), CKV_OK);
		if (!params.reference) {
			overflow(name, strcmp(params.layers, "uniform") != 0);
		}
	}
}

/* Over the same text, llama.cpp's own cells and ours choose alike, by and large, and lose as little. */
static void loses_as_little_as_in_llamas_cells(void **state) {
	bounded_fixture full, own, hosted;
	double of_own = 0.0, of_hosted = 0.0;
	ckv_llama_stream_options options;
	int32_t budget = bounded_cells(model_load(), 256);
	(void)state;
	ckv_llama_stream_options_default(&options);
	options.budget = budget;
	open_full(&full, budget + 300);
	bounded_open(&own, "chunkkv", budget + 300, budget, GGML_TYPE_F16, &options);
	bounded_open_hosted(&hosted, "chunkkv", budget + 300, budget, NULL);
	bounded_feed(&full, full.prompt.tokens, full.prompt.n, 64);
	bounded_feed(&own, own.prompt.tokens, own.prompt.n, 64);
	bounded_feed(&hosted, hosted.prompt.tokens, hosted.prompt.n, 64);
	for (int i = 0; i < MAX_NEW; i++) {
		llama_token next[1];
		of_own += apart(&full, &own) / MAX_NEW;
		of_hosted += apart(&full, &hosted) / MAX_NEW;
		bounded_greedy(&full, 1, next);
		bounded_feed(&full, next, 1, 1);
		bounded_feed(&own, next, 1, 1);
		bounded_feed(&hosted, next, 1, 1);
	}
	print_message("mean KL divergence from the full cache: in llama.cpp's cells %.4f, in ours %.4f\n", of_own, of_hosted);
	assert_true(of_hosted > 0.0 && of_hosted < 2.0 * of_own + 0.05);
	bounded_close(&full);
	bounded_close(&own);
	bounded_close(&hosted);
}

/* ------------------------------------------------------------------------------------------------------------- memory */

static void memory_stays_what_it_is(void **state) {
	bounded_fixture f;
	(void)state;
	bounded_open_hosted(&f, "chunkkv", 700, 256, NULL);
	bounded_feed(&f, f.prompt.tokens, f.prompt.n, 64);
	uint64_t before = ckv_llama_cache_alloc(f.ckv), rows = ckv_llama_host_stream_bytes(f.ckv);
	assert_int_equal(bounded_report(&f).cache_alloc, before);
	assert_true(rows > 0 && before > rows);
	for (int i = 0; i < 3; i++) {
		bounded_feed(&f, f.prompt.tokens, f.prompt.n, 64);
	}
	assert_int_equal(ckv_llama_cache_alloc(f.ckv), before);
	assert_true(bounded_report(&f).n_seen > 2700);
	bounded_close(&f);
}

/* -------------------------------------------------------------------------------------------------------------- state */

static void a_restored_sequence_goes_on(const char *policy, int32_t pinned) {
	bounded_fixture f, g;
	double worst = 0.0;
	bounded_open_hosted(&f, policy, 400, 256, NULL);
	assert_ok(f.ckv, ckv_llama_stream_pin(f.ckv, 50, 50 + pinned));
	bounded_feed(&f, f.prompt.tokens, f.prompt.n, 64);
	size_t size = ckv_llama_stream_save(f.ckv, NULL, 0);
	assert_true(size > 1000);
	uint8_t *bytes = malloc(size);
	assert_int_equal(ckv_llama_stream_save(f.ckv, bytes, size), size);
	ckv_llama_stream_report before = bounded_report(&f);
	ckv_llama_stream_options options;
	ckv_llama_stream_options_default(&options);
	options.budget = 256;
	bounded_open_hosted(&g, policy, 400, 256, NULL);
	for (size_t at = 0; at < size; at += size / 17) {
		bytes[at] ^= 0x10;
		assert_int_not_equal(ckv_llama_stream_restore(g.ckv, g.ctx, 0, &options, bytes, size), CKV_OK);
		bytes[at] ^= 0x10;
		assert_int_equal(llama_memory_seq_pos_max(llama_get_memory(g.ctx), 0), -1);
	}
	assert_ok(g.ckv, ckv_llama_stream_restore(g.ckv, g.ctx, 0, &options, bytes, size));
	assert_int_equal(bounded_report(&g).n_seen, before.n_seen);
	assert_int_equal(bounded_report(&g).n_rows, before.n_rows);
	for (int32_t i = 0; i < 80; i++) {
		bounded_feed(&f, f.prompt.tokens + i, 1, 1);
		bounded_feed(&g, f.prompt.tokens + i, 1, 1);
		double kl = apart(&f, &g);
		worst = kl > worst ? kl : worst;
	}
	print_message("%s: largest KL divergence from the sequence that was not saved: %.6f\n", policy, worst);
	assert_true(worst < 0.05); /* rows lie in other slots: sums round otherwise, and what llama.cpp quantises of them */
	ckv_stream_rows a, b;
	for (int32_t i = 0; i < before.n_layers; i++) {
		assert_int_equal(ckv_llama_stream_rows(f.ckv, i, &a), CKV_OK);
		assert_int_equal(ckv_llama_stream_rows(g.ckv, i, &b), CKV_OK);
		int32_t held = 0;
		for (int32_t t = 0; t < b.n; t++) {
			held += b.positions[t] >= 50 && b.positions[t] < 50 + pinned;
		}
		assert_true(held >= pinned);
		assert_int_equal(a.n, b.n);
	}
	free(bytes);
	bounded_close(&f);
	bounded_close(&g);
}

static void restored_sequences_go_on_alike(void **state) {
	(void)state;
	a_restored_sequence_goes_on("chunkkv", 40);
	a_restored_sequence_goes_on("pyramidkv", 0);
	a_restored_sequence_goes_on("cam", 40);
}

/* What one kind of cache saved is not the other's. */
static void kinds_are_told_apart(void **state) {
	bounded_fixture f, g;
	int32_t cells = bounded_cells(model_load(), 256);
	(void)state;
	bounded_open_hosted(&f, "chunkkv", 100, cells, NULL);
	bounded_open(&g, "chunkkv", 100, cells, GGML_TYPE_F16, NULL);
	bounded_feed(&f, f.prompt.tokens, f.prompt.n, 64);
	size_t size = ckv_llama_stream_save(f.ckv, NULL, 0);
	uint8_t *bytes = malloc(size);
	assert_int_equal(ckv_llama_stream_save(f.ckv, bytes, size), size);
	assert_int_equal(ckv_llama_stream_restore(g.ckv, g.ctx, 0, NULL, bytes, size), CKV_ERR_STATE);
	assert_non_null(strstr(ckv_llama_message(g.ckv), "hosted"));
	free(bytes);
	bounded_close(&f);
	bounded_close(&g);
}

/* -------------------------------------------------------------------------------------------------------------- faults */

/* More pinned than fits is told before anything is decoded, and what there is goes on. */
static void too_many_pins_are_refused(void **state) {
	bounded_fixture f;
	(void)state;
	bounded_open_hosted(&f, "h2o", 400, 256, NULL);
	bounded_feed(&f, f.prompt.tokens, 100, 64);
	assert_ok(f.ckv, ckv_llama_stream_pin(f.ckv, 100, 360));
	ckv_status status = CKV_OK;
	int32_t done = 100;
	for (; done + 20 <= f.prompt.n && status == CKV_OK; done += 20) {
		status = ckv_llama_stream_decode(f.ckv, f.prompt.tokens + done, 20);
	}
	assert_int_equal(status, CKV_ERR_CAPACITY);
	assert_int_equal(bounded_report(&f).n_seen, done - 20);
	assert_int_equal(llama_memory_seq_pos_max(llama_get_memory(f.ctx), 0), done - 21);
	assert_int_equal(ckv_llama_stream_decode(f.ckv, f.prompt.tokens, 200), CKV_ERR_CAPACITY); /* not broken: told again */
	bounded_close(&f);
}

static bool stop_at_once(int32_t n_done, int32_t n_total, void *user) {
	(void)user;
	return n_done >= n_total;
}

/* Every third time it is asked; NEVER holds it off. */
enum { NEVER = -1 };

static bool stop_sometimes(void *user) {
	int *calls = user;
	return *calls != NEVER && ++*calls % 3 == 0;
}

static void stopping_loses_nothing(void **state) {
	bounded_fixture f, g;
	llama_token first[16], second[16];
	int calls = NEVER; /* not while the context is made */
	bounded_hook hook = {NULL, NULL, stop_sometimes, &calls};
	(void)state;
	bounded_open_hosted(&f, "chunkkv", 400, 256, NULL);
	assert_ok(f.ckv, ckv_llama_stream_decode(f.ckv, f.prompt.tokens, f.prompt.n));
	bounded_greedy(&f, 16, first);
	bounded_open_hosted(&g, "chunkkv", 400, 256, &hook);
	ckv_llama_on_progress(g.ckv, stop_at_once, NULL);
	calls = 0;
	int32_t done = 0, n_stops = 0;
	for (int32_t i = 0; i < 100 && done < g.prompt.n; i++) {
		ckv_status status = ckv_llama_stream_decode(g.ckv, g.prompt.tokens + done, g.prompt.n - done);
		assert_true(status == CKV_OK || status == CKV_ERR_CANCELLED);
		n_stops += status != CKV_OK && bounded_report(&g).n_seen == done;
		done = bounded_report(&g).n_seen;
	}
	assert_true(n_stops > 0);
	calls = NEVER;
	bounded_greedy(&g, 16, second);
	assert_memory_equal(first, second, sizeof first);
	bounded_close(&f);
	bounded_close(&g);
}

static void foreign_decodes_are_noticed(void **state) {
	bounded_fixture f;
	(void)state;
	bounded_open_hosted(&f, "chunkkv", 100, 256, NULL);
	bounded_feed(&f, f.prompt.tokens, 50, 50);
	llama_token token = f.prompt.tokens[50];
	assert_int_equal(llama_decode(f.ctx, llama_batch_get_one(&token, 1)), 0);
	assert_int_equal(ckv_llama_stream_decode(f.ckv, f.prompt.tokens + 51, 1), CKV_ERR_STATE);
	assert_non_null(strstr(ckv_llama_message(f.ckv), "something else"));
	bounded_close(&f);
}

static void refuse(const char *policy, enum ggml_type type, uint32_t n_seq, int32_t rotate, ckv_status expected,
                   const char *word) {
	ckv_stream_params params;
	ckv_llama *ckv;
	ckv_llama_stream_options options;
	struct llama_model *model = model_load();
	assert_int_equal(ckv_stream_parse(policy, &params, NULL), CKV_OK);
	assert_int_equal(ckv_llama_create_stream(&ckv, &params, NULL, NULL), CKV_OK);
	assert_ok(ckv, ckv_llama_set_cache(ckv, CKV_LLAMA_CACHE_HOSTED));
	struct llama_context_params context = model_params(bounded_cells(model, 256), type);
	context.n_seq_max = n_seq;
	assert_ok(ckv, ckv_llama_attach(ckv, &context));
	struct llama_context *ctx = llama_init_from_model(model, context);
	assert_non_null(ctx);
	ckv_llama_stream_options_default(&options);
	options.budget = strcmp(word, "budget") == 0 ? 20 : 256;
	options.rotate = rotate;
	assert_int_equal(ckv_llama_stream_begin(ckv, ctx, 0, &options), expected);
	assert_non_null(strstr(ckv_llama_message(ckv), word));
	assert_int_equal(ckv_llama_stream_decode(ckv, (const llama_token[]){1, 2}, 2), CKV_ERR_STATE);
	llama_free(ctx);
	ckv_llama_free(ckv);
}

/* Whatever is done to the sequence from elsewhere is an error that says so, and beginning anew helps. */
static void what_was_left_is_not_gone_on_with(void **state) {
	bounded_fixture f;
	ckv_llama_stream_options options;
	(void)state;
	bounded_open_hosted(&f, "h2o", 300, 256, NULL);
	bounded_feed(&f, f.prompt.tokens, 100, 50);
	assert_int_equal(ckv_llama_shrink(f.ckv, &f.ctx, 0, 256), CKV_ERR_STATE);
	assert_int_equal(ckv_llama_stream_pin(f.ckv, 0, INT32_MAX), CKV_ERR_ARG);
	bounded_feed(&f, f.prompt.tokens + 100, 10, 10); /* neither has done anything */
	ckv_llama_leave(f.ckv);
	assert_int_equal(ckv_llama_stream_decode(f.ckv, f.prompt.tokens + 110, 10), CKV_ERR_STATE);
	assert_int_equal(ckv_llama_stream_save(f.ckv, NULL, 0), 0);
	ckv_llama_stream_options_default(&options);
	options.budget = 256;
	assert_true(llama_memory_seq_rm(llama_get_memory(f.ctx), 0, -1, -1));
	assert_ok(f.ckv, ckv_llama_stream_begin(f.ckv, f.ctx, 0, &options));
	bounded_feed(&f, f.prompt.tokens, f.prompt.n, 64);
	bounded_close(&f);
}

/* The one test where windows slide: one token does not tell the layers apart. */
static void sliding_windows_are_refused(void **state) {
	(void)state;
	if (llama_model_n_swa(model_load()) == 0) {
		skip();
	}
	refuse("chunkkv", GGML_TYPE_F16, 1, 0, CKV_ERR_UNSUPPORTED, "sliding-window");
}

static void what_cannot_be_had_is_refused(void **state) {
	bounded_fixture f;
	ckv_stream_params other;
	(void)state;
	refuse("chunkkv", GGML_TYPE_F16, 1, 1, CKV_ERR_UNSUPPORTED, "rotate");
	refuse("chunkkv", GGML_TYPE_Q8_0, 1, 0, CKV_ERR_UNSUPPORTED, "q8_0");
	refuse("chunkkv", GGML_TYPE_F16, 2, 0, CKV_ERR_UNSUPPORTED, "one sequence");
	refuse("chunkkv", GGML_TYPE_F16, 1, 0, CKV_ERR_POLICY, "budget");
	bounded_open_hosted(&f, "chunkkv", 100, 256, NULL);
	assert_int_equal(ckv_stream_parse("h2o", &other, NULL), CKV_OK);
	bounded_feed(&f, f.prompt.tokens, 50, 50);
	assert_int_equal(ckv_llama_stream_set_policy(f.ckv, &other), CKV_ERR_UNSUPPORTED);
	bounded_feed(&f, f.prompt.tokens + 50, 10, 10); /* it goes on */
	assert_int_equal(bounded_report(&f).n_seen, 60);
	bounded_close(&f);
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_fits_is_the_plain_cache),
	    cmocka_unit_test(attention_is_over_the_rows_that_are_there),
	    cmocka_unit_test(every_policy_keeps_its_budget),
	    cmocka_unit_test(loses_as_little_as_in_llamas_cells),
	    cmocka_unit_test(memory_stays_what_it_is),
	    cmocka_unit_test(restored_sequences_go_on_alike),
	    cmocka_unit_test(kinds_are_told_apart),
	    cmocka_unit_test(too_many_pins_are_refused),
	    cmocka_unit_test(stopping_loses_nothing),
	    cmocka_unit_test(foreign_decodes_are_noticed),
	    cmocka_unit_test(what_was_left_is_not_gone_on_with),
	    cmocka_unit_test(what_cannot_be_had_is_refused),
	    cmocka_unit_test(sliding_windows_are_refused),
	};
	bool slides = getenv("CKV_TEST_MODEL") && llama_model_n_swa(model_load()) > 0;
	if (slides) {
		cmocka_set_test_filter("sliding*");
	}
	const char *only = getenv("CKV_TEST_ONLY"); /* a pattern, while looking for something */
	if (only) {
		cmocka_set_test_filter(only);
	}
	return cmocka_run_group_tests(tests, NULL, model_unload);
}
