/* Low-rank bases: what a fit must be whatever decomposed it, and the refusal of builds that cannot decompose. */
#include "support.h"

#include "quant/quant.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_HEADS = 8 };

/* Heads of rows, each its own array. */
typedef struct heads {
	int32_t n, dim;
	int32_t n_rows[MAX_HEADS];
	float *rows[MAX_HEADS];
	const float *view[MAX_HEADS];
} heads;

/* Numbers about some mean, of falling spread along the channels. */
static heads heads_make(rng *r, int32_t n, int32_t dim, const int32_t *n_rows) {
	heads h = {.n = n, .dim = dim};
	for (int32_t i = 0; i < n; i++) {
		size_t count = (size_t)n_rows[i] * (size_t)dim;
		h.n_rows[i] = n_rows[i];
		h.view[i] = h.rows[i] = test_memory(count, sizeof(float));
		for (size_t j = 0; j < count; j++) {
			size_t c = j % (size_t)dim;
			h.rows[i][j] = 3.0f * rng_float(r) / (float)(c + 1) + (float)(c % 3) - 1.0f;
		}
	}
	return h;
}

static heads heads_even(rng *r, int32_t n, int32_t dim, int32_t rows) {
	int32_t n_rows[MAX_HEADS];
	for (int32_t i = 0; i < n; i++) {
		n_rows[i] = rows;
	}
	return heads_make(r, n, dim, n_rows);
}

static void heads_free(heads *h) {
	for (int32_t i = 0; i < h->n; i++) {
		free(h->rows[i]);
	}
}

static ckv_status try_fit(const ckv_allocator *a, const heads *h, ckv_low_rank_options options, ckv_low_rank *fit,
                          ckv_error *error) {
	return ckv_low_rank_fit(a, h->view, h->n_rows, h->n, h->dim, &options, fit, error);
}

static ckv_low_rank make_fit(const heads *h, int32_t rank, double energy, int32_t n_groups) {
	ckv_allocator a = ckv_allocator_default();
	ckv_low_rank fit;
	ckv_error error;
	CHECK(try_fit(&a, h, (ckv_low_rank_options){rank, n_groups, energy}, &fit, &error) == CKV_OK, "%s", error.message);
	assert_int_equal(fit.dim, h->dim);
	assert_int_equal(fit.n_heads, h->n);
	return fit;
}

static void check_near(double found, double expected, double within, const char *what) {
	CHECK(fabs(found - expected) <= within, "%s: %.9g, not %.9g", what, found, expected);
}

static void fit_free(ckv_low_rank *fit) {
	ckv_allocator a = ckv_allocator_default();
	ckv_low_rank_free(&a, fit);
	assert_null(fit->basis);
}

static float *column(const ckv_low_rank *fit, int32_t group, int32_t k) {
	return fit->basis + (size_t)group * (size_t)fit->dim * (size_t)fit->rank + k;
}

static double dot_columns(const ckv_low_rank *fit, int32_t group, int32_t a, int32_t b) {
	double sum = 0.0;
	for (size_t c = 0; c < (size_t)fit->dim; c++) {
		sum += (double)column(fit, group, a)[c * (size_t)fit->rank] * (double)column(fit, group, b)[c * (size_t)fit->rank];
	}
	return sum;
}

/* Sum of squares of what there and back loses of a head's rows, and the largest of them. */
static double loss(const ckv_low_rank *fit, const heads *h, int32_t head, double *largest) {
	size_t n = (size_t)h->n_rows[head], dim = (size_t)h->dim, rank = (size_t)fit->rank;
	float *latents = test_memory(n * rank, sizeof *latents), *back = test_memory(n * dim, sizeof *back);
	ckv_low_rank_project(fit, head, h->rows[head], n, latents);
	ckv_low_rank_expand(fit, head, latents, n, back);
	double sum = 0.0;
	*largest = 0.0;
	for (size_t i = 0; i < n * dim; i++) {
		double lost = (double)back[i] - (double)h->rows[head][i];
		sum += lost * lost;
		*largest = fmax(*largest, fabs(lost));
	}
	free(latents);
	free(back);
	return sum;
}

/* ------------------------------------------------------------------------------------------------- properties of a fit */

