/* Contexts: what ckv_ctx_create checks, what it copies, and what the accessors tell. */
#include "support.h"

#include "kernels/kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static ckv_params defaults(void) {
	ckv_params params;
	ckv_params_default(&params);
	return params;
}

/* Refused with this status, a message, and no context. */
static ckv_error refused(const ckv_params *params, const ckv_ctx_options *options, ckv_status expected) {
	ckv_error error;
	ckv_ctx *ctx = (ckv_ctx *)(void *)&error;
	paint(&error, sizeof error);
	ckv_status status = ckv_ctx_create(&ctx, params, options, &error);
	CHECK(status == expected, "%s instead of %s", ckv_strerror(status), ckv_strerror(expected));
	CHECK(error.status == expected && error.message[0] && memchr(error.message, 0, sizeof error.message), "no message");
	CHECK(ctx == NULL, "a context in spite of '%s'", error.message);
	return error;
}

static void parameters_are_checked(void **state) {
	const struct {
		size_t offset;
		int32_t value;
	} bad[] = {
	    {offsetof(ckv_params, window), 0},        {offsetof(ckv_params, window), -1},
	    {offsetof(ckv_params, window), 65537},    {offsetof(ckv_params, kernel), 0},
	    {offsetof(ckv_params, kernel), 4},        {offsetof(ckv_params, kernel), 257},
	    {offsetof(ckv_params, kernel), -3},       {offsetof(ckv_params, chunk), 0},
	    {offsetof(ckv_params, chunk), -10},       {offsetof(ckv_params, chunk), 65537},
	    {offsetof(ckv_params, sinks), -1},        {offsetof(ckv_params, sinks), 65537},
	    {offsetof(ckv_params, sinks), INT32_MIN}, {offsetof(ckv_params, window), INT32_MAX},
	    {offsetof(ckv_params, max_chunk), 0},     {offsetof(ckv_params, max_chunk), 65537},
	    {offsetof(ckv_params, entropy_keep), 0},  {offsetof(ckv_params, entropy_keep), -4},
	    {offsetof(ckv_params, reuse), 0},         {offsetof(ckv_params, reuse), 1025},
	    {offsetof(ckv_params, future), 0},        {offsetof(ckv_params, future), 65537},
	    {offsetof(ckv_params, lag), 0},           {offsetof(ckv_params, lag), -128},
	    {offsetof(ckv_params, seed), -1},         {offsetof(ckv_params, reference), 2},
	    {offsetof(ckv_params, reference), -1},
	};
	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		ckv_params p = defaults();
		memcpy((char *)&p + bad[i].offset, &bad[i].value, sizeof bad[i].value);
		refused(&p, NULL, CKV_ERR_POLICY);
	}
}

static void real_parameters_are_checked(void **state) {
	const struct {
		size_t offset;
		double value;
	} bad[] = {
	    {offsetof(ckv_params, safeguard), -0.001}, {offsetof(ckv_params, safeguard), 1.001},
	    {offsetof(ckv_params, safeguard), NAN},    {offsetof(ckv_params, beta), 0.999},
	    {offsetof(ckv_params, beta), INFINITY},    {offsetof(ckv_params, beta), NAN},
	    {offsetof(ckv_params, share), 0.0},        {offsetof(ckv_params, share), 1.001},
	    {offsetof(ckv_params, share), -INFINITY},
	};
	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		ckv_params p = defaults();
		memcpy((char *)&p + bad[i].offset, &bad[i].value, sizeof bad[i].value);
		refused(&p, NULL, CKV_ERR_POLICY);
	}
}

/* What only some selectors read is out of place for them only. */
static void parameters_are_checked_together(void **state) {
	(void)state;
	ckv_params p = defaults();
	ckv_ctx *ctx;
	p.entropy_keep = p.chunk;
	assert_int_equal(ckv_ctx_create(&ctx, &p, NULL, NULL), CKV_OK);
	ckv_ctx_free(ctx);
	p.selector = "entropy_gate";
	refused(&p, NULL, CKV_ERR_POLICY);
	p.chunker = "line"; /* by which chunks are up to 64 */
	assert_int_equal(ckv_ctx_create(&ctx, &p, NULL, NULL), CKV_OK);
	ckv_ctx_free(ctx);
	p.max_chunk = p.entropy_keep;
	refused(&p, NULL, CKV_ERR_POLICY);
}

