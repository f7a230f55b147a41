/* How far two next-token distributions are apart. */
#include "cli.h"

#include <math.h>

typedef struct peak {
	float max;
	int32_t at;
	double log_sum; /* log of the sum of exp(logit - max) */
} peak;

static peak find_peak(const float *logits, int32_t n) {
	peak p = {logits[0], 0, 0.0};
	for (int32_t i = 1; i < n; i++) {
		if (logits[i] > p.max) {
			p.max = logits[i];
			p.at = i;
		}
	}
	double sum = 0.0;
	for (int32_t i = 0; i < n; i++) {
		sum += exp((double)logits[i] - (double)p.max);
	}
	p.log_sum = log(sum);
	return p;
}

void divergence_add(divergence *d, const float *full, const float *other, int32_t n_vocab) {
	peak f = find_peak(full, n_vocab), o = find_peak(other, n_vocab);
	double kl = 0.0;
	for (int32_t i = 0; i < n_vocab; i++) {
		double log_p = (double)full[i] - (double)f.max - f.log_sum;
		double log_q = (double)other[i] - (double)o.max - o.log_sum;
		double p = exp(log_p);
		kl += p > 0.0 ? p * (log_p - log_q) : 0.0;
	}
	kl = kl < 0.0 ? 0.0 : kl; /* rounding may leave a tiny negative; what is no number stays none */
	d->sum += kl;
	d->max = kl > d->max ? kl : d->max;
	d->n++;
	d->n_same += f.at == o.at;
}

void divergence_join(divergence *d, const divergence *other) {
	d->sum += other->sum;
	d->max = other->max > d->max ? other->max : d->max;
	d->n += other->n;
	d->n_same += other->n_same;
}

double divergence_mean(const divergence *d) { return d->n ? d->sum / d->n : 0.0; }

double divergence_agreement(const divergence *d) { return d->n ? (double)d->n_same / d->n : 0.0; }
