/* Where chunks end in a text, and selections over chunks that the caller gave. In the tables a bar stands where a chunk
 * begins. */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 400 };

static ckv_params params_of(const char *chunker, int32_t max_chunk) {
	ckv_params p;
	ckv_params_default(&p);
	p.chunker = chunker;
	p.max_chunk = max_chunk;
	return p;
}

/* A text without its terminating zero, in memory of its own: a byte read beyond it is found out. */
typedef struct plain {
	char *text;
	size_t size, ends[MOST];
	int32_t n, starts[MOST], n_chunks;
} plain;

static void plain_free(plain *x) { free(x->text); }

/* Byte by byte as tokens. */
static plain bytes_of(const char *text, size_t size) {
	plain x = {.text = test_memory(size, 1), .size = size, .n = (int32_t)size};
	memcpy(x.text, text, size);
	for (size_t i = 0; i < size; i++) {
		x.ends[i] = i + 1;
	}
	return x;
}

static void chunk(plain *x, const char *chunker, int32_t max_chunk) {
	ckv_params p = params_of(chunker, max_chunk);
	paint(x->starts, sizeof x->starts);
	assert_int_equal(ckv_chunk_text(&p, x->text, x->ends, x->n, x->starts, &x->n_chunks), CKV_OK);
	CHECK(x->n_chunks >= 1 && x->n_chunks <= x->n && x->starts[0] == 0, "%d chunks", x->n_chunks);
	for (int32_t i = 1; i < x->n_chunks; i++) {
		CHECK(x->starts[i] > x->starts[i - 1] && x->starts[i] < x->n, "chunk %d at %d", i, x->starts[i]);
	}
	CHECK(is_painted(x->starts + x->n, sizeof x->starts - (size_t)x->n * sizeof *x->starts), "too many chunks");
}

/* The text with a bar before each chunk but the first. */
static void show(const plain *x, char *out) {
	for (int32_t i = 0, next = 1; i < x->n; i++) {
		if (next < x->n_chunks && x->starts[next] == i) {
			*out++ = '|';
			next++;
		}
		*out++ = x->text[i];
	}
	*out = '\0';
}

/* `marked` holds bars where chunks are expected to begin. */
static void check_marked(const char *chunker, const char *marked) {
	char text[MOST], shown[2 * MOST];
	size_t n = 0;
	for (const char *at = marked; *at; at++) {
		text[n] = *at;
		n += *at != '|';
	}
	plain x = bytes_of(text, n);
	chunk(&x, chunker, MOST);
	show(&x, shown);
	CHECK(strcmp(shown, marked) == 0, "%s: '%s' instead of '%s'", chunker, shown, marked);
	plain_free(&x);
}

static void check_table(const char *chunker, const char *const *table) {
	for (size_t i = 0; table[i]; i++) {
		check_marked(chunker, table[i]);
	}
}

/* ------------------------------------------------------------------ rules */

static void lines_end_after_their_newline(void **state) {
	static const char *const table[] = {
	    "one\n|two\n|three",
	    "one\n|two\n",  /* nothing follows */
	    "one\n|\n|two", /* an empty line is a line */
	    "\n|one",
	    "one\r\n|two\r\n|\r\n|three",
	    "na\xc3\xafve\n|\xe6\x97\xa5\xe6\x9c\xac\n|x",
	    "no line ends here. Or here! ",
	    "x",
	    NULL,
	};
	(void)state;
	check_table("line", table);
}

static void sentences_end_before_the_space_after_a_stop(void **state) {
	static const char *const table[] = {
	    "One.| Two!| Three?| Four",
	    "One.|  Two", /* the first of several spaces */
	    "One.|\nTwo.|\r\nThree",
	    "Wait...| Go.| Wait\xe2\x80\xa6| Go",
	    "It costs 3.50 a piece.| Or v1.2 of it.| Www.example.org is one word",
	    "\xc3\x9c"
	    "ber.| \xc3\x84rger",
	    "no boundary here",
	    "One.",
	    "One. ",
	    "One.  \n", /* nothing follows */
	    NULL,
	};
	(void)state;
	check_table("sentence", table);
}

