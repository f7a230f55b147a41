/* Options of `chunkkv run`. Everything that can be judged without a model is judged here. */
#define _GNU_SOURCE
#include "cli.h"

#include <ggml.h>

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	OPT_KEEP = 256,
	OPT_POLICY,
	OPT_GPU_LAYERS,
	OPT_CACHE_TYPE,
	OPT_UBATCH,
	OPT_SEED,
	OPT_TEMP,
	OPT_TOP_K,
	OPT_TOP_P,
	OPT_MIN_P,
	OPT_AGNOSTIC,
	OPT_COMPARE,
	OPT_JSON,
	OPT_QUIET,
	OPT_SYSTEM,
	OPT_TEMPLATE,
	OPT_NO_TEMPLATE,
	OPT_DRY_RUN
};

static const struct option long_options[] = {{"model", required_argument, NULL, 'm'},
                                             {"file", required_argument, NULL, 'f'},
                                             {"prompt", required_argument, NULL, 'p'},
                                             {"n-predict", required_argument, NULL, 'n'},
                                             {"ctx", required_argument, NULL, 'c'},
                                             {"threads", required_argument, NULL, 't'},
                                             {"help", no_argument, NULL, 'h'},
                                             {"verbose", no_argument, NULL, 'v'},
                                             {"keep", required_argument, NULL, OPT_KEEP},
                                             {"policy", required_argument, NULL, OPT_POLICY},
                                             {"gpu-layers", required_argument, NULL, OPT_GPU_LAYERS},
                                             {"cache-type", required_argument, NULL, OPT_CACHE_TYPE},
                                             {"ubatch", required_argument, NULL, OPT_UBATCH},
                                             {"seed", required_argument, NULL, OPT_SEED},
                                             {"temp", required_argument, NULL, OPT_TEMP},
                                             {"top-k", required_argument, NULL, OPT_TOP_K},
                                             {"top-p", required_argument, NULL, OPT_TOP_P},
                                             {"min-p", required_argument, NULL, OPT_MIN_P},
                                             {"question-agnostic", no_argument, NULL, OPT_AGNOSTIC},
                                             {"compare", no_argument, NULL, OPT_COMPARE},
                                             {"json", no_argument, NULL, OPT_JSON},
                                             {"quiet", no_argument, NULL, OPT_QUIET},
                                             {"system", required_argument, NULL, OPT_SYSTEM},
                                             {"chat-template", required_argument, NULL, OPT_TEMPLATE},
                                             {"no-chat-template", no_argument, NULL, OPT_NO_TEMPLATE},
                                             {"dry-run", no_argument, NULL, OPT_DRY_RUN},
                                             {NULL, 0, NULL, 0}};

static const char help[] =
    "usage: chunkkv run -m MODEL.gguf [-f DOCUMENT] [-p QUESTION ...] [OPTION ...]\n"
    "\n"
    "Reads the document, compresses the model's KV cache, and answers the question from what is kept.\n"
    "Without -p the question is read from standard input. The answer goes to standard output, all else to standard error.\n"
    "\n"
    "  -m, --model FILE       model in GGUF format\n"
    "  -f, --file FILE        document, UTF-8 text; - for standard input\n"
    "  -p, --prompt TEXT      question, put after the document; several: each is asked, see --question-agnostic\n"
    "      --question-agnostic\n"
    "                         compress the document before any question is seen, read it once, and ask each question to "
    "what\n"
    "                         is kept; else the one question is known when the cache is compressed\n"
    "      --keep BUDGET      what to keep of the cache: a share (10%) or a number of tokens (512); default 10%\n"
    "      --policy TEXT      how to choose it, e.g. chunkkv:chunk=10,window=32; default chunkkv; see chunkkv policies\n"
    "      --compare          answer with the full cache too, and measure how far the compressed one departs from it\n"
    "      --dry-run          only tell how large the cache would be, and whether memory suffices; loads no weights\n"
    "\n"
    "  -n, --n-predict N      tokens to generate at most; default 128\n"
    "  -c, --ctx N            cells of the prefill context; default: as many as the prompt needs\n"
    "      --cache-type TYPE  type of the cache: f16, bf16, q8_0, q5_1, q5_0, q4_1, q4_0; default f16\n"
    "  -t, --threads N        default: all processors\n"
    "      --gpu-layers N     layers to put on the GPU; default: as llama.cpp decides\n"
    "      --ubatch N         tokens processed at once in the prefill; default 512\n"
    "      --temp T --top-k K --top-p P --min-p P --seed S\n"
    "                         sampling; default --temp 0, the most likely token\n"
    "      --system TEXT      system message for the chat template\n"
    "      --chat-template T  use llama.cpp's built-in template T instead of the model's own\n"
    "      --no-chat-template document and question as they are\n"
    "\n"
    "      --json             one JSON object on standard output instead of the answer\n"
    "      --quiet            the answer alone\n"
    "  -v, --verbose          llama.cpp's own messages too\n"
    "  -h, --help             this text\n";

