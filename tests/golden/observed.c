#include "observed.h"

#include <stdlib.h>
#include <string.h>

/* Lengths of the pieces in which queries come, over and over. */
static const int32_t pieces[] = {1, 33, 5, 64, 17};

static int32_t piece(int i, int32_t left) {
	int32_t n = pieces[(size_t)i % (sizeof pieces / sizeof *pieces)];
	return n < left ? n : left;
}

/* Tokens first .. first + n - 1 of a view. */
static ckv_view part(const ckv_view *view, int32_t first, int32_t n) {
	ckv_view p = *view;
	p.data = (const char *)view->data + (size_t)first * view->stride_token;
	p.n_tokens = n;
	return p;
}

static uint32_t needs(const ckv_params *policy) {
	ckv_needs found = {0, 0};
	ckv_params_needs(policy, &found);
	return found.flags;
}

bool observed_lacking(const inputs *in, const ckv_params *policy) {
	return !in->all_queries.data && (needs(policy) & (CKV_NEED_MOMENTS | CKV_NEED_MASS));
}

/* -------------------------------------------------------------------------------------------- moments */

static ckv_moments *gather_moments(const inputs *in, int32_t sinks, int run, note *why) {
	const ckv_view *all = &in->all_queries;
	ckv_moments *moments;
	ckv_ctx_options options;
	replay_options(run, &options);
	ckv_status status = ckv_moments_create(&moments, all->n_heads, all->head_dim, &options);
	for (int32_t t = sinks, i = 0; t < all->n_tokens && status == CKV_OK; i++) {
		ckv_view queries = part(all, t, piece(i, all->n_tokens - t));
		status = ckv_moments_add(moments, &queries);
		t += queries.n_tokens;
	}
	if (status != CKV_OK) {
		ckv_moments_free(moments);
		note_set(why, "ckv_moments: %s", ckv_strerror(status));
		return NULL;
	}
	return moments;
}

/* mean[H][d] and covariance[H][d][d] in one array. */
static float *read_moments(const ckv_moments *moments, const inputs *in, size_t *n, note *why) {
	size_t d = (size_t)in->all_queries.head_dim, heads = (size_t)in->all_queries.n_heads;
	*n = heads * d * (d + 1);
	float *both = malloc(*n * sizeof *both);
	if (!both) {
		note_set(why, "no memory for %zu moments", *n);
		return NULL;
	}
	ckv_moments_read(moments, both, both + heads * d);
	return both;
}

/* One more run, which must find the same. */
static bool gather_again(const inputs *in, int32_t sinks, int run, const float *first, size_t n, note *why) {
	ckv_moments *moments = gather_moments(in, sinks, run, why);
	float *found = moments ? read_moments(moments, in, &n, why) : NULL;
	bool ok = found && replay_same(run, first, found, n, "moments", why);
	free(found);
	ckv_moments_free(moments);
	return ok;
}

static bool open_moments(observed *o, const inputs *in, int32_t sinks, note *why) {
	size_t n = 0;
	o->moments = gather_moments(in, sinks, 0, why);
	float *first = o->moments ? read_moments(o->moments, in, &n, why) : NULL;
	bool ok = first != NULL;
	for (int run = 1; run < N_RUNS && ok; run++) {
		ok = gather_again(in, sinks, run, first, n, why);
	}
	free(first);
	o->layer.moments = o->moments;
	return ok;
}

/* turn[d][d]: the mean of the rotations to positions first .. first + n - 1. */
static double *mean_turn(const ckv_rope *rope, size_t d, int32_t first, int32_t n) {
	double *turn = calloc(d * d, sizeof *turn);
	float *row = malloc(d * sizeof *row);
	for (size_t j = 0; j < d && turn && row; j++) {
		for (int32_t t = first; t < first + n; t++) {
			memset(row, 0, d * sizeof *row);
			row[j] = 1.0f;
			ckv_rope_turn(rope, t, 1.0f, row);
			for (size_t i = 0; i < d; i++) {
				turn[i * d + j] += (double)row[i] / n;
			}
		}
	}
	if (!row) {
		free(turn);
		turn = NULL;
	}
	free(row);
	return turn;
}

