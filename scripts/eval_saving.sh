#!/bin/sh
# What reading each prompt once saves, by doing it both ways: all caches from one reading, and each cache in a run of its own, which reads anew.
#   eval_saving.sh MODEL HAYSTACK
set -eu
cd "$(dirname "$0")/.."
model=$1 text=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
now() { date +%s.%N; }
task="niah -f $text --length 1024 --depth 50 --quiet"
policies='chunkkv egchunkkv snapkv tova streamingllm l2norm keydiff hybrid'

echo "# one prompt of 1,024 tokens; $(echo $policies | wc -w) policies at 30 %, 10 % and 5 %; seconds of the whole command"
printf 'round\tone reading\ta reading for each\tratio\n'
for round in 1 2 3; do
	named=''
	for p in $policies; do named="$named --policy $p"; done
	a=$(now)
	# shellcheck disable=SC2086 # lists of words
	build/chunkkv eval $task -m "$model" $named --keep 30%,10%,5% --out "$work/all$round" >/dev/null
	b=$(now)
	for p in $policies; do
		for keep in 30% 10% 5%; do
			# shellcheck disable=SC2086
			build/chunkkv eval $task -m "$model" --policy "$p" --keep $keep --out "$work/$p$keep$round" >/dev/null
		done
	done
	c=$(now)
	echo "$a $b $c $round" | awk '{ printf "%d\t%.1f\t%.1f\t%.1f\n", $4, $2 - $1, $3 - $2, ($3 - $2) / ($2 - $1) }'
done
