/* Texts of streaming policies: what parses, what is refused and how helpfully, that a formatted policy reads back the same,
 * and what the streaming caches themselves ask of parameters. */
#include "chunkkv/stream.h"
#include "stream/internal.h"
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---------------------------------------------------------------- helpers */

static bool same_real(double a, double b) { return memcmp(&a, &b, sizeof a) == 0; }

static bool same_params(const ckv_stream_params *a, const ckv_stream_params *b) {
	return strcmp(a->preset, b->preset) == 0 && strcmp(a->scorer, b->scorer) == 0 && strcmp(a->layers, b->layers) == 0 &&
	       strcmp(a->merge, b->merge) == 0 && a->chunk == b->chunk && a->sinks == b->sinks && a->grace == b->grace &&
	       a->window == b->window && a->reuse == b->reuse && a->merge_keys == b->merge_keys &&
	       a->merge_gate == b->merge_gate && a->seed == b->seed && a->reference == b->reference &&
	       same_real(a->decay, b->decay) && same_real(a->beta, b->beta) && same_real(a->strength, b->strength);
}

static ckv_stream_params parsed(const char *text) {
	ckv_stream_params params;
	ckv_error error;
	CHECK(ckv_stream_parse(text, &params, &error) == CKV_OK, "%s: %s", text, error.message);
	CHECK(error.status == CKV_OK && error.message[0] == '\0', "%s: '%s' after success", text, error.message);
	CHECK(params.size == sizeof params, "%s", text);
	return params;
}

/* Refused as a policy, with a one-line reason that holds `words`, and the caller's parameters as they were. */
static void refused(const char *text, const char *words) {
	ckv_stream_params params;
	ckv_error error;
	paint(&params, sizeof params);
	paint(&error, sizeof error);
	ckv_status status = ckv_stream_parse(text, &params, &error);
	CHECK(status == CKV_ERR_POLICY, "'%s': %s", text, ckv_strerror(status));
	CHECK(is_painted(&params, sizeof params), "'%s' changed the parameters", text);
	CHECK(error.status == status && memchr(error.message, 0, sizeof error.message), "'%s'", text);
	CHECK(strstr(error.message, words) && !strpbrk(error.message, "\n\r"), "'%s': %s", text, error.message);
}

typedef struct refusal {
	const char *text, *words;
} refusal;

static void all_refused(const refusal *list, size_t n) {
	for (size_t i = 0; i < n; i++) {
		refused(list[i].text, list[i].words);
	}
}

#define ALL_REFUSED(list) all_refused(list, sizeof(list) / sizeof *(list))

/* Each number, where it is kept, and a policy that reads it. */
typedef struct number {
	const char *key;
	size_t offset;
	bool real;
	const char *policy;
	double low, high;
} number;

