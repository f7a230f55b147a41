/* The answers that suffered most, beside what the whole cache answered. */
#include "report_parts.h"

#include <math.h>
#include <string.h>

enum { N_SHOWN = 3 };

/* The records of largest mean KL at keep k, of one series or (-1) any; returns how many. */
static int find_worst(const page *r, int32_t k, int32_t series, const record *worst[N_SHOWN]) {
	int n = 0;
	for (int32_t i = 0; i < r->records->n; i++) {
		const record *x = &r->records->items[i];
		bool wanted = strcmp(x->keep, r->keeps[k]) == 0 && !record_is_whole(x->policy) &&
		              (series < 0 ||
		               (strcmp(x->policy, r->series[series].policy) == 0 && strcmp(x->cache, r->series[series].cache) == 0));
		double kl = wanted ? record_kl(x) : (double)NAN;
		if (!isfinite(kl) || (n == N_SHOWN && kl <= record_kl(worst[n - 1]))) {
			continue;
		}
		int at = n < N_SHOWN ? n++ : n - 1;
		for (; at > 0 && record_kl(worst[at - 1]) < kl; at--) {
			worst[at] = worst[at - 1];
		}
		worst[at] = x;
	}
	return n;
}

static void put_said(const page *r, const char *who, const record *x) {
	fprintf(r->out, "<div><h4>%s", who);
	if (x && isfinite(x->score)) {
		fputs(", score ", r->out);
		html_number(r->out, x->score);
	}
	fputs("</h4><div class=\"said\">", r->out);
	if (!x) {
		fputs("<span class=\"near\">not recorded</span>", r->out);
	} else if (!x->answer || !*x->answer) {
		fputs("<span class=\"near\">nothing</span>", r->out);
	} else {
		html_text(r->out, x->answer);
	}
	fputs("</div></div>\n", r->out);
}

static void put_case(const page *r, const record *x) {
	fputs("<div class=\"case\"><p><b>", r->out);
	html_text(r->out, x->example);
	fputs("</b>, ", r->out);
	html_text(r->out, x->policy);
	if (strcmp(x->cache, r->file->header.reference) != 0) {
		fputs(", ", r->out);
		html_text(r->out, x->cache);
	}
	fputs(": KL ", r->out);
	html_number(r->out, record_kl(x));
	fprintf(r->out, ", %d of %d tokens held", x->n_cells, x->n_prompt);
	if (x->reason && *x->reason) {
		fputs("; ", r->out);
		html_text(r->out, x->reason);
	}
	fputs("</p>\n<div class=\"two\">\n", r->out);
	put_said(r, "Whole cache", page_reference(r, x->example));
	put_said(r, "Compressed cache", x);
	fputs("</div></div>\n", r->out);
}

static void put_some(const page *r, int32_t k, int32_t series) {
	const record *worst[N_SHOWN] = {NULL};
	int n = find_worst(r, k, series, worst);
	if (!n) {
		return;
	}
	fputs("<details>\n<summary>", r->out);
	page_keep(r->out, r->keeps[k]);
	fputs(" kept, ", r->out);
	if (series < 0) {
		fputs("any policy", r->out);
	} else {
		page_name(r, r->out, &r->series[series]);
		fputs(", the best there", r->out);
	}
	fputs("</summary>\n", r->out);
	for (int i = 0; i < n; i++) {
		put_case(r, worst[i]);
	}
	fputs("</details>\n", r->out);
}

void page_worst(const page *r) {
	fputs("<section id=\"worst\">\n<h2>Worst answers</h2>\n<p class=\"lead\">The examples of largest mean KL at each size, "
	      "of the "
	      "policy that does best there and of all. The KL is measured along the whole cache's answer; the compressed "
	      "cache's is what it answers by itself.</p>\n",
	      r->out);
	for (int32_t k = 0; k < r->n_keeps; k++) {
		int32_t best = page_best(r, k);
		if (best >= 0) {
			put_some(r, k, best);
		}
		if (r->n_policies > 1) {
			put_some(r, k, -1);
		}
	}
	fputs("</section>\n", r->out);
}
