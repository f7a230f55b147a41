/* chunkkv run --dry-run: sizes from the model's metadata, before any weight is loaded. */
#include "cli.h"

#include <ggml.h>

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct shape {
	int64_t n_layers, n_heads, n_kv_heads, n_embd, dim_k, dim_v, window;
} shape;

/* A number of the metadata under <architecture>.<key>; fallback when it is not there. */
static int64_t meta(const struct llama_model *model, const char *key, int64_t fallback) {
	char architecture[64], name[160], value[256], *end;
	if (llama_model_meta_val_str(model, "general.architecture", architecture, sizeof architecture) < 0) {
		return fallback;
	}
	snprintf(name, sizeof name, "%s.%s", architecture, key);
	if (llama_model_meta_val_str(model, name, value, sizeof value) < 0) {
		return fallback;
	}
	/* Numbers by layer stand in brackets: take the largest. */
	int64_t largest = -1;
	for (const char *at = value; *at;) {
		long long number = strtoll(at, &end, 10);
		if (end == at) {
			at++;
			continue;
		}
		largest = number > largest ? number : largest;
		at = end;
	}
	return largest >= 0 ? largest : fallback;
}

static bool read_shape(const struct llama_model *model, shape *s) {
	s->n_layers = meta(model, "block_count", 0);
	s->n_heads = meta(model, "attention.head_count", 0);
	s->n_embd = meta(model, "embedding_length", 0);
	s->n_kv_heads = meta(model, "attention.head_count_kv", s->n_heads);
	s->dim_k = meta(model, "attention.key_length", s->n_heads > 0 ? s->n_embd / s->n_heads : 0);
	s->dim_v = meta(model, "attention.value_length", s->dim_k);
	s->window = meta(model, "attention.sliding_window", 0);
	return s->n_layers > 0 && s->n_kv_heads > 0 && s->dim_k > 0 && s->dim_v > 0 && s->n_layers < 100000 &&
	       s->n_kv_heads < 100000 && s->dim_k < 100000 && s->dim_v < 100000;
}

static double cache_bytes(const run_options *o, const shape *s, int64_t cells) {
	size_t row = ggml_row_size(o->type, s->n_kv_heads * s->dim_k) + ggml_row_size(o->type, s->n_kv_heads * s->dim_v);
	return (double)row * (double)cells * (double)s->n_layers;
}

static int64_t padded(int64_t cells) { return (cells + 255) / 256 * 256; }

static double model_bytes(const char *path) {
	struct stat info;
	return stat(path, &info) == 0 ? (double)info.st_size : 0.0;
}

/* What the sizes are made of. */
typedef struct counts {
	int32_t prompt;  /* tokens that are prefilled and compressed */
	int32_t longest; /* of a question that comes after them */
	int32_t keep;
	int64_t full_cells, kept_cells;
} counts;

static bool count(const engine *e, int32_t n_tokens, counts *c) {
	const run_options *o = e->options;
	c->prompt = n_tokens;
	c->longest = engine_longest_question(e);
	int64_t needed = (int64_t)n_tokens + (o->compare ? c->longest + o->n_predict : 0);
	if (o->n_ctx && o->n_ctx < needed) {
		fail("the prompt does not fit --ctx %d: give at least --ctx %lld", o->n_ctx, (long long)needed);
		return false;
	}
	if (ckv_budget_resolve(o->budget, n_tokens, &c->keep)) {
		fail("the budget %s is out of range", o->keep);
		return false;
	}
	c->keep = c->keep < n_tokens ? c->keep : n_tokens;
	c->full_cells = padded(o->n_ctx ? o->n_ctx : needed);
	c->kept_cells = padded((int64_t)c->keep + c->longest + o->n_predict);
	return true;
}

static void tell_tokens(const engine *e, const shape *s, const counts *c) {
	const run_options *o = e->options;
	printf("%d %stokens, of which %d are kept (%s); %lld layers, %lld KV heads of %lld, cache type %s\n", c->prompt,
	       o->agnostic ? "document " : "", c->keep, o->keep, (long long)s->n_layers, (long long)s->n_kv_heads,
	       (long long)s->dim_k, o->cache_type);
	if (o->agnostic) {
		printf("compressed before the question; then%s",
		       e->n_questions > 1 ? ", one at a time, questions of" : " a question of");
		for (int32_t i = 0; i < e->n_questions; i++) {
			printf("%s %d", i ? "," : "", e->questions[i].n_tokens);
		}
		puts(" tokens");
	}
}

static void tell_memory(double need) {
	double have = (double)memory_available();
	if (have > 0) {
		printf("available memory  %10.1f MB: %s\n", have / 1e6, need <= have ? "it fits" : "it does NOT fit");
	}
}

