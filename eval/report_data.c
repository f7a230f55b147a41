/* What the page's parts are made from: which policies, on which caches, keeping how much, and their figures. */
#include "report_parts.h"

#include "svg.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double nan_value = (double)NAN;

selection page_select(const page *r, int32_t i, int32_t k, const char *task) {
	const page_line *s = &r->series[i];
	return (selection){task, s->cache, s->policy, k < r->n_keeps ? r->keeps[k] : NULL, 0, -1.0};
}

const summary *page_summary(const page *r, int32_t i, int32_t k) {
	return &r->all[(size_t)i * ((size_t)r->n_keeps + 1) + (size_t)k];
}

double page_loss(const summary *s) {
	return s->n == 0                ? nan_value
	       : isfinite(s->kl.value)  ? s->kl.value
	       : isfinite(s->nll.value) ? s->nll.value
	                                : -s->score.value;
}

int32_t page_best(const page *r, int32_t k) {
	int32_t best = -1;
	double least = (double)INFINITY;
	for (int32_t i = 0; i < r->n_policies; i++) {
		double loss = page_loss(page_summary(r, i, k));
		if (loss < least) {
			least = loss;
			best = i;
		}
	}
	return best;
}

interval page_perplexity(interval nll) { return (interval){exp(nll.value), exp(nll.low), exp(nll.high)}; }

const record *page_reference(const page *r, const char *example) {
	return records_find(r->records, example, r->file->header.reference, "full", "100%");
}

/* ------------------------------------------------------------------------------------------------------------ gathering */

static bool equal(const char *a, const char *b) { return a && b && strcmp(a, b) == 0; }

static int32_t find_series(const page *r, const variant *v) {
	int32_t i = 0;
	while (i < r->n_series && !(equal(r->series[i].policy, v->policy) && equal(r->series[i].cache, v->cache))) {
		i++;
	}
	return i;
}

static int32_t find_keep(const page *r, const char *keep) {
	int32_t k = 0;
	while (k < r->n_keeps && !equal(r->keeps[k], keep)) {
		k++;
	}
	return k;
}

static bool list_variants(page *r) {
	variant *variants = NULL;
	int32_t n = summary_variants(r->records, &variants);
	r->series = n >= 0 ? calloc((size_t)n + 1, sizeof *r->series) : NULL;
	r->keeps = n >= 0 ? calloc((size_t)n + 1, sizeof(const char *)) : NULL;
	for (int32_t i = 0; r->series && r->keeps && i < n; i++) {
		const variant *v = &variants[i];
		bool whole = record_is_whole(v->policy);
		int32_t at = find_series(r, v);
		r->series[at] = (page_line){v->cache, v->policy, whole, -1, 0, 0.0};
		r->n_series += at == r->n_series;
		int32_t k = whole ? 0 : find_keep(r, v->keep);
		r->keeps[k] = whole ? r->keeps[k] : v->keep;
		r->n_keeps += !whole && k == r->n_keeps;
	}
	free(variants);
	return r->series && r->keeps;
}

/* How much of the prompt a keep leaves, whatever way it is written. */
static double kept(const page *r, const char *keep) {
	double held = 0.0, all = 0.0;
	for (int32_t i = 0; i < r->records->n; i++) {
		const record *x = &r->records->items[i];
		if (equal(x->keep, keep)) {
			held += x->n_cells;
			all += x->n_prompt;
		}
	}
	return all > 0.0 ? held / all : 0.0;
}

static void sort_keeps(page *r) {
	for (int32_t i = 1; i < r->n_keeps; i++) {
		for (int32_t k = i; k > 0 && kept(r, r->keeps[k]) > kept(r, r->keeps[k - 1]); k--) {
			const char *other = r->keeps[k];
			r->keeps[k] = r->keeps[k - 1];
			r->keeps[k - 1] = other;
		}
	}
}

static bool summarise_all(page *r, summary (*make)(const record_list *, const selection *)) {
	size_t columns = (size_t)r->n_keeps + 1;
	free(r->all);
	r->all = calloc((size_t)r->n_series * columns + 1, sizeof *r->all);
	for (int32_t i = 0; r->all && i < r->n_series; i++) {
		for (int32_t k = 0; k <= r->n_keeps; k++) {
			selection which = page_select(r, i, k, NULL);
			bool wanted = r->series[i].whole == (k == r->n_keeps);
			r->all[(size_t)i * columns + (size_t)k] = wanted ? make(r->records, &which) : (summary){.n = 0};
		}
	}
	return r->all != NULL;
}

