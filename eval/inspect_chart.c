/* Each figure over the layers, a line for each policy; its name stands at the line's end. */
#include "inspect_parts.h"

#include "html.h"
#include "svg.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 580, LEFT = 46, RIGHT = 410, TOP = 14, LEAST_BOTTOM = 214, LINE = 14, LONGEST_NAME = 20 };

typedef struct chart {
	const inspection *in;
	FILE *out;
	figure figure;
	scale x, y;
	int bottom;
} chart;

/* Of which policy, where its line ends, and where its name has room. */
typedef struct label {
	int32_t policy;
	double y, place;
} label;

static double value_at(const chart *c, int32_t policy, int32_t layer) {
	return c->in->policies[policy].figures[layer][c->figure];
}

/* False where nothing was measured. */
static bool fit(chart *c) {
	double low = (double)INFINITY, high = -low;
	int32_t last = c->in->layers[c->in->n_layers - 1], first = c->in->layers[0];
	for (int32_t i = 0; i < c->in->n_policies; i++) {
		for (int32_t j = 0; j < c->in->n_layers; j++) {
			double value = value_at(c, i, j);
			low = isfinite(value) ? fmin(low, value) : low;
			high = isfinite(value) ? fmax(high, value) : high;
		}
	}
	int names = TOP + (c->in->n_policies + 1) * LINE;
	c->bottom = names > LEAST_BOTTOM ? names : LEAST_BOTTOM;
	low = low > 0.0 && low < 0.6 * high ? 0.0 : low;
	double slack = high > low ? 0.04 * (high - low) : 0.05;
	c->x = (scale){first, last > first ? last : first + 1, LEFT + 4, RIGHT, false};
	c->y = (scale){low == 0.0 ? 0.0 : low - slack, high + slack, c->bottom, TOP, false};
	return isfinite(low) && isfinite(high);
}

/* --------------------------------------------------------------------------------------------------------------- drawing */

static void put_axes(const chart *c) {
	double ticks[MOST_TICKS];
	int n = scale_ticks(&c->y, ticks);
	for (int i = 0; i < n; i++) {
		double y = scale_at(&c->y, ticks[i]);
		svg_line(c->out, "grid", LEFT, y, RIGHT + 4, y);
		fprintf(c->out, "<text class=\"tick\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n", LEFT - 6, y + 4.0,
		        ticks[i] + 0.0); /* never -0 */
	}
	svg_line(c->out, "axis", LEFT, c->bottom, RIGHT + 4, c->bottom);
	n = scale_ticks(&c->x, ticks);
	for (int i = 0; i < n; i++) {
		if (ticks[i] == floor(ticks[i])) {
			fprintf(c->out, "<text class=\"tick\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%g</text>\n",
			        scale_at(&c->x, ticks[i]), c->bottom + 17, ticks[i] + 0.0);
		}
	}
	fprintf(c->out, "<text class=\"tick\" x=\"%d\" y=\"%d\">layer</text>\n", RIGHT + 18, c->bottom + 17);
}

/* The last layer that has the figure; false: none has. */
static bool find_end(const chart *c, int32_t policy, double *y) {
	bool any = false;
	for (int32_t j = 0; j < c->in->n_layers; j++) {
		double value = value_at(c, policy, j);
		if (isfinite(value)) {
			*y = scale_at(&c->y, value);
			any = true;
		}
	}
	return any;
}

/* Where there is a gap it begins anew. */
static void put_line(const chart *c, int32_t policy) {
	bool drawn = false;
	fprintf(c->out, "<path class=\"path s %s%s\" d=\"", svg_colour(policy % N_COLOURS), policy_dash(policy));
	for (int32_t j = 0; j < c->in->n_layers; j++) {
		double value = value_at(c, policy, j);
		if (isfinite(value)) {
			fprintf(c->out, "%s%.1f %.1f", drawn ? "L" : "M", scale_at(&c->x, c->in->layers[j]), scale_at(&c->y, value));
		}
		drawn = isfinite(value);
	}
	fputs("\"/>\n", c->out);
}

static void put_label(const chart *c, const label *l) {
	const char *colour = svg_colour(l->policy % N_COLOURS);
	svg_line(c->out, "lead-line", RIGHT + 2, l->y, RIGHT + 16, l->place);
	fprintf(c->out, "<path class=\"path s %s%s\" d=\"M%d %.1fh16\"/>", colour, policy_dash(l->policy), RIGHT + 18, l->place);
	svg_mark(c->out, l->policy / N_COLOURS, RIGHT + 26, l->place, 3.4, colour, false);
	fprintf(c->out, "<text x=\"%d\" y=\"%.1f\">", RIGHT + 40, l->place + 4.0);
	html_short(c->out, c->in->policies[l->policy].policy, LONGEST_NAME);
	fputs("</text>\n", c->out);
}

static int by_height(const void *a, const void *b) {
	const label *x = a, *y = b;
	return x->y != y->y ? (x->y > y->y) - (x->y < y->y) : (x->policy > y->policy) - (x->policy < y->policy);
}

static int last_first(const void *a, const void *b) { return ((const label *)b)->policy - ((const label *)a)->policy; }

static void spread(label *labels, int32_t n, int bottom) {
	double places[MAX_PLANNED];
	qsort(labels, (size_t)n, sizeof *labels, by_height);
	for (int32_t i = 0; i < n; i++) {
		places[i] = labels[i].y;
	}
	svg_spread(places, n, LINE, TOP, bottom - 2);
	for (int32_t i = 0; i < n; i++) {
		labels[i].place = places[i];
	}
}

/* The first policy is drawn last, on top of all. Pointing at a name, or a line, makes both stand out. */
static void put_lines(const chart *c) {
	label labels[MAX_PLANNED];
	int32_t n = 0;
	for (int32_t i = 0; i < c->in->n_policies; i++) {
		labels[n].policy = i;
		n += find_end(c, i, &labels[n].y);
	}
	spread(labels, n, c->bottom);
	qsort(labels, (size_t)n, sizeof *labels, last_first);
	for (int32_t i = 0; i < n; i++) {
		fputs("<g class=\"line\">", c->out);
		put_line(c, labels[i].policy);
		put_label(c, &labels[i]);
		fputs("</g>\n", c->out);
	}
}

static void put_figure(chart *c) {
	const figure_info *info = figure_at(c->figure);
	if (!fit(c)) {
		return;
	}
	fprintf(c->out, "<figure><figcaption>%s<small>%s</small></figcaption>\n", info->name, info->means);
	svg_begin(c->out, WIDTH, c->bottom + 26, info->name);
	put_axes(c);
	put_lines(c);
	svg_end(c->out);
	fputs("</figure>\n", c->out);
}

void inspect_charts(const inspection *in, FILE *out) {
	chart c = {.in = in, .out = out};
	fputs("<section id=\"layers\">\n<h2>Layer by layer</h2>\n<p class=\"lead\">The same figures, unaveraged. Lines that lie "
	      "on each other are the same to the eye; names stand where they end.</p>\n<div class=\"charts\">\n",
	      out);
	for (int f = 0; f < N_FIGURES; f++) {
		c.figure = (figure)f;
		put_figure(&c);
	}
	fputs("</div>\n</section>\n", out);
}
