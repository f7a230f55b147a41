/* An early fact, asked for after the cache has overflown: with its rows kept, and without.
 *
 * usage: ckv-bench-stream-fact MODEL TEXT NEEDLES.tsv CELLS N_TOKENS POLICY [POLICY ...]
 *
 * For each needle: the model's first tokens, the needle's sentence, N_TOKENS tokens of the text, the question. The full
 * cache answers greedily; the bounded one reads the same and is shown that answer token by token, its distributions
 * compared. Each policy does so twice: as it is, and with the sentence's tokens pinned. Tab separated: needle, policy,
 * pinned, share of the sentence's rows that were held when the question came (mean of the layers), mean KL, top-1 agreement,
 * right in the full cache's answer. */
#define _POSIX_C_SOURCE 200809L
#include "judge.h"
#include "reader.h"

#include <stdlib.h>
#include <string.h>

enum { N_ANSWER = 16, MOST_NEEDLES = 64, PIECE = 128, ROOM = 256 };

typedef struct needle {
	char *sentence, *question, *accepted;
} needle;

typedef struct bench {
	reader reader;
	needle needles[MOST_NEEDLES];
	int n_needles;
	int32_t n_cells, n_text;
	llama_token *prompt;
	int32_t n_prompt, first, end; /* the sentence's positions */
	llama_token answer[N_ANSWER];
	int32_t n_answer;
	float *logits; /* [N_ANSWER][n_vocab] */
	bool right;
} bench;

static bool read_needles(bench *b, const char *path) {
	buffer file;
	if (!text_read(path, &file)) {
		return false;
	}
	char *lines, *line = strtok_r(file.data, "\n", &lines);
	for (; line && b->n_needles < MOST_NEEDLES; line = strtok_r(NULL, "\n", &lines)) {
		char *fields, *depth = line[0] == '#' ? NULL : strtok_r(line, "\t", &fields);
		needle *n = &b->needles[b->n_needles];
		if (depth) {
			n->sentence = strtok_r(NULL, "\t", &fields);
			n->question = strtok_r(NULL, "\t", &fields);
			n->accepted = strtok_r(NULL, "\t", &fields);
			b->n_needles += n->accepted != NULL;
		}
	}
	return b->n_needles > 0 || !fail("'%s' has no needles", path); /* the text itself stays: the needles point into it */
}

static bool add_text(bench *b, const char *text) {
	int32_t n = llama_tokenize(b->reader.vocab, text, (int32_t)strlen(text), b->prompt + b->n_prompt, ROOM, false, true);
	b->n_prompt += n > 0 ? n : 0;
	return n > 0 || !fail("a text is too long");
}

static bool make_prompt(bench *b, const needle *n) {
	char ask[512];
	b->n_prompt = 0;
	bool good = add_text(b, "<|im_start|>user\n");
	b->first = b->n_prompt;
	good = good && add_text(b, n->sentence);
	b->end = b->n_prompt;
	good = good && add_text(b, "\n\n");
	memcpy(b->prompt + b->n_prompt, b->reader.tokens, (size_t)b->n_text * sizeof *b->prompt);
	b->n_prompt += b->n_text;
	snprintf(ask, sizeof ask, "\n\n%s<|im_end|>\n<|im_start|>assistant\n", n->question);
	return good && add_text(b, ask);
}

static bool read_prompt(bench *b, const bounded_context *c) {
	bool good = true;
	for (int32_t done = 0; done < b->n_prompt && good; done += PIECE) {
		int32_t n = b->n_prompt - done < PIECE ? b->n_prompt - done : PIECE;
		good = bounded_context_decode(c, b->prompt + done, n);
	}
	return good;
}

static llama_token best(const float *logits, int32_t n) {
	llama_token at = 0;
	for (int32_t i = 1; i < n; i++) {
		at = logits[i] > logits[at] ? i : at;
	}
	return at;
}

