/* How much layers agree on what to keep: a square of layers by layers for each policy. */
#include "inspect_parts.h"

#include "html.h"
#include "svg.h"

#include <math.h>
#include <stdio.h>

enum { SIDE = 210, LEFT = 26, MOST_STEPS = 7 };

/* h0 to h6, a seventh each. */
static int step_of(double value) {
	int step = isfinite(value) ? (int)floor(value * MOST_STEPS) : 0;
	return step < 0 ? 0 : step < MOST_STEPS ? step : MOST_STEPS - 1;
}

static double cell(const inspection *in, const inspected *p, int32_t row, int32_t column) {
	return p->jaccard[(size_t)row * (size_t)in->n_layers + (size_t)column];
}

/* All cells of one step in one path, neighbours in one stroke, so that a picture of many layers stays small. */
static void put_step(const inspection *in, const inspected *p, int step, FILE *out) {
	bool open = false;
	for (int32_t row = 0; row < in->n_layers; row++) {
		for (int32_t column = 0, n; column < in->n_layers; column += n) {
			n = 1;
			if (step_of(cell(in, p, row, column)) != step) {
				continue;
			}
			while (column + n < in->n_layers && step_of(cell(in, p, row, column + n)) == step) {
				n++;
			}
			fprintf(out, "%sM%d %dh%dv1h-%dz", open ? "" : "<path d=\"", column, row, n, n);
			open = true;
		}
	}
	if (open) {
		fprintf(out, "\" class=\"f%d\"/>\n", step);
	}
}

/* The first and the last layer's number at both sides. */
static void put_numbers(const inspection *in, FILE *out) {
	int32_t first = in->layers[0], last = in->layers[in->n_layers - 1];
	fprintf(out,
	        "<text class=\"tick\" x=\"%d\" y=\"11\" text-anchor=\"end\">%d</text><text class=\"tick\" x=\"%d\" y=\"%d\" "
	        "text-anchor=\"end\">%d</text>\n",
	        LEFT - 5, first, LEFT - 5, SIDE - 1, last);
	fprintf(out,
	        "<text class=\"tick\" x=\"%d\" y=\"%d\">%d</text><text class=\"tick\" x=\"%d\" y=\"%d\" "
	        "text-anchor=\"end\">%d</text>\n",
	        LEFT, SIDE + 14, first, LEFT + SIDE, SIDE + 14, last);
}

static void put_panel(const inspection *in, const inspected *p, FILE *out) {
	char name[320];
	double mean = inspect_mean(in, p, FIGURE_JACCARD);
	snprintf(name, sizeof name, "Agreement of layers, %s", p->policy);
	fputs("<figure><figcaption>", out);
	html_text(out, p->policy);
	fputs("<small>neighbours ", out);
	html_number(out, mean);
	fputs("</small></figcaption>\n", out);
	svg_begin(out, LEFT + SIDE + 2, SIDE + 18, name);
	fprintf(out, "<g transform=\"translate(%d 0)scale(%.4f)\" shape-rendering=\"crispEdges\">\n", LEFT,
	        (double)SIDE / in->n_layers);
	for (int step = 0; step < MOST_STEPS; step++) {
		put_step(in, p, step, out);
	}
	fputs("</g>\n", out);
	put_numbers(in, out);
	svg_end(out);
	fputs("</figure>\n", out);
}

static void put_key(FILE *out) {
	fputs("<p class=\"key\">Jaccard", out);
	for (int step = 0; step < MOST_STEPS; step++) {
		fprintf(out, "<span class=\"h%d\">%.2f to %.2f</span>", step, (double)step / MOST_STEPS, (step + 1.0) / MOST_STEPS);
	}
	fputs("</p>\n", out);
}

void inspect_heat(const inspection *in, FILE *out) {
	fputs("<section id=\"agreement\">\n<h2>Do layers agree?</h2>\n<p class=\"lead\">Each square compares what two layers "
	      "keep: "
	      "the tokens that both keep, of those that either keeps (Jaccard). Where neighbours agree, one layer's choice can "
	      "serve the next ones too.</p>\n",
	      out);
	put_key(out);
	fputs("<div class=\"panels\">\n", out);
	for (int32_t i = 0; i < in->n_policies; i++) {
		put_panel(in, &in->policies[i], out);
	}
	fputs("</div>\n</section>\n", out);
}
