/* The bookkeeping alone: rows are an engine's, all heads share them. */
#include "stream/internal.h"

#include <math.h>
#include <string.h>

struct ckv_keeper {
	ckv_allocator allocator;
	const ckv_kernels *kernels;
	int32_t n_threads;
	ckv_stream_params params;
	stream_scorer scorer;
	ckv_lane lane;
	int32_t seen;
	int32_t unscored; /* key norms: rows of this position and above have none yet */
	lane_pins pins;
	ckv_error error;
	stream_memory work, sums, marks;
};

/* ------------------------------------------------------------------------------------------------------------- making */

static ckv_status check(const ckv_stream_params *params, const ckv_ctx_options *options, ckv_error *error) {
	ckv_status status = ckv_stream_check_made(params, options, error);
	if (status) {
		return status;
	}
	const char *why = params->reference                                ? "mode=reference decides head by head"
	                  : ckv_stream_merge_of(params) != STREAM_DROP     ? "merging changes rows"
	                  : ckv_stream_layers_of(params) != STREAM_UNIFORM ? "all layers have equally many rows there"
	                                                                   : NULL;
	return why ? ckv_fail(error, CKV_ERR_UNSUPPORTED, "policy '%s' can't be kept account of alone: %s", params->preset, why)
	           : CKV_OK;
}

ckv_status ckv_keeper_create(ckv_keeper **keeper, const ckv_stream_params *params, const ckv_ctx_options *options,
                             ckv_error *error) {
	if (!keeper) {
		return ckv_fail(error, CKV_ERR_ARG, "ckv_keeper_create needs a place for the keeper");
	}
	*keeper = NULL;
	ckv_status status = check(params, options, error);
	if (status) {
		return status;
	}
	ckv_allocator allocator = options && options->allocator ? *options->allocator : ckv_allocator_default();
	ckv_keeper *made = allocator.alloc(allocator.user, sizeof *made);
	if (!made) {
		return ckv_fail(error, CKV_ERR_NOMEM, "no memory for a keeper");
	}
	memset(made, 0, sizeof *made);
	made->allocator = allocator;
	made->kernels = ckv_kernels_get(ckv_cpu_features() & ~(options ? options->cpu_disable : 0u));
	made->n_threads = options ? options->n_threads : 0;
	made->params = *params;
	made->params.size = sizeof made->params;
	ckv_stream_params_own(&made->params);
	made->scorer = ckv_stream_scorer_of(params);
	*keeper = made;
	ckv_fail(error, CKV_OK, "%s", "");
	return CKV_OK;
}

void ckv_keeper_free(ckv_keeper *keeper) {
	if (!keeper) {
		return;
	}
	ckv_allocator allocator = keeper->allocator;
	ckv_lane_free(&allocator, &keeper->lane);
	ckv_memory_free(&allocator, &keeper->work);
	ckv_memory_free(&allocator, &keeper->sums);
	ckv_memory_free(&allocator, &keeper->marks);
	ckv_pins_free(&allocator, &keeper->pins);
	allocator.free(allocator.user, keeper);
}

const char *ckv_keeper_message(const ckv_keeper *keeper) { return keeper ? keeper->error.message : ""; }

ckv_needs ckv_keeper_needs(const ckv_stream_params *params) {
	ckv_needs needs = {0, 0};
	if (!params || ckv_stream_params_check(params, NULL)) {
		return needs;
	}
	enum { LAZY = 32 };
	switch (ckv_stream_scorer_of(params)) {
	case STREAM_ATTN_MASS: needs = (ckv_needs){CKV_NEED_QUERIES, LAZY}; break;
	case STREAM_TOVA: needs = (ckv_needs){CKV_NEED_QUERIES, 1}; break;
	case STREAM_SNAPKV: needs = (ckv_needs){CKV_NEED_QUERIES, params->window}; break;
	case STREAM_KEY_NORM:
	case STREAM_KNORM:
	case STREAM_STREAMING:
	case N_STREAM_SCORERS: break;
	}
	return needs;
}

/* ----------------------------------------------------------------------------------------------------------- appending */

