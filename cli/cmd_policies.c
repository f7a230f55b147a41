/* chunkkv policies: what there is, from the registry itself. */
#include "cli.h"

#include <chunkkv/stream.h>

#include <string.h>

enum { WIDTH = 100, NAME = 18, INDENT = 6 };

/* The two forms of policies: of a cache that is compressed once, and of one that never outgrows a budget. */
typedef union policy {
	ckv_params once;
	ckv_stream_params stream;
} policy;

/* What stands before, or behind, a "+" of a text: its parameters. */
typedef struct text_part {
	const char *heading;
	const ckv_param_info *(*param_at)(size_t i);
	int (*use)(const policy *p, const char *key);
	size_t (*value)(const policy *p, const char *key, char *out, size_t capacity);
} text_part;

enum { MAX_PARTS = 3 };

typedef struct form {
	const char *heading, *when; /* of the presets; how messages tell it */
	method_at preset_at;
	ckv_status (*parse)(const char *text, policy *p, ckv_error *error);
	const char *(*preset)(const policy *p);
	void (*show_needs)(const policy *p);
	text_part parts[MAX_PARTS]; /* those there are have a heading */
} form;

static bool is_part(const form *f, int i) { return i < MAX_PARTS && f->parts[i].heading; }

/* ------------------------------------------------------------------------------------------------------- paragraphs */

/* Pieces, a space between them, in lines of WIDTH columns. */
typedef struct paragraph {
	int column;
} paragraph;

static void paragraph_add(paragraph *p, const char *piece) {
	int n = (int)strlen(piece);
	bool wrap = p->column > 0 && p->column + 1 + n > WIDTH;
	if (p->column == 0 || wrap) {
		printf("%s%*s", wrap ? "\n" : "", INDENT, "");
		p->column = INDENT + n;
	} else {
		putchar(' ');
		p->column += 1 + n;
	}
	fputs(piece, stdout);
}

/* Each word a piece. */
static void paragraph_words(paragraph *p, const char *text) {
	while (*text) {
		char word[64];
		size_t n = strcspn(text, " ");
		snprintf(word, sizeof word, "%.*s", (int)n, text);
		paragraph_add(p, word);
		text += n;
		text += strspn(text, " ");
	}
}

static void paragraph_end(void) { putchar('\n'); }

/* A name, two columns in, and what it is. */
static void show_name(const char *name, int width, const char *summary) {
	paragraph p = {2 + width};
	printf("  %-*s", width, name);
	paragraph_words(&p, summary);
	paragraph_end();
}

/* Adds to a text of several parts. */
static void append(char *text, size_t capacity, const char *separator, const char *part) {
	size_t n = strlen(text);
	snprintf(text + n, capacity - n, "%s%s", n ? separator : "", part);
}

/* ------------------------------------------------------------------------------------------------------- parameters */

/* "low to high"; "" for a name. */
static void range_text(const ckv_param_info *info, char *out, size_t capacity) {
	out[0] = '\0';
	if (info->maximum > 0.0) {
		snprintf(out, capacity, "%.10g to %.10g", info->minimum, info->maximum);
	}
}

/* key=value, as the policy has it. */
static void setting_text(const text_part *of, const policy *p, const char *key, char *out, size_t capacity) {
	char value[64];
	of->value(p, key, value, sizeof value);
	snprintf(out, capacity, "%s=%s", key, value);
}

static void add_settings(const text_part *of, const policy *made, paragraph *p) {
	for (size_t i = 0; of->param_at(i); i++) {
		char setting[96], range[48], piece[160];
		if (of->use(made, of->param_at(i)->key)) {
			setting_text(of, made, of->param_at(i)->key, setting, sizeof setting);
			range_text(of->param_at(i), range, sizeof range);
			snprintf(piece, sizeof piece, range[0] ? "%s (%s)" : "%s", setting, range);
			paragraph_add(p, piece);
		}
	}
}

