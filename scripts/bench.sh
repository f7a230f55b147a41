#!/bin/sh
# Runs the benchmarks of this version and keeps their raw output under bench/results.
#   bench.sh MODEL [decode|hosted|hosted-decode|hosted-paper|hosted-memory|questions|policies|chunkers|observe|stream-text|stream-fact|stream-flat|stream-read|stream-long]
set -eu
cd "$(dirname "$0")/.."
model=$1 which=${2:-all}

machine() {
	printf '# %s, %s\n' "$(date -u +%Y-%m-%d)" "$(git describe --always --dirty 2>/dev/null || echo unknown)"
	printf '# %s, %s processors, %s kB memory\n' "$(awk -F': ' '/model name/ { print $2; exit }' /proc/cpuinfo)" "$(nproc)" \
		"$(awk '/MemTotal/ { print $2 }' /proc/meminfo)"
}

# keep FILE PROGRAM WHAT COMMAND ...: shows the output and keeps it with a head that tells the machine; a run that failed leaves the old file.
keep() {
	file=bench/results/$1 name="$2: $3"
	shift 3
	trap 'rm -f "$file.new" "$file.good"' EXIT INT TERM
	{ machine && printf '# %s, %s\n' "$(basename "$model")" "$name" && "$@" && touch "$file.good"; } | tee "$file.new"
	if [ -f "$file.good" ]; then
		rm "$file.good"
		mv "$file.new" "$file"
	else
		rm -f "$file.new"
		exit 1
	fi
}

case $which in
all | decode) keep decode.txt ckv-bench-decode "10%, chunkkv" build/ckv-bench-decode "$model" demo/document.txt 10% chunkkv 1024 2300 4096 ;;
esac
# What a hosted cache costs and gives beside llama.cpp's: `hosted` is all three.
hosted() {
	case $which in
	all | hosted | "hosted-$1") keep "hosted_$1.tsv" ckv-bench-hosted "$2" build/ckv-bench-hosted "$1" "$model" "$(scripts/fetch-text.sh)" ;;
	esac
}
hosted decode "tokens a second on as many rows, interleaved"
hosted paper "dropped, packed and projected rows beside the full cache, interleaved"
hosted memory "memory of the process, one for each"
case $which in
all | questions)
	keep questions.tsv ckv-bench-questions "demo/questions.tsv, replies of 40 tokens at most" build/ckv-bench-questions "$model" demo/document.txt demo/questions.tsv 30%,20%,10%,5% chunkkv snapkv
	;;
esac
case $which in
all | policies)
	keep policies_in_window.tsv ckv-bench-policies "demo/needles.tsv in 5000 bytes, replies of 24 tokens at most" build/ckv-bench-policies "$model" demo/document.txt 5000 demo/needles.tsv 30%,10%,5%
	keep policies_before_question.tsv ckv-bench-policies "the same, compressed before the question" build/ckv-bench-policies "$model" demo/document.txt 5000 demo/needles.tsv 30%,10%,5% question-agnostic
	;;
esac
case $which in
all | chunkers)
	keep chunkers.tsv ckv-bench-questions "where chunks end: demo/questions.tsv, replies of 40 tokens at most" build/ckv-bench-questions "$model" demo/document.txt demo/questions.tsv 20%,10% chunkkv chunkkv:chunker=line chunkkv:chunker=sentence chunkkv:chunker=paragraph
	;;
esac
case $which in
all | observe)
	keep observe.tsv ckv-bench-observe "1200 tokens, 3 interleaved rounds" build/ckv-bench-observe "$model" demo/document.txt 1200 3 full snapkv tova streamingllm squeezeattention l2norm lagkv expected-attention h2o
	;;
esac
case $which in
all | stream-text)
	text=$(scripts/fetch-text.sh)
	keep stream_text.tsv ckv-bench-stream-text "an essay's tokens through a bounded cache" build/ckv-bench-stream-text "$model" "$text" 512 2048 32 \
		chunkkv chunkkv:grace=0,decay=1 chunkkv:grace=32,decay=1 chunkkv:grace=64,decay=1 chunkkv:decay=0.95 chunkkv-reuse h2o h2o:decay=1 \
		snapkv tova l2norm streamingllm chunkkv+rotate streamingllm+rotate =snapkv =keydiff
	;;
esac
case $which in
all | stream-fact)
	text=$(scripts/fetch-text.sh)
	keep stream_fact.tsv ckv-bench-stream-fact "demo/needles.tsv, each in front of an essay" build/ckv-bench-stream-fact "$model" "$text" demo/needles.tsv 512 1000 chunkkv streamingllm
	;;
esac
case $which in
all | stream-read)
	text=$(scripts/fetch-text.sh)
	keep stream_read.tsv ckv-bench-stream-text "7,000 tokens through 1,024 cells" build/ckv-bench-stream-text "$model" "$text" 1024 7000 256 chunkkv streamingllm
	;;
esac
case $which in
all | stream-long)
	# 88,000 bytes are about 21,000 tokens, more than twice what the default model was trained for: gaps are closed.
	text=$(scripts/fetch-text.sh)
	long=$(mktemp)
	trap 'rm -f "$long"' EXIT
	head -c 88000 "$text" | iconv -c -f utf-8 -t utf-8 >"$long"
	build/chunkkv run -m "$model" -f "$long" -p 'What is this text about?' --ctx-budget 1024 -n 48 --json --quiet >"$long.json"
	mv "$long.json" bench/results/stream_long.json
	;;
esac
case $which in
all | stream-flat)
	text=$(scripts/fetch-text.sh)
	keep stream_flat.tsv ckv-bench-stream-flat "speed and memory over 8,000 tokens, one at a time" build/ckv-bench-stream-flat "$model" "$text" 1024 8000 chunkkv
	python3 scripts/stream_plot.py bench/results/stream_flat.tsv docs/stream_flat.svg
	;;
esac
