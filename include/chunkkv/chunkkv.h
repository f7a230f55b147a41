/* libchunkkv: which tokens of a KV cache to keep, on plain arrays, for any engine.
 *
 * The shape of a use:
 *
 *     ckv_params params;
 *     ckv_policy_parse("chunkkv:window=16", &params, NULL);
 *     ckv_ctx *ctx;
 *     ckv_ctx_create(&ctx, &params, NULL);
 *     for each layer:  ckv_select(ctx, &layer, ckv_keep_percent(10), &keep);   -> keep.positions
 *     ckv_ctx_free(ctx);
 *
 * Conventions of the whole interface:
 *  - Structs that may grow start with their own size; fill them with their _default() or _init() call.
 *  - Every call that can fail returns a ckv_status. On an error its outputs are not touched unless said otherwise, and
 *    nothing else has changed either.
 *  - Lengths: T at most CKV_MAX_TOKENS.
 *  - Views are borrowed for the call only. Outputs go to memory of the caller.
 *  - A context may be used by one thread at a time; different contexts are independent. Functions without a context are
 *    safe to call from any thread.
 *  - Shapes: T tokens, H query heads, G KV heads (G divides H; query head h reads KV head h / (H / G)), d head dimension.
 *    Tokens are in ascending order of position. Scores are float, higher means keep.
 */
#ifndef CHUNKKV_H
#define CHUNKKV_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CKV_VERSION_MAJOR 0
#define CKV_VERSION_MINOR 1
#define CKV_VERSION_PATCH 0

#if defined(CKV_BUILD) && defined(__GNUC__)
#define CKV_API __attribute__((visibility("default")))
#else
#define CKV_API
#endif

/* Longest cache that is accepted. */
#define CKV_MAX_TOKENS (INT32_MAX - 131072)

/* ---------------------------------------------------------------- status */

/* Never renumbered. */
typedef enum ckv_status {
	CKV_OK = 0,
	CKV_ERR_ARG = 1,         /* an argument is wrong by itself: NULL, negative, out of range, shapes that disagree */
	CKV_ERR_NOMEM = 2,       /* the allocator returned NULL, or a size does not fit size_t */
	CKV_ERR_CAPACITY = 3,    /* the caller's array is too small; the needed number of entries is told */
	CKV_ERR_POLICY = 4,      /* a policy or budget text could not be understood */
	CKV_ERR_UNSUPPORTED = 5, /* well-formed, but this model, cache or combination cannot be compressed */
	CKV_ERR_NUMERIC = 6,     /* NaN or infinity where a decision would hang on it */
	CKV_ERR_STATE = 7,       /* the call came at the wrong time (nothing observed, wrong sequence, ...) */
	CKV_ERR_HOST = 8,        /* the engine refused or failed a call */
	CKV_ERR_CANCELLED = 9    /* a callback of the caller asked to stop */
} ckv_status;

/* A fixed English phrase for a status; never NULL. */
CKV_API const char *ckv_strerror(ckv_status status);

/* Where calls without a context leave their message. Owned by the caller, may be NULL everywhere. */
typedef struct ckv_error {
	ckv_status status;
	char message[256]; /* one line, what was wrong and what to do; "" after success */
} ckv_error;

/* ---------------------------------------------------------------- memory */

/* All memory of a context comes from here. alloc returns memory for any object, or NULL; free takes what alloc gave, never
 * NULL. Both may be called from the thread that uses the context, only. */
typedef struct ckv_allocator {
	void *(*alloc)(void *user, size_t size);
	void (*free)(void *user, void *memory);
	void *user;
} ckv_allocator;

/* malloc and free: what is used where none is given. */
CKV_API ckv_allocator ckv_allocator_default(void);

/* ---------------------------------------------------------------- policy */

/* How kept rows are stored, where that is not as they come: the part of a policy's text behind a "+". Only a cache of our
 * own (chunkkv/cache.h) can do it. All zero counts as "none". What the kind does not read is not looked at. */
