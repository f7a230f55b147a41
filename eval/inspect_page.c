/* The page of `chunkkv inspect`: one HTML file that needs nothing from elsewhere. */
#define _POSIX_C_SOURCE 200809L
#include "inspect_parts.h"

#include "html.h"
#include "inspect_stored.h"
#include "inspect_text.h"
#include "report_parts.h"
#include "svg.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What page_style has not. */
static const char style[] =
    "<style>\n"
    "#means td{white-space:nowrap}#means [scope=row] small{white-space:normal}\n"
    ".texts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,30rem),1fr));gap:.8rem;"
    "align-items:start}"
    ".texts details{margin:0;min-width:0}.texts summary small{display:inline;font-weight:400}"
    ".kept{white-space:pre-wrap;font-size:.86rem;line-height:1.6}.kept b{font-weight:inherit;border-radius:2px;"
    "box-decoration-break:clone;-webkit-box-decoration-break:clone}"
    ".kept u,.key u{text-decoration:underline 2px dotted var(--accent);text-underline-offset:3px}"
    ".charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,30rem),1fr));gap:1rem}"
    ".charts figure{margin:0;padding:.7rem .9rem;background:var(--card);border:1px solid var(--rule);border-radius:10px}"
    ".charts figcaption{color:var(--ink);font-weight:600}figcaption small{display:block;font-weight:400}"
    ".charts svg{width:100%}.dash1{stroke-dasharray:6 3}.dash2{stroke-dasharray:2 3}"
    ".f0{fill:var(--h0)}.f1{fill:var(--h1)}.f2{fill:var(--h2)}.f3{fill:var(--h3)}.f4{fill:var(--h4)}.f5{fill:var(--h5)}"
    ".f6{fill:var(--h6)}"
    ".line:hover .path{stroke-width:3.5;opacity:1}.line:hover text{font-weight:700}svg:has(.line:hover) .line:not(:hover){"
    "opacity:.25}@media (max-width:40rem){.charts figure{overflow-x:auto}.charts svg{min-width:32rem}}"
    "@media print{.texts,.charts{display:block}.texts details{break-inside:auto}.kept{font-size:7.5pt}"
    ".charts figure{max-width:150mm;margin-bottom:4mm}}\n"
    "</style>\n";

const char *policy_dash(int32_t policy) {
	static const char *const names[] = {"", " dash1", " dash2"};
	int32_t i = policy / N_COLOURS;
	return names[i < 2 ? i : 2];
}

/* ------------------------------------------------------------------------------------------------------------------ head */

static void put_fact(FILE *out, const char *class, const char *name, const char *value) {
	fprintf(out, "<div%s><dt>%s</dt><dd>", class, name);
	html_text(out, value);
	fputs("</dd></div>\n", out);
}

static void put_run(const inspection *in, FILE *out) {
	const run_options *o = in->options;
	char layers[64];
	snprintf(layers, sizeof layers, in->n_window_layers ? "%d, and %d with a sliding window, left as they are" : "%d",
	         in->n_layers, in->n_window_layers);
	fputs("<dl class=\"run\">\n", out);
	put_fact(out, "", "model", in->model);
	put_fact(out, "", "document", text_file_name(o->document));
	put_fact(out, "", "kept", o->keep);
	put_fact(out, "", "type of the cache", in->cache);
	put_fact(out, "", "layers compressed", layers);
	put_fact(out, " class=\"wide\"", "question",
	         o->agnostic          ? "none in view: the document alone was compressed"
	         : o->n_questions > 0 ? o->questions[0]
	                              : "none");
	fputs("</dl>\n", out);
}

