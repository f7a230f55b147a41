/* Threads share the KV heads of one call: the result must be the same to the bit however many there are, so must the error,
 * and under the thread sanitizer none may touch what is another's. */
#include "support.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { H = 10, G = 5, D = 24, T = 150, W = 16, LAYERS = 4 };

static const int32_t thread_counts[] = {0, 1, 2, 3, 4, 64};
enum { COUNTS = sizeof thread_counts / sizeof *thread_counts };

/* A layer that has whatever a policy may ask for. */
typedef struct full_layer {
	test_layer t;
	ckv_moments *moments;
	float inv_freq[D / 2], mass[G * T];
} full_layer;

static void full_layer_make(full_layer *l) {
	rng r = {1};
	l->t = test_layer_make(&r, H, G, D, T, W);
	test_layer_add_values(&l->t, &r, 32);
	assert_int_equal(ckv_moments_create(&l->moments, H, D, NULL), CKV_OK);
	assert_int_equal(ckv_moments_add(l->moments, &l->t.layer.q), CKV_OK);
	for (int i = 0; i < D / 2; i++) {
		l->inv_freq[i] = powf(10000.0f, -(float)i / (D / 2));
	}
	for (int i = 0; i < G * T; i++) {
		l->mass[i] = fabsf(rng_float(&r));
	}
	ckv_layer *layer = &l->t.layer;
	layer->moments = l->moments;
	layer->rope = (ckv_rope){.n_dims = D, .inv_freq = l->inv_freq};
	layer->mass = l->mass;
	layer->mass_stride = T;
	layer->n_layers = LAYERS;
}

static void full_layer_free(full_layer *l) {
	test_layer_free(&l->t);
	ckv_moments_free(l->moments);
}

static ckv_ctx *threaded(const char *policy, int32_t n_threads) {
	ckv_ctx_options options;
	ckv_ctx_options_default(&options);
	options.n_threads = n_threads;
	return make_ctx_with(policy, &options);
}

/* A policy text for each scorer that there is, with a small lag. */
static bool scorer_policy(size_t i, char policy[64]) {
	const ckv_method_info *info = ckv_scorer_info(i);
	if (info) {
		snprintf(policy, 64, "snapkv:scorer=%s%s", info->name, strcmp(info->name, "lagkv") == 0 ? ",lag=16" : "");
	}
	return info != NULL;
}

static void every_scorer_gives_the_same_bits(void **state) {
	full_layer l;
	char policy[64];
	(void)state;
	full_layer_make(&l);
	for (size_t i = 0; scorer_policy(i, policy); i++) {
		float expected[G * T], scores[G * T];
		for (size_t n = 0; n < COUNTS; n++) {
			ckv_ctx *ctx = threaded(policy, thread_counts[n]);
			score(ctx, &l.t.layer, n ? scores : expected);
			check_bits(expected, n ? scores : expected, G * T, policy);
			ckv_ctx_free(ctx);
		}
	}
	full_layer_free(&l);
}

static void every_preset_selects_the_same(void **state) {
	full_layer l;
	(void)state;
	full_layer_make(&l);
	for (size_t i = 0; ckv_preset_info(i); i++) {
		selected expected = {0};
		for (size_t n = 0; n < COUNTS; n++) {
			ckv_ctx *ctx = threaded(ckv_preset_info(i)->name, thread_counts[n]);
			selected s = select_layer(ctx, &l.t.layer, ckv_keep_percent(40));
			if (n == 0) {
				expected = s;
			} else {
				CHECK(same_selected(&expected, &s), "%s with %d threads", ckv_preset_info(i)->name, thread_counts[n]);
				selected_free(&s);
			}
			ckv_ctx_free(ctx);
		}
		selected_free(&expected);
	}
	full_layer_free(&l);
}

