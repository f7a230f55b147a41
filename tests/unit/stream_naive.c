#include "stream_support.h"

#include "stream/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

naive_head naive_make(const ckv_stream_params *params, const tokens *t, int32_t layer, int32_t index, int32_t budget) {
	naive_head h = {.params = *params, .t = t, .layer = layer, .index = index, .budget = budget};
	size_t n = (size_t)t->k.n_tokens + 1;
	h.positions = test_memory(n, sizeof *h.positions);
	h.scores = test_memory(n, sizeof *h.scores);
	h.keys = test_memory(n * (size_t)t->k.dim, sizeof *h.keys);
	h.values = test_memory(n * (size_t)t->v.dim, sizeof *h.values);
	return h;
}

void naive_free(naive_head *h) {
	free(h->positions);
	free(h->scores);
	free(h->keys);
	free(h->values);
}

static bool scored_by(const naive_head *h, const char *scorer) { return strcmp(h->params.scorer, scorer) == 0; }

static double dot(const double *a, const double *b, int32_t n) {
	double sum = 0.0;
	for (int32_t c = 0; c < n; c++) {
		sum += a[c] * b[c];
	}
	return sum;
}

/* w[0 .. n-1] += share * softmax of the query of `position` over the first n rows, mean over its query heads. */
static void add_weights(const naive_head *h, int32_t position, int32_t n, double share, double *w) {
	int32_t dim = h->t->k.dim, group = h->t->group ? h->t->group : 1;
	double *x = test_memory((size_t)n, sizeof *x);
	for (int32_t g = 0; g < group; g++) {
		const float *q =
		    h->t->group ? tensor_row(&h->t->q, h->index * group + g, position) : tensor_row(&h->t->k, h->index, position);
		double sum = 0.0;
		for (int32_t j = 0; j < n; j++) {
			double logit = 0.0;
			for (int32_t c = 0; c < dim; c++) {
				logit += (double)q[c] * h->keys[j * dim + c];
			}
			x[j] = exp(logit / sqrt(dim));
			sum += x[j];
		}
		for (int32_t j = 0; j < n; j++) {
			w[j] += share * x[j] / sum / group;
		}
	}
	free(x);
}

static double first_score(const naive_head *h, const float *key) {
	double sum = 0.0;
	for (int32_t c = 0; c < h->t->k.dim; c++) {
		sum += (double)key[c] * (double)key[c];
	}
	return scored_by(h, "attn_mass")   ? (h->n == 0 ? 1.0 : 0.0)
	       : scored_by(h, "key_norm")  ? sqrt(sum)
	       : scored_by(h, "knorm")     ? -sqrt(sum)
	       : scored_by(h, "streaming") ? h->seen
	                                   : 0.0;
}

static void append(naive_head *h) {
	const float *key = tensor_row(&h->t->k, h->index, h->seen), *value = tensor_row(&h->t->v, h->index, h->seen);
	h->positions[h->n] = h->seen;
	h->scores[h->n] = first_score(h, key);
	for (int32_t c = 0; c < h->t->k.dim; c++) {
		h->keys[h->n * h->t->k.dim + c] = (double)key[c];
	}
	for (int32_t c = 0; c < h->t->v.dim; c++) {
		h->values[h->n * h->t->v.dim + c] = (double)value[c];
	}
	h->n++;
	h->seen++;
}

/* Scores that are made when something must go. */
static void score_late(naive_head *h) {
	int32_t from = h->seen - h->params.window > h->known_from ? h->seen - h->params.window : h->known_from;
	bool tova = scored_by(h, "tova"), snapkv = scored_by(h, "snapkv");
	for (int32_t j = 0; j < h->n && (tova || snapkv); j++) {
		h->scores[j] = 0.0;
	}
	if (tova) {
		add_weights(h, h->seen - 1, h->n, 1.0, h->scores);
	}
	for (int32_t p = from; p < h->seen && snapkv; p++) {
		int32_t older = 0;
		while (older < h->n && h->positions[older] < p) {
			older++;
		}
		if (older) {
			add_weights(h, p, older, 1.0 / (h->seen - from), h->scores);
		}
	}
}

typedef struct candidate {
	int32_t first, end; /* rows */
	double mean;
} candidate;

