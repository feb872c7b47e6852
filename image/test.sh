#!/bin/sh
# Checks the images in a folder that image/build.sh has made, and that another build has equal ones.
#
#   image/test.sh FOLDER
#
# The environment is that of image/build.sh, and has the program REGISTRY. If REQUIRED is set, no check is skipped.
set -eu
cd "$(dirname "$0")/.."
folder=$1
layout=ocidir://$folder/layout
work=$(mktemp -d "$folder.XXXXXX")
registry=
end() {
    [ -z "$registry" ] || kill "$registry"
    rm -rf "$work"
}
trap end EXIT
trap 'exit 1' INT TERM HUP

fail() {
    echo "image/test.sh: $*" >&2
    exit 1
}

# Fails unless $2 is $3; $1 names it.
equal() {
    [ "$2" = "$3" ] || fail "$1 is $2, not $3"
}

# A value in the configuration of the image for $1, by its path $2 in a template of Go.
config() {
    "$REGCTL" image inspect --format "{{$2}}" "$layout:$VERSION-$1"
}

configuration_is_right() {
    equal architecture "$(config "$1" .Architecture)" "$1"
    equal user "$(config "$1" .Config.User)" 65532:65532
    equal "entry point" "$(config "$1" 'json .Config.Entrypoint')" '["/bin/mczk"]'
    equal time "$(config "$1" .Created.Unix)" "$SOURCE_DATE_EPOCH"
    for label in title=mczk licenses=Apache-2.0 "version=$VERSION" "revision=$REVISION" "source=$SOURCE"; do
        name=org.opencontainers.image.${label%%=*}
        equal "label $name" "$(config "$1" "index .Config.Labels \"$name\"")" "${label#*=}"
        equal "annotation $name" "$("$REGCTL" manifest get --format "{{index .Annotations \"$name\"}}" "$layout:$VERSION-$1")" \
            "${label#*=}"
    done
}

# The archive holds one file, which runs, if this machine can run it.
program_runs() {
    mkdir "$work/$1"
    tar --extract --file "$folder/mczk-$VERSION-$1.tar" --directory "$work/$1"
    grep -q "/mczk:$VERSION\"" "$work/$1/manifest.json" || fail "the archive for $1 has no name for docker load"
    layer=$("$REGCTL" manifest get --format '{{(index .Layers 0).Digest}}' "$layout:$VERSION-$1")
    equal "content of the layer" "$(tar --list --file "$work/$1/blobs/sha256/${layer#sha256:}" | tr '\n' ' ')" 'bin/ bin/mczk '
    tar --extract --file "$work/$1/blobs/sha256/${layer#sha256:}" --directory "$work/$1"
    for path in "$PWD" "${CARGO_HOME:-$HOME/.cargo}" "$CARGO_TARGET_DIR"; do
        ! grep --quiet --fixed-strings "$path" "$work/$1/bin/mczk" || fail "the program for $1 contains $path"
    done
    run=
    if [ "$1" != "$2" ]; then
        run=$(command -v "qemu-$3-static" || command -v "qemu-$3") || {
            tests/skipped.sh "qemu-$3 is not installed (Debian: qemu-user-static)" "the program for $1 runs" || exit 1
            return 0
        }
    fi
    equal "version of the program" "$($run "$work/$1/bin/mczk" --version)" "mczk $VERSION"
}

# The names and versions in the SBOM: all crates that are linked, and none that Cargo.lock lacks.
sbom_is_complete() {
    sed -n 's|.*"purl": "pkg:cargo/\([^@]*\)@\([^?"#]*\).*|\1 \2|p' "$folder/mczk-$VERSION-$1.cdx.json" | sort -u >"$work/sbom"
    "${CARGO:-cargo}" tree --package mczk --edges normal,no-proc-macro --target "$2" --prefix none --format '{p}' |
        sed 's|^\([^ ]*\) v\([^ ]*\).*|\1 \2|' | sort -u >"$work/linked"
    sed -n '/^name = /{s/^name = "\(.*\)"/\1/;N;s/\nversion = "\(.*\)"/ \1/;p}' Cargo.lock | sort -u >"$work/locked"
    [ "$(wc -l <"$work/linked")" -gt 100 ] || fail "cargo tree lists too few crates"
    equal "what the SBOM for $1 lacks" "$(comm -13 "$work/sbom" "$work/linked")" ''
    equal "what only the SBOM for $1 has" "$(comm -23 "$work/sbom" "$work/locked")" ''
    equal "number of SBOMs of $1" "$("$REGCTL" artifact list --format '{{len .Descriptors}}' \
        --filter-artifact-type application/vnd.cyclonedx+json "$layout:$VERSION-$1")" 1
}

# A copy of the sources in another folder, with another target folder, gives the same index.
build_is_reproducible() {
    mkdir "$work/elsewhere"
    git ls-files -z | tar --create --null --files-from - | tar --extract --directory "$work/elsewhere"
    CARGO_TARGET_DIR=$work/target "$work/elsewhere/image/build.sh" "$work/again"
    equal "the digest of the second build" "$(cat "$work/again/digest")" "$(cat "$folder/digest")"
    for file in "$folder"/mczk-*; do
        cmp "$file" "$work/again/${file##*/}" || fail "${file##*/} differs"
    done
}

# The image and its SBOMs pass through a registry unchanged.
registry_has_it() {
    address=127.0.0.1:${REGISTRY_PORT:-5999}
    cat >"$work/registry.yml" <<EOF
version: 0.1
log: {level: error}
storage: {filesystem: {rootdirectory: $work/registry}}
http: {addr: "$address"}
EOF
    OTEL_TRACES_EXPORTER=none "$REGISTRY" serve "$work/registry.yml" >"$work/registry.log" 2>&1 &
    registry=$!
    remote() { "$REGCTL" --host "reg=$address,tls=disabled" "$@"; }
    tries=0
    until remote registry config "$address" >/dev/null 2>&1 && remote repo ls "$address" >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ $tries -lt 60 ] || { cat "$work/registry.log" >&2; fail "the registry does not answer"; }
        sleep 0.5
    done
    remote image copy --referrers "$layout:$VERSION" "$address/mczk:$VERSION"
    equal "digest in the registry" "$(remote image digest "$address/mczk:$VERSION")" "$(cat "$folder/digest")"
    remote image copy --referrers "$address/mczk@$(cat "$folder/digest")" "ocidir://$work/pulled:$VERSION"
    equal "digest of the pulled image" "$("$REGCTL" image digest "ocidir://$work/pulled:$VERSION")" "$(cat "$folder/digest")"
    for arch in amd64 arm64; do
        subject=$(remote image digest --platform "linux/$arch" "$address/mczk:$VERSION")
        remote artifact get --subject "$address/mczk@$subject" >"$work/sbom.json"
        cmp "$work/sbom.json" "$folder/mczk-$VERSION-$arch.cdx.json" || fail "the SBOM for $arch changed in the registry"
    done
    kill "$registry"
    registry=
}

case $(uname -m) in aarch64) here=arm64 ;; *) here=amd64 ;; esac
for pair in amd64=x86_64 arm64=aarch64; do
    arch=${pair%=*}
    configuration_is_right "$arch"
    program_runs "$arch" "$here" "${pair#*=}"
    sbom_is_complete "$arch" "${pair#*=}-unknown-linux-gnu"
    echo "the image for $arch is right" >&2
done
registry_has_it
echo "a registry has the same images" >&2
build_is_reproducible
echo "another build has the same digest" >&2
