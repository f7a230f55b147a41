/* Measures of a selection against plain computations in double, and what must hold exactly. */
#include "support.h"

#include "chunkkv/measure.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A layer and what is kept of it. */
typedef struct measure_case {
	test_layer t;
	tensor k_after, v_after; /* all rows as they would be stored; without values: as they came */
	int32_t *positions, *offsets;
	unsigned char *mask; /* [G][T] */
	ckv_keep keep;
} measure_case;

static measure_case case_on(test_layer t) {
	measure_case c = {.t = t};
	size_t n = layer_scores(&t.layer);
	c.positions = test_memory(n, sizeof *c.positions);
	c.offsets = test_memory((size_t)t.k.n_heads + 1, sizeof *c.offsets);
	c.mask = test_memory(n, 1);
	return c;
}

static void case_free(measure_case *c) {
	free(c->k_after.value);
	free(c->v_after.value);
	test_layer_free(&c->t);
	free(c->positions);
	free(c->offsets);
	free(c->mask);
}

/* Turns the mask into lists: one, by the first head's row, or one for each head. */
static void set_lists(measure_case *c, int32_t n_lists) {
	size_t tokens = (size_t)c->t.k.n_tokens, n = 0;
	for (int32_t g = 0; g < c->t.k.n_heads; g++) {
		if (n_lists == 1) {
			memmove(c->mask + (size_t)g * tokens, c->mask, tokens);
		}
		c->offsets[g] = (int32_t)n;
		for (size_t t = 0; t < tokens && g < n_lists; t++) {
			if (c->mask[(size_t)g * tokens + t]) {
				c->positions[n++] = (int32_t)t;
			}
		}
	}
	c->offsets[n_lists] = (int32_t)n;
	ckv_keep_init(&c->keep, c->positions, n, n_lists > 1 ? c->offsets : NULL);
	c->keep.n_lists = n_lists;
	c->keep.n_positions = n;
}

static void keep_one_in(measure_case *c, rng *r, int32_t n_lists, int32_t one_in) {
	for (size_t i = 0; i < layer_scores(&c->t.layer); i++) {
		c->mask[i] = rng_chance(r, one_in);
	}
	set_lists(c, n_lists);
}

static test_layer random_layer(rng *r) {
	static const int32_t dims[] = {1, 5, 16, 24, 64};
	int32_t n_kv = rng_range(r, 1, 3), n_tokens = rng_range(r, 1, 90), dim = dims[rng_range(r, 0, 4)];
	int32_t n = rng_chance(r, 4) ? n_tokens : rng_range(r, 1, n_tokens);
	test_layer t = test_layer_make(r, n_kv * rng_range(r, 1, 3), n_kv, dim, n_tokens, n);
	test_layer_add_values(&t, r, rng_chance(r, 2) ? dim : rng_range(r, 1, 80));
	t.layer.scale = rng_chance(r, 2) ? 0.0f : 0.02f + fabsf(rng_float(r));
	t.layer.logit_cap = rng_chance(r, 2) ? 0.0f : 0.5f + 4.0f * fabsf(rng_float(r));
	return t;
}

static measure_case random_case(rng *r) {
	measure_case c = case_on(random_layer(r));
	keep_one_in(&c, r, rng_chance(r, 2) ? 1 : c.t.k.n_heads, rng_range(r, 1, 12));
	return c;
}

static ckv_measures measure(ckv_ctx *ctx, const measure_case *c) {
	ckv_measures m;
	ckv_measures_init(&m);
	ckv_status status = ckv_measure(ctx, &c->t.layer, &c->keep, &m);
	CHECK(status == CKV_OK, "%s: %s", ckv_strerror(status), ckv_ctx_message(ctx));
	CHECK(m.size == sizeof m, "the size is %zu", m.size);
	return m;
}

/* ----------------------------------------------------------------- naive */

static const tensor *keys_after(const measure_case *c) { return c->k_after.value ? &c->k_after : &c->t.k; }
static const tensor *values_after(const measure_case *c) { return c->v_after.value ? &c->v_after : &c->t.v; }

/* Mean |x - y|: y as stored, 0 in dropped rows. */
static double naive_l1(const measure_case *c, const tensor *x, const tensor *after) {
	double sum = 0.0;
	for (int32_t i = 0; i < x->n_heads * x->n_tokens; i++) {
		for (int32_t j = 0; j < x->dim; j++) {
			double y = c->mask[i] ? (double)after->value[i * x->dim + j] : 0.0;
			sum += fabs((double)x->value[i * x->dim + j] - y);
		}
	}
	return sum / ((double)x->n_heads * x->n_tokens * x->dim);
}

/* weight[T]: softmax of one query over the rows of `mask` that it sees, zeros elsewhere; false: there is none. */
static bool naive_weights(const measure_case *c, int32_t head, int32_t query, const unsigned char *mask, double *weight) {
	const test_layer *t = &c->t;
	const tensor *keys = mask ? keys_after(c) : &t->k;
	int32_t kv = head / (t->q.n_heads / t->k.n_heads), n_seen = t->k.n_tokens - t->q.n_tokens + query + 1;
	double scale = t->layer.scale > 0.0f ? (double)t->layer.scale : 1.0 / sqrt(t->k.dim), cap = (double)t->layer.logit_cap;
	double max = -INFINITY, sum = 0.0;
	for (int32_t i = 0; i < t->k.n_tokens; i++) {
		weight[i] = -INFINITY;
		if (i >= n_seen || (mask && !mask[i])) {
			continue;
		}
		double logit = 0.0;
		for (int32_t j = 0; j < t->k.dim; j++) {
			logit += scale * (double)tensor_row(&t->q, head, query)[j] * (double)tensor_row(keys, kv, i)[j];
		}
		weight[i] = cap > 0.0 ? cap * tanh(logit / cap) : logit;
		max = fmax(max, weight[i]);
	}
	for (int32_t i = 0; i < t->k.n_tokens; i++) {
		weight[i] = weight[i] > -INFINITY ? exp(weight[i] - max) : 0.0;
		sum += weight[i];
	}
	for (int32_t i = 0; i < t->k.n_tokens && sum > 0.0; i++) {
		weight[i] /= sum;
	}
	return sum > 0.0;
}

/* One channel of the output; *size becomes at least its largest term. */
static double naive_output(const tensor *v, int32_t kv, const double *weight, int32_t channel, double *size) {
	double sum = 0.0;
	for (int32_t i = 0; i < v->n_tokens; i++) {
		double x = weight[i] * (double)tensor_row(v, kv, i)[channel];
		sum += x;
		*size = fmax(*size, fabs(x));
	}
	return sum;
}

