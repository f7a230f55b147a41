/* chunkkv eval: what compressed caches lose. */
#define _POSIX_C_SOURCE 200809L
#include "cli.h"

#include "plan.h"
#include "report.h"
#include "runner.h"
#include "settings.h"
#include "table.h"
#include "task.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_GRID = 64 };

typedef struct evaluation {
	run_options options;
	engine engine;
	plan plan;
	int32_t lengths[MAX_GRID];
	double depths[MAX_GRID];
	task_options task;
	example_list examples;
	record_file file;
	char records[4096], page[4096];
} evaluation;

/* -------------------------------------------------------------------------------------------------------------- options */

static void show_tasks(void) {
	puts("\nTASKS");
	for (size_t i = 0; task_at(i); i++) {
		const task *t = task_at(i);
		printf("  %-12s %s\n", t->name, t->summary);
		if (*t->needs) {
			printf("  %-12s needs: %s\n", "", t->needs);
		}
		for (size_t j = 0; t->parts && t->parts[j]; j++) {
			printf("%s%s/%s%s", j % 4 ? " " : "               ", t->name, t->parts[j],
			       j % 4 == 3 || !t->parts[j + 1] ? "\n" : "");
		}
	}
	puts("\nSeveral tasks can be named, and parts of one: chunkkv eval niah ruler/vt ...");
}

static bool read_grid(evaluation *e) {
	double lengths[MAX_GRID];
	const run_options *o = &e->options;
	e->task = (task_options){.n_examples = o->n_examples,
	                         .seed = o->seed,
	                         .file = o->document,
	                         .questions = o->questions_file,
	                         .data = o->data,
	                         .prompts = o->prompts,
	                         .shots = o->shots,
	                         .n_predict = o->n_predict,
	                         .lengths = e->lengths,
	                         .depths = e->depths};
	if (!plan_numbers("--length", o->lengths, 32, 1 << 24, lengths, MAX_GRID, &e->task.n_lengths) ||
	    !plan_numbers("--depth", o->depths, 0, 100, e->depths, MAX_GRID, &e->task.n_depths)) {
		return false;
	}
	for (int32_t i = 0; i < e->task.n_lengths; i++) {
		e->lengths[i] = (int32_t)lengths[i];
	}
	return true;
}

static bool has_task(const evaluation *e, const char *name) {
	for (int32_t i = 0; i < e->options.n_tasks; i++) {
		if (strcmp(e->options.tasks[i], name) == 0) {
			return true;
		}
	}
	return false;
}

/* What can be found wrong without a model. */
static bool check(evaluation *e) {
	bool doc = has_task(e, "doc");
	e->options.out = e->options.out ? e->options.out : "chunkkv-eval";
	return read_grid(e) && plan_make(&e->plan, &e->options, doc ? "50%,30%,20%,10%,5%" : "30%,10%,5%");
}

/* ------------------------------------------------------------------------------------------------------------- examples */

static int32_t count_tokens(const char *text, size_t size, void *user) {
	const engine *e = user;
	token_list list = {NULL, 0};
	int32_t n = tokens_add(&list, e->vocab, text, size, false, false) ? list.size : -1;
	tokens_free(&list);
	return n;
}

static bool load_examples(evaluation *e) {
	e->task.count = count_tokens;
	e->task.user = &e->engine;
	for (int32_t i = 0; i < e->options.n_tasks; i++) {
		if (!task_load(e->options.tasks[i], &e->task, &e->examples)) {
			return false;
		}
	}
	if (e->examples.n == 0) {
		fail("there are no examples");
	}
	return e->examples.n > 0;
}

static bool open_records(evaluation *e) {
	run_header header;
	const char *out = e->options.out;
	if (mkdir(out, 0777) && errno != EEXIST) {
		fail("cannot make the folder '%s': %s", out, strerror(errno));
		return false;
	}
	if (strlen(out) > sizeof e->records - 32) {
		fail("the name of --out is too long");
		return false;
	}
	snprintf(e->records, sizeof e->records, "%s/records.jsonl", out);
	snprintf(e->page, sizeof e->page, "%s/report.html", out);
	if (!settings_make(&header, &e->options, &e->plan)) {
		run_header_free(&header);
		return false;
	}
	return records_open(&e->file, e->records, &header);
}

/* --------------------------------------------------------------------------------------------------------------- command */

static bool tell(evaluation *e) {
	table_print(&e->file, stdout);
	table_recommend(&e->file, e->options.kl_limit, stdout);
	table_saving(&e->file, stdout);
	if (!report_write(&e->file, e->page)) {
		return false;
	}
	printf("\nrecords: %s\npage:    %s\n", e->records, e->page);
	return true;
}

static int evaluate(evaluation *e) {
	e->engine.options = &e->options;
	ckv_error error;
	if (!engine_load(&e->engine, false)) {
		return EXIT_FAILED;
	}
	if (ckv_llama_check_model(e->engine.model, &error)) {
		return fail("%s", error.message);
	}
	if (!load_examples(e) || !open_records(e)) {
		return EXIT_FAILED;
	}
	bool good = runner_run(&e->options, e->engine.model, &e->plan, &e->examples, &e->file);
	if (interrupted()) {
		fprintf(stderr, "\nchunkkv: the same command goes on from here; what was found out is in %s\n", e->records);
	}
	good = good && tell(e);
	return records_close(&e->file) && good ? 0 : EXIT_FAILED;
}

int cmd_eval(int argc, char **argv) {
	evaluation *e = calloc(1, sizeof *e);
	if (!e) {
		return fail("no memory");
	}
	int status = options_parse(argc, argv, &e->options, COMMAND_EVAL);
	if (status == 1) {
		show_tasks();
	}
	if (status == 0 && !check(e)) {
		status = EXIT_USAGE + 1;
	}
	if (status == 0) {
		engine_start(e->options.verbose);
		status = evaluate(e);
		example_list_free(&e->examples);
		engine_free(&e->engine);
		status = engine_stop(status) + 1;
	}
	free(e);
	return status - 1;
}
