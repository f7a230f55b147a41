/* Policy texts with codecs and merging: what parses, what is refused and how helpfully, that a formatted policy reads back
 * the same and each has one text, and that parameters without codec and merging are what they were before there were any. */
#include "support.h"

#include "core/registry.h"
#include "quant/quant.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- helpers */

static bool same_real(double a, double b) { return memcmp(&a, &b, sizeof a) == 0; }

static bool same_codec(const ckv_codec *a, const ckv_codec *b) {
	return strcmp(a->preset, b->preset) == 0 && strcmp(a->kind, b->kind) == 0 && a->bits == b->bits &&
	       a->group == b->group && a->residual == b->residual && a->rank == b->rank && a->head_groups == b->head_groups &&
	       a->quantize_values == b->quantize_values && a->high_bits == b->high_bits && a->low_bits == b->low_bits &&
	       a->reference == b->reference && same_real(a->energy, b->energy) && same_real(a->high_share, b->high_share);
}

static bool same_merge(const ckv_merge *a, const ckv_merge *b) {
	return strcmp(a->preset, b->preset) == 0 && same_real(a->fraction, b->fraction) && same_real(a->threshold, b->threshold);
}

/* The first part by its text, which test_policy.c is about. */
static bool same_params(const ckv_params *a, const ckv_params *b) {
	char text[2][512];
	const ckv_params *both[2] = {a, b};
	for (int i = 0; i < 2; i++) {
		ckv_params first = *both[i];
		memset(&first.codec, 0, sizeof first.codec);
		memset(&first.merge, 0, sizeof first.merge);
		ckv_policy_format(&first, text[i], sizeof text[i]);
	}
	return strcmp(a->preset, b->preset) == 0 && strcmp(text[0], text[1]) == 0 && same_codec(&a->codec, &b->codec) &&
	       same_merge(&a->merge, &b->merge);
}

static ckv_params parsed(const char *text) {
	ckv_params params;
	ckv_error error;
	CHECK(ckv_policy_parse(text, &params, &error) == CKV_OK, "%s: %s", text, error.message);
	CHECK(error.status == CKV_OK && error.message[0] == '\0', "%s: '%s' after success", text, error.message);
	CHECK(params.size == sizeof params && params.codec.size == sizeof params.codec &&
	          params.merge.size == sizeof params.merge,
	      "%s", text);
	return params;
}

/* Refused with a reason that holds all of these words, and the caller's parameters as they were. */
static void refused(const char *text, const char *words) {
	ckv_params params;
	ckv_error error;
	char word[64];
	paint(&params, sizeof params);
	CHECK(ckv_policy_parse(text, &params, &error) == CKV_ERR_POLICY, "'%s'", text);
	CHECK(is_painted(&params, sizeof params), "'%s' changed the parameters", text);
	for (const char *at = words; *at; at += strcspn(at, "|"), at += *at == '|') {
		snprintf(word, sizeof word, "%.*s", (int)strcspn(at, "|"), at);
		CHECK(strstr(error.message, word), "'%s' is refused without '%s': %s", text, word, error.message);
	}
}

static const char *formatted(const ckv_params *p) {
	static char text[512];
	assert_true(ckv_policy_format(p, text, sizeof text) < sizeof text);
	return text;
}

/* Each number of a codec or of merging, its default, and a text behind which it may stand. */
typedef struct number {
	const char *key, *behind;
	size_t offset;
	bool real;
	double low, high, otherwise; /* its range, its default */
} number;

