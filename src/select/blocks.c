/* A long prompt in blocks (kvpress' BlockPress): what is kept of the tokens so far and the next block are the rows in hand;
 * the policy scores them and keeps n_keep, as of a layer that has no others.
 *
 * No row is copied: the rows in hand are a list of positions, and a view whose decoder looks the row up. Chunks are those of
 * the layer, as far as their tokens are in hand. Heads that keep different numbers are scored one by one; for the selector
 * the shorter lists are padded, behind the sinks, with rows that are worth less than any. */
#include "core/internal.h"

#include <math.h>
#include <string.h>

typedef struct blocks {
	ckv_ctx *ctx;
	const ckv_layer *layer;
	const ckv_selector *selector;
	ckv_selection whole; /* what is decided for the layer */
	int32_t n_lists;
	int32_t *offsets, *kept; /* [n_lists + 1], and the positions that are kept of the tokens so far */
	int32_t *hand;           /* [G][width]: padding, kept positions, the block */
	int32_t width;
} blocks;

/* --------------------------------------------------------------------------------------------- rows in hand */

static const int32_t *list_of(const blocks *b, int32_t head, int32_t *n) {
	int32_t list = b->n_lists == 1 ? 0 : head;
	*n = b->offsets[list + 1] - b->offsets[list];
	return b->kept + b->offsets[list];
}

static int32_t longest_list(const blocks *b) {
	int32_t n, longest = 0;
	for (int32_t list = 0; list < b->n_lists; list++) {
		list_of(b, list, &n);
		longest = n > longest ? n : longest;
	}
	return longest;
}

/* Room for the rows that `bound` allows. The ones before are lost. */
static ckv_status reserve_kept(blocks *b, size_t bound) {
	size_t heads = (size_t)b->whole.n_heads;
	if (bound > INT32_MAX) {
		return ckv_fail(&b->ctx->error, CKV_ERR_NOMEM, "more than 2^31 positions would be kept in one layer");
	}
	b->offsets = ckv_scratch(b->ctx, SLOT_KEPT, heads + 1 + bound, sizeof *b->offsets);
	b->kept = b->offsets ? b->offsets + heads + 1 : NULL;
	return b->kept ? CKV_OK : CKV_ERR_NOMEM;
}

/* Before the first block: the first n_keep tokens. */
static ckv_status begin(blocks *b) {
	int32_t n = b->whole.n_keep;
	b->n_lists = 1;
	ckv_status status = reserve_kept(b, (size_t)n);
	for (int32_t t = 0; t < n && status == CKV_OK; t++) {
		b->kept[t] = t;
	}
	if (status == CKV_OK) {
		b->offsets[0] = 0;
		b->offsets[1] = n;
	}
	return status;
}

/* Adds the tokens first .. end-1 to what is kept. */
static ckv_status take(blocks *b, int32_t first, int32_t end) {
	int32_t longest = longest_list(b), n;
	b->width = longest + (end - first);
	b->hand = ckv_scratch(b->ctx, SLOT_HAND, (size_t)b->whole.n_heads, (size_t)b->width * sizeof *b->hand);
	if (!b->hand) {
		return CKV_ERR_NOMEM;
	}
	int32_t *out = b->hand;
	for (int32_t h = 0; h < b->whole.n_heads; h++) {
		const int32_t *kept = list_of(b, h, &n);
		for (int32_t i = n; i < longest; i++) {
			*out++ = -1;
		}
		memcpy(out, kept, (size_t)n * sizeof *out);
		out += n;
		for (int32_t t = first; t < end; t++) {
			*out++ = t;
		}
	}
	return CKV_OK;
}

/* The first rows of the chunks in hand, of lists that are the same for all heads. */
static ckv_status cut(const blocks *b, ckv_hand *hand) {
	int32_t *starts = ckv_scratch(b->ctx, SLOT_CUTS, (size_t)b->width, sizeof *starts), n = 0, before = -1;
	if (!starts) {
		return CKV_ERR_NOMEM;
	}
	for (int32_t i = 0; i < b->width; i++) {
		int32_t chunk = ckv_chunk_of(b->ctx, b->hand[i]);
		if (chunk != before) {
			starts[n++] = i;
		}
		before = chunk;
	}
	hand->starts = starts;
	hand->n_chunks = n;
	return CKV_OK;
}

/* -------------------------------------------------------------------------------------------------- scoring */

/* Where the decoder finds a row. */
typedef struct lookup {
	const ckv_ctx *ctx;
	const ckv_view *view;
	const ckv_hand *hand;
} lookup;

static void decode(const void *row, float *out, size_t n, void *user) {
	const lookup *l = user;
	const int32_t *position = row;
	size_t head = (size_t)(position - l->hand->positions) / l->hand->stride;
	(void)n;
	ckv_view_decode(l->ctx->kernels, l->view, l->hand->first_head + (int32_t)head, *position, 1, out);
}

