#include "csv.h"

#include <stdlib.h>
#include <string.h>

/* How a field ended. */
typedef enum field_end { FIELD_COMMA, FIELD_RECORD, FIELD_FAULT } field_end;

static field_end fault(const csv *f, int32_t line, const char *what) {
	fail("%s, line %d: %s", f->path, line, what);
	return FIELD_FAULT;
}

/* At a comma, a line's end or the file's: steps over it. */
static field_end step_over(csv *f) {
	char c = f->text.data[f->at];
	if (c == '\0') {
		return FIELD_RECORD;
	}
	f->at++;
	if (c == '\r' && f->text.data[f->at] == '\n') {
		f->at++;
	}
	f->next += c != ',';
	return c == ',' ? FIELD_COMMA : FIELD_RECORD;
}

static field_end read_plain(csv *f, char **field) {
	char *from = f->text.data + f->at;
	size_t n = strcspn(from, ",\"\r\n");
	if (from[n] == '"') {
		return fault(f, f->next, "a quote inside a field that is not in quotes");
	}
	f->at += n;
	field_end end = step_over(f);
	from[n] = '\0';
	*field = from;
	return end;
}

static field_end read_quoted(csv *f, char **field) {
	const char *from = f->text.data + f->at + 1;
	char *to = f->text.data + f->at;
	int32_t line = f->next;
	*field = to;
	while (*from && (*from != '"' || from[1] == '"')) {
		f->next += *from == '\n';
		from += *from == '"'; /* two stand for one */
		*to++ = *from++;
	}
	if (!*from) {
		return fault(f, line, "a quote is opened here and never closed");
	}
	f->at = (size_t)(from + 1 - f->text.data);
	if (!strchr(",\r\n", f->text.data[f->at])) { /* the file's end is found too */
		return fault(f, f->next, "text behind a closing quote");
	}
	field_end end = step_over(f);
	*to = '\0';
	return end;
}

static field_end read_field(csv *f, char **field) {
	return f->text.data[f->at] == '"' ? read_quoted(f, field) : read_plain(f, field);
}

/* Blank lines are no records. */
static bool at_record(csv *f) {
	while (f->text.data[f->at] == '\r' || f->text.data[f->at] == '\n') {
		step_over(f);
	}
	f->line = f->next;
	return f->text.data[f->at] != '\0';
}

static bool add_name(csv *f, char *name) {
	char **bigger = realloc(f->names, (f->n_columns + 1) * sizeof *bigger);
	if (!bigger) {
		fail("no memory for the columns of '%s'", f->path);
		return false;
	}
	f->names = bigger;
	bigger[f->n_columns++] = name;
	return true;
}

static bool read_header(csv *f) {
	if (!at_record(f)) {
		fail("'%s' is empty", f->path);
		return false;
	}
	for (field_end end = FIELD_COMMA; end == FIELD_COMMA;) {
		char *name = NULL;
		end = read_field(f, &name);
		if (end == FIELD_FAULT || !add_name(f, name)) {
			return false;
		}
	}
	f->fields = calloc(f->n_columns, sizeof *f->fields);
	if (!f->fields) {
		fail("no memory for the columns of '%s'", f->path);
	}
	return f->fields != NULL;
}

bool csv_open(csv *f, const char *path) {
	*f = (csv){.path = path, .line = 1, .next = 1};
	if (!text_read(path, &f->text)) {
		return false;
	}
	if (f->text.size >= 3 && memcmp(f->text.data, "\xef\xbb\xbf", 3) == 0) {
		f->at = 3; /* a byte order mark */
	}
	if (!read_header(f)) {
		csv_close(f);
		return false;
	}
	return true;
}

int32_t csv_find(const csv *f, const char *name) {
	for (size_t i = 0; i < f->n_columns; i++) {
		if (strcmp(f->names[i], name) == 0) {
			return (int32_t)i;
		}
	}
	return -1;
}

int32_t csv_column(const csv *f, const char *name) {
	int32_t found = csv_find(f, name);
	if (found < 0) {
		fail("%s, line %d: no column '%s' in the header; the first is '%s', of %zu", f->path, f->line, name, f->names[0],
		     f->n_columns);
	}
	return found;
}

int csv_next(csv *f) {
	if (!at_record(f)) {
		return 0;
	}
	size_t n = 0;
	for (field_end end = FIELD_COMMA; end == FIELD_COMMA; n++) {
		char *field = NULL;
		end = read_field(f, &field);
		if (end == FIELD_FAULT) {
			return -1;
		}
		if (n < f->n_columns) {
			f->fields[n] = field;
		}
	}
	if (n != f->n_columns) {
		fail("%s, line %d: %zu fields where the header has %zu", f->path, f->line, n, f->n_columns);
		return -1;
	}
	return 1;
}

void csv_close(csv *f) {
	text_free(&f->text);
	free(f->names);
	free(f->fields);
	f->names = f->fields = NULL;
	f->n_columns = 0;
}
