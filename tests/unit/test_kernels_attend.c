/* checkasm of the kernels that attend over rows as they lie, and of the one that unpacks codes. */
#include "checkasm.h"

/* Rows of one of the two types behind one face. */
typedef struct face {
	const char *dot_name, *mix_name;
	size_t size; /* of a number */
	void (*dot)(const ckv_kernels *t, const float *q, size_t m, size_t d, const void *rows, size_t n, float scale,
	            float *out, size_t stride);
	void (*mix)(const ckv_kernels *t, const float *w, size_t m, size_t stride, const void *rows, size_t n, size_t d,
	            float *out);
} face;

static void dot_f16(const ckv_kernels *t, const float *q, size_t m, size_t d, const void *rows, size_t n, float scale,
                    float *out, size_t stride) {
	t->dot_f16(q, m, d, (const uint16_t *)rows, n, scale, out, stride);
}

static void dot_f32(const ckv_kernels *t, const float *q, size_t m, size_t d, const void *rows, size_t n, float scale,
                    float *out, size_t stride) {
	t->dot_f32(q, m, d, (const float *)rows, n, scale, out, stride);
}

static void mix_f16(const ckv_kernels *t, const float *w, size_t m, size_t stride, const void *rows, size_t n, size_t d,
                    float *out) {
	t->mix_f16(w, m, stride, (const uint16_t *)rows, n, d, out);
}

static void mix_f32(const ckv_kernels *t, const float *w, size_t m, size_t stride, const void *rows, size_t n, size_t d,
                    float *out) {
	t->mix_f32(w, m, stride, (const float *)rows, n, d, out);
}

static const face faces[] = {{"dot_f16", "mix_f16", sizeof(uint16_t), dot_f16, mix_f16},
                             {"dot_f32", "mix_f32", sizeof(float), dot_f32, mix_f32}};
enum { N_FACES = sizeof faces / sizeof *faces };

/* ------------------------------------------------------------------ rows */

/* n numbers up to the end of their block, `skipped` numbers after its start. */
typedef struct numbers {
	char *memory;
	void *data;
} numbers;

static numbers numbers_make(size_t n, size_t size, size_t skipped) {
	numbers x;
	x.memory = test_memory(n + skipped, size);
	x.data = x.memory + skipped * size;
	return x;
}

/* From -2 to 2, or, of some, every value that the type has: denormals, infinities, NaN. */
static numbers random_rows(rng *r, const face *f, size_t n, bool extremes) {
	numbers x = numbers_make(n, f->size, (size_t)rng_range(r, 0, 3));
	for (size_t i = 0; i < n; i++) {
		bool any = extremes && rng_chance(r, 50);
		if (f->size == sizeof(uint16_t)) {
			((uint16_t *)x.data)[i] = (uint16_t)(any ? rng_bits(r) : rng_bits(r) & (rng_chance(r, 4) ? 0x83ffu : 0xbfffu));
		} else if (any) {
			uint32_t bits = rng_bits(r);
			memcpy((float *)x.data + i, &bits, sizeof bits);
		} else {
			((float *)x.data)[i] = 2.0f * rng_float(r);
		}
	}
	return x;
}

static numbers random_floats(rng *r, size_t n, float factor, bool extremes) {
	numbers x = numbers_make(n, sizeof(float), (size_t)rng_range(r, 0, 3));
	float *value = x.data;
	for (size_t i = 0; i < n; i++) {
		value[i] = factor * rng_float(r);
	}
	if (extremes) {
		add_extremes(r, value, n);
	}
	return x;
}

/* Independent of the library: by the definition of the format. */
static double number(const face *f, const void *data, size_t i) {
	if (f->size == sizeof(float)) {
		return (double)((const float *)data)[i];
	}
	uint16_t h = ((const uint16_t *)data)[i];
	int exponent = (h >> 10) & 31, mantissa = h & 1023;
	double magnitude = exponent == 0 ? ldexp(mantissa, -24) : ldexp(1024 + mantissa, exponent - 25);
	return h & 0x8000 ? -magnitude : magnitude;
}

static void put_number(const face *f, void *data, size_t i, float value) {
	if (f->size == sizeof(float)) {
		((float *)data)[i] = value;
		return;
	}
	int exponent;
	float fraction = frexpf(fabsf(value), &exponent);
	unsigned magnitude = value == 0.0f ? 0u : ((unsigned)(exponent + 14) << 10) + (unsigned)(fraction * 2048.0f) - 1024u;
	((uint16_t *)data)[i] = (uint16_t)(magnitude | (signbit(value) ? 0x8000u : 0u));
}