static void names_are_checked(void **state) {
	(void)state;
	ckv_params p = defaults();
	p.scorer = "snapvk";
	assert_non_null(strstr(refused(&p, NULL, CKV_ERR_POLICY).message, "'snapkv'"));
	p = defaults();
	p.selector = "chunky";
	assert_non_null(strstr(refused(&p, NULL, CKV_ERR_POLICY).message, "'chunk'"));
	p = defaults();
	p.chunker = "lines";
	assert_non_null(strstr(refused(&p, NULL, CKV_ERR_POLICY).message, "'line'"));
	p = defaults();
	p.layers = "pyramidal";
	assert_non_null(strstr(refused(&p, NULL, CKV_ERR_POLICY).message, "'pyramid'"));
	p = defaults();
	p.scorer = "none"; /* but the selector wants scores */
	refused(&p, NULL, CKV_ERR_POLICY);
	const size_t names[] = {offsetof(ckv_params, preset), offsetof(ckv_params, scorer), offsetof(ckv_params, selector),
	                        offsetof(ckv_params, chunker), offsetof(ckv_params, layers)};
	const char *none = NULL;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		p = defaults();
		memcpy((char *)&p + names[i], &none, sizeof none);
		refused(&p, NULL, CKV_ERR_ARG);
	}
}

static void the_context_is_null_without_parameters(void **state) {
	(void)state;
	refused(NULL, NULL, CKV_ERR_ARG);
}

static void allocators_are_checked(void **state) {
	(void)state;
	ckv_params p = defaults();
	ckv_allocator half = {NULL, NULL, NULL};
	ckv_ctx_options options;
	ckv_ctx_options_default(&options);
	options.allocator = &half;
	refused(&p, &options, CKV_ERR_ARG);
	counting c;
	counting_init(&c);
	half = c.allocator;
	half.free = NULL;
	refused(&p, &options, CKV_ERR_ARG);
	c.refuse_in = 1;
	options.allocator = &c.allocator;
	refused(&p, &options, CKV_ERR_NOMEM);
	assert_int_equal(c.live, 0);
	assert_int_equal(ckv_ctx_create(NULL, &p, NULL, NULL), CKV_ERR_ARG);
}

static void the_error_is_empty_after_success(void **state) {
	(void)state;
	ckv_params p = defaults();
	ckv_error error = {CKV_ERR_HOST, "something older"};
	ckv_ctx *ctx;
	assert_int_equal(ckv_ctx_create(&ctx, &p, NULL, &error), CKV_OK);
	assert_string_equal(ckv_ctx_message(ctx), "");
	ckv_ctx_free(ctx);
	assert_int_equal(error.status, CKV_OK);
	assert_string_equal(error.message, "");
}

static void parameters_are_kept_as_given(void **state) {
	(void)state;
	ckv_ctx *ctx = make_ctx("chunkkv:window=7,kernel=3,chunk=5,sinks=2,mode=reference");
	const ckv_params *p = ckv_ctx_params(ctx);
	assert_string_equal(p->preset, "chunkkv");
	assert_string_equal(p->scorer, "snapkv");
	assert_string_equal(p->selector, "chunk");
	assert_int_equal(p->window, 7);
	assert_int_equal(p->kernel, 3);
	assert_int_equal(p->chunk, 5);
	assert_int_equal(p->sinks, 2);
	assert_int_equal(p->reference, 1);
	assert_int_equal(p->size, sizeof *p);
	ckv_ctx_free(ctx);
	ctx = make_ctx("egchunkkv:chunker=sentence,max_chunk=40,entropy_keep=3,layers=pyramid,beta=12.5,reuse=4");
	p = ckv_ctx_params(ctx);
	assert_string_equal(p->chunker, "sentence");
	assert_string_equal(p->layers, "pyramid");
	assert_int_equal(p->max_chunk, 40);
	assert_int_equal(p->entropy_keep, 3);
	assert_int_equal(p->reuse, 4);
	assert_true(p->beta == 12.5 && p->share == 0.35 && p->safeguard == 0.2);
	assert_int_equal(p->future, 512);
	assert_int_equal(p->lag, 128);
	assert_int_equal(p->seed, 0);
	ckv_ctx_free(ctx);
}

