/* checkasm of the kernels of scoring, and which table a machine gets. */
#include "checkasm.h"

static const size_t sizes[] = {0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 1000};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

/* ----------------------------------------------------- half to single */

typedef void (*widen)(const uint16_t *in, float *out, size_t n);

/* Independent of the library: by the definition of the format. */
static float f16_value(uint16_t h) {
	int exponent = (h >> 10) & 31, mantissa = h & 1023;
	float magnitude = exponent == 31  ? (mantissa ? NAN : INFINITY)
	                  : exponent == 0 ? ldexpf((float)mantissa, -24)
	                                  : ldexpf((float)(1024 + mantissa), exponent - 25);
	return h & 0x8000 ? -magnitude : magnitude;
}

static float bf16_value(uint16_t h) {
	int exponent = (h >> 7) & 255, mantissa = h & 127;
	float magnitude = exponent == 255 ? (mantissa ? NAN : INFINITY)
	                  : exponent == 0 ? ldexpf((float)mantissa, -133)
	                                  : ldexpf((float)(128 + mantissa), exponent - 134);
	return h & 0x8000 ? -magnitude : magnitude;
}

static void check_all_halves(widen convert, float (*value)(uint16_t), const char *what) {
	uint16_t *in = test_memory(65536, sizeof *in);
	guarded out = guarded_make(65536);
	for (size_t i = 0; i < 65536; i++) {
		in[i] = (uint16_t)i;
	}
	convert(in, out.data, 65536);
	for (size_t i = 0; i < 65536; i++) {
		CHECK(same(out.data[i], value((uint16_t)i)), "%s %04zx is %a", what, i, (double)out.data[i]);
	}
	assert_true(guards_hold(&out));
	free(in);
	free(out.memory);
}

/* All values at every place of the vector loop and its tail. */
static void check_widen_sizes(widen reference, widen other, const char *isa, const char *what) {
	rng r = {1};
	for (size_t i = 0; i < N_SIZES; i++) {
		for (int repeat = 0; repeat < 20; repeat++) {
			size_t n = sizes[i];
			uint16_t *in = test_memory(n, sizeof *in);
			guarded a = guarded_make(n), b = guarded_make(n);
			for (size_t j = 0; j < n; j++) {
				in[j] = (uint16_t)rng_bits(&r);
			}
			reference(in, a.data, n);
			other(in, b.data, n);
			check_same(&a, &b, isa, what, n);
			free(in);
			free(a.memory);
			free(b.memory);
		}
	}
}

static void check_halves(const ckv_kernels *t) {
	check_all_halves(t->f16_to_f32, f16_value, "f16");
	check_all_halves(t->bf16_to_f32, bf16_value, "bf16");
	check_widen_sizes(ckv_kernels_c()->f16_to_f32, t->f16_to_f32, t->isa, "f16_to_f32");
	check_widen_sizes(ckv_kernels_c()->bf16_to_f32, t->bf16_to_f32, t->isa, "bf16_to_f32");
}

static void all_65536_halves_widen_exactly_in_c(void **state) {
	(void)state;
	check_halves(ckv_kernels_c());
}

static void all_65536_halves_widen_exactly_everywhere(void **state) {
	(void)state;
	for_each_table(check_halves);
}

/* ------------------------------------------------------------------ pack */

static void check_pack(const ckv_kernels *t) {
	for (size_t d = 1; d <= 150; d++) {
		rng r = {d};
		float *rows = exact_floats(&r, CKV_LANES * d, 1.0f);
		guarded panel = guarded_make(CKV_LANES * d);
		t->pack(rows, d, panel.data);
		for (size_t c = 0; c < d; c++) {
			for (size_t j = 0; j < CKV_LANES; j++) {
				CHECK(same(panel.data[c * CKV_LANES + j], rows[j * d + c]), "%s: d %zu, row %zu, column %zu", t->isa, d, j,
				      c);
			}
		}
		CHECK(guards_hold(&panel), "%s: d %zu", t->isa, d);
		free(rows);
		free(panel.memory);
	}
}

static void pack_transposes_in_c(void **state) {
	(void)state;
	check_pack(ckv_kernels_c());
}

static void pack_transposes_everywhere(void **state) {
	(void)state;
	for_each_table(check_pack);
}

