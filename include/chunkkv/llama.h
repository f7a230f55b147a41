/* libchunkkv-llama: KV-cache compression around an existing llama.cpp program.
 *
 *     ckv_llama *ckv;
 *     ckv_llama_create(&ckv, "chunkkv", NULL);
 *     ckv_llama_attach(ckv, &cparams);                          before llama_init_from_model
 *     ctx = llama_init_from_model(model, cparams);
 *     ckv_llama_prefill(ckv, ctx, 0, tokens, n_tokens);         llama_decode in batches, observed
 *     ckv_llama_compress(ckv, ctx, 0, ckv_keep_percent(10), &report);
 *     ckv_llama_shrink(ckv, &ctx, 0, report.n_cells + n_new);   optional: into a context of that size
 *     ... llama_decode as ever: the next position is n_tokens.
 *
 * Only llama.cpp's public C interface is used, so any backend works. What can't be compressed is refused with
 * CKV_ERR_UNSUPPORTED and a message that names the reason, before anything is changed.
 *
 * The question may be known or not. Known: prefill document and question, compress, answer; the window then sees the
 * question. Not known: prefill the document alone, ckv_llama_extract, and ckv_llama_ask for each question.
 *
 * Positions: a kept token keeps the rotation of its true position, and the next token's position goes on from the tokens
 * seen. In llama.cpp's bookkeeping the kept cells are labelled with the last n positions of the sequence: labels only serve
 * the causal mask. So llama_memory_seq_rm(mem, seq, n_tokens, -1) still takes back what was generated (not in sliding-window
 * models, where generation has pushed rows out of the window), and shorter prefixes can't be restored.
 *
 * An observation belongs to a context and ends with it: after llama_free, and a new context, observe anew. Tokens decoded
 * unobserved may follow and be taken back again; when they overwrite observed rows this is noticed and the observation void.
 *
 * Threads: one ckv_llama serves one thread at a time, like the llama_context it is attached to.
 */
#ifndef CHUNKKV_LLAMA_H
#define CHUNKKV_LLAMA_H

#include "chunkkv/cache.h"
#include "chunkkv/chunkkv.h"
#include "chunkkv/stream.h"

#include <llama.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ckv_llama ckv_llama;

/* policy: as for ckv_policy_parse. *ckv is NULL after an error. Errors: CKV_ERR_ARG, CKV_ERR_NOMEM, CKV_ERR_POLICY. */
CKV_API ckv_status ckv_llama_create(ckv_llama **ckv, const char *policy, ckv_error *error);

/* The same from parameters, with options for the core (both borrowed for the call; options may be NULL). */
CKV_API ckv_status ckv_llama_create_params(ckv_llama **ckv, const ckv_params *params, const ckv_ctx_options *options,
                                           ckv_error *error);

/* NULL is allowed. Contexts it was attached to must be freed, or not decode any more, before; with a hosted cache in use see
 * ckv_llama_leave. */
CKV_API void ckv_llama_free(ckv_llama *ckv);

/* What the last failed call found, one line, valid until the next call; "" when there was none. */
CKV_API const char *ckv_llama_message(const ckv_llama *ckv);

/* Whether a model's cache can be compressed at all, from its metadata: recurrent, hybrid, encoder, diffusion and M-RoPE
 * models can't. Errors: CKV_ERR_ARG, CKV_ERR_UNSUPPORTED. */
CKV_API ckv_status ckv_llama_check_model(const struct llama_model *model, ckv_error *error);

/* Prepares context parameters; the last thing to do to them. Sets cb_eval (one that is there already is called as before)
 * and turns flash attention on, as the attention node must be whole to be observed. May serve several contexts that decode
 * one at a time and have the same cb_eval of the caller's. The parameters are remembered for ckv_llama_shrink. Errors:
 * CKV_ERR_ARG, CKV_ERR_UNSUPPORTED (flash attention disabled by the caller), CKV_ERR_STATE (attached before with another
 * cb_eval). */
CKV_API ckv_status ckv_llama_attach(ckv_llama *ckv, struct llama_context_params *params);

