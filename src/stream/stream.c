/* Making, looking at, and taking back a stream. */
#include "stream/internal.h"

#include <string.h>

lane_rule ckv_stream_rule(const ckv_stream *stream) {
	const ckv_stream_params *p = &stream->params;
	bool window = stream->scorer == STREAM_SNAPKV && !stream->by_call;
	lane_rule rule = {.chunk = p->chunk,
	                  .sinks = p->sinks,
	                  .grace = window ? p->window : p->grace,
	                  .stored_index = p->reference != 0,
	                  .newer_loses = stream->scorer == STREAM_KNORM || stream->by_call,
	                  .pins = stream->pins.at,
	                  .n_pins = stream->pins.n};
	return rule;
}

stream_layer *ckv_stream_leader(const ckv_stream *stream, int32_t layer) {
	int32_t reuse = stream->params.reuse, first = layer - layer % reuse;
	return first < layer ? &stream->layers[first] : NULL;
}

/* ----------------------------------------------------------------------------------------------------------- checking */

/* Room for what is protected and something that may go. */
static ckv_status check_budget(const ckv_stream_params *p, int32_t budget, ckv_error *error) {
	int64_t sinks = p->sinks, grace = p->grace, chunk = p->chunk, least;
	stream_scorer scorer = ckv_stream_scorer_of(p);
	if (p->reference) {
		bool streaming = scorer == STREAM_STREAMING,
		     strict = strcmp(p->preset, "h2o") == 0 || strcmp(p->preset, "l2norm") == 0;
		least = streaming ? (sinks > 1 ? sinks : 1) : strict && grace > 0 ? sinks + grace + 1 : sinks + 1;
		least = grace > 0 && sinks + grace + chunk - 1 > least ? sinks + grace + chunk - 1 : least;
	} else {
		least = ckv_stream_least(p);
	}
	if (budget < least || budget >= CKV_MAX_TOKENS) {
		return ckv_fail(error, CKV_ERR_POLICY,
		                "a budget of %d rows does not do for %s: sinks=%d, %s=%d and chunks of %d need %lld", budget,
		                p->preset, p->sinks, scorer == STREAM_SNAPKV ? "twice window" : "grace",
		                scorer == STREAM_SNAPKV ? p->window : p->grace, p->chunk, (long long)least);
	}
	return CKV_OK;
}

static ckv_status check_shapes(const ckv_stream_params *p, const ckv_stream_shape *shapes, int32_t n_layers,
                               ckv_error *error) {
	for (int32_t i = 0; i < n_layers; i++) {
		const ckv_stream_shape *s = &shapes[i];
		if (s->n_kv_heads < 1 || s->n_kv_heads > 65536 || s->dim_k < 1 || s->dim_k > 65536 || s->dim_v < 1 ||
		    s->dim_v > 65536) {
			return ckv_fail(error, CKV_ERR_ARG, "layer %d: %d KV heads of %d and %d are out of range", i, s->n_kv_heads,
			                s->dim_k, s->dim_v);
		}
		if (shapes[i - i % p->reuse].n_kv_heads != s->n_kv_heads) {
			return ckv_fail(error, CKV_ERR_ARG, "layer %d shares decisions with layer %d, which has other heads", i,
			                i - i % p->reuse);
		}
	}
	return CKV_OK;
}

/* ------------------------------------------------------------------------------------------------------------- making */

static void *zeroed(const ckv_allocator *allocator, size_t count, size_t size) {
	void *memory = count > (size_t)PTRDIFF_MAX / size ? NULL : allocator->alloc(allocator->user, count * size);
	return memory ? memset(memory, 0, count * size) : NULL;
}

static bool make_layers(ckv_stream *stream, const ckv_stream_shape *shapes) {
	stream->layers = zeroed(&stream->allocator, (size_t)stream->n_layers, sizeof *stream->layers);
	for (int32_t i = 0; i < stream->n_layers && stream->layers; i++) {
		stream_layer *layer = &stream->layers[i];
		layer->shape = shapes[i];
		layer->heads = zeroed(&stream->allocator, (size_t)shapes[i].n_kv_heads, sizeof *layer->heads);
		if (!layer->heads) {
			return false;
		}
	}
	return stream->layers != NULL;
}

