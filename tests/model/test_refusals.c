/* What the adapter refuses, and that nothing has changed then. */
#include "support.h"

#include "adapters/llama/internal.h"

#include <string.h>

static void refuse_disabled_flash_attention(void **state) {
	ckv_llama *ckv;
	struct llama_context_params params = llama_context_default_params();
	(void)state;
	params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
	assert_int_equal(ckv_llama_create(&ckv, "chunkkv", NULL), CKV_OK);
	assert_int_equal(ckv_llama_attach(ckv, &params), CKV_ERR_UNSUPPORTED);
	assert_non_null(strstr(ckv_llama_message(ckv), "flash attention"));
	assert_null(params.cb_eval);
	ckv_llama_free(ckv);
}

static void refuse_what_was_not_observed(void **state) {
	fixture f;
	(void)state;
	open_fixture(&f, "chunkkv", 0, 600, GGML_TYPE_F16);
	assert_int_equal(ckv_llama_compress(f.ckv, f.ctx, 0, ckv_keep_percent(0), NULL), CKV_ERR_ARG);
	decode_part(&f, 0, 5); /* five tokens behind our back */
	assert_int_equal(ckv_llama_compress(f.ckv, f.ctx, 0, ckv_keep_percent(10), NULL), CKV_ERR_STATE);
	assert_non_null(strstr(ckv_llama_message(f.ckv), "observed"));
	assert_true(llama_memory_seq_rm(llama_get_memory(f.ctx), 0, f.prompt.n, -1));
	if (llama_model_n_swa(f.model)) {
		/* They have pushed rows out of the window: nothing can be put right any more. */
		assert_int_equal(ckv_llama_compress(f.ckv, f.ctx, 0, ckv_keep_percent(10), NULL), CKV_ERR_STATE);
	} else {
		assert_ok(f.ckv, ckv_llama_compress(f.ckv, f.ctx, 0, ckv_keep_percent(10), NULL));
		assert_int_equal(ckv_llama_compress(f.ckv, f.ctx, 0, ckv_keep_percent(10), NULL), CKV_ERR_STATE);
	}
	assert_int_equal(ckv_llama_prefill(f.ckv, f.ctx, 0, f.prompt.tokens, 3), CKV_ERR_STATE);
	close_fixture(&f);
}

/* Other tokens in the place of observed ones, as many as before: the count alone would not tell. */
static void refuse_overwritten_rows(void **state) {
	fixture f;
	(void)state;
	open_fixture(&f, "chunkkv", 0, 600, GGML_TYPE_F16);
	assert_true(llama_memory_seq_rm(llama_get_memory(f.ctx), 0, f.prompt.n - 60, -1) || llama_model_n_swa(f.model));
	if (llama_memory_seq_pos_max(llama_get_memory(f.ctx), 0) == f.prompt.n - 61) {
		decode_part(&f, 100, 60);
		assert_int_equal(llama_memory_seq_pos_max(llama_get_memory(f.ctx), 0), f.prompt.n - 1);
		assert_int_equal(ckv_llama_compress(f.ckv, f.ctx, 0, ckv_keep_percent(10), NULL), CKV_ERR_STATE);
		assert_non_null(strstr(ckv_llama_message(f.ckv), "decoded over"));
	}
	llama_memory_clear(llama_get_memory(f.ctx), true);
	assert_ok(f.ckv, ckv_llama_prefill(f.ckv, f.ctx, 0, f.prompt.tokens, f.prompt.n));
	assert_ok(f.ckv, ckv_llama_compress(f.ckv, f.ctx, 0, ckv_keep_percent(10), NULL));
	close_fixture(&f);
}

/* A refused call leaves what was observed before as it was. */
static void refused_observation_leaves_the_other(void **state) {
	fixture f;
	(void)state;
	f.model = model_load();
	prompt_make(f.model, 0, 600, "Why?", &f.prompt);
	struct llama_context_params params = model_params(2048, GGML_TYPE_F16);
	params.n_seq_max = 2;
	params.kv_unified = true;
	open_with(&f, "chunkkv", params);
	struct llama_batch batch = llama_batch_init(1, 0, 1);
	batch.n_tokens = 1;
	batch.token[0] = f.prompt.tokens[0];
	batch.pos[0] = 0;
	batch.n_seq_id[0] = 1;
	batch.seq_id[0][0] = 1;
	batch.logits[0] = true;
	assert_int_equal(llama_decode(f.ctx, batch), 0);
	llama_batch_free(batch);
	assert_ok(f.ckv, ckv_llama_prefill(f.ckv, f.ctx, 0, f.prompt.tokens, f.prompt.n));
	assert_int_equal(ckv_llama_prefill(f.ckv, f.ctx, 1, f.prompt.tokens, 5), CKV_ERR_STATE);
	assert_ok(f.ckv, ckv_llama_compress(f.ckv, f.ctx, 0, ckv_keep_percent(10), NULL));
	close_fixture(&f);
}