static void a_small_letter_after_a_stop_goes_on(void **state) {
	static const char *const table[] = {
	    "Some, e.g. this one, i.e. that.| Then",
	    "\"Stop!\" he said.| \"Why?\" she asked.| He left",
	    NULL,
	};
	(void)state;
	check_table("sentence", table);
}

static void quotes_and_brackets_close_with_their_sentence(void **state) {
	static const char *const table[] = {
	    "\"Stop!\"| He left.| (They stayed.)| [So.]| 'Yes.'| No",
	    "She said: \"(No.)\"| He left", /* several of them */
	    "\xe2\x80\x9cStop.\xe2\x80\x9d| Then \xe2\x80\x98no.\xe2\x80\x99| Then \xc2\xabnon.\xc2\xbb| Then",
	    NULL,
	};
	(void)state;
	check_table("sentence", table);
}

static void wide_stops_need_no_space(void **state) {
	static const char *const table[] = {
	    "\xe4\xbb\x8a\xe6\x97\xa5\xe3\x80\x82|\xe6\x98\x8e\xe6\x97\xa5\xef\xbc\x81|\xe4\xbd\x95\xef\xbc\x9f|x",
	    "\xe4\xbb\x8a\xe3\x80\x82", /* nothing follows */
	    NULL,
	};
	(void)state;
	check_table("sentence", table);
}

/* A heading has no stop. */
static void a_blank_line_ends_a_sentence(void **state) {
	static const char *const table[] = {
	    "Heading\n\n|Text here.| More",
	    "Heading\r\n\r\n|Text",
	    "one line\nand another",
	    NULL,
	};
	(void)state;
	check_table("sentence", table);
}

/* What stands between two sentences belongs to one of them. */
static void white_space_alone_is_no_sentence(void **state) {
	static const char *const table[] = {
	    "One.\n\n|Two.| Three",
	    "One!\r\n\r\n|Two",
	    NULL,
	};
	(void)state;
	check_table("sentence", table);
}

static void paragraphs_end_after_blank_lines(void **state) {
	static const char *const table[] = {
	    "one\n\n|two",
	    "one\nstill one\n\n|two\n",
	    "one\n\n\n\n|two", /* all of them */
	    "one\r\n\r\n|two\r\nstill two",
	    "one\n \t\n|two", /* blank, not empty */
	    "one. Still one.\n\n|two",
	    "one\n\n", /* nothing follows */
	    "one\n\n  \n",
	    "no blank line\nhere",
	    "\xe6\x97\xa5\n\n|\xe6\x9c\xac",
	    NULL,
	};
	(void)state;
	check_table("paragraph", table);
}

/* Code and lists begin with spaces; so do the paragraphs of books. */
static void a_paragraph_may_be_indented(void **state) {
	static const char *const table[] = {
	    "one\n\n|  two\n  still two\n\n|\tthree",
	    "one\r\n\r\n|  two",
	    "one\n  still one\n\n|two",
	    NULL,
	};
	(void)state;
	check_table("paragraph", table);
}

/* ----------------------------------------------------------------- tokens */

static const char *const rules[] = {"line", "sentence", "paragraph"};

/* Letters, stops and newlines by chance: chunks are short. */
static plain random_text(rng *r) {
	static const char *const pieces[] = {"a",    "B",   " ",  ".", "\n", "\n\n", "! ", "\xc3\xa9", "\xe3\x80\x82",
	                                     "\r\n", "\" ", "? C"};
	char text[MOST];
	size_t size = 0, most = (size_t)rng_range(r, 1, MOST - 8);
	do {
		const char *piece = pieces[rng_range(r, 0, 11)];
		memcpy(text + size, piece, strlen(piece));
		size += strlen(piece);
	} while (size < most);
	return bytes_of(text, size);
}

