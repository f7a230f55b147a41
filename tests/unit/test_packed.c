/* Rows in few bits: levels and codes by their definition, rows that come back as their codes say whatever is done to the
 * others, memory, and rows put away and taken up again. */
#include "support.h"

#include "quant/quant.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------------------------------------------------- naive */

/* The greatest f16 number that is not above x, by units of its last place. */
static double half_below(double x) {
	int exponent;
	frexp(x, &exponent);
	double unit = ldexp(1.0, (exponent - 1 > -14 ? exponent - 1 : -14) - 10);
	return fmax(fmin(floor(x / unit) * unit, 65504.0), -65504.0);
}

static ckv_levels naive_levels(const float *x, int32_t n, size_t stride, int32_t bits, bool half, int32_t *codes) {
	float least = INFINITY, greatest = -INFINITY;
	for (int32_t i = 0; i < n; i++) {
		least = fminf(least, x[(size_t)i * stride]);
		greatest = fmaxf(greatest, x[(size_t)i * stride]);
	}
	int32_t steps = (1 << bits) - 1;
	float zero = half ? (float)half_below((double)least) : least;
	float scale = fmaxf((greatest - zero) / (float)steps, 1e-8f);
	scale = half ? (float)-half_below(-(double)scale) : scale;
	for (int32_t i = 0; i < n; i++) {
		codes[i] = (int32_t)fmin(fmax(rint((double)((x[(size_t)i * stride] - zero) / scale)), 0.0), (double)steps);
	}
	return (ckv_levels){scale, zero};
}

static float decoded(int32_t code, ckv_levels levels) {
	volatile float product = (float)code * levels.scale; /* rounded, whatever the compiler may do */
	return product + levels.zero;
}

static uint32_t bits_of(float x) {
	uint32_t bits;
	memcpy(&bits, &x, sizeof bits);
	return bits;
}

/* Numbers of all sorts: wide, on a grid with ties, a small spread far from zero, all equal, tiny. */
static void fill(rng *r, float *x, size_t n) {
	int sort = rng_range(r, 0, 5);
	float middle = 1000.0f * rng_float(r);
	for (size_t i = 0; i < n; i++) {
		float noise = rng_float(r);
		switch (sort) {
		case 0: x[i] = 3.0f * noise; break;
		case 1: x[i] = 0.5f * (float)rng_range(r, 0, 6); break;
		case 2: x[i] = middle + 0.01f * noise; break;
		case 3: x[i] = middle; break;
		case 4: x[i] = 1e-6f * noise; break;
		default: x[i] = 60000.0f * noise; break;
		}
	}
}

/* --------------------------------------------------------------------------------------------------------- levels */

static void codes_have_no_gaps_and_come_back(void **state) {
	rng r = {1};
	(void)state;
	for (int32_t bits = 1; bits <= 8; bits++) {
		for (size_t n = 0; n < 70; n++) {
			size_t size = ckv_codes_bytes(n, bits);
			uint8_t codes[70], back[71], packed[71];
			assert_int_equal(size, (n * (size_t)bits + 7) / 8);
			paint(packed, sizeof packed);
			paint(back, sizeof back);
			for (size_t i = 0; i < n; i++) {
				codes[i] = (uint8_t)rng_range(&r, 0, (1 << bits) - 1);
			}
			ckv_codes_pack(codes, n, bits, packed);
			assert_true(is_painted(packed + size, sizeof packed - size));
			for (size_t i = 0; i < 8 * size; i++) {
				size_t number = i / (size_t)bits;
				int expected = number < n ? codes[number] >> i % (size_t)bits & 1 : 0;
				CHECK((packed[i / 8] >> i % 8 & 1) == expected, "%d bits, %zu codes: bit %zu", bits, n, i);
			}
			ckv_codes_unpack(packed, n, bits, back);
			assert_memory_equal(back, codes, n);
			assert_true(is_painted(back + n, sizeof back - n));
		}
	}
}

