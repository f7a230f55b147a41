/* Where in the prompt, and at which length, a policy loses: a small picture for each. */
#include "report_parts.h"

#include "heat.h"
#include "svg.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LENGTHS = 16, MOST_DEPTHS = 24, MOST_VALUES = 72 };

typedef struct grid {
	const page *r;
	const char *task;
	int32_t lengths[MOST_LENGTHS];
	double depths[MOST_DEPTHS];
	int n_lengths, n_depths;
	bool score; /* else KL */
} grid;

/* Sorted in; what is too much is left out. */
static void add_length(grid *g, int32_t length) {
	int at = 0;
	while (at < g->n_lengths && g->lengths[at] < length) {
		at++;
	}
	if (g->n_lengths == MOST_LENGTHS || (at < g->n_lengths && g->lengths[at] == length)) {
		return;
	}
	memmove(&g->lengths[at + 1], &g->lengths[at], (size_t)(g->n_lengths - at) * sizeof *g->lengths);
	g->lengths[at] = length;
	g->n_lengths++;
}

static void add_depth(grid *g, double depth) {
	int at = 0;
	while (at < g->n_depths && g->depths[at] < depth - 1e-6) {
		at++;
	}
	if (g->n_depths == MOST_DEPTHS || (at < g->n_depths && fabs(g->depths[at] - depth) < 1e-6)) {
		return;
	}
	memmove(&g->depths[at + 1], &g->depths[at], (size_t)(g->n_depths - at) * sizeof *g->depths);
	g->depths[at] = depth;
	g->n_depths++;
}

static grid grid_of(const page *r, const char *task) {
	grid g = {.r = r, .task = task};
	for (int32_t i = 0; i < r->records->n; i++) {
		const record *x = &r->records->items[i];
		if (x->length > 0 && x->depth >= 0.0 && strcmp(x->task, task) == 0) {
			add_length(&g, x->length);
			add_depth(&g, x->depth);
		}
	}
	return g;
}

static double cell(const grid *g, int32_t series, int32_t k, int row, int column) {
	selection which = page_select(g->r, series, k, g->task);
	which.length = g->lengths[column];
	which.depth = g->depths[row];
	summary s = summarise_means(g->r->records, &which);
	return g->score ? s.score.value : s.kl.value;
}

static void put_cell(const grid *g, double value, int x, int y, int width, int height) {
	const char *step = g->score ? heat_of_score(value) : heat_of_kl(value);
	fprintf(g->r->out, "<rect class=\"cell %s\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>", step, x, y, width, height);
	if (g->n_lengths * g->n_depths <= MOST_VALUES && isfinite(value)) {
		fprintf(g->r->out, "<text class=\"t%c\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">", step[1], x + width / 2,
		        y + height / 2 + 4);
		html_number(g->r->out, value);
		fputs("</text>", g->r->out);
	}
}

static void put_svg(const grid *g, int32_t series, int32_t k, const char *name) {
	FILE *out = g->r->out;
	int left = 46, width = g->n_lengths * g->n_depths <= MOST_VALUES ? 46 : 18, height = 22;
	int right = left + g->n_lengths * width, bottom = g->n_depths * height;
	svg_begin(out, right + 8, bottom + 20, name);
	for (int row = 0; row < g->n_depths; row++) {
		fprintf(out, "<text class=\"tick\" x=\"%d\" y=\"%d\" text-anchor=\"end\">%g %%</text>", left - 6,
		        row * height + height / 2 + 4, g->depths[row]);
		for (int column = 0; column < g->n_lengths; column++) {
			put_cell(g, cell(g, series, k, row, column), left + column * width, row * height, width, height);
		}
	}
	for (int column = 0; column < g->n_lengths; column++) {
		if (width > 40 || column == 0 || column == g->n_lengths - 1) {
			fprintf(out, "<text class=\"tick\" x=\"%d\" y=\"%d\" text-anchor=\"%s\">%d</text>",
			        left + column * width + width / 2, bottom + 15, "middle", g->lengths[column]);
		}
	}
	svg_end(out);
}

static void put_panel(const grid *g, int32_t series, int32_t k) {
	char name[NAME_SIZE], label[NAME_SIZE + 64];
	page_name_text(g->r, name, &g->r->series[series]);
	snprintf(label, sizeof label, "%s over depth and length, %s", g->score ? "Score" : "KL", name);
	fputs("<figure><figcaption>", g->r->out);
	html_text(g->r->out, name);
	fputs("</figcaption>\n", g->r->out);
	put_svg(g, series, k, label);
	fputs("</figure>\n", g->r->out);
}

static bool has_panel(const grid *g, int32_t i, int32_t k) {
	selection which = page_select(g->r, i, k, g->task);
	const page_line *s = &g->r->series[i];
	if (s->whole != (k == g->r->n_keeps)) {
		return false;
	}
	summary of_task = summarise_means(g->r->records, &which);
	return isfinite(g->score ? of_task.score.value : of_task.kl.value);
}

static void put_keep(const grid *g, int32_t k, bool open) {
	FILE *out = g->r->out;
	bool whole = k == g->r->n_keeps;
	int32_t first = 0;
	while (first < g->r->n_series && !has_panel(g, first, k)) {
		first++;
	}
	if (first == g->r->n_series) {
		return;
	}
	fprintf(out, "<details%s>\n<summary>%s, ", open ? " open" : "", g->score ? "Score" : "KL");
	if (whole) {
		fputs("whole caches", out);
	} else {
		page_keep(out, g->r->keeps[k]);
		fputs(" kept", out);
	}
	fputs("</summary>\n<div class=\"panels\">\n", out);
	for (int32_t i = first; i < g->r->n_series; i++) {
		if (has_panel(g, i, k)) {
			put_panel(g, i, k);
		}
	}
	fputs("</div>\n</details>\n", out);
}

static void put_task(const grid *g, bool first) {
	FILE *out = g->r->out;
	fputs("<h3>", out);
	html_text(out, g->task);
	fputs("</h3>\n", out);
	if (g->score) {
		heat_key_of_score(out);
	} else {
		heat_key_of_kl(out);
	}
	for (int32_t k = 0; k <= g->r->n_keeps; k++) {
		put_keep(g, k, first && k == g->r->n_keeps - 1);
	}
}

void page_grids(const page *r) {
	bool any = false;
	for (int32_t i = 0; i < r->n_tasks; i++) {
		grid g = grid_of(r, r->tasks[i]);
		if (g.n_lengths * g.n_depths < 2) {
			continue;
		}
		if (!any) {
			fputs("<section id=\"grids\">\n<h2>Where it is lost</h2>\n<p class=\"lead\">Down: how deep in the prompt what "
			      "is asked "
			      "for stands. Across: the prompt's length in tokens.</p>\n",
			      r->out);
		}
		put_task(&g, !any);
		any = true;
		g.score = true;
		if (r->judged) {
			put_task(&g, false);
		}
	}
	if (any) {
		fputs("</section>\n", r->out);
	}
}
