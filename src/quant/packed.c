/* Rows in few bits: their codes, and the levels that these stand for. */
#include "kernels/scalar.h"
#include "quant/quant.h"

#include <math.h>
#include <string.h>

/* ---------------------------------------------------------------------------------------------------------- sizes */

/* Channels of one width of codes, and where in a row these begin. */
typedef struct span {
	size_t first, n;
	int32_t bits;
	size_t offset; /* bytes */
} span;

static span high_span(const ckv_packed_shape *s) { return (span){.n = (size_t)s->n_high, .bits = s->high_bits}; }

static span low_span(const ckv_packed_shape *s) {
	size_t high = (size_t)s->n_high;
	return (span){high, (size_t)s->width - high, s->low_bits, ckv_codes_bytes(high, s->high_bits)};
}

static size_t row_bytes(const ckv_packed_shape *s) {
	span low = low_span(s);
	return low.offset + ckv_codes_bytes(low.n, low.bits);
}

/* Levels lie in sets: one for each row, of its groups of channels; else one for each group of rows, of all channels. */
static size_t set_size(const ckv_packed_shape *s) {
	size_t width = (size_t)s->width, group = (size_t)s->group;
	return s->by_row ? width / group + (width % group != 0) : width;
}

static size_t set_bytes(const ckv_packed_shape *s) { return 2 * set_size(s) * (s->half ? sizeof(uint16_t) : sizeof(float)); }

static int32_t n_sets(const ckv_packed *packed) { return packed->shape.by_row ? packed->n : packed->n_groups; }

static int32_t rows_of_set(const ckv_packed *packed, int32_t set) {
	return packed->shape.by_row ? 1 : packed->group_rows[set];
}

static size_t bytes_of(const ckv_packed *packed, int32_t rows, int32_t sets, int32_t groups) {
	const ckv_packed_shape *s = &packed->shape;
	return (size_t)rows * row_bytes(s) + (size_t)sets * set_bytes(s) + (size_t)groups * sizeof *packed->group_rows;
}

size_t ckv_packed_allocated(const ckv_packed *packed) {
	int32_t sets = packed->shape.by_row ? packed->capacity : packed->group_capacity;
	return bytes_of(packed, packed->capacity, sets, packed->group_capacity);
}

size_t ckv_packed_used(const ckv_packed *packed) { return bytes_of(packed, packed->n, n_sets(packed), packed->n_groups); }

/* --------------------------------------------------------------------------------------------------------- memory */

/* count * size bytes, NULL for none; *good becomes false when there is no memory. */
static void *take(const ckv_allocator *allocator, int32_t count, size_t size, bool *good) {
	if (count == 0 || !*good) {
		return NULL;
	}
	void *memory =
	    (size_t)count > (size_t)PTRDIFF_MAX / size ? NULL : allocator->alloc(allocator->user, (size_t)count * size);
	*good = memory != NULL;
	return memory;
}

static void release(const ckv_allocator *allocator, void *memory) {
	if (memory) {
		allocator->free(allocator->user, memory);
	}
}

void ckv_packed_free(const ckv_allocator *allocator, ckv_packed *packed) {
	release(allocator, packed->codes);
	release(allocator, packed->levels);
	release(allocator, packed->group_rows);
	*packed = (ckv_packed){.shape = packed->shape};
}

/* An empty one with room. */
static bool make(const ckv_allocator *allocator, const ckv_packed_shape *shape, int32_t rows, int32_t groups,
                 ckv_packed *made) {
	bool good = true;
	*made = (ckv_packed){.shape = *shape, .capacity = rows, .group_capacity = groups};
	made->codes = take(allocator, rows, row_bytes(shape), &good);
	made->levels = take(allocator, shape->by_row ? rows : groups, set_bytes(shape), &good);
	made->group_rows = take(allocator, groups, sizeof *made->group_rows, &good);
	if (!good) {
		ckv_packed_free(allocator, made);
	}
	return good;
}

static void copy_bytes(void *to, const void *from, size_t n) {
	if (n > 0) { /* else there may be no memory */
		memcpy(to, from, n);
	}
}

/* Into one that has the room. */
static void copy_rows(const ckv_packed *from, ckv_packed *to) {
	const ckv_packed_shape *s = &from->shape;
	to->n = from->n;
	to->n_groups = from->n_groups;
	copy_bytes(to->codes, from->codes, (size_t)from->n * row_bytes(s));
	copy_bytes(to->levels, from->levels, (size_t)n_sets(from) * set_bytes(s));
	copy_bytes(to->group_rows, from->group_rows, (size_t)from->n_groups * sizeof *to->group_rows);
}

