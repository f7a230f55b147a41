/* Budgets: how many tokens to keep. */
#include "core/internal.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Digits with at most one point among them, whatever the locale; returns what follows, or NULL when there is no such number.
 */
const char *ckv_parse_decimal(const char *text, double *value, bool *whole) {
	double scale = 1.0;
	*value = 0.0;
	*whole = true;
	if (!isdigit((unsigned char)*text)) {
		return NULL;
	}
	for (; isdigit((unsigned char)*text) || (*text == '.' && *whole); text++) {
		if (*text == '.') {
			*whole = false;
			continue;
		}
		*value = *value * 10.0 + (*text - '0');
		scale *= *whole ? 1.0 : 10.0;
	}
	*value /= scale;
	return text;
}

/* The shortest of up to fifteen digits after the point that reads back to the same number, whatever the locale. */
void ckv_format_decimal(double value, char *buffer, size_t capacity) {
	for (int digits = 0; digits <= 15; digits++) {
		snprintf(buffer, capacity, "%.*f", digits, value);
		char *point = strchr(buffer, ',');
		if (point) {
			*point = '.';
		}
		double back;
		bool whole;
		if (ckv_parse_decimal(buffer, &back, &whole) && back >= value && back <= value) {
			return;
		}
	}
}

ckv_status ckv_budget_parse(const char *text, ckv_budget *budget, ckv_error *error) {
	if (!text || !budget) {
		return ckv_fail(error, CKV_ERR_ARG, "ckv_budget_parse needs a text and a place for the budget");
	}
	double value;
	bool whole;
	const char *end = ckv_parse_decimal(text, &value, &whole);
	bool percent = end && strcmp(end, "%") == 0;
	if (!end || (*end != '\0' && !percent)) {
		return ckv_fail(error, CKV_ERR_POLICY, "'%.40s' is not a budget: give a share like 10%% or a token count like 512",
		                text);
	}
	if (percent && !(value > 0.0 && value <= 100.0)) {
		return ckv_fail(error, CKV_ERR_POLICY, "a share of %.40s cannot be kept: give more than 0%% and at most 100%%",
		                text);
	}
	if (!percent && (!whole || value < 1.0 || value > INT32_MAX)) {
		return ckv_fail(error, CKV_ERR_POLICY,
		                "'%.40s' is not a token count (1 or more, whole); for a share write a percent sign: 10%%", text);
	}
	*budget = percent ? ckv_keep_percent(value) : ckv_keep_tokens((int32_t)value);
	ckv_fail(error, CKV_OK, "%s", "");
	return CKV_OK;
}

ckv_status ckv_budget_resolve(ckv_budget budget, int32_t n_tokens, int32_t *n_keep) {
	double value = budget.value;
	if (!n_keep || n_tokens < 1 || !isfinite(value)) {
		return CKV_ERR_ARG;
	}
	double n = 0;
	switch (budget.kind) {
	case CKV_BUDGET_TOKENS:
		if (!(value >= 1.0 && value <= INT32_MAX)) {
			return CKV_ERR_ARG;
		}
		n = value;
		break;
	case CKV_BUDGET_PERCENT:
		if (!(value > 0.0 && value <= 100.0)) {
			return CKV_ERR_ARG;
		}
		n = floor((double)n_tokens * value / 100.0 + 0.5);
		break;
	case CKV_BUDGET_REMOVE:
		if (!(value >= 0.0 && value < 1.0)) {
			return CKV_ERR_ARG;
		}
		/* As Python's int(T * (1 - r)): floor(1000 * (1 - 0.9)) is 99. */
		n = floor((double)n_tokens * (1.0 - value));
		break;
	default: return CKV_ERR_ARG;
	}
	*n_keep = n < 1.0 ? 1 : (int32_t)n;
	return CKV_OK;
}

ckv_status ckv_budget_fail(ckv_budget budget, ckv_error *error) {
	switch (budget.kind) {
	case CKV_BUDGET_TOKENS:
		return ckv_fail(error, CKV_ERR_ARG, "keep=%.10g tokens is out of range: 1 to %d", budget.value, INT32_MAX);
	case CKV_BUDGET_PERCENT:
		return ckv_fail(error, CKV_ERR_ARG, "keep=%.10g%% is out of range: above 0 to 100", budget.value);
	case CKV_BUDGET_REMOVE:
		return ckv_fail(error, CKV_ERR_ARG, "ratio=%.10g (removed) is out of range: 0 to below 1", budget.value);
	}
	return ckv_fail(error, CKV_ERR_ARG, "budget kind %d is none", (int)budget.kind);
}
