/* chunkkv run --dry-run: sizes from the model's metadata, before any weight is loaded. */
#include "dry_run.h"

#include <ggml.h>

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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

static bool read_shape(const struct llama_model *model, cache_shape *s) {
	s->n_layers = meta(model, "block_count", 0);
	s->n_heads = meta(model, "attention.head_count", 0);
	s->n_embd = meta(model, "embedding_length", 0);
	s->n_kv_heads = meta(model, "attention.head_count_kv", s->n_heads);
	s->dim_k = meta(model, "attention.key_length", s->n_heads > 0 ? s->n_embd / s->n_heads : 0);
	s->dim_v = meta(model, "attention.value_length", s->dim_k);
	s->window = meta(model, "attention.sliding_window", 0);
	return s->n_layers > 0 && s->n_kv_heads > 0 && s->dim_k > 0 && s->dim_v > 0 && s->n_layers < 100000 &&
	       s->n_kv_heads < 100000 && s->n_layers * s->n_kv_heads < 10000000 && s->dim_k < 100000 && s->dim_v < 100000;
}

static double cache_bytes(const run_options *o, const cache_shape *s, int64_t cells) {
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

/* Whatever the budget. */
static bool keeps_all(const run_options *o) { return strcmp(o->params.selector, "all") == 0; }

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
	c->keep = c->keep < n_tokens && !keeps_all(o) ? c->keep : n_tokens;
	c->full_cells = padded(o->n_ctx ? o->n_ctx : needed);
	c->kept_cells = padded((int64_t)c->keep + c->longest + o->n_predict);
	return true;
}

static void tell_tokens(const engine *e, const cache_shape *s, const counts *c) {
	const run_options *o = e->options;
	printf("%d %stokens, of which %d are kept (%s); %lld layers, %lld KV heads of %lld, cache type %s\n", c->prompt,
	       o->agnostic ? "document " : "", c->keep, keeps_all(o) ? "all, by this policy" : o->keep, (long long)s->n_layers,
	       (long long)s->n_kv_heads, (long long)s->dim_k, o->cache_type);
	if (o->agnostic) {
		printf("compressed before the question; then%s",
		       e->n_questions > 1 ? ", one at a time, questions of" : " a question of");
		for (int32_t i = 0; i < e->n_questions; i++) {
			printf("%s %d", i ? "," : "", e->questions[i].n_tokens);
		}
		puts(" tokens");
	}
}

static const char *const known_as[] = {[KNOWN_EXACTLY] = "", [KNOWN_ABOUT] = "about", [KNOWN_AT_MOST] = "at most"};

static void tell_size(const char *what, certainty known, double bytes) {
	printf("%-18s%7s%10.2f MB", what, known_as[known], bytes / 1e6);
}

/* Of llama.cpp's own cache, whose sliding-window layers may hold less than is counted. */
static void tell_cells(const char *what, const engine *e, const cache_shape *s, int64_t cells) {
	tell_size(what, s->window > 0 ? KNOWN_AT_MOST : KNOWN_EXACTLY, cache_bytes(e->options, s, cells));
	printf("  (%lld cells", (long long)cells);
}

static void tell_model(const engine *e) {
	tell_size("model", KNOWN_EXACTLY, model_bytes(e->options->model));
	putchar('\n');
}

static void tell_memory(double need) {
	double have = (double)memory_available();
	if (have > 0) {
		tell_size("available memory", KNOWN_EXACTLY, have);
		printf(": %s\n", need <= have ? "it fits" : "it does NOT fit");
	}
}

/* As the run itself finds it. */
static bool fits_stream(const run_options *o, const cache_shape *s) {
	ckv_stream *probe;
	ckv_error error;
	const ckv_stream_shape shape = {(int32_t)s->n_kv_heads, (int32_t)s->dim_k, (int32_t)s->dim_v};
	if (s->window > 0) {
		fail("a cache of our own of fixed size does not go with sliding-window models; --cache own does");
		return false;
	}
	if (ckv_stream_create(&probe, &o->stream, o->ctx_budget, &shape, 1, NULL, &error)) {
		fail("--ctx-budget: %s", error.message);
		return false;
	}
	ckv_stream_free(probe);
	return true;
}

/* A row of a stream as f16 with its position, score and place, see chunkkv/stream.h. */
static double stream_bytes(const run_options *o, const cache_shape *s, int64_t reach) {
	int64_t rows = reach < o->ctx_budget ? reach : o->ctx_budget + 1;
	return (double)(s->n_layers * s->n_kv_heads) * (double)rows * (2.0 * (double)(s->dim_k + s->dim_v) + 16.0);
}

static int64_t stream_cells(const run_options *o) { return padded((int64_t)engine_piece(o->ctx_budget, o->n_ubatch) + 1); }

