#!/bin/sh
# Proves that ckv-vectors notices: copies a case, damages it in one way, and expects the right complaint and exit status.
# usage: catches.sh PROGRAM VECTORS WORK DAMAGE     WORK is an own folder for copies
set -eu
export LC_ALL=C
program=$1 vectors=$2 work=$3/$4 damage=$4

rm -rf "$work"
mkdir -p "$work"

copy() {
	cp -R "$vectors/kvpress/$1" "$work/case"
	chmod -R u+w "$work/case"
	cd "$work/case"
}

# patch FILE OFFSET BYTES: overwrites, BYTES as printf takes them
patch() {
	[ -f "$1" ] # dd would make it
	# shellcheck disable=SC2059
	printf "$3" | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null
}

# byte FILE OFFSET: its value
byte() {
	od -An -tu1 -j "$2" -N 1 "$1" | tr -d ' '
}

# The data of these files starts at byte 128.
layer=s15_h6k2d32_short target=$work/case
status=1 last='[1-9][0-9]* passed, 1 failed, [0-9]* skipped' complaint='^FAILED .*'
case $damage in
nothing)
	copy $layer
	status=0 last='[1-9][0-9]* passed, 0 failed, [0-9]* skipped' complaint=
	;;
position) # 5 becomes 4
	copy $layer
	patch kept_snapkv_w4_0.5.npy 128 '\004'
	complaint='^FAILED .* snapkv_w4 ratio 0.5 .*list 0, entry 0: 4 expected, 5 found'
	;;
chunk) # 10 becomes 9
	copy $layer
	patch kept_chunkkv_snapkv_w4_c10_0.9.npy 128 '\011'
	complaint='^FAILED .* chunkkv_snapkv_w4_c10 ratio 0.9 .*list 0, entry 0: 9 expected, 10 found'
	;;
tie) # a token of the window becomes token 0, which is worth less
	copy $layer
	patch kept_snapkv_w4_0.9.npy 128 '\000'
	complaint='^FAILED .* snapkv_w4 ratio 0.9 .*tied: kept scores differ'
	;;
entropy) # 1 becomes 0
	copy $layer
	patch kept_eg_tova_c10_l4_0.5.npy 128 '\000'
	complaint='^FAILED .* eg_tova_c10_l4 ratio 0.5 (entropy_gate of tova): .*entry 0: 0 expected, 1 found'
	;;
entropy-tie) # one more token than the budget
	copy $layer
	sed 's/(1,)/(2,)/' kept_eg_snapkv_w4_c10_l4_0.95.npy >new && printf '\016\0\0\0' >>new
	patch new 128 '\000'
	mv new kept_eg_snapkv_w4_c10_l4_0.95.npy
	sed '/kept_eg_snapkv_w4_c10_l4_0.95.npy/s/"n_kept": 1/"n_kept": 2/' case.json >new && mv new case.json
	complaint='^FAILED .* eg_snapkv_w4_c10_l4 ratio 0.95 .*kept counts differ: list 0: 2 expected, 1 found'
	;;
ragged) # 8 becomes 7
	copy $layer
	patch kept_adakv_snapkv_w4_0.5.npy 128 '\007'
	complaint='^FAILED .* adakv_snapkv_w4 ratio 0.5 .*list 0, entry 0: 7 expected, 8 found'
	;;
ragged-tie) # a token of the window becomes token 0, which is worth less
	copy $layer
	patch kept_adakv_snapkv_w4_0.7.npy 128 '\000'
	complaint='^FAILED .* adakv_snapkv_w4 ratio 0.7 .*tied: kept scores differ'
	;;
ragged-count)
	copy $layer
	sed '/kept_adakv_snapkv_w4_0.5.npy/s/"n_kept": 7/"n_kept": 6/' case.json >new && mv new case.json
	complaint='^FAILED .* adakv_snapkv_w4 ratio 0.5 .*14 stored positions are not 6 for each of 2 heads'
	;;
