/* The context: parameters, chosen vtables, scratch memory. */
#include "core/internal.h"

#include <stdlib.h>
#include <string.h>

static void *default_alloc(void *user, size_t size) {
	(void)user;
	return malloc(size);
}

static void default_free(void *user, void *memory) {
	(void)user;
	free(memory);
}

ckv_allocator ckv_allocator_default(void) {
	ckv_allocator allocator = {default_alloc, default_free, NULL};
	return allocator;
}

void ckv_ctx_options_default(ckv_ctx_options *options) {
	if (options) {
		memset(options, 0, sizeof *options);
		options->size = sizeof *options;
	}
}

ckv_status ckv_ctx_create(ckv_ctx **ctx, const ckv_params *params, const ckv_ctx_options *options, ckv_error *error) {
	if (ctx) {
		*ctx = NULL;
	}
	if (!ctx || !params) {
		return ckv_fail(error, CKV_ERR_ARG, "ckv_ctx_create needs a place for the context, and parameters");
	}
	if (params->size < CKV_PARAMS_FIRST_SIZE || (options && options->size < sizeof *options)) {
		return ckv_fail(error, CKV_ERR_ARG, "a struct's size field is too small: start from its _default() call");
	}
	ckv_params own; /* a newer, longer one is understood as far as this version goes */
	ckv_params_take(params, &own);
	ckv_status status = ckv_params_check(&own, error);
	if (status) {
		return status;
	}
	ckv_ctx_options opt;
	ckv_ctx_options_default(&opt);
	if (options) {
		opt = *options;
	}
	ckv_allocator allocator = opt.allocator ? *opt.allocator : ckv_allocator_default();
	if (opt.n_threads < 0) {
		return ckv_fail(error, CKV_ERR_ARG, "%d threads: give 0 or more", opt.n_threads);
	}
	if (!allocator.alloc || !allocator.free) {
		return ckv_fail(error, CKV_ERR_ARG, "the allocator needs both alloc and free");
	}
	ckv_ctx *made = allocator.alloc(allocator.user, sizeof *made);
	if (!made) {
		return ckv_fail(error, CKV_ERR_NOMEM, "no memory for a context");
	}
	memset(made, 0, sizeof *made);
	made->allocator = allocator;
	made->params = own;
	made->scorer = ckv_scorer_find(own.scorer);
	made->selector = ckv_selector_find(own.selector);
	made->kernels = ckv_kernels_get(ckv_cpu_features() & ~opt.cpu_disable);
	made->params.scorer = made->scorer ? made->scorer->info.name : "none";
	made->params.selector = made->selector->info.name;
	const ckv_preset *preset = ckv_preset_find(own.preset);
	made->params.chunker = ckv_chunker_find(own.chunker)->name;
	made->params.layers = ckv_layer_rule_find(own.layers)->name;
	ckv_merge_own(&own.merge, &made->params.merge);
	ckv_codec_own(&own.codec, &made->params.codec);
	made->n_threads = opt.n_threads;
	made->params.preset = preset ? preset->info.name : "custom";
	*ctx = made;
	ckv_fail(error, CKV_OK, "%s", "");
	return CKV_OK;
}

void ckv_ctx_free(ckv_ctx *ctx) {
	if (!ctx) {
		return;
	}
	for (int i = 0; i < SLOT_COUNT; i++) {
		if (ctx->slot[i]) {
			ctx->allocator.free(ctx->allocator.user, ctx->slot[i]);
		}
	}
	ckv_allocator allocator = ctx->allocator;
	allocator.free(allocator.user, ctx);
}

const char *ckv_ctx_message(const ckv_ctx *ctx) { return ctx ? ctx->error.message : ""; }

const ckv_params *ckv_ctx_params(const ckv_ctx *ctx) { return ctx ? &ctx->params : NULL; }

const char *ckv_ctx_isa(const ckv_ctx *ctx) { return ctx ? ctx->kernels->isa : ""; }

void *ckv_scratch(ckv_ctx *ctx, ckv_slot slot, size_t count, size_t size) {
	if (count > (size_t)PTRDIFF_MAX / size) {
		ckv_fail(&ctx->error, CKV_ERR_NOMEM, "%zu elements of %zu bytes do not fit the address space", count, size);
		return NULL;
	}
	size_t bytes = count * size;
	if (bytes > ctx->slot_size[slot] || !ctx->slot[slot]) {
		bytes = bytes ? bytes : 1;
		void *bigger = ctx->allocator.alloc(ctx->allocator.user, bytes);
		if (!bigger) {
			ckv_fail(&ctx->error, CKV_ERR_NOMEM, "no memory for %zu bytes of working space", bytes);
			return NULL;
		}
		if (ctx->slot[slot]) {
			ctx->allocator.free(ctx->allocator.user, ctx->slot[slot]);
		}
		ctx->slot[slot] = bigger;
		ctx->slot_size[slot] = bytes;
	}
	return ctx->slot[slot];
}
