#include "cache_support.h"

#include "quant/quant.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const test_codecs[] = {"none",
                                   "kivi2:group=8,residual=16",
                                   "kivi:bits=3,group=7,residual=0",
                                   "kivi8:group=32,residual=9",
                                   "kivi4:group=5,residual=12,mode=reference",
                                   "palu:rank=5,head_groups=2,group=8",
                                   "palu:energy=0.7,quantize_values=0",
                                   "palu:rank=3,head_groups=1,group=5,mode=reference"};
enum { N_CODECS = sizeof test_codecs / sizeof *test_codecs, N_PALU = 3 };

size_t n_test_codecs(void) { return ckv_low_rank_available() ? N_CODECS : N_CODECS - N_PALU; }

ckv_codec codec_of(const char *text) {
	ckv_params params;
	ckv_error error;
	if (strcmp(text, "none") == 0) {
		return (ckv_codec){0};
	}
	CHECK(ckv_policy_parse(text, &params, &error) == CKV_OK, "%s: %s", text, error.message);
	return params.codec;
}

ckv_cache *cache_make(const char *codec, const ckv_stream_shape *shapes, int32_t n_layers, const ckv_ctx_options *options) {
	ckv_codec own = codec_of(codec);
	ckv_cache *cache;
	ckv_error error = {CKV_ERR_ARG, "x"};
	CHECK(ckv_cache_create(&cache, &own, shapes, n_layers, options, &error) == CKV_OK, "%s: %s", codec, error.message);
	CHECK(error.status == CKV_OK && error.message[0] == '\0', "%s: '%s' after success", codec, error.message);
	return cache;
}

static void roughen(rng *r, tensor *t, stored *s) {
	size_t n = (size_t)t->n_heads * (size_t)t->n_tokens * (size_t)t->dim;
	for (size_t i = 0; i < n; i++) {
		t->value[i] *= 1.0f + 0.1f * rng_float(r);
	}
	stored_free(s);
	*s = stored_make(t, CKV_F32, HEADS_OUTSIDE, 0);
}

tokens rough_tokens(rng *r, ckv_stream_shape shape, int32_t n, int32_t group) {
	tokens t = tokens_random(r, shape, n, group);
	roughen(r, &t.k, &t.stored_k);
	roughen(r, &t.v, &t.stored_v);
	roughen(r, &t.q, &t.stored_q);
	return t;
}

/* ---------------------------------------------------------------- lists */

lists lists_random(rng *r, int32_t n_heads, int32_t n_tokens, bool shared) {
	lists l = {test_memory((size_t)n_heads * (size_t)n_tokens, sizeof(int32_t)),
	           test_memory((size_t)n_heads + 1, sizeof(int32_t)),
	           {0}};
	int32_t n_lists = shared ? 1 : n_heads, n = 0;
	ckv_keep_init(&l.keep, l.positions, (size_t)n_heads * (size_t)n_tokens, l.offsets);
	for (int32_t i = 0; i < n_lists; i++) {
		int32_t one_in = rng_range(r, 1, 4);
		bool none = !shared && rng_chance(r, 5);
		l.offsets[i] = n;
		for (int32_t t = 0; t < n_tokens && !none; t++) {
			if (rng_chance(r, one_in)) {
				l.positions[n++] = t;
			}
		}
	}
	if (n == 0) {
		l.positions[n++] = n_tokens - 1;
	}
	l.offsets[n_lists] = n;
	l.keep.n_lists = n_lists;
	l.keep.n_positions = (size_t)n;
	return l;
}

void lists_free(lists *l) {
	free(l->positions);
	free(l->offsets);
}

/* ---------------------------------------------------------------- held */

held held_make(int32_t n_heads, int32_t most) {
	held h = {n_heads, most, test_memory((size_t)n_heads, sizeof *h.n),
	          test_memory((size_t)n_heads * (size_t)most, sizeof *h.token)};
	memset(h.n, 0, (size_t)n_heads * sizeof *h.n);
	return h;
}

void held_free(held *h) {
	free(h->n);
	free(h->token);
}

static void held_add(held *h, int32_t head, int32_t token) {
	assert_true(h->n[head] < h->most);
	h->token[head * h->most + h->n[head]++] = token;
}

void held_drop(held *h, int32_t head, const int32_t *indices, int32_t n) {
	int32_t *token = h->token + head * h->most, kept = 0;
	for (int32_t i = 0, gone = 0; i < h->n[head]; i++) {
		if (gone < n && indices[gone] == i) {
			gone++;
		} else {
			token[kept++] = token[i];
		}
	}
	h->n[head] = kept;
}

