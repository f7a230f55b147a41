/* A sequence of any length in rows of our own: ckv_stream holds them, each layer and head its own, and may merge what it
 * lets go.
 *
 * A piece of tokens is decoded as ever. Behind the write of a layer's rows its attention is not computed but taken over the
 * stored rows and the piece's own; then the stream takes these in, and lets others go. llama.cpp keeps the newest token's
 * cell, for the next position. The budget holds between pieces: a token sees the rows that
 * were left by the piece before, and those of its own piece up to itself. */
#include "adapters/llama/internal.h"

#include <math.h>
#include <string.h>

static double now(void) { return 1e-6 * (double)ggml_time_us(); }

bool ckv_llama_streams_hosted(const ckv_llama *ckv) {
	bool needed =
	    ckv->cache_kind == CKV_LLAMA_CACHE_AUTO && ckv->bound.by_token && ckv_stream_params_hosted(&ckv->bound.params);
	return needed || ckv->cache_kind == CKV_LLAMA_CACHE_HOSTED;
}

int32_t ckv_llama_host_stream_piece(const struct llama_context *ctx) {
	/* One cell is the newest token's. */
	int64_t room = (int64_t)llama_n_ctx_seq(ctx) - 1;
	return room < 1 ? 0 : room > CKV_MAX_TOKENS ? CKV_MAX_TOKENS : (int32_t)room;
}

/* ---------------------------------------------------------------------------------------------------------- beginning */

static ckv_status check_begin(ckv_llama *ckv) {
	const bounded *b = &ckv->bound;
	if (!b->by_token) {
		return ckv_llama_fail(ckv, CKV_ERR_UNSUPPORTED,
		                      "one-shot policies in blocks compress llama.cpp's own cache, not a hosted one");
	}
	if (b->rotate) {
		return ckv_llama_fail(ckv, CKV_ERR_UNSUPPORTED, "a hosted cache keeps keys at their positions: leave rotate out");
	}
	if (llama_n_seq_max(b->ctx) > 1) {
		return ckv_llama_fail(ckv, CKV_ERR_UNSUPPORTED, "a hosted cache serves contexts of one sequence (n_seq_max 1)");
	}
	if (llama_model_n_swa(llama_get_model(b->ctx)) > 0) {
		/* One token shows no difference between layers with a window and without. */
		return ckv_llama_fail(
		    ckv, CKV_ERR_UNSUPPORTED,
		    "a sequence of any length in a hosted cache: not with sliding-window models, whose layers can't "
		    "be told apart before the window is full");
	}
	return CKV_OK;
}

/* The layers, as one token's graph has shown them. */
static ckv_status take_layers(ckv_llama *ckv, ckv_stream_shape *shapes) {
	hosting *h = &ckv->host;
	for (int32_t i = 0; i < ckv->seen.n_layers; i++) {
		const layer_view *layer = &ckv->seen.layers[i];
		ckv_status status = ckv_llama_host_can(ckv, layer);
		if (status) {
			return status;
		}
		const ckv_stream_shape shape = {layer->n_kv_heads, layer->dim_k, layer->dim_v};
		shapes[h->n_layers] = shape;
		h->layers[h->n_layers++] = (hosted_layer){.index = layer->index, .k_root = layer->k_root, .shape = shape};
	}
	return h->n_layers ? CKV_OK : ckv_llama_fail(ckv, CKV_ERR_UNSUPPORTED, "this model has no layer with a cache");
}

static ckv_status make_stream(ckv_llama *ckv) {
	hosting *h = &ckv->host;
	const bounded *b = &ckv->bound;
	size_t n = (size_t)ckv->seen.n_layers;
	ckv_ctx_options options;
	ckv_ctx_options_default(&options);
	options.allocator = &ckv->allocator;
	options.n_threads = ckv->n_threads;
	options.cpu_disable = ckv->cpu_disable;
	ckv_stream_shape *shapes = ckv_llama_alloc(ckv, n, sizeof *shapes);
	h->layers = ckv_llama_alloc(ckv, n, sizeof *h->layers);
	ckv_status status = shapes && h->layers ? take_layers(ckv, shapes)
	                                        : ckv_llama_fail(ckv, CKV_ERR_NOMEM, "no memory for a list of layers");
	if (status == CKV_OK) {
		status = ckv_stream_create(&h->stream, &b->params, b->budget, shapes, h->n_layers, &options, &ckv->error);
	}
	ckv_llama_release(ckv, shapes);
	return status;
}

ckv_status ckv_llama_host_stream_begin(ckv_llama *ckv) {
	bounded *b = &ckv->bound;
	ckv_status status = check_begin(ckv);
	status = status ? status : ckv_llama_learn_layers(ckv);
	if (status) {
		return status;
	}
	ckv_llama_host_leave(ckv);
	ckv->host = (hosting){.memory = llama_get_memory(b->ctx), .seq = b->seq};
	status = make_stream(ckv);
	if (status) {
		ckv_llama_host_leave(ckv);
	}
	ckv_llama_observe_clear(ckv);
	return status;
}

