/* Memory and time as the system tells them. */
#define _POSIX_C_SOURCE 200809L
#include "cli.h"

#include <stdlib.h>
#include <string.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

uint64_t memory_now(void) {
	char line[128] = "", *rest = line;
	FILE *file = fopen("/proc/self/statm", "r");
	if (file) {
		rest = fgets(line, sizeof line, file) ? line : line + strlen(line);
		fclose(file);
	}
	strtoull(rest, &rest, 10); /* the whole program's size; the second number is what is resident */
	return strtoull(rest, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Linux counts the peak late: it may lag a little behind what is resident. */
uint64_t memory_peak(void) {
	struct rusage usage;
	uint64_t peak = getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_maxrss * 1024u : 0, now = memory_now();
	return peak > now ? peak : now;
}

void memory_give_back(void) {
#ifdef __GLIBC__
	malloc_trim(0);
#endif
}

uint64_t memory_available(void) {
	static const char key[] = "MemAvailable:";
	char line[128];
	uint64_t kib = 0;
	FILE *file = fopen("/proc/meminfo", "r");
	while (file && kib == 0 && fgets(line, sizeof line, file)) {
		if (strncmp(line, key, sizeof key - 1) == 0) {
			kib = strtoull(line + sizeof key - 1, NULL, 10);
		}
	}
	if (file) {
		fclose(file);
	}
	return kib * 1024u;
}

double seconds(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
