/* Every preset at several budgets on documents with one fact put into them (needles), from one prefill each.
 *
 * usage: ckv-bench-policies MODEL DOCUMENT BYTES NEEDLES.tsv KEEP,KEEP,... [question-agnostic]
 *
 * For each needle the first BYTES of the document are taken (to the end of a line), the needle is put in at its depth, and
 * all presets observe the same prefill. The full cache and then each policy x budget answers (24 tokens at most), and is
 * forced along the full cache's answer for the KL divergence. Prints a line for each answer (tab separated) and a table at
 * the end. Speeds are ratios to the full cache's, decoded in the same process a moment before.
 *
 * question-agnostic: the document is compressed before its question is read. The two settings are different experiments and
 * are never put into one table. */
#define _POSIX_C_SOURCE 200809L
#include "cli.h"
#include "judge.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { N_NEW = 24, MAX_BUDGETS = 8, MAX_PRESETS = 32, UBATCH = 512, MAX_NEEDLES = 64 };

typedef struct needle {
	char line[1024];
	const char *sentence, *question, *accepted;
	int depth;
} needle;

typedef struct cell {
	int n_found, n_found_of_full, n;
	divergence lost;
	double held, ragged, full_bytes, seconds, full_seconds, score_s; /* sums */
} cell;

typedef struct bench {
	run_options options;
	engine engine;
	const char *budgets[MAX_BUDGETS];
	int n_budgets, n_policies, n_needles, n_full_found;
	bool agnostic;
	ckv_llama *ckv[MAX_PRESETS];
	const char *names[MAX_PRESETS];
	needle needles[MAX_NEEDLES];
	cell cells[MAX_PRESETS][MAX_BUDGETS];
	struct llama_context *large;
	engine_question asked;
	llama_token reply[N_NEW]; /* the full cache's */
	int32_t n_reply;
	float *logits; /* [N_NEW + 1][n_vocab]: before reply[0], after reply[i] */
	double full_token_s;
} bench;

/* ----------------------------------------------------------------------------------------------------------- judging */

static void print_line(const needle *x, const char *policy, const char *keep, int32_t cells, bool found, const divergence *d,
                       const answer *a) {
	printf("%d\t%s\t%s\t%d\t%s\t%.4f\t", x->depth, policy, keep, cells, found ? "found" : "not found",
	       d ? divergence_mean(d) : 0.0);
	judge_print(a->text);
}

/* ---------------------------------------------------------------------------------------------------------- decoding */

static bool decode(struct llama_context *ctx, llama_token token, answer *a) {
	double start = seconds();
	bool good = llama_decode(ctx, llama_batch_get_one(&token, 1)) == 0;
	llama_synchronize(ctx);
	a->decode_s += seconds() - start;
	a->n_decoded++;
	return good;
}

static llama_token best(const float *logits, int32_t n_vocab) {
	llama_token at = 0;
	for (int32_t i = 1; i < n_vocab; i++) {
		at = logits[i] > logits[at] ? i : at;
	}
	return at;
}

/* Greedy from the context's last logits; those before each token go to `kept`, if given, and the tokens to b->reply. */
static bool reply(bench *b, struct llama_context *ctx, answer *a, float *kept) {
	int32_t n_vocab = llama_vocab_n_tokens(b->engine.vocab);
	for (int32_t i = 0;; i++) {
		const float *logits = llama_get_logits_ith(ctx, -1);
		llama_token token = best(logits, n_vocab);
		if (kept) {
			memcpy(kept + (size_t)i * (size_t)n_vocab, logits, (size_t)n_vocab * sizeof *logits);
			b->n_reply = i;
		}
		if (i == N_NEW || !answer_add(a, b->engine.vocab, token, NULL) || a->stopped) {
			break;
		}
		if (kept) {
			b->reply[i] = token;
		}
		if (!decode(ctx, token, a)) {
			return false;
		}
	}
	return answer_end(a, NULL);
}

/* Along the full cache's reply. With the question in the window its first token comes from the prefill and is left out. */
static bool force(bench *b, struct llama_context *ctx, divergence *d, answer *timed) {
	size_t n_vocab = (size_t)llama_vocab_n_tokens(b->engine.vocab);
	if (b->agnostic) {
		divergence_add(d, b->logits, llama_get_logits_ith(ctx, -1), (int32_t)n_vocab);
	}
	for (int32_t i = 0; i < b->n_reply; i++) {
		if (!decode(ctx, b->reply[i], timed)) {
			return false;
		}
		divergence_add(d, b->logits + (size_t)(i + 1) * n_vocab, llama_get_logits_ith(ctx, -1), (int32_t)n_vocab);
	}
	return true;
}