/* The same text in longer tokens, some of them empty. */
static plain retokenised(const plain *x, rng *r) {
	plain y = *x;
	size_t end = 0;
	y.text = test_memory(x->size, 1);
	memcpy(y.text, x->text, x->size);
	for (y.n = 0; end < x->size; y.n++) {
		size_t step = (size_t)rng_range(r, rng_chance(r, 5) && y.n < MOST / 2 ? 0 : 1, 6);
		end = end + step < x->size ? end + step : x->size;
		y.ends[y.n] = end;
	}
	return y;
}

/* Whether a chunk of bytes begins after byte `from`, up to `to`. */
static bool begins_between(const plain *bytes, size_t from, size_t to) {
	for (int32_t i = 1; i < bytes->n_chunks; i++) {
		if ((size_t)bytes->starts[i] > from && (size_t)bytes->starts[i] <= to) {
			return true;
		}
	}
	return false;
}

static bool is_start(const plain *x, int32_t token) {
	for (int32_t i = 0; i < x->n_chunks; i++) {
		if (x->starts[i] == token) {
			return true;
		}
	}
	return false;
}

/* A token belongs to the chunk of its first byte: it begins one if a chunk began since the first byte of the token before.
 */
static void tokens_belong_to_the_chunk_of_their_first_byte(void **state) {
	rng r = {1};
	(void)state;
	for (int n = 0; n < 600; n++) {
		plain bytes = random_text(&r), x = retokenised(&bytes, &r);
		chunk(&bytes, rules[n % 3], MOST);
		chunk(&x, rules[n % 3], MOST);
		for (int32_t i = 1; i < x.n; i++) {
			bool expected = begins_between(&bytes, i > 1 ? x.ends[i - 2] : 0, x.ends[i - 1]);
			CHECK(is_start(&x, i) == expected, "case %d (%s): token %d of %d", n, rules[n % 3], i, x.n);
		}
		plain_free(&bytes);
		plain_free(&x);
	}
}

/* Within a word as within a character of several bytes. */
static void a_token_may_end_inside_a_word(void **state) {
	(void)state;
	plain x = bytes_of("One. T\xc3\xa9o.", 11);
	const size_t ends[] = {2, 6, 7, 11}; /* On|e. T|first byte of e acute|rest */
	memcpy(x.ends, ends, sizeof ends);
	x.n = 4;
	chunk(&x, "sentence", MOST);
	assert_int_equal(x.n_chunks, 2); /* token 1 begins in the first sentence, token 2 in the second */
	assert_int_equal(x.starts[1], 2);
	plain_free(&x);
}

static void a_text_without_any_boundary_is_one_chunk(void **state) {
	(void)state;
	for (size_t i = 0; i < 3; i++) {
		plain x = bytes_of("just some words and no end", 26);
		chunk(&x, rules[i], MOST);
		assert_int_equal(x.n_chunks, 1);
		plain_free(&x);
	}
}

/* Chunks longer than max_chunk: as few parts as will do, nearly equal, and no other boundary moves. */
static void long_chunks_are_cut_into_nearly_equal_parts(void **state) {
	rng r = {2};
	(void)state;
	for (int n = 0; n < 600; n++) {
		plain whole = random_text(&r), x = whole;
		int32_t most = rng_range(&r, 1, 20), at = 0;
		x.text = test_memory(x.size, 1);
		memcpy(x.text, whole.text, x.size);
		chunk(&whole, rules[n % 3], MOST);
		chunk(&x, rules[n % 3], most);
		for (int32_t i = 0; i < whole.n_chunks; i++) {
			int32_t end = i + 1 < whole.n_chunks ? whole.starts[i + 1] : whole.n, length = end - whole.starts[i];
			int32_t parts = (length + most - 1) / most;
			for (int32_t p = 0; p < parts; p++, at++) {
				int32_t next = at + 1 < x.n_chunks ? x.starts[at + 1] : x.n, size = next - x.starts[at];
				CHECK(at < x.n_chunks && (p || x.starts[at] == whole.starts[i]), "case %d, chunk %d", n, i);
				CHECK(size <= most && (size == length / parts || size == length / parts + 1),
				      "case %d, chunk %d: a part of %d", n, i, size);
			}
		}
		CHECK(at == x.n_chunks, "case %d: %d chunks", n, x.n_chunks);
		plain_free(&whole);
		plain_free(&x);
	}
}

