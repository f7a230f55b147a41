/* SQuAD's normalisation (arXiv 1606.05250), which LongBench took over. Articles are whole runs of letters and digits after
 * punctuation is gone, so that one beside a dash or a quote of Unicode, which stays, goes too. */
#include "metrics_char.h"
#include "metrics_text.h"

#include <string.h>

static void drop_punctuation(passage *p) {
	size_t n = 0;
	for (size_t i = 0; i < p->n; i++) {
		if (!char_is_punctuation(p->chars[i])) {
			p->chars[n++] = p->chars[i];
		}
	}
	p->n = n;
}

static bool is_article(const uint32_t *at, size_t n) {
	static const char *const articles[] = {"a", "an", "the"};
	for (size_t i = 0; i < sizeof articles / sizeof articles[0]; i++) {
		size_t k = 0;
		while (k < n && articles[i][k] && at[k] == (unsigned char)articles[i][k]) {
			k++;
		}
		if (k == n && !articles[i][k]) {
			return true;
		}
	}
	return false;
}

static void blank_articles(passage *p) {
	for (size_t i = 0; i < p->n;) {
		size_t begin = i;
		while (i < p->n && char_is_word(p->chars[i])) {
			i++;
		}
		if (i > begin && is_article(p->chars + begin, i - begin)) {
			for (size_t k = begin; k < i; k++) {
				p->chars[k] = ' ';
			}
		}
		i += i == begin;
	}
}

bool passage_read_normal(passage *p, const char *text) {
	if (!passage_read(p, text)) {
		return false;
	}
	passage_lower(p);
	drop_punctuation(p);
	blank_articles(p);
	return passage_split(p, 0, p->n);
}
