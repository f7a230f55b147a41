/* Attention of the tokens of a call over what a layer has stored and over themselves. The order of rows does not matter to a
 * softmax, so they are gone over as they lie: in runs of slots that are in use, the rows of the call last. */
#include "stream/internal.h"

#include <string.h>

typedef struct job {
	ckv_attention a;
	const ckv_stream *stream;
	const stream_layer *layer;
	int32_t number;   /* of the layer */
	size_t padded;    /* logits of a query */
	size_t capacity;  /* slots of the largest head */
	size_t work_size; /* floats of a worker */
} job;

/* A worker's arrays. */
typedef struct desk {
	float *queries; /* [m][dim_k] */
	float *logits;  /* [m][padded] */
	float *sums;    /* [m][dim_v] */
	uint8_t *used;  /* [capacity] whether a slot holds a row */
} desk;

/* Rows that lie together. Begin with zeros. */
typedef struct run {
	const uint16_t *keys, *values;
	size_t n, column; /* the first one's logit */
	size_t slot;      /* behind them */
	bool last;
} run;

static size_t desk_size(const job *j) {
	size_t dims = (size_t)j->layer->shape.dim_k + (size_t)j->layer->shape.dim_v;
	return j->a.m * (dims + j->padded) + j->capacity / sizeof(float) + 1;
}

static desk open_desk(const job *j, int32_t worker) {
	desk d;
	d.queries = (float *)j->stream->work.data + (size_t)worker * j->work_size;
	d.logits = d.queries + j->a.m * (size_t)j->layer->shape.dim_k;
	d.sums = d.logits + j->a.m * j->padded;
	d.used = (uint8_t *)(d.sums + j->a.m * (size_t)j->layer->shape.dim_v);
	return d;
}

/* Free slots are few once a head is full. */
static void mark_used(const ckv_lane *lane, uint8_t *used) {
	memset(used, 1, (size_t)lane->capacity);
	for (int32_t i = lane->n; i < lane->capacity; i++) {
		used[lane->slots[i]] = 0;
	}
}

static bool next_run(const job *j, int32_t index, const desk *d, run *r) {
	const stream_head *head = &j->layer->heads[index];
	size_t dim_k = (size_t)j->layer->shape.dim_k, dim_v = (size_t)j->layer->shape.dim_v;
	size_t capacity = (size_t)head->lane.capacity, tokens = (size_t)index * (size_t)j->a.n_tokens;
	const uint8_t *first = r->slot < capacity ? memchr(d->used + r->slot, 1, capacity - r->slot) : NULL;
	r->column += r->n;
	if (first) {
		size_t at = (size_t)(first - d->used);
		const uint8_t *end = memchr(first, 0, capacity - at);
		r->slot = end ? (size_t)(end - d->used) : capacity;
		r->n = r->slot - at;
		r->keys = head->keys + at * dim_k;
		r->values = head->values + at * dim_v;
		return true;
	}
	r->slot = capacity;
	r->n = (size_t)j->a.first + (size_t)j->a.n; /* none of the queries in hand sees more */
	r->keys = (const uint16_t *)j->stream->new_keys.data + tokens * dim_k;
	r->values = (const uint16_t *)j->stream->new_values.data + tokens * dim_v;
	r->last = !r->last;
	return r->last;
}

static void load_queries(const job *j, int32_t index, float *out) {
	size_t dim = (size_t)j->layer->shape.dim_k, block = (size_t)j->a.n * dim;
	const float *all = j->stream->new_queries.data;
	for (int32_t g = 0; g < j->a.group; g++) {
		size_t head = (size_t)index * (size_t)j->a.group + (size_t)g;
		memcpy(out + (size_t)g * block, all + (head * (size_t)j->a.n_tokens + (size_t)j->a.first) * dim,
		       block * sizeof *out);
	}
}

