/* What a selection does to a layer: L1 losses of keys and values, cosine of the attention, error of its output, mass kept.
 *
 * Attention after is a softmax of its own over the kept logits, not the attention before divided by its sum: what is kept
 * may lie so far below the best that all of it rounds to zero there. */
#include "core/internal.h"
#include "measure/internal.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 16 }; /* queries of a head in hand at once */

/* What a KV head adds to the measures. */
typedef struct head_sums {
	double key_l1, value_l1, cosine, error, kept;
} head_sums;

typedef struct job {
	const ckv_kernels *kernels;
	const ckv_layer *layer;
	const ckv_keep *keep;
	const float *keys, *values; /* kept rows as they are stored, head after head; NULL: as they came */
	int32_t group;
	size_t dim_k, dim_v, widest, padded;
	size_t n_rows; /* queries of a group in hand at most */
	float scale;
	float *rows, *panel, *queries, *weights, *outputs; /* each worker's */
	head_sums *sums;                                   /* [G] */
} job;

/* One worker's memory, and the queries of a group that it has in hand: row h * n + i is query first + i of head h. */
typedef struct desk {
	float *rows, *queries;
	ckv_panel panel;
	float *before, *after;             /* [rows][padded]: weights by token, and by place in the list */
	float *out_before, *out_after;     /* [rows][dim_v] */
	int32_t kv_head, first, n, n_keys; /* n_keys: that the last query sees */
	ckv_list list;
} desk;

void ckv_measures_init(ckv_measures *measures) {
	if (measures) {
		memset(measures, 0, sizeof *measures);
		measures->size = sizeof *measures;
	}
}

static ckv_status job_init(job *j, ckv_ctx *ctx, const ckv_layer *layer, const ckv_keep *keep) {
	size_t workers = (size_t)ckv_workers(ctx, layer->k.n_heads);
	int32_t n = layer->q.n_tokens < BLOCK ? layer->q.n_tokens : BLOCK;
	j->kernels = ctx->kernels;
	j->layer = layer;
	j->keep = keep;
	j->group = layer->q.n_heads / layer->k.n_heads;
	j->dim_k = (size_t)layer->k.head_dim;
	j->dim_v = (size_t)layer->v.head_dim;
	j->widest = j->dim_k > j->dim_v ? j->dim_k : j->dim_v;
	j->padded = ((size_t)layer->k.n_tokens + CKV_LANES - 1) / CKV_LANES * CKV_LANES;
	j->n_rows = (size_t)j->group * (size_t)n;
	j->scale = ckv_logit_scale(layer);
	j->rows = ckv_scratch(ctx, SLOT_ROWS, workers * CKV_LANES, j->widest * sizeof(float));
	j->panel = ckv_scratch(ctx, SLOT_PANEL, workers * CKV_LANES, j->dim_k * sizeof(float));
	j->queries = ckv_scratch(ctx, SLOT_QUERIES, workers * j->n_rows, j->dim_k * sizeof(float));
	j->weights = ckv_scratch(ctx, SLOT_LOGITS, 2 * workers * j->n_rows, j->padded * sizeof(float));
	j->outputs = ckv_scratch(ctx, SLOT_PARTIAL, 2 * workers * j->n_rows, j->dim_v * sizeof(float));
	j->sums = ckv_scratch(ctx, SLOT_SUMS, (size_t)layer->k.n_heads, sizeof *j->sums);
	return j->rows && j->panel && j->queries && j->weights && j->outputs && j->sums ? CKV_OK : CKV_ERR_NOMEM;
}

static desk desk_of(const job *j, int32_t worker, int32_t kv_head) {
	size_t w = (size_t)worker;
	desk d = {.rows = j->rows + w * CKV_LANES * j->widest,
	          .queries = j->queries + w * j->n_rows * j->dim_k,
	          .before = j->weights + 2 * w * j->n_rows * j->padded,
	          .out_before = j->outputs + 2 * w * j->n_rows * j->dim_v,
	          .kv_head = kv_head,
	          .list = ckv_keep_list(j->keep, kv_head)};
	d.after = d.before + j->n_rows * j->padded;
	d.out_after = d.out_before + j->n_rows * j->dim_v;
	d.panel.rows = d.rows;
	d.panel.panel = j->panel + w * CKV_LANES * j->dim_k;
	return d;
}

/* The row of the head's kept token number i as it is stored. */
static const float *stored_row(const job *j, const desk *d, const float *stored, size_t dim, int32_t i) {
	const ckv_keep *keep = j->keep;
	size_t first = keep->n_lists == 1 ? (size_t)d->kv_head * keep->n_positions : (size_t)keep->offsets[d->kv_head];
	return stored + (first + (size_t)i) * dim;
}

