/* Memory against loss: every cache a point, those that nothing beats in both joined. Names stand in a column at the left, a
 * thin line to the first point of each; whole caches have theirs at the point. */
#include "report_parts.h"

#include "svg.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 1080, LEFT = 62, RIGHT = 1060, TOP = 34, NAMES = 190, LINE = 15, LONGEST_NAME = 27 };

typedef struct point {
	int32_t series, keep;
	double share, kl, x, y;
	uint8_t front;
} point;

typedef struct chart {
	const page *r;
	FILE *out;
	point *points;
	int32_t n;
	scale x, y;
	int height, bottom;
} chart;

/* ------------------------------------------------------------------------------------------------------------- points */

static void add_points(chart *c) {
	for (int32_t i = 0; i < c->r->n_series; i++) {
		for (int32_t k = 0; k <= c->r->n_keeps; k++) {
			const summary *s = page_summary(c->r, i, k);
			if (s->n && isfinite(s->kl.value) && s->share > 0.0) {
				c->points[c->n++] = (point){i, k, s->share, fmax(s->kl.value, 1e-6), 0.0, 0.0, 0};
			}
		}
	}
}

static bool find_front(chart *c) {
	double *values = malloc(((size_t)c->n + 1) * 2 * sizeof *values);
	uint8_t *marks = malloc((size_t)c->n + 1);
	for (int32_t i = 0; values && marks && i < c->n; i++) {
		values[i] = c->points[i].share;
		values[c->n + i] = c->points[i].kl;
	}
	bool good = values && marks;
	if (good) {
		summary_pareto(values, values + c->n, c->n, marks);
	}
	for (int32_t i = 0; good && i < c->n; i++) {
		c->points[i].front = marks[i];
	}
	free(values);
	free(marks);
	return good;
}

static void fit(chart *c) {
	double low = 1.0, least = (double)INFINITY, most = 0.0, high = 1.0;
	for (int32_t i = 0; i < c->n; i++) {
		low = fmin(low, c->points[i].share);
		high = fmax(high, c->points[i].share);
		least = fmin(least, c->points[i].kl);
		most = fmax(most, c->points[i].kl);
	}
	int names = c->r->n_policies * LINE;
	c->bottom = TOP + (names > 430 ? names + 20 : 450);
	c->height = c->bottom + 50;
	c->x = (scale){low / 1.06, high * 1.04, LEFT + NAMES + 24, RIGHT, true};
	c->y = (scale){least / 1.3, most * 1.3, c->bottom, TOP, true};
	for (int32_t i = 0; i < c->n; i++) {
		c->points[i].x = scale_at(&c->x, c->points[i].share);
		c->points[i].y = scale_at(&c->y, c->points[i].kl);
	}
}

/* ------------------------------------------------------------------------------------------------------------ drawing */

static void put_axes(const chart *c) {
	double ticks[MOST_TICKS];
	int n = scale_ticks(&c->y, ticks);
	for (int i = 0; i < n; i++) {
		double y = scale_at(&c->y, ticks[i]);
		svg_line(c->out, "grid", LEFT, y, RIGHT, y);
		fprintf(c->out, "<text class=\"tick\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n", LEFT - 8, y + 4.0,
		        ticks[i]);
	}
	n = scale_ticks(&c->x, ticks);
	for (int i = 0; i < n; i++) {
		double x = scale_at(&c->x, ticks[i]);
		svg_line(c->out, "grid", x, TOP, x, c->bottom);
		fprintf(c->out, "<text class=\"tick\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%g %%</text>\n", x, c->bottom + 18,
		        100.0 * ticks[i]);
	}
	svg_line(c->out, "axis", LEFT, c->bottom, RIGHT, c->bottom);
	fprintf(c->out, "<text class=\"tick\" x=\"%d\" y=\"%d\">KL in nats, lower is better</text>\n", LEFT - 50, TOP - 16);
	fprintf(c->out,
	        "<text class=\"tick\" x=\"%d\" y=\"%d\" text-anchor=\"end\">memory of the rows, share of the whole cache in ",
	        RIGHT, c->bottom + 40);
	html_short(c->out, c->r->file->header.reference, 20);
	fputs("</text>\n", c->out);
}

static const char *hue(const page_line *s) { return s->whole ? "c7" : svg_colour(s->colour); }