/* Where the kept rows go. */
typedef enum ckv_llama_cache {
	CKV_LLAMA_CACHE_AUTO = 0, /* into a cache of our own where the policy needs one: rows packed, projected or merged, layers
	                             or heads of unequal length; else into llama.cpp's */
	CKV_LLAMA_CACHE_OWN =
	    1, /* llama.cpp's own: as many cells in every layer; shorter ones are hidden (see ckv_llama_check) */
	CKV_LLAMA_CACHE_HOSTED = 2 /* a cache of our own (chunkkv/cache.h), which computes the attention of its layers */
} ckv_llama_cache;

/* For the extracts and compressions from now on. A hosted cache: after ckv_llama_restore (or compress, or shrink) llama.cpp
 * holds one cell of the sequence, for its position, and the new tokens' cells, which ckv_llama_settle frees; all layers but
 * sliding-window ones attend to our rows. The ckv_llama must stay attached, and serves one context at a time: one put to use
 * before is void. That context (n_seq_max 1, cache type f16; 256 cells are plenty, in a sliding-window model the window and
 * a batch) decodes this sequence alone, and its state must not leave the process. Of the sequence only the end may be taken
 * back, to position n by llama_memory_seq_rm(mem, seq, n, -1), never what was compressed; the next tokens are then given
 * their positions from n on (llama_batch_get_one would begin at 0 where settling has left no cell before n). No
 * llama_memory_seq_add, _div or _cp, and nothing removed from the middle. In a sliding-window model nothing can be taken
 * back once it has settled. Should something go wrong while llama.cpp decodes, llama_decode can't be made to fail: ask
 * ckv_llama_check. A prompt that is not longer than a model's sliding window stays in llama.cpp's cache whatever was asked
 * for. Errors: CKV_ERR_ARG, CKV_ERR_UNSUPPORTED (OWN for a policy that packs, projects or merges). */
CKV_API ckv_status ckv_llama_set_cache(ckv_llama *ckv, ckv_llama_cache kind);

/* With a hosted cache: gives the cells of tokens that were decoded back to llama.cpp, all but the last one's and those of
 * its sliding windows. After each llama_decode, or when cells get scarce; without a hosted cache nothing. Errors:
 * CKV_ERR_ARG. */
CKV_API ckv_status ckv_llama_settle(ckv_llama *ckv);

/* What the hosted cache in use holds, or what is held for one. Errors: CKV_ERR_ARG, CKV_ERR_STATE (there is none). */
CKV_API ckv_status ckv_llama_hosted_info(const ckv_llama *ckv, ckv_cache_info *info);

/* Ends the use of a hosted cache: the context's layers attend to llama.cpp's own cells again, and the sequence is void. What
 * is held stays. Before another ckv_llama's rows are put into the same context, and before llama_free of the context when
 * anything else that this ckv_llama is attached to will still decode. */
CKV_API void ckv_llama_leave(ckv_llama *ckv);

/* Called after each batch of a prefill, or of a question; return false to stop it (CKV_ERR_CANCELLED is then returned). */
typedef bool (*ckv_llama_progress)(int32_t n_done, int32_t n_total, void *user);
CKV_API void ckv_llama_on_progress(ckv_llama *ckv, ckv_llama_progress callback, void *user);

/* Decodes tokens[n_tokens] at the end of sequence seq in batches of llama_n_ubatch, observed; logits for the last token
 * only. The sequence must be empty or have been observed from its first token; tokens taken back by llama_memory_seq_rm
 * since are forgotten, so that many questions can follow one document, each observed anew (each at least a window long; not
 * in sliding-window models, nor with policies that sum over all queries: h2o, expected-attention). On an error the sequence
 * holds the batches decoded so far. Errors: CKV_ERR_ARG, CKV_ERR_NOMEM, CKV_ERR_STATE, CKV_ERR_HOST, CKV_ERR_CANCELLED. */
CKV_API ckv_status ckv_llama_prefill(ckv_llama *ckv, struct llama_context *ctx, llama_seq_id seq, const llama_token *tokens,
                                     int32_t n_tokens);

