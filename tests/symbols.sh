#!/bin/sh
# A shared library of ours exports ckv_ names alone, and asks the system for nothing that could end the program.
#   symbols.sh LIBRARY.so [core [LIBRARIES]]     LIBRARIES: what the core may depend on besides the C library, as a pattern
set -u
foreign=$(nm -D --defined-only "$1" | awk '{ print $NF }' | grep -vE '^(ckv_|_init$|_fini$|__bss_start$|_end$|_edata$)')
ending=$(nm -D --undefined-only "$1" | awk '{ print $NF }' | grep -E '^(exit|_exit|_Exit|abort|quick_exit|__assert_fail|raise)(@.*)?$')
count=$(nm -D --defined-only "$1" | grep -c ' T ckv_')
[ -z "$foreign" ] || echo "exports besides ckv_: $foreign"
[ -z "$ending" ] || echo "can end the program: $ending"
[ "$count" -gt 0 ] || echo "exports nothing"
if [ "${2:-}" = core ]; then
	needed=$(readelf -d "$1" | awk '/NEEDED/ { print $NF }' |
		grep -vE "libc\.so|libpthread|libm\.so|ld-linux|lib(asan|ubsan|tsan)${3:+|$3}")
	[ -z "$needed" ] || echo "the core depends on: $needed"
	[ -z "$needed" ] || exit 1
fi
[ -z "$foreign" ] && [ -z "$ending" ] && [ "$count" -gt 0 ]