static void columns_are_orthonormal_and_of_one_sign(void **state) {
	(void)state;
	rng r = {1};
	heads h = heads_even(&r, 4, 24, 50);
	ckv_low_rank fit = make_fit(&h, 24, 0.0, 2);
	assert_int_equal(fit.rank, 24);
	for (int32_t g = 0; g < 2; g++) {
		for (int32_t a = 0; a < fit.rank; a++) {
			float top = 0.0f;
			for (int32_t b = 0; b <= a; b++) {
				CHECK(fabs(dot_columns(&fit, g, a, b) - (a == b)) < 1e-6, "group %d, columns %d and %d", g, a, b);
			}
			for (size_t c = 0; c < 24; c++) {
				float x = column(&fit, g, a)[c * 24];
				top = fabsf(x) > fabsf(top) ? x : top;
			}
			CHECK(top > 0.0f, "group %d, column %d", g, a);
		}
	}
	fit_free(&fit);
	heads_free(&h);
}

static void full_rank_gives_every_row_back(void **state) {
	(void)state;
	rng r = {2};
	const int32_t dims[] = {1, 2, 7, 8, 31, 64};
	for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
		heads h = heads_even(&r, 3, dims[i], 80);
		ckv_low_rank fit = make_fit(&h, dims[i], 0.0, 2);
		assert_int_equal(fit.rank, dims[i]);
		for (int32_t head = 0; head < 3; head++) {
			double largest;
			loss(&fit, &h, head, &largest);
			CHECK(largest < 4e-6, "%d channels, head %d: %g", dims[i], head, largest);
		}
		fit_free(&fit);
		heads_free(&h);
	}
}

/* The squares that a rank loses of all rows are those of the singular values that it leaves out (Eckart, Young 1936). */
static void lost_squares_are_the_singular_values_left_out(void **state) {
	(void)state;
	rng r = {3};
	heads h = heads_even(&r, 2, 16, 60);
	ckv_low_rank whole = make_fit(&h, 16, 0.0, 1);
	for (int32_t rank = 15; rank >= 1; rank--) {
		ckv_low_rank fit = make_fit(&h, rank, 0.0, 1);
		double largest, lost = loss(&fit, &h, 0, &largest) + loss(&fit, &h, 1, &largest), expected = 0.0;
		assert_int_equal(fit.rank, rank);
		check_bits(whole.singular, fit.singular, (size_t)rank, "singular values of a lower rank");
		for (int32_t k = rank; k < 16; k++) {
			CHECK(whole.singular[k] <= whole.singular[k - 1], "value %d", k);
			expected += pow((double)whole.singular[k], 2.0);
		}
		CHECK(expected > 0.1 && fabs(lost - expected) < 1e-5 * expected, "rank %d: %g lost, not %g", rank, lost, expected);
		fit_free(&fit);
	}
	fit_free(&whole);
	heads_free(&h);
}

static void the_mean_is_that_of_all_rows_of_the_group(void **state) {
	(void)state;
	rng r = {4};
	heads h = heads_make(&r, 3, 5, (const int32_t[]){10, 3, 20});
	ckv_low_rank fit = make_fit(&h, 2, 0.0, 2); /* heads 0 and 1, head 2 */
	for (size_t c = 0; c < 5; c++) {
		double sum[3] = {0.0};
		for (size_t head = 0; head < 3; head++) {
			for (size_t i = 0; i < (size_t)h.n_rows[head]; i++) {
				sum[head] += (double)h.rows[head][i * 5 + c];
			}
		}
		check_near((double)fit.mean[c], (sum[0] + sum[1]) / 13.0, 2e-7, "first mean");
		check_near((double)fit.mean[5 + c], sum[2] / 20.0, 2e-7, "second mean");
	}
	fit_free(&fit);
	heads_free(&h);
}

/* ---------------------------------------------------------------------------------------------------------------- rank */

/* Rows 2 + a u + b w with a, b = +-1, all four pairs of signs alike, u and w along two channels: two singular values. */
static heads plane(rng *r, int32_t dim, double length_u, double length_w) {
	heads h = heads_even(r, 1, dim, 40);
	for (size_t i = 0; i < 40; i++) {
		for (size_t c = 0; c < (size_t)dim; c++) {
			double u = c == 1 ? length_u : 0.0, w = c == 3 ? length_w : 0.0;
			h.rows[0][i * (size_t)dim + c] = (float)(2.0 + (i & 1 ? u : -u) + (i & 2 ? w : -w));
		}
	}
	return h;
}

