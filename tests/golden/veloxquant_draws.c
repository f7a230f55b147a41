/* Entries of uniform_draws and merge_gate: the chance that decides about merging. */
#include "stream/internal.h"
#include "veloxquant_tables.h"

static bool read_draw(const json_t *entry, double *drawn, note *why) {
	int32_t seed, draw;
	if (!field_int(entry, "seed", 0, &seed, why) || !field_int(entry, "draw_id", 0, &draw, why)) {
		return false;
	}
	*drawn = (double)ckv_merge_draw(seed, draw);
	return true;
}

bool vq_check_draw(const vq_tables *in, const json_t *entry, note *why) {
	(void)in;
	double expected, found;
	if (!field_number(entry, "out", &expected, why) || !read_draw(entry, &found, why)) {
		return false;
	}
	return (found >= expected && found <= expected) || note_set(why, "%.17g expected, %.17g found", expected, found);
}

bool vq_check_gate(const vq_tables *in, const json_t *entry, note *why) {
	(void)in;
	double probability, drawn;
	const json_t *out = json_object_get(entry, "out");
	if (!field_number(entry, "probability", &probability, why) || !read_draw(entry, &drawn, why)) {
		return false;
	}
	return (json_is_boolean(out) && json_is_true(out) == (drawn < probability)) ||
	       note_set(why, "%s expected, a draw of %.9g found", json_is_true(out) ? "merging" : "dropping", drawn);
}