/* Pyramids, and squeeze of a single layer, are settled at once. */
static ckv_status plan(ckv_stream *stream, ckv_error *error) {
	const float alike = 0.0f;
	int32_t n = stream->n_layers;
	for (int32_t i = 0; i < n; i++) {
		stream->layers[i].budget = stream->budget;
	}
	if (stream->rule == STREAM_UNIFORM || (stream->rule == STREAM_SQUEEZE && n > 1)) {
		return CKV_OK;
	}
	int32_t *budgets = stream->allocator.alloc(stream->allocator.user, (size_t)n * sizeof *budgets);
	if (!budgets) {
		return ckv_fail(error, CKV_ERR_NOMEM, "no memory for %d budgets", n);
	}
	ckv_status status = ckv_stream_budgets(&stream->params, stream->budget, n, &alike, budgets, error);
	for (int32_t i = 0; i < n && status == CKV_OK; i++) {
		stream->layers[i].budget = budgets[i];
	}
	stream->allocator.free(stream->allocator.user, budgets);
	return status;
}

static void forget(stream_layer *layer, int32_t mean, bool waits) {
	for (int32_t h = 0; h < layer->shape.n_kv_heads; h++) {
		stream_head *head = &layer->heads[h];
		head->lane.n = head->n_evicted = head->n_events = 0;
		head->draws = 0;
		for (int32_t i = 0; i < head->lane.capacity; i++) {
			head->lane.slots[i] = i;
		}
	}
	layer->budget = waits ? mean : layer->budget;
	layer->planned = -1;
	layer->seen = layer->pushed = layer->pushed_from = layer->ring_from = 0;
	layer->n_query_heads = -1;
	layer->reported = false;
	layer->concentration = 0.0f;
}

void ckv_stream_clear(ckv_stream *stream) {
	for (int32_t i = 0; stream && i < stream->n_layers; i++) {
		stream_layer *layer = &stream->layers[i];
		forget(layer, stream->budget, stream->rule == STREAM_SQUEEZE && stream->n_layers > 1);
		if (layer->ring) { /* its size hangs on the query heads, which may be others now */
			stream->allocator.free(stream->allocator.user, layer->ring);
			layer->ring = NULL;
		}
	}
	if (stream) {
		stream->pins.n = 0;
	}
}

static ckv_stream *allocate(const ckv_stream_params *params, const ckv_ctx_options *options, int32_t n_layers) {
	ckv_allocator allocator = options && options->allocator ? *options->allocator : ckv_allocator_default();
	ckv_stream *stream = zeroed(&allocator, 1, sizeof *stream);
	if (!stream) {
		return NULL;
	}
	stream->allocator = allocator;
	stream->kernels = ckv_kernels_get(ckv_cpu_features() & ~(options ? options->cpu_disable : 0u));
	stream->n_threads = options ? options->n_threads : 0;
	stream->params = *params;
	stream->params.size = sizeof stream->params;
	ckv_stream_params_own(&stream->params);
	stream->scorer = ckv_stream_scorer_of(params);
	stream->rule = ckv_stream_layers_of(params);
	stream->merge = ckv_stream_merge_of(params);
	bool calls = strcmp(params->preset, "l2norm") == 0 || stream->scorer == STREAM_SNAPKV;
	stream->by_call = params->reference && calls;
	stream->n_layers = n_layers;
	return stream;
}

ckv_status ckv_stream_check_made(const ckv_stream_params *params, const ckv_ctx_options *options, ckv_error *error) {
	if (!params || params->size < sizeof *params || (options && options->size < sizeof *options)) {
		return ckv_fail(error, CKV_ERR_ARG,
		                "parameters are missing, or a struct's size field is too small: start from its _default() call");
	}
	if (options &&
	    (options->n_threads < 0 || (options->allocator && (!options->allocator->alloc || !options->allocator->free)))) {
		return ckv_fail(error, CKV_ERR_ARG, "%d threads, or an allocator that lacks alloc or free", options->n_threads);
	}
	return ckv_stream_params_check(params, error);
}

static ckv_status check_create(const ckv_stream_params *params, int32_t budget, const ckv_stream_shape *shapes,
                               int32_t n_layers, const ckv_ctx_options *options, ckv_error *error) {
	if (!params || !shapes || n_layers < 1) {
		return ckv_fail(error, CKV_ERR_ARG,
		                "ckv_stream_create needs a place for the stream, parameters, and shapes of layers");
	}
	ckv_status status = ckv_stream_check_made(params, options, error);
	if (status) {
		return status;
	}
	ckv_stream_params own = *params;
	ckv_stream_params_own(&own);
	status = check_budget(&own, budget, error);
	return status ? status : check_shapes(&own, shapes, n_layers, error);
}

