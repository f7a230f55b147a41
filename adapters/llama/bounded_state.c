/* A bounded sequence as bytes: llama.cpp's own state of it, and what the keepers know. */
#include "adapters/llama/internal.h"

#include <string.h>

static const char magic[8] = {'C', 'K', 'V', 'L', 'L', 'A', 'M', 'A'};
enum { VERSION = 2, ORDER_MARK = 0x01020304 };

/* In front. What follows: the ranks of the cells by label; the pins; for each layer its number and whether it lets rows go,
 * then if so the rank of each row's cell among the sequence's cells and the keeper's bytes; llama.cpp's state. Hosted: the
 * pins; the size of the stream's bytes and these; llama.cpp's state of the cells that it has. */
typedef struct state_head {
	char magic[8];
	uint32_t order, version;
	int32_t n_seen, n_rows, n_layers, budget, rotate, hosted;
	uint64_t size;     /* of all */
	uint64_t keys;     /* sum of the first layer's */
	uint64_t checksum; /* of what follows */
	uint64_t n_evicted, n_evictions;
} state_head;

static uint64_t add_bytes(uint64_t sum, const void *data, size_t n) {
	const uint8_t *at = data;
	for (size_t i = 0; i < n; i++) {
		sum = (sum ^ at[i]) * 1099511628211u; /* FNV-1a */
	}
	return sum;
}

static const uint64_t empty_sum = 14695981039346656037u;

ckv_status ckv_llama_sum_keys(ckv_llama *ckv, uint64_t *sum) {
	const layer_view *layer = ckv_llama_evicting_layer(ckv, 0);
	host_rows rows;
	if (!layer || layer->n_tokens < 1) {
		return ckv_llama_fail(ckv, CKV_ERR_STATE, "there are no rows to look at");
	}
	ckv_status status = ckv_llama_rows(ckv, layer, layer->k_root, &rows);
	if (status) {
		return status;
	}
	*sum = empty_sum;
	for (int32_t t = 0; t < layer->n_tokens; t++) {
		*sum = add_bytes(*sum, rows.data + (size_t)t * rows.stride, ckv_llama_row_bytes(layer->k_root));
	}
	ckv_llama_rows_free(ckv, &rows);
	return CKV_OK;
}

uint64_t ckv_llama_sum_bytes(const void *data, size_t n) { return add_bytes(empty_sum, data, n); }

/* ------------------------------------------------------------------------------------------------------------- writing */

typedef struct writer {
	uint8_t *data;
	size_t capacity, size;
} writer;

static void put(writer *w, const void *from, size_t n) {
	if (n && w->data && w->size <= w->capacity && n <= w->capacity - w->size) {
		memcpy(w->data + w->size, from, n);
	}
	w->size += n;
}

static void put_int(writer *w, int32_t value) { put(w, &value, sizeof value); }

/* ranks[cell] = how many cells of the sequence come before it: llama.cpp writes cells in that order. */
static ckv_status rank_cells(ckv_llama *ckv, int32_t **ranks) {
	const bounded *b = &ckv->bound;
	int32_t most = 0, rank = 0;
	for (int32_t i = 0; i < b->n_rows; i++) {
		most = b->order[i] > most ? b->order[i] : most;
	}
	*ranks = ckv_llama_alloc(ckv, (size_t)most + 1, sizeof **ranks);
	if (!*ranks) {
		return ckv_llama_fail(ckv, CKV_ERR_NOMEM, "no memory for a list of cells");
	}
	memset(*ranks, 0, ((size_t)most + 1) * sizeof **ranks);
	for (int32_t i = 0; i < b->n_rows; i++) {
		(*ranks)[b->order[i]] = 1;
	}
	for (int32_t cell = 0; cell <= most; cell++) {
		int32_t own = (*ranks)[cell];
		(*ranks)[cell] = rank;
		rank += own;
	}
	return CKV_OK;
}

