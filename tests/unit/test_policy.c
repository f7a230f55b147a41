/* Policy texts: what parses, what is refused and how helpfully, and that a formatted policy reads back the same. */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- helpers */

static bool same_params(const ckv_params *a, const ckv_params *b) {
	return strcmp(a->preset, b->preset) == 0 && strcmp(a->scorer, b->scorer) == 0 && strcmp(a->selector, b->selector) == 0 &&
	       strcmp(a->chunker, b->chunker) == 0 && strcmp(a->layers, b->layers) == 0 && a->window == b->window &&
	       a->kernel == b->kernel && a->chunk == b->chunk && a->sinks == b->sinks && a->reference == b->reference &&
	       a->max_chunk == b->max_chunk && a->entropy_keep == b->entropy_keep && a->reuse == b->reuse &&
	       a->future == b->future && a->lag == b->lag && a->seed == b->seed &&
	       memcmp(&a->safeguard, &b->safeguard, sizeof a->safeguard) == 0 &&
	       memcmp(&a->beta, &b->beta, sizeof a->beta) == 0 && memcmp(&a->share, &b->share, sizeof a->share) == 0;
}

static ckv_params parsed(const char *text) {
	ckv_params params;
	ckv_error error;
	CHECK(ckv_policy_parse(text, &params, &error) == CKV_OK, "%s: %s", text, error.message);
	CHECK(error.status == CKV_OK && error.message[0] == '\0', "%s: '%s' after success", text, error.message);
	CHECK(params.size == sizeof params, "%s", text);
	return params;
}

/* Refused as a policy, with a one-line reason, and the caller's parameters as they were. */
static ckv_error refused(const char *text) {
	ckv_params params;
	ckv_error error;
	paint(&params, sizeof params);
	paint(&error, sizeof error);
	ckv_status status = ckv_policy_parse(text, &params, &error);
	CHECK(status == CKV_ERR_POLICY, "'%s': %s", text, ckv_strerror(status));
	CHECK(is_painted(&params, sizeof params), "'%s' changed the parameters", text);
	CHECK(error.status == status, "'%s'", text);
	CHECK(error.message[0] && memchr(error.message, 0, sizeof error.message), "'%s'", text);
	return error;
}

/* The message must hold `word` in quotes: it names what is nearest. */
static void refused_naming(const char *text, const char *word) {
	char quoted[64];
	ckv_error error = refused(text);
	snprintf(quoted, sizeof quoted, "'%s'", word);
	CHECK(strstr(error.message, quoted), "'%s': %s", text, error.message);
}

static bool in_list(const char *list, const char *word) {
	size_t n = strlen(word);
	for (const char *at = list; *at; at += strcspn(at, ","), at += *at == ',') {
		if (strcspn(at, ",") == n && strncmp(at, word, n) == 0) {
			return true;
		}
	}
	return false;
}

/* The listing's entry of that name, or NULL. */
static const ckv_method_info *listed(const ckv_method_info *(*list)(size_t), const char *name) {
	for (size_t i = 0; list(i); i++) {
		if (strcmp(list(i)->name, name) == 0) {
			return list(i);
		}
	}
	return NULL;
}

/* Each number, where it is kept, and a policy that reads it and has room for its largest value. */
typedef struct number {
	const char *key;
	size_t offset;
	bool real;
	const char *policy;
} number;