static const size_t dims[] = {1, 2, 3, 7, 8, 9, 11, 15, 16, 17, 24, 31, 33, 40, 64, 80, 100, 127, 128, 129, 256, 600};
enum { N_DIMS = sizeof dims / sizeof *dims };

/* ------------------------------------------------------------------- dot */

static void check_dot_case(const ckv_kernels *t, const face *f, rng *r, size_t m, size_t d, size_t n, bool extremes) {
	size_t stride = n + (size_t)rng_range(r, 0, 9), size = m && n ? (m - 1) * stride + n : 0;
	numbers q = random_floats(r, m * d, 2.0f, extremes), rows = random_rows(r, f, n * d, extremes);
	guarded a = guarded_make(size), b = guarded_make(size);
	float scale = rng_float(r);
	f->dot(ckv_kernels_c(), q.data, m, d, rows.data, n, scale, a.data, stride);
	f->dot(t, q.data, m, d, rows.data, n, scale, b.data, stride);
	check_same(&a, &b, t->isa, f->dot_name, (m * 1000 + d) * 1000 + n);
	for (size_t i = 0; i + 1 < m && n > 0; i++) {
		CHECK(is_painted(b.data + i * stride + n, (stride - n) * sizeof(float)), "%s %s: m %zu, d %zu, n %zu, query %zu",
		      t->isa, f->dot_name, m, d, n, i);
	}
	free(q.memory);
	free(rows.memory);
	free(a.memory);
	free(b.memory);
}

static void check_dot(const ckv_kernels *t) {
	rng r = {11};
	for (size_t f = 0; f < N_FACES; f++) {
		for (size_t m = 0; m <= 10; m++) {
			for (size_t i = 0; i < N_DIMS; i++) {
				check_dot_case(t, &faces[f], &r, m, dims[i], (size_t)rng_range(&r, 0, 9), false);
				check_dot_case(t, &faces[f], &r, m, dims[i], (size_t)rng_range(&r, 10, 60), i % 2);
				check_dot_case(t, &faces[f], &r, m, (size_t)rng_range(&r, 1, 300), (size_t)rng_range(&r, 0, 60), true);
			}
		}
	}
}

static void dot_is_bit_for_bit_the_same_everywhere(void **state) {
	(void)state;
	for_each_table(check_dot);
}

/* Every product is a negative one too small for a float: -0, which 0 in the lanes behind d must not make 0. */
static void check_dot_zeros(const ckv_kernels *t) {
	for (size_t f = 0; f < N_FACES; f++) {
		for (size_t d = 1; d <= 40; d++) {
			rng r = {d};
			numbers q = random_floats(&r, d, 0.0f, false), rows = random_rows(&r, &faces[f], 9 * d, false);
			float a[9], b[9];
			for (size_t i = 0; i < d; i++) {
				((float *)q.data)[i] = -1e-45f;
			}
			for (size_t i = 0; i < 9 * d; i++) {
				put_number(&faces[f], rows.data, i, 0.25f);
			}
			faces[f].dot(ckv_kernels_c(), q.data, 1, d, rows.data, 9, 1.0f, a, 9);
			faces[f].dot(t, q.data, 1, d, rows.data, 9, 1.0f, b, 9);
			for (size_t j = 0; j < 9; j++) {
				CHECK(same(a[j], b[j]) && (signbit(a[j]) != 0) == (d >= 16), "%s %s: d %zu, row %zu is %g", t->isa,
				      faces[f].dot_name, d, j, (double)b[j]);
			}
			free(q.memory);
			free(rows.memory);
		}
	}
}

static void dot_keeps_the_sign_of_zero_everywhere(void **state) {
	(void)state;
	for_each_table(check_dot_zeros);
}

static void dot_is_the_dot_product_in_c(void **state) {
	enum { M = 3, N = 5, STRIDE = 7 };
	rng r = {12};
	(void)state;
	for (size_t f = 0; f < N_FACES; f++) {
		for (size_t d = 1; d <= 300; d += 1 + d / 5) {
			numbers q = random_floats(&r, M * d, 1.0f, false), rows = random_rows(&r, &faces[f], N * d, false);
			float out[M * STRIDE];
			faces[f].dot(ckv_kernels_c(), q.data, M, d, rows.data, N, 0.5f, out, STRIDE);
			for (size_t i = 0; i < M * N; i++) {
				double sum = 0.0, absolute = 0.0, found = (double)out[i / N * STRIDE + i % N];
				for (size_t c = 0; c < d; c++) {
					double product = (double)((float *)q.data)[i / N * d + c] * number(&faces[f], rows.data, i % N * d + c);
					sum += product;
					absolute += fabs(product);
				}
				CHECK(fabs(0.5 * sum - found) <= 6e-8 * ((double)d / 16.0 + 6.0) * absolute, "%s: d %zu, product %zu is %g",
				      faces[f].dot_name, d, i, found);
			}
			free(q.memory);
			free(rows.memory);
		}
	}
}

