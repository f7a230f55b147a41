/* Compression around an ordinary llama.cpp program. usage: ckv-example-llama MODEL.gguf DOCUMENT.txt QUESTION */
#include <chunkkv/llama.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_NEW = 48 };

static char prompt[1 << 20];
static llama_token tokens[1 << 18];

static int fail(const char *what) {
	fprintf(stderr, "%s\n", what);
	return 1;
}

static void build_prompt(FILE *document, const char *question) {
	size_t n = (size_t)sprintf(prompt, "<|im_start|>user\n");
	n += fread(prompt + n, 1, sizeof prompt - n - strlen(question) - 64, document);
	sprintf(prompt + n, "\n\n%s<|im_end|>\n<|im_start|>assistant\n", question);
}

int main(int argc, char **argv) {
	FILE *document = argc == 4 ? fopen(argv[2], "rb") : NULL;
	if (!document || strlen(argv[3]) > 4096) {
		return fail("usage: ckv-example-llama MODEL.gguf DOCUMENT.txt QUESTION");
	}
	build_prompt(document, argv[3]);
	fclose(document);
	struct llama_model *model = llama_model_load_from_file(argv[1], llama_model_default_params());
	if (!model) {
		return fail("the model can't be loaded");
	}
	const struct llama_vocab *vocab = llama_model_get_vocab(model);
	int32_t n = llama_tokenize(vocab, prompt, (int32_t)strlen(prompt), tokens, sizeof tokens / sizeof *tokens, true, true);

	struct llama_context_params cparams = llama_context_default_params();
	cparams.n_ctx = (uint32_t)(n + N_NEW);
	ckv_llama *ckv;
	ckv_llama_report report = {.size = sizeof report};
	if (n <= 0 || ckv_llama_create(&ckv, "chunkkv", NULL)) {
		return fail("the prompt is too long, or there is no memory");
	}
	ckv_llama_attach(ckv, &cparams); /* 1 */
	struct llama_context *ctx = llama_init_from_model(model, cparams);
	if (!ctx || ckv_llama_prefill(ckv, ctx, 0, tokens, n)) { /* 2 */
		return fail(ckv_llama_message(ckv));
	}
	struct llama_sampler *greedy = llama_sampler_init_greedy();
	llama_token next = llama_sampler_sample(greedy, ctx, -1);
	if (ckv_llama_compress(ckv, ctx, 0, ckv_keep_percent(10), &report) || /* 3 */
	    ckv_llama_shrink(ckv, &ctx, 0, report.n_cells + N_NEW)) {         /* 4 */
		return fail(ckv_llama_message(ckv));
	}
	for (int32_t i = 0; i < N_NEW && !llama_vocab_is_eog(vocab, next); i++) {
		char piece[128];
		int32_t length = llama_token_to_piece(vocab, next, piece, sizeof piece, 0, false);
		printf("%.*s", length > 0 ? length : 0, piece);
		if (llama_decode(ctx, llama_batch_get_one(&next, 1))) {
			return fail("llama_decode failed");
		}
		next = llama_sampler_sample(greedy, ctx, -1);
	}
	printf("\n[%d tokens seen, %d kept; cache %.1f MB -> %.1f MB]\n", report.n_seen, report.n_cells,
	       (double)report.bytes_before / 1e6, (double)report.bytes_after / 1e6);
	llama_sampler_free(greedy);
	llama_free(ctx);
	llama_model_free(model);
	ckv_llama_free(ckv);
	return 0;
}