/* The parameters that a policy reads, one after another. */
static void show_settings(const form *f, const policy *made) {
	paragraph p = {0};
	for (int i = 0; is_part(f, i); i++) {
		add_settings(&f->parts[i], made, &p);
	}
	paragraph_end();
}

/* The same of one part, each with what it means. */
static void explain_settings(const text_part *of, const policy *p) {
	enum { SETTING = 26 };
	bool any = false;
	for (size_t i = 0; of->param_at(i); i++) {
		const ckv_param_info *info = of->param_at(i);
		char setting[96], text[256] = "", range[48];
		if (of->use(p, info->key)) {
			setting_text(of, p, info->key, setting, sizeof setting);
			range_text(info, range, sizeof range);
			append(text, sizeof text, "", info->summary);
			append(text, sizeof text, range[0] ? "; " : "", range);
			printf("%s%s", any ? "" : of->heading, any ? "" : "\n");
			show_name(setting, SETTING, text);
			any = true;
		}
	}
}

/* Whether a comma-separated list holds key. */
static bool lists(const char *list, const char *key) {
	size_t n = strlen(key);
	while (*list) {
		size_t length = strcspn(list, ",");
		if (length == n && strncmp(list, key, n) == 0) {
			return true;
		}
		list += length + (list[length] == ',');
	}
	return false;
}

/* Adds the methods of a kind that read a parameter. */
static void append_readers(char *text, size_t capacity, const char *kind, method_at at, const char *key) {
	bool any = false;
	for (size_t i = 0; at(i); i++) {
		if (lists(at(i)->uses, key)) {
			append(text, capacity, any ? ", " : "; ", any ? "" : kind);
			append(text, capacity, any ? "" : " ", at(i)->name);
			any = true;
		}
	}
}

/* A parameter with its range and what reads it, where that is not said already. */
static void show_parameter(const ckv_param_info *info, const char *readers) {
	char range[48];
	paragraph p = {0};
	show_name(info->key, NAME, info->summary);
	range_text(info, range, sizeof range);
	if (range[0]) {
		append(range, sizeof range, "", readers[0] ? ";" : "");
		paragraph_words(&p, range);
	}
	if (readers[0]) {
		paragraph_words(&p, "read by");
		paragraph_words(&p, readers);
	}
	if (range[0] || readers[0]) {
		paragraph_end();
	}
}

static void show_parameters(void) {
	ckv_params full;
	puts("\nparameters");
	for (size_t i = 0; ckv_param_info_at(i); i++) {
		const ckv_param_info *info = ckv_param_info_at(i);
		char readers[512] = "";
		append_readers(readers, sizeof readers, "scorer", ckv_scorer_info, info->key);
		append_readers(readers, sizeof readers, "selector", ckv_selector_info, info->key);
		append_readers(readers, sizeof readers, "chunker", ckv_chunker_info, info->key);
		append_readers(readers, sizeof readers, "layer rule", ckv_layer_rule_info, info->key);
		if (readers[0] == '\0') { /* one of the policy's own */
			bool always = ckv_policy_parse("full", &full, NULL) == CKV_OK && ckv_params_use(&full, info->key);
			append(readers, sizeof readers, "", always ? "every policy" : "every policy that scores");
		}
		show_parameter(info, readers);
	}
}

static void show_stream_parameters(void) {
	ckv_stream_params least;
	puts("\nparameters with --ctx-budget");
	for (size_t i = 0; ckv_stream_param_info_at(i); i++) {
		const ckv_param_info *info = ckv_stream_param_info_at(i);
		char readers[512] = "";
		append_readers(readers, sizeof readers, "scorer", ckv_stream_scorer_info, info->key);
		if (ckv_stream_parse("streamingllm", &least, NULL) == CKV_OK && ckv_stream_params_use(&least, info->key)) {
			append(readers, sizeof readers, "", "every policy");
		}
		show_parameter(info, readers);
	}
}