static ckv_view view_of(lookup *l, int32_t n_heads) {
	return (ckv_view){.data = l->hand->positions,
	                  .dtype = CKV_DECODED,
	                  .n_heads = n_heads,
	                  .n_tokens = (int32_t)l->hand->stride,
	                  .head_dim = l->view->head_dim,
	                  .stride_head = l->hand->stride * sizeof(int32_t),
	                  .stride_token = sizeof(int32_t),
	                  .row_bytes = sizeof(int32_t),
	                  .decode = decode,
	                  .decode_user = l};
}

/* n_heads heads that have equally many rows in hand, from hand->first_head on. */
static ckv_status score_heads(const blocks *b, ckv_hand *hand, int32_t n_heads, float *scores) {
	const ckv_ctx *ctx = b->ctx;
	int32_t n = (int32_t)hand->stride, least = ckv_scorer_min_tokens(ctx->scorer, &ctx->params);
	lookup k = {ctx, &b->layer->k, hand}, v = {ctx, &b->layer->v, hand};
	ckv_layer layer = *b->layer;
	if (n < least) {
		return ckv_fail(&b->ctx->error, CKV_ERR_UNSUPPORTED, "layer %d: %d tokens in hand; scorer '%s' needs at least %d",
		                layer.index, n, ctx->params.scorer, least);
	}
	layer.k = view_of(&k, n_heads);
	layer.v = layer.v.data ? view_of(&v, n_heads) : layer.v;
	b->ctx->hand = hand;
	ckv_status status = ckv_scorer_run(b->ctx, &layer, b->whole.n_keep, scores);
	b->ctx->hand = NULL;
	return status;
}

/* scores[G][width]. In hand the padding is before the sinks, for the selector behind them: its first rows are the sinks,
 * whose scores nobody asks for, then come the rows that are worth less than any. */
static ckv_status score_hand(const blocks *b, int32_t n_sinks, float *scores) {
	int32_t longest = longest_list(b), n, n_heads = b->whole.n_heads;
	bool alike = true;
	for (int32_t list = 0; list < b->n_lists; list++) {
		list_of(b, list, &n);
		alike = alike && n == longest;
	}
	int32_t step = alike ? n_heads : 1;
	ckv_status status = CKV_OK;
	for (int32_t h = 0; h < n_heads && status == CKV_OK; h += step) {
		list_of(b, h, &n);
		size_t row = (size_t)h * (size_t)b->width, pad = (size_t)(longest - n);
		ckv_hand hand = {.positions = b->hand + row + pad, .stride = (size_t)b->width - pad, .first_head = h};
		status = score_heads(b, &hand, step, scores + row + pad);
		for (size_t t = 0; t < pad + (size_t)n_sinks && pad && status == CKV_OK; t++) {
			scores[row + t] = -INFINITY;
		}
	}
	return status;
}

/* ------------------------------------------------------------------------------------------------ selecting */

/* From rows to positions. The sinks are their own, see score_hand. */
static void to_positions(blocks *b, const ckv_selection *s) {
	for (int32_t list = 0; list < b->n_lists; list++) {
		const int32_t *hand = b->hand + (size_t)list * (size_t)b->width;
		for (int32_t i = b->offsets[list]; i < b->offsets[list + 1]; i++) {
			int32_t row = b->kept[i];
			b->kept[i] = row < s->lo ? row : hand[row];
		}
	}
}

/* Of the rows in hand those that the selector keeps. */
static ckv_status reduce(blocks *b, ckv_selection *s) {
	ckv_status status = reserve_kept(b, b->selector->bound(&b->ctx->params, s));
	status = status ? status : b->selector->select(b->ctx, s, b->kept, b->offsets);
	if (status == CKV_OK) {
		b->n_lists = b->selector->lists(&b->ctx->params, s);
		to_positions(b, s);
	}
	return status;
}

/* Published counts may leave so little that a block is no more than the budget: all of it is kept. */
static ckv_status keep_hand(blocks *b) {
	ckv_status status = reserve_kept(b, (size_t)b->n_lists * (size_t)b->width);
	if (status) {
		return status;
	}
	b->offsets[0] = 0;
	for (int32_t list = 0, n = 0; list < b->n_lists; list++) {
		const int32_t *hand = b->hand + (size_t)list * (size_t)b->width;
		for (int32_t i = 0; i < b->width; i++) {
			b->kept[n] = hand[i];
			n += hand[i] >= 0;
		}
		b->offsets[list + 1] = n;
	}
	return CKV_OK;
}

