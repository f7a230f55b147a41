/* Bases and latents of a case of palu, by the library's own parts. */
#include "veloxquant_palu.h"

#include <stdlib.h>
#include <string.h>

bool vq_palu_config_read(const json_t *root, vq_palu_config *config, note *why) {
	json_t *of;
	*config = (vq_palu_config){0};
	if (!field_object(root, "config", &of, why)) {
		return false;
	}
	const json_t *values = json_object_get(of, "palu_quantize_values");
	config->quantize_values = json_is_true(values);
	return (json_is_null(json_object_get(of, "palu_rank")) || field_int(of, "palu_rank", 1, &config->rank, why)) &&
	       field_int(of, "palu_n_head_groups", INT32_MIN, &config->groups, why) &&
	       field_int(of, "palu_group_size", 1, &config->group, why) &&
	       field_int(of, "palu_hi_bit", 1, &config->high_bits, why) &&
	       field_int(of, "palu_lo_bit", 1, &config->low_bits, why) &&
	       field_number(of, "palu_energy_threshold", &config->energy, why) &&
	       field_number(of, "palu_hi_fraction", &config->high_share, why) &&
	       ((config->high_bits <= 8 && config->low_bits <= 8) || note_set(why, "8 bits are the most")) &&
	       (json_is_boolean(values) || note_set(why, "palu_quantize_values is not a yes or no")) &&
	       (json_object_size(of) == 8 || note_set(why, "there is a setting that the replay does not know"));
}

int32_t vq_palu_n_high(const vq_palu_config *config, int32_t rank) {
	int32_t n = (int32_t)((double)rank * config->high_share);
	return n < 1 ? 1 : n > rank ? rank : n;
}

/* ----------------------------------------------------------------------------------------------------------- bases */

/* Calls of one token wait for a longer one, whose bases are theirs too. */
static int32_t tokens_held(const vq_feed *feed) {
	int32_t held = 0;
	for (int32_t s = 0; s < feed->n_steps; s++) {
		held += feed->steps[s];
		if (feed->steps[s] > 1) {
			return held;
		}
	}
	return 0;
}

static bool fit(vq_palu *p, note *why) {
	int32_t heads = p->c->feed.heads;
	size_t head = (size_t)p->c->feed.tokens * (size_t)p->c->dim;
	const float **rows = malloc((size_t)heads * sizeof *rows);
	int32_t *n_rows = malloc((size_t)heads * sizeof *n_rows);
	ckv_allocator memory = ckv_allocator_default();
	ckv_error error = {CKV_ERR_NOMEM, "no memory for the list of heads"};
	bool ok = rows && n_rows;
	for (int32_t h = 0; h < heads && ok; h++) {
		rows[h] = p->rows + (size_t)h * head;
		n_rows[h] = p->held;
	}
	if (ok) {
		ckv_low_rank_options options = {p->config->rank, p->config->groups, p->config->energy};
		ok = ckv_low_rank_fit(&memory, rows, n_rows, heads, p->c->dim, &options, &p->fit, &error) == CKV_OK;
	}
	free(rows);
	free(n_rows);
	return ok || note_set(why, "no bases: %s", error.message);
}

bool vq_palu_open(vq_palu *p, const vq_case *c, const vq_palu_config *config, bool values, note *why) {
	const ckv_view *view = values ? &c->feed.values : &c->feed.keys;
	size_t head = (size_t)c->feed.tokens * (size_t)c->dim;
	*p = (vq_palu){.c = c,
	               .config = config,
	               .values = values,
	               .coded = !values || config->quantize_values,
	               .held = tokens_held(&c->feed)};
	p->rows = malloc((size_t)c->feed.heads * head * sizeof *p->rows + 1);
	for (int32_t h = 0; h < c->feed.heads && p->rows && c->feed.tokens > 0; h++) {
		ckv_view_decode(ckv_kernels_c(), view, h, 0, c->feed.tokens, p->rows + (size_t)h * head);
	}
	bool ok = (p->rows || note_set(why, "no memory for rows")) && (p->held == 0 || fit(p, why));
	if (!ok) {
		vq_palu_close(p);
	}
	return ok;
}

void vq_palu_close(vq_palu *p) {
	ckv_allocator memory = ckv_allocator_default();
	ckv_low_rank_free(&memory, &p->fit);
	free(p->rows);
	free(p->plain);
	free(p->latents);
	*p = (vq_palu){0};
}

/* --------------------------------------------------------------------------------------------------------- latents */

/* A head's latents in codes and back: each call's rows are groups of their own. */
static bool code_head(const vq_palu *p, const float *plain, float *latents) {
	ckv_allocator memory = ckv_allocator_default();
	int32_t rank = p->fit.rank, at = 0;
	ckv_packed packed = {.shape = {.width = rank,
	                               .group = p->config->group,
	                               .n_high = vq_palu_n_high(p->config, rank),
	                               .high_bits = p->config->high_bits,
	                               .low_bits = p->config->low_bits}};
	bool ok = true;
	int32_t waiting = 0;
	for (int32_t s = 0; s < p->c->feed.n_steps && ok; s++) {
		waiting += p->c->feed.steps[s];
		if (at + waiting >= p->held && waiting > 0) {
			ok = ckv_packed_append(&memory, &packed, plain + (size_t)at * (size_t)rank, waiting) == CKV_OK;
			at += waiting;
			waiting = 0;
		}
	}
	if (ok) {
		ckv_packed_decode(ckv_kernels_c(), &packed, 0, packed.n, latents);
	}
	ckv_packed_free(&memory, &packed);
	return ok;
}

bool vq_palu_code(vq_palu *p, note *why) {
	size_t tokens = (size_t)p->c->feed.tokens, rank = (size_t)p->fit.rank, head = tokens * rank;
	size_t n = (size_t)p->c->feed.heads * head;
	p->plain = calloc(n + 1, sizeof *p->plain);
	p->latents = calloc(n + 1, sizeof *p->latents);
	bool ok = p->plain && p->latents;
	for (int32_t h = 0; h < p->c->feed.heads && ok; h++) {
		float *plain = p->plain + (size_t)h * head, *latents = p->latents + (size_t)h * head;
		ckv_low_rank_project(&p->fit, h, p->rows + (size_t)h * tokens * (size_t)p->c->dim, tokens, plain);
		memcpy(latents, plain, head * sizeof *latents);
		ok = !p->coded || code_head(p, plain, latents);
	}
	for (size_t i = 0; i < n && ok; i++) {
		uint16_t half = ckv_f16_from_f32(p->latents[i]);
		ckv_kernels_c()->f16_to_f32(&half, &p->latents[i], 1);
	}
	return ok || note_set(why, "no memory for latents");
}
