/* What was run, and the answer in words. */
#include "report_parts.h"

#include <math.h>
#include <string.h>

static void field(const page *r, const char *class, const char *name, const char *value) {
	if (value && *value) {
		fprintf(r->out, "<div%s><dt>%s</dt><dd>", class, name);
		html_text(r->out, value);
		fputs("</dd></div>\n", r->out);
	}
}

void page_run(const page *r) {
	const run_header *h = &r->file->header;
	fputs("<section aria-label=\"What was run\">\n<dl class=\"run\">\n", r->out);
	field(r, "", "Model", h->model);
	field(r, "", "Tasks", h->tasks);
	field(r, "", "The question", h->setting);
	field(r, "", "Compared to the whole cache in", h->reference);
	fputs("<div><dt>Prompts</dt><dd>", r->out);
	page_count(r->out, r->reference.n, "example");
	if (isfinite(r->reference.n_prompt)) {
		fprintf(r->out, ", %.0f tokens on average", r->reference.n_prompt);
	}
	fputs("</dd></div>\n<div><dt>Caches compared</dt><dd>", r->out);
	page_count(r->out, r->n_series, "line");
	fprintf(r->out, " of figures, %d size%s</dd></div>\n", r->n_keeps, r->n_keeps == 1 ? "" : "s");
	field(r, "", "Machine", h->machine);
	field(r, "", "Begun", h->date);
	field(r, "", "chunkkv", h->version);
	field(r, "", "Model's hash", h->model_hash);
	field(r, " class=\"wide\"", "Settings", h->settings);
	fputs("</dl>\n</section>\n", r->out);
}

/* ----------------------------------------------------------------------------------------------------------- one keep */

/* Is the difference of two paired caches told from 0? */
static bool told_apart(const page *r, int32_t i, int32_t best, int32_t k) {
	selection a = page_select(r, i, k, NULL), b = page_select(r, best, k, NULL);
	paired p = summarise_paired(r->records, &a, &b);
	interval x = isfinite(p.kl.value) ? p.kl : isfinite(p.nll.value) ? p.nll : p.score;
	return x.low > 0.0 || x.high < 0.0;
}

enum { MOST_NAMED = 5 };

static void put_equals(const page *r, int32_t best, int32_t k) {
	int32_t n = 0;
	for (int32_t i = 0; i < r->n_policies; i++) {
		if (i == best || !page_summary(r, i, k)->n || told_apart(r, i, best, k)) {
			continue;
		}
		if (n < MOST_NAMED) {
			fputs(n ? ", " : "<p class=\"near\">Not told apart from it by these examples: ", r->out);
			page_name(r, r->out, &r->series[i]);
		}
		n++;
	}
	if (n > MOST_NAMED) {
		fprintf(r->out, " and %d more", n - MOST_NAMED);
	}
	if (n) {
		fputs(".</p>\n", r->out);
	} else if (r->reference.n > 1 && r->n_policies > 1) {
		fputs("<p class=\"near\">All others lose more, and these examples suffice to tell.</p>\n", r->out);
	}
}

/* "KL 0.22 [0.15, 0.31], the same most likely token at 88 % of positions, score 0.73 (whole cache: 0.80)" */
static void put_figures(const page *r, const summary *s) {
	const char *between = "";
	if (isfinite(s->nll.value)) {
		fputs("perplexity <b>", r->out);
		html_interval(r->out, page_perplexity(s->nll));
		fputs("</b> (whole cache: ", r->out);
		html_number(r->out, exp(r->reference.nll.value));
		fputs(")", r->out);
		between = ", ";
	}
	if (isfinite(s->kl.value)) {
		fprintf(r->out, "%sKL <b>", between);
		html_interval(r->out, s->kl);
		fputs("</b>, the same most likely token at ", r->out);
		html_percent(r->out, s->same.value);
		fputs(" of positions", r->out);
		between = ", ";
	}
	if (isfinite(s->score.value)) {
		fprintf(r->out, "%sscore <b>", between);
		html_number(r->out, s->score.value);
		fputs("</b>; the full cache itself scores ", r->out);
		html_number(r->out, r->reference.score.value);
	}
	fputs(".", r->out);
}

static void put_keep(const page *r, int32_t k) {
	int32_t best = page_best(r, k);
	if (best < 0) {
		return;
	}
	const summary *s = page_summary(r, best, k);
	fputs("<article class=\"card\">\n<h3>At ", r->out);
	page_keep(r->out, r->keeps[k]);
	fputs(" the least loss</h3>\n<p class=\"who\">", r->out);
	page_name(r, r->out, &r->series[best]);
	fputs("</p>\n<p>", r->out);
	put_figures(r, s);
	fputs(" Its rows take ", r->out);
	html_percent(r->out, s->share);
	fputs(" of the whole cache's memory.</p>\n", r->out);
	put_equals(r, best, k);
	fputs("</article>\n", r->out);
}

static void put_whole(const page *r) {
	for (int32_t i = r->n_policies; i < r->n_series; i++) {
		const summary *s = page_summary(r, i, r->n_keeps);
		if (strcmp(r->series[i].cache, r->file->header.reference) == 0 || !s->n || !isfinite(s->kl.value)) {
			continue;
		}
		fputs("<p>Nothing dropped, but held in ", r->out);
		html_text(r->out, r->series[i].cache);
		fputs(": ", r->out);
		html_percent(r->out, s->share);
		fputs(" of the memory, ", r->out);
		put_figures(r, s);
		fputs("</p>\n", r->out);
	}
}

void page_answer(const page *r) {
	fputs("<section id=\"answer\">\n<h2>In short</h2>\n", r->out);
	if (!r->n_policies) {
		fputs("<p>No compressed cache has been measured yet.</p>\n", r->out);
	}
	fputs("<p class=\"lead\">On these prompts, by the mean KL divergence from what the full cache says next.</p>\n"
	      "<div class=\"cards\">\n",
	      r->out);
	for (int32_t k = 0; k < r->n_keeps; k++) {
		put_keep(r, k);
	}
	fputs("</div>\n", r->out);
	put_whole(r);
	if (r->reference.n > 0 && r->reference.n < 30) {
		fputs("<p class=\"near\">", r->out);
		page_count(r->out, r->reference.n, "example");
		fputs(r->reference.n == 1
		          ? ": no interval can be given, and another prompt may turn the order round.</p>\n"
		          : ": the intervals, in brackets, are wide, and other prompts may turn the order round.</p>\n",
		      r->out);
	}
	fputs("</section>\n", r->out);
}