ckv_status ckv_llama_host_stream_pin(ckv_llama *ckv, int32_t first, int32_t end) {
	ckv_stream *stream = ckv->host.stream;
	ckv_status status = ckv_stream_pin(stream, first, end);
	return status ? ckv_llama_fail(ckv, status, "%s", ckv_stream_message(stream)) : CKV_OK;
}

/* ----------------------------------------------------------------------------------------------------------- decoding */

/* The stream weighs by 1 / sqrt(dim); a model with another scale has its queries longer or shorter instead. */
static ckv_status scale_queries(ckv_llama *ckv, float scale, ckv_view *q) {
	hosting *h = &ckv->host;
	float factor = scale * sqrtf((float)q->head_dim);
	size_t n = (size_t)q->n_tokens, heads = (size_t)q->n_heads, dim = (size_t)q->head_dim;
	if (fabsf(factor - 1.0f) < 1e-5f) {
		return CKV_OK;
	}
	void *memory = h->scaled;
	bool room = ckv_llama_reserve(ckv, &memory, &h->scaled_size, n * heads, dim * sizeof *h->scaled);
	h->scaled = memory;
	if (!room) {
		return ckv_llama_host_fail(ckv, CKV_ERR_NOMEM, "no memory for the queries of new tokens");
	}
	for (size_t i = 0; i < n * heads; i++) {
		const char *row = (const char *)q->data + i / heads * q->stride_token + i % heads * q->stride_head;
		memcpy(h->scaled + i * dim, row, dim * sizeof *h->scaled);
		for (size_t c = 0; c < dim; c++) {
			h->scaled[i * dim + c] *= factor;
		}
	}
	q->data = h->scaled;
	q->stride_head = dim * sizeof *h->scaled;
	q->stride_token = heads * q->stride_head;
	return CKV_OK;
}

static ckv_status attend(ckv_llama *ckv, int32_t number, struct ggml_tensor *node) {
	hosting *h = &ckv->host;
	ckv_view k, v, q;
	float scale, cap, *out = ckv_llama_host_result(ckv, node);
	ckv_status status = ckv_llama_host_rows(ckv, &h->layers[number], node->src[0]->ne[1], &k, &v);
	if (status) {
		return status;
	}
	if (!out || !ckv_llama_host_queries(ckv, node->src[0], &q)) {
		return ckv_llama_host_fail(ckv, CKV_ERR_NOMEM, "no memory to compute a layer's attention");
	}
	ckv_llama_logit_params(node, &scale, &cap);
	status = ckv_stream_attend(h->stream, number, &k, &v, &q, scale, cap, out);
	if (status) {
		return ckv_llama_host_fail(ckv, status, ckv_stream_message(h->stream));
	}
	ckv_llama_host_put(node, out);
	double start = now();
	status = scale_queries(ckv, scale, &q);
	if (status == CKV_OK) {
		status = ckv_stream_push(h->stream, number, &k, &v, &q);
		status = status ? ckv_llama_host_fail(ckv, status, ckv_stream_message(h->stream)) : CKV_OK;
	}
	h->push_s += now() - start;
	return status;
}

void ckv_llama_host_stream_after(ckv_llama *ckv, struct ggml_tensor *node) {
	hosting *h = &ckv->host;
	int32_t number = ckv_llama_host_number_of(h, node);
	if (!h->layers[number].written) {
		ckv_llama_host_fail(ckv, CKV_ERR_UNSUPPORTED, "a layer attends to the rows of another, which may be gone by then");
		return;
	}
	h->layers[number].written = false;
	attend(ckv, number, node);
}

/* squeeze shares the budget out once all layers have seen as many tokens as it has rows: a piece ends there. */
static int32_t next_piece(const ckv_llama *ckv, int32_t n) {
	const bounded *b = &ckv->bound;
	int32_t open = b->budget - b->n_seen;
	return strcmp(b->params.layers, "squeeze") == 0 && open > 0 && n > open ? open : n;
}

/* Rows of the fullest layer, the mean of all, and whether all layers have taken n tokens in. */
static bool count_rows(const ckv_llama *ckv, int32_t n, int32_t *most, int32_t *mean) {
	ckv_stream_info info;
	bool all = true;
	int64_t sum = 0;
	*most = 0;
	for (int32_t i = 0; i < ckv->host.n_layers; i++) {
		ckv_stream_layer_info(ckv->host.stream, i, &info);
		all = all && info.tokens_seen == n;
		*most = info.tokens_most > *most ? info.tokens_most : *most;
		sum += info.tokens_most;
	}
	*mean = (int32_t)((sum + ckv->host.n_layers / 2) / ckv->host.n_layers);
	return all;
}