#define INT_AT(key, policy)                                                                                                 \
	{ #key, offsetof(ckv_params, key), false, policy }
#define REAL_AT(key, policy)                                                                                                \
	{ #key, offsetof(ckv_params, key), true, policy }

static const number numbers[] = {
    INT_AT(window, "chunkkv:"),
    INT_AT(kernel, "chunkkv:"),
    INT_AT(chunk, "chunkkv:"),
    INT_AT(sinks, "chunkkv:"),
    INT_AT(max_chunk, "chunkkv:chunker=line,"),
    INT_AT(entropy_keep, "egchunkkv:chunk=65536,"),
    INT_AT(reuse, "chunkkv:"),
    INT_AT(future, "expected-attention:"),
    INT_AT(lag, "lagkv:"),
    INT_AT(seed, "random:"),
    REAL_AT(safeguard, "adakv:"),
    REAL_AT(beta, "pyramidkv:"),
    REAL_AT(share, "squeezeattention:"),
};
enum { N_NUMBERS = sizeof numbers / sizeof *numbers };

static double get_number(const ckv_params *params, const number *n) {
	int32_t whole;
	double value;
	const char *at = (const char *)params + n->offset;
	memcpy(&whole, at, sizeof whole);
	memcpy(&value, at, n->real ? sizeof value : 0);
	return n->real ? value : whole;
}

static void set_number(ckv_params *params, const number *n, double value) {
	int32_t whole = n->real ? 0 : (int32_t)value;
	memcpy((char *)params + n->offset, n->real ? (const void *)&value : (const void *)&whole,
	       n->real ? sizeof value : sizeof whole);
}

static const ckv_param_info *info_of(const char *key) {
	for (size_t i = 0; ckv_param_info_at(i); i++) {
		if (strcmp(ckv_param_info_at(i)->key, key) == 0) {
			return ckv_param_info_at(i);
		}
	}
	check_failed(__FILE__, __LINE__, "a key that there is", "%s", key);
}

static const char *random_name(rng *r, const ckv_method_info *(*list)(size_t)) {
	int32_t n = 0;
	while (list((size_t)n)) {
		n++;
	}
	return list((size_t)rng_range(r, 0, n - 1))->name;
}

/* In its range, near its lower end as often as anywhere; thousandths of reals. */
static double random_number(rng *r, const number *n) {
	const ckv_param_info *info = info_of(n->key);
	double scale = n->real ? 1000.0 : 1.0, low = info->minimum * scale, high = info->maximum * scale;
	low = strcmp(n->key, "window") == 0 ? 1.0 : low; /* some scorers need one */
	int32_t value = rng_range(r, (int32_t)low, rng_chance(r, 2) && high > low + 30.0 ? (int32_t)low + 30 : (int32_t)high);
	return (strcmp(n->key, "kernel") == 0 ? value | 1 : value) / scale;
}

/* Random valid values for what the policy reads; the rest stays as the preset has it. */
static ckv_params random_params(rng *r, const ckv_params *preset) {
	ckv_params p = *preset;
	p.scorer = rng_chance(r, 2) ? random_name(r, ckv_scorer_info) : p.scorer;
	bool scored = strcmp(p.scorer, "none") != 0;
	p.selector = scored && rng_chance(r, 2) ? random_name(r, ckv_selector_info) : p.selector;
	p.layers = scored && rng_chance(r, 2) ? random_name(r, ckv_layer_rule_info) : p.layers;
	p.chunker = ckv_params_use(&p, "chunker") && rng_chance(r, 2) ? random_name(r, ckv_chunker_info) : p.chunker;
	for (size_t i = 0; i < N_NUMBERS; i++) {
		bool needed = strcmp(numbers[i].key, "window") == 0 && p.window < 1;
		if (ckv_params_use(&p, numbers[i].key) && (needed || !rng_chance(r, 3))) {
			set_number(&p, &numbers[i], random_number(r, &numbers[i]));
		}
	}
	if (ckv_params_use(&p, "entropy_keep")) {
		int32_t *longest = strcmp(p.chunker, "fixed") == 0 ? &p.chunk : &p.max_chunk;
		*longest = *longest > 1 ? *longest : 2;
		p.entropy_keep = p.entropy_keep < *longest ? p.entropy_keep : *longest - 1;
	}
	p.reference = ckv_params_use(&p, "mode") ? rng_range(r, 0, 1) : p.reference;
	return p;
}

/* ------------------------------------------------------------------ tests */

typedef struct documented {
	const char *preset, *scorer, *selector;
	int32_t window, sinks, reuse;
	const char *layers;
	uint32_t needs;
	int32_t n_queries;
} documented;

/* Section 0 of the algorithms, in its order. */
static const documented presets[] = {
    {"full", "none", "all", 0, 0, 1, "uniform", 0, 0},
    {"chunkkv", "snapkv", "chunk", 16, 4, 1, "uniform", CKV_NEED_QUERIES, 16},
    {"chunkkv-reuse", "snapkv", "chunk", 16, 4, 2, "uniform", CKV_NEED_QUERIES, 16},
    {"egchunkkv", "snapkv", "entropy_gate", 16, 4, 1, "uniform", CKV_NEED_QUERIES, 16},
    {"snapkv", "snapkv", "topk", 16, 4, 1, "uniform", CKV_NEED_QUERIES, 16},
    {"h2o", "h2o", "topk", 16, 4, 1, "uniform", CKV_NEED_MASS, 0},
    {"tova", "tova", "topk", 0, 4, 1, "uniform", CKV_NEED_QUERIES, 1},
    {"streamingllm", "streaming", "topk", 0, 4, 1, "uniform", 0, 0},
    {"pyramidkv", "snapkv", "topk", 16, 4, 1, "pyramid", CKV_NEED_QUERIES, 16},
    {"squeezeattention", "snapkv", "topk", 16, 4, 1, "squeeze", CKV_NEED_QUERIES | CKV_NEED_SIMILARITY, 16},
    {"l2norm", "knorm", "topk", 16, 4, 1, "uniform", 0, 0},
    {"expected-attention", "expected_attention", "topk", 0, 4, 1, "uniform", CKV_NEED_VALUES | CKV_NEED_MOMENTS, 0},
    {"keydiff", "keydiff", "topk", 16, 4, 1, "uniform", 0, 0},
    {"lagkv", "lagkv", "topk", 16, 4, 1, "uniform", CKV_NEED_VALUES, 0},
    {"adakv", "snapkv", "adaptive_head", 16, 4, 1, "uniform", CKV_NEED_QUERIES, 16},
    {"hybrid", "snapkv", "hybrid", 16, 4, 1, "uniform", CKV_NEED_QUERIES, 16},
    {"random", "random", "topk", 16, 4, 1, "uniform", 0, 0},
    {"kivi2", "none", "all", 0, 0, 1, "uniform", 0, 0},
    {"kivi4", "none", "all", 0, 0, 1, "uniform", 0, 0},
    {"kivi8", "none", "all", 0, 0, 1, "uniform", 0, 0},
    {"palu", "none", "all", 0, 0, 1, "uniform", 0, 0},
};
enum { N_PRESETS = sizeof presets / sizeof *presets };

static void there_are_these_presets_in_this_order(void **state) {
	(void)state;
	for (size_t i = 0; i < N_PRESETS; i++) {
		assert_non_null(ckv_preset_info(i));
		assert_string_equal(ckv_preset_info(i)->name, presets[i].preset);
	}
	assert_int_equal(N_PRESETS, 21);
	assert_null(ckv_preset_info(N_PRESETS));
}

static void presets_have_the_documented_defaults(void **state) {
	(void)state;
	for (size_t i = 0; i < N_PRESETS; i++) {
		const documented *d = &presets[i];
		ckv_params p = parsed(d->preset);
		CHECK(strcmp(p.preset, d->preset) == 0 && strcmp(p.scorer, d->scorer) == 0 && strcmp(p.selector, d->selector) == 0 &&
		          strcmp(p.layers, d->layers) == 0 && strcmp(p.chunker, "fixed") == 0,
		      "%s is %s, %s, %s, %s", d->preset, p.scorer, p.selector, p.layers, p.chunker);
		CHECK(p.window == d->window && p.sinks == d->sinks && p.reuse == d->reuse, "%s has window %d, sinks %d, reuse %d",
		      d->preset, p.window, p.sinks, p.reuse);
		assert_int_equal(p.kernel, 5);
		assert_int_equal(p.chunk, 10);
		assert_int_equal(p.entropy_keep, 4);
		assert_int_equal(p.reference, 0);
		assert_int_equal(p.future, 512);
		assert_int_equal(p.lag, 128);
		assert_int_equal(p.seed, 0);
		assert_true(p.safeguard == 0.2 && p.beta == 20.0 && p.share == 0.35);
	}
}

static void chunkkv_is_the_default(void **state) {
	(void)state;
	ckv_params chunkkv = parsed("chunkkv"), params;
	paint(&params, sizeof params);
	ckv_params_default(&params);
	assert_true(same_params(&params, &chunkkv));
	assert_int_equal(params.size, sizeof params);
	ckv_params_default(NULL);
}

static void every_preset_parses_and_formats_as_its_name(void **state) {
	(void)state;
	for (size_t i = 0; ckv_preset_info(i); i++) {
		const char *name = ckv_preset_info(i)->name;
		char text[128];
		ckv_params params = parsed(name);
		assert_string_equal(params.preset, name);
		assert_int_equal(ckv_policy_format(&params, text, sizeof text), strlen(name));
		assert_string_equal(text, name);
	}
}

static void values_given_are_values_read(void **state) {
	(void)state;
	ckv_params p = parsed("chunkkv:chunk=7,window=33,kernel=9,sinks=0,mode=reference");
	assert_int_equal(p.chunk, 7);
	assert_int_equal(p.window, 33);
	assert_int_equal(p.kernel, 9);
	assert_int_equal(p.sinks, 0);
	assert_int_equal(p.reference, 1);
	p = parsed("chunkkv:mode=exact,selector=topk");
	assert_int_equal(p.reference, 0);
	assert_string_equal(p.selector, "topk");
	assert_string_equal(p.scorer, "snapkv");
	p = parsed("full:selector=chunk,scorer=snapkv,window=5");
	assert_string_equal(p.selector, "chunk");
	assert_int_equal(p.window, 5);
	p = parsed("snapkv:window=00016");
	assert_int_equal(p.window, 16);
	p = parsed("adakv:safeguard=0.35,layers=pyramid,beta=12.5,reuse=3");
	assert_true(p.safeguard == 0.35 && p.beta == 12.5);
	assert_string_equal(p.layers, "pyramid");
	assert_int_equal(p.reuse, 3);
	p = parsed("squeezeattention:share=1,scorer=lagkv,lag=7");
	assert_true(p.share == 1.0);
	assert_string_equal(p.scorer, "lagkv");
	assert_int_equal(p.lag, 7);
	p = parsed("egchunkkv:chunker=paragraph,max_chunk=30,entropy_keep=29,scorer=random,seed=2147483647");
	assert_string_equal(p.chunker, "paragraph");
	assert_int_equal(p.max_chunk, 30);
	assert_int_equal(p.entropy_keep, 29);
	assert_int_equal(p.seed, INT32_MAX);
}

static void formatted_policies_read_back_the_same(void **state) {
	rng r = {1};
	(void)state;
	for (size_t i = 0; ckv_preset_info(i); i++) {
		ckv_params preset = parsed(ckv_preset_info(i)->name);
		for (int n = 0; n < 1000 && !ckv_params_hosted(&preset); n++) { /* else: test_codec_policy.c */
			char text[512];
			ckv_params params = random_params(&r, &preset);
			assert_true(ckv_policy_format(&params, text, sizeof text) < sizeof text);
			ckv_params again = parsed(text);
			CHECK(same_params(&params, &again), "%s", text);
		}
	}
}

/* Also where it has many digits. */
static void a_real_number_reads_back_the_same(void **state) {
	static const char *const policies[] = {
	    "adakv:safeguard=0.123456789",
	    "adakv:safeguard=0.123456789012",
	    "adakv:safeguard=0.000000000001",
	    "pyramidkv:beta=123.456789012345",
	    "pyramidkv:beta=1000",
	    "squeezeattention:share=0.333333333333333",
	    "adakv:safeguard=0.1",
	    "adakv:safeguard=0.0",
	};
	(void)state;
	for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
		char text[128];
		ckv_params p = parsed(policies[i]), q;
		ckv_policy_format(&p, text, sizeof text);
		q = parsed(text);
		CHECK(same_params(&p, &q), "%s became %s", policies[i], text);
	}
}

static void only_what_differs_from_the_preset_is_written(void **state) {
	(void)state;
	char text[128];
	ckv_params p = parsed("chunkkv:sinks=4,chunk=12,window=16,mode=reference");
	ckv_policy_format(&p, text, sizeof text);
	assert_string_equal(text, "chunkkv:chunk=12,mode=reference");
	p = parsed("chunkkv:selector=topk");
	ckv_policy_format(&p, text, sizeof text);
	assert_string_equal(text, "chunkkv:selector=topk");
	p = parsed("adakv:safeguard=0.20,reuse=1,layers=pyramid,beta=7.50");
	ckv_policy_format(&p, text, sizeof text);
	assert_string_equal(text, "adakv:layers=pyramid,beta=7.5");
}

static void format_cuts_like_snprintf(void **state) {
	(void)state;
	char whole[128], cut[128];
	ckv_params p = parsed("chunkkv:window=32,chunk=20,sinks=1,mode=reference");
	size_t length = ckv_policy_format(&p, whole, sizeof whole);
	assert_int_equal(length, strlen(whole));
	assert_int_equal(ckv_policy_format(&p, NULL, 0), length);
	for (size_t capacity = 0; capacity < length + 3; capacity++) {
		paint(cut, sizeof cut);
		assert_int_equal(ckv_policy_format(&p, cut, capacity), length);
		size_t kept = capacity == 0 ? 0 : capacity - 1 < length ? capacity - 1 : length;
		size_t written = capacity == 0 ? 0 : kept + 1;
		CHECK(memcmp(cut, whole, kept) == 0 && (capacity == 0 || cut[kept] == '\0'), "capacity %zu", capacity);
		CHECK(is_painted(cut + written, sizeof cut - written), "capacity %zu", capacity);
	}
}

static void format_of_no_policy_is_empty(void **state) {
	(void)state;
	char text[16] = "before";
	ckv_params p;
	ckv_params_default(&p);
	p.preset = NULL;
	assert_int_equal(ckv_policy_format(&p, text, sizeof text), 0);
	assert_string_equal(text, "");
	assert_int_equal(ckv_policy_format(NULL, text, sizeof text), 0);
}

/* Parameters of the caller's own making are told from the default preset, in words that parse back. */
static void format_of_ones_own_parameters_parses_back(void **state) {
	(void)state;
	char text[64];
	ckv_params p, back;
	ckv_params_default(&p);
	p.preset = "mine";
	p.selector = "topk";
	p.chunk = 77; /* which topk does not read */
	p.window = 8;
	ckv_policy_format(&p, text, sizeof text);
	assert_string_equal(text, "chunkkv:selector=topk,window=8");
	assert_int_equal(ckv_policy_parse(text, &back, NULL), CKV_OK);
	assert_string_equal(back.selector, "topk");
	assert_int_equal(back.window, 8);
}

/* A name of the caller's own is no reason to read beyond a buffer. */
static void format_survives_a_name_of_any_length(void **state) {
	(void)state;
	char name[201], expected[256], text[512];
	memset(name, 'x', sizeof name - 1);
	name[sizeof name - 1] = '\0';
	snprintf(expected, sizeof expected, "chunkkv:scorer=%s", name);
	ckv_params p;
	ckv_params_default(&p);
	p.scorer = name;
	size_t length = ckv_policy_format(&p, text, sizeof text);
	assert_true(length == 0 || strcmp(text, expected) == 0);
	assert_int_equal(length, strlen(text));
}

static void unknown_presets_name_the_nearest(void **state) {
	(void)state;
	refused_naming("chunkvk", "chunkkv");
	refused_naming("Chunkkv", "chunkkv");
	refused_naming("snapvk:window=3", "snapkv");
	refused_naming("SNAPKV", "snapkv");
	refused_naming("ful", "full");
	refused_naming("fulll", "full");
	refused_naming(" snapkv", "snapkv");
	refused_naming("snapkv ", "snapkv");
	refused_naming("expected_attention", "expected-attention");
	refused_naming("streamingLLM", "streamingllm");
	refused_naming("pyramid", "pyramidkv");
	refused_naming("chunkkv_reuse", "chunkkv-reuse");
	refused_naming("H2O:window=3", "h2o");
	refused("");
	refused(":window=3");
	refused("=");
	refused("a-name-that-is-much-longer-than-any-preset-of-this-library-will-ever-be-called");
}

static void unknown_keys_name_the_nearest(void **state) {
	(void)state;
	refused_naming("chunkkv:chnk=5", "chunk");
	refused_naming("chunkkv:windows=5", "window");
	refused_naming("chunkkv:Kernel=5", "kernel");
	refused_naming("chunkkv:sink=5", "sinks");
	refused_naming("chunkkv:selectr=topk", "selector");
	refused_naming("chunkkv:score=snapkv", "scorer");
	refused_naming("chunkkv:mod=exact", "mode");
	refused_naming("chunkkv:window=5,chunks=6", "chunk");
	refused_naming("chunkkv: window=5", "window");
	refused_naming("chunkkv:window =5", "window");
	refused_naming("egchunkkv:entropykeep=3", "entropy_keep");
	refused_naming("adakv:safegard=0.5", "safeguard");
	refused_naming("pyramidkv:betta=3", "beta");
	refused_naming("chunkkv:max-chunk=3", "max_chunk");
	refused_naming("random:sead=3", "seed");
	refused("chunkkv:=5");
	refused("chunkkv:reference=1");
}

static void unknown_values_name_the_nearest(void **state) {
	(void)state;
	refused_naming("chunkkv:scorer=snapkw", "snapkv");
	refused_naming("chunkkv:scorer=nothing", "none");
	refused_naming("chunkkv:selector=top", "topk");
	refused_naming("chunkkv:selector=chunks", "chunk");
	refused_naming("chunkkv:selector=al", "all");
	refused_naming("chunkkv:mode=exakt", "exact");
	refused_naming("chunkkv:mode=refrence", "reference");
	refused_naming("chunkkv:scorer=expected-attention", "expected_attention");
	refused_naming("chunkkv:scorer=keynorm", "key_norm");
	refused_naming("chunkkv:selector=entropygate", "entropy_gate");
	refused_naming("chunkkv:selector=adaptive_heads", "adaptive_head");
	refused_naming("chunkkv:chunker=lines", "line");
	refused_naming("chunkkv:chunker=Fixed", "fixed");
	refused_naming("chunkkv:chunker=paragraf", "paragraph");
	refused_naming("chunkkv:layers=pyramidkv", "pyramid");
	refused_naming("chunkkv:layers=sqeeze", "squeeze");
	refused("chunkkv:chunker=");
	refused("chunkkv:layers=");
	refused("chunkkv:mode=");
	refused("chunkkv:mode=1");
	refused("chunkkv:scorer=");
	refused("chunkkv:selector=");
}

static void a_key_the_policy_does_not_read_is_refused(void **state) {
	(void)state;
	refused_naming("snapkv:chunk=5", "chunk");
	refused_naming("snapkv:chunk=10", "chunk");
	refused_naming("full:window=3", "window");
	refused_naming("full:kernel=5", "kernel");
	refused_naming("full:sinks=0", "sinks");
	refused_naming("full:mode=exact", "mode");
	refused_naming("chunkkv:chunk=5,selector=topk", "chunk");
	parsed("snapkv:chunk=5,selector=chunk");
	refused_naming("snapkv:chunker=line", "chunker");
	refused_naming("snapkv:safeguard=0.5", "safeguard");
	refused_naming("chunkkv:entropy_keep=3", "entropy_keep");
	refused_naming("chunkkv:max_chunk=30", "max_chunk"); /* chunks of fixed length have no other */
	refused_naming("chunkkv:chunker=line,chunk=5", "chunk");
	refused_naming("chunkkv:beta=3", "beta");
	refused_naming("pyramidkv:share=0.5", "share");
	refused_naming("h2o:kernel=3", "kernel");
	refused_naming("chunkkv:seed=1", "seed");
	refused_naming("keydiff:lag=1", "lag");
	refused_naming("tova:future=1", "future");
	refused_naming("full:layers=uniform", "layers");
	refused_naming("full:reuse=1", "reuse");
	refused_naming("chunkkv:selector=all,sinks=1", "sinks");
	parsed("chunkkv:selector=all,window=3"); /* which the scorer observes */
	parsed("h2o:window=3");                  /* which is protected */
}

/* ckv_params_use is what the parser goes by. */
static void keys_that_are_used_are_those_that_are_accepted(void **state) {
	(void)state;
	for (size_t i = 0; ckv_preset_info(i); i++) {
		ckv_params p = parsed(ckv_preset_info(i)->name), q;
		for (size_t k = 0; ckv_param_info_at(k) && !ckv_params_hosted(&p); k++) { /* else: test_codec_policy.c */
			char value[64], text[192];
			const char *key = ckv_param_info_at(k)->key;
			assert_true(ckv_params_value(&p, key, value, sizeof value) < sizeof value);
			snprintf(text, sizeof text, "%s:%s=%s", p.preset, key, value);
			bool accepted = ckv_policy_parse(text, &q, NULL) == CKV_OK;
			CHECK(accepted == (ckv_params_use(&p, key) != 0), "%s", text);
			CHECK(!accepted || same_params(&p, &q), "%s", text);
		}
		assert_int_equal(ckv_params_use(&p, "nothing"), 0);
		assert_int_equal(ckv_params_use(&p, ""), 0);
		assert_int_equal(ckv_params_use(&p, "window,kernel"), 0);
		assert_int_equal(ckv_params_use(&p, NULL), 0);
	}
	assert_int_equal(ckv_params_use(NULL, "window"), 0);
}

static void values_are_told_as_the_text_has_them(void **state) {
	static const char *const expected[][2] = {
	    {"scorer", "snapkv"},   {"selector", "adaptive_head"}, {"window", "16"}, {"mode", "reference"}, {"chunker", "fixed"},
	    {"safeguard", "0.125"}, {"layers", "pyramid"},         {"beta", "20"},   {"share", "0.35"},     {"seed", "0"},
	};
	char value[32];
	(void)state;
	ckv_params p = parsed("adakv:safeguard=0.125,layers=pyramid,mode=reference");
	for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
		assert_int_equal(ckv_params_value(&p, expected[i][0], value, sizeof value), strlen(expected[i][1]));
		assert_string_equal(value, expected[i][1]);
	}
	assert_int_equal(ckv_params_value(&p, "selector", value, 6), 13);
	assert_string_equal(value, "adapt");
	assert_int_equal(ckv_params_value(&p, "selector", NULL, 0), 13);
	assert_int_equal(ckv_params_value(&p, "nothing", value, sizeof value), 0);
	assert_string_equal(value, "");
	assert_int_equal(ckv_params_value(&p, NULL, value, sizeof value), 0);
	assert_int_equal(ckv_params_value(NULL, "window", value, sizeof value), 0);
}