ckv_status ckv_keeper_append(ckv_keeper *keeper, int32_t n) {
	if (!keeper) {
		return CKV_ERR_ARG;
	}
	ckv_fail(&keeper->error, CKV_OK, "%s", "");
	ckv_lane *lane = &keeper->lane;
	if (n < 0 || n > CKV_MAX_TOKENS - keeper->seen) {
		return ckv_fail(&keeper->error, CKV_ERR_ARG, "%d tokens can't be appended to %d", n, keeper->seen);
	}
	int32_t need = lane->n + n, twice = lane->capacity < CKV_MAX_TOKENS / 2 ? 2 * lane->capacity : CKV_MAX_TOKENS;
	if (need > lane->capacity && !ckv_lane_reserve(&keeper->allocator, lane, need > twice ? need : twice, false)) {
		return ckv_fail(&keeper->error, CKV_ERR_NOMEM, "no memory to keep account of %d rows", need);
	}
	for (int32_t i = 0; i < n; i++) {
		bool first = lane->n == 0 && keeper->scorer == STREAM_ATTN_MASS;
		ckv_lane_append(lane, keeper->seen + i, first ? 1.0f : 0.0f, 0);
	}
	keeper->seen += n;
	return CKV_OK;
}

/* ----------------------------------------------------------------------------------------------------------- observing */

/* A job for all KV heads; each worker has its own part of `work`, each head its own row of `sums`. */
typedef struct observing {
	ckv_keeper *keeper;
	const ckv_layer *layer;
	int32_t m, group; /* tokens whose queries are shown, query heads of a KV head */
	size_t dim, columns, space;
	float *sums; /* [G][n] */
} observing;

/* Rows that the query of shown token i sees; with tova its own too. */
static int32_t visible(const observing *o, int32_t i) {
	int32_t own = o->keeper->scorer == STREAM_TOVA ? 1 : 0;
	return ckv_lane_before(&o->keeper->lane, o->keeper->seen - o->m + i + own);
}

/* What one token's weights count for in the end. */
static double share(const observing *o, int32_t i) {
	double heads = o->layer->q.n_heads;
	switch (o->keeper->scorer) {
	case STREAM_ATTN_MASS: return pow(o->keeper->params.decay, o->m - 1 - i) / heads;
	case STREAM_SNAPKV: return 1.0 / (heads * o->m);
	default: return 1.0 / heads;
	}
}

static void copy_queries(const observing *o, int32_t kv_head, float *out) {
	int32_t first = o->layer->q.n_tokens - o->m;
	for (int32_t g = 0; g < o->group; g++) {
		ckv_view_decode(o->keeper->kernels, &o->layer->q, kv_head * o->group + g, first, o->m,
		                out + (size_t)g * (size_t)o->m * o->dim);
	}
}

static ckv_status observe_head(void *user, int32_t worker, int32_t kv_head, ckv_error *error) {
	const observing *o = user;
	const ckv_kernels *kernels = o->keeper->kernels;
	int32_t n = o->keeper->lane.n, queries = o->m * o->group;
	float *rows = (float *)o->keeper->work.data + (size_t)worker * o->space, *panel = rows + CKV_LANES * o->dim;
	float *q = panel + CKV_LANES * o->dim, *logits = q + (size_t)queries * o->dim,
	      *sums = o->sums + (size_t)kv_head * (size_t)n;
	ckv_panel to = {rows, panel};
	copy_queries(o, kv_head, q);
	if (!ckv_all_finite(q, (size_t)queries * o->dim)) {
		return ckv_fail(error, CKV_ERR_NUMERIC, "layer %d: NaN or infinity in a query", o->layer->index);
	}
	for (int32_t t = 0; t < n; t += CKV_LANES) {
		ckv_status status = ckv_panel_load(kernels, o->layer, kv_head, t, n - t < CKV_LANES ? n - t : CKV_LANES, &to, error);
		if (status) {
			return status;
		}
		kernels->qk(q, (size_t)queries, o->dim, panel, ckv_logit_scale(o->layer), logits + t, o->columns);
	}
	memset(sums, 0, (size_t)n * sizeof *sums);
	for (int32_t i = 0; i < queries; i++) {
		int32_t seen = visible(o, i % o->m);
		float *x = logits + (size_t)i * o->columns;
		if (seen < 1) {
			continue;
		}
		if (o->layer->logit_cap != 0.0f) {
			ckv_cap_logits(x, (size_t)seen, o->layer->logit_cap);
		}
		float sum = kernels->exp_sum(x, (size_t)seen);
		kernels->axpy(sums, x, (float)share(o, i % o->m) / sum, (size_t)seen);
	}
	return ckv_all_finite(sums, (size_t)n)
	           ? CKV_OK
	           : ckv_fail(error, CKV_ERR_NUMERIC, "layer %d: queries and keys too large to multiply", o->layer->index);
}

