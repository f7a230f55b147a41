/* What lines that begin with a slash do. */
#define _POSIX_C_SOURCE 200809L
#include "chat.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

bool chat_check_room(const chat *c, const ckv_stream_params *policy, const span *pins, int32_t n_pins) {
	chat_room room = chat_room_for(c->ckv, policy, c->bounds.budget, c->ubatch, pins, n_pins);
	if (room.lacking) {
		fail("the budget of %d rows lacks %d: pinned and first tokens would take %d, the newest, which stay too, %d, and "
		     "what is "
		     "read at once %d; pin less, or give --ctx-budget %d",
		     room.budget, room.lacking, room.pinned, room.newest, room.piece, room.enough);
	}
	return room.lacking == 0;
}

/* --------------------------------------------------------------------------------------------------------- commands */

static bool do_stats(chat *c, const char *argument) {
	(void)argument;
	chat_stats(c, stderr);
	return true;
}

/* "~/" is the shell's, but who types it here means the same. */
static bool with_path(chat *c, const char *argument, bool (*act)(chat *c, const char *path)) {
	char path[PATH_MAX];
	const char *home = strncmp(argument, "~/", 2) == 0 ? getenv("HOME") : NULL;
	int n = snprintf(path, sizeof path, "%s%s", home ? home : "", home ? argument + 1 : argument);
	if (n < 0 || (size_t)n >= sizeof path) {
		fail("the file name is too long");
		return false;
	}
	return act(c, path);
}

static bool save(chat *c, const char *path) {
	if (chat_seen(c) == 0) {
		fail("there is nothing to save yet");
		return false;
	}
	bool good = chat_save(c, path);
	if (good && !c->options->quiet) {
		fprintf(stderr, "saved: %d tokens; chunkkv chat --load, with the same model and policy, goes on from there\n",
		        chat_seen(c));
	}
	return good;
}

static bool load(chat *c, const char *path) {
	bool good = chat_load(c, path);
	if (good && !c->options->quiet) {
		fprintf(stderr, "loaded: a conversation of %d tokens\n", chat_seen(c));
	}
	return good;
}

static bool do_save(chat *c, const char *argument) { return with_path(c, argument, save); }

static bool do_load(chat *c, const char *argument) { return with_path(c, argument, load); }

static bool do_reset(chat *c, const char *argument) {
	(void)argument;
	bool good = chat_begin(c);
	if (good && !c->options->quiet) {
		fputs("a new conversation\n", stderr);
	}
	return good;
}

static bool show_policy(const chat *c) {
	char text[256];
	ckv_stream_format(&c->policy, text, sizeof text);
	fprintf(stderr, "%s\n", text);
	return true;
}

static bool do_policy(chat *c, const char *argument) {
	ckv_stream_params other;
	ckv_params once;
	if (*argument == '\0') {
		return show_policy(c);
	}
	if (ckv_stream_parse(argument, &other, &c->error)) {
		bool one_shot = ckv_policy_parse(argument, &once, NULL) == CKV_OK;
		fail("%s%s", c->error.message, one_shot ? "; it is for a cache that is compressed once" : "");
		return false;
	}
	if (!chat_check_room(c, &other, c->state.pins, c->state.n_pins)) {
		return false;
	}
	if (ckv_llama_stream_set_policy(c->ckv, &other)) {
		fail("the policy stays as it was: %s", ckv_llama_message(c->ckv));
		return false;
	}
	c->policy = other;
	return c->options->quiet || show_policy(c);
}

static bool is_pinned(const chat *c, span s) {
	for (int32_t i = 0; i < c->state.n_pins; i++) {
		if (c->state.pins[i].first <= s.first && s.end <= c->state.pins[i].end) {
			return true;
		}
	}
	return false;
}

static bool do_pin(chat *c, const char *argument) {
	const spoken *last = chat_last_message(c);
	const char *why = *argument                          ? "/pin pins the last message, and takes no text: say it first"
	                  : !last                            ? "there is no message of yours to pin yet"
	                  : is_pinned(c, last->span)         ? "your last message is pinned already"
	                  : c->state.n_pins == MAX_CHAT_PINS ? "no more can be pinned"
	                                                     : NULL;
	if (why) {
		fail("%s", why);
		return false;
	}
	span all[MAX_CHAT_PINS];
	memcpy(all, c->state.pins, sizeof all);
	all[c->state.n_pins] = last->span;
	if (!chat_check_room(c, &c->policy, all, c->state.n_pins + 1) || !chat_pin(c, last->span)) {
		return false;
	}
	if (!c->options->quiet) {
		int32_t n = last->span.end - last->span.first;
		fprintf(stderr, "pinned: your last message, %d tokens, of which %.0f are still held\n", n,
		        chat_rows_held(c->ckv, last->span));
	}
	return true;
}