static ckv_status not_finite(const job *j, const desk *d, int32_t t, const char *what, ckv_error *error) {
	return ckv_fail(error, CKV_ERR_NUMERIC, "layer %d, KV head %d, token %d: NaN or infinity in a %s", j->layer->index,
	                d->kv_head, t, what);
}

/* Sum of |x - x^|: x^ is zero where the row is dropped, and x itself where it stays as it came. All must be finite. */
static ckv_status add_losses(const job *j, const desk *d, const ckv_view *view, const float *stored, const char *what,
                             double *sum, ckv_error *error) {
	size_t dim = (size_t)view->head_dim;
	int32_t next = 0;
	for (int32_t t = 0; t < view->n_tokens; t++) {
		bool kept = next < d->list.n && d->list.positions[next] == t;
		const float *after = kept && stored ? stored_row(j, d, stored, dim, next) : NULL;
		ckv_view_decode(j->kernels, view, d->kv_head, t, 1, d->rows);
		if (!ckv_all_finite(d->rows, dim) || (after && !ckv_all_finite(after, dim))) {
			return not_finite(j, d, t, what, error);
		}
		for (size_t c = 0; c < dim && (after || !kept); c++) {
			*sum += fabs((double)d->rows[c] - (after ? (double)after[c] : 0.0));
		}
		next += kept;
	}
	return CKV_OK;
}

/* The logits of the queries in hand, to `before`. */
static ckv_status compute_logits(const job *j, desk *d, ckv_error *error) {
	size_t n = (size_t)d->n, n_rows = (size_t)j->group * n;
	for (int32_t h = 0; h < j->group; h++) {
		ckv_view_decode(j->kernels, &j->layer->q, d->kv_head * j->group + h, d->first, d->n,
		                d->queries + (size_t)h * n * j->dim_k);
	}
	if (!ckv_all_finite(d->queries, n_rows * j->dim_k)) { /* a logit cap would make something of it */
		return ckv_fail(error, CKV_ERR_NUMERIC, "layer %d, KV head %d: NaN or infinity in a query", j->layer->index,
		                d->kv_head);
	}
	for (int32_t t = 0; t < d->n_keys; t += CKV_LANES) {
		int32_t lanes = d->n_keys - t < CKV_LANES ? d->n_keys - t : CKV_LANES;
		ckv_status status = ckv_panel_load(j->kernels, j->layer, d->kv_head, t, lanes, &d->panel, error);
		if (status) {
			return status;
		}
		j->kernels->qk(d->queries, n_rows, j->dim_k, d->panel.panel, j->scale, d->before + t, j->padded);
	}
	return CKV_OK;
}

/* The logits of the queries in hand over the kept keys as they are stored, to `after`: as far as any of them sees. */
static void compute_stored_logits(const job *j, const desk *d) {
	size_t n_rows = (size_t)j->group * (size_t)d->n;
	for (int32_t i = 0; i < d->list.n && d->list.positions[i] < d->n_keys; i += CKV_LANES) {
		size_t lanes = (size_t)(d->list.n - i < CKV_LANES ? d->list.n - i : CKV_LANES);
		memset(d->rows, 0, CKV_LANES * j->dim_k * sizeof *d->rows);
		memcpy(d->rows, stored_row(j, d, j->keys, j->dim_k, i), lanes * j->dim_k * sizeof *d->rows);
		j->kernels->pack(d->rows, j->dim_k, d->panel.panel);
		j->kernels->qk(d->queries, n_rows, j->dim_k, d->panel.panel, j->scale, d->after + i, j->padded);
	}
}

/* Softmax of x[n], and zeros from there to x[end - 1]. */
static void softmax(const ckv_kernels *kernels, float *x, int32_t n, int32_t end) {
	float sum = n > 0 ? kernels->exp_sum(x, (size_t)n) : 1.0f;
	for (int32_t i = 0; i < n; i++) {
		x[i] /= sum;
	}
	for (int32_t i = n; i < end; i++) {
		x[i] = 0.0f;
	}
}

/* Cosine and mass of one query. Sums of the same numbers in the same order are equal, so keeping all gives exactly 1. */
static void compare_weights(const float *before, int32_t n_seen, const float *after, const ckv_list *list, int32_t n_kept,
                            head_sums *sums) {
	double all = 0.0, squares = 0.0, kept = 0.0, squares_after = 0.0, product = 0.0;
	for (int32_t t = 0; t < n_seen; t++) {
		all += (double)before[t];
		squares += (double)before[t] * (double)before[t];
	}
	for (int32_t i = 0; i < n_kept; i++) {
		double x = (double)before[list->positions[i]], y = (double)after[i];
		kept += x;
		squares_after += y * y;
		product += x * y;
	}
	if (n_kept > 0) {
		double cosine = product / sqrt(squares * squares_after);
		sums->cosine += cosine < 1.0 ? cosine : 1.0;
		sums->kept += kept / all;
	}
}