/* Adds to the measures, and to *condition how much the error changes for each unit of relative change of the weights: a lot
 * where values almost cancel. */
static void naive_query(const measure_case *c, int32_t head, int32_t query, ckv_measures *m, double *condition) {
	const test_layer *t = &c->t;
	size_t tokens = (size_t)t->k.n_tokens;
	int32_t kv = head / (t->q.n_heads / t->k.n_heads);
	const unsigned char *mask = c->mask + (size_t)kv * tokens;
	double *before = test_memory(tokens, sizeof *before), *after = test_memory(tokens, sizeof *after);
	naive_weights(c, head, query, NULL, before);
	if (naive_weights(c, head, query, mask, after)) {
		double xx = 0.0, yy = 0.0, xy = 0.0, oo = 0.0, dd = 0.0, size = 0.0;
		for (size_t i = 0; i < tokens; i++) {
			xx += before[i] * before[i];
			yy += after[i] * after[i];
			xy += before[i] * after[i];
			m->attention_kept += mask[i] ? before[i] : 0.0;
		}
		for (int32_t j = 0; j < t->v.dim; j++) {
			double o = naive_output(&t->v, kv, before, j, &size), d = o - naive_output(values_after(c), kv, after, j, &size);
			oo += o * o;
			dd += d * d;
		}
		m->attention_cosine += xy / sqrt(xx * yy);
		double error = oo > 0.0 ? sqrt(dd / oo) : dd > 0.0 ? 1.0 : 0.0;
		m->output_error += error;
		*condition += oo > 0.0 ? (1.0 + error) * size / sqrt(oo) : 0.0;
	} else {
		m->output_error += 1.0;
	}
	free(before);
	free(after);
}

static ckv_measures naive_measure(const measure_case *c, double *condition) {
	ckv_measures m;
	ckv_measures_init(&m);
	*condition = 0.0;
	double n = (double)c->t.q.n_heads * c->t.q.n_tokens;
	m.key_l1 = naive_l1(c, &c->t.k, keys_after(c));
	m.value_l1 = naive_l1(c, &c->t.v, values_after(c));
	for (int32_t h = 0; h < c->t.q.n_heads; h++) {
		for (int32_t i = 0; i < c->t.q.n_tokens; i++) {
			naive_query(c, h, i, &m, condition);
		}
	}
	m.attention_cosine /= n;
	m.output_error /= n;
	m.attention_kept /= n;
	*condition /= n;
	return m;
}

static void check_close(double expected, double value, const char *what, int number) {
	CHECK(fabs(expected - value) <= 2e-5 * fabs(expected) + 5e-7, "case %d: %s is %.9g instead of %.9g", number, what, value,
	      expected);
}

static void check_measures(const ckv_measures *expected, double condition, const ckv_measures *m, int number) {
	check_close(expected->key_l1, m->key_l1, "key_l1", number);
	check_close(expected->value_l1, m->value_l1, "value_l1", number);
	check_close(expected->attention_cosine, m->attention_cosine, "attention_cosine", number);
	CHECK(fabs(expected->output_error - m->output_error) <= 5e-7 + 5e-6 * condition,
	      "case %d: output_error is %.9g instead of %.9g, condition %g", number, m->output_error, expected->output_error,
	      condition);
	check_close(expected->attention_kept, m->attention_kept, "attention_kept", number);
}

static void measures_match_a_computation_in_double(void **state) {
	rng r = {1};
	(void)state;
	ckv_ctx *ctx = make_ctx("full"); /* the policy has no part in it */
	for (int i = 0; i < 200; i++) {
		measure_case c = random_case(&r);
		double condition;
		ckv_measures m = measure(ctx, &c), expected = naive_measure(&c, &condition);
		check_measures(&expected, condition, &m, i);
		case_free(&c);
	}
	ckv_ctx_free(ctx);
}

/* ----------------------------------------------------------------- exact */

static void keeping_everything_loses_nothing(void **state) {
	rng r = {2};
	(void)state;
	ckv_ctx *ctx = make_ctx("full");
	for (int i = 0; i < 60; i++) {
		measure_case c = case_on(random_layer(&r));
		keep_one_in(&c, &r, i % 2 ? 1 : c.t.k.n_heads, 1);
		ckv_measures m = measure(ctx, &c);
		CHECK(m.key_l1 == 0.0 && m.value_l1 == 0.0 && m.output_error == 0.0, "case %d: losses %g %g, error %g", i, m.key_l1,
		      m.value_l1, m.output_error);
		CHECK(m.attention_cosine == 1.0 && m.attention_kept == 1.0, "case %d: cosine %.17g, kept %.17g", i,
		      m.attention_cosine, m.attention_kept);
		case_free(&c);
	}
	ckv_ctx_free(ctx);
}

static void keeping_nothing_loses_everything(void **state) {
	rng r = {3};
	(void)state;
	ckv_ctx *ctx = make_ctx("full");
	for (int i = 0; i < 30; i++) {
		measure_case c = case_on(random_layer(&r));
		memset(c.mask, 0, layer_scores(&c.t.layer));
		set_lists(&c, i % 2 ? 1 : c.t.k.n_heads);
		c.keep.positions = i % 4 < 2 ? NULL : c.positions;
		ckv_measures m = measure(ctx, &c);
		check_close(naive_l1(&c, &c.t.k, &c.t.k), m.key_l1, "key_l1", i);
		check_close(naive_l1(&c, &c.t.v, &c.t.v), m.value_l1, "value_l1", i);
		CHECK(m.attention_cosine == 0.0 && m.output_error == 1.0 && m.attention_kept == 0.0,
		      "case %d: cosine %g, error %g, kept %g", i, m.attention_cosine, m.output_error, m.attention_kept);
		case_free(&c);
	}
	ckv_ctx_free(ctx);
}

/* Only the last token is kept, which only the last query sees: the other three count as nothing kept. */
static void rows_that_come_after_a_query_are_no_help_to_it(void **state) {
	rng r = {4};
	(void)state;
	ckv_ctx *ctx = make_ctx("full");
	measure_case c = case_on(test_layer_make(&r, 1, 1, 8, 20, 4));
	test_layer_add_values(&c.t, &r, 8);
	memset(c.mask, 0, 20);
	c.mask[19] = 1;
	set_lists(&c, 1);
	ckv_measures m = measure(ctx, &c), last;
	double condition = 0.0;
	ckv_measures_init(&last);
	naive_query(&c, 0, 3, &last, &condition);
	check_close((3.0 + last.output_error) / 4.0, m.output_error, "output_error", 0);
	check_close(last.attention_cosine / 4.0, m.attention_cosine, "attention_cosine", 0);
	check_close(last.attention_kept / 4.0, m.attention_kept, "attention_kept", 0);
	assert_true(last.attention_kept > 0.0);
	case_free(&c);
	ckv_ctx_free(ctx);
}