ckv_status ckv_stream_create(ckv_stream **stream, const ckv_stream_params *params, int32_t budget,
                             const ckv_stream_shape *shapes, int32_t n_layers, const ckv_ctx_options *options,
                             ckv_error *error) {
	if (!stream) {
		return ckv_fail(error, CKV_ERR_ARG, "ckv_stream_create needs a place for the stream");
	}
	*stream = NULL;
	ckv_status status = check_create(params, budget, shapes, n_layers, options, error);
	if (status) {
		return status;
	}
	ckv_stream *made = allocate(params, options, n_layers);
	if (!made || !make_layers(made, shapes)) {
		ckv_stream_free(made);
		return ckv_fail(error, CKV_ERR_NOMEM, "no memory for a stream of %d layers", n_layers);
	}
	made->budget = budget;
	ckv_stream_clear(made);
	status = plan(made, error);
	if (status) {
		ckv_stream_free(made);
		return status;
	}
	*stream = made;
	ckv_fail(error, CKV_OK, "%s", "");
	return CKV_OK;
}

void ckv_stream_free(ckv_stream *stream) {
	if (!stream) {
		return;
	}
	ckv_allocator allocator = stream->allocator;
	for (int32_t i = 0; i < stream->n_layers && stream->layers; i++) {
		stream_layer *layer = &stream->layers[i];
		for (int32_t h = 0; h < layer->shape.n_kv_heads && layer->heads; h++) {
			ckv_store_free(stream, &layer->heads[h]);
		}
		if (layer->heads) {
			allocator.free(allocator.user, layer->heads);
		}
		if (layer->ring) {
			allocator.free(allocator.user, layer->ring);
		}
	}
	ckv_memory_free(&allocator, &stream->new_keys);
	ckv_memory_free(&allocator, &stream->new_values);
	ckv_memory_free(&allocator, &stream->new_queries);
	ckv_memory_free(&allocator, &stream->work);
	ckv_pins_free(&allocator, &stream->pins);
	if (stream->layers) {
		allocator.free(allocator.user, stream->layers);
	}
	allocator.free(allocator.user, stream);
}

const char *ckv_stream_message(const ckv_stream *stream) { return stream ? stream->error.message : ""; }

/* --------------------------------------------------------------------------------------------------------------- plan */

void ckv_stream_settle(ckv_stream *stream) {
	int32_t n = stream->n_layers;
	double sum = 0.0;
	for (int32_t i = 0; i < n; i++) {
		if (!stream->layers[i].reported) {
			return;
		}
	}
	for (int32_t i = 0; i < n; i++) {
		sum += ckv_squeeze_raw(stream->layers[i].concentration);
	}
	for (int32_t i = 0; i < n && n > 1; i++) {
		stream->layers[i].planned =
		    ckv_squeeze_budget(&stream->params, stream->budget, n, stream->layers[i].concentration, sum);
	}
}

/* ------------------------------------------------------------------------------------------------------------ looking */

static const stream_head *find_head(const ckv_stream *stream, int32_t layer, int32_t head) {
	bool there =
	    stream && layer >= 0 && layer < stream->n_layers && head >= 0 && head < stream->layers[layer].shape.n_kv_heads;
	return there ? &stream->layers[layer].heads[head] : NULL;
}

ckv_status ckv_stream_layer_info(const ckv_stream *stream, int32_t layer, ckv_stream_info *info) {
	if (!find_head(stream, layer, 0) || !info) {
		return CKV_ERR_ARG;
	}
	const stream_layer *l = &stream->layers[layer];
	uint64_t row = 2u * ((uint64_t)l->shape.dim_k + (uint64_t)l->shape.dim_v), rows = 0, held = 0;
	ckv_stream_info out = {.chunk_size = stream->params.chunk, .tokens_seen = l->seen};
	out.layer_budget = l->budget;
	out.tokens_kept = l->heads[0].lane.n;
	for (int32_t h = 0; h < l->shape.n_kv_heads; h++) {
		const stream_head *head = &l->heads[h];
		rows += (uint64_t)head->lane.n;
		out.tokens_most = head->lane.n > out.tokens_most ? head->lane.n : out.tokens_most;
		held += (uint64_t)head->lane.capacity * (row + 4 * sizeof(int32_t)) +
		        (uint64_t)head->room * (sizeof *head->evicted + sizeof *head->events);
	}
	out.bytes = rows * row;
	out.bytes_full = (uint64_t)l->seen * (uint64_t)l->shape.n_kv_heads * row;
	out.bytes_allocated = held + (l->ring ? l->ring_size : 0);
	out.compression_ratio = out.bytes ? (double)out.bytes_full / (double)out.bytes : 1.0;
	*info = out;
	return CKV_OK;
}

