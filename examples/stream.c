/* A cache that never grows, with an engine of one's own: made-up keys, values and queries in place of a real model's, token
 * by token. usage: ckv-example-stream */
#include <chunkkv/stream.h>

#include <math.h>
#include <stdio.h>

enum { N_HEADS = 4, N_KV_HEADS = 2, DIM = 64, BUDGET = 128, N_TOKENS = 2000, NEEDLE = 300 };

static ckv_view one_token(const float *data, int32_t n_heads) {
	ckv_view v = {.data = data,
	              .dtype = CKV_F32,
	              .n_heads = n_heads,
	              .n_tokens = 1,
	              .head_dim = DIM,
	              .stride_head = DIM * sizeof(float),
	              .stride_token = DIM * sizeof(float)};
	return v;
}

/* Slowly turning keys; tokens around NEEDLE point elsewhere, and every query looks there. */
static void fill(int32_t token, float k[N_KV_HEADS][DIM], float v[N_KV_HEADS][DIM], float q[N_HEADS][DIM]) {
	int needle = token >= NEEDLE && token < NEEDLE + 8;
	for (int c = 0; c < DIM; c++) {
		for (int h = 0; h < N_KV_HEADS; h++) {
			k[h][c] = needle ? cosf(1.7f * (float)c) : sinf(0.01f * (float)((token + 1) * (c % 5 + 1)));
			v[h][c] = (float)token;
		}
		for (int h = 0; h < N_HEADS; h++) {
			q[h][c] = cosf(1.7f * (float)c);
		}
	}
}

int main(void) {
	static float k[N_KV_HEADS][DIM], v[N_KV_HEADS][DIM], q[N_HEADS][DIM];
	const ckv_stream_shape shape = {N_KV_HEADS, DIM, DIM};
	ckv_stream_params params;
	ckv_stream *stream;
	ckv_error error;
	if (ckv_stream_parse("chunkkv:chunk=8", &params, &error) ||
	    ckv_stream_create(&stream, &params, BUDGET, &shape, 1, NULL, &error)) {
		fprintf(stderr, "%s\n", error.message);
		return 1;
	}
	for (int32_t t = 0; t < N_TOKENS; t++) {
		fill(t, k, v, q);
		ckv_view keys = one_token(k[0], N_KV_HEADS), values = one_token(v[0], N_KV_HEADS),
		         queries = one_token(q[0], N_HEADS);
		if (ckv_stream_push(stream, 0, &keys, &values, &queries)) {
			fprintf(stderr, "%s\n", ckv_stream_message(stream));
			ckv_stream_free(stream);
			return 1;
		}
	}
	ckv_stream_info info;
	ckv_stream_rows rows;
	ckv_stream_layer_info(stream, 0, &info);
	ckv_stream_head(stream, 0, 0, &rows);
	int32_t of_needle = 0;
	for (int32_t i = 0; i < rows.n; i++) {
		of_needle += rows.positions[i] >= NEEDLE && rows.positions[i] < NEEDLE + 8;
	}
	printf("%d tokens seen, %d kept, %d of the 8 that were looked for; %.1f times smaller\n", info.tokens_seen,
	       info.tokens_kept, of_needle, info.compression_ratio);
	ckv_stream_free(stream);
	return 0;
}
