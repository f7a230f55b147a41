#!/bin/sh
# chunkkv eval on the real model: figures that the model made, files that can be gone on with.
#   eval.sh CHUNKKV DOCUMENT MODEL
set -u
chunkkv=$1 document=$2 model=$3
. "$(dirname "$0")/common.sh"
cd "$work" || exit 1

head -c 3500 "$document" >part.txt
{
	printf '# a comment\n'
	printf 'What is the nearest town to the observatory?\tBrackwater\n'
	printf 'In what year did the observatory open?\t1911\n'
	printf 'What is the name of the mountain?\n'
} >questions.txt
doc="doc -m $model -f part.txt --questions questions.txt -n 12 --policy chunkkv --policy snapkv --keep 100%,10%"

# shellcheck disable=SC2086 # a list of words
"$chunkkv" eval $doc --out a >a.txt 2>err
check 'eval doc ends well' $?
python3 - a/records.jsonl <<'PY' 2>err
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
assert lines[0]["chunkkv-eval"] == 1 and lines[0]["reference"] == "f16"
records = {(r["example"], r["policy"], r["keep"]): r for r in lines if "policy" in r}
assert len(records) == 3 * 5, len(records)
examples = sorted({key[0] for key in records})
full = [records[(e, "full", "100%")] for e in examples]
assert "Brackwater" in full[0]["answer"], full[0]["answer"]
assert [r["score"] for r in full][2] is None and full[0]["score"] == 1
for e in examples:
    n = records[(e, "full", "100%")]["n_prompt"]
    for policy in "chunkkv", "snapkv":
        whole, tenth = records[(e, policy, "100%")], records[(e, policy, "10%")]
        # The same cache in the same batches: not nearly, but exactly the same.
        assert whole["exact"] and max(whole["kl"]) == 0 and set(whole["same"]) == {"1"}, whole
        assert whole["answer"] == records[(e, "full", "100%")]["answer"]
        assert tenth["n_cells"] == int(n * 10 / 100 + 0.5), (n, tenth["n_cells"])
        assert tenth["bytes"] == tenth["n_cells"] * 30 * 2 * 192 * 2 and tenth["bytes_full"] == n * 30 * 2 * 192 * 2
        assert 0 < len(tenth["kl"]) == len(tenth["same"]) <= 12 and max(tenth["kl"]) > 0
        assert tenth["exact"] == ("0" not in tenth["same"])
prefills = [r for r in lines if "prefill_s" in r]
assert sum(r["n_starts"] for r in prefills) == 15, prefills
PY
check 'the records are what was asked for; a cache that keeps all is exactly the whole one' $?
grep -q 'chunkkv *10% *f16 *0.10' a.txt && grep -q 'read once served 15 caches' a.txt
check 'the table shows memory and the saving' $?
[ -s a/report.html ] && ! grep -Eq '(src|href) *= *"?https?:' a/report.html
check 'a page, that fetches nothing' $?

# The same again has nothing to do and says the same.
# shellcheck disable=SC2086
"$chunkkv" eval $doc --out a >b.txt 2>err && cmp -s a.txt b.txt
check 'a finished evaluation is shown again' $?

# Broken off by force in the middle, even in the middle of a line, then gone on with: the same figures.
# shellcheck disable=SC2086
"$chunkkv" eval $doc --out c >c.txt 2>err &
process=$!
n=0
while kill -0 $process 2>/dev/null && [ "$n" -lt 7 ]; do
	sleep 0.05
	[ ! -f c/records.jsonl ] || n=$(grep -c '"policy"' c/records.jsonl)
done
kill -9 $process 2>/dev/null
wait $process 2>/dev/null
n=$(grep -c '"policy"' c/records.jsonl)
[ "$n" -ge 7 ] && [ "$n" -lt 15 ]
check "killed after $n of 15 records" $?
printf '{"example":"doc/' >>c/records.jsonl
# shellcheck disable=SC2086
"$chunkkv" eval $doc --out c >c.txt 2>err
check 'goes on after a kill' $?
python3 - a/records.jsonl c/records.jsonl <<'PY' 2>err
import json, sys
def read(path):
    rows = [json.loads(line) for line in open(path)]
    keys = [(r["example"], r["policy"], r["keep"]) for r in rows if "policy" in r]
    assert len(keys) == len(set(keys)) == 15, len(keys)
    return {(r["example"], r["policy"], r["keep"]): (r["kl"], r["same"], r["answer"], r["score"]) for r in rows if "policy" in r}
a, c = read(sys.argv[1]), read(sys.argv[2])
assert a == c, [k for k in a if a[k] != c.get(k)]
PY
check 'and finds the same as in one go' $?