static ckv_status next_block(blocks *b, int32_t first, int32_t end) {
	ckv_ctx *ctx = b->ctx;
	ckv_status status = take(b, first, end);
	if (status || b->width <= b->whole.n_keep) {
		return status ? status : keep_hand(b);
	}
	ckv_selection s = b->whole;
	ckv_hand hand = {.positions = b->hand, .stride = (size_t)b->width};
	s.n_tokens = b->width;
	s.keep_fraction = (double)s.n_keep / (double)s.n_tokens;
	ckv_selection_protect(&ctx->params, &s);
	float *scores = ckv_scratch(ctx, SLOT_SCORES, (size_t)s.n_heads, (size_t)s.n_tokens * sizeof *scores);
	status = scores ? score_hand(b, s.lo, scores) : CKV_ERR_NOMEM;
	if (status == CKV_OK && b->selector->lists(&ctx->params, &s) == 1) {
		status = cut(b, &hand);
	}
	if (status) {
		return status;
	}
	s.scores = scores;
	ctx->hand = &hand;
	s.n_chunks = ckv_chunk_count(ctx, s.n_tokens);
	status = reduce(b, &s);
	ctx->hand = NULL;
	return status;
}

/* ------------------------------------------------------------------------------------------------ the call */

/* What only the whole layer has is no policy for blocks. */
static ckv_status check_needs(ckv_ctx *ctx, const ckv_layer *layer) {
	static const struct {
		uint32_t flag;
		const char *what;
	} refused[] = {
	    {CKV_NEED_QUERIES, "queries of a window, which exist for the last tokens only, not for the blocks before"},
	    {CKV_NEED_MOMENTS, "moments of the queries, which are of all tokens, also of those behind a block"},
	    {CKV_NEED_MASS, "sums of attention, which are of all queries, also of those behind a block"},
	};
	ckv_needs needs;
	ckv_status status = ckv_params_needs(&ctx->params, &needs);
	for (size_t i = 0; i < sizeof refused / sizeof *refused && status == CKV_OK; i++) {
		if (needs.flags & refused[i].flag) {
			return ckv_fail(&ctx->error, CKV_ERR_UNSUPPORTED, "not in blocks: scorer '%s' needs %s", ctx->params.scorer,
			                refused[i].what);
		}
	}
	if (status || !(needs.flags & CKV_NEED_VALUES)) {
		return status;
	}
	status = ckv_view_check(&layer->v, "values", layer->index, &ctx->error);
	if (status == CKV_OK && (layer->v.n_heads != layer->k.n_heads || layer->v.n_tokens != layer->k.n_tokens)) {
		status = ckv_fail(&ctx->error, CKV_ERR_ARG, "layer %d: values and keys differ in shape", layer->index);
	}
	return status;
}

static ckv_status finish(const blocks *b, ckv_keep *keep) {
	size_t n = (size_t)b->offsets[b->n_lists];
	if (!keep->positions || keep->capacity < n) {
		keep->n_positions = n;
		return ckv_fail(&b->ctx->error, CKV_ERR_CAPACITY, "room for %zu positions is needed, there is room for %zu", n,
		                keep->capacity);
	}
	memcpy(keep->positions, b->kept, n * sizeof *keep->positions);
	if (keep->offsets) {
		memcpy(keep->offsets, b->offsets, ((size_t)b->n_lists + 1) * sizeof *keep->offsets);
	}
	ckv_keep_set(keep, b->n_lists, b->offsets, b->whole.reason);
	return CKV_OK;
}

static ckv_status run(blocks *b, int32_t block, ckv_keep *keep) {
	ckv_status status = begin(b);
	for (int32_t t = b->whole.n_keep, end; t < b->whole.n_whole && status == CKV_OK; t = end) {
		end = b->whole.n_whole - t > block ? t + block : b->whole.n_whole;
		status = next_block(b, t, end);
	}
	return status ? status : finish(b, keep);
}

ckv_status ckv_select_blocks(ckv_ctx *ctx, const ckv_layer *layer, ckv_budget budget, int32_t block, ckv_keep *keep) {
	if (!ctx) {
		return CKV_ERR_ARG;
	}
	ckv_begin(ctx);
	if (!layer || !keep || layer->size < sizeof *layer || keep->size < sizeof *keep || block < 1) {
		return ckv_fail(&ctx->error, CKV_ERR_ARG,
		                "ckv_select_blocks needs a layer and a result (start from ckv_layer_init and ckv_keep_init) and a "
		                "block of 1 token or more");
	}
	int32_t n = layer->k.n_tokens;
	blocks b = {.ctx = ctx, .layer = layer};
	b.whole = (ckv_selection){
	    .n_heads = layer->k.n_heads, .n_tokens = n, .n_whole = n, .layer = layer->index, .n_layers = layer->n_layers};
	ckv_status status = ckv_layer_check(layer, &ctx->error);
	status = status ? status : check_needs(ctx, layer);
	status = status ? status : ckv_chunks_check(ctx, n);
	status = status ? status : ckv_selection_plan(ctx, budget, ctx->scorer, &b.whole, &b.selector);
	if (status) {
		return status;
	}
	/* Also where all is kept. */
	if (n - b.whole.n_keep <= block) {
		return ckv_select(ctx, layer, budget, keep);
	}
	return run(&b, block, keep);
}