/* One query on rows of one channel. */
typedef struct small_layer {
	float k[2], v[2], q;
	ckv_layer layer;
} small_layer;

static void small_make(small_layer *s, float k0, float k1, float v0, float v1, float q) {
	*s = (small_layer){.k = {k0, k1}, .v = {v0, v1}, .q = q};
	ckv_layer_init(&s->layer);
	s->layer.k = (ckv_view){.data = s->k,
	                        .dtype = CKV_F32,
	                        .n_heads = 1,
	                        .n_tokens = 2,
	                        .head_dim = 1,
	                        .stride_head = sizeof s->k,
	                        .stride_token = sizeof *s->k};
	s->layer.v = s->layer.q = s->layer.k;
	s->layer.v.data = s->v;
	s->layer.q.data = &s->q;
	s->layer.q.n_tokens = 1;
}

/* With one row kept; -1: none. */
static ckv_measures small_measure(const small_layer *s, int32_t kept) {
	ckv_measures m;
	ckv_keep keep;
	ckv_ctx *ctx = make_ctx("full");
	ckv_keep_init(&keep, &kept, 1, NULL);
	keep.n_lists = 1;
	keep.n_positions = kept >= 0;
	ckv_measures_init(&m);
	assert_int_equal(ckv_measure(ctx, &s->layer, &keep, &m), CKV_OK);
	ckv_ctx_free(ctx);
	return m;
}

/* What is kept weighs e^-400 of the best before, and everything after. */
static void kept_rows_far_below_the_best_still_add_up_to_one(void **state) {
	small_layer s;
	(void)state;
	small_make(&s, 10.0f, -10.0f, 1.0f, 3.0f, 20.0f);
	ckv_measures m = small_measure(&s, 1);
	assert_true(m.attention_cosine == 0.0 && m.attention_kept == 0.0);
	assert_true(m.output_error == 2.0); /* 3 instead of 1 */
	assert_true(m.key_l1 == 5.0 && m.value_l1 == 0.5);
	m = small_measure(&s, 0);
	assert_true(m.attention_cosine == 1.0 && m.attention_kept == 1.0 && m.output_error == 0.0);
	assert_true(m.key_l1 == 5.0 && m.value_l1 == 1.5);
}

static void an_output_of_zero_has_an_error_of_zero_or_one(void **state) {
	small_layer s;
	(void)state;
	small_make(&s, 1.0f, 1.0f, 0.0f, 0.0f, 1.0f);
	assert_true(small_measure(&s, 1).output_error == 0.0);
	assert_true(small_measure(&s, -1).output_error == 1.0); /* nothing kept is never right */
	small_make(&s, 1.0f, 1.0f, -1.0f, 1.0f, 1.0f);          /* -1/2 + 1/2 */
	assert_true(small_measure(&s, 1).output_error == 1.0);
	assert_true(small_measure(&s, 0).output_error == 1.0);
}

/* What ckv_select says of the window's attention is what is measured of it. */
static void attention_kept_is_that_of_a_selection(void **state) {
	static const char *const policies[] = {"snapkv:window=9", "chunkkv:window=9", "adakv:window=9", "egchunkkv:window=9"};
	rng r = {5};
	(void)state;
	for (size_t i = 0; i < 20; i++) {
		test_layer t = test_layer_make(&r, 6, 3, 12, rng_range(&r, 60, 120), 9);
		test_layer_add_values(&t, &r, 7);
		ckv_ctx *ctx = make_ctx(policies[i % 4]);
		selected s = select_layer(ctx, &t.layer, ckv_keep_percent(40));
		ckv_measures m;
		ckv_measures_init(&m);
		assert_int_equal(ckv_measure(ctx, &t.layer, &s.keep, &m), CKV_OK);
		assert_true(s.keep.reason == CKV_SELECTED && s.keep.attention_kept > 0.0f);
		check_close((double)s.keep.attention_kept, m.attention_kept, policies[i % 4], (int)i);
		selected again = select_layer(ctx, &t.layer, ckv_keep_percent(40)); /* measuring left nothing behind */
		assert_true(same_selected(&s, &again));
		selected_free(&s);
		selected_free(&again);
		test_layer_free(&t);
		ckv_ctx_free(ctx);
	}
}

/* Chunks that were set stay set. */
static void measuring_leaves_the_chunks_alone(void **state) {
	static const int32_t starts[] = {0, 7, 30};
	rng r = {6};
	(void)state;
	ckv_ctx *ctx = make_ctx("chunkkv:chunker=line,window=4,sinks=0");
	measure_case c = case_on(test_layer_make(&r, 4, 2, 8, 60, 4));
	test_layer_add_values(&c.t, &r, 8);
	keep_one_in(&c, &r, 2, 3);
	assert_int_equal(ckv_set_chunks(ctx, starts, 3, 60), CKV_OK);
	selected before = select_layer(ctx, &c.t.layer, ckv_keep_tokens(27));
	measure(ctx, &c);
	selected after = select_layer(ctx, &c.t.layer, ckv_keep_tokens(27));
	assert_true(same_selected(&before, &after));
	selected_free(&before);
	selected_free(&after);
	case_free(&c);
	ckv_ctx_free(ctx);
}

static bool same_measures(const ckv_measures *a, const ckv_measures *b) {
	return a->key_l1 == b->key_l1 && a->value_l1 == b->value_l1 && a->attention_cosine == b->attention_cosine &&
	       a->output_error == b->output_error && a->attention_kept == b->attention_kept;
}

