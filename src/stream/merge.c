/* Cache merging (CaM): what goes is folded into the row whose key is most like its own. */
#include "stream/internal.h"

#include <math.h>

static double dot(const float *a, const float *b, size_t n) {
	double sum = 0.0;
	for (size_t c = 0; c < n; c++) {
		sum += (double)a[c] * (double)b[c];
	}
	return sum;
}

/* threefry-2x32 with 20 rounds (Salmon et al., SC 2011), of the counter (0, 0): its first word. */
static uint32_t threefry(uint32_t key0, uint32_t key1) {
	static const int turns[8] = {13, 15, 26, 6, 17, 29, 16, 24};
	uint32_t key[3] = {key0, key1, key0 ^ key1 ^ 0x1bd11bdau}, a = key0, b = key1;
	for (uint32_t round = 0; round < 20; round++) {
		int turn = turns[round % 8];
		a += b;
		b = (b << turn) | (b >> (32 - turn));
		b ^= a;
		if (round % 4 == 3) {
			uint32_t step = round / 4 + 1;
			a += key[step % 3];
			b += key[(step + 1) % 3] + step;
		}
	}
	return a;
}

float ckv_merge_draw(int64_t seed, int64_t draw) {
	uint64_t key = (uint64_t)seed * 1000003u + (uint64_t)draw;
	float u = (float)threefry((uint32_t)(key >> 32), (uint32_t)key) / 4294967296.0f;
	return u < 0x1.fffffep-1f ? u : 0x1.fffffep-1f;
}

float ckv_merge_gate(float loser, float target) {
	if (target <= 0.0f) {
		return loser > 0.0f ? 1.0f : 0.0f;
	}
	float p = loser / target;
	return p < 0.0f ? 0.0f : p < 1.0f ? p : 1.0f;
}

/* The row, no sink, whose key is most like the loser's; the first of equal ones; -1: there is none. */
static int32_t most_similar(const ckv_stream *stream, const stream_layer *layer, const stream_head *head, int32_t loser,
                            float *scratch) {
	size_t dim = (size_t)layer->shape.dim_k;
	float *own = scratch, *other = scratch + dim, best = 0.0f;
	int32_t target = -1;
	stream->kernels->f16_to_f32(ckv_store_key(layer, head, loser), own, dim);
	float length = (float)sqrt(dot(own, own, dim)) + 1e-8f;
	for (size_t c = 0; c < dim; c++) {
		own[c] /= length;
	}
	for (int32_t i = stream->params.sinks; i < head->lane.n; i++) {
		if (i == loser) {
			continue;
		}
		stream->kernels->f16_to_f32(ckv_store_key(layer, head, i), other, dim);
		float cosine = (float)dot(other, own, dim) / ((float)sqrt(dot(other, other, dim)) + 1e-8f);
		if (target < 0 || cosine > best) {
			best = cosine;
			target = i;
		}
	}
	return target;
}

static float weight_of(const ckv_stream *stream, const stream_layer *layer, const stream_head *head, int32_t loser,
                       int32_t target, float *scratch) {
	size_t dim = (size_t)layer->shape.dim_k;
	float *a = scratch, *b = scratch + dim;
	if (stream->merge == STREAM_MEAN) {
		return 0.5f;
	}
	stream->kernels->f16_to_f32(ckv_store_key(layer, head, target), a, dim);
	stream->kernels->f16_to_f32(ckv_store_key(layer, head, loser), b, dim);
	float lengths = (float)sqrt(dot(a, a, dim)) * (float)sqrt(dot(b, b, dim));
	float cosine = (float)dot(a, b, dim) / (lengths + 1e-8f);
	return cosine < 0.0f ? 0.0f : cosine < 1.0f ? cosine : 1.0f;
}

/* target = (1 - weight) target + weight loser */
static void mix(const ckv_stream *stream, uint16_t *target, const uint16_t *loser, float weight, size_t dim,
                float *scratch) {
	float *a = scratch, *b = scratch + dim;
	stream->kernels->f16_to_f32(target, a, dim);
	stream->kernels->f16_to_f32(loser, b, dim);
	for (size_t c = 0; c < dim; c++) {
		target[c] = ckv_f16_from_f32((1.0f - weight) * a[c] + weight * b[c]);
	}
}

void ckv_merge_evicted(const ckv_stream *stream, int32_t layer_index, int32_t head_index, int32_t loser, float *scratch) {
	const ckv_stream_params *p = &stream->params;
	const stream_layer *layer = &stream->layers[layer_index];
	stream_head *head = &layer->heads[head_index];
	float *scores = head->lane.scores;
	int32_t target = most_similar(stream, layer, head, loser, scratch);
	int64_t seed = (int64_t)p->seed + layer_index + head_index;
	uint32_t draw = head->draws++;
	if (target < 0) {
		return;
	}
	if (p->merge_gate && !(ckv_merge_draw(seed, draw) < ckv_merge_gate(scores[loser], scores[target]))) {
		return;
	}
	float weight = weight_of(stream, layer, head, loser, target, scratch);
	mix(stream, ckv_store_value(layer, head, target), ckv_store_value(layer, head, loser), weight,
	    (size_t)layer->shape.dim_v, scratch);
	if (p->merge_keys) {
		mix(stream, ckv_store_key(layer, head, target), ckv_store_key(layer, head, loser), weight,
		    (size_t)layer->shape.dim_k, scratch);
	}
	scores[target] += scores[loser];
	if (p->reference && head->lane.positions[loser] > head->lane.positions[target]) {
		/* The published code's label. The key's rotation stays the target's, so product mode keeps its position too. */
		head->lane.positions[target] = head->lane.positions[loser];
	}
}
