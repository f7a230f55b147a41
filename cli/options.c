/* Options of `chunkkv run` and `chunkkv chat`. Everything that can be judged without a model is judged here. */
#define _GNU_SOURCE
#include "cli.h"

#include <ggml.h>

#include <errno.h>
#include <getopt.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BOTH = COMMAND_RUN | COMMAND_CHAT };

typedef enum kind { HELP, SWITCH, TEXT, QUESTION, PIN, WHOLE, NUMBER, SEED } kind;

/* An option: who takes it, where its value goes, what is said of it. */
typedef struct entry {
	const char *name, *argument; /* no argument: a switch */
	char letter;                 /* 0: no short form */
	int commands;
	int group; /* in the help text, an empty line between */
	kind kind;
	size_t field; /* in run_options; its type goes with the kind */
	double low, high;
	const char *help, *help_chat; /* lines; the second where chat has its own words */
} entry;

#define FIELD(name) offsetof(run_options, name)

static const entry entries[] = {
    {"model", "FILE", 'm', BOTH, 0, TEXT, FIELD(model), 0, 0, "model in GGUF format", NULL},
    {"file", "FILE", 'f', BOTH, 0, TEXT, FIELD(document), 0, 0, "document, UTF-8 text; - for standard input",
     "document, UTF-8 text, that the conversation is about"},
    {"prompt", "TEXT", 'p', COMMAND_RUN, 0, QUESTION, 0, 0, 0,
     "question, put after the document; several: each is asked, see --question-agnostic", NULL},
    {"question-agnostic", NULL, 0, COMMAND_RUN, 0, SWITCH, FIELD(agnostic), 0, 0,
     "compress the document before any question is seen, read it once, and ask each question to what\n"
     "is kept; else the one question is known when the cache is compressed",
     NULL},
    {"pin", "TEXT", 0, COMMAND_CHAT, 0, PIN, 0, 0, 0, "text that is never evicted, put first; several", NULL},
    {"load", "FILE", 0, COMMAND_CHAT, 0, TEXT, FIELD(load), 0, 0, "go on from a session that /save wrote", NULL},
    {"keep", "BUDGET", 0, COMMAND_RUN, 0, TEXT, FIELD(keep), 0, 0,
     "what to keep of the cache: a share (10%) or a number of tokens (512); default 10%", NULL},
    {"policy", "TEXT", 0, BOTH, 0, TEXT, FIELD(policy), 0, 0,
     "how to choose it, e.g. chunkkv:chunk=10,window=32; default chunkkv; see chunkkv policies",
     "what is evicted, e.g. chunkkv:chunk=8,grace=32; default chunkkv; see chunkkv policies"},
    {"compare", NULL, 0, COMMAND_RUN, 0, SWITCH, FIELD(compare), 0, 0,
     "answer with the full cache too, and measure how far the compressed one departs from it", NULL},
    {"dry-run", NULL, 0, COMMAND_RUN, 0, SWITCH, FIELD(dry_run), 0, 0,
     "only tell how large the cache would be, and whether memory suffices; loads no weights", NULL},

    {"ctx-budget", "N", 0, BOTH, 1, WHOLE, FIELD(ctx_budget), 1, 1 << 28,
     "cells of the cache, all of it, however long document and answer are: before more is read or\n"
     "written than fits, the policy lets rows go; instead of --keep",
     "cells of the cache, all of it, however long the conversation becomes; default 4096"},
    {"interval", "N", 0, COMMAND_RUN, 1, WHOLE, FIELD(interval), 1, 1 << 20,
     "use a one-shot policy for that, at least N rows at once; else policies go token by token where\n"
     "there is such a form",
     NULL},
    {"rotate", NULL, 0, BOTH, 1, SWITCH, FIELD(rotate), 0, 0,
     "turn kept keys so that no gaps are left between their positions; default: when the tokens may\n"
     "reach beyond what the model was trained for",
     NULL},
    {"no-rotate", NULL, 0, BOTH, 1, SWITCH, FIELD(no_rotate), 0, 0, "never", NULL},

    {"n-predict", "N", 'n', BOTH, 2, WHOLE, FIELD(n_predict), 1, 1 << 24, "tokens to generate at most; default 128",
     "tokens of a reply at most; default 1024"},
    {"ctx", "N", 'c', COMMAND_RUN, 2, WHOLE, FIELD(n_ctx), 1, 1 << 28,
     "cells of the prefill context; default: as many as the prompt needs. With --ctx-budget: of the\n"
     "full cache that --compare has beside it",
     NULL},
    {"cache-type", "TYPE", 0, BOTH, 2, TEXT, FIELD(cache_type), 0, 0,
     "type of the cache: f16, bf16, q8_0, q5_1, q5_0, q4_1, q4_0; default f16", NULL},
    {"threads", "N", 't', BOTH, 2, WHOLE, FIELD(n_threads), 1, 4096, "default: all processors", NULL},
    {"gpu-layers", "N", 0, BOTH, 2, WHOLE, FIELD(n_gpu_layers), 0, 1 << 20,
     "layers to put on the GPU; default: as llama.cpp decides", NULL},
    {"ubatch", "N", 0, BOTH, 2, WHOLE, FIELD(n_ubatch), 1, 1 << 16, "tokens processed at once in the prefill; default 512",
     NULL},
    {"temp", "T", 0, BOTH, 2, NUMBER, FIELD(temperature), 0, 100,
     "temperature of sampling; default 0, the most likely token", NULL},
    {"top-k", "K", 0, BOTH, 2, WHOLE, FIELD(top_k), 0, 1 << 24, "sample from the K likeliest tokens; 0: all; default 40",
     NULL},
    {"top-p", "P", 0, BOTH, 2, NUMBER, FIELD(top_p), 0, 1, "from the likeliest that make up P; default 0.95", NULL},
    {"min-p", "P", 0, BOTH, 2, NUMBER, FIELD(min_p), 0, 1,
     "from those at least P times as likely as the first; default 0.05", NULL},
    {"seed", "S", 0, BOTH, 2, SEED, FIELD(seed), 0, 0, "of the random numbers; default 0", NULL},
    {"system", "TEXT", 0, BOTH, 2, TEXT, FIELD(system), 0, 0, "system message for the chat template", NULL},
    {"chat-template", "T", 0, BOTH, 2, TEXT, FIELD(chat_template), 0, 0,
     "use llama.cpp's built-in template T instead of the model's own", NULL},
    {"no-chat-template", NULL, 0, BOTH, 2, SWITCH, FIELD(no_chat_template), 0, 0, "document and question as they are",
     "what you say as it is"},

    {"json", NULL, 0, COMMAND_RUN, 3, SWITCH, FIELD(json), 0, 0, "one JSON object on standard output instead of the answer",
     NULL},
    {"quiet", NULL, 0, BOTH, 3, SWITCH, FIELD(quiet), 0, 0, "the answer alone", "the replies alone"},
    {"verbose", NULL, 'v', BOTH, 3, SWITCH, FIELD(verbose), 0, 0, "llama.cpp's own messages too", NULL},
    {"help", NULL, 'h', BOTH, 3, HELP, 0, 0, 0, "this text", NULL},
};

