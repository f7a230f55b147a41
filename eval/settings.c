#define _POSIX_C_SOURCE 200809L
#include "settings.h"

#include "example.h"

#include <ggml.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* -------------------------------------------------------------------------------------------------------------- hashes */

/* FNV-1a, 64 bits: a mark to tell files apart, no protection. */
static uint64_t hash_bytes(uint64_t hash, const unsigned char *data, size_t n) {
	for (size_t i = 0; i < n; i++) {
		hash = (hash ^ data[i]) * 0x100000001b3u;
	}
	return hash;
}

/* Of a file's size and content; of a long one its first and last megabyte. */
static bool hash_file(const char *path, uint64_t *hash) {
	enum { PART = 1 << 20 };
	FILE *file = fopen(path, "rb");
	unsigned char *part = malloc(PART);
	bool good = file && part && fseek(file, 0, SEEK_END) == 0;
	long size = good ? ftell(file) : 0;
	*hash = hash_bytes(0xcbf29ce484222325u, (const unsigned char *)&size, sizeof size);
	for (int end = 0; end < 2 && good; end++) {
		good = fseek(file, end && size > PART ? size - PART : 0, SEEK_SET) == 0;
		size_t n = good ? fread(part, 1, PART, file) : 0;
		*hash = hash_bytes(*hash, part, n);
	}
	if (!good) {
		fail("cannot read '%s': %s", path, file ? strerror(errno) : "it can't be opened");
	}
	free(part);
	if (file) {
		fclose(file);
	}
	return good;
}

/* ------------------------------------------------------------------------------------------------------------ settings */

typedef struct text {
	char data[2048];
	size_t size;
} text;

static void put(text *t, const char *name, const char *value) {
	int n = snprintf(t->data + t->size, sizeof t->data - t->size, "%s%s=%s", t->size ? " " : "", name, value);
	t->size = n > 0 && t->size + (size_t)n < sizeof t->data ? t->size + (size_t)n : t->size;
}

/* A text of any length, by its content. */
static void put_text(text *t, const char *name, const char *value) {
	char hash[32];
	snprintf(hash, sizeof hash, "%016llx",
	         (unsigned long long)hash_bytes(0xcbf29ce484222325u, (const unsigned char *)value, strlen(value)));
	put(t, name, strlen(value) < 64 ? value : hash);
}

static void put_number(text *t, const char *name, double value) {
	char number[32];
	snprintf(number, sizeof number, "%.10g", value);
	put(t, name, number);
}

static bool put_file(text *t, const char *name, const char *path) {
	uint64_t hash;
	char value[128];
	if (!path) {
		return true;
	}
	if (!hash_file(path, &hash)) {
		return false;
	}
	snprintf(value, sizeof value, "%.80s:%016llx", text_file_name(path), (unsigned long long)hash);
	put(t, name, value);
	return true;
}

static bool put_settings(text *t, const run_options *o) {
	put_number(t, "seed", o->seed);
	if (o->n_predict) {
		put_number(t, "n-predict", o->n_predict);
	}
	if (o->shots >= 0) {
		put_number(t, "shots", o->shots);
	}
	const struct {
		const char *name, *value;
	} texts[] = {{"chat-template", o->no_chat_template ? "none" : o->chat_template},
	             {"system", o->system},
	             {"data", o->data ? text_file_name(o->data) : NULL}};
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		if (texts[i].value) {
			put_text(t, texts[i].name, texts[i].value);
		}
	}
	return put_file(t, "file", o->document) && put_file(t, "questions", o->questions_file) &&
	       put_file(t, "prompts", o->prompts);
}

/* ------------------------------------------------------------------------------------------------------------- machine */

static void name_machine(char *out, size_t size) {
	char line[256], cpu[128] = "unknown processor";
	FILE *file = fopen("/proc/cpuinfo", "r");
	while (file && fgets(line, sizeof line, file)) {
		const char *value = strchr(line, ':');
		if (strncmp(line, "model name", 10) == 0 && value) {
			snprintf(cpu, sizeof cpu, "%.*s", (int)strcspn(value + 2, "\n"), value + 2);
			break;
		}
	}
	if (file) {
		fclose(file);
	}
	snprintf(out, size, "%s, %ld processors", cpu, sysconf(_SC_NPROCESSORS_ONLN));
}

static void name_date(char *out, size_t size) {
	time_t now = time(NULL);
	struct tm day;
	out[0] = '\0';
	if (gmtime_r(&now, &day)) {
		strftime(out, size, "%Y-%m-%d", &day);
	}
}

static void name_tasks(const run_options *o, char *out, size_t size) {
	size_t n = 0;
	for (int32_t i = 0; i < o->n_tasks && n < size; i++) {
		n += (size_t)snprintf(out + n, size - n, "%s%s", i ? " " : "", o->tasks[i]);
	}
}

bool settings_make(run_header *h, const run_options *o, const plan *all) {
	text settings = {.size = 0};
	char version[32], tasks[1024] = "", machine[192], date[32], hash[32];
	uint64_t model;
	memset(h, 0, sizeof *h);
	if (!put_settings(&settings, o) || !hash_file(o->model, &model)) {
		return false;
	}
	snprintf(version, sizeof version, "%d.%d.%d", CKV_VERSION_MAJOR, CKV_VERSION_MINOR, CKV_VERSION_PATCH);
	snprintf(hash, sizeof hash, "%016llx", (unsigned long long)model);
	name_tasks(o, tasks, sizeof tasks);
	name_machine(machine, sizeof machine);
	name_date(date, sizeof date);
	return example_set(&h->version, version) && example_set(&h->tasks, tasks) &&
	       example_set(&h->model, text_file_name(o->model)) && example_set(&h->model_hash, hash) &&
	       example_set(&h->settings, settings.data) &&
	       example_set(&h->setting, o->agnostic ? "compressed before the question" : "question in the window") &&
	       example_set(&h->reference, ggml_type_name(all->types[0])) && example_set(&h->machine, machine) &&
	       example_set(&h->date, date);
}
