/* Policy texts: what parses, what is refused and how helpfully, and that a formatted policy reads back the same. */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- helpers */

static bool same_params(const ckv_params *a, const ckv_params *b) {
	return strcmp(a->preset, b->preset) == 0 && strcmp(a->scorer, b->scorer) == 0 && strcmp(a->selector, b->selector) == 0 &&
	       a->window == b->window && a->kernel == b->kernel && a->chunk == b->chunk && a->sinks == b->sinks &&
	       a->reference == b->reference;
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

static bool reads(const ckv_params *params, const char *key) {
	const ckv_method_info *scorer = listed(ckv_scorer_info, params->scorer);
	const ckv_method_info *selector = listed(ckv_selector_info, params->selector);
	return (scorer && in_list(scorer->uses, key)) || (selector && in_list(selector->uses, key));
}

static int32_t *number_field(ckv_params *params, const char *key) {
	return strcmp(key, "window") == 0   ? &params->window
	       : strcmp(key, "kernel") == 0 ? &params->kernel
	       : strcmp(key, "chunk") == 0  ? &params->chunk
	       : strcmp(key, "sinks") == 0  ? &params->sinks
	                                    : NULL;
}

/* Random valid values for what the policy reads; the rest stays as the preset has it. */
static ckv_params random_params(rng *r, const ckv_params *preset) {
	ckv_params p = *preset;
	size_t n_selectors = 0;
	while (ckv_selector_info(n_selectors)) {
		n_selectors++;
	}
	if (rng_chance(r, 2)) {
		p.scorer = "snapkv";
	}
	if (strcmp(p.scorer, "none") != 0 && rng_chance(r, 2)) {
		p.selector = ckv_selector_info((size_t)rng_range(r, 0, (int32_t)n_selectors - 1))->name;
	}
	for (size_t i = 0; ckv_param_info_at(i); i++) {
		const ckv_param_info *info = ckv_param_info_at(i);
		bool needed = strcmp(info->key, "window") == 0 && p.window < 1;
		if (info->maximum == 0 || !reads(&p, info->key) || (!needed && rng_chance(r, 3))) {
			continue;
		}
		int32_t low = info->minimum > 1 ? info->minimum : 1;
		int32_t value = rng_range(r, low, rng_chance(r, 2) ? info->maximum : low + 30);
		*number_field(&p, info->key) = strcmp(info->key, "kernel") == 0 ? value | 1 : value;
	}
	p.reference = reads(&p, "mode") ? rng_range(r, 0, 1) : p.reference;
	return p;
}

/* ------------------------------------------------------------------ tests */

static void presets_have_the_documented_defaults(void **state) {
	(void)state;
	ckv_params chunkkv = {sizeof chunkkv, "chunkkv", "snapkv", "chunk", 16, 5, 10, 4, 0}, params;
	ckv_params snapkv = {sizeof snapkv, "snapkv", "snapkv", "topk", 16, 5, 10, 4, 0};
	ckv_params_default(&params);
	assert_true(same_params(&params, &chunkkv));
	assert_int_equal(params.size, sizeof params);
	params = parsed("chunkkv");
	assert_true(same_params(&params, &chunkkv));
	params = parsed("snapkv");
	assert_true(same_params(&params, &snapkv));
	params = parsed("full");
	assert_string_equal(params.scorer, "none");
	assert_string_equal(params.selector, "all");
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
}

static void formatted_policies_read_back_the_same(void **state) {
	rng r = {1};
	(void)state;
	for (size_t i = 0; ckv_preset_info(i); i++) {
		ckv_params preset = parsed(ckv_preset_info(i)->name);
		for (int n = 0; n < 2000; n++) {
			char text[256];
			ckv_params params = random_params(&r, &preset);
			assert_true(ckv_policy_format(&params, text, sizeof text) < sizeof text);
			ckv_params again = parsed(text);
			CHECK(same_params(&params, &again), "%s", text);
		}
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
}

static void numbers_are_accepted_exactly_within_their_range(void **state) {
	(void)state;
	for (size_t i = 0; ckv_param_info_at(i); i++) {
		const ckv_param_info *info = ckv_param_info_at(i);
		char text[64];
		if (info->maximum == 0) {
			continue;
		}
		/* The scorer needs a window, so that 0 is out of its reach for another reason. */
		int32_t low = strcmp(info->key, "window") == 0 ? 1 : info->minimum;
		snprintf(text, sizeof text, "chunkkv:%s=%d", info->key, low);
		ckv_params p = parsed(text);
		assert_int_equal(*number_field(&p, info->key), low);
		snprintf(text, sizeof text, "chunkkv:%s=%d", info->key, info->maximum);
		p = parsed(text);
		assert_int_equal(*number_field(&p, info->key), info->maximum);
		snprintf(text, sizeof text, "chunkkv:%s=%d", info->key, info->minimum - 1);
		refused(text);
		snprintf(text, sizeof text, "chunkkv:%s=%d", info->key, info->maximum + 1);
		refused(text);
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
	static const char *const seeds[] = {"chunkkv:chunk=10,window=32", "snapkv:sinks=4,kernel=7,mode=reference",
	                                    "full:scorer=snapkv,selector=chunk,window=1"};
	static const char letters[] = "chunkvsapwidorelft:=,0123456789-+ _.";
	rng r = {2};
	int accepted = 0;
	(void)state;
	for (int n = 0; n < 30000; n++) {
		char text[64], again[128];
		snprintf(text, sizeof text, "%s", seeds[rng_range(&r, 0, 2)]);
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
	const ckv_method_info *(*lists[])(size_t) = {ckv_scorer_info, ckv_selector_info};
	(void)state;
	for (size_t l = 0; l < 2; l++) {
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

static void needs_follow_the_scorer(void **state) {
	(void)state;
	ckv_needs needs;
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
	for (int i = CKV_SELECTED; i <= CKV_KEPT_ALL_SLIDING; i++) {
		assert_string_not_equal(ckv_reason_text((ckv_reason)i), unknown_reason);
		for (int j = CKV_SELECTED; j < i; j++) {
			assert_string_not_equal(ckv_reason_text((ckv_reason)i), ckv_reason_text((ckv_reason)j));
		}
	}
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(presets_have_the_documented_defaults),
	    cmocka_unit_test(every_preset_parses_and_formats_as_its_name),
	    cmocka_unit_test(values_given_are_values_read),
	    cmocka_unit_test(formatted_policies_read_back_the_same),
	    cmocka_unit_test(only_what_differs_from_the_preset_is_written),
	    cmocka_unit_test(format_cuts_like_snprintf),
	    cmocka_unit_test(format_of_no_policy_is_empty),
	    cmocka_unit_test(format_of_ones_own_parameters_parses_back),
	    cmocka_unit_test(format_survives_a_name_of_any_length),
	    cmocka_unit_test(unknown_presets_name_the_nearest),
	    cmocka_unit_test(unknown_keys_name_the_nearest),
	    cmocka_unit_test(unknown_values_name_the_nearest),
	    cmocka_unit_test(a_key_the_policy_does_not_read_is_refused),
	    cmocka_unit_test(numbers_are_accepted_exactly_within_their_range),
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
	    cmocka_unit_test(needs_follow_the_scorer),
	    cmocka_unit_test(every_status_and_reason_has_its_own_phrase),
	};
	return cmocka_run_group_tests_name("policy", tests, NULL, NULL);
}
