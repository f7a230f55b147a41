/* Kept rows into a context: the same, another, or a smaller one in its place. */
#include "adapters/llama/internal.h"

#include <string.h>

static ckv_status enter(ckv_llama *ckv, struct llama_context *ctx, llama_seq_id seq, bool move) {
	if (!ckv->held.cache.rows) {
		return ckv_llama_fail(ckv, CKV_ERR_STATE, "the held rows went into use: extract anew");
	}
	if (llama_n_seq_max(ctx) != 1 || !ckv->attached) {
		return ckv_llama_fail(ckv, CKV_ERR_UNSUPPORTED,
		                      "a hosted cache serves a context of one sequence (this one has %u) that was made with "
		                      "ckv_llama_attach",
		                      llama_n_seq_max(ctx));
	}
	return ckv_llama_host_enter(ckv, ctx, seq, move);
}

/* What could not be put to use after all is held again. */
static void take_out(ckv_llama *ckv, bool move) {
	if (move && ckv->host.cache) {
		ckv->held.cache.rows = ckv->host.cache;
		ckv->host.cache = NULL;
	}
	ckv_llama_host_leave(ckv);
}

/* move: hosted rows are then not held any more. */
static ckv_status restore(ckv_llama *ckv, struct llama_context *ctx, llama_seq_id seq, bool move) {
	if (!ckv || !ctx || seq < 0 || (uint32_t)seq >= llama_n_seq_max(ctx)) {
		return CKV_ERR_ARG;
	}
	ckv_llama_begin(ckv);
	if (!ckv->held.data) {
		return ckv_llama_fail(ckv, CKV_ERR_STATE, "no rows are held: call ckv_llama_extract first");
	}
	if (llama_get_model(ctx) != ckv->held.model) {
		return ckv_llama_fail(ckv, CKV_ERR_ARG, "the held rows belong to another model");
	}
	if (ckv->held.cache.n_layers) {
		ckv_status status = enter(ckv, ctx, seq, move);
		if (status) {
			return status;
		}
	} else if (ckv->host.cache && ckv->host.memory == llama_get_memory(ctx)) {
		ckv_llama_host_leave(ckv);
	}
	if (ckv->seen.ctx == ctx && ckv->seen.seq == seq) {
		ckv_llama_observe_clear(ckv);
	}
	if (llama_state_seq_set_data(ctx, ckv->held.data, ckv->held.size, seq) != ckv->held.size) {
		/* A window model may have taken one half of it. */
		llama_memory_seq_rm(llama_get_memory(ctx), seq, -1, -1);
		take_out(ckv, move);
		return ckv_llama_fail(
		    ckv, CKV_ERR_HOST,
		    "llama.cpp did not take the kept rows into a context of %u cells: too few are free, or its cache "
		    "types, n_seq_max or kv_unified differ; the rows are still held",
		    llama_n_ctx(ctx));
	}
	if (ckv->held.redo >= 0) { /* sliding-window layers, and what was copied whole, still have it */
		llama_memory_seq_rm(llama_get_memory(ctx), seq, ckv->held.redo, -1);
	}
	if (ckv->held.holes) {
		ckv_llama_hide_arm(ckv, ckv->held.by_head);
	}
	return CKV_OK;
}

ckv_status ckv_llama_restore(ckv_llama *ckv, struct llama_context *ctx, llama_seq_id seq) {
	return restore(ckv, ctx, seq, false);
}

ckv_status ckv_llama_put_back(ckv_llama *ckv, struct llama_context *ctx, llama_seq_id seq) {
	ckv_status status = restore(ckv, ctx, seq, true);
	if (status == CKV_OK) {
		ckv_llama_drop(ckv);
	}
	return status;
}

static ckv_status check_alone(ckv_llama *ckv, struct llama_context *ctx, llama_seq_id seq) {
	for (llama_seq_id s = 0; (uint32_t)s < llama_n_seq_max(ctx); s++) {
		if (s != seq && llama_memory_seq_pos_max(llama_get_memory(ctx), s) >= 0) {
			return ckv_llama_fail(ckv, CKV_ERR_STATE, "sequence %d also has tokens in this context and would be lost", s);
		}
	}
	return CKV_OK;
}

