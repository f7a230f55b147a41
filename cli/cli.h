/* What the files of the command share. */
#ifndef CKV_CLI_H
#define CKV_CLI_H

#include <chunkkv/llama.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Exit statuses. */
enum { EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_INTERRUPTED = 130 };

enum { POLICY_TEXT = 512 }; /* longest text that ckv_policy_format writes, with its end */
enum { MAX_QUESTIONS = 256, MAX_PINS = 64, MAX_NAMED_POLICIES = 64, MAX_TASKS = 32 };

/* Commands that take options; a set of them is a sum. */
enum { COMMAND_RUN = 1, COMMAND_CHAT = 2, COMMAND_EVAL = 4, COMMAND_INSPECT = 8 };

typedef struct run_options {
	const char *model, *document, *policy, *keep, *chat_template, *cache_type, *cache, *system;
	const char *load;     /* chat: a saved session to go on from */
	const char *question; /* the first -p; NULL: read from standard input */
	const char *questions[MAX_QUESTIONS];
	int32_t n_questions; /* of -p */
	const char *pins[MAX_PINS];
	int32_t n_pins; /* chat: texts whose rows are never evicted */
	bool agnostic;  /* the document is compressed before any question is seen */
	int32_t n_predict, n_ctx, n_threads, n_gpu_layers, n_ubatch, top_k;
	int32_t ctx_budget; /* cells of a cache of fixed size; 0: one-shot compression */
	int32_t interval;   /* of a one-shot policy in blocks; 0: not given */
	uint32_t seed;
	double temperature, top_p, min_p;
	bool compare, json, quiet, verbose, dry_run, no_chat_template;
	bool rotate, no_rotate; /* neither: where it is needed */
	bool blocks;            /* with ctx_budget: params, in blocks, and not stream */
	/* eval and inspect */
	const char *tasks[MAX_TASKS];
	int32_t n_tasks;
	const char *policies[MAX_NAMED_POLICIES]; /* each --policy; the last is policy */
	int32_t n_policies;
	const char *ablate, *lengths, *depths, *questions_file, *data, *prompts, *out;
	int32_t n_examples, shots; /* shots -1: not given */
	double kl_limit;
	ckv_params params;        /* parsed from policy */
	ckv_stream_params stream; /* the same, where ctx_budget makes it go token by token */
	ckv_budget budget;        /* parsed from keep */
	enum ggml_type type;
	ckv_llama_cache cache_kind; /* from cache */
} run_options;

/* A cache type's name; GGML_TYPE_COUNT: it is none that llama.cpp can have a cache of. */
enum ggml_type options_cache_type(const char *name);
/* The options of one command. 0: go on; else the exit status + 1 (help was shown, or the usage was wrong). */
int options_parse(int argc, char **argv, run_options *options, int command);