typedef struct ckv_codec {
	size_t size;
	const char *preset; /* name that it came from, for reports; "none": rows are stored as f16 */
	const char *kind;   /* "none", "kivi", "palu" */
	int32_t bits;       /* kivi: 1 to 8, of keys and values */
	int32_t group;      /* kivi: tokens that share a key channel's levels, and channels that share a value's; palu: tokens */
	int32_t residual;   /* kivi: newest tokens that stay f16; at most a quarter of the rows when they are loaded */
	int32_t rank;       /* palu: dimensions that are kept of a head's; 0: by energy */
	int32_t head_groups;     /* palu: groups of heads that have a basis of their own */
	int32_t quantize_values; /* palu: 1: values' latents are quantised as the keys' are */
	int32_t high_bits;       /* palu: of the leading latents */
	int32_t low_bits;        /* palu: of the others */
	int32_t reference;       /* 1: the published code's own ways: levels in float, no cap of the residual */
	double energy;           /* palu: share of the singular values' sum that the rank must hold */
	double high_share;       /* palu: share of the latents that lead */
} ckv_codec;

/* What becomes of the values of tokens that are not kept ("+merge"). All zero counts as "none". */
typedef struct ckv_merge {
	size_t size;
	const char *preset; /* "none": they go; "merge" */
	double fraction;    /* of the evicted tokens that are merged, those most like a kept one */
	double threshold;   /* cosine of the keys below which none is */
} ckv_merge;

/* A policy: scorer x selector x chunker x layer rule, with their parameters. The name fields point to static strings of the
 * registry (any string with the name of a registered one is accepted). Ranges are checked by ckv_ctx_create;
 * ckv_param_info_at tells them. */
typedef struct ckv_params {
	size_t size;
	const char *preset; /* name of the preset it came from, for reports */
	const char *scorer; /* "none": nothing is scored */
	const char *selector;
	int32_t window;       /* W: last queries that are observed, and last tokens that are protected */
	int32_t kernel;       /* width of the average pooling along tokens; odd */
	int32_t chunk;        /* C: tokens in a chunk */
	int32_t sinks;        /* first tokens that are protected */
	int32_t reference;    /* 0: exactly the budget, sinks and window protected; 1: the published code's own counts */
	const char *chunker;  /* where chunks end: "fixed" (every C tokens), or by the text, see ckv_set_chunks */
	const char *layers;   /* how the budget is shared among layers, see ckv_plan */
	int32_t max_chunk;    /* tokens in a chunk at most, of chunkers that go by the text */
	int32_t entropy_keep; /* q: tokens kept of a chunk of low entropy; below C */
	int32_t reuse;        /* layers that share one selection, see ckv_layer_source */
	int32_t future;       /* positions over which a future query's rotation is averaged */
	int32_t lag;          /* tokens in a partition of LagKV */
	int32_t seed;         /* of the scorer "random" */
	double safeguard;     /* share of its budget that a head keeps for its own best tokens */
	double beta;          /* steepness of the pyramid */
	double share;         /* of its budget that a layer keeps which hardly changes its input */
	ckv_merge merge;
	ckv_codec codec;
} ckv_params;

/* The preset "chunkkv". */
CKV_API void ckv_params_default(ckv_params *params);

/* Parses `preset[:key=value,...]`, e.g. "chunkkv:chunk=10,window=32", and behind it, each after a "+", at most one codec and
 * `merge`, in any order: "chunkkv+kivi4:group=64". A codec alone is that of the whole cache: "kivi2:group=64" is
 * "full+kivi2:group=64". Unknown presets, codecs, keys and names are errors that name the nearest one; so are keys that the
 * policy does not use, and values out of range. *params is written on success only. Errors: CKV_ERR_ARG, CKV_ERR_POLICY. */
CKV_API ckv_status ckv_policy_parse(const char *text, ckv_params *params, ckv_error *error);

/* Writes the policy as text that ckv_policy_parse reads back to the same parameters (reals to 15 decimals): the preset and
 * what differs from it, then merge, then the codec. Returns the length without the terminating zero, as snprintf does;
 * buffer may be NULL when capacity is 0. */
CKV_API size_t ckv_policy_format(const ckv_params *params, char *buffer, size_t capacity);

/* 1 where only a cache of our own (chunkkv/cache.h) can hold what the policy makes: it has a codec, or merges. */
CKV_API int ckv_params_hosted(const ckv_params *params);

