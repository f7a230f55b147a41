/* Feeds streams. */
#include "veloxquant_feed.h"

#include "replay.h"

#include <stdlib.h>
#include <string.h>

/* A stream that is being fed, and which heads they are. */
typedef struct run {
	const vq_feed *feed;
	ckv_stream *stream;
	vq_heads heads;
	vq_record *record;
} run;

ckv_status vq_create(ckv_stream **stream, const vq_feed *feed, int number, int32_t heads, ckv_error *error) {
	ckv_ctx_options options;
	replay_options(number, &options);
	ckv_stream_shape *shapes = malloc((size_t)feed->layers * sizeof *shapes);
	*stream = NULL;
	if (!shapes) {
		return CKV_ERR_NOMEM;
	}
	for (int32_t i = 0; i < feed->layers; i++) {
		shapes[i] = (ckv_stream_shape){heads, feed->keys.head_dim, feed->values.head_dim};
	}
	const vq_policy *policy = feed->policy;
	ckv_status status = ckv_stream_create(stream, &policy->params, policy->budget, shapes, feed->layers, &options, error);
	free(shapes);
	return status;
}

static bool refused(const run *r, const char *call, ckv_status status, note *why) {
	return note_set(why, "%s: %s: %s", call, ckv_strerror(status), ckv_stream_message(r->stream));
}

static ckv_view piece(const ckv_view *all, size_t skipped, vq_heads heads, int32_t from, int32_t n) {
	ckv_view view = *all;
	view.data =
	    (const char *)all->data + skipped + (size_t)heads.first * all->stride_head + (size_t)from * all->stride_token;
	view.n_heads = heads.n;
	view.n_tokens = n;
	return view;
}

ckv_status vq_push(ckv_stream *stream, const vq_feed *feed, vq_heads heads, int32_t layer, int32_t from, int32_t n) {
	ckv_view k = piece(&feed->keys, (size_t)layer * feed->key_layer, heads, from, n);
	ckv_view v = piece(&feed->values, (size_t)layer * feed->value_layer, heads, from, n);
	return ckv_stream_push(stream, layer, &k, &v, NULL);
}

/* A head's rows, which cannot be more than there were tokens. */
static bool head_rows(const run *r, int32_t layer, int32_t head, ckv_stream_rows *rows, note *why) {
	ckv_status status = ckv_stream_head(r->stream, layer, head, rows);
	if (status != CKV_OK) {
		return refused(r, "ckv_stream_head", status, why);
	}
	return (rows->n >= 0 && rows->n <= r->feed->tokens) || note_set(why, "a head cannot have %d rows", rows->n);
}

/* What is kept after a step. */
static bool take_step(const run *r, int32_t layer, int32_t step, note *why) {
	vq_record *record = r->record;
	for (int32_t h = 0; h < r->heads.n; h++) {
		ckv_stream_rows rows;
		size_t at = vq_at_head(record, layer, step, r->heads.first + h);
		if (!head_rows(r, layer, h, &rows, why)) {
			return false;
		}
		record->lengths[at] = rows.n;
		if (rows.n > 0) {
			memcpy(record->positions + at * (size_t)record->tokens, rows.positions, (size_t)rows.n * sizeof *rows.positions);
		}
	}
	return true;
}

/* Rows that attention sees in this step: a rule of the method, put upon what is stored. */
static void take_returned(const run *r, int32_t layer, int32_t step) {
	vq_record *record = r->record;
	const vq_policy *policy = r->feed->policy;
	int32_t head = r->heads.first, n = r->feed->steps[step];
	int32_t stored = record->lengths[vq_at_head(record, layer, step, head)];
	int32_t before = step > 0 ? record->lengths[vq_at_head(record, layer, step - 1, head)] : 0;
	int32_t *returned = &record->returned[vq_at_step(record, layer, step)];
	*returned = policy->deferred ? before + n : stored;
	if (n == 0 && policy->repeats) {
		*returned = step > 0 ? returned[-1] : 0;
	}
}