static ckv_status one_head(void *user, int32_t worker, int32_t index, ckv_error *error) {
	const job *j = user;
	const ckv_kernels *kernels = j->a.kernels;
	desk d = open_desk(j, worker);
	size_t dim_k = (size_t)j->layer->shape.dim_k, dim_v = (size_t)j->layer->shape.dim_v, m = j->a.m;
	size_t stored = (size_t)j->layer->heads[index].lane.n, first = (size_t)j->a.first, n = (size_t)j->a.n;
	bool finite = true;
	load_queries(j, index, d.queries);
	mark_used(&j->layer->heads[index].lane, d.used);
	for (run r = {0}; next_run(j, index, &d, &r);) {
		kernels->dot_f16(d.queries, m, dim_k, r.keys, r.n, j->a.scale, d.logits + r.column, j->padded);
	}
	for (size_t i = 0; i < m; i++) {
		finite &= ckv_attend_weigh(&j->a, d.logits + i * j->padded, stored + first + i % n + 1, stored + first + n);
	}
	if (!finite) {
		return ckv_fail(error, CKV_ERR_NUMERIC, "layer %d: queries and keys too large to multiply, with a scale of %g",
		                j->number, (double)j->a.scale);
	}
	memset(d.sums, 0, m * dim_v * sizeof *d.sums);
	for (run r = {0}; next_run(j, index, &d, &r);) {
		kernels->mix_f16(d.logits + r.column, m, j->padded, r.values, r.n, dim_v, d.sums);
	}
	for (size_t i = 0; i < m; i++) {
		memcpy(ckv_attend_out(&j->a, index, i, dim_v), d.sums + i * dim_v, dim_v * sizeof *d.sums);
	}
	return CKV_OK;
}

/* ------------------------------------------------------------------------------------------------------------- calls */

static ckv_status attend_block(ckv_stream *stream, job *j, size_t n_rows) {
	const ckv_stream_shape *shape = &j->layer->shape;
	int32_t threads = ckv_attend_threads(&j->a, n_rows, shape->dim_k + shape->dim_v, stream->n_threads);
	size_t workers = (size_t)ckv_workers_of(threads, shape->n_kv_heads);
	j->work_size = desk_size(j);
	return ckv_memory_reserve(&stream->allocator, &stream->work, workers, j->work_size * sizeof(float), &stream->error)
	           ? ckv_parallel_of(threads, shape->n_kv_heads, one_head, j, &stream->error)
	           : CKV_ERR_NOMEM;
}

static ckv_status attend(ckv_stream *stream, int32_t number, const ckv_attention *a) {
	const stream_layer *layer = &stream->layers[number];
	job j = {.a = *a, .stream = stream, .layer = layer, .number = number};
	size_t stored = 0;
	for (int32_t h = 0; h < layer->shape.n_kv_heads; h++) {
		size_t rows = (size_t)layer->heads[h].lane.n, slots = (size_t)layer->heads[h].lane.capacity;
		stored = rows > stored ? rows : stored;
		j.capacity = slots > j.capacity ? slots : j.capacity;
	}
	ckv_status status = CKV_OK;
	j.padded = ckv_attend_padded(stored + (size_t)a->n_tokens);
	while (status == CKV_OK && ckv_attend_next(&j.a)) {
		status = attend_block(stream, &j, stored + (size_t)j.a.first + (size_t)j.a.n);
	}
	return status;
}

ckv_status ckv_stream_attend(ckv_stream *stream, int32_t layer, const ckv_view *k, const ckv_view *v, const ckv_view *q,
                             float scale, float cap, float *out) {
	if (!stream) {
		return CKV_ERR_ARG;
	}
	ckv_fail(&stream->error, CKV_OK, "%s", "");
	if (layer < 0 || layer >= stream->n_layers || !k || !v || !q || !out) {
		return ckv_fail(&stream->error, CKV_ERR_ARG, "layer %d of %d, or a view or the place of the result is missing",
		                layer, stream->n_layers);
	}
	if (k->n_tokens == 0 && v->n_tokens == 0 && q->n_tokens == 0) {
		return CKV_OK;
	}
	ckv_status status = ckv_stream_check_views(stream, layer, k, v, q);
	status = status ? status : ckv_attend_check(scale, cap, layer, &stream->error);
	status = status ? status : ckv_stream_convert(stream, layer, k, v, q);
	if (status) {
		return status;
	}
	const ckv_layer like = {.k = {.head_dim = k->head_dim}, .scale = scale};
	const ckv_attention a = {.kernels = stream->kernels,
	                         .scale = ckv_logit_scale(&like),
	                         .cap = cap,
	                         .out = out,
	                         .n_tokens = k->n_tokens,
	                         .n_kv_heads = k->n_heads,
	                         .group = q->n_heads / k->n_heads};
	return attend(stream, layer, &a);
}
