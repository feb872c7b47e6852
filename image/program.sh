#!/bin/sh
# Builds mczk without shared libraries, and prints the path of the program.
#
#   image/program.sh amd64|arm64|native [FLAG...]   with flags for cargo
#
# Equal sources, compiler and C library give an equal program, in whatever folders they lie.
set -eu
cd "$(dirname "$0")/.."
host=$(rustc -vV | sed -n 's/^host: //p')
case $1 in
amd64) target=x86_64-unknown-linux-gnu ;;
arm64) target=aarch64-unknown-linux-gnu ;;
native) target=$host ;;
*) echo "unknown architecture $1: amd64, arm64 or native" >&2 && exit 1 ;;
esac
shift
if [ "$target" != "$host" ]; then
    name=$(echo "$target" | tr - _)
    compiler=$(echo "$target" | sed 's/-unknown//')-gcc
    export "CC_$name=$compiler" "CARGO_TARGET_$(echo "$name" | tr a-z A-Z)_LINKER=$compiler"
fi
# The program names files of its sources, in messages of panics.
rust='-C target-feature=+crt-static'
c=
for map in "$PWD=/mczk" "${CARGO_HOME:-$HOME/.cargo}=/cargo" "$CARGO_TARGET_DIR=/target"; do
    rust="$rust --remap-path-prefix=$map"
    c="$c -ffile-prefix-map=$map"
done
# For both architectures: Cargo builds again what runs on this machine if the flags for it change from one to the other.
export RUSTFLAGS="$rust" "CFLAGS_x86_64_unknown_linux_gnu=$c" "CFLAGS_aarch64_unknown_linux_gnu=$c"
# The target is named, even if it is this machine's: else Cargo would build its own helpers static too, and fail.
tests/progress.sh "building mczk, optimised and static, for $target" \
    "${CARGO:-cargo}" build --locked --release --target "$target" --package mczk --bin mczk "$@" >&2
echo "$CARGO_TARGET_DIR/$target/release/mczk"
