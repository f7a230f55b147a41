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
stored-scores) # the last kept token, 12, becomes 14
	copy $layer
	patch kept_knorm_0.5.npy 152 '\016'
	complaint='^FAILED .* knorm ratio 0.5 (topk of the stored scores of knorm): .*14 expected, 12 found'
	;;
tie) # a token of the window becomes token 0, which is worth less
	copy $layer
	patch kept_snapkv_w4_0.9.npy 128 '\000'
	complaint='^FAILED .* snapkv_w4 ratio 0.9 .*tied: kept scores differ'
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