/* A value of a number in a text that reads it. */
static const char *text_with(const number *n, double value) {
	static char text[96];
	snprintf(text, sizeof text, "%s%s=%.10g", n->policy, n->key, value);
	return text;
}

static void numbers_are_accepted_exactly_within_their_range(void **state) {
	(void)state;
	for (size_t i = 0; i < N_NUMBERS; i++) {
		const number *n = &numbers[i];
		const ckv_param_info *info = info_of(n->key);
		/* The scorer needs a window, so that 0 is out of its reach for another reason. */
		double low = strcmp(n->key, "window") == 0 ? 1.0 : info->minimum, step = n->real ? 0.001 : 1.0;
		ckv_params p = parsed(text_with(n, low));
		CHECK(get_number(&p, n) == low, "%s", text_with(n, low));
		p = parsed(text_with(n, info->maximum));
		CHECK(get_number(&p, n) == info->maximum, "%s", text_with(n, info->maximum));
		refused(text_with(n, info->minimum - step));
		refused(text_with(n, info->maximum + step));
	}
}

/* No number is left out above. */
static void every_key_is_a_number_or_a_name(void **state) {
	(void)state;
	for (size_t i = 0; ckv_param_info_at(i); i++) {
		const ckv_param_info *info = ckv_param_info_at(i);
		bool is_number = false;
		for (size_t n = 0; n < N_NUMBERS; n++) {
			is_number = is_number || strcmp(numbers[n].key, info->key) == 0;
		}
		CHECK(is_number == (info->maximum > 0.0), "%s: %g to %g", info->key, info->minimum, info->maximum);
		CHECK(is_number || in_list("scorer,selector,mode,chunker,layers", info->key), "%s", info->key);
	}
}

