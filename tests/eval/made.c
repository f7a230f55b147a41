#include "made.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

char *made_text(const char *text) {
	size_t size = strlen(text) + 1;
	char *made = malloc(size);
	assert_non_null(made);
	memcpy(made, text, size);
	return made;
}

record made_record(const char *example, const char *cache, const char *policy, const char *keep, float kl,
                   int32_t n_positions) {
	record r = {.example = made_text(example),
	            .task = made_text("t"),
	            .cache = made_text(cache),
	            .policy = made_text(policy),
	            .keep = made_text(keep),
	            .depth = -1.0,
	            .n_prompt = 50,
	            .n_cells = 5,
	            .bytes = 100,
	            .bytes_own = 50,
	            .bytes_full = 1000,
	            .score = (double)NAN,
	            .attention_kept = -1.0,
	            .nll = (double)NAN,
	            .n_positions = n_positions,
	            .reason = made_text(""),
	            .answer = made_text("yes"),
	            .seconds = 1.5};
	r.kl = n_positions ? calloc((size_t)n_positions, sizeof *r.kl) : NULL;
	r.same = n_positions ? calloc((size_t)n_positions, 1) : NULL;
	for (int32_t i = 0; i < n_positions; i++) {
		assert_non_null(r.kl);
		assert_non_null(r.same);
		r.kl[i] = kl;
		r.same[i] = i == 0;
	}
	return r;
}

run_header made_header(void) {
	return (run_header){made_text("1.0"), made_text("niah"),   made_text("m.gguf"),
	                    made_text("abc"), made_text("seed=1"), made_text("window"),
	                    made_text("f16"), made_text("here"),   made_text("2026-01-01")};
}

char *made_read(const char *path) {
	FILE *file = fopen(path, "rb");
	size_t capacity = 1 << 22;
	char *text = malloc(capacity);
	assert_non_null(file);
	assert_non_null(text);
	size_t size = fread(text, 1, capacity - 1, file);
	assert_true(size < capacity - 1);
	text[size] = '\0';
	fclose(file);
	return text;
}