/* What a policy must be shown of a layer (ckv_params_needs). Keys are always needed. */
enum {
	CKV_NEED_QUERIES = 1u << 0,    /* layer.q: the last n_queries queries, after RoPE */
	CKV_NEED_VALUES = 1u << 1,     /* layer.v */
	CKV_NEED_MOMENTS = 1u << 2,    /* layer.moments, of all queries but the first `sinks`, before RoPE; and layer.rope */
	CKV_NEED_MASS = 1u << 3,       /* layer.mass: each key's attention summed over all queries (ckv_mass_add) */
	CKV_NEED_SIMILARITY = 1u << 4, /* for ckv_plan: how much each layer's attention changes the residual stream */
	CKV_NEED_CHUNKS = 1u << 5      /* ckv_set_chunks before ckv_select */
};

typedef struct ckv_needs {
	uint32_t flags;
	int32_t n_queries; /* 0 without CKV_NEED_QUERIES */
} ckv_needs;

/* Errors: CKV_ERR_ARG, CKV_ERR_POLICY (unknown scorer). */
CKV_API ckv_status ckv_params_needs(const ckv_params *params, ckv_needs *needs);

/* What there is, for listings. The strings are static; i counts from 0; NULL past the end. */
typedef struct ckv_method_info {
	const char *name;
	const char *summary; /* one line */
	const char *paper;   /* title and arXiv number, or "" */
	const char *uses;    /* comma-separated parameter keys it reads, or "" */
} ckv_method_info;

typedef struct ckv_param_info {
	const char *key;
	const char *summary;
	double minimum, maximum; /* of numbers; both 0 for names */
} ckv_param_info;

CKV_API const ckv_method_info *ckv_preset_info(size_t i);
CKV_API const ckv_method_info *ckv_scorer_info(size_t i);
CKV_API const ckv_method_info *ckv_selector_info(size_t i);
CKV_API const ckv_method_info *ckv_chunker_info(size_t i);
CKV_API const ckv_method_info *ckv_layer_rule_info(size_t i);
CKV_API const ckv_param_info *ckv_param_info_at(size_t i);
/* 1 where this build can do what a codec asks for; 0: palu without LAPACKE. NULL and "none" count as can. */
CKV_API int ckv_codec_available(const ckv_codec *codec);

/* What may stand behind a "+": the codecs, and "merge"; and their parameters. */
CKV_API const ckv_method_info *ckv_codec_info(size_t i);
CKV_API const ckv_param_info *ckv_codec_param_info_at(size_t i);
CKV_API const ckv_param_info *ckv_merge_param_info_at(size_t i);

/* Whether the policy's first part, its codec or its merging reads a parameter: what ckv_policy_parse would accept for it. */
CKV_API int ckv_params_use(const ckv_params *params, const char *key);
CKV_API int ckv_codec_use(const ckv_codec *codec, const char *key);
CKV_API int ckv_merge_use(const ckv_merge *merge, const char *key);

/* The value of a parameter as the policy text has it; length as snprintf's, 0 for an unknown key. */
CKV_API size_t ckv_params_value(const ckv_params *params, const char *key, char *buffer, size_t capacity);
CKV_API size_t ckv_codec_value(const ckv_codec *codec, const char *key, char *buffer, size_t capacity);
CKV_API size_t ckv_merge_value(const ckv_merge *merge, const char *key, char *buffer, size_t capacity);

/* ---------------------------------------------------------------- budget */

typedef enum ckv_budget_kind {
	CKV_BUDGET_TOKENS = 0,  /* value: tokens to keep */
	CKV_BUDGET_PERCENT = 1, /* value: percent of T to keep, rounded half up, at least one token */
	CKV_BUDGET_REMOVE = 2   /* value: fraction of T removed, truncated as in the published code, at least one token kept */
} ckv_budget_kind;

typedef struct ckv_budget {
	ckv_budget_kind kind;
	double value;
} ckv_budget;

static inline ckv_budget ckv_keep_tokens(int32_t n) {
	ckv_budget b = {CKV_BUDGET_TOKENS, (double)n};
	return b;
}
static inline ckv_budget ckv_keep_percent(double percent) {
	ckv_budget b = {CKV_BUDGET_PERCENT, percent};
	return b;
}
static inline ckv_budget ckv_remove_fraction(double fraction) {
	ckv_budget b = {CKV_BUDGET_REMOVE, fraction};
	return b;
}

/* Parses "10%" or "512". Everything else ("0.1", "0", "110%") is an error that says what is meant.
 * Errors: CKV_ERR_ARG, CKV_ERR_POLICY. */
CKV_API ckv_status ckv_budget_parse(const char *text, ckv_budget *budget, ckv_error *error);