/* For a decode loop of your own instead of ckv_llama_prefill: between begin and end every llama_decode on this context holds
 * tokens of seq only, in order, from the sequence's first token on; any split into batches will do.
 * Errors: CKV_ERR_ARG, CKV_ERR_NOMEM, CKV_ERR_STATE (the sequence already has tokens that were not observed). */
CKV_API ckv_status ckv_llama_observe_begin(ckv_llama *ckv, struct llama_context *ctx, llama_seq_id seq);
CKV_API ckv_status ckv_llama_observe_end(ckv_llama *ckv);

/* Announces the next llama_decode while observing, when its batch holds tokens of other sequences too: the observer then
 * takes those of its own sequence. Each sequence is observed by a ckv_llama of its own (all attached to the context), and
 * each is told. The batch is read at once. Errors: CKV_ERR_ARG, CKV_ERR_NOMEM, CKV_ERR_STATE (not observing),
 * CKV_ERR_UNSUPPORTED (a token that belongs to several sequences). */
CKV_API ckv_status ckv_llama_expect(ckv_llama *ckv, const struct llama_batch *batch);

/* Filled by compress and extract. Arrays belong to the ckv_llama and hold until its next call. */
typedef struct ckv_llama_report {
	size_t size;             /* set by the caller: sizeof(ckv_llama_report), or 0 for "this version's" */
	int32_t n_seen;          /* tokens of the sequence so far: the next token's position */
	int32_t n_cells;         /* cells the sequence has now, rows where it is hosted: kept tokens of the longest layer */
	int32_t n_layers;        /* layers whose cache is compressed: entries of the two arrays */
	const int32_t *layers;   /* their indices in the model */
	const int32_t *n_kept;   /* tokens kept in each */
	int32_t n_window_layers; /* sliding-window layers, left as they are */
	ckv_reason reason;
	float attention_kept;  /* mean over the layers of the window's attention on kept tokens, 0 to 1; -1: not observed */
	uint64_t bytes_before; /* rows held x row size, all layers */
	uint64_t bytes_after;
	uint64_t alloc_before; /* bytes of the cache tensors llama.cpp allocated for the context that decoded last */
	uint64_t alloc_after;  /* the same after compress, in place; 0 after extract: ask ckv_llama_cache_alloc once the context
	                               that took the rows has decoded */
	double score_s;        /* seconds of scoring and selecting */
	double move_s;         /* seconds of gathering rows and putting them back */
	uint64_t bytes_ragged; /* what a cache would hold whose layers and heads have lengths of their own; bytes_after counts
	                          every layer as long as the longest, as llama.cpp holds it */
	int32_t hosted;        /* 1: the rows are in, or for, a cache of our own; bytes_after is then what that allocated */
	int32_t no_slope;      /* 1: layers=pyramid gave every layer the same: the budget is too small for its beta and window */
} ckv_llama_report;

/* Compresses sequence seq where it is: afterwards it has report->n_cells cells. The context's allocation stays as it was;
 * the attention of later tokens costs what the kept ones cost. report may be NULL. On an error before the rows are put back
 * nothing has changed; should llama.cpp fail to take them, they are kept and the call can be repeated as ckv_llama_restore.
 * Errors: CKV_ERR_ARG, CKV_ERR_NOMEM, CKV_ERR_STATE (not observed), CKV_ERR_UNSUPPORTED, CKV_ERR_NUMERIC, CKV_ERR_HOST. */
CKV_API ckv_status ckv_llama_compress(ckv_llama *ckv, struct llama_context *ctx, llama_seq_id seq, ckv_budget budget,
                                      ckv_llama_report *report);

/* The first half of compress: the kept rows are copied out and held, in place of what was held before; the context is not
 * changed and may be freed. */
CKV_API ckv_status ckv_llama_extract(ckv_llama *ckv, struct llama_context *ctx, llama_seq_id seq, ckv_budget budget,
                                     ckv_llama_report *report);