enum { N_ENTRIES = sizeof entries / sizeof *entries, FIRST_LONG = 256 };

/* ------------------------------------------------------------------------------------------------------------- help */

static const char *command_name(int command) { return command == COMMAND_CHAT ? "chat" : "run"; }

static const char help_run[] =
    "usage: chunkkv run -m MODEL.gguf [-f DOCUMENT] [-p QUESTION ...] [OPTION ...]\n"
    "\n"
    "Reads the document, compresses the model's KV cache, and answers the question from what is kept.\n"
    "Without -p the question is read from standard input. The answer goes to standard output, all else to standard error.\n";

static const char help_chat[] =
    "usage: chunkkv chat -m MODEL.gguf [-f DOCUMENT] [OPTION ...]\n"
    "\n"
    "A conversation of any length in a cache of fixed size. What you say is read from standard input, line by line; /help\n"
    "tells what else can be done. Replies go to standard output, all else to standard error.\n";

/* In columns, as "  -m, --model FILE       model in GGUF format". */
static void show_entry(const entry *e, const char *text) {
	enum { COLUMN = 25 };
	char letter[8] = "    ", left[64];
	if (e->letter) {
		snprintf(letter, sizeof letter, "-%c, ", e->letter);
	}
	snprintf(left, sizeof left, "  %s--%s%s%s", letter, e->name, e->argument ? " " : "", e->argument ? e->argument : "");
	bool apart = strlen(left) >= COLUMN; /* too long to stand beside its text */
	printf("%-*s%s", COLUMN, left, apart ? "\n" : "");
	for (const char *line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
		bool beside = line == text && !apart;
		printf("%*s%.*s\n", beside ? 0 : COLUMN, "", (int)strcspn(line, "\n"), line);
	}
}