/* ---------------------------------------------------------------------------------------------------------- contexts */

/* All presets are in every context's chain, in the same order, so that each may hide rows in any of them, and all speeds are
 * measured with the same callbacks. */
static struct llama_context *open_context(bench *b, int32_t n_cells, int32_t n_ubatch) {
	struct llama_context_params params = engine_context_params(&b->engine, n_cells, n_ubatch);
	for (int i = 0; i < b->n_policies; i++) {
		if (ckv_llama_attach(b->ckv[i], &params)) {
			fail("%s: %s", b->names[i], ckv_llama_message(b->ckv[i]));
			return NULL;
		}
	}
	return llama_init_from_model(b->engine.model, params);
}

/* Puts the compressed cache into the context, and the question after it where that is not part of it. */
static bool start_small(bench *b, int policy, struct llama_context *small) {
	if (b->agnostic) {
		return ckv_llama_ask(b->ckv[policy], small, 0, b->asked.tokens, b->asked.n_tokens) == CKV_OK;
	}
	return ckv_llama_restore(b->ckv[policy], small, 0) == CKV_OK;
}

/* With the question in the window the first token is the prefill's, so the answers start behind it. */
static bool start_reply(bench *b, struct llama_context *small, answer *a) {
	if (b->agnostic) {
		return true;
	}
	return b->n_reply == 0 || (answer_add(a, b->engine.vocab, b->reply[0], NULL) && decode(small, b->reply[0], a));
}

static bool one_budget(bench *b, const needle *x, int policy, int budget, bool full_found) {
	cell *c = &b->cells[policy][budget];
	ckv_budget keep;
	ckv_llama_report r = {.size = sizeof r};
	answer own = {0}, forced = {0};
	divergence d = {0};
	if (ckv_budget_parse(b->budgets[budget], &keep, NULL) || ckv_llama_extract(b->ckv[policy], b->large, 0, keep, &r)) {
		fail("%s %s: %s", b->names[policy], b->budgets[budget], ckv_llama_message(b->ckv[policy]));
		return false;
	}
	struct llama_context *small = open_context(b, r.n_cells + b->asked.n_tokens + N_NEW + 1, 64);
	bool good = small && start_small(b, policy, small) && start_reply(b, small, &own) && reply(b, small, &own, NULL) &&
	            start_small(b, policy, small) && force(b, small, &d, &forced) && ckv_llama_check(b->ckv[policy]) == CKV_OK;
	if (good) {
		bool found = judge_right(own.text, x->accepted);
		c->n++;
		c->n_found += found;
		c->n_found_of_full += found && full_found;
		divergence_join(&c->lost, &d);
		c->held += (double)r.bytes_after;
		c->ragged += (double)r.bytes_ragged;
		c->full_bytes += (double)r.bytes_before;
		c->score_s += r.score_s;
		c->seconds += (own.decode_s + forced.decode_s) / (own.n_decoded + forced.n_decoded);
		c->full_seconds += b->full_token_s;
		print_line(x, b->names[policy], b->budgets[budget], r.n_cells, found, &d, &own);
	} else {
		fail("%s %s: no answer: %s", b->names[policy], b->budgets[budget], ckv_llama_message(b->ckv[policy]));
	}
	llama_free(small);
	ckv_llama_drop(b->ckv[policy]);
	answer_free(&own);
	answer_free(&forced);
	return good;
}

/* ------------------------------------------------------------------------------------------------------------ prompts */

static char *add_text(char *to, const char *text, size_t n) {
	memcpy(to, text, n);
	to[n] = '\0';
	return to + n;
}