ckv_status ckv_stream_head(const ckv_stream *stream, int32_t layer, int32_t head, ckv_stream_rows *rows) {
	const stream_head *h = find_head(stream, layer, head);
	if (!h || !rows) {
		return CKV_ERR_ARG;
	}
	bool scored = stream->scorer <= STREAM_KNORM;
	*rows = (ckv_stream_rows){h->lane.n, h->lane.positions, scored ? h->lane.scores : NULL};
	return CKV_OK;
}

enum { MOST_TURNED = 1024 }; /* channels of a key */

/* One key, turned by as many positions as lie between where it was and where it is to be. */
static void copy_turned(const ckv_stream *stream, const ckv_rope *rope, const uint16_t *key, int32_t turn, size_t dim,
                        uint16_t *out) {
	float row[MOST_TURNED];
	if (turn == 0) {
		memcpy(out, key, dim * sizeof *out);
		return;
	}
	stream->kernels->f16_to_f32(key, row, dim);
	ckv_rope_turn(rope, turn, 1.0f, row);
	for (size_t c = 0; c < dim; c++) {
		out[c] = ckv_f16_from_f32(row[c]);
	}
}

ckv_status ckv_stream_read(const ckv_stream *stream, int32_t layer, int32_t head, const ckv_rope *rope, uint16_t *keys,
                           uint16_t *values) {
	const stream_head *h = find_head(stream, layer, head);
	if (!h) {
		return CKV_ERR_ARG;
	}
	const stream_layer *l = &stream->layers[layer];
	size_t dim_k = (size_t)l->shape.dim_k, dim_v = (size_t)l->shape.dim_v;
	if (rope && (rope->n_dims > l->shape.dim_k || l->shape.dim_k > MOST_TURNED || rope->n_dims < 0 ||
	             (rope->n_dims > 0 && !rope->inv_freq))) {
		return CKV_ERR_ARG;
	}
	for (int32_t i = 0; i < h->lane.n; i++) {
		int32_t turn = rope && rope->n_dims ? l->seen - h->lane.n + i - h->lane.positions[i] : 0;
		if (keys) {
			copy_turned(stream, rope, ckv_store_key(l, h, i), turn, dim_k, keys + (size_t)i * dim_k);
		}
		if (values) {
			memcpy(values + (size_t)i * dim_v, ckv_store_value(l, h, i), dim_v * sizeof *values);
		}
	}
	return CKV_OK;
}

ckv_status ckv_stream_evicted(const ckv_stream *stream, int32_t layer, int32_t head, const int32_t **positions, int32_t *n) {
	const stream_head *h = find_head(stream, layer, head);
	if (!h || !positions || !n) {
		return CKV_ERR_ARG;
	}
	*positions = h->evicted;
	*n = h->n_evicted;
	return CKV_OK;
}

/* -------------------------------------------------------------------------------------------------------- taking back */

static ckv_status check_trim(ckv_stream *stream, int32_t n) {
	if (stream->params.reference) {
		return ckv_fail(&stream->error, CKV_ERR_UNSUPPORTED, "reference mode takes nothing back, as the published code");
	}
	for (int32_t i = 0; i < stream->n_layers; i++) {
		if (stream->layers[i].seen != stream->layers[0].seen) {
			return ckv_fail(&stream->error, CKV_ERR_STATE, "layer %d has seen %d tokens, layer 0 %d: push them to all first",
			                i, stream->layers[i].seen, stream->layers[0].seen);
		}
	}
	if (n < 0 || n > stream->layers[0].seen) {
		return ckv_fail(&stream->error, CKV_ERR_ARG, "%d tokens can't be taken back of %d", n, stream->layers[0].seen);
	}
	return CKV_OK;
}

ckv_status ckv_stream_trim(ckv_stream *stream, int32_t n) {
	if (!stream) {
		return CKV_ERR_ARG;
	}
	ckv_fail(&stream->error, CKV_OK, "%s", "");
	ckv_status status = check_trim(stream, n);
	for (int32_t i = 0; i < stream->n_layers && status == CKV_OK && n > 0; i++) {
		stream_layer *layer = &stream->layers[i];
		int32_t kept = layer->seen - n, window = stream->params.window;
		/* Newer queries have taken the place of those older than a window. */
		layer->ring_from = layer->seen - window > layer->ring_from ? layer->seen - window : layer->ring_from;
		layer->ring_from = layer->ring_from < kept ? layer->ring_from : kept;
		layer->seen = kept;
		layer->pushed = 0;
		for (int32_t h = 0; h < layer->shape.n_kv_heads; h++) {
			layer->heads[h].lane.n = ckv_lane_before(&layer->heads[h].lane, kept);
			layer->heads[h].n_evicted = layer->heads[h].n_events = 0;
		}
	}
	return status;
}