#define INT_AT(key, policy, low, high)                                                                                      \
	{ #key, offsetof(ckv_stream_params, key), false, policy, low, high }
#define REAL_AT(key, policy, low, high)                                                                                     \
	{ #key, offsetof(ckv_stream_params, key), true, policy, low, high }

static const number numbers[] = {
    INT_AT(chunk, "chunkkv:", 1, 65536),
    INT_AT(sinks, "chunkkv:", 0, 65536),
    INT_AT(grace, "chunkkv:", 0, 65536),
    INT_AT(window, "snapkv:", 1, 4096),
    INT_AT(reuse, "chunkkv:", 1, 1024),
    INT_AT(merge_keys, "cam:", 0, 1),
    INT_AT(merge_gate, "cam:", 0, 1),
    INT_AT(seed, "cam:", 0, INT32_MAX),
    REAL_AT(decay, "chunkkv:", 0.0001, 1),
    REAL_AT(beta, "pyramidkv:", 1, 1000),
    REAL_AT(strength, "squeezeattention:", 0, 1),
};
enum { N_NUMBERS = sizeof numbers / sizeof *numbers };

static double get_number(const ckv_stream_params *params, const number *n) {
	int32_t whole;
	double value;
	const char *at = (const char *)params + n->offset;
	memcpy(&whole, at, sizeof whole);
	memcpy(&value, at, n->real ? sizeof value : 0);
	return n->real ? value : whole;
}

static void set_number(ckv_stream_params *params, const number *n, double value) {
	int32_t whole = n->real ? 0 : (int32_t)value;
	memcpy((char *)params + n->offset, n->real ? (const void *)&value : (const void *)&whole,
	       n->real ? sizeof value : sizeof whole);
}

/* A value of a number in a text that reads it. */
static const char *text_with(const number *n, double value) {
	static char text[96];
	snprintf(text, sizeof text, "%s%s=%.10g", n->policy, n->key, value);
	return text;
}

/* In its range, near its lower end as often as anywhere; ten-thousandths of reals. */
static double random_number(rng *r, const number *n) {
	double scale = n->real ? 10000.0 : 1.0;
	int32_t low = (int32_t)(n->low * scale + 0.5), high = (int32_t)(n->high * scale);
	return rng_range(r, low, rng_chance(r, 2) && high - low > 30 ? low + 30 : high) / scale;
}

static const char *const layer_rules[] = {"uniform", "pyramid", "squeeze"};
static const char *const merges[] = {"drop", "mean", "sim_weighted"};

/* Random valid values for what the policy reads; the rest stays as the preset has it. */
static ckv_stream_params random_params(rng *r, const ckv_stream_params *preset) {
	ckv_stream_params p = *preset;
	p.scorer = rng_chance(r, 2) ? ckv_stream_scorer_info((size_t)rng_range(r, 0, N_STREAM_SCORERS - 1))->name : p.scorer;
	p.layers = rng_chance(r, 2) ? layer_rules[rng_range(r, 0, 2)] : p.layers;
	p.merge = rng_chance(r, 2) ? merges[rng_range(r, 0, 2)] : p.merge;
	p.reference = rng_range(r, 0, 1);
	bool merging = strcmp(p.merge, "drop") != 0;
	p.scorer = merging ? "attn_mass" : p.scorer;
	for (size_t i = 0; i < N_NUMBERS; i++) {
		if (ckv_stream_params_use(&p, numbers[i].key) && !rng_chance(r, 3)) {
			set_number(&p, &numbers[i], random_number(r, &numbers[i]));
		}
	}
	p.seed = ckv_stream_params_use(&p, "seed") ? p.seed : preset->seed; /* the gate may have been closed after it */
	p.chunk = merging ? 1 : p.chunk;
	p.reuse = merging || strcmp(p.layers, "uniform") != 0 ? 1 : p.reuse;
	return p;
}

/* ------------------------------------------------------------------ tests */

typedef struct documented {
	const char *preset, *scorer, *layers, *merge;
	int32_t chunk, reuse;
	bool decays;
} documented;

static const documented presets[] = {
    {"chunkkv", "attn_mass", "uniform", "drop", 8, 1, false},
    {"chunkkv-reuse", "attn_mass", "uniform", "drop", 8, 2, false},
    {"h2o", "attn_mass", "uniform", "drop", 1, 1, true},
    {"tova", "tova", "uniform", "drop", 1, 1, true},
    {"streamingllm", "streaming", "uniform", "drop", 1, 1, true},
    {"snapkv", "snapkv", "uniform", "drop", 1, 1, true},
    {"pyramidkv", "attn_mass", "pyramid", "drop", 1, 1, true},
    {"squeezeattention", "attn_mass", "squeeze", "drop", 1, 1, true},
    {"cam", "attn_mass", "uniform", "sim_weighted", 1, 1, true},
    {"l2norm", "knorm", "uniform", "drop", 1, 1, true},
};
enum { N_PRESETS = sizeof presets / sizeof *presets };

static void there_are_these_presets_in_this_order(void **state) {
	(void)state;
	for (size_t i = 0; i < N_PRESETS; i++) {
		assert_non_null(ckv_stream_preset_info(i));
		assert_string_equal(ckv_stream_preset_info(i)->name, presets[i].preset);
	}
	assert_null(ckv_stream_preset_info(N_PRESETS));
}

/* grace and decay are measured, so only that there is one. */
static void presets_have_the_documented_defaults(void **state) {
	(void)state;
	for (size_t i = 0; i < N_PRESETS; i++) {
		const documented *d = &presets[i];
		ckv_stream_params p = parsed(d->preset);
		CHECK(strcmp(p.preset, d->preset) == 0 && strcmp(p.scorer, d->scorer) == 0 && strcmp(p.layers, d->layers) == 0 &&
		          strcmp(p.merge, d->merge) == 0,
		      "%s is %s, %s, %s", d->preset, p.scorer, p.layers, p.merge);
		CHECK(p.chunk == d->chunk && p.reuse == d->reuse && p.sinks == 4, "%s", d->preset);
		CHECK(p.window == 32 && p.seed == 42 && p.merge_keys == 0 && p.merge_gate == 1 && p.reference == 0, "%s", d->preset);
		CHECK(same_real(p.beta, 2.0) && same_real(p.strength, 1.0), "%s", d->preset);
		CHECK(p.decay > 0.0 && p.decay <= 1.0 && p.grace >= 0, "%s", d->preset);
		bool protects = ckv_stream_params_use(&p, "grace") && strcmp(d->preset, "tova") != 0;
		CHECK((p.grace > 0) == protects, "%s", d->preset);
	}
}

static void chunkkv_is_the_default(void **state) {
	(void)state;
	ckv_stream_params chunkkv = parsed("chunkkv"), params;
	paint(&params, sizeof params);
	ckv_stream_params_default(&params);
	assert_true(same_params(&params, &chunkkv));
	assert_int_equal(params.size, sizeof params);
	ckv_stream_params_default(NULL);
}

static void every_preset_parses_formats_as_its_name_and_passes(void **state) {
	(void)state;
	for (size_t i = 0; ckv_stream_preset_info(i); i++) {
		const char *name = ckv_stream_preset_info(i)->name;
		char text[128];
		ckv_stream_params params = parsed(name);
		assert_string_equal(params.preset, name);
		assert_int_equal(ckv_stream_format(&params, text, sizeof text), strlen(name));
		assert_string_equal(text, name);
		assert_int_equal(ckv_stream_params_check(&params, NULL), CKV_OK);
	}
}

static void values_given_are_values_read(void **state) {
	(void)state;
	ckv_stream_params p = parsed("chunkkv:chunk=7,grace=64,sinks=0,decay=0.95,reuse=3,mode=reference");
	assert_int_equal(p.chunk, 7);
	assert_int_equal(p.grace, 64);
	assert_int_equal(p.sinks, 0);
	assert_int_equal(p.reuse, 3);
	assert_int_equal(p.reference, 1);
	assert_true(same_real(p.decay, 0.95));
	p = parsed("tova:scorer=snapkv,window=00016,mode=exact");
	assert_string_equal(p.scorer, "snapkv");
	assert_int_equal(p.window, 16);
	assert_int_equal(p.reference, 0);
	p = parsed("h2o:layers=pyramid,beta=2.5");
	assert_string_equal(p.layers, "pyramid");
	assert_true(same_real(p.beta, 2.5));
	p = parsed("h2o:layers=squeeze,strength=0.25");
	assert_string_equal(p.layers, "squeeze");
	assert_true(same_real(p.strength, 0.25));
	p = parsed("chunkkv:chunk=1,merge=mean,merge_keys=1,merge_gate=1,seed=2147483647");
	assert_string_equal(p.merge, "mean");
	assert_int_equal(p.merge_keys, 1);
	assert_int_equal(p.seed, INT32_MAX);
	assert_int_equal(parsed("cam:merge_gate=0").merge_gate, 0);
	assert_string_equal(parsed("tova:scorer=l2norm").scorer, "knorm"); /* known by both names */
	assert_string_equal(parsed("tova:scorer=key_norm").scorer, "key_norm");
}

static void formatted_policies_read_back_the_same(void **state) {
	rng r = {1};
	(void)state;
	for (size_t i = 0; ckv_stream_preset_info(i); i++) {
		ckv_stream_params preset = parsed(ckv_stream_preset_info(i)->name);
		for (int n = 0; n < 2000; n++) {
			char text[512];
			ckv_stream_params params = random_params(&r, &preset);
			assert_true(ckv_stream_format(&params, text, sizeof text) < sizeof text);
			ckv_stream_params again = parsed(text);
			CHECK(same_params(&params, &again), "%s", text);
		}
	}
}

/* Texts near valid ones: whatever is accepted reads back the same, whatever is not leaves the parameters alone. */
static void mutated_texts_parse_or_leave_the_parameters_alone(void **state) {
	static const char *const seeds[] = {"chunkkv:chunk=10,grace=32", "snapkv:sinks=4,window=7,mode=reference",
	                                    "cam:merge_keys=1,seed=5", "pyramidkv:beta=2.5,decay=0.9", "tova:grace=2,reuse=2"};
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
		ckv_stream_params p, q;
		paint(&p, sizeof p);
		if (ckv_stream_parse(text, &p, NULL) != CKV_OK) {
			CHECK(is_painted(&p, sizeof p), "%s", text);
			continue;
		}
		accepted++;
		ckv_stream_format(&p, again, sizeof again);
		CHECK(ckv_stream_parse(again, &q, NULL) == CKV_OK && same_params(&p, &q), "%s became %s", text, again);
	}
	assert_true(accepted > 100);
}

static void only_what_differs_from_the_preset_is_written(void **state) {
	(void)state;
	char text[128];
	ckv_stream_params p = parsed("chunkkv:sinks=4,chunk=12,mode=reference");
	ckv_stream_format(&p, text, sizeof text);
	assert_string_equal(text, "chunkkv:chunk=12,mode=reference");
	p = parsed("pyramidkv:reuse=1,beta=7.50");
	ckv_stream_format(&p, text, sizeof text);
	assert_string_equal(text, "pyramidkv:beta=7.5");
	p = parsed("chunkkv:scorer=snapkv");
	p.grace = 77; /* which snapkv does not read */
	ckv_stream_format(&p, text, sizeof text);
	assert_string_equal(text, "chunkkv:scorer=snapkv");
}

static void format_cuts_like_snprintf(void **state) {
	(void)state;
	char whole[128], cut[128];
	ckv_stream_params p = parsed("chunkkv:chunk=20,sinks=1,decay=0.5,mode=reference");
	size_t length = ckv_stream_format(&p, whole, sizeof whole);
	assert_int_equal(length, strlen(whole));
	assert_int_equal(ckv_stream_format(&p, NULL, 0), length);
	for (size_t capacity = 1; capacity < length + 3; capacity++) {
		paint(cut, sizeof cut);
		assert_int_equal(ckv_stream_format(&p, cut, capacity), length);
		size_t kept = capacity - 1 < length ? capacity - 1 : length;
		CHECK(memcmp(cut, whole, kept) == 0 && cut[kept] == '\0', "capacity %zu", capacity);
		CHECK(is_painted(cut + kept + 1, sizeof cut - kept - 1), "capacity %zu", capacity);
	}
}

/* Parameters of the caller's own making are told from the default preset, in words that parse back. */
static void format_of_ones_own_parameters_parses_back(void **state) {
	(void)state;
	char text[64];
	ckv_stream_params p;
	ckv_stream_params_default(&p);
	p.preset = "mine";
	p.scorer = "tova";
	p.grace = 3;
	ckv_stream_format(&p, text, sizeof text);
	assert_string_equal(text, "chunkkv:scorer=tova,grace=3");
	assert_int_equal(parsed(text).grace, 3);
}

static void unknown_names_tell_the_nearest(void **state) {
	static const refusal list[] = {
	    {"chunkvk", "there is no streaming policy 'chunkvk'; the nearest is 'chunkkv'"},
	    {"H2O:grace=3", "nearest is 'h2o'"},
	    {"pyramid", "nearest is 'pyramidkv'"},
	    {"chunkkv_reuse", "nearest is 'chunkkv-reuse'"},
	    {"adakv", "there is no streaming policy 'adakv'; the nearest is '"},
	    {"", "there is no streaming policy ''"},
	    {":grace=3", "there is no streaming policy ''"},
	    {"chunkkv:grce=5", "there is no parameter 'grce'; the nearest is 'grace'"},
	    {"chunkkv:chunks=5", "nearest is 'chunk'"},
	    {"h2o:Decay=1", "nearest is 'decay'"},
	    {"cam:merge-keys=1", "nearest is 'merge_keys'"},
	    {"chunkkv:selector=topk", "there is no parameter 'selector'"}, /* one-shot policies have it */
	    {"chunkkv:scorer=attnmass", "there is no scorer 'attnmass'; the nearest is 'attn_mass'"},
	    {"chunkkv:scorer=none", "there is no scorer 'none'"},
	    {"chunkkv:layers=pyramidkv", "there is no layers 'pyramidkv'; the nearest is 'pyramid'"},
	    {"cam:merge=sim-weighted", "there is no merge 'sim-weighted'; the nearest is 'sim_weighted'"},
	    {"chunkkv:mode=refrence", "nearest is 'reference'"},
	    {"chunkkv:mode=", "there is no mode ''"},
	};
	(void)state;
	ALL_REFUSED(list);
}

static void keys_that_the_policy_does_not_read_are_refused(void **state) {
	static const refusal list[] = {
	    {"tova:decay=0.5", "streaming policy 'tova' (scorer tova, layers uniform, merge drop) does not use 'decay'"},
	    {"l2norm:decay=1", "does not use 'decay'"},
	    {"streamingllm:chunk=1", "does not use 'chunk'"},
	    {"streamingllm:grace=1", "does not use 'grace'"},
	    {"snapkv:grace=1", "does not use 'grace'"},
	    {"snapkv:decay=1", "does not use 'decay'"},
	    {"chunkkv:window=32", "does not use 'window'"},
	    {"chunkkv:beta=2", "does not use 'beta'"},
	    {"squeezeattention:beta=2", "does not use 'beta'"},
	    {"pyramidkv:strength=1", "does not use 'strength'"},
	    {"h2o:merge_keys=0", "does not use 'merge_keys'"},
	    {"h2o:merge_gate=1", "does not use 'merge_gate'"},
	    {"h2o:seed=42", "merge drop) does not use 'seed'"},
	    {"cam:seed=42,merge_gate=0", "merge sim_weighted with merge_gate=0) does not use 'seed'"},
	    {"cam:merge=drop,seed=1", "does not use 'seed'"},
	};
	(void)state;
	ALL_REFUSED(list);
}

static void combinations_without_sense_are_refused(void **state) {
	static const refusal list[] = {
	    {"chunkkv:merge=mean", "merge=mean needs chunk=1, not 8"},
	    {"cam:chunk=2", "merge=sim_weighted needs chunk=1, not 2"},
	    {"cam:scorer=tova", "merge=sim_weighted needs scorer=attn_mass, not 'tova'"},
	    {"cam:reuse=2", "reuse=2 needs merge=drop, not 'sim_weighted'"},
	    {"pyramidkv:reuse=2", "reuse=2 needs layers=uniform, not 'pyramid'"},
	    {"chunkkv-reuse:layers=squeeze", "reuse=2 needs layers=uniform, not 'squeeze'"},
	};
	(void)state;
	ALL_REFUSED(list);
	parsed("pyramidkv:reuse=1");
	parsed("pyramidkv:merge=mean");
	parsed("snapkv:mode=reference");
	parsed("cam:mode=reference,grace=2,decay=0.9");
	parsed("squeezeattention:mode=reference,chunk=8");
}

static void malformed_pairs_and_numbers_are_refused(void **state) {
	static const refusal list[] = {
	    {"chunkkv:", "'' is not key=value"},
	    {"chunkkv+kivi4", "'+kivi4': codecs and merge go with one-shot policies (--keep)"},
	    {"cam:sinks=3+merge", "'+merge': codecs and merge go with one-shot policies (--keep)"},
	    {"chunkkv:grace=1,", "'' is not key=value"},
	    {"chunkkv:grace", "'grace' is not key=value"},
	    {"chunkkv:grace=1,grace=1", "'grace' is given twice"},
	    {"chunkkv:mode=exact,mode=exact", "'mode' is given twice"},
	    {"chunkkv:grace=", "grace='' is not a whole number"},
	    {"chunkkv:grace=1.5", "grace='1.5' is not a whole number"},
	    {"chunkkv:grace= 1", "is not a whole number"},
	    {"chunkkv:grace=1x", "is not a whole number"},
	    {"chunkkv:grace=99999999999999999999", "is out of range: 0 to 65536"},
	    {"chunkkv:decay=0,5", "out of range: 0.0001 to 1"},
	    {"chunkkv:decay=.5", "decay='.5' is not a number like 0.2"},
	    {"chunkkv:decay=-0.5", "is not a number like 0.2"},
	    {"chunkkv:decay=nan", "is not a number like 0.2"},
	    {"chunkkv:decay=1e-1", "is not a number like 0.2"},
	    {"chunkkv:gr\nace=1", "there is no parameter"},
	};
	(void)state;
	ALL_REFUSED(list);
}

static void numbers_are_accepted_exactly_within_their_range(void **state) {
	(void)state;
	for (size_t i = 0; i < N_NUMBERS; i++) {
		const number *n = &numbers[i];
		char range[64];
		snprintf(range, sizeof range, "out of range: %.10g to %.10g", n->low, n->high);
		double step = n->real ? 0.0001 : 1.0;
		ckv_stream_params p = parsed(text_with(n, n->low));
		CHECK(same_real(get_number(&p, n), n->low), "%s", text_with(n, n->low));
		p = parsed(text_with(n, n->high));
		CHECK(same_real(get_number(&p, n), n->high), "%s", text_with(n, n->high));
		refused(text_with(n, n->high + step), range);
		if (!n->real || n->low > 0.0) {
			refused(text_with(n, n->low - step), range);
		}
	}
}

static void a_text_of_more_than_1023_characters_is_refused(void **state) {
	(void)state;
	char text[1200];
	memset(text, '0', sizeof text);
	memcpy(text, "chunkkv:grace=", strlen("chunkkv:grace="));
	text[sizeof text - 1] = '\0';
	refused(text, "longer than 1023 characters");
	text[1023] = '\0';
	assert_int_equal(parsed(text).grace, 0);
}

/* ckv_stream_params_use is what the parser goes by. */
static void keys_that_are_used_are_those_that_are_accepted(void **state) {
	(void)state;
	for (size_t i = 0; ckv_stream_preset_info(i); i++) {
		ckv_stream_params p = parsed(ckv_stream_preset_info(i)->name), q;
		for (size_t k = 0; ckv_stream_param_info_at(k); k++) {
			char value[64], text[192];
			const char *key = ckv_stream_param_info_at(k)->key;
			assert_true(ckv_stream_params_value(&p, key, value, sizeof value) < sizeof value);
			snprintf(text, sizeof text, "%s:%s=%s", p.preset, key, value);
			bool accepted = ckv_stream_parse(text, &q, NULL) == CKV_OK;
			CHECK(accepted == (ckv_stream_params_use(&p, key) != 0), "%s", text);
			CHECK(!accepted || same_params(&p, &q), "%s", text);
		}
		assert_int_equal(ckv_stream_params_use(&p, "nothing"), 0);
		assert_int_equal(ckv_stream_params_use(&p, "chunk,grace"), 0);
	}
}

static void values_are_told_as_the_text_has_them(void **state) {
	static const char *const expected[][2] = {
	    {"scorer", "attn_mass"}, {"layers", "pyramid"}, {"merge", "mean"},   {"chunk", "1"},      {"sinks", "4"},
	    {"window", "32"},        {"reuse", "1"},        {"merge_keys", "1"}, {"merge_gate", "1"}, {"seed", "42"},
	    {"decay", "0.5"},        {"beta", "2"},         {"strength", "1"},   {"grace", "9"},      {"mode", "reference"}};
	char value[32];
	(void)state;
	ckv_stream_params p = parsed("pyramidkv:merge=mean,merge_keys=1,decay=0.5,grace=9,mode=reference");
	for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
		assert_int_equal(ckv_stream_params_value(&p, expected[i][0], value, sizeof value), strlen(expected[i][1]));
		assert_string_equal(value, expected[i][1]);
	}
	assert_int_equal(ckv_stream_params_value(&p, "nothing", value, sizeof value), 0);
	assert_string_equal(value, "");
}