static void energy_is_a_share_of_the_sum_of_singular_values(void **state) {
	(void)state;
	rng r = {5};
	heads h = plane(&r, 6, 3.0, 1.0); /* 3 of 4 of the sum, 9 of 10 of the squares */
	const struct {
		double energy;
		int32_t rank;
	} cases[] = {{0.1, 1}, {0.74, 1}, {0.76, 2}, {0.89, 2}, {0.999, 2}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		ckv_low_rank fit = make_fit(&h, 0, cases[i].energy, 1);
		CHECK(fit.rank == cases[i].rank, "energy %g: rank %d", cases[i].energy, fit.rank);
		check_near((double)fit.singular[0], 3.0 * sqrt(40.0), 1e-5, "first singular value");
		double largest;
		loss(&fit, &h, 0, &largest);
		CHECK(fit.rank < 2 || largest < 1e-5, "a plane of rank %d loses %g", fit.rank, largest);
		fit_free(&fit);
	}
	heads_free(&h);
}

/* What rounding leaves in the other directions, be it an eigenvalue below 0, is as good as nothing. */
static void a_plane_in_any_direction_is_found(void **state) {
	(void)state;
	rng r = {17};
	for (int trial = 0; trial < 20; trial++) {
		heads h = heads_even(&r, 2, 24, 40), axes = heads_even(&r, 1, 24, 3);
		for (size_t i = 0; i < 80; i++) {
			float a = rng_float(&r), b = rng_float(&r);
			for (size_t c = 0; c < 24; c++) {
				const float *axis = axes.rows[0] + c;
				h.rows[i / 40][i % 40 * 24 + c] = axis[0] + a * axis[24] + b * axis[48];
			}
		}
		ckv_low_rank fit = make_fit(&h, 0, 0.9999, 1), whole = make_fit(&h, 24, 0.0, 1);
		CHECK(fit.rank == 2, "trial %d: rank %d", trial, fit.rank);
		for (int32_t k = 2; k < 24; k++) {
			CHECK(whole.singular[k] >= 0.0f && whole.singular[k] < 1e-6f * whole.singular[0], "trial %d, value %d: %g",
			      trial, k, (double)whole.singular[k]);
		}
		fit_free(&fit);
		fit_free(&whole);
		heads_free(&h);
		heads_free(&axes);
	}
}

static void every_group_gets_the_smallest_rank(void **state) {
	(void)state;
	rng r = {6};
	heads flat = plane(&r, 6, 3.0, 1.0), h = heads_make(&r, 2, 6, (const int32_t[]){50, 40});
	memcpy(h.rows[1], flat.rows[0], sizeof(float) * 40 * 6);
	ckv_low_rank alone = make_fit(&flat, 0, 0.8, 1), fit = make_fit(&h, 0, 0.8, 2);
	assert_int_equal(alone.rank, 2);
	assert_int_equal(fit.rank, 2);
	check_bits(alone.basis, fit.basis + 12, 12, "a group's basis");
	h.n = 1;
	ckv_low_rank other = make_fit(&h, 0, 0.8, 1);
	assert_true(other.rank > 2);
	h.n = 2;
	fit_free(&alone);
	fit_free(&fit);
	fit_free(&other);
	heads_free(&h);
	heads_free(&flat);
}

static void the_rank_is_at_most_what_there_is(void **state) {
	(void)state;
	rng r = {7};
	const struct {
		int32_t rows, rank, expected;
	} cases[] = {{1, 4, 1}, {2, 4, 2}, {3, 100, 3}, {9, 100, 8}, {9, 5, 5}, {1, 0, 1}, {3, 0, 3}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		heads h = heads_even(&r, 1, 8, cases[i].rows);
		ckv_low_rank fit = make_fit(&h, cases[i].rank, 2.0, 1);
		CHECK(fit.rank == cases[i].expected, "%d rows, rank %d: %d", cases[i].rows, cases[i].rank, fit.rank);
		double largest;
		loss(&fit, &h, 0, &largest);
		CHECK(cases[i].rows > 8 || fit.rank < cases[i].rows || largest < 1e-5, "%d rows: %g", cases[i].rows, largest);
		fit_free(&fit);
		heads_free(&h);
	}
}

