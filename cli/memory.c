/* Memory and time as the system tells them. */
#define _POSIX_C_SOURCE 200809L
#include "cli.h"

#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

uint64_t memory_peak(void) {
	struct rusage usage;
	return getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_maxrss * 1024u : 0;
}

uint64_t memory_now(void) {
	unsigned long long pages = 0;
	FILE *file = fopen("/proc/self/statm", "r");
	if (file) {
		if (fscanf(file, "%*u %llu", &pages) != 1) {
			pages = 0;
		}
		fclose(file);
	}
	return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

uint64_t memory_available(void) {
	char line[128];
	unsigned long long kib = 0;
	FILE *file = fopen("/proc/meminfo", "r");
	if (!file) {
		return 0;
	}
	while (fgets(line, sizeof line, file) && sscanf(line, "MemAvailable: %llu kB", &kib) != 1) {
		kib = 0;
	}
	fclose(file);
	return (uint64_t)kib * 1024u;
}

double seconds(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
