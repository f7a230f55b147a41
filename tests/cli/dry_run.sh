#!/bin/sh
# chunkkv run --dry-run on the real model: the sizes that it tells are those that the run then reports.
#   dry_run.sh CHUNKKV DOCUMENT MODEL
set -u
chunkkv=$1 document=$2 model=$3
. "$(dirname "$0")/common.sh"
cd "$work" || exit 1

head -c 2200 "$document" >part.txt
question='What is the nearest town to the observatory?'

# same POLICY HOW [OPTION]...: HOW is exact, about, most (at most) or cells (in llama.cpp's cache).
same() {
	policy=$1 how=$2
	shift 2
	rm -f a.txt a.json
	"$chunkkv" run -m "$model" -f part.txt -p "$question" --policy "$policy" "$@" -n 2 --dry-run >a.txt 2>err &&
		"$chunkkv" run -m "$model" -f part.txt -p "$question" --policy "$policy" "$@" -n 2 --json >a.json 2>err &&
		python3 - "$how" a.txt a.json 2>>err <<'PY'
import json, re, sys
how, told, r = sys.argv[1], open(sys.argv[2]).read(), json.load(open(sys.argv[3]))
words = {"exact": "", "about": "about", "most": "at most", "cells": ""}
size = lambda name: re.search(r"^%s +(about|at most|) *([0-9.]+) MB" % name, told, re.M).groups()
n = r.get("n_prompt", r.get("n_document"))
assert re.match(r"%d (document )?tokens" % n, told), (n, told)
if how == "cells":
    assert not r["hosted"] and "cache of our own" not in told, told
    word, mb = size("compressed cache")
    assert word == "" and abs(float(mb) - r["cache_alloc_bytes"] / 1e6) <= 0.005, (told, r["cache_alloc_bytes"])
else:
    assert r["hosted"] and "compressed cache" not in told, told
    word, mb = size("cache of our own")
    own, held = float(mb), r["cache_bytes"] / 1e6
    assert word == words[how], told
    good = {"exact": abs(own - held) <= 0.005, "about": abs(own - held) <= 0.2 * held, "most": held <= own + 0.005}
    assert good[how], (own, held)
    # Afterwards our cache has the answer's rows too, and room for some more.
    word, cells = size("llama.cpp's cells")
    assert word == "" and float(cells) == round(256 * 30 * 2 * 192 * 2 / 1e6, 2), told
    spare = r["cache_alloc_bytes"] / 1e6 - held - float(cells)
    assert -0.005 <= spare <= 2.0, spare
    mean = int(re.search(r"\((\d+) rows in each head", told).group(1))
    assert abs(mean - sum(r["n_kept"]) / len(r["n_kept"])) < 1 or " on average" in told, (mean, r["n_kept"])
PY
	check "$policy $*: what the dry run tells is what the run reports ($how)" $?
}

same kivi4 exact
same kivi:bits=3,group=24,residual=40 exact
same chunkkv+kivi2 exact --keep 30%
same chunkkv+merge exact --keep 200
same chunkkv exact --cache hosted --question-agnostic
same adakv exact --keep 20%
same pyramidkv:beta=5 exact --keep 40%
same squeezeattention exact --keep 40%
same adakv+kivi4 about --keep 40%
same full cells
same chunkkv cells
same pyramidkv cells --keep 4%
if "$chunkkv" run -m "$model" -p "$question" --policy palu -n 1 >/dev/null 2>err; then
	same palu most
	same palu:rank=20 exact
else
	grep -q LAPACKE err
	check 'palu needs LAPACKE here' $?
fi

"$chunkkv" run -m "$model" --ctx 32768 --policy kivi2 --dry-run >b.txt 2>err && grep -q '^32768 tokens, of which 32768 are kept (all' b.txt &&
	grep -q '^cache of our own .*32768 rows in each head, kivi2' b.txt
check 'a length alone is enough' $?

finish
