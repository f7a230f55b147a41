/* How a mean budget is shared among the layers of a stream: PyramidKV-adapted and SqueezeAttention-adapted. */
#include "stream/internal.h"

#include <math.h>

static double clamp_unit(double x) { return x < 0.0 ? 0.0 : x < 1.0 ? x : 1.0; }

int32_t ckv_stream_least(const ckv_stream_params *params) {
	ckv_stream_params own = *params;
	ckv_stream_params_own(&own);
	int32_t newest = ckv_stream_scorer_of(&own) == STREAM_SNAPKV ? 2 * own.window : own.grace;
	return own.sinks + (own.reference ? 1 : newest + own.chunk);
}

static int32_t rounded(double x, int32_t floor_value) {
	double n = ckv_round_even(x);
	return n > floor_value ? (n < CKV_MAX_TOKENS ? (int32_t)n : CKV_MAX_TOKENS) : floor_value;
}

enum { MOST_LAYERS = 4096 };

/* Raises what lies below the floor to it; returns how many layers are free to give, and what they have above it. */
static int32_t raise_low(double *v, int32_t n, double lowest, bool *fixed, double *slack) {
	int32_t n_free = 0;
	*slack = 0.0;
	for (int32_t i = 0; i < n; i++) {
		if (v[i] < lowest) {
			v[i] = lowest;
			fixed[i] = true;
		}
		n_free += !fixed[i];
		*slack += fixed[i] ? 0.0 : v[i] - lowest;
	}
	return n_free;
}

/* A straight line from mean + span to mean - span. What raising its low end to the floor costs is taken from the other
 * layers in proportion to what they have above it; in the order of the published code, whose roundings show. */
static void pyramid(double mean, int32_t floor_value, double beta, int32_t n, int32_t *budgets) {
	double v[MOST_LAYERS], lowest = floor_value, span = (mean - lowest) * (beta - 1.0), slack;
	bool fixed[MOST_LAYERS];
	for (int32_t i = 0; i < n; i++) {
		double high = mean + span, low = mean - span;
		v[i] = high + (low - high) * i / (n - 1);
		fixed[i] = false;
	}
	for (int32_t round = 0; round < n; round++) {
		int32_t n_free = raise_low(v, n, lowest, fixed, &slack);
		double sum = 0.0;
		for (int32_t i = 0; i < n; i++) {
			sum += v[i];
		}
		double excess = sum - mean * n;
		if (excess <= 1e-9 || n_free == 0 || slack <= 1e-9) {
			break;
		}
		for (int32_t i = 0; i < n; i++) {
			v[i] -= fixed[i] ? 0.0 : excess * (v[i] - lowest) / slack;
		}
	}
	for (int32_t i = 0; i < n; i++) {
		budgets[i] = rounded(v[i], floor_value);
	}
}

double ckv_squeeze_raw(float concentration) { return 1.0 - clamp_unit((double)concentration); }

int32_t ckv_squeeze_budget(const ckv_stream_params *params, int32_t budget, int32_t n, float concentration, double sum) {
	double weight = sum > 0.0 ? ckv_squeeze_raw(concentration) * n / sum : 1.0;
	return rounded(budget * ((1.0 - params->strength) + params->strength * weight), ckv_stream_least(params));
}

static void squeeze(const ckv_stream_params *params, int32_t budget, int32_t n, const float *concentration,
                    int32_t *budgets) {
	double sum = 0.0;
	for (int32_t i = 0; i < n; i++) {
		sum += ckv_squeeze_raw(concentration[i]);
	}
	for (int32_t i = 0; i < n; i++) {
		budgets[i] = ckv_squeeze_budget(params, budget, n, concentration[i], sum);
	}
}

static ckv_status check_concentration(const float *concentration, int32_t n, ckv_error *error) {
	if (!concentration) {
		return ckv_fail(error, CKV_ERR_ARG, "layers=squeeze needs the concentration of each layer's keys");
	}
	for (int32_t i = 0; i < n; i++) {
		if (!isfinite(concentration[i])) {
			return ckv_fail(error, CKV_ERR_NUMERIC, "the concentration of layer %d is not a finite number", i);
		}
	}
	return CKV_OK;
}

ckv_status ckv_stream_budgets(const ckv_stream_params *params, int32_t budget, int32_t n_layers, const float *concentration,
                              int32_t *budgets, ckv_error *error) {
	if (!params || !budgets || n_layers < 1 || n_layers > MOST_LAYERS || budget < 1 || budget > CKV_MAX_TOKENS) {
		return ckv_fail(error, CKV_ERR_ARG, "ckv_stream_budgets: %d rows for %d layers (1 to %d), or no place for them",
		                budget, n_layers, MOST_LAYERS);
	}
	ckv_status status = ckv_stream_params_check(params, error);
	stream_layers rule = status ? STREAM_UNIFORM : ckv_stream_layers_of(params);
	if (status == CKV_OK && rule == STREAM_SQUEEZE) {
		status = check_concentration(concentration, n_layers, error);
	}
	if (status) {
		return status;
	}
	int32_t floor_value = ckv_stream_least(params);
	if (rule == STREAM_UNIFORM || n_layers == 1) {
		for (int32_t i = 0; i < n_layers; i++) {
			budgets[i] = rule == STREAM_UNIFORM || budget > floor_value ? budget : floor_value;
		}
	} else if (rule == STREAM_PYRAMID) {
		pyramid(budget, floor_value, params->beta, n_layers, budgets);
	} else {
		squeeze(params, budget, n_layers, concentration, budgets);
	}
	return CKV_OK;
}

float ckv_stream_concentration(const ckv_kernels *kernels, const uint16_t *rows, int32_t n, int32_t dim, float *scratch) {
	size_t d = (size_t)dim;
	double own = 0.0, all = 0.0;
	float *row = scratch, *sum = scratch + d;
	if (n < 2) {
		return 0.0f;
	}
	for (size_t c = 0; c < d; c++) {
		sum[c] = 0.0f;
	}
	for (int32_t i = 0; i < n; i++) {
		kernels->f16_to_f32(rows + (size_t)i * d, row, d);
		float length = (float)ckv_norm(row, d) + 1e-8f;
		for (size_t c = 0; c < d; c++) {
			row[c] /= length;
			sum[c] += row[c];
			own += (double)row[c] * (double)row[c];
		}
	}
	for (size_t c = 0; c < d; c++) {
		all += (double)sum[c] * (double)sum[c];
	}
	return (float)((all - own) / ((double)n * (n - 1)));
}
