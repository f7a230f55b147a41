#include "veloxquant_case.h"

#include <stdlib.h>
#include <string.h>

bool vq_case_array(const vq_case *c, const char *name, npy_type type, int rank, const int32_t *shape, npy *array,
                   note *why) {
	npy found = {.data = NULL};
	if (!casefile_array(c->file, name, &found, why)) {
		return false;
	}
	int lead = c->layered ? 1 : 0;
	bool fits = found.type == type && found.rank == rank + lead && (!lead || found.shape[0] == (size_t)c->feed.layers);
	for (int i = 0; i < rank && fits; i++) {
		fits = shape[i] == VQ_ANY || found.shape[i + lead] == (size_t)shape[i];
	}
	if (!fits) {
		npy_free(&found);
		return note_set(why, "%s is not %s of the shape that case.json tells", name, npy_type_name(type));
	}
	*array = found;
	return true;
}

/* The heads of all sequences, one after another. */
static ckv_view view_of(const npy *array, const vq_case *c, int32_t tokens, size_t *layer_bytes) {
	size_t row = (size_t)c->dim * sizeof(uint16_t), head = row * (size_t)tokens;
	*layer_bytes = head * (size_t)c->feed.heads;
	return (ckv_view){.data = array->data,
	                  .dtype = CKV_F16,
	                  .n_heads = c->feed.heads,
	                  .n_tokens = tokens,
	                  .head_dim = c->dim,
	                  .stride_head = head,
	                  .stride_token = row};
}

bool vq_case_inputs(vq_case *c, const json_t *shape, note *why) {
	vq_feed *feed = &c->feed;
	int32_t tokens;
	if (!field_int(shape, "layers", 1, &feed->layers, why) || !field_int(shape, "batch", 1, &c->batch, why) ||
	    !field_int(shape, "heads", 1, &c->heads, why) || !field_int(shape, "tokens", 0, &tokens, why) ||
	    !field_int(shape, "head_dim", 1, &c->dim, why)) {
		return false;
	}
	if (c->heads > 65536 / c->batch || (!c->layered && feed->layers != 1)) {
		return note_set(why, "%d sequences of %d heads, %d layers: not as the kind has it", c->batch, c->heads,
		                feed->layers);
	}
	feed->heads = c->batch * c->heads;
	feed->tokens = tokens;
	int32_t dims[] = {c->batch, c->heads, tokens, c->dim};
	if (!vq_case_array(c, "keys.npy", NPY_F2, 4, dims, &c->keys, why) ||
	    !vq_case_array(c, "values.npy", NPY_F2, 4, dims, &c->values, why)) {
		return false;
	}
	feed->keys = view_of(&c->keys, c, tokens, &feed->key_layer);
	feed->values = view_of(&c->values, c, tokens, &feed->value_layer);
	return true;
}

bool vq_case_steps(const json_t *steps, int32_t **list, int32_t *n, int64_t *sum, note *why) {
	size_t count = json_array_size(steps);
	*list = malloc(count * sizeof **list + 1);
	*n = (int32_t)count;
	*sum = 0;
	if (!*list) {
		return note_set(why, "no memory for %zu steps", count);
	}
	for (size_t i = 0; i < count; i++) {
		const json_t *step = json_array_get(steps, i);
		json_int_t tokens = json_integer_value(step);
		if (!json_is_integer(step) || tokens < 0 || tokens > INT32_MAX) {
			return note_set(why, "step %zu is not a number of tokens", i);
		}
		(*list)[i] = (int32_t)tokens;
		*sum += tokens;
	}
	return true;
}

static bool read_case(vq_case *c, note *why) {
	json_t *shape, *steps;
	int64_t sum;
	vq_feed *feed = &c->feed;
	if (!field_object(c->file->root, "shape", &shape, why) || !field_array(c->file->root, "steps", &steps, why) ||
	    !vq_case_inputs(c, shape, why) || !vq_case_steps(steps, &c->steps, &feed->n_steps, &sum, why)) {
		return false;
	}
	feed->steps = c->steps;
	return (sum == feed->tokens && feed->n_steps > 0) ||
	       note_set(why, "%d steps do not add up to %d tokens", feed->n_steps, feed->tokens);
}

bool vq_case_open(vq_case *c, const casefile *file, const vq_policy *policy, note *why) {
	*c = (vq_case){.file = file, .layered = strcmp(file->kind, "layers") == 0, .feed = {.policy = policy}};
	if (!read_case(c, why)) {
		vq_case_close(c);
		return false;
	}
	return true;
}

void vq_case_close(vq_case *c) {
	npy_free(&c->keys);
	npy_free(&c->values);
	free(c->steps);
	c->steps = NULL;
}
