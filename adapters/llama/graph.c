/* Reading llama.cpp's graph: where a layer's tensors come from. Names and operations are looked at, never numbers. */
#include "adapters/llama/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const struct ggml_tensor *ckv_llama_root(const struct ggml_tensor *tensor) {
	while (tensor->view_src) {
		tensor = tensor->view_src;
	}
	return tensor;
}

int32_t ckv_llama_cache_layer(const struct ggml_tensor *root, const char *prefix) {
	size_t n = strlen(prefix);
	const char *number = root->name + n;
	char *end;
	if (strncmp(root->name, prefix, n) != 0 || *number < '0' || *number > '9') {
		return -1;
	}
	long layer = strtol(number, &end, 10);
	return *end == '\0' && layer <= INT32_MAX ? (int32_t)layer : -1;
}

void ckv_llama_logit_params(const struct ggml_tensor *node, float *scale, float *cap) {
	float params[3]; /* scale, ALiBi's bias, cap */
	memcpy(params, node->op_params, sizeof params);
	*scale = params[0];
	*cap = params[2];
}

/* --------------------------------------------------------------------------- the Hadamard product of quantised caches */

static bool only_moves(enum ggml_op op) {
	return op == GGML_OP_VIEW || op == GGML_OP_RESHAPE || op == GGML_OP_PERMUTE || op == GGML_OP_TRANSPOSE ||
	       op == GGML_OP_CONT || op == GGML_OP_CPY || op == GGML_OP_SCALE;
}

static bool is_rotation(const struct ggml_tensor *tensor) {
	/* Somewhere in the name: a copy on another backend has more around it. */
	bool named = strstr(tensor->name, "attn_inp_k_rot") || strstr(tensor->name, "attn_inp_v_rot");
	return named && tensor->type == GGML_TYPE_F32 && tensor->ne[0] == tensor->ne[1];
}

const struct ggml_tensor *ckv_llama_find_rotation(const struct ggml_tensor *tensor) {
	while (tensor && only_moves(tensor->op)) {
		tensor = tensor->src[0];
	}
	return tensor && tensor->op == GGML_OP_MUL_MAT && is_rotation(tensor->src[0]) ? tensor->src[0] : NULL;
}

/* -------------------------------------------------------------------------------------------------------------- RoPE */

/* Whether queries were turned, and then changed further, on their way from the projection. */
static bool rope_below(const struct ggml_tensor *tensor) {
	enum { MOST = 12 };
	for (int i = 0; tensor && i < MOST && tensor->op != GGML_OP_MUL_MAT; i++) {
		if (tensor->op == GGML_OP_ROPE) {
			return true;
		}
		tensor = tensor->src[0];
	}
	return false;
}

/* The node that turns these queries; NULL when none does; *good is false when it can't be told. */
static const struct ggml_tensor *find_rope(const struct ggml_tensor *tensor, bool *good) {
	*good = true;
	while (tensor) {
		if (tensor->op == GGML_OP_ROPE) {
			return tensor;
		}
		if (tensor->op == GGML_OP_MUL_MAT && is_rotation(tensor->src[0])) {
			tensor = tensor->src[1];
		} else if (only_moves(tensor->op)) {
			tensor = tensor->src[0];
		} else {
			*good = tensor->op != GGML_OP_CONCAT && !rope_below(tensor); /* parts turned apart; norms after it */
			return NULL;
		}
	}
	return NULL;
}

/* What ggml's rope reads from op_params. */
typedef struct rope_params {
	int32_t n_dims, mode, n_ctx_orig, offset;
	float base, scale, ext_factor, attn_factor, beta_fast, beta_slow;
} rope_params;

static rope_params read_params(const struct ggml_tensor *node) {
	rope_params p;
	const int32_t *from = node->op_params;
	p.n_dims = from[1];
	p.mode = from[2];
	p.n_ctx_orig = from[4];
	p.offset = from[15];
	memcpy(&p.base, &from[5], sizeof p.base);
	memcpy(&p.scale, &from[6], sizeof p.scale);
	memcpy(&p.ext_factor, &from[7], sizeof p.ext_factor);
	memcpy(&p.attn_factor, &from[8], sizeof p.attn_factor);
	memcpy(&p.beta_fast, &from[9], sizeof p.beta_fast);
	memcpy(&p.beta_slow, &from[10], sizeof p.beta_slow);
	return p;
}

/* YaRN (arXiv 2309.00071): the pair whose wave turns `rotations` times within the original context. */
static double yarn_pair(const rope_params *p, double rotations) {
	const double two_pi = 6.283185307179586;
	return p->n_dims * log(p->n_ctx_orig / (rotations * two_pi)) / (2.0 * log((double)p->base));
}

static double clamp(double x, double low, double high) { return x < low ? low : x > high ? high : x; }

