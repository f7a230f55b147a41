/* Reading and writing state as bytes. */
#include "stream/internal.h"

#include <string.h>

typedef struct head {
	char magic[4];
	uint32_t order; /* 0x01020304 as this machine writes it */
	uint32_t version, unused;
	uint64_t size; /* of all */
	uint64_t sum;  /* of what follows */
} head;

enum { BYTE_ORDER_MARK = 0x01020304 };

/* FNV-1a: for damage, not for malice; whatever is read is checked by itself as well. */
static uint64_t checksum(const uint8_t *data, size_t n) {
	uint64_t sum = 14695981039346656037u;
	for (size_t i = 0; i < n; i++) {
		sum = (sum ^ data[i]) * 1099511628211u;
	}
	return sum;
}

void ckv_bytes_begin(byte_writer *w, void *data, size_t capacity) {
	w->data = data;
	w->capacity = data ? capacity : 0;
	w->size = sizeof(head);
}

void ckv_bytes_put(byte_writer *w, const void *from, size_t n) {
	if (n && w->size <= w->capacity && n <= w->capacity - w->size) {
		memcpy(w->data + w->size, from, n);
	}
	w->size += n;
}

void ckv_bytes_put_int(byte_writer *w, int32_t value) { ckv_bytes_put(w, &value, sizeof value); }

size_t ckv_bytes_end(byte_writer *w, const char magic[4], uint32_t version) {
	head h = {.order = BYTE_ORDER_MARK, .version = version, .size = w->size};
	if (w->size <= w->capacity) {
		memcpy(h.magic, magic, sizeof h.magic);
		h.sum = checksum(w->data + sizeof h, w->size - sizeof h);
		memcpy(w->data, &h, sizeof h);
	}
	return w->size;
}

ckv_status ckv_bytes_open(byte_reader *r, const void *data, size_t size, const char magic[4], uint32_t version,
                          ckv_error *error) {
	head h;
	memset(&h, 0, sizeof h);
	if (data && size >= sizeof h) {
		memcpy(&h, data, sizeof h);
	}
	if (memcmp(h.magic, magic, sizeof h.magic) != 0) {
		return ckv_fail(error, CKV_ERR_ARG, "these %zu bytes are no saved state of this kind", size);
	}
	if (h.order != BYTE_ORDER_MARK || h.version != version || h.unused != 0) {
		return ckv_fail(error, CKV_ERR_ARG, "the state was saved by another version (%u, this one reads %u) or machine",
		                (unsigned)h.version, (unsigned)version);
	}
	r->data = (const uint8_t *)data + sizeof h;
	r->left = size - sizeof h;
	r->good = true;
	if (h.size != size || h.sum != checksum(r->data, r->left)) {
		return ckv_fail(error, CKV_ERR_ARG, "the saved state is damaged: %zu bytes, where %llu were written", size,
		                (unsigned long long)h.size);
	}
	return CKV_OK;
}

const void *ckv_bytes_take(byte_reader *r, size_t count, size_t size) {
	const void *at = r->data;
	if (!r->good || (size && count > r->left / size)) {
		r->good = false;
		return NULL;
	}
	r->data += count * size;
	r->left -= count * size;
	return at;
}

int32_t ckv_bytes_take_int(byte_reader *r) {
	int32_t value = 0;
	const void *at = ckv_bytes_take(r, 1, sizeof value);
	if (at) {
		memcpy(&value, at, sizeof value);
	}
	return value;
}

enum { POLICY_TEXT = 512 };

static int32_t policy_text(const ckv_stream_params *params, char text[POLICY_TEXT]) {
	size_t n = ckv_stream_format(params, text, POLICY_TEXT);
	return n < POLICY_TEXT ? (int32_t)n : POLICY_TEXT - 1;
}

void ckv_bytes_put_policy(byte_writer *w, const ckv_stream_params *params) {
	char text[POLICY_TEXT] = "";
	int32_t n = policy_text(params, text);
	ckv_bytes_put_int(w, n);
	ckv_bytes_put(w, text, (size_t)n);
}

bool ckv_bytes_take_policy(byte_reader *r, const ckv_stream_params *params) {
	char text[POLICY_TEXT] = "";
	int32_t n = policy_text(params, text), theirs = ckv_bytes_take_int(r);
	const void *at = theirs == n ? ckv_bytes_take(r, (size_t)n, 1) : NULL;
	return at && memcmp(at, text, (size_t)n) == 0;
}

bool ckv_bytes_positions_good(const void *positions, int32_t n, int32_t seen, bool ascending) {
	int32_t last = -1;
	for (int32_t i = 0; i < n; i++) {
		int32_t position;
		memcpy(&position, (const char *)positions + (size_t)i * sizeof position, sizeof position);
		if (position < 0 || (ascending && position <= last) || position >= seen) {
			return false;
		}
		last = position;
	}
	return true;
}
