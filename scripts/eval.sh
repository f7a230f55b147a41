#!/bin/sh
# Makes the evaluations that docs/results.md is about and keeps their records and pages under bench/results/eval. Each goes on where
# it was when it broke off; on two cores all of them take some hours.
#   eval.sh MODEL [niah|memory|codecs|ruler|ablations|perplexity|gsm8k|doc|doc-before|saving]
set -eu
cd "$(dirname "$0")/.."
model=$1 which=${2:-all}
out=bench/results/eval
mkdir -p "$out"

# evaluate FOLDER TASK OPTION ...: the table is kept beside the records.
evaluate() {
	folder=$out/$1
	shift
	build/chunkkv eval "$@" -m "$model" --out "$folder" >"$folder.new" || {
		rm -f "$folder.new"
		exit 1
	}
	mv "$folder.new" "$folder/table.txt"
	cat "$folder/table.txt"
}

# The methods asked for beside the whole cache, and the two that lose least of the rest on niah at 10 %.
some='--policy chunkkv --policy egchunkkv --policy snapkv --policy h2o --policy streamingllm'
rest='--policy chunkkv-reuse --policy hybrid'
# What the paper measures ChunkKV against beside eviction, and both together.
codecs='--policy kivi8 --policy kivi4 --policy kivi2 --policy palu --policy chunkkv+kivi8 --policy chunkkv+kivi4'

case $which in
all | niah) evaluate niah niah -f "$(scripts/fetch-text.sh)" --length 512,1024,2048 --policy all --keep 30%,10%,5% ;;
esac
case $which in
all | memory) evaluate memory niah -f "$(scripts/fetch-text.sh)" --length 1024 --policy all --keep 30%,10%,5% --cache-type f16,q8_0,q4_0 ;;
esac
case $which in
all | codecs)
	# At equal bytes: rows dropped, packed, projected, and both.
	# shellcheck disable=SC2086 # lists of words
	evaluate codecs niah -f "$(scripts/fetch-text.sh)" --length 1024 --examples 2 $codecs --policy chunkkv+kivi2 --policy chunkkv+palu --policy chunkkv \
		--policy chunkkv+merge --policy adakv --policy adakv+kivi4 --policy snapkv+kivi4 --keep 75%,50%,30%,20%,10%,5%
	;;
esac
case $which in
all | ruler)
	data=$(scripts/fetch-ruler.sh)
	# Which subtasks the model can do at all; those at 0.5 or above are then asked of every policy.
	evaluate ruler-whole ruler --data "$data" --prompts "$data/prompts.json" --length 1024 --examples 5 --policy full --keep 10%
	parts=$(awk 'NF && /^ruler\// { task = $1 } $1 == "full" && $NF != "" { print task, $0 }' "$out/ruler-whole/table.txt" |
		python3 -c 'import re, sys
for line in sys.stdin:
    score = re.findall(r"([0-9.]+) \[[^]]*\]\s*$", line)
    if score and float(score[0]) >= 0.5:
        print(line.split()[0])')
	# shellcheck disable=SC2086 # lists of words
	evaluate ruler $parts --data "$data" --prompts "$data/prompts.json" --length 1024 --examples 20 $some $rest $codecs --keep 10%
	;;
esac
case $which in
all | ablations)
	for what in chunk window reuse chunker hybrid; do
		evaluate "ablate-$what" niah -f "$(scripts/fetch-text.sh)" --length 1024 --examples 2 --ablate "$what" --keep 20%,10%
	done
	;;
esac
case $which in
all | perplexity) evaluate perplexity perplexity -f "$(scripts/fetch-text.sh)" --length 1024 --policy all --keep 30%,10% ;;
esac
case $which in
all | gsm8k) evaluate gsm8k gsm8k --data "$(scripts/fetch-gsm8k.sh)" --shots 4 --examples 20 --policy chunkkv --policy snapkv --keep 30%,10% ;;
esac
case $which in
all | doc) evaluate doc doc -f demo/document.txt --questions demo/questions.tsv --policy chunkkv --policy snapkv --policy hybrid ;;
esac
case $which in
all | doc-before)
	evaluate doc-before doc -f demo/document.txt --questions demo/questions.tsv --question-agnostic --policy chunkkv --policy expected-attention --policy keydiff
	;;
esac
case $which in
all | saving)
	scripts/eval_saving.sh "$model" "$(scripts/fetch-text.sh)" >"$out/saving.new" && mv "$out/saving.new" "$out/saving.txt" && cat "$out/saving.txt"
	;;
esac