/* -------------------------------------------------------------------- qk */

static void check_qk_case(const ckv_kernels *t, rng *r, size_t m, size_t d, size_t stride, bool extremes) {
	float *q = exact_floats(r, m * d, 3.0f), *panel = exact_floats(r, d * CKV_LANES, 3.0f), scale = rng_float(r);
	size_t n = m ? (m - 1) * stride + CKV_LANES : 0;
	guarded a = guarded_make(n), b = guarded_make(n);
	if (extremes) {
		add_extremes(r, q, m * d);
		add_extremes(r, panel, d * CKV_LANES);
	}
	ckv_kernels_c()->qk(q, m, d, panel, scale, a.data, stride);
	t->qk(q, m, d, panel, scale, b.data, stride);
	check_same(&a, &b, t->isa, "qk", m * 1000 + d);
	for (size_t i = 0; i + 1 < m; i++) {
		CHECK(is_painted(b.data + i * stride + CKV_LANES, (stride - CKV_LANES) * sizeof(float)), "%s: m %zu, d %zu, row %zu",
		      t->isa, m, d, i);
	}
	free(q);
	free(panel);
	free(a.memory);
	free(b.memory);
}

static void check_qk(const ckv_kernels *t) {
	static const size_t dims[] = {1, 2, 3, 7, 8, 9, 15, 16, 17, 40, 63, 64, 65, 80, 128, 1000};
	rng r = {3};
	for (size_t m = 0; m <= 13; m++) {
		for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
			check_qk_case(t, &r, m, dims[i], CKV_LANES, false);
			check_qk_case(t, &r, m, dims[i], CKV_LANES + 13, true);
		}
	}
}

/* In double, with room for one rounding a step. */
static void qk_is_the_dot_product_in_c(void **state) {
	rng r = {4};
	(void)state;
	for (size_t d = 1; d <= 200; d += 1 + d / 5) {
		enum { M = 3, STRIDE = 20 };
		float *q = exact_floats(&r, M * d, 1.0f), *panel = exact_floats(&r, d * CKV_LANES, 1.0f), out[M * STRIDE];
		ckv_kernels_c()->qk(q, M, d, panel, 0.25f, out, STRIDE);
		for (size_t i = 0; i < M; i++) {
			for (size_t j = 0; j < CKV_LANES; j++) {
				double sum = 0.0;
				for (size_t c = 0; c < d; c++) {
					sum += (double)q[i * d + c] * (double)panel[c * CKV_LANES + j];
				}
				double error = fabs(0.25 * sum - (double)out[i * STRIDE + j]);
				CHECK(error <= 6e-8 * (double)d, "d %zu, query %zu, key %zu: off by %g", d, i, j, error);
			}
		}
		free(q);
		free(panel);
	}
}

static void qk_is_bit_for_bit_the_same_everywhere(void **state) {
	(void)state;
	for_each_table(check_qk);
}

/* --------------------------------------------------------------- exp_sum */

typedef void (*fill)(rng *r, float *x, size_t n);

static void fill_near(rng *r, float *x, size_t n) {
	for (size_t i = 0; i < n; i++) {
		x[i] = 10.0f * rng_float(r);
	}
}

static void fill_far(rng *r, float *x, size_t n) {
	for (size_t i = 0; i < n; i++) {
		x[i] = 200.0f * rng_float(r);
	}
}

static void fill_equal(rng *r, float *x, size_t n) {
	float value = 1000.0f * rng_float(r);
	for (size_t i = 0; i < n; i++) {
		x[i] = value;
	}
}

static void fill_huge(rng *r, float *x, size_t n) {
	for (size_t i = 0; i < n; i++) {
		x[i] = 3e38f * rng_float(r);
	}
}

static void fill_hidden(rng *r, float *x, size_t n) {
	for (size_t i = 0; i < n; i++) {
		x[i] = rng_chance(r, 3) ? -INFINITY : 5.0f * rng_float(r);
	}
}

static void fill_all_hidden(rng *r, float *x, size_t n) {
	(void)r;
	for (size_t i = 0; i < n; i++) {
		x[i] = -INFINITY;
	}
}

static void fill_not_finite(rng *r, float *x, size_t n) {
	fill_near(r, x, n);
	x[rng_range(r, 0, (int32_t)n - 1)] = rng_chance(r, 2) ? NAN : INFINITY;
}

