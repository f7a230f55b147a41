/* What the unit tests share: random values with fixed seeds, arrays that every element type can hold exactly, layers made of
 * them, a counting allocator, and plain double-precision versions of what the library computes. */
#ifndef CKV_TEST_SUPPORT_H
#define CKV_TEST_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "chunkkv/chunkkv.h"

#include <stdbool.h>

/* As assert_true, but tells in which of many random cases it failed. */
#define CHECK(condition, ...)                                                                                               \
	do {                                                                                                                    \
		if (!(condition)) {                                                                                                 \
			check_failed(__FILE__, __LINE__, #condition, __VA_ARGS__);                                                      \
		}                                                                                                                   \
	} while (0)

void check_failed(const char *file, int line, const char *condition, const char *format, ...)
    __attribute__((format(printf, 4, 5), noreturn));

/* ---------------------------------------------------------------- random */

typedef struct rng {
	uint64_t state;
} rng;

uint32_t rng_bits(rng *r);
int32_t rng_range(rng *r, int32_t low, int32_t high); /* both included */
float rng_float(rng *r);                              /* -1 to 1 */
bool rng_chance(rng *r, int32_t one_in);

/* ---------------------------------------------------------------- memory */

/* malloc that fails the test instead of returning NULL; never of 0 bytes. */
void *test_memory(size_t count, size_t size);

/* Fills with a pattern that no result looks like; and whether it is still there. */
void paint(void *memory, size_t size);
bool is_painted(const void *memory, size_t size);

/* An allocator that counts, and refuses one request or all from one on. */
typedef struct counting {
	ckv_allocator allocator;
	long live, calls;
	long refuse_in; /* 1: the next request is refused, 2: the one after it; 0: none is */
	bool stay;      /* and all after that one too */
	size_t largest; /* a request above it is refused: no test takes gigabytes for real */
} counting;

void counting_init(counting *c);

/* ---------------------------------------------------------------- arrays */

/* [n_heads][n_tokens][dim] of values with 8 significant bits: exact in f32, f16, bf16 and in the 16-bit fixed point of
 * CKV_DECODED here, so that results must not depend on the type. */
typedef struct tensor {
	int32_t n_heads, n_tokens, dim;
	float *value;
} tensor;

tensor tensor_random(rng *r, int32_t n_heads, int32_t n_tokens, int32_t dim);
float *tensor_row(const tensor *t, int32_t head, int32_t token);
void tensor_free(tensor *t);

typedef enum layout { HEADS_OUTSIDE, TOKENS_OUTSIDE } layout;

/* A tensor stored as a dtype, in a layout, with `padding` unused bytes after each row. */
typedef struct stored {
	ckv_view view;
	unsigned char *memory;
	size_t size;
} stored;

stored stored_make(const tensor *t, ckv_dtype dtype, layout order, size_t padding);
void stored_free(stored *s);

/* Keys and queries of one layer, and values where they were added, stored as f32 with heads outside. */
typedef struct test_layer {
	tensor k, q, v;
	stored stored_k, stored_q, stored_v;
	ckv_layer layer;
} test_layer;

test_layer test_layer_make(rng *r, int32_t n_q_heads, int32_t n_kv_heads, int32_t dim, int32_t n_tokens, int32_t n_queries);
/* Values of `dim` channels for each key. */
void test_layer_add_values(test_layer *t, rng *r, int32_t dim);
void test_layer_free(test_layer *t);

/* Scores of the layer. */
size_t layer_scores(const ckv_layer *layer);

/* The layer's first n tokens: a shorter view of the same memory. */
ckv_layer layer_prefix(const ckv_layer *layer, int32_t n_tokens);

/* --------------------------------------------------------------- context */

/* Parses the policy and makes a context with the library's own defaults; fails the test when it cannot. */
ckv_ctx *make_ctx(const char *policy);
ckv_ctx *make_ctx_with(const char *policy, const ckv_ctx_options *options);

/* --------------------------------------------------------------- scoring */

/* ckv_score that must succeed. */
void score(ckv_ctx *ctx, const ckv_layer *layer, float *scores);

/* ckv_score that must fail with this status and a message; returns whether it left the scores alone, score_refused insists.
 */
bool score_fails(ckv_ctx *ctx, const ckv_layer *layer, size_t n, ckv_status expected, const char *what);
void score_refused(ckv_ctx *ctx, const ckv_layer *layer, size_t n, ckv_status expected, const char *what);

void check_bits(const float *a, const float *b, size_t n, const char *what);

/* Scores against those that a plain computation in double expects. */
void check_scores(const double *expected, const float *scores, size_t n, const char *what);

/* What holds for every scorer: type, layout and padding of what it reads do not show, nor does the instruction set, nor what
 * the context did before; nothing is written beyond the scores. */
void check_scorer(const char *policy, const test_layer *t, rng *r);

/* A key that is not finite is an error that names its head and token. */
void check_bad_keys(const char *policy);

/* ------------------------------------------------------------- selecting */

/* The result of a selection, with room for all tokens of all heads. */
typedef struct selected {
	int32_t n_heads, n_tokens;
	int32_t *positions, *offsets;
	ckv_keep keep;
	unsigned char *mask; /* [n_heads][n_tokens]: kept */
} selected;

/* ckv_select, ckv_select_blocks or ckv_select_scores, that must succeed; the lists must be well-formed. */
selected select_layer(ckv_ctx *ctx, const ckv_layer *layer, ckv_budget budget);
selected select_blocks(ckv_ctx *ctx, const ckv_layer *layer, ckv_budget budget, int32_t block);
selected select_scores(ckv_ctx *ctx, const float *scores, int32_t n_heads, int32_t n_tokens, ckv_budget budget);
void selected_free(selected *s);

/* Both, with reason, number of lists and attention. */
bool same_selected(const selected *a, const selected *b);

/* Tokens kept of a head. */
int32_t n_kept(const selected *s, int32_t head);

/* Multiples of 1/64, so that every sum is exact and ties are real ones; a narrow range has many. */
void exact_scores(rng *r, float *scores, int32_t n);

/* ----------------------------------------------------------------- naive */

/* Marks the n best of the open tokens from .. to-1, one after another, the lower position of equals. */
void naive_best(const double *scores, int32_t from, int32_t to, int32_t n, unsigned char *kept);

/* Sinks first, then the newest of the window, as far as the budget goes; returns what is left of it. */
int32_t naive_protect(int32_t n_tokens, int32_t sinks, int32_t window, int32_t budget, unsigned char *kept);

/* mass[H][T]: mean over the last `window` queries of their softmax, in double. scale 0: 1/sqrt(d); cap 0: none. */
void naive_mass(const tensor *k, const tensor *q, int32_t window, double scale, double cap, double *mass);

/* scores[G][T] of SnapKV as section 1 of the algorithms states it. */
void naive_snapkv(const tensor *k, const tensor *q, int32_t window, int32_t kernel, double scale, double cap,
                  double *scores);

/* The tolerance for scores that the project states: 2e-5 relative plus 5e-7. */
bool scores_equal(double a, double b);

#endif
