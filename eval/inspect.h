/* What policies keep of one prompt, layer by layer, and what each layer's attention loses by it. */
#ifndef CKV_EVAL_INSPECT_H
#define CKV_EVAL_INSPECT_H

#include "plan.h"

/* What is measured of a layer; all policies by the same queries, the last YARD_WINDOW ones. */
typedef enum figure {
	FIGURE_ATTENTION,
	FIGURE_OUTPUT,
	FIGURE_COSINE,
	FIGURE_KEYS,
	FIGURE_VALUES,
	FIGURE_JACCARD,
	FIGURE_ENTROPY,
	FIGURE_ENTROPY_STD,
	FIGURE_COVERAGE,
	FIGURE_RUN,
	N_FIGURES
} figure;
enum { YARD_WINDOW = 16, YARD_CHUNK = 10 };

typedef struct figure_info {
	const char *key;    /* in the JSON object */
	const char *name;   /* of a chart */
	const char *column; /* of the terminal's table, ten letters at most */
	const char *means;  /* a sentence */
	int good;           /* 1: more is better, -1: less is; 0: neither */
} figure_info;
const figure_info *figure_at(figure f);

/* One policy's choice. */
typedef struct inspected {
	const char *policy;       /* borrowed */
	const ckv_params *params; /* of the policy, borrowed; NULL: its rows stay as they came */
	int32_t sinks, window;    /* tokens protected at either end; 0 where the policy has none */
	ckv_reason reason;
	bool no_slope;   /* layers=pyramid that gave every layer the same */
	int32_t n_cells; /* of the longest layer */
	uint64_t bytes, bytes_full;
	ckv_keep *kept;               /* [n_layers] copies; one list, or one for each KV head */
	double (*figures)[N_FIGURES]; /* [n_layers]; NaN: there is none */
	double *jaccard;              /* [n_layers][n_layers] of what layers keep */
	float *share;                 /* [n_tokens] of the layers and heads that keep a token, 0 to 1 */
} inspected;

typedef struct inspection {
	const run_options *options;
	char model[128];
	const char *cache;
	int32_t n_tokens, n_layers, n_window_layers;
	int32_t *layers; /* [n_layers] their numbers in the model */
	char *text;      /* the prompt's, token after token: one may end inside a character */
	size_t *ends;    /* [n_tokens] bytes up to the end of each */
	inspected *policies;
	int32_t n_policies;
	double prefill_s;
} inspection;

/* Reads the prompt once and fills everything. The engine has its model and prompt. Prints why not. */
bool inspect_run(inspection *in, engine *e, plan *all);
void inspect_free(inspection *in);

/* Mean over the layers that have the figure; NaN. */
double inspect_mean(const inspection *in, const inspected *p, figure f);
/* Why a choice is no plain selection; "" when it is one. */
const char *inspect_note(const inspected *p);
/* Share of tokens, layers and heads that is kept. */
double inspect_share(const inspection *in, const inspected *p);

/* ------------------------------------------------------------------------------------------------------ inspect_kept.c */
/* Room for n layers of T tokens; false without memory, which is printed. */
bool inspected_make(inspected *p, int32_t n_layers, int32_t n_tokens);
void inspected_free(inspected *p, int32_t n_layers);
/* Takes a copy of a layer's lists; none: all of n_tokens is kept. */
typedef struct kept_list {
	const int32_t *positions;
	int32_t n;
} kept_list;
bool kept_copy(ckv_keep *to, const kept_list *lists, int32_t n_lists, int32_t n_tokens);
/* p->share from p->kept. */
void kept_share(inspected *p, int32_t n_layers);
/* p->jaccard from p->kept; and as a figure of each layer but the first, how much of the one before it is in it. */
bool kept_jaccard(inspected *p, int32_t n_layers);

/* ----------------------------------------------------------------------------------------------------------------- output
 */
void inspect_table(const inspection *in, FILE *out);
bool inspect_json(const inspection *in, FILE *out);
/* Whether a page can be written there; before the work is done. Prints why not. */
bool inspect_can_write(const char *path);
/* Written to a file beside path, then renamed. Prints why not. */
bool inspect_page(const inspection *in, const char *path);

#endif