/* The sums into the scores. attn_mass: what a row had decays once for each shown token that is newer. */
static void apply(observing *o) {
	ckv_keeper *keeper = o->keeper;
	ckv_lane *lane = &keeper->lane;
	bool adds = keeper->scorer == STREAM_ATTN_MASS;
	for (int32_t t = 0; t < lane->n; t++) {
		int32_t newer = keeper->seen - 1 - lane->positions[t];
		double kept = adds ? pow(keeper->params.decay, newer < o->m ? newer : o->m) * (double)lane->scores[t] : 0.0;
		float score = (float)kept;
		for (int32_t g = 0; g < o->layer->k.n_heads; g++) {
			score += o->sums[(size_t)g * (size_t)lane->n + (size_t)t];
		}
		lane->scores[t] = score;
	}
}

static ckv_status observe_attention(ckv_keeper *keeper, const ckv_layer *layer, int32_t most) {
	ckv_status status = ckv_queries_check(layer, 1, &keeper->error);
	if (status) {
		return status;
	}
	observing o = {.keeper = keeper, .layer = layer, .m = layer->q.n_tokens, .dim = (size_t)layer->k.head_dim};
	o.m = keeper->scorer != STREAM_ATTN_MASS && o.m > most ? most : o.m;
	o.m = o.m < keeper->seen ? o.m : keeper->seen;
	o.group = layer->q.n_heads / layer->k.n_heads;
	size_t queries = (size_t)o.m * (size_t)o.group, heads = (size_t)layer->k.n_heads;
	o.columns = ((size_t)keeper->lane.n + CKV_LANES - 1) / CKV_LANES * CKV_LANES;
	o.space = (size_t)2 * CKV_LANES * o.dim + queries * (o.dim + o.columns);
	size_t workers = (size_t)ckv_workers_of(keeper->n_threads, layer->k.n_heads);
	o.sums = ckv_memory_reserve(&keeper->allocator, &keeper->sums, heads * (size_t)keeper->lane.n, sizeof *o.sums,
	                            &keeper->error);
	if (!o.sums ||
	    !ckv_memory_reserve(&keeper->allocator, &keeper->work, workers, o.space * sizeof(float), &keeper->error)) {
		return CKV_ERR_NOMEM;
	}
	status = ckv_parallel_of(keeper->n_threads, layer->k.n_heads, observe_head, &o, &keeper->error);
	if (status == CKV_OK) {
		apply(&o);
	}
	return status;
}

/* Lengths of the keys that are new, mean over the KV heads. */
static ckv_status observe_norms(ckv_keeper *keeper, const ckv_layer *layer) {
	ckv_lane *lane = &keeper->lane;
	size_t dim = (size_t)layer->k.head_dim;
	int32_t first = ckv_lane_before(lane, keeper->unscored);
	float *row = ckv_memory_reserve(&keeper->allocator, &keeper->work, dim, sizeof *row, &keeper->error);
	float *sums = ckv_memory_reserve(&keeper->allocator, &keeper->sums, (size_t)lane->n, sizeof *sums, &keeper->error);
	if (!row || !sums) {
		return CKV_ERR_NOMEM;
	}
	for (int32_t t = first; t < lane->n; t++) {
		double sum = 0.0;
		for (int32_t h = 0; h < layer->k.n_heads; h++) {
			ckv_view_decode(keeper->kernels, &layer->k, h, t, 1, row);
			sum += ckv_norm(row, dim);
		}
		sums[t] = (float)(keeper->scorer == STREAM_KNORM ? -sum : sum) / (float)layer->k.n_heads;
		if (!isfinite(sums[t])) {
			return ckv_fail(&keeper->error, CKV_ERR_NUMERIC, "layer %d: NaN or infinity in a key, or one too long",
			                layer->index);
		}
	}
	for (int32_t t = first; t < lane->n; t++) {
		lane->scores[t] = sums[t];
	}
	keeper->unscored = keeper->seen;
	return CKV_OK;
}