/* A cache of fixed size, beside the full one that the same tokens would fill. */
static int tell_bounded(const engine *e, const cache_shape *s, int32_t n_tokens) {
	const run_options *o = e->options;
	int64_t reach = (int64_t)n_tokens + o->n_predict, cells = padded(o->ctx_budget);
	int64_t full_cells = padded(o->n_ctx ? o->n_ctx : reach);
	if (o->n_ctx && o->n_ctx < reach) {
		return fail("prompt and answer do not fit --ctx %d: give at least --ctx %lld", o->n_ctx, (long long)reach);
	}
	bool hosted = policy_streams_hosted(o);
	if (hosted && !fits_stream(o, s)) {
		return EXIT_FAILED;
	}
	cells = hosted ? stream_cells(o) : cells;
	double own = hosted ? stream_bytes(o, s, reach) : 0.0;
	double need =
	    model_bytes(o->model) + own + cache_bytes(o, s, cells) + (o->compare ? cache_bytes(o, s, full_cells) : 0.0);
	printf("%d tokens and up to %d of the answer; %lld layers, %lld KV heads of %lld, cache type %s\n", n_tokens,
	       o->n_predict, (long long)s->n_layers, (long long)s->n_kv_heads, (long long)s->dim_k, o->cache_type);
	tell_cells("full cache", e, s, full_cells);
	puts(")");
	if (hosted) {
		tell_size("cache of our own", KNOWN_ABOUT, own);
		printf("  (%d rows at most in each head%s, however many tokens come)\n", o->ctx_budget,
		       strcmp(o->stream.layers, "uniform") != 0 ? " on average" : "");
	}
	tell_cells(hosted ? "llama.cpp's cells" : "bounded cache", e, s, cells);
	if (hosted) {
		puts(": for tokens in hand)");
	} else {
		printf(": %d rows at most, however many tokens come)\n", o->ctx_budget);
	}
	tell_model(e);
	printf("about %.1f MB are needed%s, besides llama.cpp's working space\n", need / 1e6,
	       o->compare ? " with both caches" : "");
	tell_memory(need);
	return 0;
}

/* Cells that llama.cpp has beside a cache of ours: for tokens in hand, and a window's layers. */
static int64_t cells_beside(const cache_shape *s) {
	enum { UBATCH = 64 };
	return padded(s->window > 0 ? s->window + UBATCH : 1);
}

static void tell_own(const engine *e, const cache_shape *s, const counts *c, const hosted_size *own) {
	const run_options *o = e->options;
	int64_t heads = s->n_layers * s->n_kv_heads;
	double more = 2.0 * (double)(c->longest + o->n_predict) * (double)heads * (double)(s->dim_k + s->dim_v);
	tell_size("cache of our own", own->known, (double)own->info.bytes_allocated);
	printf("  (%lld rows in each head%s", (long long)(own->info.rows / heads), own->uneven ? " on average" : "");
	printf(", %s; %s %.2f MB as f16)\n", strcmp(o->params.codec.kind, "none") == 0 ? "f16" : o->params.codec.preset,
	       o->agnostic ? "question and answer add" : "the answer adds", more / 1e6);
	tell_cells("llama.cpp's cells", e, s, cells_beside(s));
	puts(", for tokens in hand)");
}

static void tell_compressed(const engine *e, const cache_shape *s, const counts *c) {
	tell_cells("compressed cache", e, s, c->kept_cells);
	printf(": %d kept, %d for %sthe answer)\n", c->keep, c->longest + e->options->n_predict,
	       e->options->agnostic ? "question and " : "");
}

/* Why a size is not known better, or what llama.cpp's cache has to be. */
static void tell_doubt(const run_options *o, const hosted_size *own) {
	if (own->uneven && !own->hosted) {
		puts("(this policy keeps more in some layers or heads: the compressed cache is as long as the longest, up to the "
		     "full one)");
	}
	if (own->hosted && own->known == KNOWN_ABOUT) {
		puts("(about: what each layer and head gets of the budget is known when the prompt has been read; their mean is "
		     "counted)");
	}
	if (own->hosted && strcmp(o->params.codec.kind, "palu") == 0 && o->params.codec.rank == 0) {
		puts("(at most: how many dimensions hold `energy` is known when the prompt has been read; rank=N fixes them)");
	}
}

/* What is there at once: the full cache, and what becomes of it; with --compare also where it is answered from. */
static double most_bytes(const engine *e, const cache_shape *s, const counts *c, const hosted_size *own) {
	const run_options *o = e->options;
	double held = own->hosted ? (double)own->info.bytes_allocated : cache_bytes(o, s, c->keep);
	double used = own->hosted ? 2 * held + cache_bytes(o, s, cells_beside(s)) : cache_bytes(o, s, c->kept_cells);
	return model_bytes(o->model) + cache_bytes(o, s, c->full_cells) + (o->compare ? used : held);
}

static int tell(const engine *e, const cache_shape *s, int32_t n_tokens) {
	const run_options *o = e->options;
	counts c;
	hosted_size own;
	if (!count(e, n_tokens, &c) || !dry_run_hosted(o, s, n_tokens, c.keep, &own)) {
		return EXIT_FAILED;
	}
	tell_tokens(e, s, &c);
	tell_cells("full cache", e, s, c.full_cells);
	puts(")");
	if (own.hosted) {
		tell_own(e, s, &c, &own);
	} else {
		tell_compressed(e, s, &c);
	}
	double need = most_bytes(e, s, &c, &own);
	tell_model(e);
	printf("while reading the prompt about %.1f MB are needed, besides llama.cpp's working space\n", need / 1e6);
	tell_memory(need);
	tell_doubt(o, &own);
	return 0;
}

static int tell_all(const engine *e, const cache_shape *s, int32_t n_tokens) {
	int status = e->options->ctx_budget ? tell_bounded(e, s, n_tokens) : tell(e, s, n_tokens);
	if (status == 0 && s->window > 0) {
		printf("(sliding-window layers, window %lld, hold less than is counted here, and are not compressed)\n",
		       (long long)s->window);
	}
	return status;
}

int dry_run(const run_options *o) {
	engine e;
	cache_shape s;
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