/* 2^30, -2^30 and ones: those are lost that meet one of the two before they have cancelled out. */
static void a_product_is_summed_in_16_lanes_then_as_a_tree(void **state) {
	enum { D = 32 };
	static const struct {
		size_t to;
		float expected;
	} cases[] = {{16, 15.0f}, {8, 14.0f}, {24, 14.0f}, {1, 12.0f}, {17, 12.0f}, {2, 8.0f}, {4, 0.0f}};
	(void)state;
	for (size_t f = 0; f < N_FACES; f++) {
		for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
			numbers rows = numbers_make(D, faces[f].size, 0);
			float q[D], out;
			for (size_t c = 0; c < D; c++) {
				q[c] = 1.0f;
				put_number(&faces[f], rows.data, c, c < CKV_LANES ? 1.0f : 0.0f);
			}
			q[0] = 32768.0f;
			q[cases[k].to] = -32768.0f;
			put_number(&faces[f], rows.data, 0, 32768.0f);
			put_number(&faces[f], rows.data, cases[k].to, 32768.0f);
			faces[f].dot(ckv_kernels_c(), q, 1, D, rows.data, 1, 1.0f, &out, 1);
			CHECK(out == cases[k].expected, "%s: 0 and %zu give %g", faces[f].dot_name, cases[k].to, (double)out);
			free(rows.memory);
		}
	}
}

/* ------------------------------------------------------------------- mix */

static void check_mix_case(const ckv_kernels *t, const face *f, rng *r, size_t m, size_t d, size_t n, bool extremes) {
	size_t stride = n + (size_t)rng_range(r, 0, 9);
	numbers w = random_floats(r, m && n ? (m - 1) * stride + n : 0, 1.0f, extremes);
	numbers rows = random_rows(r, f, n * d, extremes);
	guarded a = guarded_make(m * d), b = guarded_make(m * d);
	for (size_t i = 0; i < m * d; i++) {
		a.data[i] = b.data[i] = rng_float(r);
	}
	f->mix(ckv_kernels_c(), w.data, m, stride, rows.data, n, d, a.data);
	f->mix(t, w.data, m, stride, rows.data, n, d, b.data);
	check_same(&a, &b, t->isa, f->mix_name, (m * 1000 + d) * 1000 + n);
	free(w.memory);
	free(rows.memory);
	free(a.memory);
	free(b.memory);
}

static void check_mix(const ckv_kernels *t) {
	rng r = {13};
	for (size_t f = 0; f < N_FACES; f++) {
		for (size_t m = 0; m <= 10; m++) {
			for (size_t i = 0; i < N_DIMS; i++) {
				check_mix_case(t, &faces[f], &r, m, dims[i], (size_t)rng_range(&r, 0, 40), i % 2);
				check_mix_case(t, &faces[f], &r, m, (size_t)rng_range(&r, 1, 300), (size_t)rng_range(&r, 0, 100), true);
			}
		}
		check_mix_case(t, &faces[f], &r, 3, 64, 400, false);
		check_mix_case(t, &faces[f], &r, 1, 1, 9000, false);
	}
}

static void mix_is_bit_for_bit_the_same_everywhere(void **state) {
	(void)state;
	for_each_table(check_mix);
}

static void mix_adds_the_weighted_rows_in_c(void **state) {
	enum { M = 3, D = 21, STRIDE = 60 };
	rng r = {14};
	(void)state;
	for (size_t f = 0; f < N_FACES; f++) {
		for (size_t n = 0; n <= 50; n += 1 + n / 4) {
			numbers w = random_floats(&r, M * STRIDE, 1.0f, false), rows = random_rows(&r, &faces[f], n * D, false);
			float out[M * D], before[M * D];
			for (size_t i = 0; i < M * D; i++) {
				out[i] = before[i] = rng_float(&r);
			}
			faces[f].mix(ckv_kernels_c(), w.data, M, STRIDE, rows.data, n, D, out);
			for (size_t i = 0; i < M * D; i++) {
				double sum = (double)before[i], absolute = fabs(sum);
				for (size_t j = 0; j < n; j++) {
					double product =
					    (double)((float *)w.data)[i / D * STRIDE + j] * number(&faces[f], rows.data, j * D + i % D);
					sum += product;
					absolute += fabs(product);
				}
				CHECK(fabs(sum - (double)out[i]) <= 6e-8 * (double)n * absolute, "%s: n %zu, element %zu is %g",
				      faces[f].mix_name, n, i, (double)out[i]);
			}
			free(w.memory);
			free(rows.memory);
		}
	}
}

