/* The model, its contexts and sampling. */
#include "cli.h"

#include <ggml-backend.h>

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

void engine_start(bool verbose) {
	interrupt_install();
	engine_log(verbose);
	ggml_backend_load_all(); /* for a llama.cpp whose backends are plug-ins */
	llama_backend_init();
}

int engine_stop(int status) {
	llama_backend_free();
	if (interrupted()) {
		fputs("\nchunkkv: interrupted\n", stderr);
		status = EXIT_INTERRUPTED;
	}
	return status;
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
	engine_drop_text(e);
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

struct llama_context *engine_context(const engine *e, ckv_llama *ckv, int32_t n_cells, int32_t n_ubatch) {
	struct llama_context_params params = engine_context_params(e, n_cells, n_ubatch);
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

struct llama_context *engine_small_context(const engine *e, ckv_llama *ckv, int32_t n_cells) {
	enum { UBATCH = 64 };
	int32_t window = llama_model_n_swa(e->model), least = window > 0 ? window + UBATCH : 0;
	return engine_context(e, ckv, n_cells > least ? n_cells : least, UBATCH);
}

int32_t engine_piece(int32_t budget, int32_t n_ubatch) {
	int32_t quarter = budget > 4 ? budget / 4 : 1;
	return quarter < n_ubatch ? quarter : n_ubatch;
}

/* The rows of a hosted cache are not llama.cpp's: it has cells for what is read at once, which is never more than a quarter
 * of the budget. */
struct llama_context *engine_bounded_context(const engine *e, ckv_llama *ckv, int32_t budget, int32_t n_ubatch) {
	int32_t piece = engine_piece(budget, n_ubatch);
	return policy_streams_hosted(e->options) ? engine_context(e, ckv, piece + 1, piece)
	                                         : engine_context(e, ckv, budget, n_ubatch);
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