static ckv_status note_piece(ckv_llama *ckv, int32_t n) {
	bounded *b = &ckv->bound;
	int32_t mean;
	if (!count_rows(ckv, b->n_seen + n, &b->n_rows, &mean)) {
		return ckv_llama_fail(ckv, CKV_ERR_STATE, "a layer was decoded unseen: is the ckv_llama attached to this context?");
	}
	b->n_seen += n;
	b->report.n_evictions += b->n_seen - mean > b->report.n_evicted;
	b->report.n_evicted = b->n_seen - mean;
	return CKV_OK;
}

/* Halfway through, layers would have taken in what others have not, so nobody may stop a piece: asked before it. */
static ckv_status decode_whole(ckv_llama *ckv, const llama_token *tokens, int32_t n, bool last) {
	bounded *b = &ckv->bound;
	hosting *h = &ckv->host;
	ggml_abort_callback stop = ckv->params.abort_callback;
	if (stop && stop(ckv->params.abort_callback_data)) {
		return ckv_llama_fail(ckv, CKV_ERR_CANCELLED, "stopped at token %d", b->n_seen);
	}
	if (stop) {
		llama_set_abort_callback(b->ctx, NULL, NULL);
	}
	b->batch.n_tokens = n;
	h->push_s = 0.0;
	h->streaming = true;
	ckv_status status = ckv_llama_decode_batch(ckv, b->ctx, &b->batch, b->seq, tokens, b->n_seen, last);
	llama_synchronize(b->ctx);
	h->streaming = false;
	if (stop) {
		llama_set_abort_callback(b->ctx, stop, ckv->params.abort_callback_data);
	}
	return status;
}

static ckv_status decode_piece(ckv_llama *ckv, const llama_token *tokens, int32_t n, bool last) {
	bounded *b = &ckv->bound;
	hosting *h = &ckv->host;
	int32_t most, mean;
	if (llama_memory_seq_pos_max(h->memory, b->seq) + 1 != b->n_seen) {
		return ckv_llama_fail(ckv, CKV_ERR_STATE,
		                      "the sequence has not the %d tokens of before: was something else decoded?", b->n_seen);
	}
	if (ckv_stream_check_room(h->stream, n)) {
		return ckv_llama_fail(ckv, CKV_ERR_CAPACITY, "%s: pin less, or %s", ckv_stream_message(h->stream),
		                      strcmp(b->params.layers, "uniform") == 0 ? "take a larger budget"
		                                                               : "use a policy whose layers have equal budgets");
	}
	for (int32_t i = 0; i < h->n_layers; i++) {
		h->layers[i].written = false;
	}
	double start = now();
	ckv_status status = decode_whole(ckv, tokens, n, last);
	b->report.score_s += h->push_s;
	b->report.decode_s += now() - start - h->push_s;
	if (status) {
		/* Nothing is lost where it broke off before the first layer took anything in. */
		bool none = status == CKV_ERR_CANCELLED && count_rows(ckv, b->n_seen, &most, &mean) &&
		            llama_memory_seq_pos_max(h->memory, b->seq) + 1 == b->n_seen;
		b->broken = b->broken || !none;
		return none || status != CKV_ERR_CANCELLED
		           ? status
		           : ckv_llama_fail(ckv, CKV_ERR_HOST, "a hosted cache was stopped halfway: begin the sequence anew");
	}
	status = h->failed ? h->failed : note_piece(ckv, n);
	b->broken = b->broken || status != CKV_OK;
	ckv_llama_host_settle(h);
	return status;
}

ckv_status ckv_llama_host_stream_decode(ckv_llama *ckv, const llama_token *tokens, int32_t n, bool last) {
	ckv_status status = CKV_OK;
	for (int32_t done = 0, size; done < n && status == CKV_OK; done += size) {
		size = next_piece(ckv, n - done);
		status = decode_piece(ckv, tokens + done, size, last && done + size == n);
	}
	return status;
}

/* ------------------------------------------------------------------------------------------------------------ looking */

uint64_t ckv_llama_host_stream_bytes(const ckv_llama *ckv) {
	ckv_stream_info info;
	uint64_t sum = 0;
	for (int32_t i = 0; i < ckv->host.n_layers && ckv->host.stream; i++) {
		ckv_stream_layer_info(ckv->host.stream, i, &info);
		sum += info.bytes_allocated;
	}
	return sum;
}

void ckv_llama_host_stream_report(const ckv_llama *ckv, ckv_llama_stream_report *report) {
	report->hosted = 1;
	report->n_layers = ckv->host.n_layers;
	report->cache_alloc = ckv_llama_cache_alloc(ckv);
}

ckv_status ckv_llama_host_stream_restored(ckv_llama *ckv) {
	bounded *b = &ckv->bound;
	int32_t most, mean;
	if (!count_rows(ckv, b->n_seen, &most, &mean) || most != b->n_rows) {
		return CKV_ERR_ARG;
	}
	for (int32_t i = 0; i < b->n_pins; i++) {
		ckv_status status = ckv_stream_pin(ckv->host.stream, b->pins[i].first, b->pins[i].end);
		if (status) {
			return status;
		}
	}
	return CKV_OK;
}
