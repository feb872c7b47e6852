#!/bin/sh
# Checks what targets of the Makefile need, by the table in requirements.txt, and installs what is missing.
#
#   tests/requirements.sh TARGET...   silent if nothing is missing; fails with one line that names the command to run
#   tests/requirements.sh --list      the requirements, with what is missing on this machine
set -eu
here=$(dirname "$0")
table=$here/requirements.txt
progress=$here/progress.sh

# Whether the machine has what the probe $1 stands for.
has() {
    case $1 in
    root) [ "$(id -u)" = 0 ] ;;
    cargo) cargo --version >/dev/null 2>&1 ;;
    go) has_go ;;
    cargo:*) cargo "${1#cargo:}" --version >/dev/null 2>&1 ;;
    # The compiler prints the bare name of a file that it does not find.
    lib:*) case $(cc -print-file-name="${1#lib:}" 2>/dev/null) in /*) true ;; *) false ;; esac ;;
    target:*) [ -d "$(rustc --print target-libdir --target "${1#target:}" 2>/dev/null)" ] ;;
    kernel:tun) [ -e /dev/net/tun ] ;;
    kernel:fuse) [ -e /dev/fuse ] ;;
    # Root mounts without it.
    fusermount3) [ "$(id -u)" = 0 ] || command -v fusermount3 >/dev/null ;;
    kernel:loop) [ -e /dev/loop-control ] ;;
    kernel:overlay | kernel:xfs) grep -q "[[:space:]]${1#kernel:}\$" /proc/filesystems ;;
    /*) [ -e "$1" ] ;;
    *) command -v "$1" >/dev/null ;;
    esac
}

# Go 1.25, or one from 1.21 on, which fetches it.
has_go() {
    command -v go >/dev/null || return 1
    minor=$(go version | sed -n 's/^go version go1\.\([0-9]*\).*/\1/p')
    [ "${minor:-0}" -ge 25 ] || { [ "${minor:-0}" -ge 21 ] && [ "$(go env GOTOOLCHAIN)" != local ]; }
}

# The rows of the table, without its first word: `rows need` or `rows target`.
rows() {
    sed -n "s/^$1  *//p" "$table"
}

# Prints PROBE INSTALLER PACKAGE... for everything that the targets need and the machine does not have.
missing() {
    sets=
    for target in "$@"; do
        found=$(rows target | while read -r name names; do [ "$name" != "$target" ] || echo "$names"; done)
        [ -n "$found" ] || { echo "requirements.txt does not name the target $target" >&2; return 1; }
        sets="$sets $found"
    done
    rows need | while read -r set probe rest; do
        case " $sets " in *" $set "*) has "$probe" || echo "$probe $rest" ;; esac
    done | sort -u
}

# The packages of all rows of standard input that the installer $1 serves, each once.
packages() {
    while read -r _ installer names; do
        [ "$installer" != "$1" ] || printf '%s\n' "$names"
    done | tr ' ' '\n' | sort -u | tr '\n' ' ' | sed 's/ *$//'
}

# Runs a command, which shows its progress as $1.
work() {
    label=$1
    shift
    "$progress" "$label" "$@" </dev/null
}

fail() {
    echo "$*" >&2
    exit 1
}

