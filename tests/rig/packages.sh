#!/usr/bin/env bash
# Compiles the Go packages of a federation into Go's cache, so that `rig` only has to link them. It needs no `rig`, so it
# can run while Cargo builds that.
#
#   tests/rig/packages.sh [--without-helm]
set -euo pipefail
cd "$(dirname "$0")/../karmada"
export CGO_ENABLED=0 GOWORK=off
left=none
[ "${1:-}" != --without-helm ] || left='helm\.sh'
# The flags that `rig` uses: others would be other packages.
list=(go list -export -deps -mod=readonly -trimpath)
sed -n '/^tool (/,/^)/s/^\t//p' go.mod | grep -vE "$left" | xargs "${list[@]}" >/dev/null
cd coredns
"${list[@]}" . >/dev/null
