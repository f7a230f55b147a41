/* Lookup by name and index over registry.def. */
#include "core/registry.h"

#include <string.h>

#define CKV_SCORER(name)   extern const ckv_scorer ckv_scorer_##name;
#define CKV_SELECTOR(name) extern const ckv_selector ckv_selector_##name;
#include "core/registry.def"
#undef CKV_SCORER
#undef CKV_SELECTOR

static const ckv_scorer *const scorers[] = {
#define CKV_SCORER(name) &ckv_scorer_##name,
#define CKV_SELECTOR(name)
#include "core/registry.def"
#undef CKV_SCORER
#undef CKV_SELECTOR
};

static const ckv_selector *const selectors[] = {
#define CKV_SCORER(name)
#define CKV_SELECTOR(name) &ckv_selector_##name,
#include "core/registry.def"
#undef CKV_SCORER
#undef CKV_SELECTOR
};

const ckv_scorer *ckv_scorer_at(size_t i) { return i < sizeof scorers / sizeof *scorers ? scorers[i] : NULL; }

const ckv_selector *ckv_selector_at(size_t i) { return i < sizeof selectors / sizeof *selectors ? selectors[i] : NULL; }

const ckv_scorer *ckv_scorer_find(const char *name) {
	for (size_t i = 0; ckv_scorer_at(i); i++) {
		if (strcmp(ckv_scorer_at(i)->info.name, name) == 0) {
			return ckv_scorer_at(i);
		}
	}
	return NULL;
}

const ckv_selector *ckv_selector_find(const char *name) {
	for (size_t i = 0; ckv_selector_at(i); i++) {
		if (strcmp(ckv_selector_at(i)->info.name, name) == 0) {
			return ckv_selector_at(i);
		}
	}
	return NULL;
}

const ckv_preset *ckv_preset_find(const char *name) {
	for (size_t i = 0; ckv_preset_at(i); i++) {
		if (strcmp(ckv_preset_at(i)->info.name, name) == 0) {
			return ckv_preset_at(i);
		}
	}
	return NULL;
}

const ckv_method_info *ckv_preset_info(size_t i) { return ckv_preset_at(i) ? &ckv_preset_at(i)->info : NULL; }

const ckv_method_info *ckv_scorer_info(size_t i) { return ckv_scorer_at(i) ? &ckv_scorer_at(i)->info : NULL; }

const ckv_method_info *ckv_selector_info(size_t i) { return ckv_selector_at(i) ? &ckv_selector_at(i)->info : NULL; }
