/* Line editing and history by libedit. */
#define _GNU_SOURCE
#include "chat.h"

#ifndef CHUNKKV_LIBEDIT

editor *editor_open(void) { return NULL; }

void editor_close(editor *e) { (void)e; }

line_status editor_line(editor *e, const char *prompt, const char **line, size_t *size, bool *waiting) {
	(void)e, (void)prompt, (void)line, (void)size, (void)waiting;
	return LINE_END;
}

#else

#include <fcntl.h>
#include <histedit.h>
#include <langinfo.h>
#include <limits.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

struct editor {
	EditLine *line;
	History *history;
	struct termios before; /* the terminal, as it was found */
	char path[PATH_MAX];   /* of the history; "": it is not kept */
	char prompt[8];
	bool waiting;
};

/* ---------------------------------------------------------------------------------------------------------- signals */

/* The terminal's size changed; the program was stopped and goes on, the terminal perhaps in another mode. */
static volatile sig_atomic_t resized, resumed;

static void on_signal(int number) {
	if (number == SIGWINCH) {
		resized = 1;
	} else {
		resumed = 1;
	}
}

static void watch_terminal(void) {
	struct sigaction action;
	memset(&action, 0, sizeof action);
	action.sa_handler = on_signal;
	action.sa_flags = SA_RESTART;
	sigemptyset(&action.sa_mask);
	sigaction(SIGWINCH, &action, NULL);
	sigaction(SIGCONT, &action, NULL);
}

static void follow_terminal(editor *e) {
	if (resized) {
		resized = 0;
		el_resize(e->line);
	}
	if (resumed) {
		resumed = 0;
		el_set(e->line, EL_PREP_TERM, 0);
		el_set(e->line, EL_PREP_TERM, 1);
		el_set(e->line, EL_REFRESH);
	}
}

/* ---------------------------------------------------------------------------------------------------------- reading */

/* 0 at the end, -1 on an error and once interrupted. */
static int next_byte(editor *e, char *byte) {
	struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
	for (;;) {
		follow_terminal(e);
		if (interrupted()) {
			return -1;
		}
		if (poll(&input, 1, -1) > 0) {
			return (int)read(STDIN_FILENO, byte, 1);
		}
	}
}

static wchar_t decode(const char *bytes, int n) {
	static const unsigned char masks[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
	uint32_t code = (unsigned char)bytes[0] & masks[n];
	for (int i = 1; i < n; i++) {
		code = code << 6 | ((unsigned char)bytes[i] & 0x3f);
	}
	return (wchar_t)code;
}

/* As libedit's own, but for Ctrl-C, and that it sees whether a line is part of a paste while the terminal still does not
 * echo. What is not UTF-8 becomes U+FFFD. */
static int next_character(EditLine *line, wchar_t *out) {
	void *data;
	char bytes[4];
	el_get(line, EL_CLIENTDATA, &data);
	editor *e = data;
	*out = 0xfffd;
	for (size_t n = 1; n <= sizeof bytes; n++) {
		int got = next_byte(e, &bytes[n - 1]);
		if (got < 1) {
			return got;
		}
		int length = utf8_character(bytes, n);
		if (length >= 0) {
			*out = length ? decode(bytes, length) : 0xfffd;
			break;
		}
	}
	if (*out == '\r' || *out == '\n') {
		e->waiting = line_waiting();
	}
	return 1;
}

static char *prompt_of(EditLine *line) {
	void *data;
	el_get(line, EL_CLIENTDATA, &data);
	return ((editor *)data)->prompt;
}

/* ---------------------------------------------------------------------------------------------------------- history */

/* Makes the folders that a file lies in. */
static void make_folders(char *path) {
	for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		mkdir(path, 0700);
		*slash = '/';
	}
}

static void find_history(editor *e) {
	const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
	int n = state && state[0] == '/' ? snprintf(e->path, sizeof e->path, "%s/chunkkv/history", state)
	        : home && home[0] == '/' ? snprintf(e->path, sizeof e->path, "%s/.local/state/chunkkv/history", home)
	                                 : -1;
	if (n < 0 || (size_t)n >= sizeof e->path) {
		e->path[0] = '\0';
		return;
	}
	make_folders(e->path);
	int file = open(e->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600); /* what was said is nobody else's */
	if (file < 0) {
		e->path[0] = '\0';
	} else {
		close(file);
	}
}

static void open_history(editor *e) {
	enum { MOST = 1000 };
	HistEvent event;
	find_history(e);
	e->history = history_init();
	if (!e->history) {
		return;
	}
	history(e->history, &event, H_SETSIZE, MOST);
	history(e->history, &event, H_SETUNIQUE, 1);
	if (e->path[0]) {
		history(e->history, &event, H_LOAD, e->path);
	}
	el_set(e->line, EL_HIST, history, e->history);
}

static void remember(editor *e, const char *line) {
	HistEvent event;
	if (e->history && line[strspn(line, " \t\r\n")] != '\0') {
		history(e->history, &event, H_ENTER, line);
		if (e->path[0]) {
			history(e->history, &event, H_SAVE, e->path);
		}
	}
}

/* ----------------------------------------------------------------------------------------------------------- editor */

/* libedit takes the terminal's bytes for characters of the locale. */
static bool use_utf8(void) {
	static const char *const names[] = {"", "C.UTF-8", "en_US.UTF-8"};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		if (setlocale(LC_CTYPE, names[i]) && strcmp(nl_langinfo(CODESET), "UTF-8") == 0) {
			return true;
		}
	}
	setlocale(LC_CTYPE, "C");
	return false;
}

editor *editor_open(void) {
	editor *e = use_utf8() ? calloc(1, sizeof *e) : NULL;
	if (!e) {
		return NULL;
	}
	e->line = tcgetattr(STDIN_FILENO, &e->before) == 0 ? el_init("chunkkv", stdin, stderr, stderr) : NULL;
	if (!e->line) {
		free(e);
		return NULL;
	}
	el_set(e->line, EL_CLIENTDATA, e);
	el_set(e->line, EL_PROMPT, prompt_of);
	el_set(e->line, EL_EDITOR, "emacs");
	el_set(e->line, EL_GETCFN, next_character);
	/* What is typed during a reply, or pasted between two lines, is shown once it is read, not where it would stand by then.
	 */
	el_set(e->line, EL_SETTY, "-x", "-echo", NULL);
	el_set(e->line, EL_BIND, "^I", "ed-insert", NULL); /* there is nothing to complete, and pasted text has them */
	el_set(e->line, EL_BIND, "^R", "em-inc-search-prev", NULL);
	el_set(e->line, EL_BIND, "\\e[3~", "ed-delete-next-char", NULL);
	open_history(e);
	el_source(e->line, NULL); /* the user's own .editrc */
	watch_terminal();
	return e;
}

void editor_close(editor *e) {
	if (!e) {
		return;
	}
	el_end(e->line);
	tcsetattr(STDIN_FILENO, TCSADRAIN, &e->before);
	if (e->history) {
		history_end(e->history);
	}
	free(e);
}

line_status editor_line(editor *e, const char *prompt, const char **line, size_t *size, bool *waiting) {
	int n = 0;
	snprintf(e->prompt, sizeof e->prompt, "%s", prompt);
	e->waiting = false;
	const char *text = el_gets(e->line, &n);
	if (!text || n < 1) {
		return interrupted() ? LINE_INTERRUPTED : LINE_END;
	}
	remember(e, text);
	*line = text;
	*size = strcspn(text, "\r\n");
	*waiting = e->waiting;
	return LINE_READ;
}

#endif