/* Logits of one query to weights, before and after. Returns how many rows that it sees are kept, or -1 where a logit is not
 * finite. */
static int32_t weigh(const job *j, const desk *d, int32_t i, size_t row, head_sums *sums) {
	float *before = d->before + row * j->padded, *after = d->after + row * j->padded;
	int32_t n_seen = d->n_keys - (d->n - i - 1), n_kept = 0;
	if (!ckv_all_finite(before, (size_t)n_seen)) {
		return -1;
	}
	if (j->layer->logit_cap > 0.0f) {
		ckv_cap_logits(before, (size_t)n_seen, j->layer->logit_cap);
	}
	for (; n_kept < d->list.n && d->list.positions[n_kept] < n_seen; n_kept++) {
		after[n_kept] = j->keys ? after[n_kept] : before[d->list.positions[n_kept]];
	}
	if (j->keys && !ckv_all_finite(after, (size_t)n_kept)) {
		return -1;
	}
	if (j->keys && j->layer->logit_cap > 0.0f) {
		ckv_cap_logits(after, (size_t)n_kept, j->layer->logit_cap);
	}
	softmax(j->kernels, before, n_seen, d->n_keys);
	softmax(j->kernels, after, n_kept, d->list.n);
	compare_weights(before, n_seen, after, &d->list, n_kept, sums);
	return n_kept;
}

/* Both outputs of all queries in hand; a value is decoded once. */
static void add_values(const job *j, const desk *d) {
	size_t n_rows = (size_t)j->group * (size_t)d->n;
	int32_t next = 0;
	memset(d->out_before, 0, n_rows * j->dim_v * sizeof(float));
	memset(d->out_after, 0, n_rows * j->dim_v * sizeof(float));
	for (int32_t t = 0; t < d->n_keys; t++) {
		bool kept = next < d->list.n && d->list.positions[next] == t;
		ckv_view_decode(j->kernels, &j->layer->v, d->kv_head, t, 1, d->rows);
		const float *stored = kept && j->values ? stored_row(j, d, j->values, j->dim_v, next) : d->rows;
		for (size_t row = 0; row < n_rows; row++) {
			j->kernels->axpy(d->out_before + row * j->dim_v, d->rows, d->before[row * j->padded + (size_t)t], j->dim_v);
			if (kept) {
				j->kernels->axpy(d->out_after + row * j->dim_v, stored, d->after[row * j->padded + (size_t)next], j->dim_v);
			}
		}
		next += kept;
	}
}

/* ||a - b|| / ||a|| */
static double relative_error(const float *a, const float *b, size_t n) {
	double squares = 0.0, apart = 0.0;
	for (size_t c = 0; c < n; c++) {
		double difference = (double)a[c] - (double)b[c];
		squares += (double)a[c] * (double)a[c];
		apart += difference * difference;
	}
	return squares > 0.0 ? sqrt(apart / squares) : apart > 0.0 ? 1.0 : 0.0;
}

static ckv_status overflow(const job *j, const desk *d, const char *what, ckv_error *error) {
	return ckv_fail(error, CKV_ERR_NUMERIC, "layer %d, KV head %d: %s overflows", j->layer->index, d->kv_head, what);
}

/* The queries in hand. */
static ckv_status one_block(const job *j, desk *d, head_sums *sums, ckv_error *error) {
	size_t n_rows = (size_t)j->group * (size_t)d->n;
	int32_t n_kept[BLOCK]; /* a list is a group's, so heads do not differ */
	ckv_status status = compute_logits(j, d, error);
	if (status) {
		return status;
	}
	if (j->keys) {
		compute_stored_logits(j, d);
	}
	for (size_t row = 0; row < n_rows; row++) {
		int32_t i = (int32_t)(row % (size_t)d->n);
		n_kept[i] = weigh(j, d, i, row, sums);
		if (n_kept[i] < 0) {
			return overflow(j, d, "the product of a query and a key", error);
		}
	}
	add_values(j, d);
	for (size_t row = 0; row < n_rows; row++) {
		const float *before = d->out_before + row * j->dim_v, *after = d->out_after + row * j->dim_v;
		if (!ckv_all_finite(before, j->dim_v) || !ckv_all_finite(after, j->dim_v)) {
			return overflow(j, d, "a sum of values", error);
		}
		sums->error += n_kept[row % (size_t)d->n] > 0 ? relative_error(before, after, j->dim_v) : 1.0;
	}
	return CKV_OK;
}