static void equal_rows_are_their_mean(void **state) {
	(void)state;
	rng r = {8};
	heads h = heads_even(&r, 2, 8, 11);
	for (size_t i = 0; i < 22; i++) {
		memcpy(h.rows[i / 11] + i % 11 * 8, h.rows[0], 8 * sizeof(float));
	}
	ckv_low_rank fit = make_fit(&h, 0, 0.9, 1);
	assert_int_equal(fit.rank, 1);
	assert_true(fit.singular[0] == 0.0f);
	double largest;
	assert_true(loss(&fit, &h, 0, &largest) == 0.0);
	fit_free(&fit);
	heads_free(&h);
}

/* -------------------------------------------------------------------------------------------------------------- groups */

static void larger_groups_come_first(void **state) {
	(void)state;
	const struct {
		int32_t heads, groups;
		int32_t of[MAX_HEADS];
	} cases[] = {{8, 4, {0, 0, 1, 1, 2, 2, 3, 3}},
	             {5, 2, {0, 0, 0, 1, 1}},
	             {7, 3, {0, 0, 0, 1, 1, 2, 2}},
	             {3, 3, {0, 1, 2}},
	             {3, 9, {0, 1, 2}},
	             {4, 1, {0, 0, 0, 0}}};
	rng r = {9};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		heads h = heads_even(&r, cases[i].heads, 4, 6);
		ckv_low_rank fit = make_fit(&h, 4, 0.0, cases[i].groups);
		assert_int_equal(fit.n_groups, cases[i].of[cases[i].heads - 1] + 1);
		for (int32_t head = 0; head < cases[i].heads; head++) {
			CHECK(ckv_low_rank_group(&fit, head) == cases[i].of[head], "case %zu, head %d: group %d", i, head,
			      ckv_low_rank_group(&fit, head));
			double largest; /* every head is fitted where it is projected */
			loss(&fit, &h, head, &largest);
			CHECK(largest < 4e-6, "case %zu, head %d: %g", i, head, largest);
		}
		fit_free(&fit);
		heads_free(&h);
	}
}

/* Rows of heads count as those of one head that has them all. */
static void a_group_is_its_rows_whatever_heads_they_are_of(void **state) {
	(void)state;
	rng r = {10};
	heads h = heads_make(&r, 4, 6, (const int32_t[]){13, 1, 0, 30}), one = heads_even(&r, 1, 6, 44);
	size_t at = 0;
	for (int32_t i = 0; i < 4; i++) {
		memcpy(one.rows[0] + at, h.rows[i], (size_t)h.n_rows[i] * 6 * sizeof(float));
		at += (size_t)h.n_rows[i] * 6;
	}
	ckv_low_rank fit = make_fit(&h, 6, 0.0, 1), expected = make_fit(&one, 6, 0.0, 1);
	for (size_t i = 0; i < 6; i++) {
		check_near((double)fit.mean[i], (double)expected.mean[i], 2e-7, "mean");
		check_near((double)fit.singular[i], (double)expected.singular[i], 1e-6 * (double)expected.singular[0],
		           "singular value");
	}
	for (size_t i = 0; i < 36; i++) {
		check_near((double)fit.basis[i], (double)expected.basis[i], 1e-6, "basis");
	}
	fit_free(&fit);
	fit_free(&expected);
	heads_free(&h);
	heads_free(&one);
}

static void a_group_without_rows_does_not_lower_the_rank(void **state) {
	(void)state;
	rng r = {11};
	heads h = heads_make(&r, 2, 6, (const int32_t[]){0, 30});
	h.view[0] = NULL;
	ckv_low_rank fit = make_fit(&h, 4, 0.0, 2);
	assert_int_equal(fit.rank, 4);
	for (int32_t k = 0; k < 4; k++) {
		check_near(dot_columns(&fit, 0, k, k), 1.0, 1e-6, "length");
		assert_true(fit.singular[k] == 0.0f);
	}
	fit_free(&fit);
	heads_free(&h);
}

static void a_copy_is_its_own(void **state) {
	(void)state;
	rng r = {12};
	heads h = heads_even(&r, 3, 6, 20);
	ckv_low_rank fit = make_fit(&h, 4, 0.0, 2), copy;
	counting c;
	counting_init(&c);
	assert_int_equal(ckv_low_rank_copy(&c.allocator, &fit, &copy), CKV_OK);
	assert_int_equal(c.live, 3);
	check_bits(fit.mean, copy.mean, 12, "means");
	check_bits(fit.basis, copy.basis, 48, "bases");
	check_bits(fit.singular, copy.singular, 8, "singular values");
	float row[6], back[6], latent[4];
	fit_free(&fit);
	memcpy(row, h.rows[2], sizeof row);
	ckv_low_rank_project(&copy, 2, row, 1, latent);
	ckv_low_rank_expand(&copy, 2, latent, 1, back);
	ckv_low_rank_free(&c.allocator, &copy);
	assert_int_equal(c.live, 0);
	heads_free(&h);
}

