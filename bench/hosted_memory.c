/* What a process holds: with the model loaded, with the full cache, at most, and after compression. Each policy in a process
 * of its own, by the steps of chunkkv run. Anonymous memory is the process's own; the rest is the model's file, mapped.
 *
 * chunkkv run leaves what it freed to the allocator; what that still holds is seen by asking it to give all back. */
#define _POSIX_C_SOURCE 200809L
#include "hosted.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

static const lane_kind kinds[] = {
    {"full", CKV_LLAMA_CACHE_OWN},
    {"chunkkv", CKV_LLAMA_CACHE_HOSTED},
    {"adakv", CKV_LLAMA_CACHE_OWN},
    {"adakv", CKV_LLAMA_CACHE_HOSTED},
    {"pyramidkv", CKV_LLAMA_CACHE_OWN},
    {"pyramidkv", CKV_LLAMA_CACHE_HOSTED},
    {"squeezeattention", CKV_LLAMA_CACHE_HOSTED},
    {"kivi4", CKV_LLAMA_CACHE_HOSTED},
    {"chunkkv+kivi4", CKV_LLAMA_CACHE_HOSTED},
};

/* Bytes that a file of /proc tells in kB behind a key; -1: there is no such file. */
static double told(const char *path, const char *key) {
	char line[256];
	double bytes = -1.0;
	FILE *file = fopen(path, "r");
	while (file && bytes < 0 && fgets(line, sizeof line, file)) {
		if (strncmp(line, key, strlen(key)) == 0) {
			bytes = 1024.0 * strtod(line + strlen(key), NULL);
		}
	}
	if (file) {
		fclose(file);
	}
	return bytes;
}

typedef struct point {
	double resident, anonymous;
} point;

static point measure(void) {
	return (point){told("/proc/self/status", "VmRSS:"), told("/proc/self/smaps_rollup", "Anonymous:")};
}

static point measure_trimmed(void) {
#ifdef __GLIBC__
	malloc_trim(0);
	return measure();
#else
	return (point){-1.0, -1.0};
#endif
}

static void print_bytes(double bytes) {
	if (bytes < 0) {
		printf("\t-");
	} else {
		printf("\t%.1f", bytes / 1e6);
	}
}

static void print_point(point p) {
	print_bytes(p.resident);
	print_bytes(p.anonymous);
}

static bool decode_some(const bench *b, lane *l, int32_t n) {
	bool good = true;
	for (int32_t i = 0; i < n && good; i++) {
		good = lane_decode(l, b->prompt[i]);
	}
	return good && lane_check(l);
}

/* In a process that has done nothing yet. */
static bool one_process(bench *b, lane_kind kind) {
	enum { N_NEW = 16 };
	lane l = {.kind = kind};
	bool good = bench_open(b) && lane_open(b, kind, &l);
	point loaded = measure(), full = loaded;
	uint64_t alloc_full = 0;
	good = good && lane_make_large(b, &l, b->n_prompt, b->options.n_ubatch) && lane_read(b, &l, b->n_prompt);
	if (good) {
		full = measure();
		alloc_full = lane_alloc(b, &l);
		good = lane_extract(&l, ckv_keep_percent(10));
		lane_drop_large(&l);
		good = good && lane_make_small(b, &l, N_NEW) && decode_some(b, &l, N_NEW);
	}
	if (good) {
		point left = measure();
		printf("%s\t%s\t%d", kind.policy, lane_cache(kind), l.report.n_cells);
		print_bytes((double)alloc_full);
		print_bytes((double)lane_alloc(b, &l));
		print_bytes((double)lane_hosted(&l));
		print_bytes(told("/proc/self/status", "VmHWM:"));
		print_point(loaded);
		print_point(full);
		print_point(left);
		print_point(measure_trimmed());
		putchar('\n');
	}
	lane_close(&l);
	bench_close(b);
	return good;
}

static bool fork_process(bench *b, lane_kind kind) {
	int status = 0;
	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		bool good = one_process(b, kind);
		fflush(stdout);
		_exit(good ? 0 : EXIT_FAILED);
	}
	return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool hosted_memory(bench *b) {
	bool good = true;
	puts(
	    "# 10 % where rows are dropped; MB: the cache's tensors, and what the process holds: resident, and anonymous of it");
	puts("policy\tcache\trows\tallocated full\tallocated\thosted\tpeak\tloaded\tanonymous\twith full "
	     "cache\tanonymous\tafter\t"
	     "anonymous\ttrimmed\tanonymous");
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds && good; i++) {
		good = !lane_possible(kinds[i]) || fork_process(b, kinds[i]);
	}
	return good;
}