/* out[rows][d] = in[rows][d] turn'. */
static void turn_rows(const double *turn, size_t d, const double *in, size_t rows, double *out) {
	for (size_t r = 0; r < rows; r++) {
		for (size_t i = 0; i < d; i++) {
			double sum = 0.0;
			for (size_t j = 0; j < d; j++) {
				sum += in[r * d + j] * turn[i * d + j];
			}
			out[r * d + i] = sum;
		}
	}
}

static void transpose(const double *in, size_t d, double *out) {
	for (size_t i = 0; i < d * d; i++) {
		out[i] = in[i % d * d + i / d];
	}
}

/* What float32 sums of some hundred products may be apart. */
static const tolerance of_moments = {2e-5, 1e-5};

/* found[n], turned, against what is stored for the same head. `square`: a covariance, which turns on both sides. */
static bool compare_turned(const double *turn, size_t d, const float *found, const float *expected, bool square,
                           double *work, note *why) {
	size_t n = square ? d * d : d;
	double *a = work, *b = work + d * d;
	for (size_t i = 0; i < n; i++) {
		a[i] = (double)found[i];
	}
	turn_rows(turn, d, a, n / d, b);
	if (square) {
		transpose(b, d, a);
		turn_rows(turn, d, a, d, b);
	}
	for (size_t i = 0; i < n; i++) {
		if (!tolerance_holds(of_moments, (double)expected[i], b[i])) {
			return note_set(why, "%s differ: number %zu of a head: %.9g expected, %.9g found",
			                square ? "covariances" : "means", i, (double)expected[i], b[i]);
		}
	}
	return true;
}

static bool compare_moments(const observed *o, const inputs *in, int32_t n_future, const npy *mean, const npy *covariance,
                            note *why) {
	size_t d = (size_t)in->all_queries.head_dim, heads = (size_t)in->all_queries.n_heads, n;
	if (mean->type != NPY_F4 || mean->count != heads * d || covariance->type != NPY_F4 ||
	    covariance->count != heads * d * d) {
		return note_set(why, "ea_mean and ea_cov are not float32 of %zu heads of %zu", heads, d);
	}
	float *found = read_moments(o->moments, in, &n, why);
	double *work = malloc(2 * d * d * sizeof *work), *turn = mean_turn(&o->layer.rope, d, in->n_tokens, n_future);
	bool ok = found && ((work && turn) || note_set(why, "no memory for a rotation of %zu channels", d));
	for (size_t h = 0; h < heads && ok; h++) {
		ok = compare_turned(turn, d, found + h * d, (const float *)mean->data + h * d, false, work, why) &&
		     compare_turned(turn, d, found + (heads + h * d) * d, (const float *)covariance->data + h * d * d, true, work,
		                    why);
	}
	free(found);
	free(work);
	free(turn);
	return ok;
}

bool observed_moments_agree(const observed *o, const inputs *in, const casefile *file, int32_t n_future, note *why) {
	npy mean = {.data = NULL}, covariance = {.data = NULL};
	bool ok = inputs_array(file, "ea_mean", &mean, why) && inputs_array(file, "ea_cov", &covariance, why) &&
	          compare_moments(o, in, n_future, &mean, &covariance, why);
	npy_free(&mean);
	npy_free(&covariance);
	return ok;
}

/* ---------------------------------------------------------------------------------- sums of attention */

/* The queries after RoPE, [H][T][d]. */
static float *turn_queries(const inputs *in, note *why) {
	const ckv_view *all = &in->all_queries;
	size_t d = (size_t)all->head_dim, n = (size_t)all->n_heads * (size_t)all->n_tokens;
	if (all->dtype != CKV_F32) {
		note_set(why, "queries_prerope must be float32 to be turned here");
		return NULL;
	}
	float *turned = malloc(n * d * sizeof *turned);
	if (!turned) {
		note_set(why, "no memory for %zu queries", n);
		return NULL;
	}
	memcpy(turned, all->data, n * d * sizeof *turned);
	for (size_t i = 0; i < n; i++) {
		ckv_rope_turn(&in->layer.rope, (int32_t)(i % (size_t)all->n_tokens), 1.0f, turned + i * d);
	}
	return turned;
}

