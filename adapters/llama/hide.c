/* Layers and heads of unequal length in a cache that has one length for all.
 *
 * Where a layer, or a head, keeps fewer tokens than the longest, its remaining rows are zeros, and attention must not see
 * them: a zero key has the logit 0, not no weight. Keys that a model computes are never all zero, so such rows tell
 * themselves apart, wherever llama.cpp puts them, whichever sequence they are copied to, and whoever wrote them.
 *
 * Where whole rows are zero the mask hides them: changed before the layer's attention, put back after it, as all layers
 * share it. Where some heads have a row and others have not, the layer's attention is computed here instead, and written
 * over llama.cpp's. */
#include "adapters/llama/internal.h"

#include <string.h>

static const uint16_t minus_infinity = 0xfc00; /* f16 */

bool ckv_llama_visible(uint16_t mask) { return (mask & 0x7fff) == 0; }

void ckv_llama_hide_arm(ckv_llama *ckv, bool by_head) {
	ckv->hide.armed = true;
	ckv->hide.failed = CKV_OK;
	ckv->hide.by_head = ckv->hide.by_head || by_head;
}

void ckv_llama_hide_free(ckv_llama *ckv) {
	hiding *h = &ckv->hide;
	void *owned[] = {h->saved, h->holes, h->bytes, h->result};
	for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) {
		ckv_llama_release(ckv, owned[i]);
	}
	memset(h, 0, sizeof *h);
}

/* The graph stops behind the write of a layer's rows, so that those of new tokens are there when zeros are looked for, and,
 * where memory is not the host's, the mask is. */
bool ckv_llama_hide_wants(const ckv_llama *ckv, const struct ggml_tensor *node) {
	if (!ckv->hide.armed) {
		return false;
	}
	if (ckv_llama_is_attention(node)) {
		return ckv_llama_cache_layer(ckv_llama_root(node->src[1]), "cache_k_l") >= 0;
	}
	const struct ggml_tensor *root = node->op == GGML_OP_SET_ROWS ? ckv_llama_root(node) : NULL;
	return root && (ckv_llama_cache_layer(root, "cache_k_l") >= 0 ||
	                (ckv_llama_cache_layer(root, "cache_v_l") >= 0 && !ggml_backend_buffer_is_host(root->buffer)));
}

static ckv_status no_memory(ckv_llama *ckv) {
	return ckv_llama_fail(ckv, CKV_ERR_NOMEM, "no memory to hide rows that a layer does not have: answers are void");
}

/* ------------------------------------------------------------------------------------------------------------- holes */

/* n bytes of zeros. Bits outside `mask` don't count: where llama.cpp has rotated zeros some may be negative ones. */
static bool all_zero(const uint8_t *bytes, size_t n, uint64_t mask) {
	for (size_t i = 0; i < n; i += sizeof mask) {
		uint64_t word = 0;
		memcpy(&word, bytes + i, n - i < sizeof word ? n - i : sizeof word);
		if (word & mask) {
			return false;
		}
	}
	return true;
}

static uint64_t sign_mask(enum ggml_type type) {
	bool halves = type == GGML_TYPE_F16 || type == GGML_TYPE_BF16;
	return halves ? 0x7fff7fff7fff7fffu : UINT64_MAX;
}

/* First cell of the stream that index `s` of the node's streams is. */
int64_t ckv_llama_first_cell(const struct ggml_tensor *node, int64_t s) {
	const struct ggml_tensor *k = node->src[1], *root = ckv_llama_root(k);
	int64_t offset = ((const char *)k->data - (const char *)root->data) / (ptrdiff_t)root->nb[2];
	return root->ne[2] > 1 ? (offset + s) * root->ne[1] : 0;
}

/* holes[stream][n_kv][heads]: 1 where the key is zero. */
static ckv_status find_holes(ckv_llama *ckv, const struct ggml_tensor *node) {
	hiding *h = &ckv->hide;
	const struct ggml_tensor *root = ckv_llama_root(node->src[1]), *mask = node->src[3];
	size_t n_kv = (size_t)mask->ne[0], streams = (size_t)mask->ne[3];
	h->n_heads = h->by_head ? (int32_t)node->src[1]->ne[2] : 1;
	size_t heads = (size_t)h->n_heads, slice = ckv_llama_row_bytes(root) / heads;
	uint64_t signs = sign_mask(root->type);
	void *holes = h->holes;
	bool room = ckv_llama_reserve(ckv, &holes, &h->holes_capacity, streams * n_kv, heads);
	h->holes = holes;
	for (size_t s = 0; s < streams; s++) {
		host_rows rows;
		if (!room || ckv_llama_cells(ckv, root, ckv_llama_first_cell(node, (int64_t)s), (int64_t)n_kv, &rows)) {
			return no_memory(ckv);
		}
		for (size_t j = 0; j < n_kv; j++) {
			for (size_t head = 0; head < heads; head++) {
				h->holes[(s * n_kv + j) * heads + head] = all_zero(rows.data + j * rows.stride + head * slice, slice, signs);
			}
		}
		ckv_llama_rows_free(ckv, &rows);
	}
	return CKV_OK;
}

