/* Merging for all KV heads of a layer, shared among the context's threads. */
#include "measure/internal.h"
#include "quant/quant.h"

#include <string.h>

typedef struct job {
	const ckv_kernels *kernels;
	const ckv_layer *layer;
	const ckv_keep *keep;
	const ckv_merge *merge; /* NULL: nothing is merged */
	char *space;            /* each worker's */
	size_t space_size;
	float *values;
} job;

static ckv_status one_head(void *user, int32_t worker, int32_t head, ckv_error *error) {
	const job *j = user;
	ckv_list list = ckv_keep_list(j->keep, head);
	size_t first = j->keep->n_lists == 1 ? (size_t)head * (size_t)list.n : (size_t)j->keep->offsets[head];
	ckv_error found = {.message = ""};
	ckv_status status = ckv_merge_values_in(j->kernels, &j->layer->k, &j->layer->v, head, list.positions, list.n, j->merge,
	                                        j->space + (size_t)worker * j->space_size,
	                                        j->values + first * (size_t)j->layer->v.head_dim, &found);
	return status ? ckv_fail(error, status, "layer %d, %.220s", j->layer->index, found.message) : CKV_OK;
}

static ckv_status check(const ckv_layer *layer, const ckv_keep *keep, const ckv_merge *merge, ckv_error *error) {
	ckv_status status = ckv_layer_check(layer, error);
	status = status ? status : ckv_view_check(&layer->v, "values", layer->index, error);
	if (status) {
		return status;
	}
	if (layer->v.n_heads != layer->k.n_heads || layer->v.n_tokens != layer->k.n_tokens) {
		return ckv_fail(error, CKV_ERR_ARG, "layer %d: values and keys differ in shape", layer->index);
	}
	if (!ckv_keep_fits(keep, layer->k.n_tokens) || (keep->n_lists != 1 && keep->n_lists != layer->k.n_heads)) {
		return ckv_fail(error, CKV_ERR_ARG,
		                "layer %d: kept positions must ascend within its %d tokens, in one list or one for each of %d heads",
		                layer->index, layer->k.n_tokens, layer->k.n_heads);
	}
	if (!(merge->fraction >= 0.0 && merge->fraction <= 1.0 && merge->threshold >= -1.0 && merge->threshold <= 1.0)) {
		return ckv_fail(error, CKV_ERR_ARG, "merging a fraction of %g from a cosine of %g on: they are from 0 and -1 to 1",
		                merge->fraction, merge->threshold);
	}
	return CKV_OK;
}

static int32_t longest(const ckv_keep *keep) {
	int32_t most = 0;
	for (int32_t i = 0; i < keep->n_lists; i++) {
		int32_t n = ckv_keep_list(keep, i).n;
		most = n > most ? n : most;
	}
	return most;
}

ckv_status ckv_merge_kept(ckv_ctx *ctx, const ckv_layer *layer, const ckv_keep *keep, const ckv_merge *merge,
                          float *values) {
	if (!ctx) {
		return CKV_ERR_ARG;
	}
	ckv_begin(ctx);
	if (!layer || !keep || !merge || !values || layer->size < sizeof *layer || merge->size < sizeof *merge) {
		return ckv_fail(&ctx->error, CKV_ERR_ARG,
		                "ckv_merge_kept needs a layer, a selection, how to merge, and a place for the values");
	}
	ckv_status status = check(layer, keep, merge, &ctx->error);
	if (status) {
		return status;
	}
	job j = {.kernels = ctx->kernels, .layer = layer, .keep = keep, .merge = merge, .values = values};
	if (merge->preset && strcmp(merge->preset, "none") == 0) {
		j.merge = NULL;
	}
	j.space_size = ckv_merge_space(&layer->k, &layer->v, longest(keep));
	j.space = ckv_scratch(ctx, SLOT_MERGE, (size_t)ckv_workers(ctx, layer->k.n_heads), j.space_size);
	return j.space ? ckv_parallel(ctx, layer->k.n_heads, one_head, &j) : CKV_ERR_NOMEM;
}