/* Hands in the queries piece by piece, each with the keys that were there by then. */
static bool add_mass(const inputs *in, const float *turned, replay *r, int run, float *sums, note *why) {
	ckv_view all = in->all_queries;
	all.data = turned;
	int32_t n = in->n_tokens;
	memset(sums, 0, (size_t)in->n_heads * (size_t)n * sizeof *sums);
	for (int32_t t = 0, i = 0; t < n; i++) {
		ckv_layer layer = in->layer;
		layer.q = part(&all, t, piece(i, n - t));
		t += layer.q.n_tokens;
		layer.k.n_tokens = t;
		ckv_status status = ckv_mass_add(r->ctx[run], &layer, sums, (size_t)n);
		if (status != CKV_OK) {
			return replay_refused(r, run, "ckv_mass_add", status, why);
		}
	}
	return true;
}

static bool open_mass(observed *o, const inputs *in, replay *r, note *why) {
	size_t n = (size_t)in->n_heads * (size_t)in->n_tokens;
	float *turned = turn_queries(in, why), *again = malloc(n * sizeof *again);
	o->mass = malloc(n * sizeof *o->mass);
	bool ok = turned && ((o->mass && again) || note_set(why, "no memory for %zu sums", n));
	for (int run = 0; run < N_RUNS && ok; run++) {
		float *sums = run ? again : o->mass;
		ok = add_mass(in, turned, r, run, sums, why) && replay_same(run, o->mass, sums, n, "sums of attention", why);
	}
	free(turned);
	free(again);
	o->layer.mass = o->mass;
	o->layer.mass_stride = (size_t)in->n_tokens;
	return ok;
}

/* Of [H][T][T] attention: what all queries pay to key t, mean over the query heads of KV head g. */
static double column_sum(const float *attention, const inputs *in, size_t g, size_t t) {
	size_t n = (size_t)in->n_tokens, group = (size_t)in->layer.q.n_heads / (size_t)in->n_heads;
	double sum = 0.0;
	for (size_t row = g * group * n; row < (g + 1) * group * n; row++) {
		sum += (double)attention[row * n + t];
	}
	return sum / (double)group;
}

bool observed_mass_agrees(const observed *o, const inputs *in, const casefile *file, tolerance allowed, note *why) {
	npy attention;
	size_t n = (size_t)in->n_tokens;
	if (!inputs_array(file, "attentions", &attention, why)) {
		return false;
	}
	bool ok = (attention.type == NPY_F4 && attention.count == (size_t)in->layer.q.n_heads * n * n) ||
	          note_set(why, "attentions is not float32 [%d][%zu][%zu]", in->layer.q.n_heads, n, n);
	for (size_t i = 0; i < (size_t)in->n_heads * n && ok; i++) {
		double expected = column_sum(attention.data, in, i / n, i % n);
		ok = tolerance_holds(allowed, expected, (double)o->mass[i]) ||
		     note_set(why, "sums differ: head %zu, token %zu: %.9g expected, %.9g found", i / n, i % n, expected,
		              (double)o->mass[i]);
	}
	npy_free(&attention);
	return ok;
}

/* -------------------------------------------------------------------------------------------- together */

bool observed_open(observed *o, const inputs *in, const ckv_params *policy, replay *r, note *why) {
	*o = (observed){.layer = in->layer};
	uint32_t flags = needs(policy);
	bool ok = !(flags & CKV_NEED_MOMENTS) || open_moments(o, in, policy->sinks, why);
	ok = ok && (!(flags & CKV_NEED_MASS) || open_mass(o, in, r, why));
	if (!ok) {
		observed_close(o);
	}
	return ok;
}

void observed_close(observed *o) {
	ckv_moments_free(o->moments);
	free(o->mass);
	o->moments = NULL;
	o->mass = NULL;
}
