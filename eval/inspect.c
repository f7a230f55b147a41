/* One prefill that all policies observe; each compresses it; then one look at every layer, by one yardstick for all. */
#include "inspect.h"

#include "inspect_figures.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The policy that looks: its queries are what losses are measured by, its scores what chunks are weighed by. */
static const char yard_policy[] = "snapkv:window=16";
_Static_assert(YARD_WINDOW == 16, "the yardstick's text says so");

typedef struct visit {
	inspection *in;
	yardstick *yard;
	bool good; /* what ended the visit was none of our errors */
} visit;

typedef struct session {
	inspection *in;
	engine *engine;
	plan *plan;
	ckv_budget budget;
	ckv_llama *yard;
	struct llama_context *ctx;
} session;

static bool failed(const char *what, const ckv_llama *ckv) {
	fail("%s: %s", what, ckv_llama_message(ckv));
	return false;
}

static planned_policy *planned(const session *s, int32_t policy) { return &s->plan->policies[policy + 1]; } /* not "full" */

/* --------------------------------------------------------------------------------------------------------------- reading */

static bool open_context(session *s) {
	const engine *e = s->engine;
	struct llama_context_params params = engine_context_params(e, e->n_prompt, e->options->n_ubatch);
	params.type_k = params.type_v = s->plan->types[0];
	if (!plan_attach(s->plan, &params)) {
		return false;
	}
	if (ckv_llama_attach(s->yard, &params)) {
		return failed("llama.cpp can't be observed", s->yard);
	}
	s->ctx = llama_init_from_model(e->model, params);
	if (!s->ctx) {
		fail("llama.cpp could not make a context of %d cells: %s", e->n_prompt, engine_last_error());
	}
	return s->ctx;
}

static bool prefill(session *s) {
	progress p;
	progress_begin(&p, !s->engine->options->quiet);
	ckv_llama_on_progress(s->yard, progress_step, &p);
	double start = seconds();
	ckv_status status = ckv_llama_prefill(s->yard, s->ctx, 0, s->engine->prompt, s->engine->n_prompt);
	s->in->prefill_s = seconds() - start;
	progress_end(&p);
	ckv_llama_on_progress(s->yard, NULL, NULL);
	plan_observe_end(s->plan);
	if (status == CKV_ERR_CANCELLED || interrupted()) {
		return false;
	}
	return status == CKV_OK || failed("the prompt could not be read", s->yard);
}

/* ------------------------------------------------------------------------------------------------------------- choosing */

/* The layers that are compressed are the same for all policies. */
static bool take_layers(inspection *in, const ckv_llama_report *report) {
	if (in->layers) {
		return true;
	}
	in->n_layers = report->n_layers;
	in->n_window_layers = report->n_window_layers;
	in->layers = malloc(((size_t)report->n_layers + 1) * sizeof *in->layers);
	if (!in->layers || report->n_layers < 1) {
		fail(in->layers ? "the model has no layer that is compressed" : "no memory for the layers");
		return false;
	}
	memcpy(in->layers, report->layers, (size_t)report->n_layers * sizeof *in->layers);
	return true;
}

static bool copy_layer(const session *s, int32_t policy, int32_t layer) {
	const ckv_llama *ckv = planned(s, policy)->ckv;
	kept_list none = {NULL, 0}, *lists = &none;
	int32_t n = ckv_llama_positions(ckv, layer, 0, &none.positions, &none.n);
	if (n > 1) {
		lists = malloc((size_t)n * sizeof *lists);
		if (!lists) {
			fail("no memory for kept positions");
			return false;
		}
	}
	for (int32_t i = 0; i < n; i++) {
		ckv_llama_positions(ckv, layer, i, &lists[i].positions, &lists[i].n);
	}
	bool good = kept_copy(&s->in->policies[policy].kept[layer], lists, n, s->in->n_tokens);
	if (n > 1) {
		free(lists);
	}
	return good;
}

static int32_t if_used(const ckv_params *params, const char *key, int32_t value) {
	return ckv_params_use(params, key) ? value : 0;
}

static bool choose(session *s, int32_t policy) {
	planned_policy *from = planned(s, policy);
	inspected *to = &s->in->policies[policy];
	ckv_llama_report report = {.size = sizeof report};
	to->policy = from->text;
	to->params = &from->params;
	to->sinks = if_used(&from->params, "sinks", from->params.sinks);
	to->window = if_used(&from->params, "window", from->params.window);
	if (ckv_llama_extract(from->ckv, s->ctx, 0, s->budget, &report)) {
		return failed(from->text, from->ckv);
	}
	to->reason = report.reason;
	to->no_slope = report.no_slope != 0;
	to->n_cells = report.n_cells;
	to->bytes = report.bytes_after;
	to->bytes_full = report.bytes_before;
	bool good = take_layers(s->in, &report) && inspected_make(to, s->in->n_layers, s->in->n_tokens);
	for (int32_t i = 0; i < s->in->n_layers && good; i++) {
		good = copy_layer(s, policy, i);
	}
	ckv_llama_drop(from->ckv);
	if (good) {
		kept_share(to, s->in->n_layers);
	}
	return good && kept_jaccard(to, s->in->n_layers);
}

