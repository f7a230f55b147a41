#define _POSIX_C_SOURCE 200809L
#include "judge.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static bool contains(const char *text, const char *part, size_t n) {
	for (; *text; text++) {
		size_t i = 0;
		while (i < n && text[i] && tolower((unsigned char)text[i]) == tolower((unsigned char)part[i])) {
			i++;
		}
		if (i == n) {
			return true;
		}
	}
	return false;
}

bool judge_right(const char *reply, const char *accepted) {
	reply = reply ? reply : "";
	while (*accepted) {
		size_t n = strcspn(accepted, "|");
		if (n > 0 && contains(reply, accepted, n)) {
			return true;
		}
		accepted += n + (accepted[n] == '|');
	}
	return false;
}

void judge_print(const char *reply) {
	for (const char *c = reply ? reply : ""; *c; c++) {
		putchar(*c == '\n' || *c == '\t' ? ' ' : *c);
	}
	putchar('\n');
	fflush(stdout);
}

int judge_split(char *list, const char **out, int most) {
	int n = 0;
	char *save = NULL;
	for (char *at = strtok_r(list, ",", &save); at && n < most; at = strtok_r(NULL, ",", &save)) {
		out[n++] = at;
	}
	return n;
}
