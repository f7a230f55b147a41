/* The model, its prompt, contexts and sampling. */
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------------------ log */

/* llama.cpp has one log for the whole process, so this is one too. */
static struct {
	bool verbose;
	char last_error[256];
} log_state;

static void on_log(enum ggml_log_level level, const char *text, void *user) {
	(void)user;
	if (log_state.verbose) {
		fputs(text, stderr);
	}
	/* The first error names the cause; later ones only that it had consequences. */
	if (level == GGML_LOG_LEVEL_ERROR && log_state.last_error[0] == '\0') {
		snprintf(log_state.last_error, sizeof log_state.last_error, "%s", text);
		log_state.last_error[strcspn(log_state.last_error, "\n")] = '\0';
	}
}

void engine_log(bool verbose) {
	log_state.verbose = verbose;
	log_state.last_error[0] = '\0';
	llama_log_set(on_log, NULL);
}

const char *engine_last_error(void) { return log_state.last_error[0] ? log_state.last_error : "llama.cpp gave no reason"; }

/* ---------------------------------------------------------------------------------------------------------- model */

static bool file_readable(const char *path) {
	FILE *file = fopen(path, "rb");
	char magic[4] = {0};
	if (!file) {
		fail("cannot open the model '%s': %s", path, strerror(errno));
		return false;
	}
	bool is_gguf = fread(magic, 1, sizeof magic, file) == sizeof magic && memcmp(magic, "GGUF", sizeof magic) == 0;
	fclose(file);
	if (!is_gguf) {
		fail("'%s' is not a model in GGUF format", path);
	}
	return is_gguf;
}

static bool keep_loading(float done, void *user) {
	(void)done;
	(void)user;
	return !interrupted();
}

bool engine_load(engine *e, bool vocab_only) {
	const run_options *options = e->options;
	engine_log(options->verbose);
	if (!file_readable(options->model)) {
		return false;
	}
	struct llama_model_params params = llama_model_default_params();
	params.vocab_only = vocab_only;
	params.progress_callback = keep_loading;
	if (options->n_gpu_layers >= 0) {
		params.n_gpu_layers = options->n_gpu_layers;
	}
	e->model = llama_model_load_from_file(options->model, params);
	if (!e->model) {
		fail("the model '%s' could not be loaded: %s", options->model, interrupted() ? "interrupted" : engine_last_error());
		return false;
	}
	e->vocab = llama_model_get_vocab(e->model);
	return true;
}

void engine_free(engine *e) {
	free(e->prompt);
	text_free(&e->content);
	llama_model_free(e->model);
	memset(e, 0, sizeof *e);
}

struct llama_context_params engine_context_params(const engine *e, int32_t n_cells, int32_t n_ubatch) {
	struct llama_context_params params = llama_context_default_params();
	params.n_ctx = (uint32_t)n_cells;
	params.n_batch = params.n_ubatch = (uint32_t)n_ubatch;
	params.n_threads = params.n_threads_batch = e->options->n_threads;
	params.type_k = params.type_v = e->options->type;
	params.swa_full = false;
	params.abort_callback = interrupt_abort;
	return params;
}

struct llama_context *engine_small_context(const engine *e, ckv_llama *ckv, int32_t n_cells) {
	enum { UBATCH = 64 };
	int32_t window = llama_model_n_swa(e->model), least = window > 0 ? window + UBATCH : 0;
	struct llama_context_params params = engine_context_params(e, n_cells > least ? n_cells : least, UBATCH);
	if (ckv_llama_attach(ckv, &params)) {
		fail("llama.cpp can't be observed: %s", ckv_llama_message(ckv));
		return NULL;
	}
	struct llama_context *ctx = llama_init_from_model(e->model, params);
	if (!ctx) {
		fail("llama.cpp could not make a context of %u cells: %s", params.n_ctx, engine_last_error());
	}
	return ctx;
}

struct llama_sampler *engine_sampler(const run_options *o) {
	struct llama_sampler *chain = llama_sampler_chain_init(llama_sampler_chain_default_params());
	if (o->temperature <= 0.0) {
		llama_sampler_chain_add(chain, llama_sampler_init_greedy());
		return chain;
	}
	llama_sampler_chain_add(chain, llama_sampler_init_top_k(o->top_k));
	llama_sampler_chain_add(chain, llama_sampler_init_top_p((float)o->top_p, 1));
	llama_sampler_chain_add(chain, llama_sampler_init_min_p((float)o->min_p, 1));
	llama_sampler_chain_add(chain, llama_sampler_init_temp((float)o->temperature));
	llama_sampler_chain_add(chain, llama_sampler_init_dist(o->seed));
	return chain;
}

/* --------------------------------------------------------------------------------------------------------- prompt */

/* Appends the tokens of text. Only the template's own text may hold control tokens: a document that spells one out must not
 * become one. */