/* Cells to ask llama.cpp for: a window cache takes what its window holds and the largest batch beside it; separate streams
 * share the number among them. */
static uint32_t cells_to_ask(const ckv_llama *ckv, int32_t n_cells) {
	uint32_t window = (uint32_t)llama_model_n_swa(ckv->held.model);
	uint32_t least = window ? window + ckv->params.n_ubatch : 0, cells = (uint32_t)n_cells;
	uint32_t streams = ckv->params.kv_unified || ckv->params.n_seq_max == 0 ? 1 : ckv->params.n_seq_max;
	cells = cells > least ? cells : least;
	return cells <= UINT32_MAX / streams ? cells * streams : UINT32_MAX;
}

/* Everything that could make it fail for good is found before the large context goes. */
static ckv_status take_over(ckv_llama *ckv, struct llama_context **ctx, llama_seq_id seq, int32_t n_cells) {
	if ((uint32_t)seq >= llama_n_seq_max(*ctx) || !ckv->attached) {
		return ckv_llama_fail(ckv, CKV_ERR_STATE,
		                      "sequence %d is none of this context's, or ckv_llama_attach was not called", seq);
	}
	if (ckv->bound.active && ckv->bound.ctx == *ctx) {
		return ckv_llama_fail(ckv, CKV_ERR_STATE, "a sequence of any length is decoded in this context, which it needs");
	}
	ckv_status status = check_alone(ckv, *ctx, seq);
	bool hosted = ckv->host.cache && ckv->host.memory == llama_get_memory(*ctx);
	status = status ? status : ckv_llama_state_copy(ckv, *ctx, seq, -1);
	if (status == CKV_OK && (uint32_t)n_cells < ckv_llama_held_cells(ckv)) {
		status = ckv_llama_fail(ckv, CKV_ERR_ARG, "%d cells are too few: the sequence has %u", n_cells,
		                        ckv_llama_held_cells(ckv));
		ckv_llama_drop(ckv);
	}
	if (status == CKV_OK && hosted) {
		status = ckv_llama_host_hold(ckv);
		if (status) {
			ckv_llama_drop(ckv); /* a state without its rows */
		}
	}
	if (status == CKV_OK) {
		if (ckv->seen.ctx == *ctx) {
			ckv_llama_observe_clear(ckv);
		}
		llama_free(*ctx);
		*ctx = NULL;
	}
	return status;
}

ckv_status ckv_llama_shrink(ckv_llama *ckv, struct llama_context **ctx, llama_seq_id seq, int32_t n_cells) {
	if (!ckv || !ctx || seq < 0 || n_cells < 1 || n_cells > 1 << 30) {
		return CKV_ERR_ARG;
	}
	ckv_llama_begin(ckv);
	if (*ctx) {
		ckv_status status = take_over(ckv, ctx, seq, n_cells);
		if (status) {
			return status;
		}
	}
	if (!ckv->held.data) {
		return ckv_llama_fail(ckv, CKV_ERR_STATE, "there is neither a context nor held rows to make one from");
	}
	struct llama_context_params params = ckv->params;
	params.n_ctx = cells_to_ask(ckv, n_cells);
	/* llama.cpp takes a pointer to a model that it does not change. */
	union {
		const struct llama_model *constant;
		struct llama_model *plain;
	} model = {ckv->held.model};
	struct llama_context *small = llama_init_from_model(model.plain, params);
	if (!small) {
		return ckv_llama_fail(ckv, CKV_ERR_HOST, "llama.cpp could not make a context of %u cells; the rows are still held",
		                      params.n_ctx);
	}
	ckv_status status = ckv_llama_put_back(ckv, small, seq);
	if (status) {
		llama_free(small);
		return status;
	}
	*ctx = small;
	return CKV_OK;
}
