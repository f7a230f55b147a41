/* Logits of many tokens at once. Each is one chain of products along the row, whatever stands beside it, so that tokens
 * pushed together decide as tokens pushed one by one. */
#include "stream/internal.h"

#include <math.h>
#include <string.h>

/* The queries of a token of the push, [group][dim]. */
static void copy_queries(const head_job *job, int32_t token, float *out) {
	const push_job *push = job->push;
	const ckv_stream *stream = push->stream;
	size_t dim = (size_t)push->layer->shape.dim_k;
	if (!push->group) {
		stream->kernels->f16_to_f32(job->keys + (size_t)token * dim, out, dim);
		return;
	}
	const float *all = stream->new_queries.data;
	for (int32_t g = 0; g < push->group; g++) {
		size_t head = (size_t)job->index * (size_t)push->group + (size_t)g;
		memcpy(out + (size_t)g * dim, all + (head * (size_t)push->n + (size_t)token) * dim, dim * sizeof *out);
	}
}

/* One panel: 16 keys of columns from `column` on, given by `key`, or fewer. */
typedef const uint16_t *(*key_at)(const head_job *job, int32_t i);

static const uint16_t *stored_key(const head_job *job, int32_t i) { return ckv_store_key(job->push->layer, job->head, i); }

static const uint16_t *new_key(const head_job *job, int32_t i) {
	return job->keys + (size_t)(job->first + i) * (size_t)job->push->layer->shape.dim_k;
}

static void fill_columns(head_job *job, key_at key, int32_t n, int32_t column, int32_t m) {
	const push_job *push = job->push;
	const ckv_kernels *kernels = push->stream->kernels;
	size_t dim = (size_t)push->layer->shape.dim_k, stride = (size_t)push->n_columns;
	float scale = 1.0f / sqrtf((float)dim);
	for (int32_t i = 0; i < n; i += CKV_LANES) {
		int32_t count = n - i < CKV_LANES ? n - i : CKV_LANES;
		for (int32_t j = 0; j < count; j++) {
			kernels->f16_to_f32(key(job, i + j), job->rows + (size_t)j * dim, dim);
		}
		memset(job->rows + (size_t)count * dim, 0, (size_t)(CKV_LANES - count) * dim * sizeof *job->rows);
		kernels->pack(job->rows, dim, job->panel);
		/* What the last panel writes beyond its keys is overwritten by the next columns, or lies in the padding. */
		kernels->qk(job->queries, (size_t)m, dim, job->panel, scale, job->logits + column + i, stride);
	}
}

void ckv_logits_block(head_job *job, int32_t first, int32_t n) {
	int32_t group = ckv_push_group(job->push), rows = job->head->lane.n;
	size_t dim = (size_t)job->push->layer->shape.dim_k;
	for (int32_t i = 0; i < n; i++) {
		copy_queries(job, first + i, job->queries + (size_t)i * (size_t)group * dim);
	}
	job->first = first;
	fill_columns(job, stored_key, rows, 0, n * group);
	fill_columns(job, new_key, n, rows, n * group);
	for (int32_t i = 0; i < rows; i++) {
		job->head->lane.columns[i] = i;
	}
}

void ckv_logits_rows(head_job *job, int32_t m) {
	fill_columns(job, stored_key, job->head->lane.n, 0, m);
	for (int32_t i = 0; i < job->head->lane.n; i++) {
		job->head->lane.columns[i] = i;
	}
}

float ckv_logits_softmax(head_job *job, int32_t i, int32_t n) {
	const float *row = job->logits + (size_t)i * (size_t)job->push->n_columns;
	const int32_t *columns = job->head->lane.columns;
	for (int32_t j = 0; j < n; j++) {
		job->x[j] = row[columns[j]];
	}
	return job->push->stream->kernels->exp_sum(job->x, (size_t)n);
}

static float *ring_at(const head_job *job, int32_t position) {
	const push_job *push = job->push;
	size_t one = (size_t)ckv_push_group(push) * (size_t)push->layer->shape.dim_k;
	int32_t window = push->stream->params.window;
	return push->layer->ring + ((size_t)job->index * (size_t)window + (size_t)(position % window)) * one;
}

void ckv_ring_put(head_job *job, int32_t token) { copy_queries(job, token, ring_at(job, job->push->layer->seen + token)); }

int32_t ckv_ring_get(head_job *job, int32_t seen, int32_t *position) {
	const push_job *push = job->push;
	int32_t window = push->stream->params.window, from = push->layer->ring_from;
	size_t one = (size_t)ckv_push_group(push) * (size_t)push->layer->shape.dim_k;
	*position = seen - window > from ? seen - window : from;
	for (int32_t p = *position; p < seen; p++) {
		memcpy(job->queries + (size_t)(p - *position) * one, ring_at(job, p), one * sizeof(float));
	}
	return seen - *position;
}