/* ------------------------------------------------------------------------------------------------------------ refusals */

static void refused(const heads *h, ckv_low_rank_options options, ckv_status expected, const char *word) {
	counting c;
	ckv_low_rank fit;
	ckv_error error = {CKV_OK, ""};
	counting_init(&c);
	paint(&fit, sizeof fit);
	assert_int_equal(try_fit(&c.allocator, h, options, &fit, &error), expected);
	CHECK(error.status == expected && strstr(error.message, word), "'%s' has no '%s'", error.message, word);
	assert_int_equal(try_fit(&c.allocator, h, options, &fit, NULL), expected);
	assert_true(is_painted(&fit, sizeof fit));
	assert_int_equal(c.live, 0);
}

static void rows_that_are_not_finite_are_refused_by_head_and_row(void **state) {
	(void)state;
	rng r = {13};
	heads h = heads_even(&r, 2, 6, 20);
	const float bad[] = {NAN, INFINITY, -INFINITY};
	for (size_t i = 0; i < 3; i++) {
		float was = h.rows[1][42 + i * 2];
		h.rows[1][42 + i * 2] = bad[i];
		refused(&h, (ckv_low_rank_options){4, 2, 0.0}, CKV_ERR_NUMERIC, "head 1, row 7:");
		h.rows[1][42 + i * 2] = was;
	}
	heads_free(&h);
}

static void senseless_arguments_are_refused(void **state) {
	(void)state;
	rng r = {14};
	heads h = heads_even(&r, 2, 6, 20), bad = h;
	refused(&h, (ckv_low_rank_options){-1, 2, 0.9}, CKV_ERR_ARG, "rank -1");
	refused(&h, (ckv_low_rank_options){0, 2, (double)NAN}, CKV_ERR_ARG, "energy");
	bad.dim = 0;
	refused(&bad, (ckv_low_rank_options){0, 2, 0.9}, CKV_ERR_ARG, "0 channels");
	bad = h;
	bad.dim = INT32_MAX;
	refused(&bad, (ckv_low_rank_options){0, 2, 0.9}, CKV_ERR_ARG, "2147483647 channels");
	bad = h;
	bad.n = 0;
	refused(&bad, (ckv_low_rank_options){0, 2, 0.9}, CKV_ERR_ARG, "0 heads");
	bad = h;
	bad.n_rows[1] = -1;
	refused(&bad, (ckv_low_rank_options){0, 2, 0.9}, CKV_ERR_ARG, "head 1: -1 rows");
	bad = h;
	bad.view[1] = NULL;
	refused(&bad, (ckv_low_rank_options){0, 2, 0.9}, CKV_ERR_ARG, "head 1: 20 rows");
	bad = h;
	bad.n_rows[0] = bad.n_rows[1] = 0;
	refused(&bad, (ckv_low_rank_options){0, 2, 0.9}, CKV_ERR_ARG, "no rows");
	heads_free(&h);
}

/* Each request fails once, alone and with all after it, until one is beyond the last. */
static void no_memory_changes_nothing(void **state) {
	(void)state;
	rng r = {15};
	heads h = heads_even(&r, 3, 6, 20);
	for (int stay = 0; stay < 2; stay++) {
		ckv_status status = CKV_ERR_NOMEM;
		for (long n = 1; status; n++) {
			counting c;
			ckv_low_rank fit, copy;
			ckv_error error = {CKV_OK, ""};
			counting_init(&c);
			c.refuse_in = n;
			c.stay = stay;
			paint(&fit, sizeof fit);
			paint(&copy, sizeof copy);
			status = try_fit(&c.allocator, &h, (ckv_low_rank_options){4, 2, 0.0}, &fit, &error);
			CHECK(status == CKV_OK ? n > 11 : is_painted(&fit, sizeof fit) && strstr(error.message, "memory"), "request %ld",
			      n);
			if (status == CKV_OK) {
				c.refuse_in = 0;
				for (long m = 1; m <= 3; m++) {
					c.refuse_in = m;
					assert_int_equal(ckv_low_rank_copy(&c.allocator, &fit, &copy), CKV_ERR_NOMEM);
					assert_true(is_painted(&copy, sizeof copy));
					assert_int_equal(c.live, 3);
				}
				ckv_low_rank_free(&c.allocator, &fit);
			} else {
				assert_int_equal(status, CKV_ERR_NOMEM);
			}
			assert_int_equal(c.live, 0);
		}
	}
	heads_free(&h);
}