static int usage_error(void) {
	fputs("try: chunkkv run --help\n", stderr);
	return EXIT_USAGE + 1;
}

static bool parse_int(const char *name, const char *value, long low, long high, int32_t *out) {
	char *end;
	errno = 0;
	long number = strtol(value, &end, 10);
	if (end == value || *end || errno || number < low || number > high) {
		fail("--%s '%s' is not a whole number from %ld to %ld", name, value, low, high);
		return false;
	}
	*out = (int32_t)number;
	return true;
}

static bool parse_double(const char *name, const char *value, double low, double high, double *out) {
	char *end;
	double number = strtod(value, &end);
	if (end == value || *end || !(number >= low && number <= high)) {
		fail("--%s '%s' is not a number from %g to %g", name, value, low, high);
		return false;
	}
	*out = number;
	return true;
}

static bool parse_seed(const char *value, uint32_t *out) {
	char *end;
	errno = 0;
	unsigned long number = strtoul(value, &end, 10);
	if (end == value || *end || errno || number > UINT32_MAX || value[0] == '-') {
		fail("--seed '%s' is not a whole number from 0 to %u", value, UINT32_MAX);
		return false;
	}
	*out = (uint32_t)number;
	return true;
}

static bool set_switch(run_options *o, int option) {
	switch (option) {
	case 'v': o->verbose = true; return true;
	case OPT_AGNOSTIC: o->agnostic = true; return true;
	case OPT_COMPARE: o->compare = true; return true;
	case OPT_JSON: o->json = true; return true;
	case OPT_QUIET: o->quiet = true; return true;
	case OPT_NO_TEMPLATE: o->no_chat_template = true; return true;
	case OPT_DRY_RUN: o->dry_run = true; return true;
	default: return false;
	}
}

static bool add_question(run_options *o, const char *text) {
	if (o->n_questions == MAX_QUESTIONS) {
		fail("more than %d questions (-p)", MAX_QUESTIONS);
		return false;
	}
	o->questions[o->n_questions++] = text;
	o->question = o->questions[0];
	return true;
}

static bool set_text(run_options *o, int option, const char *value) {
	switch (option) {
	case 'm': o->model = value; return true;
	case 'f': o->document = value; return true;
	case 'p': return add_question(o, value);
	case OPT_KEEP: o->keep = value; return true;
	case OPT_POLICY: o->policy = value; return true;
	case OPT_CACHE_TYPE: o->cache_type = value; return true;
	case OPT_SYSTEM: o->system = value; return true;
	case OPT_TEMPLATE: o->chat_template = value; return true;
	default: return false;
	}
}