static void levels_and_codes_are_those_of_the_definition(void **state) {
	enum { MOST = 40 };
	rng r = {2};
	(void)state;
	for (int i = 0; i < 20000; i++) {
		size_t stride = (size_t)rng_range(&r, 1, 3), apart = (size_t)rng_range(&r, 1, 3);
		int32_t n = rng_range(&r, 1, MOST), bits = rng_range(&r, 1, 8), expected[MOST];
		bool half = rng_chance(&r, 2);
		float x[3 * MOST];
		uint8_t codes[3 * MOST];
		fill(&r, x, 3 * MOST);
		paint(codes, sizeof codes);
		ckv_levels want = naive_levels(x, n, stride, bits, half, expected);
		ckv_levels have = ckv_levels_make(x, (size_t)n, stride, bits, half, codes, apart);
		CHECK(bits_of(want.scale) == bits_of(have.scale) && !(want.zero < have.zero) && !(want.zero > have.zero),
		      "%d numbers, %d bits%s: %a %a instead of %a %a", n, bits, half ? ", half" : "", (double)have.scale,
		      (double)have.zero, (double)want.scale, (double)want.zero);
		for (int32_t j = 0; j < n; j++) {
			CHECK(codes[(size_t)j * apart] == expected[j], "%d bits, number %d: %d instead of %d", bits, j,
			      codes[(size_t)j * apart], expected[j]);
			for (size_t gap = 1; gap < apart; gap++) {
				assert_true(is_painted(codes + (size_t)j * apart + gap, 1));
			}
		}
	}
}

static void ties_go_to_the_even_code_and_equal_numbers_come_back(void **state) {
	const float x[] = {0.0f, 0.5f, 1.5f, 2.5f, 3.0f}, same[] = {-0.3f, -0.3f, -0.3f};
	const uint8_t expected[] = {0, 0, 2, 2, 3};
	uint8_t codes[5];
	(void)state;
	for (int half = 0; half < 2; half++) {
		ckv_levels levels = ckv_levels_make(x, 5, 1, 2, half, codes, 1);
		assert_true(bits_of(levels.scale) == bits_of(1.0f));
		assert_memory_equal(codes, expected, 5);
	}
	ckv_levels levels = ckv_levels_make(same, 3, 1, 4, false, codes, 1);
	assert_true(bits_of(levels.scale) == bits_of(1e-8f));
	assert_true(bits_of(decoded(codes[2], levels)) == bits_of(-0.3f));
}

static bool is_half(float x) { return bits_of((float)half_below((double)x)) == bits_of(x); }

static void half_levels_are_f16_numbers_and_miss_by_half_a_level(void **state) {
	enum { N = 32 };
	rng r = {3};
	(void)state;
	for (int i = 0; i < 20000; i++) {
		float x[N];
		uint8_t codes[N];
		int32_t bits = rng_range(&r, i % 2 ? 2 : 1, 8);
		fill(&r, x, N);
		ckv_levels levels = ckv_levels_make(x, N, 1, bits, true, codes, 1);
		CHECK(is_half(levels.scale) && is_half(levels.zero) && levels.scale > 0.0f, "%a %a", (double)levels.scale,
		      (double)levels.zero);
		for (int32_t j = 0; j < N && (bits > 1 || fabsf(x[j]) < 30000.0f); j++) {
			double error = fabs((double)decoded(codes[j], levels) - (double)x[j]);
			CHECK(error <= 0.5 * (double)levels.scale + 4.0 * FLT_EPSILON * fabs((double)x[j]),
			      "%d bits, %a: missed by %g, a level is %g", bits, (double)x[j], error, (double)levels.scale);
		}
	}
}

