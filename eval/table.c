#include "table.h"

#include "summary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { KL_WIDTH = 22, SHARE_WIDTH = 20 };

static void print_interval(FILE *out, interval v, int precision, double factor, int width) {
	char text[64];
	if (isnan(v.value)) {
		snprintf(text, sizeof text, "-");
	} else if (isnan(v.low)) {
		snprintf(text, sizeof text, "%.*f", precision, v.value * factor);
	} else {
		snprintf(text, sizeof text, "%.*f [%.*f, %.*f]", precision, v.value * factor, precision, v.low * factor, precision,
		         v.high * factor);
	}
	fprintf(out, " %*s", width, text);
}

static bool is_whole(const variant *v) { return strcmp(v->policy, "full") == 0; }

/* Column of a policy's name. */
static int name_width(const variant *list, int32_t n) {
	size_t width = 10;
	for (int32_t i = 0; i < n; i++) {
		size_t length = strlen(list[i].policy);
		width = length > width ? length : width;
	}
	return width < 60 ? (int)width : 60;
}

static void print_row(FILE *out, const variant *v, const summary *s, int width, bool forced) {
	fprintf(out, "%-*s %6s %5s %7.3f", width, v->policy, v->keep, v->cache, s->share);
	print_interval(out, s->kl, 3, 1.0, KL_WIDTH);
	const interval p99 = {s->kl_p99.value, (double)NAN, (double)NAN};
	print_interval(out, p99, 2, 1.0, 7);
	print_interval(out, s->same, 0, 100.0, SHARE_WIDTH - 6);
	if (forced) {
		interval p = {exp(s->nll.value), exp(s->nll.low), exp(s->nll.high)};
		print_interval(out, p, 2, 1.0, KL_WIDTH);
	} else {
		print_interval(out, s->exact, 0, 100.0, SHARE_WIDTH - 6);
		print_interval(out, s->score, 2, 1.0, SHARE_WIDTH);
	}
	fputc('\n', out);
}

static void print_task(const record_file *f, const char *task, const variant *list, int32_t n, FILE *out) {
	int width = name_width(list, n);
	summary first = {0};
	for (int32_t i = 0; i < n && !first.n; i++) {
		const selection one = {task, list[i].cache, list[i].policy, list[i].keep, 0, -1.0};
		first = summarise_means(&f->records, &one);
	}
	bool forced = !isnan(first.nll.value);
	fprintf(out, "\n%s (%d examples, %.0f tokens on average)\n", task, first.n, first.n_prompt);
	fprintf(out, "%-*s %6s %5s %7s %*s %7s %*s", width, "policy", "keep", "type", "memory", KL_WIDTH, "mean KL", "p99 KL",
	        SHARE_WIDTH - 6, "same top %");
	if (forced) {
		fprintf(out, " %*s\n", KL_WIDTH, "perplexity");
	} else {
		fprintf(out, " %*s %*s\n", SHARE_WIDTH - 6, "exact %", SHARE_WIDTH, "score");
	}
	for (int32_t i = 0; i < n; i++) {
		const selection which = {task, list[i].cache, list[i].policy, list[i].keep, 0, -1.0};
		summary s = summarise(&f->records, &which);
		if (s.n) {
			print_row(out, &list[i], &s, width, forced);
		}
	}
}

void table_print(const record_file *f, FILE *out) {
	variant *variants = NULL;
	const char **tasks = NULL;
	int32_t n = summary_variants(&f->records, &variants), n_tasks = summary_tasks(&f->records, &tasks);
	for (int32_t i = 0; i < n_tasks; i++) {
		print_task(f, tasks[i], variants, n, out);
	}
	fprintf(
	    out,
	    "\nIn brackets: 95 %% intervals over the examples. Memory: share of the whole %s cache. KL in nats, of the whole "
	    "cache's\nnext-token distribution to the compressed one's, along the whole cache's answer.\n",
	    f->header.reference ? f->header.reference : "");
	free(variants);
	free(tasks);
}

/* ------------------------------------------------------------------------------------------------------ recommendation */

static double upper(const summary *s) { return isnan(s->kl.high) ? s->kl.value : s->kl.high; }

/* The smallest in memory of a policy's caches in the reference's type that stay below; -1: none. */
static int32_t smallest(const record_file *f, const variant *list, int32_t n, const char *policy, double limit,
                        summary *out) {
	int32_t best = -1;
	for (int32_t i = 0; i < n; i++) {
		const selection which = {NULL, list[i].cache, list[i].policy, list[i].keep, 0, -1.0};
		if (strcmp(list[i].policy, policy) != 0 || strcmp(list[i].cache, f->header.reference) != 0) {
			continue;
		}
		summary s = summarise(&f->records, &which);
		if (s.n && s.share < 0.999 && upper(&s) < limit && (best < 0 || s.share < out->share)) {
			best = i;
			*out = s;
		}
	}
	return best;
}

void table_recommend(const record_file *f, double limit, FILE *out) {
	variant *list = NULL;
	int32_t n = summary_variants(&f->records, &list), chosen = -1;
	summary best = {0};
	for (int32_t i = 0; i < n; i++) {
		summary s = {0};
		int32_t at = is_whole(&list[i]) ? -1 : smallest(f, list, n, list[i].policy, limit, &s);
		bool better = at >= 0 && (chosen < 0 || s.share < best.share - 1e-9 ||
		                          (s.share < best.share + 1e-9 && s.kl.value < best.kl.value));
		if (better) {
			chosen = at;
			best = s;
		}
	}
	if (chosen < 0) {
		fprintf(out,
		        "\nNo budget tried keeps the mean KL divergence below %g (upper bound of its interval): keep more, or raise "
		        "--kl-limit.\n",
		        limit);
	} else {
		fprintf(out, "\nSmallest cache whose mean KL divergence stays below %g: --policy %s --keep %s\n", limit,
		        list[chosen].policy, list[chosen].keep);
		fprintf(out, "  %.1f %% of the memory, KL %.3f (at most %.3f), same most likely token %.0f %%\n", 100.0 * best.share,
		        best.kl.value, upper(&best), 100.0 * best.same.value);
	}
	free(list);
}

void table_saving(const record_file *f, FILE *out) {
	if (f->n_prefills == 0 || f->prefill_s <= 0.0) {
		return;
	}
	double each = f->apart_s + f->other_s, once = f->prefill_s + f->other_s;
	fprintf(out, "%d prompts read once served %d caches: %.0f s; read for each anew: %.0f s, %.1f times as long\n",
	        f->n_prefills, f->n_starts, once, each, each / once);
}
