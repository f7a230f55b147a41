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
