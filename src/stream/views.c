/* The views of a call: checks, and their rows in the forms they are needed in. */
#include "stream/internal.h"

#include <float.h>
#include <math.h>

ckv_status ckv_stream_check_views(ckv_stream *stream, int32_t index, const ckv_view *k, const ckv_view *v,
                                  const ckv_view *q) {
	const ckv_stream_shape *shape = &stream->layers[index].shape;
	ckv_status status = ckv_view_check(k, "keys", index, &stream->error);
	status = status ? status : ckv_view_check(v, "values", index, &stream->error);
	status = status || !q ? status : ckv_view_check(q, "queries", index, &stream->error);
	if (status) {
		return status;
	}
	if (k->n_heads != shape->n_kv_heads || v->n_heads != shape->n_kv_heads || k->head_dim != shape->dim_k ||
	    v->head_dim != shape->dim_v || v->n_tokens != k->n_tokens) {
		return ckv_fail(&stream->error, CKV_ERR_ARG,
		                "layer %d: keys [%d][%d][%d] and values [%d][%d][%d] are not of its %d heads of %d and %d", index,
		                k->n_heads, k->n_tokens, k->head_dim, v->n_heads, v->n_tokens, v->head_dim, shape->n_kv_heads,
		                shape->dim_k, shape->dim_v);
	}
	if (q && (q->n_heads % k->n_heads != 0 || q->n_heads > STREAM_MOST_QUERY_HEADS || q->head_dim != k->head_dim ||
	          q->n_tokens != k->n_tokens)) {
		return ckv_fail(&stream->error, CKV_ERR_ARG, "layer %d: queries [%d][%d][%d] do not go with keys [%d][%d][%d]",
		                index, q->n_heads, q->n_tokens, q->head_dim, k->n_heads, k->n_tokens, k->head_dim);
	}
	if (k->n_tokens > CKV_MAX_TOKENS - stream->layers[index].seen) {
		return ckv_fail(&stream->error, CKV_ERR_ARG, "layer %d: more than %d tokens", index, CKV_MAX_TOKENS);
	}
	return CKV_OK;
}

static ckv_status convert_rows(ckv_stream *stream, int32_t index, const ckv_view *view, const char *what,
                               stream_memory *to) {
	size_t count = (size_t)view->n_heads * (size_t)view->n_tokens, dim = (size_t)view->head_dim;
	uint16_t *rows = ckv_memory_reserve(&stream->allocator, to, count, dim * sizeof *rows, &stream->error);
	float *row = ckv_memory_reserve(&stream->allocator, &stream->work, dim, sizeof *row, &stream->error);
	return rows && row ? ckv_store_convert(stream, view, what, index, rows, &stream->error) : CKV_ERR_NOMEM;
}

static ckv_status convert_queries(ckv_stream *stream, int32_t index, const ckv_view *q) {
	size_t n = (size_t)q->n_tokens, heads = (size_t)q->n_heads, dim = (size_t)q->head_dim;
	float *queries =
	    ckv_memory_reserve(&stream->allocator, &stream->new_queries, heads * n, dim * sizeof *queries, &stream->error);
	if (!queries) {
		return CKV_ERR_NOMEM;
	}
	for (size_t h = 0; h < heads; h++) {
		ckv_view_decode(stream->kernels, q, (int32_t)h, 0, q->n_tokens, queries + h * n * dim);
	}
	/* So that no product with a key overflows. NaN is not below it either. */
	const float most = FLT_MAX / 65504.0f / (float)dim;
	bool good = true;
	for (size_t i = 0; i < heads * n * dim; i++) {
		good = good && fabsf(queries[i]) <= most;
	}
	return good ? CKV_OK
	            : ckv_fail(&stream->error, CKV_ERR_NUMERIC, "layer %d: NaN, infinity, or a number beyond %g in a query",
	                       index, (double)most);
}

ckv_status ckv_stream_convert(ckv_stream *stream, int32_t index, const ckv_view *k, const ckv_view *v, const ckv_view *q) {
	ckv_status status = convert_rows(stream, index, k, "key", &stream->new_keys);
	status = status ? status : convert_rows(stream, index, v, "value", &stream->new_values);
	return status || !q ? status : convert_queries(stream, index, q);
}
