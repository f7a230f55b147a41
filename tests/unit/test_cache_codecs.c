/* What the codecs make of a cache's rows: which of them are packed and in what groups, subspaces and what lies in them, and
 * how many bytes that is. */
#include "cache_support.h"

#include "cache/internal.h"
#include "quant/quant.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ----------------------------------------------------------------------------------------------------------- kivi */

/* A layer that kivi codes: `residual` rows at least stay f16, and what is older is packed in whole groups. */
typedef struct kivi_case {
	ckv_codec codec;
	ckv_stream_shape shape;
	int32_t residual;
	const tokens *t;
	const held *h;
	const char *what;
} kivi_case;

static int32_t packed_of(const kivi_case *c, int32_t rows) {
	return rows <= c->residual ? 0 : (rows - c->residual) / c->codec.group * c->codec.group;
}

/* Rows of one side of a head: f16, the first `packed` of them coded a group at a time. */
static float *expected_rows(const kivi_case *c, int32_t head, bool keys) {
	const tensor *x = keys ? &c->t->k : &c->t->v;
	const ckv_allocator memory = ckv_allocator_default();
	int32_t n = c->h->n[head], group = c->codec.group;
	float *rows = test_memory((size_t)n * (size_t)x->dim, sizeof *rows);
	for (int32_t i = 0; i < n; i++) {
		for (int32_t j = 0; j < x->dim; j++) {
			double value = (double)tensor_row(x, head, c->h->token[head * c->h->most + i])[j];
			rows[i * x->dim + j] = (float)f16_rounded(value);
		}
	}
	for (int32_t i = 0; i < packed_of(c, n); i += group) {
		ckv_packed one = {.shape = {.width = x->dim,
		                            .group = group,
		                            .n_high = x->dim,
		                            .high_bits = c->codec.bits,
		                            .low_bits = c->codec.bits,
		                            .by_row = !keys,
		                            .half = !c->codec.reference}};
		assert_int_equal(ckv_packed_append(&memory, &one, rows + i * x->dim, group), CKV_OK);
		ckv_packed_decode(ckv_kernels_c(), &one, 0, group, rows + i * x->dim);
		ckv_packed_free(&memory, &one);
	}
	return rows;
}

static uint64_t divided_up(int32_t n, int32_t by) { return (uint64_t)((n + by - 1) / by); }

/* Codes, levels, the count of each group's rows, and f16 rows. */
static uint64_t expected_bytes(const kivi_case *c) {
	int32_t bits = c->codec.bits, group = c->codec.group, dim_k = c->shape.dim_k, dim_v = c->shape.dim_v;
	uint64_t level = c->codec.reference ? 4 : 2, bytes = 0;
	for (int32_t head = 0; head < c->shape.n_kv_heads; head++) {
		int32_t n = c->h->n[head];
		uint64_t packed = (uint64_t)packed_of(c, n), sets = packed / (uint64_t)group;
		bytes += packed * divided_up(dim_k * bits, 8) + sets * (2 * level * (uint64_t)dim_k + 4);
		bytes += packed * (divided_up(dim_v * bits, 8) + 2 * level * divided_up(dim_v, group));
		bytes += ((uint64_t)n - packed) * 2 * (uint64_t)(dim_k + dim_v);
	}
	return bytes;
}

/* As the published code counts: no row begins at a byte. */
static uint64_t expected_reference(const kivi_case *c) {
	int32_t bits = c->codec.bits, group = c->codec.group, dim_k = c->shape.dim_k, dim_v = c->shape.dim_v;
	uint64_t bytes = 0;
	for (int32_t head = 0; head < c->shape.n_kv_heads; head++) {
		int32_t n = c->h->n[head], packed = packed_of(c, n);
		bytes += divided_up(packed * dim_k * bits, 8) + (uint64_t)(packed / group * dim_k) * 4;
		bytes += divided_up(packed * dim_v * bits, 8) + (uint64_t)packed * divided_up(dim_v, group) * 4;
		bytes += (uint64_t)(n - packed) * 2 * (uint64_t)(dim_k + dim_v);
	}
	return bytes;
}

