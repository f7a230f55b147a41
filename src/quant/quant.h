/* Rows in fewer bits and fewer channels: what the codecs of a cache are built from. */
#ifndef CKV_QUANT_H
#define CKV_QUANT_H

#include "core/internal.h"

/* ----------------------------------------------------------------------------------------------------------- codes.c */

/* n numbers, `stride` floats apart, on 2^bits levels between their least and their greatest (KIVI, arXiv 2402.02750):
 * scale = max((max - min) / (2^bits - 1), 1e-8), zero = min, code = (x - zero) / scale rounded half to even, within 0 and
 * 2^bits - 1; back: code * scale + zero, each operation rounded to float. half: zero (downwards) and the scale that then
 * reaches max (upwards) are numbers that f16 holds, at most 65504 in magnitude, and the codes are those of these. Codes are
 * `code_stride` bytes apart. 1 <= bits <= 8, n >= 1, x and max - min finite. */
typedef struct ckv_levels {
	float scale, zero;
} ckv_levels;
ckv_levels ckv_levels_make(const float *x, size_t n, size_t stride, int32_t bits, bool half, uint8_t *codes,
                           size_t code_stride);

/* n codes of `bits` bits each without gaps, the first in the lowest bits of the first byte. */
size_t ckv_codes_bytes(size_t n, int32_t bits);
void ckv_codes_pack(const uint8_t *codes, size_t n, int32_t bits, uint8_t *packed);
void ckv_codes_unpack(const uint8_t *packed, size_t n, int32_t bits, uint8_t *codes);

/* ---------------------------------------------------------------------------------------------------------- packed.c */

/* How a matrix of rows is packed. By channel: numbers of one channel and `group` rows in a row share their levels (KIVI's
 * keys); the first n_high channels have high_bits, the others low_bits. By row: `group` channels of one row share them
 * (KIVI's values), the last group may be short; all have high_bits then, and n_high is width. */
typedef struct ckv_packed_shape {
	int32_t width, group;
	int32_t n_high, high_bits, low_bits;
	bool by_row;
	bool half; /* levels are stored as f16, else as float */
} ckv_packed_shape;

/* Zero it, then set the shape. Each row's codes begin at a byte, and so do those with low_bits. */
typedef struct ckv_packed {
	ckv_packed_shape shape;
	int32_t n, capacity; /* rows */
	uint8_t *codes;      /* [capacity][row bytes] */
	void *levels;        /* by row: [capacity][2][groups of a row]; else [group_capacity][2][width]; scales, then zeros */
	int32_t n_groups, group_capacity;
	int32_t *group_rows; /* by channel: [n_groups] rows that are left of each, in order */
} ckv_packed;

/* Empty then, of the same shape. */
void ckv_packed_free(const ckv_allocator *allocator, ckv_packed *packed);
/* rows[n][width] join at the end; by channel they are groups of their own, the last one short when need be. On
 * CKV_ERR_NOMEM nothing has changed. */
ckv_status ckv_packed_append(const ckv_allocator *allocator, ckv_packed *packed, const float *rows, int32_t n);
/* Rows first .. first + n - 1 to out[n][width]. */
void ckv_packed_decode(const ckv_kernels *kernels, const ckv_packed *packed, int32_t first, int32_t n, float *out);
/* Drops rows by ascending indices; those that stay are not coded anew. The memory stays, for rows to come. */
void ckv_packed_remove(ckv_packed *packed, const int32_t *indices, int32_t n);
/* A copy of its own, without spare room. *to is overwritten, on success only. */
ckv_status ckv_packed_copy(const ckv_allocator *allocator, const ckv_packed *packed, ckv_packed *to);
/* Bytes that it allocated; bytes that its rows need. */
size_t ckv_packed_allocated(const ckv_packed *packed);
size_t ckv_packed_used(const ckv_packed *packed);
/* The rows' bytes one after another, ckv_packed_save_bytes of them; restore takes what save gave for the same shape, at any
 * address, in place of the rows there were. It refuses (CKV_ERR_ARG) what can't be that; on an error, CKV_ERR_NOMEM too,
 * *packed is as it was. */
size_t ckv_packed_save_bytes(const ckv_packed *packed);
void ckv_packed_save(const ckv_packed *packed, uint8_t *out);
ckv_status ckv_packed_restore(const ckv_allocator *allocator, ckv_packed *packed, const uint8_t *data, size_t size);

/* --------------------------------------------------------------------------------------- low_rank.c, low_rank_fit.c */

/* Subspaces that rows are projected to (Palu, arXiv 2407.21118, fitted on the rows as VeloxQuant-MLX does): heads in
 * contiguous groups, each group with a mean and a basis. */