# A file can be widened by policies and budgets, but not be another run.
# shellcheck disable=SC2086
"$chunkkv" eval $doc --policy tova --keep 5% --out a >b.txt 2>err && grep -q '^tova *5%' b.txt && grep -q '^chunkkv *10%' b.txt
check 'more policies and budgets go into the same folder' $?
# shellcheck disable=SC2086
! "$chunkkv" eval $doc --seed 5 --out a >b.txt 2>err && grep -q 'seed=5' err && grep -q -- '--out' err
check 'another run does not, and the difference is told' $?

# The question after the compression.
# shellcheck disable=SC2086
"$chunkkv" eval $doc --question-agnostic --out d >d.txt 2>err && python3 - d/records.jsonl <<'PY' 2>>err
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
assert rows[0]["setting"] == "compressed before the question"
for r in rows:
    if r.get("keep") == "100%":
        assert r["exact"] and max(r["kl"], default=0) == 0, r
PY
check 'compressed before the question' $?

# Every preset, both quantised caches beside it, on a needle.
"$chunkkv" eval niah -m "$model" -f "$document" --length 512 --depth 50 -n 8 --policy all --keep 10% --cache-type f16,q8_0 \
	--out e >e.txt 2>err && python3 - e/records.jsonl "$("$chunkkv" policies --json 2>/dev/null | wc -c)" <<'PY' 2>>err
import json, sys
rows = [r for r in map(json.loads, open(sys.argv[1])) if "policy" in r]
f16 = [r for r in rows if r["cache"] == "f16"]
q8 = [r for r in rows if r["cache"] == "q8_0"]
own = {r["policy"] for r in f16} - {r["policy"] for r in q8}  # pack rows themselves, so there is no q8_0 of them
assert own | {"palu"} == {"kivi2", "kivi4", "kivi8", "palu"} and len(f16) - len(own) == len(q8) >= 17, (own, len(f16), len(q8))
assert f16[0]["n_prompt"] + 8 <= 512 + 64 and f16[0]["depth"] == 50 and f16[0]["length"] == 512
full = {r["cache"]: r for r in rows if r["policy"] == "full"}
assert abs(full["q8_0"]["bytes"] / full["q8_0"]["bytes_full"] - 34 / 64) < 0.001, full["q8_0"]
assert 0 < sum(full["q8_0"]["kl"]) / len(full["q8_0"]["kl"]) < 0.05
for r in rows:
    assert len(r["kl"]) == (0 if r is full["f16"] else len(full["q8_0"]["kl"])), r["policy"]
    assert all(x >= 0 for x in r["kl"])
PY
check 'all presets in two cache types' $?

# Prompts with a beginning in common, or all of it, in two cache types: what policies observed is of one type at a time.
head -c 1200 "$document" >short.txt
for setting in '' --question-agnostic; do
	# shellcheck disable=SC2086 # none, or one
	"$chunkkv" eval doc -m "$model" -f short.txt --questions questions.txt --examples 2 -n 2 --policy chunkkv --keep 50% \
		--cache-type f16,q8_0 $setting --out "t$setting" >t.txt 2>err && grep -q '^doc (2 examples' t.txt &&
		[ "$(grep -c '"policy"' "t$setting/records.jsonl")" = 8 ]
	check "prompts that have much in common, in two cache types $setting" $?
done

# A text's perplexity.
"$chunkkv" eval perplexity -m "$model" -f "$document" --length 512 --examples 2 --policy chunkkv --keep 50%,5% \
	--out p >p.txt 2>err && grep -q perplexity p.txt && python3 - p/records.jsonl <<'PY' 2>>err
import json, math, sys
rows = [r for r in map(json.loads, open(sys.argv[1])) if "policy" in r]
mean = {k: sum(r["nll"] for r in rows if r["keep"] == k) / 2 for k in ("100%", "50%", "5%")}
assert 1 < math.exp(mean["100%"]) < 60, mean
assert mean["100%"] < mean["50%"] < mean["5%"], mean
assert all(r["kl"] and r["answer"] == "" and r["score"] is None for r in rows if r["policy"] != "full")
PY
check 'perplexity grows as less is kept' $?

# What is wrong in a data file is named with its line, before anything is run.
printf '{"question": "1+1?", "answer": "#### 2"}\n{"question": "2+2?"}\n' >bad.jsonl
! "$chunkkv" eval gsm8k -m "$model" -f bad.jsonl --out g >b.txt 2>err && grep -q 'bad.jsonl.*2' err && [ ! -e g ]
check 'a wrong data file is named with its line' $?
! "$chunkkv" eval ruler/niah_sinle_1 -m "$model" --out g >b.txt 2>err && grep -q 'niah_single_1' err
check 'an unknown part: the nearest is named' $?
! "$chunkkv" eval doc -m "$model" -f part.txt --out g >b.txt 2>err && grep -q -- '--questions' err
check 'doc without questions says what is missing' $?
! "$chunkkv" eval niah -m "$model" --keep 0.1 --out g >b.txt 2>err && [ ! -e g ]
check 'a wrong budget is refused before the model is loaded' $?

finish
