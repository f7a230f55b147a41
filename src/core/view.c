/* Borrowed views: checks and decoding. */
#include "core/internal.h"

#include <string.h>

void ckv_layer_init(ckv_layer *layer) {
	if (layer) {
		memset(layer, 0, sizeof *layer);
		layer->size = sizeof *layer;
	}
}

size_t ckv_view_row_bytes(const ckv_view *view) {
	switch (view->dtype) {
	case CKV_F32: return (size_t)view->head_dim * 4;
	case CKV_F16:
	case CKV_BF16: return (size_t)view->head_dim * 2;
	case CKV_DECODED: break;
	}
	return view->row_bytes;
}

static const void *row_at(const ckv_view *view, int32_t head, int32_t token) {
	return (const char *)view->data + (size_t)head * view->stride_head + (size_t)token * view->stride_token;
}

static void decode_row(const ckv_kernels *kernels, const ckv_view *view, const void *row, float *out) {
	size_t d = (size_t)view->head_dim;
	switch (view->dtype) {
	case CKV_F32: memcpy(out, row, d * sizeof *out); break;
	case CKV_F16: kernels->f16_to_f32(row, out, d); break;
	case CKV_BF16: kernels->bf16_to_f32(row, out, d); break;
	case CKV_DECODED: view->decode(row, out, d, view->decode_user); break;
	}
}

void ckv_view_decode(const ckv_kernels *kernels, const ckv_view *view, int32_t head, int32_t t0, int32_t n, float *out) {
	for (int32_t i = 0; i < n; i++) {
		decode_row(kernels, view, row_at(view, head, t0 + i), out + (size_t)i * (size_t)view->head_dim);
	}
}

/* The last byte that the view reaches must be addressable: no product or sum may wrap. */
static bool view_fits(const ckv_view *view, size_t row_bytes) {
	size_t heads = (size_t)view->n_heads - 1, tokens = (size_t)view->n_tokens - 1, limit = (size_t)PTRDIFF_MAX;
	if (heads && view->stride_head > limit / heads) {
		return false;
	}
	if (tokens && view->stride_token > limit / tokens) {
		return false;
	}
	size_t reach = heads * view->stride_head;
	size_t rest = tokens * view->stride_token;
	return rest <= limit - reach && row_bytes <= limit - reach - rest;
}

ckv_status ckv_view_check(const ckv_view *view, const char *what, int32_t layer, ckv_error *error) {
	if (!view->data) {
		return ckv_fail(error, CKV_ERR_ARG, "layer %d: the policy needs %s, but the view is empty", layer, what);
	}
	if (view->n_heads < 1 || view->n_tokens < 1 || view->n_tokens > CKV_MAX_TOKENS || view->head_dim < 1 ||
	    view->head_dim > 65536) {
		return ckv_fail(error, CKV_ERR_ARG, "layer %d: %s have the shape [%d][%d][%d]: out of range", layer, what,
		                view->n_heads, view->n_tokens, view->head_dim);
	}
	if ((unsigned)view->dtype > CKV_DECODED || (view->dtype == CKV_DECODED && (!view->decode || !view->row_bytes))) {
		return ckv_fail(error, CKV_ERR_ARG, "layer %d: %s have an unknown type, or no decoder and row size", layer, what);
	}
	size_t align = view->dtype == CKV_F32 ? 4 : view->dtype == CKV_DECODED ? 1 : 2;
	if (((uintptr_t)view->data | view->stride_head | view->stride_token) % align != 0) {
		return ckv_fail(error, CKV_ERR_ARG, "layer %d: the address or the strides of %s are not multiples of %zu", layer,
		                what, align);
	}
	if (!view_fits(view, ckv_view_row_bytes(view))) {
		return ckv_fail(error, CKV_ERR_ARG, "layer %d: the strides of %s reach beyond what memory can hold", layer, what);
	}
	return CKV_OK;
}