static void storage_instruction_set_and_threads_do_not_show(void **state) {
	static const ckv_dtype dtypes[] = {CKV_F32, CKV_F16, CKV_BF16, CKV_DECODED};
	rng r = {7};
	(void)state;
	for (int n = 0; n < 8; n++) {
		measure_case c = random_case(&r);
		ckv_layer good = c.t.layer;
		ckv_ctx *ctx = make_ctx("full");
		ckv_measures expected = measure(ctx, &c);
		ckv_ctx_free(ctx);
		for (size_t i = 0; i < 8; i++) {
			stored k = stored_make(&c.t.k, dtypes[i % 4], i < 4 ? HEADS_OUTSIDE : TOKENS_OUTSIDE, 4);
			stored q = stored_make(&c.t.q, dtypes[(i + 1) % 4], i < 4 ? TOKENS_OUTSIDE : HEADS_OUTSIDE, 8);
			stored v = stored_make(&c.t.v, dtypes[(i + 2) % 4], i % 2 ? TOKENS_OUTSIDE : HEADS_OUTSIDE, 0);
			ckv_ctx_options options;
			ckv_ctx_options_default(&options);
			options.cpu_disable = i % 2 ? ~0u : 0;
			options.n_threads = (int32_t)i / 2;
			c.t.layer.k = k.view;
			c.t.layer.q = q.view;
			c.t.layer.v = v.view;
			ctx = make_ctx_with("chunkkv", &options);
			ckv_measures m = measure(ctx, &c);
			CHECK(same_measures(&m, &expected), "case %d, storage %zu: error %.17g instead of %.17g", n, i, m.output_error,
			      expected.output_error);
			c.t.layer = good;
			ckv_ctx_free(ctx);
			stored_free(&k);
			stored_free(&q);
			stored_free(&v);
		}
		case_free(&c);
	}
}

/* ---------------------------------------------------------- stored rows */

/* The kept rows of x, head after head; from malloc. */
static float *gather(const measure_case *c, const tensor *x) {
	size_t dim = (size_t)x->dim, n = 0;
	float *rows = test_memory(layer_scores(&c->t.layer) * dim, sizeof *rows);
	for (int32_t g = 0; g < x->n_heads; g++) {
		for (int32_t t = 0; t < x->n_tokens; t++) {
			if (c->mask[g * x->n_tokens + t]) {
				memcpy(rows + n++ * dim, tensor_row(x, g, t), dim * sizeof *rows);
			}
		}
	}
	return rows;
}

static tensor changed(rng *r, const tensor *x, float by) {
	size_t n = (size_t)x->n_heads * (size_t)x->n_tokens * (size_t)x->dim;
	tensor y = *x;
	y.value = test_memory(n, sizeof *y.value);
	for (size_t i = 0; i < n; i++) {
		y.value[i] = x->value[i] + by * rng_float(r);
	}
	return y;
}

static measure_case changed_case(rng *r, float keys, float values) {
	measure_case c = random_case(r);
	c.k_after = changed(r, &c.t.k, keys);
	c.v_after = changed(r, &c.t.v, values);
	return c;
}

static ckv_measures measure_stored(ckv_ctx *ctx, const measure_case *c, bool keys, bool values) {
	float *k = keys ? gather(c, keys_after(c)) : NULL, *v = values ? gather(c, values_after(c)) : NULL;
	ckv_measures m;
	ckv_measures_init(&m);
	ckv_status status = ckv_measure_stored(ctx, &c->t.layer, &c->keep, k, v, &m);
	CHECK(status == CKV_OK, "%s: %s", ckv_strerror(status), ckv_ctx_message(ctx));
	free(k);
	free(v);
	return m;
}

static void stored_rows_match_a_computation_in_double(void **state) {
	rng r = {20};
	(void)state;
	ckv_ctx *ctx = make_ctx("full");
	for (int i = 0; i < 200; i++) {
		bool keys = i % 3 != 1, values = i % 3 != 2;
		measure_case c = changed_case(&r, keys ? 0.5f : 0.0f, values ? 0.5f : 0.0f);
		double condition;
		ckv_measures m = measure_stored(ctx, &c, keys, values), expected = naive_measure(&c, &condition);
		check_measures(&expected, condition, &m, i);
		case_free(&c);
	}
	ckv_ctx_free(ctx);
}

static void rows_that_are_stored_as_they_came_change_nothing(void **state) {
	rng r = {21};
	(void)state;
	ckv_ctx *ctx = make_ctx("full");
	for (int i = 0; i < 60; i++) {
		measure_case c = random_case(&r);
		ckv_measures m = measure_stored(ctx, &c, i % 3 != 1, i % 3 != 2), plain = measure(ctx, &c);
		CHECK(same_measures(&m, &plain), "case %d: error %.17g instead of %.17g", i, m.output_error, plain.output_error);
		case_free(&c);
	}
	ckv_ctx_free(ctx);
}

/* What is dropped plays no part, and what is kept hides no attention. */
static void a_codec_that_drops_nothing_loses_in_rows_alone(void **state) {
	rng r = {22};
	(void)state;
	ckv_ctx *ctx = make_ctx("full");
	for (int i = 0; i < 20; i++) {
		measure_case c = changed_case(&r, 0.3f, 0.3f);
		keep_one_in(&c, &r, i % 2 ? 1 : c.t.k.n_heads, 1);
		ckv_measures m = measure_stored(ctx, &c, true, true);
		CHECK(m.key_l1 > 0.0 && m.value_l1 > 0.0 && m.output_error > 0.0 && m.attention_kept == 1.0,
		      "case %d: losses %g %g, error %g, kept %.17g", i, m.key_l1, m.value_l1, m.output_error, m.attention_kept);
		case_free(&c);
	}
	ckv_ctx_free(ctx);
}

static void threads_and_instruction_sets_do_not_show_in_stored_rows(void **state) {
	rng r = {23};
	(void)state;
	for (int i = 0; i < 12; i++) {
		measure_case c = changed_case(&r, 0.3f, 0.3f);
		ckv_ctx *ctx = make_ctx("full");
		ckv_measures expected = measure_stored(ctx, &c, true, true);
		ckv_ctx_free(ctx);
		ckv_ctx_options options;
		ckv_ctx_options_default(&options);
		options.cpu_disable = i % 2 ? ~0u : 0;
		options.n_threads = i % 4;
		ctx = make_ctx_with("chunkkv", &options);
		ckv_measures m = measure_stored(ctx, &c, true, true);
		CHECK(same_measures(&m, &expected), "case %d: error %.17g instead of %.17g", i, m.output_error,
		      expected.output_error);
		ckv_ctx_free(ctx);
		case_free(&c);
	}
}

/* ---------------------------------------------------------------- errors */

enum { H = 4, G = 2, D = 8, T = 40, N = 20 };

static measure_case fixed_case(float logit_cap) {
	rng r = {8};
	measure_case c = case_on(test_layer_make(&r, H, G, D, T, N));
	test_layer_add_values(&c.t, &r, D + 3);
	c.t.layer.logit_cap = logit_cap;
	keep_one_in(&c, &r, G, 3);
	return c;
}

/* Fails with this status and a message, and leaves the measures alone. */
static void refused(ckv_ctx *ctx, const ckv_layer *layer, const ckv_keep *keep, ckv_status expected, const char *what) {
	ckv_measures m;
	paint(&m, sizeof m);
	m.size = sizeof m;
	ckv_status status = ckv_measure(ctx, layer, keep, &m);
	CHECK(status == expected && ckv_ctx_message(ctx)[0], "%s: %s, '%s'", what, ckv_strerror(status), ckv_ctx_message(ctx));
	CHECK(m.size == sizeof m && is_painted(&m.key_l1, sizeof m - offsetof(ckv_measures, key_l1)),
	      "%s: measures were written", what);
}

