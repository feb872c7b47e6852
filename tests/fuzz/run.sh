#!/bin/sh
# Runs fuzz targets, two at a time, and prints how many inputs each has executed.
#
#   tests/fuzz/run.sh SECONDS [TARGET...]   without targets: all
#
# What a target finds that the corpus lacks goes to $MCZK_CACHE/fuzz/TARGET, and an input that fails to
# $MCZK_CACHE/fuzz/failures. mczk has no unsafe code, so no sanitizer is needed, and the stable compiler is enough.
set -eu
cd "$(dirname "$0")/../.."
seconds=$1 found=$MCZK_CACHE/fuzz
shift
mkdir -p "$found/failures" "$found/logs"
export CARGO_TARGET_DIR="$MCZK_CACHE/target/fuzz"
tests/progress.sh "building the fuzz targets" "${CARGO:-cargo}" fuzz build --fuzz-dir tests/fuzz --sanitizer none --release >&2
[ $# -gt 0 ] || set -- $("${CARGO:-cargo}" fuzz list --fuzz-dir tests/fuzz)
host=$(rustc -vV | sed -n 's/^host: //p')
failed=
one() {
    mkdir -p "$found/$1"
    "$CARGO_TARGET_DIR/$host/release/$1" "$found/$1" "tests/fuzz/corpus/$1" -dict=tests/fuzz/words.dict \
        -max_total_time="$seconds" -max_len=16384 -rss_limit_mb=2048 -timeout=10 -print_final_stats=1 \
        -artifact_prefix="$found/failures/$1-" >"$found/logs/$1" 2>&1
}
echo "fuzzing $# targets, $seconds s each, two at a time" >&2
printf '%-24s %14s %10s\n' target executions inputs
while [ $# -gt 0 ]; do
    one "$1" & first=$!
    if [ $# -gt 1 ]; then one "$2" & second=$!; else second=; fi
    wait "$first" || failed="$failed $1"
    [ -z "$second" ] || wait "$second" || failed="$failed $2"
    for target in "$1" ${2:-}; do
        count=$(sed -n 's/^stat::number_of_executed_units: *//p' "$found/logs/$target")
        printf '%-24s %14s %10s\n' "$target" "${count:--}" "$(ls "$found/$target" | wc -l)"
    done
    shift
    [ $# -eq 0 ] || shift
done
[ -z "$failed" ] || {
    echo "a defect was found by:$failed. The inputs are in $found/failures, and the messages in $found/logs" >&2
    exit 1
}
