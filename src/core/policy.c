/* Whole policy texts, `policy + merge + codec`: their parts, and one way to write each. */
#include "core/internal.h"
#include "core/parts.h"

#include <string.h>

static const char *part_name(size_t i) { return ckv_codec_info(i) ? ckv_codec_info(i)->name : NULL; }

/* ---------------------------------------------------------------- reading */

enum { NAME = 64 }; /* longer than any there is */

/* The name that a part begins with. */
static void name_of(const char *text, char name[NAME]) {
	size_t n = strcspn(text, ":");
	n = n < NAME ? n : NAME - 1;
	memcpy(name, text, n);
	name[n] = '\0';
}

static ckv_status unknown_part(const char *name, ckv_error *error) {
	if (ckv_preset_find(name)) {
		return ckv_fail(error, CKV_ERR_POLICY, "'%s' is a policy and goes first: %s+%s", name, name, part_name(0));
	}
	return ckv_name_unknown(error, "codec", name, part_name);
}

/* What stands behind a "+", or a codec in front of the first. */
static ckv_status parse_part(const char *text, ckv_params *made, ckv_error *error) {
	char name[NAME];
	uint32_t given;
	if (*text == '\0') {
		return ckv_fail(error, CKV_ERR_POLICY, "nothing stands behind a +: a codec or merge does, as in chunkkv+kivi4");
	}
	name_of(text, name);
	if (!ckv_name_find(part_name, name)) {
		return unknown_part(name, error);
	}
	bool merging = strcmp(name, ckv_merge_info.name) == 0;
	const ckv_keys *keys = merging ? &ckv_merge_keys : &ckv_codec_keys;
	const char *before = merging ? made->merge.preset : made->codec.preset;
	if (strcmp(before, "none") != 0) {
		return ckv_fail(error, CKV_ERR_POLICY, "'%s' comes on top of '%s': a policy has one %s", name, before, keys->what);
	}
	void *part = merging ? (void *)&made->merge : (void *)&made->codec;
	ckv_status status = ckv_keys_parse(keys, text, part, &given, error);
	return status || merging ? status : ckv_codec_check_given(&made->codec, given, error);
}

/* A codec alone is that of the whole cache. */
static ckv_status parse_first(const char *text, ckv_params *made, ckv_error *error) {
	char name[NAME];
	uint32_t given;
	name_of(text, name);
	if (strcmp(name, ckv_merge_info.name) == 0) {
		return ckv_fail(error, CKV_ERR_POLICY, "'merge' goes behind a policy: chunkkv+merge");
	}
	if (ckv_name_find(part_name, name)) {
		*made = ckv_preset_find("full")->params;
		return parse_part(text, made, error);
	}
	ckv_status status = ckv_keys_parse(&ckv_params_keys, text, made, &given, error);
	status = status ? status : ckv_params_check(made, error);
	return status ? status : ckv_params_check_given(made, given, error);
}

/* Whether all there is to say is the name of a preset that is a codec. */
static bool is_codec_alone(const ckv_params *own) {
	char first[NAME], codec[NAME]; /* of what is longer the beginning, which is no preset's name */
	if (strcmp(own->codec.preset, "none") == 0 || strcmp(own->merge.preset, "none") != 0) {
		return false;
	}
	ckv_keys_format(&ckv_params_keys, own, first, sizeof first);
	ckv_keys_format(&ckv_codec_keys, &own->codec, codec, sizeof codec);
	return strcmp(first, "full") == 0 && ckv_preset_find(codec);
}

static ckv_status parse(char *text, ckv_params *made, ckv_error *error) {
	char *part = ckv_cut(text, '+');
	if (part && *text == '\0') {
		return ckv_fail(error, CKV_ERR_POLICY, "nothing stands before the +: a policy does, as in chunkkv+kivi4");
	}
	ckv_status status = parse_first(text, made, error);
	while (part && !status) {
		char *next = ckv_cut(part, '+');
		status = parse_part(part, made, error);
		part = next;
	}
	status = status ? status : ckv_params_check(made, error);
	if (status == CKV_OK && is_codec_alone(made)) {
		made->preset = made->codec.preset;
	}
	return status;
}

ckv_status ckv_policy_parse(const char *text, ckv_params *params, ckv_error *error) {
	ckv_params made;
	char copy[CKV_MOST_TEXT];
	if (!text || !params) {
		return ckv_fail(error, CKV_ERR_ARG, "ckv_policy_parse needs a text and a place for the parameters");
	}
	if (strlen(text) >= sizeof copy) {
		return ckv_fail(error, CKV_ERR_POLICY, "the policy text is longer than %d characters", CKV_MOST_TEXT - 1);
	}
	memcpy(copy, text, strlen(text) + 1);
	ckv_params_default(&made);
	ckv_status status = parse(copy, &made, error);
	if (status == CKV_OK) {
		*params = made;
		ckv_fail(error, CKV_OK, "%s", "");
	}
	return status;
}

/* ---------------------------------------------------------------- writing */

void ckv_params_take(const ckv_params *params, ckv_params *own) {
	memset(own, 0, sizeof *own);
	memcpy(own, params, params->size >= sizeof *own ? sizeof *own : CKV_PARAMS_FIRST_SIZE);
	own->size = sizeof *own;
}

/* With names of ours for merging and codec, also where there are none. */
static void take_named(const ckv_params *params, ckv_params *own) {
	ckv_params_take(params, own);
	ckv_merge_own(&own->merge, &own->merge);
	ckv_codec_own(&own->codec, &own->codec);
}

/* Adds a part to a text of `length`; returns the length with it. */
static size_t add_part(const ckv_keys *keys, const void *part, char *buffer, size_t capacity, size_t length) {
	if (length + 1 < capacity) {
		buffer[length] = '+';
	}
	length += 1;
	bool room = length < capacity;
	return length + ckv_keys_format(keys, part, room ? buffer + length : NULL, room ? capacity - length : 0);
}

size_t ckv_policy_format(const ckv_params *params, char *buffer, size_t capacity) {
	ckv_params own;
	if (!ckv_keys_named(&ckv_params_keys, params)) {
		return ckv_keys_format(&ckv_params_keys, NULL, buffer, capacity);
	}
	take_named(params, &own);
	/* A preset that is a codec is the whole cache with it. */
	own.preset = ckv_codec_is(own.preset) ? "full" : own.preset;
	if (is_codec_alone(&own)) {
		return ckv_keys_format(&ckv_codec_keys, &own.codec, buffer, capacity);
	}
	size_t length = ckv_keys_format(&ckv_params_keys, &own, buffer, capacity);
	if (strcmp(own.merge.preset, "none") != 0) {
		length = add_part(&ckv_merge_keys, &own.merge, buffer, capacity, length);
	}
	if (strcmp(own.codec.preset, "none") != 0) {
		length = add_part(&ckv_codec_keys, &own.codec, buffer, capacity, length);
	}
	return length;
}

int ckv_params_hosted(const ckv_params *params) {
	ckv_params own;
	if (!params) {
		return 0;
	}
	take_named(params, &own);
	return strcmp(own.codec.preset, "none") != 0 || strcmp(own.merge.preset, "none") != 0;
}
