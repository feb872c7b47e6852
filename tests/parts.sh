#!/usr/bin/env bash
# Runs targets of the Makefile, and notes how long each took.
#
#   tests/parts.sh LANE...   a lane is a list of targets in one word, "test-gitops test-zookeeper", which run one after the
#                            other; lanes run at the same time, each nicer to the others than the one before it. The
#                            output of a target is printed when it ends; that of a single lane as it comes. All lanes run
#                            to their ends, even if one fails
#   tests/parts.sh --table   prints what has been noted, and what failed
#
# The notes are in the file $MCZK_PARTS, a line for each target: seconds, seconds of the processors, name. Checks that cannot run
# are in the file $MCZK_SKIPPED. Their number is printed after the table; without that file, after all lanes.
set -uo pipefail
notes=${MCZK_PARTS:-/dev/null}
reasons=${MCZK_PARTS:+$MCZK_PARTS.failed}
reasons=${reasons:-/dev/null}

# Runs a target and notes its time. Daemons that outlive their parents are not in the seconds of the processors.
part() {
    local code=0 TIMEFORMAT='%0R %0U %0S' took
    exec 3>&1
    took=$({ time env --default-signal=INT "${MAKE:-make}" --no-print-directory "$1" >&3 2>&4; } 2>&1) || code=$?
    read -r real user system <<<"$took"
    echo "$real $((user + system)) $1$([ "$code" = 0 ] || echo ' (failed)')" >>"$notes"
    return "$code"
}

# Runs the targets of a lane, until one fails. The output of each goes to a file, which is printed at its end.
lane() {
    local target code=0
    for target in $1; do
        part "$target" >"$work/$target" 2>&1 4>&1 || code=$?
        # A line of another lane must not come between.
        flock "$work/print" sh -c 'echo "── make $0"; cat "$1"' "$target" "$work/$target"
        [ "$code" = 0 ] || failures "$target" "$work/$target" >>"$reasons"
        rm -f "$work/$target"
        [ "$code" = 0 ] || return "$code"
    done
}

# What failed in the output of a target: names of tests, and the first lines of what they say.
failures() {
    grep -E -A12 'FAILED|panicked at|^error' "$2" | grep -v '^--$' | head -n 90 | sed "s/^/$1: /"
}

# Names the targets that run, every minute.
tick() {
    local begun=$SECONDS
    while sleep 60 >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do
        echo "running for $(((SECONDS - begun) / 60)) min: $(cd "$work" && ls -m -I print)" >&2
    done
}

together() {
    local failed=0 lane lanes=()
    work=$(mktemp -d)
    touch "$work/print"
    tick &
    ticker=$!
    disown "$ticker"
    trap 'kill "$ticker" 2>/dev/null; rm -rf "$work"' EXIT
    if [ -z "${MCZK_SKIPPED:-}" ]; then
        export MCZK_SKIPPED=$work/.skipped
        trap 'kill "$ticker" 2>/dev/null; skipped; rm -rf "$work"' EXIT
    fi
    # Each lane has a process group of its own, so that a signal reaches all of it.
    set -m
    for lane in "$@"; do
        { renice -n $((5 * ${#lanes[@]})) "$BASHPID" >/dev/null; lane "$lane"; } &
        lanes+=($!)
    done
    trap 'for lane in "${lanes[@]}"; do kill -INT -- "-$lane" 2>/dev/null; done' INT TERM HUP
    for lane in "${lanes[@]}"; do
        # A signal ends `wait` before the lane has ended.
        while kill -0 "$lane" 2>/dev/null; do wait "$lane"; done
        wait "$lane" || failed=1
    done
    return "$failed"
}

# The number of the checks that were skipped, and their names.
skipped() {
    local names=()
    [ ! -e "${MCZK_SKIPPED:-}" ] || mapfile -t names < <(sort "$MCZK_SKIPPED" | uniq)
    printf 'checks skipped: %d%s\n' "${#names[@]}" "$(printf ', %s' "${names[@]}" | sed 's/^, $//; s/^,/:/')"
}

table() {
    [ -s "$notes" ] || return 0
    printf '%-24s %8s %12s\n' PART TIME PROCESSORS
    awk '{ name = $3 " " $4; printf "%-24s %5d:%02d %9d:%02d\n", name, $1 / 60, $1 % 60, $2 / 60, $2 % 60
           all += $2 } END { printf "%-24s %8s %9d:%02d\n", "all", "", all / 60, all % 60 }' "$notes"
    [ ! -s "$reasons" ] || cut -c1-300 "$reasons"
}

case $# in
0) sed -n '2,12s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
1)
    if [ "$1" = --table ]; then table && skipped; exit; fi
    for target in $1; do part "$target" 4>&2 || exit; done
    ;;
*) together "$@" ;;
esac
