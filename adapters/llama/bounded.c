/* A sequence of any length in a cache of fixed size: decoding in pieces, with room made before each. */
#include "adapters/llama/internal.h"

#include <string.h>

static double now(void) { return 1e-6 * (double)ggml_time_us(); }

enum { INTERVAL = 32, LEAST_PIECE = 16 };

void ckv_llama_stream_options_default(ckv_llama_stream_options *options) {
	if (options) {
		memset(options, 0, sizeof *options);
		options->size = sizeof *options;
	}
}

ckv_status ckv_llama_create_stream(ckv_llama **ckv, const ckv_stream_params *params, const ckv_ctx_options *options,
                                   ckv_error *error) {
	ckv_params none;
	ckv_keeper *probe = NULL;
	if (!ckv) {
		return CKV_ERR_ARG;
	}
	*ckv = NULL;
	ckv_status status = ckv_stream_params_hosted(params) ? CKV_OK : ckv_keeper_create(&probe, params, options, error);
	ckv_keeper_free(probe); /* it only told whether the policy can be had here */
	status = status ? status : ckv_policy_parse("full", &none, error);
	status = status ? status : ckv_llama_create_params(ckv, &none, options, error);
	if (status == CKV_OK) {
		(*ckv)->bound.by_token = true;
		(*ckv)->bound.params = *params;
	}
	return status;
}

void ckv_llama_bounded_free(ckv_llama *ckv) {
	bounded *b = &ckv->bound;
	if (ckv->host.stream) {
		ckv_llama_host_leave(ckv);
	}
	ckv_llama_keepers_free(ckv);
	if (b->batch.token) {
		llama_batch_free(b->batch);
	}
	void *owned[] = {b->order, b->pins, b->victims, b->leading, b->marks, b->floats, b->bytes};
	for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) {
		ckv_llama_release(ckv, owned[i]);
	}
	bool by_token = b->by_token;
	ckv_stream_params params = b->params;
	memset(b, 0, sizeof *b);
	b->by_token = by_token;
	b->params = params;
}

bool ckv_llama_is_sliding(const ckv_llama *ckv, const layer_view *layer) { return ckv->seen.sliding && !layer->full; }

const layer_view *ckv_llama_evicting_layer(const ckv_llama *ckv, int32_t number) {
	for (int32_t i = 0; i < ckv->seen.n_layers; i++) {
		if (!ckv_llama_is_sliding(ckv, &ckv->seen.layers[i]) && number-- == 0) {
			return &ckv->seen.layers[i];
		}
	}
	return NULL;
}

/* ---------------------------------------------------------------------------------------------------------- beginning */

/* Cells that one sequence can have. */
static int32_t cells_of(const struct llama_context *ctx) {
	uint32_t cells = llama_n_ctx_seq(ctx);
	return cells < (uint32_t)CKV_MAX_TOKENS ? (int32_t)cells : CKV_MAX_TOKENS;
}

/* Room for what stays anyway, for what may go, and for a piece. */
static int32_t least_rows(const ckv_llama *ckv, const struct llama_model *model) {
	const bounded *b = &ckv->bound;
	const ckv_params *p = ckv_ctx_params(ckv->core);
	int32_t window = llama_model_n_swa(model), chunk = b->by_token ? b->params.chunk : 1;
	bool window_scorer = b->by_token && strcmp(b->params.scorer, "snapkv") == 0;
	int32_t newest = window_scorer ? b->params.window : b->params.grace;
	int32_t kept = b->by_token ? b->params.sinks + newest : p->sinks + p->window;
	return (window > kept ? window : kept) + 2 * chunk + LEAST_PIECE;
}

static ckv_status check_budget(ckv_llama *ckv, const struct llama_model *model, int32_t cells) {
	const bounded *b = &ckv->bound;
	int32_t least = least_rows(ckv, model), window = llama_model_n_swa(model);
	if (b->budget > cells) {
		return ckv_llama_fail(ckv, CKV_ERR_POLICY, "a budget of %d rows does not fit the context's %d cells", b->budget,
		                      cells);
	}
	if (b->budget < least) {
		return ckv_llama_fail(ckv, CKV_ERR_POLICY,
		                      "a budget of %d rows is too small: what is never dropped%s and a piece of the prompt need %d",
		                      b->budget, window > 0 ? " (the model's sliding window among it)" : "", least);
	}
	return CKV_OK;
}