/* The chunk that begins with row `first`; false when it must stay. */
static bool chunk_at(const naive_head *h, int32_t first, candidate *c) {
	const ckv_stream_params *p = &h->params;
	int32_t chunk = ckv_stream_params_use(p, "chunk") ? p->chunk : 1,
	        grace = ckv_stream_params_use(p, "grace") ? p->grace : 0;
	int32_t number = (h->positions[first] - p->sinks) / chunk, last = p->sinks + (number + 1) * chunk - 1;
	grace = scored_by(h, "snapkv") ? p->window : grace;
	c->first = c->end = first;
	c->mean = 0.0;
	while (c->end < h->n && h->positions[c->end] <= last) {
		c->mean += h->scores[c->end++];
	}
	c->mean /= c->end - first;
	return h->positions[first] >= p->sinks && last < h->seen && last < h->seen - grace;
}

static void check_near(naive_head *h, const candidate *best, const candidate *theirs, const char *what) {
	double gap = fabs(theirs->mean - best->mean);
	h->near_ties++;
	CHECK(gap <= 1e-5 * fabs(best->mean) + 1e-7,
	      "%s: layer %d, head %d, after token %d: %d (%.9g) went instead of %d (%.9g)", what, h->layer, h->index,
	      h->seen - 1, h->positions[theirs->first], theirs->mean, h->positions[best->first], best->mean);
}

/* The chunk that goes; `position` is what the library let go. */
static bool choose(naive_head *h, int32_t position, candidate *chosen, const char *what) {
	candidate next, theirs = {0, 0, 0.0};
	bool found = false, matched = false;
	for (int32_t first = 0; first < h->n; first = next.end) {
		if (!chunk_at(h, first, &next)) {
			next.end = h->positions[first] < h->params.sinks ? first + 1 : next.end;
			continue;
		}
		bool lower = !found || next.mean < chosen->mean || (scored_by(h, "knorm") && next.mean <= chosen->mean);
		*chosen = lower ? next : *chosen;
		found = true;
		if (h->positions[first] == position) {
			theirs = next;
			matched = true;
		}
	}
	if (found && matched && theirs.first != chosen->first) {
		check_near(h, chosen, &theirs, what);
		*chosen = theirs;
	}
	return found;
}

static void fold(double *target, const double *loser, double weight, int32_t dim) {
	for (int32_t c = 0; c < dim; c++) {
		target[c] = f16_rounded((1.0 - weight) * target[c] + weight * loser[c]);
	}
}

/* Into the row of the most similar key, no sink; weight: their cosine, or half. The gate opens with probability
 * loser's score / target's. */
static void merge(naive_head *h, int32_t loser) {
	const ckv_stream_params *p = &h->params;
	int32_t dim = h->t->k.dim, dim_v = h->t->v.dim, target = -1;
	double best = 0.0, *own = h->keys + loser * dim, length = sqrt(dot(own, own, dim));
	for (int32_t j = 0; j < h->n; j++) {
		const double *other = h->keys + j * dim;
		double cosine = dot(own, other, dim) / (length * sqrt(dot(other, other, dim)) + 1e-8);
		if (j != loser && h->positions[j] >= p->sinks && (target < 0 || cosine > best)) {
			best = cosine;
			target = j;
		}
	}
	double chance = h->scores[loser] / h->scores[target];
	double draw = (double)ckv_merge_draw((int64_t)p->seed + h->layer + h->index, h->draws++);
	if (p->merge_gate && draw >= chance) {
		return;
	}
	double weight = strcmp(p->merge, "mean") == 0 ? 0.5 : best < 0.0 ? 0.0 : best > 1.0 ? 1.0 : best;
	fold(h->values + target * dim_v, h->values + loser * dim_v, weight, dim_v);
	if (p->merge_keys) {
		fold(h->keys + target * dim, own, weight, dim);
	}
	h->scores[target] += h->scores[loser];
}

static void remove_rows(naive_head *h, int32_t first, int32_t end) {
	size_t rest = (size_t)(h->n - end), dim = (size_t)h->t->k.dim, dim_v = (size_t)h->t->v.dim;
	size_t to = (size_t)first, from = (size_t)end;
	memmove(h->positions + to, h->positions + from, rest * sizeof *h->positions);
	memmove(h->scores + to, h->scores + from, rest * sizeof *h->scores);
	memmove(h->keys + to * dim, h->keys + from * dim, rest * dim * sizeof *h->keys);
	memmove(h->values + to * dim_v, h->values + from * dim_v, rest * dim_v * sizeof *h->values);
	h->n -= end - first;
}

