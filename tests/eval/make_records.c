/* Writes a record file of an evaluation that never was, and its page: for tests of the page, and to look at it.
 *
 *     make_records KIND RECORDS.jsonl PAGE.html */
#include "random.h"
#include "records.h"
#include "report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static char *copy(const char *text) {
	size_t size = strlen(text) + 1;
	char *made = malloc(size);
	return made ? memcpy(made, text, size) : NULL;
}

/* What a kind of file has. */
typedef struct plan {
	const char *name, *tasks[14], *policies[64], *keeps[8], *caches[4];
	int n_lengths, n_depths, n_each;
	bool judged, forced, hostile, gaps;
} plan;

static const plan plans[] = {
    {.name = "grid",
     .tasks = {"niah"},
     .policies = {"chunkkv", "chunkkv-reuse", "egchunkkv", "snapkv", "h2o", "tova", "streamingllm", "knorm", "keydiff",
                  "expected-attention", "lagkv", "pyramidkv", "squeezeattention", "adakv", "hybrid", "random"},
     .keeps = {"20%", "10%", "5%"},
     .caches = {"f16"},
     .n_lengths = 3,
     .n_depths = 5,
     .n_each = 1,
     .judged = true},
    {.name = "types",
     .tasks = {"ruler/vt", "ruler/cwe", "longbench/qasper"},
     .policies = {"chunkkv:chunk=3", "chunkkv:chunk=5", "chunkkv:chunk=10", "chunkkv:chunk=20", "chunkkv:chunk=30", "snapkv",
                  "streamingllm"},
     .keeps = {"30%", "10%", "256"},
     .caches = {"f16", "q8_0", "q4_0"},
     .n_each = 12,
     .judged = true,
     .gaps = true},
    {.name = "forced",
     .tasks = {"perplexity"},
     .policies = {"chunkkv", "h2o"},
     .keeps = {"10%"},
     .caches = {"f16"},
     .n_each = 8,
     .forced = true},
    {.name = "one", .tasks = {"file"}, .policies = {"chunkkv"}, .keeps = {"10%"}, .caches = {"f16"}, .n_each = 1},
    {.name = "hostile",
     .tasks = {"<script>alert(1)</script>"},
     .policies = {"chunkkv:\"><img src=http://example.org/x onerror=alert(1)>", "a'b&c"},
     .keeps = {"10%", "</td>"},
     .caches = {"f16"},
     .n_each = 3,
     .judged = true,
     .hostile = true},
    {.name = "none", .tasks = {NULL}},
};

typedef struct maker {
	const plan *plan;
	record_file *file;
	rng random;
} maker;

static double normal(maker *m) {
	double sum = -6.0;
	for (int i = 0; i < 12; i++) {
		sum += rng_uniform(&m->random);
	}
	return sum;
}

/* Bits a number take in a cache type, by those of f16. */
static double weight(const char *cache) {
	return strcmp(cache, "q8_0") == 0 ? 8.5 / 16 : strcmp(cache, "q4_0") == 0 ? 4.5 / 16 : 1.0;
}

static double kept(const char *keep) {
	double number = strtod(keep, NULL);
	return number >= 100.0 && !strchr(keep, '%') ? number / 2048.0 : number > 0.0 ? number / 100.0 : 0.1;
}

