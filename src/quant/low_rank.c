/* Rows in a subspace of their group of heads, and back. */
#include "quant/quant.h"

#include <string.h>

enum { LANES = 8 };

void ckv_low_rank_free(const ckv_allocator *allocator, ckv_low_rank *fit) {
	float *parts[] = {fit->mean, fit->basis, fit->singular};
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
		if (parts[i]) {
			allocator->free(allocator->user, parts[i]);
		}
	}
	*fit = (ckv_low_rank){0};
}

/* The same n numbers elsewhere; NULL without memory. n is that of an array which is there, so it can't overflow. */
static float *copy_floats(const ckv_allocator *allocator, const float *from, size_t n) {
	float *to = allocator->alloc(allocator->user, n * sizeof *to);
	if (to) {
		memcpy(to, from, n * sizeof *to);
	}
	return to;
}

ckv_status ckv_low_rank_copy(const ckv_allocator *allocator, const ckv_low_rank *fit, ckv_low_rank *to) {
	size_t groups = (size_t)fit->n_groups, dim = (size_t)fit->dim, rank = (size_t)fit->rank;
	ckv_low_rank copy = *fit;
	copy.mean = copy_floats(allocator, fit->mean, groups * dim);
	copy.basis = copy_floats(allocator, fit->basis, groups * dim * rank);
	copy.singular = copy_floats(allocator, fit->singular, groups * rank);
	if (!copy.mean || !copy.basis || !copy.singular) {
		ckv_low_rank_free(allocator, &copy);
		return CKV_ERR_NOMEM;
	}
	*to = copy;
	return CKV_OK;
}

int32_t ckv_low_rank_group(const ckv_low_rank *fit, int32_t head) {
	int32_t heads = fit->n_heads / fit->n_groups, larger = fit->n_heads % fit->n_groups;
	int32_t in_larger = larger * (heads + 1);
	return head < in_larger ? head / (heads + 1) : larger + (head - in_larger) / heads;
}

void ckv_low_rank_project(const ckv_low_rank *fit, int32_t head, const float *rows, size_t n, float *latents) {
	size_t group = (size_t)ckv_low_rank_group(fit, head), dim = (size_t)fit->dim, rank = (size_t)fit->rank;
	const float *mean = fit->mean + group * dim, *basis = fit->basis + group * dim * rank;
	for (size_t i = 0; i < n; i++) {
		float *restrict latent = latents + i * rank;
		memset(latent, 0, rank * sizeof *latent);
		for (size_t c = 0; c < dim; c++) {
			const float *restrict channel = basis + c * rank;
			float x = rows[i * dim + c] - mean[c];
			for (size_t k = 0; k < rank; k++) {
				latent[k] += x * channel[k];
			}
		}
	}
}

/* In lanes, which a compiler may take at once without changing the sum. */
static float dot(const float *a, const float *b, size_t n) {
	float lane[LANES] = {0.0f};
	size_t i = 0;
	for (; i + LANES <= n; i += LANES) {
		for (size_t j = 0; j < LANES; j++) {
			lane[j] += a[i + j] * b[i + j];
		}
	}
	for (size_t j = 0; i < n; i++, j++) {
		lane[j] += a[i] * b[i];
	}
	return ((lane[0] + lane[4]) + (lane[1] + lane[5])) + ((lane[2] + lane[6]) + (lane[3] + lane[7]));
}

void ckv_low_rank_expand(const ckv_low_rank *fit, int32_t head, const float *latents, size_t n, float *rows) {
	size_t group = (size_t)ckv_low_rank_group(fit, head), dim = (size_t)fit->dim, rank = (size_t)fit->rank;
	const float *mean = fit->mean + group * dim, *basis = fit->basis + group * dim * rank;
	for (size_t i = 0; i < n; i++) {
		for (size_t c = 0; c < dim; c++) {
			rows[i * dim + c] = dot(latents + i * rank, basis + c * rank, rank) + mean[c];
		}
	}
}