static void half_levels_of_numbers_beyond_f16_are_finite(void **state) {
	static const float x[][2] = {{-1e6f, 3e6f}, {-65504.0f, 65504.0f}, {1e6f, 2e6f}, {-2e6f, -1e6f}};
	(void)state;
	for (int32_t bits = 1; bits <= 8; bits++) {
		for (size_t i = 0; i < sizeof x / sizeof *x; i++) {
			uint8_t codes[2];
			ckv_levels levels = ckv_levels_make(x[i], 2, 1, bits, true, codes, 1);
			CHECK(fabsf(levels.scale) <= 65504.0f && fabsf(levels.zero) <= 65504.0f, "%d bits, case %zu", bits, i);
			/* The lower one is as near as it may be. */
			float nearest = fmaxf(x[i][0], -65504.0f);
			CHECK(nearest > 65504.0f || fabsf(decoded(codes[0], levels) - nearest) < 1.0f, "%d bits, case %zu", bits, i);
		}
	}
}

/* ----------------------------------------------------------------------------------------------------------- rows */

/* What rows should come back as, each with the group that it was coded in. */
typedef struct naive_packed {
	ckv_packed_shape shape;
	int32_t n, n_groups;
	float *rows;
	int32_t *group;
} naive_packed;

enum { MOST_ROWS = 600 };

static size_t width_of(const ckv_packed_shape *s) { return (size_t)s->width; }

static ckv_packed_shape random_shape(rng *r) {
	static const int32_t widths[] = {1, 7, 8, 13, 40, 64, 255, 256, 300, 521};
	ckv_packed_shape s = {.group = rng_range(r, 1, 33), .high_bits = rng_range(r, 1, 8), .low_bits = rng_range(r, 1, 8)};
	s.width = widths[rng_range(r, 0, 9)];
	s.by_row = rng_chance(r, 2);
	s.half = rng_chance(r, 2);
	s.n_high = s.by_row || rng_chance(r, 2) ? s.width : rng_range(r, 0, s.width);
	return s;
}

static naive_packed naive_make(const ckv_packed_shape *shape) {
	naive_packed p = {.shape = *shape};
	p.rows = test_memory(MOST_ROWS * width_of(shape), sizeof *p.rows);
	p.group = test_memory(MOST_ROWS, sizeof *p.group);
	return p;
}

static void naive_free(naive_packed *p) {
	free(p->rows);
	free(p->group);
}

static void naive_code(const float *x, int32_t n, size_t stride, int32_t bits, bool half, float *out) {
	int32_t codes[600];
	ckv_levels levels = naive_levels(x, n, stride, bits, half, codes);
	for (int32_t i = 0; i < n; i++) {
		out[(size_t)i * stride] = decoded(codes[i], levels);
	}
}

static void naive_append(naive_packed *p, const float *rows, int32_t n) {
	const ckv_packed_shape *s = &p->shape;
	float *out = p->rows + (size_t)p->n * width_of(s);
	for (int32_t i = 0; i < n; i++) {
		p->group[p->n + i] = p->n_groups + (s->by_row ? 0 : i / s->group);
		for (int32_t c = 0; c < s->width && s->by_row; c += s->group) {
			size_t at = (size_t)i * width_of(s) + (size_t)c;
			naive_code(rows + at, s->group < s->width - c ? s->group : s->width - c, 1, s->high_bits, s->half, out + at);
		}
		for (int32_t c = 0; c < s->width && !s->by_row && i % s->group == 0; c++) {
			size_t at = (size_t)i * width_of(s) + (size_t)c;
			naive_code(rows + at, s->group < n - i ? s->group : n - i, width_of(s),
			           c < s->n_high ? s->high_bits : s->low_bits, s->half, out + at);
		}
	}
	p->n += n;
	p->n_groups += n;
}

static void naive_remove(naive_packed *p, const int32_t *gone, int32_t n) {
	size_t row = width_of(&p->shape);
	for (int32_t i = n - 1; i >= 0; i--) {
		int32_t left = --p->n - gone[i];
		memmove(p->rows + (size_t)gone[i] * row, p->rows + (size_t)(gone[i] + 1) * row,
		        (size_t)left * row * sizeof *p->rows);
		memmove(p->group + gone[i], p->group + gone[i] + 1, (size_t)left * sizeof *p->group);
	}
}