typedef struct ckv_low_rank {
	int32_t dim, rank, n_heads, n_groups;
	float *mean;     /* [n_groups][dim] */
	float *basis;    /* [n_groups][dim][rank] orthonormal columns, by falling singular value */
	float *singular; /* [n_groups][rank] */
} ckv_low_rank;

/* rows[n_heads] point to [n_rows[h]][dim]. rank 0: the least that holds `energy` of the sum of singular values, of every
 * group the same (the smallest); else rank, at most what there is (rows and channels; a group without rows has no say).
 * Groups: as many as heads at most, one at least; the first n_heads mod n_groups have one head more. Of a column's two signs
 * the one that makes its largest entry positive. *out is written on success only. Errors: CKV_ERR_UNSUPPORTED where the
 * library was built without LAPACKE, saying so; CKV_ERR_ARG (no rows at all among others), CKV_ERR_NOMEM, CKV_ERR_NUMERIC.
 */
typedef struct ckv_low_rank_options {
	int32_t rank, n_groups;
	double energy;
} ckv_low_rank_options;
ckv_status ckv_low_rank_fit(const ckv_allocator *allocator, const float *const *rows, const int32_t *n_rows, int32_t n_heads,
                            int32_t dim, const ckv_low_rank_options *options, ckv_low_rank *out, ckv_error *error);
void ckv_low_rank_free(const ckv_allocator *allocator, ckv_low_rank *fit);
ckv_status ckv_low_rank_copy(const ckv_allocator *allocator, const ckv_low_rank *fit, ckv_low_rank *to);
int32_t ckv_low_rank_group(const ckv_low_rank *fit, int32_t head);
/* latents[n][rank] of rows[n][dim]: (row - mean) basis; and back: latent basis^T + mean. */
void ckv_low_rank_project(const ckv_low_rank *fit, int32_t head, const float *rows, size_t n, float *latents);
void ckv_low_rank_expand(const ckv_low_rank *fit, int32_t head, const float *latents, size_t n, float *rows);
/* Whether decompositions can be had in this build. */
bool ckv_low_rank_available(void);

/* ----------------------------------------------------------------------------------------------------- merge_values.c */

/* Values of the tokens that one head keeps, with those of the others merged in (see ckv_merge_kept): each other token goes
 * to the kept one with the most similar key. kept[n_kept] ascending, may be empty; out[n_kept][d_v], void after an error
 * other than CKV_ERR_NOMEM. options NULL: the values as they are. Errors: CKV_ERR_NOMEM, CKV_ERR_NUMERIC. */
ckv_status ckv_merge_values(const ckv_kernels *kernels, const ckv_allocator *allocator, const ckv_view *k, const ckv_view *v,
                            int32_t head, const int32_t *kept, int32_t n_kept, const ckv_merge *options, float *out,
                            ckv_error *error);

/* The same in space of the caller, for threads, which may not ask for any: as many bytes as ckv_merge_space says, aligned
 * for any object. That is a multiple of 64 for up to n_kept kept tokens, or SIZE_MAX when it can't be had. */
size_t ckv_merge_space(const ckv_view *k, const ckv_view *v, int32_t n_kept);
ckv_status ckv_merge_values_in(const ckv_kernels *kernels, const ckv_view *k, const ckv_view *v, int32_t head,
                               const int32_t *kept, int32_t n_kept, const ckv_merge *options, void *space, float *out,
                               ckv_error *error);

/* ------------------------------------------------------------------------------------------------------------- cam.c */

/* Cache merging in batches as kvpress has it (CAMPress): which tokens stay, and which of those that go are merged. */
typedef struct ckv_cam {
	int32_t n_kept, n_merged;
	int32_t window;  /* kept tokens behind a merged one that share its value */
	int32_t *kept;   /* [n_kept] ascending */
	int32_t *merged; /* [n_merged] ascending */
} ckv_cam;

/* Sets the lists by scores[n_tokens], of all heads together: the n_kept best are kept (ties: lower position), the n_merged
 * best of the others are merged (ties: higher position, as published). 1 <= n_kept, 0 <= n_merged, n_kept + n_merged <=
 * n_tokens; scores finite. */
ckv_status ckv_cam_choose(ckv_ctx *ctx, const float *scores, int32_t n_tokens, ckv_cam *cam);

/* One head: out[n_kept][d_v], its kept values and what is merged into them. attention[T]: what each token has received, not
 * negative. A merged token goes where its draws[n_merged] (from 0 to below 1) is below its probability, told in
 * probability[n_merged]. row[d_v] is scratch. out is void after an error. Errors: CKV_ERR_NUMERIC. */
ckv_status ckv_cam_merge(const ckv_kernels *kernels, const ckv_view *v, int32_t head, const ckv_cam *cam,
                         const float *attention, const float *draws, float *probability, float *row, float *out,
                         ckv_error *error);

#endif