/* How far above the best, over all keeps that it has. */
static void stand(page *r) {
	for (int32_t i = 0; i < r->n_series; i++) {
		double sum = 0.0;
		int32_t n = 0;
		for (int32_t k = 0; k < r->n_keeps; k++) {
			int32_t best = page_best(r, k);
			double loss = page_loss(page_summary(r, i, k));
			if (best >= 0 && isfinite(loss)) {
				double least = page_loss(page_summary(r, best, k));
				sum += least >= 0.0 ? log((loss + 1e-9) / (least + 1e-9)) : loss - least;
				n++;
			}
		}
		r->series[i].standing = n ? sum / n : (double)INFINITY;
	}
}

static int better(const void *a, const void *b) {
	const page_line *x = a, *y = b;
	if (x->whole != y->whole) {
		return x->whole - y->whole;
	}
	return (x->standing > y->standing) - (x->standing < y->standing);
}

/* Are two of one colour: the same policy, or the same preset where there are more policies than colours. */
static bool same_hue(const page_line *a, const page_line *b, bool presets) {
	size_t n = presets ? strcspn(a->policy, ":+") : strlen(a->policy);
	return strncmp(a->policy, b->policy, n) == 0 && (presets ? strcspn(b->policy, ":+") : strlen(b->policy)) == n;
}

static int32_t colour(page *r, bool presets) {
	int32_t n = 0;
	for (int32_t i = 0; i < r->n_policies; i++) {
		int32_t k = 0;
		while (k < i && !same_hue(&r->series[i], &r->series[k], presets)) {
			k++;
		}
		r->series[i].colour = k < i ? r->series[k].colour : n++;
	}
	return n;
}

/* The reference's type is a circle, others follow in order. */
static void shape(page *r) {
	int n = 1;
	for (int32_t i = 0; i < r->n_series; i++) {
		page_line *s = &r->series[i];
		int32_t k = 0;
		while (k < i && strcmp(r->series[k].cache, s->cache) != 0) {
			k++;
		}
		bool reference = strcmp(s->cache, r->file->header.reference) == 0;
		s->shape = reference ? 0 : k < i ? r->series[k].shape : n++;
	}
}

static void look_for_kinds(page *r) {
	for (int32_t i = 0; i < r->records->n; i++) {
		r->judged |= isfinite(r->records->items[i].score);
		r->forced |= isfinite(r->records->items[i].nll);
	}
}

bool page_gather(page *r, const record_file *f) {
	r->file = f;
	r->records = &f->records;
	r->n_tasks = summary_tasks(r->records, &r->tasks);
	if (r->n_tasks < 0 || !list_variants(r)) {
		return false;
	}
	for (int32_t i = 0; i < r->n_series; i++) {
		r->n_policies += !r->series[i].whole;
	}
	qsort(r->series, (size_t)r->n_series, sizeof *r->series, better);
	sort_keeps(r);
	look_for_kinds(r);
	if (!summarise_all(r, summarise_means)) {
		return false;
	}
	stand(r);
	qsort(r->series, (size_t)r->n_series, sizeof *r->series, better);
	if (colour(r, false) > N_COLOURS) {
		colour(r, true);
	}
	shape(r);
	selection reference = {NULL, f->header.reference, "full", NULL, 0, -1.0};
	r->reference = summarise(r->records, &reference);
	return summarise_all(r, summarise);
}

void page_free(page *r) {
	free(r->tasks);
	free(r->series);
	free(r->keeps);
	free(r->all);
	memset(r, 0, sizeof *r);
}

/* -------------------------------------------------------------------------------------------------------------- names */

void page_name_text(const page *r, char name[NAME_SIZE], const page_line *s) {
	bool plain = !s->whole && strcmp(s->cache, r->file->header.reference) == 0;
	snprintf(name, NAME_SIZE, "%s%s%s", s->whole ? "whole cache" : s->policy, plain ? "" : ", ", plain ? "" : s->cache);
}

void page_name(const page *r, FILE *out, const page_line *s) {
	char name[NAME_SIZE];
	page_name_text(r, name, s);
	html_setting(out, name);
}

void page_count(FILE *out, int32_t n, const char *one) { fprintf(out, "%d %s%s", n, one, n == 1 ? "" : "s"); }

enum { LONGEST_KEEP = 14 };

void page_keep(FILE *out, const char *keep) {
	size_t n = strlen(keep), digits = strspn(keep, "0123456789.");
	if (n > 1 && n < LONGEST_KEEP && digits == n - 1 && keep[digits] == '%') {
		fprintf(out, "%.*s\xc2\xa0%%", (int)digits, keep);
	} else {
		html_short(out, keep, LONGEST_KEEP);
		fputs(n && n < LONGEST_KEEP && digits == n && !strchr(keep, '.') ? " tokens" : "", out);
	}
}
