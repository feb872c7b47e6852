#!/bin/sh
# Runs a command and shows how long it has been running; keeps its exit code.
#
#   tests/progress.sh LABEL COMMAND...      hides the output of the command, and prints it if the command fails
#   tests/progress.sh -o LABEL COMMAND...   shows the output
#
# It prints the elapsed time and the last line of a hidden output: on a terminal in place every second, else as a line every
# PROGRESS_SECONDS, 15 by default. It prints to standard error.
set -u
shown=
if [ "$1" = -o ]; then
    shown=1
    shift
fi
label=$1
shift
every=${PROGRESS_SECONDS:-15}
terminal=
[ -n "$shown" ] || [ ! -t 2 ] || terminal=1
begun=$(date +%s)
log=$(mktemp) || exit 1

elapsed() {
    echo $(($(date +%s) - begun))
}

# Ends with this script, whatever ends it.
tick() {
    count=0
    while sleep 1 >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do
        count=$((count + 1))
        [ -n "$terminal" ] || [ $((count % every)) = 0 ] || continue
        last=$(tail -n 1 "$log" 2>/dev/null | tr -d '\r' | sed 's/^ *//; s/ (.*//' | cut -c 1-50)
        line="$label ... $(elapsed) s${last:+  $last}"
        if [ -n "$terminal" ]; then
            printf '\r\033[K%s' "$line" >&2
        else
            echo "$line" >&2
        fi
    done
}

tick &
ticker=$!
trap 'rm -f "$log"; kill "$ticker" 2>/dev/null' EXIT
# The shell makes commands in the background ignore interrupts; `env` restores the default, so that Ctrl-C ends the command.
if [ -n "$shown" ]; then
    env --default-signal=INT "$@" &
else
    env --default-signal=INT "$@" >"$log" 2>&1 &
fi
command=$!
trap 'kill "$command" 2>/dev/null' INT TERM HUP
# A signal ends `wait` before the command has ended.
wait "$command"
code=$?
while kill -0 "$command" 2>/dev/null; do
    wait "$command"
    code=$?
done
kill "$ticker" 2>/dev/null
[ -z "$terminal" ] || printf '\r\033[K' >&2
if [ "$code" != 0 ]; then
    cat "$log" >&2
    echo "$label: failed after $(elapsed) s" >&2
elif [ "$(elapsed)" -ge 2 ]; then
    echo "$label: $(elapsed) s" >&2
fi
exit "$code"