void inspect_head(const inspection *in, FILE *out) {
	static const char *const parts[][2] = {
	    {"means", "Figures"}, {"texts", "What is kept"}, {"layers", "Layer by layer"}, {"agreement", "Do layers agree?"}};
	fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
	      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
	      "<meta name=\"color-scheme\" content=\"light dark\">\n"
	      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
	      "<title>What policies keep: ",
	      out);
	html_text(out, text_file_name(in->options->document));
	fputs("</title>\n", out);
	page_style(out);
	fputs(style, out);
	fputs(
	    "</head>\n<body>\n<header>\n<p class=\"over\">chunkkv inspect</p>\n<h1>What policies keep</h1>\n<p class=\"under\">",
	    out);
	html_text(out, text_file_name(in->options->document));
	fprintf(out, " · %d tokens · %d %s</p>\n</header>\n<nav aria-label=\"Contents\">", in->n_tokens, in->n_policies,
	        in->n_policies == 1 ? "policy" : "policies");
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
		fprintf(out, "<a href=\"#%s\">%s</a> ", parts[i][0], parts[i][1]);
	}
	fputs("</nav>\n<main>\n", out);
	put_run(in, out);
}

/* --------------------------------------------------------------------------------------------------------------- figures */

/* Whether no policy has a better mean; among several. */
static bool is_best(const inspection *in, int32_t policy, figure f) {
	double own = inspect_mean(in, &in->policies[policy], f);
	int good = figure_at(f)->good;
	for (int32_t i = 0; i < in->n_policies; i++) {
		if (good * inspect_mean(in, &in->policies[i], f) > good * own) {
			return false;
		}
	}
	return good && in->n_policies > 1 && isfinite(own);
}

/* Policies may differ in the third digit alone. */
static void put_mean(double value, FILE *out) {
	if (isfinite(value)) {
		fprintf(out, "%.*f", fabs(value) >= 10.0 ? 1 : 3, value);
	} else {
		fputs("–", out);
	}
}

static void put_row(const inspection *in, int32_t policy, FILE *out) {
	const inspected *p = &in->policies[policy];
	char codec[POLICY_TEXT];
	stored_name(p->params, codec, sizeof codec);
	fputs("<tr><th scope=\"row\">", out);
	html_text(out, p->policy);
	if (*codec) {
		fputs("<small>on the rows that ", out);
		html_text(out, codec);
		fputs(" gives back</small>", out);
	}
	if (*inspect_note(p)) {
		fprintf(out, "<small>%s</small>", inspect_note(p));
	}
	fputs("</th><td>", out);
	html_percent(out, inspect_share(in, p));
	fprintf(out, "</td><td>%d</td>", p->n_cells);
	for (int f = 0; f < N_FIGURES; f++) {
		fputs(is_best(in, policy, (figure)f) ? "<td class=\"best\">" : "<td>", out);
		put_mean(inspect_mean(in, p, (figure)f), out);
		fputs("</td>", out);
	}
	fputs("</tr>\n", out);
}

static void put_terms(FILE *out) {
	fputs("<details>\n<summary>What the columns mean</summary>\n<dl class=\"terms\">\n"
	      "<dt>kept</dt><dd>Of all tokens, layers and heads together.</dd>\n"
	      "<dt>cells</dt><dd>Tokens of the longest layer: so many cells llama.cpp would have in all of them.</dd>\n",
	      out);
	for (int f = 0; f < N_FIGURES; f++) {
		const figure_info *info = figure_at((figure)f);
		fprintf(out, "<dt>%s</dt><dd>%s</dd>\n", info->name, info->means);
	}
	fprintf(
	    out,
	    "</dl>\n<p>All policies are measured by the same queries, those of the last %d tokens, and, where there are chunks "
	    "in a figure, by chunks of %d tokens, whatever their own are. Where a policy packs, projects or merges rows, "
	    "losses, "
	    "cosine and output are of the rows that its cache gives back. Each layer is measured as it was when everything was "
	    "kept: what its error does to the layers above is not counted here.</p>\n</details>\n",
	    YARD_WINDOW, YARD_CHUNK);
}

