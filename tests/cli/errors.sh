#!/bin/sh
# Bad input to the command: one clear line on standard error, the right exit status, nothing on standard output, nothing written.
#   errors.sh CHUNKKV DOCUMENT [MODEL]
set -u
chunkkv=$1 document=$2 model=${3:-}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
n_passed=0 n_failed=0

# expect STATUS PATTERN [ARGUMENT ...]: runs chunkkv and checks how it ends.
expect() {
	status=$1 pattern=$2
	shift 2
	"$chunkkv" "$@" >out 2>err </dev/null
	got=$?
	lines=$(grep -vc '^try: ' err)
	if [ "$got" = "$status" ] && grep -qE -- "$pattern" err && [ ! -s out ] && [ "$lines" = 1 ]; then
		n_passed=$((n_passed + 1))
	else
		n_failed=$((n_failed + 1))
		printf 'FAILED: chunkkv %s\n  status %s (expected %s), expected a line like: %s\n' "$*" "$got" "$status" "$pattern"
		sed 's/^/  stdout: /' out
		sed 's/^/  stderr: /' err
	fi
}

printf 'not a model' >text.gguf
printf 'GGUF\003\000\000\000garbage that is no header' >broken.gguf
printf 'latin \351 text' >latin1.txt
printf '  \n\n' >blank.txt
printf 'zero \000 byte' >zero.txt