static void fixed_chunks_ignore_the_text(void **state) {
	int32_t starts[25], n_chunks;
	ckv_params p;
	(void)state;
	ckv_params_default(&p);
	p.chunk = 7;
	assert_int_equal(ckv_chunk_text(&p, NULL, NULL, 25, starts, &n_chunks), CKV_OK);
	assert_int_equal(n_chunks, 4);
	for (int32_t i = 0; i < 4; i++) {
		assert_int_equal(starts[i], 7 * i);
	}
	p.chunk = 100;
	assert_int_equal(ckv_chunk_text(&p, NULL, NULL, 25, starts, &n_chunks), CKV_OK);
	assert_int_equal(n_chunks, 1);
}

/* ----------------------------------------------------------------- errors */

/* Refused, and nothing written. */
static void refused(const ckv_params *p, const char *text, const size_t *ends, int32_t n, ckv_status expected) {
	int32_t starts[8], n_chunks;
	paint(starts, sizeof starts);
	paint(&n_chunks, sizeof n_chunks);
	ckv_status status = ckv_chunk_text(p, text, ends, n, starts, &n_chunks);
	CHECK(status == expected, "%s instead of %s", ckv_strerror(status), ckv_strerror(expected));
	CHECK(is_painted(&n_chunks, sizeof n_chunks), "n_chunks was written");
	CHECK(is_painted(starts, sizeof starts), "starts were written");
}

static void bad_arguments_are_refused(void **state) {
	static const size_t ends[] = {2, 4, 6};
	int32_t starts[3], n_chunks;
	(void)state;
	ckv_params p = params_of("line", 64), bad = p;
	refused(NULL, "a\nb\nc\n", ends, 3, CKV_ERR_ARG);
	refused(&p, NULL, ends, 3, CKV_ERR_ARG);
	refused(&p, "a\nb\nc\n", NULL, 3, CKV_ERR_ARG);
	refused(&p, "a\nb\nc\n", ends, 0, CKV_ERR_ARG);
	refused(&p, "a\nb\nc\n", ends, -3, CKV_ERR_ARG);
	assert_int_equal(ckv_chunk_text(&p, "a\nb\nc\n", ends, 3, NULL, &n_chunks), CKV_ERR_ARG);
	assert_int_equal(ckv_chunk_text(&p, "a\nb\nc\n", ends, 3, starts, NULL), CKV_ERR_ARG);
	bad.max_chunk = 0;
	refused(&bad, "a\nb\nc\n", ends, 3, CKV_ERR_ARG);
	bad = p;
	bad.chunker = NULL;
	refused(&bad, "a\nb\nc\n", ends, 3, CKV_ERR_ARG);
	bad.chunker = "lines";
	refused(&bad, "a\nb\nc\n", ends, 3, CKV_ERR_POLICY);
}

static void ends_that_fall_are_refused(void **state) {
	static const size_t bad[][4] = {{4, 2, 6, 8}, {2, 6, 4, 8}, {2, 4, 8, 6}, {2, 4, 6, 0}};
	(void)state;
	ckv_params p = params_of("line", 64);
	for (size_t i = 0; i < 4; i++) {
		refused(&p, "a\nb\nc\nd\n", bad[i], 4, CKV_ERR_ARG);
	}
}

/* ----------------------------------------------------------- given chunks */

