/* Messages: a line, or several that belong together. */
#include "chat.h"

#include <stdlib.h>
#include <string.h>

static const char fence[] = "\"\"\"";

static bool append(buffer *message, const char *text, size_t size) {
	char *bigger = realloc(message->data, message->size + size + 1);
	if (!bigger) {
		fail("no memory for a message of %zu bytes", message->size + size);
		return false;
	}
	memcpy(bigger + message->size, text, size);
	message->data = bigger;
	message->size += size;
	message->data[message->size] = '\0';
	return true;
}

static bool is_fence(const char *line) {
	size_t indent = strspn(line, " \t");
	const char *rest = line + indent + strlen(fence);
	return strncmp(line + indent, fence, strlen(fence)) == 0 && rest[strspn(rest, " \t")] == '\0';
}

/* Up to the closing fence, or the end of the input. */
static line_status read_block(line_reader *r, buffer *message) {
	size_t size;
	line_status status;
	for (bool first = true; (status = line_next(r, "| ", &size)) == LINE_READ && !is_fence(r->line); first = false) {
		if ((!first && !append(message, "\n", 1)) || !append(message, r->line, size)) {
			return LINE_END;
		}
	}
	return status == LINE_END && message->size ? LINE_READ : status;
}

/* Lines that end in a backslash go on; so do those that were waiting when one was read. */
static line_status read_lines(line_reader *r, size_t size, buffer *message) {
	line_status status = LINE_READ;
	while (status == LINE_READ) {
		bool goes_on = size > 0 && r->line[size - 1] == '\\';
		if (!append(message, r->line, size - goes_on)) {
			return LINE_END;
		}
		if (!goes_on && !r->waiting) {
			return LINE_READ;
		}
		status = line_next(r, "| ", &size);
		if (status == LINE_READ && !append(message, "\n", 1)) {
			return LINE_END;
		}
	}
	return status == LINE_END && message->size ? LINE_READ : status;
}

line_status input_next(line_reader *r, buffer *message) {
	size_t size;
	text_free(message);
	line_status status = line_next(r, "> ", &size);
	if (status != LINE_READ) {
		return status;
	}
	if (is_fence(r->line)) {
		return read_block(r, message);
	}
	bool command = r->line[0] == '/' && r->line[1] != '/';
	if (command) {
		return append(message, r->line, size) ? LINE_READ : LINE_END;
	}
	return read_lines(r, size, message);
}