static void fill_zeros(rng *r, float *x, size_t n) {
	for (size_t i = 0; i < n; i++) {
		x[i] = rng_chance(r, 2) ? -0.0f : 0.0f;
	}
}

/* Around the border below which exp is 0. */
static void fill_border(rng *r, float *x, size_t n) {
	for (size_t i = 0; i < n; i++) {
		x[i] = -87.336f + 1e-4f * rng_float(r);
	}
	x[n / 2] = 0.0f;
}

static void check_exp_case(const ckv_kernels *t, rng *r, fill values, size_t n) {
	guarded a = guarded_make(n), b = guarded_make(n);
	values(r, a.data, n);
	memcpy(b.data, a.data, n * sizeof *a.data);
	float sum_a = ckv_kernels_c()->exp_sum(a.data, n), sum_b = t->exp_sum(b.data, n);
	check_same(&a, &b, t->isa, "exp_sum", n);
	CHECK(same(sum_a, sum_b), "%s exp_sum, size %zu: the sum is %a instead of %a", t->isa, n, (double)sum_b, (double)sum_a);
	free(a.memory);
	free(b.memory);
}

static void check_exp(const ckv_kernels *t) {
	static const fill fills[] = {fill_near,       fill_far,        fill_equal, fill_huge,  fill_hidden,
	                             fill_all_hidden, fill_not_finite, fill_zeros, fill_border};
	rng r = {5};
	for (size_t f = 0; f < sizeof fills / sizeof *fills; f++) {
		for (size_t i = 1; i < N_SIZES; i++) {
			for (int repeat = 0; repeat < 10; repeat++) {
				check_exp_case(t, &r, fills[f], sizes[i]);
			}
		}
	}
}

static void exp_sum_is_bit_for_bit_the_same_everywhere(void **state) {
	(void)state;
	for_each_table(check_exp);
}

/* The maximum is at the end as often as at the start, so that a loop that forgets its tail shows. */
static void exp_sum_subtracts_the_maximum_wherever_it_is(void **state) {
	(void)state;
	for (size_t n = 1; n <= 40; n++) {
		for (size_t top = 0; top < n; top++) {
			float x[40], sum;
			double expected = 1.0;
			for (size_t i = 0; i < n; i++) {
				x[i] = 50.0f - (float)(i % 7);
			}
			x[top] = 60.0f;
			for (size_t i = 0; i < n; i++) {
				expected += i == top ? 0.0 : exp(-10.0 - (double)(i % 7));
			}
			sum = ckv_kernels_c()->exp_sum(x, n);
			CHECK(x[top] == 1.0f && fabs((double)sum - expected) < 1e-6 * expected, "size %zu, maximum at %zu", n, top);
		}
	}
}

/* exp over [-87.336, 0]: relative error below 3e-7; below it, and of -inf, 0. The maximum, 0, stands in front. */
static void exp_is_accurate_to_3e_7(void **state) {
	enum { BATCH = 1000, BATCHES = 400 };
	float x[BATCH], y[BATCH];
	rng r = {6};
	(void)state;
	for (int b = 0; b < BATCHES; b++) {
		x[0] = 0.0f;
		for (int i = 1; i < BATCH; i++) {
			double even = -87.336 * ((double)b * BATCH + i) / ((double)BATCHES * BATCH);
			x[i] = rng_chance(&r, 2) ? (float)even : -ldexpf(1.0f + fabsf(rng_float(&r)), rng_range(&r, -30, 5));
		}
		memcpy(y, x, sizeof x);
		double sum = 0.0, returned = (double)ckv_kernels_c()->exp_sum(y, BATCH);
		for (int i = 0; i < BATCH; i++) {
			double exact = exp((double)x[i]);
			CHECK(fabs((double)y[i] - exact) <= 3e-7 * exact, "exp(%.9g) became %.9g", (double)x[i], (double)y[i]);
			sum += (double)y[i];
		}
		CHECK(fabs(returned - sum) <= 1e-5 * sum, "the sum is %g instead of %g", returned, sum);
	}
}

