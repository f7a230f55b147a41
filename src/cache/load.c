/* Rows that come in: the kept ones of a prompt, then the tokens that follow. */
#include "cache/internal.h"
#include "measure/internal.h"

#include <string.h>

/* Which rows of a view: a list for each head, one for all, or all. */
typedef struct row_choice {
	const ckv_keep *keep;
	int32_t n_all;
} row_choice;

static int32_t choice_count(const row_choice *choice, int32_t head) {
	if (!choice->keep) {
		return choice->n_all;
	}
	const int32_t *offsets = choice->keep->offsets;
	int32_t list = choice->keep->n_lists == 1 ? 0 : head;
	return offsets[list + 1] - offsets[list];
}

static int32_t choice_at(const row_choice *choice, int32_t head, int32_t i) {
	int32_t list = choice->keep && choice->keep->n_lists != 1 ? head : 0;
	return choice->keep ? choice->keep->positions[choice->keep->offsets[list] + i] : i;
}

/* ------------------------------------------------------------------------------------------------------------ checks */

static ckv_status check_views(ckv_cache *cache, const cache_layer *layer, int32_t number, const ckv_view *k,
                              const ckv_view *v) {
	const ckv_stream_shape *shape = &layer->shape;
	ckv_status status = ckv_view_check(k, "keys", number, &cache->error);
	status = status ? status : ckv_view_check(v, "values", number, &cache->error);
	bool same = status == CKV_OK && k->n_heads == shape->n_kv_heads && v->n_heads == shape->n_kv_heads &&
	            k->head_dim == shape->dim_k && v->head_dim == shape->dim_v && k->n_tokens == v->n_tokens;
	return status || same ? status
	                      : ckv_fail(&cache->error, CKV_ERR_ARG,
	                                 "layer %d: keys [%d][%d][%d] and values [%d][%d][%d] do not go with a cache of %d KV "
	                                 "heads of %d and %d channels",
	                                 number, k->n_heads, k->n_tokens, k->head_dim, v->n_heads, v->n_tokens, v->head_dim,
	                                 shape->n_kv_heads, shape->dim_k, shape->dim_v);
}

static ckv_status check_keep(ckv_cache *cache, int32_t number, const ckv_keep *keep, int32_t n_heads, int32_t n_tokens) {
	bool good =
	    keep->positions && keep->offsets && (keep->n_lists == 1 || keep->n_lists == n_heads) && keep->offsets[0] == 0;
	for (int32_t list = 0; good && list < keep->n_lists; list++) {
		int32_t first = keep->offsets[list], end = keep->offsets[list + 1];
		good = end >= first && ckv_list_fits(keep->positions + first, (size_t)(end - first), n_tokens);
	}
	return good ? CKV_OK
	            : ckv_fail(&cache->error, CKV_ERR_ARG,
	                       "layer %d: the lists of kept rows are not %d or one of ascending positions below %d", number,
	                       n_heads, n_tokens);
}

/* ----------------------------------------------------------------------------------------------------------- storing */

/* Rows of one side on their way in. */
typedef struct incoming {
	cache_side *side;
	const ckv_view *view;
	const float *instead; /* [sum of rows][dim]: in place of the view's; NULL: none */
} incoming;

static ckv_status bad_row(ckv_cache *cache, int32_t number, int32_t head, int32_t token) {
	return ckv_fail(&cache->error, CKV_ERR_NUMERIC,
	                "layer %d, KV head %d, token %d: NaN, infinity or beyond what f16 holds (65504)", number, head, token);
}

static ckv_status put_rows(ckv_cache *cache, const incoming *in, const row_choice *choice, int32_t number, float *row) {
	const float *instead = in->instead;
	for (int32_t h = 0; h < in->view->n_heads; h++) {
		for (int32_t i = 0, n = choice_count(choice, h); i < n; i++) {
			int32_t position = choice_at(choice, h, i);
			if (!instead) {
				ckv_view_decode(cache->kernels, in->view, h, position, 1, row);
			}
			if (ckv_side_put(in->side, h, instead ? instead : row, 1)) {
				return bad_row(cache, number, h, position);
			}
			instead = instead ? instead + in->side->dim : NULL;
		}
	}
	return CKV_OK;
}

static void take_back(cache_side *side, int32_t n_heads, const int32_t *before) {
	for (int32_t h = 0; h < n_heads; h++) {
		side->heads[h].n = before[h];
	}
}

static ckv_status reserve(ckv_cache *cache, cache_layer *layer, const row_choice *choice, int32_t *more, bool exact) {
	int32_t heads = layer->shape.n_kv_heads;
	for (int32_t h = 0; h < heads; h++) {
		more[h] = choice_count(choice, h);
	}
	ckv_status status = ckv_side_reserve(cache, &layer->k, heads, more, exact);
	return status ? status : ckv_side_reserve(cache, &layer->v, heads, more, exact);
}