/* A bad value is answered with its key, itself, and what would do. */
static void bad_values_are_named_with_their_range(void **state) {
	static const char *const bad[][3] = {
	    {"chunkkv:chunk=0", "chunk=0", "1 to 65536"},
	    {"chunkkv:chunk=65537", "chunk=65537", "1 to 65536"},
	    {"chunkkv:window=0", "window=0", "1 to 65536"},
	    {"chunkkv:window=-1", "window=-1", "0 to 65536"},
	    {"chunkkv:kernel=4", "kernel=4", "odd"},
	    {"chunkkv:kernel=257", "kernel=257", "1 to 255"},
	    {"chunkkv:sinks=-1", "sinks=-1", "0 to 65536"},
	    {"chunkkv:chunker=line,max_chunk=0", "max_chunk=0", "1 to 65536"},
	    {"egchunkkv:entropy_keep=0", "entropy_keep=0", "1 to 65535"},
	    {"egchunkkv:entropy_keep=10", "entropy_keep=10", "1 to 9"},
	    {"egchunkkv:chunk=3", "entropy_keep=4", "1 to 2"},
	    {"chunkkv:reuse=0", "reuse=0", "1 to 1024"},
	    {"expected-attention:future=0", "future=0", "1 to 65536"},
	    {"lagkv:lag=0", "lag=0", "1 to 65536"},
	    {"random:seed=-1", "seed=-1", "0 to 2147483647"},
	    {"adakv:safeguard=1.25", "safeguard=1.25", "0 to 1"},
	    {"pyramidkv:beta=0.5", "beta=0.5", "1 to 1000"},
	    {"squeezeattention:share=0", "share=0", "0.01 to 1"},
	};
	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		ckv_error error = refused(bad[i][0]);
		CHECK(strstr(error.message, bad[i][1]) && strstr(error.message, bad[i][2]), "%s: %s", bad[i][0], error.message);
	}
}

