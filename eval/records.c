/* The file of records: opened, checked, gone on with. */
#define _POSIX_C_SOURCE 200809L
#include "records.h"

#include "cli.h"
#include "records_line.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void run_header_free(run_header *h) {
	for (size_t i = 0; header_field_at(i); i++) {
		free(*header_value(h, header_field_at(i)));
	}
	memset(h, 0, sizeof *h);
}

static void records_drop(record_file *f) {
	run_header_free(&f->header);
	record_list_free(&f->records);
	if (f->file) {
		fclose(f->file);
	}
	memset(f, 0, sizeof *f);
}

bool records_close(record_file *f) {
	const char *path = f->path;
	bool good = !f->file || (fflush(f->file) == 0 && !ferror(f->file));
	if (f->file && fclose(f->file) != 0) {
		good = false;
	}
	f->file = NULL;
	records_drop(f);
	if (!good) {
		fail("%s: %s", path, strerror(errno));
	}
	return good;
}

/* ---------------------------------------------------------------------------------------------------------- reading */

/* What is read of a file: its whole lines. */
typedef struct lines_read {
	long n_lines;
	off_t good;   /* bytes of whole lines */
	bool cut_off; /* there is a piece of a line behind them */
} lines_read;

/* Could it be the beginning of a record file? Another file of one piece is not to be overwritten. */
static bool may_be_header(const char *piece, size_t size) {
	static const char start[] = "{\"chunkkv-eval\":";
	return strncmp(piece, start, size < sizeof start - 1 ? size : sizeof start - 1) == 0;
}

static bool read_lines(record_file *f, lines_read *read) {
	char *line = NULL, reason[LINE_REASON_SIZE];
	size_t capacity = 0;
	bool good = true;
	ssize_t size = 0;
	while (good && (size = getline(&line, &capacity, f->file)) > 0) {
		read->cut_off = line[size - 1] != '\n';
		if (!read->cut_off) {
			good = line_read(f, line, (size_t)size - 1, ++read->n_lines == 1, reason);
			read->good += size;
		} else if (!read->n_lines && !may_be_header(line, (size_t)size)) {
			good = false;
			read->n_lines = 1;
			snprintf(reason, sizeof reason, "it is no record file of chunkkv eval");
		}
	}
	free(line);
	if (!good) {
		fail("%s:%ld: %s; mend or remove the line, or choose another --out", f->path, read->n_lines, reason);
	} else if (ferror(f->file)) {
		good = false;
		fail("%s: %s", f->path, strerror(errno));
	}
	return good;
}

/* Opens and reads; f->file stays open. A file that isn't there: f->file is NULL. */
static bool read_file(record_file *f, const char *path, const char *mode, lines_read *read) {
	memset(f, 0, sizeof *f);
	f->path = path;
	f->file = fopen(path, mode);
	if (!f->file && errno != ENOENT) {
		fail("%s: %s", path, strerror(errno));
		return false;
	}
	return !f->file || read_lines(f, read);
}

bool records_read(record_file *f, const char *path) {
	lines_read read = {0, 0, false};
	bool good = read_file(f, path, "r", &read);
	if (good && !f->file) {
		good = false;
		fail("%s: %s", path, strerror(ENOENT));
	} else if (good && !read.n_lines) {
		good = false;
		fail("%s: it has no records", path);
	}
	if (good && read.cut_off) {
		fprintf(stderr, "%s: the last line is incomplete and left out\n", path);
	}
	if (!good) {
		records_drop(f);
	}
	return good;
}

/* ------------------------------------------------------------------------------------------------------------ going on */

/* Is the file of the same run as h? */
static bool same_run(record_file *f, run_header *h) {
	for (size_t i = 0; header_field_at(i); i++) {
		const header_field *field = header_field_at(i);
		const char *had = *header_value(&f->header, field), *is = *header_value(h, field);
		is = is ? is : "";
		if (field->compared && strcmp(had, is) != 0) {
			fail("%s is of another run: its %s is \"%s\", and now it is \"%s\"; choose another --out, or give what that run "
			     "was "
			     "given",
			     f->path, field->name, had, is);
			return false;
		}
	}
	return true;
}

/* A whole line, or an error: flushed, so that a kill cuts off one line at most. Frees it. */
static bool write_line(record_file *f, char *line) {
	bool made = line != NULL;
	bool good = made && fputs(line, f->file) >= 0 && fputc('\n', f->file) != EOF && fflush(f->file) == 0;
	free(line);
	if (!made) {
		fail("%s: no memory for a record, or a text in it is not UTF-8", f->path);
	} else if (!good) {
		fail("%s: %s", f->path, strerror(errno));
	}
	return good;
}

/* Where the next line begins: behind the last whole one. */
static bool cut_off(record_file *f, const lines_read *read) {
	if (read->cut_off) {
		fprintf(stderr, "%s: the last line is incomplete and dropped\n", f->path);
	}
	if ((read->cut_off && ftruncate(fileno(f->file), read->good) != 0) || fseeko(f->file, read->good, SEEK_SET) != 0) {
		fail("%s: %s", f->path, strerror(errno));
		return false;
	}
	return true;
}

static bool begin(record_file *f, run_header *h) {
	f->header = *h;
	memset(h, 0, sizeof *h);
	return write_line(f, line_of_header(&f->header));
}

static bool open_or_make(record_file *f, const char *path, run_header *h) {
	lines_read read = {0, 0, false};
	if (!read_file(f, path, "r+", &read)) {
		return false;
	}
	if (!f->file && !(f->file = fopen(path, "wx"))) {
		fail("%s: %s", path, strerror(errno));
		return false;
	}
	/* What differs is told before anything is changed. */
	return (!read.n_lines || same_run(f, h)) && cut_off(f, &read) && (read.n_lines || begin(f, h));
}

bool records_open(record_file *f, const char *path, run_header *header) {
	bool good = open_or_make(f, path, header);
	run_header_free(header);
	if (!good) {
		records_drop(f);
	}
	return good;
}

bool records_add(record_file *f, record *r) {
	char *line = line_of_record(r), reason[LINE_REASON_SIZE] = "";
	record_free(r);
	/* As it will be read another time, so that the same file always gives the same figures. */
	if (line && !line_read(f, line, strlen(line), false, reason)) {
		fail("%s: a record could not be taken over: %s", f->path, reason);
		free(line);
		return false;
	}
	return write_line(f, line);
}

bool records_add_prefill(record_file *f, const char *example, const char *cache, double prefill_s, double other_s,
                         int32_t n_starts) {
	if (!write_line(f, line_of_prefill(example, cache, prefill_s, other_s, n_starts))) {
		return false;
	}
	prefill_count(f, prefill_s, other_s, n_starts);
	return true;
}