/* Tokens to keep of n_tokens; may exceed n_tokens when a token count does. Errors: CKV_ERR_ARG for a value out of range. */
CKV_API ckv_status ckv_budget_resolve(ckv_budget budget, int32_t n_tokens, int32_t *n_keep);

/* ---------------------------------------------------------------- layers */

typedef enum ckv_dtype {
	CKV_F32 = 0,
	CKV_F16 = 1,
	CKV_BF16 = 2,
	CKV_DECODED = 3 /* rows of any other type, read through view.decode */
} ckv_dtype;

/* Reads one head's row: n (= head_dim) values from `row` to `out`. Must not fail. Called from several threads at once when
 * the context has more than one. */
typedef void (*ckv_row_decoder)(const void *row, float *out, size_t n, void *user);

/* A borrowed view of [n_heads][n_tokens][head_dim]; the row of (head, token) starts at
 * data + head * stride_head + token * stride_token. Strides are in bytes, elements of a row are adjacent. */
typedef struct ckv_view {
	const void *data;
	ckv_dtype dtype;
	int32_t n_heads, n_tokens, head_dim;
	size_t stride_head, stride_token;
	size_t row_bytes;       /* CKV_DECODED: bytes of one head's row; otherwise ignored */
	ckv_row_decoder decode; /* CKV_DECODED only */
	void *decode_user;
} ckv_view;

/* How a model rotates queries and keys by their position (RoPE): pair i of the first n_dims channels turns by
 * position * inv_freq[i] and is multiplied by gain. Scalings (linear, YaRN, per-pair factors) are part of inv_freq and gain.
 */
typedef struct ckv_rope {
	int32_t n_dims;        /* even; 0: no rotation */
	int32_t interleaved;   /* 1: channels 2i and 2i+1 are a pair; 0: i and i + n_dims/2 */
	const float *inv_freq; /* [n_dims / 2], borrowed */
	float gain;            /* 0 means 1 */
} ckv_rope;

/* Turns a row of n_dims or more channels by `position` (negative: back) and multiplies what it turned by `factor`. Angles
 * are float products, as the models compute them. */
CKV_API void ckv_rope_turn(const ckv_rope *rope, int32_t position, float factor, float *row);

/* The same for n rows of one position, `stride` floats apart. */
CKV_API void ckv_rope_turn_rows(const ckv_rope *rope, int32_t position, float factor, float *rows, size_t n, size_t stride);

typedef struct ckv_moments ckv_moments;

/* One layer's cache as the core sees it. Start from ckv_layer_init. What is not needed stays zero. */
typedef struct ckv_layer {
	size_t size;
	int32_t index;              /* of n_layers */
	ckv_view k;                 /* [G][T][d] */
	ckv_view v;                 /* [G][T][d_v] */
	ckv_view q;                 /* [H][n][d]: the last n queries, after RoPE, the last one being token T-1's */
	float scale;                /* logits are q.k * scale; 0: 1/sqrt(d) */
	float logit_cap;            /* logits become cap * tanh(logit / cap); 0: none */
	int32_t n_layers;           /* of the model; needed where a selector goes by layer (hybrid) */
	const ckv_moments *moments; /* CKV_NEED_MOMENTS */
	ckv_rope rope;              /* CKV_NEED_MOMENTS */
	const float *mass;          /* CKV_NEED_MASS: [G] rows of T, mass_stride floats apart */
	size_t mass_stride;
	int32_t next_position; /* of the token after the last; 0: T. More where tokens before these were dropped */
} ckv_layer;

CKV_API void ckv_layer_init(ckv_layer *layer);

/* --------------------------------------------------------------- context */

typedef struct ckv_ctx ckv_ctx;

/* Bits of ckv_ctx_options.cpu_disable. */
enum { CKV_CPU_AVX2 = 1u << 0 };

typedef struct ckv_ctx_options {
	size_t size;
	const ckv_allocator *allocator; /* copied; NULL: malloc and free */
	uint32_t cpu_disable;           /* instruction sets not to use, for tests */
	int32_t n_threads;              /* threads that share the KV heads; 0 or 1: the caller's own. Results are the same */
} ckv_ctx_options;

CKV_API void ckv_ctx_options_default(ckv_ctx_options *options);