static ckv_status one_head(void *user, int32_t worker, int32_t kv_head, ckv_error *error) {
	const job *j = user;
	const ckv_layer *layer = j->layer;
	desk d = desk_of(j, worker, kv_head);
	head_sums sums = {0.0, 0.0, 0.0, 0.0, 0.0};
	ckv_status status = add_losses(j, &d, &layer->k, j->keys, "key", &sums.key_l1, error);
	status = status ? status : add_losses(j, &d, &layer->v, j->values, "value", &sums.value_l1, error);
	for (int32_t i = 0; i < layer->q.n_tokens && status == CKV_OK; i += BLOCK) {
		d.first = i;
		d.n = layer->q.n_tokens - i < BLOCK ? layer->q.n_tokens - i : BLOCK;
		d.n_keys = layer->k.n_tokens - layer->q.n_tokens + i + d.n;
		status = one_block(j, &d, &sums, error);
	}
	j->sums[kv_head] = sums;
	return status;
}

static void add_up(const job *j, ckv_measures *measures) {
	const ckv_layer *layer = j->layer;
	double n_rows = (double)layer->k.n_heads * (double)layer->k.n_tokens;
	double n_queries = (double)layer->q.n_heads * (double)layer->q.n_tokens;
	head_sums all = {0.0, 0.0, 0.0, 0.0, 0.0};
	for (int32_t g = 0; g < layer->k.n_heads; g++) { /* in this order, whoever made them */
		all.key_l1 += j->sums[g].key_l1;
		all.value_l1 += j->sums[g].value_l1;
		all.cosine += j->sums[g].cosine;
		all.error += j->sums[g].error;
		all.kept += j->sums[g].kept;
	}
	measures->key_l1 = all.key_l1 / (n_rows * layer->k.head_dim);
	measures->value_l1 = all.value_l1 / (n_rows * layer->v.head_dim);
	measures->attention_cosine = all.cosine / n_queries;
	measures->output_error = all.error / n_queries;
	measures->attention_kept = all.kept / n_queries;
}

static ckv_status check(const ckv_layer *layer, const ckv_keep *keep, ckv_error *error) {
	ckv_status status = ckv_layer_check(layer, error);
	status = status ? status : ckv_view_check(&layer->v, "values", layer->index, error);
	if (status == CKV_OK && (layer->v.n_heads != layer->k.n_heads || layer->v.n_tokens != layer->k.n_tokens)) {
		status = ckv_fail(error, CKV_ERR_ARG, "layer %d: values and keys differ in shape", layer->index);
	}
	status = status ? status : ckv_queries_check(layer, 1, error);
	if (status) {
		return status;
	}
	if (layer->q.n_tokens > layer->k.n_tokens) {
		return ckv_fail(error, CKV_ERR_ARG, "layer %d: %d queries are more than its %d tokens", layer->index,
		                layer->q.n_tokens, layer->k.n_tokens);
	}
	if ((keep->n_lists != 1 && keep->n_lists != layer->k.n_heads) || !ckv_keep_fits(keep, layer->k.n_tokens)) {
		return ckv_fail(error, CKV_ERR_ARG,
		                "layer %d: what is kept must be 1 or %d lists of ascending positions below %d, with offsets",
		                layer->index, layer->k.n_heads, layer->k.n_tokens);
	}
	return CKV_OK;
}

ckv_status ckv_measure_stored(ckv_ctx *ctx, const ckv_layer *layer, const ckv_keep *keep, const float *keys,
                              const float *values, ckv_measures *measures) {
	job j = {.keys = keys, .values = values};
	if (!ctx) {
		return CKV_ERR_ARG;
	}
	ckv_begin(ctx);
	if (!layer || !keep || !measures || layer->size < sizeof *layer || keep->size < sizeof *keep ||
	    measures->size < sizeof *measures) {
		return ckv_fail(
		    &ctx->error, CKV_ERR_ARG,
		    "ckv_measure needs a layer, what is kept of it, and a place for the measures: start from their _init");
	}
	ckv_status status = check(layer, keep, &ctx->error);
	status = status ? status : job_init(&j, ctx, layer, keep);
	status = status ? status : ckv_parallel(ctx, layer->k.n_heads, one_head, &j);
	if (status == CKV_OK) {
		add_up(&j, measures);
	}
	return status;
}

ckv_status ckv_measure(ckv_ctx *ctx, const ckv_layer *layer, const ckv_keep *keep, ckv_measures *measures) {
	return ckv_measure_stored(ctx, layer, keep, NULL, NULL, measures);
}
