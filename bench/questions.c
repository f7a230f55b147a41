/* How many questions about a document are answered right, with the full cache and with compressed ones.
 *
 * usage: ckv-bench-questions MODEL DOCUMENT QUESTIONS.tsv KEEP,KEEP,... POLICY [POLICY ...]
 *
 * The document is prefilled once, each question after it; the full cache and every policy x budget answer from that one
 * prefill. Prints a line for each answer (tab separated, so that the raw output can be kept) and a table at the end. A
 * question counts as right when one of its accepted strings occurs in the reply. KL is of the compressed to the full
 * next-token distribution, along the full cache's reply, its first token left out. */
#define _POSIX_C_SOURCE 200809L
#include "cli.h"
#include "judge.h"

#include <stdlib.h>
#include <string.h>

enum { N_NEW = 40, MAX_BUDGETS = 16, MAX_POLICIES = 16, UBATCH = 512, SMALL_UBATCH = 64, REREAD = 128 };

typedef struct cell {
	int n_right, n_right_of_full, n_questions;
	divergence lost;
} cell;

typedef struct bench {
	run_options options;
	engine engine;
	const char *policies[MAX_POLICIES], *budgets[MAX_BUDGETS];
	int n_policies, n_budgets, n_full_right;
	cell cells[MAX_POLICIES][MAX_BUDGETS];
	ckv_llama *ckv[MAX_POLICIES];
	struct llama_context *large;
	llama_token *held; /* what the context has */
	int32_t n_held, n_room;
	llama_token reply[N_NEW]; /* the full cache's */
	float *logits;            /* [N_NEW][n_vocab] of the full cache, after reply[i] */
	int32_t n_reply;
} bench;

/* Greedy reply from a context whose next token is `first`; with `logits`, keeps the distribution after each token. */
static bool reply(bench *b, struct llama_context *ctx, llama_token first, answer *a, float *logits) {
	int32_t n_vocab = llama_vocab_n_tokens(b->engine.vocab);
	struct llama_sampler *greedy = llama_sampler_init_greedy();
	llama_token token = first;
	bool good = true;
	for (int32_t i = 0; i < N_NEW && good; i++) {
		good = answer_add(a, b->engine.vocab, token, NULL);
		if (a->stopped || !good) {
			break;
		}
		double start = seconds();
		good = llama_decode(ctx, llama_batch_get_one(&token, 1)) == 0;
		llama_synchronize(ctx);
		if (!good) {
			break;
		}
		a->decode_s += seconds() - start;
		a->n_decoded++;
		if (logits) {
			b->reply[i] = token;
			memcpy(logits + (size_t)i * (size_t)n_vocab, llama_get_logits_ith(ctx, -1), (size_t)n_vocab * sizeof *logits);
			b->n_reply = i + 1;
		}
		token = llama_sampler_sample(greedy, ctx, -1);
	}
	llama_sampler_free(greedy);
	return good && answer_end(a, NULL);
}

static bool force(bench *b, struct llama_context *ctx, divergence *d) {
	int32_t n_vocab = llama_vocab_n_tokens(b->engine.vocab);
	for (int32_t i = 0; i < b->n_reply; i++) {
		if (llama_decode(ctx, llama_batch_get_one(&b->reply[i], 1))) {
			return false;
		}
		divergence_add(d, b->logits + (size_t)i * (size_t)n_vocab, llama_get_logits_ith(ctx, -1), n_vocab);
	}
	return true;
}

static void print_line(const char *question, const char *policy, const char *keep, int32_t kept, bool right,
                       const divergence *d, const answer *a) {
	printf("%s\t%s\t%s\t%d\t%s\t%.4f\t%.1f\t", question, policy, keep, kept, right ? "right" : "wrong",
	       d && d->n ? d->sum / d->n : 0.0, answer_rate(a));
	judge_print(a->text);
}

/* A context with the whole chain of policies, each of which may have rows to hide in it. */
static struct llama_context *attach_all(bench *b, int32_t n_cells, int32_t n_ubatch) {
	struct llama_context_params params = engine_context_params(&b->engine, n_cells, n_ubatch);
	for (int i = 0; i < b->n_policies; i++) {
		if (ckv_llama_attach(b->ckv[i], &params)) {
			fail("%s: %s", b->policies[i], ckv_llama_message(b->ckv[i]));
			return NULL;
		}
	}
	return llama_init_from_model(b->engine.model, params);
}

