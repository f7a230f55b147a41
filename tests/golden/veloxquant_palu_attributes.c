/* What a cache of palu reports of itself: ranks, and the bytes that they count. Theirs are sums over what would have to be
 * stored (levels for each whole or part of a group, however the calls cut them; no row begins at a byte), so these follow
 * from the ranks, and are not what a cache of ours holds. */
#include "veloxquant_palu.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Both sides when so many tokens have come. */
typedef struct state {
	const vq_palu *keys, *values;
	int32_t n;
} state;

static bool fitted(const vq_palu *p, int32_t n) { return p->held > 0 && n >= p->held; }

static double bytes_of_bits(double bits) { return ceil(bits / 8.0); }

static double f16_bytes(const vq_palu *p, double n, double channels) { return (double)p->c->heads * n * channels * 2.0; }

static double basis_bytes(const vq_palu *p, int32_t n) {
	double dim = (double)p->fit.dim, rank = (double)p->fit.rank;
	return fitted(p, n) ? (double)p->fit.n_groups * (dim * rank + dim) * 4.0 : 0.0;
}

static double bytes(const vq_palu *p, int32_t tokens) {
	double n = (double)tokens, rank = (double)p->fit.rank, high = (double)vq_palu_n_high(p->config, p->fit.rank);
	if (!fitted(p, tokens)) {
		return f16_bytes(p, n, (double)p->c->dim);
	}
	if (!p->coded) {
		return f16_bytes(p, n, rank) + basis_bytes(p, tokens);
	}
	double codes = bytes_of_bits(n * high * (double)p->config->high_bits) +
	               bytes_of_bits(n * (rank - high) * (double)p->config->low_bits);
	double levels = ceil(n / (double)p->config->group) * rank * 4.0;
	return (double)p->c->heads * (codes + levels) + basis_bytes(p, tokens);
}

/* Of a channel before projection. */
static double bits(const vq_palu *p, int32_t n) {
	double dim = (double)p->c->dim, rank = (double)p->fit.rank, high = (double)vq_palu_n_high(p->config, p->fit.rank);
	if (!fitted(p, n)) {
		return 16.0;
	}
	return p->coded ? (high * (double)p->config->high_bits + (rank - high) * (double)p->config->low_bits) / dim
	                : 16.0 * rank / dim;
}

static double rank(const state *s) { return fitted(s->keys, s->n) ? (double)s->keys->fit.rank : 0.0; }
static double value_rank(const state *s) { return fitted(s->values, s->n) ? (double)s->values->fit.rank : 0.0; }
static double projection(const state *s) { return basis_bytes(s->keys, s->n) + basis_bytes(s->values, s->n); }
static double key_bytes(const state *s) { return bytes(s->keys, s->n); }
static double value_bytes(const state *s) { return bytes(s->values, s->n); }
static double whole_bytes(const state *s) { return f16_bytes(s->keys, (double)s->n, (double)s->keys->c->dim); }
static double average_bits(const state *s) { return fmax(bits(s->keys, s->n), bits(s->values, s->n)); }
static double offset(const state *s) { return (double)s->n; }

static const struct {
	const char *name;
	double (*found)(const state *s);
} attributes[] = {
    {"rank", rank},
    {"value_rank", value_rank},
    {"projection_bytes", projection},
    {"compressed_key_bytes", key_bytes},
    {"compressed_value_bytes", value_bytes},
    {"fp16_key_bytes", whole_bytes},
    {"fp16_value_bytes", whole_bytes},
    {"assigned_avg_bits", average_bits},
    {"offset", offset},
};

static void replay_attribute(const vq_job *job, const char *when, const char *name, const json_t *expected, const state *s) {
	char text[96];
	note why = {""};
	for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++) {
		if (strcmp(name, attributes[i].name) == 0) {
			double want = json_number_value(expected), have = attributes[i].found(s);
			bool ok = (json_is_number(expected) && fabs(want - have) <= 1e-12 * fabs(want)) ||
			          note_set(&why, "%.17g expected, %.17g found", want, have);
			snprintf(text, sizeof text, "%s: %.40s", when, name);
			vq_count(job, text, ok, &why);
			return;
		}
	}
	snprintf(text, sizeof text, "no equivalent of %.30s", name);
	vq_skip(job, text);
}

static void replay_time(const vq_job *job, const char *when, const state *s) {
	const char *name;
	json_t *all, *expected;
	note why = {""};
	if (!field_object(job->file->root, when, &all, &why)) {
		vq_count(job, when, false, &why);
		return;
	}
	json_object_foreach(all, name, expected) { replay_attribute(job, when, name, expected, s); }
}

void vq_palu_replay_attributes(const vq_job *job, const vq_palu *keys, const vq_palu *values) {
	const vq_feed *feed = &keys->c->feed;
	replay_time(job, "attrs_after_prefill", &(state){keys, values, feed->steps[0]});
	replay_time(job, "attrs_final", &(state){keys, values, feed->tokens});
}
