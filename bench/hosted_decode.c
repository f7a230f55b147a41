/* How fast tokens are decoded on as many kept rows, wherever they are.
 *
 * One prompt is read for each policy; of what was observed so many rows are kept in each layer, by each policy its own, and
 * llama.cpp alone reads as many tokens. All then decode in turn, a block of the same tokens each, round after round; ratios
 * are taken within a round, so that drift of the machine cancels. The caches grow alike, by a block a round. */
#include "hosted.h"

#include <string.h>

enum { BLOCK = 16, MAX_LANES = 16 };

/* llama.cpp alone first; a policy without a codec in llama.cpp's cache before those that are compared with it. */
static const lane_kind kinds[] = {
    {NULL, CKV_LLAMA_CACHE_OWN},
    {"chunkkv", CKV_LLAMA_CACHE_OWN},
    {"chunkkv", CKV_LLAMA_CACHE_HOSTED},
    {"chunkkv+kivi8", CKV_LLAMA_CACHE_HOSTED},
    {"chunkkv+kivi4", CKV_LLAMA_CACHE_HOSTED},
    {"chunkkv+kivi2", CKV_LLAMA_CACHE_HOSTED},
    {"chunkkv+palu", CKV_LLAMA_CACHE_HOSTED},
    {"adakv", CKV_LLAMA_CACHE_OWN},
    {"adakv", CKV_LLAMA_CACHE_HOSTED},
    {"pyramidkv", CKV_LLAMA_CACHE_OWN},
    {"pyramidkv", CKV_LLAMA_CACHE_HOSTED},
};

typedef struct race {
	bench *b;
	int n;
	lane lanes[MAX_LANES];
	double seconds[MAX_LANES][MAX_ROUNDS]; /* of a block */
} race;

static int32_t new_tokens(const race *r) { return (r->b->rounds + 1) * BLOCK; } /* one block warms up */

/* Each prompt stays in a context of its own, so that several numbers of rows are kept of one reading. */
static bool read_all(race *r) {
	bool good = true;
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds && good; i++) {
		lane *l = &r->lanes[r->n];
		if (lane_possible(kinds[i])) {
			good = lane_open(r->b, kinds[i], l) &&
			       (!l->ckv || (lane_make_large(r->b, l, r->b->n_prompt, r->b->options.n_ubatch) &&
			                    lane_read(r->b, l, r->b->n_prompt)));
			r->n++;
		}
	}
	return good;
}

static bool keep(const race *r, lane *l, int32_t rows) {
	if (!l->ckv) {
		l->report.n_cells = rows;
		return lane_make_large(r->b, l, rows + new_tokens(r), SMALL_UBATCH) && lane_read(r->b, l, rows);
	}
	return lane_extract(l, ckv_keep_tokens(rows)) && lane_make_small(r->b, l, new_tokens(r));
}

static void let_go(lane *l) {
	lane_drop_small(l);
	if (!l->ckv) {
		lane_drop_large(l);
	}
}

/* Round -1 warms up. */
static bool run_block(race *r, int number, int round) {
	const bench *b = r->b;
	int32_t from = (round + 1) * BLOCK;
	double start = seconds();
	for (int32_t i = from; i < from + BLOCK; i++) {
		if (!lane_decode(&r->lanes[number], b->prompt[i % b->n_prompt])) {
			return false;
		}
	}
	if (round >= 0) {
		r->seconds[number][round] = seconds() - start;
	}
	return true;
}

static bool run_rounds(race *r) {
	bool good = true;
	for (int round = -1; round < r->b->rounds && good; round++) {
		for (int i = 0; i < r->n && good; i++) {
			good = run_block(r, (i + round + 1) % r->n, round);
		}
	}
	for (int i = 0; i < r->n && good; i++) {
		good = lane_check(&r->lanes[i]);
	}
	return good;
}

/* ------------------------------------------------------------------------------------------------------------- table */

static spread rate(const race *r, int number) {
	double x[MAX_ROUNDS];
	for (int i = 0; i < r->b->rounds; i++) {
		x[i] = BLOCK / r->seconds[number][i];
	}
	return spread_of(x, r->b->rounds);
}

/* The rate of one as a share of another's. */
static spread ratio(const race *r, int number, int other) {
	double x[MAX_ROUNDS];
	for (int i = 0; i < r->b->rounds; i++) {
		x[i] = r->seconds[other][i] / r->seconds[number][i];
	}
	return spread_of(x, r->b->rounds);
}

/* The same policy, whatever its codec, in llama.cpp's cache. */
static int own_lane(const race *r, int number) {
	const char *name = lane_policy(r->lanes[number].kind);
	int own = number;
	for (int i = 0; i < r->n; i++) {
		const lane_kind *kind = &r->lanes[i].kind;
		size_t length = kind->policy ? strlen(kind->policy) : 0;
		bool same = length && strncmp(kind->policy, name, length) == 0 && strcspn(name, "+") == length;
		own = same && kind->cache == CKV_LLAMA_CACHE_OWN ? i : own;
	}
	return own;
}

static void print_lane(const race *r, int number, int32_t rows) {
	const lane *l = &r->lanes[number];
	spread speed = rate(r, number), of_native = ratio(r, number, 0), of_own = ratio(r, number, own_lane(r, number));
	printf("%d\t%s\t%s\t%d\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f\n", rows, lane_policy(l->kind),
	       lane_cache(l->kind), l->report.n_cells, (double)lane_alloc(r->b, l) / 1e6, (double)lane_hosted(l) / 1e6,
	       speed.median, speed.low, speed.high, of_native.median, of_native.low, of_native.high, of_own.median, of_own.low,
	       of_own.high);
	fflush(stdout);
}

static bool one_number(race *r, int32_t rows) {
	bool good = true;
	for (int i = 0; i < r->n && good; i++) {
		good = keep(r, &r->lanes[i], rows);
	}
	good = good && run_rounds(r);
	for (int i = 0; i < r->n && good; i++) {
		print_lane(r, i, rows);
	}
	for (int i = 0; i < r->n; i++) {
		let_go(&r->lanes[i]);
	}
	return good;
}

bool hosted_decode(bench *b) {
	static race r;
	const int32_t few = b->quick ? 48 : 400, many = b->quick ? 96 : 1024;
	if (many > b->n_prompt) {
		return !fail("of a prompt of %d tokens %d can't be kept", b->n_prompt, many);
	}
	r.b = b;
	bool good = bench_open(b);
	printf("# medians and quartiles; longest: rows of the longest layer or head; allocated: cache tensors and the hosted "
	       "cache; of own: the policy in llama.cpp's cache\n");
	puts("rows\tpolicy\tcache\tlongest\tallocated MB\thosted MB\ttokens/s\tlow\thigh\tof native\tlow\thigh\tof "
	     "own\tlow\thigh");
	good = good && read_all(&r) && one_number(&r, few) && one_number(&r, many);
	for (int i = 0; i < r.n; i++) {
		lane_close(&r.lanes[i]);
	}
	bench_close(b);
	return good;
}