/* ckv_mass_add and ckv_attend, which write to memory of the caller. */
static void sums_and_attention_are_the_same_bits(void **state) {
	full_layer l;
	float expected_sums[G * T], expected_out[W * H * 32], sums[G * T], out[W * H * 32];
	uint8_t visible[W * T], absent[G * T];
	rng r = {2};
	(void)state;
	full_layer_make(&l);
	for (int i = 0; i < W * T; i++) {
		visible[i] = !rng_chance(&r, 4);
	}
	for (int i = 0; i < G * T; i++) {
		absent[i] = rng_chance(&r, 3);
	}
	for (size_t n = 0; n < COUNTS; n++) {
		ckv_ctx *ctx = threaded("full", thread_counts[n]);
		memset(sums, 0, sizeof sums);
		assert_int_equal(ckv_mass_add(ctx, &l.t.layer, sums, T), CKV_OK);
		assert_int_equal(ckv_attend(ctx, &l.t.layer, visible, absent, out), CKV_OK);
		if (n == 0) {
			memcpy(expected_sums, sums, sizeof sums);
			memcpy(expected_out, out, sizeof out);
		}
		check_bits(expected_sums, sums, G * T, "sums");
		check_bits(expected_out, out, W * H * 32, "attention");
		ckv_ctx_free(ctx);
	}
	full_layer_free(&l);
}

/* Of several heads that fail the lowest is told, whoever finds out first. */
static void the_error_is_that_of_the_lowest_head(void **state) {
	static const char *const policies[] = {"snapkv", "expected-attention", "tova"};
	full_layer l;
	(void)state;
	full_layer_make(&l);
	for (int32_t lowest = 1; lowest < G - 1; lowest++) {
		for (int32_t g = 0; g < G; g++) {
			float *key = (float *)(void *)l.t.stored_k.memory + (g * T + 100) * D;
			*key = g >= lowest ? NAN : 0.0f;
		}
		for (size_t i = 0; i < 3 * COUNTS; i++) {
			char head[32];
			ckv_ctx *ctx = threaded(policies[i / COUNTS], thread_counts[i % COUNTS]);
			snprintf(head, sizeof head, "head %d,", lowest);
			score_refused(ctx, &l.t.layer, G * T, CKV_ERR_NUMERIC, policies[i / COUNTS]);
			CHECK(strstr(ckv_ctx_message(ctx), head), "%s, %d threads: '%s', but head %d is the first", policies[i / COUNTS],
			      thread_counts[i % COUNTS], ckv_ctx_message(ctx), lowest);
			ckv_ctx_free(ctx);
		}
	}
	full_layer_free(&l);
}

/* After an error the same context works again. */
static void an_error_leaves_nothing_behind(void **state) {
	full_layer l;
	float before[G * T], after[G * T];
	(void)state;
	full_layer_make(&l);
	ckv_ctx *ctx = threaded("snapkv", 4);
	float *key = (float *)(void *)l.t.stored_k.memory + 3 * T * D, good = *key;
	score(ctx, &l.t.layer, before);
	*key = NAN;
	score_refused(ctx, &l.t.layer, G * T, CKV_ERR_NUMERIC, "NaN");
	*key = good;
	score(ctx, &l.t.layer, after);
	check_bits(before, after, G * T, "after an error");
	assert_string_equal(ckv_ctx_message(ctx), "");
	ckv_ctx_free(ctx);
	full_layer_free(&l);
}

/* An allocator is not made for several threads: only the one that made the context may come to it. */
static pthread_t owner;

static void *owners_alloc(void *user, size_t size) {
	(void)user;
	if (!pthread_equal(pthread_self(), owner)) {
		abort();
	}
	return malloc(size);
}

static void owners_free(void *user, void *memory) {
	(void)user;
	if (!pthread_equal(pthread_self(), owner)) {
		abort();
	}
	free(memory);
}

static void memory_is_asked_for_by_the_caller_only(void **state) {
	full_layer l;
	char policy[64];
	float scores[G * T];
	(void)state;
	owner = pthread_self();
	ckv_allocator allocator = {owners_alloc, owners_free, NULL};
	ckv_ctx_options options;
	ckv_ctx_options_default(&options);
	options.allocator = &allocator;
	options.n_threads = 4;
	full_layer_make(&l);
	for (size_t i = 0; scorer_policy(i, policy); i++) {
		ckv_ctx *ctx = make_ctx_with(policy, &options);
		score(ctx, &l.t.layer, scores);
		ckv_ctx_free(ctx);
	}
	full_layer_free(&l);
}

