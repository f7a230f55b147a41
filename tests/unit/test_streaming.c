/* The scorer of StreamingLLM: the first tokens and the newest. */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Keys of one row only: what they say does not matter. */
static ckv_layer flat_layer(int32_t n_heads, int32_t n_tokens) {
	static const float row[4] = {1.0f, 2.0f, -1.0f, 0.5f};
	ckv_layer layer;
	ckv_layer_init(&layer);
	layer.k = (ckv_view){.data = row, .n_heads = n_heads, .n_tokens = n_tokens, .head_dim = 4};
	return layer;
}

static ckv_ctx *sinks_ctx(int32_t sinks, bool reference) {
	char policy[64];
	snprintf(policy, sizeof policy, "streamingllm:sinks=%d%s", sinks, reference ? ",mode=reference" : "");
	return make_ctx(policy);
}

/* The published rule: after the sinks, as many zeros as tokens must go. */
static void the_tokens_after_the_sinks_score_zero(void **state) {
	enum { MOST = 40, G = 2 };
	(void)state;
	for (int32_t n = 1; n <= MOST; n += 3) {
		ckv_layer layer = flat_layer(G, n);
		for (int32_t sinks = 0; sinks <= 6; sinks += 2) {
			ckv_ctx *ctx = sinks_ctx(sinks, false);
			for (int32_t keep = 1; keep <= n + 2; keep++) {
				float scores[G * MOST];
				assert_int_equal(ckv_score(ctx, &layer, ckv_keep_tokens(keep), scores), CKV_OK);
				for (int32_t i = 0; i < G * n; i++) {
					int32_t t = i % n;
					float expected = t >= sinks && t < sinks + n - keep ? 0.0f : 1.0f;
					CHECK(scores[i] == expected, "T %d, sinks %d, keep %d: token %d", n, sinks, keep, t);
				}
			}
			ckv_ctx_free(ctx);
		}
	}
}

/* Sinks and newest, exactly the budget, the same for every head. */
static void the_sinks_and_the_newest_are_kept(void **state) {
	enum { MOST = 40, G = 3 };
	(void)state;
	for (int32_t n = 1; n <= MOST; n += 3) {
		ckv_layer layer = flat_layer(G, n);
		for (int32_t c = 0; c < 8; c++) {
			int32_t sinks = c / 2 * 2;
			ckv_ctx *ctx = sinks_ctx(sinks, c % 2);
			for (int32_t keep = 1; keep < n; keep++) {
				selected s = select_layer(ctx, &layer, ckv_keep_tokens(keep));
				for (int32_t i = 0; i < G * n; i++) {
					int32_t t = i % n, first = sinks < keep ? sinks : keep;
					CHECK(s.mask[i] == (t < first || t >= n - (keep - first)), "T %d, sinks %d, keep %d: token %d", n, sinks,
					      keep, t);
				}
				selected_free(&s);
			}
			ckv_ctx_free(ctx);
		}
	}
}

/* int(T * (1 - r)), as the published code truncates it: 99 of 1000 where a tenth is meant. */
static void the_published_count_is_taken_where_it_is_asked_for(void **state) {
	enum { T = 1000 };
	(void)state;
	ckv_layer layer = flat_layer(1, T);
	ckv_ctx *ctx = sinks_ctx(4, true);
	float *scores = test_memory(T, sizeof *scores);
	int32_t ones = 0;
	assert_int_equal(ckv_score(ctx, &layer, ckv_remove_fraction(0.9), scores), CKV_OK);
	for (int i = 0; i < T; i++) {
		ones += scores[i] == 1.0f;
	}
	assert_int_equal(ones, 99);
	free(scores);
	ckv_ctx_free(ctx);
}

static void nothing_but_keys_is_needed(void **state) {
	ckv_needs needs;
	ckv_params p;
	(void)state;
	assert_int_equal(ckv_policy_parse("streamingllm", &p, NULL), CKV_OK);
	assert_int_equal(ckv_params_needs(&p, &needs), CKV_OK);
	assert_true(needs.flags == 0 && needs.n_queries == 0);
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_tokens_after_the_sinks_score_zero),
	    cmocka_unit_test(the_sinks_and_the_newest_are_kept),
	    cmocka_unit_test(the_published_count_is_taken_where_it_is_asked_for),
	    cmocka_unit_test(nothing_but_keys_is_needed),
	};
	return cmocka_run_group_tests_name("streaming", tests, NULL, NULL);
}