/* The same without the last token's own row: after ckv_llama_restore decode that token again, at position n_seen - 1, and
 * its logits come from the compressed cache, where those of the prefill come from the full one. What evaluations start from.
 * Heads that had not kept the last token have one row more afterwards. Errors: those of ckv_llama_extract, and
 * CKV_ERR_UNSUPPORTED where nothing would be left. */
CKV_API ckv_status ckv_llama_extract_but_last(ckv_llama *ckv, struct llama_context *ctx, llama_seq_id seq, ckv_budget budget,
                                              ckv_llama_report *report);

/* What the last compress or extract kept: positions of list `list` of the report's layer number `layer`, ascending, valid
 * until the next. Returns how many lists the layer has: 1 (the same for all KV heads), the KV heads, or 0 when all was kept
 * without a look, or there is no such layer; the outputs are then not touched, nor for a list that is none. */
CKV_API int32_t ckv_llama_positions(const ckv_llama *ckv, int32_t layer, int32_t list, const int32_t **positions,
                                    int32_t *n);

/* Shows what was observed of the sequence, layer after layer of those that are compressed: keys, values, and the window's
 * queries where the policy observes them (q is empty where not). number counts as in the report and in ckv_llama_positions;
 * the layer is borrowed for the call. Return false to stop. For measuring (chunkkv/measure.h), and for scorers of your own.
 * Errors: CKV_ERR_ARG, CKV_ERR_NOMEM, CKV_ERR_STATE (not observed), CKV_ERR_UNSUPPORTED, CKV_ERR_CANCELLED. */
typedef bool (*ckv_llama_on_layer)(int32_t number, const ckv_layer *layer, void *user);
CKV_API ckv_status ckv_llama_visit_layers(ckv_llama *ckv, struct llama_context *ctx, llama_seq_id seq,
                                          ckv_llama_on_layer callback, void *user);

/* Layers, or heads, that keep fewer tokens than others (mode=reference, pyramid, squeeze, adaptive_head): llama.cpp has as
 * many cells in all of them. The rows beyond a layer's own are zeros, which the ckv_llama hides from attention while the
 * context decodes: by the mask where only layers differ, by computing the layer's attention itself where heads do. It must
 * then stay attached, and the state must not leave the process. Should there be no memory for it, llama_decode can't be made
 * to fail; ask ckv_llama_check: anything but CKV_OK means that what was decoded since the last restore is void. Don't shift
 * positions of such a sequence (llama_memory_seq_add): llama.cpp would rotate the zeros too. Errors: CKV_ERR_NOMEM,
 * CKV_ERR_NUMERIC, CKV_ERR_UNSUPPORTED. With a hosted cache, while its context lives: whether all that was decoded since
 * came to it; CKV_ERR_STATE too. */
CKV_API ckv_status ckv_llama_check(const ckv_llama *ckv);

/* The second half: puts the held rows into sequence seq of a context of the same model, cache types, n_seq_max and
 * kv_unified (whatever the sequence had is gone, on failure too). They stay held, and can be put into several contexts;
 * ckv_llama_drop lets them go. Errors: CKV_ERR_ARG, CKV_ERR_STATE (nothing held), CKV_ERR_HOST (llama.cpp refused: too few
 * cells, other types). */
CKV_API ckv_status ckv_llama_restore(ckv_llama *ckv, struct llama_context *ctx, llama_seq_id seq);
CKV_API void ckv_llama_drop(ckv_llama *ckv);

/* One question to a document that was compressed before any question was known: puts the held rows into sequence seq, as
 * ckv_llama_restore does, and decodes tokens[n_tokens] after them, unobserved; logits for the last token. The rows stay
 * held, so every question starts from the same compressed document, none from another's answer. Errors: as
 * ckv_llama_restore, and CKV_ERR_HOST, CKV_ERR_CANCELLED. */
CKV_API ckv_status ckv_llama_ask(ckv_llama *ckv, struct llama_context *ctx, llama_seq_id seq, const llama_token *tokens,
                                 int32_t n_tokens);

