#!/bin/sh
# chunkkv run --ctx-budget on the real model: the cache never outgrows its budget, and what fits it is answered as ever.
#   bounded.sh CHUNKKV DOCUMENT MODEL
set -u
chunkkv=$1 document=$2 model=$3
. "$(dirname "$0")/common.sh"
cd "$work" || exit 1
question='What is the nearest town to the observatory?'
head -c 2200 "$document" >brief.txt

"$chunkkv" run -m "$model" -f "$document" -p "$question" --ctx-budget 512 --json -n 16 >a.json 2>a.err
check 'a document far longer than the cache ends well' $?
[ ! -s a.err ]
check 'and nothing is remarked on' $?
python3 - a.json <<'PY'
import json, sys
r = json.load(open(sys.argv[1]))
keys = """model policy in_blocks rotated hosted ctx_budget n_cells n_prompt n_seen n_rows n_evicted n_evictions n_layers n_window_layers
cache_alloc_bytes own_bytes prefill_s prefill_tok_per_s decode_s score_s move_s turn_s ttft_s tok_per_s n_generated answer
peak_rss_bytes final_rss_bytes""".split()
assert sorted(r) == sorted(keys), sorted(set(r) ^ set(keys))
assert r["policy"] == "chunkkv" and not r["in_blocks"] and not r["rotated"] and not r["hosted"]
assert r["n_prompt"] > 2000 and r["ctx_budget"] == r["n_cells"] == 512
assert r["n_rows"] <= 512, r["n_rows"]
# what was generated last is not read any more, unless the answer ended by itself
assert r["n_seen"] - r["n_prompt"] in (r["n_generated"] - 1, r["n_generated"]) and 1 <= r["n_generated"] <= 16, r
assert r["n_evicted"] == r["n_seen"] - r["n_rows"] and 0 < r["n_evictions"] < r["n_evicted"], r
assert (r["n_layers"], r["n_window_layers"]) == (30, 0)
assert r["cache_alloc_bytes"] == 512 * 30 * 2 * 192 * 2, r["cache_alloc_bytes"]
for k in "own_bytes prefill_s prefill_tok_per_s decode_s score_s move_s ttft_s tok_per_s peak_rss_bytes final_rss_bytes".split():
    assert r[k] > 0, k
assert r["turn_s"] == 0 and r["answer"].strip(), r
PY
check 'the JSON says what was done' $?

"$chunkkv" run -m "$model" -f brief.txt -p "$question" --keep 100% --quiet -n 12 >plain.txt 2>err &&
	"$chunkkv" run -m "$model" -f brief.txt -p "$question" --ctx-budget 1024 --compare --json -n 12 >b.json 2>b.err
check 'a budget larger than everything ends well' $?
python3 - b.json plain.txt <<'PY'
import json, sys
r = json.load(open(sys.argv[1]))
plain = open(sys.argv[2]).read().strip()
assert "Brackwater" in plain, plain
assert r["n_evicted"] == r["n_evictions"] == 0 and r["n_rows"] == r["n_seen"] < 1024, r
assert r["answer"].strip() == plain and r["full"]["answer"].strip() == plain, (r, plain)
assert r["kl_mean"] == r["kl_max"] == 0 and r["top1_agreement"] == 1, r
# the first token counts: the prompt went through the bounded cache
assert r["n_compared"] in (r["full"]["n_generated"], r["full"]["n_generated"] + 1), r
assert r["full"]["prefill_s"] > 0 and r["full"]["prefill_tok_per_s"] > 0 and r["full"]["tok_per_s"] > 0
PY
check 'and gives exactly the plain answer, KL 0' $?

"$chunkkv" run -m "$model" -f brief.txt -p "$question" --ctx-budget 256 --rotate --compare --json -n 12 >c.json 2>c.err
check 'run --rotate --compare ends well' $?
python3 - c.json plain.txt <<'PY'
import json, sys
r = json.load(open(sys.argv[1]))
assert r["rotated"] and r["turn_s"] > 0 and r["n_evicted"] > 0 and r["n_rows"] <= 256 < r["n_prompt"], r
assert r["full"]["answer"].strip() == open(sys.argv[2]).read().strip(), r
assert r["kl_max"] >= r["kl_mean"] > 0 and 0 <= r["top1_agreement"] <= 1, r
assert r["cache_alloc_bytes"] == 256 * 30 * 2 * 192 * 2
assert r["full"]["cache_alloc_bytes"] >= (r["n_prompt"] + 12) * 30 * 2 * 192 * 2, r
PY
check 'it is rotated, and the full cache beside it answers as ever' $?

