/* Parts of `chunkkv inspect` that need no model: shares of tokens, the text shown by them, layers compared, the page. */
#define _POSIX_C_SOURCE 200809L
#include "inspect.h"
#include "inspect_figures.h"
#include "inspect_stored.h"
#include "inspect_text.h"

#include <jansson.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define LENGTH(array) ((int32_t)(sizeof(array) / sizeof *(array)))

/* ---------------------------------------------------------------------------------------------------------------- shares */

static void set_kept(inspected *p, int32_t layer, const kept_list *lists, int32_t n, int32_t n_tokens) {
	assert_true(kept_copy(&p->kept[layer], lists, n, n_tokens));
}

static void a_token_s_share_is_that_of_the_layers_and_heads_that_keep_it(void **state) {
	static const int32_t a[] = {0, 2}, b[] = {0}, c[] = {0, 1};
	const kept_list one[] = {{a, 2}}, two[] = {{b, 1}, {c, 2}};
	inspected p = {.policy = "p"};
	(void)state;
	assert_true(inspected_make(&p, 2, 4));
	set_kept(&p, 0, one, 1, 4);
	set_kept(&p, 1, two, 2, 4);
	kept_share(&p, 2);
	assert_float_equal(p.share[0], 1.0f, 0.0f);
	assert_float_equal(p.share[1], 0.25f, 1e-6f);
	assert_float_equal(p.share[2], 0.5f, 1e-6f);
	assert_float_equal(p.share[3], 0.0f, 0.0f);
	const inspection in = {.n_tokens = 4};
	assert_float_equal(inspect_share(&in, &p), 1.75 / 4.0, 1e-6);
	inspected_free(&p, 2);
}

static void a_layer_without_lists_keeps_everything(void **state) {
	enum { LAYERS = 31 };
	inspected p = {.policy = "p"};
	(void)state;
	assert_true(inspected_make(&p, LAYERS, 5));
	for (int32_t i = 0; i < LAYERS; i++) {
		set_kept(&p, i, NULL, 0, 5);
	}
	kept_share(&p, LAYERS);
	for (int32_t t = 0; t < 5; t++) {
		assert_int_equal(text_step((double)p.share[t]), N_STEPS - 1); /* however rounding went */
	}
	assert_int_equal(p.kept[0].n_keep, 5);
	inspected_free(&p, LAYERS);
}

static void a_copy_holds_every_list_and_the_longest_one_s_length(void **state) {
	static const int32_t a[] = {3}, c[] = {1, 4, 7};
	const kept_list lists[] = {{a, 1}, {NULL, 0}, {c, 3}};
	ckv_keep keep;
	(void)state;
	assert_true(kept_copy(&keep, lists, 3, 9));
	assert_int_equal(keep.n_lists, 3);
	assert_int_equal(keep.n_keep, 3);
	assert_int_equal(keep.n_positions, 4);
	assert_int_equal(keep.offsets[1], 1);
	assert_int_equal(keep.offsets[2], 1);
	assert_int_equal(keep.positions[3], 7);
	free(keep.positions);
	free(keep.offsets);
}

/* ---------------------------------------------------------------------------------------------------------------- layers */

static void layers_are_compared_by_what_both_keep_of_what_either_keeps(void **state) {
	static const int32_t a[] = {0, 1, 2, 3}, b[] = {2, 3, 4, 5}, c[] = {6};
	const kept_list lists[] = {{a, 4}, {b, 4}, {c, 1}};
	inspected p = {.policy = "p"};
	(void)state;
	assert_true(inspected_make(&p, 3, 8));
	for (int32_t i = 0; i < 3; i++) {
		set_kept(&p, i, &lists[i], 1, 8);
	}
	assert_true(kept_jaccard(&p, 3));
	const double expected[] = {1.0, 1.0 / 3.0, 0.0, 1.0 / 3.0, 1.0, 0.0, 0.0, 0.0, 1.0};
	for (int i = 0; i < 9; i++) {
		assert_float_equal(p.jaccard[i], expected[i], 1e-6);
	}
	assert_true(isnan(p.figures[0][FIGURE_JACCARD]));
	assert_float_equal(p.figures[1][FIGURE_JACCARD], expected[3], 1e-6);
	assert_float_equal(p.figures[2][FIGURE_JACCARD], 0.0, 1e-6);
	inspected_free(&p, 3);
}

