#include "runner.h"

#include "metric.h"
#include "reading.h"

#include <ggml.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The whole cache's answer, which all others are compared to. */
typedef struct reference {
	llama_token *tokens; /* [n] its end of generation, if it came to that, among them; or the forced text */
	int32_t n, capacity;
	float *logits; /* [n][n_vocab] before each token */
	int32_t *best; /* [n] the most likely token there */
} reference;

typedef struct run {
	const run_options *options;
	struct llama_model *model;
	int32_t n_vocab;
	plan *plan;
	const example_list *examples;
	record_file *file;
	reading readings[MAX_TYPES];
	int32_t cells, judged; /* that the longest prompts need */
	const example *example;
	prompt prompt;
	reference ref;
	bool have_ref;
	double start, work_done, work_all; /* for the time left */
} run;

/* ----------------------------------------------------------------------------------------------------- distributions */

static int32_t best_token(const float *logits, int32_t n) {
	int32_t at = 0;
	for (int32_t i = 1; i < n; i++) {
		at = logits[i] > logits[at] ? i : at;
	}
	return at;
}

static double nll_of(const float *logits, int32_t n, llama_token token) {
	double max = (double)logits[best_token(logits, n)], sum = 0.0;
	for (int32_t i = 0; i < n; i++) {
		sum += exp((double)logits[i] - max);
	}
	return max + log(sum) - (double)logits[token];
}

/* What one cache shows along the reference's answer. */
typedef struct walk {
	run *run;
	record *record;
	int32_t *best; /* [n] its own most likely tokens */
	double nll;
} walk;

static void keep_logits(int32_t i, const float *logits, void *user) {
	walk *w = user;
	reference *ref = &w->run->ref;
	size_t n = (size_t)w->run->n_vocab;
	memcpy(ref->logits + (size_t)i * n, logits, n * sizeof *logits);
	ref->best[i] = best_token(logits, w->run->n_vocab);
	w->nll += w->run->prompt.forced ? nll_of(logits, w->run->n_vocab, ref->tokens[i]) : 0.0;
}

static void compare_logits(int32_t i, const float *logits, void *user) {
	walk *w = user;
	const reference *ref = &w->run->ref;
	size_t n = (size_t)w->run->n_vocab;
	divergence d = {0};
	divergence_add(&d, ref->logits + (size_t)i * n, logits, w->run->n_vocab);
	w->record->kl[i] = (float)d.sum;
	w->record->same[i] = (uint8_t)d.n_same;
	w->best[i] = best_token(logits, w->run->n_vocab);
	w->nll += w->run->prompt.forced ? nll_of(logits, w->run->n_vocab, ref->tokens[i]) : 0.0;
}

/* ---------------------------------------------------------------------------------------------------------- answers */

static int32_t most_tokens(const run *r) {
	const prompt *p = &r->prompt;
	return p->forced ? p->n_forced : r->example->n_predict;
}

static bool make_room(run *r, int32_t n) {
	reference *ref = &r->ref;
	if (n > ref->capacity) {
		size_t floats = (size_t)n * (size_t)r->n_vocab;
		free(ref->tokens);
		free(ref->best);
		free(ref->logits);
		ref->tokens = malloc((size_t)n * sizeof *ref->tokens);
		ref->best = malloc((size_t)n * sizeof *ref->best);
		ref->logits = malloc(floats * sizeof *ref->logits);
		ref->capacity = n;
	}
	if (!ref->tokens || !ref->best || !ref->logits) {
		fail("no memory for the distributions of %d tokens", n);
		ref->capacity = 0;
		return false;
	}
	return true;
}

static void take_best(int32_t i, const float *logits, void *user) {
	(void)i;
	walk *w = user;
	w->best[0] = best_token(logits, w->run->n_vocab);
}

/* Greedy, from tokens[*n] that are known: decodes them behind the prompt, then goes on to the end of the answer. */
static bool go_on(run *r, reading *in, llama_token *tokens, int32_t *n) {
	const prompt *p = &r->prompt;
	llama_token next = 0;
	walk w = {r, NULL, &next, 0.0};
	bool good = reading_decode(in, p->base, p->follow, p->n_follow, tokens, *n, take_best, &w);
	while (good && *n < most_tokens(r) && !interrupted()) {
		tokens[(*n)++] = next;
		if (llama_vocab_is_eog(p->engine.vocab, next) || *n == most_tokens(r)) {
			break;
		}
		good = reading_decode(in, p->base + p->n_follow + *n - 1, &next, 1, NULL, 0, take_best, &w);
	}
	return good && !interrupted();
}

