/* Turns: what is decoded for a message, and the reply.
 *
 * A reply's end is not decoded when the reply ends, however it ends, but with the next message: what the template has
 * between the two. So it is there exactly once. */
#include "chat.h"

#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------------------ state */

ckv_llama_stream_report chat_report(const chat *c) {
	ckv_llama_stream_report report = {.size = sizeof report};
	ckv_llama_stream_get_report(c->ckv, &report);
	return report;
}

int32_t chat_seen(const chat *c) { return chat_report(c).n_seen; }

void chat_state_free(chat_state *s) {
	tokens_free(&s->owed);
	memset(s, 0, sizeof *s);
}

const spoken *chat_last_message(const chat *c) {
	const chat_state *s = &c->state;
	for (int32_t i = s->n_spoken - 1; i >= 0 && i >= s->n_spoken - MAX_SPOKEN; i--) {
		const spoken *said = &s->spoken[i % MAX_SPOKEN];
		if (said->by_user && said->span.end > said->span.first) {
			return said;
		}
	}
	return NULL;
}

static void note_spoken(chat *c, int32_t first, int32_t end, bool by_user) {
	c->state.spoken[c->state.n_spoken % MAX_SPOKEN] = (spoken){{first, end}, by_user};
	c->state.n_spoken++;
}

bool chat_pin(chat *c, span s) {
	if (ckv_llama_stream_pin(c->ckv, s.first, s.end)) {
		fail("tokens %d to %d can't be pinned: %s", s.first, s.end - 1, ckv_llama_message(c->ckv));
		return false;
	}
	c->state.pins[c->state.n_pins++] = s;
	return true;
}

bool chat_clear(chat *c) {
	llama_memory_seq_rm(llama_get_memory(c->ctx), 0, -1, -1);
	llama_sampler_reset(c->sampler);
	chat_state_free(&c->state);
	c->broken = ckv_llama_stream_begin(c->ckv, c->ctx, 0, &c->bounds) != CKV_OK;
	if (c->broken) {
		fail("%s", ckv_llama_message(c->ckv));
	}
	return !c->broken;
}

/* --------------------------------------------------------------------------------------------------------- decoding */

/* Tokens that belong together, and which of them are what somebody wrote. */
typedef struct turn {
	token_list tokens;
	int32_t first, end;
} turn;

/* Of text, at the end; control: it is the template's. The vocabulary's own beginning comes before all. */
static bool add_text(const chat *c, turn *t, const char *text, size_t size, bool control) {
	bool start = t->tokens.size == 0 && chat_seen(c) == 0;
	return size == 0 || tokens_add(&t->tokens, c->engine.vocab, text, size, start, control);
}

static bool add_frame(const chat *c, turn *t, const char *text) { return add_text(c, t, text, strlen(text), true); }

static bool add_written(const chat *c, turn *t, const char *text, size_t size) {
	t->first = t->tokens.size;
	bool good = add_text(c, t, text, size, false);
	t->end = t->tokens.size;
	return good;
}

/* Text that was not read is left out, but not what the template has after it: else the next turn would be none. */
static bool owe_rest(chat *c, const turn *t, int32_t done) {
	const llama_token *tokens = t->tokens.data;
	int32_t text = t->first > done ? t->first - done : 0, from = t->end > done ? t->end : done;
	return tokens_append(&c->state.owed, tokens + done, text) &&
	       tokens_append(&c->state.owed, tokens + from, t->tokens.size - from);
}

static void warn_of_length(chat *c) {
	int32_t trained = llama_model_n_ctx_train(c->engine.model);
	if (!c->bounds.rotate && !c->warned && trained > 0 && chat_seen(c) > trained && !c->options->quiet) {
		fprintf(stderr, "note: the conversation has passed the %d tokens that the model was trained for%s\n", trained,
		        policy_streams_hosted(c->options) ? "" : "; with --rotate positions would stay below");
		c->warned = true;
	}
}

/* What keeps the conversation from going on is told; being stopped is not. */
static void explain(chat *c, ckv_status status) {
	if (status == CKV_ERR_CAPACITY) {
		fail("%s", ckv_llama_message(c->ckv));
	} else if (status != CKV_ERR_CANCELLED) {
		c->broken = true;
		fail("%s; the conversation can't go on: /reset begins anew, /load takes one that was saved",
		     ckv_llama_message(c->ckv));
	}
}

/* False when it was not all decoded: what must still come is owed then. */
static bool decode(chat *c, const turn *t) {
	enum { SHOWN = 256 };
	progress p;
	int32_t before = chat_seen(c);
	if (t->tokens.size == 0) {
		return true;
	}
	progress_begin(&p, !c->options->quiet && t->tokens.size > SHOWN);
	ckv_llama_on_progress(c->ckv, progress_step, &p);
	ckv_status status = ckv_llama_stream_decode(c->ckv, t->tokens.data, t->tokens.size);
	progress_end(&p);
	int32_t done = chat_seen(c) - before;
	bool stopped = status == CKV_ERR_CANCELLED; /* when all was in: no matter */
	if (done == t->tokens.size && (status == CKV_OK || stopped)) {
		warn_of_length(c);
		return true;
	}
	explain(c, status);
	return owe_rest(c, t, done) && false;
}