static void a_layer_with_lists_by_head_is_compared_to_one_without(void **state) {
	static const int32_t a[] = {0, 1}, b[] = {2, 3}, both[] = {0, 1};
	const kept_list heads[] = {{a, 2}, {b, 2}}, one[] = {{both, 2}};
	inspected p = {.policy = "p"};
	(void)state;
	assert_true(inspected_make(&p, 2, 4));
	set_kept(&p, 0, heads, 2, 4);
	set_kept(&p, 1, one, 1, 4);
	assert_true(kept_jaccard(&p, 2));
	assert_float_equal(p.jaccard[1], 0.5, 1e-6); /* 1 for the first head, 0 for the second */
	assert_float_equal(p.jaccard[2], 0.5, 1e-6);
	inspected_free(&p, 2);
}

static void a_mean_leaves_out_layers_that_have_no_figure(void **state) {
	double figures[3][N_FIGURES];
	const inspected p = {.figures = figures};
	const inspection in = {.n_layers = 3};
	(void)state;
	figures[0][FIGURE_OUTPUT] = (double)NAN;
	figures[1][FIGURE_OUTPUT] = 1.0;
	figures[2][FIGURE_OUTPUT] = 4.0;
	assert_float_equal(inspect_mean(&in, &p, FIGURE_OUTPUT), 2.5, 1e-12);
	figures[1][FIGURE_OUTPUT] = figures[2][FIGURE_OUTPUT] = (double)NAN;
	assert_true(isnan(inspect_mean(&in, &p, FIGURE_OUTPUT)));
}

/* --------------------------------------------------------------------------------------------------------------- figures */

enum { TOKENS = 60, KV_HEADS = 2, HEADS = 4, DIM = 8 };

static ckv_view view_of(const float *data, int32_t n_heads, int32_t n_tokens) {
	return (ckv_view){.data = data,
	                  .dtype = CKV_F32,
	                  .n_heads = n_heads,
	                  .n_tokens = n_tokens,
	                  .head_dim = DIM,
	                  .stride_head = (size_t)n_tokens * DIM * sizeof *data,
	                  .stride_token = DIM * sizeof *data};
}

/* A layer's figures where all, or the tokens of `list`, are kept, and stored as `policy` says (NULL: as they came). */
static void measured_as(const char *policy, const kept_list *list, double out[N_FIGURES]) {
	ckv_params params;
	float rows[HEADS * TOKENS * DIM];
	yardstick yard;
	ckv_layer layer;
	ckv_keep keep;
	for (int i = 0; i < HEADS * TOKENS * DIM; i++) {
		rows[i] = sinf((float)(i * i % 1009));
	}
	ckv_layer_init(&layer);
	layer.k = view_of(rows, KV_HEADS, TOKENS);
	layer.v = view_of(rows + 7, KV_HEADS, TOKENS);
	layer.q = view_of(rows, HEADS, YARD_WINDOW);
	assert_true(kept_copy(&keep, list, list ? 1 : 0, TOKENS));
	assert_true(!policy || ckv_policy_parse(policy, &params, NULL) == CKV_OK);
	assert_true(yardstick_make(&yard, "snapkv:window=16", 1));
	for (int again = 0; again < 2; again++) { /* the second layer starts from nothing of the first */
		assert_true(yardstick_layer(&yard, &layer));
		assert_true(yardstick_measure(&yard, &layer, &keep, policy ? &params : NULL, out));
	}
	yardstick_free(&yard);
	free(keep.positions);
	free(keep.offsets);
}

static void measured(const kept_list *list, double out[N_FIGURES]) { measured_as(NULL, list, out); }

static void what_keeps_everything_loses_nothing(void **state) {
	double f[N_FIGURES];
	(void)state;
	measured(NULL, f);
	assert_float_equal(f[FIGURE_ATTENTION], 1.0f, 1e-5f);
	assert_float_equal(f[FIGURE_COSINE], 1.0f, 1e-5f);
	assert_float_equal(f[FIGURE_OUTPUT], 0.0f, 1e-5f);
	assert_float_equal(f[FIGURE_KEYS], 0.0f, 0.0f);
	assert_float_equal(f[FIGURE_VALUES], 0.0f, 0.0f);
	assert_float_equal(f[FIGURE_COVERAGE], 1.0f, 0.0f);
	assert_float_equal(f[FIGURE_RUN], (float)TOKENS, 0.0f);
	assert_true(f[FIGURE_ENTROPY] > 0.5 && f[FIGURE_ENTROPY] <= 1.0);
}

