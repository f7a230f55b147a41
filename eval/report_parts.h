/* The parts of the page, and what they share. */
#ifndef CKV_EVAL_REPORT_PARTS_H
#define CKV_EVAL_REPORT_PARTS_H

#include "html.h"
#include "records.h"
#include "summary.h"

#include <stdbool.h>
#include <stdio.h>

/* A policy on a type of cache: a line of the tables, a line of the charts. Best first. */
typedef struct page_line {
	const char *cache, *policy; /* borrowed from the records */
	bool whole;                 /* nothing is dropped */
	int32_t colour;             /* of the policy's preset: 0 is the best one's; whole caches: -1 */
	int shape;                  /* of the type of cache */
	double standing;            /* mean of log(KL / the least at that keep) */
} page_line;

typedef struct page {
	FILE *out;
	const record_file *file;
	const record_list *records;
	const char **tasks;
	int32_t n_tasks;
	page_line *series; /* [n_series], those that drop something first */
	int32_t n_series, n_policies;
	const char **keeps; /* [n_keeps], what is kept, most first; without that of whole caches */
	int32_t n_keeps;
	summary *all; /* [n_series][n_keeps + 1] over all tasks; the last is that of whole caches */
	summary reference;
	bool judged, forced; /* scores, perplexities are there */
} page;

/* Everything above of f's records; false without memory. */
bool page_gather(page *r, const record_file *f);
void page_free(page *r);

/* Column k of a series: n is 0 where there is nothing. k = n_keeps: as a whole. */
const summary *page_summary(const page *r, int32_t series, int32_t k);
/* What it selects; task NULL: all. */
selection page_select(const page *r, int32_t series, int32_t k, const char *task);
/* The series of the least mean KL at keep k, or the least nll, or the highest score where there is no KL; -1. */
int32_t page_best(const page *r, int32_t k);
/* The figure that page_best goes by, lower is better; NaN. */
double page_loss(const summary *s);
interval page_perplexity(interval nll);
/* The reference's record of an example; NULL. */
const record *page_reference(const page *r, const char *example);

/* "chunkkv", or "chunkkv, q8_0" where the cache is not of the reference's type; "whole cache, q8_0". */
/* As text of the page, that can break; and as it is, for attributes and pictures. */
void page_name(const page *r, FILE *out, const page_line *s);
enum { NAME_SIZE = 320 };
void page_name_text(const page *r, char name[NAME_SIZE], const page_line *s);
/* A sentence's end for n: "1 example", "15 examples". */
void page_count(FILE *out, int32_t n, const char *one);
/* "10 %" of "10%", "256 tokens" of "256", else as it is. */
void page_keep(FILE *out, const char *keep);

/* The parts, in the page's order. */
void page_style(FILE *out);
void page_run(const page *r);
void page_answer(const page *r);
void page_tables(const page *r);
void page_pairs(const page *r);
void page_chart(const page *r);
void page_grids(const page *r);
void page_keys(const page *r);
void page_saving(const page *r);
void page_worst(const page *r);
void page_notes(const page *r);

#endif
