/* The means over the layers, for the terminal. */
#include "inspect.h"
#include "inspect_stored.h"

#include <math.h>
#include <string.h>

enum { LONGEST_NAME = 40, COLUMN = 11 };

static int name_width(const inspection *in) {
	size_t width = strlen("policy");
	for (int32_t i = 0; i < in->n_policies; i++) {
		size_t n = strlen(in->policies[i].policy);
		width = n > width ? n : width;
	}
	return width < LONGEST_NAME ? (int)width : LONGEST_NAME;
}

static void put_value(double value, FILE *out) {
	if (isnan(value)) {
		fprintf(out, "%*s", COLUMN, "-");
	} else {
		fprintf(out, "%*.*f", COLUMN, fabs(value) >= 10.0 ? 1 : 3, value);
	}
}

static void put_notes(const inspection *in, FILE *out) {
	for (int32_t i = 0; i < in->n_policies; i++) {
		if (*inspect_note(&in->policies[i])) {
			fprintf(out, "%s: %s\n", in->policies[i].policy, inspect_note(&in->policies[i]));
		}
	}
}

/* Whose figures are not of rows as they came. */
static void put_codecs(const inspection *in, FILE *out) {
	char codec[POLICY_TEXT];
	for (int32_t i = 0; i < in->n_policies; i++) {
		stored_name(in->policies[i].params, codec, sizeof codec);
		if (*codec) {
			fprintf(out, "%s: measured on the rows that %s gives back\n", in->policies[i].policy, codec);
		}
	}
}

void inspect_table(const inspection *in, FILE *out) {
	int width = name_width(in);
	fprintf(out, "%d tokens, %d layers, %s kept; means over the layers\n\n%-*s%8s", in->n_tokens, in->n_layers,
	        in->options->keep, width, "policy", "kept");
	for (int f = 0; f < N_FIGURES; f++) {
		fprintf(out, "%*s", COLUMN, figure_at((figure)f)->column);
	}
	fputc('\n', out);
	for (int32_t i = 0; i < in->n_policies; i++) {
		const inspected *p = &in->policies[i];
		fprintf(out, "%-*s%6.1f %%", width, p->policy, 100.0 * inspect_share(in, p));
		for (int f = 0; f < N_FIGURES; f++) {
			put_value(inspect_mean(in, p, (figure)f), out);
		}
		fputc('\n', out);
	}
	fputc('\n', out);
	for (int f = 0; f < N_FIGURES; f++) {
		fprintf(out, "%-*s %s\n", COLUMN, figure_at((figure)f)->column, figure_at((figure)f)->means);
	}
	put_codecs(in, out);
	put_notes(in, out);
}
