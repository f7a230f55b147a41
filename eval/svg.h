/* What charts are drawn with: scales, marks, and labels that don't cover each other. Colours are the page's classes. */
#ifndef CKV_EVAL_SVG_H
#define CKV_EVAL_SVG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* From values to places: low at `from`, high at `to`. */
typedef struct scale {
	double low, high, from, to;
	bool log;
} scale;

double scale_at(const scale *s, double value); /* what lies outside is put at the edge */
enum { MOST_TICKS = 40 };
/* Round values within the scale, ascending; returns how many. */
int scale_ticks(const scale *s, double ticks[MOST_TICKS]);

/* Classes c0 to c7 of the page colour marks; what goes beyond is grey. */
enum { N_COLOURS = 8, N_SHAPES = 6 };
const char *svg_colour(int32_t i);

/* A mark centred at x, y: circle, square, triangle, diamond, its reverse, cross. title is shown on hovering; open: the
 * outline alone. */
void svg_mark(FILE *out, int shape, double x, double y, double size, const char *colour, bool open);

/* Moves n places, sorted ascending, apart to `gap` at least, as little as can be, within low and high where that has
 * room. */
void svg_spread(double *places, int32_t n, double gap, double low, double high);

/* Opens an <svg> that scales to its frame's width; name is what is read aloud. */
void svg_begin(FILE *out, int width, int height, const char *name);
void svg_end(FILE *out);
void svg_line(FILE *out, const char *class, double x1, double y1, double x2, double y2);

#endif
