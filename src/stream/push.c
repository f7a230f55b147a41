/* A call of tokens: checked whole, and given all the memory it will need, before anything changes. */
#include "stream/internal.h"

#include <string.h>

/* ------------------------------------------------------------------------------------------------------------ checking */

static ckv_status check_queries(ckv_stream *stream, int32_t index, const ckv_view *q) {
	int32_t heads = q ? q->n_heads : 0, before = stream->layers[index].n_query_heads;
	if (q && stream->by_call) {
		return ckv_fail(&stream->error, CKV_ERR_UNSUPPORTED,
		                "reference mode of '%s' takes keys as queries: the published code is shown none",
		                stream->params.preset);
	}
	if (before >= 0 && before != heads) {
		return ckv_fail(&stream->error, CKV_ERR_ARG, "layer %d: %d query heads, where earlier calls had %d", index, heads,
		                before);
	}
	return CKV_OK;
}

/* Followers take what their leader decided in this very call. */
static ckv_status check_leader(ckv_stream *stream, int32_t index, int32_t n) {
	const stream_layer *layer = &stream->layers[index], *leader = ckv_stream_leader(stream, index);
	if (leader && (leader->seen != layer->seen + n || leader->pushed != n || leader->pushed_from != layer->seen)) {
		return ckv_fail(&stream->error, CKV_ERR_STATE,
		                "layer %d takes layer %d's decisions: push the same %d tokens there first (it has seen %d, of which "
		                "%d in its last call; this one %d)",
		                index, index - index % stream->params.reuse, n, leader->seen, leader->pushed, layer->seen);
	}
	return CKV_OK;
}

/* squeeze: whatever the calls, each layer is measured on the same tokens and changes its budget after them. */
static ckv_status check_measured(ckv_stream *stream, int32_t index, int32_t n) {
	const stream_layer *layer = &stream->layers[index];
	bool waits = stream->rule == STREAM_SQUEEZE && !stream->params.reference && stream->n_layers > 1 && layer->planned < 0;
	if (waits && n > stream->budget - layer->seen) {
		return ckv_fail(
		    &stream->error, CKV_ERR_STATE,
		    "layers=squeeze measures the first %d tokens: push at most %d to layer %d until all layers have them",
		    stream->budget, stream->budget - layer->seen, index);
	}
	return CKV_OK;
}

/* ------------------------------------------------------------------------------------------------------------- memory */

int32_t ckv_stream_most(const ckv_stream *stream, int32_t budget) {
	const ckv_stream_params *p = &stream->params;
	int32_t stuck = p->sinks + (stream->scorer == STREAM_SNAPKV ? p->window : p->grace) + p->chunk;
	return budget > stuck ? budget : stuck;
}

/* Rows that a head may hold in the course of the call. */
static int32_t most_rows(const ckv_stream *stream, const stream_layer *layer, int32_t n, int32_t have) {
	int32_t held = layer->planned > layer->budget ? layer->planned : layer->budget;
	held = held > have ? held : have;
	held = ckv_stream_most(stream, held);
	/* Reference mode of squeeze may learn the budget from the very tokens of the call. */
	bool open = stream->by_call || (stream->rule == STREAM_SQUEEZE && stream->params.reference && !layer->reported);
	return open || n <= held - have ? have + n : held + 1;
}

static ckv_status reserve_ring(ckv_stream *stream, stream_layer *layer, int32_t group) {
	size_t one = (size_t)(group ? group : 1) * (size_t)layer->shape.dim_k;
	size_t size = (size_t)layer->shape.n_kv_heads * (size_t)stream->params.window * one * sizeof *layer->ring;
	if (stream->scorer != STREAM_SNAPKV || stream->by_call || (layer->ring && layer->ring_size >= size)) {
		return CKV_OK;
	}
	/* One that is there and too small is of a call that failed before there were others: it holds nothing. */
	float *ring = stream->allocator.alloc(stream->allocator.user, size);
	if (!ring) {
		return ckv_fail(&stream->error, CKV_ERR_NOMEM, "no memory for a window of queries");
	}
	if (layer->ring) {
		stream->allocator.free(stream->allocator.user, layer->ring);
	}
	layer->ring = memset(ring, 0, size);
	layer->ring_size = size;
	return CKV_OK;
}

static ckv_status reserve_heads(ckv_stream *stream, stream_layer *layer, int32_t n, int32_t *rows) {
	ckv_status status = CKV_OK;
	*rows = 0;
	for (int32_t h = 0; h < layer->shape.n_kv_heads && status == CKV_OK; h++) {
		int32_t own = most_rows(stream, layer, n, layer->heads[h].lane.n);
		*rows = own > *rows ? own : *rows;
		status = ckv_store_reserve(stream, layer, &layer->heads[h], own, n);
	}
	return status;
}

/* Logits of a block of queries, or of the window's. */
static void size_logits(push_job *job, int32_t rows) {
	const ckv_stream *stream = job->stream;
	int32_t group = job->group ? job->group : 1, queries = STREAM_BLOCK * group;
	if (stream->scorer == STREAM_SNAPKV) {
		int32_t window = stream->params.window * group;
		queries = queries > window ? queries : window;
	}
	job->n_queries = queries;
	job->n_columns = (rows + STREAM_BLOCK + 3 * CKV_LANES) / CKV_LANES * CKV_LANES;
	job->space = ckv_absorb_space(job);
}