static void set_options(ckv_llama *ckv, struct llama_context *ctx, llama_seq_id seq,
                        const ckv_llama_stream_options *options) {
	bounded *b = &ckv->bound;
	int32_t cells = cells_of(ctx), ubatch = (int32_t)llama_n_ubatch(ctx), room = ckv_llama_host_stream_piece(ctx);
	bool hosted = ckv_llama_streams_hosted(ckv);
	b->ctx = ctx;
	b->seq = seq;
	b->budget = options && options->budget ? options->budget : cells;
	b->interval = options && options->interval ? options->interval : INTERVAL;
	b->rotate = options ? options->rotate != 0 : 0;
	/* No piece may push out more than a quarter of what is kept, nor more than can go. */
	b->piece = b->budget / 4 < ubatch ? b->budget / 4 : ubatch;
	int32_t open = hosted ? room : b->budget - least_rows(ckv, llama_get_model(ctx)) + LEAST_PIECE;
	b->piece = open < b->piece ? open : b->piece;
	b->piece = b->piece > 0 ? b->piece : 1;
}

ckv_status ckv_llama_learn_layers(ckv_llama *ckv) {
	bounded *b = &ckv->bound;
	llama_token any = llama_vocab_bos(llama_model_get_vocab(llama_get_model(b->ctx)));
	any = any >= 0 ? any : 0;
	b->batch.n_tokens = 1;
	ckv->seen.active = true;
	ckv_status status = ckv_llama_decode_batch(ckv, b->ctx, &b->batch, b->seq, &any, 0, true);
	llama_synchronize(b->ctx);
	ckv->seen.active = false;
	status = status ? status : ckv_llama_check_flaws(ckv);
	llama_memory_seq_rm(llama_get_memory(b->ctx), b->seq, -1, -1);
	return status;
}

/* What is observed of this sequence, by keepers or the one-shot policy. */
static ckv_status observe(ckv_llama *ckv, struct llama_context *ctx, llama_seq_id seq) {
	const bounded *b = &ckv->bound;
	ckv_status status = ckv_llama_observe_begin(ckv, ctx, seq);
	if (status == CKV_OK && b->by_token) {
		ckv_needs needs = ckv_keeper_needs(&b->params);
		ckv->seen.needs = needs.flags;
		ckv->seen.window = needs.n_queries;
	}
	ckv->seen.ropes = b->rotate;
	ckv->seen.active = false; /* but while our own pieces are decoded */
	return status;
}

static ckv_status check_begin(ckv_llama *ckv, struct llama_context *ctx, llama_seq_id seq,
                              const ckv_llama_stream_options *options) {
	if (options && (options->size < sizeof *options || options->budget < 0 || options->interval < 0)) {
		return ckv_llama_fail(ckv, CKV_ERR_ARG, "options: a size field that is too small, or a negative number");
	}
	ckv_status status = ckv_llama_check_model(llama_get_model(ctx), &ckv->error);
	if (status == CKV_OK && llama_memory_seq_pos_max(llama_get_memory(ctx), seq) >= 0) {
		status = ckv_llama_fail(ckv, CKV_ERR_STATE, "sequence %d has tokens already: begin with an empty one", seq);
	}
	enum ggml_type type = ckv->params.type_k;
	if (status == CKV_OK && options && options->rotate && type != GGML_TYPE_F16 && type != GGML_TYPE_BF16 &&
	    type != GGML_TYPE_F32) {
		status = ckv_llama_fail(ckv, CKV_ERR_UNSUPPORTED,
		                        "rotate turns keys again and again, which a quantised cache (%s) would wear out: use f16",
		                        ggml_type_name(type));
	}
	return status;
}

/* In llama.cpp's own cells. */
static ckv_status begin_own(ckv_llama *ckv) {
	bounded *b = &ckv->bound;
	if (b->by_token && ckv_stream_params_hosted(&b->params)) {
		return ckv_llama_fail(ckv, CKV_ERR_UNSUPPORTED, "policy '%s' needs a hosted cache: its layers differ, or it merges",
		                      b->params.preset);
	}
	ckv_status status = check_budget(ckv, llama_get_model(b->ctx), cells_of(b->ctx));
	status = status || b->by_token ? status : ckv_llama_block_check(ckv);
	return status ? status : observe(ckv, b->ctx, b->seq);
}

