#!/bin/sh
# The demo: a question about demo/document.txt from a tenth of the cache, beside the full cache.
#   demo.sh CHUNKKV MODEL
#
# Which questions: the first that the full cache answers right, whatever the compressed one makes of it; and, if that was lost, the
# first that both answer right. Both are looked up in the kept results of all questions, not chosen here.
set -eu
cd "$(dirname "$0")/.."
chunkkv=$1 model=$2 results=bench/results/questions.tsv

# pick COMPRESSED: the first question that the full cache has right and the compressed one has as said (right or any).
pick() {
	awk -F '\t' -v want="$1" '
		$2 == "full" { full = $5 }
		$2 == "chunkkv" && $3 == "10%" && full == "right" && (want == "any" || $5 == want) { print $1; exit }' "$results"
}

# judge ACCEPTED REPLY
judge() {
	printf '%s' "$1" | tr '|' '\n' | grep -v '^$' >"$work/accepted"
	if printf '%s' "$2" | grep -qiFf "$work/accepted"; then echo right; else echo wrong; fi
}

# ask QUESTION: runs it, shows all, and sets verdict_full and verdict.
ask() {
	accepted=$(awk -F '\t' -v q="$1" '$1 == q { print $2; exit }' demo/questions.tsv)
	printf '\nQuestion: %s\n\n' "$1"
	rm -f "$work/good"
	{ "$chunkkv" run -m "$model" -f demo/document.txt -p "$1" --keep 10% -n 40 --compare && touch "$work/good"; } | tee "$work/out"
	[ -f "$work/good" ] || exit 1
	full=$(sed -n '/^--- full cache$/,/^--- compressed cache$/p' "$work/out")
	small=$(sed -n '/^--- compressed cache$/,$p' "$work/out")
	verdict_full=$(judge "$accepted" "$full")
	verdict=$(judge "$accepted" "$small")
	printf '  accepted answer: %s; full cache: %s; compressed cache: %s\n' "$accepted" "$verdict_full" "$verdict"
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
first=$(pick any)
both=$(pick right)
ask "$first"
[ "$verdict" = right ] || [ "$first" = "$both" ] || ask "$both"
printf '\nAll %s questions, %s:\n' "$(grep -vc '^#' demo/questions.tsv)" "$results"
grep '^# ' "$results" | sed -n '/full cache answers/,$p' | sed 's/^# /  /'
