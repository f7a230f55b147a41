/* The prompt around a context. */
#include "ruler.h"

#include <stdlib.h>
#include <string.h>

/* The wording of an example, filled in but for the context. */
typedef struct frame {
	draft before, question, begun;
} frame;

static void frame_free(frame *f) {
	draft_free(&f->before);
	draft_free(&f->question);
	draft_free(&f->begun);
}

static void frame_fill(const ruler_job *job, const placeholder *values, bool one, frame *f) {
	const wording *w = &job->templates->kinds[job->part->kind];
	const char *prompt = one && w->prompt_one ? w->prompt_one : w->prompt;
	const char *begun = one && w->prompt_one ? w->begun_one : w->begun;
	const char *behind = template_behind(prompt);
	template_fill(&f->before, prompt, template_before(prompt), values);
	template_fill(&f->question, behind, strlen(behind), values);
	if (begun) {
		template_fill(&f->begun, begun, strlen(begun), values);
	}
}

/* Puts what comes before the context before it. */
typedef struct whole {
	const frame *frame;
	const ruler_context *context;
} whole;

static bool write_whole(void *writer, int32_t n, draft *out) {
	const whole *w = writer;
	draft_add(out, w->context->worked ? w->context->worked : "");
	draft_add(out, draft_text(&w->frame->before));
	return w->context->write(w->context->writer, n, out);
}

static int32_t count(const ruler_job *job, const draft *text) {
	return text->size > 0 ? job->options->count(text->data, text->size, job->options->user) : 0;
}

static bool set_texts(const ruler_job *job, const frame *f, const draft *context) {
	example *e = job->example;
	return example_set(&e->context, draft_text(context)) && example_set(&e->question, draft_text(&f->question)) &&
	       (f->begun.size == 0 || example_set(&e->begun, draft_text(&f->begun)));
}

/* Pieces are counted by themselves: their sum is not less than the tokens of the whole. What a chat template puts around
 * them comes on top, as in the published code. */
static fit_result fill_frame(ruler_job *job, const ruler_context *c, const frame *f, int32_t *n_least) {
	whole w = {f, c};
	draft context = {0};
	int32_t n_question = count(job, &f->question), n_begun = count(job, &f->begun);
	if (n_question < 0 || n_begun < 0) {
		return FIT_FAILED;
	}
	int32_t fixed = n_question + n_begun, left = job->length - job->example->n_predict;
	fit fitting = {.options = job->options,
	               .write = write_whole,
	               .writer = &w,
	               .least = c->least,
	               .most = c->most,
	               .guess = c->guess,
	               .room = left > fixed ? left - fixed : -1};
	fit_result result = fit_context(&fitting, &context);
	*n_least = result == FIT_TOO_LITTLE ? fixed + fitting.n_least : 0;
	if (result == FIT_GOOD && !set_texts(job, f, &context)) {
		result = FIT_FAILED;
	}
	draft_free(&context);
	return result;
}

fit_result ruler_fill(ruler_job *job, const ruler_context *context, int32_t *n_least) {
	frame f = {0};
	frame_fill(job, context->values, context->one, &f);
	bool good = draft_good(&f.before) && draft_good(&f.question) && draft_good(&f.begun);
	fit_result result = good ? fill_frame(job, context, &f, n_least) : FIT_FAILED;
	frame_free(&f);
	return result;
}

bool ruler_fill_or_fail(ruler_job *job, const ruler_context *context) {
	int32_t n_least = 0;
	fit_result result = ruler_fill(job, context, &n_least);
	if (result == FIT_TOO_LITTLE) {
		fail("ruler/%s does not fit into %d tokens: without any filling the prompt takes %d and the answer %d; give a "
		     "greater "
		     "length, or fewer tokens to predict",
		     job->part->name, (int)job->length, (int)n_least, (int)job->example->n_predict);
	}
	return result == FIT_GOOD;
}

void ruler_worked(const ruler_job *job, const placeholder *values, const char *context, const char *reply, draft *out) {
	frame f = {0};
	frame_fill(job, values, false, &f);
	draft_add(out, draft_text(&f.before));
	draft_add(out, context);
	draft_add(out, draft_text(&f.question));
	draft_add(out, draft_text(&f.begun));
	draft_addf(out, " %s\n\n", reply);
	out->failed |= f.before.failed || f.question.failed || f.begun.failed;
	frame_free(&f);
}
