/* One cache of those that are compared, from the prompt to the tokens decoded on it. */
#include "hosted.h"

#include <string.h>

const char *lane_policy(lane_kind kind) { return kind.policy ? kind.policy : "-"; }

const char *lane_cache(lane_kind kind) {
	return !kind.policy ? "native" : kind.cache == CKV_LLAMA_CACHE_HOSTED ? "hosted" : "own";
}

static bool lane_failed(const lane *l, const char *what) {
	const char *why = l->ckv ? ckv_llama_message(l->ckv) : "";
	return !fail("%s, %s cache: %s: %s", lane_policy(l->kind), lane_cache(l->kind), what, *why ? why : engine_last_error());
}

bool lane_possible(lane_kind kind) {
	ckv_params params;
	bool possible = !kind.policy || ckv_policy_parse(kind.policy, &params, NULL) || ckv_codec_available(&params.codec);
	if (!possible) {
		printf("# left out: %s, for which this build lacks a library\n", kind.policy);
	}
	return possible;
}

bool lane_open(const bench *b, lane_kind kind, lane *l) {
	ckv_params params;
	ckv_ctx_options core;
	ckv_error error;
	*l = (lane){.kind = kind};
	if (!kind.policy) {
		return true;
	}
	ckv_ctx_options_default(&core);
	core.n_threads = b->options.n_threads;
	if (ckv_policy_parse(kind.policy, &params, &error) || ckv_llama_create_params(&l->ckv, &params, &core, &error)) {
		return !fail("%s", error.message);
	}
	return ckv_llama_set_cache(l->ckv, kind.cache) == CKV_OK || lane_failed(l, "the cache");
}

static struct llama_context *make_native(const bench *b, int32_t n_cells, int32_t n_ubatch) {
	struct llama_context_params params = engine_context_params(&b->engine, n_cells, n_ubatch);
	params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED; /* the same kernel for all */
	return llama_init_from_model(b->engine.model, params);
}

bool lane_make_large(const bench *b, lane *l, int32_t n_cells, int32_t n_ubatch) {
	l->large = l->ckv ? engine_context(&b->engine, l->ckv, n_cells, n_ubatch) : make_native(b, n_cells, n_ubatch);
	return l->large || lane_failed(l, "no context");
}

static bool read_native(const bench *b, struct llama_context *ctx, int32_t n) {
	int32_t size = (int32_t)llama_n_ubatch(ctx);
	bool good = true;
	for (int32_t i = 0; i < n && good; i += size) {
		good = llama_decode(ctx, llama_batch_get_one(b->prompt + i, n - i < size ? n - i : size)) == 0;
	}
	llama_synchronize(ctx);
	return good;
}

bool lane_read(const bench *b, lane *l, int32_t n) {
	bool good = l->ckv ? ckv_llama_prefill(l->ckv, l->large, 0, b->prompt, n) == CKV_OK : read_native(b, l->large, n);
	return good || lane_failed(l, "the prompt could not be read");
}

bool lane_extract(lane *l, ckv_budget keep) {
	l->report.size = sizeof l->report;
	return ckv_llama_extract(l->ckv, l->large, 0, keep, &l->report) == CKV_OK || lane_failed(l, "not compressed");
}

void lane_drop_large(lane *l) {
	llama_free(l->large);
	l->large = NULL;
}

bool lane_make_small(const bench *b, lane *l, int32_t n_new) {
	l->small = engine_small_context(&b->engine, l->ckv, l->report.hosted ? 1 : l->report.n_cells + n_new);
	if (!l->small || ckv_llama_restore(l->ckv, l->small, 0)) {
		return lane_failed(l, "the kept rows were not put back");
	}
	ckv_llama_drop(l->ckv);
	return true;
}

void lane_drop_small(lane *l) {
	ckv_llama_leave(l->ckv);
	llama_free(l->small);
	l->small = NULL;
}

struct llama_context *lane_context(const lane *l) {
	return l->small ? l->small : l->large;
}

bool lane_decode(lane *l, llama_token token) {
	struct llama_context *ctx = lane_context(l);
	bool good = llama_decode(ctx, llama_batch_get_one(&token, 1)) == 0;
	llama_synchronize(ctx);
	if (l->ckv) {
		ckv_llama_settle(l->ckv);
	}
	return good || lane_failed(l, "llama_decode failed");
}

bool lane_check(const lane *l) {
	return !l->ckv || ckv_llama_check(l->ckv) == CKV_OK || lane_failed(l, "what was decoded is void");
}

void lane_close(lane *l) {
	lane_drop_small(l);
	lane_drop_large(l);
	ckv_llama_free(l->ckv);
	memset(l, 0, sizeof *l);
}

/* Of a context that nothing looks at it is told by another of its size, which reads a single token. */
uint64_t lane_alloc(const bench *b, const lane *l) {
	static const lane_kind looked_at = {"full", CKV_LLAMA_CACHE_OWN};
	lane meter = {.kind = looked_at};
	uint64_t bytes = 0;
	if (l->ckv) {
		return ckv_llama_cache_alloc(l->ckv);
	}
	if (lane_open(b, looked_at, &meter) && lane_make_large(b, &meter, (int32_t)llama_n_ctx(l->large), SMALL_UBATCH) &&
	    lane_read(b, &meter, 1)) {
		bytes = ckv_llama_cache_alloc(meter.ckv);
	}
	lane_close(&meter);
	return bytes;
}

uint64_t lane_hosted(const lane *l) {
	ckv_cache_info info = {.size = sizeof info};
	return l->ckv && ckv_llama_hosted_info(l->ckv, &info) == CKV_OK ? info.bytes_allocated : 0;
}
