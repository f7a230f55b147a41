/* The figures of every cache, for all tasks together and for each. */
#include "report_parts.h"

#include "heat.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int columns(const page *r) { return 5 + r->judged + r->forced; }

static void put_cell_end(const page *r) { fputs("</td>", r->out); }

static void put_bounded(const page *r, interval x, void (*put)(FILE *, double)) {
	fputs("<td>", r->out);
	html_bounded(r->out, x, put);
	put_cell_end(r);
}

static void put_memory(const page *r, const summary *s) {
	fputs("<td>", r->out);
	html_percent(r->out, s->share);
	if (s->share_own < s->share - 0.004) {
		fputs("<small>own ", r->out);
		html_percent(r->out, s->share_own);
		fputs("</small>", r->out);
	}
	put_cell_end(r);
}

/* most: examples that the table's fullest cell has. */
static void put_kl(const page *r, const summary *s, bool best, int32_t most) {
	fprintf(r->out, "<td class=\"first %s%s\">", heat_of_kl(s->kl.value), best ? " best" : "");
	html_bounded(r->out, s->kl, html_number);
	if (s->n < most) {
		fprintf(r->out, "<small>n = %d</small>", s->n);
	}
	put_cell_end(r);
}

static void put_group(const page *r, const summary *s, bool best, int32_t most) {
	if (!s->n) {
		fprintf(r->out, "<td class=\"first\" colspan=\"%d\" aria-label=\"not measured\">–</td>", columns(r));
		return;
	}
	put_kl(r, s, best, most);
	fputs("<td>", r->out);
	html_number(r->out, s->kl_p99.value);
	fputs("</td><td>", r->out);
	html_percent(r->out, s->same.value);
	fputs("</td><td>", r->out);
	html_percent(r->out, s->exact.value);
	put_cell_end(r);
	if (r->forced) {
		put_bounded(r, page_perplexity(s->nll), html_number);
	}
	if (r->judged) {
		put_bounded(r, s->score, html_number);
	}
	put_memory(r, s);
}

/* What the columns of a group are; the whole cache's own figures stand in them. */
static void put_headings(const page *r, const summary *reference) {
	fputs("<th scope=\"col\" class=\"first\">KL</th><th scope=\"col\"><abbr title=\"99th percentile of KL\">p99</abbr></th>"
	      "<th scope=\"col\">same top</th><th scope=\"col\">exact</th>",
	      r->out);
	if (r->forced) {
		fputs("<th scope=\"col\">perplexity<small>whole ", r->out);
		html_number(r->out, exp(reference->nll.value));
		fputs("</small></th>", r->out);
	}
	if (r->judged) {
		fputs("<th scope=\"col\">score<small>whole ", r->out);
		html_number(r->out, reference->score.value);
		fputs("</small></th>", r->out);
	}
	fputs("<th scope=\"col\">memory</th>", r->out);
}

static void put_head(const page *r, const summary *reference) {
	fputs("<thead>\n<tr><th scope=\"col\" rowspan=\"2\" class=\"corner\">policy</th>", r->out);
	for (int32_t k = 0; k < r->n_keeps; k++) {
		fprintf(r->out, "<th scope=\"colgroup\" colspan=\"%d\" class=\"group first\">", columns(r));
		page_keep(r->out, r->keeps[k]);
		fputs(" kept</th>", r->out);
	}
	fputs("</tr>\n<tr>", r->out);
	for (int32_t k = 0; k < r->n_keeps; k++) {
		put_headings(r, reference);
	}
	fputs("</tr>\n</thead>\n", r->out);
}

/* A task's figures, as report.all has those of all. */
static summary *summarise_task(const page *r, const char *task) {
	size_t n_columns = (size_t)r->n_keeps + 1;
	summary *all = calloc((size_t)r->n_series * n_columns + 1, sizeof *all);
	for (int32_t i = 0; all && i < r->n_series; i++) {
		for (int32_t k = 0; k <= r->n_keeps; k++) {
			selection which = page_select(r, i, k, task);
			if (r->series[i].whole == (k == r->n_keeps)) {
				all[(size_t)i * n_columns + (size_t)k] = summarise(r->records, &which);
			}
		}
	}
	return all;
}