static void shrink_refuses_before_it_frees(void **state) {
	fixture f;
	(void)state;
	open_fixture(&f, "chunkkv", 0, 600, GGML_TYPE_F16);
	struct llama_context *ctx = f.ctx;
	assert_int_equal(ckv_llama_shrink(f.ckv, &f.ctx, 0, 100), CKV_ERR_ARG);
	assert_ptr_equal(f.ctx, ctx);
	assert_int_equal(ckv_llama_shrink(f.ckv, &f.ctx, 7, 1024), CKV_ERR_STATE);
	assert_ptr_equal(f.ctx, ctx);
	close_fixture(&f);
}

static bool no_nodes(struct ggml_tensor *tensor, bool ask, void *user) {
	(void)tensor;
	(void)user;
	return !ask;
}

/* Attaching twice, to parameters of a second context, must not make the callbacks call each other for ever. */
static void attaching_again_makes_no_loop(void **state) {
	fixture f;
	ckv_llama *other;
	(void)state;
	f.model = model_load();
	prompt_make(f.model, 0, 100, "Why?", &f.prompt);
	struct llama_context_params params = model_params(1024, GGML_TYPE_F16);
	assert_int_equal(ckv_llama_create(&other, "snapkv", NULL), CKV_OK);
	assert_int_equal(ckv_llama_attach(other, &params), CKV_OK);
	open_with(&f, "chunkkv", params);
	params.cb_eval = ckv_llama_eval;
	params.cb_eval_user_data = f.ckv;
	assert_int_equal(ckv_llama_attach(other, &params), CKV_OK);
	assert_ptr_equal(params.cb_eval_user_data, f.ckv);
	assert_ok(f.ckv, ckv_llama_prefill(f.ckv, f.ctx, 0, f.prompt.tokens, f.prompt.n));
	params = model_params(1024, GGML_TYPE_F16);
	params.cb_eval = no_nodes;
	assert_int_equal(ckv_llama_attach(other, &params), CKV_ERR_STATE);
	close_fixture(&f);
	ckv_llama_free(other);
}

static void rows_stay_held_when_llama_refuses_them(void **state) {
	fixture f;
	ckv_llama_report report = {.size = sizeof report};
	(void)state;
	open_fixture(&f, "chunkkv", 0, 1200, GGML_TYPE_F16);
	assert_ok(f.ckv, ckv_llama_extract(f.ckv, f.ctx, 0, ckv_keep_percent(50), &report));
	struct llama_context *small = llama_init_from_model(f.model, model_params(room(&f, 256), GGML_TYPE_F16));
	struct llama_context *other = llama_init_from_model(f.model, model_params(1536, GGML_TYPE_Q8_0));
	struct llama_context *good = llama_init_from_model(f.model, model_params(1536, GGML_TYPE_F16));
	if (llama_n_ctx(small) < (uint32_t)report.n_cells) {
		assert_int_equal(ckv_llama_restore(f.ckv, small, 0), CKV_ERR_HOST);
	}
	assert_int_equal(ckv_llama_restore(f.ckv, other, 0), CKV_ERR_HOST);
	assert_ok(f.ckv, ckv_llama_restore(f.ckv, good, 0));
	ckv_llama_drop(f.ckv);
	assert_int_equal(ckv_llama_restore(f.ckv, good, 0), CKV_ERR_STATE);
	llama_free(small);
	llama_free(other);
	llama_free(good);
	close_fixture(&f);
}

static bool stop_at_once(int32_t n_done, int32_t n_total, void *user) {
	*(int32_t *)user += n_done < n_total;
	return false;
}

static void cancelled_prefill_says_so(void **state) {
	fixture f;
	int32_t calls = 0;
	(void)state;
	f.model = model_load();
	prompt_make(f.model, 0, 600, "Why?", &f.prompt);
	open_with(&f, "chunkkv", model_params(1024, GGML_TYPE_F16));
	ckv_llama_on_progress(f.ckv, stop_at_once, &calls);
	assert_int_equal(ckv_llama_prefill(f.ckv, f.ctx, 0, f.prompt.tokens, f.prompt.n), CKV_ERR_CANCELLED);
	assert_int_equal(calls, 1);
	/* It can be taken up again where it stopped. */
	int32_t done = llama_memory_seq_pos_max(llama_get_memory(f.ctx), 0) + 1;
	ckv_llama_on_progress(f.ckv, NULL, NULL);
	assert_ok(f.ckv, ckv_llama_prefill(f.ckv, f.ctx, 0, f.prompt.tokens + done, f.prompt.n - done));
	assert_ok(f.ckv, ckv_llama_compress(f.ckv, f.ctx, 0, ckv_keep_percent(10), NULL));
	close_fixture(&f);
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(refuse_disabled_flash_attention),
	    cmocka_unit_test(refuse_what_was_not_observed),
	    cmocka_unit_test(refuse_overwritten_rows),
	    cmocka_unit_test(refused_observation_leaves_the_other),
	    cmocka_unit_test(shrink_refuses_before_it_frees),
	    cmocka_unit_test(attaching_again_makes_no_loop),
	    cmocka_unit_test(rows_stay_held_when_llama_refuses_them),
	    cmocka_unit_test(cancelled_prefill_says_so),
	};
	return cmocka_run_group_tests_name("refusals", tests, NULL, model_unload);
}