expect 2 'no model given' run -f "$document" -p 'Why?'
expect 2 'nearest is .chunkkv' run -m x.gguf --policy chunkvk
expect 2 'nearest is .window' run -m x.gguf --policy chunkkv:windw=3
expect 2 'nearest is .snapkv' run -m x.gguf --policy chunkkv:scorer=snapk
expect 2 'chunk=0 .*1 to 65536' run -m x.gguf --policy chunkkv:chunk=0
expect 2 'entropy_keep=10 .*1 to 9' run -m x.gguf --policy egchunkkv:entropy_keep=10
expect 2 'window=0 is out of range: 1 to 65536' run -m x.gguf --policy snapkv:window=0
expect 2 'share=0 .*0\.01 to 1' run -m x.gguf --policy squeezeattention:share=0
expect 2 'safeguard=1\.5 .*0 to 1' run -m x.gguf --policy adakv:safeguard=1.5
expect 2 'kernel=4 .*odd' run -m x.gguf --policy snapkv:kernel=4
expect 2 "no chunker 'lines'; the nearest is 'line'" run -m x.gguf --policy chunkkv:chunker=lines
expect 2 "nearest is 'pyramid'" run -m x.gguf --policy snapkv:layers=pyramd
expect 2 "nearest is 'topk'" run -m x.gguf --policy chunkkv:selector=topc
expect 2 'does not use .chunk' run -m x.gguf --policy snapkv:chunk=5
expect 2 'not a token count.*10%' run -m x.gguf --keep 0.1
expect 2 'token count' run -m x.gguf --keep 0
expect 2 'at most 100%' run -m x.gguf --keep 110%
expect 2 'not a budget' run -m x.gguf --keep ten
expect 2 'n-predict' run -m x.gguf -n 0
expect 2 'n-predict' run -m x.gguf -n 5x
expect 2 'ctx' run -m x.gguf --ctx -7
expect 2 'temp' run -m x.gguf --temp -1
expect 2 'seed' run -m x.gguf --seed -1
expect 2 'cache-type' run -m x.gguf --cache-type f99
expect 2 'exclude' run -m x.gguf --chat-template chatml --no-chat-template
expect 2 'no JSON form' run -m x.gguf --dry-run --json
expect 2 'not an option' run -m x.gguf stray
expect 2 'unrecognized option' run --frobnicate
expect 1 'cannot open the model .*No such file' run -m missing.gguf -p 'Why?'
expect 1 'not a model in GGUF' run -m text.gguf -p 'Why?'
expect 1 'could not be loaded' run -m broken.gguf -p 'Why?'
# A cache of fixed size, and what does not go with it.
expect 2 'ctx-budget .0. is not a whole number' run -m x.gguf --ctx-budget 0
expect 2 'interval .0. is not a whole number' run -m x.gguf --ctx-budget 512 --interval 0
expect 2 '--keep and --ctx-budget exclude' run -m x.gguf --ctx-budget 512 --keep 10%
expect 2 '--question-agnostic and --ctx-budget exclude' run -m x.gguf -f "$document" --ctx-budget 512 --question-agnostic
expect 2 'one question .*--ctx-budget' run -m x.gguf -f "$document" -p 'Why?' -p 'How?' --ctx-budget 512
expect 2 '--ctx .*with --compare' run -m x.gguf --ctx-budget 512 --ctx 4096
expect 2 '--interval goes with --ctx-budget' run -m x.gguf --interval 16
expect 2 'go with --ctx-budget' run -m x.gguf --rotate
expect 2 'go with --ctx-budget' run -m x.gguf --no-rotate
expect 2 '--rotate and --no-rotate exclude' run -m x.gguf --ctx-budget 512 --rotate --no-rotate
expect 2 '--rotate .*quantised.*--cache-type f16' run -m x.gguf --ctx-budget 512 --rotate --cache-type q8_0
expect 2 '--rotate .*token by token' run -m x.gguf --ctx-budget 512 --rotate --policy keydiff
expect 2 '--rotate .*token by token' run -m x.gguf --ctx-budget 512 --rotate --interval 32
expect 2 '--cache own .*leave it out for this policy' run -m x.gguf --ctx-budget 512 --policy cam --cache own
expect 2 '--cache own .*leave it out for this policy' run -m x.gguf --ctx-budget 512 --policy pyramidkv --cache own
expect 2 'hosted cache takes f16 rows' run -m x.gguf --ctx-budget 512 --policy squeezeattention --cache-type q8_0
expect 2 'hosted cache keeps keys at their positions' run -m x.gguf --ctx-budget 512 --cache hosted --rotate
expect 2 '--cache hosted .*token by token' run -m x.gguf --ctx-budget 512 --cache hosted --policy keydiff
expect 2 'hosted cache takes f16 rows' chat -m x.gguf --cache hosted --cache-type q8_0
expect 2 "--cache 'ours' is not one of" chat -m x.gguf --cache ours
expect 2 "'cam' goes token by token: leave --interval out" run -m x.gguf --ctx-budget 512 --policy cam --interval 16
expect 2 "no policy 'tovaa'.*no streaming policy 'tovaa'; the nearest is 'tova'" run -m x.gguf --ctx-budget 512 --policy tovaa
expect 2 "no parameter 'gracee'; the nearest is 'grace'$" run -m x.gguf --ctx-budget 512 --policy chunkkv:gracee=9
expect 2 "no parameter 'kernel'.*--interval N" run -m x.gguf --ctx-budget 512 --policy snapkv:kernel=5
expect 2 "no parameter 'grace'" run -m x.gguf --ctx-budget 512 --policy chunkkv:grace=9 --interval 16
expect 2 'no JSON form' run -m x.gguf --ctx-budget 512 --dry-run --json
expect 2 'no model given' chat
expect 2 '--keep is an option of chunkkv run, not of chunkkv chat' chat -m x.gguf --keep 5%
expect 2 "'adakv' is for a cache that is compressed once" chat -m x.gguf --policy adakv
expect 2 'exclude' chat -m x.gguf --chat-template chatml --no-chat-template
expect 2 'standard input is what you say' chat -m x.gguf -f -
expect 1 'cannot open the model .*No such file' chat -m missing.gguf
expect 2 '--pin is an option of chunkkv chat, not of chunkkv run' run -m x.gguf --pin 'The answer is 42.'
expect 2 'question-agnostic .*-f' run -m x.gguf -p 'Why?' --question-agnostic
expect 2 'several questions .*-f' run -m x.gguf -p 'Why?' -p 'How?'
expect 2 'question with -p' run -m x.gguf -f - --question-agnostic
expect 2 "no policy 'nonsense'; the nearest is" policies nonsense
expect 2 "nearest is 'chunkkv'" policies chunkvk
expect 2 "not 'snapkv' too" policies chunkkv snapkv
expect 2 'grace=99999 is out of range: 0 to 65536' policies chunkkv:grace=99999
expect 2 "with --ctx-budget: there is no streaming policy 'camm'; the nearest is 'cam'" policies camm
expect 2 '^chunkkv: merge=sim_weighted needs chunk=1' policies cam:chunk=2
expect 2 "^chunkkv: kernel=4 must be odd" policies adakv:kernel=4
expect 2 "^chunkkv: there is no codec 'kivi3'; the nearest is 'kivi2'$" policies chunkkv+kivi3
expect 2 "^chunkkv: bits=9 is out of range: 1 to 8$" policies kivi:bits=9
expect 2 "^chunkkv: 'merge' goes behind a policy" policies merge
expect 2 '^chunkkv: nothing stands behind a \+' policies chunkkv+
expect 2 'codecs and merge go with one-shot policies' run -m x.gguf --ctx-budget 512 --policy chunkkv+kivi4
expect 2 'codecs and merge go with --keep, not with --ctx-budget' run -m x.gguf --ctx-budget 512 --policy kivi2
expect 2 'codecs and merge go with --keep' run -m x.gguf --ctx-budget 512 --policy chunkkv+merge --interval 16
expect 2 'codecs and merge go with one-shot policies' chat -m x.gguf --policy chunkkv+kivi4
expect 2 "no codec 'kivi5'; the nearest is 'kivi2'" run -m x.gguf --policy chunkkv+kivi5