/* 1 after 2^30 is lost, 1 after both is not: rows are added one after another. */
static void mix_takes_the_rows_in_order(void **state) {
	static const float weight[] = {0x1p30f, 1.0f, -0x1p30f, 1.0f};
	(void)state;
	for (size_t f = 0; f < N_FACES; f++) {
		numbers rows = numbers_make(4, faces[f].size, 0);
		float out = 0.0f;
		for (size_t j = 0; j < 4; j++) {
			put_number(&faces[f], rows.data, j, 1.0f);
		}
		faces[f].mix(ckv_kernels_c(), weight, 1, 4, rows.data, 4, 1, &out);
		assert_true(out == 1.0f);
		free(rows.memory);
	}
}

/* ---------------------------------------------------------------- unpack */

static numbers random_codes(rng *r, size_t n, int bits) {
	size_t size = (n * (size_t)bits + 7) / 8;
	numbers x = numbers_make(size, 1, (size_t)rng_range(r, 0, 3));
	for (size_t i = 0; i < size; i++) {
		((uint8_t *)x.data)[i] = (uint8_t)rng_bits(r);
	}
	return x;
}

static void check_unpack_case(const ckv_kernels *t, rng *r, int bits, size_t n, bool extremes) {
	numbers packed = random_codes(r, n, bits);
	numbers scale = random_floats(r, n, 2.0f, extremes), zero = random_floats(r, n, 100.0f, extremes);
	guarded a = guarded_make(n), b = guarded_make(n);
	ckv_kernels_c()->unpack(packed.data, bits, scale.data, zero.data, n, a.data);
	t->unpack(packed.data, bits, scale.data, zero.data, n, b.data);
	check_same(&a, &b, t->isa, "unpack", (size_t)bits * 1000 + n);
	free(packed.memory);
	free(scale.memory);
	free(zero.memory);
	free(a.memory);
	free(b.memory);
}

static void check_unpack(const ckv_kernels *t) {
	rng r = {15};
	for (int bits = 1; bits <= 8; bits++) {
		for (size_t n = 0; n <= 70; n++) {
			check_unpack_case(t, &r, bits, n, false);
			check_unpack_case(t, &r, bits, n, true);
		}
		check_unpack_case(t, &r, bits, 1000, false);
	}
}

static void unpack_is_bit_for_bit_the_same_everywhere(void **state) {
	(void)state;
	for_each_table(check_unpack);
}

/* Bit by bit; volatile, so that the product is a float before the sum. */
static void unpack_reads_the_lowest_bits_first_in_c(void **state) {
	enum { N = 100 };
	rng r = {16};
	(void)state;
	for (int bits = 1; bits <= 8; bits++) {
		numbers packed = random_codes(&r, N, bits), scale = random_floats(&r, N, 2.0f, false);
		numbers zero = random_floats(&r, N, 2.0f, false);
		float out[N];
		ckv_kernels_c()->unpack(packed.data, bits, scale.data, zero.data, N, out);
		for (int i = 0; i < N; i++) {
			int code = 0;
			for (int k = 0; k < bits; k++) {
				int bit = i * bits + k;
				code += (((uint8_t *)packed.data)[bit / 8] >> (bit % 8) & 1) << k;
			}
			volatile float product = (float)code * ((float *)scale.data)[i];
			volatile float expected = product + ((float *)zero.data)[i];
			CHECK(same(out[i], expected), "%d bits, number %d is %a instead of %a", bits, i, (double)out[i],
			      (double)expected);
		}
		free(packed.memory);
		free(scale.memory);
		free(zero.memory);
	}
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(dot_is_the_dot_product_in_c),
	    cmocka_unit_test(a_product_is_summed_in_16_lanes_then_as_a_tree),
	    cmocka_unit_test(dot_is_bit_for_bit_the_same_everywhere),
	    cmocka_unit_test(dot_keeps_the_sign_of_zero_everywhere),
	    cmocka_unit_test(mix_adds_the_weighted_rows_in_c),
	    cmocka_unit_test(mix_takes_the_rows_in_order),
	    cmocka_unit_test(mix_is_bit_for_bit_the_same_everywhere),
	    cmocka_unit_test(unpack_reads_the_lowest_bits_first_in_c),
	    cmocka_unit_test(unpack_is_bit_for_bit_the_same_everywhere),
	};
	return cmocka_run_group_tests_name("kernels_attend", tests, NULL, NULL);
}
