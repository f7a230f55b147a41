/* What reading each prompt once saved, what is out of the ordinary, and what the figures mean. */
#include "report_parts.h"

#include <string.h>

void page_saving(const page *r) {
	const record_file *f = r->file;
	double once = f->prefill_s + f->other_s, apart = f->apart_s + f->other_s;
	if (f->n_prefills < 1 || !(once > 0.0)) {
		return;
	}
	fputs("<section id=\"saving\">\n<h2>What the run took</h2>\n<p>Each prompt was read once for ", r->out);
	fprintf(r->out, "%.3g cache%s: <b>", (double)f->n_starts / f->n_prefills, f->n_starts == f->n_prefills ? "" : "s");
	html_seconds(r->out, once);
	fputs("</b>, of which reading took ", r->out);
	html_seconds(r->out, f->prefill_s);
	fputs(". Each for itself they would have taken ", r->out);
	html_seconds(r->out, apart);
	fprintf(r->out, ": <b>%.1f times</b> that.</p>\n</section>\n", apart / once);
}

/* --------------------------------------------------------------------------------------------------------------- reasons */

static bool same_reason(const record *a, const record *b) {
	return strcmp(a->reason, b->reason) == 0 && strcmp(a->policy, b->policy) == 0 && strcmp(a->keep, b->keep) == 0 &&
	       strcmp(a->cache, b->cache) == 0;
}

static bool has_reason(const record *x) { return x->reason && *x->reason; }

/* Is a record the first of its reason? Counts those that share it. */
static int32_t count_reason(const page *r, int32_t first) {
	const record *items = r->records->items;
	int32_t n = 0;
	for (int32_t i = 0; i < r->records->n; i++) {
		if (has_reason(&items[i]) && same_reason(&items[i], &items[first])) {
			if (i < first) {
				return 0;
			}
			n++;
		}
	}
	return n;
}

enum { MOST_REASONS = 40 };

static void put_reasons(const page *r) {
	int n_shown = 0;
	for (int32_t i = 0; i < r->records->n && n_shown <= MOST_REASONS; i++) {
		const record *x = &r->records->items[i];
		int32_t n = has_reason(x) ? count_reason(r, i) : 0;
		if (!n) {
			continue;
		}
		if (n_shown++ == MOST_REASONS) {
			fputs("<li>and others, which the record file has.</li>\n", r->out);
			break;
		}
		fputs(n_shown == 1 ? "<h3>Not plain selections</h3>\n<ul>\n<li><b>" : "<li><b>", r->out);
		html_text(r->out, x->policy);
		fputs("</b>, ", r->out);
		page_keep(r->out, x->keep);
		fputs(", ", r->out);
		html_text(r->out, x->cache);
		fputs(": ", r->out);
		html_text(r->out, x->reason);
		fputs(" (", r->out);
		page_count(r->out, n, "example");
		fputs(")</li>\n", r->out);
	}
	if (n_shown) {
		fputs("</ul>\n", r->out);
	}
}

/* --------------------------------------------------------------------------------------------------------------- terms */

static void term(const page *r, const char *name, const char *meaning) {
	fprintf(r->out, "<dt>%s</dt><dd>%s</dd>\n", name, meaning);
}

static void put_terms(const page *r) {
	term(
	    r, "KL",
	    "Kullback-Leibler divergence, KL(whole || compressed), of the two next-token distributions, in nats. At each "
	    "position of "
	    "the whole cache's greedy answer the compressed cache is given the same tokens so far, and every distribution, that "
	    "of the first token included, comes from the compressed cache alone. Mean over the positions of an answer, then "
	    "over "
	    "examples. 0: nothing lost.");
	term(r, "p99", "99th percentile of KL over all positions of all examples: how bad the bad tokens are.");
	term(r, "same top", "Share of those positions at which both have the same most likely token; long answers weigh more.");
	term(r, "exact",
	     "Share of examples whose answer, made by the compressed cache itself, is the whole cache's token by token.");
	if (r->judged) {
		term(r, "score",
		     "What the task's own metric says of the answer, 0 to 1, mean over the examples that it judges. Beside it "
		     "the whole cache's own: a loss of score can only be told where that one is well above 0.");
	}
	if (r->forced) {
		term(r, "perplexity", "exp of the mean, over examples, of the negative log likelihood per token of a given text.");
	}
	term(r, "memory",
	     "Bytes of the rows held, of all layers, by those of the whole cache in the reference's type: row size times "
	     "rows, not what an allocation rounds up to. <em>own</em>: where every layer and head could have a "
	     "length of its own.");
	term(r, "95&nbsp;% interval",
	     "Percentile bootstrap over examples: 2,000 resamples with a fixed seed. It tells what other examples "
	     "of the same kind might have given; not other tasks, models or lengths. With few examples it is too "
	     "narrow rather than too wide.");
	term(r, "Least loss",
	     "The lowest mean KL of what was measured. It was picked from these very examples, and so flatters a "
	     "little.");
}

void page_notes(const page *r) {
	fputs("<section id=\"notes\">\n<h2>What the figures mean</h2>\n<dl class=\"terms\">\n", r->out);
	put_terms(r);
	fputs("</dl>\n", r->out);
	put_reasons(r);
	fputs("</section>\n", r->out);
}