/* A series' points, joined in the order of keeps. */
static void put_path(const chart *c, int32_t series) {
	int32_t n = 0;
	for (int32_t i = 0; i < c->n; i++) {
		if (c->points[i].series == series) {
			if (!n++) {
				fprintf(c->out, "<path class=\"path s %s\" d=\"", hue(&c->r->series[series]));
			}
			fprintf(c->out, "%s%.1f %.1f", n == 1 ? "M" : "L", c->points[i].x, c->points[i].y);
		}
	}
	if (n) {
		fputs("\"/>\n", c->out);
	}
}

static int by_x(const void *a, const void *b) {
	const point *p = *(const point *const *)a, *q = *(const point *const *)b;
	return (p->x > q->x) - (p->x < q->x);
}

static void put_front(const chart *c) {
	const point **front = calloc((size_t)c->n + 1, sizeof(const point *));
	int32_t n = 0;
	for (int32_t i = 0; front && i < c->n; i++) {
		if (c->points[i].front) {
			front[n++] = &c->points[i];
		}
	}
	if (n > 1) {
		qsort(front, (size_t)n, sizeof(const point *), by_x);
		fputs("<path class=\"front\" d=\"", c->out);
		for (int32_t i = 0; i < n; i++) {
			fprintf(c->out, i ? "H%.1fV%.1f" : "M%.1f %.1f", front[i]->x, front[i]->y);
		}
		fputs("\"/>\n", c->out);
	}
	free(front);
}

static void put_point(const chart *c, const point *p) {
	const page_line *s = &c->r->series[p->series];
	const summary *figures = page_summary(c->r, p->series, p->keep);
	char name[NAME_SIZE];
	page_name_text(c->r, name, s);
	fputs("<g><title>", c->out);
	html_text(c->out, name);
	if (p->keep < c->r->n_keeps) {
		fputs(", ", c->out);
		page_keep(c->out, c->r->keeps[p->keep]);
	}
	fputs(": KL ", c->out);
	html_interval(c->out, figures->kl);
	fputs(", memory ", c->out);
	html_percent(c->out, p->share);
	fputs("</title>", c->out);
	if (p->front && isfinite(figures->kl.low)) {
		fprintf(c->out, "<path class=\"whisker s %s\" d=\"M%.1f %.1fV%.1f\"/>", hue(s), p->x,
		        scale_at(&c->y, fmax(figures->kl.low, 1e-6)), scale_at(&c->y, figures->kl.high));
	}
	svg_mark(c->out, s->shape, p->x, p->y, s->whole ? 6.0 : 4.6, hue(s), s->whole);
	if (p->front) {
		fprintf(c->out, "<circle class=\"ring\" cx=\"%.1f\" cy=\"%.1f\" r=\"9\"/>", p->x, p->y);
	}
	fputs("</g>\n", c->out);
}

/* ------------------------------------------------------------------------------------------------------------- names */

/* The leftmost point of each series that drops something, from the top. */
static int by_height(const void *a, const void *b) {
	const point *p = *(const point *const *)a, *q = *(const point *const *)b;
	return (p->y > q->y) - (p->y < q->y);
}

/* A policy has one name, whatever cache types it is on: shapes tell those. */
static bool named_before(const chart *c, int32_t line) {
	int32_t i = 0;
	while (i < line && strcmp(c->r->series[i].policy, c->r->series[line].policy) != 0) {
		i++;
	}
	return i < line;
}

static int32_t leftmost(const chart *c, const point **ends) {
	int32_t n = 0;
	for (int32_t line = 0; line < c->r->n_policies; line++) {
		const point *end = NULL;
		for (int32_t i = 0; i < c->n; i++) {
			bool same = strcmp(c->r->series[c->points[i].series].policy, c->r->series[line].policy) == 0;
			if (same && (!end || c->points[i].x < end->x)) {
				end = &c->points[i];
			}
		}
		if (end && !named_before(c, line)) {
			ends[n++] = end;
		}
	}
	qsort(ends, (size_t)n, sizeof(const point *), by_height);
	return n;
}