static void nothing_given_is_told_and_survived(void **state) {
	(void)state;
	char text[16] = "before";
	const char *none = NULL;
	ckv_error error;
	ckv_stream_params p, unnamed;
	paint(&p, sizeof p);
	assert_int_equal(ckv_stream_parse(NULL, &p, &error), CKV_ERR_ARG);
	assert_int_equal(error.status, CKV_ERR_ARG);
	assert_true(is_painted(&p, sizeof p));
	assert_int_equal(ckv_stream_parse("h2o", NULL, &error), CKV_ERR_ARG);
	assert_int_equal(ckv_stream_parse(NULL, NULL, NULL), CKV_ERR_ARG);
	assert_int_equal(ckv_stream_parse("nonsense", &p, NULL), CKV_ERR_POLICY);
	assert_int_equal(ckv_stream_parse("h2o", &p, NULL), CKV_OK);
	assert_int_equal(ckv_stream_params_use(NULL, "grace"), 0);
	assert_int_equal(ckv_stream_params_use(&p, NULL), 0);
	assert_int_equal(ckv_stream_params_value(NULL, "grace", text, sizeof text), 0);
	assert_string_equal(text, "");
	assert_int_equal(ckv_stream_params_value(&p, NULL, text, sizeof text), 0);
	assert_int_equal(ckv_stream_format(NULL, text, sizeof text), 0);
	assert_int_equal(ckv_stream_params_check(NULL, &error), CKV_ERR_ARG);
	const size_t names[] = {offsetof(ckv_stream_params, preset), offsetof(ckv_stream_params, scorer),
	                        offsetof(ckv_stream_params, layers), offsetof(ckv_stream_params, merge)};
	for (size_t i = 0; i < 4; i++) {
		unnamed = p;
		memcpy((char *)&unnamed + names[i], &none, sizeof none);
		assert_int_equal(ckv_stream_params_check(&unnamed, &error), CKV_ERR_ARG);
		assert_non_null(strstr(error.message, "ckv_stream_params_default"));
		assert_int_equal(ckv_stream_format(&unnamed, text, sizeof text), 0);
		assert_int_equal(ckv_stream_params_use(&unnamed, "grace"), 0);
	}
}