/* In small steps: what is spare counts as memory of the cache. */
static int32_t grown(int32_t capacity, int32_t needed, int32_t least) {
	int32_t step = capacity / 8 > least ? capacity / 8 : least;
	if (needed <= capacity || capacity == 0 || capacity > INT32_MAX - step) {
		return needed > capacity ? needed : capacity;
	}
	return needed > capacity + step ? needed : capacity + step;
}

static bool reserve(const ckv_allocator *allocator, ckv_packed *packed, int32_t rows, int32_t groups) {
	if (rows <= packed->capacity && groups <= packed->group_capacity) {
		return true;
	}
	ckv_packed bigger;
	if (!make(allocator, &packed->shape, grown(packed->capacity, rows, 8), grown(packed->group_capacity, groups, 1),
	          &bigger)) {
		return false;
	}
	copy_rows(packed, &bigger);
	ckv_packed_free(allocator, packed);
	*packed = bigger;
	return true;
}

ckv_status ckv_packed_copy(const ckv_allocator *allocator, const ckv_packed *packed, ckv_packed *to) {
	ckv_packed made;
	if (!make(allocator, &packed->shape, packed->n, packed->n_groups, &made)) {
		return CKV_ERR_NOMEM;
	}
	copy_rows(packed, &made);
	*to = made;
	return CKV_OK;
}

/* --------------------------------------------------------------------------------------------------------- coding */

/* Level number i of a set: all its scales lie in front of its zeros. */
static void put_levels(ckv_packed *packed, int32_t set, size_t i, ckv_levels levels) {
	size_t size = set_size(&packed->shape), scale = (size_t)set * 2 * size + i, zero = scale + size;
	if (packed->shape.half) {
		uint16_t *stored = packed->levels;
		stored[scale] = ckv_f16_from_f32(levels.scale);
		stored[zero] = ckv_f16_from_f32(levels.zero);
	} else {
		float *stored = packed->levels;
		stored[scale] = levels.scale;
		stored[zero] = levels.zero;
	}
}

static void put_codes(ckv_packed *packed, const uint8_t *codes) {
	span high = high_span(&packed->shape), low = low_span(&packed->shape);
	uint8_t *row = packed->codes + (size_t)packed->n * row_bytes(&packed->shape);
	ckv_codes_pack(codes, high.n, high.bits, row);
	ckv_codes_pack(codes + low.first, low.n, low.bits, row + low.offset);
	packed->n++;
}

static void put_row(ckv_packed *packed, const float *row, uint8_t *codes) {
	const ckv_packed_shape *s = &packed->shape;
	size_t width = (size_t)s->width, group = (size_t)s->group;
	for (size_t c = 0, i = 0; c < width; c += group, i++) {
		size_t n = group < width - c ? group : width - c;
		put_levels(packed, packed->n, i, ckv_levels_make(row + c, n, 1, s->high_bits, s->half, codes + c, 1));
	}
	put_codes(packed, codes);
}

static void put_group(ckv_packed *packed, const float *rows, int32_t n, uint8_t *codes) {
	const ckv_packed_shape *s = &packed->shape;
	size_t width = (size_t)s->width;
	for (size_t c = 0; c < width; c++) {
		int32_t bits = c < (size_t)s->n_high ? s->high_bits : s->low_bits;
		put_levels(packed, packed->n_groups, c,
		           ckv_levels_make(rows + c, (size_t)n, width, bits, s->half, codes + c, width));
	}
	packed->group_rows[packed->n_groups++] = n;
	for (int32_t i = 0; i < n; i++) {
		put_codes(packed, codes + (size_t)i * width);
	}
}

ckv_status ckv_packed_append(const ckv_allocator *allocator, ckv_packed *packed, const float *rows, int32_t n) {
	const ckv_packed_shape *s = &packed->shape;
	int32_t most = s->by_row ? 1 : n < s->group ? n : s->group; /* rows that are coded together */
	int32_t groups = s->by_row ? 0 : n / s->group + (n % s->group != 0);
	if (n > INT32_MAX - packed->n) {
		return CKV_ERR_NOMEM;
	}
	bool good = true;
	uint8_t *codes = take(allocator, most, (size_t)s->width, &good);
	if (!good || !reserve(allocator, packed, packed->n + n, packed->n_groups + groups)) {
		release(allocator, codes);
		return CKV_ERR_NOMEM;
	}
	for (int32_t i = 0; i < n; i += most < n - i ? most : n - i) {
		const float *next = rows + (size_t)i * (size_t)s->width;
		if (s->by_row) {
			put_row(packed, next, codes);
		} else {
			put_group(packed, next, most < n - i ? most : n - i, codes);
		}
	}
	release(allocator, codes);
	return CKV_OK;
}