static void check_kivi(ckv_cache *cache, const kivi_case *c) {
	ckv_cache_info info = cache_info(cache, 0);
	for (int32_t head = 0; head < c->shape.n_kv_heads; head++) {
		head_read rows = read_head(cache, 0, head, c->shape.dim_k, c->shape.dim_v);
		CHECK(rows.n == c->h->n[head], "%s: head %d: %d rows instead of %d", c->what, head, rows.n, c->h->n[head]);
		float *k = expected_rows(c, head, true), *v = expected_rows(c, head, false);
		check_bits(k, rows.k, (size_t)rows.n * (size_t)c->shape.dim_k, c->what);
		check_bits(v, rows.v, (size_t)rows.n * (size_t)c->shape.dim_v, c->what);
		free(k);
		free(v);
		head_read_free(&rows);
	}
	CHECK(info.bytes == expected_bytes(c), "%s: %llu bytes instead of %llu", c->what, (unsigned long long)info.bytes,
	      (unsigned long long)expected_bytes(c));
	CHECK(info.reference_bytes == expected_reference(c), "%s: %llu reference bytes instead of %llu", c->what,
	      (unsigned long long)info.reference_bytes, (unsigned long long)expected_reference(c));
}

static int32_t quarter_of(const held *h) {
	int32_t rows = 0;
	for (int32_t head = 0; head < h->n_heads; head++) {
		rows += h->n[head];
	}
	return rows / h->n_heads / 4;
}

enum { LOADED = 130, ALL = 300 };

static void run_kivi(rng *r, const char *policy, ckv_stream_shape shape, bool load) {
	tokens t = rough_tokens(r, shape, ALL, 1);
	held h = held_make(shape.n_kv_heads, ALL);
	lists l = lists_random(r, shape.n_kv_heads, LOADED, rng_chance(r, 2));
	ckv_cache *cache = cache_make(policy, &shape, 1, NULL);
	kivi_case c = {codec_of(policy), shape, 0, &t, &h, policy};
	c.residual = c.codec.residual;
	int32_t first = 0;
	if (load) {
		cache_load(cache, 0, &t, LOADED, rng_chance(r, 3) ? NULL : &l.keep, &h);
		c.residual = !c.codec.reference && quarter_of(&h) > 0 && quarter_of(&h) < c.residual ? quarter_of(&h) : c.residual;
		check_kivi(cache, &c);
		first = LOADED;
	}
	for (int32_t n; first < ALL; first += n) {
		n = rng_chance(r, 2) ? 1 : rng_range(r, 1, ALL - first < 70 ? ALL - first : 70);
		cache_append(cache, 0, &t, first, n, &h);
		if (rng_chance(r, 8) || first + n == ALL) {
			check_kivi(cache, &c);
		}
	}
	ckv_cache_free(cache);
	lists_free(&l);
	held_free(&h);
	tokens_free(&t);
}

/* Every row that was packed once reads the same ever after, as the groups are those of the first time. */
static void kivi_packs_whole_groups_behind_the_window(void **state) {
	static const int32_t groups[] = {1, 3, 8, 32}, residuals[] = {0, 9, 128};
	rng r = {1};
	(void)state;
	for (int32_t bits = 1; bits <= 8; bits++) {
		for (int i = 0; i < 12; i++) {
			char policy[96];
			int32_t group = groups[i % 4], residual = residuals[i / 4];
			for (int mode = 0; mode < 2; mode++) {
				snprintf(policy, sizeof policy, "kivi:bits=%d,group=%d,residual=%d%s", bits, group, residual,
				         mode ? ",mode=reference" : "");
				run_kivi(&r, policy, (ckv_stream_shape){2, rng_range(&r, 1, 20), rng_range(&r, 1, 20)}, i % 3 != 2);
			}
		}
	}
}

/* The least load of which something is packed; one row less, and nothing is. */
static void at_most_a_quarter_of_a_load_is_its_window(void **state) {
	const ckv_stream_shape shape = {1, 4, 4};
	rng r = {2};
	(void)state;
	tokens t = rough_tokens(&r, shape, 200, 1);
	for (int32_t n = 1; n < 200; n++) {
		ckv_cache *exact = cache_make("kivi4:group=8,residual=40", &shape, 1, NULL);
		ckv_cache *published = cache_make("kivi4:group=8,residual=40,mode=reference", &shape, 1, NULL);
		assert_int_equal(load_status(exact, 0, &t, n, NULL), CKV_OK);
		assert_int_equal(load_status(published, 0, &t, n, NULL), CKV_OK);
		int32_t window = n / 4 < 40 ? n / 4 : 40;
		assert_int_equal(exact->layers[0].k.heads[0].packed.n, (n - window) / 8 * 8);
		assert_int_equal(published->layers[0].k.heads[0].packed.n, n < 40 ? 0 : (n - 40) / 8 * 8);
		ckv_cache_free(exact);
		ckv_cache_free(published);
	}
	tokens_free(&t);
}