/* Checks parameters that did not come from a text; the message holds `words`. */
static void check_refuses(const ckv_stream_params *params, const char *words) {
	ckv_error error;
	ckv_status status = ckv_stream_params_check(params, &error);
	CHECK(status == CKV_ERR_POLICY && strstr(error.message, words), "%s: %s", words, error.message);
}

static void parameters_of_ones_own_are_checked_as_texts_are(void **state) {
	(void)state;
	ckv_stream_params good = parsed("h2o"), p = good;
	p.scorer = "atn_mass";
	check_refuses(&p, "there is no streaming scorer 'atn_mass'; the nearest is 'attn_mass'");
	p = good, p.layers = "piramid";
	check_refuses(&p, "there is no streaming layer rule 'piramid'; the nearest is 'pyramid'");
	p = good, p.merge = "men";
	check_refuses(&p, "there is no merge rule 'men'; the nearest is 'mean'");
	p = good, p.reference = 2;
	check_refuses(&p, "reference is 2: it is 0 or 1");
	p = good, p.reuse = 0;
	check_refuses(&p, "reuse=0 is out of range");
	p = good, p.merge = "mean", p.chunk = 4;
	check_refuses(&p, "merge=mean needs chunk=1");
	for (size_t i = 0; i < N_NUMBERS; i++) {
		p = good;
		set_number(&p, &numbers[i], numbers[i].low - 1.0);
		check_refuses(&p, numbers[i].key);
		if (numbers[i].high < INT32_MAX) {
			p = good;
			set_number(&p, &numbers[i], numbers[i].high + 1.0);
			check_refuses(&p, numbers[i].key);
		}
	}
	p = good, p.decay = (double)NAN;
	check_refuses(&p, "decay=");
}

