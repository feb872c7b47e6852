#!/usr/bin/env bash
# Keeps what Cargo has compiled of other people's crates, so that a new checkout on this machine compiles only its own. The
# packages of the workspace are left out: Cargo gives the same names to what it builds of two checkouts.
#
#   tests/dependencies.sh restore   fills the target folder if it is new
#   tests/dependencies.sh keep      keeps what the target folder has, unless this has been done
set -euo pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
folder=$MCZK_CACHE/dependencies
target=$CARGO_TARGET_DIR/debug
# The number of sets that stay: the lock file of a branch and that of another.
kept=2

# A hash of all that decides what Cargo compiles: versions, features, compiler and flags.
key() {
    {
        find Cargo.lock Cargo.toml src tests benches -name Cargo.toml -o -path Cargo.lock | sort | xargs cat
        # A target may need neither of them.
        rustc -vV || true
        cc --version || true
        env | grep -E '^(RUSTFLAGS|CARGO_(BUILD|PROFILE|ENCODED)[A-Z_]*|CFLAGS|CXXFLAGS|CC|CXX)=' | sort || true
    } 2>/dev/null | sha256sum | cut -c 1-16
}

# The hashes in the names of what the last builds used of registries' crates. All of it is built, so this takes seconds.
hashes() {
    {
        "$cargo" test --workspace --no-run --quiet --message-format json
        "$cargo" clippy --workspace --all-targets --quiet --message-format json
    } 2>/dev/null | grep -E '"reason":"(compiler-artifact|build-script-executed)","package_id":"registry' |
        grep -oE '/debug/(build|deps)/[^"/]+' | grep -oE -- '-[0-9a-f]{16}' | sort -u
}

keep() {
    local place
    place=$folder/$(key)
    [ ! -d "$place" ] || return 0
    new=$folder/new.$$
    # Not a local variable: the trap runs after this function has ended.
    trap 'rm -rf "$new"' EXIT
    mkdir -p "$new/debug"
    hashes >"$new/hashes"
    [ -s "$new/hashes" ] || { echo "Cargo names no compiled crate: nothing is kept" >&2; return 0; }
    (cd "$target" && find .fingerprint build deps -maxdepth 1 -mindepth 1 | grep -F -f "$new/hashes" |
        xargs -d '\n' cp --archive --reflink=auto --parents --target-directory "$new/debug")
    mv --no-target-directory "$new" "$place" 2>/dev/null || true
    # Another checkout may read the oldest set at this moment: then Cargo compiles what is missing.
    find "$folder" -maxdepth 1 -mindepth 1 -printf '%T@ %p\n' | sort -rn | tail -n +$((kept + 1)) | cut -d ' ' -f 2- |
        xargs -r -d '\n' rm -rf
}

restore() {
    local place
    [ ! -d "$target" ] || return 0
    place=$folder/$(key)
    [ -d "$place" ] || return 0
    touch "$place"
    mkdir -p "$CARGO_TARGET_DIR"
    cp --archive --reflink=auto "$place/debug" "$target.$$"
    mv --no-target-directory "$target.$$" "$target" 2>/dev/null || rm -rf "$target.$$"
}

case ${1:-} in
keep | restore) "$1" ;;
*) sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
