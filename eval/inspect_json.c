/* The figures of every layer, for programs. */
#include "inspect.h"
#include "inspect_stored.h"

#include <jansson.h>

#include <math.h>

static json_t *real(double value) { return isfinite(value) ? json_real(value) : json_null(); }

static void set(json_t *object, const char *key, json_t *value) { json_object_set_new(object, key, value); }

static void set_figures(json_t *o, const inspection *in, const inspected *p) {
	json_t *means = json_object(), *layers = json_object();
	for (int f = 0; f < N_FIGURES; f++) {
		json_t *values = json_array();
		for (int32_t i = 0; i < in->n_layers; i++) {
			json_array_append_new(values, real(p->figures[i][f]));
		}
		set(means, figure_at((figure)f)->key, real(inspect_mean(in, p, (figure)f)));
		set(layers, figure_at((figure)f)->key, values);
	}
	set(o, "means", means);
	set(o, "layers", layers);
}

static json_t *kept_array(const inspection *in, const inspected *p) {
	json_t *array = json_array();
	for (int32_t i = 0; i < in->n_layers; i++) {
		json_array_append_new(array, json_integer(p->kept[i].n_keep));
	}
	return array;
}

static json_t *jaccard_rows(const inspection *in, const inspected *p) {
	json_t *rows = json_array();
	for (int32_t i = 0; i < in->n_layers; i++) {
		json_t *row = json_array();
		for (int32_t j = 0; j < in->n_layers; j++) {
			json_array_append_new(row, real(p->jaccard[(size_t)i * (size_t)in->n_layers + (size_t)j]));
		}
		json_array_append_new(rows, row);
	}
	return rows;
}

static json_t *shares(const inspection *in, const inspected *p) {
	json_t *array = json_array();
	for (int32_t i = 0; i < in->n_tokens; i++) {
		json_array_append_new(array, json_real((double)p->share[i]));
	}
	return array;
}

static json_t *policy_object(const inspection *in, const inspected *p) {
	char codec[POLICY_TEXT];
	json_t *o = json_object();
	stored_name(p->params, codec, sizeof codec);
	set(o, "policy", json_string(p->policy));
	set(o, "codec", *codec ? json_string(codec) : json_null());
	set(o, "reason", json_string(ckv_reason_text(p->reason)));
	set(o, "no_slope", json_boolean(p->no_slope));
	set(o, "kept_share", real(inspect_share(in, p)));
	set(o, "n_cells", json_integer(p->n_cells));
	set(o, "cache_bytes", json_integer((json_int_t)p->bytes));
	set(o, "cache_bytes_full", json_integer((json_int_t)p->bytes_full));
	set(o, "n_kept", kept_array(in, p));
	set_figures(o, in, p);
	set(o, "jaccard_of_layers", jaccard_rows(in, p));
	set(o, "token_share", shares(in, p));
	return o;
}

bool inspect_json(const inspection *in, FILE *out) {
	json_t *o = json_object(), *policies = json_array(), *layers = json_array();
	for (int32_t i = 0; i < in->n_layers; i++) {
		json_array_append_new(layers, json_integer(in->layers[i]));
	}
	for (int32_t i = 0; i < in->n_policies; i++) {
		json_array_append_new(policies, policy_object(in, &in->policies[i]));
	}
	set(o, "model", json_string(in->model));
	set(o, "keep", json_string(in->options->keep));
	set(o, "cache_type", json_string(in->cache));
	set(o, "question_in_window", json_boolean(!in->options->agnostic && in->options->n_questions > 0));
	set(o, "n_prompt", json_integer(in->n_tokens));
	set(o, "n_window_layers", json_integer(in->n_window_layers));
	set(o, "layer_numbers", layers);
	set(o, "prefill_s", json_real(in->prefill_s));
	set(o, "policies", policies);
	bool good =
	    json_dumpf(o, out, JSON_COMPACT | JSON_REAL_PRECISION(6)) == 0 && fputc('\n', out) != EOF && fflush(out) == 0;
	json_decref(o);
	return good || !fail("the JSON could not be written to standard output");
}