ckv_status ckv_keeper_observe(ckv_keeper *keeper, const ckv_layer *layer) {
	if (!keeper || !layer) {
		return CKV_ERR_ARG;
	}
	ckv_fail(&keeper->error, CKV_OK, "%s", "");
	if (layer->size < sizeof *layer) {
		return ckv_fail(&keeper->error, CKV_ERR_ARG, "the layer's size field is too small: start from ckv_layer_init");
	}
	if (keeper->scorer == STREAM_STREAMING) {
		return CKV_OK;
	}
	ckv_status status = ckv_layer_check(layer, &keeper->error);
	if (status) {
		return status;
	}
	if (layer->k.n_tokens != keeper->lane.n) {
		return ckv_fail(&keeper->error, CKV_ERR_ARG, "layer %d: %d keys, where %d rows are kept account of", layer->index,
		                layer->k.n_tokens, keeper->lane.n);
	}
	bool norms = keeper->scorer == STREAM_KEY_NORM || keeper->scorer == STREAM_KNORM;
	return norms ? observe_norms(keeper, layer)
	             : observe_attention(keeper, layer, ckv_keeper_needs(&keeper->params).n_queries);
}

/* ------------------------------------------------------------------------------------------------------------ evicting */

static lane_rule rule_of(const ckv_keeper *keeper) {
	const ckv_stream_params *p = &keeper->params;
	lane_rule rule = {.chunk = p->chunk,
	                  .sinks = p->sinks,
	                  .grace = keeper->scorer == STREAM_SNAPKV ? p->window : p->grace,
	                  .newer_loses = keeper->scorer == STREAM_KNORM,
	                  .pins = keeper->pins.at,
	                  .n_pins = keeper->pins.n};
	return rule;
}

ckv_status ckv_keeper_pin(ckv_keeper *keeper, int32_t first, int32_t end) {
	if (!keeper) {
		return CKV_ERR_ARG;
	}
	ckv_fail(&keeper->error, CKV_OK, "%s", "");
	ckv_status status = ckv_pins_check(first, end, &keeper->error);
	return status ? status : ckv_pins_add(&keeper->allocator, &keeper->pins, (lane_pin){first, end}, &keeper->error);
}

int32_t ckv_keeper_evictable(const ckv_keeper *keeper) {
	lane_range next = {0, 0};
	int32_t n = 0;
	if (!keeper) {
		return 0;
	}
	lane_rule rule = rule_of(keeper);
	while (ckv_lane_next(&keeper->lane, &rule, keeper->seen, next.end, &next)) {
		n += next.end - next.first;
	}
	return n;
}

/* rows[i] = which row of those before the call row i is now. */
static void drop_rows(ckv_keeper *keeper, lane_range range, int32_t *rows) {
	memmove(rows + range.first, rows + range.end, (size_t)(keeper->lane.n - range.end) * sizeof *rows);
	ckv_lane_remove(&keeper->lane, range);
}

ckv_status ckv_keeper_evict(ckv_keeper *keeper, int32_t n, int32_t *indices) {
	if (!keeper) {
		return CKV_ERR_ARG;
	}
	ckv_fail(&keeper->error, CKV_OK, "%s", "");
	if (n < 0 || (n > 0 && !indices)) {
		return ckv_fail(&keeper->error, CKV_ERR_ARG, "%d rows can't be dropped, or there is no place for them", n);
	}
	int32_t before = keeper->lane.n, can = ckv_keeper_evictable(keeper);
	if (n > can) {
		return ckv_fail(&keeper->error, CKV_ERR_CAPACITY,
		                "%d rows are to go, but only %d of %d may: the others are sinks, pinned, or among the newest", n,
		                can, before);
	}
	int32_t *rows = ckv_memory_reserve(&keeper->allocator, &keeper->marks, (size_t)before, sizeof *rows, &keeper->error);
	if (!rows) {
		return CKV_ERR_NOMEM;
	}
	for (int32_t i = 0; i < before; i++) {
		rows[i] = i;
	}
	lane_rule rule = rule_of(keeper);
	lane_range chunk;
	for (int32_t left = n; left > 0 && ckv_lane_lowest(&keeper->lane, &rule, keeper->seen, &chunk);) {
		chunk.end = chunk.end - chunk.first > left ? chunk.first + left : chunk.end;
		left -= chunk.end - chunk.first;
		drop_rows(keeper, chunk, rows);
	}
	for (int32_t i = 0, kept = 0, out = 0; i < before; i++) {
		if (kept < keeper->lane.n && rows[kept] == i) {
			kept++;
		} else {
			indices[out++] = i;
		}
	}
	return CKV_OK;
}

