#include "veloxquant_cache.h"

#include "cache/internal.h"
#include "replay.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------------------------------------------------- feeding */

static bool failed(const ckv_cache *cache, const char *call, ckv_status status, note *why) {
	return note_set(why, "%s: %s: %s", call, ckv_strerror(status), ckv_cache_message(cache));
}

static vq_cache_state state_of(const ckv_cache *cache) {
	vq_cache_state s = {.packed = cache->layers[0].k.heads[0].packed.n};
	s.info.size = sizeof s.info;
	ckv_cache_get_info(cache, 0, &s.info);
	return s;
}

static ckv_view part_of(const ckv_view *view, int32_t from, int32_t n) {
	ckv_view part = *view;
	part.data = (const char *)view->data + (size_t)from * view->stride_token;
	part.n_tokens = n;
	return part;
}

static bool feed_all(ckv_cache *cache, const vq_feed *feed, vq_cached *cached, note *why) {
	for (int32_t step = 0, at = 0; step < feed->n_steps; at += feed->steps[step++]) {
		ckv_view k = part_of(&feed->keys, at, feed->steps[step]), v = part_of(&feed->values, at, feed->steps[step]);
		ckv_status status = ckv_cache_append(cache, 0, &k, &v);
		if (status) {
			return failed(cache, "ckv_cache_append", status, why);
		}
		cached->returned[step] = ckv_cache_rows(cache, 0, 0);
		cached->final = state_of(cache);
		cached->first = step ? cached->first : cached->final;
		if (cached->final.info.rows != (int64_t)cached->returned[step] * feed->heads) {
			return note_set(why, "step %d: heads of different length", step);
		}
	}
	return true;
}

static bool read_all(ckv_cache *cache, const vq_feed *feed, vq_cached *cached, note *why) {
	size_t head = (size_t)feed->tokens * (size_t)feed->keys.head_dim;
	for (int32_t h = 0; h < feed->heads; h++) {
		if (ckv_cache_rows(cache, 0, h) != feed->tokens) {
			return note_set(why, "head %d: %d rows of %d", h, ckv_cache_rows(cache, 0, h), feed->tokens);
		}
		ckv_status status = ckv_cache_read(cache, 0, h, cached->keys + (size_t)h * head, cached->values + (size_t)h * head);
		if (status) {
			return failed(cache, "ckv_cache_read", status, why);
		}
	}
	return true;
}

/* ------------------------------------------------------------------------------------------------------------- runs */

static bool run_once(vq_cached *cached, const vq_case *c, const ckv_codec *codec, int run, note *why) {
	const vq_feed *feed = &c->feed;
	const ckv_stream_shape shape = {feed->heads, c->dim, c->dim};
	ckv_ctx_options options;
	ckv_cache *cache;
	ckv_error error;
	replay_options(run, &options);
	*cached = (vq_cached){.n = (size_t)feed->heads * (size_t)feed->tokens * (size_t)c->dim};
	cached->returned = calloc((size_t)feed->n_steps + 1, sizeof *cached->returned);
	cached->keys = calloc(cached->n + 1, sizeof *cached->keys);
	cached->values = calloc(cached->n + 1, sizeof *cached->values);
	bool ok = (cached->returned && cached->keys && cached->values) || note_set(why, "no memory for rows");
	if (ok && ckv_cache_create(&cache, codec, &shape, 1, &options, &error) == CKV_OK) {
		ok = feed_all(cache, feed, cached, why) && read_all(cache, feed, cached, why);
		ckv_cache_free(cache);
	} else if (ok) {
		ok = note_set(why, "no cache: %s", error.message);
	}
	if (!ok) {
		vq_cached_close(cached);
	}
	return ok;
}

static bool same_state(const vq_cache_state *a, const vq_cache_state *b) {
	const ckv_cache_info *x = &a->info, *y = &b->info;
	return a->packed == b->packed && x->rows == y->rows && x->longest == y->longest && x->bytes == y->bytes &&
	       x->bytes_allocated == y->bytes_allocated && x->reference_bytes == y->reference_bytes && x->rank_k == y->rank_k &&
	       x->rank_v == y->rank_v;
}

static bool same_run(int run, const vq_cached *a, const vq_cached *b, int32_t n_steps, note *why) {
	if (memcmp(a->returned, b->returned, (size_t)n_steps * sizeof *a->returned) != 0 || !same_state(&a->first, &b->first) ||
	    !same_state(&a->final, &b->final)) {
		return note_set(why, "runs disagree: counts of run %d", run);
	}
	return replay_same(run, a->keys, b->keys, a->n, "keys", why) &&
	       replay_same(run, a->values, b->values, a->n, "values", why);
}

bool vq_cached_open(vq_cached *cached, const vq_case *c, const ckv_codec *codec, note *why) {
	bool ok = run_once(cached, c, codec, 0, why);
	for (int run = 1; run < N_RUNS && ok; run++) {
		vq_cached again;
		ok = run_once(&again, c, codec, run, why);
		if (ok) {
			ok = same_run(run, cached, &again, c->feed.n_steps, why);
			vq_cached_close(&again);
		}
		if (!ok) {
			vq_cached_close(cached);
		}
	}
	return ok;
}

void vq_cached_close(vq_cached *cached) {
	free(cached->returned);
	free(cached->keys);
	free(cached->values);
	*cached = (vq_cached){0};
}

/* ----------------------------------------------------------------------------------------------------------- codecs */

ckv_codec vq_codec(const char *kind) {
	ckv_params params;
	if (ckv_policy_parse(kind, &params, NULL) != CKV_OK) {
		return (ckv_codec){.size = sizeof(ckv_codec), .preset = kind, .kind = kind, .reference = 1};
	}
	params.codec.reference = 1;
	return params.codec;
}

bool vq_codec_taken(const vq_job *job, const ckv_codec *codec) {
	const ckv_stream_shape shape = {1, 1, 1};
	ckv_cache *cache;
	bool taken = ckv_cache_create(&cache, codec, &shape, 1, NULL, NULL) != CKV_ERR_POLICY;
	ckv_cache_free(cache);
	if (!taken) {
		vq_skip(job, "settings that no codec here takes");
	}
	return taken;
}

/* -------------------------------------------------------------------------------------------------------- comparing */

static bool returned_agrees(const vq_case *c, const vq_cached *cached, note *why) {
	npy array;
	if (!vq_case_array(c, "returned_len.npy", NPY_I4, 1, (int32_t[]){c->feed.n_steps}, &array, why)) {
		return false;
	}
	const int32_t *expected = array.data;
	bool ok = true;
	for (int32_t i = 0; i < c->feed.n_steps && ok; i++) {
		ok = expected[i] == cached->returned[i] ||
		     note_set(why, "step %d: %d rows expected, %d found", i, expected[i], cached->returned[i]);
	}
	npy_free(&array);
	return ok;
}

void vq_cached_replay_returned(const vq_job *job, const vq_case *c, const vq_cached *cached) {
	note why = {""};
	vq_count(job, "returned_len", returned_agrees(c, cached, &why), &why);
}

bool vq_sum_agrees(const json_t *object, const char *const *names, size_t n, double found, note *why) {
	double want = 0.0;
	for (size_t i = 0; i < n; i++) {
		double number;
		if (!field_number(object, names[i], &number, why)) {
			return false;
		}
		want += number;
	}
	return fabs(want - found) <= 1e-12 * fabs(want) || note_set(why, "%.17g expected, %.17g found", want, found);
}