static void malformed_real_numbers_are_refused(void **state) {
	static const char *const bad[] = {"",    "-0.1", ".5",  "0.5.1", "0.2 ", " 0.2", "nan", "inf",
	                                  "0x1", "1/2",  "20%", "1e-1",  "+0.5", "-",    "x",   "0.5x"};
	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		char text[64];
		snprintf(text, sizeof text, "adakv:safeguard=%s", bad[i]);
		ckv_error error = refused(text);
		CHECK(strstr(error.message, "safeguard"), "%s: %s", text, error.message);
	}
}

static void malformed_numbers_are_refused(void **state) {
	static const char *const bad[] = {
	    "",
	    "-1",
	    "65537",
	    "99999999999999999999",
	    "-99999999999999999999",
	    "4294967312",
	    " 16",
	    "16 ",
	    "1 6",
	    "3x",
	    "x3",
	    "0x10",
	    "1.0",
	    "1e1",
	    "--1",
	    "-",
	    "+",
	    "\t16",
	    "\n1",
	    "16=",
	    "1=6",
	    "18446744073709551632",
	    "nan",
	    "inf",
	    "'1'",
	    "1;2",
	    ":",
	};
	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		char text[64];
		snprintf(text, sizeof text, "chunkkv:window=%s", bad[i]);
		refused(text);
		snprintf(text, sizeof text, "chunkkv:sinks=%s,chunk=2", bad[i]); /* 0 would do here */
		refused(text);
	}
}

