#include "plan.h"

#include <ggml.h>

#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------------------ lists */

/* The next item of a list; false at its end. */
static bool next_item(const char **at, char *out, size_t size) {
	if (!*at || **at == '\0') {
		return false;
	}
	size_t n = strcspn(*at, ",");
	snprintf(out, size, "%.*s", (int)(n < size ? n : size - 1), *at);
	*at += n + ((*at)[n] == ',');
	return true;
}

bool plan_numbers(const char *what, const char *list, double low, double high, double *out, int32_t most, int32_t *n) {
	char item[64];
	*n = 0;
	while (next_item(&list, item, sizeof item)) {
		char *end;
		double value = strtod(item, &end);
		if (end == item || *end || !(value >= low && value <= high)) {
			fail("%s '%s' is not a number from %g to %g", what, item, low, high);
			return false;
		}
		if (*n == most) {
			fail("%s has more than %d numbers", what, most);
			return false;
		}
		out[(*n)++] = value;
	}
	return true;
}

/* --------------------------------------------------------------------------------------------------------- policies */

static bool add_params(plan *p, const ckv_params *params) {
	char text[sizeof p->policies[0].text];
	ckv_policy_format(params, text, sizeof text);
	for (int i = 0; i < p->n_policies; i++) {
		if (strcmp(p->policies[i].text, text) == 0) {
			return true; /* named twice */
		}
	}
	if (p->n_policies == MAX_PLANNED) {
		fail("more than %d policies", MAX_PLANNED - 1);
		return false;
	}
	planned_policy *to = &p->policies[p->n_policies++];
	snprintf(to->text, sizeof to->text, "%s", text);
	to->params = *params;
	return true;
}

static bool parse(const char *text, ckv_params *params) {
	ckv_error error;
	ckv_status status = ckv_policy_parse(text, params, &error);
	if (status) {
		fail("%s", error.message);
	}
	return status == CKV_OK;
}

static bool add_policy(plan *p, const char *text) {
	ckv_params params;
	return parse(text, &params) && add_params(p, &params);
}

/* All but those that this build can't do. */
static bool add_presets(plan *p) {
	for (size_t i = 0; ckv_preset_info(i); i++) {
		ckv_params params;
		if (!parse(ckv_preset_info(i)->name, &params) || (ckv_codec_available(&params.codec) && !add_params(p, &params))) {
			return false;
		}
	}
	return true;
}

/* One setting and the values it takes; or a list of whole policies. */
typedef struct ablation {
	const char *name, *prefix, *values;
} ablation;

static const ablation ablations[] = {
    {"chunk", "chunkkv:chunk=", "3,5,8,10,15,20,30"}, {"window", "chunkkv:window=", "4,8,16,32,64"},
    {"reuse", "chunkkv:reuse=", "1,2,3,5,10"},        {"chunker", "chunkkv:chunker=", "fixed,line,sentence,paragraph"},
    {"hybrid", "", "chunkkv,hybrid,snapkv"},
};

const char *plan_ablation(size_t i) { return i < sizeof ablations / sizeof *ablations ? ablations[i].name : NULL; }

static bool add_ablation(plan *p, const char *name) {
	for (size_t i = 0; i < sizeof ablations / sizeof *ablations; i++) {
		const char *values = ablations[i].values;
		char value[32], text[128];
		if (strcmp(ablations[i].name, name) != 0) {
			continue;
		}
		while (next_item(&values, value, sizeof value)) {
			snprintf(text, sizeof text, "%s%s", ablations[i].prefix, value);
			if (!add_policy(p, text)) {
				return false;
			}
		}
		return true;
	}
	fail("--ablate '%s' is not one of chunk, window, reuse, chunker, hybrid", name);
	return false;
}

static bool add_policies(plan *p, const run_options *o) {
	bool good = add_policy(p, "full");
	for (int32_t i = 0; i < o->n_policies && good; i++) {
		good = strcmp(o->policies[i], "all") == 0 ? add_presets(p) : add_policy(p, o->policies[i]);
	}
	good = good && (!o->ablate || add_ablation(p, o->ablate));
	if (good && o->n_policies == 0 && !o->ablate) {
		good = add_policy(p, "chunkkv") && add_policy(p, "snapkv");
	}
	return good;
}

/* ------------------------------------------------------------------------------------------------ budgets and types */

