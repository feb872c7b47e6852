#!/usr/bin/env bash
# Checks that programs and tests ask for the same features of all crates: else Cargo compiles these crates twice.
#
#   tests/features/check.sh EDGES FLAG...   with the kinds of dependencies that a command needs, and its flags that select
#                                           packages
set -euo pipefail
cd "$(dirname "$0")/../.."

# The crates of registries, each with its features. The packages of this workspace have a path.
crates() {
    "${CARGO:-cargo}" tree --locked --prefix none --format '{p} {f}' "$@" | sed 's/ (\*)$//' | grep -v ' (/' | sort -u
}

edges=$1
shift
alone=$(comm -23 <(crates --edges "$edges" "$@") <(crates --edges normal,build,dev --workspace))
[ -z "$alone" ] || {
    echo "All tests together have other features of these crates than $*: add them to tests/features/Cargo.toml" >&2
    echo "$alone" >&2
    exit 1
}