/* ------------------------------------------------------------------------------------------------------- decoding */

enum { PIECE = 256 }; /* channels whose levels are in hand; their codes are whole bytes */

/* Level number i of the packed rows, as float. */
static float level_at(const ckv_packed *packed, size_t i) {
	return packed->shape.half ? ckv_f16_scalar(((const uint16_t *)packed->levels)[i]) : ((const float *)packed->levels)[i];
}

/* Scales or zeros of one set, which begin at number `at`: those of channels c .. c + n - 1. */
static void load_levels(const ckv_kernels *kernels, const ckv_packed *packed, size_t at, size_t c, size_t n, float *out) {
	const ckv_packed_shape *s = &packed->shape;
	if (!s->by_row && s->half) {
		kernels->f16_to_f32((const uint16_t *)packed->levels + at + c, out, n);
		return;
	}
	if (!s->by_row) {
		memcpy(out, (const float *)packed->levels + at + c, n * sizeof *out);
		return;
	}
	uint32_t channel = (uint32_t)c, group = (uint32_t)s->group; /* narrow, as that is divided for each row */
	size_t number = at + channel / group, left = group - channel % group;
	for (size_t i = 0; i < n; left = group) {
		size_t end = left < n - i ? i + left : n;
		float level = level_at(packed, number++);
		while (i < end) {
			out[i++] = level;
		}
	}
}

/* Rows of one set, and sizes that are the same for all. */
typedef struct run {
	size_t set_size, row_bytes;
	int32_t set, first, n;
} run;

static void decode_span(const ckv_kernels *kernels, const ckv_packed *packed, const span *part, const run *rows,
                        float *out) {
	float scale[PIECE], zero[PIECE];
	size_t scales = (size_t)rows->set * 2 * rows->set_size, width = (size_t)packed->shape.width;
	const uint8_t *codes = packed->codes + (size_t)rows->first * rows->row_bytes + part->offset;
	for (size_t c = 0; c < part->n; c += PIECE) {
		size_t n = part->n - c < PIECE ? part->n - c : PIECE, channel = part->first + c;
		load_levels(kernels, packed, scales, channel, n, scale);
		load_levels(kernels, packed, scales + rows->set_size, channel, n, zero);
		for (size_t i = 0; i < (size_t)rows->n; i++) {
			kernels->unpack(codes + i * rows->row_bytes, part->bits, scale, zero, n, out + i * width + channel);
		}
		codes += ckv_codes_bytes(n, part->bits);
	}
}

void ckv_packed_decode(const ckv_kernels *kernels, const ckv_packed *packed, int32_t first, int32_t n, float *out) {
	const ckv_packed_shape *s = &packed->shape;
	span high = high_span(s), low = low_span(s);
	run rows = {.set_size = set_size(s), .row_bytes = row_bytes(s)};
	int32_t row = first, last = first + n, next = s->by_row ? first : 0; /* set */
	for (int32_t end = next; row < last; row += rows.n) {                /* end: of the rows of sets before `next` */
		while (end <= row) {
			end += rows_of_set(packed, next++);
		}
		rows.set = next - 1;
		rows.first = row;
		rows.n = (end < last ? end : last) - row;
		float *to = out + (size_t)(row - first) * (size_t)s->width;
		decode_span(kernels, packed, &high, &rows, to);
		decode_span(kernels, packed, &low, &rows, to);
	}
}

/* ------------------------------------------------------------------------------------------------------- removing */

/* Closes the gaps that items leave, of `total`. */
static void close_gaps(void *items, size_t size, int32_t total, const int32_t *gone, int32_t n) {
	uint8_t *base = items;
	for (int32_t i = 0; i < n; i++) {
		int32_t from = gone[i] + 1, end = i + 1 < n ? gone[i + 1] : total;
		memmove(base + (size_t)(from - i - 1) * size, base + (size_t)from * size, (size_t)(end - from) * size);
	}
}