/* Checks the parameters and makes a context. options may be NULL. *ctx is NULL after an error, and error, if given, says
 * what was wrong. Errors: CKV_ERR_ARG, CKV_ERR_NOMEM, CKV_ERR_POLICY. */
CKV_API ckv_status ckv_ctx_create(ckv_ctx **ctx, const ckv_params *params, const ckv_ctx_options *options, ckv_error *error);

/* NULL is allowed. */
CKV_API void ckv_ctx_free(ckv_ctx *ctx);

/* What the last failed call on this context found, one line, valid until the next call; "" when there was none. */
CKV_API const char *ckv_ctx_message(const ckv_ctx *ctx);

/* The parameters it was made with, valid as long as the context. */
CKV_API const ckv_params *ckv_ctx_params(const ckv_ctx *ctx);

/* Name of the instruction set in use: "c", "avx2". */
CKV_API const char *ckv_ctx_isa(const ckv_ctx *ctx);

/* ------------------------------------------------------------- selection */

/* Why a selection is what it is. */
typedef enum ckv_reason {
	CKV_SELECTED = 0,         /* by score, to the budget */
	CKV_KEPT_ALL_POLICY = 1,  /* the policy keeps everything */
	CKV_KEPT_ALL_BUDGET = 2,  /* the budget is not smaller than the cache */
	CKV_KEPT_ALL_WINDOW = 3,  /* the cache is not longer than the observation window */
	CKV_KEPT_ALL_CHUNK = 4,   /* the cache is shorter than one chunk */
	CKV_PROTECTED_ONLY = 5,   /* sinks and window alone reach the budget: sinks, then the newest, nothing by score */
	CKV_KEPT_ALL_SLIDING = 6, /* the cache is not longer than the sliding window of the model */
	CKV_KEPT_ALL_SINKS = 7    /* the cache is not longer than the sinks, of which this scorer knows nothing */
} ckv_reason;

/* A fixed English phrase; never NULL. */
CKV_API const char *ckv_reason_text(ckv_reason reason);

/* Result of ckv_select. The caller sets the first four fields (ckv_keep_init), the call the others. */
typedef struct ckv_keep {
	size_t size;
	int32_t *positions; /* out: kept positions, ascending; list after list when they differ by head */
	size_t capacity;    /* entries at positions; T * G is always enough, and n_keep * G where exact mode does not keep all */
	int32_t *offsets;   /* out: n_lists + 1 entries, or NULL; list i is positions[offsets[i] .. offsets[i + 1] - 1] */

	int32_t n_lists;    /* 1: the same for all heads; else G */
	size_t n_positions; /* entries written; after CKV_ERR_CAPACITY: entries that suffice */
	int32_t n_keep;     /* tokens of the longest list */
	ckv_reason reason;
	float attention_kept; /* share of the observed window's attention that falls on what is kept, 0 to 1; -1: not observed */
} ckv_keep;

CKV_API void ckv_keep_init(ckv_keep *keep, int32_t *positions, size_t capacity, int32_t *offsets);

/* Scores of one layer by the context's scorer: scores[G][T], memory of the caller. The budget only matters to scorers whose
 * scores depend on it. Sources: the scorer's own file. Errors: CKV_ERR_ARG, CKV_ERR_NOMEM, CKV_ERR_UNSUPPORTED (policy
 * without scorer, T <= window), CKV_ERR_NUMERIC. */
CKV_API ckv_status ckv_score(ckv_ctx *ctx, const ckv_layer *layer, ckv_budget budget, float *scores);

/* Scores one layer and selects what to keep of it. A cache too short for the policy is kept whole, see keep->reason.
 * offsets, when given, must have room for G + 1 entries. On CKV_ERR_CAPACITY keep->n_positions is what suffices.
 * Errors: CKV_ERR_ARG, CKV_ERR_NOMEM, CKV_ERR_CAPACITY, CKV_ERR_NUMERIC, CKV_ERR_STATE (chunks are needed, see
 * ckv_set_chunks). */
CKV_API ckv_status ckv_select(ckv_ctx *ctx, const ckv_layer *layer, ckv_budget budget, ckv_keep *keep);

