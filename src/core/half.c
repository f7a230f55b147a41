/* Numbers as f16. */
#include "core/internal.h"

#include <string.h>

uint16_t ckv_f16_from_f32(float x) {
	uint32_t bits;
	memcpy(&bits, &x, sizeof bits);
	uint32_t sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
	if (magnitude >= 0x7f800000u) {
		return (uint16_t)(sign | 0x7c00u | (magnitude > 0x7f800000u ? 0x200u : 0u));
	}
	if (magnitude >= 0x477ff000u) { /* 65520 and above round to what f16 has no more */
		return (uint16_t)(sign | 0x7c00u);
	}
	if (magnitude < 0x38800000u) { /* below 2^-14: units of 2^-24 */
		float scaled;
		memcpy(&scaled, &magnitude, sizeof scaled);
		scaled = scaled * 16777216.0f + 8388608.0f; /* rounds to a whole number, to even */
		memcpy(&bits, &scaled, sizeof bits);
		return (uint16_t)(sign | (bits & 0x7fffffu));
	}
	uint32_t odd = (magnitude >> 13) & 1u;
	return (uint16_t)(sign | ((magnitude + 0xfffu + odd - (112u << 23)) >> 13));
}