/* Groups that have rows. */
static int32_t naive_groups(const naive_packed *p) {
	int32_t n = 0;
	for (int32_t i = 0; i < p->n && !p->shape.by_row; i++) {
		n += i == 0 || p->group[i] != p->group[i - 1];
	}
	return n;
}

static size_t naive_used(const naive_packed *p) {
	const ckv_packed_shape *s = &p->shape;
	size_t high = (size_t)(s->n_high * s->high_bits + 7) / 8, low = (size_t)((s->width - s->n_high) * s->low_bits + 7) / 8;
	size_t rows = (size_t)p->n, groups = (size_t)naive_groups(p), level = s->half ? 2 : 4;
	size_t levels = s->by_row ? rows * (size_t)((s->width + s->group - 1) / s->group) : groups * width_of(s);
	return rows * (high + low) + levels * 2 * level + groups * sizeof(int32_t);
}

static void check_range(const naive_packed *p, const ckv_packed *packed, const ckv_kernels *kernels, int32_t first,
                        int32_t n) {
	size_t numbers = (size_t)n * width_of(&p->shape);
	float *out = test_memory(numbers + 8, sizeof *out);
	paint(out, (numbers + 8) * sizeof *out);
	ckv_packed_decode(kernels, packed, first, n, out);
	check_bits(p->rows + (size_t)first * width_of(&p->shape), out, numbers, "rows");
	assert_true(is_painted(out + numbers, 8 * sizeof *out));
	free(out);
}

static void check_packed(rng *r, const naive_packed *p, const ckv_packed *packed) {
	const ckv_kernels *kernels = rng_chance(r, 2) ? ckv_kernels_c() : ckv_kernels_get(ckv_cpu_features());
	int32_t first = rng_range(r, 0, p->n);
	assert_int_equal(packed->n, p->n);
	assert_int_equal(packed->n_groups, naive_groups(p));
	assert_int_equal(ckv_packed_used(packed), naive_used(p));
	assert_true(ckv_packed_allocated(packed) >= ckv_packed_used(packed));
	check_range(p, packed, kernels, first, rng_range(r, 0, p->n - first));
	check_range(p, packed, kernels, 0, p->n);
}

/* Rows to append; from malloc. */
static float *random_rows(rng *r, const ckv_packed_shape *s, int32_t n) {
	float *rows = test_memory((size_t)n * width_of(s), sizeof *rows);
	for (int32_t i = 0; i < n; i++) {
		fill(r, rows + (size_t)i * width_of(s), width_of(s));
	}
	return rows;
}

static void append(const ckv_allocator *allocator, rng *r, naive_packed *p, ckv_packed *packed, int32_t n) {
	float *rows = random_rows(r, &p->shape, n);
	assert_int_equal(ckv_packed_append(allocator, packed, rows, n), CKV_OK);
	naive_append(p, rows, n);
	free(rows);
}

static void remove_some(rng *r, naive_packed *p, ckv_packed *packed) {
	int32_t gone[MOST_ROWS], n = 0, one_in = rng_range(r, 1, 5);
	int32_t first = rng_range(r, 0, p->n), end = rng_range(r, first, p->n); /* all in here, some elsewhere */
	for (int32_t i = 0; i < p->n; i++) {
		if ((i >= first && i < end) || rng_chance(r, one_in * one_in * one_in + 1)) {
			gone[n++] = i;
		}
	}
	ckv_packed_remove(packed, gone, n);
	naive_remove(p, gone, n);
}

static void replace_by_copy(const ckv_allocator *allocator, ckv_packed *packed) {
	ckv_packed copy;
	assert_int_equal(ckv_packed_copy(allocator, packed, &copy), CKV_OK);
	assert_int_equal(ckv_packed_allocated(&copy), ckv_packed_used(packed));
	/* Nothing of the first is needed any more. */
	ckv_packed_free(allocator, packed);
	assert_int_equal(ckv_packed_allocated(packed), 0);
	*packed = copy;
}

