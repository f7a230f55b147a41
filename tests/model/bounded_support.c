#include "bounded_support.h"

#include <stdlib.h>
#include <string.h>

int32_t bounded_cells(const struct llama_model *model, int32_t n) {
	int32_t window = llama_model_n_swa(model);
	return window > 0 ? window + n : n;
}

void bounded_open_hosted(bounded_fixture *f, const char *policy, int32_t n_tokens, int32_t budget,
                         const bounded_hook *hook) {
	ckv_stream_params params;
	ckv_error error;
	ckv_llama_stream_options options;
	memset(f, 0, sizeof *f);
	f->model = model_load();
	prompt_make(f->model, 0, n_tokens, "What is the name of the cat?", &f->prompt);
	assert_int_equal(ckv_stream_parse(policy, &params, &error), CKV_OK);
	assert_int_equal(ckv_llama_create_stream(&f->ckv, &params, NULL, &error), CKV_OK);
	assert_ok(f->ckv, ckv_llama_set_cache(f->ckv, CKV_LLAMA_CACHE_HOSTED));
	struct llama_context_params context = model_params(bounded_cells(f->model, 256), GGML_TYPE_F16);
	if (hook) {
		context.cb_eval = hook->callback;
		context.cb_eval_user_data = hook->user;
		context.abort_callback = hook->stop;
		context.abort_callback_data = hook->stop_user;
	}
	assert_ok(f->ckv, ckv_llama_attach(f->ckv, &context));
	f->ctx = llama_init_from_model(f->model, context);
	assert_non_null(f->ctx);
	ckv_llama_stream_options_default(&options);
	options.budget = budget;
	assert_ok(f->ckv, ckv_llama_stream_begin(f->ckv, f->ctx, 0, &options));
}

void bounded_open(bounded_fixture *f, const char *policy, int32_t n_tokens, int32_t n_cells, enum ggml_type type,
                  const ckv_llama_stream_options *options) {
	ckv_stream_params params;
	ckv_params one_shot;
	ckv_error error;
	memset(f, 0, sizeof *f);
	f->model = model_load();
	prompt_make(f->model, 0, n_tokens, "What is the name of the cat?", &f->prompt);
	if (policy[0] == '=') {
		assert_int_equal(ckv_policy_parse(policy + 1, &one_shot, &error), CKV_OK);
		assert_int_equal(ckv_llama_create_params(&f->ckv, &one_shot, NULL, &error), CKV_OK);
	} else {
		assert_int_equal(ckv_stream_parse(policy, &params, &error), CKV_OK);
		assert_int_equal(ckv_llama_create_stream(&f->ckv, &params, NULL, &error), CKV_OK);
	}
	struct llama_context_params context = model_params(n_cells, type);
	assert_ok(f->ckv, ckv_llama_attach(f->ckv, &context));
	f->ctx = llama_init_from_model(f->model, context);
	assert_non_null(f->ctx);
	assert_ok(f->ckv, ckv_llama_stream_begin(f->ckv, f->ctx, 0, options));
}

void bounded_close(bounded_fixture *f) {
	for (size_t i = 0; i < sizeof f->log.keys / sizeof *f->log.keys; i++) {
		free(f->log.keys[i]);
		free(f->log.values[i]);
	}
	llama_free(f->ctx);
	ckv_llama_free(f->ckv);
}

const layer_view *bounded_layer(const bounded_fixture *f, int32_t i) {
	for (int32_t k = 0; k < f->ckv->seen.n_layers; k++) {
		const layer_view *layer = &f->ckv->seen.layers[k];
		if (!ckv_llama_is_sliding(f->ckv, layer) && i-- == 0) {
			return layer;
		}
	}
	return NULL;
}

static void log_rows(const struct ggml_tensor *root, const layer_view *layer, int32_t n, uint8_t **log) {
	size_t row = ckv_llama_row_bytes(root);
	int32_t first = layer->n_tokens - n, position = layer->n_tokens + layer->evicted - n;
	if (!*log) {
		*log = calloc(LOG_TOKENS, row);
	}
	assert_non_null(*log);
	assert_true(position + n <= LOG_TOKENS);
	for (int32_t t = 0; t < n; t++) {
		ggml_backend_tensor_get(root, *log + (size_t)(position + t) * row, (size_t)layer->cells[first + t] * root->nb[1],
		                        row);
	}
}

void bounded_feed(bounded_fixture *f, const llama_token *tokens, int32_t n, int32_t piece) {
	for (int32_t done = 0, size; done < n; done += size) {
		size = n - done < piece ? n - done : piece;
		assert_ok(f->ckv, ckv_llama_stream_decode(f->ckv, tokens + done, size));
		for (int32_t k = 0; k < f->ckv->seen.n_layers && f->logging; k++) {
			const layer_view *layer = &f->ckv->seen.layers[k];
			if (!ckv_llama_is_sliding(f->ckv, layer)) {
				log_rows(layer->k_root, layer, size, &f->log.keys[layer->index]);
				log_rows(layer->v_root, layer, size, &f->log.values[layer->index]);
			}
		}
	}
}

void bounded_greedy(bounded_fixture *f, int32_t n, llama_token *out) {
	int32_t n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(f->model));
	for (int32_t i = 0; i < n; i++) {
		const float *logits = llama_get_logits_ith(f->ctx, -1);
		out[i] = 0;
		for (int32_t t = 1; t < n_vocab; t++) {
			out[i] = logits[t] > logits[out[i]] ? t : out[i];
		}
		if (i + 1 < n) {
			bounded_feed(f, &out[i], 1, 1);
		}
	}
}

ckv_llama_stream_report bounded_report(const bounded_fixture *f) {
	ckv_llama_stream_report report = {.size = sizeof report};
	assert_int_equal(ckv_llama_stream_get_report(f->ckv, &report), CKV_OK);
	return report;
}

static void check_tensor(const struct ggml_tensor *root, const layer_view *layer, const ckv_stream_rows *rows,
                         const uint8_t *log) {
	size_t row = ckv_llama_row_bytes(root);
	uint8_t *found = malloc(row);
	assert_non_null(found);
	for (int32_t t = 0; t < rows->n; t++) {
		ggml_backend_tensor_get(root, found, (size_t)layer->cells[t] * root->nb[1], row);
		assert_memory_equal(found, log + (size_t)rows->positions[t] * row, row);
	}
	free(found);
}

void bounded_check_rows(const bounded_fixture *f, bool keys) {
	ckv_llama_stream_report report = bounded_report(f);
	ckv_stream_rows rows;
	for (int32_t i = 0; i < report.n_layers; i++) {
		const layer_view *layer = bounded_layer(f, i);
		assert_int_equal(ckv_llama_stream_rows(f->ckv, i, &rows), CKV_OK);
		assert_int_equal(rows.n, report.n_rows);
		assert_int_equal(layer->n_tokens, rows.n);
		if (keys) {
			check_tensor(layer->k_root, layer, &rows, f->log.keys[layer->index]);
		}
		check_tensor(layer->v_root, layer, &rows, f->log.values[layer->index]);
	}
}
