/* A bounded sequence on a real model, and an independent memory of every row as it was written. */
#ifndef BOUNDED_SUPPORT_H
#define BOUNDED_SUPPORT_H

#include "support.h"

#include "adapters/llama/internal.h"

enum { LOG_TOKENS = 4096 };

/* Each layer's key and value row of each token, copied when the token had just been decoded. */
typedef struct row_log {
	uint8_t *keys[128], *values[128]; /* [LOG_TOKENS][row] by layer number */
} row_log;

typedef struct bounded_fixture {
	struct llama_model *model;
	struct llama_context *ctx;
	ckv_llama *ckv;
	prompt prompt;
	row_log log;
	bool logging;
} bounded_fixture;

/* policy: a streaming one, or "=" and a one-shot one, for blocks. n_cells of the context, of which `budget` are for the
 * sequence (0: all). The prompt is made, nothing decoded. */
void bounded_open(bounded_fixture *f, const char *policy, int32_t n_tokens, int32_t n_cells, enum ggml_type type,
                  const ckv_llama_stream_options *options);
/* The same in rows of our own, `budget` of them; the context has few cells. Hooked: its own cb_eval. */
typedef struct bounded_hook {
	ggml_backend_sched_eval_callback callback;
	void *user;
	bool (*stop)(void *user); /* the context's abort_callback */
	void *stop_user;
} bounded_hook;
void bounded_open_hosted(bounded_fixture *f, const char *policy, int32_t n_tokens, int32_t budget, const bounded_hook *hook);
void bounded_close(bounded_fixture *f);

/* Cells that leave a window model its window beside n others. */
int32_t bounded_cells(const struct llama_model *model, int32_t n);

/* Decodes in pieces of `piece`, each logged when the fixture is logging. */
void bounded_feed(bounded_fixture *f, const llama_token *tokens, int32_t n, int32_t piece);
/* n greedy tokens; out[0] from the logits there are. */
void bounded_greedy(bounded_fixture *f, int32_t n, llama_token *out);
ckv_llama_stream_report bounded_report(const bounded_fixture *f);

/* Number i of the layers that let rows go, or NULL. */
const layer_view *bounded_layer(const bounded_fixture *f, int32_t i);

/* Every row that is said to be there is, bit for bit, where it is said to be. Keys are left out when they are turned. */
void bounded_check_rows(const bounded_fixture *f, bool keys);

#endif
