/* Work shared by KV head among threads that live for one call. Starting a thread costs some ten microseconds, a head's work
 * milliseconds; no pool means no state between calls. */
#include "core/internal.h"

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#define HAVE_PTHREADS 1
#else
#define HAVE_PTHREADS 0
#endif

enum { MAX_WORKERS = 64 };

typedef struct worker {
	ckv_task task;
	void *job;
	int32_t number, n_workers, n_items;
	int32_t failed; /* item, or n_items */
	ckv_error error;
} worker;

static void work(worker *w) {
	w->failed = w->n_items;
	w->error.status = CKV_OK;
	for (int32_t i = w->number; i < w->n_items && w->error.status == CKV_OK; i += w->n_workers) {
		w->error.status = w->task(w->job, w->number, i, &w->error);
		w->failed = w->error.status ? i : w->n_items;
	}
}

int32_t ckv_workers_of(int32_t n_threads, int32_t n_items) {
	int32_t n = HAVE_PTHREADS ? n_threads : 1;
	n = n < n_items ? n : n_items;
	return n < 1 ? 1 : n < MAX_WORKERS ? n : MAX_WORKERS;
}

#if HAVE_PTHREADS
static void *thread_main(void *user) {
	work(user);
	return NULL;
}

static void run(worker *workers, int32_t n) {
	pthread_t threads[MAX_WORKERS];
	int32_t started = 1;
	while (started < n && pthread_create(&threads[started], NULL, thread_main, &workers[started]) == 0) {
		started++;
	}
	work(&workers[0]);
	for (int32_t i = 1; i < n; i++) {
		if (i < started) {
			pthread_join(threads[i], NULL);
		} else {
			work(&workers[i]); /* the system gave no thread for it */
		}
	}
}
#else
static void run(worker *workers, int32_t n) {
	for (int32_t i = 0; i < n; i++) {
		work(&workers[i]);
	}
}
#endif

int32_t ckv_workers(const ckv_ctx *ctx, int32_t n_items) { return ckv_workers_of(ctx->n_threads, n_items); }

ckv_status ckv_parallel_of(int32_t n_threads, int32_t n_items, ckv_task task, void *job, ckv_error *error) {
	worker workers[MAX_WORKERS];
	int32_t n = ckv_workers_of(n_threads, n_items), first = 0;
	for (int32_t i = 0; i < n; i++) {
		workers[i] = (worker){.task = task, .job = job, .number = i, .n_workers = n, .n_items = n_items};
	}
	run(workers, n);
	for (int32_t i = 1; i < n; i++) {
		first = workers[i].failed < workers[first].failed ? i : first;
	}
	if (workers[first].error.status) {
		*error = workers[first].error;
	}
	return workers[first].error.status;
}

ckv_status ckv_parallel(ckv_ctx *ctx, int32_t n_items, ckv_task task, void *job) {
	return ckv_parallel_of(ctx->n_threads, n_items, task, job, &ctx->error);
}
