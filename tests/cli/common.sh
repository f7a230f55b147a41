# Counting for the shell tests; sourced. They keep their files in $work.
# shellcheck shell=sh
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
n_passed=0 n_failed=0

# check WHAT STATUS: counts; on a failure shows what the last program wrote to $work/err, if it did.
check() {
	if [ "$2" = 0 ]; then
		n_passed=$((n_passed + 1))
	else
		n_failed=$((n_failed + 1))
		echo "FAILED: $1"
		[ ! -f "$work/err" ] || sed 's/^/  /' "$work/err"
	fi
}

finish() {
	echo "$n_passed passed, $n_failed failed"
	[ "$n_failed" = 0 ]
}
