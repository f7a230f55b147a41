/* Merging of values ("+merge"): its keys and checks. */
#include "core/internal.h"
#include "core/parts.h"

#include <string.h>

const ckv_method_info ckv_merge_info = {"merge",
                                        "what is not kept is merged into the kept values with the most similar keys",
                                        "value merging of kvpress", "fraction,threshold"};

static const ckv_merge none = CKV_MERGE_ROW("none"), merge = CKV_MERGE_ROW("merge");

static const char *any_name(size_t i) { return i == 0 ? none.preset : i == 1 ? merge.preset : NULL; }
static const char *preset_name(size_t i) { return i == 0 ? merge.preset : NULL; }
static const char *key_name(size_t i) { return ckv_merge_param_info_at(i) ? ckv_merge_param_info_at(i)->key : NULL; }

static const ckv_key rows[] = {
    CKV_REAL_ROW(ckv_merge, fraction, 0, 1, "of the tokens that are not kept, those that are merged: the most similar"),
    CKV_REAL_ROW(ckv_merge, threshold, -1, 1, "cosine of the keys below which none is merged"),
};

enum { N_KEYS = sizeof rows / sizeof *rows };

const ckv_param_info *ckv_merge_param_info_at(size_t i) { return i < N_KEYS ? &rows[i].info : NULL; }

static bool uses(const void *params, const char *key) {
	const ckv_merge *m = params;
	return strcmp(m->preset, "none") != 0 && ckv_list_has(ckv_merge_info.uses, key);
}

static const void *preset_params(const char *name) { return strcmp(name, merge.preset) == 0 ? &merge : NULL; }

const ckv_keys ckv_merge_keys = {.what = "merging",
                                 .size = sizeof(ckv_merge),
                                 .preset = offsetof(ckv_merge, preset),
                                 .n = N_KEYS,
                                 .rows = rows,
                                 .key_name = key_name,
                                 .preset_name = preset_name,
                                 .preset_params = preset_params,
                                 .preset_default = "merge",
                                 .uses = uses};

static bool is_none(const ckv_merge *m) { return !m || m->size == 0 || !m->preset || strcmp(m->preset, "none") == 0; }

void ckv_merge_own(const ckv_merge *m, ckv_merge *own) {
	const char *name = is_none(m) ? NULL : ckv_name_find(any_name, m->preset);
	*own = is_none(m) ? none : *m;
	own->size = sizeof *own;
	own->preset = name ? name : own->preset;
}

ckv_status ckv_merge_check(const ckv_merge *m, ckv_error *error) {
	if (is_none(m)) {
		return CKV_OK;
	}
	if (m->size < sizeof *m) {
		return ckv_fail(error, CKV_ERR_ARG, "the merging's size field is too small: start from ckv_params_default");
	}
	if (!ckv_name_find(any_name, m->preset)) {
		return ckv_name_unknown(error, "merging", m->preset, any_name);
	}
	return ckv_keys_check_used(&ckv_merge_keys, m, error);
}

int ckv_merge_use(const ckv_merge *m, const char *key) {
	ckv_merge own;
	ckv_merge_own(m, &own);
	return ckv_keys_use(&ckv_merge_keys, &own, key);
}

size_t ckv_merge_value(const ckv_merge *m, const char *key, char *buffer, size_t capacity) {
	ckv_merge own;
	ckv_merge_own(m, &own);
	return ckv_keys_value(&ckv_merge_keys, &own, key, buffer, capacity);
}