static ckv_status put_keeper(ckv_llama *ckv, writer *w, const ckv_keeper *keeper) {
	size_t size = ckv_keeper_save(keeper, NULL, 0);
	put_int(w, (int32_t)size);
	if (w->data && w->size + size <= w->capacity && ckv_keeper_save(keeper, w->data + w->size, size) != size) {
		return ckv_llama_fail(ckv, CKV_ERR_STATE, "the rows' account changed while it was saved");
	}
	w->size += size;
	return CKV_OK;
}

static void put_pins(const bounded *b, writer *w) {
	put_int(w, b->n_pins);
	put(w, b->pins, (size_t)b->n_pins * sizeof *b->pins);
}

static ckv_status put_layers(ckv_llama *ckv, writer *w) {
	const bounded *b = &ckv->bound;
	int32_t *ranks;
	ckv_status status = rank_cells(ckv, &ranks);
	if (status) {
		return status;
	}
	for (int32_t i = 0; i < b->n_rows; i++) {
		put_int(w, ranks[b->order[i]]);
	}
	put_pins(b, w);
	for (int32_t i = 0; i < ckv->seen.n_layers && status == CKV_OK; i++) {
		const layer_view *layer = &ckv->seen.layers[i];
		bool sliding = ckv_llama_is_sliding(ckv, layer);
		put_int(w, layer->index);
		put_int(w, !sliding);
		for (int32_t t = 0; t < b->n_rows && !sliding; t++) {
			put_int(w, ranks[layer->cells[t]]);
		}
		status = sliding ? CKV_OK : put_keeper(ckv, w, b->keepers[i]);
	}
	ckv_llama_release(ckv, ranks);
	return status;
}

static ckv_status put_stream(ckv_llama *ckv, writer *w) {
	const ckv_stream *stream = ckv->host.stream;
	uint64_t size = ckv_stream_save(stream, NULL, 0);
	put_pins(&ckv->bound, w);
	put(w, &size, sizeof size);
	if (w->data && w->size + size <= w->capacity && ckv_stream_save(stream, w->data + w->size, size) != size) {
		return ckv_llama_fail(ckv, CKV_ERR_STATE, "the rows changed while they were saved");
	}
	w->size += size;
	return CKV_OK;
}

/* Our part of it. */
static ckv_status put_rows(ckv_llama *ckv, writer *w, uint64_t *keys) {
	if (ckv->host.stream) {
		return put_stream(ckv, w);
	}
	ckv_status status = ckv_llama_keepers_observe(ckv);
	status = status ? status : ckv_llama_sum_keys(ckv, keys);
	return status ? status : put_layers(ckv, w);
}

static ckv_status put_state(ckv_llama *ckv, writer *w) {
	const bounded *b = &ckv->bound;
	size_t size = llama_state_seq_get_size(b->ctx, b->seq);
	if (w->data && w->size + size <= w->capacity &&
	    llama_state_seq_get_data(b->ctx, w->data + w->size, size, b->seq) != size) {
		return ckv_llama_fail(ckv, CKV_ERR_HOST, "llama.cpp did not give the state of sequence %d", b->seq);
	}
	w->size += size;
	return CKV_OK;
}

static ckv_status check_save(ckv_llama *ckv) {
	const bounded *b = &ckv->bound;
	if (!b->active || b->broken || !b->by_token || b->n_rows < 1) {
		return ckv_llama_fail(ckv, CKV_ERR_STATE, "there is nothing to save: %s",
		                      b->active && !b->by_token ? "one-shot policies in blocks keep no account of single rows"
		                      : b->broken               ? "an earlier call failed halfway"
		                                                : "no token was decoded");
	}
	return CKV_OK;
}

