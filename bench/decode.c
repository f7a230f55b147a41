/* What compression costs and gives in speed, side by side in one run.
 *
 * usage: ckv-bench-decode MODEL DOCUMENT KEEP POLICY N_PROMPT [N_PROMPT ...]
 *
 * For each prompt length three contexts of the same model decode in turn, a block of tokens each, round after round:
 *   compressed   the prompt's cache after compression, in a context of its size
 *   native       a context of the same size that read as many tokens as the other one kept
 *   full         the whole prompt's cache
 * Ratios are taken within a round, so that drift of the machine cancels; their median is printed with the quartiles. The
 * prompt is the document, repeated where it is too short: only speed is measured here. */
#include "cli.h"
#include "spread.h"

#include <stdlib.h>
#include <string.h>

enum { N_ROUNDS = 15, BLOCK = 16, UBATCH = 512 };

typedef struct bench {
	engine engine;
	ckv_params params;
	ckv_budget keep;
	const char *keep_text, *policy;
} bench;

typedef struct lane {
	struct llama_context *ctx;
	llama_token next;
	double seconds[N_ROUNDS];
} lane;

static bool run_block(lane *l, int round) {
	double start = seconds();
	for (int i = 0; i < BLOCK; i++) {
		if (llama_decode(l->ctx, llama_batch_get_one(&l->next, 1))) {
			return false;
		}
	}
	llama_synchronize(l->ctx);
	l->seconds[round] = seconds() - start;
	return true;
}

static spread rate(const lane *l) {
	double r[N_ROUNDS];
	for (int i = 0; i < N_ROUNDS; i++) {
		r[i] = BLOCK / l->seconds[i];
	}
	return spread_of(r, N_ROUNDS);
}

static spread ratio(const lane *a, const lane *b) {
	double r[N_ROUNDS];
	for (int i = 0; i < N_ROUNDS; i++) {
		r[i] = b->seconds[i] / a->seconds[i];
	}
	return spread_of(r, N_ROUNDS);
}

static llama_token *long_prompt(const bench *b, int32_t n) {
	llama_token *tokens = malloc((size_t)n * sizeof *tokens);
	for (int32_t i = 0; i < n && tokens; i++) {
		tokens[i] = b->engine.prompt[i % b->engine.n_prompt];
	}
	return tokens;
}

/* All lanes are attached alike, so that none is spared the callback. */
static struct llama_context *read_native(const bench *b, ckv_llama *ckv, const llama_token *tokens, int32_t n,
                                         int32_t cells) {
	struct llama_context *ctx = engine_small_context(&b->engine, ckv, cells);
	int32_t size = ctx ? (int32_t)llama_n_batch(ctx) : 1;
	for (int32_t i = 0; ctx && i < n; i += size) {
		int32_t count = n - i < size ? n - i : size;
		llama_token *part = (llama_token *)tokens + i;
		if (llama_decode(ctx, llama_batch_get_one(part, count))) {
			llama_free(ctx);
			return NULL;
		}
	}
	return ctx;
}

static void print_spread(const char *name, spread s) {
	printf("  %-44s %8.2f  (%.2f to %.2f)\n", name, s.median, s.low, s.high);
}

static void print_result(const bench *b, const ckv_llama_report *report, double prefill_s, double compress_s,
                         const lane lanes[3]) {
	printf("prompt %d tokens, %s, keep %s: %d kept\n", report->n_seen, b->policy, b->keep_text, report->n_cells);
	printf("  %-44s %8.3f s\n", "prefill", prefill_s);
	printf("  %-44s %8.1f ms = %.2f %% of the prefill\n", "compression (scoring, gathering, putting back)", 1e3 * compress_s,
	       100.0 * compress_s / prefill_s);
	printf("  %-44s %8.1f ms, %.1f ms\n", "of which scoring, moving", 1e3 * report->score_s,
	       1e3 * (compress_s - report->score_s));
	print_spread("compressed, tokens/s (quartiles)", rate(&lanes[0]));
	print_spread("native context of that length, tokens/s", rate(&lanes[1]));
	print_spread("full cache, tokens/s", rate(&lanes[2]));
	print_spread("ratio compressed / native", ratio(&lanes[0], &lanes[1]));
	print_spread("ratio compressed / full", ratio(&lanes[0], &lanes[2]));
	fflush(stdout);
}

