#include "templates.h"

#include "cli.h"

#include <stdint.h>
#include <string.h>

#define NOISE                                                                                                               \
	"The rain fell on the roof. The cat slept by the fire. The clock struck six. Nobody came by. So the day went on."

static const wording ours[N_TEMPLATES] = {
    [TEMPLATE_NIAH] =
        {.prompt = "Some lines of the text below say what is to be told to whoever asks for a certain name. Remember them: "
                   "you will be asked for the {type_needle_v}.\n\n{context}\n\nGoing by the text, which {type_needle_v} are "
                   "to be told to whoever asks for {query}?\n",
         .begun = "Whoever asks for {query} is to be told these {type_needle_v}:",
         .prompt_one = "A line of the text below says what is to be told to whoever asks for a certain name. Remember it: "
                       "you will be asked for the {type_needle_v}.\n\n{context}\n\nGoing by the text, which {type_needle_v} "
                       "is to be told to whoever asks for {query}?\n",
         .begun_one = "Whoever asks for {query} is to be told",
         .needle = "Whoever asks for {key} is to be told {value}.",
         .noise = NOISE},
    [TEMPLATE_VARIABLES] = {.prompt = "In the text below variables get their values, some of them from other variables. "
                                      "Keep track of who has which.\n\n{context}\n\nQuestion: which variables end up with "
                                      "the value {query}?\n",
                            .begun = "Following the text step by step, the {num_v} variables with the value {query} are:",
                            .noise = NOISE},
    [TEMPLATE_COMMON_WORDS] = {.prompt = "Here is a numbered list in which a few words come up far more often than the "
                                         "rest. Watch out for those.\n\n{context}\n\nQuestion: which 10 words come up most "
                                         "often in this list?\n",
                               .begun = "The 10 words that come up most often are:"},
    [TEMPLATE_FREQUENT_WORDS] = {.prompt = "The text below is written in a secret code. Count how often each of its words "
                                           "comes up.\n\n{context}\n\nQuestion: leaving the dots '...' aside, which three "
                                           "words of the code come up most often? Name them and nothing else.\n",
                                 .begun = "The three words of the code that come up most often are:"},
    [TEMPLATE_QA] = {.prompt = "A question follows these passages. What answers it stands in them; give that and no "
                               "more.\n\n{context}\n\nIn as few words as will do, going by the passages: {query}\n",
                     .begun = "Answer:",
                     .document = "Passage {i}:\n{document}"},
};

static const char *const kind_names[N_TEMPLATES] = {"niah", "variable_tracking", "common_words_extraction",
                                                    "freq_words_extraction", "qa"};

/* A text of a kind in the file: the placeholders that it may have, and whether {context} must be among them. */
typedef struct entry {
	const char *key;
	size_t field; /* in wording */
	const char *names;
	template_kind kind;
	bool context;
} entry;

#define AT(name) offsetof(wording, name)
static const entry entries[] = {
    {"template", AT(prompt), "context query type_needle_v", TEMPLATE_NIAH, true},
    {"answer_prefix", AT(begun), "query type_needle_v", TEMPLATE_NIAH, false},
    {"template_one", AT(prompt_one), "context query type_needle_v", TEMPLATE_NIAH, true},
    {"answer_prefix_one", AT(begun_one), "query type_needle_v", TEMPLATE_NIAH, false},
    {"needle", AT(needle), "type_needle_v key value", TEMPLATE_NIAH, false},
    {"noise", AT(noise), "", TEMPLATE_NIAH, false},
    {"template", AT(prompt), "context query num_v", TEMPLATE_VARIABLES, true},
    {"answer_prefix", AT(begun), "query num_v", TEMPLATE_VARIABLES, false},
    {"noise", AT(noise), "", TEMPLATE_VARIABLES, false},
    {"template", AT(prompt), "context query", TEMPLATE_COMMON_WORDS, true},
    {"answer_prefix", AT(begun), "query", TEMPLATE_COMMON_WORDS, false},
    {"template", AT(prompt), "context query", TEMPLATE_FREQUENT_WORDS, true},
    {"answer_prefix", AT(begun), "query", TEMPLATE_FREQUENT_WORDS, false},
    {"template", AT(prompt), "context query", TEMPLATE_QA, true},
    {"answer_prefix", AT(begun), "query", TEMPLATE_QA, false},
    {"document", AT(document), "i document", TEMPLATE_QA, false},
};

/* A piece of a template at text: "{{", "}}", a placeholder, or bytes up to the next of these. */
typedef struct piece {
	size_t size;
	const char *name; /* of a placeholder; NULL */
	size_t n_name;
	bool doubled, broken;
} piece;

static piece next_piece(const char *text, size_t n) {
	piece p = {.size = 0};
	while (p.size < n && text[p.size] != '{' && text[p.size] != '}') {
		p.size++;
	}
	if (p.size > 0) {
		return p;
	}
	if (n > 1 && text[1] == text[0]) {
		return (piece){.size = 2, .doubled = true};
	}
	const char *close = text[0] == '{' ? memchr(text, '}', n) : NULL;
	if (!close) {
		return (piece){.size = 1, .broken = true};
	}
	return (piece){.size = (size_t)(close - text) + 1, .name = text + 1, .n_name = (size_t)(close - text) - 1};
}