/* In kept rows and dropped ones, in the first block of queries and the last, with and without a cap. */
static void values_that_are_not_finite_are_errors(void **state) {
	static const float bad[] = {NAN, INFINITY, -INFINITY};
	static const char *const what[] = {"infinity in a key", "infinity in a query", "infinity in a value"};
	(void)state;
	ckv_ctx *ctx = make_ctx("full");
	for (size_t i = 0; i < 36; i++) {
		measure_case c = fixed_case(i < 18 ? 0.0f : 20.0f);
		stored *where[] = {&c.t.stored_k, &c.t.stored_q, &c.t.stored_v};
		stored *s = where[i % 3];
		size_t last = s->size / sizeof(float) - 1, at = i % 2 ? last : 2;
		((float *)(void *)s->memory)[at] = bad[i / 6 % 3];
		refused(ctx, &c.t.layer, &c.keep, CKV_ERR_NUMERIC, what[i % 3]);
		CHECK(strstr(ckv_ctx_message(ctx), what[i % 3]), "%s: %s", what[i % 3], ckv_ctx_message(ctx));
		case_free(&c);
	}
	ckv_ctx_free(ctx);
}

static void sums_that_overflow_are_errors(void **state) {
	small_layer s;
	ckv_keep keep;
	int32_t kept = 0;
	(void)state;
	ckv_ctx *ctx = make_ctx("full");
	ckv_keep_init(&keep, &kept, 1, NULL);
	keep.n_lists = 1;
	keep.n_positions = 1;
	small_make(&s, 3e38f, 1.0f, 1.0f, 1.0f, 3e38f);
	refused(ctx, &s.layer, &keep, CKV_ERR_NUMERIC, "a logit");
	assert_non_null(strstr(ckv_ctx_message(ctx), "product"));
	s.layer.logit_cap = 30.0f;
	refused(ctx, &s.layer, &keep, CKV_ERR_NUMERIC, "a capped logit");
	ckv_ctx_free(ctx);
}

/* In the first kept row and the last one, of keys and values; and keys whose products with a query are none. */
static void stored_values_that_are_not_finite_are_errors(void **state) {
	static const struct {
		float value;
		bool of_values, last;
		float cap;
		const char *message;
	} bad[] = {{NAN, false, false, 0.0f, "in a key"},        {INFINITY, false, true, 20.0f, "in a key"},
	           {-INFINITY, true, false, 0.0f, "in a value"}, {NAN, true, true, 20.0f, "in a value"},
	           {3e38f, false, true, 0.0f, "the product"},    {3e38f, false, true, 20.0f, "the product"}};
	(void)state;
	ckv_ctx *ctx = make_ctx("full");
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		measure_case c = fixed_case(bad[i].cap);
		size_t dim = bad[i].of_values ? D + 3 : D, last = c.keep.n_positions * dim - 1;
		float *rows[] = {gather(&c, &c.t.k), gather(&c, &c.t.v)}, *of = rows[bad[i].of_values];
		ckv_measures m;
		paint(&m, sizeof m);
		m.size = sizeof m;
		for (size_t j = 0; j <= last && bad[i].value > 1.0f; j++) {
			of[j] = of[j] < 0.0f ? -bad[i].value : bad[i].value;
		}
		of[bad[i].last ? last : 0] = bad[i].value;
		ckv_status status = ckv_measure_stored(ctx, &c.t.layer, &c.keep, rows[0], rows[1], &m);
		CHECK(status == CKV_ERR_NUMERIC && strstr(ckv_ctx_message(ctx), bad[i].message), "case %zu: %s, '%s'", i,
		      ckv_strerror(status), ckv_ctx_message(ctx));
		CHECK(is_painted(&m.key_l1, sizeof m - offsetof(ckv_measures, key_l1)), "case %zu: measures were written", i);
		free(rows[0]);
		free(rows[1]);
		case_free(&c);
	}
	ckv_ctx_free(ctx);
}

static void bad_layers_are_refused(void **state) {
	(void)state;
	measure_case c = fixed_case(0.0f);
	ckv_ctx *ctx = make_ctx("full");
	ckv_measures m;
	ckv_measures_init(&m);
	assert_int_equal(ckv_measure(NULL, &c.t.layer, &c.keep, &m), CKV_ERR_ARG);
	assert_int_equal(ckv_measure(ctx, &c.t.layer, &c.keep, NULL), CKV_ERR_ARG);
	m.size--;
	assert_int_equal(ckv_measure(ctx, &c.t.layer, &c.keep, &m), CKV_ERR_ARG);
	refused(ctx, NULL, &c.keep, CKV_ERR_ARG, "no layer");
	refused(ctx, &c.t.layer, NULL, CKV_ERR_ARG, "nothing kept");
	for (int i = 0; i < 12; i++) {
		static const char *const what[] = {"size",           "no keys",    "no values", "no queries", "few values",
		                                   "few heads of v", "heads of q", "dim of q",  "scale",      "cap",
		                                   "queries",        "type"};
		ckv_layer layer = c.t.layer;
		switch (i) {
		case 0: layer.size = 0; break;
		case 1: layer.k.data = NULL; break;
		case 2: layer.v.data = NULL; break;
		case 3: layer.q.data = NULL; break;
		case 4: layer.v.n_tokens--; break;
		case 5: layer.v.n_heads--; break;
		case 6: layer.q.n_heads = 3; break;
		case 7: layer.q.head_dim--; break;
		case 8: layer.scale = NAN; break;
		case 9: layer.logit_cap = -1.0f; break;
		case 10: layer = layer_prefix(&layer, N - 1); break;
		default: layer.v.dtype = CKV_DECODED; break;
		}
		refused(ctx, &layer, &c.keep, CKV_ERR_ARG, what[i]);
		assert_true(i != 10 || strstr(ckv_ctx_message(ctx), "20 queries are more than its 19 tokens"));
	}
	case_free(&c);
	ckv_ctx_free(ctx);
}