static bool one_length(bench *b, int32_t n) {
	enum { N_NEW = N_ROUNDS * BLOCK };
	ckv_llama *ckv = NULL;
	lane lanes[3] = {{NULL, 0, {0}}, {NULL, 0, {0}}, {NULL, 0, {0}}};
	llama_token *tokens = long_prompt(b, n);
	struct llama_context_params params = engine_context_params(&b->engine, n + N_NEW, UBATCH);
	ckv_llama_report report = {.size = sizeof report};
	bool good = tokens && ckv_llama_create_params(&ckv, &b->params, NULL, NULL) == CKV_OK &&
	            ckv_llama_attach(ckv, &params) == CKV_OK;
	lanes[2].ctx = good ? llama_init_from_model(b->engine.model, params) : NULL;
	double start = seconds(), prefill_s = 0, compress_s = 0;
	good = lanes[2].ctx && ckv_llama_prefill(ckv, lanes[2].ctx, 0, tokens, n) == CKV_OK;
	prefill_s = seconds() - start;
	start = seconds();
	good = good && ckv_llama_extract(ckv, lanes[2].ctx, 0, b->keep, &report) == CKV_OK;
	compress_s = seconds() - start;
	if (good) {
		int32_t cells = report.n_cells + N_NEW;
		lanes[0].ctx = engine_small_context(&b->engine, ckv, cells);
		start = seconds();
		good = lanes[0].ctx && ckv_llama_restore(ckv, lanes[0].ctx, 0) == CKV_OK;
		compress_s += seconds() - start;
		lanes[1].ctx = read_native(b, ckv, tokens, report.n_cells, cells);
		good = good && lanes[1].ctx;
	}
	for (int round = -1; round < N_ROUNDS && good; round++) {
		for (int i = 0; i < 3 && good; i++) {
			/* Round -1 warms up; its cells are taken back. */
			int lane_at = (i + (round < 0 ? 0 : round)) % 3;
			llama_pos before = llama_memory_seq_pos_max(llama_get_memory(lanes[lane_at].ctx), 0);
			lanes[lane_at].next = tokens[(round + 1) % n];
			good = run_block(&lanes[lane_at], round < 0 ? 0 : round);
			good = good && (round >= 0 || llama_memory_seq_rm(llama_get_memory(lanes[lane_at].ctx), 0, before + 1, -1));
		}
	}
	if (good) {
		print_result(b, &report, prefill_s, compress_s, lanes);
	} else {
		fail("the run of %d tokens failed: %s", n, ckv ? ckv_llama_message(ckv) : "no memory");
	}
	for (int i = 0; i < 3; i++) {
		llama_free(lanes[i].ctx);
	}
	ckv_llama_free(ckv);
	free(tokens);
	return good;
}

int main(int argc, char **argv) {
	run_options options;
	bench b;
	ckv_error error;
	if (argc < 6) {
		fputs("usage: ckv-bench-decode MODEL DOCUMENT KEEP POLICY N_PROMPT [N_PROMPT ...]\n", stderr);
		return EXIT_USAGE;
	}
	char *arguments[] = {"run", "-m", argv[1], "-f", argv[2], "-p", "?", NULL};
	if (options_parse(7, arguments, &options, COMMAND_RUN)) {
		return EXIT_USAGE;
	}
	memset(&b, 0, sizeof b);
	b.keep_text = argv[3];
	b.policy = argv[4];
	if (ckv_budget_parse(argv[3], &b.keep, &error) || ckv_policy_parse(argv[4], &b.params, &error)) {
		return fail("%s", error.message);
	}
	llama_backend_init();
	b.engine.options = &options;
	int status = engine_read(&b.engine) && engine_load(&b.engine, false) && engine_prompt(&b.engine) ? 0 : EXIT_FAILED;
	if (status == 0 && llama_model_n_swa(b.engine.model) > 0) {
		status = fail("a sliding-window model's small contexts have other rules: use chunkkv run --compare");
	}
	for (int i = 5; i < argc && status == 0; i++) {
		long n = strtol(argv[i], NULL, 10);
		status = n < 64 || n > 1 << 20        ? fail("'%s' is not a prompt length", argv[i])
		         : one_length(&b, (int32_t)n) ? 0
		                                      : EXIT_FAILED;
	}
	engine_free(&b.engine);
	llama_backend_free();
	return status;
}