/* The haystack with the needle behind the sentence that ends nearest after its depth; the question behind both, or apart. */
static bool make_prompt(bench *b, const buffer *haystack, const needle *x) {
	size_t at = haystack->size * (size_t)x->depth / 100, length = strlen(x->sentence), asked = strlen(x->question);
	while (at + 1 < haystack->size && !(haystack->data[at] == '.' && isspace((unsigned char)haystack->data[at + 1]))) {
		at++;
	}
	engine_drop_text(&b->engine);
	buffer *content = &b->engine.content;
	content->data = malloc(haystack->size + length + asked + 16);
	if (!content->data) {
		return false;
	}
	char *to = add_text(content->data, haystack->data, at + 1);
	to = add_text(to, " ", 1);
	to = add_text(to, x->sentence, length);
	to = add_text(to, haystack->data + at + 1, haystack->size - at - 1);
	to = add_text(to, "\n\n", 2);
	to = b->agnostic ? to : add_text(to, x->question, asked);
	content->size = (size_t)(to - content->data);
	if (b->agnostic) {
		b->engine.questions = calloc(1, sizeof *b->engine.questions);
		if (!b->engine.questions) {
			return false;
		}
		b->engine.n_questions = 1;
		b->engine.questions[0].text = (buffer){strdup(x->question), asked};
	}
	bool good = engine_prompt(&b->engine);
	b->asked = b->agnostic && good ? b->engine.questions[0] : (engine_question){{NULL, 0}, NULL, 0};
	return good;
}

static bool read_prompt(bench *b) {
	llama_memory_seq_rm(llama_get_memory(b->large), 0, -1, -1);
	for (int i = 1; i < b->n_policies; i++) {
		if (ckv_llama_observe_begin(b->ckv[i], b->large, 0)) {
			return false;
		}
	}
	ckv_status status = ckv_llama_prefill(b->ckv[0], b->large, 0, b->engine.prompt, b->engine.n_prompt);
	for (int i = 1; i < b->n_policies; i++) {
		ckv_llama_observe_end(b->ckv[i]);
	}
	return status == CKV_OK;
}

static bool ask_full(bench *b) {
	return b->asked.n_tokens == 0 || llama_decode(b->large, llama_batch_get_one(b->asked.tokens, b->asked.n_tokens)) == 0;
}

static bool one_needle(bench *b, const buffer *haystack, const needle *x) {
	answer full = {0};
	if (!make_prompt(b, haystack, x)) {
		return false;
	}
	if (!b->large) {
		b->large = open_context(b, b->engine.n_prompt + 256, UBATCH);
	}
	if (!b->large || !read_prompt(b)) {
		fail("the prompt could not be read: %s", ckv_llama_message(b->ckv[0]));
		return false;
	}
	bool good = ask_full(b) && reply(b, b->large, &full, b->logits);
	bool found = good && judge_right(full.text, x->accepted);
	b->n_full_found += found;
	b->full_token_s = full.n_decoded ? full.decode_s / full.n_decoded : 0.0;
	print_line(x, "full", "100%", b->engine.n_prompt, found, NULL, &full);
	answer_free(&full);
	good = good && llama_memory_seq_rm(llama_get_memory(b->large), 0, b->engine.n_prompt, -1);
	for (int i = 0; i < b->n_policies && good; i++) {
		for (int j = 0; j < b->n_budgets && good; j++) {
			good = one_budget(b, x, i, j, found);
		}
	}
	return good;
}

/* ------------------------------------------------------------------------------------------------------------- inputs */

static bool read_needles(bench *b, const char *path) {
	FILE *file = fopen(path, "r");
	if (!file) {
		fail("cannot open '%s'", path);
		return false;
	}
	while (b->n_needles < MAX_NEEDLES && fgets(b->needles[b->n_needles].line, sizeof b->needles[0].line, file)) {
		needle *x = &b->needles[b->n_needles];
		x->line[strcspn(x->line, "\r\n")] = '\0';
		char *rest = x->line, *save = NULL;
		const char *depth = strtok_r(rest, "\t", &save);
		x->sentence = strtok_r(NULL, "\t", &save);
		x->question = strtok_r(NULL, "\t", &save);
		x->accepted = strtok_r(NULL, "\t", &save);
		if (x->line[0] != '#' && x->accepted) {
			x->depth = (int)strtol(depth, NULL, 10);
			b->n_needles++;
		}
	}
	fclose(file);
	return b->n_needles > 0;
}

/* The first n bytes, to the end of a line. */
static bool read_haystack(const char *path, size_t n, buffer *out) {
	if (!text_read(path, out)) {
		return false;
	}
	while (n < out->size && out->data[n] != '\n') {
		n++;
	}
	out->size = n < out->size ? n : out->size;
	out->data[out->size] = '\0';
	return true;
}