static void bad_selections_are_refused(void **state) {
	(void)state;
	measure_case c = fixed_case(0.0f);
	ckv_ctx *ctx = make_ctx("full");
	for (int i = 0; i < 13; i++) {
		static const char *const what[] = {"size",      "no positions", "no offsets", "3 lists",    "no lists",
		                                   "two alike", "negative",     "beyond T",   "descending", "end",
		                                   "first end", "n_positions",  "SIZE_MAX"};
		measure_case bad = fixed_case(0.0f);
		int32_t last = bad.offsets[G] - 1;
		switch (i) {
		case 0: bad.keep.size = 0; break;
		case 1: bad.keep.positions = NULL; break;
		case 2: bad.keep.offsets = NULL; break;
		case 3: bad.keep.n_lists = 3; break;
		case 4: bad.keep.n_lists = 0; break;
		case 5: bad.positions[1] = bad.positions[0]; break;
		case 6: bad.positions[0] = -1; break;
		case 7: bad.positions[last] = T; break;
		case 8: bad.positions[last] = bad.positions[last - 1] - 1; break;
		case 9: bad.offsets[G]++; break;
		case 10: bad.offsets[0] = -1; break;
		case 11: bad.keep.n_positions--; break;
		default:
			bad.keep.n_lists = 1;
			bad.keep.n_positions = SIZE_MAX;
			break;
		}
		refused(ctx, &c.t.layer, &bad.keep, CKV_ERR_ARG, what[i]);
		case_free(&bad);
	}
	case_free(&c);
	ckv_ctx_free(ctx);
}

static void every_request_for_memory_may_fail(void **state) {
	(void)state;
	measure_case c = fixed_case(0.0f);
	for (long n = 1, done = 0; !done; n++) {
		counting counter;
		ckv_ctx_options options;
		ckv_measures m;
		counting_init(&counter);
		ckv_ctx_options_default(&options);
		options.allocator = &counter.allocator;
		ckv_ctx *ctx = make_ctx_with("full", &options);
		long before = counter.calls;
		counter.refuse_in = n;
		paint(&m, sizeof m);
		m.size = sizeof m;
		ckv_status status = ckv_measure(ctx, &c.t.layer, &c.keep, &m);
		done = status == CKV_OK;
		CHECK(done || (status == CKV_ERR_NOMEM && is_painted(&m.key_l1, sizeof m - offsetof(ckv_measures, key_l1))),
		      "request %ld: %s", n, ckv_strerror(status));
		measure(ctx, &c); /* the same context goes on */
		long calls = counter.calls;
		measure(ctx, &c);
		CHECK(counter.calls == calls && calls > before, "request %ld: the second time %ld more", n, counter.calls - calls);
		ckv_ctx_free(ctx);
		assert_int_equal(counter.live, 0);
		assert_true(!done || n > 3);
	}
	case_free(&c);
}

static void sizes_beyond_memory_are_errors(void **state) {
	static const float row[64] = {1.0f};
	static const struct {
		int32_t n_q_heads, n_kv_heads, n_tokens, dim;
	} shapes[] = {{INT32_MAX, INT32_MAX, CKV_MAX_TOKENS, 64},
	              {INT32_MAX, 1, 100, 64},
	              {1, 1, CKV_MAX_TOKENS, 64},
	              {1 << 30, 1 << 15, 1 << 16, 64}};
	(void)state;
	for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
		counting counter;
		ckv_ctx_options options;
		ckv_layer layer;
		ckv_keep keep;
		int32_t kept = 0;
		counting_init(&counter);
		ckv_ctx_options_default(&options);
		options.allocator = &counter.allocator;
		ckv_ctx *ctx = make_ctx_with("full", &options);
		ckv_layer_init(&layer);
		layer.k = (ckv_view){.data = row, .n_heads = shapes[i].n_kv_heads, .n_tokens = shapes[i].n_tokens};
		layer.k.head_dim = shapes[i].dim; /* strides of 0: every row is the same one */
		layer.v = layer.q = layer.k;
		layer.q.n_heads = shapes[i].n_q_heads;
		layer.q.n_tokens = 100;
		ckv_keep_init(&keep, &kept, 1, NULL);
		keep.n_lists = 1;
		keep.n_positions = 1;
		refused(ctx, &layer, &keep, CKV_ERR_NOMEM, "a huge layer");
		ckv_ctx_free(ctx);
		assert_int_equal(counter.live, 0);
	}
}

/* --------------------------------------------------------------- jaccard */

static double jaccard(const int32_t *a, size_t n_a, const int32_t *b, size_t n_b) {
	double x = -1.0;
	assert_int_equal(ckv_jaccard(a, n_a, b, n_b, &x), CKV_OK);
	return x;
}

static void lists_have_in_common_what_a_count_says(void **state) {
	static const int32_t a[] = {0, 2, 5, 9}, b[] = {2, 3, 9}, c[] = {1, 10};
	(void)state;
	assert_true(jaccard(a, 4, b, 3) == 2.0 / 5.0);
	assert_true(jaccard(b, 3, a, 4) == 2.0 / 5.0);
	assert_true(jaccard(a, 4, a, 4) == 1.0);
	assert_true(jaccard(a, 4, c, 2) == 0.0);
	assert_true(jaccard(a, 4, NULL, 0) == 0.0);
	assert_true(jaccard(NULL, 0, NULL, 0) == 1.0);
	assert_true(jaccard(a, 1, a, 4) == 0.25);
}

static double naive_jaccard(const measure_case *a, const measure_case *b, int32_t head) {
	int32_t both = 0, either = 0;
	for (int32_t t = 0; t < T; t++) {
		bool x = a->mask[head * T + t] != 0, y = b->mask[head * T + t] != 0;
		both += x && y;
		either += x || y;
	}
	return either ? (double)both / either : 1.0;
}

/* One list against one for each head, each way, and some of them empty. */
static void selections_have_in_common_the_mean_over_heads(void **state) {
	rng r = {9};
	(void)state;
	for (int i = 0; i < 60; i++) {
		measure_case a = fixed_case(0.0f), b = fixed_case(0.0f);
		keep_one_in(&a, &r, i % 2 ? 1 : G, rng_range(&r, 1, 60));
		keep_one_in(&b, &r, i % 4 < 2 ? 1 : G, rng_range(&r, 1, 60));
		double x = -1.0, expected = (naive_jaccard(&a, &b, 0) + naive_jaccard(&a, &b, 1)) / 2.0;
		assert_int_equal(ckv_keep_jaccard(&a.keep, &b.keep, &x), CKV_OK);
		CHECK(fabs(x - expected) < 1e-15, "case %d: %.17g instead of %.17g", i, x, expected);
		case_free(&a);
		case_free(&b);
	}
}