/* The answer's text to the record, and what it is worth. */
static bool judge(run *r, const llama_token *tokens, int32_t n, record *out) {
	answer a = {0};
	bool good = true;
	for (int32_t i = 0; i < n && good; i++) {
		good = answer_add(&a, r->prompt.engine.vocab, tokens[i], NULL);
	}
	good = good && answer_end(&a, NULL) && example_set(&out->answer, a.text ? a.text : "");
	if (good && r->example->metric) {
		out->score = r->example->metric->judge(r->example, out->answer);
	}
	answer_free(&a);
	return good;
}

/* The whole cache: its answer, and the distributions along it, decoded in the same batches as all others will be. */
static bool make_reference(run *r, reading *in, record *out) {
	const prompt *p = &r->prompt;
	reference *ref = &r->ref;
	ref->n = 0;
	if (!make_room(r, most_tokens(r))) {
		return false;
	}
	if (p->forced) {
		memcpy(ref->tokens, p->forced, (size_t)p->n_forced * sizeof *p->forced);
		ref->n = p->n_forced;
	} else if (!go_on(r, in, ref->tokens, &ref->n) || !reading_again(in, &r->plan->policies[0])) {
		return false;
	}
	walk w = {r, NULL, NULL, 0.0};
	if (!reading_decode(in, p->base, p->follow, p->n_follow, ref->tokens, ref->n - 1, keep_logits, &w)) {
		return false;
	}
	r->have_ref = true;
	out->exact = true;
	out->nll = p->forced ? w.nll / ref->n : (double)NAN;
	return p->forced ? example_set(&out->answer, "") : judge(r, ref->tokens, ref->n, out);
}

/* Another cache's own answer: the reference's as long as it would have said the same, then its own. */
static bool answer_alone(run *r, reading *in, planned_policy *policy, const int32_t *best, record *out) {
	const reference *ref = &r->ref;
	int32_t n = 0;
	while (n < ref->n && best[n] == ref->best[n]) {
		n++;
	}
	out->exact = n == ref->n;
	if (out->exact) {
		return judge(r, ref->tokens, ref->n, out);
	}
	llama_token *tokens = malloc((size_t)most_tokens(r) * sizeof *tokens);
	if (!tokens) {
		fail("no memory for an answer");
		return false;
	}
	memcpy(tokens, ref->tokens, (size_t)n * sizeof *tokens);
	tokens[n] = best[n];
	n++;
	bool ended = llama_vocab_is_eog(r->prompt.engine.vocab, tokens[n - 1]) || n == most_tokens(r);
	bool good = ended || (reading_again(in, policy) && go_on(r, in, tokens, &n));
	good = good && judge(r, tokens, n, out);
	free(tokens);
	return good;
}

static bool compare(run *r, reading *in, planned_policy *policy, record *out) {
	const prompt *p = &r->prompt;
	const reference *ref = &r->ref;
	out->kl = malloc((size_t)ref->n * sizeof *out->kl);
	out->same = malloc((size_t)ref->n * sizeof *out->same);
	int32_t *best = malloc((size_t)ref->n * sizeof *best);
	walk w = {r, out, best, 0.0};
	bool good = out->kl && out->same && best;
	if (!good) {
		fail("no memory for a comparison");
	}
	good = good && reading_decode(in, p->base, p->follow, p->n_follow, ref->tokens, ref->n - 1, compare_logits, &w);
	for (int32_t i = 0; i < ref->n && good; i++) {
		if (!isfinite(out->kl[i])) {
			fail("%s, %s, %s: the distribution of token %d of the answer is not finite", r->example->id, policy->text,
			     out->keep, i + 1);
			good = false;
		}
	}
	out->n_positions = good ? ref->n : 0;
	out->nll = p->forced ? w.nll / ref->n : (double)NAN;
	good = good && (p->forced ? example_set(&out->answer, "") : answer_alone(r, in, policy, best, out));
	free(best);
	return good;
}

/* ----------------------------------------------------------------------------------------------------------- records */

