/* What reading a text through a bounded cache loses: the next-token distributions beside those of the full cache.
 *
 * usage: ckv-bench-stream-text MODEL TEXT CELLS N_TOKENS PIECE POLICY [POLICY ...]
 *
 * The text's first N_TOKENS are read in pieces of PIECE tokens, once by a cache that holds everything and once by each
 * policy in CELLS cells; at the end of each piece, from where the cells no longer suffice, the two distributions are
 * compared. Policies as in bench/reader.h; "+rotate" closes the gaps. Tab separated: policy, positions compared, mean KL, KL
 * of the last quarter, top-1 agreement, seconds of reading, of which scoring and moving. */
#include "reader.h"

#include <stdlib.h>
#include <string.h>

typedef struct bench {
	reader reader;
	int32_t n_cells, n_tokens, piece, n_points;
	float *logits; /* [n_points][n_vocab] of the full cache */
} bench;

/* Number of the point that is measured when `done` tokens were read, or -1. */
static int32_t point_of(const bench *b, int32_t done) {
	int32_t first = b->n_cells / b->piece + 1, at = done / b->piece;
	return done % b->piece == 0 && at >= first ? at - first : -1;
}

/* Reads everything; calls `measure` at each point. */
static bool read_all(bench *b, const bounded_context *c, bool (*measure)(bench *, const bounded_context *, int32_t, void *),
                     void *user) {
	for (int32_t done = 0; done + b->piece <= b->n_tokens;) {
		if (!bounded_context_decode(c, b->reader.tokens + done, b->piece)) {
			return false;
		}
		done += b->piece;
		int32_t point = point_of(b, done);
		if (point >= 0 && point < b->n_points && !measure(b, c, point, user)) {
			return false;
		}
	}
	return true;
}

static bool keep_logits(bench *b, const bounded_context *c, int32_t point, void *user) {
	size_t n = (size_t)b->reader.n_vocab;
	(void)user;
	memcpy(b->logits + (size_t)point * n, llama_get_logits_ith(c->ctx, -1), n * sizeof *b->logits);
	return true;
}

typedef struct loss {
	divergence all, late;
} loss;

static bool compare(bench *b, const bounded_context *c, int32_t point, void *user) {
	loss *l = user;
	const float *full = b->logits + (size_t)point * (size_t)b->reader.n_vocab, *own = llama_get_logits_ith(c->ctx, -1);
	divergence_add(&l->all, full, own, b->reader.n_vocab);
	if (point >= b->n_points - b->n_points / 4) {
		divergence_add(&l->late, full, own, b->reader.n_vocab);
	}
	return true;
}

static bool read_full(bench *b) {
	bounded_context c;
	bool good = bounded_context_open(&b->reader, NULL, b->n_tokens, b->piece, &c);
	double start = seconds();
	good = good && read_all(b, &c, keep_logits, NULL);
	printf("full\t%d\t0\t0\t1\t%.1f\t0\t0\n", b->n_points, seconds() - start);
	fflush(stdout);
	bounded_context_close(&c);
	return good;
}

static bool read_bounded(bench *b, const char *policy) {
	bounded_context c;
	loss l;
	ckv_llama_stream_report report = {.size = sizeof report};
	memset(&l, 0, sizeof l);
	bool good = bounded_context_open(&b->reader, policy, b->n_cells, b->piece, &c);
	double start = seconds();
	good = good && read_all(b, &c, compare, &l) && ckv_llama_stream_get_report(c.ckv, &report) == CKV_OK;
	if (good) {
		printf("%s\t%d\t%.4f\t%.4f\t%.3f\t%.1f\t%.2f\t%.2f\n", policy, l.all.n, divergence_mean(&l.all),
		       divergence_mean(&l.late), divergence_agreement(&l.all), seconds() - start, report.score_s,
		       report.move_s + report.turn_s);
		fflush(stdout);
	}
	bounded_context_close(&c);
	return good;
}

int main(int argc, char **argv) {
	bench b;
	memset(&b, 0, sizeof b);
	if (argc < 7) {
		fputs("usage: ckv-bench-stream-text MODEL TEXT CELLS N_TOKENS PIECE POLICY [POLICY ...]\n", stderr);
		return EXIT_USAGE;
	}
	b.n_cells = (int32_t)strtol(argv[3], NULL, 10);
	b.n_tokens = (int32_t)strtol(argv[4], NULL, 10);
	b.piece = (int32_t)strtol(argv[5], NULL, 10);
	if (b.n_cells < 64 || b.n_tokens <= b.n_cells || b.piece < 1) {
		return fail("there must be more tokens than cells, and at least 64 cells");
	}
	if (!reader_open(&b.reader, argv[1], argv[2])) {
		return EXIT_FAILED;
	}
	b.n_tokens = b.n_tokens < b.reader.n_tokens ? b.n_tokens : b.reader.n_tokens;
	b.n_points = point_of(&b, b.n_tokens / b.piece * b.piece) + 1;
	b.logits = b.n_points > 0 ? malloc((size_t)b.n_points * (size_t)b.reader.n_vocab * sizeof *b.logits) : NULL;
	printf("# %d tokens through %d cells, pieces of %d\n", b.n_tokens, b.n_cells, b.piece);
	puts("policy\tpositions\tkl_mean\tkl_last_quarter\ttop1\tseconds\tscore_s\tmove_s");
	bool good = b.logits && read_full(&b);
	for (int i = 6; i < argc && good; i++) {
		good = read_bounded(&b, argv[i]);
	}
	free(b.logits);
	reader_close(&b.reader);
	return good ? 0 : EXIT_FAILED;
}
