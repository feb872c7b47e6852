#!/bin/sh
# Makes the images of mczk without a container engine, as the last stage of the Containerfile describes them.
#
#   image/build.sh FOLDER
#
# FOLDER then holds:
#   layout                       an OCI image layout: the index of both architectures, tagged VERSION, with their SBOMs
#   mczk-VERSION-ARCH.tar        an archive for `docker load` and `ctr images import`
#   mczk-VERSION-ARCH.cdx.json   the SBOM: the crates in the program, in the format CycloneDX
#   digest                       the digest of the index
#
# The environment has the programs REGCTL and CYCLONEDX, the time SOURCE_DATE_EPOCH, and VERSION, REVISION and SOURCE for the
# labels: see image.mk.
set -eu
cd "$(dirname "$0")/.."
out=$1
shift
mkdir -p "$out"
out=$(cd "$out" && pwd)
layout=ocidir://$out/layout
created=$(date --utc --date="@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rm -rf "$out/layout" "$out"/mczk-*.tar "$out"/mczk-*.cdx.json "$out/digest"

# The value of an instruction in the last stage of the Containerfile.
instruction() {
    sed '1,/^FROM scratch/d' Containerfile | sed -n "s/^$1 //p"
}

# The labels as lines NAME="VALUE", with their variables replaced.
labels() {
    instruction LABEL | sed -e "s|\$SOURCE|$SOURCE|" -e "s|\$VERSION|$VERSION|" -e "s|\$REVISION|$REVISION|"
}

# The labels as the content of a JSON object.
labels_json() {
    labels | sed -e 's/^\([^=]*\)=/"\1": /' -e '$!s/$/,/'
}

# Stores the file $2 in the layout, and prints the reference to it as JSON, with the media type $1.
blob() {
    digest=$("$REGCTL" blob put "$layout" <"$2")
    printf '{"mediaType": "%s", "digest": "%s", "size": %d}' "$1" "$digest" "$(stat --format %s "$2")"
}

# Stores the image of the program $2 for the architecture $1.
image() {
    mkdir -p "$work/$1/bin"
    install -m 755 "$2" "$work/$1/bin/mczk"
    tar --create --file "$work/layer" --directory "$work/$1" --format ustar --sort name --mtime "@$SOURCE_DATE_EPOCH" \
        --owner 0 --group 0 --numeric-owner --mode u=rwx,go=rx bin
    gzip --no-name --best --stdout "$work/layer" >"$work/layer.gz"
    cat >"$work/config" <<EOF
{
  "created": "$created", "architecture": "$1", "os": "linux",
  "config": {
    "User": "$(instruction USER)", "WorkingDir": "$(instruction WORKDIR)", "Env": ["$(instruction ENV)"],
    "Entrypoint": $(instruction ENTRYPOINT),
    "Labels": {$(labels_json)}
  },
  "rootfs": {"type": "layers", "diff_ids": ["sha256:$(sha256sum "$work/layer" | cut -d ' ' -f 1)"]},
  "history": [{"created": "$created", "created_by": "image/build.sh"}]
}
EOF
    cat >"$work/manifest" <<EOF
{
  "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
  "config": $(blob application/vnd.oci.image.config.v1+json "$work/config"),
  "layers": [$(blob application/vnd.oci.image.layer.v1.tar+gzip "$work/layer.gz")],
  "annotations": {$(labels_json), "org.opencontainers.image.created": "$created"}
}
EOF
    "$REGCTL" manifest put --content-type application/vnd.oci.image.manifest.v1+json "$layout:$VERSION-$1" \
        <"$work/manifest" >/dev/null
}

# Writes the SBOM for the architecture $1 and the target $2, and attaches it to the image. cargo-cyclonedx writes beside each
# Cargo.toml, so it reads a copy.
sbom() {
    file=$out/mczk-$VERSION-$1.cdx.json
    mkdir -p "$work/sources"
    tar --create Cargo.toml Cargo.lock src tests benches | tar --extract --directory "$work/sources"
    (cd "$work/sources" && "$CYCLONEDX" cyclonedx --quiet --quiet --format json --spec-version 1.5 --no-build-deps \
        --target "$2" --override-filename sbom)
    # References to packages of the workspace contain its folder.
    sed "s|file://$work/sources|file:///mczk|g" "$work/sources/src/mczk/sbom.json" >"$file"
    "$REGCTL" artifact put --artifact-type application/vnd.cyclonedx+json --subject "$layout:$VERSION-$1" \
        --file "$file" --file-media-type application/vnd.cyclonedx+json --file-title --strip-dirs \
        --annotation "org.opencontainers.image.created=$created" >/dev/null
}

for arch in amd64 arm64; do
    program=$(image/program.sh $arch)
    target=$(basename "$(dirname "$(dirname "$program")")")
    echo "packing the image for $arch" >&2
    image $arch "$program"
    sbom $arch "$target"
    set -- "$@" --ref "$layout:$VERSION-$arch"
done
labels | sed 's/"//g' >"$work/labels"
while read -r label; do set -- "$@" --annotation "$label"; done <"$work/labels"
"$REGCTL" index create "$@" "$layout:$VERSION" >/dev/null
# regctl writes the time of this moment.
sed -i "s/\(image.created\":\"\)[^\"]*/\1$created/g" "$out/layout/index.json"
for arch in amd64 arm64; do
    "$REGCTL" image export --name "mczk:$VERSION" "$layout:$VERSION-$arch" "$out/mczk-$VERSION-$arch.tar"
done
"$REGCTL" image digest "$layout:$VERSION" >"$out/digest"
