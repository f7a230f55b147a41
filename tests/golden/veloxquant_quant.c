/* Kind "quant": caches whose rows are coded. Which method, and KIVI's codes. */
#include "quant/quant.h"
#include "veloxquant.h"
#include "veloxquant_cache.h"
#include "veloxquant_job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ----------------------------------------------------------------------------------------------------------- kivi */

typedef struct kivi_config {
	int32_t bits, group, residual;
} kivi_config;

static bool read_config(const json_t *root, kivi_config *config, note *why) {
	json_t *of;
	return field_object(root, "config", &of, why) && field_int(of, "bit_width_inlier", 1, &config->bits, why) &&
	       field_int(of, "kivi_group_size", 1, &config->group, why) &&
	       field_int(of, "residual_length", 0, &config->residual, why) &&
	       (config->bits <= 8 || note_set(why, "%d bits: 8 are the most", config->bits)) &&
	       (json_object_size(of) == 3 || note_set(why, "there is a setting that the replay does not know"));
}

/* Keys' or values' codes and levels, of the rows of all heads that have left the window in whole groups. */
typedef struct coded {
	bool by_row; /* values */
	int32_t heads, rows, dim;
	int32_t sets, set_size; /* of levels, of each head */
	size_t numbers;         /* heads * rows * dim */
	uint8_t *bytes;         /* [numbers] codes */
	int32_t *codes;         /* the same, as files have them */
	float *scale, *zero;    /* [heads][sets][set_size] */
} coded;

static int32_t coded_rows(const kivi_config *config, int32_t tokens) {
	int32_t outside = tokens > config->residual ? tokens - config->residual : 0;
	return outside / config->group * config->group;
}

static void coded_close(coded *c) {
	free(c->bytes);
	free(c->codes);
	free(c->scale);
	free(c->zero);
}

static bool coded_open(coded *c, const vq_case *from, const kivi_config *config, bool by_row, note *why) {
	int32_t dim = from->dim, rows = coded_rows(config, from->feed.tokens);
	*c = (coded){.by_row = by_row, .heads = from->feed.heads, .rows = rows, .dim = dim};
	c->sets = by_row ? rows : rows / config->group;
	c->set_size = by_row ? (dim - 1) / config->group + 1 : dim;
	c->numbers = (size_t)c->heads * (size_t)rows * (size_t)dim;
	size_t levels = (size_t)c->heads * (size_t)c->sets * (size_t)c->set_size;
	c->bytes = malloc(c->numbers + 1);
	c->codes = malloc(c->numbers * sizeof *c->codes + 1);
	c->scale = malloc(levels * sizeof *c->scale + 1);
	c->zero = malloc(levels * sizeof *c->zero + 1);
	if (!c->bytes || !c->codes || !c->scale || !c->zero) {
		coded_close(c);
		return note_set(why, "no memory for codes");
	}
	return true;
}

/* A group: numbers from x[at] on, its levels at [level]. */
static void code_group(coded *c, const float *x, size_t at, size_t n, size_t stride, int32_t bits, size_t level) {
	ckv_levels levels = ckv_levels_make(x + at, n, stride, bits, false, c->bytes + at, stride);
	c->scale[level] = levels.scale;
	c->zero[level] = levels.zero;
}

/* x[heads][rows][dim]. */
static void code_all(coded *c, const float *x, const kivi_config *config) {
	size_t dim = (size_t)c->dim, group = (size_t)config->group, rows = (size_t)c->heads * (size_t)c->rows, level = 0;
	for (size_t row = 0; row < rows; row += c->by_row ? 1 : group) {
		for (size_t first = 0; first < dim; first += c->by_row ? group : 1) {
			size_t n = c->by_row && dim - first < group ? dim - first : group;
			code_group(c, x, row * dim + first, n, c->by_row ? 1 : dim, config->bits, level++);
		}
	}
	for (size_t i = 0; i < c->numbers; i++) {
		c->codes[i] = c->bytes[i];
	}
}

