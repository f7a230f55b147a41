/* chunkkv policies: what there is, from the registry itself. */
#include "cli.h"

#include <string.h>

enum { WIDTH = 100, NAME = 18, INDENT = 6 };

typedef const ckv_method_info *(*method_at)(size_t i);

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
static void setting_text(const ckv_params *params, const char *key, char *out, size_t capacity) {
	char value[64];
	ckv_params_value(params, key, value, sizeof value);
	snprintf(out, capacity, "%s=%s", key, value);
}

/* The parameters that a policy reads, one after another. */
static void show_settings(const ckv_params *params) {
	paragraph p = {0};
	for (size_t i = 0; ckv_param_info_at(i); i++) {
		char setting[96], range[48], piece[160];
		if (ckv_params_use(params, ckv_param_info_at(i)->key)) {
			setting_text(params, ckv_param_info_at(i)->key, setting, sizeof setting);
			range_text(ckv_param_info_at(i), range, sizeof range);
			snprintf(piece, sizeof piece, range[0] ? "%s (%s)" : "%s", setting, range);
			paragraph_add(&p, piece);
		}
	}
	paragraph_end();
}

/* The same, each with what it means. */
static void explain_settings(const ckv_params *params) {
	enum { SETTING = 26 };
	for (size_t i = 0; ckv_param_info_at(i); i++) {
		const ckv_param_info *info = ckv_param_info_at(i);
		char setting[96], text[256] = "", range[48];
		if (ckv_params_use(params, info->key)) {
			setting_text(params, info->key, setting, sizeof setting);
			range_text(info, range, sizeof range);
			append(text, sizeof text, "", info->summary);
			append(text, sizeof text, range[0] ? "; " : "", range);
			show_name(setting, SETTING, text);
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

static void show_readers(const ckv_param_info *info) {
	char readers[512] = "", range[48];
	ckv_params full;
	paragraph p = {0};
	append_readers(readers, sizeof readers, "scorer", ckv_scorer_info, info->key);
	append_readers(readers, sizeof readers, "selector", ckv_selector_info, info->key);
	append_readers(readers, sizeof readers, "chunker", ckv_chunker_info, info->key);
	append_readers(readers, sizeof readers, "layer rule", ckv_layer_rule_info, info->key);
	if (readers[0] == '\0') { /* one of the policy's own */
		bool always = ckv_policy_parse("full", &full, NULL) == CKV_OK && ckv_params_use(&full, info->key);
		append(readers, sizeof readers, "", always ? "every policy" : "every policy that scores");
	}
	range_text(info, range, sizeof range);
	if (range[0]) {
		append(range, sizeof range, "", ";");
		paragraph_words(&p, range);
	}
	paragraph_words(&p, "read by");
	paragraph_words(&p, readers);
	paragraph_end();
}

static void show_parameters(void) {
	puts("\nparameters");
	for (size_t i = 0; ckv_param_info_at(i); i++) {
		show_name(ckv_param_info_at(i)->key, NAME, ckv_param_info_at(i)->summary);
		show_readers(ckv_param_info_at(i));
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

static void show_needs(const ckv_params *params) {
	ckv_needs needs = {0, 0};
	char text[512] = "", queries[48] = "the last query";
	paragraph p = {0};
	ckv_params_needs(params, &needs);
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
	paragraph_add(&p, "needs:");
	paragraph_words(&p, text[0] ? text : "nothing but the cache");
	paragraph_end();
}

static void show_paper(const ckv_method_info *info) {
	if (info->paper[0]) {
		printf("%*s%s\n", INDENT, "", info->paper);
	}
}

static void show_presets(void) {
	puts("policies (--policy NAME[:key=value,...])");
	for (size_t i = 0; ckv_preset_info(i); i++) {
		const ckv_method_info *info = ckv_preset_info(i);
		ckv_params params;
		if (ckv_policy_parse(info->name, &params, NULL) == CKV_OK) {
			show_name(info->name, NAME, info->summary);
			show_paper(info);
			show_needs(&params);
			show_settings(&params);
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

/* A policy alone, as its text has it: a preset's name, or one with parameters. */
static int show_one(const char *text) {
	ckv_params params;
	ckv_error error;
	if (ckv_policy_parse(text, &params, &error)) {
		fail("%s", error.message);
		return EXIT_USAGE;
	}
	for (size_t i = 0; ckv_preset_info(i); i++) {
		if (strcmp(ckv_preset_info(i)->name, params.preset) == 0) {
			printf("%s: %s\n", text, ckv_preset_info(i)->summary);
			show_paper(ckv_preset_info(i));
		}
	}
	show_needs(&params);
	puts("parameters");
	explain_settings(&params);
	return 0;
}

int cmd_policies(int argc, char **argv) {
	if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
		puts("usage: chunkkv policies [NAME]\n\n"
		     "Lists policies with what they need and their parameters, then scorers, selectors, chunkers, layer rules and "
		     "all\n"
		     "parameters. NAME[:key=value,...] shows one policy alone.");
		return 0;
	}
	if (argc > 2) {
		fail("chunkkv policies takes one name, not '%s' too", argv[2]);
		return EXIT_USAGE;
	}
	if (argc > 1) {
		return show_one(argv[1]);
	}
	show_presets();
	show_methods("scorers (scorer=)", ckv_scorer_info);
	show_methods("selectors (selector=)", ckv_selector_info);
	show_methods("chunkers (chunker=)", ckv_chunker_info);
	show_methods("layer rules (layers=)", ckv_layer_rule_info);
	show_parameters();
	return 0;
}
