/* The presets: one row each, named as the papers name them. Defaults are measured, see docs/methods.md. */
#include "core/parts.h"
#include "core/registry.h"

/* What a preset does not name. */
#define BASE(preset_, scorer_, selector_, window_, sinks_, ...)                                                             \
	{                                                                                                                       \
		.size = sizeof(ckv_params), .preset = preset_, .scorer = scorer_, .selector = selector_, .window = window_,         \
		.sinks = sinks_, .kernel = 5, .chunk = 10, .chunker = "fixed", .max_chunk = 64, .entropy_keep = 4,                  \
		.safeguard = 0.2, .beta = 20, .share = 0.35, .future = 512, .lag = 128, .seed = 0, __VA_ARGS__                      \
	}
#define UNIFORM .layers = "uniform", .reuse = 1
/* Rows that stay are stored as they come. */
#define PARAMS(...) BASE(__VA_ARGS__, .merge = CKV_MERGE_ROW("none"), .codec = CKV_CODEC_ROW("none", "none", 4))
/* All of them, by a codec. */
#define STORED(preset_, kind, bits)                                                                                         \
	BASE(preset_, "none", "all", 0, 0, UNIFORM, .merge = CKV_MERGE_ROW("none"), .codec = CKV_CODEC_ROW(preset_, kind, bits))

static const ckv_preset presets[] = {
    {{"full", "keep the whole cache: nothing is dropped", "", "selector"}, PARAMS("full", "none", "all", 0, 0, UNIFORM)},
    {{"chunkkv", "whole chunks of the prompt, by the attention of its last tokens", "ChunkKV, arXiv 2502.00299", ""},
     PARAMS("chunkkv", "snapkv", "chunk", 16, 4, UNIFORM)},
    {{"chunkkv-reuse", "chunkkv that selects in every second layer; the next takes the same", "ChunkKV, arXiv 2502.00299",
      ""},
     PARAMS("chunkkv-reuse", "snapkv", "chunk", 16, 4, .layers = "uniform", .reuse = 2)},
    {{"egchunkkv", "chunkkv that keeps only the peaks of chunks with few of them", "entropy-gated ChunkKV of kvpress", ""},
     PARAMS("egchunkkv", "snapkv", "entropy_gate", 16, 4, UNIFORM)},
    {{"snapkv", "single tokens, each head its own, by the attention of the last tokens", "SnapKV, arXiv 2404.14469", ""},
     PARAMS("snapkv", "snapkv", "topk", 16, 4, UNIFORM)},
    {{"h2o", "tokens that all later tokens attended to most, and the newest", "H2O, arXiv 2306.14048", ""},
     PARAMS("h2o", "h2o", "topk", 16, 4, UNIFORM)},
    {{"tova", "tokens that the very last one attends to", "TOVA, arXiv 2401.06104", ""},
     PARAMS("tova", "tova", "topk", 0, 4, UNIFORM)},
    {{"streamingllm", "the first tokens and the newest, whatever they say", "StreamingLLM, arXiv 2309.17453", ""},
     PARAMS("streamingllm", "streaming", "topk", 0, 4, UNIFORM)},
    {{"pyramidkv", "snapkv with more tokens in the lower layers", "PyramidKV, arXiv 2406.02069", ""},
     PARAMS("pyramidkv", "snapkv", "topk", 16, 4, .layers = "pyramid", .reuse = 1)},
    {{"squeezeattention", "snapkv with more tokens in layers that change the residual stream",
      "SqueezeAttention, arXiv 2404.04793", ""},
     PARAMS("squeezeattention", "snapkv", "topk", 16, 4, .layers = "squeeze", .reuse = 1)},
    {{"l2norm", "tokens with short keys, which tend to be attended to", "L2 norm, arXiv 2406.11430", ""},
     PARAMS("l2norm", "knorm", "topk", 16, 4, UNIFORM)},
    {{"expected-attention", "tokens that queries still to come are expected to attend to",
      "Expected Attention, arXiv 2510.00636", ""},
     PARAMS("expected-attention", "expected_attention", "topk", 0, 4, UNIFORM)},
    {{"keydiff", "tokens whose keys differ from the others", "KeyDiff, arXiv 2504.15364", ""},
     PARAMS("keydiff", "keydiff", "topk", 16, 4, UNIFORM)},
    {{"lagkv", "tokens that stand out against the partition after theirs", "LagKV, arXiv 2504.04704", ""},
     PARAMS("lagkv", "lagkv", "topk", 16, 4, UNIFORM)},
    {{"adakv", "snapkv with the layer's budget shared among its heads", "AdaKV, arXiv 2407.11550", ""},
     PARAMS("adakv", "snapkv", "adaptive_head", 16, 4, UNIFORM)},
    {{"hybrid", "chunkkv in the lower half of the layers, snapkv above", "ChunkKV, arXiv 2502.00299", ""},
     PARAMS("hybrid", "snapkv", "hybrid", 16, 4, UNIFORM)},
    {{"random", "any tokens: what a policy must beat", "", ""}, PARAMS("random", "random", "topk", 16, 4, UNIFORM)},
    {{"kivi2", "keep every token, its row in 2 bits", "KIVI, arXiv 2402.02750", ""}, STORED("kivi2", "kivi", 2)},
    {{"kivi4", "keep every token, its row in 4 bits", "KIVI, arXiv 2402.02750", ""}, STORED("kivi4", "kivi", 4)},
    {{"kivi8", "keep every token, its row in 8 bits", "KIVI, arXiv 2402.02750", ""}, STORED("kivi8", "kivi", 8)},
    {{"palu", "keep every token, its row in fewer dimensions", "Palu, arXiv 2407.21118", ""}, STORED("palu", "palu", 4)},
};

const ckv_preset *ckv_preset_at(size_t i) { return i < sizeof presets / sizeof *presets ? &presets[i] : NULL; }

void ckv_params_default(ckv_params *params) {
	if (params) {
		*params = ckv_preset_find("chunkkv")->params;
	}
}