static char *own_copy(const char *text) {
	char *copy = test_memory(strlen(text) + 1, 1);
	memcpy(copy, text, strlen(text) + 1);
	return copy;
}

/* Any string with a registered name is accepted, also one that does not outlive the call. */
static void names_need_not_outlive_the_call(void **state) {
	(void)state;
	ckv_params p = defaults();
	char *scorer = own_copy("snapkv"), *selector = own_copy("chunk"), *preset = own_copy("snapkv");
	char *chunker = own_copy("line"), *layers = own_copy("squeeze");
	ckv_ctx *ctx;
	p.scorer = scorer;
	p.selector = selector;
	p.preset = preset;
	p.chunker = chunker;
	p.layers = layers;
	assert_int_equal(ckv_ctx_create(&ctx, &p, NULL, NULL), CKV_OK);
	char *names[] = {scorer, selector, preset, chunker, layers};
	for (size_t i = 0; i < 5; i++) {
		memset(names[i], 'X', strlen(names[i]));
	}
	assert_string_equal(ckv_ctx_params(ctx)->scorer, "snapkv");
	assert_string_equal(ckv_ctx_params(ctx)->selector, "chunk");
	assert_string_equal(ckv_ctx_params(ctx)->preset, "snapkv");
	assert_string_equal(ckv_ctx_params(ctx)->chunker, "line");
	assert_string_equal(ckv_ctx_params(ctx)->layers, "squeeze");
	ckv_ctx_free(ctx);
	for (size_t i = 0; i < 5; i++) {
		free(names[i]);
	}
}

/* A caller built against a newer, longer struct is understood as far as this version goes; there is no older one than this.
 */
static void structs_of_other_versions_are_taken(void **state) {
	(void)state;
	struct {
		ckv_params params;
		char more[32];
	} newer;
	ckv_ctx *ctx;
	newer.params = defaults();
	newer.params.size = sizeof newer;
	paint(newer.more, sizeof newer.more);
	assert_int_equal(ckv_ctx_create(&ctx, &newer.params, NULL, NULL), CKV_OK);
	assert_int_equal(ckv_ctx_params(ctx)->size, sizeof(ckv_params));
	ckv_ctx_free(ctx);
	ckv_params shorter = defaults();
	shorter.size = offsetof(ckv_params, share);
	assert_int_equal(ckv_ctx_create(&ctx, &shorter, NULL, NULL), CKV_ERR_ARG);
	shorter.size = 0;
	assert_int_equal(ckv_ctx_create(&ctx, &shorter, NULL, NULL), CKV_ERR_ARG);
	assert_null(ctx);
}

static void short_options_are_refused(void **state) {
	(void)state;
	ckv_ctx *ctx;
	ckv_params params = defaults();
	ckv_ctx_options options = {.size = offsetof(ckv_ctx_options, n_threads), .cpu_disable = ~0u};
	assert_int_equal(ckv_ctx_create(&ctx, &params, &options, NULL), CKV_ERR_ARG);
	assert_null(ctx);
}

