/* Where a layer's hosted rows lie as llama.cpp's own would (f16, all heads equally long), its attention is left to
 * llama.cpp: for the time of the node it reads our rows in the place of its cells. Then nothing but the place of the rows
 * differs, and with nothing dropped the result is the same to the bit. */
#include "adapters/llama/internal.h"

#include <string.h>

static const uint16_t minus_infinity = 0xfc00; /* f16 */
enum { PADDING = 256 };                        /* llama.cpp rounds the cells it attends to up to this */

/* A tensor of rows at a place of ours. */
static void lend_rows(const ckv_view *view, int64_t n, struct ggml_tensor *like) {
	/* ggml's pointer is not const, the rows are only read. */
	union {
		const void *constant;
		void *plain;
	} data = {view->data};
	like->data = data.plain;
	like->ne[1] = n;
	like->nb[1] = view->stride_token;
	like->nb[2] = view->stride_head;
	like->nb[3] = view->stride_head * (size_t)view->n_heads;
}

/* Each query sees the rows up to its own; nothing sees the padding, of which then nothing is read either. */
static bool lend_mask(ckv_llama *ckv, int64_t n_rows, int64_t n, int64_t n_queries, struct ggml_tensor *mask) {
	hosting *h = &ckv->host;
	bool filled = h->mask && h->mask_rows == n_rows && h->mask_columns == n && h->mask_queries == n_queries;
	void *bytes = h->mask;
	bool room = ckv_llama_reserve(ckv, &bytes, &h->mask_size, (size_t)(n * n_queries), sizeof(uint16_t));
	h->mask = bytes;
	for (int64_t i = 0; i < n_queries && room && !filled; i++) {
		for (int64_t j = 0; j < n; j++) {
			h->mask[i * n + j] = j < n_rows - n_queries + i + 1 ? 0 : minus_infinity;
		}
	}
	h->mask_rows = room ? n_rows : 0;
	h->mask_columns = n;
	h->mask_queries = n_queries;
	mask->data = ckv->host.mask;
	mask->ne[0] = n;
	mask->ne[1] = n_queries;
	mask->ne[2] = mask->ne[3] = 1;
	mask->nb[1] = (size_t)n * sizeof(uint16_t);
	mask->nb[2] = mask->nb[3] = mask->nb[1] * (size_t)n_queries;
	return room;
}

bool ckv_llama_lend(ckv_llama *ckv, int32_t number, struct ggml_tensor *node) {
	takeover *taken = &ckv->taken;
	ckv_view k, v;
	if (ckv_cache_view(ckv->host.cache, number, &k, &v)) {
		return false;
	}
	/* Only with one query does llama.cpp leave out masked rows without a look at them. */
	int64_t n_queries = node->src[0]->ne[1], n_rows = k.n_tokens;
	int64_t n = n_queries == 1 ? (n_rows + PADDING - 1) / PADDING * PADDING : n_rows;
	for (int i = 0; i < 3; i++) {
		taken->own[i] = node->src[1 + i];
		taken->lent[i] = *node->src[1 + i]; /* of the same root, by which it is still known */
	}
	lend_rows(&k, n, &taken->lent[0]);
	lend_rows(&v, n, &taken->lent[1]);
	if (!lend_mask(ckv, n_rows, n, n_queries, &taken->lent[2])) {
		return false;
	}
	for (int i = 0; i < 3; i++) {
		node->src[1 + i] = &taken->lent[i];
	}
	taken->node = node;
	return true;
}

bool ckv_llama_take_home(ckv_llama *ckv, struct ggml_tensor *node) {
	takeover *taken = &ckv->taken;
	bool lent = node == taken->node && node->src[1] == &taken->lent[0];
	for (int i = 0; i < 3 && lent; i++) {
		node->src[1 + i] = taken->own[i];
	}
	return lent;
}