/* Chunks go until `target` rows are left; they must be what the library let go, in its order. */
static int32_t evict_to(naive_head *h, int32_t target, const int32_t *evicted, int32_t n_evicted, int32_t at,
                        const char *what) {
	while (h->n > target) {
		candidate c = {0, 0, 0.0};
		bool found = choose(h, at < n_evicted ? evicted[at] : -1, &c, what);
		CHECK(found, "%s: layer %d, head %d: nothing may go at token %d", what, h->layer, h->index, h->seen - 1);
		for (int32_t i = c.first; i < c.end; i++, at++) {
			CHECK(at < n_evicted && evicted[at] == h->positions[i], "%s: layer %d, head %d, token %d: %d is to go, not %d",
			      what, h->layer, h->index, h->seen - 1, h->positions[i], at < n_evicted ? evicted[at] : -1);
		}
		h->decisions++;
		if (strcmp(h->params.merge, "drop") != 0) {
			merge(h, c.first);
		}
		remove_rows(h, c.first, c.end);
	}
	return at;
}

void naive_step(naive_head *h, const int32_t *evicted, int32_t n_evicted, const char *what) {
	bool snapkv = scored_by(h, "snapkv");
	/* A budget that became smaller. */
	int32_t at = evict_to(h, h->budget, evicted, n_evicted, 0, what);
	if (scored_by(h, "attn_mass") && h->n) {
		for (int32_t j = 0; j < h->n; j++) {
			h->scores[j] *= h->params.decay;
		}
		add_weights(h, h->seen, h->n, 1.0, h->scores);
	}
	append(h);
	if (h->n > h->budget) {
		score_late(h);
		at = evict_to(h, snapkv ? h->budget + 1 - h->params.window : h->budget, evicted, n_evicted, at, what);
	}
	CHECK(at == n_evicted, "%s: layer %d, head %d, token %d: %d went too many", what, h->layer, h->index, h->seen - 1,
	      n_evicted - at);
}

void naive_compare(const naive_head *h, const ckv_stream *s, const char *what) {
	ckv_stream_rows rows = head_rows(s, h->layer, h->index);
	CHECK(rows.n == h->n, "%s: layer %d, head %d: %d rows, not %d", what, h->layer, h->index, rows.n, h->n);
	for (int32_t i = 0; i < rows.n; i++) {
		CHECK(rows.positions[i] == h->positions[i], "%s: layer %d, head %d, row %d: %d, not %d", what, h->layer, h->index, i,
		      rows.positions[i], h->positions[i]);
		if (rows.scores) {
			double score = (double)rows.scores[i];
			CHECK(fabs(score - h->scores[i]) <= 1e-4 * fabs(h->scores[i]) + 1e-7, "%s: position %d: %.9g, not %.9g", what,
			      rows.positions[i], score, h->scores[i]);
		}
	}
}

void naive_trim(naive_head *h, int32_t n) {
	int32_t kept = h->seen - n,
	        known = h->seen - h->params.window > h->known_from ? h->seen - h->params.window : h->known_from;
	h->known_from = known < kept ? known : kept;
	h->seen = kept;
	while (h->n && h->positions[h->n - 1] >= kept) {
		h->n--;
	}
}

double naive_concentration(const tokens *t, int32_t n) {
	double all = 0.0;
	for (int32_t g = 0; g < t->k.n_heads; g++) {
		double sum = 0.0;
		for (int32_t i = 0; i < n; i++) {
			for (int32_t j = 0; j < n; j++) {
				const float *a = tensor_row(&t->k, g, i), *b = tensor_row(&t->k, g, j);
				double ab = 0.0, aa = 0.0, bb = 0.0;
				for (int32_t c = 0; c < t->k.dim; c++) {
					ab += (double)a[c] * (double)b[c];
					aa += (double)a[c] * (double)a[c];
					bb += (double)b[c] * (double)b[c];
				}
				sum += i == j || aa * bb == 0.0 ? 0.0 : ab / sqrt(aa * bb);
			}
		}
		all += sum / n / (n - 1);
	}
	return all / t->k.n_heads;
}