static int32_t most_examples(const page *r) {
	int32_t most = 0;
	for (int32_t i = 0; i < r->n_series; i++) {
		for (int32_t k = 0; k <= r->n_keeps; k++) {
			int32_t n = page_summary(r, i, k)->n;
			most = n > most ? n : most;
		}
	}
	return most;
}

static void put_caption(const page *r, const char *what, const char *task, int32_t n) {
	fprintf(r->out, "<caption>%s, ", what);
	if (task) {
		html_text(r->out, task);
		fputs(", ", r->out);
	}
	page_count(r->out, n, "example");
	fputs("</caption>\n", r->out);
}

static void put_policies(const page *r, const char *task) {
	int32_t most = most_examples(r);
	fputs("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Figures of policies\">\n<table>\n", r->out);
	put_caption(r, "Policies", task, most);
	put_head(r, &r->reference);
	fputs("<tbody>\n", r->out);
	for (int32_t i = 0; i < r->n_policies; i++) {
		fputs("<tr><th scope=\"row\">", r->out);
		page_name(r, r->out, &r->series[i]);
		fputs("</th>", r->out);
		for (int32_t k = 0; k < r->n_keeps; k++) {
			put_group(r, page_summary(r, i, k), page_best(r, k) == i, most);
		}
		fputs("</tr>\n", r->out);
	}
	fputs("</tbody>\n</table>\n</div>\n", r->out);
}

static void put_whole(const page *r, const char *task) {
	fputs("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Figures of whole caches\">\n<table>\n", r->out);
	put_caption(r, "Whole caches", task, r->reference.n);
	fputs("<thead>\n<tr><th scope=\"col\" class=\"corner\">nothing dropped</th>", r->out);
	put_headings(r, &r->reference);
	fputs("</tr>\n</thead>\n<tbody>\n", r->out);
	for (int32_t i = r->n_policies; i < r->n_series; i++) {
		fputs("<tr><th scope=\"row\">", r->out);
		page_name(r, r->out, &r->series[i]);
		if (strcmp(r->series[i].cache, r->file->header.reference) == 0) {
			fputs("<small>the reference</small>", r->out);
		}
		fputs("</th>", r->out);
		put_group(r, page_summary(r, i, r->n_keeps), false, r->reference.n);
		fputs("</tr>\n", r->out);
	}
	fputs("</tbody>\n</table>\n</div>\n", r->out);
}

static void put_tables(const page *r, const char *task) {
	if (r->n_policies) {
		put_policies(r, task);
	}
	if (r->n_policies < r->n_series) {
		put_whole(r, task);
	}
}

static void put_task(const page *r, const char *task) {
	selection whole = {task, r->file->header.reference, "full", NULL, 0, -1.0};
	page one = *r;
	one.all = summarise_task(r, task);
	one.reference = summarise(r->records, &whole);
	one.judged = one.forced = false;
	for (int32_t i = 0; i < r->records->n; i++) {
		const record *x = &r->records->items[i];
		one.judged |= strcmp(x->task, task) == 0 && isfinite(x->score);
		one.forced |= strcmp(x->task, task) == 0 && isfinite(x->nll);
	}
	fputs("<details>\n<summary>", r->out);
	html_text(r->out, task);
	fputs("</summary>\n", r->out);
	if (one.all) {
		put_tables(&one, task);
	}
	fputs("</details>\n", r->out);
	free(one.all);
}

void page_tables(const page *r) {
	fputs(
	    "<section id=\"figures\">\n<h2>Figures</h2>\n"
	    "<p class=\"lead\">KL is what was lost: how far the compressed cache's next-token distributions are from the whole "
	    "cache's, in nats, 0 being nothing. The small figures beneath bound the 95&nbsp;% interval; framed is the least KL "
	    "at "
	    "each size.</p>\n",
	    r->out);
	heat_key_of_kl(r->out);
	put_tables(r, r->n_tasks == 1 ? r->tasks[0] : NULL);
	for (int32_t i = 0; r->n_tasks > 1 && i < r->n_tasks; i++) {
		put_task(r, r->tasks[i]);
	}
	fputs("</section>\n", r->out);
}