static void what_is_dropped_shows_in_every_figure(void **state) {
	static const int32_t kept[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 20, 21, 35}; /* a chunk, two tokens of one, one of one */
	const kept_list list = {kept, LENGTH(kept)};
	double f[N_FIGURES];
	(void)state;
	measured(&list, f);
	assert_true(f[FIGURE_ATTENTION] > 0.0 && f[FIGURE_ATTENTION] < 0.9);
	assert_true(f[FIGURE_COSINE] > 0.0 && f[FIGURE_COSINE] < 0.9);
	assert_true(f[FIGURE_OUTPUT] > 0.01);
	assert_true(f[FIGURE_KEYS] > 0.1);
	assert_true(f[FIGURE_VALUES] > 0.1);
	assert_float_equal(f[FIGURE_COVERAGE], 1.0f / 3.0f, 1e-6f);
	assert_float_equal(f[FIGURE_RUN], 13.0f / 3.0f, 1e-5f);
	assert_true(isfinite(f[FIGURE_ENTROPY]) && isfinite(f[FIGURE_ENTROPY_STD]));
}

/* A codec changes rows, not which are kept. */
static void a_codec_shows_in_the_losses_the_more_the_fewer_bits_it_has(void **state) {
	static const char *const policies[] = {"full", "kivi8:group=8,residual=8", "kivi4:group=8,residual=8",
	                                       "kivi2:group=8,residual=8"};
	double f[4][N_FIGURES];
	(void)state;
	for (int i = 0; i < 4; i++) {
		measured_as(policies[i], NULL, f[i]);
		assert_float_equal(f[i][FIGURE_ATTENTION], 1.0, 0.0);
		assert_float_equal(f[i][FIGURE_ENTROPY], f[0][FIGURE_ENTROPY], 0.0);
		assert_float_equal(f[i][FIGURE_RUN], (double)TOKENS, 0.0);
	}
	assert_true(f[0][FIGURE_KEYS] == 0.0 && f[0][FIGURE_VALUES] == 0.0 && f[0][FIGURE_OUTPUT] == 0.0);
	for (int i = 1; i < 4; i++) {
		assert_true(f[i][FIGURE_KEYS] > 4.0 * f[i - 1][FIGURE_KEYS] && f[i][FIGURE_VALUES] > 4.0 * f[i - 1][FIGURE_VALUES]);
		assert_true(f[i][FIGURE_OUTPUT] > f[i - 1][FIGURE_OUTPUT] && f[i][FIGURE_COSINE] < f[i - 1][FIGURE_COSINE]);
	}
}

static void merging_shows_in_the_values_alone(void **state) {
	static const int32_t kept[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 20, 21, 35};
	const kept_list list = {kept, LENGTH(kept)};
	double plain[N_FIGURES], merged[N_FIGURES];
	(void)state;
	measured(&list, plain);
	measured_as("chunkkv+merge", &list, merged);
	assert_float_equal(merged[FIGURE_KEYS], plain[FIGURE_KEYS], 2e-4); /* they went through f16 */
	assert_true(fabs(merged[FIGURE_VALUES] - plain[FIGURE_VALUES]) > 1e-3);
	assert_true(fabs(merged[FIGURE_OUTPUT] - plain[FIGURE_OUTPUT]) > 1e-3);
	assert_true(merged[FIGURE_OUTPUT] < 0.99); /* 1: no values at all */
	assert_float_equal(merged[FIGURE_ATTENTION], plain[FIGURE_ATTENTION], 0.0);
}

