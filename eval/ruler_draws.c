#include "ruler_draws.h"

#include "words.h"

#include <stdlib.h>

enum { MOST_TRIES = 1000000 };

/* Whether id was not there; it is then. There is room. */
static bool insert(uint64_t *seen, size_t capacity, uint64_t id) {
	size_t at = (size_t)((id * 0x9e3779b97f4a7c15u) >> 20) & (capacity - 1);
	while (seen[at] != 0 && seen[at] != id) {
		at = (at + 1) & (capacity - 1);
	}
	bool fresh = seen[at] == 0;
	seen[at] = id;
	return fresh;
}

static bool grow(draws *d) {
	size_t capacity = d->capacity ? 2 * d->capacity : 64;
	uint64_t *bigger = calloc(capacity, sizeof *bigger);
	if (!bigger) {
		fail("no memory for the examples");
		return false;
	}
	for (size_t i = 0; i < d->capacity; i++) {
		if (d->seen[i] != 0) {
			insert(bigger, capacity, d->seen[i]);
		}
	}
	free(d->seen);
	d->seen = bigger;
	d->capacity = capacity;
	return true;
}

/* Draws a text and a number, not 0, that stands for it; words, numbers and UUIDs have numbers of their own. */
static uint64_t draw(rng *r, needle_kind kind, drawn *out) {
	if (kind == NEEDLE_WORDS) {
		int32_t i = (int32_t)rng_below(r, N_PAIRS);
		snprintf(out->text, sizeof out->text, "%s-%s", words_adjective(i / N_NOUNS), words_noun(i % N_NOUNS));
		return (uint64_t)i + 1;
	}
	if (kind == NEEDLE_NUMBERS) {
		uint32_t number = 1000000 + rng_below(r, 9000000);
		snprintf(out->text, sizeof out->text, "%u", (unsigned)number);
		return number;
	}
	/* Version 4, variant 1 (RFC 9562, 5.4). */
	uint64_t high = (rng_next(r) & ~(uint64_t)0xf000) | 0x4000, low = rng_next(r) >> 2 | (uint64_t)1 << 63;
	snprintf(out->text, sizeof out->text, "%08x-%04x-%04x-%04x-%012llx", (unsigned)(high >> 32),
	         (unsigned)(high >> 16) & 0xffff, (unsigned)high & 0xffff, (unsigned)(low >> 48),
	         (unsigned long long)low & 0xffffffffffffu);
	return low;
}

bool draws_next(draws *d, needle_kind kind, drawn *out) {
	if (2 * (d->n + 1) > d->capacity && !grow(d)) {
		return false;
	}
	for (int32_t i = 0; i < MOST_TRIES; i++) {
		uint64_t id = draw(&d->random, kind, out);
		if (!insert(d->seen, d->capacity, id)) {
			continue;
		}
		d->n++;
		if (!d->text || !haystack_has(d->text, out->text)) {
			return true;
		}
		if (2 * (d->n + 1) > d->capacity && !grow(d)) {
			return false;
		}
	}
	fail("there are no words left for another needle: give a shorter length");
	return false;
}

void draws_free(draws *d) {
	free(d->seen);
	*d = (draws){0};
}
