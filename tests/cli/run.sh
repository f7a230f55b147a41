#!/bin/sh
# chunkkv run on the real model, end to end: what it prints must be what the model did.
#   run.sh CHUNKKV DOCUMENT MODEL
set -u
chunkkv=$1 document=$2 model=$3
. "$(dirname "$0")/common.sh"
cd "$work" || exit 1

# The first paragraphs are enough, and keep the test short.
head -c 3500 "$document" >part.txt
question='What is the nearest town to the observatory?'

"$chunkkv" run -m "$model" -f part.txt -p "$question" --compare --json -n 24 >a.json 2>a.err
check 'run --compare --json ends well' $?
python3 - a.json <<'PY'
import json, sys
r = json.load(open(sys.argv[1]))
keys = """model policy n_prompt n_kept cache_bytes cache_bytes_full cache_alloc_bytes attention_kept prefill_s score_s compact_s
ttft_s tok_per_s n_generated answer peak_rss_bytes full kl_mean kl_max top1_agreement""".split()
missing = [k for k in keys if k not in r]
assert not missing, missing
assert "Brackwater" in r["full"]["answer"], r["full"]["answer"]
n = r["n_prompt"]
assert r["policy"] == "chunkkv" and 500 < n < 1500, n
assert len(r["n_kept"]) == 30 and set(r["n_kept"]) == {int(n * 10 / 100 + 0.5)}, r["n_kept"]
assert r["cache_bytes"] <= 0.11 * r["cache_bytes_full"]
assert r["cache_bytes_full"] == n * 30 * 2 * 192 * 2
# 256 cells is the least llama.cpp allocates
assert r["cache_alloc_bytes"] == 256 * 30 * 2 * 192 * 2, r["cache_alloc_bytes"]
assert 0.3 < r["attention_kept"] < 1
assert r["kl_mean"] > 0 and r["kl_max"] >= r["kl_mean"] and 0 <= r["top1_agreement"] <= 1
assert 1 <= r["n_generated"] <= 24 and r["answer"]
for k in "prefill_s score_s compact_s ttft_s tok_per_s peak_rss_bytes".split():
    assert r[k] > 0, k
PY
check 'the JSON says what was done' $?

"$chunkkv" run -m "$model" -f part.txt -p "$question" --keep 100% --compare --json -n 24 >b.json 2>b.err
check 'run --keep 100% ends well' $?
grep -q 'kept whole' b.err
check 'a budget that drops nothing is said' $?
python3 - b.json <<'PY'
import json, sys
r = json.load(open(sys.argv[1]))
assert r["answer"] == r["full"]["answer"], (r["answer"], r["full"]["answer"])
assert r["kl_mean"] == 0 and r["kl_max"] == 0 and r["top1_agreement"] == 1, r
assert r["attention_kept"] > 0.9999
PY
check 'keeping everything gives the same answer, KL 0' $?

"$chunkkv" run -m "$model" -f part.txt -p "$question" --quiet -n 24 >c.txt 2>c.err
check 'run --quiet ends well' $?
[ -s c.txt ] && [ ! -s c.err ]
check 'quiet means the answer alone' $?
python3 -c 'import json,sys; sys.exit(json.load(open("a.json"))["answer"].strip() != open("c.txt").read().strip())'
check 'with and without --compare the compressed answer is the same' $?

printf '%s' "$question" | "$chunkkv" run -m "$model" -f part.txt -n 24 >d.txt 2>d.err
check 'the question may come from standard input' $?
cmp -s c.txt d.txt
check 'and gives the same answer' $?
grep -q 'tokens/s' d.err
check 'the table is on standard error' $?

"$chunkkv" run -m "$model" -p "$question" --dry-run >e.txt 2>e.err && grep -q 'full cache' e.txt && [ ! -s e.err ]
check 'dry run tells sizes' $?

"$chunkkv" run -m "$model" -p "$question" --keep 5000 --policy snapkv -n 4 --cache-type q8_0 >f.txt 2>f.err && grep -q 'kept whole' f.err
check 'a budget larger than the prompt goes on uncompressed' $?

"$chunkkv" run -m "$model" -f part.txt -p 'Say <|im_end|> twice.' --no-chat-template -n 4 --temp 0.8 --seed 7 >g.txt 2>/dev/null &&
	"$chunkkv" run -m "$model" -f part.txt -p 'Say <|im_end|> twice.' --no-chat-template -n 4 --temp 0.8 --seed 7 >h.txt 2>/dev/null &&
	cmp -s g.txt h.txt
check 'the same seed samples the same answer' $?

# Ctrl-C while a long document is read: a clean end, soon, with the status that shells expect.
for _ in 1 2 3 4 5 6 7 8; do cat "$document"; done >long.txt
"$chunkkv" run -m "$model" -f long.txt -p "$question" -n 4 >i.txt 2>i.err &
pid=$!
sleep 4
kill -INT $pid
wait $pid
status=$?
[ $status = 130 ] && grep -q interrupted i.err && [ ! -s i.txt ]
check "an interrupt ends cleanly (status $status)" $?

"$chunkkv" run -m "$model" -p 'Hello' -n 4 --quiet >/dev/full 2>j.err
[ $? = 1 ] && grep -q 'standard output' j.err
check 'a full disk behind standard output is an error' $?

"$chunkkv" run -m "$model" -f part.txt -p "$question" --keep 100% --compare --json -n 12 --temp 0.8 --seed 7 >k.json 2>/dev/null &&
	python3 -c 'import json; r = json.load(open("k.json")); assert r["answer"] == r["full"]["answer"], r'
check 'sampled answers of equal caches are equal' $?

finish
