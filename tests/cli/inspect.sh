#!/bin/sh
# chunkkv inspect on the real model.
#   inspect.sh CHUNKKV DOCUMENT MODEL BROWSER_CHECK
set -u
chunkkv=$1 document=$2 model=$3 browser=$4
. "$(dirname "$0")/common.sh"
cd "$work" || exit 1

head -c 2500 "$document" >part.txt
question='What is the nearest town to the observatory?'

"$chunkkv" inspect -m "$model" -f part.txt -p "$question" --policy chunkkv --policy streamingllm --policy adakv --policy chunkkv-reuse \
	--keep 20% --json --out page.html >a.json 2>err
check 'inspect ends well' $?
"$chunkkv" run -m "$model" -f part.txt -p "$question" --keep 20% -n 2 --json >run.json 2>err
python3 - a.json run.json <<'PY' 2>err
import json, sys
r, run = json.load(open(sys.argv[1])), json.load(open(sys.argv[2]))
policies = {p["policy"]: p for p in r["policies"]}
assert list(policies) == ["chunkkv", "streamingllm", "adakv", "chunkkv-reuse"], list(policies)
layers = {name: p["layers"] for name, p in policies.items()}
mean = lambda name, part: sum(x for x in layers[name][part] if x is not None) / len(layers[name][part])
kept = layers["chunkkv"]["attention_kept"]
assert len(kept) == 30 and all(0 < x <= 1 for x in kept)
# The command that answers measures the same attention by another way.
assert abs(mean("chunkkv", "attention_kept") - run["attention_kept"]) < 1e-4, run["attention_kept"]
assert mean("chunkkv", "attention_kept") > mean("streamingllm", "attention_kept")
for name in layers:
    assert all(0 < x <= 1.0001 for x in layers[name]["attention_cosine"]) and min(layers[name]["output_error"]) >= 0
# The first and the last tokens are the same in every layer; every second layer takes the choice of the one before.
assert {x for x in layers["streamingllm"]["jaccard"] if x is not None} == {1}
assert layers["chunkkv-reuse"]["jaccard"][1::2] == [1] * 15, layers["chunkkv-reuse"]["jaccard"]
share = policies["chunkkv"]["token_share"]
assert len(share) == r["n_prompt"] and share[:4] == [1] * 4 and share[-16:] == [1] * 16
assert abs(sum(share) / len(share) - 0.2) < 0.001
PY
check 'its figures agree with those of run, and with each other' $?
grep -q 'observatory' page.html && ! grep -Eq '(src|href) *= *"?https?:|<script' page.html
check 'a page with the text, that fetches and runs nothing' $?

# 77: there is no browser here.
"$browser" page.html >browser.txt 2>err
status=$?
[ "$status" = 0 ] || [ "$status" = 77 ] || { cat browser.txt && false; }
check 'a browser shows it without faults' $?

"$chunkkv" inspect -m "$model" -f part.txt --policy random --keep 10% --out b.html >b.txt 2>err && grep -q '^random' b.txt && [ -s b.html ]
check 'a document alone' $?
"$chunkkv" inspect -m "$model" -f part.txt -p "$question" --policy kivi2 --policy kivi8 --policy chunkkv --policy chunkkv+kivi2 --policy chunkkv+merge \
	--keep 20% --json --out d.html >d.json 2>err && python3 - d.json <<'PY' 2>err
import json, sys
p = {x["policy"]: x for x in json.load(open(sys.argv[1]))["policies"]}
assert [x["codec"] for x in p.values()] == ["kivi2", "kivi8", None, "kivi2", "merge"], [x["codec"] for x in p.values()]
m = {name: x["means"] for name, x in p.items()}
for name in ("kivi2", "kivi8"):
    assert p[name]["kept_share"] == 1 and m[name]["attention_kept"] == 1
    assert m[name]["key_l1"] > 0 and m[name]["value_l1"] > 0 and m[name]["attention_cosine"] < 1
# Six bits fewer are 85 times the step.
assert 30 < m["kivi2"]["key_l1"] / m["kivi8"]["key_l1"] < 200 and 30 < m["kivi2"]["value_l1"] / m["kivi8"]["value_l1"] < 200
assert m["kivi8"]["output_error"] < 0.1 < m["kivi2"]["output_error"] < 1
# A codec adds its loss to that of what it does not store; merging moves values alone.
for measure in ("key_l1", "value_l1"):
    assert m["chunkkv+kivi2"][measure] > m["chunkkv"][measure]
assert m["chunkkv+merge"]["key_l1"] == m["chunkkv"]["key_l1"] and m["chunkkv+merge"]["value_l1"] != m["chunkkv"]["value_l1"]
assert len({m[name]["attention_kept"] for name in ("chunkkv", "chunkkv+kivi2", "chunkkv+merge")}) == 1
PY
check 'codecs and merging show in what is lost' $?
grep -q 'on the rows that kivi2 gives back' d.html
check 'the page names the codec' $?
! "$chunkkv" inspect -m "$model" -f part.txt --policy chunkvk --out c.html >c.txt 2>err && grep -q chunkkv err && [ ! -e c.html ]
check 'an unknown policy: the nearest is named, nothing is written' $?
! "$chunkkv" inspect -m "$model" -f part.txt --out nowhere/c.html >c.txt 2>err && grep -q nowhere err
check 'a page that cannot be written' $?

finish
