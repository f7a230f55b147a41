/* Lines of standard input: edited on a terminal, else as they come. */
#define _POSIX_C_SOURCE 200809L
#include "chat.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void line_open(line_reader *r) {
	memset(r, 0, sizeof *r);
	r->terminal = isatty(STDIN_FILENO) != 0;
	r->editor = r->terminal && isatty(STDERR_FILENO) ? editor_open() : NULL;
}

void line_close(line_reader *r) {
	editor_close(r->editor);
	free(r->line);
	memset(r, 0, sizeof *r);
}

bool line_waiting(void) {
	enum { MOMENT = 30 }; /* milliseconds: what is pasted comes at once, what is typed does not */
	struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
	return poll(&input, 1, MOMENT) > 0 && (input.revents & POLLIN);
}

static line_status plain_line(line_reader *r, const char *prompt, size_t *size) {
	if (r->terminal) {
		fputs(prompt, stderr);
	}
	errno = 0;
	ssize_t n = getline(&r->line, &r->capacity, stdin);
	if (n < 0) {
		clearerr(stdin);
		return interrupted() ? LINE_INTERRUPTED : LINE_END;
	}
	n -= n > 0 && r->line[n - 1] == '\n';
	n -= n > 0 && r->line[n - 1] == '\r';
	r->line[n] = '\0';
	*size = (size_t)n;
	r->waiting = r->terminal && line_waiting();
	return LINE_READ;
}

static bool keep_line(line_reader *r, const char *line, size_t size) {
	char *bigger = size + 1 > r->capacity ? realloc(r->line, size + 1) : r->line;
	if (!bigger) {
		fail("no memory for a line of %zu bytes", size);
		return false;
	}
	r->capacity = size + 1 > r->capacity ? size + 1 : r->capacity;
	r->line = bigger;
	memcpy(r->line, line, size);
	r->line[size] = '\0';
	return true;
}

line_status line_next(line_reader *r, const char *prompt, size_t *size) {
	const char *line;
	if (!r->editor) {
		return plain_line(r, prompt, size);
	}
	line_status status = editor_line(r->editor, prompt, &line, size, &r->waiting);
	return status == LINE_READ && !keep_line(r, line, *size) ? LINE_END : status;
}
