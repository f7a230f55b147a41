#!/bin/sh
# Fetches the pinned llama.cpp, builds it once into the user's cache folder, and prints the folder it is installed in.
# Later calls, from any clone, find it there, check every file against its SHA-256, and print the folder at once.
set -eu
here=$(dirname "$0")
. "$here/common.sh"

version=0.3.36
sdist=llama_cpp_python-$version.tar.gz
sha=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
recipe=2 # raise when the options below change

# The build is tuned to this processor (GGML_NATIVE), so a cache folder shared by machines holds one build for each kind.
cpu_id() {
	{
		uname -sm
		grep -m1 -E '^(flags|Features)' /proc/cpuinfo 2>/dev/null || true
		"${CC:-cc}" -dumpmachine
	} | sha256sum | cut -c1-12
}

name=llama-$version-r$recipe-$(cpu_id)
prefix=$cache_dir/$name
[ "${1:-}" != --name ] || { # what this build is called, for the tests
	printf '%s\n' "$name"
	exit
}

intact() {
	[ -f "$prefix/manifest.sha256" ] && (
		cd "$prefix" && sha256sum --quiet -c manifest.sha256 && while read -r link; do [ -e "$link" ] || exit 1; done <links.txt
	) >/dev/null 2>&1
}

# ninja's lines become one that is rewritten in place on a terminal, and one in ten elsewhere.
progress() {
	awk -v tty="$1" '
		/^\[[0-9]+\/[0-9]+\]/ {
			split(substr($1, 2), f, /[\/\]]/)
			step = int(10 * f[1] / f[2])
			if (tty) { printf "\rbuilding llama.cpp: %d of %d ", f[1], f[2] > "/dev/stderr"; fflush("/dev/stderr") }
			else if (step != last) { printf "building llama.cpp: %d of %d\n", f[1], f[2] > "/dev/stderr"; last = step }
		}
		END { if (tty) printf "\n" > "/dev/stderr" }'
}

build() {
	work=$cache_dir/build.$name
	rm -rf "$work" "$prefix"
	mkdir -p "$work"
	tar -xzf "$cache_dir/download/$sdist" -C "$work" "llama_cpp_python-$version/vendor/llama.cpp" ||
		die "could not unpack $sdist into $work: is the disk full?"
	source=$work/llama_cpp_python-$version/vendor/llama.cpp
	say "building llama.cpp in $work (a few minutes, once) ..."
	cmake -G Ninja -S "$source" -B "$work/b" -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$prefix" \
		-DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_INSTALL_RPATH="\$ORIGIN" -DBUILD_SHARED_LIBS=ON -DLLAMA_BUILD_TESTS=OFF \
		-DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_COMMON=OFF \
		-DLLAMA_BUILD_APP=OFF -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF -DGGML_NATIVE=ON -DGGML_RPC=ON -DGGML_CCACHE=OFF \
		>"$work/log" 2>&1 || {
		tail -n 20 "$work/log" >&2
		die "could not configure llama.cpp; the log is $work/log"
	}
	tty=0
	[ -t 2 ] && tty=1
	{ NINJA_STATUS='[%f/%t] ' cmake --build "$work/b" 2>&1 && touch "$work/built"; } | tee -a "$work/log" | progress $tty
	[ -f "$work/built" ] || {
		tail -n 20 "$work/log" >&2
		die "could not build llama.cpp; the log is $work/log"
	}
	cmake --install "$work/b" --prefix "$work/install" >>"$work/log" 2>&1 ||
		die "could not install llama.cpp; the log is $work/log"
	cp "$source/LICENSE" "$work/install/LICENSE"
	(cd "$work/install" && find . -type l >links.txt && find . -type f ! -name manifest.sha256 -exec sha256sum {} + >manifest.sha256)
	mv "$work/install" "$prefix"
	rm -rf "$work"
}

lock llama
if ! intact; then
	[ -d "$prefix" ] && say "the llama.cpp build in the cache is damaged; making it again"
	pip_fetch "llama-cpp-python==$version" "$sdist" "$sha" --no-binary llama-cpp-python
	build
	intact || die "the llama.cpp build in $prefix does not match its own manifest: is the disk failing?"
fi
printf '%s\n' "$prefix"
