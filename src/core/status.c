/* Phrases for status and reason values, and the one place where messages are written. */
#include "core/internal.h"

#include <stdio.h>

const char *ckv_strerror(ckv_status status) {
	switch (status) {
	case CKV_OK: return "success";
	case CKV_ERR_ARG: return "invalid argument";
	case CKV_ERR_NOMEM: return "out of memory";
	case CKV_ERR_CAPACITY: return "output array too small";
	case CKV_ERR_POLICY: return "policy not understood";
	case CKV_ERR_UNSUPPORTED: return "not supported";
	case CKV_ERR_NUMERIC: return "not a finite number";
	case CKV_ERR_STATE: return "called at the wrong time";
	case CKV_ERR_HOST: return "the engine failed";
	case CKV_ERR_CANCELLED: return "cancelled";
	}
	return "unknown status";
}

const char *ckv_reason_text(ckv_reason reason) {
	switch (reason) {
	case CKV_SELECTED: return "selected by score";
	case CKV_KEPT_ALL_POLICY: return "kept whole: the policy drops nothing";
	case CKV_KEPT_ALL_BUDGET: return "kept whole: the budget is not smaller than the cache";
	case CKV_KEPT_ALL_WINDOW: return "kept whole: not longer than the observation window";
	case CKV_KEPT_ALL_CHUNK: return "kept whole: shorter than one chunk";
	case CKV_KEPT_ALL_SLIDING: return "kept whole: not longer than the sliding window of the model";
	case CKV_KEPT_ALL_SINKS: return "kept whole: no more tokens than sinks";
	case CKV_PROTECTED_ONLY: return "the budget holds no more than protected tokens: sinks, then the newest";
	}
	return "unknown reason";
}

ckv_status ckv_fail(ckv_error *error, ckv_status status, const char *format, ...) {
	if (error) {
		error->status = status;
		va_list args;
		va_start(args, format);
		int n = vsnprintf(error->message, sizeof error->message, format, args);
		va_end(args);
		if (n < 0) {
			error->message[0] = '\0';
		}
		for (char *at = error->message; *at; at++) {
			*at = (unsigned char)*at < 32 || *at == 127 ? '?' : *at;
		}
	}
	return status;
}