/* ----------------------------------------------------------------------------------------------------------- palu */

static void store_again(tokens *t) {
	stored_free(&t->stored_k);
	stored_free(&t->stored_v);
	t->stored_k = stored_make(&t->k, CKV_F32, HEADS_OUTSIDE, 0);
	t->stored_v = stored_make(&t->v, CKV_F32, HEADS_OUTSIDE, 0);
}

/* Rows of each head in a space of `rank` directions about a mean, those of heads 2i and 2i + 1 in the same one. */
static void flatten(rng *r, tensor *x, int32_t rank) {
	float directions[8][32], mean[32];
	assert_true(rank <= 8 && x->dim <= 32);
	for (int32_t h = 0; h < x->n_heads; h++) {
		for (int32_t j = 0; j < x->dim && h % 2 == 0; j++) {
			mean[j] = 3.0f * rng_float(r);
			for (int32_t k = 0; k < rank; k++) {
				directions[k][j] = rng_float(r);
			}
		}
		for (int32_t i = 0; i < x->n_tokens; i++) {
			float *row = tensor_row(x, h, i);
			memcpy(row, mean, (size_t)x->dim * sizeof *row);
			for (int32_t k = 0; k < rank; k++) {
				float much = rng_float(r);
				for (int32_t j = 0; j < x->dim; j++) {
					row[j] += much * directions[k][j];
				}
			}
		}
	}
}

static double worst(const float *found, const tensor *x, int32_t head, int32_t first, int32_t n) {
	double most = 0.0;
	for (int32_t i = 0; i < n; i++) {
		for (int32_t j = 0; j < x->dim; j++) {
			double error = (double)found[(first + i) * x->dim + j] - (double)tensor_row(x, head, first + i)[j];
			most = fmax(most, fabs(error));
		}
	}
	return most;
}

/* Keys in 8 bits, values in f16: numbers up to about 8, of which f16 keeps 11 bits. */
static void palu_finds_the_subspace_that_rows_lie_in(void **state) {
	const ckv_stream_shape shape = {4, 24, 20};
	rng r = {3};
	(void)state;
	if (!ckv_low_rank_available()) {
		skip();
	}
	for (int32_t rank = 1; rank <= 6; rank++) {
		tokens t = rough_tokens(&r, shape, 120, 1);
		flatten(&r, &t.k, rank);
		flatten(&r, &t.v, rank + 1);
		store_again(&t);
		ckv_cache *cache =
		    cache_make("palu:energy=0.96,head_groups=2,quantize_values=0,high_bits=8,low_bits=8,group=16", &shape, 1, NULL);
		assert_int_equal(load_status(cache, 0, &t, 100, NULL), CKV_OK);
		assert_int_equal(append_status(cache, 0, &t, 100, 19), CKV_OK);
		assert_int_equal(append_status(cache, 0, &t, 119, 1), CKV_OK);
		assert_int_equal(cache_info(cache, 0).rank_k, rank);
		assert_int_equal(cache_info(cache, 0).rank_v, rank + 1);
		for (int32_t head = 0; head < 4; head++) {
			head_read rows = read_head(cache, 0, head, 24, 20);
			CHECK(worst(rows.k, &t.k, head, 0, 100) < 0.08, "rank %d: coded keys are %g off", rank,
			      worst(rows.k, &t.k, head, 0, 100));
			CHECK(worst(rows.k, &t.k, head, 100, 20) < 0.02, "rank %d: keys are %g off", rank,
			      worst(rows.k, &t.k, head, 100, 20));
			CHECK(worst(rows.v, &t.v, head, 0, 120) < 0.02, "rank %d: values are %g off", rank,
			      worst(rows.v, &t.v, head, 0, 120));
			head_read_free(&rows);
		}
		ckv_cache_free(cache);
		tokens_free(&t);
	}
}