/* Names of the caller's own memory become the library's. */
static void owned_names_outlive_the_callers(void **state) {
	(void)state;
	char preset[16] = "h2o", scorer[16] = "tova", layers[16] = "squeeze", merge[16] = "mean";
	ckv_stream_params p = parsed("chunkkv:chunk=1");
	p.preset = preset, p.scorer = scorer, p.layers = layers, p.merge = merge;
	assert_int_equal(ckv_stream_scorer_of(&p), STREAM_TOVA);
	assert_int_equal(ckv_stream_layers_of(&p), STREAM_SQUEEZE);
	assert_int_equal(ckv_stream_merge_of(&p), STREAM_MEAN);
	ckv_stream_params_own(&p);
	preset[0] = scorer[0] = layers[0] = merge[0] = 'x';
	assert_string_equal(p.preset, "h2o");
	assert_string_equal(p.scorer, "tova");
	assert_string_equal(p.layers, "squeeze");
	assert_string_equal(p.merge, "mean");
	p.preset = "mine";
	ckv_stream_params_own(&p);
	assert_string_equal(p.preset, "custom");
}

static void names_have_the_index_of_their_listing(void **state) {
	(void)state;
	ckv_stream_params p = parsed("h2o");
	for (size_t i = 0; i < N_STREAM_SCORERS; i++) {
		p.scorer = ckv_stream_scorer_info(i)->name;
		assert_int_equal(ckv_stream_scorer_of(&p), i);
	}
	for (size_t i = 0; i < 3; i++) {
		p.layers = layer_rules[i], p.merge = merges[i];
		assert_int_equal(ckv_stream_layers_of(&p), i);
		assert_int_equal(ckv_stream_merge_of(&p), i);
	}
}

