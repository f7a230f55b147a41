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
keys = """model policy n_prompt n_kept cache_bytes cache_bytes_full cache_bytes_ragged cache_alloc_bytes attention_kept no_slope
prefill_s score_s compact_s ttft_s tok_per_s n_generated answer peak_rss_bytes full kl_mean kl_max top1_agreement""".split()
missing = [k for k in keys if k not in r]
assert not missing, missing
assert "Brackwater" in r["full"]["answer"], r["full"]["answer"]
assert r["question_in_window"] is True and "answers" not in r and r["no_slope"] is False
n = r["n_prompt"]
assert r["policy"] == "chunkkv" and 500 < n < 1500, n
assert len(r["n_kept"]) == 30 and set(r["n_kept"]) == {int(n * 10 / 100 + 0.5)}, r["n_kept"]
assert r["cache_bytes"] <= 0.11 * r["cache_bytes_full"]
assert r["cache_bytes_ragged"] == r["cache_bytes"], r["cache_bytes_ragged"]
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
grep -q 'tokens/s' d.err && grep -q '^question in the window:' d.err
check 'the table is on standard error, and says that the question was in the window' $?

"$chunkkv" run -m "$model" -p "$question" --dry-run >e.txt 2>e.err && grep -q 'full cache' e.txt && [ ! -s e.err ]
check 'dry run tells sizes' $?

"$chunkkv" run -m "$model" -p "$question" --keep 5000 --policy snapkv -n 4 --cache-type q8_0 >f.txt 2>f.err && grep -q 'kept whole' f.err
check 'a budget larger than the prompt goes on uncompressed' $?

"$chunkkv" run -m "$model" -f part.txt -p 'Say <|im_end|> twice.' --no-chat-template -n 4 --temp 0.8 --seed 7 >g.txt 2>/dev/null &&
	"$chunkkv" run -m "$model" -f part.txt -p 'Say <|im_end|> twice.' --no-chat-template -n 4 --temp 0.8 --seed 7 >h.txt 2>/dev/null &&
	cmp -s g.txt h.txt
check 'the same seed samples the same answer' $?

# Questions to a document that was compressed before them.
head -c 2200 "$document" >brief.txt
other='Who founded the observatory?'
"$chunkkv" run -m "$model" -f brief.txt -p "$question" -p "$other" --keep 30% --compare --json -n 12 >l.json 2>l.err
check 'run with two questions ends well' $?
"$chunkkv" run -m "$model" -f brief.txt -p "$question" -p "$other" --question-agnostic --keep 30% --dry-run >l.txt 2>l.err
check 'dry run with two questions ends well' $?
python3 - l.json l.txt "$question" "$other" <<'PY'
import json, re, sys
r = json.load(open(sys.argv[1]))
dry = open(sys.argv[2]).read()
answers = r["answers"]
assert r["question_in_window"] is False
assert "answer" not in r and "n_prompt" not in r, sorted(r)
assert [a["question"] for a in answers] == sys.argv[3:], answers
n = r["n_document"]
assert set(r["n_kept"]) == {int(n * 30 / 100 + 0.5)}, (n, r["n_kept"])
for a in answers:
    # the first token counts: the question was decoded on the compressed cache
    assert a["n_compared"] in (a["full"]["n_generated"], a["full"]["n_generated"] + 1), a
    assert a["kl_max"] >= a["kl_mean"] > 0 and 0 <= a["top1_agreement"] <= 1, a
    assert a["ttft_s"] > 0 and a["tok_per_s"] > 0 and a["answer"], a
assert "Brackwater" in answers[0]["full"]["answer"] and "Ottoline" in answers[1]["full"]["answer"], answers
assert r["n_compared"] == sum(a["n_compared"] for a in answers)
counts = [int(x) for x in re.search(r"questions of (\d+), (\d+) tokens", dry).groups()]
assert counts == [a["n_question"] for a in answers], (counts, dry)
assert dry.startswith("%d document tokens, of which %d are kept" % (n, r["n_kept"][0])), dry
PY
check 'the JSON and the dry run say what was done with two questions' $?

"$chunkkv" run -m "$model" -f brief.txt -p "$other" --question-agnostic --keep 30% -n 12 >m.txt 2>m.err
check 'run --question-agnostic with one question ends well' $?
grep -q '^compressed before the question:' m.err
check 'the table says that the document was compressed before the question' $?
python3 -c 'import json,sys; sys.exit(json.load(open("l.json"))["answers"][1]["answer"].strip() != open("m.txt").read().strip())'
check "a question's answer depends neither on those before it nor on --compare" $?

printf '%s' "$other" | "$chunkkv" run -m "$model" -f brief.txt --question-agnostic --keep 100% --compare --json -n 12 --temp 0.8 --seed 7 >n.json 2>n.err &&
	python3 -c 'import json; a = json.load(open("n.json"))["answers"][0]; assert a["answer"] == a["full"]["answer"] and a["kl_max"] == 0, a'
check 'keeping everything before the question gives the same answer, KL 0; the question may come from standard input' $?

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
