/* Where policies differ in one number alone, "chunk=3" and "chunk=10": the loss over that number. */
#include "report_parts.h"

#include "svg.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 660, HEIGHT = 300, LEFT = 56, RIGHT = 545, TOP = 20, BOTTOM = 254, MOST_KEYS = 32, NAME_LENGTH = 32 };

/* A series in a sweep, and the number that its policy has for the key. */
typedef struct swept {
	int32_t series;
	double value;
} swept;

typedef struct sweep {
	const page *r;
	char key[NAME_LENGTH];
	swept *points; /* [n], by value */
	int32_t n;
} sweep;

/* ------------------------------------------------------------------------------------------------------------ finding */

/* The i-th "key=value" of a policy, whichever part it is of: where it begins and how long it is; NULL past the last. */
static const char *item_at(const char *policy, int i, size_t *size) {
	const char *at = strchr(policy, ':');
	for (; at && i > 0; i--) {
		at = strpbrk(at + 1, ":,");
	}
	*size = at ? strcspn(at + 1, ",+") : 0;
	return at ? at + 1 : NULL;
}

/* Bytes of "key=" when a whole number or a fraction follows; 0. */
static size_t numeric_key(const char *item, size_t size, double *value) {
	const char *sign = memchr(item, '=', size);
	char *end = NULL;
	if (!sign || sign == item + size - 1) {
		return 0;
	}
	*value = strtod(sign + 1, &end);
	return end == item + size && isfinite(*value) ? (size_t)(sign + 1 - item) : 0;
}

/* Is b what a is, but for the value of a's item, which begins with key? */
static bool differs_in(const char *a, const char *item, size_t size, size_t key, const char *b, double *value) {
	size_t before = (size_t)(item - a) + key;
	if (strncmp(a, b, before) != 0) {
		return false;
	}
	char *end = NULL;
	*value = strtod(b + before, &end);
	return end != b + before && strcmp(end, item + size) == 0;
}

static int by_value(const void *a, const void *b) {
	double x = ((const swept *)a)->value, y = ((const swept *)b)->value;
	return (x > y) - (x < y);
}

/* The sweep that series i is the first of, by its item-th setting; false: it is in none, or not its first. */
static bool find_sweep(sweep *w, int32_t i, int item) {
	const page_line *all = w->r->series;
	size_t size = 0;
	double value = 0.0;
	const char *text = item_at(all[i].policy, item, &size);
	size_t key = text ? numeric_key(text, size, &value) : 0;
	w->n = 0;
	if (!key || key > NAME_LENGTH) {
		return false;
	}
	for (int32_t k = 0; k < w->r->n_policies; k++) {
		bool in =
		    strcmp(all[k].cache, all[i].cache) == 0 && differs_in(all[i].policy, text, size, key, all[k].policy, &value);
		if (in && k < i) {
			return false;
		}
		if (in) {
			w->points[w->n++] = (swept){k, value};
		}
	}
	snprintf(w->key, sizeof w->key, "%.*s", (int)key - 1, text);
	qsort(w->points, (size_t)w->n, sizeof *w->points, by_value);
	return w->n > 1;
}

/* ------------------------------------------------------------------------------------------------------------ drawing */

static scale value_scale(const sweep *w) {
	double low = w->points[0].value, high = w->points[w->n - 1].value;
	return (scale){low, high, LEFT + 14, RIGHT - 14, low > 0.0 && high / low >= 8.0};
}

static scale kl_scale(const sweep *w) {
	double most = 0.0;
	for (int32_t i = 0; i < w->n; i++) {
		for (int32_t k = 0; k < w->r->n_keeps; k++) {
			interval kl = page_summary(w->r, w->points[i].series, k)->kl;
			bool there = page_summary(w->r, w->points[i].series, k)->n > 0;
			most = there && isfinite(kl.value) ? fmax(most, fmax(kl.value, isfinite(kl.high) ? kl.high : 0.0)) : most;
		}
	}
	return (scale){0.0, most * 1.05 + 1e-9, BOTTOM, TOP, false};
}

