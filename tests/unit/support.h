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

/* Keys and queries of one layer, stored as f32 with heads outside. */
typedef struct test_layer {
	tensor k, q;
	stored stored_k, stored_q;
	ckv_layer layer;
} test_layer;

test_layer test_layer_make(rng *r, int32_t n_q_heads, int32_t n_kv_heads, int32_t dim, int32_t n_tokens, int32_t n_queries);
void test_layer_free(test_layer *t);

/* --------------------------------------------------------------- context */

/* Parses the policy and makes a context with the library's own defaults; fails the test when it cannot. */
ckv_ctx *make_ctx(const char *policy);
ckv_ctx *make_ctx_with(const char *policy, const ckv_ctx_options *options);

/* ----------------------------------------------------------------- naive */

/* mass[H][T]: mean over the last `window` queries of their softmax, in double. scale 0: 1/sqrt(d); cap 0: none. */
void naive_mass(const tensor *k, const tensor *q, int32_t window, double scale, double cap, double *mass);

/* scores[G][T] of SnapKV as section 1 of the algorithms states it. */
void naive_snapkv(const tensor *k, const tensor *q, int32_t window, int32_t kernel, double scale, double cap,
                  double *scores);

/* The tolerance for scores that the project states: 2e-5 relative plus 5e-7. */
bool scores_equal(double a, double b);

#endif
