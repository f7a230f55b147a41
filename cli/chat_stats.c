/* /stats: what the conversation holds, and what it costs. */
#include "chat.h"

static double mib(uint64_t bytes) { return (double)bytes / (1024.0 * 1024.0); }

/* A line for a part of the conversation. 100 % is said only of what is held whole; a reply's last token may still wait to
 * be decoded, and has not gone. */
static void show_span(const chat *c, span s, const char *name, int32_t number, FILE *out) {
	int32_t n = s.end - s.first, seen = chat_seen(c), waiting = s.end > seen ? s.end - seen : 0;
	if (n > 0) {
		double share = 100.0 * (chat_rows_held(c->ckv, s) + waiting) / n;
		fprintf(out, "  %4.0d %-9s %6d tokens  %3.0f %%\n", number, name, n, share < 100.0 && share > 99.0 ? 99.0 : share);
	}
}

static void show_held(const chat *c, FILE *out) {
	const chat_state *s = &c->state;
	int32_t first = s->n_spoken > MAX_SPOKEN ? s->n_spoken - MAX_SPOKEN : 0;
	fputs("still held, mean over the layers:\n", out);
	show_span(c, s->system, "system", 0, out);
	show_span(c, s->document, "document", 0, out);
	for (int32_t i = first; i < s->n_spoken; i++) {
		const spoken *said = &s->spoken[i % MAX_SPOKEN];
		show_span(c, said->span, said->by_user ? "you" : "model", i + 1, out);
	}
}

static int32_t pinned_tokens(const chat *c) {
	int32_t sum = 0;
	for (int32_t i = 0; i < c->state.n_pins; i++) {
		sum += c->state.pins[i].end - c->state.pins[i].first;
	}
	return sum;
}

static void show_memory(const ckv_llama_stream_report *r, FILE *out) {
	fputs("memory           ", out);
	if (r->cache_alloc) { /* known once something was decoded */
		fprintf(out, "cache %.1f MiB, its bookkeeping %.1f MiB; ", mib(r->cache_alloc), mib(r->own_bytes));
	}
	fprintf(out, "the process %.0f MiB now\n", mib(memory_now()));
}

static void show_time(const chat *c, const ckv_llama_stream_report *r, FILE *out) {
	double own = r->score_s + r->move_s + r->turn_s, all = own + r->decode_s;
	fprintf(out, "last reply       %d tokens, %.1f tokens/s\n", c->last_tokens, c->last_rate);
	fprintf(out, "scoring, moving  %.1f %% of the time\n", all > 0 ? 100.0 * own / all : 0.0);
}

void chat_stats(const chat *c, FILE *out) {
	char policy[256];
	ckv_llama_stream_report r = chat_report(c);
	ckv_stream_format(&c->policy, policy, sizeof policy);
	fprintf(out, "policy           %s%s\n", policy, r.rotated ? ", positions without gaps" : "");
	fprintf(out, "tokens seen      %d\n", r.n_seen);
	fprintf(out, "rows held        %d of %d; %lld evicted, in %lld times\n", r.n_rows, r.budget, (long long)r.n_evicted,
	        (long long)r.n_evictions);
	fprintf(out, "pinned           %d tokens\n", pinned_tokens(c));
	show_memory(&r, out);
	show_time(c, &r, out);
	show_held(c, out);
}