static void chunkers_other_than_fixed_need_chunks(void **state) {
	static const struct {
		const char *policy;
		uint32_t flags;
	} cases[] = {{"chunkkv", 0},
	             {"chunkkv:chunker=line", CKV_NEED_CHUNKS},
	             {"egchunkkv:chunker=sentence", CKV_NEED_CHUNKS},
	             {"hybrid:chunker=paragraph", CKV_NEED_CHUNKS},
	             {"snapkv", 0}};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		ckv_params p;
		ckv_needs needs;
		assert_int_equal(ckv_policy_parse(cases[i].policy, &p, NULL), CKV_OK);
		assert_int_equal(ckv_params_needs(&p, &needs), CKV_OK);
		CHECK((needs.flags & CKV_NEED_CHUNKS) == cases[i].flags, "%s", cases[i].policy);
	}
}

static ckv_status try_select(ckv_ctx *ctx, int32_t n_tokens, selected *s) {
	static const float scores[64] = {0};
	static int32_t positions[64], offsets[2];
	ckv_keep_init(&s->keep, positions, 64, offsets);
	return ckv_select_scores(ctx, scores, 1, n_tokens, ckv_keep_tokens(30), &s->keep);
}

static void chunks_of_another_length_are_a_wrong_state(void **state) {
	static const int32_t starts[] = {0, 10, 20};
	selected s;
	(void)state;
	ckv_ctx *ctx = make_ctx("chunkkv:chunker=line");
	assert_int_equal(try_select(ctx, 40, &s), CKV_ERR_STATE);
	assert_non_null(strstr(ckv_ctx_message(ctx), "ckv_set_chunks"));
	assert_int_equal(ckv_set_chunks(ctx, starts, 3, 40), CKV_OK);
	assert_int_equal(try_select(ctx, 40, &s), CKV_OK);
	assert_int_equal(try_select(ctx, 40, &s), CKV_OK); /* they hold until set again */
	assert_int_equal(try_select(ctx, 41, &s), CKV_ERR_STATE);
	assert_non_null(strstr(ckv_ctx_message(ctx), "41"));
	assert_int_equal(try_select(ctx, 39, &s), CKV_ERR_STATE);
	assert_int_equal(ckv_set_chunks(ctx, starts, 3, 41), CKV_OK);
	assert_int_equal(try_select(ctx, 41, &s), CKV_OK);
	assert_int_equal(ckv_set_chunks(ctx, NULL, 0, 0), CKV_OK); /* taken back */
	assert_int_equal(try_select(ctx, 41, &s), CKV_ERR_STATE);
	ckv_ctx_free(ctx);
}

static void bad_chunks_are_refused_and_the_old_ones_hold(void **state) {
	static const struct {
		int32_t starts[4], n_chunks, n_tokens;
	} bad[] = {
	    {{0, 10, 20, 30}, 0, 40},  {{0, 10, 20, 30}, -1, 40}, {{0, 10, 20, 30}, 4, 0},  {{1, 10, 20, 30}, 4, 40},
	    {{0, 10, 10, 30}, 4, 40},  {{0, 20, 10, 30}, 4, 40},  {{0, 10, 20, 40}, 4, 40}, {{0, 10, 20, 50}, 4, 40},
	    {{0, -10, 20, 30}, 4, 40}, {{0, 1, 2, 3}, 4, 3},      {{0, 10, 20, 30}, 4, 51}, {{0, 21, 30, 35}, 4, 40},
	    {{0, 10, 20, 30}, 4, -40},
	};
	static const int32_t good[] = {0, 20, 40};
	selected s;
	(void)state;
	ckv_ctx *ctx = make_ctx("chunkkv:chunker=line,max_chunk=20");
	assert_int_equal(ckv_set_chunks(ctx, good, 3, 60), CKV_OK);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		ckv_status status = ckv_set_chunks(ctx, bad[i].starts, bad[i].n_chunks, bad[i].n_tokens);
		CHECK(status == CKV_ERR_ARG && ckv_ctx_message(ctx)[0], "case %zu: %s", i, ckv_strerror(status));
	}
	assert_int_equal(ckv_set_chunks(ctx, NULL, 3, 60), CKV_ERR_ARG);
	assert_int_equal(ckv_set_chunks(NULL, good, 3, 60), CKV_ERR_ARG);
	assert_int_equal(try_select(ctx, 60, &s), CKV_OK);
	ckv_ctx_free(ctx);
}

