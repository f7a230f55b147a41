#include "veloxquant_job.h"

#include <stdio.h>

void vq_job_init(vq_job *job, const casefile *file, tally *counts, const char *method) {
	*job = (vq_job){.file = file, .counts = counts};
	snprintf(job->label, sizeof job->label, "%.20s: %.40s", file->kind, method);
}

void vq_count(const vq_job *job, const char *item, bool ok, const note *why) {
	if (ok) {
		tally_add(job->counts, job->label, PASSED, 1);
	} else {
		tally_fail(job->counts, job->label, (place){job->file->folder, item, -1.0}, why->text);
	}
}

void vq_skip(const vq_job *job, const char *reason) {
	char label[TALLY_LABEL];
	snprintf(label, sizeof label, "%.30s: %.45s", job->label, reason);
	tally_add(job->counts, label, SKIPPED, 1);
}