"$chunkkv" nonsense >out 2>err
[ $? = 2 ] && grep -q "no command 'nonsense'" err && n_passed=$((n_passed + 1)) || n_failed=$((n_failed + 1))
"$chunkkv" >out 2>err
[ $? = 2 ] && [ ! -s out ] && n_passed=$((n_passed + 1)) || n_failed=$((n_failed + 1))
for words in --help 'run --help' 'chat --help' 'policies --help' --version policies 'policies adakv' 'policies chunkkv:chunker=line'; do
	# shellcheck disable=SC2086 # a list of words
	if "$chunkkv" $words >out 2>err && [ -s out ] && [ ! -s err ]; then
		n_passed=$((n_passed + 1))
	else
		n_failed=$((n_failed + 1))
		echo "FAILED: chunkkv $words"
	fi
done

# shows PATTERN ARGUMENT ...: what is printed has such a line.
shows() {
	pattern=$1
	shift
	if "$chunkkv" "$@" 2>err | grep -qE -- "$pattern" && [ ! -s err ]; then
		n_passed=$((n_passed + 1))
	else
		n_failed=$((n_failed + 1))
		printf 'FAILED: chunkkv %s does not show: %s\n' "$*" "$pattern"
	fi
}

shows '^policies that compress once, or in blocks' policies
shows '^policies that go token by token, with --ctx-budget' policies
shows '^  cam  ' policies
shows '^ +scorer=attn_mass chunk=8 ' policies
shows '^scorers with --ctx-budget' policies
shows '^parameters with --ctx-budget' policies
shows '^chunkkv, as a one-shot policy: ' policies chunkkv
shows '^chunkkv, token by token: ' policies chunkkv
shows '^  chunk=10 ' policies chunkkv
shows '^  chunk=8 ' policies chunkkv
shows '^  grace=9 ' policies chunkkv:grace=9
shows "^not as a one-shot policy: there is no parameter 'grace'" policies chunkkv:grace=9
shows "^not token by token: there is no streaming policy 'adakv'" policies adakv
shows '^cam, token by token: ' policies cam
shows '^ +needs: a cache of our own' policies cam
shows 'not with --ctx-budget, only in ckv_stream: ' policies chunkkv:mode=reference
shows "not with --ctx-budget, only in ckv_stream: policy 'tova'" policies tova:mode=reference
shows '^  layers=pyramid ' policies pyramidkv:beta=2.5
shows '^codecs and merging' policies
shows '^  kivi8  ' policies
shows '^  merge  ' policies
shows '^parameters of codecs and merging' policies
shows '^ +-1 to 1; read by merge' policies
shows '^ +1 to 8; read by codec kivi2, kivi4, kivi8, kivi$' policies
shows '^ +needs: a cache of our own' policies kivi2
shows '^  bits=2 ' policies kivi2
shows '^kivi:bits=3, as a one-shot policy: ' policies kivi:bits=3
shows '^  bits=3 ' policies kivi:bits=3
shows '^parameters of merge' policies chunkkv+merge:threshold=-0.5+kivi4:group=64
shows '^  threshold=-0.5 ' policies chunkkv+merge:threshold=-0.5+kivi4:group=64
shows '^  group=64 ' policies chunkkv+merge:threshold=-0.5+kivi4:group=64
shows '^  chunk=10 ' policies chunkkv+merge:threshold=-0.5+kivi4:group=64
shows "^not token by token: '\+kivi4': codecs and merge go with one-shot policies" policies chunkkv+kivi4