static void listings_are_complete_and_end_with_null(void **state) {
	const ckv_method_info *(*const lists[])(size_t) = {ckv_stream_preset_info, ckv_stream_scorer_info};
	(void)state;
	for (size_t l = 0; l < 2; l++) {
		size_t n = 0;
		for (; lists[l](n); n++) {
			const ckv_method_info *info = lists[l](n);
			assert_true(info->name[0] && info->summary[0] && !strchr(info->summary, '\n') && info->paper && info->uses);
		}
		assert_true(n > 0);
		assert_null(lists[l](SIZE_MAX));
	}
	size_t n = 0, n_numbers = 0;
	for (; ckv_stream_param_info_at(n); n++) {
		const ckv_param_info *info = ckv_stream_param_info_at(n);
		assert_true(info->key[0] && info->summary[0] && info->minimum <= info->maximum);
		n_numbers += info->maximum > 0.0;
	}
	assert_int_equal(n_numbers, N_NUMBERS); /* no number is left out above */
	assert_null(ckv_stream_param_info_at(SIZE_MAX));
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(there_are_these_presets_in_this_order),
	    cmocka_unit_test(presets_have_the_documented_defaults),
	    cmocka_unit_test(chunkkv_is_the_default),
	    cmocka_unit_test(every_preset_parses_formats_as_its_name_and_passes),
	    cmocka_unit_test(values_given_are_values_read),
	    cmocka_unit_test(formatted_policies_read_back_the_same),
	    cmocka_unit_test(mutated_texts_parse_or_leave_the_parameters_alone),
	    cmocka_unit_test(only_what_differs_from_the_preset_is_written),
	    cmocka_unit_test(format_cuts_like_snprintf),
	    cmocka_unit_test(format_of_ones_own_parameters_parses_back),
	    cmocka_unit_test(unknown_names_tell_the_nearest),
	    cmocka_unit_test(keys_that_the_policy_does_not_read_are_refused),
	    cmocka_unit_test(combinations_without_sense_are_refused),
	    cmocka_unit_test(malformed_pairs_and_numbers_are_refused),
	    cmocka_unit_test(numbers_are_accepted_exactly_within_their_range),
	    cmocka_unit_test(a_text_of_more_than_1023_characters_is_refused),
	    cmocka_unit_test(keys_that_are_used_are_those_that_are_accepted),
	    cmocka_unit_test(values_are_told_as_the_text_has_them),
	    cmocka_unit_test(nothing_given_is_told_and_survived),
	    cmocka_unit_test(parameters_of_ones_own_are_checked_as_texts_are),
	    cmocka_unit_test(owned_names_outlive_the_callers),
	    cmocka_unit_test(names_have_the_index_of_their_listing),
	    cmocka_unit_test(listings_are_complete_and_end_with_null),
	};
	return cmocka_run_group_tests_name("stream_policy", tests, NULL, NULL);
}
