#!/bin/sh
# chunkkv chat on the real model, scripted: what is said early is known late, in a cache that does not grow.
#   chat.sh CHUNKKV DOCUMENT MODEL
set -u
chunkkv=$1 document=$2 model=$3
. "$(dirname "$0")/common.sh"
cd "$work" || exit 1
HOME=$work XDG_STATE_HOME=''
export HOME XDG_STATE_HOME

# Longer than the budget with what is said, and yet short.
head -c 2600 "$document" >part.txt

# says NAME [OPTION ...] <LINES: what is answered goes to NAME.out, all else to $work/err.
says() {
	name=$1
	shift
	"$chunkkv" chat -m "$model" -t 1 -n 24 --ctx-budget 512 "$@" >"$name.out" 2>err
}

# ------------------------------------------------------------------------------------------------- a conversation
says first --system 'You are helpful.' --pin 'Always answer in English.' -f part.txt <<'EOT'
The code word is heliotrope.
/pin
"""
Which town is nearest
to the observatory?
"""
/save saved
What is the code word?
/stats
EOT
check 'a conversation ends well' $?
grep -q Brackwater first.out
check 'the document is answered from' $?
tail -n 1 first.out | grep -q heliotrope
check 'what was told early is known late' $?
python3 - err <<'PY'
import re, sys
text = open(sys.argv[1]).read()
number = lambda pattern: int(re.search(pattern, text).group(1))
seen, evicted = number(r"tokens seen +(\d+)"), number(r"(\d+) evicted")
held, budget = map(int, re.search(r"rows held +(\d+) of (\d+);", text).groups())
assert budget == 512 and held <= budget and evicted > 64 and held + evicted == seen, text
spans = re.findall(r"^ +(?:\d+ )?(system|document|you|model) +(\d+) tokens +(\d+) %", text, re.M)
assert [s[0] for s in spans] == ["system", "document"] + 3 * ["you", "model"], spans
# Each message is followed by <|im_end|> \n <|im_start|> ass istant \n, each reply but the last by as much, less one.
assert seen == sum(int(n) for _, n, _ in spans) + 3 * 6 + 2 * 5, (seen, spans)
assert spans[0][2] == "100" and spans[2][2] == "100", spans
assert 10 < int(spans[1][2]) < 100, spans
assert number(r"pinned +(\d+) tokens") == int(spans[0][1]) + int(spans[2][1]), text
PY
check 'the cache keeps to its budget, pinned text whole; each turn is closed once' $?

# ------------------------------------------------------------------------------------------- another process goes on
says second --load saved <<'EOT'
What is the code word?
/stats
/policy snapkv:window=16
/policy
What is the code word?
/save again
/reset
/stats
EOT
check 'a saved conversation goes on' $?
[ "$(head -n 1 second.out)" = "$(tail -n 1 first.out)" ]
check 'and answers as the one that was saved' $?
grep -q '^snapkv:window=16$' err && [ "$(grep -c 'tokens seen' err)" = 2 ] && sed -n '/tokens seen/p' err | tail -n 1 | grep -q ' 3$'
check 'the policy can change; reset begins anew' $?
sed -n '/^ *1 you/p' err | grep -q '100 %$'
check 'what was pinned before is pinned after' $?

# ------------------------------------------------------------------------------------------------- a cache of our own
says hosted --policy cam --pin 'Always answer in English.' -f part.txt <<'EOT'
The code word is heliotrope.
/pin
/save hosted-one
What is the code word?
/stats
EOT
check 'so does one in a cache of our own' $?
tail -n 1 hosted.out | grep -q heliotrope && grep -q '^policy  *cam$' err && sed -n '/^ *system/p' err | grep -q '100 %$'
check 'which knows what was said, and keeps what is pinned' $?
says hosted-again --policy cam --load hosted-one <<'EOT'
What is the code word?
EOT
check 'it is gone on with in another process' $?
[ "$(cat hosted-again.out)" = "$(tail -n 1 hosted.out)" ]
check 'and answers as the one that was saved' $?
printf '/policy snapkv\n/load hosted-one\n' | says wrong --cache hosted
[ $? = 1 ] && grep -q 'the policy stays as it was: a hosted cache keeps' err && grep -q "saved with another policy: give --policy cam" err
check 'another policy is refused there' $?
says wrong --cache own --policy chunkkv --load saved </dev/null && ! says wrong --cache hosted --load saved --no-rotate </dev/null
check "what is in llama.cpp's cache is not taken for one of our own" $?

