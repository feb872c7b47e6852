#!/bin/sh
# Checks a signed release as its users do, that every change of it is noticed, and that another build gives equal files.
#
#   release/test.sh FOLDER PUBLIC-KEY
#
# The environment is that of release/build.sh and release/sign.sh.
set -eu
cd "$(dirname "$0")/.."
folder=$(cd "$1" && pwd)
public=$2
provenance=$folder/mczk-$VERSION.provenance.json
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "release/test.sh: $*" >&2
    exit 1
}

# Fails unless $2 is $3; $1 names it.
equal() {
    [ "$2" = "$3" ] || fail "$1 is $2, not $3"
}

digest() {
    sha256sum "$1" | cut -d ' ' -f 1
}

# Whether the folder $1 is what its signer released.
is_genuine() {
    (cd "$1" && "$COSIGN" verify-blob --key "$public" --bundle SHA256SUMS.sigstore.json --private-infrastructure SHA256SUMS &&
        sha256sum --check --quiet --strict SHA256SUMS) >"$work/output" 2>&1
}

# Whether the signed provenance in the folder $1 names the file $2.
has_provenance() {
    "$COSIGN" verify-blob-attestation --key "$public" --bundle "$1/mczk-$VERSION.provenance.sigstore.json" \
        --type slsaprovenance1 --private-infrastructure "$2" >"$work/output" 2>&1
}

signatures_hold() {
    is_genuine "$folder" || fail "the signature does not verify: $(cat "$work/output")"
    base64 --decode "$folder/SHA256SUMS.sig" >"$work/signature"
    openssl dgst -sha256 -verify "$public" -signature "$work/signature" "$folder/SHA256SUMS" >/dev/null ||
        fail "SHA256SUMS.sig is no signature of SHA256SUMS"
    listed=$(sed 's/^[0-9a-f]*  //' "$folder/SHA256SUMS" | tr '\n' ' ')
    for file in "$folder"/*; do
        name=${file##*/}
        case $name in SHA256SUMS* | *.sigstore.json) continue ;; esac
        case " $listed" in *" $name "*) ;; *) fail "SHA256SUMS lacks $name" ;; esac
        [ "$file" = "$provenance" ] || has_provenance "$folder" "$file" || fail "no provenance of $name: $(cat "$work/output")"
    done
}

# A changed file is refused, also if the changed digest is in SHA256SUMS.
changes_are_noticed() {
    cp -r "$folder" "$work/changed"
    program=$work/changed/mczk-$VERSION-linux-amd64.tar.gz
    echo >>"$program"
    ! is_genuine "$work/changed" || fail "a changed file has the right digest"
    ! has_provenance "$work/changed" "$program" || fail "a changed file has a provenance"
    sed -i "s/^[0-9a-f]*\(  ${program##*/}\)$/$(digest "$program")\1/" "$work/changed/SHA256SUMS"
    (cd "$work/changed" && sha256sum --check --quiet --strict SHA256SUMS) || fail "the test does not change the digest"
    ! is_genuine "$work/changed" || fail "a changed SHA256SUMS has a signature"
    rm -r "$work/changed"
}

program_runs() {
    program=$(release/unpack.sh "$folder" "$work/program")
    equal "the version of the program" "$("$program" --version)" "mczk $VERSION"
    for file in LICENSE share/man/mczk.1 share/completions/mczk.bash share/completions/mczk.zsh share/completions/mczk.fish; do
        [ -s "$work/program/$file" ] || fail "the archive lacks $file"
    done
}

# What krew does: it compares the digest, moves the files to one folder, and links the program into PATH.
plugin_runs() {
    for arch in amd64 arm64; do
        archive=mczk-$VERSION-linux-$arch.tar.gz
        equal "the digest of $archive for krew" \
            "$(sed -n "\|^ *uri: $URL/$archive$|{n;s/^ *sha256: //p}" "$folder/mczk.yaml")" "$(digest "$folder/$archive")"
    done
    mkdir "$work/krew"
    case $(uname -m) in aarch64) arch=arm64 ;; *) arch=amd64 ;; esac
    tar --extract --gzip --file "$folder/mczk-$VERSION-linux-$arch.tar.gz" --directory "$work/krew"
    from=$(sed -n "s|^ *- from: \(mczk-.*-$arch/bin/mczk\)$|\1|p" "$folder/mczk.yaml")
    # krew unpacks no links, so each name is a file or a folder.
    [ -z "$(find "$work/krew" ! -type d ! -type f -o -type f -links +1)" ] || fail "the archive has links"
    ln -s "$work/krew/$from" "$work/krew/kubectl-mczk"
    "$work/krew/kubectl-mczk" --help | grep -q '^Usage: kubectl mczk ' || fail "kubectl-mczk is no plugin of kubectl"
}

charts_work() {
    for chart in mczk mczk-agent; do
        package=$folder/$chart-$VERSION.tgz
        "$HELM" lint --strict --quiet "$package" >"$work/output" 2>&1 || fail "helm lint $chart: $(cat "$work/output")"
        "$HELM" template release "$package" --kube-version 1.33.0 --set image.repository=registry.example.org/mczk \
            >"$work/objects" || fail "helm template $chart"
        grep -q "image: \"*registry.example.org/mczk:$VERSION\"*$" "$work/objects" || fail "$chart has another image"
    done
}

# The images are those of the provenance, and carry the released SBOMs.
images_are_described() {
    mkdir "$work/layout"
    tar --extract --file "$folder/mczk-$VERSION-image.tar" --directory "$work/layout"
    layout=ocidir://$work/layout:$VERSION
    equal "the digest of the images" "$("$REGCTL" image digest "$layout")" \
        "sha256:$(jq --raw-output ".subject[] | select(.name == \"mczk:$VERSION\").digest.sha256" "$provenance")"
    for arch in amd64 arm64; do
        sbom=mczk-$VERSION-$arch.cdx.json
        "$REGCTL" artifact get --subject "$layout-$arch" >"$work/sbom"
        cmp "$work/sbom" "$folder/$sbom" || fail "the image for $arch has another SBOM"
        equal "the program of $sbom" "$(jq --raw-output '.metadata.component | .name + " " + .version' "$work/sbom")" \
            "mczk $VERSION"
    done
    equal "the commit in the provenance" "$(jq --raw-output \
        '.predicate.buildDefinition.resolvedDependencies[0].digest.gitCommit' "$provenance")" "$REVISION"
}

# A copy of the sources in another folder, with another target folder: Cargo would else build nothing again. Signatures with
# keys of this kind differ each time.
build_is_reproducible() {
    mkdir "$work/elsewhere"
    git ls-files -z | tar --create --null --files-from - | tar --extract --directory "$work/elsewhere"
    CARGO_TARGET_DIR=$work/target "$work/elsewhere/release/build.sh" "$work/again"
    diff --recursive --brief --exclude='SHA256SUMS.sig*' --exclude='*.sigstore.json' "$folder" "$work/again" >&2 ||
        fail "another build differs"
}

for check in signatures_hold changes_are_noticed program_runs plugin_runs charts_work images_are_described \
    build_is_reproducible; do
    $check
    echo "$check" | sed 's/_/ /g; s/^/release: /'
done