/* ---------------------------------------------------------------------------------------------------------- the mask */

/* Two copies of the node's mask: as it is, and to be changed (returned). */
static uint16_t *copy_mask(ckv_llama *ckv, const struct ggml_tensor *mask) {
	void *saved = ckv->hide.saved;
	size_t n = ggml_nbytes(mask) / sizeof(uint16_t);
	bool room = ckv_llama_reserve(ckv, &saved, &ckv->hide.saved_capacity, n, 2 * sizeof(uint16_t));
	ckv->hide.saved = saved;
	if (!room) {
		return NULL;
	}
	ggml_backend_tensor_get(mask, ckv->hide.saved, 0, n * sizeof(uint16_t));
	memcpy(ckv->hide.saved + n, ckv->hide.saved, n * sizeof(uint16_t));
	return ckv->hide.saved + n;
}

/* Closes the mask where a query would see a cell that holds nothing for any head; by_head: it sees one that some heads have.
 */
static bool close_row(const hiding *h, const uint8_t *holes, size_t n_kv, uint16_t *of_query, bool *by_head) {
	size_t heads = (size_t)h->n_heads;
	bool closed = false;
	for (size_t j = 0; j < n_kv; j++) {
		const uint8_t *of_cell = holes + j * heads;
		if (!ckv_llama_visible(of_query[j]) || !memchr(of_cell, 1, heads)) {
			continue;
		}
		if (memchr(of_cell, 0, heads)) {
			*by_head = true;
		} else {
			of_query[j] = minus_infinity;
			closed = true;
		}
	}
	return closed;
}

static bool close_mask(hiding *h, const struct ggml_tensor *node, uint16_t *mask) {
	const struct ggml_tensor *m = node->src[3];
	size_t row = m->nb[1] / sizeof *mask, stream = m->nb[3] / sizeof *mask, n_kv = (size_t)m->ne[0];
	bool closed = false;
	for (size_t s = 0; s < (size_t)m->ne[3]; s++) {
		const uint8_t *holes = h->holes + s * n_kv * (size_t)h->n_heads;
		for (size_t i = 0; i < (size_t)node->src[0]->ne[1]; i++) {
			bool changed = close_row(h, holes, n_kv, mask + s * stream + i * row, &h->replace);
			closed = closed || changed;
		}
	}
	return closed;
}

void ckv_llama_hide_before(ckv_llama *ckv, const struct ggml_tensor *node) {
	hiding *h = &ckv->hide;
	struct ggml_tensor *mask = node->src[3];
	if (!ckv_llama_is_attention(node)) {
		return;
	}
	h->replace = h->changed = false;
	if (!mask || mask->type != GGML_TYPE_F16) {
		h->failed = ckv_llama_fail(ckv, CKV_ERR_UNSUPPORTED, "an attention node without a mask of f16: answers are void");
		return;
	}
	uint16_t *copy = copy_mask(ckv, mask);
	if (!copy || find_holes(ckv, node)) {
		h->failed = no_memory(ckv);
		return;
	}
	h->changed = close_mask(h, node, copy);
	if (h->changed) {
		ggml_backend_tensor_set(mask, copy, 0, ggml_nbytes(mask));
	}
}

void ckv_llama_hide_after(ckv_llama *ckv, struct ggml_tensor *node) {
	hiding *h = &ckv->hide;
	if (!ckv_llama_is_attention(node)) {
		return;
	}
	ckv_status status = h->replace ? ckv_llama_attend(ckv, node) : CKV_OK;
	h->failed = status ? status : h->failed;
	if (h->changed) {
		ggml_backend_tensor_set(node->src[3], h->saved, 0, ggml_nbytes(node->src[3]));
	}
	h->replace = h->changed = false;
}

ckv_status ckv_llama_check(const ckv_llama *ckv) {
	ckv_status status = ckv ? ckv_llama_host_check(ckv) : CKV_ERR_ARG;
	return status ? status : ckv->hide.failed;
}
