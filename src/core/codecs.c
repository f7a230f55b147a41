/* Codecs: how kept rows are stored. Presets, the table of keys, what each kind reads, checks. */
#include "core/internal.h"
#include "core/parts.h"
#include "quant/quant.h"

#include <string.h>

typedef struct codec_preset {
	ckv_method_info info;
	ckv_codec codec;
} codec_preset;

#define KIVI_KEYS "bits,group,residual,mode"
#define PALU_KEYS "rank,energy,head_groups,group,high_bits,low_bits,high_share,quantize_values,mode"
#define KIVI(name, bits, summary)                                                                                           \
	{ {name, summary, "KIVI, arXiv 2402.02750", KIVI_KEYS}, CKV_CODEC_ROW(name, "kivi", bits) }

static const codec_preset presets[] = {
    KIVI("kivi2", 2, "2 bits: keys by channel, values by token; the newest stay f16"),
    KIVI("kivi4", 4, "4 bits: keys by channel, values by token; the newest stay f16"),
    KIVI("kivi8", 8, "8 bits: keys by channel, values by token; the newest stay f16"),
    KIVI("kivi", 4, "any number of bits: keys by channel, values by token; the newest stay f16"),
    {{"palu", "fewer dimensions, by group of heads, and a few bits for each", "Palu, arXiv 2407.21118", PALU_KEYS},
     CKV_CODEC_ROW("palu", "palu", 4)},
};

enum { N_PRESETS = sizeof presets / sizeof *presets };

static const ckv_codec none = CKV_CODEC_ROW("none", "none", 4);
static const char *const kinds[] = {"none", "kivi", "palu"};

enum { N_KINDS = sizeof kinds / sizeof *kinds };

static const char *kind_name(size_t i) { return i < N_KINDS ? kinds[i] : NULL; }
static const char *preset_name(size_t i) { return i < N_PRESETS ? presets[i].info.name : NULL; }
static const char *key_name(size_t i) { return ckv_codec_param_info_at(i) ? ckv_codec_param_info_at(i)->key : NULL; }

const ckv_method_info *ckv_codec_info(size_t i) {
	return i < N_PRESETS ? &presets[i].info : i == N_PRESETS ? &ckv_merge_info : NULL;
}

static const codec_preset *find_preset(const char *name) {
	for (size_t i = 0; i < N_PRESETS; i++) {
		if (strcmp(presets[i].info.name, name) == 0) {
			return &presets[i];
		}
	}
	return NULL;
}

bool ckv_codec_is(const char *name) { return find_preset(name) != NULL; }

/* ------------------------------------------------------------------- keys */

#define NUMBER(key, low, high, text) CKV_INT_ROW(ckv_codec, key, low, high, text)
#define REAL(key, low, high, text)   CKV_REAL_ROW(ckv_codec, key, low, high, text)

static const ckv_key rows[] = {
    NUMBER(bits, 1, 8, "for each number of a key or value"),
    NUMBER(group, 1, 4096, "tokens that share a channel's levels; with kivi also channels that share a value's"),
    NUMBER(residual, 0, 65536, "newest tokens that stay f16; at most a quarter of the rows that are loaded"),
    NUMBER(rank, 0, 4096, "dimensions of the subspace; 0: as many as hold `energy`"),
    REAL(energy, 0.01, 1, "share of the singular values' sum that the subspace must hold, where rank is 0"),
    NUMBER(head_groups, 1, 1024, "groups of heads, each with a subspace of its own"),
    NUMBER(high_bits, 1, 8, "for each number of the leading dimensions"),
    NUMBER(low_bits, 1, 8, "for each number of the other dimensions"),
    REAL(high_share, 0, 1, "share of the dimensions that lead"),
    NUMBER(quantize_values, 0, 1, "1: values are quantised in the subspace as keys are; 0: they stay f16 in it"),
    CKV_MODE_ROW(ckv_codec, reference, "exact: levels in f16; reference: the published code's own ways"),
};

enum { N_KEYS = sizeof rows / sizeof *rows };
_Static_assert(sizeof rows / sizeof *rows <= CKV_MOST_KEYS, "a bit for each");