/* Every head's own rows, in its own place. */
static void rows_are_read_back_head_after_head(void **state) {
	static const int32_t a[] = {3, 4, 40}, b[] = {7};
	const kept_list lists[] = {{a, 3}, {b, 1}};
	float rows[KV_HEADS * TOKENS * DIM];
	ckv_params params;
	ckv_layer layer;
	ckv_keep keep;
	stored_rows s;
	(void)state;
	for (int i = 0; i < KV_HEADS * TOKENS * DIM; i++) {
		rows[i] = (float)(i % 1024); /* f16 has these */
	}
	ckv_layer_init(&layer);
	layer.k = layer.v = view_of(rows, KV_HEADS, TOKENS);
	assert_true(kept_copy(&keep, lists, KV_HEADS, TOKENS));
	assert_int_equal(ckv_policy_parse("full", &params, NULL), CKV_OK);
	assert_true(stored_make(&s, NULL, &layer, &keep, &params));
	const int32_t expected[] = {3, 4, 40, TOKENS + 7};
	for (int i = 0; i < LENGTH(expected); i++) {
		assert_memory_equal(s.keys + i * DIM, rows + expected[i] * DIM, DIM * sizeof *rows);
		assert_memory_equal(s.values + i * DIM, rows + expected[i] * DIM, DIM * sizeof *rows);
	}
	stored_free(&s);
	free(keep.positions);
	free(keep.offsets);
}

static void what_changes_rows_has_the_name_of_the_policy_s_text(void **state) {
	static const char *const names[][2] = {{"chunkkv", ""},
	                                       {"kivi2", "kivi2"},
	                                       {"chunkkv+kivi4:group=64", "kivi4:group=64"},
	                                       {"snapkv:window=8+merge", "merge"},
	                                       {"chunkkv+merge+kivi8", "merge+kivi8"}};
	char name[64] = "x";
	(void)state;
	for (int i = 0; i < LENGTH(names); i++) {
		ckv_params params;
		assert_int_equal(ckv_policy_parse(names[i][0], &params, NULL), CKV_OK);
		stored_name(&params, name, sizeof name);
		assert_string_equal(name, names[i][1]);
	}
	stored_name(NULL, name, sizeof name);
	assert_string_equal(name, "");
}

static void where_no_chunk_has_two_tokens_there_is_no_entropy(void **state) {
	static const int32_t kept[] = {4, 14, 24};
	const kept_list list = {kept, LENGTH(kept)};
	double f[N_FIGURES];
	(void)state;
	measured(&list, f);
	assert_true(isnan(f[FIGURE_ENTROPY]) && isnan(f[FIGURE_ENTROPY_STD]));
	assert_float_equal(f[FIGURE_RUN], 1.0f, 0.0f);
}

/* ------------------------------------------------------------------------------------------------------------------ text */

typedef struct piece {
	const char *bytes;
	float share;
} piece;

/* The markup of pieces; freed by the caller. */
static char *shown(const piece *pieces, int32_t n, int32_t sinks, int32_t window) {
	char bytes[1024] = "";
	size_t ends[64], size = 0;
	float share[64];
	for (int32_t i = 0; i < n; i++) {
		size_t length = strlen(pieces[i].bytes);
		memcpy(bytes + size, pieces[i].bytes, length);
		size += length;
		ends[i] = size;
		share[i] = pieces[i].share;
	}
	const shown_text t = {bytes, ends, share, n, sinks, window};
	char *out = NULL;
	size_t out_size = 0;
	FILE *file = open_memstream(&out, &out_size);
	assert_non_null(file);
	text_show(&t, file);
	assert_int_equal(fclose(file), 0);
	return out;
}

#define expect_shown(pieces, sinks, window, expected)                                                                       \
	do {                                                                                                                    \
		char *got_ = shown(pieces, LENGTH(pieces), sinks, window);                                                          \
		assert_string_equal(got_, expected);                                                                                \
		free(got_);                                                                                                         \
	} while (0)

static void every_share_has_its_step(void **state) {
	static const double shares[] = {0.0, 0.033, 0.1, 0.2499, 0.25, 0.5, 0.75, 0.999, 1.0};
	static const int expected[] = {0, 1, 2, 2, 3, 4, 5, 5, 6};
	(void)state;
	for (int32_t i = 0; i < LENGTH(shares); i++) {
		assert_int_equal(text_step(shares[i]), expected[i]);
	}
	assert_int_equal(text_step((double)NAN), 0);
}

static void neighbours_of_one_step_share_their_markup(void **state) {
	const piece pieces[] = {{"a", 0.0f},   {" b", 0.0f},  {" c", 1.0f}, {" d", 1.0f},
	                        {" e", 0.05f}, {" f", 0.02f}, {"g", 0.0f}};
	(void)state;
	expect_shown(pieces, 0, 0, "a b<b class=\"h6\"> c d</b><b class=\"h1\"> e f</b>g");
}