/* The same for a long prompt in blocks, in memory of n_keep + block positions for each KV head: the first n_keep tokens and
 * the next `block` ones are scored as if there were no others, what the policy keeps of them and the next block again, and
 * so on to the end; rows are read where they are. keep->positions are of the whole layer. A block that reaches the end at
 * once is ckv_select. Exact mode: sinks and the newest `window` tokens so far are kept each time. Scores that depend on no
 * other row (knorm, key_norm, streaming, random) make topk and adaptive_head keep what ckv_select keeps; others see only the
 * rows in hand. Chunks are those of the whole layer (ckv_set_chunks included), as far as their tokens are still there; in
 * reference mode the fraction of chunks that stays is n_keep of the rows in hand. On CKV_ERR_CAPACITY, which is found last,
 * keep->n_positions is what suffices. Source: BlockPress of kvpress 0.5.5. Errors: those of ckv_select, CKV_ERR_ARG (block
 * below 1), CKV_ERR_UNSUPPORTED (the scorer needs more than keys and values: queries, moments, sums of attention). */
CKV_API ckv_status ckv_select_blocks(ckv_ctx *ctx, const ckv_layer *layer, ckv_budget budget, int32_t block, ckv_keep *keep);

/* The selector alone, over the caller's scores [n_heads][n_tokens], all finite; the context's scorer plays no part. As
 * ckv_select otherwise; attention_kept is -1. */
CKV_API ckv_status ckv_select_scores(ckv_ctx *ctx, const float *scores, int32_t n_heads, int32_t n_tokens, ckv_budget budget,
                                     ckv_keep *keep);

/* ---------------------------------------------------------------- chunks */

/* Where chunks end in a text, by the rule of params.chunker ("line", "sentence", "paragraph"; "fixed": every C tokens). The
 * text is UTF-8; ends[i] is the number of its bytes up to the end of token i, never falling. A token belongs to the chunk in
 * which its first byte lies. A chunk of more than params.max_chunk tokens is cut into parts of nearly equal length.
 * starts[*n_chunks] gets the chunks' first tokens, the first being 0; room for n_tokens entries is always enough.
 * Errors: CKV_ERR_ARG, CKV_ERR_POLICY (unknown chunker). Thread-safe. */
CKV_API ckv_status ckv_chunk_text(const ckv_params *params, const char *text, const size_t *ends, int32_t n_tokens,
                                  int32_t *starts, int32_t *n_chunks);

/* The chunks of the cache that the next selections are about: starts[n_chunks], ascending from 0, copied; they hold until
 * set again or taken back (NULL, 0). Policies with another chunker than "fixed" need them, and no chunk longer than
 * max_chunk. Errors: CKV_ERR_ARG, CKV_ERR_NOMEM. */
CKV_API ckv_status ckv_set_chunks(ckv_ctx *ctx, const int32_t *starts, int32_t n_chunks, int32_t n_tokens);

/* ---------------------------------------------------------------- layers */

/* Shares a budget among n_layers layers of n_tokens tokens by the rule params.layers: budgets[i] is for ckv_select of layer
 * i. uniform    the budget itself for each; pyramid    falling from layer to layer in a straight line around the same mean
 * (PyramidKV, arXiv 2406.02069); all alike where beta and window leave no slope, *fell_back then is 1; squeeze    layers
 * whose attention hardly changes the residual stream keep `share` of theirs, the others get what that frees
 * (SqueezeAttention, arXiv 2404.04793). similarity[n_layers]: mean cosine of the stream before and after each layer's
 * attention. In exact mode the layers' tokens add up to n_layers times the budget. Layers that share a selection (reuse) get
 * the mean of theirs, rounded, and then add up to about that. similarity and fell_back may be NULL otherwise. Errors:
 * CKV_ERR_ARG, CKV_ERR_NOMEM, CKV_ERR_NUMERIC (a similarity is not finite). */
CKV_API ckv_status ckv_plan(ckv_ctx *ctx, ckv_budget budget, int32_t n_tokens, int32_t n_layers, const float *similarity,
                            ckv_budget *budgets, int *fell_back);

/* The layer whose kept positions layer i takes (ChunkKV, arXiv 2502.00299, algorithm 2): i itself, or with params.reuse = N
 * the first of its group of N. Layers count from 0 among those that are compressed. */
CKV_API int32_t ckv_layer_source(const ckv_params *params, int32_t layer);

/* ----------------------------------------------------------- observation */

/* Mean and covariance of a layer's queries before RoPE, kept up as they come. Memory: H d (d + 1) doubles and d (d + 64)
 * floats, whatever T. One thread at a time; may be read by several. options may be NULL. Errors: CKV_ERR_ARG, CKV_ERR_NOMEM.
 */
