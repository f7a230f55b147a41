/* Lookup by name and index over registry.def. */
#include "core/registry.h"

#include <string.h>

#define CKV_SCORER(name)   extern const ckv_scorer ckv_scorer_##name;
#define CKV_SELECTOR(name) extern const ckv_selector ckv_selector_##name;
#include "core/registry.def"
#undef CKV_SCORER
#undef CKV_SELECTOR

enum {
#define CKV_SCORER(name) SCORER_##name,
#define CKV_SELECTOR(name)
#include "core/registry.def"
#undef CKV_SCORER
#undef CKV_SELECTOR
	N_SCORERS
};

enum {
#define CKV_SCORER(name)
#define CKV_SELECTOR(name) SELECTOR_##name,
#include "core/registry.def"
#undef CKV_SCORER
#undef CKV_SELECTOR
	N_SELECTORS
};

static const ckv_scorer *const scorers[N_SCORERS] = {
#define CKV_SCORER(name) &ckv_scorer_##name,
#define CKV_SELECTOR(name)
#include "core/registry.def"
#undef CKV_SCORER
#undef CKV_SELECTOR
};

static const ckv_selector *const selectors[N_SELECTORS] = {
#define CKV_SCORER(name)
#define CKV_SELECTOR(name) &ckv_selector_##name,
#include "core/registry.def"
#undef CKV_SCORER
#undef CKV_SELECTOR
};

const ckv_scorer *ckv_scorer_at(size_t i) { return i < N_SCORERS ? scorers[i] : NULL; }

const ckv_selector *ckv_selector_at(size_t i) { return i < N_SELECTORS ? selectors[i] : NULL; }

const ckv_method_info *ckv_preset_info(size_t i) { return ckv_preset_at(i) ? &ckv_preset_at(i)->info : NULL; }

const ckv_method_info *ckv_scorer_info(size_t i) { return ckv_scorer_at(i) ? &ckv_scorer_at(i)->info : NULL; }

const ckv_method_info *ckv_selector_info(size_t i) { return ckv_selector_at(i) ? &ckv_selector_at(i)->info : NULL; }

/* The index of a name, one past the last when it is none. */
static size_t find(const ckv_method_info *(*info)(size_t), const char *name) {
	size_t i = 0;
	while (info(i) && strcmp(info(i)->name, name) != 0) {
		i++;
	}
	return i;
}

const ckv_scorer *ckv_scorer_find(const char *name) { return ckv_scorer_at(find(ckv_scorer_info, name)); }

const ckv_selector *ckv_selector_find(const char *name) { return ckv_selector_at(find(ckv_selector_info, name)); }

const ckv_preset *ckv_preset_find(const char *name) { return ckv_preset_at(find(ckv_preset_info, name)); }

const ckv_method_info *ckv_chunker_find(const char *name) { return ckv_chunker_info(find(ckv_chunker_info, name)); }

const ckv_method_info *ckv_layer_rule_find(const char *name) { return ckv_layer_rule_info(find(ckv_layer_rule_info, name)); }

ckv_needs ckv_scorer_needs(const ckv_scorer *scorer, const ckv_params *params) {
	return scorer->needs ? scorer->needs(params) : (ckv_needs){0, 0};
}

int32_t ckv_scorer_min_tokens(const ckv_scorer *scorer, const ckv_params *params) {
	return scorer->min_tokens ? scorer->min_tokens(params) : 1;
}