/* Answers from a compressed cache: on its own, then forced along the full cache's reply. */
static bool one_budget(bench *b, int policy, int budget, llama_token first, const char *question, const char *accepted,
                       bool full_right) {
	cell *c = &b->cells[policy][budget];
	ckv_llama *ckv = b->ckv[policy];
	ckv_budget keep;
	ckv_llama_report report = {.size = sizeof report};
	answer a = {0};
	divergence d = {0};
	if (ckv_budget_parse(b->budgets[budget], &keep, NULL) || ckv_llama_extract(ckv, b->large, 0, keep, &report)) {
		fail("%s %s: %s", b->policies[policy], b->budgets[budget], ckv_llama_message(ckv));
		return false;
	}
	struct llama_context *small = attach_all(b, report.n_cells + N_NEW, SMALL_UBATCH);
	bool good = small && ckv_llama_restore(ckv, small, 0) == CKV_OK && reply(b, small, first, &a, NULL) &&
	            ckv_llama_restore(ckv, small, 0) == CKV_OK && force(b, small, &d);
	if (good) {
		bool right = judge_right(a.text, accepted);
		c->n_questions++;
		c->n_right += right;
		c->n_right_of_full += right && full_right;
		c->lost.sum += d.sum;
		c->lost.n += d.n;
		c->lost.n_same += d.n_same;
		print_line(question, b->policies[policy], b->budgets[budget], report.n_cells, right, &d, &a);
	} else {
		fail("%s %s: no answer: %s", b->policies[policy], b->budgets[budget], ckv_llama_message(ckv));
	}
	llama_free(small);
	ckv_llama_drop(ckv);
	answer_free(&a);
	return good;
}

/* Tokens that this prompt has in common with what the context holds, leaving enough to read anew for any window. */
static int32_t common(const bench *b) {
	int32_t n = 0, most = b->engine.n_prompt - REREAD;
	while (n < b->n_held && n < most && b->held[n] == b->engine.prompt[n]) {
		n++;
	}
	return n;
}

/* One prefill, observed for all policies at once: each chains the one before. */
static bool read_prompt(bench *b) {
	int32_t start = common(b), n = b->engine.n_prompt;
	if (n > b->n_room) {
		fail("the question is too long");
		return false;
	}
	if (b->n_held && !llama_memory_seq_rm(llama_get_memory(b->large), 0, start, -1)) {
		return false;
	}
	for (int i = 1; i < b->n_policies; i++) {
		if (ckv_llama_observe_begin(b->ckv[i], b->large, 0)) {
			return false;
		}
	}
	ckv_status status = ckv_llama_prefill(b->ckv[0], b->large, 0, b->engine.prompt + start, n - start);
	for (int i = 1; i < b->n_policies; i++) {
		ckv_llama_observe_end(b->ckv[i]);
	}
	b->n_held = status == CKV_OK ? n : 0;
	memcpy(b->held, b->engine.prompt, (size_t)b->n_held * sizeof *b->held);
	return status == CKV_OK;
}

static bool answer_question(bench *b, const char *question, const char *accepted) {
	answer full = {0};
	struct llama_sampler *greedy = llama_sampler_init_greedy();
	llama_token first = llama_sampler_sample(greedy, b->large, -1);
	llama_sampler_free(greedy);
	b->n_reply = 0;
	bool good = reply(b, b->large, first, &full, b->logits);
	bool right = good && judge_right(full.text, accepted);
	b->n_full_right += right;
	if (good) {
		print_line(question, "full", "100%", b->engine.n_prompt, right, NULL, &full);
	}
	answer_free(&full);
	/* Back to the end of the prompt. */
	good = good && llama_memory_seq_rm(llama_get_memory(b->large), 0, b->engine.n_prompt, -1);
	for (int i = 0; i < b->n_policies && good; i++) {
		for (int j = 0; j < b->n_budgets && good; j++) {
			good = one_budget(b, i, j, first, question, accepted, right);
		}
	}
	return good;
}