/* What it saves, one byte behind an even address; *base is from malloc. */
static uint8_t *saved(const ckv_packed *packed, uint8_t **base, size_t *size) {
	*size = ckv_packed_save_bytes(packed);
	*base = test_memory(*size + 9, 1);
	paint(*base, *size + 9);
	ckv_packed_save(packed, *base + 1);
	assert_true(is_painted(*base, 1) && is_painted(*base + 1 + *size, 8));
	return *base + 1;
}

static void replace_by_restored(const ckv_allocator *allocator, ckv_packed *packed) {
	uint8_t *base;
	size_t size;
	const uint8_t *data = saved(packed, &base, &size);
	ckv_packed other = {.shape = packed->shape};
	assert_int_equal(ckv_packed_restore(allocator, &other, data, size), CKV_OK);
	assert_int_equal(ckv_packed_restore(allocator, &other, data, size), CKV_OK); /* in place of the rows */
	ckv_packed_free(allocator, packed);
	*packed = other;
	free(base);
}

static void rows_come_back_as_coded_in_any_order_of_work(void **state) {
	rng r = {4};
	(void)state;
	for (int i = 0; i < 150; i++) {
		counting memory;
		counting_init(&memory);
		ckv_packed_shape shape = random_shape(&r);
		ckv_packed packed = {.shape = shape};
		naive_packed naive = naive_make(&shape);
		for (int step = 0; step < 30; step++) {
			int32_t n = rng_range(&r, 0, rng_chance(&r, 4) ? 90 : 3);
			switch (rng_range(&r, 0, 7)) {
			case 0: remove_some(&r, &naive, &packed); break;
			case 1: replace_by_copy(&memory.allocator, &packed); break;
			case 2: replace_by_restored(&memory.allocator, &packed); break;
			default: append(&memory.allocator, &r, &naive, &packed, n <= MOST_ROWS - naive.n ? n : 0); break;
			}
			check_packed(&r, &naive, &packed);
		}
		ckv_packed_free(&memory.allocator, &packed);
		assert_int_equal(memory.live, 0);
		naive_free(&naive);
	}
}

/* --------------------------------------------------------------------------------------------------------- memory */

static const ckv_packed_shape some_shapes[] = {
    {.width = 20, .group = 8, .n_high = 20, .high_bits = 3, .half = true},
    {.width = 20, .group = 8, .n_high = 5, .high_bits = 4, .low_bits = 2},
    {.width = 20, .group = 8, .n_high = 20, .high_bits = 2, .by_row = true, .half = true},
    {.width = 20, .group = 8, .n_high = 20, .high_bits = 5, .by_row = true},
};
enum { N_SHAPES = sizeof some_shapes / sizeof *some_shapes };

static void memory_of_removed_rows_is_used_again(void **state) {
	rng r = {5};
	(void)state;
	for (size_t i = 0; i < N_SHAPES; i++) {
		const ckv_packed_shape *shape = &some_shapes[i];
		counting memory;
		counting_init(&memory);
		ckv_packed packed = {.shape = *shape};
		naive_packed naive = naive_make(shape);
		append(&memory.allocator, &r, &naive, &packed, 64);
		size_t before = ckv_packed_allocated(&packed);
		assert_int_equal(before, ckv_packed_used(&packed)); /* at first there is nothing to spare */
		for (int round = 0; round < 5; round++) {
			int32_t gone[16];
			for (int32_t j = 0; j < 16; j++) {
				gone[j] = 8 * round + j;
			}
			ckv_packed_remove(&packed, gone, 16);
			naive_remove(&naive, gone, 16);
			append(&memory.allocator, &r, &naive, &packed, 16);
			assert_int_equal(ckv_packed_allocated(&packed), before);
			check_packed(&r, &naive, &packed);
		}
		ckv_packed_free(&memory.allocator, &packed);
		naive_free(&naive);
	}
}

