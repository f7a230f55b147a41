#include "inputs.h"

#include <string.h>

/* What case.json says of an array must be what its file holds. */
static bool matches(const npy *array, const json_t *entry, note *why) {
	json_t *shape;
	const char *type;
	if (!field_array(entry, "shape", &shape, why) || !field_text(entry, "dtype", &type, why)) {
		return false;
	}
	bool same = strcmp(type, npy_type_name(array->type)) == 0 && json_array_size(shape) == (size_t)array->rank;
	for (int i = 0; i < array->rank && same; i++) {
		json_int_t length = json_integer_value(json_array_get(shape, (size_t)i));
		same = length > 0 && length <= INT32_MAX && (size_t)length == array->shape[i];
	}
	return same || note_set(why, "type or shape is not what case.json says");
}

bool inputs_have(const casefile *file, const char *name) {
	return json_object_get(json_object_get(file->root, "inputs"), name) != NULL;
}

bool inputs_array(const casefile *file, const char *name, npy *array, note *why) {
	json_t *all, *entry;
	const char *array_file;
	note found = {""};
	if (!field_object(file->root, "inputs", &all, why) || !field_object(all, name, &entry, why) ||
	    !field_text(entry, "file", &array_file, why) || !casefile_array(file, array_file, array, why)) {
		return false;
	}
	if (!matches(array, entry, &found)) {
		npy_free(array);
		return note_set(why, "%.200s: %.200s", array_file, found.text);
	}
	return true;
}

/* A [heads][tokens][dim] array and its view: float16 goes in as it is stored. */
static bool load(const casefile *file, const char *name, npy *array, ckv_view *view, note *why) {
	if (!inputs_array(file, name, array, why)) {
		return false;
	}
	if (array->rank != 3 || array->type == NPY_I4) {
		return note_set(why, "%.200s must be [heads][tokens][dim] of float32 or float16", name);
	}
	view->data = array->data;
	view->dtype = array->type == NPY_F2 ? CKV_F16 : CKV_F32;
	view->n_heads = (int32_t)array->shape[0];
	view->n_tokens = (int32_t)array->shape[1];
	view->head_dim = (int32_t)array->shape[2];
	view->stride_token = array->shape[2] * npy_item_size(array->type);
	view->stride_head = array->shape[1] * view->stride_token;
	return true;
}

/* All queries before RoPE, and how they turn; a case without them has neither. */
static bool load_prerope(inputs *in, const casefile *file, note *why) {
	if (!inputs_have(file, "queries_prerope")) {
		return true;
	}
	const ckv_view *k = &in->layer.k, *q = &in->all_queries;
	if (!load(file, "queries_prerope", &in->prerope, &in->all_queries, why) ||
	    !inputs_array(file, "inv_freq", &in->inv_freq, why)) {
		return false;
	}
	if (q->n_heads != in->layer.q.n_heads || q->n_tokens != k->n_tokens || q->head_dim != k->head_dim) {
		return note_set(why, "queries_prerope does not go with keys and queries");
	}
	if (in->inv_freq.type != NPY_F4 || in->inv_freq.rank != 1 || 2 * in->inv_freq.count > (size_t)k->head_dim) {
		return note_set(why, "inv_freq must be float32 [%d] or less", k->head_dim / 2);
	}
	in->layer.rope.n_dims = 2 * (int32_t)in->inv_freq.count;
	in->layer.rope.inv_freq = in->inv_freq.data;
	return true;
}

bool inputs_open(inputs *in, const casefile *file, note *why) {
	memset(in, 0, sizeof *in);
	ckv_layer_init(&in->layer);
	bool ok = load(file, "keys", &in->keys, &in->layer.k, why) && load(file, "values", &in->values, &in->layer.v, why) &&
	          load(file, "queries", &in->queries, &in->layer.q, why) && load_prerope(in, file, why);
	if (!ok) {
		inputs_close(in);
		return false;
	}
	in->n_heads = in->layer.k.n_heads;
	in->n_tokens = in->layer.k.n_tokens;
	return true;
}

void inputs_close(inputs *in) {
	npy_free(&in->keys);
	npy_free(&in->values);
	npy_free(&in->queries);
	npy_free(&in->prerope);
	npy_free(&in->inv_freq);
}
