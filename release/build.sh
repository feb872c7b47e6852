#!/bin/sh
# Builds all files of a release except the signatures. Equal commits, tools and addresses give equal files.
#
#   release/build.sh FOLDER
#
# FOLDER then holds:
#   mczk-VERSION-linux-ARCH.tar.gz   the program, with manual pages, completions and the licence
#   mczk-VERSION-image.tar           the images of both architectures with their SBOMs: an OCI layout
#   mczk-VERSION-ARCH.tar            the image for `docker load` and `ctr images import`
#   mczk-VERSION-ARCH.cdx.json       the SBOM of the program
#   mczk-VERSION-manifests.tar.gz    the definitions and the manifests for kubectl, and the examples
#   mczk-VERSION.tgz, mczk-agent-VERSION.tgz   the charts
#   mczk.yaml                        the manifest for krew
#   artifacthub-repo.yml             the metadata of the repository of the charts
#   mczk-VERSION.provenance.json     what was built from what, as SLSA provenance
#   SHA256SUMS                       the digests of all files above
#
# The environment is that of image/build.sh. It also has the program HELM, the address URL from which users fetch the files,
# the address BUILDER of the machine that builds, and the identifier ARTIFACTHUB_ID.
set -eu
cd "$(dirname "$0")/.."
mkdir -p "$1"
out=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rm -rf "${out:?}"/*

# Packs the folder $2 of $work into the archive $1.
pack() {
    tar --create --directory "$work" --format ustar --sort name --mtime "@$SOURCE_DATE_EPOCH" --owner 0 --group 0 \
        --numeric-owner --mode u=rwX,go=rX "$2" | gzip --no-name --best >"$out/$1"
}

images() {
    image/build.sh "$work/image"
    mv "$work/image"/mczk-* "$out"
    tar --create --file "$out/mczk-$VERSION-image.tar" --directory "$work/image/layout" --format ustar --sort name \
        --mtime "@$SOURCE_DATE_EPOCH" --owner 0 --group 0 --numeric-owner --mode u=rwX,go=rX .
}

# The pages and completions come from this machine's program: they do not depend on the architecture.
documents() {
    native=$(image/program.sh native)
    "$native" man "$work/man"
    mkdir -p "$work/completions"
    for shell in bash zsh fish; do
        "$native" completion $shell >"$work/completions/mczk.$shell"
    done
}

program() {
    name=mczk-$VERSION-linux-$1
    mkdir -p "$work/$name/bin" "$work/$name/share"
    install -m 755 "$(image/program.sh "$1")" "$work/$name/bin/mczk"
    cp -r "$work/man" "$work/completions" "$work/$name/share"
    cp LICENSE CHANGELOG.md "$work/$name"
    pack "$name.tar.gz" "$name"
}

# Helm writes the time of this moment, so its package is packed again.
chart() {
    mkdir "$work/packages"
    "$HELM" package --destination "$work/packages" "charts/$1" >/dev/null
    tar --extract --gzip --file "$work/packages/$1-$VERSION.tgz" --directory "$work"
    pack "$1-$VERSION.tgz" "$1"
    rm -r "$work/packages"
}

manifests() {
    mkdir "$work/mczk-$VERSION-manifests"
    cp -r manifests/crds manifests/*.yaml examples "$work/mczk-$VERSION-manifests"
    pack "mczk-$VERSION-manifests.tar.gz" "mczk-$VERSION-manifests"
}

digest() {
    sha256sum "$out/$1" | cut -d ' ' -f 1
}

krew() {
    sed -e '/^#/d' -e "s|HOMEPAGE|$SOURCE|" -e "s|URL|$URL|" -e "s|VERSION|$VERSION|g" \
        -e "s|SHA256_AMD64|$(digest "mczk-$VERSION-linux-amd64.tar.gz")|" \
        -e "s|SHA256_ARM64|$(digest "mczk-$VERSION-linux-arm64.tar.gz")|" release/krew.yaml >"$out/mczk.yaml"
}

images
documents
program amd64
program arm64
chart mczk
chart mczk-agent
manifests
krew
sed -e "/^#/d" -e "s/^repositoryID: .*/repositoryID: $ARTIFACTHUB_ID/" charts/artifacthub-repo.yml >"$out/artifacthub-repo.yml"
release/provenance.sh "$out" "$(cat "$work/image/digest")" >"$work/provenance"
mv "$work/provenance" "$out/mczk-$VERSION.provenance.json"
(cd "$out" && sha256sum -- *) >"$work/sums"
mv "$work/sums" "$out/SHA256SUMS"
