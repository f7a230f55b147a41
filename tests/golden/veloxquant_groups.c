/* Entries of palu_head_groups. */
#include "quant/quant.h"
#include "veloxquant_tables.h"

bool vq_check_groups(const vq_tables *in, const json_t *entry, note *why) {
	(void)in;
	ckv_low_rank fit = {0};
	json_t *groups;
	if (!field_int(entry, "n_heads", 1, &fit.n_heads, why) || !field_int(entry, "n_groups", 0, &fit.n_groups, why) ||
	    !field_array(entry, "out", &groups, why)) {
		return false;
	}
	/* The rule of a fit, which a build without LAPACKE cannot make. */
	fit.n_groups = fit.n_groups < 1 ? 1 : fit.n_groups > fit.n_heads ? fit.n_heads : fit.n_groups;
	bool same = json_array_size(groups) == (size_t)fit.n_groups ||
	            note_set(why, "%zu groups expected, %d found", json_array_size(groups), fit.n_groups);
	for (int32_t g = 0, first = 0, end = 0; g < fit.n_groups && same; g++, first = end) {
		const json_t *range = json_array_get(groups, (size_t)g);
		while (end < fit.n_heads && ckv_low_rank_group(&fit, end) == g) {
			end++;
		}
		same =
		    (first == json_integer_value(json_array_get(range, 0)) && end == json_integer_value(json_array_get(range, 1))) ||
		    note_set(why, "group %d: heads %d to below %d found, others expected", g, first, end);
	}
	return same;
}