/* A cache of fixed size, beside the full one that the same tokens would fill. */
static int tell_bounded(const engine *e, const shape *s, int32_t n_tokens) {
	const run_options *o = e->options;
	const char *at_most = s->window > 0 ? "at most " : "";
	int64_t reach = (int64_t)n_tokens + o->n_predict, cells = padded(o->ctx_budget);
	int64_t full_cells = padded(o->n_ctx ? o->n_ctx : reach);
	if (o->n_ctx && o->n_ctx < reach) {
		return fail("prompt and answer do not fit --ctx %d: give at least --ctx %lld", o->n_ctx, (long long)reach);
	}
	double model = model_bytes(o->model), full = cache_bytes(o, s, full_cells), own = cache_bytes(o, s, cells);
	double need = model + own + (o->compare ? full : 0.0);
	printf("%d tokens and up to %d of the answer; %lld layers, %lld KV heads of %lld, cache type %s\n", n_tokens,
	       o->n_predict, (long long)s->n_layers, (long long)s->n_kv_heads, (long long)s->dim_k, o->cache_type);
	printf("full cache        %s%10.1f MB  (%lld cells)\n", at_most, full / 1e6, (long long)full_cells);
	printf("bounded cache     %s%10.1f MB  (%lld cells: %d rows at most, however many tokens come)\n", at_most, own / 1e6,
	       (long long)cells, o->ctx_budget);
	printf("model             %10.1f MB\n", model / 1e6);
	printf("about %.1f MB are needed%s, besides llama.cpp's working space\n", need / 1e6,
	       o->compare ? " with both caches" : "");
	tell_memory(need);
	return 0;
}

static int tell(const engine *e, const shape *s, int32_t n_tokens) {
	const run_options *o = e->options;
	counts c;
	if (!count(e, n_tokens, &c)) {
		return EXIT_FAILED;
	}
	double model = model_bytes(o->model), full = cache_bytes(o, s, c.full_cells), kept = cache_bytes(o, s, c.kept_cells);
	double need = model + full + (o->compare ? kept : cache_bytes(o, s, c.keep));
	const char *at_most = s->window > 0 ? "at most " : "";
	tell_tokens(e, s, &c);
	printf("full cache        %s%10.1f MB  (%lld cells)\n", at_most, full / 1e6, (long long)c.full_cells);
	printf("compressed cache  %s%10.1f MB  (%lld cells: %d kept, %d for %sthe answer)\n", at_most, kept / 1e6,
	       (long long)c.kept_cells, c.keep, c.longest + o->n_predict, o->agnostic ? "question and " : "");
	printf("model             %10.1f MB\n", model / 1e6);
	printf("while reading the prompt about %.1f MB are needed, besides llama.cpp's working space\n", need / 1e6);
	tell_memory(need);
	if (strcmp(o->params.layers, "uniform") != 0 || strcmp(o->params.selector, "adaptive_head") == 0) {
		puts("(this policy keeps more in some layers or heads: the compressed cache is as long as the longest, up to the "
		     "full one)");
	}
	return 0;
}

static int tell_all(const engine *e, const shape *s, int32_t n_tokens) {
	int status = e->options->ctx_budget ? tell_bounded(e, s, n_tokens) : tell(e, s, n_tokens);
	if (status == 0 && s->window > 0) {
		printf("(sliding-window layers, window %lld, hold less than is counted here, and are not compressed)\n",
		       (long long)s->window);
	}
	return status;
}

int dry_run(const run_options *o) {
	engine e;
	shape s;
	ckv_error error;
	int status = EXIT_FAILED;
	memset(&e, 0, sizeof e);
	e.options = o;
	bool has_text = o->document || o->question;
	/* Without a text the length in question is the context's. */
	int32_t after = o->compare || o->ctx_budget ? o->n_predict : 0;
	if (!has_text && !o->n_ctx) {
		return fail("--dry-run needs a length: a document (-f), a question (-p) or --ctx N");
	}
	if ((has_text && !engine_read(&e)) || !engine_load(&e, true)) {
		engine_free(&e);
		return EXIT_FAILED;
	}
	if (ckv_llama_check_model(e.model, &error)) {
		fail("%s", error.message);
	} else if (!read_shape(e.model, &s)) {
		fail("the model's metadata do not tell the shape of its cache");
	} else if (!has_text && o->n_ctx <= after) {
		fail("--ctx %d leaves no room for a prompt beside %d tokens of the answer (-n)", o->n_ctx, after);
	} else if (!has_text || engine_prompt(&e)) {
		status = tell_all(&e, &s, has_text ? e.n_prompt : o->n_ctx - after);
	}
	engine_free(&e);
	return status == 0 && (fflush(stdout) || ferror(stdout)) ? fail("standard output could not be written") : status;
}
