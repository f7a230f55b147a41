/* Conversations as files: what they were held with, where they stand, and the cache.
 *
 * In front a save_head; what follows, in this order: the model file's name and size, policy, cache type, budget, rotate;
 * chat_state; the bytes of ckv_llama_stream_save. Numbers are the machine's own. */
#define _POSIX_C_SOURCE 200809L
#include "chat.h"

#include <ggml.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char magic[8] = {'C', 'K', 'V', 'C', 'H', 'A', 'T', '\n'};
enum { VERSION = 1, ORDER_MARK = 0x01020304, LONGEST_TEXT = 4096, MOST_OWED = 1 << 24 };

typedef struct save_head {
	char magic[8];
	uint32_t order, version;
	uint64_t size;     /* of all */
	uint64_t checksum; /* of what follows */
} save_head;

static uint64_t checksum(const char *data, size_t n) {
	uint64_t sum = 14695981039346656037u;
	for (size_t i = 0; i < n; i++) {
		sum = (sum ^ (unsigned char)data[i]) * 1099511628211u; /* FNV-1a */
	}
	return sum;
}

/* What a conversation can only be gone on with by the same. */
typedef struct identity {
	char model[LONGEST_TEXT], policy[256], cache_type[32];
	int64_t model_size;
	int32_t budget, rotate;
} identity;

/* Nothing that a terminal would take for more than letters. */
static void make_plain(char *text) {
	text_sanitise(text);
	for (; *text; text++) {
		*text = (unsigned char)*text < ' ' || *text == 0x7f ? '?' : *text;
	}
}

static void identify(const chat *c, identity *id) {
	struct stat file;
	memset(id, 0, sizeof *id);
	snprintf(id->model, sizeof id->model, "%s", text_file_name(c->options->model));
	make_plain(id->model);
	ckv_stream_format(&c->policy, id->policy, sizeof id->policy);
	snprintf(id->cache_type, sizeof id->cache_type, "%s", ggml_type_name(c->options->type));
	id->model_size = stat(c->options->model, &file) == 0 ? (int64_t)file.st_size : -1;
	id->budget = c->bounds.budget;
	id->rotate = c->bounds.rotate;
}

/* ---------------------------------------------------------------------------------------------------------- packing */

/* Writing when data is there, else only counting. */
typedef struct packer {
	char *data;
	size_t size;
} packer;

static void put(packer *p, const void *from, size_t n) {
	if (p->data && n) {
		memcpy(p->data + p->size, from, n);
	}
	p->size += n;
}

static void put_int(packer *p, int32_t value) { put(p, &value, sizeof value); }

static void put_text(packer *p, const char *text) {
	put_int(p, (int32_t)strlen(text));
	put(p, text, strlen(text));
}

static void put_span(packer *p, span s) {
	put_int(p, s.first);
	put_int(p, s.end);
}

static void put_identity(packer *p, const identity *id) {
	put_text(p, id->model);
	put(p, &id->model_size, sizeof id->model_size);
	put_text(p, id->policy);
	put_text(p, id->cache_type);
	put_int(p, id->budget);
	put_int(p, id->rotate);
}

static void put_state(packer *p, const chat_state *s) {
	put_int(p, (int32_t)s->place);
	put_span(p, s->system);
	put_span(p, s->document);
	put_int(p, s->n_spoken);
	for (int32_t i = 0; i < MAX_SPOKEN; i++) {
		put_span(p, s->spoken[i].span);
		put_int(p, s->spoken[i].by_user);
	}
	put_int(p, s->n_pins);
	for (int32_t i = 0; i < s->n_pins; i++) {
		put_span(p, s->pins[i]);
	}
	put_int(p, s->owed.size);
	put(p, s->owed.data, (size_t)s->owed.size * sizeof *s->owed.data);
}

/* All but the cache. */
static size_t pack(const chat *c, char *data) {
	packer p = {data, sizeof(save_head)};
	identity id;
	identify(c, &id);
	put_identity(&p, &id);
	put_state(&p, &c->state);
	return p.size;
}

static void pack_head(buffer *out) {
	save_head head = {.order = ORDER_MARK, .version = VERSION, .size = out->size};
	memcpy(head.magic, magic, sizeof magic);
	head.checksum = checksum(out->data + sizeof head, out->size - sizeof head);
	memcpy(out->data, &head, sizeof head);
}

/* The cache alone; room is left in front. */
static bool save_cache(chat *c, size_t front, buffer *out) {
	size_t size = ckv_llama_stream_save(c->ckv, NULL, 0);
	out->data = size ? malloc(front + size) : NULL;
	out->size = front + size;
	if (size && out->data && ckv_llama_stream_save(c->ckv, out->data + front, size) == size) {
		return true;
	}
	if (size && !out->data) {
		fail("no memory to save %zu bytes", size);
	} else {
		fail("the conversation can't be saved: %s", ckv_llama_message(c->ckv));
	}
	text_free(out);
	return false;
}

/* -------------------------------------------------------------------------------------------------------- unpacking */