void inspect_means(const inspection *in, FILE *out) {
	fputs("<section id=\"means\">\n<h2>Figures</h2>\n<p class=\"lead\">Means over the layers; framed is the best where "
	      "more, or "
	      "less, is better.</p>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Means over the "
	      "layers\">\n<table>\n<caption>Means over the layers</caption>\n<thead><tr><th scope=\"col\" "
	      "class=\"corner\">policy</th><th scope=\"col\">kept</th>"
	      "<th scope=\"col\">cells</th>",
	      out);
	for (int f = 0; f < N_FIGURES; f++) {
		const figure_info *info = figure_at((figure)f);
		fprintf(out, "<th scope=\"col\">%s<small>%s</small></th>", info->name,
		        info->good > 0   ? "more is better"
		        : info->good < 0 ? "less is better"
		                         : "");
	}
	fputs("</tr></thead>\n<tbody>\n", out);
	for (int32_t i = 0; i < in->n_policies; i++) {
		put_row(in, i, out);
	}
	fputs("</tbody>\n</table>\n</div>\n", out);
	put_terms(out);
	fputs("</section>\n", out);
}

/* ----------------------------------------------------------------------------------------------------------------- texts */

static void put_key(FILE *out) {
	fputs("<p class=\"key\">layers and heads that keep a token: <span>none</span>", out);
	for (int step = 1; step < N_STEPS; step++) {
		fprintf(out, "<span class=\"h%d\">%s</span>", step, text_step_name(step));
	}
	fputs(" <u>sinks and window</u></p>\n", out);
}

/* Tokens that any layer keeps, that all keep. */
static void count_kept(const inspection *in, const inspected *p, int32_t *any, int32_t *all) {
	*any = *all = 0;
	for (int32_t i = 0; i < in->n_tokens; i++) {
		int step = text_step((double)p->share[i]);
		*any += step > 0;
		*all += step == N_STEPS - 1;
	}
}

static void put_text(const inspection *in, const inspected *p, bool open, FILE *out) {
	int32_t any, all;
	count_kept(in, p, &any, &all);
	fprintf(out, "<details%s>\n<summary>", open ? " open" : "");
	html_text(out, p->policy);
	fputs(" <small>keeps ", out);
	html_percent(out, inspect_share(in, p));
	fputs("; some layer keeps ", out);
	html_percent(out, (double)any / in->n_tokens);
	fputs(" of the text, every layer ", out);
	html_percent(out, (double)all / in->n_tokens);
	fputs("</small></summary>\n<div class=\"kept\">", out);
	const shown_text t = {in->text, in->ends, p->share, in->n_tokens, p->sinks, p->window};
	text_show(&t, out);
	fputs("</div>\n</details>\n", out);
}

void inspect_texts(const inspection *in, FILE *out) {
	enum { OPEN = 2 };
	fputs(
	    "<section id=\"texts\">\n<h2>What is kept</h2>\n<p class=\"lead\">The prompt as the model has it, template and all. "
	    "The stronger a token's ground, the more layers and heads keep it; what has none is gone everywhere. Underlined are "
	    "the "
	    "tokens at both ends that a policy protects.</p>\n",
	    out);
	put_key(out);
	fputs("<div class=\"texts\">\n", out);
	for (int32_t i = 0; i < in->n_policies; i++) {
		put_text(in, &in->policies[i], i < OPEN, out);
	}
	fputs("</div>\n</section>\n", out);
}

/* ------------------------------------------------------------------------------------------------------------------ file */

static bool put_page(FILE *out, const void *user) {
	const inspection *in = user;
	inspect_head(in, out);
	inspect_means(in, out);
	inspect_texts(in, out);
	inspect_charts(in, out);
	inspect_heat(in, out);
	fputs("</main>\n</body>\n</html>\n", out);
	return true;
}

bool inspect_can_write(const char *path) { return html_can_write(path); }

bool inspect_page(const inspection *in, const char *path) { return html_write(path, put_page, in); }
