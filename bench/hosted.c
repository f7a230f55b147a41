/* What a hosted cache costs and gives beside llama.cpp's own.
 *
 * usage: ckv-bench-hosted decode|paper|memory MODEL TEXT [--quick] [--rounds N] [--prompt N] [OPTION OF chunkkv run ...]
 *
 *   decode   tokens a second on as many rows: hosted, in llama.cpp's cache, and in a context that nothing looks at
 *   paper    the ChunkKV paper's comparison with KIVI and Palu: a prompt, an answer of -n tokens, and where the time goes
 *   memory   what the process holds of the full cache after compression
 *
 * The prompt is the text's beginning, of so many tokens, with a question behind it. --quick: as little as shows that
 * everything runs; its figures say nothing. */
#include "hosted.h"

#include <ggml.h>

#include <stdlib.h>
#include <string.h>

enum {
	N_ASKED = 24
}; /* tokens at the prompt's end that are left in place: the question, and what the template puts behind it */

typedef struct part {
	const char *name;
	bool (*run)(bench *b);
	int rounds;
	int32_t n_prompt, n_prompt_quick;
} part;

static const part parts[] = {
    {"decode", hosted_decode, 7, 1300, 160},
    {"paper", hosted_paper, 3, 2000, 320},
    {"memory", hosted_memory, 1, 4000, 320},
};

static bool make_prompt(bench *b) {
	const engine *e = &b->engine;
	if (b->n_prompt < 2 * N_ASKED || b->n_prompt > e->n_prompt) {
		return !fail("the text has %d tokens, and the prompt should have %d", e->n_prompt, b->n_prompt);
	}
	b->prompt = malloc((size_t)b->n_prompt * sizeof *b->prompt);
	if (!b->prompt) {
		return !fail("no memory for the prompt");
	}
	size_t n_text = (size_t)b->n_prompt - N_ASKED;
	memcpy(b->prompt, e->prompt, n_text * sizeof *b->prompt);
	memcpy(b->prompt + n_text, e->prompt + e->n_prompt - N_ASKED, N_ASKED * sizeof *b->prompt);
	return true;
}

bool bench_open(bench *b) {
	engine_start(false);
	b->engine.options = &b->options;
	if (!engine_read(&b->engine) || !engine_load(&b->engine, false) || !engine_prompt(&b->engine) || !make_prompt(b)) {
		return false;
	}
	engine_drop_text(&b->engine);
	return llama_model_n_swa(b->engine.model) <= 0 ||
	       !fail("a sliding-window model's small contexts have other rules: use chunkkv run --compare");
}

void bench_close(bench *b) {
	free(b->prompt);
	engine_free(&b->engine);
	engine_stop(0);
}

/* Takes our own options out of the list; the others stay, for options_parse. Returns how many. */
static int take_options(bench *b, const part *p, int argc, char **argv) {
	int n = 0;
	long rounds = 0, n_prompt = 0;
	for (int i = 0; i < argc; i++) {
		bool value = i + 1 < argc;
		if (strcmp(argv[i], "--quick") == 0) {
			b->quick = true;
		} else if (value && strcmp(argv[i], "--rounds") == 0) {
			rounds = strtol(argv[++i], NULL, 10);
		} else if (value && strcmp(argv[i], "--prompt") == 0) {
			n_prompt = strtol(argv[++i], NULL, 10);
		} else {
			argv[n++] = argv[i];
		}
	}
	b->rounds = rounds > 0 && rounds <= MAX_ROUNDS ? (int)rounds : b->quick && p->rounds > 2 ? 2 : p->rounds;
	b->n_prompt = n_prompt > 0 && n_prompt < 1 << 20 ? (int32_t)n_prompt : b->quick ? p->n_prompt_quick : p->n_prompt;
	return n;
}

static bool parse(bench *b, const part *p, int argc, char **argv) {
	enum { OWN = 7, MAX_OPTIONS = 32 };
	char *arguments[OWN + MAX_OPTIONS + 1] = {"run", "-m", argv[2], "-f", argv[3], "-p", "What is this text about?"};
	int n = take_options(b, p, argc - 4, argv + 4);
	if (n > MAX_OPTIONS) {
		return !fail("too many options");
	}
	memcpy(arguments + OWN, argv + 4, (size_t)n * sizeof *arguments);
	return options_parse(OWN + n, arguments, &b->options, COMMAND_RUN) == 0;
}

int main(int argc, char **argv) {
	static bench b;
	const part *p = NULL;
	for (size_t i = 0; i < sizeof parts / sizeof *parts && argc >= 4; i++) {
		p = strcmp(argv[1], parts[i].name) == 0 ? &parts[i] : p;
	}
	if (!p) {
		fputs("usage: ckv-bench-hosted decode|paper|memory MODEL TEXT [--quick] [--rounds N] [--prompt N] [OPTION ...]\n",
		      stderr);
		return EXIT_USAGE;
	}
	if (!parse(&b, p, argc, argv)) {
		return EXIT_USAGE;
	}
	printf("# %s, ggml %s; threads: %d, prompt of %d tokens, rounds: %d%s\n", LLAMA_NAME, ggml_version(),
	       b.options.n_threads, b.n_prompt, b.rounds, b.quick ? "; QUICK: these figures say nothing" : "");
	return p->run(&b) ? 0 : EXIT_FAILED;
}
