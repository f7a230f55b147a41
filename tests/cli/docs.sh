#!/bin/sh
# Nothing is forgotten in the documentation: every registered method has its row in methods.md, every option and parameter its entry in
# the man page.
#   docs.sh CHUNKKV SOURCE
set -u
chunkkv=$1 source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
n_passed=0 n_failed=0
expect() {
	if grep -qE -- "$2" "$3"; then
		n_passed=$((n_passed + 1))
	else
		n_failed=$((n_failed + 1))
		echo "FAILED: $1 is not in $3"
	fi
}

methods=$("$chunkkv" policies | awk '/^parameters/ { exit } /^  [a-z]/ { print $1 }' | sort -u)
parameters=$("$chunkkv" policies | awk '/^parameters/ { on = 1 } on && /^  [a-z]/ { print $1 }')
options=$({ "$chunkkv" run --help && "$chunkkv" chat --help && "$chunkkv" eval --help && "$chunkkv" inspect --help; } | grep -oE -- '--[a-z][a-z-]+' | sort -u)
# listed HEADING: the names of that section of the listing
listed() { "$chunkkv" policies | awk -v from="$1" 'index($0, from) == 1 { on = 1; next } /^[a-z]/ { on = 0 } on && /^  [a-z]/ { print $1 }'; }
codecs=$(listed 'codecs and merging')
codec_parameters=$(listed 'parameters of codecs and merging')
awk '/^## / { on = ($0 == "## Codecs and merging") } on' "$source/docs/methods.md" >"$work/methods.md"
awk '/^\.SH / { on = ($0 == ".SH CODECS AND MERGING") } on' "$source/docs/chunkkv.1" >"$work/chunkkv.1"
for name in $codecs; do
	expect "$name" "^\| $name \|" "$work/methods.md"
	expect "codec $name" "(^|[^a-z0-9])$name([^a-z0-9]|\$)" "$work/chunkkv.1"
done
for name in $codec_parameters; do expect "parameter $name of a codec" "^\.B $name\$" "$work/chunkkv.1"; done
[ "$(printf '%s\n' "$codecs" "$codec_parameters" | wc -l)" -ge 15 ] || { n_failed=$((n_failed + 1)); echo 'FAILED: codecs and their parameters are not listed'; }
for name in $methods; do expect "$name" "^\| $name \|" "$source/docs/methods.md"; done
for name in $parameters; do expect "parameter $name" "^\\.B $name\$" "$source/docs/chunkkv.1"; done
for name in $options; do
	expect "$name" "$(printf '%s' "$name" | sed 's/-/\\\\-/g')" "$source/docs/chunkkv.1"
done
expect 'this version' "$("$chunkkv" --version)" "$source/docs/chunkkv.1"
expect 'this version in the changelog' "## $("$chunkkv" --version | cut -d' ' -f2)" "$source/CHANGELOG.md"
echo "$n_passed passed, $n_failed failed"
[ "$n_failed" = 0 ] && [ "$n_passed" -gt 20 ]