static void spare_memory_is_an_eighth_or_a_few_rows(void **state) {
	rng r = {6};
	(void)state;
	for (size_t i = 0; i < N_SHAPES; i++) {
		const ckv_packed_shape *shape = &some_shapes[i];
		counting memory;
		counting_init(&memory);
		ckv_packed packed = {.shape = *shape};
		naive_packed naive = naive_make(shape);
		for (int32_t j = 0; j < MOST_ROWS; j++) {
			append(&memory.allocator, &r, &naive, &packed, 1);
			size_t used = ckv_packed_used(&packed), row = used / (size_t)packed.n;
			CHECK(ckv_packed_allocated(&packed) <= used + used / 8 + 8 * row, "%d rows: %zu bytes, %zu allocated", j + 1,
			      used, ckv_packed_allocated(&packed));
		}
		CHECK(memory.calls < MOST_ROWS + 300, "%ld requests", memory.calls); /* one for each append, some to grow */
		ckv_packed_free(&memory.allocator, &packed);
		naive_free(&naive);
	}
}

enum { APPEND, COPY, RESTORE, N_WORKS };

typedef struct torture {
	counting memory;
	ckv_packed packed, copy;
	naive_packed naive;
	float *rows;
	uint8_t *base;
	const uint8_t *data;
	size_t size;
} torture;

static void torture_make(torture *t, rng *r, const ckv_packed_shape *shape) {
	counting_init(&t->memory);
	t->packed = (ckv_packed){.shape = *shape};
	t->naive = naive_make(shape);
	append(&t->memory.allocator, r, &t->naive, &t->packed, 30);
	t->rows = random_rows(r, shape, 30);
	t->data = saved(&t->packed, &t->base, &t->size);
	paint(&t->copy, sizeof t->copy);
}

static void torture_free(torture *t) {
	ckv_packed_free(&t->memory.allocator, &t->packed);
	assert_int_equal(t->memory.live, 0);
	free(t->rows);
	free(t->base);
	naive_free(&t->naive);
}

static ckv_status work(torture *t, int what) {
	const ckv_allocator *allocator = &t->memory.allocator;
	switch (what) {
	case APPEND: return ckv_packed_append(allocator, &t->packed, t->rows, 30);
	case COPY: return ckv_packed_copy(allocator, &t->packed, &t->copy);
	default: return ckv_packed_restore(allocator, &t->packed, t->data, t->size);
	}
}

/* Whether request number k is made, and so refused: then nothing has changed, and the same works afterwards. */
static bool refused(torture *t, rng *r, int what, long k) {
	long live = t->memory.live;
	size_t allocated = ckv_packed_allocated(&t->packed);
	t->memory.refuse_in = k;
	ckv_status status = work(t, what);
	bool made = t->memory.refuse_in == 0;
	t->memory.refuse_in = 0;
	assert_int_equal(status, made ? CKV_ERR_NOMEM : CKV_OK);
	if (made) {
		assert_int_equal(t->memory.live, live);
		assert_int_equal(ckv_packed_allocated(&t->packed), allocated);
		assert_true(is_painted(&t->copy, sizeof t->copy));
	} else if (what == COPY) {
		ckv_packed_free(&t->memory.allocator, &t->copy);
	} else if (what == APPEND) {
		naive_append(&t->naive, t->rows, 30);
	}
	check_packed(r, &t->naive, &t->packed);
	return made;
}

static void without_memory_nothing_changes(void **state) {
	rng r = {7};
	(void)state;
	for (size_t i = 0; i < N_SHAPES; i++) {
		for (int what = 0; what < N_WORKS; what++) {
			torture t;
			torture_make(&t, &r, &some_shapes[i]);
			long k = 1;
			while (refused(&t, &r, what, k)) {
				k++;
			}
			/* Codes and levels; the groups' rows, where there are groups; what append codes with. */
			assert_int_equal(k - 1, 2 + !some_shapes[i].by_row + (what == APPEND));
			torture_free(&t);
		}
	}
}