static void disabled_instruction_sets_are_not_used(void **state) {
	(void)state;
	ckv_ctx_options options;
	ckv_ctx_options_default(&options);
	assert_int_equal(options.size, sizeof options);
	assert_null(options.allocator);
	assert_int_equal(options.cpu_disable, 0);
	assert_int_equal(options.n_threads, 0);
	options.cpu_disable = ~0u;
	ckv_ctx *ctx = make_ctx_with("chunkkv", &options);
	assert_string_equal(ckv_ctx_isa(ctx), "c");
	ckv_ctx_free(ctx);
	ctx = make_ctx("chunkkv");
	assert_string_equal(ckv_ctx_isa(ctx), ckv_kernels_get(ckv_cpu_features())->isa);
	ckv_ctx_free(ctx);
	ckv_ctx_options_default(NULL);
}

static void accessors_take_null(void **state) {
	(void)state;
	ckv_ctx_free(NULL);
	assert_string_equal(ckv_ctx_message(NULL), "");
	assert_string_equal(ckv_ctx_isa(NULL), "");
	assert_null(ckv_ctx_params(NULL));
	ckv_keep_init(NULL, NULL, 0, NULL);
	ckv_layer_init(NULL);
}

static void initialisers_fill_the_whole_struct(void **state) {
	(void)state;
	ckv_layer layer;
	ckv_keep keep;
	int32_t positions[3], offsets[2];
	paint(&layer, sizeof layer);
	ckv_layer_init(&layer);
	assert_int_equal(layer.size, sizeof layer);
	assert_true(layer.k.data == NULL && layer.v.data == NULL && layer.q.data == NULL && layer.q.stride_head == 0);
	assert_true(layer.scale == 0.0f && layer.logit_cap == 0.0f && layer.index == 0 && layer.n_layers == 0);
	assert_true(layer.moments == NULL && layer.rope.n_dims == 0 && layer.rope.inv_freq == NULL && layer.mass == NULL);
	paint(&keep, sizeof keep);
	ckv_keep_init(&keep, positions, 3, offsets);
	assert_int_equal(keep.size, sizeof keep);
	assert_ptr_equal(keep.positions, positions);
	assert_ptr_equal(keep.offsets, offsets);
	assert_int_equal(keep.capacity, 3);
	assert_true(keep.n_lists == 0 && keep.n_positions == 0 && keep.n_keep == 0 && keep.attention_kept == -1.0f);
}

/* "" at first, the reason after a failure, "" again after a success. */
static void messages_belong_to_the_last_call(void **state) {
	(void)state;
	float scores[40] = {0};
	int32_t positions[40];
	ckv_keep keep;
	ckv_ctx *ctx = make_ctx("snapkv:window=2");
	assert_string_equal(ckv_ctx_message(ctx), "");
	ckv_keep_init(&keep, positions, 0, NULL);
	assert_int_equal(ckv_select_scores(ctx, scores, 2, 20, ckv_keep_tokens(10), &keep), CKV_ERR_CAPACITY);
	assert_non_null(strstr(ckv_ctx_message(ctx), "20"));
	keep.capacity = 20;
	assert_int_equal(ckv_select_scores(ctx, scores, 2, 20, ckv_keep_tokens(10), &keep), CKV_OK);
	assert_string_equal(ckv_ctx_message(ctx), "");
	ckv_ctx_free(ctx);
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(parameters_are_checked),
	    cmocka_unit_test(real_parameters_are_checked),
	    cmocka_unit_test(parameters_are_checked_together),
	    cmocka_unit_test(names_are_checked),
	    cmocka_unit_test(the_context_is_null_without_parameters),
	    cmocka_unit_test(allocators_are_checked),
	    cmocka_unit_test(the_error_is_empty_after_success),
	    cmocka_unit_test(parameters_are_kept_as_given),
	    cmocka_unit_test(names_need_not_outlive_the_call),
	    cmocka_unit_test(structs_of_other_versions_are_taken),
	    cmocka_unit_test(short_options_are_refused),
	    cmocka_unit_test(disabled_instruction_sets_are_not_used),
	    cmocka_unit_test(accessors_take_null),
	    cmocka_unit_test(initialisers_fill_the_whole_struct),
	    cmocka_unit_test(messages_belong_to_the_last_call),
	};
	return cmocka_run_group_tests_name("context", tests, NULL, NULL);
}