ckv_status ckv_llama_stream_begin(ckv_llama *ckv, struct llama_context *ctx, llama_seq_id seq,
                                  const ckv_llama_stream_options *options) {
	if (!ckv || !ctx || seq < 0 || (uint32_t)seq >= llama_n_seq_max(ctx)) {
		return CKV_ERR_ARG;
	}
	ckv_llama_begin(ckv);
	ckv_status status = check_begin(ckv, ctx, seq, options);
	if (status) {
		return status;
	}
	ckv_llama_bounded_free(ckv);
	ckv_llama_observe_clear(ckv);
	bounded *b = &ckv->bound;
	set_options(ckv, ctx, seq, options);
	b->batch = llama_batch_init(b->piece, 0, 1);
	if (!b->batch.token) {
		return ckv_llama_fail(ckv, CKV_ERR_NOMEM, "no memory for a batch of %d tokens", b->piece);
	}
	status = ckv_llama_streams_hosted(ckv) ? ckv_llama_host_stream_begin(ckv) : begin_own(ckv);
	b->active = status == CKV_OK;
	return status;
}

ckv_status ckv_llama_stream_pin(ckv_llama *ckv, int32_t first, int32_t end) {
	if (!ckv) {
		return CKV_ERR_ARG;
	}
	ckv_llama_begin(ckv);
	bounded *b = &ckv->bound;
	if (!b->by_token || first < 0 || end < first || end > CKV_MAX_TOKENS) {
		return ckv_llama_fail(ckv, b->by_token ? CKV_ERR_ARG : CKV_ERR_UNSUPPORTED,
		                      b->by_token ? "positions %d to %d are no range"
		                                  : "one-shot policies in blocks can't pin tokens (%d to %d)",
		                      first, end);
	}
	if (b->n_pins == b->pin_capacity) {
		int32_t capacity = b->pin_capacity ? 2 * b->pin_capacity : 8;
		token_span *bigger = ckv_llama_grow(ckv, b->pins, b->n_pins, capacity, sizeof *bigger);
		if (!bigger) {
			return ckv_llama_fail(ckv, CKV_ERR_NOMEM, "no memory for a pin");
		}
		b->pins = bigger;
		b->pin_capacity = capacity;
	}
	ckv_status status = ckv->host.stream ? ckv_llama_host_stream_pin(ckv, first, end) : CKV_OK;
	if (status) {
		return status; /* nothing has changed */
	}
	for (int32_t i = 0; i < b->n_keepers && status == CKV_OK; i++) {
		if (b->keepers[i]) {
			status = ckv_keeper_pin(b->keepers[i], first, end);
		}
	}
	if (status) {
		b->broken = true;
		return ckv_llama_fail(ckv, status, "no memory for a pin");
	}
	b->pins[b->n_pins++] = (token_span){first, end};
	return CKV_OK;
}

/* A change of policy that may still fail. */
static void swap_policy(bounded *b, ckv_stream_params *params, ckv_keeper ***keepers, int32_t *n) {
	ckv_stream_params old = b->params;
	ckv_keeper **old_keepers = b->keepers;
	int32_t old_n = b->n_keepers;
	b->params = *params;
	b->keepers = *keepers;
	b->n_keepers = *n;
	*params = old;
	*keepers = old_keepers;
	*n = old_n;
}