static void rows_beyond_any_count_are_refused(void **state) {
	rng r = {8};
	torture t;
	(void)state;
	torture_make(&t, &r, &some_shapes[0]);
	assert_int_equal(ckv_packed_append(&t.memory.allocator, &t.packed, t.rows, INT32_MAX - 29), CKV_ERR_NOMEM);
	assert_int_equal(ckv_packed_append(&t.memory.allocator, &t.packed, t.rows, INT32_MAX - 30), CKV_ERR_NOMEM);
	check_packed(&r, &t.naive, &t.packed);
	torture_free(&t);
}

/* -------------------------------------------------------------------------------------------------- put away, taken up */

/* Refused, and the rows there are stay. */
static void check_refused(torture *t, rng *r, const uint8_t *data, size_t size, const char *what) {
	ckv_status status = ckv_packed_restore(&t->memory.allocator, &t->packed, data, size);
	CHECK(status == CKV_ERR_ARG, "%s: %d", what, (int)status);
	check_packed(r, &t->naive, &t->packed);
}

static void cut_or_longer_data_is_refused(void **state) {
	rng r = {9};
	(void)state;
	for (size_t i = 0; i < N_SHAPES; i++) {
		torture t;
		torture_make(&t, &r, &some_shapes[i]);
		for (size_t size = 0; size < t.size + 8; size++) {
			if (size != t.size) {
				uint8_t *part = test_memory(size, 1); /* of that size, for AddressSanitizer */
				memcpy(part, t.data, size < t.size ? size : t.size);
				check_refused(&t, &r, part, size, "cut or longer");
				free(part);
			}
		}
		torture_free(&t);
	}
}

static void set_int(uint8_t *data, size_t at, int32_t value) { memcpy(data + at * sizeof value, &value, sizeof value); }

/* Drops rows, and saves what is left. */
static void torture_without(torture *t, int32_t first, int32_t n) {
	int32_t gone[30];
	for (int32_t i = 0; i < n; i++) {
		gone[i] = first + i;
	}
	ckv_packed_remove(&t->packed, gone, n);
	naive_remove(&t->naive, gone, n);
	free(t->base);
	t->data = saved(&t->packed, &t->base, &t->size);
}

/* Groups of 8, 8, 2 and 2 rows: numbers 2 to 5 of the data, behind those of rows and groups. */
static void counts_that_do_not_agree_are_refused(void **state) {
	static const struct {
		size_t at[2];
		int32_t value[2];
		const char *what; /* NULL: what could be */
	} damages[] = {
	    {{0, 0}, {19, 19}, "fewer rows"},
	    {{0, 0}, {-1, -1}, "negative rows"},
	    {{0, 0}, {INT32_MAX, INT32_MAX}, "many rows"},
	    {{1, 1}, {3, 3}, "fewer groups"},
	    {{1, 1}, {-1, -1}, "negative groups"},
	    {{1, 1}, {INT32_MAX, INT32_MAX}, "many groups"},
	    {{0, 1}, {0, 0}, "no rows"},
	    {{2, 2}, {7, 7}, "a group of one row less"},
	    {{4, 4}, {3, 3}, "a group of one row more"},
	    {{2, 4}, {9, 1}, "a group of too many"},
	    {{4, 5}, {0, 4}, "an empty group"},
	    {{4, 5}, {-1, 5}, "a negative group"},
	    {{4, 5}, {3, 1}, NULL},
	};
	rng r = {10};
	(void)state;
	for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
		torture t;
		torture_make(&t, &r, &some_shapes[0]);
		torture_without(&t, 18, 10);
		uint8_t *data = test_memory(t.size, 1);
		memcpy(data, t.data, t.size);
		set_int(data, damages[i].at[0], damages[i].value[0]);
		set_int(data, damages[i].at[1], damages[i].value[1]);
		if (damages[i].what) {
			check_refused(&t, &r, data, t.size, damages[i].what);
		} else {
			assert_int_equal(ckv_packed_restore(&t.memory.allocator, &t.packed, data, t.size), CKV_OK);
			assert_int_equal(t.packed.group_rows[2], 3);
		}
		free(data);
		torture_free(&t);
	}
}