/* Share of the unscaled frequency in pair i. */
static double yarn_mix(const rope_params *p, int32_t i) {
	double low = clamp(floor(yarn_pair(p, (double)p->beta_fast)), 0.0, p->n_dims - 1.0);
	double high = clamp(ceil(yarn_pair(p, (double)p->beta_slow)), 0.0, p->n_dims - 1.0);
	double width = high - low > 0.001 ? high - low : 0.001;
	return (1.0 - clamp((i - low) / width, 0.0, 1.0)) * (double)p->ext_factor;
}

static void fill_frequencies(const rope_params *p, const float *factors, float *inv_freq, float *gain) {
	*gain = p->attn_factor;
	for (int32_t i = 0; i < p->n_dims / 2; i++) {
		double plain = pow((double)p->base, -2.0 * i / p->n_dims) / (factors ? (double)factors[i] : 1.0);
		double scaled = plain * (double)p->scale;
		double mix = p->ext_factor != 0.0f ? yarn_mix(p, i) : 0.0;
		inv_freq[i] = (float)(scaled * (1.0 - mix) + plain * mix);
	}
	if (p->ext_factor != 0.0f) {
		*gain *= 1.0f + 0.1f * logf(1.0f / p->scale);
	}
}

flaw ckv_llama_read_rope(ckv_llama *ckv, layer_view *layer, const struct ggml_tensor *queries) {
	bool good;
	const struct ggml_tensor *node = find_rope(queries, &good), *factors = node ? node->src[2] : NULL;
	if (layer->rope_known || !good) {
		return good ? FLAW_NONE : FLAW_ROPE;
	}
	layer->rope = (ckv_rope){0, 0, NULL, 1.0f};
	layer->rope_known = true;
	if (!node) {
		return FLAW_NONE;
	}
	rope_params p = read_params(node);
	if ((p.mode != GGML_ROPE_TYPE_NEOX && p.mode != 0) || p.offset != 0 || p.n_dims < 2 || p.n_dims > layer->dim_k) {
		return FLAW_ROPE;
	}
	size_t n = (size_t)p.n_dims / 2;
	float *own = NULL;
	layer->inv_freq = ckv_llama_alloc(ckv, n, sizeof *layer->inv_freq);
	if (factors) {
		own = ckv_llama_alloc(ckv, n, sizeof *own);
	}
	if (!layer->inv_freq || (factors && !own)) {
		ckv_llama_release(ckv, own);
		return FLAW_MEMORY;
	}
	if (own) {
		ggml_backend_tensor_get(factors, own, 0, n * sizeof *own);
	}
	fill_frequencies(&p, own, layer->inv_freq, &layer->rope.gain);
	ckv_llama_release(ckv, own);
	layer->rope.n_dims = p.n_dims;
	layer->rope.interleaved = p.mode == 0;
	layer->rope.inv_freq = layer->inv_freq;
	return FLAW_NONE;
}

/* --------------------------------------------------------------------------------------------------- residual stream */

enum { MAX_DEPTH = 16 }; /* nodes between a layer's attention and where its result joins the stream */

/* Whether `tensor` is computed from `from` within a few steps. Weights come first or second, so both ways are tried. */
static bool comes_from(const struct ggml_tensor *tensor, const struct ggml_tensor *from, int depth) {
	if (tensor == from) {
		return true;
	}
	if (!tensor || depth == 0 || tensor->op == GGML_OP_NONE || tensor->op == GGML_OP_FLASH_ATTN_EXT) {
		return false;
	}
	return comes_from(tensor->src[0], from, depth - 1) || comes_from(tensor->src[1], from, depth - 1);
}

static bool is_bias(const struct ggml_tensor *tensor) { return tensor->op == GGML_OP_NONE && tensor->ne[1] == 1; }

static bool is_product(const struct ggml_tensor *tensor) {
	return tensor->op == GGML_OP_MUL_MAT || tensor->op == GGML_OP_MUL_MAT_ID;
}

/* Neither a bias nor a feed-forward part that runs beside the attention. */
static bool is_stream(const struct ggml_tensor *tensor) {
	bool biased = tensor->op == GGML_OP_ADD && is_product(tensor->src[0]) && is_bias(tensor->src[1]);
	return !is_bias(tensor) && !is_product(tensor) && !biased;
}

int ckv_llama_residual(const struct ggml_tensor *node, const struct ggml_tensor *attention, int64_t n_embd) {
	if (!attention || node->op != GGML_OP_ADD || node->type != GGML_TYPE_F32 || node->ne[0] != n_embd || !node->src[0] ||
	    !node->src[1]) {
		return -1;
	}
	for (int stream = 0; stream < 2; stream++) {
		const struct ggml_tensor *other = node->src[1 - stream], *own = node->src[stream];
		bool same_shape = own->type == GGML_TYPE_F32 && own->ne[0] == n_embd && own->ne[1] == node->ne[1];
		if (same_shape && is_stream(own) && !comes_from(own, attention, MAX_DEPTH) &&
		    comes_from(other, attention, MAX_DEPTH)) {
			return stream;
		}
	}
	return -1;
}
