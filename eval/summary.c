#include "summary.h"

#include "bootstrap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double nan_value = (double)NAN;
static const interval nothing = {(double)NAN, (double)NAN, (double)NAN};

bool record_is_whole(const char *policy) { return strcmp(policy, "full") == 0; }

double record_kl(const record *r) {
	double sum = 0.0;
	int32_t n = 0;
	for (int32_t i = 0; i < r->n_positions; i++) {
		if (isfinite(r->kl[i])) {
			sum += (double)r->kl[i];
			n++;
		}
	}
	return n ? sum / n : nan_value;
}

static bool matches(const record *r, const selection *s) {
	return (!s->length || r->length == s->length) && (s->depth < 0.0 || fabs(r->depth - s->depth) < 1e-6) &&
	       (!s->keep || strcmp(r->keep, s->keep) == 0) && (!s->cache || strcmp(r->cache, s->cache) == 0) &&
	       (!s->policy || strcmp(r->policy, s->policy) == 0) && (!s->task || strcmp(r->task, s->task) == 0);
}

/* Those that match; NULL without memory, or when there are none. */
static const record **gather(const record_list *list, const selection *which, int32_t *n) {
	*n = 0;
	for (int32_t i = 0; i < list->n; i++) {
		*n += matches(&list->items[i], which);
	}
	const record **found = *n ? calloc((size_t)*n, sizeof(const record *)) : NULL;
	*n = 0;
	for (int32_t i = 0; found && i < list->n; i++) {
		if (matches(&list->items[i], which)) {
			found[(*n)++] = &list->items[i];
		}
	}
	return found;
}

/* ------------------------------------------------------------------------------------------------------ one summary */

/* What figures are made of: of each example what is summed, and by what the sum is divided. */
typedef struct sums {
	resamples draws;
	int32_t n;
	double *over, *under; /* [n] */
} sums;

static bool sums_make(sums *s, int32_t n, bool bounds) {
	memset(s, 0, sizeof *s);
	s->n = n;
	s->over = malloc((size_t)n * sizeof *s->over);
	s->under = malloc((size_t)n * sizeof *s->under);
	return s->over && s->under && resamples_make(&s->draws, bounds ? n : 0);
}

static void sums_free(sums *s) {
	resamples_free(&s->draws);
	free(s->over);
	free(s->under);
}

static void set(sums *s, int32_t i, double value) {
	s->over[i] = isfinite(value) ? value : 0.0;
	s->under[i] = isfinite(value) ? 1.0 : 0.0;
}

static interval figure(const sums *s) { return bootstrap_ratio(&s->draws, s->over, s->under, s->n); }

/* Mean over the examples that have a value. */
static interval mean_of(sums *s, const record **records, double (*value)(const record *)) {
	for (int32_t i = 0; i < s->n; i++) {
		set(s, i, value(records[i]));
	}
	return figure(s);
}

/* A forced text is no answer. */
static double get_exact(const record *r) { return isfinite(r->nll) ? nan_value : r->exact ? 1.0 : 0.0; }
static double get_score(const record *r) { return r->score; }
static double get_nll(const record *r) { return r->nll; }
static double get_cells(const record *r) { return r->n_cells; }
static double get_prompt(const record *r) { return r->n_prompt; }
static double get_seconds(const record *r) { return r->seconds; }
static double get_attention(const record *r) { return r->attention_kept < 0.0 ? nan_value : r->attention_kept; }
static double get_share(const record *r) { return r->bytes_full ? (double)r->bytes / (double)r->bytes_full : nan_value; }
static double get_share_own(const record *r) {
	return r->bytes_full ? (double)r->bytes_own / (double)r->bytes_full : nan_value;
}

/* Means that need no bounds. */
static double plain_mean(const record **records, int32_t n, double (*value)(const record *)) {
	double sum = 0.0;
	int32_t counting = 0;
	for (int32_t i = 0; i < n; i++) {
		double x = value(records[i]);
		if (isfinite(x)) {
			sum += x;
			counting++;
		}
	}
	return counting ? sum / counting : nan_value;
}

/* Long answers count for more here: it is a share of positions. */
static interval same_of(sums *s, const record **records) {
	for (int32_t i = 0; i < s->n; i++) {
		s->over[i] = 0.0;
		s->under[i] = records[i]->n_positions;
		for (int32_t k = 0; k < records[i]->n_positions; k++) {
			s->over[i] += records[i]->same[k];
		}
	}
	return figure(s);
}

static interval p99_of(const sums *s, const record **records) {
	size_t n = 0;
	for (int32_t i = 0; i < s->n; i++) {
		n += (size_t)records[i]->n_positions;
	}
	owned_value *values = n ? malloc(n * sizeof *values) : NULL;
	if (!values) {
		return nothing;
	}
	n = 0;
	for (int32_t i = 0; i < s->n; i++) {
		for (int32_t k = 0; k < records[i]->n_positions; k++) {
			if (isfinite(records[i]->kl[k])) {
				values[n++] = (owned_value){records[i]->kl[k], i};
			}
		}
	}
	bootstrap_sort(values, n);
	interval p99 = bootstrap_quantile(&s->draws, values, n, 0.01);
	free(values);
	return p99;
}