typedef struct unpacker {
	const char *data;
	size_t left;
	bool good;
} unpacker;

static void take(unpacker *u, void *to, size_t n) {
	u->good = u->good && n <= u->left;
	if (!u->good) {
		memset(to, 0, n);
		return;
	}
	memcpy(to, u->data, n);
	u->data += n;
	u->left -= n;
}

/* Between low and high, or the file is no good. */
static int32_t take_int(unpacker *u, int32_t low, int32_t high) {
	int32_t value;
	take(u, &value, sizeof value);
	u->good = u->good && value >= low && value <= high;
	return u->good ? value : low;
}

static void take_text(unpacker *u, char *text, size_t capacity) {
	size_t n = (size_t)take_int(u, 0, (int32_t)capacity - 1);
	take(u, text, n);
	text[n] = '\0';
	make_plain(text);
}

static span take_span(unpacker *u) {
	int32_t first = take_int(u, 0, INT32_MAX);
	return (span){first, take_int(u, first, INT32_MAX)};
}

static void take_identity(unpacker *u, identity *id) {
	take_text(u, id->model, sizeof id->model);
	take(u, &id->model_size, sizeof id->model_size);
	take_text(u, id->policy, sizeof id->policy);
	take_text(u, id->cache_type, sizeof id->cache_type);
	id->budget = take_int(u, 0, INT32_MAX);
	id->rotate = take_int(u, 0, 1);
}

static void take_owed(unpacker *u, token_list *owed, int32_t n_vocab) {
	int32_t n = take_int(u, 0, MOST_OWED);
	owed->data = n ? malloc((size_t)n * sizeof *owed->data) : NULL;
	u->good = u->good && (n == 0 || owed->data);
	for (int32_t i = 0; i < n && u->good; i++) {
		owed->data[i] = take_int(u, 0, n_vocab - 1);
		owed->size = i + 1;
	}
}

static void take_state(unpacker *u, chat_state *s, int32_t n_vocab) {
	s->place = (chat_place)take_int(u, 0, N_PLACES - 1);
	s->system = take_span(u);
	s->document = take_span(u);
	s->n_spoken = take_int(u, 0, INT32_MAX);
	for (int32_t i = 0; i < MAX_SPOKEN; i++) {
		s->spoken[i].span = take_span(u);
		s->spoken[i].by_user = take_int(u, 0, 1);
	}
	s->n_pins = take_int(u, 0, MAX_CHAT_PINS);
	for (int32_t i = 0; i < s->n_pins; i++) {
		s->pins[i] = take_span(u);
	}
	take_owed(u, &s->owed, n_vocab);
}

/* ------------------------------------------------------------------------------------------------------------ files */

static bool cannot(const char *what, const char *path) {
	fail("cannot %s '%s': %s", what, path, strerror(errno));
	return false;
}

static bool write_all(const char *path, const buffer *bytes) {
	int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600); /* what was said is nobody else's */
	size_t done = 0;
	if (file < 0) {
		return cannot("write", path);
	}
	while (done < bytes->size) {
		ssize_t n = write(file, bytes->data + done, bytes->size - done);
		if (n < 0 && errno != EINTR) {
			break;
		}
		done += n > 0 ? (size_t)n : 0;
	}
	bool good = done == bytes->size && fsync(file) == 0;
	int reason = errno;
	good = close(file) == 0 && good;
	if (!good) {
		errno = reason ? reason : errno;
		cannot("write", path);
		unlink(path);
	}
	return good;
}

/* A new file takes the place of an old one only when it is whole. */
static bool replace(const char *path, const buffer *bytes) {
	char beside[PATH_MAX];
	struct stat file;
	if (stat(path, &file) == 0 && !S_ISREG(file.st_mode)) {
		fail("cannot write '%s': it is %s", path, S_ISDIR(file.st_mode) ? "a folder; name a file in it" : "no plain file");
		return false;
	}
	int n = snprintf(beside, sizeof beside, "%s.tmp", path);
	if (n < 0 || (size_t)n >= sizeof beside) {
		fail("the file name is too long");
		return false;
	}
	if (!write_all(beside, bytes)) {
		return false;
	}
	if (rename(beside, path)) {
		cannot("write", path);
		unlink(beside);
		return false;
	}
	return true;
}

bool chat_save(chat *c, const char *path) {
	buffer bytes = {NULL, 0};
	size_t front = pack(c, NULL);
	if (!save_cache(c, front, &bytes)) {
		return false;
	}
	pack(c, bytes.data);
	pack_head(&bytes);
	bool good = replace(path, &bytes);
	text_free(&bytes);
	return good;
}