/* A row as the subspace has it, in double, and how much rounding its latents to f16 may change it. Rows that the subspace
 * was fitted to were f16 before. */
static void check_projected(const ckv_low_rank *fit, int32_t head, const float *came, bool fitted, const float *found,
                            const char *what) {
	int32_t group = ckv_low_rank_group(fit, head), dim = fit->dim, rank = fit->rank;
	const float *mean = fit->mean + group * dim, *basis = fit->basis + group * dim * rank;
	for (int32_t c = 0; c < dim; c++) {
		double sum = (double)mean[c], off = 1e-5;
		for (int32_t k = 0; k < rank; k++) {
			double latent = 0.0;
			for (int32_t j = 0; j < dim; j++) {
				double x = fitted ? f16_rounded((double)came[j]) : (double)came[j];
				latent += (x - (double)mean[j]) * (double)basis[j * rank + k];
			}
			sum += latent * (double)basis[c * rank + k];
			off += 0x1p-10 * fabs(latent * (double)basis[c * rank + k]);
		}
		CHECK(fabs(sum - (double)found[c]) <= off + 0x1p-11 * fabs(sum), "%s: head %d, channel %d: %.9g instead of %.9g",
		      what, head, c, (double)found[c], sum);
	}
}

/* Values, which stay f16 here, and keys from row `first` on. */
static void check_subspace(ckv_cache *cache, const tokens *t, const held *h, int32_t first, const char *what) {
	const cache_layer *layer = &cache->layers[0];
	for (int32_t head = 0; head < h->n_heads; head++) {
		head_read rows = read_head(cache, 0, head, t->k.dim, t->v.dim);
		assert_int_equal(rows.n, h->n[head]);
		for (int32_t i = 0; i < rows.n; i++) {
			int32_t token = h->token[head * h->most + i];
			bool fitted = token < first;
			check_projected(&layer->v.fit, head, tensor_row(&t->v, head, token), fitted, rows.v + i * t->v.dim, what);
			if (!fitted) {
				check_projected(&layer->k.fit, head, tensor_row(&t->k, head, token), false, rows.k + i * t->k.dim, what);
			}
		}
		head_read_free(&rows);
	}
}

static void rows_lie_in_the_subspace_of_those_that_were_loaded(void **state) {
	static const char *const policies[] = {"palu:rank=6,head_groups=2,quantize_values=0",
	                                       "palu:energy=0.5,quantize_values=0",
	                                       "palu:rank=500,head_groups=1,quantize_values=0"};
	static const int32_t ranks[] = {6, 0, 15};
	const ckv_stream_shape shape = {3, 18, 15};
	rng r = {4};
	(void)state;
	if (!ckv_low_rank_available()) {
		skip();
	}
	for (int i = 0; i < 30; i++) {
		tokens t = rough_tokens(&r, shape, 110, 2);
		held h = held_make(3, 110);
		lists l = lists_random(&r, 3, 90, i % 2);
		ckv_cache *cache = cache_make(policies[i % 3], &shape, 1, NULL);
		cache_load(cache, 0, &t, 90, i % 5 ? &l.keep : NULL, &h);
		cache_append(cache, 0, &t, 90, 1, &h);
		cache_append(cache, 0, &t, 91, 19, &h);
		check_subspace(cache, &t, &h, 90, policies[i % 3]);
		int32_t rank = cache->layers[0].v.fit.rank;
		CHECK(ranks[i % 3] ? rank <= ranks[i % 3] : rank > 0 && rank < 15, "%s: rank %d", policies[i % 3], rank);
		ckv_cache_free(cache);
		lists_free(&l);
		held_free(&h);
		tokens_free(&t);
	}
}

static void more_energy_is_more_rank_up_to_all(void **state) {
	static const char *const policies[] = {"palu:energy=0.2", "palu:energy=0.6", "palu:energy=0.95", "palu:energy=1"};
	const ckv_stream_shape shape = {4, 18, 15};
	rng r = {5};
	int32_t before = 0;
	(void)state;
	if (!ckv_low_rank_available()) {
		skip();
	}
	tokens t = rough_tokens(&r, shape, 90, 1);
	for (size_t i = 0; i < 4; i++) {
		ckv_cache *cache = cache_make(policies[i], &shape, 1, NULL);
		assert_int_equal(load_status(cache, 0, &t, 90, NULL), CKV_OK);
		int32_t rank = cache_info(cache, 0).rank_k;
		assert_true(rank > before);
		before = rank;
		ckv_cache_free(cache);
	}
	assert_int_equal(before, 18);
	tokens_free(&t);
}