size_t ckv_llama_stream_save(ckv_llama *ckv, void *data, size_t capacity) {
	if (!ckv) {
		return 0;
	}
	ckv_llama_begin(ckv);
	const bounded *b = &ckv->bound;
	writer w = {data, data ? capacity : 0, sizeof(state_head)};
	ckv_status status = check_save(ckv);
	if (status) {
		return 0;
	}
	llama_synchronize(b->ctx);
	state_head head = {.order = ORDER_MARK,
	                   .version = VERSION,
	                   .n_seen = b->n_seen,
	                   .n_rows = b->n_rows,
	                   .n_layers = ckv->host.stream ? ckv->host.n_layers : ckv->seen.n_layers,
	                   .budget = b->budget,
	                   .rotate = b->rotate,
	                   .hosted = ckv->host.stream != NULL,
	                   .n_evicted = (uint64_t)b->report.n_evicted,
	                   .n_evictions = (uint64_t)b->report.n_evictions};
	memcpy(head.magic, magic, sizeof magic);
	status = put_rows(ckv, &w, &head.keys);
	status = status ? status : put_state(ckv, &w);
	if (status == CKV_OK && w.data && w.size <= w.capacity) {
		head.size = w.size;
		head.checksum = ckv_llama_sum_bytes(w.data + sizeof head, w.size - sizeof head);
		memcpy(w.data, &head, sizeof head);
	}
	return status ? 0 : w.size;
}

/* ------------------------------------------------------------------------------------------------------------- reading */

typedef struct reader {
	const uint8_t *data;
	size_t left;
	bool good;
} reader;

static const void *take(reader *r, size_t n) {
	const void *at = r->data;
	if (!r->good || n > r->left) {
		r->good = false;
		return NULL;
	}
	r->data += n;
	r->left -= n;
	return at;
}

static int32_t take_int(reader *r) {
	int32_t value = 0;
	const void *at = take(r, sizeof value);
	if (at) {
		memcpy(&value, at, sizeof value);
	}
	return value;
}

static ckv_status open_state(ckv_llama *ckv, reader *r, state_head *head, const void *data, size_t size) {
	if (size < sizeof *head || memcmp(data, magic, sizeof magic) != 0) {
		return ckv_llama_fail(ckv, CKV_ERR_ARG, "these %zu bytes are no saved sequence", size);
	}
	memcpy(head, data, sizeof *head);
	*r = (reader){(const uint8_t *)data + sizeof *head, size - sizeof *head, true};
	if (head->order != ORDER_MARK || head->version != VERSION) {
		return ckv_llama_fail(ckv, CKV_ERR_ARG,
		                      "the sequence was saved by another version (%u; this one reads %d) or machine",
		                      (unsigned)head->version, VERSION);
	}
	if (head->size != size || head->checksum != ckv_llama_sum_bytes(r->data, r->left)) {
		return ckv_llama_fail(ckv, CKV_ERR_ARG, "the saved sequence is damaged");
	}
	const bounded *b = &ckv->bound;
	if (head->n_seen < 0 || head->n_evicted > (uint64_t)head->n_seen || head->n_evictions > (uint64_t)head->n_seen) {
		return ckv_llama_fail(ckv, CKV_ERR_ARG, "the saved sequence is damaged");
	}
	if (head->hosted != (ckv->host.stream != NULL)) {
		return ckv_llama_fail(ckv, CKV_ERR_STATE, "the saved sequence %s a hosted cache, this one %s",
		                      head->hosted ? "has" : "has not", head->hosted ? "has not" : "has");
	}
	if (head->rotate != b->rotate || head->n_rows < 1 || (head->n_rows > b->budget && !head->hosted) ||
	    head->n_seen < head->n_rows || head->n_layers < 1 || head->n_layers > 65536) {
		return ckv_llama_fail(ckv, CKV_ERR_STATE,
		                      "the saved sequence has %d rows (rotate %d); this one has a budget of %d (rotate %d)",
		                      head->n_rows, head->rotate, b->budget, b->rotate);
	}
	return CKV_OK;
}