offsets) # the first head's list ends one later
	copy $layer
	patch offsets_adakv_snapkv_w4_0.5.npy 132 '\006'
	complaint='^FAILED .* adakv_snapkv_w4 ratio 0.5 .*list 0, entry 5: position 1 does not ascend'
	;;
offsets-end)
	copy $layer
	patch offsets_adakv_snapkv_w4_0.5.npy 136 '\015'
	complaint='^FAILED .* adakv_snapkv_w4 ratio 0.5 .*the offsets of 2 lists do not lead from 0 to 14'
	;;
descending)
	copy $layer
	patch kept_snapkv_w4_0.5.npy 128 '\010'
	complaint='^FAILED .* snapkv_w4 ratio 0.5 .*does not ascend'
	;;
score) # by 0.05 to 0.1 percent
	copy $layer
	patch scores_snapkv_w4.npy 129 "\\$(printf %o $(($(byte scores_snapkv_w4.npy 129) ^ 32)))"
	complaint='^FAILED .* snapkv_w4 (scores of snapkv_w4): scores differ: head 0, token 0:'
	;;
ea-score) # of token 4
	copy $layer
	patch scores_ea.npy 145 "\\$(printf %o $(($(byte scores_ea.npy 145) ^ 32)))"
	complaint='^FAILED .* ea (scores of ea): scores differ: head 0, token 4:'
	;;
streaming-score) # of one ratio: 0 becomes 1
	copy $layer
	patch scores_streaming_0.5.npy 144 '\000\000\200\077'
	complaint='^FAILED .* streaming ratio 0.5 (scores of streaming): scores differ: head 0, token 4: 1 expected, 0 found'
	;;
query) # one number of a query behind the sinks becomes 1
	copy $layer
	patch queries_prerope.npy 640 '\000\000\200\077'
	last='[1-9][0-9]* passed, [1-9][0-9]* failed, [0-9]* skipped'
	complaint='^FAILED .* ea (moments of queries): means differ'
	;;
sink-query) # of the last sink: no part of the moments, but it attends
	copy $layer
	patch queries_prerope.npy 512 '\000\000\000\101'
	last='[1-9][0-9]* passed, [23] failed, [0-9]* skipped'
	complaint='^FAILED .* observed (sums of attention): sums differ: head 0, token'
	;;
frequency) # 1 becomes 2
	copy $layer
	patch inv_freq.npy 128 '\000\000\000\100'
	last='[1-9][0-9]* passed, [1-9][0-9]* failed, [0-9]* skipped'
	complaint='^FAILED .* ea (moments of queries): means differ'
	;;
attention) # 1 becomes 0.5
	copy $layer
	patch attentions.npy 128 '\000\000\000\077'
	complaint='^FAILED .* observed (sums of attention): sums differ: head 0, token'
	;;
covariance)
	copy $layer
	patch ea_cov.npy 128 '\000\000\200\077'
	complaint='^FAILED .* ea (moments of queries): covariances differ'
	;;
no-queries) # what hangs on them is skipped, and says so
	copy $layer
	sed '/"queries_prerope": {/d' case.json >new && mv new case.json
	status=0 last='[1-9][0-9]* passed, 0 failed, [1-9][0-9]* skipped' complaint='chunk of ea: no queries_prerope'
	;;
setting) # the library has no choice of it
	copy $layer
	sed '/"ea": {/,/}/s/"use_vnorm": true/"use_vnorm": false/' case.json >new && mv new case.json
	complaint="^FAILED .* ea (topk of ea): the press has 'use_vnorm' other than 1"
	;;
parameter)
	copy $layer
	sed '/"lagkv": {/,/}/s/"lag_size"/"lag_length"/' case.json >new && mv new case.json
	complaint="^FAILED .* lagkv (topk of lagkv): the press has a parameter 'lag_length' that the replay does not know"
	;;
