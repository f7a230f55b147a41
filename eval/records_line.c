/* A record, a header, a prefill as a line of JSON, and back. */
#include "records_line.h"

#include "cli.h"

#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { FORMAT_VERSION = 1 };

static const header_field fields[] = {
    {"version", offsetof(run_header, version), true},     {"tasks", offsetof(run_header, tasks), false},
    {"model", offsetof(run_header, model), true},         {"model_hash", offsetof(run_header, model_hash), true},
    {"settings", offsetof(run_header, settings), true},   {"setting", offsetof(run_header, setting), true},
    {"reference", offsetof(run_header, reference), true}, {"machine", offsetof(run_header, machine), false},
    {"date", offsetof(run_header, date), false},
};

const header_field *header_field_at(size_t i) { return i < sizeof fields / sizeof *fields ? &fields[i] : NULL; }

char **header_value(run_header *h, const header_field *field) { return (char **)(void *)((char *)h + field->offset); }

/* ---------------------------------------------------------------------------------------------------------- writing */

/* With so many significant digits that it reads short; what is no number is null. */
static json_t *real(double value, int digits) {
	char text[64];
	snprintf(text, sizeof text, "%.*g", digits, value);
	return isfinite(value) ? json_real(strtod(text, NULL)) : json_null();
}

static json_t *kl_array(const record *r) {
	json_t *array = json_array();
	for (int32_t i = 0; array && i < r->n_positions; i++) {
		json_array_append_new(array, real((double)r->kl[i], 4));
	}
	return array;
}

static json_t *same_string(const record *r) {
	char *text = malloc((size_t)r->n_positions + 1);
	for (int32_t i = 0; text && i < r->n_positions; i++) {
		text[i] = r->same[i] ? '1' : '0';
	}
	json_t *string = text ? json_stringn(text, (size_t)r->n_positions) : NULL;
	free(text);
	return string;
}

/* Takes object over; NULL when one of its n values could not be made. */
static char *dump(json_t *object, size_t n) {
	char *line = json_object_size(object) == n ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;
	json_decref(object);
	return line;
}

static json_t *string(const char *text) { return json_string(text ? text : ""); }

char *line_of_header(const run_header *h) {
	json_t *o = json_object();
	size_t n = 0;
	json_object_set_new(o, "chunkkv-eval", json_integer(FORMAT_VERSION));
	for (; header_field_at(n); n++) {
		run_header copy = *h;
		json_object_set_new(o, fields[n].name, string(*header_value(&copy, &fields[n])));
	}
	return dump(o, n + 1);
}

static void set_size(json_t *o, const char *name, uint64_t value) {
	json_object_set_new(o, name, json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value));
}

char *line_of_record(const record *r) {
	json_t *o = json_object();
	json_object_set_new(o, "example", string(r->example));
	json_object_set_new(o, "task", string(r->task));
	json_object_set_new(o, "cache", string(r->cache));
	json_object_set_new(o, "policy", string(r->policy));
	json_object_set_new(o, "keep", string(r->keep));
	json_object_set_new(o, "length", json_integer(r->length));
	json_object_set_new(o, "depth", real(r->depth, 6));
	json_object_set_new(o, "n_prompt", json_integer(r->n_prompt));
	json_object_set_new(o, "n_cells", json_integer(r->n_cells));
	set_size(o, "bytes", r->bytes);
	set_size(o, "bytes_own", r->bytes_own);
	set_size(o, "bytes_full", r->bytes_full);
	json_object_set_new(o, "score", real(r->score, 6));
	json_object_set_new(o, "exact", json_boolean(r->exact));
	json_object_set_new(o, "attention_kept", real(r->attention_kept, 6));
	json_object_set_new(o, "nll", real(r->nll, 8));
	json_object_set_new(o, "kl", kl_array(r));
	json_object_set_new(o, "same", same_string(r));
	json_object_set_new(o, "reason", string(r->reason));
	json_object_set_new(o, "answer", string(r->answer));
	json_object_set_new(o, "seconds", real(r->seconds, 6));
	return dump(o, 21);
}

char *line_of_prefill(const char *example, const char *cache, double prefill_s, double other_s, int32_t n_starts) {
	json_t *o = json_object();
	json_object_set_new(o, "prefill", string(example));
	json_object_set_new(o, "cache", string(cache));
	json_object_set_new(o, "prefill_s", real(prefill_s, 6));
	json_object_set_new(o, "other_s", real(other_s, 6));
	json_object_set_new(o, "n_starts", json_integer(n_starts));
	return dump(o, 5);
}

/* ---------------------------------------------------------------------------------------------------------- reading */

/* An object being read; the first thing that is wrong with it is told. */
typedef struct reader {
	const json_t *object;
	char *reason;
	bool good;
} reader;

__attribute__((format(printf, 2, 3))) static void complain(reader *r, const char *format, ...) {
	va_list args;
	va_start(args, format);
	if (r->good) {
		vsnprintf(r->reason, LINE_REASON_SIZE, format, args);
	}
	va_end(args);
	r->good = false;
}

static char *get_text(reader *r, const char *name) {
	const char *text = json_string_value(json_object_get(r->object, name));
	char *copy = text ? malloc(strlen(text) + 1) : NULL;
	if (copy) {
		memcpy(copy, text, strlen(text) + 1);
	} else {
		complain(r, "\"%s\" is no text", name);
	}
	return copy;
}

