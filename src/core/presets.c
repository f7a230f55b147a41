/* The presets: one row each, named as the papers name them. Defaults are measured, see docs/methods.md. */
#include "core/registry.h"

#define PARAMS(name, scorer, selector, window, kernel, chunk, sinks)                                                        \
	{ sizeof(ckv_params), name, scorer, selector, window, kernel, chunk, sinks, 0 }

static const ckv_preset presets[] = {
    {{"full", "keep the whole cache: nothing is dropped", "", "selector"}, PARAMS("full", "none", "all", 0, 5, 10, 0)},
    {{"chunkkv", "whole chunks of the prompt, by the attention of its last tokens", "ChunkKV, arXiv 2502.00299", ""},
     PARAMS("chunkkv", "snapkv", "chunk", 16, 5, 10, 4)},
    {{"snapkv", "single tokens, each head its own, by the attention of the last tokens", "SnapKV, arXiv 2404.14469", ""},
     PARAMS("snapkv", "snapkv", "topk", 16, 5, 10, 4)},
};

const ckv_preset *ckv_preset_at(size_t i) { return i < sizeof presets / sizeof *presets ? &presets[i] : NULL; }

void ckv_params_default(ckv_params *params) {
	if (params) {
		*params = ckv_preset_find("chunkkv")->params;
	}
}