ckv_status ckv_llama_stream_set_policy(ckv_llama *ckv, const ckv_stream_params *params) {
	ckv_keeper *probe = NULL, **keepers = NULL;
	if (!ckv || !params) {
		return CKV_ERR_ARG;
	}
	ckv_llama_begin(ckv);
	bounded *b = &ckv->bound;
	if (!b->active || b->broken || !b->by_token) {
		return ckv_llama_fail(ckv, CKV_ERR_STATE, "no sequence was begun with a policy that goes token by token");
	}
	if (ckv->host.stream) {
		return ckv_llama_fail(ckv, CKV_ERR_UNSUPPORTED, "a hosted cache keeps the policy that it was begun with");
	}
	ckv_status status = ckv_keeper_create(&probe, params, NULL, &ckv->error);
	ckv_keeper_free(probe);
	if (status) {
		return status;
	}
	ckv_stream_params other = *params;
	int32_t n = 0;
	swap_policy(b, &other, &keepers, &n);
	status = check_budget(ckv, llama_get_model(b->ctx), cells_of(b->ctx));
	status = status || n == 0 ? status : ckv_llama_keepers_adopt(ckv, keepers, n);
	if (status) {
		ckv_llama_keepers_free(ckv);
		swap_policy(b, &other, &keepers, &n);
		return status;
	}
	swap_policy(b, &other, &keepers, &n);
	ckv_llama_keepers_free(ckv); /* the old ones */
	swap_policy(b, &other, &keepers, &n);
	/* The ring of queries has another length, and starts anew. */
	ckv_needs needs = ckv_keeper_needs(params);
	for (int32_t i = 0; i < ckv->seen.n_layers; i++) {
		ckv_llama_release(ckv, ckv->seen.layers[i].queries);
		ckv->seen.layers[i].queries = NULL;
	}
	ckv->seen.needs = needs.flags;
	ckv->seen.window = needs.n_queries;
	ckv->seen.queries_from = b->n_seen;
	b->unshown = 0;
	return CKV_OK;
}

/* ----------------------------------------------------------------------------------------------------------- decoding */

/* Before `size` tokens are decoded. */
static ckv_status make_room(ckv_llama *ckv, int32_t size) {
	bounded *b = &ckv->bound;
	int32_t over = b->n_rows - (b->budget - size);
	if (over <= 0) {
		return CKV_OK;
	}
	int32_t most = size < b->interval && over < b->interval ? b->interval : over;
	if (b->by_token) {
		return ckv_llama_keepers_evict(ckv, over, most);
	}
	return ckv_llama_block_evict(ckv, b->n_rows - most);
}

/* The cells of the newest n tokens join the labels' order. */
static ckv_status note_cells(ckv_llama *ckv, int32_t n) {
	bounded *b = &ckv->bound;
	const layer_view *layer = ckv_llama_evicting_layer(ckv, 0);
	if (!layer || layer->n_tokens != b->n_rows + n) {
		return ckv_llama_fail(ckv, CKV_ERR_STATE, "%d rows were seen where %d were expected: was something else decoded?",
		                      layer ? layer->n_tokens : 0, b->n_rows + n);
	}
	if (b->n_rows + n > b->order_capacity) {
		int32_t capacity = b->budget + b->piece;
		int32_t *bigger = ckv_llama_grow(ckv, b->order, b->n_rows, capacity, sizeof *bigger);
		if (!bigger) {
			return ckv_llama_fail(ckv, CKV_ERR_NOMEM, "no memory for a list of %d cells", capacity);
		}
		b->order = bigger;
		b->order_capacity = capacity;
	}
	memcpy(b->order + b->n_rows, layer->cells + b->n_rows, (size_t)n * sizeof *b->order);
	b->n_rows += n;
	b->n_seen += n;
	return CKV_OK;
}

static ckv_status decode_piece(ckv_llama *ckv, const llama_token *tokens, int32_t n, bool last) {
	bounded *b = &ckv->bound;
	ckv_status status = make_room(ckv, n);
	if (status) {
		b->broken = b->broken || status != CKV_ERR_CAPACITY;
		return status;
	}
	double start = now();
	b->batch.n_tokens = n;
	ckv->seen.active = true;
	status = ckv_llama_decode_batch(ckv, b->ctx, &b->batch, b->seq, tokens, b->n_seen, last);
	llama_synchronize(b->ctx);
	ckv->seen.active = false;
	b->report.decode_s += now() - start;
	if (status) {
		ckv_llama_observe_rewind(ckv, b->n_seen);
		int32_t seen = llama_memory_seq_pos_max(llama_get_memory(b->ctx), b->seq) + 1;
		b->broken = b->broken || status != CKV_ERR_CANCELLED || seen != b->n_seen;
		return status;
	}
	status = ckv_llama_check_flaws(ckv);
	status = status ? status : note_cells(ckv, n);
	status = status || !b->by_token ? status : ckv_llama_keepers_append(ckv, n);
	b->broken = b->broken || status != CKV_OK;
	return status;
}

