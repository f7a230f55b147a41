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

/* A [heads][tokens][dim] array and its view: float16 goes in as it is stored. */
static bool load(const casefile *file, json_t *all, const char *name, npy *array, ckv_view *view, note *why) {
	json_t *entry;
	const char *array_file;
	note found = {""};
	if (!field_object(all, name, &entry, why) || !field_text(entry, "file", &array_file, why) ||
	    !casefile_array(file, array_file, array, why)) {
		return false;
	}
	if (!matches(array, entry, &found)) {
		return note_set(why, "%.200s: %.200s", array_file, found.text);
	}
	if (array->rank != 3 || array->type == NPY_I4) {
		return note_set(why, "%.200s must be [heads][tokens][dim] of float32 or float16", array_file);
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

bool inputs_open(inputs *in, const casefile *file, note *why) {
	memset(in, 0, sizeof *in);
	ckv_layer_init(&in->layer);
	json_t *all;
	bool ok = field_object(file->root, "inputs", &all, why) && load(file, all, "keys", &in->keys, &in->layer.k, why) &&
	          load(file, all, "values", &in->values, &in->layer.v, why) &&
	          load(file, all, "queries", &in->queries, &in->layer.q, why);
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
}