/* Several contexts at once, each with threads of its own, over the same layer. */
typedef struct user {
	pthread_t thread;
	const ckv_layer *layer;
	float scores[G * T];
	ckv_status status;
} user;

static void *use(void *argument) {
	user *u = argument;
	ckv_params params;
	ckv_ctx_options options;
	ckv_ctx *ctx;
	ckv_params_default(&params);
	ckv_ctx_options_default(&options);
	options.n_threads = 3;
	u->status = ckv_ctx_create(&ctx, &params, &options, NULL);
	for (int i = 0; i < 3 && u->status == CKV_OK; i++) {
		u->status = ckv_score(ctx, u->layer, ckv_keep_percent(50), u->scores);
	}
	ckv_ctx_free(ctx);
	return NULL;
}

static void contexts_are_independent(void **state) {
	enum { USERS = 4 };
	full_layer l;
	user users[USERS];
	(void)state;
	full_layer_make(&l);
	for (int i = 0; i < USERS; i++) {
		users[i].layer = &l.t.layer;
		assert_int_equal(pthread_create(&users[i].thread, NULL, use, &users[i]), 0);
	}
	for (int i = 0; i < USERS; i++) {
		pthread_join(users[i].thread, NULL);
		assert_int_equal(users[i].status, CKV_OK);
		check_bits(users[0].scores, users[i].scores, G * T, "another context");
	}
	full_layer_free(&l);
}

static void a_negative_number_of_threads_is_refused(void **state) {
	ckv_params params;
	ckv_ctx_options options;
	ckv_ctx *ctx;
	ckv_error error;
	(void)state;
	ckv_params_default(&params);
	ckv_ctx_options_default(&options);
	assert_int_equal(options.n_threads, 0);
	options.n_threads = -1;
	assert_int_equal(ckv_ctx_create(&ctx, &params, &options, &error), CKV_ERR_ARG);
	assert_true(ctx == NULL && strstr(error.message, "-1"));
	options.n_threads = INT32_MAX; /* more than there will ever be: as many as there are heads, or 64 */
	assert_int_equal(ckv_ctx_create(&ctx, &params, &options, &error), CKV_OK);
	ckv_ctx_free(ctx);
}

/* More heads than the most workers. */
static void many_heads_are_shared_out(void **state) {
	enum { MANY = 150, SHORT = 20 };
	rng r = {3};
	(void)state;
	test_layer t = test_layer_make(&r, MANY, MANY, 4, SHORT, 2);
	float *expected = test_memory(MANY * SHORT, sizeof *expected), *scores = test_memory(MANY * SHORT, sizeof *scores);
	ckv_ctx *one = threaded("snapkv:window=2", 1), *many = threaded("snapkv:window=2", 1000);
	score(one, &t.layer, expected);
	score(many, &t.layer, scores);
	check_bits(expected, scores, MANY * SHORT, "150 heads");
	free(expected);
	free(scores);
	ckv_ctx_free(one);
	ckv_ctx_free(many);
	test_layer_free(&t);
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_scorer_gives_the_same_bits),
	    cmocka_unit_test(every_preset_selects_the_same),
	    cmocka_unit_test(sums_and_attention_are_the_same_bits),
	    cmocka_unit_test(the_error_is_that_of_the_lowest_head),
	    cmocka_unit_test(an_error_leaves_nothing_behind),
	    cmocka_unit_test(memory_is_asked_for_by_the_caller_only),
	    cmocka_unit_test(contexts_are_independent),
	    cmocka_unit_test(a_negative_number_of_threads_is_refused),
	    cmocka_unit_test(many_heads_are_shared_out),
	};
	return cmocka_run_group_tests_name("parallel", tests, NULL, NULL);
}
