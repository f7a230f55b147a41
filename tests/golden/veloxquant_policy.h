/* A method of VeloxQuant-MLX with its settings, as a policy of ours. */
#ifndef GOLDEN_VELOXQUANT_POLICY_H
#define GOLDEN_VELOXQUANT_POLICY_H

#include "casefile.h"

#include <chunkkv/stream.h>

typedef struct vq_policy {
	const char *method;
	ckv_stream_params params;
	int32_t budget;
	bool deferred;    /* attention sees what was stored before a call and all of the call; else what is stored after it */
	bool repeats;     /* a call of no tokens returns what the last one did; else what is stored */
	bool counts_rows; /* its tokens_kept counts the rows of all heads; else of the first */
} vq_policy;

/* The policy of a method with nothing set that a case would tell. */
bool vq_policy_of(vq_policy *policy, const char *method, note *why);

/* Reads a case's `config`. A setting that the library has no choice of, other than the one that it follows, is told in
 * *foreign, which is NULL otherwise. Values are not judged: that is for the library. */
bool vq_policy_read(vq_policy *policy, const char *method, json_t *config, const char **foreign, note *why);

#endif
