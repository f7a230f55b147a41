/* chunkkv chat: a conversation of any length in a cache of fixed size. */
#include "chat.h"

#include <ggml.h>

#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------------ preparing */

static bool append(char **text, const char *more) {
	size_t size = *text ? strlen(*text) : 0, gap = size ? 2 : 0;
	char *bigger = realloc(*text, size + gap + strlen(more) + 1);
	if (!bigger) {
		fail("no memory for the system message");
		return false;
	}
	snprintf(bigger + size, gap + strlen(more) + 1, "%s%s", gap ? "\n\n" : "", more);
	*text = bigger;
	return true;
}

/* What was asked to be pinned are paragraphs of the system message. */
static bool make_system(chat *c) {
	const run_options *o = c->options;
	bool good = !o->system || o->system[0] == '\0' || append(&c->system, o->system);
	for (int32_t i = 0; i < o->n_pins && good; i++) {
		good = append(&c->system, o->pins[i]);
	}
	return good && (!c->system || text_check("the system message", c->system, strlen(c->system)));
}

/* A gap stands between it and the first message. */
static bool read_document(chat *c) {
	static const char gap[] = "\n\n";
	if (!c->options->document) {
		return true;
	}
	if (!text_read(c->options->document, &c->document)) {
		return false;
	}
	buffer *d = &c->document;
	while (d->size > 0 && strchr(" \t\r\n", d->data[d->size - 1])) {
		d->size--;
	}
	char *bigger = realloc(d->data, d->size + sizeof gap);
	if (!bigger || d->size == 0) {
		d->data = bigger ? bigger : d->data;
		fail(bigger ? "the document is empty" : "no memory for the document");
		return false;
	}
	memcpy(bigger + d->size, gap, sizeof gap);
	d->data = bigger;
	d->size += strlen(gap);
	return true;
}

static bool make_frame(chat *c) {
	const run_options *o = c->options;
	const char *name = o->chat_template ? o->chat_template : llama_model_chat_template(c->engine.model, NULL);
	if (!name && !o->no_chat_template && !o->quiet) {
		fputs("note: the model brings no chat template; what you say goes in as it is\n", stderr);
	}
	switch (chat_frame_make(&c->frame, o->no_chat_template ? NULL : name, c->system != NULL)) {
	case FRAME_GOOD: break;
	case FRAME_UNKNOWN: prompt_explain_templates(o->chat_template); return false;
	case FRAME_NO_SYSTEM:
		fail("the chat template has no place for a system message: leave --system and --pin out, name another with "
		     "--chat-template, or use --no-chat-template");
		return false;
	case FRAME_UNEVEN:
		fail(
		    "the chat template changes what was said before when a new turn comes, which a cache can't follow: name another "
		    "with --chat-template, or use --no-chat-template");
		return false;
	}
	if (c->system && (!name || o->no_chat_template)) {
		c->frame.first = "\n\n"; /* else it would run into the first message */
	}
	return true;
}

/* As large as is asked for, but not beyond what the model can look back, unless that is asked for too. */
static void choose_bounds(chat *c) {
	const run_options *o = c->options;
	int32_t trained = llama_model_n_ctx_train(c->engine.model);
	ckv_llama_stream_options_default(&c->bounds);
	c->bounds.budget = o->ctx_budget;
	if (trained > 0 && o->ctx_budget > trained && !o->rotate) {
		c->bounds.budget = trained;
		if (!o->quiet) {
			fprintf(stderr, "note: the model was trained for %d tokens: that is the budget%s\n", trained,
			        policy_streams_hosted(o) ? "" : ", --rotate allows more");
		}
	}
	bool can = !ggml_is_quantized(o->type) && !policy_streams_hosted(o);
	c->bounds.rotate = o->rotate || (!o->no_rotate && can);
	c->ubatch = engine_piece(c->bounds.budget, o->n_ubatch);
}