static void put_axes(const sweep *w, const scale *x, const scale *y) {
	FILE *out = w->r->out;
	double ticks[MOST_TICKS], last = -100.0;
	int n = scale_ticks(y, ticks);
	for (int i = 0; i < n; i++) {
		double at = scale_at(y, ticks[i]);
		svg_line(out, "grid", LEFT, at, RIGHT, at);
		fprintf(out, "<text class=\"tick\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n", LEFT - 8, at + 4.0,
		        ticks[i]);
	}
	for (int32_t i = 0; i < w->n; i++) {
		double at = scale_at(x, w->points[i].value);
		if (at - last > 26.0) {
			fprintf(out, "<text class=\"tick\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%g</text>\n", at, BOTTOM + 18,
			        w->points[i].value);
			last = at;
		}
	}
	svg_line(out, "axis", LEFT, BOTTOM, RIGHT, BOTTOM);
	fprintf(out, "<text class=\"tick\" x=\"%d\" y=\"%d\">KL in nats</text>\n", LEFT - 50, TOP - 8);
	fprintf(out, "<text class=\"name\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">", (LEFT + RIGHT) / 2, BOTTOM + 38);
	html_text(out, w->key);
	fputs("</text>\n", out);
}

static bool there(const sweep *w, int32_t i, int32_t k) {
	const summary *s = page_summary(w->r, w->points[i].series, k);
	return s->n && isfinite(s->kl.value);
}

static void put_path(const sweep *w, int32_t k, const scale *x, const scale *y) {
	const char *step = "M";
	fprintf(w->r->out, "<path class=\"path s %s\" d=\"", svg_colour(k));
	for (int32_t i = 0; i < w->n; i++) {
		if (there(w, i, k)) {
			double kl = page_summary(w->r, w->points[i].series, k)->kl.value;
			fprintf(w->r->out, "%s%.1f %.1f", step, scale_at(x, w->points[i].value), scale_at(y, kl));
			step = "L";
		}
	}
	fputs("\"/>\n", w->r->out);
}

/* Points and their intervals; returns where the last one is, NaN when there is none. */
static double put_points(const sweep *w, int32_t k, const scale *x, const scale *y) {
	double end = (double)NAN;
	for (int32_t i = 0; i < w->n; i++) {
		if (!there(w, i, k)) {
			continue;
		}
		interval kl = page_summary(w->r, w->points[i].series, k)->kl;
		double at = scale_at(x, w->points[i].value);
		end = scale_at(y, kl.value);
		if (isfinite(kl.low)) {
			fprintf(w->r->out, "<path class=\"whisker s %s\" d=\"M%.1f %.1fV%.1f\"/>", svg_colour(k), at,
			        scale_at(y, kl.low), scale_at(y, kl.high));
		}
		svg_mark(w->r->out, (int)k, at, end, 4.6, svg_colour(k), false);
	}
	return end;
}

/* A keep and where its line ends. */
typedef struct ending {
	double y;
	int32_t keep;
} ending;

static int by_height(const void *a, const void *b) {
	double x = ((const ending *)a)->y, y = ((const ending *)b)->y;
	return (x > y) - (x < y);
}

static void put_names(const sweep *w, ending *ends, int32_t n) {
	double places[MOST_KEYS];
	qsort(ends, (size_t)n, sizeof *ends, by_height);
	for (int32_t i = 0; i < n; i++) {
		places[i] = ends[i].y;
	}
	svg_spread(places, n, 15.0, TOP + 4, BOTTOM - 4);
	for (int32_t i = 0; i < n; i++) {
		svg_mark(w->r->out, (int)ends[i].keep, RIGHT + 6, places[i], 3.6, svg_colour(ends[i].keep), false);
		fprintf(w->r->out, "<text x=\"%d\" y=\"%.1f\">", RIGHT + 15, places[i] + 4.0);
		page_keep(w->r->out, w->r->keeps[ends[i].keep]);
		fputs("</text>\n", w->r->out);
	}
}

static void put_svg(const sweep *w, const char *name) {
	scale x = value_scale(w), y = kl_scale(w);
	ending ends[MOST_KEYS];
	int32_t n = 0;
	svg_begin(w->r->out, WIDTH, HEIGHT, name);
	put_axes(w, &x, &y);
	for (int32_t k = 0; k < w->r->n_keeps && k < MOST_KEYS; k++) {
		put_path(w, k, &x, &y);
		double end = put_points(w, k, &x, &y);
		if (isfinite(end)) {
			ends[n++] = (ending){end, k};
		}
	}
	put_names(w, ends, n);
	svg_end(w->r->out);
}

static void put_sweep(const sweep *w) {
	char name[NAME_SIZE], label[NAME_SIZE + 64];
	page_name_text(w->r, name, &w->r->series[w->points[0].series]);
	snprintf(label, sizeof label, "KL over %s", w->key);
	fputs("<figure>\n<figcaption>KL over <b>", w->r->out);
	html_text(w->r->out, w->key);
	fputs("</b>, else as <code>", w->r->out);
	html_text(w->r->out, name);
	fputs(
	    "</code></figcaption>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Chart of one setting\">\n",
	    w->r->out);
	put_svg(w, label);
	fputs("</div>\n</figure>\n", w->r->out);
}

void page_keys(const page *r) {
	sweep w = {.r = r, .points = calloc((size_t)r->n_policies + 1, sizeof *w.points)};
	bool any = false;
	for (int32_t i = 0; w.points && i < r->n_policies; i++) {
		size_t size = 0;
		for (int item = 0; item < MOST_KEYS && item_at(r->series[i].policy, item, &size); item++) {
			if (!find_sweep(&w, i, item)) {
				continue;
			}
			if (!any) {
				fputs("<section id=\"keys\">\n<h2>What one setting does</h2>\n<p class=\"lead\">Policies that differ in one "
				      "number alone; a line for each size, bars for the 95&nbsp;% intervals.</p>\n"
				      "<div class=\"charts\">\n",
				      r->out);
			}
			any = true;
			put_sweep(&w);
		}
	}
	if (any) {
		fputs("</div>\n</section>\n", r->out);
	}
	free(w.points);
}