ckv_status ckv_llama_stream_decode(ckv_llama *ckv, const llama_token *tokens, int32_t n) {
	if (!ckv || !tokens || n < 1) {
		return CKV_ERR_ARG;
	}
	ckv_llama_begin(ckv);
	bounded *b = &ckv->bound;
	if (!b->active || b->broken) {
		return ckv_llama_fail(ckv, CKV_ERR_STATE,
		                      b->active ? "an earlier call failed halfway: begin the sequence anew"
		                                : "no sequence was begun: call ckv_llama_stream_begin");
	}
	if (n > CKV_MAX_TOKENS - b->n_seen) {
		return ckv_llama_fail(ckv, CKV_ERR_ARG, "more than %d tokens", CKV_MAX_TOKENS);
	}
	ckv_status status = CKV_OK;
	for (int32_t done = 0, size; done < n && status == CKV_OK; done += size) {
		size = n - done < b->piece ? n - done : b->piece;
		bool last = done + size == n;
		status = ckv->host.stream ? ckv_llama_host_stream_decode(ckv, tokens + done, size, last)
		                          : decode_piece(ckv, tokens + done, size, last);
		if (status == CKV_OK && n > 1 && ckv->progress && !ckv->progress(done + size, n, ckv->progress_user)) {
			status = ckv_llama_fail(ckv, CKV_ERR_CANCELLED, "stopped after %d of %d tokens", done + size, n);
		}
	}
	return status;
}

/* ------------------------------------------------------------------------------------------------------------ looking */

static uint64_t own_bytes(const ckv_llama *ckv) {
	const bounded *b = &ckv->bound;
	const observation *seen = &ckv->seen;
	uint64_t bytes = (uint64_t)b->order_capacity * sizeof *b->order;
	for (int32_t i = 0; i < seen->n_layers; i++) {
		const layer_view *layer = &seen->layers[i];
		uint64_t row = (uint64_t)layer->n_heads * (uint64_t)layer->dim_k * sizeof(float);
		bytes += (uint64_t)layer->cells_capacity * sizeof *layer->cells;
		bytes += layer->queries ? (uint64_t)seen->window * row : 0;
		bytes += layer->mass ? (uint64_t)layer->n_kv_heads * layer->mass_stride * sizeof(float) : 0;
		bytes += b->keepers && i < b->n_keepers && b->keepers[i] ? (uint64_t)(b->budget + b->piece) * 8 : 0;
	}
	return bytes;
}

ckv_status ckv_llama_stream_get_report(const ckv_llama *ckv, ckv_llama_stream_report *report) {
	if (!ckv || !report || !ckv->bound.active) {
		return ckv && report ? CKV_ERR_STATE : CKV_ERR_ARG;
	}
	const bounded *b = &ckv->bound;
	ckv_llama_stream_report full = b->report;
	size_t size = report->size && report->size < sizeof full ? report->size : sizeof full;
	full.size = size;
	full.n_seen = b->n_seen;
	full.n_rows = b->n_rows;
	full.budget = b->budget;
	full.rotated = b->rotate;
	for (int32_t i = 0; i < ckv->seen.n_layers; i++) {
		bool sliding = ckv_llama_is_sliding(ckv, &ckv->seen.layers[i]);
		full.n_layers += !sliding;
		full.n_window_layers += sliding;
	}
	full.cache_alloc = ckv->cache_alloc;
	full.own_bytes = own_bytes(ckv);
	if (ckv->host.stream) {
		ckv_llama_host_stream_report(ckv, &full);
	}
	memcpy(report, &full, size);
	return CKV_OK;
}

ckv_status ckv_llama_stream_rows(const ckv_llama *ckv, int32_t layer, ckv_stream_rows *rows) {
	if (ckv && rows && ckv->host.stream) {
		return ckv_stream_head(ckv->host.stream, layer, 0, rows);
	}
	const layer_view *found = ckv && rows && layer >= 0 ? ckv_llama_evicting_layer(ckv, layer) : NULL;
	if (!found) {
		return CKV_ERR_ARG;
	}
	ptrdiff_t i = found - ckv->seen.layers;
	if (!ckv->bound.by_token || i >= ckv->bound.n_keepers) {
		return CKV_ERR_UNSUPPORTED;
	}
	ckv_keeper_rows(ckv->bound.keepers[i], rows);
	return CKV_OK;
}
