/* Entries of pyramid_budgets, squeeze_budgets, and what squeeze measures. */
#include "stream/internal.h"
#include "veloxquant_policy.h"
#include "veloxquant_tables.h"

#include <math.h>
#include <stdlib.h>

static bool budgets_agree(const json_t *entry, const vq_policy *policy, int32_t n_layers, const float *concentration,
                          note *why) {
	int32_t *found = malloc(((size_t)n_layers + 1) * sizeof *found);
	ckv_error error = {CKV_OK, ""};
	if (!found) {
		return note_set(why, "no memory for %d budgets", n_layers);
	}
	ckv_status status = ckv_stream_budgets(&policy->params, policy->budget, n_layers, concentration, found, &error);
	bool ok;
	if (n_layers == 0 || policy->params.beta < 1.0) { /* they give none, or do not look at it for a single layer */
		ok = status == CKV_ERR_ARG || status == CKV_ERR_POLICY ||
		     note_set(why, "an error expected of %d layers and beta %g, '%s' found", n_layers, policy->params.beta,
		              ckv_strerror(status));
	} else {
		ok = status == CKV_OK || note_set(why, "%s: %s", ckv_strerror(status), error.message);
		ok = ok && vq_list_agrees(entry, "out", found, (size_t)n_layers, why);
	}
	free(found);
	return ok;
}

bool vq_check_pyramid(const vq_tables *in, const json_t *entry, note *why) {
	(void)in;
	vq_policy policy;
	int32_t n_layers;
	return vq_policy_of(&policy, "pyramidkv", why) && field_int(entry, "n_layers", 0, &n_layers, why) &&
	       field_int(entry, "avg_budget", 1, &policy.budget, why) &&
	       field_int(entry, "n_sink", 0, &policy.params.sinks, why) &&
	       field_number(entry, "beta", &policy.params.beta, why) &&
	       (n_layers <= VQ_MAX_LIST || note_set(why, "%d layers are too many", n_layers)) &&
	       budgets_agree(entry, &policy, n_layers, NULL, why);
}

bool vq_check_squeeze(const vq_tables *in, const json_t *entry, note *why) {
	(void)in;
	vq_policy policy;
	json_t *list;
	if (!vq_policy_of(&policy, "squeeze", why) || !field_array(entry, "concentrations", &list, why) ||
	    !field_int(entry, "avg_budget", 1, &policy.budget, why) ||
	    !field_int(entry, "n_sink", 0, &policy.params.sinks, why) ||
	    !field_number(entry, "strength", &policy.params.strength, why)) {
		return false;
	}
	size_t n = json_array_size(list);
	float *concentration = malloc(n * sizeof *concentration + 1);
	bool ok = (concentration && n <= VQ_MAX_LIST) || note_set(why, "no memory, or too many layers");
	for (size_t i = 0; i < n && ok; i++) {
		ok = json_is_number(json_array_get(list, i)) || note_set(why, "a concentration is not a number");
		concentration[i] = (float)json_number_value(json_array_get(list, i));
	}
	ok = ok && budgets_agree(entry, &policy, (int32_t)n, concentration, why);
	free(concentration);
	return ok;
}

bool vq_check_concentration(const vq_tables *in, const json_t *entry, note *why) {
	int32_t row, n;
	double expected;
	const size_t *shape = in->keys.shape;
	if (!field_int(entry, "row", 0, &row, why) || !field_int(entry, "n", 0, &n, why) ||
	    !field_number(entry, "out", &expected, why)) {
		return false;
	}
	if ((size_t)row >= shape[0] || (size_t)n > shape[1]) {
		return note_set(why, "row %d of concentration_keys does not have %d keys", row, n);
	}
	float *scratch = malloc(2 * shape[2] * sizeof *scratch + 1);
	if (!scratch) {
		return note_set(why, "no memory for a row");
	}
	const uint16_t *keys = (const uint16_t *)in->keys.data + (size_t)row * shape[1] * shape[2];
	double found = (double)ckv_stream_concentration(ckv_kernels_get(0), keys, n, (int32_t)shape[2], scratch);
	free(scratch);
	return fabs(expected - found) <= 2e-6 || note_set(why, "%.9g expected, %.9g found", expected, found);
}