static bool make_context(chat *c) {
	ckv_ctx_options core;
	ckv_ctx_options_default(&core);
	core.n_threads = c->options->n_threads;
	choose_bounds(c);
	if (ckv_llama_create_stream(&c->ckv, &c->policy, &core, &c->error)) {
		fail("%s", c->error.message);
		return false;
	}
	if (ckv_llama_set_cache(c->ckv, c->options->cache_kind)) {
		fail("--cache: %s", ckv_llama_message(c->ckv));
		return false;
	}
	c->ctx = engine_bounded_context(&c->engine, c->ckv, c->bounds.budget, c->ubatch);
	c->sampler = engine_sampler(c->options);
	return c->ctx != NULL;
}

static bool prepare(chat *c) {
	c->engine.options = c->options;
	c->policy = c->options->stream;
	if (!make_system(c) || !read_document(c) || !engine_load(&c->engine, false)) {
		return false;
	}
	if (ckv_llama_check_model(c->engine.model, &c->error)) {
		fail("%s", c->error.message);
		return false;
	}
	return make_frame(c) && make_context(c);
}

/* ------------------------------------------------------------------------------------------------------- conversation */

static void greet(const chat *c, const line_reader *lines) {
	char policy[256];
	if (c->options->quiet || !lines->terminal) {
		return;
	}
	ckv_stream_format(&c->policy, policy, sizeof policy);
	fprintf(stderr, "%s, %d rows, %s; %d tokens so far. /help tells what there is, Ctrl-D ends.\n",
	        text_file_name(c->options->model), c->bounds.budget, policy, chat_seen(c));
}

static bool blank(const buffer *t) { return t->size == 0 || strspn(t->data, " \t\r\n") == t->size; }

/* One message or command. */
static bool take(chat *c, const buffer *message) {
	if (blank(message)) {
		return true;
	}
	if (!text_check("what you said", message->data, message->size)) {
		return false;
	}
	bool slash = message->data[0] == '/', doubled = slash && message->data[1] == '/';
	if (slash && !doubled) {
		return chat_command(c, message->data);
	}
	if (c->broken) {
		fail("the conversation can't go on: /reset begins anew, /load takes one that was saved");
		return false;
	}
	const buffer said = {message->data + doubled, message->size - doubled};
	return chat_say(c, &said);
}

/* Ctrl-C where a line was awaited: on a terminal the line is dropped, and a second one ends. */
static bool goes_on(const line_reader *lines, bool again) {
	if (lines->terminal && !again) {
		fputs("\nCtrl-C again, or Ctrl-D, ends.\n", stderr);
	}
	return lines->terminal && !again && interrupt_forget();
}

/* False when something failed, or an interrupt ended it. */
static bool converse(chat *c, line_reader *lines) {
	buffer message = {NULL, 0};
	bool all_good = true, dropped = false;
	while (!c->ended) {
		line_status status = input_next(lines, &message);
		if (status == LINE_END || (status == LINE_INTERRUPTED && !goes_on(lines, dropped))) {
			break;
		}
		dropped = status == LINE_INTERRUPTED;
		all_good = (dropped || take(c, &message)) && all_good;
		if (!interrupt_forget()) {
			break;
		}
	}
	if (lines->terminal && !c->ended && !interrupted()) {
		fputc('\n', stderr);
	}
	text_free(&message);
	return all_good;
}

static bool chat_all(chat *c) {
	line_reader lines;
	if (!prepare(c) || !(c->options->load ? chat_clear(c) && chat_load(c, c->options->load) : chat_begin(c)) ||
	    interrupted()) {
		return false;
	}
	line_open(&lines);
	greet(c, &lines);
	bool good = converse(c, &lines);
	bool terminal = lines.terminal;
	line_close(&lines);
	return good || terminal; /* whoever sat there has seen what failed */
}

static void chat_free(chat *c) {
	llama_sampler_free(c->sampler);
	llama_free(c->ctx);
	engine_free(&c->engine);
	ckv_llama_free(c->ckv);
	chat_frame_free(&c->frame);
	chat_state_free(&c->state);
	text_free(&c->document);
	free(c->system);
}

int cmd_chat(int argc, char **argv) {
	run_options options;
	chat c;
	int stop = options_parse(argc, argv, &options, COMMAND_CHAT);
	if (stop) {
		return stop - 1;
	}
	engine_start(options.verbose);
	memset(&c, 0, sizeof c);
	c.options = &options;
	int status = chat_all(&c) ? 0 : EXIT_FAILED;
	chat_free(&c);
	return engine_stop(status);
}