# ------------------------------------------------------------------------------------------------------- what goes wrong
printf 'x' >empty
cp saved damaged && printf '\377' | dd of=damaged bs=1 seek=5000 conv=notrunc 2>/dev/null
head -c 100000 saved >short
# Whole as a file, but not the cache in it.
python3 - <<'PY'
data = open("saved", "rb").read()
data = bytearray(data[:data.index(b"CKVLLAMA") + 1000])
total = 14695981039346656037
for byte in data[32:]:
    total = (total ^ byte) * 1099511628211 % 2**64
data[16:32] = len(data).to_bytes(8, "little") + total.to_bytes(8, "little")
open("torn", "wb").write(data)
PY
mkdir folder
says wrong --system 'You are helpful.' -n 4 <<'EOT'
The code word is heliotrope.
/stat
/save
/save folder
/save missing/file
/load folder
/load missing
/load empty
/load damaged
/load short
/load torn
/load again
/policy adakv
/policy chunkkv:chunk=500,grace=500
/pin this
/exit now
//sbin is a folder.
/stats
EOT
[ $? = 1 ]
check 'what goes wrong in a script is its exit status' $?
while read -r pattern; do
	grep -qE -- "$pattern" err
	check "said: $pattern" $?
done <<'EOT'
no command '/stat'; the nearest is /stats
/save needs the name of a file
cannot write 'folder': it is a folder
cannot write 'missing/file.tmp': No such file
'folder' is a folder
cannot open 'missing'
'empty' is no saved conversation
'damaged' is damaged
'short' is damaged
'torn' can't be gone on with
'again' was saved with another policy: give --policy snapkv:window=16
adakv.*compressed once
policy stays as it was|budget of 512 rows lacks
takes no text
/exit takes no 'now'
EOT
[ "$(grep -c ' you ' err)" = 2 ] && printf '%s\n' 'The code word is heliotrope.' '//sbin is a folder.' |
	says calm --system 'You are helpful.' -n 4 && cmp -s wrong.out calm.out
check 'and none of it disturbed the conversation' $?
[ -f saved ] && [ -z "$(find . -name '*.tmp')" ] && [ -z "$(find saved -perm /077)" ]
check "saved files are whole and nobody else's" $?

says short --system "$(head -c 1800 "$document")" </dev/null
[ $? = 1 ] && grep -q 'budget of 512 rows lacks .* give --ctx-budget' err
check 'pins that leave too little room are refused with numbers' $?
says short --chat-template nonsense </dev/null
[ $? = 1 ] && grep -q chatml err
check 'an unknown template is refused with those there are' $?
printf 'caf\351\n' | says latin
[ $? = 1 ] && grep -q 'not UTF-8' err
check 'what is not UTF-8 is refused' $?
printf 'One, two,\n' | says raw --no-chat-template -n 2 && [ -s raw.out ]
check 'without a template text goes in as it is' $?
printf 'Hello.\n' | "$chunkkv" chat -m "$model" -n 4 --quiet >/dev/full 2>err
[ $? = 1 ] && grep -q 'standard output' err
check 'a full disk behind standard output is an error' $?

# Ctrl-C stops the reply, and the conversation goes on.
mkfifo input
"$chunkkv" chat -m "$model" -t 1 -n 4000 --ctx-budget 512 <input >stopped.out 2>err &
pid=$!
exec 3>input
echo 'Write a very long story about a cat and a dog.' >&3
tries=0
while [ $tries -lt 120 ]; do
	[ "$(wc -c <stopped.out)" -gt 20 ] && break
	tries=$((tries + 1))
	sleep 1
done
kill -INT $pid
sleep 1
printf '/stats\n/exit\n' >&3
wait $pid
[ $? = 0 ] && grep -q 'tokens seen' err && [ "$(grep -c ' model ' err)" = 1 ]
check 'an interrupt stops the reply, not the conversation' $?
exec 3>&-

[ -z "$(find . -name history)" ]
check 'scripts leave no history' $?
finish
