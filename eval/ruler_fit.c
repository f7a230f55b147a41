#include "ruler_fit.h"

/* Tokens of n units; -1 on failure, which is printed. */
static int32_t measure(const fit *f, int32_t n, draft *out) {
	draft_clear(out);
	if (!f->write(f->writer, n, out) || !draft_good(out)) {
		return -1;
	}
	return f->options->count(draft_text(out), out->size, f->options->user);
}

fit_result fit_context(fit *f, draft *out) {
	const int32_t most = f->most > f->least ? f->most : f->least;
	int32_t good = f->least - 1, bad = INT32_MAX; /* units that fit and that do not */
	int32_t n = f->guess < f->least ? f->least : f->guess > most ? most : f->guess;
	while (good + 1 < bad && good < most) {
		int32_t tokens = measure(f, n, out);
		if (tokens < 0) {
			return FIT_FAILED;
		}
		if (n == f->least) {
			f->n_least = tokens;
		}
		if (tokens <= f->room) {
			good = n;
		} else {
			bad = n;
		}
		int32_t twice = n < most / 2 ? 2 * n + 1 : most;
		n = bad == INT32_MAX ? twice : good + (bad - good) / 2;
	}
	if (good < f->least) {
		return FIT_TOO_LITTLE;
	}
	return measure(f, good, out) < 0 ? FIT_FAILED : FIT_GOOD;
}