static void show_part_parameters(void) {
	puts("\nparameters of codecs and merging");
	for (size_t i = 0; ckv_codec_param_info_at(i); i++) {
		char readers[512] = "";
		append_readers(readers, sizeof readers, "codec", ckv_codec_info, ckv_codec_param_info_at(i)->key);
		show_parameter(ckv_codec_param_info_at(i), readers);
	}
	for (size_t i = 0; ckv_merge_param_info_at(i); i++) {
		show_parameter(ckv_merge_param_info_at(i), "merge");
	}
}

/* --------------------------------------------------------------------------------------------------------- policies */

static const struct {
	uint32_t flag;
	const char *words;
} needs_words[] = {
    {CKV_NEED_VALUES, "the values"},
    {CKV_NEED_MOMENTS, "mean and covariance of all queries before RoPE"},
    {CKV_NEED_MASS, "attention sums of all queries"},
    {CKV_NEED_SIMILARITY, "similarity of each layer's input and output"},
    {CKV_NEED_CHUNKS, "the text, to cut it into chunks"},
};

static void show_needs(const policy *made) {
	ckv_needs needs = {0, 0};
	char text[512] = "", queries[48] = "the last query";
	paragraph p = {0};
	ckv_params_needs(&made->once, &needs);
	if (needs.n_queries > 1) {
		snprintf(queries, sizeof queries, "the last %d queries", needs.n_queries);
	}
	if (needs.flags & CKV_NEED_QUERIES) {
		append(text, sizeof text, "; ", queries);
	}
	for (size_t i = 0; i < sizeof needs_words / sizeof *needs_words; i++) {
		if (needs.flags & needs_words[i].flag) {
			append(text, sizeof text, "; ", needs_words[i].words);
		}
	}
	if (ckv_params_hosted(&made->once)) {
		append(text, sizeof text, "; ", "a cache of our own (chunkkv/cache.h)");
	}
	paragraph_add(&p, "needs:");
	paragraph_words(&p, text[0] ? text : "nothing but the cache");
	paragraph_end();
}

static ckv_status once_parse(const char *text, policy *p, ckv_error *error) {
	return ckv_policy_parse(text, &p->once, error);
}
static const char *once_preset(const policy *p) { return p->once.preset; }
static int once_use(const policy *p, const char *key) { return ckv_params_use(&p->once, key); }
static int merge_use(const policy *p, const char *key) { return ckv_merge_use(&p->once.merge, key); }
static int codec_use(const policy *p, const char *key) { return ckv_codec_use(&p->once.codec, key); }
static size_t once_value(const policy *p, const char *key, char *out, size_t capacity) {
	return ckv_params_value(&p->once, key, out, capacity);
}
static size_t merge_value(const policy *p, const char *key, char *out, size_t capacity) {
	return ckv_merge_value(&p->once.merge, key, out, capacity);
}
static size_t codec_value(const policy *p, const char *key, char *out, size_t capacity) {
	return ckv_codec_value(&p->once.codec, key, out, capacity);
}

static ckv_status stream_parse(const char *text, policy *p, ckv_error *error) {
	return ckv_stream_parse(text, &p->stream, error);
}
static const char *stream_preset(const policy *p) { return p->stream.preset; }
static int stream_use(const policy *p, const char *key) { return ckv_stream_params_use(&p->stream, key); }
static size_t stream_value(const policy *p, const char *key, char *out, size_t capacity) {
	return ckv_stream_params_value(&p->stream, key, out, capacity);
}

static const form once = {"policies that compress once, or in blocks with --ctx-budget (--policy NAME[:key=value,...])",
                          "as a one-shot policy",
                          ckv_preset_info,
                          once_parse,
                          once_preset,
                          show_needs,
                          {{"parameters", ckv_param_info_at, once_use, once_value},
                           {"parameters of merge", ckv_merge_param_info_at, merge_use, merge_value},
                           {"parameters of the codec", ckv_codec_param_info_at, codec_use, codec_value}}};