static bool answer_full(bench *b, const needle *n) {
	bounded_context c;
	answer a;
	size_t row = (size_t)b->reader.n_vocab;
	memset(&a, 0, sizeof a);
	bool good = bounded_context_open(&b->reader, NULL, b->n_prompt + N_ANSWER, PIECE, &c) && read_prompt(b, &c);
	b->n_answer = 0;
	while (good && b->n_answer < N_ANSWER && !a.stopped) {
		float *logits = b->logits + (size_t)b->n_answer * row;
		memcpy(logits, llama_get_logits_ith(c.ctx, -1), row * sizeof *logits);
		llama_token token = b->answer[b->n_answer++] = best(logits, b->reader.n_vocab);
		good = answer_add(&a, b->reader.vocab, token, NULL) && bounded_context_decode(&c, &token, 1);
	}
	b->right = good && judge_right(a.text, n->accepted);
	answer_free(&a);
	bounded_context_close(&c);
	return good;
}

/* Mean over the layers of the share of the sentence's rows that are there. */
static double held(const bench *b, const bounded_context *c) {
	ckv_stream_rows rows;
	double sum = 0.0;
	int32_t layer = 0;
	for (; ckv_llama_stream_rows(c->ckv, layer, &rows) == CKV_OK; layer++) {
		for (int32_t i = 0; i < rows.n; i++) {
			sum += rows.positions[i] >= b->first && rows.positions[i] < b->end;
		}
	}
	return layer ? sum / layer / (b->end - b->first) : -1.0;
}

static bool answer_bounded(bench *b, const char *policy, bool pinned, int number) {
	bounded_context c;
	divergence lost;
	memset(&lost, 0, sizeof lost);
	bool good = bounded_context_open(&b->reader, policy, b->n_cells, PIECE, &c);
	good = good && (!pinned || ckv_llama_stream_pin(c.ckv, b->first, b->end) == CKV_OK) && read_prompt(b, &c);
	double share = good ? held(b, &c) : 0.0;
	for (int32_t i = 0; i < b->n_answer && good; i++) {
		divergence_add(&lost, b->logits + (size_t)i * (size_t)b->reader.n_vocab, llama_get_logits_ith(c.ctx, -1),
		               b->reader.n_vocab);
		good = bounded_context_decode(&c, &b->answer[i], 1);
	}
	if (good) {
		printf("%d\t%s\t%s\t%.3f\t%.4f\t%.3f\t%s\n", number, policy, pinned ? "yes" : "no", share, divergence_mean(&lost),
		       divergence_agreement(&lost), b->right ? "right" : "wrong");
		fflush(stdout);
	}
	bounded_context_close(&c);
	return good;
}

int main(int argc, char **argv) {
	bench b;
	memset(&b, 0, sizeof b);
	if (argc < 7) {
		fputs("usage: ckv-bench-stream-fact MODEL TEXT NEEDLES.tsv CELLS N_TOKENS POLICY [POLICY ...]\n", stderr);
		return EXIT_USAGE;
	}
	b.n_cells = (int32_t)strtol(argv[4], NULL, 10);
	b.n_text = (int32_t)strtol(argv[5], NULL, 10);
	if (!reader_open(&b.reader, argv[1], argv[2]) || !read_needles(&b, argv[3])) {
		return EXIT_FAILED;
	}
	b.n_text = b.n_text < b.reader.n_tokens ? b.n_text : b.reader.n_tokens;
	b.prompt = malloc((size_t)(b.n_text + 4 * ROOM) * sizeof *b.prompt);
	b.logits = malloc((size_t)N_ANSWER * (size_t)b.reader.n_vocab * sizeof *b.logits);
	bool good = b.prompt && b.logits;
	printf("# the fact, %d tokens of text, the question, through %d cells\n", b.n_text, b.n_cells);
	puts("needle\tpolicy\tpinned\theld\tkl_mean\ttop1\tfull_cache");
	for (int i = 0; i < b.n_needles && good; i++) {
		good = make_prompt(&b, &b.needles[i]) && answer_full(&b, &b.needles[i]);
		for (int p = 6; p < argc && good; p++) {
			good = answer_bounded(&b, argv[p], false, i + 1) && answer_bounded(&b, argv[p], true, i + 1);
		}
	}
	free(b.prompt);
	free(b.logits);
	reader_close(&b.reader);
	return good ? 0 : EXIT_FAILED;
}