#define INT_AT(key, part, low, high, otherwise)                                                                             \
	{ #key, part, offsetof(ckv_params, codec) + offsetof(ckv_codec, key), false, low, high, otherwise }
#define REAL_AT(key, part, low, high, otherwise)                                                                            \
	{ #key, part, offsetof(ckv_params, codec) + offsetof(ckv_codec, key), true, low, high, otherwise }
#define MERGE_AT(key, low, high, otherwise)                                                                                 \
	{ #key, "snapkv+merge:", offsetof(ckv_params, merge) + offsetof(ckv_merge, key), true, low, high, otherwise }

static const number numbers[] = {
    INT_AT(bits, "snapkv+kivi:", 1, 8, 4),
    INT_AT(group, "snapkv+kivi4:", 1, 4096, 32),
    INT_AT(group, "snapkv+palu:", 1, 4096, 32),
    INT_AT(residual, "snapkv+kivi4:", 0, 65536, 128),
    INT_AT(rank, "snapkv+palu:", 0, 4096, 0),
    INT_AT(head_groups, "snapkv+palu:", 1, 1024, 4),
    INT_AT(high_bits, "snapkv+palu:", 1, 8, 4),
    INT_AT(low_bits, "snapkv+palu:", 1, 8, 2),
    INT_AT(quantize_values, "snapkv+palu:", 0, 1, 1),
    REAL_AT(energy, "snapkv+palu:", 0.01, 1, 0.90),
    REAL_AT(high_share, "snapkv+palu:", 0, 1, 0.25),
    MERGE_AT(fraction, 0, 1, 1),
    MERGE_AT(threshold, -1, 1, 0),
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
	int32_t whole = (int32_t)value;
	memcpy((char *)params + n->offset, n->real ? (const void *)&value : (const void *)&whole,
	       n->real ? sizeof value : sizeof whole);
}

static bool reads(const ckv_params *p, const number *n) {
	bool merging = n->offset < offsetof(ckv_params, codec);
	return merging ? ckv_merge_use(&p->merge, n->key) : ckv_codec_use(&p->codec, n->key);
}

/* Some valid first part, and what may be behind it, each number of it anywhere in its range as often as its default. */
static ckv_params random_params(rng *r) {
	static const char *const firsts[] = {
	    "full",      "chunkkv:chunk=8",      "snapkv:window=3,kernel=7",   "adakv:mode=reference",
	    "pyramidkv", "chunkkv:chunker=line", "full:scorer=snapkv,window=9"};
	static const char *const codecs[] = {"kivi2", "kivi4", "kivi8", "kivi", "palu"};
	char text[128];
	bool codec = rng_chance(r, 2);
	int32_t first = rng_range(r, 0, 6);
	bool merging = first > 0 && first < 6 && rng_chance(r, 2);
	snprintf(text, sizeof text, "%s%s%s%s", firsts[first], merging ? "+merge" : "", codec ? "+" : "",
	         codec ? codecs[rng_range(r, 0, 4)] : "");
	ckv_params p = parsed(text);
	for (size_t i = 0; i < N_NUMBERS; i++) {
		double scale = numbers[i].real ? 1000.0 : 1.0;
		if (reads(&p, &numbers[i]) && rng_chance(r, 2)) {
			set_number(&p, &numbers[i],
			           rng_range(r, (int32_t)(numbers[i].low * scale), (int32_t)(numbers[i].high * scale)) / scale);
		}
	}
	p.codec.energy = p.codec.rank ? 0.90 : p.codec.energy; /* which only is read when there is no rank */
	p.codec.reference = ckv_codec_use(&p.codec, "mode") ? rng_range(r, 0, 1) : 0;
	return p;
}

/* Numbers were changed since the text was read: the whole cache in a codec as it comes is a preset of its own (but for
 * kivi), in a changed one it is not. */
static void name_as_read(ckv_params *p) {
	bool whole = strcmp(p->scorer, "none") == 0, stores = strcmp(p->codec.kind, "none") != 0;
	if (whole && stores) {
		ckv_params alone = parsed(p->codec.preset);
		bool as_it_comes = same_codec(&alone.codec, &p->codec) && strcmp(p->codec.preset, "kivi") != 0;
		p->preset = as_it_comes ? p->codec.preset : "full";
	}
}

/* ------------------------------------------------------------------ tests */

static void codecs_have_the_documented_defaults(void **state) {
	static const struct {
		const char *name, *kind;
		int32_t bits;
	} expected[] = {
	    {"kivi2", "kivi", 2}, {"kivi4", "kivi", 4}, {"kivi8", "kivi", 8}, {"kivi", "kivi", 4}, {"palu", "palu", 4}};
	(void)state;
	for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
		char text[64];
		snprintf(text, sizeof text, "chunkkv+%s", expected[i].name);
		ckv_params p = parsed(text), plain = parsed("chunkkv");
		assert_string_equal(ckv_codec_info(i)->name, expected[i].name);
		assert_string_equal(p.codec.preset, expected[i].name);
		assert_string_equal(p.codec.kind, expected[i].kind);
		assert_int_equal(p.codec.bits, expected[i].bits);
		assert_int_equal(p.codec.reference, 0);
		for (size_t k = 0; k < N_NUMBERS; k++) {
			CHECK(strcmp(numbers[k].key, "bits") == 0 || same_real(get_number(&p, &numbers[k]), numbers[k].otherwise),
			      "%s has %s=%g", text, numbers[k].key, get_number(&p, &numbers[k]));
		}
		memcpy(&p.codec, &plain.codec, sizeof p.codec);
		assert_true(same_params(&p, &plain)); /* nothing else has changed */
	}
	assert_string_equal(ckv_codec_info(5)->name, "merge");
	assert_null(ckv_codec_info(6));
}

static void policies_without_codec_and_merging_have_none(void **state) {
	(void)state;
	for (size_t i = 0; ckv_preset_info(i); i++) {
		const char *name = ckv_preset_info(i)->name;
		ckv_params p = parsed(name);
		bool by_codec = strncmp(name, "kivi", 4) == 0 || strcmp(name, "palu") == 0;
		assert_string_equal(p.codec.preset, by_codec ? name : "none");
		assert_true((strcmp(p.codec.kind, "none") == 0) == !by_codec);
		assert_string_equal(p.merge.preset, "none");
		assert_int_equal(ckv_params_hosted(&p), by_codec);
		assert_true(same_params(&p, &ckv_preset_find(name)->params)); /* the row is what its name reads as */
	}
	ckv_params p = parsed("snapkv+merge");
	assert_int_equal(ckv_params_hosted(&p), 1);
}

static void values_given_are_values_read(void **state) {
	(void)state;
	ckv_params p = parsed("chunkkv:chunk=8+merge:fraction=0.75,threshold=-0.125+kivi4:group=64,residual=0,mode=reference");
	assert_string_equal(p.preset, "chunkkv");
	assert_int_equal(p.chunk, 8);
	assert_int_equal(p.reference, 0); /* each part has a mode of its own */
	assert_string_equal(p.merge.preset, "merge");
	assert_true(p.merge.fraction == 0.75 && p.merge.threshold == -0.125);
	assert_string_equal(p.codec.preset, "kivi4");
	assert_string_equal(p.codec.kind, "kivi");
	assert_int_equal(p.codec.bits, 4);
	assert_int_equal(p.codec.group, 64);
	assert_int_equal(p.codec.residual, 0);
	assert_int_equal(p.codec.reference, 1);
	p = parsed("snapkv:mode=reference+palu:rank=16,head_groups=3,high_bits=8,low_bits=1,high_share=0.5,quantize_values=0");
	assert_int_equal(p.reference, 1);
	assert_int_equal(p.codec.reference, 0);
	assert_int_equal(p.codec.rank, 16);
	assert_int_equal(p.codec.head_groups, 3);
	assert_int_equal(p.codec.high_bits, 8);
	assert_int_equal(p.codec.low_bits, 1);
	assert_true(p.codec.high_share == 0.5);
	assert_int_equal(p.codec.quantize_values, 0);
	p = parsed("snapkv+merge:threshold=-0");
	assert_true(!signbit(p.merge.threshold));
}

static void the_order_of_merge_and_codec_is_free(void **state) {
	(void)state;
	ckv_params a = parsed("chunkkv+kivi:bits=3+merge:fraction=0.5"), b = parsed("chunkkv+merge:fraction=0.5+kivi:bits=3");
	assert_true(same_params(&a, &b));
	assert_string_equal(formatted(&a), "chunkkv+merge:fraction=0.5+kivi:bits=3");
}

/* One policy has one text, however it was written. */
static void a_policy_has_one_text(void **state) {
	static const char *const same[][2] = {
	    {"chunkkv:chunk=8+kivi4:group=64+merge:fraction=0.75", "chunkkv:chunk=8+merge:fraction=0.75+kivi4:group=64"},
	    {"kivi2", "kivi2"},
	    {"full+kivi2", "kivi2"},
	    {"kivi2:group=32", "kivi2"},
	    {"kivi2:group=64", "full+kivi2:group=64"},
	    {"full+kivi2:group=64,bits=2", "full+kivi2:group=64"},
	    {"kivi", "full+kivi"},
	    {"kivi:bits=3", "full+kivi:bits=3"},
	    {"palu:energy=0.90", "palu"},
	    {"palu:rank=8,mode=reference", "full+palu:rank=8,mode=reference"},
	    {"full:scorer=snapkv,window=1+palu", "full:scorer=snapkv,window=1+palu"},
	    {"snapkv:window=16+merge:threshold=-1.0", "snapkv+merge:threshold=-1"},
	    {"snapkv+merge:fraction=1", "snapkv+merge"},
	};
	(void)state;
	for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
		ckv_params p = parsed(same[i][0]), q = parsed(same[i][1]);
		CHECK(strcmp(formatted(&p), same[i][1]) == 0, "%s became %s", same[i][0], formatted(&p));
		CHECK(same_params(&p, &q), "%s and %s", same[i][0], same[i][1]);
	}
}

static void formatted_policies_read_back_the_same(void **state) {
	rng r = {4};
	int n_parts[4] = {0};
	(void)state;
	for (int n = 0; n < 20000; n++) {
		ckv_params p = random_params(&r);
		name_as_read(&p);
		ckv_params again = parsed(formatted(&p));
		CHECK(same_params(&p, &again), "%s", formatted(&p));
		n_parts[(strcmp(p.codec.kind, "none") != 0) + 2 * (strcmp(p.merge.preset, "none") != 0)]++;
	}
	for (int i = 0; i < 4; i++) {
		assert_true(n_parts[i] > 1000);
	}
}

static void format_cuts_like_snprintf(void **state) {
	(void)state;
	char whole[128], cut[128];
	ckv_params p = parsed("chunkkv:chunk=20+merge:threshold=-0.5+palu:rank=7,low_bits=1");
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

static void unknown_parts_and_keys_name_the_nearest(void **state) {
	(void)state;
	refused("chunkkv+kivi3", "'kivi3'|'kivi2'");
	refused("chunkkv+KIVI8", "'kivi8'");
	refused("chunkkv+pal:rank=3", "'pal'|'palu'");
	refused("chunkkv+merged", "'merged'|'merge'");
	refused("chunkkv+none", "'none'");
	refused("chunkkv+ kivi4", "'kivi4'");
	refused("chunkkv+a-name-that-is-longer-than-any-codec-of-this-library-will-ever-be:bits=3", "'a-name-that-is-longer");
	refused("kiwi2", "'kivi2'");
	refused("kivi2:grup=3", "'grup'|'group'");
	refused("chunkkv+kivi4:bit=3", "'bits'");
	refused("chunkkv+merge:treshold=0.5", "'threshold'");
	refused("chunkkv+kivi4:mode=exakt", "'exact'");
}

static void keys_that_a_part_does_not_read_are_refused(void **state) {
	(void)state;
	refused("chunkkv+kivi4:rank=3", "'kivi4'|'rank'|bits,group,residual,mode");
	refused("chunkkv+kivi2:energy=0.9", "'kivi2'|'energy'|bits,group");
	refused("chunkkv+palu:bits=3", "'palu'|'bits'|high_bits");
	refused("chunkkv+palu:residual=3", "'residual'");
	refused("chunkkv+palu:rank=3,energy=0.5", "'energy'|rank=3");
	refused("chunkkv+palu:energy=0.9,rank=3", "'energy'|rank=3");
	parsed("chunkkv+palu:rank=0,energy=0.5");
	refused("chunkkv+merge:bits=3", "'bits'");
	refused("chunkkv:bits=3+kivi", "'bits'");
	refused("kivi2:scorer=snapkv", "'scorer'"); /* the keys of a codec alone are its own */
	refused("palu:window=3", "'window'");
	refused("snapkv:chunk=3+kivi4", "'chunk'"); /* what is in front is read as ever */
	refused("snapkv:window=0+kivi4", "window=0");
}

static void values_out_of_range_are_named_with_their_range(void **state) {
	(void)state;
	for (size_t i = 0; i < N_NUMBERS; i++) {
		const number *n = &numbers[i];
		double step = n->real ? 0.001 : 1.0, good[2] = {n->low, n->high}, bad[2] = {n->low - step, n->high + step};
		char text[96], range[64];
		snprintf(range, sizeof range, "%.10g to %.10g", n->low, n->high);
		for (int k = 0; k < 2; k++) {
			snprintf(text, sizeof text, "%s%s=%.10g", n->behind, n->key, good[k]);
			ckv_params p = parsed(text);
			CHECK(same_real(get_number(&p, n), good[k]), "%s", text);
			snprintf(text, sizeof text, "%s%s=%.10g", n->behind, n->key, bad[k]);
			refused(text, n->low >= 0.0 && bad[k] < 0.0 && n->real ? n->key : range);
		}
	}
}

static void malformed_values_are_refused(void **state) {
	static const char *const bad[] = {"--0.5", "-", "-.5", "- 0.5", "-nan", "-inf", "-0.5x", "-0x1", "0.5-", "", "-1e-1"};
	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		char text[64];
		snprintf(text, sizeof text, "snapkv+merge:threshold=%s", bad[i]);
		refused(text, "threshold");
		snprintf(text, sizeof text, "snapkv+merge:fraction=%s", bad[i]);
		refused(text, "fraction");
	}
	refused("snapkv+merge:fraction=-0", "fraction"); /* no sign where nothing is below 0 */
}

static void malformed_texts_are_refused(void **state) {
	(void)state;
	refused("+", "nothing stands before the +");
	refused("+kivi4", "nothing stands before the +");
	refused("chunkkv+", "nothing stands behind a +");
	refused("chunkkv++kivi4", "nothing stands behind a +");
	refused("chunkkv+kivi4+", "nothing stands behind a +");
	refused("kivi4+", "nothing stands behind a +");
	refused("chunkkv+:bits=3", "''");
	refused("chunkkv+kivi4:", "key=value");
	refused("chunkkv+kivi4:bits", "'bits'");
	refused("chunkkv+kivi4:bits=3,", "key=value");
	refused("chunkkv+kivi4:bits=3,bits=3", "'bits'|twice");
	refused("chunkkv+kivi4,bits=3", "'kivi4,bits=3'");
	refused("chunkkv+kivi2+kivi4", "'kivi4'|'kivi2'|one codec");
	refused("chunkkv+kivi2+kivi2", "one codec");
	refused("chunkkv+palu+merge+kivi2", "one codec");
	refused("kivi2+palu", "'palu'|'kivi2'|one codec");
	refused("chunkkv+merge+merge", "one merging");
	refused("merge", "behind a policy");
	refused("merge:fraction=0.5+kivi4", "behind a policy");
	refused("kivi4+snapkv", "'snapkv'|goes first: snapkv+");
	refused("chunkkv+snapkv:window=3", "goes first");
}

/* Where everything is kept, merging would be a wish that is ignored. */
static void merging_of_nothing_is_refused(void **state) {
	(void)state;
	refused("full+merge", "nothing to merge");
	refused("kivi2+merge", "nothing to merge");
	refused("chunkkv:selector=all+merge", "nothing to merge");
	parsed("full:scorer=knorm,selector=topk+merge");
}

static void text_is_read_up_to_1023_characters(void **state) {
	enum { LIMIT = 1023 };
	char text[LIMIT + 2];
	const char *start = "chunkkv+kivi4:group=", *end = "16";
	(void)state;
	memset(text, '0', sizeof text);
	memcpy(text, start, strlen(start));
	memcpy(text + LIMIT - strlen(end), end, strlen(end) + 1);
	ckv_params p = parsed(text);
	assert_int_equal(p.codec.group, 16);
	text[LIMIT - 2] = '0';
	memcpy(text + LIMIT + 1 - strlen(end), end, strlen(end) + 1);
	refused(text, "1023");
}

/* Texts near valid ones: whatever is accepted reads back the same, whatever is not leaves the parameters alone. */
static void mutated_texts_parse_or_leave_the_parameters_alone(void **state) {
	static const char *const seeds[] = {"chunkkv:chunk=10+kivi4:group=64", "snapkv+merge:threshold=-0.25+palu:rank=8",
	                                    "kivi:bits=3,residual=12", "full+palu:energy=0.5,high_bits=8", "adakv+merge+kivi2"};
	static const char letters[] = "chunkvispalumergetdobx:=,0123456789-+ _.";
	rng r = {3};
	int accepted = 0;
	(void)state;
	for (int n = 0; n < 30000; n++) {
		char text[64];
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
		CHECK(ckv_policy_parse(formatted(&p), &q, NULL) == CKV_OK && same_params(&p, &q), "%s became %s", text,
		      formatted(&p));
	}
	assert_true(accepted > 100);
}

/* ckv_codec_use is what the parser goes by. */
static void keys_that_are_used_are_those_that_are_accepted(void **state) {
	(void)state;
	for (size_t i = 0; ckv_codec_info(i); i++) {
		const char *name = ckv_codec_info(i)->name;
		bool merging = strcmp(name, "merge") == 0;
		const ckv_param_info *(*at)(size_t) = merging ? ckv_merge_param_info_at : ckv_codec_param_info_at;
		char text[128], value[64];
		snprintf(text, sizeof text, "snapkv+%s", name);
		ckv_params p = parsed(text), q;
		for (size_t k = 0; at(k); k++) {
			const char *key = at(k)->key;
			size_t n = merging ? ckv_merge_value(&p.merge, key, value, sizeof value)
			                   : ckv_codec_value(&p.codec, key, value, sizeof value);
			assert_true(n > 0 && n < sizeof value);
			snprintf(text, sizeof text, "snapkv+%s:%s=%s", name, key, value);
			bool used = merging ? ckv_merge_use(&p.merge, key) : ckv_codec_use(&p.codec, key);
			CHECK((ckv_policy_parse(text, &q, NULL) == CKV_OK) == used, "%s", text);
			CHECK(!used || same_params(&p, &q), "%s", text);
			CHECK(used == (strstr(ckv_codec_info(i)->uses, key) != NULL || strcmp(key, "bits") == 0) ||
			          strcmp(name, "palu") == 0,
			      "%s", text);
		}
		assert_false(ckv_params_use(&p, "bits"));
	}
	ckv_params p = parsed("palu");
	assert_false(ckv_params_use(&p, "scorer")); /* which its text has no place for */
	assert_true(ckv_codec_use(&p.codec, "energy"));
	p.codec.rank = 3;
	assert_false(ckv_codec_use(&p.codec, "energy"));
	assert_false(ckv_codec_use(&p.codec, "nothing") || ckv_codec_use(&p.codec, NULL) || ckv_codec_use(NULL, "bits"));
	assert_false(ckv_merge_use(&p.merge, "fraction") || ckv_merge_use(NULL, "fraction"));
}

static void values_are_told_as_the_text_has_them(void **state) {
	char value[32];
	(void)state;
	ckv_params p = parsed("snapkv+merge:threshold=-0.25+palu:energy=0.75,mode=reference");
	assert_int_equal(ckv_merge_value(&p.merge, "threshold", value, sizeof value), 5);
	assert_string_equal(value, "-0.25");
	assert_int_equal(ckv_codec_value(&p.codec, "energy", value, sizeof value), 4);
	assert_string_equal(value, "0.75");
	assert_int_equal(ckv_codec_value(&p.codec, "mode", value, 4), 9);
	assert_string_equal(value, "ref");
	assert_int_equal(ckv_codec_value(&p.codec, "nothing", value, sizeof value), 0);
	assert_string_equal(value, "");
	assert_int_equal(ckv_params_value(&p, "mode", value, sizeof value), 5);
	assert_string_equal(value, "exact"); /* of the first part */
}

static void every_number_of_a_part_is_listed_with_its_range(void **state) {
	(void)state;
	const ckv_param_info *(*const lists[])(size_t) = {ckv_codec_param_info_at, ckv_merge_param_info_at};
	for (size_t l = 0; l < 2; l++) {
		size_t k = 0;
		for (; lists[l](k); k++) {
			const ckv_param_info *info = lists[l](k);
			bool found = strcmp(info->key, "mode") == 0;
			for (size_t i = 0; i < N_NUMBERS; i++) {
				found = found || (strcmp(numbers[i].key, info->key) == 0 && same_real(numbers[i].low, info->minimum) &&
				                  same_real(numbers[i].high, info->maximum));
			}
			CHECK(found && info->summary[0], "%s: %g to %g", info->key, info->minimum, info->maximum);
		}
		assert_int_equal(k, l == 0 ? 11 : 2);
		assert_null(lists[l](SIZE_MAX));
	}
	for (size_t i = 0; ckv_codec_info(i); i++) {
		const ckv_method_info *info = ckv_codec_info(i);
		assert_true(info->summary[0] && info->paper[0] && info->uses[0]);
	}
	assert_null(ckv_codec_info(SIZE_MAX));
}

/* --------------------------------------------------------------- contexts */

static ckv_status create(const ckv_params *p, ckv_params *kept, ckv_error *error) {
	ckv_ctx *ctx;
	ckv_status status = ckv_ctx_create(&ctx, p, NULL, error);
	if (status == CKV_OK) {
		*kept = *ckv_ctx_params(ctx);
		ckv_ctx_free(ctx);
	}
	return status;
}

static void contexts_keep_codec_and_merging_by_names_of_the_library(void **state) {
	(void)state;
	char preset[] = "kivi4", kind[] = "kivi", merge[] = "merge";
	ckv_params p = parsed("chunkkv+merge:fraction=0.5+kivi4:group=64"), kept, expected = p;
	p.codec.preset = preset;
	p.codec.kind = kind;
	p.merge.preset = merge;
	assert_int_equal(create(&p, &kept, NULL), CKV_OK);
	preset[0] = kind[0] = merge[0] = 'X';
	assert_true(same_params(&kept, &expected));
}

/* A caller of before there were codecs fills less, or nothing, of what came with them. */
static void zeros_and_shorter_structs_have_no_codec(void **state) {
	(void)state;
	ckv_params plain = parsed("chunkkv"), p = parsed("chunkkv+merge+kivi4"), kept;
	memset(&p.codec, 0, sizeof p.codec);
	memset(&p.merge, 0, sizeof p.merge);
	assert_int_equal(ckv_params_hosted(&p), 0);
	assert_string_equal(formatted(&p), "chunkkv");
	assert_int_equal(create(&p, &kept, NULL), CKV_OK);
	assert_true(same_params(&kept, &plain));
	p = parsed("chunkkv+merge+kivi4");
	p.codec.preset = p.merge.preset = NULL;
	assert_int_equal(ckv_params_hosted(&p), 0);
	p = parsed("chunkkv+merge+kivi4");
	p.codec.size = p.merge.size = 0;
	assert_int_equal(ckv_params_hosted(&p), 0);

	size_t older = offsetof(ckv_params, merge);
	ckv_params *exact = test_memory(older, 1); /* what follows it may not be read */
	memcpy(exact, &plain, older);
	exact->size = older;
	assert_int_equal(ckv_params_hosted(exact), 0);
	assert_string_equal(formatted(exact), "chunkkv");
	assert_int_equal(create(exact, &kept, NULL), CKV_OK);
	assert_true(same_params(&kept, &plain));
	free(exact);
	assert_int_equal(ckv_params_hosted(NULL), 0);
}

static void codecs_are_checked_when_a_context_is_made(void **state) {
	ckv_error error;
	ckv_params kept;
	(void)state;
	for (size_t i = 0; i < N_NUMBERS; i++) {
		char text[64];
		snprintf(text, sizeof text, "%.*s", (int)strcspn(numbers[i].behind, ":"), numbers[i].behind);
		ckv_params p = parsed(text);
		set_number(&p, &numbers[i], numbers[i].high + 1);
		assert_int_equal(create(&p, &kept, &error), CKV_ERR_POLICY);
		CHECK(strstr(error.message, numbers[i].key), "%s", error.message);
		set_number(&p, &numbers[i], numbers[i].low - 1);
		assert_int_equal(create(&p, &kept, &error), CKV_ERR_POLICY);
		if (numbers[i].real) {
			set_number(&p, &numbers[i], NAN);
			assert_int_equal(create(&p, &kept, &error), CKV_ERR_POLICY);
		}
	}
	ckv_params p = parsed("chunkkv+kivi4");
	p.codec.kind = "kiwi";
	assert_int_equal(create(&p, &kept, &error), CKV_ERR_POLICY);
	assert_non_null(strstr(error.message, "'kivi'"));
	p.codec.kind = NULL;
	assert_int_equal(create(&p, &kept, &error), CKV_ERR_ARG);
	p = parsed("chunkkv+kivi4");
	p.codec.size = 8;
	assert_int_equal(create(&p, &kept, &error), CKV_ERR_ARG);
	p = parsed("chunkkv+kivi4");
	p.codec.reference = 2;
	assert_int_equal(create(&p, &kept, &error), CKV_ERR_POLICY);
	p = parsed("chunkkv+kivi4");
	p.codec.rank = -1; /* which kivi has nothing to do with */
	assert_int_equal(create(&p, &kept, &error), CKV_OK);
	p = parsed("chunkkv+merge");
	p.merge.preset = "merg";
	assert_int_equal(create(&p, &kept, &error), CKV_ERR_POLICY);
	assert_non_null(strstr(error.message, "'merge'"));
	p = parsed("chunkkv+merge");
	p.merge.size = 8;
	assert_int_equal(create(&p, &kept, &error), CKV_ERR_ARG);
	p = parsed("chunkkv+merge");
	p.selector = "all";
	assert_int_equal(create(&p, &kept, &error), CKV_ERR_POLICY);
}

/* A codec of the caller's own making is told from the one that is called as its kind. */
static void format_of_ones_own_codec_parses_back(void **state) {
	(void)state;
	ckv_params p = parsed("chunkkv+kivi2:group=64"), q;
	p.codec.preset = "mine";
	assert_string_equal(formatted(&p), "chunkkv+kivi:bits=2,group=64");
	p.codec.preset = "palu"; /* of another kind */
	assert_string_equal(formatted(&p), "chunkkv+kivi:bits=2,group=64");
	p = parsed("kivi2");
	p.scorer = "snapkv";
	p.selector = "topk";
	p.window = 5;
	assert_string_equal(formatted(&p), "full:scorer=snapkv,selector=topk,window=5+kivi2");
	q = parsed(formatted(&p));
	assert_int_equal(q.window, 5);
	p = parsed("kivi2");
	p.codec = parsed("full").codec;
	assert_string_equal(formatted(&p), "full");
}

static void what_the_build_lacks_is_told(void **state) {
	ckv_params p = parsed("chunkkv+palu");
	(void)state;
	assert_int_equal(ckv_codec_available(&p.codec), ckv_low_rank_available());
	p = parsed("chunkkv+kivi2");
	assert_int_equal(ckv_codec_available(&p.codec), 1);
	assert_int_equal(ckv_codec_available(NULL), 1);
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_the_build_lacks_is_told),
	    cmocka_unit_test(codecs_have_the_documented_defaults),
	    cmocka_unit_test(policies_without_codec_and_merging_have_none),
	    cmocka_unit_test(values_given_are_values_read),
	    cmocka_unit_test(the_order_of_merge_and_codec_is_free),
	    cmocka_unit_test(a_policy_has_one_text),
	    cmocka_unit_test(formatted_policies_read_back_the_same),
	    cmocka_unit_test(format_cuts_like_snprintf),
	    cmocka_unit_test(unknown_parts_and_keys_name_the_nearest),
	    cmocka_unit_test(keys_that_a_part_does_not_read_are_refused),
	    cmocka_unit_test(values_out_of_range_are_named_with_their_range),
	    cmocka_unit_test(malformed_values_are_refused),
	    cmocka_unit_test(malformed_texts_are_refused),
	    cmocka_unit_test(merging_of_nothing_is_refused),
	    cmocka_unit_test(text_is_read_up_to_1023_characters),
	    cmocka_unit_test(mutated_texts_parse_or_leave_the_parameters_alone),
	    cmocka_unit_test(keys_that_are_used_are_those_that_are_accepted),
	    cmocka_unit_test(values_are_told_as_the_text_has_them),
	    cmocka_unit_test(every_number_of_a_part_is_listed_with_its_range),
	    cmocka_unit_test(contexts_keep_codec_and_merging_by_names_of_the_library),
	    cmocka_unit_test(zeros_and_shorter_structs_have_no_codec),
	    cmocka_unit_test(codecs_are_checked_when_a_context_is_made),
	    cmocka_unit_test(format_of_ones_own_codec_parses_back),
	};
	return cmocka_run_group_tests_name("codec policy", tests, NULL, NULL);
}
