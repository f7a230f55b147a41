/* Streaming caches: the newest tokens taken back, whatever came of them before. */
#include "stream_support.h"

#include <stdlib.h>
#include <string.h>

static void tokens_that_are_taken_back_are_gone(void **state) {
	rng r = {6};
	(void)state;
	for (int i = 0; i < 80; i++) {
		setting s = setting_make(&r);
		ckv_stream *stream = open_setting(&s, NULL), *before = open_setting(&s, NULL);
		push_whole(&s, stream, 0, s.n);
		push_whole(&s, before, 0, s.n);
		int32_t n = rng_range(&r, 0, s.n), left = s.n - n;
		assert_int_equal(ckv_stream_trim(stream, n), CKV_OK);
		for (int32_t l = 0; l < s.n_layers; l++) {
			assert_int_equal(layer_info(stream, l).tokens_seen, left);
			for (int32_t h = 0; h < s.shapes[l].n_kv_heads; h++) {
				ckv_stream_rows was = head_rows(before, l, h), is = head_rows(stream, l, h);
				CHECK(is.n <= was.n && (is.n == was.n || was.positions[is.n] >= left), "%s: %d rows", s.policy, is.n);
				CHECK(is.n == 0 || is.positions[is.n - 1] < left, "%s: %d", s.policy, is.positions[is.n - 1]);
				CHECK(memcmp(is.positions, was.positions, (size_t)is.n * sizeof *is.positions) == 0, "%s", s.policy);
			}
		}
		push_layers(stream, s.layers, s.n_layers, 0, s.n); /* the budget holds afterwards, and positions go on */
		for (int32_t l = 0; l < s.n_layers; l++) {
			ckv_stream_rows rows = head_rows(stream, l, 0);
			CHECK(rows.n <= layer_info(stream, l).layer_budget && layer_info(stream, l).tokens_seen == left + s.n, "%s: %d",
			      s.policy, rows.n);
			CHECK(s.params.grace == 0 || rows.positions[rows.n - 1] == left + s.n - 1 || s.budget < rows.n, "%s", s.policy);
		}
		ckv_stream_free(stream);
		ckv_stream_free(before);
		setting_free(&s);
	}
}

/* Where scores are the rows' own, or a window's whose queries are all there again. */
static void the_same_tokens_again_are_as_if_nothing_was_taken_back(void **state) {
	static const struct {
		const char *policy;
		int32_t most;
	} cases[] = {{"streamingllm", 20},
	             {"l2norm:grace=9", 9},
	             {"chunkkv:scorer=key_norm,grace=9,chunk=3", 9},
	             {"chunkkv:scorer=knorm,grace=8,chunk=4", 8},
	             {"snapkv:window=8", 8}};
	const ckv_stream_shape shape = {2, 6, 3};
	rng r = {7};
	(void)state;
	for (size_t i = 0; i < 5 * sizeof cases / sizeof *cases; i++) {
		const char *policy = cases[i / 5].policy;
		tokens t = tokens_random(&r, shape, 150, 1);
		ckv_stream *a = stream_make(policy, 30, &shape, 1, NULL), *b = stream_make(policy, 30, &shape, 1, NULL);
		int32_t cut = rng_range(&r, 40, 100), n = rng_range(&r, 1, cases[i / 5].most);
		push(a, 0, &t, 0, 150);
		push(b, 0, &t, 0, cut);
		assert_int_equal(ckv_stream_trim(b, n), CKV_OK);
		push(b, 0, &t, cut - n, n);
		push(b, 0, &t, cut, 150 - cut);
		check_same_rows(a, b, &shape, 1, policy);
		ckv_stream_free(a);
		ckv_stream_free(b);
		tokens_free(&t);
	}
}

static void trimming_that_makes_no_sense_is_refused(void **state) {
	const ckv_stream_shape shapes[] = {{1, 4, 2}, {1, 4, 2}};
	rng r = {8};
	(void)state;
	tokens layers[] = {tokens_random(&r, shapes[0], 40, 0), tokens_random(&r, shapes[1], 40, 0)};
	for (int kind = 0; kind < 3; kind++) {
		ckv_stream *s = stream_make(kind == 2 ? "h2o:mode=reference" : "h2o", 30, shapes, 2, NULL);
		push_layers(s, layers, 2, 0, 30);
		if (kind == 1) {
			push(s, 0, &layers[0], 30, 1);
		}
		saved before = save_stream(s);
		static const int32_t counts[] = {31, -1, INT32_MAX, INT32_MIN, 1};
		for (size_t i = 0; i < 5 - (kind == 0); i++) {
			ckv_status status = ckv_stream_trim(s, counts[i]);
			CHECK(kind == 0   ? status == CKV_ERR_ARG
			      : kind == 1 ? status == CKV_ERR_STATE
			                  : status == CKV_ERR_UNSUPPORTED || status == CKV_ERR_STATE,
			      "%d: %s", counts[i], ckv_strerror(status));
			CHECK(ckv_stream_message(s)[0] && still_saves(s, &before), "%d", counts[i]);
		}
		saved_free(&before);
		ckv_stream_free(s);
	}
	assert_int_equal(ckv_stream_trim(NULL, 0), CKV_ERR_ARG);
	tokens_free(&layers[0]);
	tokens_free(&layers[1]);
}