# Whether this script may install packages of the system.
is_allowed() {
    [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null
}

as_root() {
    label=$1
    shift
    if [ "$(id -u)" = 0 ]; then
        work "$label" env DEBIAN_FRONTEND=noninteractive "$@"
    else
        work "$label" sudo -n env DEBIAN_FRONTEND=noninteractive "$@"
    fi
}

updated=
apt_install() {
    command -v apt-get >/dev/null || fail "Packages are missing: install these, named as in Debian:  $*"
    install="apt-get install --yes --no-install-recommends $*"
    is_allowed || fail "Packages are missing: run  sudo $install"
    if [ -z "$updated" ]; then
        # Without a network, the lists that the machine has may do.
        as_root "fetching the lists of packages" apt-get update -qq || true
        updated=1
    fi
    as_root "installing $*" apt-get install -qq --no-install-recommends -o DPkg::Lock::Timeout=120 "$@" ||
        fail "apt cannot install the packages: mend it, and run  $install"
}

rust_install() {
    command -v rustup >/dev/null || { command -v apt-cache >/dev/null && apt-cache show rustup >/dev/null 2>&1 &&
        apt_install rustup; } || fail "Rust is missing: run  curl -fsS https://sh.rustup.rs | sh -s -- -y"
    work "installing Rust" rustup toolchain install stable --profile default || fail "rustup cannot install Rust."
}

# Debian's package may be too old.
go_install() {
    if command -v apt-cache >/dev/null; then
        minor=$(apt-cache policy golang-go 2>/dev/null | sed -n 's/^ *Candidate: 2:1\.\([0-9]*\).*/\1/p')
        [ "${minor:-0}" -lt 21 ] || apt_install golang-go
    fi
    has_go && return
    version=$(sed -n 's/^go \([0-9.]*\)$/\1/p' "$here/karmada/go.mod")
    case $(uname -m) in aarch64) arch=arm64 ;; *) arch=amd64 ;; esac
    fail "Go 1.25 or later is missing: run  curl -fsSL https://go.dev/dl/go$version.linux-$arch.tar.gz | tar -C /usr/local -xz"
}

# Without cargo-deny everything else still works. A target folder of its own: in that of the project Cargo would replace what
# the project has built of the same crates with other features.
cargo_install() {
    work "building $1 by cargo install, about 5 minutes" env --unset CARGO_TARGET_DIR cargo install --locked "$1" ||
        echo "$1 cannot be installed: licences and advisories will not be checked." >&2
}

list() {
    rows target | while read -r target sets; do echo "$target: $sets"; done
    rows need | while read -r set probe installer names; do
        state=MISSING
        if has "$probe"; then state=ok; fi
        printf '%-10s %-30s %-8s %s\n' "$set" "$probe" "$state" "$installer $names"
    done
}

main() {
    # make runs this before it knows of a toolchain that is installed only now.
    PATH=$PATH:$HOME/.cargo/bin:/usr/local/go/bin:/usr/sbin:/sbin
    [ "${1:-}" != --list ] || { list; return; }
    lacks=$(missing "$@")
    [ -n "$lacks" ] || return 0
    case "$lacks" in *"root root"*)
        fail "Real nodes need root: run  sudo -E env \"PATH=\$PATH\" make $1  (make demo-control-plane needs no root)" ;;
    esac
    each() { printf '%s\n' "$lacks" | packages "$1"; }
    asked=" $(printf '%s\n' "$lacks" | while read -r _ installer _; do printf '%s ' "$installer"; done)"
    # What cannot be installed fails before anything else is installed.
    case $asked in *" go "*) go_install ;; esac
    names=$(each apt)
    # shellcheck disable=SC2086 # several packages
    [ -z "$names" ] || apt_install $names
    case $asked in *" rust "*) rust_install ;; esac
    names=$(each rustup)
    # shellcheck disable=SC2086 # several components
    [ -z "$names" ] || work "installing $names" rustup component add $names || fail "Run  rustup component add $names"
    names=$(each target)
    # shellcheck disable=SC2086 # several targets
    [ -z "$names" ] || work "installing Rust for $names" rustup target add $names || fail "Run  rustup target add $names"
    for module in $(printf '%s\n' "$lacks" | sed -n 's/^kernel:\([a-z]*\) .*/\1/p'); do
        modprobe "$module" 2>/dev/null || true
        has "kernel:$module" || fail "The kernel has no $module: run  modprobe $module  outside any container"
    done
    for crate in $(each cargo); do cargo_install "$crate"; done
    left=$(missing "$@" | while read -r probe installer _; do [ "$installer" = cargo ] || printf ' %s' "$probe"; done)
    [ -z "$left" ] || fail "Still missing after the installation:$left"
}

main "$@"