static void add(maker *m, const char *task, int number, int length, double depth, const char *cache, const char *policy,
                int rank, const char *keep, bool reference) {
	char id[160];
	snprintf(id, sizeof id, "%s/%d/%g/%d", task, length, depth, number);
	bool whole = strcmp(policy, "full") == 0;
	double share = whole ? 1.0 : kept(keep);
	int n_prompt = length ? length : 900 + 37 * number, n = reference ? 0 : 6 + (int)rng_below(&m->random, 18);
	double level = whole ? (weight(cache) < 0.4 ? 0.03 : 0.002) : 0.05 * (1.0 + rank * 0.4) * pow(0.3 / share, 0.8);
	level *= exp(0.5 * normal(m)) / (weight(cache) < 0.4 ? 0.9 : 1.0);
	uint64_t bytes = (uint64_t)n_prompt * 46080;
	record r = {.example = copy(id),
	            .task = copy(task),
	            .cache = copy(cache),
	            .policy = copy(policy),
	            .keep = copy(keep),
	            .length = length,
	            .depth = length ? depth : -1.0,
	            .n_prompt = n_prompt,
	            .n_cells = (int32_t)(share * n_prompt),
	            .bytes = (uint64_t)((double)bytes * share * weight(cache)),
	            .bytes_full = bytes,
	            .score = (double)NAN,
	            .exact = reference || level < 0.05,
	            .attention_kept = whole ? -1.0 : 1.0 - level / (1.0 + level),
	            .nll = (double)NAN,
	            .n_positions = n,
	            .seconds = 0.4 + share};
	r.bytes_own = rank == 11 ? r.bytes / 2 : r.bytes;
	r.reason = copy(m->plan->gaps && rank == 6 && number == 0 ? "the prompt fits: nothing was dropped" : "");
	r.answer = copy(m->plan->hostile ? "</div><script>alert('x')</script>\x01 & \"more\"\nline"
	                : reference      ? "The magic number of the lighthouse is 41,207."
	                                 : "The number is not told in the text, so far as I can see.");
	if (m->plan->judged) {
		r.score = rng_uniform(&m->random) < (reference ? 0.8 : 0.8 * exp(-level)) ? 1.0 : 0.0;
	}
	if (m->plan->forced) {
		r.nll = 2.1 + 0.1 * normal(m) + (reference ? 0.0 : level);
	}
	r.kl = n ? calloc((size_t)n, sizeof *r.kl) : NULL;
	r.same = n ? calloc((size_t)n, 1) : NULL;
	for (int i = 0; r.kl && r.same && i < n; i++) {
		r.kl[i] = (float)(level * exp(0.9 * normal(m)) / 1.5);
		r.same[i] = r.kl[i] < 0.4F;
	}
	records_add(m->file, &r);
}

static void add_example(maker *m, const char *task, int number, int length, double depth) {
	const plan *p = m->plan;
	char id[160];
	int n_starts = 0;
	for (int c = 0; c < 4 && p->caches[c]; c++) {
		add(m, task, number, length, depth, p->caches[c], "full", 0, "100%", c == 0);
		for (int i = 0; i < 64 && p->policies[i]; i++) {
			for (int k = 0; k < 8 && p->keeps[k]; k++) {
				if (!(p->gaps && (i + k + number) % 11 == 0)) {
					add(m, task, number, length, depth, p->caches[c], p->policies[i], i, p->keeps[k], false);
					n_starts++;
				}
			}
		}
	}
	if (strcmp(p->name, "grid") == 0) {
		add(m, task, number, length, depth, "q8_0", "full", 0, "100%", false);
		add(m, task, number, length, depth, "q4_0", "full", 0, "100%", false);
	}
	snprintf(id, sizeof id, "%s/%d", task, number);
	records_add_prefill(m->file, id, p->caches[0], 3.2, 0.4 * n_starts, n_starts);
}

static void add_all(maker *m) {
	static const int lengths[] = {1024, 2048, 4096};
	const plan *p = m->plan;
	for (int t = 0; t < 14 && p->tasks[t]; t++) {
		for (int i = 0; i < p->n_each; i++) {
			for (int l = 0; l < (p->n_lengths ? p->n_lengths : 1); l++) {
				for (int d = 0; d < (p->n_depths ? p->n_depths : 1); d++) {
					add_example(m, p->tasks[t], i, p->n_lengths ? lengths[l] : 0, p->n_depths ? 25.0 * d : -1.0);
				}
			}
		}
	}
}

static int make(const plan *p, const char *records, const char *page) {
	run_header h = {copy("0.4.0"),
	                copy(p->tasks[0] ? p->tasks[0] : "niah"),
	                copy("SmolLM2-135M-Instruct-Q4_1.gguf"),
	                copy("a1b2c3d4e5f60718"),
	                copy("seed=1 window=16 threads=2 n_predict=32"),
	                copy("question in the window"),
	                copy("f16"),
	                copy("2 cores of a test"),
	                copy("2026-01-02")};
	record_file f;
	remove(records);
	if (!records_open(&f, records, &h)) {
		return 1;
	}
	maker m = {p, &f, rng_make(7, p->name, 0)};
	add_all(&m);
	bool good = report_write(&f, page);
	return records_close(&f) && good ? 0 : 1;
}

int main(int argc, char **argv) {
	for (size_t i = 0; argc == 4 && i < sizeof plans / sizeof *plans; i++) {
		if (strcmp(plans[i].name, argv[1]) == 0) {
			return make(&plans[i], argv[2], argv[3]);
		}
	}
	fputs("usage: make_records grid|types|forced|one|hostile|none RECORDS.jsonl PAGE.html\n", stderr);
	return 2;
}
