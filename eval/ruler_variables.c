/* Variable tracking: a chain of assignments among sentences that say nothing. 1 chain, 4 hops, and one worked example. */
#include "ruler.h"

#include <string.h>

enum { N_CHAIN = 5, NAME_SIZE = 8, MOST_WORKED = 50 };

typedef struct chain {
	const ruler_job *job;
	char names[N_CHAIN][NAME_SIZE];
	int32_t value;
	rng places; /* copied for each context */
} chain;

static bool named_before(const chain *c, int32_t n) {
	for (int32_t i = 0; i < n; i++) {
		if (strcmp(c->names[i], c->names[n]) == 0) {
			return true;
		}
	}
	return false;
}

static void draw_chain(rng *r, const ruler_job *job, int32_t n_letters, chain *c) {
	*c = (chain){.job = job, .value = 10000 + (int32_t)rng_below(r, 90000)};
	for (int32_t i = 0; i < N_CHAIN; i++) {
		do {
			for (int32_t k = 0; k < n_letters; k++) {
				c->names[i][k] = (char)('A' + (int)rng_below(r, 26));
			}
		} while (named_before(c, i));
	}
	c->places = *r;
}

static void write_assignment(const chain *c, int32_t i, draft *out) {
	if (i == 0) {
		draft_addf(out, "VAR %s = %d", c->names[0], (int)c->value);
	} else {
		draft_addf(out, "VAR %s = VAR %s", c->names[i], c->names[i - 1]);
	}
}

/* n sentences of noise, the assignments in order before N_CHAIN of them. Selection sampling: Knuth, TAOCP 2, 3.4.2 S. */
static bool write_chain(void *writer, int32_t n, draft *out) {
	const chain *c = writer;
	const haystack *noise = c->job->noise;
	rng r = c->places;
	int32_t done = 0;
	for (int32_t i = 0; i < n; i++) {
		if (done < N_CHAIN && rng_below(&r, (uint32_t)(n - i)) < (uint32_t)(N_CHAIN - done)) {
			draft_add(out, i > 0 ? "\n" : "");
			write_assignment(c, done++, out);
			draft_add(out, "\n");
			const sentence *s = &noise->sentences[i % noise->n];
			draft_add_n(out, noise->text.data + s->start, s->end - s->start);
		} else {
			haystack_write(noise, i, i + 1, out);
		}
	}
	return true;
}

/* As long as the published one, but a part of the whole where that is short. */
static bool make_worked(ruler_job *job, rng *r, int32_t other, draft *out) {
	chain c;
	draft context = {0};
	char reply[N_CHAIN * (NAME_SIZE + 1)], value[16], number[16];
	do {
		draw_chain(r, job, 3, &c);
	} while (c.value == other);
	int32_t n = job->length / 40;
	write_chain(&c, n < N_CHAIN ? N_CHAIN : n > MOST_WORKED ? MOST_WORKED : n, &context);
	snprintf(reply, sizeof reply, "%s %s %s %s %s", c.names[0], c.names[1], c.names[2], c.names[3], c.names[4]);
	snprintf(value, sizeof value, "%d", (int)c.value);
	snprintf(number, sizeof number, "%d", (int)N_CHAIN);
	ruler_worked(job, (const placeholder[]){{"query", value}, {"num_v", number}, {NULL, NULL}}, draft_text(&context), reply,
	             out);
	out->failed |= context.failed;
	draft_free(&context);
	return draft_good(out);
}

bool ruler_make_variables(ruler_job *job) {
	chain c;
	draft worked = {0};
	char value[16], number[16];
	rng r = job->random;
	draw_chain(&r, job, 5, &c);
	bool good = make_worked(job, &r, c.value, &worked);
	for (int32_t i = 0; good && i < N_CHAIN; i++) {
		good = example_push(&job->example->answers, &job->example->n_answers, c.names[i]);
	}
	snprintf(value, sizeof value, "%d", (int)c.value);
	snprintf(number, sizeof number, "%d", (int)N_CHAIN);
	const placeholder values[] = {{"query", value}, {"num_v", number}, {NULL, NULL}};
	const ruler_context context = {.values = values,
	                               .worked = draft_text(&worked),
	                               .write = write_chain,
	                               .writer = &c,
	                               .least = N_CHAIN,
	                               .guess = job->length / 16,
	                               .most = job->length};
	good = good && ruler_fill_or_fail(job, &context);
	draft_free(&worked);
	return good;
}