CKV_API ckv_status ckv_moments_create(ckv_moments **moments, int32_t n_heads, int32_t head_dim,
                                      const ckv_ctx_options *options);
/* queries: [H][n][d] of any element type; all of them count. Errors: CKV_ERR_ARG. */
CKV_API ckv_status ckv_moments_add(ckv_moments *moments, const ckv_view *queries);
CKV_API void ckv_moments_reset(ckv_moments *moments);
CKV_API void ckv_moments_free(ckv_moments *moments);
/* mean[H][d] and covariance[H][d][d] (divided by the count); either may be NULL. Returns the count. */
CKV_API int64_t ckv_moments_read(const ckv_moments *moments, float *mean, float *covariance);

/* Adds the attention of layer->q, the last n queries, to sums: sums[g * stride + t] += the softmax weight of key t, mean
 * over the query heads of group g. layer->k are the T keys so far; query i sees the keys up to its own (T - n + i). Called
 * with every query once this gives layer.mass, in memory of T floats for each KV head. Source: H2O, arXiv 2306.14048.
 * Errors: CKV_ERR_ARG, CKV_ERR_NOMEM, CKV_ERR_NUMERIC; after an error sums are void. */
CKV_API ckv_status ckv_mass_add(ckv_ctx *ctx, const ckv_layer *layer, float *sums, size_t stride);

/* ------------------------------------------------------------- attention */

/* Attention over a cache whose heads may hold different rows: out[n][H][d_v] = softmax(q.k * scale) v over the rows that a
 * query sees and its head has, in float. visible[n][T]: nonzero where query i sees row t. absent[G][T]: nonzero where KV
 * head g has no row; NULL: all are there. Rows that are not seen may hold anything. A query that sees nothing gets zeros.
 * layer: k, v, q (all n queries), scale, logit_cap. Errors: CKV_ERR_ARG, CKV_ERR_NOMEM, CKV_ERR_NUMERIC (out is then void).
 */
CKV_API ckv_status ckv_attend(ckv_ctx *ctx, const ckv_layer *layer, const uint8_t *visible, const uint8_t *absent,
                              float *out);

/* ------------------------------------------------------------ compaction */

/* Gathers the kept rows of a view: row j of head h goes to dst + h * stride_head + j * stride_token, bytes unchanged. dst
 * may be the view's own memory with its own strides (rows only move towards the front) and must not overlap it otherwise.
 * positions are as ckv_select left them in keep. Lists of different length leave the rest of a shorter head's rows as it
 * was. Errors: CKV_ERR_ARG (positions not ascending or outside the view, lists and heads that disagree). */
CKV_API ckv_status ckv_compact(const ckv_view *view, const ckv_keep *keep, void *dst, size_t stride_head,
                               size_t stride_token);

/* Values of the kept rows, with those of the other rows merged in; keys stay as they are. In each KV head an evicted row e
 * goes to the kept row t whose key has the greatest cosine c with its own (ties: the first), if c is at least
 * merge->threshold (-1 to 1) and at least the (1 - merge->fraction) quantile of the head's evicted rows (a fraction of 0 to
 * 1). With w = max(c, 0) |v_e| / (|v_e| + |v_t| + 1e-6) then v_t becomes (v_t + sum of w v_e) / (1 + sum of w), in float.
 * What the context's policy says plays no part; where merge->preset is "none" the kept values are gathered as they are.
 *
 * layer: k and v. keep: as ckv_select left it. values[][d_v] is memory of the caller: the heads' kept rows one head after
 * another, so entry i of head g is row g * keep->n_positions + i when all heads share a list, else row keep->offsets[g] + i.
 * Memory: for each thread O(T + kept d), time O(evicted kept d). Source: MergingPress of kvpress 0.5.5, after D2O (arXiv
 * 2406.13035). Errors: CKV_ERR_ARG, CKV_ERR_NOMEM, CKV_ERR_NUMERIC (in any key or value, kept or
 * not, where there is something to merge; values are then void). */
CKV_API ckv_status ckv_merge_kept(ckv_ctx *ctx, const ckv_layer *layer, const ckv_keep *keep, const ckv_merge *merge,
                                  float *values);

#ifdef __cplusplus
}
#endif
#endif