ckv_status ckv_keeper_adopt(ckv_keeper *keeper, const int32_t *positions, int32_t n, int32_t seen) {
	if (!keeper) {
		return CKV_ERR_ARG;
	}
	ckv_fail(&keeper->error, CKV_OK, "%s", "");
	if (n < 0 || seen < 0 || seen > CKV_MAX_TOKENS || (n > 0 && !positions) ||
	    !ckv_bytes_positions_good(positions, n, seen, true)) {
		return ckv_fail(&keeper->error, CKV_ERR_ARG, "%d positions that do not ascend, or exceed %d tokens", n, seen);
	}
	if (!ckv_lane_reserve(&keeper->allocator, &keeper->lane, n, false)) {
		return ckv_fail(&keeper->error, CKV_ERR_NOMEM, "no memory to keep account of %d rows", n);
	}
	for (int32_t i = 0; i < n; i++) {
		keeper->lane.positions[i] = positions[i];
		keeper->lane.scores[i] = 0.0f;
	}
	keeper->lane.n = n;
	keeper->seen = seen;
	keeper->unscored = keeper->pins.n = 0;
	return CKV_OK;
}

ckv_status ckv_keeper_drop(ckv_keeper *keeper, const int32_t *indices, int32_t n) {
	if (!keeper) {
		return CKV_ERR_ARG;
	}
	ckv_fail(&keeper->error, CKV_OK, "%s", "");
	if (n < 0) {
		return ckv_fail(&keeper->error, CKV_ERR_ARG, "%d rows can't be dropped", n);
	}
	for (int32_t i = 0; i < n; i++) {
		if (!indices || indices[i] < (i ? indices[i - 1] + 1 : 0) || indices[i] >= keeper->lane.n) {
			return ckv_fail(&keeper->error, CKV_ERR_ARG, "the rows to drop are not ascending, or not all there");
		}
	}
	ckv_lane *lane = &keeper->lane;
	int32_t to = 0;
	for (int32_t i = 0, next = 0; i < lane->n; i++) {
		if (next < n && indices[next] == i) {
			next++;
			continue;
		}
		lane->positions[to] = lane->positions[i];
		lane->scores[to++] = lane->scores[i];
	}
	lane->n = to;
	return CKV_OK;
}

/* -------------------------------------------------------------------------------------------------------- looking, state */

int32_t ckv_keeper_seen(const ckv_keeper *keeper) { return keeper ? keeper->seen : 0; }

void ckv_keeper_rows(const ckv_keeper *keeper, ckv_stream_rows *rows) {
	if (rows) {
		*rows = keeper ? (ckv_stream_rows){keeper->lane.n, keeper->lane.positions, keeper->lane.scores}
		               : (ckv_stream_rows){0, NULL, NULL};
	}
}

ckv_status ckv_keeper_trim(ckv_keeper *keeper, int32_t n) {
	if (!keeper) {
		return CKV_ERR_ARG;
	}
	ckv_fail(&keeper->error, CKV_OK, "%s", "");
	if (n < 0 || n > keeper->seen) {
		return ckv_fail(&keeper->error, CKV_ERR_ARG, "%d tokens can't be taken back of %d", n, keeper->seen);
	}
	keeper->seen -= n;
	keeper->lane.n = ckv_lane_before(&keeper->lane, keeper->seen);
	keeper->unscored = keeper->unscored < keeper->seen ? keeper->unscored : keeper->seen;
	return CKV_OK;
}