static bool do_exit(chat *c, const char *argument) {
	(void)argument;
	c->ended = true;
	return true;
}

static bool do_help(chat *c, const char *argument);

/* ------------------------------------------------------------------------------------------------------------ table */

typedef enum takes { NOTHING, PERHAPS, FILE_NAME } takes;

typedef struct command {
	const char *name, *argument;
	takes takes;
	bool (*run)(chat *c, const char *argument);
	const char *summary;
} command;

static const command commands[] = {
    {"help", "", NOTHING, do_help, "this list"},
    {"stats", "", NOTHING, do_stats, "tokens, rows, memory, speed, and what is still held of the last messages"},
    {"pin", "", PERHAPS, do_pin, "never let your last message go"},
    {"policy", "[TEXT]", PERHAPS, do_policy, "show how is chosen what goes, or choose otherwise from here on"},
    {"save", "FILE", FILE_NAME, do_save, "write the conversation to a file"},
    {"load", "FILE", FILE_NAME, do_load, "go on from a saved conversation"},
    {"reset", "", NOTHING, do_reset, "begin anew, with system message and document"},
    {"exit", "", NOTHING, do_exit, "end; so do /quit and Ctrl-D"},
    {"quit", "", NOTHING, do_exit, NULL},
};

enum { N_COMMANDS = sizeof commands / sizeof *commands };

static bool do_help(chat *c, const char *argument) {
	(void)c, (void)argument;
	for (size_t i = 0; i < N_COMMANDS; i++) {
		if (commands[i].summary) {
			fprintf(stderr, "  /%-6s %-6s  %s\n", commands[i].name, commands[i].argument, commands[i].summary);
		}
	}
	fputs("  \"\"\"             a line of it begins a message of several lines, another ends it\n"
	      "  \\               at the end of a line: the message goes on\n"
	      "  //              begins a message that begins with a slash\n"
	      "  Ctrl-C          stops the reply\n",
	      stderr);
	return true;
}

/* ---------------------------------------------------------------------------------------------------------- finding */

/* Letters that must be added, taken away or changed to make one of the other. */
static size_t distance(const char *a, size_t n, const char *b) {
	enum { LONGEST = 32 };
	size_t row[LONGEST + 1], m = strlen(b);
	if (n > LONGEST || m > LONGEST) {
		return SIZE_MAX;
	}
	for (size_t j = 0; j <= m; j++) {
		row[j] = j;
	}
	for (size_t i = 1; i <= n; i++) {
		size_t corner = row[0];
		row[0] = i;
		for (size_t j = 1; j <= m; j++) {
			size_t change = corner + (a[i - 1] != b[j - 1]), shorter = row[j] < row[j - 1] ? row[j] : row[j - 1];
			corner = row[j];
			row[j] = change < shorter + 1 ? change : shorter + 1;
		}
	}
	return row[m];
}

static const command *nearest(const char *name, size_t n) {
	const command *best = &commands[0];
	size_t least = SIZE_MAX;
	for (size_t i = 0; i < N_COMMANDS; i++) {
		size_t own = distance(name, n, commands[i].name);
		if (own < least) {
			least = own;
			best = &commands[i];
		}
	}
	return best;
}

static const command *find(const char *name, size_t n) {
	for (size_t i = 0; i < N_COMMANDS; i++) {
		if (strlen(commands[i].name) == n && strncmp(commands[i].name, name, n) == 0) {
			return &commands[i];
		}
	}
	fail("there is no command '/%.*s'; the nearest is /%s. /help lists them; // begins a message with a slash", (int)n, name,
	     nearest(name, n)->name);
	return NULL;
}

bool chat_command(chat *c, const char *line) {
	size_t n = strcspn(line + 1, " \t");
	const char *rest = line + 1 + n;
	rest += strspn(rest, " \t");
	char argument[PATH_MAX];
	size_t length = strlen(rest);
	while (length > 0 && strchr(" \t", rest[length - 1])) {
		length--;
	}
	snprintf(argument, sizeof argument, "%.*s", (int)(length < sizeof argument ? length : sizeof argument - 1), rest);
	const command *found = find(line + 1, n);
	if (!found) {
		return false;
	}
	if ((found->takes == NOTHING && *argument) || (found->takes == FILE_NAME && !*argument)) {
		fail(*argument ? "/%s takes no '%s'" : "/%s needs the name of a file%s", found->name, argument);
		return false;
	}
	return found->run(c, argument);
}