/* A single row is its own mean. */
static void one_row_is_a_load_too(void **state) {
	const ckv_stream_shape shape = {2, 18, 15};
	rng r = {6};
	(void)state;
	tokens t = rough_tokens(&r, shape, 20, 2);
	for (size_t c = 0; c < n_test_codecs(); c++) {
		const char *codec = test_codecs[c];
		held h = held_make(2, 20);
		ckv_cache *cache = cache_make(codec, &shape, 1, NULL);
		cache_load(cache, 0, &t, 1, NULL, &h);
		head_read rows = read_head(cache, 0, 1, 18, 15);
		assert_int_equal(rows.n, 1);
		for (int32_t j = 0; j < 18; j++) { /* heads of a group share a mean, of two rows then */
			double value = f16_rounded((double)tensor_row(&t.k, 1, 0)[j]);
			CHECK(fabs((double)rows.k[j] - value) < (strstr(codec, "palu") ? 2e-3 : 1e-30), "%s: %.9g instead of %.9g",
			      codec, (double)rows.k[j], value);
		}
		cache_append(cache, 0, &t, 1, 1, &h);
		cache_append(cache, 0, &t, 2, 18, &h);
		check_attend(cache, 0, &(query_case){&t, 18, 2, 0.0f, 0.0f}, strstr(codec, "reference") ? 300.0 : 2.0, codec);
		head_read_free(&rows);
		ckv_cache_free(cache);
		held_free(&h);
	}
	tokens_free(&t);
}

/* Tokens one by one are held as they are, until a call of several comes, whose subspace is of all. */
static void palu_waits_for_a_call_of_several_tokens(void **state) {
	const char *policy = "palu:rank=5,head_groups=2,quantize_values=0";
	const ckv_stream_shape shape = {4, 18, 15};
	rng r = {7};
	(void)state;
	if (!ckv_low_rank_available()) {
		skip();
	}
	tokens t = rough_tokens(&r, shape, 80, 1);
	held h = held_make(4, 80), all = held_make(4, 80);
	ckv_cache *cache = cache_make(policy, &shape, 1, NULL), *loaded = cache_make(policy, &shape, 1, NULL);
	for (int32_t i = 0; i < 10; i++) {
		cache_append(cache, 0, &t, i, 1, &h);
		check_f16_rows(cache, 0, &h, &t, policy);
		assert_int_equal(cache_info(cache, 0).rank_k, 0);
		assert_int_equal(cache_info(cache, 0).reference_bytes, cache_info(cache, 0).bytes);
	}
	cache_append(cache, 0, &t, 10, 60, &h);
	assert_int_equal(cache_info(cache, 0).rank_k, 5);
	cache_load(loaded, 0, &t, 70, NULL, &all);
	saved bytes = save_cache(loaded);
	assert_true(cache_saves_as(cache, &bytes));
	saved_free(&bytes);
	cache_append(cache, 0, &t, 70, 10, &h);
	check_subspace(cache, &t, &h, 70, policy);
	ckv_cache_free(cache);
	ckv_cache_free(loaded);
	held_free(&h);
	held_free(&all);
	tokens_free(&t);
}

/* Of one side: codes with their levels and the count of each group's rows, latents of later rows, bases. */
static uint64_t palu_bytes(const ckv_codec *codec, const held *loaded, int32_t later, int32_t dim, int32_t rank,
                           bool coded) {
	int32_t high = (int32_t)(rank * codec->high_share), groups = codec->head_groups;
	uint64_t level = codec->reference ? 4 : 2, bytes = 0, r = (uint64_t)rank;
	high = high > 0 ? high : 1;
	groups = groups < loaded->n_heads ? groups : loaded->n_heads;
	for (int32_t head = 0; head < loaded->n_heads; head++) {
		uint64_t n = (uint64_t)loaded->n[head];
		bytes += coded ? n * (divided_up(high * codec->high_bits, 8) + divided_up((rank - high) * codec->low_bits, 8)) +
		                     divided_up(loaded->n[head], codec->group) * (2 * level * r + 4)
		               : n * 2 * r;
		bytes += (uint64_t)later * 2 * r;
	}
	return bytes + (uint64_t)groups * 4 * ((uint64_t)dim * (r + 1) + r);
}