"$chunkkv" run -m "$model" -f brief.txt -p "$question" --ctx-budget 300 --policy keydiff --interval 64 -n 12 >d.txt 2>d.err
check 'a one-shot policy in blocks ends well' $?
[ -s d.txt ] && grep -q '^cache of fixed size: .*, keydiff in blocks, 300 rows at most (512 cells)' d.err &&
	awk '/tokens seen/ { seen = $3 } /tokens in the cache/ { rows = $5 } /tokens evicted/ { gone = $3 }
	     END { exit !(rows > 0 && rows <= 300 && gone > 0 && seen == rows + gone) }' d.err
check 'the table is on standard error, and its numbers add up' $?

# The answer is short, but might have gone beyond what the model was trained for.
far() { timeout 120 "$chunkkv" run -m "$model" -p 'What is the capital of France?' --ctx-budget 256 -n 9000 "$@" 2>err; }
far --json >e.json && grep -q '"rotated": true' e.json && [ ! -s err ]
check 'positions that may go beyond what the model was trained for are rotated' $?
far --json --cache-type q8_0 >e.json && grep -q '"rotated": false' e.json && [ "$(grep -c '^note: .*trained for 8192.*f16' err)" = 1 ]
check 'but not in a quantised cache, which is remarked on once' $?
far --json --policy keydiff >e.json && grep -q '"rotated": false' e.json && grep -q '^note: .*trained for 8192.*in blocks' err
check 'nor by a policy in blocks' $?
far --json --no-rotate >e.json && grep -q '"rotated": false' e.json && grep -q '^note: .*trained for 8192.*--no-rotate' err
check 'nor where it is not wanted' $?
far --quiet --no-rotate >e.txt && [ -s e.txt ] && [ ! -s err ]
check 'quiet means the answer alone' $?

"$chunkkv" run -m "$model" -f brief.txt -p "$question" --ctx-budget 256 --cache-type q8_0 --json -n 12 >f.json 2>f.err
check 'a quantised cache ends well' $?
python3 - f.json <<'PY'
import json, sys
r = json.load(open(sys.argv[1]))
assert r["n_rows"] <= 256 and r["n_evicted"] > 0 and r["answer"].strip(), r
assert r["cache_alloc_bytes"] == 256 * 30 * 2 * 192 // 32 * 34, r["cache_alloc_bytes"]
PY
check 'and its JSON says what was done' $?

"$chunkkv" run -m "$model" -f brief.txt -p "$question" --ctx-budget 300 --policy cam --json -n 12 >i.json 2>i.err &&
	"$chunkkv" run -m "$model" -f brief.txt -p "$question" --ctx-budget 300 --cache hosted --compare --json -n 12 >j.json 2>j.err &&
	"$chunkkv" run -m "$model" -f brief.txt --ctx-budget 300 --policy cam -n 12 --dry-run >k.txt 2>k.err
check 'a cache of our own of fixed size ends well' $?
python3 - i.json j.json k.txt plain.txt <<'PY'
import json, re, sys
cam, compared = (json.load(open(name)) for name in sys.argv[1:3])
for r in cam, compared:
    assert r["hosted"] and not r["rotated"] and r["n_rows"] <= 300 < r["n_prompt"] and r["n_cells"] == 256, r
    assert r["n_evicted"] == r["n_seen"] - r["n_rows"] > 0 and r["answer"].strip(), r
    beside = 256 * 30 * 2 * 192 * 2
    assert 300 * 30 * 2 * 192 * 2 < r["cache_alloc_bytes"] - beside < 1.3 * 300 * 30 * 2 * 192 * 2, r
assert compared["full"]["answer"].strip() == open(sys.argv[4]).read().strip(), compared
assert compared["kl_max"] >= compared["kl_mean"] > 0, compared
dry = open(sys.argv[3]).read()
own = float(re.search(r"^cache of our own +about +([0-9.]+) MB", dry, re.M).group(1))
assert abs(own * 1e6 / (cam["cache_alloc_bytes"] - beside) - 1) < 0.1, dry
PY
check 'its rows are beside few cells of llama.cpp, as many as the dry run said' $?

"$chunkkv" run -m "$model" -f "$document" -p "$question" --ctx-budget 512 -n 4 >h.txt 2>h.err &
pid=$!
sleep 3
kill -INT $pid
wait $pid
status=$?
[ $status = 130 ] && grep -q interrupted h.err && [ ! -s h.txt ]
check "an interrupt ends cleanly (status $status)" $?

"$chunkkv" run -m "$model" --ctx 32768 --ctx-budget 500 --dry-run >g.txt 2>g.err &&
	grep -q '^full cache .*(32768 cells)' g.txt && grep -q '^bounded cache .*(512 cells: 500 rows at most' g.txt && [ ! -s g.err ]
check 'the dry run tells both sizes' $?

finish
