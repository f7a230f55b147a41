/* Parts of `chunkkv chat` that need no model: turns cut out of chat templates, and the room that pins leave. */
#include "chat.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---------------------------------------------------------------------------------------------------------- templates */

/* The conversation as llama.cpp would put it, the next reply opened. */
static char *whole(const char *name, const struct llama_chat_message *messages, size_t n) {
	int32_t size = llama_chat_apply_template(name, messages, n, true, NULL, 0);
	assert_true(size > 0);
	char *out = malloc((size_t)size + 1);
	assert_non_null(out);
	llama_chat_apply_template(name, messages, n, true, out, size);
	out[size] = '\0';
	return out;
}

/* The same from the pieces of a frame. */
static char *pieced(const chat_frame *f, const struct llama_chat_message *messages, size_t n, bool system) {
	size_t size = 4096, at = 0;
	char *out = malloc(size);
	assert_non_null(out);
	at += (size_t)snprintf(out + at, size - at, "%s%s%s", f->start, system ? messages[0].content : "", f->first);
	bool first = true;
	for (size_t i = system ? 1 : 0; i < n; i += 2, first = false) {
		const char *reply = i + 1 < n ? messages[i + 1].content : "", *next = i + 1 < n ? f->next : "";
		at += (size_t)snprintf(out + at, size - at, "%s%s%s%s", messages[i].content, first ? f->first_end : f->next_end,
		                       reply, next);
	}
	assert_true(at < size);
	return out;
}

static const struct llama_chat_message talk[] = {
    {"system", "You are kind."}, {"user", "Who are you?"}, {"assistant", "A cat."},   {"user", "What do you eat?"},
    {"assistant", "Fish."},      {"user", "Only fish?"},   {"assistant", "Only it."}, {"user", "Well."}};
enum { N_TALK = sizeof talk / sizeof *talk };

/* Templates open a reply without the space or line that comes before a reply's text: it is left to the model. */
static void drop_white_space(char *text) {
	char *to = text;
	for (const char *from = text; *from; from++) {
		if (!strchr(" \n", *from)) {
			*to++ = *from;
		}
	}
	*to = '\0';
}

/* Those that open a reply otherwise than they show one. */
static bool opens_its_own_way(const char *name) {
	static const char *const names[] = {"bailing-think", "gpt-oss", "hunyuan-dense", "solar-open", "yandex"};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		if (strcmp(names[i], name) == 0) {
			return true;
		}
	}
	return false;
}

static void compare_with_whole(const char *name, bool system) {
	const struct llama_chat_message *from = system ? talk : talk + 1;
	size_t n = N_TALK - (system ? 0 : 1);
	chat_frame f;
	assert_int_equal(chat_frame_make(&f, name, system), FRAME_GOOD);
	char *expected = whole(name, from, n), *got = pieced(&f, from, n, system);
	drop_white_space(expected);
	drop_white_space(got);
	assert_string_equal(got, expected);
	free(expected);
	free(got);
	chat_frame_free(&f);
}

static void turns_put_together_are_the_conversation_as_the_template_has_it(void **state) {
	const char *names[256];
	int32_t n = llama_chat_builtin_templates(names, 256);
	(void)state;
	for (int32_t i = 0; i < n; i++) {
		if (!opens_its_own_way(names[i])) {
			compare_with_whole(names[i], false);
			compare_with_whole(names[i], true);
		}
	}
}

static void every_template_of_llama_cpp_can_be_cut(void **state) {
	const char *names[256];
	int32_t n = llama_chat_builtin_templates(names, 256);
	(void)state;
	assert_true(n > 20 && n <= 256);
	for (int32_t i = 0; i < n; i++) {
		chat_frame f;
		assert_int_equal(chat_frame_make(&f, names[i], false), FRAME_GOOD);
		assert_string_equal(f.start, "");
		chat_frame_free(&f);
		bool leaves_it_out = strcmp(names[i], "yandex") == 0;
		assert_int_equal(chat_frame_make(&f, names[i], true), leaves_it_out ? FRAME_NO_SYSTEM : FRAME_GOOD);
		chat_frame_free(&f);
	}
}

static void a_reply_is_closed_between_it_and_the_next_message_alone(void **state) {
	chat_frame f;
	(void)state;
	assert_int_equal(chat_frame_make(&f, "chatml", true), FRAME_GOOD);
	assert_string_equal(f.start, "<|im_start|>system\n");
	assert_string_equal(f.first, "<|im_end|>\n<|im_start|>user\n");
	assert_string_equal(f.first_end, "<|im_end|>\n<|im_start|>assistant\n");
	assert_string_equal(f.next, "<|im_end|>\n<|im_start|>user\n");
	assert_string_equal(f.next_end, f.first_end);
	chat_frame_free(&f);
}

static void an_unknown_template_is_refused_and_none_is_empty(void **state) {
	chat_frame f;
	(void)state;
	assert_int_equal(chat_frame_make(&f, "nonsense", false), FRAME_UNKNOWN);
	assert_int_equal(chat_frame_make(&f, NULL, true), FRAME_GOOD);
	assert_string_equal(f.first, "");
	assert_string_equal(f.next, "");
	chat_frame_free(&f);
}

/* --------------------------------------------------------------------------------------------------------------- room */

static ckv_stream_params policy(const char *text) {
	ckv_stream_params p;
	assert_int_equal(ckv_stream_parse(text, &p, NULL), CKV_OK);
	return p;
}

static void pins_that_overlap_or_share_a_chunk_count_once(void **state) {
	const ckv_stream_params p = policy("chunkkv:chunk=8,sinks=4,grace=32");
	const span pins[] = {{30, 37}, {0, 10}, {5, 12}, {31, 33}};
	(void)state;
	/* 0 to 12 as it is; of chunks that begin at 4 + 8 i those from 28 to 44 */
	assert_int_equal(chat_room_for(NULL, &p, 512, 512, pins, 4).pinned, 12 + 16);
	assert_int_equal(chat_room_for(NULL, &p, 512, 512, NULL, 0).pinned, 4);
}

static void a_budget_is_enough_when_a_piece_still_fits_beside_what_stays(void **state) {
	const ckv_stream_params p = policy("h2o:grace=16,sinks=4");
	const span most = {0, 512 - 128 - 17}, more = {0, 512 - 128 - 17 + 1};
	(void)state;
	assert_int_equal(chat_room_for(NULL, &p, 512, 512, &most, 1).lacking, 0);
	chat_room room = chat_room_for(NULL, &p, 512, 512, &more, 1);
	assert_int_equal(room.lacking, 1);
	assert_int_equal(chat_room_for(NULL, &p, room.enough, 512, &more, 1).lacking, 0);
	assert_int_equal(chat_room_for(NULL, &p, 512, 64, &more, 1).lacking, 0);
}

int main(void) {
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(turns_put_together_are_the_conversation_as_the_template_has_it),
	    cmocka_unit_test(every_template_of_llama_cpp_can_be_cut),
	    cmocka_unit_test(a_reply_is_closed_between_it_and_the_next_message_alone),
	    cmocka_unit_test(an_unknown_template_is_refused_and_none_is_empty),
	    cmocka_unit_test(pins_that_overlap_or_share_a_chunk_count_once),
	    cmocka_unit_test(a_budget_is_enough_when_a_piece_still_fits_beside_what_stays),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