/* Also when the text that it quotes is not. */
static void messages_stay_on_one_line(void **state) {
	static const char *const bad[] = {"chunk\nkv", "chunkkv:win\ndow=1", "chunkkv:window=1\n6", "chunkkv:mode=\r\n",
	                                  "chunkkv:\n"};
	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		ckv_error error = refused(bad[i]);
		CHECK(!strpbrk(error.message, "\n\r"), "%s", error.message);
	}
}

static void malformed_pairs_are_refused(void **state) {
	(void)state;
	refused("chunkkv:");
	refused("chunkkv:,");
	refused("chunkkv:window=16,");
	refused("chunkkv:,window=16");
	refused("chunkkv:window=16,,chunk=5");
	refused("chunkkv:window");
	refused("chunkkv:window:16");
	refused("chunkkv;window=16");
	refused("chunkkv,window=16");
	refused("chunkkv::window=16");
}

static void a_key_given_twice_is_refused(void **state) {
	(void)state;
	refused_naming("chunkkv:window=16,window=16", "window");
	refused_naming("chunkkv:window=16,chunk=5,window=17", "window");
	refused_naming("chunkkv:mode=exact,mode=exact", "mode");
	refused_naming("chunkkv:selector=topk,selector=chunk", "selector");
}

static void combinations_without_sense_are_refused(void **state) {
	(void)state;
	refused("snapkv:window=0");
	refused("chunkkv:window=0");
	refused("full:scorer=snapkv"); /* full's window is 0 */
	refused("snapkv:kernel=4");
	refused("snapkv:kernel=254");
	refused("full:selector=topk");
	refused("snapkv:scorer=none");
	parsed("full:scorer=none");
	parsed("full:scorer=snapkv,window=1");
	refused("egchunkkv:chunk=1"); /* entropy_keep is less than a chunk, and 1 at least */
	refused("tova:scorer=snapkv");
	parsed("tova:scorer=snapkv,window=1");
	parsed("h2o:window=0"); /* protects nothing */
}