/* One context for all questions, with room for a question longer than the first. */
static bool open_context(bench *b) {
	int32_t cells = b->engine.n_prompt + 256 + N_NEW;
	for (int i = 0; i < b->n_policies; i++) {
		ckv_error error;
		if (ckv_llama_create(&b->ckv[i], b->policies[i], &error)) {
			fail("%s", error.message);
			return false;
		}
	}
	b->n_room = cells - N_NEW;
	b->held = malloc((size_t)cells * sizeof *b->held);
	b->large = attach_all(b, cells, UBATCH);
	return b->held && b->large;
}

static bool one_question(bench *b, const char *question, const char *accepted) {
	b->options.question = question;
	if (!engine_read(&b->engine) || !engine_prompt(&b->engine) || (!b->large && !open_context(b))) {
		return false;
	}
	if (!read_prompt(b)) {
		fail("the prompt could not be read: %s", ckv_llama_message(b->ckv[0]));
		return false;
	}
	return answer_question(b, question, accepted);
}

static void summary(const bench *b, int n_questions) {
	printf("\n# %s, %s, %d questions: the full cache answers %d right\n", text_file_name(b->options.model),
	       text_file_name(b->options.document), n_questions, b->n_full_right);
	printf("# %-24s %8s %8s %22s %10s %10s\n", "policy", "keep", "right", "of those full has right", "mean KL", "same top");
	for (int i = 0; i < b->n_policies; i++) {
		for (int j = 0; j < b->n_budgets; j++) {
			const cell *c = &b->cells[i][j];
			printf("# %-24s %8s %8d %22d %10.3f %8.1f %%\n", b->policies[i], b->budgets[j], c->n_right, c->n_right_of_full,
			       c->lost.n ? c->lost.sum / c->lost.n : 0.0, c->lost.n ? 100.0 * c->lost.n_same / c->lost.n : 0.0);
		}
	}
}

static int run_questions(bench *b, const char *path) {
	char line[4096];
	int n = 0;
	FILE *file = fopen(path, "r");
	if (!file) {
		return fail("cannot open '%s'", path);
	}
	puts("question\tpolicy\tkeep\ttokens kept\tjudged\tmean KL\ttokens/s\treply");
	while (fgets(line, sizeof line, file)) {
		char *accepted = strchr(line, '\t');
		line[strcspn(line, "\r\n")] = '\0';
		if (line[0] == '#' || !accepted) {
			continue;
		}
		*accepted++ = '\0';
		n++;
		if (!one_question(b, line, accepted)) {
			fclose(file);
			return EXIT_FAILED;
		}
	}
	fclose(file);
	summary(b, n);
	return 0;
}

int main(int argc, char **argv) {
	static bench b;
	if (argc < 6 || argc - 5 > MAX_POLICIES) {
		fputs("usage: ckv-bench-questions MODEL DOCUMENT QUESTIONS.tsv KEEP,... POLICY [POLICY ...]\n", stderr);
		return EXIT_USAGE;
	}
	char *arguments[] = {"run", "-m", argv[1], "-f", argv[2], "-p", "?", NULL};
	if (options_parse(7, arguments, &b.options, COMMAND_RUN)) {
		return EXIT_USAGE;
	}
	b.n_budgets = judge_split(argv[4], b.budgets, MAX_BUDGETS);
	for (int i = 5; i < argc; i++) {
		b.policies[b.n_policies++] = argv[i];
	}
	llama_backend_init();
	int status = EXIT_FAILED;
	b.engine.options = &b.options;
	if (engine_load(&b.engine, false)) {
		b.logits = malloc((size_t)N_NEW * (size_t)llama_vocab_n_tokens(b.engine.vocab) * sizeof *b.logits);
		if (llama_model_n_swa(b.engine.model) > 0) {
			fail("a sliding-window model can't be taken back to the end of the prompt: use chunkkv run --compare");
		} else if (b.logits) {
			status = run_questions(&b, argv[3]);
		}
	}
	free(b.logits);
	free(b.held);
	llama_free(b.large);
	for (int i = 0; i < b.n_policies; i++) {
		ckv_llama_free(b.ckv[i]);
	}
	engine_free(&b.engine);
	llama_backend_free();
	return status;
}