static bool add_tokens(engine *e, const char *text, size_t size, bool start, bool control) {
	int32_t room = (int32_t)(size + 16);
	if (size > INT32_MAX / 2 || e->n_prompt > INT32_MAX - room) {
		fail("the prompt is too long");
		return false;
	}
	llama_token *bigger = realloc(e->prompt, ((size_t)e->n_prompt + (size_t)room) * sizeof *bigger);
	if (!bigger) {
		fail("no memory for the prompt's tokens");
		return false;
	}
	e->prompt = bigger;
	int32_t n = llama_tokenize(e->vocab, text, (int32_t)size, e->prompt + e->n_prompt, room, start, control);
	if (n < 0) {
		fail("the prompt could not be turned into tokens");
		return false;
	}
	e->n_prompt += n;
	return true;
}

static const char marker[] = "@@chunkkv:content@@";

/* The conversation with a marker where the user's text belongs, by a template's name or text; NULL when it is unknown. */
static char *apply_template(const char *name, const char *system) {
	struct llama_chat_message messages[2] = {{"system", system}, {"user", marker}};
	const struct llama_chat_message *first = system ? messages : messages + 1;
	size_t n = system ? 2 : 1;
	int32_t size = llama_chat_apply_template(name, first, n, true, NULL, 0);
	char *out = size < 0 ? NULL : malloc((size_t)size + 1);
	if (out) {
		llama_chat_apply_template(name, first, n, true, out, size);
		out[size] = '\0';
	}
	return out;
}

static void explain_templates(const char *name) {
	const char *names[256];
	int32_t n = llama_chat_builtin_templates(names, sizeof names / sizeof *names);
	if (name) {
		fail("llama.cpp has no built-in chat template '%s'; it has:", name);
	} else {
		fail("llama.cpp does not know this model's chat template; name one with --chat-template, or use --no-chat-template; "
		     "there are:");
	}
	for (int32_t i = 0; i < n && i < (int32_t)(sizeof names / sizeof *names); i++) {
		fprintf(stderr, "%s%s", i ? " " : "  ", names[i]);
	}
	fputc('\n', stderr);
}

static bool add_in_template(engine *e, const char *name, const char *content, size_t size) {
	char *text = apply_template(name, e->options->system);
	char *at = text ? strstr(text, marker) : NULL;
	if (!at) {
		explain_templates(e->options->chat_template);
		free(text);
		return false;
	}
	char *rest = at + strlen(marker);
	bool good = add_tokens(e, text, (size_t)(at - text), true, true) && add_tokens(e, content, size, false, false) &&
	            add_tokens(e, rest, strlen(rest), false, true);
	free(text);
	return good;
}

/* document, blank line, question */
static bool join(const buffer *document, const buffer *question, buffer *out) {
	const char *gap = document->size && question->size ? "\n\n" : "";
	size_t n = document->size;
	while (n > 0 && strchr(" \t\r\n", document->data[n - 1])) {
		n--;
	}
	out->size = n + strlen(gap) + question->size;
	out->data = malloc(out->size + 1);
	if (!out->data) {
		fail("no memory for the prompt");
		return false;
	}
	if (n) {
		memcpy(out->data, document->data, n);
	}
	snprintf(out->data + n, out->size - n + 1, "%s%s", gap, question->size ? question->data : "");
	return true;
}

static bool blank(const buffer *t) { return t->size == 0 || strspn(t->data, " \t\r\n") == t->size; }

static bool read_parts(const run_options *o, buffer *document, buffer *question) {
	if (o->document && !text_read(o->document, document)) {
		return false;
	}
	if (o->question) {
		question->size = strlen(o->question);
		question->data = malloc(question->size + 1);
		if (!question->data) {
			fail("no memory for the question");
			return false;
		}
		memcpy(question->data, o->question, question->size + 1);
		if (!text_check("the question", question->data, question->size)) {
			return false;
		}
	} else if (!(o->document && strcmp(o->document, "-") == 0) && !text_read("-", question)) {
		return false;
	}
	if (blank(document) && blank(question)) {
		fail("the prompt is empty: give a document with -f, a question with -p");
		return false;
	}
	return true;
}

bool engine_read(engine *e) {
	buffer document = {NULL, 0}, question = {NULL, 0};
	text_free(&e->content);
	bool good = read_parts(e->options, &document, &question) && join(&document, &question, &e->content);
	text_free(&document);
	text_free(&question);
	return good;
}

bool engine_prompt(engine *e) {
	const run_options *o = e->options;
	const char *name = o->chat_template ? o->chat_template : llama_model_chat_template(e->model, NULL);
	bool good;
	e->n_prompt = 0;
	if (o->no_chat_template || !name) {
		if (!o->no_chat_template && !o->quiet) {
			fputs("note: the model brings no chat template; the text goes in as it is\n", stderr);
		}
		good = add_tokens(e, e->content.data, e->content.size, true, false);
	} else {
		good = add_in_template(e, name, e->content.data, e->content.size);
	}
	if (good && e->n_prompt == 0) {
		fail("the prompt is empty: it has no tokens");
		good = false;
	}
	return good;
}
