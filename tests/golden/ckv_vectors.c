/* Replays golden vectors: what other implementations computed, put beside what the library decides.
 *
 * usage: ckv-vectors DIR...
 *
 * DIR is a case, which is a folder with a case.json, or any folder above cases. One line for each failure; then a table of
 * what was compared and what no policy covers yet; the last line is `N passed, N failed, N skipped`. Exit status: 0 when
 * something passed and nothing failed, 1 otherwise, 2 for wrong usage. */
#define _POSIX_C_SOURCE 200809L /* scandir, stat */

#include "casefile.h"
#include "kvpress.h"
#include "tally.h"
#include "veloxquant.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_DEPTH = 16 }; /* of folders; links may make them endless */

static const struct {
	const char *kind;
	void (*replay)(const casefile *file, tally *counts);
} kinds[] = {
    {"layer", kvpress_replay_layer},      {"tables", kvpress_replay_tables}, {"evict", veloxquant_replay_stream},
    {"layers", veloxquant_replay_stream}, {"edge", veloxquant_replay_edges}, {"functions", veloxquant_replay_functions},
    {"quant", veloxquant_replay_quant},
};

/* Outputs of kinds that nothing here replays yet count as one for each case. */
static void replay_case(const char *folder, tally *counts) {
	casefile file;
	note why = {""};
	char label[TALLY_LABEL];
	if (!casefile_open(&file, folder, &why)) {
		tally_fail(counts, "case.json", (place){folder, NULL, -1.0}, why.text);
		return;
	}
	bool known = false;
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds && !known; i++) {
		known = strcmp(file.kind, kinds[i].kind) == 0;
		if (known) {
			kinds[i].replay(&file, counts);
		}
	}
	if (!known) {
		const char *method = json_string_value(json_object_get(file.root, "method"));
		snprintf(label, sizeof label, "cases of kind %s%s%s: no replay yet", file.kind, method ? ", method " : "",
		         method ? method : "");
		tally_add(counts, label, SKIPPED, 1);
	}
	casefile_close(&file);
}

static bool is_folder(const char *path) {
	struct stat info;
	return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static bool holds_case(const char *folder) {
	struct stat info;
	char *path = path_join(folder, "case.json");
	bool found = path && stat(path, &info) == 0 && S_ISREG(info.st_mode);
	free(path);
	return found;
}

static int not_hidden(const struct dirent *entry) { return entry->d_name[0] != '.'; }

static size_t walk(const char *folder, int depth, tally *counts);

/* Goes into the folders among the entries, and frees the list. */
static size_t walk_entries(const char *folder, struct dirent **entries, int n, int depth, tally *counts) {
	size_t cases = 0;
	for (int i = 0; i < n; i++) {
		char *path = path_join(folder, entries[i]->d_name);
		if (!path) {
			tally_fail(counts, "folders", (place){folder, NULL, -1.0}, "no memory");
		} else if (is_folder(path)) {
			cases += walk(path, depth + 1, counts);
		}
		free(path);
		free(entries[i]);
	}
	free(entries);
	return cases;
}

/* Replays every case in or below a folder, in order of name; returns how many there were. */
static size_t walk(const char *folder, int depth, tally *counts) {
	place here = {folder, NULL, -1.0};
	if (holds_case(folder)) {
		replay_case(folder, counts);
		return 1;
	}
	if (depth > MAX_DEPTH) {
		tally_fail(counts, "folders", here, "too many folders inside one another");
		return 0;
	}
	struct dirent **entries;
	int n = scandir(folder, &entries, not_hidden, alphasort);
	if (n < 0) {
		note why;
		note_set(&why, "this folder cannot be read: %s", strerror(errno));
		tally_fail(counts, "folders", here, why.text);
		return 0;
	}
	return walk_entries(folder, entries, n, depth, counts);
}

int main(int argc, char **argv) {
	if (argc < 2 || argv[1][0] == '-') {
		fprintf(stderr, "usage: ckv-vectors DIR...\nDIR: a folder with a case.json, or any folder above such folders\n");
		return 2;
	}
	tally counts;
	memset(&counts, 0, sizeof counts);
	for (int i = 1; i < argc; i++) {
		size_t failed = counts.total[FAILED];
		if (walk(argv[i], 0, &counts) == 0 && counts.total[FAILED] == failed) {
			tally_fail(&counts, "folders", (place){argv[i], NULL, -1.0}, "there is no case.json in or below it");
		}
	}
	tally_print(&counts);
	return tally_good(&counts) && fflush(stdout) == 0 ? 0 : 1;
}