/* The rows' numbers as float, [heads][rows][dim]; from malloc. */
static float *widen(const coded *c, const ckv_view *view, note *why) {
	size_t row = (size_t)c->dim, head = (size_t)c->rows * row;
	float *x = malloc((size_t)c->heads * head * sizeof *x + 1);
	for (int32_t h = 0; h < c->heads && x && c->rows > 0; h++) {
		ckv_view_decode(ckv_kernels_c(), view, h, 0, c->rows, x + (size_t)h * head);
	}
	if (!x) {
		note_set(why, "no memory for rows");
	}
	return x;
}

/* found[heads][n][width] beside the file of that name; floats and whole numbers alike by their bits. */
static bool same_array(const vq_case *c, const char *name, npy_type type, const void *found, const int32_t *shape,
                       note *why) {
	npy array;
	if (!vq_case_array(c, name, type, 3, shape, &array, why)) {
		return false;
	}
	size_t size = npy_item_size(type), i = 0, row = (size_t)shape[2];
	const char *expected = array.data, *have = found;
	while (i < array.count && memcmp(expected + i * size, have + i * size, size) == 0) {
		i++;
	}
	bool same = i == array.count || note_set(why, "%.40s: head %zu, row %zu, entry %zu differs", name,
	                                         i / row / (size_t)shape[1], i / row % (size_t)shape[1], i % row);
	npy_free(&array);
	return same;
}

/* One of the arrays, where the case has it. */
static void count_array(const vq_job *job, const vq_case *c, const char *side, const char *what, npy_type type,
                        const void *found, const int32_t *shape) {
	char name[64], file[72];
	note why = {""};
	snprintf(name, sizeof name, "%s_%s", side, what);
	snprintf(file, sizeof file, "%s.npy", name);
	if (json_object_get(json_object_get(c->file->root, "shapes"), name)) {
		vq_count(job, name, same_array(c, file, type, found, shape, &why), &why);
	}
}

static void replay_codes(const vq_job *job, const vq_case *c, const kivi_config *config, bool values) {
	const char *side = values ? "value" : "key";
	coded mine;
	note why = {""};
	if (!coded_open(&mine, c, config, values, &why)) {
		vq_count(job, side, false, &why);
		return;
	}
	float *x = widen(&mine, values ? &c->feed.values : &c->feed.keys, &why);
	if (x) {
		int32_t numbers[] = {mine.heads, mine.rows, mine.dim}, levels[] = {mine.heads, mine.sets, mine.set_size};
		code_all(&mine, x, config);
		count_array(job, c, side, "codes", NPY_I4, mine.codes, numbers);
		count_array(job, c, side, "scale", NPY_F4, mine.scale, levels);
		count_array(job, c, side, "zero", NPY_F4, mine.zero, levels);
	} else {
		vq_count(job, side, false, &why);
	}
	free(x);
	coded_close(&mine);
}

/* ---------------------------------------------------------------------------------------------------------- cache */

/* Rows as f16 beside the file of that name, bit for bit. */
static bool same_rows(const vq_case *c, const char *name, const float *found, note *why) {
	npy array;
	if (!vq_case_array(c, name, NPY_F2, 4, (int32_t[]){c->batch, c->heads, c->feed.tokens, c->dim}, &array, why)) {
		return false;
	}
	const uint16_t *expected = array.data;
	size_t i = 0, row = (size_t)c->dim, tokens = (size_t)c->feed.tokens;
	while (i < array.count && expected[i] == ckv_f16_from_f32(found[i])) {
		i++;
	}
	bool same =
	    i == array.count || note_set(why, "head %zu, row %zu, channel %zu: %04x expected, %04x found", i / row / tokens,
	                                 i / row % tokens, i % row, (unsigned)expected[i], (unsigned)ckv_f16_from_f32(found[i]));
	npy_free(&array);
	return same;
}