void ckv_keeper_clear(ckv_keeper *keeper) {
	if (keeper) {
		keeper->lane.n = keeper->seen = keeper->unscored = keeper->pins.n = 0;
	}
}

static const char magic[4] = {'C', 'K', 'V', 'K'};
enum { VERSION = 1 };

static size_t put_all(const ckv_keeper *keeper, void *data, size_t capacity) {
	byte_writer w;
	ckv_bytes_begin(&w, data, capacity);
	ckv_bytes_put_policy(&w, &keeper->params);
	ckv_bytes_put_int(&w, keeper->seen);
	ckv_bytes_put_int(&w, keeper->unscored);
	ckv_bytes_put_int(&w, keeper->pins.n);
	ckv_bytes_put_int(&w, keeper->lane.n);
	ckv_bytes_put(&w, keeper->pins.at, (size_t)keeper->pins.n * sizeof *keeper->pins.at);
	ckv_bytes_put(&w, keeper->lane.positions, (size_t)keeper->lane.n * sizeof *keeper->lane.positions);
	ckv_bytes_put(&w, keeper->lane.scores, (size_t)keeper->lane.n * sizeof *keeper->lane.scores);
	return ckv_bytes_end(&w, magic, VERSION);
}

size_t ckv_keeper_save(const ckv_keeper *keeper, void *data, size_t capacity) {
	size_t size = keeper ? put_all(keeper, NULL, 0) : 0;
	return size && data && size <= capacity ? put_all(keeper, data, capacity) : size;
}

ckv_status ckv_keeper_restore(ckv_keeper *keeper, const void *data, size_t size) {
	byte_reader r;
	if (!keeper) {
		return CKV_ERR_ARG;
	}
	ckv_fail(&keeper->error, CKV_OK, "%s", "");
	ckv_status status = ckv_bytes_open(&r, data, size, magic, VERSION, &keeper->error);
	if (status) {
		return status;
	}
	if (!ckv_bytes_take_policy(&r, &keeper->params)) {
		return ckv_fail(&keeper->error, CKV_ERR_STATE, "the state is of another policy");
	}
	int32_t seen = ckv_bytes_take_int(&r), unscored = ckv_bytes_take_int(&r), n_pins = ckv_bytes_take_int(&r);
	int32_t n = ckv_bytes_take_int(&r);
	bool good = r.good && seen >= 0 && seen <= CKV_MAX_TOKENS && unscored >= 0 && unscored <= seen && n_pins >= 0 && n >= 0;
	const void *pins = good ? ckv_bytes_take(&r, (size_t)n_pins, sizeof *keeper->pins.at) : NULL;
	const void *positions = good ? ckv_bytes_take(&r, (size_t)n, sizeof(int32_t)) : NULL;
	const void *scores = good ? ckv_bytes_take(&r, (size_t)n, sizeof(float)) : NULL;
	if (!good || !r.good || r.left || !ckv_bytes_positions_good(positions, n, seen, true)) {
		return ckv_fail(&keeper->error, CKV_ERR_ARG, "the saved state is damaged");
	}
	lane_pins *own = &keeper->pins;
	lane_pin *bigger =
	    n_pins > own->room ? keeper->allocator.alloc(keeper->allocator.user, (size_t)n_pins * sizeof *bigger) : own->at;
	if ((n_pins && !bigger) || !ckv_lane_reserve(&keeper->allocator, &keeper->lane, n, false)) {
		if (bigger && bigger != own->at) {
			keeper->allocator.free(keeper->allocator.user, bigger);
		}
		return ckv_fail(&keeper->error, CKV_ERR_NOMEM, "no memory to keep account of %d rows", n);
	}
	if (bigger != own->at) {
		ckv_pins_free(&keeper->allocator, own);
		*own = (lane_pins){bigger, 0, n_pins};
	}
	if (n_pins) {
		memcpy(own->at, pins, (size_t)n_pins * sizeof *own->at);
	}
	own->n = n_pins;
	if (n) {
		memcpy(keeper->lane.positions, positions, (size_t)n * sizeof(int32_t));
		memcpy(keeper->lane.scores, scores, (size_t)n * sizeof(float));
	}
	keeper->lane.n = n;
	keeper->seen = seen;
	keeper->unscored = unscored;
	return CKV_OK;
}