static bool is_name(const piece *p, const char *name) {
	return p->name && strlen(name) == p->n_name && memcmp(p->name, name, p->n_name) == 0;
}

void template_fill(draft *out, const char *text, size_t n, const placeholder *values) {
	for (piece p; n > 0; text += p.size, n -= p.size) {
		p = next_piece(text, n);
		const placeholder *v = values;
		while (p.name && v->name && !is_name(&p, v->name)) {
			v++;
		}
		if (!p.name) {
			draft_add_n(out, text, p.doubled ? 1 : p.size);
		} else if (v->name) {
			draft_add(out, v->value);
		}
	}
}

/* Where {context} is; the end where there is none. */
static size_t find_context(const char *prompt, size_t *size) {
	size_t n = strlen(prompt), at = 0;
	*size = 0;
	while (at < n) {
		piece p = next_piece(prompt + at, n - at);
		if (is_name(&p, "context")) {
			*size = p.size;
			break;
		}
		at += p.size;
	}
	return at;
}

size_t template_before(const char *prompt) {
	size_t size;
	return find_context(prompt, &size);
}

const char *template_behind(const char *prompt) {
	size_t size, at = find_context(prompt, &size);
	return prompt + at + size;
}

/* Whether names, words with a space between, has it. */
static bool allowed(const piece *p, const char *names) {
	while (*names) {
		size_t n = strcspn(names, " ");
		if (n == p->n_name && memcmp(names, p->name, n) == 0) {
			return true;
		}
		names += n + (names[n] == ' ');
	}
	return false;
}

static bool check(const char *path, const entry *e, const char *text) {
	const char *kind = kind_names[e->kind];
	int32_t contexts = 0;
	size_t n = strlen(text);
	for (piece p; n > 0; text += p.size, n -= p.size) {
		p = next_piece(text, n);
		if (p.broken) {
			fail("%s: %s.%s has a single brace; write {{ or }} for the brace itself", path, kind, e->key);
			return false;
		}
		if (p.name && !allowed(&p, e->names)) {
			fail("%s: %s.%s has {%.*s}; it can have: %s", path, kind, e->key, (int)(p.n_name < 64 ? p.n_name : 64), p.name,
			     *e->names ? e->names : "no placeholder");
			return false;
		}
		contexts += is_name(&p, "context");
	}
	if (contexts != (e->context ? 1 : 0)) {
		fail("%s: %s.%s must have {context} once, it has it %d times", path, kind, e->key, (int)contexts);
		return false;
	}
	return true;
}

/* Sets a text of a kind's wording from the file. */
static bool set(templates *t, const char *path, template_kind kind, const char *key, const json_t *value) {
	for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
		const entry *e = &entries[i];
		if (e->kind != kind || strcmp(e->key, key) != 0) {
			continue;
		}
		const char *text = json_string_value(value);
		if (!text || (!*text && e->field != AT(begun) && e->field != AT(begun_one))) {
			fail("%s: %s.%s must be a string with something in it", path, kind_names[kind], key);
			return false;
		}
		memcpy((char *)&t->kinds[kind] + e->field, &text, sizeof text);
		return check(path, e, text);
	}
	fail("%s: %s has '%s', which it can't have; there are template and answer_prefix, for niah also template_one, "
	     "answer_prefix_one and needle, for niah and variable_tracking noise, for qa document",
	     path, kind_names[kind], key);
	return false;
}

static bool set_kind(templates *t, const char *path, template_kind kind, json_t *object) {
	if (!json_is_object(object) || !json_object_get(object, "template")) {
		fail("%s: %s must be an object with a \"template\"", path, kind_names[kind]);
		return false;
	}
	/* Wording goes together: another prompt does not get our beginning of an answer. */
	wording *w = &t->kinds[kind];
	w->begun = w->prompt_one = w->begun_one = NULL;
	const char *key;
	json_t *value;
	json_object_foreach(object, key, value) {
		if (!set(t, path, kind, key, value)) {
			return false;
		}
	}
	return true;
}

static bool set_all(templates *t, const char *path) {
	const char *name;
	json_t *object;
	if (!json_is_object(t->file)) {
		fail("%s must be a JSON object of task kinds: niah, variable_tracking and so on", path);
		return false;
	}
	json_object_foreach(t->file, name, object) {
		template_kind kind = 0;
		while (kind < N_TEMPLATES && strcmp(kind_names[kind], name) != 0) {
			kind++;
		}
		if (kind == N_TEMPLATES) {
			fail("%s has '%s'; task kinds are niah, variable_tracking, common_words_extraction, freq_words_extraction, qa",
			     path, name);
			return false;
		}
		if (!set_kind(t, path, kind, object)) {
			return false;
		}
	}
	return true;
}

bool templates_load(templates *t, const char *path) {
	buffer text;
	json_error_t error;
	memcpy(t->kinds, ours, sizeof ours);
	t->file = NULL;
	if (!path) {
		return true;
	}
	if (!text_read(path, &text)) {
		return false;
	}
	t->file = json_loadb(text.data, text.size, JSON_REJECT_DUPLICATES, &error);
	text_free(&text);
	if (!t->file) {
		fail("%s, line %d: %s", path, error.line, error.text);
		return false;
	}
	if (!set_all(t, path)) {
		templates_free(t);
		return false;
	}
	return true;
}

void templates_free(templates *t) {
	json_decref(t->file);
	t->file = NULL;
}
