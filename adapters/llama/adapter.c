/* Making, attaching, messages, memory. */
#include "adapters/llama/internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

ckv_status ckv_llama_fail(ckv_llama *ckv, ckv_status status, const char *format, ...) {
	va_list args;
	va_start(args, format);
	ckv->error.status = status;
	if (vsnprintf(ckv->error.message, sizeof ckv->error.message, format, args) < 0) {
		ckv->error.message[0] = '\0';
	}
	va_end(args);
	return status;
}

void ckv_llama_begin(ckv_llama *ckv) {
	ckv->error.status = CKV_OK;
	ckv->error.message[0] = '\0';
}

void *ckv_llama_alloc(ckv_llama *ckv, size_t count, size_t size) {
	if (size && count > (size_t)PTRDIFF_MAX / size) {
		return NULL;
	}
	size_t bytes = count * size;
	return ckv->allocator.alloc(ckv->allocator.user, bytes ? bytes : 1);
}

void ckv_llama_release(ckv_llama *ckv, void *memory) {
	if (memory) {
		ckv->allocator.free(ckv->allocator.user, memory);
	}
}

void *ckv_llama_grow(ckv_llama *ckv, void *old, int32_t n_used, int32_t capacity, size_t size) {
	void *bigger = ckv_llama_alloc(ckv, (size_t)capacity, size);
	if (bigger) {
		if (n_used) {
			memcpy(bigger, old, (size_t)n_used * size);
		}
		ckv_llama_release(ckv, old);
	}
	return bigger;
}

bool ckv_llama_reserve(ckv_llama *ckv, void **memory, size_t *capacity, size_t count, size_t size) {
	if (*memory && (count == 0 || count <= *capacity / size)) {
		return true;
	}
	void *bigger = ckv_llama_alloc(ckv, count, size);
	if (bigger) {
		ckv_llama_release(ckv, *memory);
		*memory = bigger;
		*capacity = count * size;
	}
	return bigger != NULL;
}

ckv_status ckv_llama_create(ckv_llama **ckv, const char *policy, ckv_error *error) {
	ckv_params params;
	if (ckv) {
		*ckv = NULL;
	}
	ckv_status status = ckv_policy_parse(policy, &params, error);
	return status ? status : ckv_llama_create_params(ckv, &params, NULL, error);
}

ckv_status ckv_llama_create_params(ckv_llama **ckv, const ckv_params *params, const ckv_ctx_options *options,
                                   ckv_error *error) {
	ckv_ctx *core;
	if (!ckv) {
		return CKV_ERR_ARG;
	}
	*ckv = NULL;
	ckv_status status = ckv_ctx_create(&core, params, options, error);
	if (status) {
		return status;
	}
	ckv_allocator allocator = options && options->allocator ? *options->allocator : ckv_allocator_default();
	ckv_llama *made = allocator.alloc(allocator.user, sizeof *made);
	if (!made) {
		ckv_ctx_free(core);
		if (error) {
			error->status = CKV_ERR_NOMEM;
			snprintf(error->message, sizeof error->message, "no memory for the adapter");
		}
		return CKV_ERR_NOMEM;
	}
	memset(made, 0, sizeof *made);
	made->core = core;
	made->allocator = allocator;
	made->n_threads = options ? options->n_threads : 0;
	made->cpu_disable = options ? options->cpu_disable : 0;
	*ckv = made;
	return CKV_OK;
}

void ckv_llama_free(ckv_llama *ckv) {
	if (!ckv) {
		return;
	}
	ckv_llama_bounded_free(ckv);
	ckv_llama_observe_clear(ckv);
	ckv_llama_drop(ckv);
	ckv_llama_hide_free(ckv);
	ckv_llama_host_leave(ckv);
	ckv_llama_kept_free(ckv);
	ckv_llama_release(ckv, ckv->report_layers);
	ckv_llama_release(ckv, ckv->report_kept);
	ckv_ctx_free(ckv->core);
	ckv_llama_release(ckv, ckv);
}

const char *ckv_llama_message(const ckv_llama *ckv) { return ckv ? ckv->error.message : ""; }

void ckv_llama_on_progress(ckv_llama *ckv, ckv_llama_progress callback, void *user) {
	if (ckv) {
		ckv->progress = callback;
		ckv->progress_user = user;
	}
}

uint64_t ckv_llama_cache_alloc(const ckv_llama *ckv) {
	ckv_cache_info hosted = {.size = sizeof hosted};
	if (ckv && ckv->host.cache) {
		ckv_cache_get_info(ckv->host.cache, -1, &hosted);
	}
	return ckv ? ckv->cache_alloc + hosted.bytes_allocated + ckv_llama_host_stream_bytes(ckv) : 0;
}

/* Whether the chain of callbacks that starts with these parameters already comes by us. */
static bool in_chain(const ckv_llama *ckv, const struct llama_context_params *params) {
	ggml_backend_sched_eval_callback callback = params->cb_eval;
	const ckv_llama *at = params->cb_eval_user_data;
	while (callback == ckv_llama_eval && at) {
		if (at == ckv) {
			return true;
		}
		callback = at->next;
		at = at->next_user;
	}
	return false;
}

ckv_status ckv_llama_attach(ckv_llama *ckv, struct llama_context_params *params) {
	if (!ckv || !params) {
		return CKV_ERR_ARG;
	}
	ckv_llama_begin(ckv);
	if (params->flash_attn_type == LLAMA_FLASH_ATTN_TYPE_DISABLED) {
		return ckv_llama_fail(ckv, CKV_ERR_UNSUPPORTED,
		                      "flash attention is disabled: without it attention is no single node that can be observed");
	}
	if (!in_chain(ckv, params)) {
		if (ckv->attached && (ckv->next != params->cb_eval || ckv->next_user != params->cb_eval_user_data)) {
			return ckv_llama_fail(ckv, CKV_ERR_STATE,
			                      "attached before with another cb_eval behind it: use a ckv_llama of its own for each");
		}
		ckv->next = params->cb_eval;
		ckv->next_user = params->cb_eval_user_data;
		params->cb_eval = ckv_llama_eval;
		params->cb_eval_user_data = ckv;
	}
	params->flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
	ckv->params = *params;
	ckv->attached = true;
	return CKV_OK;
}

static ckv_status refuse(ckv_error *error, const char *why) {
	if (error) {
		error->status = CKV_ERR_UNSUPPORTED;
		snprintf(error->message, sizeof error->message, "this model's cache can't be compressed: %s", why);
	}
	return CKV_ERR_UNSUPPORTED;
}

ckv_status ckv_llama_check_model(const struct llama_model *model, ckv_error *error) {
	if (!model) {
		return CKV_ERR_ARG;
	}
	if (llama_model_is_recurrent(model)) {
		return refuse(error, "it is recurrent, its state has no tokens that could be dropped");
	}
	if (llama_model_is_hybrid(model)) {
		return refuse(error, "it is a hybrid with recurrent layers, which is not supported");
	}
	if (llama_model_is_diffusion(model) || llama_model_has_encoder(model) || !llama_model_has_decoder(model)) {
		return refuse(error, "it is no causal decoder");
	}
	enum llama_rope_type rope = llama_model_rope_type(model);
	if (rope == LLAMA_ROPE_TYPE_MROPE || rope == LLAMA_ROPE_TYPE_IMROPE || rope == LLAMA_ROPE_TYPE_VISION) {
		return refuse(error, "its positions have several dimensions (M-RoPE)");
	}
	return CKV_OK;
}