static uint64_t get_size(reader *r, const char *name, uint64_t most) {
	const json_t *value = json_object_get(r->object, name);
	json_int_t number = json_integer_value(value);
	if (!json_is_integer(value) || number < 0 || (uint64_t)number > most) {
		complain(r, "\"%s\" is no whole number from 0 to %llu", name, (unsigned long long)most);
		return 0;
	}
	return (uint64_t)number;
}

static int32_t get_count(reader *r, const char *name) { return (int32_t)get_size(r, name, INT32_MAX); }

/* null: NaN. */
static double get_real(reader *r, const char *name) {
	const json_t *value = json_object_get(r->object, name);
	if (json_is_null(value)) {
		return (double)NAN;
	}
	if (!json_is_number(value)) {
		complain(r, "\"%s\" is no number", name);
	}
	return json_number_value(value);
}

static void get_kl(reader *r, record *to) {
	const json_t *array = json_object_get(r->object, "kl");
	size_t n = json_array_size(array);
	to->kl = n && n < INT32_MAX ? malloc(n * sizeof *to->kl) : NULL;
	if (!json_is_array(array) || (n && !to->kl)) {
		complain(r, "\"kl\" is no list");
		return;
	}
	to->n_positions = (int32_t)n;
	for (size_t i = 0; i < n; i++) {
		const json_t *value = json_array_get(array, i);
		if (!json_is_number(value) && !json_is_null(value)) {
			complain(r, "\"kl\" has something that is no number");
		}
		to->kl[i] = json_is_null(value) ? NAN : (float)json_number_value(value);
	}
}

static void get_same(reader *r, record *to) {
	const char *text = json_string_value(json_object_get(r->object, "same"));
	size_t n = (size_t)to->n_positions;
	if (!text || strlen(text) != n || strspn(text, "01") != n) {
		complain(r, "\"same\" is no text of %zu digits 0 and 1, one for each number of \"kl\"", n);
		return;
	}
	to->same = n ? malloc(n) : NULL;
	if (n && !to->same) {
		complain(r, "no memory for \"same\"");
		return;
	}
	for (size_t i = 0; i < n; i++) {
		to->same[i] = text[i] == '1';
	}
}

static void get_sizes(reader *r, record *to) {
	to->length = get_count(r, "length");
	to->n_prompt = get_count(r, "n_prompt");
	to->n_cells = get_count(r, "n_cells");
	to->bytes = get_size(r, "bytes", INT64_MAX);
	to->bytes_own = get_size(r, "bytes_own", INT64_MAX);
	to->bytes_full = get_size(r, "bytes_full", INT64_MAX);
}

static void get_figures(reader *r, record *to) {
	const json_t *exact = json_object_get(r->object, "exact");
	to->depth = get_real(r, "depth");
	to->score = get_real(r, "score");
	to->attention_kept = get_real(r, "attention_kept");
	to->nll = get_real(r, "nll");
	to->seconds = get_real(r, "seconds");
	to->exact = json_is_true(exact);
	if (!json_is_boolean(exact)) {
		complain(r, "\"exact\" is neither true nor false");
	}
	get_kl(r, to);
	get_same(r, to);
}

static bool read_record(reader *r, record_list *list) {
	record new = {.n_positions = 0};
	new.example = get_text(r, "example");
	new.task = get_text(r, "task");
	new.cache = get_text(r, "cache");
	new.policy = get_text(r, "policy");
	new.keep = get_text(r, "keep");
	new.reason = get_text(r, "reason");
	new.answer = get_text(r, "answer");
	get_sizes(r, &new);
	get_figures(r, &new);
	if (!r->good) {
		record_free(&new);
	} else if (!record_list_add(list, &new)) {
		complain(r, "no memory");
	}
	return r->good;
}

void prefill_count(record_file *f, double prefill_s, double other_s, int32_t n_starts) {
	f->prefill_s += prefill_s;
	f->other_s += other_s;
	f->apart_s += prefill_s * n_starts;
	f->n_prefills++;
	f->n_starts = n_starts > INT32_MAX - f->n_starts ? INT32_MAX : f->n_starts + n_starts;
}

static bool read_prefill(reader *r, record_file *f) {
	double prefill_s = get_real(r, "prefill_s"), other_s = get_real(r, "other_s");
	int32_t n_starts = get_count(r, "n_starts");
	if (r->good) {
		prefill_count(f, prefill_s, other_s, n_starts);
	}
	return r->good;
}

static bool read_header(reader *r, run_header *h) {
	const json_t *version = json_object_get(r->object, "chunkkv-eval");
	if (!json_is_integer(version)) {
		complain(r, "it is no record file of chunkkv eval");
	} else if (json_integer_value(version) != FORMAT_VERSION) {
		complain(r, "it is of format %lld, and this chunkkv reads format %d", (long long)json_integer_value(version),
		         FORMAT_VERSION);
	}
	for (size_t i = 0; r->good && header_field_at(i); i++) {
		*header_value(h, &fields[i]) = get_text(r, fields[i].name);
	}
	return r->good;
}

bool line_read(record_file *f, const char *line, size_t size, bool first, char reason[LINE_REASON_SIZE]) {
	json_error_t error;
	json_t *object = json_loadb(line, size, JSON_REJECT_DUPLICATES, &error);
	reader r = {object, reason, true};
	if (!object) {
		complain(&r, "%s", error.text);
	} else if (!json_is_object(object)) {
		complain(&r, "it is no JSON object");
	} else if (first) {
		read_header(&r, &f->header);
	} else if (json_object_get(object, "prefill")) {
		read_prefill(&r, f);
	} else {
		read_record(&r, &f->records);
	}
	json_decref(object);
	return r.good;
}
