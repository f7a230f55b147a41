/* What the files of `chunkkv chat` share. */
#ifndef CKV_CLI_CHAT_H
#define CKV_CLI_CHAT_H

#include "cli.h"

/* --------------------------------------------------------- chat_template.c */
/* A chat template, cut where texts belong: start SYSTEM first MESSAGE first_end REPLY next MESSAGE next_end REPLY next ...
 * Without a system message start is empty. All are "" without a template. */
typedef struct chat_frame {
	const char *start, *first, *first_end, *next, *next_end;
	char *owned[2]; /* what they point into */
} chat_frame;

typedef enum frame_status { FRAME_GOOD, FRAME_UNKNOWN, FRAME_NO_SYSTEM, FRAME_UNEVEN } frame_status;

/* By a template's name or text; NULL: none. FRAME_NO_SYSTEM: it leaves a system message out. FRAME_UNEVEN: a new turn
 * changes what stands before it. Nothing is held after an error. */
frame_status chat_frame_make(chat_frame *f, const char *name, bool system);
void chat_frame_free(chat_frame *f);

/* ------------------------------------------------------------ chat_room.c */
typedef struct span {
	int32_t first, end; /* positions */
} span;

/* Rows that are held of a span, mean over the layers. */
double chat_rows_held(const ckv_llama *ckv, span s);

/* What the rows of a budget are needed for. */
typedef struct chat_room {
	int32_t budget, pinned, newest, piece;
	int32_t lacking; /* rows; 0: it is enough */
	int32_t enough;  /* a budget that would do */
} chat_room;

/* ckv tells what is held of spans that were seen. spans is put in order, and joined to chunks. */
chat_room chat_room_for(const ckv_llama *ckv, const ckv_stream_params *policy, int32_t budget, int32_t ubatch,
                        const span *pins, int32_t n_pins);

/* ------------------------------------------------------------ chat_line.c */
typedef enum line_status { LINE_READ, LINE_END, LINE_INTERRUPTED } line_status;

typedef struct editor editor;

typedef struct line_reader {
	editor *editor; /* NULL: lines as they come */
	bool terminal;  /* standard input is one */
	char *line;     /* the last one */
	size_t capacity;
	bool waiting; /* more was there when it was read: a paste */
} line_reader;

void line_open(line_reader *r);
void line_close(line_reader *r);
/* The next line without its end, in r->line. */
line_status line_next(line_reader *r, const char *prompt, size_t *size);
/* Whether standard input has more within a moment. */
bool line_waiting(void);

/* ------------------------------------------------------------ chat_edit.c */
/* Line editing and history, where there is libedit, on a terminal; else NULL. */
editor *editor_open(void);
void editor_close(editor *e);
/* As line_next; the line is the editor's until the next call. */
line_status editor_line(editor *e, const char *prompt, const char **line, size_t *size, bool *waiting);

/* ----------------------------------------------------------- chat_input.c */
/* The next message or command, of one line or several. */
line_status input_next(line_reader *r, buffer *message);

/* ------------------------------------------------------------ chat_turn.c */
/* Where the conversation stands. */
typedef enum chat_place {
	PLACE_FIRST, /* the first message's text may follow */
	PLACE_REPLY, /* in, or after, a reply */
	N_PLACES
} chat_place;

enum { MAX_SPOKEN = 10, MAX_CHAT_PINS = 256 };

typedef struct spoken {
	span span;
	int32_t by_user;
} spoken;

/* What must be known, beside the cache, to go on. */
typedef struct chat_state {
	chat_place place;
	token_list owed; /* come before anything else: what was generated and not decoded, the rest of a turn that was stopped */
	span system, document;
	spoken spoken[MAX_SPOKEN]; /* the last messages and replies, number i at i % MAX_SPOKEN */
	int32_t n_spoken;
	span pins[MAX_CHAT_PINS];
	int32_t n_pins;
} chat_state;

typedef struct chat {
	const run_options *options;
	engine engine;
	ckv_llama *ckv;
	struct llama_context *ctx;
	struct llama_sampler *sampler;
	ckv_stream_params policy;
	ckv_llama_stream_options bounds;
	int32_t ubatch;
	chat_frame frame;
	char *system;    /* with what was pinned at the start; NULL: none */
	buffer document; /* with a gap at its end; may be empty */
	chat_state state;
	bool broken; /* the cache can't be relied on: begin anew, or load */
	bool ended, warned;
	double last_rate; /* tokens per second of the last reply */
	int32_t last_tokens;
	ckv_error error;
} chat;

/* Each prints why not. */
bool chat_begin(chat *c);                      /* an empty cache, then system message and document */
bool chat_say(chat *c, const buffer *message); /* a message, and the reply to standard output */
bool chat_clear(chat *c);                      /* an empty cache */
bool chat_pin(chat *c, span s);
int32_t chat_seen(const chat *c);
ckv_llama_stream_report chat_report(const chat *c);
void chat_state_free(chat_state *s);
/* The last message of the user's; NULL: there is none among the last. */
const spoken *chat_last_message(const chat *c);

/* -------------------------------------------------------- chat_commands.c */
/* A line that begins with a slash. False when it failed, which is told. */
bool chat_command(chat *c, const char *line);
/* The room that pins and policy leave; told when it is too little. */
bool chat_check_room(const chat *c, const ckv_stream_params *policy, const span *pins, int32_t n_pins);

/* ----------------------------------------------------------- chat_stats.c */
void chat_stats(const chat *c, FILE *out);

/* ------------------------------------------------------------ chat_save.c */
bool chat_save(chat *c, const char *path);
bool chat_load(chat *c, const char *path); /* on an error the conversation is as it was */

#endif