static bool push(const run *r, int32_t layer, int32_t step, int32_t from, note *why) {
	ckv_status status = vq_push(r->stream, r->feed, r->heads, layer, from, r->feed->steps[step]);
	if (status != CKV_OK) {
		return refused(r, "ckv_stream_push", status, why);
	}
	if (!take_step(r, layer, step, why)) {
		return false;
	}
	take_returned(r, layer, step);
	return true;
}

static bool take_info(const run *r, ckv_stream_info *info, note *why) {
	for (int32_t i = 0; i < r->feed->layers; i++) {
		ckv_status status = ckv_stream_layer_info(r->stream, i, &info[i]);
		if (status != CKV_OK) {
			return refused(r, "ckv_stream_layer_info", status, why);
		}
	}
	return true;
}

/* What is kept at the end. */
static bool take_rows(const run *r, int32_t layer, int32_t head, note *why) {
	vq_record *record = r->record;
	ckv_stream_rows rows;
	size_t at = vq_at_end(record, layer, r->heads.first + head) * (size_t)record->tokens;
	if (!head_rows(r, layer, head, &rows, why)) {
		return false;
	}
	if (rows.scores && rows.n > 0) {
		memcpy(record->scores + at, rows.scores, (size_t)rows.n * sizeof *rows.scores);
		record->scored[layer] = true;
	}
	ckv_status status = ckv_stream_read(r->stream, layer, head, NULL, record->keys + at * (size_t)record->dim_k,
	                                    record->values + at * (size_t)record->dim_v);
	return status == CKV_OK || refused(r, "ckv_stream_read", status, why);
}

static bool feed_all(const run *r, note *why) {
	const vq_feed *feed = r->feed;
	int32_t from = 0;
	for (int32_t s = 0; s < feed->n_steps; s++) {
		for (int32_t i = 0; i < feed->layers; i++) {
			if (!push(r, i, s, from, why)) {
				return false;
			}
		}
		from += feed->steps[s];
		if (s == 0 && !take_info(r, r->record->first, why)) {
			return false;
		}
	}
	for (int32_t i = 0; i < feed->layers; i++) {
		for (int32_t h = 0; h < r->heads.n; h++) {
			if (!take_rows(r, i, h, why)) {
				return false;
			}
		}
	}
	return take_info(r, r->record->last, why);
}

bool vq_run(const vq_feed *feed, int number, vq_heads heads, vq_record *record, note *why) {
	run r = {feed, NULL, heads, record};
	ckv_error error = {CKV_OK, ""};
	ckv_status status = vq_create(&r.stream, feed, number, heads.n, &error);
	if (status != CKV_OK) {
		return note_set(why, "no stream: %s: %s", ckv_strerror(status), error.message);
	}
	bool ok = feed_all(&r, why);
	ckv_stream_free(r.stream);
	return ok;
}

static bool run_once(const vq_feed *feed, int number, bool together, vq_record *record, note *why) {
	int32_t n = together ? feed->heads : 1;
	bool ok = vq_record_open(record, feed, why);
	for (int32_t first = 0; first < feed->heads && ok; first += n) {
		ok = vq_run(feed, number, (vq_heads){first, n}, record, why);
	}
	return ok;
}

bool vq_run_all(const vq_feed *feed, bool together, vq_record *record, note *why) {
	bool ok = run_once(feed, 0, together, record, why);
	for (int i = 1; i < N_RUNS && ok; i++) {
		vq_record again;
		note difference = {""};
		ok = run_once(feed, i, together, &again, why);
		if (ok && !vq_same(record, &again, &difference)) {
			ok = note_set(why, "runs disagree: number 0 and %d: %.300s", i, difference.text);
		}
		vq_record_close(&again);
	}
	if (!ok) {
		vq_record_close(record);
	}
	return ok;
}