void held_take_back(held *h, int32_t n) {
	for (int32_t head = 0; head < h->n_heads; head++) {
		h->n[head] -= n;
	}
}

/* ---------------------------------------------------------------- rows */

ckv_status load_status(ckv_cache *cache, int32_t layer, const tokens *t, int32_t n, const ckv_keep *keep) {
	ckv_view k = view_part(&t->stored_k.view, 0, n), v = view_part(&t->stored_v.view, 0, n);
	return ckv_cache_load(cache, layer, &k, &v, keep, NULL);
}

ckv_status append_status(ckv_cache *cache, int32_t layer, const tokens *t, int32_t first, int32_t n) {
	ckv_view k = view_part(&t->stored_k.view, first, n), v = view_part(&t->stored_v.view, first, n);
	return ckv_cache_append(cache, layer, &k, &v);
}

static void succeeded(const ckv_cache *cache, ckv_status status, const char *what) {
	CHECK(status == CKV_OK, "%s: %s", what, ckv_cache_message(cache));
	CHECK(ckv_cache_message(cache)[0] == '\0', "%s: '%s' after success", what, ckv_cache_message(cache));
}

void cache_load(ckv_cache *cache, int32_t layer, const tokens *t, int32_t n, const ckv_keep *keep, held *h) {
	succeeded(cache, load_status(cache, layer, t, n, keep), "load");
	for (int32_t head = 0; head < h->n_heads; head++) {
		int32_t list = keep && keep->n_lists > 1 ? head : 0;
		int32_t from = keep ? keep->offsets[list] : 0, end = keep ? keep->offsets[list + 1] : n;
		for (int32_t i = from; i < end; i++) {
			held_add(h, head, keep ? keep->positions[i] : i);
		}
	}
}

void cache_append(ckv_cache *cache, int32_t layer, const tokens *t, int32_t first, int32_t n, held *h) {
	succeeded(cache, append_status(cache, layer, t, first, n), "append");
	for (int32_t head = 0; head < h->n_heads; head++) {
		for (int32_t i = 0; i < n; i++) {
			held_add(h, head, first + i);
		}
	}
}

head_read read_head(ckv_cache *cache, int32_t layer, int32_t head, int32_t dim_k, int32_t dim_v) {
	head_read rows = {.n = ckv_cache_rows(cache, layer, head)};
	size_t n_k = (size_t)rows.n * (size_t)dim_k, n_v = (size_t)rows.n * (size_t)dim_v;
	rows.k = test_memory(n_k + 1, sizeof *rows.k);
	rows.v = test_memory(n_v + 1, sizeof *rows.v);
	paint(rows.k + n_k, sizeof *rows.k);
	paint(rows.v + n_v, sizeof *rows.v);
	succeeded(cache, ckv_cache_read(cache, layer, head, rows.k, rows.v), "read");
	assert_true(is_painted(rows.k + n_k, sizeof *rows.k) && is_painted(rows.v + n_v, sizeof *rows.v));
	return rows;
}

void head_read_free(head_read *rows) {
	free(rows->k);
	free(rows->v);
}

static void check_row(const float *found, const float *came, int32_t dim, const char *what, const char *side, int32_t row) {
	for (int32_t c = 0; c < dim; c++) {
		CHECK((double)found[c] == f16_rounded((double)came[c]), "%s: %s of row %d, channel %d: %a for %a", what, side, row,
		      c, (double)found[c], (double)came[c]);
	}
}

void check_f16_rows(ckv_cache *cache, int32_t layer, const held *h, const tokens *t, const char *what) {
	for (int32_t head = 0; head < h->n_heads; head++) {
		head_read rows = read_head(cache, layer, head, t->k.dim, t->v.dim);
		CHECK(rows.n == h->n[head], "%s: head %d has %d rows instead of %d", what, head, rows.n, h->n[head]);
		for (int32_t i = 0; i < rows.n; i++) {
			int32_t token = h->token[head * h->most + i];
			check_row(rows.k + i * t->k.dim, tensor_row(&t->k, head, token), t->k.dim, what, "key", i);
			check_row(rows.v + i * t->v.dim, tensor_row(&t->v, head, token), t->v.dim, what, "value", i);
		}
		head_read_free(&rows);
	}
}

/* ----------------------------------------------------------- attention */

/* One query over the first n_seen rows: out[dim_v], and how much a logit may be off. */
typedef struct naive_query {
	const head_read *rows;
	int32_t n_seen, dim_k, dim_v;
	double scale, cap;
	double *logits, *out;
	double steep;
} naive_query;