/* All rows of both sides, or none. counts[2 * heads] is scratch. */
static ckv_status put_both(ckv_cache *cache, cache_layer *layer, const incoming in[2], const row_choice *choice,
                           int32_t number, int32_t *counts, bool exact) {
	int32_t heads = layer->shape.n_kv_heads;
	size_t widest = (size_t)(layer->shape.dim_k > layer->shape.dim_v ? layer->shape.dim_k : layer->shape.dim_v);
	float *row = ckv_cache_work(cache, widest);
	ckv_status status = row ? reserve(cache, layer, choice, counts, exact) : CKV_ERR_NOMEM;
	if (status) {
		return status;
	}
	for (int32_t h = 0; h < heads; h++) {
		counts[h] = layer->k.heads[h].n;
		counts[heads + h] = layer->v.heads[h].n;
	}
	for (int side = 0; side < 2 && status == CKV_OK; side++) {
		status = put_rows(cache, &in[side], choice, number, row);
	}
	if (status) {
		take_back(&layer->k, heads, counts);
		take_back(&layer->v, heads, counts + heads);
	}
	return status;
}

static ckv_status store(ckv_cache *cache, cache_layer *layer, const incoming in[2], const row_choice *choice, int32_t number,
                        bool exact) {
	int32_t *counts = ckv_cache_alloc(cache, (size_t)layer->shape.n_kv_heads, 2 * sizeof *counts);
	if (!counts) {
		return ckv_fail(&cache->error, CKV_ERR_NOMEM, "no memory for a layer's rows");
	}
	ckv_status status = put_both(cache, layer, in, choice, number, counts, exact);
	ckv_cache_release(cache, counts);
	return status;
}

/* ---------------------------------------------------------------------------------------------------- in the subspace */

/* The published code quantises the latents of every call of several tokens, in groups of that call. */
static ckv_status requantise(ckv_cache *cache, const cache_side *side, float *latents, int32_t n) {
	ckv_packed packed = {.shape = side->heads[0].packed.shape};
	ckv_status status = ckv_packed_append(&cache->allocator, &packed, latents, n);
	if (status == CKV_OK) {
		ckv_packed_decode(cache->kernels, &packed, 0, n, latents);
	}
	ckv_packed_free(&cache->allocator, &packed);
	return status ? ckv_fail(&cache->error, status, "no memory for a layer's rows") : CKV_OK;
}

/* Before projection, which may hide what a row had. */
static ckv_status check_rows(ckv_cache *cache, const float *rows, int32_t n, size_t dim, int32_t number, int32_t head) {
	for (int32_t i = 0; i < n; i++) {
		for (size_t c = 0; c < dim; c++) {
			if ((ckv_f16_from_f32(rows[(size_t)i * dim + c]) & 0x7c00u) == 0x7c00u) {
				return bad_row(cache, number, head, i);
			}
		}
	}
	return CKV_OK;
}

/* latents[heads][n][rank] of the view's rows; rows[n][dim] is scratch. */
static ckv_status project(ckv_cache *cache, const cache_side *side, const ckv_view *view, int32_t number, float *rows,
                          float *latents) {
	int32_t n = view->n_tokens;
	ckv_status status = CKV_OK;
	for (int32_t h = 0; h < view->n_heads && status == CKV_OK; h++) {
		float *own = latents + (size_t)h * (size_t)n * (size_t)side->width;
		ckv_view_decode(cache->kernels, view, h, 0, n, rows);
		status = check_rows(cache, rows, n, (size_t)side->dim, number, h);
		ckv_low_rank_project(&side->fit, h, rows, (size_t)n, own);
		if (status == CKV_OK && n > 1 && cache->codec.reference && side->packs) {
			status = requantise(cache, side, own, n);
		}
	}
	return status;
}

static ckv_view view_of(const float *rows, const ckv_view *like, int32_t width) {
	return (ckv_view){.data = rows,
	                  .dtype = CKV_F32,
	                  .n_heads = like->n_heads,
	                  .n_tokens = like->n_tokens,
	                  .head_dim = width,
	                  .stride_head = (size_t)like->n_tokens * (size_t)width * sizeof *rows,
	                  .stride_token = (size_t)width * sizeof *rows};
}