static void put_name(const chart *c, const point *p, double y) {
	const page_line *s = &c->r->series[p->series];
	fprintf(c->out, "<path class=\"lead-line\" d=\"M%d %.1fL%.1f %.1f\"/>", LEFT + NAMES, y, p->x - 6.0, p->y);
	svg_mark(c->out, s->shape, LEFT + NAMES - 6, y, 3.6, hue(s), false);
	fprintf(c->out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">", LEFT + NAMES - 15, y + 4.0);
	html_short(c->out, s->policy, LONGEST_NAME);
	fputs("</text>\n", c->out);
}

static void put_names(const chart *c) {
	size_t n_most = (size_t)c->r->n_policies + 1;
	const point **ends = calloc(n_most, sizeof(const point *));
	double *places = calloc(n_most, sizeof *places);
	int32_t n = ends && places ? leftmost(c, ends) : 0;
	for (int32_t i = 0; i < n; i++) {
		places[i] = ends[i]->y;
	}
	if (n) {
		svg_spread(places, n, LINE, TOP + 6, c->bottom - 8);
	}
	for (int32_t i = 0; i < n; i++) {
		put_name(c, ends[i], places[i]);
	}
	free(ends);
	free(places);
}

/* Whole caches are few and far from others; a name is left of its point where it would leave the picture. */
static void put_whole_names(const chart *c) {
	double last = -100.0;
	for (int32_t i = 0; i < c->n; i++) {
		const point *p = &c->points[i];
		if (!c->r->series[p->series].whole) {
			continue;
		}
		/* Above the point: the broken line goes on to its right. */
		bool left = p->x > RIGHT - 160;
		double y = fabs(p->y - 12.0 - last) < LINE ? last - LINE : p->y - 12.0;
		fprintf(c->out, "<text class=\"name\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">whole cache, ",
		        p->x + (left ? -8.0 : 8.0), y, left ? "end" : "start");
		html_short(c->out, c->r->series[p->series].cache, 12);
		fputs("</text>\n", c->out);
		last = y;
	}
}

/* ------------------------------------------------------------------------------------------------------------- page */

static void put_shapes(const chart *c) {
	const page_line *s = c->r->series;
	fputs("<p class=\"key\">", c->out);
	for (int32_t i = 0; i < c->r->n_series; i++) {
		int32_t k = 0;
		while (k < i && strcmp(s[k].cache, s[i].cache) != 0) {
			k++;
		}
		if (k == i) {
			fputs("<svg width=\"16\" height=\"16\" viewBox=\"-8 -8 16 16\" aria-hidden=\"true\">", c->out);
			svg_mark(c->out, s[i].shape, 0.0, 0.0, 5.0, "c7", false);
			fputs("</svg>", c->out);
			html_text(c->out, s[i].cache);
			fputs(" ", c->out);
		}
	}
	fputs("</p>\n", c->out);
}

static void put_picture(const chart *c) {
	fputs("<figure>\n<figcaption>Further left is less memory, further down less loss. Ringed and joined by the broken line: "
	      "caches that no other one beats in both, with their 95&nbsp;% intervals. Shapes are cache types, outlines whole "
	      "caches.</figcaption>\n",
	      c->out);
	put_shapes(c);
	fputs("<div class=\"scroll wide-svg\" tabindex=\"0\" role=\"region\" aria-label=\"Chart of memory and loss\">\n",
	      c->out);
	svg_begin(c->out, WIDTH, c->height, "Memory of each cache against its mean KL; the figures are in the tables above");
	put_axes(c);
	put_names(c);
	for (int32_t i = 0; i < c->r->n_policies; i++) {
		put_path(c, i);
	}
	put_front(c);
	for (int32_t i = 0; i < c->n; i++) {
		put_point(c, &c->points[i]);
	}
	put_whole_names(c);
	svg_end(c->out);
	fputs("</div>\n</figure>\n", c->out);
}

void page_chart(const page *r) {
	chart c = {.r = r, .out = r->out};
	c.points = calloc((size_t)r->n_series * ((size_t)r->n_keeps + 1) + 1, sizeof *c.points);
	fputs("<section id=\"chart\">\n<h2>Memory and loss</h2>\n", r->out);
	if (c.points) {
		add_points(&c);
	}
	if (c.n && find_front(&c)) {
		fit(&c);
		put_picture(&c);
	} else {
		fputs("<p>Nothing that was measured has both.</p>\n", r->out);
	}
	free(c.points);
	fputs("</section>\n", r->out);
}