static bool read_open(int file, const char *path, buffer *out) {
	struct stat status;
	if (fstat(file, &status)) {
		return cannot("read", path);
	}
	if (!S_ISREG(status.st_mode)) {
		fail("'%s' is %s", path, S_ISDIR(status.st_mode) ? "a folder, not a saved conversation" : "no plain file");
		return false;
	}
	size_t size = (size_t)status.st_size;
	out->data = malloc(size + 1);
	if (!out->data) {
		fail("no memory for the %zu bytes of '%s'", size, path);
		return false;
	}
	while (out->size < size) {
		ssize_t n = read(file, out->data + out->size, size - out->size);
		if (n <= 0) {
			return n < 0 ? cannot("read", path) : true; /* became shorter: the checksum tells */
		}
		out->size += (size_t)n;
	}
	return true;
}

static bool read_all(const char *path, buffer *out) {
	int file = open(path, O_RDONLY | O_CLOEXEC);
	if (file < 0) {
		return cannot("open", path);
	}
	bool good = read_open(file, path, out);
	close(file);
	return good;
}

/* ---------------------------------------------------------------------------------------------------------- loading */

static bool open_saved(unpacker *u, const buffer *bytes, const char *path) {
	save_head head;
	if (bytes->size < sizeof head || memcmp(bytes->data, magic, sizeof magic) != 0) {
		fail("'%s' is no saved conversation", path);
		return false;
	}
	memcpy(&head, bytes->data, sizeof head);
	*u = (unpacker){bytes->data + sizeof head, bytes->size - sizeof head, true};
	if (head.order != ORDER_MARK || head.version != VERSION) {
		fail("'%s' was saved by another version (%u; this one reads %d) or kind of machine", path, (unsigned)head.version,
		     VERSION);
		return false;
	}
	if (head.size != bytes->size || head.checksum != checksum(u->data, u->left)) {
		fail("'%s' is damaged", path);
		return false;
	}
	return true;
}

/* What is not the same is named, with what would make it so. */
static bool same(const identity *saved, const identity *own, const char *path) {
	if (strcmp(saved->model, own->model) != 0 || saved->model_size != own->model_size) {
		fail("'%s' was saved with another model, %s of %lld bytes", path, saved->model, (long long)saved->model_size);
		return false;
	}
	if (strcmp(saved->policy, own->policy) != 0) {
		fail("'%s' was saved with another policy: give --policy %s, or /policy %s, first", path, saved->policy,
		     saved->policy);
		return false;
	}
	if (strcmp(saved->cache_type, own->cache_type) != 0) {
		fail("'%s' was saved with --cache-type %s, not %s", path, saved->cache_type, own->cache_type);
		return false;
	}
	if (saved->budget != own->budget || saved->rotate != own->rotate) {
		fail("'%s' was saved with --ctx-budget %d %s: give the same", path, saved->budget,
		     saved->rotate ? "--rotate" : "--no-rotate");
		return false;
	}
	return true;
}

static bool restore(chat *c, const char *data, size_t size) {
	llama_memory_seq_rm(llama_get_memory(c->ctx), 0, -1, -1);
	return ckv_llama_stream_restore(c->ckv, c->ctx, 0, &c->bounds, data, size) == CKV_OK;
}

/* As it was before a file's cache was not taken. */
static void put_back(chat *c, const buffer *old) {
	if (old->data) {
		c->broken = !restore(c, old->data, old->size);
	} else {
		llama_memory_seq_rm(llama_get_memory(c->ctx), 0, -1, -1);
		c->broken = ckv_llama_stream_begin(c->ckv, c->ctx, 0, &c->bounds) != CKV_OK || c->broken;
	}
}

/* The cache of now is kept until that of the file is in its place. */
static bool exchange_cache(chat *c, const unpacker *u, const char *path) {
	buffer old = {NULL, 0};
	if (!c->broken && chat_seen(c) > 0 && !save_cache(c, 0, &old)) {
		return false;
	}
	bool good = restore(c, u->data, u->left);
	if (!good) {
		fail("'%s' can't be gone on with: %s", path, ckv_llama_message(c->ckv));
		put_back(c, &old);
	}
	text_free(&old);
	return good;
}

/* Everything of the file but its cache, which u is left at. */
static bool take_saved(const chat *c, unpacker *u, chat_state *s, const char *path) {
	identity saved, own;
	take_identity(u, &saved);
	identify(c, &own);
	if (u->good && !same(&saved, &own, path)) {
		return false;
	}
	take_state(u, s, llama_vocab_n_tokens(c->engine.vocab));
	if (!u->good) {
		fail("'%s' is damaged", path);
	}
	return u->good;
}

static bool load(chat *c, const buffer *bytes, const char *path) {
	unpacker u;
	chat_state state;
	memset(&state, 0, sizeof state);
	if (!open_saved(&u, bytes, path) || !take_saved(c, &u, &state, path) || !exchange_cache(c, &u, path)) {
		chat_state_free(&state);
		return false;
	}
	chat_state_free(&c->state);
	c->state = state;
	c->broken = false;
	llama_sampler_reset(c->sampler);
	return true;
}

bool chat_load(chat *c, const char *path) {
	buffer bytes = {NULL, 0};
	bool good = read_all(path, &bytes) && load(c, &bytes, path);
	text_free(&bytes);
	return good;
}