static void what_is_taken_back_is_no_part_of_the_last_push(void **state) {
	const ckv_stream_shape shape = {1, 4, 2};
	rng r = {9};
	const int32_t *evicted;
	int32_t n;
	(void)state;
	tokens t = tokens_random(&r, shape, 40, 0);
	ckv_stream *s = stream_make("h2o", 30, &shape, 1, NULL);
	push(s, 0, &t, 0, 40);
	assert_int_equal(ckv_stream_evicted(s, 0, 0, &evicted, &n), CKV_OK);
	assert_int_equal(n, 10);
	assert_int_equal(ckv_stream_trim(s, 2), CKV_OK);
	assert_int_equal(ckv_stream_evicted(s, 0, 0, &evicted, &n), CKV_OK);
	assert_int_equal(n, 0);
	ckv_stream_free(s);
	tokens_free(&t);
}

/* Other values for tokens from `first` on. */
static void replace_tokens(rng *r, tokens *t, int32_t first) {
	tensor *tensors[] = {&t->k, &t->v, &t->q};
	stored *memory[] = {&t->stored_k, &t->stored_v, &t->stored_q};
	for (int i = 0; i < 3; i++) {
		tensor other = tensor_random(r, tensors[i]->n_heads, tensors[i]->n_tokens, tensors[i]->dim);
		size_t rest = (size_t)(other.n_tokens - first) * (size_t)other.dim * sizeof(float);
		for (int32_t h = 0; h < other.n_heads && rest; h++) {
			memcpy(tensor_row(tensors[i], h, first), tensor_row(&other, h, first), rest);
		}
		memcpy(memory[i]->memory, tensors[i]->value, memory[i]->size);
		tensor_free(&other);
	}
}

/* The first keys are liked by all queries: later tokens have mostly gone when they are taken back. */
static void like_the_first(tokens *t) {
	for (int32_t p = 0; p < t->k.n_tokens; p++) {
		tensor_row(&t->k, 0, p)[0] = p < 30 ? 1.75f : -1.75f;
		for (int32_t h = 0; h < t->q.n_heads; h++) {
			tensor_row(&t->q, h, p)[0] = 1.75f;
		}
	}
	memcpy(t->stored_k.memory, t->k.value, t->stored_k.size);
	memcpy(t->stored_q.memory, t->q.value, t->stored_q.size);
}

/* Drafts that are pushed, taken back in part, and pushed anew: as the naive head, which forgets the queries that gave way to
 * those of the drafts. */
static void after_drafts_the_token_step_goes_on(void **state) {
	static const char *const policies[] = {
	    "snapkv:window=8", "snapkv:window=3,chunk=2", "h2o:grace=6", "chunkkv:chunk=3,grace=5", "tova", "l2norm:grace=4",
	    "streamingllm"};
	const ckv_stream_shape shape = {1, 8, 3};
	enum { N = 240 };
	rng r = {10};
	(void)state;
	for (size_t i = 0; i < 21; i++) {
		const char *policy = policies[i % 7];
		ckv_stream_params params = stream_params(policy);
		int32_t budget = least_budget(policy) + rng_range(&r, 3, 15);
		tokens t = tokens_random(&r, shape, N, 1 + (int32_t)i % 2);
		ckv_stream *s = stream_make(policy, budget, &shape, 1, NULL);
		if (i % 2) {
			like_the_first(&t);
		}
		naive_head h = naive_make(&params, &t, 0, 0, budget);
		for (int32_t step = 0; step < 600 && h.seen < N; step++) {
			const int32_t *evicted;
			int32_t n;
			push(s, 0, &t, h.seen, 1);
			assert_int_equal(ckv_stream_evicted(s, 0, 0, &evicted, &n), CKV_OK);
			naive_step(&h, evicted, n, policy);
			naive_compare(&h, s, policy);
			if (rng_chance(&r, 10)) {
				n = rng_range(&r, 0, h.seen > 80 && rng_chance(&r, 2) ? 50 : h.seen < 12 ? h.seen : 12);
				assert_int_equal(ckv_stream_trim(s, n), CKV_OK);
				naive_trim(&h, n);
				naive_compare(&h, s, policy);
				replace_tokens(&r, &t, h.seen);
				if (i % 2) {
					like_the_first(&t);
				}
			}
		}
		CHECK(h.decisions > 9 && h.near_ties * 20 < h.decisions, "%s: %d decisions", policy, h.decisions);
		naive_free(&h);
		ckv_stream_free(s);
		tokens_free(&t);
	}
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(tokens_that_are_taken_back_are_gone),
	    cmocka_unit_test(the_same_tokens_again_are_as_if_nothing_was_taken_back),
	    cmocka_unit_test(trimming_that_makes_no_sense_is_refused),
	    cmocka_unit_test(what_is_taken_back_is_no_part_of_the_last_push),
	    cmocka_unit_test(after_drafts_the_token_step_goes_on),
	};
	return cmocka_run_group_tests_name("stream_trim", tests, NULL, NULL);
}
