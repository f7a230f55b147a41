/* The token step: what each new token does to the rows of one head. */
#include "stream/internal.h"

#include <string.h>

enum { MOST_QUERIES = 256 }; /* of a block, so that logits stay in the cache */

/* Tokens of a block. Merged keys change logits, so there each token has its own. */
static int32_t block_size(const push_job *push) {
	int32_t n = MOST_QUERIES / ckv_push_group(push);
	n = n < 1 ? 1 : n < STREAM_BLOCK ? n : STREAM_BLOCK;
	n = push->stream->params.merge_keys && push->stream->merge != STREAM_DROP ? 1 : n;
	return n < push->n ? n : push->n;
}

size_t ckv_absorb_space(const push_job *job) {
	size_t dim = (size_t)job->layer->shape.dim_k, values = (size_t)job->layer->shape.dim_v;
	size_t queries = (size_t)job->n_queries, columns = (size_t)job->n_columns;
	size_t pair = dim > values ? dim : values;
	return (size_t)2 * CKV_LANES * dim + queries * dim + queries * columns + columns + 2 * pair;
}

static void set_space(head_job *job, int32_t worker) {
	const push_job *push = job->push;
	size_t dim = (size_t)push->layer->shape.dim_k;
	job->rows = (float *)push->stream->work.data + (size_t)worker * push->space;
	job->panel = job->rows + CKV_LANES * dim;
	job->queries = job->panel + CKV_LANES * dim;
	job->logits = job->queries + (size_t)push->n_queries * dim;
	job->x = job->logits + (size_t)push->n_queries * (size_t)push->n_columns;
	job->pair = job->x + push->n_columns;
}

/* ------------------------------------------------------------------------------------------------------------ scores */

/* scores[j] += softmax of the token's queries over the rows so far, mean over the query heads. */
static void add_mass(head_job *job, int32_t i) {
	const ckv_stream *stream = job->push->stream;
	ckv_lane *lane = &job->head->lane;
	int32_t group = ckv_push_group(job->push);
	float decay = (float)stream->params.decay;
	if (lane->n == 0) {
		return;
	}
	for (int32_t j = 0; j < lane->n && stream->params.decay < 1.0; j++) {
		lane->scores[j] *= decay;
	}
	for (int32_t g = 0; g < group; g++) {
		float sum = ckv_logits_softmax(job, i * group + g, lane->n);
		stream->kernels->axpy(lane->scores, job->x, 1.0f / (sum * (float)group), (size_t)lane->n);
	}
}

/* scores[j] = the newest token's weights, its own among them. */
static void set_weights(head_job *job, int32_t i) {
	ckv_lane *lane = &job->head->lane;
	int32_t group = ckv_push_group(job->push);
	memset(lane->scores, 0, (size_t)lane->n * sizeof *lane->scores);
	for (int32_t g = 0; g < group; g++) {
		float sum = ckv_logits_softmax(job, i * group + g, lane->n);
		job->push->stream->kernels->axpy(lane->scores, job->x, 1.0f / (sum * (float)group), (size_t)lane->n);
	}
}

/* scores[j] = mean weight that n tokens' queries, in job->queries, give row j. Each sees the rows older than itself (number
 * i being of position + i), or all. */
static void set_window(head_job *job, int32_t n, int32_t position, bool causal) {
	ckv_lane *lane = &job->head->lane;
	int32_t group = ckv_push_group(job->push);
	ckv_logits_rows(job, n * group);
	memset(lane->scores, 0, (size_t)lane->n * sizeof *lane->scores);
	for (int32_t i = 0; i < n * group; i++) {
		int32_t rows = causal ? ckv_lane_before(lane, position + i / group) : lane->n;
		if (rows > 0) {
			float sum = ckv_logits_softmax(job, i, rows);
			job->push->stream->kernels->axpy(lane->scores, job->x, 1.0f / (sum * (float)(n * group)), (size_t)rows);
		}
	}
}