static void a_character_that_tokens_share_is_shown_whole_by_their_mean(void **state) {
	const piece two[] = {{"x", 0.0f}, {"\xc3", 1.0f}, {"\xa9", 0.0f}, {"y", 0.0f}};
	const piece four[] = {{"\xf0", 1.0f}, {"\x9f", 1.0f}, {"\x94", 1.0f}, {"\xad!", 1.0f}, {"y", 1.0f}};
	(void)state;
	expect_shown(two, 0, 0, "x<b class=\"h4\">\xc3\xa9</b>y");
	expect_shown(four, 0, 0, "<b class=\"h6\">\xf0\x9f\x94\xad!y</b>");
}

static void bytes_that_are_no_character_stay_visible_and_take_no_others_with_them(void **state) {
	const piece broken[] = {{"\xff", 0.0f}, {"ok", 1.0f}}, cut[] = {{"a", 0.0f}, {"\xe2\x82", 1.0f}};
	const piece lead[] = {{"\xe2\x82", 1.0f}, {"n", 1.0f}};
	(void)state;
	expect_shown(broken, 0, 0, "\xef\xbf\xbd<b class=\"h6\">ok</b>");
	expect_shown(cut, 0, 0, "a<b class=\"h6\">\xef\xbf\xbd\xef\xbf\xbd</b>");
	expect_shown(lead, 0, 0, "<b class=\"h6\">\xef\xbf\xbd\xef\xbf\xbdn</b>");
}

static void markup_in_the_text_stays_text(void **state) {
	const piece pieces[] = {{"<b>", 1.0f}, {"&amp;", 0.0f}, {"\"'", 0.0f}, {"\x01", 0.0f}};
	(void)state;
	expect_shown(pieces, 0, 0, "<b class=\"h6\">&#60;b&#62;</b>&#38;amp;&#34;&#39;\xef\xbf\xbd");
}

static void lines_end_where_they_end_in_the_text(void **state) {
	const piece pieces[] = {{"a\r\n", 1.0f}, {"\n", 1.0f}, {"\tb", 0.0f}};
	(void)state;
	expect_shown(pieces, 0, 0, "<b class=\"h6\">a\n\n</b>\tb");
}

static void protected_ends_are_underlined(void **state) {
	const piece pieces[] = {{"a", 1.0f}, {"b", 1.0f}, {"c", 0.0f}, {"d", 0.0f}, {"e", 1.0f}};
	(void)state;
	expect_shown(pieces, 1, 2, "<u><b class=\"h6\">a</b></u><b class=\"h6\">b</b>c<u>d<b class=\"h6\">e</b></u>");
	expect_shown(pieces, 4, 4, "<u><b class=\"h6\">ab</b>cd<b class=\"h6\">e</b></u>");
}

static void tokens_without_bytes_leave_no_trace(void **state) {
	const piece pieces[] = {{"", 1.0f}, {"a", 0.0f}, {"", 1.0f}, {"b", 0.0f}, {"", 1.0f}};
	(void)state;
	expect_shown(pieces, 0, 0, "ab");
}

/* ------------------------------------------------------------------------------------------------------------------ page */

static const char *const awkward[] = {" tea", "<script>", " &", "\xc3", "\xa9", "\n", " \xe6\x9c\x9b\xe9\x81\xa0",
                                      "]]>",  "\"",       " x"};

typedef struct fixture {
	inspection in;
	ckv_params params; /* of the last policy */
	run_options options;
	char names[20][32];
} fixture;

static void fill_policy(fixture *f, int32_t i) {
	inspection *in = &f->in;
	inspected *p = &in->policies[i];
	snprintf(f->names[i], sizeof f->names[i], "snapkv:window=%d", i + 1);
	*p = (inspected){.policy = f->names[i], .sinks = i, .window = 4, .n_cells = in->n_tokens / 10};
	assert_true(inspected_make(p, in->n_layers, in->n_tokens));
	int32_t *positions = malloc((size_t)in->n_tokens * sizeof *positions);
	assert_non_null(positions);
	for (int32_t layer = 0; layer < in->n_layers; layer++) {
		kept_list list = {positions, 0};
		for (int32_t t = 0; t < in->n_tokens; t++) {
			if ((t * 7 + layer * 3 + i + t * t / 5) % 10 < 4) {
				positions[list.n++] = t;
			}
		}
		assert_true(kept_copy(&p->kept[layer], &list, 1, in->n_tokens));
		for (int g = 0; g < N_FIGURES; g++) {
			p->figures[layer][g] = fabs(sin((double)(layer + i * 3 + g)));
		}
	}
	free(positions);
	kept_share(p, in->n_layers);
	assert_true(kept_jaccard(p, in->n_layers));
}

