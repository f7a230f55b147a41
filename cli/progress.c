/* A bar with rate and time left, on a terminal only. */
#define _POSIX_C_SOURCE 200809L
#include "cli.h"

#include <unistd.h>

void progress_begin(progress *p, bool wanted) {
	p->shown = wanted && isatty(STDERR_FILENO);
	p->start = seconds();
}

bool progress_step(int32_t n_done, int32_t n_total, void *user) {
	enum { WIDTH = 30 };
	const progress *p = user;
	if (p->shown) {
		double spent = seconds() - p->start, rate = spent > 0 ? n_done / spent : 0;
		int full = (int)((int64_t)WIDTH * n_done / n_total);
		fprintf(stderr, "\rprefill [%.*s%.*s] %3d%%  %5.0f tokens/s  %3.0f s left ", full, "##############################",
		        WIDTH - full, "..............................", (int)(100 * (int64_t)n_done / n_total), rate,
		        rate > 0 ? (n_total - n_done) / rate : 0.0);
		fflush(stderr);
	}
	return !interrupted();
}

void progress_end(progress *p) {
	if (p->shown) {
		fputs("\r\033[K", stderr);
	}
	p->shown = false;
}