static bool fill_names(const run *r, enum ggml_type type, const char *policy, const char *keep, record *out) {
	const example *e = r->example;
	memset(out, 0, sizeof *out);
	out->length = e->length;
	out->depth = e->depth;
	out->score = (double)NAN;
	out->attention_kept = -1.0;
	return example_set(&out->example, e->id) && example_set(&out->task, e->task) &&
	       example_set(&out->cache, ggml_type_name(type)) && example_set(&out->policy, policy) &&
	       example_set(&out->keep, keep);
}

/* Bytes of a token's rows in the type of the reference, in proportion to this type's. */
static double type_ratio(const run *r, enum ggml_type type) {
	enum { BLOCK = 256 };
	return (double)ggml_row_size(r->plan->types[0], BLOCK) / (double)ggml_row_size(type, BLOCK);
}

static bool fill_report(const run *r, enum ggml_type type, const ckv_llama_report *report, record *out) {
	out->n_prompt = r->prompt.base + r->prompt.n_follow;
	out->n_cells = report->n_cells;
	out->bytes = report->bytes_after;
	out->bytes_own = report->bytes_ragged;
	out->bytes_full = (uint64_t)((double)report->bytes_before * type_ratio(r, type) + 0.5);
	out->attention_kept = (double)report->attention_kept;
	return example_set(&out->reason, report->reason == CKV_SELECTED ? "" : ckv_reason_text(report->reason));
}

static bool known(const run *r, enum ggml_type type, const char *policy, const char *keep) {
	return records_find(&r->file->records, r->example->id, ggml_type_name(type), policy, keep);
}

static bool one_cache(run *r, int type_number, int policy, const planned_keep *keep) {
	enum ggml_type type = r->plan->types[type_number];
	reading *in = &r->readings[type_number];
	planned_policy *chosen = &r->plan->policies[policy];
	ckv_llama_report report;
	record out;
	double start = seconds();
	bool is_reference = type_number == 0 && policy == 0;
	bool good = fill_names(r, type, chosen->text, keep->text, &out) &&
	            reading_compress(in, &r->prompt, chosen, keep->budget, &report) && fill_report(r, type, &report, &out) &&
	            (is_reference ? make_reference(r, in, &out) : compare(r, in, chosen, &out));
	if (good && ckv_llama_check(chosen->ckv)) {
		fail("%s: %s", chosen->text, ckv_llama_message(chosen->ckv));
		good = false;
	}
	out.seconds = seconds() - start;
	ckv_llama_drop(chosen->ckv);
	ckv_llama_leave(chosen->ckv);
	if (good && !known(r, type, chosen->text, keep->text)) {
		return records_add(r->file, &out);
	}
	record_free(&out); /* failed; or made once more for its distributions, in a run that goes on */
	return good;
}

/* ------------------------------------------------------------------------------------------------------------- loops */

static const planned_keep whole = {"100%", {CKV_BUDGET_PERCENT, 100.0}};

/* Caches of a type that the file has not yet. */
static int32_t count_missing(const run *r, int type) {
	int32_t n = !known(r, r->plan->types[type], r->plan->policies[0].text, whole.text);
	for (int i = 1; i < r->plan->n_policies; i++) {
		for (int j = 0; j < r->plan->n_keeps; j++) {
			n += plan_has(r->plan, i, type) &&
			     !known(r, r->plan->types[type], r->plan->policies[i].text, r->plan->keeps[j].text);
		}
	}
	return n;
}

static bool each_cache(run *r, int type, int32_t *n_made) {
	const plan *p = r->plan;
	bool good = true;
	for (int i = 1; i < p->n_policies && good; i++) {
		for (int j = 0; j < p->n_keeps && good; j++) {
			if (plan_has(p, i, type) && !known(r, p->types[type], p->policies[i].text, p->keeps[j].text)) {
				good = one_cache(r, type, i, &p->keeps[j]) && !interrupted();
				(*n_made)++;
			}
		}
	}
	return good;
}

static bool one_type(run *r, int type) {
	reading *in = &r->readings[type];
	const plan *p = r->plan;
	if (!in->judge && !reading_open(in, &r->prompt, r->plan, p->types[type], r->cells, r->judged)) {
		return false;
	}
	double start = seconds();
	if (!reading_read(in, &r->prompt, r->plan)) {
		return false;
	}
	double prefill_s = seconds() - start;
	int32_t n_made = 0;
	bool whole_wanted = (type == 0 && !r->have_ref) || !known(r, p->types[type], p->policies[0].text, whole.text);
	start = seconds();
	bool good = !whole_wanted || one_cache(r, type, 0, &whole);
	n_made += whole_wanted;
	good = good && each_cache(r, type, &n_made);
	return good && records_add_prefill(r->file, r->example->id, ggml_type_name(p->types[type]), prefill_s, seconds() - start,
	                                   n_made);
}