/* Some of what the cache reports of itself, beside the entries that add up to it. */
static void count_sum(const vq_job *job, const char *when, const char *const *names, size_t n, double found) {
	note why = {""};
	char item[96];
	snprintf(item, sizeof item, "%s: %.40s", when, names[0]);
	vq_count(job, item, vq_sum_agrees(json_object_get(job->file->root, when), names, n, found, &why), &why);
}

static void replay_state(const vq_job *job, const char *when, const kivi_config *config, const vq_case *c,
                         const vq_cache_state *s) {
	static const char *const bytes[] = {"compressed_key_bytes", "compressed_value_bytes", "residual_fp16_bytes"},
	                         *const whole[] = {"fp16_key_bytes", "fp16_value_bytes"}, *const offset[] = {"offset"},
	                         *const packed[] = {"n_quantized"}, *const ratio[] = {"effective_compression_ratio"};
	if ((int64_t)config->group * config->bits % 8 * c->dim % 8 == 0) {
		count_sum(job, when, bytes, 3, (double)s->info.reference_bytes);
		if (s->info.rows > 0) {
			count_sum(job, when, ratio, 1, (double)s->info.bytes_f16 / (double)s->info.reference_bytes);
		}
	} else { /* a count of calls then, each of which they round up */
		vq_skip(job, "bytes of groups that end inside one");
	}
	count_sum(job, when, whole, 2, (double)s->info.bytes_f16);
	count_sum(job, when, offset, 1, (double)s->info.longest);
	if (json_object_get(json_object_get(job->file->root, when), packed[0])) {
		count_sum(job, when, packed, 1, (double)s->packed);
	}
}

/* What a cache gives back, step by step, and what it says of itself. */
static void replay_cache(const vq_job *job, const vq_case *c, const kivi_config *config) {
	ckv_codec codec = vq_codec("kivi");
	vq_cached cached;
	note why = {""};
	codec.bits = config->bits;
	codec.group = config->group;
	codec.residual = config->residual;
	if (!vq_codec_taken(job, &codec)) {
		return;
	}
	if (!vq_cached_open(&cached, c, &codec, &why)) {
		vq_count(job, "cache", false, &why);
		return;
	}
	vq_cached_replay_returned(job, c, &cached);
	vq_count(job, "out_keys", same_rows(c, "out_keys.npy", cached.keys, &why), &why);
	vq_count(job, "out_values", same_rows(c, "out_values.npy", cached.values, &why), &why);
	replay_state(job, "attrs_after_prefill", config, c, &cached.first);
	replay_state(job, "attrs_final", config, c, &cached.final);
	vq_cached_close(&cached);
}

static void replay_kivi(const casefile *file, tally *counts) {
	kivi_config config;
	vq_case c;
	vq_job job;
	note why = {""};
	vq_job_init(&job, file, counts, "kivi");
	if (!read_config(file->root, &config, &why) || !vq_case_open(&c, file, NULL, &why)) {
		vq_count(&job, "case", false, &why);
		return;
	}
	replay_codes(&job, &c, &config, false);
	replay_codes(&job, &c, &config, true);
	replay_cache(&job, &c, &config);
	vq_case_close(&c);
}

/* --------------------------------------------------------------------------------------------------------- methods */

static const struct {
	const char *method;
	void (*replay)(const casefile *file, tally *counts);
} methods[] = {{"kivi", replay_kivi}, {"palu", ckv_vectors_palu}};

void veloxquant_replay_quant(const casefile *file, tally *counts) {
	const char *method = json_string_value(json_object_get(file->root, "method"));
	for (size_t i = 0; method && i < sizeof methods / sizeof *methods; i++) {
		if (strcmp(method, methods[i].method) == 0) {
			methods[i].replay(file, counts);
			return;
		}
	}
	vq_job job;
	vq_job_init(&job, file, counts, method ? method : "unknown");
	vq_skip(&job, "no replay yet");
}
