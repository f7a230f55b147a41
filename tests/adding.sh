#!/bin/sh
# Follows docs/adding-a-scorer.md to the letter in a copy of the source: its code blocks go where the page says, and the test that it
# brings must pass, as must the listing know the scorer.
#   adding.sh SOURCE WORK
set -eu
source=$1 work=$2
rm -rf "$work"
mkdir -p "$work"
cp -R "$source/CMakeLists.txt" "$source/cmake" "$source/include" "$source/src" "$source/examples" "$source/tests" "$work/"
page=$source/docs/adding-a-scorer.md

# The one fenced block with this word behind its fence.
block() {
	awk -v fence="\`\`\`$1" '$0 == fence { on = 1; n++; next } /^```/ { on = 0 } on; END { exit n != 1 }' "$page"
}

block c >"$work/src/score/scorer_value_norm.c"
block registry >>"$work/src/core/registry.def"
line=$(block cmake)
awk -v line="$line" '{ print } $1 == "src/score/scorer_tova.c" { print line; found = 1 } END { exit !found }' \
	"$source/CMakeLists.txt" >"$work/CMakeLists.txt"
block test >"$work/tests/unit/test_value_norm.c"
sed 's/^foreach(name /foreach(name value_norm /' "$source/tests/unit/CMakeLists.txt" >"$work/tests/unit/CMakeLists.txt"
block methods | grep -q '^| value_norm | .* | .* |$'

cmake -S "$work" -B "$work/build" -DCHUNKKV_LLAMA=OFF -DCMAKE_BUILD_TYPE=Release >"$work/log" 2>&1 &&
	cmake --build "$work/build" --target test_value_norm >>"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
! grep -i warning "$work/log"
ctest --test-dir "$work/build" -R '^unit.value_norm$' --no-tests=error >>"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
rm -rf "$work"