static void show_help(int command) {
	fputs(command == COMMAND_CHAT ? help_chat : help_run, stdout);
	for (size_t i = 0, group = N_ENTRIES; i < N_ENTRIES; i++) {
		const entry *e = &entries[i];
		if (e->commands & command) {
			fputs((size_t)e->group == group ? "" : "\n", stdout);
			show_entry(e, command == COMMAND_CHAT && e->help_chat ? e->help_chat : e->help);
			group = (size_t)e->group;
		}
	}
}

static int usage_error(int command) {
	fprintf(stderr, "try: chunkkv %s --help\n", command_name(command));
	return EXIT_USAGE + 1;
}

/* ----------------------------------------------------------------------------------------------------------- values */

static bool parse_whole(const entry *e, const char *value, int32_t *out) {
	char *end;
	errno = 0;
	long number = strtol(value, &end, 10);
	if (end == value || *end || errno || (double)number < e->low || (double)number > e->high) {
		fail("--%s '%s' is not a whole number from %.0f to %.0f", e->name, value, e->low, e->high);
		return false;
	}
	*out = (int32_t)number;
	return true;
}

static bool parse_number(const entry *e, const char *value, double *out) {
	char *end;
	double number = strtod(value, &end);
	if (end == value || *end || !(number >= e->low && number <= e->high)) {
		fail("--%s '%s' is not a number from %g to %g", e->name, value, e->low, e->high);
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

static bool add_text(const char **list, int32_t *n, int32_t most, const char *text, const char *what) {
	if (*n == most) {
		fail("more than %d %s", most, what);
		return false;
	}
	list[(*n)++] = text;
	return true;
}

static bool set(run_options *o, const entry *e, const char *value) {
	void *field = (char *)o + e->field;
	switch (e->kind) {
	case SWITCH: *(bool *)field = true; return true;
	case TEXT: *(const char **)field = value; return true;
	case QUESTION: return add_text(o->questions, &o->n_questions, MAX_QUESTIONS, value, "questions (-p)");
	case PIN: return add_text(o->pins, &o->n_pins, MAX_PINS, value, "texts to pin (--pin)");
	case WHOLE: return parse_whole(e, value, field);
	case NUMBER: return parse_number(e, value, field);
	case SEED: return parse_seed(value, field);
	case HELP: break;
	}
	return false;
}

/* ---------------------------------------------------------------------------------------------------------- judging */

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
	o->question = o->questions[0];
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

/* The first complaint that holds. */
typedef struct complaint {
	bool holds;
	const char *message;
} complaint;

static bool no_complaint(const complaint *list, size_t n) {
	for (size_t i = 0; i < n; i++) {
		if (list[i].holds) {
			fail("%s", list[i].message);
			return false;
		}
	}
	return true;
}

/* A cache of fixed size, and what can't be had with it. */
static bool check_bounded(run_options *o) {
	if (!policy_parse_bounded(o) || !find_type(o)) {
		return false;
	}
	const complaint list[] = {
	    {o->rotate && o->no_rotate, "--rotate and --no-rotate exclude each other"},
	    {o->rotate && ggml_is_quantized(o->type),
	     "--rotate turns keys again and again, which a quantised cache would wear out: use --cache-type f16"},
	    {o->rotate && o->blocks, "--rotate goes with policies that go token by token, not with those used in blocks; "
	                             "chunkkv policies lists them"},
	};
	return no_complaint(list, sizeof list / sizeof *list);
}

static bool check_run_bounded(run_options *o) {
	const complaint list[] = {
	    {o->keep, "--keep and --ctx-budget exclude each other: the cache is compressed once, or never outgrows the budget"},
	    {o->agnostic, "--question-agnostic and --ctx-budget exclude each other: document and question are read in one"},
	    {o->n_questions > 1,
	     "one question is asked with --ctx-budget: several need --keep, where each goes on from the same "
	     "compressed document"},
	    {o->n_ctx && !o->compare && !o->dry_run,
	     "--ctx is the size of the full cache, and with --ctx-budget there is one only beside it, with --compare"},
	};
	return no_complaint(list, sizeof list / sizeof *list) && check_questions(o) && check_bounded(o);
}

static bool check_run_once(run_options *o) {
	ckv_error error;
	const complaint list[] = {
	    {o->interval, "--interval goes with --ctx-budget: the cache is else compressed once"},
	    {o->rotate || o->no_rotate, "--rotate and --no-rotate go with --ctx-budget"},
	};
	o->keep = o->keep ? o->keep : "10%";
	if (!no_complaint(list, sizeof list / sizeof *list)) {
		return false;
	}
	if (ckv_policy_parse(o->policy, &o->params, &error) || ckv_budget_parse(o->keep, &o->budget, &error)) {
		fail("%s", error.message);
		return false;
	}
	return check_questions(o) && find_type(o);
}

static bool check_run(run_options *o) {
	const complaint list[] = {
	    {o->dry_run && o->json, "--dry-run has no JSON form"},
	};
	return no_complaint(list, sizeof list / sizeof *list) && (o->ctx_budget ? check_run_bounded(o) : check_run_once(o));
}

static bool check_chat(run_options *o) {
	bool empty_pin = false;
	for (int32_t i = 0; i < o->n_pins; i++) {
		empty_pin = empty_pin || o->pins[i][0] == '\0';
	}
	const complaint list[] = {
	    {o->document && strcmp(o->document, "-") == 0, "standard input is what you say: give the document as a file"},
	    {empty_pin, "--pin '' has no text to keep"},
	};
	if (!no_complaint(list, sizeof list / sizeof *list) || !check_bounded(o)) {
		return false;
	}
	if (o->blocks) {
		fail("policy '%s' is for a cache that is compressed once, and a chat needs one that goes token by token; chunkkv "
		     "policies lists them",
		     o->policy);
	}
	return !o->blocks;
}

/* What needs no model to be found wrong. */
static bool check(run_options *o, int command) {
	if (!o->model) {
		fail("no model given: -m MODEL.gguf");
		return false;
	}
	if (o->chat_template && o->no_chat_template) {
		fail("--chat-template and --no-chat-template exclude each other");
		return false;
	}
	return command == COMMAND_CHAT ? check_chat(o) : check_run(o);
}

static void set_defaults(run_options *o, int command) {
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	memset(o, 0, sizeof *o);
	o->policy = "chunkkv";
	o->cache_type = "f16";
	o->n_predict = command == COMMAND_CHAT ? 1024 : 128;
	o->ctx_budget = command == COMMAND_CHAT ? 4096 : 0;
	o->n_ubatch = 512;
	o->n_threads = processors > 0 ? (int32_t)processors : 1;
	o->n_gpu_layers = -1;
	o->top_k = 40;
	o->top_p = 0.95;
	o->min_p = 0.05;
}

/* ---------------------------------------------------------------------------------------------------------- reading */

/* All commands' options, so that one of another command is known for what it is. */
static void make_getopt(struct option *options, char *letters) {
	size_t n = 0;
	for (int i = 0; i < N_ENTRIES; i++) {
		const entry *e = &entries[i];
		int argument = e->argument ? required_argument : no_argument;
		options[i] = (struct option){e->name, argument, NULL, FIRST_LONG + i};
		if (e->letter) {
			letters[n++] = e->letter;
			letters[n] = ':';
			n += e->argument != NULL;
		}
	}
	letters[n] = '\0';
	options[N_ENTRIES] = (struct option){NULL, 0, NULL, 0};
}

/* NULL: getopt has said that there is no such option. */
static const entry *find_entry(int option) {
	for (int i = 0; i < N_ENTRIES; i++) {
		if (option == FIRST_LONG + i || (option && option == entries[i].letter)) {
			return &entries[i];
		}
	}
	return NULL;
}

int options_parse(int argc, char **argv, run_options *o, int command) {
	struct option options[N_ENTRIES + 1];
	static char name[32];
	char letters[2 * N_ENTRIES + 1];
	int option;
	set_defaults(o, command);
	make_getopt(options, letters);
	snprintf(name, sizeof name, "chunkkv %s", command_name(command));
	argv[0] = name; /* for getopt's own messages */
	optind = 1;
	while ((option = getopt_long(argc, argv, letters, options, NULL)) != -1) {
		const entry *e = find_entry(option);
		if (e && !(e->commands & command)) {
			fail("--%s is an option of chunkkv %s, not of chunkkv %s", e->name, command_name(e->commands),
			     command_name(command));
			return usage_error(command);
		}
		if (e && e->kind == HELP) {
			show_help(command);
			return 1;
		}
		if (!e || !set(o, e, optarg)) {
			return usage_error(command);
		}
	}
	if (optind < argc) {
		fail("'%s' is not an option; a document is given with -f%s", argv[optind],
		     command == COMMAND_RUN ? ", a question with -p" : "");
		return usage_error(command);
	}
	return check(o, command) ? 0 : usage_error(command);
}