/* Replaces *ctx by a context of n_cells cells for each sequence (llama.cpp rounds up to its own multiple; a window model
 * gets at least its window and a batch) that holds sequence seq alone, so that the memory of the large one is given back.
 * Made with the parameters of ckv_llama_attach. Logits of the old context are gone: read them before. If llama.cpp can't
 * make the context, *ctx is NULL and the rows are held: free memory and call again with *ctx still NULL and the model of
 * before alive. Errors: CKV_ERR_ARG, CKV_ERR_NOMEM, CKV_ERR_STATE (other sequences have tokens), CKV_ERR_HOST. */
CKV_API ckv_status ckv_llama_shrink(ckv_llama *ckv, struct llama_context **ctx, llama_seq_id seq, int32_t n_cells);

/* -------------------------------------------------------- bounded memory
 *
 * A sequence of any length in a cache of fixed size:
 *
 *     ckv_stream_parse("chunkkv", &policy, NULL);
 *     ckv_llama_create_stream(&ckv, &policy, NULL, NULL);
 *     ckv_llama_attach(ckv, &cparams);                       cparams.n_ctx cells, that is all
 *     ctx = llama_init_from_model(model, cparams);
 *     ckv_llama_stream_begin(ckv, ctx, 0, NULL);
 *     ckv_llama_stream_decode(ckv, tokens, n_tokens);        the prompt, however long; then token by token
 *
 * Tokens are decoded in pieces; before one that does not fit any more, the policy lets rows go, in each layer its own.
 * Nothing is copied but rows that must move, and as long as everything fits the tokens are llama.cpp's own. The next
 * position is always the tokens seen; with `rotate` kept keys are turned so that no gaps are left between them.
 *
 * What a ckv_llama was made from tells how it chooses: ckv_stream_params go token by token (ckv_keeper), the one-shot
 * policies of ckv_llama_create compress everything there is again each time (in blocks). Refused: budgets inside a model's
 * sliding window, rotate with quantised caches. Other sequences may share the context with token by token policies, not with
 * blocks. Everything else that decodes into this sequence must go through ckv_llama_stream_decode.
 *
 * Hosted (ckv_llama_set_cache; auto for policies that merge or whose layers differ): the rows are a ckv_stream's, each layer
 * and head its own, and no longer llama.cpp's. The budget is then ours alone, and the context needs cells for the tokens in
 * hand only: 256, or as many tokens as shall be read at once and one. Rows go after every piece, token
 * by token (interval has no meaning). Its context is of type f16 and one sequence. Refused: rotate, blocks, another policy
 * on the way, sliding-window models. A piece is not broken off: an abort_callback that was attached is asked before each,
 * and takes the place of one that was set by llama_set_abort_callback. */

/* As ckv_llama_create_params, with a streaming policy. options->n_threads also serves the scoring. */
CKV_API ckv_status ckv_llama_create_stream(ckv_llama **ckv, const ckv_stream_params *params, const ckv_ctx_options *options,
                                           ckv_error *error);

typedef struct ckv_llama_stream_options {
	size_t size;
	int32_t budget;   /* rows of the sequence at most, the tokens in hand among them; 0: all cells of its stream */
	int32_t interval; /* rows that go at once, at least, when single tokens are decoded; 0: 32 */
	int32_t rotate;   /* 1: close the gaps between positions */
} ckv_llama_stream_options;
CKV_API void ckv_llama_stream_options_default(ckv_llama_stream_options *options);

/* Begins a sequence, which must be empty. options may be NULL. Errors: CKV_ERR_ARG, CKV_ERR_NOMEM, CKV_ERR_POLICY (a budget
 * that the policy can't do with), CKV_ERR_STATE, CKV_ERR_UNSUPPORTED. */
CKV_API ckv_status ckv_llama_stream_begin(ckv_llama *ckv, struct llama_context *ctx, llama_seq_id seq,
                                          const ckv_llama_stream_options *options);