static bool open_policies(bench *b) {
	ckv_ctx_options core;
	ckv_ctx_options_default(&core);
	core.n_threads = b->options.n_threads;
	for (size_t i = 1; /* the first is "full" */ ckv_preset_info(i) && b->n_policies < MAX_PRESETS; i++) {
		ckv_params params;
		ckv_error error;
		ckv_status status = ckv_policy_parse(ckv_preset_info(i)->name, &params, &error);
		if (status == CKV_OK && ckv_params_hosted(&params)) {
			continue; /* llama.cpp's cache can't hold it */
		}
		status = status ? status : ckv_llama_create_params(&b->ckv[b->n_policies], &params, &core, &error);
		if (status) {
			fail("%s", error.message);
			return false;
		}
		ckv_llama_set_cache(b->ckv[b->n_policies], CKV_LLAMA_CACHE_OWN); /* what is timed here is llama.cpp's */
		b->names[b->n_policies++] = ckv_preset_info(i)->name;
	}
	return true;
}

/* -------------------------------------------------------------------------------------------------------------- table */

static void summary(const bench *b, size_t n_bytes) {
	printf("\n# %s: %s, first %zu bytes, %d needles; %d prompt tokens in the last\n",
	       b->agnostic ? "compressed before the question" : "question in the window", text_file_name(b->options.document),
	       n_bytes, b->n_needles, b->engine.n_prompt);
	printf("# the full cache finds %d of %d\n", b->n_full_found, b->n_needles);
	printf("# %-20s %6s %10s %10s %10s %8s %8s %7s %9s\n", "policy", "keep", "held", "own length", "speed", "mean KL",
	       "same top", "found", "score ms");
	printf("# %-20s %6s %10s %10s %10s %8s %8s %7s %9s\n", "", "", "of full", "of full", "of full's", "", "%", "", "");
	for (int i = 0; i < b->n_policies; i++) {
		for (int j = 0; j < b->n_budgets; j++) {
			const cell *c = &b->cells[i][j];
			printf("# %-20s %6s %10.3f %10.3f %10.2f %8.3f %8.1f %3d/%-3d %9.1f\n", b->names[i], b->budgets[j],
			       c->held / c->full_bytes, c->ragged / c->full_bytes, c->full_seconds / c->seconds,
			       divergence_mean(&c->lost), 100.0 * divergence_agreement(&c->lost), c->n_found, c->n,
			       1e3 * c->score_s / c->n);
		}
	}
}

static bool run_all(bench *b, const buffer *haystack, size_t n_bytes) {
	b->logits = malloc((size_t)(N_NEW + 1) * (size_t)llama_vocab_n_tokens(b->engine.vocab) * sizeof *b->logits);
	if (!b->logits || !open_policies(b)) {
		return false;
	}
	puts("depth\tpolicy\tkeep\tcells\tjudged\tmean KL\treply");
	for (int i = 0; i < b->n_needles; i++) {
		if (!one_needle(b, haystack, &b->needles[i])) {
			return false;
		}
	}
	summary(b, n_bytes);
	return true;
}

int main(int argc, char **argv) {
	static bench b;
	buffer haystack = {NULL, 0};
	if (argc < 6 || argc > 7 || (argc == 7 && strcmp(argv[6], "question-agnostic") != 0)) {
		fputs("usage: ckv-bench-policies MODEL DOCUMENT BYTES NEEDLES.tsv KEEP,... [question-agnostic]\n", stderr);
		return EXIT_USAGE;
	}
	char *arguments[] = {"run", "-m", argv[1], "-f", argv[2], "-p", "?", NULL};
	if (options_parse(7, arguments, &b.options, COMMAND_RUN)) {
		return EXIT_USAGE;
	}
	b.agnostic = argc == 7;
	b.n_budgets = judge_split(argv[5], b.budgets, MAX_BUDGETS);
	b.engine.options = &b.options;
	llama_backend_init();
	int status = EXIT_FAILED;
	if (read_haystack(argv[2], (size_t)strtol(argv[3], NULL, 10), &haystack) && read_needles(&b, argv[4]) &&
	    engine_load(&b.engine, false)) {
		if (llama_model_n_swa(b.engine.model) > 0) {
			fail("a sliding-window model can't be taken back to the end of the prompt: use chunkkv run --compare");
		} else {
			status = run_all(&b, &haystack, haystack.size) ? 0 : EXIT_FAILED;
		}
	}
	free(b.logits);
	text_free(&haystack);
	llama_free(b.large);
	for (int i = 0; i < b.n_policies; i++) {
		ckv_llama_free(b.ckv[i]);
	}
	engine_free(&b.engine);
	llama_backend_free();
	return status;
}