/* ------------------------------------------------------------------------------------------------------------- measuring */

static bool on_layer(int32_t number, const ckv_layer *layer, void *user) {
	visit *v = user;
	v->good = v->good && number < v->in->n_layers && yardstick_layer(v->yard, layer);
	for (int32_t i = 0; i < v->in->n_policies && v->good; i++) {
		inspected *p = &v->in->policies[i];
		v->good = yardstick_measure(v->yard, layer, &p->kept[number], p->params, p->figures[number]);
	}
	return v->good && !interrupted();
}

static bool measure(session *s) {
	yardstick yard;
	bool good = yardstick_make(&yard, yard_policy, s->engine->options->n_threads);
	if (good) {
		visit v = {s->in, &yard, true};
		ckv_status status = ckv_llama_visit_layers(s->yard, s->ctx, 0, on_layer, &v);
		good = status == CKV_OK;
		if (!good && v.good && !interrupted()) {
			failed("the layers could not be measured", s->yard);
		}
	}
	yardstick_free(&yard);
	return good;
}

/* ------------------------------------------------------------------------------------------------------------------ text */

/* The bytes of token i are appended. */
static bool add_piece(inspection *in, const engine *e, int32_t i, size_t *capacity) {
	size_t used = i ? in->ends[i - 1] : 0;
	int32_t n = -256;
	for (int tries = 0; n < 0 && tries < 2; tries++) {
		size_t room = (size_t)(n < 0 ? -n : n);
		if (used + room > *capacity) {
			size_t more = 2 * *capacity + room;
			char *text = realloc(in->text, more);
			if (!text) {
				fail("no memory for the text");
				return false;
			}
			in->text = text;
			*capacity = more;
		}
		n = llama_token_to_piece(e->vocab, e->prompt[i], in->text + used, (int32_t)room, 0, true);
	}
	in->ends[i] = used + (size_t)(n > 0 ? n : 0);
	return true;
}

static bool take_text(inspection *in, const engine *e) {
	size_t capacity = 0;
	bool good = true;
	in->ends = calloc((size_t)e->n_prompt, sizeof *in->ends);
	if (!in->ends) {
		fail("no memory for the text");
		return false;
	}
	for (int32_t i = 0; i < e->n_prompt && good; i++) {
		good = add_piece(in, e, i, &capacity);
	}
	return good;
}

/* ----------------------------------------------------------------------------------------------------------------- whole */

static bool prepare(session *s) {
	inspection *in = s->in;
	ckv_error error;
	int32_t n = s->engine->n_prompt;
	if (n <= YARD_WINDOW + YARD_CHUNK) {
		fail("the prompt has %d tokens, too few to compress: give more than %d", n, YARD_WINDOW + YARD_CHUNK);
		return false;
	}
	in->n_tokens = n;
	in->policies = calloc((size_t)in->n_policies, sizeof *in->policies);
	if (!in->policies) {
		fail("no memory for the policies");
		return false;
	}
	if (!plan_open(s->plan, s->engine->options)) {
		return false;
	}
	if (ckv_llama_create(&s->yard, yard_policy, &error)) {
		fail("%s", error.message);
		return false;
	}
	return take_text(in, s->engine);
}

static bool run_all(session *s) {
	if (!prepare(s) || !open_context(s) || !plan_observe(s->plan, s->ctx) || !prefill(s)) {
		return false;
	}
	for (int32_t i = 0; i < s->in->n_policies; i++) {
		if (!choose(s, i) || interrupted()) {
			return false;
		}
	}
	return measure(s);
}

bool inspect_run(inspection *in, engine *e, plan *all) {
	session s = {.in = in, .engine = e, .plan = all, .budget = all->keeps[0].budget};
	in->options = e->options;
	in->cache = ggml_type_name(all->types[0]);
	in->n_policies = all->n_policies - 1;
	snprintf(in->model, sizeof in->model, "%s", text_file_name(e->options->model));
	text_sanitise(in->model);
	bool good = run_all(&s);
	llama_free(s.ctx);
	plan_close(all);
	ckv_llama_free(s.yard);
	return good;
}

void inspect_free(inspection *in) {
	for (int32_t i = 0; i < in->n_policies && in->policies; i++) {
		inspected_free(&in->policies[i], in->n_layers);
	}
	free(in->policies);
	free(in->layers);
	free(in->text);
	free(in->ends);
	memset(in, 0, sizeof *in);
}