safeguard)
	copy $layer
	sed 's/"alpha_safeguard": 0.2/"alpha_safeguard": 1/' case.json >new && mv new case.json
	complaint='^FAILED .* adakv_snapkv_w4 ratio 0.5 .*kept positions differ'
	;;
key) # one number of one key becomes 1
	copy $layer
	patch keys.npy 128 '\000\000\200\077'
	last='[1-9][0-9]* passed, [1-9][0-9]* failed, [0-9]* skipped'
	complaint='^FAILED .* snapkv_w4 (scores of snapkv_w4): scores differ'
	;;
short)
	copy $layer
	head -c 1000 keys.npy >part && mv part keys.npy
	last='0 passed, 1 failed, 0 skipped' complaint='^FAILED .*keys.npy: the shape asks for [0-9]* bytes of data, the file has 872'
	;;
long)
	copy $layer
	printf x >>kept_snapkv_w4_0.5.npy
	complaint='^FAILED .* ratio 0.5 .*kept_snapkv_w4_0.5.npy: the shape asks for 56 bytes of data, the file has 57'
	;;
absent)
	copy $layer
	rm kept_snapkv_w4_0.5.npy
	complaint='^FAILED .* ratio 0.5 .*kept_snapkv_w4_0.5.npy: No such file'
	;;
order)
	copy $layer
	sed 's/False/True /' keys.npy >new && mv new keys.npy
	last='0 passed, 1 failed, 0 skipped' complaint='^FAILED .*keys.npy: the array is not in C order'
	;;
type)
	copy $layer
	sed 's/<f4/>f4/' keys.npy >new && mv new keys.npy
	last='0 passed, 1 failed, 0 skipped' complaint='^FAILED .*keys.npy: the type is none of'
	;;
count)
	copy $layer
	sed '1,/"n_kept": 7/s/"n_kept": 7/"n_kept": 6/' case.json >new && mv new case.json
	complaint='^FAILED .* ratio 0.5 .*of the shape that case.json tells'
	;;
json)
	copy $layer
	head -c 1000 case.json >part && mv part case.json
	last='0 passed, 1 failed, 0 skipped' complaint='^FAILED .*case.json, line'
	;;
table) # of 1 token, 1 is kept
	copy tables
	patch n_kept_0.9.npy 128 '\002'
	complaint='^FAILED .* ratio 0.9 (table n_kept): of 1, 2 are expected to be kept, 1 found'
	;;
chunk-table)
	copy tables
	patch n_chunks_kept_0.5.npy 128 '\002'
	complaint='^FAILED .* ratio 0.5 (table n_chunks_kept): of 1, 2 are expected to be kept, 1 found'
	;;
pyramid) # 423 becomes 422
	copy tables
	patch pyramid_w32_0.5.npy 1220 '\246'
	complaint='^FAILED .* ratio 0.5 (table pyramid): of 500, 422 are expected to be kept in layer 3, 423 found'
	;;
unknown-kind) # nothing failed, but nothing passed either
	copy $layer
	sed 's/"kind": "layer"/"kind": "other"/' case.json >new && mv new case.json
	last='0 passed, 0 failed, 1 skipped' complaint=
	;;
no-case)
	mkdir "$work/case"
	last='0 passed, 1 failed, 0 skipped' complaint='^FAILED .*there is no case.json'
	;;
no-folder)
	last='0 passed, 1 failed, 0 skipped' complaint='^FAILED .*cannot be read: No such file'
	;;
usage)
	target='' status=2 last='DIR: .*' complaint='^usage: ckv-vectors DIR'
	;;
*)
	echo "catches.sh: there is no damage '$damage'" >&2
	exit 2
	;;
esac

found=0
"$program" ${target:+"$target"} >"$work/output" 2>&1 || found=$?
if [ "$found" -ne "$status" ] || ! tail -n 1 "$work/output" | grep -qx "$last" || ! grep -q "$complaint" "$work/output"; then
	cat "$work/output"
	echo "expected: exit status $status (found $found), a line '$complaint', the last line '$last'" >&2
	exit 1
fi
