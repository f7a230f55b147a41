/* The ChunkKV paper's comparison with packed and projected rows: a prompt, an answer of a fixed length, and where the time
 * goes. Each round does all of it for each policy, the prefill too; ratios to the full cache are taken within a round. The
 * full cache is llama.cpp's alone, which nothing of ours looks at. The answer's first token comes from the prefill. */
#include "hosted.h"

enum { MAX_LANES = 8 };

/* The full cache first. */
static const lane_kind kinds[] = {
    {NULL, CKV_LLAMA_CACHE_OWN},     {"chunkkv", CKV_LLAMA_CACHE_AUTO}, {"kivi8", CKV_LLAMA_CACHE_AUTO},
    {"kivi2", CKV_LLAMA_CACHE_AUTO}, {"palu", CKV_LLAMA_CACHE_AUTO},    {"chunkkv+kivi4", CKV_LLAMA_CACHE_AUTO},
};

typedef enum phase {
	PREFILL,
	FIRST, /* from the start to the answer's first token */
	SCORE, /* scoring and selecting */
	MOVE,  /* gathering the kept rows, and packing or projecting them */
	SWAP,  /* the large context freed, the small one made, and the rows put into it */
	TOKEN, /* each of the answer's other tokens */
	TOTAL,
	N_PHASES
} phase;

/* Units of the table. */
static const double per_second[N_PHASES] = {1, 1, 1e3, 1e3, 1e3, 1e3, 1};

typedef struct outcome {
	lane_kind kind;
	int32_t n_rows;
	uint64_t alloc, hosted;
	double seconds[MAX_ROUNDS][N_PHASES];
} outcome;

typedef struct trial {
	const bench *b;
	struct llama_sampler *sampler;
	outcome outcomes[MAX_LANES];
	int n;
} trial;

static bool compress(const trial *t, lane *l, double *took) {
	if (!l->ckv) {
		l->report.n_cells = t->b->n_prompt;
		return true;
	}
	if (!lane_extract(l, ckv_keep_percent(10))) {
		return false;
	}
	double start = seconds();
	lane_drop_large(l);
	bool good = lane_make_small(t->b, l, t->b->options.n_predict);
	took[SCORE] = l->report.score_s;
	took[MOVE] = l->report.move_s;
	took[SWAP] = seconds() - start;
	return good;
}

/* Greedy, on to the full length whatever the model says. */
static bool go_on(const trial *t, lane *l, llama_token token, double *took) {
	int32_t n = t->b->options.n_predict - 1;
	double start = seconds();
	for (int32_t i = 0; i < n; i++) {
		if (!lane_decode(l, token)) {
			return false;
		}
		token = llama_sampler_sample(t->sampler, lane_context(l), -1);
	}
	took[TOKEN] = n > 0 ? (seconds() - start) / n : 0.0;
	return lane_check(l);
}

static bool run_lane(const trial *t, lane *l, double *took) {
	const bench *b = t->b;
	double start = seconds();
	if (!lane_read(b, l, b->n_prompt)) {
		return false;
	}
	took[PREFILL] = seconds() - start;
	llama_token first = llama_sampler_sample(t->sampler, l->large, -1);
	took[FIRST] = seconds() - start;
	bool good = compress(t, l, took) && go_on(t, l, first, took);
	took[TOTAL] = seconds() - start;
	return good;
}

static bool one_run(const trial *t, outcome *o, int round) {
	lane l;
	const bench *b = t->b;
	int32_t room = o->kind.policy ? 0 : b->options.n_predict; /* the full cache's answer goes on where the prompt is */
	bool good = lane_open(b, o->kind, &l) && lane_make_large(b, &l, b->n_prompt + room, b->options.n_ubatch) &&
	            run_lane(t, &l, o->seconds[round]);
	if (good) {
		o->n_rows = l.report.n_cells;
		o->kind.cache = l.report.hosted ? CKV_LLAMA_CACHE_HOSTED : CKV_LLAMA_CACHE_OWN;
		o->alloc = lane_alloc(b, &l);
		o->hosted = lane_hosted(&l);
	}
	lane_close(&l);
	return good;
}

static bool run_rounds(trial *t) {
	bool good = true;
	for (int round = 0; round < t->b->rounds && good; round++) {
		for (int i = 0; i < t->n && good; i++) {
			good = one_run(t, &t->outcomes[(i + round) % t->n], round);
		}
	}
	return good;
}

/* ------------------------------------------------------------------------------------------------------------- table */

static spread took(const trial *t, const outcome *o, phase p) {
	double x[MAX_ROUNDS];
	for (int i = 0; i < t->b->rounds; i++) {
		x[i] = o->seconds[i][p];
	}
	return spread_of(x, t->b->rounds);
}

static void print_ratio(const trial *t, const outcome *o, phase p) {
	double x[MAX_ROUNDS];
	for (int i = 0; i < t->b->rounds; i++) {
		x[i] = o->seconds[i][p] / t->outcomes[0].seconds[i][p];
	}
	spread s = spread_of(x, t->b->rounds);
	printf("\t%.3f\t%.3f\t%.3f", s.median, s.low, s.high);
}

static void print_outcome(const trial *t, const outcome *o) {
	printf("%s\t%s\t%d\t%.2f\t%.2f", o->kind.policy ? o->kind.policy : "full", lane_cache(o->kind), o->n_rows,
	       (double)o->alloc / 1e6, (double)o->hosted / 1e6);
	for (phase p = 0; p < N_PHASES; p++) {
		printf("\t%.2f", per_second[p] * took(t, o, p).median);
	}
	print_ratio(t, o, TOKEN);
	print_ratio(t, o, TOTAL);
	putchar('\n');
}

bool hosted_paper(bench *b) {
	static trial t;
	t.b = b;
	bool good = bench_open(b);
	t.sampler = engine_sampler(&b->options);
	printf("# 10 %% where rows are dropped; answers of %d tokens; medians, of ratios with quartiles\n",
	       b->options.n_predict);
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		if (lane_possible(kinds[i])) {
			t.outcomes[t.n++].kind = kinds[i];
		}
	}
	puts("policy\tcache\trows\tallocated MB\thosted MB\tprefill s\tfirst token s\tscore ms\tmove ms\tswap ms\ttoken "
	     "ms\ttotal s\t"
	     "token / full\tlow\thigh\ttotal / full\tlow\thigh");
	good = good && run_rounds(&t);
	for (int i = 0; i < t.n && good; i++) {
		print_outcome(&t, &t.outcomes[i]);
	}
	llama_sampler_free(t.sampler);
	bench_close(b);
	return good;
}
