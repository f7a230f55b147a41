/* Two sequences in one context: each must get what it gets alone.
 *
 * usage: ckv-alternate CASE CASE
 *
 * Each press that both cases have scores and selects for both, first in contexts of their own, then by turns in one:
 * whatever a context keeps of one layer must not show in the next, which has another shape. The last line is `N passed, N
 * failed, N skipped`. Exit status: 0 when something passed and nothing failed, 1 otherwise, 2 for wrong usage. */
#include "observed.h"
#include "press.h"
#include "replay.h"
#include "tally.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDES = 2, TURNS = 3 };

/* They keep different shares, too. */
static const double ratios[SIDES] = {0.5, 0.9};

typedef struct side {
	casefile file;
	json_t *presses;
	inputs in;
} side;

typedef struct answer {
	float *scores; /* [heads][tokens] */
	kept positions;
	ckv_reason reason;
} answer;

static bool side_open(side *s, const char *folder, note *why) {
	if (!casefile_open(&s->file, folder, why)) {
		return false;
	}
	bool ok = field_object(s->file.root, "presses", &s->presses, why) && inputs_open(&s->in, &s->file, why);
	if (!ok) {
		casefile_close(&s->file);
	}
	return ok;
}

static void side_close(side *s) {
	inputs_close(&s->in);
	casefile_close(&s->file);
}

static void answer_free(answer *a) {
	free(a->scores);
	kept_free(&a->positions);
	a->scores = NULL;
}

static size_t n_scores(const side *s) { return (size_t)s->in.n_heads * (size_t)s->in.n_tokens; }

static bool ask_layer(const side *s, const ckv_layer *layer, const press *p, double ratio, replay *r, answer *a, note *why) {
	subject from = {layer, {NULL, s->in.n_heads, s->in.n_tokens}, p->block, p->target};
	a->scores = malloc(n_scores(s) * sizeof *a->scores);
	bool ok = a->scores || note_set(why, "no memory for the scores");
	return ok && replay_score(r, layer, ratio, a->scores, n_scores(s), why) &&
	       replay_select(r, &from, ratio, &a->positions, &a->reason, why);
}

/* All that a press does of a side, from the queries on. The answer is to be freed in any case. */
static bool ask(const side *s, const press *p, double ratio, replay *r, answer *a, note *why) {
	observed seen;
	*a = (answer){.scores = NULL};
	if (!observed_open(&seen, &s->in, &p->policy, r, why)) {
		return false;
	}
	bool ok = ask_layer(s, &seen.layer, p, ratio, r, a, why);
	observed_close(&seen);
	return ok;
}

static bool ask_alone(const side *s, const press *p, double ratio, answer *a, note *why) {
	replay r;
	*a = (answer){.scores = NULL};
	if (!replay_open(&r, &p->policy, why)) {
		return false;
	}
	bool ok = ask(s, p, ratio, &r, a, why);
	replay_close(&r);
	return ok;
}

static bool same(const side *s, const answer *alone, const answer *found, note *why) {
	note difference = {"the reason differs"};
	if (memcmp(alone->scores, found->scores, n_scores(s) * sizeof *alone->scores) != 0) {
		return note_set(why, "scores differ when another layer was scored in between");
	}
	if (alone->reason != found->reason || !kept_equal(&alone->positions, &found->positions, &difference)) {
		return note_set(why, "after another layer: %s", difference.text);
	}
	return true;
}

static bool by_turns(const side *sides, const press *p, const answer *alone, note *why) {
	replay r;
	bool ok = replay_open(&r, &p->policy, why);
	for (int i = 0; i < TURNS && ok; i++) {
		answer found;
		int s = i % SIDES;
		ok = ask(&sides[s], p, ratios[s], &r, &found, why) && same(&sides[s], &alone[s], &found, why);
		answer_free(&found);
	}
	replay_close(&r);
	return ok;
}

static bool alternate(const side *sides, const press *p, note *why) {
	answer alone[SIDES] = {{.scores = NULL}, {.scores = NULL}};
	bool ok = true;
	for (int i = 0; i < SIDES && ok; i++) {
		ok = ask_alone(&sides[i], p, ratios[i], &alone[i], why);
	}
	ok = ok && by_turns(sides, p, alone, why);
	for (int i = 0; i < SIDES; i++) {
		answer_free(&alone[i]);
	}
	return ok;
}

static void replay_press(const side *sides, const char *name, json_t *entry, tally *counts) {
	press p;
	note why = {""};
	bool ok = press_read(&p, name, entry, &why);
	if (ok && (!p.covered || observed_lacking(&sides[0].in, &p.policy) || observed_lacking(&sides[1].in, &p.policy))) {
		tally_add(counts, p.label, SKIPPED, 1);
		return;
	}
	if (ok && alternate(sides, &p, &why)) {
		tally_add(counts, p.label, PASSED, 1);
	} else {
		tally_fail(counts, p.label, (place){sides[0].file.folder, name, -1.0}, why.text);
	}
}

int main(int argc, char **argv) {
	if (argc != 1 + SIDES || argv[1][0] == '-') {
		fprintf(stderr, "usage: ckv-alternate CASE CASE\nCASE: a folder with the case.json of a layer\n");
		return 2;
	}
	side sides[SIDES];
	tally counts;
	memset(&counts, 0, sizeof counts);
	int opened = 0;
	for (note why = {""}; opened < SIDES; opened++) {
		if (!side_open(&sides[opened], argv[1 + opened], &why)) {
			tally_fail(&counts, "inputs of a layer", (place){argv[1 + opened], NULL, -1.0}, why.text);
			break;
		}
	}
	const char *name;
	json_t *entry;
	if (opened == SIDES) {
		json_object_foreach(sides[0].presses, name, entry) {
			if (json_object_get(sides[1].presses, name)) {
				replay_press(sides, name, entry, &counts);
			}
		}
	}
	while (opened > 0) {
		side_close(&sides[--opened]);
	}
	tally_print(&counts);
	return tally_good(&counts) && fflush(stdout) == 0 ? 0 : 1;
}