static float first_score(const head_job *job, int32_t token) {
	const ckv_stream *stream = job->push->stream;
	size_t dim = (size_t)job->push->layer->shape.dim_k;
	if (stream->scorer == STREAM_ATTN_MASS) {
		return job->head->lane.n == 0 ? 1.0f : 0.0f;
	}
	if (stream->scorer != STREAM_KEY_NORM && stream->scorer != STREAM_KNORM) {
		return 0.0f;
	}
	stream->kernels->f16_to_f32(job->keys + (size_t)token * dim, job->pair, dim);
	float norm = (float)ckv_norm(job->pair, dim);
	return stream->scorer == STREAM_KEY_NORM ? norm : -norm;
}

/* ------------------------------------------------------------------------------------------------------------ eviction */

static void append(head_job *job, int32_t token, float score, int32_t column) {
	const stream_layer *layer = job->push->layer;
	stream_head *head = job->head;
	size_t dim_k = (size_t)layer->shape.dim_k, dim_v = (size_t)layer->shape.dim_v;
	ckv_lane_append(&head->lane, layer->seen + token, score, column);
	memcpy(ckv_store_key(layer, head, head->lane.n - 1), job->keys + (size_t)token * dim_k, dim_k * sizeof *job->keys);
	memcpy(ckv_store_value(layer, head, head->lane.n - 1), job->values + (size_t)token * dim_v, dim_v * sizeof *job->values);
}

/* Lets the lowest chunk go; false when none may. */
static bool evict_lowest(head_job *job, const lane_rule *rule, int32_t token) {
	const push_job *push = job->push;
	lane_range rows;
	if (!ckv_lane_lowest(&job->head->lane, rule, push->layer->seen + token + 1, &rows)) {
		return false;
	}
	if (push->stream->merge != STREAM_DROP) {
		ckv_merge_evicted(push->stream, push->index, job->index, rows.first, job->pair);
	}
	ckv_store_evict(job->head, rows, token);
	return true;
}

/* Until the budget holds. Room for a candidate was checked with the parameters. */
static void evict(head_job *job, int32_t token) {
	lane_rule rule = ckv_stream_rule(job->push->stream);
	while (job->head->lane.n > job->push->layer->budget && evict_lowest(job, &rule, token)) {
	}
}

/* A smaller budget than before: the lowest go first. The published code protects the sinks alone there. */
static void shrink(head_job *job) {
	lane_rule rule = ckv_stream_rule(job->push->stream);
	rule.grace = rule.stored_index ? 0 : rule.grace;
	while (job->head->lane.n > job->push->layer->budget && evict_lowest(job, &rule, -1)) {
	}
}

/* Scores that are only made when something must go. */
static void score_late(head_job *job, int32_t i, int32_t token) {
	const ckv_stream *stream = job->push->stream;
	int32_t position, seen = job->push->layer->seen + token + 1;
	if (stream->scorer == STREAM_TOVA) {
		set_weights(job, i);
	} else if (stream->scorer == STREAM_SNAPKV) {
		int32_t n = ckv_ring_get(job, seen, &position);
		set_window(job, n, position, true);
	}
}

/* snapkv lets as many chunks go at once as make up a window, so that its queries are used once. */
static void evict_window(head_job *job, int32_t token) {
	lane_rule rule = ckv_stream_rule(job->push->stream);
	int32_t target = job->push->layer->budget + 1 - job->push->stream->params.window;
	while (job->head->lane.n > target && evict_lowest(job, &rule, token)) {
	}
}

/* -------------------------------------------------------------------------------------------------------- token by token */

/* Whether some token from `first` to `end` - 1 of the push wants logits. */
static bool wants_logits(const head_job *job, int32_t n) {
	const ckv_stream *stream = job->push->stream;
	return stream->scorer == STREAM_ATTN_MASS ||
	       (stream->scorer == STREAM_TOVA && job->head->lane.n > job->push->layer->budget - n);
}