/* The chunks of `starts` by their means, whole, best first; the first that does not fit gives its best tokens. */
static void naive_select(const double *u, const int32_t *starts, int32_t n_chunks, int32_t budget, unsigned char *kept) {
	bool used[MOST] = {false};
	while (budget > 0) {
		int32_t best = -1;
		float best_mean = 0.0f;
		for (int32_t i = 0; i < n_chunks; i++) {
			double sum = 0.0;
			int32_t open = 0;
			for (int32_t t = starts[i]; t < starts[i + 1]; t++) {
				sum += kept[t] ? 0.0 : u[t];
				open += !kept[t];
			}
			float mean = (float)sum / (float)open;
			if (!used[i] && open && (best < 0 || mean > best_mean)) {
				best = i;
				best_mean = mean;
			}
		}
		int32_t open = 0;
		used[best] = true;
		for (int32_t t = starts[best]; t < starts[best + 1]; t++) {
			open += !kept[t];
		}
		open = open < budget ? open : budget;
		naive_best(u, starts[best], starts[best + 1], open, kept);
		budget -= open;
	}
}

/* Protected tokens count neither in a chunk's mean nor in its length. */
static void given_chunks_are_kept_whole(void **state) {
	enum { G = 2 };
	rng r = {3};
	(void)state;
	for (int n = 0; n < 1500; n++) {
		float scores[G * MOST];
		double u[MOST];
		unsigned char expected[MOST] = {0};
		int32_t starts[MOST + 1], n_chunks = 0, n_tokens = rng_range(&r, 2, 120), at = 0;
		int32_t budget = rng_range(&r, 1, n_tokens - 1), window = rng_range(&r, 1, 8), sinks = rng_range(&r, 0, 4);
		char policy[96];
		for (; at < n_tokens; at += rng_range(&r, 1, 20)) {
			starts[n_chunks++] = at;
		}
		starts[n_chunks] = n_tokens;
		exact_scores(&r, scores, G * n_tokens);
		for (int32_t t = 0; t < n_tokens; t++) {
			u[t] = (double)scores[t] + (double)scores[n_tokens + t];
		}
		snprintf(policy, sizeof policy, "chunkkv:chunker=line,window=%d,sinks=%d", window, sinks);
		ckv_ctx *ctx = make_ctx(policy);
		assert_int_equal(ckv_set_chunks(ctx, starts, n_chunks, n_tokens), CKV_OK);
		int32_t left = naive_protect(n_tokens, sinks, window, budget, expected);
		naive_select(u, starts, n_chunks, left, expected);
		starts[0] = 99; /* they were copied */
		selected s = select_scores(ctx, scores, G, n_tokens, ckv_keep_tokens(budget));
		CHECK(s.keep.n_lists == 1 && s.keep.n_keep == budget, "case %d: %d of %d", n, s.keep.n_keep, budget);
		for (int32_t t = 0; t < n_tokens; t++) {
			CHECK(s.mask[t] == expected[t], "case %d, %s, T %d, budget %d: token %d", n, policy, n_tokens, budget, t);
		}
		selected_free(&s);
		ckv_ctx_free(ctx);
	}
}

