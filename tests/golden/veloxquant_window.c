/* Scores of a window. A stream does not show them, so this looks inside; and since only what is kept has any, another stream
 * keeps all of the first step but one row. */
#include "kept.h"
#include "stream/internal.h"
#include "veloxquant_arrays.h"

static bool head_agrees(const ckv_lane *lane, const float *expected, int32_t n, int32_t head, note *why) {
	static const tolerance allowed = {2e-5, 1e-9};
	if (lane->n != n - 1) {
		return note_set(why, "head %d: %d rows expected, %d found", head, n - 1, lane->n);
	}
	for (int32_t i = 0; i < lane->n; i++) {
		int32_t position = lane->positions[i];
		if (position < 0 || position >= n) {
			return note_set(why, "head %d, row %d: position %d is out of range", head, i, position);
		}
		if (!tolerance_holds(allowed, (double)expected[position], (double)lane->scores[i])) {
			return note_set(why, "head %d, position %d: score %.9g expected, %.9g found", head, position,
			                (double)expected[position], (double)lane->scores[i]);
		}
	}
	return true;
}

bool vq_window_agrees(const vq_case *c, const vq_record *found, const char *name, note *why) {
	npy scores;
	int32_t n = c->steps[0];
	ckv_stream *stream;
	ckv_error error = {CKV_OK, ""};
	vq_policy policy = *c->feed.policy;
	vq_feed feed = c->feed;
	policy.budget = n - 1;
	feed.policy = &policy;
	if (!vq_case_array(c, name, NPY_F4, 2, (int32_t[]){found->heads, n}, &scores, why)) {
		return false;
	}
	ckv_status status = vq_create(&stream, &feed, 0, feed.heads, &error);
	status = status ? status : vq_push(stream, &feed, (vq_heads){0, feed.heads}, 0, 0, n);
	bool same = status == CKV_OK || note_set(why, "%s: %s", ckv_strerror(status), error.message);
	for (int32_t h = 0; h < feed.heads && same; h++) {
		same = head_agrees(&stream->layers[0].heads[h].lane, (const float *)scores.data + (size_t)h * (size_t)n, n, h, why);
	}
	ckv_stream_free(stream);
	npy_free(&scores);
	return same;
}