static void text_is_read_up_to_1023_characters(void **state) {
	enum { LIMIT = 1023 };
	char text[LIMIT + 2];
	const char *start = "chunkkv:window=", *end = "16";
	(void)state;
	memset(text, '0', sizeof text);
	memcpy(text, start, strlen(start));
	memcpy(text + LIMIT - strlen(end), end, strlen(end) + 1);
	ckv_params p = parsed(text);
	assert_int_equal(p.window, 16);
	text[LIMIT - 2] = '0';
	memcpy(text + LIMIT + 1 - strlen(end), end, strlen(end) + 1);
	refused(text);
}

static void missing_arguments_are_told_apart(void **state) {
	(void)state;
	ckv_params p;
	ckv_error error;
	paint(&p, sizeof p);
	assert_int_equal(ckv_policy_parse(NULL, &p, &error), CKV_ERR_ARG);
	assert_int_equal(error.status, CKV_ERR_ARG);
	assert_true(is_painted(&p, sizeof p));
	assert_int_equal(ckv_policy_parse("full", NULL, &error), CKV_ERR_ARG);
	assert_int_equal(ckv_policy_parse(NULL, NULL, NULL), CKV_ERR_ARG);
	assert_int_equal(ckv_policy_parse("nonsense", &p, NULL), CKV_ERR_POLICY);
	assert_int_equal(ckv_policy_parse("full", &p, NULL), CKV_OK);
}

/* Texts near valid ones: whatever is accepted reads back the same, whatever is not leaves the parameters alone. */
static void mutated_texts_parse_or_leave_the_parameters_alone(void **state) {
	static const char *const seeds[] = {
	    "chunkkv:chunk=10,window=32", "snapkv:sinks=4,kernel=7,mode=reference", "full:scorer=snapkv,selector=chunk,window=1",
	    "adakv:safeguard=0.25,layers=pyramid,beta=20.5", "egchunkkv:chunker=line,max_chunk=9,reuse=2"};
	static const char letters[] = "chunkvsapwidorelftgymbx:=,0123456789-+ _.";
	rng r = {2};
	int accepted = 0;
	(void)state;
	for (int n = 0; n < 30000; n++) {
		char text[64], again[128];
		snprintf(text, sizeof text, "%s", seeds[rng_range(&r, 0, 4)]);
		for (int32_t edits = rng_range(&r, 1, 3); edits > 0; edits--) {
			text[rng_range(&r, 0, (int32_t)strlen(text) - 1)] = letters[rng_range(&r, 0, (int32_t)sizeof letters - 2)];
		}
		ckv_params p, q;
		paint(&p, sizeof p);
		if (ckv_policy_parse(text, &p, NULL) != CKV_OK) {
			CHECK(is_painted(&p, sizeof p), "%s", text);
			continue;
		}
		accepted++;
		ckv_policy_format(&p, again, sizeof again);
		CHECK(ckv_policy_parse(again, &q, NULL) == CKV_OK && same_params(&p, &q), "%s became %s", text, again);
	}
	assert_true(accepted > 100);
}

static void check_listing(const ckv_method_info *(*list)(size_t)) {
	size_t n = 0;
	for (; list(n); n++) {
		assert_true(list(n)->name[0] && list(n)->summary[0] && !strchr(list(n)->summary, '\n'));
		assert_non_null(list(n)->paper);
		assert_non_null(list(n)->uses);
		assert_ptr_equal(listed(list, list(n)->name), list(n)); /* no name twice */
	}
	assert_true(n > 0);
	assert_null(list(n + 1));
	assert_null(list(SIZE_MAX));
}

static void listings_are_complete_and_end_with_null(void **state) {
	(void)state;
	check_listing(ckv_preset_info);
	check_listing(ckv_scorer_info);
	check_listing(ckv_selector_info);
	check_listing(ckv_chunker_info);
	check_listing(ckv_layer_rule_info);
	size_t n = 0;
	for (; ckv_param_info_at(n); n++) {
		const ckv_param_info *info = ckv_param_info_at(n);
		assert_true(info->key[0] && info->summary[0] && info->minimum <= info->maximum);
	}
	assert_true(n > 0);
	assert_null(ckv_param_info_at(n + 1));
	assert_null(ckv_param_info_at(SIZE_MAX));
}

