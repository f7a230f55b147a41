/* Every policy beside the best one at each size, example by example. */
#include "report_parts.h"

#include <math.h>

static void put_difference(const page *r, interval x, bool lower_is_better, const char *class) {
	bool sure = x.low > 0.0 || x.high < 0.0, worse = (x.value > 0.0) == lower_is_better;
	fprintf(r->out, "<td class=\"%s%s\">", class, sure ? "sure" : "near");
	if (sure) {
		fprintf(r->out, "<span role=\"img\" aria-label=\"%s, told from chance:\">%s</span> ", worse ? "worse" : "better",
		        worse ? "✗" : "✓");
	}
	html_bounded(r->out, x, html_difference);
	fputs("</td>", r->out);
}

static void put_pair(const page *r, int32_t i, int32_t best, int32_t k) {
	int n_columns = 1 + r->judged + r->forced;
	if (i == best) {
		fprintf(r->out, "<td class=\"first best\" colspan=\"%d\">the least loss</td>", n_columns);
		return;
	}
	if (best < 0 || !page_summary(r, i, k)->n) {
		fprintf(r->out, "<td class=\"first\" colspan=\"%d\" aria-label=\"not measured\">–</td>", n_columns);
		return;
	}
	selection a = page_select(r, i, k, NULL), b = page_select(r, best, k, NULL);
	paired p = summarise_paired(r->records, &a, &b);
	put_difference(r, p.kl, true, "first ");
	if (r->forced) {
		put_difference(r, p.nll, true, "");
	}
	if (r->judged) {
		put_difference(r, p.score, false, "");
	}
}

static void put_head(const page *r) {
	fputs("<caption>Differences to the policy of least loss at each size</caption>\n<thead>\n<tr>"
	      "<th scope=\"col\" rowspan=\"2\" class=\"corner\">policy</th>",
	      r->out);
	for (int32_t k = 0; k < r->n_keeps; k++) {
		fprintf(r->out, "<th scope=\"colgroup\" colspan=\"%d\" class=\"group first\">", 1 + r->judged + r->forced);
		page_keep(r->out, r->keeps[k]);
		fputs(" kept</th>", r->out);
	}
	fputs("</tr>\n<tr>", r->out);
	for (int32_t k = 0; k < r->n_keeps; k++) {
		fprintf(r->out, "<th scope=\"col\" class=\"first\">KL</th>%s%s",
		        r->forced ? "<th scope=\"col\">nats per token</th>" : "", r->judged ? "<th scope=\"col\">score</th>" : "");
	}
	fputs("</tr>\n</thead>\n", r->out);
}

void page_pairs(const page *r) {
	fputs("<section id=\"pairs\">\n<h2>Side by side</h2>\n", r->out);
	if (r->n_policies < 2) {
		fputs("<p>With one policy there is nothing to set side by side.</p>\n</section>\n", r->out);
		return;
	}
	fputs("<p class=\"lead\">Each policy minus the one of least loss, on the same examples: what prompts differ in drops "
	      "out, so "
	      "this tells more than two intervals side by side. ✗ and bold: worse, and the 95&nbsp;% interval leaves out 0; "
	      "✓: better likewise; grey: not told from chance. Of many comparisons one in twenty errs.</p>\n"
	      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Differences\">\n<table>\n",
	      r->out);
	put_head(r);
	fputs("<tbody>\n", r->out);
	for (int32_t i = 0; i < r->n_policies; i++) {
		fputs("<tr><th scope=\"row\">", r->out);
		page_name(r, r->out, &r->series[i]);
		fputs("</th>", r->out);
		for (int32_t k = 0; k < r->n_keeps; k++) {
			put_pair(r, i, page_best(r, k), k);
		}
		fputs("</tr>\n", r->out);
	}
	fputs("</tbody>\n</table>\n</div>\n</section>\n", r->out);
}