const ckv_param_info *ckv_codec_param_info_at(size_t i) { return i < N_KEYS ? &rows[i].info : NULL; }

static bool uses(const void *params, const char *key) {
	const ckv_codec *codec = params;
	if (strcmp(key, "energy") == 0 && codec->rank > 0) {
		return false; /* the rank is given, not looked for */
	}
	return (strcmp(codec->kind, "kivi") == 0 && ckv_list_has(KIVI_KEYS, key)) ||
	       (strcmp(codec->kind, "palu") == 0 && ckv_list_has(PALU_KEYS, key));
}

static const void *preset_params(const char *name) {
	const codec_preset *preset = find_preset(name);
	return preset ? &preset->codec : NULL;
}

const ckv_keys ckv_codec_keys = {.what = "codec",
                                 .size = sizeof(ckv_codec),
                                 .preset = offsetof(ckv_codec, preset),
                                 .n = N_KEYS,
                                 .rows = rows,
                                 .key_name = key_name,
                                 .preset_name = preset_name,
                                 .preset_params = preset_params,
                                 .preset_default = "kivi",
                                 .uses = uses};

/* ----------------------------------------------------------------- checks */

static bool is_none(const ckv_codec *codec) { return !codec || codec->size == 0 || !codec->preset; }

void ckv_codec_own(const ckv_codec *codec, ckv_codec *own) {
	if (is_none(codec) || !codec->kind || strcmp(codec->kind, "none") == 0) {
		*own = none;
		return;
	}
	const codec_preset *preset = find_preset(codec->preset);
	const char *kind = ckv_name_find(kind_name, codec->kind);
	*own = *codec;
	own->size = sizeof *own;
	own->kind = kind ? kind : codec->kind;
	/* A name of another kind, or the caller's own, says nothing of this one: each kind has a preset called as it. */
	own->preset = preset && strcmp(preset->codec.kind, codec->kind) == 0 ? preset->info.name : own->kind;
}

int ckv_codec_available(const ckv_codec *codec) {
	ckv_codec own;
	ckv_codec_own(codec, &own);
	return strcmp(own.kind, "palu") != 0 || ckv_low_rank_available();
}

ckv_status ckv_codec_check(const ckv_codec *codec, ckv_error *error) {
	if (is_none(codec)) {
		return CKV_OK;
	}
	if (codec->size < sizeof *codec) {
		return ckv_fail(error, CKV_ERR_ARG, "the codec's size field is too small: take the codec from a policy's text");
	}
	if (!codec->kind) {
		return ckv_fail(error, CKV_ERR_ARG, "the codec lacks its kind: take the codec from a policy's text");
	}
	if (!ckv_name_find(kind_name, codec->kind)) {
		return ckv_name_unknown(error, "kind of codec", codec->kind, kind_name);
	}
	return ckv_keys_check_used(&ckv_codec_keys, codec, error);
}

ckv_status ckv_codec_check_given(const ckv_codec *codec, uint32_t given, ckv_error *error) {
	const char *key = ckv_keys_unused(&ckv_codec_keys, codec, given);
	if (!key) {
		return CKV_OK;
	}
	if (ckv_list_has(find_preset(codec->preset)->info.uses, key)) {
		return ckv_fail(error, CKV_ERR_POLICY, "codec '%s' with rank=%d does not use '%s': leave one of them out",
		                codec->preset, codec->rank, key);
	}
	return ckv_fail(error, CKV_ERR_POLICY, "codec '%s' does not use '%s'; its parameters are %s", codec->preset, key,
	                find_preset(codec->preset)->info.uses);
}

/* --------------------------------------------------------------- listings */

int ckv_codec_use(const ckv_codec *codec, const char *key) {
	ckv_codec own;
	ckv_codec_own(codec, &own);
	return ckv_keys_use(&ckv_codec_keys, &own, key);
}

size_t ckv_codec_value(const ckv_codec *codec, const char *key, char *buffer, size_t capacity) {
	ckv_codec own;
	ckv_codec_own(codec, &own);
	return ckv_keys_value(&ckv_codec_keys, &own, key, buffer, capacity);
}