static void naive_logits(naive_query *a, const float *q) {
	a->steep = 0.0;
	for (int32_t i = 0; i < a->n_seen; i++) {
		double sum = 0.0, size = 0.0;
		for (int32_t c = 0; c < a->dim_k; c++) {
			double product = a->scale * (double)q[c] * (double)a->rows->k[i * a->dim_k + c];
			sum += product;
			size += fabs(product);
		}
		a->logits[i] = a->cap > 0.0 ? a->cap * tanh(sum / a->cap) : sum;
		a->steep = fmax(a->steep, size);
	}
}

static void naive_attend(naive_query *a, const float *q) {
	double most = -INFINITY, sum = 0.0;
	naive_logits(a, q);
	for (int32_t i = 0; i < a->n_seen; i++) {
		most = fmax(most, a->logits[i]);
	}
	memset(a->out, 0, (size_t)a->dim_v * sizeof *a->out);
	for (int32_t i = 0; i < a->n_seen; i++) {
		double weight = exp(a->logits[i] - most);
		sum += weight;
		for (int32_t c = 0; c < a->dim_v; c++) {
			a->out[c] += weight * (double)a->rows->v[i * a->dim_v + c];
		}
	}
	for (int32_t c = 0; c < a->dim_v; c++) {
		a->out[c] /= sum;
	}
}

static double largest(const float *x, int32_t n) {
	double most = 0.0;
	for (int32_t i = 0; i < n; i++) {
		most = fmax(most, fabs((double)x[i]));
	}
	return most;
}

float *attend_to(ckv_cache *cache, int32_t layer, const query_case *c, size_t *n) {
	ckv_view q = view_part(&c->t->stored_q.view, c->first, c->n);
	*n = (size_t)c->n * (size_t)c->t->q.n_heads * (size_t)c->t->v.dim;
	float *out = test_memory(*n + 1, sizeof *out);
	paint(out, (*n + 1) * sizeof *out);
	succeeded(cache, ckv_cache_attend(cache, layer, &q, c->scale, c->cap, out), "attend");
	assert_true(is_painted(out + *n, sizeof *out));
	return out;
}

void check_attend(ckv_cache *cache, int32_t layer, const query_case *c, double slack, const char *what) {
	const tokens *t = c->t;
	int32_t group = t->q.n_heads / t->k.n_heads;
	size_t n_out;
	float *out = attend_to(cache, layer, c, &n_out);
	naive_query a = {.dim_k = t->k.dim, .dim_v = t->v.dim, .cap = (double)c->cap};
	a.scale = c->scale != 0.0f ? (double)c->scale : 1.0 / sqrt((double)t->k.dim);
	a.out = test_memory((size_t)a.dim_v, sizeof *a.out);
	for (int32_t h = 0; h < t->q.n_heads; h++) {
		head_read rows = read_head(cache, layer, h / group, a.dim_k, a.dim_v);
		double most = largest(rows.v, rows.n * a.dim_v);
		a.rows = &rows;
		a.logits = test_memory((size_t)rows.n, sizeof *a.logits);
		for (int32_t i = 0; i < c->n; i++) {
			a.n_seen = rows.n - c->n + i + 1;
			naive_attend(&a, tensor_row(&t->q, h, c->first + i));
			for (int32_t j = 0; j < a.dim_v; j++) {
				double found = (double)out[(i * t->q.n_heads + h) * a.dim_v + j];
				CHECK(fabs(found - a.out[j]) <= slack * 2e-6 * (1.0 + a.steep) * most,
				      "%s: query %d of %d, head %d, channel %d: %.9g instead of %.9g, of values up to %g, L %g", what, i,
				      c->n, h, j, found, a.out[j], most, a.steep);
			}
		}
		free(a.logits);
		head_read_free(&rows);
	}
	free(a.out);
	free(out);
}

/* --------------------------------------------------------------- state */

ckv_cache_info cache_info(const ckv_cache *cache, int32_t layer) {
	ckv_cache_info info = {.size = sizeof info};
	assert_int_equal(ckv_cache_get_info(cache, layer, &info), CKV_OK);
	return info;
}

saved save_cache(const ckv_cache *cache) {
	saved s = {.size = ckv_cache_save(cache, NULL, 0)};
	s.data = test_memory(s.size + 1, 1);
	paint(s.data, s.size + 1);
	assert_int_equal(ckv_cache_save(cache, s.data, s.size), s.size);
	assert_true(is_painted(s.data + s.size, 1));
	return s;
}

bool cache_saves_as(const ckv_cache *cache, const saved *before) {
	saved now = save_cache(cache);
	bool same = same_saved(before, &now);
	saved_free(&now);
	return same;
}
