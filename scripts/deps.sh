#!/bin/sh
# Finds out which tools and libraries are missing, and installs them where that needs no password; else says what to type.
#   deps.sh          for building, testing and the demo
#   deps.sh check    the same and what `make check-all` adds
set -eu
. "$(dirname "$0")/common.sh"

missing='' wanted='' losses=''
need() { missing="$missing $1"; }
# want PACKAGE LOSS: builds without it, with less
want() {
	wanted="$wanted $1"
	losses="${losses:+$losses, }$2"
}
have() { command -v "$1" >/dev/null 2>&1; }

# has_header HEADER LIBRARY: a C program that includes and links them compiles.
has_library() {
	printf '#include <stdarg.h>\n#include <stddef.h>\n#include <setjmp.h>\n#include <stdint.h>\n#include <%s>\nint main(void) { return 0; }\n' "$1" |
		"${CC:-cc}" -x c - "-l$2" -o /dev/null >/dev/null 2>&1
}

# Ubuntu 22.04 and Debian 11 have a CMake that is too old; a newer one from the Python registry then lives in the cache folder.
tools=$cache_dir/tools
PATH="$tools/bin:$PATH"
newer_cmake() {
	have cmake && cmake --version | head -n 1 | awk '{ split($3, v, "."); exit !(v[1] > 3 || (v[1] == 3 && v[2] >= 25)) }'
}

no_editing='chunkkv chat will have no line editing' no_low_rank='there will be no low-rank cache (palu)'
have "${CC:-cc}" || need gcc
have "${CXX:-c++}" || need g++
have cmake || need cmake
have ninja || need ninja-build
have flock || need util-linux
have python3 || need python3
python3 -m pip --version >/dev/null 2>&1 || python3 -c 'import ensurepip, venv' >/dev/null 2>&1 || need python3-venv
if have "${CC:-cc}"; then
	has_library cmocka.h cmocka || need libcmocka-dev
	has_library jansson.h jansson || need libjansson-dev
	has_library histedit.h edit || want libedit-dev "$no_editing"
	has_library lapacke.h lapacke || has_library lapacke.h openblas || want liblapacke-dev "$no_low_rank"
else
	need libc6-dev
	need libcmocka-dev
	need libjansson-dev
	want libedit-dev "$no_editing"
	want liblapacke-dev "$no_low_rank"
fi
if [ "${1:-}" = check ]; then
	have clang || need clang
	have clang-format || need clang-format
	have clang-tidy || need clang-tidy
	have chromium || have chromium-browser || have google-chrome || need chromium
	have valgrind || need valgrind
	ls /usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.asan* >/dev/null 2>&1 || need libclang-rt-dev
fi

as_root=none
if [ "$(id -u)" = 0 ]; then
	as_root=''
elif have sudo && sudo -n true 2>/dev/null; then
	as_root='sudo -n'
fi
if [ -z "$missing" ] && [ -n "$wanted" ] && { [ "$as_root" = none ] || ! have apt-get; }; then
	say "going on without$wanted: $losses"
	wanted=''
fi
missing="$missing$wanted"

if [ -n "$missing" ]; then
	have apt-get || die "missing:$missing; install them with your system's package manager"
	[ "$as_root" != none ] || die "missing packages; please type:  sudo apt-get install$missing"
	say "installing system packages:$missing"
	$as_root apt-get -qq update >/dev/null
	# shellcheck disable=SC2086 # a list of words
	$as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y install --no-install-recommends $missing >/dev/null ||
		die "apt-get could not install:$missing"
fi

if ! newer_cmake; then
	say "this system's CMake is older than 3.25: putting a newer one into $tools"
	lock tools
	"$(pip_python)" -m venv "$tools" 2>/dev/null || python3 -m venv "$tools" ||
		die "CMake 3.25 or newer is needed; python3-venv would bring one:  sudo apt-get install python3-venv"
	"$tools/bin/python" -m pip install --quiet 'cmake>=3.25,<4' >&2 || die "CMake 3.25 or newer is needed and could not be installed"
fi
