#include "svg.h"

#include "html.h"

#include <math.h>

double scale_at(const scale *s, double value) {
	double low = s->log ? log(s->low) : s->low, high = s->log ? log(s->high) : s->high;
	double at = s->log ? log(fmax(value, 1e-300)) : value;
	double share = high > low ? (at - low) / (high - low) : 0.5;
	return s->from + fmin(fmax(share, 0.0), 1.0) * (s->to - s->from);
}

static int add_tick(const scale *s, double value, double ticks[MOST_TICKS], int n) {
	double slack = s->log ? 1e-9 * value : 1e-9 * (s->high - s->low);
	bool inside = value >= s->low - slack && value <= s->high + slack;
	if (inside && n < MOST_TICKS) {
		ticks[n] = value;
	}
	return n + (inside && n < MOST_TICKS);
}

/* 1, 2, 5 of each power of ten; over many powers 1 alone. */
static int log_ticks(const scale *s, double ticks[MOST_TICKS]) {
	static const double steps[] = {1.0, 2.0, 5.0};
	int first = (int)floor(log10(s->low)), last = (int)ceil(log10(s->high)), n = 0, n_steps = last - first > 4 ? 1 : 3;
	for (int power = first; power <= last; power++) {
		for (int i = 0; i < n_steps; i++) {
			n = add_tick(s, steps[i] * pow(10.0, power), ticks, n);
		}
	}
	return n;
}

int scale_ticks(const scale *s, double ticks[MOST_TICKS]) {
	if (s->log) {
		return log_ticks(s, ticks);
	}
	double width = s->high - s->low;
	if (!(width > 0.0)) {
		ticks[0] = s->low;
		return 1;
	}
	double step = pow(10.0, floor(log10(width / 4.0)));
	double times = width / 4.0 / step;
	step *= times >= 5.0 ? 5.0 : times >= 2.0 ? 2.0 : 1.0;
	int n = 0;
	double first = ceil(s->low / step - 1e-9);
	for (int k = 0; k < MOST_TICKS; k++) {
		n = add_tick(s, (first + k) * step + 0.0, ticks, n); /* no -0 */
	}
	return n;
}

const char *svg_colour(int32_t i) {
	static const char *const names[N_COLOURS] = {"c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7"};
	return i >= 0 && i < N_COLOURS ? names[i] : "other";
}

/* Shapes other than the circle, as corners on a circle of radius 1. */
static const char *corners(int shape) {
	static const char *const paths[N_SHAPES] = {
	    NULL,
	    "M-.85-.85H.85V.85H-.85Z",
	    "M0-1.15L1.1.8H-1.1Z",
	    "M0-1.25L1.25 0 0 1.25-1.25 0Z",
	    "M0 1.15L1.1-.8H-1.1Z",
	    "M-.4-1.1H.4V-.4H1.1V.4H.4V1.1H-.4V.4H-1.1V-.4H-.4Z",
	};
	return paths[shape % N_SHAPES];
}

void svg_mark(FILE *out, int shape, double x, double y, double size, const char *colour, bool open) {
	const char *path = corners(shape), *kind = open ? "open" : "mark";
	if (path) {
		fprintf(out, "<path class=\"%s %s\" transform=\"translate(%.1f %.1f)scale(%.2f)\" d=\"%s\"/>", kind, colour, x, y,
		        size, path);
	} else {
		fprintf(out, "<circle class=\"%s %s\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.2f\"/>", kind, colour, x, y, size);
	}
}

void svg_spread(double *places, int32_t n, double gap, double low, double high) {
	/* Neighbours too close push each other; a few dozen rounds settle what labels need. */
	for (int round = 0; round < 400; round++) {
		for (int32_t i = 0; i + 1 < n; i++) {
			double lacking = gap - (places[i + 1] - places[i]);
			if (lacking > 0.0) {
				places[i] -= lacking / 2.0;
				places[i + 1] += lacking / 2.0;
			}
		}
		if (n) {
			places[0] = fmax(places[0], low);
			places[n - 1] = fmin(places[n - 1], high);
		}
	}
	/* What is left of it, from the top. */
	for (int32_t i = 1; i < n; i++) {
		places[i] = fmax(places[i], places[i - 1] + gap);
	}
}

void svg_begin(FILE *out, int width, int height, const char *name) {
	fprintf(out, "<svg role=\"img\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" aria-label=\"", width, height, width,
	        height);
	html_text(out, name);
	fputs("\">\n", out);
}

void svg_end(FILE *out) { fputs("</svg>\n", out); }

void svg_line(FILE *out, const char *class, double x1, double y1, double x2, double y2) {
	fprintf(out, "<path class=\"%s\" d=\"M%.1f %.1fL%.1f %.1f\"/>\n", class, x1, y1, x2, y2);
}
