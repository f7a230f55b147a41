/* chunkkv inspect: what policies keep of a document, and what each layer loses by it. */
#include "cli.h"

#include "inspect.h"
#include "plan.h"

#include <stdlib.h>
#include <string.h>

typedef struct inspector {
	run_options options;
	engine engine;
	plan plan;
	inspection found;
} inspector;

/* What can be found wrong without a model. */
static bool check(inspector *s) {
	run_options *o = &s->options;
	o->out = o->out ? o->out : "inspect.html";
	o->question = o->n_questions ? o->questions[0] : ""; /* none: standard input is not asked for one */
	if (!plan_make(&s->plan, o, "10%")) {
		return false;
	}
	if (s->plan.n_policies < 2) {
		fail("--policy names none that drops anything");
		return false;
	}
	return true;
}

static bool read_prompt(inspector *s) {
	ckv_error error;
	s->engine.options = &s->options;
	if (!engine_read(&s->engine) || !engine_load(&s->engine, false)) {
		return false;
	}
	if (ckv_llama_check_model(s->engine.model, &error)) {
		fail("%s", error.message);
		return false;
	}
	return engine_prompt(&s->engine);
}

static bool tell(const inspector *s) {
	const run_options *o = &s->options;
	if (!inspect_page(&s->found, o->out)) {
		return false;
	}
	if (o->json) {
		return inspect_json(&s->found, stdout);
	}
	inspect_table(&s->found, stdout);
	if (!o->quiet) {
		printf("\npage: %s\n", o->out);
	}
	return true;
}

static int inspect(inspector *s) {
	bool good =
	    inspect_can_write(s->options.out) && read_prompt(s) && inspect_run(&s->found, &s->engine, &s->plan) && tell(s);
	inspect_free(&s->found);
	engine_free(&s->engine);
	return good ? 0 : EXIT_FAILED;
}

int cmd_inspect(int argc, char **argv) {
	inspector *s = calloc(1, sizeof *s);
	if (!s) {
		return fail("no memory");
	}
	int status = options_parse(argc, argv, &s->options, COMMAND_INSPECT);
	if (status == 0 && !check(s)) {
		status = EXIT_USAGE + 1;
	}
	if (status == 0) {
		engine_start(s->options.verbose);
		status = engine_stop(inspect(s)) + 1;
	}
	free(s);
	return status - 1;
}
