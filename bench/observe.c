/* What observing costs: the time of a prefill under each policy, as a ratio to the same prefill unobserved.
 *
 * usage: ckv-bench-observe MODEL DOCUMENT TOKENS ROUNDS POLICY [POLICY ...]
 *
 * Rounds are interleaved: in each the plain prefill and every policy's run one after the other, and the ratio is taken
 * within the round; the median over the rounds is printed, with the lowest and the highest. */
#define _POSIX_C_SOURCE 200809L
#include "cli.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_POLICIES = 16, MAX_ROUNDS = 32, UBATCH = 512 };

typedef struct bench {
	run_options options;
	engine engine;
	int32_t n_tokens;
	int n_policies, n_rounds;
	char **policies;
	double plain[MAX_ROUNDS], ratio[MAX_POLICIES][MAX_ROUNDS], score_s[MAX_POLICIES];
	uint64_t bytes[MAX_POLICIES]; /* that observing took from the allocator, at most */
} bench;

/* Counts what is allocated and not yet given back. */
typedef struct counter {
	ckv_allocator own;
	uint64_t now, most;
} counter;

static void *count_alloc(void *user, size_t size) {
	counter *c = user;
	size_t *memory = malloc(size + 64);
	if (memory) {
		*memory = size;
		c->now += size;
		c->most = c->now > c->most ? c->now : c->most;
	}
	return memory ? (char *)memory + 64 : NULL;
}

static void count_free(void *user, void *memory) {
	counter *c = user;
	size_t *start = (size_t *)(void *)((char *)memory - 64);
	c->now -= *start;
	free(start);
}

static bool prefill_plain(bench *b, double *out) {
	struct llama_context_params params = engine_context_params(&b->engine, b->n_tokens, UBATCH);
	params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
	struct llama_context *ctx = llama_init_from_model(b->engine.model, params);
	double start = seconds();
	bool good = ctx != NULL;
	for (int32_t at = 0; at < b->n_tokens && good; at += UBATCH) {
		int32_t n = b->n_tokens - at < UBATCH ? b->n_tokens - at : UBATCH;
		good = llama_decode(ctx, llama_batch_get_one(b->engine.prompt + at, n)) == 0;
	}
	if (good) {
		llama_synchronize(ctx);
	}
	*out = seconds() - start;
	llama_free(ctx);
	return good;
}

static bool prefill_observed(bench *b, int policy, double *out) {
	counter c = {{count_alloc, count_free, NULL}, 0, 0};
	ckv_ctx_options core;
	ckv_params parsed;
	ckv_error error;
	ckv_llama *ckv = NULL;
	ckv_llama_report report = {.size = sizeof report};
	c.own.user = &c;
	ckv_ctx_options_default(&core);
	core.allocator = &c.own;
	core.n_threads = b->options.n_threads;
	if (ckv_policy_parse(b->policies[policy], &parsed, &error) || ckv_llama_create_params(&ckv, &parsed, &core, &error)) {
		fail("%s", error.message);
		return false;
	}
	struct llama_context_params params = engine_context_params(&b->engine, b->n_tokens, UBATCH);
	ckv_llama_attach(ckv, &params);
	struct llama_context *ctx = llama_init_from_model(b->engine.model, params);
	double start = seconds();
	bool good = ctx && ckv_llama_prefill(ckv, ctx, 0, b->engine.prompt, b->n_tokens) == CKV_OK;
	*out = seconds() - start;
	b->bytes[policy] = c.most;
	good = good && ckv_llama_extract(ckv, ctx, 0, ckv_keep_percent(10), &report) == CKV_OK;
	b->score_s[policy] = report.score_s;
	if (!good) {
		fail("%s: %s", b->policies[policy], ckv_llama_message(ckv));
	}
	llama_free(ctx);
	ckv_llama_free(ckv);
	return good;
}

static int compare(const void *a, const void *b) {
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static void summary(bench *b) {
	qsort(b->plain, (size_t)b->n_rounds, sizeof *b->plain, compare);
	printf("# prefill of %d tokens, unobserved: %.2f s (median of %d)\n", b->n_tokens, b->plain[b->n_rounds / 2],
	       b->n_rounds);
	printf("policy\tprefill / unobserved\tlowest\thighest\tmemory of the observation, MB\tscoring, ms\n");
	for (int i = 0; i < b->n_policies; i++) {
		qsort(b->ratio[i], (size_t)b->n_rounds, sizeof *b->ratio[i], compare);
		printf("%s\t%.3f\t%.3f\t%.3f\t%.2f\t%.1f\n", b->policies[i], b->ratio[i][b->n_rounds / 2], b->ratio[i][0],
		       b->ratio[i][b->n_rounds - 1], (double)b->bytes[i] / 1e6, 1e3 * b->score_s[i]);
	}
}

static bool run_rounds(bench *b) {
	double warm;
	bool good = prefill_plain(b, &warm);
	for (int r = 0; r < b->n_rounds && good; r++) {
		good = prefill_plain(b, &b->plain[r]);
		for (int i = 0; i < b->n_policies && good; i++) {
			double time = 0.0;
			good = prefill_observed(b, i, &time);
			b->ratio[i][r] = time / b->plain[r];
		}
	}
	return good;
}

int main(int argc, char **argv) {
	static bench b;
	if (argc < 6 || argc - 5 > MAX_POLICIES) {
		fputs("usage: ckv-bench-observe MODEL DOCUMENT TOKENS ROUNDS POLICY [POLICY ...]\n", stderr);
		return EXIT_USAGE;
	}
	char *arguments[] = {"run", "-m", argv[1], "-f", argv[2], "-p", "?", NULL};
	if (options_parse(7, arguments, &b.options, COMMAND_RUN)) {
		return EXIT_USAGE;
	}
	b.n_tokens = (int32_t)strtol(argv[3], NULL, 10);
	b.n_rounds = (int)strtol(argv[4], NULL, 10);
	b.policies = argv + 5;
	b.n_policies = argc - 5;
	b.engine.options = &b.options;
	llama_backend_init();
	bool good = b.n_rounds > 0 && b.n_rounds <= MAX_ROUNDS && engine_read(&b.engine) && engine_load(&b.engine, false) &&
	            engine_prompt(&b.engine);
	if (good && (b.n_tokens < 1 || b.n_tokens > b.engine.n_prompt)) {
		fail("the prompt has %d tokens", b.engine.n_prompt);
		good = false;
	}
	good = good && run_rounds(&b);
	if (good) {
		summary(&b);
	}
	engine_free(&b.engine);
	llama_backend_free();
	return good ? 0 : EXIT_FAILED;
}
