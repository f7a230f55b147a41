#include "heat.h"

#include <math.h>

enum { N_STEPS = 7 };
static const char *const names[N_STEPS] = {"h0", "h1", "h2", "h3", "h4", "h5", "h6"};

const char *heat_of_kl(double kl) {
	static const double above[N_STEPS] = {0.0, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0};
	int step = 0;
	while (step + 1 < N_STEPS && kl >= above[step + 1]) {
		step++;
	}
	return isfinite(kl) ? names[step] : "none";
}

const char *heat_of_score(double score) {
	static const double below[N_STEPS] = {2.0, 0.95, 0.8, 0.6, 0.4, 0.2, 0.05};
	int step = 0;
	while (step + 1 < N_STEPS && score < below[step + 1]) {
		step++;
	}
	return isfinite(score) ? names[step] : "none";
}

static void key(FILE *out, const char *what, const char *const steps[N_STEPS]) {
	fprintf(out, "<p class=\"key\">%s ", what);
	for (int i = 0; i < N_STEPS; i++) {
		fprintf(out, "<span class=\"%s\">%s</span>", names[i], steps[i]);
	}
	fputs("</p>\n", out);
}

void heat_key_of_kl(FILE *out) {
	static const char *const steps[N_STEPS] = {"under 0.01", "0.01", "0.03", "0.1", "0.3", "1", "3 and more"};
	key(out, "KL from", steps);
}

void heat_key_of_score(FILE *out) {
	static const char *const steps[N_STEPS] = {"0.95 and more", "0.8", "0.6", "0.4", "0.2", "0.05", "less"};
	key(out, "Score from", steps);
}