static void bytes_of_palu_are_those_of_codes_latents_and_bases(void **state) {
	static const char *const policies[] = {"palu:rank=7,head_groups=2,group=8", "palu:rank=7,quantize_values=0",
	                                       "palu:rank=7,head_groups=3,high_share=1,high_bits=3",
	                                       "palu:rank=7,head_groups=1,group=5,low_bits=3,mode=reference"};
	const ckv_stream_shape shape = {3, 18, 15};
	rng r = {8};
	(void)state;
	if (!ckv_low_rank_available()) {
		skip();
	}
	for (size_t i = 0; i < 20; i++) {
		const char *policy = policies[i % 4];
		const ckv_codec codec = codec_of(policy);
		tokens t = rough_tokens(&r, shape, 80, 1);
		held h = held_make(3, 80);
		lists l = lists_random(&r, 3, 60, false);
		ckv_cache *cache = cache_make(policy, &shape, 1, NULL);
		cache_load(cache, 0, &t, 60, i % 3 ? &l.keep : NULL, &h);
		int32_t rank_k = cache_info(cache, 0).rank_k, rank_v = cache_info(cache, 0).rank_v;
		assert_true(rank_k > 0 && rank_v > 0);
		for (int32_t later = 0; later <= 20; later += 20) {
			uint64_t expected = palu_bytes(&codec, &h, later, 18, rank_k, true) +
			                    palu_bytes(&codec, &h, later, 15, rank_v, codec.quantize_values);
			CHECK(cache_info(cache, 0).bytes == expected, "%s: %llu bytes instead of %llu", policy,
			      (unsigned long long)cache_info(cache, 0).bytes, (unsigned long long)expected);
			assert_int_equal(append_status(cache, 0, &t, 60, 1), CKV_OK);
			assert_int_equal(append_status(cache, 0, &t, 61, 19), CKV_OK);
		}
		ckv_cache_free(cache);
		lists_free(&l);
		held_free(&h);
		tokens_free(&t);
	}
}

/* The layer stays empty, and what palu is without is named. */
static void palu_says_what_it_lacks(void **state) {
	const ckv_stream_shape shape = {2, 8, 8};
	rng r = {9};
	(void)state;
	if (ckv_low_rank_available()) {
		skip();
	}
	tokens t = rough_tokens(&r, shape, 30, 1);
	held h = held_make(2, 30);
	ckv_cache *cache = cache_make("palu", &shape, 1, NULL);
	assert_int_equal(load_status(cache, 0, &t, 20, NULL), CKV_ERR_UNSUPPORTED);
	assert_non_null(strstr(ckv_cache_message(cache), "LAPACKE"));
	assert_int_equal(ckv_cache_rows(cache, 0, 0), 0);
	cache_append(cache, 0, &t, 0, 1, &h);
	assert_int_equal(append_status(cache, 0, &t, 1, 2), CKV_ERR_UNSUPPORTED);
	check_f16_rows(cache, 0, &h, &t, "palu");
	ckv_cache_free(cache);
	held_free(&h);
	tokens_free(&t);
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(kivi_packs_whole_groups_behind_the_window),
	    cmocka_unit_test(at_most_a_quarter_of_a_load_is_its_window),
	    cmocka_unit_test(palu_finds_the_subspace_that_rows_lie_in),
	    cmocka_unit_test(rows_lie_in_the_subspace_of_those_that_were_loaded),
	    cmocka_unit_test(more_energy_is_more_rank_up_to_all),
	    cmocka_unit_test(one_row_is_a_load_too),
	    cmocka_unit_test(palu_waits_for_a_call_of_several_tokens),
	    cmocka_unit_test(bytes_of_palu_are_those_of_codes_latents_and_bases),
	    cmocka_unit_test(palu_says_what_it_lacks),
	};
	return cmocka_run_group_tests_name("cache_codecs", tests, NULL, NULL);
}
