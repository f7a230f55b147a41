#include "inspect_stored.h"

#include "cli.h"

#include <stdlib.h>
#include <string.h>

static bool make_room(stored_rows *s, const ckv_layer *layer, const ckv_keep *keep) {
	size_t n = keep->n_positions * (keep->n_lists == 1 ? (size_t)layer->k.n_heads : 1);
	s->keys = calloc(n + 1, (size_t)layer->k.head_dim * sizeof *s->keys);
	s->values = calloc(n + 1, (size_t)layer->v.head_dim * sizeof *s->values);
	if (!s->keys || !s->values) {
		fail("no memory for the rows of layer %d", layer->index);
	}
	return s->keys && s->values;
}

static ckv_status read_heads(ckv_cache *cache, const ckv_layer *layer, stored_rows *s) {
	size_t at = 0;
	ckv_status status = CKV_OK;
	for (int32_t h = 0; h < layer->k.n_heads && status == CKV_OK; h++) {
		status = ckv_cache_read(cache, 0, h, s->keys + at * (size_t)layer->k.head_dim,
		                        s->values + at * (size_t)layer->v.head_dim);
		at += (size_t)ckv_cache_rows(cache, 0, h);
	}
	return status;
}

/* Through a cache of this one layer. merged: s->values has what is to be stored. */
static bool pass_through(stored_rows *s, const ckv_layer *layer, const ckv_keep *keep, const ckv_codec *codec, bool merged) {
	const ckv_stream_shape shape = {layer->k.n_heads, layer->k.head_dim, layer->v.head_dim};
	ckv_cache *cache;
	ckv_error error;
	if (ckv_cache_create(&cache, codec, &shape, 1, NULL, &error)) {
		fail("%s", error.message);
		return false;
	}
	ckv_status status = ckv_cache_load(cache, 0, &layer->k, &layer->v, keep, merged ? s->values : NULL);
	status = status ? status : read_heads(cache, layer, s);
	if (status) {
		const char *message = ckv_cache_message(cache);
		fail("layer %d could not be stored: %s", layer->index, *message ? message : ckv_strerror(status));
	}
	ckv_cache_free(cache);
	return status == CKV_OK;
}

bool stored_make(stored_rows *s, ckv_ctx *ctx, const ckv_layer *layer, const ckv_keep *keep, const ckv_params *how) {
	bool merges = how->merge.preset && strcmp(how->merge.preset, "none") != 0;
	*s = (stored_rows){NULL, NULL};
	if (!make_room(s, layer, keep)) {
		return false;
	}
	if (merges && ckv_merge_kept(ctx, layer, keep, &how->merge, s->values)) {
		fail("%s", ckv_ctx_message(ctx));
		return false;
	}
	return pass_through(s, layer, keep, &how->codec, merges);
}

void stored_free(stored_rows *s) {
	free(s->keys);
	free(s->values);
	*s = (stored_rows){NULL, NULL};
}

void stored_name(const ckv_params *how, char *out, size_t size) {
	static const char whole[] = "full+";
	char text[POLICY_TEXT];
	ckv_params plain;
	out[0] = '\0';
	if (!how || !ckv_params_hosted(how) || ckv_policy_parse("full", &plain, NULL)) {
		return;
	}
	plain.codec = how->codec;
	plain.merge = how->merge;
	ckv_policy_format(&plain, text, sizeof text);
	snprintf(out, size, "%s", text + (strncmp(text, whole, sizeof whole - 1) == 0 ? sizeof whole - 1 : 0));
}