static void lists_that_do_not_ascend_have_nothing_to_compare(void **state) {
	static const int32_t good[] = {1, 2}, same[] = {1, 1}, back[] = {2, 1}, negative[] = {-1, 2},
	                     far[] = {1, CKV_MAX_TOKENS};
	static const int32_t *const bad[] = {same, back, negative, far, NULL};
	double x;
	(void)state;
	paint(&x, sizeof x);
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		CHECK(ckv_jaccard(good, 2, bad[i], 2, &x) == CKV_ERR_ARG && ckv_jaccard(bad[i], 2, good, 2, &x) == CKV_ERR_ARG,
		      "list %zu", i);
	}
	assert_int_equal(ckv_jaccard(good, SIZE_MAX, good, 2, &x), CKV_ERR_ARG);
	assert_int_equal(ckv_jaccard(good, 2, good, 2, NULL), CKV_ERR_ARG);
	measure_case a = fixed_case(0.0f), b = fixed_case(0.0f);
	assert_int_equal(ckv_keep_jaccard(NULL, &b.keep, &x), CKV_ERR_ARG);
	assert_int_equal(ckv_keep_jaccard(&a.keep, NULL, &x), CKV_ERR_ARG);
	assert_int_equal(ckv_keep_jaccard(&a.keep, &b.keep, NULL), CKV_ERR_ARG);
	int32_t three[] = {0, 1, 1, 2}; /* lists for three heads against two */
	b.keep.offsets = three;
	b.keep.n_lists = 3;
	assert_int_equal(ckv_keep_jaccard(&a.keep, &b.keep, &x), CKV_ERR_ARG);
	assert_int_equal(ckv_keep_jaccard(&b.keep, &a.keep, &x), CKV_ERR_ARG);
	b.keep.size = 0;
	assert_int_equal(ckv_keep_jaccard(&a.keep, &b.keep, &x), CKV_ERR_ARG);
	assert_true(is_painted(&x, sizeof x));
	case_free(&a);
	case_free(&b);
}

/* ---------------------------------------------------------------- chunks */

typedef struct chunk_case {
	float scores[200];
	int32_t positions[200], n_tokens, chunk;
	size_t n;
	bool kept[200];
} chunk_case;

static chunk_case random_chunks(rng *r) {
	chunk_case c = {.n_tokens = rng_range(r, 1, 200), .chunk = rng_range(r, 1, 25)};
	int32_t one_in = rng_range(r, 1, 6);
	for (int32_t t = 0; t < c.n_tokens; t++) {
		c.scores[t] = rng_chance(r, 4) ? 0.0f : fabsf(rng_float(r)) * (rng_chance(r, 5) ? 100.0f : 0.001f);
		c.kept[t] = rng_chance(r, one_in);
		if (c.kept[t]) {
			c.positions[c.n++] = t;
		}
	}
	return c;
}

/* Entropy of what is kept of tokens first .. end-1, or -1 where that is fewer than two. */
static double naive_entropy(const chunk_case *c, int32_t first, int32_t end) {
	double sum = 0.0, h = 0.0;
	int32_t m = 0;
	for (int32_t t = first; t < end; t++) {
		sum += c->kept[t] ? (double)c->scores[t] : 0.0;
		m += c->kept[t];
	}
	for (int32_t t = first; t < end; t++) {
		double p = (double)c->scores[t] / (sum + 1e-8);
		h -= c->kept[t] ? p * log(p + 1e-8) : 0.0;
	}
	return m < 2 ? -1.0 : fmin(fmax(h / log(m), 0.0), 1.0);
}

static void entropies_match_a_plain_computation(void **state) {
	rng r = {10};
	(void)state;
	for (int i = 0; i < 300; i++) {
		chunk_case c = random_chunks(&r);
		double x[201] = {0}, sum = 0.0, squares = 0.0, mean, deviation;
		int32_t n = 0, n_chunks;
		for (int32_t first = 0; first < c.n_tokens; first += c.chunk) {
			int32_t end = first + c.chunk < c.n_tokens ? first + c.chunk : c.n_tokens;
			x[n] = naive_entropy(&c, first, end);
			n += x[n] >= 0.0;
		}
		for (int32_t j = 0; j < n; j++) {
			sum += x[j] / n;
		}
		for (int32_t j = 0; j < n; j++) {
			squares += (x[j] - sum) * (x[j] - sum) / n;
		}
		assert_int_equal(ckv_chunk_entropy(c.scores, c.n_tokens, c.positions, c.n, c.chunk, &mean, &deviation, &n_chunks),
		                 CKV_OK);
		CHECK(n_chunks == n, "case %d: %d chunks instead of %d", i, n_chunks, n);
		CHECK(fabs(mean - sum) < 1e-12, "case %d: mean %.17g instead of %.17g", i, mean, sum);
		CHECK(fabs(deviation - sqrt(squares)) < 1e-9, "case %d: deviation %g instead of %g", i, deviation, sqrt(squares));
	}
}

/* A chunk of equal scores, one of a single peak, one of which a single token is kept, which does not count. */
static void entropy_is_one_for_equals_and_zero_for_a_peak(void **state) {
	static const float scores[] = {2, 2, 2, 2, 0, 8, 0, 0, 5, 5};
	static const int32_t positions[] = {0, 1, 2, 3, 4, 5, 6, 7, 9};
	double mean, deviation;
	int32_t n;
	(void)state;
	assert_int_equal(ckv_chunk_entropy(scores, 10, positions, 4, 4, &mean, &deviation, &n), CKV_OK);
	assert_true(fabs(mean - 1.0) < 1e-6 && mean <= 1.0 && deviation == 0.0 && n == 1);
	assert_int_equal(ckv_chunk_entropy(scores, 10, positions + 4, 4, 4, &mean, &deviation, &n), CKV_OK);
	assert_true(mean >= 0.0 && mean < 1e-6 && deviation == 0.0 && n == 1);
	assert_int_equal(ckv_chunk_entropy(scores, 10, positions, 9, 4, &mean, &deviation, &n), CKV_OK);
	assert_true(fabs(mean - 0.5) < 1e-6 && fabs(deviation - 0.5) < 1e-6 && n == 2);
	assert_int_equal(ckv_chunk_entropy(scores, 10, positions, 9, 1, &mean, &deviation, &n), CKV_OK);
	assert_true(mean == 0.0 && deviation == 0.0 && n == 0);
	assert_int_equal(ckv_chunk_entropy(scores, 10, NULL, 0, 4, &mean, &deviation, &n), CKV_OK);
	assert_true(mean == 0.0 && deviation == 0.0 && n == 0);
	assert_int_equal(ckv_chunk_entropy(scores, 10, positions, 9, 4, NULL, NULL, NULL), CKV_OK);
}

