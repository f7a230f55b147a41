/* The core alone, with an engine of one's own: here a made-up layer in place of a real cache. usage: ckv-example-core */
#include <chunkkv/chunkkv.h>

#include <math.h>
#include <stdio.h>

enum { N_HEADS = 8, N_KV_HEADS = 2, N_TOKENS = 500, DIM = 64, WINDOW = 16 };

static float keys[N_KV_HEADS][N_TOKENS][DIM], queries[N_HEADS][WINDOW][DIM];

/* Keys point in slowly turning directions; the window's queries look for those around token 250. */
static void fill(void) {
	for (int c = 0; c < DIM; c++) {
		for (int t = 0; t < N_TOKENS; t++) {
			keys[0][t][c] = keys[1][t][c] = sinf(0.02f * (float)((t + 1) * (c % 7 + 1)));
		}
		for (int i = 0; i < N_HEADS * WINDOW; i++) {
			queries[i / WINDOW][i % WINDOW][c] = 2.0f * keys[0][250 + i % 5][c];
		}
	}
}

static ckv_view view(const void *data, int32_t n_heads, int32_t n_tokens) {
	ckv_view v = {.data = data,
	              .dtype = CKV_F32,
	              .n_heads = n_heads,
	              .n_tokens = n_tokens,
	              .head_dim = DIM,
	              .stride_head = (size_t)n_tokens * DIM * sizeof(float),
	              .stride_token = DIM * sizeof(float)};
	return v;
}

int main(void) {
	ckv_params params;
	ckv_ctx *ctx;
	ckv_error error;
	ckv_layer layer;
	ckv_keep keep;
	int32_t positions[N_TOKENS];
	if (ckv_policy_parse("chunkkv:chunk=10,window=16", &params, &error) || ckv_ctx_create(&ctx, &params, NULL, &error)) {
		fprintf(stderr, "%s\n", error.message);
		return 1;
	}
	fill();
	ckv_layer_init(&layer);
	layer.k = view(keys, N_KV_HEADS, N_TOKENS);
	layer.q = view(queries, N_HEADS, WINDOW);
	ckv_keep_init(&keep, positions, N_TOKENS, NULL);
	if (ckv_select(ctx, &layer, ckv_keep_percent(10), &keep)) {
		fprintf(stderr, "%s\n", ckv_ctx_message(ctx));
		ckv_ctx_free(ctx);
		return 1;
	}
	printf("kept %d of %d tokens, %.0f %% of the window's attention:", keep.n_keep, N_TOKENS,
	       100.0 * (double)keep.attention_kept);
	for (size_t i = 0; i < keep.n_positions; i++) {
		printf(" %d", keep.positions[i]);
	}
	printf("\n");
	ckv_ctx_free(ctx);
	return 0;
}