/* Counts what is left of the groups; one that is empty goes with its levels. */
static void shrink_groups(ckv_packed *packed, const int32_t *gone, int32_t n) {
	size_t bytes = set_bytes(&packed->shape);
	uint8_t *levels = packed->levels;
	int32_t kept = 0;
	for (int32_t set = 0, i = 0, end = 0; set < packed->n_groups; set++) {
		int32_t left = packed->group_rows[set];
		for (end += left; i < n && gone[i] < end; i++) {
			left--;
		}
		if (left > 0) {
			memmove(levels + (size_t)kept * bytes, levels + (size_t)set * bytes, bytes);
			packed->group_rows[kept++] = left;
		}
	}
	packed->n_groups = kept;
}

void ckv_packed_remove(ckv_packed *packed, const int32_t *indices, int32_t n) {
	const ckv_packed_shape *s = &packed->shape;
	close_gaps(packed->codes, row_bytes(s), packed->n, indices, n);
	if (s->by_row) {
		close_gaps(packed->levels, set_bytes(s), packed->n, indices, n);
	} else {
		shrink_groups(packed, indices, n);
	}
	packed->n -= n;
}

/* --------------------------------------------------------------------------------------------- saving, restoring */

/* Rows, groups, the groups' rows, codes, levels. */
size_t ckv_packed_save_bytes(const ckv_packed *packed) { return 2 * sizeof(int32_t) + ckv_packed_used(packed); }

static uint8_t *put(uint8_t *out, const void *from, size_t n) {
	copy_bytes(out, from, n);
	return out + n;
}

void ckv_packed_save(const ckv_packed *packed, uint8_t *out) {
	const ckv_packed_shape *s = &packed->shape;
	out = put(out, &packed->n, sizeof packed->n);
	out = put(out, &packed->n_groups, sizeof packed->n_groups);
	out = put(out, packed->group_rows, (size_t)packed->n_groups * sizeof *packed->group_rows);
	out = put(out, packed->codes, (size_t)packed->n * row_bytes(s));
	put(out, packed->levels, (size_t)n_sets(packed) * set_bytes(s));
}

/* Whether so much data is of so many rows and groups. Products are bounded by the size before they are made. */
static bool size_good(const ckv_packed_shape *s, int32_t rows, int32_t groups, size_t size) {
	size_t row = row_bytes(s) + (s->by_row ? set_bytes(s) : 0);
	size_t group = set_bytes(s) + sizeof(int32_t);
	if (rows < 0 || groups < 0 || (s->by_row && groups > 0) || (size_t)rows > size / row ||
	    (size_t)groups > (size - (size_t)rows * row) / group) {
		return false;
	}
	return (size_t)rows * row + (size_t)groups * group == size;
}

/* Whether the groups' rows are all rows. */
static bool groups_good(const ckv_packed *packed) {
	int32_t left = packed->n;
	for (int32_t i = 0; i < packed->n_groups; i++) {
		int32_t rows = packed->group_rows[i];
		if (rows < 1 || rows > packed->shape.group || rows > left) {
			return false;
		}
		left -= rows;
	}
	return packed->shape.by_row || left == 0;
}

/* Whether levels are numbers, and go upwards. */
static bool levels_good(const ckv_packed *packed) {
	size_t size = set_size(&packed->shape), n = (size_t)n_sets(packed) * 2 * size;
	for (size_t i = 0; i < n; i++) {
		float level = level_at(packed, i);
		bool scale = i / size % 2 == 0;
		if (!isfinite(level) || (scale && level <= 0.0f)) {
			return false;
		}
	}
	return true;
}

ckv_status ckv_packed_restore(const ckv_allocator *allocator, ckv_packed *packed, const uint8_t *data, size_t size) {
	const ckv_packed_shape *s = &packed->shape;
	int32_t counts[2] = {-1, -1};
	ckv_packed made;
	if (size >= sizeof counts) {
		memcpy(counts, data, sizeof counts);
	}
	if (!size_good(s, counts[0], counts[1], size - sizeof counts)) {
		return CKV_ERR_ARG;
	}
	if (!make(allocator, s, counts[0], counts[1], &made)) {
		return CKV_ERR_NOMEM;
	}
	made.n = counts[0];
	made.n_groups = counts[1];
	size_t groups = (size_t)made.n_groups * sizeof *made.group_rows, codes = (size_t)made.n * row_bytes(s);
	data += sizeof counts;
	copy_bytes(made.group_rows, data, groups);
	copy_bytes(made.codes, data + groups, codes);
	copy_bytes(made.levels, data + groups + codes, (size_t)n_sets(&made) * set_bytes(s));
	if (!groups_good(&made) || !levels_good(&made)) {
		ckv_packed_free(allocator, &made);
		return CKV_ERR_ARG;
	}
	ckv_packed_free(allocator, packed);
	*packed = made;
	return CKV_OK;
}