/* In both modes, for every selector that knows chunks. */
static void chunks_of_equal_length_are_as_good_as_fixed_ones(void **state) {
	enum { T = 57, C = 10, G = 2 };
	static const char *const presets[] = {"chunkkv", "egchunkkv", "chunkkv:mode=reference", "egchunkkv:mode=reference"};
	static const int32_t starts[] = {0, 10, 20, 30, 40, 50};
	rng r = {4};
	float scores[G * T];
	(void)state;
	for (int n = 0; n < 400; n++) {
		char policy[96];
		exact_scores(&r, scores, G * T);
		snprintf(policy, sizeof policy, "%s%schunker=line", presets[n % 4], n % 4 < 2 ? ":" : ",");
		ckv_ctx *fixed = make_ctx(presets[n % 4]), *given = make_ctx(policy);
		assert_int_equal(ckv_set_chunks(given, starts, 6, T), CKV_OK);
		assert_int_equal(ckv_set_chunks(fixed, starts, 3, 33), CKV_OK); /* of which "fixed" takes no notice */
		ckv_budget budget = n % 3 ? ckv_keep_tokens(rng_range(&r, 1, T)) : ckv_remove_fraction(rng_range(&r, 0, 99) * 0.01);
		selected a = select_scores(fixed, scores, G, T, budget), b = select_scores(given, scores, G, T, budget);
		CHECK(same_selected(&a, &b), "case %d: %s", n, policy);
		selected_free(&a);
		selected_free(&b);
		ckv_ctx_free(fixed);
		ckv_ctx_free(given);
	}
}

/* max(1, floor(n_chunks (1 - r))) of them, however long. */
static void reference_mode_counts_given_chunks(void **state) {
	enum { T = 30 };
	static const int32_t starts[] = {0, 1, 4, 24, 29};
	float scores[T];
	(void)state;
	for (int t = 0; t < T; t++) {
		scores[t] = t < 1 ? 2.0f : t < 4 ? 3.0f : t < 24 ? 4.0f : t < 29 ? 1.0f : 5.0f;
	}
	ckv_ctx *ctx = make_ctx("chunkkv:mode=reference,chunker=line");
	assert_int_equal(ckv_set_chunks(ctx, starts, 5, T), CKV_OK);
	selected s = select_scores(ctx, scores, 1, T, ckv_remove_fraction(0.5));
	assert_int_equal(s.keep.n_keep, 21); /* the last token and the 20 of the third chunk */
	assert_true(s.mask[4] && s.mask[23] && s.mask[29]);
	selected_free(&s);
	ckv_ctx_free(ctx);
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(lines_end_after_their_newline),
	    cmocka_unit_test(sentences_end_before_the_space_after_a_stop),
	    cmocka_unit_test(a_small_letter_after_a_stop_goes_on),
	    cmocka_unit_test(quotes_and_brackets_close_with_their_sentence),
	    cmocka_unit_test(wide_stops_need_no_space),
	    cmocka_unit_test(a_blank_line_ends_a_sentence),
	    cmocka_unit_test(white_space_alone_is_no_sentence),
	    cmocka_unit_test(paragraphs_end_after_blank_lines),
	    cmocka_unit_test(a_paragraph_may_be_indented),
	    cmocka_unit_test(tokens_belong_to_the_chunk_of_their_first_byte),
	    cmocka_unit_test(a_token_may_end_inside_a_word),
	    cmocka_unit_test(a_text_without_any_boundary_is_one_chunk),
	    cmocka_unit_test(long_chunks_are_cut_into_nearly_equal_parts),
	    cmocka_unit_test(fixed_chunks_ignore_the_text),
	    cmocka_unit_test(bad_arguments_are_refused),
	    cmocka_unit_test(ends_that_fall_are_refused),
	    cmocka_unit_test(chunkers_other_than_fixed_need_chunks),
	    cmocka_unit_test(chunks_of_another_length_are_a_wrong_state),
	    cmocka_unit_test(bad_chunks_are_refused_and_the_old_ones_hold),
	    cmocka_unit_test(given_chunks_are_kept_whole),
	    cmocka_unit_test(chunks_of_equal_length_are_as_good_as_fixed_ones),
	    cmocka_unit_test(reference_mode_counts_given_chunks),
	};
	return cmocka_run_group_tests_name("chunker", tests, NULL, NULL);
}