static void coverage_matches_a_plain_count(void **state) {
	rng r = {11};
	(void)state;
	for (int i = 0; i < 300; i++) {
		chunk_case c = random_chunks(&r);
		int32_t touched = 0, filled = 0, runs = 0, n_runs;
		double whole;
		for (int32_t first = 0; first < c.n_tokens; first += c.chunk) {
			int32_t end = first + c.chunk < c.n_tokens ? first + c.chunk : c.n_tokens, m = 0;
			for (int32_t t = first; t < end; t++) {
				m += c.kept[t];
				runs += c.kept[t] && (t == 0 || !c.kept[t - 1]);
			}
			touched += m > 0;
			filled += m == end - first;
		}
		assert_int_equal(ckv_chunk_coverage(c.positions, c.n, c.n_tokens, c.chunk, &whole, &n_runs), CKV_OK);
		CHECK(n_runs == runs, "case %d: %d runs instead of %d", i, n_runs, runs);
		CHECK(whole == (touched ? (double)filled / touched : 0.0), "case %d: %g whole, %d of %d", i, whole, filled, touched);
	}
}

/* The last chunk has two tokens; the first is kept but for one. */
static void a_shorter_last_chunk_can_be_whole(void **state) {
	static const int32_t positions[] = {0, 1, 3, 4, 8, 9};
	double whole;
	int32_t n_runs;
	(void)state;
	assert_int_equal(ckv_chunk_coverage(positions, 6, 10, 4, &whole, &n_runs), CKV_OK);
	assert_true(whole == 1.0 / 3.0 && n_runs == 3);
	assert_int_equal(ckv_chunk_coverage(positions, 6, 10, INT32_MAX, &whole, &n_runs), CKV_OK);
	assert_true(whole == 0.0 && n_runs == 3);
	assert_int_equal(ckv_chunk_coverage(NULL, 0, 10, 4, &whole, &n_runs), CKV_OK);
	assert_true(whole == 0.0 && n_runs == 0);
	assert_int_equal(ckv_chunk_coverage(positions, 6, 10, 4, NULL, NULL), CKV_OK);
}

static void bad_chunks_are_refused(void **state) {
	static const int32_t good[] = {0, 3}, same[] = {3, 3}, negative[] = {-1, 3}, far[] = {0, 8};
	static const int32_t *const bad[] = {same, negative, far, NULL};
	float scores[8] = {1, 1, 1, 1, -1, -1, -1, -1}; /* what is not kept is not read */
	double x, y;
	int32_t n;
	(void)state;
	paint(&x, sizeof x);
	paint(&y, sizeof y);
	paint(&n, sizeof n);
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		CHECK(ckv_chunk_entropy(scores, 8, bad[i], 2, 4, &x, &y, &n) == CKV_ERR_ARG, "entropy of list %zu", i);
		CHECK(ckv_chunk_coverage(bad[i], 2, 8, 4, &x, &n) == CKV_ERR_ARG, "coverage of list %zu", i);
	}
	assert_int_equal(ckv_chunk_entropy(NULL, 8, good, 2, 4, &x, &y, &n), CKV_ERR_ARG);
	assert_int_equal(ckv_chunk_entropy(scores, 8, good, 2, 0, &x, &y, &n), CKV_ERR_ARG);
	assert_int_equal(ckv_chunk_entropy(scores, 0, NULL, 0, 4, &x, &y, &n), CKV_ERR_ARG);
	assert_int_equal(ckv_chunk_entropy(scores, INT32_MAX, good, 2, 4, &x, &y, &n), CKV_ERR_ARG);
	assert_int_equal(ckv_chunk_coverage(good, 2, 8, 0, &x, &n), CKV_ERR_ARG);
	assert_int_equal(ckv_chunk_coverage(good, 2, 0, 4, &x, &n), CKV_ERR_ARG);
	scores[3] = -0.5f;
	assert_int_equal(ckv_chunk_entropy(scores, 8, good, 2, 4, &x, &y, &n), CKV_ERR_ARG);
	scores[3] = NAN;
	assert_int_equal(ckv_chunk_entropy(scores, 8, good, 2, 4, &x, &y, &n), CKV_ERR_NUMERIC);
	scores[3] = INFINITY;
	assert_int_equal(ckv_chunk_entropy(scores, 8, good, 2, 4, &x, &y, &n), CKV_ERR_NUMERIC);
	assert_true(is_painted(&x, sizeof x) && is_painted(&y, sizeof y) && is_painted(&n, sizeof n));
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(measures_match_a_computation_in_double),
	    cmocka_unit_test(keeping_everything_loses_nothing),
	    cmocka_unit_test(keeping_nothing_loses_everything),
	    cmocka_unit_test(rows_that_come_after_a_query_are_no_help_to_it),
	    cmocka_unit_test(kept_rows_far_below_the_best_still_add_up_to_one),
	    cmocka_unit_test(an_output_of_zero_has_an_error_of_zero_or_one),
	    cmocka_unit_test(attention_kept_is_that_of_a_selection),
	    cmocka_unit_test(measuring_leaves_the_chunks_alone),
	    cmocka_unit_test(storage_instruction_set_and_threads_do_not_show),
	    cmocka_unit_test(stored_rows_match_a_computation_in_double),
	    cmocka_unit_test(rows_that_are_stored_as_they_came_change_nothing),
	    cmocka_unit_test(a_codec_that_drops_nothing_loses_in_rows_alone),
	    cmocka_unit_test(threads_and_instruction_sets_do_not_show_in_stored_rows),
	    cmocka_unit_test(values_that_are_not_finite_are_errors),
	    cmocka_unit_test(stored_values_that_are_not_finite_are_errors),
	    cmocka_unit_test(sums_that_overflow_are_errors),
	    cmocka_unit_test(bad_layers_are_refused),
	    cmocka_unit_test(bad_selections_are_refused),
	    cmocka_unit_test(every_request_for_memory_may_fail),
	    cmocka_unit_test(sizes_beyond_memory_are_errors),
	    cmocka_unit_test(lists_have_in_common_what_a_count_says),
	    cmocka_unit_test(selections_have_in_common_the_mean_over_heads),
	    cmocka_unit_test(lists_that_do_not_ascend_have_nothing_to_compare),
	    cmocka_unit_test(entropies_match_a_plain_computation),
	    cmocka_unit_test(entropy_is_one_for_equals_and_zero_for_a_peak),
	    cmocka_unit_test(coverage_matches_a_plain_count),
	    cmocka_unit_test(a_shorter_last_chunk_can_be_whole),
	    cmocka_unit_test(bad_chunks_are_refused),
	};
	return cmocka_run_group_tests_name("measure", tests, NULL, NULL);
}
