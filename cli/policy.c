/* Which of the two forms of policies a text means: of a cache that is compressed once, or of one that never outgrows a
 * budget. */
#include "cli.h"

#include <string.h>

const ckv_method_info *policy_preset(const char *text, method_at at) {
	size_t n = strcspn(text, ":+");
	for (size_t i = 0; at(i); i++) {
		if (strlen(at(i)->name) == n && strncmp(at(i)->name, text, n) == 0) {
			return at(i);
		}
	}
	return NULL;
}

int policy_fail(const char *text, const ckv_error *once, const ckv_error *stream) {
	bool has_once = policy_preset(text, ckv_preset_info) || policy_preset(text, ckv_codec_info),
	     has_stream = policy_preset(text, ckv_stream_preset_info);
	if (strchr(text, '+')) {
		return fail("%s", once->message); /* which only one-shot policies have anything to do with */
	}
	if (has_once != has_stream) {
		return fail("%s", has_once ? once->message : stream->message);
	}
	return fail("%s; with --ctx-budget: %s", once->message, stream->message);
}

/* Token by token. Whether the rows can be kept account of alone, as llama.cpp's own cache has it, is known without a model.
 */
static bool parse_stream(run_options *o) {
	ckv_error error;
	ckv_keeper *probe = NULL;
	ckv_status status = ckv_stream_parse(o->policy, &o->stream, &error);
	if (status) {
		bool once = ckv_policy_parse(o->policy, &o->params, NULL) == CKV_OK && !ckv_params_hosted(&o->params);
		fail("%s%s", error.message, once ? "; as a one-shot policy, in blocks, it goes with --interval N" : "");
		return false;
	}
	status = ckv_stream_params_hosted(&o->stream) ? CKV_OK : ckv_keeper_create(&probe, &o->stream, NULL, &error);
	ckv_keeper_free(probe);
	if (status) {
		fail("%s; chunkkv policies lists what goes with --ctx-budget", error.message);
	}
	return status == CKV_OK;
}

bool policy_streams_hosted(const run_options *o) {
	bool needed = o->ctx_budget && !o->blocks && ckv_stream_params_hosted(&o->stream);
	return o->ctx_budget && (o->cache_kind == CKV_LLAMA_CACHE_HOSTED || (needed && o->cache_kind == CKV_LLAMA_CACHE_AUTO));
}

bool policy_parse_bounded(run_options *o) {
	ckv_error once, stream;
	bool streams = policy_preset(o->policy, ckv_stream_preset_info);
	o->blocks = o->interval > 0 || !streams;
	if (!o->blocks) {
		return parse_stream(o);
	}
	if (ckv_policy_parse(o->policy, &o->params, &once) == CKV_OK) {
		bool hosted = ckv_params_hosted(&o->params);
		if (hosted) {
			fail("policy '%s': codecs and merge go with --keep, not with --ctx-budget", o->policy);
		}
		return !hosted;
	}
	if (streams && !policy_preset(o->policy, ckv_preset_info)) {
		fail("policy '%s' goes token by token: leave --interval out", o->policy);
		return false;
	}
	/* Of a name that neither form knows, both say what is nearest. */
	ckv_status unknown = o->interval ? CKV_OK : ckv_stream_parse(o->policy, &o->stream, &stream);
	if (unknown) {
		policy_fail(o->policy, &once, &stream);
	} else {
		fail("%s", once.message);
	}
	return false;
}