/* ------------------------------------------------------------------------------------------------------ either build */

static void a_build_without_lapacke_says_what_is_missing(void **state) {
	(void)state;
	rng r = {16};
	heads h = heads_even(&r, 2, 6, 20);
	refused(&h, (ckv_low_rank_options){4, 2, 0.0}, CKV_ERR_UNSUPPORTED, "liblapacke-dev");
	heads_free(&h);
}

/* A hand-made fit, in any build: two groups of three heads, axes as bases. */
static void rows_go_to_their_groups_channels_and_back(void **state) {
	(void)state;
	float mean[] = {1.0f, 2.0f, 3.0f, 10.0f, 20.0f, 30.0f};
	float basis[] = {0.0f, 1.0f, 0.0f, 0.0f, 1.0f, 0.0f, /* channels 2 and 0 */
	                 1.0f, 0.0f, 0.0f, 1.0f, 0.0f, 0.0f};
	float singular[4] = {0.0f};
	ckv_low_rank fit = {3, 2, 3, 2, mean, basis, singular};
	const float rows[] = {5.0f, 7.0f, 9.0f, 1.5f, 2.5f, 3.5f};
	float latents[4], back[6];
	ckv_low_rank_project(&fit, 1, rows, 2, latents);
	check_bits((const float[]){6.0f, 4.0f, 0.5f, 0.5f}, latents, 4, "latents of the first group");
	ckv_low_rank_expand(&fit, 1, latents, 2, back);
	check_bits((const float[]){5.0f, 2.0f, 9.0f, 1.5f, 2.0f, 3.5f}, back, 6, "rows of the first group");
	ckv_low_rank_project(&fit, 2, rows, 1, latents);
	check_bits((const float[]){-5.0f, -13.0f}, latents, 2, "latents of the second group");
	ckv_low_rank_expand(&fit, 2, latents, 1, back);
	check_bits((const float[]){5.0f, 7.0f, 30.0f}, back, 3, "rows of the second group");
}

int main(void) {
	const struct CMUnitTest fitted[] = {
	    cmocka_unit_test(columns_are_orthonormal_and_of_one_sign),
	    cmocka_unit_test(full_rank_gives_every_row_back),
	    cmocka_unit_test(lost_squares_are_the_singular_values_left_out),
	    cmocka_unit_test(the_mean_is_that_of_all_rows_of_the_group),
	    cmocka_unit_test(energy_is_a_share_of_the_sum_of_singular_values),
	    cmocka_unit_test(a_plane_in_any_direction_is_found),
	    cmocka_unit_test(every_group_gets_the_smallest_rank),
	    cmocka_unit_test(the_rank_is_at_most_what_there_is),
	    cmocka_unit_test(equal_rows_are_their_mean),
	    cmocka_unit_test(larger_groups_come_first),
	    cmocka_unit_test(a_group_is_its_rows_whatever_heads_they_are_of),
	    cmocka_unit_test(a_group_without_rows_does_not_lower_the_rank),
	    cmocka_unit_test(a_copy_is_its_own),
	    cmocka_unit_test(rows_that_are_not_finite_are_refused_by_head_and_row),
	    cmocka_unit_test(senseless_arguments_are_refused),
	    cmocka_unit_test(no_memory_changes_nothing),
	    cmocka_unit_test(rows_go_to_their_groups_channels_and_back),
	};
	const struct CMUnitTest without[] = {
	    cmocka_unit_test(a_build_without_lapacke_says_what_is_missing),
	    cmocka_unit_test(rows_go_to_their_groups_channels_and_back),
	};
	return ckv_low_rank_available() ? cmocka_run_group_tests_name("low_rank", fitted, NULL, NULL)
	                                : cmocka_run_group_tests_name("low_rank without LAPACKE", without, NULL, NULL);
}