/* A keeper is what llama.cpp's own cache goes with: whether there can be one is what it says itself. */
static void show_kept_by(const policy *made) {
	ckv_keeper *probe = NULL;
	ckv_error error;
	paragraph p = {0};
	if (ckv_stream_params_hosted(&made->stream)) {
		paragraph_add(&p, "needs:");
		paragraph_words(&p, "a cache of our own (--cache hosted)");
		paragraph_end();
	} else if (ckv_keeper_create(&probe, &made->stream, NULL, &error)) {
		paragraph_words(&p, "not with --ctx-budget, only in ckv_stream:");
		paragraph_words(&p, error.message);
		paragraph_end();
	}
	ckv_keeper_free(probe);
}

static const form stream = {"\npolicies that go token by token, with --ctx-budget (--policy NAME[:key=value,...])",
                            "token by token",
                            ckv_stream_preset_info,
                            stream_parse,
                            stream_preset,
                            show_kept_by,
                            {{"parameters", ckv_stream_param_info_at, stream_use, stream_value}}};

static void show_paper(const ckv_method_info *info) {
	if (info->paper[0]) {
		printf("%*s%s\n", INDENT, "", info->paper);
	}
}

static void show_presets(const form *f) {
	puts(f->heading);
	for (size_t i = 0; f->preset_at(i); i++) {
		const ckv_method_info *info = f->preset_at(i);
		policy p;
		if (f->parse(info->name, &p, NULL) == CKV_OK) {
			show_name(info->name, NAME, info->summary);
			show_paper(info);
			f->show_needs(&p);
			show_settings(f, &p);
		}
	}
}

static void show_methods(const char *title, method_at at) {
	printf("\n%s\n", title);
	for (size_t i = 0; at(i); i++) {
		show_name(at(i)->name, NAME, at(i)->summary);
		show_paper(at(i));
	}
}

static void show_form(const form *f, const char *text, const policy *p) {
	const ckv_method_info *info = policy_preset(f->preset(p), f->preset_at);
	printf("%s, %s: %s\n", text, f->when, info->summary);
	show_paper(info);
	f->show_needs(p);
	for (int i = 0; is_part(f, i); i++) {
		explain_settings(&f->parts[i], p);
	}
}

/* A policy alone, as its text has it: a preset's name, or one with parameters; in both forms, where it has both. */
static int show_one(const char *text) {
	policy p, q;
	ckv_error in_once, in_stream;
	ckv_status not_once = once.parse(text, &p, &in_once), not_stream = stream.parse(text, &q, &in_stream);
	if (not_once && not_stream) {
		policy_fail(text, &in_once, &in_stream);
		return EXIT_USAGE;
	}
	if (not_once) {
		printf("not %s: %s\n", once.when, in_once.message);
	} else {
		show_form(&once, text, &p);
	}
	puts("");
	if (not_stream) {
		printf("not %s: %s\n", stream.when, in_stream.message);
	} else {
		show_form(&stream, text, &q);
	}
	return 0;
}

int cmd_policies(int argc, char **argv) {
	if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
		puts("usage: chunkkv policies [NAME]\n\n"
		     "Lists policies that compress once, with what they need and their parameters, and those that go token by "
		     "token;\n"
		     "then scorers, selectors, chunkers, layer rules, codecs and all parameters. NAME[:key=value,...] shows one "
		     "policy alone,\n"
		     "in both forms where it has both; with a codec, merge or both behind it: chunkkv+merge+kivi4:group=64.");
		return 0;
	}
	if (argc > 2) {
		fail("chunkkv policies takes one name, not '%s' too", argv[2]);
		return EXIT_USAGE;
	}
	if (argc > 1) {
		return show_one(argv[1]);
	}
	show_presets(&once);
	show_presets(&stream);
	show_methods("scorers (scorer=)", ckv_scorer_info);
	show_methods("selectors (selector=)", ckv_selector_info);
	show_methods("chunkers (chunker=)", ckv_chunker_info);
	show_methods("layer rules (layers=)", ckv_layer_rule_info);
	show_methods("codecs and merging (--policy NAME+CODEC[:key=value,...])", ckv_codec_info);
	show_methods("scorers with --ctx-budget (scorer=)", ckv_stream_scorer_info);
	show_parameters();
	show_part_parameters();
	show_stream_parameters();
	return 0;
}