static void exp_vanishes_below_the_smallest_normal(void **state) {
	float x[] = {0.0f, -87.336f, -87.33601f, -88.0f, -104.0f, -1000.0f, -3e38f, -INFINITY};
	(void)state;
	float sum = ckv_kernels_c()->exp_sum(x, sizeof x / sizeof *x);
	assert_true(x[0] == 1.0f && x[1] > 0.0f && sum == 1.0f);
	for (size_t i = 2; i < sizeof x / sizeof *x; i++) {
		CHECK(x[i] == 0.0f && !signbit(x[i]), "entry %zu is %g", i, (double)x[i]);
	}
}

/* ------------------------------------------------------------------ axpy */

static void check_axpy(const ckv_kernels *t) {
	rng r = {7};
	for (size_t i = 0; i < N_SIZES; i++) {
		for (int repeat = 0; repeat < 20; repeat++) {
			size_t n = sizes[i];
			float *x = exact_floats(&r, n, 1.0f), factor = 2.0f * rng_float(&r);
			guarded a = guarded_make(n), b = guarded_make(n);
			fill_near(&r, a.data, n);
			if (repeat % 2) {
				add_extremes(&r, x, n);
				add_extremes(&r, a.data, n);
			}
			memcpy(b.data, a.data, n * sizeof *a.data);
			ckv_kernels_c()->axpy(a.data, x, factor, n);
			t->axpy(b.data, x, factor, n);
			check_same(&a, &b, t->isa, "axpy", n);
			free(x);
			free(a.memory);
			free(b.memory);
		}
	}
}

static void axpy_is_a_fused_multiply_add_in_c(void **state) {
	rng r = {8};
	float x[100], y[100], before[100];
	(void)state;
	fill_near(&r, x, 100);
	fill_near(&r, y, 100);
	memcpy(before, y, sizeof y);
	ckv_kernels_c()->axpy(y, x, 0.3f, 100);
	for (size_t i = 0; i < 100; i++) {
		CHECK(same(y[i], fmaf(0.3f, x[i], before[i])), "element %zu", i);
	}
}

static void axpy_is_bit_for_bit_the_same_everywhere(void **state) {
	(void)state;
	for_each_table(check_axpy);
}

/* -------------------------------------------------------------- dispatch */

static void without_features_the_c_table_is_used(void **state) {
	(void)state;
	assert_ptr_equal(ckv_kernels_get(0), ckv_kernels_c());
	assert_string_equal(ckv_kernels_c()->isa, "c");
}

static void every_feature_of_the_machine_has_a_table(void **state) {
	const ckv_kernels *tables[MAX_TABLES];
	size_t n = other_tables(tables);
	(void)state;
	assert_true((n > 0) == (ckv_cpu_features() != 0));
	for (size_t i = 0; i < n; i++) {
		assert_true(tables[i]->f16_to_f32 && tables[i]->bf16_to_f32 && tables[i]->pack && tables[i]->qk);
		assert_true(tables[i]->exp_sum && tables[i]->axpy && tables[i]->dot_f16 && tables[i]->dot_f32);
		assert_true(tables[i]->mix_f16 && tables[i]->mix_f32 && tables[i]->unpack && strcmp(tables[i]->isa, "c") != 0);
	}
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(without_features_the_c_table_is_used),
	    cmocka_unit_test(every_feature_of_the_machine_has_a_table),
	    cmocka_unit_test(all_65536_halves_widen_exactly_in_c),
	    cmocka_unit_test(all_65536_halves_widen_exactly_everywhere),
	    cmocka_unit_test(pack_transposes_in_c),
	    cmocka_unit_test(pack_transposes_everywhere),
	    cmocka_unit_test(qk_is_the_dot_product_in_c),
	    cmocka_unit_test(qk_is_bit_for_bit_the_same_everywhere),
	    cmocka_unit_test(exp_sum_is_bit_for_bit_the_same_everywhere),
	    cmocka_unit_test(exp_sum_subtracts_the_maximum_wherever_it_is),
	    cmocka_unit_test(exp_is_accurate_to_3e_7),
	    cmocka_unit_test(exp_vanishes_below_the_smallest_normal),
	    cmocka_unit_test(axpy_is_a_fused_multiply_add_in_c),
	    cmocka_unit_test(axpy_is_bit_for_bit_the_same_everywhere),
	};
	return cmocka_run_group_tests_name("kernels", tests, NULL, NULL);
}