static bool add_keeps(plan *p, const char *list) {
	char item[sizeof p->keeps[0].text];
	while (next_item(&list, item, sizeof item)) {
		ckv_error error;
		if (p->n_keeps == MAX_KEEPS) {
			fail("--keep has more than %d budgets", MAX_KEEPS);
			return false;
		}
		planned_keep *to = &p->keeps[p->n_keeps++];
		memcpy(to->text, item, sizeof item);
		if (ckv_budget_parse(item, &to->budget, &error)) {
			fail("%s", error.message);
			return false;
		}
	}
	if (p->n_keeps == 0) {
		fail("--keep names no budget");
	}
	return p->n_keeps > 0;
}

static bool add_types(plan *p, const char *list) {
	char item[32];
	while (next_item(&list, item, sizeof item)) {
		enum ggml_type type = options_cache_type(item);
		bool known = false;
		for (int i = 0; i < p->n_types; i++) {
			known = known || p->types[i] == type;
		}
		if (type == GGML_TYPE_COUNT || known || p->n_types == MAX_TYPES) {
			if (known) {
				fail("--cache-type names %s twice", item);
			}
			return false;
		}
		p->types[p->n_types++] = type;
	}
	if (p->n_types == 0) {
		fail("--cache-type names no type");
	}
	return p->n_types > 0;
}

/* A cache of our own takes f16 rows; policies that need one are left out of other types. */
static bool check_hosted(const plan *p, const run_options *o) {
	bool any = false;
	for (int i = 0; i < p->n_types; i++) {
		if (o->cache_kind == CKV_LLAMA_CACHE_HOSTED && p->types[i] != GGML_TYPE_F16) {
			fail("--cache hosted takes f16 rows and packs them by the policy (+kivi4): leave --cache-type out");
			return false;
		}
		any = any || p->types[i] == GGML_TYPE_F16;
	}
	for (int i = 0; i < p->n_policies && !any; i++) {
		if (ckv_params_hosted(&p->policies[i].params)) {
			fail("policy '%s' takes f16 rows: name f16 among --cache-type", p->policies[i].text);
			return false;
		}
	}
	return true;
}

bool plan_make(plan *p, const run_options *o, const char *default_keeps) {
	memset(p, 0, sizeof *p);
	return add_policies(p, o) && add_keeps(p, o->keep ? o->keep : default_keeps) && add_types(p, o->cache_type) &&
	       check_hosted(p, o);
}

bool plan_open(plan *p, const run_options *o) {
	ckv_ctx_options core;
	ckv_ctx_options_default(&core);
	core.n_threads = o->n_threads;
	for (int i = 0; i < p->n_policies; i++) {
		ckv_error error;
		if (ckv_llama_create_params(&p->policies[i].ckv, &p->policies[i].params, &core, &error)) {
			fail("%s: %s", p->policies[i].text, error.message);
			return false;
		}
		/* What all are compared to is llama.cpp's own cache. */
		ckv_llama_cache kind = i == 0 ? CKV_LLAMA_CACHE_OWN : o->cache_kind;
		if (ckv_llama_set_cache(p->policies[i].ckv, kind)) {
			fail("%s: %s", p->policies[i].text, ckv_llama_message(p->policies[i].ckv));
			return false;
		}
	}
	return true;
}

bool plan_has(const plan *p, int policy, int type) {
	return p->types[type] == GGML_TYPE_F16 || !ckv_params_hosted(&p->policies[policy].params);
}

void plan_close(plan *p) {
	for (int i = 0; i < p->n_policies; i++) {
		ckv_llama_free(p->policies[i].ckv);
		p->policies[i].ckv = NULL;
	}
}

bool plan_attach(const plan *p, struct llama_context_params *params) {
	for (int i = 0; i < p->n_policies; i++) {
		if (ckv_llama_attach(p->policies[i].ckv, params)) {
			fail("llama.cpp can't be observed: %s", ckv_llama_message(p->policies[i].ckv));
			return false;
		}
	}
	return true;
}

bool plan_observe(plan *p, struct llama_context *ctx) {
	p->observed = ctx;
	for (int i = 1; i < p->n_policies; i++) {
		if (ckv_llama_observe_begin(p->policies[i].ckv, ctx, 0)) {
			fail("%s: %s", p->policies[i].text, ckv_llama_message(p->policies[i].ckv));
			return false;
		}
	}
	return true;
}

void plan_observe_end(const plan *p) {
	for (int i = 1; i < p->n_policies; i++) {
		ckv_llama_observe_end(p->policies[i].ckv);
	}
}

bool plan_can_rewind(const plan *p) {
	for (int i = 0; i < p->n_policies; i++) {
		ckv_needs needs;
		if (ckv_params_needs(&p->policies[i].params, &needs) || (needs.flags & (CKV_NEED_MASS | CKV_NEED_MOMENTS))) {
			return false;
		}
	}
	return true;
}
