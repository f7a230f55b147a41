/* What a policy's text has behind a "+": tables of their keys, as core/keys.h reads them. */
#ifndef CKV_PARTS_H
#define CKV_PARTS_H

#include "core/keys.h"

/* The three parts: of ckv_params, without the other two in it; of ckv_merge; of ckv_codec. */
extern const ckv_keys ckv_params_keys, ckv_merge_keys, ckv_codec_keys;

extern const ckv_method_info ckv_merge_info;

#define CKV_MERGE_ROW(preset_)                                                                                              \
	{ .size = sizeof(ckv_merge), .preset = (preset_), .fraction = 1, .threshold = 0 }
#define CKV_CODEC_ROW(preset_, kind_, bits_)                                                                                \
	{                                                                                                                       \
		.size = sizeof(ckv_codec), .preset = (preset_), .kind = (kind_), .bits = (bits_), .group = 32, .residual = 128,     \
		.rank = 0, .head_groups = 4, .quantize_values = 1, .high_bits = 4, .low_bits = 2, .reference = 0, .energy = 0.90,   \
		.high_share = 0.25                                                                                                  \
	}

/* Whether a name is a codec's, which as a policy's preset takes the codec's keys alone. */
bool ckv_codec_is(const char *name);

/* A key that was given to the policy's first part and that it does not read is an error. given: as ckv_keys_parse. */
ckv_status ckv_params_check_given(const ckv_params *params, uint32_t given, ckv_error *error);
/* The same of its codec. */
ckv_status ckv_codec_check_given(const ckv_codec *codec, uint32_t given, ckv_error *error);

#endif