/* ------------------------------------------------------------------------------------------------------------ reply */

/* Decodes the reply's last token, so that its successor can be chosen; what can't be is owed. */
static bool decode_reply(chat *c, answer *a, llama_token token) {
	double start = seconds();
	ckv_status status = ckv_llama_stream_decode(c->ckv, &token, 1);
	if (status) {
		explain(c, status);
		tokens_append(&c->state.owed, &token, 1);
		return false;
	}
	a->decode_s += seconds() - start;
	a->n_decoded++;
	return true;
}

static bool generate(chat *c, answer *a) {
	while (!interrupted()) {
		llama_token token = llama_sampler_sample(c->sampler, c->ctx, -1);
		if (!answer_add(a, c->engine.vocab, token, stdout)) {
			fail("no memory for the reply");
			return false;
		}
		if (a->stopped) {
			break;
		}
		if (a->n_generated == c->options->n_predict) {
			return tokens_append(&c->state.owed, &token, 1);
		}
		if (!decode_reply(c, a, token)) {
			return interrupted();
		}
	}
	return true;
}

static bool end_line(answer *a) {
	bool good = answer_end(a, stdout);
	fputc('\n', stdout);
	if ((fflush(stdout) || ferror(stdout)) && !interrupted()) {
		fail("the reply could not be written to standard output");
		good = false;
	}
	clearerr(stdout);
	return good;
}

static bool reply(chat *c) {
	answer a = {.text = NULL};
	int32_t first = chat_seen(c);
	bool good = generate(c, &a);
	good = end_line(&a) && good;
	if (good && !a.stopped && !interrupted() && !c->options->quiet) {
		fprintf(stderr, "note: the reply was cut off after %d tokens; -n allows more\n", a.n_generated);
	}
	note_spoken(c, first, chat_seen(c) + c->state.owed.size, false);
	c->last_rate = answer_rate(&a);
	c->last_tokens = a.n_generated;
	warn_of_length(c);
	answer_free(&a);
	return good;
}

/* ------------------------------------------------------------------------------------------------------------ turns */

/* System message, if there is one, up to where the document or the first message begins. */
static bool add_opening(chat *c, turn *t) {
	const char *system = c->system ? c->system : "";
	return add_frame(c, t, c->frame.start) && add_text(c, t, system, strlen(system), false) &&
	       add_frame(c, t, c->frame.first);
}

static bool pin_system(chat *c, int32_t size) {
	span s = {0, size};
	return !c->system || (chat_check_room(c, &c->policy, &s, 1) && chat_pin(c, s));
}

bool chat_begin(chat *c) {
	turn t = {{NULL, 0}, 0, 0};
	bool good = chat_clear(c) && add_opening(c, &t) && pin_system(c, t.tokens.size) &&
	            add_written(c, &t, c->document.data, c->document.size);
	if (good) {
		bool all = decode(c, &t);
		int32_t seen = chat_seen(c);
		c->state.system = (span){0, c->system ? t.first : 0};
		c->state.document = (span){t.first, seen > t.first ? seen : t.first};
		good = all || (interrupted() && !c->broken);
	}
	tokens_free(&t.tokens);
	c->broken = !good;
	return good;
}

/* A message, with what comes before and after it. */
static bool make_turn(chat *c, turn *t, const buffer *message) {
	bool first = c->state.place == PLACE_FIRST;
	return tokens_append(&t->tokens, c->state.owed.data, c->state.owed.size) &&
	       add_frame(c, t, first ? "" : c->frame.next) && add_written(c, t, message->data, message->size) &&
	       add_frame(c, t, first ? c->frame.first_end : c->frame.next_end);
}

/* The message's own tokens, as far as they are in. */
static void note_message(chat *c, const turn *t, int32_t before) {
	int32_t seen = chat_seen(c), first = before + t->first, end = before + t->end;
	note_spoken(c, first < seen ? first : seen, end < seen ? end : seen, true);
}

bool chat_say(chat *c, const buffer *message) {
	turn t = {{NULL, 0}, 0, 0};
	int32_t before = chat_seen(c);
	if (!make_turn(c, &t, message)) {
		tokens_free(&t.tokens);
		return false;
	}
	tokens_free(&c->state.owed);
	bool all = decode(c, &t);
	note_message(c, &t, before);
	c->state.place = PLACE_REPLY;
	tokens_free(&t.tokens);
	bool stopped = !all && interrupted() && !c->broken;
	if (stopped && !c->options->quiet) {
		fputs("note: stopped; of the message only what had been read is part of the conversation\n", stderr);
	}
	return all ? reply(c) : stopped;
}
