/* Options of the commands that use a model. Everything that can be judged without a model is judged here. */
#define _GNU_SOURCE
#include "options.h"

#include <ggml.h>

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FIRST_LONG = 256 };

/* ------------------------------------------------------------------------------------------------------------- help */

static const char *command_name(int command) {
	static const char *const names[] = {"run", "chat", "eval", "inspect"};
	size_t i = 0;
	while (i + 1 < sizeof names / sizeof *names && !(command & (1 << i))) {
		i++;
	}
	return names[i];
}

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

static const char help_eval[] =
    "usage: chunkkv eval TASK ... -m MODEL.gguf [--policy P ...] [--keep 30%,10%,5%] [OPTION ...]\n"
    "\n"
    "What compressed caches lose: each prompt is read once, every policy and budget answers from that, and is compared with "
    "the\n"
    "whole cache. The table goes to standard output, records and a page to --out.\n";

static const char help_inspect[] =
    "usage: chunkkv inspect -m MODEL.gguf -f DOCUMENT [-p QUESTION] [--policy P ...] [--keep 10%] [OPTION ...]\n"
    "\n"
    "What policies keep of a document, and what that does to each layer's attention: figures on standard output, a page "
    "with\n"
    "the text marked.\n";

/* In columns, as "  -m, --model FILE       model in GGUF format". */
static void show_entry(const option_entry *e, const char *text) {
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
	static const struct {
		int command;
		const char *text;
	} heads[] = {
	    {COMMAND_RUN, help_run}, {COMMAND_CHAT, help_chat}, {COMMAND_EVAL, help_eval}, {COMMAND_INSPECT, help_inspect}};
	for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
		fputs(heads[i].command == command ? heads[i].text : "", stdout);
	}
	int group = -1;
	for (int i = 0; i < n_option_entries; i++) {
		const option_entry *e = &option_entries[i];
		if (e->commands & command) {
			fputs(e->group == group ? "" : "\n", stdout);
			show_entry(e, command == COMMAND_CHAT && e->help_chat ? e->help_chat : e->help);
			group = e->group;
		}
	}
}

static int usage_error(int command) {
	fprintf(stderr, "try: chunkkv %s --help\n", command_name(command));
	return EXIT_USAGE + 1;
}

/* ----------------------------------------------------------------------------------------------------------- values */