if [ -n "$model" ]; then
	head -c 5000000 "$model" >short.gguf
	expect 1 'could not be loaded' run -m short.gguf -p 'Why?'
	expect 1 'cannot open .missing.txt' run -m "$model" -f missing.txt -p 'Why?'
	expect 1 'not UTF-8.*byte 6' run -m "$model" -f latin1.txt -p 'Why?'
	expect 1 'zero byte' run -m "$model" -f zero.txt -p 'Why?'
	expect 1 'prompt is empty' run -m "$model" -f blank.txt -p ' '
	expect 1 'prompt is empty' run -m "$model"
	expect 1 'does not fit --ctx 512.*--ctx' run -m "$model" -f "$document" -p 'Why?' --ctx 512
	expect 1 'document is empty' run -m "$model" -f blank.txt -p 'Why?' --question-agnostic
	expect 1 'question 2 is empty' run -m "$model" -f "$document" -p 'Why?' -p ' '
	expect 1 'question 1 is empty' run -m "$model" -f "$document" --question-agnostic
	expect 1 'does not fit --ctx 512.*--ctx' run -m "$model" -f "$document" -p 'Why?' -p 'How?' --ctx 512
	expect 1 'needs a length' run -m "$model" --dry-run
	expect 1 'no room for a prompt' run -m "$model" --dry-run --ctx-budget 512 --ctx 100
	expect 1 'do not fit --ctx 512.*--ctx [0-9]' run -m "$model" -f "$document" -p 'Why?' --dry-run --ctx-budget 256 --ctx 512
	expect 1 '--ctx 512 can.t hold.*--ctx [0-9]' run -m "$model" -f "$document" -p 'Why?' --compare --ctx-budget 256 --ctx 512
	expect 1 'budget of 20 rows is too small.* need [0-9]' run -m "$model" -f "$document" -p 'Why?' --ctx-budget 20
	expect 1 "'adakv' can't be used in blocks: its heads" run -m "$model" -f "$document" -p 'Why?' --ctx-budget 512 --policy adakv
	expect 1 "'pyramidkv' can't be used in blocks: its layers" run -m "$model" -p 'Why?' --ctx-budget 512 --policy pyramidkv --interval 64
	"$chunkkv" run -m "$model" -p 'Why?' --chat-template nonsense >out 2>err
	if [ $? = 1 ] && [ ! -s out ] && grep -q 'chatml' err; then n_passed=$((n_passed + 1)); else n_failed=$((n_failed + 1)) && echo "FAILED: unknown template"; fi
fi

written=$(find . -type f ! -name out ! -name err ! -name '*.gguf' ! -name '*.txt')
[ -z "$written" ] || { n_failed=$((n_failed + 1)); echo "FAILED: something was written: $written"; }
echo "$n_passed passed, $n_failed failed"
[ "$n_failed" = 0 ]