static ckv_status append_projected(ckv_cache *cache, cache_layer *layer, const ckv_view *k, const ckv_view *v,
                                   int32_t number) {
	size_t n = (size_t)k->n_tokens, heads = (size_t)k->n_heads,
	       widest = (size_t)(k->head_dim > v->head_dim ? k->head_dim : v->head_dim);
	size_t latents_k = heads * n * (size_t)layer->k.width, latents_v = heads * n * (size_t)layer->v.width;
	/* Not the shared working memory, which the packing and storing below use too. */
	float *memory = ckv_cache_alloc(cache, latents_k + latents_v + n * widest, sizeof *memory);
	if (!memory) {
		return ckv_fail(&cache->error, CKV_ERR_NOMEM, "no memory for a layer's rows");
	}
	float *rows = memory + latents_k + latents_v;
	ckv_status status = project(cache, &layer->k, k, number, rows, memory);
	status = status ? status : project(cache, &layer->v, v, number, rows, memory + latents_k);
	if (status == CKV_OK) {
		const ckv_view own_k = view_of(memory, k, layer->k.width), own_v = view_of(memory + latents_k, v, layer->v.width);
		const incoming in[2] = {{&layer->k, &own_k, NULL}, {&layer->v, &own_v, NULL}};
		const row_choice all = {NULL, k->n_tokens};
		status = store(cache, layer, in, &all, number, false);
	}
	ckv_cache_release(cache, memory);
	return status;
}

/* ------------------------------------------------------------------------------------------------------------- calls */

static bool is_empty(const cache_layer *layer) {
	bool empty = true;
	for (int32_t h = 0; h < layer->shape.n_kv_heads; h++) {
		empty = empty && ckv_rows_count(&layer->k.heads[h]) == 0;
	}
	return empty && layer->k.fit.rank == 0;
}

static void trim(ckv_cache *cache, cache_layer *layer) {
	ckv_side_trim(cache, &layer->k, layer->shape.n_kv_heads);
	ckv_side_trim(cache, &layer->v, layer->shape.n_kv_heads);
}

static void forget_rows(cache_layer *layer) {
	for (int32_t h = 0; h < layer->shape.n_kv_heads; h++) {
		layer->k.heads[h].n = layer->v.heads[h].n = 0;
	}
}

ckv_status ckv_cache_load(ckv_cache *cache, int32_t layer, const ckv_view *k, const ckv_view *v, const ckv_keep *keep,
                          const float *merged) {
	cache_layer *l = ckv_cache_layer(cache, layer);
	if (!l || !k || !v) {
		return CKV_ERR_ARG;
	}
	cache->error = (ckv_error){CKV_OK, ""};
	ckv_status status = check_views(cache, l, layer, k, v);
	status = status || !keep ? status : check_keep(cache, layer, keep, k->n_heads, k->n_tokens);
	if (status == CKV_OK && !is_empty(l)) {
		status = ckv_fail(&cache->error, CKV_ERR_STATE, "layer %d has rows already", layer);
	}
	if (status) {
		return status;
	}
	const incoming in[2] = {{&l->k, k, NULL}, {&l->v, v, merged}};
	const row_choice choice = {keep, k->n_tokens};
	status = store(cache, l, in, &choice, layer, true);
	if (status == CKV_OK && cache->kind == CACHE_PALU && !is_empty(l)) {
		status = ckv_codec_fit(cache, l, layer);
		if (status) {
			forget_rows(l);
		}
	}
	if (status == CKV_OK) {
		ckv_codec_limit_residual(cache, l);
		ckv_codec_seal(cache, l);
	}
	trim(cache, l); /* of rows that were packed, or refused */
	return status;
}

ckv_status ckv_cache_append(ckv_cache *cache, int32_t layer, const ckv_view *k, const ckv_view *v) {
	cache_layer *l = ckv_cache_layer(cache, layer);
	if (!l || !k || !v) {
		return CKV_ERR_ARG;
	}
	cache->error = (ckv_error){CKV_OK, ""};
	if (k->n_tokens == 0 && v->n_tokens == 0) {
		return CKV_OK;
	}
	ckv_status status = check_views(cache, l, layer, k, v);
	if (status) {
		return status;
	}
	if (l->k.fit.rank) {
		return append_projected(cache, l, k, v, layer);
	}
	const incoming in[2] = {{&l->k, k, NULL}, {&l->v, v, NULL}};
	const row_choice all = {NULL, k->n_tokens};
	status = store(cache, l, in, &all, layer, false);
	if (status == CKV_OK && cache->kind == CACHE_PALU && k->n_tokens > 1) {
		status = ckv_codec_fit(cache, l, layer);
		if (status) { /* as before the call */
			for (int32_t h = 0; h < l->shape.n_kv_heads; h++) {
				l->k.heads[h].n -= k->n_tokens;
				l->v.heads[h].n -= k->n_tokens;
			}
		}
	}
	if (status == CKV_OK) {
		ckv_codec_seal(cache, l);
	}
	if (cache->kind == CACHE_KIVI && k->n_tokens > cache->codec.group) { /* most of them were packed */
		trim(cache, l);
	}
	return status;
}
