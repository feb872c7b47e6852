#!/usr/bin/env bash
# Builds what `make demo` needs: the programs in Go at the same time as those in Rust. Meanwhile it plays a recorded run.
#
#   tests/demo/prepare.sh RECORDING RIG COMMAND...   the command builds the programs in Rust, among them RIG
set -uo pipefail
cd "$(dirname "$0")/../.."
recording=$1 rig=$2
shift 2
# A build of which everything is there ends sooner, and needs no recorded run.
quick=5
work=$(mktemp -d)
jobs=()
# Bash ends background jobs of a script neither on a signal nor at its end.
trap 'for job in "${jobs[@]}"; do kill -- "-$job" 2>/dev/null; done; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP

build() {
    tests/rig/packages.sh --without-helm >"$work/Go" 2>&1 &
    local go=$!
    "$@" >"$work/Rust" 2>&1 || { cat "$work/Rust" >&2; kill "$go"; return 1; }
    # What failed, fails again with a clear message.
    wait "$go"
    "$rig" tools --nodes --without-helm >"$work/Go" 2>&1 || { cat "$work/Go" >&2; return 1; }
    touch "$work/built"
}

progress() {
    while sleep 30; do
        for language in Rust Go; do
            [ ! -s "$work/$language" ] || echo "building for $SECONDS s: $language: $(tail -n 1 "$work/$language" | cut -c 1-90)"
        done
    done
}

echo "Builds first what is missing here. On 2 cores: the programs in Rust about 9 minutes, Karmada and Kubernetes in Go about"
echo "12 minutes, both together about 12. Then the demonstration takes about 8."
set -m
build "$@" &
jobs+=($!)
builder=$!
progress &
jobs+=($!)
(
    sleep "$quick"
    [ -e "$recording" ] || exit
    echo "Meanwhile, a RECORDED run with shorter pauses. Your own starts when everything is built."
    tests/demo/cast.sh play 'recorded | ' <"$recording"
    echo "The recorded run ends here. The build goes on."
) &
jobs+=($!)
set +m
disown -a
code=0
while kill -0 "$builder" 2>/dev/null; do sleep 0.2; done
[ -e "$work/built" ] || code=1
[ "$code" != 0 ] || [ "$SECONDS" -lt "$quick" ] || echo "Everything is built after $SECONDS s. This is YOUR run:"
exit "$code"
