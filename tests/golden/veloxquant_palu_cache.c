/* A case of palu in a cache of ours: what it gives back, and says of itself. */
#include "veloxquant_cache.h"
#include "veloxquant_palu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The rows of a cache are, bit for bit, those that come from the library's parts, which are compared above. */
static bool same_as_parts(vq_palu *p, const float *found, note *why) {
	size_t dim = (size_t)p->c->dim, rank = (size_t)p->fit.rank, tokens = (size_t)p->c->feed.tokens;
	float *row = malloc(dim * sizeof *row);
	bool ok = (row || note_set(why, "no memory for a row")) && (p->held == 0 || vq_palu_code(p, why));
	for (size_t i = 0; ok && i < (size_t)p->c->feed.heads * tokens; i++) {
		if (p->held > 0) {
			ckv_low_rank_expand(&p->fit, (int32_t)(i / tokens), p->latents + i * rank, 1, row);
		} else {
			memcpy(row, p->rows + i * dim, dim * sizeof *row);
		}
		ok = memcmp(row, found + i * dim, dim * sizeof *row) == 0 ||
		     note_set(why, "head %zu, row %zu: not the parts' row", i / tokens, i % tokens);
	}
	free(row);
	return ok;
}

/* And they are the reference's, but for rows of which a code was at an edge: no more than there are such codes. */
static bool near_reference(const vq_palu *p, const char *name, const float *found, note *why) {
	const vq_case *c = p->c;
	npy array;
	if (!vq_case_array(c, name, NPY_F2, 4, (int32_t[]){c->batch, c->heads, c->feed.tokens, c->dim}, &array, why)) {
		return false;
	}
	size_t dim = (size_t)c->dim, rows = array.count / dim, off = 0;
	size_t most = p->coded && p->held > 0 ? 2 + rows * (size_t)p->fit.rank / 1000 : 0;
	for (size_t i = 0; i < rows; i++) {
		size_t channel = 0;
		while (channel < dim && vq_halves_agree(vq_half_at(&array, i * dim + channel), (double)found[i * dim + channel])) {
			channel++;
		}
		off += channel < dim;
	}
	npy_free(&array);
	return off <= most || note_set(why, "%zu of %zu rows are others", off, rows);
}

static void replay_cached_side(const vq_job *job, vq_palu *p, const float *found) {
	note why = {""};
	vq_count(job, p->values ? "cache: values" : "cache: keys", same_as_parts(p, found, &why), &why);
	if (p->held == 0 || vq_palu_spanned(&p->fit)) {
		const char *name = p->values ? "out_values.npy" : "out_keys.npy";
		vq_count(job, p->values ? "cache: out_values" : "cache: out_keys", near_reference(p, name, found, &why), &why);
	}
}

static void replay_cached_state(const vq_job *job, const char *when, const vq_cache_state *s) {
	static const char *const bytes[] = {"compressed_key_bytes", "compressed_value_bytes"},
	                         *const whole[] = {"fp16_key_bytes", "fp16_value_bytes"}, *const rank[] = {"rank"},
	                         *const value_rank[] = {"value_rank"};
	const struct {
		const char *const *names;
		size_t n;
		double found;
	} sums[] = {{bytes, 2, (double)s->info.reference_bytes},
	            {whole, 2, (double)s->info.bytes_f16},
	            {rank, 1, (double)s->info.rank_k},
	            {value_rank, 1, (double)s->info.rank_v}};
	const json_t *all = json_object_get(job->file->root, when);
	for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) {
		char item[96];
		note why = {""};
		snprintf(item, sizeof item, "cache, %s: %.40s", when, sums[i].names[0]);
		if (json_object_get(all, sums[i].names[0])) {
			vq_count(job, item, vq_sum_agrees(all, sums[i].names, sums[i].n, sums[i].found, &why), &why);
		}
	}
}

static ckv_codec codec_of(const vq_palu_config *config, int32_t heads) {
	ckv_codec codec = vq_codec("palu");
	codec.rank = config->rank;
	codec.energy = config->energy;
	codec.head_groups = config->groups < 1 ? 1 : config->groups < heads ? config->groups : heads;
	codec.group = config->group;
	codec.high_bits = config->high_bits;
	codec.low_bits = config->low_bits;
	codec.high_share = config->high_share;
	codec.quantize_values = config->quantize_values;
	return codec;
}

void vq_palu_replay_cache(const vq_job *job, const vq_case *c, const vq_palu_config *config) {
	const ckv_codec codec = codec_of(config, c->feed.heads);
	vq_palu keys, values;
	vq_cached cached;
	note why = {""};
	if (!vq_codec_taken(job, &codec)) {
		return;
	}
	if (!vq_cached_open(&cached, c, &codec, &why)) {
		vq_count(job, "cache", false, &why);
		return;
	}
	vq_cached_replay_returned(job, c, &cached);
	if (vq_palu_open(&keys, c, config, false, &why)) {
		replay_cached_side(job, &keys, cached.keys);
		vq_palu_close(&keys);
	} else {
		vq_count(job, "cache: keys", false, &why);
	}
	if (vq_palu_open(&values, c, config, true, &why)) {
		replay_cached_side(job, &values, cached.values);
		vq_palu_close(&values);
	} else {
		vq_count(job, "cache: values", false, &why);
	}
	replay_cached_state(job, "attrs_after_prefill", &cached.first);
	replay_cached_state(job, "attrs_final", &cached.final);
	vq_cached_close(&cached);
}