static void fixture_make(fixture *f, int32_t n_policies, int32_t n_layers, int32_t n_tokens) {
	memset(f, 0, sizeof *f);
	inspection *in = &f->in;
	f->options.document = "notes/<i>&\"tea\".txt";
	f->options.keep = "10%";
	f->options.questions[0] = "Who <b>pays</b>?";
	f->options.n_questions = 1;
	*in = (inspection){.options = &f->options,
	                   .cache = "f16",
	                   .n_tokens = n_tokens,
	                   .n_layers = n_layers,
	                   .n_policies = n_policies,
	                   .layers = malloc((size_t)n_layers * sizeof *in->layers),
	                   .text = malloc((size_t)n_tokens * 8),
	                   .ends = malloc((size_t)n_tokens * sizeof *in->ends),
	                   .policies = calloc((size_t)n_policies, sizeof *in->policies)};
	assert_true(in->layers && in->text && in->ends && in->policies);
	snprintf(in->model, sizeof in->model, "tiny<model>.gguf");
	size_t size = 0;
	for (int32_t i = 0; i < n_layers; i++) {
		in->layers[i] = i;
	}
	for (int32_t i = 0; i < n_tokens; i++) {
		const char *bytes = awkward[i % LENGTH(awkward)];
		memcpy(in->text + size, bytes, strlen(bytes));
		size += strlen(bytes);
		in->ends[i] = size;
	}
	for (int32_t i = 0; i < n_policies; i++) {
		fill_policy(f, i);
	}
	assert_int_equal(ckv_policy_parse("chunkkv+kivi4:group=64", &f->params, NULL), CKV_OK);
	in->policies[n_policies - 1].params = &f->params;
}

/* The page that is written, from a file of its own. */
static char *page_of(fixture *f, size_t *size) {
	char path[] = "inspect-XXXXXX";
	int descriptor = mkstemp(path);
	assert_true(descriptor >= 0);
	assert_int_equal(close(descriptor), 0);
	assert_true(inspect_page(&f->in, path));
	buffer text;
	assert_true(text_read(path, &text)); /* and it is UTF-8 */
	assert_int_equal(remove(path), 0);
	inspect_free(&f->in);
	*size = text.size;
	return text.data;
}

/* ------------------------------------------------------------------------------------------------------- well-formedness */

enum { DEEPEST = 64 };

typedef struct parser {
	const char *at;
	char open[DEEPEST][24];
	int depth;
} parser;

