#include "html.h"

#include "cli.h"

#include <math.h>
#include <string.h>

/* One character; returns its bytes. */
static size_t put_character(FILE *out, const char *text, size_t left) {
	int n = utf8_character(text, left);
	unsigned char c = (unsigned char)*text;
	bool control = n == 1 && (c < ' ' || c == 0x7f) && c != '\n' && c != '\t';
	if (n <= 0 || control) {
		fputs("\xef\xbf\xbd", out);
		return 1;
	}
	const char *special = n == 1 ? strchr("&<>\"'", c) : NULL;
	if (special) {
		fprintf(out, "&#%d;", *special);
	} else {
		fwrite(text, 1, (size_t)n, out);
	}
	return (size_t)n;
}

int html_length(const char *text) {
	int length = 0;
	for (size_t i = 0, size = strlen(text); i < size; length++) {
		int n = utf8_character(text + i, size - i);
		i += n > 0 ? (size_t)n : 1;
	}
	return length;
}

void html_short(FILE *out, const char *text, int most) {
	bool cut = html_length(text) > most;
	size_t size = strlen(text), at = 0;
	for (int i = cut ? 1 : 0; at < size && i < most; i++) {
		at += put_character(out, text + at, size - at);
	}
	if (cut) {
		fputs("…", out);
	}
}

void html_text(FILE *out, const char *text) {
	size_t size = text ? strlen(text) : 0;
	for (size_t i = 0; i < size;) {
		i += put_character(out, text + i, size - i);
	}
}

void html_setting(FILE *out, const char *text) {
	size_t size = strlen(text);
	for (size_t i = 0; i < size;) {
		bool between = strchr(":,", text[i]) != NULL;
		i += put_character(out, text + i, size - i);
		fputs(between ? "<wbr>" : "", out);
	}
}

static int decimals(double value) {
	double size = fabs(value);
	return size >= 99.95 ? 0 : size >= 9.995 ? 1 : size >= 0.0995 ? 2 : 3;
}

void html_number(FILE *out, double value) {
	if (!isfinite(value)) {
		fputs("–", out);
	} else if (fabs(value) >= 0.0005 || value == 0.0) {
		fprintf(out, "%.*f", value == 0.0 ? 0 : decimals(value), value);
	} else {
		fprintf(out, "%.0e", value);
	}
}

void html_difference(FILE *out, double value) {
	if (!isfinite(value)) {
		fputs("–", out);
	} else if (fabs(value) < 0.0005) {
		fputs("0", out);
	} else {
		fprintf(out, "%s%.*f", value < 0.0 ? "−" : "+", decimals(value), fabs(value));
	}
}

void html_percent(FILE *out, double share) {
	double percent = 100.0 * share;
	if (!isfinite(share)) {
		fputs("–", out);
	} else {
		/* Nearly all is not all. */
		bool fine = (fabs(percent) < 9.95 || (percent > 99.0 && percent < 100.0)) && fabs(percent - round(percent)) > 0.05;
		fprintf(out, "%.*f\xc2\xa0%%", fine ? 1 : 0, percent);
	}
}

void html_bytes(FILE *out, double bytes) {
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	size_t unit = 0;
	for (; bytes >= 1024.0 && unit + 1 < sizeof units / sizeof *units; unit++) {
		bytes /= 1024.0;
	}
	fprintf(out, "%.*f %s", unit && bytes < 99.95 ? 1 : 0, bytes, units[unit]);
}

void html_seconds(FILE *out, double seconds) {
	if (seconds >= 7200.0) {
		fprintf(out, "%.1f h", seconds / 3600.0);
	} else if (seconds >= 120.0) {
		fprintf(out, "%.1f min", seconds / 60.0);
	} else {
		fprintf(out, "%.*f s", seconds < 9.95 ? 1 : 0, seconds);
	}
}

void html_interval(FILE *out, interval x) {
	html_number(out, x.value);
	if (isfinite(x.low)) {
		fputs(" [", out);
		html_number(out, x.low);
		fputs(", ", out);
		html_number(out, x.high);
		fputc(']', out);
	}
}

void html_bounded(FILE *out, interval x, void (*put)(FILE *, double)) {
	put(out, x.value);
	if (isfinite(x.low)) {
		fputs("<small>", out);
		put(out, x.low);
		fputs(" to ", out);
		put(out, x.high);
		fputs("</small>", out);
	}
}
