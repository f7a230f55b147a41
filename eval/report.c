/* The page as a whole. */
#define _POSIX_C_SOURCE 200809L
#include "report.h"

#include "cli.h"
#include "report_parts.h"

#include <stdlib.h>
#include <string.h>

static void put_contents(const page *r) {
	static const char *const parts[][2] = {{"answer", "In short"},     {"figures", "Figures"},
	                                       {"pairs", "Side by side"},  {"chart", "Memory and loss"},
	                                       {"worst", "Worst answers"}, {"notes", "What the figures mean"}};
	fputs("<nav aria-label=\"Contents\">", r->out);
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
		fprintf(r->out, "<a href=\"#%s\">%s</a> ", parts[i][0], parts[i][1]);
	}
	fputs("</nav>\n", r->out);
}

static void put_head(const page *r) {
	const run_header *h = &r->file->header;
	fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
	      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
	      "<meta name=\"color-scheme\" content=\"light dark\">\n"
	      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
	      "<title>What a smaller cache loses: ",
	      r->out);
	html_text(r->out, h->tasks);
	fputs(", ", r->out);
	html_text(r->out, h->model);
	fputs("</title>\n", r->out);
	page_style(r->out);
	fputs("</head>\n<body>\n<header>\n<p class=\"over\">chunkkv eval</p>\n<h1>What a smaller cache loses</h1>\n<p "
	      "class=\"under\">",
	      r->out);
	html_text(r->out, h->model);
	fputs(" · ", r->out);
	html_text(r->out, h->tasks);
	fputs(" · ", r->out);
	page_count(r->out, r->reference.n, "example");
	fputs("</p>\n</header>\n", r->out);
	put_contents(r);
}

static void put_page(const page *r) {
	put_head(r);
	fputs("<main>\n", r->out);
	page_run(r);
	page_answer(r);
	page_tables(r);
	page_pairs(r);
	page_chart(r);
	page_grids(r);
	page_keys(r);
	page_saving(r);
	page_worst(r);
	page_notes(r);
	fputs("</main>\n</body>\n</html>\n", r->out);
}

static bool put(FILE *out, const void *user) {
	page r = {.out = out};
	bool gathered = page_gather(&r, user);
	if (gathered) {
		put_page(&r);
	} else {
		fail("no memory for the report");
	}
	page_free(&r);
	return gathered;
}

bool report_write(const record_file *f, const char *path) { return html_write(path, put, f); }