/* One layer's rows and account; its tensors are known already. */
static ckv_status take_layer(ckv_llama *ckv, reader *r, const state_head *head, int32_t first_cell, layer_view *layer,
                             ckv_keeper **keeper) {
	int32_t index = take_int(r), lets_go = take_int(r), n = head->n_rows;
	int32_t *cells = r->good && index == layer->index ? ckv_llama_grow(ckv, layer->cells, 0, n, sizeof *cells) : NULL;
	if (!cells) {
		return r->good && index == layer->index ? CKV_ERR_NOMEM : CKV_ERR_ARG;
	}
	layer->cells = cells;
	layer->cells_capacity = n;
	layer->n_tokens = layer->n_cells = n;
	layer->evicted = head->n_seen - n;
	layer->full = lets_go != 0;
	for (int32_t t = 0; t < n; t++) {
		int32_t rank = lets_go ? take_int(r) : t;
		if (rank < 0 || rank >= n) {
			return CKV_ERR_ARG;
		}
		cells[t] = first_cell + rank;
	}
	int32_t size = lets_go ? take_int(r) : 0;
	const void *bytes = size >= 0 ? take(r, (size_t)size) : NULL;
	if (!bytes) {
		return CKV_ERR_ARG;
	}
	ckv_status status = ckv_llama_make_keeper(ckv, keeper);
	status = status || !lets_go ? status : ckv_keeper_restore(*keeper, bytes, (size_t)size);
	ckv_stream_rows rows;
	ckv_keeper_rows(*keeper, &rows);
	if (status == CKV_OK && lets_go && (rows.n != n || ckv_keeper_seen(*keeper) != head->n_seen)) {
		status = CKV_ERR_ARG;
	}
	return status;
}

/* The keepers have them too; these are for keepers that are made later. */
static ckv_status take_pins(ckv_llama *ckv, reader *r) {
	bounded *b = &ckv->bound;
	int32_t n = take_int(r);
	const void *pins = n >= 0 && (size_t)n <= r->left / sizeof *b->pins ? take(r, (size_t)n * sizeof *b->pins) : NULL;
	if (!pins) {
		return CKV_ERR_ARG;
	}
	b->pins = ckv_llama_grow(ckv, b->pins, 0, n, sizeof *b->pins);
	if (!b->pins) {
		return CKV_ERR_NOMEM;
	}
	memcpy(b->pins, pins, (size_t)n * sizeof *b->pins);
	b->n_pins = b->pin_capacity = n;
	for (int32_t i = 0; i < n; i++) {
		if (b->pins[i].first < 0 || b->pins[i].end < b->pins[i].first) {
			return CKV_ERR_ARG;
		}
	}
	return CKV_OK;
}

static ckv_status take_layers(ckv_llama *ckv, reader *r, const state_head *head, int32_t first_cell) {
	bounded *b = &ckv->bound;
	size_t n = (size_t)head->n_layers;
	if (head->n_layers != ckv->seen.n_layers) {
		return CKV_ERR_ARG;
	}
	b->keepers = ckv_llama_alloc(ckv, n, sizeof(void *));
	if (!b->keepers) {
		return CKV_ERR_NOMEM;
	}
	memset(b->keepers, 0, n * sizeof(void *));
	ckv_status status = CKV_OK;
	for (int32_t i = 0; i < head->n_layers && status == CKV_OK; i++) {
		b->n_keepers = i + 1;
		status = take_layer(ckv, r, head, first_cell, &ckv->seen.layers[i], &b->keepers[i]);
	}
	return status;
}

static void take_counts(ckv_llama *ckv, const state_head *head) {
	bounded *b = &ckv->bound;
	b->n_rows = head->n_rows;
	b->n_seen = head->n_seen;
	b->report.n_evicted = (int64_t)head->n_evicted;
	b->report.n_evictions = (int64_t)head->n_evictions;
}

static ckv_status fail_content(ckv_llama *ckv, ckv_status status) {
	return ckv_llama_fail(ckv, status, "%s",
	                      status == CKV_ERR_NOMEM   ? "no memory to restore a sequence"
	                      : status == CKV_ERR_STATE ? "the saved sequence is of another policy"
	                                                : "the saved sequence is damaged, or of another model");
}

static ckv_status take_order(ckv_llama *ckv, reader *r, const state_head *head, int32_t first_cell) {
	bounded *b = &ckv->bound;
	b->order_capacity = b->budget + b->piece;
	b->order = ckv_llama_alloc(ckv, (size_t)b->order_capacity, sizeof *b->order);
	for (int32_t i = 0; i < head->n_rows && b->order; i++) {
		int32_t rank = take_int(r);
		if (rank < 0 || rank >= head->n_rows) {
			return CKV_ERR_ARG;
		}
		b->order[i] = first_cell + rank;
	}
	ckv->seen.queries_from = head->n_seen; /* of older tokens there are none */
	return b->order ? CKV_OK : CKV_ERR_NOMEM;
}