/* What a method says it reads is a key that there is. */
static void keys_that_methods_read_exist(void **state) {
	const ckv_method_info *(*lists[])(size_t) = {ckv_scorer_info, ckv_selector_info, ckv_chunker_info, ckv_layer_rule_info};
	(void)state;
	for (size_t l = 0; l < 4; l++) {
		for (size_t i = 0; lists[l](i); i++) {
			size_t known = 0, commas = 0;
			const char *uses = lists[l](i)->uses;
			for (size_t k = 0; ckv_param_info_at(k); k++) {
				known += in_list(uses, ckv_param_info_at(k)->key);
			}
			for (const char *at = uses; *at; at++) {
				commas += *at == ',';
			}
			CHECK(known == (*uses ? commas + 1 : 0), "%s reads '%s'", lists[l](i)->name, uses);
		}
	}
}

static void needs_follow_the_policy(void **state) {
	(void)state;
	ckv_needs needs;
	for (size_t i = 0; i < N_PRESETS; i++) {
		ckv_params preset = parsed(presets[i].preset);
		assert_int_equal(ckv_params_needs(&preset, &needs), CKV_OK);
		CHECK(needs.flags == presets[i].needs && needs.n_queries == presets[i].n_queries, "%s needs %x, %d queries",
		      presets[i].preset, needs.flags, needs.n_queries);
	}
	ckv_params p = parsed("snapkv:window=23");
	assert_int_equal(ckv_params_needs(&p, &needs), CKV_OK);
	assert_int_equal(needs.flags, CKV_NEED_QUERIES);
	assert_int_equal(needs.n_queries, 23);
	p = parsed("full");
	assert_int_equal(ckv_params_needs(&p, &needs), CKV_OK);
	assert_int_equal(needs.flags, 0);
	assert_int_equal(needs.n_queries, 0);
	paint(&needs, sizeof needs);
	p.scorer = "unheard-of";
	assert_int_equal(ckv_params_needs(&p, &needs), CKV_ERR_POLICY);
	p.scorer = NULL;
	assert_int_equal(ckv_params_needs(&p, &needs), CKV_ERR_ARG);
	assert_int_equal(ckv_params_needs(NULL, &needs), CKV_ERR_ARG);
	assert_true(is_painted(&needs, sizeof needs));
	assert_int_equal(ckv_params_needs(&p, NULL), CKV_ERR_ARG);
}

static void every_status_and_reason_has_its_own_phrase(void **state) {
	(void)state;
	const char *unknown_status = ckv_strerror((ckv_status)1000), *unknown_reason = ckv_reason_text((ckv_reason)1000);
	assert_true(unknown_status[0] && unknown_reason[0]);
	for (int i = CKV_OK; i <= CKV_ERR_CANCELLED; i++) {
		assert_string_not_equal(ckv_strerror((ckv_status)i), unknown_status);
		for (int j = CKV_OK; j < i; j++) {
			assert_string_not_equal(ckv_strerror((ckv_status)i), ckv_strerror((ckv_status)j));
		}
	}
	for (int i = CKV_SELECTED; i <= CKV_KEPT_ALL_SINKS; i++) {
		assert_string_not_equal(ckv_reason_text((ckv_reason)i), unknown_reason);
		for (int j = CKV_SELECTED; j < i; j++) {
			assert_string_not_equal(ckv_reason_text((ckv_reason)i), ckv_reason_text((ckv_reason)j));
		}
	}
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(there_are_these_presets_in_this_order),
	    cmocka_unit_test(presets_have_the_documented_defaults),
	    cmocka_unit_test(chunkkv_is_the_default),
	    cmocka_unit_test(every_preset_parses_and_formats_as_its_name),
	    cmocka_unit_test(values_given_are_values_read),
	    cmocka_unit_test(formatted_policies_read_back_the_same),
	    cmocka_unit_test(a_real_number_reads_back_the_same),
	    cmocka_unit_test(only_what_differs_from_the_preset_is_written),
	    cmocka_unit_test(format_cuts_like_snprintf),
	    cmocka_unit_test(format_of_no_policy_is_empty),
	    cmocka_unit_test(format_of_ones_own_parameters_parses_back),
	    cmocka_unit_test(format_survives_a_name_of_any_length),
	    cmocka_unit_test(unknown_presets_name_the_nearest),
	    cmocka_unit_test(unknown_keys_name_the_nearest),
	    cmocka_unit_test(unknown_values_name_the_nearest),
	    cmocka_unit_test(a_key_the_policy_does_not_read_is_refused),
	    cmocka_unit_test(keys_that_are_used_are_those_that_are_accepted),
	    cmocka_unit_test(values_are_told_as_the_text_has_them),
	    cmocka_unit_test(numbers_are_accepted_exactly_within_their_range),
	    cmocka_unit_test(every_key_is_a_number_or_a_name),
	    cmocka_unit_test(bad_values_are_named_with_their_range),
	    cmocka_unit_test(malformed_real_numbers_are_refused),
	    cmocka_unit_test(malformed_numbers_are_refused),
	    cmocka_unit_test(messages_stay_on_one_line),
	    cmocka_unit_test(malformed_pairs_are_refused),
	    cmocka_unit_test(a_key_given_twice_is_refused),
	    cmocka_unit_test(combinations_without_sense_are_refused),
	    cmocka_unit_test(text_is_read_up_to_1023_characters),
	    cmocka_unit_test(missing_arguments_are_told_apart),
	    cmocka_unit_test(mutated_texts_parse_or_leave_the_parameters_alone),
	    cmocka_unit_test(listings_are_complete_and_end_with_null),
	    cmocka_unit_test(keys_that_methods_read_exist),
	    cmocka_unit_test(needs_follow_the_policy),
	    cmocka_unit_test(every_status_and_reason_has_its_own_phrase),
	};
	return cmocka_run_group_tests_name("policy", tests, NULL, NULL);
}
