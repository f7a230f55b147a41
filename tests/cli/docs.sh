#!/bin/sh
# Nothing is forgotten in the documentation: every registered method has its row in methods.md, every option its entry in the man page.
#   docs.sh CHUNKKV SOURCE
set -u
chunkkv=$1 source=$2
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
for name in $methods; do expect "$name" "^\| $name \|" "$source/docs/methods.md"; done
for name in $parameters; do expect "parameter $name" "$name" "$source/docs/chunkkv.1"; done
for name in $options; do
	expect "$name" "$(printf '%s' "$name" | sed 's/-/\\\\-/g')" "$source/docs/chunkkv.1"
done
expect 'this version' "$("$chunkkv" --version)" "$source/docs/chunkkv.1"
expect 'this version in the changelog' "## $("$chunkkv" --version | cut -d' ' -f2)" "$source/CHANGELOG.md"
echo "$n_passed passed, $n_failed failed"
[ "$n_failed" = 0 ] && [ "$n_passed" -gt 20 ]