static summary empty_summary(void) {
	return (summary){.kl = nothing,
	                 .kl_p99 = nothing,
	                 .same = nothing,
	                 .exact = nothing,
	                 .score = nothing,
	                 .nll = nothing,
	                 .share = nan_value,
	                 .share_own = nan_value,
	                 .n_cells = nan_value,
	                 .n_prompt = nan_value,
	                 .attention_kept = -1.0,
	                 .seconds = nan_value};
}

static summary figures_of(sums *s, const record **records) {
	double attention = plain_mean(records, s->n, get_attention);
	return (summary){.n = s->n,
	                 .kl = mean_of(s, records, record_kl),
	                 .kl_p99 = p99_of(s, records),
	                 .same = same_of(s, records),
	                 .exact = mean_of(s, records, get_exact),
	                 .score = mean_of(s, records, get_score),
	                 .nll = mean_of(s, records, get_nll),
	                 .share = plain_mean(records, s->n, get_share),
	                 .share_own = plain_mean(records, s->n, get_share_own),
	                 .n_cells = plain_mean(records, s->n, get_cells),
	                 .n_prompt = plain_mean(records, s->n, get_prompt),
	                 .attention_kept = isfinite(attention) ? attention : -1.0,
	                 .seconds = plain_mean(records, s->n, get_seconds)};
}

static summary summarise_with(const record_list *list, const selection *which, bool bounds) {
	summary result = empty_summary();
	int32_t n = 0;
	const record **records = gather(list, which, &n);
	sums s;
	if (records) {
		if (sums_make(&s, n, bounds)) {
			result = figures_of(&s, records);
		}
		sums_free(&s);
	}
	free(records);
	return result;
}

summary summarise(const record_list *list, const selection *which) { return summarise_with(list, which, true); }
summary summarise_means(const record_list *list, const selection *which) { return summarise_with(list, which, false); }

/* ------------------------------------------------------------------------------------------------------------ pairs */

static interval difference(sums *s, const record **a, const record **b, double (*value)(const record *)) {
	for (int32_t i = 0; i < s->n; i++) {
		set(s, i, a[i] && b[i] ? value(a[i]) - value(b[i]) : nan_value);
	}
	return figure(s);
}

static paired pair_up(const record **first, const record **second, int32_t n) {
	paired result = {0, nothing, nothing, nothing};
	sums s;
	if (sums_make(&s, n, true)) {
		result = (paired){n, difference(&s, first, second, record_kl), difference(&s, first, second, get_score),
		                  difference(&s, first, second, get_nll)};
	}
	sums_free(&s);
	return result;
}

paired summarise_paired(const record_list *list, const selection *a, const selection *b) {
	paired result = {0, nothing, nothing, nothing};
	int32_t n_first = 0, n = 0;
	const record **first = gather(list, a, &n_first);
	const record **second = first && n_first ? calloc((size_t)n_first, sizeof(const record *)) : NULL;
	for (int32_t i = 0; second && i < n_first; i++) {
		const record *other = records_find(list, first[i]->example, b->cache, b->policy, b->keep);
		if (other && matches(other, b)) {
			first[n] = first[i];
			second[n++] = other;
		}
	}
	if (n) {
		result = pair_up(first, second, n);
	}
	free(first);
	free(second);
	return result;
}

/* ------------------------------------------------------------------------------------------------------ what there is */

static bool same_variant(const variant *v, const record *r) {
	return strcmp(v->policy, r->policy) == 0 && strcmp(v->keep, r->keep) == 0 && strcmp(v->cache, r->cache) == 0;
}

/* An array of a size that doubles. */
static void *one_more(void *items, int32_t n, size_t size) {
	if (n & (n - 1)) {
		return items;
	}
	void *bigger = realloc(items, (n ? 2 * (size_t)n : 1) * size);
	if (!bigger) {
		free(items);
	}
	return bigger;
}

int32_t summary_variants(const record_list *list, variant **out) {
	variant *found = NULL;
	int32_t n = 0;
	*out = NULL;
	for (int32_t i = 0; i < list->n; i++) {
		const record *r = &list->items[i];
		int32_t k = 0;
		while (k < n && !same_variant(&found[k], r)) {
			k++;
		}
		if (k == n) {
			found = one_more(found, n, sizeof *found);
			if (!found) {
				return -1;
			}
			found[n++] = (variant){r->cache, r->policy, r->keep};
		}
	}
	*out = found;
	return n;
}

int32_t summary_tasks(const record_list *list, const char ***out) {
	const char **found = NULL;
	int32_t n = 0;
	*out = NULL;
	for (int32_t i = 0; i < list->n; i++) {
		int32_t k = 0;
		while (k < n && strcmp(found[k], list->items[i].task) != 0) {
			k++;
		}
		if (k == n) {
			found = one_more(found, n, sizeof(const char *));
			if (!found) {
				return -1;
			}
			found[n++] = list->items[i].task;
		}
	}
	*out = found;
	return n;
}

void summary_pareto(const double *share, const double *kl, int32_t n, uint8_t *marks) {
	for (int32_t i = 0; i < n; i++) {
		marks[i] = isfinite(share[i]) && isfinite(kl[i]);
		for (int32_t k = 0; k < n && marks[i]; k++) {
			bool no_worse = share[k] <= share[i] && kl[k] <= kl[i], better = share[k] < share[i] || kl[k] < kl[i];
			marks[i] = !(no_worse && better);
		}
	}
}