int cmd_run(int argc, char **argv);
int cmd_chat(int argc, char **argv);
int cmd_policies(int argc, char **argv);
int cmd_eval(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int dry_run(const run_options *options);

/* Prints "chunkkv: ..." on stderr and returns EXIT_FAILED. */
int fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---------------------------------------------------------------- policy.c */
typedef const ckv_method_info *(*method_at)(size_t i);
/* The preset that a policy's text names, of those that are listed; NULL. */
const ckv_method_info *policy_preset(const char *text, method_at at);
/* Neither form of policies reads the text: the reason of the one that has the preset, else both. Returns EXIT_FAILED. */
int policy_fail(const char *text, const ckv_error *once, const ckv_error *stream);
/* The policy of a cache of fixed size, from o->policy and o->interval. Prints why not. */
bool policy_parse_bounded(run_options *o);
/* Whether a cache of fixed size is one of our own. */
bool policy_streams_hosted(const run_options *o);

/* ------------------------------------------------------------------ text.c */
typedef struct buffer {
	char *data;
	size_t size;
} buffer;

/* Reads a file ("-": standard input) and checks that it is UTF-8. Returns false with the message printed. */
bool text_read(const char *path, buffer *out);
bool text_check(const char *what, const char *data, size_t size);
void text_free(buffer *t);
/* The part of a path behind the last slash. */
const char *text_file_name(const char *path);
/* Puts '?' where a string is not UTF-8. */
void text_sanitise(char *string);
/* Bytes of the UTF-8 character at data; 0 when it is none, -1 when the end cuts it off. left >= 1. */
int utf8_character(const char *data, size_t left);

/* ---------------------------------------------------------------- tokens.c */
typedef struct token_list {
	llama_token *data;
	int32_t size;
} token_list;

/* Appends the tokens of text. Only a template's own text may hold control tokens: a document that spells one out must not
 * become one. `start`: what the vocabulary puts before any text is put here. Prints why not. */
bool tokens_add(token_list *list, const struct llama_vocab *vocab, const char *text, size_t size, bool start, bool control);
bool tokens_append(token_list *list, const llama_token *tokens, int32_t n);
void tokens_free(token_list *list);

/* ---------------------------------------------------------------- engine.c */
/* A question of its own, asked to a document that was compressed before. */
typedef struct engine_question {
	buffer text;
	llama_token *tokens; /* what follows the document: the question and the end of the chat template */
	int32_t n_tokens;
} engine_question;

typedef struct engine {
	const run_options *options;
	buffer content;    /* document and question; the document up to the question when that is none of the compression's */
	const char *begun; /* borrowed: what every answer begins with, put behind the template; NULL */
	struct llama_model *model;
	const struct llama_vocab *vocab;
	llama_token *prompt; /* what is prefilled and compressed */
	int32_t n_prompt;
	engine_question *questions; /* none when the question is in the prompt */
	int32_t n_questions;
} engine;

/* Sends llama.cpp's log to nowhere, or to stderr when verbose; remembers its last error. */
void engine_log(bool verbose);
const char *engine_last_error(void);

/* Before and after everything of a command that uses llama.cpp. engine_stop returns the exit status: that of an interrupt,
 * if there was one. */
void engine_start(bool verbose);
int engine_stop(int status);

/* vocab_only: the model's metadata and tokens alone. Prints why not. */
bool engine_load(engine *e, bool vocab_only);
void engine_free(engine *e);
struct llama_context_params engine_context_params(const engine *e, int32_t n_cells, int32_t n_ubatch);
/* A context of n_cells, attached to ckv. NULL with the reason printed. */
struct llama_context *engine_context(const engine *e, ckv_llama *ckv, int32_t n_cells, int32_t n_ubatch);
/* The same, of a window model at least its window and a batch, for small batches: what answers from a compressed cache. */
struct llama_context *engine_small_context(const engine *e, ckv_llama *ckv, int32_t n_cells);
/* Tokens that are read at once where the budget is never outgrown. */
int32_t engine_piece(int32_t budget, int32_t n_ubatch);
/* For a sequence that never outgrows a budget of rows. */
struct llama_context *engine_bounded_context(const engine *e, ckv_llama *ckv, int32_t budget, int32_t n_ubatch);
struct llama_sampler *engine_sampler(const run_options *options);

/* --------------------------------------------------------------- prompt.c */
/* engine_read, then engine_load, then engine_prompt, on a zeroed engine with its options set; each prints why not. */
bool engine_read(engine *e);   /* document and questions */
bool engine_prompt(engine *e); /* their tokens, in the chat template */
void engine_drop_text(engine *e);
/* Why a chat template can't be used, and which there are; NULL: the model's own. */
void prompt_explain_templates(const char *name);
/* Tokens of the longest question of its own; 0 when the question is in the prompt. */
int32_t engine_longest_question(const engine *e);

/* ------------------------------------------------------------ interrupt.c */
void interrupt_install(void);
bool interrupted(void);
bool interrupt_abort(void *user); /* as llama.cpp's abort_callback */
/* For what goes on after Ctrl-C: the next one counts anew. False when the program was told to end. */
bool interrupt_forget(void);

/* ------------------------------------------------------------- progress.c */
typedef struct progress {
	bool shown;
	double start;
} progress;
void progress_begin(progress *p, bool wanted);
bool progress_step(int32_t n_done, int32_t n_total, void *user); /* as ckv_llama_progress; false once interrupted */
void progress_end(progress *p);

/* --------------------------------------------------------------- memory.c */
uint64_t memory_peak(void); /* bytes resident at most, so far */
uint64_t memory_now(void);  /* bytes resident */
/* What was freed, where the C library keeps it for later: after something large. */
void memory_give_back(void);
uint64_t memory_available(void); /* bytes the system can give; 0: unknown */
double seconds(void);

/* --------------------------------------------------------------- answer.c */
typedef struct answer {
	char *text; /* UTF-8, whatever the model's tokens were */
	size_t size, capacity;
	char pending[8]; /* a character that its next token will complete */
	size_t n_pending;
	int32_t n_generated;
	double decode_s;
	int32_t n_decoded; /* llama_decode calls in decode_s */
	bool stopped;      /* at an end-of-generation token */
} answer;

/* Fed with each next token; streams whole characters to out (NULL: nowhere). */
bool answer_add(answer *a, const struct llama_vocab *vocab, llama_token token, FILE *out);
bool answer_end(answer *a, FILE *out);
double answer_rate(const answer *a);
void answer_free(answer *a);

/* -------------------------------------------------------------- compare.c */
typedef struct divergence {
	double sum, max;
	int32_t n, n_same;
} divergence;
/* KL(full || other) of two next-token distributions given by their logits, added to d. */
void divergence_add(divergence *d, const float *full, const float *other, int32_t n_vocab);
void divergence_join(divergence *d, const divergence *other);
double divergence_mean(const divergence *d); /* 0 when nothing was compared */
double divergence_agreement(const divergence *d);

/* --------------------------------------------------------------- report.c */
/* A question and what was answered. */
typedef struct exchange {
	const char *question;       /* NULL: it is part of the prompt */
	int32_t n_question;         /* tokens */
	double ttft_s, ttft_full_s; /* to the first token, from the question; from the prompt when the question is part of it */
	answer compressed, full;
	divergence lost;
} exchange;

typedef struct run_result {
	const run_options *options;
	char policy[POLICY_TEXT], model_name[128];
	ckv_llama_report report;
	int32_t *n_kept; /* copy of the report's array */
	int32_t n_prompt;
	uint64_t cache_bytes, cache_bytes_full, cache_alloc, cache_alloc_full;
	double prefill_s, prefill_full_s, compact_s;
	ckv_llama_stream_report stream; /* of a cache of fixed size; report is then empty */
	int32_t n_cells;                /* that llama.cpp gave it */
	exchange *exchanges;
	int32_t n_exchanges;
	uint64_t peak_rss, final_rss;
} run_result;
/* What all the answers lost together. */
divergence report_lost(const run_result *r);
void report_notes(const run_result *r, FILE *out);
void report_table(const run_result *r, FILE *out);
/* The table's parts. `both`: the full cache's figure beside it. */
void report_row(FILE *out, const char *name, const char *unit, int precision, double compressed, double full, bool both);
void report_end(const run_result *r, FILE *out); /* the process's memory, and what was lost */

/* -------------------------------------------------------- report_bounded.c */
void report_bounded(const run_result *r, FILE *out);

/* ---------------------------------------------------------- report_json.c */
bool report_json(const run_result *r, FILE *out);

#endif