static void take_token(head_job *job, int32_t i, int32_t token, int32_t column) {
	const ckv_stream *stream = job->push->stream;
	float score = first_score(job, token);
	if (stream->scorer == STREAM_ATTN_MASS) {
		add_mass(job, i);
	}
	append(job, token, score, column);
	if (stream->scorer == STREAM_SNAPKV) {
		ckv_ring_put(job, token);
	}
	if (job->head->lane.n <= job->push->layer->budget) {
		return;
	}
	score_late(job, i, token);
	if (stream->scorer == STREAM_SNAPKV) {
		evict_window(job, token);
	} else {
		evict(job, token);
	}
}

static void absorb_tokens(head_job *job) {
	int32_t n = job->push->n, size = block_size(job->push);
	for (int32_t first = 0; first < n; first += size) {
		int32_t count = n - first < size ? n - first : size, rows = job->head->lane.n;
		if (wants_logits(job, count)) {
			ckv_logits_block(job, first, count);
		}
		for (int32_t i = 0; i < count; i++) {
			take_token(job, i, first + i, rows + i);
		}
	}
}

/* --------------------------------------------------------------------------------------------- the published calls' ways */

/* The keys of the last rows as queries. */
static int32_t last_keys(head_job *job, int32_t n) {
	const ckv_lane *lane = &job->head->lane;
	size_t dim = (size_t)job->push->layer->shape.dim_k;
	n = n < 1 ? 1 : n;
	n = n < lane->n ? n : lane->n;
	for (int32_t i = 0; i < n; i++) {
		job->push->stream->kernels->f16_to_f32(ckv_store_key(job->push->layer, job->head, lane->n - n + i),
		                                       job->queries + (size_t)i * dim, dim);
	}
	return n;
}

/* All tokens are appended, then the lowest single rows go. snapkv: only a call of several tokens evicts. */
static void absorb_call(head_job *job) {
	const push_job *push = job->push;
	bool window = push->stream->scorer == STREAM_SNAPKV;
	lane_rule rule = ckv_stream_rule(push->stream);
	for (int32_t t = 0; t < push->n; t++) {
		append(job, t, first_score(job, t), 0);
	}
	if (job->head->lane.n <= push->layer->budget || (window && push->n == 1)) {
		return;
	}
	if (window) {
		int32_t n = last_keys(job, push->stream->params.window);
		set_window(job, n, 0, false);
	}
	while (job->head->lane.n > push->layer->budget && evict_lowest(job, &rule, push->n - 1)) {
	}
}

/* -------------------------------------------------------------------------------------------------------------- reuse */

/* What the leader's head let go, from the rows that are the same here. */
static void follow(head_job *job, const stream_head *leader) {
	int32_t event = 0;
	for (int32_t t = 0; t < job->push->n; t++) {
		append(job, t, 0.0f, 0);
		for (; event < leader->n_events && leader->events[event].token == t; event++) {
			ckv_store_evict(job->head, leader->events[event].rows, t);
		}
	}
}

ckv_status ckv_absorb(void *user, int32_t worker, int32_t index, ckv_error *error) {
	const push_job *push = user;
	size_t n = (size_t)push->n;
	head_job job = {.push = push, .head = &push->layer->heads[index], .index = index};
	(void)error;
	job.keys = (const uint16_t *)push->stream->new_keys.data + (size_t)index * n * (size_t)push->layer->shape.dim_k;
	job.values = (const uint16_t *)push->stream->new_values.data + (size_t)index * n * (size_t)push->layer->shape.dim_v;
	set_space(&job, worker);
	job.head->n_events = job.head->n_evicted = 0;
	if (push->stream->rule == STREAM_SQUEEZE) {
		shrink(&job);
	}
	if (push->leader) {
		follow(&job, &push->leader->heads[index]);
	} else if (push->stream->by_call) {
		absorb_call(&job);
	} else {
		absorb_tokens(&job);
	}
	return CKV_OK;
}