static bool set_number(run_options *o, int option, const char *value) {
	switch (option) {
	case 'n': return parse_int("n-predict", value, 1, 1 << 24, &o->n_predict);
	case 'c': return parse_int("ctx", value, 1, 1 << 28, &o->n_ctx);
	case 't': return parse_int("threads", value, 1, 4096, &o->n_threads);
	case OPT_GPU_LAYERS: return parse_int("gpu-layers", value, 0, 1 << 20, &o->n_gpu_layers);
	case OPT_UBATCH: return parse_int("ubatch", value, 1, 1 << 16, &o->n_ubatch);
	case OPT_SEED: return parse_seed(value, &o->seed);
	case OPT_TEMP: return parse_double("temp", value, 0.0, 100.0, &o->temperature);
	case OPT_TOP_K: return parse_int("top-k", value, 0, 1 << 24, &o->top_k);
	case OPT_TOP_P: return parse_double("top-p", value, 0.0, 1.0, &o->top_p);
	case OPT_MIN_P: return parse_double("min-p", value, 0.0, 1.0, &o->min_p);
	default: return false;
	}
}

static bool find_type(run_options *o) {
	static const enum ggml_type types[] = {GGML_TYPE_F16,  GGML_TYPE_BF16, GGML_TYPE_Q8_0, GGML_TYPE_Q5_1,
	                                       GGML_TYPE_Q5_0, GGML_TYPE_Q4_1, GGML_TYPE_Q4_0};
	for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
		if (strcmp(ggml_type_name(types[i]), o->cache_type) == 0) {
			o->type = types[i];
			return true;
		}
	}
	fail("--cache-type '%s' is not one of f16, bf16, q8_0, q5_1, q5_0, q4_1, q4_0", o->cache_type);
	return false;
}

/* Several questions share one compressed document, so none of them can be in its window. */
static bool check_questions(run_options *o) {
	bool several = o->n_questions > 1;
	o->agnostic = o->agnostic || several;
	if (o->agnostic && !o->document) {
		fail("%s to a document that is compressed before: give it with -f",
		     several ? "several questions are asked" : "with --question-agnostic the question is asked");
		return false;
	}
	if (o->agnostic && o->n_questions == 0 && strcmp(o->document, "-") == 0) {
		fail("standard input holds the document: give the question with -p");
		return false;
	}
	return true;
}

/* What needs no model to be found wrong. */
static bool check(run_options *o) {
	ckv_error error;
	if (!o->model) {
		fail("no model given: -m MODEL.gguf");
		return false;
	}
	if (ckv_policy_parse(o->policy, &o->params, &error) || ckv_budget_parse(o->keep, &o->budget, &error)) {
		fail("%s", error.message);
		return false;
	}
	if (o->dry_run && o->json) {
		fail("--dry-run has no JSON form");
		return false;
	}
	if (o->chat_template && o->no_chat_template) {
		fail("--chat-template and --no-chat-template exclude each other");
		return false;
	}
	return check_questions(o) && find_type(o);
}

static void set_defaults(run_options *o) {
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	memset(o, 0, sizeof *o);
	o->policy = "chunkkv";
	o->keep = "10%";
	o->cache_type = "f16";
	o->n_predict = 128;
	o->n_ubatch = 512;
	o->n_threads = processors > 0 ? (int32_t)processors : 1;
	o->n_gpu_layers = -1;
	o->top_k = 40;
	o->top_p = 0.95;
	o->min_p = 0.05;
}

int options_parse(int argc, char **argv, run_options *o) {
	int option;
	set_defaults(o);
	static char name[] = "chunkkv run";
	argv[0] = name; /* for getopt's own messages */
	optind = 1;
	while ((option = getopt_long(argc, argv, "m:f:p:n:c:t:hv", long_options, NULL)) != -1) {
		if (option == 'h') {
			fputs(help, stdout);
			return 1;
		}
		if (option == '?' || !(set_switch(o, option) || set_text(o, option, optarg) || set_number(o, option, optarg))) {
			return usage_error();
		}
	}
	if (optind < argc) {
		fail("'%s' is not an option; a document is given with -f, a question with -p", argv[optind]);
		return usage_error();
	}
	return check(o) ? 0 : usage_error();
}
