/* Speed and memory over thousands of tokens: a bounded cache beside one that grows.
 *
 * usage: ckv-bench-stream-flat MODEL TEXT CELLS N_TOKENS POLICY
 *
 * The text is read token by token, as a generation would go: STRIDE tokens by the bounded cache, the same by one that holds
 * everything, and so on, so that drift of the machine falls on both. The third context is as large as the bounded one and
 * never told of anything: it begins anew whenever it is full, and its speed at the same number of rows tells what bounding
 * itself costs. Tab separated, a line for each stride: tokens read; tok/s of the three; bytes of the rows that the caches
 * hold; bytes of the full cache's tensors that are in use; bytes resident; shares of the bounded cache's time that went into
 * scoring, and moving rows. */
#include "reader.h"

#include <stdlib.h>
#include <string.h>

enum { STRIDE = 250 };

typedef struct bench {
	reader reader;
	bounded_context bounded, full, native;
	int32_t n_cells, n_tokens, n_native;
} bench;

static bool timed(const bounded_context *c, llama_token *tokens, int32_t n, double *rate) {
	double start = seconds();
	for (int32_t i = 0; i < n; i++) {
		if (!bounded_context_decode(c, tokens + i, 1)) {
			return false;
		}
	}
	*rate = n / (seconds() - start);
	return true;
}

/* As many rows as the bounded cache has on average; the oldest go, so that it never fills up. */
static bool timed_native(bench *b, llama_token *tokens, int32_t n, double *rate) {
	llama_memory_t memory = llama_get_memory(b->native.ctx);
	if (b->n_native + n > b->n_cells) {
		llama_memory_clear(memory, false);
		b->n_native = 0;
		/* Refilled at once, which is not timed. */
		int32_t fill = b->n_cells - n - 1;
		while (b->n_native < fill) {
			int32_t piece = fill - b->n_native < 128 ? fill - b->n_native : 128;
			if (!bounded_context_decode(&b->native, b->reader.tokens + b->n_native, piece)) {
				return false;
			}
			b->n_native += piece;
		}
	}
	b->n_native += n;
	return timed(&b->native, tokens, n, rate);
}

static double row_bytes(const reader *r) {
	double heads = llama_model_n_head_kv(r->model),
	       dim = (double)llama_model_n_embd(r->model) / llama_model_n_head(r->model);
	return 2.0 * 2.0 * heads * dim * llama_model_n_layer(r->model);
}

static bool step(bench *b, int32_t done, int32_t n) {
	ckv_llama_stream_report before = {.size = sizeof before}, after = before;
	double bounded, full, native;
	llama_token *tokens = b->reader.tokens + done;
	ckv_llama_stream_get_report(b->bounded.ckv, &before);
	if (!timed(&b->bounded, tokens, n, &bounded) || !timed(&b->full, tokens, n, &full) ||
	    !timed_native(b, tokens, n, &native) || ckv_llama_stream_get_report(b->bounded.ckv, &after)) {
		return false;
	}
	double took = n / bounded;
	printf("%d\t%.2f\t%.2f\t%.2f\t%.0f\t%.0f\t%llu\t%.4f\t%.4f\n", done + n, bounded, full, native,
	       after.n_rows * row_bytes(&b->reader), (done + n) * row_bytes(&b->reader), (unsigned long long)memory_now(),
	       (after.score_s - before.score_s) / took, (after.move_s + after.turn_s - before.move_s - before.turn_s) / took);
	fflush(stdout);
	return true;
}

int main(int argc, char **argv) {
	bench b;
	memset(&b, 0, sizeof b);
	if (argc != 6) {
		fputs("usage: ckv-bench-stream-flat MODEL TEXT CELLS N_TOKENS POLICY\n", stderr);
		return EXIT_USAGE;
	}
	b.n_cells = (int32_t)strtol(argv[3], NULL, 10);
	b.n_tokens = (int32_t)strtol(argv[4], NULL, 10);
	if (b.n_cells <= STRIDE || !reader_open(&b.reader, argv[1], argv[2])) {
		return fail("there must be more than %d cells", STRIDE);
	}
	b.n_tokens = b.n_tokens < b.reader.n_tokens ? b.n_tokens : b.reader.n_tokens;
	b.n_native = b.n_cells; /* full: it is filled before its first stride */
	bool good = bounded_context_open(&b.reader, argv[5], b.n_cells, 128, &b.bounded) &&
	            bounded_context_open(&b.reader, NULL, b.n_tokens, 128, &b.full) &&
	            bounded_context_open(&b.reader, NULL, b.n_cells, 128, &b.native);
	printf("# %s, %d cells, rows of f16\n", argv[5], b.n_cells);
	puts("tokens\tbounded_tok_s\tfull_tok_s\tnative_tok_s\tbounded_bytes\tfull_bytes\tresident\tscore_share\tmove_share");
	for (int32_t done = 0; done + STRIDE <= b.n_tokens && good; done += STRIDE) {
		good = step(&b, done, STRIDE);
	}
	bounded_context_close(&b.bounded);
	bounded_context_close(&b.full);
	bounded_context_close(&b.native);
	reader_close(&b.reader);
	return good ? 0 : EXIT_FAILED;
}