static bool parse_whole(const option_entry *e, const char *value, int32_t *out) {
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

static bool parse_number(const option_entry *e, const char *value, double *out) {
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

static bool set(run_options *o, const option_entry *e, const char *value) {
	void *field = (char *)o + e->field;
	switch (e->kind) {
	case SWITCH: *(bool *)field = true; return true;
	case TEXT: *(const char **)field = value; return true;
	case QUESTION: return add_text(o->questions, &o->n_questions, MAX_QUESTIONS, value, "questions (-p)");
	case POLICY: return add_text(o->policies, &o->n_policies, MAX_NAMED_POLICIES, value, "policies (--policy)");
	case PIN: return add_text(o->pins, &o->n_pins, MAX_PINS, value, "texts to pin (--pin)");
	case WHOLE: return parse_whole(e, value, field);
	case NUMBER: return parse_number(e, value, field);
	case SEED: return parse_seed(value, field);
	case HELP: break;
	}
	return false;
}

/* ---------------------------------------------------------------------------------------------------------- judging */

enum ggml_type options_cache_type(const char *name) {
	static const enum ggml_type types[] = {GGML_TYPE_F16,  GGML_TYPE_BF16, GGML_TYPE_Q8_0, GGML_TYPE_Q5_1,
	                                       GGML_TYPE_Q5_0, GGML_TYPE_Q4_1, GGML_TYPE_Q4_0};
	for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
		if (strcmp(ggml_type_name(types[i]), name) == 0) {
			return types[i];
		}
	}
	fail("--cache-type '%s' is not one of f16, bf16, q8_0, q5_1, q5_0, q4_1, q4_0", name);
	return GGML_TYPE_COUNT;
}

static bool find_type(run_options *o) {
	o->type = options_cache_type(o->cache_type);
	return o->type != GGML_TYPE_COUNT;
}

static bool find_cache(run_options *o) {
	static const char *const names[] = {"auto", "own", "hosted"};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		if (strcmp(o->cache, names[i]) == 0) {
			o->cache_kind = (ckv_llama_cache)i;
			return true;
		}
	}
	fail("--cache '%s' is not one of auto, own, hosted", o->cache);
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
	bool hosted = policy_streams_hosted(o);
	const complaint list[] = {
	    {o->cache_kind == CKV_LLAMA_CACHE_OWN && !o->blocks && ckv_stream_params_hosted(&o->stream),
	     "--cache own is llama.cpp's cache, which has as many rows in every layer and merges none: leave it out for this "
	     "policy"},
	    {hosted && o->blocks, "--cache hosted goes with policies that go token by token, not with those used in blocks; "
	                          "chunkkv policies lists them"},
	    {hosted && o->type != GGML_TYPE_F16, "the hosted cache takes f16 rows: leave --cache-type out"},
	    {hosted && o->rotate, "the hosted cache keeps keys at their positions: leave --rotate out"},
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

/* A cache of our own takes rows as llama.cpp has them in f16. */
static bool check_hosted(const run_options *o) {
	bool needs = ckv_params_hosted(&o->params), wanted = o->cache_kind == CKV_LLAMA_CACHE_HOSTED;
	const complaint list[] = {
	    {needs && o->cache_kind == CKV_LLAMA_CACHE_OWN,
	     "--cache own is llama.cpp's cache, which can't pack, project or merge rows: leave it out for this policy"},
	    {(needs || wanted) && o->type != GGML_TYPE_F16,
	     "the hosted cache takes f16 rows and packs them by the policy (+kivi8, +kivi4): leave --cache-type out"},
	};
	return no_complaint(list, sizeof list / sizeof *list);
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
	return check_questions(o) && find_type(o) && check_hosted(o);
}

static bool check_run(run_options *o) {
	const complaint list[] = {
	    {o->dry_run && o->json, "--dry-run has no JSON form"},
	};
	return find_cache(o) && no_complaint(list, sizeof list / sizeof *list) &&
	       (o->ctx_budget ? check_run_bounded(o) : check_run_once(o));
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
	if (!no_complaint(list, sizeof list / sizeof *list) || !find_cache(o) || !check_bounded(o)) {
		return false;
	}
	if (o->blocks) {
		fail("policy '%s' is for a cache that is compressed once, and a chat needs one that goes token by token; chunkkv "
		     "policies lists them",
		     o->policy);
	}
	return !o->blocks;
}

static bool check_eval(run_options *o) {
	if (o->n_tasks == 0) {
		fail("no task given, e.g. chunkkv eval niah -m MODEL.gguf; chunkkv eval --help lists them");
		return false;
	}
	if (o->document && strcmp(o->document, "-") == 0) {
		fail("-f - can't be read again when the run goes on: give the text as a file");
		return false;
	}
	return find_cache(o);
}

static bool check_inspect(run_options *o) {
	ckv_error error;
	o->keep = o->keep ? o->keep : "10%";
	if (!o->document) {
		fail("no document given: -f FILE");
		return false;
	}
	if (o->n_questions > 1) {
		fail("one question is put after the document, not %d", o->n_questions);
		return false;
	}
	if (o->agnostic && o->n_questions == 0) {
		fail("--question-agnostic without a question: -p TEXT");
		return false;
	}
	if (ckv_budget_parse(o->keep, &o->budget, &error)) {
		fail("%s", error.message);
		return false;
	}
	return check_questions(o) && find_type(o);
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
	switch (command) {
	case COMMAND_CHAT: return check_chat(o);
	case COMMAND_EVAL: return check_eval(o);
	case COMMAND_INSPECT: return check_inspect(o);
	default: return check_run(o);
	}
}

static void set_defaults(run_options *o, int command) {
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	memset(o, 0, sizeof *o);
	o->policy = "chunkkv";
	o->cache_type = "f16";
	o->cache = "auto";
	o->n_predict = command == COMMAND_CHAT ? 1024 : command == COMMAND_EVAL ? 0 : 128;
	o->shots = -1;
	o->kl_limit = 0.1;
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
	int n_names = 0;
	for (int i = 0; i < n_option_entries; i++) {
		const option_entry *e = &option_entries[i];
		bool known = false; /* from another command's row: twice would make abbreviations ambiguous */
		for (int j = 0; j < i && !known; j++) {
			known = strcmp(option_entries[j].name, e->name) == 0;
		}
		if (known) {
			continue;
		}
		options[n_names++] = (struct option){e->name, e->argument ? required_argument : no_argument, NULL, FIRST_LONG + i};
		if (e->letter) {
			letters[n++] = e->letter;
			letters[n] = ':';
			n += e->argument != NULL;
		}
	}
	letters[n] = '\0';
	options[n_names] = (struct option){NULL, 0, NULL, 0};
}

static const option_entry *first_entry(int option) {
	for (int i = 0; i < n_option_entries; i++) {
		if (option == FIRST_LONG + i || (option && option == option_entries[i].letter)) {
			return &option_entries[i];
		}
	}
	return NULL;
}

/* The command's own row, else another command's. NULL: getopt has said that there is no such option. */
static const option_entry *find_entry(int option, int command) {
	const option_entry *found = first_entry(option);
	for (int i = 0; i < n_option_entries && found; i++) {
		if ((option_entries[i].commands & command) && strcmp(option_entries[i].name, found->name) == 0) {
			return &option_entries[i];
		}
	}
	return found;
}

/* What is left on the command line: the tasks of eval, else nothing is expected. */
static bool take_rest(run_options *o, int argc, char **argv, int command) {
	for (; optind < argc; optind++) {
		if (command != COMMAND_EVAL) {
			fail("'%s' is not an option; a document is given with -f%s", argv[optind],
			     command == COMMAND_RUN ? ", a question with -p" : "");
			return false;
		}
		if (!add_text(o->tasks, &o->n_tasks, MAX_TASKS, argv[optind], "tasks")) {
			return false;
		}
	}
	return true;
}

int options_parse(int argc, char **argv, run_options *o, int command) {
	struct option options[MAX_ENTRIES];
	static char name[32];
	char letters[2 * MAX_ENTRIES];
	int option;
	set_defaults(o, command);
	make_getopt(options, letters);
	snprintf(name, sizeof name, "chunkkv %s", command_name(command));
	argv[0] = name; /* for getopt's own messages */
	optind = 1;
	while ((option = getopt_long(argc, argv, letters, options, NULL)) != -1) {
		const option_entry *e = find_entry(option, command);
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
	if (!take_rest(o, argc, argv, command)) {
		return usage_error(command);
	}
	return check(o, command) ? 0 : usage_error(command);
}