/* Decodes tokens[n] at the end of the sequence; logits for the last. On CKV_ERR_CANCELLED (progress, abort) the tokens
 * before n_seen of the report are in, and the rest may follow; on other errors begin anew. Errors: CKV_ERR_ARG,
 * CKV_ERR_NOMEM, CKV_ERR_STATE, CKV_ERR_HOST, CKV_ERR_CANCELLED, CKV_ERR_CAPACITY (too much is pinned), CKV_ERR_NUMERIC,
 * CKV_ERR_UNSUPPORTED. */
CKV_API ckv_status ckv_llama_stream_decode(ckv_llama *ckv, const llama_token *tokens, int32_t n);

/* Tokens of positions first .. end - 1, which may still be to come, never go. Token by token policies only. Errors:
 * CKV_ERR_ARG, CKV_ERR_NOMEM, CKV_ERR_UNSUPPORTED. */
CKV_API ckv_status ckv_llama_stream_pin(ckv_llama *ckv, int32_t first, int32_t end);

/* Another token by token policy from here on, for a sequence that was begun with one: the rows and pins stay, what the old
 * one thought of them is forgotten. On an error the old one stays. Errors: CKV_ERR_ARG, CKV_ERR_NOMEM, CKV_ERR_POLICY,
 * CKV_ERR_STATE, CKV_ERR_UNSUPPORTED. */
CKV_API ckv_status ckv_llama_stream_set_policy(ckv_llama *ckv, const ckv_stream_params *params);

typedef struct ckv_llama_stream_report {
	size_t size;             /* set by the caller: sizeof(ckv_llama_stream_report), or 0 for "this version's" */
	int32_t n_seen;          /* the next token's position */
	int32_t n_rows;          /* rows in each layer that is not a sliding-window one */
	int32_t budget;          /* rows at most */
	int32_t n_layers;        /* that let rows go */
	int32_t n_window_layers; /* sliding-window layers, which llama.cpp bounds itself */
	int32_t rotated;         /* 1: positions are without gaps */
	int64_t n_evicted;       /* rows that went, of each layer */
	int64_t n_evictions;     /* times that some did */
	double decode_s;         /* seconds of llama_decode, observing among them */
	double score_s;          /* seconds of scoring */
	double move_s;           /* seconds of choosing and moving rows */
	double turn_s;           /* seconds of turning keys */
	uint64_t cache_alloc;    /* bytes of the cache tensors */
	uint64_t own_bytes;      /* memory of the bookkeeping beside it, working memory left out */
	int32_t hosted; /* 1: rows of our own: n_rows of the fullest layer, n_evicted of the mean, cache_alloc of both */
} ckv_llama_stream_report;
CKV_API ckv_status ckv_llama_stream_get_report(const ckv_llama *ckv, ckv_llama_stream_report *report);

/* What layer number `layer` of those that let rows go has, oldest first; borrowed until the next decode. scores are the
 * policy's so far. Not with blocks. Errors: CKV_ERR_ARG, CKV_ERR_UNSUPPORTED. */
CKV_API ckv_status ckv_llama_stream_rows(const ckv_llama *ckv, int32_t layer, ckv_stream_rows *rows);

/* The sequence and all that is known of it, as bytes: returns the size, writes when capacity suffices; 0 on an error (see
 * ckv_llama_message). Token by token policies only. To be restored, by a ckv_llama of the same policy, into an empty
 * sequence of a context of the same model and cache types; in place of ckv_llama_stream_begin, with the same options.
 * Errors: CKV_ERR_ARG, CKV_ERR_NOMEM, CKV_ERR_STATE, CKV_ERR_HOST. */
CKV_API size_t ckv_llama_stream_save(ckv_llama *ckv, void *data, size_t capacity);
CKV_API ckv_status ckv_llama_stream_restore(ckv_llama *ckv, struct llama_context *ctx, llama_seq_id seq,
                                            const ckv_llama_stream_options *options, const void *data, size_t size);

/* Bytes of the cache tensors of the context that decoded last while attached, as llama.cpp allocated them, 0 before its
 * first decode; and those of a hosted cache in use. */
CKV_API uint64_t ckv_llama_cache_alloc(const ckv_llama *ckv);

#ifdef __cplusplus
}
#endif
#endif