static int32_t threads_for(const push_job *job, int32_t rows) {
	enum { WORTH = 1 << 21 }; /* products, below which starting threads costs more than they save */
	double products = (double)job->n * (double)rows * (double)job->layer->shape.dim_k * (double)job->layer->shape.n_kv_heads;
	return products < WORTH ? 1 : job->stream->n_threads;
}

/* ------------------------------------------------------------------------------------------------------- after the heads */

/* The published code cuts all heads to the shortest: sinks and the newest stay, whatever the scores. */
static void trim_heads(const ckv_stream *stream, stream_layer *layer, int32_t last_token) {
	int32_t least = layer->heads[0].lane.n;
	for (int32_t h = 1; h < layer->shape.n_kv_heads; h++) {
		least = layer->heads[h].lane.n < least ? layer->heads[h].lane.n : least;
	}
	for (int32_t h = 0; h < layer->shape.n_kv_heads; h++) {
		int32_t sinks = stream->params.sinks < least ? stream->params.sinks : least, n = layer->heads[h].lane.n;
		if (n > least) {
			ckv_store_evict(&layer->heads[h], (lane_range){sinks, sinks + n - least}, last_token);
		}
	}
}

/* squeeze in product mode: all heads, from what is stored of the measured tokens, which is all of them. */
static void report(ckv_stream *stream, stream_layer *layer) {
	double sum = 0.0;
	if (stream->rule != STREAM_SQUEEZE || stream->params.reference || stream->n_layers == 1 || layer->reported ||
	    layer->seen < stream->budget) {
		return;
	}
	for (int32_t h = 0; h < layer->shape.n_kv_heads; h++) {
		/* Nothing has gone yet, so slots are in order. */
		sum += (double)ckv_stream_concentration(stream->kernels, layer->heads[h].keys, layer->heads[h].lane.n,
		                                        layer->shape.dim_k, stream->work.data);
	}
	layer->concentration = (float)(sum / layer->shape.n_kv_heads);
	layer->reported = true;
	ckv_stream_settle(stream);
}

/* The published code measures the first call's keys of the first head, before any of them is absorbed. */
static void report_first_call(push_job *job) {
	ckv_stream *stream = job->stream;
	if (stream->rule == STREAM_SQUEEZE && stream->params.reference && !job->layer->reported) {
		job->layer->concentration = ckv_stream_concentration(stream->kernels, stream->new_keys.data, job->n,
		                                                     job->layer->shape.dim_k, stream->work.data);
		job->layer->reported = true;
		ckv_stream_settle(stream);
	}
}

static void commit(push_job *job, int32_t n_query_heads) {
	ckv_stream *stream = job->stream;
	stream_layer *layer = job->layer;
	/* A follower's heads lose what its leader's lost, the trimming included. */
	if (stream->params.reference && !job->leader) {
		trim_heads(stream, layer, job->n - 1);
	}
	layer->pushed_from = layer->seen;
	layer->pushed = job->n;
	layer->seen += job->n;
	layer->n_query_heads = n_query_heads;
	report(stream, layer);
}

static ckv_status push(ckv_stream *stream, int32_t index, const ckv_view *k, const ckv_view *v, const ckv_view *q) {
	push_job job = {.stream = stream, .layer = &stream->layers[index], .index = index, .n = k->n_tokens};
	int32_t rows, heads = job.layer->shape.n_kv_heads;
	job.group = q ? q->n_heads / heads : 0;
	job.leader = ckv_stream_leader(stream, index);
	ckv_status status = reserve_heads(stream, job.layer, job.n, &rows);
	status = status ? status : reserve_ring(stream, job.layer, job.group);
	if (status) {
		return status;
	}
	size_logits(&job, rows);
	int32_t n_threads = threads_for(&job, rows);
	if (!ckv_memory_reserve(&stream->allocator, &stream->work, (size_t)ckv_workers_of(n_threads, heads),
	                        job.space * sizeof(float), &stream->error)) {
		return CKV_ERR_NOMEM;
	}
	status = ckv_stream_convert(stream, index, k, v, q);
	if (status) {
		return status;
	}
	report_first_call(&job);
	job.layer->budget = ckv_planned_budget(job.layer);
	ckv_parallel_of(n_threads, heads, ckv_absorb, &job, &stream->error); /* can't fail: all was checked */
	commit(&job, q ? q->n_heads : 0);
	return CKV_OK;
}

ckv_status ckv_stream_push(ckv_stream *stream, int32_t layer, const ckv_view *k, const ckv_view *v, const ckv_view *q) {
	if (!stream) {
		return CKV_ERR_ARG;
	}
	ckv_fail(&stream->error, CKV_OK, "%s", "");
	if (layer < 0 || layer >= stream->n_layers || !k || !v) {
		return ckv_fail(&stream->error, CKV_ERR_ARG, "layer %d of %d, or a view is missing", layer, stream->n_layers);
	}
	if (k->n_tokens == 0 && v->n_tokens == 0) {
		return CKV_OK;
	}
	ckv_status status = ckv_stream_check_views(stream, layer, k, v, q);
	status = status ? status : check_queries(stream, layer, q);
	status = status ? status : check_leader(stream, layer, k->n_tokens);
	status = status ? status : check_measured(stream, layer, k->n_tokens);
	status = status ? status : ckv_stream_check_pins(stream, layer, k->n_tokens);
	return status ? status : push(stream, layer, k, v, q);
}