static ckv_status take_state(ckv_llama *ckv, const reader *r) {
	bounded *b = &ckv->bound;
	if (llama_state_seq_set_data(b->ctx, r->data, r->left, b->seq) != r->left) {
		return ckv_llama_fail(ckv, CKV_ERR_HOST,
		                      "llama.cpp did not take the saved sequence: it is of another model, other cache types, or the "
		                      "context has too few cells");
	}
	if (llama_memory_seq_pos_max(llama_get_memory(b->ctx), b->seq) + 1 != b->n_seen) {
		return ckv_llama_fail(ckv, CKV_ERR_ARG, "the saved sequence does not end where it says");
	}
	return CKV_OK;
}

static ckv_status check_keys(ckv_llama *ckv, const state_head *head) {
	uint64_t keys = 0;
	ckv_status status = ckv_llama_sum_keys(ckv, &keys);
	if (status == CKV_OK && keys != head->keys) {
		status = ckv_llama_fail(ckv, CKV_ERR_HOST, "llama.cpp put the saved rows elsewhere than was expected");
	}
	return status;
}

/* An empty cache is filled from its first cell on; a stream's cells follow those of the streams before it. */
static int32_t first_cell_of(const struct llama_context *ctx, llama_seq_id seq) {
	bool streams = llama_n_seq_max(ctx) > 1 && llama_n_ctx_seq(ctx) < llama_n_ctx(ctx);
	return streams ? seq * (int32_t)llama_n_ctx_seq(ctx) : 0;
}

/* Rows in llama.cpp's cells. */
static ckv_status take_own(ckv_llama *ckv, reader *r, const state_head *head) {
	bounded *b = &ckv->bound;
	int32_t first_cell = first_cell_of(b->ctx, b->seq);
	ckv_status status = ckv_llama_learn_layers(ckv);
	if (status) {
		return status;
	}
	status = take_order(ckv, r, head, first_cell);
	status = status ? status : take_pins(ckv, r);
	status = status ? status : take_layers(ckv, r, head, first_cell);
	status = status ? fail_content(ckv, status) : take_state(ckv, r);
	return status ? status : check_keys(ckv, head);
}

/* Rows of our own. */
static ckv_status take_stream(ckv_llama *ckv, reader *r) {
	uint64_t size = 0;
	ckv_status status = take_pins(ckv, r);
	const void *at = take(r, sizeof size);
	if (status || !at) {
		return fail_content(ckv, status ? status : CKV_ERR_ARG);
	}
	memcpy(&size, at, sizeof size);
	const void *bytes = size <= r->left ? take(r, (size_t)size) : NULL;
	status = bytes ? ckv_stream_restore(ckv->host.stream, bytes, (size_t)size) : CKV_ERR_ARG;
	status = status ? status : ckv_llama_host_stream_restored(ckv);
	return status ? fail_content(ckv, status) : take_state(ckv, r);
}

ckv_status ckv_llama_stream_restore(ckv_llama *ckv, struct llama_context *ctx, llama_seq_id seq,
                                    const ckv_llama_stream_options *options, const void *data, size_t size) {
	reader r = {NULL, 0, false};
	state_head head = {.n_rows = 0};
	if (!ckv || !data) {
		return CKV_ERR_ARG;
	}
	if (!ckv->bound.by_token) {
		return ckv_llama_fail(ckv, CKV_ERR_UNSUPPORTED, "one-shot policies in blocks can't be restored");
	}
	ckv_status status = ckv_llama_stream_begin(ckv, ctx, seq, options);
	status = status ? status : open_state(ckv, &r, &head, data, size);
	if (status) {
		return status;
	}
	take_counts(ckv, &head);
	status = head.hosted ? take_stream(ckv, &r) : take_own(ckv, &r, &head);
	if (status) {
		llama_memory_seq_rm(llama_get_memory(ctx), seq, -1, -1);
		ckv_llama_bounded_free(ckv);
		ckv_llama_observe_clear(ckv);
	}
	return status;
}