/* Eight rows, and a group of them that would be right by channel, of the size that this would have. */
static void groups_where_rows_have_none_are_refused(void **state) {
	rng r = {11};
	torture t;
	(void)state;
	torture_make(&t, &r, &some_shapes[2]);
	torture_without(&t, 8, 22);
	size_t set = 2 * 3 * sizeof(uint16_t), size = t.size + sizeof(int32_t) + set;
	uint8_t *data = test_memory(size, 1);
	paint(data, size);
	memcpy(data + 12, t.data + 8, t.size - 8);
	set_int(data, 0, 8);
	set_int(data, 1, 1);
	set_int(data, 2, 8);
	check_refused(&t, &r, data, size, "a group");
	free(data);
	torture_free(&t);
}

/* A level in the last set: number 0 is its first scale, `zero` its first zero. */
static void put_level(uint8_t *data, size_t size, const ckv_packed_shape *s, bool zero, float value) {
	size_t n = s->by_row ? (size_t)(s->width + s->group - 1) / (size_t)s->group : (size_t)s->width;
	uint16_t half = ckv_f16_from_f32(value);
	size_t bytes = s->half ? sizeof half : sizeof value;
	memcpy(data + size - (zero ? n : 2 * n) * bytes, s->half ? (const void *)&half : &value, bytes);
}

static void levels_that_are_none_are_refused(void **state) {
	static const struct {
		bool zero;
		float value;
		bool good;
	} levels[] = {{false, NAN, false},      {false, INFINITY, false}, {false, 0.0f, false},
	              {false, -1.0f, false},    {false, 0.25f, true},     {true, NAN, false},
	              {true, -INFINITY, false}, {true, 0.0f, true},       {true, -1.0f, true}};
	rng r = {12};
	(void)state;
	for (size_t i = 0; i < N_SHAPES * sizeof levels / sizeof *levels; i++) {
		size_t l = i / N_SHAPES;
		torture t;
		torture_make(&t, &r, &some_shapes[i % N_SHAPES]);
		uint8_t *data = test_memory(t.size, 1);
		memcpy(data, t.data, t.size);
		put_level(data, t.size, &some_shapes[i % N_SHAPES], levels[l].zero, levels[l].value);
		if (levels[l].good) {
			assert_int_equal(ckv_packed_restore(&t.memory.allocator, &t.packed, data, t.size), CKV_OK);
		} else {
			check_refused(&t, &r, data, t.size, "levels");
		}
		free(data);
		torture_free(&t);
	}
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(codes_have_no_gaps_and_come_back),
	    cmocka_unit_test(levels_and_codes_are_those_of_the_definition),
	    cmocka_unit_test(ties_go_to_the_even_code_and_equal_numbers_come_back),
	    cmocka_unit_test(half_levels_are_f16_numbers_and_miss_by_half_a_level),
	    cmocka_unit_test(half_levels_of_numbers_beyond_f16_are_finite),
	    cmocka_unit_test(rows_come_back_as_coded_in_any_order_of_work),
	    cmocka_unit_test(memory_of_removed_rows_is_used_again),
	    cmocka_unit_test(spare_memory_is_an_eighth_or_a_few_rows),
	    cmocka_unit_test(without_memory_nothing_changes),
	    cmocka_unit_test(rows_beyond_any_count_are_refused),
	    cmocka_unit_test(cut_or_longer_data_is_refused),
	    cmocka_unit_test(counts_that_do_not_agree_are_refused),
	    cmocka_unit_test(groups_where_rows_have_none_are_refused),
	    cmocka_unit_test(levels_that_are_none_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
