/* Which kernels this processor can run. Asked anew for every context: no global state, and CPUID is cheap beside one. */
#include "chunkkv/chunkkv.h"
#include "kernels/kernels.h"

#if defined(__x86_64__) || defined(__i386__)

#include <cpuid.h>

/* The system must save the YMM registers: XCR0 bits 1 (SSE) and 2 (AVX). */
static int os_saves_ymm(void) {
	uint32_t low, high;
	__asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
	(void)high;
	return (low & 6u) == 6u;
}

uint32_t ckv_cpu_features(void) {
	uint32_t a, b, c, d;
	const uint32_t fma = 1u << 12, osxsave = 1u << 27, avx = 1u << 28, f16c = 1u << 29;
	const uint32_t need = fma | osxsave | avx | f16c;
	if (!__get_cpuid(1, &a, &b, &c, &d) || (c & need) != need || !os_saves_ymm()) {
		return 0;
	}
	if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & (1u << 5))) {
		return 0;
	}
	return CKV_CPU_AVX2;
}

#else

uint32_t ckv_cpu_features(void) { return 0; }

#endif

const ckv_kernels *ckv_kernels_get(uint32_t features) {
	const ckv_kernels *avx2 = ckv_kernels_avx2();
	return avx2 && (features & CKV_CPU_AVX2) ? avx2 : ckv_kernels_c();
}