/* Names, and values in double quotes without "<", until ">"; returns whether the element is closed in itself. */
static bool skip_attributes(parser *p) {
	while (*p->at != '>') {
		p->at += strspn(p->at, " \n");
		if (p->at[0] == '/' && p->at[1] == '>') {
			p->at++;
			return true;
		}
		size_t n = strspn(p->at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-");
		if (*p->at == '>') {
			break;
		}
		assert_true(n > 0);
		p->at += n;
		if (*p->at == '=') {
			assert_int_equal(p->at[1], '"');
			p->at += 2;
			p->at += strcspn(p->at, "\"<");
			assert_int_equal(*p->at, '"');
			p->at++;
		}
	}
	return false;
}

static void parse_tag(parser *p) {
	bool end = p->at[1] == '/';
	p->at += end ? 2 : 1;
	size_t n = strspn(p->at, "abcdefghijklmnopqrstuvwxyz0123456789");
	char name[24];
	assert_true(n > 0 && n < sizeof name);
	memcpy(name, p->at, n);
	name[n] = '\0';
	p->at += n;
	bool closed = skip_attributes(p);
	p->at++;
	if (end) {
		assert_true(p->depth > 0);
		assert_string_equal(p->open[--p->depth], name);
	} else if (!closed && strcmp(name, "meta") != 0) {
		assert_true(p->depth < DEEPEST);
		memcpy(p->open[p->depth++], name, n + 1);
		if (strcmp(name, "style") == 0) {
			p->at = strstr(p->at, "</style>");
			assert_non_null(p->at);
		}
	}
}

/* Every element is closed in its order; "&" begins nothing but a character's number. */
static void assert_well_formed(const char *page) {
	static const char doctype[] = "<!DOCTYPE html>\n";
	parser p = {.at = page + sizeof doctype - 1};
	assert_memory_equal(page, doctype, sizeof doctype - 1);
	while (*p.at) {
		if (*p.at == '<') {
			parse_tag(&p);
		} else if (*p.at == '&') {
			assert_int_equal(p.at[1], '#');
			size_t digits = strspn(p.at + 2, "0123456789");
			assert_true(digits > 0 && p.at[2 + digits] == ';');
			p.at += digits + 3;
		} else {
			assert_true(*p.at != '>');
			p.at++;
		}
	}
	assert_int_equal(p.depth, 0);
}

static int count(const char *text, const char *what) {
	int n = 0;
	for (const char *at = strstr(text, what); at; at = strstr(at + 1, what)) {
		n++;
	}
	return n;
}

static void check_page(int32_t n_policies, int32_t n_layers, int32_t n_tokens) {
	fixture f;
	size_t size;
	fixture_make(&f, n_policies, n_layers, n_tokens);
	char *page = page_of(&f, &size);
	assert_well_formed(page);
	assert_int_equal(count(page, "<div class=\"kept\">"), n_policies);
	assert_int_equal(count(page, "<details open>"), n_policies < 2 ? n_policies : 2);
	assert_true(size < 5000000);
	free(page);
}

static void the_page_is_well_formed_whatever_the_text_has(void **state) {
	(void)state;
	check_page(1, 1, 30);
	check_page(2, 3, 47);
}

static void the_page_stays_small_with_many_policies_layers_and_tokens(void **state) {
	(void)state;
	check_page(20, 36, 8192);
}

static void names_and_questions_are_escaped_and_nothing_is_fetched(void **state) {
	fixture f;
	size_t size;
	(void)state;
	fixture_make(&f, 2, 4, 60);
	char *page = page_of(&f, &size);
	assert_null(strstr(page, "<script"));
	assert_non_null(strstr(page, "&#60;i&#62;&#38;&#34;tea&#34;.txt"));
	assert_non_null(strstr(page, "Who &#60;b&#62;pays"));
	assert_non_null(strstr(page, "tiny&#60;model&#62;.gguf"));
	assert_null(strstr(page, "notes/")); /* the file's name alone */
	assert_null(strstr(page, "http:"));
	assert_null(strstr(page, "https:"));
	assert_null(strstr(page, "src="));
	free(page);
}

static void every_figure_has_a_column_and_a_chart_and_every_policy_a_square(void **state) {
	fixture f;
	size_t size;
	(void)state;
	fixture_make(&f, 3, 5, 60);
	char *page = page_of(&f, &size);
	assert_int_equal(count(page, "<svg "), N_FIGURES + 3);
	for (int i = 0; i < N_FIGURES; i++) {
		char caption[128];
		snprintf(caption, sizeof caption, "<figcaption>%s<", figure_at((figure)i)->name);
		assert_int_equal(count(page, caption), 1);
	}
	free(page);
}

static void the_page_and_the_table_name_the_codec_whose_rows_are_measured(void **state) {
	fixture f;
	size_t size, n = 0;
	char *table = NULL;
	(void)state;
	fixture_make(&f, 3, 5, 60);
	FILE *out = open_memstream(&table, &n);
	assert_non_null(out);
	inspect_table(&f.in, out);
	assert_int_equal(fclose(out), 0);
	assert_non_null(strstr(table, "\nsnapkv:window=3: measured on the rows that kivi4:group=64 gives back\n"));
	assert_int_equal(count(table, "gives back"), 1);
	free(table);
	char *page = page_of(&f, &size);
	assert_int_equal(count(page, "<small>on the rows that kivi4:group=64 gives back</small>"), 1);
	assert_int_equal(count(page, "<small>on the rows"), 1);
	free(page);
}

static void a_page_that_can_t_take_its_place_leaves_nothing_beside_it(void **state) {
	char folder[] = "inspect-XXXXXX", beside[64];
	fixture f;
	(void)state;
	assert_non_null(mkdtemp(folder)); /* a folder, which no file can replace */
	snprintf(beside, sizeof beside, "%s.part", folder);
	fixture_make(&f, 1, 1, 30);
	assert_false(inspect_page(&f.in, folder));
	assert_int_not_equal(access(beside, F_OK), 0);
	assert_false(inspect_page(&f.in, "no-such-folder/page.html"));
	assert_false(inspect_can_write("no-such-folder/page.html"));
	assert_true(inspect_can_write(folder)); /* as far as can be told before */
	assert_int_not_equal(access(beside, F_OK), 0);
	assert_int_equal(rmdir(folder), 0);
	inspect_free(&f.in);
}

static void the_json_object_has_each_layer_s_figures(void **state) {
	fixture f;
	(void)state;
	fixture_make(&f, 2, 3, 40);
	f.in.policies[1].figures[2][FIGURE_OUTPUT] = (double)NAN;
	FILE *file = tmpfile();
	assert_non_null(file);
	assert_true(inspect_json(&f.in, file));
	rewind(file);
	json_t *o = json_loadf(file, 0, NULL);
	assert_non_null(o);
	json_t *p = json_array_get(json_object_get(o, "policies"), 1), *layers = json_object_get(p, "layers");
	assert_int_equal(json_object_size(layers), N_FIGURES);
	assert_string_equal(json_string_value(json_object_get(p, "codec")), "kivi4:group=64");
	assert_true(json_is_null(json_object_get(json_array_get(json_object_get(o, "policies"), 0), "codec")));
	json_t *output = json_object_get(layers, figure_at(FIGURE_OUTPUT)->key);
	assert_int_equal(json_array_size(output), 3);
	assert_float_equal(json_real_value(json_array_get(output, 1)), f.in.policies[1].figures[1][FIGURE_OUTPUT], 1e-4);
	assert_true(json_is_null(json_array_get(output, 2)));
	assert_int_equal(json_array_size(json_object_get(p, "token_share")), 40);
	assert_int_equal(json_array_size(json_array_get(json_object_get(p, "jaccard_of_layers"), 2)), 3);
	json_decref(o);
	fclose(file);
	inspect_free(&f.in);
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_token_s_share_is_that_of_the_layers_and_heads_that_keep_it),
	    cmocka_unit_test(a_layer_without_lists_keeps_everything),
	    cmocka_unit_test(a_copy_holds_every_list_and_the_longest_one_s_length),
	    cmocka_unit_test(layers_are_compared_by_what_both_keep_of_what_either_keeps),
	    cmocka_unit_test(a_layer_with_lists_by_head_is_compared_to_one_without),
	    cmocka_unit_test(a_mean_leaves_out_layers_that_have_no_figure),
	    cmocka_unit_test(what_keeps_everything_loses_nothing),
	    cmocka_unit_test(what_is_dropped_shows_in_every_figure),
	    cmocka_unit_test(a_codec_shows_in_the_losses_the_more_the_fewer_bits_it_has),
	    cmocka_unit_test(merging_shows_in_the_values_alone),
	    cmocka_unit_test(rows_are_read_back_head_after_head),
	    cmocka_unit_test(what_changes_rows_has_the_name_of_the_policy_s_text),
	    cmocka_unit_test(where_no_chunk_has_two_tokens_there_is_no_entropy),
	    cmocka_unit_test(every_share_has_its_step),
	    cmocka_unit_test(neighbours_of_one_step_share_their_markup),
	    cmocka_unit_test(a_character_that_tokens_share_is_shown_whole_by_their_mean),
	    cmocka_unit_test(bytes_that_are_no_character_stay_visible_and_take_no_others_with_them),
	    cmocka_unit_test(markup_in_the_text_stays_text),
	    cmocka_unit_test(lines_end_where_they_end_in_the_text),
	    cmocka_unit_test(protected_ends_are_underlined),
	    cmocka_unit_test(tokens_without_bytes_leave_no_trace),
	    cmocka_unit_test(the_page_is_well_formed_whatever_the_text_has),
	    cmocka_unit_test(the_page_stays_small_with_many_policies_layers_and_tokens),
	    cmocka_unit_test(names_and_questions_are_escaped_and_nothing_is_fetched),
	    cmocka_unit_test(every_figure_has_a_column_and_a_chart_and_every_policy_a_square),
	    cmocka_unit_test(the_page_and_the_table_name_the_codec_whose_rows_are_measured),
	    cmocka_unit_test(a_page_that_can_t_take_its_place_leaves_nothing_beside_it),
	    cmocka_unit_test(the_json_object_has_each_layer_s_figures),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
