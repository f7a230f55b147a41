/* How much a layer's attention changes the residual stream: the cosine of each token's before and after (SqueezeAttention,
 * arXiv 2404.04793, section 3.1). */
#include "adapters/llama/internal.h"

#include <math.h>
#include <string.h>

static double dot(const float *a, const float *b, size_t n) {
	double sum = 0.0;
	for (size_t i = 0; i < n; i++) {
		sum += (double)a[i] * (double)b[i];
	}
	return sum;
}

static float cosine(const float *a, const float *b, size_t n) {
	double lengths = sqrt(dot(a, a, n) * dot(b, b, n));
	return lengths > 0.0 ? (float)(dot(a, b, n) / lengths) : 1.0f;
}

static layer_view *pending_layer(observation *seen) {
	for (int32_t i = 0; i < seen->n_layers; i++) {
		if (seen->layers[i].index == seen->now.pending) {
			return &seen->layers[i];
		}
	}
	return NULL;
}

static flaw reserve(ckv_llama *ckv, layer_view *layer) {
	if (layer->similarity) {
		return FLAW_NONE;
	}
	size_t cells = (size_t)layer->k_root->ne[1];
	layer->mass_stride = cells;
	layer->similarity = ckv_llama_alloc(ckv, cells, sizeof *layer->similarity);
	for (size_t i = 0; i < cells && layer->similarity; i++) {
		layer->similarity[i] = NAN;
	}
	return layer->similarity ? FLAW_NONE : FLAW_MEMORY;
}

/* The stream's row before: read where it is still there, else (the sum may have been written over it) what the sum leaves
 * when the attention's part is taken away. */
static void get_before(const struct ggml_tensor *node, int stream, size_t row, const float *after, float *before) {
	const struct ggml_tensor *own = node->src[stream], *other = node->src[1 - stream];
	size_t n = (size_t)node->ne[0];
	bool written_over = own->data == node->data;
	const struct ggml_tensor *from = written_over ? other : own;
	ggml_backend_tensor_get(from, before, row * from->nb[1], n * sizeof *before);
	for (size_t i = 0; i < n && written_over; i++) {
		before[i] = after[i] - before[i];
	}
}

static flaw read_rows(ckv_llama *ckv, layer_view *layer, const struct ggml_tensor *node, int stream) {
	const ubatch_view *now = &ckv->seen.now;
	size_t n = (size_t)node->ne[0];
	float *both = ckv_llama_alloc(ckv, n, 2 * sizeof *both);
	if (!both) {
		return FLAW_MEMORY;
	}
	/* The last layer may go on with the rows alone whose output was asked for: they are counted as the newest. */
	bool all = node->ne[1] == now->n_tokens;
	int32_t count = all ? now->n_rows : (int32_t)node->ne[1], end = layer->n_tokens;
	if (!all && ckv->seen.mine && ckv_llama_our_outputs(&ckv->seen) != count) {
		ckv_llama_release(ckv, both);
		return FLAW_NONE; /* other sequences' outputs are among them */
	}
	for (int32_t i = 0; i < count; i++) {
		size_t row = all ? (size_t)now->rows[i] : (size_t)i;
		int32_t token = end - count + i; /* its attention node has counted this ubatch */
		ggml_backend_tensor_get(node, both, row * node->nb[1], n * sizeof *both);
		get_before(node, stream, row, both, both + n);
		if (token >= 0 && (size_t)token < layer->mass_stride) {
			layer->similarity[token] = cosine(both, both + n, n);
		}
	}
	ckv_llama_release(ckv, both);
	return FLAW_NONE;
}

flaw ckv_llama_read_similarity(ckv_llama *ckv, const struct ggml_tensor *node) {
	observation *seen = &ckv->seen;
	int stream = ckv_llama_residual(node, seen->now.attention, seen->n_embd);
	layer_view *layer = pending_layer(seen);
	seen->now.pending = -1;
	if (!layer || stream < 0 || seen->now.n_rows == 0) {
		return FLAW_NONE;
	}
	flaw found = reserve(ckv, layer);
	return found ? found : read_rows(ckv, layer, node, stream);
}

float ckv_llama_mean_similarity(const layer_view *layer) {
	double sum = 0.0;
	int32_t n = 0;
	for (int32_t t = 0; t < layer->n_tokens && layer->similarity; t++) {
		if (!isnan(layer->similarity[t])) {
			sum += (double)layer->similarity[t];
			n++;
		}
	}
	return n ? (float)(sum / n) : NAN;
}