static bool one_example(run *r) {
	bool missing[MAX_TYPES] = {false}, any = false;
	for (int t = 0; t < r->plan->n_types; t++) {
		missing[t] = count_missing(r, t) > 0;
		any = any || missing[t];
	}
	r->have_ref = false;
	bool good = true;
	for (int t = 0; t < r->plan->n_types && any && good; t++) {
		if (t == 0 || missing[t]) { /* the reference is needed by all */
			good = one_type(r, t);
		}
	}
	return good;
}

/* ---------------------------------------------------------------------------------------------------------- progress */

static void show_progress(const run *r, int32_t done) {
	double spent = seconds() - r->start, left = r->work_done > 0 ? spent * (r->work_all / r->work_done - 1.0) : 0.0;
	bool terminal = isatty(STDERR_FILENO);
	if (r->options->quiet) {
		return;
	}
	fprintf(stderr, "%s%d of %d examples, %d:%02d so far, about %d:%02d left%s", terminal ? "\r\x1b[K" : "", done,
	        r->examples->n, (int)spent / 60, (int)spent % 60, (int)left / 60, (int)left % 60,
	        terminal && done < r->examples->n ? "" : "\n");
	fflush(stderr);
}

/* Reading, and answering from every cache: in units of a token read. */
static double work_of(const run *r, int32_t n_prompt, int32_t n_missing) {
	enum { ANSWER = 100 };
	return n_missing ? (double)n_prompt * r->plan->n_types + (double)n_missing * ANSWER : 0.0;
}

static int32_t missing_of(run *r, const example *e) {
	int32_t n = 0;
	r->example = e;
	for (int t = 0; t < r->plan->n_types; t++) {
		n += count_missing(r, t);
	}
	return n;
}

static void note_length(const run *r) {
	int32_t trained = llama_model_n_ctx_train(r->model), most = r->judged - 1;
	if (trained > 0 && most > trained && !r->options->quiet) {
		fprintf(stderr, "note: prompts and answers reach %d tokens; the model was trained for %d\n", most, trained);
	}
}

/* Everything is turned into tokens once beforehand: what can't be is told before hours have gone by. */
static bool look_ahead(run *r, double *work) {
	for (int32_t i = 0; i < r->examples->n; i++) {
		const example *e = &r->examples->items[i];
		bool good = prompt_make(&r->prompt, r->options, r->model, e);
		if (good) {
			int32_t n = r->prompt.engine.n_prompt;
			int32_t judged = r->prompt.base + r->prompt.n_follow + (e->forced ? r->prompt.n_forced : e->n_predict) + 1;
			r->cells = n > r->cells ? n : r->cells;
			r->judged = judged > r->judged ? judged : r->judged;
			work[i] = work_of(r, n, missing_of(r, e));
			r->work_all += work[i];
		}
		prompt_free(&r->prompt);
		if (!good) {
			return false;
		}
	}
	note_length(r);
	return true;
}

static bool run_all(run *r, const double *work) {
	bool good = true;
	for (int32_t i = 0; i < r->examples->n && good; i++) {
		r->example = &r->examples->items[i];
		if (work[i] <= 0.0) {
			continue;
		}
		good = prompt_make(&r->prompt, r->options, r->model, r->example) && one_example(r);
		prompt_free(&r->prompt);
		r->work_done += work[i];
		if (good) {
			show_progress(r, i + 1);
		}
	}
	return good;
}

bool runner_run(const run_options *options, struct llama_model *model, plan *p, const example_list *examples,
                record_file *file) {
	run r = {.options = options, .model = model, .plan = p, .examples = examples, .file = file, .start = seconds()};
	r.n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
	double *work = calloc((size_t)examples->n + 1, sizeof *work);
	if (!work) {
		fail("no memory for %d examples", examples->n);
		return false;
	}
	bool good = look_ahead(&r, work) && plan_open(p, options) && run_all(&r, work);
	for (int t = 0; t < p->n_types; t++) {
		reading_close(&r.readings[t]);
	}
	plan_close(p);
	free(r.ref.tokens);
	free(r.ref.best);
	free(r.ref.logits);
	free(work);
	return good;
}
